"""scikit-learn's own checks of the estimators, with default parameters and none excused."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree


@parametrize_with_checks([BayesianHierarchicalClustering(), BayesianRoseTree()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
