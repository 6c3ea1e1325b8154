"""Kernels for independent normal columns, complete or with missing values.

Every rate of a union is the focus's posterior rate times a factor of at least one, so a pair costs
a product over the columns with the same exponent and a single log of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled, compiled_fast, compiled_fast_inside, compiled_inside
from bhclust._kernels.part import ROWS_AT_ONCE, Member, Part
from bhclust._kernels.vectorlog import vector_log
from bhclust._validation import FloatArray
from bhclust.models._columnwise import feature_blocks, log_rising
from bhclust.models.gaussian import DiagonalGaussian

# Items are laid out in blocks of (columns, items): a vector register holds items, and what a
# product over columns goes through stays in the fastest cache.
BLOCK = 256
# Products are cut where their log could pass this: floats end at exp(709).
_LARGEST_LOG = 690.0
# Counts of one column differ by less than 2^_MOST_BITS inside a cluster.
_MOST_BITS = 32

# Rows of the array of prior parameters
_MEAN, _STRENGTH, _SHAPE, _RATE, _SHAPE_LOG_RATE, _LOWEST, _HIGHEST = range(7)
# Rows of the statistics of a cluster
_COUNT, _AVERAGE, _HALF_DEVIATION = range(3)
# Rows of the posterior of a cluster
_P_COUNT, _P_STRENGTH, _P_MEAN, _P_RATE, _P_LOG_RATE, _P_INVERSE_RATE = range(6)
# Numbers known of the focus as a whole
_LOG_F, _SUM_LOG, _SUM_SHAPE_LOG = range(3)
# Rows of the coefficients of a factor ``one + scale (x - centre)²``
_CENTRE, _SCALE, _ONE = range(3)


class _Plans(NamedTuple):
    """How single items are scored against some foci: products over columns, and their logs.

    Each focus has a row: in ``column`` and ``coefficient`` the factors of all products one behind
    the other, in ``list_start`` where each product begins, in ``weight`` what to add at all, the
    number of products, then the exponent of each.
    """

    column: npt.NDArray[np.int64]
    coefficient: FloatArray
    list_start: npt.NDArray[np.int64]
    weight: FloatArray


class DiagonalPart(Part):
    """`DiagonalGaussian`; columns are kept in an order in which equal priors stand together."""

    def __init__(self, model: DiagonalGaussian, leaf_stats: FloatArray, n_slots: int) -> None:
        observed, distance, _ = feature_blocks(leaf_stats, 3)
        order, group, starts = _equal_priors(model)
        d = len(order)
        leaves = np.where(observed > 0, distance, np.nan)[:, order]
        self._complete = not bool(np.isnan(leaves).any())
        self._leaves = np.ascontiguousarray(leaves)
        self._window = in_blocks(self._leaves)
        self._prior = _prior_rows(model, self._leaves, order)
        terms = _size_terms(self._prior[:, starts], len(leaves))
        self._model = (self._prior, group, terms)
        self._slots = np.zeros((n_slots, 3, d))
        self._posterior = np.zeros((6, d))
        self._known = np.zeros(3)
        self._plan = _empty_plans(1, d)
        self._row_plans: _Plans | None = None
        self._chunks = _chunks(self._prior, group, len(leaves))
        self._complete_terms = terms[group].sum(axis=0)
        self._complete_terms += self._prior[_SHAPE_LOG_RATE].sum()

    def focus(self, member: Member) -> None:
        self._focus_by(self._plan, 0, member)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        _add_products(self._window, start, stop, *self._plan, self._complete, out[None])

    def add_first_pairs(self, rows: range, out: FloatArray) -> None:
        # Several rows go over a block of the window while it is in the cache.
        if self._row_plans is None:
            self._row_plans = _empty_plans(ROWS_AT_ONCE, self._leaves.shape[1])
        for k, row in enumerate(rows):
            self._focus_by(self._row_plans, k, Member(True, row))
        start = rows.start + 1
        stop = start + out.shape[1]
        _add_products(self._window, start, stop, *self._row_plans, self._complete, out)

    def _focus_by(self, plans: _Plans, k: int, member: Member) -> None:
        _focus(
            self._slots,
            self._leaves,
            member.is_leaf,
            member.number,
            *self._model,
            self._posterior,
            self._known,
            *plans,
            k,
            self._complete,
        )

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        if self._complete:
            _add_complete_unions(
                self._slots,
                slots,
                self._posterior,
                self._known,
                self._complete_terms,
                self._chunks,
                self._prior[_SHAPE],
                out,
            )
        else:
            _add_unions(self._slots, slots, *self._model, self._posterior, out)

    def merge(self, left: Member, right: Member, slot: int) -> float:
        return float(_merge(self._slots, self._leaves, *left, *right, slot, *self._model))

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._window = repacked(self._window, keep)


def _empty_plans(n_foci: int, d: int) -> _Plans:
    """Return room for plans over d columns."""
    # A column stands in one product for its reference count and in one for each bit beside it;
    # every product is filled up to a multiple of four columns.
    n_lists = d * (1 + _MOST_BITS)
    return _Plans(
        np.zeros((n_foci, 4 * n_lists), dtype=np.int64),
        np.zeros((n_foci, 3, 4 * n_lists)),
        np.zeros((n_foci, n_lists + 2), dtype=np.int64),
        np.zeros((n_foci, n_lists + 2)),
    )


def in_blocks(rows: FloatArray) -> FloatArray:
    """Return items laid out as (block, column, item in the block), the last block filled up."""
    n, d = rows.shape
    out = np.zeros((-(-n // BLOCK), d, BLOCK))
    _fill_blocks(rows, out)
    return out


def repacked(window: FloatArray, keep: npt.NDArray[np.int64]) -> FloatArray:
    """Return a window with only some of its items."""
    out = np.zeros((-(-len(keep) // BLOCK), window.shape[1], BLOCK))
    _repack(window, keep, out)
    return out


@compiled
def _fill_blocks(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i // BLOCK, j, i % BLOCK] = rows[i, j]


@compiled
def _repack(window, keep, out):  # type: ignore[no-untyped-def]
    for j in range(window.shape[1]):
        for i in range(len(keep)):
            out[i // BLOCK, j, i % BLOCK] = window[keep[i] // BLOCK, j, keep[i] % BLOCK]


def _equal_priors(
    model: DiagonalGaussian,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return an order of the columns, the group of each, and where each group starts."""
    pairs = np.stack([model.hyperparameter("shape"), model.hyperparameter("strength")], axis=1)
    _, group = np.unique(pairs, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    ordered = np.asarray(group.ravel()[order], dtype=np.int64)
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return order, ordered, np.asarray(starts, dtype=np.int64)


def _prior_rows(
    model: DiagonalGaussian, leaves: FloatArray, order: npt.NDArray[np.intp]
) -> FloatArray:
    prior = np.empty((7, len(order)))
    prior[_MEAN] = (model.hyperparameter("mean") - np.asarray(model.origin))[order]
    for row, name in ((_STRENGTH, "strength"), (_SHAPE, "shape"), (_RATE, "rate")):
        prior[row] = model.hyperparameter(name)[order]
    prior[_SHAPE_LOG_RATE] = prior[_SHAPE] * np.log(prior[_RATE])
    # Posterior means lie between the items and the prior mean.
    prior[_LOWEST] = np.fmin(prior[_MEAN], np.fmin.reduce(leaves, axis=0))
    prior[_HIGHEST] = np.fmax(prior[_MEAN], np.fmax.reduce(leaves, axis=0))
    return prior


def _size_terms(prior: FloatArray, n_leaves: int) -> FloatArray:
    """Return what counts 0 … n + 1 add to log f by themselves, a row for each group of columns.

    A window holds items that are merged already, so one item may be counted twice.
    """
    counts = np.arange(n_leaves + 2.0)
    shape, strength = prior[_SHAPE, :, None], prior[_STRENGTH, :, None]
    spread = 0.5 * np.log(strength / (strength + counts))
    return np.asarray(log_rising(shape, counts / 2) + spread - 0.5 * math.log(2 * math.pi) * counts)


def _chunks(
    prior: FloatArray, group: npt.NDArray[np.int64], n_leaves: int
) -> npt.NDArray[np.int64]:
    """Return where products over columns of two clusters are cut, for complete data."""
    # the deviations of n items and the distance of two means, against the prior rate alone
    spread = np.square(prior[_HIGHEST] - prior[_LOWEST])
    largest = np.log1p(1.5 * n_leaves * spread / prior[_RATE])
    cuts, total = [0], 0.0
    for j in range(len(group)):
        if j > 0 and (group[j] != group[j - 1] or total + largest[j] > _LARGEST_LOG):
            cuts.append(j)
            total = 0.0
        total += largest[j]
    return np.array([*cuts, len(group)], dtype=np.int64)


@compiled_inside
def _stats_of(slots, leaves, is_leaf, number, spare):  # type: ignore[no-untyped-def]
    """Return the statistics of a cluster; those of a leaf are written into ``spare``."""
    if not is_leaf:
        return slots[number]
    for j in range(leaves.shape[1]):
        missing = leaves[number, j] != leaves[number, j]
        spare[_COUNT, j] = 0.0 if missing else 1.0
        spare[_AVERAGE, j] = 0.0 if missing else leaves[number, j]
        spare[_HALF_DEVIATION, j] = 0.0
    return spare


@compiled
def _merge(  # type: ignore[no-untyped-def]
    slots, leaves, left_is_leaf, left, right_is_leaf, right, slot, prior, group, terms
):
    """Write the union of two clusters into a slot; return its log f."""
    spare = np.empty((3, leaves.shape[1]))
    union = slots[slot]
    first = _stats_of(slots, leaves, left_is_leaf, left, spare)
    for row in range(3):
        for j in range(leaves.shape[1]):
            union[row, j] = first[row, j]
    _pool(union, _stats_of(slots, leaves, right_is_leaf, right, spare))
    return _log_f(union, prior, group, terms)


@compiled
def _focus(  # type: ignore[no-untyped-def]
    slots, leaves, is_leaf, number, prior, group, terms, posterior, known,
    column, coefficient, start, weight, k, complete,
):  # fmt: skip
    """Write the posterior of the focus, and to row k the plan to score single items against it."""
    spare = np.empty((3, leaves.shape[1]))
    stats = _stats_of(slots, leaves, is_leaf, number, spare)
    _settle(stats, prior, group, terms, posterior, known)
    _make_plan(
        prior, group, terms, posterior, known,
        column[k], coefficient[k], start[k], weight[k], complete,
    )  # fmt: skip


@compiled
def _pool(stats, other):  # type: ignore[no-untyped-def]
    """Add a cluster to another in place, with the formulas of the model."""
    for j in range(stats.shape[1]):
        a, b = stats[_COUNT, j], other[_COUNT, j]
        total = a + b if a + b > 0 else 1.0
        gap = stats[_AVERAGE, j] - other[_AVERAGE, j]
        stats[_COUNT, j] = a + b
        stats[_AVERAGE, j] = (a / total) * stats[_AVERAGE, j] + (b / total) * other[_AVERAGE, j]
        stats[_HALF_DEVIATION, j] += other[_HALF_DEVIATION, j] + 0.5 * (a * b / total) * gap * gap


@compiled_fast_inside
def _posterior_rate(stats, prior, j):  # type: ignore[no-untyped-def]
    count, strength = stats[_COUNT, j], prior[_STRENGTH, j]
    distance = stats[_AVERAGE, j] - prior[_MEAN, j]
    pull = np.divide(strength * count, strength + count)
    return prior[_RATE, j] + stats[_HALF_DEVIATION, j] + 0.5 * pull * distance * distance


@compiled_fast
def _log_f(stats, prior, group, terms):  # type: ignore[no-untyped-def]
    log_f = 0.0
    for j in range(stats.shape[1]):
        log_rate = vector_log(_posterior_rate(stats, prior, j))
        count = stats[_COUNT, j]
        log_f += terms[group[j], int(count)] + prior[_SHAPE_LOG_RATE, j]
        log_f -= (prior[_SHAPE, j] + 0.5 * count) * log_rate
    return log_f


@compiled_fast
def _settle(stats, prior, group, terms, posterior, known):  # type: ignore[no-untyped-def]
    """Write the posterior of the focus."""
    log_f = 0.0
    sum_log = 0.0
    sum_shape_log = 0.0
    for j in range(stats.shape[1]):
        count = stats[_COUNT, j]
        total = prior[_STRENGTH, j] + count
        rate = _posterior_rate(stats, prior, j)
        log_rate = vector_log(rate)
        distance = stats[_AVERAGE, j] - prior[_MEAN, j]
        posterior[_P_COUNT, j] = count
        posterior[_P_STRENGTH, j] = total
        posterior[_P_MEAN, j] = prior[_MEAN, j] + np.divide(count, total) * distance
        posterior[_P_RATE, j] = rate
        posterior[_P_LOG_RATE, j] = log_rate
        posterior[_P_INVERSE_RATE, j] = np.divide(1.0, rate)
        log_f += terms[group[j], int(count)] + prior[_SHAPE_LOG_RATE, j]
        log_f -= (prior[_SHAPE, j] + 0.5 * count) * log_rate
        sum_log += log_rate
        sum_shape_log += prior[_SHAPE, j] * log_rate
    known[_LOG_F] = log_f
    known[_SUM_LOG] = sum_log
    known[_SUM_SHAPE_LOG] = sum_shape_log


@compiled_inside
def _bits_above(excess, sign):  # type: ignore[no-untyped-def]
    """Return the binary digits of a difference of counts, or none if it has the other sign."""
    return max(0, int(excess) * sign)


@compiled_inside
def _reference(count, first, last):  # type: ignore[no-untyped-def]
    """Choose the count from which the others of a group differ by the fewest binary digits."""
    best, least = count[first], np.inf
    for c in range(first, min(last, first + 8)):
        cost = 0.0
        above, below = 0, 0
        for j in range(first, last):
            up, down = _bits_above(count[j] - count[c], 1), _bits_above(count[j] - count[c], -1)
            above |= up
            below |= down
            digits = up + down
            while digits:
                cost += 1.0
                digits &= digits - 1
        while above or below:
            # a log costs as much as about five factors
            cost += 5.0 * ((above & 1) + (below & 1))
            above >>= 1
            below >>= 1
        if cost < least:
            best, least = count[c], cost
        if cost == 0.0:
            break
    return best


@compiled
def _make_plan(  # type: ignore[no-untyped-def]
    prior, group, terms, posterior, known, column, coefficient, start, weight, complete
):
    """List the products that score single items against the focus.

    The exponents of a group's columns are ``shape + (count + 1) / 2``. That of a reference count
    applies to all columns; of what is above or below it, every binary digit has a product.
    """
    d = len(group)
    count = posterior[_P_COUNT]
    weight[0] = known[_LOG_F]
    n_lists, position, first = 0, 0, 0
    while first < d:
        last = first
        while last < d and group[last] == group[first]:
            last += 1
        reference = _reference(count, first, last)
        power = prior[_SHAPE, first] + 0.5 * (reference + 1.0)
        room = -1.0
        for j in range(first, last):
            row = terms[group[j]]
            log_one = row[int(count[j]) + 1] - row[int(count[j])] - 0.5 * posterior[_P_LOG_RATE, j]
            if complete:
                weight[0] += log_one
                log_one = 0.0
            # Only items that have this column get its constant, so it becomes a factor.
            used = _write_factor(
                prior, posterior, j, -log_one / power, column, coefficient, position
            )
            room -= used
            if room < 0:
                position = _start_list(column, coefficient, position)
                start[n_lists] = position
                weight[n_lists + 2] = power
                n_lists += 1
                room = _LARGEST_LOG - used
            position += 1
        for sign in (1, -1):
            n_lists, position = _plan_digits(
                prior, posterior, first, last, reference, sign, n_lists,
                column, coefficient, start, weight, position,
            )  # fmt: skip
        first = last
    start[n_lists] = _fill_up(column, coefficient, position)
    weight[1] = n_lists


@compiled_inside
def _plan_digits(  # type: ignore[no-untyped-def]
    prior, posterior, first, last, reference, sign, n_lists,
    column, coefficient, start, weight, position,
):  # fmt: skip
    """List the products for the counts of a group on one side of the reference."""
    count = posterior[_P_COUNT]
    digits = 0
    for j in range(first, last):
        digits |= _bits_above(count[j] - reference, sign)
    bit = 0
    while digits >> bit:
        room = -1.0
        for j in range(first, last):
            if not (_bits_above(count[j] - reference, sign) >> bit) & 1:
                continue
            used = _write_factor(prior, posterior, j, 0.0, column, coefficient, position)
            room -= used
            if room < 0:
                position = _start_list(column, coefficient, position)
                start[n_lists] = position
                weight[n_lists + 2] = 0.5 * sign * (1 << bit)
                n_lists += 1
                room = _LARGEST_LOG - used
            position += 1
        bit += 1
    return n_lists, position


@compiled_inside
def _write_factor(  # type: ignore[no-untyped-def]
    prior, posterior, j, log_one, column, coefficient, position
):
    """Write the factor of a column; return a bound on the size of its log."""
    strength = posterior[_P_STRENGTH, j]
    scale = 0.5 * strength / (strength + 1.0) * posterior[_P_INVERSE_RATE, j]
    centre = posterior[_P_MEAN, j]
    reach = max(centre - prior[_LOWEST, j], prior[_HIGHEST, j] - centre)
    one = math.exp(log_one)
    column[position] = j
    coefficient[_CENTRE, position] = centre
    coefficient[_SCALE, position] = scale * one
    coefficient[_ONE, position] = one
    return math.log1p(scale * reach * reach) + abs(log_one)


@compiled_inside
def _start_list(column, coefficient, position):  # type: ignore[no-untyped-def]
    """Let the factor at a position be the first of a list; return where it is now."""
    j = column[position]
    centre = coefficient[_CENTRE, position]
    scale = coefficient[_SCALE, position]
    one = coefficient[_ONE, position]
    moved = _fill_up(column, coefficient, position)
    column[moved] = j
    coefficient[_CENTRE, moved] = centre
    coefficient[_SCALE, moved] = scale
    coefficient[_ONE, moved] = one
    return moved


@compiled_inside
def _fill_up(column, coefficient, position):  # type: ignore[no-untyped-def]
    """Add factors of one up to a multiple of four."""
    while position % 4:
        column[position] = column[position - 1]
        coefficient[_CENTRE, position] = coefficient[_CENTRE, position - 1]
        coefficient[_SCALE, position] = 0.0
        coefficient[_ONE, position] = 1.0
        position += 1
    return position


@compiled_fast
def _add_products(  # type: ignore[no-untyped-def]
    window, start, stop, column, coefficient, list_start, weight, complete, out
):
    """Add log f of single items with each focus (a row of ``out``), block by block."""
    product = np.empty(BLOCK)
    for b in range(start // BLOCK, (stop + BLOCK - 1) // BLOCK):
        for k in range(len(out)):
            _add_block(
                product, window, b, start, stop,
                column[k], coefficient[k], list_start[k], weight[k], complete, out[k],
            )  # fmt: skip


@compiled_fast_inside
def _add_block(  # type: ignore[no-untyped-def]
    product, window, b, start, stop, column, coefficient, list_start, weight, complete, out
):
    low = max(start - b * BLOCK, 0)
    high = min(stop - b * BLOCK, BLOCK)
    first = b * BLOCK + low - start
    sums = out[first : first + high - low]
    rows = window[b]
    base = weight[0]
    for t in range(int(weight[1])):
        part = product[: high - low]
        for p in range(len(part)):
            part[p] = 1.0
        for e in range(list_start[t], list_start[t + 1], 4):
            if complete:
                _multiply(part, rows, low, column, coefficient, e)
            else:
                _multiply_observed(part, rows, low, column, coefficient, e)
        power = weight[t + 2]
        constant = base if t == 0 else 0.0
        for p in range(len(part)):
            sums[p] += constant - power * vector_log(part[p])


@compiled_fast_inside
def _multiply(product, rows, low, column, coefficient, e):  # type: ignore[no-untyped-def]
    """Multiply by the factors of four columns."""
    high = low + len(product)
    x0, x1 = rows[column[e], low:high], rows[column[e + 1], low:high]
    x2, x3 = rows[column[e + 2], low:high], rows[column[e + 3], low:high]
    m0, m1 = coefficient[_CENTRE, e], coefficient[_CENTRE, e + 1]
    m2, m3 = coefficient[_CENTRE, e + 2], coefficient[_CENTRE, e + 3]
    s0, s1 = coefficient[_SCALE, e], coefficient[_SCALE, e + 1]
    s2, s3 = coefficient[_SCALE, e + 2], coefficient[_SCALE, e + 3]
    for p in range(len(product)):
        t0, t1, t2, t3 = x0[p] - m0, x1[p] - m1, x2[p] - m2, x3[p] - m3
        z0, z1 = 1.0 + s0 * (t0 * t0), 1.0 + s1 * (t1 * t1)
        z2, z3 = 1.0 + s2 * (t2 * t2), 1.0 + s3 * (t3 * t3)
        product[p] *= (z0 * z1) * (z2 * z3)


@compiled_fast_inside
def _factor(x, centre, scale, one):  # type: ignore[no-untyped-def]
    z = one + scale * ((x - centre) * (x - centre))
    return z if z > 0.0 else 1.0  # not a number where the item lacks the column


@compiled_fast_inside
def _multiply_observed(product, rows, low, column, coefficient, e):  # type: ignore[no-untyped-def]
    """Multiply by the factors of four columns where they are observed."""
    high = low + len(product)
    x0, x1 = rows[column[e], low:high], rows[column[e + 1], low:high]
    x2, x3 = rows[column[e + 2], low:high], rows[column[e + 3], low:high]
    m0, m1 = coefficient[_CENTRE, e], coefficient[_CENTRE, e + 1]
    m2, m3 = coefficient[_CENTRE, e + 2], coefficient[_CENTRE, e + 3]
    s0, s1 = coefficient[_SCALE, e], coefficient[_SCALE, e + 1]
    s2, s3 = coefficient[_SCALE, e + 2], coefficient[_SCALE, e + 3]
    o0, o1 = coefficient[_ONE, e], coefficient[_ONE, e + 1]
    o2, o3 = coefficient[_ONE, e + 2], coefficient[_ONE, e + 3]
    for p in range(len(product)):
        z0, z1 = _factor(x0[p], m0, s0, o0), _factor(x1[p], m1, s1, o1)
        z2, z3 = _factor(x2[p], m2, s2, o2), _factor(x3[p], m3, s3, o3)
        product[p] *= (z0 * z1) * (z2 * z3)


@compiled_fast
def _add_complete_unions(  # type: ignore[no-untyped-def]
    stats, slots, posterior, known, terms, chunks, shape, out
):
    """Add log f of the focus with clusters, where every cluster has one count."""
    n_chunks = len(chunks) - 1
    product = np.empty(BLOCK)
    size = np.empty(BLOCK)
    count = posterior[_P_COUNT, 0]
    for low in range(0, len(slots), BLOCK):
        n = min(BLOCK, len(slots) - low)
        for p in range(n):
            size[p] = count + stats[slots[low + p], _COUNT, 0]
            log_rates = known[_SUM_SHAPE_LOG] + 0.5 * size[p] * known[_SUM_LOG]
            out[low + p] += terms[int(size[p])] - log_rates
        for c in range(n_chunks):
            first, last = chunks[c], chunks[c + 1]
            strength = posterior[_P_STRENGTH, first]
            mean = posterior[_P_MEAN, first:last]
            inverse_rate = posterior[_P_INVERSE_RATE, first:last]
            for p in range(n):
                average = stats[slots[low + p], _AVERAGE, first:last]
                half_deviation = stats[slots[low + p], _HALF_DEVIATION, first:last]
                other = size[p] - count
                pull = 0.5 * strength * other / (strength + other)
                z = 1.0
                for j in range(len(mean)):
                    gap = average[j] - mean[j]
                    z *= 1.0 + (half_deviation[j] + pull * (gap * gap)) * inverse_rate[j]
                product[p] = z
            for p in range(n):
                out[low + p] -= (shape[first] + 0.5 * size[p]) * vector_log(product[p])


@compiled_fast
def _add_unions(stats, slots, prior, group, terms, posterior, out):  # type: ignore[no-untyped-def]
    """Add log f of the focus with clusters, where columns have counts of their own."""
    d = len(group)
    prior_log_rates = 0.0
    for j in range(d):
        prior_log_rates += prior[_SHAPE_LOG_RATE, j]
    shape = prior[_SHAPE]
    count, strength = posterior[_P_COUNT], posterior[_P_STRENGTH]
    mean, rate = posterior[_P_MEAN], posterior[_P_RATE]
    for p in range(len(slots)):
        other = stats[slots[p], _COUNT]
        average = stats[slots[p], _AVERAGE]
        half_deviation = stats[slots[p], _HALF_DEVIATION]
        value = prior_log_rates
        for j in range(d):
            value += terms[group[j], int(count[j] + other[j])]
        for j in range(d):
            gap = average[j] - mean[j]
            pull = 0.5 * strength[j] * np.divide(other[j], strength[j] + other[j])
            z = rate[j] + half_deviation[j] + pull * (gap * gap)
            value -= (shape[j] + 0.5 * (count[j] + other[j])) * vector_log(z)
        out[p] += value
