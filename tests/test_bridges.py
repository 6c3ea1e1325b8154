"""Trees and fits in other formats and in the objects of other packages."""

from __future__ import annotations

import json
import sys
import types
import warnings

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet, is_valid_linkage
from scipy.spatial.distance import squareform

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering, bridges
from bhclust._cluster_tree import cluster_tree
from bhclust._validation import BhclustError, FileFormatError
from bhclust.datasets import make_blocks
from bhclust.io import to_newick, to_nexus
from bhclust.tree import Tree

NASTY = ("it's", "a b", "x_y", "(c)", "[d]", "e,f:g;", "ü√", "<b>&")


def optional(module):
    """Import a package, or skip with a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some announce their next release when imported
        return pytest.importorskip(module, reason=f"{module} is not installed (bhclust[bridges])")


@pytest.fixture(scope="module")
def fitted():
    X = make_blocks(random_state=0).X
    return BayesianHierarchicalClustering(learn=False).fit(X)


@pytest.fixture(scope="module")
def sampled():
    X = np.random.default_rng(0).normal(size=(8, 2))
    X[4:] += 4
    estimator = CoalescentClustering(inference="smc-priorpost", n_particles=30, random_state=0)
    return estimator.fit(X)


@pytest.fixture(scope="module")
def rose():
    """A star of three, a pair and two singles under one root: every kind of node."""
    return Tree(
        [8, 8, 8, 9, 9, 10, 10, 10, 10, 10, -1],
        n_leaves=8,
        height=[0.0] * 8 + [0.25, 0.5, 0.75],
        log_odds=[np.inf] * 8 + [2.0, -np.inf, np.inf],
        log_evidence=np.linspace(-5, -1, 11),
        stats=np.arange(22.0).reshape(11, 2),
        leaf_names=NASTY,
    )


# -- text ------------------------------------------------------------------------------------------


def test_json_gives_the_tree_back_to_the_last_bit(rose, fitted):
    for tree in (rose, fitted.tree_, Tree([-1], 1), Tree([-1, -1], 2)):
        text = tree.to_json(stats=True)
        assert "Infinity" not in text
        assert "NaN" not in text
        again = Tree.from_json(text)
        assert (again.n_leaves, again.leaf_names) == (tree.n_leaves, tree.leaf_names)
        for name in ("parent", "height", "weight", "log_odds", "log_evidence", "stats"):
            np.testing.assert_array_equal(getattr(again, name), getattr(tree, name))


def test_json_keys(rose):
    content = json.loads(rose.to_json())
    assert content["format"] == "bhclust-tree"
    assert content["version"] == 1
    assert content["log_odds"][:1] == ["inf"]
    assert content["log_odds"][8:] == [2.0, "-inf", "inf"]
    assert content["probability"][8:] == pytest.approx([1 / (1 + np.exp(-2.0)), 0.0, 1.0])
    assert content["size"] == [1] * 8 + [3, 2, 8]
    assert "stats" not in content
    assert rose.to_json(indent=2).count("\n") > 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "no tree"),
        ('{"format": "other"}', "no tree"),
        ('{"format": "bhclust-tree", "version": 9}', "upgrade bhclust"),
        ('{"format": "bhclust-tree", "version": 1}', "lacks 'parent'"),
        ('{"format": "bhclust-tree", "version": 1, "parent": [2, 2, -1]}', "lacks 'n_leaves'"),
        (
            '{"format": "bhclust-tree", "version": 1, "parent": [1, 2], "n_leaves": 2}',
            "no valid tree",
        ),
        (
            '{"format":"bhclust-tree","version":1,"parent":[-1],"n_leaves":1,"height":[[]]}',
            "no valid tree",
        ),
        ('{"format": "bhclust-tree", "version": 1, "parent": "x", "n_leaves": {}}', "no valid"),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(FileFormatError, match=message):
        Tree.from_json(text)


def test_newick_with_given_support(rose):
    text = to_newick(rose, support=np.linspace(0, 1, 11), comments=False)
    assert ")0.8:" in text
    assert text.endswith(")1;")
    with pytest.raises(BhclustError, match="one number a node"):
        to_newick(rose, support=[0.5])


def test_nexus_as_another_program_reads_it(rose):
    dendropy = optional("dendropy")
    read = dendropy.Tree.get(
        data=rose.to_nexus(), schema="nexus", preserve_underscores=True, rooting="force-rooted"
    )
    assert sorted(leaf.taxon.label for leaf in read.leaf_node_iter()) == sorted(NASTY)
    height_of = {3: 0.25, 2: 0.5, 8: 0.75}  # by the number of leaves below
    read.calc_node_root_distances()
    for node in read.preorder_internal_node_iter():
        n_below = len(list(node.leaf_iter()))
        assert 0.75 - node.root_distance == pytest.approx(height_of[n_below])
    labels = sorted(node.label for node in read.preorder_internal_node_iter())
    assert labels == ["0", "0.880797", "1"]


def test_nexus_of_weighted_trees(sampled):
    posterior = sampled.posterior_
    text = to_nexus(list(posterior), weights=posterior.weights, support=False)
    assert text.count("TREE bhclust") == len(posterior)
    assert text.count("[&W ") == len(posterior)
    dendropy = optional("dendropy")
    trees = dendropy.TreeList.get(data=text, schema="nexus", store_tree_weights=True)
    assert [tree.weight for tree in trees] == pytest.approx(posterior.weights)
    assert {leaf.taxon.label for leaf in trees[3].leaf_node_iter()} == {f"row{i}" for i in range(8)}


def test_nexus_mistakes():
    tree = Tree([2, 2, -1], 2, leaf_names=("a", "a"))
    with pytest.raises(BhclustError, match="'a' stands for several"):
        to_nexus(tree)
    with pytest.raises(BhclustError, match="has 2"):
        to_nexus(Tree([-1, -1], 2))
    with pytest.raises(BhclustError, match="no tree"):
        to_nexus([])
    one = Tree([2, 2, -1], 2)
    with pytest.raises(BhclustError, match="same leaves"):
        to_nexus([one, Tree([3, 3, 4, 4, -1], 3)])
    with pytest.raises(BhclustError, match="one number a tree"):
        to_nexus([one], weights=[0.5, 0.5])


# -- support ---------------------------------------------------------------------------------------


def test_support_is_the_probability_that_a_fit_gives(rose, fitted, sampled):
    odds = fitted.tree_.log_odds
    assert bridges.node_support(fitted) == pytest.approx(1 / (1 + np.exp(-odds)))
    assert bridges.node_support(rose)[9:].tolist() == [0.0, 1.0]
    assert bridges.node_support(Tree([2, 2, -1], 2)) is None
    clades = {clade.leaves: clade.probability for clade in sampled.posterior_.clades()}
    support = bridges.node_support(sampled)
    tree = sampled.tree_
    for node in range(tree.n_leaves, tree.n_nodes):
        assert support[node] == pytest.approx(clades[tuple(tree.leaves(node).tolist())])


# -- the tree above the clusters -------------------------------------------------------------------


def test_cluster_tree_keeps_what_is_above(fitted):
    tree, labels = fitted.tree_, fitted.labels_
    above = cluster_tree(tree, labels)
    assert above.tree.weight[: fitted.n_clusters_].tolist() == np.bincount(labels).tolist()
    for a in range(fitted.n_clusters_):
        for b in range(a):
            i, j = np.flatnonzero(labels == a)[0], np.flatnonzero(labels == b)[0]
            assert above.tree.height[above.tree.mrca(a, b)] == tree.height[tree.mrca(i, j)]
    with pytest.raises(BhclustError, match="do not agree with the tree"):
        cluster_tree(tree, np.arange(tree.n_leaves) % 2)


# -- other packages --------------------------------------------------------------------------------


def test_networkx(rose):
    networkx = optional("networkx")
    graph = rose.to_networkx()
    assert networkx.is_arborescence(graph)
    assert {child: parent for parent, child in graph.edges} == {
        node: int(rose.parent[node]) for node in range(10)
    }
    assert [graph.nodes[leaf]["name"] for leaf in range(8)] == list(NASTY)
    assert graph.edges[10, 9]["length"] == 0.25
    assert graph.nodes[8]["support"] == pytest.approx(0.880797, abs=1e-6)
    assert "support" not in graph.nodes[0]
    far = networkx.shortest_path_length(graph, 10, 0, weight="length")
    assert far == rose.height[10]
    forest = Tree([-1, -1], 2).to_networkx()
    assert (len(forest), len(forest.edges)) == (2, 0)
    with pytest.raises(BhclustError, match="one number a node"):
        bridges.to_networkx(rose, support=[1.0])


def test_ete(rose):
    optional("ete4")
    tree = rose.to_ete()
    assert sorted(tree.leaf_names()) == sorted(NASTY)
    for node in tree.traverse():
        number = node.props["node"]
        assert node.props["size"] == rose.size[number] == len(list(node.leaves()))
        if number < 10:
            above = int(rose.parent[number])
            assert node.up.props["node"] == above
            assert node.dist == rose.height[above] - rose.height[number]
    assert tree.common_ancestor(["it's", "a b"]).support == pytest.approx(0.880797, abs=1e-6)


def test_skbio(rose):
    optional("skbio")
    tree = rose.to_skbio()
    assert sorted(tip.name for tip in tree.tips()) == sorted(NASTY)
    distances = tree.cophenet() if hasattr(tree, "cophenet") else tree.tip_tip_distances()
    for i, a in enumerate(NASTY):
        for j, b in enumerate(NASTY[:i]):
            assert distances[a, b] == pytest.approx(2 * rose.height[rose.mrca(i, j)])
    assert tree.lca(["it's", "a b"]).support == pytest.approx(0.880797, abs=1e-6)


def test_deep_trees_do_not_recurse():
    n = 3000
    parent = [n, n, *range(n + 1, 2 * n - 1), *range(n + 1, 2 * n - 1), -1]
    tree = Tree(parent, n)
    assert Tree.from_json(tree.to_json()).parent.tolist() == parent
    assert tree.to_nexus().count("(") == n - 1
    optional("networkx")
    assert len(tree.to_networkx()) == 2 * n - 1


def test_one_tree_only(rose):
    forest = Tree([-1, -1], 2)
    for name in ("to_ete", "to_skbio"):
        with pytest.raises(BhclustError, match="this forest has 2 roots"):
            getattr(forest, name)()


@pytest.mark.parametrize(
    ("call", "package"),
    [
        (lambda fit: fit.tree_.to_networkx(), "networkx"),
        (lambda fit: fit.tree_.to_ete(), "ete4"),
        (lambda fit: fit.tree_.to_skbio(), "skbio"),
        (bridges.to_anndata, "anndata"),
        (bridges.to_arviz, "arviz"),
    ],
)
def test_an_absent_package_is_named(monkeypatch, fitted, call, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}.*bhclust\[bridges\]"):
        call(fitted)


# -- AnnData ---------------------------------------------------------------------------------------


def test_anndata_slots(fitted, tmp_path):
    anndata = optional("anndata")
    adata = bridges.to_anndata(fitted)
    assert adata.obs["bhclust"].cat.categories.tolist() == ["0", "1", "2"]
    assert adata.obs["bhclust"].astype(int).tolist() == fitted.labels_.tolist()
    pairs = adata.obsp["bhclust_co_clustering"]
    assert pairs == pytest.approx(fitted.co_clustering_matrix())
    stored = adata.uns["dendrogram_bhclust"]
    assert stored["groupby"] == ["bhclust"]
    assert is_valid_linkage(stored["linkage"])
    assert len(stored["linkage"]) == 2
    # The height at which two clusters meet is that of their rows in the whole tree.
    heights = squareform(cophenet(stored["linkage"]))
    first = [int(np.flatnonzero(fitted.labels_ == k)[0]) for k in range(3)]
    for a in range(3):
        for b in range(a):
            meeting = fitted.tree_.mrca(first[a], first[b])
            assert heights[a, b] == pytest.approx(fitted.tree_.height[meeting])
    assert sorted(stored["categories_ordered"]) == ["0", "1", "2"]
    assert len(adata.uns["bhclust"]["linkage"]) == len(fitted.labels_) - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about how anndata will write strings one day
        adata.write_h5ad(tmp_path / "a.h5ad")
        again = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert again.uns["dendrogram_bhclust"]["linkage"] == pytest.approx(stored["linkage"])


def test_anndata_of_ones_own(fitted, sampled):
    anndata = optional("anndata")
    adata = anndata.AnnData(np.zeros((8, 2)))
    assert bridges.to_anndata(sampled, adata, key="age", co_clustering=False) is adata
    assert "age" in adata.obs
    assert not adata.obsp
    with pytest.raises(BhclustError, match="adata has 8 rows and 48 were fitted"):
        bridges.to_anndata(fitted, adata)
    one = BayesianRoseTree(n_clusters=1).fit([[0.0], [1.0], [0.5]])
    assert "dendrogram_bhclust" not in bridges.to_anndata(one).uns


def test_rows_of_no_weight_are_nobodys_neighbours():
    optional("anndata")
    X = make_blocks(random_state=0).X[::4]
    weight = np.ones(len(X))
    weight[[0, 5]] = 0
    estimator = BayesianHierarchicalClustering(learn=False).fit(X, sample_weight=weight)
    adata = bridges.to_anndata(estimator)
    assert adata.n_obs == len(X)
    assert adata.obsp["bhclust_co_clustering"][0].max() == 0
    i, j = 1, 2
    assert adata.obsp["bhclust_co_clustering"][i, j] == estimator.co_clustering(i, j)


def test_scanpy_draws_it(fitted):
    optional("anndata")
    scanpy = optional("scanpy")
    import matplotlib.pyplot as plt

    adata = bridges.to_anndata(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = scanpy.pl.dendrogram(adata, "bhclust", show=False)
    assert len(axes.lines) == 2
    assert sorted(label.get_text() for label in axes.get_xticklabels()) == ["0", "1", "2"]
    plt.close("all")


# -- ArviZ -----------------------------------------------------------------------------------------


def test_draws_of_partitions_follow_the_posterior(fitted):
    optional("arviz")
    data = bridges.to_arviz(fitted, 4000)
    drawn = data.posterior["n_clusters"].values
    assert drawn.shape == (1, 4000)
    exact = fitted.n_clusters_distribution()
    share = np.bincount(drawn[0], minlength=len(exact))[: len(exact)] / 4000
    error = np.sqrt(exact * (1 - exact) / 4000)
    assert (np.abs(share - exact) <= 4.5 * error + 1e-3).all()
    label = data.posterior["label"].values[0]
    together = (label[:, 0] == label[:, 1]).mean()
    assert together == pytest.approx(float(fitted.co_clustering(0, 1)), abs=0.04)
    assert "label" not in bridges.to_arviz(fitted, 5, labels=False).posterior


def test_draws_of_coalescent_trees_follow_their_weights(sampled):
    optional("arviz")
    data = bridges.to_arviz(sampled, 4000, random_state=1)
    posterior = sampled.posterior_
    ages = np.array([tree.height[-1] for tree in posterior])
    mean = float(posterior.weights @ ages)
    spread = np.sqrt(posterior.weights @ (ages - mean) ** 2)
    drawn = data.posterior["root_age"].values[0]
    assert drawn.mean() == pytest.approx(mean, abs=4.5 * spread / np.sqrt(4000))
    particle = data.sample_stats["particle"].values[0]
    assert drawn.tolist() == ages[particle].tolist()
    assert data.sample_stats["lp"].values[0] == pytest.approx(posterior.log_joints[particle])
    tree = posterior.trees[int(particle[0])]
    lengths = [tree.height[tree.parent[node]] - tree.height[node] for node in range(14)]
    assert data.posterior["total_length"].values[0, 0] == pytest.approx(sum(lengths))


def test_both_ways_of_calling_arviz(fitted, monkeypatch):
    """Releases before 1 take the groups as arguments, later ones a dictionary of them."""

    def old(posterior=None, *, sample_stats=None, dims=None, coords=None):
        return posterior, dims, coords

    def new(data, *, dims=None, coords=None):
        return data["posterior"], dims, coords

    found = []
    for from_dict in (old, new):
        module = types.ModuleType("arviz")
        module.from_dict = from_dict
        monkeypatch.setitem(sys.modules, "arviz", module)
        drawn, dims, coords = bridges.to_arviz(fitted, 4)
        assert dims == {"label": ["row"]}
        assert len(coords["row"]) == 48
        found.append({name: values.tolist() for name, values in drawn.items()})
    assert found[0] == found[1]


def test_a_greedy_tree_is_one_draw_over_and_over():
    optional("arviz")
    estimator = CoalescentClustering().fit([[0.0], [0.2], [5.0]])
    data = bridges.to_arviz(estimator, 3)
    assert data.posterior["root_age"].values.tolist() == [[estimator.tree_.height[-1]] * 3]
    with pytest.raises(BhclustError, match="n_samples"):
        bridges.to_arviz(estimator, 0)
