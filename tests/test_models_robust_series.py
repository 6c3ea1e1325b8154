"""Curves with an outlier, against enumeration of which measurement it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import integrate, optimize
from scipy.special import logsumexp

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, cli, load
from bhclust._kernels.part import Member
from bhclust._kernels.robust import RobustSeriesPart
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import RobustTimeSeries, TimeSeries, check_model, named_model
from bhclust.models._covariance import KERNELS
from bhclust.models.spec import model_from_spec, model_spec
from tests.oracles import processes
from tests.test_models_time_series import SETTINGS, TIMES, prior_mean, settings_for, table, union

LIMITS = (-2.0, 9.0)


def wild_table(n, rng, holes=0.0):
    """Curves with one entry far away and one that is far and outside the range of outliers."""
    X = table(n, rng, holes)
    X[0, 2] = 8.5
    X[1, 3] = 11.0
    return X


def enumerated(model, X, kernel="squared_exponential", **settings):
    """Return the log weights of no outlier and of each entry, from the model's odds."""
    none, each = processes.outlier_terms(
        X, TIMES, prior_mean(model), model.outlier_range, kernel, **settings
    )
    share = model.outlier_odds / (1 + model.outlier_odds)
    n = len(each)
    return np.append(
        np.log(share / model.n_entries) + each, np.log1p(-share * n / model.n_entries) + none
    )


@pytest.mark.parametrize("outliers", ["prior", "maximised"])
@pytest.mark.parametrize(("kernel", "holes"), [("periodic", 0.3), ("cubic_spline", 0.0)])
def test_contract(kernel, holes, outliers):
    X = wild_table(8, np.random.default_rng(0), holes)
    check_model(RobustTimeSeries(times=TIMES, kernel=kernel, outliers=outliers), X)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("holes", [0.0, 0.4])
def test_log_marginal_is_the_sum_over_outliers(kernel, holes):
    rng = np.random.default_rng([1, int(10 * holes)])
    X, settings = wild_table(5, rng, holes), settings_for(kernel)
    X[4] = X[0]  # two copies
    model = RobustTimeSeries(
        times=TIMES, kernel=kernel, outlier_odds=0.7, outlier_range=LIMITS, **settings
    ).resolve(X)
    assert model.n_entries == np.isfinite(X).sum() + 8
    stats = model.suffstats(X)
    for rows in ([0], [1, 2], [0, 1, 4], [0, 1, 2, 3, 4]):
        found = model.log_marginal(union(model, stats[rows]))[0]
        expected = logsumexp(enumerated(model, X[rows], kernel, **settings))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("holes", [0.0, 0.4])
def test_maximised_weights_are_the_maximum(holes):
    rng = np.random.default_rng(2)
    X = wild_table(4, rng, holes)
    model = RobustTimeSeries(
        times=TIMES, outliers="maximised", outlier_range=LIMITS, **SETTINGS
    ).resolve(X)
    stats = model.suffstats(X)
    single = np.full((1, 8), np.nan)
    single[0, 2] = 8.5
    n_with = 0
    for rows in (X[:1], X[1:], X, X[3:], single):
        none, each = processes.outlier_terms(
            rows, TIMES, prior_mean(model), LIMITS, "squared_exponential", **SETTINGS
        )
        n, log_c2 = len(each), logsumexp(each)

        def negative(b, n=n, none=none, log_c2=log_c2):
            return -np.logaddexp(n * np.log(b) + none, (n - 1) * np.log(b) + np.log1p(-b) + log_c2)

        best = optimize.minimize_scalar(
            negative, bounds=(1e-12, 1 - 1e-12), method="bounded", options={"xatol": 1e-12}
        )
        found = model.log_marginal(union(model, model.suffstats(rows)))[0]
        assert found == pytest.approx(max(-best.fun, none), rel=1e-8)
        n_with += found > none + 1e-9
    assert 0 < n_with < 5
    assert [spec.name for spec in model.free()] == ["length_scale", "amplitude", "noise"]
    assert len(stats) == 4


def test_leaving_an_entry_out_is_integrating_over_it():
    X = wild_table(3, np.random.default_rng(3))
    model = RobustTimeSeries(times=TIMES, outlier_range=LIMITS, **SETTINGS).resolve(X)
    for i, j in ((0, 2), (2, 5)):

        def density(value, i=i, j=j):
            filled = X.copy()
            filled[i, j] = value
            return float(np.exp(model.log_marginal(union(model, model.suffstats(filled)))[0]))

        edges = [-8.0, -2.0, 0.0, 2.0, 4.0, 6.0, 9.0, 14.0]
        total = sum(integrate.quad(density, a, b)[0] for a, b in pairwise(edges))
        holed = X.copy()
        holed[i, j] = np.nan
        expected = np.exp(model.log_marginal(union(model, model.suffstats(holed)))[0])
        assert total == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("outliers", ["prior", "maximised"])
@pytest.mark.parametrize("kernel", ["matern52", "periodic"])
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_gradient_is_the_slope(kernel, holes, outliers):
    rng = np.random.default_rng(4)
    X = wild_table(7, rng, holes)
    model = RobustTimeSeries(
        times=TIMES, kernel=kernel, outliers=outliers, **settings_for(kernel)
    ).resolve(X)
    items = model.suffstats(X)
    stats = np.vstack([items, model.merge(items, items[::-1]), union(model, items)])
    weights = rng.normal(size=len(stats))
    gradient = model.gradient(stats, weights)
    assert ("outlier_odds" in gradient) == (outliers == "prior")
    for spec in model.free():
        centre = float(model.hyperparameter(spec.name))
        slopes = []
        for step in (1e-3 * centre, 5e-4 * centre):
            up, down = (
                model.with_hyperparameters({spec.name: centre + s}).log_marginal(stats)
                for s in (step, -step)
            )
            slopes.append(float(weights @ (up - down)) / (2 * step))
        expected = (4 * slopes[1] - slopes[0]) / 3
        np.testing.assert_allclose(gradient[spec.name], expected, rtol=1e-6, atol=1e-6)


def dense_mixture(model, X, at):
    """Mean and covariance of the curve, mixed over every outlier there may be."""
    log_weights = enumerated(model, X, **SETTINGS)
    weights = np.exp(log_weights - logsumexp(log_weights))
    tables = [*(processes.without(X, k) for k in range(len(weights) - 1)), X]
    parts = [
        processes.curve_given(t, TIMES, at, prior_mean(model), "squared_exponential", **SETTINGS)
        for t in tables
    ]
    mean = sum(w * m for w, (m, _) in zip(weights, parts, strict=True))
    second = sum(w * (c + np.outer(m, m)) for w, (m, c) in zip(weights, parts, strict=True))
    return mean, second - np.outer(mean, mean), weights


def test_curve_is_the_mixture_of_dense_posteriors():
    X = wild_table(3, np.random.default_rng(5), 0.2)
    model = RobustTimeSeries(times=TIMES, outlier_range=LIMITS, **SETTINGS).resolve(X)
    at = np.array([0.0, 0.6, 3.0, 9.0])
    mean, covariance, weights = dense_mixture(model, X, at)
    cluster = union(model, model.suffstats(X))
    curve = model.curve(cluster, at)
    np.testing.assert_allclose(curve.mean[0], mean, rtol=1e-9)
    expected = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(curve.standard_deviation[0], expected, rtol=1e-7)
    assert model.outlier_probability(cluster)[0] == pytest.approx(weights[:-1].sum(), rel=1e-9)
    assert model.summary(cluster)["outlier"].shape == (1, 1)


def test_draws_follow_the_predictive():
    """Moments of draws, and how many are outliers, with errors of 40,000 draws."""
    rng = np.random.default_rng(6)
    X = table(2, rng)
    model = RobustTimeSeries(
        times=TIMES, outlier_range=(-60, 40), outlier_odds=20.0, **SETTINGS
    ).resolve(X)
    cluster = union(model, model.suffstats(X))
    mean, _, weights = dense_mixture(model, X, TIMES)
    assert 0.1 < weights[-1] < 0.9  # both kinds of draws are tried
    draws = model.sample(cluster, 40_000, rng)
    # of the 24 entries of the table and one more row, 16 are taken: outliers left to the new row
    share = 20 / 21
    new = weights[-1] * (share / 24) / (1 - share * 16 / 24)
    wild = np.abs(draws - mean) > 8
    assert wild.mean() == pytest.approx(new * (100 - 16) / 100, rel=0.05)
    assert (wild.sum(axis=1) <= 1).all()
    tame = draws[~wild.any(axis=1)]
    np.testing.assert_allclose(tame.mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(np.median(draws, axis=0), mean, atol=0.05)


def test_impute_is_the_expectation_given_the_row():
    X = wild_table(3, np.random.default_rng(7))
    model = RobustTimeSeries(times=TIMES, outlier_range=LIMITS, **SETTINGS).resolve(X)
    row = X[:1].copy()
    row[0, 1] = np.nan
    cluster = union(model, model.suffstats(X[1:]))
    found = model.impute(cluster, row, np.ones((1, 1)))[0, 1]

    def times_value(value, power):
        filled = row.copy()
        filled[0, 1] = value
        together = model.merge(cluster, model.suffstats(filled))
        return value**power * float(np.exp(model.log_marginal(together)[0]))

    edges = [-6.0, -2.0, 0.0, 2.0, 4.0, 6.0, 9.0, 12.0]
    moments = [
        sum(
            integrate.quad(times_value, a, b, args=(power,), epsabs=0)[0]
            for a, b in pairwise(edges)
        )
        for power in (0, 1)
    ]
    assert found == pytest.approx(moments[1] / moments[0], rel=1e-6)


@pytest.mark.parametrize("outliers", ["prior", "maximised"])
@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize(("mixing", "rose"), [(DirichletProcess(1.0), False), (Rose(0.4), True)])
def test_engines_build_the_same_tree(holes, mixing, rose, outliers):
    X = wild_table(35, np.random.default_rng(8), holes)
    model = RobustTimeSeries(times=TIMES, outliers=outliers).resolve(X)
    ours, reference = (
        agglomerate(model, model.suffstats(X), mixing, rose=rose, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert ours.info.engine == "compiled"
    np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
    np.testing.assert_allclose(ours.tree.log_marginal, reference.tree.log_marginal, rtol=1e-10)


def test_kernels_count_a_leaf_of_the_window_again():
    """A window may hold leaves that the focus has taken up already."""
    X = wild_table(6, np.random.default_rng(15), 0.1)
    model = RobustTimeSeries(times=TIMES).resolve(X)
    stats = model.suffstats(X)
    part = RobustSeriesPart(model, stats, 5)
    part.merge(Member(True, 0), Member(True, 1), 0)
    for slot, leaf in enumerate((2, 3, 4, 5)):
        log_f = part.merge(Member(False, slot), Member(True, leaf), slot + 1)
    everything = union(model, stats)
    assert log_f == pytest.approx(model.log_marginal(everything)[0], rel=1e-11)
    part.focus(Member(False, 4))
    found = np.zeros(6)
    part.add_singles(0, 6, found)
    expected = model.log_marginal(model.merge(everything, stats))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_an_outlier_does_not_take_a_curve_out_of_its_cluster(kind, tmp_path):
    rng = np.random.default_rng(9)
    times = np.linspace(0, 6, 12)
    X = table(24, rng, 0.05, times=times)
    X[4, 7] = 7.0
    settings = {"times": times, "length_scale": 2.0, "amplitude": 1.0, "noise": 0.3}
    plain, robust = (
        kind(model(**settings), learn=False).fit(X) for model in (TimeSeries, RobustTimeSeries)
    )
    mates = np.arange(1, 24, 3) != 4
    assert (plain.labels_[4] != plain.labels_[1::3][mates]).all()
    assert (robust.labels_[4] == robust.labels_[1::3]).any()
    holed = X[:6].copy()
    holed[:, 5] = np.nan
    assert np.abs(robust.impute(holed)[:, 5] - X[:6, 5])[:4].max() < 1.5
    assert robust.sample(5).shape == (5, 12)
    robust.save(tmp_path / "fit.npz")
    again = load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.predict(holed), robust.predict(holed))
    np.testing.assert_array_equal(again.score_samples(holed), robust.score_samples(holed))


def test_odds_are_learned_from_outliers():
    rng = np.random.default_rng(10)
    times = np.linspace(0, 6, 10)
    clean = table(40, rng, times=times)
    wild = clean.copy()
    wild[::10, 4] = 9.0
    odds = [
        BayesianHierarchicalClustering(RobustTimeSeries(times=times), learn=["outlier_odds"])
        .fit(X)
        .model_.outlier_odds
        for X in (clean, wild)
    ]
    assert odds[0] < 1 < odds[1]


def test_weights_are_copies():
    X = wild_table(6, np.random.default_rng(11), 0.1)
    weight = np.array([1, 2, 1, 3, 0, 1])
    model = RobustTimeSeries(times=TIMES)
    fitted = BayesianHierarchicalClustering(model, learn=False).fit(X, sample_weight=weight)
    copies = RobustTimeSeries(times=TIMES).resolve(np.repeat(X, weight, axis=0))
    stats = union(copies, copies.suffstats(np.repeat(X, weight, axis=0)))
    expected = copies.log_marginal(stats)[0]
    assert fitted.tree_.log_marginal[-1] == pytest.approx(expected, rel=1e-10)


def test_names_and_files():
    X = wild_table(5, np.random.default_rng(12), 0.2)
    assert isinstance(named_model("robust_time_series", owner="test"), RobustTimeSeries)
    for outliers in ("prior", "maximised"):
        resolved = RobustTimeSeries(times=TIMES, outliers=outliers).resolve(X)
        again = model_from_spec(*model_spec(resolved))
        np.testing.assert_array_equal(
            again.log_marginal(again.suffstats(X)), resolved.log_marginal(resolved.suffstats(X))
        )


@pytest.mark.parametrize(
    "X", [np.zeros((3, 4)), np.full((3, 4), 1e8), np.full((3, 2), np.nan), np.ones((1, 1))]
)
def test_defaults_work_on_degenerate_tables(X):
    for outliers in ("prior", "maximised"):
        model = RobustTimeSeries(outliers=outliers).resolve(X)
        stats = model.suffstats(X)
        assert np.isfinite(model.log_marginal(union(model, stats))).all()
        assert np.isfinite(model.curve(stats).mean).all()
        assert np.isfinite(model.sample(stats[:1], 2, np.random.default_rng(0))).all()
        assert all(np.isfinite(v) for v in model.gradient(stats, np.ones(len(X))).values())


def crowded(X):
    model = RobustTimeSeries(spare=1).resolve(X)
    return union(model, model.suffstats(X + 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X: RobustTimeSeries(outliers="many").resolve(X), "outliers must be one of"),
        (lambda X: RobustTimeSeries(outlier_odds=-1.0).resolve(X), "outlier_odds must be a pos"),
        (lambda X: RobustTimeSeries(outlier_range=(2, 1)).resolve(X), "the lower one first"),
        (lambda X: RobustTimeSeries(outlier_range="all").resolve(X), "two finite numbers"),
        (lambda X: RobustTimeSeries(spare=0).resolve(X), "spare must be"),
        (lambda X: RobustTimeSeries().suffstats(X), "call resolve"),
        (lambda X: RobustTimeSeries().resolve(X, np.full(4, 0.5)), "whole numbers as weights"),
        (
            lambda X: RobustTimeSeries(outliers="maximised", outlier_odds=2.0).resolve(X),
            "belong to outliers='prior'",
        ),
        (crowded, "takes 1 rows that the model was not resolved with"),
        (
            lambda X: RobustTimeSeries().resolve(np.arange(40_000.0).reshape(-1, 2)),
            "use TimeSeries",
        ),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call(table(4, np.random.default_rng(13)))


def test_the_command_line_takes_it(tmp_path):
    rng = np.random.default_rng(14)
    times = np.arange(5.0)
    lines = ["h0,h1,h2,h3,h4"]
    for i in range(10):
        curve = (np.sin, np.cos)[i % 2](times) + 0.1 * rng.normal(size=5)
        lines.append(",".join(f"{value:.4f}" for value in curve))
    path, out = tmp_path / "curves.csv", tmp_path / "out"
    path.write_text("\n".join(lines))
    command = ["fit", str(path), "--out", str(out), "--model", "robust-time-series"]
    result = CliRunner().invoke(cli.main, [*command, "--time-columns", "h0=0,h1=2,h4=8"])
    assert result.exit_code == 0, result.stderr
    model = load(out / "model.npz").model_
    assert isinstance(model, RobustTimeSeries)
    np.testing.assert_array_equal(model.times, [0, 2, 8])
