"""Prior weight of "this subtree is one cluster" against "it splits into its children".

Every mixing prior is written in one unnormalised form. With ``A = log d + log p`` (math of the
guide's "how it works"), a node k with children c has

    A_k     = logaddexp(log_one + log f_k, log_split + Σ_c A_c)
    log d_k = logaddexp(log_one,           log_split + Σ_c log d_c)

so that ``log p(D_k | T_k) = A_k - log d_k``. For the Dirichlet process ``log_one = log α +
log Γ(n_k)`` and ``log_split = 0``; for the other two priors the weights are probabilities and
every ``log d`` is zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._validation import FloatArray, check_open_unit, check_positive


class MixingWeights(NamedTuple):
    """Normalised log weights of a node: one cluster, split, and the normaliser ``log d``."""

    log_pi: FloatArray
    log_1m_pi: FloatArray
    log_d: FloatArray


class Mixing(ABC):
    """Contract of a mixing prior; ``weight`` is the number of items, with multiplicity."""

    #: whether ``log d`` is not zero and has to be carried along
    has_normaliser: ClassVar[bool] = False

    @abstractmethod
    def log_one(self, weight: npt.ArrayLike, n_children: npt.ArrayLike) -> FloatArray:
        """Return the log weight of one cluster at an internal node."""

    @abstractmethod
    def log_split(self, n_children: npt.ArrayLike) -> FloatArray:
        """Return the log weight of splitting into the children."""

    def log_leaf(self, weight: npt.ArrayLike) -> FloatArray:
        """Return the log weight of a leaf, which is always one cluster.

        A leaf of weight w stands for w copies that always share a cluster: it has the weight of
        one cluster at a node with w children, of which a fraction counts as one more. A single
        item could not be anything but one cluster, and has log weight 0.
        """
        items = np.asarray(weight, dtype=np.float64)
        copies = np.maximum(np.ceil(items), 2.0)
        return np.where(items > 1, self.log_one(items, copies), 0.0)

    def log_new_cluster(self, total_weight: float) -> float:
        """Return the log prior probability that the next item opens a new cluster."""
        return -np.inf

    def log_weights(
        self, weight: npt.ArrayLike, n_children: npt.ArrayLike, log_d_children: npt.ArrayLike
    ) -> MixingWeights:
        """Return the normalised weights of nodes whose children's ``log d`` sum is given."""
        one = self.log_one(weight, n_children)
        split = self.log_split(n_children) + np.asarray(log_d_children)
        log_d = np.logaddexp(one, split)
        return MixingWeights(one - log_d, split - log_d, log_d)


@dataclass(frozen=True)
class DirichletProcess(Mixing):
    """The prior of the Chinese restaurant process with concentration ``alpha`` (BHC paper §3)."""

    alpha: float = 1.0
    has_normaliser: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(self.alpha, name="alpha", owner="DirichletProcess")

    def log_one(self, weight: npt.ArrayLike, n_children: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.log(self.alpha) + gammaln(weight))

    def log_split(self, n_children: npt.ArrayLike) -> FloatArray:
        return np.zeros(np.shape(n_children))

    def log_leaf(self, weight: npt.ArrayLike) -> FloatArray:
        # A leaf of weight w stands for w copies that always share a cluster.
        return np.asarray(np.log(self.alpha) + gammaln(weight))

    def log_new_cluster(self, total_weight: float) -> float:
        return float(np.log(self.alpha) - np.log(self.alpha + total_weight))


@dataclass(frozen=True)
class Constant(Mixing):
    """One cluster with probability ``gamma`` at every node (BHC-γ and BRT-γ)."""

    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_open_unit(self.gamma, name="gamma", owner="Constant")

    def log_one(self, weight: npt.ArrayLike, n_children: npt.ArrayLike) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(weight), np.shape(n_children)), self._log_one)

    def log_split(self, n_children: npt.ArrayLike) -> FloatArray:
        return np.full(np.shape(n_children), np.log1p(-self.gamma))

    @property
    def _log_one(self) -> float:
        return float(np.log(self.gamma))


@dataclass(frozen=True)
class Rose(Mixing):
    """One cluster with probability ``1 - (1 - gamma)^(children - 1)`` (rose-tree paper (1.7)).

    With it a node of many children has the same prior weight of "one cluster" as the cascade of
    binary nodes that it replaces, so that cascades are never preferred for their prior alone.
    """

    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_open_unit(self.gamma, name="gamma", owner="Rose")

    def log_one(self, weight: npt.ArrayLike, n_children: npt.ArrayLike) -> FloatArray:
        shape = np.broadcast_shapes(np.shape(weight), np.shape(n_children))
        return np.broadcast_to(np.log(-np.expm1(self.log_split(n_children))), shape)

    def log_split(self, n_children: npt.ArrayLike) -> FloatArray:
        return np.asarray((np.asarray(n_children) - 1) * np.log1p(-self.gamma))
