"""Where formulas are computed: with NumPy, or with a module like it whose arrays are elsewhere.

``log f`` and its slopes are written once, over the array module of the statistics that they are
given. So statistics that stay on a graphics processor while hyperparameters are learned meet the
same formulas as those in memory. A device registers its kind of array with `arrays_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import scipy.special


class Arrays(NamedTuple):
    """An array module with the two special functions that it lacks itself."""

    xp: Any
    gammaln: Callable[[Any], Any]
    digamma: Callable[[Any], Any]


_NUMPY = Arrays(np, scipy.special.gammaln, scipy.special.digamma)


@singledispatch
def arrays_of(array: object) -> Arrays:
    """Return the array module that an array belongs to, NumPy unless a device registered it."""
    return _NUMPY


def like(array: Any, *values: Any) -> tuple[Any, ...]:
    """Return hyperparameters as arrays of the module that another array belongs to."""
    asarray = arrays_of(array).xp.asarray
    return tuple(asarray(value) for value in values)


def group_sums(values: Any, sizes: Any) -> Any:
    """Add up neighbours along the last axis, so many at a time.

    Examples
    --------
    >>> group_sums(np.array([[1.0, 2.0, 3.0]]), np.array([2, 1]))
    array([[3., 3.]])
    """
    xp = arrays_of(values).xp
    ends = np.cumsum(sizes)
    if xp is np:
        return np.add.reduceat(values, ends - sizes, axis=-1)
    # Not every array module adds slices; a product with zeros and ones does.
    member = np.arange(ends[-1])[:, None] < ends
    member[:, 1:] &= ~member[:, :-1]
    return values @ xp.asarray(member.astype(np.float64))
