"""Hill climbing on the tree: prune a subtree and graft it elsewhere wherever the evidence rises.

Grafting next to the aunt or next to a child of the sibling is the nearest-neighbour interchange;
grafting next to another cluster moves an item that the greedy order has put in the wrong place.
Every move is scored exactly: statistics change only below the lowest common ancestor of the two
places, the evidence from there to the root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust import posterior
from bhclust._coordinates import Prior
from bhclust._fixed_tree import FixedTree, evaluate
from bhclust._validation import FloatArray
from bhclust.agglomerate import score_tree
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

# A move must raise the evidence by so many nats.
_LEAST_GAIN = 1e-6

# Subtrees below nodes that are split with less than this probability have no say in the evidence.
_LEAST_REACH = 1e-6

# Most moves scored, for each leaf of the tree.
_MOVES_PER_LEAF = 30


class Polished(NamedTuple):
    """Result of `polish`: the tree, what it gained, and how many moves were scored and made."""

    tree: Tree
    gain: float
    n_scored: int
    n_moves: int


class _Change(NamedTuple):
    """What a move makes of the nodes that it touches; ``new`` is the node that it adds.

    ``removed`` is the node that the pruned subtree leaves with one child, or -1.
    """

    children: dict[int, list[int]]
    stats: dict[int, FloatArray]
    weight: dict[int, float]
    log_f: dict[int, float]
    value: dict[int, float]
    removed: int
    root: int


class _Mutable:
    """A tree that can be changed; ``value`` is ``A = log d + log p`` of each node."""

    def __init__(self, tree: Tree, prior: Prior) -> None:
        assert tree.stats is not None
        assert tree.log_marginal is not None
        n = tree.n_leaves
        self.model, self.mixing = prior
        self.children = {k: tree.children(k).tolist() for k in range(n, tree.n_nodes)}
        self.parent = dict(enumerate(tree.parent.tolist()))
        self.stats = {k: tree.stats[k : k + 1] for k in range(tree.n_nodes)}
        self.weight = dict(enumerate(tree.weight.tolist()))
        self.log_f = dict(enumerate(tree.log_marginal.tolist()))
        self.root = tree.n_nodes - 1
        self.next_id = tree.n_nodes
        leaf = self.mixing.log_leaf(tree.weight[:n]) + tree.log_marginal[:n]
        self.value = dict(enumerate(leaf.tolist()))
        for k in range(n, tree.n_nodes):
            below = sum(self.value[child] for child in self.children[k])
            self.value[k] = self._mix(self.weight[k], len(self.children[k]), self.log_f[k], below)

    def _mix(self, weight: float, n_children: int, log_f: float, below: float) -> float:
        one = float(self.mixing.log_one(weight, n_children)) + log_f
        return float(np.logaddexp(one, float(self.mixing.log_split(n_children)) + below))

    def ancestors(self, node: int) -> list[int]:
        """Return the nodes from the parent of a node to the root."""
        out = []
        while (node := self.parent[node]) >= 0:
            out.append(node)
        return out

    def allows(self, x: int, target: int) -> bool:
        """Say whether both nodes are still there and grafting x beside target is a new tree."""
        if x not in self.parent or target not in self.parent or x in (target, self.root):
            return False
        home = self.parent[x]
        binary_sibling = self.parent[target] == home and len(self.children[home]) == 2
        nested = target in self.ancestors(x) or x in self.ancestors(target)
        return not (binary_sibling or nested)

    def regraft(self, x: int, target: int) -> _Change:
        """Return what changes when x is pruned and becomes the sibling of target."""
        home = self.parent[x]
        rest = [child for child in self.children[home] if child != x]
        change = _Change({}, {}, {}, {}, {}, home if len(rest) == 1 else -1, self.root)
        self._recompute(change, self.next_id, [target, x], anew=True)
        replaced = {target: self.next_id}
        if len(rest) == 1:
            replaced[home] = rest[0]
        from_x, from_target = self.ancestors(x), self.ancestors(target)
        common = next(node for node in from_target if node in set(from_x))
        for path in (from_x, from_target):
            for place, node in enumerate(path):
                # Above the common ancestor one path is enough, and sets of leaves stay the same.
                anew = place < path.index(common)
                if node != change.removed and (anew or path is from_target):
                    own = rest if node == home else self.children[node]
                    self._recompute(change, node, [replaced.get(c, c) for c in own], anew=anew)
        return change._replace(root=replaced.get(self.root, self.root))

    def _recompute(self, change: _Change, node: int, own: list[int], *, anew: bool) -> None:
        """Recompute a node after its children; ``anew`` if its set of leaves has changed."""
        change.children[node] = own
        if anew:
            stats = change.stats[own[0]] if own[0] in change.stats else self.stats[own[0]]
            for c in own[1:]:
                other = change.stats[c] if c in change.stats else self.stats[c]
                stats = self.model.merge(stats, other)
            change.stats[node] = stats
            change.log_f[node] = float(self.model.log_marginal(stats)[0])
            change.weight[node] = sum(
                change.weight[c] if c in change.weight else self.weight[c] for c in own
            )
        weight = change.weight[node] if anew else self.weight[node]
        log_f = change.log_f[node] if anew else self.log_f[node]
        below = sum(change.value[c] if c in change.value else self.value[c] for c in own)
        change.value[node] = self._mix(weight, len(own), log_f, below)

    def commit(self, change: _Change) -> None:
        """Make a change."""
        self.children.update(change.children)
        self.stats.update(change.stats)
        self.weight.update(change.weight)
        self.log_f.update(change.log_f)
        self.value.update(change.value)
        for node, own in change.children.items():
            for child in own:
                self.parent[child] = node
        self.root = change.root
        self.parent[self.root] = -1
        if change.removed >= 0:
            del self.parent[change.removed], self.children[change.removed]
        self.next_id += 1

    def parents(self) -> npt.NDArray[np.int32]:
        """Return the tree as an array of parents, leaves first."""
        nodes = sorted(self.parent)
        number = {node: place for place, node in enumerate(nodes)}
        raw = [number.get(self.parent[node], -1) for node in nodes]
        return Tree.from_parent(raw).parent


def polish(tree: Tree, prior: Prior, *, max_sweeps: int = 10) -> Polished:
    """Prune and regraft subtrees while the evidence rises.

    Parameters
    ----------
    tree : Tree
        A scored tree with one root.
    prior : Prior
        Model and mixing prior; they stay as they are.
    max_sweeps : int
        Most passes over all moves.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.repeat([[1.0, 1, 0, 0], [0, 0, 1, 1]], 3, axis=0)
    >>> prior = Prior(Bernoulli(a=0.3, b=0.3).resolve(X), DirichletProcess(1.0))
    >>> stats = prior.model.suffstats(X)
    >>> chain = [6, 7, 8, 6, 9, 10, 7, 8, 9, 10, -1]  # 0 and 3, then 1, 2, 4, 5
    >>> poor = score_tree(chain, prior.model, stats, prior.mixing)
    >>> better = polish(poor, prior)
    >>> bool(better.gain > 1), better.n_moves > 0
    (True, True)
    """
    start = evaluate(FixedTree.of(tree), *prior).value
    n_scored, n_moves = 0, 0
    if len(tree.roots) > 1 or tree.n_leaves < 3:
        return Polished(tree, 0.0, 0, 0)
    for _ in range(max_sweeps):
        state, moved = _Mutable(tree, prior), 0
        for x, target in _proposals(tree, prior):
            if n_scored >= _MOVES_PER_LEAF * tree.n_leaves:
                break
            if not state.allows(x, target):
                continue
            change = state.regraft(x, target)
            n_scored += 1
            if change.value[change.root] > state.value[state.root] + _LEAST_GAIN:
                state.commit(change)
                moved += 1
        if not moved:
            break
        n_moves += moved
        tree = _scored(state.parents(), tree, prior)
    gain = evaluate(FixedTree.of(tree), *prior).value - start
    return Polished(tree, gain, n_scored, n_moves)


def _scored(parent: npt.NDArray[np.int32], like: Tree, prior: Prior) -> Tree:
    assert like.stats is not None
    n = like.n_leaves
    return score_tree(
        parent,
        prior.model,
        like.stats[:n],
        prior.mixing,
        weight=like.weight[:n],
        leaf_names=like.leaf_names,
    )


def _proposals(tree: Tree, prior: Prior) -> list[tuple[int, int]]:
    """Return the moves worth scoring: each leaf to another cluster, then interchanges."""
    reach = evaluate(FixedTree.of(tree), *prior).split
    out = _reassignments(tree, prior.model)
    for x in range(tree.n_nodes - 1):
        home = int(tree.parent[x])
        if reach[home] < _LEAST_REACH:
            continue
        above = int(tree.parent[home])
        aunts = tree.children(above).tolist() if above >= 0 else []
        out += [(x, aunt) for aunt in aunts if aunt != home]
        for sibling in tree.children(home).tolist():
            if sibling != x and sibling >= tree.n_leaves:
                out += [(x, niece) for niece in tree.children(sibling).tolist()]
    return out


def _reassignments(tree: Tree, model: ClusterModel) -> list[tuple[int, int]]:
    """Return for each leaf the cluster, other than its own, that would take it most gladly."""
    assert tree.stats is not None
    labels = posterior.cut(tree)
    clusters = posterior.cluster_nodes(tree, labels)
    if len(clusters) < 2:
        return []
    n = tree.n_leaves
    leaves = tree.stats[:n]
    welcome = np.empty((n, len(clusters)))
    for label, node in enumerate(clusters.tolist()):
        own = tree.stats[node : node + 1]
        log_f = model.log_marginal(model.merge(leaves, own)) - model.log_marginal(own)
        welcome[:, label] = log_f + np.log(tree.weight[node])
    welcome[np.arange(n), labels] = -np.inf
    return list(zip(range(n), clusters[welcome.argmax(axis=1)].tolist(), strict=True))
