"""One good tree: the three greedy searches of Teh, Daumé and Roy (2008, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bhclust._validation import FloatArray, IntArray, check_choice
from bhclust.coalescent._greedy_loops import (
    LONGEST,
    MAX_PROBABILITY,
    MIN_DURATION,
    Shortlists,
    pick,
    scan,
    scan_step,
    strike,
)
from bhclust.coalescent._loops import COMPLETE, merge_pair
from bhclust.coalescent._rejection import put_deviation, rejection
from bhclust.coalescent.history import Merges, tree_of_merges
from bhclust.coalescent.processes import Leaves
from bhclust.tree import Tree

GREEDY = ("greedy-rate1", "greedy-maxprob", "greedy-minduration")
Progress = Callable[[int, int], None]


class _Lineages(NamedTuple):
    """Live lineages in the first slots; memory is that of the leaves."""

    messages: FloatArray
    spreads: FloatArray
    ages: FloatArray
    ids: IntArray

    @classmethod
    def of(cls, leaves: Leaves) -> _Lineages:
        return cls(
            leaves.messages.copy(),
            leaves.spreads.copy(),
            np.zeros(leaves.n_leaves),
            np.arange(leaves.n_leaves),
        )

    def merge(self, leaves: Leaves, i: int, j: int, age: float, node: int) -> None:
        """Put the new node where lineage i was; lineage j stays behind, to be moved away."""
        merge_pair(
            leaves.spec,
            self.messages[i],
            self.spreads[i],
            self.ages[i],
            self.messages[j],
            self.spreads[j],
            self.ages[j],
            age,
            self.messages[i],
            self.spreads[i],
        )
        self.ages[i], self.ids[i] = age, node


def greedy_tree(
    leaves: Leaves,
    method: str = "greedy-rate1",
    *,
    leaf_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Tree:
    """Return one good binary tree with ages as heights.

    Parameters
    ----------
    leaves : Leaves
        The rows of a table as a process sees them: ``process.leaves(X)``.
    method : {"greedy-rate1", "greedy-maxprob", "greedy-minduration"}
        ``rate1`` gives each pair the rate 1 and joins the pair whose best age is the most recent,
        in O(n²) time and O(n d) memory. The other two use the rate of all lineages that are left
        and look at every pair again at every step, O(n³): ``maxprob`` takes the most probable
        pair at its best duration, ``minduration`` the pair with the shortest best duration.
    leaf_names : sequence of str, optional
    progress : callable, optional
        Called with the number of mergers done and to be done.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, greedy_tree
    >>> X = np.array([[0.0], [0.1], [3.0]])
    >>> tree = greedy_tree(Brownian().resolve(X).leaves(X))
    >>> tree.parent.tolist()
    [3, 3, 4, 4, -1]
    """
    check_choice(method, GREEDY, name="method", owner="greedy_tree")
    leaves = _turned(leaves)
    if method == "greedy-rate1":
        merges = _rate1(leaves, progress)
    else:
        criterion = MAX_PROBABILITY if method == "greedy-maxprob" else MIN_DURATION
        merges = _stepwise(leaves, criterion, progress)
    return tree_of_merges(merges, leaf_names)


def _turned(leaves: Leaves) -> Leaves:
    """Return leaves with at most as many coordinates as there are rows.

    Diffusion is the same in every direction, so that complete rows may be turned: all distances
    stay, and they are all that the searches see.
    """
    n, d = leaves.messages.shape
    if leaves.spec.kind != COMPLETE or d <= n:
        return leaves
    # Equal rows stay equal to the last bit if each is turned only once.
    rows, which = np.unique(leaves.messages, axis=0, return_inverse=True)
    corner = np.asarray(np.linalg.qr(rows.T, mode="r"))
    return replace(leaves, messages=np.ascontiguousarray(corner.T[which.ravel()]))


def _empty_merges(n: int) -> Merges:
    return Merges(np.empty(n - 1, np.intp), np.empty(n - 1, np.intp), np.empty(n - 1))


def _rate1(leaves: Leaves, progress: Progress | None, reject_early: bool = True) -> Merges:
    """Search lazily: a pair's age never changes while both lineages live.

    Every lineage keeps a short list of its best partners. When all of them are merged away, it
    is known by a bound, for its remaining partners cannot do better; it is looked at again only
    if that bound comes up as the best key of all.
    """
    n, n_terms = leaves.n_leaves, leaves.n_terms
    live = _Lineages.of(leaves)
    test = rejection(leaves.spec, live.messages, live.spreads, reject_early)
    merges = _empty_merges(n)
    best = Shortlists.of(n)
    slot_of = np.full(2 * n - 1, -1, dtype=np.intp)
    slot_of[:n] = np.arange(n)
    following = np.arange(2 * n + 1)
    scan(leaves.spec, test, *live, best, 1, n - 1, -1, True, 1, n_terms)
    for k in range(n - 1):
        m = n - k
        winner = pick(m, live.ids, best, following)
        while best.counts[winner] == 0:
            length = min(2 * int(best.lengths[winner]), LONGEST)
            scan(leaves.spec, test, *live, best, winner, winner, m, False, length, n_terms)
            winner = pick(m, live.ids, best, following)
        pair = sorted((int(live.ids[winner]), int(best.ids[winner, 0])))
        i, j = slot_of[pair[0]], slot_of[pair[1]]
        age = float(best.ages[winner, 0])
        merges.left[k], merges.right[k], merges.age[k] = *pair, age
        live.merge(leaves, i, j, age, n + k)
        last = m - 1
        if len(test.deviations):
            put_deviation(leaves.spec, test, i, live.messages[i], age)
            test.deviations[j] = test.deviations[last]
        elif len(test.least):
            test.least[i] = live.spreads[i].min()
            test.least[j] = test.least[last]
        for array in (*live, *best):
            array[j] = array[last]
        slot_of[live.ids[j]] = j
        # When lineage i sat last it has moved into slot j.
        new = j if i == last else i
        slot_of[n + k] = new
        strike(best, last, *pair)
        for node in pair:
            following[node] = node + 1
        scan(leaves.spec, test, *live, best, int(new), int(new), last, True, 1, n_terms)
        if progress is not None:
            progress(k + 1, n - 1)
    return merges


def _stepwise(leaves: Leaves, criterion: int, progress: Progress | None) -> Merges:
    """Look at every pair at every step."""
    n = leaves.n_leaves
    live = _Lineages.of(leaves)
    merges = _empty_merges(n)
    now = 0.0
    for k in range(n - 1):
        i, j, now = scan_step(
            leaves.spec, *live[:3], n - k, live.ids, now, criterion, leaves.n_terms
        )
        pair = sorted((int(live.ids[i]), int(live.ids[j])))
        merges.left[k], merges.right[k], merges.age[k] = *pair, now
        # Slots are scanned with j < i, so moving the last one into slot i leaves the new one be.
        live.merge(leaves, j, i, now, n + k)
        for array in live:
            array[i] = array[n - k - 1]
        if progress is not None:
            progress(k + 1, n - 1)
    return merges
