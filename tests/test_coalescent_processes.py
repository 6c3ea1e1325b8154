"""Messages against dense Gaussians and enumeration; derivatives against differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bhclust._validation import BhclustError
from bhclust.coalescent import Brownian, Mutation, brownian
from bhclust.tree import Tree
from tests.oracles import coalescent as oracle


def holes(X, rng, share=0.3):
    out = np.array(X, dtype=float)
    out[rng.random(out.shape) < share] = np.nan
    return out


def random_covariance(d, rng):
    root = rng.normal(size=(d, d))
    return root @ root.T + 0.3 * np.eye(d)


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("leaf_variance", [0.0, 0.2])
def test_brownian_equals_dense_normal(structure, leaf_variance):
    rng = np.random.default_rng(0)
    for n, d in [(1, 2), (2, 1), (7, 3), (12, 2)]:
        tree = oracle.random_tree(n, rng)
        X = rng.normal(size=(n, d))
        if structure != "full":
            X = holes(X, rng)
        covariance = {
            "isotropic": 0.7,
            "diagonal": rng.uniform(0.5, 2, size=d),
            "full": random_covariance(d, rng),
        }[structure]
        mean = rng.normal(size=d)
        process = Brownian(covariance, 1.7, mean, leaf_variance).resolve(X)
        expected = oracle.brownian_log_density(tree, X, process.matrix, mean, 1.7, leaf_variance)
        assert process.log_likelihood(tree, X) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("root_variance", [None, 1.7])
def test_columns_in_blocks_say_the_same(root_variance, monkeypatch):
    rng = np.random.default_rng(11)
    tree = oracle.random_tree(9, rng)
    X = holes(rng.normal(size=(9, 7)), rng)
    process = Brownian(rng.uniform(0.5, 2, size=7), root_variance, leaf_variance=0.1).resolve(X)
    together = process.log_likelihood_ratio(tree, X)
    unit = process.contrasts(tree, X)
    # three columns at a time: the last block is narrower
    monkeypatch.setattr(brownian, "_BLOCK", 3 * tree.n_nodes)
    np.testing.assert_allclose(process.log_likelihood_ratio(tree, X), together, atol=1e-12)
    squares, counts = process.contrast_squares(tree, X)
    used = unit.variance > 0
    for j in range(7):
        difference, variance = unit.difference[used[:, j], j], unit.variance[used[:, j], j]
        assert squares[j] == pytest.approx(np.sum(difference**2 / variance), rel=1e-12)
        assert counts[j] == len(variance)
    if root_variance is not None:
        expected = oracle.brownian_log_density(
            tree, X, process.matrix, process.root_mean, root_variance, 0.1
        )
        assert process.log_likelihood(tree, X) == pytest.approx(expected, abs=1e-9)


def test_flat_root_is_the_density_of_contrasts():
    rng = np.random.default_rng(1)
    for n in (2, 3, 8):
        tree = oracle.random_tree(n, rng)
        X = rng.normal(size=(n, 2))
        covariance = random_covariance(2, rng)
        expected = oracle.contrast_log_density(tree, X, covariance)
        assert Brownian(covariance).resolve(X).log_likelihood(tree, X) == pytest.approx(
            expected, abs=1e-9
        )


def test_flat_root_is_the_limit_of_wide_priors_with_missing_entries():
    rng = np.random.default_rng(2)
    tree = oracle.random_tree(9, rng)
    X = holes(rng.normal(size=(9, 3)), rng)
    flat = Brownian(2.0).resolve(X)
    wide = replace(flat, root_variance=1e10)
    # each column with a value has one factor N(y; mean, 1e10 * 2), whose exponent vanishes
    seen = (~np.isnan(X)).any(axis=0).sum()
    shift = -0.5 * seen * np.log(2 * np.pi * 1e10 * 2)
    assert wide.log_likelihood(tree, X) - shift == pytest.approx(
        flat.log_likelihood(tree, X), abs=1e-7
    )


def test_any_arity_and_any_order_of_children():
    rng = np.random.default_rng(3)
    tree = Tree([5, 5, 5, 6, 6, 6, -1], n_leaves=5, height=[0, 0, 0, 0, 0, 0.4, 1.3])
    X = holes(rng.normal(size=(5, 2)), rng, 0.2)
    process = Brownian([0.5, 2.0], 1.0, [0.0, 0.0], 0.0).resolve(X)
    expected = oracle.brownian_log_density(tree, X, np.diag([0.5, 2.0]), np.zeros(2), 1.0, 0.0)
    assert process.log_likelihood(tree, X) == pytest.approx(expected, abs=1e-9)
    codes = np.array([[0, 1, -1, 2, 1]])
    sites = np.where(codes.T < 0, np.nan, codes.T)
    q = np.array([0.2, 0.5, 0.3])
    expected = np.log(oracle.site_likelihood(tree, codes[0], 0.8, q))
    assert Mutation(0.8, [q]).resolve(sites).log_likelihood(tree, sites) == pytest.approx(expected)


@pytest.mark.parametrize("n_states", [2, 3])
def test_mutation_equals_enumeration(n_states):
    rng = np.random.default_rng(4)
    for n in (1, 2, 4, 5):
        tree = oracle.random_tree(n, rng)
        d = 3
        rates = rng.uniform(0.2, 2, size=d)
        equilibrium = rng.dirichlet(np.ones(n_states) * 3, size=d)
        X = holes(rng.integers(n_states, size=(n, d)), rng, 0.25)
        process = Mutation(rates, equilibrium).resolve(X)
        expected = sum(
            np.log(
                oracle.site_likelihood(
                    tree, np.where(np.isnan(X[:, j]), -1, X[:, j]), rates[j], equilibrium[j]
                )
            )
            for j in range(d)
        )
        assert process.log_likelihood(tree, X) == pytest.approx(expected, abs=1e-9)
        # the same number by way of the nodes' likelihood ratios
        leaves = process.leaves(X)
        ratios = process.messages(tree, X).log_z
        assert leaves.log_offset + ratios.sum() == pytest.approx(expected, abs=1e-9)


def test_mutation_is_normalised_over_tables():
    rng = np.random.default_rng(5)
    tree = oracle.random_tree(4, rng)
    process = Mutation(0.7, [[0.3, 0.7]]).resolve(np.zeros((4, 1)))
    grid = np.array(np.meshgrid(*[[0.0, 1.0]] * 4)).reshape(4, -1)
    total = sum(np.exp(process.log_likelihood(tree, column[:, None])) for column in grid.T)
    assert total == pytest.approx(1.0, abs=1e-12)


def central(function, value, step=1e-6):
    value = np.asarray(value, dtype=float)
    out = np.empty(value.shape)
    for index in np.ndindex(value.shape):
        up, down = value.copy(), value.copy()
        up[index] += step
        down[index] -= step
        out[index] = (function(up) - function(down)) / (2 * step)
    return out


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("root_variance", [None, 0.8])
def test_brownian_gradient(structure, root_variance):
    rng = np.random.default_rng(6)
    tree = oracle.random_tree(8, rng)
    X = rng.normal(size=(8, 3))
    if structure != "full":
        X = holes(X, rng)
    process = Brownian(root_variance=root_variance, structure=structure).resolve(X)
    gradient = process.gradient(tree, X)

    def by(name):
        return lambda value: replace(process, **{name: value}).log_likelihood(tree, X)

    if structure == "full":
        # the density only sees the symmetric part, so differences move both entries at once
        for i in range(3):
            for j in range(i + 1):
                shift = np.zeros((3, 3))
                shift[i, j] = shift[j, i] = 1e-6
                change = by("covariance")(process.covariance + shift) - by("covariance")(
                    process.covariance - shift
                )
                expected = (gradient["covariance"] * (shift > 0)).sum()
                assert expected == pytest.approx(change / 2e-6, rel=1e-5, abs=1e-5)
    else:
        expected = central(by("covariance"), process.covariance)
        np.testing.assert_allclose(gradient["covariance"], expected, rtol=1e-5, atol=1e-6)
    if root_variance is None:
        assert set(gradient) == {"covariance"}
    else:
        np.testing.assert_allclose(
            gradient["root_variance"], central(by("root_variance"), 0.8), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            gradient["root_mean"], central(by("root_mean"), process.root_mean), rtol=1e-5, atol=1e-6
        )


def test_mutation_gradient_against_enumeration():
    rng = np.random.default_rng(7)
    tree = oracle.random_tree(4, rng)
    codes = np.array([0, 2, -1, 1])
    X = np.where(codes < 0, np.nan, codes)[:, None].astype(float)
    q = np.array([0.2, 0.3, 0.5])
    gradient = Mutation(0.9, [q]).resolve(X).gradient(tree, X)

    def log_likelihood(rate, equilibrium):
        return np.log(oracle.site_likelihood(tree, codes, rate, equilibrium))

    by_rate = central(lambda rate: log_likelihood(float(rate), q), 0.9)
    by_q = central(lambda value: log_likelihood(0.9, value), q)
    np.testing.assert_allclose(gradient["rate"], by_rate, rtol=1e-6)
    np.testing.assert_allclose(gradient["equilibrium"][0], by_q, rtol=1e-6)


def test_leaf_posteriors_against_dense_conditioning_and_enumeration():
    rng = np.random.default_rng(8)
    tree = oracle.random_tree(6, rng)
    X = holes(rng.normal(size=(6, 2)), rng)
    mean = np.array([0.3, -1.0])
    process = Brownian([0.5, 2.0], 1.2, mean, 0.0).resolve(X)
    moments = process.leaf_moments(tree, X)
    X_full = np.where(np.isnan(X), 0.25, X)
    heldout = process.heldout(tree, X, X_full)
    for i, d in np.argwhere(np.isnan(X)):
        expected = oracle.brownian_conditional(
            tree, X, np.diag([0.5, 2.0]), mean, 1.2, int(i), int(d)
        )
        assert (moments.mean[i, d], moments.variance[i, d]) == pytest.approx(expected, abs=1e-9)
        filled = X.copy()
        filled[i, d] = 0.25
        difference = process.log_likelihood(tree, filled) - process.log_likelihood(tree, X)
        assert heldout[i, d] == pytest.approx(difference, abs=1e-9)
    assert np.isnan(heldout[~np.isnan(X)]).all()

    sites = holes(rng.integers(3, size=(6, 2)), rng)
    mutation = Mutation([0.5, 1.5], rng.dirichlet([2, 2, 2], size=2)).resolve(sites)
    full = np.where(np.isnan(sites), 1.0, sites)
    heldout = mutation.heldout(tree, sites, full)
    for i, d in np.argwhere(np.isnan(sites)):
        filled = sites.copy()
        filled[i, d] = 1.0
        difference = mutation.log_likelihood(tree, filled) - mutation.log_likelihood(tree, sites)
        assert heldout[i, d] == pytest.approx(difference, abs=1e-9)


def test_likelihood_ratio_compares_one_root_with_two():
    rng = np.random.default_rng(9)
    tree = oracle.random_tree(5, rng)
    X = rng.normal(size=(5, 2))
    process = Brownian(1.0, 0.9, [0.1, 0.2], 0.0).resolve(X)
    ratio = process.log_likelihood_ratio(tree, X)
    assert np.isposinf(ratio[:5]).all()

    def alone(node):
        leaves = tree.leaves(node)
        return process.log_likelihood(tree.subtree(node), X[leaves])

    for node in range(5, tree.n_nodes):
        expected = alone(node) - sum(alone(int(c)) for c in tree.children(node))
        assert ratio[node] == pytest.approx(expected, abs=1e-9)


def test_simulation_has_the_right_covariance():
    rng = np.random.default_rng(10)
    tree = oracle.random_tree(4, rng)
    covariance = np.array([[1.0, 0.5], [0.5, 2.0]])
    process = Brownian(covariance, 0.5, [1.0, -1.0], 0.1).resolve(np.zeros((4, 2)) + rng.random())
    draws = np.array([process.simulate(tree, rng).ravel() for _ in range(20000)])
    expected = np.kron(oracle.shared_time(tree) + 0.5 + 0.1 * np.eye(4), covariance)
    # standard error of a covariance entry is at most sqrt(2) * largest variance / sqrt(draws)
    tolerance = 5 * np.sqrt(2) * expected.max() / np.sqrt(20000)
    assert np.abs(np.cov(draws.T) - expected).max() < tolerance
    mutation = Mutation(0.8, [[0.3, 0.7]]).resolve(np.zeros((4, 1)))
    tables = np.array([mutation.simulate(tree, rng).ravel() for _ in range(20000)])
    for codes in [(0, 0, 0, 0), (1, 0, 1, 1)]:
        share = (tables == codes).all(axis=1).mean()
        expected = oracle.site_likelihood(tree, codes, 0.8, [0.3, 0.7])
        assert abs(share - expected) < 4 * np.sqrt(expected / 20000)


def test_messages_survive_a_far_offset():
    rng = np.random.default_rng(11)
    tree = oracle.random_tree(6, rng)
    X = rng.normal(size=(6, 2))
    near = Brownian(1.0).resolve(X).log_likelihood(tree, X)
    far = Brownian(1.0).resolve(X + 1e8).log_likelihood(tree, X + 1e8)
    assert far == pytest.approx(near, abs=1e-5)


@pytest.mark.parametrize(
    ("process", "X", "match"),
    [
        (Brownian(structure="full"), [[1.0, np.nan], [0.0, 1.0]], 'structure="diagonal"'),
        (Brownian([1.0, -1.0]), [[1.0, 2.0]], "positive"),
        (Brownian([1.0]), [[1.0, 2.0]], "2 variances"),
        (Brownian([[1.0, 2.0], [2.0, 1.0]]), [[1.0, 2.0]], "not positive definite"),
        (Brownian(root_variance=-1.0), [[1.0]], "root_variance must be a positive"),
        (Brownian(leaf_variance=0.0), [[1.0], [1.0]], "identical rows"),
        (Brownian(structure="round"), [[1.0]], "structure must be one of"),
        (Brownian(root_mean=[1.0, 2.0, 3.0]), [[1.0, 2.0]], "root_mean"),
        (Mutation(), [[0.5]], "Brownian for real numbers"),
        (Mutation(rate=0.0), [[0.0]], "rate must be positive"),
        (Mutation(equilibrium=[[0.5, 0.6]]), [[0.0]], "add up"),
        (Mutation(n_states=[2]), [[2.0]], "only 2 states"),
        (Mutation(n_states=[2]), [[1.0, 0.0]], "2 column"),
    ],
)
def test_bad_hyperparameters_have_a_way_out(process, X, match):
    with pytest.raises(BhclustError, match=match):
        process.resolve(np.array(X))


def test_unresolved_process_says_so():
    tree = Tree([2, 2, -1], n_leaves=2)
    for process in (Brownian(), Mutation()):
        with pytest.raises(BhclustError, match="call resolve"):
            process.log_likelihood(tree, np.zeros((2, 1)))
    with pytest.raises(BhclustError, match="2 leaves"):
        Brownian(1.0).resolve(np.eye(3)).log_likelihood(tree, np.eye(3))
