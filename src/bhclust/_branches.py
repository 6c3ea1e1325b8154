"""Trees put together from branches: the children of a branch come before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray, IntArray
from bhclust.agglomerate import node_stats, score_nodes
from bhclust.mixing import Mixing
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree


class Branch(NamedTuple):
    """A finished subtree: parents over its leaves, ``log f`` of all its nodes, its statistics."""

    parent: npt.NDArray[np.int32]
    log_f: FloatArray
    stats: FloatArray


def joined(model: ClusterModel, parent: npt.NDArray[np.int32], stats: FloatArray) -> Branch:
    """Return the branch of a top whose leaves have given statistics."""
    if len(stats) == 1:
        return Branch(parent, model.log_marginal(stats), stats)
    if len(stats) == 2:
        nodes = np.concatenate([stats, model.merge(stats[:1], stats[1:])])
    else:
        nodes = node_stats(Tree(parent=parent, n_leaves=len(stats)), model, stats)
    return Branch(parent, model.log_marginal(nodes), nodes[-1:].copy())


def balanced(n: int) -> npt.NDArray[np.int32]:
    """Return the parents of a binary tree of n leaves that is as flat as it can be.

    Examples
    --------
    >>> balanced(4).tolist()
    [4, 4, 5, 5, 6, 6, -1]
    """
    nodes = 2 * n - 1
    parent = n + np.arange(nodes, dtype=np.int32) // 2
    parent[-1] = -1
    return parent


class Assembly:
    """Parents and ``log f`` of a growing tree: branches come children first."""

    def __init__(self, n_leaves: int) -> None:
        self.n_leaves = self.next_id = n_leaves
        self._parent = np.full(2 * n_leaves, -1, dtype=np.int32)
        self._log_f = np.empty(2 * n_leaves)

    def add_rows(self, branch: Branch, rows: IntArray) -> int:
        """Add a branch whose leaves are rows; return its root."""
        self._log_f[rows] = branch.log_f[: len(rows)]
        return self.add(branch, rows)

    def add(self, branch: Branch, ids: IntArray) -> int:
        """Add a branch whose leaves are nodes that are there already; return its root."""
        n_leaves, n_inner = len(ids), len(branch.parent) - len(ids)
        number = np.concatenate([ids, self.next_id + np.arange(n_inner), [-1]])
        self._parent[number[:-1]] = number[branch.parent]
        self._log_f[self.next_id : self.next_id + n_inner] = branch.log_f[n_leaves:]
        self.next_id += n_inner
        return int(number[-2])

    def tree(self, mixing: Mixing, weight: FloatArray) -> Tree:
        """Return the scored tree, without statistics."""
        bare = Tree(parent=self._parent[: self.next_id], n_leaves=self.n_leaves)
        return score_nodes(bare, self._log_f[: self.next_id], mixing, weight=weight)


@dataclass
class Frame:
    """The top of a part, waiting for the branches of its ports."""

    parent: npt.NDArray[np.int32]
    ids: IntArray
    stats: list[FloatArray | None]
    waiting: int
    above: Frame | None
    slot: int

    @classmethod
    def on(cls, parent: npt.NDArray[np.int32], above: Frame | None, slot: int) -> Frame:
        """Return a frame for a top."""
        n = n_ports_of(parent)
        return cls(parent, np.empty(n, dtype=np.intp), [None] * n, n, above, slot)


def deliver(
    assembly: Assembly,
    model: ClusterModel,
    above: Frame | None,
    slot: int,
    root: int,
    stats: FloatArray,
) -> None:
    """Hand a finished branch to the top that waits for it, and a full top further up."""
    while above is not None:
        above.ids[slot] = root
        above.stats[slot] = stats
        above.waiting -= 1
        if above.waiting:
            return
        branch = joined(
            model, above.parent, np.concatenate([s for s in above.stats if s is not None])
        )
        above.stats = []  # they are in the branch
        root, stats = assembly.add(branch, above.ids), branch.stats
        slot, above = above.slot, above.above


def n_ports_of(parent: npt.NDArray[np.int32]) -> int:
    """Return the number of leaves of a top."""
    return len(parent) - len(np.unique(parent[parent >= 0]))
