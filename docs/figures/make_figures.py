"""Make the pictures of the documentation: ``python docs/figures/make_figures.py``.

Those of ``plots.md`` come from generated data and from data that scikit-learn brings along, so
they can be made anywhere. With the environment variable BHCLUST_DATA set to a folder with the
data sets of the papers, the pictures of zoo, digits, glass and newsgroups are made as well.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from PIL import Image
from scipy import sparse
from sklearn.datasets import load_iris, load_wine

from bhclust import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    plots,
)
from bhclust.datasets import load_paper_data, make_mixed_table
from bhclust.explanations import label_nodes
from bhclust.models import Bernoulli, GaussianProcessExpert, Multinomial, TimeSeries

HERE = Path(__file__).parent
DPI = 100


def wine() -> pd.DataFrame:
    """Return the 178 wines of scikit-learn's data set with 13 measurements."""
    return load_wine(as_frame=True).data


def blobs() -> np.ndarray:
    """Return 150 points in the plane in four groups of different shape."""
    rng = np.random.default_rng(5)
    groups = [
        rng.normal((0, 0), (0.6, 1.5), (50, 2)),
        rng.normal((5, 1), (1.2, 0.5), (40, 2)),
        rng.normal((4, 6), (0.7, 0.7), (40, 2)),
        rng.normal((-2, 6), (0.5, 0.8), (20, 2)),
    ]
    return np.concatenate(groups)


def profiles() -> tuple[np.ndarray, np.ndarray]:
    """Return times and 90 noisy curves of three shapes, a tenth of the entries missing."""
    rng = np.random.default_rng(0)
    times = np.array([0, 1, 2, 4, 6, 8, 12, 16.0])
    shapes = np.array([np.sin(times / 3), np.cos(times / 3), times / 10])
    X = shapes[np.arange(90) % 3] + 0.25 * rng.normal(size=(90, 8))
    X[rng.random(X.shape) < 0.1] = np.nan
    return times, X


def two_waves() -> np.ndarray:
    """Return 100 points on two sine waves, one above the other."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, size=100)
    return np.column_stack([x, np.sin(x) + 2.0 * (np.arange(100) % 2) + 0.1 * rng.normal(size=100)])


def paper_table(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a data set of the papers as a named table, and its classes."""
    data = load_paper_data(name)
    names = data.get("names")
    return pd.DataFrame(data["X"], columns=data["feature_names"], index=names), data["y"]


def articles(n_of_group: int, n_words: int) -> tuple[pd.DataFrame, list[str]]:
    """Return how often frequent words are in some newsgroup articles, and the group of each."""
    data = load_paper_data("newsgroups4_counts")
    counts = sparse.csr_array(
        (data["data"], data["indices"], data["indptr"]), shape=tuple(data["shape"])
    )
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.choice(np.flatnonzero(data["y"] == k), n_of_group, replace=False) for k in range(4)]
    )
    few = counts[rows]
    frequency = np.asarray((few > 0).sum(axis=0)).ravel()
    frequency[data["is_stopword"]] = 0
    words = np.sort(np.argsort(-frequency, kind="stable")[:n_words])
    table = pd.DataFrame(few[:, words].toarray(), columns=data["vocab"][words])
    return table, [str(data["class_names"][k]) for k in data["y"][rows]]


# -- pictures that can be made anywhere ----------------------------------------------------------


def dendrogram_wine() -> None:
    """A binary tree, its clusters, and the joins that the model rejects."""
    fitted = BayesianHierarchicalClustering().fit(wine().iloc[::3])
    plots.dendrogram(fitted)


def dendrogram_top() -> None:
    """The top of a tree with words for its branches."""
    fitted = BayesianHierarchicalClustering().fit(wine())
    words = label_nodes(fitted, top=1, lower=True)
    plots.dendrogram(fitted, orientation="left", top=10, node_labels=words)


def dendrogram_rose() -> None:
    """A rose tree."""
    fitted = BayesianRoseTree().fit(load_iris().data[::3])
    plots.dendrogram(fitted, height="rank", names=load_iris().target_names[load_iris().target[::3]])


def dendrogram_coalescent() -> None:
    """A tree with ages."""
    iris = load_iris()
    fitted = CoalescentClustering(n_clusters=3, random_state=0).fit(iris.data[::5])
    plots.dendrogram(fitted, orientation="right", names=iris.target_names[iris.target[::5]])


def radial_wine() -> None:
    """The same tree as a circle."""
    fitted = BayesianHierarchicalClustering().fit(wine().iloc[::2])
    plots.radial(fitted, height="rank")


def heatmap_mixed() -> None:
    """A table of all kinds of columns, with missing entries."""
    table = make_mixed_table(60, random_state=1).columns
    plots.heatmap(BayesianHierarchicalClustering().fit(table), table)


def density_blobs() -> None:
    """The predictive density in the plane."""
    plots.density(BayesianHierarchicalClustering("gaussian").fit(blobs()))


def co_clustering_wine() -> None:
    """Which wines belong together."""
    plots.co_clustering(BayesianHierarchicalClustering().fit(wine()))


def n_clusters_blobs() -> None:
    """How many clusters there are."""
    plots.n_clusters(BayesianHierarchicalClustering("gaussian").fit(blobs()))


def curves_one() -> None:
    """A cluster of time series."""
    times, X = profiles()
    plots.curves(BayesianHierarchicalClustering(TimeSeries(times=times)).fit(X), 0)


def curves_all() -> None:
    """All clusters of time series."""
    times, X = profiles()
    plots.curves(BayesianHierarchicalClustering(TimeSeries(times=times)).fit(X))


def regression_waves() -> None:
    """Two regressions through one cloud of points."""
    X = two_waves()
    # A narrow prior of the inputs says that each curve runs over all of them.
    model = GaussianProcessExpert(
        length_scale=1.5, noise=0.1, strength=50, dof=500, scale=498 * X[:, 0].var()
    )
    plots.regression(BayesianRoseTree(model, gamma=0.02).fit(X))


def clustermap() -> None:
    """seaborn with a tree of bhclust."""
    table = wine().iloc[::3]
    fitted = BayesianHierarchicalClustering().fit(table)
    sns.clustermap(
        table,
        row_linkage=fitted.tree_.to_linkage(),
        col_cluster=False,
        z_score=1,
        cmap="RdBu_r",
        figsize=(6.5, 9.0),
        cbar_pos=(0.06, 0.04, 0.03, 0.16),
        dendrogram_ratio=(0.22, 0.02),
    )


# -- pictures of the papers' data ----------------------------------------------------------------


def zoo_dendrogram() -> None:
    """Animals, with the joins that the model rejects."""
    table, _ = paper_table("zoo")
    plots.dendrogram(BayesianHierarchicalClustering().fit(table))


def zoo_radial() -> None:
    """Animals in a circle, the rose tree."""
    table, _ = paper_table("zoo")
    plots.radial(BayesianRoseTree().fit(table), height="rank")


def zoo_heatmap() -> None:
    """Animals and their features."""
    table, _ = paper_table("zoo")
    fitted = BayesianHierarchicalClustering().fit(table)
    plots.heatmap(fitted, table)


def zoo_co_clustering() -> None:
    """Which animals belong together."""
    table, _ = paper_table("zoo")
    plots.co_clustering(BayesianHierarchicalClustering().fit(table.iloc[::2]))


def zoo_n_clusters() -> None:
    """How many clusters the animals have."""
    plots.n_clusters(BayesianHierarchicalClustering().fit(paper_table("zoo")[0]))


def digits_rose() -> None:
    """The digits 0, 2 and 4, coloured by what they are."""
    data = load_paper_data("cedar_digits024")
    fitted = BayesianRoseTree(Bernoulli()).fit((data["X"] > 128).astype(int))
    plots.dendrogram(fitted, labels=data["y"] // 2, names=[str(d) for d in data["y"]])


def digits_heatmap() -> None:
    """The pixels of the digits."""
    data = load_paper_data("cedar_digits024")
    X = (data["X"] > 128).astype(int)
    fitted = BayesianHierarchicalClustering(Bernoulli()).fit(X)
    plots.heatmap(fitted, X, names=[str(d) for d in data["y"]], max_columns=64)


def digits_radial() -> None:
    """The digits in a circle, coloured by cluster."""
    data = load_paper_data("cedar_digits024")
    fitted = BayesianHierarchicalClustering(Bernoulli()).fit(data["X"] > 128)
    plots.radial(fitted, names=[str(d) for d in data["y"]])


def digits_co_clustering() -> None:
    """Which digits belong together."""
    data = load_paper_data("cedar_digits024")
    plots.co_clustering(BayesianHierarchicalClustering(Bernoulli()).fit(data["X"] > 128))


def digits_n_clusters() -> None:
    """How many clusters the digits have."""
    data = load_paper_data("cedar_digits024")
    plots.n_clusters(BayesianHierarchicalClustering(Bernoulli()).fit(data["X"] > 128))


def glass_dendrogram() -> None:
    """Glass fragments, the top of the tree with the oxides that tell its branches apart."""
    table, _ = paper_table("glass")
    fitted = BayesianHierarchicalClustering().fit(table)
    words = label_nodes(fitted, top=2, lower=True)
    plots.dendrogram(fitted, orientation="left", top=12, node_labels=words)


def glass_density() -> None:
    """Two of the oxides."""
    table, _ = paper_table("glass")
    plots.density(BayesianHierarchicalClustering("gaussian").fit(table[["Na", "Al"]]))


def glass_heatmap() -> None:
    """All glass fragments and what they are made of."""
    table, _ = paper_table("glass")
    plots.heatmap(BayesianHierarchicalClustering().fit(table), table)


def glass_radial() -> None:
    """All glass fragments in a circle, coloured by their type."""
    table, types = paper_table("glass")
    fitted = BayesianHierarchicalClustering().fit(table)
    plots.radial(fitted, labels=types, names=[f"type {k}" for k in types])


def glass_co_clustering() -> None:
    """Which glass fragments belong together."""
    plots.co_clustering(BayesianHierarchicalClustering().fit(paper_table("glass")[0]))


def glass_n_clusters() -> None:
    """How many clusters the glass fragments have."""
    plots.n_clusters(BayesianHierarchicalClustering().fit(paper_table("glass")[0]))


def newsgroups_words() -> None:
    """Articles of four newsgroups: the top of the tree with words, as in the BHC paper."""
    table, _ = articles(200, 500)
    fitted = BayesianHierarchicalClustering(Multinomial()).fit(table)
    words = label_nodes(fitted, top=3)
    ax = plt.figure(figsize=(9, 6), layout="constrained").add_subplot()
    plots.dendrogram(fitted, ax, orientation="left", top=12, node_labels=words)


def newsgroups_radial() -> None:
    """All articles, coloured by their group."""
    table, groups = articles(30, 400)
    fitted = BayesianHierarchicalClustering(Multinomial()).fit(table)
    plots.radial(fitted, labels=groups, names=groups, height="rank")


def newsgroups_heatmap() -> None:
    """The words that tell the clusters of articles apart best."""
    table, groups = articles(30, 400)
    fitted = BayesianHierarchicalClustering(Multinomial()).fit(table)
    plots.heatmap(fitted, table, names=groups, max_columns=50)


def newsgroups_n_clusters() -> None:
    """How many clusters the articles have."""
    table, _ = articles(30, 400)
    plots.n_clusters(BayesianHierarchicalClustering(Multinomial()).fit(table))


def newsgroups_co_clustering() -> None:
    """Which articles belong together."""
    table, _ = articles(200, 500)
    plots.co_clustering(BayesianHierarchicalClustering(Multinomial()).fit(table))


ANYWHERE: tuple[Callable[[], None], ...] = (
    dendrogram_wine,
    dendrogram_top,
    dendrogram_rose,
    dendrogram_coalescent,
    radial_wine,
    heatmap_mixed,
    density_blobs,
    co_clustering_wine,
    n_clusters_blobs,
    curves_one,
    curves_all,
    regression_waves,
    clustermap,
)
WITH_DATA: tuple[Callable[[], None], ...] = (
    zoo_dendrogram,
    zoo_radial,
    zoo_heatmap,
    zoo_co_clustering,
    zoo_n_clusters,
    digits_rose,
    digits_heatmap,
    digits_radial,
    digits_co_clustering,
    digits_n_clusters,
    glass_dendrogram,
    glass_density,
    glass_heatmap,
    glass_radial,
    glass_co_clustering,
    glass_n_clusters,
    newsgroups_words,
    newsgroups_radial,
    newsgroups_heatmap,
    newsgroups_n_clusters,
    newsgroups_co_clustering,
)


def save(picture: Callable[[], None], folder: Path) -> Path:
    """Draw one picture and write it."""
    plt.close("all")
    picture()
    path = folder / f"{picture.__name__}.png"
    figure = plt.gcf()
    whole = None if figure.get_layout_engine() else "tight"
    figure.savefig(path, dpi=DPI, bbox_inches=whole, metadata={"Software": None})
    plt.close("all")
    shrink(path)
    return path


def shrink(path: Path) -> None:
    """Rewrite a picture with a palette of 256 colours: a third of the size, nothing to see."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main() -> None:
    """Make the pictures whose names hold one of the words given, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only pictures whose names hold one of these")
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    pictures = ANYWHERE + (WITH_DATA if os.environ.get("BHCLUST_DATA") else ())
    for picture in pictures:
        name = picture.__name__
        if not chosen.words or any(word in name for word in chosen.words):
            path = save(picture, chosen.out)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
