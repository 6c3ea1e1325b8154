"""Hyperparameters learned with the statistics on a device: strict arrays against NumPy's own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering
from bhclust._coordinates import Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust._gpu import nodes
from bhclust._gpu.nodes import DeviceNodes, learning_device
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.learn import maximise
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import Bernoulli
from tests.gpu.arrays import DeviceArray
from tests.gpu.learning import assert_same_value_and_gradient
from tests.gpu.simulated import SimulatedDevice
from tests.zoo import ADDITIVE_MODELS, ADDITIVE_MODELS_AND_HOLES, make_case

METHODS = {"BHC": (DirichletProcess(0.6), False), "BRT": (Rose(0.3), True)}


class CountingDevice(SimulatedDevice):
    """A device that notes what is sent to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, ...]] = []

    def put(self, array):
        self.sent.append(np.shape(array))
        return super().put(array)


@pytest.mark.parametrize("n_numbers", [1 << 22, 100])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_value_and_gradient(name, missing, method, n_numbers, monkeypatch):
    monkeypatch.setattr(nodes, "_NUMBERS", n_numbers)  # all nodes at once, or a few at a time
    mixing, rose = METHODS[method]
    assert_same_value_and_gradient(name, missing, mixing, rose, SimulatedDevice())


@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_statistics_are_sent_once(name):
    case = make_case(name, 40, np.random.default_rng(len(name)))
    mixing = DirichletProcess(0.7)
    tree = agglomerate(case.model, case.model.suffstats(case.X), mixing).tree
    device = CountingDevice()
    fixed = FixedTree.of(tree, device)
    assert device.sent == [tree.stats.shape]
    here = evaluate(fixed, case.model, mixing)
    gradient(fixed, case.model, mixing, here)
    # The weights, and which nodes they belong to: one number a node each.
    assert all(len(shape) == 1 and shape[0] <= len(tree.parent) for shape in device.sent[1:])
    assert len(device.sent) == 3


@pytest.mark.parametrize("name", ["bernoulli", "diagonal_gaussian", "time_series"])
def test_same_maximum(name):
    case = make_case(name, 50, np.random.default_rng(3))
    mixing = DirichletProcess(1.0)
    tree = agglomerate(case.model, case.model.suffstats(case.X), mixing).tree
    coordinates = Coordinates(Prior(case.model, mixing))
    ours = maximise(tree, coordinates, device=SimulatedDevice())
    expected = maximise(tree, coordinates)
    assert expected.value > evaluate(FixedTree.of(tree), case.model, mixing).value + 0.1
    assert abs(ours.value - expected.value) < 1e-6
    np.testing.assert_allclose(ours.free, expected.free, atol=1e-3)


def test_fractional_weights_are_learned_on_as_well():
    rng = np.random.default_rng(8)
    case = make_case("categorical", 30, rng)
    weight = rng.uniform(0.3, 4.0, size=30)
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    mixing = DirichletProcess(0.7)
    tree = agglomerate(case.model, stats, mixing, weight=weight).tree
    found, expected = (
        evaluate(FixedTree.of(tree, device), case.model, mixing).value
        for device in (SimulatedDevice(), None)
    )
    assert abs(found - expected) <= 1e-10 * abs(expected)


def test_which_models_are_learned_on_the_device():
    device = SimulatedDevice()
    robust = make_case("robust_time_series", 10, np.random.default_rng(0)).model
    binary = make_case("bernoulli", 10, np.random.default_rng(0)).model

    class Own(Bernoulli):
        """A model of a user's own, whose formulas NumPy has to compute."""

    own = Own(a=1, b=1).resolve(np.eye(3))
    assert learning_device(device, binary, 10) is device
    assert learning_device(device, robust, 10) is None
    assert learning_device(device, own, 10) is None
    assert learning_device("cpu", binary, 10) is None
    assert learning_device("auto", binary, 4999) is None  # too small to be worth while
    with pytest.raises(BhclustError, match="device must be one of"):
        learning_device("gpu", binary, 10)


def test_too_little_memory_is_said_in_bytes():
    stats = np.ones((1000, 4))
    with pytest.raises(
        BhclustError, match=r"learning on a tree of 1,000 nodes needs about 544,000"
    ):
        DeviceNodes(SimulatedDevice(free_bytes=500_000), stats)


def test_estimators_learn_where_they_search(monkeypatch):
    asked: list[object] = []

    def noted(device, model, n_leaves):
        asked.append(device)

    monkeypatch.setattr("bhclust.learn.learning_device", noted)
    X = np.repeat(np.eye(3), 6, axis=0)
    fit = partial(BayesianHierarchicalClustering, model="bernoulli", learn="shared", max_iter=1)
    fit(strategy="best", device="auto").fit(X)
    # Nothing else runs on a device if there is no greedy search, so learning does not either.
    fit(strategy="ward", device="auto").fit(X)
    assert asked == ["auto", "cpu"]


def test_the_arrays_of_the_simulation_are_strict():
    array = DeviceArray(np.arange(3.0))
    for wrong in (
        lambda: array + np.ones(3),
        lambda: np.ones(3) * array,
        lambda: np.log(array),
        lambda: np.asarray(array),
        lambda: array[np.array([0])],
        lambda: list(array),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert (2.0 * array - np.float64(1.0)).inside.tolist() == [-1.0, 1.0, 3.0]
    assert isinstance(array.sum(), DeviceArray)
