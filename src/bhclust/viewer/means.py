"""What a feature is like below a node: means of the data, or of the model where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bhclust._validation import FloatArray, IntArray
from bhclust.models import Categorical, Mixed
from bhclust.models.base import ClusterModel, Column
from bhclust.tree import Tree

# What a model's summary calls the centre of a cluster.
_CENTRES = ("mean", "probability", "rate")


class Side(NamedTuple):
    """Nodes to describe, one a place, −1 for none; or all leaves that are not below them."""

    nodes: IntArray
    complement: bool = False


class DataMeans:
    """Means of the columns of a table below nodes; the most frequent code of a category.

    Parameters
    ----------
    tree : Tree
    values : array or sparse array, shape (n_leaves, n_columns)
        The encoded table, one row a leaf; NaN is missing.
    columns : sequence of Column
    """

    def __init__(self, tree: Tree, values: Any, columns: Sequence[Column]) -> None:
        self._order = tree.leaf_order()
        self._start = np.append(tree.leaf_start, 0)
        self._end = np.append(tree.leaf_start + tree.size, 0)  # node −1 has no leaves
        # Columns are taken out one by one, which a matrix stored by rows does slowly.
        self._values = values if isinstance(values, np.ndarray) else values.tocsc()
        self._kinds = [column.kind for column in columns]

    def at(self, features: IntArray, sides: Sequence[Side]) -> FloatArray:
        """Return the centre of some features on some sides.

        Parameters
        ----------
        features : array, shape (m, n_features)
            The columns asked for at each of m places, −1 for none.
        sides : sequence of Side
            The nodes to describe at each place.

        Returns
        -------
        array, shape (m, n_features, n_sides)
            NaN where there is no node, no feature, or no observed value.
        """
        out = np.full((*features.shape, len(sides)), np.nan)
        flat = features.ravel()
        by_feature = np.argsort(flat, kind="stable")
        used, first = np.unique(flat[by_feature], return_index=True)
        for j, entries in zip(used.tolist(), np.split(by_feature, first[1:]), strict=True):
            if j < 0:
                continue
            rows, places = np.divmod(entries, features.shape[1])
            column = self._column(j)[self._order]
            describe = _frequent if self._kinds[j] == "categorical" else _mean
            for s, side in enumerate(sides):
                start, end = self._start[side.nodes[rows]], self._end[side.nodes[rows]]
                out[rows, places, s] = describe(column, start, end, side.complement)
        return out

    def _column(self, j: int) -> FloatArray:
        if isinstance(self._values, np.ndarray):
            return np.asarray(self._values[:, j], dtype=np.float64)
        stored = slice(self._values.indptr[j], self._values.indptr[j + 1])
        out = np.zeros(self._values.shape[0])
        out[self._values.indices[stored]] = self._values.data[stored]
        return out


def _mean(column: FloatArray, start: IntArray, end: IntArray, complement: bool) -> FloatArray:
    observed = ~np.isnan(column)
    sums = np.concatenate([[0.0], np.cumsum(np.where(observed, column, 0.0))])
    counts = np.concatenate([[0], np.cumsum(observed)])
    total, number = sums[end] - sums[start], counts[end] - counts[start]
    if complement:
        total, number = sums[-1] - total, counts[-1] - number
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _frequent(column: FloatArray, start: IntArray, end: IntArray, complement: bool) -> FloatArray:
    out = np.full(len(start), np.nan)
    for i, (first, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = column[first:last]
        part = np.concatenate([column[:first], column[last:]]) if complement else inside
        codes = part[~np.isnan(part)].astype(np.intp)
        if len(codes):
            out[i] = np.bincount(codes).argmax()
    return out


def model_means(model: ClusterModel, stats: FloatArray, n_columns: int) -> FloatArray | None:
    """Return the centre of each cluster as its model sees it, ``(m, n_columns)``.

    A mean, a probability of a one or a rate; the most probable code of a category. NaN in columns
    of which the model gives no centre; None if there is no such column.
    """
    return _over_parts(model, stats, n_columns, _centre)


def leaf_centres(model: ClusterModel, tree: Tree, n_columns: int) -> FloatArray | None:
    """Return what the statistics of the leaves say of the table, ``(n_leaves, n_columns)``.

    A posterior mean lies between the value and the prior, and rises with the value. An entry that
    leaves the prior as it was is taken for missing, except in a column that is the same in every
    leaf.
    """
    if tree.stats is None:
        return None
    leaves = np.ascontiguousarray(tree.stats[: tree.n_leaves])
    return _over_parts(model, leaves, n_columns, _observed_centre)


_Centre = Callable[[ClusterModel, FloatArray, int], FloatArray | None]


def _over_parts(
    model: ClusterModel, stats: FloatArray, n_columns: int, centre_of: _Centre
) -> FloatArray | None:
    """Return the centres of a model, or of each part of a `Mixed` one in the part's columns."""
    if not isinstance(model, Mixed):
        return centre_of(model, stats, n_columns)
    out = np.full((len(stats), n_columns), np.nan)
    ends = np.cumsum(model.widths or ())
    for (part, positions), block in zip(
        model.parts, np.split(stats, ends[:-1], axis=1), strict=True
    ):
        inside = np.atleast_1d(np.asarray(positions, dtype=np.intp))
        centre = centre_of(part, np.ascontiguousarray(block), len(inside))
        if centre is not None:
            out[:, inside] = centre
    return None if np.isnan(out).all() else out


def _centre(model: ClusterModel, stats: FloatArray, n_columns: int) -> FloatArray | None:
    summary = model.summary(stats)
    if isinstance(model, Categorical):
        parts = _by_column(model, summary["probability"])
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float64)
    for name in _CENTRES:
        centre = summary.get(name)
        if centre is not None and centre.ndim == 2 and centre.shape[1] == n_columns:
            return np.asarray(centre, dtype=np.float64)
    return None


def _observed_centre(model: ClusterModel, stats: FloatArray, n_columns: int) -> FloatArray | None:
    centres = _centre(model, stats, n_columns)
    if centres is None:
        return None
    if isinstance(model, Categorical):
        silent = np.stack([part.sum(axis=1) == 0 for part in _by_column(model, stats)], axis=1)
    else:
        nothing = _centre(model, model.repeat(stats[:1], np.zeros(1)), n_columns)
        silent = centres == nothing
        silent &= ~silent.all(axis=0)
    return np.where(silent, np.nan, centres)


def _by_column(model: Categorical, stats: FloatArray) -> list[FloatArray]:
    """Cut rows with one number a category into one block a column."""
    sizes = np.atleast_1d(np.asarray(model.n_categories, dtype=np.intp))
    return np.split(stats, np.cumsum(sizes)[:-1], axis=1)
