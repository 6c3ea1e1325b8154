"""Covariance functions of Gaussian processes on a line, with slopes by their parameters.

All have unit amplitude; a length scale is in the unit of the times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bhclust._validation import FloatArray

KERNELS = (
    "squared_exponential",
    "matern12",
    "matern32",
    "matern52",
    "periodic",
    "cubic_spline",
)


class Covariance(NamedTuple):
    """A covariance matrix and its slopes by the length scale and the period (0 without one)."""

    value: FloatArray
    by_length_scale: FloatArray
    by_period: FloatArray


def unit_covariance(
    kernel: str, a: FloatArray, b: FloatArray, length_scale: float, period: float | None = None
) -> Covariance:
    """Return the covariance of a process of unit amplitude between two sets of times.

    Parameters
    ----------
    kernel : str
        One of `KERNELS`. The cubic spline is a random line with unit variances of its value and
        slope at time zero plus an integrated random walk, so its times must not be negative.
    a, b : array of shape (p,), (q,)
        Times.
    length_scale : float
        Unit of the times; for the periodic kernel, of chords of the unit circle.
    period : float, optional
        Period of the periodic kernel.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.array([0.0, 1.0])
    >>> unit_covariance("squared_exponential", times, times, 1.0).value.round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """
    if kernel == "cubic_spline":
        return _cubic_spline(a, b, length_scale)
    distance = np.abs(a[:, None] - b[None, :])
    return distance_covariance(kernel, distance, length_scale, period)


def distance_covariance(
    kernel: str, distance: FloatArray, length_scale: float, period: float | None = None
) -> Covariance:
    """Return the covariance of unit amplitude between points at some distances of each other.

    Every kernel but the cubic spline is a function of the distance.
    """
    if kernel == "periodic":
        assert period is not None, "the periodic kernel needs a period"
        return _periodic(distance, length_scale, period)
    r = distance / length_scale
    nothing = np.zeros_like(r)
    if kernel == "squared_exponential":
        value = np.exp(-0.5 * r * r)
        return Covariance(value, value * r * r / length_scale, nothing)
    if kernel == "matern12":
        value = np.exp(-r)
        return Covariance(value, value * r / length_scale, nothing)
    if kernel == "matern32":
        s = np.sqrt(3.0) * r
        decay = np.exp(-s)
        return Covariance((1 + s) * decay, s * s * decay / length_scale, nothing)
    s = np.sqrt(5.0) * r
    decay = np.exp(-s)
    slope = s * s * (1 + s) / 3 * decay / length_scale
    return Covariance((1 + s + s * s / 3) * decay, slope, nothing)


def _periodic(distance: FloatArray, length_scale: float, period: float) -> Covariance:
    angle = np.pi * distance / period
    chord = np.square(np.sin(angle)) / length_scale**2
    value = np.exp(-2 * chord)
    by_length_scale = 4 * chord * value / length_scale
    by_period = 2 * value * np.sin(2 * angle) * angle / (period * length_scale**2)
    return Covariance(value, by_length_scale, by_period)


def _cubic_spline(a: FloatArray, b: FloatArray, length_scale: float) -> Covariance:
    s, t = a[:, None] / length_scale, b[None, :] / length_scale
    line = s * t
    least = np.minimum(s, t)
    walk = np.abs(s - t) * least * least / 2 + least**3 / 3
    # A change of unit scales the line's covariance by its square and the walk's by its cube.
    slope = -(2 * line + 3 * walk) / length_scale
    return Covariance(1 + line + walk, slope, np.zeros_like(walk))
