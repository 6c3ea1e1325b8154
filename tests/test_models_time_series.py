"""Curves at shared times, against dense multivariate normals."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats as distributions

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, cli, load
from bhclust._kernels.part import Member
from bhclust._kernels.series import CompleteSeriesPart, IncompleteSeriesPart, series_part
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from bhclust.models import TimeSeries, check_model, named_model
from bhclust.models._covariance import KERNELS, unit_covariance
from bhclust.models.spec import model_from_spec, model_spec
from tests.oracles import processes

# columns in no order; two of them at time 1, three at time 4
TIMES = np.array([4.0, 0.0, 1.0, 2.5, 4.0, 1.0, 7.0, 4.0])
SETTINGS = {"length_scale": 1.7, "amplitude": 1.3, "noise": 0.4}


def settings_for(kernel):
    return {**SETTINGS, "period": 5.5} if kernel == "periodic" else SETTINGS


def table(n, rng, holes=0.0, times=TIMES):
    curves = np.array([np.sin(times), np.cos(times), times / 5])
    X = 3.0 + curves[np.arange(n) % 3] + 0.3 * rng.normal(size=(n, len(times)))
    X[rng.random(X.shape) < holes] = np.nan
    return X


def union(model, stats):
    out = stats[:1]
    for row in stats[1:]:
        out = model.merge(out, row[None])
    return out


def prior_mean(model):
    grid = np.unique(model.times)
    return lambda t: float(np.interp(t, grid, model.mean))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_their_definitions(kernel):
    a, b = np.array([0.0, 0.3, 2.0, 5.5]), np.array([0.0, 1.1, 2.0])
    found = unit_covariance(kernel, a, b, 1.4, 3.0).value
    expected = [[processes.kernel(kernel, s, t, 1.4, 3.0) for t in b] for s in a]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("times", [TIMES, None])
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_contract(kernel, times, holes):
    rng = np.random.default_rng(0)
    X = table(9, rng, holes)
    check_model(TimeSeries(times=times, kernel=kernel), X)
    check_model(TimeSeries(times=times, kernel=kernel, **settings_for(kernel)), X)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("holes", [0.0, 0.3, 0.7])
def test_log_marginal_is_the_dense_normal(kernel, holes):
    rng = np.random.default_rng([1, int(10 * holes)])
    settings = settings_for(kernel)
    X = table(12, rng, holes)
    model = TimeSeries(times=TIMES, kernel=kernel, mean=rng.normal(size=5), **settings).resolve(X)
    stats = model.suffstats(X)
    for size in (1, 2, 5, 12):
        rows = rng.permutation(12)[:size]
        found = model.log_marginal(union(model, stats[rows]))[0]
        expected = processes.log_density(X[rows], TIMES, prior_mean(model), kernel, **settings)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_plain_formula_of_a_cluster():
    """Mean zero: K_T ⊗ 11ᵀ + noise² I, without any use of the model's own coordinates."""
    rng = np.random.default_rng(2)
    times = np.array([0.0, 1.0, 3.0])
    X = rng.normal(size=(4, 3))
    model = TimeSeries(times=times, mean=0.0, **SETTINGS).resolve(X)
    curve = processes.curve_covariance("squared_exponential", times, times, 1.7, 1.3)
    dense = np.kron(np.ones((4, 4)), curve) + 0.16 * np.eye(12)
    expected = distributions.multivariate_normal.logpdf(X.ravel(), np.zeros(12), dense)
    found = model.log_marginal(union(model, model.suffstats(X)))[0]
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_large_offset_loses_nothing():
    rng = np.random.default_rng(3)
    X = np.round(table(8, rng) * 1024) / 1024
    near, far = (TimeSeries(times=TIMES).resolve(X + offset) for offset in (0.0, 2.0**27))
    stats = near.suffstats(X), far.suffstats(X + 2.0**27)
    found = far.log_marginal(union(far, stats[1]))
    np.testing.assert_allclose(found, near.log_marginal(union(near, stats[0])), rtol=1e-7)


def test_units_of_values_and_times_do_not_matter():
    rng = np.random.default_rng(4)
    X = table(8, rng, 0.1)
    plain = TimeSeries(times=TIMES).resolve(X)
    other = TimeSeries(times=60 * TIMES + 5).resolve(1000 * X)
    n_entries = np.isfinite(X).sum(axis=1)
    np.testing.assert_allclose(
        other.log_marginal(other.suffstats(1000 * X)) + n_entries * np.log(1000),
        plain.log_marginal(plain.suffstats(X)),
        rtol=1e-9,
    )


def test_the_density_integrates_to_one():
    rng = np.random.default_rng(5)
    X = table(5, rng, 0.2, times=np.array([0.0, 1.0]))
    model = TimeSeries(**SETTINGS).resolve(X)
    cluster = union(model, model.suffstats(X))

    # Trapezoids are exact to rounding for a smooth density that dies out on all sides.
    grid = np.linspace(-5, 11, 81)
    points = np.array([[x, y] for x in grid for y in grid])
    total = np.exp(model.log_predictive(cluster, points)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_gradient_is_the_slope(kernel, holes):
    rng = np.random.default_rng(6)
    X = table(10, rng, holes)
    model = TimeSeries(times=TIMES, kernel=kernel, **settings_for(kernel)).resolve(X)
    items = model.suffstats(X)
    stats = np.vstack([items, model.merge(items, items[::-1]), union(model, items)])
    weights = rng.normal(size=len(stats))
    gradient = model.gradient(stats, weights)
    names = {"length_scale", "amplitude", "noise"} | ({"period"} if kernel == "periodic" else set())
    assert set(gradient) == names
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


@pytest.mark.parametrize("holes", [0.0, 0.4])
def test_curve_is_the_dense_posterior(holes):
    rng = np.random.default_rng(7)
    X = table(4, rng, holes)
    model = TimeSeries(times=TIMES, kernel="matern52", mean=2.0, **SETTINGS).resolve(X)
    at = np.array([0.0, 0.6, 3.0, 9.0])
    mean, covariance = processes.curve_given(
        X, TIMES, at, prior_mean(model), "matern52", **SETTINGS
    )
    cluster = union(model, model.suffstats(X))
    curve = model.curve(cluster, at)
    np.testing.assert_allclose(curve.mean[0], mean, rtol=1e-9)
    np.testing.assert_allclose(
        curve.standard_deviation[0], np.sqrt(np.diagonal(covariance)), rtol=1e-9
    )
    summary = model.summary(cluster)
    grid = np.unique(TIMES)
    mean, covariance = processes.curve_given(
        X, TIMES, grid, prior_mean(model), "matern52", **SETTINGS
    )
    variances = np.diagonal(covariance)
    np.testing.assert_allclose(summary["mean"][0], mean, rtol=1e-9)
    np.testing.assert_allclose(summary["band"][0], np.sqrt(variances), rtol=1e-9)
    np.testing.assert_allclose(
        summary["standard_deviation"][0], np.sqrt(variances + SETTINGS["noise"] ** 2), rtol=1e-9
    )


def test_draws_follow_the_predictive():
    rng = np.random.default_rng(8)
    X = table(3, rng)
    model = TimeSeries(times=TIMES, **SETTINGS).resolve(X)
    cluster = union(model, model.suffstats(X))
    draws = model.sample(cluster, 40_000, rng)
    mean, covariance = processes.curve_given(
        X, TIMES, TIMES, prior_mean(model), "squared_exponential", **SETTINGS
    )
    covariance += SETTINGS["noise"] ** 2 * np.eye(len(TIMES))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.015)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.015)


def test_impute_is_the_expectation_given_the_row():
    rng = np.random.default_rng(9)
    X = table(7, rng, 0.2)
    model = TimeSeries(times=TIMES, **SETTINGS).resolve(X)
    stats = model.suffstats(X)
    clusters = np.vstack([union(model, stats[:3]), union(model, stats[3:6])])
    row = X[6:].copy()
    row[0, [1, 4]] = np.nan
    weights = np.array([[0.3, 0.7]])
    expected = np.zeros(len(TIMES))
    for weight, members in ((0.3, X[:3]), (0.7, X[3:6])):
        joined = np.vstack([members, row])
        curve, _ = processes.curve_given(
            joined, TIMES, TIMES, prior_mean(model), "squared_exponential", **SETTINGS
        )
        expected += weight * curve
    found = model.impute(clusters, row, weights)
    np.testing.assert_allclose(found[0], np.where(np.isnan(row[0]), expected, row[0]), rtol=1e-9)


def test_contributions_follow_the_chain_rule():
    """The first times by themselves are a model of the table without the later columns."""
    rng = np.random.default_rng(10)
    X = table(6, rng, 0.2)
    model = TimeSeries(times=TIMES, mean=3.0, **SETTINGS).resolve(X)
    stats = model.suffstats(X)
    a, b = union(model, stats[:3]), union(model, stats[3:])
    found = model.feature_contributions(a, b)[0]
    assert found.shape == (len(TIMES),)
    early = TIMES <= 2.5
    part = TimeSeries(times=TIMES[early], mean=3.0, **SETTINGS).resolve(X[:, early])
    stats = part.suffstats(X[:, early])
    a, b = union(part, stats[:3]), union(part, stats[3:])
    expected = part.log_marginal(a) + part.log_marginal(b) - part.log_marginal(part.merge(a, b))
    assert found[early].sum() == pytest.approx(expected[0], rel=1e-9)
    np.testing.assert_array_equal(found[TIMES == 4.0], found[0])


def test_noise_from_replicates_is_their_scatter_and_stays():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(15, 10, 1)) * 5 + 0.7 * rng.normal(size=(15, 10, 4))
    flat, times = X.reshape(15, 40), np.repeat(np.arange(10), 4)
    model = TimeSeries(times=times, noise="replicates").resolve(flat)
    expected = np.sqrt(X.var(axis=2, ddof=1).mean())
    assert model.noise == pytest.approx(expected, rel=1e-12)
    assert [spec.name for spec in model.free()] == ["length_scale", "amplitude"]
    fitted = BayesianHierarchicalClustering(TimeSeries(times=times, noise="replicates")).fit(flat)
    assert fitted.model_.noise == model.noise
    assert fitted.model_.amplitude != model.amplitude
    given = TimeSeries(times=times, noise=0.5, fixed=("noise",)).resolve(flat)
    assert "noise" not in given.gradient(given.suffstats(flat), np.ones(15))


def test_learning_finds_the_process():
    rng = np.random.default_rng(12)
    times = np.linspace(0, 10, 25)
    cov = processes.curve_covariance("squared_exponential", times, times, 1.5, 2.0)
    curves = rng.multivariate_normal(np.zeros(25), cov, size=25)
    y = np.repeat(np.arange(25), 6)
    X = curves[y] + 0.5 * rng.normal(size=(150, 25))
    model = BayesianHierarchicalClustering(TimeSeries(times=times, mean=0.0)).fit(X).model_
    assert model.length_scale == pytest.approx(1.5, rel=0.15)
    assert model.amplitude == pytest.approx(2.0, rel=0.2)
    assert model.noise == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_estimators_find_the_curves(kind, tmp_path):
    rng = np.random.default_rng(13)
    times = np.linspace(0, 6, 12)
    X = table(45, rng, 0.1, times=times)
    fitted = kind(TimeSeries(times=times), random_state=0).fit(X)
    kinds = [set(fitted.labels_[k::3]) for k in range(3)]
    assert sum(map(len, kinds)) == len(set.union(*kinds))  # no cluster holds two kinds
    assert kind is BayesianRoseTree or fitted.n_clusters_ == 3
    new = table(6, rng, 0.0, times=times)
    assert all(label in kinds[i % 3] for i, label in enumerate(fitted.predict(new)))
    assert np.isfinite(fitted.score_samples(new)).all()
    holed = new.copy()
    holed[:, 5] = np.nan
    filled = fitted.impute(holed)
    # Three or four times closer than the mean of the column, whose error is about 0.7.
    assert np.sqrt(np.mean(np.square(filled[:, 5] - new[:, 5]))) < 0.5
    assert fitted.sample(5).shape == (5, 12)
    fitted.save(tmp_path / "fit.npz")
    again = load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))


def test_names_and_files():
    X = table(5, np.random.default_rng(14))
    assert isinstance(named_model("time_series", owner="test"), TimeSeries)
    for model in (TimeSeries(times=TIMES), TimeSeries(times=TIMES, fixed=("noise",)).resolve(X)):
        again = model_from_spec(*model_spec(model))
        assert repr(again) == repr(model)
    resolved = TimeSeries(kernel="periodic").resolve(X)
    again = model_from_spec(*model_spec(resolved))
    np.testing.assert_array_equal(
        again.log_marginal(again.suffstats(X)), resolved.log_marginal(resolved.suffstats(X))
    )


def test_complete_and_holed_kernels_agree():
    """The kernels for missing entries, given complete items, against those for complete ones."""
    X = table(30, np.random.default_rng(15))
    model = TimeSeries(times=TIMES, **SETTINGS).resolve(X)
    stats = model.suffstats(X)
    quick = series_part(model, stats, 4)
    slow = IncompleteSeriesPart(model, stats, 4)
    assert isinstance(quick, CompleteSeriesPart)
    values = []
    for part in (quick, slow):
        from_leaf, from_cluster, with_cluster = np.zeros(20), np.zeros(20), np.zeros(1)
        part.focus(Member(True, 3))
        part.add_singles(10, 30, from_leaf)
        merged = [
            part.merge(Member(True, 0), Member(True, 1), 0),
            part.merge(Member(True, 2), Member(True, 3), 1),
        ]
        part.focus(Member(False, 0))
        part.add_singles(10, 30, from_cluster)
        part.add_clusters(np.array([1]), with_cluster)
        values.append(np.concatenate([from_leaf, from_cluster, with_cluster, merged]))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-11)


@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize(("mixing", "rose"), [(DirichletProcess(1.0), False), (Rose(0.4), True)])
def test_engines_build_the_same_tree(holes, mixing, rose):
    X = table(80, np.random.default_rng(16), holes)
    model = TimeSeries(times=TIMES).resolve(X)
    ours, reference = (
        agglomerate(model, model.suffstats(X), mixing, rose=rose, engine=engine)
        for engine in ("compiled", "numpy")
    )
    np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
    np.testing.assert_allclose(ours.tree.log_marginal, reference.tree.log_marginal, rtol=1e-10)


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_a_curve_known_far_beyond_rounding_stays_finite(holes):
    """Learning may try an amplitude that is 1e12 times the noise."""
    X = table(20, np.random.default_rng(17), holes)
    model = TimeSeries(times=TIMES, length_scale=50.0, amplitude=1e6, noise=1e-6).resolve(X)
    cluster = union(model, model.suffstats(X))
    assert np.isfinite(model.log_marginal(cluster)).all()
    parts = series_part(model, model.suffstats(X), 12)
    assert np.isfinite(parts.merge(Member(True, 0), Member(True, 1), 0))


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((3, 4)),
        np.full((3, 4), 1e8),
        np.array([[1.0], [2.0], [2.5]]),
        np.array([[np.nan, 1.0], [np.nan, 2.0], [np.nan, 2.0]]),
        np.full((3, 2), np.nan),
        np.ones((1, 3)),
    ],
)
def test_defaults_work_on_degenerate_tables(X):
    model = TimeSeries().resolve(X)
    assert np.isfinite(model.log_marginal(model.suffstats(X))).all()
    assert np.isfinite(model.curve(model.suffstats(X)).mean).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X: TimeSeries(times=[0, 1]).resolve(X), "one finite number for each of the 8"),
        (lambda X: TimeSeries(times=["a"] * 8).resolve(X), "times must be an array of numbers"),
        (lambda X: TimeSeries(times=[np.nan] * 8).resolve(X), "one finite number"),
        (lambda X: TimeSeries(kernel="linear").resolve(X), "kernel must be one of"),
        (lambda X: TimeSeries(noise="little").resolve(X), "noise must be one of 'replicates'"),
        (lambda X: TimeSeries(noise=-1.0).resolve(X), "noise must be a positive"),
        (lambda X: TimeSeries(noise="replicates").resolve(X), "repeat entries of times"),
        (lambda X: TimeSeries(period=2.0).resolve(X), "period belongs to kernel='periodic'"),
        (lambda X: TimeSeries(mean=[1.0, 2.0]).resolve(X), "mean must be a number or an array"),
        (lambda X: TimeSeries(fixed=("mean",)).resolve(X), "fixed may hold"),
        (lambda X: TimeSeries().suffstats(X), "call resolve"),
        (lambda X: TimeSeries().log_marginal(X), "call resolve"),
        (lambda X: TimeSeries().resolve(X).suffstats(X[:, :3]), "resolved with 8 column"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call(table(4, np.random.default_rng(18)))


def test_a_spline_has_no_past():
    X = table(4, np.random.default_rng(19))
    model = TimeSeries(times=TIMES, kernel="cubic_spline").resolve(X)
    with pytest.raises(BhclustError, match="no values before the first time 0"):
        model.curve(model.suffstats(X), [-1.0])


def csv_file(folder):
    times = np.array([0.0, 1.0, 2.0, 4.0, 4.0, 6.0])
    rng = np.random.default_rng(20)
    lines = ["gene,note,h0,h1,h2,h4,again,h6"]
    for i in range(12):
        curve = (np.sin, np.cos)[i % 2](times) + 0.1 * rng.normal(size=6)
        lines.append(",".join([f"g{i}", "xyz"[i % 3], *(f"{value:.4f}" for value in curve)]))
    path = folder / "genes.csv"
    path.write_text("\n".join(lines))
    return path


def test_the_command_line_takes_time_columns(tmp_path):
    path, out = csv_file(tmp_path), tmp_path / "out"
    command = ["fit", str(path), "--out", str(out), "--id-column", "gene", "--model", "time-series"]
    chosen = "h0=0,h1=1,h2=2,h4=4,again=4,h6=6"
    result = CliRunner().invoke(cli.main, [*command, "--time-columns", chosen])
    assert result.exit_code == 0, result.stderr
    fitted = load(out / "model.npz")
    np.testing.assert_array_equal(fitted.model_.times, [0, 1, 2, 4, 4, 6])
    assert (fitted.labels_[::2] != fitted.labels_[1]).all()
    assert (fitted.labels_[1::2] == fitted.labels_[1]).all()
    columns = "h0,h2,h6"
    CliRunner().invoke(cli.main, [*command, "--force", "--time-columns", columns])
    np.testing.assert_array_equal(load(out / "model.npz").model_.times, [0, 1, 2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "time-series", "--time-columns", "h0,h9"], "no column 'h9'"),
        (["--model", "time-series", "--time-columns", "h0=0,h1"], "a time for all of them"),
        (["--model", "time-series", "--time-columns", "h0,h0"], "every column once"),
        (["--model", "time-series", "--time-columns", "h0=now"], "'now' in 'h0=now'"),
        (["--time-columns", "h0,h1"], "needs --model time-series"),
    ],
)
def test_the_command_line_names_mistakes(options, words, tmp_path):
    arguments = ["fit", str(csv_file(tmp_path)), "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
