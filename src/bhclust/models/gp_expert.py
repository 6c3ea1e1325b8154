"""A model for inputs with an output: a normal cloud of inputs, a Gaussian process of outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FloatArray,
    check_choice,
    check_complete,
    check_magnitude,
    check_positive,
)
from bhclust.models._columnwise import ColumnwiseModel, column_moments, ratio
from bhclust.models._covariance import KERNELS, Covariance, distance_covariance
from bhclust.models._slots import COUNT, merge_slots, repeat_slots
from bhclust.models.base import FeatureLevels, Hyperparameter, Kind, Missing, one_level_each
from bhclust.models.gaussian import Gaussian

_KERNELS = tuple(kernel for kernel in KERNELS if kernel != "cubic_spline")

# The default prior expects this part of the output's variance to be noise.
_NOISE_SHARE = 0.2

# A cluster keeps its points, so a tree of n rows holds 2 n² of them.
_MOST_ROWS = 2000

# The variance of an output is larger by this part for each point, so that rounding cannot make its
# covariance indefinite however small the noise is.
_JITTER = 1e-14


@dataclass(frozen=True, eq=False)
class GaussianProcessExpert(ColumnwiseModel):
    """Inputs and an output: each cluster is a normal cloud of inputs with a curve over it.

    The last column is the output. Inputs are normal with a normal-inverse-Wishart prior, as in
    `Gaussian`; given them, outputs are a Gaussian process with covariance
    ``amplitude² · k(x, x′)`` plus independent noise. Missing values are an error.

    Parameters
    ----------
    kernel : str
        "squared_exponential", "matern12", "matern32", "matern52" or "periodic", of the Euclidean
        distance of inputs.
    length_scale : float, optional
        Distance over which the output changes; by default half a standard deviation of inputs.
    amplitude : float, optional
        Standard deviation of the curve; by default four fifths of the output's variance.
    noise : float, optional
        Standard deviation of the noise; by default a fifth of the output's variance.
    output_mean : float, optional
        Prior mean of the curve; by default the mean of the outputs.
    period : float, optional
        Period of the kernel "periodic"; by default four standard deviations of inputs.
    mean, strength, dof, scale : optional
        The prior of the inputs, with the defaults of `Gaussian`.

    Notes
    -----
    Statistics: the distinct points of the cluster in increasing order, each with how many times it
    is there, and zeros up to the ``capacity``, which `resolve` sets to one more than the distinct
    rows of the table. They grow with the table, and a score is O(n³) in the size of the cluster:
    for tables of some hundred rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import GaussianProcessExpert
    >>> x = np.linspace(0, 6, 8)
    >>> X = np.column_stack([np.r_[x, x], np.r_[np.sin(x), np.sin(x) + 3]])
    >>> model = GaussianProcessExpert(noise=0.1).resolve(X)
    >>> stats = model.suffstats(X)
    >>> a, b = model.union(stats[:8]), model.union(stats[8:])
    >>> bool(model.feature_contributions(a, b).sum() > 0)  # two curves rather than one
    True
    """

    kernel: str = "squared_exponential"
    length_scale: float | None = None
    amplitude: float | None = None
    noise: float | None = None
    output_mean: float | None = None
    period: float | None = None
    mean: npt.ArrayLike | None = None
    strength: float | None = None
    dof: float | None = None
    scale: npt.ArrayLike | None = None
    origin: npt.ArrayLike | None = field(default=None, kw_only=True, repr=False)
    capacity: int | None = field(default=None, kw_only=True, repr=False)

    kind: ClassVar[Kind] = "real"
    missing: ClassVar[Missing] = "error"
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("length_scale", "positive"),
        Hyperparameter("amplitude", "positive"),
        Hyperparameter("noise", "positive"),
        Hyperparameter("period", "positive"),
        *Gaussian.hyperparameters,
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior from the moments of inputs and output."""
        check_choice(self.kernel, _KERNELS, name="kernel", owner=self._owner)
        if self.period is not None and self.kernel != "periodic":
            raise BhclustError(
                f"{self._owner}: period belongs to kernel='periodic', got kernel={self.kernel!r}."
            )
        rows = self._weighted_rows(X, weight)
        if self.kernel == "periodic" and rows.table.shape[1] > 2:
            raise BhclustError(f"{self._owner}: kernel='periodic' takes one input.")
        points = np.unique(rows.table, axis=0)
        self._check_n_points(len(points))
        inputs = Gaussian(self.mean, self.strength, self.dof, self.scale, origin=self.origin)
        inputs = inputs.resolve(rows.table[:, :-1], rows.weight)
        spread, output = (
            column_moments(part, rows.weight) for part in (rows.table[:, :-1], rows.table[:, -1:])
        )
        width = float(np.sqrt(spread.variance.mean()))
        variance = float(output.variance[0])
        defaults = {
            "length_scale": 0.5 * width if self.kernel != "periodic" else 1.0,
            "amplitude": np.sqrt((1 - _NOISE_SHARE) * variance),
            "noise": np.sqrt(_NOISE_SHARE * variance),
            "period": 4 * width if self.kernel == "periodic" else None,
        }
        values: dict[str, Any] = {}
        for name, default in defaults.items():
            given = getattr(self, name)
            value = default if given is None else given
            if value is not None:
                values[name] = check_positive(float(value), name=name, owner=self._owner)
        centre = output.mean[0] if self.output_mean is None else self.output_mean
        return replace(
            self,
            **values,
            output_mean=float(centre),
            **{spec.name: getattr(inputs, spec.name) for spec in Gaussian.hyperparameters},
            origin=inputs.origin,
            capacity=len(points) + 1 if self.capacity is None else self.capacity,
        )

    def _check_n_points(self, n_points: int) -> None:
        if n_points > _MOST_ROWS:
            raise BhclustError(
                f"{self._owner} keeps every point of every cluster and takes at most {_MOST_ROWS} "
                f"distinct rows, got {n_points}; fit a sample of them, or use InducingPointExpert."
            )

    def _n_resolved_columns(self) -> int | None:
        return len(self.mean) + 1 if isinstance(self.mean, np.ndarray) else None

    def _check_values(self, table: Any) -> None:
        if table.shape[1] < 2:
            raise BhclustError(
                f"{self._owner} takes at least one input and the output as the last column, got "
                f"{table.shape[1]} column(s)."
            )
        check_complete(table, owner=self._owner, instead="DiagonalGaussian", column=self._column)
        check_magnitude(table, self._column)

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        if value is None:
            raise BhclustError(f"{self._owner} has no {name} yet: call resolve(X) first.")
        return float(value)

    @cached_property
    def input_model(self) -> Gaussian:
        """The model of the inputs alone."""
        self._number("capacity")
        return Gaussian(self.mean, self.strength, self.dof, self.scale, origin=self.origin)

    def _slots(self, stats: FloatArray) -> FloatArray:
        """Return statistics as (clusters, capacity, count and inputs and output)."""
        return stats.reshape(len(stats), int(self._number("capacity")), -1)

    def suffstats(self, X: Any) -> FloatArray:
        """Return each row as a cluster of one point."""
        table = self._table(X)
        capacity = int(self._number("capacity"))
        out = np.zeros((len(table), capacity, table.shape[1] + 1))
        out[:, 0, COUNT] = 1.0
        # Adding zero makes one number of 0 and -0, which are equal but sort by their bits.
        out[:, 0, 1:] = table + 0.0
        return out.reshape(len(table), -1)

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the union of the points, row by row; one side may be a single row."""
        capacity = int(self._number("capacity"))
        union = merge_slots(self._slots(a), self._slots(b))
        if union is None:
            raise BhclustError(
                f"{self._owner} was resolved for clusters of {capacity} distinct points; "
                "resolve it with all rows, or set capacity."
            )
        return union.reshape(len(union), -1)

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        return repeat_slots(self._slots(stats), weight).reshape(len(stats), -1)

    def union(self, stats: FloatArray) -> FloatArray:
        """Return the statistics of all clusters together, one row."""
        out = stats[:1]
        for row in stats[1:]:
            out = self.merge(out, row[None])
        return out

    def input_stats(self, stats: FloatArray) -> FloatArray:
        """Return the statistics of the inputs for `Gaussian`."""
        slots = self._slots(stats)
        origin = np.asarray(self.input_model.origin)
        d = len(origin)
        count = np.ascontiguousarray(slots[:, :, COUNT])
        total = count.sum(axis=1)
        share = count / np.where(total > 0, total, 1.0)[:, None]
        distance = np.where(count[:, :, None] > 0, slots[:, :, 1:-1] - origin, 0.0)
        mean = (share[:, :, None] * distance).sum(axis=1)
        gap = np.where(count[:, :, None] > 0, distance - mean[:, None], 0.0)
        rows, columns = np.tril_indices(d)
        scatter = (count[:, :, None] * gap[:, :, rows] * gap[:, :, columns]).sum(axis=1)
        return np.ascontiguousarray(np.hstack([total[:, None], mean, scatter]))

    def leaf_outputs(self, stats: FloatArray) -> LeafOutputs:
        """Return covariance and outputs of clusters of one point each, in units of the noise."""
        points = self._slots(stats)[:, 0]
        ratio = (self._number("amplitude") / self._number("noise")) ** 2
        covariance = ratio * self._kernel(points[:, 1:-1], points[:, 1:-1]).value
        covariance[np.diag_indices_from(covariance)] *= 1 + _JITTER * len(points)
        outputs = (points[:, -1] - self._number("output_mean")) / self._number("noise")
        return LeafOutputs(covariance, outputs)

    def _points(self, stats: FloatArray) -> Iterator[_Points]:
        """Take each cluster apart; outputs are seen from their prior mean."""
        centre = self._number("output_mean")
        for slots in self._slots(stats):
            used = slots[slots[:, COUNT] > 0]
            yield _Points(used[:, COUNT], used[:, 1:-1], used[:, -1] - centre)

    def _kernel(self, a: FloatArray, b: FloatArray) -> Covariance:
        distance = np.sqrt(np.square(a[:, None] - b[None]).sum(axis=2))
        period = None if self.period is None else self._number("period")
        return distance_covariance(self.kernel, distance, self._number("length_scale"), period)

    def _weighted_covariance(self, points: _Points, kernel: Covariance) -> FloatArray:
        """Return ``1 + W K W`` with W the roots of the counts, in units of the noise."""
        ratio = (self._number("amplitude") / self._number("noise")) ** 2
        root = np.sqrt(points.n_items)
        out = ratio * root[:, None] * kernel.value * root
        out[np.diag_indices_from(out)] *= 1 + _JITTER * len(out)
        return np.asarray(out + np.eye(len(out)))

    def _condition(self, points: _Points) -> _Conditioned:
        factor = np.linalg.cholesky(
            self._weighted_covariance(points, self._kernel(points.inputs, points.inputs))
        )
        scaled = np.sqrt(points.n_items) * points.output / self._number("noise")
        return _Conditioned(np.asarray(factor, np.float64), np.linalg.solve(factor, scaled))

    def _log_outputs(self, stats: FloatArray) -> FloatArray:
        """Return log of the density of the outputs given the inputs, (m,)."""
        log_noise = np.log(2 * np.pi) + 2 * np.log(self._number("noise"))
        out = np.empty(len(stats))
        for k, points in enumerate(self._points(stats)):
            factor, whitened = self._condition(points)
            log_determinant = 2 * np.log(np.diagonal(factor)).sum()
            square = (whitened * whitened).sum()
            out[k] = -0.5 * (points.n_items.sum() * log_noise + log_determinant + square)
        return out

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the terms of the inputs, and that of the output given them."""
        inputs = self.input_model.feature_log_marginal(self.input_stats(stats))
        return np.hstack([inputs, self._log_outputs(stats)[:, None]])

    def log_input_predictive(self, stats: FloatArray, inputs: FloatArray) -> FloatArray:
        """Return the log density of new inputs under each cluster, shape ``(n, m)``."""
        return self.input_model.log_predictive(self.input_stats(stats), inputs)

    def output_given(self, stats: FloatArray, inputs: FloatArray) -> Output:
        """Return mean and standard deviation of a new output at some inputs, by cluster.

        Examples
        --------
        >>> import numpy as np
        >>> from bhclust.models import GaussianProcessExpert
        >>> X = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
        >>> model = GaussianProcessExpert(length_scale=2.0, amplitude=2.0, noise=0.1).resolve(X)
        >>> cluster = model.union(model.suffstats(X))
        >>> model.output_given(cluster, np.array([[1.0]])).mean.round(2)
        array([[2.]])
        """
        noise, amplitude = self._number("noise"), self._number("amplitude")
        means = np.empty((len(inputs), len(stats)))
        deviations = np.empty_like(means)
        for k, points in enumerate(self._points(stats)):
            factor, whitened = self._condition(points)
            across = self._kernel(points.inputs, inputs).value * (amplitude / noise) ** 2
            known = np.linalg.solve(factor, np.sqrt(points.n_items)[:, None] * across)
            means[:, k] = noise * (known.T @ whitened)
            left = amplitude**2 - noise**2 * (known * known).sum(axis=0)
            deviations[:, k] = np.sqrt(np.maximum(left, 0.0) + noise**2)
        return Output(means + self._number("output_mean"), deviations)

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``: a Student t of the inputs times a normal of the output."""
        table = self._table(X)
        mean, deviation = self.output_given(stats, table[:, :-1])
        gap = (table[:, -1:] - mean) / deviation
        log_output = -0.5 * gap * gap - np.log(deviation) - 0.5 * np.log(2 * np.pi)
        return np.asarray(self.log_input_predictive(stats, table[:, :-1]) + log_output)

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        inputs = self.input_model.sample(self.input_stats(stats[:1]), n, rng)
        mean, deviation = self.output_given(stats[:1], inputs)
        return np.hstack([inputs, mean + deviation * rng.standard_normal(mean.shape)])

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Return a copy of a complete table; missing values are an error here."""
        return np.array(self._table(X))

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's inputs and of its output."""
        slots = self._slots(stats)
        count = slots[:, :, COUNT, None]
        return one_level_each(ratio((count * slots[:, :, 1:]).sum(1), count.sum(1)), "mean")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return ``mean`` and ``standard_deviation`` of each cluster's inputs."""
        return self.input_model.summary(self.input_stats(stats))

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂`` each hyperparameter."""
        noise, amplitude = self._number("noise"), self._number("amplitude")
        found = dict.fromkeys(("length_scale", "amplitude", "noise", "period"), 0.0)
        for weight, points in zip(weights, self._points(stats), strict=True):
            kernel = self._kernel(points.inputs, points.inputs)
            inverse = np.linalg.inv(self._weighted_covariance(points, kernel))
            root = np.sqrt(points.n_items)
            shrunk = inverse @ (root * points.output / noise)
            pulled = root * shrunk
            slope = np.outer(pulled, pulled) - root[:, None] * inverse * root
            scale = weight * (amplitude / noise) ** 2 / 2
            found["length_scale"] += scale * np.sum(slope * kernel.by_length_scale)
            found["period"] += scale * np.sum(slope * kernel.by_period)
            found["amplitude"] += 2 * scale / amplitude * np.sum(slope * kernel.value)
            by_noise = len(root) - points.n_items.sum() + shrunk @ shrunk - np.trace(inverse)
            found["noise"] += weight * by_noise / noise
        out = self.input_model.gradient(self.input_stats(stats), weights)
        out.update({name: np.asarray(value) for name, value in found.items()})
        return {spec.name: out[spec.name] for spec in self.free()}


class Output(NamedTuple):
    """Mean and standard deviation of a new output, shape (inputs, clusters)."""

    mean: FloatArray
    standard_deviation: FloatArray


class LeafOutputs(NamedTuple):
    """Covariance of the curve at the points, without noise, and the outputs there."""

    covariance: FloatArray
    outputs: FloatArray


class _Points(NamedTuple):
    """The distinct points of a cluster: how often each is there, its inputs and output."""

    n_items: FloatArray
    inputs: FloatArray
    output: FloatArray


class _Conditioned(NamedTuple):
    """Cholesky factor of the outputs' covariance and the outputs divided by it."""

    factor: FloatArray
    whitened: FloatArray
