"""Exact trees on a graphics processor: time, memory, share of the memory bandwidth, same trees,
new rows, and learning.

    python benchmarks/gpu.py                       # everything
    python benchmarks/gpu.py --only same trees     # some of the sections
    python benchmarks/gpu.py --largest 100000      # smaller tables only
    python benchmarks/gpu.py --only passes         # needs a C++ compiler instead of a card
    python benchmarks/gpu.py --page                # the page from the figures that are there

Every case runs once to warm up on a small table, so that compilation stays out of the numbers
(CuPy keeps compiled kernels on disk; several processes compile at a time), and once in earnest,
with nothing else on the card. ``total`` is the clock time of
`agglomerate` on statistics that are ready, with everything: what goes to the device, the search,
and the scored tree. The share of the bandwidth is the bytes that the merges must read (the
statistics of every live cluster once a pass, and what a score needs besides them) per second, over
the bandwidth of a plain copy on the same card, bytes read and written both counted.
Results are added to ``docs/results/gpu.json``, and ``docs/results/gpu.md`` is written from it; what
is not in it is shown as not measured. Without a card one sentence says so, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed

from bhclust import BayesianHierarchicalClustering, models
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust._gpu.device import cuda_device
from bhclust._gpu.search import DeviceSearch
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess, Rose
from speed import make_data

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
#: model, data, columns, rows, rose tree
TREES = [
    *(("Bernoulli", "binary", 64, n, False) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)),
    *(("DiagonalGaussian", "real", 64, n, False) for n in (10_000, 100_000, 1_000_000)),
    ("Gaussian", "real", 16, 10_000, False),
    ("Gaussian", "real", 16, 100_000, False),
    ("Categorical", "categorical", 16, 100_000, False),
    ("Poisson", "poisson", 16, 100_000, False),
    ("Bernoulli", "binary", 64, 100_000, True),
]
PROCESSOR_ROWS = 30_000
WARM_UP_ROWS = 20_000
#: model, data, columns, rows
LEARNING = [
    ("Bernoulli", "binary", 64, 100_000),
    ("Bernoulli", "binary", 64, 1_000_000),
    ("DiagonalGaussian", "real", 64, 100_000),
    ("Gaussian", "real", 16, 100_000),
    ("Categorical", "categorical", 16, 100_000),
    ("Poisson", "poisson", 16, 100_000),
]
LEARNING_PROCESSOR_ROWS = 100_000
#: model, data, rose tree
PASSES = [
    ("Bernoulli", "binary", False),
    ("Categorical", "categorical", False),
    ("Poisson", "poisson", False),
    ("DiagonalGaussian", "real", False),
    ("Bernoulli", "binary", True),
]
SECTIONS = ("trees", "same", "prediction", "learning", "passes")


def copy_bandwidth() -> float:
    """Return the bytes a second of a large copy on the card, read and written both counted."""
    cupy = cuda_device().arrays
    source = cupy.random.random(1 << 28)
    target = cupy.empty_like(source)
    seconds = []
    for _ in range(7):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        cupy.copyto(target, source)
        stop.record()
        stop.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(2 * source.nbytes / np.median(seconds))


def mixing_of(rose: bool) -> Any:
    return Rose(0.5) if rose else DirichletProcess(1.0)


@contextmanager
def recorded_searches() -> Iterator[list[Any]]:
    """Collect what the searches inside find, with their times."""
    found: list[Any] = []
    run = DeviceSearch.run

    def recorded(self: DeviceSearch, progress: Any = None) -> Any:
        found.append(run(self, progress))
        return found[-1]

    DeviceSearch.run = recorded  # type: ignore[method-assign]
    try:
        yield found
    finally:
        DeviceSearch.run = run  # type: ignore[method-assign]


def in_processes(function: Any, cases: Sequence[Any]) -> list[Any]:
    """Call a function once a case, some at a time: what is compiled is on disk for all then."""
    n_jobs = max(1, min(len(cases), cpu_count()))
    return list(Parallel(n_jobs=n_jobs)(delayed(function)(*case) for case in cases))


def compile_kernels(name: str, kind: str, d: int, rose: bool, predicts: bool) -> None:
    """Compile what a case needs, on the card and on the processor."""
    X = make_data(kind, 500, d)
    model, mixing = getattr(models, name)().resolve(X), mixing_of(rose)
    stats = model.suffstats(X)
    agglomerate(model, stats, mixing, rose=rose, device="cuda")
    agglomerate(model, stats, mixing, rose=rose)
    if predicts:
        settings: dict[str, Any] = {"strategy": "greedy", "learn": False, "device": "cuda"}
        fit = BayesianHierarchicalClustering(model=getattr(models, name)(), **settings).fit(X)
        fit.score_samples(X)


def run_tree(name: str, kind: str, d: int, n: int, rose: bool, bandwidth: float) -> dict[str, Any]:
    """Build one tree on the card, and on the processor if the table is small."""
    device, mixing = cuda_device(), mixing_of(rose)
    pool = device.arrays.get_default_memory_pool()
    X = make_data(kind, n, d)
    model = getattr(models, name)().resolve(X)
    stats = model.suffstats(X)
    small = stats[:500]
    # So many rows that live clusters are moved together once.
    agglomerate(model, stats[:WARM_UP_ROWS], mixing, rose=rose, device="cuda")
    pool.free_all_blocks()
    with recorded_searches() as searches:
        started = time.perf_counter()
        tree = agglomerate(model, stats, mixing, rose=rose, device="cuda").tree
        total = time.perf_counter() - started
    found, memory = searches[-1], pool.total_bytes()
    row: dict[str, Any] = {
        "model": name,
        "rows": n,
        "columns": d,
        "rose": rose,
        "first_pairs": found.seconds_first,
        "merges": found.seconds_merges,
        "search": found.seconds_first + found.seconds_merges,
        "total": total,
        "microseconds_a_merge": found.seconds_merges / n * 1e6,
        "rescans": found.n_rescans,
        "passes": found.n_passes,
        "pairs": found.n_pairs,
        "memory": memory,
        "bytes_read": found.bytes_read,
        "bandwidth_share": found.bytes_read / found.seconds_merges / bandwidth,
    }
    if n <= PROCESSOR_ROWS:
        agglomerate(model, small, mixing, rose=rose)
        started = time.perf_counter()
        reference = agglomerate(model, stats, mixing, rose=rose).tree
        row["processor"] = time.perf_counter() - started
        row["same_tree"] = bool((tree.parent == reference.parent).all())
    return row


def same_cases(n: int) -> dict[str, tuple[Any, np.ndarray]]:
    """Return a model and a table of n rows for every model, with and without holes."""
    rng = np.random.default_rng(5)
    label = rng.integers(20, size=n)
    binary, codes = make_data("binary", n, 64), make_data("categorical", n, 16)
    counts, real = make_data("poisson", n, 16), make_data("real", n, 64)
    shares = rng.dirichlet(np.full(12, 0.5), size=20)
    words = np.array([rng.multinomial(40, p) for p in shares[label]], dtype=float)
    phase, speed = rng.uniform(0, 6, 20)[label, None], rng.uniform(0.3, 1.2, 20)[label, None]
    curves = np.sin(np.arange(12.0) * speed + phase) + 0.3 * rng.normal(size=(n, 12))
    mixed_data = np.hstack([binary[:, :8], codes[:, :4], real[:, :6]])
    mixed = models.Mixed(
        [
            (models.Bernoulli(), list(range(8))),
            (models.Categorical(), list(range(8, 12))),
            (models.DiagonalGaussian(), list(range(12, 18))),
        ]
    )

    def holes(X: np.ndarray) -> np.ndarray:
        return np.where(rng.random(X.shape) < 0.1, np.nan, X)

    cases: dict[str, tuple[Any, np.ndarray]] = {
        "Bernoulli": (models.Bernoulli(), binary),
        "Categorical": (models.Categorical(), codes),
        "Poisson": (models.Poisson(), counts),
        "DiagonalGaussian": (models.DiagonalGaussian(), real),
        "TimeSeries": (models.TimeSeries(), curves),
        "Mixed": (mixed, mixed_data),
    }
    cases |= {f"{name}, holes": (model, holes(X)) for name, (model, X) in cases.items()}
    cases["Multinomial"] = (models.Multinomial(), words)
    cases["Gaussian"] = (models.Gaussian(), real[:, :16])
    return cases


def same_case(name: str, n: int, rose: bool) -> dict[str, Any]:
    """Compare the tree of the card with that of the processor for one model."""
    model, X = same_cases(n)[name]
    model = model.resolve(X)
    stats = model.suffstats(X)
    tree = agglomerate(model, stats, mixing_of(rose), rose=rose, device="cuda").tree
    other = agglomerate(model, stats, mixing_of(rose), rose=rose).tree
    same = len(tree.parent) == len(other.parent) and bool((tree.parent == other.parent).all())
    row: dict[str, Any] = {"model": name, "rows": n, "rose": rose, "same_tree": same}
    if same:
        ours, theirs = tree.log_odds[n:], other.log_odds[n:]
        scale = np.maximum(np.abs(theirs), 1.0)
        row["largest_difference"] = float(np.max(np.abs(ours - theirs) / scale))
    return row


def run_same(n: int = 5_000) -> list[dict[str, Any]]:
    """Compare the trees of the card with those of the processor for every model."""
    cases = [(name, n, rose) for name in same_cases(50) for rose in (False, True)]
    rows = in_processes(same_case, cases)
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def run_prediction() -> list[dict[str, Any]]:
    """Time the density of new rows under a fitted tree, on the card and on the processor."""
    rows = []
    for name, kind in (("Bernoulli", "binary"), ("DiagonalGaussian", "real")):
        X = make_data(kind, 1_010_000, 64)
        model = getattr(models, name)()
        fit = BayesianHierarchicalClustering(
            model=model, strategy="greedy", learn=False, device="cuda"
        ).fit(X[:10_000])
        new = X[10_000:]
        fit.score_samples(new[:1000])
        started = time.perf_counter()
        on_card = fit.score_samples(new)
        seconds = time.perf_counter() - started
        fit.device = "cpu"
        started = time.perf_counter()
        on_processor = fit.score_samples(new[:200])
        rows.append(
            {
                "model": name,
                "fitted_rows": 10_000,
                "new_rows": len(new),
                "seconds": seconds,
                "processor_seconds_per_million": (time.perf_counter() - started) * 5000,
                "largest_difference": float(np.max(np.abs(on_card[:200] - on_processor))),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def timed(function: Any) -> tuple[Any, float]:
    """Return what a function gives and its seconds by the clock, the better of two calls."""
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - started)
    return result, min(seconds)


def run_learning(largest: int, chosen: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Time value and gradient of the evidence on a fixed tree, on the card and beside it."""
    rows = []
    for name, kind, d, n in LEARNING:
        if n > largest or (chosen is not None and name not in chosen):
            continue
        X, mixing = make_data(kind, n, d), mixing_of(False)
        model = getattr(models, name)().resolve(X)
        tree = agglomerate(model, model.suffstats(X), mixing, device="cuda").tree
        started = time.perf_counter()
        on_card = FixedTree.of(tree, cuda_device())
        sent = time.perf_counter() - started
        here, value = timed(lambda: evaluate(on_card, model, mixing))  # noqa: B023
        slopes, slope = timed(lambda: gradient(on_card, model, mixing, here))  # noqa: B023
        known = tree.log_marginal
        _, passes = timed(lambda: evaluate(on_card, model, mixing, log_f=known))  # noqa: B023
        row: dict[str, Any] = {
            "model": name,
            "rows": n,
            "columns": d,
            "sent": sent,
            "value": value,
            "passes": passes,
            "gradient": slope,
        }
        if n <= LEARNING_PROCESSOR_ROWS:
            fixed = FixedTree.of(tree)
            there, row["processor_value"] = timed(lambda: evaluate(fixed, model, mixing))  # noqa: B023
            other, row["processor_gradient"] = timed(
                lambda: gradient(fixed, model, mixing, there)  # noqa: B023
            )
            gaps = [np.max(np.abs(slopes[k] - v)) / np.max(np.abs(v)) for k, v in other.items()]
            gaps.append(abs(here.value - there.value) / abs(there.value))
            row["largest_difference"] = float(max(gaps))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def run_passes(n: int = 10_000, d: int | None = None) -> list[dict[str, Any]]:
    """Count the passes of the kernels where they are simulated: a pass is a merge or a rescan."""
    sys.path.insert(0, str(RESULTS.parent.parent))
    from tests.gpu.simulated import COMPILER, simulated_device

    if COMPILER is None:
        print("passes: not counted, because there is no C++ compiler to simulate the kernels with")
        return []
    rows = []
    for name, kind, rose in PASSES:
        X = make_data(kind, n, d or (64 if kind in ("binary", "real") else 16))
        model, mixing = getattr(models, name)().resolve(X), mixing_of(rose)
        stats = model.suffstats(X)
        found = DeviceSearch(simulated_device(), model, stats, mixing, rose=rose).run()
        info = agglomerate(model, stats, mixing, rose=rose).info
        previous = np.arange(n, 2 * n - 2)
        rows.append(
            {
                "model": name + (", rose tree" if rose else ""),
                "rows": n,
                "columns": X.shape[1],
                "rescans": found.n_rescans,
                "processor_rescans": info.n_rescans,
                "new_cluster_percent": float(
                    100 * np.mean(found.steps[1:, :2].max(axis=1) == previous)
                ),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Return a Markdown table of some columns."""
    if not rows:
        return "Not measured."

    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return f"{value:,}"
        if value is None:
            return "not measured"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = [" | ".join(columns.values()), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(row.get(key)) for key in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables for readers."""
    trees = []
    for row in results.get("trees", []):
        all_pairs = row["rows"] * (row["rows"] - 1) / 2
        scored = (row["pairs"] - all_pairs) / all_pairs  # the first pairs aside
        trees.append(
            row
            | {
                "kind": row["model"] + (", rose tree" if row["rose"] else ""),
                "gigabytes": row["memory"] / 1e9,
                "scored": 100 * scored,
                "percent": 100 * row["bandwidth_share"],
                "percent_of_passes": 100 * row["bandwidth_share"] / scored,
            }
        )
    bandwidth = results.get("copy_bandwidth", np.nan) / 1e12
    text = f"""# Trees on a graphics processor

{results.get("device", "No card yet")}; a plain copy moves {bandwidth:.2f} TB/s, read and
written (the last run). Made by `benchmarks/gpu.py`; the figures are in `gpu.json`. Seconds;
"pairs scored" is what the merges score, where a pass over all live clusters a merge is 100 %;
"share" is the part of the copy bandwidth measured in the same run that the merges reach,
counting the bytes that they read, and "share at a pass a merge" what a search would have to reach
that takes as long and reads all live clusters once a merge; "processor" is the compiled engine in
one thread on the same machine. {results.get("notes", "")}

## Time and memory

{
        table(
            trees,
            {
                "kind": "model",
                "rows": "rows",
                "columns": "columns",
                "first_pairs": "first pairs",
                "merges": "merges",
                "total": "in all, scored",
                "microseconds_a_merge": "µs a merge",
                "rescans": "rescans",
                "gigabytes": "GB on the card",
                "scored": "pairs scored, %",
                "percent": "share, %",
                "percent_of_passes": "share at a pass a merge, %",
                "processor": "processor",
                "same_tree": "same tree",
            },
        )
    }

## The same tree

Log odds of all nodes, largest difference relative to the larger of one and their size.

{
        table(
            results.get("same", []),
            {
                "model": "model",
                "rose": "rose tree",
                "rows": "rows",
                "same_tree": "same tree",
                "largest_difference": "largest difference",
            },
        )
    }

## New rows

{
        table(
            results.get("prediction", []),
            {
                "model": "model",
                "fitted_rows": "fitted rows",
                "new_rows": "new rows",
                "seconds": "seconds",
                "processor_seconds_per_million": "processor, a million rows (from 200)",
                "largest_difference": "largest difference",
            },
        )
    }

## Learning

One evaluation on a fixed tree of all rows: the value, of which the passes over the tree are the
processor's, and the gradient. "Sent" is what it takes to put the statistics on the card, once a
tree; the difference is the largest of value and gradient, relative to the largest entry.

{
        table(
            results.get("learning", []),
            {
                "model": "model",
                "rows": "rows",
                "columns": "columns",
                "sent": "sent",
                "value": "value",
                "passes": "of it passes",
                "gradient": "gradient",
                "processor_value": "processor, value",
                "processor_gradient": "processor, gradient",
                "largest_difference": "largest difference",
            },
        )
    }

## Passes over the live clusters

Counted with the simulated kernels, so without a card, on the tables of the first section. A merge
takes one pass at most, and a cluster that looks for a new partner takes one (up to four share
it). A cluster that lost its partner is bounded by the best score of its other partners; only the
engine for the processor bounds it in rose trees by the score of the lost one. The last column says
how many merges take the cluster that the merge before them made.

{
        table(
            results.get("passes", []),
            {
                "model": "model",
                "rows": "rows",
                "columns": "columns",
                "rescans": "rescans",
                "processor_rescans": "of the processor's engine",
                "new_cluster_percent": "merges of the new cluster, %",
            },
        )
    }
"""
    path.write_text(text, "utf-8")


def measure(wanted: Sequence[str], arguments: Any, results: dict[str, Any]) -> Iterator[None]:
    """Run sections on the card, one after the other."""
    if "trees" in wanted:
        kept = {(r["model"], r["rows"], r["rose"]): r for r in results.get("trees", [])}
        chosen = [
            (name, kind, d, n, rose)
            for name, kind, d, n, rose in TREES
            if arguments.models is None or name in arguments.models
            if arguments.smallest <= n <= arguments.largest
        ]
        order = [(m, rows, r) for m, _, _, rows, r in TREES]
        kinds = sorted({(name, kind, d, rose) for name, kind, d, _, rose in chosen})
        in_processes(compile_kernels, [(*kind, "prediction" in wanted) for kind in kinds])
        for name, kind, d, n, rose in chosen:
            row = run_tree(name, kind, d, n, rose, results["copy_bandwidth"])
            kept[name, n, rose] = row
            print(json.dumps(row), flush=True)
            results["trees"] = [kept[key] for key in order if key in kept]
            yield
    if "same" in wanted:
        results["same"] = run_same()
        yield
    if "prediction" in wanted:
        results["prediction"] = run_prediction()
        yield
    if "learning" in wanted:
        results["learning"] = run_learning(arguments.largest, arguments.models)
        yield


def main() -> None:
    """Run what was asked for and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--page", action="store_true", help="only write the page, no measurement")
    parser.add_argument("--models", nargs="+", help="only these models in trees and learning")
    parser.add_argument("--smallest", type=int, default=0, help="rows of the smallest table")
    parser.add_argument("--largest", type=int, default=1_000_000, help="rows of the largest table")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    file = arguments.output / "gpu.json"
    results: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    wanted = [] if arguments.page else arguments.only or SECTIONS

    def save() -> None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        write_markdown(results, arguments.output / "gpu.md")

    if set(wanted) - {"passes"}:
        try:
            cupy = cuda_device().arrays
        except (ImportError, BhclustError) as error:
            raise SystemExit(
                f"Nothing was measured, because there is no card to measure: {error}"
            ) from None
        results["device"] = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        results["python"], results["cupy"] = platform.python_version(), cupy.__version__
        results["copy_bandwidth"] = copy_bandwidth()
        print(f"copy: {results['copy_bandwidth'] / 1e12:.2f} TB/s", flush=True)
        for _ in measure(wanted, arguments, results):
            save()
    if "passes" in wanted:
        results["passes"] = run_passes()
    save()


if __name__ == "__main__":
    main()
