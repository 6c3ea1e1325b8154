"""Slow plain definitions for Gaussian processes: one number at a time, dense matrices."""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate
from scipy import stats as distributions
from scipy.special import gamma, kv


def kernel(name, s, t, length_scale, period=None):
    """Covariance of two times, each kernel by another formula than the library's."""
    if name == "squared_exponential":
        return math.exp(-((s - t) ** 2) / (2 * length_scale**2))
    if name == "periodic":
        # a squared exponential of points on the unit circle
        a, b = (np.exp(2j * np.pi * x / period) for x in (s, t))
        return math.exp(-(abs(a - b) ** 2) / (2 * length_scale**2))
    if name == "cubic_spline":
        s, t = s / length_scale, t / length_scale
        # two random walks that are integrated once, on top of a random line
        walk = integrate.quad(lambda u: (s - u) * (t - u), 0, min(s, t))[0]
        return 1 + s * t + walk
    order = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[name]
    if s == t:
        return 1.0
    r = math.sqrt(2 * order) * abs(s - t) / length_scale
    return float(2 ** (1 - order) / gamma(order) * r**order * kv(order, r))


def entries(X, times):
    """List (value, time) of every observed entry of a table."""
    found = [
        (X[i, j], times[j])
        for i in range(len(X))
        for j in range(X.shape[1])
        if not np.isnan(X[i, j])
    ]
    return np.array([value for value, _ in found]), np.array([time for _, time in found])


def curve_covariance(name, a, b, length_scale, amplitude, period=None):
    """Covariance matrix of one curve at two lists of times."""
    out = [[kernel(name, s, t, length_scale, period) for t in b] for s in a]
    return amplitude**2 * np.array(out).reshape(len(a), len(b))


def log_density(X, times, mean, name, length_scale, amplitude, noise, period=None):
    """Log density of all entries of a table whose rows share one curve around ``mean(t)``."""
    values, at = entries(X, times)
    if not len(values):
        return 0.0
    start = min(times)
    covariance = curve_covariance(name, at - start, at - start, length_scale, amplitude, period)
    covariance += noise**2 * np.eye(len(at))
    centre = [mean(t) for t in at]
    return float(distributions.multivariate_normal.logpdf(values, centre, covariance))


def curve_given(X, times, at, mean, name, length_scale, amplitude, noise, period=None):
    """Mean and covariance of the curve at some times given the entries of a table."""
    values, known = entries(X, times)
    start = min(times)
    settings = (length_scale, amplitude, period)
    inside = curve_covariance(name, known - start, known - start, *settings)
    inside += noise**2 * np.eye(len(known))
    across = curve_covariance(name, at - start, known - start, *settings)
    gain = across @ np.linalg.inv(inside)
    centre = np.array([mean(t) for t in at])
    gap = values - np.array([mean(t) for t in known])
    own = curve_covariance(name, at - start, at - start, *settings)
    return centre + gain @ gap, own - gain @ across.T


def outlier_terms(X, times, mean, limits, name, **settings):
    """Log density of a table without outlier, and with each observed entry as the only one.

    An outlier is uniform between the limits; the rest is dense.
    """
    none = log_density(X, times, mean, name, **settings)
    each = []
    for i, j in np.argwhere(~np.isnan(X)):
        rest = X.copy()
        rest[i, j] = np.nan
        inside = limits[0] <= X[i, j] <= limits[1]
        log_uniform = -math.log(limits[1] - limits[0]) if inside else -math.inf
        each.append(log_uniform + log_density(rest, times, mean, name, **settings))
    return none, np.array(each)


def without(X, k):
    """Return a table without its k-th observed entry."""
    rest = X.copy()
    i, j = np.argwhere(~np.isnan(X))[k]
    rest[i, j] = np.nan
    return rest


def inducing_covariance(a, b, points, name, length_scale, amplitude, period=None):
    """Covariance of curve values at two lists of inputs that go through inducing points only."""

    def between(p, q):
        return np.array(
            [
                [kernel(name, 0.0, float(np.linalg.norm(s - t)), length_scale, period) for t in q]
                for s in p
            ]
        )

    return (
        amplitude**2
        * between(a, points)
        @ np.linalg.pinv(between(points, points))
        @ between(points, b)
    )
