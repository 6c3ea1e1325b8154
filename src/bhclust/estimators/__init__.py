"""The scikit-learn estimators: validate, call, store."""

from bhclust.estimators.agglomerative import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    FeatureContribution,
)
from bhclust.estimators.coalescent import CoalescentClustering
from bhclust.estimators.files import load

__all__ = [
    "BayesianHierarchicalClustering",
    "BayesianRoseTree",
    "CoalescentClustering",
    "FeatureContribution",
    "load",
]
