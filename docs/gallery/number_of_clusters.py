"""
How many clusters?
==================

The posterior probability of each number of clusters is an exact sum over all partitions of the
tree, and the probability that two rows share a cluster is another. Nobody has to choose a number,
or to look for an elbow.
"""

import matplotlib.pyplot as plt

from bhclust import BayesianHierarchicalClustering, plots
from bhclust.datasets import make_gaussian_tree

points = make_gaussian_tree(15, (3, 2), separation=2.5, random_state=2)
clustering = BayesianHierarchicalClustering("gaussian").fit(points.X)
probability = clustering.n_clusters_distribution()
for number in probability.argsort()[:-4:-1]:
    print(f"{number} clusters: {probability[number]:.2f}")

# %%
# Points in the order of the tree: bright squares are groups that belong together, and squares of a
# colour between are groups of which the model is not sure.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plots.n_clusters(clustering, left)
plots.co_clustering(clustering, right)
plt.show()
