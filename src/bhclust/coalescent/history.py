"""Histories of mergers, the trees they make, and Kingman's prior over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bhclust._validation import BhclustError, FloatArray, IntArray, check_count
from bhclust.tree import Tree


class Merges(NamedTuple):
    """Mergers in order of age: merger k makes node n + k out of two older nodes.

    ``left`` and ``right`` are node numbers, ``age`` never falls; all of length n − 1.
    """

    left: IntArray
    right: IntArray
    age: FloatArray


def tree_of_merges(merges: Merges, leaf_names: Sequence[str] | None = None) -> Tree:
    """Return the tree that a history makes, with ages as heights."""
    n = len(merges.age) + 1
    parent = np.full(2 * n - 1, -1, dtype=np.int32)
    parent[merges.left] = np.arange(n, 2 * n - 1)
    parent[merges.right] = np.arange(n, 2 * n - 1)
    height = np.concatenate([np.zeros(n), merges.age])
    names = None if leaf_names is None else tuple(leaf_names)
    return Tree(parent, n_leaves=n, height=height, leaf_names=names)


def log_prior(tree: Tree) -> float:
    """Return the log density of a binary tree under Kingman's coalescent.

    While m lineages remain each of the m (m − 1) / 2 pairs merges at rate 1.

    Examples
    --------
    >>> from bhclust.tree import Tree
    >>> from bhclust.coalescent import log_prior
    >>> log_prior(Tree([3, 3, 4, 4, -1], n_leaves=3, height=[0, 0, 0, 0.5, 2.0]))
    -3.0
    """
    if not tree.is_binary or len(tree.roots) != 1:
        raise BhclustError("log_prior takes a binary tree with one root; this one is not.")
    n = tree.n_leaves
    ages = np.sort(tree.height[n:])
    lineages = np.arange(n, 1, -1)
    return -float((lineages * (lineages - 1) / 2) @ np.diff(ages, prepend=0.0))


def sample_tree(n_leaves: int, rng: np.random.Generator) -> Tree:
    """Draw a tree from Kingman's coalescent.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import sample_tree
    >>> sample_tree(5, np.random.default_rng(0)).n_leaves
    5
    """
    n = check_count(n_leaves, name="n_leaves", owner="sample_tree")
    live = list(range(n))
    left, right = np.empty(n - 1, dtype=np.intp), np.empty(n - 1, dtype=np.intp)
    lineages = np.arange(n, 1, -1)
    age = np.cumsum(rng.exponential(2 / (lineages * (lineages - 1))))
    for k in range(n - 1):
        i = int(rng.integers(len(live)))
        left[k], live[i] = live[i], live[-1]
        live.pop()
        j = int(rng.integers(len(live)))
        right[k], live[j] = live[j], n + k
    return tree_of_merges(Merges(left, right, age))
