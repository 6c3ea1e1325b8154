"""Growing trees: evidence after every insertion, repairs, and `partial_fit`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, load, posterior
from bhclust._coordinates import Prior
from bhclust._growing_any import GrowingTree
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.growing import CompiledGrowingTree, make_growing
from bhclust.metrics import dendrogram_purity
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import Bernoulli, Categorical
from bhclust.randomised import comparable_evidence
from bhclust.tree import Tree
from tests.test_randomised import blocks
from tests.zoo import ADDITIVE_MODELS, ADDITIVE_MODELS_AND_HOLES, make_case

MIXINGS = [
    (False, DirichletProcess(0.8)),
    (False, Constant(0.4)),
    (True, Rose(0.4)),
    (True, DirichletProcess(1.2)),
]


def value_of(growing, prior):
    """Return the value at the root of the growing topology, scored from scratch."""
    parent, stats, _, _ = growing.grown()
    again = score_tree(parent, prior.model, stats, prior.mixing)
    if isinstance(prior.mixing, DirichletProcess):
        total = gammaln(prior.mixing.alpha) - gammaln(again.n_leaves + prior.mixing.alpha)
        return comparable_evidence(again, prior.mixing) - total
    return again.log_evidence[-1]


def bare(growing):
    """Return the topology as it has grown."""
    parent, stats, _, _ = growing.grown()
    return Tree(parent=parent, n_leaves=len(stats))


@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
@pytest.mark.parametrize(("name", "missing"), ADDITIVE_MODELS_AND_HOLES)
def test_after_every_insertion_the_evidence_is_that_of_the_tree(name, missing, rose, mixing):
    case = make_case(name, 24, np.random.default_rng(1), missing)
    prior = Prior(case.model, mixing)
    kinds = [GrowingTree]
    if name in ("bernoulli", "categorical"):
        kinds.append(CompiledGrowingTree)
    for kind in kinds:
        growing = kind(None, prior, rose=rose)
        for i in range(24):
            growing.insert(case.X[i : i + 1])
            if i:
                wanted = value_of(growing, prior)
                assert growing.value == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        leaves = growing.tree().stats[:24]
        np.testing.assert_allclose(leaves, case.model.suffstats(case.X), rtol=1e-12)


@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
@pytest.mark.parametrize("name", ADDITIVE_MODELS)
def test_repairs_never_lower_the_evidence(name, rose, mixing, monkeypatch):
    case = make_case(name, 60, np.random.default_rng(2))
    growing = GrowingTree(None, Prior(case.model, mixing), rose=rose)
    growing.insert(case.X[:20])
    for repair in ("_collapse", "_rotate", "_graft"):
        whole = getattr(GrowingTree, repair)

        def watched(self, *arguments, whole=whole):
            before = self.value
            whole(self, *arguments)
            assert self.value >= before - 1e-9

        monkeypatch.setattr(GrowingTree, repair, watched)
    growing.insert(case.X[20:])


def test_repairs_are_made_and_raise_the_evidence():
    # One stream may be lucky without repairs; the sum over several is not.
    gain = 0.0
    for seed in range(6):
        X, _ = blocks(300, np.random.default_rng(seed), noise=0.1, n_classes=20)
        prior = Prior(Bernoulli(a=0.5, b=0.5).resolve(X), DirichletProcess(1.0))
        with_repairs = CompiledGrowingTree(None, prior, rose=False)
        without = CompiledGrowingTree(None, prior, rose=False, repairs=False)
        with_repairs.insert(X)
        without.insert(X)
        assert with_repairs.repairs.rotations > 0
        assert without.repairs == (0, 0, 0)
        gain += with_repairs.value - without.value
    assert gain > 100


def test_a_graft_brings_halves_of_a_cluster_together():
    # A tree in which one class has been torn in two: new items of it pull the halves together.
    rng = np.random.default_rng(4)
    prototypes = rng.integers(2, size=(3, 30))
    y = np.repeat([0, 1, 2, 0], 4)
    X = (prototypes[y] ^ (rng.random((16, 30)) < 0.02)).astype(float)
    prior = Prior(Bernoulli(a=0.3, b=0.3).resolve(X), DirichletProcess(1.0))
    parent = [16, 16, 17, 18, 19, 19, 20, 21, 22, 22, 23, 24, 25, 25, 26, 27]
    parent += [17, 18, 28, 20, 21, 28, 23, 24, 29, 26, 27, 30, 29, 30, -1]
    torn = score_tree(parent, prior.model, prior.model.suffstats(X), prior.mixing)
    more = (prototypes[np.zeros(12, dtype=int)] ^ (rng.random((12, 30)) < 0.02)).astype(float)
    for kind in (CompiledGrowingTree, GrowingTree):
        growing = kind(torn, prior, rose=False)
        growing.insert(more)
        assert growing.repairs.grafts + growing.repairs.rotations > 0
        classes = np.append(y, np.zeros(12, dtype=int))
        assert dendrogram_purity(growing.tree(), classes) == pytest.approx(1.0)


@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
@pytest.mark.parametrize("start", [0, 30])
def test_the_compiled_tree_is_the_reference(rose, mixing, start):
    # Every column has its own prior, so that no two scores are equal but for rounding.
    rng = np.random.default_rng(5)
    X, _ = blocks(120, rng, noise=0.2, d=40)
    codes = np.hstack([X, rng.integers(3, size=(120, 10))])
    codes[rng.random(codes.shape) < 0.05] = np.nan
    bernoulli = Bernoulli(a=rng.uniform(0.3, 0.6, size=40), b=rng.uniform(0.5, 0.9, size=40))
    n_levels = int((np.nanmax(codes, axis=0) + 1).sum())
    categorical = Categorical(concentration=rng.uniform(0.4, 0.8, size=n_levels))
    for model, table in ((bernoulli, X), (categorical, codes)):
        prior = Prior(model.resolve(table), mixing)
        stats = prior.model.suffstats(table[:start])
        known = agglomerate(prior.model, stats, mixing, rose=rose).tree if start else None
        fast = CompiledGrowingTree(known, prior, rose=rose)
        slow = GrowingTree(known, prior, rose=rose)
        fast.insert(table[start:])
        slow.insert(table[start:])
        assert fast.value == pytest.approx(slow.value, rel=1e-9)
        assert fast.repairs.grafts == slow.repairs.grafts
        a, b, c, d = (
            {tuple(tree.leaves(k)) for k in range(120, tree.n_nodes)}
            for tree in (bare(fast), bare(slow), fast.tree(), slow.tree())
        )
        assert a == b
        assert c == d


@pytest.mark.parametrize("order", ["random", "sorted"])
@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_a_stream_ends_near_the_batch_tree(kind, order):
    X, y = blocks(900, np.random.default_rng(6), noise=0.08)
    if order == "sorted":
        place = np.argsort(y, kind="stable")
        X, y = X[place], y[place]
    stream = kind(Bernoulli(a=0.5, b=0.5), learn=False)
    for start in range(0, 900, 150):
        stream.partial_fit(X[start : start + 150])
    batch = kind(Bernoulli(a=0.5, b=0.5), learn=False, strategy="greedy").fit(X)
    check = stream.check_growth()
    assert check.batch_evidence == pytest.approx(
        comparable_evidence(batch.tree_, batch.mixing_), rel=1e-9
    )
    share = 0.02 if kind is BayesianRoseTree else 0.01
    assert check.evidence > check.batch_evidence - share * abs(check.batch_evidence)
    assert dendrogram_purity(stream.tree_, y) > dendrogram_purity(batch.tree_, y) - 0.02
    # The rose prior has no price for many small clusters, so that neither tree's most probable
    # partition is that of the classes: the trees agree in what is close, not in where they stop.
    assert check.agreement > (0.5 if kind is BayesianRoseTree else 0.9)


@pytest.mark.parametrize("noise", [0.08, 0.15])
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_a_rose_stream_of_weak_classes_stays_as_pure_as_the_batch_tree(order, noise):
    for seed in range(3):
        X, y = blocks(600, np.random.default_rng(seed), noise=noise)
        if order == "sorted":
            place = np.argsort(y, kind="stable")
            X, y = X[place], y[place]
        prior = Prior(Bernoulli(a=0.5, b=0.5).resolve(X), Rose(0.5))
        batch = agglomerate(prior.model, prior.model.suffstats(X), prior.mixing, rose=True).tree
        growing = CompiledGrowingTree(None, prior, rose=True)
        growing.insert(X)
        assert dendrogram_purity(growing.tree(), y) > dendrogram_purity(batch, y) - 0.02


@pytest.mark.parametrize(("rose", "mixing"), MIXINGS)
def test_clusters_are_put_together_anew_without_loss(rose, mixing):
    changed = 0
    for seed in range(4):
        X, _ = blocks(200, np.random.default_rng(seed), noise=0.15, n_classes=12)
        prior = Prior(Bernoulli(a=0.5, b=0.5).resolve(X), mixing)
        growing = CompiledGrowingTree(None, prior, rose=rose)
        growing.insert(X)
        grown = growing.grown()
        before = grown.scored(grown.parent, prior)
        after = growing.tree()
        assert after.n_leaves == 200
        known = comparable_evidence(before, mixing)
        assert comparable_evidence(after, mixing) >= known - 1e-9 * abs(known)
        # All numbers are those of the topology.
        again = score_tree(after.parent, prior.model, grown.stats, mixing)
        np.testing.assert_allclose(after.log_evidence, again.log_evidence, rtol=1e-12)
        np.testing.assert_allclose(after.stats, again.stats, rtol=1e-12)
        sets = [{tuple(t.leaves(k)) for k in range(200, t.n_nodes)} for t in (before, after)]
        changed += sets[0] != sets[1]
        # Inside the clusters nothing changes, but that flat nodes of rose trees are flat.
        inside = {
            leaves for leaves in sets[0] if len(set(posterior.cut(before)[list(leaves)])) == 1
        }
        if not (rose and not isinstance(mixing, DirichletProcess)):
            assert inside <= sets[1]
    assert changed > 0


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_partial_fit_after_fit_and_after_load(kind, tmp_path):
    X, _ = blocks(300, np.random.default_rng(7), noise=0.05)
    grown = kind("bernoulli").fit(X[:200])
    first = grown.labels_
    grown.partial_fit(X[200:250])
    assert grown.labels_.shape == (250,)
    assert grown.tree_.n_leaves == 250
    assert grown.leaf_rows_.tolist() == list(range(250))
    assert grown.n_clusters_ == grown.labels_.max() + 1
    assert len(first) == 200
    grown.save(tmp_path / "grown.npz")
    loaded = load(tmp_path / "grown.npz")
    assert loaded.tree_.parent.tolist() == grown.tree_.parent.tolist()
    for estimator in (grown, loaded):
        estimator.partial_fit(X[250:])
        assert estimator.predict(X[:5]).shape == (5,)
        assert estimator.co_clustering(0, 299) >= 0
        assert estimator.tree_.n_leaves == 300
    grown.fit(X[:40])
    assert grown.tree_.n_leaves == 40


def test_partial_fit_takes_the_tables_that_fit_takes():
    rows = {"colour": ["red", "blue", "red", "blue"], "size": [1.0, 2.0, 1.1, None]}
    grown = BayesianHierarchicalClustering().fit(rows)
    grown.partial_fit({"colour": ["red", None], "size": [0.9, 2.1]})
    assert grown.tree_.n_leaves == 6
    with pytest.raises(ValueError, match="category 'green'"):
        grown.partial_fit({"colour": ["green"], "size": [1.0]})
    assert grown.tree_.n_leaves == 6
    numbers = BayesianHierarchicalClustering("diagonal_gaussian").fit([[0.0, 1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match="3 features, but"):
        numbers.partial_fit([[1.0, 2.0, 3.0]])
    assert numbers.tree_.n_leaves == 2


def test_partial_fit_says_what_it_cannot_do():
    X, _ = blocks(50, np.random.default_rng(8))
    weighted = BayesianHierarchicalClustering("bernoulli").fit(X, sample_weight=np.arange(50) % 2)
    with pytest.raises(ValueError, match="rows of weight zero"):
        weighted.partial_fit(X)
    model = Bernoulli().resolve(X)
    tree = score_tree([2, 2, -1], model, model.suffstats(X[:2]), DirichletProcess(1.0))
    bare = type(tree)(parent=tree.parent, n_leaves=2)
    with pytest.raises(ValueError, match="statistics of its nodes are there"):
        make_growing(bare, Prior(model, DirichletProcess(1.0)), rose=False)


def test_weights_of_a_fitted_tree_stay():
    X, _ = blocks(40, np.random.default_rng(9))
    weight = 1.0 + np.arange(40) % 3
    grown = BayesianHierarchicalClustering("bernoulli", learn=False).fit(X, sample_weight=weight)
    grown.partial_fit(X[:5])
    assert grown.tree_.weight[-1] == weight.sum() + 5
    assert grown.tree_.weight[:40].tolist() == weight.tolist()


def test_the_first_call_may_be_a_single_row():
    grown = BayesianHierarchicalClustering(Bernoulli(a=1.0, b=1.0), learn=False)
    for row in ([0, 1, 1], [0, 1, 1], [1, 0, 0]):
        grown.partial_fit([row])
    assert grown.labels_.tolist() == [0, 0, 1]
