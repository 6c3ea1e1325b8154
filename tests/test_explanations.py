"""Explanations: contributions by another route, directions against the raw data."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import bhclust
from bhclust import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    posterior,
)
from bhclust.datasets import make_blocks, make_mixed_table
from bhclust.explanations import (
    FeatureContribution,
    explain_cluster,
    explain_nodes,
    label_nodes,
)
from bhclust.models import (
    Bernoulli,
    ClusterModel,
    DiagonalGaussian,
    FeatureLevels,
    GaussianProcessExpert,
    Mixed,
    Multinomial,
    TimeSeries,
    check_model,
)
from bhclust.tables import read_table
from tests.zoo import MODELS_AND_HOLES, make_case

ESTIMATORS = [BayesianHierarchicalClustering, BayesianRoseTree]
MIXED = make_mixed_table(50, missing=0.15, random_state=2).columns


@pytest.mark.parametrize(("name", "missing"), MODELS_AND_HOLES)
def test_levels_are_what_the_rows_say(name, missing):
    case = make_case(name, 9, np.random.default_rng(3), missing)
    model, X = case
    union = model.suffstats(X[:1])
    for i in range(1, 6):
        union = model.merge(union, model.suffstats(X[i : i + 1]))
    levels = model.feature_levels(union)
    assert len(levels.quantity) == X.shape[1]
    rows = X[:6]
    expected = []
    if name == "multinomial":
        counts = np.nansum(rows, axis=0)
        expected = (counts / counts.sum()).tolist()
    elif name.endswith("time_series"):
        times = np.asarray(model.times)
        expected = [np.nanmean(rows[:, times == t]) for t in times]
    elif name == "categorical":
        for j, n_categories in enumerate((3, 2, 4)):
            seen = rows[~np.isnan(rows[:, j]), j]
            expected += [np.mean(seen == code) for code in range(n_categories)]
    else:
        expected = np.nanmean(rows, axis=0).tolist()
    assert levels.value[0] == pytest.approx(expected)
    check_model(model, X)


def test_levels_of_nothing_are_not_a_number():
    X = np.array([[1.0, np.nan], [0.0, np.nan], [1.0, 0.0]])
    for model in (Bernoulli(), DiagonalGaussian()):
        resolved = model.resolve(X)
        levels = resolved.feature_levels(resolved.suffstats(X[:2]))
        assert np.isnan(levels.value[:, 1]).all()
        assert not np.isnan(levels.value[:, 0]).any()
    experts = GaussianProcessExpert().resolve(np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 2.0]]))
    both = experts.union(experts.suffstats(np.array([[0.0, 1.0], [2.0, 2.0]])))
    assert experts.feature_levels(both).value[0] == pytest.approx([1.0, 1.5])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_many_nodes_at_once_are_what_each_says_alone(kind):
    fitted = kind().fit(MIXED)
    tree, model = fitted.tree_, fitted.model_
    explained = explain_nodes(fitted, top=99)
    assert [one.node for one in explained] == list(range(tree.n_leaves, tree.n_nodes))
    for one in explained:
        assert one.children == tuple(tree.children(one.node))
        assert one.features == fitted.explain(one.node, top=99)
        # The contributions add up to the log Bayes factor, by the log marginals of the search.
        total = sum(record.log_bayes_factor for record in one.features)
        log_f = tree.log_marginal
        assert total == pytest.approx(log_f[list(one.children)].sum() - log_f[one.node], abs=1e-6)
        plain = posterior.split_contributions(tree, model, one.node)
        by_name = dict(zip(fitted.schema_.names, plain, strict=True))
        for record in one.features:
            assert record.log_bayes_factor == pytest.approx(by_name[record.feature], abs=1e-9)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_directions_are_those_of_the_rows(kind):
    fitted = kind().fit(MIXED)
    tree = fitted.tree_
    frame = pd.DataFrame(MIXED)
    for one in explain_nodes(fitted, top=99):
        parts = [frame.iloc[tree.leaves(child)] for child in one.children]
        for record in one.features:
            columns = [part[record.feature].dropna().tolist() for part in parts]
            if not any(columns):
                assert record.levels == (None,) * len(columns)
                continue
            if record.category is None:
                expected = [np.mean(column) if column else None for column in columns]
                assert record.quantity in ("share of ones", "mean", "mean count")
            else:
                shares = [
                    {name: count / len(column) for name, count in Counter(column).items()}
                    for column in columns
                ]
                seen = [share for share in shares if share]
                gaps = {
                    name: max(s.get(name, 0.0) for s in seen) - min(s.get(name, 0.0) for s in seen)
                    for name in frame[record.feature].dropna().unique()
                }
                assert gaps[record.category] == pytest.approx(max(gaps.values()))
                expected = [share.get(record.category, 0.0) if share else None for share in shares]
                assert record.quantity == f"share of {record.category!r}"
            assert record.levels == pytest.approx(tuple(expected))


def test_clusters_against_the_rest():
    fitted = BayesianHierarchicalClustering().fit(MIXED)
    frame = pd.DataFrame(MIXED)
    for label in range(fitted.n_clusters_):
        inside = fitted.labels_ == label
        for record in fitted.explain_cluster(label, top=99):
            if record.category is not None:
                continue
            column = frame[record.feature].astype(float)
            expected = (column[inside].mean(), column[~inside].mean())
            assert record.levels == pytest.approx(expected)
    assert fitted.explain_cluster(0, top=2) == explain_cluster(fitted, 0, top=2)


def test_time_series_sparse_text_and_files(tmp_path):
    t = np.linspace(0, 6, 9)
    rng = np.random.default_rng(0)
    curves = np.sin(t + np.pi * (np.arange(24) % 2)[:, None]) + 0.1 * rng.normal(size=(24, 9))
    fitted = BayesianHierarchicalClustering(TimeSeries(times=t)).fit(curves)
    best = fitted.explain(top=1)[0]
    children = fitted.tree_.children(fitted.tree_.n_nodes - 1)
    column = int(best.feature.removeprefix("x"))
    assert best.levels == pytest.approx(
        [curves[fitted.tree_.leaves(child), column].mean() for child in children]
    )
    counts = scipy.sparse.csr_array(rng.poisson(0.3, (30, 40)).astype(float))
    words = BayesianHierarchicalClustering(Multinomial()).fit(counts)
    dense = BayesianHierarchicalClustering(Multinomial()).fit(counts.toarray())
    assert words.explain(top=5) == dense.explain(top=5)
    assert words.explain(top=1)[0].quantity == "share of the counts"
    guests = BayesianRoseTree().fit(MIXED)
    guests.save(tmp_path / "model.npz")
    again = bhclust.load(tmp_path / "model.npz")
    assert again.explain(top=99) == guests.explain(top=99)
    assert again.explain_cluster(0) == guests.explain_cluster(0)
    assert label_nodes(again) == label_nodes(guests)


class Plain(ClusterModel):
    """A model of one's own that factorises over nothing: the normal of the row sums."""

    def suffstats(self, X):
        total = np.asarray(X, dtype=float).sum(axis=1, keepdims=True)
        return np.hstack([np.ones_like(total), total, total**2])

    def log_marginal(self, stats):
        n, total, square = stats.T
        spread = square - total**2 / (n + 1)
        return -0.5 * (n * np.log(2 * np.pi) + np.log(n + 1) + spread)


class Directed(DiagonalGaussian):
    """A subclass that tells nothing of its levels."""

    def feature_levels(self, stats):
        return None


def test_models_of_ones_own_have_no_direction_unless_they_give_it():
    X = np.random.default_rng(1).normal(size=(10, 3)) + 5 * (np.arange(10) % 2)[:, None]
    (record,) = BayesianHierarchicalClustering(Plain(), learn=False).fit(X).explain()
    assert record == FeatureContribution("all features", record.log_bayes_factor)
    assert record.phrase() == "all features"
    assert record.highest is None
    without = BayesianHierarchicalClustering(Directed()).fit(X)
    assert {r.levels for r in without.explain()} == {()}
    assert label_nodes(without) == {}
    partly = Mixed([(Directed(), [0, 1]), (DiagonalGaussian(), [2])])
    mixed = BayesianHierarchicalClustering(partly).fit(X)
    assert {r.feature for r in mixed.explain() if r.levels} == {"x2"}


class Broken(DiagonalGaussian):
    """Levels that do not fit the table."""

    def feature_levels(self, stats):
        return FeatureLevels(np.zeros((len(stats), 2)), np.array([1, 0]), ("a", "b"))


def test_check_model_looks_at_levels():
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match="feature must rise within 0 … 1"):
        check_model(Broken(), X)
    with pytest.raises(ValueError, match="quantity must have 3 entries"):
        check_model(Broken(), np.hstack([X, X[:, :1]]))


def test_words_for_nodes_say_what_is_there_more_often():
    X = make_blocks(random_state=0).X
    names = [f"w{j}" for j in range(X.shape[1])]
    fitted = BayesianHierarchicalClustering().fit(pd.DataFrame(X, columns=names))
    tree = fitted.tree_
    words = label_nodes(fitted, top=2)
    assert words
    for node, text in words.items():
        siblings = [k for k in tree.children(tree.parent[node]) if k != node]
        for word in text.split(", "):
            j = names.index(word)
            here = X[tree.leaves(node), j].mean()
            assert all(here > X[tree.leaves(k), j].mean() for k in siblings)
    arrows = label_nodes(fitted, [tree.n_nodes - 2], top=1, lower=True)
    assert arrows[tree.n_nodes - 2][-1] in "↑↓"
    guests = BayesianHierarchicalClustering().fit(MIXED)
    top = guests.tree_.children(guests.tree_.n_nodes - 1).tolist()
    assert any("=" in text for text in label_nodes(guests, top, top=9).values())


def test_ties_and_missing_levels_have_no_highest():
    assert FeatureContribution("a", 1.0, "mean", (1.0, None, 3.0)).highest == 2
    assert FeatureContribution("a", 1.0, "mean", (1.0, None, 3.0)).lowest == 0
    assert FeatureContribution("a", 1.0, "mean", (3.0, 3.0, 1.0)).highest is None
    assert FeatureContribution("a", 1.0, "mean", (3.0, None)).highest is None
    assert FeatureContribution("a", 1.0, "mean", (3.0, None)).phrase() == "a: mean 3 | no value"
    feature, factor, *_ = FeatureContribution("a", 1.0)
    assert (feature, factor) == ("a", 1.0)


def test_bad_input_is_one_clear_sentence():
    X = make_blocks(4, 2, 4, random_state=0).X
    fitted = BayesianHierarchicalClustering().fit(X)
    with pytest.raises(ValueError, match="node 0 is a leaf: there is no split"):
        fitted.explain(0)
    with pytest.raises(ValueError, match="node must be a whole number"):
        fitted.explain(99)
    with pytest.raises(ValueError, match="top must be a whole number"):
        explain_nodes(fitted, top=0)
    with pytest.raises(ValueError, match="a node must be a whole number"):
        label_nodes(fitted, ["root"])
    for thing in (object(), BayesianRoseTree(), CoalescentClustering(n_clusters=2).fit(X)):
        with pytest.raises(ValueError, match="explanations need a fitted Bayesian"):
            explain_nodes(thing)
    one = BayesianHierarchicalClustering(n_clusters=1).fit(X)
    with pytest.raises(ValueError, match="only one cluster"):
        one.explain_cluster(0)
    assert explain_nodes(BayesianHierarchicalClustering().fit(X[:1])) == []


def test_a_column_of_numbers_declared_categorical_names_its_category():
    X = np.array([[3, 0.0], [3, 0.1], [7, 9.0], [7, 9.1], [7, 9.2]])
    fitted = BayesianHierarchicalClustering(column_kinds={0: "categorical", 1: "real"}).fit(X)
    record = next(r for r in fitted.explain() if r.feature == "x0")
    assert record.category in (3, 7)
    assert sorted(record.levels) == [0.0, 1.0]
    assert read_table(X, kinds={0: "categorical"}).columns[0].categories == (3, 7)
