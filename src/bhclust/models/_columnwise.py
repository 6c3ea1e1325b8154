"""What the models shipped here share: named columns, resolving, and sums over features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from bhclust._validation import (
    BhclustError,
    FloatArray,
    broadcast_hyperparameter,
    check_covariance,
    check_n_columns,
    check_sample_weight,
    check_table,
    column_number,
)
from bhclust.models._arrays import arrays_of, like
from bhclust.models.base import ClusterModel, Column, Hyperparameter

# Largest number of (item, cluster, feature) triples held at once: 16 MiB an array.
_BLOCK = 1 << 21
# Largest number of statistics of rows that are worked on together.
_ROW_BLOCK = 1 << 19

# A column whose spread is below this many float64 spacings of its values is constant to rounding.
_CONSTANT_SPACINGS = 16

# Squares of numbers below 1e-100 come near underflow.
_LEAST_VARIANCE = 1e-200


@dataclass(frozen=True, eq=False)
class ColumnwiseModel(ClusterModel):
    """A model whose log marginal is a sum of one term a column.

    Parameters
    ----------
    column_names : tuple of str, optional
        Names for messages; `for_columns` takes them over from the table.
    """

    column_names: tuple[str, ...] = field(default=(), kw_only=True, repr=False)

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Take over the names of the columns."""
        return replace(self, column_names=tuple(column.name for column in columns))

    @abstractmethod
    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the terms that add up to ``log f(D)``, shape ``(m, d)``."""

    def log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(D)`` of each cluster, normalised over data, shape ``(m,)``."""
        xp = arrays_of(stats).xp
        if xp is not np:
            return self._sums_of_terms(stats, xp)
        out = np.empty(len(stats))
        for rows in row_blocks(*stats.shape):
            out[rows] = self._sums_of_terms(stats[rows], np)
        return out

    def _sums_of_terms(self, stats: FloatArray, xp: Any) -> FloatArray:
        """Return ``log f`` of a block of clusters; ``xp`` is the library of their arrays."""
        # A C-contiguous sum over the last axis adds each row in the same order in every batch.
        terms: FloatArray = xp.ascontiguousarray(self.feature_log_marginal(stats)).sum(axis=1)
        return terms

    def feature_contributions(self, stats_a: FloatArray, stats_b: FloatArray) -> FloatArray:
        """Return the log Bayes factor for keeping a and b apart, feature by feature, ``(m, d)``."""
        union = self.feature_log_marginal(self.merge(stats_a, stats_b))
        apart = self.feature_log_marginal(stats_a) + self.feature_log_marginal(stats_b)
        return np.asarray(apart - union)

    def with_hyperparameters(self, values: Mapping[str, npt.ArrayLike]) -> Self:
        """Return a copy with some hyperparameters replaced, checked against their domains."""
        domains = {spec.name: spec for spec in self.hyperparameters}
        checked: dict[str, Any] = {}
        for name, value in values.items():
            if name not in domains:
                raise BhclustError(f"{self._owner} has no hyperparameter {name!r}.")
            shape = np.shape(getattr(self, name))
            checked[name] = self._checked(domains[name], value, shape)
        return replace(self, **checked)

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _column(self, j: int) -> str:
        if j < len(self.column_names):
            return f"column {self.column_names[j]!r}"
        return column_number(j)

    def _parameter(self, name: str) -> FloatArray:
        value = getattr(self, name)
        if not isinstance(value, np.ndarray):
            raise BhclustError(
                f"{self._owner} has no {name} for each column yet: call resolve(X) first."
            )
        return value

    def _parameters_like(self, stats: FloatArray, *names: str) -> tuple[FloatArray, ...]:
        """Return hyperparameters where the statistics are."""
        return like(stats, *(self._parameter(name) for name in names))

    def _n_resolved_columns(self) -> int | None:
        """Return the number of columns the model was resolved with, None before that."""
        value = getattr(self, self.hyperparameters[0].name)
        return len(value) if isinstance(value, np.ndarray) and value.ndim == 1 else None

    def _table(self, X: Any) -> Any:
        """Return ``X`` checked: dense float64 or CSR, of the right width, with valid values."""
        table = check_table(
            X, owner=self._owner, accepts_sparse=self.accepts_sparse, column=self._column
        )
        expected = self._n_resolved_columns()
        if expected is not None:
            check_n_columns(table, expected, owner=self._owner)
        self._check_values(table)
        return table

    def _weighted_rows(self, X: Any, weight: npt.ArrayLike | None) -> WeightedRows:
        """Return the checked table without its rows of weight zero, and the multiplicities."""
        table = self._table(X)
        multiplicity = check_sample_weight(weight, table.shape[0])
        rows = np.flatnonzero(multiplicity > 0)
        if len(rows) < len(multiplicity):
            return WeightedRows(table[rows], multiplicity[rows])
        return WeightedRows(table, multiplicity)

    def _check_values(self, table: Any) -> None:
        """Raise if an entry is outside the model's domain."""

    def _settle(
        self, shapes: Mapping[str, tuple[int, ...]], defaults: Mapping[str, npt.ArrayLike]
    ) -> Self:
        """Return a copy in which every hyperparameter is a number or array of its shape."""
        values: dict[str, Any] = {}
        for spec in self.hyperparameters:
            given = getattr(self, spec.name)
            value = defaults[spec.name] if given is None else given
            values[spec.name] = self._checked(spec, value, shapes[spec.name])
        return replace(self, **values)

    def _checked(
        self, spec: Hyperparameter, value: object, shape: tuple[int, ...]
    ) -> FloatArray | float:
        name, owner = spec.name, self._owner
        if spec.domain == "covariance":
            return frozen(check_covariance(value, shape[0], name=name, owner=owner))
        positive = spec.domain != "real"
        array = broadcast_hyperparameter(value, shape, name=name, owner=owner, positive=positive)
        return frozen(array) if array.ndim else float(array)


def frozen(array: npt.ArrayLike) -> FloatArray:
    """Return a read-only float64 copy."""
    out = np.array(array, dtype=np.float64)
    out.setflags(write=False)
    return out


def dense(table: Any) -> FloatArray:
    """Return a checked table as a dense array."""
    return table if isinstance(table, np.ndarray) else table.toarray()


class WeightedRows(NamedTuple):
    """A checked table, dense or CSR, and how many times each of its rows counts."""

    table: Any
    weight: FloatArray


class Parts(NamedTuple):
    """A table taken apart: ``values`` with 0 where missing, ``missing`` with 1 where missing.

    Both are dense or both are CSR.
    """

    values: Any
    missing: Any


def take_apart(table: Any) -> Parts:
    """Split a table into its values and its holes, so that both can go into matrix products."""
    stored = table if isinstance(table, np.ndarray) else table.data
    holes = np.isnan(stored)
    values = np.where(holes, 0.0, stored)
    if isinstance(table, np.ndarray):
        return Parts(values, holes.astype(np.float64))
    shape = table.shape
    filled = scipy.sparse.csr_array((values, table.indices, table.indptr), shape=shape)
    # A copy, because dropping its zeros rewrites the index arrays in place.
    indicator = (holes.astype(np.float64), table.indices, table.indptr)
    missing = scipy.sparse.csr_array(indicator, shape=shape, copy=True)
    missing.eliminate_zeros()
    return Parts(filled, missing)


def squares_about(mean: FloatArray, values: Any, holes: Any, times: FloatArray) -> FloatArray:
    """Return the sum of squared distances of each column's observed entries from its mean."""
    if isinstance(values, np.ndarray):
        return np.asarray(times @ np.square(np.where(holes > 0, 0.0, values - mean)))
    # Entries that are not stored are zeros; holes are stored, as zeros that do not count.
    stored = values.tocsr(copy=True)
    stored.data = np.square(stored.data - mean[stored.indices])
    ones = scipy.sparse.csr_array(
        (np.ones(values.nnz), values.indices, values.indptr), values.shape
    )
    at_holes = times @ holes
    not_stored = times.sum() - times @ ones
    return np.asarray(times @ stored + np.square(mean) * (not_stored - at_holes))


class Moments(NamedTuple):
    """Mean and a positive variance of the observed entries of each column."""

    mean: FloatArray
    variance: FloatArray


def column_moments(X: FloatArray, weight: FloatArray | None = None) -> Moments:
    """Return mean and variance of the observed entries, usable as a scale in every case.

    ``weight`` says how many times each row counts, once by default. A column without spread gets
    the square of its magnitude as its variance (1 if it is zero or all missing): its unit is then
    all that is known of it.
    """
    observed = ~np.isnan(X)
    times = np.ones(len(X)) if weight is None else weight
    count = times @ observed
    divisor = np.where(count > 0, count, 1.0)
    times = times[:, None]
    mean = (times * np.where(observed, X, 0.0)).sum(axis=0) / divisor
    deviations = np.where(observed, X - mean, 0.0)
    # The second pass removes the rounding of the first, which matters at large offsets.
    shift = (times * deviations).sum(axis=0) / divisor
    mean = mean + shift
    squares = np.square(np.where(observed, deviations - shift, 0.0))
    variance = (times * squares).sum(axis=0) / divisor
    magnitude = np.abs(np.where(observed, X, 0.0)).max(axis=0, initial=0.0)
    rounding = _CONSTANT_SPACINGS * np.finfo(np.float64).eps * magnitude
    unit = np.where(magnitude > 0, magnitude, 1.0)
    variance = np.where(variance > np.square(rounding), variance, np.square(unit))
    variance = np.maximum(variance, _LEAST_VARIANCE)
    return Moments(mean, variance)


def feature_blocks(stats: FloatArray, n_blocks: int) -> tuple[FloatArray, ...]:
    """Cut rows of statistics into blocks of one number a feature."""
    d = stats.shape[1] // n_blocks
    return tuple(stats[:, k * d : (k + 1) * d] for k in range(n_blocks))


def largest_repetition(values: FloatArray, observed: npt.NDArray[np.bool_]) -> float:
    """Return the largest part of a column's entries that are one and the same number.

    Constant columns say nothing and are passed over.
    """
    shares = [0.0]
    for column, known in zip(values.T, observed.T, strict=True):
        counts = np.unique(column[known], return_counts=True)[1]
        if len(counts) > 1:
            shares.append(counts.max() / counts.sum())
    return float(max(shares))


def log_rising(start: FloatArray, steps: FloatArray) -> FloatArray:
    """Return ``lgamma(start + steps) - lgamma(start)``, the log of a rising factorial.

    Single items have steps 0 and 1, whose results 0 and ``log(start)`` need no lgamma.
    """
    xp, gammaln, _ = arrays_of(steps)
    if xp is not np:
        # Every entry is computed: choosing some first would have to wait for their number.
        further = gammaln(start + steps) - gammaln(start)
        chosen: FloatArray = xp.where(steps == 1, xp.log(start), xp.where(steps == 0, 0.0, further))
        return chosen
    # Entry by entry, so that a row's value does not depend on the other rows.
    begin, taken = np.broadcast_arrays(start, steps)
    out = np.asarray(np.where(taken == 1, np.log(start), 0.0))
    further = (taken != 0) & (taken != 1)
    if further.any():
        begin, taken = begin[further], taken[further]
        out[further] = gammaln(begin + taken) - gammaln(begin)
    return out


def log_rising_slope(start: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the derivative of `log_rising` by its start."""
    digamma = arrays_of(steps).digamma
    slope: FloatArray = digamma(start + steps) - digamma(start)
    return slope


def row_blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Cut rows of statistics into blocks whose work arrays stay in the cache, or nearly so."""
    step = max(1, _ROW_BLOCK // max(width, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def pair_blocks(n_items: int, n_clusters: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Cut the item × cluster rectangle into blocks whose work arrays stay small."""
    n_columns = max(1, min(n_clusters, _BLOCK // max(width, 1)))
    n_rows = max(1, _BLOCK // max(width * n_columns, 1))
    for i in range(0, n_items, n_rows):
        for k in range(0, n_clusters, n_columns):
            yield slice(i, i + n_rows), slice(k, k + n_columns)


def ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return ``part / whole``, NaN where the whole is zero."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def fill_missing(X: FloatArray, filled: npt.NDArray[Any]) -> FloatArray:
    """Return ``X`` with its missing entries taken from ``filled``."""
    return np.where(np.isnan(X), filled, X)
