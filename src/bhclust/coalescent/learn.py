"""Hyperparameters of a process: on given trees, and in turn with the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, multigammaln, softmax

from bhclust._validation import BhclustError, FloatArray
from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.history import log_prior
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.processes import Process
from bhclust.tree import Tree

#: range in which mutation rates are sought; two lineages meet after one unit of time on average
RATE_BOUNDS = (1e-3, 1e2)


@dataclass(frozen=True, eq=False)
class InverseWishart:
    """Prior of the covariance: density in Λ proportional to ``|Λ|^{-(dof+d+1)/2} e^{-tr(ΨΛ⁻¹)/2}``.

    With variances, or one variance, it is the same with d = 1 for each of them. Its mode is
    scale / (dof + d + 1).
    """

    scale: FloatArray
    dof: float

    @classmethod
    def around(cls, process: Brownian) -> InverseWishart:
        """Return a weak prior with its mode at a process' own covariance."""
        size = process.matrix.shape[0] if process.structure == "full" else 1
        dof = size + 1.0
        mode = np.asarray(process.covariance, dtype=np.float64)
        return cls((dof + size + 1) * mode, dof)

    def log_density(self, process: Brownian) -> float:
        """Return the log density of a process' covariance."""
        covariance = np.asarray(process.covariance, dtype=np.float64)
        if covariance.ndim < 2:
            half = self.dof / 2
            inverse_gamma = (
                half * np.log(self.scale / 2)
                - gammaln(half)
                - (half + 1) * np.log(covariance)
                - self.scale / (2 * covariance)
            )
            return float(np.sum(inverse_gamma))
        size = len(covariance)
        log_det = np.linalg.slogdet(covariance)[1]
        log_det_scale = np.linalg.slogdet(self.scale)[1]
        trace = np.trace(np.linalg.solve(covariance, self.scale))
        return float(
            0.5 * self.dof * (log_det_scale - size * np.log(2))
            - multigammaln(self.dof / 2, size)
            - 0.5 * (self.dof + size + 1) * log_det
            - 0.5 * trace
        )


@dataclass(frozen=True, eq=False)
class SitePrior:
    """Prior of mutation: gamma for rates, Dirichlet around given frequencies for equilibria.

    The Dirichlet has the concentration ``1 + strength * frequency``, so that its mode is at the
    frequencies; ``strength`` counts as many leaves.
    """

    frequencies: tuple[FloatArray, ...]
    shape: float = 2.0
    rate: float = 2.0
    strength: float = 4.0

    def log_density(self, process: Mutation) -> float:
        """Return the log density of a process' rates and equilibria."""
        rates = process.rates
        total = len(rates) * (self.shape * np.log(self.rate) - gammaln(self.shape))
        total += float(((self.shape - 1) * np.log(rates) - self.rate * rates).sum())
        for frequency, q in zip(self.frequencies, process.equilibrium, strict=True):
            concentration = 1 + self.strength * frequency
            total += gammaln(concentration.sum()) - gammaln(concentration).sum()
            total += (self.strength * frequency) @ np.log(q)
        return float(total)


Prior = InverseWishart | SitePrior


class Learned(NamedTuple):
    """The best process and tree that alternation met, and how its objective went.

    ``trees`` is what the last call of the search returned for that process; ``objectives`` are
    log p(tree, X | process) + log p(process), one a round.
    """

    process: Process
    trees: Tree | TreePosterior
    objectives: tuple[float, ...]


def default_prior(process: Process) -> Prior:
    """Return a weak prior around the hyperparameters that a process has now."""
    if isinstance(process, Brownian):
        return InverseWishart.around(process)
    if isinstance(process, Mutation):
        return SitePrior(tuple(process.equilibrium))
    raise BhclustError(
        f"hyperparameters are learned of Brownian and Mutation, not of {type(process).__name__}."
    )


def learn_covariance(
    process: Brownian,
    trees: Sequence[Tree],
    X: FloatArray,
    *,
    weights: FloatArray | None = None,
    prior: InverseWishart | None = None,
) -> Brownian:
    """Return the process with its covariance at its posterior mode given trees.

    The contrasts are independent normals with covariance Λ given a tree, so the mode is
    (Ψ + sum u u') / (dof + number of contrasts + d + 1), averaged over trees if there are many.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, sample_tree
    >>> from bhclust.coalescent.learn import learn_covariance
    >>> rng = np.random.default_rng(0)
    >>> tree = sample_tree(400, rng)
    >>> X = Brownian([1.0, 9.0]).resolve(np.zeros((1, 2))).simulate(tree, rng)
    >>> learned = learn_covariance(Brownian().resolve(X), [tree], X)
    >>> bool(np.allclose(learned.covariance, [1.0, 9.0], rtol=0.2))
    True
    """
    prior = InverseWishart.around(process) if prior is None else prior
    shares = np.full(len(trees), 1 / len(trees)) if weights is None else weights
    if process.structure == "full":
        return replace(process, covariance=_learned_matrix(process, trees, shares, X, prior))
    squares, counts = np.zeros(process.n_columns), np.zeros(process.n_columns)
    for tree, share in zip(trees, shares, strict=True):
        of_tree, number = process.contrast_squares(tree, X)
        squares += share * of_tree
        counts += share * number
    scale = np.asarray(process.covariance, dtype=np.float64)
    if process.structure == "diagonal":
        new: Any = (prior.scale + squares * scale) / (prior.dof + counts + 2)
    else:
        new = float((prior.scale + squares.sum() * scale) / (prior.dof + counts.sum() + 2))
    return replace(process, covariance=new)


def _learned_matrix(
    process: Brownian,
    trees: Sequence[Tree],
    shares: Sequence[float] | FloatArray,
    X: FloatArray,
    prior: InverseWishart,
) -> FloatArray:
    width = process.n_columns
    outer, count = np.zeros((width, width)), 0.0
    for tree, share in zip(trees, shares, strict=True):
        difference, variance = process.contrasts(tree, X)
        unit = difference / np.sqrt(variance)  # a full covariance has no missing entries
        outer += share * unit.T @ unit
        count += share * len(unit)
    factor = np.linalg.cholesky(process.matrix)
    total = prior.scale + factor @ outer @ factor.T
    new = total / (prior.dof + count + width + 1)
    return np.asarray(0.5 * (new + new.T))


def learn_sites(
    process: Mutation,
    trees: Sequence[Tree],
    X: FloatArray,
    *,
    weights: FloatArray | None = None,
    prior: SitePrior | None = None,
    rate: bool = True,
    equilibrium: bool = True,
    max_iter: int = 50,
) -> Mutation:
    """Return the process with rates and equilibria at their posterior mode given trees.

    Sites are independent given the trees; all are optimised together by L-BFGS-B, in log rates
    within `RATE_BOUNDS` and in logits of the equilibria.
    """
    prior = SitePrior(tuple(process.equilibrium)) if prior is None else prior
    shares = np.full(len(trees), 1 / len(trees)) if weights is None else weights
    n_sites = len(process.rates)
    frequencies = np.concatenate(prior.frequencies)

    def unpack(point: FloatArray) -> Mutation:
        rates = np.exp(point[:n_sites])
        parts = tuple(softmax(part) for part in process.split(point[n_sites:]))
        return replace(process, rate=rates, equilibrium=parts)

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        candidate = unpack(point)
        rates, q = candidate.rates, candidate.flat_equilibrium
        value = prior.log_density(candidate)
        by_rate = (prior.shape - 1) / rates - prior.rate
        by_q = prior.strength * frequencies / q
        for tree, share in zip(trees, shares, strict=True):
            gradient = candidate.site_gradient(tree, X)
            value += share * float(gradient.values.sum())
            by_rate = by_rate + share * gradient.by_rate
            by_q = by_q + share * gradient.by_equilibrium
        # d q_k / d logit_j = q_k (1[k = j] - q_j)
        pulled = q * by_q
        sums = np.repeat([part.sum() for part in candidate.split(pulled)], candidate.n_states or ())
        slope = np.concatenate([rates * by_rate * rate, (pulled - q * sums) * equilibrium])
        return -value, -slope

    start = np.concatenate([np.log(process.rates), np.log(process.flat_equilibrium)])
    low, high = np.log(RATE_BOUNDS)
    bounds = [(low, high)] * n_sites + [(-30.0, 30.0)] * len(frequencies)
    start[:n_sites] = np.clip(start[:n_sites], low, high)
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iter}
    )
    return unpack(found.x)


def learn_process(
    process: Process,
    trees: Tree | TreePosterior,
    X: FloatArray,
    *,
    prior: Prior,
    names: Sequence[str],
) -> Process:
    """Return the process with the named hyperparameters at their mode given trees."""
    if isinstance(trees, TreePosterior):
        # Trees of no weight cost as much as others and say nothing.
        kept = np.flatnonzero(trees.weights > 1e-3 / len(trees))
        weights: FloatArray | None = trees.weights[kept] / trees.weights[kept].sum()
        listed: Sequence[Tree] = [trees.trees[int(k)] for k in kept]
    else:
        listed, weights = [trees], None
    if isinstance(process, Brownian) and isinstance(prior, InverseWishart):
        if "covariance" not in names:
            return process
        return learn_covariance(process, listed, X, weights=weights, prior=prior)
    if isinstance(process, Mutation) and isinstance(prior, SitePrior):
        return learn_sites(
            process,
            listed,
            X,
            weights=weights,
            prior=prior,
            rate="rate" in names,
            equilibrium="equilibrium" in names,
        )
    raise BhclustError(
        f"a {type(prior).__name__} prior does not go with a {type(process).__name__} process."
    )


def log_prior_of_process(process: Process, prior: Prior) -> float:
    """Return the log density of a process' hyperparameters under its prior."""
    if isinstance(process, Brownian) and isinstance(prior, InverseWishart):
        return prior.log_density(process)
    if isinstance(process, Mutation) and isinstance(prior, SitePrior):
        return prior.log_density(process)
    raise BhclustError(
        f"a {type(prior).__name__} prior does not go with a {type(process).__name__} process."
    )


def alternate(
    process: Process,
    X: FloatArray,
    search: Callable[[Process], Tree | TreePosterior],
    *,
    names: Sequence[str],
    max_iter: int,
    prior: Prior | None = None,
) -> Learned:
    """Search a tree and learn hyperparameters in turn; keep the best round.

    Parameters
    ----------
    process : Process
        Resolved.
    X : array, shape (n, n_columns)
    search : callable
        Takes a process and returns a tree or a posterior over trees.
    names : sequence of str
        The hyperparameters to learn: ``"covariance"``, ``"rate"``, ``"equilibrium"``.
    max_iter : int
        Rounds of learning; 0 searches once and learns nothing.
    prior : InverseWishart or SitePrior, optional
        By default a weak one around the first process.
    """
    prior = default_prior(process) if prior is None else prior
    objectives: list[float] = []
    best: Learned | None = None
    for turn in range(max_iter + 1 if names else 1):
        trees = search(process)
        objective = _log_joint(process, trees, X) + log_prior_of_process(process, prior)
        objectives.append(objective)
        if best is None or objective > max(objectives[:-1]):
            best = Learned(process, trees, ())
        elif objective <= objectives[-2]:
            break
        if turn < max_iter and names:
            process = learn_process(process, trees, X, prior=prior, names=names)
    assert best is not None
    return best._replace(objectives=tuple(objectives))


def _log_joint(process: Process, trees: Tree | TreePosterior, X: FloatArray) -> float:
    if isinstance(trees, TreePosterior):
        return trees.log_evidence
    return log_prior(trees) + process.log_likelihood(trees, X)
