"""Discrete models against urns, integrals, enumeration and draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bhclust._validation import BhclustError
from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    Column,
    Multinomial,
    Poisson,
    check_model,
)
from tests.oracles import models as oracle

NAN = np.nan
RNG = np.random.default_rng(7)

BINARY = (RNG.random((9, 3)) < [0.2, 0.5, 0.9]).astype(float)
CODES = np.column_stack([RNG.integers(k, size=9) for k in (2, 3, 4)]).astype(float)
ROWS = RNG.integers(3, size=(9, 3)).astype(float)
COUNTS = RNG.poisson([1.0, 4.0, 20.0], size=(9, 3)).astype(float)

CASES = [
    pytest.param(Bernoulli(), BINARY, id="Bernoulli"),
    pytest.param(Bernoulli(a=[0.5, 1, 2], b=3), BINARY, id="Bernoulli given"),
    pytest.param(Categorical(), CODES, id="Categorical"),
    pytest.param(Categorical(0.7, (3, 3, 5)), CODES, id="Categorical given"),
    pytest.param(Multinomial(), ROWS, id="Multinomial"),
    pytest.param(Multinomial([0.5, 1, 2]), ROWS, id="Multinomial given"),
    pytest.param(Poisson(), COUNTS, id="Poisson"),
    pytest.param(Poisson(0.7, [1, 2, 0.1]), COUNTS, id="Poisson given"),
]


@pytest.mark.parametrize(("model", "X"), CASES)
def test_contract(model, X):
    check_model(model, X)


def test_bernoulli_is_the_integral():
    X = np.array([[1, 0], [1, NAN], [0, 0], [1, 1]])
    model = Bernoulli(a=[0.5, 2], b=[1.5, 0.3]).resolve(X)
    expected = oracle.integral_bernoulli([1, 1, 0, 1], 0.5, 1.5)
    expected += oracle.integral_bernoulli([0, 0, 1], 2, 0.3)
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-7)


def test_categorical_is_an_urn():
    X = np.array([[0, 2], [1, NAN], [0, 2], [0, 1]])
    model = Categorical([0.5, 1.5, 0.2, 0.3, 2.0], (2, 3)).resolve(X)
    expected = oracle.urn_categorical([0, 1, 0, 0], [0.5, 1.5])
    expected += oracle.urn_categorical([2, 2, 1], [0.2, 0.3, 2.0])
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-12)


def test_multinomial_is_an_urn_over_all_orders():
    X = np.array([[2, 1, 0], [NAN, NAN, NAN], [0, 2, 1], [1, 0, 0]])
    model = Multinomial([0.5, 1.5, 0.8]).resolve(X)
    expected = oracle.urn_multinomial(X[[0, 2, 3]], [0.5, 1.5, 0.8])
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-12)


def test_poisson_is_the_integral():
    X = np.array([[2, 0], [5, NAN], [3, 1]])
    model = Poisson([1.5, 0.6], [0.5, 2]).resolve(X)
    expected = oracle.integral_poisson([2, 5, 3], 1.5, 0.5)
    expected += oracle.integral_poisson([0, 1], 0.6, 2)
    assert oracle.log_f(model, X) == pytest.approx(expected, rel=1e-8)


def every_item(model):
    if isinstance(model, Bernoulli):
        return np.array(list(itertools.product([0, 1], repeat=3)), dtype=float)
    if isinstance(model, Categorical):
        sizes = [range(k) for k in model.n_categories]
        return np.array(list(itertools.product(*sizes)), dtype=float)
    total = 4
    counts = itertools.product(range(total + 1), repeat=3)
    return np.array([row for row in counts if sum(row) == total], dtype=float)


@pytest.mark.parametrize(("model", "X"), CASES[:6])
def test_probabilities_add_up_to_one(model, X):
    model = model.resolve(X)
    items = every_item(model)
    clusters = model.suffstats(X)[:4]
    clusters = np.vstack([np.zeros_like(clusters[:1]), clusters, oracle.union(model, clusters)])
    assert np.exp(model.log_predictive(clusters, items)).sum(axis=0) == pytest.approx(1)
    assert np.exp(model.log_marginal(model.suffstats(items))).sum() == pytest.approx(1)


def test_poisson_adds_up_to_one():
    model = Poisson(1.5, 0.5).resolve(COUNTS[:, :1])
    cluster = oracle.union(model, model.suffstats(COUNTS[:3, :1]))
    items = np.arange(400.0)[:, None]
    assert np.exp(model.log_predictive(cluster, items)).sum() == pytest.approx(1, abs=1e-12)
    assert np.exp(model.log_marginal(model.suffstats(items))).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "X", "values"),
    [
        (Bernoulli(), BINARY, range(2)),
        (Categorical(), CODES, range(3)),
        (Poisson(), COUNTS, range(400)),
    ],
    ids=["Bernoulli", "Categorical", "Poisson"],
)
def test_missing_is_the_sum_over_what_could_be_there(model, X, values):
    model = model.resolve(X)
    holes = X[:4].copy()
    holes[2, 1] = NAN
    total = -np.inf
    for value in values:
        filled = holes.copy()
        filled[2, 1] = value
        total = np.logaddexp(total, oracle.log_f(model, filled))
    assert oracle.log_f(model, holes) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize(("model", "X"), CASES)
def test_log_predictive_is_a_ratio_also_with_holes_and_weights(model, X):
    model = model.resolve(X)
    items = X.copy()
    if model.missing == "exact":
        items[[0, 1, 4], [0, 2, 1]] = NAN
    items[5] = NAN
    stats = model.repeat(model.suffstats(X), np.linspace(0, 3.7, len(X)))
    stats = np.vstack([stats, oracle.union(model, stats)])
    expected = ClusterModel.log_predictive(model, stats, items)
    np.testing.assert_allclose(model.log_predictive(stats, items), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("model", "X"), CASES)
def test_gradient_is_the_slope(model, X):
    model = model.resolve(X)
    stats = model.suffstats(X)
    stats = np.vstack([stats, model.repeat(model.merge(stats, stats[::-1]), np.full(len(X), 1.5))])
    weights = np.random.default_rng(1).normal(size=len(stats))
    gradient = model.gradient(stats, weights)
    for spec in model.free():
        expected = oracle.difference_gradient(model, spec, stats, weights)
        np.testing.assert_allclose(
            gradient[spec.name], expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()
        )


@pytest.mark.parametrize(("model", "X"), CASES)
def test_draws_follow_the_predictive(model, X):
    model = model.resolve(X)
    cluster = oracle.union(model, model.suffstats(X[:4]))
    n = 20_000
    draws = model.sample(cluster, n, np.random.default_rng(3))
    items, counts = np.unique(draws, axis=0, return_counts=True)
    probability = np.exp(model.log_predictive(cluster, items)[:, 0])
    often = n * probability > 20
    error = np.sqrt(n * probability * (1 - probability))
    assert often.any()
    # Five standard errors: one false alarm in a million cells.
    assert (np.abs(counts - n * probability)[often] <= 5 * error[often]).all()
    rest = max(0.0, 1 - probability[often].sum())
    found = n - counts[often].sum()
    assert abs(found - n * rest) <= 5 * np.sqrt(n * rest * (1 - rest)) + 1e-6


def test_multinomial_rows_have_the_clusters_mean_total():
    X = np.array([[3, 0, 1], [5, 1, 0], [0, 0, 9]])
    model = Multinomial().resolve(X)
    stats = model.suffstats(X)
    rng = np.random.default_rng(0)
    assert set(model.sample(oracle.union(model, stats[:2]), 20, rng).sum(axis=1)) == {5}
    nothing = np.zeros_like(stats[:1])
    assert set(model.sample(nothing, 20, rng).sum(axis=1)) == {round(19 / 3)}


@pytest.mark.parametrize(
    ("model", "X", "values", "mode"),
    [
        (Bernoulli(), BINARY, range(2), True),
        (Categorical(), CODES, range(3), True),
        (Poisson(), COUNTS, range(500), False),
    ],
    ids=["Bernoulli", "Categorical", "Poisson"],
)
def test_impute_by_enumeration(model, X, values, mode):
    model = model.resolve(X)
    stats = model.suffstats(X)
    clusters = np.vstack([oracle.union(model, stats[:5]), oracle.union(model, stats[5:])])
    holes = X.copy()
    holes[:, 1] = NAN
    weights = np.random.default_rng(2).dirichlet([1, 1], size=len(X))
    # This brings the probability of a one just above a half.
    weights[0] = [0.97, 0.03]
    filled = model.impute(clusters, holes, weights)
    observed = ~np.isnan(holes)
    assert np.array_equal(filled[observed], holes[observed])
    alone = np.full((len(values), 3), NAN)
    alone[:, 1] = values
    probability = weights @ np.exp(model.log_predictive(clusters, alone)).T
    for i in range(len(X)):
        expected = probability[i].argmax() if mode else probability[i] @ np.arange(len(values))
        assert filled[i, 1] == pytest.approx(expected, rel=1e-9)


def test_impute_a_missing_row_of_counts():
    X = np.array([[3, 0, 1], [5, 1, 0], [0, 0, 9]], dtype=float)
    model = Multinomial(1).resolve(X)
    stats = model.suffstats(X)
    holes = np.vstack([X, np.full((1, 3), NAN)])
    weights = np.array([[1, 0], [1, 0], [1, 0], [0.25, 0.75]])
    clusters = np.vstack([oracle.union(model, stats[:2]), stats[2:]])
    filled = model.impute(clusters, holes, weights)
    assert np.array_equal(filled[:3], X)
    first, second = np.array([9, 2, 2]) / 13 * 5, np.array([1, 1, 10]) / 12 * 9
    assert filled[3] == pytest.approx(0.25 * first + 0.75 * second)


@pytest.mark.parametrize(
    "make", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array]
)
@pytest.mark.parametrize(
    ("model", "X"), [(Bernoulli(), BINARY), (Multinomial(), ROWS), (Poisson(), COUNTS)]
)
def test_sparse_equals_dense(make, model, X):
    dense, sparse = model.resolve(X), model.resolve(make(X))
    for spec in dense.free():
        np.testing.assert_allclose(getattr(dense, spec.name), getattr(sparse, spec.name))
    stats = dense.suffstats(X)
    assert np.array_equal(stats, dense.suffstats(make(X)))
    np.testing.assert_allclose(dense.log_predictive(stats, make(X)), dense.log_predictive(stats, X))


def test_sparse_duplicates_are_added_and_the_input_is_left_alone():
    entries = ([1.0, 1.0, 3.0], ([0, 0, 1], [2, 2, 0]))
    X = scipy.sparse.csr_array(scipy.sparse.coo_array(entries, (2, 3)))
    twice = scipy.sparse.csr_array(([1.0, 1.0], [2, 2], [0, 2]), shape=(1, 3))
    model = Multinomial(1).resolve(X)
    assert model.suffstats(twice)[0, :3].tolist() == [0, 0, 2]
    assert twice.nnz == 2


def test_default_prior_of_frequencies():
    X = np.array([[1, 0, NAN], [1, 0, NAN], [1, 1, NAN], [0, NAN, NAN]])
    model = Bernoulli().resolve(X)
    assert model.a == pytest.approx(2 * np.array([4 / 6, 2 / 5, 1 / 2]))
    assert model.a + model.b == pytest.approx(2)
    same = Categorical(n_categories=2).resolve(X)
    assert same.concentration == pytest.approx(np.column_stack([model.b, model.a]).ravel())


def test_default_concentration_recovers_the_truth():
    rng = np.random.default_rng(0)
    for total in (5, 80):
        shares = rng.dirichlet(total * np.array([0.5, 0.3, 0.1, 0.1]), size=4000)
        model = Multinomial().resolve(rng.multinomial(60, shares))
        assert model.concentration.sum() == pytest.approx(total, rel=0.1)


def test_default_gamma_recovers_the_truth():
    rng = np.random.default_rng(0)
    shape, rate = np.array([0.5, 3.0, 20.0]), np.array([0.1, 1.0, 2.0])
    model = Poisson().resolve(rng.poisson(rng.gamma(shape, 1 / rate, size=(8000, 3))))
    assert model.shape == pytest.approx(shape, rel=0.15)
    assert model.rate == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize("model", [Bernoulli(), Categorical(), Poisson(), Multinomial()])
@pytest.mark.parametrize(
    "X",
    [
        np.array([[0.0, 1.0]]),
        np.zeros((4, 2)),
        np.full((3, 2), NAN),
        np.zeros((0, 2)),
        np.array([[1.0], [1.0]]),
    ],
    ids=["one row", "zeros", "all missing", "no rows", "one constant column"],
)
def test_defaults_work_on_degenerate_tables(model, X):
    resolved = model.resolve(X)
    stats = resolved.suffstats(np.vstack([X, np.zeros((1, X.shape[1]))]))
    assert np.isfinite(resolved.log_marginal(stats)).all()
    for spec in resolved.free():
        values = getattr(resolved, spec.name)
        assert (values > 0).all()
        assert not values.flags.writeable


@pytest.mark.parametrize(("model", "X"), CASES)
def test_an_empty_cluster_has_log_f_zero(model, X):
    model = model.resolve(X)
    nothing = np.zeros_like(model.suffstats(X[:1]))
    assert model.log_marginal(nothing) == 0.0
    assert np.array_equal(model.merge(nothing, model.suffstats(X)), model.suffstats(X))


def test_summaries_are_posterior_means():
    X = np.array([[1.0, 0.0], [1.0, NAN]])
    cluster = oracle.union(Bernoulli(1, 1).resolve(X), Bernoulli(1, 1).resolve(X).suffstats(X))
    assert Bernoulli(1, 1).resolve(X).summary(cluster)["probability"] == pytest.approx(
        np.array([[3 / 4, 1 / 3]])
    )
    poisson = Poisson(2, 1).resolve(X)
    cluster = oracle.union(poisson, poisson.suffstats(X))
    assert poisson.summary(cluster)["rate"] == pytest.approx(np.array([[4 / 3, 2 / 2]]))
    categorical = Categorical(1, 3).resolve(X)
    cluster = oracle.union(categorical, categorical.suffstats(X))
    expected = [[1 / 5, 3 / 5, 1 / 5, 2 / 4, 1 / 4, 1 / 4]]
    assert categorical.summary(cluster)["probability"] == pytest.approx(np.array(expected))


def test_multinomial_contributions_are_parts_of_the_divergence():
    model = Multinomial(0.5).resolve(ROWS)
    a = np.array([[8000, 1000, 1000, 0, 10.0]])
    b = np.array([[1000, 8000, 1000, 0, 10.0]])
    found = model.feature_contributions(a, b)[0]
    p, q, both = np.array([0.8, 0.1, 0.1]), np.array([0.1, 0.8, 0.1]), np.array([0.45, 0.45, 0.1])
    expected = 1e4 * (p * np.log(p / both) + q * np.log(q / both))
    assert found == pytest.approx(expected, abs=0.005 * expected.max())


@settings(max_examples=30, deadline=None)
@given(
    weights=st.lists(st.floats(0, 1e4), min_size=9, max_size=9),
    order=st.permutations(range(9)),
    case=st.sampled_from([case.values for case in CASES]),
)
def test_weighted_clusters_do_not_depend_on_order(weights, order, case):
    model, X = case
    model = model.resolve(X)
    stats = model.repeat(model.suffstats(X), np.array(weights))
    one = model.log_marginal(oracle.union(model, stats))
    other = model.log_marginal(oracle.union(model, stats[list(order)]))
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Bernoulli().resolve([[0, 2]]), "column 1 is neither 0 nor 1 in row 0"),
        (lambda: Poisson().resolve([[0], [-1]]), "column 0 is negative in row 1"),
        (lambda: Poisson().resolve([[0.5]]), "not a whole number"),
        (lambda: Multinomial().resolve([[np.inf, 1]]), "column 0 is infinite"),
        (lambda: Multinomial().resolve([[1, 1], [NAN, 1]]), "row 1 misses 1 of 2 columns"),
        (lambda: Categorical(n_categories=2).resolve([[0], [2]]), "beyond its categories in row 1"),
        (lambda: Categorical(n_categories=(2, 3)).resolve([[0]]), "one number a column"),
        (lambda: Categorical(n_categories=0).resolve([[0]]), "at least 1"),
        (lambda: Bernoulli(a=-1).resolve([[0]]), "Bernoulli: every entry of a must be positive"),
        (lambda: Bernoulli(a=[1, 2]).resolve([[0]]), r"shape \(1,\)"),
        (lambda: Bernoulli().suffstats([[0]]), "call resolve"),
        (lambda: Bernoulli().resolve([[0, 1]]).suffstats([[0]]), "resolved with 2 column"),
        (lambda: Categorical().resolve([[0, 1]]).suffstats([[0]]), "resolved with 2 column"),
        (lambda: Categorical().resolve(scipy.sparse.csr_array([[0.0]])), "no sparse table"),
        (
            lambda: Bernoulli().resolve(scipy.sparse.csr_array([[0, 0, 1], [0, 3, 0]])),
            "column 1 is neither 0 nor 1 in row 1",
        ),
        (lambda: Bernoulli().resolve([[0]]).with_hyperparameters({"c": 1}), "no hyperparameter"),
        (lambda: Bernoulli().resolve([[0]]).with_hyperparameters({"a": -1}), "positive"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call()


def test_columns_give_names_and_categories():
    columns = [Column("colour", "categorical", ("red", "green", "blue")), Column("wet", "binary")]
    model = Categorical().for_columns(columns).resolve(np.zeros((2, 2)))
    assert model.n_categories == (3, 2)
    with pytest.raises(BhclustError, match="column 'wet' has a code beyond"):
        model.suffstats([[0, 2]])
