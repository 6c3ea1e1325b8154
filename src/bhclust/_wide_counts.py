"""Wide tables of counts: does a row's total say anything about its cluster?

The words of a document, the reads of a sample, what a customer bought: rows of very different
totals are alike in their shares. Independent Poisson columns would have to explain the totals by
the clusters, and tell long documents from short ones. So ``model="auto"`` compares both kinds of
model by their evidence on a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from bhclust._fixed_tree import FixedTree, evaluate
from bhclust._validation import FloatArray
from bhclust._whole_numbers import LOG_ODDS, sample_rows
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess
from bhclust.models import ClusterModel, Multinomial, Poisson, choose_model
from bhclust.randomised import Items
from bhclust.tables import Table

# A few counts side by side are rather quantities of their own than parts of a whole, and the
# totals of a few rows can be anything.
_FEWEST_COLUMNS, _FEWEST_ROWS = 64, 10


def suited_model(table: Table, weight: FloatArray) -> ClusterModel:
    """Return the model that ``model="auto"`` stands for.

    It is that of `bhclust.models.choose_model`, but for wide complete tables of nothing but counts:
    `Multinomial` where the evidence speaks for it at odds of twenty to one.

    Parameters
    ----------
    table : Table
        With the kinds of columns settled.
    weight : array of shape (n_rows,)
        Multiplicities of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tables import read_table
    >>> rng = np.random.default_rng(0)
    >>> shares = rng.dirichlet(np.ones(80), size=2).repeat(20, axis=0)
    >>> lengths = rng.choice([50, 1000], size=40)
    >>> documents = read_table(rng.poisson(lengths[:, None] * shares))
    >>> suited_model(documents, np.ones(40))
    Multinomial(concentration=None, row_total=None)
    """
    model = choose_model(table.columns, table.values, weight)
    wide = table.shape[1] >= _FEWEST_COLUMNS and (weight > 0).sum() >= _FEWEST_ROWS
    asked = wide and isinstance(model, Poisson) and _is_complete(table)
    if asked and gain_of_shares(table, weight) > LOG_ODDS:
        return Multinomial()
    return model


def gain_of_shares(table: Table, weight: FloatArray) -> float:
    """Return the log odds of "shares alone make the clusters" against "every count does".

    The first is a `Multinomial` given the totals of rows, which are negative binomial whatever the
    cluster, with the parameters of their mean and variance; the second independent `Poisson`
    columns. Each has its default prior, and the evidence of the greedy tree of a sample. The two
    parameters of the totals cost what the Bayesian information criterion says.

    Parameters
    ----------
    table : Table
        Counts without holes.
    weight : array of shape (n_rows,)
        Multiplicities of the rows.
    """
    rows = sample_rows(weight, table.shape[1], np.random.default_rng(0))
    values: Any = table.values[rows]
    dense = np.asarray(values.toarray() if sparse.issparse(values) else values)
    if not dense.any():
        return 0.0  # neither has anything to explain
    items = Items(dense, weight[rows], table.columns)
    totals = _log_negative_binomial(dense.sum(axis=1), items.weight)
    gain = _evidence(Multinomial(), items) + totals - _evidence(Poisson(), items)
    return float(gain - np.log(items.weight.sum()))


def _is_complete(table: Table) -> bool:
    values = table.values.data if sparse.issparse(table.values) else table.values
    return not np.isnan(values).any()


def _evidence(model: ClusterModel, items: Items) -> float:
    resolved = model.for_columns(items.columns).resolve(items.values, items.weight)
    mixing = DirichletProcess()
    # The engine for any model: the sample is small, and nothing has to be compiled for it.
    found = agglomerate(
        resolved, items.stats(resolved), mixing, weight=items.weight, engine="numpy"
    )
    return evaluate(FixedTree.of(found.tree), resolved, mixing).value


def _log_negative_binomial(totals: FloatArray, weight: FloatArray) -> float:
    """Return the log probability of totals with the mean and the variance that they have."""
    mean = float(np.average(totals, weights=weight))
    variance = float(np.average(np.square(totals - mean), weights=weight))
    # Without over-dispersion this is as good as a Poisson distribution.
    shape = mean * mean / max(variance - mean, 1e-6 * mean)
    log_p = gammaln(shape + totals) - gammaln(shape) - gammaln(totals + 1)
    log_p += totals * np.log(mean / (shape + mean)) - shape * np.log1p(mean / shape)
    return float(weight @ log_p)
