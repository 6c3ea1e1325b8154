"""Logs of gamma functions for kernels: from tables over counts, by Stirling's series above."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from bhclust._kernels.compile import compiled
from bhclust._validation import FloatArray

# Counts below come from a table; from here on Stirling's series is exact to the last digit.
TABLE_LENGTH = 1024
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_gamma_table(start: FloatArray) -> FloatArray:
    """Return ``lgamma(start + count)`` for count = 0 … TABLE_LENGTH - 1, a row a start."""
    return np.asarray(gammaln(start[:, None] + np.arange(TABLE_LENGTH)))


@compiled
def stirling(x: float) -> float:
    """Return lgamma of a number of at least TABLE_LENGTH."""
    inverse = 1.0 / x
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    return (x - 0.5) * math.log(x) - x + _HALF_LOG_TWO_PI + series


@compiled
def table_log_gamma(table: FloatArray, row: int, start: float, count: int) -> float:
    """Return ``lgamma(start + count)``, from the table's row where it reaches."""
    if count < table.shape[1]:
        return table[row, count]
    return stirling(start + count)
