"""Every labelled table of the data folder at its full size, as `fit` takes it; and small others.

Values are given to all methods as they are: integers are counts, floats reals, letters categories,
-1 or "?" is missing where the data's description says so. Columns that never vary are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from samples import has_data
from scipy.sparse import csr_array
from sklearn.datasets import load_iris

from bhclust.datasets import load_example, load_paper_data


class Labelled(NamedTuple):
    """A table in any form that `fit` takes, and the class of each row."""

    X: Any
    y: np.ndarray


def plain(name: str, X: str = "X", y: str = "y") -> Callable[[], Labelled]:
    """Return a loader of one array and its classes."""

    def load() -> Labelled:
        data = load_paper_data(name)
        values = data[X]
        varied = np.array([len(np.unique(column)) > 1 for column in values.T])
        return Labelled(values[:, varied], data[y])

    return load


def newsgroups() -> Labelled:
    """Return word counts (Subject and body) without stop words."""
    data = load_paper_data("newsgroups4_counts")
    indices = data["indices"].astype(np.int32)
    counts = csr_array((data["data"].astype(float), indices, data["indptr"]), shape=data["shape"])
    kept = ~data["is_stopword"] & (counts.sum(axis=0) > 0)
    return Labelled(csr_array(counts[:, np.flatnonzero(kept)]), data["y"])


def nips() -> Labelled:
    """Return word counts of full papers with a session category."""
    data = load_paper_data("nips12_counts")
    indices = data["indices"].astype(np.int32)
    counts = csr_array((data["data"].astype(float), indices, data["indptr"]), shape=data["shape"])
    names = data["label_names"][data["label"]]
    known = np.array([not str(name).lower().startswith("uncat") for name in names])
    return Labelled(csr_array(counts[np.flatnonzero(known)]), names[known])


def wals(kind: str) -> Callable[[], Labelled]:
    """Return the features of the 2005 atlas as categories; languages with a value."""

    def load() -> Labelled:
        data = load_paper_data("wals")
        V = data["V"][:, data["feature_in_2005"]]
        rows = (V > 0).any(axis=1)
        codes = np.where(V[rows] > 0, V[rows], 0)
        columns = {
            str(name): [None if value == 0 else f"v{value}" for value in column]
            for name, column in zip(
                data["feature_id"][data["feature_in_2005"]], codes.T, strict=True
            )
        }
        return Labelled(columns, data[kind][rows])

    return load


def mushroom() -> Labelled:
    """Return the one-letter codes, "?" as missing; the column without variation left out."""
    data = load_paper_data("mushroom")
    columns = {
        str(name): [None if value == "?" else str(value) for value in column]
        for name, column in zip(data["feature_names"], data["X"].T, strict=True)
        if len(np.unique(column)) > 1
    }
    return Labelled(columns, data["y"])


def galactose() -> Labelled:
    """Return the mean of the four replicates."""
    data = load_paper_data("genes_galactose")
    return Labelled(data["X"].mean(axis=2), data["y"])


def iyer() -> Labelled:
    """Return the logarithms of the ratios of genes that are in a group; the first is always 1."""
    data = load_paper_data("genes_iyer")
    kept = data["y"] > 0
    return Labelled(np.log2(np.maximum(data["X"][kept, 1:], 0.01)), data["y"][kept])


def mcrae() -> Labelled:
    """Return concepts with a taxonomic feature: how many people named each feature."""
    data = load_paper_data("mcrae_norms")
    kept = data["top_taxonomic"] != ""
    X = data["X"][kept]
    return Labelled(X[:, X.max(axis=0) > 0], data["top_taxonomic"][kept])


# In the order of n² d, roughly, so that what takes long comes last.
TABLES: dict[str, Callable[[], Labelled]] = {
    "yang_qin multivariate": plain("yang_qin_synthetic", "X_multi", "y_multi"),
    "yang_qin binary": plain("yang_qin_synthetic", "X_bin", "y_bin"),
    "mcrae 60 × 100": plain("mcrae60x100"),
    "zoo": plain("zoo"),
    "cedar digits 0/2/4": plain("cedar_digits024"),
    "seeds": plain("seeds"),
    "glass": plain("glass"),
    "genes galactose": galactose,
    "flame": plain("shape_flame"),
    "pathbased": plain("shape_pathbased"),
    "spiral": plain("shape_spiral"),
    "jain": plain("shape_jain"),
    "compound": plain("shape_compound"),
    "genes cho": plain("genes_cho"),
    "genes iyer": iyer,
    "R15": plain("shape_r15"),
    "aggregation": plain("shape_aggregation"),
    "D31": plain("shape_d31"),
    "mcrae norms": mcrae,
    "letter": plain("letter"),
    "spambase": plain("spambase"),
    "optdigits": plain("optdigits"),
    "wals genus": wals("genus"),
    "wals family": wals("family"),
    "mushroom": mushroom,
    "pendigits": plain("pendigits"),
    "cedar digits": plain("cedar_digits"),
    "covtype": plain("covtype15k"),
    "nips": nips,
    "newsgroups": newsgroups,
    "mnist": plain("mnist_t10k"),
}


# Hundreds or thousands of columns as well as rows.
HUGE = ("mcrae norms", "nips", "newsgroups", "mnist")
LARGE = tuple(list(TABLES)[list(TABLES).index("mcrae norms") :])


def iris() -> Labelled:
    """Return scikit-learn's irises."""
    found = load_iris()
    return Labelled(found.data, found.target)


def mixed() -> Labelled:
    """Return the library's example with columns of all kinds."""
    found = load_example("mixed")
    return Labelled(found.columns, found.y)


STAND_INS: dict[str, Callable[[], Labelled]] = {"iris": iris, "mixed example": mixed}


def tables() -> dict[str, Callable[[], Labelled]]:
    """Return the tables at hand."""
    return TABLES if has_data() else STAND_INS
