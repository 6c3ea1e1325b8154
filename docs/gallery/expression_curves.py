"""
Clusters of curves
==================

Ninety profiles measured at eight uneven times, a tenth of the measurements missing. A cluster is
one smooth curve, a Gaussian process, and its profiles are noisy copies.
"""

import matplotlib.pyplot as plt
import numpy as np

from bhclust import BayesianHierarchicalClustering, plots
from bhclust.models import TimeSeries

rng = np.random.default_rng(0)
hours = np.array([0, 1, 2, 4, 6, 8, 12, 16.0])
shapes = np.array([np.sin(hours / 3), np.cos(hours / 3), hours / 10])
profiles = shapes[np.arange(90) % 3] + 0.25 * rng.normal(size=(90, 8))
profiles[rng.random(profiles.shape) < 0.1] = np.nan

clustering = BayesianHierarchicalClustering(TimeSeries(times=hours)).fit(profiles)
print(clustering.n_clusters_, "clusters of", np.bincount(clustering.labels_), "profiles")
print(f"length scale {clustering.model_.length_scale:.1f} h, noise {clustering.model_.noise:.2f}")

# %%
# The dark band is the uncertainty of the mean curve, the pale one that of a new measurement.

fig, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
for label, ax in enumerate(axes):
    plots.curves(clustering, label, ax)
plt.show()
