"""Posterior samples as an InferenceData object of ArviZ."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust import posterior as of_tree
from bhclust._validation import check_count, optional_import
from bhclust.coalescent.fit import flat_labels

Draws = dict[str, npt.NDArray[Any]]


def to_arviz(
    estimator: Any,
    n_samples: int = 1000,
    *,
    random_state: int | np.random.Generator | None = 0,
    labels: bool = True,
) -> Any:
    """Draw from the posterior of a fit, as ArviZ takes it.

    Parameters
    ----------
    estimator : fitted estimator
        BHC and BRT give draws of the partition, all consistent with the tree and independent. The
        samplers of the coalescent give trees, drawn anew in proportion to their weights, so that
        one tree may come several times; a greedy coalescent tree is the only one there is.
    n_samples : int
        Number of draws.
    random_state : int, Generator or None
        Seed of the draws.
    labels : bool
        Whether to keep the cluster of every row in every draw.

    Returns
    -------
    arviz.InferenceData
        With one chain, and the variables ``n_clusters``, ``largest_cluster`` (its share of the
        rows) and ``label`` (dimension ``row``); for coalescent trees also ``root_age`` and
        ``total_length``, the sum of all branches. ``sample_stats`` has, for these, ``particle``
        (which of the weighted trees was drawn) and ``lp``, its log p(tree, X).

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.bridges import to_arviz
    >>> from bhclust.datasets import make_blocks
    >>> fitted = BayesianHierarchicalClustering().fit(make_blocks(random_state=0).X)
    >>> to_arviz(fitted, 50).posterior["n_clusters"].shape
    (1, 50)
    """
    arviz = _import_arviz()
    count = check_count(n_samples, name="n_samples", owner="to_arviz")
    rng = np.random.default_rng(random_state)
    coalescent = hasattr(estimator, "process_")
    stats: Draws = {}
    if coalescent:
        drawn, stats, partition = _coalescent_draws(estimator, count, rng)
    else:
        drawn, partition = {}, of_tree.sample_partitions(estimator.tree_, count, rng)
    drawn["n_clusters"] = partition.max(axis=1) + 1
    drawn["largest_cluster"] = (partition == 0).mean(axis=1)
    if labels:
        drawn["label"] = partition
    tree = estimator.tree_
    names = list(tree.leaf_names or range(tree.n_leaves))
    groups = {"posterior": {name: values[None] for name, values in drawn.items()}}
    if stats:
        groups["sample_stats"] = {name: values[None] for name, values in stats.items()}
    layout: dict[str, Any] = {"dims": {"label": ["row"]}, "coords": {"row": names}}
    # ArviZ took the groups as arguments once, and takes a dictionary of them since version 1.
    old = "posterior" in inspect.signature(arviz.from_dict).parameters
    return arviz.from_dict(**groups, **layout) if old else arviz.from_dict(groups, **layout)


def _import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # releases before 1 announce the next one on import
        return optional_import("arviz", extra="bridges", needed_for="to_arviz")


def _coalescent_draws(
    estimator: Any, count: int, rng: np.random.Generator
) -> tuple[Draws, Draws, npt.NDArray[np.intp]]:
    found = estimator.posterior_
    trees = [estimator.tree_] if found is None else list(found)
    weights = np.ones(1) if found is None else found.weights
    log_joints = np.array([estimator.log_joint_]) if found is None else found.log_joints
    chosen = rng.choice(len(trees), size=count, p=weights / weights.sum())
    values, process = estimator._values, estimator.process_
    distinct = np.unique(chosen)
    cuts = {
        int(k): flat_labels(process, trees[k], values, None, estimator.threshold) for k in distinct
    }
    lengths = {
        int(k): float((trees[k].height[trees[k].parent[:-1]] - trees[k].height[:-1]).sum())
        for k in distinct
    }
    drawn: Draws = {
        "root_age": np.array([trees[k].height[-1] for k in chosen]),
        "total_length": np.array([lengths[int(k)] for k in chosen]),
    }
    partition = np.array([cuts[int(k)] for k in chosen], dtype=np.intp)
    return drawn, {"particle": chosen, "lp": log_joints[chosen]}, partition
