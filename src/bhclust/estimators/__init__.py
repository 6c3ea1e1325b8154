"""The scikit-learn estimators: validate, call, store."""

from bhclust.estimators.agglomerative import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    FeatureContribution,
    load,
)

__all__ = ["BayesianHierarchicalClustering", "BayesianRoseTree", "FeatureContribution", "load"]
