"""
A rose tree says less, and means it
===================================

Three groups of binary vectors without any structure inside. A binary tree has to invent an order in
which the members of a group are joined; a rose tree gives a group one node with all its members
(Blundell, Teh and Heller 2010).
"""

import matplotlib.pyplot as plt

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, plots
from bhclust.datasets import make_blocks

X = make_blocks(random_state=0).X
binary = BayesianHierarchicalClustering().fit(X)
rose = BayesianRoseTree().fit(X)
for name, fitted in {"binary": binary, "rose": rose}.items():
    partitions = 10 ** fitted.tree_.log10_partitions()
    print(f"{name}: {fitted.tree_.n_nodes - len(X)} joins, {partitions:.0f} partitions")

fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for ax, fitted, title in zip(axes, (binary, rose), ("binary tree", "rose tree"), strict=True):
    plots.dendrogram(fitted, ax, height="rank")
    ax.set_title(title)
plt.show()
