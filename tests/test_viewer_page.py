"""What the viewer's page is made of: its data, its safety, its vendored script, its files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import bhclust
from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering, Tree
from bhclust._validation import BhclustError, FileFormatError
from bhclust.coalescent import Mutation
from bhclust.models import Bernoulli, Categorical, DiagonalGaussian, Mixed, Multinomial, Poisson
from bhclust.models.base import ClusterModel, Column
from bhclust.report import summarise, write_result
from bhclust.tables import NamedColumns, read_table
from bhclust.viewer import load_table, save_table, tree_html, view_result, write_view
from bhclust.viewer.explain import explain_model, explain_process, largest_nodes, rank
from bhclust.viewer.heat import MAX_COLUMNS, MISSING, chosen_columns, heat_payload
from bhclust.viewer.means import DataMeans, Side, leaf_centres, model_means
from bhclust.viewer.page import as_json
from tests.oracles.viewer import centre, random_tree_arrays, split_by_feature

FOLDER = Path(bhclust.__file__).parent / "viewer"
TYPES = {"i4": "<i4", "f4": "<f4", "f8": "<f8", "u1": "u1"}


def data_of(path):
    text = Path(path).read_text("utf-8")
    block = re.search(r'<script id="bhclust-data" type="application/json">(.*?)</script>', text)
    return json.loads(block.group(1))


def unpacked(record):
    return np.frombuffer(base64.b64decode(record["data"]), dtype=TYPES[record["type"]])


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    n = 30
    side = np.arange(n) % 2
    columns = {
        "size": (rng.normal(size=n) + 4 * side).tolist(),
        "legs": rng.poisson(2 + 6 * side).tolist(),
        "fur": (rng.random(n) < 0.2 + 0.6 * side).tolist(),
        "colour": np.array(["red", "green", "blue"])[(side + rng.integers(2, size=n)) % 3].tolist(),
    }
    columns["size"][3] = None
    columns["colour"][5] = None
    table = NamedColumns(columns, [f"row {i}" for i in range(n)])
    return table, BayesianHierarchicalClustering(learn=False).fit(table)


# -- the vendored script -------------------------------------------------------------------------


def test_the_script_is_the_one_that_its_sources_make():
    record = json.loads((FOLDER / "bundle" / "build.json").read_text("utf-8"))
    sources = {f"src/{path.name}" for path in (FOLDER / "js" / "src").iterdir()}
    assert sources <= set(record["sources"]), "run `make viewer`: a source is new"
    for part, hashes in (("js", record["sources"]), ("bundle", record["bundle"])):
        for name, digest in hashes.items():
            found = hashlib.sha256((FOLDER / part / name).read_bytes()).hexdigest()
            assert found == digest, f"run `make viewer`: {part}/{name} has changed since"


def test_licences_of_what_is_in_the_script_come_with_it_and_with_every_page(tmp_path):
    record = json.loads((FOLDER / "bundle" / "build.json").read_text("utf-8"))
    licences = (FOLDER / "bundle" / "LICENSES.txt").read_text("utf-8")
    lock = json.loads((FOLDER / "js" / "package-lock.json").read_text("utf-8"))
    page = write_view(Tree([2, 2, -1], n_leaves=2), tmp_path / "v.html").read_text("utf-8")
    assert record["packages"]
    for name, version in record["packages"].items():
        assert f"{name} {version}" in licences
        assert f"{name} {version}" in page
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    assert licences.count("Copyright ") >= len(record["packages"])


def test_the_lock_file_names_no_host():
    assert "http" not in (FOLDER / "js" / "package-lock.json").read_text("utf-8")


# -- safety --------------------------------------------------------------------------------------


def test_json_in_a_page_cannot_end_its_element():
    strings = ["</script>", "<!--", "a & b", "\u2028\u2029", "\ud800", '"', "🦜"]
    text = as_json(strings)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == [*strings[:4], "?", *strings[5:]]


def test_the_page_has_a_policy_and_nothing_to_fetch(tmp_path, mixed):
    table, clustering = mixed
    title = "<b>&\"'"
    page = clustering.to_html(tmp_path / "v.html", table, title=title).read_text("utf-8")
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<title>&lt;b&gt;&amp;&quot;&#x27;</title>" in page
    assert not re.search(r"<(link|img|iframe)|src=|href=|@import|url\(", page.replace(script, ""))
    assert page.count("</script>") == 2


# -- the payload ---------------------------------------------------------------------------------


def test_the_arrays_of_the_tree_are_exact(tmp_path, mixed):
    table, clustering = mixed
    tree, data = clustering.tree_, data_of(clustering.to_html(tmp_path / "v.html", table))
    n = tree.n_leaves
    np.testing.assert_array_equal(unpacked(data["tree"]["parent"]), tree.parent)
    np.testing.assert_array_equal(unpacked(data["tree"]["height"]), tree.height[n:])
    np.testing.assert_array_equal(unpacked(data["tree"]["logMarginal"]), tree.log_marginal)
    r = unpacked(data["rule"]["probability"])
    np.testing.assert_allclose(np.log(r) - unpacked(data["rule"]["logGo"]), tree.log_odds[n:])
    assert data["names"] == [f"row {i}" for i in range(30)]
    assert data["tree"]["weight"] is None
    assert data["start"] == {"mode": "map", "value": None}


def test_rows_without_weight_are_not_shown(tmp_path):
    X = np.array([[0.0], [9.0], [0.2], [9.1], [0.1]])
    weight = [1, 0, 2, 1, 1]
    clustering = BayesianHierarchicalClustering("diagonal_gaussian", learn=False, n_clusters=2)
    clustering.fit(X, sample_weight=weight)
    data = data_of(clustering.to_html(tmp_path / "v.html", X))
    assert data["names"] == ["0", "2", "3", "4"]
    assert unpacked(data["tree"]["weight"])[:4].tolist() == [1, 2, 1, 1]
    assert data["start"] == {"mode": "number", "value": 2}
    levels = np.array(data["heat"]["columns"][0]["levels"])
    assert levels[unpacked(data["heat"]["codes"])].tolist() == [0.0, 0.2, 9.1, 0.1]


def test_a_large_page_is_a_few_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    n = 20_000
    parent = random_tree_arrays(n, rng)
    odds = np.concatenate([np.full(n, np.inf), rng.normal(size=n - 1)])
    tree = Tree(parent, n, log_odds=odds, log_marginal=np.zeros(2 * n - 1))
    path = write_view(tree, tmp_path / "v.html", rng.normal(size=(n, 150)))
    assert path.stat().st_size < 6e6
    assert len(data_of(path)["heat"]["columns"]) == 100


# -- the heat map --------------------------------------------------------------------------------


def test_codes_stand_for_the_values(mixed):
    table, _ = mixed
    read = read_table(table)
    heat = heat_payload(read.toarray(), read.columns, n_all=4, from_model=False)
    codes = unpacked(heat["codes"]).reshape(30, 4)
    for j, name in enumerate(table):
        head = heat["columns"][j]
        decoded = head.get("categories") or head["levels"]
        for value, code in zip(table[name], codes[:, j].tolist(), strict=True):
            if value is None:
                assert code == MISSING
            else:
                expected = (
                    value if isinstance(value, str) else pytest.approx(float(value), rel=1e-6)
                )
                assert decoded[code] == expected


def test_many_values_become_quantiles_and_many_categories_one():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.standard_cauchy(5000), rng.integers(400, size=5000)])
    columns = [Column("x", "real"), Column("c", "categorical", tuple(range(400)))]
    heat = heat_payload(values, columns, n_all=2, from_model=False)
    codes = unpacked(heat["codes"]).reshape(5000, 2)
    levels = np.array(heat["columns"][0]["levels"])
    assert not heat["columns"][0]["exact"]
    found = levels[codes[:, 0]]
    nearest = np.abs(values[:, :1] - levels).min(axis=1)
    np.testing.assert_allclose(np.abs(found - values[:, 0]), nearest, atol=1e-5, rtol=1e-5)
    assert found[values[:, 0].argmax()] == pytest.approx(values[:, 0].max(), rel=1e-6)
    names = heat["columns"][1]["categories"]
    counts = np.bincount(values[:, 1].astype(int), minlength=400)
    assert int(names[0]) == counts.argmax()
    assert names[254] == "one of 146 rarer ones"
    assert codes[:, 1].max() == 254


def test_of_very_many_columns_the_telling_ones_are_shown():
    importance = np.zeros(500)
    importance[[400, 3]] = [5.0, 2.0]
    chosen = chosen_columns(10, 500, importance)
    assert len(chosen) == MAX_COLUMNS
    assert {3, 400} <= set(chosen.tolist())
    assert (np.diff(chosen) > 0).all()


def test_without_the_table_the_leaves_speak(tmp_path, mixed):
    table, clustering = mixed
    data = data_of(clustering.to_html(tmp_path / "v.html"))
    assert "model's mean" in data["heat"]["note"]
    codes = unpacked(data["heat"]["codes"]).reshape(30, 4)
    assert codes[3, 0] == MISSING
    assert codes[5, 3] == MISSING
    colours = data["heat"]["columns"][3]["categories"]
    shown = [colours[code] for code in np.delete(codes[:, 3], 5).tolist()]
    assert shown == [colour for colour in table["colour"] if colour is not None]
    known = [value for value in table["size"] if value is not None]
    order = np.argsort(np.delete(codes[:, 0], 3), kind="stable")
    assert order.tolist() == np.argsort(known, kind="stable").tolist()


@pytest.mark.parametrize(
    ("model", "X", "columns"),
    [
        (Bernoulli(), [[0.0, 1.0], [1.0, np.nan], [1.0, 1.0]], 2),
        (Poisson(), [[3.0, 1.0], [0.0, np.nan], [8.0, 2.0]], 2),
        (Multinomial(), [[3.0, 1.0], [0.0, 4.0], [8.0, 2.0]], 2),
        (DiagonalGaussian(), [[3.0, 1.0], [0.0, np.nan], [8.0, 2.0]], 2),
        (Categorical(n_categories=(3, 2)), [[2.0, 1.0], [0.0, np.nan], [1.0, 0.0]], 2),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, (int, list)) else "",
)
def test_the_centres_of_leaves_rise_with_the_data(model, X, columns):
    X = np.array(X)
    resolved = model.resolve(X)
    stats = resolved.suffstats(X)
    tree = Tree([3, 3, 4, 4, -1], 3, stats=np.concatenate([stats, stats[:2]]))
    centres = leaf_centres(resolved, tree, columns)
    if not isinstance(model, Multinomial):
        np.testing.assert_array_equal(np.isnan(centres), np.isnan(X))
    for j in range(columns):
        known = ~np.isnan(X[:, j])
        if isinstance(model, Categorical):
            np.testing.assert_array_equal(centres[known, j], X[known, j])
        else:
            a, b = np.meshgrid(X[known, j], X[known, j])
            c, d = np.meshgrid(centres[known, j], centres[known, j])
            if not isinstance(model, Multinomial):
                np.testing.assert_array_equal(np.sign(a - b), np.sign(c - d))


def test_models_without_centres_have_no_heat_map(mixed):
    class Silent(DiagonalGaussian):
        def summary(self, stats):
            return {}

    X = np.random.default_rng(0).normal(size=(4, 2))
    silent = Silent().resolve(X)
    assert model_means(silent, silent.suffstats(X), 2) is None
    both = Mixed([(Silent(), 0), (DiagonalGaussian(), 1)]).resolve(X)
    means = model_means(both, both.suffstats(X), 2)
    assert np.isnan(means[:, 0]).all()
    assert not np.isnan(means[:, 1]).any()


# -- explanations --------------------------------------------------------------------------------


@pytest.mark.parametrize("rose", [False, True], ids=["binary", "rose"])
def test_explanations_agree_with_sums_over_rows(rose):
    rng = np.random.default_rng(4)
    X = (rng.random((18, 5)) < np.repeat([[0.9], [0.2], [0.5]], 6, axis=0)).astype(float)
    X[2, 3] = np.nan
    kind = BayesianRoseTree if rose else BayesianHierarchicalClustering
    clustering = kind("bernoulli", learn=False).fit(X)
    tree, model = clustering.tree_, clustering.model_
    columns = clustering.schema_.columns
    explanation = explain_model(tree, model, columns, DataMeans(tree, X, columns))
    part = explanation.payload
    nodes, top = unpacked(part["nodes"]), part["top"]
    assert sorted(nodes) == list(range(tree.n_leaves, tree.n_nodes))
    total = np.zeros(5)
    for place, node in enumerate(nodes.tolist()):
        groups = [tree.leaves(int(child)) for child in tree.children(node)]
        expected = split_by_feature(model, X, groups)
        total += np.maximum(expected, 0)
        assert_factors(part["split"], place, top, expected)
        inside = tree.leaves(node)
        outside = np.setdiff1d(np.arange(tree.n_leaves), inside)
        if len(outside):
            expected = split_by_feature(model, X, [inside, outside])
            features = assert_factors(part["rest"], place, top, expected)
            values = unpacked(part["rest"]["values"]).reshape(-1, top, 2)[place]
            for i, j in enumerate(features):
                wanted = [centre(X[inside, j], False), centre(X[outside, j], False)]
                np.testing.assert_allclose(values[i], wanted, rtol=1e-6)
        else:
            assert np.isnan(unpacked(part["rest"]["total"])[place])
    np.testing.assert_allclose(explanation.importance, total)


def assert_factors(part, place, top, expected):
    features = unpacked(part["feature"]).reshape(-1, top)[place]
    features = features[features >= 0].tolist()
    factors = unpacked(part["factor"]).reshape(-1, top)[place][: len(features)]
    assert sorted(features) == list(range(len(expected)))
    np.testing.assert_allclose(factors, expected[features], rtol=1e-5, atol=1e-6)
    assert (np.diff(factors) <= 1e-6).all()
    assert unpacked(part["total"])[place] == pytest.approx(expected.sum(), rel=1e-5, abs=1e-5)
    return features


def test_a_forest_is_explained_against_its_other_trees():
    X = np.array([[0.0], [0.0], [1.0], [1.0], [1.0]])
    model = Bernoulli().resolve(X)
    leaves = model.suffstats(X)
    first = model.merge(leaves[:1], leaves[1:2])
    second = model.merge(leaves[2:3], model.merge(leaves[3:4], leaves[4:]))
    tree = Tree([5, 5, 6, 6, 6, -1, -1], 5, stats=np.concatenate([leaves, first, second]))
    columns = [Column("x", "binary")]
    part = explain_model(tree, model, columns, None).payload
    assert unpacked(part["nodes"]).tolist() == [6, 5]
    expected = split_by_feature(model, X, [np.array([0, 1]), np.array([2, 3, 4])])
    np.testing.assert_allclose(unpacked(part["rest"]["total"]), [expected[0]] * 2, rtol=1e-6)
    values = unpacked(part["rest"]["values"]).reshape(2, -1, 2)[0, 0]
    centres = model_means(model, np.concatenate([second, first]), 1)
    np.testing.assert_allclose(values, centres[:, 0], rtol=1e-6)


def test_a_model_that_is_no_product_is_explained_as_a_whole():
    X = np.random.default_rng(0).normal(size=(6, 2))
    clustering = BayesianHierarchicalClustering("gaussian", learn=False).fit(X)
    model, tree = clustering.model_, clustering.tree_

    class Total(type(model)):
        feature_contributions = ClusterModel.feature_contributions

    total = Total(**vars(model))
    part = explain_model(tree, total, clustering.schema_.columns, None).payload
    assert [feature["name"] for feature in part["features"]] == ["all features"]
    nodes = unpacked(part["nodes"])
    expected = [
        tree.log_marginal[tree.children(int(node))].sum() - tree.log_marginal[node]
        for node in nodes
    ]
    np.testing.assert_allclose(unpacked(part["split"]["total"]), expected, rtol=1e-5, atol=1e-5)


def test_columns_of_a_coalescent_add_up_where_they_are_independent():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(12, 4)).astype(float)
    clustering = CoalescentClustering(Mutation(), column_kinds="categorical").fit(X)
    tree, columns = clustering.tree_, clustering.schema_.columns
    values = clustering.schema_.encode(X)
    data = DataMeans(tree, values, columns)
    part = explain_process(tree, clustering.process_, columns, values, data).payload
    assert part["additive"] is True
    nodes = unpacked(part["nodes"])
    factors = unpacked(part["split"]["factor"]).reshape(len(nodes), -1).sum(axis=1)
    np.testing.assert_allclose(factors, -tree.log_odds[nodes], rtol=1e-4, atol=1e-4)


def test_means_below_nodes_are_those_of_the_leaves():
    rng = np.random.default_rng(1)
    tree = Tree(random_tree_arrays(25, rng, most_children=4), 25)
    X = np.column_stack([rng.normal(size=25), rng.integers(4, size=25)])
    X[rng.random((25, 2)) < 0.2] = np.nan
    columns = [Column("x", "real"), Column("c", "categorical", tuple("abcd"))]
    nodes = np.append(rng.permutation(tree.n_nodes), -1)
    features = np.tile([1, 0, -1], (len(nodes), 1))
    sides = [Side(nodes), Side(nodes, complement=True)]
    for values in (X, sparse.csr_array(np.nan_to_num(X))):
        found = DataMeans(tree, values, columns).at(features, sides)
        full = values if isinstance(values, np.ndarray) else values.toarray()
        for i, node in enumerate(nodes[:-1].tolist()):
            inside = tree.leaves(node)
            outside = np.setdiff1d(np.arange(25), inside)
            for s, rows in enumerate((inside, outside)):
                wanted = [centre(full[rows, 1], True), centre(full[rows, 0], False), np.nan]
                np.testing.assert_allclose(found[i, :, s], wanted)
        assert np.isnan(found[-1, :, 0]).all()


def test_the_largest_nodes_come_with_all_nodes_above_them():
    rng = np.random.default_rng(0)
    tree = Tree(random_tree_arrays(3000, rng), 3000)
    nodes = largest_nodes(tree, 100_000_000).tolist()
    assert len(nodes) == 20
    assert all(tree.parent[node] < 0 or tree.parent[node] in nodes for node in nodes)


def test_the_strongest_features_are_ranked_by_what_they_say():
    ranked = rank(np.array([[1.0, -5.0, 3.0], [np.nan, np.nan, np.nan]]), top=4)
    assert ranked.feature.tolist()[0] == [2, 0, 1, -1]
    assert ranked.total[0] == -1
    assert np.isnan(ranked.total[1])


# -- sources and files ---------------------------------------------------------------------------


def test_everything_that_is_no_tree_is_refused(tmp_path, mixed):
    table, clustering = mixed
    with pytest.raises(NotFittedError):
        BayesianRoseTree().to_html(tmp_path / "v.html")
    with pytest.raises(BhclustError, match="must be a fitted estimator or a Tree, got dict"):
        write_view({}, tmp_path / "v.html")
    with pytest.raises(BhclustError, match="X has 2 rows, but 30 were fitted"):
        clustering.to_html(tmp_path / "v.html", {name: table[name][:2] for name in table})
    with pytest.raises(BhclustError, match="other columns than the fitted table"):
        write_view(clustering, tmp_path / "v.html", read_table([[1.0, 2.0]] * 30))
    with pytest.raises(BhclustError, match="row_names must have one name a row"):
        write_view(clustering, tmp_path / "v.html", row_names=["a"])
    with pytest.raises(OSError, match="folder does not exist"):
        clustering.to_html(tmp_path / "nowhere" / "v.html")
    assert list(tmp_path.iterdir()) == []


def test_sparse_tables_are_shown(tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.csr_array((rng.random((20, 400)) < 0.1).astype(float))
    clustering = BayesianHierarchicalClustering("bernoulli", learn=False).fit(X)
    data = data_of(clustering.to_html(tmp_path / "v.html", X))
    assert len(data["heat"]["columns"]) == MAX_COLUMNS
    assert f"{MAX_COLUMNS} of 400 columns" in data["heat"]["note"]
    names = [column["name"] for column in data["heat"]["columns"]]
    codes = unpacked(data["heat"]["codes"]).reshape(20, MAX_COLUMNS)
    for j in (0, 57, 199):
        levels = np.array(data["heat"]["columns"][j]["levels"])
        column = X[:, [int(names[j][1:])]].toarray().ravel()
        np.testing.assert_array_equal(levels[codes[:, j]], column)


def test_a_result_folder_is_shown_with_and_without_its_table(tmp_path, mixed):
    table, clustering = mixed
    read = read_table(table)
    summary = summarise(clustering, read)
    folder = tmp_path / "zoo"
    names = [f"name {i}" for i in range(30)]
    write_result(clustering, summary, folder, row_names=names, table=read)
    path = view_result(folder)
    data = data_of(path)
    assert path == folder / "view.html"
    assert data["title"] == "zoo"
    assert data["names"] == names
    assert data["heat"]["note"] == ""
    write_result(clustering, summary, folder, row_names=names)  # over its own earlier files
    assert not (folder / "view.html").exists()
    assert not (folder / "table.npz").exists()
    out = view_result(folder, tmp_path / "other.html", title="Other")
    assert data_of(out)["title"] == "Other"
    assert "model's mean" in data_of(out)["heat"]["note"]


def test_folders_that_hold_no_result_are_refused(tmp_path, mixed):
    table, clustering = mixed
    with pytest.raises(BhclustError, match="does not exist: give a folder"):
        view_result(tmp_path / "none")
    with pytest.raises(BhclustError, match=r"holds no model\.npz"):
        view_result(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BhclustError, match="is a file, not a folder"):
        view_result(tmp_path / "file")
    folder = tmp_path / "result"
    write_result(clustering, summarise(clustering, read_table(table)), folder)
    with pytest.raises(BhclustError, match="folder does not exist"):
        view_result(folder, tmp_path / "nowhere" / "v.html")
    (folder / "labels.csv").write_text("row,cluster\na,0\n")
    with pytest.raises(FileFormatError, match="does not belong to the model beside it"):
        view_result(folder)
    (folder / "labels.csv").write_bytes(b"row,cluster\n\xff,0\n")
    with pytest.raises(FileFormatError, match="is damaged"):
        view_result(folder)
    (folder / "labels.csv").unlink()
    assert data_of(view_result(folder))["names"] == [f"row {i}" for i in range(30)]
    clustering.tree_.save(folder / "model.npz")
    with pytest.raises(FileFormatError, match="holds a tree without a model"):
        view_result(folder)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_tables_go_to_a_file_and_back(tmp_path, mixed, is_sparse):
    matrix = sparse.csr_array(np.eye(4))
    table = read_table(matrix if is_sparse else mixed[0])
    save_table(tmp_path / "table.npz", table)
    again = load_table(tmp_path / "table.npz")
    assert again.schema == table.schema
    assert again.row_names == table.row_names
    assert sparse.issparse(again.values) == is_sparse
    np.testing.assert_array_equal(again.toarray(), table.toarray())


def test_other_files_are_no_tables(tmp_path, mixed):
    mixed[1].save(tmp_path / "model.npz")
    with pytest.raises(FileFormatError, match="holds no table"):
        load_table(tmp_path / "model.npz")
    table = read_table([[1.0, 2.0], [3.0, 4.0]])
    header = {"kind": "table", "schema": table.schema.to_dict(), "row_names": None}
    for wrong in ({"shape": [3, 2]}, {"shape": [2, 2], "row_names": ["a"]}, {}, {"shape": "x"}):
        bhclust.io.write_archive(tmp_path / "t.npz", {**header, **wrong}, {"values": table.values})
        with pytest.raises(FileFormatError, match="does not hold a valid table"):
            load_table(tmp_path / "t.npz")


# -- notebooks -----------------------------------------------------------------------------------


def test_a_tree_in_a_notebook_is_small_and_safe(mixed):
    _, clustering = mixed
    page = clustering.tree_._repr_html_()
    assert page.startswith("<div")
    assert page.count("<svg") == 1
    assert "30 leaves" in page
    assert f"{clustering.n_clusters_} clusters" in page
    hostile = ("<script>alert(1)</script>", '"onload="x', "🦜")
    tree = Tree([3, 3, 4, 4, -1], 3, leaf_names=hostile)
    page = tree_html(tree)
    assert "<script" not in page
    assert 'onload="' not in page
    assert "🦜" in page
    assert "clusters" not in page
    assert Tree([-1], n_leaves=1)._repr_html_().count("<svg") == 1


def test_a_large_tree_in_a_notebook_stays_small():
    rng = np.random.default_rng(0)
    tree = Tree(random_tree_arrays(5000, rng, most_children=3, n_roots=2), 5000)
    assert len(tree_html(tree)) < 20_000
