"""The only writer of parameter and data errors.

Every message names the parameter or column, what it must be, what it got, and the way out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
ColumnName = Callable[[int], str]


# Squares of larger numbers, added up, come near the end of float64.
_LARGEST_REAL = 1e140


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


def check_flag(value: object, *, name: str, owner: str) -> bool:
    """Return ``value`` as a bool if it is True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise BhclustError(f"{owner}: {name} must be True or False, got {value!r}.")


def check_learn(value: object, *, owner: str) -> str | bool | tuple[str, ...]:
    """Return what to learn: "auto", "shared", True, False, or the names of hyperparameters."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        if value in ("auto", "shared"):
            return value
    elif isinstance(value, Iterable):
        names = tuple(value)
        if names and all(isinstance(name, str) for name in names):
            return names
    raise BhclustError(
        f"{owner}: learn must be 'auto', 'shared', True, False, or a list of names of "
        f"hyperparameters such as ['alpha', 'rate'], got {value!r}."
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


def check_matrix(X: object, *, owner: str, column: ColumnName = column_number) -> FloatArray:
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
    check_finite(array, column)
    return array


def check_table(
    X: Any, *, owner: str, accepts_sparse: bool, column: ColumnName = column_number
) -> Any:
    """Return ``X`` as a dense float64 matrix, or as a CSR array if it is sparse."""
    if not scipy.sparse.issparse(X):
        return check_matrix(X, owner=owner, column=column)
    if not accepts_sparse:
        raise BhclustError(f"{owner} takes no sparse table; pass X.toarray().")
    table = scipy.sparse.csr_array(X, dtype=np.float64)
    if not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
    check_finite(table, column)
    return table


def check_covariance(value: object, n_features: int, *, name: str, owner: str) -> FloatArray:
    """Return a symmetric positive definite matrix from a number, a diagonal, or a matrix."""
    shape = (n_features, n_features)
    array = np.asarray(value, dtype=np.float64)
    if array.ndim < 2:
        diagonal = broadcast_hyperparameter(value, shape[:1], name=name, owner=owner)
        return np.diag(diagonal)
    full = broadcast_hyperparameter(value, shape, name=name, owner=owner, positive=False)
    size = np.abs(full).max(initial=0.0)
    if np.abs(full - full.T).max(initial=0.0) > 1e-8 * size:
        raise BhclustError(f"{owner}: {name} must be a symmetric matrix.")
    full = (full + full.T) / 2
    try:
        np.linalg.cholesky(full)
    except np.linalg.LinAlgError:
        raise BhclustError(
            f"{owner}: {name} must be positive definite; add a small multiple of the identity."
        ) from None
    return full


def check_n_columns(X: FloatArray, expected: int, *, owner: str) -> None:
    """Raise unless ``X`` has the number of columns the model was resolved with."""
    if X.shape[1] != expected:
        raise BhclustError(
            f"{owner} was resolved with {expected} column(s), but the table has {X.shape[1]}."
        )


def check_finite(X: Any, column: ColumnName = column_number) -> None:
    """Raise if a value is infinite (NaN is a missing value and fine); ``X`` is dense or CSR."""
    _raise_at(
        np.isinf(_stored(X)), X, column, "is infinite", "replace it by a number or by NaN (missing)"
    )


def check_magnitude(X: FloatArray, column: ColumnName = column_number) -> None:
    """Raise if a value is so large that sums of its squares would overflow."""
    _raise_at(
        np.abs(X) > _LARGEST_REAL,
        X,
        column,
        f"is beyond {_LARGEST_REAL:g}",
        "change the unit of the column",
    )


def check_fitted_rows(n_rows: int, n_fitted: int) -> None:
    """Raise if a table that should be the fitted one has another number of rows."""
    if n_rows != n_fitted:
        raise BhclustError(
            f"heldout_log_likelihood: pass the {n_fitted:,} fitted rows in the same order, with "
            f"the missing entries filled in; got {n_rows:,} rows."
        )


def check_binary(X: Any, column: ColumnName = column_number) -> None:
    """Raise if an observed value is neither 0 nor 1; ``X`` is dense or CSR."""
    values = _stored(X)
    bad = ~np.isnan(values) & (values != 0) & (values != 1)
    _raise_at(bad, X, column, "is neither 0 nor 1", "binarise it or choose another model")


def check_counts(X: Any, column: ColumnName = column_number) -> None:
    """Raise if an observed value is negative or not a whole number; ``X`` is dense or CSR."""
    values = _stored(X)
    _raise_at(
        values < 0, X, column, "is negative", "counts are 0, 1, 2, …; choose a model for reals"
    )
    bad = ~np.isnan(values) & (np.floor(values) != values)
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


def check_codes(
    X: FloatArray, n_categories: Sequence[int], column: ColumnName = column_number
) -> None:
    """Raise if an observed value is not one of the codes 0, …, n_categories - 1 of its column."""
    check_counts(X, column)
    _raise_at(
        np.asarray(n_categories) <= X,
        X,
        column,
        "has a code beyond its categories",
        "give n_categories, or fit on a table that has all the categories",
    )


def _stored(X: Any) -> FloatArray:
    # The absent entries of a sparse table are zeros, which every check lets through.
    return X if isinstance(X, np.ndarray) else X.data


def _raise_at(
    bad: npt.NDArray[np.bool_], X: Any, column: ColumnName, what: str, way_out: str
) -> None:
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    if isinstance(X, np.ndarray):
        i, j = divmod(first, X.shape[1])
        value = X[i, j]
    else:
        coordinates = X.tocoo()
        i, j, value = coordinates.row[first], coordinates.col[first], X.data[first]
    raise BhclustError(f"{column(int(j))} {what} in row {i} (value {value:g}): {way_out}.")


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
            "sample_weight must be finite and not negative, and not every weight may be zero."
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


class UnsupportedValueError(BhclustError, TypeError):
    """A table holds something that is neither a number, a string nor missing."""


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise unless ``shape`` is two-dimensional with at least one row and one column.

    The wording follows scikit-learn's ``check_array``, which its users know and its estimator
    checks look for.
    """
    if len(shape) < 2:
        got = "scalar" if not shape else "1D"
        raise BhclustError(
            f"Expected 2D array, got {got} array instead. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if "
            "it contains a single sample."
        )
    if len(shape) > 2:
        raise BhclustError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required: one row an item, "
            "one column a feature."
        )
    for size, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if size == 0:
            raise BhclustError(
                f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required."
            )


def complex_data() -> BhclustError:
    """Say that a table holds complex numbers."""
    return BhclustError(
        "Complex data not supported: pass real and imaginary parts as columns of their own."
    )


def dates(column: str) -> BhclustError:
    """Say that a column holds dates, times or durations."""
    return BhclustError(
        f"{column} holds dates, times or durations, which no cluster model describes: turn it "
        "into numbers (days since a date), into strings (month, weekday), or leave it out."
    )


def nested(column: str, dtype: object) -> BhclustError:
    """Say that a column holds lists, records or raw bytes."""
    return BhclustError(
        f"{column} holds values of type {dtype}, which are neither numbers nor strings: spread "
        "them over several columns, turn them into strings, or leave the column out."
    )


def unsupported_value(column: str, row: int, value: object) -> UnsupportedValueError:
    """Say that one entry is neither a number nor a string."""
    return UnsupportedValueError(
        f"{column}, row {row}: the argument must be a string or a real number, not "
        f"{type(value).__name__!r}; None and NaN mark missing values."
    )


def mixed_values(column: str, row: int, value: object) -> BhclustError:
    """Say that a column holds both numbers and strings."""
    return BhclustError(
        f"{column} holds numbers and strings; the first string is {value!r} in row {row}: "
        "replace it by a number or by a missing value, or declare the column's kind as "
        "'categorical'."
    )


def strings_in(column: str, kind: str, row: int, value: object) -> BhclustError:
    """Say that a column declared to hold numbers holds strings."""
    return BhclustError(
        f"{column} must hold numbers to be of kind {kind!r}, but row {row} holds the string "
        f"{value!r}: declare the column's kind as 'categorical', or recode it."
    )


def unseen_category(column: str, row: int, value: object) -> BhclustError:
    """Say that a category was not there when the model was fitted."""
    return BhclustError(
        f"{column} holds the category {value!r} in row {row}, which it did not have when the "
        "model was fitted: declare it as a category of the column (pandas Categorical / polars "
        "Enum) before fitting, or replace it by a missing value."
    )


def unknown_column(key: object, names: Sequence[str]) -> BhclustError:
    """Say that a kind was declared for a column that is not there."""
    return BhclustError(
        f"a kind is declared for column {key!r}, which the table does not have; its columns "
        f"are {listed(names)}."
    )


def duplicate_columns(names: Sequence[str]) -> BhclustError:
    """Say that several columns have the same name."""
    repeated = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    return BhclustError(f"column names must be unique, but the table repeats {listed(repeated)}.")


def check_feature_count(found: int, expected: int, *, owner: str) -> None:
    """Raise unless a new table has as many columns as the fitted one."""
    if found != expected:
        raise BhclustError(
            f"X has {found} features, but {owner} is expecting {expected} features as input."
        )


def check_feature_names(found: Sequence[str], expected: Sequence[str]) -> None:
    """Raise unless a new frame has the column names of the fitted one, in the same order."""
    for j, (name, wanted) in enumerate(zip(found, expected, strict=True)):
        if name != wanted:
            raise BhclustError(
                f"column {j} is called {name!r}, but the fitted table has {wanted!r} there: "
                "give the columns in the order of the fit."
            )


def check_topology(parent: npt.NDArray[np.int32], n_leaves: int) -> None:
    """Raise unless the parents of a tree put leaves first and parents after their children."""
    bad = np.flatnonzero((parent != -1) & (parent <= np.arange(len(parent))))
    if bad.size:
        raise BhclustError(
            f"Tree: a parent must have a higher number than its child, but parent[{bad[0]}] is "
            f"{parent[bad[0]]}; Tree.from_parent numbers the nodes anew."
        )
    bad = np.flatnonzero((parent != -1) & (parent < n_leaves))
    if bad.size:
        raise BhclustError(
            f"Tree: a leaf cannot have children, but parent[{bad[0]}] is the leaf "
            f"{parent[bad[0]]} (the leaves are nodes 0 to {n_leaves - 1})."
        )
    n_children = np.bincount(parent[parent >= 0], minlength=len(parent))
    childless = n_leaves + np.flatnonzero(n_children[n_leaves:] == 0)
    if childless.size:
        raise BhclustError(
            f"Tree: leaves must come first, but node {childless[0]} has no children and n_leaves "
            f"is {n_leaves}."
        )
    check_no_single_child(n_children)


def check_no_single_child(n_children: npt.NDArray[Any]) -> None:
    """Raise if a node of a tree has exactly one child."""
    single = np.flatnonzero(n_children == 1)
    if single.size:
        raise BhclustError(
            f"Tree: an internal node must have at least two children, but node {single[0]} has "
            "one: remove it and give its child its parent."
        )


def check_heights(height: FloatArray, parent: npt.NDArray[np.int32], n_leaves: int) -> None:
    """Raise unless heights are finite, 0 at leaves, and never fall from child to parent."""
    infinite = np.flatnonzero(~np.isfinite(height))
    if infinite.size:
        node = infinite[0]
        raise BhclustError(f"Tree: height must be finite, but at node {node} it is {height[node]}.")
    raised = np.flatnonzero(height[:n_leaves] != 0)
    if raised.size:
        leaf = raised[0]
        raise BhclustError(
            f"Tree: height must be 0 at leaves, but at leaf {leaf} it is {height[leaf]:g}."
        )
    below = np.flatnonzero(parent >= 0)
    falling = below[height[parent[below]] < height[below]]
    if falling.size:
        child, above = falling[0], parent[falling[0]]
        raise BhclustError(
            f"Tree: height must not fall from child to parent, but node {child} has "
            f"{height[child]:g} and its parent {above} has {height[above]:g}."
        )


def check_weights(weight: FloatArray, parent: npt.NDArray[np.int32], n_leaves: int) -> None:
    """Raise unless the weights of a tree are positive and add up from child to parent."""
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if bad.size:
        node = bad[0]
        raise BhclustError(
            f"Tree: weight must be positive and finite, but at node {node} it is {weight[node]:g}."
        )
    below = np.flatnonzero(parent >= 0)
    total = np.bincount(parent[below], weights=weight[below], minlength=len(parent))[n_leaves:]
    # A tree does not record in which order its weights were added: allow for rounding.
    wrong = np.flatnonzero(np.abs(total - weight[n_leaves:]) > 1e-6 * total)
    if wrong.size:
        node = n_leaves + wrong[0]
        raise BhclustError(
            f"Tree: weight must add up from child to parent, but node {node} has {weight[node]:g} "
            f"and its children have {total[wrong[0]]:g} together."
        )


def check_log_odds(log_odds: FloatArray, n_leaves: int) -> None:
    """Raise if the log odds of a tree are NaN anywhere or finite at a leaf."""
    missing = np.flatnonzero(np.isnan(log_odds))
    if missing.size:
        raise BhclustError(f"Tree: log_odds must not be NaN, but it is at node {missing[0]}.")
    bad = np.flatnonzero(log_odds[:n_leaves] != np.inf)
    if bad.size:
        raise BhclustError(
            "Tree: log_odds must be +inf at leaves (a leaf is always one cluster), but at leaf "
            f"{bad[0]} it is {log_odds[bad[0]]:g}."
        )


def check_leaf_names(names: object, n_leaves: int) -> tuple[str, ...]:
    """Return the names of leaves as a tuple of plain strings, one a leaf."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BhclustError(f"Tree: leaf_names must be a sequence of strings, got {names!r}.")
    strings = list(names)
    for place, name in enumerate(strings):
        if not isinstance(name, str):
            raise BhclustError(
                f"Tree: every entry of leaf_names must be a string, but entry {place} is "
                f"{name!r}: convert it with str()."
            )
    if len(strings) != n_leaves:
        raise BhclustError(
            f"Tree: leaf_names must have one name a leaf ({n_leaves} leaves), got {len(strings)}."
        )
    # Subclasses such as numpy.str_ would not print or serialise as plain strings.
    return tuple(map(str, strings))
