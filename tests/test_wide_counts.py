"""Which model ``model="auto"`` takes for wide tables of counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust._wide_counts import _log_negative_binomial, gain_of_shares, suited_model
from bhclust.models import Mixed, Multinomial, Poisson
from bhclust.tables import read_table

RNG = np.random.default_rng(3)
LABEL = RNG.integers(4, size=120)
SHARES = RNG.gamma(0.3, 1.0, size=(4, 80))
LENGTHS = RNG.choice([0.5, 3.0, 12.0], size=(120, 1))
DOCUMENTS = RNG.poisson(LENGTHS * SHARES[LABEL]).astype(int)
COUNTS = RNG.poisson(4 * SHARES[LABEL] + 1).astype(int)


def model_of(X, kinds="count"):
    # Columns of zeros and ones would be taken for binary ones.
    return type(BayesianHierarchicalClustering(column_kinds=kinds).fit(X).model_)


def asked(X):
    return read_table(X, kinds="count")


def test_the_gain_is_a_difference_of_evidence():
    """By another route: fits of the estimator, and SciPy's negative binomial."""
    for X in (DOCUMENTS, COUNTS):
        evidence = {
            name: BayesianHierarchicalClustering(name, learn=False, strategy="greedy")
            .fit(X)
            .log_evidence_
            for name in ("multinomial", "poisson")
        }
        totals = X.sum(axis=1)
        mean, variance = totals.mean(), totals.var()
        shape, p = mean**2 / (variance - mean), mean / variance
        log_totals = stats.nbinom(shape, p).logpmf(totals).sum()
        expected = evidence["multinomial"] + log_totals - evidence["poisson"] - np.log(len(X))
        assert gain_of_shares(asked(X), np.ones(len(X))) == pytest.approx(expected, rel=1e-9)


def test_documents_of_all_lengths_are_multinomial():
    assert model_of(DOCUMENTS) is Multinomial
    words = sparse.csr_array(DOCUMENTS)
    assert model_of(words, kinds=None) is Multinomial
    assert isinstance(BayesianRoseTree().fit(words).model_, Multinomial)
    fitted = BayesianHierarchicalClustering().fit(words)
    by_count = BayesianHierarchicalClustering("poisson").fit(words)
    assert fitted.n_clusters_ == 4
    assert by_count.n_clusters_ > 4  # long and short documents apart


def test_counts_whose_totals_belong_to_the_clusters_are_poisson():
    assert model_of(COUNTS) is Poisson


def test_only_wide_complete_tables_of_counts_are_asked():
    assert model_of(DOCUMENTS[:, :63]) is Poisson
    assert model_of(DOCUMENTS[:9]) is Poisson
    holes = DOCUMENTS.astype(float)
    holes[0, 0] = np.nan
    assert model_of(holes) is Poisson
    mixed = {f"w{j}": column for j, column in enumerate(DOCUMENTS.T)}
    mixed["language"] = np.array(["a", "b"])[LABEL % 2]
    assert model_of(mixed, kinds=None) is Mixed


def test_weights_are_repeated_rows():
    weight = RNG.integers(0, 3, size=40).astype(int)
    weighted = gain_of_shares(asked(DOCUMENTS[:40]), weight)
    rows = np.repeat(np.arange(40), weight.astype(int))
    alone = weight[rows] == 1
    # The same table where no row is repeated; elsewhere the trees differ in the copies' order.
    once = gain_of_shares(asked(DOCUMENTS[rows[alone]]), np.ones(int(alone.sum())))
    part = np.where(weight == 1, 1.0, 0.0)
    assert gain_of_shares(asked(DOCUMENTS[:40]), part) == pytest.approx(once, rel=1e-9)
    assert np.sign(weighted) == np.sign(once)


def test_totals_without_over_dispersion_are_poisson():
    totals = np.array([7.0, 8.0, 9.0, 8.0])
    found = _log_negative_binomial(totals, np.ones(4))
    assert found == pytest.approx(stats.poisson(8).logpmf(totals).sum(), abs=1e-3)


def test_a_table_of_zeros_stays_poisson():
    zeros = asked(np.zeros((5, 70)))
    assert isinstance(suited_model(zeros, np.ones(5)), Poisson)
