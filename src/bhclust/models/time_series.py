"""A model for curves measured at shared times: a Gaussian process with noise."""

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
    IntArray,
    broadcast_hyperparameter,
    check_choice,
    check_magnitude,
    check_positive,
    listed,
)
from bhclust.models._arrays import arrays_of, like
from bhclust.models._columnwise import (
    ColumnwiseModel,
    WeightedRows,
    feature_blocks,
    fill_missing,
    frozen,
    pair_blocks,
)
from bhclust.models._covariance import KERNELS, Covariance, unit_covariance
from bhclust.models.base import FeatureLevels, Hyperparameter, Kind, Missing, one_level_each
from bhclust.models.gaussian import merge_moments, repeat_moments

# The default prior expects this part of the variance to be noise around a cluster's curve.
_NOISE_SHARE = 0.2

# The default length scale is this part of the time from the first to the last measurement.
_LENGTH_SHARE = 0.2

# Spread below so many float64 spacings of the values is rounding.
_CONSTANT_SPACINGS = 16

# The variance of a curve is larger by this part for each time, so that rounding cannot make its
# covariance indefinite however small the noise is. With any noise to speak of it changes nothing.
_JITTER = 1e-14

# Numbers held at once where every cluster needs a matrix: 16 MiB.
_BLOCK = 1 << 21

# A cluster of less weight does not change an expected value.
_LEAST_WEIGHT = 1e-17


class Curve(NamedTuple):
    """A cluster's curve at some times: its mean and its standard deviation, shape (m, p)."""

    times: FloatArray
    mean: FloatArray
    standard_deviation: FloatArray


@dataclass(frozen=True, eq=False)
class TimeSeries(ColumnwiseModel):
    """Curves at shared times: a cluster is a smooth random curve, its items are that plus noise.

    The curve is a Gaussian process with covariance ``amplitude² · k(t, t′)`` around ``mean``; each
    measurement adds independent noise of standard deviation ``noise``. Missing entries are exact.

    Parameters
    ----------
    times : array of shape (d,), optional
        Time of each column, 0, 1, 2, … by default. Columns with the same time are replicates:
        repeated measurements of one item. An array of shape (n, T, R) becomes a table by
        ``X.reshape(n, T * R)`` with ``times=np.repeat(times, R)``.
    kernel : str
        "squared_exponential", "matern12", "matern32", "matern52", "periodic" or "cubic_spline".
    length_scale : float, optional
        Time over which a curve changes; by default a fifth of the time from first to last.
    amplitude : float, optional
        Standard deviation of a curve around ``mean``; by default four fifths of the variance.
    noise : float or "replicates", optional
        Standard deviation of the noise; by default a fifth of the variance. "replicates" takes
        it from the scatter of replicates and keeps it there.
    mean : float or array, optional
        Prior mean of a curve, one number or one for each distinct time in increasing order; by
        default the mean of all entries of the table.
    period : float, optional
        Period of the kernel "periodic"; by default the time from first to last.
    fixed : tuple of str
        Hyperparameters that are never learned, such as ``("noise",)``.

    Notes
    -----
    Statistics: at each distinct time the count, the mean as seen from ``mean`` and the sum of
    squared deviations. Where a cluster's counts have the same ratios at all times, as in a
    complete table, one eigendecomposition makes ``log f`` O(T); other clusters need O(T³).

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import TimeSeries
    >>> t = np.linspace(0, 6, 8)
    >>> X = np.array([np.sin(t), np.sin(t) + 0.1, np.cos(t), np.cos(t) - 0.1])
    >>> X[0, 3] = np.nan
    >>> model = TimeSeries(times=t).resolve(X)
    >>> stats = model.suffstats(X)
    >>> near, far = (model.feature_contributions(stats[:1], stats[i : i + 1]) for i in (1, 2))
    >>> bool(near.sum() < 0 < far.sum())  # the two sines belong together
    True
    """

    times: npt.ArrayLike | None = None
    kernel: str = "squared_exponential"
    length_scale: float | None = None
    amplitude: float | None = None
    noise: float | str | None = None
    mean: npt.ArrayLike | None = None
    period: float | None = None
    fixed: tuple[str, ...] = field(default=(), kw_only=True)

    kind: ClassVar[Kind] = "real"
    missing: ClassVar[Missing] = "exact"
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("length_scale", "positive"),
        Hyperparameter("amplitude", "positive"),
        Hyperparameter("noise", "positive"),
        Hyperparameter("period", "positive"),
    )

    def free(self) -> tuple[Hyperparameter, ...]:
        """Return the hyperparameters that are resolved to numbers and not fixed."""
        return tuple(spec for spec in super().free() if spec.name not in self.fixed)

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior from the grid of times, the means and the variance."""
        self._check_words()
        rows = self._weighted_rows(X, weight)
        placed = replace(self, times=frozen(self._checked_times(rows.table.shape[1])))
        grid = placed._grid
        moments = _moments(rows, grid)
        mean = broadcast_hyperparameter(
            moments.mean if self.mean is None else self.mean,
            (len(grid.times),),
            name="mean",
            owner=self._owner,
            positive=False,
        )
        span = float(grid.times[-1] - grid.times[0]) or 1.0
        variance = _variance(rows, mean[grid.position])
        values: dict[str, Any] = {
            # Chords of the unit circle and a spline over its whole range are of length one.
            "length_scale": _LENGTH_SHARE * span,
            "amplitude": np.sqrt((1 - _NOISE_SHARE) * variance),
            "noise": np.sqrt(_NOISE_SHARE * variance),
            "period": None,
        }
        if self.kernel == "periodic":
            values.update(length_scale=1.0, period=span)
        elif self.kernel == "cubic_spline":
            values["length_scale"] = span
        fixed = self.fixed
        if isinstance(self.noise, str):
            values["noise"] = _replicate_noise(moments)
            fixed = (*fixed, "noise") if "noise" not in fixed else fixed
        for name, default in values.items():
            given = getattr(self, name)
            if given is not None and not isinstance(given, str):
                values[name] = check_positive(given, name=name, owner=self._owner)
            elif default is not None:
                values[name] = float(default)
        return replace(placed, mean=frozen(mean), fixed=fixed, **values)

    def _check_words(self) -> None:
        check_choice(self.kernel, KERNELS, name="kernel", owner=self._owner)
        if isinstance(self.noise, str):
            check_choice(self.noise, ("replicates",), name="noise", owner=self._owner)
        if self.period is not None and self.kernel != "periodic":
            raise BhclustError(
                f"{self._owner}: period belongs to kernel='periodic', got kernel={self.kernel!r}."
            )
        names = [spec.name for spec in self.hyperparameters]
        for name in self.fixed:
            if name not in names:
                raise BhclustError(f"{self._owner}: fixed may hold {listed(names)}, got {name!r}.")

    def _checked_times(self, n_columns: int) -> FloatArray:
        if self.times is None:
            return np.arange(float(n_columns))
        try:
            times = np.asarray(self.times, dtype=np.float64)
        except (TypeError, ValueError):
            raise BhclustError(f"{self._owner}: times must be an array of numbers.") from None
        if times.shape != (n_columns,) or not np.isfinite(times).all():
            raise BhclustError(
                f"{self._owner}: times must hold one finite number for each of the {n_columns} "
                f"column(s) of the table, got shape {times.shape}."
            )
        return times

    def _n_resolved_columns(self) -> int | None:
        return len(self.times) if isinstance(self.times, np.ndarray) else None

    def _check_values(self, table: Any) -> None:
        check_magnitude(table, self._column)

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        if not isinstance(value, float):
            raise BhclustError(f"{self._owner} has no {name} yet: call resolve(X) first.")
        return value

    @cached_property
    def _grid(self) -> Grid:
        times, position, n_columns = np.unique(
            self._parameter("times"), return_inverse=True, return_counts=True
        )
        return Grid(times, position.ravel(), n_columns.astype(np.float64))

    @cached_property
    def noise_covariance(self) -> FloatArray:
        """Covariance of a curve at the distinct times, in units of the noise variance."""
        ratio = self._number("amplitude") / self._number("noise")
        value = self._kernel_between(self._grid.times).value
        value[np.diag_indices_from(value)] *= 1 + _JITTER * len(value)
        return value * ratio**2

    def _kernel_between(self, times: FloatArray) -> Covariance:
        """Return the covariance of unit amplitude between some times and the grid."""
        # Only the cubic spline knows where time starts.
        grid, start = self._grid.times, self._grid.times[0]
        period = None if self.period is None else self._number("period")
        length_scale = self._number("length_scale")
        return unit_covariance(self.kernel, times - start, grid - start, length_scale, period)

    @cached_property
    def spectrum(self) -> Spectrum:
        """The turn that makes the times of a complete item independent of each other."""
        root = np.sqrt(self._grid.n_columns)
        values, vectors = np.linalg.eigh(root[:, None] * self.noise_covariance * root)
        # Rounding can make the smallest values negative, which no covariance has.
        return Spectrum(np.maximum(values, 0.0), vectors * (root / self._number("noise"))[:, None])

    def suffstats(self, X: Any) -> FloatArray:
        """Return count, mean from ``mean`` and squared deviations of the entries at each time."""
        table = self._table(X)
        mean, grid = self._parameter("mean"), self._grid
        blocks = _entry_moments(table - mean[grid.position], grid)
        return np.hstack([blocks.n_items, blocks.mean, blocks.deviation])

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        return merge_moments(a, b)

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        return repeat_moments(stats, weight)

    def complete_items(self, stats: FloatArray) -> FloatArray:
        """Return the number of items of each cluster, NaN if they are not all complete."""
        (n_columns,) = like(stats, self._grid.n_columns)
        items = feature_blocks(stats, 3)[0] / n_columns
        same = (items == items[:, :1]).all(axis=1)
        whole: FloatArray = arrays_of(stats).xp.where(same, items[:, 0], np.nan)
        return whole

    def turned(self, stats: FloatArray) -> FloatArray:
        """Return cluster means in coordinates that are independent for complete items.

        There noise has variance one and a curve the variances ``spectrum.values``.
        """
        mean, (vectors,) = feature_blocks(stats, 3)[1], like(stats, self.spectrum.vectors)
        out: FloatArray = arrays_of(stats).xp.zeros((len(stats), vectors.shape[1]))
        # Not a matrix product: a row must not depend on the others to the last bit.
        for t in range(len(vectors)):
            out += mean[:, t, None] * vectors[t]
        return out

    def log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(D)`` of each cluster, normalised over data, shape ``(m,)``."""
        xp = arrays_of(stats).xp
        items = self.complete_items(stats)
        whole, rest = xp.flatnonzero(~xp.isnan(items)), xp.flatnonzero(xp.isnan(items))
        out: FloatArray = xp.empty(len(stats))
        if len(rest):
            terms = xp.ascontiguousarray(self._time_log_marginal(stats[rest]))
            out[rest] = terms.sum(axis=1)
        if not len(whole):
            return out
        n_items, rows = items[whole][:, None], stats[whole]
        count, _, deviation = feature_blocks(rows, 3)
        (values,) = like(stats, self.spectrum.values)
        widening = 1 + n_items * values
        turned = self.turned(rows)
        per_time = xp.log(widening) + n_items * turned * turned / widening
        per_time += count * self._log_noise + deviation / self._number("noise") ** 2
        out[whole] = -0.5 * xp.ascontiguousarray(per_time).sum(axis=1)
        return out

    @property
    def _log_noise(self) -> float:
        """Return log(2π noise²)."""
        return float(np.log(2 * np.pi) + 2 * np.log(self._number("noise")))

    def _time_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(data at t | data before t)`` of each time, shape ``(m, T)``.

        With ``W = diag(√count)`` the covariance of the weighted means ``v = W mean`` in units of
        the noise is ``B = 1 + W K W``, also where a count is zero. Its Cholesky factor takes the
        times one after another.
        """
        xp = arrays_of(stats).xp
        noise = self._number("noise")
        count, mean, deviation = feature_blocks(stats, 3)
        root = xp.sqrt(count)
        out = -0.5 * (count * self._log_noise + deviation / noise**2)
        for rows in self._row_blocks(len(stats)):
            factor = xp.linalg.cholesky(self._weighted_covariance(root[rows]))
            scaled = (root[rows] * mean[rows] / noise)[:, :, None]
            whitened = xp.linalg.solve(factor, scaled)[:, :, 0]
            pivot = xp.diagonal(factor, axis1=1, axis2=2)
            out[rows] -= xp.log(pivot) + 0.5 * whitened * whitened
        return out

    def _weighted_covariance(self, root: FloatArray) -> FloatArray:
        covariance, one = like(root, self.noise_covariance, np.eye(root.shape[1]))
        weighted: FloatArray = root[:, :, None] * covariance * root[:, None, :] + one
        return weighted

    def _row_blocks(self, n_rows: int) -> Iterator[slice]:
        size = max(1, _BLOCK // len(self._grid.times) ** 2)
        return (slice(i, i + size) for i in range(0, n_rows, size))

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the terms of the chain rule over times, replicates sharing equally, ``(m, d)``."""
        grid = self._grid
        return (self._time_log_marginal(stats) / grid.n_columns)[:, grid.position]

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, a multivariate normal."""
        items = self.suffstats(X)
        out = np.empty((len(items), len(stats)))
        whole = self.complete_items(items) == 1
        n_items = self.complete_items(stats)
        easy = ~np.isnan(n_items)
        if whole.any() and easy.any():
            found = self._complete_predictive(stats[easy], n_items[easy, None], items[whole])
            out[np.ix_(whole, easy)] = found
        log_f = self.log_marginal(stats)
        for i in range(len(items)):
            rest = ~easy if whole[i] else np.ones(len(stats), dtype=bool)
            if rest.any():
                unions = self.log_marginal(merge_moments(stats[rest], items[i : i + 1]))
                out[i, rest] = unions - log_f[rest]
        return out

    def _complete_predictive(
        self, stats: FloatArray, n_items: FloatArray, items: FloatArray
    ) -> FloatArray:
        """Return the log predictive of complete items under clusters of complete items."""
        values = self.spectrum.values
        widening = 1 + n_items * values
        centre = n_items * values / widening * self.turned(stats)
        variance = 1 + values / widening
        count, _, deviation = feature_blocks(items, 3)
        own = count.sum(axis=1) * self._log_noise
        own += deviation.sum(axis=1) / self._number("noise") ** 2
        out = own[:, None] + np.log(variance).sum(axis=1)
        turned = self.turned(items)
        for rows, clusters in pair_blocks(len(items), len(stats), len(values)):
            gap = turned[rows, None] - centre[None, clusters]
            out[rows, clusters] += (gap * gap / variance[clusters]).sum(axis=2)
        return np.asarray(-0.5 * out)

    def _posterior(self, stats: FloatArray, times: FloatArray | None = None) -> Posterior:
        """Return mean and covariance of each cluster's curve, as seen from ``mean``."""
        noise = self._number("noise")
        scale = (self._number("amplitude") / noise) ** 2
        at = self._grid.times if times is None else times
        across = self._kernel_between(at).value * scale
        start = self._grid.times[0]
        period = None if self.period is None else self._number("period")
        own = unit_covariance(
            self.kernel, at - start, at - start, self._number("length_scale"), period
        )
        count, mean, _ = feature_blocks(stats, 3)
        root = np.sqrt(count)
        means = np.empty((len(stats), len(at)))
        covariances = np.empty((len(stats), len(at), len(at)))
        for k in range(len(stats)):
            factor = np.linalg.cholesky(self._weighted_covariance(root[k : k + 1]))[0]
            known = np.linalg.solve(factor, root[k][:, None] * across.T)
            whitened = np.linalg.solve(factor, root[k] * mean[k])
            means[k] = known.T @ whitened
            covariances[k] = noise**2 * (scale * own.value - known.T @ known)
        return Posterior(means, covariances)

    def curve(self, stats: FloatArray, times: npt.ArrayLike | None = None) -> Curve:
        """Return each cluster's posterior curve at any times, by default the distinct ones.

        The prior mean between the times of the table is interpolated linearly.

        Examples
        --------
        >>> import numpy as np
        >>> from bhclust.models import TimeSeries
        >>> X = np.array([[0.0, 1.0, 0.0, -1.0], [0.1, 0.9, 0.1, -1.1]])
        >>> model = TimeSeries(mean=0.0, length_scale=1.0, amplitude=1.0, noise=0.1).resolve(X)
        >>> stats = model.suffstats(X)
        >>> curve = model.curve(model.merge(stats[:1], stats[1:]), times=[1.0, 1.5])
        >>> curve.mean.round(2)
        array([[0.94, 0.72]])
        """
        grid = self._grid.times
        at = grid if times is None else np.asarray(times, dtype=np.float64)
        if self.kernel == "cubic_spline" and (at < grid[0]).any():
            raise BhclustError(
                f"{self._owner}: a cubic spline has no values before the first time {grid[0]:g}."
            )
        post = self._posterior(stats, at)
        variance = np.maximum(np.diagonal(post.covariance, axis1=1, axis2=2), 0.0)
        base = np.interp(at, grid, self._parameter("mean"))
        return Curve(at, base + post.mean, np.sqrt(variance))

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        return self._draw(self._posterior(stats[:1]), n, rng)

    def _draw(self, post: Posterior, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n items, each around a curve of its own."""
        values, vectors = np.linalg.eigh(post.covariance[0])
        draws = rng.standard_normal((n, len(values))) * np.sqrt(np.maximum(values, 0.0))
        curves = self._parameter("mean") + post.mean[0] + draws @ vectors.T
        at_columns = curves[:, self._grid.position]
        return np.asarray(
            at_columns + self._number("noise") * rng.standard_normal(at_columns.shape)
        )

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its expected value given the row's observed ones."""
        table, grid = self._table(X), self._grid
        items = self.suffstats(table)
        expected = np.zeros_like(table)
        for i in np.flatnonzero(np.isnan(table).any(axis=1)):
            # The row's own entries bend the curve of the cluster that it joins.
            chosen = np.flatnonzero(weights[i] > _LEAST_WEIGHT)
            joined = merge_moments(stats[chosen], items[i : i + 1])
            curve = weights[i, chosen] @ self._posterior(joined).mean
            expected[i] = (self._parameter("mean") + curve)[grid.position]
        return fill_missing(table, expected)

    def means_at_times(self, stats: FloatArray) -> FloatArray:
        """Return the mean of each cluster's entries at each distinct time, NaN without any."""
        count, mean, _ = feature_blocks(stats, 3)
        return np.where(count > 0, mean + self._parameter("mean"), np.nan)

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's entries at the time of each column."""
        return one_level_each(self.means_at_times(stats)[:, self._grid.position], "mean")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's ``mean`` curve and two deviations at the distinct times, (m, T).

        ``band`` is the standard deviation of the curve, ``standard_deviation`` that of a new
        measurement around the mean.
        """
        _, mean, band = self.curve(stats)
        spread = np.sqrt(np.square(band) + self._number("noise") ** 2)
        return {"mean": mean, "band": band, "standard_deviation": spread}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂`` each free hyperparameter."""
        found = self._pull_back(self._slopes(stats, weights))
        return {spec.name: found[spec.name] for spec in self.free()}

    def _pull_back(self, slopes: Slopes) -> dict[str, FloatArray]:
        """Turn slopes by covariance and noise variance into those by the hyperparameters."""
        value, by_length_scale, by_period = like(
            slopes.by_covariance, *self._kernel_between(self._grid.times)
        )
        amplitude = self._number("amplitude")
        found = {
            "length_scale": amplitude**2 * (slopes.by_covariance * by_length_scale).sum(),
            "amplitude": 2 * amplitude * (slopes.by_covariance * value).sum(),
            "noise": 2 * self._number("noise") * slopes.by_variance,
            "period": amplitude**2 * (slopes.by_covariance * by_period).sum(),
        }
        return dict(zip(found, like(slopes.by_covariance, *found.values()), strict=True))

    def _slopes(self, stats: FloatArray, weights: FloatArray) -> Slopes:
        xp = arrays_of(stats).xp
        items = self.complete_items(stats)
        whole, rest = xp.flatnonzero(~xp.isnan(items)), xp.flatnonzero(xp.isnan(items))
        n_times = len(self._grid.times)
        out = Slopes(xp.zeros((n_times, n_times)), 0.0)
        if len(whole):
            out = out.plus(
                self._complete_slopes(stats[whole], items[whole][:, None], weights[whole])
            )
        if len(rest):
            out = out.plus(self._dense_slopes(stats[rest], weights[rest]))
        return out

    def _complete_slopes(
        self, stats: FloatArray, n_items: FloatArray, weights: FloatArray
    ) -> Slopes:
        """Return the slopes of clusters of complete items, by the eigendecomposition."""
        xp = arrays_of(stats).xp
        variance = self._number("noise") ** 2
        values, vectors = like(stats, *self.spectrum)
        count, _, deviation = feature_blocks(stats, 3)
        widening = 1 + n_items * values
        shrunk = self.turned(stats) / widening
        pulled = n_items * shrunk
        inner = pulled.T @ (weights[:, None] * pulled)
        inner -= xp.diag(weights @ (n_items / widening))
        by_noise = (n_items * shrunk * shrunk).sum(axis=1) - (1 / widening).sum(axis=1)
        by_noise -= count.sum(axis=1) - count.shape[1] - deviation.sum(axis=1) / variance
        return Slopes(vectors @ inner @ vectors.T / 2, float(weights @ by_noise) / (2 * variance))

    def _dense_slopes(self, stats: FloatArray, weights: FloatArray) -> Slopes:
        """Return the slopes of any clusters, by one inverse matrix each."""
        xp = arrays_of(stats).xp
        noise = self._number("noise")
        count, mean, deviation = feature_blocks(stats, 3)
        n_times = count.shape[1]
        root = xp.sqrt(count)
        by_covariance = xp.zeros((n_times, n_times))
        by_noise = n_times - count.sum(axis=1) + deviation.sum(axis=1) / noise**2
        for rows in self._row_blocks(len(stats)):
            inverse = xp.linalg.inv(self._weighted_covariance(root[rows]))
            scaled = root[rows] * mean[rows] / noise
            shrunk = (inverse @ scaled[:, :, None])[:, :, 0]
            pulled = root[rows] * shrunk
            by_covariance += pulled.T @ (weights[rows, None] * pulled)
            weighted = root[rows, :, None] * inverse * root[rows, None, :]
            by_covariance -= xp.tensordot(weights[rows], weighted, axes=1)
            by_noise[rows] += (shrunk * shrunk).sum(axis=1)
            by_noise[rows] -= xp.trace(inverse, axis1=1, axis2=2)
        variance = noise**2
        return Slopes(by_covariance / (2 * variance), float(weights @ by_noise) / (2 * variance))


class Grid(NamedTuple):
    """The distinct times, the place of each column among them, and the columns at each."""

    times: FloatArray
    position: IntArray
    n_columns: FloatArray


class Spectrum(NamedTuple):
    """Variances of a complete item's curve in units of the noise, and the turn to them."""

    values: FloatArray
    vectors: FloatArray


class Slopes(NamedTuple):
    """Weighted slopes of log f by each entry of a curve's covariance and the noise variance."""

    by_covariance: FloatArray
    by_variance: float

    def plus(self, other: Slopes) -> Slopes:
        """Return the slopes of both sets of clusters together."""
        return Slopes(
            self.by_covariance + other.by_covariance, self.by_variance + other.by_variance
        )


class Posterior(NamedTuple):
    """Mean and covariance of each cluster's curve, as seen from the prior mean."""

    mean: FloatArray
    covariance: FloatArray


class _EntryMoments(NamedTuple):
    """Count, mean and squared deviations of each row's entries at each distinct time."""

    n_items: FloatArray
    mean: FloatArray
    deviation: FloatArray


class _Moments(NamedTuple):
    """What a weighted table says: the mean of all entries, and the scatter of replicates."""

    mean: float
    replicate_deviation: float
    n_replicates: float


def _entry_moments(table: FloatArray, grid: Grid) -> _EntryMoments:
    shape = (len(table), len(grid.times))
    count, total, deviation = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    observed = ~np.isnan(table)
    filled = np.where(observed, table, 0.0)
    for j, t in enumerate(grid.position):
        count[:, t] += observed[:, j]
        total[:, t] += filled[:, j]
    mean = total / np.where(count > 0, count, 1.0)
    for j, t in enumerate(grid.position):
        deviation[:, t] += np.square(np.where(observed[:, j], filled[:, j] - mean[:, t], 0.0))
    return _EntryMoments(count, mean, deviation)


def _moments(rows: WeightedRows, grid: Grid) -> _Moments:
    count, mean, deviation = _entry_moments(rows.table, grid)
    weight = rows.weight[:, None]
    total = float((weight * count).sum()) or 1.0
    rough = float((weight * count * mean).sum()) / total
    # The second pass removes the rounding of the first, which matters at large offsets.
    shift = float((weight * count * (mean - rough)).sum()) / total
    extra = np.maximum(count - 1, 0.0)
    return _Moments(rough + shift, float((weight * deviation).sum()), float((weight * extra).sum()))


def _variance(rows: WeightedRows, mean: FloatArray) -> float:
    """Return the variance of all entries around a mean, positive in every case."""
    observed = ~np.isnan(rows.table)
    n_entries = float(rows.weight @ observed.sum(axis=1))
    largest = float(np.abs(np.where(observed, rows.table, 0.0)).max(initial=0.0))
    squares = np.square(np.where(observed, rows.table - mean, 0.0)).sum(axis=1)
    variance = float(rows.weight @ squares) / (n_entries or 1.0)
    if variance > (_CONSTANT_SPACINGS * np.spacing(largest)) ** 2:
        return variance
    # Without spread the unit of the values is all that is known of them.
    return largest**2 if largest > 1e-100 else 1.0


def _replicate_noise(moments: _Moments) -> float:
    if not moments.replicate_deviation > 0:
        raise BhclustError(
            "TimeSeries: noise='replicates' needs items with several different values at one "
            "time; repeat entries of times for columns that are replicates, or give a number."
        )
    return float(np.sqrt(moments.replicate_deviation / moments.n_replicates))
