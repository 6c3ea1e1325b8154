"""Kernels for curves at shared times of which a cluster may have one outlier.

Clusters are kept as in `IncompleteSeriesPart`, and their members as chains of leaves. A union needs
one inverse matrix of the distinct times and one exponential for each of its measurements.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled, compiled_fast
from bhclust._kernels.part import Member, Part
from bhclust._kernels.series import union_moments
from bhclust._kernels.vectorlog import vector_log
from bhclust._validation import FloatArray
from bhclust.models._columnwise import feature_blocks
from bhclust.models.robust_series import RobustTimeSeries, maximised_weights


class RobustSeriesPart(Part):
    """`RobustTimeSeries`; leaves and then slots are rows of the same arrays.

    Everything is in units of the noise.
    """

    def __init__(self, model: RobustTimeSeries, leaf_stats: FloatArray, n_slots: int) -> None:
        leaves = model.leaf_entries(leaf_stats)
        noise = float(model.hyperparameter("noise"))
        count, mean, deviation = feature_blocks(leaves.moments, 3)
        self._n_leaves, n_times = count.shape
        n_rows = self._n_leaves + n_slots
        self._counts = np.zeros((n_rows, n_times))
        self._means = np.zeros((n_rows, n_times))
        self._deviations = np.zeros(n_rows)
        self._counts[: self._n_leaves] = count
        self._means[: self._n_leaves] = mean / noise
        self._deviations[: self._n_leaves] = deviation.sum(axis=1) / noise**2
        self._values = np.ascontiguousarray(leaves.value / noise)
        self._inside = leaves.inside
        self._position = leaves.position.astype(np.int64)
        # members of a row: from its head along ``next`` to its tail
        self._head = np.arange(n_rows)
        self._tail = np.arange(n_rows)
        self._next = np.full(self._n_leaves, -1)
        self._covariance = model.noise_covariance
        self._log_noise = math.log(2 * math.pi) + 2 * math.log(noise)
        # The density of an outlier, in units of the noise, over the least that p(y_i | …) has.
        self._log_uniform = 0.5 * self._log_noise - math.log(leaves.range_width)
        self._reach, self._odds = leaves.n_entries, leaves.odds
        self._window = np.arange(self._n_leaves)
        self._focused = 0

    def _row(self, member: Member) -> int:
        return member.number if member.is_leaf else self._n_leaves + member.number

    def focus(self, member: Member) -> None:
        self._focused = self._row(member)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        self._add(self._focused, self._window[start:stop], out)

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        self._add(self._focused, self._n_leaves + slots, out)

    def _add(self, focused: int, rows: npt.NDArray[np.int64], out: FloatArray) -> None:
        _add_robust(
            self._counts,
            self._means,
            self._deviations,
            focused,
            rows,
            (self._head, self._tail, self._next),
            (self._values, self._inside, self._position),
            self._covariance,
            self._log_noise,
            self._log_uniform,
            self._reach,
            self._odds,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        a, b, into = self._row(left), self._row(right), self._n_leaves + slot
        log_f = np.zeros(1)
        self._add(a, np.array([b]), log_f)
        self._deviations[into] = union_moments(
            self._counts,
            self._means,
            self._deviations,
            a,
            b,
            self._counts[into],
            self._means[into],
        )
        self._next[self._tail[a]] = self._head[b]
        self._head[into], self._tail[into] = self._head[a], self._tail[b]
        return float(log_f[0])

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = self._window[keep]


@compiled_fast
def _invert(count, mean, covariance, factor, inverse, shrunk):  # type: ignore[no-untyped-def]
    """Write ``diag(B⁻¹)`` and ``B⁻¹ W mean`` for ``B = 1 + W K W``; return log |B| and the square.

    ``factor`` is work space for the Cholesky factor, and then for its inverse.
    """
    n_times = len(count)
    log_determinant = 0.0
    for i in range(n_times):
        root = math.sqrt(count[i])
        row = factor[i, : i + 1]
        for j in range(i):
            other = factor[j, : j + 1]
            total = root * math.sqrt(count[j]) * covariance[i, j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total * other[j]
        total = 1.0 + count[i] * covariance[i, i]
        for k in range(i):
            total -= row[k] * row[k]
        log_determinant += vector_log(total)
        row[i] = np.divide(1.0, math.sqrt(total))
    # The inverse factor, row by row in place: earlier rows are inverted already.
    for i in range(n_times):
        row = factor[i, : i + 1]
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += row[k] * factor[k, j]
            row[j] = -total * row[i]
    for i in range(n_times):
        inverse[i] = 0.0
        shrunk[i] = 0.0
    square = 0.0
    for i in range(n_times):
        row = factor[i, : i + 1]
        whitened = 0.0
        for k in range(i + 1):
            whitened += row[k] * math.sqrt(count[k]) * mean[k]
            inverse[k] += row[k] * row[k]
        for k in range(i + 1):
            shrunk[k] += row[k] * whitened
        square += whitened * whitened
    return log_determinant, square


@compiled
def _exponents(  # type: ignore[no-untyped-def]
    row, chains, entries, shift, narrow, base, exponents, n
):
    """Write ``log u / p(y_i | the others)`` of the members of a row from place n on."""
    head, tail, following = chains
    values, inside, position = entries
    leaf = head[row]
    while True:
        for j in range(values.shape[1]):
            value = values[leaf, j]
            if not math.isnan(value):
                t = position[j]
                gap = value - shift[t]
                exponent = base[t] + narrow[t] * gap * gap
                exponents[n] = exponent if inside[leaf, j] else -math.inf
                n += 1
        if leaf == tail[row]:
            return n
        leaf = following[leaf]


@compiled
def _log_gain(exponents, n, reach, odds):  # type: ignore[no-untyped-def]
    """Return the log of what an outlier adds to the density of n measurements."""
    if n == 0:
        return 0.0
    largest = -math.inf
    for i in range(n):
        largest = max(largest, exponents[i])
    if largest == -math.inf:
        log_ratio = -math.inf
    else:
        total = 0.0
        for i in range(n):
            total += math.exp(exponents[i] - largest)
        log_ratio = largest + math.log(total)
    if odds > 0:
        at_least = max(float(n), reach)
        none = math.log((at_least + (at_least - n) * odds) / (at_least * (1 + odds)))
        each = math.log(odds / (1 + odds) / at_least) + log_ratio
    else:
        none, each = _maximised(float(n), log_ratio)
        each += log_ratio
    high, low = max(none, each), min(none, each)
    return high + math.log1p(math.exp(low - high))


_maximised = compiled(maximised_weights)


@compiled
def _add_robust(  # type: ignore[no-untyped-def]
    counts, means, deviations, focused, rows, chains, entries,
    covariance, log_noise, log_uniform, reach, odds, out,
):  # fmt: skip
    """Add log f of the focus with each of some rows."""
    n_times = len(covariance)
    count, mean = np.empty(n_times), np.empty(n_times)
    factor = np.empty((n_times, n_times))
    inverse, shrunk = np.empty(n_times), np.empty(n_times)
    shift, narrow, base = np.empty(n_times), np.empty(n_times), np.empty(n_times)
    # The window holds leaves that are merged already, so some may be counted twice.
    exponents = np.empty(2 * entries[0].size)
    for p in range(len(rows)):
        deviation = union_moments(counts, means, deviations, focused, rows[p], count, mean)
        log_determinant, square = _invert(count, mean, covariance, factor, inverse, shrunk)
        n_entries = 0.0
        for t in range(n_times):
            n_entries += count[t]
            seen = max(count[t], 1.0)
            kept = (seen - 1 + inverse[t]) / seen
            shift[t] = mean[t] - shrunk[t] / math.sqrt(seen)
            narrow[t] = 0.5 / kept
            base[t] = log_uniform - 0.5 * math.log(kept)
        n = _exponents(focused, chains, entries, shift, narrow, base, exponents, 0)
        n = _exponents(rows[p], chains, entries, shift, narrow, base, exponents, n)
        log_c1 = -0.5 * (n_entries * log_noise + log_determinant + square + deviation)
        out[p] += log_c1 + _log_gain(exponents, n, reach, odds)
