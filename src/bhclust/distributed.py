"""Randomised trees on Dask: tables larger than memory, on one machine or many.

The steps are those of `bhclust.randomised`, and for the same prior and seed so is the tree.
A level of the tree takes two readings of the table: one for the samples of all parts, one that
sends every row to its port. When all parts are small, rows travel once between workers, in the
types in which they are stored, to the worker that fits their part. The client receives samples for
the learning, plans, numbers of rows and finished branches, never a partition.

Rows travel in rounds: what is on its way fits into a share of the workers' memory, and the table is
read again for the next round. So no worker holds more than a partition, its share of a round, and
the numbers of the parts of its rows.

The result does not depend on the number of workers: samples are the rows of lowest hash, parts have
seeds of their own, and results are put together in a fixed order. Every task can be run again, so
that a lost worker costs time only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from bhclust import _partitions as work
from bhclust import posterior
from bhclust._branches import Assembly, Frame, deliver
from bhclust._coordinates import Prior
from bhclust._partitions import Box, Fitted, Planned, Setting, Step
from bhclust._routing import part_seed, row_hash
from bhclust._validation import BhclustError, FloatArray, IntArray, optional_import
from bhclust.agglomerate import SearchInfo
from bhclust.estimators.agglomerative import _TreeClustering
from bhclust.learn import Fitted as FittedTree
from bhclust.randomised import (
    LARGEST_SHARE,
    PATIENCE,
    Items,
    Sizes,
    compact,
    comparable_evidence,
    dissolved,
    learn_on_sample,
    n_random_parts,
    random_top,
)
from bhclust.tables import Table
from bhclust.tree import Tree

# Results of so many partitions are merged by one task.
_FAN_IN = 8

# Rows on their way take so large a share of the workers' memory. They are there twice while they
# travel, beside a partition, the interpreter and its packages; and Dask writes to disk above 0.6.
_SHARE_ON_ITS_WAY = 0.1

# Row numbers that are hashed at a time.
_HASHED = 1 << 20


class Costs(NamedTuple):
    """What a distributed fit took.

    Attributes
    ----------
    rows, partitions : int
        Size of the table.
    passes, rounds : int
        How often the table was read, and in how many rounds rows travelled.
    sample_bytes : int
        Rows of samples: of the one for the learning, which came to the client, and of those that
        went to the workers that plan.
    router_bytes : int
        Statistics that every worker got to route rows.
    moved_bytes : int
        Rows that went to the workers that fit parts.
    branch_bytes : int
        Finished branches, which came to the client.
    seconds : dict
        Time on the clock of each step.
    """

    rows: int
    partitions: int
    passes: int
    rounds: int
    sample_bytes: int
    router_bytes: int
    moved_bytes: int
    branch_bytes: int
    seconds: dict[str, float]


class _Part(NamedTuple):
    """Rows that need a tree."""

    n: int
    seed: int
    above: Frame | None
    slot: int
    stuck: int = 0


class _Sources(NamedTuple):
    """The partitions of a table, and their numbers of rows."""

    partitions: list[Any]
    counts: list[int]


def fit_distributed(estimator: Any, data: Any, *, client: Any = None) -> Any:
    """Fit an estimator to a table on a Dask cluster.

    Hyperparameters that come from the data, and those that are learned, are those of a sample of
    ``learn_rows`` rows. The tree of the whole table has no statistics; `cluster_tree_` has those
    of the clusters, and predicts.

    Parameters
    ----------
    estimator : BayesianHierarchicalClustering or BayesianRoseTree
        Its settings are used (``sample_size``, ``part_size``, ``n_seeds``, ``learn``,
        ``random_state``, …).
    data : dask.array, dask.dataframe, or list of paths of Parquet files
        The table. Blocks of an array may be sparse. Large Parquet files are read by row groups.
    client : distributed.Client, optional
        The cluster; by default the current one.

    Returns
    -------
    estimator
        The same, fitted, with `costs_`: what it took.
    """
    if not isinstance(estimator, _TreeClustering):
        raise BhclustError(
            "fit_distributed takes a BayesianHierarchicalClustering or a BayesianRoseTree, got "
            f"{type(estimator).__name__}."
        )
    _check_settings(estimator)
    needed_for = "fit_distributed"
    distributed = optional_import("distributed", extra="distributed", needed_for=needed_for)
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise BhclustError(
                "fit_distributed needs a cluster: make one with distributed.Client() first, or "
                "give client."
            ) from None
    if not hasattr(client, "compute") or getattr(client, "asynchronous", False):
        raise BhclustError(
            "fit_distributed: client must be a distributed.Client that is not asynchronous, got "
            f"{type(client).__name__}: make one with distributed.Client()."
        )
    return _Fit(estimator, _sources(data, client), client).run()


def _check_settings(estimator: Any) -> None:
    """Refuse what would be left out without a word."""
    if estimator.strategy not in ("best", "randomised"):
        raise BhclustError(
            "fit_distributed builds randomised trees: strategy must be 'randomised' or the default "
            f"'best', got {estimator.strategy!r}; for other strategies use fit on fewer rows."
        )
    if estimator.polish:
        raise BhclustError(
            "fit_distributed cannot polish a tree whose rows are on many machines: polish must be "
            "False, or use fit on fewer rows."
        )


def _sources(data: Any, client: Any) -> _Sources:
    """Return the partitions of a table."""
    dask = optional_import("dask", extra="distributed", needed_for="fit_distributed")
    if isinstance(data, (list, tuple)) and data and all(_is_path(path) for path in data):
        tasks = [dask.delayed(work.pieces_of, pure=False)(fspath(path)) for path in data]
        found = [pair for pieces in client.gather(client.compute(tasks)) for pair in pieces]
        found = [(piece, n) for piece, n in found if n]
        return _not_empty(_Sources([piece for piece, _ in found], [n for _, n in found]))
    if hasattr(data, "to_delayed") and getattr(data, "ndim", 0) == 2:
        counts = None
        if hasattr(data, "rechunk"):
            data = data.rechunk({1: -1})
            known = np.array(data.chunks[0], dtype=float)
            counts = None if np.isnan(known).any() else known.astype(int).tolist()
        blocks = list(np.ravel(np.array(data.to_delayed(), dtype=object)))
        if counts is None:
            tasks = [dask.delayed(work.n_rows, pure=False)(block) for block in blocks]
            counts = list(client.gather(client.compute(tasks)))
        full = [k for k, n in enumerate(counts) if n]
        return _not_empty(_Sources([blocks[k] for k in full], [counts[k] for k in full]))
    raise BhclustError(
        "fit_distributed takes a two-dimensional dask.array, a dask.dataframe, or a list of paths "
        f"of Parquet files, got {_described(data)}: wrap an array with dask.array.from_array, or "
        "use fit on a table in memory."
    )


def _not_empty(sources: _Sources) -> _Sources:
    if sources.partitions:
        return sources
    raise BhclustError("fit_distributed: the table has no rows; give at least one.")


def _described(data: Any) -> str:
    if isinstance(data, (list, tuple)):
        other = next((entry for entry in data if not _is_path(entry)), None)
        held = "nothing" if not data else f"an entry of type {type(other).__name__}"
        return f"a {type(data).__name__} with {held}"
    shape = getattr(data, "shape", None)
    return type(data).__name__ + ("" if shape is None else f" of {len(shape)} dimension(s)")


def _is_path(path: object) -> bool:
    return isinstance(path, (str, PathLike))


class _Fit:
    """One distributed fit."""

    def __init__(self, estimator: Any, sources: _Sources, client: Any) -> None:
        self.dask = optional_import("dask", extra="distributed", needed_for="fit_distributed")
        self.estimator, self.client, self.sources = estimator, client, sources.partitions
        self.plan = estimator._make_plan()
        self.rng = estimator._rng()
        self.ends: IntArray = np.cumsum(sources.counts)
        self.starts = (self.ends - sources.counts).tolist()
        self.n = int(self.ends[-1])
        self.seconds: dict[str, float] = {}
        self.bytes = dict.fromkeys(("sample", "router", "moved", "branch"), 0)
        self.passes = self.rounds = 0
        self._clock = time.perf_counter()

    def run(self) -> Any:
        """Fit, store the results in the estimator and return it."""
        table, learned = self._learn()
        self.prior = learned.prior
        self.model = self.prior.model
        one = self.model.suffstats(table.values[:1] if self.model.accepts_sparse else _first(table))
        sizes = Sizes(self.plan.sample_size, self.plan.part_size).within(one.shape[1])
        rose, engine = self.estimator._rose, self.plan.engine
        self.setting = self._shared(Setting(self.prior, table.schema, sizes, rose, engine))
        self.sizes = sizes
        tree, evidence = None, -np.inf
        for _ in range(self.plan.n_seeds):
            other = self._build(int(self.rng.integers(2**63)))
            found = comparable_evidence(other, self.prior.mixing)
            self.estimator._say(f"evidence {found:.4f}")
            if found > evidence:
                tree, evidence = other, found
        assert tree is not None
        labels = posterior.cut(tree, self.estimator.n_clusters)
        small = compact(tree, labels, self.model, self._cluster_stats(labels))
        self._lap("clusters")
        path = learned.path if len(learned.path) else np.array([evidence])
        none = SearchInfo("none", 0, 0)
        result = FittedTree(
            self.prior, tree, none, learned.learned, path, learned.info, "randomised", 0.0
        )
        self.estimator._store_fit(table, result, np.arange(self.n), labels, small)
        self.estimator.costs_ = self._costs()
        return self.estimator

    # -- steps -------------------------------------------------------------------------------

    def _learn(self) -> tuple[Table, Any]:
        """Read a sample of the table, and learn the prior from it."""
        estimator = self.estimator
        chosen = self._lowest_rows(self.plan.learn_rows, int(self.rng.integers(2**63)))
        owner = np.searchsorted(self.ends, chosen, side="right")
        blocks = self._gather(
            [
                self._task(work.rows_at, self.sources[k], chosen[owner == k] - self.starts[k])
                for k in np.unique(owner).tolist()
            ]
        )
        self.passes += 1
        self.bytes["sample"] += sum(work.size_of(block) for block in blocks)
        values = work.concatenated(blocks)
        self.row_bytes = work.size_of(values) / len(chosen)
        table = estimator._settled(estimator._read(values), np.ones(values.shape[0]))
        weight = np.ones(table.shape[0])
        model = estimator._make_model(table, weight).for_columns(table.columns)
        values = table.values if model.accepts_sparse else table.toarray()
        prior = Prior(model.resolve(values, weight), estimator._make_mixing())
        how: Any = {"rose": estimator._rose, "rng": self.rng, "say": estimator._say}
        learned = learn_on_sample(prior, Items(values, weight, table.columns), self.plan, **how)
        self._lap("learn")
        return table, learned

    def _lowest_rows(self, size: int, seed: int) -> IntArray:
        """Return the rows of lowest hash in the whole table."""
        kept = np.zeros(0, dtype=np.intp)
        for start in range(0, self.n, _HASHED):
            rows = np.append(kept, np.arange(start, min(start + _HASHED, self.n)))
            hashes = row_hash(rows, seed)
            kept = rows[np.argsort(hashes, kind="stable")[:size]]
        return np.sort(kept)

    def _build(self, seed: int) -> Tree:
        """Return the tree of one seed."""
        labels = [
            self._task(np.zeros, int(end - start), np.int32)
            for start, end in zip(self.starts, self.ends, strict=True)
        ]
        labels = self.client.compute(labels)
        parts = {0: _Part(self.n, seed, None, 0)}
        small: dict[int, _Part] = {}
        next_id = 1
        while large := {k: part for k, part in parts.items() if part.n > self.sizes.part}:
            self.estimator._say(f"dividing {len(large)} parts of {self.n} rows")
            small |= {k: part for k, part in parts.items() if k not in large}
            steps, next_id = self._plan_steps(large, labels, next_id)
            labels, parts = self._route_all(large, steps, labels, next_id)
        small |= parts
        self.estimator._say(f"fitting {len(small)} parts")
        assembly = Assembly(self.n)
        self._fit_parts(small, labels, assembly)
        tree = assembly.tree(self.prior.mixing, np.ones(self.n))
        if self.estimator._rose and not self.prior.mixing.has_normaliser:
            tree = dissolved(tree, self.prior.mixing, np.ones(self.n))
        self._lap("assemble")
        return tree

    def _plan_steps(
        self, large: dict[int, _Part], labels: list[Any], next_id: int
    ) -> tuple[dict[int, Step], int]:
        """Return how each large part is divided, by samples of all of them."""
        seeds = {k: part.seed for k, part in large.items() if part.stuck < PATIENCE}
        plans = {planned.part: planned for planned in self._plans(large, seeds, labels)}
        steps = {}
        for k, part in large.items():
            if k in plans:
                plan = plans[k].plan
                steps[k] = Step(next_id, plan, plans[k].sample, part.seed, 0)
                next_id += plan.router.n_ports
            else:
                n_random = n_random_parts(part.n, self.sizes.part)
                steps[k] = Step(next_id, None, np.zeros(0, dtype=np.intp), part.seed, n_random)
                next_id += n_random
        self._lap("plan")
        return steps, next_id

    def _plans(
        self, large: dict[int, _Part], seeds: dict[int, int], labels: list[Any]
    ) -> Iterator[Planned]:
        """Yield the plans of parts, from samples that are chosen in one pass over the labels."""
        if not seeds:
            return
        # Hashes are numbers of rows, so they tell without a look at the table which rows a
        # sample has; only these are read then. Every partition's candidates with their values
        # would be most of the table.
        size = self.sizes.sample
        hashes = [
            self._task(work.lowest_hashes, start, label, size, seeds)
            for start, label in zip(self.starts, labels, strict=True)
        ]
        last = self._reduced(hashes, work.merge_hashes, size, finish=work.last_hashes)
        n_of = {k: large[k].n for k in seeds}
        in_sample = {k: min(size, n) for k, n in n_of.items()}
        choose = self._shared(work.InSample(seeds, last))
        for planned, n_bytes in self._travel(labels, choose, in_sample, work.plan_bin, n_of):
            self.bytes["sample"] += n_bytes
            yield from planned

    def _route_all(
        self, large: dict[int, _Part], steps: dict[int, Step], labels: list[Any], next_id: int
    ) -> tuple[list[Any], dict[int, _Part]]:
        """Send every row to its next part; return the labels on the workers, and the parts."""
        shared = self._shared(steps)
        routed = [
            self._task(work.route_block, source, start, label, self.setting, shared)
            for source, start, label in zip(self.sources, self.starts, labels, strict=True)
        ]
        routed = self.client.compute(routed)
        self.passes += 1
        self.bytes["router"] += sum(
            step.plan.router.stats.nbytes for step in steps.values() if step.plan is not None
        )
        counts = self._reduced(
            [self._task(np.bincount, label, None, next_id) for label in routed], work.add, None
        )
        parts = {}
        for k, step in steps.items():
            part = large[k]
            n_ports = step.n_random if step.plan is None else step.plan.router.n_ports
            sizes = counts[step.first : step.first + n_ports]
            used = np.flatnonzero(sizes)
            parent = random_top(len(used), rose=self.estimator._rose)
            if step.plan is not None:
                parent = step.plan.parent
            frame = Frame.on(parent, part.above, part.slot)
            for slot, port in enumerate(used.tolist()):
                stuck = part.stuck + 1 if sizes[port] > LARGEST_SHARE * part.n else 0
                # The seed of a part follows its place among the parts that are there, as in
                # `RandomisedSearch`.
                seed = part_seed(part.seed, slot)
                parts[step.first + port] = _Part(int(sizes[port]), seed, frame, slot, stuck)
        self._lap("route")
        return routed, parts

    def _fit_parts(self, parts: dict[int, _Part], labels: list[Any], assembly: Assembly) -> None:
        """Bring the rows of each part together on one worker, and fit it there."""
        sizes = {k: part.n for k, part in parts.items()}
        everyone = self._shared(work.everyone)
        found: tuple[list[Fitted], int]
        for found in self._travel(labels, everyone, sizes, work.fit_bin):
            self.bytes["moved"] += found[1]
            for k, number, branch in found[0]:
                root = assembly.add_rows(branch, number)
                part = parts[k]
                deliver(assembly, self.model, part.above, part.slot, root, branch.stats)
                self.bytes["branch"] += number.nbytes + branch.parent.nbytes + branch.log_f.nbytes
        self._lap("parts")

    def _travel(
        self, labels: list[Any], choose: Any, sizes: dict[int, int], arrive: Any, *more: Any
    ) -> Iterator[Any]:
        """Bring rows of the same part together, and yield what is made of each bin of parts.

        Parameters
        ----------
        labels : list of futures
            The parts of the rows of each partition.
        choose : future of a Box
            Says which rows of a partition travel.
        sizes : dict
            How many rows of each part travel.
        arrive : callable
            Makes something of the rows of a bin.
        *more
            What it is given besides.
        """
        n_bins = min(len(sizes), len(self.sources))
        bin_of = _bins(list(sizes.values()), n_bins)
        n_rounds = self._n_rounds(sum(sizes.values()), n_bins)
        for turn in range(n_rounds):
            first, last = (n_bins * turn) // n_rounds, (n_bins * (turn + 1)) // n_rounds
            own = np.full(max(sizes) + 1, -1, dtype=np.intp)
            for k, b in zip(sizes, bin_of.tolist(), strict=True):
                own[k] = b - first if first <= b < last else -1
            now = self._shared(own)
            n = last - first
            pieces = [
                self.dask.delayed(work.split, pure=False, nout=n)(
                    source, start, label, choose, now, n
                )
                for source, start, label in zip(self.sources, self.starts, labels, strict=True)
            ]
            self.passes += 1
            self.rounds += 1
            yield from self._gather(
                [
                    self._task(arrive, [piece[b] for piece in pieces], self.setting, *more)
                    for b in np.unique(own[own >= 0]).tolist()
                ]
            )

    def _n_rounds(self, n_rows: int, n_bins: int) -> int:
        """Return in how many rounds so many rows travel: a question of memory, not of the tree."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] for worker in workers]
        if not limits or not all(limits):
            return 1
        room = _SHARE_ON_ITS_WAY * sum(limits)
        return max(1, min(n_bins, int(np.ceil(n_rows * self.row_bytes / room))))

    def _cluster_stats(self, labels: IntArray) -> FloatArray:
        """Return the statistics of the clusters, reduced in a tree."""
        n_clusters = int(labels.max()) + 1
        tasks = [
            self._task(
                work.pool_block, source, labels[a:b].astype(np.int32), n_clusters, self.setting
            )
            for source, a, b in zip(self.sources, self.starts, self.ends.tolist(), strict=True)
        ]
        self.passes += 1
        return np.asarray(self._reduced(tasks, work.Merge(self.model.merge), None))

    # -- tasks -------------------------------------------------------------------------------

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.dask.delayed(function, pure=False)(*arguments)

    def _shared(self, value: Any) -> Any:
        """Return a future of a box with what many tasks need.

        It is the result of a task, and not data that was sent to some worker, so that it outlives
        its worker.
        """
        return self.client.compute(self._task(work.same, Box(value)))

    def _gather(self, tasks: list[Any]) -> list[Any]:
        return list(self.client.gather(self.client.compute(tasks)))

    def _reduced(self, tasks: list[Any], merge: Any, size: Any, finish: Any = None) -> Any:
        """Merge the results of tasks in a tree of fixed shape."""
        while len(tasks) > 1:
            tasks = [
                self._task(merge, tasks[k : k + _FAN_IN], size)
                for k in range(0, len(tasks), _FAN_IN)
            ]
        last = tasks[0] if finish is None else self._task(finish, tasks[0])
        return self.client.compute(last).result()

    def _lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._clock
        self._clock = now

    def _costs(self) -> Costs:
        moved = self.bytes
        return Costs(
            rows=self.n,
            partitions=len(self.sources),
            passes=self.passes,
            rounds=self.rounds,
            sample_bytes=moved["sample"],
            router_bytes=moved["router"],
            moved_bytes=moved["moved"],
            branch_bytes=moved["branch"],
            seconds=self.seconds,
        )


def _first(table: Table) -> Any:
    return work.dense(table.values[:1])


def _bins(sizes: list[int], n_bins: int) -> IntArray:
    """Return a bin for each part, in their order, all of about the same number of rows."""
    before = np.cumsum(sizes) - sizes
    return np.minimum(before * n_bins // max(1, int(np.sum(sizes))), n_bins - 1)
