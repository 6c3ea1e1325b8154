"""The exact greedy search on a device: arrays, launches, and what comes back.

The steps are those of `bhclust.agglomerate`, and so is the tree. The host only starts the
kernels: one launch does thousands of merges.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._gpu.device import Device, Program, Words
from bhclust._gpu.encode import EncodedPart, Rows, encode, model_type, model_words
from bhclust._gpu.products import Inner, pay, product_bytes, products_of
from bhclust._kernels import nodes
from bhclust._validation import BhclustError, FloatArray
from bhclust.mixing import Mixing
from bhclust.models import ClusterModel

# As in board.cuh and search.cuh
_ROWS = 4
_BOARD_BYTES = 6448
_RUN_BYTES = 10_240
_MOST_FOCI = 8
_TOLD_WORDS, _CANDIDATE_WORDS = 22, 7
# Words of the control record: positions (2), living (2), holes and their places (5), then these.
_CONTROL_WORDS = 19
_N_LIVE, _N_HOLES = 2, 4
_N_MERGES, _N_RESCANS, _N_PAIRS, _FAILED, _CROWDED = range(9, 14)
_LEAVES_READ, _CLUSTERS_READ, _N_OFFERS, _N_PASSES = range(14, 18)
# What a pass reads of each cluster besides its statistics: a mass and an id, or, for a new cluster
# that is offered to all, a mass, a partner, its score and the bound on the rest (in a rose tree
# with tiebreaks and a needed gain)
_RESCAN_BYTES, _OFFER_BYTES, _ROSE_OFFER_BYTES = 12, 28, 52
# Steps between two returns to the interpreter: for progress, and for an interrupt.
_STEPS = 20_000
# Live clusters are moved together when so many positions, and one in sixteen, are empty.
_LEAST_DEAD = 16_384
_ROWS_AT_ONCE = 1 << 16
# Leaves against leaves whose products are in memory at a time.
_TILE_ROWS, _TILE_COLUMNS = 2048, 16_384
# Rows of first pairs that are scored between two returns, times the leaves.
_FIRST_PAIRS = 1 << 38

_BEST_FIELDS = ("score", "tiebreak", "needed", "rest_score", "rest_tiebreak", "rest_needed")
_LEAF_FIELDS = ("id", "partner", *_BEST_FIELDS, "mass", "evidence")
_CLUSTER_FIELDS = (
    *_LEAF_FIELDS,
    "weight",
    "log_d",
    "log_1m_r",
    "log_1m_pi",
    "n_children",
    "child_mass",
    "child_log_d",
)
_BINARY_FIELDS = frozenset({"id", "partner", "score", "rest_score", "mass", "weight"})


class Found(NamedTuple):
    """Result of a search: left, right, operation and log f of each merge, and what it cost.

    ``bytes_read`` is what the merges must read: the statistics of every live cluster once a pass.
    ``n_passes`` is how many passes offered a new cluster to all; a pass may serve several merges.
    """

    steps: FloatArray
    leaf_log_f: FloatArray
    n_pairs: int
    n_rescans: int
    seconds_first: float
    seconds_merges: float
    bytes_read: int
    n_passes: int


class Layout(NamedTuple):
    """How a block's memory is shared out; what does not fit is kept in device memory.

    ``facts`` are those of all parts; a block has a copy of the first ``facts_size``: all or none.
    """

    n_foci: int
    shared_bytes: int
    far_focus: Any
    far_scratch: Any
    facts: Any
    facts_size: int
    is_near: bool

    @property
    def near(self) -> str:
        """Whether all of it is in the block's memory, as C++ says it."""
        return str(self.is_near).lower()


class DeviceSearch:
    """A search over leaves with unit weights, on a device."""

    def __init__(
        self,
        device: Device,
        model: ClusterModel,
        leaf_stats: FloatArray,
        mixing: Mixing,
        *,
        rose: bool,
    ) -> None:
        n = len(leaf_stats)
        self._device, self._rose, self._n = device, rose, n
        device.require(needed_bytes(leaf_stats, rose=rose), f"a tree of {n:,} rows")
        # Merged clusters that can be alive at once, the one being made, and two holes.
        self._n_slots = n_slots = n // 2 + 4
        rows = Rows(device, leaf_stats, None, n_slots, n)
        self._parts, self._by_position = parts_of(model, rows), rows.made
        self._leaves = self._region(n, _LEAF_FIELDS)
        self._clusters = self._region(n_slots, _CLUSTER_FIELDS)
        log_leaf = mixing.log_leaf(np.ones(n))
        self._leaves["id"][:] = device.put(np.arange(n, dtype=np.int32))
        xp = device.arrays
        self._merges = xp.zeros((max(n - 1, 1), 3), dtype=np.int32)
        self._log_f = xp.zeros(max(n - 1, 1))
        self._leaf_log_f = xp.zeros(n)
        self._position_of = xp.zeros(2 * n, dtype=np.int32)
        self._position_of[:n] = xp.arange(n, dtype=np.int32)
        control = np.zeros(_CONTROL_WORDS, dtype=np.int64)
        control[0] = control[_N_LIVE] = n
        self._control = device.put(control)
        self._log_gamma = device.put(nodes.log_gamma_of_sizes(n + 1))
        places = 2 * device.n_blocks
        self._told = xp.zeros(places * _TOLD_WORDS, dtype=np.int64)
        self._n_told = xp.zeros(1, dtype=np.int64)
        self._row_best = xp.zeros(places * _ROWS * _CANDIDATE_WORDS, dtype=np.int64)
        self._mixing = nodes.mixing_code(mixing)
        self._leaf_log_d = float(log_leaf[0]) if mixing.has_normaliser else 0.0
        self._log_leaf = float(log_leaf[0])

    def _region(self, n: int, names: tuple[str, ...]) -> dict[str, Any]:
        xp = self._device.arrays
        kept = [name for name in names if self._rose or name in _BINARY_FIELDS]
        region = {
            name: xp.zeros(n, dtype=np.int32 if name in ("id", "partner") else np.float64)
            for name in kept
        }
        region["partner"][:] = -1
        for name in _BEST_FIELDS:
            if name in region:
                region[name][:] = -np.inf
        return region

    def run(self, progress: Callable[[int, int], None] | None = None) -> Found:
        """Find the merges."""
        total = self._n - 1
        started = between = stopped = perf_counter()
        if self._n > 0:
            # The same program does all phases, so that it is compiled once.
            first = best_layout(self._device, self._parts)
            inners = self._inners()
            loop = block_layout(self._device, self._parts, _ROWS)
            one = block_layout(self._device, self._parts, 1)
            kind, rose = model_type(self._parts), str(self._rose).lower()
            kernels = (
                f"search<{rose}, {kind}, {loop.near}>",
                f"fold_products<{rose}>"
                if inners
                else f"first_pairs<{rose}, {kind}, {first.near}, {first.n_foci}>",
                f"leaf_log_marginals<{kind}, {one.near}>",
            )
            program = self._device.program(kernels)
            started = perf_counter()
            self._score_leaves(program, kernels[2], one)
            if inners:
                self._fold_first(program, kernels[1], inners)
            else:
                self._find_first(program, kernels[1], first)
            between = perf_counter()
            self._merge_all(program, kernels[0], loop, progress)
            stopped = perf_counter()
        control = self._device.get(self._control)
        steps = np.empty((total, 4))
        steps[:, :3] = self._device.get(self._merges)[:total]
        steps[:, 3] = self._device.get(self._log_f)[:total]
        n_pairs = int(control[_N_PAIRS]) + self._n * total // 2
        n_rescans = int(control[_N_RESCANS])
        leaf_bytes = _RESCAN_BYTES + sum(part.leaf_bytes for part in self._parts)
        cluster_bytes = _RESCAN_BYTES + sum(part.cluster_bytes for part in self._parts)
        n_bytes = leaf_bytes * control[_LEAVES_READ] + cluster_bytes * control[_CLUSTERS_READ]
        offer_bytes = _ROSE_OFFER_BYTES if self._rose else _OFFER_BYTES
        n_bytes += (offer_bytes - _RESCAN_BYTES) * control[_N_OFFERS]
        seconds = between - started, stopped - between
        leaf_log_f = self._device.get(self._leaf_log_f)
        n_passes = int(control[_N_PASSES])
        return Found(steps, leaf_log_f, n_pairs, n_rescans, *seconds, int(n_bytes), n_passes)

    def _score_leaves(self, program: Program, kernel: str, layout: Layout) -> None:
        program.write_record(self._record(layout, 0))
        arguments = (self._n, self._leaf_log_f)
        program.launch(kernel, self._device.n_blocks, layout.shared_bytes, arguments)
        self._leaves["mass"][:] = self._leaf_log_f + self._log_leaf
        if self._rose:
            prior = self._log_leaf - self._leaf_log_d
            self._leaves["evidence"][:] = self._leaf_log_f + prior

    def _find_first(self, program: Program, kernel: str, layout: Layout) -> None:
        program.write_record(self._record(layout, 0))
        step = max(self._device.n_blocks * layout.n_foci, _FIRST_PAIRS // self._n)
        for row in range(0, self._n, step):
            stop = min(row + step, self._n)
            program.launch(kernel, self._device.n_blocks, layout.shared_bytes, (row, stop))

    def _inners(self) -> list[Inner]:
        """Return how gains of leaves are inner products; nothing where that does not pay."""
        inners = [part.inner for part in self._parts if part.inner is not None]
        for part in self._parts:
            part.inner = None  # it holds a table of its own
        n_bytes = product_bytes(self._n, inners) + 8 * self._tile_numbers
        if len(inners) < len(self._parts) or not pay(inners) or n_bytes > self._device.free():
            return []
        return inners

    @property
    def _tile_numbers(self) -> int:
        return min(_TILE_ROWS, self._n) * min(_TILE_COLUMNS, self._n)

    def _fold_first(self, program: Program, kernel: str, inners: list[Inner]) -> None:
        """Find the first pairs by matrix products in tiles, with a running best."""
        xp, n = self._device.arrays, self._n
        program.write_record(self._record(block_layout(self._device, self._parts, 1), 0))
        products = products_of(xp, n, inners)
        terms = products.linear + self._leaf_log_f
        tile = xp.empty(self._tile_numbers)
        for row in range(0, n, _TILE_ROWS):
            left = products.left[row : row + _TILE_ROWS]
            for column in range(row, n, _TILE_COLUMNS):
                right = products.right[column : column + _TILE_COLUMNS]
                found = tile[: len(left) * len(right)].reshape(len(left), len(right))
                xp.dot(left, right.T, out=found)
                arguments = (row, len(left), column, len(right), found, terms)
                program.launch(kernel, self._device.n_blocks, 0, arguments, wait=False)
        self._device.get(self._leaf_log_f[:1])  # all of it is done

    def _merge_all(
        self,
        program: Program,
        kernel: str,
        layout: Layout,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        program.write_record(self._record(layout, _STEPS))
        done, total = 0, self._n - 1
        while done < total:
            program.launch(kernel, self._device.n_blocks, layout.shared_bytes)
            control = self._device.get(self._control)
            if control[_FAILED]:
                raise BhclustError(
                    "the search on the device found no pair with a score; the data or the "
                    "hyperparameters are too extreme for float64 (use device='cpu' for a message "
                    "that says more)."
                )
            done = int(control[_N_MERGES])
            if control[_CROWDED] and done < total:
                self._move_together(control)
            if progress is not None:
                progress(done, total)

    def _move_together(self, control: npt.NDArray[np.int64]) -> None:
        """Leave no empty positions among the live clusters, whose order stays as it is."""
        xp, device = self._device.arrays, self._device
        regions = (("leaves", self._leaves), ("clusters", self._clusters))
        for r, (name, region) in enumerate(regions):
            mass = region["evidence" if self._rose else "mass"]
            alive = xp.flatnonzero(mass[: int(control[r])] < np.inf)
            n = len(alive)
            for array in region.values():
                array[:n] = array[alive]
            for array, of, is_tiled in self._by_position:
                if of == name:
                    _take_rows(device, array, alive, is_tiled=is_tiled)
            self._position_of[region["id"][:n]] = xp.arange(n, dtype=np.int32)
            control[r] = n
        control[_N_HOLES] = 0
        self._control[:] = device.put(control)

    def _record(self, layout: Layout, n_steps: int) -> Words:
        at = self._device.address
        regions = [
            at(region[name]) if name in region else 0
            for region in (self._leaves, self._clusters)
            for name in _CLUSTER_FIELDS
        ]
        found = [self._position_of, self._merges, self._log_f]
        found += [self._told, self._n_told, self._row_best]
        return record_words(
            self._device,
            self._parts,
            layout,
            before=[
                self._mixing.code,
                _as_word(self._mixing.parameter),
                at(self._log_gamma),
                self._n,
                self._n_slots,
                n_steps,
                _LEAST_DEAD,
            ],
            log_d=self._leaf_log_d,
            between=[*regions, *(at(a) for a in found)],
            control=at(self._control),
        )


def record_words(
    device: Device,
    parts: list[EncodedPart],
    layout: Layout,
    *,
    before: list[int] | None = None,
    log_d: float = 0.0,
    between: list[int] | None = None,
    control: int = 0,
) -> Words:
    """Return the words of `Search` and of the model, as search.cuh reads them.

    Without a search only the shares of the block's memory are filled in.
    """
    n_between = 2 * len(_CLUSTER_FIELDS) + 6
    words = [
        *([0] * 7 if before is None else before),
        _focus_apart(parts),
        max(part.scratch_size for part in parts),
        layout.facts_size,
        _as_word(log_d),
        device.address(layout.facts),
        *([0] * n_between if between is None else between),
        *(0 if a is None else device.address(a) for a in (layout.far_focus, layout.far_scratch)),
        control,
    ]
    return np.concatenate([np.array(words, dtype=np.int64), model_words(parts)])


def _as_word(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def _take_rows(device: Device, array: Any, rows: Any, *, is_tiled: bool) -> None:
    """Move some rows, in order, to the front of an array with a row a position."""
    if not is_tiled:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chosen = rows[start : start + _ROWS_AT_ONCE]
            array[start : start + len(chosen)] = array[chosen]
        return
    xp, warp, width = device.arrays, device.warp, array.shape[1]
    numbers = xp.arange(width).reshape(1, -1) * warp
    # No row moves back, so that those still to be read are where they were.
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        chosen = rows[start : start + _ROWS_AT_ONCE].reshape(-1, 1)
        own = array.reshape(-1)[chosen // warp * (width * warp) + chosen % warp + numbers]
        n_tiles = -(-len(own) // warp)
        block = xp.zeros((n_tiles * warp, width), dtype=array.dtype)
        block[: len(own)] = own
        tiles = block.reshape(-1, warp, width).transpose(0, 2, 1)
        array[start // warp : start // warp + n_tiles] = tiles


def parts_of(model: ClusterModel, rows: Rows) -> list[EncodedPart]:
    """Return a model's parts on the device, or say that it has none."""
    parts = encode(model, rows)
    if parts is None:
        raise BhclustError(
            f"device={rows.device.name!r} has no kernels for {type(model).__name__}; use "
            "device='cpu'."
        )
    return parts


def _focus_apart(parts: list[EncodedPart]) -> int:
    """Return how many numbers a focus has for itself.

    Behind the first one there is room for what a run keeps: runs.cuh.
    """
    room = 2 * -(-_RUN_BYTES // (16 * (_ROWS - 1)))  # even: pairs of numbers are read at once
    return max(sum(part.focus_size for part in parts), room)


def block_layout(device: Device, parts: list[EncodedPart], n_foci: int) -> Layout:
    """Share out a block's memory among so many foci and the warps' scratch."""
    xp, n_warps = device.arrays, device.n_threads // device.warp
    focus = n_foci * _focus_apart(parts)
    scratch = n_warps * max(part.scratch_size for part in parts)
    all_facts = np.concatenate([np.zeros(0), *(p.facts for p in parts if p.facts is not None)])
    facts = len(all_facts)
    room = (device.shared_bytes - _BOARD_BYTES) // 8
    far_focus = far_scratch = None
    if focus + scratch > room and scratch:
        far_scratch = xp.zeros(device.n_blocks * scratch)
        scratch = 0
    if focus > room:
        far_focus = xp.zeros(device.n_blocks * focus)
        focus = 0
    is_near = far_focus is None and far_scratch is None
    if focus + scratch + facts > room:
        is_near, facts = False, 0
    shared_bytes = _BOARD_BYTES + 8 * (facts + focus + scratch)
    kept = device.put(all_facts)
    return Layout(n_foci, shared_bytes, far_focus, far_scratch, kept, facts, is_near)


def best_layout(device: Device, parts: list[EncodedPart]) -> Layout:
    """Return the layout with the most foci that fit."""
    for n_foci in (_MOST_FOCI, 4, 2):
        layout = block_layout(device, parts, n_foci)
        if layout.far_focus is None:
            return layout
    return block_layout(device, parts, 1)


def needed_bytes(leaf_stats: npt.NDArray[Any], *, rose: bool) -> int:
    """Return about how much device memory a search takes."""
    n, width = leaf_stats.shape
    # Leaves and half as many clusters, each at most the statistics themselves; their state; the
    # merges; and one block of rows on its way to another layout.
    numbers = (8, 15) if rose else (3, 4)
    state = 8 * (numbers[0] + 1) + 4 * (numbers[1] + 1) + 44
    return int(n * (8 * width + 8 * width // 2 + state) + (3 << 16) * 8 * width)
