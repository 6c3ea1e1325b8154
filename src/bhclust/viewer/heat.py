"""The table as one byte an entry, for the heat map beside the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.models.base import Column
from bhclust.viewer.payload import packed

MISSING = 255
MAX_COLUMNS = 200
MAX_ENTRIES = 2_000_000

# Shares of a column beyond which values get the first and the last colour.
_TAILS = (0.02, 0.98)
_LONGEST_NAME = 200


def chosen_columns(n_rows: int, n_columns: int, importance: FloatArray | None) -> IntArray:
    """Return the columns to show, in their order: all, or as many of the telling ones as fit.

    Examples
    --------
    >>> chosen_columns(10, 3, None).tolist()
    [0, 1, 2]
    """
    most = max(1, min(MAX_COLUMNS, MAX_ENTRIES // max(n_rows, 1)))
    if n_columns <= most:
        return np.arange(n_columns)
    if importance is None:
        return np.arange(most)
    return np.sort(np.argsort(-importance, kind="stable")[:most])


def heat_payload(
    values: FloatArray, columns: Sequence[Column], *, n_all: int, from_model: bool
) -> dict[str, Any]:
    """Return columns and codes of a heat map.

    Parameters
    ----------
    values : array, shape (n_leaves, n_columns)
        Encoded values, NaN for missing.
    columns : sequence of Column
    n_all : int
        Number of columns of the whole table.
    from_model : bool
        Whether the values are the model's and not the data.
    """
    codes = np.full(values.shape, MISSING, dtype=np.uint8)
    heads = []
    for j, column in enumerate(columns):
        encode = _categories if column.kind == "categorical" else _levels
        head, codes[:, j] = encode(values[:, j], column)
        heads.append({"name": column.name[:_LONGEST_NAME], "kind": column.kind, **head})
    notes = []
    if len(columns) < n_all:
        notes.append(f"{len(columns)} of {n_all} columns, those that speak most for the splits.")
    if from_model:
        notes.append(
            "The heat map shows the model's mean of each leaf, which lies between its value and "
            "the prior; give the table to see the data."
        )
    return {"columns": heads, "codes": packed(codes, "u1"), "note": " ".join(notes)}


def _levels(values: FloatArray, column: Column) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Code a column of numbers: all its values if they are few, else its quantiles."""
    observed = ~np.isnan(values)
    codes = np.full(len(values), MISSING, dtype=np.uint8)
    levels = np.unique(values[observed])
    exact = len(levels) <= MISSING
    if not exact:
        levels = np.unique(np.quantile(values[observed], np.linspace(0.0, 1.0, MISSING)))
    if len(levels):
        middle = (levels[1:] + levels[:-1]) / 2
        codes[observed] = np.searchsorted(middle, values[observed])
        low, high = np.quantile(values[observed], _TAILS)
        if column.kind == "binary" or low == high:
            low, high = levels[0], levels[-1]
        if column.kind == "binary":
            low, high = min(low, 0.0), max(high, 1.0)
    else:
        low, high = 0.0, 1.0
    numbers = [float(f"{level:.7g}") for level in levels]
    return {"levels": numbers, "exact": exact, "low": float(low), "high": float(high)}, codes


def _categories(values: FloatArray, column: Column) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Code a column of categories by how frequent they are, the rarest of very many as one."""
    observed = ~np.isnan(values)
    codes = np.full(len(values), MISSING, dtype=np.uint8)
    old = values[observed].astype(np.intp)
    counts = np.bincount(old, minlength=len(column.categories))
    by_count = np.argsort(-counts, kind="stable")
    rank = np.empty(len(counts), dtype=np.intp)
    rank[by_count] = np.arange(len(counts))
    last = MISSING - 1
    codes[observed] = np.minimum(rank[old], last)
    names = [str(column.categories[code])[:_LONGEST_NAME] for code in by_count[:last].tolist()]
    if len(counts) > last:
        names.append(f"one of {len(counts) - last} rarer ones")
    return {"categories": names}, codes
