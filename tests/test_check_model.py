"""check_model passes good models and names the law that a broken one breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import betaln

from bhclust._validation import BhclustError
from bhclust.models import ClusterModel, DiagonalGaussian, Hyperparameter, Poisson, check_model
from tests.oracles import models as oracle

X = np.random.default_rng(0).poisson([2.0, 7.0], size=(10, 2)).astype(float)


@dataclass(frozen=True, eq=False)
class Geometric(ClusterModel):
    """Failures before the first success, with a beta prior on the probability of success."""

    a: float = 1.0
    b: float = 1.0

    hyperparameters: ClassVar = (Hyperparameter("a", "positive"), Hyperparameter("b", "positive"))

    def suffstats(self, X):
        X = np.asarray(X, dtype=np.float64)
        return np.hstack([np.ones_like(X), X])

    def log_marginal(self, stats):
        successes, failures = np.hsplit(stats, 2)
        terms = betaln(self.a + successes, self.b + failures) - betaln(self.a, self.b)
        return np.ascontiguousarray(terms).sum(axis=1)


def test_a_model_of_ones_own_passes():
    check_model(Geometric(a=2.0, b=0.7), X)
    probability = np.exp(Geometric().log_marginal(Geometric().suffstats(np.arange(1e5)[:, None])))
    assert probability.sum() == pytest.approx(1, abs=1e-4)


def test_the_seed_makes_it_repeatable_and_any_seed_passes():
    for seed in range(5):
        check_model(Poisson(), X, seed=seed)


class WrongShape(Geometric):
    def log_marginal(self, stats):
        return super().log_marginal(stats)[:, None]


class WrongType(Geometric):
    def suffstats(self, X):
        return super().suffstats(X).astype(np.float32)


class NotFinite(Geometric):
    def log_marginal(self, stats):
        return super().log_marginal(stats) + np.nan


class BatchDependent(Geometric):
    def log_marginal(self, stats):
        return super().log_marginal(stats) + 1e-12 * len(stats)


class NotCommutative(Geometric):
    def merge(self, a, b):
        return a + b + 1e-9 * (a - b)


class NotAssociative(Geometric):
    def merge(self, a, b):
        return (a + b) * 1.0001


class OrderMatters(Geometric):
    def merge(self, a, b):
        # Only clusters beyond nine items show it, so the laws of merging hold for small ones.
        large = (a + b)[:, :1] > 9
        return a + b + 0.01 * large * np.abs(a - b)


class WrongPredictive(Geometric):
    def log_predictive(self, stats, X):
        return super().log_predictive(stats, X) + 1e-6


class WrongPredictiveBatch(Geometric):
    def log_predictive(self, stats, X):
        return super().log_predictive(stats, X) + (len(stats) > 1) * 1e-3


class WrongRepeat(DiagonalGaussian):
    def repeat(self, stats, weight):
        return stats * weight[:, None]


class WrongContributions(Poisson):
    def feature_contributions(self, stats_a, stats_b):
        return super().feature_contributions(stats_a, stats_b)[:, :1]


class WrongGradient(Poisson):
    def gradient(self, stats, weights):
        gradient = super().gradient(stats, weights)
        return {**gradient, "rate": 1.001 * gradient["rate"]}


class MissingName(Poisson):
    def gradient(self, stats, weights):
        return {"shape": super().gradient(stats, weights)["shape"]}


class MissingCounts(Poisson):
    def suffstats(self, X):
        # A hole taken for a zero.
        return super().suffstats(np.nan_to_num(np.asarray(X, dtype=float)))


class MissingPredictive(Poisson):
    def log_predictive(self, stats, X):
        return super().log_predictive(stats, np.nan_to_num(np.asarray(X, dtype=float)))


class IgnoresWeight(Poisson):
    def resolve(self, X, weight=None):
        return super().resolve(X)


class KnowsNoWeight(Poisson):
    def resolve(self, X):
        return super().resolve(X)


@pytest.mark.parametrize(
    ("model", "law"),
    [
        (WrongShape(), "'statistics': log_marginal must return shape"),
        (WrongType(), "'statistics': suffstats must return a float64"),
        (NotFinite(), "'statistics': .*finite"),
        (BatchDependent(), "'batch = loop': log_marginal.* differ by"),
        (NotCommutative(), "'merge is commutative': .* differ by"),
        (NotAssociative(), "'merge is associative': .* differ by"),
        (OrderMatters(), "'exchangeability': log f of two orders differ by"),
        (WrongPredictive(), "'chain rule': .* differ by 1e-06"),
        (WrongPredictiveBatch(), "'chain rule': .*batch"),
        (WrongRepeat(), "'repeat = merging copies': 2 copies differ by"),
        (WrongContributions(), "'feature_contributions add up': .* differ by"),
        (WrongGradient(), "'gradient': .*rate"),
        (MissingName(), "'gradient': it must have the names"),
        (MissingCounts(), "'missing entries add nothing': log f of a missing row"),
        (MissingPredictive(), "'missing entries add nothing': log_predictive"),
        (IgnoresWeight(), "'weight = copies': log f under the defaults"),
        (KnowsNoWeight(), r"method `resolve\(X, weight=None\)`"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ClusterModel) else "",
)
def test_broken_laws_are_named(model, law):
    with pytest.raises(BhclustError, match=law):
        check_model(model, X)


def test_too_few_rows():
    with pytest.raises(BhclustError, match="at least 3 rows"):
        check_model(Poisson(), X[:2])


def test_numerical_gradient_of_ones_own_model():
    model = Geometric(a=2.0, b=0.7)
    stats = model.suffstats(X)
    weights = np.linspace(-1, 2, len(X))
    gradient = model.gradient(stats, weights)
    for spec in model.free():
        expected = oracle.difference_gradient(model, spec, stats, weights)
        assert gradient[spec.name] == pytest.approx(expected, rel=1e-8)
