"""The CUDA kernels, run on the processor thread by thread, against the CPU engines."""

from __future__ import annotations

import numpy as np
import pytest

from bhclust._gpu.search import DeviceSearch
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate, assemble
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, Categorical, Gaussian, GaussianProcessExpert, Mixed, Poisson
from tests.gpu.simulated import COMPILER, SimulatedDevice, simulated_device
from tests.zoo import MODELS, MODELS_AND_HOLES, make_case

pytestmark = pytest.mark.skipif(
    COMPILER is None, reason="the kernels are simulated with a C++ compiler, and there is none"
)

METHODS = {
    "BHC-DP": (DirichletProcess(0.6), False),
    "BHC-γ": (Constant(0.3), False),
    "BRT-DP": (DirichletProcess(0.6), True),
    "BRT-γ": (Constant(0.3), True),
    "BRT": (Rose(0.3), True),
}


def assert_same_tree(model, stats, mixing, rose, device=None):
    device = simulated_device() if device is None else device
    log_f = model.log_marginal(stats)
    found = DeviceSearch(device, model, stats, log_f, mixing, rose=rose).run()
    parent, merged_log_f = assemble(len(stats), found.steps)
    reference = agglomerate(model, stats, mixing, rose=rose, engine="numpy")
    np.testing.assert_array_equal(parent, reference.tree.parent)
    expected = reference.tree.log_marginal[len(stats) :]
    np.testing.assert_allclose(merged_log_f, expected, rtol=1e-11, atol=1e-11)
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), MODELS_AND_HOLES)
def test_same_tree_for_every_model(name, missing, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([len(name), len(method), int(100 * missing)])
    for n in (1, 2, 3, 90):
        case = make_case(name, n, rng, missing)
        assert_same_tree(case.model, case.model.suffstats(case.X), mixing, rose)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_same_tree_with_many_duplicates(name, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([7, len(name), len(method)])
    case = make_case(name, 60, rng)
    for rows in (rng.integers(12, size=60), np.repeat(np.arange(30), 2), np.zeros(20, dtype=int)):
        assert_same_tree(case.model, case.model.suffstats(case.X[rows]), mixing, rose)
