"""Other ways to a tree: rounds and linkage against plain definitions, collapse, best, polish."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, Tree
from bhclust._coordinates import Prior
from bhclust._fixed_tree import FixedTree, evaluate
from bhclust._linkage import linkage_parent, numeric_features
from bhclust._polish import _Mutable, polish
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.datasets import make_gaussian_tree
from bhclust.frontier import Frontier, odds_scores
from bhclust.metrics import dendrogram_purity
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Column, DiagonalGaussian
from bhclust.strategies import STRATEGIES, Builder, Leaves, collapsed, rounds
from tests.oracles.partitions import leaf_sets
from tests.strategies import parents
from tests.test_agglomerate import MIXINGS, is_rose
from tests.zoo import MODELS, make_case


def clades(tree: Tree) -> set[tuple[int, ...]]:
    return set(leaf_sets(tree))


def as_tree(parent: np.ndarray) -> Tree:
    return Tree(parent, (len(parent) + 1) // 2)


def plain_rounds(model, stats, mixing) -> set[tuple[int, ...]]:
    """Rounds by definition: score all pairs anew each round, merge those that choose each other."""
    clusters = [(row, stats[[i]]) for i, row in enumerate([(i,) for i in range(len(stats))])]
    mass = [float(mixing.log_leaf(1.0) + model.log_marginal(s)[0]) for _, s in clusters]
    found = {rows for rows, _ in clusters}
    while len(clusters) > 1:
        scores = np.full((len(clusters), len(clusters)), -np.inf)
        for i in range(len(clusters)):
            for j in range(len(clusters)):
                if i != j:
                    union = model.merge(clusters[i][1], clusters[j][1])
                    weight = len(clusters[i][0]) + len(clusters[j][0])
                    one = float(mixing.log_one(weight, 2)) + float(model.log_marginal(union)[0])
                    split = float(mixing.log_split(2)) + mass[i] + mass[j]
                    scores[i, j] = round(one - split, 9)
        best = scores.argmax(axis=1)
        pairs = [(i, int(b)) for i, b in enumerate(best) if best[b] == i and i < b]
        merged = {i for pair in pairs for i in pair}
        assert pairs
        new, new_mass = [], []
        for i, j in pairs:
            union = model.merge(clusters[i][1], clusters[j][1])
            rows = tuple(sorted(clusters[i][0] + clusters[j][0]))
            one = float(mixing.log_one(len(rows), 2)) + float(model.log_marginal(union)[0])
            new_mass.append(np.logaddexp(one, float(mixing.log_split(2)) + mass[i] + mass[j]))
            new.append((rows, union))
            found.add(rows)
        alone = [i for i in range(len(clusters)) if i not in merged]
        clusters = [clusters[i] for i in alone] + new
        mass = [mass[i] for i in alone] + new_mass
    return found


@pytest.mark.parametrize("mixing", [DirichletProcess(0.7), Constant(0.4)], ids=["DP", "γ"])
@pytest.mark.parametrize("name", ["diagonal_gaussian", "gaussian", "mixed"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_merge_all_mutually_best_pairs(name, mixing, seed):
    case = make_case(name, 13, np.random.default_rng(seed))
    stats = case.model.suffstats(case.X)
    expected = plain_rounds(case.model, stats, mixing)
    parent, info = rounds(case.model, stats, mixing)
    assert clades(as_tree(parent)) == expected
    assert info.n_pairs >= 13 * 12


@pytest.mark.parametrize("method", MIXINGS)
@pytest.mark.parametrize("name", MODELS)
def test_rounds_are_the_same_in_both_engines(name, method):
    case = make_case(name, 25, np.random.default_rng(8))
    X = case.X[np.random.default_rng(0).integers(0, 15, size=25)]  # duplicates make ties
    stats = case.model.suffstats(X)
    options = {"rose": is_rose(method), "engine": "numpy"}
    slow, _ = rounds(case.model, stats, MIXINGS[method], **options)
    fast, _ = rounds(case.model, stats, MIXINGS[method], rose=is_rose(method))
    np.testing.assert_array_equal(slow, fast)


def test_rounds_end_when_everything_ties():
    X = np.zeros((9, 2))
    model = DiagonalGaussian(mean=0.0, rate=1.0).resolve(X)
    parent, _ = rounds(model, model.suffstats(X), DirichletProcess(1.0))
    assert as_tree(parent).n_leaves == 9


# Rows longer than there are rows go by a matrix of distances, mostly zero ones as sparse rows.
@pytest.mark.parametrize(("d", "kept"), [(3, 1.0), (31, 1.0), (400, 0.1)])
@pytest.mark.parametrize("seed", range(4))
def test_linkage_is_scipys(seed, d, kept):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, d)) * (rng.random((30, d)) < kept)
    ward = as_tree(linkage_parent(rows, np.ones(30), "ward"))
    assert clades(ward) == clades(Tree.from_linkage(linkage(rows, "ward")))
    average = as_tree(linkage_parent(rows, np.ones(30), "average"))
    squared = linkage(pdist(rows, "sqeuclidean"), "average")
    assert clades(average) == clades(Tree.from_linkage(squared))


@pytest.mark.parametrize("d", [2, 40])
@pytest.mark.parametrize("method", ["ward", "average"])
def test_weights_in_linkage_are_repeated_rows(method, d):
    rng = np.random.default_rng(1)
    rows, weight = rng.normal(size=(12, d)), rng.integers(1, 4, size=12)
    weighted = as_tree(linkage_parent(rows, weight * 1.0, method))
    owner = np.repeat(np.arange(12), weight)
    repeated = as_tree(linkage_parent(rows[owner], np.ones(len(owner)), method))
    seen = {tuple(sorted({int(owner[leaf]) for leaf in clade})) for clade in clades(repeated)}
    assert seen == clades(weighted)


@given(st.integers(1, 12), st.integers(1, 2), st.sampled_from([1, 13]))
def test_linkage_takes_ties_and_tiny_tables(n, n_values, d):
    rows = np.repeat((np.arange(n) % n_values)[:, None], d, axis=1) * 0.1
    for method in ("ward", "average"):
        parent = linkage_parent(rows, np.ones(n), method)
        assert as_tree(parent).n_leaves == n  # the constructor checks that it is a tree


def test_features_for_linkage():
    X = np.array([[0, 2, 4.0, 10.0], [1, 0, np.nan, 30.0], [np.nan, 1, 9.0, 20.0]])
    weight = np.ones(3)

    def features(column, kind, **more):
        return numeric_features(X[:, [column]], [Column("x", kind, **more)], weight)

    np.testing.assert_allclose(features(0, "binary").ravel(), [0, 1, 0.5])
    np.testing.assert_allclose(features(2, "count").ravel(), [4, 5, 6])
    np.testing.assert_allclose(features(3, "real").ravel(), [-(1.5**0.5), 1.5**0.5, 0])
    categories = features(1, "categorical", categories=("a", "b", "c"))
    np.testing.assert_allclose(pdist(categories), 1.0)
    both = numeric_features(X[:, [0, 3]], [Column("x", "binary"), Column("y", "real")], weight)
    np.testing.assert_allclose(both.std(axis=0), 1.0)
    assert (numeric_features(np.full((3, 1), 7.0), [Column("c", "real")], weight) == 0).all()


@pytest.mark.parametrize("mixing", [Rose(0.4), Constant(0.4)], ids=["rose", "constant"])
@pytest.mark.parametrize("seed", range(5))
def test_collapse_never_lowers_the_evidence_and_leaves_nothing_to_gain(mixing, seed):
    rng = np.random.default_rng(seed)
    case = make_case("bernoulli", 9, rng)
    stats = case.model.suffstats(case.X)
    binary = score_tree(linkage_parent(case.X, np.ones(9), "ward"), case.model, stats, mixing)
    simpler = score_tree(collapsed(binary, mixing), case.model, stats, mixing)
    assert simpler.n_leaves == 9
    assert clades(simpler) <= clades(binary)
    assert simpler.log_evidence[-1] >= binary.log_evidence[-1] - 1e-9
    # by another route: dissolving any further node on its own does not help at its parent
    for node in range(9, simpler.n_nodes - 1):
        above = int(simpler.parent[node])
        parent = np.where(simpler.parent == node, above, simpler.parent)
        parent = np.delete(parent, node)
        parent = np.where(parent > node, parent - 1, parent)
        other = score_tree(parent, case.model, stats, mixing)
        assert other.log_evidence[above - 1] <= simpler.log_evidence[above] + 1e-8


def test_best_is_the_highest_of_its_candidates():
    case = make_case("diagonal_gaussian", 30, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    leaves = Leaves(stats, np.ones(30), None, lambda: case.X)
    prior = Prior(case.model, DirichletProcess(1.0))
    single = {}
    for strategy in ("greedy", "rounds", "ward", "average"):
        tree = Builder(leaves, strategy, rose=False)(prior)
        single[strategy] = evaluate(FixedTree.of(tree), *prior).value
    builder = Builder(leaves, "all", rose=False)
    best = builder(prior)
    assert builder.candidates == pytest.approx(single)
    assert evaluate(FixedTree.of(best), *prior).value == pytest.approx(max(single.values()))
    # a known topology competes too
    again = builder(prior, best)
    assert "kept" in builder.candidates
    assert evaluate(FixedTree.of(again), *prior).value == pytest.approx(max(single.values()))


def test_greedy_is_the_papers_order_exactly():
    case = make_case("bernoulli", 20, np.random.default_rng(3))
    fitted = BayesianHierarchicalClustering(case.model, strategy="greedy", learn=False).fit(case.X)
    stats = fitted.model_.suffstats(case.X)
    tree = agglomerate(fitted.model_, stats, DirichletProcess(1.0)).tree
    np.testing.assert_array_equal(fitted.tree_.parent, tree.parent)
    assert fitted.strategy_ == "greedy"
    learned = BayesianHierarchicalClustering(case.model, strategy="greedy").fit(case.X)
    tree = agglomerate(learned.model_, stats, learned.mixing_).tree
    np.testing.assert_array_equal(learned.tree_.parent, tree.parent)


def test_a_rescored_linkage_tree_beats_greedy_under_a_vague_prior():
    sample = make_gaussian_tree(15, (3, 4), 2, separation=4.0, random_state=0)
    model = DiagonalGaussian(strength=0.01, shape=1.0, rate=sample.X.var(axis=0))
    fits = {
        strategy: BayesianHierarchicalClustering(model, strategy=strategy, learn=False).fit(
            sample.X
        )
        for strategy in ("greedy", "ward", "best")
    }
    bound = {name: fit.log_evidence_bound_ for name, fit in fits.items()}
    purity = {name: dendrogram_purity(fit.tree_, sample.y) for name, fit in fits.items()}
    assert bound["ward"] > bound["greedy"] + 10
    assert purity["ward"] > purity["greedy"] + 0.1
    assert bound["best"] == max(bound.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_every_strategy_fits_every_kind_of_table(kind, strategy):
    for name in ("bernoulli", "categorical", "poisson", "mixed"):
        case = make_case(name, 15, np.random.default_rng(1), 0.2)
        fitted = kind(case.model, strategy=strategy, n_restarts=0, max_iter=3).fit(case.X)
        assert fitted.tree_.n_leaves == 15
        if kind is BayesianHierarchicalClustering:
            assert fitted.tree_.is_binary


def test_a_rose_tree_of_a_dirichlet_process_is_not_replaced_by_a_binary_one():
    case = make_case("bernoulli", 25, np.random.default_rng(4))
    fitted = BayesianRoseTree(mixing="dirichlet_process", n_restarts=0).fit(case.X)
    assert fitted.strategy_ in ("greedy", "kept")
    assert not fitted.tree_.is_binary


@pytest.mark.parametrize("mixing", [DirichletProcess(0.8), Constant(0.3), Rose(0.4)], ids=repr)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_score_of_a_move_is_that_of_the_moved_tree(mixing, data):
    parent, n = data.draw(
        parents(min_leaves=4, max_leaves=9, arity=2 if isinstance(mixing, DirichletProcess) else 3)
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    case = make_case("diagonal_gaussian", n, rng)
    prior = Prior(case.model, mixing)
    weight = rng.integers(1, 3, size=n) * 1.0
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    tree = score_tree(parent, *prior[:1], stats, mixing, weight=weight)
    state = _Mutable(tree, prior)
    x, target = (data.draw(st.integers(0, tree.n_nodes - 1)) for _ in range(2))
    if not state.allows(x, target):
        return
    expected = {rows for rows in clades(tree) if not set(leaf_sets(tree)[x]) & set(rows)}
    change = state.regraft(x, target)
    state.commit(change)
    moved = score_tree(state.parents(), case.model, stats, mixing, weight=weight)
    fixed = evaluate(FixedTree.of(moved), *prior, "evidence" if not mixing.has_normaliser else None)
    start = evaluate(FixedTree.of(tree), *prior)
    gain = change.value[change.root] - _Mutable(tree, prior).value[tree.n_nodes - 1]
    assert gain == pytest.approx(fixed.value - start.value, abs=1e-8)
    sets = set(leaf_sets(moved))
    together = tuple(sorted(leaf_sets(tree)[x] + leaf_sets(tree)[target]))
    assert together in sets
    assert len(moved.parent) >= n
    assert expected & sets or not expected


@pytest.mark.parametrize("method", MIXINGS)
def test_polish_brings_misplaced_leaves_home(method):
    rng = np.random.default_rng(6)
    y = np.repeat(np.arange(3), 8)
    X = 8.0 * rng.normal(size=(3, 4))[y] + rng.normal(size=(24, 4))
    prior = Prior(DiagonalGaussian().resolve(X), MIXINGS[method])
    stats = prior.model.suffstats(X)
    good = agglomerate(prior.model, stats, prior.mixing, rose=is_rose(method)).tree
    state = _Mutable(good, prior)
    for leaf, stranger in ((0, 9), (8, 17), (16, 1)):
        state.commit(state.regraft(leaf, stranger))
    poor = score_tree(state.parents(), prior.model, stats, prior.mixing)
    better = polish(poor, prior)
    values = [evaluate(FixedTree.of(tree), *prior).value for tree in (poor, better.tree, good)]
    assert values[2] - values[0] > 10
    assert better.gain == pytest.approx(values[1] - values[0])
    assert better.gain > 0.9 * (values[2] - values[0])
    assert better.n_moves >= 3
    np.testing.assert_allclose(better.tree.stats[:24], stats)


def test_polish_is_an_option_with_its_gain_shown():
    rng = np.random.default_rng(1)
    probability = rng.beta(2, 2, size=(3, 20))
    X = (rng.random((60, 20)) < probability[rng.integers(3, size=60)]) * 1.0
    plain = BayesianHierarchicalClustering(learn=False).fit(X)
    polished = BayesianHierarchicalClustering(learn=False, polish=True).fit(X)
    assert plain.polish_gain_ == 0
    assert polished.polish_gain_ > 0.1
    gain = polished.log_evidence_bound_ - plain.log_evidence_bound_
    assert gain == pytest.approx(polished.polish_gain_)


def test_scores_of_rounds_are_those_of_the_search():
    """The pair score that rounds use is the posterior odds of the search, not a variant of it."""
    case = make_case("bernoulli", 8, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    mixing = DirichletProcess(1.0)
    frontier = Frontier(case.model.log_marginal(stats), np.ones(8), mixing)
    others = np.arange(1, 8)
    log_f = case.model.log_marginal(case.model.merge(stats[:1], stats[1:]))
    best = int(others[np.argmax(odds_scores(frontier, 0, others, log_f).score)])
    parent, _ = rounds(case.model, stats[[0, best]], mixing)
    assert parent.tolist() == [2, 2, -1]
