"""Ward and average linkage of weighted rows, in O(n d) memory.

Both distances are reducible and need only centres, weights and spreads, so the nearest-neighbour
chain gives the exact tree without a matrix of distances. Where rows are longer than there are
rows, a matrix is smaller than the table and saves going through the rows again and again. SciPy's
linkage knows no weights and keeps n² distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics import euclidean_distances

from bhclust._kernels.compile import compiled, compiled_fast_inside, compiled_inside
from bhclust._validation import FloatArray
from bhclust.models.base import Column

LinkageMethod = Literal["ward", "average"]


def linkage_parent(
    features: FloatArray, weight: FloatArray, method: LinkageMethod
) -> npt.NDArray[np.int32]:
    """Return the parents of the linkage tree of weighted rows.

    Parameters
    ----------
    features : array of shape (n, d)
        Rows without missing values.
    weight : array of shape (n,)
        Multiplicities: a row of weight w counts like w equal rows.
    method : {"ward", "average"}
        ``"ward"`` merges where the within-cluster sum of squares rises least; ``"average"`` where
        the mean *squared* distance of the pairs is least.

    Returns
    -------
    array of int32 of shape (2 n - 1,)

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0], [1.0], [10.0], [12.0]])
    >>> linkage_parent(rows, np.ones(4), "ward").tolist()
    [4, 4, 5, 5, 6, 6, -1]
    """
    rows = np.ascontiguousarray(features, dtype=np.float64)
    left, right = _chain(
        rows, _distances(rows), np.asarray(weight, dtype=np.float64), method == "ward"
    )
    n = len(rows)
    parent = np.full(2 * n - 1, -1, dtype=np.int32)
    parent[left] = parent[right] = np.arange(n, 2 * n - 1)
    return parent


def numeric_features(values: Any, columns: Sequence[Column], weight: FloatArray) -> FloatArray:
    """Return rows of numbers whose Euclidean distances mean something for every kind of column.

    Reals are standardised, counts replaced by twice their root (whose noise has variance 1),
    categories one-hot encoded over √2, so that two different ones are at distance 1 like two
    different binary values; a missing entry is the mean of its column. In a table of several
    kinds every column is scaled to variance 1.

    Parameters
    ----------
    values : array or sparse array of shape (n, d)
        The encoded table; NaN is missing.
    columns : sequence of Column
        Names, kinds and categories.
    weight : array of shape (n,)
        Multiplicities of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Column
    >>> X = np.array([[0.0], [1.0], [np.nan]])
    >>> numeric_features(X, [Column("x", "binary")], np.ones(3)).ravel().tolist()
    [0.0, 1.0, 0.5]
    """
    table = np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)
    several = len({column.kind for column in columns}) > 1
    blocks = []
    for j, column in enumerate(columns):
        block = _filled(_as_numbers(table[:, j], column), weight)
        if several or column.kind == "real":
            block = _standardised(block, weight)
        blocks.append(block)
    return np.hstack(blocks)


def _as_numbers(entries: FloatArray, column: Column) -> FloatArray:
    if column.kind == "count":
        return 2 * np.sqrt(entries)[:, None]
    if column.kind != "categorical":
        return entries[:, None]
    observed = ~np.isnan(entries)
    highest = int(entries[observed].max(initial=0))
    hot = (entries[:, None] == np.arange(max(len(column.categories), highest + 1))) / np.sqrt(2)
    hot[~observed] = np.nan
    return np.asarray(hot)


def _filled(block: FloatArray, weight: FloatArray) -> FloatArray:
    observed = ~np.isnan(block)
    counts = weight @ observed
    totals = weight @ np.where(observed, block, 0.0)
    return np.where(observed, block, totals / np.where(counts > 0, counts, 1.0))


def _standardised(block: FloatArray, weight: FloatArray) -> FloatArray:
    total = weight.sum()
    centred = block - weight @ block / total
    # The columns of one category share a scale, or rare values would count most.
    variance = float((weight @ np.square(centred)).sum() / total)
    size = float(np.abs(block).max(initial=0.0))
    constant = variance <= np.square(1e-12 * size)
    return np.zeros_like(centred) if constant else centred / np.sqrt(variance)


def _distances(rows: FloatArray) -> FloatArray:
    """Return all squared distances of rows longer than there are rows, else an empty matrix."""
    n, d = rows.shape
    if n > d:
        return np.empty((0, 0))
    few = np.count_nonzero(rows) <= n * d / 8
    squares = euclidean_distances(sparse.csr_array(rows) if few else rows, squared=True)
    return np.asarray(
        np.minimum(squares, squares.T)
    )  # they differ by rounding, and the chain could not end


@compiled_fast_inside
def _nearest(  # type: ignore[no-untyped-def]
    centre: Any,
    squares: Any,
    weight: Any,
    spread: Any,
    live: Any,
    n_live: int,
    i: int,
    before: int,
    ward: bool,
):
    """Return the position in ``live`` of the cluster nearest to i.

    Ties go to the one that came before in the chain, or it would run in circles; then to the
    position met first. What it takes is written out: a call for each pair costs several times the
    work.
    """
    matrix = len(squares) > 0
    best, nearest = np.inf, -1
    for place in range(n_live):
        j = live[place]
        if j == i:
            continue
        if matrix:
            apart = squares[i, j]
        else:
            apart = 0.0
            for feature in range(centre.shape[1]):
                gap = centre[i, feature] - centre[j, feature]
                apart += gap * gap
        if ward:
            distance = apart * (weight[i] * weight[j] / (weight[i] + weight[j]))
        else:
            distance = apart + spread[i] + spread[j]
        if distance < best or (distance == best and j == before):
            best, nearest = distance, place
    return nearest


@compiled
def _chain(rows: Any, squares: Any, row_weight: Any, ward: bool):  # type: ignore[no-untyped-def]
    """Return the ids merged in each step; every cluster is kept in the place of its first row.

    Squared distances of centres are read from a matrix, if there is one, which is changed.
    """
    n, d = rows.shape
    centre = rows if len(squares) else rows.copy()
    weight, spread = row_weight.copy(), np.zeros(n)
    node = np.arange(n)  # id of the cluster that a place holds
    live = np.arange(n)
    n_live = n
    chain = np.empty(n, dtype=np.int64)
    length = 0
    left, right = np.empty(n - 1, dtype=np.int64), np.empty(n - 1, dtype=np.int64)
    for step in range(n - 1):
        if length == 0:
            chain[0] = live[0]
            length = 1
        while True:
            tip = chain[length - 1]
            before = chain[length - 2] if length > 1 else -1
            place = _nearest(centre, squares, weight, spread, live, n_live, tip, before, ward)
            following = live[place]
            if following == before:
                break
            chain[length] = following
            length += 1
        length -= 2
        keep, gone = min(tip, following), max(tip, following)
        left[step], right[step] = node[keep], node[gone]
        total = weight[keep] + weight[gone]
        between = _gap(centre, squares, weight, keep, gone)
        spread[keep] = (weight[keep] * spread[keep] + weight[gone] * spread[gone] + between) / total
        share = weight[gone] / total
        if len(squares):
            _move_centre(squares, keep, gone, share, live, n_live)
        else:
            for feature in range(d):
                centre[keep, feature] += share * (centre[gone, feature] - centre[keep, feature])
        weight[keep] = total
        node[keep] = n + step
        write = 0
        for read in range(n_live):
            if live[read] != gone:
                live[write] = live[read]
                write += 1
        n_live -= 1
    return left, right


@compiled_fast_inside
def _gap(  # type: ignore[no-untyped-def]
    centre: Any, squares: Any, weight: Any, i: int, j: int
):
    """Return by how much the squares within grow when two clusters are merged."""
    if len(squares):
        apart = squares[i, j]
    else:
        apart = 0.0
        for feature in range(centre.shape[1]):
            gap = centre[i, feature] - centre[j, feature]
            apart += gap * gap
    return apart * (weight[i] * weight[j] / (weight[i] + weight[j]))


@compiled_inside
def _move_centre(squares: Any, keep: int, gone: int, share: float, live: Any, n_live: int) -> None:
    """Bring the squared distances from a centre that moves part of the way to another up to date.

    On the line between two points, squared distances to a third are interpolated but for a
    parabola (Stewart's theorem).
    """
    parabola = share * (1 - share) * squares[keep, gone]
    for place in range(n_live):
        k = live[place]
        if k != keep and k != gone:
            apart = (1 - share) * squares[keep, k] + share * squares[gone, k] - parabola
            squares[keep, k] = squares[k, keep] = max(apart, 0.0)
