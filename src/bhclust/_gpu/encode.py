"""Models and statistics as the kernels want them: the fields of `parts.cuh` and `gaussian.cuh`.

A part's fields are eight bytes each, in the order of its C++ structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._gpu.device import Device, Words
from bhclust._gpu.products import Inner, inner_of_levels
from bhclust._kernels.coded import Packing
from bhclust._kernels.counts import rising_table
from bhclust._kernels.special import TABLE_LENGTH, log_gamma_table
from bhclust._validation import FloatArray
from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
    TimeSeries,
)
from bhclust.models._columnwise import feature_blocks

# Bits of a code and the most combinations of a group. Few make a small table, of which every lane
# can have a copy in banks of its own (so many copies): that costs less than fewer look-ups save.
_GROUPS = ((4, 16), (5, 32), (8, 256), (16, 1 << 16))
_COPIES = 16
# A table of sums, with its copies or without, should leave room for several of them in a block.
_TABLE_BYTES = 50_000
# Words of a leaf's codes that the kernels know beforehand.
_MOST_WORDS = 4
# Rows that are put into another layout at a time.
_ROWS = 1 << 16


@dataclass
class EncodedPart:
    """One part of a model on the device.

    ``kind`` is its C++ type; ``focus_size`` and ``scratch_size`` are in numbers of eight bytes;
    ``facts`` is what a block keeps a copy of; ``leaf_bytes`` and ``cluster_bytes`` are the sizes of
    one row's statistics; ``inner`` says how the gain of two leaves is an inner product, where it
    is; ``arrays`` keeps the memory alive that the fields point to.
    """

    kind: str
    focus_size: int
    scratch_size: int = 0
    leaf_bytes: int = 0
    cluster_bytes: int = 0
    facts: FloatArray | None = None
    inner: Inner | None = None
    words: list[int] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)


class ByPosition(NamedTuple):
    """An array with one row a position of leaves or clusters, tiled or row by row."""

    array: Any
    of: str
    tiled: bool


@dataclass(frozen=True)
class Rows:
    """Statistics to be put on a device: of leaves, and of clusters where there are some already.

    ``n_slots`` is how many clusters there may be; ``n_items`` the most items in one of them;
    ``made`` collects the arrays that were made of them.
    """

    device: Device
    leaves: FloatArray
    clusters: FloatArray | None
    n_slots: int
    n_items: int
    made: list[ByPosition] = field(default_factory=list)

    def part(self, leaves: FloatArray, clusters: FloatArray | None) -> Rows:
        """Return the same with other statistics."""
        return Rows(self.device, leaves, clusters, self.n_slots, self.n_items, self.made)

    def note(self, array: Any, of: str, *, tiled: bool = False) -> Any:
        """Return an array after noting that it has a row a position."""
        self.made.append(ByPosition(array, of, tiled))
        return array

    def tiled(self, take: Callable[[FloatArray], npt.NDArray[Any]], width: int) -> Any:
        """Return some numbers of each leaf, (tiles, numbers, warp)."""
        xp, warp = self.device.arrays, self.device.warp
        n = len(self.leaves)
        out = xp.zeros((-(-n // warp), width, warp))
        step = max(warp, _ROWS // warp * warp)
        for start in range(0, n, step):
            values = take(self.leaves[start : start + step])
            block = xp.zeros((-(-len(values) // warp) * warp, width))
            block[: len(values)] = self.device.put(np.asarray(values, dtype=np.float64))
            tiles = block.reshape(-1, warp, width).transpose(0, 2, 1)
            out[start // warp : start // warp + len(tiles)] = tiles
        return self.note(out, "leaves", tiled=True)

    def rowwise(
        self,
        take: Callable[[FloatArray], npt.NDArray[Any]],
        width: int,
        of: str = "clusters",
        dtype: Any = np.float64,
    ) -> Any:
        """Return some numbers of each row, with room for all rows of a region."""
        rows, n = self._rows(of)
        out = self.device.arrays.zeros((n, width), dtype=dtype)
        for start in range(0, 0 if rows is None else len(rows), _ROWS):
            assert rows is not None
            values = np.asarray(take(rows[start : start + _ROWS]), dtype=dtype)
            out[start : start + len(values)] = self.device.put(values)
        return self.note(out, of)

    def both(self, take: Callable[[FloatArray], npt.NDArray[Any]], width: int) -> tuple[Any, Any]:
        """Return some numbers of the leaves, tiled, and of the clusters, row by row."""
        return self.tiled(take, width), self.rowwise(take, width)

    def is_complete(self, n_columns: int) -> bool:
        """Whether no entry is missing, where the counts of the columns come first."""
        whole = bool((self.leaves[:, :n_columns] == 1).all())
        if not whole or self.clusters is None:
            return whole
        return bool((self.clusters[:, :n_columns] == self.clusters[:, :1]).all())

    def single(self, take: Callable[[FloatArray], npt.NDArray[Any]], of: str) -> Any:
        """Return one number of each row, with room for all rows."""
        rows, n = self._rows(of)
        out = self.device.arrays.zeros(n)
        if rows is not None and len(rows):
            out[: len(rows)] = self.device.put(np.asarray(take(rows), dtype=np.float64))
        return self.note(out, of)

    def _rows(self, of: str) -> tuple[FloatArray | None, int]:
        return (self.leaves, len(self.leaves)) if of == "leaves" else (self.clusters, self.n_slots)


def encode(model: ClusterModel, rows: Rows) -> list[EncodedPart] | None:
    """Return the parts of a model on the device, or None if it has no kernels there."""
    if type(model) is Mixed:
        leaves = model.blocks(rows.leaves)
        clusters = [(None, None)] * len(leaves)
        if rows.clusters is not None:
            clusters = model.blocks(rows.clusters)  # type: ignore[assignment]
        found = [
            encode(part, rows.part(block, own))
            for (part, block), (_, own) in zip(leaves, clusters, strict=True)
        ]
        if any(parts is None for parts in found):
            return None
        return [part for parts in found if parts is not None for part in parts]
    encoder = _ENCODERS.get(type(model))
    return None if encoder is None else [encoder(model, rows)]


def has_kernels(model: ClusterModel) -> bool:
    """Whether the kernels serve a model."""
    if type(model) is Mixed:
        return all(has_kernels(part) for part, _ in model.parts)
    return type(model) in _ENCODERS


def model_type(parts: list[EncodedPart]) -> str:
    """Return the C++ type of a model."""
    return f"Model<{', '.join(part.kind for part in parts)}>"


def model_words(parts: list[EncodedPart]) -> Words:
    """Return the record of a model."""
    return np.array([word for part in parts for word in part.words], dtype=np.int64)


def _finish(device: Device, part: EncodedPart, fields: list[Any]) -> EncodedPart:
    """Write the fields: numbers as they are, arrays by their addresses."""
    part.focus_size += part.focus_size % 2  # pairs of numbers are read at once
    for value in (part.focus_size, *fields):
        if isinstance(value, (bool, int, np.integer)):
            part.words.append(int(value))
        elif isinstance(value, float):
            part.words.append(int(np.float64(value).view(np.int64)))
        else:
            if isinstance(value, np.ndarray):
                value = device.put(value)
            part.arrays.append(value)
            part.words.append(device.address(value))
    return part


# --- columns with a few values --------------------------------------------------------------------


def _packing(sizes: npt.NDArray[np.int64]) -> tuple[Packing, int, int]:
    """Return how columns are grouped, the bits of a code, and how many copies the table has.

    Among the groupings whose table fits with all its copies, the shortest codes win, then the
    fewest groups; for wide tables, the smallest table without copies.
    """
    found: list[tuple[Any, int, tuple[Packing, int, int]]] = []
    for bits, largest in _GROUPS:
        packing = Packing(sizes, largest=largest)
        if packing.table.shape[1] <= largest:
            n_words = -(-packing.n_groups // (32 // bits))
            full = 8 * n_words * (32 // bits) << bits  # words are full, tables equally wide
            copies = _COPIES if full * _COPIES <= _TABLE_BYTES else 1
            size = full * copies if copies > 1 else packing.table.nbytes
            key = (copies == 1, size if copies == 1 else n_words, packing.n_groups)
            found.append((key, len(found), (packing, bits, copies)))
    return min(found)[2]


def _categorical(model: Any, rows: Rows) -> EncodedPart:
    device = rows.device
    if isinstance(model, Bernoulli):
        d = len(model.hyperparameter("a"))
        sizes = np.full(d, 2)
        # Value 0 of a column is "zero": beta parameters are a Dirichlet of two values.
        pairs = [model.hyperparameter("b"), model.hyperparameter("a")]
        alpha = np.stack(pairs, axis=1).ravel()
        order = np.stack([np.arange(d, 2 * d), np.arange(d)], axis=1).ravel()
    else:
        sizes = np.asarray(model.n_categories)
        alpha = np.array(model.hyperparameter("concentration"))
        order = np.arange(len(alpha))
    start = np.concatenate([[0], np.cumsum(sizes)])
    levels = _leaf_levels(rows, order, start)
    complete = not bool((levels == device.put(sizes)).any())
    if complete and rows.clusters is not None:
        entries = np.add.reduceat(rows.clusters[:, order], start[:-1], axis=1)
        complete = bool((entries == entries[:, :1]).all())
    # A missing value is one more value, whose log probability is zero.
    n_levels = sizes + (0 if complete else 1)
    packing, bits, copies = _packing(n_levels)
    n_groups, width = packing.n_groups, packing.table.shape[1]
    n_words = -(-n_groups // (32 // bits))
    if copies > 1:
        n_groups, width = n_words * (32 // bits), 1 << bits
    level_start = np.concatenate([[0], np.cumsum(n_levels)])
    columns = np.repeat(np.arange(len(sizes)), sizes)
    digit_of = np.arange(len(alpha)) - start[columns]
    digits = _digits(packing, n_levels, level_start, n_groups, width)
    total = np.add.reduceat(alpha, start[:-1])
    table, total_table = log_gamma_table(alpha), log_gamma_table(total)
    n_values, d = len(alpha), len(sizes)
    level = level_start[columns] + digit_of
    where = [packing.group[columns], _places(packing)[columns]]
    facts = _value_facts(
        [alpha, total[columns]],
        [start[columns], start[columns + 1], columns, level, *where],
        digits,
    )
    focus = n_values + d + 2 + int(level_start[-1]) + 1 + n_groups * width * copies
    kind = f"Categorical<{n_words if n_words <= _MOST_WORDS else 0}, {bits}, {copies}>"
    part = EncodedPart(kind, focus, 0, 4 * n_words, 4 * n_values, facts)
    if rows.clusters is None:  # leaves of a search
        part.inner = inner_of_levels(levels, alpha, sizes, packing.n_groups, complete=complete)
    fields = [
        len(facts),
        n_values,
        d,
        int(level_start[-1]),
        n_groups,
        width,
        len(digits),
        complete,
        rows.note(_codes(device, levels, packing, bits), "leaves", tiled=True),
        rows.rowwise(lambda stats: stats[:, order], n_values, dtype=np.int32),
        table,
        total_table,
        _sum_over(total, lambda t: gammaln(t + np.arange(rows.n_items + 2.0))),
        float(total_table[:, 0].sum() - table[:, 0].sum()),
    ]
    return _finish(device, part, fields)


def _value_facts(
    numbers: list[FloatArray], integers: list[npt.NDArray[Any]], digits: npt.NDArray[Any]
) -> FloatArray:
    """Return what the kernels know of each value, then the digits, as numbers of eight bytes."""
    words = np.concatenate(
        [
            np.stack(numbers, axis=1).view(np.int32),
            np.stack(integers, axis=1).astype(np.int32),
        ],
        axis=1,
    ).ravel()
    words = np.concatenate([words, digits.ravel().astype(np.int32)])
    return np.concatenate([words, np.zeros(-len(words) % 4, dtype=np.int32)]).view(np.float64)


def _leaf_levels(rows: Rows, order: npt.NDArray[Any], start: npt.NDArray[Any]) -> Any:
    """Return the value of each leaf in each column, the number of values where it is missing."""
    xp = rows.device.arrays
    sizes = np.diff(start)
    out = xp.zeros((len(rows.leaves), len(sizes)), dtype=np.uint16)
    # All columns with the same number of values at once.
    for size in np.unique(sizes):
        columns = np.flatnonzero(sizes == size)
        values = (start[columns][:, None] + np.arange(size)).ravel()
        for first in range(0, len(rows.leaves), _ROWS):
            chunk = rows.leaves[first : first + _ROWS]
            counts = rows.device.put(chunk[:, order[values]]).reshape(-1, len(columns), size)
            level = xp.where(counts.any(axis=2), counts.argmax(axis=2), size)
            out[first : first + _ROWS, rows.device.put(columns)] = level.astype(np.uint16)
    return out


def _places(packing: Packing) -> npt.NDArray[np.int64]:
    """Return which digit of its group's code each column is."""
    place = np.zeros(len(packing.group), dtype=np.int64)
    n_known = np.zeros(packing.n_groups, dtype=np.int64)
    for j, group in enumerate(packing.group):
        place[j] = n_known[group]
        n_known[group] += 1
    return place


def _digits(
    packing: Packing,
    n_levels: npt.NDArray[Any],
    level_start: npt.NDArray[Any],
    n_groups: int,
    width: int,
) -> npt.NDArray[np.int64]:
    """Return which levels stand behind each code of each group; the last level adds nothing."""
    most = int(np.bincount(packing.group).max())
    out = np.full((most, n_groups, width), int(level_start[-1]), dtype=np.int64)
    codes = np.arange(width)
    for j, (group, place) in enumerate(zip(packing.group, _places(packing), strict=True)):
        out[place, group] = level_start[j] + codes // packing.stride[j] % n_levels[j]
    return out.reshape(most, -1)


def _codes(device: Device, levels: Any, packing: Packing, code_bits: int) -> Any:
    """Return the codes of the leaves, packed into words and tiled."""
    xp, warp = device.arrays, device.warp
    per_word = 32 // code_bits
    n, n_words = len(levels), -(-packing.n_groups // per_word)
    words = xp.zeros((-(-n // warp) * warp, n_words), dtype=np.uint32)
    for j, group in enumerate(packing.group):
        code = levels[:, j].astype(np.uint32) * np.uint32(packing.stride[j])
        word, shift = divmod(int(group), per_word)
        words[:n, word] += code << np.uint32(shift * code_bits)
    return xp.ascontiguousarray(words.reshape(-1, warp, n_words).transpose(0, 2, 1))


def _sum_over(values: FloatArray, terms: Callable[[float], FloatArray]) -> FloatArray:
    """Return a sum of terms over values, each distinct value computed once."""
    distinct, times = np.unique(values, return_counts=True)
    total = times[0] * terms(float(distinct[0]))
    for value, n_times in zip(distinct[1:], times[1:], strict=True):
        total += n_times * terms(float(value))
    return np.asarray(total)


# --- counts ---------------------------------------------------------------------------------------


def _multinomial(model: Multinomial, rows: Rows) -> EncodedPart:
    alpha = np.array(model.hyperparameter("concentration"))
    d = len(alpha)
    fields: list[Any] = [d]
    fields += rows.both(lambda s: s[:, :d], d)
    fields += [rows.single(lambda s: s[:, :d].sum(axis=1), of) for of in ("leaves", "clusters")]
    fields += [rows.single(lambda s: s[:, d], of) for of in ("leaves", "clusters")]
    fields += [alpha, log_gamma_table(alpha), float(alpha.sum())]
    fields.append(float(gammaln(alpha.sum()) - gammaln(alpha).sum()))
    return _finish(
        rows.device, EncodedPart("Multinomial", d + 2, 0, 8 * (d + 2), 8 * (d + 2)), fields
    )


def _poisson(model: Poisson, rows: Rows) -> EncodedPart:
    shape, rate = (np.array(model.hyperparameter(name)) for name in ("shape", "rate"))
    d = len(shape)
    complete = rows.is_complete(d)
    fields: list[Any] = [d]
    fields += rows.both(lambda s: s[:, d : 2 * d], d)
    if complete:
        fields += [rows.single(lambda s: s[:, 0], of) for of in ("leaves", "clusters")]
    else:
        fields += rows.both(lambda s: s[:, :d], d)
    fields += [
        rows.single(lambda s: s[:, 2 * d :].sum(axis=1), of) for of in ("leaves", "clusters")
    ]
    fields += [shape, rate, gammaln(shape), np.log(rate), rising_table(shape, rate)]
    sizes = (8 * (d + 1), 8 * (d + 2)) if complete else (8 * (2 * d + 1), 8 * (2 * d + 1))
    part = EncodedPart(f"Poisson<{str(complete).lower()}>", 4 * d + 1, 0, *sizes)
    return _finish(rows.device, part, fields)


# --- real numbers ---------------------------------------------------------------------------------


def _diagonal(model: DiagonalGaussian, rows: Rows) -> EncodedPart:
    d = len(model.hyperparameter("mean"))
    order = np.argsort(model.hyperparameter("shape"), kind="stable")
    mean, strength, shape, rate = (
        np.array(model.hyperparameter(name))[order]
        for name in ("mean", "strength", "shape", "rate")
    )
    prior_mean = mean - np.asarray(model.origin)[order]
    complete = rows.is_complete(d)

    def values(stats: FloatArray) -> FloatArray:
        count, distance, _ = feature_blocks(stats, 3)
        return np.where(count[:, order] > 0, distance[:, order], np.nan)

    def block(k: int) -> Callable[[FloatArray], FloatArray]:
        return lambda stats: feature_blocks(stats, 3)[k][:, order]

    sizes = np.arange(rows.n_items + 2.0)
    terms = np.zeros(1)
    if complete:
        terms = _sum_over(shape, lambda a: gammaln(a + sizes / 2) - gammaln(a))
        terms = terms + _sum_over(strength, lambda k: 0.5 * np.log(k / (k + sizes)))
        terms -= sizes / 2 * float(np.sum(np.log(rate) + math.log(2 * math.pi)))
    fields = [
        d,
        rows.tiled(values, d),
        rows.single(lambda s: s[:, 0], "clusters") if complete else rows.rowwise(block(0), d),
        rows.rowwise(block(1), d),
        rows.rowwise(block(2), d),
        prior_mean,
        strength,
        shape,
        rate,
        terms,
    ]
    cluster_bytes = 8 * (2 * d + 1 if complete else 3 * d)
    kind = f"Diagonal<{str(complete).lower()}>"
    return _finish(rows.device, EncodedPart(kind, 7 * d + 1, 0, 8 * d, cluster_bytes), fields)


def _full(model: Gaussian, rows: Rows) -> EncodedPart:
    mean, scale = np.array(model.hyperparameter("mean")), np.array(model.hyperparameter("scale"))
    strength, dof = float(model.hyperparameter("strength")), float(model.hyperparameter("dof"))
    d = len(mean)
    factor = np.linalg.cholesky(scale)
    whiten = np.linalg.inv(factor)
    prior_mean = mean - np.asarray(model.origin)
    lower = np.tril_indices(d)

    def values(stats: FloatArray) -> FloatArray:
        return np.asarray((stats[:, 1 : 1 + d] - prior_mean) @ whiten.T)

    def scatter(stats: FloatArray) -> FloatArray:
        full = np.zeros((len(stats), d, d))
        full[:, lower[0], lower[1]] = stats[:, 1 + d :]
        full[:, lower[1], lower[0]] = stats[:, 1 + d :]
        return np.asarray((whiten @ full @ whiten.T)[:, lower[0], lower[1]])

    sizes = np.arange(rows.n_items + 2.0)
    terms = 0.5 * d * np.log(strength / (strength + sizes)) - 0.5 * sizes * d * math.log(math.pi)
    terms -= sizes * float(np.log(np.diagonal(factor)).sum())
    for j in range(d):
        terms += gammaln((dof - j + sizes) / 2) - gammaln((dof - j) / 2)
    n_entries = d * (d + 1) // 2
    fields = [
        rows.tiled(values, d),
        rows.single(lambda s: s[:, 0], "clusters"),
        rows.rowwise(values, d),
        rows.rowwise(scatter, n_entries),
        strength,
        dof,
        terms,
    ]
    focus = 2 + 3 * d + 2 * n_entries
    part = EncodedPart(f"Full<{d}>", focus, n_entries, 8 * d, 8 * (1 + d + n_entries))
    return _finish(rows.device, part, fields)


def _series(model: TimeSeries, rows: Rows) -> EncodedPart:
    complete = bool((model.complete_items(rows.leaves) == 1).all())
    if complete and rows.clusters is not None:
        complete = not bool(np.isnan(model.complete_items(rows.clusters)).any())
    return _complete_series(model, rows) if complete else _sparse_series(model, rows)


def _complete_series(model: TimeSeries, rows: Rows) -> EncodedPart:
    noise, curve = float(model.hyperparameter("noise")), np.array(model.spectrum.values)
    d = len(curve)
    n_entries = float(rows.leaves[0, :d].sum()) if len(rows.leaves) else 0.0
    sizes = np.arange(rows.n_items + 2.0)
    terms = -0.5 * sizes * n_entries * (math.log(2 * math.pi) + 2 * math.log(noise))
    for variance in curve:
        terms -= 0.5 * np.log1p(sizes * variance)

    def deviation(stats: FloatArray) -> FloatArray:
        return np.asarray(stats[:, 2 * d :].sum(axis=1) / noise**2)

    fields = [
        d,
        *rows.both(model.turned, d),
        *(rows.single(deviation, of) for of in ("leaves", "clusters")),
        rows.single(model.complete_items, "clusters"),
        curve,
        terms,
    ]
    return _finish(
        rows.device, EncodedPart("Series", 4 * d + 3, 0, 8 * (d + 1), 8 * (d + 2)), fields
    )


def _sparse_series(model: TimeSeries, rows: Rows) -> EncodedPart:
    noise = float(model.hyperparameter("noise"))
    d = rows.leaves.shape[1] // 3
    both = ("leaves", "clusters")
    fields = [
        d,
        *(rows.rowwise(lambda s: s[:, :d], d, of) for of in both),
        *(rows.rowwise(lambda s: s[:, d : 2 * d] / noise, d, of) for of in both),
        *(rows.single(lambda s: s[:, 2 * d :].sum(axis=1) / noise**2, of) for of in both),
        np.array(model.noise_covariance),
        math.log(2 * math.pi) + 2 * math.log(noise),
    ]
    room = (d + 1) * (d + 2) // 2
    row_bytes = 8 * (2 * d + 1)
    part = EncodedPart("SparseSeries", 2 * d + 2 + room, room, row_bytes, row_bytes)
    return _finish(rows.device, part, fields)


# By the exact class: a subclass may have another log_marginal.
_ENCODERS: dict[type[ClusterModel], Callable[[Any, Rows], EncodedPart]] = {
    Bernoulli: _categorical,
    Categorical: _categorical,
    Multinomial: _multinomial,
    Poisson: _poisson,
    DiagonalGaussian: _diagonal,
    Gaussian: _full,
    TimeSeries: _series,
}

assert TABLE_LENGTH == 1032, "numbers.cuh has the same length"
