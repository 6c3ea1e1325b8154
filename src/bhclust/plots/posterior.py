"""What a fit believes: density, pairs in one cluster, the number of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bhclust import posterior
from bhclust._kernels.passes import sum_downward
from bhclust._validation import BhclustError, FloatArray, IntArray, check_count
from bhclust.layout import COLOURS, colour_of, skeleton
from bhclust.models.base import ClusterModel
from bhclust.plots.canvas import (
    check_estimator,
    font_for,
    get_axes,
    get_tree,
    leaf_labels,
    matplotlib_part,
    ranges,
    settle,
    short,
    subject,
)
from bhclust.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Contours hold these shares of the predictive probability.
_SHARES = (0.99, 0.9, 0.75, 0.5, 0.25)

# Grid points times components of the predictive density that are worth waiting for.
_MOST_SCORES = 2e7
_COARSEST = 40

_MARKERS = "osD^vP*X"

# A larger matrix is shown by the means of blocks of so many rows and columns in all.
_BLOCKS = 500

# Numbers of clusters of less probability are left out at both ends.
_LEAST_PROBABILITY = 5e-4


def density(estimator: Any, X: Any = None, ax: Axes | None = None, *, n_grid: int = 120) -> Axes:
    """Draw the predictive density of a table of two real columns, and its rows by cluster.

    Contours enclose the regions of highest density that hold 25, 50, 75, 90 and 99 % of the
    probability within the picture.

    Parameters
    ----------
    estimator : fitted estimator
        Fitted to two real columns.
    X : table, optional
        The fitted rows; by default they are read from the tree, which keeps them for the models
        of this library.
    ax : Axes, optional
        Where to draw; by default a new figure.
    n_grid : int
        Points along each side; fewer are taken where a tree has very many nodes.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust import BayesianHierarchicalClustering, plots
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (20, 2)), rng.normal(6, 1, (20, 2))])
    >>> ax = plots.density(BayesianHierarchicalClustering().fit(X))
    """
    owner = "plots.density"
    check_estimator(estimator, owner, ["schema_", "score_samples"])
    finest = check_count(n_grid, name="n_grid", owner=owner, lowest=2)
    columns = estimator.schema_.columns
    if [column.kind for column in columns] != ["real", "real"]:
        kinds = ", ".join(column.kind for column in columns[:5])
        raise BhclustError(
            f"{owner} draws tables of two real columns, and this one has {len(columns)} ({kinds}): "
            "fit two of its columns, or use plots.heatmap."
        )
    points = _points(estimator, X, owner)
    ax = get_axes(ax, (6.0, 5.0), owner)
    limits = [ranges(points[:, k], 0.15) for k in (0, 1)]
    n_nodes = estimator.tree_.n_nodes
    n = int(np.clip(np.sqrt(_MOST_SCORES / n_nodes), min(_COARSEST, finest), finest))
    x, y = (np.linspace(*limit, n) for limit in limits)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = np.exp(_log_scores(estimator, grid)).reshape(n, n)
    levels = region_levels(values, _SHARES)
    colours = matplotlib_part("pyplot", owner).get_cmap("Greys")(np.linspace(0.12, 0.5, 6))
    ax.contourf(x, y, values, levels=[*levels, np.inf], colors=colours[: len(levels)])
    ax.contour(x, y, values, levels=levels, colors="#777777", linewidths=0.5)
    labels = np.asarray(estimator.labels_) if X is not None else leaf_labels(estimator)
    for label in np.unique(labels):
        chosen = points[labels == label]
        ax.scatter(
            chosen[:, 0],
            chosen[:, 1],
            s=float(np.clip(3000 / len(points), 4, 24)),
            color=colour_of(int(label)),
            # The markers tell clusters of one colour apart.
            marker=_MARKERS[int(label) // len(COLOURS) % len(_MARKERS)],
            edgecolors="white",
            linewidths=0.4,
            zorder=3,
        )
    names = [short(column.name) for column in columns]
    ax.set(xlim=limits[0], ylim=limits[1])
    ax.set_xlabel(names[0], parse_math=False)
    ax.set_ylabel(names[1], parse_math=False)
    return ax


def _points(estimator: Any, X: Any, owner: str) -> FloatArray:
    if X is not None:
        values = np.asarray(estimator.schema_.encode(X, owner=owner))
        if len(values) != len(estimator.labels_):
            raise BhclustError(
                f"{owner}: X must hold the {len(estimator.labels_)} rows that were fitted, got "
                f"{len(values)}."
            )
        return values
    tree, model = estimator.tree_, estimator.model_
    levels = None
    if isinstance(model, ClusterModel) and tree.stats is not None:
        levels = model.feature_levels(tree.stats[: tree.n_leaves])
    if levels is None or levels.value.shape[1] != 2:
        raise BhclustError(
            f"{owner}: a tree of {type(model).__name__} does not keep the rows; pass them as X."
        )
    return levels.value


def _log_scores(estimator: Any, grid: FloatArray) -> FloatArray:
    """Score points without asking for the column names of the fit."""
    if isinstance(estimator.model_, ClusterModel):
        return posterior.log_predictive_density(
            estimator.tree_, estimator.model_, estimator.mixing_, grid
        )
    names = getattr(estimator, "feature_names_in_", None)
    table: Any = grid if names is None else {n: grid[:, k] for k, n in enumerate(names)}
    return np.asarray(estimator.score_samples(table))


def region_levels(values: FloatArray, shares: tuple[float, ...]) -> list[float]:
    """Return the densities above which the given shares of the total lie, without repeats."""
    falling = np.sort(values.ravel())[::-1]
    held = np.cumsum(falling) / falling.sum()
    places = [min(int(np.searchsorted(held, share)), len(falling) - 1) for share in shares]
    levels = [float(falling[place]) for place in places]
    return sorted({level for level in levels if 0 < level < falling[0]}) or [float(falling[0]) / 2]


def co_clustering(estimator: Any, ax: Axes | None = None, *, max_blocks: int = _BLOCKS) -> Axes:
    """Draw the probability that two rows share a cluster, rows in the order of the tree.

    The bars at the left and at the bottom are the clusters.

    Parameters
    ----------
    estimator : fitted estimator, or Tree with log odds
    ax : Axes, optional
        Where to draw; by default a new figure.
    max_blocks : int
        With more leaves, neighbours are put together into so many blocks, and a point of the
        picture is the mean over all pairs of two blocks. The whole matrix is never held.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from bhclust import BayesianRoseTree, plots
    >>> from bhclust.datasets import make_blocks
    >>> ax = plots.co_clustering(BayesianRoseTree().fit(make_blocks(random_state=0).X))
    """
    owner = "plots.co_clustering"
    blocks = check_count(max_blocks, name="max_blocks", owner=owner, lowest=2)
    thing = subject(estimator, None, None, owner)
    drawn = skeleton(thing.tree)
    order = drawn.tips()
    n = len(order)
    edges = np.unique(np.linspace(0, n, min(n, blocks) + 1).astype(np.intp))
    if isinstance(getattr(estimator, "model_", None), ClusterModel) or isinstance(estimator, Tree):
        place = np.empty(n, dtype=np.intp)
        place[order] = np.arange(n)
        values = block_means(thing.tree, place, edges)
    else:
        if n > 10 * blocks:
            raise BhclustError(
                f"{owner}: the {n} × {n} matrix of {type(estimator).__name__} is too large to "
                "draw; fit fewer rows, or draw one tree, estimator.tree_."
            )
        matrix = np.asarray(estimator.co_clustering_matrix())[np.ix_(order, order)]
        values = _block_means_of(matrix, edges)
    ax = get_axes(ax, (6.0, 5.2), owner)
    picture = ax.imshow(
        values, vmin=0, vmax=1, cmap="viridis", extent=(-0.5, n - 0.5, n - 0.5, -0.5)
    )
    ax.figure.colorbar(picture, ax=ax, label="probability of one cluster", shrink=0.85)
    _cluster_bars(ax, thing.labels, order, owner)
    _names_beside(ax, [thing.names[leaf] for leaf in order])
    return ax


def block_means(tree: Tree, place: IntArray, edges: IntArray) -> FloatArray:
    """Return the mean co-clustering probability of blocks of neighbouring leaves, exactly.

    ``place`` puts the leaves in an order in which every node's leaves are neighbours; block b
    holds the places from ``edges[b]`` to ``edges[b + 1]``. With Δ the rise of the probability
    from a node's parent to the node, the sum over pairs is ``Σ_nodes Δ count_a count_b``.
    """
    together = -np.expm1(sum_downward(tree.parent, posterior.log_split_probability(tree)))
    above = np.where(tree.parent >= 0, together[np.maximum(tree.parent, 0)], 0.0)
    rise = together - above
    start = np.full(tree.n_nodes, tree.n_leaves, dtype=np.intp)
    start[: tree.n_leaves] = place
    first = start.tolist()
    for node, over in enumerate(tree.parent.tolist()):
        if over >= 0 and first[node] < first[over]:
            first[over] = first[node]
    begin = np.array(first)
    end = begin + tree.size
    n_blocks = len(edges) - 1
    total = np.zeros((n_blocks, n_blocks))
    inside = np.searchsorted(edges, begin, side="right") - 1
    whole = end <= edges[inside + 1]
    # A node within one block adds to one entry; the others are matrix products, part by part.
    np.add.at(
        total, (inside[whole], inside[whole]), rise[whole] * tree.size[whole].astype(float) ** 2
    )
    wide = np.flatnonzero(~whole)
    for part in np.array_split(wide, max(1, len(wide) * n_blocks >> 21)):
        upper = np.minimum(end[part, None], edges[None, 1:])
        lower = np.maximum(begin[part, None], edges[None, :-1])
        counts = np.maximum(upper - lower, 0).astype(np.float64)
        total += counts.T @ (rise[part, None] * counts)
    size = np.diff(edges).astype(np.float64)
    return np.asarray(np.clip(total / np.outer(size, size), 0.0, 1.0))


def _block_means_of(matrix: FloatArray, edges: IntArray) -> FloatArray:
    size = np.diff(edges).astype(np.float64)
    sums = np.add.reduceat(np.add.reduceat(matrix, edges[:-1], axis=0), edges[:-1], axis=1)
    return np.asarray(sums / np.outer(size, size))


def _cluster_bars(ax: Axes, labels: IntArray | None, order: IntArray, owner: str) -> None:
    """Draw the clusters as coloured bars along the outside of a square picture."""
    if labels is None:
        return
    patches = matplotlib_part("patches", owner)
    n = len(order)
    width = 0.02 * n
    changes = np.flatnonzero(np.diff(labels[order])) + 1
    for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), n], strict=True):
        colour = colour_of(int(labels[order[begin]]))
        for corner, size in (
            ((-0.5 - 1.5 * width, begin - 0.5), (width, end - begin)),
            ((begin - 0.5, n - 0.5 + 0.5 * width), (end - begin, width)),
        ):
            ax.add_patch(patches.Rectangle(corner, *size, facecolor=colour, linewidth=0))
    ax.set(xlim=(-0.5 - 2 * width, n - 0.5), ylim=(n - 0.5 + 2 * width, -0.5))
    for side in ("left", "right", "top", "bottom"):
        ax.spines[side].set_visible(False)


def _names_beside(ax: Axes, names: list[str]) -> None:
    settle(ax)
    frame = ax.get_window_extent()
    ax.set(xticks=[])
    size = font_for(frame.height * 0.96, len(names), float(ax.figure.dpi), 7.0)
    if size is None:
        ax.set(yticks=[], xlabel=f"{len(names)} leaves in the order of the tree")
        return
    ax.set_yticks(
        range(len(names)), labels=[short(name) for name in names], fontsize=size, parse_math=False
    )
    ax.tick_params(axis="y", length=0)


def n_clusters(estimator: Any, ax: Axes | None = None) -> Axes:
    """Draw the posterior probability of each number of clusters, the fitted one darker.

    Parameters
    ----------
    estimator : fitted estimator, or Tree with log odds
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from bhclust import BayesianRoseTree, plots
    >>> from bhclust.datasets import make_blocks
    >>> ax = plots.n_clusters(BayesianRoseTree().fit(make_blocks(random_state=0).X))
    """
    owner = "plots.n_clusters"
    tree = get_tree(estimator, owner)
    if isinstance(estimator, Tree):
        probability = posterior.n_clusters_distribution(tree)
        fitted = int(posterior.cut(tree).max()) + 1
    else:
        probability = np.asarray(estimator.n_clusters_distribution())
        fitted = int(estimator.n_clusters_)
    ax = get_axes(ax, (6.0, 3.6), owner)
    shown = np.flatnonzero(probability >= _LEAST_PROBABILITY)
    low, high = min(int(shown[0]), fitted), max(int(shown[-1]), fitted)
    numbers = np.arange(low, high + 1)
    colours = [COLOURS[0] if k == fitted else "#9ecae1" for k in numbers]
    heights = np.pad(probability, (0, max(0, high + 1 - len(probability))))[low : high + 1]
    ax.bar(numbers, heights, width=0.8, color=colours)
    ax.set(xlabel=f"number of clusters (dark: the {fitted} fitted)")
    ax.set_ylabel("posterior probability")
    ax.set_xlim(low - 0.7, high + 0.7)
    ax.xaxis.set_major_locator(matplotlib_part("ticker", owner).MaxNLocator(integer=True))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
