"""Trees of many items in O(n log n): a sample's tree on top, the same again inside its parts.

A sample of the items gets its exact tree. The top of that tree ends in ports, every other item
goes to the port that predicts it best, and each port is replaced by the tree of the items that
went there: the exact tree if they are few, else by the same steps again (Heller & Ghahramani
2005b). All node quantities are then those of the whole data. There is no recursion but a stack,
and nothing larger than the data is ever in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt

from bhclust import posterior
from bhclust._branches import (
    Assembly,
    Branch,
    Frame,
    balanced,
    deliver,
    joined,
    n_ports_of,
)
from bhclust._coordinates import Prior
from bhclust._kernels.compile import announced_compilation
from bhclust._kernels.pool import pooled_stats
from bhclust._linkage import numeric_features
from bhclust._polish import polish
from bhclust._routing import (
    Router,
    make_router,
    part_seed,
    route,
    row_hash,
    sample_rows,
    top_of,
)
from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.agglomerate import EngineName, SearchInfo, agglomerate, node_stats, score_nodes
from bhclust.learn import (
    Fitted,
    LearningInfo,
    Plan,
    Say,
    alternate,
    hyperparameter_values,
    make_coordinates,
)
from bhclust.mixing import DirichletProcess, Mixing
from bhclust.models.base import ClusterModel, Column
from bhclust.strategies import Builder, Leaves, dissolvable, without
from bhclust.tree import Tree

#: strategies of this room
RANDOMISED = ("randomised", "groups")

# One port may take so large a share of the items a few times in a row; then the model cannot
# tell them apart, and they are divided at random.
LARGEST_SHARE = 0.9
PATIENCE = 2

# Parts of so few items are searched without compiled tables and without handing them to a thread.
_TINY = 24

# Rounds of hard assignment that improve groups, and how many a cluster is divided into at most.
_ROUNDS = 2
_MOST_GROUPS = 64

# Statistics of a sample or a part are dense: so many numbers at most (256 MB).
_MOST_NUMBERS = 1 << 25

#: a tree with more numbers of statistics than this keeps those of its clusters only (1 GB)
LARGEST_STATS = 1 << 27

# Rows whose statistics are added up at a time.
_ROW_BLOCK = 8192


@dataclass(frozen=True)
class Items:
    """Rows of an encoded table with their multiplicities.

    Attributes
    ----------
    values : array or csr_array of shape (n, d)
        Encoded rows; sparse rows stay sparse.
    weight : array of shape (n,)
        Multiplicities.
    columns : tuple of Column
        What the columns are.
    names : tuple of str, optional
        Names of the rows.
    """

    values: Any
    weight: FloatArray
    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, rows: IntArray) -> Items:
        """Return some of the rows."""
        return replace(self, values=self.values[rows], weight=self.weight[rows], names=None)

    def stats(self, model: ClusterModel) -> FloatArray:
        """Return the statistics of each row."""
        stats = model.suffstats(self.values)
        return stats if (self.weight == 1).all() else model.repeat(stats, self.weight)

    def leaves(self, model: ClusterModel) -> Leaves:
        """Return the rows as leaves of an exact search."""
        features = None
        if self.columns:
            features = lambda: numeric_features(self.values, self.columns, self.weight)  # noqa: E731
        return Leaves(self.stats(model), self.weight, self.names, features)


class Sizes(NamedTuple):
    """How many items a sample has, and how many a part that is searched exactly has at most."""

    sample: int
    part: int

    def within(self, n_stats: int) -> Sizes:
        """Return sizes whose dense statistics fit into memory."""
        most = max(8, _MOST_NUMBERS // (2 * n_stats))
        return Sizes(min(self.sample, most), min(self.part, most))


def exact_branch(prior: Prior, items: Items, *, rose: bool, engine: EngineName) -> Branch:
    """Return the exact greedy tree of a few items."""
    stats = items.stats(prior.model)
    if len(items) <= 2:
        parent = np.array([-1] if len(items) == 1 else [2, 2, -1], dtype=np.int32)
        return joined(prior.model, parent, stats)
    # The tables of the compiled engine cost more than a tiny search; the tree is the same.
    engine = "numpy" if engine == "auto" and len(items) <= _TINY else engine
    tree = agglomerate(*_arguments(prior, stats), rose=rose, weight=items.weight, engine=engine)[0]
    assert tree.log_marginal is not None
    assert tree.stats is not None
    return Branch(tree.parent, tree.log_marginal, tree.stats[-1:].copy())


def _arguments(prior: Prior, stats: FloatArray) -> tuple[ClusterModel, FloatArray, Mixing]:
    return prior.model, stats, prior.mixing


class _Task(NamedTuple):
    """Rows that need a tree; ``stuck`` counts how often nearly all of them stayed together."""

    rows: IntArray
    seed: int
    above: Frame | None
    slot: int
    stuck: int = 0


class _Division(NamedTuple):
    """A top, and the port of each row."""

    parent: npt.NDArray[np.int32]
    port: IntArray


def n_random_parts(n: int, part_size: int) -> int:
    """Return into how many parts rows that cannot be told apart are divided."""
    return max(2, min(_MOST_GROUPS, -(-2 * n // part_size), n // 32))


def random_top(n_parts: int, *, rose: bool) -> npt.NDArray[np.int32]:
    """Return the top of parts that were divided at random."""
    return np.append(np.full(n_parts, n_parts), -1).astype(np.int32) if rose else balanced(n_parts)


def random_ports(rows: IntArray, seed: int, n_parts: int) -> IntArray:
    """Return a random part of each row, which depends on row and seed only."""
    share = row_hash(rows, seed) / 2.0**64
    return np.minimum((share * n_parts).astype(np.intp), n_parts - 1)


class PartPlan(NamedTuple):
    """How a part is divided: a top, who goes to which of its ports, and where the sample is."""

    parent: npt.NDArray[np.int32]
    router: Router
    port_of_sample: IntArray


def plan_part(
    prior: Prior, sample: Items, n_items: int, sizes: Sizes, *, rose: bool, engine: EngineName
) -> PartPlan:
    """Return how to divide many items by the tree of a sample of them.

    If the sample is one cluster, its tree is mostly chance, and the items are divided into groups
    of like ones around some of the sample.

    Parameters
    ----------
    prior : Prior
        Resolved model and mixing prior.
    sample : Items
        The sample.
    n_items : int
        How many items it stands for.
    sizes : Sizes
        Of parts that are searched exactly.
    rose, engine
        As in `bhclust.agglomerate.agglomerate`.
    """
    model, mixing = prior
    stats = sample.stats(model)
    how: Any = {"rose": rose, "weight": sample.weight, "engine": engine}
    tree = agglomerate(model, stats, mixing, **how).tree
    assert tree.log_odds is not None
    if tree.log_odds[-1] < 0:
        top = top_of(tree, n_items, sizes.part)
        return PartPlan(top.parent, make_router(tree, top.ports, mixing), top.port_of_leaf)
    n_groups = min(_MOST_GROUPS, len(sample), -(-2 * n_items // sizes.part))
    port = np.arange(len(sample)) * n_groups // len(sample)
    spread = np.flatnonzero(np.diff(port, prepend=-1))
    seeds, weight = stats[spread], sample.weight[spread]
    for _ in range(_ROUNDS + 1):
        router = equal_router(model, seeds, weight)
        port = np.unique(route(model, router, sample.values), return_inverse=True)[1]
        weight = np.bincount(port, sample.weight).astype(np.float64)
        seeds = pooled_by_label(model, sample, np.arange(len(sample)), port)
    router = equal_router(model, seeds, weight)
    if len(weight) == 1:
        return PartPlan(np.array([-1], dtype=np.int32), router, port)
    groups = agglomerate(model, seeds, mixing, rose=rose, weight=weight).tree
    return PartPlan(groups.parent, router, port)


def equal_router(model: ClusterModel, stats: FloatArray, weight: FloatArray) -> Router:
    """Return a router to the most similar group, all taken at the weight of the lightest."""
    stats = model.repeat(stats, weight.min() / weight)
    return Router(stats, np.zeros(len(weight)), np.arange(len(weight) + 1))


class RandomisedSearch:
    """One randomised tree.

    Parameters
    ----------
    prior : Prior
        Resolved model and mixing prior.
    items : Items
        The rows.
    sizes : Sizes
        Of samples and of parts that are searched exactly.
    rose : bool
        Whether nodes may have any number of children.
    seed : int
        What decides who is in the samples.
    groups : bool
        Whether the first division is by groups of hard assignment that become the leaves of an
        exact tree.
    engine, n_jobs
        As in `bhclust.agglomerate.agglomerate`; parts are shared among the jobs.
    """

    def __init__(
        self,
        prior: Prior,
        items: Items,
        sizes: Sizes,
        *,
        rose: bool,
        seed: int,
        groups: bool = False,
        engine: EngineName = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.prior, self.items, self.rose, self.seed = prior, items, rose, seed
        self.sizes = sizes.within(items.take(np.zeros(1, dtype=np.intp)).stats(prior.model).size)
        self.groups, self.engine, self.n_jobs = groups, engine, n_jobs
        self.assembly = Assembly(len(items))

    def run(self) -> Tree:
        """Build the tree; its statistics are left out."""
        todo = [_Task(np.arange(len(self.items)), self.seed, None, 0)]
        jobs = joblib.Parallel(n_jobs=self.n_jobs, prefer="threads")
        with announced_compilation(), jobs as parallel:
            while todo:
                task = todo.pop()
                if len(task.rows) <= self.sizes.part:
                    self._search([task], parallel)
                    continue
                parts = self._divide(task)
                small = [part for part in parts if len(part.rows) <= self.sizes.part]
                todo += [part for part in parts if len(part.rows) > self.sizes.part]
                self._search(small, parallel)
        tree = self.assembly.tree(self.prior.mixing, self.items.weight)
        if self.rose and not isinstance(self.prior.mixing, DirichletProcess):
            return dissolved(tree, self.prior.mixing, self.items.weight)
        return tree

    def _search(self, tasks: list[_Task], parallel: Any) -> None:
        how: Any = {"rose": self.rose, "engine": self.engine}
        large = [task for task in tasks if len(task.rows) > _TINY]
        tiny = [task for task in tasks if len(task.rows) <= _TINY]
        found = parallel(
            joblib.delayed(exact_branch)(self.prior, self.items.take(task.rows), **how)
            for task in large
        )
        found += [exact_branch(self.prior, self.items.take(task.rows), **how) for task in tiny]
        for task, branch in zip(large + tiny, found, strict=True):
            root = self.assembly.add_rows(branch, task.rows)
            deliver(self.assembly, self.prior.model, task.above, task.slot, root, branch.stats)

    def _divide(self, task: _Task) -> list[_Task]:
        """Put a top on rows that are too many, and return its parts."""
        if task.stuck >= PATIENCE:
            division = self._at_random(task)
        elif self.groups and task.above is None:
            division = self._by_groups(task)
        else:
            division = self._by_sample(task)
        n_ports = n_ports_of(division.parent)
        frame = Frame.on(division.parent, task.above, task.slot)
        order = np.argsort(division.port, kind="stable")
        ends = np.searchsorted(division.port[order], np.arange(n_ports + 1))
        parts = []
        for port in range(n_ports):
            rows = task.rows[order[ends[port] : ends[port + 1]]]
            stuck = task.stuck + 1 if len(rows) > LARGEST_SHARE * len(task.rows) else 0
            parts.append(_Task(rows, part_seed(task.seed, port), frame, port, stuck))
        return parts

    def _by_sample(self, task: _Task) -> _Division:
        chosen = sample_rows(task.rows, self.sizes.sample, task.seed)
        sample = self.items.take(task.rows[chosen])
        how: Any = {"rose": self.rose, "engine": self.engine}
        plan = plan_part(self.prior, sample, len(task.rows), self.sizes, **how)
        port = self._route(plan.router, task.rows)
        port[chosen] = plan.port_of_sample
        return _Division(plan.parent, port)

    def _at_random(self, task: _Task) -> _Division:
        n_parts = n_random_parts(len(task.rows), self.sizes.part)
        used, port = np.unique(random_ports(task.rows, task.seed, n_parts), return_inverse=True)
        return _Division(random_top(len(used), rose=self.rose), port)

    def _route(self, router: Router, rows: IntArray) -> IntArray:
        out = np.empty(len(rows), dtype=np.intp)
        for start in range(0, len(rows), _ROW_BLOCK):
            block = self.items.values[rows[start : start + _ROW_BLOCK]]
            out[start : start + _ROW_BLOCK] = route(self.prior.model, router, block)
        return out

    def _by_groups(self, task: _Task) -> _Division:
        """Divide rows into groups by hard assignment, and build the exact tree of the groups."""
        port = self._by_sample(task).port
        for _ in range(_ROUNDS):
            router = equal_router(self.prior.model, *self._group_stats(task.rows, port))
            port = np.unique(self._route(router, task.rows), return_inverse=True)[1]
        stats, weight = self._group_stats(task.rows, port)
        if len(weight) == 1:
            return self._at_random(task)
        model, mixing = self.prior
        tree = agglomerate(model, stats, mixing, rose=self.rose, weight=weight).tree
        return _Division(tree.parent, port)

    def _group_stats(self, rows: IntArray, port: IntArray) -> tuple[FloatArray, FloatArray]:
        weight = np.bincount(port, self.items.weight[rows]).astype(np.float64)
        return pooled_by_label(self.prior.model, self.items, rows, port), weight


def dissolved(tree: Tree, mixing: Mixing, weight: FloatArray) -> Tree:
    """Take out the nodes whose absence raises the evidence: tops and parts grow together."""
    assert tree.log_marginal is not None
    gone = dissolvable(tree, mixing)
    bare = Tree(parent=without(tree.parent, gone), n_leaves=tree.n_leaves)
    return score_nodes(bare, tree.log_marginal[~gone], mixing, weight=weight)


def pooled_by_label(
    model: ClusterModel, items: Items, rows: IntArray, label: IntArray
) -> FloatArray:
    """Return the statistics of the rows of each label, a block of rows at a time.

    Parameters
    ----------
    model : ClusterModel
        The resolved model.
    items : Items
        All rows.
    rows : array of int
        The rows to add up.
    label : array of int
        Label of each of these rows, 0, 1, …
    """
    n_labels = int(label.max()) + 1
    one = items.take(rows[:1]).stats(model)
    total = model.repeat(np.repeat(one, n_labels, axis=0), np.zeros(n_labels))
    block = max(1, min(_ROW_BLOCK, _MOST_NUMBERS // one.size))
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        present, local = np.unique(label[part], return_inverse=True)
        stats = items.take(rows[part]).stats(model)
        total[present] = model.merge(total[present], _pooled(model, stats, local, len(present)))
    return total


def _pooled(model: ClusterModel, stats: FloatArray, label: IntArray, n_labels: int) -> FloatArray:
    parent = np.append(len(stats) + label, np.full(n_labels, -1)).astype(np.int32)
    known = pooled_stats(parent, model, stats)
    if known is not None:
        return known[len(stats) :]
    order = np.argsort(label, kind="stable")
    ends = np.searchsorted(label[order], np.arange(n_labels + 1))
    out = stats[order[ends[:-1]]]
    for place in range(1, int(np.diff(ends).max(initial=1))):
        open_ = np.flatnonzero(np.diff(ends) > place)
        out[open_] = model.merge(out[open_], stats[order[ends[open_] + place]])
    return out


def with_stats(tree: Tree, model: ClusterModel, items: Items) -> Tree:
    """Return the tree with the statistics of all its nodes, unless they are too large."""
    n_stats = items.take(np.zeros(1, dtype=np.intp)).stats(model).size
    if tree.n_nodes * n_stats > LARGEST_STATS:
        return replace(tree, leaf_names=items.names)
    stats = node_stats(tree, model, items.stats(model))
    stats.setflags(write=False)
    return replace(tree, stats=stats, leaf_names=items.names)


def compact(tree: Tree, labels: IntArray, model: ClusterModel, leaf_stats: FloatArray) -> Tree:
    """Return the tree above the clusters of a cut, with statistics; its leaves are the clusters.

    Leaf c is cluster c. Log odds are those of the full tree, except that what is below a cluster
    of the cut no longer counts.

    Parameters
    ----------
    tree : Tree
        A scored tree with one root.
    labels : array of int
        A cut of it.
    model : ClusterModel
        The resolved model.
    leaf_stats : array of shape (n_clusters, n_stats)
        Statistics of the clusters.
    """
    assert tree.log_odds is not None
    clusters = posterior.cluster_nodes(tree, labels)
    kept = np.zeros(tree.n_nodes, dtype=np.bool_)
    kept[clusters] = True
    for node in range(tree.n_nodes - 1):
        if kept[node]:
            kept[tree.parent[node]] = True
    inner = np.setdiff1d(np.flatnonzero(kept), clusters)
    nodes = np.concatenate([clusters, inner])
    number = np.full(tree.n_nodes + 1, -1, dtype=np.int32)
    number[nodes] = np.arange(len(nodes))
    parent = number[np.where(tree.parent[nodes] >= 0, tree.parent[nodes], tree.n_nodes)]
    bare = Tree(parent=parent, n_leaves=len(clusters))
    stats = node_stats(bare, model, leaf_stats)
    log_odds = np.where(np.arange(len(nodes)) < len(clusters), np.inf, tree.log_odds[nodes])
    height = np.where(np.arange(len(nodes)) < len(clusters), 0.0, tree.height[nodes])
    return Tree(
        parent=parent,
        n_leaves=len(clusters),
        height=height,
        log_odds=log_odds,
        log_marginal=model.log_marginal(stats),
        stats=stats,
        weight=tree.weight[nodes],
    )


def fit_randomised(
    prior: Prior, items: Items, plan: Plan, *, rose: bool, rng: np.random.Generator, say: Say
) -> Fitted:
    """Learn the hyperparameters on a sample and build randomised trees; keep the best.

    Parameters
    ----------
    prior : Prior
        The resolved model and the mixing prior to start from.
    items : Items
        The rows.
    plan : Plan
        What to learn and how hard to try.
    rose : bool
        Whether nodes may have any number of children.
    rng : Generator
        Source of samples and seeds.
    say : callable
        Takes lines on what is being done.
    """
    prior, learned, path, info = learn_on_sample(prior, items, plan, rose=rose, rng=rng, say=say)
    sizes = Sizes(plan.sample_size, plan.part_size)
    best, highest = None, -np.inf
    for _ in range(plan.n_seeds):
        seed = int(rng.integers(2**63))
        tree = RandomisedSearch(
            prior,
            items,
            sizes,
            rose=rose,
            seed=seed,
            groups=plan.strategy == "groups",
            engine=plan.engine,
            n_jobs=plan.n_jobs,
        ).run()
        evidence = comparable_evidence(tree, prior.mixing)
        say(f"seed {seed}: evidence {evidence:.4f}")
        if evidence > highest:
            best, highest = tree, evidence
    assert best is not None
    path = path if len(path) else np.array([highest])
    tree, gain = with_stats(best, prior.model, items), 0.0
    if plan.polish:
        if tree.stats is None:
            raise BhclustError(
                "polish=True needs the statistics of all nodes, which are too large for a table of "
                "this size: leave it out."
            )
        tree, gain, _, _ = polish(tree, prior)
    info_of_search = SearchInfo("none", 0, 0)
    return Fitted(prior, tree, info_of_search, learned, path, info, plan.strategy, gain)


def comparable_evidence(tree: Tree, mixing: Mixing) -> float:
    """Return the evidence by which trees of one prior are compared."""
    if isinstance(mixing, DirichletProcess):
        return posterior.log_evidence_bound(tree, mixing)
    return posterior.log_evidence(tree)


class _OnSample(NamedTuple):
    """What was learned on a sample."""

    prior: Prior
    learned: dict[str, FloatArray]
    path: FloatArray
    info: LearningInfo


def learn_on_sample(
    prior: Prior, items: Items, plan: Plan, *, rose: bool, rng: np.random.Generator, say: Say
) -> _OnSample:
    """Learn the hyperparameters on a sample of the items."""
    coordinates = make_coordinates(prior, plan.learn, float(items.weight.sum()))
    names = coordinates.names
    if not names:
        info = LearningInfo((), (), "nothing to learn", 0)
        return _OnSample(prior, {}, np.zeros(0), info)
    n_stats = items.take(np.zeros(1, dtype=np.intp)).stats(prior.model).size
    n = min(len(items), Sizes(plan.learn_rows, 1).within(n_stats).sample)
    say(f"learning on a sample of {n} of {len(items)} rows")
    rows = np.sort(rng.choice(len(items), n, replace=False))
    builder = Builder(items.take(rows).leaves(prior.model), "best", rose=rose, engine=plan.engine)
    found = alternate(
        builder,
        coordinates,
        max_iter=plan.max_iter,
        n_restarts=plan.n_restarts,
        rng=rng,
        say=say,
    )
    values = hyperparameter_values(found.prior, names)
    info = LearningInfo(names, found.steps, found.stopped, n)
    return _OnSample(found.prior, values, found.path, info)
