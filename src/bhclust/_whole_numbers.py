"""Columns of whole numbers: which are counts, and which are measurements that were rounded.

An age, a year, a price or a grey level is a whole number too, but nothing that a Poisson
distribution can describe: its variance is not its mean. Taken for a count, a column of large and
widely spread numbers tears every cluster apart, and one of large and close numbers tells none from
another. So ``model="auto"`` asks the data: within groups of a sample that were found without the
question, is the column a normal or a Poisson variable?
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bhclust import posterior
from bhclust._validation import FloatArray, IntArray
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess
from bhclust.models.base import ClusterModel
from bhclust.models.discrete import Bernoulli, Categorical, Poisson
from bhclust.models.gaussian import DiagonalGaussian
from bhclust.models.product import Mixed
from bhclust.randomised import Items, pooled_by_label
from bhclust.tables import Table

# The groups need a tree of a sample only, whose time is that of n² d numbers; a wide table has much
# to say in few rows.
_MOST_ROWS, _FEWEST_ROWS, _MOST_WORK = 300, 60, 5_000_000

# With more columns than this, one among them says little about the groups; up to there, each has a
# tree of its own.
_NARROW, _NARROW_ROWS = 8, 150

# A whole number is a count until its column says otherwise at odds of twenty to one.
LOG_ODDS = float(np.log(20.0))

_MODELS: dict[str, type[ClusterModel]] = {
    "binary": Bernoulli,
    "categorical": Categorical,
    "real": DiagonalGaussian,
}


def settle_whole_numbers(table: Table, weight: FloatArray) -> Table:
    """Return the table with the kind ``"real"`` for counts that are rather measurements.

    Only columns whose kind was inferred are looked at; a sparse table keeps its kinds.

    Parameters
    ----------
    table : Table
        As `bhclust.tables.read_table` returns it.
    weight : array of shape (n_rows,)
        Multiplicities of the rows.

    Returns
    -------
    Table
        With the same values.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tables import read_table
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.poisson(2.0, 200), rng.integers(1990, 2020, 200)])
    >>> settle_whole_numbers(read_table(X), np.ones(200)).schema.kinds
    ('count', 'real')
    """
    open_columns = np.flatnonzero(
        [
            inferred and column.kind == "count"
            for column, inferred in zip(table.columns, table.inferred, strict=True)
        ]
        if table.inferred
        else []
    )
    if not len(open_columns) or sparse.issparse(table.values):
        return table
    gain = measurement_gains(table, weight, open_columns)
    measured = set(open_columns[gain > LOG_ODDS].tolist())
    columns = tuple(
        column._replace(kind="real") if j in measured else column
        for j, column in enumerate(table.columns)
    )
    return replace(table, schema=replace(table.schema, columns=columns))


def measurement_gains(table: Table, weight: FloatArray, counts: IntArray) -> FloatArray:
    """Return the log Bayes factor of "measurement" against "count" of some columns.

    A measurement x that was rounded lies anywhere between x − ½ and x + ½; a point drawn from
    there makes the density of a normal distribution and the probability of a whole number
    comparable (the expected log density of the point is at most the log probability of x). Both
    have the priors that the library gives them by default, within the same groups: the most
    probable clusters of a sample's tree, in which all numbers are normal. Were each family given
    groups of its own, Poisson clusters of one or two rows would fit anything. In a narrow table
    a column has a large part in the groups, which then are split at its gaps; so there the groups
    that the other columns make by themselves must agree: the smaller of both factors counts.

    Parameters
    ----------
    table : Table
        A dense table.
    weight : array of shape (n_rows,)
        Multiplicities of the rows.
    counts : array of int
        Positions of the columns in question.

    Returns
    -------
    array of shape (n_counts,)
    """
    rng = np.random.default_rng(0)
    rows = sample_rows(weight, table.shape[1], rng)
    items = Items(np.asarray(table.values)[rows], weight[rows], table.columns)
    spread = items.values.copy()
    spread[:, counts] += rng.random((len(rows), len(counts))) - 0.5
    measured = replace(items, values=spread)

    def gains(label: npt.NDArray[np.intp]) -> FloatArray:
        normal = _log_marginal(DiagonalGaussian(), measured, counts, label)
        return normal - _log_marginal(Poisson(), items, counts, label)

    columns = np.arange(table.shape[1])
    found = gains(_groups(measured, columns))
    if len(columns) <= _NARROW:
        by_others = [gains(_groups(measured, np.delete(columns, j))) for j in counts]
        found = np.minimum(found, np.diagonal(by_others))
    return found


def sample_rows(weight: FloatArray, n_columns: int, rng: np.random.Generator) -> IntArray:
    """Return rows to ask: few enough for the trees of them to cost next to nothing."""
    rows = np.flatnonzero(weight > 0)
    size = _NARROW_ROWS
    if n_columns > _NARROW:
        size = int(np.clip(np.sqrt(_MOST_WORK / n_columns), _FEWEST_ROWS, _MOST_ROWS))
    return rows if len(rows) <= size else np.sort(rng.choice(rows, size, replace=False))


def _groups(items: Items, columns: IntArray) -> npt.NDArray[np.intp]:
    """Return the most probable clusters of the rows by some columns, every number normal."""
    if not len(columns):
        return np.zeros(len(items), dtype=np.intp)
    kinds = np.array(["real" if c.kind == "count" else c.kind for c in items.columns])[columns]
    parts = [
        (model(), np.flatnonzero(kinds == kind).tolist())
        for kind, model in _MODELS.items()
        if (kinds == kind).any()
    ]
    values = np.ascontiguousarray(items.values[:, columns])
    records = [items.columns[j] for j in columns]
    model = Mixed(parts).for_columns(records).resolve(values, items.weight)
    stats = replace(items, values=values).stats(model)
    # The engine for any model: the sample is small, and nothing has to be compiled for it.
    found = agglomerate(model, stats, DirichletProcess(), weight=items.weight, engine="numpy")
    return posterior.cut(found.tree)


def _log_marginal(
    model: DiagonalGaussian | Poisson,
    items: Items,
    columns: IntArray,
    label: npt.NDArray[np.intp],
) -> FloatArray:
    """Return log f of each of the columns, summed over the groups."""
    chosen = replace(items, values=np.ascontiguousarray(items.values[:, columns]))
    resolved = model.resolve(chosen.values, items.weight)
    pooled = pooled_by_label(resolved, chosen, np.arange(len(items)), label)
    return np.asarray(resolved.feature_log_marginal(pooled).sum(axis=0))
