"""The whole search compiled, for tables of small discrete columns.

For these models scoring a pair takes about two nanoseconds, and below some ten thousand rows the
interpreter's part in the loop of `bhclust.agglomerate` would be most of the time. The steps are
the same, and so is the tree; all other models are served by that loop.
"""

from __future__ import annotations

import numpy as np

from bhclust._kernels import nodes
from bhclust._kernels.coded import (
    CategoricalPart,
    add_categorical_unions,
    add_looked_up,
    focus_categorical,
    merge_categorical,
)
from bhclust._kernels.compile import compiled_fast, compiled_inside, copied_inside
from bhclust._validation import FloatArray
from bhclust.frontier import Frontier

# The window of single leaves is packed again when this part of it has been merged away.
_DEAD_SHARE = 0.125
# Rows of pairs between two returns to the interpreter: for progress, and for an interrupt.
_CHUNK = 512

# positions in the array of counters
_N_WINDOW, _N_DEAD, _N_CLUSTERS, _N_FREE, _N_STARTED, _N_MERGES, _N_PAIRS, _N_RESCANS = range(8)


class CompiledLoop:
    """State of a compiled search over one `CategoricalPart`."""

    def __init__(self, part: CategoricalPart, frontier: Frontier, *, rose: bool) -> None:
        n = frontier.n_leaves
        n_slots = len(part.counts)
        self._counters = np.zeros(8, dtype=np.int64)
        self._counters[_N_WINDOW] = n
        self._counters[_N_FREE] = n_slots
        self._advance = _advance_rose if rose else _advance_binary
        self._arguments = (
            frontier.values,
            frontier.best_partner,
            frontier.stale,
            self._counters,
            np.arange(n),  # window: ids of leaves, in order
            np.zeros(n_slots, dtype=np.int64),  # ids of merged clusters, in order
            np.zeros(n_slots, dtype=np.int64),  # and their slots
            np.full(2 * n - 1, -1, dtype=np.int64),  # slot of each id
            np.arange(n_slots)[::-1].copy(),  # free slots
            np.empty(n + n_slots),  # log f of a row of pairs
            *part.kernel_arguments(),
            *nodes.mixing_code(frontier.mixing),
            nodes.log_gamma_of_sizes(n),
        )
        #: left, right, operation of each merge, and its log f
        self.merges = np.zeros((n - 1, 3), dtype=np.int64)
        self.log_f: FloatArray = np.zeros(n - 1)

    def skip_start(self, n_pairs: int) -> None:
        """Take the first best partners as found, with so many pair scores."""
        self._counters[_N_STARTED] = len(self.merges)
        self._counters[_N_PAIRS] = n_pairs

    @property
    def n_pairs(self) -> int:
        """Pair scores computed so far."""
        return int(self._counters[_N_PAIRS])

    @property
    def n_merges(self) -> int:
        """Merges made so far."""
        return int(self._counters[_N_MERGES])

    @property
    def n_rescans(self) -> int:
        """Times a cluster had to look for its best partner again."""
        return int(self._counters[_N_RESCANS])

    def advance(self) -> int:
        """Do the next steps; return how many merges there are by now."""
        self._advance(_CHUNK, self.merges, self.log_f, *self._arguments)
        return self.n_merges


@copied_inside
def _row(i, log_f, first, skipped, counters, slots, slot_of, out, leaves, tables):
    """Fill ``out`` with log f of cluster i and the window from a position on, then clusters.

    ``log_f`` is that of the cluster itself.
    """
    levels, codes, counts, focus, level_values, complete = leaves
    alpha, total, start, table, total_table, size_sums, constant = tables[:7]
    value_start, group, stride, sums, log_table, log_total_table = tables[7:]
    is_leaf = slot_of[i] < 0
    focus_categorical(
        is_leaf,
        i if is_leaf else slot_of[i],
        levels,
        counts,
        focus,
        alpha,
        total,
        start,
        value_start,
        group,
        stride,
        sums,
        level_values,
        log_table,
        log_total_table,
    )
    n_singles = counters[_N_WINDOW] - first
    n_others = counters[_N_CLUSTERS] - skipped
    for p in range(n_singles + n_others):
        out[p] = 0.0
    add_looked_up(codes, sums, log_f, first, counters[_N_WINDOW], out)
    add_categorical_unions(
        focus,
        counts,
        slots[skipped : skipped + n_others],
        alpha,
        total,
        start,
        table,
        total_table,
        size_sums,
        constant,
        complete,
        out[n_singles : n_singles + n_others],
    )
    counters[_N_PAIRS] += n_singles + n_others


@compiled_inside
def _n_up_to(ids, n, wanted):
    """Return how many of the first n increasing ids are at most ``wanted``."""
    low, high = np.int64(0), np.int64(n)
    while low < high:
        middle = (low + high) // 2
        if ids[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_inside
def _remove(member, counters, clusters, slots, slot_of, free):
    """Take a merged-away cluster off the lists; a leaf stays in the window until it is packed."""
    slot = slot_of[member]
    if slot < 0:
        counters[_N_DEAD] += 1
        return
    free[counters[_N_FREE]] = slot
    counters[_N_FREE] += 1
    n = counters[_N_CLUSTERS]
    for p in range(_n_up_to(clusters, n, member), n):
        clusters[p - 1] = clusters[p]
        slots[p - 1] = slots[p]
    counters[_N_CLUSTERS] = n - 1


@compiled_inside
def _pack(values, counters, window, codes):
    """Keep only the living leaves in the window and their codes."""
    kept = 0
    for p in range(counters[_N_WINDOW]):
        if values[nodes.LOG_MASS, window[p]] < np.inf:
            window[kept] = window[p]
            for g in range(codes.shape[1]):
                codes[kept, g] = codes[p, g]
            kept += 1
    counters[_N_WINDOW] = kept
    counters[_N_DEAD] = 0


@copied_inside
def _unite(i, j, slot, slot_of, leaves, tables):
    """Store the union of two clusters in a slot and return its log f."""
    levels, _, counts = leaves[:3]
    alpha, total, start, table, total_table, size_sums, constant = tables[:7]
    return merge_categorical(
        slot_of[i] < 0,
        i if slot_of[i] < 0 else slot_of[i],
        slot_of[j] < 0,
        j if slot_of[j] < 0 else slot_of[j],
        slot,
        levels,
        counts,
        alpha,
        total,
        start,
        table,
        total_table,
        size_sums,
        constant,
    )


def _make_advance(rose):
    """Return the loop for one kind of tree.

    The kind is a constant of the compiled code, so that only its own scores are compiled.
    """

    @compiled_fast
    def advance(
        n_steps,
        merges,
        log_f_out,
        values,
        partner,
        stale,
        counters,
        window,
        clusters,
        slots,
        slot_of,
        free,
        out,
        leaves,
        tables,
        code,
        parameter,
        log_gamma,
    ):
        """Do some steps of `agglomerate._search`: each scores one row of pairs.

        A row belongs to a leaf at the start, to a stale cluster that looks again, or to a new
        cluster that is offered to all others.
        """
        n_leaves = len(merges) + 1
        for _ in range(n_steps):
            if counters[_N_MERGES] == n_leaves - 1:
                return
            first, skipped, j, k = np.int64(0), np.int64(0), np.int64(-1), np.int64(-1)
            if counters[_N_STARTED] < n_leaves - 1:
                i = counters[_N_STARTED]
                counters[_N_STARTED] += 1
                first = i + 1
            else:
                i = nodes.best_of(
                    values, window[: counters[_N_WINDOW]], clusters[: counters[_N_CLUSTERS]]
                )
                if stale[i] and i < n_leaves:
                    counters[_N_RESCANS] += 1
                    first = _n_up_to(window, counters[_N_WINDOW], i)
                elif stale[i]:
                    counters[_N_RESCANS] += 1
                    first = counters[_N_WINDOW]
                    skipped = _n_up_to(clusters, counters[_N_CLUSTERS], i)
                else:
                    j = partner[i]
                    counters[_N_FREE] -= 1
                    slot = free[counters[_N_FREE]]
                    log_f = _unite(i, j, slot, slot_of, leaves, tables)
                    operation = np.int64(0)
                    if rose:
                        operation = nodes.best_operation(
                            values, i, j, log_f, code, parameter, log_gamma
                        )
                    step = counters[_N_MERGES]
                    k = n_leaves + step
                    nodes.merge_node(
                        values, partner, i, j, k, operation, log_f, code, parameter, log_gamma
                    )
                    merges[step, 0], merges[step, 1], merges[step, 2] = i, j, operation
                    log_f_out[step] = log_f
                    counters[_N_MERGES] = step + 1
                    _remove(i, counters, clusters, slots, slot_of, free)
                    _remove(j, counters, clusters, slots, slot_of, free)
                    slot_of[k] = slot
                    if counters[_N_DEAD] > _DEAD_SHARE * counters[_N_WINDOW]:
                        _pack(values, counters, window, leaves[1])
            row = k if k >= 0 else i
            # The evidence of a single item is its log f.
            row_log_f = (
                log_f_out[row - n_leaves] if row >= n_leaves else values[nodes.LOG_EVIDENCE, i]
            )
            _row(row, row_log_f, first, skipped, counters, slots, slot_of, out, leaves, tables)
            singles = window[first : counters[_N_WINDOW]]
            others = clusters[skipped : counters[_N_CLUSTERS]]
            if rose:
                if k < 0:
                    nodes.scan_ratios(
                        values, partner, stale, singles, others, out, i, code, parameter, log_gamma
                    )
                else:
                    nodes.offer_ratios(
                        values,
                        partner,
                        stale,
                        singles,
                        others,
                        out,
                        k,
                        i,
                        j,
                        code,
                        parameter,
                        log_gamma,
                    )
            elif k < 0:
                nodes.scan_odds(
                    values, partner, stale, singles, others, out, i, code, parameter, log_gamma
                )
            else:
                nodes.offer_odds(
                    values,
                    partner,
                    stale,
                    singles,
                    others,
                    out,
                    k,
                    i,
                    j,
                    code,
                    parameter,
                    log_gamma,
                )
            if k >= 0:
                clusters[counters[_N_CLUSTERS]] = k
                slots[counters[_N_CLUSTERS]] = slot_of[k]
                counters[_N_CLUSTERS] += 1

    return advance


_advance_binary = _make_advance(False)
_advance_rose = _make_advance(True)
