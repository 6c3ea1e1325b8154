"""A table in a file of its own, so that a result folder can show its data later.

The file is an archive of `bhclust.io.write_archive`: a JSON header with ``"kind": "table"``, the
schema of the columns and the names of the rows, and the encoded values: one array ``values``, or
``values.data``, ``values.indices`` and ``values.indptr`` of a sparse table.
"""

from __future__ import annotations

from os import PathLike, fspath

import numpy as np
from scipy import sparse

from bhclust import io
from bhclust._validation import FileFormatError
from bhclust.tables import Schema, Table

_KIND = "table"
_SPARSE_PARTS = ("data", "indices", "indptr")


def save_table(path: str | PathLike[str], table: Table) -> None:
    """Write a table to one file, atomically; `load_table` reads it back.

    Parameters
    ----------
    path : str or path
        The file; it is replaced if it exists.
    table : Table
        What `bhclust.tables.read_table` returns.

    Examples
    --------
    >>> import os, tempfile
    >>> from bhclust.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "table.npz")
    ...     save_table(path, read_table([["a", 1.5], ["b", None]]))
    ...     load_table(path).columns[0].categories
    ('a', 'b')
    """
    values = table.values
    if isinstance(values, np.ndarray):
        arrays = {"values": values}
    else:
        arrays = {f"values.{name}": getattr(values, name) for name in _SPARSE_PARTS}
    header = {
        "kind": _KIND,
        "schema": table.schema.to_dict(),
        "row_names": None if table.row_names is None else list(table.row_names),
        "shape": list(table.shape),
    }
    io.write_archive(path, header, arrays)


def load_table(path: str | PathLike[str]) -> Table:
    """Read a table that was written by `save_table`.

    Raises
    ------
    FileFormatError
        If the file is truncated, damaged, not one of ours, of a newer format, or no table.
    OSError
        If the file cannot be read.
    """
    header, arrays = io.read_archive(path)
    name = fspath(path)
    if header.get("kind") != _KIND:
        raise FileFormatError(f"{name} is a bhclust file, but holds no table.")
    try:
        schema = Schema.from_dict(header["schema"])
        n_rows, n_columns = (int(length) for length in header["shape"])
        if "values" in arrays:
            values = np.asarray(arrays["values"], dtype=np.float64)
        else:
            parts = tuple(arrays[f"values.{part}"] for part in _SPARSE_PARTS)
            values = sparse.csr_array(parts, shape=(n_rows, n_columns), dtype=np.float64)
        names = header["row_names"]
        row_names = None if names is None else tuple(map(str, names))
        fits = values.shape == (n_rows, n_columns) and n_columns == len(schema.columns)
        if not fits or (row_names is not None and len(row_names) != n_rows):
            raise ValueError("its values, columns and rows do not belong together")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{name} does not hold a valid table: {error}.") from error
    return Table(values, schema, row_names)
