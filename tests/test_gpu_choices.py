"""What ``device`` may be, what runs there, and what is said where nothing can."""

from __future__ import annotations

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, posterior
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess
from bhclust.models import (
    Bernoulli,
    GaussianProcessExpert,
    InducingPointExpert,
    Mixed,
    Poisson,
    RobustTimeSeries,
)
from tests.gpu.simulated import SimulatedDevice
from tests.zoo import make_case

KINDS = (BayesianHierarchicalClustering, BayesianRoseTree)
X = np.repeat(np.eye(4), 5, axis=0)
ROOMS = ("agglomerate", "_gpu.predict", "_gpu.nodes")


class Tempered(Bernoulli):
    """A model of a user's own."""


@pytest.fixture
def no_card_is_asked_for(monkeypatch):
    def asked():
        raise AssertionError("something asked for a graphics processor")

    for room in ROOMS:
        monkeypatch.setattr(f"bhclust.{room}.cuda_device", asked)


@pytest.mark.parametrize("wrong", ["gpu", "cuda:0", "CUDA", "", 3, 0, None, True, ["cuda"]])
def test_another_device_is_refused_by_one_sentence(wrong):
    sentence = r"device must be one of 'cpu', 'cuda', 'auto', got "
    for kind in KINDS:
        with pytest.raises(BhclustError, match=f"^{kind.__name__}: {sentence}"):
            kind(model="bernoulli", device=wrong).fit(X)
    case = make_case("bernoulli", 12, np.random.default_rng(0))
    stats, mixing = case.model.suffstats(case.X), DirichletProcess(1.0)
    tree = agglomerate(case.model, stats, mixing).tree
    with pytest.raises(BhclustError, match=f"^agglomerate: {sentence}"):
        agglomerate(case.model, stats, mixing, device=wrong)
    with pytest.raises(BhclustError, match=f"^prediction: {sentence}"):
        posterior.log_predictive_density(tree, case.model, mixing, case.X, device=wrong)


@pytest.mark.parametrize(
    "model",
    [
        Tempered(),
        GaussianProcessExpert(),
        InducingPointExpert(),
        RobustTimeSeries(),
        Mixed([(Poisson(), [0, 1]), (Tempered(), [2, 3])]),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("strategy", ["greedy", "best"])
def test_models_without_kernels_are_named(model, strategy, no_card_is_asked_for):
    sentence = f"no kernels for the model {type(model).__name__}; use device='cpu', or 'auto'"
    estimator = BayesianHierarchicalClustering(
        model=model, device="cuda", strategy=strategy, learn=False
    )
    with pytest.raises(BhclustError, match=sentence) as caught:
        estimator.fit(X)
    assert "\n" not in str(caught.value)
    assert not hasattr(estimator, "tree_")
    fit = estimator.set_params(device="auto").fit(X)
    assert fit.search_info_.engine in ("numpy", "compiled")
    fit.set_params(device="cuda").score_samples(X[:2])  # prediction takes the processor


def test_weighted_rows_are_refused_and_predicted_for(no_card_is_asked_for):
    weight = np.tile([1.0, 2.5], 10)
    estimator = BayesianHierarchicalClustering(
        model="bernoulli", device="cuda", strategy="greedy", learn=False
    )
    with pytest.raises(BhclustError, match=r"weight 1 only, and the weights go from 1 to 2\.5; "):
        estimator.fit(X, sample_weight=weight)
    estimator.set_params(device="auto").fit(X, sample_weight=weight)
    density = estimator.score_samples(X)
    estimator.set_params(device="cuda")
    np.testing.assert_array_equal(estimator.score_samples(X), density)


@pytest.mark.parametrize("strategy", ["ward", "average", "rounds", "randomised"])
def test_other_strategies_build_and_learn_on_the_processor(strategy, no_card_is_asked_for):
    settings = {"model": "bernoulli", "strategy": strategy, "learn": "shared", "max_iter": 2}
    ours, expected = (
        BayesianHierarchicalClustering(device=device, **settings).fit(X)
        for device in ("cuda", "cpu")
    )
    np.testing.assert_array_equal(ours.tree_.parent, expected.tree_.parent)
    assert ours.search_info_.engine == expected.search_info_.engine
    assert ours.log_evidence_ == expected.log_evidence_


def test_small_tables_stay_on_the_processor(no_card_is_asked_for):
    fit = BayesianHierarchicalClustering(model="bernoulli", device="auto").fit(X)
    assert fit.search_info_.engine == "compiled"
    fit.predict_proba(X)


@pytest.mark.parametrize("n_jobs", [None, 2, -1])
def test_the_number_of_threads_does_not_matter_there(n_jobs):
    case = make_case("bernoulli", 30, np.random.default_rng(0))
    stats, mixing = case.model.suffstats(case.X), DirichletProcess(1.0)
    found = agglomerate(case.model, stats, mixing, n_jobs=n_jobs, device=SimulatedDevice())
    assert found.info.engine == "simulated"
    expected = agglomerate(case.model, stats, mixing).tree
    np.testing.assert_array_equal(found.tree.parent, expected.parent)


def test_a_number_of_threads_is_checked_in_any_case():
    case = make_case("bernoulli", 30, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    for device in ("cpu", SimulatedDevice()):
        with pytest.raises(BhclustError, match="n_jobs must be"):
            agglomerate(case.model, stats, DirichletProcess(1.0), n_jobs=0, device=device)
