"""Tables of every container and kind, good and bad."""

from __future__ import annotations

import datetime
import decimal
import json
from fractions import Fraction

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bhclust._validation import BhclustError, UnsupportedValueError
from bhclust.tables import NamedColumns, Schema, Table, read_table
from tests.oracles.tables import plain_kind

NAN = np.nan
LIBRARIES = ("pandas", "polars", "pyarrow")


def frame_of(library, columns):
    if library == "pandas":
        return pd.DataFrame(columns)
    return pl.DataFrame(columns) if library == "polars" else pa.table(columns)


def kinds_of(X, **options):
    return list(read_table(X, **options).schema.kinds)


# -- kinds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], "binary"),
        ([0, 1, 1], "binary"),
        ([0.0, 1.0, NAN], "binary"),
        ([0, 1, None], "binary"),
        ([0, 2, 5], "count"),
        ([3, None, 5], "count"),
        ([True, 2, None], "count"),
        ([-1, 2, 5], "real"),
        ([1.0, 2.0, 3.0], "real"),
        ([0.5, None, 2], "real"),
        ([decimal.Decimal("0.5"), Fraction(1, 3), None], "real"),
        (["a", "b", None], "categorical"),
        (["1", "2", "3"], "categorical"),
        ([None, None, None], "real"),
        ([NAN, NAN, NAN], "real"),
    ],
)
def test_kind_of_an_object_column(values, kind):
    column = np.array([*values, None], dtype=object)[:-1, None]
    assert kinds_of(column) == [kind]
    assert kinds_of({"only": values}) == [kind]


@given(
    st.lists(
        st.one_of(st.none(), st.integers(-2, 4), st.booleans(), st.floats(-2, 2), st.just(NAN)),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_kind_agrees_with_the_plain_definition(values):
    column = np.empty((len(values), 1), dtype=object)
    column[:, 0] = values
    table = read_table(column)
    assert table.schema.kinds == (plain_kind(values),)
    expected = [NAN if v is None else float(v) for v in values]
    np.testing.assert_array_equal(table.values[:, 0], expected)


def test_kinds_of_plain_arrays():
    assert kinds_of(np.array([[0, 3, -1], [1, 4, 2]])) == ["binary", "count", "real"]
    assert kinds_of(np.array([[0.0, 3.0, NAN], [1.0, 4.0, NAN]])) == ["binary", "real", "real"]
    assert kinds_of(np.array([[True], [False]])) == ["binary"]
    assert kinds_of(np.array([[0, 1], [1, 7]], dtype=np.uint8)) == ["binary", "count"]
    assert kinds_of([[0.5, "a"], [1.5, "b"]]) == ["real", "categorical"]
    assert kinds_of(np.array([["a"], ["b"]])) == ["categorical"]


def test_a_later_block_of_rows_can_decide():
    X = np.zeros((10_000, 2))
    X[9_999, 1] = 0.5
    assert kinds_of(X) == ["binary", "real"]


def test_a_hole_does_not_change_the_kind_of_a_pandas_column():
    frame = pd.DataFrame({"n": [1.0, NAN, 5.0], "r": [1.5, NAN, 5.0], "whole": [1.0, 2.0, 5.0]})
    assert kinds_of(frame) == ["count", "real", "real"]
    table = read_table(frame, kinds={"n": "categorical"})
    assert table.columns[0].categories == (1, 5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_every_library(library):
    columns = {
        "bool": [True, False, None],
        "count": [4, None, 2],
        "real": [0.5, None, -1.0],
        "text": ["b", None, "a"],
    }
    frame = frame_of(library, columns)
    table = read_table(frame)
    assert table.schema.kinds == ("binary", "count", "real", "categorical")
    assert table.schema.names == tuple(columns)
    assert table.columns[3].categories == ("a", "b")
    np.testing.assert_array_equal(
        table.values, [[1, 4, 0.5, 1], [0, NAN, NAN, NAN], [NAN, 2, -1, 0]]
    )
    again = table.schema.decode(table.values)
    assert type(again) is type(frame)
    np.testing.assert_array_equal(table.schema.encode(again), table.values)


@pytest.mark.parametrize("library", LIBRARIES)
def test_complete_frames_come_back_with_their_types(library):
    frame = frame_of(library, {"b": [True, False], "n": [4, 2], "r": [0.5, 1.5], "t": ["x", "y"]})
    table = read_table(frame)
    again = nw.from_native(table.schema.decode(table.values), eager_only=True)
    assert again.schema == nw.from_native(frame, eager_only=True).schema
    assert again["b"].to_list() == [True, False]
    fractional = table.schema.decode(table.values + np.array([0, 0.5, 0, 0]))
    assert nw.from_native(fractional, eager_only=True)["n"].to_list() == [4.5, 2.5]


@pytest.mark.parametrize(
    ("dtype", "values", "kind"),
    [
        ("Int64", [2, None, 7], "count"),
        ("int64[pyarrow]", [2, None, 7], "count"),
        ("Float64", [2, None, 7], "real"),
        ("boolean", [True, None, False], "binary"),
        ("string", ["a", None, "b"], "categorical"),
        ("category", ["a", None, "b"], "categorical"),
    ],
)
def test_pandas_extension_types(dtype, values, kind):
    table = read_table(pd.DataFrame({"x": pd.Series(values, dtype=dtype)}))
    assert table.schema.kinds == (kind,)
    np.testing.assert_array_equal(np.isnan(table.values[:, 0]), [False, True, False])


def test_declared_categories_keep_their_order_and_their_codes():
    declared = ["low", "middle", "high"]
    values = ["high", "low", None]
    by_pandas = pd.DataFrame({"x": pd.Categorical(values, categories=declared, ordered=True)})
    by_polars = pl.DataFrame({"x": pl.Series(values, dtype=pl.Enum(declared))})
    for frame in (by_pandas, by_polars):
        table = read_table(frame)
        assert table.columns[0].categories == ("low", "middle", "high")
        np.testing.assert_array_equal(table.values[:, 0], [2, 0, NAN])
        np.testing.assert_array_equal(table.schema.encode([["middle"]]), [[1]])
    assert list(read_table(by_pandas).schema.decode([[1.0]])["x"].cat.categories) == declared
    assert read_table(by_polars).schema.decode([[1.0]])["x"].dtype == pl.Enum(declared)


def test_categories_of_a_polars_categorical_do_not_depend_on_the_rows_order():
    first, second = (
        pl.DataFrame({"x": pl.Series(values, dtype=pl.Categorical)})
        for values in (["b", "a"], ["a", "b"])
    )
    assert read_table(first).columns == read_table(second).columns


def test_pyarrow_dictionaries_and_pandas_intervals():
    table = read_table(pa.table({"x": pa.array(["q", "p", None]).dictionary_encode()}))
    np.testing.assert_array_equal(table.values[:, 0], [0, 1, NAN])
    frame = pd.DataFrame({"x": pd.cut(pd.Series([1.0, 9.0]), [0, 5, 10])})
    assert read_table(frame).columns[0].categories == ("(0, 5]", "(5, 10]")


def test_missing_values_of_every_kind():
    column = [1.5, None, NAN, pd.NA, pd.NaT, np.float32("nan"), decimal.Decimal("nan")]
    array = np.array(column, dtype=object)[:, None]
    np.testing.assert_array_equal(np.isnan(read_table(array).values[:, 0]), [False] + [True] * 6)
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(read_table(masked).values, [[1, NAN], [3, 4]])
    words = np.ma.masked_array([["a"], ["b"]], mask=[[True], [False]])
    assert read_table(words).columns[0].categories == ("b",)
    polars = pl.DataFrame({"x": [1.5, None, NAN]})
    assert np.isnan(read_table(polars).values[:, 0]).sum() == 2


# -- kinds by hand ---------------------------------------------------------------------------------


def test_kinds_by_hand():
    X = np.array([[3, 10], [5, 20], [3, 10]])
    assert kinds_of(X, kinds="categorical") == ["categorical"] * 2
    assert kinds_of(X, kinds={"x1": "real"}) == ["count", "real"]
    assert kinds_of(X, kinds={0: "categorical"}, default="real") == ["categorical", "real"]
    table = read_table(X, kinds={0: "categorical"})
    assert table.columns[0].categories == (3, 5)
    np.testing.assert_array_equal(table.values[:, 0], [0, 1, 0])
    np.testing.assert_array_equal(X[:, 0], [3, 5, 3])
    np.testing.assert_array_equal(table.schema.decode(table.values), X)


def test_mixed_values_may_be_categories_by_hand():
    column = np.array([["b"], [2], [None], [1], ["a"]], dtype=object)
    table = read_table(column, kinds="categorical")
    assert table.columns[0].categories == (1, 2, "a", "b")
    np.testing.assert_array_equal(table.values[:, 0], [3, 1, NAN, 0, 2])


def test_large_integers_stay_apart_as_categories():
    big = 2**60
    for X in (np.array([[big], [big + 1]]), np.array([[big], [big + 1]], dtype=object)):
        assert read_table(X, kinds="categorical").columns[0].categories == (big, big + 1)


@pytest.mark.parametrize(
    ("X", "kinds", "match"),
    [
        ([[2.0], [0.0]], "binary", r"column 'x0' is neither 0 nor 1 in row 0 \(value 2\)"),
        ([["a"], ["b"]], "binary", r"row 0 holds the string 'a': declare .* 'categorical'"),
        ([["a"], ["b"]], {"x0": "real"}, r"column 'x0' must hold numbers to be of kind 'real'"),
        ([[0.5], [1.0]], "count", r"column 'x0' is not a whole number in row 0"),
        ([[1], [-3]], "count", r"column 'x0' is negative in row 1 \(value -3\)"),
        ([[1]], {"y": "count"}, r"column 'y', which the table does not have; .* 'x0'"),
        ([[1]], {3: "count"}, r"column 3, which the table does not have"),
        ([[1]], {-1: "count"}, r"column -1, which the table does not have"),
        ([[1]], "number", r"must be one of 'binary', .* got 'number'"),
        ([[1]], {"x0": "number"}, r"kind of column 'x0' must be one of"),
    ],
)
def test_wrong_kinds_by_hand(X, kinds, match):
    with pytest.raises(BhclustError, match=match):
        read_table(X, kinds=kinds)


def test_wrong_default():
    with pytest.raises(BhclustError, match="default must be one of"):
        read_table([[1]], default="number")


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.empty((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required"),
        (np.empty((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"),
        (pd.DataFrame({"a": []}), r"0 sample\(s\)"),
        (pl.DataFrame({"a": []}), r"0 sample\(s\)"),
        (sparse.csr_array((0, 2)), r"0 sample\(s\)"),
        ({}, r"0 sample\(s\)"),
        ({"a": []}, r"0 sample\(s\)"),
        ([], "Expected 2D array, got 1D array instead"),
        ([1.0, 2.0], r"Expected 2D array, got 1D array instead.*Reshape your data"),
        (3.0, "Expected 2D array, got scalar array instead"),
        ("table.csv", "Expected 2D array"),
        (pd.Series([1.0, 2.0]), "Expected 2D array, got 1D"),
        (np.zeros((2, 2, 2)), "Found array with dim 3"),
        ([[1, 2], [3]], "not rectangular"),
        (np.array([[1j]]), "Complex data not supported"),
        (np.array([[1j]], dtype=object), "Complex data not supported"),
        (sparse.csr_array(np.array([[1j]])), "Complex data not supported"),
        ([[1.0, 2.0], [3.0, np.inf]], r"column 'x1' is infinite in row 1"),
        ([[1.0, -np.inf], [3.0, "a"]], r"column 'x1' holds numbers and strings"),
        (pd.DataFrame({"a": [1.0, np.inf]}), r"column 'a' is infinite in row 1"),
        ([[1], ["a"]], r"column 'x0' holds numbers and strings; the first string is 'a' in row 1"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "dates, times or durations"),
        (np.array([[datetime.date(2020, 1, 1)]], dtype=object), "'x0' holds dates"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), "column 'when' holds dates"),
        (pl.DataFrame({"wait": [datetime.timedelta(1)]}), "column 'wait' holds dates"),
        (pl.DataFrame({"l": [[1, 2]]}), "column 'l' holds values of type List"),
        (pl.DataFrame({"s": [{"a": 1}]}), "column 's' holds values of type Struct"),
        (pl.LazyFrame({"a": [1]}), r"call \.collect\(\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "unique column names"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "unique, but the table repeats '1'"),
        (pa.table([[1], [2]], names=["a", "a"]), "unique column names"),
        (np.array([[b"a"]]), "neither numbers nor strings"),
        (np.array([[10**400]], dtype=object), "too large"),
        ({"a": [1, 2], "b": [1]}, r"column 'b' has 1 entries, but column 'a' has 2"),
        ({"a": [[1, 2]]}, "column 'a' must be one-dimensional"),
    ],
)
def test_what_cannot_be_read(X, match):
    with pytest.raises(BhclustError, match=match):
        read_table(X)


@pytest.mark.parametrize("thing", [{"foo": "bar"}, [1, 2], object(), b"bytes"])
def test_objects_that_are_no_values(thing):
    X = np.full((3, 2), 1.5, dtype=object)
    X[1, 1] = thing
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        read_table(X)
    with pytest.raises(UnsupportedValueError, match="column 'x1', row 1"):
        read_table(X, kinds="categorical")


# -- schema ----------------------------------------------------------------------------------------


def test_unseen_category():
    schema = read_table([["a", 1.5], ["b", 2.5]]).schema
    with pytest.raises(BhclustError, match=r"column 'x0' holds the category 'c' in row 1.*Enum"):
        schema.encode([["a", 1.0], ["c", 1.0]])
    numbers = read_table(np.array([[1], [2]]), kinds="categorical").schema
    with pytest.raises(BhclustError, match="category 3 in row 0"):
        numbers.encode(np.array([[3]]))
    np.testing.assert_array_equal(numbers.encode(np.array([[2.0], [NAN]])), [[1], [NAN]])


def test_encode_checks_columns_and_values():
    schema = read_table(pd.DataFrame({"a": [0, 1], "b": [0.5, 1.5]})).schema
    with pytest.raises(BhclustError, match="X has 1 features, but Tree is expecting 2 features"):
        schema.encode([[1.0]], owner="Tree")
    with pytest.raises(BhclustError, match="column 0 is called 'b'"):
        schema.encode(pd.DataFrame({"b": [0.5], "a": [1]}))
    with pytest.raises(BhclustError, match="column 'a' is neither 0 nor 1"):
        schema.encode(pl.DataFrame({"a": [2], "b": [0.5]}))
    np.testing.assert_array_equal(schema.encode([[1, 2]]), [[1, 2]])
    empty = pd.DataFrame({"a": [None], "b": [None]})
    np.testing.assert_array_equal(schema.encode(empty), [[NAN, NAN]])


def test_encode_a_column_without_values_at_fit():
    schema = read_table([[None, 1.5], [None, 2.5]]).schema
    np.testing.assert_array_equal(schema.encode([[3, 1.5]]), [[3, 1.5]])
    with pytest.raises(BhclustError, match="row 0 holds the string 'a'"):
        schema.encode([["a", 1.5]])


def test_decode_arrays():
    table = read_table([["a", 1, True], ["b", 4, False]])
    decoded = table.schema.decode(table.values)
    assert decoded.dtype == object
    assert decoded.tolist() == [["a", 1, True], ["b", 4, False]]
    assert table.schema.decode([[NAN, 1.5, 0.5]]).tolist() == [[None, 1.5, 0.5]]
    X = np.array([[0.5, 2.0]])
    decoded = read_table(X).schema.decode(X)
    assert decoded.dtype == np.float64
    assert not np.shares_memory(decoded, X)


def test_decode_takes_over_an_index():
    frame = pd.DataFrame({"a": [0.5, 1.5]}, index=["p", "q"])
    table = read_table(frame)
    assert table.row_names == ("p", "q")
    assert list(table.schema.decode(table.values, like=frame).index) == ["p", "q"]
    assert read_table(frame.reset_index(drop=True)).row_names is None
    assert read_table(frame.set_index(np.array([5, 7]))).row_names == ("5", "7")


def test_named_columns():
    source = NamedColumns({"a": [1, None], "b": ["x", "y"]}, ["first", "second"])
    assert source.shape == (2, 2)
    table = read_table(source)
    assert table.row_names == ("first", "second")
    decoded = table.schema.decode(table.values)
    assert list(decoded) == ["a", "b"]
    assert decoded["b"].tolist() == ["x", "y"]
    with pytest.raises(BhclustError, match="column 0 is called 'z'"):
        table.schema.encode({"z": [1], "b": ["x"]})


def test_schema_survives_json():
    frame = pd.DataFrame({"t": ["a", "b"], "n": [1, 2], "b": [True, False]})
    schema = read_table(frame, kinds={"n": "categorical"}).schema
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    np.testing.assert_array_equal(again.encode(frame), schema.encode(frame))


# -- sparse ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.coo_matrix, sparse.csc_array])
@pytest.mark.parametrize(("top", "kind"), [(1, "binary"), (3, "count")])
def test_sparse_stays_sparse(container, top, kind):
    dense = np.array([[0, top, 0], [1, 0, 0]])
    X = container(dense)
    table = read_table(X)
    assert isinstance(table.values, sparse.csr_array)
    assert table.values.dtype == np.float64
    assert set(table.schema.kinds) == {kind}
    np.testing.assert_array_equal(table.toarray(), dense)
    assert sparse.issparse(table.schema.encode(X))
    assert isinstance(table.schema.encode(dense), np.ndarray)
    assert table.schema.decode(table.values) is table.values


def test_sparse_of_other_kinds_is_refused():
    reals = sparse.csr_array(np.array([[0, 0.5], [2, 0]]))
    ones = sparse.csr_array(np.eye(2))
    for X, kinds in [(reals, None), (ones, {0: "real"}), (ones, "categorical")]:
        with pytest.raises(BhclustError, match=r"sparse matrix must hold only .* call \.toarray"):
            read_table(X, kinds=kinds)
    assert kinds_of(ones, kinds="count") == ["count"] * 2
    assert isinstance(read_table(np.eye(2)).schema.encode(ones), np.ndarray)


@pytest.mark.parametrize(
    ("value", "kinds", "match"),
    [
        (NAN, None, "column 'x1' of the sparse matrix holds NaN in row 2"),
        (np.inf, None, r"column 'x1' is infinite in row 2"),
        (2.0, "binary", r"column 'x1' is neither 0 nor 1 in row 2 \(value 2\)"),
        (-2.0, "count", r"column 'x1' is negative in row 2"),
    ],
)
def test_sparse_errors(value, kinds, match):
    X = sparse.csr_array(np.array([[1.0, 0], [0, 0], [0, value]]))
    with pytest.raises(BhclustError, match=match):
        read_table(X, kinds=kinds)


def test_sparse_encode_checks_values():
    schema = read_table(sparse.csr_array(np.eye(2))).schema
    with pytest.raises(BhclustError, match="neither 0 nor 1"):
        schema.encode(sparse.csr_array(np.array([[0, 5.0]])))


def test_repeated_sparse_entries_are_added_without_touching_the_input():
    data, indices, indptr = np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])
    X = sparse.csr_array((data, indices, indptr), shape=(1, 2))
    table = read_table(X)
    assert table.toarray().tolist() == [[2, 0]]
    assert X.data.tolist() == [1, 1]


# -- input is left alone ---------------------------------------------------------------------------


def test_read_only_memmap(tmp_path):
    np.save(tmp_path / "X.npy", np.array([[0.5, 1], [2, 3]]))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    table = read_table(X, kinds={1: "categorical"})
    assert type(table.values) is np.ndarray
    np.testing.assert_array_equal(table.values, [[0.5, 0], [2, 1]])
    np.testing.assert_array_equal(read_table(X).values, X)


@pytest.mark.parametrize("dtype", [object, float, np.float32, np.int8, bool])
def test_input_is_not_modified(dtype):
    X = np.array([[1, 0], [0, 1], [1, 1]], dtype=dtype)
    X.flags.writeable = False
    table = read_table(X)
    np.testing.assert_array_equal(table.values, X.astype(float))
    assert table.values.flags.c_contiguous
    assert table.values.dtype == np.float64


def test_a_table_that_was_read_is_taken_as_it_is():
    columns = {"colour": ["red", "blue", "red"], "n": [0, 1, 3]}
    table = read_table(columns)
    assert read_table(table) is table
    assert table.schema.encode(table) is table.values
    part = Table(table.values[:2], table.schema)  # lacks the count above one
    assert table.schema.encode(part).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    other = read_table({"colour": ["red", "green"], "n": [0, 1]})
    with pytest.raises(BhclustError, match="other names, kinds or categories"):
        table.schema.encode(other)
    with pytest.raises(BhclustError, match="2 features"):
        table.schema.encode(read_table([[1.0]]))
