"""Statistics of all nodes of a tree in one compiled pass.

A tree that grows by single items is as deep as it has leaves, and level by level NumPy would do one
small call a node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bhclust._kernels.compile import compiled
from bhclust._validation import FloatArray
from bhclust.models import ClusterModel, DiagonalGaussian, Gaussian, Mixed


def pooled_stats(parent: Any, model: ClusterModel, leaf_stats: FloatArray) -> FloatArray | None:
    """Return the statistics of all nodes, or None for a model with a merge of its own.

    The formulas are those of the models' ``merge``, child by child in the order of ids.
    """
    if type(model) is Mixed:
        blocks = [pooled_stats(parent, part, block) for part, block in model.blocks(leaf_stats)]
        known = [block for block in blocks if block is not None]
        return np.hstack(known) if len(known) == len(blocks) else None
    stats = np.zeros((len(parent), leaf_stats.shape[1]))
    stats[: len(leaf_stats)] = leaf_stats
    kind = type(model)
    if kind.merge is ClusterModel.merge:
        _add(parent, stats)
    elif kind is DiagonalGaussian:
        _pool_columns(parent, stats)
    elif kind is Gaussian:
        _pool_rows(parent, stats, len(model.hyperparameter("mean")))
    else:
        return None
    return stats


@compiled
def _add(parent, stats):
    for node in range(len(parent)):
        above = parent[node]
        if above >= 0:
            for s in range(stats.shape[1]):
                stats[above, s] += stats[node, s]


@compiled
def _pool_columns(parent, stats):
    """Counts, means and squared deviations, a block of columns each."""
    d = stats.shape[1] // 3
    for node in range(len(parent)):
        above = parent[node]
        if above < 0:
            continue
        for j in range(d):
            count_a, count_b = stats[above, j], stats[node, j]
            count = count_a + count_b
            divisor = count if count > 0 else 1.0
            mean_a, mean_b = stats[above, d + j], stats[node, d + j]
            difference = mean_a - mean_b
            between = count_a * count_b / divisor * difference * difference
            stats[above, j] = count
            stats[above, d + j] = count_a / divisor * mean_a + count_b / divisor * mean_b
            stats[above, 2 * d + j] += stats[node, 2 * d + j] + between


@compiled
def _pool_rows(parent, stats, d):
    """A count, means, and the lower triangle of the scatter matrix."""
    difference = np.empty(d)
    for node in range(len(parent)):
        above = parent[node]
        if above < 0:
            continue
        count_a, count_b = stats[above, 0], stats[node, 0]
        count = count_a + count_b
        divisor = count if count > 0 else 1.0
        coupling = count_a * count_b / divisor
        for j in range(d):
            mean_a, mean_b = stats[above, 1 + j], stats[node, 1 + j]
            difference[j] = mean_a - mean_b
            stats[above, 1 + j] = count_a / divisor * mean_a + count_b / divisor * mean_b
        stats[above, 0] = count
        position = 1 + d
        for j in range(d):
            for i in range(j + 1):
                between = coupling * difference[j] * difference[i]
                stats[above, position] += stats[node, position] + between
                position += 1
