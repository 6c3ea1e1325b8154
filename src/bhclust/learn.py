"""Hyperparameters from the evidence: maximise on a fixed tree, rebuild, and again.

The objective is comparable between the steps: the bound on the evidence of the mixture for a
Dirichlet process, ``log p(D | T)`` for the other mixing priors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.optimize import minimize

from bhclust import _progress
from bhclust._coordinates import Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust._gpu.device import Device, DeviceName
from bhclust._gpu.nodes import learning_device
from bhclust._polish import polish
from bhclust._validation import FloatArray, check_choice
from bhclust.agglomerate import EngineName, SearchInfo
from bhclust.mixing import DirichletProcess
from bhclust.strategies import Builder, Leaves
from bhclust.tree import Tree

Say = Callable[[str], None]

# The alternation stops when the evidence rises by less than this many nats.
_LEAST_RISE = 1e-3

# What "auto" asks for before it moves a prior, in nats an item: rows must become a tenth more
# probable each. Real tables follow no model to the letter, and then a small gain, significant as it
# may be, comes from cutting classes into more and smaller clusters.
_LEAST_GAIN = 0.1
# And so many nats in all: in a table of a few dozen rows a prior is soon fitted to single rows.
_LEAST_GAIN_IN_ALL = 30.0

# Rebuilding is not a climb: a tree may be worse than the last and the next one better again.
_PATIENCE = 1

# How many trees a start usually takes; only estimates of the time left depend on it.
_USUAL_TREES = 4

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
    ``evidence`` is the raw value of this build, which may be below that of an earlier one, and
    ``log_prior`` that of its hyperparameters (0 where they started).
    """

    start: int
    iteration: int
    evidence: float
    log_prior: float
    n_evaluations: int


class Learned(NamedTuple):
    """Result of `alternate`: the best tree seen and how it was found.

    ``path`` is the best evidence with log prior after each build; it never falls. ``stopped``
    says why the last start ended: "converged" or "max_iter"; ``origin`` which candidate the tree
    was.
    """

    prior: Prior
    tree: Tree
    evidence: float
    path: FloatArray
    steps: tuple[Step, ...]
    stopped: str
    origin: str


def maximise(
    tree: Tree,
    coordinates: Coordinates,
    free: FloatArray | None = None,
    *,
    device: DeviceName | Device = "cpu",
) -> Maximum:
    """Maximise evidence with log prior over the hyperparameters, the tree staying as it is.

    Parameters
    ----------
    tree : Tree
        A tree with statistics.
    coordinates : Coordinates
        What is learned.
    free : array, optional
        Where to start; by default at the anchor.
    device : {"cpu", "cuda", "auto"}
        Where ``log f`` of the nodes and its slopes are summed; the statistics stay there until
        the maximum is found. The values are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.agglomerate import agglomerate
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.repeat(np.eye(2), 10, axis=0)
    >>> prior = Prior(Bernoulli(a=1, b=1).resolve(X), DirichletProcess(1.0))
    >>> tree = agglomerate(prior.model, prior.model.suffstats(X), prior.mixing).tree
    >>> best = maximise(tree, Coordinates(prior)).prior.model
    >>> bool(best.a[0] < 0.2)  # pure clusters: the probabilities are near 0 and 1
    True
    """
    fixed = FixedTree.of(tree, learning_device(device, coordinates.anchor.model, tree.n_leaves))
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
    builder: Builder,
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
    builder : Builder
        Builds the tree of a strategy for any prior.
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
    source = np.random.default_rng() if rng is None else rng
    starts = [np.zeros(len(coordinates.deviation))]
    starts += [coordinates.draw(source) for _ in range(n_restarts)]
    # One after the other here, unless joblib's configuration says where else.
    runs = joblib.Parallel()(
        joblib.delayed(_climbed)(builder, coordinates, say, start, free, max_iter)
        for start, free in enumerate(starts)
    )
    builder.search = runs[-1].builder.search
    return _best_of(runs)


def _climbed(
    builder: Builder,
    coordinates: Coordinates,
    say: Say,
    start: int,
    free: FloatArray,
    max_iter: int,
) -> _Run:
    """Run one start to its end."""
    # What a builder says of its last call must not be that of another thread.
    run = _Run(copy(builder), coordinates, say)
    run.climb(start, free, max_iter)
    return run


def _best_of(runs: Sequence[_Run]) -> Learned:
    """Return the best state of several starts, the first one on a tie, and the record of all."""
    best = max(runs, key=lambda run: run.value)
    assert best.best is not None  # every climb builds at least one tree
    prior, tree, origin = best.best
    path = np.maximum.accumulate(np.concatenate([run.path for run in runs]))
    steps = tuple(step for run in runs for step in run.steps)
    return Learned(prior, tree, best.evidence, path, steps, runs[-1].stopped, origin)


class _Run:
    """The best state of one start so far and the record of its builds."""

    def __init__(self, builder: Builder, coordinates: Coordinates, say: Say) -> None:
        self.builder, self.coordinates, self.say = builder, coordinates, say
        self.best: tuple[Prior, Tree, str] | None = None
        self.value = self.evidence = -np.inf
        self.path: list[float] = []
        self.steps: list[Step] = []
        self.stopped = "max_iter"

    def climb(self, start: int, free: FloatArray, max_iter: int) -> None:
        """Run one start to its end."""
        tree, value = self._take(start, 0, free, None, 0)
        # The toll of leaving the anchor is paid once: it must not look like a lack of progress.
        top, waited = value - self.coordinates.toll, 0
        for iteration in range(1, max_iter + 1):
            device = self.builder.learning_device
            maximum = maximise(tree, self.coordinates, free, device=device)
            free = maximum.free
            tree, value = self._take(start, iteration, free, tree, maximum.n_evaluations)
            waited = 0 if value > top + _LEAST_RISE else waited + 1
            top = max(top, value)
            if waited >= _PATIENCE:
                self.stopped = "converged"
                return

    def _take(
        self, start: int, iteration: int, free: FloatArray, known: Tree | None, n_evaluations: int
    ) -> tuple[Tree, float]:
        prior = self.coordinates.prior_at(free)
        log_prior = self.coordinates.log_prior(free) - self.coordinates.toll_at(free)
        _begin_tree(self.builder, f"learning, tree {len(self.steps) + 1}", _USUAL_TREES - iteration)
        tree = self.builder(prior, known)
        evidence = self.builder.candidates[self.builder.origin]
        value = evidence + log_prior
        if value > self.value:
            self.best, self.value = (prior, tree, self.builder.origin), value
            self.evidence = evidence
        self.path.append(self.value)
        self.steps.append(Step(start, iteration, evidence, log_prior, n_evaluations))
        self.say(f"start {start}, tree {iteration}: evidence {evidence:.4f}")
        return tree, value


class LearningInfo(NamedTuple):
    """How the hyperparameters were found.

    ``steps`` has every build with its raw evidence, ``stopped`` why the last start ended
    ("converged", "max_iter", or "nothing to learn"), ``n_rows`` how many rows were used: fewer
    than the table has when it was too large for a full alternation.
    """

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    stopped: str
    n_rows: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LearningInfo:
        """Make the record again from what ``_asdict`` and JSON made of it."""
        steps = tuple(Step(*step) for step in values["steps"])
        return cls(tuple(values["names"]), steps, str(values["stopped"]), int(values["n_rows"]))


class Fitted(NamedTuple):
    """Result of `fit_tree`.

    ``learned`` has the value of every learned hyperparameter; ``path`` the best evidence after
    each build; ``origin`` says which candidate the tree was ("greedy", "ward", …, or "kept" for
    the topology of an earlier build); ``polish_gain`` what polishing added to the evidence.
    """

    prior: Prior
    tree: Tree
    search: SearchInfo
    learned: dict[str, FloatArray]
    path: FloatArray
    info: LearningInfo
    origin: str
    polish_gain: float


class Plan(NamedTuple):
    """How to fit: what to learn and how hard to try.

    ``learn`` is "auto", "shared", True, False or a collection of names, as estimators take it;
    more rows than ``learn_rows`` are learned on by a random sample of so many. The last three are
    those of `bhclust.randomised`.
    """

    learn: str | bool | Collection[str] = "auto"
    strategy: str = "best"
    n_restarts: int = 0
    max_iter: int = 20
    polish: bool = False
    learn_rows: int = 2000
    engine: EngineName = "auto"
    n_jobs: int | None = None
    sample_size: int = 1000
    part_size: int = 2000
    n_seeds: int = 1
    device: DeviceName = "cpu"


def fit_tree(
    prior: Prior, leaves: Leaves, plan: Plan, *, rose: bool, rng: np.random.Generator, say: Say
) -> Fitted:
    """Learn the hyperparameters and build the tree.

    Parameters
    ----------
    prior : Prior
        The resolved model and the mixing prior to start from.
    leaves : Leaves
        The items.
    plan : Plan
        What to learn and how hard to try.
    rose : bool
        Whether nodes may have any number of children.
    rng : Generator
        Source of restarts and samples.
    say : callable
        Takes lines on what is being done.
    """
    n = len(leaves.stats)
    sampled = n > plan.learn_rows
    used = leaves
    if sampled:
        used = leaves.take(np.sort(rng.choice(n, plan.learn_rows, replace=False)))
    coordinates = make_coordinates(prior, plan.learn, float(leaves.weight.sum()), used)
    names = coordinates.names
    build = partial(
        Builder,
        strategy=plan.strategy,
        rose=rose,
        engine=plan.engine,
        n_jobs=plan.n_jobs,
        device=plan.device,
    )
    builder = build(leaves)
    if not names:
        _begin_tree(builder, "building the tree")
        tree = builder(prior)
        path = np.array([builder.candidates[builder.origin]])
        info = LearningInfo((), (), "nothing to learn", 0)
        return _finished(builder, prior, tree, {}, path, info, plan, builder.origin)
    if sampled:
        _progress.reserve(n**2)
        say(f"learning on a sample of {plan.learn_rows} of {n} rows")
    learned = alternate(
        build(used) if sampled else builder,
        coordinates,
        max_iter=plan.max_iter,
        n_restarts=plan.n_restarts,
        rng=rng,
        say=say,
    )
    values = hyperparameter_values(learned.prior, names)
    info = LearningInfo(names, learned.steps, learned.stopped, min(n, plan.learn_rows))
    tree, origin, path, best = learned.tree, learned.origin, learned.path, learned.prior
    if sampled:
        del learned, tree, used  # the sample's tree may be as large as the table
        _progress.reserve(0)
        _begin_tree(builder, "building the tree of all rows")
        tree = builder(best)
        origin = builder.origin
    return _finished(builder, best, tree, values, path, info, plan, origin)


def make_coordinates(
    prior: Prior,
    learn: str | bool | Collection[str],
    n_items: float = 0.0,
    items: Leaves | None = None,
) -> Coordinates:
    """Return the coordinates that the parameter ``learn`` of an estimator stands for.

    ``"auto"``: one factor for each hyperparameter of the model that has one and can be trusted
    with these items, if the mixing prior is a Dirichlet process, and only for a gain of 0.1 nats
    an item and 30 in all; ``"shared"``: one factor for each, and α or γ, for any mixing prior and
    any gain; True: every entry of every hyperparameter, and α or γ; False: nothing; names: one
    factor for each of these (every entry of a prior mean).

    With the other mixing priors ``log p(D | T)`` says nothing about how the tree was chosen among
    all trees, and hyperparameters that maximise it favour many small clusters; so ``"auto"``
    leaves them alone there.
    """
    if learn is True:
        return Coordinates(prior, per_feature=True, n_items=n_items)
    names: Collection[str] | None = () if learn is False else None
    if isinstance(learn, str):
        check_choice(learn, ("auto", "shared"), name="learn", owner="fit")
        if learn == "auto":
            names = _trusted_names(prior, items)
            n_used = 0.0 if items is None else float(items.weight.sum())
            toll = max(_LEAST_GAIN * n_used, _LEAST_GAIN_IN_ALL)
            return Coordinates(prior, names, n_items=n_items, toll=toll)
    elif learn is not False:
        names = tuple(learn)
    return Coordinates(prior, names, n_items=n_items)


def _trusted_names(prior: Prior, items: Leaves | None) -> list[str]:
    """Return what ``"auto"`` may learn."""
    if not isinstance(prior.mixing, DirichletProcess):
        return []
    every = [name for name in Coordinates(prior).names if name != "alpha"]
    if items is None:
        return every
    trusted = prior.model.learnable(items.stats)
    return [name for name in every if name in trusted]


def hyperparameter_values(prior: Prior, names: tuple[str, ...]) -> dict[str, FloatArray]:
    """Return the values of hyperparameters, α or γ among them."""
    out = {}
    for name in names:
        owner = prior.mixing if name in ("alpha", "gamma") else None
        value = getattr(owner, name) if owner else prior.model.hyperparameter(name)
        out[name] = np.array(value, dtype=np.float64)
    return out


def _begin_tree(builder: Builder, label: str, n_trees: int = 1) -> None:
    """Say that a tree is built, and that so many are expected with it."""
    work = len(builder.leaves.stats) ** 2
    _progress.begin(label, work, work * max(n_trees - 1, 0))


def _finished(
    builder: Builder,
    prior: Prior,
    tree: Tree,
    learned: dict[str, FloatArray],
    path: FloatArray,
    info: LearningInfo,
    plan: Plan,
    origin: str,
) -> Fitted:
    gain = 0.0
    if plan.polish:
        _begin_tree(builder, "polishing the tree")
        tree, gain, _, _ = polish(tree, prior)
    return Fitted(prior, tree, builder.search, learned, path, info, origin, gain)
