"""Experts by inducing points, against dense normals and against the exact expert."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as distributions

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, load
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import (
    Gaussian,
    GaussianProcessExpert,
    InducingPointExpert,
    check_model,
    named_model,
)
from bhclust.models.spec import model_from_spec, model_spec
from bhclust.regression import conditional
from tests.oracles import processes
from tests.test_models_gp_expert import INPUTS, KERNELS, SETTINGS, table

CURVE = {name: SETTINGS[name] for name in ("length_scale", "amplitude")}


def both(X, kernel="squared_exponential", **settings):
    """The exact expert and the approximation, with the log density of all rows as one cluster."""
    exact = GaussianProcessExpert(kernel, **SETTINGS, **INPUTS).resolve(X)
    near = InducingPointExpert(kernel, **SETTINGS, **INPUTS, **settings).resolve(X)
    return [model.log_marginal(model.union(model.suffstats(X)))[0] for model in (exact, near)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_contract(kernel):
    check_model(InducingPointExpert(kernel, n_inducing=4), table(9, np.random.default_rng(0)))
    if kernel != "periodic":
        X = table(9, np.random.default_rng(1), d=3)
        check_model(InducingPointExpert(kernel, n_inducing=20), X)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_inducing", [1, 4])
def test_log_marginal_is_the_dense_normal_through_the_points(kernel, n_inducing):
    rng = np.random.default_rng(2)
    X = table(10, rng)
    period = 2.5 if kernel == "periodic" else None
    model = InducingPointExpert(
        kernel, **SETTINGS, **INPUTS, output_mean=0.4, period=period, n_inducing=n_inducing
    ).resolve(X)
    assert len(model.inducing) == n_inducing
    stats = model.suffstats(X)
    for size in (1, 3, 10):
        rows = rng.permutation(10)[:size]
        x, y = X[rows, :-1], X[rows, -1]
        covariance = processes.inducing_covariance(
            x, x, model.inducing, kernel, **CURVE, period=period
        )
        covariance += SETTINGS["noise"] ** 2 * np.eye(size)
        expected = distributions.multivariate_normal.logpdf(y, np.full(size, 0.4), covariance)
        inputs = Gaussian(**INPUTS).resolve(X[:, :-1])
        cloud = inputs.suffstats(x)[:1]
        for row in inputs.suffstats(x)[1:]:
            cloud = inputs.merge(cloud, row[None])
        expected += inputs.log_marginal(cloud)[0]
        found = model.log_marginal(model.union(stats[rows]))[0]
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_comes_closer_with_every_point_and_is_exact_with_all(kernel):
    X = table(25, np.random.default_rng(3))
    errors = []
    for n_inducing in (2, 10, 15, 30):
        exact, near = both(X, kernel, n_inducing=n_inducing)
        errors.append(abs(near - exact))
    assert errors[2] < errors[1] < errors[0]
    assert errors[0] > 10
    assert errors[-1] < 1e-6
    exact, near = both(X, kernel, inducing=X[:, :-1], n_inducing=99)
    assert near == pytest.approx(exact, abs=1e-6)


def test_the_output_is_the_dense_conditional():
    X = table(8, np.random.default_rng(4), d=2)
    model = InducingPointExpert(**SETTINGS, output_mean=1.0, n_inducing=5).resolve(X)
    at = np.array([[0.1, 0.3], [2.0, -1.0]])
    settings = (model.inducing, "squared_exponential", *CURVE.values())
    inside = processes.inducing_covariance(X[:, :-1], X[:, :-1], *settings)
    inside += SETTINGS["noise"] ** 2 * np.eye(8)
    across = processes.inducing_covariance(at, X[:, :-1], *settings)
    gain = across @ np.linalg.inv(inside)
    own = processes.inducing_covariance(at, at, *settings)
    found = model.output_given(model.union(model.suffstats(X)), at)
    np.testing.assert_allclose(found.mean[:, 0], 1.0 + gain @ (X[:, -1] - 1.0), rtol=1e-8)
    variance = np.diagonal(own - gain @ across.T) + SETTINGS["noise"] ** 2
    np.testing.assert_allclose(found.standard_deviation[:, 0], np.sqrt(variance), rtol=1e-8)


def test_points_are_spread_and_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(5)
    X = table(60, rng)
    first, second = (
        InducingPointExpert(n_inducing=6, length_scale=0.5).resolve(rows)
        for rows in (X, X[rng.permutation(60)])
    )
    np.testing.assert_array_equal(first.inducing, second.inducing)
    gaps = np.diff(np.sort(first.inducing[:, 0]))
    # Six points at random from sixty would have a pair much closer than that.
    assert gaps.min() > 0.3


def test_length_scale_and_period_stay():
    X = table(12, np.random.default_rng(6))
    model = InducingPointExpert("periodic", n_inducing=5).resolve(X)
    names = [spec.name for spec in model.free()]
    assert names == ["amplitude", "noise", "mean", "strength", "dof", "scale"]
    assert set(model.gradient(model.suffstats(X), np.ones(12))) == set(names)
    with pytest.raises(BhclustError, match="length_scale is part of the statistics"):
        model.with_hyperparameters({"length_scale": 1.0})
    given = InducingPointExpert(length_scale=0.7)
    fitted = BayesianHierarchicalClustering(given, learn="shared").fit(X)
    assert fitted.model_.length_scale == 0.7
    assert fitted.model_.noise != InducingPointExpert(length_scale=0.7).resolve(X).noise


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("mixing", "rose"), [(DirichletProcess(1.0), False), (Rose(0.4), True)])
def test_engines_build_the_same_tree(d, mixing, rose):
    X = table(40, np.random.default_rng(7), d)
    model = InducingPointExpert(n_inducing=8).resolve(X)
    ours, reference = (
        agglomerate(model, model.suffstats(X), mixing, rose=rose, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert ours.info.engine == "compiled"
    np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
    np.testing.assert_allclose(ours.tree.log_marginal, reference.tree.log_marginal, rtol=1e-10)


def test_a_point_far_from_all_inducing_points_is_noise():
    X = np.column_stack([[0.0, 0.1, 1e3, 2e3], [1.0, 2.0, -3.0, 4.0]])
    model = InducingPointExpert(inducing=[[0.0]], length_scale=1.0, noise=0.5).resolve(X)
    ours, reference = (
        agglomerate(model, model.suffstats(X), DirichletProcess(1.0), engine=engine).tree
        for engine in ("compiled", "numpy")
    )
    np.testing.assert_allclose(ours.log_marginal, reference.log_marginal, rtol=1e-10)


def test_a_tree_of_experts_is_that_of_the_exact_ones(tmp_path):
    rng = np.random.default_rng(8)
    x = rng.uniform(0, 6, size=60)
    y = np.sin(x) + 3.0 * (np.arange(60) % 2) + 0.1 * rng.normal(size=60)
    X = np.column_stack([x, y])
    settings = {"length_scale": 1.5, "noise": 0.1, "strength": 50, "dof": 500}
    settings["scale"] = 498 * x.var()
    exact, near = (
        BayesianRoseTree(kind(**settings), gamma=0.02).fit(X)
        for kind in (GaussianProcessExpert, InducingPointExpert)
    )
    np.testing.assert_array_equal(exact.tree_.parent, near.tree_.parent)
    densities = [
        conditional(one.tree_, one.model_, one.mixing_, [[1.0], [4.5]]).log_density([0.5, 3.5])
        for one in (exact, near)
    ]
    np.testing.assert_allclose(densities[0], densities[1], atol=0.02)
    near.save(tmp_path / "fit.npz")
    again = load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.score_samples(X[:5]), near.score_samples(X[:5]))


def test_names_files_and_large_tables():
    X = table(5, np.random.default_rng(9))
    assert isinstance(named_model("inducing_point_expert", owner="test"), InducingPointExpert)
    resolved = InducingPointExpert("matern32", n_inducing=3).resolve(X)
    again = model_from_spec(*model_spec(resolved))
    np.testing.assert_array_equal(
        again.log_marginal(again.suffstats(X)), resolved.log_marginal(resolved.suffstats(X))
    )
    large = InducingPointExpert(n_inducing=3).resolve(np.arange(6000.0).reshape(3000, 2))
    assert large.suffstats(np.ones((2, 2))).shape == (2, 3 + 6 + 3 + 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X: InducingPointExpert(n_inducing=0).resolve(X), "n_inducing must be"),
        (lambda X: InducingPointExpert(inducing=[[1.0, 2.0]]).resolve(X), "with 1 input"),
        (lambda X: InducingPointExpert().suffstats(X), "call resolve"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call(table(5, np.random.default_rng(10)))
