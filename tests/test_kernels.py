"""The compiled engine against the NumPy engine: the same trees, whatever the data."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from bhclust._kernels import special
from bhclust._kernels.engine import make_parts, n_slots_for
from bhclust._kernels.multinomial import ListedMultinomialPart
from bhclust._kernels.part import Member
from bhclust._kernels.sparse_counts import SparsePoissonPart
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import Constant, DirichletProcess, Rose
from bhclust.models import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
)
from tests.oracles.exact import exact_f
from tests.zoo import MODELS, MODELS_AND_HOLES, make_case

# Wide tables that are mostly zero have kernels of their own.
WIDE = {"words": SparsePoissonPart, "word_rows": ListedMultinomialPart}
KINDS = (*MODELS, *WIDE)
KINDS_AND_HOLES = [*MODELS_AND_HOLES, *((name, share) for name in WIDE for share in (0.0, 0.25))]
METHODS = {
    "BHC-DP": (DirichletProcess(0.6), False),
    "BHC-γ": (Constant(0.3), False),
    "BRT-DP": (DirichletProcess(0.6), True),
    "BRT-γ": (Constant(0.3), True),
    "BRT": (Rose(0.3), True),
}


def assert_same_tree(model, stats, mixing, rose):
    ours = agglomerate(model, stats, mixing, rose=rose, engine="compiled")
    reference = agglomerate(model, stats, mixing, rose=rose, engine="numpy")
    assert ours.info.engine == "compiled"
    np.testing.assert_array_equal(ours.tree.parent, reference.tree.parent)
    np.testing.assert_allclose(ours.tree.log_odds, reference.tree.log_odds, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.tree.log_marginal, reference.tree.log_marginal, rtol=1e-11)
    assert ours.info.n_rescans == reference.info.n_rescans


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "missing"), KINDS_AND_HOLES)
def test_same_tree_for_every_model(name, missing, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([len(name), len(method), int(100 * missing)])
    for n in (2, 3, 40, 120):
        case = make_case(name, n, rng, missing)
        assert_same_tree(case.model, case.model.suffstats(case.X), mixing, rose)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", KINDS)
def test_same_tree_with_many_duplicates(name, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([7, len(name), len(method)])
    case = make_case(name, 60, rng)
    for rows in (rng.integers(12, size=60), np.repeat(np.arange(30), 2), np.zeros(20, dtype=int)):
        assert_same_tree(case.model, case.model.suffstats(case.X[rows]), mixing, rose)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["categorical", "diagonal_gaussian"])
def test_same_tree_where_lists_are_searched_in_blocks(name, method):
    mixing, rose = METHODS[method]
    rng = np.random.default_rng([11, len(name), len(method)])
    case = make_case(name, 400, rng)
    # Twins far apart: ties between blocks.
    rows = np.concatenate([np.arange(400), rng.permutation(400)[:150]])
    assert_same_tree(case.model, case.model.suffstats(case.X[rows]), mixing, rose)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "gaussian"])
def test_same_tree_without_structure(name):
    rng = np.random.default_rng(3)
    case = make_case(name, 100, rng, 0.1)
    shuffled = np.array(case.X)
    for column in shuffled.T:
        rng.shuffle(column)
    if name in ("multinomial", "word_rows"):
        shuffled = case.X
    # A model that keeps the rows of its table has room for few others.
    model = case.model.resolve(shuffled) if name == "robust_time_series" else case.model
    stats = model.suffstats(shuffled)
    for mixing, rose in METHODS.values():
        assert_same_tree(model, stats, mixing, rose)


@pytest.mark.parametrize(("name", "missing"), KINDS_AND_HOLES)
def test_parts_give_the_models_log_f(name, missing):
    """Leaves, merged clusters and unions of all kinds, against log_marginal of the model."""
    rng = np.random.default_rng(11)
    n = 30
    case = make_case(name, n, rng, missing)
    stats = case.model.suffstats(case.X)
    parts = make_parts(case.model, stats, n_slots_for(n))
    assert parts is not None

    def expected(*clusters):
        rows = [row for cluster in clusters for row in cluster]
        union = stats[[rows[0]]]
        for row in rows[1:]:
            union = case.model.merge(union, stats[[row]])
        return float(case.model.log_marginal(union)[0])

    clusters = [[0, 1], [0, 1, 2], [3, 4], [3, 4, 5, 6, 7]]
    steps = [  # the clusters above as merges into slots
        (Member(True, 0), Member(True, 1), 0),
        (Member(False, 0), Member(True, 2), 1),
        (Member(True, 3), Member(True, 4), 2),
        (Member(True, 5), Member(True, 6), 3),
        (Member(False, 3), Member(True, 7), 4),
        (Member(False, 2), Member(False, 4), 5),
    ]
    log_f = [sum(part.merge(*step) for part in parts) for step in steps]
    for position, cluster in zip((0, 1, 2, 5), clusters, strict=True):
        assert log_f[position] == pytest.approx(expected(cluster), rel=1e-11, abs=1e-10)
    keep = np.arange(8, n, 2)
    for part in parts:
        part.compact(keep)
    focuses = [
        (Member(True, 9), [9]),
        (Member(False, 1), clusters[1]),
        (Member(False, 5), clusters[3]),
    ]
    for member, cluster in focuses:
        singles, unions = np.zeros(len(keep) - 3), np.zeros(1)
        other = 2 if cluster != clusters[3] else 0
        for part in parts:
            part.focus(member)
            part.add_singles(3, len(keep), singles)
            part.add_clusters(np.array([other]), unions)
        for value, leaf in zip(singles, keep[3:], strict=True):
            if leaf not in cluster:
                assert value == pytest.approx(expected(cluster, [leaf]), rel=1e-11, abs=1e-10)
        partner = clusters[2] if other == 2 else clusters[0]
        assert unions[0] == pytest.approx(expected(cluster, partner), rel=1e-11, abs=1e-10)


def test_counts_beyond_every_table():
    """Clusters of several thousand items and counts of several hundreds."""
    rng = np.random.default_rng(0)
    binary = (rng.random((3000, 3)) < 0.3).astype(float)
    counts = rng.poisson([3, 200, 40], size=(400, 3)).astype(float)
    words = rng.multinomial(900, [0.7, 0.2, 0.1], size=60).astype(float)
    codes = rng.integers(0, [300, 2], size=(500, 2)).astype(float)
    for model, X in [
        (Bernoulli(), binary),
        (Poisson(), counts),
        (Multinomial(), words),
        (Categorical(), codes),
    ]:
        resolved = model.resolve(X)
        assert_same_tree(resolved, resolved.suffstats(X), DirichletProcess(1.0), False)


@pytest.mark.parametrize("name", WIDE)
def test_wide_tables_of_zeros_are_kept_as_lists(name):
    case = make_case(name, 120, np.random.default_rng(2))
    stats = case.model.suffstats(case.X)
    assert [type(part) for part in make_parts(case.model, stats, 2)] == [WIDE[name]]


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_wide_tables_beyond_short_tables(monkeypatch, missing):
    """Where there are many columns, a table over counts is short: clusters soon go beyond it."""
    monkeypatch.setattr(special, "_TABLE_NUMBERS", 0)
    case = make_case("words", 200, np.random.default_rng(4), missing)
    X = np.where(case.X == 3, 90.0, case.X)  # a single count beyond it, too
    for kind in (Poisson, Multinomial) if not missing else (Poisson,):
        model = kind().resolve(X)
        for mixing, rose in METHODS.values():
            assert_same_tree(model, model.suffstats(X), mixing, rose)


def test_nothing_large_cancels_in_columns_of_rare_events():
    """With rates in the thousands, against the formula in forty digits."""
    rng = np.random.default_rng(5)
    X = np.zeros((300, 4000))
    X[rng.integers(300, size=4000), np.arange(4000)] = 1
    dense, sparse = np.where(rng.random(X.shape) < 0.01, np.nan, X)[:2], X[:2]
    model = Poisson().resolve(X)
    for table in (dense, sparse):
        stats = model.suffstats(table)
        (part,) = make_parts(model, stats, 2)
        value = part.merge(Member(True, 0), Member(True, 1), 0)
        exact = float(mpmath.log(exact_f(model, table)))
        assert value == pytest.approx(exact, rel=1e-12)
        assert model.log_marginal(stats[:1] + stats[1:])[0] == pytest.approx(exact, rel=1e-12)


def test_very_large_counts_go_to_the_numpy_engine():
    X = np.random.default_rng(0).poisson(9000, size=(10, 2)).astype(float)
    model = Poisson().resolve(X)
    result = agglomerate(model, model.suffstats(X), DirichletProcess(1.0))
    assert result.info.engine == "numpy"
    with pytest.raises(BhclustError, match="no kernels for Poisson"):
        agglomerate(model, model.suffstats(X), DirichletProcess(1.0), engine="compiled")


def test_a_models_subclass_goes_to_the_numpy_engine():
    class Tempered(Bernoulli):
        def log_marginal(self, stats):
            return 0.5 * super().log_marginal(stats)

    X = np.eye(6)
    model = Tempered(a=1.0, b=1.0).resolve(X)
    assert agglomerate(model, model.suffstats(X), Rose(0.5)).info.engine == "numpy"
    mixed = Mixed([(Tempered(), [0, 1, 2]), (Bernoulli(), [3, 4, 5])]).resolve(X)
    assert agglomerate(mixed, mixed.suffstats(X), Rose(0.5)).info.engine == "numpy"


def test_weights_go_to_the_numpy_engine():
    case = make_case("bernoulli", 8, np.random.default_rng(0))
    weight = np.arange(1.0, 9.0)
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    result = agglomerate(case.model, stats, DirichletProcess(1.0), weight=weight)
    assert result.info.engine == "numpy"


def test_unknown_engine_is_refused():
    case = make_case("bernoulli", 4, np.random.default_rng(0))
    with pytest.raises(BhclustError, match="engine must be one of"):
        agglomerate(case.model, case.model.suffstats(case.X), Rose(0.5), engine="fortran")


def test_gaussian_serves_both_engines():
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = Gaussian().resolve(X)
    for mixing, rose in METHODS.values():
        assert_same_tree(model, model.suffstats(X), mixing, rose)


def test_gains_beyond_the_exponential():
    """A ratio of e^1000 and more is still compared with better ones (constant mixing)."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 1000)) + 12 * rng.integers(0, 2, size=(60, 1))
    model = DiagonalGaussian().resolve(X)
    assert_same_tree(model, model.suffstats(X), Constant(0.3), True)
