"""New items: their density, where they hang, and their missing entries.

A new lineage starts at age 0 and meets one of the m lineages of the tree at rate 1 each. In the
coordinate w = probability of not having met any before, the density of a new item is the plain
average over w in (0, 1) of its density at that age, over the lineages alive then. A quadrature in
w is therefore a mixture whose weights add up to one exactly, however coarse it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bhclust._validation import BhclustError, FloatArray, IntArray
from bhclust.coalescent import _predict_loops as loops
from bhclust.coalescent._loops import Int64Array
from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.processes import EntryMoments, Process
from bhclust.tree import Tree

# Quadrature: nodes in a panel, the least mass of a panel of several mergers, the most of any.
_ORDER = 6
_MIN_MASS = 1 / 128
_MAX_MASS = 1 / 12

# Scores of items at points held in memory together.
_BLOCK = 2_000_000


class Attachments(NamedTuple):
    """Where a new item may hang: branch (the node below), age, and log weight of each point."""

    branch: Int64Array
    age: FloatArray
    log_weight: FloatArray


class Placement(NamedTuple):
    """Most probable branch of each item (the node below it) and the mean age on it."""

    branch: IntArray
    age: FloatArray
    probability: FloatArray


def attachment_points(tree: Tree, order: int = _ORDER) -> Attachments:
    """Return the points of a quadrature over all places where a new lineage may meet the tree.

    Weights add up to one.
    """
    if not tree.is_binary or len(tree.roots) != 1:
        raise BhclustError("a new item is placed on a binary tree with one root; this one is not.")
    n = tree.n_leaves
    by_age = n + np.argsort(tree.height[n:], kind="stable")
    rank = np.full(tree.n_nodes, -1)
    rank[by_age] = np.arange(n - 1)
    end_rank = np.where(tree.parent >= 0, rank[tree.parent], n - 1)
    events = np.concatenate([[0.0], tree.height[by_age]])
    lineages = np.arange(n, 0, -1)
    hazard = np.concatenate([[0.0], np.cumsum(lineages[:-1] * np.diff(events))])
    nodes, weights = np.polynomial.legendre.leggauss(order)
    branches, ages, log_weights = [], [], []
    edges = _panel_edges(np.exp(-hazard))
    for high, low in pairwise(edges):
        if high <= low:
            continue
        for node, weight in zip(nodes, weights, strict=True):
            met = -np.log(low + 0.5 * (node + 1) * (high - low))
            interval = min(int(np.searchsorted(hazard, met, side="right")) - 1, n - 1)
            m = int(lineages[interval])
            age = events[interval] + (met - hazard[interval]) / m
            alive = np.flatnonzero((rank < interval) & (end_rank >= interval))
            branches.append(alive)
            ages.append(np.full(len(alive), age))
            log_weights.append(np.full(len(alive), np.log(0.5 * weight * (high - low) / m)))
    return Attachments(
        np.concatenate(branches).astype(np.int64), np.concatenate(ages), np.concatenate(log_weights)
    )


def _panel_edges(survival: FloatArray) -> list[float]:
    """Return where panels begin and end: at mergers, but not at every one of many.

    Wide panels are split. Both ends are approached in powers of ten, because the density changes
    fast where an item hangs right above a leaf, and slowly but without end above the root.
    """
    edges = [1.0]
    for value in survival[1:-1]:
        if edges[-1] - value >= _MIN_MASS:
            edges.append(float(value))
    root = float(survival[-1])
    edges += [1 - 10.0**-power for power in (4, 3, 2)]
    edges += [root, *(root * 10.0**-power for power in (1, 2, 3, 4)), 0.0]
    out = sorted({edge for edge in edges if edge <= 1.0}, reverse=True)
    wide = [
        np.linspace(high, low, int((high - low) / _MAX_MASS) + 2)[1:] for high, low in pairwise(out)
    ]
    return [1.0, *np.concatenate(wide).tolist()]


@dataclass(frozen=True, eq=False)
class Predictor:
    """A tree with its data, ready for new items.

    Parameters
    ----------
    process : Brownian or Mutation
        Resolved.
    tree : Tree
        Binary, heights are ages.
    X : array, shape (n_leaves, n_columns)
        The encoded table of the leaves.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, Predictor, greedy_tree
    >>> X = np.array([[0.0], [0.1], [3.0]])
    >>> process = Brownian(1.0).resolve(X)
    >>> predictor = Predictor(process, greedy_tree(process.leaves(X)), X)
    >>> near, far = predictor.log_density(np.array([[0.05], [10.0]]))
    >>> bool(near > far)
    True
    """

    process: Process
    tree: Tree
    X: FloatArray

    @cached_property
    def points(self) -> Attachments:
        """Where a new item may hang."""
        return attachment_points(self.tree)

    @cached_property
    def _tables(self) -> list[Any]:
        """What the compiled loops read of the tree."""
        messages = self.process.messages(self.tree, self.X)
        place = [self.tree.parent, self.tree.height]
        if isinstance(self.process, Brownian):
            upwards = [messages.mean, messages.variance]
            downwards = [messages.down_mean, messages.down_precision]
            return [*place, *upwards, *downwards, float(self.process.leaf_variance or 0.0)]
        if isinstance(self.process, Mutation):
            sites = [self.process.rates, self.process.flat_equilibrium, self.process.offsets]
            return [*place, *sites, messages.up, messages.down]
        raise BhclustError(
            f"Predictor takes a Brownian or a Mutation process, got {type(self.process).__name__}."
        )

    def _scores(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of rows with their scores at every point."""
        step = max(1, _BLOCK // len(self.points.branch))
        for start in range(0, len(X), step):
            rows = slice(start, min(start + step, len(X)))
            scores = np.empty((rows.stop - start, len(self.points.branch)))
            if isinstance(self.process, Brownian):
                items = self.process.whiten(X[rows])
                loops.gaussian_scores(*[*self._tables, *self.points, items, scores])
            else:
                assert isinstance(self.process, Mutation)
                codes = self.process.codes(X[rows])
                loops.sites_scores(*[*self._tables, *self.points, codes, scores])
            yield rows, scores

    def _shares(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of rows with the probability that they hang at each point."""
        for rows, scores in self._scores(X):
            # A row that float64 finds infinitely far from every point hangs anywhere.
            scores[np.isneginf(scores).all(axis=1)] = 0.0
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
            yield rows, scores

    def log_density(self, X: FloatArray) -> FloatArray:
        """Return log p(x | tree, data) of each row; missing entries are left out."""
        out = np.empty(len(X))
        for rows, scores in self._scores(X):
            out[rows] = logsumexp(scores, axis=1)
        if isinstance(self.process, Brownian):
            out -= (~np.isnan(X)) @ self.process.log_scales()
        return out

    def branch_probabilities(self, X: FloatArray) -> FloatArray:
        """Return the probability that each row hangs on the branch above each node."""
        out = np.zeros((len(X), self.tree.n_nodes))
        for rows, shares in self._shares(X):
            for i, row in enumerate(shares, start=rows.start):
                out[i] = np.bincount(self.points.branch, row, minlength=self.tree.n_nodes)
        return out

    def nearest_branch(self, X: FloatArray) -> Placement:
        """Return the most probable branch of each row and the mean age at which it hangs there."""
        out = Placement(np.empty(len(X), np.intp), np.empty(len(X)), np.empty(len(X)))
        for rows, shares in self._shares(X):
            for i, row in enumerate(shares, start=rows.start):
                mass = np.bincount(self.points.branch, row, minlength=self.tree.n_nodes)
                branch = int(mass.argmax())
                on_branch = self.points.branch == branch
                out.branch[i], out.probability[i] = branch, mass[branch]
                out.age[i] = (row[on_branch] @ self.points.age[on_branch]) / mass[branch]
        return out

    def moments(self, X: FloatArray) -> EntryMoments:
        """Return mean and variance of every entry given the row's observed ones (Brownian)."""
        if not isinstance(self.process, Brownian):
            raise BhclustError("moments are for a Brownian process; use probabilities(X) instead.")
        first = np.zeros((len(X), self.X.shape[1]))
        second = np.zeros_like(first)
        for rows, shares in self._shares(X):
            sums = [first[rows], second[rows]]
            loops.gaussian_moments(*[*self._tables, *self.points[:2], shares, *sums])
        return self.process.unwhiten(EntryMoments(first, second - first**2))

    def probabilities(self, X: FloatArray) -> FloatArray:
        """Return the probability of every state of every site, flat (Mutation)."""
        if not isinstance(self.process, Mutation):
            raise BhclustError("probabilities are for a Mutation process; use moments(X) instead.")
        out = np.zeros((len(X), len(self.process.flat_equilibrium)))
        for rows, shares in self._shares(X):
            loops.sites_probabilities(*[*self._tables, *self.points[:2], shares, out[rows]])
        return out

    def impute(self, X: FloatArray) -> FloatArray:
        """Return rows with their missing entries replaced by their mean or most probable value."""
        missing = np.isnan(X)
        if not missing.any():
            return X
        if isinstance(self.process, Mutation):
            filled = self.process.most_probable(self.probabilities(X))
        else:
            filled = self.moments(X).mean
        return np.asarray(np.where(missing, filled, X))

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw new items."""
        weights = np.exp(self.points.log_weight)
        chosen = rng.choice(len(weights), size=n, p=weights / weights.sum())
        width = self.X.shape[1]
        out = np.empty((n, width))
        if isinstance(self.process, Brownian):
            centre, spread = np.empty(width), np.empty(width)
            for i, p in enumerate(chosen):
                point = [self.points.branch[p], self.points.age[p]]
                loops.gaussian_point(*[*self._tables, *point, centre, spread])
                out[i] = centre + np.sqrt(spread) * rng.standard_normal(width)
            return self.process.unwhiten(EntryMoments(out, np.ones_like(out))).mean
        assert isinstance(self.process, Mutation)
        probability = np.empty(len(self.process.flat_equilibrium))
        for i, p in enumerate(chosen):
            point = [self.points.branch[p], self.points.age[p]]
            loops.sites_point(*[*self._tables, *point, probability])
            parts = self.process.split(probability)
            out[i] = [rng.choice(len(q), p=q / q.sum()) for q in parts]
        return out


def heldout_log_likelihood(
    process: Process, tree: Tree, X: FloatArray, X_full: FloatArray
) -> float:
    """Return log p(entries missing in X | X, tree) of all of them together.

    Entries that are missing in ``X_full`` too are left out.
    """
    known = ~np.isnan(X)
    if not np.array_equal(np.where(known, X_full, 0.0), np.where(known, X, 0.0)):
        raise BhclustError(
            "heldout_log_likelihood: the full table must have the fitted values wherever the "
            "fitted table has one."
        )
    full = process.log_likelihood(tree, X_full)
    # A flat root has no density for a column that had no value at all: both sides leave out the
    # column's first value, which is the only one that tells where the column lies.
    return full - process.log_likelihood(tree, X)
