"""What it costs to read a prior off the table.

The default priors take their centre from the table: the prior mean of a column is its frequency
or its mean. A prior that is made ever stronger then pins every cluster to these fitted numbers:
one cluster explains the table as well as d numbers of its own would, without paying for them. The
evidence alone would often choose that corner. It is charged as BIC would: a centre that s prior
items stand behind, seen through n rows, is known like ``s n / (s + n)`` items, and each fitted
number costs half the log of one more than that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bhclust._validation import FloatArray
from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
)


class Pinning(NamedTuple):
    """The cost in nats and its derivative by each hyperparameter that it depends on."""

    cost: float
    slopes: dict[str, FloatArray]


class _Term(NamedTuple):
    """Prior items behind fitted numbers, how many numbers, and ∂ items / ∂ hyperparameters."""

    items: FloatArray
    numbers: FloatArray | float
    seen: float
    by: dict[str, float]


def pinning(model: ClusterModel, n_items: float) -> Pinning:
    """Return the cost of a prior whose centre was read off ``n_items`` rows.

    Models of one's own cost nothing: nothing is known about their hyperparameters.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Bernoulli
    >>> X = np.eye(4)
    >>> weak, strong = Bernoulli(a=1, b=1).resolve(X), Bernoulli(a=1e9, b=1e9).resolve(X)
    >>> pinning(weak, 4.0).cost < pinning(strong, 4.0).cost
    True
    >>> bool(np.isclose(pinning(strong, 4.0).cost, 4 / 2 * np.log(1 + 4)))
    True
    """
    if isinstance(model, Mixed):
        cost, slopes = 0.0, {}
        for number, (part, _) in enumerate(model.parts):
            inner = pinning(part, n_items)
            cost += inner.cost
            slopes.update({f"{number}.{name}": slope for name, slope in inner.slopes.items()})
        return Pinning(cost, slopes)
    cost, slopes = 0.0, {}
    for term in _terms(model, n_items):
        total = term.items + term.seen
        known = term.items * term.seen / total
        cost += float(np.sum(term.numbers / 2 * np.log1p(known)))
        slope = np.asarray(term.numbers / 2 * np.square(term.seen / total) / (1 + known))
        for name, factor in term.by.items():
            shape = np.shape(model.hyperparameter(name))
            own = _spread(model, slope, shape) * factor
            slopes[name] = slopes[name] + own if name in slopes else own
    return Pinning(cost, slopes)


def _spread(model: ClusterModel, slope: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Give each entry of a hyperparameter the slope of the column that it belongs to."""
    if isinstance(model, Categorical):
        return slope.repeat(np.asarray(model.n_categories))
    return np.broadcast_to(slope, shape)


def _terms(model: ClusterModel, n: float) -> list[_Term]:
    if isinstance(model, Bernoulli):
        items = model.hyperparameter("a") + model.hyperparameter("b")
        return [_Term(items, 1.0, n, {"a": 1.0, "b": 1.0})]
    if isinstance(model, Categorical):
        sizes = np.asarray(model.n_categories)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        items = np.add.reduceat(model.hyperparameter("concentration"), starts)
        return [_Term(items, sizes - 1.0, n, {"concentration": 1.0})]
    if isinstance(model, Multinomial):
        concentration = model.hyperparameter("concentration")
        counts = n * max(model.row_total or 1.0, 1.0)
        numbers = len(concentration) - 1.0
        return [_Term(concentration.sum(keepdims=True), numbers, counts, {"concentration": 1.0})]
    if isinstance(model, Poisson):
        return [_Term(model.hyperparameter("rate"), 1.0, n, {"rate": 1.0})]
    if isinstance(model, DiagonalGaussian):
        spread = _Term(2 * model.hyperparameter("shape"), 1.0, n, {"shape": 2.0})
        return [_Term(model.hyperparameter("strength"), 1.0, n, {"strength": 1.0}), spread]
    if isinstance(model, Gaussian):
        d = float(len(model.hyperparameter("mean")))
        spread = _Term(model.hyperparameter("dof") - (d - 1), d, n, {"dof": 1.0})
        return [_Term(model.hyperparameter("strength"), d, n, {"strength": 1.0}), spread]
    return []
