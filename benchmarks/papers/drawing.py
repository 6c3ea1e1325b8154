"""Small pictures of trees, for the scripts of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bhclust import Tree

PALETTE = ("#1b6ca8", "#d95f02", "#1b9e77", "#b2337f", "#7a6a00", "#5b5bd6", "#8c4a2f", "#444444")


def steps_below(tree: Tree) -> np.ndarray:
    """Return the longest way from each node down to a leaf, in nodes."""
    steps = np.zeros(tree.n_nodes)
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            steps[above] = max(steps[above], steps[node] + 1)
    return steps


def draw_tree(
    ax: Any,
    tree: Tree,
    height: np.ndarray,
    *,
    labels: Sequence[str] | None = None,
    colours: Sequence[int] | None = None,
    dashed: np.ndarray | None = None,
    sideways: bool = False,
    size: float = 6.0,
) -> None:
    """Draw a tree with its leaves below (or to the right), coloured by class.

    ``dashed`` marks nodes that are no cluster of their own.
    """
    place = np.zeros(tree.n_nodes)
    place[tree.leaf_order()] = np.arange(tree.n_leaves)

    def line(x: Sequence[float], y: Sequence[float], style: str) -> None:
        if sideways:
            x, y = [-value for value in y], x
        ax.plot(x, y, style, color="#333333", lw=0.8)

    for node in range(tree.n_leaves, tree.n_nodes):
        below = tree.children(node)
        place[node] = place[below].mean()
        style = "--" if dashed is not None and dashed[node] else "-"
        top = float(height[node])
        line([float(place[below].min()), float(place[below].max())], [top, top], style)
        for child in below:
            line([float(place[child])] * 2, [float(height[child]), top], style)
    palette = [PALETTE[c % len(PALETTE)] for c in (colours if colours is not None else ())]
    if palette:
        spots = np.column_stack([place[: tree.n_leaves], np.zeros(tree.n_leaves)])
        if sideways:
            spots = spots[:, ::-1]
        ax.scatter(spots[:, 0], spots[:, 1], c=palette, s=size, zorder=3, linewidths=0)
    for leaf, label in enumerate(labels or ()):
        colour = palette[leaf] if palette else "black"
        ax.annotate(
            label,
            (0, place[leaf]) if sideways else (place[leaf], 0),
            xytext=(4, 0) if sideways else (0, -4),
            textcoords="offset points",
            ha="left" if sideways else "center",
            va="center" if sideways else "top",
            rotation=0 if sideways else 90,
            fontsize=size,
            color=colour,
            annotation_clip=False,
        )
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks([])
