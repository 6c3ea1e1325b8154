"""`Tree` against plain definitions that walk from node to parent."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bhclust._validation import BhclustError
from bhclust.tree import NODE_ARRAYS, Tree
from tests.oracles import trees as oracle
from tests.strategies import chain, parents, trees

SMALL = [4, 4, 5, 5, 6, 6, -1]
INF = np.inf


@pytest.fixture(scope="module")
def long_chain():
    return chain(100_000)


# -- derived arrays and questions --------------------------------------------------------------


@given(trees(forest=True))
def test_derived_arrays(tree):
    nodes = range(tree.n_nodes)
    below = [oracle.leaves_below(tree.parent, tree.n_leaves, node) for node in nodes]
    assert tree.size.tolist() == [len(leaves) for leaves in below]
    assert tree.depth.tolist() == [len(oracle.ancestors(tree.parent, i)) - 1 for i in nodes]
    assert tree.roots.tolist() == [i for i in nodes if tree.parent[i] == -1]
    for node in nodes:
        assert tree.children(node).tolist() == oracle.children(tree.parent, node)
        assert tree.leaves(node).tolist() == below[node]
    internal = nodes[tree.n_leaves :]
    assert tree.is_binary == all(len(tree.children(node)) == 2 for node in internal)
    assert tree.leaves().tolist() == list(range(tree.n_leaves))


@given(trees(forest=True))
def test_leaf_order_keeps_every_node_together(tree):
    order = tree.leaf_order().tolist()
    assert sorted(order) == list(range(tree.n_leaves))
    for node in range(tree.n_nodes):
        places = sorted(order.index(leaf) for leaf in tree.leaves(node).tolist())
        assert places == list(range(places[0], places[0] + len(places)))
        firsts = [min(order.index(leaf) for leaf in tree.leaves(c)) for c in tree.children(node)]
        assert firsts == sorted(firsts)


@given(trees(forest=True))
def test_mrca_of_all_pairs(tree):
    nodes = np.arange(tree.n_nodes)
    expected = [[oracle.mrca(tree.parent, i, j) for j in nodes] for i in nodes]
    assert tree.mrca(nodes[:, None], nodes).tolist() == expected
    last = tree.n_nodes - 1
    answer = tree.mrca(0, last)
    assert type(answer) is int
    assert answer == expected[0][last]


def test_mrca_of_no_pairs():
    assert Tree(SMALL, 4).mrca([], []).tolist() == []


@given(trees(max_leaves=8, forest=True))
def test_number_of_partitions(tree):
    count = len(oracle.partitions(tree.parent, tree.n_leaves))
    assert 10 ** tree.log10_partitions() == pytest.approx(count, rel=1e-12)


def test_number_of_partitions_of_a_big_balanced_tree():
    # count(2n) = 1 + count(n)², which whole numbers of Python hold exactly.
    n_leaves, count, parent = 4096, 1, []
    for level in range(12):
        start = sum(n_leaves >> above for above in range(level + 1))
        parent += [start + i // 2 for i in range(n_leaves >> level)]
        count = 1 + count * count
    tree = Tree([*parent, -1], n_leaves)
    assert tree.log10_partitions() == pytest.approx(math.log10(count), rel=1e-12)


@given(trees(forest=True), st.data())
def test_subtree(tree, data):
    node = data.draw(st.integers(0, tree.n_nodes - 1))
    part = tree.subtree(node)
    leaves = tree.leaves(node).tolist()
    assert part.n_leaves == len(leaves)
    assert len(part.roots) == 1
    inside = [i for i in range(tree.n_nodes) if node in oracle.ancestors(tree.parent, i)]
    for new, old in enumerate(inside):
        assert [leaves[k] for k in part.leaves(new)] == tree.leaves(old).tolist()
    for name in NODE_ARRAYS:
        whole = getattr(tree, name)
        if whole is None:
            assert getattr(part, name) is None
        else:
            np.testing.assert_array_equal(getattr(part, name), whole[inside])
    if tree.leaf_names is not None:
        assert part.leaf_names == tuple(tree.leaf_names[leaf] for leaf in leaves)


@given(parents(forest=True))
def test_default_height_is_levels_and_default_weight_is_size(drawn):
    parent, n_leaves = drawn
    tree = Tree(parent, n_leaves)
    for node in range(tree.n_nodes):
        depths = [
            oracle.ancestors(parent, leaf).index(node)
            for leaf in oracle.leaves_below(parent, n_leaves, node)
        ]
        assert tree.height[node] == max(depths)
    assert tree.weight.tolist() == tree.size.tolist()
    assert tree.weight.dtype == np.float64


@given(trees(forest=True), st.randoms(use_true_random=False))
def test_from_parent_takes_any_numbering_of_internal_nodes(tree, random):
    internal = list(range(tree.n_leaves, tree.n_nodes))
    random.shuffle(internal)
    old = np.array([*range(tree.n_leaves), *internal])  # place → node of `tree`
    new = np.argsort(old)
    parent = [-1 if tree.parent[i] == -1 else new[tree.parent[i]] for i in old]
    given_arrays = {name: getattr(tree, name) for name in NODE_ARRAYS}
    moved = {name: a if a is None else a[old] for name, a in given_arrays.items()}
    rebuilt = Tree.from_parent(parent, leaf_names=tree.leaf_names, **moved)
    assert oracle.clades(rebuilt) == oracle.clades(tree)
    assert rebuilt.leaf_names == tree.leaf_names
    for node in range(tree.n_nodes):
        leaves = tree.leaves(node)
        twin = int(leaves[0])
        for leaf in leaves:
            twin = rebuilt.mrca(twin, leaf)
        for name, array in given_arrays.items():
            if array is not None:
                np.testing.assert_array_equal(getattr(rebuilt, name)[twin], array[node])


def test_from_parent_leaves_a_valid_numbering_alone():
    parent = [5, 5, 4, 4, 6, 6, -1]
    assert Tree.from_parent(parent).parent.tolist() == parent


# -- the constructor ---------------------------------------------------------------------------


def test_types_and_read_only_copies():
    parent = np.array(SMALL, dtype=np.int64)
    height = np.array([0, 0, 0, 0, 1, 2, 3], dtype=np.float32)
    evidence = np.arange(7.0)
    names = np.array(["a", "b", "c", "d"])
    tree = Tree(parent, np.int64(4), height=height, log_evidence=evidence, leaf_names=names)
    evidence[0] = parent[0] = 5
    assert tree.parent.dtype == np.int32
    assert tree.parent[0] == 4
    assert tree.log_evidence[0] == 0
    assert type(tree.n_leaves) is int
    assert tree.leaf_names == ("a", "b", "c", "d")
    assert {type(name) for name in tree.leaf_names} == {str}
    derived = ("size", "roots", "child_ptr", "child_index", "depth")
    for name in ("parent", "height", "weight", "log_evidence", *derived):
        with pytest.raises(ValueError, match="read-only"):
            getattr(tree, name)[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        tree.leaf_order()[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.n_leaves = 3


def test_a_read_only_array_is_taken_over():
    stats = np.zeros((7, 3))
    stats.setflags(write=False)
    assert Tree(SMALL, 4, stats=stats).stats is stats


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_are_read_only_too(duplicate):
    tree = Tree(SMALL, 4, leaf_names=list("abcd"), stats=np.ones((7, 2)))
    twin = duplicate(tree)
    assert twin.parent.tolist() == SMALL
    assert twin.leaf_names == tree.leaf_names
    assert not twin.parent.flags.writeable
    assert not twin.stats.flags.writeable


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Tree([-1], 1), "<Tree: 1 leaf, 1 node, binary, height 0>"),
        (Tree([3, 3, 3, -1], 3), "<Tree: 3 leaves, 4 nodes, rose, height 1>"),
        (Tree([-1, -1], 2), "<Tree: 2 leaves, 2 nodes, binary, 2 roots, height 0>"),
    ],
)
def test_repr(tree, text):
    assert repr(tree) == text


BROKEN = {
    "parent: text": ({"parent": ["a", "b"]}, "parent must be a one-dimensional array of whole"),
    "parent: floats": ({"parent": [2.0, 2.0, -1.0]}, "array of whole numbers"),
    "parent: a table": ({"parent": [[2, 2, -1]]}, "parent must be a one-dimensional"),
    "parent: nothing": ({"parent": np.array([], dtype=int)}, "at least one node"),
    "parent: out of range": ({"parent": [4, 4, 5, 5, 6, 6, 7]}, r"parent\[6\] is 7"),
    "parent: beyond int32": ({"parent": [2**40, 2, -1]}, r"parent\[0\] is 1099511627776"),
    "parent: below -1": ({"parent": [4, 4, 5, 5, 6, 6, -2]}, r"parent\[6\] is -2"),
    "parent: lower": ({"parent": [4, 4, 5, 5, 6, 4, -1]}, r"higher number.*parent\[5\] is 4"),
    "parent: itself": ({"parent": [4, 4, 5, 5, 6, 6, 6]}, r"parent\[6\] is 6"),
    "n_leaves: zero": ({"n_leaves": 0}, "n_leaves must be a whole number, at least 1"),
    "n_leaves: too many": ({"n_leaves": 8}, "at most 7, got 8"),
    "n_leaves: a leaf is a parent": ({"n_leaves": 5}, "a leaf cannot have children"),
    "n_leaves: too few": ({"n_leaves": 3}, "leaves must come first, but node 3"),
    "one child": ({"parent": [4, 4, 5, 5, 6, 6, 7, -1]}, "at least two children, but node 7"),
    "height: length": ({"height": [0, 0, 0]}, r"height must have one value a node \(7 nodes\)"),
    "height: text": ({"height": ["x"] * 7}, "height must be an array of numbers"),
    "height: NaN": ({"height": [0, 0, 0, 0, 1, np.nan, 1]}, "finite, but at node 5 it is nan"),
    "height: inf": ({"height": [0, 0, 0, 0, 1, 1, INF]}, "finite, but at node 6 it is inf"),
    "height: leaf": ({"height": [0, 1, 0, 0, 1, 1, 1]}, "0 at leaves, but at leaf 1 it is 1"),
    "height: falls": ({"height": [0, 0, 0, 0, 1, 3, 2]}, "must not fall.*node 5 has 3.*6 has 2"),
    "height: negative": ({"height": [0, 0, 0, 0, -1, 3, 4]}, "must not fall"),
    "log_odds: leaf": ({"log_odds": [0.0] * 7}, r"\+inf at leaves.*leaf 0 it is 0"),
    "log_odds: NaN": ({"log_odds": [INF] * 4 + [np.nan] * 3}, "must not be NaN.*node 4"),
    "log_odds: length": ({"log_odds": [INF] * 8}, "log_odds must have one value a node"),
    "log_evidence: shape": ({"log_evidence": np.zeros((7, 1))}, "log_evidence must have one val"),
    "log_marginal: length": ({"log_marginal": [1.0]}, "log_marginal must have one value a node"),
    "stats: shape": ({"stats": np.zeros(7)}, r"stats must have one row a node \(7 nodes\)"),
    "stats: rows": ({"stats": np.zeros((6, 2))}, r"got an array of shape \(6, 2\)"),
    "weight: zero": ({"weight": [1, 1, 0, 1, 2, 1, 3]}, "positive and finite, but at node 2"),
    "weight: sum": ({"weight": [1, 1, 1, 1, 2, 3, 5]}, "node 5 has 3 and its children have 2"),
    "names: one string": ({"leaf_names": "abcd"}, "leaf_names must be a sequence of strings"),
    "names: number": ({"leaf_names": 5}, "leaf_names must be a sequence of strings, got 5"),
    "names: not strings": ({"leaf_names": ["a", "b", 3, "d"]}, r"entry 2 is 3: convert it"),
    "names: too few": ({"leaf_names": ["a"]}, r"one name a leaf \(4 leaves\), got 1"),
}


@pytest.mark.parametrize(("changed", "message"), BROKEN.values(), ids=BROKEN)
def test_every_broken_invariant_has_its_message(changed, message):
    arguments = {"parent": SMALL, "n_leaves": 4, **changed}
    with pytest.raises(BhclustError, match=message):
        Tree(**arguments)


def test_validate_sees_what_was_tampered_with():
    tree = Tree(SMALL, 4)
    tree.validate()
    for name, value, message in [
        ("height", np.arange(7.0)[::-1], "0 at leaves"),
        ("parent", np.array([4, 4, 5, 5, 6, 4, -1]), "higher number"),
    ]:
        tampered = Tree(SMALL, 4)
        object.__setattr__(tampered, name, value)
        with pytest.raises(BhclustError, match=message):
            tampered.validate()


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([3, 3, 4, 4, 3], r"a cycle through node\(s\) 3, 4: following"),
        ([2, 2, 2], r"a cycle through node\(s\) 2: following"),
        ([2, 2, -1, 2], "leaves must come first, but node 3 has no children and there are 3"),
        ([3, 2, 3, -1], "at least two children, but node 2"),
        ([3, 3, 9, -1], r"parent\[2\] is 9"),
    ],
)
def test_from_parent_errors(parent, message):
    with pytest.raises(BhclustError, match=message):
        Tree.from_parent(parent)


def test_from_parent_leaves_a_wrong_length_to_the_constructor():
    with pytest.raises(BhclustError, match="height must have one value a node"):
        Tree.from_parent([2, 2, -1], height=[0.0])


@pytest.mark.parametrize("method", ["children", "leaves", "subtree"])
@pytest.mark.parametrize("node", [-1, 7, 1.5, "a", True])
def test_a_node_that_is_not_there(method, node):
    with pytest.raises(BhclustError, match=rf"Tree\.{method}: i must be a whole number.*most 6"):
        getattr(Tree(SMALL, 4), method)(node)


@pytest.mark.parametrize("nodes", [[0, 7], [-1], 0.5])
def test_mrca_of_a_node_that_is_not_there(nodes):
    with pytest.raises(BhclustError, match=r"Tree\.mrca: j must hold node numbers from 0 to 6"):
        Tree(SMALL, 4).mrca(0, nodes)


# -- long chains -------------------------------------------------------------------------------


def test_long_chain(long_chain):
    n = 100_000
    tree = long_chain
    assert tree.size[-1] == n
    assert tree.height[-1] == n - 1
    assert tree.depth[0] == n - 1
    assert tree.is_binary
    assert len(tree.leaves(n + 500)) == 502
    assert sorted(tree.leaf_order()) == list(range(n))
    # Leaf k ≥ 1 hangs from node n + k − 1, so two leaves meet where the later one hangs.
    random = np.random.default_rng(0)
    i, j = random.integers(1, n, size=(2, 1000))
    met = tree.mrca(i, j)
    assert (met == np.where(i == j, i, n + np.maximum(i, j) - 1)).all()
    # A chain of m leaves has m partitions: 1 + count of the chain below.
    assert tree.log10_partitions() == pytest.approx(5, abs=1e-9)
    part = tree.subtree(2 * n - 3)
    assert part.n_leaves == n - 1
    np.testing.assert_array_equal(part.parent, chain(n - 1).parent)
    tree.validate()


def test_from_parent_of_a_long_chain_upside_down(long_chain):
    n = 100_000
    flip = np.concatenate([np.arange(n), np.arange(n, 2 * n - 1)[::-1], [-1]])
    parent = flip[long_chain.parent[flip[:-1]]]
    np.testing.assert_array_equal(Tree.from_parent(parent).parent, long_chain.parent)


@settings(max_examples=25)
@given(trees(min_leaves=2))
def test_facade_gives_what_the_rooms_give(tree):
    from bhclust import io

    np.testing.assert_array_equal(tree.to_linkage(), io.to_linkage(tree))
    assert tree.to_newick() == io.to_newick(tree)
    assert tree.to_newick(comments=False, support=False, branch_lengths=False) == io.to_newick(
        tree, comments=False, support=False, branch_lengths=False
    )
    assert oracle.clades(Tree.from_newick(tree.to_newick())) == oracle.clades(tree)
    names = [f"leaf {i}" for i in range(tree.n_leaves)]
    rose = Tree.from_linkage(tree.to_linkage(), names, collapse_equal_heights=True)
    assert rose.leaf_names == tuple(names)
    assert set(rose.height) <= set(tree.height)


def test_facade_cut():
    from bhclust import posterior

    log_odds = [INF, INF, INF, INF, 3.0, 3.0, -3.0]
    tree = Tree(SMALL, 4, log_odds=log_odds)
    labels = tree.cut(threshold=0.5, method="threshold")
    assert labels[0] == labels[1] != labels[2] == labels[3]
    np.testing.assert_array_equal(tree.cut(n_clusters=2), posterior.cut(tree, n_clusters=2))
