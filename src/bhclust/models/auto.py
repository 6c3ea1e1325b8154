"""The model that ``model="auto"`` stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, check_choice, check_sample_weight
from bhclust.models.base import ClusterModel, Column, Kind
from bhclust.models.discrete import Bernoulli, Categorical, Multinomial, Poisson
from bhclust.models.gaussian import DiagonalGaussian, Gaussian
from bhclust.models.gp_expert import GaussianProcessExpert
from bhclust.models.inducing import InducingPointExpert
from bhclust.models.product import Mixed
from bhclust.models.robust_series import RobustTimeSeries
from bhclust.models.time_series import TimeSeries

# A full covariance has d (d + 1) / 2 numbers to learn in every cluster: it pays with few columns
# and enough rows, and it is not defined with holes.
_MOST_COLUMNS = 8
_ROWS_PER_COLUMN = 4


def choose_model(
    columns: Sequence[Column], X: Any, weight: npt.ArrayLike | None = None
) -> ClusterModel:
    """Choose a model by the kinds of the columns.

    Binary columns are `Bernoulli`, categories `Categorical`, counts `Poisson`. Reals are
    `Gaussian` if there are 2 to 8 of them, without missing values and with at least 4 rows a
    column, and `DiagonalGaussian` otherwise. Several kinds make a `Mixed` with one part a kind.

    Parameters
    ----------
    columns : sequence of Column
        What the table knows about its columns.
    X : array or sparse array of shape (n, d)
        The encoded table.
    weight : array of shape (n,), optional
        Multiplicities of the rows, ones by default.

    Returns
    -------
    ClusterModel
        Not yet resolved.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Column, choose_model
    >>> columns = [Column("smokes", "binary"), Column("age", "real")]
    >>> choose_model(columns, np.array([[0, 31.0], [1, 52.0]]))
    Mixed(parts=(Part(model=Bernoulli(a=None, b=None), columns=(0,)), \
Part(model=DiagonalGaussian(mean=None, strength=None, shape=None, rate=None), columns=(1,))))
    """
    if not columns:
        raise BhclustError("model='auto' needs a table with at least one column.")
    times = check_sample_weight(weight, X.shape[0])
    rows = X if (times > 0).all() else X[np.flatnonzero(times)]
    groups: dict[Kind, list[int]] = {}
    for j, column in enumerate(columns):
        groups.setdefault(column.kind, []).append(j)
    parts = [
        (_model_for(kind, rows, positions, float(times.sum())), positions)
        for kind, positions in groups.items()
    ]
    return parts[0][0] if len(parts) == 1 else Mixed(parts)


def _model_for(kind: Kind, X: Any, positions: list[int], n_items: float) -> ClusterModel:
    if kind == "binary":
        return Bernoulli()
    if kind == "categorical":
        return Categorical()
    if kind == "count":
        return Poisson()
    few = 2 <= len(positions) <= _MOST_COLUMNS
    enough = n_items >= _ROWS_PER_COLUMN * len(positions)
    if few and enough and not np.isnan(np.asarray(X)[:, positions]).any():
        return Gaussian()
    return DiagonalGaussian()


_NAMED: dict[str, type[ClusterModel]] = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "diagonal_gaussian": DiagonalGaussian,
    "gaussian": Gaussian,
    "gaussian_process_expert": GaussianProcessExpert,
    "inducing_point_expert": InducingPointExpert,
    "robust_time_series": RobustTimeSeries,
    "time_series": TimeSeries,
}


def named_model(name: object, *, owner: str) -> ClusterModel:
    """Return the model with all defaults that a name stands for.

    ``"auto"`` stands for no model by itself: `choose_model` needs the table for it.
    """
    if not isinstance(name, str):
        raise BhclustError(
            f"{owner}: model must be 'auto', the name of a model, or a ClusterModel object such "
            f"as Bernoulli(), got {name!r}."
        )
    if name == "auto":
        raise BhclustError(
            f"{owner}: model='auto' depends on the table; call choose_model(columns, X), or give "
            "the name of a model."
        )
    return _NAMED[check_choice(name, ("auto", *_NAMED), name="model", owner=owner)]()
