"""How items find their part of a tree: the top of a sample's tree, and who goes where.

A tree of a sample ends in *ports*. Every other item goes to the port whose subtree predicts it
best, and the subtree of a port is then built from all the items that went there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._kernels.passes import sum_downward
from bhclust._validation import FloatArray, IntArray
from bhclust.mixing import Mixing
from bhclust.models.base import ClusterModel
from bhclust.posterior import log_node_weights, log_split_probability
from bhclust.tree import Tree

HashArray = npt.NDArray[np.uint64]

# A node of the sample's tree is opened only if so many items of the sample are below it: with
# fewer, a fresh sample of the items that went there knows better.
LEAST_OPENED = 16

# A port is opened further while it can be expected to hold more than this share of the largest
# part: sizes scatter around what the sample promises.
_FILLING = 0.75

# Components of a port's predictive with less than this share of it have no say.
LEAST_SHARE = 0.01

# Scores are compared on this grid, so that the order in which a library adds cannot matter.
_GRID = 2.0**-20

# Items that are scored against all components at a time: 8 MB of log densities.
_BLOCK_NUMBERS = 1 << 20


def row_hash(rows: IntArray, seed: int) -> HashArray:
    """Return a number for each row that looks random and depends on row and seed only.

    The rows with the lowest numbers are a sample, whoever holds them, wherever they are.

    The mixing function is SplitMix64's (Steele, Lea & Flood 2014).

    Examples
    --------
    >>> import numpy as np
    >>> a = row_hash(np.arange(5), seed=1)
    >>> bool((a[2:4] == row_hash(np.array([2, 3]), seed=1)).all())
    True
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    z = rows.astype(np.uint64) * golden + np.uint64(seed % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def part_seed(seed: int, port: int) -> int:
    """Return the seed of a part from that of the whole and the number of its port."""
    return int(row_hash(np.array([port + 1]), seed)[0])


def sample_rows(rows: IntArray, size: int, seed: int) -> IntArray:
    """Return positions of a random sample among rows, in increasing order."""
    if size >= len(rows):
        return np.arange(len(rows))
    return np.sort(np.argpartition(row_hash(rows, seed), size)[:size])


class Top(NamedTuple):
    """The top of a tree: ``ports`` are nodes of the tree, and the leaves of ``parent``.

    ``port_of_leaf`` says below which port each leaf of the tree is.
    """

    parent: npt.NDArray[np.int32]
    ports: IntArray
    port_of_leaf: IntArray


def top_of(tree: Tree, n_items: int, part_size: int) -> Top:
    """Return the part of a sample's tree above the nodes that are one cluster or small enough.

    Inside a cluster the tree of a sample is mostly chance, and a fresh sample of the items that
    went there can say more.

    Parameters
    ----------
    tree : Tree
        Tree of the sample, with one root.
    n_items : int
        How many items the sample stands for.
    part_size : int
        Nodes are opened while more items than this can be expected below them.

    Examples
    --------
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
    >>> top_of(tree, 100, 60).ports.tolist()
    [4, 5]
    """
    expected = tree.size * (n_items / tree.n_leaves)
    opened = (expected > _FILLING * part_size) & (tree.size >= LEAST_OPENED)
    opened[: tree.n_leaves] = False
    if tree.log_odds is not None:
        opened &= tree.log_odds < 0
    opened[-1] = True
    for node in range(tree.n_nodes - 2, -1, -1):  # below a closed node nothing is opened
        opened[node] &= opened[tree.parent[node]]
    is_port = ~opened & opened[tree.parent]
    ports = np.flatnonzero(is_port)
    inner = np.flatnonzero(opened)
    number = np.full(tree.n_nodes, -1, dtype=np.int32)
    number[ports] = np.arange(len(ports))
    number[inner] = len(ports) + np.arange(len(inner))
    nodes = np.concatenate([ports, inner])
    parent = np.where(tree.parent[nodes] >= 0, number[tree.parent[nodes]], -1).astype(np.int32)
    return Top(parent, ports, _below(tree, ports))


def _below(tree: Tree, ports: IntArray) -> IntArray:
    """Return the port above each leaf."""
    from_left = np.argsort(tree.leaf_start[ports])
    owner = np.empty(tree.n_leaves, dtype=np.intp)
    owner[tree.leaf_order()] = np.repeat(from_left, tree.size[ports[from_left]])
    return owner


class Router(NamedTuple):
    """The predictive densities of the ports of a tree, times their numbers of items.

    Row k of ``stats`` is a component of weight ``exp(log_weight[k])``; the components of port p
    are ``first[p]`` up to ``first[p + 1]``.
    """

    stats: FloatArray
    log_weight: FloatArray
    first: IntArray

    @property
    def n_ports(self) -> int:
        """Number of ports."""
        return len(self.first) - 1


def make_router(
    tree: Tree, ports: IntArray, mixing: Mixing, least_share: float = LEAST_SHARE
) -> Router:
    """Return what decides to which port an item goes.

    An item x goes to the port L with the highest ``log n_L + log p(x | D_L, T_L)``, the
    predictive density of the port's own tree (a new cluster aside, which is at home nowhere).

    Parameters
    ----------
    tree : Tree
        Scored tree of the sample with statistics.
    ports : array of int
        Nodes of the tree.
    mixing : Mixing
        Prior weight of "one cluster".
    least_share : float
        Components with a smaller share of their port's predictive are left out.
    """
    assert tree.stats is not None
    assert tree.log_odds is not None
    port_of = _port_of_nodes(tree, ports)
    nodes = np.flatnonzero(port_of >= 0)
    owner = port_of[nodes]
    # The weights of the whole tree, without the part of the walk above the ports.
    passed = sum_downward(tree.parent, log_split_probability(tree))
    reached = np.where(tree.parent[ports] >= 0, passed[tree.parent[ports]], 0.0)
    n_below = tree.weight[ports]
    log_old = np.log(-np.expm1([mixing.log_new_cluster(float(w)) for w in n_below]))
    log_weight = log_node_weights(tree)[nodes] - reached[owner] + np.log(tree.weight[nodes])
    log_weight += log_old[owner]
    order = np.argsort(owner, kind="stable")
    nodes, owner, log_weight = nodes[order], owner[order], log_weight[order]
    first = np.searchsorted(owner, np.arange(len(ports)))
    highest = np.maximum.reduceat(log_weight, first)[owner]
    kept = np.flatnonzero(np.exp(log_weight - highest) >= least_share)
    first = np.searchsorted(owner[kept], np.arange(len(ports) + 1))
    return Router(tree.stats[nodes[kept]], log_weight[kept], first)


def _port_of_nodes(tree: Tree, ports: IntArray) -> IntArray:
    """Return the port at or above each node, -1 for the nodes above the ports."""
    out = np.full(tree.n_nodes, -1, dtype=np.intp)
    out[ports] = np.arange(len(ports))
    for node in range(tree.n_nodes - 1, -1, -1):
        above = tree.parent[node]
        if above >= 0 and out[above] >= 0:
            out[node] = out[above]
    return out


def port_scores(model: ClusterModel, router: Router, X: Any) -> FloatArray:
    """Return ``log n_L + log p(x | D_L, T_L)`` of each row and port, ``(n_rows, n_ports)``."""
    joint = model.log_predictive(router.stats, X)
    joint += router.log_weight
    if len(router.log_weight) == router.n_ports:
        return joint
    starts = router.first[:-1]
    highest = np.maximum.reduceat(joint, starts, axis=1)
    joint -= np.repeat(highest, np.diff(router.first), axis=1)
    np.exp(joint, out=joint)
    return np.asarray(np.log(np.add.reduceat(joint, starts, axis=1)) + highest)


def route(model: ClusterModel, router: Router, X: Any) -> npt.NDArray[np.int32]:
    """Return the port of each row: the best score, and of equal ones the lowest.

    Parameters
    ----------
    model : ClusterModel
        The resolved model.
    router : Router
        From `make_router`.
    X : array or csr_array of shape (n, d)
        Encoded rows.
    """
    n = X.shape[0]
    out = np.empty(n, dtype=np.int32)
    # A model may make sparse rows dense: no more of them at a time than that.
    block = max(1, _BLOCK_NUMBERS // max(len(router.log_weight), X.shape[1]))
    for start in range(0, n, block):
        scores = port_scores(model, router, X[start : start + block])
        out[start : start + block] = np.argmax(np.floor(scores / _GRID + 0.5), axis=1)
    return out
