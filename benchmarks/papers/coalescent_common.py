"""What the scripts of the coalescent paper share: data, results, scores."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runner import ROOT, make_parser, mean_and_error, versions, versions_of, write_json, write_text
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from bhclust import metrics
from bhclust.tree import Tree

RESULTS = ROOT / "docs" / "results"

__all__ = ["mean_and_error"]


def data_file(name: str) -> Path:
    """Return the path of a data file in the folder that BHCLUST_DATA names."""
    folder = os.environ.get("BHCLUST_DATA")
    if folder:
        return Path(folder) / name
    sentence = "Set the environment variable BHCLUST_DATA to the folder with the data sets."
    if "--quick" in sys.argv:
        print(f"{Path(sys.argv[0]).stem} was skipped: it needs {name}. {sentence}")
        sys.exit(0)
    sys.exit(sentence)


def arguments(description: str) -> argparse.Namespace:
    """Parse the options that every script has."""
    parser = make_parser(description)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(out=RESULTS)
    return parser.parse_args()


def write(
    options: argparse.Namespace,
    name: str,
    content: dict,
    markdown: str,
    records: Sequence[dict] = (),
) -> None:
    """Write a result as JSON and as Markdown; a quick run is only shown.

    ``records`` are the kept units that it was made from, which may be of several versions.
    """
    used = versions_of(records) if records else [versions()]
    content = {**content, "seed": options.seed, "quick": options.quick, "versions": used}
    print(markdown)
    if options.quick:
        return
    write_json(options.out / f"{name}.json", content)
    write_text(options.out / f"{name}.md", markdown)


def tree_scores(tree: Tree, classes: np.ndarray) -> dict[str, float]:
    """Return the three scores of the paper's Table 1."""
    labels = classes.tolist()
    return {
        "purity": metrics.dendrogram_purity(tree, labels),
        "subtree": metrics.subtree_score(tree, labels),
        "leave-one-out": metrics.leave_one_out_accuracy(tree, labels),
    }


def average_linkage(X: np.ndarray) -> Tree:
    """Return the average-linkage tree; with missing entries on the share of unequal entries."""
    if not np.isnan(X).any():
        return Tree.from_linkage(linkage(X, "average"))
    return Tree.from_linkage(linkage(squareform(mismatch(X), checks=False), "average"))


def mismatch(X: np.ndarray) -> np.ndarray:
    """Return the share of unequal entries among those both rows have; 1 where they share none."""
    n = len(X)
    seen = ~np.isnan(X)
    both = seen.astype(float) @ seen.T
    equal = np.zeros((n, n))
    for value in np.unique(X[seen]):
        hit = (value == X).astype(float)
        equal += hit @ hit.T
    out = np.where(both > 0, 1 - equal / np.maximum(both, 1), 1.0)
    np.fill_diagonal(out, 0.0)
    return out


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
