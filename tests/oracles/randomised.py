"""Slow definitions for randomised trees: who goes where, item by item."""

from __future__ import annotations

import numpy as np

from bhclust.posterior import predictive_components


def port_score(tree, node, model, mixing, x):
    """Return ``log n_L + log Σ_k w_k f(x | D_k)`` over the nodes of one subtree."""
    below = tree.subtree(int(node))
    found = predictive_components(below, mixing)
    total = 0.0
    item = model.suffstats(x[None])
    for k, log_weight in zip(found.nodes, found.log_weight, strict=True):
        own = below.stats[k : k + 1]
        log_density = model.log_marginal(model.merge(own, item)) - model.log_marginal(own)
        total += np.exp(log_weight + log_density[0])
    return np.log(tree.weight[node]) + np.log(total)


def sets_below(parent, n_leaves):
    """Return the set of leaves of each node."""
    sets = [{leaf} for leaf in range(n_leaves)] + [set() for _ in range(len(parent) - n_leaves)]
    for node, above in enumerate(parent):
        if above >= 0:
            sets[above] |= sets[node]
    return sets
