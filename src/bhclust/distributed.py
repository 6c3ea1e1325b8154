"""Randomised trees on Dask: tables larger than memory, on one machine or many.

The steps are those of `bhclust.randomised`, and for the same prior and seed so is the tree.
A pass over the partitions takes samples of all parts at once, a second one sends every row to its
port; when all parts are small, rows travel once between workers, in the types in which they are
stored, to the worker that fits their part. The client receives samples, numbers of rows and
finished branches, never a partition.

The result does not depend on the number of workers: samples are the rows of lowest hash, parts have
seeds of their own, and results are put together in a fixed order. Every task can be run again, so
that a lost worker costs time only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bhclust import posterior
from bhclust._branches import Assembly, Branch, Frame, deliver
from bhclust._coordinates import Prior
from bhclust._routing import Router, part_seed, route, row_hash
from bhclust._validation import BhclustError, FloatArray, IntArray, optional_import
from bhclust.agglomerate import SearchInfo
from bhclust.estimators.agglomerative import _TreeClustering
from bhclust.learn import Fitted
from bhclust.models.base import ClusterModel
from bhclust.randomised import (
    LARGEST_SHARE,
    PATIENCE,
    Items,
    PartPlan,
    Sizes,
    compact,
    dissolved,
    exact_branch,
    learn_on_sample,
    n_random_parts,
    plan_part,
    pooled_by_label,
    random_ports,
    random_top,
)
from bhclust.tables import Schema, Table

# Results of so many partitions are merged by one task.
_FAN_IN = 8


class Costs(NamedTuple):
    """What a distributed fit took.

    ``rows`` and ``partitions`` are the size of the table, ``passes`` how often it was read,
    ``sample_bytes`` what came to the client as samples, ``router_bytes`` what went to each
    worker to route rows, ``moved_bytes`` the rows that went between workers, ``branch_bytes`` the
    finished branches; ``seconds`` the time on the clock of each step.
    """

    rows: int
    partitions: int
    passes: int
    sample_bytes: int
    router_bytes: int
    moved_bytes: int
    branch_bytes: int
    seconds: dict[str, float]


class _Rows(NamedTuple):
    """Rows of a partition: their numbers in the table, their hashes, and what is stored."""

    number: IntArray
    order: npt.NDArray[np.uint64]
    values: Any


class _Part(NamedTuple):
    """Rows that need a tree."""

    n: int
    seed: int
    above: Frame | None
    slot: int
    stuck: int = 0


class _Step(NamedTuple):
    """How the rows of one part find their next part: by a plan, or at random.

    The parts are numbered from ``first`` on; ``sample`` are the numbers of the plan's sample.
    """

    first: int
    plan: PartPlan | None
    sample: IntArray
    seed: int
    n_random: int


class _Encoding(NamedTuple):
    """What turns stored rows into what the model sees."""

    schema: Schema
    model: ClusterModel

    def __call__(self, values: Any) -> Any:
        encoded = self.schema.encode(values)
        return encoded if self.model.accepts_sparse else _dense(encoded)


def fit_distributed(estimator: Any, data: Any, *, client: Any = None) -> Any:
    """Fit an estimator to a table on a Dask cluster.

    Hyperparameters that come from the data, and those that are learned, are those of a sample of
    ``learn_rows`` rows. The tree of the whole table has no statistics; `cluster_tree_` has those
    of the clusters, and predicts.

    Parameters
    ----------
    estimator : BayesianHierarchicalClustering or BayesianRoseTree
        Its settings are used (``sample_size``, ``part_size``, ``learn``, ``random_state``, …).
    data : dask.array, dask.dataframe, or list of paths of Parquet files
        The table.
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
    return _Fit(estimator, _partitions(data), client).run()


def _partitions(data: Any) -> list[Any]:
    """Return the partitions of a table as delayed objects."""
    dask = optional_import("dask", extra="distributed", needed_for="fit_distributed")
    if isinstance(data, (list, tuple)) and data and all(_is_path(path) for path in data):
        return [dask.delayed(_read_parquet)(fspath(path)) for path in data]
    if hasattr(data, "to_delayed") and getattr(data, "ndim", 0) == 2:
        if hasattr(data, "rechunk"):
            data = data.rechunk({1: -1})
        return list(np.ravel(np.array(data.to_delayed(), dtype=object)))
    raise BhclustError(
        "fit_distributed takes a two-dimensional dask.array, a dask.dataframe, or a list of paths "
        f"of Parquet files, got {type(data).__name__}."
    )


def _is_path(path: object) -> bool:
    return isinstance(path, (str, PathLike))


class _Fit:
    """One distributed fit."""

    def __init__(self, estimator: Any, sources: list[Any], client: Any) -> None:
        self.dask = optional_import("dask", extra="distributed", needed_for="fit_distributed")
        self.estimator, self.client, self.sources = estimator, client, sources
        self.plan = estimator._make_plan()
        self.rng = estimator._rng()
        self.seconds: dict[str, float] = {}
        self.bytes = dict.fromkeys(("sample", "router", "moved", "branch"), 0)
        self.passes = 0
        self._clock = time.perf_counter()

    def run(self) -> Any:
        """Fit, store the results in the estimator and return it."""
        counts = self._gather([self._task(_n_rows, s) for s in self.sources])
        self.ends = np.cumsum(counts)
        self.starts = (self.ends - counts).tolist()
        self.n = int(self.ends[-1])
        self._lap("count")
        table, learned = self._learn()
        self.encoding = _Encoding(table.schema, learned.prior.model)
        self.prior = learned.prior
        tree = self._build(int(self.rng.integers(2**63)))
        labels = posterior.cut(tree, self.estimator.n_clusters)
        small = compact(tree, labels, self.prior.model, self._cluster_stats(labels))
        self._lap("clusters")
        path = learned.path
        if not len(path):
            path = np.array([posterior.log_evidence(tree)])
        none = SearchInfo("none", 0, 0)
        result = Fitted(
            self.prior, tree, none, learned.learned, path, learned.info, "randomised", 0.0
        )
        rows = np.arange(self.n)
        self.estimator._store_fit(table, result, rows, labels, small)
        self.estimator.costs_ = self._costs()
        return self.estimator

    # -- steps -------------------------------------------------------------------------------

    def _learn(self) -> tuple[Table, Any]:
        """Read a sample of the table, and learn the prior from it."""
        estimator, n = self.estimator, self.plan.learn_rows
        seed = int(self.rng.integers(2**63))
        found = self._reduced(
            [
                self._task(_lowest, source, start, n, seed)
                for source, start in zip(self.sources, self.starts, strict=True)
            ],
            _merge_lowest,
            n,
        )
        self.bytes["sample"] += _size(found.values)
        table = estimator._read(found.values)
        weight = np.ones(table.shape[0])
        model = estimator._make_model(table, weight).for_columns(table.columns)
        values = table.values if model.accepts_sparse else table.toarray()
        prior = Prior(model.resolve(values, weight), estimator._make_mixing())
        how: Any = {"rose": estimator._rose, "rng": self.rng, "say": estimator._say}
        learned = learn_on_sample(prior, Items(values, weight, table.columns), self.plan, **how)
        self._lap("learn")
        return table, learned

    def _build(self, seed: int) -> Any:
        estimator, plan = self.estimator, self.plan
        n_stats = len(self.prior.model.suffstats(self.encoding(self._one_row()))[0])
        self.sizes = Sizes(plan.sample_size, plan.part_size).within(n_stats)
        labels = [
            self._task(np.zeros, int(count), np.int32)
            for count in self.ends - np.array(self.starts)
        ]
        labels = self.client.compute(labels)
        parts = {0: _Part(self.n, seed, None, 0)}
        small: dict[int, _Part] = {}
        next_id = 1
        while large := {k: part for k, part in parts.items() if part.n > self.sizes.part}:
            small |= {k: part for k, part in parts.items() if k not in large}
            steps, next_id = self._plan_steps(large, labels, next_id)
            labels, parts = self._route_all(large, steps, labels, next_id)
        small |= parts
        self._lap("route")
        assembly = Assembly(self.n)
        self._fit_parts(small, labels, assembly)
        tree = assembly.tree(self.prior.mixing, np.ones(self.n))
        self._lap("parts")
        if estimator._rose and not self.prior.mixing.has_normaliser:
            return dissolved(tree, self.prior.mixing, np.ones(self.n))
        return tree

    def _plan_steps(
        self, large: dict[int, _Part], labels: list[Any], next_id: int
    ) -> tuple[dict[int, _Step], int]:
        """Return how each large part is divided, by samples of all of them in one pass."""
        seeds = {k: part.seed for k, part in large.items() if part.stuck < PATIENCE}
        samples: dict[int, _Rows] = {}
        if seeds:
            # Hashes are numbers of rows, so they tell without a look at the table which rows a
            # sample has; only these are read then. Every partition's candidates with their values
            # would be most of the table.
            hashes = self._reduced(
                [
                    self._task(_lowest_hashes, start, label, self.sizes.sample, seeds)
                    for start, label in zip(self.starts, labels, strict=True)
                ],
                _merge_hashes,
                self.sizes.sample,
                once=False,
            )
            last = {k: found.max() for k, found in hashes.items()}
            samples = self._reduced(
                [
                    self._task(_rows_up_to, source, start, label, seeds, last)
                    for source, start, label in zip(self.sources, self.starts, labels, strict=True)
                ],
                _merge_rows_of_parts,
                None,
            )
            self.bytes["sample"] += sum(_size(rows.values) for rows in samples.values())
        plans = self._gather(
            [
                self._task(
                    _plan, self.prior, self.encoding, samples[k], large[k].n, self.sizes,
                    self.estimator._rose, self.plan.engine,
                )
                for k in seeds
            ]
        )  # fmt: skip
        steps = {}
        by_part = dict(zip(seeds, plans, strict=True))
        for k, part in large.items():
            plan = by_part.get(k)
            n_random = 0 if plan is not None else n_random_parts(part.n, self.sizes.part)
            sample = np.zeros(0, dtype=np.intp) if plan is None else _in_order(samples[k]).number
            steps[k] = _Step(next_id, plan, sample, part.seed, n_random)
            next_id += n_random if plan is None else plan.router.n_ports
        return steps, next_id

    def _route_all(
        self, large: dict[int, _Part], steps: dict[int, _Step], labels: list[Any], next_id: int
    ) -> tuple[list[Any], dict[int, _Part]]:
        """Send every row to its next part; return the labels on the workers, and the parts."""
        routed = [
            self._task(_route_block, source, start, label, self.encoding, steps)
            for source, start, label in zip(self.sources, self.starts, labels, strict=True)
        ]
        routed = self.client.compute(routed)
        self.passes += 1
        self.bytes["router"] += sum(
            step.plan.router.stats.nbytes for step in steps.values() if step.plan is not None
        )
        counts = self._reduced(
            [self._task(np.bincount, label, None, next_id) for label in routed],
            _add,
            None,
            once=False,
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
        return routed, parts

    def _fit_parts(self, parts: dict[int, _Part], labels: list[Any], assembly: Assembly) -> None:
        """Bring the rows of each part together on one worker, and fit it there."""
        n_bins = len(self.sources)
        bin_of = _bins([part.n for part in parts.values()], n_bins)
        bins = {k: int(b) for k, b in zip(parts, bin_of, strict=True)}
        pieces = [
            self.dask.delayed(_split, nout=n_bins)(source, start, label, bins, n_bins)
            for source, start, label in zip(self.sources, self.starts, labels, strict=True)
        ]
        self.passes += 1
        branches = [
            self._task(
                _fit_bin, [piece[b] for piece in pieces], self.prior, self.encoding,
                self.estimator._rose, self.plan.engine,
            )
            for b in range(n_bins)
        ]  # fmt: skip
        for found in self._gather(branches):
            for k, number, branch, moved in found:
                root = assembly.add_rows(branch, number)
                part = parts[k]
                deliver(assembly, self.prior.model, part.above, part.slot, root, branch.stats)
                self.bytes["moved"] += moved
                self.bytes["branch"] += number.nbytes + branch.parent.nbytes + branch.log_f.nbytes

    def _cluster_stats(self, labels: IntArray) -> FloatArray:
        """Return the statistics of the clusters, reduced in a tree."""
        n_clusters = int(labels.max()) + 1
        tasks = [
            self._task(_pool_block, source, labels[a:b].astype(np.int32), n_clusters, self.encoding)
            for source, a, b in zip(self.sources, self.starts, self.ends.tolist(), strict=True)
        ]
        self.passes += 1
        merge = self.prior.model.merge
        return np.asarray(self._reduced(tasks, _Merge(merge), None, once=False))

    # -- tasks -------------------------------------------------------------------------------

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.dask.delayed(function, pure=False)(*arguments)

    def _gather(self, tasks: list[Any]) -> list[Any]:
        return list(self.client.gather(self.client.compute(tasks)))

    def _reduced(self, tasks: list[Any], merge: Any, size: Any, *, once: bool = True) -> Any:
        """Merge the results of tasks in a tree of fixed shape."""
        self.passes += once
        while len(tasks) > 1:
            tasks = [
                self._task(merge, tasks[k : k + _FAN_IN], size)
                for k in range(0, len(tasks), _FAN_IN)
            ]
        return self.client.compute(tasks[0]).result()

    def _one_row(self) -> Any:
        return self._gather([self._task(_head, self.sources[0])])[0]

    def _lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._clock
        self._clock = now

    def _costs(self) -> Costs:
        moved = self.bytes
        return Costs(
            rows=self.n,
            partitions=len(self.sources),
            passes=self.passes,
            sample_bytes=moved["sample"],
            router_bytes=moved["router"],
            moved_bytes=moved["moved"],
            branch_bytes=moved["branch"],
            seconds=self.seconds,
        )


# -- what runs on the workers ---------------------------------------------------------------------


def _read_parquet(path: str) -> Any:
    pandas = optional_import("pandas", extra="distributed", needed_for="reading Parquet files")
    return pandas.read_parquet(path)


def _n_rows(block: Any) -> int:
    return int(block.shape[0])


def _head(block: Any) -> Any:
    return _take(block, np.arange(1))


def _take(block: Any, rows: IntArray) -> Any:
    """Return some rows of an array, a sparse array or a data frame."""
    return block.iloc[rows] if hasattr(block, "iloc") else block[rows]


def _concatenated(blocks: Sequence[Any]) -> Any:
    if hasattr(blocks[0], "iloc"):
        pandas = optional_import("pandas", extra="distributed", needed_for="data frames")
        return pandas.concat(list(blocks), ignore_index=True)
    if sparse.issparse(blocks[0]):
        return sparse.csr_array(sparse.vstack(list(blocks)))
    return np.concatenate(list(blocks))


def _lowest(block: Any, start: int, size: int, seed: int) -> _Rows:
    """Return the rows of lowest hash of a partition."""
    number = start + np.arange(block.shape[0])
    return _lowest_rows(block, number, np.arange(block.shape[0]), size, seed)


def _lowest_rows(block: Any, number: IntArray, rows: IntArray, size: int, seed: int) -> _Rows:
    order = row_hash(number[rows], seed)
    kept = np.arange(len(rows))
    if len(rows) > size:
        kept = np.argpartition(order, size)[:size]
    return _Rows(number[rows[kept]], order[kept], _take(block, rows[kept]))


def _merge_lowest(parts: Sequence[_Rows], size: int | None) -> _Rows:
    """Keep the rows of lowest hash of several samples, in the order of the table."""
    order = np.concatenate([part.order for part in parts])
    number = np.concatenate([part.number for part in parts])
    kept = np.argsort(order, kind="stable")[:size]
    kept = kept[np.argsort(number[kept])]
    values = _concatenated([part.values for part in parts])
    return _Rows(number[kept], order[kept], _take(values, kept))


def _in_order(rows: _Rows) -> _Rows:
    order = np.argsort(rows.number)
    return _Rows(rows.number[order], rows.order[order], _take(rows.values, order))


def _lowest_hashes(
    start: int, label: IntArray, size: int, seeds: dict[int, int]
) -> dict[int, npt.NDArray[np.uint64]]:
    """Return the lowest hashes of each part's rows in a partition."""
    return {
        k: _lowest_of(row_hash(start + rows, seeds[k]), size)
        for k, rows in _rows_of(label).items()
        if k in seeds
    }


def _merge_hashes(
    parts: Sequence[dict[int, npt.NDArray[np.uint64]]], size: int
) -> dict[int, npt.NDArray[np.uint64]]:
    keys = sorted(set().union(*parts))
    return {
        k: _lowest_of(np.concatenate([part[k] for part in parts if k in part]), size) for k in keys
    }


def _lowest_of(hashes: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.uint64]:
    return hashes if len(hashes) <= size else np.partition(hashes, size - 1)[:size]


def _rows_up_to(
    block: Any, start: int, label: IntArray, seeds: dict[int, int], last: dict[int, np.uint64]
) -> dict[int, _Rows]:
    """Return the rows of each part whose hash is at most that of the last of its sample."""
    out = {}
    for k, rows in _rows_of(label).items():
        if k in seeds:
            order = row_hash(start + rows, seeds[k])
            chosen = rows[order <= last[k]]
            out[k] = _Rows(start + chosen, order[order <= last[k]], _take(block, chosen))
    return out


def _merge_rows_of_parts(parts: Sequence[dict[int, _Rows]], size: None) -> dict[int, _Rows]:
    keys = sorted(set().union(*parts))
    return {k: _merge_lowest([part[k] for part in parts if k in part], size) for k in keys}


def _rows_of(label: IntArray) -> dict[int, IntArray]:
    """Return the rows of each label."""
    if not len(label):
        return {}
    order = np.argsort(label, kind="stable")
    found, first = np.unique(label[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))


def _plan(
    prior: Prior, encoding: _Encoding, sample: _Rows, n: int, sizes: Sizes, rose: bool, engine: Any
) -> PartPlan:
    values = encoding(_in_order(sample).values)
    items = Items(values, np.ones(values.shape[0]))
    return plan_part(prior, items, n, sizes, rose=rose, engine=engine)


def _route_block(
    block: Any, start: int, label: IntArray, encoding: _Encoding, steps: dict[int, _Step]
) -> npt.NDArray[np.int32]:
    """Return the next part of each row of a partition."""
    out = np.array(label, dtype=np.int32)
    for k, rows in _rows_of(label).items():
        if k not in steps:
            continue
        step, number = steps[k], start + rows
        if step.plan is None:
            out[rows] = step.first + random_ports(number, step.seed, step.n_random)
            continue
        port = _route_rows(encoding, step.plan.router, block, rows)
        place = np.searchsorted(step.sample, number)
        chosen = np.flatnonzero(step.sample[np.minimum(place, len(step.sample) - 1)] == number)
        port[chosen] = step.plan.port_of_sample[place[chosen]]
        out[rows] = step.first + port
    return out


def _route_rows(encoding: _Encoding, router: Router, block: Any, rows: IntArray) -> IntArray:
    out = np.empty(len(rows), dtype=np.intp)
    for a in range(0, len(rows), 8192):
        out[a : a + 8192] = route(
            encoding.model, router, encoding(_take(block, rows[a : a + 8192]))
        )
    return out


def _bins(sizes: Sequence[int], n_bins: int) -> IntArray:
    """Return a bin for each part, in their order, all of about the same number of rows."""
    before = np.cumsum(sizes) - sizes
    return np.minimum(before * n_bins // max(1, int(np.sum(sizes))), n_bins - 1)


def _split(block: Any, start: int, label: IntArray, bins: dict[int, int], n_bins: int) -> list[Any]:
    """Return the rows of each bin with their numbers and parts."""
    bin_of = np.zeros(int(label.max(initial=0)) + 1, dtype=np.intp)
    for k in np.unique(label).tolist():
        bin_of[k] = bins[k]
    rows = _rows_of(bin_of[label])
    none = np.zeros(0, dtype=np.intp)
    out = []
    for b in range(n_bins):
        own = rows.get(b, none)
        out.append((start + own, label[own], _take(block, own)))
    return out


def _fit_bin(
    pieces: list[Any], prior: Prior, encoding: _Encoding, rose: bool, engine: Any
) -> list[tuple[int, IntArray, Branch, int]]:
    """Fit the parts of a bin; return part, rows, branch and bytes moved of each."""
    number = np.concatenate([piece[0] for piece in pieces])
    label = np.concatenate([piece[1] for piece in pieces])
    values = _concatenated([piece[2] for piece in pieces])
    width = _size(values) // max(1, len(number))
    out = []
    for k, rows in _rows_of(label).items():
        rows = rows[np.argsort(number[rows])]
        encoded = encoding(_take(values, rows))
        items = Items(encoded, np.ones(len(rows)))
        branch = exact_branch(prior, items, rose=rose, engine=engine)
        out.append((k, number[rows], branch, width * len(rows)))
    return out


def _pool_block(block: Any, label: IntArray, n_labels: int, encoding: _Encoding) -> FloatArray:
    values = encoding(block)
    items = Items(values, np.ones(values.shape[0]))
    present, local = np.unique(label, return_inverse=True)
    pooled = pooled_by_label(encoding.model, items, np.arange(len(label)), local)
    out = encoding.model.repeat(np.repeat(pooled[:1], n_labels, axis=0), np.zeros(n_labels))
    out[present] = pooled
    return out


class _Merge(NamedTuple):
    """Merges statistics of several partitions."""

    merge: Callable[[FloatArray, FloatArray], FloatArray]

    def __call__(self, parts: Sequence[FloatArray], size: None) -> FloatArray:
        total = parts[0]
        for part in parts[1:]:
            total = self.merge(total, part)
        return total


def _add(parts: Sequence[IntArray], size: None) -> IntArray:
    return np.asarray(np.sum(parts, axis=0))


def _size(values: Any) -> int:
    """Return the bytes that rows take as they are stored."""
    if hasattr(values, "memory_usage"):
        return int(values.memory_usage(index=False, deep=True).sum())
    if sparse.issparse(values):
        return int(values.data.nbytes + values.indices.nbytes + values.indptr.nbytes)
    return int(values.nbytes)


def _dense(values: Any) -> FloatArray:
    return np.asarray(values.toarray() if sparse.issparse(values) else values)
