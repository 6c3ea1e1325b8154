"""Make the picture of the README: ``python docs/figures/make_readme_picture.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from bhclust import BayesianHierarchicalClustering, plots
from bhclust.datasets import make_mixed_table


def main() -> None:
    """Draw the tree beside the table of guests, and the number of clusters."""
    guests = make_mixed_table(60, random_state=1).columns
    clustering = BayesianHierarchicalClustering().fit(guests)
    figure = plt.figure(figsize=(10, 5.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    plots.heatmap(clustering, guests, left)
    plots.n_clusters(clustering, right)
    path = Path(__file__).with_name("readme.png")
    figure.savefig(path, dpi=90, metadata={"Software": None})
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
