"""The scripts that reproduce the papers: what they share, and the searches of their own."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, Tree, posterior
from bhclust._fixed_tree import evaluate
from bhclust.agglomerate import score_tree
from bhclust.mixing import Constant, Rose
from bhclust.models import Bernoulli

FOLDER = Path(__file__).parents[1] / "benchmarks" / "papers"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def runner(monkeypatch, tmp_path):
    import runner as module

    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return module


def options_of(runner, *words):
    return runner.make_parser("x").parse_args(list(words))


def test_a_killed_run_goes_on_where_it_stopped(runner):
    units = [{"draw": k, "seed": 1} for k in range(5)]
    seen = []

    def compute(unit):
        if unit["draw"] == 3 and len(seen) < 4:
            seen.append("killed")
            raise KeyboardInterrupt
        seen.append(unit["draw"])
        return {"square": unit["draw"] ** 2}

    with pytest.raises(KeyboardInterrupt):
        runner.compute_all("squares", units, compute, options_of(runner))
    records = runner.compute_all("squares", units, compute, options_of(runner))
    assert seen == [0, 1, 2, "killed", 3, 4]
    assert [record["result"]["square"] for record in records] == [0, 1, 4, 9, 16]
    assert all(record["versions"] == runner.versions() for record in records)


def test_a_line_that_was_cut_off_is_computed_again(runner):
    units = [{"draw": 0}, {"draw": 1}]
    runner.compute_all("cut", units, lambda unit: {"value": 1}, options_of(runner))
    path = runner.CACHE / "cut.jsonl"
    path.write_text(path.read_text("utf-8")[:-20], "utf-8")  # the last record lost its end
    asked = []

    def compute(unit):
        asked.append(unit)
        return {"value": 2}

    records = runner.compute_all("cut", units, compute, options_of(runner))
    assert asked == [{"draw": 1}]
    assert [record["result"]["value"] for record in records] == [1, 2]
    again = runner.compute_all("cut", units, pytest.fail, options_of(runner))
    assert [record["result"]["value"] for record in again] == [1, 2]


def test_fresh_forgets_and_quick_keeps_nothing(runner):
    units = [{"draw": 0}]
    runner.compute_all("fresh", units, lambda unit: {"value": 1}, options_of(runner))
    fresh = options_of(runner, "--fresh")
    (record,) = runner.compute_all("fresh", units, lambda unit: {"value": 2}, fresh)
    assert record["result"]["value"] == 2
    (record,) = runner.compute_all("fresh", units, pytest.fail, options_of(runner))
    assert record["result"]["value"] == 2
    runner.compute_all("quick", units, lambda unit: {}, options_of(runner, "--quick"))
    assert not (runner.CACHE / "quick.jsonl").exists()


def test_results_of_another_version_are_named(runner, monkeypatch, capsys):
    units = [{"draw": 0}]
    runner.compute_all("old", units, lambda unit: {}, options_of(runner))
    monkeypatch.setattr(runner, "versions", lambda: {"bhclust": "another"})
    runner.compute_all("old", units, pytest.fail, options_of(runner))
    assert "1 of 1 units are of another version" in capsys.readouterr().err


def test_stale_units_are_computed_anew_and_a_killed_run_goes_on_there_too(runner, monkeypatch):
    units = [{"draw": k} for k in range(3)]
    runner.compute_all("stale", units, lambda unit: {"value": 1}, options_of(runner))
    monkeypatch.setattr(runner, "versions", lambda: {"source": "later"})
    asked = []

    def compute(unit):
        if len(asked) == 1:
            asked.append("killed")
            raise KeyboardInterrupt
        asked.append(unit["draw"])
        return {"value": 2}

    stale = options_of(runner, "--stale")
    with pytest.raises(KeyboardInterrupt):
        runner.compute_all("stale", units, compute, stale)
    records = runner.compute_all("stale", units, compute, stale)
    assert asked == [0, "killed", 1, 2]
    assert [record["result"]["value"] for record in records] == [2, 2, 2]
    runner.compute_all("stale", units, pytest.fail, stale)


@pytest.mark.parametrize(("later", "same", "gap"), [(1.0, True, 0.0), (1.25, False, 0.2)])
def test_older_units_are_checked_against_the_present_version(
    runner, monkeypatch, tmp_path, later, same, gap
):
    import page_versions  # before its folder is another one

    units = [{"draw": k} for k in range(5)]
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    runner.compute_all("old", units, lambda unit: {"a": [1.0], "seconds": 1}, options_of(runner))
    monkeypatch.setattr(runner, "versions", lambda: {"source": "later"})
    check = options_of(runner, "--check", "2")
    records = runner.compute_all("old", units, lambda unit: {"a": [later], "seconds": 7}, check)
    assert [record["result"]["a"] for record in records] == [[1.0]] * 5  # nothing is replaced
    noted = json.loads((tmp_path / "checks.json").read_text("utf-8"))["old"]
    assert noted["versions"] == {"source": "later"}
    assert list(noted["units"].values()) == pytest.approx([gap, gap])
    assert [json.loads(key)["draw"] for key in noted["units"]] == [0, 4]
    text = page_versions.checked(noted)
    assert ("2 units again with later: the same" in text) == same


def test_results_differ_where_their_shape_does(runner):
    assert runner.largest_difference({"a": 1}, {"b": 1}) == np.inf
    assert runner.largest_difference([1], [1, 2]) == np.inf
    assert runner.largest_difference({"a": None}, {"a": 1.0}) == np.inf
    assert runner.largest_difference({"a": [0.0, "x"]}, {"a": [0.0, "x"]}) == 0


def test_a_result_that_cannot_be_written_leaves_the_old_one(runner, tmp_path):
    path = tmp_path / "result.json"
    runner.write_json(path, {"value": np.float64(1.5)})
    with pytest.raises(TypeError):
        runner.write_json(path, {"value": object()})
    assert json.loads(path.read_text("utf-8")) == {"value": 1.5}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


# -- Figure 1.7 ------------------------------------------------------------------------------------


def all_rose_trees(rows):
    """Yield every rose tree over the rows as nested tuples, by listing partitions."""
    if len(rows) == 1:
        yield rows[0]
        return
    for blocks in partitions(rows):
        if len(blocks) > 1:
            yield from (tuple(parts) for parts in product_of_trees(blocks))


def product_of_trees(blocks):
    if not blocks:
        yield []
        return
    for tree in all_rose_trees(blocks[0]):
        for rest in product_of_trees(blocks[1:]):
            yield [tree, *rest]


def partitions(rows):
    """Yield all partitions of a list."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for count in range(len(rest) + 1):
        for others in combinations(rest, count):
            left = [row for row in rest if row not in others]
            for blocks in partitions(left):
                yield [[first, *others], *blocks]


def parents_of(tree, n):
    """Return the parent array of a nested tree."""
    parent = [-1] * n

    def place(node):
        if isinstance(node, int):
            return node
        children = [place(part) for part in node]
        parent.append(-1)
        for child in children:
            parent[child] = len(parent) - 1
        return len(parent) - 1

    place(tree)
    return parent


@pytest.mark.parametrize("mixing", [Rose(0.3), Rose(0.7), Constant(0.4)])
def test_the_search_over_subsets_finds_the_best_of_all_rose_trees(mixing):
    import rose_figure_1_7 as figure

    rng = np.random.default_rng(3)
    n = 5
    for _ in range(3):
        X = figure.draw(n, 0.5, 0.5, rng)[:, :8]
        model = Bernoulli(a=0.5, b=0.5).resolve(X)
        stats = model.suffstats(X)
        every = [parents_of(tree, n) for tree in all_rose_trees(list(range(n)))]
        assert len(every) == figure.n_trees(n) == 236
        scores = [score_tree(p, model, stats, mixing).log_evidence[-1] for p in every]
        found = figure.best_log_likelihood(figure.log_f_of_subsets(model, X), mixing, n)
        assert found == pytest.approx(max(scores), abs=1e-10)


def test_random_rose_trees_are_uniform():
    import rose_figure_1_7 as figure

    rng = np.random.default_rng(0)

    def normal(tree):
        return tree if isinstance(tree, int) else tuple(sorted(map(normal, tree), key=str))

    counts: dict = {}
    draws = 5200
    for _ in range(draws):
        tree = normal(figure.random_tree([0, 1, 2, 3], rng))
        counts[tree] = counts.get(tree, 0) + 1
    assert len(counts) == figure.n_trees(4) == 26
    expected = draws / 26
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 60  # 25 degrees of freedom: exceeded once in ten thousand


# -- the rest --------------------------------------------------------------------------------------


def test_the_purity_of_pairs_has_the_exact_purity_as_its_mean():
    import yang_qin

    from bhclust.metrics import dendrogram_purity

    tree = Tree([4, 4, 5, 6, 5, 6, -1], n_leaves=4)
    y = np.array([0, 1, 0, 1])
    found = yang_qin.purity_of_pairs(tree, y, 2000, 0)
    assert found == pytest.approx(dendrogram_purity(tree, y.tolist()), abs=0.02)


def test_information_is_that_of_the_joint_table():
    import bhc_figure_6
    from sklearn.metrics import mutual_info_score

    rng = np.random.default_rng(0)
    X = (rng.random((60, 5)) < 0.4) * 1.0
    X[:, 4] = 0.0
    y = rng.integers(3, size=60)
    expected = [mutual_info_score(column, y) for column in X.T]
    assert bhc_figure_6.information(X, y) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["single", "complete", "average"])
def test_linkage_with_ties_to_the_first_pair_is_the_usual_one_without_ties(method):
    import bhc_table_1_readings as readings
    from scipy.cluster.hierarchy import linkage

    from bhclust.metrics import dendrogram_purity

    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 3)), rng.integers(4, size=40).tolist()
    expected = Tree.from_linkage(linkage(X, method))
    found = readings.first_pair_linkage(X, method)
    assert dendrogram_purity(found, y) == pytest.approx(dendrogram_purity(expected, y), abs=1e-12)
    sets = [{frozenset(t.leaves(k).tolist()) for k in range(40, 79)} for t in (found, expected)]
    assert sets[0] == sets[1]


def test_turned_rows_keep_their_distances(monkeypatch):
    import beyond
    from scipy.spatial.distance import pdist

    X = np.random.default_rng(0).normal(size=(7, 30))
    assert beyond.turned(X) is X  # a small table stays as it is
    monkeypatch.setattr(beyond, "FEW_COLUMNS", 0)
    found = beyond.turned(X)
    assert found.shape == (7, 7)
    assert pdist(found) == pytest.approx(pdist(X))
    twice = np.vstack([X, X[:3], 0 * X[:1]])
    assert pdist(beyond.turned(twice)) == pytest.approx(pdist(twice), abs=1e-6)
    assert beyond.turned(X.T).shape == (30, 7)


def test_the_log_joint_of_a_partition_is_that_of_the_urn():
    import beyond

    rng = np.random.default_rng(2)
    X = (rng.random((9, 4)) < 0.5) * 1.0
    labels = rng.integers(3, size=9)
    alpha = 0.7
    model = Bernoulli(a=0.4, b=1.3).resolve(X)
    expected = 0.0
    for i in range(9):  # item by item: where it sits, and what is said by those who sit there
        before = np.flatnonzero(labels[:i] == labels[i])
        expected += np.log((len(before) or alpha) / (alpha + i))
        ones = X[before].sum(axis=0)
        p = (0.4 + ones) / (1.7 + len(before))
        expected += np.log(np.where(X[i] == 1, p, 1 - p)).sum()
    found = beyond.log_joint(model, model.suffstats(X), labels, alpha)
    constant = np.log(alpha + np.arange(9)).sum()
    assert found - constant == pytest.approx(expected)


def test_the_page_says_where_a_method_is_first_and_what_did_not_end():
    import page_beyond

    def row(bhc, ward, **rest):
        cell = {"purity": bhc, "clusters": 3, "classes": 2, "clusters over classes, nats": 5.0}
        return {"BHC": cell, "ward": {"purity": ward}, **rest}

    several = {"failed": "BhclustError: CoalescentClustering takes columns of one kind, but …"}
    found = {"one": row(0.9, 0.9), "other": row(0.5, 0.8, Rate1=several)}
    assert page_beyond.standing(found, "purity", "BHC") == (["one"], ["other"])
    text = page_beyond.losses(found)
    assert "| other | 0.500 | 0.800 (ward) | -0.300 | 3 / 2 | +5 |" in text
    assert "positive on 1 of these 1 sets" in " ".join(text.split())
    assert "several kinds, and it takes one (other)" in page_beyond.failures(found)
    assert "(other)" in page_beyond.rate_note(found)


@pytest.mark.parametrize(
    ("paper", "ours", "spread", "higher", "word"),
    [
        ((0.5, 0.01), (0.52, 0.01), 0.0, True, "within"),
        ((0.5, 0.01), (0.6, 0.01), 0.0, True, "better"),
        ((0.5, 0.01), (0.4, 0.01), 0.0, True, "differs"),
        ((0.5, 0.01), (0.4, 0.01), 0.06, True, "other draw"),
        ((14.0, 0.1), (9.0, 0.1), 0.0, False, "better"),
        ((14.0, 0.1), (19.0, 0.1), 0.0, False, "differs"),
    ],
)
def test_verdicts(paper, ours, spread, higher, word):
    from page_parts import Cell, verdict

    found = verdict(Cell(*paper), Cell(*ours), spread=spread, higher_is_better=higher)
    assert found == word


def test_the_page_is_what_the_results_say(monkeypatch):
    import page

    monkeypatch.setattr(sys, "argv", ["page.py", "--check"])
    page.main()


def test_a_script_runs_without_the_data(monkeypatch, tmp_path, runner):
    monkeypatch.delenv("BHCLUST_DATA", raising=False)
    import rose_figure_1_8

    arguments = ["--quick", "--out", str(tmp_path)]
    monkeypatch.setattr(rose_figure_1_8, "pictures", lambda options: False)
    runner.study(
        "rose_figure_1_8",
        rose_figure_1_8.units,
        rose_figure_1_8.compute,
        rose_figure_1_8.finish,
        "x",
        arguments,
    )
    content = json.loads((tmp_path / "rose_figure_1_8.json").read_text("utf-8"))
    assert content["stand_in"]
    assert content["quick"]


@pytest.fixture(scope="module")
def holed():
    """A table of 0/1 with structure, and the same with holes."""
    rng = np.random.default_rng(3)
    probability = rng.beta(0.5, 0.5, size=(3, 5))
    X = (rng.random((24, 5)) < probability[np.repeat(np.arange(3), 8)]) * 1.0
    return X, np.where(rng.random(X.shape) < 0.15, np.nan, X)


@pytest.fixture(params=["constant", "dirichlet_process", "rose"])
def learned(request, holed):
    make = BayesianRoseTree if request.param == "rose" else BayesianHierarchicalClustering
    return make("bernoulli", mixing=request.param, learn=True, strategy="greedy").fit(holed[1])


def test_the_prediction_on_a_fitted_tree_is_the_librarys(learned, holed):
    from averaging import log_predictive

    X, holes = holed
    expected = learned.heldout_log_likelihood(X)
    assert log_predictive(learned, holes, X) == pytest.approx(expected, abs=1e-9)


def test_the_region_has_the_curvature_of_the_expected_log_likelihood(learned, holed):
    from averaging import Region

    region = Region(learned, holed[1])
    weights = np.exp(posterior.log_node_weights(learned.tree_))

    def expected(at):  # the weights of the nodes held, with each count's own prior
        log_f = Bernoulli(*np.exp(at)).log_marginal(learned.tree_.stats)
        return float(weights @ log_f) - 0.5 * float(np.square(at - region.centre).sum())

    step = 1e-3
    for j in range(5):
        hessian = np.empty((2, 2))
        for k in range(2):
            for m in range(2):
                value = 0.0
                for one in (1, -1):
                    for other in (1, -1):
                        at = region.centre.copy()
                        at[k, j] += one * step
                        at[m, j] += other * step
                        value += one * other * expected(at)
                hessian[k, m] = -value / (4 * step**2)
        # Where the likelihood alone is not concave its part is left out; here it is concave or is
        # cut off, and then the region is the narrower one.
        covariance = region.roots[j] @ region.roots[j].T
        values, axes = np.linalg.eigh(hessian - np.eye(2))
        kept = (axes * (np.maximum(values, 0.0) + 1.0)) @ axes.T
        np.testing.assert_allclose(covariance, np.linalg.inv(kept), rtol=2e-3, atol=1e-4)


def test_averages_over_a_region_of_no_width_are_the_prediction_itself(learned, holed, monkeypatch):
    import averaging

    X, holes = holed
    monkeypatch.setattr(
        averaging.Region, "_roots", lambda self: np.zeros((self.centre.shape[1], 2, 2))
    )
    found = averaging.averaged(learned, holes, X)
    expected = learned.heldout_log_likelihood(X)
    for way in ("hyperparameters", "probabilities", "weighted"):
        assert found[way] == pytest.approx(expected, abs=1e-9)


def test_the_weighted_average_is_that_of_another_sample(learned, holed, monkeypatch):
    """Points from a wider normal, weighted, have the same average: it is the posterior's."""
    import averaging

    X, holes = holed
    monkeypatch.setattr(averaging, "N_POINTS", 6000)
    found = averaging.averaged(learned, holes, X)
    assert found["effective points"] > 30
    region, full = averaging.Region(learned, holes), averaging.on_tree(learned, X)
    region.roots = 1.3 * region.roots
    rng = np.random.default_rng(8)
    known, both = [], []
    for _ in range(6000):
        at, density = region.draw(rng)
        model = Bernoulli(*np.exp(at))
        parts = [
            evaluate(tree, model, learned.mixing_, "evidence").value for tree in (region.tree, full)
        ]
        weight = region.log_prior(at) - density
        known.append(parts[0] + weight)
        both.append(parts[1] + weight)
    other = float(logsumexp(both) - logsumexp(known))
    assert found["weighted"] == pytest.approx(other, abs=0.5)


def test_older_units_are_named_and_a_page_of_one_source_says_so(monkeypatch):
    import page_versions

    monkeypatch.setattr(page_versions, "checks", dict)
    one = {"versions": [{"source": "a", "units": 3, "numpy": "2"}]}
    text = page_versions.version_part({"x": one, "y": one})
    assert "All 6 units of work on this page" in text
    assert "| x" not in text
    two = {"versions": [{"source": "b", "units": 1, "numpy": "2"}]}
    text = page_versions.version_part({"x": one, "y": two})
    assert "3 of 4 units" in text
    assert "| `y` | b | 1 | not checked |" in text
    noted = {"versions": {"source": "a"}, "units": {"1": 0.0, "2": 0.5, "3": float("inf")}}
    assert page_versions.checked(noted) == (
        "3 units again with a: 1 the same, 1 off by a factor of up to 1 ± 5.0e-01, "
        "1 with other entries"
    )


def test_units_of_an_older_source_are_compared_with_those_that_replaced_them(tmp_path):
    import page_versions

    lines = [
        {"unit": {"draw": draw}, "result": result, "versions": {"source": source}}
        for source, results in (
            ("old", ({"a": 1.0, "seconds": 1}, {"a": 1.0}, {"a": 1.0})),
            ("new", ({"a": 1.0, "b": 2, "seconds": 9}, {"a": 1.5})),
        )
        for draw, result in enumerate(results)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = page_versions.reruns(["x", "absent"], "new", tmp_path)
    assert found == (2, {"x": ["1"]})
    assert "2 units had been computed before" in page_versions.rerun_note(found)
    assert "1 did not: `x` 1." in page_versions.rerun_note(found)


def test_units_of_a_later_source_are_named_with_what_differs(monkeypatch):
    import page_versions

    def record(source, method, purity):
        unit = {"data": "x", "method": method, "seed": 1}
        return {"unit": unit, "result": {"purity": purity}, "versions": {"source": source}}

    units = [
        [record("a", "BHC", 0.5), record("b", "BHC", 0.5), record("c", "BHC", 0.5)],
        [record("a", "ward", 0.5), record("b", "ward", 0.6)],
        [record("b", "single", 0.4)],
    ]
    monkeypatch.setattr(page_versions, "checks", dict)
    monkeypatch.setattr(page_versions, "kept", lambda name, folder=None: units)
    found = {"versions": [{"source": "b", "units": 2}, {"source": "c", "units": 1}]}
    text = " ".join(page_versions.version_part({"beyond": found}).split())
    assert "2 of 3 units of work were computed with one source of the library, `b`" in text
    assert "1 units of `beyond`, all those of BHC, were computed again with a later" in text
    assert "Beside what `b` had, all 1 came out the same" in text
    assert "2 units had been computed before, with older sources; with `b` 1 came out" in text
    assert "1 did not: `beyond` 1 (x ward)" in text
    assert "| `beyond` |" not in text  # no table of what is older
