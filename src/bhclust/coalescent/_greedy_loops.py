"""Compiled scans of the greedy searches.

Live lineages sit in the first slots of the arrays, ``ids`` says which node each is. A pair's key
is (age, gain): more recent is better, then the larger local likelihood, then the lower pair of
node numbers. Ages and gains are rounded to about ten digits before they are compared, so that
ties do not hang on the order of additions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bhclust._validation import FloatArray, IntArray
from bhclust.coalescent._loops import (
    COMPLETE,
    PairSpec,
    best_duration,
    compiled,
    log_local,
    prepare_pair,
)
from bhclust.coalescent._rejection import LATER, Limits, Rejection, place_of, screen

MAX_PROBABILITY, MIN_DURATION = 0, 1
#: most partners on a list, and most pairs that are screened before the rest of them is looked at
LONGEST, CHUNK = 16, 64
_SPLITTER = float(2**19 + 1)


@compiled
def rounded(x: float) -> float:
    """Round to 34 binary digits, about ten decimal ones, by Veltkamp's splitting."""
    if not abs(x) < 1e290:
        return x
    shifted = x * _SPLITTER
    return shifted - (shifted - x)


@compiled
def complete_key(gap: float, spread: float, base: float, n_columns: int) -> tuple[float, float]:
    """Return `pair_key` of complete Gaussian rows from their squared distance."""
    columns = float(n_columns)
    # (sqrt(D^2 + 4 g) - D) / 2 without its cancellation for small g
    best = 2.0 * gap / (math.sqrt(columns * columns + 4.0 * gap) + columns)
    duration = max(0.0, 0.5 * (best - spread))
    spread += 2.0 * duration
    if spread <= 0.0:
        return base, np.inf
    gain = -0.5 * (columns * math.log(2.0 * math.pi * spread) + gap / spread)
    return rounded(base + duration), rounded(gain)


@compiled
def pair_key(
    spec: PairSpec,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    i: int,
    j: int,
    first: FloatArray,
    second: FloatArray,
) -> tuple[float, float]:
    """Return the age at which a pair with rate 1 would best meet, and its log likelihood there."""
    base = max(ages[i], ages[j])
    if spec.kind == COMPLETE:
        # The common case without the views of rows, which cost more than the arithmetic.
        gap = 0.0
        for d in range(messages.shape[1]):
            difference = messages[i, d] - messages[j, d]
            gap += difference * difference
        spread = spreads[i, 0] + spreads[j, 0] + ((base - ages[i]) + (base - ages[j]))
        return complete_key(gap, spread, base, spec.n_columns)
    count = prepare_pair(
        spec,
        messages[i],
        spreads[i],
        ages[i],
        messages[j],
        spreads[j],
        ages[j],
        base,
        first,
        second,
    )
    duration = best_duration(spec, 1.0, first, second, count)
    return rounded(base + duration), rounded(log_local(spec, first, second, count, duration))


@compiled
def precedes(
    age: float, gain: float, node: int, other_age: float, other_gain: float, other_node: int
) -> bool:
    """Whether a key comes before another."""
    if age != other_age:
        return age < other_age
    if gain != other_gain:
        return gain > other_gain
    return node < other_node


class Shortlists(NamedTuple):
    """The best partners of each live lineage, best first.

    All other partners of a lineage come after its bound, or are the bound: it is the last partner
    of a list that was full, and stays when partners on the list are merged away. A lineage whose
    list is empty is known by its bound alone until that comes up as the best key of all.

    Attributes
    ----------
    ages, gains, ids : arrays, shape (n, `LONGEST`)
        Keys and node numbers of the partners.
    counts, lengths : arrays of int, shape (n,)
        How many partners are on a list, and how many may be: twice as many each time it has run
        empty, for some lineages have partners that are sought by all.
    last_ages, last_gains, last_ids : arrays, shape (n,)
        The bounds.
    last_places : array of int, shape (n,)
        `place_of` the ages of the bounds, a little later.
    """

    ages: FloatArray
    gains: FloatArray
    ids: IntArray
    counts: IntArray
    lengths: IntArray
    last_ages: FloatArray
    last_gains: FloatArray
    last_ids: IntArray
    last_places: IntArray

    @classmethod
    def of(cls, n: int) -> Shortlists:
        """Return empty lists that nothing is known about."""
        keys = np.empty((n, LONGEST)), np.empty((n, LONGEST)), np.empty((n, LONGEST), np.intp)
        counts, lengths = np.zeros(n, np.intp), np.ones(n, np.intp)
        last = np.full(n, np.inf), np.full(n, -np.inf), np.full(n, -1, np.intp)
        return cls(*keys, counts, lengths, *last, np.full(n, place_of(np.inf)))


@compiled
def clear(best: Shortlists, slot: int, length: int) -> None:
    """Empty a list, and forget its bound."""
    best.counts[slot], best.lengths[slot] = 0, length
    best.last_ages[slot], best.last_gains[slot], best.last_ids[slot] = np.inf, -np.inf, -1
    best.last_places[slot] = place_of(np.inf)


@compiled
def enlist(best: Shortlists, slot: int, age: float, gain: float, node: int) -> None:
    """Put a partner on a lineage's list if it comes before the bound."""
    last = best.last_ages[slot], best.last_gains[slot], best.last_ids[slot]
    if not precedes(age, gain, node, *last):
        return
    ages, gains, ids = best.ages[slot], best.gains[slot], best.ids[slot]
    count, length = best.counts[slot], best.lengths[slot]
    place = min(count, length - 1)
    while place > 0 and precedes(
        age, gain, node, ages[place - 1], gains[place - 1], ids[place - 1]
    ):
        ages[place], gains[place], ids[place] = ages[place - 1], gains[place - 1], ids[place - 1]
        place -= 1
    ages[place], gains[place], ids[place] = age, gain, node
    best.counts[slot] = min(count + 1, length)
    if best.counts[slot] == length:
        best.last_ages[slot] = ages[length - 1]
        best.last_gains[slot] = gains[length - 1]
        best.last_ids[slot] = ids[length - 1]
        best.last_places[slot] = place_of(ages[length - 1] * (1.0 + LATER))


@compiled
def strike(best: Shortlists, n_live: int, left: int, right: int) -> None:
    """Take two nodes that have met off all lists."""
    for slot in range(n_live):
        ages, gains, ids = best.ages[slot], best.gains[slot], best.ids[slot]
        kept = 0
        for place in range(best.counts[slot]):
            if ids[place] != left and ids[place] != right:
                ages[kept], gains[kept], ids[kept] = ages[place], gains[place], ids[place]
                kept += 1
        best.counts[slot] = kept


@compiled
def scan(
    spec: PairSpec,
    test: Rejection,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    ids: IntArray,
    best: Shortlists,
    first_slot: int,
    last_slot: int,
    n_others: int,
    for_both: bool,
    length: int,
    n_terms: int,
) -> None:
    """Make the lists of some lineages anew from the first ``n_others``, or from those before each.

    ``for_both``: a lineage is put on its partners' lists as well. ``n_others`` is negative if
    those before are meant. (One entry for all uses: each would take seconds to compile.)
    """
    first, second = np.empty(n_terms), np.empty(n_terms)
    kept, one = np.empty(CHUNK, np.intp), np.empty(1, np.intp)
    limits = Limits(best.last_ages, best.last_gains, best.last_places)
    for slot in range(first_slot, last_slot + 1):
        clear(best, slot, length)
        end = slot if n_others < 0 else n_others
        start = 0 * end  # a literal 0 would be a type of its own to numba, and one more kernel
        while start < end:
            # Small steps first, for each pair that is found makes the limit stricter.
            stop = min(end, start + min(CHUNK, max(1, start)))
            n_kept = screen(
                spec, test, messages, spreads, ages, slot, start, stop, limits, for_both, first,
                kept,
            )  # fmt: skip
            for position in range(n_kept):
                j = kept[position]
                # The pairs before may have made it stricter in the midst of a step.
                if j == slot or (
                    test.is_on
                    and position > 0
                    and not screen(
                        spec, test, messages, spreads, ages, slot, j, j + 1, limits, for_both,
                        first, one,
                    )
                ):  # fmt: skip
                    continue
                age, gain = pair_key(spec, messages, spreads, ages, slot, j, first, second)
                # Most calls are spared: they cost as much as the key of complete rows.
                if age <= best.last_ages[slot]:
                    enlist(best, slot, age, gain, ids[j])
                if for_both and age <= best.last_ages[j]:
                    enlist(best, j, age, gain, ids[slot])
            start = stop


@compiled
def live_from(following: IntArray, node: int) -> int:
    """Return the first node from one on that has not met another; dead ones point further on."""
    while following[node] != node:
        following[node] = following[following[node]]
        node = following[node]
    return node


@compiled
def pick(n_live: int, ids: IntArray, best: Shortlists, following: IntArray) -> int:
    """Return the slot of the best key; that of an empty list is the best it can still have.

    Without the node numbers, thousands of equal rows would all have to be looked at again and
    again: the lists of all of them hold the same few.
    """
    winner, winner_age, winner_gain = -1, np.inf, -np.inf
    winner_low, winner_high, winner_is_empty = -1, -1, False
    for i in range(n_live):
        is_empty = best.counts[i] == 0
        if is_empty:
            age, gain = best.last_ages[i], best.last_gains[i]
        else:
            age, gain = best.ages[i, 0], best.gains[i, 0]
        if winner >= 0 and (age > winner_age or (age == winner_age and gain < winner_gain)):
            continue
        if is_empty:
            # All partners that are left come after the bound, which may be by their numbers only.
            partner = live_from(following, best.last_ids[i] + 1)
            if partner == ids[i]:
                partner = live_from(following, partner + 1)
        else:
            partner = best.ids[i, 0]
        low, high = min(ids[i], partner), max(ids[i], partner)
        if (
            winner < 0
            or age < winner_age
            or gain > winner_gain
            or (low, high, is_empty) < (winner_low, winner_high, winner_is_empty)
        ):
            winner, winner_age, winner_gain = i, age, gain
            winner_low, winner_high, winner_is_empty = low, high, is_empty
    return winner


@compiled
def scan_step(
    spec: PairSpec,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    n_live: int,
    ids: IntArray,
    now: float,
    criterion: int,
    n_terms: int,
) -> tuple[int, int, float]:
    """Return the slots of the pair that is best given all lineages left, and its age."""
    first, second = np.empty(n_terms), np.empty(n_terms)
    rate = 0.5 * n_live * (n_live - 1)
    best_i, best_j, best_duration_found = -1, -1, 0.0
    best_key, best_tie, best_low, best_high = np.inf, np.inf, -1, -1
    for i in range(n_live):
        for j in range(i):
            count = prepare_pair(
                spec,
                messages[i],
                spreads[i],
                ages[i],
                messages[j],
                spreads[j],
                ages[j],
                now,
                first,
                second,
            )
            duration = best_duration(spec, rate, first, second, count)
            gain = log_local(spec, first, second, count, duration)
            if criterion == MAX_PROBABILITY:
                key, tie = rounded(rate * duration - gain), 0.0
            else:
                key, tie = rounded(duration), rounded(-gain)
            low, high = min(ids[i], ids[j]), max(ids[i], ids[j])
            if (key, tie, low, high) < (best_key, best_tie, best_low, best_high):
                best_key, best_tie, best_low, best_high = key, tie, low, high
                best_i, best_j, best_duration_found = i, j, duration
    return best_i, best_j, rounded(now + best_duration_found)
