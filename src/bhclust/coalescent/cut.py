"""Flat clusters from a tree with ages."""

from __future__ import annotations

import numpy as np

from bhclust._validation import FloatArray, IntArray, check_count
from bhclust.tree import Tree


def cut_by_ratio(tree: Tree, log_ratio: FloatArray, threshold: float = 0.0) -> IntArray:
    """Return the cluster tops: walking down, split where apart is more likely than together.

    A node is split if log p(children apart) − log p(together) is above the threshold, and is one
    cluster otherwise; nothing below a cluster is looked at. A higher threshold makes fewer
    clusters.

    Parameters
    ----------
    tree : Tree
    log_ratio : array, shape (n_nodes,)
        log p(together) − log p(apart) of each node, +inf at leaves:
        ``process.log_likelihood_ratio(tree, X)``.
    threshold : float

    Returns
    -------
    array of int
        The node of each cluster.
    """
    reached = np.zeros(tree.n_nodes, dtype=bool)
    reached[tree.roots] = True
    split = -log_ratio > threshold
    for node in range(tree.n_nodes - 1, -1, -1):
        above = tree.parent[node]
        if above >= 0:
            reached[node] = reached[above] and split[above]
    return np.flatnonzero(reached & ~split)


def cut_by_number(tree: Tree, n_clusters: int) -> IntArray:
    """Return the cluster tops of the youngest cut into this many clusters.

    With children of one age, or nodes of many children, it may be a few more.
    """
    count = check_count(
        n_clusters, name="n_clusters", owner="CoalescentClustering", highest=tree.n_leaves
    )
    tops = set(tree.roots.tolist())
    while len(tops) < count:
        oldest = max(
            (node for node in tops if node >= tree.n_leaves),
            key=lambda node: (tree.height[node], node),
        )
        tops.remove(oldest)
        tops.update(tree.children(oldest).tolist())
    return np.array(sorted(tops), dtype=np.intp)


def labels_of_tops(tree: Tree, tops: IntArray) -> IntArray:
    """Return the cluster of each leaf; 0 is the largest, ties go to the first leaf."""
    of_node = np.full(tree.n_nodes, -1, dtype=np.intp)
    of_node[tops] = tops
    for node in range(tree.n_nodes - 1, -1, -1):
        if of_node[node] < 0 and tree.parent[node] >= 0:
            of_node[node] = of_node[tree.parent[node]]
    _, first, inverse, counts = np.unique(
        of_node[: tree.n_leaves], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.lexsort((first, -counts))] = np.arange(len(first))
    return rank[inverse]


def cluster_of_branch(tree: Tree, labels: IntArray) -> FloatArray:
    """Return, for each node, the share of its branch that belongs to each cluster.

    A branch inside a cluster, or right above it, is all its; one higher up is shared among the
    clusters below it in proportion to their leaves.
    """
    n_clusters = int(labels.max()) + 1
    counts = np.zeros((tree.n_nodes, n_clusters))
    counts[np.arange(tree.n_leaves), labels] = 1.0
    for node in range(tree.n_nodes):
        above = tree.parent[node]
        if above >= 0:
            counts[above] += counts[node]
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
