"""Default settings against the papers' plain greedy, linkage and HDBSCAN; evidence and purity.

    python benchmarks/learning.py run [--seeds 10] [--only NAME ...] [--settings NAME ...]
    python benchmarks/learning.py figure4                              BHC paper, Figure 4
    python benchmarks/learning.py speed                                1,000 × 64 binary points
    python benchmarks/learning.py table                                Markdown from the JSON

The papers' data sets are read from the folder that the variable BHCLUST_DATA names. Classes are
used for the scores only, after the fit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.sparse import csr_array
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score

from bhclust import BayesianHierarchicalClustering, Tree
from bhclust._linkage import numeric_features
from bhclust.datasets import load_paper_data, make_blocks, make_gaussian_tree
from bhclust.metrics import dendrogram_purity
from bhclust.models import Bernoulli, ClusterModel, Column, DiagonalGaussian, Gaussian

RESULTS = Path(__file__).parents[1] / "docs" / "results"

# Seed of the draws. The defaults were chosen on others (2005, and 100 to 211): these are fresh.
DRAWS = 2027


class Sample(NamedTuple):
    """One draw: the table, its classes, the model, and the prior that "plain" is given."""

    X: np.ndarray
    y: np.ndarray
    model: ClusterModel


def per_class(X: np.ndarray, y: np.ndarray, count: int, rng: np.random.Generator) -> Any:
    """Return as many rows of each class."""
    rows = [rng.choice(np.flatnonzero(y == c), count, replace=False) for c in np.unique(y)]
    rows = np.concatenate(rows)
    return X[rows], y[rows]


def spambase(rng: np.random.Generator) -> Sample:
    data = load_paper_data("spambase")
    return Sample(*per_class((data["X"] > 0) * 1.0, data["y"], 100, rng), Bernoulli())


def digits(rng: np.random.Generator) -> Sample:
    data = load_paper_data("cedar_digits")
    return Sample(*per_class((data["X"] > 128) * 1.0, data["y"], 20, rng), Bernoulli())


def digits024(rng: np.random.Generator) -> Sample:
    data = load_paper_data("cedar_digits")
    some = np.isin(data["y"], (0, 2, 4))
    return Sample(*per_class((data["X"][some] > 128) * 1.0, data["y"][some], 40, rng), Bernoulli())


def newsgroups(rng: np.random.Generator) -> Sample:
    """Fifty articles a group, the 200 words that most of them hold (stop words left out)."""
    data = load_paper_data("newsgroups4_counts")
    counts = csr_array((data["data"], data["indices"], data["indptr"]), shape=data["shape"])
    rows = np.concatenate(
        [rng.choice(np.flatnonzero(data["y"] == c), 50, replace=False) for c in range(4)]
    )
    present = (counts[rows].toarray() > 0)[:, ~data["is_stopword"]] * 1.0
    common = np.argsort(-present.sum(axis=0), kind="stable")[:200]
    return Sample(present[:, common], data["y"][rows], Bernoulli())


def glass(rng: np.random.Generator) -> Sample:
    """The paper's 214 fragments; each draw leaves out a random sixth."""
    data = load_paper_data("glass")
    rows = rng.permutation(214)[:178]
    return Sample(data["X"][rows], data["y"][rows], DiagonalGaussian())


def four_gaussians(rng: np.random.Generator) -> Sample:
    """The BHC paper's synthetic set is described as 200 points of 4 Gaussians in the plane."""
    y = rng.integers(4, size=200)
    roots = rng.normal(size=(4, 2, 2))
    points = np.einsum("nij,nj->ni", roots[y], rng.normal(size=(200, 2)))
    return Sample(4 * rng.normal(size=(4, 2))[y] + points, y, Gaussian())


def toy(rng: np.random.Generator) -> Sample:
    X, y = make_blocks(random_state=rng)
    return Sample(X * 1.0, y, Bernoulli())


def gauss(d: int, spread: float, vague: bool) -> Callable[[np.random.Generator], Sample]:
    """Five unit Gaussians whose centres have a standard deviation of ``spread`` a column.

    The vague start expects the whole variance of a column inside a cluster.
    """

    def draw(rng: np.random.Generator) -> Sample:
        y = rng.integers(5, size=200)
        X = spread * rng.normal(size=(5, d))[y] + rng.normal(size=(200, d))
        prior = DiagonalGaussian(strength=0.01, shape=1.0, rate=X.var(axis=0))
        return Sample(X, y, prior if vague else DiagonalGaussian())

    return draw


def weak_binary(rng: np.random.Generator) -> Sample:
    y = rng.integers(4, size=200)
    probability = rng.beta(2, 2, size=(4, 30))
    return Sample((rng.random((200, 30)) < probability[y]) * 1.0, y, Bernoulli())


def nested(rng: np.random.Generator) -> Sample:
    sample = make_gaussian_tree(20, (3, 4), 16, separation=3.0, random_state=rng)
    return Sample(sample.X, sample.y, DiagonalGaussian())


FAMILIES: dict[str, Callable[[np.random.Generator], Sample]] = {
    "spambase": spambase,
    "digits 0/2/4": digits024,
    "ten digits": digits,
    "newsgroups": newsgroups,
    "glass": glass,
    "four Gaussians": four_gaussians,
    "toy blocks": toy,
    "Gauss 2-d": gauss(2, 3.0, False),
    "Gauss 2-d, vague": gauss(2, 3.0, True),
    "Gauss 10-d": gauss(10, 1.2, False),
    "Gauss 10-d, vague": gauss(10, 1.2, True),
    "Gauss 50-d": gauss(50, 0.8, False),
    "Gauss 50-d, vague": gauss(50, 0.8, True),
    "binary 30-d, weak": weak_binary,
    "nested Gauss 16-d": nested,
}

# Every variant differs from the default in one setting, so that each is seen on its own.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"learn": False, "strategy": "greedy"},
    "default": {},
    "9 restarts": {"n_restarts": 9},
    "greedy": {"strategy": "greedy"},
    "all": {"strategy": "all"},
    "shared": {"learn": "shared"},
    "per feature": {"learn": True},
    "polish": {"polish": True},
}


def ours(sample: Sample, model: ClusterModel, settings: dict[str, Any]) -> dict[str, float]:
    began = time.process_time()
    fitted = BayesianHierarchicalClustering(model, **settings).fit(sample.X)
    seconds = time.process_time() - began
    return {
        **purities(fitted.tree_, sample.y),
        "ari": float(adjusted_rand_score(sample.y, fitted.labels_)),
        "evidence": float(fitted.log_evidence_bound_),
        "clusters": float(fitted.n_clusters_),
        "seconds": seconds,
        "polish gain": float(fitted.polish_gain_),
    }


def purities(tree: Tree, y: np.ndarray) -> dict[str, float]:
    return {
        f"purity {average}": dendrogram_purity(tree, y.tolist(), average)
        for average in ("leaf", "pair")
    }


def linkages(features: np.ndarray, y: np.ndarray) -> dict[str, dict[str, float]]:
    out = {}
    for method in ("single", "complete", "average", "ward"):
        began = time.process_time()
        Z = linkage(features, method)
        seconds = time.process_time() - began
        labels = cut_tree(Z, n_clusters=len(np.unique(y))).ravel()
        out[method] = {
            **purities(Tree.from_linkage(Z), y),
            "ari": float(adjusted_rand_score(y, labels)),
            "seconds": seconds,
        }
    began = time.process_time()
    labels = HDBSCAN(copy=True).fit_predict(features)
    out["HDBSCAN"] = {
        "ari": float(adjusted_rand_score(y, labels)),
        "seconds": time.process_time() - began,
    }
    return out


def run(names: list[str], n_seeds: int, settings: list[str]) -> None:
    for name in names:
        known = read().get("families", {}).get(name, [])
        rows = []
        for seed in range(n_seeds):
            sample = FAMILIES[name](np.random.default_rng([DRAWS, seed]))
            row = {key: ours(sample, sample.model, SETTINGS[key]) for key in settings}
            if seed < len(known):
                rows.append({**known[seed], **row})
                continue
            binary = isinstance(sample.model, Bernoulli)
            if binary:
                uniform = Bernoulli(a=1.0, b=1.0)
                row["plain, uniform prior"] = ours(sample, uniform, SETTINGS["plain"])
            kind = "binary" if binary else "real"
            columns = [Column(str(j), kind) for j in range(sample.X.shape[1])]
            features = numeric_features(sample.X, columns, np.ones(len(sample.X)))
            rows.append({**row, **linkages(features, sample.y)})
        keep("families", {name: rows})
        print(name, {k: round(mean_of(rows, k, "purity leaf")[0], 3) for k in rows[0]}, flush=True)


def read() -> dict[str, Any]:
    path = RESULTS / "learning.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def keep(part: str, values: dict[str, Any]) -> None:
    """Add to the file of results; it is read anew each time: parts may run side by side."""
    content = read()
    content.setdefault(part, {}).update(values)
    text = json.dumps(content) + "\n"
    (RESULTS / "learning.json").write_text(text, "utf-8")


def figure4() -> None:
    """Evidence and purity over 50 settings of the beta prior (BHC paper, Figure 4).

    The prior mean is drawn between a half and the frequency of the column, the prior number of
    items over three decades.
    """
    chosen = load_paper_data("cedar_digits024")
    every = load_paper_data("cedar_digits")
    rng = np.random.default_rng(2005)
    sets = {
        "digits 0/2/4": ((chosen["X"] > 128) * 1.0, chosen["y"]),
        "ten digits": per_class((every["X"] > 128) * 1.0, every["y"], 20, rng),
    }
    out = {}
    for name, (X, y) in sets.items():
        frequency = (X.sum(axis=0) + 1) / (len(X) + 2)
        points = []
        for _ in range(50):
            items, share = float(np.exp(rng.uniform(np.log(0.2), np.log(200)))), rng.uniform()
            a = items * (share * frequency + (1 - share) / 2)
            settings = SETTINGS["plain"]
            fitted = BayesianHierarchicalClustering(Bernoulli(a=a, b=items - a), **settings).fit(X)
            points.append([fitted.log_evidence_bound_, dendrogram_purity(fitted.tree_, y.tolist())])
        correlation = float(np.corrcoef(np.array(points).T)[0, 1])
        out[name] = {"correlation": correlation, "points": points}
        print(name, round(correlation, 3))
    keep("figure4", out)


def speed() -> None:
    rng = np.random.default_rng(0)
    probability = rng.beta(0.5, 0.5, size=(10, 64))
    X = (rng.random((1000, 64)) < probability[rng.integers(10, size=1000)]) * 1.0
    BayesianHierarchicalClustering().fit(X[:50])  # compiled kernels come from the disk
    began, cpu = time.perf_counter(), time.process_time()
    fitted = BayesianHierarchicalClustering().fit(X)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    keep("speed", {"wall": wall, "processor": cpu, "trees": fitted.n_iter_})
    print(f"{wall:.2f} s ({cpu:.2f} s of processor time), {fitted.n_iter_} trees")


def mean_of(rows: list[dict[str, Any]], method: str, score: str) -> tuple[float, float]:
    values = np.array(
        [row[method][score] for row in rows if method in row and score in row[method]]
    )
    if not len(values):
        return float("nan"), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def gain_of(rows: list[dict[str, Any]], method: str, score: str) -> tuple[float, float]:
    """Return the mean and standard error of the paired difference to "plain"."""
    gains = np.array([row[method][score] - row["plain"][score] for row in rows])
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def score_table(families: dict[str, Any], score: str, digits: int) -> list[str]:
    methods = list(dict.fromkeys(m for rows in families.values() for row in rows for m in row))
    lines = ["| data | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name, rows in families.items():
        cells = []
        for method in methods:
            mean, error = mean_of(rows, method, score)
            cells.append("" if np.isnan(mean) else f"{mean:.{digits}f} ± {error:.{digits}f}")
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def gain_table(families: dict[str, Any]) -> list[str]:
    scores = ("purity leaf", "purity pair", "ari", "evidence")
    lines = ["| data | " + " | ".join(scores) + " | worse by over one error |", "|---" * 6 + "|"]
    for name, rows in families.items():
        gains = [gain_of(rows, "default", score) for score in scores]
        # What is not seen in three digits is no difference.
        worse = [
            score
            for score, (mean, error) in zip(scores, gains, strict=True)
            if mean < -max(error, 5e-4)
        ]
        cells = [f"{m:+.3f} ± {e:.3f}" for m, e in gains[:3]]
        cells.append(f"{gains[3][0]:+.1f} ± {gains[3][1]:.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {', '.join(worse)} |")
    return lines


def table() -> None:
    content = read()
    families = {name: content["families"][name] for name in FAMILIES if name in content["families"]}
    n_seeds = min(len(rows) for rows in families.values())
    lines = [
        "# Learning and strategies: measured",
        "",
        f"Made by `benchmarks/learning.py`; mean ± standard error of at least {n_seeds} draws, the",
        "same draws for all methods. The methods are described in the guide, `docs/learning.md`.",
        "",
        "## Default settings less plain greedy with the same start, paired",
        "",
        *gain_table(families),
    ]
    titles = (
        ("Dendrogram purity, leaves weighed alike", "purity leaf", 3),
        ("Dendrogram purity, pairs weighed alike", "purity pair", 3),
        ("Adjusted Rand index at the chosen cut (linkage: cut at the true number)", "ari", 3),
        ("Number of clusters", "clusters", 1),
        ("Evidence bound", "evidence", 1),
        ("Evidence that polishing added", "polish gain", 2),
        ("Processor seconds", "seconds", 2),
    )
    for title, score, digits_shown in titles:
        lines += ["", f"## {title}", "", *score_table(families, score, digits_shown)]
    for name, result in content.get("figure4", {}).items():
        correlation = f"{result['correlation']:.3f}"
        lines += ["", f"Evidence and purity over 50 priors, {name}: correlation {correlation}."]
    if "speed" in content:
        wall, processor, trees = (content["speed"][key] for key in ("wall", "processor", "trees"))
        spent = f"{wall:.2f} s ({processor:.2f} s of processor time), {trees} trees"
        lines += ["", f"A fit with learning of 1,000 × 64 binary points: {spent}."]
    (RESULTS / "learning.md").write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "figure4", "speed", "table"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(FAMILIES))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    given = parser.parse_args()
    if given.what == "run":
        run(given.only, given.seeds, given.settings)
    else:
        {"figure4": figure4, "speed": speed, "table": table}[given.what]()


if __name__ == "__main__":
    main()
