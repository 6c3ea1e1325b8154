"""Mixed, the automatic choice, and models as plain numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from bhclust._validation import BhclustError, FileFormatError
from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    Column,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
    check_model,
    choose_model,
)
from bhclust.models.spec import model_from_spec, model_spec
from tests.oracles import models as oracle

NAN = np.nan
RNG = np.random.default_rng(5)
N = 10
TABLE = np.column_stack(
    [
        RNG.normal(3, 2, N),
        RNG.integers(2, size=N),
        RNG.poisson(4, N),
        RNG.normal(-1, 1, N),
        RNG.integers(3, size=N),
        RNG.integers(2, size=N),
    ]
).astype(float)
COLUMNS = [
    Column("height", "real"),
    Column("smokes", "binary"),
    Column("visits", "count"),
    Column("weight", "real"),
    Column("colour", "categorical", ("red", "green", "blue")),
    Column("old", "binary"),
]
PARTS = [
    (Bernoulli(), [1, 5]),
    (DiagonalGaussian(), (3, 0)),
    (Poisson(), 2),
    (Categorical(), [4]),
]


def test_contract():
    check_model(Mixed(PARTS), TABLE)
    check_model(Mixed([(Gaussian(), [0, 3]), (Multinomial(), [1, 2, 4, 5])]), TABLE)
    check_model(
        Mixed(
            [
                (Mixed([(Poisson(), 0), (Bernoulli(), 1)]), [2, 1]),
                (Gaussian(), [0, 3]),
                (Categorical(), [4, 5]),
            ]
        ),
        TABLE,
    )


def test_log_f_is_the_sum_of_the_parts():
    X = TABLE.copy()
    X[[0, 3, 4], [0, 1, 4]] = NAN
    mixed = Mixed(PARTS).resolve(X)
    expected = 0.0
    for model, columns in PARTS:
        own = X[:, np.atleast_1d(columns)]
        expected += oracle.log_f(model.resolve(own), own)
    assert oracle.log_f(mixed, X) == pytest.approx(expected, rel=1e-13)


def test_names_and_positions_are_the_same():
    by_name = Mixed(
        [
            (Bernoulli(), ["smokes", "old"]),
            (DiagonalGaussian(), ["weight", "height"]),
            (Poisson(), "visits"),
            (Categorical(), ["colour"]),
        ]
    )
    named = by_name.for_columns(COLUMNS).resolve(TABLE)
    placed = Mixed(PARTS).for_columns(COLUMNS).resolve(TABLE)
    assert np.array_equal(named.suffstats(TABLE), placed.suffstats(TABLE))
    assert named.parts[3][0].n_categories == (3,)
    kinds = by_name.column_kinds([column.name for column in COLUMNS])
    assert kinds == tuple(column.kind for column in COLUMNS)


def test_contributions_are_in_table_order():
    mixed = Mixed(PARTS).resolve(TABLE)
    stats = mixed.suffstats(TABLE)
    found = mixed.feature_contributions(stats[:4], stats[4:8])
    for model, columns in PARTS:
        positions = list(np.atleast_1d(columns))
        own = model.resolve(TABLE[:, positions])
        rows = own.suffstats(TABLE[:, positions])
        expected = own.feature_contributions(rows[:4], rows[4:8])
        np.testing.assert_allclose(found[:, positions], expected, rtol=1e-12)


def test_samples_and_imputation_are_in_table_order():
    mixed = Mixed(PARTS).resolve(TABLE)
    cluster = oracle.union(mixed, mixed.suffstats(TABLE))
    draws = mixed.sample(cluster, 3000, np.random.default_rng(0))
    assert draws.shape == (3000, 6)
    # Five standard errors, around each column's posterior mean.
    expected = mixed.impute(cluster, np.full((1, 6), NAN), np.ones((1, 1)))[0]
    for j in (0, 2, 3):
        assert abs(draws[:, j].mean() - expected[j]) < 5 * draws[:, j].std() / np.sqrt(3000)
    assert set(np.unique(draws[:, [1, 5]])) == {0, 1}
    assert set(np.unique(draws[:, 4])) == {0, 1, 2}
    holes = TABLE.copy()
    holes[2] = NAN
    filled = mixed.impute(cluster, holes, np.ones((N, 1)))
    assert np.array_equal(np.delete(filled, 2, axis=0), np.delete(TABLE, 2, axis=0))
    assert not np.isnan(filled).any()


def test_hyperparameters_have_the_parts_number():
    mixed = Mixed(PARTS).resolve(TABLE)
    names = [spec.name for spec in mixed.free()]
    assert names == [spec.name for spec in mixed.hyperparameters]
    assert names[:3] == ["0.a", "0.b", "1.mean"]
    stats = mixed.suffstats(TABLE)
    assert set(mixed.gradient(stats, np.ones(N))) == set(names)
    moved = mixed.with_hyperparameters({"1.mean": [9.0, 8.0], "2.rate": 3.0})
    assert moved.hyperparameter("1.mean").tolist() == [9.0, 8.0]
    assert moved.parts[2][0].rate.tolist() == [3.0]
    assert np.array_equal(mixed.hyperparameter("0.a"), moved.hyperparameter("0.a"))
    assert "3.probability" in mixed.summary(stats)


def test_missing_is_as_strict_as_the_strictest_part():
    assert Mixed(PARTS).missing == "exact"
    assert Mixed([(Bernoulli(), 0), (Multinomial(), [1, 2])]).missing == "row"
    assert Mixed([(Gaussian(), 0), (Bernoulli(), 1)]).missing == "error"
    mixed = Mixed([(Gaussian(), [0, 3]), (Poisson(), [1, 2, 4, 5])]).resolve(TABLE)
    holes = TABLE.copy()
    holes[0, 1] = NAN
    stats = mixed.suffstats(holes)
    # Holes in a part that takes them are filled although another part takes none.
    filled = mixed.impute(oracle.union(mixed, stats), holes, np.ones((N, 1)))
    assert np.isfinite(filled).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Mixed([]), "at least one part"),
        (
            lambda: Mixed([(Bernoulli(), [0, 1]), (Poisson(), 1)]).resolve(np.eye(2)),
            "column 1 is in",
        ),
        (lambda: Mixed([(Bernoulli(), 0)]).resolve(np.eye(2)), "column 1.* no part"),
        (lambda: Mixed([(Bernoulli(), [0, 2])]).resolve(np.eye(2)), "position 2 is outside"),
        (lambda: Mixed([(Bernoulli(), "a")]).resolve(np.eye(1)), "'a' is a name"),
        (lambda: Mixed([(Bernoulli(), "a")]).for_columns(COLUMNS), "no column 'a' among"),
        (lambda: Mixed([(Bernoulli(), 0)]).suffstats(np.eye(1)), "call resolve"),
        (lambda: Mixed(PARTS).resolve(TABLE).suffstats(np.eye(2)), "resolved with 6 column"),
        (lambda: Mixed(PARTS).hyperparameter("a"), "like '0.mean'"),
        (lambda: Mixed(PARTS).hyperparameter("7.a"), "like '0.mean'"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(BhclustError, match=words):
        call()


@pytest.mark.parametrize(
    ("kinds", "X", "expected"),
    [
        (["binary"] * 2, np.eye(2), Bernoulli),
        (["categorical"] * 2, np.eye(2), Categorical),
        (["count"] * 2, np.eye(2), Poisson),
        (["real"] * 2, np.eye(2), DiagonalGaussian),
        (["real"] * 2, RNG.normal(size=(8, 2)), Gaussian),
        (["real"] * 2, np.full((8, 2), NAN), DiagonalGaussian),
        (["real"], RNG.normal(size=(8, 1)), DiagonalGaussian),
        (["real"] * 9, RNG.normal(size=(100, 9)), DiagonalGaussian),
        (["real", "binary"], np.eye(2), Mixed),
    ],
)
def test_the_automatic_choice(kinds, X, expected):
    columns = [Column(f"c{j}", kind) for j, kind in enumerate(kinds)]
    assert type(choose_model(columns, X)) is expected


def test_the_automatic_choice_for_a_mixed_table():
    model = choose_model(COLUMNS, TABLE)
    assert [(type(part), columns) for part, columns in model.parts] == [
        (Gaussian, (0, 3)),
        (Bernoulli, (1, 5)),
        (Poisson, (2,)),
        (Categorical, (4,)),
    ]
    resolved = model.for_columns(COLUMNS).resolve(TABLE)
    assert np.isfinite(oracle.log_f(resolved, TABLE))
    with pytest.raises(BhclustError, match="at least one column"):
        choose_model([], np.empty((3, 0)))


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        (Bernoulli(), [1, 5]),
        (Categorical(), [1, 4]),
        (Multinomial(), [1, 2, 4]),
        (Poisson(), [2]),
        (DiagonalGaussian(), [0, 3]),
        (Gaussian(), [0, 3]),
        (Mixed(PARTS), [0, 1, 2, 3, 4, 5]),
        (Mixed([(Mixed([(Gaussian(), 0), (Poisson(), 1)]), [0, 2]), (Bernoulli(), 1)]), [0, 1, 2]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ClusterModel) else "",
)
def test_a_model_survives_being_written_down(model, columns):
    X = TABLE[:, columns]
    records = [COLUMNS[j] for j in columns]
    for before in (model, model.for_columns(records).resolve(X)):
        header, arrays = model_spec(before)
        after = model_from_spec(json.loads(json.dumps(header)), arrays)
        assert type(after) is type(before)
        if before is model:
            after = after.for_columns(records).resolve(X)
            before = before.for_columns(records).resolve(X)
        assert np.array_equal(after.suffstats(X), before.suffstats(X))
        assert oracle.log_f(after, X) == oracle.log_f(before, X)
        assert [s.name for s in after.free()] == [s.name for s in before.free()]
        assert json.dumps(model_spec(after)[0]) == json.dumps(model_spec(before)[0])


@dataclass(frozen=True, eq=False)
class Own(Bernoulli):
    note: object = "mine"


def test_a_model_of_ones_own_needs_to_be_known():
    X = TABLE[:, [1, 5]]
    header, arrays = model_spec(Own().resolve(X))
    with pytest.raises(FileFormatError, match=r"class 'Own'.*known="):
        model_from_spec(header, arrays)
    again = model_from_spec(header, arrays, known=[Own])
    assert isinstance(again, Own)
    assert again.note == "mine"
    with pytest.raises(BhclustError, match=r"Own.note is a object.*tree only"):
        model_spec(Own(note=object()))


def test_names_of_shipped_models_are_taken():
    taken = type("Bernoulli", (Bernoulli,), {})
    with pytest.raises(BhclustError, match="taken"):
        model_spec(taken())


@pytest.mark.parametrize(
    "damage",
    [
        lambda header, arrays: header.pop("fields"),
        lambda header, arrays: header["fields"].update(unheard_of=1),
        lambda header, arrays: arrays.pop("a"),
        lambda header, arrays: arrays.update(a=-arrays["a"]),
        lambda header, arrays: header.update({"class": "os.system"}),
        lambda header, arrays: header.update({"class": ["Bernoulli"]}),
    ],
)
def test_damage_is_noticed(damage):
    header, arrays = model_spec(Bernoulli().resolve(TABLE[:, [1, 5]]))
    damage(header, arrays)
    with pytest.raises(FileFormatError):
        model_from_spec(header, arrays)
