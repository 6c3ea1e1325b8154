"""One column of a table: from raw values to floats with NaN for missing, and back."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust import _validation as validation
from bhclust._validation import BhclustError, FloatArray
from bhclust.models.base import Column, Kind

BoolArray = npt.NDArray[np.bool_]

#: What the values of a column were before they became floats; decoding goes back there.
#: "category" has declared categories, "mixed" holds numbers and strings, "empty" has no value.
Family = Literal["bool", "integer", "float", "string", "category", "mixed", "empty"]

# Below this every whole float is an integer of 64 bits.
_INTEGERS_STOP = 2.0**63
_BOOLS = (bool, np.bool_)
_WHOLE = (int, np.integer, *_BOOLS)
_NUMBERS = (numbers.Real, decimal.Decimal, *_WHOLE)
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# pandas' own missing values, told by name so that pandas need not be imported.
_MISSING_TYPE_NAMES = frozenset({"NAType", "NaTType"})
_NUMPY_FAMILIES: dict[str, Family] = {"b": "bool", "i": "integer", "u": "integer", "f": "float"}


class RawColumn(NamedTuple):
    """The values of one column as they came.

    ``values`` holds numbers for the families "bool", "integer" and "float" and Python objects
    otherwise; where ``missing`` is true its content means nothing.
    """

    name: str
    family: Family
    values: npt.NDArray[Any]
    missing: BoolArray
    declared: tuple[Any, ...] | None = None

    @property
    def label(self) -> str:
        """How messages call the column."""
        return f"column {self.name!r}"

    @property
    def is_number(self) -> bool:
        return self.family in ("bool", "integer", "float")


def raw_numbers(name: str, values: npt.NDArray[Any], missing: BoolArray | None = None) -> RawColumn:
    """Wrap a numeric array; NaN counts as missing besides what ``missing`` marks."""
    family = _NUMPY_FAMILIES[values.dtype.kind]
    absent = np.isnan(values) if family == "float" else np.zeros(len(values), dtype=np.bool_)
    return RawColumn(name, family, values, absent if missing is None else absent | missing)


def raw_objects(name: str, items: npt.NDArray[Any]) -> RawColumn:
    """Find out what an array of Python objects holds."""
    missing = np.fromiter((_is_missing(item) for item in items), np.bool_, len(items))
    types = {type(item) for item in items[~missing]}
    column = RawColumn(name, _family(types), items, missing)
    if column.family == "mixed":
        _check_items(column)
    if not column.is_number:
        return column
    return column._replace(values=_as_numbers(column))


def _as_numbers(column: RawColumn) -> npt.NDArray[Any]:
    """Turn Python numbers into an array; integers stay exact where 64 bits hold them."""
    first: dict[str, type[np.generic]] = {"bool": np.bool_, "integer": np.int64}
    observed = ~column.missing
    for dtype in (first.get(column.family, np.float64), np.float64):
        values = np.zeros(len(column.values), dtype=dtype)
        try:
            values[observed] = column.values[observed].astype(dtype)
        except OverflowError:
            continue
        return values
    raise BhclustError(f"{column.label} holds a number too large for a float.")


def raw_categories(name: str, items: Sequence[Any], declared: Sequence[Any]) -> RawColumn:
    """Wrap a column whose library declares its categories."""
    values = np.empty(len(items), dtype=object)
    values[:] = [None if _is_missing(item) else _plain(item) for item in items]
    missing = np.fromiter((item is None for item in values), np.bool_, len(items))
    categories = tuple(_plain(category) for category in declared)
    return RawColumn(name, "category", values, missing, categories)


def _is_missing(item: Any) -> bool:
    if item is None or item is np.ma.masked:
        return True
    if isinstance(item, (float, np.floating, decimal.Decimal)):
        return bool(item != item)
    if isinstance(item, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(item))
    return type(item).__name__ in _MISSING_TYPE_NAMES


def _plain(item: Any) -> Any:
    """Turn a category into a string, number or bool of Python; anything else into its text."""
    if isinstance(item, np.generic):
        item = item.item()
    return item if isinstance(item, (str, bool, int, float)) else str(item)


def _family(types: set[type]) -> Family:
    if not types:
        return "empty"
    if all(issubclass(t, str) for t in types):
        return "string"
    if all(issubclass(t, _BOOLS) for t in types):
        return "bool"
    if all(issubclass(t, _WHOLE) for t in types):
        return "integer"
    if all(issubclass(t, _NUMBERS) for t in types):
        return "float"
    return "mixed"


def _check_items(column: RawColumn) -> None:
    """Raise at the first entry that is neither a number, a string nor missing."""
    for row, item in enumerate(column.values):
        if column.missing[row] or isinstance(item, (str, *_NUMBERS)):
            continue
        if isinstance(item, (complex, np.complexfloating)):
            raise validation.complex_data()
        if isinstance(item, _DATES):
            raise validation.dates(column.label)
        raise validation.unsupported_value(column.label, row, item)


def is_zero_one(values: npt.NDArray[Any], missing: BoolArray) -> bool:
    """Whether every observed value is 0 or 1; decided on the first rows where it can be."""
    head = slice(0, 256)
    for part in (head, slice(None)):
        block = values[part]
        if not bool(((block == 0) | (block == 1) | missing[part]).all()):
            return False
    return True


def infer_kind(column: RawColumn) -> Kind:
    """Say what kind of column this is when the user does not."""
    if column.family in ("string", "category"):
        return "categorical"
    if column.family == "mixed":
        row = _first_string(column)
        raise validation.mixed_values(column.label, row, column.values[row])
    # A column without any value could be anything; "real" refuses least when it is used again.
    if bool(column.missing.all()):
        return "real"
    if is_zero_one(column.values, column.missing):
        return "binary"
    if column.family == "integer" and not bool((column.values < 0)[~column.missing].any()):
        return "count"
    return "real"


def learn(column: RawColumn, kind: Kind) -> Column:
    """Return the column's record: its name, its kind, and its categories if it has any."""
    if kind != "categorical":
        return Column(column.name, kind)
    if column.declared is not None:
        return Column(column.name, kind, column.declared)
    observed = column.values[~column.missing]
    if column.is_number:
        validation.check_finite(
            np.asarray(observed, dtype=np.float64)[:, None], lambda _: column.label
        )
        values = np.unique(observed).tolist()
        # An integer column with holes may have come as floats.
        found = [int(v) for v in values] if column.family == "integer" else values
    else:
        found = sorted({_plain(item) for item in observed}, key=lambda v: (isinstance(v, str), v))
    return Column(column.name, kind, tuple(found))


def encode(column: RawColumn, record: Column) -> FloatArray:
    """Return the values as floats: NaN for missing, codes for categories."""
    if record.kind == "categorical":
        return _encode_categories(column, record.categories)
    if column.family == "empty":
        return np.full(len(column.values), np.nan)
    if not column.is_number:
        row = _first_string(column)
        if column.family == "category" and not isinstance(column.values[row], str):
            return encode(raw_objects(column.name, column.values), record)
        raise validation.strings_in(column.label, record.kind, row, column.values[row])
    values = np.array(column.values, dtype=np.float64)
    values[column.missing] = np.nan
    check_values(values[:, None], record.kind, [record.name])
    return values


def check_values(values: FloatArray, kind: Kind, names: Sequence[str]) -> None:
    """Raise at the first value that a column of this kind cannot hold."""

    def label(j: int) -> str:
        return f"column {names[j]!r}"

    validation.check_finite(values, label)
    if kind == "binary":
        validation.check_binary(values, label)
    elif kind == "count":
        validation.check_counts(values, label)


def _encode_categories(column: RawColumn, categories: Sequence[Any]) -> FloatArray:
    code_of = {category: code for code, category in enumerate(categories)}
    codes = np.full(len(column.values), np.nan)
    observed = ~column.missing
    if column.is_number:
        distinct, inverse = np.unique(column.values[observed], return_inverse=True)
        found = np.array([code_of.get(v, -1) for v in distinct.tolist()], dtype=np.float64)
        codes[observed] = found[inverse]
    else:
        codes[observed] = [code_of.get(_plain(item), -1) for item in column.values[observed]]
    if bool((codes == -1).any()):
        row = int(np.flatnonzero(codes == -1)[0])
        raise validation.unseen_category(column.label, row, _plain(column.values[row]))
    return codes


def _first_string(column: RawColumn) -> int:
    strings = (
        row
        for row, item in enumerate(column.values)
        if not column.missing[row] and isinstance(item, str)
    )
    return next(strings, int(np.argmin(column.missing)))


def decode(values: FloatArray, record: Column, family: Family) -> npt.NDArray[Any]:
    """Return what the floats stand for.

    Categories come back as objects, with None for missing. Bools and integers come back as such
    where every value is one; a missing, fractional or huge value keeps the column float.
    """
    if record.kind == "categorical":
        out = np.empty(len(values), dtype=object)
        observed = ~np.isnan(values)
        lookup = np.empty(len(record.categories), dtype=object)
        lookup[:] = record.categories
        out[observed] = lookup[np.rint(values[observed]).astype(np.intp)]
        return out
    if family == "bool" and bool(((values == 0) | (values == 1)).all()):
        return values.astype(np.bool_)
    whole = (np.floor(values) == values) & (np.abs(values) < _INTEGERS_STOP)
    if family == "integer" and bool(whole.all()):
        return values.astype(np.int64)
    return np.array(values, dtype=np.float64)
