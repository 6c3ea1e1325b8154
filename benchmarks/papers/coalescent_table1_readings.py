"""Why some values of Table 1 of Teh, Daumé & Roy (2008) are not ours: other readings of MNIST.

How many images of each digit the paper took, of which part of MNIST, and how it reduced them, is
lost in the text at hand. Each reading here is measured like the table itself: three trees, three
scores, on draws of the test images. The scores of all readings are compared with the paper's nine.
The readings change one thing at a time, but for one, which was put in after the others were seen.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from coalescent_common import average_linkage, mean_and_error, tree_scores
from coalescent_table1 import PAPER, SCORES, draw
from runner import Record, Unit, study
from samples import has_data
from sklearn.datasets import load_digits

from bhclust import BayesianHierarchicalClustering
from bhclust.coalescent import Brownian
from bhclust.datasets import load_paper_data
from bhclust.estimators.coalescent import CoalescentClustering

METHODS = ("average linkage", "BHC", "Greedy-Rate1")
N_DRAWS = 50


class Reading(NamedTuple):
    """How many images of each digit, in how many dimensions, scaled how, with which covariance."""

    text: str
    images: int = 20
    dimensions: int = 20
    scaled: bool = True
    of_all: bool = False
    covariance: str = "full"


READINGS = (
    Reading("20 images, 20 dimensions of variance 1"),
    Reading("20 images, 20 dimensions as they come", scaled=False),
    Reading("10 images", images=10),
    Reading("25 images", images=25),
    Reading("40 images", images=40),
    Reading("10 dimensions", dimensions=10),
    Reading("15 dimensions", dimensions=15),
    Reading("30 dimensions", dimensions=30),
    Reading("axes of all test images", of_all=True),
    Reading(
        "25 images, 25 dimensions, axes of all test images", images=25, dimensions=25, of_all=True
    ),
    Reading("a variance of each dimension in Greedy-Rate1", covariance="diagonal"),
    Reading("one variance in Greedy-Rate1", covariance="isotropic"),
)


def units(quick: bool) -> list[Unit]:
    kept = READINGS[:1] if quick else READINGS
    return [{"reading": r.text, "draws": 2 if quick else N_DRAWS, "seed": 2008} for r in kept]


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    """Return all test images and their digits, or scikit-learn's small ones."""
    if has_data():
        data = load_paper_data("mnist_t10k")
        return data["X"].astype(float), data["y"]
    found = load_digits()
    return found.data, found.target


@cache
def axes_of_all() -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of all test images and their principal axes."""
    X = images()[0]
    centre = X.mean(axis=0)
    return centre, np.linalg.eigh((X - centre).T @ (X - centre))[1].T[::-1]


def components(rows: np.ndarray, reading: Reading) -> np.ndarray:
    """Return the leading principal components of some rows, of these alone or of all rows."""
    X = images()[0][rows]
    centre = X.mean(axis=0)
    axes = np.linalg.svd(X - centre, full_matrices=False)[2]
    if reading.of_all:
        centre, axes = axes_of_all()
    found = (X - centre) @ axes[: reading.dimensions].T
    return found / found.std(axis=0) if reading.scaled else found


def compute(unit: Unit) -> Record:
    reading = next(r for r in READINGS if r.text == unit["reading"])
    y = images()[1]
    rng = np.random.default_rng(unit["seed"])
    scores: dict[str, dict[str, list[float]]] = {m: {s: [] for s in SCORES} for m in METHODS}
    for _ in range(unit["draws"]):
        rows = draw(y, reading.images, rng)
        part = components(rows, reading)
        process = Brownian(structure=reading.covariance)
        trees = {
            "average linkage": average_linkage(part),
            "BHC": BayesianHierarchicalClustering("diagonal_gaussian").fit(part).tree_,
            "Greedy-Rate1": CoalescentClustering(process).fit(part).tree_,
        }
        for method, tree in trees.items():
            for score, value in tree_scores(tree, y[rows]).items():
                scores[method][score].append(value)
    return {"scores": scores}


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    readings: list[dict[str, Any]] = []
    for record in records:
        scores = record["result"]["scores"]
        cells = {s: {m: mean_and_error(scores[m][s]) for m in METHODS} for s in SCORES}
        inside = {
            s: [
                # The paper's own errors are lost; it has as many draws.
                bool(abs(value - printed) <= 2 * np.hypot(error, error))
                for (value, error), printed in zip(row.values(), PAPER["MNIST"][s], strict=True)
            ]
            for s, row in cells.items()
        }
        readings.append({"reading": record["unit"]["reading"], "cells": cells, "within": inside})
        shown = {s: [round(v[0], 3) for v in row.values()] for s, row in cells.items()}
        print(record["unit"]["reading"], shown, sum(map(sum, inside.values())), "of 9")
    return {"readings": readings, "paper": PAPER["MNIST"], "draws": N_DRAWS}


if __name__ == "__main__":
    study("coalescent_table1_readings", units, compute, finish, __doc__)
