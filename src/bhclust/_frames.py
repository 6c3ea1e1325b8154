"""Data frames of any library, through narwhals: opened into columns, built from decoded values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import narwhals.stable.v1 as nw
import numpy as np

from bhclust import _columns as columns_of
from bhclust import _validation as validation
from bhclust._columns import Family, RawColumn
from bhclust._validation import BhclustError, FloatArray
from bhclust.models.base import Column


class OpenedFrame(NamedTuple):
    """The columns of a data frame, the name of its library, and its row labels if it has any."""

    columns: list[RawColumn]
    library: str
    row_names: tuple[str, ...] | None


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a data frame; a lazy one is an error."""
    if nw.dependencies.is_polars_lazyframe(X):
        raise BhclustError("the table is a lazy polars frame: call .collect() on it first.")
    return bool(nw.dependencies.is_into_dataframe(X))


def open_frame(X: Any) -> OpenedFrame:
    """Read the columns of a data frame."""
    try:
        frame = nw.from_native(X, eager_only=True)
        labels = list(frame.columns)
    except nw.exceptions.NarwhalsError as error:
        raise BhclustError(
            f"the data frame cannot be read: {' '.join(str(error).split())}."
        ) from error
    names = tuple(str(label) for label in labels)
    if len(set(names)) < len(names):
        raise validation.duplicate_columns(names)
    validation.check_shape(frame.shape)
    columns = [_open_series(frame[:, j], name) for j, name in enumerate(names)]
    return OpenedFrame(columns, str(frame.implementation.value), _row_names(frame))


def _open_series(series: nw.Series[Any], name: str) -> RawColumn:
    dtype = series.dtype
    if dtype.is_temporal():
        raise validation.dates(f"column {name!r}")
    if dtype in (nw.Categorical, nw.Enum):
        categories = series.cat.get_categories().to_list()
        if dtype == nw.Categorical and series.implementation.is_polars():
            # A polars Categorical declares no categories, it only remembers the order it met.
            categories = sorted(categories)
        return columns_of.raw_categories(name, series.to_list(), categories)
    if dtype == nw.Boolean or dtype.is_numeric():
        return _open_numbers(series, name)
    if dtype in (nw.String, nw.Object, nw.Unknown):
        items = np.empty(len(series), dtype=object)
        items[:] = series.to_list()
        return columns_of.raw_objects(name, items)
    raise validation.nested(f"column {name!r}", dtype)


def _open_numbers(series: nw.Series[Any], name: str) -> RawColumn:
    missing = series.is_null().to_numpy().astype(np.bool_)
    if series.dtype.is_decimal():
        series = series.cast(nw.Float64)
    if bool(missing.any()):
        series = series.fill_null(False if series.dtype == nw.Boolean else 0)
    raw = columns_of.raw_numbers(name, series.to_numpy(), missing)
    observed = raw.values[~raw.missing]
    was_integer = (
        raw.family == "float"
        and series.implementation.is_pandas_like()
        # The nullable types of pandas keep integers integers.
        and isinstance(series.to_native().dtype, np.dtype)
        and 0 < len(observed) < len(raw.values)
        and bool((np.floor(observed) == observed).all())
        and bool(np.isfinite(observed).all())
    )
    return raw._replace(family="integer") if was_integer else raw


def _row_names(frame: nw.DataFrame[Any]) -> tuple[str, ...] | None:
    index = nw.maybe_get_index(frame)
    if index is None:
        return None
    labels = index.tolist()
    return None if labels == list(range(len(labels))) else tuple(str(label) for label in labels)


def build_frame(
    library: str,
    columns: Sequence[Column],
    families: Sequence[Family],
    values: FloatArray,
    like: Any,
) -> Any:
    """Build a data frame of a library from encoded values."""
    backend: Any = nw.Implementation.from_string(library)
    series = [
        _series(column.name, values[:, j], column, family, backend)
        for j, (column, family) in enumerate(zip(columns, families, strict=True))
    ]
    native = nw.to_native(nw.from_dict({one.name: one for one in series}))
    index = None if like is None else nw.maybe_get_index(nw.from_native(like, eager_only=True))
    return native.set_axis(index, axis=0) if index is not None else native


def _series(
    name: str, values: FloatArray, column: Column, family: Family, backend: Any
) -> nw.Series[Any]:
    decoded = columns_of.decode(values, column, family)
    if column.kind != "categorical":
        series = nw.new_series(name, decoded, backend=backend)
        missing = np.isnan(values)
        if bool(missing.any()) and not backend.is_pandas_like():
            series = series.cast(nw.Float64).fill_nan(None)
        return series
    if family != "category":
        return nw.new_series(name, decoded.tolist(), backend=backend)
    native = backend.to_native_namespace()
    if backend.is_pandas_like():
        typed = native.Series(
            native.Categorical(decoded, categories=list(column.categories)), name=name
        )
    elif backend.is_polars():
        typed = native.Series(name, decoded.tolist(), dtype=native.Enum(column.categories))
    else:
        return nw.new_series(name, decoded.tolist(), nw.Categorical, backend=backend)
    return cast("nw.Series[Any]", nw.from_native(typed, series_only=True))
