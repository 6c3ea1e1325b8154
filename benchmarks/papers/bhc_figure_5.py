"""Figure 5 of Heller & Ghahramani (2005): three toys in the plane, BHC against average linkage.

The paper's points are not published. Drawn here: round clusters of unequal size with a few points
between them, long thin clusters side by side, and groups of groups. Each picture has BHC's tree
(dashed where a node is rather split, r < 0.5), its cut with the predictive density, and average
linkage with its cut into the same number of clusters.

BHC is run with the default settings and with learning switched on (``learn="shared"``): by default
a learned prior is taken only if it gains 30 nats, which 60 points seldom give. The picture shows
the one of higher evidence.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from drawing import PALETTE, draw_tree, steps_below
from runner import Record, Unit, pictures, pyplot, study
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from bhclust import BayesianHierarchicalClustering, Tree
from bhclust.metrics import dendrogram_purity

Component = tuple[int, tuple[float, float], tuple[tuple[float, float], tuple[float, float]]]


def blob(count: int, centre: tuple[float, float], width: float = 1.0) -> Component:
    return count, centre, ((width**2, 0.0), (0.0, width**2))


# Number of points, centre and covariance of each component.
TOYS: dict[str, list[Component]] = {
    "unequal": [blob(30, (0, 0)), blob(12, (6, 1), 0.6), blob(6, (2, 6), 0.4), blob(4, (3, 3), 3)],
    "long": [
        (20, (0, 0), ((6.0, 5.6), (5.6, 6.0))),
        (20, (2.5, -2.5), ((6.0, 5.6), (5.6, 6.0))),
        (16, (6, -6), ((3.0, -2.7), (-2.7, 3.0))),
    ],
    "nested": [
        blob(12, (0, 0), 0.5),
        blob(12, (2.5, 0), 0.5),
        blob(12, (1.2, 2.2), 0.5),
        blob(12, (12, 10), 0.5),
        blob(12, (14.5, 10.5), 0.5),
    ],
}


def draw_points(
    name: str, rng: np.random.Generator, times: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the points of a toy, ``times`` as many."""
    parts = [rng.multivariate_normal(m, c, size=times * n) for n, m, c in TOYS[name]]
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(p) for p in parts])


def true_log_density(name: str, X: np.ndarray) -> np.ndarray:
    """Return the log density that the points were drawn from."""
    total = sum(n for n, _, _ in TOYS[name])
    terms = [n / total * multivariate_normal(m, c).pdf(X) for n, m, c in TOYS[name]]
    return np.log(np.sum(terms, axis=0))


def units(quick: bool) -> list[Unit]:
    return [{"toy": name, "seed": 5} for name in TOYS]


# Settings of the two ways; which of them is drawn is decided by their evidence.
WAYS: dict[str, dict[str, Any]] = {"default": {}, "learned": {"learn": "shared"}}


def fits(name: str, seed: int) -> Any:
    """Return points, groups, fresh points, and BHC both ways."""
    rng = np.random.default_rng([seed, *name.encode()])
    X, y = draw_points(name, rng)
    fresh, _ = draw_points(name, rng, times=20)
    ways = {way: BayesianHierarchicalClustering(**WAYS[way]).fit(X) for way in WAYS}
    return X, y, fresh, ways


def average_linkage(X: np.ndarray, n_clusters: int) -> tuple[Tree, np.ndarray]:
    """Return the tree of average linkage and its cut."""
    Z = linkage(X, "average")
    return Tree.from_linkage(Z), cut_tree(Z, n_clusters=n_clusters).ravel()


def more_probable(ways: dict[str, Any]) -> str:
    """Return the way of higher evidence."""
    return max(ways, key=lambda way: ways[way].log_evidence_bound_)


def compute(unit: Unit) -> Record:
    X, y, fresh, ways = fits(unit["toy"], unit["seed"])
    one = multivariate_normal(X.mean(axis=0), np.cov(X.T))
    out: Record = {}
    for way, fitted in ways.items():
        average, labels = average_linkage(X, fitted.n_clusters_)
        out[way] = {
            "groups": len(TOYS[unit["toy"]]),
            "clusters": fitted.n_clusters_,
            "BHC purity": dendrogram_purity(fitted.tree_, y.tolist()),
            "average purity": dendrogram_purity(average, y.tolist()),
            "BHC ARI": adjusted_rand_score(y, fitted.labels_),
            "average ARI": adjusted_rand_score(y, labels),
            "density BHC": fitted.score(fresh),
            "density truth": float(true_log_density(unit["toy"], fresh).mean()),
            "density one Gaussian": float(one.logpdf(fresh).mean()),
            "evidence": fitted.log_evidence_bound_,
        }
    return {"ways": out, "shown": more_probable(ways)}


def picture(path: Any) -> None:
    plot = pyplot()
    figure, axes = plot.subplots(len(TOYS), 4, figsize=(11, 7.6))
    for row, name in zip(axes, TOYS, strict=True):
        X, _, _, ways = fits(name, 5)
        way = more_probable(ways)
        fitted = ways[way]
        average, labels = average_linkage(X, fitted.n_clusters_)
        tree = fitted.tree_
        draw_tree(
            row[0], tree, steps_below(tree), colours=fitted.labels_.tolist(), size=8,
            dashed=tree.log_odds < 0,
        )  # fmt: skip
        row[0].set_title(f"BHC, {name} ({way})", fontsize=9)
        low, high = X.min(axis=0) - 1.5, X.max(axis=0) + 1.5
        a, b = np.meshgrid(np.linspace(low[0], high[0], 90), np.linspace(low[1], high[1], 90))
        density = fitted.score_samples(np.column_stack([a.ravel(), b.ravel()])).reshape(a.shape)
        top = density.max()
        row[1].contourf(a, b, density, levels=np.linspace(top - 8, top, 9), cmap="Greys", alpha=0.6)
        row[1].set_title("cut and predictive density", fontsize=9)
        draw_tree(row[2], average, average.height, colours=labels.tolist(), size=8)
        row[2].set_title("average linkage", fontsize=9)
        row[3].set_title(f"cut into {labels.max() + 1}", fontsize=9)
        for ax, chosen in ((row[1], fitted.labels_), (row[3], labels)):
            colours = [PALETTE[int(c) % len(PALETTE)] for c in chosen]
            ax.scatter(X[:, 0], X[:, 1], c=colours, s=12, linewidths=0)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.set_xlim(low[0], high[0])
            ax.set_ylim(low[1], high[1])
    figure.tight_layout()
    figure.savefig(path, dpi=75)


def finish(records: list[Record], options: argparse.Namespace) -> Record:
    out = {record["unit"]["toy"]: record["result"] for record in records}
    for name, row in out.items():
        for way, values in row["ways"].items():
            print(name, way, {key: round(value, 3) for key, value in values.items()})
    if pictures(options):
        picture(options.out / "bhc_figure_5.png")
    return {"toys": out, "seed": 5}


if __name__ == "__main__":
    study("bhc_figure_5", units, compute, finish, __doc__)
