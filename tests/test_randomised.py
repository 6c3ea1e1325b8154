"""Randomised trees: the router, the parts, and the numbers on the nodes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, load, randomised
from bhclust._coordinates import Prior
from bhclust._routing import Router, make_router, port_scores, route, row_hash, sample_rows, top_of
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.metrics import dendrogram_purity
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, Multinomial, Poisson
from bhclust.randomised import Items, RandomisedSearch, Sizes, balanced, compact, pooled_by_label
from tests.oracles.randomised import port_score, sets_below
from tests.zoo import ADDITIVE_MODELS, make_case

MIXINGS = [(False, DirichletProcess(0.8)), (False, Constant(0.4)), (True, Rose(0.4))]
SIZES = Sizes(20, 25)


def search(case, *, rose, mixing, seed=3, sizes=SIZES, groups=False, weight=None):
    """Return a randomised tree of a small case."""
    weight = np.ones(len(case.X)) if weight is None else weight
    items = Items(case.X, weight)
    prior = Prior(case.model, mixing)
    return RandomisedSearch(prior, items, sizes, rose=rose, seed=seed, groups=groups).run()


def blocks(n, rng, noise=0.1, n_classes=6, d=24):
    """Return noisy copies of a few binary prototypes."""
    y = rng.integers(n_classes, size=n)
    prototypes = rng.integers(2, size=(n_classes, d))
    return (prototypes[y] ^ (rng.random((n, d)) < noise)).astype(float), y


def topics(n, d, length=25, seed=14):
    """Return sparse counts of the words of a few topics."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(d, 0.02), size=5)
    y = rng.integers(5, size=n)
    places = np.concatenate([rng.choice(d, size=length, p=words[c]) for c in y])
    entries = (np.ones(len(places)), (np.repeat(np.arange(n), length), places))
    counts = sparse.csr_array(entries, shape=(n, d))
    counts.sum_duplicates()
    return counts, y


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_every_number_is_that_of_the_whole_data(name, rose, mixing, groups):
    case = make_case(name, 150, np.random.default_rng(1))
    tree = search(case, rose=rose, mixing=mixing, groups=groups)
    again = score_tree(tree.parent, case.model, case.model.suffstats(case.X), mixing)
    assert tree.n_leaves == 150
    np.testing.assert_allclose(tree.log_marginal, again.log_marginal, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tree.log_evidence, again.log_evidence, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tree.log_odds, again.log_odds, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(tree.height, again.height, rtol=1e-7, atol=1e-9)


def test_weights_count_like_copies():
    case = make_case("bernoulli", 90, np.random.default_rng(2))
    weight = np.random.default_rng(2).integers(1, 4, size=90).astype(float)
    tree = search(case, rose=False, mixing=DirichletProcess(1.0), weight=weight)
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    again = score_tree(tree.parent, case.model, stats, DirichletProcess(1.0), weight=weight)
    np.testing.assert_allclose(tree.log_evidence, again.log_evidence, rtol=1e-9)


@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_the_router_is_the_predictive_of_each_subtree(name, rose, mixing):
    case = make_case(name, 60, np.random.default_rng(4))
    stats = case.model.suffstats(case.X)
    tree = agglomerate(case.model, stats[:50], mixing, rose=rose).tree
    top = top_of(tree, 1000, 100)
    router = make_router(tree, top.ports, mixing, least_share=0.0)
    scores = port_scores(case.model, router, case.X[50:])
    wanted = [[port_score(tree, p, case.model, mixing, x) for p in top.ports] for x in case.X[50:]]
    np.testing.assert_allclose(scores, wanted, rtol=1e-9, atol=1e-9)
    pruned = make_router(tree, top.ports, mixing)
    assert (port_scores(case.model, pruned, case.X[50:]) <= scores + 1e-9).all()
    clear = np.sort(scores, axis=1)
    clear = clear[:, -1] - clear[:, -2] > 1.0
    best = np.argmax(scores, axis=1)
    assert (route(case.model, pruned, case.X[50:])[clear] == best[clear]).all()


def test_the_top_of_a_tree_keeps_its_sets_of_leaves():
    X, _ = blocks(64, np.random.default_rng(5), noise=0.05)
    model = Bernoulli(a=0.5, b=0.5).resolve(X)
    tree = agglomerate(model, model.suffstats(X), DirichletProcess(1.0)).tree
    top = top_of(tree, 640, 200)
    sets = sets_below(tree.parent, tree.n_leaves)
    for port, node in enumerate(top.ports):
        assert set(np.flatnonzero(top.port_of_leaf == port)) == sets[node]
    above = sets_below(top.parent, len(top.ports))
    spread = [{leaf for port in ports for leaf in sets[top.ports[port]]} for ports in above]
    assert all(leaves in sets for leaves in spread)
    assert spread[-1] == set(range(64))
    # Opened are the root, and below an open node those that are large and no single cluster.
    opened = {tree.n_nodes - 1}
    for node in range(tree.n_nodes - 2, 63, -1):
        large = len(sets[node]) * 10 > 150 and len(sets[node]) >= 16
        if large and tree.log_odds[node] < 0 and int(tree.parent[node]) in opened:
            opened.add(node)
    assert len(top.parent) - len(top.ports) == len(opened)
    assert len(opened) > 1


def test_a_sample_depends_on_rows_and_seed_only():
    rows = np.arange(1000)
    whole = set(rows[sample_rows(rows, 50, 7)])
    hashes = row_hash(rows, 7)
    assert whole == set(np.argsort(hashes)[:50])
    order = np.random.default_rng(0).permutation(1000)
    assert whole == set(order[sample_rows(order, 50, 7)])
    assert len(whole & set(rows[sample_rows(rows, 50, 8)])) < 15
    # Bits look random: the mean of uniform numbers has a standard error of 0.009.
    assert np.mean(hashes / 2.0**64) == pytest.approx(0.5, abs=0.04)


def test_parts_are_exact_trees():
    # One part: the randomised tree is the exact one.
    case = make_case("bernoulli", 80, np.random.default_rng(6))
    exact = agglomerate(case.model, case.model.suffstats(case.X), DirichletProcess(1.0)).tree
    tree = search(case, rose=False, mixing=DirichletProcess(1.0), sizes=Sizes(10, 80))
    assert tree.parent.tolist() == exact.parent.tolist()


@pytest.mark.parametrize("rose", [False, True])
@pytest.mark.parametrize("groups", [False, True])
def test_rows_that_cannot_be_told_apart_are_divided(rose, groups):
    X = np.tile([1.0, 0.0, 1.0], (3000, 1))
    X[:10] = [0.0, 1.0, 0.0]
    model = Bernoulli(a=0.5, b=0.5).resolve(X)
    mixing = Rose(0.5) if rose else DirichletProcess(1.0)
    prior, items = Prior(model, mixing), Items(X, np.ones(3000))
    how = {"rose": rose, "seed": 0, "groups": groups}
    tree = RandomisedSearch(prior, items, Sizes(50, 100), **how).run()
    assert tree.n_leaves == 3000
    assert dendrogram_purity(tree, (np.arange(3000) < 10).tolist()) > 0.99
    if rose:  # one node for the equal rows
        assert tree.n_nodes < 3020


def test_close_to_the_exact_tree():
    rng = np.random.default_rng(8)
    X, y = blocks(1500, rng)
    model = Bernoulli(a=0.5, b=0.5).resolve(X)
    mixing = DirichletProcess(1.0)
    exact = agglomerate(model, model.suffstats(X), mixing).tree
    prior, items = Prior(model, mixing), Items(X, np.ones(len(X)))
    tree = RandomisedSearch(prior, items, Sizes(200, 200), rose=False, seed=1).run()
    assert dendrogram_purity(tree, y) > dendrogram_purity(exact, y) - 0.02
    gap = exact.log_evidence[-1] - tree.log_evidence[-1]
    assert gap < 0.01 * abs(exact.log_evidence[-1])


def test_more_seeds_never_lose_evidence():
    X, _ = blocks(800, np.random.default_rng(9), noise=0.25)
    common = {"strategy": "randomised", "sample_size": 60, "part_size": 100, "learn": False}
    one = BayesianHierarchicalClustering("bernoulli", n_seeds=1, **common).fit(X)
    four = BayesianHierarchicalClustering("bernoulli", n_seeds=4, **common).fit(X)
    assert four.log_evidence_bound_ >= one.log_evidence_bound_
    other = BayesianHierarchicalClustering("bernoulli", random_state=5, **common).fit(X)
    again = BayesianHierarchicalClustering("bernoulli", n_jobs=2, **common).fit(X)
    assert again.tree_.parent.tolist() == one.tree_.parent.tolist()
    assert other.tree_.parent.tolist() != one.tree_.parent.tolist()


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
@pytest.mark.parametrize("strategy", ["randomised", "groups"])
def test_estimators_learn_and_predict(kind, strategy, tmp_path):
    X, y = blocks(700, np.random.default_rng(10), noise=0.05)
    fitted = kind("bernoulli", strategy=strategy, sample_size=80, part_size=150, learn_rows=200)
    fitted.fit(X)
    assert fitted.strategy_ == strategy
    # Rose trees of this table are not pure either when they are built exactly.
    exact = dendrogram_purity(kind("bernoulli").fit(X).tree_, y)
    slack = 0.05 if strategy == "randomised" else 0.2
    assert dendrogram_purity(fitted.tree_, y) > exact - slack
    assert np.mean(fitted.predict(X) == fitted.labels_) > 0.9
    fitted.save(tmp_path / "fit.npz")
    assert (load(tmp_path / "fit.npz").predict(X[:20]) == fitted.predict(X[:20])).all()


def test_a_tree_without_statistics_predicts_by_its_clusters(monkeypatch, tmp_path):
    X, _ = blocks(700, np.random.default_rng(11), noise=0.05)
    common = {"strategy": "randomised", "sample_size": 80, "part_size": 150, "learn": False}
    full = BayesianHierarchicalClustering("bernoulli", **common).fit(X)
    monkeypatch.setattr(randomised, "LARGEST_STATS", 100)
    small = BayesianHierarchicalClustering("bernoulli", **common).fit(X)
    assert small.tree_.stats is None
    assert small.cluster_tree_.n_leaves == small.n_clusters_
    assert (small.labels_ == full.labels_).all()
    assert (small.predict(X) == full.predict(X)).mean() > 0.98
    assert small.score(X) == pytest.approx(full.score(X), abs=0.02)
    for label in range(small.n_clusters_):
        ones = X[small.labels_ == label].sum(axis=0)
        np.testing.assert_allclose(small.cluster_tree_.stats[label, : X.shape[1]], ones)
    small.save(tmp_path / "small.npz")
    assert (load(tmp_path / "small.npz").predict(X[:30]) == small.predict(X[:30])).all()
    assert small.explain_cluster(0)[0].log_bayes_factor > 0
    with pytest.raises(ValueError, match="polish=True needs the statistics"):
        BayesianHierarchicalClustering("bernoulli", polish=True, **common).fit(X)


@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_pooling_by_label_is_merging_one_by_one(name):
    case = make_case(name, 40, np.random.default_rng(12))
    rows = np.arange(5, 40)
    label = np.random.default_rng(0).integers(4, size=35)
    pooled = pooled_by_label(case.model, Items(case.X, np.ones(40)), rows, label)
    stats = case.model.suffstats(case.X)
    for c in range(4):
        own = rows[label == c]
        total = stats[own[:1]]
        for row in own[1:]:
            total = case.model.merge(total, stats[row : row + 1])
        np.testing.assert_allclose(pooled[c], total[0], rtol=1e-12, atol=1e-12)


def test_the_compact_tree_has_the_same_weights_of_clusters():
    case = make_case("bernoulli", 60, np.random.default_rng(13))
    tree = agglomerate(case.model, case.model.suffstats(case.X), DirichletProcess(1.0)).tree
    labels = tree.cut()
    stats = pooled_by_label(case.model, Items(case.X, np.ones(60)), np.arange(60), labels)
    small = compact(tree, labels, case.model, stats)
    sizes = np.bincount(labels)
    assert small.weight[: small.n_leaves].tolist() == sizes.tolist()
    assert small.weight[-1] == 60
    assert small.log_odds[-1] == tree.log_odds[-1]


def test_sparse_rows_stay_sparse(monkeypatch):
    rng = np.random.default_rng(14)
    topics = rng.dirichlet(np.full(300, 0.02), size=5)
    y = rng.integers(5, size=600)
    counts = np.stack([rng.multinomial(40, topics[c]) for c in y])
    how = {"strategy": "randomised", "sample_size": 80, "part_size": 120, "learn": False}
    dense = BayesianHierarchicalClustering("multinomial", **how).fit(counts)
    widest = []
    whole = sparse.csr_array.toarray

    def watched(self, *args, **kwargs):
        widest.append(self.shape[0])
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(randomised, "LARGEST_STATS", 100)
    monkeypatch.setattr(randomised, "_ROW_BLOCK", 100)
    monkeypatch.setattr(sparse.csr_array, "toarray", watched)
    table = sparse.csr_array(counts)
    fitted = BayesianHierarchicalClustering("multinomial", **how).fit(table)
    assert max(widest) <= 120  # a part, a sample or a block
    assert fitted.tree_.parent.tolist() == dense.tree_.parent.tolist()
    assert dendrogram_purity(fitted.tree_, y) > 0.95


def peak_memory(job):
    """Return the highest number of bytes that Python and NumPy handed out during a job."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_sparse_table_is_never_dense_as_a_whole(monkeypatch):
    # Whatever makes it dense would show: all memory that NumPy hands out is counted.
    monkeypatch.setattr(randomised, "LARGEST_STATS", 100)
    monkeypatch.setattr(randomised, "_MOST_NUMBERS", 1 << 18)
    n, d = 3000, 1500
    counts, y = topics(n, d)
    how = {"strategy": "randomised", "learn": False, "engine": "numpy"}
    fitted = BayesianHierarchicalClustering("multinomial", **how)
    fitted.fit(counts[:300])  # kernels are loaded
    assert peak_memory(lambda: fitted.fit(counts)) < 0.5 * n * d * 8
    assert dendrogram_purity(fitted.tree_, y) > 0.9


@pytest.mark.parametrize("model", [Bernoulli(), Multinomial(), Poisson()])
def test_priors_and_routers_take_sparse_rows_as_they_are(model):
    n, d = 4000, 2000
    counts, _ = topics(n, d)
    if isinstance(model, Bernoulli):
        counts.data[:] = 1.0
    few = model.resolve(counts[:5])
    router = Router(few.suffstats(counts[:5]), np.zeros(5), np.arange(6))
    jobs = {
        "prior": lambda: model.resolve(counts),
        "ports": lambda: route(few, router, counts),
        "densities": lambda: few.log_predictive(router.stats, counts),
    }
    for name, job in jobs.items():
        assert peak_memory(job) < 0.25 * n * d * 8, name


def test_balanced_trees_are_flat():
    for n in (2, 3, 7, 64):
        sets = sets_below(balanced(n), n)
        assert sets[-1] == set(range(n))
        assert len(balanced(n)) == 2 * n - 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sample_size": 1}, "sample_size must"),
        ({"part_size": 0}, "part_size must"),
        ({"n_seeds": 0}, "n_seeds must"),
        ({"strategy": "random"}, "strategy must be one of"),
    ],
)
def test_bad_settings_are_named(setting, message):
    how = {"strategy": "randomised", **setting}
    with pytest.raises(ValueError, match=message):
        BayesianHierarchicalClustering(**how).fit([[0, 1], [1, 0]])
