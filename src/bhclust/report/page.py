"""The HTML page of a report: the template beside this file, filled and escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

from bhclust import __version__
from bhclust._validation import listed
from bhclust.models.base import Column
from bhclust.report import dendrogram
from bhclust.report.summary import ClusterSummary, Summary

_SHOWN_CATEGORIES = 12


def render(summary: Summary, estimator: Any, names: Sequence[str], *, title: str) -> str:
    """Return the report as one HTML page that needs no other file.

    Parameters
    ----------
    summary : Summary
    estimator : fitted estimator
        Its tree is drawn.
    names : sequence of str
        The names of the leaves.
    title : str
        The heading.
    """
    folder = resources.files("bhclust.report")
    page = Template(folder.joinpath("report.html").read_text("utf-8"))
    leaf_labels = estimator.labels_[getattr(estimator, "leaf_rows_", slice(None))]
    text = {
        "version": __version__,
        "title": title,
        "n_rows": summary.n_rows,
        "n_columns": len(summary.columns),
        "n_missing": summary.n_missing,
        "n_clusters": len(summary.clusters),
        "method": summary.method,
        "model": summary.model,
        "log_evidence": f"{summary.log_evidence:.2f}",
    }
    markup = {
        "style": folder.joinpath("report.css").read_text("utf-8"),
        "cluster_rows": "\n".join(_cluster_rows(cluster) for cluster in summary.clusters),
        "column_rows": "\n".join(_column_row(column) for column in summary.columns),
        "dendrogram": dendrogram.draw(estimator.tree_, leaf_labels, names),
    }
    return page.substitute({key: html.escape(str(value)) for key, value in text.items()}, **markup)


def _cluster_rows(cluster: ClusterSummary) -> str:
    colour = dendrogram.COLOURS[cluster.label % len(dendrogram.COLOURS)]
    head = (
        f'<td><span class="swatch" style="background:{colour}"></span>{cluster.label}</td>'
        f"<td>{cluster.size}</td>"
    )
    rows = []
    for feature in cluster.features:
        factor = f"{feature.log_bayes_factor:.1f}"
        rows.append(head + _cells(feature.feature, feature.here, feature.elsewhere, factor))
        head = "<td></td><td></td>"
    if not rows:
        rows.append(head + _cells("", "", "", ""))
    return "\n".join(f"<tr>{row}</tr>" for row in rows)


def _column_row(column: Column) -> str:
    categories = listed(column.categories, _SHOWN_CATEGORIES)
    return f"<tr>{_cells(column.name, column.kind, categories)}</tr>"


def _cells(*texts: str) -> str:
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)
