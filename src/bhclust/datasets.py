"""Small tables with a known structure, for demonstrations, tests and examples."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FileFormatError,
    FloatArray,
    check_choice,
    check_count,
    listed,
)

RandomState = int | np.random.Generator | None

DATA_VARIABLE = "BHCLUST_DATA"
EXAMPLES = ("mixed", "blocks", "gaussian_tree", "iris", "digits")


class LabelledArray(NamedTuple):
    """An array with the class of each row."""

    X: npt.NDArray[Any]
    y: npt.NDArray[np.int64]


class GaussianTree(NamedTuple):
    """Points with their class at each level of the true tree.

    ``levels[:, 0]`` holds the coarsest classes and ``levels[:, -1]`` the finest, ``y``.
    """

    X: FloatArray
    levels: npt.NDArray[np.int64]
    y: npt.NDArray[np.int64]


class MixedTable(NamedTuple):
    """Columns by name, None for a missing entry, with the class of each row."""

    columns: dict[str, list[Any]]
    y: npt.NDArray[np.int64]


class Example(NamedTuple):
    """A table for a demonstration: columns by name, and the class of each row."""

    columns: dict[str, Any]
    y: npt.NDArray[np.int64]


def make_blocks(
    n_per_block: int = 16,
    n_blocks: int = 3,
    n_features: int = 12,
    *,
    probability: float = 0.8,
    random_state: RandomState = None,
) -> LabelledArray:
    """Draw binary vectors whose ones appear only in the part of the vector that is their block's.

    With the defaults this is the toy set of the rose-tree paper (Blundell, Teh and Heller 2010):
    48 vectors of length 12 in three groups.

    Parameters
    ----------
    n_per_block, n_blocks, n_features : int
        Rows a group, groups, and columns; the columns are dealt out to the groups in turn.
    probability : float
        Probability of a one within the own part.
    random_state : int, Generator or None
        Seed or source of randomness.

    Returns
    -------
    LabelledArray
        ``X`` of 0 and 1 as int8, and ``y``.

    Examples
    --------
    >>> from bhclust.datasets import make_blocks
    >>> make_blocks(random_state=0).X.shape
    (48, 12)
    """
    check_count(n_per_block, name="n_per_block", owner="make_blocks")
    check_count(n_blocks, name="n_blocks", owner="make_blocks")
    check_count(n_features, name="n_features", owner="make_blocks", lowest=n_blocks)
    rng = np.random.default_rng(random_state)
    y = np.repeat(np.arange(n_blocks), n_per_block)
    owner = np.arange(n_features) * n_blocks // n_features
    ones = rng.random((len(y), n_features)) < probability
    X = (ones & (y[:, None] == owner)).astype(np.int8)
    return LabelledArray(X, y)


def make_gaussian_tree(
    n_per_leaf: int = 10,
    branching: Sequence[int] = (3, 2),
    n_features: int = 2,
    *,
    separation: float = 6.0,
    random_state: RandomState = None,
) -> GaussianTree:
    """Draw nested Gaussian clusters: groups of groups of points.

    The centre of a node is drawn around its parent's centre with a standard deviation of
    ``separation`` to the power of the levels below it; points have unit variance.

    Parameters
    ----------
    n_per_leaf : int
        Points a finest cluster.
    branching : sequence of int
        Children of each node, from the root down.
    n_features : int
        Dimensions.
    separation : float
        Ratio of the spreads of neighbouring levels.
    random_state : int, Generator or None
        Seed or source of randomness.

    Returns
    -------
    GaussianTree

    Examples
    --------
    >>> from bhclust.datasets import make_gaussian_tree
    >>> sample = make_gaussian_tree(5, (2, 3), random_state=0)
    >>> sample.X.shape, sample.levels.max(axis=0) + 1
    ((30, 2), array([2, 6]))
    """
    check_count(n_per_leaf, name="n_per_leaf", owner="make_gaussian_tree")
    check_count(len(branching), name="the length of branching", owner="make_gaussian_tree")
    for arity in branching:
        check_count(arity, name="every entry of branching", owner="make_gaussian_tree")
    rng = np.random.default_rng(random_state)
    centres = np.zeros((1, n_features))
    for level, arity in enumerate(branching):
        spread = separation ** (len(branching) - level)
        centres = np.repeat(centres, arity, axis=0)
        centres = centres + spread * rng.normal(size=centres.shape)
    y = np.repeat(np.arange(len(centres)), n_per_leaf)
    n_below = [int(np.prod(branching[level + 1 :])) for level in range(len(branching))]
    levels = np.stack([y // below for below in n_below], axis=1)
    return GaussianTree(centres[y] + rng.normal(size=(len(y), n_features)), levels, y)


# One entry a cluster: regular guests, families, tourists, night owls.
_SHARES = (0.35, 0.3, 0.2, 0.15)
_AGE = ((58.0, 8.0), (41.0, 6.0), (30.0, 9.0), (23.0, 3.0))
_SPEND = ((11.0, 3.0), (46.0, 9.0), (27.0, 7.0), (18.0, 4.0))
_VISITS = (14.0, 4.0, 0.7, 7.0)
_PARTY = (1.2, 4.5, 2.5, 3.0)
_NEWSLETTER = (0.85, 0.55, 0.05, 0.2)
_CARD = (0.15, 0.7, 0.95, 0.9)
_TIMES = ("morning", "noon", "afternoon", "evening")
_TIME = ((0.7, 0.15, 0.1, 0.05), (0.05, 0.6, 0.3, 0.05), (0.3, 0.3, 0.3, 0.1), (0, 0.05, 0.1, 0.85))
_DRINKS = ("coffee", "tea", "juice", "beer")
_DRINK = ((0.8, 0.15, 0.04, 0.01), (0.3, 0.1, 0.55, 0.05), (0.6, 0.2, 0.1, 0.1), (0.1, 0, 0.1, 0.8))


def make_mixed_table(
    n: int = 200, missing: float = 0.1, *, random_state: RandomState = None
) -> MixedTable:
    """Draw a table of café guests: reals, counts, yes/no and categories, with holes.

    There are four kinds of guests: regulars, families, tourists and night owls.

    Parameters
    ----------
    n : int
        Rows.
    missing : float
        Probability that an entry is missing.
    random_state : int, Generator or None
        Seed or source of randomness.

    Returns
    -------
    MixedTable

    Examples
    --------
    >>> from bhclust.datasets import make_mixed_table
    >>> table = make_mixed_table(50, random_state=0)
    >>> list(table.columns)[:3], len(table.columns["age"])
    (['age', 'spend', 'visits_per_month'], 50)
    """
    check_count(n, name="n", owner="make_mixed_table")
    if not 0 <= missing <= 1:
        raise BhclustError(f"make_mixed_table: missing must lie between 0 and 1, got {missing!r}.")
    rng = np.random.default_rng(random_state)
    y = rng.choice(len(_SHARES), size=n, p=_SHARES)
    complete: dict[str, list[Any]] = {
        "age": _normal(rng, _AGE, y),
        "spend": _normal(rng, _SPEND, y),
        "visits_per_month": rng.poisson(np.take(_VISITS, y)).tolist(),
        "party_size": (1 + rng.poisson(np.take(_PARTY, y) - 1 + 1e-9)).tolist(),
        "newsletter": (rng.random(n) < np.take(_NEWSLETTER, y)).tolist(),
        "pays_by_card": (rng.random(n) < np.take(_CARD, y)).tolist(),
        "time_of_day": _choices(rng, _TIMES, _TIME, y),
        "favourite_drink": _choices(rng, _DRINKS, _DRINK, y),
    }
    columns = {
        name: [None if hole else value for value, hole in zip(values, holes, strict=True)]
        for (name, values), holes in zip(
            complete.items(), rng.random((len(complete), n)) < missing, strict=True
        )
    }
    return MixedTable(columns, y)


def _normal(
    rng: np.random.Generator, parameters: Sequence[tuple[float, float]], y: npt.NDArray[np.int64]
) -> list[float]:
    mean, deviation = np.array(parameters)[y].T
    values: list[float] = np.round(rng.normal(mean, deviation), 1).tolist()
    return values


def _choices(
    rng: np.random.Generator,
    options: Sequence[str],
    probabilities: Sequence[Sequence[float]],
    y: npt.NDArray[np.int64],
) -> list[str]:
    """Draw one option a row by inverting the cumulative probabilities of its cluster."""
    cumulative = np.cumsum(probabilities, axis=1)[y]
    drawn = (rng.random((len(y), 1)) > cumulative[:, :-1]).sum(axis=1)
    return [options[i] for i in drawn]


def load_example(name: str) -> Example:
    """Return a small table by name: always the same one.

    Parameters
    ----------
    name : {"mixed", "blocks", "gaussian_tree", "iris", "digits"}
        "iris" and "digits" are scikit-learn's; the others are drawn with a fixed seed.

    Returns
    -------
    Example
        Columns by name, and the class of each row.

    Examples
    --------
    >>> from bhclust.datasets import load_example
    >>> list(load_example("iris").columns)[0]
    'sepal length (cm)'
    """
    check_choice(name, EXAMPLES, name="name", owner="load_example")
    if name == "mixed":
        mixed = make_mixed_table(random_state=0)
        return Example(dict(mixed.columns), mixed.y)
    if name == "blocks":
        return _numbered(*make_blocks(random_state=0))
    if name == "gaussian_tree":
        tree = make_gaussian_tree(random_state=0)
        return _numbered(tree.X, tree.y)
    from sklearn import datasets

    bunch = datasets.load_iris() if name == "iris" else datasets.load_digits()
    columns = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    return Example(columns, np.asarray(bunch.target, dtype=np.int64))


def _numbered(X: npt.NDArray[Any], y: npt.NDArray[np.int64]) -> Example:
    return Example({f"x{j}": X[:, j] for j in range(X.shape[1])}, y)


def data_folder() -> Path:
    """Return the folder of the papers' data sets, which the variable BHCLUST_DATA names."""
    value = os.environ.get(DATA_VARIABLE, "")
    if not value:
        raise BhclustError(
            f"the papers' data sets are not part of the package: set the environment variable "
            f"{DATA_VARIABLE} to the folder that holds their .npz files."
        )
    folder = Path(value)
    if not folder.is_dir():
        raise BhclustError(f"{DATA_VARIABLE} names {value!r}, which is not a folder.")
    return folder


def load_paper_data(name: str) -> Mapping[str, npt.NDArray[Any]]:
    """Read the arrays of one of the papers' data sets from the folder of `data_folder`.

    Parameters
    ----------
    name : str
        Name of the file without ``.npz``.

    Returns
    -------
    mapping of str to array
    """
    folder = data_folder()
    path = folder / f"{name}.npz"
    if path.parent != folder or not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.npz"))
        raise BhclustError(
            f"there is no data set {name!r} in {DATA_VARIABLE}; it holds {listed(known, 50)}."
        )
    try:
        # NumPy does not close a file that it opened and could not read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {key: content[key] for key in content.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"the data set {name!r} cannot be read: {error}.") from error
