"""Seconds for the exact tree of many series, beside SciPy's distances and average linkage.

    python benchmarks/time_series_speed.py

Writes time_series_speed.json into docs/results. Both are run in turn and the fastest run of each
counts; compilation, which happens once on a computer, does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess
from bhclust.models import TimeSeries

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def series(n: int, n_times: int, rng: np.random.Generator) -> np.ndarray:
    """Return noisy copies of 30 smooth curves."""
    times = np.linspace(0, 10, n_times)
    covariance = np.exp(-np.square(times[:, None] - times) / 8) + 1e-9 * np.eye(n_times)
    curves = rng.multivariate_normal(np.zeros(n_times), covariance, size=30)
    return curves[rng.integers(30, size=n)] + 0.4 * rng.normal(size=(n, n_times))


def measure(n: int, n_times: int, repeats: int) -> dict[str, float]:
    """Return the seconds of both ways."""
    X = series(n, n_times, np.random.default_rng(0))
    model = TimeSeries(times=np.linspace(0, 10, n_times)).resolve(X)
    agglomerate(model, model.suffstats(X[:50]), DirichletProcess(1.0))
    ours, theirs = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        linkage(pdist(X), "average")
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        agglomerate(model, model.suffstats(X), DirichletProcess(1.0))
        ours.append(time.perf_counter() - start)
    return {
        "n": n,
        "n_times": n_times,
        "tree_seconds": min(ours),
        "linkage_seconds": min(theirs),
        "ratio": min(ours) / min(theirs),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = [measure(n, 20, options.repeats) for n in (1000, 3000, 10_000)]
    content = {
        "rows": rows,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "scipy": scipy.__version__,
    }
    text = json.dumps(content, indent=1)
    (options.out / "time_series_speed.json").write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
