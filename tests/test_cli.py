"""The command line: what it writes, what it says, and how it fails."""

from __future__ import annotations

import csv
import os
import signal
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import adjusted_rand_score

import bhclust
from bhclust._validation import BhclustError
from bhclust.cli import fitting, main
from bhclust.csvtable import read_csv
from bhclust.datasets import load_example
from bhclust.report import RESULT_FILES, dendrogram, write_result
from bhclust.report.summary import TellingFeature, contrast, describe_feature, summarise
from bhclust.tables import Column, read_table
from bhclust.tree import Tree

GUESTS = """name,age,visits,member,city
Ada,31.5,2,true,Bern
Bob,?,0,false,Rome
Cy,64.0,9,true,
Dee,29.5,1,NA,Bern
"""


class Record(NamedTuple):
    feature: str
    log_bayes_factor: float


class StubEstimator:
    """Sets the last row apart from the others, whatever they hold."""

    def __init__(self, **settings):
        self.settings = settings

    def fit(self, X):
        table = read_table(X, kinds=self.settings.get("column_kinds"))
        n = table.shape[0]
        self.schema_ = table.schema
        self.labels_ = (np.arange(n) == n - 1).astype(int) if n > 1 else np.zeros(1, int)
        self.n_clusters_ = min(n, 2)
        self.model_ = Record("stub", 0.0)
        self.log_evidence_ = -12.345
        parent = [n + max(i - 1, 0) for i in range(n)] + [n + i + 1 for i in range(n - 2)] + [-1]
        self.tree_ = Tree.from_parent(parent[: 2 * n - 1], leaf_names=table.row_names)
        return self

    def explain_cluster(self, label, top):
        names = self.schema_.names
        return [Record(name, 3.0 - j) for j, name in enumerate(names)][:top]

    def save(self, path):
        Path(path).write_bytes(b"model")


@pytest.fixture
def stub(monkeypatch):
    made = []

    def make(method, **settings):
        made.append(StubEstimator(method=method, **settings))
        return made[-1]

    monkeypatch.setattr(fitting, "make_estimator", make)
    return made


def run(*args, stdin=None):
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def write(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_fails(result, status, message):
    assert result.exit_code == status, result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("bhclust: ")
    assert message in result.stderr
    assert result.stdout == ""


# -- reading delimited text ------------------------------------------------------------------------


def test_csv_columns_are_typed(tmp_path):
    table = read_csv(write(tmp_path, GUESTS), id_column="name")
    assert dict(table) == {
        "age": [31.5, None, 64.0, 29.5],
        "visits": [2, 0, 9, 1],
        "member": [True, False, True, None],
        "city": ["Bern", "Rome", None, "Bern"],
    }
    assert table.row_names == ("Ada", "Bob", "Cy", "Dee")
    assert read_table(table).schema.kinds == ("real", "count", "binary", "categorical")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(tmp_path, delimiter):
    text = GUESTS.replace(",", delimiter)
    assert list(read_csv(write(tmp_path, text))) == ["name", "age", "visits", "member", "city"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("\ufeffa,b\r\n1,x\r\n\r\n2,y\r\n", {"a": [1, 2], "b": ["x", "y"]}),
        ('a;b\n"1, 2";3\n"x;y";4\n', {"a": ["1, 2", "x;y"], "b": [3, 4]}),
        ("a\n1\n\n2\n", {"a": [1, 2]}),
        (" a , b \n 1 , NaN \n null , None \n", {"a": [1, None], "b": [None, None]}),
        ("a,b\n007,1e3\n12,-.5\n", {"a": ["007", "12"], "b": [1000.0, -0.5]}),
        ("a,b\nyes,TRUE\nno,False\n", {"a": ["yes", "no"], "b": [True, False]}),
        ('a,b\n"line\nbreak",1\nx,2\n', {"a": ["line\nbreak", "x"], "b": [1, 2]}),
        ("zoë,名\n1,é\n2,ü\n", {"zoë": [1, 2], "名": ["é", "ü"]}),
        ("\n\n\na,b\n1,2", {"a": [1], "b": [2]}),
    ],
)
def test_csv_details(tmp_path, text, columns):
    assert dict(read_csv(write(tmp_path, text))) == columns


def test_unnamed_first_column_names_the_rows(tmp_path):
    path = write(tmp_path, ",a,b\np,1,x\nq,2,y\n")
    table = read_csv(path)
    assert (list(table), table.row_names) == (["a", "b"], ("p", "q"))
    table = read_csv(path, id_column="b")
    assert (list(table), table.row_names) == (["a"], ("x", "y"))


def test_numbers_and_text_in_one_column(tmp_path):
    path = write(tmp_path, "a,b\n1,2\nn/a,3\n")
    with pytest.raises(BhclustError, match=r"column 'a' holds numbers, but line 3 holds 'n/a'"):
        read_csv(path)
    assert read_csv(path, text_columns=["a"])["a"] == ["1", "n/a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b" \n \n", "is empty"),
        (b"a,b\n", "has a header but no rows"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: found 3 field(s) where the header has 2"),
        (b"a,a\n1,2\n", "repeats 'a'"),
        (b"a,,b\n1,2,3\n", "column 2 has no name"),
        (b"a,b\n1,caf\xe9\n", "is not UTF-8 text (line 2)"),
        ("a,b\n1,2\n".encode("utf-16"), "is not UTF-8 text (line 1)"),
        (b'a,b\n1,2\n"1,2\n3,4\n', "line 3: unexpected end of data; look for a quote"),
        (b'a,b\n1,"' + b"x" * 200_000 + b"\n", "line 2: field larger than"),
        (b'a,b\n"x",2\n"x"y,2\n', "line 3: ',' expected after '\"'; look for a quote"),
        (b"a;b\n1,5;2\n2,5;3\n", "column 'a' has a decimal comma in line 2 ('1,5')"),
        (b"a,b\n1,2\ninf,3\n", "column 'a' is infinite in row 1"),
    ],
)
def test_bad_tables(tmp_path, stub, text, message):
    path = write(tmp_path, text)
    assert_fails(run("fit", path, "--out", tmp_path / "out"), 1, message)
    assert entries(tmp_path) == ["table.csv"]


def test_missing_and_unreadable_files(tmp_path, stub):
    out = tmp_path / "out"
    assert_fails(run("fit", tmp_path / "no.csv", "--out", out), 1, "no.csv cannot be read: No such")
    assert_fails(run("fit", tmp_path, "--out", out), 1, "cannot be read: Is a directory")


# -- fit -------------------------------------------------------------------------------------------


def test_fit_writes_everything(tmp_path, stub):
    path = write(tmp_path, GUESTS)
    out = tmp_path / "deep" / "out"
    result = run("fit", path, "--out", out, "--id-column", "name")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "rows          4" in result.stdout
    assert "4 (1 real, 1 count, 1 binary, 1 categorical), 3 missing" in result.stdout
    assert "log evidence  -12.35" in result.stdout
    assert "age 47.75 (others 29.5)" in result.stdout
    assert entries(out) == sorted((*RESULT_FILES, "table.npz"))
    assert entries(tmp_path) == ["deep", "table.csv"]
    with (out / "labels.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["row", "cluster"],
            ["Ada", "0"],
            ["Bob", "0"],
            ["Cy", "0"],
            ["Dee", "1"],
        ]
    assert "Ada" in (out / "tree.nwk").read_text()


def test_fit_reads_standard_input(tmp_path, stub):
    result = run("fit", "-", "--out", tmp_path / "out", "--quiet", stdin=GUESTS)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "standard input" in (tmp_path / "out" / "report.html").read_text()


def test_options_reach_the_estimator(tmp_path, stub):
    args = ["--method", "brt", "--model", "bernoulli", "--clusters", 2, "--alpha", 0.5]
    args += ["--gamma", 0.25, "--kind", "visits=categorical", "--kind", "age=real"]
    args += ["--ignore", "name", "--ignore", "city", "--delimiter", ","]
    result = run("fit", write(tmp_path, GUESTS), "--out", tmp_path / "out", *args)
    assert result.exit_code == 0, result.output
    (estimator,) = stub
    assert estimator.settings == {
        "method": "brt",
        "model": "bernoulli",
        "clusters": 2,
        "alpha": 0.5,
        "gamma": 0.25,
        "column_kinds": {"visits": "categorical", "age": "real"},
    }
    assert estimator.schema_.names == ("age", "visits", "member")
    assert estimator.schema_.columns[1].categories == ("0", "1", "2", "9")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Missing argument 'TABLE'"),
        (["t.csv"], "Missing option '-o' / '--out'. Try 'bhclust fit --help'"),
        (["t.csv", "--out", "o", "--kind", "age"], "not of the form column=kind"),
        (["t.csv", "--out", "o", "--kind", "age=number"], "not of the form column=kind"),
        (["t.csv", "--out", "o", "--clusters", "0"], "--clusters"),
        (["t.csv", "--out", "o", "--clusters", "two"], "--clusters"),
        (["t.csv", "--out", "o", "--method", "ward"], "--method"),
        (["t.csv", "--out", "o", "--delimiter", "::"], "--delimiter"),
        (["t.csv", "--out", "o", "--nonsense"], "No such option"),
    ],
)
def test_usage_errors(args, message):
    assert_fails(run("fit", *args), 2, message)


def test_unknown_command_and_no_command():
    assert_fails(run("cluster"), 2, "No such command 'cluster'")
    assert_fails(run(), 2, "Missing command")


def test_wrong_column_names(tmp_path, stub):
    path = write(tmp_path, GUESTS)
    for option, value in (("--ignore", "x"), ("--id-column", "x"), ("--kind", "x=categorical")):
        result = run("fit", path, "--out", tmp_path / "out", option, value)
        assert_fails(result, 1, "has no column 'x'; its columns are 'name', 'age'")
    result = run("fit", path, "--out", tmp_path / "out", "--kind", "x=real")
    assert_fails(result, 1, "column 'x', which the table does not have")
    result = run("fit", write(tmp_path, "a\n1\n"), "--out", tmp_path / "out", "--ignore", "a")
    assert_fails(result, 1, "no column left")


# -- the result folder -----------------------------------------------------------------------------


def test_existing_folders(tmp_path, stub):
    path = write(tmp_path, GUESTS)
    out = tmp_path / "out"
    out.mkdir()
    assert run("fit", path, "--out", out).exit_code == 0
    before = (out / "labels.csv").read_text()
    assert run("fit", path, "--out", out, "--id-column", "name").exit_code == 0
    assert (out / "labels.csv").read_text() != before
    (out / "notes.txt").write_text("mine")
    assert_fails(run("fit", path, "--out", out), 1, "already holds other files ('notes.txt')")
    assert run("fit", path, "--out", out, "--force").exit_code == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert entries(tmp_path) == ["out", "table.csv"]
    assert_fails(run("fit", path, "--out", path), 1, "is a file, not a folder")
    assert_fails(run("fit", path, "--out", path / "x"), 1, "cannot be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_unwritable_folder(tmp_path, stub):
    path = write(tmp_path, GUESTS)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    for out in (locked, locked / "out"):
        assert_fails(run("fit", path, "--out", out), 1, "cannot be written: permission denied")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 1, "cannot be written: No space left on device"),
        (MemoryError(), 1, "not enough memory"),
        (BhclustError("the model\ndoes not fit."), 1, "the model does not fit."),
    ],
)
@pytest.mark.parametrize("existing", [False, True])
def test_nothing_half_written_is_left(
    tmp_path, stub, monkeypatch, error, status, message, existing
):
    def save(self, path):
        Path(path).write_bytes(b"half")
        raise error

    path = write(tmp_path, GUESTS)
    out = tmp_path / "out"
    if existing:
        assert run("fit", path, "--out", out).exit_code == 0
    monkeypatch.setattr(StubEstimator, "save", save)
    assert_fails(run("fit", path, "--out", out, "--id-column", "name"), status, message)
    assert entries(tmp_path) == (["out", "table.csv"] if existing else ["table.csv"])
    if existing:
        assert (out / "model.npz").read_bytes() == b"model"
        assert "Ada" not in (out / "labels.csv").read_text()


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [(KeyboardInterrupt(), 130, "bhclust: interrupted\n"), (SystemExit(143), 143, "")],
)
def test_a_signal_that_comes_up_as_another_error(
    tmp_path, stub, monkeypatch, raised, status, words
):
    def fit(self, X):
        try:
            raise raised
        except BaseException as interruption:
            raise SystemError("returned a result with an exception set") from interruption

    monkeypatch.setattr(StubEstimator, "fit", fit)
    result = run("fit", write(tmp_path, GUESTS), "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", words)
    assert entries(tmp_path) == ["table.csv"]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_is_dropped_on_its_way_up(tmp_path, stub, monkeypatch, number, status):
    """Errors do not come up through what C calls back, and compilers call back."""

    class Compiler:
        def __del__(self):
            os.kill(os.getpid(), number)

    def fit(self, X):
        compiler = Compiler()
        del compiler
        time.sleep(20)

    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    monkeypatch.setattr(StubEstimator, "fit", fit)
    result = run("fit", write(tmp_path, GUESTS), "--out", tmp_path / "out")
    assert result.exit_code == status
    assert "Traceback" not in result.output + result.stderr
    assert entries(tmp_path) == ["table.csv"]
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


@pytest.mark.skipif(not hasattr(os, "kill") or os.name != "posix", reason="signals of POSIX")
def test_an_interruption_waits_until_all_files_are_in_place(tmp_path, stub, monkeypatch):
    path, out = write(tmp_path, GUESTS), tmp_path / "out"
    assert run("fit", path, "--out", out).exit_code == 0
    replace, moved = Path.replace, []

    def interrupted(self, target):
        moved.append(self.name)
        if len(moved) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    assert_fails(run("fit", path, "--out", out, "--id-column", "name"), 130, "interrupted")
    assert sorted(moved) == sorted((*RESULT_FILES, "table.npz"))
    assert "Ada" in (out / "labels.csv").read_text()
    assert "Ada" in (out / "report.html").read_text()
    assert entries(tmp_path) == ["out", "table.csv"]


# -- the report ------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    VOID = frozenset({"meta"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.text.extend(str(value) for _, value in attributes)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_report_escapes_every_string(tmp_path, stub):
    nasty = '<script>alert("x")</script>'
    quoted = nasty.replace('"', '""')
    text = f'name,"{quoted}",$style\n"{quoted}","{quoted}",1.5\n&amp;,b,2.5\n'
    path = write(tmp_path, text, name="<b>.csv")
    result = run("fit", path, "--out", tmp_path / "out", "--id-column", "name")
    assert result.exit_code == 0, result.output
    outline = Outline()
    outline.feed((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert outline.open == []
    assert {"svg", "table", "style"} <= set(outline.seen)
    assert not {"script", "b", "link", "img"} & set(outline.seen)
    shown = "".join(outline.text)
    assert nasty in shown
    assert "&amp;" in shown
    assert "http" not in shown


@pytest.mark.parametrize("n", [2, 40, 3000])
def test_dendrogram_layout(n):
    parent = [n + max(i - 1, 0) for i in range(n)] + [n + i + 1 for i in range(n - 2)] + [-1]
    tree = Tree.from_parent(parent)
    place = dendrogram.layout(tree)
    tips = place.is_tip.sum()
    assert tips == min(n, dendrogram.MAX_TIPS)
    assert sorted(place.y[place.is_tip]) == list(range(tips))
    assert sum(tree.size[place.nodes[place.is_tip]]) == n
    inner = place.parent >= 0
    assert (place.parent[inner] > np.flatnonzero(inner)).all()
    assert (place.x[place.parent[inner]] > place.x[inner]).all()
    svg = dendrogram.draw(tree, [0] * n, [str(i) for i in range(n)])
    assert svg.count("<text") == tips
    assert svg.count("<path") == len(place.nodes) - 1


def test_joins_between_clusters_get_more_room():
    # Two clusters of six leaves in chains, joined at the root.
    parent = [12, 12, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21]
    parent += [13, 14, 15, 16, 22, 18, 19, 20, 21, 22, -1]
    tree = Tree.from_parent(parent)
    plain = dendrogram.layout(tree)
    wide = dendrogram.layout(tree, labels=[0] * 6 + [1] * 6)
    assert np.array_equal(np.argsort(plain.x, kind="stable"), np.argsort(wide.x, kind="stable"))
    below = np.sort(wide.x)[-2]
    assert below == pytest.approx(0.6)
    assert np.sort(plain.x)[-2] == pytest.approx(10 / 11)


def test_dendrogram_of_a_forest_a_star_and_one_leaf():
    for parent in ([-1], [-1, -1], [3, 3, -1, -1], [4, 4, 4, 4, -1]):
        tree = Tree.from_parent(parent)
        svg = dendrogram.draw(tree, list(range(tree.n_leaves)), ["a" * 99] * tree.n_leaves)
        assert svg.count("<text") == tree.n_leaves
        assert "a" * 27 + "…" in svg


def test_contrasts():
    inside = np.array([True, True, False, False])
    values = np.array([1.0, 3.0, 5.0, np.nan])
    assert contrast(values, inside, Column("x", "real")) == ("2", "5")
    assert contrast(values, ~inside & (values > 9), Column("x", "count")) == ("no value", "3")
    codes = np.array([1.0, 1.0, 0.0, 1.0])
    assert contrast(codes, inside, Column("x", "categorical", ("p", "q"))) == ("q 100 %", "50 %")
    assert contrast(codes, inside, Column("x", "binary")) == ("100 %", "50 %")
    nothing = np.full(4, np.nan)
    assert contrast(nothing, inside, Column("x", "categorical")) == ("no value", "no value")
    assert describe_feature(TellingFeature("all features", 1.0, "", "")) == "all features"


def test_features_that_speak_against_a_cluster_are_not_told():
    X = [[1.5, 0, 2, 1], [2.5, 1, 4, 0]]
    estimator = StubEstimator().fit(X)
    summary = summarise(estimator, read_table(X), top=4)
    assert [feature.feature for feature in summary.clusters[0].features] == ["x0", "x1", "x2"]


def test_write_result_names_rows_by_number(tmp_path):
    X = [[1.5], [2.5], [3.5]]
    estimator = StubEstimator().fit(X)
    write_result(estimator, summarise(estimator, read_table(X)), tmp_path / "out")
    assert (tmp_path / "out" / "labels.csv").read_text() == "row,cluster\n0,0\n1,0\n2,1\n"


# -- the real thing --------------------------------------------------------------------------------


def test_version_and_help():
    assert run("--version").stdout == f"bhclust, version {bhclust.__version__}\n"
    for args in (["--help"], ["fit", "-h"], ["demo", "--help"]):
        result = run(*args)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "Usage:" in result.stdout


def test_demo_and_what_the_documentation_shows_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    out = tmp_path / "demo"
    result = run("demo", "--out", out)
    assert result.exit_code == 0, result.output
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text("utf-8")
    shown = page.split("```\nrows")[1].split("```")[0]
    assert shown.strip() in result.stdout
    assert entries(out) == sorted((*RESULT_FILES, "table.npz"))
    again = bhclust.load(out / "model.npz")
    with (out / "labels.csv").open(newline="") as file:
        labels = [int(row["cluster"]) for row in csv.DictReader(file)]
    assert again.labels_.tolist() == labels
    assert adjusted_rand_score(labels, load_example("mixed").y) > 0.8
    assert Tree.from_newick((out / "tree.nwk").read_text()).n_leaves == 200


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n",
        "a,b\n,\n,NA\n",
        "a,b,c\n1,x,\n2,y,\n,,\n",
        "a,b\n0,1\n0,1\n0,1\n",
    ],
)
@pytest.mark.parametrize("method", ["bhc", "brt"])
def test_tables_with_little_in_them(tmp_path, text, method):
    result = run("fit", write(tmp_path, text), "--out", tmp_path / "out", "--method", method)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "clusters" in result.stdout
