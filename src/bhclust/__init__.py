"""Bayesian hierarchical clustering: trees with probabilities on them."""

__version__ = "0.1.0"
