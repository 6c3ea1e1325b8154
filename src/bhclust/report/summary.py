"""What a fitted tree says in a few lines: clusters, their sizes, their most telling features."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray
from bhclust.models.base import Column
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


def summarise(estimator: Any, table: Table, top: int = 3) -> Summary:
    """Summarise a fitted estimator and the table it was fitted to.

    Parameters
    ----------
    estimator : fitted BayesianHierarchicalClustering or BayesianRoseTree
    table : Table
        The table, as `bhclust.tables.read_table` read it.
    top : int
        Features a cluster.

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
    clusters = [
        _cluster(estimator, table, values, label, top) for label in range(estimator.n_clusters_)
    ]
    return Summary(
        n_rows=table.shape[0],
        columns=table.columns,
        n_missing=int(np.isnan(values).sum()),
        model=type(estimator.model_).__name__,
        method=type(estimator).__name__,
        log_evidence=float(estimator.log_evidence_),
        clusters=clusters,
    )


def _cluster(
    estimator: Any, table: Table, values: FloatArray, label: int, top: int
) -> ClusterSummary:
    inside = np.asarray(estimator.labels_) == label
    position = {column.name: j for j, column in enumerate(table.columns)}
    features = []
    # A single cluster has nothing to be told apart from.
    records = estimator.explain_cluster(label, top=top) if estimator.n_clusters_ > 1 else []
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


def as_text(summary: Summary) -> str:
    """Return a summary as lines for a terminal."""
    kinds = Counter(column.kind for column in summary.columns)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    lines = [
        f"rows          {summary.n_rows}",
        f"columns       {len(summary.columns)} ({counted}), {summary.n_missing} missing value(s)",
        f"model         {summary.model}",
        f"log evidence  {summary.log_evidence:.2f}",
        f"clusters      {len(summary.clusters)}",
    ]
    for cluster in summary.clusters:
        told = "; ".join(describe_feature(feature) for feature in cluster.features)
        lines.append(f"  {cluster.label:>3}  {cluster.size:>6} rows  {told}".rstrip())
    return "\n".join(lines)
