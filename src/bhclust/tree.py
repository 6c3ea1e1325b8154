"""`Tree`: a tree or forest as flat, read-only arrays.

Leaves are nodes 0 … n_leaves − 1 and every parent has a higher number than its children, so an
upward pass is a loop over ``range(n_nodes)`` and a downward pass its reverse. Nothing recurses:
a chain of 100,000 leaves is an ordinary tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FloatArray,
    IntArray,
    check_count,
    check_heights,
    check_leaf_names,
    check_log_odds,
    check_no_single_child,
    check_topology,
    check_weights,
    listed,
)

if TYPE_CHECKING:
    from os import PathLike

ParentArray = npt.NDArray[np.int32]
CountArray = npt.NDArray[np.int64]
_Scalar = TypeVar("_Scalar", bound=np.generic)

#: the arrays of a tree with one entry a node, `parent` aside
NODE_ARRAYS = ("height", "log_odds", "log_evidence", "log_marginal", "stats", "weight")


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """A tree of any arity, or a forest, with what is known about each node.

    Arrays are made read-only. An array that already is read-only is taken over without a copy.

    Parameters
    ----------
    parent : array of int, shape (n_nodes,)
        Parent of each node, −1 at a root. Leaves come first and ``parent[i] > i``.
    n_leaves : int
        Leaves are nodes 0 … n_leaves − 1.
    height : array of float, shape (n_nodes,), optional
        0 at leaves, never falling from child to parent. By default the number of levels above
        the deepest leaf below.
    log_odds : array of float, shape (n_nodes,), optional
        log r/(1−r), where r is the probability that a node is one cluster given that it is not
        split above; +inf at leaves.
    log_evidence : array of float, shape (n_nodes,), optional
        log p(D_k | T_k), the evidence of the subtree below each node.
    log_marginal : array of float, shape (n_nodes,), optional
        log f(D_k), the evidence of one cluster at each node.
    stats : array of float, shape (n_nodes, n_stats), optional
        The model's statistics of each node.
    leaf_names : sequence of str, optional
        One name a leaf.
    weight : array of float, shape (n_nodes,), optional
        Total multiplicity of the leaves below each node; by default `size`.

    Examples
    --------
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
    >>> tree
    <Tree: 4 leaves, 7 nodes, binary, height 2>
    >>> tree.children(6).tolist(), tree.leaves(5).tolist(), tree.mrca(0, 1)
    ([4, 5], [2, 3], 4)
    """

    parent: ParentArray
    n_leaves: int
    height: FloatArray = None  # type: ignore[assignment]  # filled in __post_init__
    log_odds: FloatArray | None = None
    log_evidence: FloatArray | None = None
    log_marginal: FloatArray | None = None
    stats: FloatArray | None = None
    leaf_names: tuple[str, ...] | None = None
    weight: FloatArray = None  # type: ignore[assignment]  # filled in __post_init__

    def __post_init__(self) -> None:
        parent = _parent_array(self.parent)
        n_leaves = check_count(self.n_leaves, name="n_leaves", owner="Tree", highest=len(parent))
        self._assign(parent=parent, n_leaves=n_leaves)
        check_topology(parent, n_leaves)
        n_nodes = len(parent)
        given: dict[str, Any] = {
            "height": _levels(parent) if self.height is None else self.height,
            "weight": self.size if self.weight is None else self.weight,
            "log_odds": self.log_odds,
            "log_evidence": self.log_evidence,
            "log_marginal": self.log_marginal,
        }
        for name, value in given.items():
            if value is not None:
                self._assign(**{name: _float_array(value, (n_nodes,), name)})
        if self.stats is not None:
            self._assign(stats=_float_array(self.stats, (n_nodes, None), "stats"))
        if self.leaf_names is not None:
            self._assign(leaf_names=check_leaf_names(self.leaf_names, n_leaves))
        _check_values(self)

    def _assign(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writable; going through the constructor makes them read-only again.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        leaves = "1 leaf" if self.n_leaves == 1 else f"{self.n_leaves} leaves"
        nodes = "1 node" if self.n_nodes == 1 else f"{self.n_nodes} nodes"
        shape = "binary" if self.is_binary else "rose"
        roots = "" if len(self.roots) == 1 else f", {len(self.roots)} roots"
        return f"<Tree: {leaves}, {nodes}, {shape}{roots}, height {self.height.max():.4g}>"

    def validate(self) -> None:
        """Raise `BhclustError` with the first broken invariant; the constructor calls the same.

        Examples
        --------
        >>> Tree([2, 2, -1], n_leaves=2).validate()
        """
        check_topology(self.parent, self.n_leaves)
        _check_values(self)

    # -- derived arrays, computed once on demand -------------------------------------------------

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.parent)

    @cached_property
    def size(self) -> CountArray:
        """Number of leaves below each node, 1 for a leaf; shape ``(n_nodes,)``."""
        size = [1] * self.n_leaves + [0] * (self.n_nodes - self.n_leaves)
        for node, above in enumerate(self.parent.tolist()):
            if above >= 0:
                size[above] += size[node]
        return _read_only(np.array(size, dtype=np.int64))

    @cached_property
    def roots(self) -> IntArray:
        """The nodes without a parent, in increasing order."""
        return _read_only(np.flatnonzero(self.parent == -1))

    @cached_property
    def child_ptr(self) -> IntArray:
        """Row pointers of the children: see `child_index`; shape ``(n_nodes + 1,)``."""
        counts = np.bincount(self.parent[self.parent >= 0], minlength=self.n_nodes)
        return _read_only(np.concatenate([[0], np.cumsum(counts)]).astype(np.intp))

    @cached_property
    def child_index(self) -> IntArray:
        """Children of node i, increasing: ``child_index[child_ptr[i]:child_ptr[i + 1]]``."""
        # A stable sort by parent puts the roots (parent −1) first, then each node's children.
        order = np.argsort(self.parent, kind="stable")
        return _read_only(order[len(self.roots) :])

    @cached_property
    def is_binary(self) -> bool:
        """Whether every internal node has exactly two children."""
        return self.n_nodes - len(self.roots) == 2 * (self.n_nodes - self.n_leaves)

    @cached_property
    def depth(self) -> IntArray:
        """Number of edges between each node and its root; shape ``(n_nodes,)``."""
        return _read_only(_sum_to_root(self.parent, (self.parent >= 0).astype(np.intp)))

    @cached_property
    def leaf_start(self) -> IntArray:
        """Where the leaves of each node begin in `leaf_order`; they are ``size`` in a row."""
        offset = np.empty(self.n_nodes, dtype=np.intp)
        size_of_root = self.size[self.roots]
        offset[self.roots] = np.cumsum(size_of_root) - size_of_root
        size_of_child = self.size[self.child_index]
        before = np.cumsum(size_of_child) - size_of_child
        first_sibling = self.child_ptr[self.parent[self.child_index]]
        offset[self.child_index] = before - before[first_sibling]
        return _sum_to_root(self.parent, offset)

    @cached_property
    def _highest_between(self) -> list[IntArray]:
        """Table for `mrca`: entry ``[k][p]`` is the highest of the gaps p … p + 2**k − 1.

        Gap p lies between the leaves at places p and p + 1 of `leaf_order`, and holds their most
        recent common ancestor (``n_nodes`` when there is none). Ancestors have higher numbers
        than their descendants, so the ancestor of two far leaves is the maximum between them.
        """
        gaps = np.full(self.n_leaves, self.n_nodes, dtype=np.intp)
        # Every child except the first begins right after a gap that its parent closes. The first
        # one would write to the gap on its left, so it is left out.
        is_first = np.zeros(len(self.child_index), dtype=bool)
        is_first[self.child_ptr[self.n_leaves : -1]] = True
        later = self.child_index[~is_first]
        gaps[self.leaf_start[later] - 1] = self.parent[later]
        table = [gaps[:-1]]
        while 2 ** len(table) < self.n_leaves:
            half = 2 ** (len(table) - 1)
            table.append(np.maximum(table[-1][:-half], table[-1][half:]))
        return table

    # -- questions -------------------------------------------------------------------------------

    def children(self, i: int) -> IntArray:
        """Return the children of node ``i`` in increasing order; empty for a leaf.

        Examples
        --------
        >>> Tree([3, 3, 4, 4, -1], n_leaves=3).children(4).tolist()
        [2, 3]
        """
        i = self._check_node(i, "Tree.children")
        return self.child_index[self.child_ptr[i] : self.child_ptr[i + 1]]

    def leaves(self, i: int | None = None) -> IntArray:
        """Return the leaves below node ``i`` in increasing order; all leaves for ``None``.

        Examples
        --------
        >>> Tree([4, 3, 3, 4, -1], n_leaves=3).leaves(3).tolist()
        [1, 2]
        """
        if i is None:
            return np.arange(self.n_leaves)
        i = self._check_node(i, "Tree.leaves")
        return np.sort(self._leaf_order[self.leaf_start[i] : self.leaf_start[i] + self.size[i]])

    def leaf_order(self) -> IntArray:
        """Return the leaves from left to right, so that every node's leaves stand together.

        Children are ordered by node number.

        Examples
        --------
        >>> Tree([3, 4, 3, 4, -1], n_leaves=3).leaf_order().tolist()
        [1, 0, 2]
        """
        return self._leaf_order

    @cached_property
    def _leaf_order(self) -> IntArray:
        order = np.empty(self.n_leaves, dtype=np.intp)
        order[self.leaf_start[: self.n_leaves]] = np.arange(self.n_leaves)
        return _read_only(order)

    @overload
    def mrca(self, i: SupportsIndex, j: SupportsIndex) -> int: ...

    @overload
    def mrca(self, i: npt.ArrayLike, j: npt.ArrayLike) -> IntArray: ...

    def mrca(self, i: Any, j: Any) -> int | IntArray:
        """Return the most recent common ancestor of nodes ``i`` and ``j``.

        Parameters
        ----------
        i, j : int or array of int
            Nodes, leaves or internal; arrays are taken in pairs and broadcast.

        Returns
        -------
        int or array of int
            −1 where two nodes are below different roots. A node is an ancestor of itself.

        Examples
        --------
        >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
        >>> tree.mrca(0, 3)
        6
        >>> tree.mrca([0, 2, 5], [1, 2, 3]).tolist()
        [4, 2, 5]
        """
        first, second = np.broadcast_arrays(self._check_nodes(i, "i"), self._check_nodes(j, "j"))
        start, end = self.leaf_start, self.leaf_start + self.size
        left = np.minimum(start[first], start[second])
        right = np.maximum(end[first], end[second]) - 1
        answer = first.copy()
        # One leaf has no gap inside; every other node is the ancestor of its outermost leaves.
        inside = np.flatnonzero(right > left)
        gaps = (right - left).ravel()[inside]
        exponent = np.frexp(gaps.astype(np.float64))[1] - 1
        for k in np.unique(exponent):
            chosen = inside[exponent == k]
            table = self._highest_between[k]
            from_left = table[left.ravel()[chosen]]
            from_right = table[right.ravel()[chosen] - 2**k]
            answer.flat[chosen] = np.maximum(from_left, from_right)
        answer[answer == self.n_nodes] = -1
        return int(answer) if answer.ndim == 0 else answer

    def log10_partitions(self) -> float:
        """Return log10 of the number of partitions of the leaves that agree with the tree.

        A partition agrees with the tree if each of its clusters is all the leaves of one node:
        a leaf has one, and an internal node one more than the product over its children.

        Examples
        --------
        >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
        >>> round(10 ** tree.log10_partitions())  # 1 + 2 · 2
        5
        """
        log_product = [0.0] * self.n_nodes
        total = 0.0
        for node, above in enumerate(self.parent.tolist()):
            below = log_product[node]
            # log(1 + e^x) without overflow: x ≥ 0 always, since every count is at least one.
            log_count = below + math.log1p(math.exp(-below)) if node >= self.n_leaves else 0.0
            if above >= 0:
                log_product[above] += log_count
            else:
                total += log_count
        return total / math.log(10.0)

    def subtree(self, i: int) -> Tree:
        """Return the tree below node ``i``, with everything that is known about its nodes.

        Nodes keep their order, so leaf k of the result is the k-th of ``leaves(i)``. Heights are
        those of the whole tree.

        Examples
        --------
        >>> tree = Tree([4, 3, 3, 4, -1], n_leaves=3, leaf_names=("a", "b", "c"))
        >>> tree.subtree(3).leaf_names
        ('b', 'c')
        """
        i = self._check_node(i, "Tree.subtree")
        start, size = self.leaf_start, self.size
        inside = (start >= start[i]) & (start + size <= start[i] + size[i])
        nodes = np.flatnonzero(inside)
        number = np.full(self.n_nodes, -1, dtype=np.int32)
        number[nodes] = np.arange(len(nodes))
        parent = number[self.parent[nodes]]
        parent[-1] = -1

        carried = {name: getattr(self, name) for name in NODE_ARRAYS}
        carried = {k: None if values is None else values[nodes] for k, values in carried.items()}
        names = self.leaf_names
        if names is not None:
            names = tuple(names[leaf] for leaf in nodes[: size[i]].tolist())
        return Tree(parent, int(size[i]), leaf_names=names, **carried)

    @classmethod
    def from_parent(
        cls,
        parent: npt.ArrayLike,
        *,
        height: npt.ArrayLike | None = None,
        log_odds: npt.ArrayLike | None = None,
        log_evidence: npt.ArrayLike | None = None,
        log_marginal: npt.ArrayLike | None = None,
        stats: npt.ArrayLike | None = None,
        leaf_names: Sequence[str] | None = None,
        weight: npt.ArrayLike | None = None,
    ) -> Tree:
        """Make a tree from parents whose internal nodes are numbered in any order.

        Leaves must come first. If some parent has a lower number than its child, internal nodes
        are numbered anew by level, then by old number, and all arrays follow.

        Examples
        --------
        >>> Tree.from_parent([4, 4, 3, -1, 3]).parent.tolist()  # the root was node 3
        [3, 3, 4, 4, -1]
        """
        above = _parent_array(parent)
        has_child = np.zeros(len(above), dtype=bool)
        has_child[above[above >= 0]] = True
        n_leaves = len(above) - int(has_child.sum())
        order = _order_upwards(above, has_child)

        def moved(values: npt.ArrayLike | None) -> Any:
            if values is None:
                return None
            array = np.asarray(values)
            # A wrong length is left for the constructor to name.
            return array[order] if array.ndim and len(array) == len(order) else array

        number = np.empty(len(above) + 1, dtype=np.int32)
        number[order] = np.arange(len(above))
        number[-1] = -1  # where index −1, the parent of a root, looks
        return cls(
            number[above[order]],
            n_leaves,
            height=moved(height),
            log_odds=moved(log_odds),
            log_evidence=moved(log_evidence),
            log_marginal=moved(log_marginal),
            stats=moved(stats),
            leaf_names=None if leaf_names is None else tuple(leaf_names),
            weight=moved(weight),
        )

    # -- façade: the logic lives in `posterior`, `io`, `bridges` and `viewer` --------------------

    def cut(
        self,
        n_clusters: int | None = None,
        threshold: float = 0.5,
        method: Literal["map", "threshold"] = "map",
    ) -> IntArray:
        """Return a cluster label for each leaf; see `bhclust.posterior.cut`."""
        from bhclust import posterior

        return posterior.cut(self, n_clusters=n_clusters, threshold=threshold, method=method)

    def to_linkage(self) -> FloatArray:
        """Return SciPy's linkage matrix; see `bhclust.io.to_linkage`."""
        from bhclust import io

        return io.to_linkage(self)

    @staticmethod
    def from_linkage(
        Z: npt.ArrayLike,
        leaf_names: Sequence[str] | None = None,
        *,
        collapse_equal_heights: bool = False,
    ) -> Tree:
        """Make a tree from SciPy's linkage matrix; see `bhclust.io.from_linkage`."""
        from bhclust import io

        return io.from_linkage(Z, leaf_names, collapse_equal_heights=collapse_equal_heights)

    def to_newick(
        self,
        *,
        support: bool | npt.ArrayLike = True,
        branch_lengths: bool = True,
        comments: bool = True,
    ) -> str:
        """Return the tree as Newick text; see `bhclust.io.to_newick`."""
        from bhclust import io

        return io.to_newick(self, support=support, branch_lengths=branch_lengths, comments=comments)

    @staticmethod
    def from_newick(text: str) -> Tree:
        """Make a tree from Newick text; see `bhclust.io.from_newick`."""
        from bhclust import io

        return io.from_newick(text)

    def to_nexus(self, *, support: bool | npt.ArrayLike = True) -> str:
        """Return the tree as Nexus text; see `bhclust.io.to_nexus`."""
        from bhclust import io

        return io.to_nexus(self, support=support)

    def to_json(self, *, stats: bool = False, indent: int | None = None) -> str:
        """Return the tree as JSON text; see `bhclust.io.to_json`."""
        from bhclust import io

        return io.to_json(self, stats=stats, indent=indent)

    @staticmethod
    def from_json(text: str) -> Tree:
        """Make a tree from JSON text; see `bhclust.io.from_json`."""
        from bhclust import io

        return io.from_json(text)

    def to_networkx(self) -> Any:
        """Return the tree as a graph of networkx; see `bhclust.bridges.to_networkx`."""
        from bhclust import bridges

        return bridges.to_networkx(self)

    def to_ete(self) -> Any:
        """Return the tree as one of ETE 4; see `bhclust.bridges.to_ete`."""
        from bhclust import bridges

        return bridges.to_ete(self)

    def to_skbio(self) -> Any:
        """Return the tree as one of scikit-bio; see `bhclust.bridges.to_skbio`."""
        from bhclust import bridges

        return bridges.to_skbio(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the tree to a file; see `bhclust.io.save`."""
        from bhclust import io

        io.save(path, self)

    @staticmethod
    def load(path: str | PathLike[str]) -> Tree:
        """Read a tree from a file; see `bhclust.io.load`."""
        from bhclust import io

        return io.load(path)

    def _repr_html_(self) -> str:
        """Return a small picture for notebooks; see `bhclust.viewer.tree_html`."""
        from bhclust import viewer

        return viewer.tree_html(self)

    # -- checks ----------------------------------------------------------------------------------

    def _check_node(self, i: object, owner: str) -> int:
        return check_count(i, name="i", owner=owner, lowest=0, highest=self.n_nodes - 1)

    def _check_nodes(self, nodes: object, name: str) -> IntArray:
        array = np.asarray(nodes)
        whole = array.dtype.kind in "iu" or array.size == 0
        if not whole or (array < 0).any() or (array >= self.n_nodes).any():
            raise BhclustError(
                f"Tree.mrca: {name} must hold node numbers from 0 to {self.n_nodes - 1}, "
                f"got {nodes!r}."
            )
        return array.astype(np.intp)


def _read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.setflags(write=False)
    return array


def _parent_array(parent: object) -> ParentArray:
    """Return parents as a read-only int32 array after a check of type and range."""
    array = np.asarray(parent)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise BhclustError(
            "Tree: parent must be a one-dimensional array of whole numbers with at least one "
            f"node, got an array of shape {array.shape} and type {array.dtype}."
        )
    bad = np.flatnonzero((array < -1) | (array >= len(array)))
    if bad.size:
        raise BhclustError(
            f"Tree: parent must hold node numbers from 0 to {len(array) - 1}, or -1 at a root; "
            f"parent[{bad[0]}] is {array[bad[0]]}."
        )
    if array.dtype == np.int32 and not array.flags.writeable:
        return array
    return _read_only(np.array(array, dtype=np.int32))


def _float_array(value: object, shape: tuple[int | None, ...], name: str) -> FloatArray:
    """Return a read-only float64 array; ``None`` in the shape stands for any length."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BhclustError(f"Tree: {name} must be an array of numbers.") from None
    fits = array.ndim == len(shape) and all(
        wanted is None or wanted == got for wanted, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        rule = "one value a node" if len(shape) == 1 else "one row a node"
        raise BhclustError(
            f"Tree: {name} must have {rule} ({shape[0]} nodes), got an array of shape "
            f"{array.shape}."
        )
    if array is value and not array.flags.writeable:
        return array
    return _read_only(np.array(array))


def _check_values(tree: Tree) -> None:
    check_heights(tree.height, tree.parent, tree.n_leaves)
    check_weights(tree.weight, tree.parent, tree.n_leaves)
    if tree.log_odds is not None:
        check_log_odds(tree.log_odds, tree.n_leaves)


def _levels(parent: ParentArray) -> FloatArray:
    """Return the number of levels above the deepest leaf below each node."""
    level = [0] * len(parent)
    for node, above in enumerate(parent.tolist()):
        if above >= 0 and level[above] <= level[node]:
            level[above] = level[node] + 1
    return np.array(level, dtype=np.float64)


def _sum_to_root(parent: ParentArray, value: IntArray) -> IntArray:
    """Return the sum of ``value`` over each node and its ancestors.

    Each round doubles the stretch that a node has summed, so a chain takes log2(depth) rounds.
    """
    total = value.copy()
    jump = parent.copy()
    active = np.flatnonzero(jump >= 0)
    while active.size:
        target = jump[active]
        total[active] += total[target]
        jump[active] = jump[target]
        active = active[jump[active] >= 0]
    return total


def _order_upwards(parent: ParentArray, has_child: npt.NDArray[np.bool_]) -> IntArray:
    """Return the old numbers of the nodes in an order that puts parents after children."""
    n_leaves = len(parent) - int(has_child.sum())
    late = np.flatnonzero(~has_child[n_leaves:]) + n_leaves
    above = parent.tolist()
    waiting = np.bincount(parent[parent >= 0], minlength=len(parent))
    check_no_single_child(waiting)
    level = [0] * len(parent)
    left = waiting.tolist()
    ready = np.flatnonzero(~has_child).tolist()
    for node in ready:  # grows while it runs: a node joins once all its children are done
        over = above[node]
        if over >= 0:
            level[over] = level[node] + 1  # levels come in rising order: the last child counts
            left[over] -= 1
            if left[over] == 0:
                ready.append(over)
    if len(ready) < len(parent):
        stuck = np.flatnonzero(np.array(left) > 0).tolist()
        raise BhclustError(
            f"Tree.from_parent: parent has a cycle through node(s) {listed(stuck)}: "
            "following parents must end at -1."
        )
    if late.size:
        raise BhclustError(
            f"Tree.from_parent: leaves must come first, but node {late[0]} has no children and "
            f"there are {n_leaves} leaves: number the leaves 0 to {n_leaves - 1}."
        )
    if (parent[parent >= 0] > np.flatnonzero(parent >= 0)).all():
        return np.arange(len(parent))
    return np.lexsort((np.arange(len(parent)), np.array(level)))
