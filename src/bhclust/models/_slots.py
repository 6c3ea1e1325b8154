"""Clusters that keep their members: a fixed number of slots, each a member and its count.

Slots stand in increasing order of their members, empty ones last, so that equal clusters are equal
arrays whichever way they were merged.
"""

from __future__ import annotations

import numpy as np

from bhclust._validation import FloatArray

#: the place of the count within a slot; the member's numbers follow it
COUNT = 0


def merge_slots(a: FloatArray, b: FloatArray) -> FloatArray | None:
    """Return the union of clusters of slots, row by row; one side may be a single row.

    Parameters
    ----------
    a, b : array of shape (m, capacity, 1 + d)
        Clusters.

    Returns
    -------
    array of shape (m, capacity, 1 + d), or None if a union has more members than slots

    Examples
    --------
    >>> import numpy as np
    >>> one = np.array([[[1.0, 7.0], [0.0, 0.0]]])
    >>> two = np.array([[[2.0, 5.0], [1.0, 7.0]]])
    >>> merge_slots(one, two).tolist()
    [[[2.0, 5.0], [2.0, 7.0]]]
    """
    shape = (max(len(a), len(b)), *a.shape[1:])
    both = np.concatenate([np.broadcast_to(side, shape) for side in (a, b)], axis=1)
    both = _sorted(both)
    # Each side has a member once, so that equal ones are neighbours in twos.
    same = (both[:, 1:, 1:] == both[:, :-1, 1:]).all(axis=2) & (both[:, 1:, COUNT] > 0)
    both[:, :-1, COUNT] += np.where(same, both[:, 1:, COUNT], 0.0)
    both[:, 1:][same] = 0.0
    both = _sorted(both)
    capacity = shape[1]
    if (both[:, capacity:, COUNT] > 0).any():
        return None
    return np.ascontiguousarray(both[:, :capacity])


def repeat_slots(slots: FloatArray, weight: FloatArray) -> FloatArray:
    """Return clusters of slots taken ``weight`` times over."""
    out = slots.copy()
    out[:, :, COUNT] *= np.asarray(weight)[:, None]
    out[out[:, :, COUNT] == 0] = 0.0
    return out


def _sorted(slots: FloatArray) -> FloatArray:
    """Put the slots of each cluster in increasing order of their members, empty ones last."""
    empty = slots[:, :, COUNT] == 0
    keys = [slots[:, :, j] for j in range(slots.shape[2] - 1, 0, -1)]
    order = np.lexsort((*keys, empty), axis=1)
    return np.take_along_axis(slots, order[:, :, None], axis=1)
