"""scikit-learn's own checks of the coalescent estimator, with default parameters, none excused."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from bhclust.estimators.coalescent import CoalescentClustering


@parametrize_with_checks([CoalescentClustering()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
