"""Kernels for normal rows with a full covariance.

Items are turned by the inverse Cholesky factor of the prior scale, so that the prior scale is the
identity and every pivot of a posterior scale is at least one. A cluster meets single items through
the inverse factor of its own scale. Two clusters need the determinant of their union's scale. A
partner of few items adds as many outer products to the focus's scale, and the determinant lemma
leaves a matrix of that size; larger partners take the whole scale. Both are done for several
partners at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._kernels.compile import compiled, compiled_fast, compiled_fast_inside
from bhclust._kernels.diagonal import BLOCK, in_blocks, repacked
from bhclust._kernels.lanes import LANES, TILE, finish_column, subtract_tile, take_pivot
from bhclust._kernels.part import Member, Part
from bhclust._kernels.vectorlog import vector_log
from bhclust._validation import FloatArray
from bhclust.models.gaussian import Gaussian

# Single items are taken in groups whose differences from the focus stay in the fastest cache.
_CACHE_NUMBERS = 2048
# Above this an item's own distance from the prior mean costs digits in the formula for two items.
_LARGEST_STRETCH = 1e3
# Partners of so many items, or of a quarter of the columns, go by the determinant lemma, in batches
# of about so many of their columns.
_MOST_ITEMS = 16
_BATCH = 16
# Products are cut where their log could pass this: floats end at exp(709).
_LARGEST_LOG = 690.0

# Numbers known of the focus as a whole
_COUNT, _STRENGTH, _LOG_DETERMINANT, _STRETCH, _SHRINKING = range(5)
# Numbers of the prior
_PRIOR_STRENGTH, _PRIOR_DOF = range(2)


class FullPart(Part):
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
        self._prior = np.array(
            [float(model.hyperparameter("strength")), float(model.hyperparameter("dof"))]
        )
        self._window = in_blocks(self._leaves)
        self._size_terms = _size_terms(self._prior, factor, n)
        self._counts = np.zeros(n_slots)
        self._means = np.zeros((n_slots, d))
        self._scatters = np.zeros((n_slots, d * (d + 1) // 2))
        self._most_items = min(_MOST_ITEMS, d // 4)
        # The scatter of a cluster of few items as outer products, one less than items
        self._products = np.zeros((n_slots, max(self._most_items - 1, 0), d))
        self._known = np.zeros(5)
        self._mean = np.zeros(d)
        self._scale = np.zeros(d * (d + 1) // 2)
        self._inverse = np.zeros((d, d))
        self._direction = np.zeros(d)
        self._focused_slot = -1
        self._by_rank_one = False
        self._has_inverse = False
        # pivots of a union are below those of all items with the prior
        spread = np.square(np.abs(self._leaves - self._prior_mean)).max(axis=0, initial=0.0)
        largest = math.log1p(2.0 * n * float(spread.max(initial=0.0)))
        self._pivots_a_log = max(1, int(_LARGEST_LOG / max(largest, 1.0)))

    def focus(self, member: Member) -> None:
        if not member.is_leaf and member.number == self._focused_slot:
            return
        self._focused_slot = -1 if member.is_leaf else member.number
        posterior = (self._known, self._mean, self._scale)
        if member.is_leaf:
            leaf = self._leaves[member.number]
            _focus_on_leaf(leaf, self._prior_mean, self._prior, *posterior, self._direction)
        else:
            _focus_on_cluster(
                self._counts,
                self._means,
                self._scatters,
                member.number,
                self._prior_mean,
                self._prior,
                *posterior,
                self._inverse,
            )
        self._by_rank_one = member.is_leaf and self._known[_STRETCH] < _LARGEST_STRETCH
        self._has_inverse = not member.is_leaf
        if member.is_leaf and not self._by_rank_one:
            self._invert_factor()

    def _invert_factor(self) -> None:
        if not self._has_inverse:
            _factorise_scale(self._scale, self._inverse)
            self._has_inverse = True

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        add = _add_pairs if self._by_rank_one else _add_predictive
        add(
            self._window,
            start,
            stop,
            self._known,
            self._mean,
            self._direction if self._by_rank_one else self._inverse,
            self._prior,
            self._size_terms,
            out,
        )

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        if not self._has_inverse and self._counts[slots].min(initial=np.inf) <= self._most_items:
            self._invert_factor()
        _add_unions(
            self._counts,
            self._means,
            self._scatters,
            self._products,
            slots,
            self._known,
            self._mean,
            self._scale,
            self._inverse,
            self._prior,
            self._size_terms,
            self._pivots_a_log,
            self._most_items,
            out,
        )

    def merge(self, left: Member, right: Member, slot: int) -> float:
        _pool(
            self._counts,
            self._means,
            self._scatters,
            self._products,
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
    counts, means, scatters, products, leaves, left_is_leaf, left, right_is_leaf, right, slot
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
    for r in range(len(into)):
        scatter_a = 0.0 if left_is_leaf else scatters[left, r]
        scatter_b = 0.0 if right_is_leaf else scatters[right, r]
        into[r] = scatter_a + scatter_b
    position = 0
    for i in range(d):
        gap = coupling * (mean_a[i] - mean_b[i])
        for j in range(i + 1):
            into[position] += gap * (mean_a[j] - mean_b[j])
            position += 1
        means[slot, i] = (count_a / total) * mean_a[i] + (count_b / total) * mean_b[i]
    counts[slot] = total
    n_left, n_right = int(count_a) - 1, int(count_b) - 1
    if n_left + n_right >= products.shape[1]:
        return
    for i in range(d):
        for r in range(n_left):
            products[slot, r, i] = products[left, r, i]
        for r in range(n_right):
            products[slot, n_left + r, i] = products[right, r, i]
        products[slot, n_left + n_right, i] = math.sqrt(coupling) * (mean_a[i] - mean_b[i])


@compiled_fast
def _focus_on_cluster(  # type: ignore[no-untyped-def]
    counts, means, scatters, slot, prior_mean, prior, known, mean, scale, inverse
):
    """Write the posterior of a cluster and the inverse Cholesky factor of its scale."""
    count, average, scatter = counts[slot], means[slot], scatters[slot]
    strength = prior[_PRIOR_STRENGTH] + count
    pull = prior[_PRIOR_STRENGTH] * count / strength
    position = 0
    for i in range(len(mean)):
        distance = average[i] - prior_mean[i]
        mean[i] = prior_mean[i] + count / strength * distance
        for j in range(i + 1):
            pulled = pull * distance * (average[j] - prior_mean[j])
            scale[position] = scatter[position] + pulled
            position += 1
        scale[position - 1] += 1.0
    known[_COUNT] = count
    known[_STRENGTH] = strength
    known[_LOG_DETERMINANT] = _factorise_scale(scale, inverse)


@compiled_fast
def _factorise_scale(scale, inverse):  # type: ignore[no-untyped-def]
    """Write the inverse Cholesky factor of a packed matrix; return the log determinant."""
    d = len(inverse)
    lower = np.empty((d, d))
    position = 0
    for i in range(d):
        for j in range(i + 1):
            lower[i, j] = scale[position + j]
        position += i + 1
    log_determinant = _factorise(lower)
    _invert(lower, inverse)
    return log_determinant


@compiled_fast_inside
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


@compiled_fast_inside
def _invert(lower, inverse):  # type: ignore[no-untyped-def]
    """Write the inverse of a lower triangle."""
    for i in range(len(lower)):
        row = inverse[i, : i + 1]
        for j in range(i + 1):
            row[j] = 0.0
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
    leaf, prior_mean, prior, known, mean, scale, direction
):
    """Write the posterior of an item, whose scale is the identity and one outer product."""
    strength = prior[_PRIOR_STRENGTH] + 1.0
    pull = prior[_PRIOR_STRENGTH] / strength
    position = 0
    stretch = 0.0
    for i in range(len(mean)):
        distance = leaf[i] - prior_mean[i]
        direction[i] = distance
        stretch += pull * distance * distance
        mean[i] = prior_mean[i] + distance / strength
        for j in range(i + 1):
            scale[position] = pull * distance * direction[j]
            position += 1
        scale[position - 1] += 1.0
    known[_COUNT] = 1.0
    known[_STRENGTH] = strength
    known[_LOG_DETERMINANT] = math.log1p(stretch)
    known[_STRETCH] = stretch
    known[_SHRINKING] = pull / (1.0 + stretch)


@compiled_fast
def _add_pairs(  # type: ignore[no-untyped-def]
    window, start, stop, known, mean, direction, prior, terms, out
):
    """Add log f of an item with other items: the focus's inverse scale has rank one."""
    d = len(mean)
    square = np.empty(BLOCK)
    along = np.empty(BLOCK)
    power = 0.5 * (prior[_PRIOR_DOF] + 2.0)
    base = terms[2] - power * known[_LOG_DETERMINANT]
    widening = known[_STRENGTH] / (known[_STRENGTH] + 1.0)
    shrinking = known[_SHRINKING]
    for b in range(start // BLOCK, (stop + BLOCK - 1) // BLOCK):
        low = max(start - b * BLOCK, 0)
        high = min(stop - b * BLOCK, BLOCK)
        rows = window[b]
        squares, alongs = square[: high - low], along[: high - low]
        for p in range(high - low):
            squares[p] = 0.0
            alongs[p] = 0.0
        for j in range(0, d - 3, 4):
            _add_four_columns(rows, low, mean, direction, j, squares, alongs)
        for j in range(d // 4 * 4, d):
            x, m, u = rows[j, low:high], mean[j], direction[j]
            for p in range(high - low):
                gap = x[p] - m
                squares[p] += gap * gap
                alongs[p] += u * gap
        first = b * BLOCK + low - start
        sums = out[first : first + high - low]
        for p in range(high - low):
            q = squares[p] - shrinking * (alongs[p] * alongs[p])
            sums[p] += base - power * vector_log(1.0 + widening * q)


@compiled_fast_inside
def _add_four_columns(rows, low, mean, direction, j, squares, alongs):  # type: ignore[no-untyped-def]
    n = len(squares)
    x0, x1 = rows[j, low : low + n], rows[j + 1, low : low + n]
    x2, x3 = rows[j + 2, low : low + n], rows[j + 3, low : low + n]
    m0, m1, m2, m3 = mean[j], mean[j + 1], mean[j + 2], mean[j + 3]
    u0, u1, u2, u3 = direction[j], direction[j + 1], direction[j + 2], direction[j + 3]
    for p in range(n):
        g0, g1, g2, g3 = x0[p] - m0, x1[p] - m1, x2[p] - m2, x3[p] - m3
        squares[p] += (g0 * g0 + g1 * g1) + (g2 * g2 + g3 * g3)
        alongs[p] += (u0 * g0 + u1 * g1) + (u2 * g2 + u3 * g3)


@compiled_fast
def _add_predictive(  # type: ignore[no-untyped-def]
    window, start, stop, known, mean, inverse, prior, terms, out
):
    d = len(mean)
    width = min(BLOCK, max(16, _CACHE_NUMBERS // (8 * d) * 8))
    gaps = np.empty((d, width))
    rows = np.empty((4, width))
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
        for p in range(n):
            part[p] = 0.0
        for i in range(0, d - 3, 4):
            _add_four_rows(inverse, gaps, i, rows, part)
        for i in range(d // 4 * 4, d):
            _add_row(inverse[i], gaps, i, rows[0, :n], part)
        sums = out[at - start : at - start + n]
        for p in range(n):
            sums[p] += base - power * vector_log(1.0 + widening * part[p])
        at += n


@compiled_fast_inside
def _add_row(weights, gaps, i, row, square):  # type: ignore[no-untyped-def]
    """Add the squares of one entry of the turned gaps."""
    n = len(row)
    for p in range(n):
        row[p] = 0.0
    for k in range(i + 1):
        weight, gap = weights[k], gaps[k, :n]
        for p in range(n):
            row[p] += weight * gap[p]
    for p in range(n):
        square[p] += row[p] * row[p]


@compiled_fast_inside
def _add_four_rows(inverse, gaps, i, rows, square):  # type: ignore[no-untyped-def]
    """Add the squares of four entries of the turned gaps.

    Blocks of four rows and columns of the factor make four times as many products as accesses.
    """
    n = len(square)
    r0, r1, r2, r3 = rows[0, :n], rows[1, :n], rows[2, :n], rows[3, :n]
    for p in range(n):
        r0[p] = r1[p] = r2[p] = r3[p] = 0.0
    w0, w1, w2, w3 = inverse[i], inverse[i + 1], inverse[i + 2], inverse[i + 3]
    for k in range(0, i + 4, 4):
        g0, g1, g2, g3 = gaps[k, :n], gaps[k + 1, :n], gaps[k + 2, :n], gaps[k + 3, :n]
        a0, a1, a2, a3 = w0[k], w0[k + 1], w0[k + 2], w0[k + 3]
        b0, b1, b2, b3 = w1[k], w1[k + 1], w1[k + 2], w1[k + 3]
        c0, c1, c2, c3 = w2[k], w2[k + 1], w2[k + 2], w2[k + 3]
        e0, e1, e2, e3 = w3[k], w3[k + 1], w3[k + 2], w3[k + 3]
        for p in range(n):
            x0, x1, x2, x3 = g0[p], g1[p], g2[p], g3[p]
            r0[p] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            r1[p] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
            r2[p] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
            r3[p] += e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3
    for p in range(n):
        square[p] += (r0[p] * r0[p] + r1[p] * r1[p]) + (r2[p] * r2[p] + r3[p] * r3[p])


@compiled_fast
def _add_unions(  # type: ignore[no-untyped-def]
    counts,
    means,
    scatters,
    products,
    slots,
    known,
    mean,
    scale,
    factor,
    prior,
    terms,
    pivots_a_log,
    most_items,
    out,
):
    """Add log f of the focus with clusters, those of one size side by side.

    With U the outer products of a partner and of the gap between the means, and Λ the focus's
    scale, |Λ + U Uᵀ| = |Λ| |1 + Vᵀ V| where V is U turned by the inverse Cholesky factor of Λ.
    For clusters of more than so many items the matrix on the left is the smaller one.
    """
    d = len(mean)
    full_side = (d + TILE - 1) // TILE * TILE
    # One kind of matrix after the other is in here; above the diagonal it holds anything.
    matrix = np.empty((full_side * full_side, LANES))
    inverse = np.empty((full_side, LANES))
    log_determinant = np.empty(LANES)
    width = LANES * _BATCH
    columns, rows = np.empty((d, width)), np.zeros((4, width))
    square = np.empty(width)
    sums = np.empty((most_items * most_items, width))
    places, start = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    scatter_entries, product_entries = scatters.reshape(-1), products.reshape(-1)
    for n_items in range(2, max(most_items, 1) + 2):
        is_large = n_items > most_items  # the last round takes all larger clusters
        side = full_side if is_large else (n_items + TILE - 1) // TILE * TILE
        n_batch = LANES if is_large else _BATCH // n_items * LANES
        n_known = d if is_large else n_items
        n_found = 0
        for p in range(len(slots)):
            if counts[slots[p]] == n_items or (is_large and counts[slots[p]] > n_items):
                places[n_found] = p
                n_found += 1
            if n_found == 0 or (n_found < n_batch and p < len(slots) - 1):
                continue
            n_wide = (n_found + LANES - 1) // LANES * LANES
            for lane in range(n_wide):
                slot = slots[places[min(lane, n_found - 1)]]
                start[lane] = slot * (scatters.shape[1] if is_large else products.shape[1] * d)
                pull = known[_STRENGTH] * counts[slot] / (known[_STRENGTH] + counts[slot])
                for j in range(d):
                    columns[j, lane] = math.sqrt(pull) * (means[slot, j] - mean[j])
            if not is_large:
                for c in range(1, n_items):
                    for j in range(d):
                        at = (c - 1) * d + j
                        for lane in range(n_wide):
                            entry = product_entries[np.uint64(start[lane] + at)]
                            columns[j, c * n_wide + lane] = entry
                for i in range(n_items * n_items):
                    for lane in range(n_wide):
                        sums[i, lane] = 0.0
                for i in range(0, d - 3, 4):
                    _add_four_rows(factor, columns, i, rows, square[: n_items * n_wide])
                    _add_products(rows, n_items, n_wide, sums)
                for i in range(d // 4 * 4, d):
                    for lane in range(n_items * n_wide):
                        rows[1, lane] = rows[2, lane] = rows[3, lane] = 0.0
                    _add_row(factor[i], columns, i, rows[0, : n_items * n_wide], square)
                    _add_products(rows, n_items, n_wide, sums)
            for low in range(0, n_wide, LANES):
                position = 0
                for i in range(side):
                    for j in range(i + 1):
                        own = 1.0 if i == j and (i >= n_known or not is_large) else 0.0
                        if is_large and i < d:
                            own = scale[position]
                        for lane in range(LANES):
                            entry = own
                            if is_large and i < d:
                                entry += scatter_entries[np.uint64(start[lane] + position)]
                                entry += columns[i, lane] * columns[j, lane]
                            elif i < n_known:
                                entry += sums[i * n_items + j, low + lane]
                            matrix[i * side + j, lane] = entry
                        position += 1
                _log_determinants(matrix, inverse[:side], pivots_a_log, log_determinant)
                for lane in range(min(LANES, n_found - low)):
                    count = known[_COUNT] + counts[slots[places[low + lane]]]
                    power = 0.5 * (prior[_PRIOR_DOF] + count)
                    if not is_large:
                        log_determinant[lane] += known[_LOG_DETERMINANT]
                    out[places[low + lane]] += terms[int(count)] - power * log_determinant[lane]
            n_found = 0


@compiled_fast_inside
def _add_products(rows, n_items, n_wide, sums):  # type: ignore[no-untyped-def]
    """Add the products of all pairs of columns in four rows, for several partners at once."""
    for i in range(n_items):
        for j in range(i + 1):
            a, b = i * n_wide, j * n_wide
            for lane in range(n_wide):
                total = (
                    rows[0, a + lane] * rows[0, b + lane] + rows[1, a + lane] * rows[1, b + lane]
                )
                total += (
                    rows[2, a + lane] * rows[2, b + lane] + rows[3, a + lane] * rows[3, b + lane]
                )
                sums[i * n_items + j, lane] += total


@compiled_fast_inside
def _log_determinants(work, inverse, pivots_a_log, out):  # type: ignore[no-untyped-def]
    """Write the log determinants of matrices side by side, which their factors replace.

    The part above the diagonal holds anything.
    """
    side = len(inverse)
    product = np.empty((1, LANES))
    for lane in range(LANES):
        product[0, lane] = 1.0
        out[lane] = 0.0
    since_log = 0
    for i in range(0, side, TILE):
        for j in range(0, i, TILE):
            subtract_tile(work, i * side, j * side, side, j)
            for c in range(j, j + TILE):
                finish_column(work, inverse, i * side, c * side, side, j, c)
        subtract_tile(work, i * side, i * side, side, i)
        for c in range(i, i + TILE):
            take_pivot(work, inverse, product, c * side, i, c)
            finish_column(work, inverse, i * side, c * side, side, i, c)
            since_log += 1
            if since_log == pivots_a_log or c == side - 1:
                for lane in range(LANES):
                    out[lane] += vector_log(product[0, lane])
                    product[0, lane] = 1.0
                since_log = 0
