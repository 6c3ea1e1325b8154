"""Reading estimators from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

import numpy as np

from bhclust import io
from bhclust._coordinates import Prior
from bhclust._validation import FileFormatError
from bhclust.estimators.agglomerative import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    _TreeClustering,
)
from bhclust.estimators.coalescent import CoalescentClustering
from bhclust.learn import LearningInfo, hyperparameter_values
from bhclust.models import ClusterModel
from bhclust.models.spec import model_from_spec
from bhclust.tables import Schema

_ESTIMATORS: dict[str, type[_TreeClustering]] = {
    "BayesianHierarchicalClustering": BayesianHierarchicalClustering,
    "BayesianRoseTree": BayesianRoseTree,
}


def load(path: str | PathLike[str], *, known: Iterable[type[ClusterModel]] = ()) -> Any:
    """Read an estimator that was written by its ``save``, or a tree written by `Tree.save`.

    No code is run and nothing is unpickled. If the model was given as an object, `model` is the
    fitted one, with all hyperparameters filled in; a random generator is not kept.

    Parameters
    ----------
    path : str or path
        The file.
    known : iterable of classes
        Models of one's own that the file may name.

    Raises
    ------
    FileFormatError
        If the file is truncated, damaged, not one of ours, or of a newer format.
    """
    header, arrays = io.read_archive(path)
    name = header.get("estimator")
    if name is None:
        return io.load(path)
    if name not in (*_ESTIMATORS, CoalescentClustering.__name__):
        raise FileFormatError(f"{path} holds a {name!r}, which this release does not know.")
    try:
        if name == CoalescentClustering.__name__:
            return CoalescentClustering.from_archive(header, arrays)
        return _rebuild(_ESTIMATORS[name], header, arrays, known)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FileFormatError(f"{path} does not hold a valid {name}: {error}.") from error


def _rebuild(
    kind: type[_TreeClustering],
    header: Mapping[str, Any],
    arrays: Mapping[str, Any],
    known: Iterable[type[ClusterModel]],
) -> _TreeClustering:
    model = model_from_spec(header["model"], _part(arrays, "model."), known=known)
    parameters = {"model": model, **header["parameters"]}
    if isinstance(parameters["column_kinds"], list):
        parameters["column_kinds"] = dict(parameters["column_kinds"])
    estimator = kind(**parameters)
    estimator.model_ = model
    estimator.tree_ = io.tree_from_arrays(header["tree"], arrays)
    estimator.cluster_tree_ = None
    if "cluster_tree" in header:
        of_clusters = _part(arrays, "clusters.")
        estimator.cluster_tree_ = io.tree_from_arrays(header["cluster_tree"], of_clusters)
    estimator.schema_ = Schema.from_dict(header["schema"])
    estimator.n_features_in_ = len(estimator.schema_.columns)
    if header["feature_names"]:
        estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    estimator.mixing_ = estimator._make_mixing(float(header["mixing_parameter"]))
    estimator.learning_info_ = LearningInfo.from_dict(header["learning"])
    names = estimator.learning_info_.names
    estimator.learned_ = hyperparameter_values(Prior(model, estimator.mixing_), names)
    estimator.evidence_path_ = arrays["evidence_path"]
    estimator.n_iter_ = len(estimator.evidence_path_)
    estimator.strategy_ = str(header["strategy"])
    estimator.polish_gain_ = float(header["polish_gain"])
    estimator.labels_ = arrays["labels"].astype(np.intp)
    estimator.n_clusters_ = int(estimator.labels_.max()) + 1
    estimator.leaf_rows_ = arrays["leaf_rows"].astype(np.intp)
    if not _fits_together(estimator):
        raise FileFormatError("its tree, rows and labels do not belong together")
    estimator._store_results()
    return estimator


def _fits_together(estimator: _TreeClustering) -> bool:
    rows, labels = estimator.leaf_rows_, estimator.labels_
    n_rows_fit = len(rows) == estimator.tree_.n_leaves and rows.max() < len(labels)
    return bool(n_rows_fit and rows.min() >= 0 and labels.min() >= 0)


def _part(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
