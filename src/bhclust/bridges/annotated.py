"""A fit in the slots of an AnnData object where scanpy looks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import dendrogram

from bhclust._cluster_tree import cluster_tree
from bhclust._validation import BhclustError, FloatArray, optional_import
from bhclust.io import to_linkage

# A matrix of all pairs of so many rows takes 800 MB.
_MOST_PAIRED_ROWS = 10_000


def to_anndata(
    estimator: Any,
    adata: Any = None,
    *,
    key: str = "bhclust",
    co_clustering: bool | None = None,
) -> Any:
    """Write labels, dendrogram and co-clustering of a fit into an AnnData object.

    Parameters
    ----------
    estimator : fitted estimator
        Fitted to the rows of ``adata``, in the same order.
    adata : AnnData, optional
        Where to write; by default a new object without a matrix, with the rows that were fitted.
    key : str
        What the slots are called.
    co_clustering : bool, optional
        Whether to write the probabilities that two rows share a cluster, a matrix of all pairs;
        by default up to 10,000 rows.

    Returns
    -------
    AnnData
        The object, with

        * ``obs[key]``: the clusters, a categorical of the strings "0", "1", …;
        * ``uns["dendrogram_" + key]``: the tree above the clusters as `scanpy.tl.dendrogram`
          writes it, for ``scanpy.pl.dendrogram(adata, key)`` and ``dendrogram=True`` in other
          plots (two clusters or more);
        * ``obsp[key + "_co_clustering"]``: the co-clustering probabilities;
        * ``uns[key]``: ``linkage``, SciPy's linkage matrix of all rows, ``log_evidence``,
          ``method`` and ``model``.

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.bridges import to_anndata
    >>> from bhclust.datasets import make_blocks
    >>> fitted = BayesianHierarchicalClustering().fit(make_blocks(random_state=0).X)
    >>> adata = to_anndata(fitted)
    >>> adata.obs["bhclust"].value_counts().to_dict()
    {'0': 16, '1': 16, '2': 16}
    """
    anndata = optional_import("anndata", extra="bridges", needed_for="to_anndata")
    pandas = optional_import("pandas", extra="bridges", needed_for="to_anndata")
    tree, labels = estimator.tree_, np.asarray(estimator.labels_)
    n_rows = len(labels)
    if adata is None:
        names = tree.leaf_names
        if names is None or len(names) != n_rows or len(set(names)) < n_rows:
            names = tuple(map(str, range(n_rows)))
        adata = anndata.AnnData(obs=pandas.DataFrame(index=list(names)))
    if adata.n_obs != n_rows:
        raise BhclustError(
            f"to_anndata: adata has {adata.n_obs} rows and {n_rows} were fitted: they must be the "
            "same rows in the same order."
        )
    categories = [str(label) for label in range(int(labels.max()) + 1)]
    adata.obs[key] = pandas.Categorical(labels.astype(str), categories=categories)
    leaf_rows = np.asarray(getattr(estimator, "leaf_rows_", np.arange(n_rows)))
    if len(categories) > 1:
        adata.uns[f"dendrogram_{key}"] = _dendrogram(estimator, labels[leaf_rows], key)
    if co_clustering is None:
        co_clustering = n_rows <= _MOST_PAIRED_ROWS
    if co_clustering:
        pairs = np.zeros((n_rows, n_rows))
        pairs[np.ix_(leaf_rows, leaf_rows)] = estimator.co_clustering_matrix()
        adata.obsp[f"{key}_co_clustering"] = pairs
    adata.uns[key] = {
        "linkage": to_linkage(tree),
        "log_evidence": float(estimator.log_evidence_),
        "method": type(estimator).__name__,
        "model": type(estimator.model_).__name__,
    }
    return adata


def _dendrogram(estimator: Any, labels: Any, key: str) -> dict[str, Any]:
    """Return what `scanpy.tl.dendrogram` stores, for the tree above the clusters."""
    above = cluster_tree(estimator.tree_, labels).tree
    linkage = to_linkage(above)
    names = list(above.leaf_names or ())
    try:
        drawn = dendrogram(linkage, labels=names, no_plot=True)
    except RecursionError:
        raise BhclustError(
            f"to_anndata: SciPy cannot lay out so deep a tree of {len(names)} clusters: cut it "
            "into fewer (n_clusters)."
        ) from None
    return {
        "linkage": linkage,
        "groupby": [key],
        "use_rep": "bhclust",
        "cor_method": "bhclust",
        "linkage_method": "bhclust",
        "categories_ordered": drawn["ivl"],
        "categories_idx_ordered": drawn["leaves"],
        "dendrogram_info": drawn,
        "correlation_matrix": _closeness(linkage),
    }


def _closeness(linkage: FloatArray) -> FloatArray:
    """Return 1 at the diagonal, falling with the height at which two clusters are joined.

    scanpy stores correlations here; for the trees of BHC and BRT the value is the probability
    that rows of the two clusters share one after all.
    """
    n = len(linkage) + 1
    members: list[list[int]] = [[leaf] for leaf in range(n)]
    highest = max(float(linkage[:, 2].max()), 1.0)
    close = np.eye(n)
    for left, right, height, _ in linkage.tolist():
        a, b = members[int(left)], members[int(right)]
        close[np.ix_(a, b)] = close[np.ix_(b, a)] = 1.0 - height / highest
        members.append(a + b)
    return np.asarray(close)
