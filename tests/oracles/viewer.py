"""Slow definitions of what the viewer's page is given."""

from __future__ import annotations

from collections import Counter

import numpy as np


def split_by_feature(model, X, groups):
    """Return ``Σ log f(group) − log f(all)`` feature by feature, from the rows themselves."""
    out = np.zeros(X.shape[1])
    for rows in groups:
        out += _log_f_by_feature(model, X[rows])
    return out - _log_f_by_feature(model, X[np.concatenate(groups)])


def _log_f_by_feature(model, X):
    """Chain rule over rows, one feature at a time: all other features are missing."""
    out = np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        alone = np.full_like(X, np.nan)
        alone[:, j] = X[:, j]
        stats = model.suffstats(alone)
        union = stats[:1]
        for row in stats[1:]:
            union = model.merge(union, row[None])
        out[j] = model.log_marginal(union)[0]
    return out


def centre(values, is_category):
    """Return the mean, or the most frequent code, of what is not missing."""
    known = [value for value in values.tolist() if value == value]
    if not known:
        return np.nan
    if is_category:
        counts = Counter(known)
        return min(code for code in counts if counts[code] == max(counts.values()))
    return sum(known) / len(known)


def random_tree_arrays(n_leaves, rng, *, most_children=2, n_roots=1):
    """Return the parents of a random tree: nodes are joined until the roots are left."""
    alive = list(range(n_leaves))
    parent = [-1] * n_leaves
    while len(alive) > n_roots:
        count = min(int(rng.integers(2, most_children + 1)), len(alive) - n_roots + 1)
        node = len(parent)
        for _ in range(count):
            # Constant time: the chosen one changes places with the last.
            i = int(rng.integers(len(alive)))
            alive[i], alive[-1] = alive[-1], alive[i]
            parent[alive.pop()] = node
        parent.append(-1)
        alive.append(node)
    return parent
