"""The files of a result folder, written all or not at all."""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bhclust._validation import BhclustError, listed
from bhclust.bridges import node_support
from bhclust.report.page import render
from bhclust.report.summary import Summary
from bhclust.report.tablefile import save_table
from bhclust.tables import Table

LABELS = "labels.csv"
TREE = "tree.nwk"
MODEL = "model.npz"
PAGE = "report.html"
RESULT_FILES = (LABELS, TREE, MODEL, PAGE)

# What a result folder may hold besides: the fitted table, and the page of the viewer.
TABLE = "table.npz"
VIEW = "view.html"
DERIVED_FILES = (TABLE, VIEW)


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise unless a result may be written to ``folder``.

    A folder that does not exist, is empty, or holds an earlier result may be written to; any
    other only with ``force``, which replaces the result's own files and leaves the rest alone.
    """
    try:
        if not folder.exists():
            above = _existing_parent(folder)
            writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
        elif not folder.is_dir():
            raise BhclustError(f"{folder} is a file, not a folder: choose another name.")
        else:
            others = sorted(entry.name for entry in folder.iterdir())
            own = (*RESULT_FILES, *DERIVED_FILES)
            others = [name for name in others if name not in own]
            if others and not force:
                raise BhclustError(
                    f"{folder} already holds other files ({listed(others, 3)}): choose another "
                    "folder, or use --force to write the result among them."
                )
            writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    if not writable:
        raise BhclustError(f"{folder} cannot be written: permission denied.")


def _existing_parent(folder: Path) -> Path:
    return next(above for above in folder.absolute().parents if above.exists())


def write_result(
    estimator: Any,
    summary: Summary,
    folder: str | Path,
    *,
    row_names: Sequence[str] | None = None,
    title: str = "bhclust report",
    force: bool = False,
    table: Table | None = None,
) -> tuple[str, ...]:
    """Write ``labels.csv``, ``tree.nwk``, ``model.npz`` and ``report.html`` to a folder.

    The files are written to a new folder beside it first, so that an error or an interruption
    leaves nothing half-written behind.

    Parameters
    ----------
    estimator : fitted estimator
    summary : Summary
        What `summarise` says about the fit.
    folder : str or Path
        Where the result goes; see `check_folder` for what may be there already.
    row_names : sequence of str, optional
        What the rows are called; their numbers by default.
    title : str
        The heading of the report.
    force : bool
        Write into a folder that holds other files.
    table : Table, optional
        The fitted table, to be kept in ``table.npz`` for the viewer's heat map.

    Returns
    -------
    tuple of str
        Names of the files that were written.
    """
    target = Path(folder)
    check_folder(target, force=force)
    scratch = target.absolute().parent / f".{target.absolute().name}-{secrets.token_hex(4)}"
    try:
        scratch.mkdir(parents=True)
        _write_files(estimator, summary, scratch, row_names, title)
        if table is not None:
            save_table(scratch / TABLE, table)
        if target.exists():
            _take_over(scratch, target)
        else:
            scratch.rename(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return RESULT_FILES if table is None else (*RESULT_FILES, TABLE)


def _take_over(scratch: Path, target: Path) -> None:
    """Replace the files of an earlier result, all of them before an interruption counts."""
    written = sorted(path.name for path in scratch.iterdir())
    with _undisturbed():
        for name in DERIVED_FILES:
            if name not in written:
                (target / name).unlink(missing_ok=True)
        for name in written:
            (scratch / name).replace(target / name)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let an interruption wait until the end; only the main thread hears of one at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    handlers = {
        number: signal.signal(number, lambda got, frame: heard.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


def _write_files(
    estimator: Any, summary: Summary, folder: Path, row_names: Sequence[str] | None, title: str
) -> None:
    labels = estimator.labels_
    names = list(row_names) if row_names is not None else [str(i) for i in range(len(labels))]
    with (folder / LABELS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "cluster"])
        writer.writerows(zip(names, labels.tolist(), strict=True))
    leaves = getattr(estimator, "leaf_rows_", range(len(labels)))
    page = render(summary, estimator, [names[row] for row in leaves], title=title)
    (folder / PAGE).write_text(page, encoding="utf-8")
    sampled = getattr(estimator, "posterior_", None) is not None
    support = node_support(estimator) if sampled else None
    newick = estimator.tree_.to_newick(support=True if support is None else support)
    (folder / TREE).write_text(newick + "\n", encoding="utf-8")
    estimator.save(folder / MODEL)


def _cannot_write(folder: Path, error: OSError) -> BhclustError:
    return BhclustError(f"{folder} cannot be written: {error.strerror or error}.")
