"""Gaussian models against integrals, dense matrices and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from bhclust._validation import BhclustError
from bhclust.models import ClusterModel, DiagonalGaussian, Gaussian, check_model
from tests.oracles import models as oracle

NAN = np.nan
RNG = np.random.default_rng(11)
REALS = RNG.normal([1.0, -3.0, 10.0], [1.0, 0.3, 4.0], size=(9, 3))
SCALE = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.1], [-0.3, 0.1, 3.0]])

CASES = [
    pytest.param(DiagonalGaussian(), REALS, id="DiagonalGaussian"),
    pytest.param(
        DiagonalGaussian([0, 1, 2], 0.3, [1, 2, 0.7], 0.5), REALS, id="DiagonalGaussian given"
    ),
    pytest.param(Gaussian(), REALS, id="Gaussian"),
    pytest.param(Gaussian([0, 1, 2], 0.3, 2.5, SCALE), REALS, id="Gaussian given"),
]


@pytest.mark.parametrize(("model", "X"), CASES)
def test_contract(model, X):
    check_model(model, X)


@pytest.mark.parametrize("model", [DiagonalGaussian(), Gaussian()])
def test_contract_far_from_zero(model):
    check_model(model, REALS + 1e6)


def test_diagonal_is_the_integral():
    X = np.array([[0.3, -1.0], [1.2, NAN], [0.9, 2.0]])
    prior = {"mean": 0.4, "strength": 0.7, "shape": 1.5, "rate": 0.8}
    model = DiagonalGaussian(**prior).resolve(X)
    expected = oracle.integral_normal_gamma([0.3, 1.2, 0.9], **prior)
    expected += oracle.integral_normal_gamma([-1.0, 2.0], **prior)
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-5)


def test_diagonal_is_a_dense_t():
    prior = {"mean": 0.4, "strength": 0.2, "shape": 1.5, "rate": 0.8}
    model = DiagonalGaussian(**prior).resolve(REALS)
    expected = sum(oracle.dense_normal_gamma(REALS[:, j], **prior) for j in range(3))
    assert oracle.log_f(model, REALS) == pytest.approx(expected, rel=1e-12)


def test_gaussian_is_the_integral():
    X = np.array([[0.3, -1.0], [1.2, 0.4], [0.9, 0.7]])
    prior = {
        "mean": np.array([0.5, 0.0]),
        "strength": 0.6,
        "dof": 3.5,
        "scale": np.array([[1.0, 0.4], [0.4, 1.5]]),
    }
    model = Gaussian(**prior).resolve(X)
    expected = oracle.integral_normal_wishart(X, **prior)
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-4)


def test_gaussian_is_a_chain_of_multivariate_t():
    prior = {"mean": np.array([0.0, 1.0, 2.0]), "strength": 0.3, "dof": 2.5, "scale": SCALE}
    model = Gaussian(**prior).resolve(REALS)
    expected = oracle.chain_normal_wishart(REALS, **prior)
    assert oracle.log_f(model, REALS) == pytest.approx(expected, rel=1e-11)


def test_one_column_makes_both_models_equal():
    X = REALS[:, :1]
    full = Gaussian(0.5, 0.3, 3.0, 4.0).resolve(X)
    diagonal = DiagonalGaussian(0.5, 0.3, 1.5, 2.0).resolve(X)
    assert oracle.log_f(full, X) == pytest.approx(oracle.log_f(diagonal, X), rel=1e-12)


def clusters_of(model, X):
    """Nothing, single items, weighted items, and everything."""
    items = model.suffstats(X)
    weighted = model.repeat(items, np.linspace(0, 2.5, len(X)))
    nothing = model.repeat(items[:1], np.zeros(1))
    return np.vstack(
        [nothing, items, model.merge(weighted, items[::-1]), oracle.union(model, items)]
    )


@pytest.mark.parametrize(("model", "X"), CASES)
def test_densities_integrate_to_one(model, X):
    model = type(model)().resolve(X[:, :1])
    for cluster in clusters_of(model, X[:3, :1]):

        def density(x, cluster=cluster):
            return np.exp(model.log_predictive(cluster[None], [[x]])[0, 0])

        mass, _ = integrate.quad(density, -np.inf, np.inf, limit=200)
        assert mass == pytest.approx(1, abs=1e-6)


def test_gaussian_density_integrates_to_one_in_the_plane():
    X = REALS[:, :2]
    model = Gaussian(dof=8.0, scale=[[2.0, 0.5], [0.5, 1.0]]).resolve(X)
    cluster = oracle.union(model, model.suffstats(X))
    grid = np.linspace(-40, 40, 1201)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    mass = np.exp(model.log_predictive(cluster, points)).sum() * (grid[1] - grid[0]) ** 2
    assert mass == pytest.approx(1, abs=1e-6)


def test_missing_is_the_integral_over_what_could_be_there():
    model = DiagonalGaussian(0.5, 0.4, 2.0, 1.0).resolve(REALS)
    holes = REALS[:4].copy()
    holes[2, 1] = NAN
    reference = oracle.log_f(model, holes)

    def density(value):
        filled = holes.copy()
        filled[2, 1] = value
        return np.exp(oracle.log_f(model, filled) - reference)

    mass, _ = integrate.quad(density, -np.inf, np.inf, limit=200)
    assert mass == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize(("model", "X"), CASES)
def test_log_predictive_is_a_ratio_also_with_holes_and_weights(model, X):
    model = model.resolve(X)
    items = X.copy()
    if model.missing == "exact":
        items[[0, 1, 4], [0, 2, 1]] = NAN
        items[5] = NAN
    stats = clusters_of(model, X)
    expected = ClusterModel.log_predictive(model, stats, items)
    np.testing.assert_allclose(model.log_predictive(stats, items), expected, atol=1e-9, rtol=1e-9)


def test_predictive_of_a_row_whose_square_overflows():
    X = 1e-60 * REALS
    model = DiagonalGaussian().resolve(X)
    stats = clusters_of(model, X)
    far = np.array([[1e139, -2e-60, NAN], [-1e135, 3e120, 0.0]])
    found = model.log_predictive(stats, far)
    one = model.log_predictive(stats, far * 1e-10)
    # The tails are powers: ten powers of ten nearer, each far column gains as much in any cluster.
    power = model.shape + stats[:, :3] / 2
    steps = np.array([[1, 0, 0], [1, 1, 0]]) @ (10 * np.log(10) * (2 * power + 1)).T
    near = model.log_predictive(stats, np.array([[NAN, -2e-60, NAN], [NAN, NAN, 0.0]]))
    nearer = model.log_predictive(stats, np.array([[NAN, -2e-70, NAN], [NAN, NAN, 0.0]]))
    np.testing.assert_allclose(one - nearer - (found - near), steps, rtol=1e-9)


@pytest.mark.parametrize("kind", [DiagonalGaussian, Gaussian])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), offset=st.sampled_from([1e8, -(2.0**27), 3.0 * 2.0**25]))
def test_a_large_offset_loses_nothing(kind, seed, offset):
    # Multiples of 1/1024 stay exact after the offset is added, and so does the prior mean.
    X = np.round(np.random.default_rng(seed).normal(size=(20, 3)) * 1024) / 1024
    near = kind(mean=0.25).resolve(X)
    far = kind(mean=0.25 + offset).resolve(X + offset)
    for rows in (slice(0, 1), slice(0, 2), slice(0, 20)):
        here = oracle.log_f(near, X[rows])
        assert oracle.log_f(far, X[rows] + offset) == pytest.approx(here, rel=1e-9, abs=1e-9)
    stats = near.suffstats(X), far.suffstats(X + offset)
    np.testing.assert_allclose(
        near.log_predictive(stats[0], X),
        far.log_predictive(stats[1], X + offset),
        rtol=1e-9,
        atol=1e-9,
    )


def test_column_means_are_exact_to_the_last_digits():
    X = 1e8 + np.random.default_rng(0).random((50_000, 2))
    expected = [math.fsum(column) / len(X) for column in X.T]
    model = DiagonalGaussian().resolve(X)
    assert np.abs(model.mean - expected).max() <= np.spacing(1e8)


@pytest.mark.parametrize("model", [DiagonalGaussian(), Gaussian()])
def test_units_do_not_matter(model):
    # log f changes by exactly the Jacobian when a column is measured in another unit.
    units = np.array([1e-6, 1.0, 1e9])
    here, there = model.resolve(REALS), model.resolve(REALS * units)
    jacobian = len(REALS) * np.log(units).sum()
    expected = oracle.log_f(here, REALS) - jacobian
    assert oracle.log_f(there, REALS * units) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("model", "X"), CASES)
def test_gradient_is_the_slope(model, X):
    model = model.resolve(X)
    stats = clusters_of(model, X)
    weights = np.random.default_rng(1).normal(size=len(stats))
    gradient = model.gradient(stats, weights)
    for spec in model.free():
        expected = oracle.difference_gradient(model, spec, stats, weights)
        assert gradient[spec.name].shape == np.shape(getattr(model, spec.name))
        np.testing.assert_allclose(
            gradient[spec.name], expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()
        )


@pytest.mark.parametrize(("model", "X"), CASES)
def test_default_gradient_agrees_with_the_closed_form(model, X):
    model = model.resolve(X + 1000.0)
    stats = clusters_of(model, X + 1000.0)
    weights = np.random.default_rng(1).uniform(size=len(stats))
    numerical = ClusterModel.gradient(model, stats, weights)
    for name, expected in model.gradient(stats, weights).items():
        np.testing.assert_allclose(
            numerical[name], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
        )


def test_statistics_outlive_a_new_mean():
    model = DiagonalGaussian().resolve(REALS)
    stats = model.suffstats(REALS)
    moved = model.with_hyperparameters({"mean": [5.0, 5.0, 5.0]})
    assert np.array_equal(moved.suffstats(REALS), stats)
    fresh = DiagonalGaussian(5.0, model.strength, model.shape, model.rate).resolve(REALS + 0.0)
    assert oracle.log_f(moved, REALS) == pytest.approx(oracle.log_f(fresh, REALS), rel=1e-13)
    elsewhere = DiagonalGaussian(5.0, model.strength, model.shape, model.rate, origin=7.0)
    found = oracle.log_f(elsewhere.resolve(REALS), REALS)
    assert found == pytest.approx(oracle.log_f(fresh, REALS), rel=1e-13)


@pytest.mark.parametrize(("model", "X"), CASES)
def test_draws_follow_the_predictive(model, X):
    model = model.resolve(X)
    cluster = oracle.union(model, model.suffstats(X))
    n = 20_000
    draws = model.sample(cluster, n, np.random.default_rng(3))
    centre = model.summary(cluster)["mean"][0]
    # Five standard errors of a mean; the predictive has at least ten degrees of freedom.
    assert (np.abs(draws.mean(axis=0) - centre) < 5 * draws.std(axis=0) / np.sqrt(n)).all()
    # The mean of q / p over draws from p is one for every density q: a wrong spread or
    # correlation of the draws shows, whatever the formula of p.
    other = type(model)().resolve(X)
    wide = oracle.union(other, other.suffstats(X))
    narrow = other.repeat(wide, np.full(1, 2.0))
    ratio = np.exp(
        other.log_predictive(narrow, draws)[:, 0] - model.log_predictive(cluster, draws)[:, 0]
    )
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(n)


def test_gaussian_draws_have_the_covariance_of_a_t():
    model = Gaussian([0, 1, 2], 0.3, 6.0, SCALE).resolve(REALS)
    stats = model.suffstats(REALS)
    cluster = oracle.union(model, stats)
    draws = model.sample(cluster, 200_000, np.random.default_rng(5))
    # Textbook posterior, from raw sums.
    n, mean = len(REALS), np.array([0.0, 1.0, 2.0])
    k = 0.3 + n
    centre = (0.3 * mean + REALS.sum(axis=0)) / k
    S = SCALE + REALS.T @ REALS + 0.3 * np.outer(mean, mean) - k * np.outer(centre, centre)
    df = 6.0 + n - 3 + 1
    expected = S * (k + 1) / (k * df) * df / (df - 2)
    size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(np.cov(draws.T) - expected) < 0.02 * size).all()


def test_impute_is_the_expectation():
    model = DiagonalGaussian().resolve(REALS)
    stats = model.suffstats(REALS)
    clusters = np.vstack([oracle.union(model, stats[:5]), oracle.union(model, stats[5:])])
    holes = REALS.copy()
    holes[[0, 3, 5], 1] = NAN
    weights = np.random.default_rng(2).dirichlet([1, 1], size=len(REALS))
    filled = model.impute(clusters, holes, weights)
    observed = ~np.isnan(holes)
    assert np.array_equal(filled[observed], holes[observed])

    def density(value, k):
        return np.exp(model.log_predictive(clusters[k : k + 1], [[NAN, value, NAN]])[0, 0])

    means = [
        integrate.quad(lambda x, k=k: x * density(x, k), -np.inf, np.inf, limit=300)[0]
        for k in range(2)
    ]
    assert filled[[0, 3, 5], 1] == pytest.approx((weights @ means)[[0, 3, 5]], rel=1e-5)


def test_contributions_are_those_of_the_leading_columns():
    prior = {"mean": np.array([0.0, 1.0, 2.0]), "strength": 0.3, "dof": 3.5, "scale": SCALE}
    model = Gaussian(**prior).resolve(REALS)
    stats = model.suffstats(REALS)
    a, b = oracle.union(model, stats[:4]), oracle.union(model, stats[4:])
    found = model.feature_contributions(a, b)[0]
    before = 0.0
    for k in (1, 2, 3):
        leading = Gaussian(prior["mean"][:k], 0.3, 3.5 - (3 - k), SCALE[:k, :k]).resolve(
            REALS[:, :k]
        )
        X = REALS[:, :k]
        total = (
            oracle.log_f(leading, X[:4]) + oracle.log_f(leading, X[4:]) - oracle.log_f(leading, X)
        )
        assert found[k - 1] == pytest.approx(total - before, rel=1e-9)
        before = total


def test_the_leading_column_is_what_is_left_after_integrating_the_other():
    # This is the marginal consistency that the contributions rest on.
    scale = np.array([[2.0, 0.5], [0.5, 1.0]])
    plane = Gaussian([0.0, 1.0], 0.3, 2.5, scale).resolve(REALS[:, :2])
    line = Gaussian(0.0, 0.3, 1.5, 2.0).resolve(REALS[:, :1])
    nothing = plane.repeat(plane.suffstats(REALS[:1, :2]), np.zeros(1))
    mass, _ = integrate.quad(
        lambda y: np.exp(plane.log_predictive(nothing, [[0.7, y]])[0, 0]), -np.inf, np.inf
    )
    assert np.log(mass) == pytest.approx(oracle.log_f(line, [[0.7]]), rel=1e-7)


@pytest.mark.parametrize("model", [DiagonalGaussian(), Gaussian()])
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0]]),
        np.zeros((3, 2)),
        np.full((5, 2), 1e8),
        np.column_stack([np.arange(6.0), np.arange(6.0)]),
        np.full((4, 2), 1e-200),
        np.zeros((0, 2)),
    ],
    ids=["one row", "zeros", "constant", "collinear", "tiny", "no rows"],
)
def test_defaults_work_on_degenerate_tables(model, X):
    resolved = model.resolve(X)
    stats = resolved.suffstats(np.vstack([X, np.zeros((1, 2))]))
    everything = oracle.union(resolved, stats)
    assert np.isfinite(resolved.log_marginal(np.vstack([stats, everything]))).all()
    assert not resolved.mean.flags.writeable


def test_an_all_missing_column_changes_nothing():
    X = np.column_stack([REALS, np.full(9, NAN)])
    prior = {"shape": 2.0, "rate": 1.0, "strength": 0.1}
    with_hole = DiagonalGaussian(**prior).resolve(X)
    without = DiagonalGaussian(**prior).resolve(REALS)
    assert oracle.log_f(with_hole, X) == pytest.approx(oracle.log_f(without, REALS), rel=1e-14)


@pytest.mark.parametrize("d", [2, 10])
@pytest.mark.parametrize("model", [DiagonalGaussian(), Gaussian()])
def test_default_priors_tell_blobs_apart(model, d):
    rng = np.random.default_rng(d)
    centres = np.array([-1.0, 0.0, 1.0])[:, None] * np.full(d, 12 / np.sqrt(d))
    y = np.repeat(np.arange(3), 20)
    X = centres[y] + rng.normal(size=(60, d))
    model = model.resolve(X)
    apart = [oracle.log_f(model, X[y == k]) for k in range(3)]
    # The true split beats every coarser one, and halves of a blob belong together.
    assert sum(apart) > oracle.log_f(model, X) + 50
    assert apart[0] + apart[1] > oracle.log_f(model, X[y < 2]) + 20
    halves = [oracle.log_f(model, X[:10]), oracle.log_f(model, X[10:20])]
    assert apart[0] > sum(halves) + 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Gaussian().resolve([[1, NAN]]), "column 1 has 1; use DiagonalGaussian"),
        (lambda: Gaussian(dof=1).resolve(np.eye(3)), "dof must be above d - 1 = 2"),
        (lambda: Gaussian(scale=[[1, 2], [2, 1]]).resolve(np.eye(2)), "positive definite"),
        (lambda: Gaussian(scale=[[1, 2], [0, 9]]).resolve(np.eye(2)), "symmetric"),
        (lambda: Gaussian(scale=-1).resolve(np.eye(2)), "scale must be positive"),
        (lambda: Gaussian(mean=[1, 2, 3]).resolve(np.eye(2)), r"mean must be .* shape \(2,\)"),
        (lambda: DiagonalGaussian(rate=0).resolve(np.eye(2)), "rate must be positive"),
        (lambda: DiagonalGaussian().resolve([[np.inf]]), "column 0 is infinite"),
        (lambda: DiagonalGaussian().suffstats([[1.0]]), "call resolve"),
        (lambda: Gaussian().suffstats([[1.0]]), "call resolve"),
        (lambda: Gaussian().resolve(np.eye(2)).suffstats([[1.0]]), "resolved with 2 column"),
        (lambda: DiagonalGaussian().resolve([["a"]]), "table of numbers"),
        (lambda: DiagonalGaussian().resolve([1.0]), "two-dimensional"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call()


def test_imputing_with_a_full_covariance_says_what_to_use():
    model = Gaussian().resolve(REALS)
    stats = model.suffstats(REALS)
    with pytest.raises(BhclustError, match="use DiagonalGaussian"):
        model.impute(stats, np.full((1, 3), NAN), np.full((1, len(stats)), 1 / len(stats)))
