"""Bayesian hierarchical clustering: trees with probabilities on them."""

from bhclust.comparison import compare
from bhclust.estimators import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    load,
)
from bhclust.tree import Tree

__version__ = "0.1.0"

__all__ = [
    "BayesianHierarchicalClustering",
    "BayesianRoseTree",
    "CoalescentClustering",
    "Tree",
    "__version__",
    "compare",
    "load",
]
