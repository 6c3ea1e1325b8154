"""Pictures of uncertainty: many trees drawn over one another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bhclust._validation import FloatArray, IntArray, optional_import
from bhclust.coalescent.posterior import TreePosterior
from bhclust.tree import Tree


class Segments(NamedTuple):
    """Lines of a tree: from ``(x0, y0)`` at a node to ``(x1, y1)`` at its parent."""

    x0: FloatArray
    y0: FloatArray
    x1: FloatArray
    y1: FloatArray


def slanted_lines(tree: Tree, order: IntArray) -> Segments:
    """Return the lines of a tree with its leaves at given places.

    Parameters
    ----------
    tree : Tree
    order : array of int, shape (n_leaves,)
        The leaves from left to right. A node stands at the mean place of its leaves.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent.draw import slanted_lines
    >>> from bhclust.tree import Tree
    >>> tree = Tree([2, 2, -1], n_leaves=2, height=[0, 0, 1.5])
    >>> slanted_lines(tree, np.array([1, 0])).x1
    array([0.5, 0.5])
    """
    place = np.zeros(tree.n_nodes)
    place[order] = np.arange(tree.n_leaves)
    for node in range(tree.n_nodes):
        if node >= tree.n_leaves:
            place[node] /= tree.size[node]
        above = tree.parent[node]
        if above >= 0:
            place[above] += place[node] * tree.size[node]
    below = np.flatnonzero(tree.parent >= 0)
    above_of = tree.parent[below]
    return Segments(place[below], tree.height[below], place[above_of], tree.height[above_of])


def draw_posterior(
    posterior: TreePosterior,
    *,
    ax: Any = None,
    max_trees: int = 200,
    show_consensus: bool = True,
) -> Any:
    """Draw the trees of a posterior over one another, darker where they agree.

    Leaves stand in the order of the consensus tree, so that clades with a majority do not cross.

    Parameters
    ----------
    posterior : TreePosterior
    ax : matplotlib axes, optional
    max_trees : int
        At most this many trees, those of the highest weight.
    show_consensus : bool
        Whether to draw the majority-rule consensus in red on top.

    Returns
    -------
    matplotlib axes
    """
    pyplot = optional_import("matplotlib.pyplot", extra="plot", needed_for="draw_posterior")
    collections = optional_import("matplotlib.collections", extra="plot", needed_for="drawing")
    if ax is None:
        _, ax = pyplot.subplots()
    consensus = posterior.consensus()
    order = consensus.leaf_order()
    heaviest = np.argsort(-posterior.weights, kind="stable")[:max_trees]
    top = float(posterior.weights[heaviest[0]])
    for k in heaviest[::-1]:
        share = float(posterior.weights[k])
        if share <= 0:
            continue
        alpha = max(0.02, min(1.0, 4.0 * share / top / np.sqrt(len(heaviest))))
        lines = _as_lines(slanted_lines(posterior.trees[int(k)], order))
        ax.add_collection(collections.LineCollection(lines, color="tab:blue", alpha=alpha, lw=0.8))
    if show_consensus:
        lines = _as_lines(slanted_lines(consensus, order))
        ax.add_collection(collections.LineCollection(lines, color="tab:red", lw=1.2))
    names = consensus.leaf_names or tuple(str(leaf) for leaf in range(consensus.n_leaves))
    ax.set_xticks(np.arange(len(order)), [names[leaf] for leaf in order], rotation=90)
    ax.set_ylabel("age")
    ax.autoscale()
    return ax


def _as_lines(segments: Segments) -> FloatArray:
    starts = np.stack([segments.x0, segments.y0], axis=1)
    ends = np.stack([segments.x1, segments.y1], axis=1)
    return np.stack([starts, ends], axis=1)
