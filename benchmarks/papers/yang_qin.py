"""The table of Yang & Qin (2017): purity of five random pairs, as they did it, and exactly.

Their purity draws a class (by its share), then two leaves of it, five times with one seed: a Monte
Carlo value of a large error. The exact purity of the same trees stands beside it. BHC is fitted as
the library comes, and with the prior of their program (``bhc`` by L. Yang & X. Qin: normal with
inverse-Wishart, mean and a tenth of the covariance of the table, r = 0.001, α = 1; beta with two
items at the column's frequency, α = 0.001).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from runner import Record, Unit, mean_and_error, study
from samples import has_data
from scipy.cluster.hierarchy import linkage

from bhclust import BayesianHierarchicalClustering, Tree
from bhclust.datasets import load_paper_data, make_blocks
from bhclust.metrics import dendrogram_purity
from bhclust.models import Bernoulli, Gaussian

LINKAGES = ("single", "complete", "average")
METHODS = (*LINKAGES, "BHC", "BHC, their prior")
THEIR_SEED, THEIR_PAIRS = 12, 5
# single, complete, average, BHC
PAPER = {
    "SYNTHETIC_multivariate": (0.689, 0.6, 0.689, 1.0),
    "Aggregation": (0.85, 1.0, 1.0, 0.788),
    "Spiral": (1.0, 0.332, 0.334, 0.35),
    "SYNTHETIC_binary": (0.641, 0.561, 0.608, 0.681),
    "CEDAR": (0.572, 0.73, 0.863, 0.978),
}
BINARY = ("SYNTHETIC_binary", "CEDAR")


def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes of one of their data sets, or a small stand-in."""
    if not has_data():
        X, y = make_blocks(random_state=0)
        noise = np.random.default_rng(0).normal(size=(len(y), 2))
        return (X * 1.0 if name in BINARY else 4.0 * np.eye(3)[y][:, :2] + noise), y
    if name in ("Aggregation", "Spiral"):
        data = load_paper_data(f"shape_{name.lower()}")
        return data["X"], data["y"]
    if name == "CEDAR":
        data = load_paper_data("cedar_digits024")
        return (data["X"] > 128) * 1.0, data["y"]
    data = load_paper_data("yang_qin_synthetic")
    part = "bin" if name in BINARY else "multi"
    return data[f"X_{part}"] * 1.0, data[f"y_{part}"]


def purity_of_pairs(tree: Tree, y: np.ndarray, n_pairs: int, seed: int) -> float:
    """Return the mean purity of random pairs, drawn in the order of their program."""
    legacy = np.random.RandomState(seed)  # their numbers are this generator's
    found = []
    for _ in range(n_pairs):
        wanted = legacy.choice(y)
        one, other = legacy.choice(np.flatnonzero(y == wanted), 2, replace=False)
        node = tree.mrca(int(one), int(other))
        found.append(float((y[tree.leaves(node)] == wanted).mean()))
    return float(np.mean(found))


def their_fit(name: str, X: np.ndarray) -> Tree:
    """Return the greedy tree with their prior."""
    if name in BINARY:
        mean = np.vstack([X, np.full(X.shape[1], 0.001), np.zeros(X.shape[1])]).mean(axis=0)
        model: Any = Bernoulli(a=2 * mean, b=2 * (1 - mean))
        alpha = 0.001
    else:
        d = X.shape[1]
        model = Gaussian(strength=0.001, dof=float(d), scale=np.cov(X.T) / 10)
        alpha = 1.0
    settings: dict[str, Any] = {"learn": False, "strategy": "greedy", "alpha": alpha}
    return BayesianHierarchicalClustering(model, **settings).fit(X).tree_


def units(quick: bool) -> list[Unit]:
    return [{"data": name} for name in (BINARY[:1] if quick else PAPER)]


def compute(unit: Unit) -> Record:
    X, y = table_of(unit["data"])
    trees = {method: Tree.from_linkage(linkage(X, method)) for method in LINKAGES}
    trees["BHC"] = BayesianHierarchicalClustering().fit(X).tree_
    trees["BHC, their prior"] = their_fit(unit["data"], X)
    out: Record = {"rows": len(y), "stand_in": not has_data()}
    for method, tree in trees.items():
        others = [purity_of_pairs(tree, y, THEIR_PAIRS, seed) for seed in range(200)]
        out[method] = {
            "five pairs": purity_of_pairs(tree, y, THEIR_PAIRS, THEIR_SEED),
            "exact": dendrogram_purity(tree, y.tolist()),
            "spread of five pairs": mean_and_error(others)[1] * np.sqrt(len(others)),
        }
    return out


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    table = {r["unit"]["data"]: {m: r["result"][m] for m in METHODS} for r in records}
    for name, row in table.items():
        print(name, {m: (round(v["five pairs"], 3), round(v["exact"], 3)) for m, v in row.items()})
    return {
        "paper": PAPER,
        "table": table,
        "seed": THEIR_SEED,
        "stand_in": any(r["result"]["stand_in"] for r in records),
    }


if __name__ == "__main__":
    study("yang_qin", units, compute, finish, __doc__)
