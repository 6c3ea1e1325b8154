"""A heat map of a table beside the tree of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from bhclust._validation import BhclustError, FloatArray, IntArray, check_count, listed
from bhclust.layout import colour_of
from bhclust.models.base import ClusterModel, Column, Kind
from bhclust.plots.canvas import (
    LETTER,
    bare,
    check_estimator,
    font_for,
    get_axes,
    matplotlib_part,
    settle,
    short,
    subject,
)
from bhclust.plots.trees import Scale, draw_tree, prepare
from bhclust.posterior import cluster_contributions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OWNER = "plots.heatmap"
_KINDS: tuple[Kind, ...] = ("real", "count", "binary", "categorical")
_MAPS = {"real": "RdBu_r", "count": "YlGnBu"}
_ZERO, _ONE, _MISSING = "#f2efe6", "#2d2a4a", "#9e9e9e"

# Paul Tol's light colours, which colour-blind readers can tell apart, for categories.
_CATEGORIES = (
    *("#77aadd", "#ee8866", "#eedd88", "#ffaabb"),
    *("#99ddff", "#44bb99", "#bbcc33", "#aaaa00"),
)

# Real numbers further from the mean than this are as blue or red as can be.
_MOST_DEVIATIONS = 2.0

# Rows of colours that a picture has at most.
_MOST_ROWS = 1000

# Where things stand in the axes: from the left the tree, the stripe of clusters, the heat map.
_TREE, _STRIPE, _HEAT = 0.24, 0.02, 0.73


class _Columns(NamedTuple):
    """The columns that are shown: their records, in the order of the picture, and their values."""

    columns: list[Column]
    values: FloatArray


def heatmap(
    estimator: Any,
    X: Any,
    ax: Axes | None = None,
    *,
    columns: Sequence[str | int] | None = None,
    max_columns: int = 60,
    height: Scale = "auto",
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw a table as a heat map with the tree of its rows at its side.

    Each kind of column has colours of its own. Real columns go from blue (two standard deviations
    below the column's mean) to red; counts from pale to dark on a logarithmic scale up to the
    column's largest; 0 and 1 are pale and dark; each category has a colour. Missing entries are
    grey. Columns of one kind stand together.

    Parameters
    ----------
    estimator : fitted estimator
    X : like the fitted table
        The rows that were fitted.
    ax : Axes, optional
        Where to draw; by default a new figure. Its frame is hidden: tree, clusters and heat map
        are drawn on axes inside of it, ``ax.child_axes``, labelled "tree", "clusters" and "table".
    columns : sequence of str or int, optional
        The columns to show, by name or position, in this order.
    max_columns : int
        If there are more columns, those that tell the clusters apart best are shown.
    height : {"auto", "height", "log_odds", "rank"}
        How high a join is drawn; see `dendrogram`.
    names : sequence of str, optional
        Names of the leaves of the tree, shown if there is room.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering, plots
    >>> from bhclust.datasets import make_mixed_table
    >>> table = make_mixed_table(40, random_state=0).columns
    >>> fitted = BayesianHierarchicalClustering().fit(table)
    >>> ax = plots.heatmap(fitted, table)
    >>> [inner.get_label() for inner in ax.child_axes]
    ['tree', 'clusters', 'table']
    """
    check_estimator(estimator, _OWNER, ["schema_"])
    most = check_count(max_columns, name="max_columns", owner=_OWNER)
    thing = subject(estimator, None, names, _OWNER)
    drawing = prepare(thing, height, None, _OWNER)
    order = drawing.drawn.tips()
    shown = _shown_columns(estimator, X, columns, most)
    n_rows = len(order)
    size = (float(np.clip(4 + 0.16 * len(shown.columns), 6.5, 13)),)
    ax = get_axes(ax, (*size, float(np.clip(1.6 + 0.13 * n_rows, 4.5, 14))), _OWNER)
    ax.set_axis_off()
    tree_axes = ax.inset_axes((0.0, 0.0, _TREE, 1.0), label="tree")
    stripe = ax.inset_axes((_TREE + 0.005, 0.0, _STRIPE - 0.005, 1.0), label="clusters")
    heat = ax.inset_axes((1 - _HEAT, 0.0, _HEAT, 1.0), label="table")
    draw_tree(tree_axes, drawing, "left", _OWNER)
    tree_axes.set(ylim=(n_rows - 0.5, -0.5), xticks=[], yticks=[])
    bare(tree_axes)
    _draw_stripe(stripe, thing.labels, order)
    _draw_heat(heat, shown, order)
    _key(heat, shown)
    settle(ax)
    _row_names(heat, [thing.names[leaf] for leaf in order])
    _column_names(heat, [column.name for column in shown.columns])
    settle(ax)
    _kind_names(heat, shown)
    return ax


def _shown_columns(
    estimator: Any, X: Any, columns: Sequence[str | int] | None, most: int
) -> _Columns:
    """Choose the columns, group them by kind, and take the rows that are leaves."""
    schema = estimator.schema_
    values = schema.encode(X, owner=_OWNER)
    n_rows = len(estimator.labels_)
    if values.shape[0] != n_rows:
        raise BhclustError(
            f"{_OWNER}: X must hold the {n_rows} rows that were fitted, got {values.shape[0]}."
        )
    rows = getattr(estimator, "leaf_rows_", np.arange(n_rows))
    if columns is None:
        chosen = _most_telling(estimator, values, most)
        rank = {kind: k for k, kind in enumerate(_KINDS)}
        chosen.sort(key=lambda j: (rank[schema.columns[j].kind], j))
    else:
        chosen = [_position(column, schema.names) for column in columns]
    if not chosen:
        raise BhclustError(f"{_OWNER}: columns must name at least one column.")
    part = values[:, chosen]
    dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
    return _Columns([schema.columns[j] for j in chosen], dense[rows])


def _position(column: str | int, names: tuple[str, ...]) -> int:
    if isinstance(column, str):
        if column not in names:
            raise BhclustError(f"{_OWNER}: no column {column!r} among {listed(names)}.")
        return names.index(column)
    return check_count(column, name="a column", owner=_OWNER, lowest=0, highest=len(names) - 1)


def _most_telling(estimator: Any, values: Any, most: int) -> list[int]:
    """Return the columns that speak most for keeping the clusters apart; all if they are few."""
    n_columns = values.shape[1]
    if n_columns <= most:
        return list(range(n_columns))
    total = np.zeros(n_columns)
    model = estimator.model_
    if isinstance(model, ClusterModel) and estimator.n_clusters_ > 1:
        labels = np.asarray(estimator.labels_)[estimator.leaf_rows_]
        for label in range(min(estimator.n_clusters_, most)):
            total += np.maximum(cluster_contributions(estimator.tree_, model, labels, label), 0.0)
    return sorted(np.argsort(-total, kind="stable")[:most].tolist())


def _draw_stripe(ax: Axes, labels: IntArray | None, order: IntArray) -> None:
    clusters = np.zeros(len(order), dtype=np.intp) if labels is None else labels[order]
    colours = matplotlib_part("colors", _OWNER).to_rgba_array([colour_of(c) for c in clusters])
    ax.imshow(colours[:, None], aspect="auto", interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    bare(ax)


def _draw_heat(ax: Axes, shown: _Columns, order: IntArray) -> None:
    picture = np.empty((len(order), len(shown.columns), 4))
    for j, column in enumerate(shown.columns):
        picture[:, j] = colours_of_column(shown.values[order, j], column.kind)
    extent = (-0.5, picture.shape[1] - 0.5, len(order) - 0.5, -0.5)
    ax.imshow(_fewer_rows(picture), aspect="auto", interpolation="nearest", extent=extent)
    ax.set(xticks=[], yticks=[])
    bare(ax)


def _fewer_rows(picture: FloatArray) -> FloatArray:
    """Average the colours of neighbouring rows where there are more rows than can be seen."""
    n_rows = len(picture)
    if n_rows <= _MOST_ROWS:
        return picture
    edges = np.linspace(0, n_rows, _MOST_ROWS + 1).astype(np.intp)
    sums = np.add.reduceat(picture, edges[:-1], axis=0)
    return np.asarray(sums / np.diff(edges)[:, None, None])


def colours_of_column(values: FloatArray, kind: Kind) -> FloatArray:
    """Return the colour of each entry of a column, grey where it is missing."""
    colors = matplotlib_part("colors", _OWNER)
    missing = np.isnan(values)
    filled = np.where(missing, 0.0, values)
    out: FloatArray
    if kind == "binary":
        out = colors.to_rgba_array([_ZERO, _ONE])[(filled > 0).astype(np.intp)]
    elif kind == "categorical":
        out = colors.to_rgba_array(_CATEGORIES)[filled.astype(np.intp) % len(_CATEGORIES)]
    else:
        out = matplotlib_part("pyplot", _OWNER).get_cmap(_MAPS[kind])(_unit(values, kind))
    out = np.array(out)
    out[missing] = colors.to_rgba(_MISSING)
    return out


def _unit(values: FloatArray, kind: Kind) -> FloatArray:
    """Scale a column to 0 … 1."""
    seen = values[~np.isnan(values)]
    filled = np.where(np.isnan(values), 0.0, values)
    if not len(seen):
        return np.zeros(len(values))
    if kind == "count":
        largest = float(np.log1p(seen.max()))
        return np.asarray(np.log1p(filled) / (largest or 1.0))
    spread = float(seen.std()) or 1.0
    return np.asarray(0.5 + (filled - seen.mean()) / spread / (2 * _MOST_DEVIATIONS))


def _key(ax: Axes, shown: _Columns) -> None:
    """Explain the colours of the kinds that are there, below the picture."""
    patches = matplotlib_part("patches", _OWNER)
    handler = matplotlib_part("legend_handler", _OWNER).HandlerTuple(ndivide=None, pad=0.0)
    pyplot = matplotlib_part("pyplot", _OWNER)
    present = {column.kind for column in shown.columns}
    entries: list[tuple[list[Any], str]] = []
    if "real" in present:
        entries.append(([pyplot.get_cmap(_MAPS["real"])(v) for v in (0.0, 0.5, 1.0)], "low – high"))
    if "count" in present:
        colours = [pyplot.get_cmap(_MAPS["count"])(v) for v in (0.0, 0.5, 1.0)]
        entries.append((colours, "zero – most"))
    if "binary" in present:
        entries.append(([_ZERO, _ONE], "0, 1"))
    if "categorical" in present:
        entries.append((list(_CATEGORIES[:3]), "a colour a category"))
    if np.isnan(shown.values).any():
        entries.append(([_MISSING], "missing"))
    handles = [
        tuple(patches.Patch(facecolor=c, edgecolor="#cccccc", linewidth=0.4) for c in colours)
        for colours, _ in entries
    ]
    ax.legend(
        handles,
        [text for _, text in entries],
        handler_map={tuple: handler},
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        borderaxespad=2.2,
        ncols=len(entries),
        frameon=False,
        fontsize=7.5,
        handlelength=2.4,
        columnspacing=1.4,
    )


def _row_names(ax: Axes, names: list[str]) -> None:
    size = font_for(ax.get_window_extent().height, len(names), float(ax.figure.dpi))
    if size is None:
        return
    ax.yaxis.tick_right()
    ax.set_yticks(
        range(len(names)), labels=[short(name) for name in names], fontsize=size, parse_math=False
    )
    ax.tick_params(axis="y", length=0)


def _column_names(ax: Axes, names: list[str]) -> None:
    size = font_for(ax.get_window_extent().width, len(names), float(ax.figure.dpi))
    if size is None:
        return
    ax.xaxis.tick_top()
    texts = [short(name) for name in names]
    ax.set_xticks(range(len(names)), labels=texts, fontsize=size, rotation=90, parse_math=False)
    ax.tick_params(axis="x", length=0)


def _kind_names(ax: Axes, shown: _Columns) -> None:
    """Mark the columns of each kind below the picture, and name the kind where that fits."""
    kinds = [column.kind for column in shown.columns]
    pixels = ax.get_window_extent().width / len(kinds)
    start = 0
    for j in range(1, len(kinds) + 1):
        if j < len(kinds) and kinds[j] == kinds[start]:
            continue
        below = ax.get_xaxis_transform()
        ends = (start - 0.4, j - 0.6)
        ax.plot(
            ends, (-0.006, -0.006), transform=below, clip_on=False, color="#444444", linewidth=1.0
        )
        if len(kinds[start]) * LETTER * 7.5 * float(ax.figure.dpi) / 72 < pixels * (j - start):
            ax.text(
                (start + j - 1) / 2,
                -0.01,
                kinds[start],
                transform=below,
                ha="center",
                va="top",
                fontsize=7.5,
            )
        start = j
    ax.set_xlim(-0.5, len(kinds) - 0.5)
