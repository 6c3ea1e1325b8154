"""`TreePosterior`: weighted trees, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, IntArray, check_count
from bhclust.coalescent.history import Merges, tree_of_merges
from bhclust.tree import Tree


class Clade(NamedTuple):
    """A set of leaves that is a subtree of some trees.

    ``probability`` is their share of the weight, ``age`` the weighted mean age of the subtree.
    """

    leaves: tuple[int, ...]
    probability: float
    age: float


class _TreesOfMerges(Sequence[Tree]):
    """Trees made of mergers when they are asked for, for a particle is often only a number."""

    def __init__(
        self,
        left: IntArray,
        right: IntArray,
        age: FloatArray,
        leaf_names: Sequence[str] | None,
    ) -> None:
        self._merges = [Merges(*row) for row in zip(left, right, age, strict=True)]
        self._leaf_names = leaf_names
        self._made: dict[int, Tree] = {}

    def __len__(self) -> int:
        return len(self._merges)

    @overload
    def __getitem__(self, index: int) -> Tree: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Tree]: ...

    def __getitem__(self, index: int | slice) -> Tree | Sequence[Tree]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place not in self._made:
            self._made[place] = tree_of_merges(self._merges[place], self._leaf_names)
        return self._made[place]


@dataclass(frozen=True, eq=False)
class TreePosterior:
    """Trees with weights that add up to one.

    Attributes
    ----------
    trees : sequence of Tree
        Binary trees over the same leaves, heights are ages.
    weights : array, shape (n_trees,)
    log_joints : array, shape (n_trees,)
        log p(tree, X) of each.
    log_evidence : float
        Estimate of log p(X), whose exponential is unbiased.
    effective_sizes : array, shape (n_leaves - 1,)
        Effective number of particles after each merger, before any resampling there.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, sample_trees
    >>> X = np.array([[0.0], [0.1], [3.0], [3.2]])
    >>> leaves = Brownian(1.0).resolve(X).leaves(X)
    >>> posterior = sample_trees(leaves, rng=np.random.default_rng(0))
    >>> posterior.consensus()
    <Tree: 4 leaves, 7 nodes, binary, height ...>
    """

    trees: Sequence[Tree]
    weights: FloatArray
    log_joints: FloatArray
    log_evidence: float
    effective_sizes: FloatArray

    @classmethod
    def of_merges(
        cls,
        left: IntArray,
        right: IntArray,
        age: FloatArray,
        *,
        weights: FloatArray,
        log_joints: FloatArray,
        log_evidence: float,
        effective_sizes: FloatArray,
        leaf_names: Sequence[str] | None = None,
    ) -> TreePosterior:
        """Build the trees from mergers, one row a tree."""
        trees = _TreesOfMerges(left, right, age, leaf_names)
        return cls(trees, weights, log_joints, log_evidence, effective_sizes)

    def __len__(self) -> int:
        return len(self.trees)

    def __iter__(self) -> Iterator[Tree]:
        return iter(self.trees)

    @property
    def n_leaves(self) -> int:
        """Number of leaves of every tree."""
        return self.trees[0].n_leaves

    @property
    def best(self) -> int:
        """Position of the tree with the highest log p(tree, X)."""
        return int(np.argmax(np.where(self.weights > 0, self.log_joints, -np.inf)))

    @property
    def best_tree(self) -> Tree:
        """The tree with the highest log p(tree, X)."""
        return self.trees[self.best]

    @property
    def effective_size(self) -> float:
        """Effective number of trees, 1 / sum of squared weights."""
        return float(1 / (self.weights**2).sum())

    def expectation(self, function: Callable[[Tree], npt.ArrayLike]) -> FloatArray:
        """Return the weighted mean of what a function says of each tree."""
        total = 0.0
        for tree, weight in zip(self.trees, self.weights, strict=True):
            total = total + weight * np.asarray(function(tree), dtype=np.float64)
        return np.asarray(total)

    # -- clades ----------------------------------------------------------------------------------

    def clades(self, min_probability: float = 0.0) -> list[Clade]:
        """Return the sets of two leaves or more that are subtrees, most probable first.

        Examples
        --------
        >>> import numpy as np
        >>> from bhclust.coalescent import TreePosterior
        >>> from bhclust.tree import Tree
        >>> tree = Tree([3, 3, 4, 4, -1], n_leaves=3, height=[0, 0, 0, 1.0, 2.0])
        >>> other = Tree([4, 3, 3, 4, -1], n_leaves=3, height=[0, 0, 0, 1.0, 4.0])
        >>> posterior = TreePosterior(
        ...     (tree, other), np.array([0.75, 0.25]), np.zeros(2), 0.0, np.ones(2)
        ... )
        >>> [(clade.leaves, clade.probability) for clade in posterior.clades(0.5)]
        [((0, 1, 2), 1.0), ((0, 1), 0.75)]
        """
        probability: dict[int, float] = {}
        age: dict[int, float] = {}
        for tree, weight in zip(self.trees, self.weights.tolist(), strict=True):
            sets = _leaf_sets(tree)
            for node in range(tree.n_leaves, tree.n_nodes):
                key = sets[node]
                probability[key] = probability.get(key, 0.0) + weight
                age[key] = age.get(key, 0.0) + weight * float(tree.height[node])
        found = [
            Clade(_members(key, self.n_leaves), share, age[key] / share)
            for key, share in probability.items()
            if share > 0 and share >= min_probability
        ]
        return sorted(found, key=lambda c: (-round(c.probability, 12), -len(c.leaves), c.leaves))

    def clade_probability(self, leaves: Iterable[int]) -> float:
        """Return the probability that these leaves are a subtree."""
        wanted = sum(1 << self._check_leaf(leaf) for leaf in set(leaves))
        return float(
            sum(
                weight
                for tree, weight in zip(self.trees, self.weights.tolist(), strict=True)
                if wanted in _leaf_sets(tree)
            )
        )

    def support(self, tree: Tree) -> FloatArray:
        """Return the probability of each node of any tree over these leaves as a clade."""
        if tree.n_leaves != self.n_leaves:
            raise BhclustError(
                f"the tree has {tree.n_leaves} leaves and the posterior {self.n_leaves}: support "
                "compares trees over the same leaves."
            )
        total: dict[int, float] = {}
        for one, weight in zip(self.trees, self.weights.tolist(), strict=True):
            for key in set(_leaf_sets(one)):
                total[key] = total.get(key, 0.0) + weight
        return np.array([min(total.get(key, 0.0), 1.0) for key in _leaf_sets(tree)])

    def consensus(self, threshold: float = 0.5) -> Tree:
        """Return the tree of all clades with a probability above a threshold of half or more.

        Such clades never overlap without being nested, so they make a tree; where no clade has a
        majority a node has many children. Heights are the clades' mean ages, raised where needed
        so that they never fall towards the root.
        """
        if not 0.5 <= threshold < 1:
            raise BhclustError(
                f"consensus: threshold must be at least 0.5 and below 1, got {threshold!r}."
            )
        n = self.n_leaves
        chosen = [c for c in self.clades(threshold) if c.probability > threshold + 1e-12]
        # The whole set is a clade of every tree, but rounding may have taken it below one.
        chosen = [c for c in chosen if len(c.leaves) < n]
        root_age = float(self.expectation(lambda tree: tree.height[-1]))
        chosen.append(Clade(tuple(range(n)), 1.0, root_age))
        chosen.sort(key=lambda c: len(c.leaves))
        if n == 1:
            return self.trees[0]
        parent = np.full(n + len(chosen), -1, dtype=np.int32)
        height = np.zeros(n + len(chosen))
        top = list(range(n))
        for node, clade in enumerate(chosen, start=n):
            below = {top[leaf] for leaf in clade.leaves}
            for child in below:
                parent[child] = node
            height[node] = max(clade.age, max(height[child] for child in below))
            for leaf in clade.leaves:
                top[leaf] = node
        return Tree(parent, n_leaves=n, height=height, leaf_names=self.trees[0].leaf_names)

    # -- pairs -----------------------------------------------------------------------------------

    def co_clustering(self, cut: Callable[[Tree], npt.ArrayLike]) -> FloatArray:
        """Return the probability that each pair of leaves has one label, shape (n, n).

        Parameters
        ----------
        cut : callable
            Takes a tree and returns a label for each leaf.
        """

        def together(tree: Tree) -> FloatArray:
            labels = np.asarray(cut(tree))
            return np.asarray(labels[:, None] == labels[None, :], dtype=np.float64)

        return self.expectation(together)

    def coalescence_age(self) -> FloatArray:
        """Return the mean age at which each pair of leaves meets, shape (n, n)."""
        leaf = np.arange(self.n_leaves)

        def meeting(tree: Tree) -> FloatArray:
            return np.asarray(tree.height[tree.mrca(leaf[:, None], leaf[None, :])])

        return self.expectation(meeting)

    def _check_leaf(self, leaf: int) -> int:
        return check_count(
            leaf, name="leaf", owner="TreePosterior", lowest=0, highest=self.n_leaves - 1
        )


def _leaf_sets(tree: Tree) -> list[int]:
    """Return the leaves below each node as the bits of a whole number."""
    sets = [1 << leaf for leaf in range(tree.n_leaves)]
    sets += [0] * (tree.n_nodes - tree.n_leaves)
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            sets[above] |= sets[node]
    return sets


def _members(key: int, n_leaves: int) -> tuple[int, ...]:
    return tuple(leaf for leaf in range(n_leaves) if key >> leaf & 1)
