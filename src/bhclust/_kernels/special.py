"""Logs of gamma functions for kernels: from tables over counts, by Stirling's series above."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from bhclust._kernels.compile import compiled_inside
from bhclust._validation import FloatArray

# Counts below come from a table, those above from Stirling's series. An odd number of cache lines
# a row: with a power of two the same count in all rows would be in one place of the cache.
TABLE_LENGTH = 1032
# Numbers from here on are large enough for the series.
_STIRLING_FROM = 64
# A table may hold so many numbers (32 MB); the rest comes from the series.
_TABLE_NUMBERS = 1 << 22
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def table_length(n_rows: int) -> int:
    """Return how long the rows of a table over counts may be for the table to stay small."""
    return int(np.clip(_TABLE_NUMBERS // n_rows, _STIRLING_FROM, TABLE_LENGTH))


def log_gamma_table(start: FloatArray, length: int = TABLE_LENGTH) -> FloatArray:
    """Return ``lgamma(start + count)`` for count = 0 … length - 1, a row a start."""
    x = start[:, None] + np.arange(length)
    x[:, :_STIRLING_FROM] = gammaln(x[:, :_STIRLING_FROM])
    # The same formula as in the kernels, on an array.
    x[:, _STIRLING_FROM:] = stirling.py_func(x[:, _STIRLING_FROM:])  # type: ignore[attr-defined]
    return x


@compiled_inside
def stirling(x: float) -> float:
    """Return lgamma of a number of at least 64, where the first term left out is below 1e-19."""
    inverse = 1.0 / x
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    return (x - 0.5) * np.log(x) - x + _HALF_LOG_TWO_PI + series


@compiled_inside
def log_gamma_at(table, row, start, count):
    """Return ``lgamma(start + count)``, from the table's row where it reaches."""
    if count < table.shape[1]:
        return table[row, count]
    return stirling(start + count)


@compiled_inside
def log_at(table, row, start, count):
    """Return ``log(start + count)``, from the table's row where it reaches."""
    if count < table.shape[1]:
        return table[row, count]
    return math.log(start + count)
