"""Compiled merge scores: the formulas of `bhclust.frontier`, one pair at a time.

They must round as the NumPy path does, because ties are decided on rounded scores.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from bhclust._kernels.compile import compiled, compiled_inside
from bhclust._validation import FloatArray
from bhclust.frontier import Field, Operation
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose

_WEIGHT = int(Field.WEIGHT)
_LOG_MASS = LOG_MASS = int(Field.LOG_MASS)
_LOG_D = int(Field.LOG_D)
_LOG_EVIDENCE = LOG_EVIDENCE = int(Field.LOG_EVIDENCE)
_LOG_1M_R = int(Field.LOG_1M_R)
_LOG_1M_PI = int(Field.LOG_1M_PI)
_N_CHILDREN = int(Field.N_CHILDREN)
_CHILD_MASS = int(Field.CHILD_MASS)
_CHILD_LOG_D = int(Field.CHILD_LOG_D)
_BEST_SCORE = int(Field.BEST_SCORE)
_BEST_TIEBREAK = int(Field.BEST_TIEBREAK)
_NEEDED_GAIN = int(Field.NEEDED_GAIN)
_RUNNER_UP = int(Field.RUNNER_UP)

_JOIN = int(Operation.JOIN)
_ABSORB_RIGHT = int(Operation.ABSORB_RIGHT)
_ABSORB_LEFT = int(Operation.ABSORB_LEFT)
_COLLAPSE = int(Operation.COLLAPSE)

_DIRICHLET_PROCESS, _CONSTANT, _ROSE = 0, 1, 2

_ODDS_GRID = 2.0**-30
_RATIO_DIGITS = 2.0**33
# Gains closer than this to what is needed are looked at in full.
_SLACK = 1e-6
# Long lists are searched in blocks of so many: first for the largest number of each block, in four
# parts that do not wait for one another, then inside the blocks that can hold what is sought.
_BLOCK = 128


class MixingCode(NamedTuple):
    """A mixing prior as compiled code takes it."""

    code: int
    parameter: float


@lru_cache(maxsize=64)
def mixing_code(mixing: Mixing) -> MixingCode:
    """Return the code and the parameter (log α, or γ) of a mixing prior."""
    if isinstance(mixing, DirichletProcess):
        return MixingCode(_DIRICHLET_PROCESS, math.log(mixing.alpha))
    if isinstance(mixing, Constant):
        return MixingCode(_CONSTANT, float(mixing.gamma))
    if isinstance(mixing, Rose):
        return MixingCode(_ROSE, float(mixing.gamma))
    raise TypeError(f"no compiled code for the mixing prior {mixing!r}")


def log_gamma_of_sizes(n: int) -> FloatArray:
    """Return ``log Γ(size)`` for sizes 0 … n (0 is never asked for)."""
    return np.asarray(gammaln(np.maximum(np.arange(n + 1), 1)))


@compiled_inside
def _logaddexp(x, y):
    if x == y:
        return x + math.log(2.0)
    larger, smaller = (x, y) if x > y else (y, x)
    return larger + math.log1p(math.exp(smaller - larger))


@compiled
def _round_relative(x):
    if x == 0.0 or math.isinf(x):
        return x
    mantissa, exponent = math.frexp(x)
    return math.ldexp(np.rint(mantissa * _RATIO_DIGITS) / _RATIO_DIGITS, exponent)


@compiled
def _log_one(code, parameter, log_gamma, weight, n_children):
    if code == _DIRICHLET_PROCESS:
        return parameter + log_gamma[int(weight)]
    if code == _CONSTANT:
        return math.log(parameter)
    return math.log(-math.expm1((n_children - 1) * math.log1p(-parameter)))


@compiled_inside
def _log_split(code, parameter, n_children):
    if code == _DIRICHLET_PROCESS:
        return 0.0
    if code == _CONSTANT:
        return math.log1p(-parameter)
    return (n_children - 1) * math.log1p(-parameter)


@compiled_inside
def _retire(values, partner, member):
    """Take a merged cluster out: whatever it is compared with, it loses."""
    values[_LOG_MASS, member] = np.inf
    values[_LOG_EVIDENCE, member] = np.inf
    values[_BEST_SCORE, member] = -np.inf
    values[_BEST_TIEBREAK, member] = -np.inf
    values[_NEEDED_GAIN, member] = np.inf
    partner[member] = -1


@compiled
def merge_node(values, partner, i, j, k, operation, log_f, code, parameter, log_gamma):
    """Fill the column of the merged cluster k (`Frontier.merge`) and retire i and j."""
    n_children, mass, log_d = 0.0, 0.0, 0.0
    for side in range(2):
        node = i if side == 0 else j
        opened = operation == _COLLAPSE
        opened = opened or (operation == _ABSORB_RIGHT and side == 0)
        opened = opened or (operation == _ABSORB_LEFT and side == 1)
        if opened:
            n_children += values[_N_CHILDREN, node]
            mass += values[_CHILD_MASS, node]
            log_d += values[_CHILD_LOG_D, node]
        else:
            n_children += 1
            mass += values[_LOG_MASS, node]
            log_d += values[_LOG_D, node]
    weight = values[_WEIGHT, i] + values[_WEIGHT, j]
    prior_one = _log_one(code, parameter, log_gamma, weight, n_children)
    log_split = _log_split(code, parameter, n_children)
    one = prior_one + log_f
    split = log_split + mass
    total_d = _logaddexp(prior_one, log_split + log_d)
    values[_WEIGHT, k] = weight
    values[_LOG_MASS, k] = _logaddexp(one, split)
    values[_LOG_D, k] = total_d if code == _DIRICHLET_PROCESS else 0.0
    values[_LOG_EVIDENCE, k] = values[_LOG_MASS, k] - values[_LOG_D, k]
    values[_LOG_1M_R, k] = -_logaddexp(0.0, one - split)
    values[_LOG_1M_PI, k] = log_split + log_d - total_d
    values[_N_CHILDREN, k] = n_children
    values[_CHILD_MASS, k] = mass
    values[_CHILD_LOG_D, k] = log_d
    _retire(values, partner, i)
    _retire(values, partner, j)


@compiled
def replace_members(clusters, n_clusters, i, j, k, slot):
    """Take i and j out of the ordered list of merged clusters, append k; return the new length.

    ``clusters`` has a row of ids and a row of slots; single leaves are not in it.
    """
    kept = 0
    for p in range(n_clusters):
        if clusters[0, p] != i and clusters[0, p] != j:
            clusters[0, kept] = clusters[0, p]
            clusters[1, kept] = clusters[1, p]
            kept += 1
    clusters[0, kept] = k
    clusters[1, kept] = slot
    return kept + 1


@compiled_inside
def _largest_of_block(of, ids, start, stop):
    a, b, c, d = -np.inf, -np.inf, -np.inf, -np.inf
    p = start
    while p + 4 <= stop:
        s, t, u, v = of[ids[p]], of[ids[p + 1]], of[ids[p + 2]], of[ids[p + 3]]
        a = s if s > a else a
        b = t if t > b else b
        c = u if u > c else c
        d = v if v > d else d
        p += 4
    while p < stop:
        s = of[ids[p]]
        a = s if s > a else a
        p += 1
    return max(max(a, b), max(c, d))


@compiled
def best_of(values, window, clusters):
    """Return the live cluster with the best score, then tiebreak, then the lowest id."""
    best_score = values[_BEST_SCORE]
    best, score, tiebreak = -1, -np.inf, -np.inf
    for ids in (window, clusters):
        for start in range(0, len(ids), _BLOCK):
            stop = min(start + _BLOCK, len(ids))
            if _largest_of_block(best_score, ids, start, stop) < score:
                continue
            for p in range(start, stop):
                s = best_score[ids[p]]
                if s >= score:
                    t = values[_BEST_TIEBREAK, ids[p]]
                    if s > score or t > tiebreak:
                        best, score, tiebreak = ids[p], s, t
    return best


@compiled
def scan_odds(values, partner, stale, window, clusters, log_f, i, code, parameter, log_gamma):
    """Find cluster i's best partner by posterior odds among window and clusters."""
    # Everything is written out in the loops: a call that passes arrays costs more than its work.
    weight, mass, best_score = values[_WEIGHT], values[_LOG_MASS], values[_BEST_SCORE]
    sized = code == _DIRICHLET_PROCESS
    fixed = parameter if sized else math.log(parameter) - math.log1p(-parameter)
    single = fixed + log_gamma[int(weight[i]) + 1] if sized else fixed
    best, score, runner_up = -1, -np.inf, -np.inf
    for p in range(len(window)):
        m = window[p]
        raw = single + log_f[p] - (mass[i] + mass[m])
        # Most are far from the best two so far and need no rounding.
        if raw > runner_up - _ODDS_GRID:
            rounded = np.rint(raw / _ODDS_GRID) * _ODDS_GRID
            if rounded > score:
                best, score, runner_up = m, rounded, score
            elif rounded > runner_up:
                runner_up = rounded
    for p in range(len(clusters)):
        m = clusters[p]
        prior = fixed + log_gamma[int(weight[i] + weight[m])] if sized else fixed
        raw = prior + log_f[len(window) + p] - (mass[i] + mass[m])
        if raw > runner_up - _ODDS_GRID:
            rounded = np.rint(raw / _ODDS_GRID) * _ODDS_GRID
            if rounded > score:
                best, score, runner_up = m, rounded, score
            elif rounded > runner_up:
                runner_up = rounded
    stale[i] = False
    partner[i] = best
    best_score[i] = score
    values[_RUNNER_UP, i] = runner_up
    values[_BEST_TIEBREAK, i] = 0.0 if best >= 0 else -np.inf


@compiled
def offer_odds(
    values, partner, stale, window, clusters, log_f, k, i, j, code, parameter, log_gamma
):
    """Let the new cluster k = i ∪ j compete for being the best partner of others (by odds)."""
    weight, mass, best_score = values[_WEIGHT], values[_LOG_MASS], values[_BEST_SCORE]
    runner_up = values[_RUNNER_UP]
    sized = code == _DIRICHLET_PROCESS
    fixed = parameter if sized else math.log(parameter) - math.log1p(-parameter)
    single = fixed + log_gamma[int(weight[k]) + 1] if sized else fixed
    for p in range(len(window)):
        m = window[p]
        if partner[m] == i or partner[m] == j:
            partner[m] = -1
            best_score[m] = runner_up[m]
            stale[m] = True
        raw = single + log_f[p] - (mass[k] + mass[m])
        if raw > runner_up[m] - _ODDS_GRID:
            rounded = np.rint(raw / _ODDS_GRID) * _ODDS_GRID
            # Only a strictly better offer wins: on a tie every older partner's id is lower.
            if rounded > best_score[m]:
                runner_up[m] = best_score[m]
                best_score[m] = rounded
                values[_BEST_TIEBREAK, m] = 0.0
                partner[m] = k
                stale[m] = False
            elif rounded > runner_up[m]:
                runner_up[m] = rounded
    for p in range(len(clusters)):
        m = clusters[p]
        if partner[m] == i or partner[m] == j:
            partner[m] = -1
            best_score[m] = runner_up[m]
            stale[m] = True
        prior = fixed + log_gamma[int(weight[k] + weight[m])] if sized else fixed
        raw = prior + log_f[len(window) + p] - (mass[k] + mass[m])
        if raw > runner_up[m] - _ODDS_GRID:
            rounded = np.rint(raw / _ODDS_GRID) * _ODDS_GRID
            if rounded > best_score[m]:
                runner_up[m] = best_score[m]
                best_score[m] = rounded
                values[_BEST_TIEBREAK, m] = 0.0
                partner[m] = k
                stale[m] = False
            elif rounded > runner_up[m]:
                runner_up[m] = rounded


@compiled
def _ratio_terms(values, i, j, operation, code, parameter, log_gamma):
    """Return log P, log(1 - P), log Q, log(1 - ρ) of an operation (`frontier._RatioTerms`)."""
    left = operation in (_ABSORB_RIGHT, _COLLAPSE)
    right = operation in (_ABSORB_LEFT, _COLLAPSE)
    log_1m_rho, log_1m_prior, n_children, n_opened = 0.0, 0.0, 2.0, 0.0
    if left:
        log_1m_rho += values[_LOG_1M_R, i]
        log_1m_prior += values[_LOG_1M_PI, i]
        n_children += values[_N_CHILDREN, i] - 1
        n_opened += 1
    if right:
        log_1m_rho += values[_LOG_1M_R, j]
        log_1m_prior += values[_LOG_1M_PI, j]
        n_children += values[_N_CHILDREN, j] - 1
        n_opened += 1
    if code == _DIRICHLET_PROCESS:
        weight = values[_WEIGHT, i] + values[_WEIGHT, j]
        log_kappa = parameter + log_gamma[int(weight)] - (values[_LOG_D, i] + values[_LOG_D, j])
        log_q = -_logaddexp(log_kappa, log_1m_prior)
        return log_kappa + log_q, log_1m_prior + log_q, log_q, log_1m_rho
    log_1m_gamma = math.log1p(-parameter)
    if code == _CONSTANT:
        return math.log(parameter), log_1m_gamma, (1 - n_opened) * log_1m_gamma, log_1m_rho
    log_1m_p = (n_children - 1) * log_1m_gamma
    return math.log(-math.expm1(log_1m_p)), log_1m_p, log_1m_gamma, log_1m_rho


@compiled_inside
def _sign(x):
    if x > 0:
        return 1.0
    return -1.0 if x < 0 else 0.0


@compiled_inside
def _log_size(larger, gap):
    """Return the log of a difference of exponentials, from the larger log and the gap."""
    if gap == 0.0:
        return -np.inf
    return larger + math.log(-math.expm1(-abs(gap)))


@compiled
def _lead(a, b, gain):
    """Return the sign of ``L_a - L_b`` for two operations on one pair (`frontier._lead`)."""
    gap_p = b[1] - a[1]
    log_p = _log_size(max(a[1], b[1]), gap_p) + gain
    gap_b = (a[2] - b[2]) + (a[3] - b[3])
    log_b = _log_size(max(a[2] + a[3], b[2] + b[3]), gap_b)
    if log_p == -np.inf and log_b == -np.inf:
        return 0.0
    excess = np.rint((log_p - log_b) / _ODDS_GRID)
    if excess > 0:
        return _sign(gap_p)
    if excess < 0:
        return _sign(gap_b)
    return _sign(gap_p) + _sign(gap_b)


@compiled_inside
def _best_ratio(values, i, j, gain, code, parameter, log_gamma):
    """Return the best operation of a pair and its terms (`frontier._best_operations`)."""
    left_open = values[_N_CHILDREN, i] >= 2
    right_open = values[_N_CHILDREN, j] >= 2
    best = _JOIN
    terms = _ratio_terms(values, i, j, _JOIN, code, parameter, log_gamma)
    for operation in (_ABSORB_RIGHT, _ABSORB_LEFT, _COLLAPSE):
        if (operation != _ABSORB_LEFT and not left_open) or (
            operation != _ABSORB_RIGHT and not right_open
        ):
            continue
        challenger = _ratio_terms(values, i, j, operation, code, parameter, log_gamma)
        lead = _lead(challenger, terms, gain)
        wins_ties = operation != _ABSORB_LEFT or best == _JOIN
        if lead > 0 or (lead == 0 and wins_ties):
            best = operation
            terms = challenger
    return best, terms


@compiled
def best_operation(values, i, j, log_f, code, parameter, log_gamma):
    """Return the operation behind the ratio score of clusters i < j."""
    gain = log_f - (values[_LOG_EVIDENCE, i] + values[_LOG_EVIDENCE, j])
    return _best_ratio(values, i, j, gain, code, parameter, log_gamma)[0]


@compiled
def _ratio(values, i, j, gain, code, parameter, log_gamma):
    """Return score, tiebreak, and the gain below which no other partner can be better."""
    operation, terms = _best_ratio(values, i, j, gain, code, parameter, log_gamma)
    log_p, _, log_q, log_1m_rho = terms
    log_cluster = log_p + gain
    raw = _logaddexp(log_cluster, log_q + log_1m_rho)
    log_negative = -np.inf
    if log_1m_rho < 0:
        log_negative = log_q + math.log(-math.expm1(log_1m_rho))
    log_delta = log_cluster
    if log_negative > -np.inf:
        log_delta = _log_size(max(log_cluster, log_negative), log_cluster - log_negative)
    size = 1.0 / max(-log_delta, 1.0)
    tiebreak = size if log_cluster >= log_negative else -size
    needed = -np.inf
    if code == _ROSE:
        # every operation has L ≤ (1 - γ) + e^G
        if log_cluster > log_negative:
            needed = log_delta
    elif code == _CONSTANT:
        # where r ≥ γ on both sides only a join matters, and it has L = (1 - γ) + γ e^G
        if raw > log_q_join(parameter) + 1e-9:
            # exp(raw) itself overflows for large clusters
            needed = raw + math.log1p((parameter - 1) * math.exp(-raw)) - math.log(parameter)
        elif operation == _JOIN:
            needed = gain
    elif raw > 0:
        # L is an average of e^G and (1 - ρ) / (1 - ϖ), which is at most 1 where r ≥ π
        needed = raw
    share = max(math.exp(log_cluster - raw), -math.expm1(log_1m_rho))
    grid = math.ldexp(_ODDS_GRID, math.frexp(share)[1])
    score = np.rint(raw / grid) * grid if grid > abs(raw) / _RATIO_DIGITS else raw
    return _round_relative(score), _round_relative(tiebreak), needed - _SLACK


@compiled_inside
def log_q_join(gamma):
    """Return log(1 - γ)."""
    return math.log1p(-gamma)


@compiled_inside
def _filter_holds(values, k, code, parameter):
    """Whether a gain below `_NEEDED_GAIN` rules a pair with cluster k out."""
    if code == _ROSE:
        return True
    if code == _CONSTANT:
        return values[_LOG_1M_R, k] <= math.log1p(-parameter)
    return values[_LOG_1M_R, k] <= values[_LOG_1M_PI, k]


@compiled_inside
def _largest_gain_of_block(evidence, own, ids, log_f, start, stop):
    a, b, c, d = -np.inf, -np.inf, -np.inf, -np.inf
    p = start
    while p + 4 <= stop:
        s = log_f[p] - (own + evidence[ids[p]])
        t = log_f[p + 1] - (own + evidence[ids[p + 1]])
        u = log_f[p + 2] - (own + evidence[ids[p + 2]])
        v = log_f[p + 3] - (own + evidence[ids[p + 3]])
        a = s if s > a else a
        b = t if t > b else b
        c = u if u > c else c
        d = v if v > d else d
        p += 4
    while p < stop:
        s = log_f[p] - (own + evidence[ids[p]])
        a = s if s > a else a
        p += 1
    return max(max(a, b), max(c, d))


@compiled
def scan_ratios(values, partner, stale, window, clusters, log_f, i, code, parameter, log_gamma):
    """Find cluster i's best partner by likelihood ratio among window and clusters."""
    evidence = values[_LOG_EVIDENCE]
    own = evidence[i]
    n_blocks = (len(window) + _BLOCK - 1) // _BLOCK
    largest = np.empty(n_blocks + 1)
    floor = -np.inf
    for b in range(n_blocks):
        stop = min((b + 1) * _BLOCK, len(window))
        largest[b] = _largest_gain_of_block(evidence, own, window, log_f, b * _BLOCK, stop)
        floor = max(floor, largest[b] - _SLACK)
    best, score, tiebreak, needed = -1, -np.inf, -np.inf, -np.inf
    # Two leaves can only be joined, and then the ratio grows with the gain: leaves whose gain
    # is not close to the best need no logarithm, and of leaves with the same gain the first wins.
    seen = -np.inf
    for b in range(n_blocks):
        if largest[b] < floor:
            continue
        for p in range(b * _BLOCK, min((b + 1) * _BLOCK, len(window))):
            gain = log_f[p] - (own + evidence[window[p]])
            if gain < floor or gain == seen:
                continue
            seen = gain
            s, t, g = _ratio(values, i, window[p], gain, code, parameter, log_gamma)
            if best < 0 or s > score or (s == score and t > tiebreak):
                best, score, tiebreak, needed = window[p], s, t, g
    log_f_clusters = log_f[len(window) :]
    for start in range(0, len(clusters), _BLOCK):
        stop = min(start + _BLOCK, len(clusters))
        # With rose mixing a pair with less than the needed gain cannot win (`_ratio`).
        if code == _ROSE:
            most = _largest_gain_of_block(evidence, own, clusters, log_f_clusters, start, stop)
            if most < needed:
                continue
        for p in range(start, stop):
            gain = log_f_clusters[p] - (own + evidence[clusters[p]])
            if gain == -np.inf or (code == _ROSE and gain < needed):
                continue
            s, t, g = _ratio(values, i, clusters[p], gain, code, parameter, log_gamma)
            if best < 0 or s > score or (s == score and t > tiebreak):
                best, score, tiebreak, needed = clusters[p], s, t, g
    stale[i] = False
    partner[i] = best
    values[_BEST_SCORE, i] = score
    values[_BEST_TIEBREAK, i] = tiebreak
    values[_NEEDED_GAIN, i] = needed


@compiled
def offer_ratios(
    values, partner, stale, window, clusters, log_f, k, i, j, code, parameter, log_gamma
):
    """Let the new cluster k = i ∪ j compete for being the best partner of others (by ratio)."""
    evidence, needed_gain = values[_LOG_EVIDENCE], values[_NEEDED_GAIN]
    always_holds = code == _ROSE
    filter_holds = _filter_holds(values, k, code, parameter)
    start = 0
    for ids in (window, clusters):
        for p in range(len(ids)):
            m = ids[p]
            gain = log_f[start + p] - (evidence[k] + evidence[m])
            hopeless = gain < needed_gain[m] and (
                always_holds
                or gain == -np.inf
                or (filter_holds and _filter_holds(values, m, code, parameter))
            )
            if not hopeless:
                s, t, g = _ratio(values, m, k, gain, code, parameter, log_gamma)
                best = values[_BEST_SCORE, m]
                if s > best or (s == best and t > values[_BEST_TIEBREAK, m]):
                    values[_BEST_SCORE, m] = s
                    values[_BEST_TIEBREAK, m] = t
                    values[_NEEDED_GAIN, m] = g
                    partner[m] = k
                    stale[m] = False
            if partner[m] == i or partner[m] == j:
                stale[m] = True
        start += len(ids)
