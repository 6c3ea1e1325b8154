"""Ways to a tree besides the papers' greedy order, all scored by the same evidence.

Merge order matters: under a vague prior, or on nested data, the greedy order fails where a
linkage tree scored under the same model does well. A candidate costs little, and its evidence is
directly comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust import _progress
from bhclust._coordinates import Prior
from bhclust._fixed_tree import FixedTree, evaluate
from bhclust._gpu.device import DeviceName
from bhclust._linkage import LinkageMethod, linkage_parent
from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.agglomerate import (
    EngineName,
    Merge,
    SearchInfo,
    agglomerate,
    assemble,
    make_engine,
    score_tree,
)
from bhclust.frontier import Frontier, odds_scores, ratio_scores
from bhclust.mixing import DirichletProcess, Mixing
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

#: what each strategy tries, cheapest and most faithful to the papers first
STRATEGIES: dict[str, tuple[str, ...]] = {
    "greedy": ("greedy",),
    "rounds": ("rounds",),
    "ward": ("ward",),
    "average": ("average",),
    "best": ("greedy", "ward", "average"),
    "all": ("greedy", "ward", "average", "rounds"),
}
# Statistics of a linkage tree that take more than this are made again for every prior.
_KEPT_BYTES = 1 << 28


class Leaves(NamedTuple):
    """The items that a tree is built of.

    ``features`` gives rows of numbers for linkage when it is called, or None where there are none.
    """

    stats: FloatArray
    weight: FloatArray
    names: tuple[str, ...] | None
    features: Callable[[], FloatArray] | None

    def take(self, rows: IntArray) -> Leaves:
        """Return some of the items."""
        every = self.features
        names = None if self.names is None else tuple(self.names[row] for row in rows)
        some = None if every is None else (lambda: every()[rows])
        return Leaves(self.stats[rows], self.weight[rows], names, some)


class Candidate(NamedTuple):
    """A topology, where it comes from, its evidence, and the scored tree if it is there already."""

    fixed: FixedTree
    origin: str
    evidence: float
    tree: Tree | None


class Builder:
    """Builds the tree of a strategy for any prior; linkage topologies are found only once.

    Parameters
    ----------
    leaves : Leaves
        The items.
    strategy : str
        One of `STRATEGIES`.
    rose : bool
        Whether nodes may have any number of children.
    engine, n_jobs, device
        As in `agglomerate`; other strategies than greedy run on the processor, and where none of
        the candidates is greedy, so does learning.

    Attributes
    ----------
    origin : str
        Which candidate the last call returned.
    search : SearchInfo
        What the last search cost.
    candidates : dict of str to float
        Evidence of every candidate of the last call.
    """

    def __init__(
        self,
        leaves: Leaves,
        strategy: str,
        *,
        rose: bool,
        engine: EngineName = "auto",
        n_jobs: int | None = None,
        device: DeviceName = "cpu",
    ) -> None:
        self.leaves, self.rose, self.engine, self.n_jobs = leaves, rose, engine, n_jobs
        self.device = device
        self.tried = STRATEGIES[strategy]
        self.origin = ""
        self.search = SearchInfo("none", 0, 0)
        self.candidates: dict[str, float] = {}
        self._topology: dict[str, npt.NDArray[np.int32]] = {}
        self._linkage: dict[str, FixedTree] = {}

    def __call__(self, prior: Prior, known: Tree | None = None) -> Tree:
        """Return the tree of highest evidence; several candidates include the known topology."""
        self.candidates = {}
        best: Candidate | None = None
        for candidate in self._candidates(prior, known):
            self.candidates[candidate.origin] = candidate.evidence
            # Only the best is kept: a tree may be as large as the table, or larger.
            if best is None or candidate.evidence > best.evidence:
                best = candidate
            del candidate
        assert best is not None
        self.origin = best.origin
        return self._score(best.fixed.parent, prior) if best.tree is None else best.tree

    def _candidates(self, prior: Prior, known: Tree | None) -> Iterator[Candidate]:
        origins = self._affordable(prior.mixing)
        for place, origin in enumerate(origins):
            with _progress.part(place, len(origins)):
                candidate = self._candidate(origin, prior)
            yield candidate
            del candidate
        if known is not None and len(self.tried) > 1:
            fixed = FixedTree.of(known)
            yield Candidate(fixed, "kept", evaluate(fixed, *prior).value, None)

    @property
    def learning_device(self) -> DeviceName:
        """Where hyperparameters are learned on the trees that are built here."""
        return self.device if "greedy" in self.tried else "cpu"

    def _affordable(self, mixing: Mixing) -> tuple[str, ...]:
        if len(self.tried) == 1:
            return self.tried
        # The bound of a Dirichlet process sums over more partitions the more a tree is resolved:
        # a binary linkage tree would always beat a rose tree, whatever it says.
        rose_bound = self.rose and isinstance(mixing, DirichletProcess)
        if rose_bound or self.leaves.features is None or len(self.leaves.stats) < 3:
            return ("greedy",)
        return self.tried

    def _candidate(self, origin: str, prior: Prior) -> Candidate:
        stats, weight, names, _ = self.leaves
        model, mixing = prior
        if origin == "greedy":
            tree, self.search = agglomerate(
                model,
                stats,
                mixing,
                rose=self.rose,
                weight=weight,
                engine=self.engine,
                n_jobs=self.n_jobs,
                device=self.device,
                leaf_names=names,
            )
            return _judged(tree, origin, prior)
        if origin == "rounds":
            parent, self.search = rounds(
                model, stats, mixing, rose=self.rose, weight=weight, engine=self.engine
            )
            return _judged(self._score(parent, prior), origin, prior)
        fixed = self._linked("ward" if origin == "ward" else "average", prior)
        if self.rose and not isinstance(mixing, DirichletProcess):
            binary = self._score(fixed.parent, prior)
            del fixed
            parent = collapsed(binary, mixing)
            del binary
            return _judged(self._score(parent, prior), origin, prior)
        return Candidate(fixed, origin, evaluate(fixed, model, mixing).value, None)

    def _score(self, parent: npt.NDArray[np.int32], prior: Prior) -> Tree:
        stats, weight, names, _ = self.leaves
        return score_tree(parent, prior.model, stats, prior.mixing, weight=weight, leaf_names=names)

    def _linked(self, method: LinkageMethod, prior: Prior) -> FixedTree:
        """Return a linkage tree; its topology and statistics are the same for every prior."""
        if self.leaves.features is None:
            raise BhclustError(f"strategy={method!r} needs rows of numbers for the linkage.")
        if method in self._linkage:
            return self._linkage[method]
        if method not in self._topology:
            features = self.leaves.features()
            self._topology[method] = linkage_parent(features, self.leaves.weight, method)
            del features
        fixed = FixedTree.of(self._score(self._topology[method], prior))
        if fixed.stats.nbytes <= _KEPT_BYTES:
            self._linkage[method] = fixed
        return fixed


def _judged(tree: Tree, origin: str, prior: Prior) -> Candidate:
    fixed = FixedTree.of(tree)
    return Candidate(fixed, origin, evaluate(fixed, *prior, log_f=tree.log_marginal).value, tree)


class _Row(NamedTuple):
    """Scores of one cluster against all other live ones."""

    others: IntArray
    score: FloatArray
    tiebreak: FloatArray


class _Rounds:
    """Every live cluster's best partner among all others, and the engine that scores pairs."""

    def __init__(
        self,
        model: ClusterModel,
        stats: FloatArray,
        mixing: Mixing,
        weight: FloatArray,
        *,
        rose: bool,
        engine: EngineName,
    ) -> None:
        n = len(stats)
        self.frontier = Frontier(model.log_marginal(stats), weight, mixing)
        self.engine = make_engine(engine, model, stats, self.frontier, rose=rose)
        self.live = np.arange(n)
        self.partner = np.full(2 * n - 1, -1, dtype=np.intp)
        self.score = np.full((2 * n - 1, 2), -np.inf)  # score and tiebreak
        self.n_rescans = 0
        self._scores = ratio_scores if rose else odds_scores
        self._rose = rose

    def row(self, i: int) -> _Row:
        """Score cluster i against all other live clusters, in the order of their ids."""
        others = self.live[self.live != i]
        log_f = self.engine.log_f_with(i, others)
        return _Row(others, *self._scores(self.frontier, i, others, log_f))

    def find_partner(self, i: int) -> None:
        """Find cluster i's best partner among all live ones."""
        row = self.row(i)
        self.n_rescans += 1
        if not len(row.others):
            self.partner[i] = -1
            return
        # lexsort is stable: on a full tie the lowest id, which comes first in the reversed keys.
        best = np.lexsort((-row.others, row.tiebreak, row.score))[-1]
        self.partner[i] = row.others[best]
        self.score[i] = row.score[best], row.tiebreak[best]

    def mutual_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of clusters that are each other's best partner."""
        best = self.partner[self.live]
        mutual = (self.partner[best] == self.live) & (self.live < best)
        return [(int(i), int(self.partner[i])) for i in self.live[mutual]]

    def best_pair(self) -> tuple[int, int]:
        """Return the pair of the best score: ties may leave no mutual pair."""
        at = np.lexsort((-self.live, self.score[self.live, 1], self.score[self.live, 0]))[-1]
        i, j = int(self.live[at]), int(self.partner[self.live[at]])
        return min(i, j), max(i, j)

    def merge(self, i: int, j: int) -> Merge:
        """Merge two clusters."""
        log_f, operation = self.engine.choose(self.frontier, i, j)
        k = self.engine.merge(self.frontier, i, j, operation, log_f)
        self.live = np.append(self.live[(self.live != i) & (self.live != j)], k)
        return Merge(i, j, operation, log_f)

    def refresh(self, first_new: int) -> None:
        """Bring the best partners up to date after a round of merges."""
        orphans = ~np.isin(self.partner[self.live], self.live) & (self.live < first_new)
        for i in self.live[orphans].tolist():
            self.find_partner(i)
        # Ascending ids: a new cluster is offered to the older ones, which win ties.
        for k in self.live[self.live >= first_new].tolist():
            self.find_partner(k)
            row = self.row(k)
            old = self.score[row.others]
            better = (row.score > old[:, 0]) | (
                (row.score == old[:, 0]) & (row.tiebreak > old[:, 1])
            )
            better &= row.others < first_new
            self.partner[row.others[better]] = k
            self.score[row.others[better]] = np.column_stack([row.score, row.tiebreak])[better]


def rounds(
    model: ClusterModel,
    leaf_stats: FloatArray,
    mixing: Mixing,
    *,
    rose: bool = False,
    weight: FloatArray | None = None,
    engine: EngineName = "auto",
) -> tuple[npt.NDArray[np.int32], SearchInfo]:
    """Merge all mutually best pairs at once, round by round, by the scores of the greedy search.

    Parameters
    ----------
    model, leaf_stats, mixing, rose, weight, engine
        As in `bhclust.agglomerate.agglomerate`.

    Returns
    -------
    parent : array of int32
    info : SearchInfo

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=float)
    >>> model = Bernoulli(a=0.5, b=0.5).resolve(X)
    >>> parent, info = rounds(model, model.suffstats(X), DirichletProcess(1.0))
    >>> parent.tolist()
    [4, 4, 5, 5, 6, 6, -1]
    """
    n = len(leaf_stats)
    weight = np.ones(n) if weight is None else weight
    state = _Rounds(model, leaf_stats, mixing, weight, rose=rose, engine=engine)
    for i in range(n):
        state.find_partner(i)
    merges: list[Merge] = []
    while len(merges) < n - 1:
        first_new = n + len(merges)
        pairs = state.mutual_pairs() or [state.best_pair()]
        merges += [state.merge(i, j) for i, j in pairs]
        if len(state.live) > 1:
            state.refresh(first_new)
    info = SearchInfo(state.engine.name, state.engine.n_pairs, state.n_rescans)
    return assemble(n, merges).parent, info


def collapsed(tree: Tree, mixing: Mixing) -> npt.NDArray[np.int32]:
    """Return the parents after dissolving every node whose absence raises ``log p(D | T)``.

    Nodes are visited from the leaves up. At each one the child whose dissolution raises its
    evidence most is dissolved (its children move up), and again until none helps; evidence above
    only rises with it. For priors without a normaliser (`Constant`, `Rose`).

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.mixing import Rose
    >>> from bhclust.models import Bernoulli
    >>> X = np.tile([1.0, 0.0, 1.0], (3, 1))
    >>> model = Bernoulli(a=0.5, b=0.5).resolve(X)
    >>> chain = score_tree([3, 3, 4, 4, -1], model, model.suffstats(X), Rose(0.5))
    >>> collapsed(chain, Rose(0.5)).tolist()
    [3, 3, 3, -1]
    """
    return without(tree.parent, dissolvable(tree, mixing))


def dissolvable(tree: Tree, mixing: Mixing) -> npt.NDArray[np.bool_]:
    """Return which nodes `collapsed` takes out."""
    assert tree.log_marginal is not None
    n, log_f = tree.n_leaves, tree.log_marginal
    evidence = log_f.copy()
    children: dict[int, list[int]] = {}
    below: dict[int, float] = {}  # sum of the children's evidence
    dissolved = np.zeros(tree.n_nodes, dtype=np.bool_)
    for node in range(n, tree.n_nodes):
        own = tree.children(node).tolist()
        total = float(evidence[own].sum())
        value = _mixed(mixing, len(own), float(log_f[node]), total)
        while inner := [child for child in own if child >= n]:
            sums = np.array([total - evidence[child] + below[child] for child in inner])
            sizes = np.array([len(own) - 1 + len(children[child]) for child in inner])
            values = _mixed(mixing, sizes, float(log_f[node]), sums)
            best = int(np.argmax(values))
            # Equal but for rounding counts as a rise: the tree is simpler.
            if values[best] < value - 1e-9:
                break
            value, total = float(values[best]), float(sums[best])
            dissolved[inner[best]] = True
            own.remove(inner[best])
            own += children.pop(inner[best])
        children[node], below[node], evidence[node] = own, total, value
    return dissolved


def _mixed(mixing: Mixing, n_children: Any, log_f: float, split: Any) -> Any:
    one = mixing.log_one(0.0, n_children) + log_f
    return np.logaddexp(one, mixing.log_split(n_children) + split)


def without(
    parent: npt.NDArray[np.int32], dissolved: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int32]:
    """Return the parents after taking out nodes, whose children move up."""
    above = parent.copy()
    for node in range(len(parent) - 1, -1, -1):
        if above[node] >= 0 and dissolved[above[node]]:
            above[node] = above[above[node]]
    new_id = np.append(np.cumsum(~dissolved) - 1, -1)
    return np.asarray(new_id[above[~dissolved]], dtype=np.int32)
