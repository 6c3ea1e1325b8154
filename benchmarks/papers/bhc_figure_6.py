"""Figure 6 of Heller & Ghahramani (2005): the top of the newsgroups tree, in words.

800 articles of four groups, the 50 words of highest information gain about the group (so the words
are chosen with the classes, as in the paper; nothing else sees them). The last three merges of BHC
and of average linkage: sizes, the commonest group, and the three words that have the highest mutual
information with being in the node rather than in its sibling, among those more frequent in it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from runner import Record, Unit, mean_and_error, pictures, pyplot, study
from samples import Words, newsgroup_words
from scipy.cluster.hierarchy import linkage

from bhclust import BayesianHierarchicalClustering, Tree
from bhclust.metrics import dendrogram_purity

N_WORDS = 50
# Sizes in the paper's figure: the children of the root, and their children.
PAPER = {
    "BHC": {"halves": [354, 446], "quarters": [205, 149, 284, 162]},
    "average linkage": {"halves": [1, 799], "quarters": [2, 797, 1, 796]},
    "words of BHC": [
        ["Game", "Team", "Play"],
        ["Car", "Space", "NASA"],
        ["Baseball", "Pitch", "Hit"],
        ["NHL", "Hockey", "Round"],
        ["Car", "Dealer", "Drive"],
        ["Space", "NASA", "Orbit"],
    ],
}


def information(present: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the mutual information of each 0/1 column with the classes, in nats."""
    out = np.zeros(present.shape[1])
    overall = present.mean(axis=0)
    for value in np.unique(classes):
        inside = classes == value
        share = inside.mean()
        for p, q in (
            (present[inside].mean(axis=0), overall),
            (1 - present[inside].mean(axis=0), 1 - overall),
        ):
            with np.errstate(divide="ignore", invalid="ignore"):
                out += share * np.where(p > 0, p * np.log(p / q), 0.0)
    return out


def telling_words(
    X: np.ndarray, words: np.ndarray, node: np.ndarray, other: np.ndarray
) -> list[str]:
    """Return the three words that set a node apart from its sibling."""
    rows = np.concatenate([node, other])
    inside = np.arange(len(rows)) < len(node)
    score = information(X[rows], inside)
    more = X[node].mean(axis=0) > X[other].mean(axis=0)
    order = np.argsort(-np.where(more, score, -1.0), kind="stable")
    return words[order[:3]].tolist()


def top_nodes(tree: Tree) -> list[int]:
    """Return the nodes that the last three merges joined: children of the root, then theirs.

    The two largest splits below the root are followed, as in the paper's picture: a child that is
    a leaf has no children to show.
    """
    halves = tree.children(tree.n_nodes - 1).tolist()
    quarters = [child for half in halves for child in tree.children(half).tolist()]
    return [*halves, *quarters]


def describe(tree: Tree, found: Words, X: np.ndarray, words: np.ndarray) -> list[Record]:
    """Return size, words and groups of each node at the top."""
    out = []
    for node in top_nodes(tree):
        parent = int(tree.parent[node])
        siblings = [int(c) for c in tree.children(parent) if c != node]
        rows = tree.leaves(node)
        rest = np.concatenate([tree.leaves(c) for c in siblings])
        counts = np.bincount(found.y[rows], minlength=len(found.class_names))
        out.append(
            {
                "level": 1 if parent == tree.n_nodes - 1 else 2,
                "size": len(rows),
                "words": telling_words(X, words, rows, rest),
                "group": found.class_names[int(counts.argmax())],
                "share": float(counts.max() / len(rows)),
            }
        )
    return out


def picture(trees: Record, path: Any) -> None:
    """Draw the last three merges of both trees, a box a node: size, words, commonest group."""
    plot = pyplot()
    figure, axes = plot.subplots(2, 1, figsize=(9, 6.4))
    for ax, (name, part) in zip(axes, trees.items(), strict=True):
        halves = [node for node in part["top"] if node["level"] == 1]
        quarters = [node for node in part["top"] if node["level"] == 2]
        # A half that is one article has no quarters.
        divided = [node for node in halves if node["size"] > 1]
        under = {id(q): divided[k // 2] for k, q in enumerate(quarters)}
        spots = {id(q): (k + 0.5) / max(len(quarters), 1) for k, q in enumerate(quarters)}
        for half in halves:
            below = [spots[id(q)] for q in quarters if under[id(q)] is half]
            spots[id(half)] = float(np.mean(below)) if below else 0.06
        if len(divided) == 1:  # beside the single article, the other half to the right
            for node in (divided[0], *quarters):
                spots[id(node)] = 0.3 + 0.65 * spots[id(node)]
        top = sum(node["size"] for node in halves)
        middle = float(np.mean([spots[id(half)] for half in halves]))
        _box(ax, middle, 0.95, f"{name}: {top} articles")
        for half in halves:
            ax.plot([middle, spots[id(half)]], [0.89, 0.66], color="#888888", lw=1, zorder=0)
            _box(ax, spots[id(half)], 0.53, _text_of(half))
        for quarter in quarters:
            above = spots[id(under[id(quarter)])]
            ax.plot([above, spots[id(quarter)]], [0.4, 0.25], color="#888888", lw=1, zorder=0)
            _box(ax, spots[id(quarter)], 0.12, _text_of(quarter))
        ax.set_xlim(-0.06, 1.06)
        ax.set_ylim(-0.05, 1.02)
        ax.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def _text_of(node: Record) -> str:
    group = f"{node['group']}, {100 * node['share']:.0f} %"
    return "\n".join([str(node["size"]), ", ".join(node["words"]), group])


def _box(ax: Any, x: float, y: float, text: str) -> None:
    frame = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#1b6ca8"}
    ax.text(x, y, text, ha="center", va="center", fontsize=8, bbox=frame)


def units(quick: bool) -> list[Unit]:
    return [{"draw": draw, "seed": 2005} for draw in range(1 if quick else 5)]


def compute(unit: Unit) -> Record:
    rng = np.random.default_rng([unit["seed"], unit["draw"]])
    found = newsgroup_words(rng, 200)
    best = np.argsort(-information(found.X, found.y), kind="stable")[:N_WORDS]
    X, words = found.X[:, best], found.words[best]
    fitted = BayesianHierarchicalClustering().fit(X)
    trees = {
        "BHC": fitted.tree_,
        "average linkage": Tree.from_linkage(linkage(X, "average")),
    }
    out: Record = {"stand_in": found.stand_in, "clusters": fitted.n_clusters_}
    for name, tree in trees.items():
        out[name] = {
            "top": describe(tree, found, X, words),
            "purity": dendrogram_purity(tree, found.y.tolist()),
        }
    return out


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    first = records[0]["result"]
    out: Record = {}
    for name in ("BHC", "average linkage"):
        halves = [
            min(node["size"] for node in r["result"][name]["top"] if node["level"] == 1)
            for r in records
        ]
        out[name] = {
            "top": first[name]["top"],
            "smaller half of each draw": halves,
            "purity": mean_and_error([r["result"][name]["purity"] for r in records]),
        }
        for node in first[name]["top"]:
            print(name, node["level"], node["size"], node["words"], node["group"], node["share"])
        print(name, "smaller halves", halves, "purity", out[name]["purity"])
    if pictures(options):
        picture(out, options.out / "bhc_figure_6.png")
    return {"paper": PAPER, "trees": out, "draws": len(records), "seed": 2005,
            "stand_in": first["stand_in"]}  # fmt: skip


if __name__ == "__main__":
    study("bhc_figure_6", units, compute, finish, __doc__)
