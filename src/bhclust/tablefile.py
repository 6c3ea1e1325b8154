"""A table in a file of any format: columns by name, names of the rows, classes, weights.

Delimited text is read by `bhclust.csvtable`; Parquet and Feather by pyarrow, if it is there;
NumPy's ``.npy`` and ``.npz`` without pickle. The format follows from the first bytes of the file,
so standard input may hold any of them.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FileFormatError,
    FloatArray,
    duplicate_columns,
    listed,
    optional_import,
)
from bhclust.csvtable import parse_csv, read_bytes, shown_name
from bhclust.tables import NamedColumns

_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "feather",
    b"FEA1": "feather",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".npy": "npy",
    ".npz": "npz",
}
_INDEX = "__index_level_0__"  # how pandas stores row labels in Parquet and Feather
_SPARSE_PARTS = {"format", "shape", "data"}


class Roles(NamedTuple):
    """Which columns of a file have a part other than to cluster by.

    ``text`` names columns that are text whatever they look like; ``wanted``, where given, the only
    columns to cluster by.
    """

    id_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    wanted: tuple[str, ...] | None = None

    @property
    def named(self) -> list[str]:
        """The columns that must be there."""
        special = [self.id_column, self.label_column, self.weight_column]
        return [*(name for name in special if name is not None), *self.ignore]


class TableFile(NamedTuple):
    """What a file holds: the columns with the names of the rows, classes and weights or None."""

    columns: NamedColumns
    classes: list[str | None] | None
    weight: FloatArray | None


def read_table_file(
    path: str | Path, roles: Roles | None = None, *, delimiter: str | None = None
) -> TableFile:
    """Read a table from a file.

    Parameters
    ----------
    path : str or Path
        CSV, TSV or other delimited text, Parquet, Feather, ``.npy`` or ``.npz``; ``"-"`` is
        standard input.
    roles : Roles, optional
        The columns that name rows, give true classes or weights, or are left out.
    delimiter : str, optional
        What separates the fields of delimited text; found out by default.

    Returns
    -------
    TableFile

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bhclust.tablefile import Roles, read_table_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "animals.csv")
    ...     _ = path.write_text("name,legs,kind\\ncat,4,pet\\nhen,2,bird\\n")
    ...     table = read_table_file(path, Roles(id_column="name", label_column="kind"))
    >>> dict(table.columns), table.columns.row_names, table.classes
    ({'legs': [4, 2]}, ('cat', 'hen'), ['pet', 'bird'])
    """
    roles = Roles() if roles is None else roles
    shown = shown_name(path)
    content = read_bytes(path)
    file_format = _format_of(path, content)
    if file_format == "text":
        if delimiter is None and str(path).lower().endswith((".tsv", ".tab")):
            delimiter = "\t"
        table = _read_text(content, shown, roles, delimiter)
    elif content:
        table = _with_roles(_READERS[file_format](content, shown, roles), roles, shown)
    else:
        raise FileFormatError(f"{shown} is empty.")
    if roles.id_column is not None:
        _check_unique(table.columns.row_names or (), roles.id_column, shown)
    return table


def _format_of(path: str | Path, content: bytes) -> str:
    for magic, name in _MAGIC.items():
        if content.startswith(magic):
            return name
    return _SUFFIXES.get(Path(path).suffix.lower(), "text")


def _read_text(content: bytes, shown: str, roles: Roles, delimiter: str | None) -> TableFile:
    # The names of classes are text even where they are numbers: 1 and 1.0 are two names.
    label = [] if roles.label_column is None else [roles.label_column]
    weight = [] if roles.weight_column is None else [roles.weight_column]
    columns = parse_csv(
        content,
        shown,
        delimiter=delimiter,
        text_columns=[*roles.text, *label],
        ignore=[name for name in roles.ignore if name not in (*label, *weight)],
        id_column=roles.id_column,
        wanted=None if roles.wanted is None else [*roles.wanted, *label, *weight],
    )
    return _with_roles(columns, roles._replace(id_column=None, ignore=()), shown)


def _read_arrow(content: bytes, shown: str, roles: Roles, *, parquet: bool) -> NamedColumns:
    kind = "Parquet" if parquet else "Feather"
    module = "pyarrow.parquet" if parquet else "pyarrow.feather"
    reader = optional_import(module, extra="files", needed_for=f"reading {kind} files")
    arrow = optional_import("pyarrow", extra="files", needed_for=f"reading {kind} files")
    try:
        table = reader.read_table(arrow.BufferReader(content))
    except (arrow.ArrowException, OSError) as error:
        raise FileFormatError(
            f"{shown} is not a whole {kind} file ({_first_sentence(error)}): write it again."
        ) from error
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        raise duplicate_columns(names)
    columns = {name: _from_arrow(table.column(j)) for j, name in enumerate(names)}
    labels = columns.pop(_INDEX, None)
    return NamedColumns(columns, None if labels is None else [str(label) for label in labels])


def _from_arrow(column: Any) -> Any:
    plain = str(column.type) in ("float", "double", "halffloat") or "int" in str(column.type)
    if plain and column.null_count == 0:
        return column.to_numpy()
    return column.to_pylist()


def _first_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text.split(". ")[0].rstrip(".") or type(error).__name__


def _read_npy(content: bytes, shown: str, roles: Roles) -> NamedColumns:
    return _columns_of_array(_load_array(content, shown), shown)


def _load_array(content: bytes, shown: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except ValueError as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise FileFormatError(
                f"{shown} holds Python objects, which only pickle could read, and pickle runs "
                "code: save numbers or strings of one type instead."
            ) from None
        raise FileFormatError(
            f"{shown} is not a whole NumPy file ({_first_sentence(error)}): write it again."
        ) from error
    except Exception as error:  # headers of damaged files fail in a dozen ways
        raise FileFormatError(
            f"{shown} is not a whole NumPy file ({type(error).__name__}): write it again."
        ) from error
    return array


def _columns_of_array(
    array: npt.NDArray[Any], shown: str, names: Sequence[str] | None = None
) -> NamedColumns:
    if array.dtype.names is not None:
        return NamedColumns({name: array[name] for name in array.dtype.names})
    if array.ndim != 2 or 0 in array.shape:
        raise FileFormatError(
            f"{shown} holds an array of shape {array.shape}; a table has two dimensions, one row "
            "an item and one column a feature, and something in it."
        )
    if array.dtype.kind == "S":
        raise FileFormatError(f"{shown} holds raw bytes: save it as text (dtype str) or numbers.")
    found = [f"x{j}" for j in range(array.shape[1])] if names is None else list(names)
    if len(set(found)) < len(found):
        raise duplicate_columns(found)
    return NamedColumns({name: array[:, j] for j, name in enumerate(found)})


def _read_npz(content: bytes, shown: str, roles: Roles) -> NamedColumns:
    """Read the two-dimensional array of an archive, or its one-dimensional arrays as columns.

    Beside a table, arrays with one entry a row serve only as names, classes or weights; an array
    ``columns`` with one string a column names the columns.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {
                key.removesuffix(".npy"): archive.read(key)
                for key in archive.namelist()
                if key.endswith(".npy")
            }
    except Exception as error:  # zip files break in a dozen ways; each of them means this
        raise FileFormatError(
            f"{shown} is not a whole .npz archive ({type(error).__name__}): write it again."
        ) from error
    if set(members) >= _SPARSE_PARTS:
        raise FileFormatError(
            f"{shown} holds a sparse matrix, which the command line does not read: save "
            "matrix.toarray(), or fit it in Python."
        )
    arrays = {key: _load_array(part, f"array {key!r} of {shown}") for key, part in members.items()}
    tables = [key for key, array in arrays.items() if array.ndim == 2]
    if "X" in tables or len(tables) == 1:
        key = "X" if "X" in tables else tables[0]
        return _beside_table(arrays, key, shown, roles)
    flat = {key: array for key, array in arrays.items() if array.ndim == 1}
    if tables or not flat:
        what = f"several tables ({listed(tables)})" if tables else "no table"
        raise FileFormatError(
            f"{shown} holds {what}: save one array of two dimensions, called X if there are "
            "others, or one array of one dimension a column."
        )
    return NamedColumns(flat)


def _beside_table(
    arrays: dict[str, npt.NDArray[Any]], key: str, shown: str, roles: Roles
) -> NamedColumns:
    array = arrays.pop(key)
    names = arrays.pop("columns", None)
    if names is not None and names.shape != (array.shape[1],):
        raise FileFormatError(
            f"array 'columns' of {shown} has the shape {names.shape}; it must name the "
            f"{array.shape[1]} columns of {key!r}."
        )
    columns = _columns_of_array(array, shown, None if names is None else [str(n) for n in names])
    special = (roles.id_column, roles.label_column, roles.weight_column)
    beside = {
        name: one
        for name, one in arrays.items()
        if name in special and name not in columns and one.shape == (len(array),)
    }
    return NamedColumns({**columns, **beside})


_READERS: dict[str, Any] = {
    "parquet": lambda *parts: _read_arrow(*parts, parquet=True),
    "feather": lambda *parts: _read_arrow(*parts, parquet=False),
    "npy": _read_npy,
    "npz": _read_npz,
}


def _with_roles(columns: NamedColumns, roles: Roles, shown: str) -> TableFile:
    """Take the columns with a part of their own out of a table."""
    names = list(columns)
    for name in roles.named:
        if name not in columns:
            raise BhclustError(
                f"{shown} has no column {name!r}; its columns are {listed(names, 20)}."
            )
    fields = {name: columns[name] for name in names if name not in roles.ignore}
    row_names = columns.row_names
    if roles.id_column is not None:
        ids = _texts(fields.pop(roles.id_column, columns[roles.id_column]))
        row_names = tuple(one or f"row {i}" for i, one in enumerate(ids))
    classes = weight = None
    if roles.label_column is not None:
        classes = _texts(fields.pop(roles.label_column, columns[roles.label_column]))
    if roles.weight_column is not None:
        column = fields.pop(roles.weight_column, columns[roles.weight_column])
        weight = _numbers(column, roles.weight_column)
    if roles.wanted is not None:
        fields = {name: fields[name] for name in fields if name in roles.wanted}
    elif not fields:
        raise BhclustError(f"{shown} has no column left to cluster by.")
    return TableFile(NamedColumns(fields, row_names), classes, weight)


def _plain(values: Any) -> list[Any]:
    return list(values.tolist()) if isinstance(values, np.ndarray) else list(values)


def _texts(values: Any) -> list[str | None]:
    """Return values as text, None for missing."""
    return [None if v is None or v != v else str(v) for v in _plain(values)]


def _numbers(values: Any, name: str) -> FloatArray:
    try:
        weight = np.array(_plain(values), dtype=np.float64)
    except (TypeError, ValueError):
        weight = np.array([np.nan])
    if not np.isfinite(weight).all():
        raise BhclustError(f"column {name!r} must hold a number in every row to weigh the rows by.")
    return weight


def _check_unique(names: Sequence[str], column: str, shown: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise BhclustError(
            f"the ids in column {column!r} of {shown} must be unique, but it repeats "
            f"{listed(repeated, 3)}: mend them, or leave --id-column out to number the rows."
        )
