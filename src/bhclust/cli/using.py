"""``bhclust predict``, ``score`` and ``cut``: what can be asked of a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from bhclust import _progress, load
from bhclust._validation import BhclustError, FileFormatError, listed
from bhclust.cli.commands import main
from bhclust.cli.options import file_option, output_options, parse_delimiter, table_options
from bhclust.cli.output import say, say_json, write_csv
from bhclust.cli.progress import progress
from bhclust.csvtable import read_bytes
from bhclust.posterior import CutMethod
from bhclust.report import score_clusters, scores_text
from bhclust.report.results import MODEL
from bhclust.tablefile import Roles, TableFile, read_table_file
from bhclust.tables import NamedColumns, Schema
from bhclust.tree import Tree

# New rows are looked at in blocks of so many, so that progress shows and memory stays small.
_BLOCK = 500


@main.command()
@click.argument("result")
@click.argument("table")
@table_options
@file_option("CSV file to write; standard output by default.")
@output_options
def predict(
    result: str,
    table: str,
    id_column: str | None,
    label_column: str | None,
    ignore: tuple[str, ...],
    delimiter: str | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Put the rows of a new TABLE into the clusters of RESULT, with probabilities.

    RESULT is a folder that bhclust fit wrote, or its model.npz. Columns are found by name; others
    are passed over. The CSV has the columns row, cluster, p_0, p_1, … and p_new, the probability
    of a cluster that was not there before (not for coalescent trees).

    \b
    Examples:
      bhclust predict result more.csv > labels.csv
      bhclust predict result/model.npz more.parquet --id-column name --out labels.csv
      head -n 20 more.csv | bhclust predict result - --json
    """
    estimator = need_estimator(load_result(result), result, "predict")
    roles = Roles(id_column, label_column, None, ignore)
    with progress("reading", quiet=quiet):
        data = read_new_rows(estimator, table, roles, delimiter)
    with progress("predicting", quiet=quiet):
        probability = _in_blocks(data.columns, estimator.predict_proba, "predicting")
    n_clusters = estimator.n_clusters_
    labels = np.argmax(probability[:, :n_clusters], axis=1).tolist()
    names = row_names(data.columns)
    header = [f"p_{k}" for k in range(n_clusters)]
    header += ["p_new"] if probability.shape[1] > n_clusters else []
    if as_json:
        rows = [
            {"row": name, "cluster": label, "probabilities": dict(zip(header, one, strict=True))}
            for name, label, one in zip(names, labels, probability.tolist(), strict=True)
        ]
        say_json("predict", {"rows": rows, "n_clusters": n_clusters})
        return
    written = (
        (name, label, *(f"{p:.6g}" for p in one))
        for name, label, one in zip(names, labels, probability.tolist(), strict=True)
    )
    write_csv(["row", "cluster", *header], written, out)
    _tell(out, len(labels), quiet=quiet)


@main.command()
@click.argument("result")
@click.argument("table")
@table_options
@file_option("CSV file for the log density of each row.")
@output_options
def score(
    result: str,
    table: str,
    id_column: str | None,
    label_column: str | None,
    ignore: tuple[str, ...],
    delimiter: str | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Say how well RESULT describes the rows of a new TABLE.

    Prints the mean log predictive density of a row with its standard error; with --label-column
    also how the predicted clusters agree with the classes.

    \b
    Examples:
      bhclust score result heldout.csv
      bhclust score result heldout.csv --label-column species --json
    """
    estimator = need_estimator(load_result(result), result, "score")
    roles = Roles(id_column, label_column, None, ignore)
    with progress("reading", quiet=quiet):
        data = read_new_rows(estimator, table, roles, delimiter)
    scores = None
    with progress("scoring", quiet=quiet):
        density = _in_blocks(data.columns, estimator.score_samples, "scoring")
    if data.classes is not None:
        with progress("predicting", quiet=quiet):
            labels = _in_blocks(data.columns, estimator.predict, "predicting")
        scores = score_clusters(labels, data.classes)
    mean = float(density.mean())
    error = float(density.std() / np.sqrt(max(len(density) - 1, 1)))
    if out is not None:
        pairs = zip(row_names(data.columns), density.tolist(), strict=True)
        write_csv(["row", "log_density"], ((name, repr(value)) for name, value in pairs), out)
    if as_json:
        content = {"rows": len(density), "mean_log_density": mean, "standard_error": error}
        found = None if scores is None else scores._asdict()
        say_json("score", {**content, "scores": found, "out": None if out is None else str(out)})
    elif not quiet:
        say(f"rows              {len(density)}")
        say(f"mean log density  {mean:.4f} ± {error:.4f} a row")
        if scores is not None:
            say(f"classes           {scores_text(scores)}")


@main.command()
@click.argument("result")
@click.option("--clusters", type=click.IntRange(min=1), help="Number of clusters.")
@click.option(
    "--threshold",
    type=float,
    help="Cut where a node is one cluster with at least this probability; for coalescent trees, "
    "split where apart is more likely than together by more than this in log likelihood.",
)
@file_option("CSV file to write; standard output by default.")
@output_options
def cut(
    result: str,
    clusters: int | None,
    threshold: float | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Cut the tree of RESULT into other clusters; nothing is fitted again.

    RESULT is a folder that bhclust fit wrote, its model.npz, or a tree in Newick or JSON. Without
    options the cut is the most probable partition. The CSV has the columns row and cluster.

    \b
    Examples:
      bhclust cut result --clusters 5
      bhclust cut result --threshold 0.9 --out labels.csv
    """
    if clusters is not None and threshold is not None:
        raise click.UsageError("give --clusters or --threshold, not both.")
    found = load_result(result)
    settings: dict[str, Any] = {} if clusters is None else {"n_clusters": clusters}
    if threshold is not None:
        settings["threshold"] = threshold
        if not hasattr(found, "process_"):
            method: CutMethod = "threshold"
            settings["method"] = method
    labels = found.cut(**settings).tolist()
    names = leaf_names(found)
    if as_json:
        rows = [{"row": n, "cluster": k} for n, k in zip(names, labels, strict=True)]
        say_json("cut", {"rows": rows, "n_clusters": max(labels) + 1})
        return
    write_csv(["row", "cluster"], zip(names, labels, strict=True), out)
    _tell(out, len(labels), quiet=quiet)


# -- results -----------------------------------------------------------------------------------


def load_result(result: str) -> Any:
    """Return the estimator or tree of a result folder, a model file, or a tree as text."""
    path = Path(result)
    if path.is_dir():
        if not (path / MODEL).exists():
            raise BhclustError(
                f"{result} is no result of bhclust fit: it has no {MODEL}. Give such a folder."
            )
        path = path / MODEL
    head = read_bytes(path)
    if head.startswith(b"PK") or path.suffix == ".npz":
        return load(path)
    try:
        text = head.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise FileFormatError(
            f"{path} is neither a model of bhclust fit nor a tree in Newick or JSON."
        ) from None
    try:
        return Tree.from_json(text) if text.startswith("{") else Tree.from_newick(text)
    except BhclustError as error:
        raise FileFormatError(f"{path} holds no tree: {error}") from None


def need_estimator(loaded: Any, path: str, command: str) -> Any:
    """Return a loaded estimator; a tree alone is not enough."""
    if isinstance(loaded, Tree):
        raise BhclustError(
            f"{path} holds a tree without a model, and {command} needs one: give the folder or "
            "model.npz that bhclust fit wrote."
        )
    return loaded


def leaf_names(loaded: Any) -> list[str]:
    """Return what the leaves of a loaded result are called: names, or the numbers of rows."""
    tree = loaded if isinstance(loaded, Tree) else loaded.tree_
    if tree.leaf_names is not None:
        return list(tree.leaf_names)
    return [str(row) for row in getattr(loaded, "leaf_rows_", np.arange(tree.n_leaves)).tolist()]


# -- new rows ----------------------------------------------------------------------------------


def read_new_rows(estimator: Any, table: str, roles: Roles, delimiter: str | None) -> TableFile:
    """Read the columns that an estimator was fitted to, in their order."""
    schema: Schema = estimator.schema_
    by_name = schema.is_frame or schema.container == "columns"
    text = tuple(
        column.name
        for column in schema.columns
        if any(isinstance(category, str) for category in column.categories)
    )
    wanted = roles._replace(wanted=schema.names, text=text) if by_name else roles
    data = read_table_file(table, wanted, delimiter=parse_delimiter(delimiter))
    found = data.columns
    missing = [name for name in schema.names if name not in found]
    if missing and by_name:
        raise BhclustError(
            f"the new table lacks the column(s) {listed(missing)}, to which the model was fitted: "
            "add them, left empty where nothing is known."
        )
    if not missing:
        found = NamedColumns({name: found[name] for name in schema.names}, found.row_names)
    elif len(found) != len(schema.names):
        raise BhclustError(
            f"the new table has {len(found)} column(s), and the model was fitted to an array of "
            f"{len(schema.names)}: leave columns out with --ignore."
        )
    else:  # an array has no names: columns go by their places
        values = dict(zip(schema.names, found.values(), strict=True))
        found = NamedColumns(values, found.row_names)
    return data._replace(columns=found)


def row_names(columns: NamedColumns) -> list[str]:
    """Return what the rows of a table are called: names, or their numbers."""
    return (
        [str(i) for i in range(columns.shape[0])]
        if columns.row_names is None
        else list(columns.row_names)
    )


def _in_blocks(
    columns: NamedColumns, function: Callable[[Any], npt.NDArray[Any]], label: str
) -> npt.NDArray[Any]:
    """Apply a function to a table in blocks of rows, and report how many are done."""
    n_rows = columns.shape[0]
    starts = range(0, n_rows, _BLOCK)
    _progress.begin(label)
    found = []
    for place, start in enumerate(starts):
        with _progress.part(place, len(starts), f"{label}, row {start + 1} of {n_rows}"):
            block = {name: column[start : start + _BLOCK] for name, column in columns.items()}
            found.append(function(block))
    return np.concatenate(found)


def _tell(out: Path | None, n_rows: int, *, quiet: bool) -> None:
    if out is not None and not quiet:
        say(f"wrote {n_rows} row(s) to {out}")
