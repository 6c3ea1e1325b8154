"""Kernels for multinomial rows: narrow tables by codes of their counts, wide ones by lists.

With counts ``C_j`` in all and ``A = Σ α``,
``log f = Σ_j [lgamma(α + C) - lgamma(α)] + lgamma(A) - lgamma(A + ΣC) + log coefficients``:
a sum over columns in which a zero has no term, and one term of the total.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._kernels.coded import Packing, add_looked_up, fill_table
from bhclust._kernels.compile import compiled, compiled_fast, copied_inside
from bhclust._kernels.count_lists import CountLists, is_mostly_zero
from bhclust._kernels.part import Member, Part
from bhclust._kernels.special import log_gamma_table, stirling, table_length
from bhclust._validation import FloatArray
from bhclust.models.discrete import Multinomial

# With larger counts than this a table is not coded value by value.
_LARGEST_CODED_COUNT = 4095


def multinomial_part(model: Multinomial, leaf_stats: FloatArray, n_slots: int) -> Part:
    """Return the kernels that suit a table."""
    counts = leaf_stats[:, :-2]
    if is_mostly_zero(counts) or counts.max(initial=0) > _LARGEST_CODED_COUNT:
        return ListedMultinomialPart(model, leaf_stats, n_slots)
    return CodedMultinomialPart(model, leaf_stats, n_slots)


class _Multinomial(Part):
    """The prior, and what depends on the totals of clusters."""

    def __init__(self, model: Multinomial, leaf_stats: FloatArray, n_slots: int) -> None:
        n, d = len(leaf_stats), leaf_stats.shape[1] - 2
        self._alpha = np.array(model.hyperparameter("concentration"))
        self._total_alpha = float(self._alpha.sum())
        log_gamma = gammaln(self._alpha)
        rising = log_gamma_table(self._alpha, table_length(d)) - log_gamma[:, None]
        self._prior = (self._alpha, log_gamma, rising)
        self._leaf_totals = leaf_stats[:, :d].sum(axis=1)
        self._leaf_coefficients = leaf_stats[:, d].copy()
        # Rows have few different totals: what depends on a total is looked up.
        self._distinct_totals, self._total_code = np.unique(self._leaf_totals, return_inverse=True)
        self._window = np.arange(n)
        self._slot_totals = np.zeros(n_slots)
        self._slot_coefficients = np.zeros(n_slots)
        self._focus_total = 0.0
        self._focus_coefficient = 0.0

    def _note_focus(self, member: Member) -> None:
        self._focus_total, self._focus_coefficient = self._total_of(member)

    def _total_of(self, member: Member) -> tuple[float, float]:
        """Return the total of a cluster and its log coefficients."""
        totals, coefficients = (
            (self._leaf_totals, self._leaf_coefficients)
            if member.is_leaf
            else (self._slot_totals, self._slot_coefficients)
        )
        return float(totals[member.number]), float(coefficients[member.number])

    def _add_totals_of_singles(self, start: int, stop: int, out: FloatArray) -> None:
        rows = self._window[start:stop]
        of_total = self._of_total(self._focus_total + self._distinct_totals)
        out += of_total[self._total_code[rows]] + self._leaf_coefficients[rows]

    def _totals_of_clusters(self, slots: npt.NDArray[np.int64]) -> FloatArray:
        of_total = self._of_total(self._focus_total + self._slot_totals[slots])
        return np.asarray(of_total + self._slot_coefficients[slots])

    def _store_total(self, left: Member, right: Member, slot: int) -> float:
        """Keep what a union has besides its counts; return what that adds to its ``log f``."""
        total_a, coefficient_a = self._total_of(left)
        total_b, coefficient_b = self._total_of(right)
        total, coefficient = total_a + total_b, coefficient_a + coefficient_b
        self._slot_totals[slot], self._slot_coefficients[slot] = total, coefficient
        return float(self._of_total(total) + coefficient)

    def _of_total(self, total: float | FloatArray) -> FloatArray:
        return np.asarray(gammaln(self._total_alpha) - gammaln(self._total_alpha + total))

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = self._window[keep]


class CodedMultinomialPart(_Multinomial):
    """Rows of few columns: an item costs a look-up for each group of columns."""

    def __init__(self, model: Multinomial, leaf_stats: FloatArray, n_slots: int) -> None:
        super().__init__(model, leaf_stats, n_slots)
        self._counts = leaf_stats[:, :-2].astype(np.int64)
        self._packing = Packing(self._counts.max(axis=0, initial=0) + 1)
        self._codes = self._packing.codes(self._counts)
        self._level_values = np.zeros(self._packing.n_values)
        self._slot_counts = np.zeros((n_slots, self._counts.shape[1]), dtype=np.int64)
        self._focus_counts = self._counts[0]
        self._focus_value = 0.0

    def _counts_of(self, member: Member) -> npt.NDArray[np.int64]:
        of = self._counts if member.is_leaf else self._slot_counts
        return of[member.number]

    def focus(self, member: Member) -> None:
        self._note_focus(member)
        self._focus_counts = self._counts_of(member)
        lift = _tabulate(
            self._focus_counts, *self._prior, *self._packing.layout, self._level_values
        )
        self._focus_value = lift + self._focus_coefficient

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        add_looked_up(self._codes, self._packing.table, self._focus_value, start, stop, out)
        self._add_totals_of_singles(start, stop, out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        out += self._totals_of_clusters(slots) + self._focus_coefficient
        _add_dense_unions(self._focus_counts, self._slot_counts, slots, *self._prior, out)

    def merge(self, left: Member, right: Member, slot: int) -> float:
        union = self._counts_of(left) + self._counts_of(right)
        self._slot_counts[slot] = union
        return float(_dense_lift(union, *self._prior)) + self._store_total(left, right, slot)

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        super().compact(keep)
        self._codes = self._codes[keep]


class ListedMultinomialPart(_Multinomial):
    """Rows of many columns, or of large counts: a pair costs what is not zero in one of the two."""

    def __init__(self, model: Multinomial, leaf_stats: FloatArray, n_slots: int) -> None:
        super().__init__(model, leaf_stats, n_slots)
        self._lists = CountLists(leaf_stats[:, :-2], n_slots)
        d = leaf_stats.shape[1] - 2
        self._focus = np.zeros(d, dtype=np.int64)
        self._lift_now = np.zeros(d)
        self._focus_value = 0.0

    def focus(self, member: Member) -> None:
        self._note_focus(member)
        lift = _spread(*self._lists.of(member), self._focus, self._lift_now, *self._prior)
        self._focus_value = lift + self._focus_coefficient

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        rows, pointer = self._window[start:stop], self._lists.pointer
        self._add_totals_of_singles(start, stop, out)
        self._add(self._lists.leaves, pointer[rows], pointer[rows + 1], out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        out += self._totals_of_clusters(slots)
        self._add(self._lists.slots, self._lists.begin[slots], self._lists.end[slots], out)

    def _add(
        self,
        entries: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]],
        begin: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        out: FloatArray,
    ) -> None:
        now = (self._focus, self._lift_now, self._focus_value)
        _add_listed_unions(*now, *entries, begin, end, *self._prior, out)

    def merge(self, left: Member, right: Member, slot: int) -> float:
        union = self._lists.merge(left, right, slot)
        return float(_listed_lift(*union, *self._prior)) + self._store_total(left, right, slot)


@copied_inside
def _rising_at(rising, j, alpha, log_gamma, count):
    """Return ``lgamma(α + count) - lgamma(α)``."""
    if count < rising.shape[1]:
        return rising[j, count]
    return stirling(alpha[j] + count) - log_gamma[j]


@compiled
def _tabulate(counts, alpha, log_gamma, rising, value_start, group, stride, table, level_values):
    """Tabulate what each count of an item adds to a cluster; return the cluster's own lift."""
    lift = 0.0
    for j in range(len(counts)):
        now = _rising_at(rising, j, alpha, log_gamma, counts[j])
        lift += now
        first = value_start[j]
        level_values[first] = 0.0
        for more in range(1, value_start[j + 1] - first):
            following = _rising_at(rising, j, alpha, log_gamma, counts[j] + more)
            level_values[first + more] = following - now
    fill_table(level_values, value_start, group, stride, table)
    return lift


@compiled
def _dense_lift(counts, alpha, log_gamma, rising):
    lift = 0.0
    for j in range(len(counts)):
        lift += _rising_at(rising, j, alpha, log_gamma, counts[j])
    return lift


@compiled_fast
def _add_dense_unions(focus, slot_counts, slots, alpha, log_gamma, rising, out):
    for p in range(len(slots)):
        other = slot_counts[slots[p]]
        largest = np.int64(0)
        for j in range(len(focus)):
            largest = max(largest, focus[j] + other[j])
        lift = 0.0
        if largest < rising.shape[1]:
            for j in range(len(focus)):
                # unsigned: numba would ask of a signed place whether it counts from the end
                lift += rising[j, np.uint64(focus[j] + other[j])]
        else:
            for j in range(len(focus)):
                lift += _rising_at(rising, j, alpha, log_gamma, focus[j] + other[j])
        out[p] += lift


@compiled
def _spread(columns, counts, focus, lift_now, alpha, log_gamma, rising):
    """Spread a list over all columns; return its lift."""
    for j in range(len(focus)):
        focus[j], lift_now[j] = 0, 0.0
    lift = 0.0
    for entry in range(len(columns)):
        j = columns[entry]
        focus[j] = counts[entry]
        lift_now[j] = _rising_at(rising, j, alpha, log_gamma, counts[entry])
        lift += lift_now[j]
    return lift


@compiled
def _listed_lift(columns, counts, alpha, log_gamma, rising):
    lift = 0.0
    for entry in range(len(columns)):
        lift += _rising_at(rising, columns[entry], alpha, log_gamma, counts[entry])
    return lift


@compiled_fast
def _add_listed_unions(
    focus, lift_now, focus_value, column, count, begin, end, alpha, log_gamma, rising, out
):
    for p in range(len(begin)):
        value = focus_value
        for entry in range(begin[p], end[p]):
            j = column[entry]
            together = _rising_at(rising, j, alpha, log_gamma, focus[j] + count[entry])
            value += together - lift_now[j]
        out[p] += value
