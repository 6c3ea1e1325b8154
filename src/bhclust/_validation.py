"""The only writer of parameter and data errors.

Every message names the parameter or column, what it must be, what it got, and the way out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
ColumnName = Callable[[int], str]


class BhclustError(ValueError):
    """A mistake in the input that its message tells how to mend."""


class FileFormatError(BhclustError):
    """A file that is truncated, foreign, or of a version this release cannot read."""


def column_number(j: int) -> str:
    """Name a column that has no name of its own."""
    return f"column {j}"


def check_positive(value: float, *, name: str, owner: str) -> float:
    """Return ``value`` as a float if it is a positive finite number."""
    number = _as_number(value, name=name, owner=owner)
    if not (np.isfinite(number) and number > 0):
        raise BhclustError(f"{owner}: {name} must be a positive finite number, got {value!r}.")
    return number


def check_open_unit(value: float, *, name: str, owner: str) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1."""
    number = _as_number(value, name=name, owner=owner)
    if not 0 < number < 1:
        raise BhclustError(f"{owner}: {name} must lie strictly between 0 and 1, got {value!r}.")
    return number


def check_choice(value: object, choices: Collection[str], *, name: str, owner: str) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(repr(choice) for choice in choices)
    raise BhclustError(f"{owner}: {name} must be one of {listed}, got {value!r}.")


def check_count(
    value: object, *, name: str, owner: str, lowest: int = 1, highest: int | None = None
) -> int:
    """Return ``value`` as an int if it is a whole number in the closed range."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if whole:
        number = int(value)  # type: ignore[call-overload]
        if number >= lowest and (highest is None or number <= highest):
            return int(number)
    upper = "" if highest is None else f" and at most {highest}"
    raise BhclustError(
        f"{owner}: {name} must be a whole number, at least {lowest}{upper}, got {value!r}."
    )


def _as_number(value: object, *, name: str, owner: str) -> float:
    if isinstance(value, (bool, str)) or value is None:
        raise BhclustError(f"{owner}: {name} must be a number, got {value!r}.")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BhclustError(f"{owner}: {name} must be a number, got {value!r}.") from None


def broadcast_hyperparameter(
    value: object,
    shape: tuple[int, ...],
    *,
    name: str,
    owner: str,
    positive: bool = True,
) -> FloatArray:
    """Return a float64 array of ``shape`` from a scalar or array hyperparameter."""
    try:
        array = np.asarray(value, dtype=np.float64)
        full = np.array(np.broadcast_to(array, shape), dtype=np.float64)
    except (TypeError, ValueError):
        got = getattr(value, "shape", repr(value))
        raise BhclustError(
            f"{owner}: {name} must be a number or an array of shape {shape}, got {got}."
        ) from None
    if not np.isfinite(full).all() or (positive and not (full > 0).all()):
        adjective = "positive and finite" if positive else "finite"
        raise BhclustError(f"{owner}: every entry of {name} must be {adjective}.")
    return full


def check_matrix(X: object, *, owner: str) -> FloatArray:
    """Return ``X`` as a C-contiguous two-dimensional float64 array; NaN means missing."""
    try:
        array = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise BhclustError(
            f"{owner} takes a table of numbers; pass strings and mixed columns to an estimator, "
            "which encodes them."
        ) from None
    if array.ndim != 2:
        raise BhclustError(f"{owner} takes a two-dimensional table, got {array.ndim} dimension(s).")
    check_finite(array)
    return array


def check_n_columns(X: FloatArray, expected: int, *, owner: str) -> None:
    """Raise unless ``X`` has the number of columns the model was resolved with."""
    if X.shape[1] != expected:
        raise BhclustError(
            f"{owner} was resolved with {expected} column(s), but the table has {X.shape[1]}."
        )


def check_finite(X: FloatArray, column: ColumnName = column_number) -> None:
    """Raise if a value is infinite (NaN is a missing value and fine)."""
    _raise_at(np.isinf(X), X, column, "is infinite", "replace it by a number or by NaN (missing)")


def check_binary(X: FloatArray, column: ColumnName = column_number) -> None:
    """Raise if an observed value is neither 0 nor 1."""
    bad = ~np.isnan(X) & (X != 0) & (X != 1)
    _raise_at(bad, X, column, "is neither 0 nor 1", "binarise it or choose another model")


def check_counts(X: FloatArray, column: ColumnName = column_number) -> None:
    """Raise if an observed value is negative or not a whole number."""
    _raise_at(X < 0, X, column, "is negative", "counts are 0, 1, 2, …; choose a model for reals")
    bad = ~np.isnan(X) & (np.floor(X) != X)
    _raise_at(bad, X, column, "is not a whole number", "round it or choose a model for reals")


def check_complete(X: FloatArray, *, owner: str, instead: str, column: ColumnName) -> None:
    """Raise if a value is missing."""
    missing = np.isnan(X)
    if missing.any():
        j = int(np.flatnonzero(missing.any(axis=0))[0])
        raise BhclustError(
            f"{owner} cannot use missing values, and {column(j)} has {int(missing[:, j].sum())}; "
            f"use {instead} or fill them in."
        )


def _raise_at(
    bad: npt.NDArray[np.bool_], X: FloatArray, column: ColumnName, what: str, way_out: str
) -> None:
    if bad.any():
        i, j = (int(v) for v in np.argwhere(bad)[0])
        raise BhclustError(f"{column(j)} {what} in row {i} (value {X[i, j]:g}): {way_out}.")


def check_sample_weight(sample_weight: object, n_rows: int) -> FloatArray:
    """Return multiplicities of rows: finite, not negative, not all zero; ones for ``None``."""
    if sample_weight is None:
        return np.ones(n_rows)
    try:
        weight = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise BhclustError("sample_weight must be an array of numbers.") from None
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n_rows,)}: one weight a row."
        )
    if not np.isfinite(weight).all() or (weight < 0).any() or not (weight > 0).any():
        raise BhclustError(
            "sample_weight must be finite and not negative, with at least one positive weight."
        )
    return weight


def optional_import(module: str, *, extra: str, needed_for: str) -> ModuleType:
    """Import an optional package, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise ImportError(
            f"{needed_for} needs {package}: install it with `pip install 'bhclust[{extra}]'`."
        ) from None


def listed(names: Sequence[Any], limit: int = 5) -> str:
    """Join a few names for a message and say how many more there are."""
    shown = ", ".join(repr(name) for name in names[:limit])
    rest = len(names) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"
