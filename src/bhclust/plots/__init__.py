"""Plots with matplotlib, the optional extra ``plot``: each takes ``ax`` and returns its Axes."""

from bhclust.plots.curves import curves, regression
from bhclust.plots.posterior import co_clustering, density, n_clusters
from bhclust.plots.table import heatmap
from bhclust.plots.trees import dendrogram, radial

__all__ = [
    "co_clustering",
    "curves",
    "dendrogram",
    "density",
    "heatmap",
    "n_clusters",
    "radial",
    "regression",
]
