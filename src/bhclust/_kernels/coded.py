"""Kernels for columns in which a single item takes one of a few values.

A cluster's predictive log probability of an item is a sum over columns of one number per value.
Columns are packed into groups with at most 256 combinations of values; an item is one byte per
group, and a cluster is a table of sums per group, so that a pair costs one look-up a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled, compiled_fast, compiled_inside
from bhclust._kernels.part import Member, Part
from bhclust._kernels.special import log_at, log_gamma_at, log_gamma_table, stirling
from bhclust._validation import FloatArray
from bhclust.models.discrete import Bernoulli, Categorical

IntMatrix = npt.NDArray[np.int32]
_LARGEST_GROUP = 256
# Combinations of the first columns of a group that are tabulated together.
_INNER = 16
# Partners of up to so many items are scored by the number of ones in each column.
_SMALL_PARTNER = 8


class Packing:
    """How columns with given numbers of values are packed into groups."""

    def __init__(self, sizes: npt.NDArray[np.int64], largest: int = _LARGEST_GROUP) -> None:
        self.sizes = sizes
        self.group = np.zeros(len(sizes), dtype=np.int64)
        self.stride = np.ones(len(sizes), dtype=np.int64)
        combinations = [1]
        for j, size in enumerate(sizes):
            if combinations[-1] * size > largest and combinations[-1] > 1:
                combinations.append(1)
            self.group[j] = len(combinations) - 1
            self.stride[j] = combinations[-1]
            combinations[-1] *= int(size)
        self.n_groups = len(combinations)
        self.table = np.zeros((self.n_groups, max(combinations)))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.n_values = int(starts[-1])
        #: what `fill_table` takes after the values
        self.layout = (starts, self.group, self.stride, self.table)

    def codes(self, levels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
        """Return the code of each item in each group, (n, n_groups)."""
        out = np.zeros((len(levels), self.n_groups), dtype=np.uint16)
        for j in range(len(self.sizes)):
            out[:, self.group[j]] += (levels[:, j] * self.stride[j]).astype(np.uint16)
        return out.astype(np.uint8) if self.table.shape[1] <= _LARGEST_GROUP else out


@compiled_inside
def fill_table(values, starts, group, stride, table):
    """Write the sums of all combinations of a group; ``values`` has one number a column's value."""
    # The combinations of a group's first columns and those of its later columns are made apart,
    # and all sums of one of each in one go: doubling the whole row column by column takes twice
    # as long.
    inner, outer = np.empty(_INNER), np.empty(table.shape[1])
    j = 0
    while j < len(group):
        this = group[j]
        inner[0], outer[0] = 0.0, 0.0
        n_inner, n_outer = 1, 1
        while j < len(group) and group[j] == this:
            first = starts[j]
            size = starts[j + 1] - first
            is_inner = n_outer == 1 and n_inner * size <= _INNER
            sums = inner if is_inner else outer
            width = n_inner if is_inner else n_outer
            for level in range(size - 1, 0, -1):
                value = values[first + level]
                for c in range(width):
                    sums[level * width + c] = sums[c] + value
            value = values[first]
            for c in range(width):
                sums[c] += value
            if is_inner:
                n_inner *= size
            else:
                n_outer *= size
            j += 1
        for block in range(n_outer):
            value = outer[block]
            for c in range(n_inner):
                table[this, block * n_inner + c] = inner[c] + value


@compiled
def add_looked_up(codes, table, base, start, stop, out):
    """Add a cluster's table sums for the items in a window."""
    n_groups = codes.shape[1]
    for p in range(stop - start):
        out[p] += base
    # Eight groups a pass, each with its table at hand: walking over the groups of an item takes
    # half as long again.
    g = 0
    while g + 8 <= n_groups:
        t0, t1, t2, t3 = table[g], table[g + 1], table[g + 2], table[g + 3]
        t4, t5, t6, t7 = table[g + 4], table[g + 5], table[g + 6], table[g + 7]
        for p in range(start, stop):
            c = codes[p, g : g + 8]
            left = (t0[c[0]] + t1[c[1]]) + (t2[c[2]] + t3[c[3]])
            out[p - start] += left + ((t4[c[4]] + t5[c[5]]) + (t6[c[6]] + t7[c[7]]))
        g += 8
    if g + 4 <= n_groups:
        t0, t1, t2, t3 = table[g], table[g + 1], table[g + 2], table[g + 3]
        for p in range(start, stop):
            c = codes[p, g : g + 4]
            out[p - start] += (t0[c[0]] + t1[c[1]]) + (t2[c[2]] + t3[c[3]])
        g += 4
    if g + 2 <= n_groups:
        t0, t1 = table[g], table[g + 1]
        for p in range(start, stop):
            out[p - start] += t0[codes[p, g]] + t1[codes[p, g + 1]]
        g += 2
    if g < n_groups:
        t0 = table[g]
        for p in range(start, stop):
            out[p - start] += t0[codes[p, g]]


class CategoricalPart(Part):
    """Bernoulli and Categorical: Dirichlet counts per column."""

    def __init__(
        self, model: Bernoulli | Categorical, leaf_stats: FloatArray, n_slots: int
    ) -> None:
        if isinstance(model, Bernoulli):
            d = len(model.hyperparameter("a"))
            # Value 0 of a column is "zero": beta parameters are a Dirichlet of two values.
            pairs = [model.hyperparameter("b"), model.hyperparameter("a")]
            self._alpha = np.ascontiguousarray(np.stack(pairs, axis=1)).ravel()
            order = np.stack([np.arange(d, 2 * d), np.arange(d)], axis=1).ravel()
            counts = leaf_stats[:, order]
            sizes = np.full(d, 2)
        else:
            assert model.n_categories is not None
            sizes = np.asarray(model.n_categories)
            self._alpha = np.array(model.hyperparameter("concentration"))
            counts = leaf_stats
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        observed = np.add.reduceat(counts, self._start[:-1], axis=1) > 0
        self._complete = bool(observed.all())
        self._levels = self._leaf_levels(counts, observed, sizes)
        # A missing value is one more value, whose log probability is zero.
        self._packing = Packing(sizes + (0 if self._complete else 1))
        self._codes = self._packing.codes(self._levels.astype(np.int64))
        self.counts = np.zeros((n_slots, len(self._alpha)), dtype=np.int32)
        self._focus_counts = np.zeros(len(self._alpha), dtype=np.int32)
        total = np.asarray(np.add.reduceat(self._alpha, self._start[:-1]))
        table, total_table = log_gamma_table(self._alpha), log_gamma_table(total)
        constant = float(total_table[:, 0].sum() - table[:, 0].sum())
        self._prior = (
            self._alpha,
            total,
            self._start,
            table,
            total_table,
            total_table.sum(axis=0),
            constant,
        )
        counts_of = np.arange(table.shape[1])
        self._logs = (
            np.log(self._alpha[:, None] + counts_of),
            np.log(total[:, None] + counts_of),
        )
        self._level_values = np.zeros(self._packing.n_values)
        self._focus_log_f = 0.0

    @staticmethod
    def _leaf_levels(
        counts: FloatArray, observed: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint16]:
        starts = np.concatenate([[0], np.cumsum(sizes)])
        levels = np.empty(observed.shape, dtype=np.uint16)
        for j, size in enumerate(sizes):
            block = counts[:, starts[j] : starts[j + 1]]
            taken = block[:, 1] > 0 if size == 2 else np.argmax(block, axis=1)
            levels[:, j] = np.where(observed[:, j], taken, size)
        return levels

    def focus(self, member: Member) -> None:
        alpha, total, start = self._prior[:3]
        focus_categorical(
            *member,
            self._levels,
            self.counts,
            self._focus_counts,
            alpha,
            total,
            start,
            *self._packing.layout,
            self._level_values,
            *self._logs,
        )
        self._focus_log_f = categorical_log_f(self._focus_counts, *self._prior)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        add_looked_up(self._codes, self._packing.table, self._focus_log_f, start, stop, out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        add_categorical_unions(
            self._focus_counts, self.counts, slots, *self._prior, self._complete, out
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        return merge_categorical(*left, *right, slot, self._levels, self.counts, *self._prior)

    def kernel_arguments(self) -> tuple[Any, Any]:
        """Return leaves and slots, and prior and tables, for the compiled search."""
        leaves = (
            self._levels,
            self._codes,
            self.counts,
            self._focus_counts,
            self._level_values,
            self._complete,
        )
        return leaves, (*self._prior, *self._packing.layout, *self._logs)

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._codes = self._codes[keep]


@compiled_inside
def _add_leaf(levels, leaf, start, counts):
    for j in range(levels.shape[1]):
        position = start[j] + levels[leaf, j]
        if position < start[j + 1]:  # else missing
            counts[position] += 1


@compiled
def categorical_log_f(counts, alpha, total, start, table, total_table, size_sums, constant):
    out = constant
    for j in range(len(total)):
        observed = np.int64(0)
        for s in range(start[j], start[j + 1]):
            observed += counts[s]
            out += log_gamma_at(table, s, alpha[s], np.int64(counts[s]))
        out -= log_gamma_at(total_table, j, total[j], observed)
    return out


@compiled_inside
def _load(is_leaf, index, levels, counts, start, into):
    # Loops over entries: numba takes seconds to compile assignments of whole arrays.
    for s in range(len(into)):
        into[s] = 0 if is_leaf else counts[index, s]
    if is_leaf:
        _add_leaf(levels, index, start, into)


@compiled
def focus_categorical(
    is_leaf,
    index,
    levels,
    counts,
    focus,
    alpha,
    total,
    start,
    value_start,
    group,
    stride,
    sums,
    values,
    log_table,
    log_total_table,
):
    """Load a cluster and tabulate its predictive log probabilities."""
    _load(is_leaf, index, levels, counts, start, focus)
    for j in range(len(total)):
        observed = np.int64(0)
        for s in range(start[j], start[j + 1]):
            observed += focus[s]
        log_total = log_at(log_total_table, j, total[j], observed)
        for s in range(start[j], start[j + 1]):
            log_count = log_at(log_table, s, alpha[s], np.int64(focus[s]))
            values[value_start[j] + s - start[j]] = log_count - log_total
    fill_table(values, value_start, group, stride, sums)


@compiled
def merge_categorical(
    left_is_leaf,
    left,
    right_is_leaf,
    right,
    slot,
    levels,
    counts,
    alpha,
    total,
    start,
    table,
    total_table,
    size_sums,
    constant,
):
    """Store the union of two clusters in a slot and return its log f."""
    union = counts[slot]
    _load(left_is_leaf, left, levels, counts, start, union)
    if right_is_leaf:
        _add_leaf(levels, right, start, union)
    else:
        for s in range(len(union)):
            union[s] += counts[right, s]
    return categorical_log_f(union, alpha, total, start, table, total_table, size_sums, constant)


@compiled_fast
def add_categorical_unions(
    focus,
    counts,
    slots,
    alpha,
    total,
    start,
    table,
    total_table,
    size_sums,
    constant,
    complete,
    out,
):
    if len(slots) == 0:
        return
    n_values = len(focus)
    n_columns = len(total)
    n_counts = table.shape[1]
    focus_size = np.int64(0)
    for s in range(start[0], start[1]):
        focus_size += focus[s]
    # The table as one row, and where the focus stands in it: a partner's counts are steps on.
    flat = table.reshape(-1)
    place = np.empty(n_values, dtype=np.int32)
    largest_of_focus = np.int64(0)
    for s in range(n_values):
        place[s] = s * n_counts + focus[s]
        largest_of_focus = max(largest_of_focus, np.int64(focus[s]))
    # In complete 0/1 columns the ones of a small partner say everything: what each number of
    # them gives with this focus is tabulated once for every size of partner that occurs.
    by_size = complete
    for j in range(n_columns):
        by_size = by_size and start[j + 1] - start[j] == 2
    by_ones = np.empty((_SMALL_PARTNER + 1, n_columns, _SMALL_PARTNER + 1))
    by_total = np.empty(_SMALL_PARTNER + 1)
    tabulated = np.zeros(_SMALL_PARTNER + 1, dtype=np.bool_)
    for p in range(len(slots)):
        other = counts[slots[p]]
        size = other[0] + other[1] if by_size else 0
        if by_size and size <= _SMALL_PARTNER:
            if not tabulated[size]:
                tabulated[size] = True
                by_total[size] = 0.0
                for j in range(n_columns):
                    by_total[size] += log_gamma_at(total_table, j, total[j], focus_size + size)
                    for ones in range(size + 1):
                        zeros = np.int64(focus[2 * j] + size - ones)
                        by_ones[size, j, ones] = log_gamma_at(
                            table, 2 * j, alpha[2 * j], zeros
                        ) + log_gamma_at(
                            table, 2 * j + 1, alpha[2 * j + 1], np.int64(focus[2 * j + 1] + ones)
                        )
            value = constant - by_total[size]
            for j in range(n_columns):
                value += by_ones[size, j, other[2 * j + 1]]
            out[p] += value
            continue
        union_size = focus_size
        for s in range(start[0], start[1]):
            union_size += other[s]
        largest = largest_of_focus + union_size - focus_size
        if not complete or largest >= n_counts:  # no bound, or none that helps
            largest = np.int64(0)
            for s in range(n_values):
                largest = max(largest, np.int64(focus[s] + other[s]))
        value = constant
        if largest < n_counts:
            for s in range(n_values):
                # unsigned: numba would ask of a signed place whether it counts from the end
                value += flat[np.uint32(place[s] + other[s])]
        else:
            for s in range(n_values):
                value += log_gamma_at(table, s, alpha[s], np.int64(focus[s] + other[s]))
        if complete:
            if union_size < len(size_sums):
                value -= size_sums[union_size]
            else:
                for j in range(n_columns):
                    value -= stirling(total[j] + union_size)
        else:
            for j in range(n_columns):
                observed = np.int64(0)
                for s in range(start[j], start[j + 1]):
                    observed += focus[s] + other[s]
                value -= log_gamma_at(total_table, j, total[j], observed)
        out[p] += value
