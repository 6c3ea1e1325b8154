"""The exact greedy search for binary (BHC) and rose trees (BRT), and the score of any tree.

A pair's score never changes while both clusters live, so every pair is scored about once and
nothing of size n × n is kept: each live cluster remembers its best partner among the clusters
with higher ids. When that partner is merged away, the entry becomes stale and its score stays as
an upper bound; a stale entry is scanned again only when its bound comes up as the best of all.
The result is the tree of the plain O(n³) search.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bhclust import _progress
from bhclust._gpu.device import (
    DEVICE_ROWS,
    Device,
    DeviceName,
    check_device,
    cuda_device,
    has_cuda,
)
from bhclust._gpu.encode import has_kernels
from bhclust._gpu.search import DeviceSearch
from bhclust._kernels.compile import announced_compilation
from bhclust._kernels.engine import CompiledEngine, make_parts, n_slots_for
from bhclust._kernels.loop import CompiledLoop
from bhclust._kernels.passes import sum_downward, sum_upward, upward
from bhclust._kernels.pool import pooled_stats
from bhclust._validation import BhclustError, FloatArray, IntArray, check_choice, check_count
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
    log_f: float


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

    def log_f_with(self, i: int, others: IntArray) -> FloatArray:
        """Return ``log f`` of cluster i with each of some live clusters, ids in order."""


def agglomerate(
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    *,
    rose: bool = False,
    weight: FloatArray | None = None,
    engine: EngineName = "auto",
    n_jobs: int | None = None,
    device: DeviceName | Device = "cpu",
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
    n_jobs : int, optional
        Threads of the compiled engine, -1 for one a processor; one by default. The first pairs
        of large tables are shared among them. The result does not depend on it.
    device : {"cpu", "cuda", "auto"}
        Where the search runs. ``"cuda"`` takes a graphics processor, for the library's own models
        with unit weights, and gives the same tree; ``"auto"`` takes one if there is one for the
        model and the table is large. `engine` is for the processor.
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
    chosen = choose_device(device, model, leaf_stats, weight)
    n_threads = _n_threads(n_jobs)
    if chosen is not None:
        # The search, and its memory on the device, are gone when this statement is done.
        found = DeviceSearch(chosen, model, leaf_stats, mixing, rose=rose).run(progress)
        info = SearchInfo(chosen.name, found.n_pairs, found.n_rescans)
        log_f = found.leaf_log_f
        return _scored(found.steps, info, model, leaf_stats, mixing, weight, log_f, leaf_names)
    leaf_log_f = model.log_marginal(leaf_stats)
    frontier = Frontier(leaf_log_f, weight, mixing)
    worker = make_engine(engine, model, leaf_stats, frontier, rose=rose, n_threads=n_threads)
    merges: list[Merge] | FloatArray
    with announced_compilation():
        loop = worker.loop(frontier) if isinstance(worker, CompiledEngine) else None
        _progress.follow(partial(_share_done, n, frontier, worker if loop is None else loop))
        if loop is None:
            merges, info = _search(worker, frontier, progress=progress)
        else:
            merges, info = _search_compiled(loop, worker.name, progress=progress)
    _progress.follow(lambda: 1.0)
    del worker, frontier, loop  # the tree's own statistics take their place
    return _scored(merges, info, model, leaf_stats, mixing, weight, leaf_log_f, leaf_names)


def _scored(
    merges: list[Merge] | FloatArray,
    info: SearchInfo,
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    weight: FloatArray,
    leaf_log_f: FloatArray,
    leaf_names: tuple[str, ...] | None,
) -> Agglomeration:
    """Return the tree that the merges make, with all node quantities."""
    parent, log_f = assemble(len(leaf_stats), merges)
    tree = score_tree(
        parent,
        model,
        leaf_stats,
        mixing,
        weight=weight,
        leaf_names=leaf_names,
        log_marginal=np.concatenate([leaf_log_f, log_f]),
    )
    return Agglomeration(tree, info)


def choose_device(
    device: DeviceName | Device, model: ClusterModel, leaf_stats: FloatArray, weight: FloatArray
) -> Device | None:
    """Return the device that a search runs on, None for the processor."""
    check_device(device, "agglomerate")
    if device == "cpu":
        return None
    known, single = has_kernels(model), bool((weight == 1).all())
    if device == "auto":
        worthwhile = known and single and len(leaf_stats) >= DEVICE_ROWS
        return cuda_device() if worthwhile and has_cuda() else None
    if not known:
        raise BhclustError(
            f"device='cuda' has no kernels for the model {type(model).__name__}; use device='cpu', "
            "or 'auto', which takes the processor for it."
        )
    if not single:
        raise BhclustError(
            "device='cuda' searches rows of weight 1 only, and the weights go from "
            f"{weight.min():g} to {weight.max():g}; use device='cpu', or leave sample_weight out."
        )
    return device if not isinstance(device, str) else cuda_device()


def make_engine(
    name: EngineName,
    model: ClusterModel,
    leaf_stats: FloatArray,
    frontier: Frontier,
    *,
    rose: bool,
    n_threads: int = 1,
) -> Engine:
    """Return the engine of a name for a model, with the frontier that it will work on."""
    check_choice(name, ("auto", "numpy", "compiled"), name="engine", owner="agglomerate")
    n = frontier.n_leaves
    if name != "numpy" and bool((frontier.weight[:n] == 1).all()):
        parts = make_parts(model, leaf_stats, n_slots_for(n))
        if parts is not None:
            return CompiledEngine(parts, frontier, rose=rose, n_threads=n_threads)
    if name == "compiled":
        raise BhclustError(
            f"engine='compiled' has no kernels for {type(model).__name__} with these weights; "
            "use engine='auto' or 'numpy'."
        )
    return NumpyEngine(model, leaf_stats, rose=rose)


def _n_threads(n_jobs: int | None) -> int:
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    return check_count(n_jobs, name="n_jobs", owner="agglomerate")


def _share_done(n: int, frontier: Frontier, counts: Engine | CompiledLoop) -> float:
    """Return about which share of a search is done: half is the first pairs, half the merges.

    The merges get cheaper as clusters become fewer, so their share goes by the square.
    """
    merged = counts.n_merges if isinstance(counts, CompiledLoop) else frontier.next_id - n
    if merged == 0:
        return min(counts.n_pairs / max(n * (n - 1), 1), 0.5)
    return 1.0 - 0.5 * ((n - merged) / n) ** 2


def _search(
    engine: Engine, frontier: Frontier, *, progress: Progress | None
) -> tuple[list[Merge], SearchInfo]:
    """Return the merges in order, and what they cost."""
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
        merges.append(Merge(i, j, operation, log_f))
        if progress is not None:
            progress(len(merges), n - 1)
    return merges, SearchInfo(engine.name, engine.n_pairs, n_rescans)


def _search_compiled(
    loop: CompiledLoop, name: str, *, progress: Progress | None
) -> tuple[FloatArray, SearchInfo]:
    """Run a search that is compiled as a whole, coming back now and then.

    Returns what `Merge` has, one row a merge.
    """
    total = len(loop.merges)
    done = 0
    while done < total:
        done = loop.advance()
        if progress is not None:
            progress(done, total)
    steps = np.column_stack([loop.merges, loop.log_f])
    return steps, SearchInfo(name, loop.n_pairs, loop.n_rescans)


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
            frontier.best_score[i] = frontier.best_tiebreak[i] = frontier.runner_up[i] = -np.inf
            return
        score, tiebreak = self._pair_scores(frontier, i, others)
        position = _first_best(score, tiebreak)
        frontier.best_score[i] = score[position]
        frontier.best_tiebreak[i] = tiebreak[position]
        frontier.best_partner[i] = others[position]
        score[position] = -np.inf
        frontier.runner_up[i] = score.max()

    def offer(self, frontier: Frontier, k: int, i: int, j: int) -> None:
        others = self._live[:-1]
        if not len(others):
            return
        score, tiebreak = self._pair_scores(frontier, k, others)
        partner = frontier.best_partner[others]
        lost = others[(partner == i) | (partner == j)]
        frontier.stale[lost] = True
        if not self._rose:
            frontier.best_score[lost] = frontier.runner_up[lost]
        best, best_tiebreak = frontier.best_score[others], frontier.best_tiebreak[others]
        # Only a strictly better offer wins: on a tie every older partner has a lower id than k.
        better = (score > best) | ((score == best) & (tiebreak > best_tiebreak))
        frontier.runner_up[others] = np.maximum(frontier.runner_up[others], np.minimum(score, best))
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
        return self._scores(frontier, i, others, self.log_f_with(i, others))

    def log_f_with(self, i: int, others: IntArray) -> FloatArray:
        self.n_pairs += len(others)
        log_f = np.empty(len(others))
        for start in range(0, len(others), self._block):
            part = slice(start, start + self._block)
            unions = self._model.merge(self._stats[i : i + 1], self._stats[others[part]])
            log_f[part] = self._model.log_marginal(unions)
        return log_f


def _first_best(score: FloatArray, tiebreak: FloatArray) -> int:
    """Return the position of the best score, then the best tiebreak, then the lowest position."""
    first = int(np.argmax(score))
    tied = np.flatnonzero(score == score[first])
    return first if len(tied) == 1 else int(tied[np.argmax(tiebreak[tied])])


class Assembled(NamedTuple):
    """The topology that merges make, and ``log f`` of its internal nodes."""

    parent: npt.NDArray[np.int32]
    log_f: FloatArray


def assemble(n_leaves: int, merges: list[Merge] | FloatArray) -> Assembled:
    """Return the tree that the merges make.

    A root that was opened by absorb or collapse is dissolved: its children hang below the merger.
    """
    n_ids = n_leaves + len(merges)
    raw_parent = np.full(n_ids, -1, dtype=np.int32)
    dissolved = np.zeros(n_ids, dtype=np.bool_)
    steps = np.asarray(merges, dtype=np.float64).reshape(-1, 4)
    left, right, operation = steps[:, :3].T.astype(np.int64)
    raw_parent[left] = raw_parent[right] = np.arange(n_leaves, n_ids)
    dissolved[left] = np.isin(operation, (Operation.ABSORB_RIGHT, Operation.COLLAPSE))
    dissolved[right] = np.isin(operation, (Operation.ABSORB_LEFT, Operation.COLLAPSE))
    stands_for = np.arange(n_ids)
    for node in np.flatnonzero(dissolved)[::-1]:
        stands_for[node] = stands_for[raw_parent[node]]
    new_id = np.cumsum(~dissolved) - 1
    has_parent = raw_parent >= 0
    parent = np.full(n_ids, -1, dtype=np.int32)
    parent[has_parent] = new_id[stands_for[raw_parent[has_parent]]]
    return Assembled(parent[~dissolved], steps[~dissolved[n_leaves:], 3])


def score_tree(
    parent: npt.ArrayLike,
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    *,
    weight: FloatArray | None = None,
    leaf_names: tuple[str, ...] | None = None,
    log_marginal: FloatArray | None = None,
) -> Tree:
    """Return the tree of a given topology with all node quantities computed bottom-up.

    Parameters
    ----------
    parent : array of int of shape (n_nodes,)
        Parents, -1 at a root; leaves first and ``parent[i] > i``.
    model, leaf_stats, mixing, weight, leaf_names
        As in `agglomerate`.
    log_marginal : array of shape (n_nodes,), optional
        ``log f`` of the nodes, if it is known already.

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
    stats.setflags(write=False)  # the tree takes a read-only array over without a copy
    log_f = model.log_marginal(stats) if log_marginal is None else log_marginal
    return score_nodes(bare, log_f, mixing, weight=weight, stats=stats, leaf_names=leaf_names)


def score_nodes(
    bare: Tree,
    log_f: FloatArray,
    mixing: Mixing,
    *,
    weight: FloatArray | None = None,
    stats: FloatArray | None = None,
    leaf_names: tuple[str, ...] | None = None,
) -> Tree:
    """Return a tree with all node quantities from its topology and ``log f`` of its nodes.

    Parameters
    ----------
    bare : Tree
        The topology.
    log_f : array of shape (n_nodes,)
        Log marginal likelihood of each node as one cluster.
    mixing : Mixing
        Prior weight of "one cluster".
    weight : array of shape (n_leaves,), optional
        Multiplicities of the leaves; ones by default.
    stats, leaf_names
        Carried into the tree.
    """
    n = bare.n_leaves
    node_weight = sum_upward(bare.parent, np.ones(n) if weight is None else weight)
    n_children = np.diff(bare.child_ptr)
    log_one = np.ascontiguousarray(mixing.log_one(node_weight[n:], n_children[n:]))
    log_split = np.ascontiguousarray(mixing.log_split(n_children[n:]))
    log_leaf = mixing.log_leaf(node_weight[:n])
    mass, log_odds = upward(bare.parent, n, log_leaf + log_f[:n], log_one + log_f[n:], log_split)
    # The prior's normaliser d obeys the same recursion with f = 1.
    log_d = np.zeros(bare.n_nodes)
    if mixing.has_normaliser:
        log_d, _ = upward(bare.parent, n, log_leaf, log_one, log_split)
    # Two leaves that meet at a node are apart if the walk from the root passes it.
    height = np.exp(sum_downward(bare.parent, -np.logaddexp(0.0, log_odds)))
    return Tree(
        parent=bare.parent,
        n_leaves=n,
        height=height,
        log_odds=log_odds,
        log_evidence=mass - log_d,
        log_marginal=log_f,
        stats=stats,
        leaf_names=leaf_names,
        weight=node_weight,
    )


def node_stats(tree: Tree, model: ClusterModel, leaf_stats: FloatArray) -> FloatArray:
    """Return the statistics of all nodes from those of the leaves.

    A model with a merge of its own is asked level by level.
    """
    known = pooled_stats(tree.parent, model, leaf_stats)
    if known is not None:
        return known
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
