"""Slow plain definitions for `tree`, `io` and `metrics`; they read `parent` and nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product


def ancestors(parent, node):
    """The node itself, its parent, …, its root."""
    path = [node]
    while parent[path[-1]] != -1:
        path.append(int(parent[path[-1]]))
    return path


def leaves_below(parent, n_leaves, node):
    return [leaf for leaf in range(n_leaves) if node in ancestors(parent, leaf)]


def mrca(parent, i, j):
    shared = set(ancestors(parent, i)) & set(ancestors(parent, j))
    return max(shared, key=lambda node: len(ancestors(parent, node)), default=-1)


def children(parent, node):
    return [i for i, above in enumerate(parent) if above == node]


def partitions(parent, n_leaves):
    """All tree-consistent partitions, each a frozenset of frozensets of leaves."""

    def below(node):
        own = frozenset([frozenset(leaves_below(parent, n_leaves, node))])
        if node < n_leaves:
            return {own}
        parts = [below(child) for child in children(parent, node)]
        return {own} | {frozenset().union(*choice) for choice in product(*parts)}

    parts = [below(root) for root, above in enumerate(parent) if above == -1]
    return {frozenset().union(*choice) for choice in product(*parts)}


def clades(tree):
    """What a tree is, whatever its numbering: each internal node's leaves, with its height."""
    return {
        (frozenset(leaves_below(tree.parent, tree.n_leaves, node)), float(tree.height[node]))
        for node in range(tree.n_leaves, tree.n_nodes)
    }


def _pair_purity(parent, n_leaves, y, i, j):
    below = leaves_below(parent, n_leaves, mrca(parent, i, j))
    return sum(y[leaf] == y[i] for leaf in below) / len(below)


def purity_by_pair(parent, n_leaves, y):
    pairs = [(i, j) for i, j in combinations(range(n_leaves), 2) if y[i] == y[j]]
    return sum(_pair_purity(parent, n_leaves, y, i, j) for i, j in pairs) / len(pairs)


def purity_by_leaf(parent, n_leaves, y):
    averages = []
    for i in range(n_leaves):
        others = [j for j in range(n_leaves) if j != i and y[j] == y[i]]
        if others:
            purities = [_pair_purity(parent, n_leaves, y, i, j) for j in others]
            averages.append(sum(purities) / len(purities))
    return sum(averages) / len(averages)


def subtree_score(parent, n_leaves, y):
    merges = 0
    for node in range(n_leaves, len(parent)):
        if len({y[leaf] for leaf in leaves_below(parent, n_leaves, node)}) == 1:
            merges += len(children(parent, node)) - 1
    return merges / (n_leaves - len(set(y)))


def leave_one_out(parent, n_leaves, y):
    right = 0.0
    for i in range(n_leaves):
        others = [j for j in leaves_below(parent, n_leaves, parent[i]) if j != i]
        counts = Counter(y[j] for j in others)
        commonest = [label for label in counts if counts[label] == max(counts.values())]
        right += (y[i] in commonest) / len(commonest)
    return right / n_leaves
