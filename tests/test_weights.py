"""A row of weight w counts like w copies of it, a row of weight zero like none."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust._validation import BhclustError
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import (
    Bernoulli,
    Categorical,
    Column,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
    choose_model,
    named_model,
)

RNG = np.random.default_rng(5)
N = 12
COPIES = np.array([3, 1, 0, 2, 5, 1, 0, 1, 4, 2, 0, 1])

BINARY = (RNG.random((N, 3)) < [0.2, 0.5, 0.9]).astype(float)
CODES = RNG.integers([2, 3, 4], size=(N, 3)).astype(float)
ROWS = RNG.poisson([1.0, 3.0, 9.0], size=(N, 3)).astype(float)
REALS = RNG.normal(size=(N, 3)) * [1, 10, 100] + 1e6
HOLES = RNG.random((N, 3)) < 0.25

CASES = [
    pytest.param(Bernoulli(), np.where(HOLES, np.nan, BINARY), id="Bernoulli"),
    pytest.param(Bernoulli(), scipy.sparse.csr_array(BINARY), id="Bernoulli sparse"),
    pytest.param(Categorical(), np.where(HOLES, np.nan, CODES), id="Categorical"),
    pytest.param(Multinomial(), ROWS, id="Multinomial"),
    pytest.param(Multinomial(), scipy.sparse.csr_array(ROWS), id="Multinomial sparse"),
    pytest.param(
        Multinomial(), np.where(HOLES[:, :1], np.nan, ROWS), id="Multinomial with missing rows"
    ),
    pytest.param(Poisson(), np.where(HOLES, np.nan, ROWS), id="Poisson"),
    pytest.param(DiagonalGaussian(), np.where(HOLES, np.nan, REALS), id="DiagonalGaussian"),
    pytest.param(Gaussian(), REALS, id="Gaussian"),
    pytest.param(
        Mixed([(Bernoulli(), [0, 2]), (DiagonalGaussian(), [1, 3]), (Poisson(), 4)]),
        np.column_stack([BINARY[:, 0], REALS[:, 0], BINARY[:, 1], REALS[:, 1], ROWS[:, 2]]),
        id="Mixed",
    ),
]


def same_defaults(found, expected):
    assert [spec.name for spec in found.free()] == [spec.name for spec in expected.free()]
    for spec in expected.free():
        value = expected.hyperparameter(spec.name)
        assert found.hyperparameter(spec.name) == pytest.approx(value, rel=1e-10), spec.name


@pytest.mark.parametrize(("model", "X"), CASES)
def test_defaults_from_weights_are_those_of_repeated_rows(model, X):
    rows = np.repeat(np.arange(N), COPIES)
    repeated = model.resolve(X[rows])
    same_defaults(model.resolve(X, COPIES), repeated)
    # Weights do matter here: the plain table has other defaults.
    plain = model.resolve(X)
    assert any(
        not np.allclose(plain.hyperparameter(s.name), repeated.hyperparameter(s.name), rtol=1e-3)
        for s in plain.free()
    )


@pytest.mark.parametrize(("model", "X"), CASES)
def test_weight_zero_is_a_row_less(model, X):
    weight = np.where(COPIES > 0, 1.0, 0.0)
    same_defaults(model.resolve(X, weight), model.resolve(X[COPIES > 0]))


@pytest.mark.parametrize(("model", "X"), CASES)
def test_weights_of_one_change_nothing(model, X):
    weighted, plain = model.resolve(X, np.ones(N)), model.resolve(X)
    for spec in plain.free():
        assert np.array_equal(weighted.hyperparameter(spec.name), plain.hyperparameter(spec.name))


def test_a_category_of_weight_zero_does_not_exist():
    model = Categorical().resolve([[0.0], [1.0], [4.0]], [2, 1, 0])
    assert model.n_categories == (2,)


def test_row_total_of_counts_is_weighted():
    model = Multinomial().resolve([[1.0, 1.0], [4.0, 4.0]], [3, 1])
    assert model.row_total == (3 * 2 + 8) / 4


@pytest.mark.parametrize("model", [DiagonalGaussian(), Gaussian()])
def test_constant_columns_are_found_whatever_the_weights(model):
    X = np.full((4, 2), 0.1)
    X[:, 1] = [1, 2, 3, 4]
    weighted, plain = model.resolve(X, [3, 1, 0.1, 7]), model.resolve(X)
    spread = {"rate": 0} if isinstance(model, DiagonalGaussian) else {"scale": (0, 0)}
    for name, place in spread.items():
        a, b = weighted.hyperparameter(name)[place], plain.hyperparameter(name)[place]
        assert a == pytest.approx(b)


@pytest.mark.parametrize("weight", [[1, 2], [-1] * N, [0] * N, [np.inf] * N, ["a"] * N])
def test_bad_weights(weight):
    with pytest.raises(ValueError, match="sample_weight"):
        Poisson().resolve(ROWS, weight)
    with pytest.raises(ValueError, match="sample_weight"):
        BayesianHierarchicalClustering().fit(ROWS, sample_weight=weight)


def test_the_automatic_choice_counts_copies():
    columns = [Column("a", "real"), Column("b", "real")]
    X = RNG.normal(size=(4, 2))
    assert type(choose_model(columns, X)) is DiagonalGaussian
    assert type(choose_model(columns, X, [2, 2, 2, 2])) is Gaussian
    X[0, 0] = np.nan
    assert type(choose_model(columns, X, [0, 3, 3, 3])) is Gaussian
    assert type(choose_model(columns, X, [1, 3, 3, 3])) is DiagonalGaussian


def test_auto_is_not_a_model_by_itself():
    with pytest.raises(BhclustError, match="'auto' depends on the table; call choose_model"):
        named_model("auto", owner="test")


@pytest.mark.parametrize("mixing", [DirichletProcess(0.7), Constant(0.3), Rose(0.3)])
def test_a_weighted_leaf_is_a_node_of_copies_that_stay_together(mixing):
    weights = np.array([2.0, 3.0, 7.0])
    assert mixing.log_leaf(weights) == pytest.approx(mixing.log_one(weights, weights))
    if not isinstance(mixing, DirichletProcess):
        # A single item is one cluster, whatever the prior; a fraction is one more copy.
        assert mixing.log_leaf([0.2, 1.0]).tolist() == [0.0, 0.0]
        assert mixing.log_leaf([2.5]) == mixing.log_leaf([3.0])


# Copies of these points are apart with a probability near 1e-15 under this model, so that
# repeated rows say the same as weights to rounding.
FAR = RNG.normal(size=(6, 60)) * 10
SURE = DiagonalGaussian(mean=0.0, strength=0.01, shape=5.0, rate=0.1)


@pytest.mark.parametrize(
    ("estimator", "mixing"),
    [
        (BayesianHierarchicalClustering, "dirichlet_process"),
        (BayesianHierarchicalClustering, "constant"),
        (BayesianRoseTree, "dirichlet_process"),
        (BayesianRoseTree, "constant"),
        (BayesianRoseTree, "rose"),
    ],
)
def test_a_weighted_fit_is_the_fit_of_repeated_rows(estimator, mixing):
    times = np.array([2, 1, 3, 1, 2, 4])
    settings = {"mixing": mixing, "learn": False}
    weighted = estimator(SURE, **settings).fit(FAR, sample_weight=times)
    repeated = estimator(SURE, **settings).fit(np.repeat(FAR, times, axis=0))
    new = np.vstack([FAR + 0.1, RNG.normal(size=(3, 60))])
    assert weighted.n_clusters_ == repeated.n_clusters_ == 6
    assert weighted.predict_proba(new) == pytest.approx(repeated.predict_proba(new), abs=1e-12)
    assert weighted.score_samples(new) == pytest.approx(repeated.score_samples(new), rel=1e-9)
    assert weighted.tree_.weight[-1] == repeated.tree_.weight[-1] == times.sum()
    if mixing != "dirichlet_process":
        assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, rel=1e-9)


def test_rows_of_weight_zero_get_a_label_and_are_not_in_the_tree():
    X = np.array([[0.0], [0.1], [9.0], [9.1], [0.05], [9.05]])
    weight = [1, 1, 1, 1, 0, 0]
    fitted = BayesianHierarchicalClustering().fit(X, sample_weight=weight)
    assert fitted.leaf_rows_.tolist() == [0, 1, 2, 3]
    assert fitted.labels_[4] == fitted.labels_[0] != fitted.labels_[5] == fitted.labels_[2]
    without = BayesianHierarchicalClustering().fit(X[:4])
    assert np.array_equal(fitted.tree_.parent, without.tree_.parent)
    assert np.array_equal(fitted.tree_.log_odds, without.tree_.log_odds)
