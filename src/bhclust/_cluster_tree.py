"""The tree above the clusters of a cut: each cluster becomes one leaf."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bhclust._validation import BhclustError, IntArray
from bhclust.posterior import cluster_nodes
from bhclust.tree import NODE_ARRAYS, Tree


class ClusterTree(NamedTuple):
    """A tree whose leaf k is cluster k, and the node of the whole tree that each node is."""

    tree: Tree
    nodes: IntArray


def cluster_tree(tree: Tree, labels: IntArray) -> ClusterTree:
    """Return the tree above the clusters of a tree-consistent labelling.

    Joins keep their heights; leaves are named by their labels and weigh as much as their rows.

    Parameters
    ----------
    tree : Tree
        The whole tree.
    labels : array of int of shape (n_leaves,)
        Labels 0, 1, … of a cut.

    Examples
    --------
    >>> import numpy as np
    >>> tree = Tree([5, 5, 6, 6, 7, 7, 8, 8, -1], n_leaves=5)
    >>> above = cluster_tree(tree, np.array([1, 1, 0, 0, 2]))
    >>> above.tree.parent.tolist(), above.nodes.tolist()
    ([4, 3, 3, 4, -1], [6, 5, 4, 7, 8])
    """
    tops = cluster_nodes(tree, labels)
    if int(tree.size[tops].sum()) != tree.n_leaves:
        raise BhclustError(
            "the labels do not agree with the tree: every cluster must be all the leaves of one "
            "node, as in the labels of a cut."
        )
    is_top = np.zeros(tree.n_nodes, dtype=np.bool_)
    is_top[tops] = True
    inside = is_top.copy()
    for node in range(tree.n_nodes - 1, -1, -1):
        above = tree.parent[node]
        if above >= 0 and inside[above]:
            inside[node] = True
    nodes = np.concatenate([tops, np.flatnonzero(~inside)])
    number = np.full(tree.n_nodes + 1, -1, dtype=np.int32)  # entry −1 stays −1 for the root
    number[nodes] = np.arange(len(nodes))
    height = tree.height[nodes].copy()
    height[: len(tops)] = 0.0
    carried: dict[str, Any] = {
        name: None if values is None else values[nodes]
        for name in NODE_ARRAYS
        if name not in ("height", "log_odds")
        for values in [getattr(tree, name)]
    }
    odds = None
    if tree.log_odds is not None:
        odds = tree.log_odds[nodes].copy()
        odds[: len(tops)] = np.inf
    names = tuple(str(label) for label in range(len(tops)))
    return ClusterTree(
        Tree(
            number[tree.parent[nodes]],
            len(tops),
            height=height,
            log_odds=odds,
            leaf_names=names,
            **carried,
        ),
        nodes,
    )
