"""Greedy searches against naive ones, durations against grids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bhclust._validation import BhclustError
from bhclust.coalescent import Brownian, Mutation, greedy, greedy_tree, log_prior, sample_tree
from bhclust.coalescent._greedy_loops import rounded
from bhclust.coalescent._loops import best_duration, log_local, prepare_pair
from bhclust.coalescent.greedy import GREEDY, _turned
from tests.oracles import coalescent as oracle


def merges_of(tree):
    n = tree.n_leaves
    return [(frozenset(tree.leaves(k).tolist()), tree.height[k]) for k in range(n, tree.n_nodes)]


def assert_same_merges(tree, expected, tolerance=1e-7):
    for k, ((found, age), (wanted, at)) in enumerate(zip(merges_of(tree), expected, strict=True)):
        assert found == wanted, k
        assert age == pytest.approx(at, abs=tolerance, rel=tolerance), k


@pytest.mark.parametrize("seed", range(12))
def test_rate1_equals_naive(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 6)) + 45 * (seed % 4 == 1)
    tree = sample_tree(n, rng)
    X = Brownian(1.0).resolve(np.zeros((1, d))).simulate(tree, rng)
    if seed % 3 == 0:
        X = X + rng.normal(scale=4, size=(3, d))[rng.integers(3, size=n)]
    leaves = Brownian(1.0).resolve(X).leaves(X)
    assert_same_merges(greedy_tree(leaves), oracle.naive_rate1(leaves.messages))


@pytest.mark.parametrize("method", GREEDY)
def test_rows_longer_than_there_are_rows_may_be_turned(method, monkeypatch):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(30, 90)) + 3 * rng.normal(size=(4, 90))[rng.integers(4, size=30)]
    X = X[rng.integers(30, size=30)]  # some of them twice
    leaves = Brownian().resolve(X).leaves(X)
    assert _turned(leaves).messages.shape == (30, len(np.unique(X, axis=0)))
    found = merges_of(greedy_tree(leaves, method))
    monkeypatch.setattr(greedy, "_turned", lambda leaves: leaves)
    assert_same_merges(greedy_tree(leaves, method), found, 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_identical_rows_are_joined_first(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(3, size=(25, 2)).astype(float)
    process = Brownian(1.0).resolve(X)
    assert process.leaf_variance > 0
    merges = merges_of(greedy_tree(process.leaves(X)))
    values, counts = np.unique(X, axis=0, return_counts=True)
    groups = {
        frozenset(np.flatnonzero((value == X).all(axis=1)).tolist()) for value in values[counts > 1]
    }
    n_first = int((counts - 1).sum())
    early = [leaves for leaves, _ in merges[:n_first]]
    assert groups <= set(early)
    assert all(any(leaves <= group for group in groups) for leaves in early)
    assert all(age == 0 for _, age in merges[:n_first])


@pytest.mark.parametrize("seed", range(6))
def test_rate1_equals_naive_with_many_ties(seed):
    """Equal gaps on a line: every tie must fall to the same pair as in the naive search."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.choice(40, size=15, replace=False)).astype(float)[:, None]
    leaves = Brownian(4.0).resolve(X).leaves(X)
    assert_same_merges(greedy_tree(leaves), oracle.naive_rate1(leaves.messages))


def test_ties_go_to_the_lowest_pair():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    tree = greedy_tree(Brownian(1.0).resolve(X).leaves(X))
    assert merges_of(tree)[0][0] == {0, 1}
    # the same tree every time
    assert greedy_tree(Brownian(1.0).resolve(X).leaves(X)).parent.tolist() == tree.parent.tolist()


@pytest.mark.parametrize("method", GREEDY)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mutation_equals_naive(method, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 3, size=(6, 4))
    rates = rng.uniform(0.3, 2, size=4)
    equilibrium = rng.dirichlet([2, 2, 2], size=4)
    X = np.where(codes < 0, np.nan, codes).astype(float)
    leaves = Mutation(rates, equilibrium).resolve(X).leaves(X)
    expected = oracle.naive_mutation_greedy(codes, rates, equilibrium, method)
    assert_same_merges(greedy_tree(leaves, method), expected, 1e-5)


def test_missing_entries_change_nothing_where_nothing_is_missing():
    """The general search with one variance a column equals the closed form."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 3))
    process = Brownian(1.0).resolve(X)
    plain = process.leaves(X)
    # an all-missing column forces the general path, and carries no information
    wide = np.column_stack([X, np.full(20, np.nan)])
    general = Brownian(1.0).resolve(wide).leaves(wide)
    assert general.spec.kind != plain.spec.kind
    for method in GREEDY:
        a, b = greedy_tree(plain, method), greedy_tree(general, method)
        assert a.parent.tolist() == b.parent.tolist()
        np.testing.assert_allclose(a.height, b.height, rtol=1e-8)


@pytest.mark.parametrize("rate", [1.0, 7.0])
def test_gaussian_duration_is_the_maximum(rate):
    rng = np.random.default_rng(4)
    for _ in range(20):
        d = int(rng.integers(1, 6))
        X = rng.normal(size=(2, d))
        leaves = Brownian(1.0, leaf_variance=float(rng.exponential(0.1))).resolve(X).leaves(X)
        first, second = np.empty(d), np.empty(d)
        count = prepare_pair(
            leaves.spec, leaves.messages[0], leaves.spreads[0], 0.0,
            leaves.messages[1], leaves.spreads[1], 0.0, 0.0, first, second,
        )  # fmt: skip
        found = best_duration(leaves.spec, rate, first, second, count)
        expected = oracle.brownian_pair_duration(first[0], second[0], d, rate)
        assert found == pytest.approx(expected, abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([1.0, 3.0, 30.0]))
def test_newton_finds_the_highest_peak(seed, rate):
    """On sites and on rows with different variances a column, against a fine grid."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 8))
    codes = rng.integers(2, size=(2, d)).astype(float)
    mutation = Mutation(rng.uniform(0.1, 3, d), rng.dirichlet([2, 2], d)).resolve(codes)
    values = rng.normal(size=(2, d + 1))
    values[0, d] = np.nan
    brownian = Brownian(1.0, leaf_variance=0.01).resolve(values)
    for leaves in (mutation.leaves(codes), brownian.leaves(values)):
        first, second = np.empty(d + 1), np.empty(d + 1)
        base = float(rng.exponential(0.2)) * int(rng.integers(2))
        count = prepare_pair(
            leaves.spec, leaves.messages[0], leaves.spreads[0], 0.0,
            leaves.messages[1], leaves.spreads[1], 0.0, base, first, second,
        )  # fmt: skip
        grid = np.concatenate([[0.0], np.geomspace(1e-6, 10.0 * d, 2000)])
        values_on_grid = [log_local(leaves.spec, first, second, count, x) - rate * x for x in grid]
        found = best_duration(leaves.spec, rate, first, second, count)
        value = log_local(leaves.spec, first, second, count, found) - rate * found
        assert value >= max(values_on_grid) - 1e-9


@pytest.mark.parametrize("method", GREEDY)
def test_trees_are_valid_for_awkward_tables(method):
    rng = np.random.default_rng(5)
    tables = {
        "one row": np.array([[1.0, 2.0]]),
        "two rows": np.array([[1.0, 2.0], [0.0, 1.0]]),
        "duplicates": np.repeat(rng.normal(size=(3, 2)), 4, axis=0),
        "all the same": np.ones((5, 2)),
        "constant column": np.column_stack([rng.normal(size=6), np.ones(6)]),
        "empty row": np.vstack([rng.normal(size=(4, 2)), [np.nan, np.nan]]),
        "empty column": np.column_stack([rng.normal(size=6), np.full(6, np.nan)]),
        "all missing": np.full((3, 2), np.nan),
        "huge": rng.normal(size=(6, 2)) * 1e139,  # larger ones are refused
        "tiny": rng.normal(size=(6, 2)) * 1e-150,
    }
    for name, X in tables.items():
        tree = greedy_tree(Brownian().resolve(X).leaves(X), method)
        tree.validate()
        assert tree.n_leaves == len(X), name
        assert np.isfinite(tree.height).all(), name
        assert np.isfinite(log_prior(tree) + Brownian().resolve(X).log_likelihood(tree, X)), name
        codes = (np.nan_to_num(X, nan=0.0) > 0.5).astype(float)
        codes[np.isnan(X)] = np.nan
        mutation = Mutation().resolve(codes)
        tree = greedy_tree(mutation.leaves(codes), method)
        assert np.isfinite(mutation.log_likelihood(tree, codes)), name


def test_permuting_rows_and_columns_and_units_changes_nothing():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 4))
    tree = greedy_tree(Brownian().resolve(X).leaves(X))
    order = rng.permutation(30)
    other = greedy_tree(Brownian().resolve(X[order]).leaves(X[order]))
    sets = {frozenset(order[sorted(leaves)].tolist()) for leaves, _ in merges_of(other)}
    assert sets == {leaves for leaves, _ in merges_of(tree)}
    scaled = X[:, ::-1] * np.array([1e3, 1.0, 1e-3, 7.0]) + 5.0
    again = greedy_tree(Brownian().resolve(scaled).leaves(scaled))
    assert again.parent.tolist() == tree.parent.tolist()
    np.testing.assert_allclose(again.height, tree.height, rtol=1e-7, atol=1e-12)


def test_log_prior_is_that_of_the_waiting_times():
    rng = np.random.default_rng(7)
    for n in (2, 3, 9):
        tree = sample_tree(n, rng)
        assert log_prior(tree) == pytest.approx(oracle.log_coalescent(tree))
    ages = [sample_tree(6, rng).height[-1] for _ in range(4000)]
    # mean age of the root is 2 (1 - 1/n), its standard deviation about 1.08
    assert np.mean(ages) == pytest.approx(2 * (1 - 1 / 6), abs=4 * 1.1 / np.sqrt(4000))


def test_rounding_keeps_ten_digits_and_is_idempotent():
    for x in (0.0, 1.0, np.pi, -1e-12, 123456.789, np.inf, -np.inf):
        assert rounded(x) == rounded(rounded(x))
        if np.isfinite(x):
            assert rounded(x) == pytest.approx(x, rel=1e-10)
    assert rounded(1.0 + 1e-14) == 1.0


def test_unknown_method():
    X = np.array([[0.0], [1.0]])
    with pytest.raises(BhclustError, match="must be one of"):
        greedy_tree(Brownian().resolve(X).leaves(X), "greedy")


def test_progress_is_told_of_every_merger():
    X = np.arange(5.0)[:, None] ** 2
    seen = []
    greedy_tree(Brownian().resolve(X).leaves(X), progress=lambda k, n: seen.append((k, n)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
