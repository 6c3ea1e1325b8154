"""Scores against enumeration of leaves and pairs, and against numbers worked out by hand."""

from __future__ import annotations

import datetime
import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bhclust._validation import BhclustError
from bhclust.metrics import dendrogram_purity, leave_one_out_accuracy, subtree_score
from bhclust.tree import Tree
from tests.oracles import trees as oracle
from tests.strategies import chain, parents

SCORES = [dendrogram_purity, subtree_score, leave_one_out_accuracy]
BALANCED = Tree([4, 4, 5, 5, 6, 6, -1], 4)


@st.composite
def classified_trees(draw, **options):
    parent, n_leaves = draw(parents(min_leaves=2, max_leaves=14, **options))
    y = draw(st.lists(st.integers(0, 4), min_size=n_leaves, max_size=n_leaves))
    assume(len(set(y)) < n_leaves)
    return Tree(parent, n_leaves), y


@given(classified_trees())
def test_against_plain_definitions(drawn):
    tree, y = drawn
    plain = (tree.parent, tree.n_leaves, y)
    assert dendrogram_purity(tree, y) == pytest.approx(oracle.purity_by_leaf(*plain), rel=1e-12)
    assert dendrogram_purity(tree, y, average="pair") == pytest.approx(
        oracle.purity_by_pair(*plain), rel=1e-12
    )
    assert subtree_score(tree, y) == oracle.subtree_score(*plain)
    assert leave_one_out_accuracy(tree, y) == pytest.approx(oracle.leave_one_out(*plain), rel=1e-12)


@given(classified_trees(forest=True))
def test_forests(drawn):
    tree, y = drawn
    root_of = {leaf: oracle.ancestors(tree.parent, leaf)[-1] for leaf in range(tree.n_leaves)}
    split = any(len({root_of[i] for i in range(len(y)) if y[i] == label}) > 1 for label in set(y))
    if split:
        with pytest.raises(BhclustError, match="two leaves of one class are below different roots"):
            dendrogram_purity(tree, y)
    else:
        expected = oracle.purity_by_leaf(tree.parent, tree.n_leaves, y)
        assert dendrogram_purity(tree, y) == pytest.approx(expected, rel=1e-12)
    assert subtree_score(tree, y) == oracle.subtree_score(tree.parent, tree.n_leaves, y)
    if any(tree.parent[: tree.n_leaves] == -1):
        with pytest.raises(BhclustError, match=r"leaf \d+ is a root"):
            leave_one_out_accuracy(tree, y)
    else:
        expected = oracle.leave_one_out(tree.parent, tree.n_leaves, y)
        assert leave_one_out_accuracy(tree, y) == pytest.approx(expected, rel=1e-12)


@given(classified_trees())
def test_scores_do_not_depend_on_the_names_of_classes(drawn):
    tree, y = drawn
    renamed = [("class", 7 - label) for label in y]
    for score in SCORES:
        assert score(tree, renamed) == pytest.approx(score(tree, y), rel=1e-12)


def test_by_hand():
    # Chain ((((0 1) 2) 3) 4) with a a b a b: the pair (0, 1) is pure, (0, 3) and (1, 3) meet
    # among 3 of 4, and (2, 4) meets at the root among 2 of 5.
    tree, y = chain(5), list("aabab")
    assert dendrogram_purity(tree, y, "pair") == pytest.approx((1 + 3 / 4 + 3 / 4 + 2 / 5) / 4)
    by_leaf = ((1 + 3 / 4) / 2 + (1 + 3 / 4) / 2 + 3 / 4 + 2 / 5 + 2 / 5) / 5
    assert dendrogram_purity(tree, y, "leaf") == pytest.approx(by_leaf)
    assert subtree_score(tree, y) == 1 / 3
    # Leaves 0 and 1 see each other, 2 sees a a, 3 sees a a b, 4 sees a a a b.
    assert leave_one_out_accuracy(tree, y) == 3 / 5


def test_ties_share_the_vote():
    star = Tree([4, 4, 4, 4, -1], 4)
    # Leaf 0 of a a b c sees a b c: right one time in three; likewise leaf 1; b and c see a a.
    assert leave_one_out_accuracy(star, list("aabc")) == pytest.approx((1 / 3 + 1 / 3) / 4)


@pytest.mark.parametrize("score", SCORES)
def test_perfect_trees_of_any_arity(score):
    rose = Tree([6, 6, 6, 7, 7, 7, 8, 8, -1], 6)
    assert score(rose, list("aaabbb")) == 1
    assert score(rose, list("aaaaaa")) == 1


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "y",
    [
        np.array([0, 0, 1, 2]),
        np.array([0.5, 0.5, 1.5, 2.5], dtype=np.float32),
        np.array(["a", "a", "b", "c"]),
        np.array(["a", "a", 3, ("t",)], dtype=object),
        [True, True, "True", 2],
        (frozenset("a"), frozenset("a"), b"b", datetime.date(2020, 1, 1)),
        "aabc",
    ],
)
def test_labels_of_any_type(score, y):
    assert score(BALANCED, y) == score(BALANCED, [0, 0, 1, 2])


def test_labels_of_a_data_frame():
    import pandas

    for dtype in ("object", "category", "string"):
        y = pandas.Series(["a", "a", "b", "c"], index=[9, 8, 7, 6], dtype=dtype)
        assert dendrogram_purity(BALANCED, y) == 1
    missing = pandas.Series(["a", "a", None, "c"], dtype="string")
    with pytest.raises(BhclustError, match="must not have missing classes, but leaf 2 has"):
        dendrogram_purity(BALANCED, missing)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], r"one class a leaf \(4 leaves\), got 2"),
        (np.zeros((4, 1)), "y must be one-dimensional"),
        (5, "y must be one-dimensional"),
        ([[0], [0], [1], [1]], "classes must be hashable"),
        ([0, 0, None, 1], "must not have missing classes, but leaf 2 has None"),
        (np.array([0, 0, 1, np.nan]), "must not have missing classes, but leaf 3 has nan"),
    ],
)
def test_bad_classes(score, y, message):
    with pytest.raises(BhclustError, match=f"^{score.__name__}: .*{message}"):
        score(BALANCED, y)


@pytest.mark.parametrize("score", SCORES[:2])
def test_classes_of_one_leaf_each(score):
    with pytest.raises(BhclustError, match="every leaf is the only one of its class"):
        score(BALANCED, [0, 1, 2, 3])


def test_one_leaf():
    with pytest.raises(BhclustError, match="leaf 0 is a root"):
        leave_one_out_accuracy(Tree([-1], 1), [0])


def test_unknown_average():
    with pytest.raises(BhclustError, match="average must be one of 'leaf', 'pair', got 'class'"):
        dendrogram_purity(BALANCED, [0, 0, 1, 1], average="class")


# -- size --------------------------------------------------------------------------------------


def random_binary(n_leaves, rng):
    current, parent = list(range(n_leaves)), [-1] * n_leaves
    while len(current) > 1:
        for _ in range(2):
            place = rng.integers(len(current))
            current[place], current[-1] = current[-1], current[place]
            parent[current.pop()] = len(parent)
        current.append(len(parent))
        parent.append(-1)
    return Tree(parent, n_leaves)


@pytest.mark.parametrize(("shape", "n_classes"), [("random", 2_000), ("chain", 8_000)])
def test_many_classes_are_fast(shape, n_classes):
    rng = np.random.default_rng(0)
    n_leaves = 20_000
    tree = chain(n_leaves) if shape == "chain" else random_binary(n_leaves, rng)
    y = rng.integers(n_classes, size=n_leaves)
    start = time.perf_counter()
    by_pair = dendrogram_purity(tree, y, "pair")
    subtree_score(tree, y)
    leave_one_out_accuracy(tree, y)
    assert time.perf_counter() - start < 5  # a quadratic way takes much longer
    # Another route: all pairs of one class with their ancestors at once. The leaves of a
    # node are neighbours in leaf order, so a class below it is a stretch of sorted keys.
    place = np.argsort(tree.leaf_order())
    start = np.concatenate([place, np.full(tree.n_nodes - n_leaves, n_leaves)])
    for node, above in enumerate(tree.parent[:-1].tolist()):
        start[above] = min(start[above], start[node])
    members = [np.flatnonzero(y == label) for label in range(n_classes)]
    pairs = [np.array(np.triu_indices(len(leaves), 1)).T for leaves in members]
    i, j = np.concatenate([m[p] for m, p in zip(members, pairs, strict=True)]).T
    above = tree.mrca(i, j)
    keys = np.sort(y * n_leaves + place)
    first = y[i] * n_leaves + start[above]
    n_class = np.searchsorted(keys, first + tree.size[above]) - np.searchsorted(keys, first)
    assert by_pair == pytest.approx((n_class / tree.size[above]).mean(), rel=1e-9)


def test_long_chain():
    n = 100_000
    tree = chain(n)
    halves = np.repeat([0, 1], n // 2)
    # The second half meets at ever larger nodes: leaf j ≥ n/2 and an earlier one of its class
    # meet among j + 1 leaves, of which j + 1 − n/2 are of the class.
    j = np.arange(n // 2, n)
    earlier = j - n // 2
    second = (earlier * (earlier + 1) / (j + 1)).sum()
    pairs = (n // 2) * (n // 2 - 1) / 2
    expected = (pairs + second) / (2 * pairs)
    for average in ("leaf", "pair"):  # equal classes, so the two agree
        assert dendrogram_purity(tree, halves, average) == pytest.approx(expected, rel=1e-9)
    assert subtree_score(tree, halves) == (n // 2 - 1) / (n - 2)
    # The first half is always right; no later leaf ever sees its own class in the majority,
    # until the very last one, which sees n/2 against n/2 − 1.
    assert leave_one_out_accuracy(tree, halves) == 0.5
    alternating = np.arange(n) % 2
    assert 0.4 < dendrogram_purity(tree, alternating) < 0.6
