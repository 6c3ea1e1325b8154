"""Samplers against quadrature and one another; the posterior over trees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate

from bhclust._validation import BhclustError
from bhclust.coalescent import Brownian, Mutation, TreePosterior, log_prior, sample_trees
from bhclust.coalescent import _loops as loops
from bhclust.coalescent.smc import SMC
from bhclust.tree import Tree
from tests.oracles import coalescent as oracle

TWO = np.array([[0.0], [1.3]])
THREE = np.array([[0.0, 1.0], [0.7, 0.2], [-1.0, 1.5]])
HOLES = np.array([[0.0, 1.0], [0.7, np.nan], [-1.0, 1.5]])
SITES = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0, np.nan, 1.0]])
CASES = {
    "two rows, flat root": (Brownian(1.0), TWO),
    "two rows, proper root": (Brownian(2.0, 0.5), TWO),
    "three rows": (Brownian(1.0), THREE),
    "three rows, proper root": (Brownian(0.7, 1.5), THREE),
    "three rows with a hole": (Brownian(1.0), HOLES),
    "two sites": (Mutation(1.0, [[0.3, 0.7]] * 3), SITES[:2]),
    "three sites": (Mutation(0.8, [[0.3, 0.7], [0.5, 0.5], [0.2, 0.8]]), SITES),
}
_QUADRATURE: dict[str, float] = {}


def quadrature(case):
    if case not in _QUADRATURE:
        process, X = CASES[case]
        _QUADRATURE[case] = oracle.log_evidence(process.resolve(X), X)
    return _QUADRATURE[case]


def batch_estimates(leaves, method, n_batches, n_particles, seed, **kwargs):
    rng = np.random.default_rng(seed)
    return np.array(
        [
            sample_trees(leaves, method, n_particles=n_particles, rng=rng, **kwargs).log_evidence
            for _ in range(n_batches)
        ]
    )


def mean_and_error(log_values, reference):
    ratios = np.exp(log_values - reference)
    return ratios.mean(), ratios.std(ddof=1) / np.sqrt(len(ratios))


@pytest.mark.parametrize("method", SMC)
@pytest.mark.parametrize("case", CASES)
def test_evidence_agrees_with_quadrature(case, method):
    process, X = CASES[case]
    leaves = process.resolve(X).leaves(X)
    # Always resampling is the harder test: the estimate must stay unbiased.
    log_values = batch_estimates(leaves, method, 30, 100, 11, resample_below=1.0)
    mean, error = mean_and_error(log_values, quadrature(case))
    assert abs(mean - 1) < 3 * error
    assert error < 0.1


def test_two_rows_have_laplace_evidence():
    leaves = Brownian(1.0).resolve(TWO).leaves(TWO)
    posterior = sample_trees(leaves, "smc-race", n_particles=300, rng=np.random.default_rng(0))
    assert posterior.log_evidence == pytest.approx(np.log(0.5) - 1.3, abs=0.01)


def eight(kind):
    rng = np.random.default_rng(21)
    tree = oracle.random_tree(8, rng)
    if kind == "brownian":
        process = Brownian(1.0).resolve(np.zeros((1, 2)))
    else:
        process = Mutation(0.7, [[0.4, 0.6]] * 6).resolve(np.zeros((8, 6)))
    X = process.simulate(tree, rng)
    return process.resolve(X), X


@pytest.mark.parametrize("kind", ["brownian", "mutation"])
def test_four_samplers_agree_on_eight_rows(kind):
    process, X = eight(kind)
    leaves = process.leaves(X)
    sizes = {
        "smc-priorprior": (40, 2000),
        "smc-priorpost": (30, 500),
        "smc-postpost": (20, 60),
        "smc-race": (20, 60),
    }
    found = {m: batch_estimates(leaves, m, *sizes[m], seed=5) for m in SMC}
    reference = found["smc-race"].mean()
    results = {m: mean_and_error(values, reference) for m, values in found.items()}
    for a, b in itertools.combinations(SMC, 2):
        (mean_a, error_a), (mean_b, error_b) = results[a], results[b]
        assert abs(mean_a - mean_b) < 3 * np.hypot(error_a, error_b), (a, b, results)
    assert results["smc-race"][1] < 0.1


@pytest.mark.parametrize("n", [3, 5])
def test_effective_sizes_are_ordered(n):
    """As in the table: prior-prior < prior-post < post-post < race, without resampling."""
    rng = np.random.default_rng(2)
    sizes = []
    for _ in range(6):
        tree = oracle.random_tree(n, rng)
        X = Brownian(1.0).resolve(np.zeros((1, 5))).simulate(tree, rng)
        leaves = Brownian(1.0).resolve(X).leaves(X)
        sizes.append(
            [
                sample_trees(leaves, m, n_particles=800, rng=rng, resample_below=0.0).effective_size
                / 800
                for m in ("smc-priorprior", "smc-priorpost", "smc-postpost", "smc-race")
            ]
        )
    mean = np.mean(sizes, axis=0)
    assert (np.diff(mean) > 0).all(), mean
    assert mean[-1] > (0.9 if n == 3 else 0.5)


@pytest.mark.parametrize("case", ["three rows", "three rows with a hole", "three sites"])
def test_topology_probabilities_agree_with_quadrature(case):
    process, X = CASES[case]
    process = process.resolve(X)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    u, w = 0.5 * (nodes + 1) * 15 - 11, weights * 7.5
    mass = dict.fromkeys(itertools.combinations(range(3), 2), 0.0)
    for (u1, w1), (u2, w2) in itertools.product(zip(u, w, strict=True), repeat=2):
        first, gap = np.exp(u1), np.exp(u2)
        for tree in oracle.histories(3, np.array([first, first + gap])):
            joint = oracle.log_coalescent(tree) + process.log_likelihood(tree, X)
            mass[tuple(tree.leaves(3).tolist())] += w1 * w2 * first * gap * np.exp(joint)
    total = sum(mass.values())
    leaves = process.leaves(X)
    posterior = sample_trees(leaves, "smc-race", n_particles=4000, rng=np.random.default_rng(3))
    for pair, share in mass.items():
        expected = share / total
        error = np.sqrt(expected * (1 - expected) / posterior.effective_size)
        assert abs(posterior.clade_probability(pair) - expected) < 4 * error


@pytest.mark.parametrize("method", SMC)
def test_reproducible_whatever_the_threads(method):
    process, X = eight("brownian")
    leaves = process.leaves(X)
    runs = [
        sample_trees(leaves, method, n_particles=30, rng=np.random.default_rng(9), n_jobs=jobs)
        for jobs in (1, 1, 3)
    ]
    for other in runs[1:]:
        assert other.log_evidence == runs[0].log_evidence
        assert np.array_equal(other.weights, runs[0].weights)
        assert np.array_equal(other.best_tree.parent, runs[0].best_tree.parent)


@pytest.mark.parametrize("method", SMC)
@pytest.mark.parametrize("kind", ["brownian", "mutation"])
def test_log_joint_of_each_particle(method, kind):
    process, X = eight(kind)
    posterior = sample_trees(
        process.leaves(X), method, n_particles=20, rng=np.random.default_rng(4)
    )
    for tree, log_joint in zip(posterior, posterior.log_joints, strict=True):
        tree.validate()
        expected = log_prior(tree) + process.log_likelihood(tree, X)
        assert log_joint == pytest.approx(expected, abs=1e-8)
    assert posterior.log_joints[posterior.best] == posterior.log_joints.max()


@pytest.mark.parametrize("rate", [1.0, 6.0])
@pytest.mark.parametrize("kind", ["complete", "holes", "sites"])
def test_proposals_fit_and_their_parts_agree(kind, rate):
    """Mass against quadrature of the target; survival and sampler against the density."""
    rng = np.random.default_rng(8)
    for _ in range(8):
        d = int(rng.integers(1, 5))
        if kind == "sites":
            X = rng.integers(2, size=(2, d)).astype(float)
            leaves = Mutation(rng.uniform(0.2, 2, d), rng.dirichlet([2, 2], d)).resolve(X).leaves(X)
        else:
            X = rng.normal(size=(2, d + (kind == "holes")))
            if kind == "holes":
                X[0, -1] = np.nan
            leaves = Brownian(1.0, leaf_variance=0.01).resolve(X).leaves(X)
        base = float(rng.exponential(0.3)) * int(rng.integers(2))
        first, second = np.empty(d + 1), np.empty(d + 1)
        count = loops.prepare_pair(
            leaves.spec, leaves.messages[0], leaves.spreads[0], 0.0,
            leaves.messages[1], leaves.spreads[1], 0.0, base, first, second,
        )  # fmt: skip
        grid, level = np.empty(loops.SEGMENTS + 1), np.empty(loops.SEGMENTS + 2)
        mass = np.empty(loops.SEGMENTS + 2)
        log_mass = loops.build_proposal(leaves.spec, rate, first, second, count, grid, level, mass)

        def target(u, args=(leaves.spec, first, second, count)):
            spec, a, b, c = args
            return np.exp(u - rate * np.exp(u) + loops.log_local(spec, a, b, c, np.exp(u)))

        exact = integrate.quad(target, -25, 8, points=[grid[loops.HALF]], limit=300)[0]
        assert log_mass == pytest.approx(np.log(exact), abs=0.03)
        total = mass.sum()
        for x in (0.01, 0.2, 1.0, 3.0):
            density = integrate.quad(
                lambda u, fit=(grid, level): np.exp(loops.level_at(*fit, u)), np.log(x), 30,
                points=list(grid[grid > np.log(x)]), limit=300,
            )[0]  # fmt: skip
            beyond = loops.mass_beyond(grid, level, mass, x)
            assert beyond == pytest.approx(density, rel=1e-6, abs=1e-12)
        for share in (1e-9, 0.1, 0.5, 0.97, 1 - 1e-9):
            u, height = loops.draw_beyond(grid, level, mass, share * total)
            assert loops.mass_beyond(grid, level, mass, np.exp(u)) == pytest.approx(
                share * total, rel=1e-6
            )
            assert height == pytest.approx(loops.level_at(grid, level, u), abs=1e-6)


# -- the posterior over trees ---------------------------------------------------------------


def three_trees():
    chain = Tree([4, 4, 5, 6, 5, 6, -1], n_leaves=4, height=[0, 0, 0, 0, 1.0, 2.0, 3.0])
    balanced = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4, height=[0, 0, 0, 0, 0.5, 1.0, 5.0])
    other = Tree([5, 4, 4, 6, 5, 6, -1], n_leaves=4, height=[0, 0, 0, 0, 1.0, 2.0, 4.0])
    return TreePosterior(
        (chain, balanced, other), np.array([0.3, 0.4, 0.3]), np.array([-1.0, -2.0, -3.0]), 0.0,
        np.ones(3),
    )  # fmt: skip


def test_clades_consensus_and_pairs():
    posterior = three_trees()
    assert posterior.clade_probability([1, 0]) == pytest.approx(0.7)
    assert posterior.clade_probability([0, 1, 2]) == pytest.approx(0.6)
    assert posterior.clade_probability([0, 3]) == 0
    assert posterior.best_tree is posterior.trees[0]
    clades = {c.leaves: (c.probability, c.age) for c in posterior.clades()}
    assert clades[(0, 1)] == pytest.approx((0.7, (0.3 * 1.0 + 0.4 * 0.5) / 0.7))
    assert set(clades) == {(0, 1), (0, 1, 2), (2, 3), (1, 2), (0, 1, 2, 3)}
    consensus = posterior.consensus()
    sets = {tuple(consensus.leaves(k).tolist()) for k in range(4, consensus.n_nodes)}
    assert sets == {(0, 1), (0, 1, 2), (0, 1, 2, 3)}
    support = posterior.support(consensus)
    assert support[:4] == pytest.approx(1.0)
    assert support[4:] == pytest.approx([0.7, 0.6, 1.0])
    rose = posterior.consensus(0.65)
    assert not rose.is_binary
    assert rose.children(rose.n_nodes - 1).tolist() == [2, 3, 4]
    ages = posterior.coalescence_age()
    assert ages[0, 1] == pytest.approx(0.3 * 1.0 + 0.4 * 0.5 + 0.3 * 2.0)
    together = posterior.co_clustering(lambda tree: tree.parent[:4])
    assert together[0, 1] == pytest.approx(0.7)
    assert np.diag(together) == pytest.approx(1.0)
    with pytest.raises(BhclustError, match="threshold"):
        posterior.consensus(0.3)
    with pytest.raises(BhclustError, match="whole number"):
        posterior.clade_probability([7])
    with pytest.raises(BhclustError, match="same leaves"):
        posterior.support(Tree([2, 2, -1], n_leaves=2))


def test_one_row_and_one_particle():
    X = np.array([[1.0, 2.0]])
    process = Brownian(1.0, 2.0, [0.0, 0.0]).resolve(X)
    for method in SMC:
        posterior = sample_trees(
            process.leaves(X), method, n_particles=1, rng=np.random.default_rng(0)
        )
        assert posterior.consensus().n_leaves == 1
        assert posterior.log_evidence == pytest.approx(
            process.log_likelihood(posterior.best_tree, X)
        )


def test_bad_arguments():
    leaves = Brownian(1.0).resolve(TWO).leaves(TWO)
    rng = np.random.default_rng(0)
    with pytest.raises(BhclustError, match="must be one of"):
        sample_trees(leaves, "smc", rng=rng)
    with pytest.raises(BhclustError, match="n_particles"):
        sample_trees(leaves, n_particles=0, rng=rng)
    with pytest.raises(BhclustError, match="resample_below"):
        sample_trees(leaves, rng=rng, resample_below=2.0)
