"""The compiled engine: windows and slots of live clusters, and the parts that score them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._kernels import nodes
from bhclust._kernels.coded import CategoricalPart
from bhclust._kernels.counts import (
    LARGEST_CODED_COUNT,
    PoissonPart,
    largest_count,
)
from bhclust._kernels.diagonal import DiagonalPart
from bhclust._kernels.experts import ExpertPart
from bhclust._kernels.full import FullPart
from bhclust._kernels.inducing import InducingPart
from bhclust._kernels.loop import CompiledLoop
from bhclust._kernels.multinomial import multinomial_part
from bhclust._kernels.part import ROWS_AT_ONCE, Member, Part
from bhclust._kernels.robust import RobustSeriesPart
from bhclust._kernels.series import series_part
from bhclust._kernels.sparse_counts import SparsePoissonPart, is_sparse
from bhclust._validation import FloatArray, IntArray
from bhclust.frontier import Frontier, Operation
from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    DiagonalGaussian,
    Gaussian,
    GaussianProcessExpert,
    InducingPointExpert,
    Mixed,
    Multinomial,
    Poisson,
    RobustTimeSeries,
    TimeSeries,
)

# The window of single leaves is packed again when this part of it has been merged away.
_DEAD_SHARE = 1 / 8
_OPERATIONS = tuple(Operation)
# The first pairs are shared between threads from so many leaves on, in blocks of so many rows;
# below, handing the interpreter's lock to and fro costs what the second thread gains.
_THREADED_ROWS = 8192
# The whole loop compiled starts so fast that threads pay much later.
_THREADED_ROWS_OF_LOOP = 50_000
_ROW_BLOCK = 128


# By the exact class: a subclass may have another log_marginal, and then needs the NumPy engine.
_PARTS: dict[type[ClusterModel], Callable[[Any, FloatArray, int], Part]] = {
    Bernoulli: CategoricalPart,
    Categorical: CategoricalPart,
    Multinomial: multinomial_part,
    Poisson: PoissonPart,
    DiagonalGaussian: DiagonalPart,
    Gaussian: FullPart,
    GaussianProcessExpert: ExpertPart,
    InducingPointExpert: InducingPart,
    RobustTimeSeries: RobustSeriesPart,
    TimeSeries: series_part,
}


def make_parts(model: ClusterModel, leaf_stats: FloatArray, n_slots: int) -> list[Part] | None:
    """Return the kernels of a model, or None if it has none."""
    if type(model) is Mixed:
        found = [make_parts(part, block, n_slots) for part, block in model.blocks(leaf_stats)]
        if any(parts is None for parts in found):
            return None
        return [part for parts in found if parts is not None for part in parts]
    if type(model) not in _PARTS:
        return None
    if type(model) is Poisson:
        if is_sparse(leaf_stats):
            return [SparsePoissonPart(model, leaf_stats, n_slots)]
        if largest_count(leaf_stats) > LARGEST_CODED_COUNT:
            return None
    return [_PARTS[type(model)](model, leaf_stats, n_slots)]


class CompiledEngine:
    """Scores by compiled kernels; the search's own loop stays in Python.

    Each merge costs a fixed handful of compiled calls of a few microseconds each, and one pass
    over the live clusters.
    """

    name = "compiled"

    def __init__(
        self, parts: list[Part], frontier: Frontier, *, rose: bool, n_threads: int = 1
    ) -> None:
        n = frontier.n_leaves
        self.n_pairs = 0
        self._parts = parts
        self._rose = rose
        self._n_threads = n_threads
        self._scan_kernel = nodes.scan_ratios if rose else nodes.scan_odds
        self._offer_kernel = nodes.offer_ratios if rose else nodes.offer_odds
        self._mixing = (*nodes.mixing_code(frontier.mixing), nodes.log_gamma_of_sizes(n))
        self._state = (frontier.values, frontier.best_partner, frontier.stale)
        # ids of the leaves that were alone when the window was last packed
        self._window = np.arange(n)
        self._n_dead = 0
        # ids of the live merged clusters in order, and their slots, at the front of longer arrays
        self._clusters = np.zeros((2, n_slots_for(n)), dtype=np.int64)
        self._n_clusters = 0
        self._slot_of = np.full(2 * n - 1, -1, dtype=np.int64)
        self._free_slots = list(range(n_slots_for(n) - 1, -1, -1))
        self._pending_slot = -1
        self._out = np.empty(n + n_slots_for(n))

    def start(self, frontier: Frontier) -> None:
        n_rows = frontier.n_leaves - 1
        if not self._shares_rows(frontier):
            self._scan_rows(iter([range(n_rows)]))
            return
        # Whoever is free takes the next block: a thread that gets no processor time holds up
        # one block at most. Each has its own focus; the results do not depend on who computes.
        blocks = iter([range(a, min(a + _ROW_BLOCK, n_rows)) for a in range(0, n_rows, _ROW_BLOCK)])
        workers = [self, *(self._twin() for _ in range(self._n_threads - 1))]
        with ThreadPoolExecutor(self._n_threads) as pool:
            for done in [pool.submit(worker._scan_rows, blocks) for worker in workers]:
                done.result()
        self.n_pairs = sum(worker.n_pairs for worker in workers)

    def _scan_rows(self, blocks: Iterator[range]) -> None:
        for block in blocks:
            for first in range(block.start, block.stop, ROWS_AT_ONCE):
                self._scan_together(range(first, min(first + ROWS_AT_ONCE, block.stop)))

    def _scan_together(self, rows: range) -> None:
        """Find the best partners of some leaves among the leaves behind them."""
        log_f = np.zeros((len(rows), len(self._window) - rows.start - 1))
        for part in self._parts:
            part.add_first_pairs(rows, log_f)
        none = self._clusters[0, :0]
        for k, row in enumerate(rows):
            behind = self._window[row + 1 :]
            self._scan_kernel(*self._state, behind, none, log_f[k, k:], row, *self._mixing)
            self.n_pairs += len(behind)

    def _twin(self) -> CompiledEngine:
        """Return an engine on the same frontier with parts of its own."""
        twin = copy(self)
        twin.n_pairs = 0
        twin._parts = deepcopy(self._parts)
        twin._out = np.empty_like(self._out)
        return twin

    def loop(self, frontier: Frontier) -> CompiledLoop | None:
        """Return the search itself as compiled code, where there is one for the model."""
        if len(self._parts) != 1 or not isinstance(self._parts[0], CategoricalPart):
            return None
        loop = CompiledLoop(self._parts[0], frontier, rose=self._rose)
        if self._shares_rows(frontier) and frontier.n_leaves > _THREADED_ROWS_OF_LOOP:
            self.start(frontier)
            loop.skip_start(self.n_pairs)
        return loop

    def _shares_rows(self, frontier: Frontier) -> bool:
        return self._n_threads > 1 and frontier.n_leaves > _THREADED_ROWS

    def rescan(self, frontier: Frontier, i: int) -> None:
        if i < frontier.n_leaves:
            self._scan(i, int(self._window.searchsorted(i, side="right")), 0)
        else:
            ids = self._clusters[0, : self._n_clusters]
            self._scan(i, len(self._window), int(ids.searchsorted(i, side="right")))

    def offer(self, frontier: Frontier, k: int, i: int, j: int) -> None:
        others = self._clusters[:, : self._n_clusters - 1]  # k itself is the last
        log_f = self._unions(k, 0, others)
        self._offer_kernel(*self._state, self._window, others[0], log_f, k, i, j, *self._mixing)

    def best(self, frontier: Frontier) -> int:
        live = self._clusters[0, : self._n_clusters]
        return int(nodes.best_of(frontier.values, self._window, live))

    def choose(self, frontier: Frontier, i: int, j: int) -> tuple[float, Operation]:
        self._pending_slot = self._free_slots.pop()
        left, right = self._member(i), self._member(j)
        log_f = 0.0
        for part in self._parts:
            log_f += part.merge(left, right, self._pending_slot)
        if not self._rose:
            return log_f, Operation.JOIN
        return log_f, _OPERATIONS[nodes.best_operation(frontier.values, i, j, log_f, *self._mixing)]

    def merge(self, frontier: Frontier, i: int, j: int, operation: Operation, log_f: float) -> int:
        k = frontier.next_id
        frontier.next_id += 1
        nodes.merge_node(*self._state[:2], i, j, k, int(operation), log_f, *self._mixing)
        for member in (i, j):
            if member < frontier.n_leaves:
                self._n_dead += 1
            else:
                self._free_slots.append(int(self._slot_of[member]))
        slot = self._slot_of[k] = self._pending_slot
        self._n_clusters = nodes.replace_members(self._clusters, self._n_clusters, i, j, k, slot)
        if self._n_dead > _DEAD_SHARE * len(self._window):
            self._compact(frontier)
        return k

    def log_f_with(self, i: int, others: IntArray) -> FloatArray:
        live = self._clusters[:, : self._n_clusters]
        ids = np.concatenate([self._window, live[0]])
        log_f = self._unions(i, 0, live)
        # The window may still hold leaves that were merged away; both lists are in order.
        return log_f[np.searchsorted(ids, others)]

    def _compact(self, frontier: Frontier) -> None:
        keep = np.flatnonzero(np.isfinite(frontier.log_mass[self._window]))
        self._window = self._window[keep]
        self._n_dead = 0
        for part in self._parts:
            part.compact(keep)

    def _member(self, i: int) -> Member:
        slot = int(self._slot_of[i])
        return Member(True, i) if slot < 0 else Member(False, slot)

    def _unions(self, i: int, first: int, clusters: npt.NDArray[np.int64]) -> FloatArray:
        """Return ``log f`` of cluster i with the window from a position on, then with clusters.

        ``clusters`` has a row of ids and a row of slots.
        """
        n_singles = len(self._window) - first
        out = self._out[: n_singles + clusters.shape[1]]
        out.fill(0.0)
        member = self._member(i)
        for part in self._parts:
            part.focus(member)
            if n_singles:
                part.add_singles(first, len(self._window), out[:n_singles])
            if clusters.shape[1]:
                part.add_clusters(clusters[1], out[n_singles:])
        self.n_pairs += len(out)
        return out

    def _scan(self, i: int, first: int, first_cluster: int) -> None:
        """Find the best partner of cluster i from a position in the window and one behind it."""
        clusters = self._clusters[:, first_cluster : self._n_clusters]
        log_f = self._unions(i, first, clusters)
        window = self._window[first:]
        self._scan_kernel(*self._state, window, clusters[0], log_f, i, *self._mixing)


def n_slots_for(n_leaves: int) -> int:
    """Return how many merged clusters can be alive at once, with one more being made."""
    return n_leaves // 2 + 2
