"""Time and memory of Greedy-Rate1 and of the race sampler as the number of rows grows.

Each size runs in a process of its own, so that its peak memory is its own. Compilation is left out:
every process fits a small table first.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
N_COLUMNS = 20
#: Greedy-Rate1 without its rejection of pairs that come too late: what that saves
ALL_PAIRS = "greedy-rate1, every pair in full"


def make_table(kind: str, n: int) -> np.ndarray:
    """Return numbers, numbers with holes or categories from the model, or groups, or neither."""
    from bhclust.coalescent import Brownian, Mutation, sample_tree

    rng = np.random.default_rng(0)
    if kind == "categories":
        # fast enough that rows differ
        process = Mutation(20.0, np.full((N_COLUMNS, 4), 0.25)).resolve(np.zeros((1, N_COLUMNS)))
        return process.simulate(sample_tree(n, rng), rng)
    if kind in ("model", "holes"):
        process = Brownian(1.0).resolve(np.zeros((1, N_COLUMNS)))
        X = process.simulate(sample_tree(n, rng), rng)
        return np.where(rng.random(X.shape) < 0.1, np.nan, X) if kind == "holes" else X
    X = rng.normal(size=(n, N_COLUMNS))
    return X + (6 * rng.normal(size=(20, N_COLUMNS))[rng.integers(20, size=n)] * (kind == "groups"))


def measure(kind: str, n: int, method: str) -> dict:
    """Return seconds and peak memory of one search."""
    from bhclust.coalescent import Brownian, Mutation, greedy_tree, sample_trees
    from bhclust.coalescent.greedy import _rate1

    def search(X: np.ndarray) -> None:
        process = Mutation() if kind == "categories" else Brownian()
        leaves = process.resolve(X).leaves(X)
        if method == ALL_PAIRS:
            _rate1(leaves, None, reject_early=False)
        elif method == "greedy-rate1":
            greedy_tree(leaves)
        else:
            sample_trees(leaves, method, n_particles=10, rng=np.random.default_rng(0))

    search(make_table(kind, 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    X = make_table(kind, n)
    # Processor time beside wall time: on a busy machine only the former says what it costs.
    start, start_cpu = time.perf_counter(), time.process_time()
    search(X)
    return {
        "kind": kind,
        "method": method,
        "n": n,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - start_cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_before_mb": before,
    }


def exponent(rows: list[dict]) -> float:
    """Return the slope of log processor time on log n."""
    n = np.log([row["n"] for row in rows])
    return float(np.polyfit(n, np.log([row["cpu_seconds"] for row in rows]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("KIND", "N", "METHOD"))
    options = parser.parse_args()
    if options.one:
        kind, n, method = options.one
        print(json.dumps(measure(kind, int(n), method)))
        return
    runs = [(kind, n, "greedy-rate1")
            for kind in ("model", "groups", "none", "holes", "categories")
            for n in ((300, 600) if options.quick else (1250, 2500, 5000))]  # fmt: skip
    runs += [(kind, n, ALL_PAIRS) for kind in ("holes", "categories")
             for n in ((300, 600) if options.quick else (1250, 2500))]  # fmt: skip
    runs += [("model", n, "smc-race") for n in ((20, 40) if options.quick else (50, 100, 200))]
    rows = []
    for kind, n, method in runs:
        command = [sys.executable, __file__, "--one", kind, str(n), method]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    note = (
        f"{N_COLUMNS} columns, one thread, compilation left out; smc-race with 10 particles. "
        "Holes: a tenth of the entries missing; categories: four states a column; both from the "
        "model. There the search rejects pairs by a bound; in full it looks for each pair's age. "
        "Memory is the peak of the whole process, of which about "
        f"{rows[0]['peak_before_mb']:.0f} MB are Python, NumPy, SciPy and numba.\n"
    )
    lines = [
        "# Coalescent clustering: time and memory\n",
        note,
        "| method | data | n | seconds | processor seconds | peak MB | growth |",
        "|---|---|---|---|---|---|---|",
    ]
    growth = {}
    for kind, method in dict.fromkeys((row["kind"], row["method"]) for row in rows):
        group = [row for row in rows if (row["kind"], row["method"]) == (kind, method)]
        growth[f"{method}, {kind}"] = exponent(group)
        for row in group:
            last = f"n^{exponent(group):.2f}" if row is group[-1] else ""
            lines.append(
                f"| {method} | {kind} | {row['n']} | {row['seconds']:.2f} | "
                f"{row['cpu_seconds']:.2f} | {row['peak_mb']:.0f} | {last} |"
            )
    text = "\n".join(lines) + "\n"
    print(text)
    if not options.quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        content = {"rows": rows, "growth": growth, "python": platform.python_version()}
        (RESULTS / "coalescent_speed.json").write_text(json.dumps(content, indent=1) + "\n")
        (RESULTS / "coalescent_speed.md").write_text(text)


if __name__ == "__main__":
    main()
