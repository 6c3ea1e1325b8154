"""Kernels for normal rows with a full covariance.

Items are turned by the inverse Cholesky factor of the prior scale, so that the prior scale is the
identity and every pivot of a posterior scale is at least one. A cluster meets single items through
the inverse factor of its own scale; two clusters need the determinant of their union's scale,
which is taken for several partners at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._kernels.compile import compiled, compiled_fast
from bhclust._kernels.diagonal import BLOCK, in_blocks, repacked
from bhclust._kernels.part import Member
from bhclust._kernels.vectorlog import vector_log
from bhclust._validation import FloatArray
from bhclust.models.gaussian import Gaussian

# Partners whose matrices are factorised side by side, one in each place of a vector register.
_LANES = 8
# Single items are taken in groups whose differences from the focus stay in the fastest cache.
_CACHE_NUMBERS = 2048
# Products are cut where their log could pass this: floats end at exp(709).
_LARGEST_LOG = 690.0

# Numbers known of the focus as a whole
_COUNT, _STRENGTH, _LOG_DETERMINANT = range(3)
# Numbers of the prior
_PRIOR_STRENGTH, _PRIOR_DOF = range(2)


class FullPart:
    """`Gaussian`, in coordinates in which the prior scale is the identity."""

    def __init__(self, model: Gaussian, leaf_stats: FloatArray, n_slots: int) -> None:
        mean = model.hyperparameter("mean") - np.asarray(model.origin)
        n, d = len(leaf_stats), len(mean)
        distance = leaf_stats[:, 1 : 1 + d]
        # Differences of items must keep their digits, wherever the origin is.
        centre = distance.mean(axis=0)
        factor = np.asarray(np.linalg.cholesky(model.hyperparameter("scale")))
        inverse = np.ascontiguousarray(np.linalg.inv(factor))
        self._leaves = np.empty((n, d))
        _turn(distance, centre, inverse, self._leaves)
        self._prior_mean = inverse @ (mean - centre)
        self._prior = np.array([float(model.hyperparameter("strength")), float(model.hyperparameter("dof"))])
        self._window = in_blocks(self._leaves)
        self._size_terms = _size_terms(self._prior, factor, n)
        self._counts = np.zeros(n_slots)
        self._means = np.zeros((n_slots, d))
        self._scatters = np.zeros((n_slots, d * (d + 1) // 2))
        self._known = np.zeros(3)
        self._mean = np.zeros(d)
        self._scale = np.zeros(d * (d + 1) // 2)
        # rows are filled up to a multiple of four with zeros
        self._inverse = np.zeros((d, -(-d // 4) * 4))
        self._focused_slot = -1
        # pivots of a union are below those of all items with the prior
        spread = np.square(np.abs(self._leaves - self._prior_mean)).max(axis=0, initial=0.0)
        largest = math.log1p(2.0 * n * float(spread.max(initial=0.0)))
        self._pivots_a_log = max(1, int(_LARGEST_LOG / max(largest, 1.0)))

    def focus(self, member: Member) -> None:
        if not member.is_leaf and member.number == self._focused_slot:
            return
        self._focused_slot = -1 if member.is_leaf else member.number
        if member.is_leaf:
            _focus_on_leaf(
                self._leaves[member.number],
                self._prior_mean,
                self._prior,
                self._known,
                self._mean,
                self._scale,
                self._inverse,
            )
        else:
            _focus_on_cluster(
                self._counts[member.number],
                self._means[member.number],
                self._scatters[member.number],
                self._prior_mean,
                self._prior,
                self._known,
                self._mean,
                self._scale,
                self._inverse,
            )

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        _add_predictive(
            self._window,
            start,
            stop,
            self._known,
            self._mean,
            self._inverse,
            self._prior,
            self._size_terms,
            out,
        )

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        _add_unions(
            self._counts,
            self._means,
            self._scatters,
            slots,
            self._known,
            self._mean,
            self._scale,
            self._prior,
            self._size_terms,
            self._pivots_a_log,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        a_slot = slot if left.is_leaf else left.number
        b_slot = slot if right.is_leaf else right.number
        _pool(
            self._counts,
            self._means,
            self._scatters,
            self._leaves,
            left.is_leaf,
            left.number,
            right.is_leaf,
            right.number,
            slot,
        )
        self._focused_slot = -1
        self.focus(Member(False, slot))
        count = self._known[_COUNT]
        power = (self._prior[_PRIOR_DOF] + count) / 2
        return float(self._size_terms[int(count)] - power * self._known[_LOG_DETERMINANT])

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = repacked(self._window, keep)


def _size_terms(prior: FloatArray, factor: FloatArray, n_leaves: int) -> FloatArray:
    """Return what counts 0 … n + 1 add to log f by themselves.

    A window holds items that are merged already, so one item may be counted twice.
    """
    d = len(factor)
    counts = np.arange(n_leaves + 2.0)
    strength, dof = prior
    out = 0.5 * d * np.log(strength / (strength + counts))
    out -= counts * (0.5 * d * math.log(math.pi) + np.log(np.diagonal(factor)).sum())
    for j in range(d):
        half = (dof - j) / 2
        out += gammaln(half + counts / 2) - gammaln(half)
    return np.asarray(out)


@compiled
def _turn(rows, centre, inverse, out):  # type: ignore[no-untyped-def]
    # Not a matrix product of the library: equal rows must stay equal to the last bit.
    d = len(centre)
    for i in range(len(rows)):
        for j in range(d):
            total = 0.0
            for k in range(j + 1):
                total += inverse[j, k] * (rows[i, k] - centre[k])
            out[i, j] = total


@compiled
def _pool(  # type: ignore[no-untyped-def]
    counts, means, scatters, leaves, left_is_leaf, left, right_is_leaf, right, slot
):
    """Write the union of two clusters into a slot, with the formulas of the model."""
    d = leaves.shape[1]
    count_a = 1.0 if left_is_leaf else counts[left]
    count_b = 1.0 if right_is_leaf else counts[right]
    mean_a = leaves[left] if left_is_leaf else means[left]
    mean_b = leaves[right] if right_is_leaf else means[right]
    total = count_a + count_b
    coupling = count_a * count_b / total
    into = scatters[slot]
    into[:] = 0.0
    if not left_is_leaf:
        into[:] = scatters[left]
    if not right_is_leaf:
        into += scatters[right]
    position = 0
    for i in range(d):
        gap = coupling * (mean_a[i] - mean_b[i])
        for j in range(i + 1):
            into[position] += gap * (mean_a[j] - mean_b[j])
            position += 1
        means[slot, i] = (count_a / total) * mean_a[i] + (count_b / total) * mean_b[i]
    counts[slot] = total


@compiled_fast
def _focus_on_cluster(  # type: ignore[no-untyped-def]
    count, average, scatter, prior_mean, prior, known, mean, scale, inverse
):
    """Write the posterior of a cluster and the inverse Cholesky factor of its scale."""
    d = len(mean)
    strength = prior[_PRIOR_STRENGTH] + count
    pull = prior[_PRIOR_STRENGTH] * count / strength
    lower = np.empty((d, d))
    position = 0
    for i in range(d):
        distance = average[i] - prior_mean[i]
        mean[i] = prior_mean[i] + count / strength * distance
        for j in range(i + 1):
            value = scatter[position] + pull * distance * (average[j] - prior_mean[j])
            if i == j:
                value += 1.0
            scale[position] = value
            lower[i, j] = value
            position += 1
    known[_COUNT] = count
    known[_STRENGTH] = strength
    known[_LOG_DETERMINANT] = _factorise(lower)
    _invert(lower, inverse)


@compiled_fast
def _factorise(lower):  # type: ignore[no-untyped-def]
    """Replace a lower triangle by its Cholesky factor; return the log determinant."""
    log_determinant = 0.0
    for i in range(len(lower)):
        row = lower[i, : i + 1]
        for j in range(i):
            other = lower[j, : j + 1]
            total = row[j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total * np.divide(1.0, other[j])
        total = row[i]
        for k in range(i):
            total -= row[k] * row[k]
        row[i] = math.sqrt(total)
        log_determinant += vector_log(total)
    return log_determinant


@compiled_fast
def _invert(lower, inverse):  # type: ignore[no-untyped-def]
    """Write the inverse of a lower triangle."""
    for i in range(len(lower)):
        row = inverse[i, : i + 1]
        row[:] = 0.0
        for k in range(i):
            factor = lower[i, k]
            other = inverse[k, : k + 1]
            for j in range(len(other)):
                row[j] -= factor * other[j]
        diagonal = np.divide(1.0, lower[i, i])
        for j in range(i):
            row[j] *= diagonal
        row[i] = diagonal


@compiled_fast
def _focus_on_leaf(  # type: ignore[no-untyped-def]
    leaf, prior_mean, prior, known, mean, scale, inverse
):
    """The same for a single item, whose scale is the identity and one outer product."""
    scatter = np.zeros(len(scale))
    _focus_on_cluster(1.0, leaf, scatter, prior_mean, prior, known, mean, scale, inverse)


@compiled_fast
def _add_predictive(  # type: ignore[no-untyped-def]
    window, start, stop, known, mean, inverse, prior, terms, out
):
    d = len(mean)
    width = min(BLOCK, max(16, _CACHE_NUMBERS // (8 * d) * 8))
    gaps = np.empty((inverse.shape[1], width))
    gaps[d:] = 0.0
    row = np.empty(width)
    square = np.empty(width)
    count = int(known[_COUNT])
    power = 0.5 * (prior[_PRIOR_DOF] + count + 1.0)
    base = terms[count + 1] - power * known[_LOG_DETERMINANT]
    widening = known[_STRENGTH] / (known[_STRENGTH] + 1.0)
    at = start
    while at < stop:
        low = at % BLOCK
        n = min(min(width, stop - at), BLOCK - low)
        block = window[at // BLOCK]
        for j in range(d):
            x = block[j, low : low + n]
            gap = gaps[j, :n]
            centre = mean[j]
            for p in range(n):
                gap[p] = x[p] - centre
        part = square[:n]
        part[:] = 0.0
        for i in range(d):
            _row_times(inverse[i], gaps, i, row[:n], part)
        sums = out[at - start : at - start + n]
        for p in range(n):
            sums[p] += base - power * vector_log(1.0 + widening * part[p])
        at += n


@compiled_fast
def _row_times(weights, gaps, i, row, square):  # type: ignore[no-untyped-def]
    """Add the squares of one entry of the turned gaps."""
    n = len(row)
    for k in range(0, i + 1, 4):
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        g0, g1, g2, g3 = gaps[k, :n], gaps[k + 1, :n], gaps[k + 2, :n], gaps[k + 3, :n]
        last = k + 4 > i
        if k == 0 and last:
            for p in range(n):
                value = w0 * g0[p] + w1 * g1[p] + w2 * g2[p] + w3 * g3[p]
                square[p] += value * value
        elif k == 0:
            for p in range(n):
                row[p] = w0 * g0[p] + w1 * g1[p] + w2 * g2[p] + w3 * g3[p]
        elif last:
            for p in range(n):
                value = row[p] + (w0 * g0[p] + w1 * g1[p] + w2 * g2[p] + w3 * g3[p])
                square[p] += value * value
        else:
            for p in range(n):
                row[p] += w0 * g0[p] + w1 * g1[p] + w2 * g2[p] + w3 * g3[p]


@compiled_fast
def _add_unions(  # type: ignore[no-untyped-def]
    counts, means, scatters, slots, known, mean, scale, prior, terms, pivots_a_log, out
):
    d = len(mean)
    work = np.empty((len(scale), _LANES))
    gap = np.empty((d, _LANES))
    pull = np.empty(_LANES)
    log_determinant = np.empty(_LANES)
    for low in range(0, len(slots), _LANES):
        for lane in range(_LANES):
            slot = slots[min(low + lane, len(slots) - 1)]
            count = counts[slot]
            pull[lane] = known[_STRENGTH] * count / (known[_STRENGTH] + count)
            average = means[slot]
            for j in range(d):
                gap[j, lane] = average[j] - mean[j]
            scatter = scatters[slot]
            for r in range(len(scale)):
                work[r, lane] = scatter[r]
        position = 0
        for i in range(d):
            for j in range(i + 1):
                own = scale[position]
                for lane in range(_LANES):
                    work[position, lane] += own + pull[lane] * gap[i, lane] * gap[j, lane]
                position += 1
        _log_determinants(work, d, pivots_a_log, gap, log_determinant)
        for lane in range(min(_LANES, len(slots) - low)):
            count = known[_COUNT] + counts[slots[low + lane]]
            power = 0.5 * (prior[_PRIOR_DOF] + count)
            out[low + lane] += terms[int(count)] - power * log_determinant[lane]


@compiled_fast
def _log_determinants(work, d, pivots_a_log, column, out):  # type: ignore[no-untyped-def]
    """Write the log determinants of packed matrices side by side; they are overwritten."""
    product = np.ones(_LANES)
    factor = np.empty(_LANES)
    inverse = np.empty(_LANES)
    out[:] = 0.0
    for k in range(d):
        pivot = work[k * (k + 1) // 2 + k]
        for lane in range(_LANES):
            product[lane] *= pivot[lane]
            inverse[lane] = np.divide(1.0, pivot[lane])
        if (k + 1) % pivots_a_log == 0 or k == d - 1:
            for lane in range(_LANES):
                out[lane] += vector_log(product[lane])
                product[lane] = 1.0
        for i in range(k + 1, d):
            row = i * (i + 1) // 2
            for lane in range(_LANES):
                column[i, lane] = work[row + k, lane]
                factor[lane] = work[row + k, lane] * inverse[lane]
            for j in range(k + 1, i + 1):
                for lane in range(_LANES):
                    work[row + j, lane] -= factor[lane] * column[j, lane]
