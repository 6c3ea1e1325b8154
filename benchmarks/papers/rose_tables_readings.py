"""Why some values of Tables 1.2 to 1.4 of Blundell, Teh & Heller (2010) are not ours.

What is varied: the prior of the clusters (for the predictions), the threshold of the digits (for
the likelihoods), the words of the articles and the strength of their prior (for the number of
partitions), and, for the e-mails, a bound: classifiers that have seen 3,000 other e-mails predict
each missing entry from all other entries of its row, the missing ones included. No tree of 120
rows should do better than that.
"""

from __future__ import annotations

import argparse

import numpy as np
from bhc_figure_6 import information
from rose_tables import MISSING, PAPER
from runner import Record, Unit, mean_and_error, study
from samples import ROSE_PAPER, digits, has_data, per_class
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingClassifier

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust.datasets import load_paper_data
from bhclust.models import Bernoulli

N_DRAWS = 10
DATA = ("spambase", "digits024", "digits")
PRIORS = ("default", "learned strength", "beta(1, 1)", "beta(0.5, 0.5)", "beta(0.2, 0.2)")
THRESHOLDS = (16, 32, 48, 64, 96, 128)
N_OTHERS, N_BOUNDS = 3000, 4
N_WORDS, LEAST = 485, 5
WORDS = (
    "485 most frequent",
    "every word that occurs five times",
    "485 at random",
    "485 of the highest information",
    "485 most frequent, headers too",
    "485 most frequent, stop words too",
)
STRENGTHS = (1, 2, 5, 10, 20)


def units(quick: bool) -> list[Unit]:
    draws = {"draws": 1 if quick else N_DRAWS, "seed": 2010}
    priors = [{"prior": p, "data": d, **draws} for d in DATA for p in PRIORS]
    steps = [{"threshold": t, "data": d, **draws} for d in DATA[1:] for t in THRESHOLDS]
    words = [{"words": w, "data": "newsgroups", **draws} for w in WORDS]
    strengths = [{"strength": s, "data": "newsgroups", **draws} for s in STRENGTHS]
    bounds = [{"bound": draw, "data": "spambase", "seed": 2010} for draw in range(N_BOUNDS)]
    if quick:
        return [priors[0], steps[0], strengths[0], *([bounds[0], words[3]] if has_data() else [])]
    return [*priors, *steps, *words, *strengths, *bounds]


def of_prior(name: str) -> BayesianHierarchicalClustering:
    """Return BHC-γ with a prior."""
    if name.startswith("beta"):
        rate = float(name[5:].split(",")[0])
        return BayesianHierarchicalClustering(Bernoulli(rate, rate), mixing="constant", learn=False)
    learn = "shared" if name == "learned strength" else "auto"
    return BayesianHierarchicalClustering("bernoulli", mixing="constant", learn=learn)


def predictions(unit: Unit) -> list[float]:
    """Return the log predictive probability of the missing entries in each draw."""
    values = []
    for draw in range(unit["draws"]):
        rng = np.random.default_rng([unit["seed"], draw, *unit["data"].encode()])
        X = ROSE_PAPER[unit["data"]](rng)[0]
        holed = np.where(rng.random(X.shape) < MISSING, np.nan, X)
        values.append(of_prior(unit["prior"]).fit(holed).heldout_log_likelihood(X))
    return values


def likelihoods(unit: Unit) -> dict[str, list[float]]:
    """Return the log likelihoods of BHC-γ and BRT in each draw of digits with a threshold."""
    three = unit["data"] == "digits024"
    out: dict[str, list[float]] = {"BHC-γ": [], "BRT": []}
    for draw in range(unit["draws"]):
        rng = np.random.default_rng([unit["seed"], draw])
        which = (0, 2, 4) if three else ()
        X = digits(rng, 40 if three else 12, which, unit["threshold"]).X
        for name, make in (("BHC-γ", of_prior("default")), ("BRT", BayesianRoseTree("bernoulli"))):
            out[name].append(make.fit(X).log_evidence_)
    return out


def articles(reading: str, rng: np.random.Generator) -> np.ndarray:
    """Return 30 articles of each group and which words they hold, the words chosen otherwise."""
    data = load_paper_data("newsgroups4_counts")
    part = "all_" if "headers" in reading else ""
    values, indices, ends = (data[part + name] for name in ("data", "indices", "indptr"))
    counts = csr_array((values, indices.astype(np.int32), ends), shape=data["shape"])
    rows = per_class(data["y"], 30, rng)
    chosen = counts[rows].toarray()
    total = chosen.sum(axis=0).astype(int)
    kept = np.flatnonzero((total >= LEAST) & (("stop" in reading) | ~data["is_stopword"]))
    held = (chosen[:, kept] > 0) * 1.0
    if "random" in reading:
        score = rng.random(len(kept))
    elif "information" in reading:  # about the group: the classes choose the words
        score = information(held, data["y"][rows])
    else:
        score = total[kept].astype(float)
    order = np.argsort(-score, kind="stable")
    return held[:, order if "every" in reading else np.sort(order[:N_WORDS])]


def partitions(unit: Unit) -> dict[str, dict[str, list[float]]]:
    """Return log likelihoods and partitions of BHC-γ and BRT on draws of the newsgroups."""
    out: dict[str, dict[str, list[float]]] = {}
    for draw in range(unit["draws"]):
        rng = np.random.default_rng([unit["seed"], draw, *unit["data"].encode()])
        if "words" in unit:
            X, model = articles(unit["words"], rng), "bernoulli"
        else:
            X = ROSE_PAPER[unit["data"]](rng)[0]
            plain = Bernoulli().resolve(X)
            factor = unit["strength"] / (plain.a + plain.b)
            model = Bernoulli(plain.a * factor, plain.b * factor)
        for name, fitted in (
            ("BHC-γ", BayesianHierarchicalClustering(model, mixing="constant", learn=False).fit(X)),
            ("BRT", BayesianRoseTree(model, learn=False).fit(X)),
        ):
            found = out.setdefault(name, {"log likelihood": [], "log10 partitions": []})
            found["log likelihood"].append(fitted.log_evidence_)
            found["log10 partitions"].append(fitted.tree_.log10_partitions())
    return out


def bound(unit: Unit) -> float:
    """Return the log probability of the missing entries by classifiers with thousands of rows."""
    rng = np.random.default_rng([unit["seed"], unit["bound"], *b"spambase"])
    data = load_paper_data("spambase")
    values = (data["X"] > 0) * 1.0
    rows = per_class(data["y"], 60, rng)
    others = rng.choice(np.setdiff1d(np.arange(len(values)), rows), N_OTHERS, replace=False)
    X, known = values[rows], values[others]
    holes = rng.random(X.shape) < MISSING
    total = 0.0
    for j in range(X.shape[1]):
        asked = holes[:, j]
        if not asked.any() or known[:, j].min() == known[:, j].max():
            continue
        rest = np.arange(X.shape[1]) != j
        found = HistGradientBoostingClassifier(
            max_iter=40, learning_rate=0.15, max_leaf_nodes=8, random_state=0
        ).fit(known[:, rest], known[:, j])
        p = found.predict_proba(X[asked][:, rest])[:, 1]
        total += float(np.log(np.where(X[asked, j] == 1, p, 1 - p)).sum())
    return total


def compute(unit: Unit) -> Record:
    if "prior" in unit:
        return {"log predictive": predictions(unit)}
    if "words" in unit or "strength" in unit:
        return partitions(unit)
    return {"bound": bound(unit)} if "bound" in unit else {"log likelihood": likelihoods(unit)}


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    out: Record = {"priors": {}, "thresholds": {}, "partitions": {}, "bound": None, "paper": PAPER}
    bounds = []
    for record in records:
        unit, result = record["unit"], record["result"]
        if "prior" in unit:
            found = out["priors"].setdefault(unit["data"], {})
            found[unit["prior"]] = mean_and_error(result["log predictive"])
        elif "threshold" in unit:
            found = out["thresholds"].setdefault(unit["data"], {})
            likelihood = result["log likelihood"]
            found[str(unit["threshold"])] = {m: mean_and_error(v) for m, v in likelihood.items()}
        elif "words" in unit or "strength" in unit:
            strength = unit.get("strength")
            name = unit.get("words") or f"prior of {strength} row{'s' * (strength > 1)}"
            out["partitions"][name] = {
                m: {score: mean_and_error(values) for score, values in row.items()}
                for m, row in result.items()
            }
        else:
            bounds.append(result["bound"])
    out["bound"] = mean_and_error(bounds) if bounds else None
    print({key: out[key] for key in ("priors", "thresholds", "partitions", "bound")})
    return out


if __name__ == "__main__":
    study("rose_tables_readings", units, compute, finish, __doc__)
