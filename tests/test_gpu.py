"""The graphics processor against the CPU engine, where there is one."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering, posterior
from bhclust._gpu import device as device_module
from bhclust._gpu.device import CudaDevice, cuda_device, has_cuda
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import Bernoulli
from tests.gpu.learning import assert_same_value_and_gradient
from tests.zoo import ADDITIVE_MODELS, ADDITIVE_MODELS_AND_HOLES, make_case

with warnings.catch_warnings():
    # What CuPy has to say about its own installation is not what is tested here.
    warnings.simplefilter("ignore")
    HAS_CARD = has_cuda()

needs_card = pytest.mark.skipif(
    not HAS_CARD, reason="needs a graphics processor with a driver, and CuPy"
)
METHODS = {"BHC": (DirichletProcess(0.6), False), "BRT": (Rose(0.3), True)}


@needs_card
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_tree_as_on_the_processor(name, missing, method):
    mixing, rose = METHODS[method]
    for n in (2, 50, 2000):
        case = make_case(name, n, np.random.default_rng([n, len(name)]), missing)
        stats = case.model.suffstats(case.X)
        ours = agglomerate(case.model, stats, mixing, rose=rose, device="cuda")
        reference = agglomerate(case.model, stats, mixing, rose=rose)
        assert ours.info.engine == "cuda"
        np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
        np.testing.assert_allclose(
            ours.tree.log_odds, reference.tree.log_odds, rtol=1e-9, atol=1e-9
        )


@needs_card
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_same_densities_as_on_the_processor(name):
    case = make_case(name, 600, np.random.default_rng(len(name)))
    mixing = DirichletProcess(0.7)
    tree = agglomerate(case.model, case.model.suffstats(case.X[:300]), mixing).tree
    new = case.X[300:]
    ours = posterior.log_predictive_density(tree, case.model, mixing, new, device="cuda")
    expected = posterior.log_predictive_density(tree, case.model, mixing, new)
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-10)


@needs_card
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_evidence_and_gradient_as_on_the_processor(name, missing, method):
    mixing, rose = METHODS[method]
    assert_same_value_and_gradient(name, missing, mixing, rose, cuda_device(), n=2000)


@needs_card
def test_estimators_learn_and_predict_on_the_card():
    case = make_case("bernoulli", 400, np.random.default_rng(1))
    fits = [
        BayesianHierarchicalClustering(
            model=Bernoulli(), strategy="greedy", learn="shared", device=device
        ).fit(case.X)
        for device in ("cuda", "cpu")
    ]
    ours, reference = fits
    assert ours.search_info_.engine == "cuda"
    np.testing.assert_allclose(ours.log_evidence_, reference.log_evidence_, rtol=1e-7)
    new = make_case("bernoulli", 50, np.random.default_rng(2)).X
    on_card = ours.predict_proba(new), ours.score_samples(new)
    ours.device = "cpu"
    for found, expected in zip(
        on_card, (ours.predict_proba(new), ours.score_samples(new)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@needs_card
def test_too_little_memory_is_said_in_bytes(monkeypatch):
    runtime = cuda_device().arrays.cuda.runtime
    monkeypatch.setattr(runtime, "memGetInfo", lambda: (1000, 2000))
    case = make_case("bernoulli", 20, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    with pytest.raises(BhclustError, match=r"needs about [0-9,]+ bytes.*1,000 of its 2,000"):
        agglomerate(case.model, stats, DirichletProcess(1.0), device="cuda")


def test_without_cupy_the_extra_is_named(monkeypatch):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "cupy":
                raise ModuleNotFoundError(name)

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    cuda_device.cache_clear()
    X = np.array([[0, 1], [0, 1], [1, 0]])
    with pytest.raises(ImportError, match=r"device='cuda' needs cupy.*bhclust\[gpu\]"):
        BayesianHierarchicalClustering(model=Bernoulli(), device="cuda").fit(X)
    assert not has_cuda()
    # "auto" takes the processor then.
    fit = BayesianHierarchicalClustering(model=Bernoulli(), device="auto").fit(X)
    assert fit.search_info_.engine == "compiled"
    cuda_device.cache_clear()


class _Runtime:
    def __init__(self, n_devices):
        self._n_devices = n_devices

    def getDeviceCount(self):
        if self._n_devices is None:
            raise RuntimeError("CUDA driver version is insufficient")
        return self._n_devices


class _Cupy:
    def __init__(self, n_devices, **attributes):
        self.cuda = self
        self.runtime = _Runtime(n_devices)
        self.attributes = attributes

    def Device(self):
        return self


@pytest.mark.parametrize(
    ("n_devices", "sentence"),
    [
        (None, r"no working CUDA driver \(CUDA driver version is insufficient\)"),
        (0, "no graphics processor on this machine; use device='cpu'"),
    ],
)
def test_no_driver_and_no_card_are_told_apart(monkeypatch, n_devices, sentence):
    monkeypatch.setattr(device_module, "optional_import", lambda *a, **k: _Cupy(n_devices))
    with pytest.raises(BhclustError, match=sentence):
        CudaDevice()


def test_a_card_that_is_too_old_is_told(monkeypatch):
    old = _Cupy(1, CooperativeLaunch=0)
    monkeypatch.setattr(device_module, "optional_import", lambda *a, **k: old)
    with pytest.raises(BhclustError, match=r"blocks can wait for each other .*use device='cpu'"):
        CudaDevice()
