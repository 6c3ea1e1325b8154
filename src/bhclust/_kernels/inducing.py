"""Scores of Gaussian-process experts by inducing points: sums of features in slots.

Everything about outputs is in units of the noise, and features in units of the amplitude over it.
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
from bhclust.models.inducing import InducingPointExpert

# Numbers held at once where every union needs a matrix: 16 MiB.
_BLOCK = 1 << 21


class _Focus(NamedTuple):
    """The cluster that others are scored against: its sums, and leaves' features divided by it."""

    precision: FloatArray
    products: FloatArray
    square: float
    n_points: float
    known: FloatArray
    whitened: FloatArray
    log_f: float


class InducingPart(Part):
    """`InducingPointExpert`: single points by a rank-one update, clusters by one factor each."""

    def __init__(self, model: InducingPointExpert, leaf_stats: FloatArray, n_slots: int) -> None:
        self._inputs = FullPart(model.input_model, model.input_stats(leaf_stats), n_slots)
        noise = float(model.hyperparameter("noise"))
        ratio = float(model.hyperparameter("amplitude")) / noise
        self._features, outputs = model.leaf_features(leaf_stats)
        self._features *= ratio
        self._outputs = outputs / noise
        m = self._features.shape[1]
        self._log_noise = math.log(2 * math.pi) + 2 * math.log(noise)
        self._window = np.arange(len(leaf_stats))
        self._precisions = np.zeros((n_slots, m, m))  # Σφφᵀ
        self._products = np.zeros((n_slots, m))
        self._squares = np.zeros(n_slots)
        self._counts = np.zeros(n_slots)
        self._focus = self._focused(Member(True, 0)) if len(leaf_stats) else None

    def _sums(self, member: Member) -> tuple[FloatArray, FloatArray, float, float]:
        k = member.number
        if not member.is_leaf:
            squares, count = float(self._squares[k]), float(self._counts[k])
            return self._precisions[k], self._products[k], squares, count
        feature, output = self._features[k], float(self._outputs[k])
        return np.outer(feature, feature), feature * output, output * output, 1.0

    def _focused(self, member: Member) -> _Focus:
        precision, products, square, count = self._sums(member)
        factor = np.linalg.cholesky(precision + np.eye(len(precision)))
        both = np.column_stack([products, self._features.T])
        solved = solve_triangular(factor, both, lower=True, check_finite=False)
        whitened, known = solved[:, 0], solved[:, 1:]
        total = count * self._log_noise + square - float(whitened @ whitened)
        log_f = -0.5 * (total + 2 * float(np.log(np.diagonal(factor)).sum()))
        return _Focus(precision, products, square, count, known, whitened, log_f)

    def focus(self, member: Member) -> None:
        self._inputs.focus(member)
        self._focus = self._focused(member)

    def add_singles(self, start: int, stop: int, out: FloatArray) -> None:
        self._inputs.add_singles(start, stop, out)
        assert self._focus is not None, "a part without leaves scores nothing"
        leaves = self._window[start:stop]
        known = self._focus.known[:, leaves]
        variance = 1 + (known * known).sum(axis=0)
        gap = self._outputs[leaves] - self._focus.whitened @ known
        terms = self._log_noise + np.log(variance) + gap * gap / variance
        out += self._focus.log_f - 0.5 * terms

    def add_clusters(self, slots: npt.NDArray[np.int64], out: FloatArray) -> None:
        self._inputs.add_clusters(slots, out)
        assert self._focus is not None, "a part without leaves scores nothing"
        own = self._focus
        base = own.precision + np.eye(len(own.precision))
        size = max(1, _BLOCK // base.size)
        for start in range(0, len(slots), size):
            some = slots[start : start + size]
            out[start : start + size] += self._log_outputs(
                base + self._precisions[some],
                own.products + self._products[some],
                own.square + self._squares[some],
                own.n_points + self._counts[some],
            )

    def _log_outputs(
        self, precisions: FloatArray, products: FloatArray, squares: FloatArray, counts: FloatArray
    ) -> FloatArray:
        factor = np.linalg.cholesky(precisions)
        whitened = np.linalg.solve(factor, products[:, :, None])[:, :, 0]
        pivots = np.diagonal(factor, axis1=1, axis2=2)
        square = squares - (whitened * whitened).sum(axis=1)
        total = counts * self._log_noise + square + 2 * np.log(pivots).sum(axis=1)
        return np.asarray(-0.5 * total)

    def merge(self, left: Member, right: Member, slot: int) -> float:
        a, b = self._sums(left), self._sums(right)
        self._precisions[slot] = a[0] + b[0]
        self._products[slot] = a[1] + b[1]
        self._squares[slot], self._counts[slot] = a[2] + b[2], a[3] + b[3]
        log_outputs = self._log_outputs(
            self._precisions[slot : slot + 1] + np.eye(len(a[0])),
            self._products[slot : slot + 1],
            self._squares[slot : slot + 1],
            self._counts[slot : slot + 1],
        )
        return self._inputs.merge(left, right, slot) + float(log_outputs[0])

    def compact(self, keep: npt.NDArray[np.int64]) -> None:
        self._inputs.compact(keep)
        self._window = self._window[keep]
