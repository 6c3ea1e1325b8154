"""Where the nodes of a tree go in a drawing, and in which colours: coordinates, no ink.

The page of a report and the plots of matplotlib share this room. Nothing recurses.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._kernels.passes import sum_downward
from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.posterior import log_split_probability
from bhclust.tree import Tree

# Colours that most colour-blind readers can tell apart (Okabe and Ito 2008, with an olive in place
# of the yellow, which is too pale for lines); the one next to red comes last.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7a7a00", "#000000", "#d55e00")
MIXED = "#888888"
REJECTED = "#c8102e"

#: ways to turn what is known of a node into how high it is drawn
SCALES = ("auto", "height", "log_odds", "rank")

# Log odds beyond this, which are infinite for all purposes, are drawn as if they were this.
_MOST_ODDS = 1e100

# Part of the height that goes to the joins between clusters, which are few and matter most.
_BETWEEN = 0.4


class Skeleton(NamedTuple):
    """The drawn part of a tree: its topology and where each node stands along the row of tips.

    ``nodes`` holds the drawn nodes, children before parents; ``parent`` is the position of the
    parent within ``nodes``, −1 at a root; ``is_tip`` marks leaves and the nodes drawn in place of
    all that is below them; ``place`` is 0, 1, 2, … at the tips, and at a join the middle between
    its first and its last child.
    """

    nodes: IntArray
    parent: IntArray
    is_tip: npt.NDArray[np.bool_]
    place: FloatArray

    @property
    def n_tips(self) -> int:
        """Number of tips."""
        return int(self.is_tip.sum())

    def tips(self) -> IntArray:
        """Return the nodes that are tips, in the order of their places."""
        tips = np.flatnonzero(self.is_tip)
        return self.nodes[tips[np.argsort(self.place[tips])]]


def skeleton(tree: Tree, max_tips: int | None = None) -> Skeleton:
    """Place a tree, the larger child of a node first.

    Parameters
    ----------
    tree : Tree
    max_tips : int, optional
        Open the highest nodes first and draw what is left closed as one tip each, as long as
        there are no more tips than this; the highest node is always opened.

    Examples
    --------
    >>> from bhclust.layout import skeleton
    >>> from bhclust.tree import Tree
    >>> drawn = skeleton(Tree.from_parent([3, 3, 4, 4, -1]))
    >>> drawn.place.tolist()
    [0.0, 1.0, 2.0, 0.5, 1.25]
    """
    opened = _opened(tree, max_tips)
    above = tree.parent.astype(np.intp)
    nodes = np.flatnonzero((above < 0) | opened[np.maximum(above, 0)])
    position = np.full(tree.n_nodes + 1, -1, dtype=np.intp)  # the last entry is for parent −1
    position[nodes] = np.arange(len(nodes))
    parent = position[above[nodes]]
    is_tip = ~opened[nodes]
    start = _first_tip(parent, is_tip, nodes, tree.size[nodes])
    return Skeleton(nodes, parent, is_tip, _middles(parent, is_tip, start))


def _opened(tree: Tree, max_tips: int | None) -> npt.NDArray[np.bool_]:
    """Open the highest nodes first, as long as the tips are no more than asked for."""
    opened = np.zeros(tree.n_nodes, dtype=np.bool_)
    if max_tips is None or max_tips >= tree.n_leaves:
        opened[tree.n_leaves :] = True
        return opened
    height, size = tree.height, tree.size
    queue = [(-height[r], -size[r], r) for r in tree.roots.tolist() if r >= tree.n_leaves]
    heapq.heapify(queue)
    n_roots = n_tips = len(tree.roots)
    while queue:
        node = heapq.heappop(queue)[2]
        children = tree.children(node).tolist()
        if n_tips + len(children) - 1 > max_tips and n_tips > n_roots:
            continue
        opened[node] = True
        n_tips += len(children) - 1
        for child in children:
            if child >= tree.n_leaves:
                heapq.heappush(queue, (-height[child], -size[child], child))
    return opened


def _first_tip(
    parent: IntArray, is_tip: npt.NDArray[np.bool_], nodes: IntArray, size: npt.NDArray[np.int64]
) -> list[int]:
    """Return the place of the first tip below each node, larger siblings first."""
    above = parent.tolist()
    n_tips = is_tip.astype(np.intp).tolist()
    for node, over in enumerate(above):
        if over >= 0:
            n_tips[over] += n_tips[node]
    order = np.lexsort((nodes, -size, parent))
    width = np.array(n_tips)[order]
    before = np.cumsum(width) - width
    first_sibling = np.searchsorted(parent[order], parent[order])
    offset = np.empty(len(nodes), dtype=np.intp)
    offset[order] = before - before[first_sibling]
    start: list[int] = offset.tolist()
    for node in range(len(nodes) - 1, -1, -1):
        if above[node] >= 0:
            start[node] += start[above[node]]
    return start


def _middles(parent: IntArray, is_tip: npt.NDArray[np.bool_], start: list[int]) -> FloatArray:
    """Return the places: those of the tips, and the middle of the outermost children of a join."""
    low, high = [np.inf] * len(start), [-np.inf] * len(start)
    place = [float(first) for first in start]
    tip = is_tip.tolist()
    for node, over in enumerate(parent.tolist()):
        if not tip[node]:
            place[node] = (low[node] + high[node]) / 2
        if over >= 0:
            low[over] = min(low[over], place[node])
            high[over] = max(high[over], place[node])
    return np.array(place)


def is_separation_height(tree: Tree) -> bool:
    """Return whether the heights are probabilities of being apart, as BHC and BRT have them.

    Other trees have heights of their own meaning: ages, distances, levels.
    """
    if tree.log_odds is None or tree.height.max() > 1:
        return False
    log_apart = sum_downward(tree.parent, log_split_probability(tree))
    return bool(np.allclose(np.exp(log_apart), tree.height, atol=1e-9))


def drawn_heights(tree: Tree, drawn: Skeleton, scale: str, labels: IntArray | None) -> FloatArray:
    """Return how high each drawn node is, tips that are leaves at 0.

    ``"height"`` takes the tree's heights. ``"log_odds"`` draws a join at
    ``sqrt(1 + highest - log odds)`` and never below its children: the probabilities of BHC and
    BRT crowd near 0 and 1, where this still shows how strongly a join is meant or rejected.
    ``"rank"`` spreads the joins evenly in the order of their heights. ``"auto"`` takes
    ``"log_odds"`` for trees whose heights are such probabilities and ``"height"`` for others.
    """
    if scale == "rank":
        return ranks(tree, drawn, labels)
    if scale == "auto":
        scale = "log_odds" if is_separation_height(tree) else "height"
    if scale == "height":
        return np.asarray(tree.height[drawn.nodes])
    return log_odds_heights(tree)[drawn.nodes]


def log_odds_heights(tree: Tree) -> FloatArray:
    """Return ``sqrt(1 + highest - log odds)`` of joins, 0 at leaves, never below a child."""
    if tree.log_odds is None:
        raise BhclustError(
            "this tree carries no log odds (it was read from a linkage or a plain Newick file): "
            "draw it with height='height' or height='rank'."
        )
    height = np.zeros(tree.n_nodes)
    odds = tree.log_odds[tree.n_leaves :]
    finite = odds[np.isfinite(odds)]
    if len(odds):
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        low, high = max(low, -_MOST_ODDS), min(high, _MOST_ODDS)
        height[tree.n_leaves :] = np.sqrt(1 + high - np.clip(odds, low, high))
    out: list[float] = height.tolist()
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0 and out[above] < out[node]:
            out[above] = out[node]
    return np.array(out)


def ranks(tree: Tree, drawn: Skeleton, labels: IntArray | None = None) -> FloatArray:
    """Return the ranks of the heights of the drawn joins, from 0 at tips to 1 at the highest.

    Ties go by node number, so that a parent stays above its children. With ``labels`` of the
    leaves, joins between clusters get more room than joins inside them.
    """
    out = np.zeros(len(drawn.nodes))
    joins = np.flatnonzero(~drawn.is_tip)
    ranked = joins[np.argsort(tree.height[drawn.nodes[joins]], kind="stable")]
    step = np.ones(len(ranked))
    if labels is not None:
        between = cluster_of_nodes(tree, labels)[drawn.nodes[ranked]] < 0
        n_between = int(between.sum())
        if 0 < n_between < len(ranked):
            share = _BETWEEN / (1 - _BETWEEN) * (len(ranked) - n_between) / n_between
            step[between] = max(share, 1.0)
    out[ranked] = np.cumsum(step) / max(step.sum(), 1.0)
    return out


def colour_of(cluster: int) -> str:
    """Return the colour of a cluster, grey for −1, which stands for several."""
    return MIXED if cluster < 0 else COLOURS[cluster % len(COLOURS)]


def cluster_of_nodes(tree: Tree, labels: IntArray) -> IntArray:
    """Return the cluster that holds all leaves of a node, −1 where there are several."""
    unset = -2
    cluster = [*np.asarray(labels).tolist(), *[unset] * (tree.n_nodes - tree.n_leaves)]
    for node, above in enumerate(tree.parent.tolist()):
        if above < 0:
            continue
        if cluster[above] == unset:
            cluster[above] = cluster[node]
        elif cluster[above] != cluster[node]:
            cluster[above] = -1
    return np.array(cluster, dtype=np.intp)
