"""Counts of clusters as lists of what is not zero, for wide tables such as those of words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bhclust._kernels.compile import compiled
from bhclust._kernels.part import Member
from bhclust._validation import FloatArray

# A table is kept as lists where at most this part of its entries is not zero; by column and by
# groups of columns an entry is read several times as fast. Narrow tables gain nothing.
_LARGEST_DENSITY = 1 / 25
_FEWEST_COLUMNS = 64

Entries = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


class CountLists:
    """The counts of leaves and of merged clusters that are not zero: columns and numbers.

    The lists of slots stand one behind the other in two long arrays; what was replaced is dropped
    when there is no room.
    """

    def __init__(self, counts: FloatArray, n_slots: int) -> None:
        n, self._n_columns = counts.shape
        rows, columns = np.nonzero(counts)
        self.pointer = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        self.leaves: Entries = columns.astype(np.int32), counts[rows, columns].astype(np.int64)
        self.begin = np.zeros(n_slots, dtype=np.int64)
        self.end = np.zeros(n_slots, dtype=np.int64)
        self.slots: Entries = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        self._used = 0

    def of(self, member: Member) -> Entries:
        """Return the list of a cluster."""
        if member.is_leaf:
            part = slice(self.pointer[member.number], self.pointer[member.number + 1])
            return self.leaves[0][part], self.leaves[1][part]
        part = slice(self.begin[member.number], self.end[member.number])
        return self.slots[0][part], self.slots[1][part]

    def merge(self, left: Member, right: Member, slot: int) -> Entries:
        """Keep the sum of two lists in a slot and return it."""
        self.begin[slot] = self.end[slot] = 0
        most = min(self._n_columns, len(self.of(left)[0]) + len(self.of(right)[0]))
        if self._used + most > len(self.slots[0]):
            self._make_room(most)
        length = _add_lists(*self.of(left), *self.of(right), *self.slots, self._used)
        self.begin[slot], self.end[slot] = self._used, self._used + length
        self._used += length
        return self.of(Member(False, slot))

    def _make_room(self, more: int) -> None:
        lengths = self.end - self.begin
        total = int(lengths.sum())
        old, size = self.slots, 2 * (total + more)
        self.slots = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int64)
        _move_lists(*old, *self.slots, self.begin, self.end)
        self._used = total


@compiled
def _move_lists(old_column, old_count, column, count, begin, end):
    used = 0
    for slot in range(len(begin)):
        first = used
        for entry in range(begin[slot], end[slot]):
            column[used], count[used] = old_column[entry], old_count[entry]
            used += 1
        begin[slot], end[slot] = first, used


@compiled
def _add_lists(columns_a, counts_a, columns_b, counts_b, column, count, start):
    """Write the sum of two lists in the order of columns; return how long it is."""
    a, b, to = 0, 0, start
    while a < len(columns_a) or b < len(columns_b):
        if b == len(columns_b) or (a < len(columns_a) and columns_a[a] < columns_b[b]):
            column[to], count[to] = columns_a[a], counts_a[a]
            a += 1
        elif a == len(columns_a) or columns_b[b] < columns_a[a]:
            column[to], count[to] = columns_b[b], counts_b[b]
            b += 1
        else:
            column[to], count[to] = columns_a[a], counts_a[a] + counts_b[b]
            a += 1
            b += 1
        to += 1
    return to - start


def is_mostly_zero(counts: FloatArray) -> bool:
    """Whether a table is wide and so empty that lists are faster than going column by column."""
    n, d = counts.shape
    return d >= _FEWEST_COLUMNS and np.count_nonzero(counts) <= _LARGEST_DENSITY * n * d
