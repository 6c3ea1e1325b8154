"""Randomised trees on Dask: the local tree, whatever the number of workers, and whoever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust._coordinates import Prior
from bhclust.distributed import fit_distributed
from bhclust.metrics import dendrogram_purity
from bhclust.models import Bernoulli
from bhclust.randomised import Items, RandomisedSearch, Sizes
from tests.test_randomised import blocks

dask_array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

HOW = {"learn": False, "sample_size": 150, "part_size": 300, "learn_rows": 300, "random_state": 4}


def cluster(n_workers, memory_limit="600MB"):
    """Return a cluster of single-threaded processes on this machine."""
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        memory_limit=memory_limit,
        dashboard_address=None,
    )


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster(2) as two, distributed.Client(two) as connected:
            yield connected


def table(n=4000):
    X, y = blocks(n, np.random.default_rng(1), noise=0.12, n_classes=10)
    return X.astype(np.uint8), y


def seed_of(estimator):
    """Return the seed of the tree: the second number that the estimator's source draws."""
    rng = estimator._rng()
    return int(rng.integers(2**63, size=2)[1])


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
@pytest.mark.filterwarnings("ignore")
def test_the_tree_is_that_of_one_machine(client, kind):
    X, y = table()
    fitted = kind("bernoulli", **HOW)
    fit_distributed(fitted, dask_array.from_array(X, chunks=(700, -1)), client=client)
    prior = Prior(fitted.model_, fitted.mixing_)
    local = RandomisedSearch(
        prior,
        Items(X.astype(float), np.ones(len(X))),
        Sizes(150, 300),
        rose=kind is BayesianRoseTree,
        seed=seed_of(fitted),
    ).run()
    nodes = {tuple(fitted.tree_.leaves(k)) for k in range(len(X), fitted.tree_.n_nodes)}
    assert nodes == {tuple(local.leaves(k)) for k in range(len(X), local.n_nodes)}
    assert fitted.log_evidence_ == pytest.approx(local.log_evidence[-1], rel=1e-9)
    assert dendrogram_purity(fitted.tree_, y) > dendrogram_purity(local, y) - 1e-9
    assert np.mean(fitted.predict(X[:300]) == fitted.labels_[:300]) > 0.9
    for label in range(3):
        ones = X[fitted.labels_ == label].sum(axis=0)
        np.testing.assert_allclose(fitted.cluster_tree_.stats[label, : X.shape[1]], ones)
    costs = fitted.costs_
    assert (costs.rows, costs.partitions) == (4000, 6)
    assert costs.moved_bytes == X.nbytes
    assert 0 < costs.sample_bytes < 2 * X.nbytes


@pytest.mark.filterwarnings("ignore")
def test_four_workers_and_a_lost_one_give_the_same_tree(client):
    X, _ = table(6000)
    data = dask_array.from_array(X, chunks=(500, -1))
    two = BayesianHierarchicalClustering("bernoulli", **HOW)
    fit_distributed(two, data, client=client)
    with cluster(4) as four, distributed.Client(four) as other:
        again = BayesianHierarchicalClustering("bernoulli", **HOW)
        fit_distributed(again, data, client=other)
        assert again.tree_.parent.tolist() == two.tree_.parent.tolist()
        np.testing.assert_array_equal(again.tree_.log_marginal, two.tree_.log_marginal)
        third = BayesianHierarchicalClustering("bernoulli", **HOW)
        victim = next(iter(other.run(os.getpid).values()))
        killed = threading.Thread(target=_kill_when_busy, args=(other, victim))
        killed.start()
        fit_distributed(third, data, client=other)
        killed.join()
        assert not _is_running(victim)
        assert third.tree_.parent.tolist() == two.tree_.parent.tolist()


def _kill_when_busy(client, pid):
    """End a worker once it has been handed work for a while."""
    for _ in range(2000):
        if any(client.processing().values()):
            break
        time.sleep(0.005)
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.filterwarnings("ignore")
def test_data_frames_and_parquet_files(client, tmp_path):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(2)
    y = rng.integers(3, size=900)
    frame = pandas.DataFrame(
        {
            "size": y * 4.0 + rng.normal(size=900),
            "colour": pandas.Categorical(np.array(["red", "green", "blue"])[y]),
            "heavy": (y > 0) ^ (rng.random(900) < 0.05),
        }
    )
    how = {**HOW, "sample_size": 60, "part_size": 100}
    paths = []
    for part in range(3):
        paths.append(tmp_path / f"{part}.parquet")
        frame.iloc[part * 300 : part * 300 + 300].to_parquet(paths[-1])
    from_files = fit_distributed(BayesianHierarchicalClustering(**how), paths, client=client)
    dask_frame = frames.from_pandas(frame, npartitions=3)
    from_frame = fit_distributed(BayesianHierarchicalClustering(**how), dask_frame, client=client)
    assert from_files.tree_.parent.tolist() == from_frame.tree_.parent.tolist()
    assert dendrogram_purity(from_files.tree_, y) > 0.95
    assert from_files.predict(frame.iloc[:10]).shape == (10,)


def test_bad_input_is_named(client):
    with pytest.raises(ValueError, match="takes a two-dimensional"):
        fit_distributed(BayesianHierarchicalClustering(), np.eye(3), client=client)
    with pytest.raises(ValueError, match="takes a BayesianHierarchicalClustering"):
        fit_distributed(Bernoulli(), [], client=client)
