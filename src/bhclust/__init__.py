"""Bayesian hierarchical clustering: trees with probabilities on them."""

from bhclust.comparison import compare
from bhclust.estimators import BayesianHierarchicalClustering, BayesianRoseTree, load
from bhclust.tree import Tree

__version__ = "0.1.0"

__all__ = [
    "BayesianHierarchicalClustering",
    "BayesianRoseTree",
    "Tree",
    "__version__",
    "compare",
    "load",
]
