"""Counts and rounded measurements told apart, against predictives multiplied one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.datasets import load_digits

from bhclust import BayesianHierarchicalClustering
from bhclust._whole_numbers import _log_marginal, measurement_gains, settle_whole_numbers
from bhclust.models import DiagonalGaussian, Gaussian, Mixed, Poisson
from bhclust.randomised import Items
from bhclust.tables import read_table


def kinds_of(X, weight=None, **options):
    table = read_table(X, **options)
    weight = np.ones(table.shape[0]) if weight is None else weight
    return settle_whole_numbers(table, weight).schema.kinds


def clustered(rng, n, *rates, label=None):
    """Return Poisson columns, one for each set of rates, in four groups."""
    label = rng.integers(4, size=n) if label is None else label
    return np.column_stack([rng.poisson(rng.choice(rate, size=4)[label]) for rate in rates])


def measurements(rng, n, label=None):
    label = rng.integers(4, size=n) if label is None else label
    age = np.abs(np.array([25, 40, 50, 70])[label] + rng.normal(0, 8, n)).round()
    year = rng.integers(1990, 2021, n)
    income = np.exp(10 + 0.5 * label + rng.normal(0, 0.3, n)).round()
    return np.column_stack([age, year, income]).astype(int)


def log_poisson_by_predictives(model, values, j=0):
    """Multiply negative binomial predictives of column j, item by item."""
    shape, rate = float(model.shape[j]), float(model.rate[j])
    total = 0.0
    for x in values:
        total += stats.nbinom.logpmf(x, shape, rate / (rate + 1))
        shape, rate = shape + x, rate + 1
    return total


def log_normal_by_predictives(model, values, j=0):
    """Multiply Student predictives of column j, item by item."""
    mean, strength = float(model.mean[j]), float(model.strength[j])
    shape, rate = float(model.shape[j]), float(model.rate[j])
    total = 0.0
    for x in values:
        scale = np.sqrt(rate * (strength + 1) / (shape * strength))
        total += stats.t.logpdf(x, 2 * shape, mean, scale)
        rate += 0.5 * strength * (x - mean) ** 2 / (strength + 1)
        mean = (strength * mean + x) / (strength + 1)
        strength, shape = strength + 1, shape + 0.5
    return total


@pytest.mark.parametrize(
    ("model", "by_predictives"),
    [(Poisson(), log_poisson_by_predictives), (DiagonalGaussian(), log_normal_by_predictives)],
)
def test_log_marginals_within_groups(model, by_predictives):
    rng = np.random.default_rng(3)
    X = rng.poisson([2.0, 30.0, 7.0], size=(40, 3)).astype(float)
    label = rng.integers(3, size=40)
    items = Items(X, np.ones(40), read_table(X).columns)
    ours = _log_marginal(model, items, np.array([0, 2]), label)
    resolved = model.resolve(X[:, [0, 2]])
    for place, (j, value) in enumerate(zip((0, 2), ours, strict=True)):
        groups = (X[label == k, j] for k in range(3))
        expected = sum(by_predictives(resolved, group, place) for group in groups)
        assert value == pytest.approx(expected, rel=1e-10)


def test_one_column_has_one_group_in_the_second_reading():
    """The factor of a single column is at most that of the whole column as one group."""
    rng = np.random.default_rng(0)
    x = rng.poisson(6.0, 100).astype(float)
    table = read_table(x[:, None].astype(int))
    gain = measurement_gains(table, np.ones(100), np.array([0]))[0]
    spread = x[:, None] + (np.random.default_rng(0).random((100, 1)) - 0.5)
    normal = log_normal_by_predictives(DiagonalGaussian().resolve(spread), spread[:, 0])
    poisson = log_poisson_by_predictives(Poisson().resolve(x[:, None]), x)
    assert gain <= normal - poisson + 1e-9
    assert gain < 0


def test_spreading_gives_a_lower_bound():
    """The mean log density of the spread number is at most the log probability of its interval."""
    model = DiagonalGaussian(mean=[2.0], strength=[1.0], shape=[1.5], rate=[1.0]).resolve(
        np.zeros((1, 1))
    )
    for x in (0.0, 2.0, 9.0):
        points = x + (np.arange(2001) + 0.5) / 2001 - 0.5
        density = np.array([log_normal_by_predictives(model, [point]) for point in points[::20]])
        assert density.mean() < np.log(np.exp(density).mean())


@pytest.mark.parametrize("n", [100, 1000])
def test_counts_stay_counts(n):
    taken = 0
    for seed in range(8):
        rng = np.random.default_rng([n, seed])
        rates = [(0.2, 1.0, 3.0), (1.0, 4.0, 12.0), (0.5, 2.0), (20.0, 50.0)] * 3
        taken += kinds_of(clustered(rng, n, *rates)).count("real")
    assert taken <= 1  # of 96 columns


def test_measurements_are_found():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        label = rng.integers(4, size=300)
        counts = clustered(rng, 300, (0.5, 2.0), (1.0, 6.0), label=label)
        X = np.column_stack([measurements(rng, 300, label), counts])
        assert kinds_of(X) == ("real", "real", "real", "count", "count")


def test_few_rows_are_counts_unless_the_data_are_plain():
    assert kinds_of(np.array([[1, 20], [0, 25], [3, 18]])) == ("count", "count")
    assert kinds_of(np.array([[1, 2000], [0, 2010], [3, 2005]])) == ("count", "real")
    assert kinds_of(np.array([[3]])) == ("count",)


def test_what_is_declared_stays():
    X = measurements(np.random.default_rng(1), 200)
    assert kinds_of(X, kinds="count") == ("count",) * 3
    assert kinds_of(X, kinds={1: "count"}) == ("real", "count", "real")
    assert kinds_of(sparse.csr_array(X)) == ("count",) * 3
    fitted = BayesianHierarchicalClustering(column_kinds={1: "count"}).fit(X)
    assert isinstance(fitted.model_, Mixed)
    assert fitted.schema_.kinds == ("real", "count", "real")


def test_rows_of_weight_zero_say_nothing():
    rng = np.random.default_rng(2)
    X = np.vstack([clustered(rng, 80, (0.5, 3.0)), rng.integers(1000, 90000, (80, 1))])
    assert kinds_of(X) == ("real",)
    assert kinds_of(X, np.repeat([1.0, 0.0], 80)) == ("count",)


def test_missing_and_other_columns_are_no_obstacle():
    rng = np.random.default_rng(4)
    X = measurements(rng, 150).astype(object)
    X[rng.random(X.shape) < 0.2] = None
    words = rng.choice(["a", "b", None], size=(150, 1))
    flags = rng.choice([True, False], size=(150, 1))
    empty = np.full((150, 1), None)
    kinds = kinds_of(np.hstack([X, words, flags, empty]))
    assert kinds == ("real", "real", "real", "categorical", "binary", "real")


def test_an_estimator_goes_by_it():
    X = measurements(np.random.default_rng(5), 200)
    fitted = BayesianHierarchicalClustering().fit(X)
    assert isinstance(fitted.model_, Gaussian)
    # Numbers between are welcome where numbers were measured, and a Table reads as its source.
    assert fitted.predict(X[:3] + 0.5).shape == (3,)
    table = read_table(X)
    np.testing.assert_array_equal(fitted.predict(table), fitted.predict(X))
    np.testing.assert_array_equal(
        BayesianHierarchicalClustering().fit(table).labels_, fitted.labels_
    )


def test_grey_levels_do_not_fall_apart():
    """Grey levels taken for counts leave nearly every row alone."""
    X = (16 * load_digits().data[:300]).astype(int)
    default = BayesianHierarchicalClustering().fit(X)
    counts = BayesianHierarchicalClustering(model="poisson").fit(X)
    assert default.n_clusters_ < 40
    assert counts.n_clusters_ > 100
