"""Bad input gets one clear sentence, and leaves nothing behind."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

from bhclust import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    cli,
)
from bhclust.models import Bernoulli, Gaussian

NAN = np.nan
GOOD = np.array([[0.0, 1.5], [0.25, 1.25], [9.0, 4.0]])


def same(a, b):
    """Whether two attribute values are the same objects or equal ones."""
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))


def refuses(estimator, X, message, **arguments):
    """Check that a fit is refused by one sentence and that the estimator is as before."""
    before = copy.copy(vars(estimator))
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(X, **arguments)
    assert "\n" not in str(caught.value)
    after = vars(estimator)
    assert after.keys() == before.keys()
    assert all(same(after[name], before[name]) for name in before)


TABLES = {
    "no rows": ("auto", np.empty((0, 3)), r"0 sample\(s\)"),
    "no columns": ("auto", np.empty((3, 0)), r"0 feature\(s\)"),
    "no rows in a frame": ("auto", pd.DataFrame({"a": []}), r"0 sample\(s\)"),
    "an empty mapping": ("auto", {}, r"0 sample\(s\)"),
    "an empty list": ("auto", [], "2D array"),
    "nothing": ("auto", None, "2D array"),
    "one dimension": ("auto", [1.0, 2.0], "2D array"),
    "three dimensions": ("auto", np.zeros((2, 2, 2)), "dim 3"),
    "rows of different lengths": ("auto", [[1, 2], [3]], "not rectangular"),
    "columns of different lengths": ("auto", {"a": [1, 2], "b": [1]}, "column 'b' has 1 entries"),
    "infinity": ("auto", [[1.0, np.inf], [2.0, 3.0]], "column 'x1' is infinite in row 0"),
    "infinity in a frame": (
        "auto",
        pl.DataFrame({"a": [1.0, 2.0], "b": [-np.inf, 1.5]}),
        "column 'b' is infinite in row 0",
    ),
    "a string among numbers": ("auto", [[1.0, "a"], [2.0, 3.0]], "numbers and strings.*'a'"),
    "a string for a numeric model": ("gaussian", [[1.0, "a"], [2.0, 3.0]], "string 'a'"),
    "dates": ("auto", pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}), "'t' holds dates"),
    "complex numbers": ("auto", np.array([[1j, 2]]), "(?i)complex"),
    "negative counts": ("poisson", [[1, -2], [2, 3]], "column 'x1' is negative in row 0"),
    "no counts for Poisson": ("poisson", [[1, 2.5], [2, 3]], "'x1' is not a whole number in row 0"),
    "no counts for rows": ("multinomial", [[1, 2.5], [2, 3]], "'x1' is not a whole number"),
    "neither 0 nor 1": ("bernoulli", [[1, 2], [0, 1]], "'x1' is neither 0 nor 1 in row 0"),
    "a hole for Gaussian": ("gaussian", [[1.0, NAN], [2.0, 3.0]], "use DiagonalGaussian"),
    "half a row of counts": ("multinomial", [[1, NAN], [2, 3]], "row 0 misses 1 of 2 columns"),
    "names given twice": (
        "auto",
        pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]),
        "unique column names.*'a'",
    ),
    "too large": ("auto", [[1e200], [2e200]], r"beyond 1e\+140 in row 0.*unit"),
}


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
@pytest.mark.parametrize("name", TABLES)
def test_tables(kind, name):
    model, X, message = TABLES[name]
    refuses(kind(model), X, message)
    # A fitted estimator stays what it was.
    refuses(kind().fit(GOOD).set_params(model=model), X, message)


SETTINGS = [
    ({"model": "foo"}, "model must be one of 'auto', 'bernoulli'.*got 'foo'"),
    ({"model": 3}, "name of a model, or a ClusterModel object.*got 3"),
    ({"model": Bernoulli}, "ClusterModel object such as Bernoulli"),
    ({"mixing": "foo"}, "mixing must be one of .*got 'foo'"),
    ({"engine": "abacus"}, "engine must be one of .*got 'abacus'"),
    ({"n_clusters": 0}, "n_clusters must be a whole number, at least 1, got 0"),
    ({"n_clusters": 1.5}, "n_clusters must be a whole number"),
    ({"n_clusters": 9}, "n_clusters must be .* at most 3, got 9"),
    ({"column_kinds": "foo"}, "must be one of 'binary'.*got 'foo'"),
    ({"column_kinds": {"a": "real"}}, "declared for column 'a'.*'x0', 'x1'"),
    ({"model": Gaussian(), "column_kinds": "real"}, "column_kinds goes with model='auto'"),
    ({"model": Gaussian(dof=0.5)}, "dof must be above"),
    ({"model": Gaussian(strength=-1)}, "strength must be positive"),
]


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
@pytest.mark.parametrize(("settings", "message"), SETTINGS)
def test_settings(kind, settings, message):
    refuses(kind(**settings), GOOD, message)


@pytest.mark.parametrize("alpha", [0, -1, NAN, np.inf, "much", None])
@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_alpha(kind, alpha):
    refuses(kind(mixing="dirichlet_process", alpha=alpha), GOOD, "alpha must be a .*number, got")


@pytest.mark.parametrize("gamma", [0, 1, -0.5, 2, NAN, "half"])
@pytest.mark.parametrize(
    "estimator",
    [
        BayesianHierarchicalClustering(mixing="constant"),
        BayesianRoseTree(mixing="constant"),
        BayesianRoseTree(),
    ],
)
def test_gamma(estimator, gamma):
    refuses(copy.deepcopy(estimator).set_params(gamma=gamma), GOOD, "gamma must .*, got")


def test_a_binary_tree_has_no_rose_prior():
    refuses(BayesianHierarchicalClustering(mixing="rose"), GOOD, "mixing must be one of")


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
@pytest.mark.parametrize(
    "X",
    [
        pytest.param([[1.0, NAN], [2.0, NAN], [9.0, NAN]], id="an all-missing column"),
        pytest.param([[1.0, 2.0], [NAN, NAN], [9.0, 3.0]], id="an all-missing row"),
        pytest.param([[NAN, NAN], [NAN, NAN]], id="nothing but missing values"),
        pytest.param([[0.1, 2.0], [0.1, 3.0], [0.1, 9.0]], id="a constant column"),
        pytest.param([[1.5, 2.5], [1.5, 2.5], [1.5, 2.5]], id="identical rows"),
        pytest.param([[0, 0], [0, 0]], id="all zero"),
        pytest.param([["a"], ["a"], [None]], id="one category"),
        pytest.param([[7], [7], [7]], id="equal counts"),
    ],
)
def test_poor_tables_are_fine(kind, X):
    fitted = kind().fit(X)
    fitted.tree_.validate()
    assert np.isfinite(fitted.log_evidence_)
    assert np.isfinite(fitted.score_samples(X)).all()
    assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_an_empty_column_and_an_empty_row_say_nothing(kind):
    X = np.array([[0.0], [0.25], [9.0], [9.5]])
    plain = kind("diagonal_gaussian", learn=False).fit(X)
    given = {"strength": plain.model_.strength[0], "rate": plain.model_.rate[0]}
    wider = kind(type(plain.model_)(**given), learn=False)
    wider.fit(np.column_stack([X, np.full(4, NAN)]))
    assert np.array_equal(wider.labels_, plain.labels_)
    assert wider.log_evidence_ == pytest.approx(plain.log_evidence_)


def test_prediction():
    fitted = BayesianHierarchicalClustering().fit(pd.DataFrame(GOOD, columns=["a", "b"]))
    good = pd.DataFrame(GOOD, columns=["a", "b"])
    for method in ("predict", "predict_proba", "score_samples", "score", "impute"):
        call = getattr(fitted, method)
        with pytest.raises(ValueError, match="feature names should match"):
            call(good[["b", "a"]])
        with pytest.raises(ValueError, match=r"(?i)0 sample"):
            call(good[:0])
    plain = BayesianHierarchicalClustering().fit(GOOD)
    with pytest.raises(ValueError, match=r"3 features, but BayesianHier.* is expecting 2"):
        plain.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match="is infinite"):
        plain.predict([[1.0, np.inf]])
    with pytest.raises(ValueError, match="rows are numbered"):
        plain.co_clustering(0, 3)
    with pytest.raises(ValueError, match="label must be"):
        plain.explain_cluster(9)
    with pytest.raises(ValueError, match="top must be"):
        plain.explain(top=0)


@pytest.mark.parametrize(
    "kind", [BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering]
)
def test_held_out_entries_of_other_rows(kind):
    fitted = kind(random_state=0).fit(np.vstack([GOOD, [[0.5, NAN]]]))
    with pytest.raises(ValueError, match=r"pass the 4 fitted rows in the same order.* got 3 rows"):
        fitted.heldout_log_likelihood(GOOD)


def test_a_lineage_of_huge_numbers():
    refuses(CoalescentClustering(), [[0.0], [1e200]], "column .x0. is beyond .* change the unit")
    fitted = CoalescentClustering().fit(pd.DataFrame(GOOD * 1e-60, columns=["a", "b"]))
    with pytest.raises(ValueError, match="column 'a' is beyond"):
        fitted.predict(pd.DataFrame({"a": [1e200], "b": [0.0]}))
    # So far away, in units of these columns, that its density is zero wherever it hangs.
    far = pd.DataFrame({"a": [1e139], "b": [0.0]})
    assert fitted.score_samples(far)[0] == -np.inf
    assert fitted.predict_proba(far).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, CoalescentClustering])
def test_a_page_of_huge_numbers(kind, tmp_path):
    fitted = kind(random_state=0).fit(GOOD * 1e100)
    fitted.to_html(tmp_path / "page.html")
    empty = kind(random_state=0).fit([[NAN, NAN], [NAN, NAN]])
    empty.to_html(tmp_path / "empty.html")
    assert (tmp_path / "empty.html").exists()


def test_whole_numbers_beyond_64_bits_stay_what_they_are():
    frame = pd.DataFrame({"n": [1, 2, 3, 40], "x": [0.5, 0.25, 9.5, 9.75]})
    fitted = BayesianHierarchicalClustering("diagonal_gaussian").fit(frame)
    given = pd.DataFrame({"n": [1e30, 2.0], "x": [NAN, 0.5]})
    assert fitted.impute(given)["n"].tolist() == [1e30, 2.0]


def test_a_category_that_was_not_seen_is_an_error():
    table = [["red", 1.0], ["blue", 2.0], ["red", 3.0]]
    fitted = BayesianHierarchicalClustering().fit(table)
    message = r"category 'green' in row 0.*declare it as a category"
    with pytest.raises(ValueError, match=message):
        fitted.predict([["green", 1.0]])
    assert len(fitted.predict([[None, 1.0]])) == 1
    # A declared category is a legal value with prior mass, seen or not.
    colours = pd.Categorical(["red", "blue", "red"], categories=["red", "blue", "green"])
    declared = BayesianHierarchicalClustering().fit(pd.DataFrame({"colour": colours}))
    new = pd.DataFrame({"colour": pd.Categorical(["green"], categories=["red", "blue", "green"])})
    assert np.isfinite(declared.score_samples(new)).all()


@pytest.mark.parametrize("command", ["fit", "demo"])
def test_an_unwritable_folder(tmp_path, command):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1.5,2\n2.5,3\n")
    (tmp_path / "file").write_text("kept")
    arguments = [command, str(table)] if command == "fit" else [command]
    for out in (tmp_path / "file", tmp_path / "file" / "inside", "/proc/absent/inside"):
        result = CliRunner().invoke(cli.main, [*arguments, "--out", str(out)])
        assert result.exit_code == 1
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1
        assert str(out) in lines[0]
    assert (tmp_path / "file").read_text() == "kept"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "table.csv"]
