"""Gains of pairs of leaves as inner products, where they are: the first pairs by matrix products.

The gain of two leaves x and y is log f(x, y) - log f(x) - log f(y). For columns with a few values
it is ``left[x] @ right[y] + linear[x] + linear[y]``: a column in which both have the value a adds
log(1 + 1 / alpha_a), and every column in which both have a value adds -log(1 + 1 / total).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray

# A product of so many columns costs what a look-up does: about as measured on one card.
_COLUMNS_A_LOOK_UP = 8


class Inner(NamedTuple):
    """How the gain of a part's leaves is an inner product.

    ``width`` is the number of columns, ``look_ups`` what the same costs without; ``write`` puts
    the columns into two arrays, from one column on, and adds to a third what is linear. Where it
    is ``symmetric`` the two arrays may be the same.
    """

    width: int
    look_ups: int
    symmetric: bool
    write: Callable[[Any, Any, Any, int], None]


def inner_of_levels(
    levels: Any,
    alpha: FloatArray,
    sizes: npt.NDArray[np.int64],
    n_groups: int,
    *,
    complete: bool,
) -> Inner:
    """Return the inner product of columns with a few values.

    Parameters
    ----------
    levels : array of the device, (n, d)
        The value of each leaf in each column; the number of values where it is missing.
    alpha : array
        The pseudocounts of all values, column by column.
    sizes : array of shape (d,)
        The number of values of each column.
    n_groups : int
        Look-ups that the same pair costs.
    complete : bool
        Whether nothing is missing.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])
    same = np.log1p(1.0 / alpha)
    both = np.log1p(1.0 / np.add.reduceat(alpha, start[:-1]))
    # Of two values one is enough: the other one is what is left.
    halved = complete & (sizes == 2)
    width = int(np.where(halved, 1, sizes + (0 if complete else 1)).sum())

    def write(left: Any, right: Any, linear: Any, at: int) -> None:
        linear += -0.5 * both.sum() if complete else 0.0
        for j, size in enumerate(sizes):
            own = levels[:, j]
            weights = same[start[j] : start[j + 1]]
            if halved[j]:
                chosen = own == 1
                linear += 0.5 * float(weights[0])
                linear -= chosen * float(weights[0])
                left[:, at] = right[:, at] = chosen * float(np.sqrt(weights.sum()))
                at += 1
                continue
            for value in range(size):
                weight = float(np.sqrt(weights[value]))
                left[:, at] = right[:, at] = (own == value) * weight
                at += 1
            if not complete:
                observed = (own != int(size)) * float(np.sqrt(both[j]))
                left[:, at] = observed
                right[:, at] = -observed
                at += 1

    return Inner(width, n_groups, complete, write)


class Products(NamedTuple):
    """The inner products of a table."""

    left: Any
    right: Any
    linear: Any


def products_of(arrays: Any, n: int, inners: list[Inner]) -> Products:
    """Write the inner products of the parts of a model side by side."""
    width = sum(inner.width for inner in inners)
    left = arrays.zeros((n, width))
    right = left if all(inner.symmetric for inner in inners) else arrays.zeros((n, width))
    linear = arrays.zeros(n)
    at = 0
    for inner in inners:
        inner.write(left, right, linear, at)
        at += inner.width
    return Products(left, right, linear)


def product_bytes(n: int, inners: list[Inner]) -> int:
    """Return the memory of the inner products of a table."""
    width = sum(inner.width for inner in inners)
    return 8 * n * (width * (1 if all(inner.symmetric for inner in inners) else 2) + 4)


def pay(inners: list[Inner]) -> bool:
    """Whether a matrix product costs less than scoring the pairs one by one."""
    width, look_ups = sum(i.width for i in inners), sum(i.look_ups for i in inners)
    return width <= _COLUMNS_A_LOOK_UP * look_ups
