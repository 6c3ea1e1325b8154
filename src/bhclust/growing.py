"""Trees that grow: items are inserted one by one, and the places around them are repaired.

An item goes down the tree in three steps.

1. *The cluster.* Nodes that are more probably split than one cluster are opened, the one that
   predicts the item best first, until the clusters below them have been scored by
   ``log n_k + log f(x | D_k)`` or a budget is used up. The best one is the target.
2. *The path.* Below the target the item follows the child that is most like it, all children
   taken at the weight of the lightest one: otherwise the largest would always win, and the tree
   would become a chain.
3. *The place.* On the way back, every node of the path is asked whether the item should become
   its sibling (join), its child (absorb, in rose trees), or stay further down. Evidence rises with
   the evidence of any subtree, so the best place of the whole path is found in one pass.

Then repairs that raise the evidence: nodes dissolve into their parents (rose trees), children
change places with their aunts (rotate), and whenever the item's cluster has doubled, it may move
beside another cluster (graft), as in PERCH (Kobren et al. 2017) and GRINCH (Monath et al. 2019),
but judged by the evidence of the whole tree.

When the tree is asked for, its clusters are put together anew by a greedy search: how clusters that
are far apart hang together hardly counts in the evidence, so insertions leave related ones far from
each other. This never lowers the evidence.

`GrowingTree` is the reference and serves every model; `CompiledGrowingTree` is the same for
`Bernoulli` and `Categorical`, a hundred times as fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bhclust._coordinates import Prior
from bhclust._growing_any import (
    MOST_CHILDREN,
    MOST_SEEN,
    GrowingTree,
    Grown,
    Repairs,
    collapses,
    finished,
    node_numbers,
    resolved,
    rows_at_a_time,
)
from bhclust._kernels import grow
from bhclust._kernels.compile import announced_compilation
from bhclust._kernels.nodes import mixing_code
from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, Categorical
from bhclust.models._columnwise import log_rising
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

# Counts below come from a table: 400 kB for 64 binary columns, which stays in the cache.
_TABLE_LENGTH = 256


class Growing(Protocol):
    """A tree that takes more items."""

    @property
    def n_leaves(self) -> int:
        """Number of items so far."""

    @property
    def value(self) -> float:
        """The evidence that repairs raise: ``log d + log p`` at the root."""

    @property
    def repairs(self) -> Repairs:
        """What was repaired so far."""

    def insert(self, X: Any) -> None:
        """Insert encoded rows, in their order."""

    def tree(self) -> Tree:
        """Return the tree, tidied up, with all node quantities computed anew."""


def make_growing(tree: Tree | None, prior: Prior, *, rose: bool, repairs: bool = True) -> Growing:
    """Return a tree that grows, from a scored tree or from nothing.

    Parameters
    ----------
    tree : Tree, optional
        A scored tree with statistics and one root.
    prior : Prior
        Resolved model and mixing prior; they stay as they are.
    rose : bool
        Whether nodes may have any number of children.
    repairs : bool
        Whether to repair the tree around each new item.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=float)
    >>> prior = Prior(Bernoulli(a=0.5, b=0.5).resolve(X), DirichletProcess(1.0))
    >>> growing = make_growing(None, prior, rose=False)
    >>> growing.insert(X)
    >>> growing.tree().cut().tolist()
    [0, 1, 0, 1]
    """
    if tree is not None and (tree.stats is None or len(tree.roots) != 1):
        raise BhclustError(
            "a tree grows only if it has one root and the statistics of its nodes are there (they "
            "are left out of a randomised tree that is too large): fit on fewer rows first."
        )
    if tree is not None and collapses(rose, prior.mixing):
        tree = resolved(tree, prior)
    known = isinstance(prior.mixing, (DirichletProcess, Constant, Rose))
    if type(prior.model) in (Bernoulli, Categorical) and known:
        return CompiledGrowingTree(tree, prior, rose=rose, repairs=repairs)
    return GrowingTree(tree, prior, rose=rose, repairs=repairs)


class CompiledGrowingTree:
    """A growing tree of zeros and ones or categories; see `make_growing`."""

    def __init__(
        self, tree: Tree | None, prior: Prior, *, rose: bool, repairs: bool = True
    ) -> None:
        self._prior, self._rose, self._repair = prior, rose, repairs
        self._start, self._group = _counts_of(prior.model)
        self._totals = np.bincount(self._group, self._start)
        both = np.concatenate([self._start, self._totals])
        self._table = log_rising(both[:, None], np.arange(float(_TABLE_LENGTH)))
        self._counters = np.zeros(6, dtype=np.int64)
        self._counters[grow.ROOT] = -1
        self._leaf_weight = np.ones(0)
        self._names: tuple[str, ...] | None = None
        self._n_leaves = 0
        width = len(self._start) + len(self._totals)
        self._links = np.zeros((0, 6), dtype=np.int64)
        self._numbers: FloatArray = np.zeros((0, 4))
        self._counts: FloatArray = np.zeros((0, width))
        self._free = np.zeros(0, dtype=np.int64)
        self._reserve(64)
        if tree is not None:
            self._load(tree)

    @property
    def n_leaves(self) -> int:
        """Number of items so far."""
        return self._n_leaves

    @property
    def value(self) -> float:
        """The evidence that repairs raise: ``log d + log p`` at the root."""
        return float(self._numbers[self._counters[grow.ROOT], grow.VALUE])

    @property
    def repairs(self) -> Repairs:
        """What was repaired so far."""
        return Repairs(*(int(count) for count in self._counters[grow.N_ROTATIONS :]))

    def insert(self, X: Any) -> None:
        """Insert encoded rows, in their order."""
        n = rows_at_a_time(len(self._start))
        for start in range(0, X.shape[0], n):
            self._insert(self._codes(self._prior.model.suffstats(X[start : start + n])))
        self._names = None

    def _insert(self, codes: npt.NDArray[np.int64]) -> None:
        # A leaf, a join and a graft for each item, and one row to work in.
        self._reserve(int(self._counters[grow.NEXT_ID]) + 3 * len(codes) + 1)
        code, parameter = mixing_code(self._prior.mixing)
        seen = (
            np.empty(MOST_SEEN, dtype=np.int64),
            np.empty(MOST_SEEN),
            np.empty(MOST_SEEN),
            np.zeros(MOST_SEEN, dtype=np.bool_),
        )
        capacity = len(self._links)
        with announced_compilation():
            grow.insert_items(  # type: ignore[no-untyped-call]
                codes,
                self._n_leaves,
                self._links,
                self._numbers,
                self._counts,
                (self._start, self._table),
                self._totals,
                code,
                parameter,
                self._rose,
                collapses(self._rose, self._prior.mixing),
                self._repair,
                MOST_CHILDREN,
                self._counters,
                self._free,
                np.zeros(capacity, dtype=np.bool_),
                np.empty(capacity, dtype=np.int64),
                np.empty(capacity),
                seen,
            )
        self._n_leaves += len(codes)
        self._leaf_weight = np.append(self._leaf_weight, np.ones(len(codes)))

    def tree(self) -> Tree:
        """Return the tree, tidied up, with all node quantities computed anew."""
        return finished(self.grown(), self._prior, rose=self._rose)

    def grown(self) -> Grown:
        """Return the tree as it is."""
        rows = self._links[:, grow.ROW]
        used = np.flatnonzero(rows >= 0)
        leaves = np.empty(self._n_leaves, dtype=np.intp)
        leaves[rows[used]] = used
        in_use = self._counters[grow.NEXT_ID] - self._counters[grow.N_FREE]
        n_inner = int(in_use) - self._n_leaves
        root = int(self._counters[grow.ROOT])
        parent = grow.parents_of(  # type: ignore[no-untyped-call]
            self._links, root, self._n_leaves, n_inner
        )
        stats = np.ascontiguousarray(self._counts[leaves, : len(self._start)])
        return Grown(parent, stats, self._leaf_weight, self._names)

    def _codes(self, stats: FloatArray) -> npt.NDArray[np.int64]:
        """Return the category of each column as its number among the statistics."""
        codes = np.full((len(stats), len(self._totals)), -1, dtype=np.int64)
        rows, positions = np.nonzero(stats)
        codes[rows, self._group[positions]] = positions
        return codes

    def _reserve(self, n_nodes: int) -> None:
        """Make room for so many nodes, and some more."""
        known = len(self._links)
        if n_nodes <= known:
            return
        capacity = max(n_nodes, 3 * known // 2)
        links = np.full((capacity, 6), -1, dtype=np.int64)
        numbers = np.zeros((capacity, 4))
        counts = np.zeros((capacity, len(self._start) + len(self._totals)))
        free = np.zeros(capacity, dtype=np.int64)
        links[:known], numbers[:known] = self._links, self._numbers
        counts[:known], free[:known] = self._counts, self._free
        self._links, self._numbers, self._counts, self._free = links, numbers, counts, free

    def _load(self, tree: Tree) -> None:
        assert tree.stats is not None
        self._reserve(tree.n_nodes + 1)
        n, width = tree.n_nodes, len(self._start)
        links, numbers = self._links, self._numbers
        links[:n, grow.PARENT] = tree.parent
        links[:n, grow.KIDS] = np.diff(tree.child_ptr)
        links[: tree.n_leaves, grow.ROW] = np.arange(tree.n_leaves)
        inner = np.flatnonzero(np.diff(tree.child_ptr))
        links[inner, grow.FIRST] = tree.child_index[tree.child_ptr[inner]]
        order, above = tree.child_index, tree.parent[tree.child_index]
        same = np.flatnonzero(above[1:] == above[:-1])
        links[order[same], grow.NEXT] = order[same + 1]
        links[order[same + 1], grow.PREVIOUS] = order[same]
        self._counts[:n, :width] = tree.stats
        for j in range(len(self._totals)):
            self._counts[:n, width + j] = tree.stats[:, self._group == j].sum(axis=1)
        numbers[:n] = node_numbers(tree, self._prior.mixing)
        self._counters[grow.ROOT] = tree.roots[0]
        self._counters[grow.NEXT_ID] = n
        self._n_leaves = tree.n_leaves
        self._leaf_weight = tree.weight[: tree.n_leaves].copy()
        self._names = tree.leaf_names


class _Counts(NamedTuple):
    """Prior count of each category and the column that it belongs to."""

    start: FloatArray
    group: IntArray


def _counts_of(model: ClusterModel) -> _Counts:
    if isinstance(model, Bernoulli):
        a, b = model.hyperparameter("a"), model.hyperparameter("b")
        return _Counts(np.concatenate([a, b]), np.tile(np.arange(len(a)), 2))
    assert isinstance(model, Categorical)
    sizes = np.asarray(model.n_categories)
    return _Counts(model.hyperparameter("concentration"), np.arange(len(sizes)).repeat(sizes))
