"""Tables of any kind → one float64 matrix with named, typed columns; NaN is missing.

The door of the library: arrays, lists, data frames (pandas, polars, pyarrow, through narwhals)
and SciPy sparse matrices come in, and everything behind it sees numbers only. What the numbers
mean stays in the `Schema`, which encodes later tables in the same way and decodes results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bhclust import _columns as columns_of
from bhclust import _frames
from bhclust import _validation as validation
from bhclust._columns import Family, RawColumn
from bhclust._validation import BhclustError, FloatArray
from bhclust.models.base import Column, Kind

KINDS: tuple[Kind, ...] = ("binary", "categorical", "count", "real")
KindSpec = Kind | Mapping[str | int, Kind] | Callable[[Sequence[str]], Sequence[Kind]] | None

# Containers that are not data frames; frames are marked by narwhals' name of their library.
ARRAY = "array"
SPARSE = "sparse"
COLUMNS = "columns"

# Rows looked at together when a matrix is scanned: small enough for the processor's cache.
_BLOCK = 4096


@dataclass(frozen=True)
class Schema:
    """What a table's columns are called and mean, and in what container they came.

    Attributes
    ----------
    columns : tuple of Column
        Name, kind and categories of each column.
    families : tuple of str
        What each column held before it became floats ("bool", "integer", "float", "string",
        "category", "mixed", "empty"); decoding goes back there.
    container : str
        ``"array"``, ``"sparse"``, ``"columns"`` (a mapping of names to columns), or the data
        frame library (``"pandas"``, ``"polars"``, …).

    Examples
    --------
    >>> from bhclust.tables import read_table
    >>> schema = read_table([["a", 1.5], ["b", 2.5]]).schema
    >>> schema.encode([["b", 0.5]])
    array([[1. , 0.5]])
    >>> schema.decode([[1.0, 0.5]])
    array([['b', 0.5]], dtype=object)
    """

    columns: tuple[Column, ...]
    families: tuple[Family, ...]
    container: str = ARRAY

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the columns."""
        return tuple(column.kind for column in self.columns)

    @property
    def is_frame(self) -> bool:
        """Whether the table came as a data frame."""
        return self.container not in (ARRAY, SPARSE, COLUMNS)

    def encode(self, X: Any, *, owner: str = "Schema") -> FloatArray | sparse.csr_array:
        """Encode another table with the same columns and the same codes.

        The result is sparse only where both ``X`` and the table of the schema are.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Table
            A table with the columns of the fitted one, in the same order.
        owner : str
            Whom the message about a wrong number of columns names.
        """
        if isinstance(X, Table):
            validation.check_feature_count(len(X.columns), len(self.columns), owner=owner)
            if not _reads_alike(X.columns, self.columns):
                raise BhclustError(
                    "the Table was read with other names, kinds or categories of columns than "
                    "those that were fitted: pass what it was read from."
                )
            return X.values
        source = _open(X)
        validation.check_feature_count(len(source.names), len(self.columns), owner=owner)
        if not {self.container, source.container} & {ARRAY, SPARSE}:
            validation.check_feature_names(source.names, self.names)
        if isinstance(source.data, sparse.csr_array):
            if self.container == SPARSE:
                _check_sparse_values(source.data, self.kinds[0], self.names)
                return source.data
            source = source._replace(data=source.data.toarray())
        return _encode(source, self.columns)

    def decode(self, values: Any, *, like: Any = None) -> Any:
        """Turn encoded values back into a table of the fitted container.

        Arrays come back as float64, or as objects if some categories are not numbers. Data
        frames come back in the fitted library with names and categories restored; bools and
        integers are restored where no value is missing or fractional.

        Parameters
        ----------
        values : array of shape (n, n_columns)
            Encoded values, NaN for missing; sparse for a sparse table.
        like : data frame, optional
            A pandas frame whose index the result takes over.
        """
        if sparse.issparse(values):
            return values
        values = np.asarray(values, dtype=np.float64)
        validation.check_feature_count(values.shape[1], len(self.columns), owner="decode")
        if self.is_frame:
            return _frames.build_frame(self.container, self.columns, self.families, values, like)
        if self.container == COLUMNS:
            return {
                column.name: columns_of.decode(values[:, j], column, family)
                for j, (column, family) in enumerate(zip(self.columns, self.families, strict=True))
            }
        has_text = any(not _all_numbers(column.categories) for column in self.columns)
        out = np.array(values, dtype=object if has_text else np.float64)
        for j, (column, family) in enumerate(zip(self.columns, self.families, strict=True)):
            if has_text or column.kind == "categorical":
                out[:, j] = columns_of.decode(values[:, j], column, family)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as strings, numbers and lists, for a file."""
        return {
            "columns": [[c.name, c.kind, list(c.categories)] for c in self.columns],
            "families": list(self.families),
            "container": self.container,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_dict` described."""
        columns = tuple(
            Column(name, kind, tuple(categories)) for name, kind, categories in content["columns"]
        )
        return cls(columns, tuple(content["families"]), content["container"])


@dataclass(frozen=True, eq=False)
class Table:
    """A table ready for the models.

    Attributes
    ----------
    values : array or csr_array of shape (n_rows, n_columns)
        Float64; NaN is missing, categories are codes. It may share memory with the input: treat
        it as read-only.
    schema : Schema
        What the columns are called and mean.
    row_names : tuple of str or None
        The labels of a pandas index that is not simply 0, 1, 2, …
    inferred : tuple of bool
        Which columns' kinds were inferred rather than declared; empty where all stand.
    """

    values: FloatArray | sparse.csr_array
    schema: Schema
    row_names: tuple[str, ...] | None = None
    inferred: tuple[bool, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Name, kind and categories of each column."""
        return self.schema.columns

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        n_rows, n_columns = self.values.shape
        return int(n_rows), int(n_columns)

    def toarray(self) -> FloatArray:
        """Return the values as a dense array."""
        if isinstance(self.values, np.ndarray):
            return self.values
        return cast(FloatArray, self.values.toarray())


def read_table(X: Any, *, kinds: KindSpec = None, default: Kind | None = None) -> Table:
    """Read a table of any container into numbers with typed columns.

    Missing are NaN, None, ``pd.NA``, ``NaT``, null, and masked entries. The kind of a column that
    is not declared is inferred:

    * ``"binary"``: bools, and numbers that are all 0 or 1;
    * ``"categorical"``: strings and the categorical types of the data frame libraries;
    * ``"count"``: integer types without negative values. A missing value does not change the kind
      of a column: integers among None, and pandas float columns that have missing values and
      otherwise only whole numbers (pandas turns integers with holes into floats), count too;
    * ``"real"``: all other numbers, whole floats included, and columns without any value.

    Sparse matrices are of one kind: binary if every stored value is 1, counts if every stored
    value is whole and not negative; both stay sparse. Any other sparse matrix is refused: a dense
    copy may not fit into memory, so making one is left to the caller.

    Parameters
    ----------
    X : array, list of lists, data frame, sparse matrix, mapping or Table
        The table, of shape (n_rows, n_columns); a mapping holds columns by name. A `Table` has
        been read already, and is returned as it is.
    kinds : kind, mapping of column name or position to kind, or function, optional
        Declared kinds: one for all columns, or some for some columns; a function of the names
        gives all of them.
    default : kind, optional
        The kind of the columns that ``kinds`` leaves out; None infers them.

    Returns
    -------
    Table

    Examples
    --------
    >>> from bhclust.tables import read_table
    >>> table = read_table([["red", 3, 0.5], ["blue", 4, None]])
    >>> [(column.name, column.kind) for column in table.columns]
    [('x0', 'categorical'), ('x1', 'count'), ('x2', 'real')]
    >>> table.values
    array([[1. , 3. , 0.5],
           [0. , 4. , nan]])
    """
    if isinstance(X, Table):
        return X
    source = _open(X)
    chosen = _declared_kinds(kinds, default, source.names)
    if isinstance(source.data, sparse.csr_array):
        return _sparse_table(source, source.data, chosen)
    if isinstance(source.data, np.ndarray):
        return _array_table(source, source.data, chosen)
    records = tuple(
        columns_of.learn(raw, kind or columns_of.infer_kind(raw))
        for raw, kind in zip(source.data, chosen, strict=True)
    )
    families = tuple(raw.family for raw in source.data)
    schema = Schema(records, families, source.container)
    return Table(_encode(source, records), schema, source.row_names, _inferred(chosen))


class NamedColumns(Mapping[str, Any]):
    """Columns by name, with names for the rows: a data frame for those who have no library.

    Parameters
    ----------
    columns : mapping of str to sequence
        The columns; None and NaN are missing.
    row_names : sequence of str, optional
        What the rows are called.

    Examples
    --------
    >>> from bhclust.tables import NamedColumns, read_table
    >>> table = NamedColumns({"legs": [4, 2], "fur": [True, False]}, ["cat", "hen"])
    >>> table.shape
    (2, 2)
    >>> read_table(table).row_names
    ('cat', 'hen')
    """

    def __init__(self, columns: Mapping[str, Any], row_names: Sequence[str] | None = None) -> None:
        self._columns = dict(columns)
        self.row_names = None if row_names is None else tuple(row_names)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        first = next(iter(self._columns.values()), ())
        return len(first), len(self._columns)


class _Source(NamedTuple):
    """An opened table: a numeric matrix, a sparse one, or columns of anything."""

    names: tuple[str, ...]
    data: npt.NDArray[Any] | sparse.csr_array | list[RawColumn]
    container: str = ARRAY
    row_names: tuple[str, ...] | None = None


def _open(X: Any) -> _Source:
    if sparse.issparse(X):
        return _open_sparse(X)
    if isinstance(X, Mapping):
        return _open_mapping(X)
    if _frames.is_frame(X):
        frame = _frames.open_frame(X)
        names = tuple(column.name for column in frame.columns)
        return _Source(names, frame.columns, frame.library, frame.row_names)
    return _open_array(X)


def _open_mapping(X: Mapping[Any, Any]) -> _Source:
    names = tuple(str(name) for name in X)
    columns = [_open_column(name, values) for name, values in zip(names, X.values(), strict=True)]
    lengths = [len(column.values) for column in columns]
    validation.check_shape((max(lengths, default=0), len(lengths)))
    for name, length in zip(names, lengths, strict=True):
        if length != lengths[0]:
            raise BhclustError(
                f"column {name!r} has {length} entries, but column {names[0]!r} has {lengths[0]}."
            )
    return _Source(names, columns, COLUMNS, getattr(X, "row_names", None))


def _open_column(name: str, values: Any) -> RawColumn:
    array = _as_array(values)
    if array.ndim != 1:
        raise BhclustError(
            f"column {name!r} must be one-dimensional, got {array.ndim} dimension(s)."
        )
    return _open_columns((name,), array[:, None])[0]


def _open_sparse(X: Any) -> _Source:
    validation.check_shape(X.shape)
    if X.dtype.kind == "c":
        raise validation.complex_data()
    matrix = sparse.csr_array(X, dtype=np.float64)
    if not matrix.has_canonical_format:
        # Adding up repeated entries works in place, and the input may share this memory.
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return _Source(_numbered(X.shape[1]), matrix, SPARSE)


def _open_array(X: Any) -> _Source:
    array = _as_array(X)
    if array.dtype.kind == "c":
        raise validation.complex_data()
    validation.check_shape(array.shape)
    names = _numbered(array.shape[1])
    if array.dtype.kind in "biuf" and not np.ma.isMaskedArray(array):
        return _Source(names, array)
    return _Source(names, _open_columns(names, array))


def _open_columns(names: Sequence[str], array: npt.NDArray[Any]) -> list[RawColumn]:
    """Open the columns of a two-dimensional array of anything, masked entries being missing."""
    mask = np.ma.getmaskarray(array)
    array = np.asarray(np.ma.getdata(array))
    if array.dtype.kind in "biuf":
        return [
            columns_of.raw_numbers(name, array[:, j], mask[:, j]) for j, name in enumerate(names)
        ]
    label = f"column {names[0]!r}"
    if array.dtype.kind == "c":
        raise validation.complex_data()
    if array.dtype.kind in "mM":
        raise validation.dates(label)
    if array.dtype.kind not in "OUT":
        raise validation.nested(label, array.dtype)
    items = array.astype(object)
    items[mask] = None
    return [columns_of.raw_objects(name, items[:, j]) for j, name in enumerate(names)]


def _as_array(X: Any) -> npt.NDArray[Any]:
    """Turn lists and array-likes into an array without turning numbers into strings."""
    if np.ma.isMaskedArray(X):
        return cast(npt.NDArray[Any], X)
    try:
        array = np.asarray(X)
        # NumPy spells the numbers of a list out when there is a string among them.
        if array.dtype.kind in "US" and not hasattr(X, "dtype"):
            array = np.asarray(X, dtype=object)
    except ValueError:
        raise BhclustError(
            "the table is not rectangular: every row must have the same number of entries."
        ) from None
    return array


def _numbered(n_columns: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(n_columns))


def _declared_kinds(
    kinds: KindSpec, default: Kind | None, names: tuple[str, ...]
) -> list[Kind | None]:
    """Return the declared kind of each column, None where it is to be inferred."""
    if default is not None:
        validation.check_choice(default, KINDS, name="default", owner="read_table")
    if callable(kinds):
        return list(kinds(names))
    if isinstance(kinds, str):
        validation.check_choice(kinds, KINDS, name="the kind of the columns", owner="read_table")
        return [kinds] * len(names)
    chosen: list[Kind | None] = [default] * len(names)
    position = {name: j for j, name in enumerate(names)}
    for key, kind in (kinds or {}).items():
        j = position.get(key, -1) if isinstance(key, str) else operator.index(key)
        if not 0 <= j < len(names):
            raise validation.unknown_column(key, names)
        name = f"the kind of column {names[j]!r}"
        validation.check_choice(kind, KINDS, name=name, owner="read_table")
        chosen[j] = kind
    return chosen


def _sparse_table(source: _Source, matrix: sparse.csr_array, chosen: list[Kind | None]) -> Table:
    distinct = set(chosen)
    kind = chosen[0] if len(distinct) == 1 else None
    if distinct == {None}:
        kind = _sparse_kind(matrix.data)
    _check_sparse_values(matrix, kind or "real", source.names)
    if kind not in ("binary", "count"):
        raise BhclustError(
            "a sparse matrix must hold only 0 and 1, or only counts, in all its columns; call "
            ".toarray() for other data, if it fits into memory."
        )
    records = tuple(Column(name, kind) for name in source.names)
    family: Family = "float"
    return Table(matrix, Schema(records, (family,) * len(records), SPARSE))


def _sparse_kind(stored: FloatArray) -> Kind:
    if bool(((stored == 1) | (stored == 0)).all()):
        return "binary"
    return "count" if bool(((stored >= 0) & (np.floor(stored) == stored)).all()) else "real"


def _check_sparse_values(matrix: sparse.csr_array, kind: Kind, names: Sequence[str]) -> None:
    """Raise at the first stored value that a column of this kind cannot hold."""
    stored = matrix.data
    allowed = np.isfinite(stored)
    if kind == "binary":
        allowed &= (stored == 0) | (stored == 1)
    elif kind == "count":
        allowed &= (stored >= 0) & (np.floor(stored) == stored)
    if bool(allowed.all()):
        return
    entry = int(np.argmin(allowed))
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    name = names[int(matrix.indices[entry])]
    if np.isnan(stored[entry]):
        raise BhclustError(
            f"column {name!r} of the sparse matrix holds NaN in row {row}: missing values need "
            "a dense table, call .toarray()."
        )
    # The dense checks name the row within what they are given: hand them the row in its place.
    column = np.zeros((row + 1, 1))
    column[row] = stored[entry]
    columns_of.check_values(column, kind, [name])


def _inferred(chosen: list[Kind | None]) -> tuple[bool, ...]:
    return tuple(kind is None for kind in chosen)


def _array_table(source: _Source, array: npt.NDArray[Any], chosen: list[Kind | None]) -> Table:
    """Type the columns of a numeric matrix, all of them at once."""
    inferred = _inferred(chosen)
    family: Family = columns_of.raw_numbers("", array[:1, 0]).family
    if None in chosen:
        chosen = [
            declared or inferred
            for declared, inferred in zip(chosen, _matrix_kinds(array), strict=True)
        ]
    records = []
    for j, (name, kind) in enumerate(zip(source.names, chosen, strict=True)):
        assert kind is not None
        if kind == "categorical":
            records.append(columns_of.learn(columns_of.raw_numbers(name, array[:, j]), kind))
        else:
            records.append(Column(name, kind))
    schema = Schema(tuple(records), (family,) * len(records), source.container)
    return Table(_encode(source, schema.columns), schema, inferred=inferred)


def _matrix_kinds(array: npt.NDArray[Any]) -> list[Kind]:
    """Infer the kind of each column of a numeric matrix, block of rows by block of rows."""
    zero_one = np.ones(array.shape[1], dtype=np.bool_)
    observed = np.zeros(array.shape[1], dtype=np.bool_)
    for start in range(0, len(array), _BLOCK):
        block = array[start : start + _BLOCK]
        missing = np.isnan(block) if array.dtype.kind == "f" else np.zeros(block.shape, np.bool_)
        observed |= ~missing.all(axis=0)
        zero_one &= ((block == 0) | (block == 1) | missing).all(axis=0)
        if not zero_one.any():
            break
    counts = np.zeros(array.shape[1], dtype=np.bool_)
    if array.dtype.kind in "iu":
        counts = array.min(axis=0) >= 0
    binary = zero_one & observed
    return [
        "binary" if b else "count" if c else "real" for b, c in zip(binary, counts, strict=True)
    ]


def _encode(source: _Source, records: Sequence[Column]) -> FloatArray:
    """Encode a matrix or a list of columns by their records."""
    if not isinstance(source.data, np.ndarray):
        out = np.empty((len(source.data[0].values), len(records)))
        for j, (raw, record) in enumerate(zip(source.data, records, strict=True)):
            out[:, j] = columns_of.encode(raw, record)
        return out
    array = source.data
    values = np.ascontiguousarray(array, dtype=np.float64)
    by_kind: dict[Kind, list[int]] = {}
    for j, record in enumerate(records):
        by_kind.setdefault(record.kind, []).append(j)
    for kind, where in by_kind.items():
        if kind != "categorical":
            part = values if len(where) == len(records) else values[:, where]
            columns_of.check_values(part, kind, [records[j].name for j in where])
    categorical = by_kind.get("categorical", [])
    if categorical and np.shares_memory(values, array):
        values = values.copy()
    for j in categorical:
        raw = columns_of.raw_numbers(records[j].name, array[:, j])
        values[:, j] = columns_of.encode(raw, records[j])
    return values


def _reads_alike(columns: Sequence[Column], fitted: Sequence[Column]) -> bool:
    """Whether the values mean the same; a count is a number to whom all numbers are real."""
    return len(columns) == len(fitted) and all(
        given == known or (given.kind == "count" and given._replace(kind="real") == known)
        for given, known in zip(columns, fitted, strict=True)
    )


def _all_numbers(categories: Sequence[Any]) -> bool:
    return all(isinstance(category, (bool, int, float)) for category in categories)
