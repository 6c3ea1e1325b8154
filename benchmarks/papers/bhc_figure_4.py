"""Figure 4 of Heller & Ghahramani (2005): evidence against purity over 50 settings of the prior.

The paper does not say which data or which settings; here are all six sets of its Table 1 (one draw
each) and 50 random priors a set. Binary columns: the prior mean between a half and the column's
frequency, the prior items over three decades. Gaussians: the expected covariance over three
decades around the default, the strength of the mean likewise. One greedy pass, nothing learned.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from runner import Record, Unit, pictures, pyplot, study
from samples import BHC_PAPER
from scipy.stats import spearmanr

from bhclust import BayesianHierarchicalClustering
from bhclust.metrics import dendrogram_purity
from bhclust.models import Bernoulli, DiagonalGaussian, Gaussian

N_SETTINGS = 50
GAUSSIAN = {"Synthetic": Gaussian, "Glass": DiagonalGaussian}


def random_prior(name: str, X: np.ndarray, rng: np.random.Generator) -> Any:
    """Return a model with a prior drawn at random."""
    if name not in GAUSSIAN:
        frequency = (X.sum(axis=0) + 1) / (len(X) + 2)
        items, share = float(np.exp(rng.uniform(np.log(0.2), np.log(200)))), rng.uniform()
        a = items * (share * frequency + (1 - share) / 2)
        return Bernoulli(a=a, b=items - a)
    default = GAUSSIAN[name]().resolve(X)
    width, strength = np.exp(rng.uniform(np.log(0.03), np.log(30), size=2))
    if name == "Glass":
        return DiagonalGaussian(strength=default.strength * strength, rate=default.rate * width)
    return Gaussian(strength=float(default.strength * strength), scale=default.scale * width)


def units(quick: bool) -> list[Unit]:
    return [{"data": name, "seed": 2005} for name in (["10Digits"] if quick else BHC_PAPER)]


def compute(unit: Unit) -> Record:
    rng = np.random.default_rng([unit["seed"], *unit["data"].encode()])
    X, y, stand_in = BHC_PAPER[unit["data"]](rng)
    X = X[:, X.min(axis=0) < X.max(axis=0)]
    points = []
    for _ in range(N_SETTINGS):
        model = random_prior(unit["data"], X, rng)
        settings: dict[str, Any] = {"learn": False, "strategy": "greedy"}
        fitted = BayesianHierarchicalClustering(model, **settings).fit(X)
        points.append([fitted.log_evidence_bound_, dendrogram_purity(fitted.tree_, y.tolist())])
    return {"points": points, "stand_in": stand_in}


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    out: Record = {}
    for record in records:
        points = np.array(record["result"]["points"])
        best = int(points[:, 0].argmax())
        out[record["unit"]["data"]] = {
            "correlation": float(np.corrcoef(points.T)[0, 1]),
            "rank correlation": float(spearmanr(points[:, 0], points[:, 1]).statistic),
            "purity at the highest evidence": float(points[best, 1]),
            "mean purity": float(points[:, 1].mean()),
            "highest purity": float(points[:, 1].max()),
            "points": np.round(points, 4).tolist(),
        }
        shown = {k: round(v, 3) for k, v in out[record["unit"]["data"]].items() if k != "points"}
        print(record["unit"]["data"], shown)
    if pictures(options):
        plot = pyplot()
        figure, axes = plot.subplots(2, 3, figsize=(9, 5.2), squeeze=False)
        for ax, (name, part) in zip(axes.ravel(), out.items(), strict=False):
            points = np.array(part["points"])
            ax.scatter(points[:, 0], points[:, 1], s=10, color="#1b6ca8")
            ax.set_title(f"{name}: correlation {part['correlation']:.2f}", fontsize=9)
            ax.tick_params(labelsize=7)
            ax.locator_params(axis="x", nbins=4)
        for ax in axes[-1]:
            ax.set_xlabel("evidence", fontsize=8)
        for ax in axes[:, 0]:
            ax.set_ylabel("purity", fontsize=8)
        figure.tight_layout()
        figure.savefig(options.out / "bhc_figure_4.png", dpi=80)
    stand_in = any(r["result"]["stand_in"] for r in records)
    return {"paper": {"correlation": 0.888}, "sets": out, "seed": 2005, "stand_in": stand_in}


if __name__ == "__main__":
    study("bhc_figure_4", units, compute, finish, __doc__)
