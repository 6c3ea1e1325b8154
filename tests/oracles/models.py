"""Slow plain definitions of what the cluster models claim: integrals, urns, dense matrices."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
from scipy import stats as distributions
from scipy.special import multigammaln


def integral_bernoulli(values, a, b):
    """∫ Π p^x (1-p)^(1-x) Beta(p; a, b) dp for one column."""
    ones, zeros = sum(values), len(values) - sum(values)

    def integrand(p):
        prior = p ** (a - 1) * (1 - p) ** (b - 1) / mpmath.beta(a, b)
        return p**ones * (1 - p) ** zeros * prior

    return float(mpmath.log(mpmath.quad(integrand, [0, 0.5, 1])))


def urn_categorical(codes, concentration):
    """Draw the codes one after the other from a Pólya urn."""
    contents = np.array(concentration, dtype=float)
    log_probability = 0.0
    for code in codes:
        log_probability += math.log(contents[code] / contents.sum())
        contents[code] += 1
    return log_probability


def urn_multinomial(rows, concentration):
    """Add up the urn over every order in which the balls of each row can be drawn."""
    per_row = []
    for row in rows:
        balls = [j for j, count in enumerate(row) for _ in range(int(count))]
        per_row.append(sorted(set(itertools.permutations(balls))))
    total = 0.0
    for orders in itertools.product(*per_row):
        sequence = [ball for order in orders for ball in order]
        total += math.exp(urn_categorical(sequence, concentration))
    return math.log(total)


def integral_poisson(counts, shape, rate):
    """∫ Π Poisson(x; λ) Gamma(λ; shape, rate) dλ for one column."""

    def integrand(lam):
        prior = rate**shape * lam ** (shape - 1) * mpmath.exp(-rate * lam) / mpmath.gamma(shape)
        for x in counts:
            prior *= lam**x * mpmath.exp(-lam) / mpmath.factorial(x)
        return prior

    return float(mpmath.log(mpmath.quad(integrand, [0, 1, 3, 10, mpmath.inf])))


def integral_normal_gamma(values, mean, strength, shape, rate):
    """∫∫ Π N(x; μ, 1/τ) N(μ; mean, 1/(strength τ)) Gamma(τ; shape, rate) dμ dτ for one column.

    Trapezoids on a fine grid over μ and log τ: the integrand is smooth and dies out on all sides.
    """
    values = np.asarray(values, dtype=float)
    log_tau = np.linspace(-14, 8, 1201)
    tau = np.exp(log_tau)[:, None]
    width = 1 / np.sqrt(tau * strength) + np.ptp(values) + np.abs(values - mean).max() + 1e-3
    grid = mean + np.linspace(-12, 12, 4001)[None, :] * np.minimum(width, 60)
    step = grid[:, 1] - grid[:, 0]
    log_joint = distributions.norm.logpdf(grid, mean, 1 / np.sqrt(strength * tau))
    for x in values:
        log_joint += distributions.norm.logpdf(x, grid, 1 / np.sqrt(tau))
    log_prior = distributions.gamma.logpdf(tau[:, 0], shape, scale=1 / rate) + log_tau
    inner = np.exp(log_joint).sum(axis=1) * step
    return float(np.log((inner * np.exp(log_prior)).sum() * (log_tau[1] - log_tau[0])))


def dense_normal_gamma(values, mean, strength, shape, rate):
    """n values of one column are jointly multivariate t."""
    n = len(values)
    scale = rate / shape * (np.eye(n) + np.ones((n, n)) / strength)
    return float(distributions.multivariate_t.logpdf(values, np.full(n, mean), scale, df=2 * shape))


def _trace(matrix, s11, s12, s22):
    """Trace of a symmetric matrix times the inverse of [[s11, s12], [s12, s22]]."""
    cofactors = matrix[0, 0] * s22 - 2 * matrix[0, 1] * s12 + matrix[1, 1] * s11
    return cofactors / (s11 * s22 - s12**2)


def integral_normal_wishart(X, mean, strength, dof, scale):
    """∫ N(X | Σ) IW(Σ; dof, scale) dΣ in two dimensions, the cluster's mean in the dense Gaussian.

    Σ runs over a grid of (log l11, l21, log l22) of its Cholesky factor; given Σ all the numbers
    of the cluster are one Gaussian with covariance (I + 11'/strength) ⊗ Σ.
    """
    n = len(X)
    rows = np.eye(n) + np.ones((n, n)) / strength
    u = np.linspace(-4, 5, 73)
    v = np.linspace(-40, 40, 401)
    cell = (u[1] - u[0]) ** 2 * (v[1] - v[0])
    total = 0.0
    residual = X - mean
    gram = residual.T @ np.linalg.inv(rows) @ residual
    log_det_rows = np.linalg.slogdet(rows)[1]
    for first in u:
        l11, l21, l22 = np.broadcast_arrays(np.exp(first), v[:, None], np.exp(u)[None, :])
        # Σ and log |Σ| written out for 2 × 2
        log_det = 2 * (np.log(l11) + np.log(l22))
        s11, s12, s22 = l11**2, l11 * l21, l21**2 + l22**2
        log_prior = dof / 2 * np.linalg.slogdet(scale)[1] - dof * math.log(2)
        log_prior -= float(multigammaln(dof / 2, 2))
        log_prior = log_prior - (dof + 3) / 2 * log_det - _trace(scale, s11, s12, s22) / 2
        log_data = (
            -n * math.log(2 * math.pi)
            - n / 2 * log_det
            - log_det_rows
            - _trace(gram, s11, s12, s22) / 2
        )
        # dΣ = 4 l11² l22 dl11 dl21 dl22, and dl = l d(log l)
        log_volume = math.log(4) + 3 * np.log(l11) + 2 * np.log(l22)
        total += np.exp(log_prior + log_data + log_volume).sum() * cell
    return math.log(total)


def chain_normal_wishart(X, mean, strength, dof, scale):
    """Predict one row after the other with SciPy's multivariate t and textbook sums."""
    X = np.asarray(X, dtype=float)
    d = X.shape[1]
    log_density = 0.0
    for n in range(len(X)):
        past = X[:n]
        k, v = strength + n, dof + n
        centre = (strength * mean + past.sum(axis=0)) / k
        S = scale + past.T @ past + strength * np.outer(mean, mean) - k * np.outer(centre, centre)
        df = v - d + 1
        t = distributions.multivariate_t(centre, S * (k + 1) / (k * df), df=df)
        log_density += float(t.logpdf(X[n]))
    return log_density


def difference_gradient(model, spec, stats, weights):
    """Five-point central differences, entry by entry; symmetric moves for a covariance."""
    centre = np.asarray(getattr(model, spec.name), dtype=float)
    out = np.empty(centre.shape)
    for index in np.ndindex(centre.shape):
        move = np.zeros(centre.shape)
        move[index] = 1.0
        if spec.domain == "covariance":
            move = (move + move.T) / 2
        if spec.domain == "covariance":
            step = 1e-3 * np.sqrt(centre[index[0], index[0]] * centre[index[1], index[1]])
        elif spec.domain == "real":
            step = 1e-3 * max(abs(centre[index]), 0.3)
        else:
            step = 1e-3 * centre[index]

        def value(multiple, move=move, step=step):
            moved = model.with_hyperparameters({spec.name: centre + multiple * step * move})
            return float(weights @ moved.log_marginal(stats))

        out[index] = (8 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12 * step)
    return out


def union(model, items):
    """Merge the rows of statistics one after the other."""
    out = items[:1]
    for i in range(1, len(items)):
        out = model.merge(out, items[i : i + 1])
    return out


def log_f(model, X):
    """Log marginal of all rows as one cluster."""
    return float(model.log_marginal(union(model, model.suffstats(np.asarray(X, dtype=float))))[0])
