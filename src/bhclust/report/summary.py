"""What a fitted tree says in a few lines: clusters, their sizes, their most telling features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray
from bhclust.explanations import FeatureContribution
from bhclust.models import choose_model
from bhclust.models.base import ClusterModel, Column
from bhclust.report.scores import Scores
from bhclust.tables import Table


class TellingFeature(NamedTuple):
    """A feature that sets a cluster apart.

    ``here`` and ``elsewhere`` describe it within the cluster and in all other rows: mean, share
    of ones, or the most frequent category and its share; they are empty for a feature that is
    not a column.
    """

    feature: str
    log_bayes_factor: float
    here: str
    elsewhere: str


class ClusterSummary(NamedTuple):
    """One cluster: its label, the number of its rows, its most telling features."""

    label: int
    size: int
    features: list[TellingFeature]


class Summary(NamedTuple):
    """A fit in a few words and numbers."""

    n_rows: int
    columns: tuple[Column, ...]
    n_missing: int
    model: str
    method: str
    log_evidence: float
    clusters: list[ClusterSummary]
    scores: Scores | None = None


def summarise(
    estimator: Any, table: Table, top: int = 3, *, scores: Scores | None = None
) -> Summary:
    """Summarise a fitted estimator and the table it was fitted to.

    Parameters
    ----------
    estimator : fitted estimator
    table : Table
        The table, as `bhclust.tables.read_table` read it.
    top : int
        Features a cluster.
    scores : Scores, optional
        How the clusters agree with known classes.

    Returns
    -------
    Summary

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.datasets import make_blocks
    >>> from bhclust.report.summary import summarise
    >>> from bhclust.tables import read_table
    >>> X = make_blocks(random_state=0).X
    >>> result = summarise(BayesianHierarchicalClustering().fit(X), read_table(X))
    >>> [cluster.size for cluster in result.clusters]
    [16, 16, 16]
    """
    values = table.toarray()
    explain = _explainer(estimator, table, values)
    clusters = [
        _cluster(np.asarray(estimator.labels_) == label, table, values, label, explain(label, top))
        for label in range(estimator.n_clusters_)
    ]
    return Summary(
        n_rows=table.shape[0],
        columns=table.columns,
        n_missing=int(np.isnan(values).sum()),
        model=type(estimator.model_).__name__,
        method=type(estimator).__name__,
        log_evidence=float(estimator.log_evidence_),
        clusters=clusters,
        scores=scores,
    )


def _explainer(
    estimator: Any, table: Table, values: FloatArray
) -> Callable[[int, int], list[FeatureContribution]]:
    """Return a function of label and number: the features that set a cluster apart.

    An estimator without a model of clusters is explained by the one that the kinds of the columns
    suggest.
    """
    if estimator.n_clusters_ == 1:  # a single cluster has nothing to be told apart from
        return lambda label, top: []
    if hasattr(estimator, "explain_cluster"):
        return lambda label, top: estimator.explain_cluster(label, top=top)
    model = choose_model(table.columns, values).for_columns(table.columns).resolve(values)
    stats = model.suffstats(values)
    labels = np.asarray(estimator.labels_)

    def explain(label: int, top: int) -> list[FeatureContribution]:
        inside = _pooled(model, stats[labels == label])
        outside = _pooled(model, stats[labels != label])
        contributions = model.feature_contributions(inside, outside)[0]
        names = table.schema.names if len(contributions) == table.shape[1] else ("all features",)
        order = np.argsort(-contributions, kind="stable")[:top]
        return [FeatureContribution(names[j], float(contributions[j])) for j in order]

    return explain


def _pooled(model: ClusterModel, stats: FloatArray) -> FloatArray:
    """Merge all clusters of a batch into one, by halves."""
    while len(stats) > 1:
        half = len(stats) // 2
        merged = model.merge(stats[:half], stats[half : 2 * half])
        stats = np.concatenate([merged, stats[2 * half :]])
    return stats


def _cluster(
    inside: npt.NDArray[np.bool_],
    table: Table,
    values: FloatArray,
    label: int,
    records: list[FeatureContribution],
) -> ClusterSummary:
    position = {column.name: j for j, column in enumerate(table.columns)}
    features = []
    for record in records:
        # A feature that speaks against the cluster does not tell it apart.
        if record.log_bayes_factor <= 0:
            continue
        here = elsewhere = ""
        if record.feature in position:
            j = position[record.feature]
            here, elsewhere = contrast(values[:, j], inside, table.columns[j])
        features.append(
            TellingFeature(record.feature, float(record.log_bayes_factor), here, elsewhere)
        )
    return ClusterSummary(label, int(inside.sum()), features)


def contrast(values: FloatArray, inside: npt.NDArray[np.bool_], column: Column) -> tuple[str, str]:
    """Describe a column within a cluster and outside of it."""
    observed = ~np.isnan(values)
    here, elsewhere = values[observed & inside], values[observed & ~inside]
    if column.kind == "categorical" and len(here):
        code = Counter(here.tolist()).most_common(1)[0][0]
        category = str(column.categories[int(code)])
        shares = [_share(part == code) for part in (here, elsewhere)]
        return f"{category} {shares[0]}", shares[1]
    if column.kind == "binary":
        return _share(here == 1), _share(elsewhere == 1)
    return _mean(here), _mean(elsewhere)


def _share(hits: npt.NDArray[np.bool_]) -> str:
    return f"{100 * hits.mean():.0f} %" if len(hits) else "no value"


def _mean(values: FloatArray) -> str:
    return f"{values.mean():.4g}" if len(values) else "no value"


def describe_feature(feature: TellingFeature) -> str:
    """Return a telling feature as a phrase."""
    if not feature.here:
        return feature.feature
    return f"{feature.feature} {feature.here} (others {feature.elsewhere})"
