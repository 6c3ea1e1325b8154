"""What evolves along the branches: the contract of a process, and what inference needs of it.

A process gives the density of a table given a tree with ages, by messages from the leaves to the
root. Inference never sees the process itself but its `Leaves`: the messages of the leaves and a
`PairSpec` for the compiled loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bhclust._validation import FloatArray
from bhclust.coalescent._loops import PairSpec
from bhclust.models.base import Column, Kind
from bhclust.tree import Tree


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of a table as the inference loops see them.

    Attributes
    ----------
    messages : array, shape (n, width)
        Whitened values, or the states' messages of all sites in a row.
    spreads : array, shape (n, 1) or (n, n_columns)
        Variance of each message in units of the covariance, infinite where nothing is observed;
        one column for all when nothing is missing. Unused by sites.
    spec : PairSpec
    log_offset : float
        What to add to a log likelihood in these units to have that of the table.
    """

    messages: FloatArray
    spreads: FloatArray
    spec: PairSpec
    log_offset: float

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.messages)

    @property
    def n_terms(self) -> int:
        """Length of the work arrays of one pair."""
        return max(1, self.spec.n_columns)


class EntryMoments(NamedTuple):
    """Mean and variance of each entry, both of shape ``(n, n_columns)``."""

    mean: FloatArray
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class Process(ABC):
    """A Markov process along the branches of a tree.

    Subclasses are frozen dataclasses of hyperparameters in which ``None`` means "from the data".
    Tables are encoded as everywhere in the library: float64, NaN for missing, codes 0, 1, … for
    categories.
    """

    #: the kinds of columns this process is for
    kinds: ClassVar[tuple[Kind, ...]] = ()

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Take over what the table knows about its columns; called before `resolve`."""
        return self

    @abstractmethod
    def resolve(self, X: FloatArray) -> Self:
        """Fill the hyperparameters that are ``None`` from a table; a new object."""

    @abstractmethod
    def leaves(self, X: FloatArray) -> Leaves:
        """Return the messages of the rows of a table."""

    @abstractmethod
    def messages(self, tree: Tree, X: FloatArray) -> Any:
        """Return the messages upwards and downwards at every node."""

    @abstractmethod
    def log_likelihood(self, tree: Tree, X: FloatArray) -> float:
        """Return log p(X | tree)."""

    @abstractmethod
    def gradient(self, tree: Tree, X: FloatArray) -> dict[str, Any]:
        """Return the derivatives of `log_likelihood` by each hyperparameter."""

    @abstractmethod
    def log_likelihood_ratio(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return, for each node, log p(its leaves) minus the sum of that of its children's.

        Positive where the children are more likely together than apart; +inf at leaves.
        """

    @abstractmethod
    def simulate(self, tree: Tree, rng: np.random.Generator) -> FloatArray:
        """Draw a table from the process on a tree."""

    @abstractmethod
    def heldout(self, tree: Tree, X: FloatArray, X_full: FloatArray) -> FloatArray:
        """Return log p(entry | X, tree) of entries missing in X and known in X_full, else NaN."""

    @abstractmethod
    def impute(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return the table with its missing entries replaced by their most likely or mean value."""
