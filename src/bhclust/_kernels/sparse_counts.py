"""Kernels for Poisson columns that are mostly zero, such as words: a pair costs what is not zero.

In a complete table all columns of a cluster have the same number of entries, so what the zeros
contribute depends on that number alone, and is summed once for each number that occurs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._kernels.compile import compiled, compiled_fast, compiled_inside
from bhclust._kernels.count_lists import CountLists, Entries, is_mostly_zero
from bhclust._kernels.part import Member, Part
from bhclust._kernels.special import log_gamma_at, log_gamma_table, table_length
from bhclust._validation import FloatArray
from bhclust.models.discrete import Poisson


class SparsePoissonPart(Part):
    """Poisson counts, most of them zero and none missing, with a gamma prior per column.

    With sums ``C_j`` over m items, ``log f = Σ_j [lgamma(shape + C) - lgamma(shape)
    - C log(rate + m)] - Σ_j shape log(1 + m / rate) - log factorials``, and the first sum has
    terms only where ``C_j`` is not zero.
    """

    def __init__(self, model: Poisson, leaf_stats: FloatArray, n_slots: int) -> None:
        n, d = leaf_stats.shape[0], leaf_stats.shape[1] // 3
        self._lists = CountLists(leaf_stats[:, d : 2 * d], n_slots)
        self._leaf_factorials = leaf_stats[:, 2 * d :].sum(axis=1)
        self._window = np.arange(n)
        self._slot_sizes = np.zeros(n_slots, dtype=np.int64)
        self._slot_factorials = np.zeros(n_slots)
        shape, rate = (np.array(model.hyperparameter(name)) for name in ("shape", "rate"))
        length = table_length(d)
        log_gamma = log_gamma_table(shape, length)
        # One row a number of items: a pair walks over columns.
        log_rate = np.log(rate + np.arange(length)[:, None])
        self._prior = (shape, rate, gammaln(shape), log_gamma, log_rate)
        # What the zeros contribute with each number of items; NaN until it is asked for.
        self._of_zeros = np.full(n + 1, np.nan)
        self._focus = np.zeros(d, dtype=np.int64)
        self._log_gamma_now = np.zeros(d)
        self._focus_list: Entries = self._lists.of(Member(True, 0))
        self._focus_size = 0
        self._focus_value = 0.0
        self._of_focus = np.full(n + 1, np.nan)

    def focus(self, member: Member) -> None:
        self._focus_list = self._lists.of(member)
        self._focus_size, factorials = self._size_of(member)
        lift = _focus(*self._focus_list, self._focus, self._log_gamma_now, *self._prior[:4])
        self._focus_value = lift - factorials
        self._of_focus.fill(np.nan)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        rows = self._window[start:stop]
        sizes = np.ones(len(rows), dtype=np.int64)
        pointer = self._lists.pointer
        factorials = self._leaf_factorials[rows]
        self._add(self._lists.leaves, pointer[rows], pointer[rows + 1], sizes, factorials, out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        begin, end = self._lists.begin[slots], self._lists.end[slots]
        sizes, factorials = self._slot_sizes[slots], self._slot_factorials[slots]
        self._add(self._lists.slots, begin, end, sizes, factorials, out)

    def merge(self, left: Member, right: Member, slot: int) -> float:
        (size_a, factorials_a), (size_b, factorials_b) = self._size_of(left), self._size_of(right)
        union = self._lists.merge(left, right, slot)
        size, factorials = size_a + size_b, factorials_a + factorials_b
        self._slot_sizes[slot], self._slot_factorials[slot] = size, factorials
        return float(_log_f(*union, size, self._of_zeros, *self._prior)) - factorials

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = self._window[keep]

    def _size_of(self, member: Member) -> tuple[int, float]:
        """Return a cluster's number of items and its log factorials."""
        if member.is_leaf:
            return 1, float(self._leaf_factorials[member.number])
        return int(self._slot_sizes[member.number]), float(self._slot_factorials[member.number])

    def _add(
        self,
        entries: Entries,
        begin: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        factorials: FloatArray,
        out: FloatArray,
    ) -> None:
        _add_unions(
            *self._focus_list,
            self._focus,
            self._log_gamma_now,
            self._focus_size,
            self._focus_value,
            self._of_focus,
            *entries,
            begin,
            end,
            sizes,
            factorials,
            self._of_zeros,
            *self._prior,
            out,
        )


def is_sparse(leaf_stats: FloatArray) -> bool:
    """Whether Poisson statistics are of a wide table without holes that is mostly zero."""
    d = leaf_stats.shape[1] // 3
    return is_mostly_zero(leaf_stats[:, d : 2 * d]) and bool((leaf_stats[:, :d] > 0).all())


@compiled
def _focus(columns, counts, focus, log_gamma_now, shape, rate, origin, log_gamma):
    """Spread a list over all columns; return Σ lgamma(shape + C) - lgamma(shape)."""
    for j in range(len(focus)):
        focus[j] = 0
        log_gamma_now[j] = origin[j]
    lift = 0.0
    for entry in range(len(columns)):
        j = columns[entry]
        focus[j] = counts[entry]
        log_gamma_now[j] = log_gamma_at(log_gamma, j, shape[j], counts[entry])
        lift += log_gamma_now[j] - origin[j]
    return lift


@compiled_inside
def _zeros(size, of_zeros, shape, rate):
    """Return Σ shape log(1 + size / rate) over all columns, which is kept."""
    if np.isnan(of_zeros[size]):
        total = 0.0
        for j in range(len(shape)):
            total += shape[j] * np.log1p(size / rate[j])
        of_zeros[size] = total
    return of_zeros[size]


@compiled
def _log_f(columns, counts, size, of_zeros, shape, rate, origin, log_gamma, log_rate):
    """Return ``log f`` of a cluster without its log factorials."""
    value = -_zeros(size, of_zeros, shape, rate)
    for entry in range(len(columns)):
        j, count = columns[entry], counts[entry]
        value += log_gamma_at(log_gamma, j, shape[j], count) - origin[j]
        if size < len(log_rate):
            value -= count * log_rate[size, j]
        else:
            value -= count * np.log(rate[j] + size)
    return value


@compiled_fast
def _add_unions(
    focus_columns,
    focus_counts,
    focus,
    log_gamma_now,
    focus_size,
    focus_value,
    of_focus,
    column,
    count,
    begin,
    end,
    sizes,
    factorials,
    of_zeros,
    shape,
    rate,
    origin,
    log_gamma,
    log_rate,
    out,
):
    for p in range(len(begin)):
        size = focus_size + sizes[p]
        tabulated = size < len(log_rate)
        if np.isnan(of_focus[size]):
            total = 0.0
            for entry in range(len(focus_columns)):
                j = focus_columns[entry]
                log_size = log_rate[size, j] if tabulated else np.log(rate[j] + size)
                total += focus_counts[entry] * log_size
            of_focus[size] = total
        value = focus_value - factorials[p] - of_focus[size] - _zeros(size, of_zeros, shape, rate)
        if tabulated:
            logs = log_rate[size]
            for entry in range(begin[p], end[p]):
                j, more = column[entry], count[entry]
                together = log_gamma_at(log_gamma, j, shape[j], focus[j] + more)
                value += together - log_gamma_now[j] - more * logs[j]
        else:
            for entry in range(begin[p], end[p]):
                j, more = column[entry], count[entry]
                together = log_gamma_at(log_gamma, j, shape[j], focus[j] + more)
                value += together - log_gamma_now[j] - more * np.log(rate[j] + size)
        out[p] += value
