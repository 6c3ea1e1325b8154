"""A dendrogram as SVG: coordinates first, drawing second."""

from __future__ import annotations

import heapq
import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.tree import Tree

# Tips beyond which the parts of a tree with the least height are drawn as one tip each.
MAX_TIPS = 80

# Colours that most colour-blind readers can tell apart (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a00", "#000000")
MIXED = "#888888"

_ROW = 16.0
_WIDTH = 690.0
_MARGIN = 12.0
_LABELS = 190.0
_LONGEST_LABEL = 28

# Part of the width that goes to the joins between clusters, which are few and matter most.
_BETWEEN = 0.4


class Layout(NamedTuple):
    """Where the drawn nodes of a tree go.

    ``nodes`` holds the drawn nodes, children before parents; ``x`` is 0 at the tips and grows
    with the rank of a node's height, to 1 for the highest; ``y`` is the row of each; ``parent``
    is the position of the parent within ``nodes``, −1 at a root; ``is_tip`` marks leaves and the
    nodes drawn in place of all that is below them.
    """

    nodes: IntArray
    x: FloatArray
    y: FloatArray
    parent: IntArray
    is_tip: npt.NDArray[np.bool_]


def layout(
    tree: Tree, max_tips: int = MAX_TIPS, labels: Sequence[int] | IntArray | None = None
) -> Layout:
    """Place a tree on rows, the least interesting parts of a large one collapsed.

    With ``labels`` of the leaves, joins between clusters get more room than joins inside them.

    Examples
    --------
    >>> from bhclust.report.dendrogram import layout
    >>> from bhclust.tree import Tree
    >>> layout(Tree.from_parent([3, 3, 4, 4, -1])).y.tolist()
    [0.0, 1.0, 2.0, 0.5, 1.25]
    """
    opened = _opened(tree, max_tips)
    shown = [node for node in range(tree.n_nodes) if _is_shown(tree, node, opened)]
    position = {node: i for i, node in enumerate(shown)}
    parent = np.array([position.get(int(tree.parent[node]), -1) for node in shown], dtype=np.intp)
    is_tip = np.array([node not in opened for node in shown])
    y = np.zeros(len(shown))
    for row, node in enumerate(_tips_in_order(tree, opened)):
        y[position[node]] = row
    for i, node in enumerate(shown):
        if node in opened:
            y[i] = np.mean([y[position[int(child)]] for child in tree.children(node)])
    nodes = np.array(shown, dtype=np.intp)
    # Heights are probabilities and crowd near 0 and 1: their ranks keep every join visible. Ties
    # go by node number, so that a parent stays above its children.
    x = np.zeros(len(nodes))
    joins = np.flatnonzero(~is_tip)
    ranked = joins[np.argsort(tree.height[nodes[joins]], kind="stable")]
    step = np.ones(len(ranked))
    if labels is not None:
        between = _cluster_of_nodes(tree, np.asarray(labels, dtype=np.intp))[nodes[ranked]] < 0
        n_between = int(between.sum())
        if 0 < n_between < len(ranked):
            share = _BETWEEN / (1 - _BETWEEN) * (len(ranked) - n_between) / n_between
            step[between] = max(share, 1.0)
    x[ranked] = np.cumsum(step) / max(step.sum(), 1.0)
    return Layout(nodes, x, y, parent, is_tip)


def _is_shown(tree: Tree, node: int, opened: set[int]) -> bool:
    above = int(tree.parent[node])
    return above < 0 or above in opened


def _opened(tree: Tree, max_tips: int) -> set[int]:
    """Open the highest nodes first, as long as the tips fit on the page."""
    roots = [int(root) for root in tree.roots]
    queue = [(-float(tree.height[r]), -int(tree.size[r]), r) for r in roots if r >= tree.n_leaves]
    heapq.heapify(queue)
    n_tips = len(roots)
    opened: set[int] = set()
    while queue:
        node = heapq.heappop(queue)[2]
        children = [int(child) for child in tree.children(node)]
        if n_tips + len(children) - 1 > max_tips and opened:
            continue
        opened.add(node)
        n_tips += len(children) - 1
        for child in children:
            if child >= tree.n_leaves:
                heapq.heappush(queue, (-float(tree.height[child]), -int(tree.size[child]), child))
    return opened


def _tips_in_order(tree: Tree, opened: set[int]) -> list[int]:
    """Return the tips from top to bottom, the larger child of a node first."""

    def last_first(nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (int(tree.size[node]), -node))

    tips = []
    stack = last_first(int(root) for root in tree.roots)
    while stack:
        node = stack.pop()
        if node in opened:
            stack.extend(last_first(int(child) for child in tree.children(node)))
        else:
            tips.append(node)
    return tips


def draw(tree: Tree, labels: Sequence[int], names: Sequence[str], max_tips: int = MAX_TIPS) -> str:
    """Return a tree as SVG text, its branches coloured by cluster.

    Parameters
    ----------
    tree : Tree
    labels : sequence of int
        The cluster of each leaf.
    names : sequence of str
        The name of each leaf; escaped here.
    max_tips : int
        Tips beyond which the lowest parts are drawn as one tip each.
    """
    place = layout(tree, max_tips, labels)
    cluster = _cluster_of_nodes(tree, np.asarray(labels, dtype=np.intp))
    x = _MARGIN + (1 - place.x) * _WIDTH
    y = _MARGIN + (place.y + 0.5) * _ROW
    height = 2 * _MARGIN + _ROW * int(place.is_tip.sum())
    lines = []
    for i, node in enumerate(place.nodes):
        colour = _colour(int(cluster[node]))
        above = int(place.parent[i])
        if above >= 0:
            bend = f"M{x[i]:.1f} {y[i]:.1f}H{x[above]:.1f}V{y[above]:.1f}"
            title = f"{int(tree.size[node])} rows, joined at {tree.height[node]:.3g}"
            lines.append(f'<path d="{bend}" stroke="{colour}"><title>{title}</title></path>')
        if place.is_tip[i]:
            label = html.escape(_tip_label(tree, int(node), names))
            spot = f'x="{x[i] + 5:.1f}" y="{y[i] + 4:.1f}"'
            lines.append(f'<text {spot} fill="{colour}">{label}</text>')
    width = _WIDTH + 2 * _MARGIN + _LABELS
    return (
        f'<svg class="dendrogram" role="img" aria-label="dendrogram" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        'fill="none" stroke-width="1.4" font-size="11" style="max-width:100%;height:auto">'
        f"{''.join(lines)}</svg>"
    )


def _colour(cluster: int) -> str:
    return MIXED if cluster < 0 else COLOURS[cluster % len(COLOURS)]


def _tip_label(tree: Tree, node: int, names: Sequence[str]) -> str:
    if node >= tree.n_leaves:
        return f"{int(tree.size[node])} rows"
    name = names[node]
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"


def _cluster_of_nodes(tree: Tree, labels: IntArray) -> IntArray:
    """Return the cluster that holds all leaves of a node, −1 where there are several."""
    unset = -2
    cluster = np.full(tree.n_nodes, unset, dtype=np.intp)
    cluster[: tree.n_leaves] = labels
    for node in range(tree.n_nodes):
        above = int(tree.parent[node])
        if above < 0:
            continue
        if cluster[above] == unset:
            cluster[above] = cluster[node]
        elif cluster[above] != cluster[node]:
            cluster[above] = -1
    return cluster
