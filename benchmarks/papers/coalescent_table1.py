"""Table 1 of Teh, Daumé & Roy (2008): MNIST and Spambase, three trees, three scores."""

from __future__ import annotations

import numpy as np
from coalescent_common import (
    arguments,
    average_linkage,
    data_file,
    mean_and_error,
    table,
    tree_scores,
    write,
)
from runner import compute_all

from bhclust import BayesianHierarchicalClustering
from bhclust.coalescent import Brownian
from bhclust.estimators.coalescent import CoalescentClustering

# Scores the paper reports, in the order average linkage, BHC, Greedy-Rate1.
PAPER = {
    "MNIST": {
        "purity": (0.363, 0.392, 0.412),
        "subtree": (0.581, 0.579, 0.610),
        "leave-one-out": (0.755, 0.763, 0.773),
    },
    "Spambase": {
        "purity": (0.616, 0.711, 0.689),
        "subtree": (0.607, 0.549, 0.661),
        "leave-one-out": (0.846, 0.832, 0.861),
    },
}
METHODS = ("average linkage", "BHC", "Greedy-Rate1", "Greedy-Rate1, simpler")
SCORES = ("purity", "subtree", "leave-one-out")
N_COMPONENTS = 20


def draw(y: np.ndarray, per_class: int, rng: np.random.Generator) -> np.ndarray:
    """Return rows: as many of each class, in random order."""
    rows = [rng.choice(np.flatnonzero(y == c), per_class, replace=False) for c in np.unique(y)]
    return rng.permutation(np.concatenate(rows))


def principal_components(X: np.ndarray, scaled: bool = False) -> np.ndarray:
    """Return the scores of the leading principal components, perhaps each of variance 1."""
    centred = X - X.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    kept = left[:, :N_COMPONENTS]
    return kept / kept.std(axis=0) if scaled else kept * scale[:N_COMPONENTS]


def trees_of(name: str, X: np.ndarray) -> dict:
    """Return the trees of all methods."""
    if name != "Spambase":
        model, process = "diagonal_gaussian", Brownian(structure="full")
        simpler = CoalescentClustering(Brownian(structure="isotropic"))
    else:
        model, process = "bernoulli", "mutation"
        simpler = CoalescentClustering("mutation", learn=False)
    return {
        "average linkage": average_linkage(X),
        "BHC": BayesianHierarchicalClustering(model).fit(X).tree_,
        "Greedy-Rate1": CoalescentClustering(process).fit(X).tree_,
        "Greedy-Rate1, simpler": simpler.fit(X).tree_,
    }


def main() -> None:
    options = arguments(__doc__)
    mnist = np.load(data_file("mnist_t10k.npz"))
    spam = np.load(data_file("spambase.npz"))
    images = (mnist["X"].astype(float), mnist["y"], 20, 3 if options.quick else 50)
    sets = {
        "MNIST": images,
        "MNIST, scaled": images,
        "Spambase": ((spam["X"] > 0).astype(float), spam["y"], 100, 2 if options.quick else 20),
    }
    results: dict = {}
    used: list = []
    rows = []
    for name, (X, y, per_class, repeats) in sets.items():
        rng = np.random.default_rng(options.seed)
        chosen = [draw(y, per_class, rng) for _ in range(repeats)]

        def one(unit: dict, X=X, y=y, chosen=chosen) -> dict:
            rows = chosen[unit["draw"]]
            sample = X[rows]
            if unit["data"] != "Spambase":
                sample = principal_components(sample, scaled="scaled" in unit["data"])
            trees = trees_of(unit["data"], sample)
            return {method: tree_scores(tree, y[rows]) for method, tree in trees.items()}

        units = [{"data": name, "draw": k, "seed": options.seed} for k in range(repeats)]
        records = compute_all("coalescent_table1", units, one, options)
        if options.only:
            continue
        used += records
        found = [record["result"] for record in records]
        scores = {m: {s: [f[m][s] for f in found] for s in SCORES} for m in METHODS}
        results[name] = {
            "repeats": len(found),
            "per_class": per_class,
            "seconds": sum(record["seconds"] for record in records),
            "scores": scores,
        }
        for score, reported in PAPER[name.split(",")[0]].items():
            cells = ["{:.3f} ± {:.3f}".format(*mean_and_error(scores[m][score])) for m in METHODS]
            paper = " / ".join(f".{round(1000 * v):03d}" for v in reported)
            rows.append([name, score, *cells, paper])
    if options.only:
        return
    text = (
        "# Coalescent paper, Table 1\n\n"
        "Mean and standard error over "
        f"{results['MNIST']['repeats']} (MNIST) and {results['Spambase']['repeats']} (Spambase) "
        "draws. MNIST: 20 images of each digit, the first 20 principal components of the draw, as "
        "they come or scaled to variance 1. "
        "Spambase: 100 e-mails of each class, 57 attributes as zero or not. Greedy-Rate1 learns a "
        "full covariance (inverse-Wishart prior) or rates and equilibria in two rounds; the "
        "simpler one has an isotropic covariance (MNIST) or learns nothing (Spambase).\n\n"
        + table(["data", "score", *METHODS, "paper: average / BHC / Rate1"], rows)
        + "\nWhat differs from the paper: MNIST comes from the 10,000 test images, and the "
        "numbers of images and dimensions are lost in the text at hand, so 20, 20 and the scale "
        "are a guess (seven settings of covariance and learning were looked at on 6 draws first); "
        "BHC is this library's with its default priors (the paper does not give its own); average "
        "linkage is on Euclidean distances; leave-one-out predicts a leaf by the commonest class "
        "of the other leaves below its parent.\n"
    )
    write(options, "coalescent_table1", {"results": results, "paper": PAPER}, text, used)


if __name__ == "__main__":
    main()
