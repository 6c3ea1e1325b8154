"""The commands on real files and real fits: what they print, write and refuse."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_iris

import bhclust
from bhclust import _progress
from bhclust.cli import main
from bhclust.cli import progress as bar
from bhclust.cli.output import say_json, style
from bhclust.io import save
from bhclust.report.scores import score_clusters
from bhclust.report.summary import summarise
from bhclust.report.terminal import Style, as_text, clipped, display_width, draw_text, text_table
from bhclust.tablefile import Roles, read_table_file
from bhclust.tables import NamedColumns, Table, read_table
from bhclust.tree import Tree

ROLES = ("--id-column", "id", "--label-column", "species")


def run(*args, stdin=None):
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def done(*args, stdin=None):
    """Run a command that must succeed and return what it prints."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(status, message, *args, stdin=None):
    """Run a command that must fail with one sentence."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == status, result.output
    assert result.stderr.startswith("bhclust: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert result.stdout == ""


def table_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def flowers():
    frame = load_iris(as_frame=True).frame.iloc[::3].reset_index(drop=True)
    frame.columns = ["sepal length", "sepal width", "petal length", "petal width", "species"]
    frame["species"] = frame["species"].map({0: "setosa", 1: "versicolor", 2: "virginica"})
    frame.insert(0, "id", [f"flower {i}" for i in range(len(frame))])
    frame["colour"] = ["blue" if i % 2 else "white" for i in range(len(frame))]
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory, flowers):
    """A folder with the table in every format and fits of three methods."""
    path = tmp_path_factory.mktemp("flowers")
    flowers.to_csv(path / "flowers.csv", index=False)
    flowers.to_csv(path / "flowers.tsv", index=False, sep="\t")
    flowers.to_parquet(path / "flowers.parquet")
    flowers.to_feather(path / "flowers.feather")
    numbers = ["--ignore", "colour", "--learn", "none"]
    done("fit", path / "flowers.csv", "--out", path / "bhc", *ROLES, "--learn", "none")
    brt = ["--method", "brt", "--alpha", "1", "--mixing", "dirichlet-process"]
    done("fit", path / "flowers.csv", "--out", path / "brt", *ROLES, *numbers, *brt)
    sampler = ["--method", "coalescent", "--inference", "smc-priorpost", "--particles", "10"]
    done("fit", path / "flowers.csv", "--out", path / "smc", *ROLES, *numbers, *sampler)
    return path


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather"])
def test_every_format_gives_the_same_table(folder, flowers, suffix):
    roles = Roles("id", "species", ignore=("colour",))
    table = read_table_file(folder / f"flowers.{suffix}", roles)
    assert table.columns.row_names == tuple(flowers["id"])
    assert table.classes == flowers["species"].tolist()
    values = read_table(table.columns).values
    assert values == pytest.approx(flowers.iloc[:, 1:5].to_numpy())


def test_arrays(tmp_path, flowers):
    X = flowers.iloc[:, 1:5].to_numpy()
    np.save(tmp_path / "x.npy", X)
    table = read_table_file(tmp_path / "x.npy", Roles(ignore=("x3",)))
    assert list(table.columns) == ["x0", "x1", "x2"]
    names = np.array(["a", "b", "c", "d"])
    y = flowers["species"].to_numpy().astype(str)
    np.savez(tmp_path / "x.npz", X=X, y=y, columns=names, other=np.zeros(3))
    table = read_table_file(tmp_path / "x.npz", Roles(label_column="y"))
    assert list(table.columns) == ["a", "b", "c", "d"]
    assert table.classes == y.tolist()
    # Classes beside a table are never clustered by unless they are asked for.
    assert list(read_table_file(tmp_path / "x.npz").columns) == ["a", "b", "c", "d"]
    np.savez(tmp_path / "flat.npz", a=np.arange(3), b=np.array(["x", "y", "x"]))
    flat = read_table_file(tmp_path / "flat.npz").columns
    assert read_table(flat).schema.kinds == ("count", "categorical")
    np.save(tmp_path / "records.npy", np.array([(1, 0.5), (2, 1.5)], dtype="i4,f8"))
    assert list(read_table_file(tmp_path / "records.npy").columns) == ["f0", "f1"]


def test_parquet_details(tmp_path):
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 3], dtype="Int64"),
            "t": ["x", None, "y"],
            "b": [True, False, True],
        },
        index=["p", "q", "r"],
    )
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table_file(tmp_path / "t.parquet").columns
    assert table.row_names == ("p", "q", "r")
    assert read_table(table).schema.kinds == ("count", "categorical", "binary")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "misnamed.csv").write_bytes(content)
    assert list(read_table_file(tmp_path / "misnamed.csv").columns) == ["n", "t", "b"]
    frame["day"] = pd.to_datetime(["2020-01-01"] * 3)
    frame.to_parquet(tmp_path / "d.parquet")
    fails(1, "'day' holds dates", "fit", tmp_path / "d.parquet", "--out", tmp_path / "o")


def write_bad_files(folder, flowers):
    """Return files that are no tables, with what is said about them."""
    whole = (folder / "flowers.parquet").read_bytes()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(buffer, X=np.array([[1, "a"], [2, None]], dtype=object))
    several = io.BytesIO()
    np.savez(several, a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    archive = several.getvalue()
    sparse = io.BytesIO()
    np.savez(sparse, format=b"csr", shape=np.array([1, 1]), data=np.ones(1))
    flat = io.BytesIO()
    np.save(flat, np.zeros(3))
    raw = io.BytesIO()
    np.save(raw, np.array([[b"a"]]))
    return {
        "cut.parquet": (whole[: len(whole) // 2], "not a whole Parquet file"),
        "text.parquet": (b"a,b\n1,2\n", "not a whole Parquet file"),
        "cut.feather": ((folder / "flowers.feather").read_bytes()[:99], "not a whole Feather file"),
        "empty.parquet": (b"", "is empty"),
        "objects.npz": (buffer.getvalue(), "array 'X' of"),
        "several.npz": (archive, "several tables ('a', 'b')"),
        "cut.npz": (archive[:60], "not a whole .npz archive"),
        "sparse.npz": (sparse.getvalue(), "holds a sparse matrix"),
        "flat.npy": (flat.getvalue(), "an array of shape (3,)"),
        "cut.npy": (flat.getvalue()[:-4], "not a whole NumPy file"),
        "raw.npy": (raw.getvalue(), "raw bytes"),
        "text.npy": (b"hello", "not a whole NumPy file"),
    }


def test_files_that_are_no_tables(tmp_path, folder, flowers):
    for name, (content, message) in write_bad_files(folder, flowers).items():
        (tmp_path / name).write_bytes(content)
        fails(1, message, "fit", tmp_path / name, "--out", tmp_path / "out")
    fails(
        1, "which only pickle could read", "fit", tmp_path / "objects.npz", "--out", tmp_path / "o"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("n,a\nx,1\nx,2\ny,3\n", ["--id-column", "n"], "must be unique, but it repeats 'x'"),
        ("a,b,a\n1,2,3\n", [], "repeats 'a'"),
        ("a;b\n1;2\n", ["--delimiter", ",", "--ignore", "b"], "has no column 'b'"),
        ("a,b\n1,2\n", ["--label-column", "c"], "has no column 'c'; its columns are 'a', 'b'"),
        ("a,b\n1,x\n2,y\n", ["--weight-column", "b"], "'b' must hold a number in every row"),
        ("a,b\n1,-1\n2,1\n", ["--weight-column", "b"], "not negative"),
        ("a,b\n1,\n2,\n", ["--label-column", "b"], "has no value in any row"),
        ("a\n1\n2\n", ["--label-column", "a"], "no column left to cluster by"),
    ],
)
def test_bad_columns(tmp_path, text, options, message):
    (tmp_path / "t.csv").write_text(text)
    fails(1, message, "fit", tmp_path / "t.csv", "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_pyarrow_is_named_when_it_is_not_there(folder, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    message = "reading Parquet files needs pyarrow: install it with"
    fails(1, message, "fit", folder / "flowers.parquet", "--out", tmp_path / "out")


# -- fit -------------------------------------------------------------------------------------------


def test_classes_are_scored_and_not_used(folder, flowers, tmp_path):
    out = tmp_path / "out"
    args = ("fit", folder / "flowers.csv", "--out", out, "--id-column", "id", "--learn", "none")
    with_classes = json.loads(done(*args, "--label-column", "species", "--json"))
    assert [column["name"] for column in with_classes["columns"]] == [
        *flowers.columns[1:5],
        "colour",
    ]
    model = bhclust.load(out / "model.npz")
    scores = with_classes["scores"]
    expected = score_clusters(model.labels_, flowers["species"].tolist(), tree=model.tree_)
    assert scores == expected._asdict()
    assert scores["purity"] > 0.6
    without = json.loads(done(*args, "--ignore", "species", "--json"))
    assert without["scores"] is None
    assert without["log_evidence"] == with_classes["log_evidence"]


def test_json_keys(folder, tmp_path):
    out = tmp_path / "out"
    content = json.loads(done("demo", "--out", out, "--json"))
    assert list(content) == [
        "command", "bhclust_version", "rows", "columns", "missing", "method", "model",
        "log_evidence", "log_evidence_bound", "n_clusters", "clusters", "scores", "seconds",
        "out", "files",
    ]  # fmt: skip
    assert content["rows"] == sum(cluster["size"] for cluster in content["clusters"]) == 200
    assert len(content["clusters"][0]["features"]) == 3
    assert all((out / name).exists() for name in content["files"])


def test_settings_reach_the_model(folder, tmp_path):
    out = tmp_path / "out"
    args = ["--ignore", "colour", "--seed", 3, "--clusters", 2, "--jobs", 1, "--restarts", 1]
    args += ["--strategy", "greedy", "--polish", "--mixing", "constant", "--gamma", 0.3]
    args += ["--learn", "gamma", "--model", "Diagonal-Gaussian"]
    done("fit", folder / "flowers.csv", "--out", out, *ROLES, *args)
    model = bhclust.load(out / "model.npz")
    got = {name: getattr(model, name) for name in ("random_state", "n_clusters", "n_jobs")}
    assert got == {"random_state": 3, "n_clusters": 2, "n_jobs": 1}
    assert (model.strategy, model.polish, model.mixing, model.learn) == (
        "greedy", True, "constant", ["gamma"],
    )  # fmt: skip
    assert type(model.model_).__name__ == "DiagonalGaussian"
    assert (model.n_clusters_, model.n_restarts) == (2, 1)


def test_weights(tmp_path):
    (tmp_path / "t.csv").write_text("a,w\n0.0,3\n0.1,1\n9.0,0\n8.0,2\n")
    done("fit", tmp_path / "t.csv", "--out", tmp_path / "out", "--weight-column", "w")
    model = bhclust.load(tmp_path / "out" / "model.npz")
    assert model.leaf_rows_.tolist() == [0, 1, 3]
    assert model.tree_.weight[-1] == 6
    assert len(table_of((tmp_path / "out" / "labels.csv").read_text())) == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--method", "coalescent", "--alpha", "1"],
            "--alpha does not go with --method coalescent",
        ),
        (["--method", "coalescent", "--weight-column", "w"], "--weight-column does not go"),
        (["--inference", "smc-race"], "--inference does not go with --method bhc"),
        (["--model", "nonsense"], "model must be one of 'auto', 'bernoulli'"),
        (["--method", "coalescent", "--model", "gaussian"], "must be one of 'auto', 'brownian'"),
        (["--learn", "a,,b"], "empty name"),
        (["--time-columns", "a,b"], "needs --model time-series"),
        (["--time-columns", "a=x"], "is not a number"),
        (["--time-columns", "a,a"], "every column once"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_usage_errors(folder, tmp_path, args, message):
    fails(2, message, "fit", folder / "flowers.csv", "--out", tmp_path / "out", *args)


def test_device_is_passed_on_where_there_is_one(folder, tmp_path, monkeypatch):
    from bhclust.cli import fitting

    class Plain(bhclust.BayesianHierarchicalClustering):
        def __init__(self, model="auto", *, column_kinds=None):
            super().__init__(model, column_kinds=column_kinds)

    class Elsewhere(Plain):
        def __init__(self, model="auto", *, column_kinds=None, device="cpu"):
            super().__init__(model, column_kinds=column_kinds)
            self.device = device

    monkeypatch.setitem(fitting.ESTIMATORS, "bhc", Elsewhere)
    assert fitting.make_estimator("bhc", device="cuda").device == "cuda"
    monkeypatch.setitem(fitting.ESTIMATORS, "bhc", Plain)
    assert fitting.make_estimator("bhc", device="cpu").get_params()
    args = ("fit", folder / "flowers.csv", "--out", tmp_path / "out", "--device", "cuda")
    fails(2, "--device cuda: Plain computes on the processor only", *args)


def test_time_series(tmp_path):
    rows = [
        "name,a,b,c,d",
        *(f"r{i},{i % 2},{i % 2 + 0.1},{3 * (i % 2)},{i % 2}" for i in range(6)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    args = ("fit", tmp_path / "t.csv", "--out", tmp_path / "out", "--learn", "none")
    done(*args, "--model", "time-series", "--time-columns", "a=0,b=1,d=4")
    assert bhclust.load(tmp_path / "out" / "model.npz").schema_.names == ("a", "b", "d")
    fails(2, "no column 'z'", *args, "--model", "time-series", "--time-columns", "a,z")


def test_derived_files_of_an_earlier_result_go(folder, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "t.csv").write_text("a,b\n0,1\n1,0\n")
    done("fit", tmp_path / "t.csv", "--out", out)
    (out / "view.html").write_text("old")
    done("fit", tmp_path / "t.csv", "--out", out)
    assert not (out / "view.html").exists()


# -- predict, score, cut ---------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["bhc", "brt", "smc"])
def test_predictions_are_those_of_the_model(folder, flowers, result):
    model = bhclust.load(folder / result / "model.npz")
    columns = {name: flowers[name].tolist() for name in model.schema_.names}
    expected = model.predict_proba(columns)
    # Columns are found by name, in any order and among others.
    shuffled = flowers[flowers.columns[::-1]].to_csv(index=False)
    rows = table_of(done("predict", folder / result, "-", *ROLES, stdin=shuffled))
    assert [row["row"] for row in rows] == flowers["id"].tolist()
    assert [int(row["cluster"]) for row in rows] == model.predict(columns).tolist()
    names = [f"p_{k}" for k in range(model.n_clusters_)] + ["p_new"] * (result != "smc")
    got = np.array([[float(row[name]) for name in names] for row in rows])
    assert got == pytest.approx(expected, abs=1e-5)
    content = json.loads(
        done("predict", folder / result / "model.npz", folder / "flowers.parquet", *ROLES, "--json")
    )
    first = content["rows"][0]
    assert list(first["probabilities"]) == names
    assert list(first["probabilities"].values()) == pytest.approx(expected[0])


def test_predict_to_a_file(folder, tmp_path):
    out = tmp_path / "labels.csv"
    said = done("predict", folder / "bhc", folder / "flowers.csv", "--out", out)
    assert said == f"wrote 50 row(s) to {out}\n"
    assert len(table_of(out.read_text())) == 50
    assert done("predict", folder / "bhc", folder / "flowers.csv", "--out", out, "--quiet") == ""
    gone = tmp_path / "no" / "labels.csv"
    fails(
        1,
        "its folder does not exist",
        "predict",
        folder / "bhc",
        folder / "flowers.csv",
        "-o",
        gone,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="petal width"), "lacks the column(s) 'petal width'"),
        (lambda f: f.drop(columns="colour"), "has no column 'colour'"),
        (lambda f: f.assign(colour="green"), "the category 'green' in row 0"),
        (lambda f: f.assign(**{"petal width": "wide"}), "must hold numbers"),
        (lambda f: f.iloc[:0], "has a header but no rows"),
    ],
)
def test_new_tables_that_do_not_fit(folder, flowers, change, message):
    text = change(flowers).to_csv(index=False)
    fails(1, message, "predict", folder / "bhc", "-", *ROLES, stdin=text)
    fails(1, message, "score", folder / "bhc", "-", stdin=text)


def test_text_stays_text_in_new_tables(tmp_path):
    (tmp_path / "t.csv").write_text("code,x\n1,0.5\n2,0.75\n1,5.5\n2,5.75\n")
    done("fit", tmp_path / "t.csv", "--out", tmp_path / "out", "--kind", "code=categorical")
    rows = table_of(done("predict", tmp_path / "out", "-", stdin="x,code\n0.5,2\n"))
    assert len(rows) == 1


def test_a_model_of_an_array_goes_by_places(tmp_path, flowers):
    X = flowers.iloc[:, 1:5].to_numpy()
    bhclust.BayesianHierarchicalClustering(learn=False).fit(X).save(tmp_path / "m.npz")
    text = flowers.iloc[:, 1:5].to_csv(index=False)
    assert len(table_of(done("predict", tmp_path / "m.npz", "-", stdin=text))) == 50
    wide = flowers.iloc[:, 1:6].to_csv(index=False)
    fails(1, "has 5 column(s)", "predict", tmp_path / "m.npz", "-", stdin=wide)


@pytest.mark.parametrize("result", ["bhc", "smc"])
def test_scores_are_those_of_the_model(folder, flowers, tmp_path, result):
    model = bhclust.load(folder / result / "model.npz")
    columns = {name: flowers[name].tolist() for name in model.schema_.names}
    out = tmp_path / "rows.csv"
    args = ("score", folder / result, folder / "flowers.csv", *ROLES)
    content = json.loads(done(*args, "--json", "--out", out))
    density = model.score_samples(columns)
    assert content["mean_log_density"] == pytest.approx(density.mean())
    assert content["standard_error"] == pytest.approx(density.std() / 7)
    got = [float(row["log_density"]) for row in table_of(out.read_text())]
    assert got == pytest.approx(density)
    expected = score_clusters(model.predict(columns), flowers["species"].tolist())
    assert content["scores"] == expected._asdict()
    text = done(*args)
    assert "mean log density" in text
    assert "purity" in text


@pytest.mark.parametrize("result", ["bhc", "brt", "smc"])
def test_cuts_are_those_of_the_tree(folder, flowers, result):
    model = bhclust.load(folder / result / "model.npz")
    rows = table_of(done("cut", folder / result, "--clusters", 4))
    assert [int(row["cluster"]) for row in rows] == model.cut(4).tolist()
    assert [row["row"] for row in rows] == flowers["id"].tolist()
    settings = {} if result == "smc" else {"method": "threshold"}
    content = json.loads(done("cut", folder / result, "--threshold", 0.9, "--json"))
    expected = model.cut(threshold=0.9, **settings)
    assert [row["cluster"] for row in content["rows"]] == expected.tolist()
    assert content["n_clusters"] == expected.max() + 1


def test_cut_of_trees_as_text_and_mistakes(folder, tmp_path):
    fails(2, "not both", "cut", folder / "bhc", "--clusters", 2, "--threshold", 0.5)
    fails(1, "at most 50", "cut", folder / "bhc", "--clusters", 51)
    fails(1, "between 0 and 1", "cut", folder / "bhc", "--threshold", 1.5)
    whole = done("cut", folder / "bhc", "--clusters", 3)
    assert done("cut", folder / "bhc" / "tree.nwk", "--clusters", 3) == whole
    (tmp_path / "bare.nwk").write_text("((a,b),c);")
    fails(1, "carries no probabilities", "cut", tmp_path / "bare.nwk")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.npz", b"PK\x03\x04 nonsense", "truncated or damaged"),
        ("model.npz", b"", "not an npz archive"),
        ("some.bin", b"\xff\xfe\x00", "neither a model of bhclust fit nor a tree"),
        ("tree.nwk", b"((a,b);", "holds no tree"),
        ("tree.json", b"{}", "holds no tree"),
    ],
)
def test_unreadable_models(tmp_path, folder, name, content, message):
    (tmp_path / name).write_bytes(content)
    for command in (["cut"], ["export"], ["predict"], ["score"]):
        new = [folder / "flowers.csv"] if command[0] in ("predict", "score") else []
        fails(1, message, *command, tmp_path / name, *new)


def test_results_that_are_not_there(tmp_path, folder):
    fails(1, "no.npz cannot be read", "cut", tmp_path / "no.npz")
    fails(1, "has no model.npz", "cut", tmp_path)
    save(tmp_path / "tree.npz", Tree([2, 2, -1], 2))
    message = "holds a tree without a model"
    fails(1, message, "predict", tmp_path / "tree.npz", folder / "flowers.csv")
    fails(1, message, "export", tmp_path / "tree.npz", "--out", tmp_path / "a.h5ad")


# -- export, view, compare -------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["bhc", "brt", "smc"])
def test_exports_hold_the_tree(folder, tmp_path, result):
    model = bhclust.load(folder / result / "model.npz")
    tree = model.tree_
    assert sorted(Tree.from_newick(done("export", folder / result)).leaf_names) == sorted(
        tree.leaf_names
    )
    done("export", folder / result, "--out", tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    assert content["labels"] == model.labels_.tolist()
    again = Tree.from_json((tmp_path / "t.json").read_text())
    assert again.parent.tolist() == tree.parent.tolist()
    assert again.height.tolist() == tree.height.tolist()
    done("export", folder / result, "--out", tmp_path / "z.npy")
    assert np.load(tmp_path / "z.npy") == pytest.approx(tree.to_linkage())
    lines = table_of(done("export", folder / result, "--format", "linkage-csv"))
    assert [float(line["height"]) for line in lines] == tree.to_linkage()[:, 2].tolist()
    nexus = done("export", folder / result, "--format", "nexus")
    assert nexus.count("TREE bhclust") == (10 if result == "smc" else 1)
    said = done(
        "export", folder / result, "--format", "co-clustering", "-o", tmp_path / "c.npy", "--json"
    )
    assert json.loads(said)["bytes"] == (tmp_path / "c.npy").stat().st_size
    assert np.load(tmp_path / "c.npy") == pytest.approx(model.co_clustering_matrix())


def test_exports_through_other_packages(folder, tmp_path):
    networkx = pytest.importorskip("networkx")
    done("export", folder / "brt", "--out", tmp_path / "t.graphml")
    graph = networkx.read_graphml(tmp_path / "t.graphml")
    tree = bhclust.load(folder / "brt" / "model.npz").tree_
    assert len(graph) == tree.n_nodes
    assert graph.nodes["0"]["name"] == tree.leaf_names[0]
    for suffix in ("gml", "gexf"):
        done("export", folder / "brt", "--out", tmp_path / f"t.{suffix}", "--quiet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata = pytest.importorskip("anndata")
        done("export", folder / "bhc", "--out", tmp_path / "t.h5ad")
        adata = anndata.read_h5ad(tmp_path / "t.h5ad")
        assert adata.obs_names.tolist() == list(
            bhclust.load(folder / "bhc" / "model.npz").tree_.leaf_names
        )
        arviz = pytest.importorskip("arviz")
        done("export", folder / "smc", "--out", tmp_path / "t.nc", "--seed", 2)
        assert arviz.from_netcdf(tmp_path / "t.nc").posterior["root_age"].shape == (1, 1000)


def test_export_mistakes(folder, tmp_path):
    fails(2, "says nothing about the format", "export", folder / "bhc", "--out", tmp_path / "t.xyz")
    fails(2, "is not text", "export", folder / "bhc", "--format", "linkage")
    fails(2, "give one with --out", "export", folder / "bhc", "--json")
    (tmp_path / "forest.nwk").write_text("(a,b);\n(c,d);\n")
    fails(1, "has 2", "export", tmp_path / "forest.nwk", "--out", tmp_path / "t.nexus")
    fails(1, "this forest has 2", "export", tmp_path / "forest.nwk", "--out", tmp_path / "t.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["forest.nwk"]


def test_view_writes_the_page(folder, tmp_path):
    result = tmp_path / "result"
    shutil.copytree(folder / "bhc", result)
    assert done("view", result) == f"wrote {result / 'view.html'}\n"
    page = tmp_path / "page.html"
    content = json.loads(done("view", result, "--out", page, "--json"))
    assert content["out"] == str(page)
    # The fitted table lies in the folder, so the page shows the data and their columns.
    assert (result / "table.npz").exists()
    for written in (page, result / "view.html"):
        text = written.read_text("utf-8")
        assert "Content-Security-Policy" in text
        assert "colour" in text
    fails(1, "is not a folder", "view", folder / "flowers.csv")
    fails(1, "empty", "view", _empty(tmp_path / "empty"))


def _empty(path):
    path.mkdir()
    return path


def test_compare(folder, tmp_path):
    out = tmp_path / "models.csv"
    args = ["compare", folder / "flowers.csv", *ROLES, "--ignore", "colour", "--folds", 2]
    models = ["--model", "diagonal-gaussian", "--model", "brt:gaussian"]
    content = json.loads(done(*args, *models, "--json", "--out", out))
    names = [row["name"] for row in content["models"]]
    assert sorted(names) == ["brt:gaussian", "diagonal-gaussian"]
    assert content["best"] == names[0]
    assert [row["name"] for row in table_of(out.read_text())] == names
    assert content["models"][0]["heldout"] >= content["models"][1]["heldout"]
    assert 0 < content["models"][0]["purity"] <= 1
    text = done(*args, "--model", "coalescent:brownian")
    assert text.splitlines()[0].split()[-2:] == ["purity", "ARI"]
    fails(2, "'ward' in 'ward:x' is no method", *args, "--model", "ward:x")
    fails(2, "Missing option", "compare", folder / "flowers.csv")


def test_every_command_has_help_with_an_example():
    for name in main.commands:
        text = done(name, "--help")
        assert "Example" in text
        assert f"bhclust {name}" in text


# -- the terminal ----------------------------------------------------------------------------------


def test_summary_respects_the_terminal(flowers):
    model = bhclust.BayesianHierarchicalClustering(learn=False)
    columns = NamedColumns({name: flowers[name].tolist() for name in flowers.columns[1:5]})
    model.fit(columns)
    table = Table(model.schema_.encode(columns), model.schema_)
    scores = score_clusters(model.labels_, flowers["species"].tolist())
    summary = summarise(model, table, scores=scores)
    for width in (40, 80, 120):
        text = as_text(summary, model.tree_, model.labels_, Style(width))
        drawn = text.split("\n\n")[1].splitlines()
        assert len(drawn) == model.n_clusters_
        assert max(map(display_width, drawn)) <= width
        clusters = text.split("clusters ")[1].split("\n\n")[0].splitlines()[1:]
        assert max(map(display_width, clusters)) <= width
    plain = as_text(summary, model.tree_, model.labels_, Style(80, unicode=False))
    assert plain.isascii()
    assert "+--" in plain
    assert summary.clusters[0].features[0].feature in plain


def test_text_dendrogram_by_hand():
    """((0, 1), (2, 3, 4)) with a node of three children, the larger side first."""
    tree = Tree([5, 5, 6, 6, 6, 7, 7, -1], 5, height=[0] * 5 + [0.2, 0.4, 1.0])
    assert draw_text(tree, style=Style(40)) == [
        "           ┌────────────────────── row 2",
        "┌──────────┼────────────────────── row 3",
        "│          └────────────────────── row 4",
        "└────────────────────┬──────────── row 0",
        "                     └──────────── row 1",
    ]
    assert draw_text(tree, style=Style(40, unicode=False))[1:4] == [
        "+----------+---------------------- row 3",
        "|          +---------------------- row 4",
        "+--------------------+------------ row 0",
    ]
    lines = draw_text(tree, np.array([1, 1, 0, 0, 0]), Style(40))
    assert [line.split(" ", 1)[1].strip() for line in lines] == ["0: 3 rows", "1: 2 rows"]
    assert lines[0].startswith("┌─")
    assert lines[1].startswith("└─")


def test_large_trees_are_cut_to_size():
    n = 200
    parent = [n + max(i - 1, 0) for i in range(n)] + [n + i + 1 for i in range(n - 2)] + [-1]
    tree = Tree.from_parent(parent, log_odds=[np.inf] * n + [-1.0] * (n - 1))
    assert len(draw_text(tree)) == 16
    lines = draw_text(tree, tree.cut(40))
    assert len(lines) == 16
    assert any("clusters, " in line for line in lines)


def test_names_cannot_steer_the_terminal():
    tree = Tree([2, 2, -1], 2, leaf_names=("\x1b[2Jbad\n", "日本語" * 20))
    lines = draw_text(tree, style=Style(40))
    assert "\x1b" not in "".join(lines)
    assert max(map(display_width, lines)) <= 40
    assert clipped("👩\u200d🔬 ok", 40) == "👩\u200d🔬 ok"


def test_text_table():
    assert text_table(["a", "b"], [["x", 1], ["long", 22]]) == "a      b\nx      1\nlong  22"


def test_what_json_cannot_hold_is_null(capsys):
    say_json("test", {"a": np.float64("inf"), "b": [np.nan, 1.5], "c": np.arange(2)})
    content = json.loads(capsys.readouterr().out)
    assert (content["a"], content["b"], content["c"]) == (None, [None, 1.5], [0, 1])


def test_style_follows_the_encoding(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    monkeypatch.setenv("COLUMNS", "63")
    assert style() == Style(63, unicode=False)


# -- scores ----------------------------------------------------------------------------------------


def test_scores_by_hand():
    scores = score_clusters([0, 0, 0, 1, 1, 2], ["a", "a", "b", "b", "b", None])
    assert (scores.n_rows, scores.n_classes) == (5, 2)
    assert scores.purity == 4 / 5
    # Pairs: 1 together in both of 10; expected (4 · 4) / 10, largest mean (4 + 4) / 2.
    assert scores.adjusted_rand_index == pytest.approx((2 - 1.6) / (4 - 1.6))
    tree = Tree([4, 4, 5, 5, 6, 6, -1], 4)
    assert score_clusters([0, 0, 1, 1], list("aabb"), tree=tree).dendrogram_purity == 1
    assert score_clusters([0, 0, 1, 1], ["a", None, "b", "b"], tree=tree).dendrogram_purity is None
    assert score_clusters([0, 0, 1, 1], list("abcd"), tree=tree).dendrogram_purity is None


# -- progress --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_the_bar_shows_and_leaves_no_trace(monkeypatch):
    monkeypatch.setattr(bar, "PATIENCE", 0.0)
    stream = Terminal()
    with bar.progress("counting", stream=stream):
        _progress.begin("counting", 1, after=3)
        _progress.follow(lambda: 1.0)
        give_up = time.monotonic() + 60
        while "25 %" not in stream.getvalue() and time.monotonic() < give_up:
            time.sleep(0.01)
    shown = stream.getvalue()
    assert " 25 %  about 0 s left" in shown or " 25 %  about 1 s left" in shown
    assert "(counting)" in shown
    assert shown.endswith("\r")
    assert shown.split("\r")[-2].strip() == ""


@pytest.mark.parametrize("quiet", [True, False])
def test_the_bar_is_silent(monkeypatch, quiet):
    monkeypatch.setattr(bar, "PATIENCE", 0.0)
    stream = Terminal() if quiet else io.StringIO()
    with bar.progress("counting", quiet=quiet, stream=stream) as meter:
        assert meter.label == "counting"
    assert stream.getvalue() == ""


def test_estimates():
    meter = _progress.Meter()
    drawn = bar._Bar(meter, Terminal())
    meter.begin("first", 2, after=6)
    assert "estimating" in drawn.line(10.0)
    meter.advance(1, 2)
    assert "about 1 min 10 s left" in drawn.line(10.0)
    meter.reserve(8)
    assert meter.fraction == 1 / 16
    assert "#" in bar._Bar(meter, io.TextIOWrapper(io.BytesIO(), encoding="ascii")).line(1.0)


@pytest.mark.parametrize(
    "estimator",
    [
        bhclust.BayesianHierarchicalClustering("bernoulli"),
        bhclust.BayesianHierarchicalClustering("diagonal_gaussian", learn_rows=20),
        bhclust.BayesianRoseTree(engine="numpy", learn=False, polish=True),
        bhclust.CoalescentClustering(),
        bhclust.CoalescentClustering(inference="smc-priorpost", n_particles=5),
    ],
)
def test_progress_never_falls_and_ends(estimator):
    """Watched from the search itself: the share of each step rises to one."""
    X = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(float)
    seen: list[tuple[str, float]] = []

    class Watch(_progress.Meter):
        def begin(self, *args, **extra):
            seen.append((self.label, self._share()))
            super().begin(*args, **extra)

    with _progress.metered(Watch()) as meter:
        estimator.fit(X)
    seen.append((meter.label, meter._share()))
    assert len(seen) > 1
    assert all(share == 1.0 for label, share in seen if label and "polish" not in label)
    assert 0.2 < meter.fraction <= 1


def test_nobody_looks_and_nothing_happens():
    assert _progress.callback() is None
    _progress.begin("x")
    _progress.follow(lambda: 1 / 0)
    _progress.reserve(3)
    with _progress.part(0, 1, "x"):
        pass
