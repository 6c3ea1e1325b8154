"""
A tree with ages
================

Kingman's coalescent: branches have lengths, measurements drift along them, and heights are ages
(Teh, Daumé and Roy 2008). Thirty irises, coloured by three branches.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from bhclust import CoalescentClustering, plots

iris = load_iris()
flowers, species = iris.data[::5], iris.target_names[iris.target[::5]]
ages = CoalescentClustering(n_clusters=3, random_state=0).fit(flowers)
print(f"age of the root: {ages.tree_.height[-1]:.2f}")

fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
plots.dendrogram(ages, ax, orientation="right", names=species)
plt.show()
