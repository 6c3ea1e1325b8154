"""A cheap and certain answer to "does this pair come too late to matter?".

Nearly every pair that Greedy-Rate1 looks at is looked at in vain: it meets later than the best
pairs of both its lineages. Where the best age is the root of a slope that only Newton's method
finds, that can be told from the slope's sign alone: if ``log Z(x) - x`` rises all the way from
``base`` to the latest age that would matter, the root lies beyond. Rising is shown for whole
intervals at once, by bounding each term's share of the slope times a positive weight from below.

Sites, with z = c exp(-2 r A) at the age A, weighted by exp(2 s A) for one rate s of all sites:
a site's share is ``2 r z / (1 - z)``, and the logarithm of its size grows at the rate
``2 (r / (1 - z) - s)`` as A shrinks. That rate itself grows for z > 0 (the site disagrees, its
share is positive) and shrinks for z < 0 (it agrees), so the tangent at the end of an interval
bounds the share everywhere in it, and on the safe side. With equal rates, s is that rate and the
bound is the share at the end: the sign of the slope there then says all.

Columns with holes, with variances s = first + 2 x, weighted by one ``least + 2 x`` that is no
larger: a column's share ``(least + 2 x) (g - s) / s^2`` is concave in 1 / s, so it is least at one
of the ends of an interval.

Sites often fall from ``base`` on: rows that share few features meet at once. Where ``base`` is
also the latest age that would matter, gains decide, and a bound of log Z says which.

Slopes must be positive by a margin above all rounding, here and in the search of the root, and
the age is taken a little later than asked, so that a tie is never rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from bhclust._validation import FloatArray, IntArray
from bhclust.coalescent._loops import PARTIAL, SITES, Int64Array, PairSpec, compiled

#: relative amounts by which an age is put off, and by which a slope must be positive
LATER, MARGIN = 1e-7, 1e-5
#: ages whose decays are kept: so many to the octave, from the youngest on
STEPS, OCTAVES, YOUNGEST = 16, 18, 2.0**-12
#: intervals that are tried before a pair is looked at in the exact way
TRIES = 5

_TINY = 1e-300
_Function = TypeVar("_Function", bound=Callable[..., Any])


def vectorised(function: _Function) -> _Function:
    """Compile so that sums may be taken in any order, and several sites at a time.

    There is no entry from the interpreter, which would take a part of the time to compile.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    kernel = numba.njit(
        nogil=True, fastmath={"reassoc", "contract", "arcp"}, error_model="numpy", **options
    )(function)
    return cast(_Function, kernel)


class Rejection(NamedTuple):
    """What the test needs beside the messages; what a process does not use is empty.

    Attributes
    ----------
    is_on : bool
        Whether pairs are tested at all.
    least : array, shape (n,)
        Smallest variance of each message; columns with holes only, the rest sites only.
    deviations : array, shape (n, offsets[-1] - n_columns)
        How far each lineage's message is from "nothing known", as if at age 0: c of a pair is
        minus the inner product over the states of a site. Sites stand in ``order``, the first
        coordinate of all before the second, so that neighbours in memory are different sites.
    order : array of int, shape (n_columns,)
        Sites by falling number of states.
    ends : array of int
        How many sites have a first, second, ... coordinate.
    rates : array, shape (n_columns,)
        Mutation rates in ``order``.
    is_even : bool
        Whether all sites have the same rate.
    common_rate : float
        The rate s of the weight.
    guard : float
        Added to 1 - z of sites that disagree, far above its rounding error.
    ages : array, shape (n_ages,)
    decays : array, shape (n_ages + 1, n_columns)
        exp(-2 r A); the last row is for age 0.
    """

    is_on: bool
    least: FloatArray
    deviations: FloatArray
    order: Int64Array
    ends: Int64Array
    rates: FloatArray
    is_even: bool
    common_rate: float
    guard: float
    ages: FloatArray
    decays: FloatArray


class Limits(NamedTuple):
    """The last key that would matter to each lineage.

    Attributes
    ----------
    ages, gains : arrays, shape (n,)
    places : array of int, shape (n,)
        `place_of` the ages, put off by a little.
    """

    ages: FloatArray
    gains: FloatArray
    places: IntArray


def rejection(
    spec: PairSpec, messages: FloatArray, spreads: FloatArray, is_on: bool = True
) -> Rejection:
    """Return what the test needs for leaves of age 0."""
    if spec.kind == SITES and is_on:
        return _rejection_of_sites(spec, messages)
    is_on = is_on and spec.kind == PARTIAL
    nothing, none, table = np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, 0))
    least = spreads.min(axis=1) if is_on else nothing
    return Rejection(
        is_on, least, table, none, none, nothing, False, 0.0, 0.0, nothing, table
    )  # fmt: skip


def _rejection_of_sites(spec: PairSpec, messages: FloatArray) -> Rejection:
    n_states = np.diff(spec.offsets)
    order = np.argsort(-n_states, kind="stable").astype(np.int64)
    levels = range(1, int(n_states.max()))
    ends = np.array([(n_states > level).sum() for level in levels], dtype=np.int64)
    rates = spec.rates[order]
    ages = YOUNGEST * 2.0 ** (np.arange(STEPS * OCTAVES) / STEPS)
    test = Rejection(
        is_on=True,
        least=np.zeros(0),
        deviations=np.empty((len(messages), int(ends.sum()))),
        order=order,
        ends=ends,
        rates=rates,
        is_even=bool(rates.min() == rates.max()),
        common_rate=float(rates.mean()),
        guard=max(1e-6, 1e-8 / float(spec.equilibrium.min())),
        ages=ages,
        decays=np.exp(-2.0 * np.append(ages, 0.0)[:, None] * rates),
    )
    for slot, message in enumerate(messages):
        put_deviation(spec, test, slot, message, 0.0)
    return test


@compiled
def put_deviation(
    spec: PairSpec, test: Rejection, slot: int, message: FloatArray, age: float
) -> None:
    """Write the deviation of one lineage.

    ``sqrt(q) (M - 1)`` is orthogonal to ``sqrt(q)``; a reflection that turns the latter into the
    first axis leaves one coordinate less.
    """
    for place in range(spec.n_columns):
        d = test.order[place]
        start, end = spec.offsets[d], spec.offsets[d + 1]
        growth = math.exp(test.rates[place] * age)
        root = math.sqrt(spec.equilibrium[start])
        along = root * (message[start] - 1.0) / (1.0 + root)
        position = place
        for k in range(start + 1, end):
            state_root = math.sqrt(spec.equilibrium[k])
            test.deviations[slot, position] = growth * state_root * (message[k] - 1.0 - along)
            position += test.ends[k - start - 1]


@compiled
def place_of(age: float) -> int:
    """Return the place in the table of the first age that is not before this one."""
    if age <= YOUNGEST:
        return 0
    # a little more, for rounding
    return math.ceil(STEPS * math.log2(min(age, 1e9) / YOUNGEST) + 1e-9)


@vectorised
def pair_remainders(
    deviations: FloatArray, ends: Int64Array, i: int, j: int, out: FloatArray
) -> None:
    """Write minus c of a pair's sites, as if at age 0."""
    left, right = deviations[i], deviations[j]
    count = ends[0]
    for d in range(count):
        out[d] = left[d] * right[d]
    start = count
    for level in range(1, len(ends)):
        count = ends[level]
        more_left, more_right = left[start : start + count], right[start : start + count]
        for d in range(count):
            out[d] += more_left[d] * more_right[d]
        start += count


@vectorised
def slope_at(
    rates: FloatArray, guard: float, remainders: FloatArray, decays: FloatArray
) -> tuple[float, float]:
    """Return what disagreeing and agreeing sites add to the slope at an age, up and down."""
    up, total = 0.0, 0.0
    for d in range(len(rates)):
        z = -remainders[d] * decays[d]
        share = 2.0 * rates[d] * z / (1.0 - z + (guard if z > 0.0 else 0.0))
        up += max(share, 0.0)
        # NaN, from what has overflowed, survives in this sum
        total += share
    return up, up - total


@vectorised
def slope_before(
    rates: FloatArray,
    common_rate: float,
    guard: float,
    remainders: FloatArray,
    decays: FloatArray,
    length: float,
) -> tuple[float, float]:
    """Return bounds of the same in an interval before that age, both times its weight."""
    up, down, too_steep = 0.0, 0.0, 0.0
    for d in range(len(rates)):
        z = -remainders[d] * decays[d]
        scaled = rates[d] / (1.0 - z + (guard if z > 0.0 else 0.0))
        # exp(y) >= (1 + y/4)^4 for -4 <= y <= 0, and <= (1 + y/4 + y^2/16)^4 for 0 <= y <= 7
        quarter = 0.5 * length * (scaled - common_rate)
        quarter = min(quarter, 0.0) if z > 0.0 else max(quarter, 0.0)
        factor = 1.0 + quarter + (quarter * quarter if quarter > 0.0 else 0.0)
        factor = max(factor, 0.0)
        factor *= factor
        share = 2.0 * scaled * z * factor * factor
        up += max(share, 0.0)
        down -= min(share, 0.0)
        too_steep += max(quarter - 1.75, 0.0)
    return up, down if too_steep == 0.0 else np.inf


@vectorised
def gain_bound(
    guard: float, remainders: FloatArray, decays_before: FloatArray, decays_after: FloatArray
) -> float:
    """Return a bound of log Z between two ages."""
    total, start, n = 0.0, 0, len(remainders)
    while start < n:
        # One logarithm for as many sites as cannot leave the range.
        end = min(n, start + 32)
        product = 1.0
        for d in range(start, end):
            # Disagreement costs less later on, agreement gains more early on.
            c = -remainders[d]
            later, earlier = 1.0 - c * decays_after[d] + guard, 1.0 - c * decays_before[d]
            product *= later if c > 0.0 else earlier
        total += math.log(product)
        start = end
    return total


@vectorised
def rises(up: float, down: float) -> bool:
    """Whether a slope is surely above the rate 1."""
    return up > (1.0 + MARGIN) * (1.0 + down)


@compiled
def rises_in_parts(test: Rejection, remainders: FloatArray, place: int, base: float) -> bool:
    """Whether log Z - x surely rises from ``base`` to an age of the table, in several intervals."""
    high, low = place, place_of(0.5 * (base + test.ages[place]))
    for _ in range(TRIES):
        if low >= high:
            return False
        start = base if low < 0 else test.ages[low]
        up, down = slope_before(
            test.rates, test.common_rate, test.guard, remainders, test.decays[high],
            test.ages[high] - start,
        )  # fmt: skip
        if not rises(up, down):
            low = place_of(0.5 * (start + test.ages[high]))
        elif low < 0:
            return True
        else:
            high, low = low, -1
    return False


@vectorised
def screen_sites(
    test: Rejection,
    ages: FloatArray,
    slot: int,
    start: int,
    stop: int,
    limits: Limits,
    for_both: bool,
    remainders: FloatArray,
    kept: IntArray,
) -> int:
    """Do as `screen` for sites."""
    n_ages, n_kept = len(test.ages), 0
    for j in range(start, stop):
        late = slot
        if for_both and (
            limits.ages[j] > limits.ages[slot]
            or (limits.ages[j] == limits.ages[slot] and limits.gains[j] < limits.gains[slot])
        ):
            late = j
        limit, place = limits.ages[late], limits.places[late]
        base = max(ages[slot], ages[j])
        if base > limit:
            continue
        if place < n_ages:
            pair_remainders(test.deviations, test.ends, slot, j, remainders)
            decays = test.decays[place]
            up, down = slope_at(test.rates, test.guard, remainders, decays)
            if rises(up, down):
                if test.is_even:
                    continue
                up, down = slope_before(
                    test.rates, test.common_rate, test.guard, remainders, decays,
                    test.ages[place] - base,
                )  # fmt: skip
                if rises(up, down) or rises_in_parts(test, remainders, place, base):
                    continue
            elif base == limit:
                # From 0 on, only the gain at 0 itself counts.
                before = max(place_of(base) - 1, -1) if base > 0.0 else -1
                after = place if base > 0.0 else -1
                bound = gain_bound(test.guard, remainders, test.decays[before], test.decays[after])
                least = limits.gains[late]
                if bound + MARGIN * (1.0 + abs(least)) < least:
                    continue
        kept[n_kept] = j
        n_kept += 1
    return n_kept


@vectorised
def columns_rise(
    left: FloatArray,
    left_spread: FloatArray,
    right: FloatArray,
    right_spread: FloatArray,
    elapsed: float,
    least: float,
    length: float,
) -> bool:
    """Whether log Z - x of columns with holes surely rises from 0 to ``length``."""
    total = 0.0
    for d in range(len(left)):
        difference = left[d] - right[d]
        gap = difference * difference
        # 1 / s, which is 0 where one of the two is not observed
        spread = left_spread[d] + right_spread[d] + elapsed
        at_start, at_end = 1.0 / max(spread, _TINY), 1.0 / max(spread + 2.0 * length, _TINY)
        total += min(
            least * at_start * (gap * at_start - 1.0),
            (least + 2.0 * length) * at_end * (gap * at_end - 1.0),
        )
    # An infinite total is right: rows without variance that differ never meet at once.
    return (1.0 - MARGIN) * total > least + 2.0 * length + MARGIN * len(left)


@vectorised
def screen_columns(
    test: Rejection,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    slot: int,
    start: int,
    stop: int,
    limits: Limits,
    for_both: bool,
    kept: IntArray,
) -> int:
    """Do as `screen` for columns with holes."""
    n_kept = 0
    for j in range(start, stop):
        limit = max(limits.ages[slot], limits.ages[j]) if for_both else limits.ages[slot]
        base = max(ages[slot], ages[j])
        if base > limit:
            continue
        elapsed = (base - ages[slot]) + (base - ages[j])
        least = max(test.least[slot] + test.least[j] + elapsed, _TINY)
        length = limit * (1.0 + LATER) - base
        if limit < np.inf and least < np.inf and columns_rise(
            messages[slot], spreads[slot], messages[j], spreads[j], elapsed, least, length
        ):  # fmt: skip
            continue
        kept[n_kept] = j
        n_kept += 1
    return n_kept


@compiled
def screen(
    spec: PairSpec,
    test: Rejection,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    slot: int,
    start: int,
    stop: int,
    limits: Limits,
    for_both: bool,
    work: FloatArray,
    kept: IntArray,
) -> int:
    """Write the lineages in a range whose pair with one of them may matter; return their number.

    A pair matters to the lineage, or ``for_both`` to one of the two, if its key does not surely
    come after the lineage's limit.
    """
    if not test.is_on:
        for j in range(start, stop):
            kept[j - start] = j
        return stop - start
    if spec.kind == SITES:
        return int(screen_sites(test, ages, slot, start, stop, limits, for_both, work, kept))
    return int(
        screen_columns(test, messages, spreads, ages, slot, start, stop, limits, for_both, kept)
    )
