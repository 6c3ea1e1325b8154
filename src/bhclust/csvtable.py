"""Tables in CSV and TSV files: read carefully with the standard library, typed column by column.

The first line names the columns. Missing are empty fields and NA, NaN, null, None and ``?``, in
any case of letters. A column is made of bools (``true``/``false``), of whole numbers, of numbers,
or of text; numbers with leading zeros, such as 007, are names of something and stay text. A
column of both numbers and text is an error, because it is nearly always a slip of the pen,
unless it is declared to be text. A first column without a name holds the names of the rows.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bhclust import _progress
from bhclust._validation import BhclustError, FileFormatError, duplicate_columns, listed
from bhclust.tables import NamedColumns

MISSING = frozenset({"", "na", "nan", "null", "none", "?"})
DELIMITERS = (",", ";", "\t", "|")

_BOOLS = {"true": True, "false": False}
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity)",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")

# Lines that are looked at to guess the delimiter.
_SNIFFED = 20


class _Field(NamedTuple):
    """An entry of the file and the line it ends in."""

    text: str
    line: int


def read_csv(
    path: str | Path,
    *,
    delimiter: str | None = None,
    text_columns: Collection[str] = (),
    ignore: Collection[str] = (),
    id_column: str | None = None,
) -> NamedColumns:
    """Read a table from a file of delimited text.

    Parameters
    ----------
    path : str or Path
        The file, in UTF-8; ``"-"`` reads standard input.
    delimiter : str, optional
        What separates the fields; None finds out whether it is a comma, a semicolon, a tab or a
        bar.
    text_columns : collection of str
        Columns to be read as text whatever they look like.
    ignore : collection of str
        Columns to leave out.
    id_column : str, optional
        The column with the names of the rows.

    Returns
    -------
    NamedColumns
        Typed columns, None for missing, and the names of the rows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bhclust.csvtable import read_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "animals.csv")
    ...     _ = path.write_text("name;legs;kind\\ncat;4;pet\\nhen;2;?\\n")
    ...     table = read_csv(path, id_column="name")
    >>> dict(table), table.row_names
    ({'legs': [4, 2], 'kind': ['pet', None]}, ('cat', 'hen'))
    """
    shown = shown_name(path)
    return parse_csv(
        read_bytes(path),
        shown,
        delimiter=delimiter,
        text_columns=text_columns,
        ignore=ignore,
        id_column=id_column,
    )


def shown_name(path: str | Path) -> str:
    """Return how messages call a file."""
    return "standard input" if str(path) == "-" else str(path)


def read_bytes(path: str | Path) -> bytes:
    """Return all bytes of a file, or of standard input for ``"-"``."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise BhclustError(f"{shown_name(path)} cannot be read: {reason}.") from error


def parse_csv(
    content: bytes,
    shown: str,
    *,
    delimiter: str | None = None,
    text_columns: Collection[str] = (),
    ignore: Collection[str] = (),
    id_column: str | None = None,
    wanted: Collection[str] | None = None,
) -> NamedColumns:
    """Read a table from the bytes of a file; see `read_csv`.

    Parameters
    ----------
    content : bytes
        UTF-8 text.
    shown : str
        How messages call the file.
    delimiter, text_columns, ignore, id_column
        As in `read_csv`.
    wanted : collection of str, optional
        The only columns to read; all others are passed over, whatever they hold. Those that the
        file lacks are left for the caller to miss.

    Examples
    --------
    >>> from bhclust.csvtable import parse_csv
    >>> dict(parse_csv(b"a,b\\n1,x\\n2,y\\n", "a test", wanted=["b"]))
    {'b': ['x', 'y']}
    """
    text = _decoded(content, shown)
    names, columns = _split(text, delimiter or _sniff(text), shown)
    row_names = None
    if names[0] == "":
        names[0] = "row"
        ignore = [*ignore, "row"]
        id_column = id_column or "row"
    if len(set(names)) < len(names):
        raise duplicate_columns(names)
    _check_names(names, [*ignore, *text_columns, *([id_column] if id_column else [])], shown)
    fields = dict(zip(names, columns, strict=True))
    if id_column is not None:
        row_names = [field.text or f"row {i}" for i, field in enumerate(fields.pop(id_column))]
    kept = {
        name: fields[name]
        for name in fields
        if name not in ignore and (wanted is None or name in wanted)
    }
    if not kept and wanted is None:
        raise BhclustError(f"{shown} has no column left to cluster by.")
    typed: dict[str, list[Any]] = {}
    _progress.follow(lambda: 0.5 + 0.5 * len(typed) / max(len(kept), 1))
    for name, column in kept.items():
        typed[name] = _typed(name, column, as_text=name in text_columns)
    return NamedColumns(typed, row_names)


def _decoded(content: bytes, shown: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{shown} is not UTF-8 text (line {line}): save it as UTF-8."
        ) from None
    if not text.strip():
        raise FileFormatError(f"{shown} is empty.")
    return text


def _sniff(text: str) -> str:
    """Guess the delimiter: the one that gives the most columns without a ragged row."""

    def score(delimiter: str) -> tuple[bool, int]:
        head = io.StringIO(text, newline="")
        rows = csv.reader(head, delimiter=delimiter)
        filled = (row for row in rows if not _is_blank(row))
        try:
            widths = [len(row) for row in itertools.islice(filled, _SNIFFED)]
        except csv.Error:  # reading for good will say where
            return False, 0
        return len(set(widths)) == 1 and widths[0] > 1, widths[0]

    return max(DELIMITERS, key=score)


def _is_blank(row: Sequence[str]) -> bool:
    return not row or (len(row) == 1 and not row[0].strip())


def _split(text: str, delimiter: str, shown: str) -> tuple[list[str], list[list[_Field]]]:
    """Split the text into column names and columns of stripped fields."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    columns: list[list[_Field]] = []
    n_lines = text.count("\n") + 1
    _progress.follow(lambda: 0.5 * reader.line_num / n_lines)  # the other half is typing
    for row in _records(reader, shown):
        if _is_blank(row):
            continue
        if not names:
            names = [name.strip() for name in row]
            columns = [[] for _ in names]
            continue
        if len(row) != len(names):
            raise FileFormatError(
                f"{shown}, line {reader.line_num}: found {len(row)} field(s) where the header "
                f"has {len(names)}; the delimiter is taken to be {delimiter!r}."
            )
        for column, entry in zip(columns, row, strict=True):
            column.append(_Field(entry.strip(), reader.line_num))
    if not columns[0]:
        raise FileFormatError(f"{shown} has a header but no rows.")
    for position, name in enumerate(names[1:], start=2):
        if not name:
            raise FileFormatError(
                f"{shown}: column {position} has no name; only the first may be without, if it "
                "holds the names of the rows."
            )
    return names, columns


def _records(reader: Any, shown: str) -> Iterator[list[str]]:
    """Yield the records of a csv reader; say where one begins that cannot be read."""
    first_line = 1
    try:
        for row in reader:
            yield row
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise FileFormatError(
            f"{shown}, line {first_line}: {error}; look for a quote that is never closed, or write "
            "a quote inside a quoted field twice."
        ) from error


def _check_names(names: Sequence[str], wanted: Sequence[str], shown: str) -> None:
    for name in wanted:
        if name not in names:
            raise BhclustError(
                f"{shown} has no column {name!r}; its columns are {listed(names, 20)}."
            )


def _typed(name: str, column: Sequence[_Field], *, as_text: bool) -> list[Any]:
    """Turn the fields of one column into bools, numbers or strings, None for missing."""
    present = [field for field in column if field.text.lower() not in MISSING]
    texts = [field.text for field in present]
    if as_text:
        convert: Any = str
    elif all(text.lower() in _BOOLS for text in texts):
        convert = _bool
    elif all(_WHOLE.fullmatch(text) for text in texts):
        convert = int
    elif all(_NUMBER.fullmatch(text) for text in texts):
        convert = float
    else:
        _check_text(name, present)
        convert = str
    return [None if f.text.lower() in MISSING else convert(f.text) for f in column]


def _bool(text: str) -> bool:
    return _BOOLS[text.lower()]


def _check_text(name: str, present: Sequence[_Field]) -> None:
    """Raise if a column of text is more likely a column of numbers with a slip in it."""
    other = [field for field in present if not _NUMBER.fullmatch(field.text)]
    commas = [field for field in other if _DECIMAL_COMMA.fullmatch(field.text)]
    way_out = f"or declare the column to be text (kind 'categorical' for {name!r})"
    if commas and len(commas) == len(other):
        raise BhclustError(
            f"column {name!r} has a decimal comma in line {commas[0].line} "
            f"({commas[0].text!r}): write decimal points, {way_out}."
        )
    codes = [field for field in other if field.text.lstrip("+-").isdigit()]
    if len(other) < len(present) and len(codes) < len(other):
        first = next(field for field in other if field not in codes)
        raise BhclustError(
            f"column {name!r} holds numbers, but line {first.line} holds {first.text!r}: "
            f"mend it or leave it empty, {way_out}."
        )
