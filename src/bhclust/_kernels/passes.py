"""Compiled passes over the nodes of a tree: parents come after their children."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bhclust._kernels.compile import compiled
from bhclust._validation import FloatArray


@compiled
def upward(
    parent: Any, n_leaves: int, leaf: FloatArray, one: FloatArray, log_split: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Run ``value = logaddexp(one, log_split + Σ_children value)`` from the leaves to the roots.

    Return the values of all nodes and the log odds ``one - (log_split + Σ)``, +inf at leaves.
    """
    n_nodes = len(parent)
    value = np.empty(n_nodes)
    below = np.zeros(n_nodes)
    log_odds = np.empty(n_nodes)
    for node in range(n_nodes):
        if node < n_leaves:
            value[node] = leaf[node]
            log_odds[node] = np.inf
        else:
            split = below[node] + log_split[node - n_leaves]
            odds = one[node - n_leaves] - split
            log_odds[node] = odds
            value[node] = max(one[node - n_leaves], split) + math.log1p(math.exp(-abs(odds)))
        if parent[node] >= 0:
            below[parent[node]] += value[node]
    return value, log_odds


@compiled
def sum_upward(parent: Any, leaf: FloatArray) -> FloatArray:
    """Return the sum over the leaves below each node."""
    total = np.zeros(len(parent))
    # An assignment of a whole slice would take two seconds longer to compile.
    for node in range(len(leaf)):
        total[node] = leaf[node]
    for node in range(len(parent)):
        if parent[node] >= 0:
            total[parent[node]] += total[node]
    return total


@compiled
def sum_downward(parent: Any, values: FloatArray) -> FloatArray:
    """Return the sum over the path from the root to each node, the node included."""
    total = np.empty(len(parent))
    for node in range(len(parent) - 1, -1, -1):
        above = parent[node]
        total[node] = values[node] + total[above] if above >= 0 else values[node]
    return total
