"""Brute force over partitions: what the recursions on a tree must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import gammaln, logsumexp

from bhclust.mixing import Constant, DirichletProcess, Mixing
from bhclust.models import ClusterModel
from bhclust.tree import Tree

Partition = tuple[tuple[int, ...], ...]


def cluster_log_f(model: ClusterModel, X: np.ndarray) -> Callable[[tuple[int, ...]], float]:
    """Return a function of a set of rows: log f by the chain rule of one-point predictives."""
    stats = model.suffstats(X)

    def log_f(rows: tuple[int, ...]) -> float:
        total = float(model.log_marginal(stats[[rows[0]]])[0])
        held = stats[[rows[0]]]
        for row in rows[1:]:
            total += float(model.log_predictive(held, X[[row]])[0, 0])
            held = model.merge(held, stats[[row]])
        return total

    return log_f


def leaf_sets(tree: Tree) -> list[tuple[int, ...]]:
    """Return the leaves below each node by walking up from every leaf."""
    below: list[list[int]] = [[] for _ in range(tree.n_nodes)]
    for leaf in range(tree.n_leaves):
        node = leaf
        while node >= 0:
            below[node].append(leaf)
            node = int(tree.parent[node])
    return [tuple(leaves) for leaves in below]


def consistent_partitions(tree: Tree, node: int | None = None) -> list[list[int]]:
    """Return all tree-consistent partitions as lists of nodes."""
    node = tree.n_nodes - 1 if node is None else node
    out = [[node]]
    children = np.flatnonzero(tree.parent == node)
    if len(children):
        choices: list[list[int]] = [[]]
        for child in children:
            choices = [
                kept + extra
                for kept in choices
                for extra in consistent_partitions(tree, int(child))
            ]
        out += choices
    return out


def log_prior(tree: Tree, mixing: Mixing, partition: list[int]) -> float:
    """Return the log mixing proportion of a partition (rose-tree paper (1.6), BHC's CRP)."""
    if isinstance(mixing, DirichletProcess):
        sizes = [len(s) for s in leaf_sets(tree)]

        def mass(nodes: list[int]) -> float:
            return sum(math.log(mixing.alpha) + gammaln(sizes[k]) for k in nodes)

        return mass(partition) - float(logsumexp([mass(p) for p in consistent_partitions(tree)]))
    total = 0.0
    for node in range(tree.n_leaves, tree.n_nodes):
        k = int((tree.parent == node).sum())
        gamma = mixing.gamma
        pi = gamma if isinstance(mixing, Constant) else 1 - (1 - gamma) ** (k - 1)
        if node in partition:
            total += math.log(pi)
        elif _has_below(tree, node, partition):
            total += math.log(1 - pi)
    return total


def _has_below(tree: Tree, node: int, partition: list[int]) -> bool:
    for member in partition:
        above = int(tree.parent[member])
        while above >= 0:
            if above == node:
                return True
            above = int(tree.parent[above])
    return False


def log_posterior(
    tree: Tree, mixing: Mixing, log_f: Callable[[tuple[int, ...]], float]
) -> tuple[list[list[int]], np.ndarray, float]:
    """Return the partitions, their posterior log probabilities, and ``log p(D | T)``."""
    sets = leaf_sets(tree)
    partitions = consistent_partitions(tree)
    joint = np.array(
        [
            log_prior(tree, mixing, partition) + sum(log_f(sets[k]) for k in partition)
            for partition in partitions
        ]
    )
    evidence = float(logsumexp(joint))
    return partitions, joint - evidence, evidence


def set_partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Yield all partitions of a set."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [[first], *partition]
        for i in range(len(partition)):
            yield [*partition[:i], [first, *partition[i]], *partition[i + 1 :]]


def log_dp_mixture_evidence(
    n: int, alpha: float, log_f: Callable[[tuple[int, ...]], float]
) -> float:
    """Return the exact log evidence of the Dirichlet-process mixture over all set partitions."""
    terms = [
        sum(math.log(alpha) + gammaln(len(c)) + log_f(tuple(sorted(c))) for c in partition)
        for partition in set_partitions(list(range(n)))
    ]
    return float(logsumexp(terms) + gammaln(alpha) - gammaln(n + alpha))
