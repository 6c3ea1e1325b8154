"""How well a tree agrees with known classes of its leaves.

All scores are exact, count every leaf once (whatever its weight) and take trees of any arity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Literal, cast

import numpy as np

from bhclust._validation import BhclustError, check_choice
from bhclust.tree import Tree

#: number of leaves of each class below a node
_ClassCounts = dict[int, int]


def dendrogram_purity(
    tree: Tree, y: Iterable[Hashable], average: Literal["leaf", "pair"] = "leaf"
) -> float:
    """Return the dendrogram purity of a tree, a number in (0, 1].

    Two leaves of one class are drawn; the purity of the pair is the share of their class among
    the leaves below their most recent common ancestor. The score is its expectation, computed
    exactly. It is 1 if and only if each class of two or more is all the leaves of one node.

    Parameters
    ----------
    tree : Tree
        The tree; a forest will do if every class lies below one root.
    y : iterable of hashable
        The class of each leaf, none missing. Classes with one member form no pair and are left
        out.
    average : {"leaf", "pair"}
        How a pair is drawn. ``"leaf"`` (Heller & Ghahramani 2005): a leaf, each alike, then
        another one of its class. ``"pair"``: a pair of one class, each alike, so that big classes
        weigh more.

    Returns
    -------
    float

    Examples
    --------
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
    >>> dendrogram_purity(tree, ["a", "a", "b", "b"])
    1.0
    >>> dendrogram_purity(tree, ["a", "b", "a", "b"])
    0.5
    """
    check_choice(average, ("leaf", "pair"), name="average", owner="dendrogram_purity")
    classes = _class_codes(tree, y, "dendrogram_purity")
    paired = {code: count for code, count in Counter(classes).items() if count > 1}
    if not paired:
        raise BhclustError(
            "dendrogram_purity: y must have a class with at least two leaves, but every leaf is "
            "the only one of its class."
        )
    weight = _pair_weights(paired, average)
    children, first_child = tree.child_index.tolist(), tree.child_ptr.tolist()
    size = tree.size.tolist()
    counts: list[_ClassCounts] = [
        {code: 1} if code in paired else _ClassCounts() for code in classes
    ]
    purity = 0.0
    for node in range(tree.n_leaves, tree.n_nodes):
        below = [counts[child] for child in children[first_child[node] : first_child[node + 1]]]
        for child in children[first_child[node] : first_child[node + 1]]:
            counts[child] = _NOTHING
        merged, pairs = _merge(below)
        counts.append(merged)
        purity += sum(n * merged[code] * weight[code] for code, n in pairs.items()) / size[node]
    _check_one_root_a_class(tree, [counts[root] for root in tree.roots.tolist()], paired)
    return purity


def _pair_weights(paired: _ClassCounts, average: str) -> dict[int, float]:
    """Return the probability with which each pair of each class is drawn."""
    if average == "pair":
        n_pairs = sum(count * (count - 1) // 2 for count in paired.values())
        return dict.fromkeys(paired, 1 / n_pairs)
    # A pair comes up from either of its leaves.
    n_leaves = sum(paired.values())
    return {code: 2 / (n_leaves * (count - 1)) for code, count in paired.items()}


# Stands in for the counts of a node that were handed to its parent, so that memory is freed.
_NOTHING: _ClassCounts = {}


def _merge(below: list[_ClassCounts]) -> tuple[_ClassCounts, _ClassCounts]:
    """Return counts of the union, and of each class the pairs of leaves that meet here.

    The largest of the maps takes in the others, so over a whole tree every entry moves at most
    log2(n) times.
    """
    largest = max(range(len(below)), key=lambda place: len(below[place]))
    merged = below[largest]
    pairs: _ClassCounts = {}
    for place, smaller in enumerate(below):
        if place != largest:
            for code, count in smaller.items():
                before = merged.get(code, 0)
                if before:
                    pairs[code] = pairs.get(code, 0) + before * count
                merged[code] = before + count
    return merged, pairs


def _check_one_root_a_class(tree: Tree, of_root: list[_ClassCounts], total: _ClassCounts) -> None:
    whole = all(count == total[code] for counts in of_root for code, count in counts.items())
    if not whole:
        raise BhclustError(
            f"dendrogram_purity: two leaves of one class are below different roots of this forest "
            f"({len(tree.roots)} roots) and have no common ancestor: join the roots under one "
            "node, or score each tree.subtree(root)."
        )


def subtree_score(tree: Tree, y: Iterable[Hashable]) -> float:
    """Return the share of possible pure merges that a tree has, a number in [0, 1].

    For a binary tree this is the number of internal nodes with leaves of one class only, divided
    by n − number of classes (Teh, Daumé & Roy 2008). A node with m children counts as the m − 1
    merges of any binary tree that refines it. The score is 1 if and only if the leaves of each
    class are all the leaves of one node.

    Parameters
    ----------
    tree : Tree
        A tree or forest.
    y : iterable of hashable
        The class of each leaf, none missing.

    Returns
    -------
    float

    Examples
    --------
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
    >>> subtree_score(tree, [0, 0, 1, 1]), subtree_score(tree, [0, 0, 1, 2])
    (1.0, 1.0)
    >>> subtree_score(tree, [0, 0, 1, 0])
    0.5
    """
    classes = _class_codes(tree, y, "subtree_score")
    possible = tree.n_leaves - len(set(classes))
    if possible == 0:
        raise BhclustError(
            "subtree_score: y must have a class with at least two leaves, but every leaf is the "
            "only one of its class."
        )
    unseen, mixed = -1, -2
    shared = classes + [unseen] * (tree.n_nodes - tree.n_leaves)
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            shared[above] = shared[node] if shared[above] in (unseen, shared[node]) else mixed
    pure = np.array(shared[tree.n_leaves :], dtype=np.intp) != mixed
    n_children = np.diff(tree.child_ptr)[tree.n_leaves :]
    return int((n_children[pure] - 1).sum()) / possible


def leave_one_out_accuracy(tree: Tree, y: Iterable[Hashable]) -> float:
    """Return how often a leaf's class is the commonest among its nearest relatives.

    Each leaf in turn is predicted to be of the commonest class among the other leaves below its
    parent. Where k classes are equally common, each is right with probability 1/k, so the score
    is the expected accuracy when ties are broken at random.

    Parameters
    ----------
    tree : Tree
        A tree or forest in which every leaf has a parent.
    y : iterable of hashable
        The class of each leaf, none missing.

    Returns
    -------
    float

    Examples
    --------
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4)
    >>> leave_one_out_accuracy(tree, ["a", "a", "b", "c"])
    0.5
    """
    classes = _class_codes(tree, y, "leave_one_out_accuracy")
    alone = np.flatnonzero(tree.parent[: tree.n_leaves] == -1)
    if alone.size:
        raise BhclustError(
            f"leave_one_out_accuracy: every leaf must have a parent, but leaf {alone[0]} is a "
            "root, with no other leaves to predict it from: leave it out."
        )
    children, first_child = tree.child_index.tolist(), tree.child_ptr.tolist()
    counts: list[_Ranking | None] = [_Ranking(code) for code in classes]
    right = 0.0
    for node in range(tree.n_leaves, tree.n_nodes):
        below = children[first_child[node] : first_child[node + 1]]
        parts = sorted((cast(_Ranking, counts[child]) for child in below), key=len)
        merged = parts.pop()  # the largest takes in the others, as in `_merge`
        for smaller in parts:
            merged.add(smaller)
        counts.append(merged)
        for child in below:
            counts[child] = None
            if child < tree.n_leaves:
                right += merged.chance_without(classes[child])
    return right / tree.n_leaves


class _Ranking:
    """Class counts that know which count is the highest and how many classes have it."""

    __slots__ = ("counts", "highest", "n_classes_with")

    def __init__(self, code: int) -> None:
        self.counts: _ClassCounts = {code: 1}
        self.n_classes_with: dict[int, int] = {1: 1}
        self.highest = 1

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, other: _Ranking) -> None:
        for code, count in other.counts.items():
            before = self.counts.get(code, 0)
            if before:
                self.n_classes_with[before] -= 1
            after = self.counts[code] = before + count
            self.n_classes_with[after] = self.n_classes_with.get(after, 0) + 1
            self.highest = max(self.highest, after)

    def chance_without(self, code: int) -> float:
        """Return the probability that ``code`` is commonest once one of its leaves is gone."""
        if self.counts[code] < self.highest or self.n_classes_with[self.highest] > 1:
            return 0.0
        return 1 / (1 + self.n_classes_with.get(self.highest - 1, 0))


def _class_codes(tree: Tree, y: Iterable[Hashable], owner: str) -> list[int]:
    """Return the classes of the leaves as numbers 0, 1, … in order of appearance."""
    code_of: dict[Any, int] = {}
    try:
        # tolist() turns the scalars of NumPy and pandas into Python's own.
        labels: list[Any] = list(y.tolist() if hasattr(y, "tolist") else y)
        codes = [code_of.setdefault(label, len(code_of)) for label in labels]
    except TypeError:
        raise BhclustError(
            f"{owner}: y must be one-dimensional with one class a leaf, and classes must be "
            "hashable (numbers, strings, tuples)."
        ) from None
    for label, code in code_of.items():
        if _is_missing(label):
            raise BhclustError(
                f"{owner}: y must not have missing classes, but leaf {codes.index(code)} has "
                f"{label!r}: leave such leaves out or give them a class."
            )
    if len(codes) != tree.n_leaves:
        raise BhclustError(
            f"{owner}: y must have one class a leaf ({tree.n_leaves} leaves), got {len(codes)}."
        )
    return codes


def _is_missing(label: Any) -> bool:
    # pandas' NA and NaT are told by name, since pandas is optional; NaN differs from itself.
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float) and label != label
