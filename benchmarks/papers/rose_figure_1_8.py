"""Figure 1.8 of Blundell, Teh & Heller (2010): 60 objects with 100 binary features.

The paper does not list its objects and features; a like extract of the same norms (McRae et al.
2005) takes their place, and without the data folder drawn rows do. BHC-γ and BRT are compared, and
what the paper says of lions and tigers is looked at with and without the three features it names.
"""

from __future__ import annotations

import argparse

import numpy as np
from drawing import draw_tree, steps_below
from runner import Record, Unit, pictures, pyplot, study
from samples import binary_mixture, has_data

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, Tree
from bhclust.datasets import load_paper_data
from bhclust.metrics import dendrogram_purity

ESTIMATORS = {
    "BHC-DP": lambda: BayesianHierarchicalClustering("bernoulli"),
    "BRT-DP": lambda: BayesianRoseTree("bernoulli", mixing="dirichlet_process"),
    "BHC-γ": lambda: BayesianHierarchicalClustering("bernoulli", mixing="constant"),
    "BRT-γ": lambda: BayesianRoseTree("bernoulli", mixing="constant"),
    "BRT": lambda: BayesianRoseTree("bernoulli"),
}
FEROCIOUS = ("is_ferocious", "beh_-_roars", "lives_in_wilderness")


def objects(removed: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return features, groups and names, with or without the features of lions and tigers."""
    if not has_data():
        X, y, _ = binary_mixture(np.random.default_rng(0), 5, 4, 30, 0.3)
        return X, y, [f"object {i}" for i in range(len(y))]
    data = load_paper_data("mcrae60x100")
    kept = ~np.isin(data["feature_names"], FEROCIOUS if removed else ())
    return data["X"][:, kept] * 1.0, data["y"], data["names"].tolist()


def units(quick: bool) -> list[Unit]:
    return [{"removed": removed} for removed in (False, True)]


def with_the_cats(tree: Tree, names: list[str], labels: np.ndarray) -> dict[str, list[str]]:
    """Return what shares a cluster with the lion, and the next larger subtree around it."""
    lion = names.index("lion") if "lion" in names else 0
    node = int(tree.parent[lion])
    around = [names[leaf] for leaf in tree.leaves(node)]
    return {
        "cluster": [names[i] for i in np.flatnonzero(labels == labels[lion])],
        "below the parent": around,
    }


def compute(unit: Unit) -> Record:
    X, y, names = objects(unit["removed"])
    out: Record = {"stand_in": not has_data()}
    for name, make in ESTIMATORS.items():
        fitted = make().fit(X)
        tree = fitted.tree_
        out[name] = {
            "log likelihood": fitted.log_evidence_,
            "log10 partitions": tree.log10_partitions(),
            "internal nodes": tree.n_nodes - tree.n_leaves,
            "clusters": fitted.n_clusters_,
            "purity": dendrogram_purity(tree, y.tolist()),
            "lion": with_the_cats(tree, names, fitted.labels_),
            "parent": tree.parent.tolist(),
        }
    return out


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    table = {
        "without the three features" if r["unit"]["removed"] else "all features": {
            name: {k: v for k, v in r["result"][name].items() if k != "parent"}
            for name in ESTIMATORS
        }
        for r in records
    }
    for part, rows in table.items():
        for name, row in rows.items():
            print(part, name, {k: v for k, v in row.items() if k != "lion"})
        print("with the lion:", rows["BRT"]["lion"])
    if pictures(options):
        _, y, names = objects(False)
        plot = pyplot()
        figure, axes = plot.subplots(1, 2, figsize=(8.5, 8.5))
        for ax, name in zip(axes, ("BHC-γ", "BRT"), strict=True):
            tree = Tree(records[0]["result"][name]["parent"], n_leaves=len(y))
            heights = steps_below(tree)
            shown = [label.replace("_", " ") for label in names]
            draw_tree(ax, tree, heights, labels=shown, colours=y.tolist(), sideways=True, size=7)
            ax.set_xlim(-1.03 * heights[-1], 0.45 * heights[-1])
            ax.set_title(
                f"{name}: log likelihood {table['all features'][name]['log likelihood']:.0f}"
            )
        figure.tight_layout()
        figure.savefig(options.out / "rose_figure_1_8.png", dpi=85)
    return {"table": table, "stand_in": records[0]["result"]["stand_in"]}


if __name__ == "__main__":
    study("rose_figure_1_8", units, compute, finish, __doc__)
