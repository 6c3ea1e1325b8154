"""Tables 1.2, 1.3 and 1.4 of Blundell, Teh & Heller (2010): five models on five binary data sets.

Log likelihood of the tree, log10 of the partitions it holds, and log predictive probability of a
tenth of the entries, which are withheld. Each model is fitted as the library comes ("default") and
as the paper does ("learned": every hyperparameter by gradient ascent in turn with greedy trees,
with restarts). What is missing is predicted in further ways with the learned ones: by averages over
a region around the optimum, which the paper has and does not describe (``averaging.py``), and, to
see how much hangs on what the tree has seen, with the hyperparameters or the tree of the complete
table, which know what is asked.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from averaging import averaged, log_predictive
from runner import Record, Unit, mean_and_error, study
from samples import ROSE_PAPER

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree

MISSING = 0.1
N_DRAWS = {"default": 10, "learned": 10}
MODELS = {
    "BHC-DP": (BayesianHierarchicalClustering, "dirichlet_process"),
    "BRT-DP": (BayesianRoseTree, "dirichlet_process"),
    "BHC-γ": (BayesianHierarchicalClustering, "constant"),
    "BRT-γ": (BayesianRoseTree, "constant"),
    "BRT": (BayesianRoseTree, "rose"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "learned": {"learn": True, "strategy": "greedy", "n_restarts": 2},
}
SCORES = ("log likelihood", "log10 partitions", "log predictive")
# Further ways to predict what is missing with learned hyperparameters; the last two are no
# predictions.
COMPLETE = ("hyperparameters of all", "tree of all")
WAYS = ("hyperparameters", "probabilities", "weighted", *COMPLETE)
# Mean and standard error, in the order of MODELS.
PAPER = {
    "log likelihood": {
        "toy": ((-215, 0.0), (-215, 0.0), (-168, 0.1), (-167, 0.2), (-166, 0.1)),
        "spambase": ((-2258, 7.3), (-2259, 7.2), (-1980, 7.0), (-2006, 8.0), (-1973, 7.6)),
        "digits024": ((-4010, 6.8), (-4015, 6.8), (-3711, 6.9), (-3726, 6.9), (-3702, 7.0)),
        "digits": ((-4223, 6.9), (-4216, 6.9), (-3891, 6.7), (-3916, 6.6), (-3888, 6.8)),
        "newsgroups": ((-10912, 61), (-10937, 55), (-10606, 63), (-10807, 59), (-10645, 60)),
    },
    "log10 partitions": {
        "toy": ((4, 0.0), (4, 0.0), (4, 0.0), (4, 0.0), (1, 0.0)),
        "spambase": ((14, 0.1), (14, 0.1), (14, 0.1), (14, 0.1), (7, 0.1)),
        "digits024": ((15, 0.1), (15, 0.1), (15, 0.1), (13, 0.1), (6, 0.1)),
        "digits": ((17, 0.1), (17, 0.1), (17, 0.1), (16, 0.1), (8, 0.1)),
        "newsgroups": ((14, 0.1), (14, 0.1), (14, 0.1), (13, 0.1), (7, 0.1)),
    },
    "log predictive": {
        "toy": ((-14.7, 0.7), (-14.7, 0.7), (-14.4, 0.6), (-14.6, 0.6), (-14.3, 0.6)),
        "spambase": ((-190, 1.7), (-187, 1.9), (-192, 1.7), (-192, 1.7), (-190, 1.6)),
        "digits024": ((-347, 2.1), (-345, 2.3), (-345, 2.2), (-345, 2.2), (-343, 2.1)),
        "digits": ((-372, 2.6), (-371, 2.7), (-369, 2.7), (-371, 2.6), (-370, 2.8)),
        "newsgroups": ((-1122, 11), (-1122, 11), (-1114, 11), (-1114, 11), (-1114, 11)),
    },
}


def units(quick: bool) -> list[Unit]:
    names = ("toy",) if quick else tuple(ROSE_PAPER)
    return [
        {"data": name, "draw": draw, "settings": settings, "seed": 2010}
        for settings in SETTINGS
        for name in names
        for draw in range(1 if quick else N_DRAWS[settings])
    ]


def compute(unit: Unit) -> Record:
    rng = np.random.default_rng([unit["seed"], unit["draw"], *unit["data"].encode()])
    X, _, stand_in = ROSE_PAPER[unit["data"]](rng)
    holed = np.where(rng.random(X.shape) < MISSING, np.nan, X)
    out: Record = {"columns": X.shape[1], "stand_in": stand_in}
    for name, (estimator, mixing) in MODELS.items():
        settings = {"mixing": mixing, "random_state": 0, **SETTINGS[unit["settings"]]}
        fitted = estimator("bernoulli", **settings).fit(X)
        partly = estimator("bernoulli", **settings).fit(holed)
        out[name] = {
            "log likelihood": fitted.log_evidence_,
            "log10 partitions": fitted.tree_.log10_partitions(),
            "log predictive": partly.heldout_log_likelihood(X),
        }
        if unit["settings"] == "learned":
            again = rebuilt(fitted, mixing, holed).heldout_log_likelihood(X)
            complete = dict(zip(COMPLETE, (again, log_predictive(fitted, holed, X)), strict=True))
            out[name]["ways"] = {**averaged(partly, holed, X, unit["seed"]), **complete}
    return out


def rebuilt(fitted: Any, mixing: str, X: np.ndarray) -> Any:
    """Return the greedy tree of a table by the hyperparameters of another fit."""
    known = {name: getattr(fitted, f"{name}_") for name in ("alpha", "gamma")
             if hasattr(fitted, f"{name}_")}  # fmt: skip
    settings = {"mixing": mixing, "strategy": "greedy", "learn": False, **known}
    return type(fitted)(fitted.model_, **settings).fit(X)


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    tables: Record = {}
    for settings in SETTINGS:
        tables[settings] = {}
        for score in SCORES:
            rows = {}
            for data in ROSE_PAPER:
                found = [
                    r["result"]
                    for r in records
                    if (r["unit"]["data"], r["unit"]["settings"]) == (data, settings)
                ]
                if found:
                    rows[data] = {m: mean_and_error([f[m][score] for f in found]) for m in MODELS}
            tables[settings][score] = rows
            for data, row in rows.items():
                print(settings, score, data, {m: round(v[0], 1) for m, v in row.items()})
    paired = {
        settings: {
            data: {
                f"{one} − {other}": mean_and_error(
                    [
                        r["result"][one]["log likelihood"] - r["result"][other]["log likelihood"]
                        for r in records
                        if (r["unit"]["data"], r["unit"]["settings"]) == (data, settings)
                    ]
                )
                for one, other in (("BRT", "BHC-γ"), ("BRT-γ", "BHC-γ"))
            }
            for data in rows["log likelihood"]
        }
        for settings, rows in tables.items()
    }
    by_draw = {(r["unit"]["data"], r["unit"]["draw"], r["unit"]["settings"]): r for r in records}
    gains = {
        data: {
            m: mean_and_error(
                [
                    r["result"][m]["log likelihood"] - other["result"][m]["log likelihood"]
                    for (name, draw, settings), r in by_draw.items()
                    if (name, settings) == (data, "learned")
                    and (other := by_draw.get((data, draw, "default")))
                ]
            )
            for m in MODELS
        }
        for data in tables["learned"]["log likelihood"]
    }
    learned = [r for r in records if r["unit"]["settings"] == "learned"]
    ways: Record = {}
    for data in tables["learned"]["log predictive"]:
        found = [r["result"] for r in learned if r["unit"]["data"] == data]
        ways[data] = {
            m: {
                way: mean_and_error([f[m]["ways"][way] for f in found])
                for way in (*WAYS, "effective points", "radius")
            }
            # The same draws, so that the error of the difference is that of the pairs.
            | {
                f"{way} − learned": mean_and_error(
                    [f[m]["ways"][way] - f[m]["log predictive"] for f in found]
                )
                for way in WAYS
            }
            for m in MODELS
        }
        print(data, {m: {w: round(ways[data][m][w][0], 1) for w in WAYS} for m in MODELS})
    return {
        "paper": PAPER,
        "tables": tables,
        "ways": ways,
        "gains": gains,
        "paired": paired,
        "draws": N_DRAWS,
        "seed": 2010,
        "stand_in": any(r["result"]["stand_in"] for r in records),
    }


if __name__ == "__main__":
    study("rose_tables", units, compute, finish, __doc__)
