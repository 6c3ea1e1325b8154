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
from bhclust._kernels.compile import compiled
from bhclust._validation import FloatArray
from bhclust.frontier import Frontier

# The window of single leaves is packed again when this part of it has been merged away.
_DEAD_SHARE = 0.125
# Merges between two returns to the interpreter: for progress, and for an interrupt.
_CHUNK = 512

# positions in the array of counters
_N_WINDOW, _N_DEAD, _N_CLUSTERS, _N_FREE, _N_MERGES, _N_PAIRS, _N_RESCANS = range(7)


class CompiledLoop:
    """State of a compiled search over one `CategoricalPart`."""

    def __init__(self, part: CategoricalPart, frontier: Frontier, *, rose: bool) -> None:
        n = frontier.n_leaves
        n_slots = len(part.counts)
        self._frontier = (frontier.values, frontier.best_partner, frontier.stale)
        self._counters = np.zeros(7, dtype=np.int64)
        self._counters[_N_WINDOW] = n
        self._counters[_N_FREE] = n_slots
        self._live = (
            self._counters,
            np.arange(n),  # window: ids of leaves, in order
            np.zeros(n_slots, dtype=np.int64),  # ids of merged clusters, in order
            np.zeros(n_slots, dtype=np.int64),  # and their slots
            np.full(2 * n - 1, -1, dtype=np.int64),  # slot of each id
            np.arange(n_slots)[::-1].copy(),  # free slots
            np.empty(n + n_slots),  # log f of a row of pairs
        )
        self._part = part.kernel_arguments()
        self._mixing = (*nodes.mixing_code(frontier.mixing), nodes.log_gamma_of_sizes(n))
        self._rose = rose
        #: left, right, operation of each merge, and its log f
        self.merges = np.zeros((n - 1, 3), dtype=np.int64)
        self.log_f: FloatArray = np.zeros(n - 1)

    @property
    def n_pairs(self) -> int:
        """Pair scores computed so far."""
        return int(self._counters[_N_PAIRS])

    @property
    def n_rescans(self) -> int:
        """Times a cluster had to look for its best partner again."""
        return int(self._counters[_N_RESCANS])

    def start(self) -> None:
        """Find every leaf's best partner among the higher ids."""
        n_rows = len(self.merges)
        for first in range(0, n_rows, _CHUNK):
            last = min(first + _CHUNK, n_rows)
            _start(
                first, last, self._rose, *self._frontier, *self._live, *self._part, *self._mixing
            )

    def advance(self) -> int:
        """Do the next merges; return how many there are by now."""
        _advance(
            _CHUNK,
            self.merges,
            self.log_f,
            self._rose,
            *self._frontier,
            *self._live,
            *self._part,
            *self._mixing,
        )
        return int(self._counters[_N_MERGES])


@compiled
def _row(i, first, n_clusters_before, counters, slots, slot_of, out, part, focus_part):
    """Fill ``out`` with log f of cluster i and the window from a position on, then clusters."""
    levels, codes, counts, focus, level_values, complete = part
    alpha, total, start, table, total_table, constant = focus_part[:6]
    value_start, group, stride, sums, log_table, log_total_table = focus_part[6:]
    is_leaf = slot_of[i] < 0
    number = i if is_leaf else slot_of[i]
    log_f = focus_categorical(
        is_leaf,
        number,
        levels,
        counts,
        focus,
        alpha,
        total,
        start,
        table,
        total_table,
        constant,
        value_start,
        group,
        stride,
        sums,
        level_values,
        log_table,
        log_total_table,
    )
    n_singles = counters[_N_WINDOW] - first
    n_others = counters[_N_CLUSTERS] - n_clusters_before
    out[: n_singles + n_others] = 0.0
    add_looked_up(codes, sums, log_f, first, counters[_N_WINDOW], out)
    add_categorical_unions(
        focus,
        counts,
        slots[n_clusters_before : counters[_N_CLUSTERS]],
        alpha,
        total,
        start,
        table,
        total_table,
        constant,
        complete,
        out[n_singles : n_singles + n_others],
    )
    counters[_N_PAIRS] += n_singles + n_others


@compiled
def _scan(
    i,
    first,
    skipped,
    rose,
    values,
    partner,
    stale,
    counters,
    window,
    clusters,
    slots,
    slot_of,
    out,
    part,
    focus_part,
    code,
    parameter,
    log_gamma,
):
    _row(i, first, skipped, counters, slots, slot_of, out, part, focus_part)
    singles = window[first : counters[_N_WINDOW]]
    others = clusters[skipped : counters[_N_CLUSTERS]]
    if rose:
        nodes.scan_ratios(
            values, partner, stale, singles, others, out, i, code, parameter, log_gamma
        )
    else:
        nodes.scan_odds(values, partner, stale, singles, others, out, i, code, parameter, log_gamma)


@compiled
def _start(
    first_row,
    last_row,
    rose,
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
    part,
    focus_part,
    code,
    parameter,
    log_gamma,
):
    for row in range(first_row, last_row):
        _scan(
            row,
            row + 1,
            0,
            rose,
            values,
            partner,
            stale,
            counters,
            window,
            clusters,
            slots,
            slot_of,
            out,
            part,
            focus_part,
            code,
            parameter,
            log_gamma,
        )


@compiled
def _position(ids, n, wanted):
    """Return how many of the first n increasing ids are at most ``wanted``."""
    return np.searchsorted(ids[:n], wanted, side="right")


@compiled
def _remove(member, counters, clusters, slots, slot_of, free):
    """Take a merged-away cluster off the lists; a leaf stays in the window until it is packed."""
    slot = slot_of[member]
    if slot < 0:
        counters[_N_DEAD] += 1
        return
    free[counters[_N_FREE]] = slot
    counters[_N_FREE] += 1
    n = counters[_N_CLUSTERS]
    for p in range(_position(clusters, n, member), n):
        clusters[p - 1] = clusters[p]
        slots[p - 1] = slots[p]
    counters[_N_CLUSTERS] = n - 1


@compiled
def _pack(values, counters, window, codes):
    """Keep only the living leaves in the window and their codes."""
    kept = 0
    for p in range(counters[_N_WINDOW]):
        if np.isfinite(values[nodes.LOG_MASS, window[p]]):
            window[kept] = window[p]
            codes[kept] = codes[p]
            kept += 1
    counters[_N_WINDOW] = kept
    counters[_N_DEAD] = 0


@compiled
def _advance(
    n_merges,
    merges,
    log_f_out,
    rose,
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
    part,
    focus_part,
    code,
    parameter,
    log_gamma,
):
    """Do up to ``n_merges`` merges: `agglomerate._search` with the engine's steps written in."""
    levels, codes, counts = part[:3]
    alpha, total, start, table, total_table, constant = focus_part[:6]
    n_leaves = len(merges) + 1
    goal = min(counters[_N_MERGES] + n_merges, n_leaves - 1)
    while counters[_N_MERGES] < goal:
        i = nodes.best_of(values, window[: counters[_N_WINDOW]], clusters[: counters[_N_CLUSTERS]])
        if stale[i]:
            counters[_N_RESCANS] += 1
            first, skipped = counters[_N_WINDOW], 0
            if i < n_leaves:
                first = _position(window, counters[_N_WINDOW], i)
            else:
                skipped = _position(clusters, counters[_N_CLUSTERS], i)
            _scan(
                i,
                first,
                skipped,
                rose,
                values,
                partner,
                stale,
                counters,
                window,
                clusters,
                slots,
                slot_of,
                out,
                part,
                focus_part,
                code,
                parameter,
                log_gamma,
            )
            continue
        j = partner[i]
        counters[_N_FREE] -= 1
        slot = free[counters[_N_FREE]]
        log_f = merge_categorical(
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
            constant,
        )
        operation = 0
        if rose:
            operation = nodes.best_operation(values, i, j, log_f, code, parameter, log_gamma)
        step = counters[_N_MERGES]
        k = n_leaves + step
        nodes.merge_node(values, partner, i, j, k, operation, log_f, code, parameter, log_gamma)
        merges[step, 0], merges[step, 1], merges[step, 2] = i, j, operation
        log_f_out[step] = log_f
        counters[_N_MERGES] = step + 1
        _remove(i, counters, clusters, slots, slot_of, free)
        _remove(j, counters, clusters, slots, slot_of, free)
        if counters[_N_DEAD] > _DEAD_SHARE * counters[_N_WINDOW]:
            _pack(values, counters, window, codes)
        slot_of[k] = slot
        _row(k, 0, 0, counters, slots, slot_of, out, part, focus_part)
        singles = window[: counters[_N_WINDOW]]
        others = clusters[: counters[_N_CLUSTERS]]
        if rose:
            nodes.offer_ratios(
                values, partner, stale, singles, others, out, k, i, j, code, parameter, log_gamma
            )
        else:
            nodes.offer_odds(
                values, partner, stale, singles, others, out, k, i, j, code, parameter, log_gamma
            )
        clusters[counters[_N_CLUSTERS]] = k
        slots[counters[_N_CLUSTERS]] = slot
        counters[_N_CLUSTERS] += 1
