"""Time and memory of exact trees, side by side with distance-based linkage and with peers.

    python benchmarks/speed.py                     # everything; about 40 minutes on two cores
    python benchmarks/speed.py --quick             # small sizes, one repeat: a smoke run
    python benchmarks/speed.py --only targets hard # some of the sections

Machines are shared and noisy, so only ratios within one run mean something: each case runs in a
process of its own, competitors take turns, and the median counts. Seconds are processor time,
which on an idle machine is the time on the clock (everything here runs in one thread, but for the
section on threads, which is timed by the clock); both are in the JSON file. Peak memory is the
highest resident size of the process above that of the interpreter with its imports and the data.
Results go to ``docs/results/speed.json`` and ``docs/results/speed.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
SEED = 2024


# --- data ---------------------------------------------------------------------------------------


def make_data(kind: str, n: int, d: int, structure: str = "clusters") -> np.ndarray:
    """Return a table with 20 clusters, or with one of the structures that are hard for a search."""
    rng = np.random.default_rng(SEED)
    n_clusters = {"clusters": 20, "small": 500, "none": 1}.get(structure, 20)
    label = rng.integers(n_clusters, size=n)
    X = _draw(kind, label, d, n_clusters, rng)
    if structure == "twins":  # n / 2 pairs of nearly equal rows
        half = _draw(kind, np.arange((n + 1) // 2), d, (n + 1) // 2, rng)
        X = np.repeat(half, 2, axis=0)[:n]
        if kind in ("binary", "categorical", "poisson"):
            X[::2, 0] = X[1::2, 0]
        else:
            X = X + 0.01 * rng.normal(size=X.shape)
    if structure == "duplicates":  # every row about ten times
        X = X[rng.integers(n // 10, size=n)]
    if structure == "missing":
        X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    return X


def _draw(kind: str, label: np.ndarray, d: int, n_clusters: int, rng: Any) -> np.ndarray:
    n = len(label)
    if kind == "binary":
        probability = rng.choice([0.1, 0.9], size=(n_clusters, d))
        return (rng.random((n, d)) < probability[label]).astype(float)
    if kind == "categorical":
        favourite = rng.integers(5, size=(n_clusters, d))
        noise = rng.integers(5, size=(n, d))
        return np.where(rng.random((n, d)) < 0.7, favourite[label], noise).astype(float)
    if kind == "poisson":
        rate = rng.choice([1.0, 4.0, 12.0], size=(n_clusters, d))
        return rng.poisson(rate[label]).astype(float)
    if kind == "rows":
        share = rng.dirichlet(np.ones(d), size=n_clusters)
        return rng.multinomial(60, share[label]).astype(float)
    if kind == "words":  # a few dozen of thousands, the commonest in most documents
        common = 1 / np.arange(1.0, d + 1)
        rate = 15 * common * rng.gamma(0.3, 1 / 0.3, size=(n_clusters, d))
        return rng.poisson(rate[label]).astype(float)
    if kind == "mixed":
        blocks = [("binary", d // 3), ("categorical", d // 3), ("real", d - 2 * (d // 3))]
        return np.hstack([_draw(name, label, width, n_clusters, rng) for name, width in blocks])
    centres = rng.normal(size=(n_clusters, d)) * 4
    return centres[label] + rng.normal(size=(n, d))


# --- what is run, inside a process of its own -----------------------------------------------------


def prepare(tool: str, X: np.ndarray, options: dict[str, Any]) -> Any:
    """Return a function that does the job once; imports and data are ready before it runs."""
    if tool.startswith("bhclust"):
        return _prepare_bhclust(X, options)
    filled = np.nan_to_num(X)
    if tool == "scipy":
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist

        return lambda: linkage(pdist(filled), "average")
    if tool == "fastcluster":
        import fastcluster
        from scipy.spatial.distance import pdist

        return lambda: fastcluster.linkage(pdist(filled), "average")
    if tool == "scikit-learn agglomerative":
        from sklearn.cluster import AgglomerativeClustering

        return lambda: AgglomerativeClustering(20, linkage="average").fit(filled)
    if tool == "scikit-learn HDBSCAN":
        from sklearn.cluster import HDBSCAN

        return lambda: HDBSCAN(copy=True).fit(filled)
    if tool == "fastbaps":
        return _prepare_fastbaps(filled)
    if tool == "BHClustering":
        from BHClustering.functions import bhc

        return lambda: bhc(filled)
    raise ValueError(tool)


def _prepare_bhclust(X: np.ndarray, options: dict[str, Any]) -> Any:
    from bhclust import models
    from bhclust.agglomerate import agglomerate
    from bhclust.mixing import DirichletProcess, Rose

    name = options["model"]
    if name == "Mixed":
        third = X.shape[1] // 3
        cuts = [0, third, 2 * third, X.shape[1]]
        kinds = [models.Bernoulli(), models.Categorical(), models.DiagonalGaussian()]
        parts = [(m, list(range(a, b))) for m, a, b in zip(kinds, cuts, cuts[1:], strict=False)]
        model = models.Mixed(parts)
    else:
        model = getattr(models, name)()
    rose = bool(options.get("rose"))
    mixing = Rose(0.5) if rose else DirichletProcess(1.0)
    small = X[:200]
    warm = model.resolve(small)
    agglomerate(warm, warm.suffstats(small), mixing, rose=rose)  # kernels from the disk cache

    def job() -> dict[str, Any]:
        resolved = model.resolve(X)
        result = agglomerate(
            resolved, resolved.suffstats(X), mixing, rose=rose, n_jobs=options.get("n_jobs")
        )
        return {
            "pairs": result.info.n_pairs,
            "rescans": result.info.n_rescans,
            "engine": result.info.engine,
        }

    return job


def _prepare_fastbaps(X: np.ndarray) -> Any:
    from fastbaps import fast_baps, import_fasta_sparse_nt

    lines = [f">{i}\n{''.join('ac'[int(v)] for v in row)}\n" for i, row in enumerate(X)]
    with tempfile.NamedTemporaryFile("w", suffix=".fa", delete=False) as file:
        file.write("".join(lines))
    data = import_fasta_sparse_nt(file.name)
    Path(file.name).unlink()
    # as many initial clusters as rows: the whole search, without its grouping by Ward
    return lambda: fast_baps(data, k_init=len(X), quiet=True)


def peak_megabytes() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker(case: dict[str, Any]) -> dict[str, Any]:
    X = make_data(case["data"], case["n"], case["d"], case.get("structure", "clusters"))
    job = prepare(case["tool"], X, case.get("options", {}))
    before = peak_megabytes()
    seconds, wall, info = [], [], None
    for _ in range(case["repeats"]):
        start, start_wall = time.process_time(), time.perf_counter()
        info = job()
        seconds.append(time.process_time() - start)
        wall.append(time.perf_counter() - start_wall)
    return {
        "seconds": statistics.median(seconds),
        "wall": statistics.median(wall),
        "megabytes": max(0.0, peak_megabytes() - before),
        "info": info if case["tool"].startswith("bhclust") else None,
    }


def run(case: dict[str, Any], timeout: float) -> dict[str, Any] | None:
    command = [sys.executable, __file__, "--worker", json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {timeout:.0f} s"}
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": last}
    return json.loads(done.stdout.strip().splitlines()[-1])


# --- the sections -------------------------------------------------------------------------------


def bhclust_case(data: str, model: str, n: int, d: int, **more: Any) -> dict[str, Any]:
    options = {"model": model, **{k: more.pop(k) for k in ("rose", "n_jobs") if k in more}}
    label = "bhclust " + ("BRT " if options.get("rose") else "") + model
    return {"tool": label, "data": data, "n": n, "d": d, "options": options, **more}


#: (data, model, d, largest allowed ratio to SciPy at the reference size, reference size)
TARGETS = [
    ("binary", "Bernoulli", 64, 0.35, 10_000),
    ("real", "DiagonalGaussian", 16, 0.35, 10_000),
    ("real", "DiagonalGaussian", 64, 0.60, 10_000),
    ("real", "Gaussian", 2, 0.35, 10_000),
    ("real", "Gaussian", 16, 0.70, 10_000),
    ("real", "Gaussian", 64, 10.0, 5_000),
    ("categorical", "Categorical", 16, 0.60, 10_000),
    ("poisson", "Poisson", 16, 0.60, 10_000),
    ("rows", "Multinomial", 16, 0.60, 10_000),
    ("mixed", "Mixed", 48, 1.00, 10_000),
]


def targets(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Ratios to SciPy at the reference size and at twice that."""
    rows = []
    for data, model, d, limit, size in TARGETS:
        for n, again in ((int(size * scale), repeats), (int(2 * size * scale), 1)):
            shared = {"data": data, "n": n, "d": d, "repeats": again}
            scipy = run_case({"tool": "scipy", **shared})
            ours = run_case(bhclust_case(data, model, n, d, repeats=repeats))
            rose = run_case(bhclust_case(data, model, n, d, repeats=repeats, rose=True))
            rows.append(
                {
                    "model": model,
                    "n": n,
                    "d": d,
                    "scipy": scipy,
                    "bhclust": ours,
                    "rose": rose,
                    "ratio": ratio(ours, scipy),
                    "limit": limit,
                    "rose_ratio": ratio(rose, ours),
                    "memory_ratio": ratio(ours, scipy, "megabytes"),
                }
            )
    return rows


def growth(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Time from 1,000 to 100,000 binary points, and the exponent between neighbouring sizes."""
    rows: list[dict[str, Any]] = []
    for n in (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000):
        size = max(50, int(n * scale))
        again = repeats if n <= 20_000 else 1
        result = run_case(bhclust_case("binary", "Bernoulli", size, 64, repeats=again))
        row = {"n": size, "bhclust": result}
        if rows and "seconds" in result and "seconds" in rows[-1]["bhclust"]:
            gain = result["seconds"] / rows[-1]["bhclust"]["seconds"]
            row["exponent"] = math.log(gain) / math.log(size / rows[-1]["n"])
        rows.append(row)
    return rows


def hard(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Structures that make a lazy search look again, relative to well-separated clusters."""
    rows = []
    for data, model, d, size in [
        ("binary", "Bernoulli", 64, 10_000),
        ("real", "DiagonalGaussian", 16, 10_000),
        ("real", "Gaussian", 16, 10_000),
        ("real", "Gaussian", 64, 5_000),
    ]:
        n = int(size * scale)
        easy = run_case(bhclust_case(data, model, n, d, repeats=repeats))
        for structure in ("none", "twins", "small", "duplicates", "missing"):
            if model == "Gaussian" and structure == "missing":
                continue  # a full covariance takes no missing values
            result = run_case(bhclust_case(data, model, n, d, repeats=repeats, structure=structure))
            rows.append(
                {
                    "model": model,
                    "n": n,
                    "d": d,
                    "structure": structure,
                    "bhclust": result,
                    "ratio": ratio(result, easy),
                }
            )
    return rows


def words(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Tables of words: thousands of columns, a few dozen of them not zero in a row."""
    rows = []
    for n in (1_000, 2_000, 4_000):
        size, d = max(50, int(n * scale)), max(100, int(10_000 * scale))
        scipy = run_case({"tool": "scipy", "data": "words", "n": size, "d": d, "repeats": 1})
        row: dict[str, Any] = {"n": size, "d": d, "scipy": scipy}
        for model in ("Poisson", "Multinomial"):
            row[model] = run_case(bhclust_case("words", model, size, d, repeats=repeats))
            row[f"{model} ratio"] = ratio(row[model], row["scipy"])
        rows.append(row)
    return rows


# The searches of other Bayesian packages grow like n³: the rows up to which they are run.
_BAYESIAN_PEERS = {"fastbaps": 2_000, "BHClustering": 50}


def peers(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Everything that can be installed, on the same binary points."""
    rows = []
    tools = [
        "scipy",
        "fastcluster",
        "scikit-learn agglomerative",
        "scikit-learn HDBSCAN",
        *_BAYESIAN_PEERS,
    ]
    for n in (50, 1_000, 2_000, 5_000, 10_000):
        size = max(50, int(n * scale))
        shared = {"data": "binary", "n": size, "d": 64}
        row: dict[str, Any] = {"n": size}
        row["bhclust"] = run_case(bhclust_case("binary", "Bernoulli", size, 64, repeats=repeats))
        for tool in tools:
            if n > _BAYESIAN_PEERS.get(tool, n):
                continue
            again = 1 if tool in _BAYESIAN_PEERS else repeats
            row[tool] = run_case({"tool": tool, **shared, "repeats": again})
        rows.append(row)
    return rows


def threads(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """One thread against two."""
    rows = []
    cases = (
        ("binary", "Bernoulli", 10_000),
        ("binary", "Bernoulli", 60_000),
        ("real", "DiagonalGaussian", 10_000),
        ("real", "Gaussian", 10_000),
    )
    for data, model, n in cases:
        size, d = max(50, int(n * scale)), 64 if data == "binary" else 16
        one = run_case(bhclust_case(data, model, size, d, repeats=repeats))
        two = run_case(bhclust_case(data, model, size, d, repeats=repeats, n_jobs=2))
        rows.append({"model": model, "n": size, "one": one, "two": two})
        rows[-1]["ratio"] = ratio(two, one, "wall")
    return rows


def first_use(run_case: Any, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Import beside scikit-learn and numba; a first fit with an empty cache, and the next one."""
    base = "import sklearn.base, sklearn.cluster, numba"
    ours = "import bhclust"
    rows: list[dict[str, Any]] = [
        {
            "what": "import",
            "scikit-learn + numba": statistics.median(_seconds(base) for _ in range(5)),
            "bhclust": statistics.median(_seconds(ours) for _ in range(5)),
        }
    ]
    rows[0]["ratio"] = rows[0]["bhclust"] / rows[0]["scikit-learn + numba"]
    for model in FIRST_MODELS:
        code = FIRST_FIT.format(model=model)
        with tempfile.TemporaryDirectory() as cache:
            first, later = (_seconds(code, NUMBA_CACHE_DIR=cache, inner=True) for _ in range(2))
        rows.append({"what": f"fit of {model}", "empty cache": first, "from the cache": later})
        print(rows[-1], flush=True)
    return rows


FIRST_MODELS = (
    "Bernoulli",
    "Categorical",
    "Poisson",
    "Multinomial",
    "DiagonalGaussian",
    "Gaussian",
    "TimeSeries",
)
FIRST_FIT = """
import numpy as np
from bhclust import BayesianHierarchicalClustering, models
import time
X = np.random.default_rng(0).integers(0, 2, size=(60, 3)).astype(float)
start = time.process_time()
BayesianHierarchicalClustering(models.{model}()).fit(X)
print(time.process_time() - start)
"""


def _seconds(code: str, *, inner: bool = False, **environment: str) -> float:
    """Return the processor time of a process, or what it prints as its own measure."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(done.stdout) if inner else spent


SECTIONS = {
    "first_use": first_use,
    "targets": targets,
    "growth": growth,
    "hard": hard,
    "words": words,
    "peers": peers,
    "threads": threads,
}


def ratio(a: dict[str, Any], b: dict[str, Any], key: str = "seconds") -> float | None:
    if key not in a or key not in b or b[key] <= 0:
        return None
    return float(a[key] / b[key])


# --- reporting ----------------------------------------------------------------------------------


def show(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        if "failed" in value:
            return value["failed"]
        return f"{value['seconds']:.3g} s, {value['megabytes']:.0f} MB"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_markdown(results: dict[str, Any]) -> str:
    about = "\n".join((__doc__ or "").splitlines()[6:11])
    lines = [
        "# Speed",
        "",
        f"Made by `benchmarks/speed.py` on {results['machine']}.",
        "",
        about,
        "",
    ]
    for name, rows in results["sections"].items():
        lines += [f"## {name}", "", (SECTIONS[name].__doc__ or "").strip(), ""]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines.append("| " + " | ".join(columns) + " |")
        lines.append("|" + "---|" * len(columns))
        lines += ["| " + " | ".join(show(row.get(c)) for c in columns) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="sizes × 0.05, one repeat")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a case")
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(worker(json.loads(arguments.worker))))
        return
    scale, repeats = (0.05, 1) if arguments.quick else (1.0, arguments.repeats)

    def run_case(case: dict[str, Any]) -> Any:
        result = run(case, arguments.timeout)
        shown = {k: case[k] for k in ("tool", "data", "n", "d", "structure") if k in case}
        print(f"{shown}: {show(result)}", flush=True)
        return result

    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "seed": SEED,
        "sections": {},
    }
    if arguments.out.exists() and not arguments.quick:
        results["sections"] = json.loads(arguments.out.read_text())["sections"]
    for name in arguments.only:
        results["sections"][name] = SECTIONS[name](run_case, scale, repeats)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1))
        arguments.out.with_suffix(".md").write_text(as_markdown(results))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
