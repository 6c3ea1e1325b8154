"""Gaussian-process experts, against dense multivariate normals and the model of their inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy import stats as distributions

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, load
from bhclust._kernels.experts import ExpertPart
from bhclust._kernels.part import Member
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import Gaussian, GaussianProcessExpert, check_model, named_model
from bhclust.models.spec import model_from_spec, model_spec
from bhclust.regression import conditional
from tests.oracles import processes

KERNELS = ("squared_exponential", "matern12", "matern32", "matern52", "periodic")
SETTINGS = {"length_scale": 0.9, "amplitude": 1.3, "noise": 0.3}
INPUTS = {"mean": 0.2, "strength": 0.7, "dof": 4.0, "scale": 1.4}


def table(n, rng, d=1):
    """Points on two curves, one of them twice."""
    x = rng.normal(size=(n, d))
    y = np.sin(2 * x.sum(axis=1)) + 2.0 * (np.arange(n) % 2) + 0.2 * rng.normal(size=n)
    X = np.column_stack([x, y])
    X[1] = X[0]
    return X


def dense(X, kernel, output_mean, period=None):
    """Log density of the inputs times that of the outputs, each by another route."""
    inputs = Gaussian(**INPUTS).resolve(X[:, :-1])
    log_inputs = 0.0
    stats = inputs.suffstats(X[:, :-1])
    for i in range(len(X)):  # one Student t after the other
        before = inputs.repeat(stats[:1], np.zeros(1))
        for row in stats[:i]:
            before = inputs.merge(before, row[None])
        log_inputs += inputs.log_predictive(before, X[i : i + 1, :-1])[0, 0]
    distance = np.linalg.norm(X[:, None, :-1] - X[None, :, :-1], axis=2)
    covariance = np.vectorize(
        lambda r: processes.kernel(kernel, 0.0, r, SETTINGS["length_scale"], period)
    )(distance)
    covariance = SETTINGS["amplitude"] ** 2 * covariance + SETTINGS["noise"] ** 2 * np.eye(len(X))
    centre = np.full(len(X), output_mean)
    return log_inputs + distributions.multivariate_normal.logpdf(X[:, -1], centre, covariance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_contract(kernel):
    X = table(9, np.random.default_rng(0))
    check_model(GaussianProcessExpert(kernel), X)
    if kernel != "periodic":
        check_model(GaussianProcessExpert(kernel), table(9, np.random.default_rng(1), d=3))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_log_marginal_is_dense(kernel, size):
    rng = np.random.default_rng(2)
    X = table(8, rng)
    period = 2.5 if kernel == "periodic" else None
    model = GaussianProcessExpert(kernel, **SETTINGS, **INPUTS, output_mean=0.4, period=period)
    model = model.resolve(X)
    rows = rng.permutation(8)[:size]
    found = model.log_marginal(model.union(model.suffstats(X[rows])))[0]
    assert found == pytest.approx(dense(X[rows], kernel, 0.4, period), rel=1e-9, abs=1e-9)


def test_several_inputs_are_dense():
    X = table(8, np.random.default_rng(3), d=2)
    model = GaussianProcessExpert("matern32", **SETTINGS, **INPUTS, output_mean=1.0).resolve(X)
    found = model.log_marginal(model.union(model.suffstats(X)))[0]
    assert found == pytest.approx(dense(X, "matern32", 1.0), rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_is_the_slope(kernel):
    rng = np.random.default_rng(4)
    X = table(8, rng)
    model = GaussianProcessExpert(kernel, **SETTINGS, **INPUTS).resolve(X)
    items = model.suffstats(X)
    stats = np.vstack([items, model.merge(items, items[::-1]), model.union(items)])
    weights = rng.normal(size=len(stats))
    gradient = model.gradient(stats, weights)
    assert ("period" in gradient) == (kernel == "periodic")
    for spec in model.free():
        centre = model.hyperparameter(spec.name)
        slopes = []
        for step in (1e-3, 5e-4):
            up, down = (
                model.with_hyperparameters({spec.name: centre * (1 + s)}).log_marginal(stats)
                for s in (step, -step)
            )
            slopes.append(float(weights @ (up - down)) / (2 * step))
        expected = (4 * slopes[1] - slopes[0]) / 3
        found = float(np.sum(gradient[spec.name] * centre))
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_density_of_a_new_point_integrates_to_one():
    X = table(6, np.random.default_rng(5))
    model = GaussianProcessExpert(**SETTINGS, **INPUTS).resolve(X)
    cluster = model.union(model.suffstats(X))

    def of_input(x):
        grid = np.linspace(-6, 8, 141)
        points = np.column_stack([np.full(141, x), grid])
        return float(np.exp(model.log_predictive(cluster, points)).sum() * (grid[1] - grid[0]))

    total, _ = integrate.quad(of_input, -np.inf, np.inf, epsabs=1e-8)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_draws_follow_the_predictive():
    rng = np.random.default_rng(6)
    X = table(12, rng)
    model = GaussianProcessExpert(**SETTINGS).resolve(X)
    cluster = model.union(model.suffstats(X))
    draws = model.sample(cluster, 20_000, rng)
    mean, deviation = model.output_given(cluster, draws[:, :1])
    standard = (draws[:, 1] - mean[:, 0]) / deviation[:, 0]
    assert standard.mean() == pytest.approx(0.0, abs=0.03)
    assert standard.std() == pytest.approx(1.0, abs=0.03)
    # Half of all draws are below the median of the Student t of the inputs.
    centre = model.summary(cluster)["mean"][0, 0]
    assert (draws[:, 0] < centre).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_estimators_tell_two_lines_apart(kind, tmp_path):
    rng = np.random.default_rng(7)
    x = rng.uniform(0, 1, size=24)
    y = np.where(np.arange(24) % 2, 5.0 + x, -5.0 - x) + 0.05 * rng.normal(size=24)
    X = np.column_stack([x, y])
    model = GaussianProcessExpert(dof=30.0, scale=28 * x.var(), strength=10.0)
    fitted = kind(model, n_clusters=2).fit(X)
    assert len(set(fitted.labels_[::2])) == 1
    assert len(set(fitted.labels_[1::2])) == 1
    new = np.array([[0.5, 5.5], [0.5, -5.5]])
    assert fitted.predict(new).tolist() == [fitted.labels_[1], fitted.labels_[0]]
    assert np.isfinite(fitted.score_samples(new)).all()
    fitted.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(load(tmp_path / "fit.npz").predict(new), fitted.predict(new))


def test_names_and_files():
    X = table(5, np.random.default_rng(8))
    assert isinstance(named_model("gaussian_process_expert", owner="test"), GaussianProcessExpert)
    resolved = GaussianProcessExpert("periodic").resolve(X)
    again = model_from_spec(*model_spec(resolved))
    np.testing.assert_array_equal(
        again.log_marginal(again.suffstats(X)), resolved.log_marginal(resolved.suffstats(X))
    )


def test_a_cluster_has_room_for_the_points_of_the_table():
    rng = np.random.default_rng(9)
    X = table(6, rng)
    model = GaussianProcessExpert().resolve(X)
    assert model.capacity == 6  # five distinct rows and one more
    everything = model.union(model.suffstats(X))
    one_more = model.merge(everything, model.suffstats(rng.normal(size=(1, 2))))
    with pytest.raises(BhclustError, match="clusters of 6 distinct points"):
        model.merge(one_more, model.suffstats(rng.normal(size=(1, 2))))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X: GaussianProcessExpert("linear").resolve(X), "kernel must be one of"),
        (lambda X: GaussianProcessExpert(noise=-1.0).resolve(X), "noise must be a positive"),
        (lambda X: GaussianProcessExpert(period=1.0).resolve(X), "period belongs to"),
        (lambda X: GaussianProcessExpert().resolve(X[:, :1]), "at least one input"),
        (lambda X: GaussianProcessExpert().suffstats(X), "call resolve"),
        (lambda X: GaussianProcessExpert().resolve(X * np.nan), "cannot use missing values"),
        (
            lambda X: GaussianProcessExpert("periodic").resolve(np.column_stack([X, X])),
            "takes one input",
        ),
        (
            lambda X: GaussianProcessExpert().resolve(np.arange(6000.0).reshape(3000, 2)),
            "at most 2000 distinct rows, got 3000",
        ),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call(table(5, np.random.default_rng(10)))


def test_the_conditional_density_is_joint_over_marginal():
    """p(y | x) = p(x, y) / ∫ p(x, y) dy, with the predictive density of the estimator."""
    rng = np.random.default_rng(11)
    X = table(14, rng)
    fitted = BayesianRoseTree(GaussianProcessExpert(**SETTINGS)).fit(X)
    grid = np.linspace(-12, 14, 2601)
    for x in (-1.0, 0.3):
        at = conditional(fitted.tree_, fitted.model_, fitted.mixing_, [[x]])
        joint = np.exp(fitted.score_samples(np.column_stack([np.full(2601, x), grid])))
        expected = joint / (joint.sum() * 0.01)
        density = np.exp(at.log_density(grid))[0]
        np.testing.assert_allclose(density, expected, rtol=1e-7, atol=1e-12)
        assert at.expectation()[0] == pytest.approx((grid * expected).sum() * 0.01, rel=1e-7)
        for probability in (0.05, 0.5, 0.9):
            below = expected[grid <= at.quantile(probability)[0]].sum() * 0.01
            assert below == pytest.approx(probability, abs=0.01)


def test_the_conditional_density_needs_statistics():
    X = table(6, np.random.default_rng(12))
    fitted = BayesianRoseTree(GaussianProcessExpert()).fit(X)
    bare = replace(fitted.tree_, stats=None)
    with pytest.raises(BhclustError, match="no statistics"):
        conditional(bare, fitted.model_, fitted.mixing_, [[0.0]])
    at = conditional(fitted.tree_, fitted.model_, fitted.mixing_, [[0.0]])
    with pytest.raises(BhclustError, match="strictly between 0 and 1"):
        at.quantile(1.0)


def test_extended_factors_are_those_of_the_union():
    """Merging, one after the other and in blocks, against log f of the points from scratch."""
    X = table(20, np.random.default_rng(13))
    model = GaussianProcessExpert(**SETTINGS).resolve(X)
    stats = model.suffstats(X)
    part = ExpertPart(model, stats, 8)
    steps = [
        (Member(True, 0), Member(True, 1), 0, [0, 1]),
        (Member(False, 0), Member(True, 2), 1, [0, 1, 2]),
        (Member(True, 3), Member(True, 4), 2, [3, 4]),
        (Member(False, 1), Member(False, 2), 3, [0, 1, 2, 3, 4]),
        (Member(True, 5), Member(False, 3), 4, [5, 0, 1, 2, 3, 4]),
        (Member(True, 6), Member(True, 7), 5, [6, 7]),
    ]

    def expected(rows):
        return pytest.approx(model.log_marginal(model.union(stats[rows]))[0], rel=1e-11, abs=1e-10)

    for left, right, slot, rows in steps:
        assert part.merge(left, right, slot) == expected(rows)
    part.compact(np.arange(6, 20, 2))
    for member, rows in ((Member(False, 4), steps[4][3]), (Member(True, 19), [19])):
        singles, unions = np.zeros(5), np.zeros(1)
        part.focus(member)
        part.add_singles(2, 7, singles)
        part.add_clusters(np.array([5]), unions)
        assert unions[0] == expected([*rows, 6, 7])
        for value, leaf in zip(singles, range(10, 20, 2), strict=True):
            assert value == expected([*rows, leaf])


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("mixing", "rose"), [(DirichletProcess(1.0), False), (Rose(0.4), True)])
def test_engines_build_the_same_tree(d, mixing, rose):
    X = table(40, np.random.default_rng(14), d)
    model = GaussianProcessExpert().resolve(X)
    ours, reference = (
        agglomerate(model, model.suffstats(X), mixing, rose=rose, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert ours.info.engine == "compiled"
    np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
    np.testing.assert_allclose(ours.tree.log_marginal, reference.tree.log_marginal, rtol=1e-10)
