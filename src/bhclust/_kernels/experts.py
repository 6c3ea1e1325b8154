"""Scores of Gaussian-process experts by Cholesky factors that grow with their clusters.

A cluster keeps the factor of its outputs' covariance. Joined with another, the factor is extended
by the other's points, and nothing that is known is computed again. The work is in the matrix
routines of NumPy and SciPy; only the inputs have kernels of their own, those of `Gaussian`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from bhclust._kernels.full import FullPart
from bhclust._kernels.part import Member, Part
from bhclust._validation import FloatArray
from bhclust.models.gp_expert import GaussianProcessExpert


class Expert(NamedTuple):
    """A cluster: its leaves, the factor of its outputs' covariance, the outputs divided by it."""

    leaves: npt.NDArray[np.int64]
    factor: FloatArray
    whitened: FloatArray
    log_f: float


class Extension(NamedTuple):
    """What further points add to a cluster: the new block of the factor and of the outputs."""

    factor: FloatArray
    whitened: FloatArray
    log_f: float


class ExpertPart(Part):
    """`GaussianProcessExpert`; everything about outputs is in units of the noise."""

    def __init__(self, model: GaussianProcessExpert, leaf_stats: FloatArray, n_slots: int) -> None:
        self._inputs = FullPart(model.input_model, model.input_stats(leaf_stats), n_slots)
        self._covariance, self._outputs = model.leaf_outputs(leaf_stats)
        self._log_noise = math.log(2 * math.pi) + 2 * math.log(float(model.hyperparameter("noise")))
        self._window = np.arange(len(leaf_stats))
        self._slots: dict[int, Expert] = {}
        self._focus = self._leaf(0)
        self._across = self._known_of(self._focus, self._window)

    def _leaf(self, number: int) -> Expert:
        nothing = Expert(np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros(0), 0.0)
        alone = np.array([number])
        added = self._extend(nothing, alone, np.zeros((0, 1)))
        return Expert(alone, added.factor, added.whitened, added.log_f)

    def _member(self, member: Member) -> Expert:
        return self._leaf(member.number) if member.is_leaf else self._slots[member.number]

    def _known_of(self, expert: Expert, leaves: npt.NDArray[np.int64]) -> FloatArray:
        """Return the covariance of a cluster with leaves, divided by the cluster's factor."""
        across = self._covariance[np.ix_(expert.leaves, leaves)]
        return np.asarray(solve_triangular(expert.factor, across, lower=True, check_finite=False))

    def _extend(
        self, expert: Expert, leaves: npt.NDArray[np.int64], known: FloatArray
    ) -> Extension:
        own = self._covariance[np.ix_(leaves, leaves)] + np.eye(len(leaves))
        factor = np.asarray(np.linalg.cholesky(own - known.T @ known), np.float64)
        gap = self._outputs[leaves] - known.T @ expert.whitened
        whitened = np.asarray(solve_triangular(factor, gap, lower=True, check_finite=False))
        log_determinant = 2 * float(np.log(np.diagonal(factor)).sum())
        total = len(leaves) * self._log_noise + log_determinant + float(whitened @ whitened)
        return Extension(factor, whitened, expert.log_f - 0.5 * total)

    def focus(self, member: Member) -> None:
        self._inputs.focus(member)
        self._focus = self._member(member)
        self._across = self._known_of(self._focus, np.arange(len(self._outputs)))

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        self._inputs.add_singles(start, stop, out)
        leaves = self._window[start:stop]
        known = self._across[:, leaves]
        variance = 1 + self._covariance[leaves, leaves] - (known * known).sum(axis=0)
        gap = self._outputs[leaves] - self._focus.whitened @ known
        terms = self._log_noise + np.log(variance) + gap * gap / variance
        out += self._focus.log_f - 0.5 * terms

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        self._inputs.add_clusters(slots, out)
        for p, slot in enumerate(slots.tolist()):
            leaves = self._slots[slot].leaves
            out[p] += self._extend(self._focus, leaves, self._across[:, leaves]).log_f

    def merge(self, left: Member, right: Member, slot: int) -> float:
        base, other = self._member(left), self._member(right)
        known = self._known_of(base, other.leaves)
        added = self._extend(base, other.leaves, known)
        n, m = len(base.leaves), len(other.leaves)
        factor = np.zeros((n + m, n + m))
        factor[:n, :n] = base.factor
        factor[n:, :n] = known.T
        factor[n:, n:] = added.factor
        leaves = np.concatenate([base.leaves, other.leaves])
        whitened = np.concatenate([base.whitened, added.whitened])
        self._slots[slot] = Expert(leaves, factor, whitened, added.log_f)
        return self._inputs.merge(left, right, slot) + added.log_f

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._inputs.compact(keep)
        self._window = self._window[keep]
