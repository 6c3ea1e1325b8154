"""What the workers of a distributed fit do with the partitions of a table.

Every function here takes and returns plain data, reads one partition at most, and gives the same
result whenever it is run again; `bhclust.distributed` says in which order they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bhclust._branches import Branch
from bhclust._coordinates import Prior
from bhclust._routing import HashArray, route, row_hash
from bhclust._validation import BhclustError, FloatArray, IntArray, optional_import
from bhclust.models.base import ClusterModel
from bhclust.randomised import (
    Items,
    PartPlan,
    Sizes,
    exact_branch,
    plan_part,
    pooled_by_label,
    random_ports,
)
from bhclust.tables import Schema

# Rows that are encoded at a time: a partition of bytes would be eight times as large.
_ROW_BLOCK = 8192

# Row groups of a Parquet file are read together up to so many numbers (16 MB as floats).
_PIECE_NUMBERS = 1 << 21

_NO_ROWS = np.zeros(0, dtype=np.intp)


class Box:
    """Holds what many tasks share.

    Dask looks into tuples, lists and dictionaries for tasks, but not into a box, and sends it to
    a worker once.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def same(box: Box) -> Box:
    """Return the box: as the result of a task it lies on the workers, and can be made again."""
    return box


class Piece(NamedTuple):
    """Some row groups of a Parquet file; None stands for the whole file."""

    path: str
    groups: tuple[int, ...] | None


class Rows(NamedTuple):
    """Rows of the table: their numbers, their parts, and what is stored."""

    number: IntArray
    label: IntArray
    values: Any


class Step(NamedTuple):
    """How the rows of one part find their next part: by a plan, or at random.

    The parts are numbered from ``first`` on; ``sample`` are the numbers of the plan's sample.
    """

    first: int
    plan: PartPlan | None
    sample: IntArray
    seed: int
    n_random: int


class Planned(NamedTuple):
    """The plan of a part, and the rows of its sample."""

    part: int
    plan: PartPlan
    sample: IntArray


class Fitted(NamedTuple):
    """The tree of a part, and its rows."""

    part: int
    number: IntArray
    branch: Branch


class Setting(NamedTuple):
    """What all tasks of a fit share."""

    prior: Prior
    schema: Schema
    sizes: Sizes
    rose: bool
    engine: Any

    @property
    def model(self) -> ClusterModel:
        """The resolved model."""
        return self.prior.model

    def encode(self, values: Any) -> Any:
        """Turn stored rows into what the model sees."""
        try:
            encoded = self.schema.encode(values)
        except BhclustError as error:
            raise BhclustError(
                f"{error} (fit_distributed takes what the columns are from a sample of "
                "learn_rows rows: if that is the reason, raise learn_rows, or store categories "
                "as categorical columns.)"
            ) from None
        return encoded if self.model.accepts_sparse else dense(encoded)


# -- reading ---------------------------------------------------------------------------------------


def opened(source: Any) -> Any:
    """Return a partition: a `Piece` is read, everything else is there already."""
    if not isinstance(source, Piece):
        return source
    if source.groups is None:
        pandas = optional_import("pandas", extra="distributed", needed_for="reading Parquet files")
        return pandas.read_parquet(source.path)
    file = _parquet_file(source.path)
    # One thread, and no second copy: a worker's memory is what the table does not fit into.
    frame = file.read_row_groups(list(source.groups), use_threads=False).to_pandas(
        use_threads=False, self_destruct=True
    )
    arrow = optional_import("pyarrow", extra="distributed", needed_for="reading Parquet files")
    arrow.default_memory_pool().release_unused()
    return frame


def pieces_of(path: str) -> list[tuple[Piece, int]]:
    """Return the pieces of a Parquet file with their numbers of rows; only its end is read."""
    if "://" in path:  # only pandas knows how to open it
        whole = Piece(path, None)
        return [(whole, n_rows(whole))]
    about = _parquet_file(path).metadata
    most = max(1, _PIECE_NUMBERS // max(1, about.num_columns))
    out: list[tuple[Piece, int]] = []
    groups: tuple[int, ...] = ()
    n = 0
    for group in range(about.num_row_groups):
        own = about.row_group(group).num_rows
        if groups and n + own > most:
            out.append((Piece(path, groups), n))
            groups, n = (), 0
        groups, n = (*groups, group), n + own
    return [*out, (Piece(path, groups), n)]


def _parquet_file(path: str) -> Any:
    parquet = optional_import(
        "pyarrow.parquet", extra="distributed", needed_for="reading Parquet files"
    )
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are both kinds
        raise BhclustError(
            f"fit_distributed: a worker cannot read {path!r} as a Parquet file ({error}): give "
            "paths of Parquet files that every worker can open."
        ) from None


def n_rows(source: Any) -> int:
    """Return the number of rows of a partition."""
    return int(opened(source).shape[0])


def rows_at(source: Any, places: IntArray) -> Any:
    """Return some rows of a partition."""
    return take(opened(source), places)


def take(block: Any, rows: IntArray) -> Any:
    """Return some rows of an array, a sparse array or a data frame."""
    return block.iloc[rows] if hasattr(block, "iloc") else block[rows]


def packed(values: Any) -> Any:
    """Return the rows of a data frame as an array, if all columns are of one type of numbers.

    A frame costs time for every column wherever it goes: to weigh it, to send it, to join it.
    """
    if not hasattr(values, "iloc"):
        return values
    types = set(values.dtypes)
    if len(types) == 1 and getattr(types.pop(), "kind", "O") in "biuf":
        array = np.ascontiguousarray(values.to_numpy())
        return array if array.dtype.kind in "biuf" else values
    return values


def concatenated(blocks: Sequence[Any]) -> Any:
    """Return the rows of several blocks as one."""
    if hasattr(blocks[0], "iloc"):
        pandas = optional_import("pandas", extra="distributed", needed_for="data frames")
        return pandas.concat(list(blocks), ignore_index=True)
    if sparse.issparse(blocks[0]):
        return sparse.csr_array(sparse.vstack(list(blocks)))
    return np.concatenate(list(blocks))


def size_of(values: Any) -> int:
    """Return the bytes that rows take as they are stored."""
    if hasattr(values, "memory_usage"):
        return int(values.memory_usage(index=False, deep=True).sum())
    if sparse.issparse(values):
        return int(values.data.nbytes + values.indices.nbytes + values.indptr.nbytes)
    return int(values.nbytes)


def dense(values: Any) -> FloatArray:
    """Return encoded rows as an array."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values)


# -- samples ---------------------------------------------------------------------------------------


def lowest_of(hashes: HashArray, size: int) -> HashArray:
    """Return the lowest hashes."""
    return hashes if len(hashes) <= size else np.partition(hashes, size - 1)[:size]


def rows_of(label: IntArray) -> dict[int, IntArray]:
    """Return the rows of each label, in their order."""
    if not len(label):
        return {}
    order = np.argsort(label, kind="stable")
    found, first = np.unique(label[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))


def lowest_hashes(
    start: int, label: IntArray, size: int, seeds: Mapping[int, int]
) -> dict[int, HashArray]:
    """Return the lowest hashes of each part's rows in a partition; the table is not needed."""
    return {
        k: lowest_of(row_hash(start + rows, seeds[k]), size)
        for k, rows in rows_of(label).items()
        if k in seeds
    }


def merge_hashes(parts: Sequence[dict[int, HashArray]], size: int) -> dict[int, HashArray]:
    """Keep the lowest hashes of each part."""
    keys = sorted(set().union(*parts))
    return {
        k: lowest_of(np.concatenate([part[k] for part in parts if k in part]), size) for k in keys
    }


def last_hashes(found: dict[int, HashArray]) -> dict[int, np.uint64]:
    """Return the highest hash that is still in each part's sample."""
    return {k: hashes.max() for k, hashes in found.items()}


class InSample(NamedTuple):
    """Chooses the rows whose hash is at most that of the last of their part's sample."""

    seeds: dict[int, int]
    last: dict[int, np.uint64]

    def __call__(self, number: IntArray, label: IntArray) -> IntArray:
        chosen = [
            rows[row_hash(number[rows], self.seeds[k]) <= self.last[k]]
            for k, rows in rows_of(label).items()
            if k in self.seeds
        ]
        return np.concatenate([_NO_ROWS, *chosen])


def everyone(number: IntArray, label: IntArray) -> IntArray:
    """Choose all rows."""
    return np.arange(len(number))


# -- rows travel -----------------------------------------------------------------------------------


def split(source: Any, start: int, label: IntArray, choose: Box, bin_of: Box, n: int) -> list[Rows]:
    """Return the chosen rows of a partition that belong into each of ``n`` bins.

    ``bin_of`` holds the bin of each part, -1 where its turn is another time.
    """
    number = start + np.arange(len(label))
    rows = choose.value(number, label)
    found = rows_of(bin_of.value[label[rows]])
    found.pop(-1, None)
    block = opened(source) if found else None
    out = []
    for b in range(n):
        own = rows[found[b]] if b in found else _NO_ROWS
        values = packed(take(block, own)) if len(own) else None
        out.append(Rows(number[own], label[own], values))
    return out


def _gathered(pieces: Sequence[Rows]) -> Rows:
    """Return the rows of a bin by part, and in each part in the order of the table."""
    full = [piece for piece in pieces if len(piece.number)]
    number = np.concatenate([piece.number for piece in full])
    label = np.concatenate([piece.label for piece in full])
    order = np.lexsort((number, label))
    values = take(concatenated([piece.values for piece in full]), order)
    return Rows(number[order], label[order], values)


def _parts_of(rows: Rows, setting: Setting) -> Iterator[tuple[int, IntArray, Items]]:
    """Return part, numbers and encoded rows of each part of a bin.

    Parts are encoded together up to a number of rows: a column costs the same for a few rows.
    """
    starts = np.flatnonzero(np.diff(rows.label, prepend=-1))
    ends = np.append(starts[1:], len(rows.label))
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(ends, starts[first] + _ROW_BLOCK, side="right")) - 1
        last = max(first, last)
        begin = starts[first]
        encoded = setting.encode(take(rows.values, np.arange(begin, ends[last])))
        for place in range(first, last + 1):
            own = encoded[starts[place] - begin : ends[place] - begin]
            number = rows.number[starts[place] : ends[place]]
            yield int(rows.label[starts[place]]), number, Items(own, np.ones(len(number)))
        first = last + 1


def plan_bin(
    pieces: Sequence[Rows], setting: Box, n_of: Mapping[int, int]
) -> tuple[list[Planned], int]:
    """Return how each part of a bin is divided, and the bytes of the samples."""
    about: Setting = setting.value
    rows = _gathered(pieces)
    how: Any = {"rose": about.rose, "engine": about.engine}
    out = [
        Planned(k, plan_part(about.prior, items, n_of[k], about.sizes, **how), number)
        for k, number, items in _parts_of(rows, about)
    ]
    return out, size_of(rows.values)


def fit_bin(pieces: Sequence[Rows], setting: Box) -> tuple[list[Fitted], int]:
    """Return the exact tree of each part of a bin, and the bytes of the rows."""
    about: Setting = setting.value
    rows = _gathered(pieces)
    how: Any = {"rose": about.rose, "engine": about.engine}
    out = [
        Fitted(k, number, exact_branch(about.prior, items, **how))
        for k, number, items in _parts_of(rows, about)
    ]
    return out, size_of(rows.values)


def route_block(
    source: Any, start: int, label: IntArray, setting: Box, steps: Box
) -> npt.NDArray[np.int32]:
    """Return the next part of each row of a partition."""
    out = np.array(label, dtype=np.int32)
    by_plan = []
    for k, rows in rows_of(label).items():
        step: Step | None = steps.value.get(k)
        if step is None:
            continue
        if step.plan is None:
            out[rows] = step.first + random_ports(start + rows, step.seed, step.n_random)
        else:
            by_plan.append(rows)
    order = np.concatenate([_NO_ROWS, *by_plan])
    block = opened(source) if len(order) else None
    for a in range(0, len(order), _ROW_BLOCK):
        rows = order[a : a + _ROW_BLOCK]
        values = setting.value.encode(take(block, rows))
        for k, own in rows_of(label[rows]).items():
            part = steps.value[k]
            port = route(setting.value.model, part.plan.router, values[own]).astype(np.intp)
            out[rows[own]] = part.first + _with_sample(port, start + rows[own], part)
    return out


def _with_sample(port: IntArray, number: IntArray, step: Step) -> IntArray:
    """Put the rows of the sample where the plan has them."""
    assert step.plan is not None
    place = np.searchsorted(step.sample, number)
    chosen = np.flatnonzero(step.sample[np.minimum(place, len(step.sample) - 1)] == number)
    port[chosen] = step.plan.port_of_sample[place[chosen]]
    return port


# -- sums ------------------------------------------------------------------------------------------


def pool_block(source: Any, label: IntArray, n_labels: int, setting: Box) -> FloatArray:
    """Return the statistics of the rows of each label in a partition."""
    model, block = setting.value.model, opened(source)
    out: FloatArray | None = None
    for a in range(0, len(label), _ROW_BLOCK):
        rows = np.arange(a, min(a + _ROW_BLOCK, len(label)))
        values = setting.value.encode(take(block, rows))
        present, local = np.unique(label[rows], return_inverse=True)
        items = Items(values, np.ones(len(rows)))
        pooled = pooled_by_label(model, items, np.arange(len(rows)), local)
        if out is None:
            out = model.repeat(np.repeat(pooled[:1], n_labels, axis=0), np.zeros(n_labels))
        out[present] = model.merge(out[present], pooled)
    assert out is not None
    return out


class Merge(NamedTuple):
    """Merges statistics of several partitions."""

    merge: Callable[[FloatArray, FloatArray], FloatArray]

    def __call__(self, parts: Sequence[FloatArray], size: None) -> FloatArray:
        total = parts[0]
        for part in parts[1:]:
            total = self.merge(total, part)
        return total


def add(parts: Sequence[IntArray], size: None) -> IntArray:
    """Add up counts."""
    return np.asarray(np.sum(parts, axis=0))
