"""Randomised trees of a million rows, trees that grow, and trees on Dask.

    python benchmarks/scale.py                       # everything; about 40 minutes on two cores
    python benchmarks/scale.py --only quality stream # some of the sections
    python benchmarks/scale.py --quick               # small sizes: a smoke run

Every case runs in a process of its own. Seconds are given twice: processor time, and time on the
clock, which on a shared machine is longer. Peak memory is the highest resident size of the process,
interpreter, imports and data included. Results go to ``docs/results/scale.json`` and ``scale.md``;
sections that are not run keep their earlier results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
D = 64
# Rows that are drawn, and written, at a time.
BLOCK = 50_000


def nested(n: int, seed: int = 0, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Return binary rows of 128 classes in a tree of 8 x 4 x 4, a tenth of all entries flipped."""
    blocks = list(nested_blocks(n, seed, d))
    return np.concatenate([X for X, _ in blocks]), np.concatenate([y for _, y in blocks])


def nested_blocks(n: int, seed: int = 0, d: int = D) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of `nested` with their classes, some at a time."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, size=(8, d))
    for n_children, flips in ((4, 0.25), (4, 0.12)):
        centres = np.repeat(centres, n_children, axis=0)
        centres = centres ^ (rng.random(centres.shape) < flips)
    y = rng.integers(len(centres), size=n)
    for start in range(0, n, BLOCK):
        part = y[start : start + BLOCK]
        yield (centres[part] ^ (rng.random((len(part), d)) < 0.1)).astype(np.uint8), part


def timed(job: Any) -> dict[str, Any]:
    """Run a job and return its seconds, its peak memory and what it says."""
    wall, cpu = time.perf_counter(), time.process_time()
    said = job()
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_gb": peak_gb(),
        **said,
    }


def peak_gb() -> float:
    """Return the highest resident size of this process.

    The usual counter starts from the size of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


# --- cases, each inside a process of its own ------------------------------------------------------


def large(n: int, rose: bool = False) -> dict[str, Any]:
    """Fit the estimator to many rows."""
    from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
    from bhclust.metrics import dendrogram_purity

    kind = BayesianRoseTree if rose else BayesianHierarchicalClustering
    how: Any = {"strategy": "randomised", "n_jobs": 2, "random_state": 0}
    kind("bernoulli", **how).fit(nested(5000)[0])  # kernels from the disk
    X, y = nested(n)
    fitted = kind("bernoulli", **how)
    found = timed(lambda: {"clusters": fitted.fit(X).n_clusters_})
    found["purity"] = dendrogram_purity(fitted.tree_, y)
    return found


def quality(n: int, seed: int, rose: bool) -> dict[str, Any]:
    """Compare randomised trees with the exact greedy tree under one prior."""
    from bhclust._coordinates import Prior
    from bhclust.agglomerate import agglomerate
    from bhclust.metrics import dendrogram_purity
    from bhclust.mixing import DirichletProcess, Rose
    from bhclust.models import Bernoulli
    from bhclust.randomised import Items, RandomisedSearch, Sizes, comparable_evidence

    X, y = nested(n, seed)
    model = Bernoulli(a=0.5, b=0.5).resolve(X.astype(float))
    mixing = Rose(0.5) if rose else DirichletProcess(1.0)
    exact = agglomerate(model, model.suffstats(X.astype(float)), mixing, rose=rose).tree
    wanted = comparable_evidence(exact, mixing)
    out = {"exact_purity": dendrogram_purity(exact, y), "exact_evidence": wanted}
    items = Items(X.astype(float), np.ones(n))
    for name in ("randomised", "groups"):
        how: Any = {"rose": rose, "seed": seed, "groups": name == "groups"}
        tree = RandomisedSearch(Prior(model, mixing), items, Sizes(1000, 2000), **how).run()
        out[f"{name}_purity"] = dendrogram_purity(tree, y)
        out[f"{name}_gap"] = wanted - comparable_evidence(tree, mixing)
    return out


def stream(n: int, order: str, rose: bool) -> dict[str, Any]:
    """Send rows through partial_fit, and compare with the batch tree."""
    from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
    from bhclust.metrics import dendrogram_purity
    from bhclust.models import Bernoulli
    from bhclust.randomised import comparable_evidence

    X, y = nested(n)
    if order == "sorted":
        place = np.argsort(y, kind="stable")
        X, y = X[place], y[place]
    kind = BayesianRoseTree if rose else BayesianHierarchicalClustering
    how: Any = {"learn": False, "strategy": "greedy"}
    grown = kind(Bernoulli(a=0.5, b=0.5), **how).partial_fit(X[:100])
    grown.partial_fit(X[100 : n // 5])

    def rest() -> dict[str, Any]:
        for start in range(n // 5, n, 1000):
            grown.partial_fit(X[start : start + 1000])
        return {}

    found = timed(rest)
    rate = (n - n // 5) / found["cpu_s"]
    batch = kind(Bernoulli(a=0.5, b=0.5), **how).fit(X)
    return {
        **found,
        "rows_per_cpu_s": rate,
        "rows_per_wall_s": (n - n // 5) / found["wall_s"],
        "purity": dendrogram_purity(grown.tree_, y),
        "batch_purity": dendrogram_purity(batch.tree_, y),
        "evidence": comparable_evidence(grown.tree_, grown.mixing_),
        "batch_evidence": comparable_evidence(batch.tree_, batch.mixing_),
        "depth": int(grown.tree_.depth.max()),
    }


def documents(n: int, n_words: int, length: int = 60) -> tuple[Any, np.ndarray]:
    """Return sparse counts of words: 20 topics of their own words, a third common to all."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(n_words, 0.01), size=20)
    topics = (2 * topics + rng.dirichlet(np.full(n_words, 0.01))) / 3
    steps = topics.cumsum(axis=1)
    y = rng.integers(20, size=n)
    words = np.empty((n, length), dtype=np.int32)
    for topic in range(20):
        rows = np.flatnonzero(y == topic)
        words[rows] = np.searchsorted(steps[topic], rng.random((len(rows), length)))
    entries = (
        np.ones(words.size),
        (np.repeat(np.arange(n), length), np.minimum(words, n_words - 1).ravel()),
    )
    counts = sparse.csr_array(entries, shape=(n, n_words))
    counts.sum_duplicates()
    return counts, y


def sparse_text(n: int, n_words: int, model: str) -> dict[str, Any]:
    """Fit sparse counts of words."""
    from bhclust import BayesianHierarchicalClustering
    from bhclust.metrics import dendrogram_purity

    counts, y = documents(n, n_words)
    if model == "bernoulli":
        counts.data[:] = 1.0
    how: Any = {"strategy": "randomised", "learn": False, "n_jobs": 2}
    fitted = BayesianHierarchicalClustering(model, **how)
    found = timed(lambda: {"clusters": fitted.fit(counts).n_clusters_})
    table = counts.data.nbytes + counts.indices.nbytes + counts.indptr.nbytes
    return {
        **found,
        "purity": dendrogram_purity(fitted.tree_, y),
        "density": counts.nnz / (n * n_words),
        "sparse_gb": table / 1e9,
        "dense_gb": n * n_words * 8 / 1e9,
    }


def dask_fit(d: int, workers: int, limit_mb: int, kill: bool, folder: str) -> dict[str, Any]:
    """Fit Parquet files on a cluster of this machine whose workers cannot hold them."""
    import distributed

    from bhclust import BayesianHierarchicalClustering
    from bhclust.distributed import fit_distributed

    paths = sorted(str(path) for path in Path(folder).glob("*.parquet"))
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=f"{limit_mb}MB",
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = sum(client.run(time.process_time).values())
        estimator = BayesianHierarchicalClustering("bernoulli", random_state=0, learn=False)
        watch = Watch(cluster, client, kill)
        found = timed(lambda: {"costs": fit_distributed(estimator, paths, client=client).costs_})
        watch.stop()
        after = sum(client.run(time.process_time).values())
        sent = sum(client.run(_sent).values())
    costs = found.pop("costs")._asdict()
    tree = estimator.tree_
    return {
        **found,
        **costs,
        **watch.seen,
        "workers_cpu_s": after - before,
        "sent_bytes": sent,
        "table_mb": costs["rows"] * d * 8 / 1e6,
        "limit_mb": limit_mb,
        "workers": workers,
        "killed": kill,
        "clusters": estimator.n_clusters_,
        "log_evidence": float(tree.log_evidence[-1]),
        "topology": hashlib.sha256(tree.parent.tobytes()).hexdigest(),
    }


def _sent(dask_worker: Any) -> int:
    """Return the bytes that a worker has sent to other workers."""
    return int(dask_worker.transfer_outgoing_bytes_total)


class Watch:
    """Notes the memory of the workers, and may end one of them in the middle of a fit."""

    def __init__(self, cluster: Any, client: Any, kill: bool) -> None:
        self.cluster, self.client, self.kill = cluster, client, kill
        self.seen: dict[str, Any] = {"worker_peak_mb": 0.0}
        self._pids = set(client.run(os.getpid).values())
        self._start, self._over = time.perf_counter(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; a worker that was to be ended must have been ended, and replaced."""
        self._over.set()
        self._thread.join()
        now = set(self.client.run(os.getpid).values())
        self.seen["workers_lost"] = len(self._pids - now)
        if self.kill and "killed_after_s" not in self.seen:
            raise RuntimeError("the fit was over before a worker could be ended")

    def _look(self) -> None:
        while not self._over.wait(0.2):
            nannies = list(self.cluster.workers.values())
            pids = {nanny.pid: nanny.worker_address for nanny in nannies if nanny.pid}
            for pid in pids:
                self.seen["worker_peak_mb"] = max(self.seen["worker_peak_mb"], resident_mb(pid))
            if self.kill and "killed_after_s" not in self.seen:
                self._end_one(pids)

    def _end_one(self, pids: dict[int, str]) -> None:
        """End a worker that fits parts: all levels are done, and it holds parts of rows."""
        busy = self.client.processing()
        for pid, address in pids.items():
            if any("fit_bin" in str(key) for key in busy.get(address, ())):
                held = len(self.client.has_what().get(address, ()))
                os.kill(pid, signal.SIGKILL)
                self.seen["killed_after_s"] = time.perf_counter() - self._start
                self.seen["results_lost"] = held
                return


def resident_mb(pid: int) -> float:
    """Return the memory of a process, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return 0.0


def write_files(n: int, d: int, folder: str, n_files: int = 8) -> None:
    """Write the table as Parquet files of 64-bit floats, some rows at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(d)])
    blocks = nested_blocks(n, d=d)
    n_blocks = -(-n // BLOCK)
    for k, own in enumerate(np.array_split(np.arange(n_blocks), min(n_files, n_blocks))):
        with parquet.ParquetWriter(f"{folder}/{k:03d}.parquet", schema) as file:
            for _ in own:
                X, _ = next(blocks)
                columns = [X[:, j].astype(np.float64) for j in range(d)]
                rows = pa.table(columns, schema=schema)
                file.write_table(rows, row_group_size=(8 << 20) // (8 * d))


CASES = {
    "large": large,
    "quality": quality,
    "stream": stream,
    "sparse": sparse_text,
    "dask": dask_fit,
}


def alone(case: str, **arguments: Any) -> dict[str, Any]:
    """Run a case in a process of its own."""
    line = [sys.executable, __file__, "--case", json.dumps([case, arguments])]
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr[-3000:])
    found = json.loads(run.stdout.strip().splitlines()[-1])
    print(case, arguments, json.dumps(found), flush=True)
    return {**arguments, **found}


# --- sections -------------------------------------------------------------------------------------


def section_large(quick: bool) -> dict[str, Any]:
    sizes = (10_000, 30_000) if quick else (100_000, 1_000_000)
    runs = [alone("large", n=n) for n in sizes]
    span = math.log(sizes[1] / sizes[0])
    return {"runs": runs, "exponent": math.log(runs[1]["cpu_s"] / runs[0]["cpu_s"]) / span}


def section_quality(quick: bool) -> dict[str, Any]:
    n, seeds = (4000, 2) if quick else (20_000, 5)
    runs = [
        alone("quality", n=n, seed=seed, rose=rose)
        for rose in (False, True)
        for seed in range(seeds)
    ]
    return {"runs": runs}


def section_stream(quick: bool) -> dict[str, Any]:
    n = 3000 if quick else 50_000
    pairs = [(order, rose) for rose in (False, True) for order in ("random", "sorted")]
    return {"runs": [alone("stream", n=n, order=order, rose=rose) for order, rose in pairs]}


def section_sparse(quick: bool) -> dict[str, Any]:
    sizes = {
        "multinomial": (50_000, 20_000),
        "poisson": (20_000, 2000),
        "bernoulli": (20_000, 2000),
    }
    if quick:
        sizes = dict.fromkeys(sizes, (1000, 500))
    return {
        "runs": [
            alone("sparse", n=n, n_words=n_words, model=model)
            for model, (n, n_words) in sizes.items()
        ]
    }


def section_dask(quick: bool) -> dict[str, Any]:
    n, d, limit = (20_000, 64, 700) if quick else (180_000, 640, 800)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        write_files(n, d, folder)
        for workers, kill in ((2, False), (4, False), (2, True)):
            how: Any = {"workers": workers, "limit_mb": limit, "kill": kill, "folder": folder}
            found = alone("dask", d=d, **how)
            found.pop("folder")
            runs.append(found)
    return {"runs": runs, "same": len({run["topology"] for run in runs}) == 1}


SECTIONS = {
    "large": section_large,
    "quality": section_quality,
    "stream": section_stream,
    "sparse": section_sparse,
    "dask": section_dask,
}


# --- report ---------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Results: scale",
        "",
        "Written by `benchmarks/scale.py`. Seconds of processor time (of all threads) and on the",
        f"clock, on a machine with {results['cores']} cores that other jobs share. The rows are",
        "zeros and ones of 64 columns: 128 classes in a tree of 8 × 4 × 4, a tenth of all entries",
        "flipped.",
    ]
    for name, table in (
        ("large", large_lines),
        ("quality", quality_lines),
        ("stream", stream_lines),
        ("sparse", sparse_lines),
        ("dask", dask_lines),
    ):
        if name in results:
            lines += ["", *table(results[name])]
    return "\n".join(lines) + "\n"


def large_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        '## Many rows: `strategy="randomised"`, hyperparameters learned, `n_jobs=2`',
        "",
        "| rows | processor s | clock s | peak GB | clusters | purity |",
        "|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        numbers = f"{run['cpu_s']:.0f} | {run['wall_s']:.0f} | {run['peak_gb']:.2f}"
        lines.append(f"| {run['n']:,} | {numbers} | {run['clusters']} | {run['purity']:.3f} |")
    return [*lines, "", f"Growth exponent of the processor time: {found['exponent']:.2f}."]


def quality_lines(found: dict[str, Any]) -> list[str]:
    n = found["runs"][0]["n"]
    lines = [
        f"## Beside the exact tree, {n:,} rows, one prior, mean over seeds",
        "",
        "| trees | exact purity | randomised | groups | evidence gap, randomised | groups |",
        "|---|---|---|---|---|---|",
    ]
    for rose in (False, True):
        runs = [run for run in found["runs"] if run["rose"] == rose]
        mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0] if "_" in key}
        lines.append(
            f"| {'rose' if rose else 'binary'} | {mean['exact_purity']:.4f} | "
            f"{mean['randomised_purity']:.4f} | {mean['groups_purity']:.4f} | "
            f"{mean['randomised_gap']:.0f} nats of {-mean['exact_evidence']:,.0f} | "
            f"{mean['groups_gap']:.0f} |"
        )
    return lines


def stream_lines(found: dict[str, Any]) -> list[str]:
    n = found["runs"][0]["n"]
    lines = [
        f"## A stream of {n:,} rows through `partial_fit`, the rate after the first {n // 5:,}",
        "",
        "| trees | order | rows/processor s | rows/clock s | purity | batch | evidence | batch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        lines.append(
            f"| {'rose' if run['rose'] else 'binary'} | {run['order']} | "
            f"{run['rows_per_cpu_s']:,.0f} | {run['rows_per_wall_s']:,.0f} | {run['purity']:.3f} | "
            f"{run['batch_purity']:.3f} | {run['evidence']:,.0f} | {run['batch_evidence']:,.0f} |"
        )
    return lines


def sparse_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Sparse counts of words, 20 topics, a third of the words common to all",
        "",
        "The size of the sparse table, and what it would be if it were dense; K is the number of",
        "clusters. Hyperparameters are not learned.",
        "",
        "| model | rows | words | density | CPU s | clock s | peak GB | GB | dense | K | purity |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        lines.append(
            f"| {run['model']} | {run['n']:,} | {run['n_words']:,} | {run['density']:.2%} | "
            f"{run['cpu_s']:.0f} | {run['wall_s']:.0f} | {run['peak_gb']:.2f} | "
            f"{run['sparse_gb']:.2f} | {run['dense_gb']:.2f} | {run['clusters']} | "
            f"{run['purity']:.3f} |"
        )
    return lines


def dask_lines(found: dict[str, Any]) -> list[str]:
    first = found["runs"][0]
    columns = first["table_mb"] * 1e6 / 8 / first["rows"]
    lines = [
        f"## Dask: {first['rows']:,} rows × {columns:.0f} columns of floats in Parquet files",
        "",
        f"The table is {first['table_mb']:,.0f} MB; a worker may have {first['limit_mb']} MB.",
        "Seconds are processor time of all workers and clock time of the fit. Megabytes are rows",
        "of samples, rows that went to the workers that fit them, all that workers sent others,",
        "finished branches, and the largest worker (peak).",
        "",
        "| workers | ended | CPU s | clock s | peak | reads | sample | moved | sent | branches |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        megabytes = (run[f"{name}_bytes"] / 1e6 for name in ("sample", "moved", "sent", "branch"))
        ended = f"{run['killed_after_s']:.0f} s" if run["killed"] else "–"
        lines.append(
            f"| {run['workers']} | {ended} | {run['workers_cpu_s']:.0f} | {run['wall_s']:.0f} | "
            f"{run['worker_peak_mb']:.0f} | {run['passes']} | "
            + " | ".join(f"{size:.1f}" for size in megabytes)
            + " |"
        )
    same = "the same" if found["same"] else "NOT the same"
    killed = [run for run in found["runs"] if run["killed"]]
    lost = f"{killed[0]['results_lost']} results" if killed else "nothing"
    return [
        *lines,
        "",
        f"The topologies of all runs are {same}. The worker that was ended held {lost}; processor",
        "seconds of its process are not in the sum.",
    ]


def main() -> None:
    """Run the sections and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=tuple(SECTIONS), default=tuple(SECTIONS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, arguments = json.loads(options.case)
        print(json.dumps(CASES[name](**arguments)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "scale.json"
    results = json.loads(file.read_text("utf-8")) if file.exists() and not options.quick else {}
    results |= {"cores": os.cpu_count(), "python": platform.python_version()}
    for name in options.only:
        results[name] = SECTIONS[name](options.quick)
        if not options.quick:
            file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
            (options.out / "scale.md").write_text(report(results), "utf-8")
    print(report(results))


if __name__ == "__main__":
    main()
