"""Gaussian-process experts by inducing points: statistics that add up, for larger tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, check_count, check_matrix
from bhclust.models._columnwise import frozen
from bhclust.models.base import FeatureLevels, Hyperparameter, one_level_each
from bhclust.models.gp_expert import GaussianProcessExpert, Output

# A further point must add this part of a curve's variance somewhere.
_LEAST_NEWS = 1e-10

# Numbers held at once where every cluster needs a matrix: 16 MiB.
_BLOCK = 1 << 21

# What the statistics are made of; they would have to be made again for another value.
_IN_STATISTICS = ("length_scale", "period")


@dataclass(frozen=True, eq=False)
class InducingPointExpert(GaussianProcessExpert):
    """`GaussianProcessExpert`, approximated: curves are known by their values at a few inputs.

    The covariance of outputs ``K`` becomes ``K_xz K_zz⁻¹ K_zx`` with the inducing points z (the
    subset-of-regressors approximation; its marginal likelihood is also that of the deterministic
    training conditional). It is a probability model by itself, and the exact one as soon as every
    input is an inducing point.

    Parameters
    ----------
    kernel, length_scale, amplitude, noise, output_mean, period, mean, strength, dof, scale
        As in `GaussianProcessExpert`. Length scale and period stay as they are given.
    n_inducing : int
        Most inducing points. They are chosen among the table's inputs, one after the other where
        the curve is known least from those before.
    inducing : array of shape (m, p), optional
        The inducing points; `resolve` sets them.

    Notes
    -----
    Statistics: those of the inputs in `Gaussian`, and with the m features φ of each point the sums
    of φφᵀ, φy and y². They add up and do not grow with the table, and a score is O(m³), or O(m²)
    for a single point. The features hold length scale and period, which are not learned.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import GaussianProcessExpert, InducingPointExpert
    >>> x = np.linspace(0, 6, 40)
    >>> X = np.column_stack([x, np.sin(x)])
    >>> log_f = []
    >>> for model in (GaussianProcessExpert(noise=0.1), InducingPointExpert(noise=0.1)):
    ...     model = model.resolve(X)
    ...     log_f.append(model.log_marginal(model.union(model.suffstats(X)))[0])
    >>> bool(abs(log_f[0] - log_f[1]) < 1e-3)
    True
    """

    n_inducing: int = field(default=30, kw_only=True)
    inducing: npt.ArrayLike | None = field(default=None, kw_only=True, repr=False)

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior from the moments of inputs and output, and choose inducing points."""
        check_count(self.n_inducing, name="n_inducing", owner=self._owner)
        rows = self._weighted_rows(X, weight)
        settled = super().resolve(X, weight)
        if self.inducing is None:
            candidates = np.unique(rows.table[:, :-1], axis=0)
        else:
            candidates = check_matrix(self.inducing, owner=f"{self._owner}: inducing")
            if candidates.shape[1] != rows.table.shape[1] - 1 or not len(candidates):
                raise BhclustError(
                    f"{self._owner}: inducing must hold points with "
                    f"{rows.table.shape[1] - 1} input(s), got shape {candidates.shape}."
                )
        return replace(settled, inducing=frozen(settled._choose(candidates)))

    def _check_n_points(self, n_points: int) -> None:
        """Accept any number: statistics do not grow with it."""

    def _choose(self, candidates: FloatArray) -> FloatArray:
        """Take the point whose value is known least from those before, again and again.

        This is the Cholesky factorisation with pivoting.
        """
        left = np.ones(len(candidates))
        columns = np.zeros((0, len(candidates)))
        chosen: list[int] = []
        while len(chosen) < min(self.n_inducing, len(candidates)):
            best = int(np.argmax(left))
            if left[best] < _LEAST_NEWS:
                break
            covariance = self._kernel(candidates[best : best + 1], candidates).value[0]
            column = (covariance - columns[:, best] @ columns) / np.sqrt(left[best])
            columns = np.vstack([columns, column])
            left = left - column * column
            left[best] = 0.0
            chosen.append(best)
        return candidates[chosen]

    def free(self) -> tuple[Hyperparameter, ...]:
        """Return what can be learned: everything but length scale and period."""
        return tuple(spec for spec in super().free() if spec.name not in _IN_STATISTICS)

    def with_hyperparameters(self, values: Mapping[str, npt.ArrayLike]) -> Self:
        """Return a copy with some hyperparameters replaced; length scale and period stay."""
        for name in _IN_STATISTICS:
            if name in values:
                raise BhclustError(
                    f"{self._owner}: {name} is part of the statistics and cannot be learned; give "
                    "it a value, or learn it by GaussianProcessExpert on a sample."
                )
        return super().with_hyperparameters(values)

    @cached_property
    def _inverse_factor(self) -> FloatArray:
        points = self._parameter("inducing")
        factor = np.linalg.cholesky(self._kernel(points, points).value)
        return np.asarray(np.linalg.inv(factor), np.float64)

    def features(self, inputs: FloatArray) -> FloatArray:
        """Return the m features of each input: their products are the curve's covariance."""
        kernel = self._kernel(inputs, self._parameter("inducing")).value
        # Not a matrix product: a row must not depend on the others to the last bit.
        return np.asarray((kernel[:, None, :] * self._inverse_factor).sum(axis=2))

    @property
    def _n_input_stats(self) -> int:
        d = int(self._parameter("inducing").shape[1])
        return 1 + d + d * (d + 1) // 2

    def input_stats(self, stats: FloatArray) -> FloatArray:
        """Return the statistics of the inputs for `Gaussian`."""
        return np.ascontiguousarray(stats[:, : self._n_input_stats])

    def output_sums(self, stats: FloatArray) -> OutputSums:
        """Return the count and the sums of φφᵀ, φy and y² of each cluster."""
        m = len(self._parameter("inducing"))
        sums = stats[:, self._n_input_stats :]
        n_entries = m * (m + 1) // 2
        rows, columns = np.tril_indices(m)
        squares = np.empty((len(stats), m, m))
        squares[:, rows, columns] = sums[:, :n_entries]
        squares[:, columns, rows] = sums[:, :n_entries]
        return OutputSums(stats[:, 0], squares, sums[:, n_entries:-1], sums[:, -1])

    def suffstats(self, X: Any) -> FloatArray:
        """Return the statistics of each row as a cluster of one point."""
        table = self._table(X)
        inputs = self.input_model.suffstats(table[:, :-1])
        features = self.features(table[:, :-1])
        output = table[:, -1:] - self._number("output_mean")
        rows, columns = np.tril_indices(features.shape[1])
        products = features[:, rows] * features[:, columns]
        return np.hstack([inputs, products, features * output, output * output])

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        k = self._n_input_stats
        inputs = self.input_model.merge(a[:, :k], b[:, :k])
        return np.hstack([inputs, a[:, k:] + b[:, k:]])

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        k = self._n_input_stats
        inputs = self.input_model.repeat(stats[:, :k], weight)
        return np.hstack([inputs, stats[:, k:] * np.asarray(weight)[:, None]])

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's inputs; that of its output is not in the sums."""
        inputs = self.input_model.feature_levels(self.input_stats(stats)).value
        return one_level_each(np.hstack([inputs, np.full((len(stats), 1), np.nan)]), "mean")

    def leaf_features(self, stats: FloatArray) -> LeafFeatures:
        """Return features and outputs of clusters of one point each."""
        d = self._parameter("inducing").shape[1]
        features = self.features(stats[:, 1 : 1 + d] + np.asarray(self.input_model.origin))
        sums = self.output_sums(stats)
        rows, largest = np.arange(len(stats)), np.abs(features).argmax(axis=1)
        feature = features[rows, largest]
        # Where no feature is left, a point is noise, and the sign of its output does not matter.
        sure = np.abs(feature) > 0
        divided = sums.products[rows, largest] / np.where(sure, feature, 1.0)
        return LeafFeatures(features, np.where(sure, divided, np.sqrt(sums.square)))

    @property
    def _ratio(self) -> float:
        """Return the variance of the curve in units of the noise variance."""
        return (self._number("amplitude") / self._number("noise")) ** 2

    def _conditioned(self, stats: FloatArray) -> Iterator[_Conditioned]:
        """Return the Cholesky factors of ``1 + ratio · Σφφᵀ`` and Σφy divided by them."""
        size = max(1, _BLOCK // len(self._parameter("inducing")) ** 2)
        for start in range(0, len(stats), size):
            rows = slice(start, start + size)
            sums = self.output_sums(stats[rows])
            precision = self._ratio * sums.squares + np.eye(sums.squares.shape[1])
            factor = np.asarray(np.linalg.cholesky(precision), np.float64)
            solved = np.linalg.solve(factor, sums.products[:, :, None])
            whitened = np.asarray(solved[:, :, 0], np.float64)
            yield _Conditioned(rows, sums, factor, whitened)

    def _log_outputs(self, stats: FloatArray) -> FloatArray:
        """Return log of the density of the outputs given the inputs, (m,)."""
        variance = self._number("noise") ** 2
        out = np.empty(len(stats))
        for rows, sums, factor, whitened in self._conditioned(stats):
            pivots = np.ascontiguousarray(np.diagonal(factor, axis1=1, axis2=2))
            square = sums.square - self._ratio * (whitened * whitened).sum(axis=1)
            total = sums.n_points * np.log(2 * np.pi * variance) + square / variance
            out[rows] = -0.5 * (total + 2 * np.log(pivots).sum(axis=1))
        return out

    def output_given(self, stats: FloatArray, inputs: FloatArray) -> Output:
        """Return mean and standard deviation of a new output at some inputs, by cluster."""
        features = self.features(inputs)
        amplitude, noise = self._number("amplitude"), self._number("noise")
        means = np.empty((len(inputs), len(stats)))
        deviations = np.empty_like(means)
        for rows, _, factor, whitened in self._conditioned(stats):
            # A block of clusters at a time is small enough with all inputs of a table.
            for k in range(len(factor)):
                known = np.linalg.solve(factor[k], features.T)
                means[:, rows.start + k] = self._ratio * (known.T @ whitened[k])
                curve = amplitude**2 * (known * known).sum(axis=0)
                deviations[:, rows.start + k] = np.sqrt(curve + noise**2)
        return Output(means + self._number("output_mean"), deviations)

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂`` each hyperparameter that can be learned."""
        noise, amplitude, ratio = self._number("noise"), self._number("amplitude"), self._ratio
        by_ratio = by_variance = 0.0
        for rows, sums, factor, whitened in self._conditioned(stats):
            inverse = np.linalg.inv(factor)
            shrunk = (inverse * whitened[:, :, None]).sum(axis=1)
            # trace(M⁻¹ A) with M = 1 + ratio · A is (m - trace M⁻¹) / ratio
            trace = (factor.shape[1] - np.square(inverse).sum(axis=(1, 2))) / ratio
            slope = (shrunk * shrunk).sum(axis=1) / noise**2 - trace
            by_ratio += 0.5 * float(weights[rows] @ slope)
            square = sums.square - ratio * (whitened * whitened).sum(axis=1)
            own = square / noise**4 - sums.n_points / noise**2
            by_variance += 0.5 * float(weights[rows] @ own)
        out = self.input_model.gradient(self.input_stats(stats), weights)
        out["amplitude"] = np.asarray(2 * ratio / amplitude * by_ratio)
        out["noise"] = np.asarray(2 * noise * by_variance - 2 * ratio / noise * by_ratio)
        return {spec.name: out[spec.name] for spec in self.free()}


class OutputSums(NamedTuple):
    """Count of each cluster and the sums of φφᵀ, φy and y², y as seen from the prior mean."""

    n_points: FloatArray
    squares: FloatArray
    products: FloatArray
    square: FloatArray


class LeafFeatures(NamedTuple):
    """Features of single points, and their outputs as seen from the prior mean."""

    features: FloatArray
    outputs: FloatArray


class _Conditioned(NamedTuple):
    """A block of clusters: which, their sums, the Cholesky factors, Σφy divided by them."""

    rows: slice
    sums: OutputSums
    factor: FloatArray
    whitened: FloatArray
