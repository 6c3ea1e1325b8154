"""Growing trees of any model: the reference of `bhclust.growing`, which explains the steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust import posterior
from bhclust._coordinates import Prior
from bhclust._kernels import grow
from bhclust._kernels.passes import upward
from bhclust._validation import FloatArray, IntArray
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.mixing import DirichletProcess, Mixing
from bhclust.randomised import comparable_evidence
from bhclust.strategies import dissolvable, without
from bhclust.tree import Tree

# Nodes that are scored for one item while its cluster is looked for.
MOST_SEEN = 512

# Numbers of statistics that are computed at a time: those of a sparse row are dense (32 MB).
_MOST_NUMBERS = 1 << 22

# Children of one node that are compared on the way down.
MOST_CHILDREN = 32

# Up to so many clusters are put together anew when a tree is asked for.
MOST_CLUSTERS = 2000

# Other clusters that a grown cluster may move to are tried in order of promise, so many.
_TRIED = 3

# A repair must raise the evidence by so many nats.
_LEAST_GAIN = 1e-8


class Repairs(NamedTuple):
    """How many repairs were made."""

    rotations: int
    grafts: int
    collapses: int


def rows_at_a_time(n_stats: int) -> int:
    """Return how many rows are made into statistics together."""
    return max(1, _MOST_NUMBERS // n_stats)


def collapses(rose: bool, mixing: Mixing) -> bool:
    # The bound of a Dirichlet process always prefers the more resolved tree.
    return rose and not isinstance(mixing, DirichletProcess)


class Grown(NamedTuple):
    """A tree as it has grown, and its leaves."""

    parent: npt.NDArray[np.int32]
    stats: FloatArray
    weight: FloatArray
    names: tuple[str, ...] | None

    def scored(self, parent: npt.NDArray[np.int32], prior: Prior) -> Tree:
        """Return the tree of these leaves with other parents."""
        how: Any = {"weight": self.weight, "leaf_names": self.names}
        return score_tree(parent, prior.model, self.stats, prior.mixing, **how)


def finished(grown: Grown, prior: Prior, *, rose: bool) -> Tree:
    """Score a tree and tidy it up.

    In rose trees, nodes that only cost evidence are dissolved; then the clusters are put together
    anew.
    """
    tree = grown.scored(grown.parent, prior)
    if tree.n_leaves < 3:
        return tree
    if collapses(rose, prior.mixing):
        tree = grown.scored(without(tree.parent, dissolvable(tree, prior.mixing)), prior)
    clusters = posterior.cluster_nodes(tree, posterior.cut(tree))
    if not 3 <= len(clusters) <= MOST_CLUSTERS:
        return tree
    other = grown.scored(_put_together(tree, clusters, prior, rose=rose), prior)
    known = comparable_evidence(tree, prior.mixing)
    # Equal but for rounding counts: the search has reasons that the evidence hardly shows.
    least = known - 1e-9 * max(1.0, abs(known))
    return other if comparable_evidence(other, prior.mixing) >= least else tree


def _put_together(
    tree: Tree, clusters: IntArray, prior: Prior, *, rose: bool
) -> npt.NDArray[np.int32]:
    """Return the parents of a tree whose clusters are the leaves of a greedy search.

    Where clusters are far apart, how they hang together hardly counts in the evidence: one more
    child of the root is worth as much as a node of two children. Then items that come one by one
    leave related clusters far from each other, while the search, which goes by the likelihood
    ratios of pairs, puts them together first.
    """
    assert tree.stats is not None
    stats = np.ascontiguousarray(tree.stats[clusters])
    how: Any = {"rose": rose, "weight": tree.weight[clusters]}
    top = agglomerate(prior.model, stats, prior.mixing, **how).tree
    inside = np.zeros(tree.n_nodes, dtype=np.bool_)
    inside[clusters] = True
    for node in range(tree.n_nodes - 2, -1, -1):
        inside[node] |= inside[tree.parent[node]]
    kept = np.flatnonzero(inside)
    number = np.full(tree.n_nodes + 1, -1, dtype=np.int32)
    number[kept] = np.arange(len(kept))
    of_top = np.append(number[clusters], len(kept) + np.arange(top.n_nodes - len(clusters)))
    parent = np.append(number[tree.parent[kept]], np.full(top.n_nodes - len(clusters), -1))
    parent[of_top] = np.append(of_top, -1)[top.parent]
    return parent.astype(np.int32)


def resolved(tree: Tree, prior: Prior) -> Tree:
    """Return a rose tree whose flat clusters are binary trees again.

    A flat node cannot be taken apart when later items show that it is two clusters; `finished`
    makes it flat again where the evidence is for it.
    """
    assert tree.stats is not None
    assert tree.log_odds is not None
    flat = (np.diff(tree.child_ptr) > 2) & (tree.log_odds > 0)
    root_of: dict[int, int] = {k: k for k in range(tree.n_leaves)}
    parents = dict.fromkeys(range(tree.n_leaves), -1)
    next_id = tree.n_leaves
    for node in range(tree.n_leaves, tree.n_nodes):
        own = tree.children(node)
        top = np.append(np.full(len(own), len(own)), -1)
        if flat[node]:
            stats = np.ascontiguousarray(tree.stats[own])
            top = agglomerate(prior.model, stats, prior.mixing, weight=tree.weight[own]).tree.parent
        number = [root_of[k] for k in own.tolist()]
        number += list(range(next_id, next_id + len(top) - len(own)))
        for place, over in enumerate(top.tolist()):
            parents[number[place]] = number[over] if over >= 0 else -1
        next_id = number[-1] + 1
        root_of[node] = number[-1]
    n = tree.n_leaves
    return score_tree(
        np.array([parents[k] for k in range(next_id)], dtype=np.int32),
        prior.model,
        np.ascontiguousarray(tree.stats[:n]),
        prior.mixing,
        weight=tree.weight[:n],
        leaf_names=tree.leaf_names,
    )


def node_numbers(tree: Tree, mixing: Mixing) -> FloatArray:
    """Return weight, ``log f``, value and the children's values of each node of a tree."""
    assert tree.log_marginal is not None
    n, n_children = tree.n_leaves, np.diff(tree.child_ptr)
    value = mixing.log_leaf(tree.weight[:n]) + tree.log_marginal[:n]
    one = mixing.log_one(tree.weight[n:], n_children[n:]) + tree.log_marginal[n:]
    split = np.ascontiguousarray(mixing.log_split(n_children[n:]))
    values, log_odds = upward(tree.parent, n, value, np.ascontiguousarray(one), split)
    below = np.zeros(tree.n_nodes)
    below[n:] = one - log_odds[n:] - split
    return np.column_stack([tree.weight, tree.log_marginal, values, below])


class GrowingTree:
    """A growing tree of any model; see `make_growing`."""

    def __init__(
        self, tree: Tree | None, prior: Prior, *, rose: bool, repairs: bool = True
    ) -> None:
        self.model, self.mixing = prior
        self._prior, self._rose, self._repair = prior, rose, repairs
        self._stats: list[FloatArray] = []
        self._weight: list[float] = []
        self._log_f: list[float] = []
        self._value: list[float] = []
        self._below: list[float] = []
        self._parent: list[int] = []
        self._children: list[list[int]] = []
        self._leaves: list[int] = []
        self._names: tuple[str, ...] | None = None
        self._root = -1
        self._done = [0, 0, 0]
        if tree is not None:
            self._load(tree)

    @property
    def n_leaves(self) -> int:
        """Number of items so far."""
        return len(self._leaves)

    @property
    def value(self) -> float:
        """The evidence that repairs raise: ``log d + log p`` at the root."""
        return self._value[self._root]

    @property
    def repairs(self) -> Repairs:
        """What was repaired so far."""
        return Repairs(*self._done)

    def insert(self, X: Any) -> None:
        """Insert encoded rows, in their order."""
        n = rows_at_a_time(self.model.suffstats(X[:1]).size)
        for start in range(0, X.shape[0], n):
            for item in self.model.suffstats(X[start : start + n]):
                self._insert(item[None])
        self._names = None

    def tree(self) -> Tree:
        """Return the tree, tidied up, with all node quantities computed anew."""
        return finished(self.grown(), self._prior, rose=self._rose)

    def grown(self) -> Grown:
        """Return the tree as it is."""
        order = list(self._postorder())
        inner = [node for node in order if self._children[node]]
        number = {node: place for place, node in enumerate(self._leaves + inner)}
        parent = [number.get(self._parent[node], -1) for node in self._leaves + inner]
        stats = np.concatenate([self._stats[leaf] for leaf in self._leaves])
        weight = np.array([self._weight[leaf] for leaf in self._leaves])
        return Grown(np.array(parent, dtype=np.int32), stats, weight, self._names)

    def _load(self, tree: Tree) -> None:
        assert tree.stats is not None
        weight, log_f, value, below = node_numbers(tree, self.mixing).T.tolist()
        self._weight, self._log_f, self._value, self._below = weight, log_f, value, below
        self._stats = [tree.stats[k : k + 1] for k in range(tree.n_nodes)]
        self._parent = tree.parent.tolist()
        self._children = [tree.children(k).tolist() for k in range(tree.n_nodes)]
        self._leaves = list(range(tree.n_leaves))
        self._names = tree.leaf_names
        self._root = int(tree.roots[0])

    def _postorder(self) -> Iterator[int]:
        todo = [(self._root, False)]
        while todo:
            node, done = todo.pop()
            if done or not self._children[node]:
                yield node
            else:
                todo.append((node, True))
                todo += [(child, False) for child in reversed(self._children[node])]

    # -- one item --------------------------------------------------------------------------------

    def _insert(self, item: FloatArray) -> None:
        log_f = float(self.model.log_marginal(item)[0])
        leaf = self._add_node(item, 1.0, log_f, [])
        self._leaves.append(leaf)
        self._value[leaf] = log_f + float(self.mixing.log_leaf(1.0))
        if self._root < 0:
            self._root = leaf
            return
        seen = self._search(item)
        path, gains = self._find_path(item, seen)
        stop, absorbs = self._place(path, gains, self._value[leaf])
        top = self._put(leaf, path, gains, stop, absorbs)
        if self._repair:
            if collapses(self._rose, self.mixing):
                self._collapse(top)
            self._rotate(self._parent[leaf])
            self._graft(leaf, seen)

    def _gains(self, nodes: list[int], item: FloatArray, scale: FloatArray | None) -> FloatArray:
        """Return ``log f(x | D)`` under each node, its statistics taken ``scale`` times."""
        stats = np.concatenate([self._stats[node] for node in nodes])
        if scale is None:
            log_f = np.array([self._log_f[node] for node in nodes])
        else:
            stats = self.model.repeat(stats, scale)
            log_f = self.model.log_marginal(stats)
        return np.asarray(self.model.log_marginal(self.model.merge(stats, item)) - log_f)

    def _search(self, item: FloatArray) -> list[_Seen]:
        """Score the clusters at the top of the tree, the most promising first."""
        seen = self._scored([self._root], item)
        while len(seen) < MOST_SEEN:
            split = [s for s in seen if not s.opened and self._odds(s.node) < 0]
            if not split:
                break
            best = max(split, key=lambda s: s.score)
            best.opened = True
            room = MOST_SEEN - len(seen)
            seen += self._scored(self._children[best.node][:room], item)
        return seen

    def _scored(self, nodes: list[int], item: FloatArray) -> list[_Seen]:
        gains = self._gains(nodes, item, None).tolist()
        return [
            _Seen(node, gain, float(np.log(self._weight[node])) + gain)
            for node, gain in zip(nodes, gains, strict=True)
        ]

    def _find_path(self, item: FloatArray, seen: list[_Seen]) -> tuple[list[int], list[float]]:
        gain_of = {s.node: s.gain for s in seen}
        node = max((s for s in seen if not s.opened), key=lambda s: s.score).node
        path = [node]
        while self._parent[path[-1]] >= 0:
            path.append(self._parent[path[-1]])
        path.reverse()
        gains = [gain_of[node] for node in path]
        while self._children[node]:
            near = self._children[node][:MOST_CHILDREN]
            weight = np.array([self._weight[child] for child in near])
            alike = self._gains(near, item, weight.min() / weight)
            node = near[int(np.argmax(alike))]
            path.append(node)
            gains.append(float(self._gains([node], item, None)[0]))
        return path, gains

    def _place(self, path: list[int], gains: list[float], value_x: float) -> tuple[int, bool]:
        """Return where on the path the item raises the evidence most, and whether by absorbing."""
        best, stop, absorbs = 0.0, -1, False
        for place in range(len(path) - 1, -1, -1):
            u = path[place]
            kids, weight = len(self._children[u]), self._weight[u] + 1
            log_f = self._log_f[u] + gains[place]
            join, _, apart = self._mixed(weight, 2, log_f, self._value[u] + value_x)
            within = below = -np.inf
            if place == len(path) - 1:
                best, stop, absorbs = join, place, False
                if not (self._rose and kids):
                    continue
            else:
                inner = self._below[u] - self._value[path[place + 1]] + best
                within, _, below = self._mixed(weight, kids, log_f, inner)
            absorb = -np.inf
            if self._rose and kids:
                flat = self._mixed(weight, kids + 1, log_f, self._below[u] + value_x)
                # Inside a cluster, a flat node could never be taken apart again.
                absorb = flat.value if flat.split > flat.one else -np.inf
            # Where one term is the same for both ways, the other decides, and never saturates.
            near = not self._rose or abs(join - within) <= 1e-9
            if absorb > max(join, within):
                best, stop, absorbs = absorb, place, True
            elif (apart > below) if near else (join > within):
                best, stop, absorbs = join, place, False
            else:
                best = within
        return stop, absorbs

    def _put(self, leaf: int, path: list[int], gains: list[float], stop: int, absorbs: bool) -> int:
        """Put a leaf into its place; return the node above it."""
        item = self._stats[leaf]
        for place in range(stop + 1 if absorbs else stop):
            u = path[place]
            self._stats[u] = self.model.merge(self._stats[u], item)
            self._weight[u] += 1.0
            self._log_f[u] += gains[place]
        u = path[stop]
        if absorbs:
            self._children[u].insert(0, leaf)
            self._parent[leaf] = u
            self._pass_up(u)
            return u
        stats = self.model.merge(self._stats[u], item)
        top = self._add_node(stats, self._weight[u] + 1.0, self._log_f[u] + gains[stop], [])
        self._replace(u, top)
        self._adopt(top, [leaf, u])
        self._pass_up(top)
        return top

    # -- repairs ---------------------------------------------------------------------------------

    def _collapse(self, start: int) -> None:
        """Dissolve nodes on the way up into their parents where that raises the evidence."""
        p = start
        while (g := self._parent[p]) >= 0:
            kids = len(self._children[g]) - 1 + len(self._children[p])
            below = self._below[g] - self._value[p] + self._below[p]
            flat = self._mixed(self._weight[g], kids, self._log_f[g], below)
            worth = flat.value > self._value[g] + 1e-9
            if self._children[p] and self._odds(g) < 0 and worth:
                own = self._children[p]
                self._children[g].remove(p)
                self._children[g][:0] = own[::-1]
                for child in own:
                    self._parent[child] = g
                self._parent[p] = grow.GONE
                self._pass_up(g)
                self._done[2] += 1
            p = g

    def _rotate(self, start: int) -> None:
        """Exchange a node's child with its aunt where that raises the evidence, up to the root."""
        p = start
        while (g := self._parent[p]) >= 0:
            both = len(self._children[p]) == 2 and len(self._children[g]) == 2
            if both and self._odds(g) <= grow.CERTAIN:
                self._try_rotation(p, g)
            p = g

    def _try_rotation(self, p: int, g: int) -> None:
        aunt = next(child for child in self._children[g] if child != p)
        first, second = self._children[p]
        best, found = self._value[p] + self._value[aunt] + _LEAST_GAIN, None
        for stays, leaves in ((second, first), (first, second)):
            stats = self.model.merge(self._stats[aunt], self._stats[stays])
            log_f = float(self.model.log_marginal(stats)[0])
            weight = self._weight[aunt] + self._weight[stays]
            value = self._mixed(weight, 2, log_f, self._value[aunt] + self._value[stays]).value
            if value + self._value[leaves] > best:
                best = value + self._value[leaves]
                found = (stays, leaves, stats, log_f, weight)
        if found is None:
            return
        stays, leaves, stats, log_f, weight = found
        self._stats[p], self._log_f[p], self._weight[p] = stats, log_f, weight
        self._adopt(p, [aunt, stays])
        self._adopt(g, [leaves, p])
        self._pass_up(p)
        self._done[0] += 1

    def _graft(self, leaf: int, seen: list[_Seen]) -> None:
        """Try to move the cluster of a new leaf beside the most promising other clusters."""
        t, u = leaf, self._parent[leaf]
        while u >= 0:
            t = u if self._odds(u) > 0 else t
            u = self._parent[u]
        size = int(self._weight[t])
        if t == self._root or size & (size - 1) != 0:
            return
        others = sorted((s for s in seen if not s.opened), key=lambda s: -s.score)
        for v in [s.node for s in others[:_TRIED]]:
            p = self._parent[t]
            beside = len(self._children[p]) == 2 and self._parent[v] == p
            if self._parent[v] == grow.GONE or v == self._root or beside or self._related(v, t):
                continue
            stats = self.model.merge(self._stats[v], self._stats[t])
            log_f = float(self.model.log_marginal(stats)[0])
            weight = self._weight[v] + self._weight[t]
            union = self._mixed(weight, 2, log_f, self._value[v] + self._value[t])
            if union.one - union.split <= self._odds(p):
                continue
            if self._moved(t, v):
                self._done[1] += 1
                return

    def _moved(self, t: int, target: int) -> bool:
        """Move t beside target if that raises the evidence."""
        kept = (self._stats[:], self._weight[:], self._log_f[:], self._value[:], self._below[:])
        topology = (self._parent[:], [own[:] for own in self._children], self._root)
        before = self.value
        p = self._parent[t]
        self._children[p].remove(t)
        low = p
        if len(self._children[p]) == 1:
            (rest,) = self._children[p]
            low = self._parent[p]
            self._replace(p, rest)
            self._parent[p] = grow.GONE
            self._children[p] = []
        q = self._add_node(self._stats[t], 0.0, 0.0, [])
        self._replace(target, q)
        self._adopt(q, [t, target])
        for start in (q, low):
            self._refresh(start)
        if self.value > before + _LEAST_GAIN:
            return True
        self._stats, self._weight, self._log_f, self._value, self._below = kept
        self._parent, self._children, self._root = topology
        return False

    def _refresh(self, start: int) -> None:
        """Recompute a node and all above it from their children."""
        node = start
        while node >= 0:
            own = self._children[node]
            stats = self._stats[own[0]]
            for child in own[1:]:
                stats = self.model.merge(stats, self._stats[child])
            self._stats[node] = stats
            self._weight[node] = sum(self._weight[child] for child in own)
            self._log_f[node] = float(self.model.log_marginal(stats)[0])
            self._revalue(node)
            node = self._parent[node]

    # -- the structure ---------------------------------------------------------------------------

    def _add_node(self, stats: FloatArray, weight: float, log_f: float, children: list[int]) -> int:
        self._stats.append(stats)
        self._weight.append(weight)
        self._log_f.append(log_f)
        self._value.append(0.0)
        self._below.append(0.0)
        self._parent.append(-1)
        self._children.append(children)
        return len(self._parent) - 1

    def _adopt(self, node: int, children: list[int]) -> None:
        self._children[node] = children
        for child in children:
            self._parent[child] = node

    def _replace(self, node: int, by: int) -> None:
        above = self._parent[node]
        self._parent[by] = above
        if above < 0:
            self._root = by
        else:
            self._children[above].remove(node)
            self._children[above].insert(0, by)

    def _related(self, a: int, b: int) -> bool:
        for low, high in ((a, b), (b, a)):
            while low >= 0:
                if low == high:
                    return True
                low = self._parent[low]
        return False

    def _mixed(self, weight: float, kids: int, log_f: float, below: float) -> _Mixed:
        one = float(self.mixing.log_one(weight, kids)) + log_f
        split = float(self.mixing.log_split(kids)) + below
        return _Mixed(float(np.logaddexp(one, split)), one, split)

    def _odds(self, node: int) -> float:
        kids = len(self._children[node])
        if not kids:
            return np.inf
        found = self._mixed(self._weight[node], kids, self._log_f[node], self._below[node])
        return found.one - found.split

    def _revalue(self, node: int) -> None:
        own = self._children[node]
        self._below[node] = sum(self._value[child] for child in own)
        weight, log_f = self._weight[node], self._log_f[node]
        self._value[node] = self._mixed(weight, len(own), log_f, self._below[node]).value

    def _pass_up(self, node: int) -> None:
        """Compute the values of a node and of all above it."""
        while node >= 0:
            self._revalue(node)
            node = self._parent[node]


class _Mixed(NamedTuple):
    """Value of a node, and the terms of one cluster and of a split."""

    value: float
    one: float
    split: float


@dataclass
class _Seen:
    """A node that was scored for an item."""

    node: int
    gain: float
    score: float
    opened: bool = False
