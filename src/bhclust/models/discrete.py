"""Models for zeros and ones, categories, rows of counts, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.special import gammaln

from bhclust._validation import (
    BhclustError,
    FloatArray,
    check_binary,
    check_codes,
    check_count,
    check_counts,
)
from bhclust.models._arrays import arrays_of, group_sums, like
from bhclust.models._columnwise import (
    ColumnwiseModel,
    dense,
    feature_blocks,
    fill_missing,
    log_rising,
    log_rising_slope,
    pair_blocks,
    ratio,
    squares_about,
    take_apart,
)
from bhclust.models.base import (
    Column,
    FeatureLevels,
    Hyperparameter,
    Kind,
    Missing,
    one_level_each,
)

# Prior items behind each binary or categorical feature. Two is the uniform prior for a balanced
# binary feature; it does not grow with the number of categories, or clusters smaller than that
# number could never leave the overall frequencies.
_PRIOR_ITEMS = 2.0

# Bounds of the over-dispersion 1 / (1 + total concentration) that sets the multinomial default.
_DISPERSION_RANGE = (1e-3, 0.5)

# Bounds of the default gamma shape: rates of clusters that differ by 10 % up to a factor of 25.
_SHAPE_RANGE = (0.1, 100.0)


@dataclass(frozen=True, eq=False)
class Bernoulli(ColumnwiseModel):
    """Independent zeros and ones with a beta prior on each column's probability of a one.

    Missing entries are exact: they add nothing. Sparse tables are welcome; an absent entry is 0.

    Parameters
    ----------
    a, b : float or array of shape (d,), optional
        Prior counts of ones and of zeros. By default they are 2 prior items in all, divided like
        the column, ``(count + 1) / (n + 2)``: a rare one is then weak evidence where ones are
        rare everywhere, and a balanced column gets the uniform prior.

    Notes
    -----
    Statistics: ones (d), zeros (d).

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Bernoulli
    >>> X = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> model = Bernoulli(a=1, b=1).resolve(X)
    >>> stats = model.suffstats(X)
    >>> pair = model.merge(stats[:1], stats[1:2])
    >>> np.exp(model.log_marginal(pair))  # 1/3 · 1/6 · 1/3
    array([0.01851852])
    """

    a: npt.ArrayLike | None = None
    b: npt.ArrayLike | None = None

    kind: ClassVar[Kind] = "binary"
    missing: ClassVar[Missing] = "exact"
    accepts_sparse: ClassVar[bool] = True
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("a", "positive"),
        Hyperparameter("b", "positive"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior counts from the column frequencies."""
        table, times = self._weighted_rows(X, weight)
        d = table.shape[1]
        values, holes = take_apart(table)
        ones = times @ values
        observed = times.sum() - times @ holes
        a = _PRIOR_ITEMS * (ones + 1) / (observed + 2)
        return self._settle({"a": (d,), "b": (d,)}, {"a": a, "b": _PRIOR_ITEMS - a})

    def _check_values(self, table: Any) -> None:
        check_binary(table, self._column)

    def suffstats(self, X: Any) -> FloatArray:
        """Return the ones and the zeros of each row."""
        self._parameter("a")
        table = dense(self._table(X))
        return np.hstack([table == 1, table == 0]).astype(np.float64)

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the log beta-Bernoulli term of each feature."""
        a, b = self._parameters_like(stats, "a", "b")
        ones, zeros = feature_blocks(stats, 2)
        return log_rising(a, ones) + log_rising(b, zeros) - log_rising(a + b, ones + zeros)

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, two matrix products."""
        log_one, log_zero = (np.log(p) for p in self._probabilities(stats))
        values, holes = take_apart(self._table(X))
        out = values @ (log_one - log_zero).T - holes @ log_zero.T
        return np.asarray(out + log_zero.sum(axis=1))

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        probability, _ = self._probabilities(stats)
        draws = rng.random((n, probability.shape[1]))
        return np.asarray(draws < probability[0], dtype=np.float64)

    def impute(self, stats: FloatArray, X: Any, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its more probable value."""
        probability, _ = self._probabilities(stats)
        return fill_missing(dense(self._table(X)), weights @ probability > 0.5)

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the share of ones among each cluster's observed entries."""
        ones, zeros = feature_blocks(stats, 2)
        return one_level_each(ratio(ones, ones + zeros), "share of ones")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior mean ``probability`` of a one, ``(m, d)``."""
        return {"probability": self._probabilities(stats)[0]}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ (a, b)``."""
        a, b = self._parameters_like(stats, "a", "b")
        ones, zeros = feature_blocks(stats, 2)
        shared = log_rising_slope(a + b, ones + zeros)
        return {
            "a": weights @ (log_rising_slope(a, ones) - shared),
            "b": weights @ (log_rising_slope(b, zeros) - shared),
        }

    def _probabilities(self, stats: FloatArray) -> tuple[FloatArray, FloatArray]:
        ones, zeros = feature_blocks(stats, 2)
        a, b = self._parameter("a") + ones, self._parameter("b") + zeros
        return a / (a + b), b / (a + b)


@dataclass(frozen=True, eq=False)
class Categorical(ColumnwiseModel):
    """Independent categories with a Dirichlet prior on each column's probabilities.

    Entries are codes 0, 1, …; missing entries are exact: they add nothing.

    Parameters
    ----------
    concentration : float or array of shape (sum of n_categories,), optional
        Prior counts of the categories, one column's after the other's. By default 2 prior items
        a column, divided like the column, ``(count + 1) / (n + K)``: with two categories this is
        `Bernoulli`'s default, and more categories do not drown small clusters.
    n_categories : int or tuple of int, optional
        Number of categories of each column; by default what the table's columns say, else the
        largest code plus one.

    Notes
    -----
    Statistics: the count of each category, one column's after the other's.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Categorical
    >>> X = np.array([[0, 2], [1, 2], [0, np.nan]])
    >>> model = Categorical(concentration=1).resolve(X)
    >>> model.n_categories
    (2, 3)
    >>> model.suffstats(X)[0]
    array([1., 0., 0., 0., 1.])
    """

    concentration: npt.ArrayLike | None = None
    n_categories: int | Sequence[int] | None = None

    kind: ClassVar[Kind] = "categorical"
    missing: ClassVar[Missing] = "exact"
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("concentration", "positive"),
    )

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Take over the names and, unless given, the numbers of categories."""
        named = super().for_columns(columns)
        sizes = tuple(2 if c.kind == "binary" else len(c.categories) for c in columns)
        if self.n_categories is not None or not all(sizes):
            return named
        return replace(named, n_categories=sizes)

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the numbers of categories and the prior counts."""
        table, times = self._weighted_rows(X, weight)
        model = replace(self, n_categories=self._sizes(table))
        check_codes(table, model._sizes(table), self._column)
        counts = times @ model._indicator(table)
        sizes = np.asarray(model.n_categories)
        observed = (times @ ~np.isnan(table)).repeat(sizes)
        frequency = (counts + 1) / (observed + sizes.repeat(sizes))
        shape = {"concentration": (len(counts),)}
        return model._settle(shape, {"concentration": _PRIOR_ITEMS * frequency})

    def _sizes(self, table: FloatArray) -> tuple[int, ...]:
        d = table.shape[1]
        given = self.n_categories
        if given is None:
            highest = np.where(np.isnan(table), 0.0, table).max(axis=0, initial=0.0)
            return tuple(int(code) + 1 for code in highest)
        sizes = (given,) * d if isinstance(given, (int, np.integer)) else tuple(given)
        if len(sizes) != d:
            raise BhclustError(
                f"Categorical: n_categories must be a number or one number a column "
                f"({d}), got {len(sizes)}."
            )
        return tuple(check_count(k, name="n_categories", owner="Categorical") for k in sizes)

    def _n_resolved_columns(self) -> int | None:
        resolved = isinstance(self.concentration, np.ndarray)
        return len(self.n_categories) if resolved and isinstance(self.n_categories, tuple) else None

    def _check_values(self, table: Any) -> None:
        if self._n_resolved_columns() is None:
            check_counts(table, self._column)
        else:
            check_codes(table, self._sizes(table), self._column)

    def _starts(self) -> npt.NDArray[np.intp]:
        """Return where each column's categories begin among the statistics."""
        sizes = np.asarray(self.n_categories, dtype=np.intp)
        return np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(sizes)[:-1]])

    def _indicator(self, table: FloatArray) -> Any:
        """Return the sparse matrix with a one for the category of each observed entry."""
        observed = ~np.isnan(table)
        positions = np.where(observed, table, 0.0).astype(np.intp) + self._starts()
        ends = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
        width = int(np.sum(np.asarray(self.n_categories)))
        ones = np.ones(int(ends[-1]))
        return scipy.sparse.csr_array((ones, positions[observed], ends), (len(table), width))

    def _count(self, table: FloatArray) -> FloatArray:
        return np.asarray(self._indicator(table).toarray())

    def _totals(self, counts: FloatArray) -> FloatArray:
        """Add up the categories of each column, ``(m, d)``."""
        totals: FloatArray = group_sums(counts, np.asarray(self.n_categories))
        return totals

    def _probabilities(self, stats: FloatArray) -> FloatArray:
        posterior = self._parameter("concentration") + stats
        return posterior / self._totals(posterior).repeat(np.asarray(self.n_categories), axis=1)

    def suffstats(self, X: Any) -> FloatArray:
        """Return the one-hot encoding of each row."""
        self._parameter("concentration")
        return self._count(self._table(X))

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the log Dirichlet-categorical term of each feature."""
        xp = arrays_of(stats).xp
        (concentration,) = self._parameters_like(stats, "concentration")
        terms = self._totals(xp.ascontiguousarray(log_rising(concentration, stats)))
        totals = self._totals(xp.ascontiguousarray(stats))
        return terms - log_rising(self._totals(concentration), totals)

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, one sparse matrix product."""
        indicator = self._indicator(self._table(X))
        return np.asarray(indicator @ np.log(self._probabilities(stats)).T)

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        pieces = np.split(self._probabilities(stats)[0], self._starts()[1:])
        return np.stack([rng.choice(len(p), size=n, p=p) for p in pieces], axis=1).astype(float)

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its most probable category."""
        mixture = np.split(weights @ self._probabilities(stats), self._starts()[1:], axis=1)
        codes = np.stack([piece.argmax(axis=1) for piece in mixture], axis=1)
        return fill_missing(self._table(X), codes.astype(np.float64))

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the share of each category among each cluster's observed entries."""
        sizes = np.asarray(self.n_categories)
        totals = self._totals(np.ascontiguousarray(stats)).repeat(sizes, axis=1)
        feature = np.arange(len(sizes)).repeat(sizes)
        return FeatureLevels(ratio(stats, totals), feature, ("share",) * len(sizes))

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior mean ``probability`` of each category."""
        return {"probability": self._probabilities(stats)}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ concentration``."""
        (concentration,) = self._parameters_like(stats, "concentration")
        total = log_rising_slope(self._totals(concentration), self._totals(stats))
        sizes = np.asarray(self.n_categories)
        (column,) = like(stats, np.arange(len(sizes)).repeat(sizes))
        shared = total[:, column]
        return {"concentration": weights @ (log_rising_slope(concentration, stats) - shared)}


@dataclass(frozen=True, eq=False)
class Multinomial(ColumnwiseModel):
    """Rows of counts with a Dirichlet prior on the probabilities of the columns.

    The probability of a row is given its total, and includes the multinomial coefficient. A row
    that is missing as a whole adds nothing; a partly missing row is an error. Sparse tables are
    welcome; an absent entry is 0.

    Parameters
    ----------
    concentration : float or array of shape (d,), optional
        Prior counts. By default proportional to the smoothed column totals,
        ``(count + 1) / (total + d)``, with a sum that explains how much more the rows differ
        than rows of one multinomial would: under this model a single row is
        Dirichlet-multinomial whatever its cluster, so the sum is matched to that second moment
        (kept between 1 and 999).
    row_total : float, optional
        Total of the rows that `sample` and `impute` make for a cluster without rows; by default
        the mean total of the rows.

    Notes
    -----
    Statistics: counts (d), log multinomial coefficients, number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Multinomial
    >>> X = np.array([[2, 0, 1], [0, 3, 0]])
    >>> model = Multinomial(concentration=1).resolve(X)
    >>> np.exp(model.log_marginal(model.suffstats(X)))  # ten ways to put 3 in 3, all alike
    array([0.1, 0.1])
    """

    concentration: npt.ArrayLike | None = None
    row_total: float | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "count"
    missing: ClassVar[Missing] = "row"
    accepts_sparse: ClassVar[bool] = True
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("concentration", "positive"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior counts and the mean row total."""
        table, times = self._weighted_rows(X, weight)
        values, present = self._rows(table)
        counts = times @ values
        d = values.shape[1]
        share = (counts + 1) / (counts.sum() + d)
        default = _dirichlet_total(values, share, times) * share
        model = self._settle({"concentration": (d,)}, {"concentration": default})
        if self.row_total is not None:
            return model
        return replace(model, row_total=float(counts.sum() / (times @ present or 1.0)))

    def _check_values(self, table: Any) -> None:
        check_counts(table, self._column)

    def _rows(self, X: Any) -> tuple[Any, FloatArray]:
        """Return the counts, 0 in missing rows, and which rows are there."""
        table = self._table(X)
        values, holes = take_apart(table)
        n_missing = np.asarray(holes.sum(axis=1)).ravel()
        partly = np.flatnonzero((n_missing > 0) & (n_missing < table.shape[1]))
        if len(partly):
            raise BhclustError(
                f"Multinomial takes a row as a whole, but row {partly[0]} misses "
                f"{int(n_missing[partly[0]])} of {table.shape[1]} columns; fill them in, make "
                "the row all missing, or use Poisson, which takes missing entries."
            )
        return values, (n_missing == 0).astype(np.float64)

    def suffstats(self, X: Any) -> FloatArray:
        """Return counts, log coefficient and 1 for each row; zeros for a missing row."""
        self._parameter("concentration")
        values, present = self._rows(X)
        coefficient = _log_coefficient(values)
        return np.hstack([dense(values), coefficient[:, None], present[:, None]])

    def _sums_of_terms(self, stats: FloatArray, xp: Any) -> FloatArray:
        (concentration,) = self._parameters_like(stats, "concentration")
        counts = xp.ascontiguousarray(stats[:, :-2])
        terms = xp.ascontiguousarray(log_rising(concentration, counts)).sum(axis=1)
        total = log_rising(concentration.sum(), counts.sum(axis=1))
        log_f: FloatArray = terms - total + stats[:, -2]
        return log_f

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return terms that add up to ``log f(D)`` without its multinomial coefficients.

        The term of the total is shared out in proportion to the posterior counts: in large
        clusters a feature's part is then ``count · log(share)``, its part of the entropy.
        """
        concentration = self._parameter("concentration")
        counts = stats[:, :-2]
        posterior = concentration + counts
        total = posterior.sum(axis=1, keepdims=True)
        prior_total = concentration.sum()
        prior_part = concentration / prior_total * gammaln(prior_total)
        part = posterior / total * gammaln(total)
        return np.asarray(log_rising(concentration, counts) - part + prior_part)

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``; only the counts that are not zero cost anything."""
        values, _ = self._rows(X)
        posterior = self._parameter("concentration") + stats[:, :-2]
        table = scipy.sparse.coo_array(values)
        many = table.data > 1
        # lgamma(p + 1) - lgamma(p) is log p, so the single counts are one matrix product.
        single = (np.where(many, 0.0, table.data), (table.row, table.col))
        out = np.asarray(scipy.sparse.csr_array(single, table.shape) @ np.log(posterior).T)
        rows, columns, counts = table.row[many], table.col[many], table.data[many]
        for k in range(len(stats) if len(counts) else 0):
            terms = log_rising(posterior[k, columns], counts)
            out[:, k] += np.bincount(rows, weights=terms, minlength=len(out))
        totals = np.asarray(table.sum(axis=1)).reshape(-1, 1)
        out -= log_rising(posterior.sum(axis=1), totals)
        return np.asarray(out + _log_coefficient(values)[:, None])

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster.

        Each row has the cluster's mean row total, rounded; without rows, `row_total`.
        """
        total = int(np.rint(self._row_totals(stats)[0]))
        shares = rng.dirichlet(self._parameter("concentration") + stats[0, :-2], size=n)
        return rng.multinomial(total, shares).astype(np.float64)

    def impute(self, stats: FloatArray, X: Any, weights: FloatArray) -> FloatArray:
        """Fill each missing row with its expected counts (not rounded)."""
        values, present = self._rows(X)
        expected = self.summary(stats)["probability"] * self._row_totals(stats)[:, None]
        return np.where(present[:, None] == 1, dense(values), weights @ expected)

    def _row_totals(self, stats: FloatArray) -> FloatArray:
        rows = stats[:, -1]
        mean = stats[:, :-2].sum(axis=1) / np.where(rows > 0, rows, 1.0)
        return np.where(rows > 0, mean, 0.0 if self.row_total is None else self.row_total)

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the share of each column in the counts of each cluster."""
        counts = stats[:, :-2]
        shares = ratio(counts, counts.sum(axis=1, keepdims=True))
        return one_level_each(shares, "share of the counts")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior mean ``probability`` of each column."""
        posterior = self._parameter("concentration") + stats[:, :-2]
        return {"probability": posterior / posterior.sum(axis=1, keepdims=True)}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ concentration``."""
        (concentration,) = self._parameters_like(stats, "concentration")
        counts = stats[:, :-2]
        shared = log_rising_slope(concentration.sum(), counts.sum(axis=1))
        slopes = log_rising_slope(concentration, counts) - shared[:, None]
        return {"concentration": weights @ slopes}


@dataclass(frozen=True, eq=False)
class Poisson(ColumnwiseModel):
    """Independent counts with a gamma prior on each column's rate.

    Missing entries are exact: they add nothing. Sparse tables are welcome; an absent entry is 0.

    Parameters
    ----------
    shape, rate : float or array of shape (d,), optional
        Gamma prior of a cluster's rate. Under this model a single entry is negative binomial
        whatever its cluster, so by default both are matched to the column's mean and to its
        over-dispersion ``variance - mean``, with the shape kept between 0.1 and 100 (an
        exponential prior, shape 1, where there are fewer than two entries).

    Notes
    -----
    Statistics: number of entries (d), their sum (d), the sum of their log factorials (d).

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Poisson
    >>> X = np.array([[3, 0], [5, 1], [np.nan, 40]])
    >>> model = Poisson(shape=1, rate=1).resolve(X)
    >>> np.exp(model.log_predictive(np.zeros((1, 6)), [[0, np.nan]]))
    array([[0.5]])
    """

    shape: npt.ArrayLike | None = None
    rate: npt.ArrayLike | None = None

    kind: ClassVar[Kind] = "count"
    missing: ClassVar[Missing] = "exact"
    accepts_sparse: ClassVar[bool] = True
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter("shape", "positive"),
        Hyperparameter("rate", "positive"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the gamma priors from the column moments."""
        table, times = self._weighted_rows(X, weight)
        values, holes = take_apart(table)
        d = values.shape[1]
        count = times.sum() - times @ holes
        # Half a count more keeps the rate of an empty column positive.
        mean = (times @ values + 0.5) / (count + 1)
        variance = squares_about(mean, values, holes, times) / np.maximum(count - 1, 1)
        lowest, highest = _SHAPE_RANGE
        excess = np.clip(variance - mean, mean**2 / highest, mean**2 / lowest)
        shape = np.where(count > 1, mean**2 / excess, 1.0)
        return self._settle({"shape": (d,), "rate": (d,)}, {"shape": shape, "rate": shape / mean})

    def _check_values(self, table: Any) -> None:
        check_counts(table, self._column)

    def suffstats(self, X: Any) -> FloatArray:
        """Return 1, the count and its log factorial for each observed entry."""
        self._parameter("shape")
        table = dense(self._table(X))
        observed = ~np.isnan(table)
        counts = np.where(observed, table, 0.0)
        return np.hstack([observed, counts, gammaln(counts + 1)])

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the log gamma-Poisson term of each feature."""
        xp = arrays_of(stats).xp
        shape, rate = self._parameters_like(stats, "shape", "rate")
        count, total, log_factorials = feature_blocks(stats, 3)
        # log(rate + count) in two parts, one of which the prior has: half the logarithms
        spread = (shape + total) * xp.log1p(count / rate) + total * xp.log(rate)
        terms: FloatArray = log_rising(shape, total) - spread - log_factorials
        return terms

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, a negative binomial for each feature."""
        counts, holes = take_apart(self._table(X))
        shape, rate = self._posterior(stats)
        # What is linear in the counts is a matrix product; missing entries are counts of zero
        # without the term of the zero.
        log_zero = -shape * np.log1p(1 / rate)
        out = np.asarray(log_zero.sum(axis=1) - holes @ log_zero.T - counts @ np.log1p(rate).T)
        if isinstance(counts, np.ndarray):
            out -= gammaln(counts + 1).sum(axis=1)[:, None]
            for rows, clusters in pair_blocks(len(counts), len(stats), counts.shape[1]):
                terms = log_rising(shape[None, clusters], counts[rows, None])
                out[rows, clusters] += terms.sum(axis=2)
            return out
        # Only entries that are stored have terms, and a matrix of ones adds them up by row.
        by_row = (np.ones(counts.nnz), np.arange(counts.nnz), counts.indptr)
        add = scipy.sparse.csr_array(by_row, shape=(counts.shape[0], counts.nnz))
        out -= np.asarray(add @ gammaln(counts.data + 1))[:, None]
        for _, clusters in pair_blocks(1, len(stats), counts.nnz):
            start = shape[clusters][:, counts.indices]
            out[:, clusters] += add @ log_rising(start, counts.data).T
        return out

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        shape, rate = self._posterior(stats)
        return rng.poisson(rng.gamma(shape[0], 1 / rate[0], (n, shape.shape[1]))).astype(np.float64)

    def impute(self, stats: FloatArray, X: Any, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its expected count (not rounded)."""
        return fill_missing(dense(self._table(X)), weights @ self.summary(stats)["rate"])

    def _posterior(self, stats: FloatArray) -> tuple[FloatArray, FloatArray]:
        count, total, _ = feature_blocks(stats, 3)
        return self._parameter("shape") + total, self._parameter("rate") + count

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the mean of each cluster's observed counts."""
        count, total, _ = feature_blocks(stats, 3)
        return one_level_each(ratio(total, count), "mean count")

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return each cluster's posterior mean ``rate``, ``(m, d)``."""
        shape, rate = self._posterior(stats)
        return {"rate": shape / rate}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ (shape, rate)``."""
        xp = arrays_of(stats).xp
        shape, rate = self._parameters_like(stats, "shape", "rate")
        count, total, _ = feature_blocks(stats, 3)
        by_shape = log_rising_slope(shape, total) - xp.log1p(count / rate)
        by_rate = shape / rate - (shape + total) / (rate + count)
        return {"shape": weights @ by_shape, "rate": weights @ by_rate}


def _log_coefficient(counts: Any) -> FloatArray:
    """Return the log multinomial coefficient of each row of a dense or CSR table."""
    totals = np.asarray(counts.sum(axis=1)).ravel()
    log_factorials = counts.copy()
    if isinstance(counts, np.ndarray):
        log_factorials = gammaln(counts + 1)
    else:
        log_factorials.data = gammaln(counts.data + 1)
    return np.asarray(gammaln(totals + 1) - np.asarray(log_factorials.sum(axis=1)).ravel())


def _dirichlet_total(counts: Any, share: FloatArray, times: FloatArray) -> float:
    """Match the sum of a Dirichlet prior to the over-dispersion of rows that count ``times`` each.

    With row totals N and shares p, ``E Σ_j (x_j - N p_j)² = N (1 - Σ p²) (1 + (N - 1) ρ)`` and
    ``ρ = 1 / (1 + total)`` (Mosimann 1962).
    """
    totals = np.asarray(counts.sum(axis=1)).ravel()
    squares = float((times @ (counts * counts)).sum())
    along = float((times * totals) @ np.asarray(counts @ share).ravel())
    spread = float(times @ np.square(totals))
    deviation = squares - 2 * along + spread * float(share @ share)
    variety = 1 - float(share @ share)
    pairs = float(times @ (totals * (totals - 1))) * variety
    lowest, highest = _DISPERSION_RANGE
    if pairs <= 0:
        return 1 / highest - 1
    dispersion = (deviation - float(times @ totals) * variety) / pairs
    return 1 / float(np.clip(dispersion, lowest, highest)) - 1
