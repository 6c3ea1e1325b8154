"""The contract of a cluster model, what is derived from it, and a public check of it.

A cluster is a row of statistics; a batch of clusters is a C-contiguous float64 array of shape
``(n_clusters, n_stats)``. A model turns items into such rows, merges rows, and gives the log
marginal likelihood of each row. Everything else in the library is built on these three verbs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, IntArray

Kind = Literal["binary", "categorical", "count", "real"]
Missing = Literal["exact", "row", "error"]
Domain = Literal["real", "positive", "degrees_of_freedom", "covariance"]


class Column(NamedTuple):
    """What a table knows about one column.

    ``categories`` holds the values that the codes 0, 1, … stand for, and is empty for columns
    that are not categorical.
    """

    name: str
    kind: Kind
    categories: tuple[Any, ...] = ()


class Hyperparameter(NamedTuple):
    """A learnable field of a model and the values it may take.

    ``"positive"`` and ``"real"`` hold entry by entry; ``"degrees_of_freedom"`` is a number above
    ``n_features - 1``; ``"covariance"`` is a symmetric positive definite matrix.
    """

    name: str
    domain: Domain


class FeatureLevels(NamedTuple):
    """Where each cluster stands on each feature, as its items were observed.

    ``value`` has one row a cluster and one column a level, NaN where nothing was observed;
    ``feature`` is the feature that a level belongs to, increasing; ``quantity`` says in words
    what the levels of each feature are. A categorical feature has one level a category, in the
    order of the codes, any other feature one level.
    """

    value: FloatArray
    feature: IntArray
    quantity: tuple[str, ...]


def one_level_each(value: FloatArray, quantity: str) -> FeatureLevels:
    """Return levels of features that have one level each, all of the same quantity."""
    n_features = value.shape[1]
    return FeatureLevels(value, np.arange(n_features), (quantity,) * n_features)


@dataclass(frozen=True, eq=False)
class ClusterModel(ABC):
    """What a cluster is: a conjugate model with its parameters integrated out.

    Subclasses are frozen dataclasses of hyperparameters in which ``None`` means "from the data".
    A model of one's own needs `suffstats` and `log_marginal`, and `resolve` if it has
    data-dependent defaults. Statistics that add up need no `merge`.
    """

    #: what a column must hold; estimators encode tables accordingly
    kind: ClassVar[Kind] = "real"
    #: "exact": a missing entry adds nothing; "row": only whole rows may be missing; "error"
    missing: ClassVar[Missing] = "error"
    #: whether `resolve` and `suffstats` take SciPy sparse arrays
    accepts_sparse: ClassVar[bool] = False
    #: the learnable fields
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = ()

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Take over what the table knows about its columns; called before `resolve`."""
        return self

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the data-dependent hyperparameters; return a new model.

        ``weight`` holds the multiplicity of each row, ones by default: a row of weight w must
        count like w copies of it, and a row of weight zero like none.
        """
        return self

    @abstractmethod
    def suffstats(self, X: Any) -> FloatArray:
        """Return the statistics of each row of ``X``, shape ``(n, n_stats)``."""

    @abstractmethod
    def log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(D)`` of each cluster, normalised over data, shape ``(m,)``."""

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        return a + b

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        return stats * weight[:, None]

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)`` of each row under each cluster, shape ``(n, m)``."""
        items = self.suffstats(X)
        log_f = self.log_marginal(stats)
        out = np.empty((len(items), len(stats)))
        for i in range(len(items)):
            out[i] = self.log_marginal(self.merge(stats, items[i : i + 1])) - log_f
        return out

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw ``n`` items from the posterior predictive of one cluster (one row of statistics)."""
        raise BhclustError(
            f"{type(self).__name__} cannot draw samples: give it a method "
            "`sample(stats, n, rng)` that returns n rows of data."
        )

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill the missing entries of each row from a mixture of clusters.

        ``weights[i, k]`` is the probability that row i belongs to cluster k; its observed entries
        are already accounted for in it.
        """
        raise BhclustError(
            f"{type(self).__name__} cannot fill in missing entries: give it a method "
            "`impute(stats, X, weights)` that returns X with its NaN replaced."
        )

    def feature_contributions(self, stats_a: FloatArray, stats_b: FloatArray) -> FloatArray:
        """Return the log Bayes factor for keeping a and b apart, feature by feature, ``(m, d)``.

        Each row adds up to ``log f(a) + log f(b) - log f(a ∪ b)``; a positive entry speaks for
        the split. A model that does not factorise over features returns one column, the total.
        """
        union = self.log_marginal(self.merge(stats_a, stats_b))
        apart = self.log_marginal(stats_a) + self.log_marginal(stats_b)
        return np.asarray(apart - union)[:, None]

    def feature_levels(self, stats: FloatArray) -> FeatureLevels | None:
        """Return where each cluster stands on each feature: the direction of an explanation.

        None, the default, if the model cannot tell.
        """
        return None

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Describe each cluster by named arrays with one row a cluster."""
        return {}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ hyperparameter`` for each name in `hyperparameters`.

        Each array has the shape of the resolved hyperparameter. The default takes central
        differences; models with a closed form override it.
        """
        return {spec.name: numerical_gradient(self, spec, stats, weights) for spec in self.free()}

    def hyperparameter(self, name: str) -> FloatArray:
        """Return the current value of one of the names that `free` lists."""
        return np.asarray(getattr(self, name), dtype=np.float64)

    def column_kinds(self, names: Sequence[str]) -> tuple[Kind, ...]:
        """Return the kind of data the model wants in each column of a table with these names."""
        return (self.kind,) * len(names)

    def free(self) -> tuple[Hyperparameter, ...]:
        """Return the hyperparameters that are resolved to numbers and can be learned."""
        return tuple(s for s in self.hyperparameters if getattr(self, s.name) is not None)

    def learnable(self, stats: FloatArray) -> tuple[str, ...]:
        """Return the hyperparameters whose evidence can be trusted, given items' statistics.

        ``learn="auto"`` moves only these. A model of densities leaves those out that would follow
        exact repetitions in the table.
        """
        return tuple(spec.name for spec in self.free())

    def with_hyperparameters(self, values: Mapping[str, npt.ArrayLike]) -> Self:
        """Return a copy with some hyperparameters replaced."""
        return replace(self, **values)


def numerical_gradient(
    model: ClusterModel, spec: Hyperparameter, stats: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return one hyperparameter's gradient by numerical differentiation, entry by entry.

    For a covariance the result is the symmetric G with ``d log f = sum(G * dS)`` for symmetric dS.
    """
    centre = model.hyperparameter(spec.name)
    out = np.empty(centre.shape)
    for index in np.ndindex(centre.shape):
        direction = np.zeros(centre.shape)
        direction[index] = 1.0
        if spec.domain == "covariance":
            # Only symmetric moves stay in the domain; half of each off-diagonal pair is the same.
            direction = (direction + direction.T) / 2
            step = float(np.sqrt(centre[index[0], index[0]] * centre[index[1], index[1]]))
        else:
            step = abs(float(centre[index]))
            if spec.domain == "real":
                step = max(step, 1.0)
        out[index] = slope_along(model, spec.name, direction * step, stats, weights) / step
    return out


def slope_along(
    model: ClusterModel,
    name: str,
    direction: FloatArray,
    stats: FloatArray,
    weights: FloatArray,
) -> float:
    """Return the derivative of ``Σ weights · log f`` along a direction of a hyperparameter."""
    centre = model.hyperparameter(name)

    def change(step: float) -> float:
        moved = centre + step * direction
        value = moved if moved.ndim else float(moved)
        return float(weights @ (model.with_hyperparameters({name: value}).log_marginal(stats)))

    # A move that changes log f by about one nat is on the scale of the function's own curvature,
    # whatever the unit of the hyperparameter.
    step, middle = 0.1, change(0.0)
    while step > 1e-30 and max(abs(change(s) - middle) for s in (step, -step)) > 1.0:
        step /= 10
    return _ridders(change, step)


def _ridders(function: Callable[[float], float], step: float) -> float:
    """Differentiate at 0 by central differences, extrapolated to step 0 (Ridders 1982)."""
    best, error = (function(step) - function(-step)) / (2 * step), np.inf
    previous = [best]
    for _ in range(12):
        step /= 2
        row = [(function(step) - function(-step)) / (2 * step)]
        factor = 1.0
        for coarse in previous:
            factor *= 4.0
            row.append((factor * row[-1] - coarse) / (factor - 1.0))
            change = max(abs(row[-1] - row[-2]), abs(row[-1] - coarse))
            if change <= error:
                best, error = row[-1], change
        if abs(row[-1] - previous[-1]) >= 2 * error:
            break
        previous = row
    return best
