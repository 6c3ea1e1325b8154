"""The CUDA kernels, run on the processor thread by thread, against the CPU engines."""

from __future__ import annotations

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, posterior
from bhclust._gpu import search as search_module
from bhclust._gpu.encode import Rows
from bhclust._gpu.products import products_of
from bhclust._gpu.search import DeviceSearch
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate, assemble
from bhclust.frontier import Frontier, odds_scores, ratio_scores
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, Categorical, DiagonalGaussian, Mixed, Poisson
from tests.gpu.simulated import COMPILER, SimulatedDevice, simulated_device
from tests.zoo import ADDITIVE_MODELS, ADDITIVE_MODELS_AND_HOLES, make_case

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
    found = DeviceSearch(device, model, stats, mixing, rose=rose).run()
    np.testing.assert_allclose(found.leaf_log_f, model.log_marginal(stats), rtol=1e-11, atol=1e-11)
    parent, merged_log_f = assemble(len(stats), found.steps)
    reference = agglomerate(model, stats, mixing, rose=rose, engine="numpy")
    np.testing.assert_array_equal(parent, reference.tree.parent)
    expected = reference.tree.log_marginal[len(stats) :]
    np.testing.assert_allclose(merged_log_f, expected, rtol=1e-11, atol=1e-11)
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_tree_for_every_model(name, missing, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([len(name), len(method), int(100 * missing)])
    for n in (1, 2, 3, 90):
        case = make_case(name, n, rng, missing)
        assert_same_tree(case.model, case.model.suffstats(case.X), mixing, rose)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_tree_when_live_clusters_are_moved_together(name, missing, method, monkeypatch):
    moves = []
    move = DeviceSearch._move_together

    def counted(self, control):
        moves.append(control[:4].tolist())
        move(self, control)
        positions, living = self._device.get(self._control)[:4].reshape(2, 2)
        np.testing.assert_array_equal(positions, living)

    monkeypatch.setattr(search_module, "_LEAST_DEAD", 3)
    monkeypatch.setattr(DeviceSearch, "_move_together", counted)
    mixing, rose = METHODS[method]
    case = make_case(name, 70, np.random.default_rng([11, len(name), len(method)]), missing)
    assert_same_tree(case.model, case.model.suffstats(case.X), mixing, rose)
    assert len(moves) > 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_same_tree_with_many_duplicates(name, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([7, len(name), len(method)])
    case = make_case(name, 60, rng)
    for rows in (rng.integers(12, size=60), np.repeat(np.arange(30), 2), np.zeros(20, dtype=int)):
        assert_same_tree(case.model, case.model.suffstats(case.X[rows]), mixing, rose)


@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_same_predictive_density(name, missing):
    rng = np.random.default_rng([3, len(name)])
    case = make_case(name, 60, rng, missing)
    fitted, new = case.X[:40], np.array(case.X[40:])
    if name not in ("gaussian", "multinomial"):
        new[0, :2] = np.nan  # a hole where the fitted rows may have none
    mixing = DirichletProcess(0.7)
    stats = case.model.suffstats(fitted)
    tree = agglomerate(case.model, stats, mixing).tree
    device = simulated_device()
    whole = make_case(name, 20, rng).X  # no holes where the fitted rows have some
    for rows in (new, new[1:], whole):
        expected = posterior.log_predictive_density(tree, case.model, mixing, rows)
        found = posterior.log_predictive_density(tree, case.model, mixing, rows, device=device)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    labels = posterior.cut(tree)
    expected = posterior.cluster_probabilities(tree, case.model, mixing, new, labels)
    found = posterior.cluster_probabilities(tree, case.model, mixing, new, labels, device=device)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_memory_that_does_not_fit_into_a_block_is_kept_elsewhere():
    rng = np.random.default_rng(0)
    small = SimulatedDevice(shared_bytes=search_module._BOARD_BYTES + 800)
    for name, missing in (("bernoulli", 0.25), ("gaussian", 0.0), ("time_series", 0.25)):
        case = make_case(name, 40, rng, missing)
        stats = case.model.suffstats(case.X)
        assert_same_tree(case.model, stats, DirichletProcess(0.6), False, device=small)


def test_wide_tables_of_many_values():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, [300, 2, 40], size=(60, 3)).astype(float)
    wide = (rng.random((50, 300)) < 0.3).astype(float)
    rare = (np.arange(900) % 60 == np.arange(60)[:, None]).astype(float)
    rare[:, :20] += rng.poisson(2, size=(60, 20))
    for model, X in ((Categorical(), codes), (Bernoulli(), wide), (Poisson(), rare)):
        resolved = model.resolve(X)
        assert_same_tree(resolved, resolved.suffstats(X), DirichletProcess(1.0), False)


def test_counts_beyond_every_table():
    rng = np.random.default_rng(2)
    counts = rng.poisson([3, 700, 5000], size=(50, 3)).astype(float)
    model = Poisson().resolve(counts)
    assert_same_tree(model, model.suffstats(counts), DirichletProcess(1.0), False)


def test_values_whose_rates_overflow_a_product():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 20))
    X[0] = 1e12
    X[1] = -1e12
    model = DiagonalGaussian(mean=0, strength=1, shape=2, rate=1e-3, origin=0).resolve(X)
    assert_same_tree(model, model.suffstats(X), DirichletProcess(1.0), False)


def test_gains_beyond_the_exponential():
    # A ratio of e^1000 is still compared with better ones, though its exponential is infinite.
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 700)) + 12 * rng.integers(0, 2, size=(40, 1))
    model = DiagonalGaussian().resolve(X)
    for method in ("BRT-γ", "BRT", "BRT-DP"):
        assert_same_tree(model, model.suffstats(X), *METHODS[method])


def test_shapes_of_their_own_for_each_column():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 5))
    model = DiagonalGaussian(shape=[2.0, 1.0, 2.0, 3.5, 1.0]).resolve(X)
    assert_same_tree(model, model.suffstats(X), DirichletProcess(1.0), False)


def test_estimators_pass_the_device_on(monkeypatch):
    for room in ("agglomerate", "_gpu.predict", "_gpu.nodes"):
        monkeypatch.setattr(f"bhclust.{room}.cuda_device", simulated_device)
    rng = np.random.default_rng(6)
    X = (rng.random((40, 5)) < rng.choice([0.1, 0.9], size=(2, 5))[rng.integers(2, size=40)]) * 1.0
    for kind in (BayesianHierarchicalClustering, BayesianRoseTree):
        on_device = kind(model=Bernoulli(), device="cuda", strategy="greedy", learn="shared").fit(X)
        on_processor = kind(model=Bernoulli(), strategy="greedy", learn="shared").fit(X)
        assert on_device.search_info_.engine == "simulated"
        np.testing.assert_array_equal(on_device.tree_.parent, on_processor.tree_.parent)
        np.testing.assert_allclose(on_device.log_evidence_, on_processor.log_evidence_, rtol=1e-9)
        np.testing.assert_allclose(on_device.score_samples(X), on_processor.score_samples(X))
        np.testing.assert_array_equal(on_device.predict(X), on_processor.predict(X))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bernoulli", "poisson", "gaussian"])
def test_first_pairs_leave_the_second_best_score_as_a_bound(name, method, monkeypatch):
    monkeypatch.setattr(DeviceSearch, "_merge_all", lambda *arguments: None)
    mixing, rose = METHODS[method]
    case = make_case(name, 90, np.random.default_rng([13, len(name)]))
    n, stats, device = 90, case.model.suffstats(case.X), simulated_device()
    search = DeviceSearch(device, case.model, stats, mixing, rose=rose)
    search.run()
    frontier = Frontier(case.model.log_marginal(stats), np.ones(n), mixing)
    expected = np.full((n, 2), -np.inf)
    for i in range(n - 1):
        others = np.arange(i + 1, n)
        log_f = case.model.log_marginal(case.model.merge(stats[i : i + 1], stats[others]))
        scores = (ratio_scores if rose else odds_scores)(frontier, i, others, log_f).score
        top = np.sort(scores)[::-1][:2]
        expected[i, : len(top)] = top
    for column, field in enumerate(("score", "rest_score")):
        found = device.get(search._leaves[field])
        np.testing.assert_allclose(found, expected[:, column], rtol=0, atol=2.0**-29)


def discrete_cases(n=500):
    """Return tables of 0/1, of categories, with holes, and of both kinds, in two large groups."""
    rng = np.random.default_rng(3)
    label = rng.integers(2, size=n)
    rate = np.array([0.15, 0.8])[(label[:, None] + np.arange(20)) % 2]
    binary = (rng.random((n, 20)) < rate) * 1.0
    words = rng.integers(0, 4, size=(n, 6)) * 1.0
    codes = np.where(rng.random((n, 6)) < 0.75, label[:, None] + 1.0, words)
    holes = np.where(rng.random((n, 6)) < 0.1, np.nan, codes)
    mixed = Mixed([(Bernoulli(), list(range(20))), (Categorical(), list(range(20, 26)))])
    return {
        "binary": (Bernoulli(), binary),
        "unequal prior": (Bernoulli(a=np.linspace(0.2, 3, 20), b=0.7), binary),
        "categories": (Categorical(), codes),
        "holes": (Categorical(), holes),
        "0/1 with holes": (Bernoulli(), np.where(rng.random((n, 20)) < 0.1, np.nan, binary)),
        "mixed": (mixed, np.hstack([binary, holes])),
    }


def wide_device(n_blocks=8, n_threads=64):
    """Return a device whose blocks tell a list of leaves that is worth a run."""
    device = SimulatedDevice()
    device.n_blocks, device.n_threads = n_blocks, n_threads
    return device


@pytest.mark.parametrize("method", ["BHC-DP", "BHC-γ"])
@pytest.mark.parametrize("case", discrete_cases(5))
def test_runs_save_passes_and_change_nothing(case, method):
    model, X = discrete_cases()[case]
    resolved = model.resolve(X)
    found = assert_same_tree(resolved, resolved.suffstats(X), *METHODS[method], wide_device())
    assert found.n_passes < 0.9 * (len(X) - 1)
    # Each pass is counted once, with all that live then.
    assert found.n_pairs < len(X) * (len(X) - 1)


def test_lists_longer_than_a_block_has_threads():
    model, X = discrete_cases()["binary"]
    resolved = model.resolve(X)
    stats = resolved.suffstats(X)
    assert_same_tree(resolved, stats, DirichletProcess(0.6), False, wide_device(64, 16))


def test_runs_of_duplicates_and_ties():
    rng = np.random.default_rng(5)
    distinct = (rng.random((12, 9)) < 0.4) * 1.0
    for rows in (rng.integers(12, size=300), np.repeat(np.arange(12), 25), np.zeros(90, dtype=int)):
        model = Bernoulli().resolve(distinct[rows])
        stats = model.suffstats(distinct[rows])
        assert_same_tree(model, stats, DirichletProcess(0.6), False, wide_device())


def test_what_a_leaf_gains_from_another_is_bounded_by_the_levels_that_rise():
    # The bound of a run, for all leaves that there can be, from the densities themselves.
    rng = np.random.default_rng(9)
    X = (rng.random((30, 5)) < 0.7) * 1.0
    model = Bernoulli(a=0.3, b=1.1).resolve(X)
    every = np.array(np.meshgrid(*[[0.0, 1.0, np.nan]] * 5)).reshape(5, -1).T
    cluster = model.suffstats(X).sum(axis=0, keepdims=True)
    for x in every[::17]:
        grown = cluster + model.suffstats(x[None])
        gains = model.log_predictive(grown, every) - model.log_predictive(cluster, every)
        rise = 0.0
        for j in np.flatnonzero(~np.isnan(x)):
            one = np.full((2, 5), np.nan)
            one[:, j] = [0.0, 1.0]
            change = model.log_predictive(grown, one) - model.log_predictive(cluster, one)
            rise += np.maximum(change, 0.0).sum()
        np.testing.assert_allclose(gains.max(), rise, atol=1e-12)


@pytest.mark.parametrize("case", discrete_cases(5))
def test_gains_of_leaves_are_inner_products(case):
    model, X = discrete_cases(40)[case]
    resolved = model.resolve(X)
    stats = resolved.suffstats(X)
    device = simulated_device()
    parts = search_module.parts_of(resolved, Rows(device, stats, None, 24, 40))
    products = products_of(device.arrays, 40, [part.inner for part in parts])
    left, right, linear = (device.get(array) for array in products)
    log_f = resolved.log_marginal(stats)
    for i in range(40):
        both = resolved.log_marginal(resolved.merge(stats[i : i + 1], stats))
        gain = left[i] @ right.T + linear[i] + linear
        np.testing.assert_allclose(gain, both - log_f[i] - log_f, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", ["binary", "holes"])
def test_first_pairs_by_tiles_of_products_and_one_by_one(case, method, monkeypatch):
    model, X = discrete_cases(90)[case]
    resolved, n = model.resolve(X), 90
    stats = resolved.suffstats(X)
    found = []
    monkeypatch.setattr(DeviceSearch, "_merge_all", lambda *arguments: None)
    monkeypatch.setattr(search_module, "_TILE_ROWS", 16)
    monkeypatch.setattr(search_module, "_TILE_COLUMNS", 24)
    mixing, rose = METHODS[method]
    for pays in (True, False):
        monkeypatch.setattr(search_module, "pay", lambda inners, pays=pays: pays)
        search = DeviceSearch(simulated_device(), resolved, stats, mixing, rose=rose)
        search.run()
        fields = ["partner", "score", "rest_score"]
        fields += ["tiebreak", "needed", "rest_tiebreak"] if rose else []
        found.append([search._device.get(search._leaves[field]) for field in fields])
    assert (found[0][0][: n - 1] >= 0).all()
    np.testing.assert_array_equal(found[0][0], found[1][0])
    for tiles, single in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(tiles, single, rtol=1e-9, atol=2.0**-29)


@pytest.mark.parametrize(("method", "most"), [("BHC-DP", 10), ("BRT", 60)])
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_few_clusters_look_again(name, method, most):
    # What bounds a cluster that lost its partner is its second best score. Bounded by the score of
    # the lost partner itself, 38 to 253 of these clusters look again, in rose trees 100 to 906.
    case = make_case(name, 300, np.random.default_rng([11, len(name)]))
    found = assert_same_tree(case.model, case.model.suffstats(case.X), *METHODS[method])
    assert found.n_rescans < most


@pytest.mark.parametrize("method", ["BHC-DP", "BRT"])
def test_progress_is_told(method, monkeypatch):
    monkeypatch.setattr("bhclust._gpu.search._STEPS", 3)
    mixing, rose = METHODS[method]
    case = make_case("bernoulli", 30, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    told = []
    tree, info = agglomerate(
        case.model,
        stats,
        mixing,
        rose=rose,
        device=simulated_device(),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (29, 29)
    assert told == sorted(told)
    assert len(told) > 3
    reference = agglomerate(case.model, stats, mixing, rose=rose)
    np.testing.assert_array_equal(tree.parent, reference.tree.parent)
    assert info.n_pairs >= 30 * 29 // 2


def test_what_the_device_does_not_serve():
    case = make_case("bernoulli", 12, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    weight = np.full(12, 2.0)
    for one in ("cuda", simulated_device()):
        with pytest.raises(BhclustError, match=r"rows of weight 1 only.* from 2 to 2; use device"):
            agglomerate(case.model, stats, DirichletProcess(1.0), weight=weight, device=one)
    device = SimulatedDevice(free_bytes=1000)
    with pytest.raises(BhclustError, match=r"a tree of 12 rows needs about [0-9,]+ bytes"):
        agglomerate(case.model, stats, DirichletProcess(1.0), device=device)
