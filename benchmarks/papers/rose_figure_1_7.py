"""Figure 1.7 of Blundell, Teh & Heller (2010): greedy trees against the best rose tree of all.

Data sets of 2 to 8 rows and 64 binary columns are drawn from rose-tree mixtures; greedy BRT, BHC-γ
and BHC-DP trees are compared with the most likely of all rose trees (660,032 for 8 rows).

The best rose tree needs no list of all trees. A node's likelihood rises with those of its children
and depends on the tree above them through their number only, so the best tree of a set of rows is
made of best trees of the blocks of one of its partitions: the search runs over subsets. For up to
5 rows the test of this folder lists all trees and finds the same maximum.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import numpy as np
from runner import Record, Unit, mean_and_error, pictures, pyplot, study

from bhclust.agglomerate import agglomerate
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models import Bernoulli

N_SETS, N_COLUMNS = 100, 64
SIZES = tuple(range(2, 9))
# The paper gives neither γ nor the beta prior: γ is the library's default and the prior uniform.
# The others show how far the results hang on them.
SETTINGS = {
    "γ 0.5, uniform": (0.5, 1.0),
    "γ 0.2, uniform": (0.2, 1.0),
    "γ 0.8, uniform": (0.8, 1.0),
    "γ 0.5, beta(0.2, 0.2)": (0.5, 0.2),
}
METHODS = ("BRT", "BHC-γ", "BHC-DP")
Nested = Any  # a row number, or a tuple of nested trees


@cache
def n_trees(n: int) -> int:
    """Return the number of rose trees with n labelled leaves (OEIS A000311)."""
    if n < 2:
        return 1
    return sum(n_forests(n, k) for k in range(2, n + 1))


@cache
def n_forests(n: int, k: int) -> int:
    """Return the number of sets of k rose trees over n labelled leaves; k = 1 is one tree."""
    from math import comb

    if k == 1:
        return n_trees(n)
    if k == n:
        return 1
    return sum(
        comb(n - 1, m - 1) * n_trees(m) * n_forests(n - m, k - 1) for m in range(1, n - k + 2)
    )


def random_tree(rows: list[int], rng: np.random.Generator) -> Nested:
    """Draw one of all rose trees over the rows, each with the same probability."""
    n = len(rows)
    if n == 1:
        return rows[0]
    counts = np.array([n_forests(n, k) for k in range(2, n + 1)], dtype=float)
    return tuple(random_forest(rows, 2 + int(rng.choice(n - 1, p=counts / counts.sum())), rng))


def random_forest(rows: list[int], k: int, rng: np.random.Generator) -> list[Nested]:
    """Draw one of all sets of k rose trees over the rows."""
    from math import comb

    if k == 1:
        return [random_tree(rows, rng)]
    n = len(rows)
    sizes = np.arange(1, n - k + 2)
    counts = np.array(
        [comb(n - 1, m - 1) * n_trees(int(m)) * n_forests(n - int(m), k - 1) for m in sizes],
        dtype=float,
    )
    m = int(rng.choice(sizes, p=counts / counts.sum()))
    with_first = [rows[0], *rng.choice(rows[1:], m - 1, replace=False).tolist()]
    rest = [row for row in rows if row not in with_first]
    return [random_tree(with_first, rng), *random_forest(rest, k - 1, rng)]


def leaves_of(tree: Nested) -> list[int]:
    """Return the rows below a nested tree."""
    return [tree] if isinstance(tree, int) else [row for part in tree for row in leaves_of(part)]


def clusters_of(tree: Nested, gamma: float, rng: np.random.Generator) -> list[list[int]]:
    """Draw a partition from the rose-tree mixture: stop with probability π, else go down."""
    if isinstance(tree, int):
        return [[tree]]
    if rng.random() < 1 - (1 - gamma) ** (len(tree) - 1):
        return [leaves_of(tree)]
    return [cluster for part in tree for cluster in clusters_of(part, gamma, rng)]


def draw(n: int, gamma: float, prior: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a data set from a random rose-tree mixture."""
    X = np.empty((n, N_COLUMNS))
    for cluster in clusters_of(random_tree(list(range(n)), rng), gamma, rng):
        probability = rng.beta(prior, prior, size=N_COLUMNS)
        X[cluster] = rng.random((len(cluster), N_COLUMNS)) < probability
    return X


def log_f_of_subsets(model: Bernoulli, X: np.ndarray) -> np.ndarray:
    """Return log f of every subset of the rows; bit i of the index is row i."""
    n = len(X)
    stats = model.suffstats(X)
    member = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    return model.log_marginal(member @ stats)


def best_log_likelihood(log_f: np.ndarray, mixing: Mixing, n: int) -> float:
    """Return the highest log p(D | T) of all rose trees, by a search over subsets.

    ``forest[s][k]`` is the highest sum of log p over the ways to divide subset s into k trees.
    """
    full = 2**n
    best = np.full(full, -np.inf)
    forest = np.full((full, n + 1), -np.inf)
    forest[0, 0] = 0.0
    log_one = np.array([mixing.log_one(2.0, max(k, 2)) for k in range(n + 1)]).ravel()
    log_split = np.array([mixing.log_split(max(k, 2)) for k in range(n + 1)]).ravel()
    for s in range(1, full):
        first = s & -s
        block = (s - 1) & s
        while block:  # proper subsets that hold the first row
            if block & first:
                reached = best[block] + forest[s ^ block, :-1]
                np.maximum(forest[s, 1:], reached, out=forest[s, 1:])
            block = (block - 1) & s
        if s == first:
            best[s] = log_f[s]
        else:
            k = np.arange(2, s.bit_count() + 1)  # no more children than rows
            best[s] = np.logaddexp(log_one[k] + log_f[s], log_split[k] + forest[s, k]).max()
        forest[s, 1] = best[s]
    return float(best[-1])


def units(quick: bool) -> list[Unit]:
    sizes = (3, 5) if quick else SIZES
    settings = list(SETTINGS)[:1] if quick else list(SETTINGS)
    return [{"settings": key, "rows": n, "seed": 2010} for key in settings for n in sizes]


def compute(unit: Unit) -> Record:
    gamma, prior = SETTINGS[unit["settings"]]
    n = unit["rows"]
    model = Bernoulli(a=prior, b=prior).resolve(np.zeros((1, N_COLUMNS)))
    ways: dict[str, tuple[Mixing, bool]] = {
        "BRT": (Rose(gamma), True),
        "BHC-γ": (Constant(gamma), False),
        "BHC-DP": (DirichletProcess(1.0), False),
    }
    bits: dict[str, list[float]] = {name: [] for name in METHODS}
    for repeat in range(N_SETS):
        rng = np.random.default_rng([unit["seed"], n, repeat])
        X = draw(n, gamma, prior, rng)
        top = best_log_likelihood(log_f_of_subsets(model, X), Rose(gamma), n)
        for name, (mixing, rose) in ways.items():
            tree = agglomerate(model, model.suffstats(X), mixing, rose=rose, engine="numpy").tree
            bits[name].append((top - float(tree.log_evidence[-1])) / np.log(2) / n)
    return {"bits": bits}


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    out: Record = {}
    for record in records:
        by_size = out.setdefault(record["unit"]["settings"], {})
        bits = record["result"]["bits"]
        row: Record = {name: mean_and_error(bits[name]) for name in METHODS}
        row["optimal"] = {name: float((np.array(bits[name]) < 1e-9).mean()) for name in METHODS}
        by_size[str(record["unit"]["rows"])] = row
        print(record["unit"]["settings"], record["unit"]["rows"], row)
    if pictures(options):
        picture(out, options.out / "rose_figure_1_7.png")
    return {"bits": out, "paper": {"optimal at 8": 0.70}, "seed": 2010, "sets": N_SETS}


def picture(out: Record, path: Any) -> None:
    plot = pyplot()
    main = next(iter(out.values()))
    figure, ax = plot.subplots(figsize=(5.5, 3.4))
    for name in METHODS:
        sizes = [int(n) for n in main]
        means, errors = zip(*(main[str(n)][name] for n in sizes), strict=True)
        ax.errorbar(sizes, means, errors, label=name, capsize=2, lw=1.2)
    ax.axhline(0, color="grey", lw=0.5)
    ax.set_xlabel("rows")
    ax.set_ylabel("bits a row above the best rose tree")
    ax.set_title(f"drawn with {next(iter(out))}", fontsize=9)
    ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    study("rose_figure_1_7", units, compute, finish, __doc__)
