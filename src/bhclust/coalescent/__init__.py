"""Coalescent clustering: Kingman's coalescent as a prior over trees with ages.

Data evolve along the branches by a `Brownian` motion (reals) or by `Mutation` (categories);
trees are found greedily (`greedy_tree`) or drawn from their posterior (`sample_trees`).
"""

from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.greedy import greedy_tree
from bhclust.coalescent.history import log_prior, sample_tree
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import Clade, TreePosterior
from bhclust.coalescent.processes import Process
from bhclust.coalescent.smc import sample_trees

__all__ = [
    "Brownian",
    "Clade",
    "Mutation",
    "Process",
    "TreePosterior",
    "greedy_tree",
    "log_prior",
    "sample_tree",
    "sample_trees",
]
