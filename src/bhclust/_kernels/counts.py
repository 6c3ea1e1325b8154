"""Kernels for Poisson columns whose counts are coded value by value."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._kernels.coded import Packing, add_looked_up, fill_table
from bhclust._kernels.compile import compiled, compiled_fast, compiled_inside, copied_inside
from bhclust._kernels.part import Member, Part
from bhclust._kernels.special import (
    TABLE_LENGTH,
    log_gamma_table,
    stirling,
    table_length,
)
from bhclust._validation import FloatArray
from bhclust.models.discrete import Poisson

# A column with larger counts than this is not coded value by value.
LARGEST_CODED_COUNT = 4095

PoissonPrior = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


def largest_count(leaf_stats: FloatArray) -> float:
    """Return the largest count of a single item among Poisson statistics."""
    d = leaf_stats.shape[1] // 3
    return float(leaf_stats[:, d : 2 * d].max(initial=0.0))


class PoissonPart(Part):
    """Poisson counts with a gamma prior per column; counts up to `LARGEST_CODED_COUNT`."""

    def __init__(self, model: Poisson, leaf_stats: FloatArray, n_slots: int) -> None:
        d = leaf_stats.shape[1] // 3
        observed = leaf_stats[:, :d] > 0
        self._values = np.where(observed, leaf_stats[:, d : 2 * d], -1).astype(np.int32)
        self._complete = bool(observed.all())
        sizes = self._values.max(axis=0).astype(np.int64) + 1
        missing_level = np.maximum(sizes, 1)
        # A missing value is one more value, whose log probability is zero.
        self._packing = Packing(missing_level + (0 if self._complete else 1))
        levels = np.where(observed, self._values, missing_level)
        self._codes = self._packing.codes(levels)
        self._level_values = np.zeros(self._packing.n_values)
        shape, rate = (np.array(model.hyperparameter(name)) for name in ("shape", "rate"))
        self._log_factorials = leaf_stats[:, 2 * d :].sum(axis=1)
        self._sums = np.zeros((n_slots, d), dtype=np.int64)
        self._sizes = np.zeros((n_slots, d), dtype=np.int64)
        self._slot_factorials = np.zeros(n_slots)
        self._focus_sums = np.zeros(d, dtype=np.int64)
        self._focus_sizes = np.zeros(d, dtype=np.int64)
        self._prior = _poisson_prior(shape, rate)
        self._log_count = np.log(np.maximum(np.arange(int(sizes.max(initial=0)) + 2), 1))
        self._store = (
            self._values,
            self._log_factorials,
            self._sums,
            self._sizes,
            self._slot_factorials,
        )
        self._focus_factorials = 0.0
        self._focus_log_f = 0.0

    def focus(self, member: Member) -> None:
        self._focus_factorials, self._focus_log_f = _focus_poisson(
            *member,
            *self._store,
            self._focus_sums,
            self._focus_sizes,
            *self._prior,
            *self._packing.layout,
            self._level_values,
            self._log_count,
            not self._complete,
        )

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        add_looked_up(self._codes, self._packing.table, self._focus_log_f, start, stop, out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        _add_poisson_unions(
            self._focus_sums,
            self._focus_sizes,
            self._focus_factorials,
            self._sums,
            self._sizes,
            self._slot_factorials,
            slots,
            *self._prior,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        return float(_merge_poisson(*left, *right, slot, *self._store, *self._prior))

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._codes = self._codes[keep]


def rising_table(shape: FloatArray, rate: FloatArray, length: int = TABLE_LENGTH) -> FloatArray:
    """Return ``lgamma(shape + count) - lgamma(shape) - count log(rate)``, a row a column."""
    counts = np.log(rate)[:, None] * np.arange(length)
    return log_gamma_table(shape, length) - gammaln(shape)[:, None] - counts


def _poisson_prior(shape: FloatArray, rate: FloatArray) -> PoissonPrior:
    """Return what the kernels need of the prior.

    A column's term is ``rising(total) - (shape + total) log(1 + size / rate)``: both are small
    where there is little to say, and nothing large cancels in columns of rare events, whose rates
    are in the thousands.
    """
    length = table_length(len(shape))
    growth = np.log1p(np.arange(length) / rate[:, None])
    return shape, rate, gammaln(shape), np.log(rate), rising_table(shape, rate, length), growth


@copied_inside
def _rising_at(rising, j, shape, log_gamma, log_prior_rate, total):
    if total < rising.shape[1]:
        return rising[j, total]
    return stirling(shape[j] + total) - log_gamma[j] - total * log_prior_rate[j]


@copied_inside
def _growth_at(growth, j, rate, size):
    if size < growth.shape[1]:
        return growth[j, size]
    return math.log1p(size / rate[j])


@compiled_inside
def _add_poisson(
    is_leaf, index, values, factorials, sums, sizes, slot_factorials, sum_out, size_out
):
    """Add a cluster's statistics to the given rows; return its log factorials."""
    if is_leaf:
        for j in range(values.shape[1]):
            if values[index, j] >= 0:
                sum_out[j] += values[index, j]
                size_out[j] += 1
        return factorials[index]
    for j in range(sums.shape[1]):
        sum_out[j] += sums[index, j]
        size_out[j] += sizes[index, j]
    return slot_factorials[index]


@compiled_inside
def _poisson_log_f(sums, sizes, factorials, shape, rate, log_gamma, log_prior_rate, rising, growth):
    out = -factorials
    for j in range(len(sums)):
        out += _rising_at(rising, j, shape, log_gamma, log_prior_rate, sums[j])
        out -= (shape[j] + sums[j]) * _growth_at(growth, j, rate, sizes[j])
    return out


@compiled
def _merge_poisson(
    left_is_leaf,
    left,
    right_is_leaf,
    right,
    slot,
    values,
    factorials,
    sums,
    sizes,
    slot_factorials,
    shape,
    rate,
    log_gamma,
    log_prior_rate,
    rising,
    growth,
):
    for j in range(sums.shape[1]):
        sums[slot, j] = 0
        sizes[slot, j] = 0
    total = 0.0
    for side in range(2):
        total += _add_poisson(
            left_is_leaf if side == 0 else right_is_leaf,
            left if side == 0 else right,
            values,
            factorials,
            sums,
            sizes,
            slot_factorials,
            sums[slot],
            sizes[slot],
        )
    slot_factorials[slot] = total
    return _poisson_log_f(
        sums[slot], sizes[slot], total, shape, rate, log_gamma, log_prior_rate, rising, growth
    )


@compiled
def _focus_poisson(
    is_leaf,
    index,
    values,
    factorials,
    sums,
    sizes,
    slot_factorials,
    focus_sums,
    focus_sizes,
    shape,
    rate,
    log_gamma,
    log_prior_rate,
    rising,
    growth,
    value_start,
    group,
    stride,
    table,
    level_values,
    log_count,
    has_missing,
):
    """Load a cluster and tabulate its predictive log probability of every count."""
    for j in range(len(focus_sums)):
        focus_sums[j] = 0
        focus_sizes[j] = 0
    total = _add_poisson(
        is_leaf, index, values, factorials, sums, sizes, slot_factorials, focus_sums, focus_sizes
    )
    for j in range(len(shape)):
        posterior_shape = shape[j] + focus_sums[j]
        now = _growth_at(growth, j, rate, focus_sizes[j])
        following = _growth_at(growth, j, rate, focus_sizes[j] + 1)
        log_next = log_prior_rate[j] + following
        first, last = value_start[j], value_start[j + 1]
        if has_missing:
            last -= 1
            level_values[last] = 0.0
        value = posterior_shape * (now - following)
        level_values[first] = value
        # Γ(shape + x) / x! grows by (shape + x - 1) / x from count to count.
        for x in range(1, last - first):
            value += math.log(posterior_shape + x - 1) - log_next - log_count[x]
            level_values[first + x] = value
    fill_table(level_values, value_start, group, stride, table)
    log_f = _poisson_log_f(
        focus_sums, focus_sizes, total, shape, rate, log_gamma, log_prior_rate, rising, growth
    )
    return total, log_f


@compiled_fast
def _add_poisson_unions(
    focus_sums,
    focus_sizes,
    focus_factorials,
    sums,
    sizes,
    slot_factorials,
    slots,
    shape,
    rate,
    log_gamma,
    log_prior_rate,
    rising,
    growth,
    out,
):
    length = rising.shape[1]
    for p in range(len(slots)):
        slot = slots[p]
        value = -focus_factorials - slot_factorials[slot]
        largest = np.int64(0)
        for j in range(len(shape)):
            largest = max(largest, focus_sums[j] + sums[slot, j])
            largest = max(largest, focus_sizes[j] + sizes[slot, j])
        if largest < length:
            for j in range(len(shape)):
                total = np.uint64(focus_sums[j] + sums[slot, j])
                size = np.uint64(focus_sizes[j] + sizes[slot, j])
                value += rising[j, total] - (shape[j] + total) * growth[j, size]
        else:
            for j in range(len(shape)):
                total = focus_sums[j] + sums[slot, j]
                size = focus_sizes[j] + sizes[slot, j]
                value += _rising_at(rising, j, shape, log_gamma, log_prior_rate, total)
                value -= (shape[j] + total) * _growth_at(growth, j, rate, size)
        out[p] += value
