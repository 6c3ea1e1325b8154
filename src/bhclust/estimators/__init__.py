"""The scikit-learn estimators: validate, call, store."""

from bhclust.estimators.agglomerative import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust.estimators.coalescent import CoalescentClustering
from bhclust.estimators.files import load
from bhclust.explanations import FeatureContribution

__all__ = [
    "BayesianHierarchicalClustering",
    "BayesianRoseTree",
    "CoalescentClustering",
    "FeatureContribution",
    "load",
]
