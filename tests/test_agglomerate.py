"""The search against a multiprecision greedy search, and the score of a tree by enumeration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bhclust.agglomerate import agglomerate, node_stats, score_tree
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models import Bernoulli
from bhclust.posterior import log_evidence_bound
from tests.oracles.partitions import (
    cluster_log_f,
    leaf_sets,
    log_dp_mixture_evidence,
    log_posterior,
)
from tests.oracles.search import reference_clades
from tests.zoo import MODELS, MODELS_AND_HOLES, make_case

MIXINGS: dict[str, Mixing] = {
    "BHC-DP": DirichletProcess(0.7),
    "BHC-γ": Constant(0.4),
    "BRT-DP": DirichletProcess(0.7),
    "BRT-γ": Constant(0.4),
    "BRT": Rose(0.4),
}


def is_rose(name: str) -> bool:
    return name.startswith("BRT")


@pytest.mark.parametrize("method", MIXINGS)
@pytest.mark.parametrize(("name", "missing"), MODELS_AND_HOLES)
def test_evidence_is_the_sum_over_consistent_partitions(name, missing, method):
    rng = np.random.default_rng(hash_of(name, missing, method))
    for n in (2, 5, 8):
        case = make_case(name, n, rng, missing)
        stats = case.model.suffstats(case.X)
        tree = agglomerate(case.model, stats, MIXINGS[method], rose=is_rose(method)).tree
        _, _, evidence = log_posterior(tree, MIXINGS[method], cluster_log_f(case.model, case.X))
        # a relative error of the probability itself
        assert abs(np.expm1(tree.log_evidence[-1] - evidence)) < 1e-10


@pytest.mark.parametrize(("name", "missing"), MODELS_AND_HOLES)
def test_bound_is_below_the_exact_mixture_evidence(name, missing):
    rng = np.random.default_rng(hash_of(name, missing, "bound"))
    for n in (2, 3, 6, 7):
        case = make_case(name, n, rng, missing)
        mixing = DirichletProcess(float(rng.uniform(0.2, 3)))
        tree = agglomerate(case.model, case.model.suffstats(case.X), mixing).tree
        bound = log_evidence_bound(tree, mixing)
        exact = log_dp_mixture_evidence(n, mixing.alpha, cluster_log_f(case.model, case.X))
        if n == 2:  # every partition of two items is consistent with the tree
            assert bound == pytest.approx(exact, rel=1e-11)
        elif name == "time_series":  # curves so far apart that only one partition counts
            assert bound <= exact + 1e-12 * abs(exact)
        else:
            assert bound < exact


def hash_of(*parts) -> int:
    return int(np.frombuffer(repr(parts).encode().ljust(8)[-8:], dtype=np.uint64)[0] % 2**32)


# Curves have no closed product form for the multiprecision reference; their log f is compared with
# dense normals, and their trees with those of the NumPy engine, in tests of their own.
WITH_REFERENCE = [name for name in MODELS if not name.endswith("time_series")]


@pytest.mark.parametrize("method", MIXINGS)
@pytest.mark.parametrize("name", WITH_REFERENCE)
@pytest.mark.parametrize("seed", range(6))
def test_search_gives_the_exact_greedy_tree(name, method, seed):
    rng = np.random.default_rng([seed, hash_of(name, method)])
    n = int(rng.integers(3, 11))
    case = make_case(name, n, rng, missing=0.0 if seed % 2 or name == "gaussian" else 0.2)
    X = case.X
    if seed % 3 == 0:  # duplicates make exact ties
        X = X[rng.integers(0, max(2, n // 2), size=n)]
    stats = case.model.suffstats(X)
    tree = agglomerate(case.model, stats, MIXINGS[method], rose=is_rose(method)).tree
    expected = reference_clades(case.model, X, MIXINGS[method], rose=is_rose(method))
    assert set(leaf_sets(tree)) == expected


@pytest.mark.parametrize("method", MIXINGS)
def test_far_clusters_do_not_saturate(method):
    """Blocks so far apart that every likelihood ratio of the top merges is the same float."""
    rng = np.random.default_rng(5)
    X = np.repeat(np.kron(np.eye(5), np.ones((1, 30))), 3, axis=0)
    X = np.abs(X - (rng.random(X.shape) < 0.05))
    model = Bernoulli(a=0.3, b=0.3).resolve(X)
    stats = model.suffstats(X)
    tree = agglomerate(model, stats, MIXINGS[method], rose=is_rose(method)).tree
    expected = reference_clades(model, X, MIXINGS[method], rose=is_rose(method), digits=900)
    assert set(leaf_sets(tree)) == expected


@pytest.mark.parametrize("method", MIXINGS)
def test_all_rows_equal_and_all_rows_tied(method):
    model = Bernoulli(a=0.5, b=0.5).resolve(np.eye(8))
    for X in (np.ones((8, 8)), np.eye(8)):
        stats = model.suffstats(X)
        tree = agglomerate(model, stats, MIXINGS[method], rose=is_rose(method)).tree
        expected = reference_clades(model, X, MIXINGS[method], rose=is_rose(method))
        assert set(leaf_sets(tree)) == expected


def test_weights_count_as_copies_that_stay_together():
    """The evidence with weights is the sum over partitions in which copies share a cluster."""
    rng = np.random.default_rng(3)
    case = make_case("diagonal_gaussian", 4, rng)
    weight = np.array([1.0, 3.0, 2.0, 1.0])
    copies = np.repeat(np.arange(4), weight.astype(int))
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    mixing = DirichletProcess(0.8)
    tree = agglomerate(case.model, stats, mixing, weight=weight).tree
    log_f = cluster_log_f(case.model, case.X[copies])

    sets = leaf_sets(tree)
    total, prior = [], []
    from tests.oracles.partitions import consistent_partitions

    for partition in consistent_partitions(tree):
        rows = [tuple(np.flatnonzero(np.isin(copies, sets[k]))) for k in partition]
        prior.append(sum(np.log(0.8) + float(gammaln_int(len(r))) for r in rows))
        total.append(prior[-1] + sum(log_f(r) for r in rows))
    expected = np.logaddexp.reduce(total) - np.logaddexp.reduce(prior)
    assert tree.log_evidence[-1] == pytest.approx(expected, rel=1e-11)
    assert tree.weight[-1] == 7


def gammaln_int(n: int) -> float:
    return float(np.log(np.arange(1, n, dtype=float)).sum())


def test_toy_of_the_rose_tree_paper():
    from bhclust.datasets import make_blocks

    X, y = make_blocks(random_state=0)
    model = Bernoulli(a=0.5, b=0.5).resolve(X)
    stats = model.suffstats(X)
    rose = agglomerate(model, stats, Rose(0.5), rose=True).tree
    binary = agglomerate(model, stats, Constant(0.5)).tree
    groups = {tuple(np.flatnonzero(y == label)) for label in range(3)}
    sets = leaf_sets(rose)
    for group in groups:  # each group is one node whose children are all its leaves
        assert group in sets
        assert len(rose.children(sets.index(group))) == len(group)
    assert rose.n_nodes <= 48 + 5
    assert binary.n_nodes == 2 * 48 - 1
    assert rose.log10_partitions() < 1.1 < binary.log10_partitions()
    assert rose.log_evidence[-1] > binary.log_evidence[-1]


def test_score_of_a_given_topology_any_arity():
    rng = np.random.default_rng(8)
    case = make_case("poisson", 6, rng, 0.2)
    parent = [6, 6, 6, 8, 7, 7, 8, 8, -1]
    for mixing in MIXINGS.values():
        tree = score_tree(parent, case.model, case.model.suffstats(case.X), mixing)
        log_f = cluster_log_f(case.model, case.X)
        assert tree.log_evidence[-1] == pytest.approx(log_posterior(tree, mixing, log_f)[2])


def test_one_row_is_a_tree_of_one_leaf():
    case = make_case("gaussian", 5, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)[:1]
    tree = agglomerate(case.model, stats, DirichletProcess(1.0)).tree
    assert tree.n_nodes == 1
    assert tree.log_evidence[0] == pytest.approx(float(case.model.log_marginal(stats)[0]))


def test_progress_and_diagnostics():
    case = make_case("bernoulli", 12, np.random.default_rng(1))
    seen: list[tuple[int, int]] = []
    result = agglomerate(
        case.model,
        case.model.suffstats(case.X),
        Rose(0.5),
        rose=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (11, 11)
    assert result.info.n_pairs >= 12 * 11 // 2
    assert result.info.n_rescans >= 0


@pytest.mark.parametrize("name", MODELS)
def test_node_statistics_are_those_of_the_union(name):
    case = make_case(name, 9, np.random.default_rng(2), 0.0 if name == "gaussian" else 0.2)
    leaf_stats = case.model.suffstats(case.X)
    tree = agglomerate(case.model, leaf_stats, Rose(0.3), rose=True).tree

    class OwnMerge(type(case.model)):
        """The same model as someone else's: it is asked level by level."""

        def merge(self, a, b):
            return super().merge(a, b)

    fields = {f.name: getattr(case.model, f.name) for f in dataclasses.fields(case.model) if f.init}
    for model in (case.model, OwnMerge(**fields)):
        stats = node_stats(tree, model, leaf_stats)
        for node, leaves in enumerate(leaf_sets(tree)):
            union = leaf_stats[[leaves[0]]]
            for leaf in leaves[1:]:
                union = case.model.merge(union, leaf_stats[[leaf]])
            np.testing.assert_allclose(stats[node], union[0], rtol=1e-12, atol=1e-12)


def test_heights_never_fall_towards_the_root():
    case = make_case("categorical", 40, np.random.default_rng(4), 0.1)
    for method, mixing in MIXINGS.items():
        stats = case.model.suffstats(case.X)
        tree = agglomerate(case.model, stats, mixing, rose=is_rose(method)).tree
        inner = tree.parent >= 0
        assert (tree.height[tree.parent[inner]] >= tree.height[inner]).all()
        assert (tree.height >= 0).all()
        assert (tree.height <= 1).all()
