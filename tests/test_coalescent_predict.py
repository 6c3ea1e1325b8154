"""Prediction, learning and cuts against closed forms, quadrature and simulation."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.special import logsumexp

from bhclust._validation import BhclustError
from bhclust.coalescent import (
    Brownian,
    InverseWishart,
    Mutation,
    Predictor,
    SitePrior,
    greedy_tree,
    heldout_log_likelihood,
    learn_covariance,
    learn_sites,
    log_prior,
    sample_tree,
    sample_trees,
)
from bhclust.coalescent._predict_loops import gaussian_point
from bhclust.coalescent.cut import cluster_of_branch, cut_by_number, cut_by_ratio, labels_of_tops
from bhclust.coalescent.learn import alternate, default_prior, log_prior_of_process
from bhclust.coalescent.predict import attachment_points
from bhclust.coalescent.processes import EntryMoments
from bhclust.tree import Tree
from tests.oracles import coalescent as oracle


def fitted(n, d, seed, *, holes=0.0, root_variance=None):
    rng = np.random.default_rng(seed)
    tree = sample_tree(n, rng)
    process = Brownian(np.full(d, 0.8), root_variance).resolve(np.zeros((1, d)))
    X = process.simulate(tree, rng)
    X[rng.random(X.shape) < holes] = np.nan
    return Predictor(process.resolve(X), tree, X)


@pytest.mark.parametrize("root_variance", [None, 1.5])
def test_density_integrates_to_one(root_variance):
    predictor = fitted(6, 1, 0, root_variance=root_variance)
    grid = np.linspace(-40, 40, 40001)
    density = np.exp(predictor.log_density(grid[:, None]))
    assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_density_of_two_columns_integrates_to_one_with_holes():
    predictor = fitted(5, 2, 1, holes=0.2)
    axis = np.linspace(-20, 20, 401)
    mesh = np.array(np.meshgrid(axis, axis)).reshape(2, -1).T
    step = axis[1] - axis[0]
    total = np.exp(predictor.log_density(mesh)).sum() * step**2
    assert total == pytest.approx(1.0, abs=3e-3)
    # leaving an entry out is integrating over it
    row = np.array([[0.4, np.nan]])
    line = np.column_stack([np.full(len(axis), 0.4), axis])
    margin = np.exp(predictor.log_density(line)).sum() * step
    assert np.exp(predictor.log_density(row))[0] == pytest.approx(margin, rel=1e-3)


def test_probability_of_all_rows_is_one_for_sites():
    rng = np.random.default_rng(2)
    tree = sample_tree(5, rng)
    process = Mutation([0.4, 1.3, 2.0], [[0.3, 0.7], [0.2, 0.8], [0.5, 0.5]]).resolve(
        np.zeros((5, 3))
    )
    X = process.simulate(tree, rng)
    X[1, 2] = np.nan
    predictor = Predictor(process, tree, X)
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    assert np.exp(predictor.log_density(rows)).sum() == pytest.approx(1.0, abs=1e-12)
    part = np.array([[1.0, np.nan, 0.0]])
    both = rows[(rows[:, 0] == 1) & (rows[:, 2] == 0)]
    assert np.exp(predictor.log_density(part))[0] == pytest.approx(
        np.exp(predictor.log_density(both)).sum()
    )


def test_weights_of_attachments():
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 60):
        tree = sample_tree(n, rng)
        points = attachment_points(tree)
        assert np.exp(points.log_weight).sum() == pytest.approx(1.0)
        assert (points.age >= tree.height[points.branch]).all()
        above = tree.parent[points.branch]
        inside = above >= 0
        assert (points.age[inside] <= tree.height[above[inside]]).all()
    # probability of meeting the tree above its root is exp(-total hazard)
    tree = sample_tree(4, rng)
    points = attachment_points(tree)
    ages = np.sort(tree.height[4:])
    hazard = 4 * ages[0] + 3 * (ages[1] - ages[0]) + 2 * (ages[2] - ages[1])
    above_root = np.exp(points.log_weight[points.branch == tree.n_nodes - 1]).sum()
    assert above_root == pytest.approx(np.exp(-hazard))


def test_one_leaf_gives_a_laplace():
    X = np.array([[0.3]])
    tree = Tree([-1], n_leaves=1)
    predictor = Predictor(Brownian(1.0).resolve(X), tree, X)
    for gap in (0.5, 1.0, 3.0):
        found = predictor.log_density(np.array([[0.3 + gap]]))[0]
        assert found == pytest.approx(np.log(0.5) - gap, abs=1e-4)


@pytest.mark.parametrize(
    ("process", "X", "row"),
    [
        (Brownian(1.0), np.array([[0.0], [1.3]]), np.array([[0.4]])),
        (
            Mutation(0.8, [[0.3, 0.7], [0.6, 0.4]]),
            np.array([[0.0, 1.0], [1.0, 1.0]]),
            np.array([[0.0, 0.0]]),
        ),
    ],
)
def test_density_is_a_ratio_of_evidences(process, X, row):
    """p(x3 | x1, x2) averaged over the age of their tree is p(x1, x2, x3) / p(x1, x2)."""
    process = process.resolve(X)
    three = np.concatenate([X, row])
    expected = oracle.log_evidence(process, three) - oracle.log_evidence(process, X)
    log_terms = []
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for u, w in zip(0.5 * (nodes + 1) * 14 - 10, weights * 7, strict=True):
        tree = Tree([2, 2, -1], n_leaves=2, height=[0, 0, np.exp(u)])
        joint = log_prior(tree) + process.log_likelihood(tree, X) + u + np.log(w)
        log_terms.append([joint, Predictor(process, tree, X).log_density(row)[0]])
    joint, density = np.array(log_terms).T
    assert logsumexp(joint + density) - logsumexp(joint) == pytest.approx(expected, abs=2e-4)


def test_branch_state_equals_dense_conditioning():
    """An item hung at a point is a leaf of a bigger tree: condition the dense normal on it."""
    predictor = fitted(5, 1, 4, root_variance=1.5)
    tree, X = predictor.tree, predictor.X
    mean, variance = np.empty(1), np.empty(1)
    for node in range(tree.n_nodes - 1):
        above = tree.parent[node]
        at = 0.3 * tree.height[node] + 0.7 * tree.height[above]
        gaussian_point(*[*predictor._tables, node, at, mean, variance])
        # a new leaf 5 hangs at age `at`: the new internal node sits between node and its parent
        heights = np.concatenate([tree.height[:5], [0.0], tree.height[5:], [at]])
        renamed = np.concatenate([np.arange(5), np.arange(6, tree.n_nodes + 1)])
        parent = np.full(len(heights), -1)
        for child, up in enumerate(tree.parent):
            if up >= 0:
                parent[renamed[child]] = renamed[up]
        new = len(heights) - 1
        parent[5] = new
        parent[new] = parent[renamed[node]]
        parent[renamed[node]] = new
        order = np.argsort(np.where(np.arange(len(heights)) < 6, -1, heights), kind="stable")
        place = np.argsort(order)
        bigger = Tree(
            np.where(parent[order] >= 0, place[parent[order]], -1),
            n_leaves=6,
            height=heights[order],
        )
        table = np.vstack([X, [[np.nan]]])
        expected = oracle.brownian_conditional(
            bigger, table, np.eye(1) * 0.8, predictor.process.root_mean, 1.5, 5, 0
        )
        found = predictor.process.unwhiten(EntryMoments(mean[None], variance[None]))
        assert found.mean[0, 0] == pytest.approx(expected[0], abs=1e-9)
        assert found.variance[0, 0] == pytest.approx(expected[1], abs=1e-9)


def test_moments_are_those_of_the_density():
    predictor = fitted(6, 2, 5)
    grid = np.linspace(-30, 30, 20001)
    line = np.column_stack([np.full(len(grid), 0.7), grid])
    density = np.exp(predictor.log_density(line))
    density /= density.sum()
    row = np.array([[0.7, np.nan]])
    moments = predictor.moments(row)
    mean = density @ grid
    assert moments.mean[0, 1] == pytest.approx(mean, abs=1e-3)
    assert moments.variance[0, 1] == pytest.approx(density @ (grid - mean) ** 2, rel=1e-2)
    assert predictor.impute(row)[0] == pytest.approx([0.7, moments.mean[0, 1]])
    with pytest.raises(BhclustError, match=r"moments\(X\)"):
        predictor.probabilities(row)


def test_site_probabilities_are_those_of_the_density():
    rng = np.random.default_rng(6)
    tree = sample_tree(6, rng)
    process = Mutation(0.6, [[0.3, 0.3, 0.4]] * 2).resolve(np.zeros((6, 2)))
    X = process.simulate(tree, rng)
    predictor = Predictor(process, tree, X)
    rows = np.array([[1.0, k] for k in range(3)])
    joint = np.exp(predictor.log_density(rows))
    found = predictor.process.split(predictor.probabilities(np.array([[1.0, np.nan]])))[1]
    np.testing.assert_allclose(found[0], joint / joint.sum(), rtol=1e-10)
    filled = predictor.impute(np.array([[1.0, np.nan]]))
    assert filled[0, 1] == joint.argmax()
    with pytest.raises(BhclustError, match=r"probabilities\(X\)"):
        predictor.moments(rows)


def test_full_covariance_density():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(6, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    process = Brownian(structure="full").resolve(X)
    predictor = Predictor(process, greedy_tree(process.leaves(X)), X)
    axis = np.linspace(-12, 12, 401)
    mesh = np.array(np.meshgrid(axis, axis)).reshape(2, -1).T
    total = np.exp(predictor.log_density(mesh)).sum() * (axis[1] - axis[0]) ** 2
    assert total == pytest.approx(1.0, abs=5e-3)


def test_nearest_branch_and_samples():
    X = np.array([[0.0, 0.0], [0.2, 0.1], [8.0, 8.0], [8.2, 8.1]])
    process = Brownian(1.0).resolve(X)
    tree = greedy_tree(process.leaves(X))
    predictor = Predictor(process, tree, X)
    placed = predictor.nearest_branch(X + 0.01)
    assert placed.branch.tolist() == [0, 1, 2, 3]
    assert (placed.age > 0).all()
    assert (placed.probability > 0.3).all()
    branches = predictor.branch_probabilities(np.array([[0.1, 0.0]]))
    assert branches.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(8)
    draws = predictor.sample(4000, rng)
    # the log density of draws estimates the negative entropy, as does an independent grid
    axis = np.linspace(-20, 28, 481)
    mesh = np.array(np.meshgrid(axis, axis)).reshape(2, -1).T
    log_density = predictor.log_density(mesh)
    entropy = (np.exp(log_density) * log_density).sum() * (axis[1] - axis[0]) ** 2
    found = predictor.log_density(draws)
    assert abs(found.mean() - entropy) < 4 * found.std() / np.sqrt(4000)


def test_samples_of_sites():
    rng = np.random.default_rng(9)
    tree = sample_tree(4, rng)
    process = Mutation(0.6, [[0.3, 0.7]]).resolve(np.zeros((4, 1)))
    predictor = Predictor(process, tree, np.array([[0.0], [0.0], [1.0], [0.0]]))
    expected = np.exp(predictor.log_density(np.array([[1.0]])))[0]
    draws = predictor.sample(4000, rng)
    assert abs(draws.mean() - expected) < 4 * np.sqrt(0.25 / 4000)


def test_heldout_entries_together():
    rng = np.random.default_rng(10)
    predictor = fitted(6, 2, 10)
    full = predictor.X
    X = full.copy()
    X[rng.random(X.shape) < 0.3] = np.nan
    process = predictor.process
    # by the chain rule: entries one after another
    expected, current = 0.0, X.copy()
    for i, d in np.argwhere(np.isnan(X)):
        after = current.copy()
        after[i, d] = full[i, d]
        expected += process.heldout(predictor.tree, current, after)[i, d]
        current = after
    assert heldout_log_likelihood(process, predictor.tree, X, full) == pytest.approx(expected)
    with pytest.raises(BhclustError, match="fitted values"):
        heldout_log_likelihood(process, predictor.tree, X, full + 1)


# -- learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("root_variance", [None, 2.0])
def test_learned_covariance_is_the_posterior_mode(structure, root_variance):
    rng = np.random.default_rng(11)
    tree = sample_tree(12, rng)
    X = rng.normal(size=(12, 2))
    if structure != "full":
        X[3, 1] = np.nan
    start = Brownian(structure=structure, root_variance=root_variance).resolve(X)
    prior = InverseWishart.around(start)
    learned = learn_covariance(start, [tree], X, prior=prior)

    def objective(covariance):
        moved = replace(start, covariance=covariance)
        return moved.log_likelihood(tree, X) + prior.log_density(moved)

    best = objective(learned.covariance)
    scale = np.asarray(learned.covariance)
    for _ in range(40):
        if structure == "full":
            bend = np.eye(2) + 0.05 * rng.normal(size=(2, 2))
            other = bend @ scale @ bend.T
        else:
            other = scale * np.exp(0.05 * rng.normal(size=scale.shape))
        assert objective(other if np.ndim(other) else float(other)) < best


def test_covariance_prior_is_normalised():
    process = Brownian(1.3).resolve(np.zeros((1, 1)) + 1.0)
    prior = InverseWishart.around(process)

    def density(u):
        return np.exp(prior.log_density(replace(process, covariance=float(np.exp(u)))) + u)

    assert integrate.quad(density, -10, 25, limit=200)[0] == pytest.approx(1.0, abs=1e-6)


def test_learned_sites_are_a_posterior_mode():
    rng = np.random.default_rng(12)
    tree = sample_tree(40, rng)
    truth = Mutation([0.2, 3.0, 1.0], [[0.3, 0.7], [0.5, 0.5], [0.2, 0.8]]).resolve(
        np.zeros((40, 3))
    )
    X = truth.simulate(tree, rng)
    X[5, 0] = np.nan
    start = Mutation().resolve(X)
    prior = SitePrior(tuple(start.equilibrium))
    learned = learn_sites(start, [tree], X, prior=prior)

    def objective(process):
        return process.log_likelihood(tree, X) + prior.log_density(process)

    best = objective(learned)
    assert best > objective(start)
    for _ in range(40):
        rates = learned.rates * np.exp(0.05 * rng.normal(size=3))
        assert objective(replace(learned, rate=rates)) < best + 1e-6
        moved = tuple(q * np.exp(0.05 * rng.normal(size=2)) for q in learned.equilibrium)
        moved = tuple(q / q.sum() for q in moved)
        assert objective(replace(learned, equilibrium=moved)) < best + 1e-6
    fixed = learn_sites(start, [tree], X, equilibrium=False)
    np.testing.assert_allclose(fixed.flat_equilibrium, start.flat_equilibrium)
    assert not np.allclose(fixed.rates, start.rates)


def test_rates_are_recovered_from_many_leaves():
    rng = np.random.default_rng(13)
    tree = sample_tree(600, rng)
    truth = Mutation(np.repeat([0.3, 2.0], 20), [[0.5, 0.5]] * 40).resolve(np.zeros((600, 40)))
    X = truth.simulate(tree, rng)
    learned = learn_sites(Mutation().resolve(X), [tree], X)
    slow, fast = np.median(learned.rates[:20]), np.median(learned.rates[20:])
    assert slow < 0.6 < 1.2 < fast


def test_alternation_never_keeps_a_worse_round():
    rng = np.random.default_rng(14)
    tree = sample_tree(30, rng)
    X = Brownian([1.0, 25.0]).resolve(np.zeros((1, 2))).simulate(tree, rng)
    start = Brownian().resolve(X)
    for search in (
        lambda process: greedy_tree(process.leaves(X)),
        lambda process: sample_trees(process.leaves(X), n_particles=20, rng=rng),
    ):
        learned = alternate(start, X, search, names=["covariance"], max_iter=3)
        assert 1 <= len(learned.objectives) <= 4
        kept = log_prior_of_process(learned.process, default_prior(start))
        if isinstance(learned.trees, Tree):
            kept += log_prior(learned.trees) + learned.process.log_likelihood(learned.trees, X)
        else:
            kept += learned.trees.log_evidence
        assert kept == pytest.approx(max(learned.objectives))
    still = alternate(start, X, lambda p: greedy_tree(p.leaves(X)), names=[], max_iter=3)
    assert still.process is start


# -- cuts ---------------------------------------------------------------------------------------


def test_cuts():
    tree = Tree([5, 5, 6, 6, 7, 7, 8, 8, -1], n_leaves=5, height=[0, 0, 0, 0, 0, 1, 2, 3, 4])
    ratio = np.array([np.inf] * 5 + [1.0, -0.2, 0.4, -3.0])
    assert cut_by_ratio(tree, ratio).tolist() == [2, 3, 7]
    assert cut_by_ratio(tree, ratio, threshold=0.5).tolist() == [6, 7]
    assert cut_by_ratio(tree, ratio, threshold=5).tolist() == [8]
    assert cut_by_number(tree, 1).tolist() == [8]
    assert cut_by_number(tree, 2).tolist() == [6, 7]
    assert cut_by_number(tree, 3).tolist() == [4, 5, 6]
    labels = labels_of_tops(tree, cut_by_ratio(tree, ratio))
    assert labels.tolist() == [0, 0, 1, 2, 0]
    shares = cluster_of_branch(tree, labels)
    assert shares[5].tolist() == [1, 0, 0]
    assert shares[8] == pytest.approx([0.6, 0.2, 0.2])
    with pytest.raises(BhclustError, match="n_clusters"):
        cut_by_number(tree, 6)


def test_likelihood_ratios_find_well_separated_groups():
    rng = np.random.default_rng(15)
    centres = np.repeat(np.array([[0.0, 0], [30, 0], [0, 30]]), 8, axis=0)
    X = centres + rng.normal(size=centres.shape)
    process = Brownian().resolve(X)
    tree = greedy_tree(process.leaves(X))
    labels = labels_of_tops(tree, cut_by_number(tree, 3))
    assert len({tuple(labels[k : k + 8]) for k in (0, 8, 16)}) == 3
    assert all(len(set(labels[k : k + 8])) == 1 for k in (0, 8, 16))
    codes = np.repeat(np.eye(3)[:, np.repeat(np.arange(3), 8)], 8, axis=0)
    codes = np.abs(codes - (rng.random(codes.shape) < 0.05))
    mutation = Mutation().resolve(codes)
    tree = greedy_tree(mutation.leaves(codes))
    tops = cut_by_ratio(tree, mutation.log_likelihood_ratio(tree, codes))
    labels = labels_of_tops(tree, tops)
    assert len(set(labels)) == 3
    assert all(len(set(labels[k : k + 8])) == 1 for k in (0, 8, 16))
