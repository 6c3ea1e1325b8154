"""Models side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bhclust import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    compare,
)
from bhclust._validation import BhclustError
from bhclust.models import DiagonalGaussian, Gaussian


@pytest.fixture(scope="module")
def slanted():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, -4.0]])
    noise = rng.normal(size=(60, 2)) @ [[1.0, 0.95], [0.0, 0.3]]
    return centres[rng.integers(2, size=60)] + noise


@pytest.fixture(scope="module")
def result(slanted):
    models = {
        "diagonal": BayesianHierarchicalClustering("diagonal_gaussian", n_restarts=0),
        "full": Gaussian(),
        "fixed": BayesianHierarchicalClustering("gaussian", learn=False),
        "rose": BayesianRoseTree("gaussian"),
    }
    return compare(models, slanted, n_folds=3)


def test_the_right_model_wins(result):
    assert result["full"].log_evidence > result["diagonal"].log_evidence + 3
    assert result["full"].heldout > result["diagonal"].heldout
    assert result.best is result.rows[0]
    assert result.best.heldout == max(row.heldout for row in result)
    assert len(result) == 4


def test_rows_are_those_of_the_estimators(result, slanted):
    again = BayesianHierarchicalClustering(Gaussian()).fit(slanted)
    row = result["full"]
    assert row.log_evidence == again.log_evidence_bound_
    assert row.n_clusters == again.n_clusters_ == row.estimator.n_clusters_
    assert (row.evidence_kind, result["rose"].evidence_kind) == ("bound", "tree")
    assert result["rose"].log_evidence == result["rose"].estimator.log_evidence_
    assert result["full"].log_evidence >= result["fixed"].log_evidence


def test_held_out_density_by_hand(slanted):
    """Two folds, both fitted by hand."""
    estimator = BayesianHierarchicalClustering("diagonal_gaussian", learn=False)
    row = compare({"one": estimator}, slanted, n_folds=2, random_state=3)["one"]
    order = np.random.default_rng(3).permutation(60)
    first, second = order[0::2], order[1::2]
    density = np.empty(60)
    density[first] = estimator.fit(slanted[np.sort(second)]).score_samples(slanted[first])
    density[second] = estimator.fit(slanted[np.sort(first)]).score_samples(slanted[second])
    assert row.heldout == pytest.approx(density.mean())
    assert row.heldout_error == pytest.approx(density.std() / np.sqrt(59))


def test_it_prints_and_converts(result):
    text = repr(result).splitlines()
    assert text[0].split()[0] == "model"
    assert [line.split()[0] for line in text[1:]] == [row.name for row in result.rows]
    records = result.to_records()
    assert [record["name"] for record in records] == [row.name for row in result.rows]
    assert "estimator" not in records[0]
    with pytest.raises(KeyError):
        result["nobody"]


def test_frames_and_weights(slanted):
    frame = pd.DataFrame(slanted, columns=["x", "y"])
    weight = np.ones(60)
    settings = {"one": BayesianHierarchicalClustering(learn=False)}
    plain = compare(settings, frame, n_folds=3, sample_weight=weight)["one"]
    array = compare(settings, slanted, n_folds=3)["one"]
    listed = compare(settings, slanted.tolist(), n_folds=3)["one"]
    columns = {"x": slanted[:, 0].tolist(), "y": slanted[:, 1].tolist()}
    mapped = compare(settings, columns, n_folds=3)["one"]
    for other in (array, listed, mapped):
        assert other.heldout == pytest.approx(plain.heldout)
    weight[:30] = 3
    assert compare(settings, frame, n_folds=3, sample_weight=weight)["one"].heldout != plain.heldout


@pytest.mark.parametrize(
    ("models", "folds", "message"),
    [
        ([DiagonalGaussian()], 2, "compare takes a dictionary"),
        ({}, 2, "compare takes a dictionary"),
        ({"a": 3}, 2, "'a' must be a model, the name of one, or an estimator, got 3"),
        ({"a": "gaussian"}, 1, "n_folds must be a whole number, at least 2"),
    ],
)
def test_mistakes_are_named(models, folds, message):
    with pytest.raises(BhclustError, match=message):
        compare(models, np.zeros((5, 2)), n_folds=folds)


def test_a_fold_may_lack_a_category_or_look_like_another_kind():
    """One row has a colour of its own, and one a count above one: some fold lacks each."""
    rng = np.random.default_rng(1)
    colour = ["red" if value else "blue" for value in rng.integers(2, size=24)]
    colour[5] = "green"
    counts = rng.integers(2, size=24)
    counts[7] = 4
    table = {"colour": colour, "count": counts.tolist()}
    row = compare({"auto": BayesianHierarchicalClustering(learn=False)}, table, n_folds=3)["auto"]
    assert np.isfinite(row.heldout)
    # By hand, with the categories declared and the kind given.
    frame = pd.DataFrame(table).astype({"colour": pd.CategoricalDtype(["blue", "green", "red"])})
    kinds = {"colour": "categorical", "count": "count"}
    folds = np.empty(24, dtype=int)
    folds[np.random.default_rng(0).permutation(24)] = np.arange(24) % 3
    density = np.empty(24)
    for fold in range(3):
        one = BayesianHierarchicalClustering(learn=False, column_kinds=kinds)
        one.fit(frame[folds != fold])
        density[folds == fold] = one.score_samples(frame[folds == fold])
    assert row.heldout == pytest.approx(density.mean())


def test_coalescent_clustering_takes_part(slanted):
    models = {"tree": CoalescentClustering(random_state=0), "clusters": "diagonal_gaussian"}
    result = compare(models, slanted, n_folds=2)
    assert (result["tree"].evidence_kind, result["clusters"].evidence_kind) == ("tree", "bound")
    assert np.isfinite(result["tree"].heldout)
    with pytest.raises(BhclustError, match="takes no sample_weight"):
        compare(models, slanted, sample_weight=np.full(60, 2.0))
