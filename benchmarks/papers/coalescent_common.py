"""What the scripts of the coalescent paper share: data, results, scores."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

import bhclust
from bhclust import metrics
from bhclust.tree import Tree

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def data_file(name: str) -> Path:
    """Return the path of a data file in the folder that BHCLUST_DATA names."""
    folder = os.environ.get("BHCLUST_DATA")
    if not folder:
        sys.exit("Set the environment variable BHCLUST_DATA to the folder with the data sets.")
    return Path(folder) / name


def arguments(description: str) -> argparse.Namespace:
    """Parse the options that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    return parser.parse_args()


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "bhclust": bhclust.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def write(options: argparse.Namespace, name: str, content: dict, markdown: str) -> None:
    """Write a result as JSON and as Markdown; a quick run is only shown."""
    content = {**content, "seed": options.seed, "quick": options.quick, "versions": versions()}
    print(markdown)
    if options.quick:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (options.out / f"{name}.md").write_text(markdown)


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return mean and standard error."""
    array = np.asarray(values, dtype=float)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array)))


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


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.start
