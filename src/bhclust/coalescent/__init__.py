"""Coalescent clustering: Kingman's coalescent as a prior over trees with ages.

Data evolve along the branches by a `Brownian` motion (reals) or by `Mutation` (categories);
trees are found greedily (`greedy_tree`) or drawn from their posterior (`sample_trees`).
"""

from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.chains import sample_chains
from bhclust.coalescent.draw import draw_posterior
from bhclust.coalescent.greedy import greedy_tree
from bhclust.coalescent.history import log_prior, sample_tree
from bhclust.coalescent.learn import InverseWishart, SitePrior, learn_covariance, learn_sites
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import Clade, TreePosterior
from bhclust.coalescent.predict import Placement, Predictor, heldout_log_likelihood
from bhclust.coalescent.processes import Process
from bhclust.coalescent.smc import sample_trees

__all__ = [
    "Brownian",
    "Clade",
    "InverseWishart",
    "Mutation",
    "Placement",
    "Predictor",
    "Process",
    "SitePrior",
    "TreePosterior",
    "draw_posterior",
    "greedy_tree",
    "heldout_log_likelihood",
    "learn_covariance",
    "learn_sites",
    "log_prior",
    "sample_chains",
    "sample_tree",
    "sample_trees",
]
