"""
A mixed table with holes
========================

Guests of a café: numbers, counts, yes/no and words in one table, some entries missing. Nothing is
scaled, coded or filled in beforehand, and the number of clusters is not given.
"""

import matplotlib.pyplot as plt

from bhclust import BayesianHierarchicalClustering, plots
from bhclust.datasets import make_mixed_table

guests = make_mixed_table(60, random_state=1).columns
clustering = BayesianHierarchicalClustering().fit(guests)
print(clustering.n_clusters_, "clusters; probabilities of 3, 4, 5 and 6:")
print(clustering.n_clusters_distribution()[3:7].round(3))

# %%
# The tree beside the table: red dashed joins are the ones that the model rejects. Grey entries are
# missing; they were integrated out, not guessed.

plots.heatmap(clustering, guests)
plt.show()
