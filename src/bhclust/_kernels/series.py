"""Kernels for curves at shared times.

In the coordinates of `TimeSeries.turned` the times of complete items are independent, noise has
variance one and a curve the variances of the model's spectrum. A single item then meets a cluster
through a weighted squared distance, and no logarithm is left in the loop over pairs. Items with
missing entries share no coordinates: each union is factorised.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled, compiled_fast, compiled_fast_inside
from bhclust._kernels.diagonal import BLOCK, in_blocks, repacked
from bhclust._kernels.part import Member, Part
from bhclust._kernels.vectorlog import vector_log
from bhclust._validation import FloatArray
from bhclust.models._columnwise import feature_blocks
from bhclust.models.time_series import TimeSeries

# Rows of what is known of the focus in each coordinate
_CENTRE, _WEIGHT, _VARIANCE = range(3)
# Numbers known of the focus as a whole
_COUNT, _DEVIATION, _FIT = range(3)


def series_part(model: TimeSeries, leaf_stats: FloatArray, n_slots: int) -> Part:
    """Return the kernels for complete items, or those for items with missing entries."""
    if (model.complete_items(leaf_stats) == 1).all():
        return CompleteSeriesPart(model, leaf_stats, n_slots)
    return IncompleteSeriesPart(model, leaf_stats, n_slots)


class CompleteSeriesPart(Part):
    """`TimeSeries` without missing entries; clusters are kept in the turned coordinates.

    With n items of turned mean z and deviations S, and the variances λ of a curve,
    ``log f = terms[n] - (Σ n z² / (1 + n λ) + S) / 2``.
    """

    def __init__(self, model: TimeSeries, leaf_stats: FloatArray, n_slots: int) -> None:
        count, _, deviation = feature_blocks(leaf_stats, 3)
        noise = float(model.hyperparameter("noise"))
        self._leaves = model.turned(leaf_stats)
        n, n_times = self._leaves.shape
        self._window = in_blocks(self._leaves)
        self._leaf_deviations = np.asarray(deviation.sum(axis=1) / noise**2)
        self._window_deviations = self._leaf_deviations
        self._curve = model.spectrum.values
        n_entries = float(count[0].sum()) if n else 0.0
        self._terms = _size_terms(self._curve, n_entries, noise, n)
        self._counts = np.zeros(n_slots)
        self._means = np.zeros((n_slots, n_times))
        self._deviations = np.zeros(n_slots)
        self._focus = np.zeros((3, n_times))
        self._known = np.zeros(3)

    def focus(self, member: Member) -> None:
        number = member.number
        if member.is_leaf:
            mean, count, deviation = self._leaves[number], 1.0, self._leaf_deviations[number]
        else:
            mean, count = self._means[number], self._counts[number]
            deviation = self._deviations[number]
        _settle(mean, count, deviation, self._curve, self._focus, self._known)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        _add_distances(
            self._window,
            self._window_deviations,
            start,
            stop,
            self._focus,
            self._known,
            self._terms,
            out,
        )

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        _add_unions(
            self._counts,
            self._means,
            self._deviations,
            slots,
            self._focus,
            self._known,
            self._terms,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        _pool(
            self._counts,
            self._means,
            self._deviations,
            self._leaves,
            self._leaf_deviations,
            left.is_leaf,
            left.number,
            right.is_leaf,
            right.number,
            slot,
        )
        self.focus(Member(False, slot))
        known = self._known
        return float(self._terms[int(known[_COUNT])] - 0.5 * (known[_FIT] + known[_DEVIATION]))

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = repacked(self._window, keep)
        self._window_deviations = self._window_deviations[keep]


def _size_terms(curve: FloatArray, n_entries: float, noise: float, n_leaves: int) -> FloatArray:
    """Return what counts 0 … n + 1 add to log f by themselves.

    A window holds items that are merged already, so one item may be counted twice.
    """
    counts = np.arange(n_leaves + 2.0)
    out = -0.5 * counts * n_entries * (math.log(2 * math.pi) + 2 * math.log(noise))
    for variance in curve:
        out -= 0.5 * np.log1p(counts * variance)
    return np.asarray(out)


@compiled_fast
def _settle(mean, count, deviation, curve, focus, known):  # type: ignore[no-untyped-def]
    """Write the posterior of the focus's curve and the weights of single items' distances."""
    fit = 0.0
    for k in range(len(mean)):
        shrink = np.divide(1.0, 1.0 + count * curve[k])
        variance = curve[k] * shrink
        focus[_CENTRE, k] = count * variance * mean[k]
        focus[_VARIANCE, k] = variance
        focus[_WEIGHT, k] = np.divide(1.0, 1.0 + variance)
        fit += count * shrink * mean[k] * mean[k]
    known[_COUNT] = count
    known[_DEVIATION] = deviation
    known[_FIT] = fit


@compiled_fast
def _add_distances(  # type: ignore[no-untyped-def]
    window, deviations, start, stop, focus, known, terms, out
):
    """Add log f of the focus with single items."""
    n_times = focus.shape[1]
    distance = np.empty(BLOCK)
    base = terms[int(known[_COUNT]) + 1] - 0.5 * (known[_FIT] + known[_DEVIATION])
    for b in range(start // BLOCK, (stop + BLOCK - 1) // BLOCK):
        low = max(start - b * BLOCK, 0)
        high = min(stop - b * BLOCK, BLOCK)
        rows = window[b]
        part = distance[: high - low]
        for p in range(high - low):
            part[p] = 0.0
        for k in range(0, n_times - 3, 4):
            _add_four_times(rows, low, focus, k, part)
        for k in range(n_times // 4 * 4, n_times):
            x, centre, weight = rows[k, low:high], focus[_CENTRE, k], focus[_WEIGHT, k]
            for p in range(high - low):
                gap = x[p] - centre
                part[p] += weight * (gap * gap)
        first = b * BLOCK + low
        own = deviations[first : first + high - low]
        sums = out[first - start : first - start + high - low]
        for p in range(high - low):
            sums[p] += base - 0.5 * (part[p] + own[p])


@compiled_fast_inside
def _add_four_times(rows, low, focus, k, part):  # type: ignore[no-untyped-def]
    n = len(part)
    x0, x1 = rows[k, low : low + n], rows[k + 1, low : low + n]
    x2, x3 = rows[k + 2, low : low + n], rows[k + 3, low : low + n]
    centre, weight = focus[_CENTRE], focus[_WEIGHT]
    m0, m1, m2, m3 = centre[k], centre[k + 1], centre[k + 2], centre[k + 3]
    w0, w1, w2, w3 = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
    for p in range(n):
        g0, g1, g2, g3 = x0[p] - m0, x1[p] - m1, x2[p] - m2, x3[p] - m3
        part[p] += (w0 * (g0 * g0) + w1 * (g1 * g1)) + (w2 * (g2 * g2) + w3 * (g3 * g3))


@compiled_fast
def _add_unions(  # type: ignore[no-untyped-def]
    counts, means, deviations, slots, focus, known, terms, out
):
    """Add log f of the focus with merged clusters."""
    centre, variance = focus[_CENTRE], focus[_VARIANCE]
    for p in range(len(slots)):
        count, mean = counts[slots[p]], means[slots[p]]
        distance = 0.0
        for k in range(len(centre)):
            gap = mean[k] - centre[k]
            distance += np.divide(count * (gap * gap), 1.0 + count * variance[k])
        total = known[_FIT] + known[_DEVIATION] + deviations[slots[p]] + distance
        out[p] += terms[int(known[_COUNT] + count)] - 0.5 * total


@compiled
def _pool(  # type: ignore[no-untyped-def]
    counts, means, deviations, leaves, leaf_deviations,
    left_is_leaf, left, right_is_leaf, right, slot,
):  # fmt: skip
    """Write the union of two clusters into a slot, with the formulas of the model."""
    count_a = 1.0 if left_is_leaf else counts[left]
    count_b = 1.0 if right_is_leaf else counts[right]
    mean_a = leaves[left] if left_is_leaf else means[left]
    mean_b = leaves[right] if right_is_leaf else means[right]
    deviation_a = leaf_deviations[left] if left_is_leaf else deviations[left]
    deviation_b = leaf_deviations[right] if right_is_leaf else deviations[right]
    total = count_a + count_b
    between = 0.0
    for k in range(leaves.shape[1]):
        gap = mean_a[k] - mean_b[k]
        between += gap * gap
        means[slot, k] = (count_a / total) * mean_a[k] + (count_b / total) * mean_b[k]
    counts[slot] = total
    deviations[slot] = deviation_a + deviation_b + count_a * count_b / total * between


class IncompleteSeriesPart(Part):
    """`TimeSeries` with missing entries; leaves and then slots are rows of the same arrays.

    Everything is in units of the noise.
    """

    def __init__(self, model: TimeSeries, leaf_stats: FloatArray, n_slots: int) -> None:
        count, mean, deviation = feature_blocks(leaf_stats, 3)
        noise = float(model.hyperparameter("noise"))
        self._n_leaves, n_times = count.shape
        n_rows = self._n_leaves + n_slots
        self._counts = np.zeros((n_rows, n_times))
        self._means = np.zeros((n_rows, n_times))
        self._deviations = np.zeros(n_rows)
        self._counts[: self._n_leaves] = count
        self._means[: self._n_leaves] = mean / noise
        self._deviations[: self._n_leaves] = deviation.sum(axis=1) / noise**2
        self._covariance = model.noise_covariance
        self._log_noise = math.log(2 * math.pi) + 2 * math.log(noise)
        self._window = np.arange(self._n_leaves)
        self._focused = 0

    def _row(self, member: Member) -> int:
        return member.number if member.is_leaf else self._n_leaves + member.number

    def focus(self, member: Member) -> None:
        self._focused = self._row(member)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        self._add(self._window[start:stop], out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        self._add(self._n_leaves + slots, out)

    def _add(self, rows: npt.NDArray[np.int64], out: FloatArray) -> None:
        _add_factorised(
            self._counts,
            self._means,
            self._deviations,
            self._focused,
            rows,
            self._covariance,
            self._log_noise,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        into = self._n_leaves + slot
        self._deviations[into] = union_moments(
            self._counts,
            self._means,
            self._deviations,
            self._row(left),
            self._row(right),
            self._counts[into],
            self._means[into],
        )
        factor = np.empty_like(self._covariance)
        weighted = np.empty(len(factor))
        return float(
            _log_f(
                self._counts[into],
                self._means[into],
                self._deviations[into],
                self._covariance,
                self._log_noise,
                factor,
                weighted,
            )
        )

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = self._window[keep]


@compiled
def union_moments(counts, means, deviations, a, b, count, mean):  # type: ignore[no-untyped-def]
    """Write count and mean of the union of two rows; return its deviations."""
    deviation = deviations[a] + deviations[b]
    for t in range(len(count)):
        n_a, n_b = counts[a, t], counts[b, t]
        total = n_a + n_b if n_a + n_b > 0 else 1.0
        gap = means[a, t] - means[b, t]
        count[t] = n_a + n_b
        mean[t] = (n_a / total) * means[a, t] + (n_b / total) * means[b, t]
        deviation += n_a * n_b / total * gap * gap
    return deviation


@compiled_fast
def _log_f(  # type: ignore[no-untyped-def]
    count, mean, deviation, covariance, log_noise, factor, weighted
):
    """Return log f by a Cholesky factorisation; ``factor`` and ``weighted`` are work space."""
    n_times = len(count)
    n_entries = 0.0
    log_determinant = 0.0
    square = deviation
    for i in range(n_times):
        n_entries += count[i]
        weighted[i] = math.sqrt(count[i])
        row = factor[i, : i + 1]
        for j in range(i):
            other = factor[j, : j + 1]
            total = weighted[i] * weighted[j] * covariance[i, j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total * other[j]
        total = 1.0 + count[i] * covariance[i, i]
        for k in range(i):
            total -= row[k] * row[k]
        log_determinant += vector_log(total)
        row[i] = np.divide(1.0, math.sqrt(total))  # inverse pivots save divisions
    for i in range(n_times):
        total = weighted[i] * mean[i]
        for k in range(i):
            total -= factor[i, k] * weighted[k]
        # From here on the entry holds the whitened value, which later rows subtract.
        weighted[i] = total * factor[i, i]
        square += weighted[i] * weighted[i]
    return -0.5 * (n_entries * log_noise + log_determinant + square)


@compiled
def _add_factorised(  # type: ignore[no-untyped-def]
    counts, means, deviations, focused, rows, covariance, log_noise, out
):
    """Add log f of the focus with each of some rows."""
    n_times = len(covariance)
    count, mean = np.empty(n_times), np.empty(n_times)
    factor, weighted = np.empty((n_times, n_times)), np.empty(n_times)
    for p in range(len(rows)):
        deviation = union_moments(counts, means, deviations, focused, rows[p], count, mean)
        out[p] += _log_f(count, mean, deviation, covariance, log_noise, factor, weighted)
