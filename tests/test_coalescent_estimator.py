"""`CoalescentClustering`: tables in, trees out, and one clear sentence where that cannot be."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from bhclust import io as archive
from bhclust._validation import BhclustError
from bhclust.coalescent import (
    Brownian,
    Mutation,
    Predictor,
    draw_posterior,
    log_prior,
    sample_tree,
)
from bhclust.coalescent.fit import INFERENCES, ProgressBar
from bhclust.estimators.coalescent import CoalescentClustering


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2)) + np.repeat([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]], 8, axis=0)
    return X, np.repeat([0, 1, 2], 8)


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(1)
    centres = np.repeat(np.eye(3), 5, axis=1)[np.repeat([0, 1, 2], 7)]
    return np.abs(centres - (rng.random(centres.shape) < 0.05)), np.repeat([0, 1, 2], 7)


@pytest.mark.parametrize("inference", INFERENCES)
def test_all_inferences_have_the_common_surface(inference, blobs, words):
    for (X, y), kind in ((blobs, Brownian), (words, Mutation)):
        model = CoalescentClustering(
            inference=inference, n_particles=12, n_clusters=3, max_iter=1, random_state=0
        ).fit(X)
        assert isinstance(model.process_, kind)
        assert model.model_ is model.process_
        model.tree_.validate()
        assert model.tree_.n_leaves == len(X)
        assert model.labels_.shape == (len(X),)
        assert model.n_clusters_ == 3
        assert (model.posterior_ is None) == inference.startswith("greedy")
        expected = log_prior(model.tree_) + model.process_.log_likelihood(model.tree_, X)
        assert model.log_joint_ == pytest.approx(expected)
        assert np.isfinite(model.log_evidence_)
        assert model.predict(X).shape == (len(X),)
        assert np.isfinite(model.score_samples(X + 0)).all()
        assert model.score(X) == pytest.approx(model.score_samples(X).mean())
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
        assert model.sample(5).shape == (5, X.shape[1])
        if inference == "greedy-rate1":
            pairs = model.labels_[:, None] == model.labels_[None, :]
            assert np.array_equal(pairs, y[:, None] == y[None, :])
            assert np.array_equal(model.predict(X), model.labels_)


def test_log_evidence_of_a_sampler_is_its_estimate(blobs):
    X = blobs[0][:6]
    model = CoalescentClustering(
        Brownian(4.0), inference="smc-race", n_particles=400, learn=False, random_state=1
    ).fit(X)
    assert model.log_evidence_ == model.posterior_.log_evidence
    other = CoalescentClustering(
        Brownian(4.0), inference="smc-postpost", n_particles=400, learn=False, random_state=2
    ).fit(X)
    assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=0.5)
    matrix = model.co_clustering_matrix()
    assert matrix.shape == (6, 6)
    assert np.allclose(matrix, matrix.T)
    assert ((matrix >= 0) & (matrix <= 1 + 1e-12)).all()


def test_score_samples_averages_over_trees(blobs):
    X = blobs[0][:8]
    model = CoalescentClustering(inference="smc-race", n_particles=10, random_state=0).fit(X)
    new = X[:3] + 0.5
    densities = [
        weight * np.exp(Predictor(model.process_, tree, X).log_density(new))
        for tree, weight in zip(model.posterior_, model.posterior_.weights, strict=True)
    ]
    np.testing.assert_allclose(
        model.score_samples(new), np.log(np.sum(densities, axis=0)), rtol=1e-3
    )


def test_cut_never_refits(blobs):
    X, _ = blobs
    model = CoalescentClustering().fit(X)
    tree = model.tree_
    for k in (1, 2, 5, len(X)):
        assert len(set(model.cut(n_clusters=k))) == k
    assert len(set(model.cut(threshold=np.inf))) == 1
    assert len(set(model.cut(threshold=-np.inf))) == len(X)
    assert model.tree_ is tree


# -- tables -------------------------------------------------------------------------------------


def test_data_frames_strings_and_sparse(words):
    X, _ = words
    frame = pd.DataFrame(X.astype(bool), columns=[f"w{j}" for j in range(X.shape[1])])
    frame.index = [f"doc{i}" for i in range(len(X))]
    plain = CoalescentClustering().fit(X)
    for other in (frame, pl.DataFrame(X.astype(bool)), sparse.csr_array(X), X.tolist()):
        assert (
            CoalescentClustering().fit(other).tree_.parent.tolist() == plain.tree_.parent.tolist()
        )
    assert CoalescentClustering().fit(frame).tree_.leaf_names[0] == "doc0"
    colours = pd.DataFrame({"a": ["red", "blue", "red", None], "b": ["x", "x", "y", "z"]})
    model = CoalescentClustering().fit(colours)
    assert isinstance(model.process_, Mutation)
    assert model.process_.n_states == (2, 3)
    filled = model.impute()
    assert filled["a"].notna().all()
    assert filled["a"].tolist()[:3] == ["red", "blue", "red"]
    assert set(model.sample(20)["b"]) <= {"x", "y", "z"}
    parts = model.impute_distribution()
    assert [part.shape for part in parts] == [(4, 2), (4, 3)]
    np.testing.assert_allclose(parts[0].sum(axis=1), 1.0)


def test_mixed_kinds_name_the_way_out():
    mixed = pd.DataFrame({"size": [1.5, 2.5, 3.5], "colour": ["r", "g", "r"]})
    with pytest.raises(BhclustError, match=r"'size'.*'colour'.*BayesianHierarchicalClustering"):
        CoalescentClustering().fit(mixed)


def test_beside_numbers_zero_and_one_are_numbers():
    rng = np.random.default_rng(4)
    flags = np.column_stack([rng.normal(size=12), rng.integers(0, 2, 12)])
    table = pd.DataFrame({"size": flags[:, 0], "flag": flags[:, 1] == 1})
    named = CoalescentClustering("brownian").fit(flags)
    for X in (flags, table):
        fitted = CoalescentClustering().fit(X)
        assert isinstance(fitted.process_, Brownian)
        np.testing.assert_array_equal(fitted.tree_.parent, named.tree_.parent)
    holes = table.astype({"flag": "object"})
    holes.loc[0, "flag"] = None
    assert 0 <= CoalescentClustering().fit(holes).impute()["flag"][0] <= 1
    digits = np.array([[3, 1], [2, 1], [3, 5]])
    assert CoalescentClustering("mutation").fit(digits).process_.n_states == (2, 2)


def test_imputation_of_fitted_and_of_new_rows():
    rng = np.random.default_rng(2)
    tree = sample_tree(40, rng)
    scales = np.repeat([1.0, 4.0], 4)
    full = Brownian(scales).resolve(np.zeros((1, 8))).simulate(tree, rng)
    X = full.copy()
    gone = rng.random(X.shape) < 0.15
    X[gone] = np.nan
    model = CoalescentClustering().fit(X)
    filled = model.impute()
    assert np.array_equal(filled[~gone], X[~gone])
    error = ((filled - full)[gone] ** 2).mean()
    mean_error = ((np.nanmean(X, axis=0) - full)[gone] ** 2).mean()
    assert error < 0.6 * mean_error
    moments = model.impute_distribution()
    inside = np.abs(filled - full)[gone] < 3 * np.sqrt(moments.variance[gone])
    assert inside.mean() > 0.85
    assert np.isfinite(model.heldout_log_likelihood(full))
    per_entry = model.process_.heldout(model.tree_, X, full)
    assert np.isfinite(per_entry[gone]).all()
    new = np.where(np.arange(8) == 1, np.nan, full[:1])
    assert np.isfinite(model.impute(new)).all()
    placed = model.nearest_branch(full[:2])
    assert placed.branch.shape == (2,)
    with pytest.raises(BhclustError, match="fitted values"):
        model.heldout_log_likelihood(full + 1)


# -- awkward tables -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inference", ["greedy-rate1", "greedy-maxprob", "smc-race", "smc-postpost"]
)
def test_awkward_tables_work(inference):
    rng = np.random.default_rng(3)
    tables = {
        "one row": np.array([[1.5, 2.5]]),
        "two rows": np.array([[1.5, 2.5], [0.5, 1.5]]),
        "one column": rng.normal(size=(6, 1)),
        "duplicates": np.repeat(rng.normal(size=(3, 2)), 3, axis=0),
        "all the same": np.full((5, 2), 1.5),
        "constant column": np.column_stack([rng.normal(size=6), np.full(6, 2.5)]),
        "empty row": np.vstack([rng.normal(size=(5, 2)), [np.nan, np.nan]]),
        "empty column": np.column_stack([rng.normal(size=6), np.full(6, np.nan)]),
        "offset": rng.normal(size=(6, 2)) + 1e8,
        "binary, constant": np.column_stack([rng.integers(2, size=6), np.ones(6)]).astype(float),
        "binary, one row": np.array([[0.0, 1.0]]),
        "binary, duplicates": np.repeat(np.eye(3), 3, axis=0),
        "binary, empty row": np.vstack([np.eye(3), np.full(3, np.nan)]),
    }
    for name, X in tables.items():
        model = CoalescentClustering(inference=inference, n_particles=8, random_state=0).fit(X)
        assert model.tree_.n_leaves == len(X), name
        assert len(model.labels_) == len(X), name
        assert np.isfinite(model.log_joint_), name
        assert np.isfinite(model.log_evidence_), name
        assert np.isfinite(model.score_samples(X[:1] + 0.0)).all(), name
        assert not np.isnan(model.impute()).any(), name
        assert model.predict(X).shape == (len(X),), name


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"inference": "greedy"}, "inference must be one of"),
        ({"process": "levy"}, "process must be one of"),
        ({"n_clusters": 0}, "n_clusters must be a whole number"),
        ({"n_particles": 0}, "n_particles must be a whole number"),
        ({"max_iter": -1}, "max_iter must be a whole number"),
        ({"learn": "all"}, "learn"),
        ({"process": Brownian(structure="full")}, 'structure="diagonal"'),
    ],
)
def test_bad_parameters(kwargs, match):
    X = np.array([[0.5, np.nan], [1.5, 2.0], [2.5, 2.0]])
    with pytest.raises(BhclustError, match=match):
        CoalescentClustering(**kwargs).fit(X)


def test_bad_tables():
    with pytest.raises(ValueError, match="infinite"):
        CoalescentClustering().fit([[1.5, np.inf], [0.5, 1.0]])
    model = CoalescentClustering().fit([["a"], ["b"], ["a"]])
    with pytest.raises(BhclustError, match="'c'"):
        model.predict([["c"]])
    with pytest.raises(ValueError, match="features"):
        CoalescentClustering().fit([[1.5, 2.0], [0.5, 1.0]]).predict([[1.0]])


# -- the rest -----------------------------------------------------------------------------------


def test_reproducible_from_random_state(blobs):
    X = blobs[0][:8]
    first, second, third = (
        CoalescentClustering(
            inference="smc-race", n_particles=10, random_state=seed, n_jobs=jobs
        ).fit(X)
        for seed, jobs in ((3, 1), (3, 2), (4, 1))
    )
    assert first.log_evidence_ == second.log_evidence_
    assert first.log_evidence_ != third.log_evidence_
    generator = np.random.default_rng(0)
    assert CoalescentClustering(inference="smc-race", random_state=generator).fit(X).n_iter_ >= 1


def test_learning_is_what_was_left_open():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 2)) * [1.0, 5.0]
    given = CoalescentClustering(Brownian([1.0, 2.0])).fit(X)
    assert given.process_.covariance.tolist() == [1.0, 2.0]
    assert given.n_iter_ == 1
    forced = CoalescentClustering(Brownian([1.0, 2.0]), learn=True).fit(X)
    assert forced.process_.covariance.tolist() != [1.0, 2.0]
    assert max(forced.objectives_) > forced.objectives_[0]


def test_progress_and_words(blobs, capsys):
    X = blobs[0][:6]
    CoalescentClustering(inference="smc-race", n_particles=4, max_iter=0, verbose=True).fit(X)
    captured = capsys.readouterr()
    assert "5/5" in captured.err
    assert "clusters" in captured.out
    stream = io.StringIO()
    bar = ProgressBar("title", stream, width=4)
    for k in range(1, 9):
        bar(k, 8)
    assert stream.getvalue().count("\r") == 5
    assert stream.getvalue().endswith("#### 8/8\n")


@pytest.mark.parametrize("inference", ["greedy-rate1", "smc-race"])
@pytest.mark.parametrize("kind", ["brownian", "mutation"])
def test_save_and_load(tmp_path, inference, kind, blobs, words):
    X = blobs[0] if kind == "brownian" else words[0]
    model = CoalescentClustering(inference=inference, n_particles=5, random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    again = CoalescentClustering.from_archive(*archive.read_archive(tmp_path / "model.npz"))
    assert again.tree_.parent.tolist() == model.tree_.parent.tolist()
    assert again.labels_.tolist() == model.labels_.tolist()
    np.testing.assert_allclose(again.score_samples(X[:4]), model.score_samples(X[:4]))
    assert again.log_evidence_ == pytest.approx(model.log_evidence_)
    assert again.log_joint_ == pytest.approx(model.log_joint_)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.tree_.parent.tolist() == model.tree_.parent.tolist()


def test_picture_of_uncertainty(blobs):
    import matplotlib

    matplotlib.use("Agg")
    X = blobs[0][:6]
    model = CoalescentClustering(inference="smc-race", n_particles=15, random_state=0).fit(X)
    ax = draw_posterior(model.posterior_)
    weighted = int((model.posterior_.weights > 0).sum())
    assert len(ax.collections) == weighted + 1
    assert len(ax.get_xticklabels()) == 6
    matplotlib.pyplot.close(ax.figure)


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_the_unit_of_a_table_changes_nothing(unit, structure):
    X = np.random.default_rng(0).normal(size=(24, 3)) + np.repeat([[0.0], [6.0]], 12, axis=0)
    one = CoalescentClustering(Brownian(structure=structure)).fit(X)
    other = CoalescentClustering(Brownian(structure=structure)).fit(X * unit)
    np.testing.assert_array_equal(other.tree_.parent, one.tree_.parent)
    np.testing.assert_array_equal(other.labels_, one.labels_)
    shift = X.shape[1] * np.log(unit)
    np.testing.assert_allclose(other.score_samples(X * unit), one.score_samples(X) - shift)
