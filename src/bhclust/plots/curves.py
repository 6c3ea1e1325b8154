"""Clusters of curves and of regressions: means with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bhclust._validation import BhclustError, FloatArray, IntArray, check_count, check_flag
from bhclust.layout import colour_of
from bhclust.models import GaussianProcessExpert, TimeSeries
from bhclust.plots.canvas import (
    band,
    check_estimator,
    get_axes,
    leaf_labels,
    matplotlib_part,
    ranges,
    short,
)
from bhclust.posterior import cluster_nodes
from bhclust.regression import conditional
from bhclust.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Without a label so many clusters are drawn, the largest.
_MOST_CLUSTERS = 12

# Member curves are paler the more there are, but never paler than this.
_PALEST = 0.05


def curves(
    estimator: Any,
    label: int | None = None,
    ax: Axes | None = None,
    *,
    node: int | None = None,
    members: bool = True,
    n_points: int = 200,
) -> Axes:
    """Draw the mean curve of a cluster of time series with its bands, its members behind.

    The dark band is two standard deviations of the mean curve, the pale one two standard
    deviations of a new measurement.

    Parameters
    ----------
    estimator : fitted estimator with a TimeSeries model
    label : int, optional
        A cluster of ``labels_``; by default the mean curves of all clusters are drawn, or of the
        twelve largest.
    ax : Axes, optional
        Where to draw; by default a new figure.
    node : int, optional
        Any node of the tree, in place of a label.
    members : bool
        Whether to draw the members of the cluster; replicates are averaged.
    n_points : int
        Times at which curves are drawn.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust import BayesianHierarchicalClustering, plots
    >>> from bhclust.models import TimeSeries
    >>> t = np.linspace(0, 6, 10)
    >>> rng = np.random.default_rng(0)
    >>> X = np.sin(t + np.pi * (np.arange(20) % 2)[:, None]) + 0.2 * rng.normal(size=(20, 10))
    >>> fitted = BayesianHierarchicalClustering(TimeSeries(times=t)).fit(X)
    >>> ax = plots.curves(fitted, 0)
    """
    owner = "plots.curves"
    check_estimator(estimator, owner, ["model_"])
    model, tree = estimator.model_, estimator.tree_
    if not isinstance(model, TimeSeries):
        raise BhclustError(
            f"{owner} draws clusters of a TimeSeries model, and this estimator has "
            f"{type(model).__name__}: fit it with model=TimeSeries(times=...)."
        )
    show_members = check_flag(members, name="members", owner=owner)
    count = check_count(n_points, name="n_points", owner=owner, lowest=2)
    labels = leaf_labels(estimator)
    chosen, numbers = _chosen(tree, labels, label, node, owner)
    ax = get_axes(ax, (6.0, 4.0), owner)
    measured = np.unique(np.asarray(model.times, dtype=np.float64))
    times = np.linspace(measured[0], measured[-1], count)
    found = model.curve(_stats(tree)[chosen], times)
    noise = np.asarray(model.noise, dtype=np.float64)
    for k, number in enumerate(numbers):
        colour = colour_of(number)
        if show_members and len(chosen) == 1:
            _draw_members(ax, tree, model, int(chosen[k]), measured)
        deviation = found.standard_deviation[k]
        if len(chosen) == 1:
            wide = band(found.mean[k], np.hypot(deviation, noise))
            ax.fill_between(times, *wide, color=colour, alpha=0.18, linewidth=0)
        ax.fill_between(times, *band(found.mean[k], deviation), color=colour, alpha=0.4, lw=0)
        size = int(tree.size[chosen[k]])
        name = f"node {int(chosen[k])}" if node is not None else f"cluster {number}"
        ax.plot(times, found.mean[k], color=colour, linewidth=1.8, label=f"{name} ({size})")
    ax.set(xlabel="time", xlim=(times[0], times[-1]))
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _chosen(
    tree: Tree, labels: IntArray, label: int | None, node: int | None, owner: str
) -> tuple[IntArray, list[int]]:
    """Return the nodes to draw and the number whose colour each has."""
    nodes = cluster_nodes(tree, labels)
    if node is not None:
        if label is not None:
            raise BhclustError(f"{owner}: give label or node, not both.")
        at = check_count(node, name="node", owner=owner, lowest=0, highest=tree.n_nodes - 1)
        return np.array([at]), [0]
    if label is not None:
        at = check_count(label, name="label", owner=owner, lowest=0, highest=len(nodes) - 1)
        return nodes[[at]], [at]
    return nodes[:_MOST_CLUSTERS], list(range(min(len(nodes), _MOST_CLUSTERS)))


def _stats(tree: Tree) -> FloatArray:
    if tree.stats is None:
        raise BhclustError("this tree carries no statistics: score it with score_tree first.")
    return tree.stats


def _draw_members(ax: Axes, tree: Tree, model: TimeSeries, node: int, measured: FloatArray) -> None:
    values = model.means_at_times(_stats(tree)[tree.leaves(node)])
    alpha = float(np.clip(12 / len(values), _PALEST, 0.6))
    for row in values:
        seen = ~np.isnan(row)
        ax.plot(measured[seen], row[seen], color="#555555", linewidth=0.6, alpha=alpha, zorder=1)


def regression(
    estimator: Any, ax: Axes | None = None, *, n_grid: int = 150, most_curves: int = 8
) -> Axes:
    """Draw the density of an output given one input, the rows, and each cluster's curve.

    Parameters
    ----------
    estimator : fitted estimator with a GaussianProcessExpert model of one input
    ax : Axes, optional
        Where to draw; by default a new figure.
    n_grid : int
        Points along each side of the density.
    most_curves : int
        Curves of the largest clusters that are drawn, over the inputs of each cluster.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust import BayesianRoseTree, plots
    >>> from bhclust.models import GaussianProcessExpert
    >>> x = np.linspace(0, 3, 12)
    >>> y = np.where(np.arange(12) % 2, 4.0, -4.0)
    >>> fitted = BayesianRoseTree(GaussianProcessExpert(noise=0.1)).fit(np.column_stack([x, y]))
    >>> ax = plots.regression(fitted)
    """
    owner = "plots.regression"
    check_estimator(estimator, owner, ["model_", "schema_"])
    model, tree = estimator.model_, estimator.tree_
    if not isinstance(model, GaussianProcessExpert) or len(estimator.schema_.columns) != 2:
        raise BhclustError(
            f"{owner} draws a GaussianProcessExpert of one input and one output, and this "
            f"estimator has {type(model).__name__} of {len(estimator.schema_.columns)} columns."
        )
    n = check_count(n_grid, name="n_grid", owner=owner, lowest=2)
    most = check_count(most_curves, name="most_curves", owner=owner, lowest=0)
    stats = _stats(tree)
    points = model.feature_levels(stats[: tree.n_leaves]).value
    labels = leaf_labels(estimator)
    x, y = (np.linspace(*ranges(points[:, k]), n) for k in (0, 1))
    ax = get_axes(ax, (6.5, 4.5), owner)
    there = conditional(tree, model, estimator.mixing_, x[:, None])
    density = np.exp(there.log_density(y)).T
    greys = matplotlib_part("pyplot", owner).get_cmap("Greys")
    # The square root keeps a second, weaker branch visible.
    ax.pcolormesh(x, y, np.sqrt(density), cmap=greys, shading="gouraud", rasterized=True)
    for label, node in enumerate(cluster_nodes(tree, labels).tolist()):
        inside = points[labels == label]
        colour = colour_of(label)
        x_inside, y_inside = inside.T
        ax.scatter(x_inside, y_inside, s=14, color=colour, ec="white", lw=0.3, zorder=3)
        if label < most and len(inside) > 1:
            at = np.linspace(inside[:, 0].min(), inside[:, 0].max(), n)
            output = model.output_given(stats[[node]], at[:, None])
            mean, deviation = output.mean[:, 0], output.standard_deviation[:, 0]
            ax.plot(at, mean, color=colour, linewidth=1.8)
            for edge in band(mean, deviation):
                ax.plot(at, edge, color=colour, linewidth=0.8, linestyle=(0, (4, 2)))
    names = [short(column.name) for column in estimator.schema_.columns]
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    ax.set_xlabel(names[0], parse_math=False)
    ax.set_ylabel(names[1], parse_math=False)
    return ax
