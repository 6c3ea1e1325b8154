"""Compiled arithmetic of one pair of lineages: its likelihood, best duration, and proposal.

Ages run backwards from the leaves: 0 at the leaves, growing towards the root. A pair of lineages
that meet at age ``base + x`` has the local likelihood Z(x), a short sum of terms in both
processes, which `prepare_pair` packs into two arrays and everything else reads from there:

* Gaussian: ``log Z(x) = -1/2 sum_j [w log(2 pi s_j) + g_j / s_j]``, ``s_j = first_j + 2 x``,
  ``g_j = second_j`` (the squared difference of the messages' means); complete rows have one term
  with w = number of columns, rows with holes one term of w = 1 for each column both have;
* sites: ``log Z(x) = sum_j log(1 - first_j exp(-second_j x))``, one term a site.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled_in
from bhclust._validation import FloatArray

COMPLETE, PARTIAL, SITES = 0, 1, 2

#: segments of a proposal on either side of its mode
HALF = 12
SEGMENTS = 2 * HALF

# How far the log density may fall from its mode to the ends of a proposal's grid: what lies
# beyond has a share of about exp(-8), and is left to exponential tails.
_SHALLOW, _DEEP = 7.0, 13.0
_LOG_TWO_PI = math.log(2.0 * math.pi)

Int64Array = npt.NDArray[np.int64]
#: compiles the kernels of this package, anew when any of its files has changed
compiled = compiled_in(Path(__file__).parent)


class PairSpec(NamedTuple):
    """A process as the compiled loops see it, in whitened units.

    Attributes
    ----------
    kind : int
        `COMPLETE` or `PARTIAL` (Brownian without or with missing entries) or `SITES` (mutation).
    n_columns : int
        Columns of the table; complete Brownian messages may have fewer coordinates.
    offsets : array of int, shape (n_columns + 1,)
        Where the states of each site begin in a message; only for sites.
    equilibrium : array, shape (offsets[-1],)
        Equilibrium probabilities of all sites in a row; only for sites.
    rates : array, shape (n_columns,)
        Mutation rate of each site; only for sites.
    root_mean : array, shape (n_columns,)
    root_variance : float
        Infinite for a flat root prior; both only for Brownian.
    """

    kind: int
    n_columns: int
    offsets: Int64Array
    equilibrium: FloatArray
    rates: FloatArray
    root_mean: FloatArray
    root_variance: float


@compiled
def prepare_pair(
    spec: PairSpec,
    left: FloatArray,
    left_spread: FloatArray,
    left_age: float,
    right: FloatArray,
    right_spread: FloatArray,
    right_age: float,
    base: float,
    first: FloatArray,
    second: FloatArray,
) -> int:
    """Pack the pair's likelihood as a function of the age beyond ``base``; number of terms."""
    elapsed = (base - left_age) + (base - right_age)
    count = 0
    if spec.kind == COMPLETE:
        total = 0.0
        for d in range(len(left)):
            difference = left[d] - right[d]
            total += difference * difference
        first[0] = left_spread[0] + right_spread[0] + elapsed
        second[0] = total
        count = 1
    elif spec.kind == PARTIAL:
        for d in range(spec.n_columns):
            spread = left_spread[d] + right_spread[d]
            if spread < np.inf:
                difference = left[d] - right[d]
                first[count] = spread + elapsed
                second[count] = difference * difference
                count += 1
    else:
        for d in range(spec.n_columns):
            overlap = 0.0
            for k in range(spec.offsets[d], spec.offsets[d + 1]):
                overlap += spec.equilibrium[k] * (left[k] * right[k])
            remainder = 1.0 - overlap
            if remainder != 0.0:
                if elapsed > 0.0:
                    remainder *= math.exp(-spec.rates[d] * elapsed)
                first[count] = remainder
                second[count] = 2.0 * spec.rates[d]
                count += 1
    return count


@compiled
def log_local(spec: PairSpec, first: FloatArray, second: FloatArray, count: int, x: float) -> float:
    """Return log Z(x)."""
    total = 0.0
    if spec.kind == SITES:
        # One logarithm for many sites: the product is rescaled before it can leave the range.
        product = 1.0
        for j in range(count):
            product *= 1.0 - first[j] * math.exp(-second[j] * x)
            if product < 1e-200 or product > 1e200:
                if product <= 0.0:
                    return -np.inf
                total += math.log(product)
                product = 1.0
        return total + math.log(product) if product > 0.0 else -np.inf
    weight = float(spec.n_columns) if spec.kind == COMPLETE else 1.0
    for j in range(count):
        s = first[j] + 2.0 * x
        if s <= 0.0:
            return np.inf if second[j] == 0.0 else -np.inf
        total -= 0.5 * (weight * (_LOG_TWO_PI + math.log(s)) + second[j] / s)
    return total


@compiled
def local_slopes(
    spec: PairSpec, first: FloatArray, second: FloatArray, count: int, x: float
) -> tuple[float, float]:
    """Return the first and second derivatives of log Z at x > 0."""
    slope, bend = 0.0, 0.0
    if spec.kind == SITES:
        for j in range(count):
            decayed = first[j] * math.exp(-second[j] * x)
            share = second[j] / (1.0 - decayed)
            slope += decayed * share
            bend -= decayed * share * share
        return slope, bend
    weight = float(spec.n_columns) if spec.kind == COMPLETE else 1.0
    for j in range(count):
        inverse = 1.0 / (first[j] + 2.0 * x)
        slope += inverse * (second[j] * inverse - weight)
        bend += 2.0 * inverse * inverse * (weight - 2.0 * second[j] * inverse)
    return slope, bend


@compiled
def best_duration(
    spec: PairSpec, rate: float, first: FloatArray, second: FloatArray, count: int
) -> float:
    """Return the x >= 0 that maximises ``-rate x + log Z(x)``.

    Closed form for complete Gaussian rows, else Newton's method on x f'(x) in log x inside a
    bracket. Agreement and disagreement can make two peaks, one at 0 and one inside: if the
    function falls at 0, a few points inside the bracket are tried, and the higher peak wins.
    """
    if count == 0:
        return 0.0
    if spec.kind == COMPLETE:
        # (sqrt(D^2 + 4 C g) - D) / (2 C) without its cancellation for small g
        columns = float(spec.n_columns)
        s = 2.0 * second[0] / (math.sqrt(columns * columns + 4.0 * rate * second[0]) + columns)
        return float(max(0.0, 0.5 * (s - first[0])))
    top = 0.0
    if spec.kind == SITES:
        for j in range(count):
            # The slope of a site is at most 1 / x, and negative where it agrees.
            if first[j] > 0.0:
                top += 1.0
        top /= rate
    else:
        for j in range(count):
            top += second[j]
        top = 0.5 * math.sqrt(top / rate)
    if top <= 0.0:
        return 0.0
    rises_at_zero = _rises_at_zero(spec, rate, first, second, count)
    low, high = 0.0, top
    if not rises_at_zero:
        probe = 0.5 * top
        while probe > 0.01 * top:
            if local_slopes(spec, first, second, count, probe)[0] > rate:
                low = probe
                break
            high = probe
            probe *= 0.25
        if low == 0.0:
            return 0.0
    inside = _root_of_slope(spec, rate, first, second, count, low, high)
    if rises_at_zero:
        return inside
    at_zero = log_local(spec, first, second, count, 0.0)
    return (
        inside if log_local(spec, first, second, count, inside) - rate * inside > at_zero else 0.0
    )


@compiled
def _rises_at_zero(
    spec: PairSpec, rate: float, first: FloatArray, second: FloatArray, count: int
) -> bool:
    infinite = False
    for j in range(count):
        if spec.kind == SITES:
            if first[j] >= 1.0:
                return True
        elif first[j] <= 0.0:
            if second[j] > 0.0:
                return True
            infinite = True
    if infinite:
        # Identical in every shared column and without any variance: infinitely likely at 0.
        return False
    return bool(local_slopes(spec, first, second, count, 0.0)[0] > rate)


@compiled
def _root_of_slope(
    spec: PairSpec,
    rate: float,
    first: FloatArray,
    second: FloatArray,
    count: int,
    low: float,
    high: float,
) -> float:
    x = 0.5 * (low + high)
    for _ in range(100):
        slope, bend = local_slopes(spec, first, second, count, x)
        value = x * (slope - rate)
        if value > 0.0:
            low = x
        else:
            high = x
        derivative = value + x * x * bend
        step = -value / derivative if derivative < 0.0 else np.inf
        proposed = x * math.exp(step) if abs(step) < 3.0 else np.inf
        if not low < proposed < high:
            proposed = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        # Steps shrink quadratically, so after one this small the next would change nothing.
        if abs(proposed - x) <= 1e-8 * x:
            return proposed
        x = proposed
    return x


@compiled
def merge_pair(
    spec: PairSpec,
    left: FloatArray,
    left_spread: FloatArray,
    left_age: float,
    right: FloatArray,
    right_spread: FloatArray,
    right_age: float,
    age: float,
    out: FloatArray,
    out_spread: FloatArray,
) -> None:
    """Write the message of the node where two lineages meet at ``age``; may overwrite ``left``."""
    if spec.kind == SITES:
        for d in range(spec.n_columns):
            keep_left = math.exp(-spec.rates[d] * (age - left_age))
            keep_right = math.exp(-spec.rates[d] * (age - right_age))
            total = 0.0
            for k in range(spec.offsets[d], spec.offsets[d + 1]):
                value = 1.0 - keep_left * (1.0 - left[k])
                value *= 1.0 - keep_right * (1.0 - right[k])
                out[k] = value
                total += spec.equilibrium[k] * value
            for k in range(spec.offsets[d], spec.offsets[d + 1]):
                out[k] /= total
        return
    shared = spec.kind == COMPLETE
    left_share, right_share = 0.0, 0.0
    for d in range(len(left)):
        if d == 0 or not shared:
            s_left = left_spread[d] + (age - left_age)
            s_right = right_spread[d] + (age - right_age)
            if s_left == np.inf:
                left_share, right_share, out_spread[d] = 0.0, 1.0, s_right
            elif s_right == np.inf:
                left_share, right_share, out_spread[d] = 1.0, 0.0, s_left
            elif s_left + s_right == 0.0:
                left_share, right_share, out_spread[d] = 0.5, 0.5, 0.0
            else:
                left_share = s_right / (s_left + s_right)
                right_share = s_left / (s_left + s_right)
                out_spread[d] = s_left * left_share
        out[d] = left_share * left[d] + right_share * right[d]


@compiled
def log_root_factor(spec: PairSpec, message: FloatArray, spread: FloatArray) -> float:
    """Return the log density of the root's message under a proper root prior, else 0."""
    if spec.kind == SITES or spec.root_variance == np.inf:
        return 0.0
    total = 0.0
    for d in range(spec.n_columns):
        variance = spread[0 if spec.kind == COMPLETE else d]
        if variance < np.inf:
            variance += spec.root_variance
            difference = message[d] - spec.root_mean[d]
            total -= 0.5 * (_LOG_TWO_PI + math.log(variance) + difference * difference / variance)
    return total


@compiled
def _log_target(
    spec: PairSpec, rate: float, first: FloatArray, second: FloatArray, count: int, u: float
) -> float:
    x = math.exp(u)
    return u - rate * x + log_local(spec, first, second, count, x)


@compiled
def _mode(
    spec: PairSpec, rate: float, first: FloatArray, second: FloatArray, count: int
) -> tuple[float, float]:
    """Return the mode of the log density in u = log x, and its curvature there."""
    low, high = -700.0, 700.0
    u = -math.log(rate)
    for _ in range(60):
        x = math.exp(u)
        slope, bend = local_slopes(spec, first, second, count, x)
        gradient = 1.0 + x * (slope - rate)
        curvature = gradient - 1.0 + x * x * bend
        if gradient > 0.0:
            low = u
        else:
            high = u
        step = -gradient / curvature if curvature < 0.0 else (2.0 if gradient > 0.0 else -2.0)
        step = min(max(step, -4.0), 4.0)
        proposed = u + step
        if not low < proposed < high:
            proposed = 0.5 * (low + high)
        if abs(proposed - u) < 0.01:
            return u, curvature
        u = proposed
    return u, -1.0


@compiled
def _reach(
    spec: PairSpec,
    rate: float,
    first: FloatArray,
    second: FloatArray,
    count: int,
    mode: float,
    peak: float,
    step: float,
) -> float:
    """Return a point on one side of the mode where the log density has fallen far enough."""
    near, far = 0.0, np.inf
    distance = 3.5 * step
    for _ in range(40):
        fall = peak - _log_target(spec, rate, first, second, count, mode + distance)
        if fall < _SHALLOW:
            near = distance
        elif fall > _DEEP:
            far = distance
        else:
            break
        distance = 1.7 * distance if far == np.inf else 0.5 * (near + far)
    return mode + distance


@compiled
def build_proposal(
    spec: PairSpec,
    rate: float,
    first: FloatArray,
    second: FloatArray,
    count: int,
    grid: FloatArray,
    level: FloatArray,
    mass: FloatArray,
) -> float:
    """Fit ``exp(-rate x) Z(x)`` by straight lines in (log x, log density); return log of its mass.

    ``grid`` and ``level`` hold `SEGMENTS` + 1 knots, the levels measured from the returned log
    mass' own peak, ``level[SEGMENTS + 1]`` that peak; ``mass`` holds the left tail, the segments
    and the right tail. The fit has an exact density, survival function and sampler, so that
    weights computed against it are exact whatever its error.
    """
    mode, curvature = _mode(spec, rate, first, second, count)
    peak = _log_target(spec, rate, first, second, count, mode)
    width = 1.0 / math.sqrt(max(-curvature, 1e-6))
    left = _reach(spec, rate, first, second, count, mode, peak, -min(width, 3.0))
    right = _reach(spec, rate, first, second, count, mode, peak, min(width, 3.0))
    for i in range(SEGMENTS + 1):
        # Closer together near the mode, where the density bends and most of its mass is.
        share = (abs(i - HALF) / HALF) ** 1.5
        grid[i] = mode + share * ((left if i < HALF else right) - mode)
        level[i] = _log_target(spec, rate, first, second, count, grid[i]) - peak
    level[SEGMENTS + 1] = peak
    total = 0.0
    # Towards x = 0 the density of log x cannot fall more slowly than exp(u): slope 1 is safe.
    mass[0] = math.exp(level[0]) / _left_slope(grid, level)
    for i in range(SEGMENTS):
        rise = level[i + 1] - level[i]
        step = grid[i + 1] - grid[i]
        if abs(rise) < 1e-9:
            mass[i + 1] = step * math.exp(level[i])
        else:
            mass[i + 1] = step * math.exp(level[i]) * math.expm1(rise) / rise
    mass[SEGMENTS + 1] = math.exp(level[SEGMENTS]) / _right_slope(grid, level)
    for i in range(SEGMENTS + 2):
        total += mass[i]
    return peak + math.log(total)


@compiled
def _left_slope(grid: FloatArray, level: FloatArray) -> float:
    return float(min(1.0, max(0.1, (level[1] - level[0]) / (grid[1] - grid[0]))))


@compiled
def _right_slope(grid: FloatArray, level: FloatArray) -> float:
    last = SEGMENTS
    return float(max(0.1, (level[last - 1] - level[last]) / (grid[last] - grid[last - 1])))


@compiled
def mass_beyond(grid: FloatArray, level: FloatArray, mass: FloatArray, x: float) -> float:
    """Return the unnormalised mass of a proposal above x."""
    u = math.log(x) if x > 0.0 else -np.inf
    if u >= grid[SEGMENTS]:
        fall = _right_slope(grid, level) * (u - grid[SEGMENTS])
        return float(mass[SEGMENTS + 1] * math.exp(-fall))
    total = float(mass[SEGMENTS + 1])
    for i in range(SEGMENTS - 1, -1, -1):
        if u < grid[i]:
            total += mass[i + 1]
            continue
        slope = (level[i + 1] - level[i]) / (grid[i + 1] - grid[i])
        rest = grid[i + 1] - u
        at_u = math.exp(level[i] + slope * (u - grid[i]))
        if abs(slope * rest) < 1e-9:
            return float(total + rest * at_u)
        return float(total + at_u * math.expm1(slope * rest) / slope)
    return float(total + mass[0] * -math.expm1(_left_slope(grid, level) * (u - grid[0])))


@compiled
def draw_beyond(
    grid: FloatArray, level: FloatArray, mass: FloatArray, beyond: float
) -> tuple[float, float]:
    """Return the u above which a proposal has the mass ``beyond``, and its log density there."""
    if beyond <= mass[SEGMENTS + 1]:
        slope = _right_slope(grid, level)
        height = math.log(beyond * slope)
        return grid[SEGMENTS] + (level[SEGMENTS] - height) / slope, height
    rest = beyond - mass[SEGMENTS + 1]
    for i in range(SEGMENTS - 1, -1, -1):
        if rest > mass[i + 1]:
            rest -= mass[i + 1]
            continue
        slope = (level[i + 1] - level[i]) / (grid[i + 1] - grid[i])
        shrunk = rest * math.exp(-level[i + 1])
        if abs(slope) < 1e-9:
            u = grid[i + 1] - shrunk
        else:
            u = grid[i + 1] + math.log1p(-slope * shrunk) / slope
        u = min(max(u, grid[i]), grid[i + 1])
        return u, level[i] + slope * (u - grid[i])
    slope = _left_slope(grid, level)
    share = min(rest / mass[0], 1.0 - 1e-16)
    height = level[0] + math.log1p(-share)
    return grid[0] + (height - level[0]) / slope, height


@compiled
def level_at(grid: FloatArray, level: FloatArray, u: float) -> float:
    """Return the log density of a proposal at u, measured as its levels are."""
    if u <= grid[0]:
        return float(level[0] + _left_slope(grid, level) * (u - grid[0]))
    for i in range(SEGMENTS):
        if u <= grid[i + 1]:
            slope = (level[i + 1] - level[i]) / (grid[i + 1] - grid[i])
            return float(level[i] + slope * (u - grid[i]))
    return float(level[SEGMENTS] - _right_slope(grid, level) * (u - grid[SEGMENTS]))


@compiled
def log_correction(
    spec: PairSpec,
    rate: float,
    first: FloatArray,
    second: FloatArray,
    count: int,
    u: float,
    height: float,
    peak: float,
) -> float:
    """Return log of target over proposal at u, both unnormalised."""
    return _log_target(spec, rate, first, second, count, u) - peak - height
