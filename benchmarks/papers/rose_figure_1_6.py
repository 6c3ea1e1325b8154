"""Figure 1.6 of Blundell, Teh & Heller (2010): the optimum depends on where learning starts.

Two numbers of the beta-Bernoulli prior, those of zeros in the first two columns, start on a grid
and all others at the default; everything is then learned in turn with greedy rose trees. The map
shows log p(D | T) where that ends. The paper does not say which data it used: the toy set and a
draw of the digits 0, 2, 4, a tenth of the entries missing ("particularly where binary data are
missing").
"""

from __future__ import annotations

import argparse

import numpy as np
from runner import Record, Unit, pictures, pyplot, study
from samples import digits024, toy

from bhclust import BayesianRoseTree
from bhclust.models import Bernoulli

GRID = np.round(np.geomspace(0.05, 20, 8), 4).tolist()
DATA = {"toy": toy, "digits024": lambda rng: digits024(rng, 32)}


def table_of(name: str) -> np.ndarray:
    """Return the rows with a tenth of the entries missing."""
    rng = np.random.default_rng([2010, *name.encode()])
    X = DATA[name](rng).X
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


def units(quick: bool) -> list[Unit]:
    grid = GRID[::7] if quick else GRID
    names = ("toy",) if quick else tuple(DATA)
    return [{"data": name, "b1": one, "seed": 2010} for name in names for one in grid]


def compute(unit: Unit) -> Record:
    X = table_of(unit["data"])
    start = Bernoulli().resolve(X)
    ends = []
    for second in GRID:
        b = np.array(start.b, dtype=float)
        b[:2] = unit["b1"], second
        model = Bernoulli(a=start.a, b=b)
        fitted = BayesianRoseTree(model, learn=True, strategy="greedy").fit(X)
        ends.append(fitted.log_evidence_)
    default = BayesianRoseTree("bernoulli", learn=True, strategy="greedy").fit(X)
    restarted = None
    if unit["b1"] == GRID[0]:
        again = BayesianRoseTree("bernoulli", learn=True, strategy="greedy", n_restarts=10).fit(X)
        restarted = again.log_evidence_
    return {"ends": ends, "default": default.log_evidence_, "restarted": restarted}


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    out: Record = {}
    for name in DATA:
        found = [r["result"] for r in records if r["unit"]["data"] == name]
        if not found:
            continue
        ends = np.array([f["ends"] for f in found])
        out[name] = {
            "ends": np.round(ends, 2).tolist(),
            "lowest": float(ends.min()),
            "highest": float(ends.max()),
            "from the default": found[0]["default"],
            "ten restarts": found[0]["restarted"],
            "distinct optima": len(np.unique(np.round(ends, 1))),
        }
        print(name, {k: v for k, v in out[name].items() if k != "ends"})
    if pictures(options):
        plot = pyplot()
        figure, axes = plot.subplots(1, len(out), figsize=(4.4 * len(out), 3.6))
        for ax, (name, part) in zip(np.atleast_1d(axes), out.items(), strict=True):
            image = ax.imshow(np.array(part["ends"]).T, origin="lower", cmap="viridis")
            ticks = range(len(GRID))
            texts = [f"{value:.2g}" for value in GRID]
            ax.set_xticks(ticks[: len(part["ends"])], texts[: len(part["ends"])], fontsize=7)
            ax.set_yticks(ticks, texts, fontsize=7)
            ax.set_xlabel("start of β₁")
            ax.set_ylabel("start of β₂")
            ax.set_title(f"{name}: log likelihood at the end", fontsize=9)
            figure.colorbar(image, ax=ax, fraction=0.046)
        figure.tight_layout()
        figure.savefig(options.out / "rose_figure_1_6.png", dpi=80)
    return {"maps": out, "grid": GRID, "seed": 2010}


if __name__ == "__main__":
    study("rose_figure_1_6", units, compute, finish, __doc__)
