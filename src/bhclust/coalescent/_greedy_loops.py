"""Compiled scans of the greedy searches.

Live lineages sit in the first slots of the arrays, ``ids`` says which node each is. A pair's key
is (age, gain): more recent is better, then the larger local likelihood, then the lower pair of
node numbers. Ages and gains are rounded to about ten digits before they are compared, so that
ties do not hang on the order of additions.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.coalescent._loops import (
    COMPLETE,
    PairSpec,
    best_duration,
    compiled,
    log_local,
    prepare_pair,
)

BoolArray = npt.NDArray[np.bool_]
MAX_PROBABILITY, MIN_DURATION = 0, 1
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
        for d in range(spec.n_columns):
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


@compiled
def scan_all(
    spec: PairSpec,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    n_live: int,
    ids: IntArray,
    best_age: FloatArray,
    best_gain: FloatArray,
    best_id: IntArray,
    n_terms: int,
) -> None:
    """Find the best partner of every lineage from scratch."""
    first, second = np.empty(n_terms), np.empty(n_terms)
    for i in range(n_live):
        best_age[i], best_gain[i], best_id[i] = np.inf, -np.inf, -1
    for i in range(n_live):
        for j in range(i):
            age, gain = pair_key(spec, messages, spreads, ages, i, j, first, second)
            if precedes(age, gain, ids[j], best_age[i], best_gain[i], best_id[i]):
                best_age[i], best_gain[i], best_id[i] = age, gain, ids[j]
            if precedes(age, gain, ids[i], best_age[j], best_gain[j], best_id[j]):
                best_age[j], best_gain[j], best_id[j] = age, gain, ids[i]


@compiled
def scan_one(
    spec: PairSpec,
    messages: FloatArray,
    spreads: FloatArray,
    ages: FloatArray,
    n_live: int,
    ids: IntArray,
    best_age: FloatArray,
    best_gain: FloatArray,
    best_id: IntArray,
    stale: BoolArray,
    slot: int,
    is_new: bool,
    n_terms: int,
) -> None:
    """Find the best partner of one lineage; a new lineage may also become that of others."""
    first, second = np.empty(n_terms), np.empty(n_terms)
    best_age[slot], best_gain[slot], best_id[slot] = np.inf, -np.inf, -1
    stale[slot] = False
    for j in range(n_live):
        if j == slot:
            continue
        age, gain = pair_key(spec, messages, spreads, ages, slot, j, first, second)
        if precedes(age, gain, ids[j], best_age[slot], best_gain[slot], best_id[slot]):
            best_age[slot], best_gain[slot], best_id[slot] = age, gain, ids[j]
        # The key of a stale lineage is a bound: all its partners come after it or tie with it.
        # A new partner that beats the bound is the best; one that ties is settled by a rescan.
        if is_new and (
            age < best_age[j]
            or (age == best_age[j] and gain > best_gain[j])
            or (
                not stale[j]
                and age == best_age[j]
                and gain == best_gain[j]
                and ids[slot] < best_id[j]
            )
        ):
            best_age[j], best_gain[j], best_id[j] = age, gain, ids[slot]
            stale[j] = False


@compiled
def pick(
    n_live: int,
    ids: IntArray,
    best_age: FloatArray,
    best_gain: FloatArray,
    best_id: IntArray,
    stale: BoolArray,
) -> int:
    """Return the slot of the best key; a stale one wins ties, for it must be looked at again."""
    winner = 0
    for i in range(1, n_live):
        if best_age[i] != best_age[winner]:
            better = best_age[i] < best_age[winner]
        elif best_gain[i] != best_gain[winner]:
            better = best_gain[i] > best_gain[winner]
        elif stale[i] != stale[winner]:
            better = stale[i]
        else:
            low = min(ids[i], best_id[i])
            other_low = min(ids[winner], best_id[winner])
            better = low < other_low or (
                low == other_low and max(ids[i], best_id[i]) < max(ids[winner], best_id[winner])
            )
        if better:
            winner = i
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
