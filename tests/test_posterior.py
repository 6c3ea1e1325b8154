"""Summaries of a tree against brute force over all its partitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from scipy.special import logsumexp

from bhclust import posterior
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, DiagonalGaussian
from bhclust.tree import Tree
from tests.oracles.partitions import cluster_log_f, leaf_sets, log_posterior
from tests.zoo import make_case

MIXINGS = {
    "dp": (DirichletProcess(0.9), False),
    "rose": (Rose(0.4), True),
    "constant": (Constant(0.3), True),
    "rose-dp": (DirichletProcess(1.5), True),
}


@pytest.fixture(params=MIXINGS)
def fitted(request):
    mixing, rose = MIXINGS[request.param]
    case = make_case("categorical", 8, np.random.default_rng(11), 0.1)
    tree = agglomerate(case.model, case.model.suffstats(case.X), mixing, rose=rose).tree
    partitions, log_p, _ = log_posterior(tree, mixing, cluster_log_f(case.model, case.X))
    return case, mixing, tree, partitions, np.exp(log_p)


def test_node_weights_and_expected_number(fitted):
    _, _, tree, partitions, p = fitted
    expected = np.zeros(tree.n_nodes)
    for partition, probability in zip(partitions, p, strict=True):
        expected[partition] += probability
    np.testing.assert_allclose(np.exp(posterior.log_node_weights(tree)), expected, atol=1e-12)
    mean = sum(len(partition) * q for partition, q in zip(partitions, p, strict=True))
    assert posterior.expected_n_clusters(tree) == pytest.approx(mean)
    # every leaf is in exactly one cluster
    total = (np.exp(posterior.log_node_weights(tree)) * tree.size).sum()
    assert total == pytest.approx(tree.n_leaves)


def test_number_of_clusters(fitted):
    _, _, tree, partitions, p = fitted
    expected = np.zeros(tree.n_leaves + 1)
    for partition, probability in zip(partitions, p, strict=True):
        expected[len(partition)] += probability
    np.testing.assert_allclose(posterior.n_clusters_distribution(tree), expected, atol=1e-12)


def test_co_clustering(fitted):
    _, _, tree, partitions, p = fitted
    sets = leaf_sets(tree)
    expected = np.zeros((tree.n_leaves, tree.n_leaves))
    for partition, probability in zip(partitions, p, strict=True):
        for node in partition:
            expected[np.ix_(sets[node], sets[node])] += probability
    np.testing.assert_allclose(posterior.co_clustering_matrix(tree), expected, atol=1e-12)
    i, j = np.triu_indices(tree.n_leaves)
    np.testing.assert_allclose(posterior.co_clustering(tree, i, j), expected[i, j], atol=1e-12)
    # the height of a node is the probability that two leaves meeting there are apart
    for a, b in [(0, 1), (2, 5), (3, 7)]:
        assert tree.height[tree.mrca(a, b)] == pytest.approx(1 - expected[a, b], abs=1e-12)


def same_partition(labels, nodes, sets) -> bool:
    return {tuple(np.flatnonzero(labels == k)) for k in range(labels.max() + 1)} == {
        sets[node] for node in nodes
    }


def test_map_cut_is_the_most_probable_partition(fitted):
    _, _, tree, partitions, p = fitted
    labels = posterior.cut(tree)
    assert same_partition(labels, partitions[int(np.argmax(p))], leaf_sets(tree))
    sizes = np.bincount(labels)
    assert (np.diff(sizes) <= 0).all()


def test_best_cut_with_exactly_k_clusters(fitted):
    _, _, tree, partitions, p = fitted
    sets = leaf_sets(tree)
    for k in range(1, tree.n_leaves + 1):
        of_k = [(q, nodes) for nodes, q in zip(partitions, p, strict=True) if len(nodes) == k]
        if not of_k:
            with pytest.raises(BhclustError, match=f"exactly {k} clusters"):
                posterior.cut(tree, n_clusters=k)
            continue
        labels = posterior.cut(tree, n_clusters=k)
        best = max(q for q, _ in of_k)
        winners = [nodes for q, nodes in of_k if q >= best * (1 - 1e-9)]
        assert any(same_partition(labels, nodes, sets) for nodes in winners)


def test_threshold_cut_is_the_papers_rule(fitted):
    _, _, tree, _, _ = fitted
    for threshold in (0.1, 0.5, 0.9):
        labels = posterior.cut(tree, threshold=threshold, method="threshold")
        r = 1 / (1 + np.exp(-tree.log_odds))
        expected, todo = [], [tree.n_nodes - 1]
        while todo:
            node = todo.pop()
            if r[node] >= threshold or node < tree.n_leaves:
                expected.append(node)
            else:
                todo += tree.children(node).tolist()
        assert same_partition(labels, expected, leaf_sets(tree))


def test_map_and_threshold_cuts_can_differ():
    """r = .45 at the root, but no single split is as probable as that."""
    odds = np.log(0.45 / 0.55)
    tree = Tree(
        parent=[4, 4, 5, 5, 6, 6, -1],
        n_leaves=4,
        log_odds=[np.inf] * 4 + [0.1, 0.1, odds],
    )
    assert posterior.cut(tree).max() == 0
    assert posterior.cut(tree, method="threshold").max() == 1


def test_sampled_partitions_have_the_posterior_frequencies(fitted):
    _, _, tree, partitions, p = fitted
    n = 4000
    draws = posterior.sample_partitions(tree, n, np.random.default_rng(0))
    sets = leaf_sets(tree)
    counts: dict[frozenset, int] = {}
    for labels in draws:
        key = frozenset(tuple(np.flatnonzero(labels == k)) for k in range(labels.max() + 1))
        counts[key] = counts.get(key, 0) + 1
    for nodes, probability in zip(partitions, p, strict=True):
        seen = counts.pop(frozenset(sets[node] for node in nodes), 0) / n
        # five standard errors of a frequency
        assert abs(seen - probability) < 5 * np.sqrt(probability * (1 - probability) / n) + 1e-9
    assert not counts


def test_predictive_is_the_average_over_partitions(fitted):
    case, mixing, tree, partitions, p = fitted
    sets = leaf_sets(tree)
    new = np.array([[0, 1, 2], [2, 0, np.nan], [1, 1, 3]], dtype=float)
    log_f = cluster_log_f(case.model, np.vstack([case.X, new]))
    n = tree.n_leaves
    alpha = mixing.alpha if isinstance(mixing, DirichletProcess) else 0.0
    for row in range(len(new)):
        x = n + row
        density = 0.0
        for partition, probability in zip(partitions, p, strict=True):
            urn = sum(
                len(sets[k]) * np.exp(log_f((*sets[k], x)) - log_f(sets[k])) for k in partition
            )
            density += probability * (urn + alpha * np.exp(log_f((x,)))) / (n + alpha)
        ours = posterior.log_predictive_density(tree, case.model, mixing, new)[row]
        assert np.exp(ours) == pytest.approx(density, rel=1e-10)


def test_predictive_sums_to_one_over_all_items(fitted):
    case, mixing, tree, _, _ = fitted
    values = np.array(np.meshgrid(range(3), range(2), range(4))).reshape(3, -1).T.astype(float)
    log_p = posterior.log_predictive_density(tree, case.model, mixing, values)
    assert np.exp(logsumexp(log_p)) == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize(("mixing", "rose"), MIXINGS.values(), ids=MIXINGS)
def test_predictive_density_integrates_to_one(mixing, rose):
    X = np.random.default_rng(0).normal(size=(7, 1)) * [2.0]
    model = DiagonalGaussian(strength=0.5, shape=2.0, rate=0.5).resolve(X)
    tree = agglomerate(model, model.suffstats(X), mixing, rose=rose).tree

    def density(x: float) -> float:
        return float(
            np.exp(posterior.log_predictive_density(tree, model, mixing, np.array([[x]]))[0])
        )

    total = sum(
        integrate.quad(density, a, b, limit=200)[0]
        for a, b in [(-np.inf, -6), (-6, 0), (0, 6), (6, np.inf)]
    )
    assert total == pytest.approx(1.0, abs=1e-6)


def test_class_probabilities_are_the_average_over_partitions(fitted):
    case, mixing, tree, partitions, p = fitted
    sets = leaf_sets(tree)
    labels = posterior.cut(tree)
    new = np.array([[0, 1, 2], [2, 0, np.nan]], dtype=float)
    log_f = cluster_log_f(case.model, np.vstack([case.X, new]))
    n = tree.n_leaves
    alpha = mixing.alpha if isinstance(mixing, DirichletProcess) else 0.0
    ours = posterior.cluster_probabilities(tree, case.model, mixing, new, labels)
    assert ours.shape == (2, labels.max() + 2)
    for row in range(2):
        # the new item sits down beside a random item of the same cluster, or alone
        joint = np.zeros(labels.max() + 2)
        joint[-1] = alpha * np.exp(log_f((n + row,)))
        for partition, probability in zip(partitions, p, strict=True):
            for k in partition:
                ratio = np.exp(log_f((*sets[k], n + row)) - log_f(sets[k]))
                for leaf in sets[k]:
                    joint[labels[leaf]] += probability * ratio
        np.testing.assert_allclose(ours[row], joint / joint.sum(), atol=1e-10)


def test_imputation_is_the_mode_of_the_predictive(fitted):
    case, mixing, tree, _, _ = fitted
    rows = np.array([[np.nan, 1, 2], [2, np.nan, 3], [0, 1, np.nan]], dtype=float)
    filled = posterior.impute(tree, case.model, mixing, rows)
    for i, (j, size) in enumerate([(0, 3), (1, 2), (2, 4)]):
        options = np.repeat(rows[[i]], size, axis=0)
        options[:, j] = np.arange(size)
        log_p = posterior.log_predictive_density(tree, case.model, mixing, options)
        assert filled[i, j] == np.argmax(log_p)
    observed = ~np.isnan(rows)
    np.testing.assert_array_equal(filled[observed], rows[observed])


def test_items_are_drawn_from_the_predictive():
    X = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=float)
    model = Bernoulli(a=0.7, b=0.7).resolve(X)
    mixing = DirichletProcess(1.0)
    tree = agglomerate(model, model.suffstats(X), mixing).tree
    n = 20_000
    draws = posterior.sample_items(tree, model, mixing, n, np.random.default_rng(1))
    options = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T.astype(float)
    p = np.exp(posterior.log_predictive_density(tree, model, mixing, options))
    for option, probability in zip(options, p, strict=True):
        seen = (draws == option).all(axis=1).mean()
        assert abs(seen - probability) < 5 * np.sqrt(probability * (1 - probability) / n)


def test_contributions_add_up_to_the_log_bayes_factor(fitted):
    case, _, tree, _, _ = fitted
    for node in range(tree.n_leaves, tree.n_nodes):
        parts = posterior.split_contributions(tree, case.model, node)
        children = tree.children(node)
        expected = tree.log_marginal[children].sum() - tree.log_marginal[node]
        assert parts.sum() == pytest.approx(expected)
        assert parts.shape == (3,)
    with pytest.raises(BhclustError, match="is a leaf"):
        posterior.split_contributions(tree, case.model, 0)


def test_cluster_against_the_rest():
    case = make_case("bernoulli", 12, np.random.default_rng(0))
    stats = case.model.suffstats(case.X)
    tree = agglomerate(case.model, stats, DirichletProcess(1.0)).tree
    labels = posterior.cut(tree, n_clusters=3)
    f = cluster_log_f(case.model, case.X)
    for label in range(3):
        inside = tuple(np.flatnonzero(labels == label))
        outside = tuple(np.flatnonzero(labels != label))
        expected = f(inside) + f(outside) - f(tuple(range(12)))
        ours = posterior.cluster_contributions(tree, case.model, labels, label)
        assert ours.sum() == pytest.approx(expected)


def test_cluster_nodes_are_the_nodes_of_the_labels(fitted):
    _, _, tree, _, _ = fitted
    labels = posterior.cut(tree)
    sets = leaf_sets(tree)
    for label, node in enumerate(posterior.cluster_nodes(tree, labels)):
        assert sets[node] == tuple(np.flatnonzero(labels == label))


def test_a_chain_of_100_000_leaves_is_no_problem():
    n = 100_000
    parent = np.empty(2 * n - 1, dtype=np.int32)
    parent[0], parent[1:n] = n, np.arange(n, 2 * n - 1)
    parent[n:] = np.arange(n + 1, 2 * n)
    parent[-1] = -1
    log_odds = np.full(2 * n - 1, -12.0)
    log_odds[:n] = np.inf
    log_odds[n + 50_000] = 13.0
    tree = Tree(parent=parent, n_leaves=n, log_odds=log_odds)
    assert posterior.cut(tree).max() + 1 == n - 50_001
    assert posterior.cut(tree, method="threshold").max() + 1 == n - 50_001
    assert posterior.cut(tree, n_clusters=3).max() == 2
    assert 0 < posterior.expected_n_clusters(tree) < n
    assert posterior.co_clustering(tree, 0, n - 1) == pytest.approx(1 / (1 + np.exp(12)))
    distribution = posterior.n_clusters_distribution(tree)
    assert distribution.sum() == pytest.approx(1.0)
    assert len(posterior.sample_partitions(tree, 1, np.random.default_rng(0))[0]) == n


def test_chain_scores():
    """score_tree on a chain of 20,000 leaves runs in one pass."""
    n = 20_000
    parent = np.empty(2 * n - 1, dtype=np.int32)
    parent[0], parent[1:n] = n, np.arange(n, 2 * n - 1)
    parent[n:] = np.arange(n + 1, 2 * n)
    parent[-1] = -1
    X = (np.arange(n) % 2).astype(float)[:, None]
    model = Bernoulli(a=1.0, b=1.0).resolve(X)
    tree = score_tree(parent, model, model.suffstats(X), DirichletProcess(1.0))
    assert np.isfinite(tree.log_evidence).all()
    assert tree.stats[-1].tolist() == [n / 2, n / 2]


def test_forests_are_independent_trees():
    odds = [np.inf] * 4 + [0.0, 0.0]
    forest = Tree(parent=[4, 4, 5, 5, -1, -1], n_leaves=4, log_odds=odds)
    np.testing.assert_allclose(posterior.n_clusters_distribution(forest), [0, 0, 0.25, 0.5, 0.25])
    assert posterior.co_clustering(forest, 0, 2) == 0
    assert posterior.co_clustering_matrix(forest)[0, 2] == 0
    assert posterior.cut(forest, n_clusters=2).tolist() == [0, 0, 1, 1]
    with pytest.raises(BhclustError, match="exactly 1 clusters"):
        posterior.cut(forest, n_clusters=1)


def test_trees_without_probabilities_say_so():
    tree = Tree(parent=[2, 2, -1], n_leaves=2)
    with pytest.raises(BhclustError, match="carries no probabilities"):
        posterior.cut(tree)
    scored = Tree(parent=[2, 2, -1], n_leaves=2, log_odds=[np.inf, np.inf, 0.0])
    model = Bernoulli(a=1.0, b=1.0).resolve(np.eye(2))
    with pytest.raises(BhclustError, match="carries no statistics"):
        posterior.log_predictive_density(scored, model, Rose(0.5), np.eye(2))
    with pytest.raises(BhclustError, match="carries no evidence"):
        posterior.log_evidence(scored)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number"),
        ({"n_clusters": 9}, "at most 2"),
        ({"n_clusters": 1.5}, "n_clusters must be a whole number"),
        ({"method": "elbow"}, "method must be one of"),
        ({"method": "threshold", "threshold": 2.0}, "threshold must lie"),
    ],
)
def test_bad_cuts_are_refused(arguments, message):
    tree = Tree(parent=[2, 2, -1], n_leaves=2, log_odds=[np.inf, np.inf, 0.0])
    with pytest.raises(BhclustError, match=message):
        posterior.cut(tree, **arguments)
    with pytest.raises(BhclustError, match="leaves are numbered"):
        posterior.co_clustering(tree, 0, 5)
