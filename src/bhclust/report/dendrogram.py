"""A dendrogram as SVG: coordinates first, drawing second."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.layout import COLOURS, cluster_of_nodes, colour_of, ranks, skeleton
from bhclust.tree import Tree

__all__ = ["COLOURS", "MAX_TIPS", "Layout", "draw", "layout"]

# Tips beyond which the parts of a tree with the least height are drawn as one tip each.
MAX_TIPS = 80

_ROW = 16.0
_WIDTH = 690.0
_MARGIN = 12.0
_LABELS = 190.0
_LONGEST_LABEL = 28


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
    drawn = skeleton(tree, max_tips)
    # Heights are probabilities and crowd near 0 and 1: their ranks keep every join visible.
    x = ranks(tree, drawn, None if labels is None else np.asarray(labels, dtype=np.intp))
    return Layout(drawn.nodes, x, drawn.place, drawn.parent, drawn.is_tip)


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
    cluster = cluster_of_nodes(tree, np.asarray(labels, dtype=np.intp))
    x = _MARGIN + (1 - place.x) * _WIDTH
    y = _MARGIN + (place.y + 0.5) * _ROW
    height = 2 * _MARGIN + _ROW * int(place.is_tip.sum())
    lines = []
    for i, node in enumerate(place.nodes):
        colour = colour_of(int(cluster[node]))
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


def _tip_label(tree: Tree, node: int, names: Sequence[str]) -> str:
    if node >= tree.n_leaves:
        return f"{int(tree.size[node])} rows"
    name = names[node]
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
