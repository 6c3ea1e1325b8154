"""Files, linkage matrices and Newick: round trips, other readers, and damaged input."""

from __future__ import annotations

import io as bytes_io
import json
import os
import pathlib
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bhclust import io
from bhclust._validation import BhclustError, FileFormatError
from bhclust.tree import NODE_ARRAYS, Tree
from tests.oracles import trees as oracle
from tests.strategies import awkward_names, chain, trees

INF = np.inf


@pytest.fixture(scope="module")
def long_chain():
    n = 100_000
    log_odds = np.concatenate([np.full(n, INF), np.linspace(5, -5, n - 1)])
    return chain(n, log_odds=log_odds, leaf_names=[f"leaf {i}" for i in range(n)])


def assert_same_tree(a, b, *, but=()):
    assert a.n_leaves == b.n_leaves
    assert a.leaf_names == b.leaf_names
    for name in ("parent", *NODE_ARRAYS):
        if name not in but:
            left, right = getattr(a, name), getattr(b, name)
            assert (left is None) == (right is None), name
            if left is not None:
                np.testing.assert_array_equal(left, right, err_msg=name, strict=True)


# -- archives ----------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(trees(forest=True))
def test_saved_trees_come_back_exactly(tmp_path, tree):
    path = tmp_path / "tree.npz"
    tree.save(path)
    assert_same_tree(Tree.load(str(path)), tree)
    assert os.listdir(tmp_path) == ["tree.npz"]


def test_numpy_can_open_the_file_without_pickle(tmp_path):
    io.save(tmp_path / "tree", Tree([2, 2, -1], 2))
    with np.load(tmp_path / "tree", allow_pickle=False) as archive:
        assert archive["tree.parent"].tolist() == [2, 2, -1]
        header = json.loads(archive["header"].tobytes())
    assert (header["format"], header["version"], header["kind"]) == ("bhclust", 1, "tree")


def test_the_same_tree_gives_the_same_bytes(tmp_path):
    for name in "ab":
        io.save(tmp_path / name, Tree([2, 2, -1], 2))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_archives_hold_more_than_a_tree(tmp_path):
    tree = Tree([2, 2, -1], 2, leaf_names=("\ud800", "nul\0"))
    header = {"kind": "estimator", "tree": io.tree_header(tree), "alpha": [1.5, INF]}
    arrays = {**io.tree_arrays(tree), "file": np.array(["a", "é"]), "empty": np.zeros((0, 3))}
    io.write_archive(tmp_path / "x", header, arrays)
    read_header, read_arrays = io.read_archive(tmp_path / "x")
    assert read_header == {"format": "bhclust", "version": 1, **header}
    assert read_arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read_arrays[name], array, strict=True)
    assert_same_tree(io.load(tmp_path / "x"), tree)


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"format": 1}, {}, "the name 'format' is taken"),
        ({"version": 1}, {}, "the name 'version' is taken"),
        ({}, {"header": np.zeros(1)}, "the name 'header' is taken"),
        ({}, {"x": np.array([None])}, "array 'x' holds Python objects"),
    ],
)
def test_what_an_archive_cannot_hold(tmp_path, header, arrays, message):
    with pytest.raises(BhclustError, match=message):
        io.write_archive(tmp_path / "x", header, arrays)
    assert os.listdir(tmp_path) == []


def npz(**arrays):
    buffer = bytes_io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def header_bytes(**entries):
    return np.frombuffer(json.dumps(entries).encode(), dtype=np.uint8)


def our_npz(**entries):
    return npz(header=header_bytes(format="bhclust", **entries))


TREE_HEADER = {"n_leaves": 2, "leaf_names": None}
FOREIGN = {
    "empty": (b"", "is not a bhclust file: it is not an npz archive"),
    "text": (b"leaf,label\n", "it is not an npz archive"),
    "npy": (b"\x93NUMPY\x01\x00v\x00{'descr': ", "it is not an npz archive"),
    "pickle": (b"\x80\x04\x95\x00", "it is not an npz archive"),
    "npz": (npz(x=np.zeros(2)), "it has no header"),
    "npz with a header": (npz(header=header_bytes(format="other")), "its header is not ours"),
    "header is no object": (npz(header=np.frombuffer(b"[1]", np.uint8)), "its header is not ours"),
    "header is no JSON": (npz(header=np.frombuffer(b"{", np.uint8)), "truncated or damaged"),
    "pickled header": (npz(header=np.array([None, {}])), "truncated or damaged"),
    "no version": (our_npz(), "no valid format version: it gives None"),
    "newer": (our_npz(version=2), "format version 2, and this release reads up to 1: upgrade"),
    "no tree": (our_npz(version=1), "is a bhclust file, but holds no tree"),
    "no names": (our_npz(version=1, tree={"n_leaves": 1}), "header of the tree lacks 'leaf_names'"),
    "no arrays": (our_npz(version=1, tree=TREE_HEADER), "array 'tree.parent' is missing"),
    "bad tree": (
        npz(
            header=header_bytes(format="bhclust", version=1, tree=TREE_HEADER),
            **{"tree.parent": np.array([2, 2, -1]), "tree.weight": np.ones(3)},
            **{"tree.height": np.ones(3)},
        ),
        "does not hold a valid tree: Tree: height must be 0 at leaves",
    ),
}


@pytest.mark.parametrize(("content", "message"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_and_newer_files(tmp_path, content, message):
    path = tmp_path / "some.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        io.load(path)
    assert "some.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_and_damaged_files(tmp_path):
    path = tmp_path / "tree.npz"
    tree = Tree(
        [2, 2, -1], 2, leaf_names=("a", "b"), stats=np.random.default_rng(0).random((3, 40))
    )
    tree.save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError, match=r"tree\.npz is (truncated|not a bhclust)"):
            io.load(path)
    undetected = 0
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            read = io.load(path)
        except FileFormatError:
            continue
        # Zip files hold dates and flags that nobody reads; the tree itself must be untouched.
        assert_same_tree(read, tree)
        undetected += 1
    assert undetected < len(content) / 7 / 2


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Cannot read .*nothing: No such file"):
        io.load(tmp_path / "nothing")


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Cannot write .*: its folder does not exist"):
        io.save(tmp_path / "nowhere" / "tree.npz", Tree([-1], 1))


def test_a_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"Cannot write .*: it is a folder"):
        io.save(tmp_path, Tree([-1], 1))
    with pytest.raises(IsADirectoryError, match=r"Cannot read .*: Is a directory"):
        io.load(tmp_path)


def test_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"Cannot write .*: Not a directory"):
        io.save(tmp_path / "file" / "tree.npz", Tree([-1], 1))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_an_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="Cannot write"):
        io.save(tmp_path / "tree.npz", Tree([-1], 1))
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left")])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "tree.npz"
    old = Tree([2, 2, -1], 2)
    old.save(path)
    seen = []

    def fail(*_):
        seen.extend(os.listdir(tmp_path))
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        Tree([-1], 1).save(path)
    assert len(seen) == 2  # the temporary file was in the same folder, and is gone now
    assert os.listdir(tmp_path) == ["tree.npz"]
    assert_same_tree(Tree.load(path), old)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    io.atomic_write_text(tmp_path / "link", "one\n")
    io.atomic_write_text(tmp_path / "link", "two é\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == "two é\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_new_file_has_the_usual_permissions(tmp_path):
    io.atomic_write_text(tmp_path / "a", "")
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_device_is_written_to_and_not_replaced():
    io.atomic_write_text(os.devnull, "text")
    assert pathlib.Path(os.devnull).is_char_device()


def test_archives_are_compressed_zip_files(tmp_path):
    io.write_archive(tmp_path / "x", {}, {"zeros": np.zeros(100_000)})
    assert zipfile.is_zipfile(tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < 10_000


# -- SciPy linkage -----------------------------------------------------------------------------


def mrca_heights(tree):
    leaves = np.arange(tree.n_leaves)
    return tree.height[tree.mrca(leaves[:, None], leaves)]


@given(trees(min_leaves=2))
def test_scipy_accepts_the_linkage_and_sees_the_same_heights(tree):
    Z = tree.to_linkage()
    assert Z.shape == (tree.n_leaves - 1, 4)
    assert hierarchy.is_valid_linkage(Z, throw=True)
    assert hierarchy.is_monotonic(Z)
    assert (Z[:, 0] < Z[:, 1]).all()
    np.testing.assert_array_equal(squareform(hierarchy.cophenet(Z)), mrca_heights(tree))
    drawn = hierarchy.dendrogram(Z, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(tree.n_leaves))
    labels = hierarchy.fcluster(Z, t=0.2, criterion="distance")
    together = labels[:, None] == labels
    np.testing.assert_array_equal(together, mrca_heights(tree) <= 0.2)


@given(trees(min_leaves=2, arity=2))
def test_linkage_of_a_binary_tree_comes_back(tree):
    again = Tree.from_linkage(tree.to_linkage(), tree.leaf_names)
    assert oracle.clades(again) == oracle.clades(tree)
    assert again.leaf_names == tree.leaf_names


@given(trees(min_leaves=2))
def test_linkage_of_a_rose_tree_comes_back_collapsed(tree):
    internal = np.arange(tree.n_leaves, tree.n_nodes)[:-1]
    assume((tree.height[tree.parent[internal]] > tree.height[internal]).all())
    Z = tree.to_linkage()
    again = Tree.from_linkage(Z, collapse_equal_heights=True)
    assert oracle.clades(again) == oracle.clades(tree)
    assert Tree.from_linkage(Z).is_binary


@pytest.mark.parametrize("method", ["single", "complete", "average", "ward"])
def test_linkage_from_scipy(method):
    Z = hierarchy.linkage(np.random.default_rng(1).normal(size=(40, 3)), method)
    tree = Tree.from_linkage(Z)
    np.testing.assert_array_equal(tree.to_linkage(), Z)
    np.testing.assert_array_equal(squareform(hierarchy.cophenet(Z)), mrca_heights(tree))


def test_linkage_renumbers_by_height():
    tree = Tree([4, 4, 5, 5, 6, 6, -1], 4, height=[0, 0, 0, 0, 2, 1, 3])
    assert tree.to_linkage().tolist() == [[2, 3, 1, 2], [0, 1, 2, 2], [4, 5, 3, 4]]


def test_linkage_of_one_leaf():
    assert Tree([-1], 1).to_linkage().shape == (0, 4)
    assert Tree.from_linkage(np.zeros((0, 4))).n_nodes == 1


def test_linkage_of_a_forest():
    with pytest.raises(BhclustError, match=r"this forest has 2 roots: convert tree\.subtree"):
        Tree([-1, -1], 2).to_linkage()


@pytest.mark.parametrize(
    ("Z", "message"),
    [
        ("text", "must be an array of numbers"),
        ([[0, 1, 1]], r"must have the shape \(n - 1, 4\), got \(1, 3\)"),
        ([[0, 2, 1, 2]], "row 0 joins 0 and 2"),
        ([[0, -1, 1, 2]], "row 0 joins 0 and -1"),
        ([[0, 0.5, 1, 2]], "row 0 joins 0 and 0.5"),
        ([[0, np.nan, 1, 2]], "row 0 joins 0 and nan"),
        ([[0, 1, 1, 2], [0, 2, 1, 2]], "each cluster once, but 0 is joined again"),
        ([[1, 1, 1, 2]], "but 1 is joined again"),
        ([[0, 1, -1, 2]], "row 0 has -1"),
        ([[0, 1, np.nan, 2]], "row 0 has nan"),
        ([[0, 1, 2, 2], [2, 3, 1, 3]], r"row 1 does \(centroid and median linkage can\)"),
    ],
)
def test_linkage_errors(Z, message):
    with pytest.raises(BhclustError, match=message):
        Tree.from_linkage(Z)


# -- Newick ------------------------------------------------------------------------------------


@given(trees(forest=True))
def test_newick_round_trip_keeps_all_but_statistics(tree):
    again = Tree.from_newick(tree.to_newick())
    assert again.stats is None
    assert_same_tree(again, tree, but=("stats",))


@given(trees(forest=True), st.booleans(), st.booleans())
def test_plain_newick_keeps_clades(tree, support, branch_lengths):
    text = tree.to_newick(support=support, branch_lengths=branch_lengths, comments=False)
    again = Tree.from_newick(text)
    names = tree.leaf_names or tuple(str(leaf) for leaf in range(tree.n_leaves))
    order = tree.leaf_order().tolist()
    assert again.leaf_names == tuple(names[leaf] for leaf in order)
    expected = {
        frozenset(order.index(leaf) for leaf in leaves): height
        for leaves, height in oracle.clades(tree)
    }
    got = dict(oracle.clades(again))
    assert got.keys() == expected.keys()
    if branch_lengths:
        for leaves, height in got.items():
            assert height == pytest.approx(expected[leaves], rel=1e-12)


@given(st.lists(awkward_names, min_size=3, max_size=3))
def test_any_name_survives_without_comments(names):
    tree = Tree([3, 3, 3, -1], 3, leaf_names=names)
    assert Tree.from_newick(tree.to_newick(comments=False)).leaf_names == tuple(names)


def test_written_text():
    tree = Tree(
        [3, 3, 4, 4, -1],
        3,
        height=[0, 0, 0, 0.25, 1],
        log_odds=[INF, INF, INF, np.log(3), -INF],
        leaf_names=["a_b", "it's", "c"],
    )
    assert tree.to_newick(comments=False) == "(c:1.0,('a_b':0.25,'it''s':0.25)0.75:0.75)0;"
    assert tree.to_newick(comments=False, support=False, branch_lengths=False) == (
        "(c,('a_b','it''s'));"
    )
    assert "[&id=3,height=0.25,weight=2.0,log_odds=1.0986122886681098]:0.75" in tree.to_newick()
    assert Tree([-1, -1], 2).to_newick(comments=False) == "0;\n1;"


@pytest.mark.parametrize(
    ("text", "parent", "height", "names"),
    [
        ("A;", [-1], [0], ("A",)),
        ("(,);", [2, 2, -1], [0, 0, 1], None),
        ("(,(,,));", [5, 4, 4, 4, 5, -1], [0, 0, 0, 0, 1, 2], None),
        ("(:1,:2):9;", [2, 2, -1], [0, 0, 2], None),
        ("(A,);", [2, 2, -1], [0, 0, 1], ("A", "")),
        ("((A,B)inner,C)root;", [3, 3, 4, 4, -1], [0, 0, 0, 1, 2], ("A", "B", "C")),
        ("((A:1,B:3)0.9:0.5,C:1);", [3, 3, 4, 4, -1], [0, 0, 0, 3, 3.5], ("A", "B", "C")),
        ("(A:1e-3,B:+2.5E1,C);", [3, 3, 3, -1], [0, 0, 0, 25], ("A", "B", "C")),
        ("(A:-4,B:-1);", [2, 2, -1], [0, 0, 0], ("A", "B")),
        (" ( A :\t1\n, B : 2 )\n ; \n", [2, 2, -1], [0, 0, 2], ("A", "B")),
        ("('it''s','a (b), [c]; d:e');", [2, 2, -1], [0, 0, 1], ("it's", "a (b), [c]; d:e")),
        ("[&R] (A[x [nested, (] y]:[z]1[w],B)[&p=1]; [end]", [2, 2, -1], [0, 0, 1], ("A", "B")),
        ("(A[&height=7,q={1,2}],B[&id=0]);", [2, 2, -1], [0, 0, 1], ("A", "B")),
        ("(under_score,日本);", [2, 2, -1], [0, 0, 1], ("under_score", "日本")),
        ("(((A:1):2,B:1):5);", [2, 2, -1], [0, 0, 3], ("A", "B")),
        ("((A));", [-1], [0], ("A",)),
        ("(A,B);C;\n(D,E);", [5, 5, -1, 6, 6, -1, -1], [0] * 5 + [1, 1], tuple("ABCDE")),
    ],
)
def test_foreign_newick(text, parent, height, names):
    tree = Tree.from_newick(text)
    assert tree.parent.tolist() == parent
    assert tree.height.tolist() == height
    assert tree.leaf_names == names
    assert tree.log_odds is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text holds no tree"),
        (" [only a comment] ", "the text holds no tree"),
        (";", r"';' ends a tree that is empty \(line 1, column 1\)"),
        ("(A,B)", r"ends without a final ';' \(line 1, column 6\)"),
        ("(A,B); (C,D)", r"ends without a final ';' \(line 1, column 13\)"),
        ("A", "ends without a final ';'"),
        ("(A,\n (B,C);", r"';' ends the tree, but '\(' is not closed \(line 2, column 7\)"),
        ("(A,\n (B,C)", r"'\(' is never closed \(line 1, column 1\)"),
        ("(A,B));", r"'\)' closes no '\(' \(line 1, column 6\)"),
        ("A,B;", r"',' stands outside all brackets \(line 1, column 2\)"),
        ("(A(B,C));", r"'\(' must follow '\(' or ',', or begin a tree \(line 1, column 3\)"),
        ("(A,B)(C,D);", r"'\(' must follow .* \(line 1, column 6\)"),
        ("(A:,B);", r"a branch length is missing after ':' \(line 1, column 4\)"),
        ("(A:1:2,B);", r"a node has a second ':' \(line 1, column 5\)"),
        ("(A::1,B);", r"a node has a second ':' \(line 1, column 4\)"),
        ("(A:x,B);", r"the branch length 'x' is not a finite number \(line 1, column 4\)"),
        ("(A:inf,B);", "the branch length 'inf' is not a finite number"),
        ("(A:nan,B);", "the branch length 'nan' is not a finite number"),
        ("(A:'1 2',B);", "is not a finite number"),
        ("(Homo sapiens,B);", r"a label follows another; quote labels .* \(line 1, column 7\)"),
        ("(A:1 B,C);", "a label follows another"),
        ("('A,B);", r"a quoted label has no closing quote \(line 1, column 2\)"),
        ("(A[x,B);", r"the comment is never closed by ']' \(line 1, column 3\)"),
        ("(A]x,B);", r"']' closes no comment \(line 1, column 3\)"),
        (b"(A,B);", "text must be a string, got bytes"),
    ],
)
def test_newick_errors(text, message):
    with pytest.raises(BhclustError, match=message) as caught:
        Tree.from_newick(text)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="()[]',:;A1 \n&=", max_size=25))
def test_any_text_is_a_tree_or_a_clear_error(text):
    try:
        tree = Tree.from_newick(text)
    except BhclustError as error:
        assert str(error).startswith("from_newick: ")  # noqa: PT017
    else:
        tree.validate()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id=0", "id=1"),
        ("id=0", "id=99999999999999999999"),
        ("id=3", "id=x"),
        ("height=0.5", "hight=0.5"),
        ("height=0.5", "height=half"),
        ("log_evidence=-1.0", "note=1"),
        ("id=2", "number=2"),
    ],
)
def test_comments_that_were_edited_are_not_trusted(old, new):
    tree = Tree([3, 3, 4, 4, -1], 3, height=[0, 0, 0, 0.5, 0.75], log_evidence=np.full(5, -1.0))
    text = tree.to_newick()
    assert old in text
    again = Tree.from_newick(text.replace(old, new, 1))
    assert again.log_evidence is None
    assert again.leaf_names == ("2", "0", "1")  # numbered as they come
    assert again.height.tolist() == [0, 0, 0, 0.5, 0.75]


# -- long chains -------------------------------------------------------------------------------


def test_long_chain_to_a_file_and_back(tmp_path, long_chain):
    long_chain.save(tmp_path / "chain.npz")
    assert_same_tree(Tree.load(tmp_path / "chain.npz"), long_chain)


def test_long_chain_to_newick_and_back(long_chain):
    assert_same_tree(Tree.from_newick(long_chain.to_newick()), long_chain)
    plain = Tree.from_newick(long_chain.to_newick(comments=False))
    assert plain.leaf_names[-1] in ("leaf 0", "leaf 1")
    np.testing.assert_array_equal(plain.height, long_chain.height)


def test_long_chain_to_linkage_and_back(long_chain):
    Z = long_chain.to_linkage()
    assert hierarchy.is_valid_linkage(Z)
    assert_same_tree(Tree.from_linkage(Z, long_chain.leaf_names), long_chain, but=("log_odds",))
    flat = np.zeros_like(long_chain.height)
    flat[long_chain.n_leaves :] = 1
    level = Tree(long_chain.parent, long_chain.n_leaves, height=flat)
    star = Tree.from_linkage(level.to_linkage(), collapse_equal_heights=True)
    assert star.n_nodes == star.n_leaves + 1
