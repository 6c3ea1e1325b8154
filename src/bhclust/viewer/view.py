"""From a fitted estimator or a tree to one HTML file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bhclust import __version__, io
from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.estimators import CoalescentClustering
from bhclust.models.base import Column
from bhclust.tables import Schema, Table, read_table
from bhclust.tree import Tree
from bhclust.viewer.explain import Explanation, explain_model, explain_process
from bhclust.viewer.heat import chosen_columns, heat_payload
from bhclust.viewer.means import DataMeans, leaf_centres
from bhclust.viewer.page import fill_page
from bhclust.viewer.payload import Start, make_payload


class _Source(NamedTuple):
    """What is shown: a tree, and what is known about its rows, columns and model.

    ``values`` holds one encoded row a leaf, or is None.
    """

    tree: Tree
    columns: tuple[Column, ...]
    values: Any
    model: Any
    names: list[str]
    start: Start
    facts: list[str]
    log_ratio: FloatArray | None = None


def write_view(
    source: Any,
    path: str | PathLike[str],
    X: Any = None,
    *,
    title: str | None = None,
    row_names: list[str] | None = None,
) -> Path:
    """Write an interactive tree to one HTML file that needs no other file and no network.

    Parameters
    ----------
    source : fitted estimator or Tree
        What to show. An estimator brings the names of its columns and, for the largest nodes, the
        features that explain their splits.
    path : str or path
        The file; it is replaced if it exists.
    X : table, optional
        The table that was fitted, all rows of it, for the heat map: anything the estimator takes,
        or a `bhclust.tables.Table`. Without it the heat map shows the statistics of the leaves,
        where the model has a mean, a probability or a rate for each column.
    title : str, optional
        The heading; by default the name of the method.
    row_names : list of str, optional
        What the rows of the fitted table are called; by default the names of the leaves, or else
        the numbers of the rows.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import os, tempfile
    >>> from bhclust import BayesianHierarchicalClustering
    >>> X = [[0.0, 0.1], [0.1, 0.0], [5.0, 5.1], [5.1, 5.0]]
    >>> clustering = BayesianHierarchicalClustering("diagonal_gaussian").fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_view(clustering, os.path.join(folder, "view.html"), X).name
    'view.html'
    """
    if isinstance(source, Tree):
        shown = _from_tree(source, X, row_names)
    elif hasattr(source, "tree_"):
        shown = _from_estimator(source, X, row_names)
    else:
        raise BhclustError(
            "write_view: source must be a fitted estimator or a Tree, got "
            f"{type(source).__name__}: call fit first, or use view_result for a result folder."
        )
    heading = title if title is not None else _method(source)
    target = Path(path)
    io.atomic_write_text(target, _page(shown, heading))
    return target


def _method(source: Any) -> str:
    return type(source).__name__


def _from_tree(tree: Tree, X: Any, row_names: list[str] | None) -> _Source:
    table = None if X is None else X if isinstance(X, Table) else read_table(X)
    if table is not None:
        _check_n_rows(table.shape[0], tree.n_leaves)
    return _Source(
        tree=tree,
        columns=() if table is None else table.columns,
        values=None if table is None else table.values,
        model=None,
        names=_names(tree, np.arange(tree.n_leaves), row_names, tree.n_leaves),
        start=_start_of_tree(tree),
        facts=[_counted(tree.n_leaves, "row")],
    )


def _start_of_tree(tree: Tree) -> Start:
    if tree.log_odds is not None:
        return Start("map", None)
    # Without probabilities nothing asks for a number of clusters: show the first split.
    return Start("number", min(max(2, len(tree.roots)), tree.n_leaves))


def _from_estimator(estimator: Any, X: Any, row_names: list[str] | None) -> _Source:
    tree, schema = estimator.tree_, estimator.schema_
    n_rows = len(estimator.labels_)
    rows = np.asarray(getattr(estimator, "leaf_rows_", np.arange(n_rows)))
    is_coalescent = isinstance(estimator, CoalescentClustering)
    values = _encoded(schema, X, n_rows, rows)
    if values is None and is_coalescent:
        values = estimator._values  # a coalescent keeps its table, since its tree has no statistics
    n_clusters = estimator.n_clusters
    if n_clusters is not None:
        start = Start("number", min(int(n_clusters), tree.n_leaves))
    elif is_coalescent:
        start = Start("threshold", float(estimator.threshold))
    else:
        start = Start("map", None)
    return _Source(
        tree=tree,
        columns=schema.columns,
        values=values,
        model=estimator.model_,
        names=_names(tree, rows, row_names, n_rows),
        start=start,
        facts=[
            _counted(n_rows, "row"),
            _counted(len(schema.columns), "column"),
            _method(estimator),
            type(estimator.model_).__name__,
            f"log evidence {estimator.log_evidence_:,.2f}",
        ],
        log_ratio=tree.log_odds if is_coalescent else None,
    )


def _encoded(schema: Schema, X: Any, n_rows: int, rows: IntArray) -> Any:
    """Return the rows of the leaves, dense or sparse."""
    if X is None:
        return None
    if isinstance(X, Table):
        if X.schema.names != schema.names:
            raise BhclustError(
                "write_view: X has other columns than the fitted table: give the table that was "
                "fitted."
            )
        values: Any = X.values
    else:
        values = schema.encode(X, owner="write_view")
    _check_n_rows(values.shape[0], n_rows)
    return values if len(rows) == n_rows else values[rows]


def _check_n_rows(found: int, expected: int) -> None:
    if found != expected:
        raise BhclustError(
            f"write_view: X has {found} rows, but {expected} were fitted: give the table that was "
            "fitted, all of its rows."
        )


def _names(tree: Tree, rows: IntArray, given: list[str] | None, n_rows: int) -> list[str]:
    if given is not None:
        if len(given) != n_rows:
            raise BhclustError(
                f"write_view: row_names must have one name a row ({n_rows} rows), got {len(given)}."
            )
        return [str(given[row]) for row in rows.tolist()]
    if tree.leaf_names is not None:
        return list(tree.leaf_names)
    return [str(row) for row in rows.tolist()]


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _page(shown: _Source, title: str) -> str:
    explanation = _explain(shown)
    payload = make_payload(
        shown.tree,
        title=title,
        facts=shown.facts,
        names=shown.names,
        start=shown.start,
        log_ratio=shown.log_ratio,
        heat=_heat(shown, None if explanation is None else explanation.importance),
        explain=None if explanation is None else explanation.payload,
    )
    return fill_page(payload, title=title, version=__version__)


def _explain(shown: _Source) -> Explanation | None:
    if shown.model is None:
        return None
    tree, columns, values = shown.tree, shown.columns, shown.values
    data = None if values is None else DataMeans(tree, values, columns)
    if shown.log_ratio is not None:
        if data is None or not isinstance(values, np.ndarray):
            return None
        return explain_process(tree, shown.model, columns, values, data)
    return explain_model(tree, shown.model, columns, data)


def _heat(shown: _Source, importance: FloatArray | None) -> dict[str, Any] | None:
    values, tree, n_columns = shown.values, shown.tree, len(shown.columns)
    from_model = False
    if values is None and shown.model is not None and shown.log_ratio is None:
        values, from_model = leaf_centres(shown.model, tree, n_columns), True
    if values is None:
        return None
    fits = importance is not None and len(importance) == n_columns
    chosen = chosen_columns(tree.n_leaves, n_columns, importance if fits else None)
    part = values[:, chosen]
    dense = np.asarray(part if isinstance(part, np.ndarray) else part.toarray(), dtype=np.float64)
    columns = [shown.columns[j] for j in chosen.tolist()]
    return heat_payload(dense, columns, n_all=n_columns, from_model=from_model)
