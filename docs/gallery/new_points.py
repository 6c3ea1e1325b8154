"""
New points, and points that are new
===================================

A fitted tree is a density. New points get the probability of each cluster and, in the last column,
of a cluster that has not been seen yet.
"""

import matplotlib.pyplot as plt
import numpy as np

from bhclust import BayesianHierarchicalClustering, plots

rng = np.random.default_rng(5)
groups = [
    rng.normal((0, 0), (0.6, 1.5), (50, 2)),
    rng.normal((5, 1), (1.2, 0.5), (40, 2)),
    rng.normal((4, 6), (0.7, 0.7), (40, 2)),
]
clustering = BayesianHierarchicalClustering("gaussian").fit(np.concatenate(groups))

newcomers = np.array([[0.2, 1.0], [2.5, 0.5], [4.2, 5.5], [-3.0, 7.0]])
probability = clustering.predict_proba(newcomers)
print(probability.round(2))
print("log density:", clustering.score_samples(newcomers).round(1))

# %%
# Contours hold 25, 50, 75, 90 and 99 % of the predictive probability. The number beside a newcomer
# (a cross) is the probability that it opens a cluster of its own.

ax = plots.density(clustering)
ax.plot(*newcomers.T, "kX", markersize=9)
for (x, y), row in zip(newcomers, probability, strict=True):
    ax.annotate(f"new: {row[-1]:.2f}", (x, y), (6, 6), textcoords="offset points", weight="bold")
ax.set(xlim=(-5, 8.5), ylim=(-5, 9))
plt.show()
