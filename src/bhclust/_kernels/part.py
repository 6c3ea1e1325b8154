"""What the compiled engine asks of the kernels of a model."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray

#: so many rows of the first pairs are asked for together
ROWS_AT_ONCE = 8


class Member(NamedTuple):
    """A cluster as the kernels find it: a leaf by its row, or a merged cluster by its slot."""

    is_leaf: bool
    number: int


class Part(Protocol):
    """Kernels of one model; a `Mixed` model is several parts whose ``log f`` add up.

    Leaves that are still alone stand in a *window*, in increasing order; positions in it change
    only by `compact`. Merged clusters are kept in numbered *slots*, which are reused.
    """

    def focus(self, member: Member) -> None:
        """Make a cluster the one that the ``add`` methods score against."""

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        """Add ``log f`` of the focus with each leaf at window positions start … stop - 1."""

    def add_first_pairs(self, rows: range, out: FloatArray) -> None:
        """Add ``log f`` of a few leaves in a row with the leaves behind them, before any merge.

        ``out`` has a row for each and a column for each leaf behind the first of them; what stands
        before a leaf's own successors is left to chance.
        """
        stop = rows.start + 1 + out.shape[1]
        for k, row in enumerate(rows):
            self.focus(Member(True, row))
            self.add_singles(row + 1, stop, out[k, k:])

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        """Add ``log f`` of the focus with the cluster in each slot."""

    def merge(self, left: Member, right: Member, slot: int) -> float:
        """Store the union in a slot that neither of the two is in; return its ``log f``."""

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        """Keep only these positions of the window."""
