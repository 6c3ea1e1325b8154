"""Models for real numbers: independent columns, or columns with a full covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from bhclust._validation import (
    BhclustError,
    FloatArray,
    broadcast_hyperparameter,
    check_complete,
    check_magnitude,
)
from bhclust.models._arrays import arrays_of, like
from bhclust.models._columnwise import (
    ColumnwiseModel,
    column_moments,
    feature_blocks,
    fill_missing,
    frozen,
    largest_repetition,
    log_rising,
    log_rising_slope,
    pair_blocks,
)
from bhclust.models.base import FeatureLevels, Hyperparameter, Kind, Missing, one_level_each

# The default priors expect the variance of a column to be between clusters and inside them as
# 16 : d, so that two centres are about √(2 · 16) = 5.7 standard deviations apart in any number of
# dimensions d: clear, and not further apart than need be. A fixed part of the variance fails at
# one end: a tenth merges weak clusters in 30 dimensions, a fifth close ones in two.
_SEPARATION = 16.0
# From 11 columns on the part stays where it is. Between 0.4 and 0.5 there is little to choose:
# 0.4 gives more evidence on digits (64 columns) and tumours (30) and purer trees on digits and
# wine (13), 0.5 flat clusters that agree a little better with the classes before anything is
# learned. With 0.4, copies of one row are so surely one cluster that weights and copies agree
# to seven digits.
_MOST_WITHIN = 0.4

# A column with a larger part of one and the same number is no sample of a density.
_MOST_REPEATED = 0.25

# Default gamma shape: the prior knows the variance inside a cluster like four items do.
_SHAPE = 2.0


def _within(n_features: int) -> float:
    """Return the part of a column's variance expected inside a cluster."""
    return min(n_features / (n_features + _SEPARATION), _MOST_WITHIN)


def _default_strength(n_features: int) -> float:
    """Return the prior number of items behind a cluster's mean.

    The mean then has variance ``within / strength``, which makes the variances within and between
    clusters add up to the variance of the column.
    """
    within = _within(n_features)
    return within / (1 - within)


@dataclass(frozen=True, eq=False)
class _CentredModel(ColumnwiseModel):
    """Statistics are means and deviations, measured from a fixed origin.

    Raw sums of squares would lose everything at an offset of 1e8. The origin stays where it is
    when the hyperparameter ``mean`` is learned, so statistics remain valid.
    """

    origin: npt.ArrayLike | None = field(default=None, kw_only=True, repr=False)

    kind: ClassVar[Kind] = "real"

    def _check_values(self, table: Any) -> None:
        check_magnitude(table, self._column)

    def _placed(self, column_means: FloatArray) -> Self:
        value = column_means if self.origin is None else self.origin
        shape = column_means.shape
        origin = broadcast_hyperparameter(
            value, shape, name="origin", owner=self._owner, positive=False
        )
        return replace(self, origin=frozen(origin))

    def _prior_mean(self) -> FloatArray:
        """Return the prior mean as seen from the origin."""
        return self._parameter("mean") - self._parameter("origin")

    def _learnable_from(self, values: FloatArray, count: FloatArray) -> tuple[str, ...]:
        """Return no names where a value is repeated so often that a density follows it.

        A cluster of equal numbers has a density without bound, so the evidence for narrow
        clusters there says how finely the table was written, and not what belongs together.
        """
        observed = np.broadcast_to(count > 0, values.shape)
        if largest_repetition(values, observed) > _MOST_REPEATED:
            return ()
        return tuple(spec.name for spec in self.free())


class _Pooled(NamedTuple):
    """Two sets of items put together, and what their distance adds to the deviations."""

    n_items: FloatArray
    mean: FloatArray
    coupling: FloatArray
    difference: FloatArray


def _pool(
    count_a: FloatArray, mean_a: FloatArray, count_b: FloatArray, mean_b: FloatArray
) -> _Pooled:
    # Every expression is symmetric in a and b to the last bit, and an empty side changes nothing.
    count = count_a + count_b
    divisor = np.where(count > 0, count, 1.0)
    mean = (count_a / divisor) * mean_a + (count_b / divisor) * mean_b
    return _Pooled(count, mean, count_a * count_b / divisor, mean_a - mean_b)


def merge_moments(a: FloatArray, b: FloatArray) -> FloatArray:
    """Merge rows of counts, means and squared deviations, a block of columns each."""
    (count_a, mean_a, deviation_a), (count_b, mean_b, deviation_b) = (
        feature_blocks(a, 3),
        feature_blocks(b, 3),
    )
    pooled = _pool(count_a, mean_a, count_b, mean_b)
    between = pooled.coupling * pooled.difference * pooled.difference
    return np.hstack([pooled.n_items, pooled.mean, deviation_a + deviation_b + between])


def repeat_moments(stats: FloatArray, weight: FloatArray) -> FloatArray:
    """Take rows of counts, means and squared deviations ``weight`` times over."""
    count, mean, deviation = feature_blocks(stats, 3)
    factor = np.asarray(weight)[:, None]
    return np.hstack([count * factor, mean, deviation * factor])


@dataclass(frozen=True, eq=False)
class DiagonalGaussian(_CentredModel):
    """Independent normal columns with a normal-gamma prior on mean and precision.

    Missing entries are exact: they add nothing.

    Parameters
    ----------
    mean : float or array of shape (d,), optional
        Prior mean of a cluster's mean; by default the column mean.
    strength : float or array of shape (d,), optional
        Prior number of items behind ``mean``; by default ``w / (1 - w)`` with the w below, so
        that the variances within and between clusters add up to the variance of the column.
    shape, rate : float or array of shape (d,), optional
        Gamma prior of the precision. By default shape 2 (worth four items) and a rate that
        expects the part ``w = min(d / (d + 16), 0.4)`` of the column's variance inside a
        cluster. Two centres are then expected about 5.7 standard deviations apart, however many
        columns share the separation (more beyond ten columns); a prior that expects the whole
        variance inside a cluster is too vague and gives bad trees.
    origin : float or array of shape (d,), optional
        Point from which the statistics measure; by default the column mean.

    Notes
    -----
    Statistics: count (d), mean from the origin (d), sum of squared deviations (d).

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import DiagonalGaussian
    >>> X = np.array([[0.0, 1.0], [0.2, np.nan], [9.0, 1.1], [9.1, 3.0]])
    >>> model = DiagonalGaussian().resolve(X)
    >>> stats = model.suffstats(X)
    >>> apart = model.feature_contributions(stats[:1], stats[2:3])
    >>> np.sign(apart)  # the first column speaks for rows 0 and 2 apart, the second against
    array([[ 1., -1.]])
    """

    mean: npt.ArrayLike | None = None
    strength: npt.ArrayLike | None = None
    shape: npt.ArrayLike | None = None
    rate: npt.ArrayLike | None = None

    missing: ClassVar[Missing] = "exact"
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("mean", "real"),
        Hyperparameter("strength", "positive"),
        Hyperparameter("shape", "positive"),
        Hyperparameter("rate", "positive"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior from column means and variances."""
        table, times = self._weighted_rows(X, weight)
        d = table.shape[1]
        moments = column_moments(table, times)
        model = self._placed(moments.mean)._settle(
            {spec.name: (d,) for spec in self.hyperparameters},
            {"mean": moments.mean, "strength": _default_strength(d), "shape": _SHAPE, "rate": 1.0},
        )
        if self.rate is not None:
            return model
        # rate / (shape - 1) is the expected variance; a given shape up to 1 has none, and then
        # rate / shape, the inverse of the expected precision, takes its place.
        shape = model._parameter("shape")
        items = np.where(shape > 1, shape - 1, shape)
        return replace(model, rate=frozen(_within(d) * moments.variance * items))

    def suffstats(self, X: Any) -> FloatArray:
        """Return 1, the distance from the origin and 0 for each observed entry."""
        origin = self._parameter("origin")
        table = self._table(X)
        observed = ~np.isnan(table)
        distance = np.where(observed, table - origin, 0.0)
        return np.hstack([observed, distance, np.zeros_like(distance)])

    def learnable(self, stats: FloatArray) -> tuple[str, ...]:
        """Return the hyperparameters, or none if a column repeats one value in many rows."""
        count, mean, _ = feature_blocks(stats, 3)
        return self._learnable_from(mean, count)

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        return merge_moments(a, b)

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        return repeat_moments(stats, weight)

    def _posterior(self, stats: FloatArray) -> _NormalGamma:
        strength, shape, rate = self._parameters_like(stats, "strength", "shape", "rate")
        (prior_mean,) = like(stats, self._prior_mean())
        count, mean, deviation = feature_blocks(stats, 3)
        distance = mean - prior_mean
        total = strength + count
        pull = strength * count / total
        return _NormalGamma(
            n_items=count,
            distance=distance,
            mean=prior_mean + count / total * distance,
            strength=total,
            shape=shape + count / 2,
            rate=rate + (deviation + pull * distance * distance) / 2,
        )

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the log normal-gamma term of each feature."""
        log = arrays_of(stats).xp.log
        strength, shape, rate = self._parameters_like(stats, "strength", "shape", "rate")
        post = self._posterior(stats)
        log_scale = shape * log(rate) - post.shape * log(post.rate)
        log_strength = 0.5 * log(strength / post.strength)
        log_pi = 0.5 * math.log(2 * math.pi) * post.n_items
        gammas = log_rising(shape, post.n_items / 2)
        terms: FloatArray = gammas + log_scale + log_strength - log_pi
        return terms

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, a Student t for each feature."""
        table = self._table(X)
        observed = ~np.isnan(table)
        distance = np.where(observed, table - self._parameter("origin"), 0.0)
        post = self._posterior(stats)
        spread = 2 * post.rate * (1 + 1 / post.strength)
        constant = log_rising(post.shape, np.array(0.5)) - 0.5 * np.log(np.pi * spread)
        out = observed @ constant.T
        power = post.shape + 0.5
        with np.errstate(over="ignore"):
            reach = np.abs(distance).max(initial=0.0) + np.abs(post.mean).max(initial=0.0)
            overflows = not np.isfinite(reach**2 / spread.min(initial=np.inf))
        for rows, clusters in pair_blocks(len(table), len(stats), table.shape[1]):
            gap = (distance[rows, None] - post.mean[None, clusters]) * observed[rows, None]
            if overflows:
                with np.errstate(divide="ignore"):
                    log_ratio = 2 * np.log(np.abs(gap)) - np.log(spread[clusters])
                growth = np.logaddexp(0.0, log_ratio)
            else:
                growth = np.log1p(gap * gap / spread[clusters])
            out[rows, clusters] -= (power[clusters] * growth).sum(axis=2)
        return np.asarray(out)

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        post = self._posterior(stats[:1])
        scale = np.sqrt(post.rate * (1 + 1 / post.strength) / post.shape)
        draws = rng.standard_t(2 * post.shape[0], size=(n, post.mean.shape[1]))
        return np.asarray(self._parameter("origin") + post.mean + scale * draws)

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its expected value."""
        expected = weights @ self._posterior(stats).mean
        # The weights of a row add up to one, so the origin may be added after the product.
        return fill_missing(self._table(X), expected + self._parameter("origin"))

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's observed entries."""
        count, mean, _ = feature_blocks(stats, 3)
        means = np.where(count > 0, mean + self._parameter("origin"), np.nan)
        return one_level_each(means, "mean")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior ``mean`` and ``standard_deviation``, ``(m, d)``.

        The standard deviation is that of the posterior mean precision.
        """
        post = self._posterior(stats)
        return {
            "mean": post.mean + self._parameter("origin"),
            "standard_deviation": np.sqrt(post.rate / post.shape),
        }

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ (mean, strength, shape, rate)``."""
        xp = arrays_of(stats).xp
        strength, shape, rate = self._parameters_like(stats, "strength", "shape", "rate")
        post = self._posterior(stats)
        precision = post.shape / post.rate
        part = post.n_items / post.strength
        by_mean = precision * strength * part * post.distance
        by_strength = (part / strength - precision * xp.square(part * post.distance)) / 2
        by_shape = log_rising_slope(shape, post.n_items / 2) + xp.log(rate / post.rate)
        return {
            "mean": weights @ by_mean,
            "strength": weights @ by_strength,
            "shape": weights @ by_shape,
            "rate": weights @ (shape / rate - precision),
        }


class _NormalGamma(NamedTuple):
    """Posterior of each cluster's features; means and distances are seen from the origin."""

    n_items: FloatArray
    distance: FloatArray
    mean: FloatArray
    strength: FloatArray
    shape: FloatArray
    rate: FloatArray


@dataclass(frozen=True, eq=False)
class Gaussian(_CentredModel):
    """Normal rows with a full covariance and a normal-inverse-Wishart prior.

    Missing values are an error; `DiagonalGaussian` takes them.

    Parameters
    ----------
    mean : float or array of shape (d,), optional
        Prior mean of a cluster's mean; by default the column means.
    strength : float, optional
        Prior number of items behind ``mean``; by default ``w / (1 - w)`` with the w below, so
        that the variances within and between clusters add up to the variance of the column.
    dof : float, optional
        Degrees of freedom, above d - 1; by default the larger of d + 2, with which the expected
        covariance exists, and 2 d: with less, the covariances of small clusters in many columns
        are nearly free, and everything merges.
    scale : float, array of shape (d,) or (d, d), optional
        Scale of the inverse Wishart; a number stands for a multiple of the identity, a vector
        for a diagonal. By default a diagonal that expects the part
        ``w = min(d / (d + 16), 0.4)`` of the column variances inside a cluster, as
        `DiagonalGaussian` does. The correlations of the whole table are left out because they
        come from where the clusters lie rather than from their shape.
    origin : float or array of shape (d,), optional
        Point from which the statistics measure; by default the column means.

    Notes
    -----
    Statistics: count, mean from the origin (d), the scatter matrix's lower triangle row by row.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Gaussian
    >>> X = np.array([[0.0, 0.0], [0.1, 0.1], [5.0, 5.2], [5.1, 5.1]])
    >>> model = Gaussian().resolve(X)
    >>> log_f = model.log_marginal
    >>> stats = model.suffstats(X)
    >>> near, far = model.merge(stats[:1], stats[1:2]), model.merge(stats[:1], stats[2:3])
    >>> bool(log_f(near)[0] - log_f(stats[1:2])[0] > log_f(far)[0] - log_f(stats[2:3])[0])
    True
    """

    mean: npt.ArrayLike | None = None
    strength: float | None = None
    dof: float | None = None
    scale: npt.ArrayLike | None = None

    missing: ClassVar[Missing] = "error"
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("mean", "real"),
        Hyperparameter("strength", "positive"),
        Hyperparameter("dof", "degrees_of_freedom"),
        Hyperparameter("scale", "covariance"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior from column means and variances."""
        table, times = self._weighted_rows(X, weight)
        d = table.shape[1]
        moments = column_moments(table, times)
        dof = max(d + 2.0, 2.0 * d) if self.dof is None else float(self.dof)
        # scale / (dof - d - 1) is the expected covariance; a given dof up to d + 1 has none, and
        # then scale / dof, the inverse of the expected precision, takes its place.
        items = dof - d - 1 if dof > d + 1 else dof
        model = self._placed(moments.mean)._settle(
            {"mean": (d,), "strength": (), "dof": (), "scale": (d, d)},
            {
                "mean": moments.mean,
                "strength": _default_strength(d),
                "dof": dof,
                "scale": _within(d) * moments.variance * items,
            },
        )
        # Once more, now that the number of columns is settled: dof must be above it less one.
        return model.with_hyperparameters({"dof": model._number("dof")})

    def _checked(
        self, spec: Hyperparameter, value: object, shape: tuple[int, ...]
    ) -> FloatArray | float:
        checked = super()._checked(spec, value, shape)
        d = self._n_resolved_columns()
        if spec.domain == "degrees_of_freedom" and d is not None and float(checked) <= d - 1:
            raise BhclustError(
                f"Gaussian: dof must be above d - 1 = {d - 1} for {d} columns, got {value!r}."
            )
        return checked

    def _check_values(self, table: Any) -> None:
        super()._check_values(table)
        check_complete(table, owner=self._owner, instead="DiagonalGaussian", column=self._column)

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        if value is None:
            raise BhclustError(f"Gaussian has no {name} yet: call resolve(X) first.")
        return float(value)

    def suffstats(self, X: Any) -> FloatArray:
        """Return 1, the distance from the origin and no scatter for each row."""
        origin = self._parameter("origin")
        distance = self._table(X) - origin
        n, d = distance.shape
        return np.hstack([np.ones((n, 1)), distance, np.zeros((n, d * (d + 1) // 2))])

    def _take(self, stats: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        d = len(self._parameter("mean"))
        return stats[:, :1], stats[:, 1 : 1 + d], stats[:, 1 + d :]

    def learnable(self, stats: FloatArray) -> tuple[str, ...]:
        """Return the hyperparameters, or none if a column repeats one value in many rows."""
        count, mean, _ = self._take(stats)
        return self._learnable_from(mean, count)

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        (count_a, mean_a, scatter_a), (count_b, mean_b, scatter_b) = self._take(a), self._take(b)
        pooled = _pool(count_a, mean_a, count_b, mean_b)
        rows, columns = np.tril_indices(mean_a.shape[1])
        products = pooled.difference[:, rows] * pooled.difference[:, columns]
        scatter = scatter_a + scatter_b + pooled.coupling * products
        return np.hstack([pooled.n_items, pooled.mean, scatter])

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        count, mean, scatter = self._take(stats)
        factor = np.asarray(weight)[:, None]
        return np.hstack([count * factor, mean, scatter * factor])

    def _posterior(self, stats: FloatArray) -> _NormalWishart:
        xp = arrays_of(stats).xp
        strength, dof = self._number("strength"), self._number("dof")
        count, mean, scatter = self._take(stats)
        d = mean.shape[1]
        lower = np.tril_indices(d)
        rows, columns, places = like(stats, *lower, _unpacked(d).ravel())
        prior_mean, scale = like(stats, self._prior_mean(), self._parameter("scale")[lower])
        distance = mean - prior_mean
        total = strength + count
        packed = scale + scatter
        packed += strength * count / total * (distance[:, rows] * distance[:, columns])
        matrices = xp.take(packed, places, axis=1).reshape(len(stats), d, d)
        return _NormalWishart(
            n_items=count,
            distance=distance,
            mean=prior_mean + count / total * distance,
            strength=total,
            dof=dof + count,
            factor=xp.linalg.cholesky(matrices),
        )

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return what each column adds to ``log f`` of the columns before it.

        The first k columns of a normal-inverse-Wishart model are again one, with
        ``dof - (d - k)`` degrees of freedom and the leading block of ``scale``; so
        ``log f(columns 1…k) - log f(columns 1…k-1)`` needs only the Cholesky diagonals. The terms
        depend on the order of the columns; their sum does not.
        """
        xp = arrays_of(stats).xp
        d = len(self._parameter("mean"))
        post = self._posterior(stats)
        log_diagonal = xp.log(xp.diagonal(post.factor, axis1=1, axis2=2))
        log_prior, dof = like(
            stats,
            np.log(np.diagonal(np.linalg.cholesky(self._parameter("scale")))),
            self._number("dof") - d + np.arange(1.0, d + 1),
        )
        shrunk = log_prior - log_diagonal
        before = xp.cumsum(shrunk, axis=1) - shrunk
        log_scale = dof * shrunk - post.n_items * log_diagonal + before
        log_strength = 0.5 * xp.log(self._number("strength") / post.strength)
        log_pi = 0.5 * math.log(math.pi) * post.n_items
        gammas = log_rising(dof / 2, post.n_items / 2)
        terms: FloatArray = gammas + log_scale + log_strength - log_pi
        return terms

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, a multivariate Student t."""
        distance = self._table(X) - self._parameter("origin")
        d = distance.shape[1]
        post = self._posterior(stats)
        inverse = np.linalg.inv(post.factor)
        log_determinant = np.log(np.diagonal(post.factor, axis1=1, axis2=2)).sum(axis=1)
        widening = 1 + 1 / post.strength[:, 0]
        dof = post.dof[:, 0]
        constant = gammaln((dof + 1) / 2) - gammaln((dof + 1 - d) / 2) - log_determinant
        constant -= d / 2 * np.log(np.pi * widening)
        out = np.empty((len(distance), len(stats)))
        for k in range(len(stats)):
            whitened = (distance - post.mean[k]) @ inverse[k].T
            out[:, k] = np.square(whitened).sum(axis=1)
        return np.asarray(constant - (dof + 1) / 2 * np.log1p(out / widening))

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        post = self._posterior(stats[:1])
        d = post.mean.shape[1]
        normal = rng.standard_normal((n, d)) @ post.factor[0].T
        chi_square = rng.chisquare(post.dof[0, 0] - d + 1, size=(n, 1))
        widening = 1 + 1 / post.strength[0, 0]
        return np.asarray(
            self._parameter("origin") + post.mean + normal * np.sqrt(widening / chi_square)
        )

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Return a copy of a complete table; missing values are an error here."""
        return np.array(self._table(X))

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's rows."""
        count, mean, _ = self._take(stats)
        means = np.where(count > 0, mean + self._parameter("origin"), np.nan)
        return one_level_each(means, "mean")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior ``mean`` and ``standard_deviation``, ``(m, d)``.

        The standard deviations are those of the posterior mean precision matrix.
        """
        post = self._posterior(stats)
        variances = np.square(post.factor).sum(axis=2) / post.dof
        return {
            "mean": post.mean + self._parameter("origin"),
            "standard_deviation": np.sqrt(variances),
        }

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ (mean, strength, dof, scale)``."""
        xp, _, digamma = arrays_of(stats)
        d = len(self._parameter("mean"))
        strength, dof = self._number("strength"), self._number("dof")
        scale = self._parameter("scale")
        post = self._posterior(stats)
        inverse_factor = xp.linalg.inv(post.factor)
        inverse = inverse_factor.transpose(0, 2, 1) @ inverse_factor
        part = post.n_items / post.strength
        pulled = (inverse @ post.distance[:, :, None])[:, :, 0]
        stretch = (pulled * post.distance).sum(axis=1, keepdims=True)
        by_strength = d * part / strength - post.dof * part**2 * stretch
        halves, inverse_scale = like(stats, (dof - np.arange(d)) / 2, np.linalg.inv(scale))
        log_determinant = 2 * xp.log(xp.diagonal(post.factor, axis1=1, axis2=2)).sum(axis=1)
        by_dof = (digamma(halves + post.n_items / 2) - digamma(halves)).sum(axis=1)
        by_dof += float(np.linalg.slogdet(scale).logabsdet) - log_determinant
        by_scale = float(weights.sum()) * dof * inverse_scale
        by_scale -= xp.tensordot(weights * post.dof[:, 0], inverse, axes=1)
        return {
            "mean": weights @ (post.dof * strength * part * pulled),
            "strength": xp.asarray(weights @ by_strength[:, 0] / 2),
            "dof": xp.asarray(weights @ by_dof / 2),
            "scale": (by_scale + by_scale.T) / 4,
        }


def _unpacked(d: int) -> npt.NDArray[np.intp]:
    """Return where each entry of a symmetric matrix stands in its packed lower triangle."""
    row, column = np.indices((d, d))
    larger, smaller = np.maximum(row, column), np.minimum(row, column)
    return np.asarray(larger * (larger + 1) // 2 + smaller, dtype=np.intp)


class _NormalWishart(NamedTuple):
    """Posterior of each cluster; ``factor`` is the Cholesky factor of its scale matrix.

    Means and distances are seen from the origin.
    """

    n_items: FloatArray
    distance: FloatArray
    mean: FloatArray
    strength: FloatArray
    dof: FloatArray
    factor: FloatArray
