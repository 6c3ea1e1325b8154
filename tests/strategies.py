"""Hypothesis strategies that several test files share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from bhclust.tree import Tree

#: any text, often with the characters that formats treat as their own
awkward_names = st.one_of(
    st.text(max_size=8),
    st.text(alphabet="ab_ '\"()[]{},:;=&\n\t\\é漢🌳", max_size=8),
)


@st.composite
def parents(draw, min_leaves=1, max_leaves=12, arity=4, forest=False):
    """Parents of a random tree; ``arity=2`` gives binary trees, chains come up often."""
    n_leaves = draw(st.integers(min_leaves, max_leaves))
    parent = [-1] * n_leaves
    current = list(range(n_leaves))
    chain = draw(st.booleans())
    while len(current) > 1 and not (forest and draw(st.integers(0, 5)) == 0):
        n_children = draw(st.integers(2, min(arity, len(current))))
        for _ in range(n_children):
            # In a chain the node made last is always taken first.
            place = len(current) - 1 if chain else draw(st.integers(0, len(current) - 1))
            parent[current.pop(place)] = len(parent)
        current.append(len(parent))
        parent.append(-1)
    return np.array(parent), n_leaves


@st.composite
def trees(draw, min_leaves=1, max_leaves=12, arity=4, forest=False):
    """Random trees, bare or with everything a tree can carry."""
    parent, n_leaves = draw(parents(min_leaves, max_leaves, arity, forest))
    if draw(st.booleans()):
        return Tree(parent, n_leaves)
    n_nodes = len(parent)
    any_float = st.floats(allow_nan=True, allow_infinity=True)
    step = st.sampled_from([0.0, 0.125, 1 / 3, 1e-300, 7.0])
    height = np.zeros(n_nodes)
    weight = np.zeros(n_nodes)
    weight[:n_leaves] = draw(_list_of(st.sampled_from([0.5, 1.0, 3.0, 0.1]), n_leaves))
    for node, above in enumerate(parent):
        if node >= n_leaves:
            height[node] += draw(step)
        if above >= 0:
            height[above] = max(height[above], height[node])
            weight[above] += weight[node]
    log_odds = np.array(draw(_list_of(st.floats(allow_nan=False), n_nodes)))
    log_odds[:n_leaves] = np.inf
    return Tree(
        parent,
        n_leaves,
        height=height,
        log_odds=draw(st.sampled_from([None, log_odds])),
        log_evidence=np.array(draw(_list_of(any_float, n_nodes))),
        log_marginal=np.array(draw(_list_of(any_float, n_nodes))),
        stats=np.array(draw(_list_of(any_float, 2 * n_nodes))).reshape(n_nodes, 2),
        leaf_names=draw(st.none() | _list_of(awkward_names, n_leaves).map(tuple)),
        weight=weight,
    )


def _list_of(elements, n):
    return st.lists(elements, min_size=n, max_size=n)


def chain(n_leaves, **arrays):
    """A caterpillar: leaf 0 and leaf 1 join first, then one leaf after another."""
    parent = np.full(2 * n_leaves - 1, -1)
    internal = np.arange(n_leaves, 2 * n_leaves - 1)
    parent[0] = n_leaves
    parent[1:n_leaves] = internal
    parent[internal[:-1]] = internal[1:]
    return Tree(parent, n_leaves, **arrays)
