"""Figure 1.1 of Blundell, Teh & Heller (2010): spurious structure of binary trees, on the toy set.

BHC-γ and BRT on 48 binary rows of length 12 in three groups without any structure inside.
"""

from __future__ import annotations

import argparse

import numpy as np
from drawing import draw_tree, steps_below
from runner import Record, Unit, mean_and_error, pictures, pyplot, study
from samples import toy

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust.metrics import dendrogram_purity

MODELS = {
    "BHC-γ": lambda: BayesianHierarchicalClustering(mixing="constant"),
    "BRT": lambda: BayesianRoseTree(),
}


def units(quick: bool) -> list[Unit]:
    return [{"draw": draw, "seed": 2010} for draw in range(1 if quick else 20)]


def compute(unit: Unit) -> Record:
    X, y, _ = toy(np.random.default_rng([unit["seed"], unit["draw"]]))
    out: Record = {}
    for name, make in MODELS.items():
        fitted = make().fit(X)
        out[name] = {
            "internal nodes": fitted.tree_.n_nodes - fitted.tree_.n_leaves,
            "log10 partitions": fitted.tree_.log10_partitions(),
            "depth": int(steps_below(fitted.tree_)[-1]),
            "log likelihood": fitted.log_evidence_,
            "purity": dendrogram_purity(fitted.tree_, y.tolist()),
            "parent": fitted.tree_.parent.tolist() if unit["draw"] == 0 else [],
        }
    return out


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    keys = [key for key in records[0]["result"]["BRT"] if key != "parent"]
    table = {
        name: {key: mean_and_error([r["result"][name][key] for r in records]) for key in keys}
        for name in MODELS
    }
    print(table)
    if pictures(options):
        from bhclust import Tree

        _, y, _ = toy(np.random.default_rng([2010, 0]))
        plot = pyplot()
        figure, axes = plot.subplots(1, 2, figsize=(8, 2.8))
        for ax, name in zip(axes, MODELS, strict=True):
            tree = Tree(records[0]["result"][name]["parent"], n_leaves=len(y))
            draw_tree(ax, tree, steps_below(tree), colours=y.tolist(), size=9)
            ax.set_title(name, fontsize=9)
        figure.tight_layout()
        figure.savefig(options.out / "rose_figure_1_1.png", dpi=80)
    return {"table": table, "draws": len(records), "seed": 2010}


if __name__ == "__main__":
    study("rose_figure_1_1", units, compute, finish, __doc__)
