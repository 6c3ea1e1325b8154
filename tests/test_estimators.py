"""The public surface of the estimators: what goes in, what comes out, what is kept."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle

import joblib
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bhclust
from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, Tree
from bhclust._validation import FileFormatError
from bhclust.datasets import make_blocks, make_mixed_table
from bhclust.io import read_archive, write_archive
from bhclust.models import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
)
from bhclust.tables import NamedColumns, read_table

ESTIMATORS = [BayesianHierarchicalClustering, BayesianRoseTree]
RNG = np.random.default_rng(11)
POINTS = np.concatenate([RNG.normal(c, 0.3, (k, 2)) for c, k in ((0, 5), (4, 8), (9, 3))])
BINARY = make_blocks(6, 3, 9, random_state=3).X
GUESTS = make_mixed_table(40, random_state=4).columns


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda kind: kind.__name__)
def fitted(request):
    return request.param().fit(POINTS)


# -- what a fit leaves ---------------------------------------------------------------------------


def test_attributes(fitted):
    assert isinstance(fitted.tree_, Tree)
    fitted.tree_.validate()
    assert fitted.tree_.n_leaves == len(POINTS) == len(fitted.labels_)
    assert isinstance(fitted.model_, Gaussian)
    assert fitted.model_.mean is not None
    assert fitted.n_features_in_ == 2
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.leaf_rows_.tolist() == list(range(len(POINTS)))
    assert np.isfinite(fitted.log_evidence_)
    if isinstance(fitted, BayesianHierarchicalClustering):
        assert fitted.alpha_ > 0
        # The bound also counts the prior of the tree's partitions among all partitions.
        assert fitted.log_evidence_bound_ < fitted.log_evidence_
        assert not hasattr(fitted, "gamma_")
    else:
        assert 0 < fitted.gamma_ < 1
        assert not hasattr(fitted, "alpha_")
        assert not hasattr(fitted, "log_evidence_bound_")


def test_labels_are_consecutive_and_the_largest_cluster_is_zero(fitted):
    sizes = np.bincount(fitted.labels_)
    assert sizes.tolist() == [8, 5, 3]
    assert fitted.n_clusters_ == 3
    assert set(fitted.labels_) == {0, 1, 2}
    assert np.array_equal(fitted.labels_, fitted.cut())


def test_the_given_parameters_stay_as_they_were():
    model = Bernoulli(a=0.5)
    estimator = BayesianRoseTree(model, gamma=0.3, n_clusters=2)
    estimator.fit(BINARY)
    assert estimator.model is model
    assert model.b is None
    assert estimator.get_params()["gamma"] == 0.3


def test_a_second_fit_leaves_nothing_of_the_first(tmp_path):
    estimator = BayesianHierarchicalClustering(alpha=0.3).fit(BINARY)
    estimator.set_params(mixing="constant", gamma=0.4, learn=False).fit(BINARY)
    assert not hasattr(estimator, "alpha_")
    assert not hasattr(estimator, "log_evidence_bound_")
    estimator.save(tmp_path / "model.npz")
    assert bhclust.load(tmp_path / "model.npz").gamma_ == 0.4


def test_a_cut_never_refits(fitted):
    tree, labels = fitted.tree_, fitted.labels_
    before = copy.copy(vars(fitted))
    for k in (1, 2, 5):
        if isinstance(fitted, BayesianHierarchicalClustering):
            assert len(set(fitted.cut(k))) == k
    assert len(set(fitted.cut(threshold=0.999999, method="threshold"))) >= 3
    assert fitted.tree_ is tree
    assert fitted.labels_ is labels
    assert vars(fitted) == before


@pytest.mark.parametrize("k", [1, 2, 4, 16])
def test_the_number_of_clusters_may_be_given(k):
    chosen = BayesianHierarchicalClustering(n_clusters=k).fit(POINTS)
    assert chosen.n_clusters_ == k == len(set(chosen.labels_))
    free = BayesianHierarchicalClustering().fit(POINTS)
    assert np.array_equal(chosen.tree_.parent, free.tree_.parent)
    assert chosen.predict_proba(POINTS).shape == (len(POINTS), k + 1)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_fits_are_deterministic_and_do_not_depend_on_the_order_of_rows(kind):
    first, second = kind().fit(POINTS), kind().fit(POINTS.copy())
    for name in ("parent", "height", "log_odds", "log_evidence", "stats"):
        assert np.array_equal(getattr(first.tree_, name), getattr(second.tree_, name))
    order = np.random.default_rng(0).permutation(len(POINTS))
    plain, shuffled = kind(learn=False).fit(POINTS), kind(learn=False).fit(POINTS[order])
    # Sizes differ, so that the labels themselves must be the same.
    assert np.array_equal(shuffled.labels_, plain.labels_[order])
    assert shuffled.log_evidence_ == pytest.approx(plain.log_evidence_, rel=1e-9)


def test_verbose_says_which_model_was_chosen(capsys):
    BayesianHierarchicalClustering(verbose=True).fit(BINARY)
    assert "Bernoulli" in capsys.readouterr().out
    BayesianHierarchicalClustering().fit(BINARY)
    assert capsys.readouterr().out == ""


def test_kinds_may_be_given_by_hand():
    codes = RNG.integers(0, 3, size=(12, 2))
    assert isinstance(BayesianHierarchicalClustering().fit(codes).model_, Poisson)
    by_hand = BayesianHierarchicalClustering(column_kinds="categorical").fit(codes)
    assert isinstance(by_hand.model_, Categorical)
    both = BayesianHierarchicalClustering(column_kinds={0: "categorical"}).fit(codes)
    assert isinstance(both.model_, Mixed)


# -- prediction ----------------------------------------------------------------------------------


def test_class_probabilities_sum_to_one_and_the_last_column_is_a_new_cluster(fitted):
    new = np.vstack([POINTS, [[1e4, -1e4]]])
    probabilities = fitted.predict_proba(new)
    assert probabilities.shape == (len(new), fitted.n_clusters_ + 1)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert (probabilities >= 0).all()
    assert np.array_equal(fitted.predict(POINTS), fitted.labels_)
    assert np.array_equal(fitted.predict(new), probabilities[:, :-1].argmax(axis=1))
    if isinstance(fitted, BayesianHierarchicalClustering):
        assert probabilities[-1, -1] > 0.5  # far from everything
    else:
        assert (probabilities[:, -1] == 0).all()  # this prior has no new clusters


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("mixing", ["dirichlet_process", "constant"])
def test_the_predictive_density_integrates_to_one(kind, mixing):
    values = np.array([[0.0], [0.2], [5.0], [5.3], [5.1]])
    fitted = kind("diagonal_gaussian", mixing=mixing).fit(values)
    # t = tan(u) maps the whole line to an interval, so that heavy tails are covered.
    u = (np.arange(20000) + 0.5) / 20000 * np.pi - np.pi / 2
    density = np.exp(fitted.score_samples(np.tan(u)[:, None]))
    assert np.sum(density / np.cos(u) ** 2) * np.pi / 20000 == pytest.approx(1.0, abs=1e-5)
    assert fitted.score(values) == pytest.approx(fitted.score_samples(values).mean())


def test_samples_look_like_the_data(fitted):
    estimator = copy.copy(fitted).set_params(random_state=0)
    draws = estimator.sample(4000)
    assert draws.shape == (4000, 2)
    shares = estimator.predict_proba(draws)[:, :-1].mean(axis=0)
    assert shares == pytest.approx(np.array([8, 5, 3]) / 16, abs=0.1)
    assert np.array_equal(draws, estimator.sample(4000))
    partitions = estimator.sample_partitions(5)
    assert partitions.shape == (5, len(POINTS))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_imputation_gives_back_the_frame_that_came_in(library):
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library](GUESTS)
    fitted = BayesianHierarchicalClustering().fit(frame)
    filled = fitted.impute(frame)
    assert type(filled) is type(frame)
    before, after = nw.from_native(frame), nw.from_native(filled)
    assert after.columns == before.columns
    for name in before.columns:
        old, new = before[name].to_list(), after[name].to_list()
        assert not any(value is None or value != value for value in new)
        kept = [(a, b) for a, b in zip(old, new, strict=True) if a is not None and a == a]
        assert all(a == b for a, b in kept)
    assert set(after["favourite_drink"].to_list()) <= {"coffee", "tea", "juice", "beer"}


def test_imputation_keeps_a_pandas_index():
    frame = pd.DataFrame({"a": [0.0, 0.1, 9.0, None]}, index=["p", "q", "r", "s"])
    assert list(BayesianHierarchicalClustering().fit(frame).impute(frame).index) == list("pqrs")


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_heldout_probabilities_of_all_fillings_sum_to_one(kind):
    X = BINARY[:, :5].astype(float)
    holes = [(0, 1), (3, 4), (7, 0), (7, 2), (17, 3)]
    for i, j in holes:
        X[i, j] = np.nan
    fitted = kind().fit(X)
    total = 0.0
    for values in itertools.product([0.0, 1.0], repeat=len(holes)):
        full = X.copy()
        for (i, j), value in zip(holes, values, strict=True):
            full[i, j] = value
        total += np.exp(fitted.heldout_log_likelihood(full))
    assert total == pytest.approx(1.0, abs=1e-10)
    assert fitted.heldout_log_likelihood(X) == pytest.approx(0.0, abs=1e-12)


# -- what the tree says --------------------------------------------------------------------------


def test_co_clustering_of_rows(fitted):
    matrix = fitted.co_clustering_matrix()
    n = len(POINTS)
    i, j = np.meshgrid(np.arange(n), np.arange(n))
    assert fitted.co_clustering(i, j) == pytest.approx(matrix)
    assert np.diag(matrix) == pytest.approx(1.0)
    assert matrix[0, 1] > 0.5 > matrix[0, -1]


def test_co_clustering_with_rows_of_weight_zero():
    weight = np.ones(len(POINTS))
    weight[[0, 7]] = 0
    fitted = BayesianHierarchicalClustering().fit(POINTS, sample_weight=weight)
    without = BayesianHierarchicalClustering().fit(POINTS[weight > 0])
    assert fitted.co_clustering(1, 2) == without.co_clustering(0, 1)
    assert fitted.co_clustering(15, 8) == without.co_clustering(13, 6)
    with pytest.raises(ValueError, match="weight zero is not in the tree"):
        fitted.co_clustering(0, 1)


def test_the_distribution_of_the_number_of_clusters(fitted):
    distribution = fitted.n_clusters_distribution()
    assert distribution.sum() == pytest.approx(1.0)
    assert distribution[0] == 0
    assert len(distribution) <= len(POINTS) + 1
    sizes = [len(set(labels)) for labels in fitted.sample_partitions(300)]
    assert np.mean(sizes) == pytest.approx(distribution @ np.arange(len(distribution)), abs=0.3)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_explanations_add_up(kind):
    fitted = kind().fit(pd.DataFrame(BINARY).add_prefix("f"))
    log_f, tree = fitted.tree_.log_marginal, fitted.tree_
    root = tree.n_nodes - 1
    records = fitted.explain(top=99)
    assert {record.feature for record in records} == {f"f{j}" for j in range(9)}
    factors = [record.log_bayes_factor for record in records]
    assert factors == sorted(factors, reverse=True)
    expected = log_f[tree.children(root)].sum() - log_f[root]
    assert sum(factors) == pytest.approx(expected)
    assert fitted.explain(root, top=2) == records[:2]
    for label in range(fitted.n_clusters_):
        inside = fitted.labels_ == label
        parts = [BINARY[inside], BINARY[~inside], BINARY]
        model = fitted.model_
        values = [model.log_marginal(model.suffstats(X).sum(axis=0)[None])[0] for X in parts]
        found = sum(record.log_bayes_factor for record in fitted.explain_cluster(label, top=99))
        assert found == pytest.approx(values[0] + values[1] - values[2])


# -- containers ----------------------------------------------------------------------------------


def test_every_container_gives_the_same_tree():
    names = [f"f{j}" for j in range(BINARY.shape[1])]
    by_name = {name: BINARY[:, j] for j, name in enumerate(names)}
    tables = {
        "array": BINARY,
        "list": BINARY.tolist(),
        "pandas": pd.DataFrame(by_name),
        "polars": pl.DataFrame(by_name),
        "pyarrow": pa.table({name: column.tolist() for name, column in by_name.items()}),
        "csr": scipy.sparse.csr_matrix(BINARY),
        "csc": scipy.sparse.csc_array(BINARY.astype(float)),
        "dict": by_name,
        "bool": BINARY.astype(bool),
        "fortran": np.asfortranarray(BINARY, dtype=np.float32),
    }
    expected = BayesianRoseTree().fit(BINARY)
    for name, table in tables.items():
        fitted = BayesianRoseTree().fit(table)
        assert np.array_equal(fitted.tree_.parent, expected.tree_.parent), name
        assert np.array_equal(fitted.tree_.log_odds, expected.tree_.log_odds), name
        assert np.array_equal(fitted.predict(table), expected.predict(BINARY)), name
        assert fitted.score_samples(table) == pytest.approx(expected.score_samples(BINARY)), name


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict, NamedColumns])
def test_named_columns_keep_their_names(make):
    table = make(GUESTS)
    fitted = BayesianHierarchicalClustering().fit(table)
    assert fitted.feature_names_in_.tolist() == list(GUESTS)
    assert fitted.n_features_in_ == len(GUESTS)
    assert fitted.explain(top=1)[0].feature in GUESTS
    assert len(fitted.predict(table)) == 40
    other = make({f"{name}?": column for name, column in GUESTS.items()})
    with pytest.raises(ValueError, match=r"feature names|column"):
        fitted.predict(other)


def test_row_names_become_leaf_names():
    frame = pd.DataFrame({"a": [0.0, 0.1, 9.0]}, index=["p", "q", "r"])
    fitted = BayesianHierarchicalClustering().fit(frame, sample_weight=[1, 0, 1])
    assert fitted.tree_.leaf_names == ("p", "r")
    assert fitted.tree_.to_newick().startswith("(p")


def test_missing_values_are_missing_in_every_spelling():
    with_nan = np.array([[0.0, 1.5], [np.nan, 1.25], [9.0, np.nan]])
    expected = BayesianHierarchicalClustering().fit(with_nan).tree_.log_odds
    for table in (
        [[0.0, 1.5], [None, 1.25], [9.0, float("nan")]],
        pd.DataFrame({"a": [0.0, pd.NA, 9.0], "b": [1.5, 1.25, pd.NA]}, dtype="Float64"),
        pl.DataFrame({"a": [0.0, None, 9.0], "b": [1.5, 1.25, None]}),
        np.ma.masked_invalid(with_nan),
    ):
        found = BayesianHierarchicalClustering().fit(table).tree_.log_odds
        assert np.array_equal(found, expected)


# -- files, copies, and scikit-learn's tools -----------------------------------------------------

SAVED = {
    "bernoulli": (Bernoulli(), BINARY),
    "categorical": (Categorical(), np.array([["a", "x"], ["b", "y"], ["a", None], ["c", "x"]])),
    "multinomial": (Multinomial(), RNG.poisson(3.0, (8, 3))),
    "poisson": (Poisson(), RNG.poisson(3.0, (8, 3))),
    "diagonal_gaussian": (DiagonalGaussian(), POINTS),
    "gaussian": (Gaussian(), POINTS),
    "mixed": ("auto", pd.DataFrame(GUESTS)),
    "polars": ("auto", pl.DataFrame(GUESTS)),
    "columns": ("auto", GUESTS),
    "given kinds": ("auto", RNG.integers(0, 3, (9, 2))),
}


def predictions(estimator, X):
    return [
        estimator.predict_proba(X),
        estimator.score_samples(X),
        estimator.labels_,
        estimator.co_clustering_matrix(),
        np.array(estimator.log_evidence_),
    ]


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("name", SAVED)
def test_a_saved_estimator_comes_back(tmp_path, kind, name):
    model, X = SAVED[name]
    settings = {"column_kinds": {0: "categorical"}} if name == "given kinds" else {}
    fitted = kind(model, random_state=3, **settings).fit(X)
    path = tmp_path / "model.npz"
    fitted.save(path)
    loaded = bhclust.load(path)
    assert type(loaded) is kind
    for found, expected in zip(predictions(loaded, X), predictions(fitted, X), strict=True):
        assert np.array_equal(found, expected)
    given, back = fitted.get_params(), loaded.get_params()
    if name in ("mixed", "polars", "columns", "given kinds"):
        assert back == given
        assert np.array_equal(loaded.fit(X).labels_, fitted.labels_)
    else:
        assert type(back.pop("model")) is type(given.pop("model"))
        assert back == given
    assert loaded.schema_ == fitted.schema_
    assert np.array_equal(loaded.cut(1), fitted.cut(1))
    draws = [
        np.asarray(read_table(estimator.sample(3)).toarray()) for estimator in (loaded, fitted)
    ]
    assert np.array_equal(*draws)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.npz"]


@dataclasses.dataclass(frozen=True, eq=False)
class Own(Bernoulli):
    """A model of one's own."""


def test_a_model_of_ones_own_is_read_by_those_who_know_it(tmp_path):
    fitted = BayesianHierarchicalClustering(Own()).fit(BINARY)
    fitted.save(tmp_path / "model.npz")
    with pytest.raises(FileFormatError, match=r"class 'Own'.*known=\[Own\]"):
        bhclust.load(tmp_path / "model.npz")
    loaded = bhclust.load(tmp_path / "model.npz", known=[Own])
    assert isinstance(loaded.model_, Own)
    assert np.array_equal(loaded.predict_proba(BINARY), fitted.predict_proba(BINARY))


def test_settings_of_any_type_can_be_saved(tmp_path):
    estimator = BayesianHierarchicalClustering(
        alpha=np.float32(2), n_clusters=np.int64(2), random_state=np.random.default_rng(0)
    )
    estimator.fit(POINTS).save(tmp_path / "model.npz")
    loaded = bhclust.load(tmp_path / "model.npz")
    assert loaded.alpha == 2
    assert loaded.n_clusters == 2


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    BayesianHierarchicalClustering().fit(POINTS).save(path)
    content = path.read_bytes()
    header, arrays = read_archive(path)
    kept = {key: value for key, value in header.items() if key not in ("format", "version")}
    bad = tmp_path / "bad.npz"
    for end in (0, 10, len(content) // 2, len(content) - 1):
        bad.write_bytes(content[:end])
        with pytest.raises(FileFormatError):
            bhclust.load(bad)
    bad.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(FileFormatError, match=r"bad\.npz"):
        bhclust.load(bad)
    np.savez(bad, x=np.arange(3))
    with pytest.raises(FileFormatError, match="not a bhclust file"):
        bhclust.load(bad)
    write_archive(bad, {**kept, "estimator": "OfTheFuture"}, arrays)
    with pytest.raises(FileFormatError, match="OfTheFuture"):
        bhclust.load(bad)
    for key in ("parameters", "model", "tree", "schema"):
        damaged = {name: value for name, value in kept.items() if name != key}
        write_archive(bad, damaged, arrays)
        with pytest.raises(FileFormatError, match=r"bad\.npz"):
            bhclust.load(bad)
    for name in ("labels", "leaf_rows", "tree.parent"):
        write_archive(bad, kept, {key: array for key, array in arrays.items() if key != name})
        with pytest.raises(FileFormatError, match=r"bad\.npz"):
            bhclust.load(bad)
    write_archive(bad, kept, {**arrays, "labels": arrays["labels"][:-1]})
    with pytest.raises(FileFormatError, match=r"bad\.npz"):
        bhclust.load(bad)


def test_a_file_of_a_newer_release_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    monkeypatch.setattr(bhclust.io, "FORMAT_VERSION", 99)
    BayesianHierarchicalClustering().fit(POINTS).save(path)
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match=r"format version 99.*upgrade bhclust"):
        bhclust.load(path)


def test_nothing_is_left_of_a_failed_save(tmp_path, fitted):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot write"):
        fitted.save(tmp_path / "file" / "model.npz")
    with pytest.raises(OSError, match="create it first"):
        fitted.save(tmp_path / "absent" / "model.npz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    with pytest.raises(NotFittedError):
        BayesianHierarchicalClustering().save(tmp_path / "model.npz")


def test_a_loaded_tree_is_a_tree(tmp_path, fitted):
    fitted.tree_.save(tmp_path / "tree.npz")
    assert isinstance(bhclust.load(tmp_path / "tree.npz"), Tree)


@pytest.mark.parametrize("name", SAVED)
def test_pickle_and_joblib(tmp_path, name):
    model, X = SAVED[name]
    fitted = BayesianRoseTree(model).fit(X)
    joblib.dump(fitted, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        for found, expected in zip(predictions(other, X), predictions(fitted, X), strict=True):
            assert np.array_equal(found, expected)


def test_clone_forgets_the_fit_and_keeps_the_settings(fitted):
    other = clone(fitted.set_params(verbose=False))
    assert other.get_params() == fitted.get_params()
    assert not hasattr(other, "tree_")
    with pytest.raises(NotFittedError):
        other.predict(POINTS)


def test_grid_search_over_alpha():
    search = GridSearchCV(
        BayesianHierarchicalClustering("diagonal_gaussian", learn=False),
        {"alpha": [0.01, 1.0, 100.0]},
        cv=3,
    )
    search.fit(np.random.default_rng(0).permutation(POINTS))
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3
    assert search.best_estimator_.alpha_ == search.best_params_["alpha"]


def test_pipelines():
    pipeline = make_pipeline(StandardScaler(), BayesianHierarchicalClustering())
    labels = pipeline.fit_predict(POINTS)
    assert np.bincount(labels).tolist() == [8, 5, 3]
    assert np.array_equal(pipeline.predict(POINTS), labels)
    assert np.isfinite(pipeline.score(POINTS))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_one_row_is_a_tree_of_one_leaf(kind):
    for row in ([[1.5, 2.5]], [[1, 0]], [["a", None]], [[3, 4]]):
        fitted = kind().fit(row)
        assert fitted.tree_.parent.tolist() == [-1]
        assert fitted.labels_.tolist() == [0]
        assert fitted.n_clusters_distribution().tolist() == [0.0, 1.0]
        assert fitted.co_clustering(0, 0) == 1
        assert fitted.predict(row).tolist() == [0]
        assert len(fitted.sample(2)) == 2
        with pytest.raises(ValueError, match="leaf: there is no split"):
            fitted.explain()
