"""Beyond the papers: all labelled tables at full size, the library as it comes, and others.

Purity of the tree (leaves and pairs weighed alike), adjusted Rand index of the flat clusters, and
time. BHC, rose trees and Greedy-Rate1 have their default settings and choose the number of clusters
themselves. Linkage (SciPy) and genieclust cannot: they are given the true number of classes.
scikit-learn's BayesianGaussianMixture may use up to 50 components; HDBSCAN has its defaults (its
tree is the single linkage of mutual reachability). The others see numbers: reals standardised,
counts as twice their root, categories one-hot over √2, missing entries at the column's mean; with
several kinds of columns, all scaled to variance 1. Where that has more than a thousand columns, and
more than rows, all but the mixture get the rows turned into as many dimensions as there are rows:
every distance is the same but for rounding, and a fit on thousands of words ends.

Each fit runs in a process of its own and is stopped after a limit of processor time; a stop or an
error is recorded as such. Times are processor seconds of the fit, one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from runner import Record, Unit, study
from samples import has_data
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.linalg.lapack import dpstrf
from scipy.sparse import csr_array
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score
from tables import HUGE, LARGE, STAND_INS, TABLES, tables

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering, Tree
from bhclust._linkage import numeric_features
from bhclust._validation import BhclustError
from bhclust.metrics import dendrogram_purity
from bhclust.tables import read_table

OURS: dict[str, Callable[[], Any]] = {
    "BHC": BayesianHierarchicalClustering,
    "BRT": BayesianRoseTree,
    "Rate1": CoalescentClustering,
}
LINKAGES = ("single", "complete", "average", "ward")
FLAT = ("BayesianGaussianMixture", "HDBSCAN", "genieclust")
METHODS = (*OURS, *LINKAGES, *FLAT)
# Processor seconds of a fit, and bytes. The clock's limit only guards against a process that hangs.
TIME_LIMIT, MEMORY_LIMIT = 600, 9 * 2**30
CLOCK_LIMIT = 8 * TIME_LIMIT
FEW_COLUMNS = 1000
# What takes long comes last: with large tables a method goes through all of them before the next.
LARGE_ORDER = (
    "BHC",
    "BRT",
    "average",
    "ward",
    "HDBSCAN",
    "genieclust",
    "single",
    "complete",
    "Rate1",
    "BayesianGaussianMixture",
)


def purities(tree: Tree, y: np.ndarray) -> Record:
    codes = np.unique(y, return_inverse=True)[1].tolist()
    return {
        "purity": dendrogram_purity(tree, codes),
        "purity of pairs": dendrogram_purity(tree, codes, "pair"),
    }


def tree_of(left: np.ndarray, right: np.ndarray, n: int) -> Tree:
    """Return the binary tree of merges in order."""
    parent = np.full(2 * n - 1, -1, dtype=np.int32)
    parent[left] = parent[right] = np.arange(n, 2 * n - 1)
    return Tree(parent, n_leaves=n)


def first_rows(X: Any, count: int) -> Any:
    if isinstance(X, dict):
        return {name: column[:count] for name, column in X.items()}
    return X[:count]


def log_joint(model: Any, stats: np.ndarray, labels: np.ndarray, alpha: float) -> float:
    """Return log p(partition) + log f of its clusters, up to a constant of the table."""
    total = 0.0
    for label in np.unique(labels):
        part = stats[labels == label]
        total += np.log(alpha) + gammaln(len(part))
        while len(part) > 1:
            half = len(part) // 2
            merged = model.merge(part[:half], part[half : 2 * half])
            part = np.concatenate([merged, part[2 * half :]])
        total += float(model.log_marginal(part)[0])
    return float(total)


def preference(fitted: Any, X: Any, y: np.ndarray) -> Record:
    """Return by how many nats the model prefers its clusters to the classes, if it has them.

    Where that is positive the model does not fit the classes, and no search is to blame.
    """
    stats = fitted.model_.suffstats(read_table(X).values)
    parts = [
        log_joint(fitted.model_, stats, labels, fitted.mixing_.alpha)
        for labels in (fitted.labels_, np.unique(y, return_inverse=True)[1])
    ]
    return {"clusters over classes, nats": parts[0] - parts[1]}


def ours(method: str, X: Any, y: np.ndarray) -> Record:
    n_classes = len(np.unique(y))
    with contextlib.suppress(Exception):  # so that compiled kernels are loaded before timing
        OURS[method]().fit(first_rows(X, 40))
    began = time.process_time()
    fitted = OURS[method]().fit(X)
    seconds = time.process_time() - began
    at_classes = None
    with contextlib.suppress(BhclustError):  # a rose tree may have no cut into so many
        at_classes = adjusted_rand_score(y, fitted.cut(n_clusters=n_classes))
    preferred: Record = {}
    if method == "BHC":
        with contextlib.suppress(MemoryError):
            preferred = preference(fitted, X, y)
    return {
        "seconds": seconds,
        **preferred,
        **purities(fitted.tree_, y),
        "ari": adjusted_rand_score(y, fitted.labels_),
        "clusters": fitted.n_clusters_,
        "ari at the number of classes": at_classes,
        "internal nodes": fitted.tree_.n_nodes - fitted.tree_.n_leaves,
        "children of the root": len(fitted.tree_.children(fitted.tree_.n_nodes - 1)),
        "model": type(getattr(fitted, "model_", getattr(fitted, "process_", None))).__name__,
    }


def turned(features: np.ndarray) -> np.ndarray:
    """Return rows of at most as many columns with the same distances between them.

    They are the rows of a pivoted Cholesky factor of all inner products, which words that occur in
    few rows make cheap. A table that is small enough stays as it is: turned rows of 0 and 1 would
    have their many equal distances told apart by rounding.
    """
    n, d = features.shape
    if d <= max(n, FEW_COLUMNS):
        return features
    rows = csr_array(features)
    products = (rows @ rows.T).toarray()
    factor, order, rank, _ = dpstrf(products, lower=1)
    out = np.empty((n, rank))
    out[order - 1] = np.tril(factor)[:, :rank]
    return out


def others(method: str, X: Any, y: np.ndarray) -> Record:
    table = read_table(X)
    features = numeric_features(table.values, table.columns, np.ones(len(y)))
    if method != "BayesianGaussianMixture":
        features = turned(features)
    n, n_classes = len(y), len(np.unique(y))
    began = time.process_time()
    tree = None
    if method in LINKAGES:
        Z = linkage(features, method)
        labels = cut_tree(Z, n_clusters=n_classes).ravel()
        tree = tree_of(Z[:, 0].astype(int), Z[:, 1].astype(int), n)
    elif method == "HDBSCAN":
        from sklearn.cluster import HDBSCAN

        fitted = HDBSCAN(copy=True).fit(features)
        labels, merges = fitted.labels_, fitted._single_linkage_tree_
        tree = tree_of(merges["left_node"], merges["right_node"], n)
    elif method == "genieclust":
        import genieclust

        fitted = genieclust.Genie(n_clusters=n_classes).fit(features)
        labels = fitted.labels_
        tree = tree_of(fitted.children_[:, 0], fitted.children_[:, 1], n)
    else:
        from sklearn.mixture import BayesianGaussianMixture

        mixture = BayesianGaussianMixture(n_components=min(50, n // 2), random_state=0)
        labels = mixture.fit_predict(features)
    out: Record = {"seconds": time.process_time() - began}
    out["ari"] = adjusted_rand_score(y, labels)
    out["clusters"] = len(set(labels.tolist()) - {-1})
    return {**out, **({} if tree is None else purities(tree, y))}


def one(unit: Unit) -> Record:
    """Fit one method to one table, in this process."""
    X, y = {**TABLES, **STAND_INS}[unit["data"]]()
    shape = X.shape if hasattr(X, "shape") else (len(y), len(X))
    described = {"rows": len(y), "columns": shape[1], "classes": len(np.unique(y))}
    run = ours if unit["method"] in OURS else others
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {**described, **run(unit["method"], X, y)}
    except MemoryError:
        return {**described, "failed": f"more than {MEMORY_LIMIT / 2**30:.0f} GiB"}
    except Exception as error:
        text = " ".join(str(error).split())[:160]
        return {**described, "failed": f"{type(error).__name__}: {text}"}


def units(quick: bool) -> list[Unit]:
    names = list(tables())
    if quick:
        names = names[:2]
    stages = (
        [name for name in names if name not in LARGE],
        [name for name in names if name in LARGE and name not in HUGE],
        [name for name in names if name in HUGE],
    )
    return [{"data": name, "method": method} for name in stages[0] for method in METHODS] + [
        {"data": name, "method": method}
        for stage in stages[1:]
        for method in LARGE_ORDER
        for name in stage
    ]


def _send(connection: Any, unit: Unit) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, TIME_LIMIT + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    connection.send(json.dumps(one(unit), default=float))


def compute(unit: Unit) -> Record:
    if not has_data():
        return one(unit)
    # A forked process has the libraries loaded; this one never starts a thread before.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, unit))
    process.start()
    sender.close()
    try:
        if not receiver.poll(CLOCK_LIMIT):
            return {"failed": f"not done after {CLOCK_LIMIT} s"}
        return json.loads(receiver.recv())
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return {"failed": f"not done after {TIME_LIMIT} s"}
        return {"failed": f"the process ended with code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    table: Record = {}
    for record in records:
        unit = record["unit"]
        table.setdefault(unit["data"], {})[unit["method"]] = record["result"]
    table = {name: table.get(name, {}) for name in tables()}
    for name, row in table.items():
        cells = {m: round(row[m]["purity"], 3) for m in METHODS if "purity" in row.get(m, {})}
        print(name, cells)
    limits = {"time_limit": TIME_LIMIT, "memory_limit": MEMORY_LIMIT // 2**30}
    return {"table": table, **limits, "stand_in": not has_data()}


if __name__ == "__main__":
    study("beyond", units, compute, finish, __doc__)
