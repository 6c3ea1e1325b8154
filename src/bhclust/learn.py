"""Hyperparameters from the evidence: maximise on a fixed tree, rebuild, and again.

The objective is comparable between the steps: the bound on the evidence of the mixture for a
Dirichlet process, ``log p(D | T)`` for the other mixing priors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bhclust._coordinates import Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust._validation import FloatArray
from bhclust.agglomerate import score_tree
from bhclust.tree import Tree

#: builds a tree for a prior; the second argument is the best tree so far, if there is one
Build = Callable[[Prior, Tree | None], Tree]
Say = Callable[[str], None]

# The alternation stops when the evidence rises by less than this many nats.
_LEAST_RISE = 1e-3

# Rebuilding is not a climb: a tree may be worse than the last and the next one better again.
_PATIENCE = 2

# Steps of the optimiser on one tree. The tree changes afterwards, so the last digits are wasted.
_MOST_STEPS = 50


class Maximum(NamedTuple):
    """Result of `maximise`: the prior, its free numbers and the evidence on the fixed tree."""

    prior: Prior
    free: FloatArray
    value: float
    n_evaluations: int


class Step(NamedTuple):
    """One build of the alternation.

    ``start`` numbers the restarts (0 is the given prior), ``iteration`` the builds of one start;
    ``evidence`` is the raw value of this build, which may be below that of an earlier one.
    """

    start: int
    iteration: int
    evidence: float
    n_evaluations: int


class Learned(NamedTuple):
    """Result of `alternate`: the best tree seen and how it was found.

    ``path`` is the best evidence after each build; it never falls. ``stopped`` says why the last
    start ended: "converged" or "max_iter".
    """

    prior: Prior
    tree: Tree
    evidence: float
    path: FloatArray
    steps: tuple[Step, ...]
    stopped: str


def maximise(tree: Tree, coordinates: Coordinates, free: FloatArray | None = None) -> Maximum:
    """Maximise evidence times prior over the hyperparameters, the tree staying as it is.

    Parameters
    ----------
    tree : Tree
        A tree with statistics.
    coordinates : Coordinates
        What is learned.
    free : array, optional
        Where to start; by default at the anchor.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.agglomerate import agglomerate
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.repeat(np.eye(2), 10, axis=0)
    >>> prior = Prior(Bernoulli(a=5, b=5).resolve(X), DirichletProcess(1.0))
    >>> tree = agglomerate(prior.model, prior.model.suffstats(X), prior.mixing).tree
    >>> best = maximise(tree, Coordinates(prior)).prior.model
    >>> bool(best.a[0] < 0.5)  # pure clusters: the probabilities are near 0 and 1
    True
    """
    fixed = FixedTree.of(tree)
    start = np.zeros(len(coordinates.deviation)) if free is None else free

    def negative(at: FloatArray) -> tuple[float, FloatArray]:
        model, mixing = coordinates.prior_at(at)
        here = evaluate(fixed, model, mixing)
        slopes = coordinates.pull_back(at, gradient(fixed, model, mixing, here))
        value = here.value + coordinates.log_prior(at)
        return -value, -(slopes + coordinates.log_prior_gradient(at))

    if not len(start):
        value = evaluate(fixed, *coordinates.anchor).value
        return Maximum(coordinates.anchor, start, value, 1)
    options = {"maxiter": _MOST_STEPS, "ftol": 1e-8, "gtol": 1e-4}
    found = minimize(
        negative, start, jac=True, method="L-BFGS-B", bounds=coordinates.bounds, options=options
    )
    prior = coordinates.prior_at(found.x)
    return Maximum(prior, found.x, evaluate(fixed, *prior).value, int(found.nfev))


def alternate(
    build: Build,
    coordinates: Coordinates,
    *,
    max_iter: int = 20,
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
    say: Say = lambda line: None,
) -> Learned:
    """Build a tree, maximise on it, rebuild, until the evidence stops rising.

    Parameters
    ----------
    build : callable
        Takes a prior and the best tree so far (or None) and returns a scored tree.
    coordinates : Coordinates
        What is learned, and from where.
    max_iter : int
        Most rebuilds of one start.
    n_restarts : int
        Further starts from hyperparameters drawn around the anchor.
    rng : Generator
        Source of the restarts.
    say : callable
        Takes lines on what is being done.

    Returns
    -------
    Learned
        The best of all builds.
    """
    run = _Run(build, coordinates, say)
    free = np.zeros(len(coordinates.deviation))
    stopped = run.climb(0, free, max_iter)
    for start in range(1, n_restarts + 1):
        drawn = coordinates.draw(np.random.default_rng() if rng is None else rng)
        stopped = run.climb(start, drawn, max_iter)
    return run.result(stopped)


class _Run:
    """The best state so far and the record of all builds."""

    def __init__(self, build: Build, coordinates: Coordinates, say: Say) -> None:
        self.build, self.coordinates, self.say = build, coordinates, say
        self.best: tuple[Prior, Tree] | None = None
        self.evidence = -np.inf
        self.path: list[float] = []
        self.steps: list[Step] = []

    def climb(self, start: int, free: FloatArray, max_iter: int) -> str:
        """Run one start to its end and return why it ended."""
        tree, value = self._take(start, 0, self.coordinates.prior_at(free), None, 0)
        top, waited = value, 0
        for iteration in range(1, max_iter + 1):
            maximum = maximise(tree, self.coordinates, free)
            free = maximum.free
            tree, value = self._take(
                start, iteration, maximum.prior, tree, maximum.n_evaluations
            )
            waited = 0 if value > top + _LEAST_RISE else waited + 1
            top = max(top, value)
            if waited >= _PATIENCE:
                return "converged"
        return "max_iter"

    def _take(
        self, start: int, iteration: int, prior: Prior, known: Tree | None, n_evaluations: int
    ) -> tuple[Tree, float]:
        tree = self.build(prior, known)
        value = evaluate(FixedTree.of(tree), *prior).value
        if value > self.evidence:
            self.best, self.evidence = (prior, tree), value
        self.path.append(self.evidence)
        self.steps.append(Step(start, iteration, value, n_evaluations))
        self.say(f"start {start}, tree {iteration}: evidence {value:.4f}")
        return tree, value

    def result(self, stopped: str) -> Learned:
        assert self.best is not None  # every climb builds at least one tree
        prior, tree = self.best
        return Learned(
            prior, tree, self.evidence, np.array(self.path), tuple(self.steps), stopped
        )


def rescored(tree: Tree, prior: Prior, *, like: Tree | None = None) -> Tree:
    """Return the same topology scored under another prior."""
    assert tree.stats is not None
    n = tree.n_leaves
    return score_tree(
        tree.parent,
        prior.model,
        tree.stats[:n],
        prior.mixing,
        weight=tree.weight[:n],
        leaf_names=tree.leaf_names,
    )
