"""Models side by side on one table: comparable evidence and held-out density."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from bhclust import _progress
from bhclust._validation import BhclustError, FloatArray, check_count, check_sample_weight
from bhclust.estimators.agglomerative import BayesianHierarchicalClustering, _TreeClustering
from bhclust.estimators.coalescent import CoalescentClustering
from bhclust.models import ClusterModel
from bhclust.tables import Table

Estimator = _TreeClustering | CoalescentClustering
Contestant = str | ClusterModel | Estimator


class ComparisonRow(NamedTuple):
    """One model of a comparison.

    Attributes
    ----------
    name : str
        The name it was given.
    log_evidence : float
        The bound on the mixture's evidence for a Dirichlet process, else ``log p(D | T)``.
    evidence_kind : str
        "bound" or "tree": only rows of one kind are comparable by their evidence.
    heldout : float
        Mean log predictive density of a row that was held out; comparable between all models
        that give densities of the same columns.
    heldout_error : float
        Its standard error over the rows.
    n_clusters : int
    seconds : float
        Time of the fit to the whole table.
    estimator : estimator
        Fitted to the whole table.
    """

    name: str
    log_evidence: float
    evidence_kind: str
    heldout: float
    heldout_error: float
    n_clusters: int
    seconds: float
    estimator: Estimator


class Comparison:
    """Result of `compare`: prints as a table, best held-out density first.

    Attributes
    ----------
    rows : tuple of ComparisonRow
    best : ComparisonRow
        The row with the highest held-out density.
    """

    def __init__(self, rows: tuple[ComparisonRow, ...]) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: -row.heldout))

    @property
    def best(self) -> ComparisonRow:
        return self.rows[0]

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ComparisonRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary a model, ready for ``DataFrame``; the estimators are left out."""
        return [
            {key: value for key, value in row._asdict().items() if key != "estimator"}
            for row in self.rows
        ]

    def __repr__(self) -> str:
        header = ("model", "log evidence", "kind", "held-out / row", "± error", "clusters", "time")
        lines = [
            (
                row.name,
                f"{row.log_evidence:.2f}",
                row.evidence_kind,
                f"{row.heldout:.4f}",
                f"{row.heldout_error:.4f}",
                str(row.n_clusters),
                f"{row.seconds:.2f} s",
            )
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place in (0, 2) else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in (header, *lines)
        )


def compare(
    models: Mapping[str, Contestant],
    X: Any,
    *,
    n_folds: int = 5,
    sample_weight: npt.ArrayLike | None = None,
    random_state: int | None = 0,
) -> Comparison:
    """Fit several models to one table and show which describes it best.

    The evidence is comparable between models of the same columns as they are: a density of
    reals and a probability of the same numbers taken as counts are not the same kind of thing.
    The held-out density is the mean over rows of the log predictive density that a fit to the
    other folds gives them. Kinds and categories of the columns are those of the whole table, so
    that a fold may lack a category.

    Parameters
    ----------
    models : mapping from name to model, name of a model, or estimator
        A model stands for `BayesianHierarchicalClustering` with that model and default settings.
    X : table
        As estimators take it.
    n_folds : int
        Folds of the cross-validation.
    sample_weight : array of shape (n_rows,), optional
        Multiplicities of the rows; `CoalescentClustering` takes none.
    random_state : int or None
        Seed of the folds.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust import compare
    >>> from bhclust.models import DiagonalGaussian, Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2)) @ [[1.0, 0.95], [0.0, 0.3]]  # one long, slanted cluster
    >>> result = compare({"diagonal": DiagonalGaussian(), "full": Gaussian()}, X)
    >>> result.best.name
    'full'
    """
    if not isinstance(models, Mapping) or not models:
        raise BhclustError(
            "compare takes a dictionary from names to models, such as "
            "{'full': Gaussian(), 'diagonal': DiagonalGaussian()}."
        )
    contestants = {str(name): _estimator(model, str(name)) for name, model in models.items()}
    n_rows = _n_rows(X)
    check_count(n_folds, name="n_folds", owner="compare", lowest=2, highest=n_rows)
    weight = check_sample_weight(sample_weight, n_rows)
    order = np.random.default_rng(random_state).permutation(n_rows)
    folds = np.empty(n_rows, dtype=np.intp)
    folds[order] = np.arange(n_rows) % n_folds
    _progress.begin("comparing")
    rows = [
        _row(name, one, X, weight, folds, place=(place, len(contestants)))
        for place, (name, one) in enumerate(contestants.items())
    ]
    return Comparison(tuple(rows))


def _estimator(model: Contestant, name: str) -> Estimator:
    if isinstance(model, Estimator):
        return clone(model)  # type: ignore[no-any-return]
    if isinstance(model, (str, ClusterModel)):
        return BayesianHierarchicalClustering(model)
    raise BhclustError(
        f"compare: {name!r} must be a model, the name of one, or an estimator, got {model!r}."
    )


def _row(
    name: str,
    estimator: Estimator,
    X: Any,
    weight: FloatArray,
    folds: npt.NDArray[np.intp],
    *,
    place: tuple[int, int],
) -> ComparisonRow:
    number, n_models = place
    n_folds = int(folds.max()) + 1
    n_fits, done = n_models * (n_folds + 1), number * (n_folds + 1)
    began = time.perf_counter()
    with _progress.part(done, n_fits, name):
        fitted = _fit(estimator, X, weight, name)
    seconds = time.perf_counter() - began
    table = Table(fitted.schema_.encode(X), fitted.schema_)
    log_density = np.empty(len(folds))
    for fold in range(n_folds):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        label = f"{name}, fold {fold + 1} of {n_folds}"
        with _progress.part(done + fold + 1, n_fits, label):
            one = _fit(estimator, _rows(table, inside), weight[inside], name)
            log_density[outside] = one.score_samples(_rows(table, outside))
    mean = float(np.average(log_density, weights=weight))
    spread = float(np.average(np.square(log_density - mean), weights=weight))
    is_bound = hasattr(fitted, "log_evidence_bound_")
    return ComparisonRow(
        name=name,
        log_evidence=fitted.log_evidence_bound_ if is_bound else fitted.log_evidence_,
        evidence_kind="bound" if is_bound else "tree",
        heldout=mean,
        heldout_error=float(np.sqrt(spread / max(int(np.count_nonzero(weight)) - 1, 1))),
        n_clusters=fitted.n_clusters_,
        seconds=seconds,
        estimator=fitted,
    )


def _n_rows(X: Any) -> int:
    if isinstance(X, Mapping):
        return len(next(iter(X.values()), ()))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _rows(table: Table, rows: npt.NDArray[np.intp]) -> Table:
    return Table(table.values[rows], table.schema)


def _fit(estimator: Estimator, X: Any, weight: FloatArray, name: str) -> Any:
    if isinstance(estimator, _TreeClustering):
        return clone(estimator).fit(X, sample_weight=weight)
    if bool((weight != 1).any()):
        raise BhclustError(
            f"compare: {name!r} is a CoalescentClustering, which takes no sample_weight: leave "
            "it out of the comparison, or leave the weights out."
        )
    return clone(estimator).fit(X)
