"""
Binary features with holes
==========================

Handwritten zeros, ones and twos as 8 × 8 black-and-white pixels, of which a third is hidden. The
model sums over everything that a hidden pixel could be; nothing has to be filled in first.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bhclust import BayesianHierarchicalClustering

digits = load_digits(n_class=3)
rng = np.random.default_rng(0)
rows = rng.choice(len(digits.data), 120, replace=False)
truth, pixels = digits.target[rows], (digits.data[rows] > 7).astype(float)
holes = rng.random(pixels.shape) < 1 / 3
seen = np.where(holes, np.nan, pixels)

clustering = BayesianHierarchicalClustering("bernoulli").fit(seen)
filled = clustering.impute(seen)
print(clustering.n_clusters_, "clusters")
for label in range(clustering.n_clusters_):
    print(f"cluster {label}: digits", np.bincount(truth[clustering.labels_ == label], minlength=3))
print(f"hidden pixels filled in rightly: {np.mean(filled[holes] == pixels[holes]):.0%}")

# %%
# Ten digits as they were, with holes (grey), and filled in.

fig, axes = plt.subplots(3, 10, figsize=(8, 2.8), layout="constrained")
for row, (name, images) in enumerate({"whole": pixels, "seen": seen, "filled in": filled}.items()):
    for ax, image in zip(axes[row], images, strict=False):
        ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[], facecolor="#b0c4d8")
    axes[row, 0].set_ylabel(name)
plt.show()
