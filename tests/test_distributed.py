"""Randomised trees on Dask: the local tree, whatever the number of workers, and whoever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, _partitions
from bhclust import distributed as distributed_fit
from bhclust._coordinates import Prior
from bhclust._partitions import Piece, opened, pieces_of
from bhclust.distributed import _Sources, fit_distributed
from bhclust.metrics import dendrogram_purity
from bhclust.models import Bernoulli
from bhclust.randomised import Items, RandomisedSearch, Sizes
from tests.test_randomised import blocks, topics

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
        seen = {}
        killed = threading.Thread(target=_kill_when_fitting, args=(other, victim, seen))
        killed.start()
        fit_distributed(third, data, client=other)
        killed.join()
        # The worker was lost in the middle, with results that had to be made again.
        assert seen["held"] > 0
        assert not _is_running(victim)
        assert third.tree_.parent.tolist() == two.tree_.parent.tolist()


def _kill_when_fitting(client, pid, seen):
    """End a worker when it fits parts: it then holds the parts of its rows, which took passes."""
    address = next(a for a, p in client.run(os.getpid).items() if p == pid)
    for _ in range(20_000):
        if any("fit_bin" in str(key) for key in client.processing().get(address, ())):
            seen["held"] = len(client.has_what()[address])
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.002)


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


@pytest.mark.filterwarnings("ignore")
def test_rows_travel_in_rounds_that_fit_into_memory(client, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    X, _ = table(3000)
    frame = pandas.DataFrame(X.astype(float))
    frame.columns = [f"x{j}" for j in range(X.shape[1])]
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    frame.iloc[:2000].to_parquet(paths[0], row_group_size=300)
    frame.iloc[2000:].to_parquet(paths[1], row_group_size=300)
    one = fit_distributed(BayesianHierarchicalClustering("bernoulli", **HOW), paths, client=client)
    assert one.costs_.partitions == 2
    # Row groups apart, and room for a tenth of the table: the same tree, in more readings.
    monkeypatch.setattr(distributed_fit, "_SHARE_ON_ITS_WAY", 0.1 * X.size * 8 / 1.2e9)
    pieces = [
        Piece(str(path), (k,)) for path, n in zip(paths, (7, 4), strict=True) for k in range(n)
    ]
    counts = [300] * 6 + [200] + [300] * 3 + [100]
    monkeypatch.setattr(distributed_fit, "_sources", lambda *_: _Sources(pieces, counts))
    many = fit_distributed(BayesianHierarchicalClustering("bernoulli", **HOW), paths, client=client)
    assert many.costs_.partitions == 11
    assert many.costs_.rounds > one.costs_.rounds + 8
    assert many.costs_.passes - many.costs_.rounds == one.costs_.passes - one.costs_.rounds
    assert many.costs_.moved_bytes == one.costs_.moved_bytes == X.size * 8
    sets = [{tuple(t.leaves(k)) for k in range(3000, t.n_nodes)} for t in (one.tree_, many.tree_)]
    assert sets[0] == sets[1]


@pytest.mark.filterwarnings("ignore")
def test_large_files_are_read_by_row_groups(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(100.0), "b": np.arange(100) % 3 == 0})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=30)
    assert [n for _, n in pieces_of(str(tmp_path / "a.parquet"))] == [100]
    monkeypatch.setattr(_partitions, "_PIECE_NUMBERS", 130)
    pieces = pieces_of(str(tmp_path / "a.parquet"))
    assert [n for _, n in pieces] == [60, 40]
    again = pandas.concat([opened(piece) for piece, _ in pieces], ignore_index=True)
    pandas.testing.assert_frame_equal(again, frame)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ["multinomial", "bernoulli", "poisson"])
def test_sparse_blocks_stay_sparse(client, model):
    counts, y = topics(900, 120)
    if model == "bernoulli":
        counts.data[:] = 1.0
    blocks_of = dask_array.from_array(np.arange(900)[:, None], chunks=(250, 1))
    data = blocks_of.map_blocks(
        lambda rows: counts[rows[:, 0]], dtype=float, chunks=((250, 250, 250, 150), (120,))
    )
    fitted = BayesianHierarchicalClustering(model, **HOW)
    fit_distributed(fitted, data, client=client)
    prior = Prior(fitted.model_, fitted.mixing_)
    how = {"rose": False, "seed": seed_of(fitted)}
    local = RandomisedSearch(prior, Items(counts, np.ones(900)), Sizes(150, 300), **how).run()
    sets = [{tuple(t.leaves(k)) for k in range(900, t.n_nodes)} for t in (fitted.tree_, local)]
    assert sets[0] == sets[1]
    assert fitted.schema_.container == "sparse"
    # What travelled is the sparse rows: numbers, places, and where rows begin.
    assert fitted.costs_.moved_bytes < 0.5 * 900 * 120 * 8
    assert dendrogram_purity(fitted.tree_, y) > 0.9


@pytest.mark.filterwarnings("ignore")
def test_of_several_seeds_the_best_is_kept(client):
    X, _ = table(1500)
    data = dask_array.from_array(X, chunks=(400, -1))
    how = {**HOW, "sample_size": 60, "part_size": 100}
    one = BayesianHierarchicalClustering("bernoulli", **how)
    three = BayesianHierarchicalClustering("bernoulli", n_seeds=3, **how)
    fit_distributed(one, data, client=client)
    fit_distributed(three, data, client=client)
    assert three.costs_.passes > 2 * one.costs_.passes
    assert three.log_evidence_bound_ >= one.log_evidence_bound_


def test_bad_input_is_named(client, tmp_path):
    fine = BayesianHierarchicalClustering()
    for data, message in (
        (np.eye(3), "takes a two-dimensional .*wrap an array with dask.array.from_array"),
        (dask_array.zeros(4), "takes a two-dimensional"),
        ([], "got a list with nothing"),
        (["a.parquet", 3], "got a list with an entry of type int"),
        ([tmp_path / "none.parquet"], "cannot read .*none.parquet.*give paths of Parquet files"),
        (dask_array.zeros((0, 3)), "the table has no rows"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_distributed(fine, data, client=client)
    data = dask_array.zeros((4, 3))
    for estimator, message in (
        (Bernoulli(), "takes a BayesianHierarchicalClustering"),
        (BayesianHierarchicalClustering(strategy="groups"), "strategy must be 'randomised' or"),
        (BayesianRoseTree(polish=True), "polish must be False"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_distributed(estimator, data, client=client)
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
        fit_distributed(fine, data, client="localhost:8786")
    (tmp_path / "text.parquet").write_text("no Parquet file")
    with pytest.raises(ValueError, match="cannot read"):
        fit_distributed(fine, [tmp_path / "text.parquet"], client=client)


@pytest.mark.filterwarnings("ignore")
def test_a_category_that_the_sample_does_not_have_is_named(client):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame({"colour": ["red", "blue"] * 200, "size": [1.0, 2.0] * 200})
    frame.loc[7, "colour"] = "green"
    how = {**HOW, "learn_rows": 10}
    with pytest.raises(ValueError, match=r"'green'.*raise learn_rows"):
        fit_distributed(
            BayesianHierarchicalClustering(**how),
            frames.from_pandas(frame, npartitions=4),
            client=client,
        )
