"""The live clusters of a greedy search, and the score of merging two of them.

All arrays are indexed by node id: leaves 0 … n-1, then one new id a merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose

# Scores that differ by less are ties, and the lowest pair of ids wins: two engines that add the
# same terms in another order must see the same ties. An odds score is a difference of terms of
# the size of log f, so its grid is absolute; a likelihood ratio may be 1 - 1e-30 where log f has
# no part in it, so there the grid is relative.
_ODDS_GRID = 2.0**-30
_RATIO_DIGITS = 2.0**33


class Operation(IntEnum):
    """How two trees are merged; the simpler result has the higher value and wins ties."""

    JOIN = 0  # a new node with the two trees as children
    ABSORB_RIGHT = 1  # the right tree becomes one more child of the left root
    ABSORB_LEFT = 2  # the left tree becomes one more child of the right root
    COLLAPSE = 3  # the children of both roots become children of one new root


class PairScores(NamedTuple):
    """Scores of one cluster against several; ties in ``score`` go to the larger ``tiebreak``."""

    score: FloatArray
    tiebreak: FloatArray


class Field(IntEnum):
    """Rows of `Frontier.values`, so that compiled code can take all of them as one array."""

    WEIGHT = 0  # items with multiplicity
    LOG_MASS = 1  # A = log d + log p
    LOG_D = 2
    LOG_EVIDENCE = 3  # log p
    LOG_1M_R = 4  # complement of the posterior probability of one cluster
    LOG_1M_PI = 5  # complement of its prior probability
    N_CHILDREN = 6
    CHILD_MASS = 7  # sum over the children of the root of A
    CHILD_LOG_D = 8  # and of log d
    BEST_SCORE = 9  # best known partner among higher ids, or a bound on it
    BEST_TIEBREAK = 10
    NEEDED_GAIN = 11  # compiled engine: a partner with a smaller gain cannot be better
    RUNNER_UP = 12  # by odds: all partners but the best score at most this


class Frontier:
    """State of the live clusters: everything that a merge score needs besides ``log f``.

    Attributes
    ----------
    values : array of shape (len(Field), n_nodes)
        One row a `Field`; the rows are also attributes (``weight``, ``log_mass``, …).
    best_partner : IntArray
        The partner behind ``best_score``.
    stale : array of bool
        Whether that partner is gone; the score then is an upper bound on what the remaining
        partners can reach. By odds it is the runner-up's, mostly too low for the cluster to come
        up before a better partner is offered to it. By ratio it is the lost partner's: knowing
        the runner-up would take more logarithms than looking again.
    """

    def __init__(self, log_f: FloatArray, weight: FloatArray, mixing: Mixing) -> None:
        n = len(log_f)
        self.mixing = mixing
        self.n_leaves = n
        self.next_id = n
        self.values = np.zeros((len(Field), 2 * n - 1))
        (
            self.weight,
            self.log_mass,
            self.log_d,
            self.log_evidence,
            self.log_1m_r,
            self.log_1m_pi,
            self.n_children,
            self.child_mass,
            self.child_log_d,
            self.best_score,
            self.best_tiebreak,
            self.needed_gain,
            self.runner_up,
        ) = self.values
        log_leaf = mixing.log_leaf(weight)
        self.weight[:n] = weight
        self.log_mass[:n] = log_leaf + log_f
        self.log_d[:n] = log_leaf if mixing.has_normaliser else 0.0
        self.log_evidence[:n] = log_f if mixing.has_normaliser else self.log_mass[:n]
        # A leaf is one cluster for certain.
        self.log_1m_r[:] = self.log_1m_pi[:] = -np.inf
        self.best_score[:] = self.best_tiebreak[:] = self.needed_gain[:] = -np.inf
        self.runner_up[:] = -np.inf
        self.best_partner = np.full(2 * n - 1, -1, dtype=np.intp)
        self.stale = np.zeros(2 * n - 1, dtype=np.bool_)

    def merge(self, i: int, j: int, operation: Operation, log_f: float) -> int:
        """Replace clusters i < j by their merger and return its id."""
        k = self.next_id
        self.next_id += 1
        parts = _new_children(self, i, j, operation)
        weight = float(self.weight[i] + self.weight[j])
        one = float(self.mixing.log_one(weight, parts.n_children)) + log_f
        split = float(self.mixing.log_split(parts.n_children))
        prior = self.mixing.log_weights(weight, parts.n_children, parts.log_d)
        self.weight[k] = weight
        self.log_mass[k] = np.logaddexp(one, split + parts.mass)
        self.log_d[k] = prior.log_d if self.mixing.has_normaliser else 0.0
        self.log_evidence[k] = self.log_mass[k] - self.log_d[k]
        self.log_1m_r[k] = -np.logaddexp(0.0, one - (split + parts.mass))
        self.log_1m_pi[k] = prior.log_1m_pi
        self.n_children[k] = parts.n_children
        self.child_mass[k] = parts.mass
        self.child_log_d[k] = parts.log_d
        return k


@dataclass(frozen=True)
class _Children:
    n_children: int
    mass: float
    log_d: float


def _new_children(frontier: Frontier, i: int, j: int, operation: Operation) -> _Children:
    """Return the number of children of the merged root and the sums over them."""

    def root(k: int) -> _Children:
        return _Children(1, float(frontier.log_mass[k]), float(frontier.log_d[k]))

    def opened(k: int) -> _Children:
        return _Children(
            int(frontier.n_children[k]),
            float(frontier.child_mass[k]),
            float(frontier.child_log_d[k]),
        )

    left = opened(i) if operation in (Operation.ABSORB_RIGHT, Operation.COLLAPSE) else root(i)
    right = opened(j) if operation in (Operation.ABSORB_LEFT, Operation.COLLAPSE) else root(j)
    return _Children(
        left.n_children + right.n_children, left.mass + right.mass, left.log_d + right.log_d
    )


def odds_scores(frontier: Frontier, i: int, others: IntArray, log_f: FloatArray) -> PairScores:
    """Return the posterior log odds of one cluster against all other consistent partitions.

    This is the merge score of BHC; the order is that of ``r`` in the paper's (3).
    """
    mixing = frontier.mixing
    one = mixing.log_one(frontier.weight[i] + frontier.weight[others], 2) + log_f
    split = mixing.log_split(2) + (frontier.log_mass[i] + frontier.log_mass[others])
    score = np.round((one - split) / _ODDS_GRID) * _ODDS_GRID
    return PairScores(score, np.zeros(len(score)))


def ratio_scores(frontier: Frontier, i: int, others: IntArray, log_f: FloatArray) -> PairScores:
    """Return the log likelihood ratio of the best of join, absorb and collapse (rose trees)."""
    gain = _gain(frontier, i, others, log_f)
    best = _best_operations(frontier, i, others, gain)
    return _ratio(best.terms.log_p + gain, best.terms.log_q, best.terms.log_1m_rho)


def best_operation(frontier: Frontier, i: int, j: int, log_f: float) -> Operation:
    """Return the operation behind the ratio score of clusters i < j."""
    others = np.array([j])
    gain = _gain(frontier, i, others, np.array([log_f]))
    return Operation(int(_best_operations(frontier, i, others, gain).operation[0]))


def _gain(frontier: Frontier, i: int, others: IntArray, log_f: FloatArray) -> FloatArray:
    return np.asarray(log_f - (frontier.log_evidence[i] + frontier.log_evidence[others]))


class _RatioTerms(NamedTuple):
    """Parts of the likelihood ratio ``L = P e^G + Q (1 - ρ)`` of an operation.

    ``G = log f_ij - log p_i - log p_j``; ρ = 0 for join, r_i for absorbing j into i, and
    ``1 - (1 - r_i)(1 - r_j)`` for collapse. P and Q come from the mixing prior.
    """

    log_p: FloatArray
    log_1m_p: FloatArray
    log_q: FloatArray
    log_1m_rho: FloatArray


class _Best(NamedTuple):
    terms: _RatioTerms
    operation: npt.NDArray[np.int64]


def _best_operations(frontier: Frontier, i: int, others: IntArray, gain: FloatArray) -> _Best:
    left_open = frontier.n_children[i] >= 2
    right_open = frontier.n_children[others] >= 2
    terms = _ratio_terms(frontier, i, others, _OPENED[Operation.JOIN])
    chosen = np.zeros(len(others), dtype=np.int64)
    for operation in (Operation.ABSORB_RIGHT, Operation.ABSORB_LEFT, Operation.COLLAPSE):
        opened = _OPENED[operation]
        if (opened.left and not left_open) or (opened.right and not right_open.any()):
            continue
        challenger = _ratio_terms(frontier, i, others, opened)
        lead = _lead(challenger, terms, gain)
        # On an exact tie the simpler tree wins: collapse, then absorb, then join. Absorbing
        # either way gives equally simple trees; there the lower id keeps its root.
        wins_ties = chosen == Operation.JOIN if operation is Operation.ABSORB_LEFT else np.True_
        better = (lead > 0) | ((lead == 0) & wins_ties)
        if opened.right:
            better &= right_open
        terms = _RatioTerms(
            *(np.where(better, new, old) for new, old in zip(challenger, terms, strict=True))
        )
        chosen[better] = operation
    return _Best(terms, chosen)


def _lead(a: _RatioTerms, b: _RatioTerms, gain: FloatArray) -> FloatArray:
    """Return the sign of ``L_a - L_b`` for two operations on the same pairs.

    The difference is ``(P_a - P_b) e^G + (B_a - B_b)`` with ``B = Q (1 - ρ)``. Both brackets keep
    their relative accuracy as signed logs, so that neither a huge nor a tiny ``e^G`` hides one.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sign_p, log_p = _signed_difference(b.log_1m_p, a.log_1m_p, b.log_1m_p - a.log_1m_p)
        gap = (a.log_q - b.log_q) + (a.log_1m_rho - b.log_1m_rho)
        sign_b, log_b = _signed_difference(a.log_q + a.log_1m_rho, b.log_q + b.log_1m_rho, gap)
        excess = np.round((log_p + gain - log_b) / _ODDS_GRID)
    # Exact ties are real: an empty row (all missing) is absorbed or joined at the same ratio.
    lead = np.where(excess > 0, sign_p, np.where(excess < 0, sign_b, sign_p + sign_b))
    return np.asarray(lead)


def _signed_difference(
    log_x: FloatArray, log_y: FloatArray, gap: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the sign and the log size of ``x - y`` given ``gap = log x - log y``."""
    return np.sign(gap), np.maximum(log_x, log_y) + np.log(-np.expm1(-np.abs(gap)))


class _Opened(NamedTuple):
    """Whose children, rather than itself, become children of the merged root."""

    left: bool
    right: bool


_OPENED = {
    Operation.JOIN: _Opened(False, False),
    Operation.ABSORB_RIGHT: _Opened(True, False),
    Operation.ABSORB_LEFT: _Opened(False, True),
    Operation.COLLAPSE: _Opened(True, True),
}


def _ratio_terms(frontier: Frontier, i: int, others: IntArray, opened: _Opened) -> _RatioTerms:
    mixing = frontier.mixing
    n_opened = int(opened.left) + int(opened.right)
    log_1m_rho = np.zeros(len(others))
    log_1m_prior = np.zeros(len(others))
    n_children = np.full(len(others), 2 - n_opened)
    if opened.left:
        log_1m_rho = log_1m_rho + frontier.log_1m_r[i]
        log_1m_prior = log_1m_prior + frontier.log_1m_pi[i]
        n_children = n_children + frontier.n_children[i]
    if opened.right:
        log_1m_rho = log_1m_rho + frontier.log_1m_r[others]
        log_1m_prior = log_1m_prior + frontier.log_1m_pi[others]
        n_children = n_children + frontier.n_children[others]
    shape = len(others)
    if isinstance(mixing, DirichletProcess):
        # P = κ/(κ + 1 - ϖ), Q = 1/(κ + 1 - ϖ) with κ = α Γ(n) / (d_i d_j) and ϖ the prior's ρ.
        weight = frontier.weight[i] + frontier.weight[others]
        log_kappa = mixing.log_one(weight, 2) - (frontier.log_d[i] + frontier.log_d[others])
        log_q = -np.logaddexp(log_kappa, log_1m_prior)
        return _RatioTerms(log_kappa + log_q, log_1m_prior + log_q, log_q, log_1m_rho)
    if isinstance(mixing, Constant):
        log_1m_p = np.full(shape, float(mixing.log_split(2)))
        log_p = np.full(shape, float(mixing.log_one(0, 2)))
        return _RatioTerms(log_p, log_1m_p, (1 - n_opened) * log_1m_p, log_1m_rho)
    if isinstance(mixing, Rose):
        log_q = np.full(shape, float(mixing.log_split(2)))
        # A leaf has no children to open; its score is discarded, but must not warn.
        n_children = np.maximum(n_children, 2)
        log_1m_p = mixing.log_split(n_children)
        return _RatioTerms(mixing.log_one(0, n_children), log_1m_p, log_q, log_1m_rho)
    raise TypeError(f"no rose-tree score for the mixing prior {mixing!r}")


def _ratio(log_cluster: FloatArray, log_q: FloatArray, log_1m_rho: FloatArray) -> PairScores:
    """Return ``log L`` and a tiebreak that still speaks where ``log L`` has saturated.

    For clusters that do not belong together ``P e^G`` underflows beside Q and ``log L`` becomes
    the same number for many pairs. What is left after subtracting the limit Q,
    ``δ = P e^G - Q ρ``, keeps full relative accuracy, and among pairs with the same limit it has
    the order of L. It is signed and spans hundreds of orders of magnitude, so it is mapped
    monotonically to ``sign(δ) / -log|δ|``.
    """
    score = np.logaddexp(log_cluster, log_q + log_1m_rho)
    with np.errstate(divide="ignore"):
        log_negative = log_q + np.log(-np.expm1(log_1m_rho))
        gap = np.abs(log_cluster - log_negative)
        larger = np.maximum(log_cluster, log_negative)
        log_delta = larger + np.log(-np.expm1(-gap))
    # |δ| near one is visible in the score itself; the bound only keeps the map monotone.
    size = 1.0 / np.maximum(-log_delta, 1.0)
    tiebreak = np.where(log_cluster >= log_negative, size, -size)
    # Rounding of log f and of r reaches log L in the measure of their shares in L.
    share = np.maximum(np.exp(log_cluster - score), -np.expm1(log_1m_rho))
    grid = np.ldexp(_ODDS_GRID, np.frexp(share)[1])
    coarse = grid > np.abs(score) / _RATIO_DIGITS
    rounded = np.round(np.divide(score, grid, where=coarse, out=np.zeros_like(score))) * grid
    return PairScores(_round_relative(np.where(coarse, rounded, score)), _round_relative(tiebreak))


def _round_relative(values: FloatArray) -> FloatArray:
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * _RATIO_DIGITS) / _RATIO_DIGITS, exponent))
