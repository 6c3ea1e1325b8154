"""The exact greedy search for binary (BHC) and rose trees (BRT), and the score of any tree.

A pair's score never changes while both clusters live, so every pair is scored about once and
nothing of size n × n is kept: each live cluster remembers its best partner among the clusters
with higher ids. When that partner is merged away, the entry becomes stale and its score stays as
an upper bound; a stale entry is scanned again only when its bound comes up as the best of all.
The result is the tree of the plain O(n³) search.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bhclust._kernels.engine import CompiledEngine, make_parts, n_slots_for
from bhclust._validation import BhclustError, FloatArray, IntArray, check_choice
from bhclust.frontier import (
    Frontier,
    Operation,
    PairScores,
    best_operation,
    odds_scores,
    ratio_scores,
)
from bhclust.mixing import Mixing
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

Progress = Callable[[int, int], None]
EngineName = Literal["auto", "numpy", "compiled"]

# Unions are formed in blocks of about this many numbers, so that temporaries stay in the cache.
_BLOCK_NUMBERS = 1 << 17


class SearchInfo(NamedTuple):
    """Diagnostics of a search: what it cost, so that a regression is seen."""

    engine: str
    n_pairs: int  # pair scores computed in all
    n_rescans: int  # times a cluster had to look for its best partner again


class Merge(NamedTuple):
    """One step of the search: clusters ``left`` < ``right`` become the next id."""

    left: int
    right: int
    operation: Operation


class Agglomeration(NamedTuple):
    """Result of `agglomerate`."""

    tree: Tree
    info: SearchInfo


class Engine(Protocol):
    """What the search asks for: everything that costs time.

    An engine holds the statistics of all nodes and writes ``best_*`` and ``stale`` of the frontier.
    """

    name: str
    n_pairs: int

    def start(self, frontier: Frontier) -> None:
        """Find every leaf's best partner among the higher ids."""

    def rescan(self, frontier: Frontier, i: int) -> None:
        """Find cluster i's best partner among the higher live ids."""

    def offer(self, frontier: Frontier, k: int, i: int, j: int) -> None:
        """Score the new cluster k = i ∪ j against all live ones and update their best partners."""

    def best(self, frontier: Frontier) -> int:
        """Return the live cluster with the best score or bound, the lowest id on ties."""

    def choose(self, frontier: Frontier, i: int, j: int) -> tuple[float, Operation]:
        """Return ``log f`` of the union of clusters i < j and the best way to merge them."""

    def merge(self, frontier: Frontier, i: int, j: int, operation: Operation, log_f: float) -> int:
        """Replace the pair just chosen by its merger in frontier and statistics; return its id."""


def agglomerate(
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    *,
    rose: bool = False,
    weight: FloatArray | None = None,
    engine: EngineName = "auto",
    progress: Progress | None = None,
    leaf_names: tuple[str, ...] | None = None,
) -> Agglomeration:
    """Build the greedy tree of clusters given by their statistics.

    Parameters
    ----------
    model : ClusterModel
        A resolved model.
    leaf_stats : array of shape (n, n_stats)
        Statistics of the items, one row a leaf.
    mixing : Mixing
        Prior weight of "one cluster".
    rose : bool
        Whether nodes may have any number of children (join, absorb, collapse), ranked by the
        likelihood ratio; otherwise binary merges ranked by the posterior odds.
    weight : array of shape (n,), optional
        Multiplicities of the items; ones by default.
    engine : {"auto", "numpy", "compiled"}
        What computes the scores. The compiled engine serves the library's own models with unit
        weights; ``"auto"`` takes it where it can. Both give the same tree.
    progress : callable, optional
        Called with (merges done, merges in all).
    leaf_names : tuple of str, optional
        Names carried into the tree.

    Returns
    -------
    Agglomeration
        The scored tree and what the search cost.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=float)
    >>> model = Bernoulli(a=0.5, b=0.5).resolve(X)
    >>> tree = agglomerate(model, model.suffstats(X), DirichletProcess(1.0)).tree
    >>> tree.parent.tolist()
    [3, 3, 4, 4, -1]
    """
    n = len(leaf_stats)
    weight = np.ones(n) if weight is None else weight
    frontier = Frontier(model.log_marginal(leaf_stats), weight, mixing)
    worker = _make_engine(engine, model, leaf_stats, frontier, rose=rose)
    merges, n_rescans = _search(worker, frontier, progress=progress)
    info = SearchInfo(worker.name, worker.n_pairs, n_rescans)
    del worker, frontier  # the tree's own statistics take their place
    parent = _assemble(n, merges)
    tree = score_tree(parent, model, leaf_stats, mixing, weight=weight, leaf_names=leaf_names)
    return Agglomeration(tree, info)


def _make_engine(
    name: EngineName,
    model: ClusterModel,
    leaf_stats: FloatArray,
    frontier: Frontier,
    *,
    rose: bool,
) -> Engine:
    check_choice(name, ("auto", "numpy", "compiled"), name="engine", owner="agglomerate")
    n = frontier.n_leaves
    if name != "numpy" and bool((frontier.weight[:n] == 1).all()):
        parts = make_parts(model, leaf_stats, n_slots_for(n))
        if parts is not None:
            return CompiledEngine(parts, frontier, rose=rose)
    if name == "compiled":
        raise BhclustError(
            f"engine='compiled' has no kernels for {type(model).__name__} with these weights; "
            "use engine='auto' or 'numpy'."
        )
    return NumpyEngine(model, leaf_stats, rose=rose)


def _search(
    engine: Engine, frontier: Frontier, *, progress: Progress | None
) -> tuple[list[Merge], int]:
    """Return the merges in order and the number of rescans."""
    n = frontier.n_leaves
    merges: list[Merge] = []
    n_rescans = 0
    if n > 1:
        engine.start(frontier)
    while len(merges) < n - 1:
        i = engine.best(frontier)
        if frontier.stale[i]:
            engine.rescan(frontier, i)
            n_rescans += 1
            continue
        j = int(frontier.best_partner[i])
        log_f, operation = engine.choose(frontier, i, j)
        k = engine.merge(frontier, i, j, operation, log_f)
        engine.offer(frontier, k, i, j)
        merges.append(Merge(i, j, operation))
        if progress is not None:
            progress(len(merges), n - 1)
    return merges, n_rescans


class NumpyEngine:
    """The reference engine: one batched call of the model a merge, for any model at all."""

    name = "numpy"

    def __init__(self, model: ClusterModel, leaf_stats: FloatArray, *, rose: bool) -> None:
        n, n_stats = leaf_stats.shape
        self.n_pairs = 0
        self._model = model
        self._stats = np.empty((2 * n - 1, n_stats))
        self._stats[:n] = leaf_stats
        self._block = max(1, _BLOCK_NUMBERS // max(1, n_stats))
        self._rose = rose
        self._scores = ratio_scores if rose else odds_scores
        self._live = np.arange(n)

    def start(self, frontier: Frontier) -> None:
        for i in range(frontier.n_leaves - 1):
            self.rescan(frontier, i)

    def rescan(self, frontier: Frontier, i: int) -> None:
        others = self._live[np.searchsorted(self._live, i, side="right") :]
        frontier.stale[i] = False
        if not len(others):
            frontier.best_score[i] = frontier.best_tiebreak[i] = -np.inf
            return
        score, tiebreak = self._pair_scores(frontier, i, others)
        position = _first_best(score, tiebreak)
        frontier.best_score[i] = score[position]
        frontier.best_tiebreak[i] = tiebreak[position]
        frontier.best_partner[i] = others[position]

    def offer(self, frontier: Frontier, k: int, i: int, j: int) -> None:
        others = self._live[:-1]
        if not len(others):
            return
        score, tiebreak = self._pair_scores(frontier, k, others)
        best, best_tiebreak = frontier.best_score[others], frontier.best_tiebreak[others]
        # Only a strictly better offer wins: on a tie every older partner has a lower id than k.
        better = (score > best) | ((score == best) & (tiebreak > best_tiebreak))
        partner = frontier.best_partner[others]
        frontier.stale[others] |= (partner == i) | (partner == j)
        won = others[better]
        frontier.best_score[won] = score[better]
        frontier.best_tiebreak[won] = tiebreak[better]
        frontier.best_partner[won] = k
        frontier.stale[won] = False

    def best(self, frontier: Frontier) -> int:
        live = self._live
        return int(live[_first_best(frontier.best_score[live], frontier.best_tiebreak[live])])

    def choose(self, frontier: Frontier, i: int, j: int) -> tuple[float, Operation]:
        log_f = float(self._model.log_marginal(self._union(i, j))[0])
        return log_f, best_operation(frontier, i, j, log_f) if self._rose else Operation.JOIN

    def merge(self, frontier: Frontier, i: int, j: int, operation: Operation, log_f: float) -> int:
        k = frontier.merge(i, j, operation, log_f)
        self._stats[k] = self._union(i, j)[0]
        self._live = np.append(self._live[(self._live != i) & (self._live != j)], k)
        return k

    def _union(self, i: int, j: int) -> FloatArray:
        return self._model.merge(self._stats[i : i + 1], self._stats[j : j + 1])

    def _pair_scores(self, frontier: Frontier, i: int, others: IntArray) -> PairScores:
        self.n_pairs += len(others)
        log_f = np.empty(len(others))
        for start in range(0, len(others), self._block):
            part = slice(start, start + self._block)
            unions = self._model.merge(self._stats[i : i + 1], self._stats[others[part]])
            log_f[part] = self._model.log_marginal(unions)
        return self._scores(frontier, i, others, log_f)


def _first_best(score: FloatArray, tiebreak: FloatArray) -> int:
    """Return the position of the best score, then the best tiebreak, then the lowest position."""
    first = int(np.argmax(score))
    tied = np.flatnonzero(score == score[first])
    return first if len(tied) == 1 else int(tied[np.argmax(tiebreak[tied])])


def _assemble(n_leaves: int, merges: list[Merge]) -> npt.NDArray[np.int32]:
    """Return the parent array of the tree that the merges make.

    A root that was opened by absorb or collapse is dissolved: its children hang below the merger.
    """
    n_ids = n_leaves + len(merges)
    raw_parent = np.full(n_ids, -1, dtype=np.int32)
    dissolved = np.zeros(n_ids, dtype=np.bool_)
    for step, merge in enumerate(merges):
        raw_parent[[merge.left, merge.right]] = n_leaves + step
        dissolved[merge.left] = merge.operation in (Operation.ABSORB_RIGHT, Operation.COLLAPSE)
        dissolved[merge.right] = merge.operation in (Operation.ABSORB_LEFT, Operation.COLLAPSE)
    stands_for = np.arange(n_ids)
    for node in range(n_ids - 1, n_leaves - 1, -1):
        if dissolved[node]:
            stands_for[node] = stands_for[raw_parent[node]]
    new_id = np.cumsum(~dissolved) - 1
    has_parent = raw_parent >= 0
    parent = np.full(n_ids, -1, dtype=np.int32)
    parent[has_parent] = new_id[stands_for[raw_parent[has_parent]]]
    return parent[~dissolved]


def score_tree(
    parent: npt.ArrayLike,
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    *,
    weight: FloatArray | None = None,
    leaf_names: tuple[str, ...] | None = None,
) -> Tree:
    """Return the tree of a given topology with all node quantities computed bottom-up.

    Parameters
    ----------
    parent : array of int of shape (n_nodes,)
        Parents, -1 at a root; leaves first and ``parent[i] > i``.
    model, leaf_stats, mixing, weight, leaf_names
        As in `agglomerate`.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import Rose
    >>> from bhclust.models import Bernoulli
    >>> X = np.eye(3)
    >>> model = Bernoulli(a=1.0, b=1.0).resolve(X)
    >>> star = score_tree([3, 3, 3, -1], model, model.suffstats(X), Rose(0.5))
    >>> bool(star.log_evidence[-1] < 0)
    True
    """
    n = len(leaf_stats)
    bare = Tree(parent=np.asarray(parent), n_leaves=n)
    stats = node_stats(bare, model, leaf_stats)
    log_f = model.log_marginal(stats)
    node_weight = _sums_below(bare, np.ones(n) if weight is None else weight)
    n_children = np.diff(bare.child_ptr)
    log_one = mixing.log_one(node_weight[n:], n_children[n:])
    log_split = mixing.log_split(n_children[n:])
    log_leaf = mixing.log_leaf(node_weight[:n])
    mass = _upward(bare, log_leaf + log_f[:n], log_one + log_f[n:], log_split)
    # The prior's normaliser d obeys the same recursion with f = 1.
    log_d = _upward(bare, log_leaf, log_one, log_split).value if mixing.has_normaliser else 0.0
    return Tree(
        parent=bare.parent,
        n_leaves=n,
        height=_separation(bare, mass.log_odds),
        log_odds=mass.log_odds,
        log_evidence=mass.value - log_d,
        log_marginal=log_f,
        stats=stats,
        leaf_names=leaf_names,
        weight=node_weight,
    )


def node_stats(tree: Tree, model: ClusterModel, leaf_stats: FloatArray) -> FloatArray:
    """Return the statistics of all nodes from those of the leaves, level by level."""
    stats = np.empty((tree.n_nodes, leaf_stats.shape[1]))
    stats[: tree.n_leaves] = leaf_stats
    level = np.zeros(tree.n_nodes, dtype=np.int64)
    parent = tree.parent.tolist()
    for node, above in enumerate(parent):
        if above >= 0:
            level[above] = max(level[above], level[node] + 1)
    n_children = np.diff(tree.child_ptr)
    order = np.argsort(level, kind="stable")
    ends = np.searchsorted(level[order], np.arange(1, level.max(initial=0) + 2))
    for start, stop in pairwise(ends):
        nodes = order[start:stop]
        stats[nodes] = stats[tree.child_index[tree.child_ptr[nodes]]]
        for c in range(1, int(n_children[nodes].max())):
            nodes = nodes[n_children[nodes] > c]
            stats[nodes] = model.merge(
                stats[nodes], stats[tree.child_index[tree.child_ptr[nodes] + c]]
            )
    return stats


class _Upward(NamedTuple):
    value: FloatArray
    log_odds: FloatArray


def _upward(tree: Tree, leaf: FloatArray, one: FloatArray, log_split: FloatArray) -> _Upward:
    """Run ``value = logaddexp(one, log_split + Σ_children value)`` from the leaves to the roots."""
    n = tree.n_leaves
    value = np.concatenate([leaf, one])
    log_odds = np.full(tree.n_nodes, np.inf)
    below = [0.0] * tree.n_nodes
    parent = tree.parent.tolist()
    for node in range(tree.n_nodes):
        if node >= n:
            split = below[node] + log_split[node - n]
            log_odds[node] = one[node - n] - split
            value[node] = np.logaddexp(one[node - n], split)
        if parent[node] >= 0:
            below[parent[node]] += float(value[node])
    return _Upward(value, log_odds)


def _sums_below(tree: Tree, leaf_values: FloatArray) -> FloatArray:
    total = np.zeros(tree.n_nodes)
    total[: tree.n_leaves] = leaf_values
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            total[above] += total[node]
    return total


def _separation(tree: Tree, log_odds: FloatArray) -> FloatArray:
    """Return each node's height: the probability that two leaves joined there are apart.

    It is the product of ``1 - r`` from the root down to the node.
    """
    log_height = -np.logaddexp(0.0, log_odds)
    parent = tree.parent.tolist()
    for node in range(tree.n_nodes - 1, -1, -1):
        if parent[node] >= 0:
            log_height[node] += log_height[parent[node]]
    return np.asarray(np.exp(log_height))
