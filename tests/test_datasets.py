"""Generators have the structure they promise."""

from __future__ import annotations

import numpy as np
import pytest

from bhclust import datasets
from bhclust._validation import BhclustError, FileFormatError
from bhclust.tables import read_table


def test_blocks_are_the_toy_set_of_the_paper():
    X, y = datasets.make_blocks(random_state=0)
    assert X.shape == (48, 12)
    assert np.bincount(y).tolist() == [16, 16, 16]
    for block in range(3):
        own = np.arange(12) // 4 == block
        assert not X[y == block][:, ~own].any()
        assert 0.6 < X[y == block][:, own].mean() < 0.95


def test_blocks_of_other_shapes():
    X, _ = datasets.make_blocks(2, 3, 7, probability=1.0)
    assert X.sum(axis=0).tolist() == [2] * 7
    with pytest.raises(BhclustError, match="n_features must be a whole number, at least 3"):
        datasets.make_blocks(n_features=2)


def test_gaussian_tree_levels_are_nested():
    X, levels, y = datasets.make_gaussian_tree(4, (2, 3, 2), 5, random_state=1)
    assert X.shape == (48, 5)
    assert (levels.max(axis=0) + 1).tolist() == [2, 6, 12]
    np.testing.assert_array_equal(levels[:, -1], y)
    for coarse, fine in zip(levels.T, levels.T[1:], strict=False):
        assert all(len(set(coarse[fine == label])) == 1 for label in set(fine))
    # Points are nearer to their own finest centre than the centres are to each other.
    centres = np.array([X[y == label].mean(axis=0) for label in range(12)])
    assert np.abs(X - centres[y]).mean() < np.abs(centres[:, None] - centres).mean()
    with pytest.raises(BhclustError, match="length of branching"):
        datasets.make_gaussian_tree(branching=())
    with pytest.raises(BhclustError, match="every entry of branching"):
        datasets.make_gaussian_tree(branching=(2, 0))


def test_mixed_table_has_all_kinds_and_holes():
    columns, y = datasets.make_mixed_table(2000, 0.1, random_state=0)
    table = read_table(columns)
    kinds = dict(zip(table.schema.names, table.schema.kinds, strict=True))
    assert kinds == {
        "age": "real",
        "spend": "real",
        "visits_per_month": "count",
        "party_size": "count",
        "newsletter": "binary",
        "pays_by_card": "binary",
        "time_of_day": "categorical",
        "favourite_drink": "categorical",
    }
    assert np.isnan(table.values).mean() == pytest.approx(0.1, abs=0.01)
    assert set(y) == {0, 1, 2, 3}
    assert np.nanmean(table.values[y == 0, 0]) == pytest.approx(58, abs=1)


def test_mixed_table_extremes():
    assert not np.isnan(read_table(datasets.make_mixed_table(20, 0.0).columns).values).any()
    assert np.isnan(read_table(datasets.make_mixed_table(20, 1.0).columns).values).all()
    with pytest.raises(BhclustError, match="missing must lie between 0 and 1"):
        datasets.make_mixed_table(missing=1.5)


@pytest.mark.parametrize(
    "make", [datasets.make_blocks, datasets.make_gaussian_tree, datasets.make_mixed_table]
)
def test_randomness_is_an_argument(make):
    same = [make(random_state=seed) for seed in (3, 3, np.random.default_rng(3))]
    other = make(random_state=4)
    assert str(same[0]) == str(same[1]) == str(same[2]) != str(other)


@pytest.mark.parametrize("name", datasets.EXAMPLES)
def test_examples_are_tables(name):
    example = datasets.load_example(name)
    assert read_table(example.columns).shape == (len(example.y), len(example.columns))
    assert str(datasets.load_example(name)) == str(example)


def test_unknown_example():
    with pytest.raises(BhclustError, match="must be one of 'mixed'"):
        datasets.load_example("irises")


def test_paper_data(tmp_path, monkeypatch):
    monkeypatch.delenv("BHCLUST_DATA", raising=False)
    with pytest.raises(BhclustError, match="set the environment variable BHCLUST_DATA"):
        datasets.load_paper_data("zoo")
    monkeypatch.setenv("BHCLUST_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BhclustError, match="not a folder"):
        datasets.data_folder()
    monkeypatch.setenv("BHCLUST_DATA", str(tmp_path))
    np.savez(tmp_path / "zoo.npz", X=np.eye(2))
    np.testing.assert_array_equal(datasets.load_paper_data("zoo")["X"], np.eye(2))
    for name in ("ark", "../zoo"):
        with pytest.raises(BhclustError, match=r"no data set .* it holds 'zoo'"):
            datasets.load_paper_data(name)
    np.savez(tmp_path / "objects.npz", X=np.array([{}], dtype=object))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not an archive")
    for name in ("objects", "broken"):
        with pytest.raises(FileFormatError, match="cannot be read"):
            datasets.load_paper_data(name)
