"""Slow plain definitions for `layout` and `plots`: recursion, full matrices, loops over pairs."""

from __future__ import annotations

import itertools

import numpy as np

from tests.oracles.trees import children, leaves_below


def places(tree):
    """Where each node stands: leaves in a row, larger children first, joins in the middle."""
    out, n_placed = {}, 0

    def visit(node):
        nonlocal n_placed
        below = children(tree.parent, node)
        if not below:
            out[node] = float(n_placed)
            n_placed += 1
            return
        for child in by_size(below):
            visit(child)
        outer = [out[child] for child in below]
        out[node] = (min(outer) + max(outer)) / 2

    def by_size(nodes):
        return sorted(nodes, key=lambda k: (-len(leaves_below(tree.parent, tree.n_leaves, k)), k))

    for root in by_size([k for k, above in enumerate(tree.parent) if above == -1]):
        visit(root)
    return [out[node] for node in range(len(tree.parent))]


def log_odds_heights(tree):
    """The height of each join by its log odds, raised to that of its highest child."""
    highest = max(tree.log_odds[tree.n_leaves :])

    def height(node):
        below = children(tree.parent, node)
        own = np.sqrt(1 + highest - tree.log_odds[node]) if below else 0.0
        return max([own, *map(height, below)])

    return [height(node) for node in range(len(tree.parent))]


def block_means(matrix, order, edges):
    """Means of the blocks of a matrix whose rows and columns are put in an order."""
    sorted_matrix = matrix[np.ix_(order, order)]
    parts = list(itertools.pairwise(edges))
    return np.array([[sorted_matrix[a:b, c:d].mean() for c, d in parts] for a, b in parts])
