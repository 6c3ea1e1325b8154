"""The viewer of a result folder."""

from __future__ import annotations

import csv
from os import PathLike
from pathlib import Path

from bhclust._validation import BhclustError, FileFormatError
from bhclust.estimators import load
from bhclust.report.results import LABELS, MODEL, TABLE, VIEW
from bhclust.report.tablefile import load_table
from bhclust.tree import Tree
from bhclust.viewer.view import write_view


def view_result(
    folder: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Write the interactive tree of a result folder.

    Parameters
    ----------
    folder : str or path
        A folder as `bhclust.report.write_result` makes it: the tree and the model come from
        ``model.npz``, the names of the rows from ``labels.csv``, and the data of the heat map from
        ``table.npz`` where there is one.
    out : str or path, optional
        The file to write; by default ``view.html`` in the folder.
    title : str, optional
        The heading; by default the name of the folder.

    Returns
    -------
    Path
        The file.
    """
    source = Path(folder)
    if not source.is_dir():
        what = "is a file, not a folder" if source.exists() else "does not exist"
        raise BhclustError(f"{source} {what}: give a folder that `bhclust fit --out` has written.")
    if not (source / MODEL).is_file():
        raise BhclustError(
            f"{source} holds no {MODEL}: give a folder that `bhclust fit --out` has written."
        )
    try:
        estimator = load(source / MODEL)
        if isinstance(estimator, Tree):
            raise FileFormatError(f"{source / MODEL} holds a tree without a model: fit it again.")
        table = load_table(source / TABLE) if (source / TABLE).is_file() else None
        names = _row_names(source / LABELS, len(estimator.labels_))
        heading = title if title is not None else source.absolute().name
        return write_view(
            estimator, source / VIEW if out is None else out, table, title=heading, row_names=names
        )
    except OSError as error:
        raise BhclustError(error.strerror or str(error)) from error


def _row_names(path: Path, n_rows: int) -> list[str] | None:
    """Return the first column of the labels, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(
            f"{path} is damaged ({type(error).__name__}): remove it, or write the result again."
        ) from error
    if len(rows) != n_rows + 1 or any(len(row) < 2 for row in rows):
        raise FileFormatError(
            f"{path} does not belong to the model beside it, which has {n_rows} rows: write the "
            "result again."
        )
    return [row[0] for row in rows[1:]]
