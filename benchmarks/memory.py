"""Peak memory of a fit above the interpreter with its imports.

    python benchmarks/memory.py --n 20000 --columns 64

A fit runs in a process of its own, and so does the import alone: the difference of their peak
resident sets is what the fit takes, the table and the compiled code included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def measure(n: int, columns: int, engine: str, method: str) -> dict[str, float]:
    """Fit a binary table in this process; return its peak resident set in bytes and the seconds.

    Without rows, only what a fit imports is imported.
    """
    import numpy as np

    import bhclust

    if n == 0:
        return {"peak": peak_bytes(), "seconds": 0.0}
    rng = np.random.default_rng(0)
    prototypes = rng.random((10, columns)) < 0.5
    noise = rng.random((n, columns)) < 0.05
    X = (prototypes[rng.integers(10, size=n)] ^ noise).astype(np.int8)
    del noise
    kind = {"bhc": bhclust.BayesianHierarchicalClustering, "brt": bhclust.BayesianRoseTree}[method]
    estimator = kind("bernoulli", engine=engine)
    start = time.perf_counter()
    estimator.fit(X)
    seconds = time.perf_counter() - start
    return {"peak": peak_bytes(), "seconds": seconds}


def peak_bytes() -> float:
    """Return the peak resident set of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return float(peak * (1 if sys.platform == "darwin" else 1024))


def in_a_process_of_its_own(n: int, columns: int, engine: str, method: str) -> dict[str, float]:
    """Run `measure` in a fresh interpreter."""
    settings = ["--n", str(n), "--columns", str(columns), "--engine", engine, "--method", method]
    command = [sys.executable, str(Path(__file__).resolve()), "--inside", *settings]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Read the command line, measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000, help="rows (default 2000)")
    parser.add_argument("--columns", type=int, default=64, help="columns (default 64)")
    parser.add_argument("--engine", default="auto", help="as in the estimators (default auto)")
    parser.add_argument("--method", choices=["bhc", "brt"], default="bhc")
    parser.add_argument("--limit", type=float, help="fail above this many MB")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    settings = (given.columns, given.engine, given.method)
    if given.inside:
        print(json.dumps(measure(given.n, *settings)))
        return
    base = in_a_process_of_its_own(0, *settings)
    fit = in_a_process_of_its_own(given.n, *settings)
    megabytes = (fit["peak"] - base["peak"]) / 1e6
    print(
        f"{given.method}, {given.n} x {given.columns} binary, engine {given.engine}: "
        f"{megabytes:.0f} MB above {base['peak'] / 1e6:.0f} MB, {fit['seconds']:.1f} s"
    )
    if given.limit is not None and megabytes > given.limit:
        sys.exit(f"more than {given.limit:g} MB")


if __name__ == "__main__":
    main()
