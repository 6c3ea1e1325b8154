"""Restarts and chains through joblib: the same result wherever they run."""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import suppress

import joblib
import numpy as np
import pytest
from scipy.special import logsumexp

from bhclust import BayesianHierarchicalClustering
from bhclust.coalescent import Brownian, sample_chains, sample_trees
from bhclust.strategies import Builder
from tests.test_randomised import blocks


def leaves():
    """Return a small table as the coalescent sees it."""
    X = np.random.default_rng(0).normal(size=(5, 2))
    return Brownian(1.0).resolve(X).leaves(X)


def test_chains_are_samplers_whose_evidence_is_averaged():
    together = sample_chains(leaves(), n_chains=3, n_particles=20, rng=np.random.default_rng(1))
    alone = [
        sample_trees(leaves(), n_particles=20, rng=own) for own in np.random.default_rng(1).spawn(3)
    ]
    evidence = np.array([chain.log_evidence for chain in alone])
    assert together.log_evidence == pytest.approx(np.log(np.mean(np.exp(evidence))))
    assert len(together.trees) == 60
    assert together.weights.sum() == pytest.approx(1.0)
    # The expectation is the mean over chains weighted by their evidence.
    weight = np.exp(evidence - logsumexp(evidence))
    wanted = sum(
        w * chain.expectation(lambda tree: tree.height[-1])
        for w, chain in zip(weight, alone, strict=True)
    )
    assert together.expectation(lambda tree: tree.height[-1]) == pytest.approx(wanted)


def fit_with_restarts():
    """Return an estimator that was learned from several starts."""
    X, _ = blocks(60, np.random.default_rng(2), noise=0.2)
    return BayesianHierarchicalClustering(
        "bernoulli", learn="shared", n_restarts=2, max_iter=3, random_state=1
    ).fit(X)


def test_the_backend_does_not_matter():
    here = fit_with_restarts()
    chains_here = sample_chains(leaves(), n_chains=2, rng=np.random.default_rng(3))
    with joblib.parallel_config(backend="threading", n_jobs=2):
        there = fit_with_restarts()
        chains_there = sample_chains(leaves(), n_chains=2, rng=np.random.default_rng(3))
    assert {step.start for step in here.learning_info_.steps} == {0, 1, 2}
    assert there.tree_.parent.tolist() == here.tree_.parent.tolist()
    assert there.learning_info_ == here.learning_info_
    np.testing.assert_array_equal(there.evidence_path_, here.evidence_path_)
    assert (np.diff(here.evidence_path_) >= 0).all()
    np.testing.assert_array_equal(chains_there.weights, chains_here.weights)


def test_threads_do_not_share_what_a_builder_found(monkeypatch):
    here = fit_with_restarts()
    meeting, build = threading.Barrier(2), Builder.__call__

    def build_and_wait(self, *arguments):
        tree = build(self, *arguments)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(timeout=2)  # until another start has built a tree, too
        return tree

    monkeypatch.setattr(Builder, "__call__", build_and_wait)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        there = fit_with_restarts()
    assert there.learning_info_ == here.learning_info_


def tasks_run(client):
    """Return how many tasks the workers have run in their lives."""
    return sum(client.run(lambda dask_worker: dask_worker.state.executed_count).values())


def test_on_dask():
    distributed = pytest.importorskip("distributed")
    here = fit_with_restarts()
    chains_here = sample_chains(leaves(), n_chains=2, rng=np.random.default_rng(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as two,
            distributed.Client(two) as client,
            joblib.parallel_config(backend="dask"),
        ):
            # The workers are other processes, and they are the ones that do the work. (With one
            # worker of one thread joblib would not send it anything.)
            assert os.getpid() not in client.run(os.getpid).values()
            ran = [tasks_run(client)]
            there = fit_with_restarts()
            ran.append(tasks_run(client))
            chains_there = sample_chains(leaves(), n_chains=2, rng=np.random.default_rng(3))
            ran.append(tasks_run(client))
    assert ran[0] < ran[1] < ran[2]
    assert there.tree_.parent.tolist() == here.tree_.parent.tolist()
    assert there.learning_info_ == here.learning_info_
    np.testing.assert_array_equal(chains_there.weights, chains_here.weights)
