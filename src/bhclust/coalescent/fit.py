"""From a table and a process to trees: what `CoalescentClustering.fit` calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TextIO

import numpy as np

from bhclust import _progress
from bhclust._validation import (
    BhclustError,
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    listed,
)
from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.cut import cut_by_number, cut_by_ratio, labels_of_tops
from bhclust.coalescent.greedy import GREEDY, Progress, greedy_tree
from bhclust.coalescent.history import log_prior
from bhclust.coalescent.learn import alternate
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.processes import Process
from bhclust.coalescent.smc import SMC, sample_trees
from bhclust.models.base import Column
from bhclust.tree import Tree

INFERENCES = (*GREEDY, *SMC)
PROCESSES = ("auto", "brownian", "mutation")
_LEARNABLE = ("covariance", "rate", "equilibrium")
_OWNER = "CoalescentClustering"


class Fitted(NamedTuple):
    """What a fit found.

    ``tree`` is the greedy tree or the sampled one of highest log p(tree, X), with the log
    likelihood ratio of each node as its log odds; ``posterior`` is None for greedy searches.
    """

    process: Process
    tree: Tree
    posterior: TreePosterior | None
    log_joint: float
    log_likelihood: float
    objectives: tuple[float, ...]


def choose_process(process: object, columns: Sequence[Column]) -> Process:
    """Return the process that was given or named, or the one for the kinds of the columns."""
    if isinstance(process, Process):
        return process
    name = check_choice(process, PROCESSES, name="process", owner=_OWNER)
    if name != "auto":
        return Brownian() if name == "brownian" else Mutation()
    numbers = [column.name for column in columns if column.kind in Brownian.kinds]
    categories = [column.name for column in columns if column.kind == "categorical"]
    if numbers and categories:
        raise BhclustError(
            f"{_OWNER} takes columns of one kind, but {listed(numbers, 3)} are numbers and "
            f"{listed(categories, 3)} are categories: pass process='mutation' if all are "
            "categories, encode or leave out some, or use BayesianHierarchicalClustering, which "
            "takes mixed tables."
        )
    # Zero and one are numbers as well, and beside numbers they are taken for such.
    return Brownian() if numbers else Mutation()


def learnable(process: Process, learn: object) -> tuple[str, ...]:
    """Return the hyperparameters to learn: those left open, all, or none."""
    if not isinstance(learn, (bool, np.bool_)):
        check_choice(learn, ("auto",), name="learn (if not True or False)", owner=_OWNER)
    if not learn:
        return ()
    present = [name for name in _LEARNABLE if hasattr(process, name)]
    return tuple(name for name in present if learn != "auto" or getattr(process, name) is None)


def fit_trees(
    process: Process,
    X: FloatArray,
    *,
    inference: str,
    names: Sequence[str],
    max_iter: int,
    n_particles: int,
    rng: np.random.Generator,
    n_jobs: int = 1,
    leaf_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Search trees and learn hyperparameters in turn."""
    check_choice(inference, INFERENCES, name="inference", owner=_OWNER)
    check_count(max_iter, name="max_iter", owner=_OWNER, lowest=0)
    check_count(n_particles, name="n_particles", owner=_OWNER)

    shown = progress or _progress.callback()
    searches = max_iter + 1 if names else 1

    def search(candidate: Process) -> Tree | TreePosterior:
        nonlocal searches
        searches -= 1
        _progress.begin(f"{inference} search", after=max(searches, 0))
        leaves = candidate.leaves(X)
        if inference in GREEDY:
            return greedy_tree(leaves, inference, leaf_names=leaf_names, progress=shown)
        return sample_trees(
            leaves,
            inference,
            n_particles=n_particles,
            rng=rng,
            n_jobs=n_jobs,
            leaf_names=leaf_names,
            progress=shown,
        )

    learned = alternate(process, X, search, names=names, max_iter=max_iter)
    found = learned.trees
    tree = found.best_tree if isinstance(found, TreePosterior) else found
    log_likelihood = learned.process.log_likelihood(tree, X)
    ratio = learned.process.log_likelihood_ratio(tree, X)
    return Fitted(
        process=learned.process,
        tree=replace(tree, log_odds=ratio),
        posterior=found if isinstance(found, TreePosterior) else None,
        log_joint=log_prior(tree) + log_likelihood,
        log_likelihood=log_likelihood,
        objectives=learned.objectives,
    )


def flat_labels(
    process: Process, tree: Tree, X: FloatArray, n_clusters: int | None, threshold: float
) -> IntArray:
    """Return the cluster of each leaf: a given number of clusters, or by likelihood ratios."""
    if n_clusters is not None:
        return labels_of_tops(tree, cut_by_number(tree, n_clusters))
    ratio = process.log_likelihood_ratio(tree, X)
    return labels_of_tops(tree, cut_by_ratio(tree, ratio, threshold))


class ProgressBar:
    """A line that shows how many mergers are done."""

    def __init__(self, title: str, stream: TextIO | None = None, width: int = 30) -> None:
        self._title, self._width = title, width
        self._stream = sys.stderr if stream is None else stream
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        """Redraw the line if it has changed."""
        filled = self._width * done // total
        if filled == self._shown and done < total:
            return
        self._shown = filled
        bar = "#" * filled + "." * (self._width - filled)
        end = "\n" if done == total else ""
        self._stream.write(f"\r[{self._title}] {bar} {done}/{total}{end}")
        self._stream.flush()
