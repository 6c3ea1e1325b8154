"""Marginal likelihoods in multiprecision arithmetic, straight from the conjugate integrals.

Ratios of gamma functions at integer distance are products, so that sets of rows which are equal
up to names get the same number to the last of the digits kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath
import numpy as np

from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
)


def exact_f(model: ClusterModel, X: np.ndarray) -> Any:
    """Return f of the rows of ``X`` as one cluster."""
    if isinstance(model, Mixed):
        return mpmath.fprod(exact_f(part, X[:, list(columns)]) for part, columns in model.parts)
    return _EXACT[type(model)](model, X)


def _observed(X: np.ndarray, j: int) -> list[Any]:
    return [mpmath.mpf(float(x)) for x in X[:, j] if not np.isnan(x)]


def _bernoulli(model: Bernoulli, X: np.ndarray) -> Any:
    out = mpmath.mpf(1)
    for j in range(X.shape[1]):
        values = _observed(X, j)
        ones = int(sum(values))
        a, b = mpmath.mpf(float(model.a[j])), mpmath.mpf(float(model.b[j]))
        out *= _rising(a, ones) * _rising(b, len(values) - ones) / _rising(a + b, len(values))
    return out


def _categorical(model: Categorical, X: np.ndarray) -> Any:
    out, start = mpmath.mpf(1), 0
    for j, size in enumerate(model.n_categories):
        alpha = [mpmath.mpf(float(v)) for v in model.concentration[start : start + size]]
        start += size
        values = [int(v) for v in _observed(X, j)]
        for code in range(size):
            out *= _rising(alpha[code], values.count(code))
        out /= _rising(sum(alpha), len(values))
    return out


def _multinomial(model: Multinomial, X: np.ndarray) -> Any:
    rows = [row for row in X if not np.isnan(row).any()]
    alpha = [mpmath.mpf(float(v)) for v in model.concentration]
    out = mpmath.mpf(1)
    for row in rows:
        out *= mpmath.factorial(int(row.sum()))
        for x in row:
            out /= mpmath.factorial(int(x))
    totals = np.sum(rows, axis=0) if rows else np.zeros(len(alpha))
    for a, total in zip(alpha, totals, strict=True):
        out *= _rising(a, int(total))
    return out / _rising(sum(alpha), int(totals.sum()))


def _poisson(model: Poisson, X: np.ndarray) -> Any:
    out = mpmath.mpf(1)
    for j in range(X.shape[1]):
        values = _observed(X, j)
        a, b = mpmath.mpf(float(model.shape[j])), mpmath.mpf(float(model.rate[j]))
        total = int(sum(values))
        out *= _rising(a, total) * b**a / (b + len(values)) ** (a + total)
        for x in values:
            out /= mpmath.factorial(int(x))
    return out


def _diagonal_gaussian(model: DiagonalGaussian, X: np.ndarray) -> Any:
    out = mpmath.mpf(1)
    for j in range(X.shape[1]):
        values = _observed(X, j)
        n = len(values)
        if not n:
            continue
        m, k, a, b = (
            mpmath.mpf(float(getattr(model, name)[j]))
            for name in ("mean", "strength", "shape", "rate")
        )
        mean = sum(values) / n
        squares = sum((x - mean) ** 2 for x in values)
        b_n = b + squares / 2 + k * n * (mean - m) ** 2 / (2 * (k + n))
        out *= _gamma_ratio(a, n) * b**a / b_n ** (a + mpmath.mpf(n) / 2)
        out *= mpmath.sqrt(k / (k + n)) * (2 * mpmath.pi) ** (-mpmath.mpf(n) / 2)
    return out


def _gaussian(model: Gaussian, X: np.ndarray) -> Any:
    n, d = X.shape
    k, v = mpmath.mpf(float(model.strength)), mpmath.mpf(float(model.dof))
    scale = mpmath.matrix(np.asarray(model.scale).tolist())
    rows = [mpmath.matrix([mpmath.mpf(float(x)) for x in row]) for row in X]
    m = mpmath.matrix([mpmath.mpf(float(x)) for x in model.mean])
    mean = rows[0] * 0
    for row in rows:
        mean += row / n
    posterior = scale + (mean - m) * (mean - m).T * (k * n / (k + n))
    for row in rows:
        posterior += (row - mean) * (row - mean).T
    out = mpmath.pi ** (-mpmath.mpf(n * d) / 2) * (k / (k + n)) ** (mpmath.mpf(d) / 2)
    for i in range(d):
        out *= _gamma_ratio((v - i) / 2, n)
    return out * mpmath.det(scale) ** (v / 2) / mpmath.det(posterior) ** ((v + n) / 2)


def _rising(x: Any, n: int) -> Any:
    """Return Γ(x + n) / Γ(x)."""
    out = mpmath.mpf(1)
    for i in range(n):
        out *= x + i
    return out


def _gamma_ratio(x: Any, n: int) -> Any:
    """Return Γ(x + n/2) / Γ(x)."""
    half = _half_step(str(x), mpmath.mp.dps) if n % 2 else mpmath.mpf(1)
    start = x + mpmath.mpf(1) / 2 if n % 2 else x
    return half * _rising(start, n // 2)


@lru_cache(maxsize=1000)
def _half_step(x: str, digits: int) -> Any:
    value = mpmath.mpf(x)
    return mpmath.gamma(value + mpmath.mpf(1) / 2) / mpmath.gamma(value)


_EXACT: dict[type, Any] = {
    Bernoulli: _bernoulli,
    Categorical: _categorical,
    Multinomial: _multinomial,
    Poisson: _poisson,
    DiagonalGaussian: _diagonal_gaussian,
    Gaussian: _gaussian,
}
