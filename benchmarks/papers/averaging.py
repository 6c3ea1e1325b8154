"""Predictions averaged over a small region around learned numbers of the beta-Bernoulli model.

The rose-tree paper averages "over a small region around the optimum found" where entries are
missing, and says no more of it. Here the tree stays, and the logarithms of each column's two prior
counts are drawn from the normal that the curvature at the optimum gives: of the log evidence with
the weights of the nodes held (then the columns do not touch each other) and of the learner's own
prior. Nothing of it is chosen, and the missing entries are not looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from bhclust import BayesianHierarchicalClustering
from bhclust._coordinates import OWN_DEVIATION, SHARED_DEVIATION, Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate
from bhclust.agglomerate import score_tree
from bhclust.models import Bernoulli

N_POINTS = 200
STEP = 1e-4


def on_tree(fitted: Any, X: np.ndarray) -> FixedTree:
    """Return the fitted topology with the statistics of a table with the same rows."""
    stats = fitted.model_.suffstats(X[fitted.leaf_rows_])
    return FixedTree.of(score_tree(fitted.tree_.parent, fitted.model_, stats, fitted.mixing_))


def log_predictive(fitted: Any, holed: np.ndarray, X: np.ndarray) -> float:
    """Return the log probability of what is missing, by a tree that may be of another table."""
    parts = [
        evaluate(on_tree(fitted, table), fitted.model_, fitted.mixing_, "evidence").value
        for table in (X, holed)
    ]
    return float(parts[0] - parts[1])


class Region:
    """The normal around a learned optimum, in the logarithms of both prior counts."""

    def __init__(self, fitted: Any, holed: np.ndarray) -> None:
        self.model, self.mixing = fitted.model_, fitted.mixing_
        self.tree = on_tree(fitted, holed)
        plain = BayesianHierarchicalClustering("bernoulli", learn=False).fit(holed)
        anchor = Prior(plain.model_, self.mixing)
        self.coordinates = Coordinates(anchor, ("a", "b"), per_feature=True, n_items=len(holed))
        self.centre = np.stack([np.log(self.model.a), np.log(self.model.b)])
        self.anchor = np.stack([np.log(plain.model_.a), np.log(plain.model_.b)])
        self.roots = self._roots()

    def _roots(self) -> np.ndarray:
        """Return a square root of each column's covariance, of shape (d, 2, 2)."""
        weights = evaluate(self.tree, self.model, self.mixing).stop

        def slopes(at: np.ndarray) -> np.ndarray:
            by = self.tree.model_gradient(Bernoulli(*np.exp(at)), weights)
            return np.stack([by["a"], by["b"]]) * np.exp(at)

        curvature = np.empty((self.centre.shape[1], 2, 2))
        for k in range(2):
            step = np.zeros((2, 1))
            step[k] = STEP
            change = slopes(self.centre + step) - slopes(self.centre - step)
            curvature[:, :, k] = -change.T / (2 * STEP)
        curvature = (curvature + curvature.transpose(0, 2, 1)) / 2
        values, axes = np.linalg.eigh(curvature)
        # The own prior of each count; where the evidence is not concave it alone holds the region.
        precision = np.maximum(values, 0.0) + OWN_DEVIATION**-2
        return axes / np.sqrt(precision)[:, None, :]

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Return the logarithms of both counts at a point, and its log density but a constant."""
        z = rng.normal(size=self.roots.shape[:2])
        return self.centre + np.einsum("jkl,jl->kj", self.roots, z), -0.5 * float((z**2).sum())

    def log_prior(self, at: np.ndarray) -> float:
        """Return the learner's log prior, at the most probable common factor of each count."""
        free = []
        for moved in at - self.anchor:
            d = len(moved)
            common = moved.sum() / (d + OWN_DEVIATION**2 / SHARED_DEVIATION**2)
            free += [[common], moved - common]
        return self.coordinates.log_prior(np.concatenate(free))


def averaged(fitted: Any, holed: np.ndarray, X: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Return the log predictive probability of what is missing by three averages of the region.

    "hyperparameters": of the prior counts themselves; "probabilities": of the probability of what
    is missing, each point of the region alike; "weighted": the same, each point by its evidence
    and prior over the density it was drawn from, which is the posterior's average if there are
    enough points: "effective points" says how many count.
    """
    region = Region(fitted, holed)
    full = on_tree(fitted, X)
    rng = np.random.default_rng(seed)

    def both(at: np.ndarray) -> tuple[float, float]:
        model = Bernoulli(*np.exp(at))
        tables = (region.tree, full)
        known, all_of_it = (evaluate(t, model, fitted.mixing_, "evidence").value for t in tables)
        return known, all_of_it - known

    counts = np.zeros_like(region.centre)
    predictive, weight = [], []
    for _ in range(N_POINTS):
        at, density = region.draw(rng)
        known, missing = both(at)
        counts += np.exp(at) / N_POINTS
        predictive.append(missing)
        weight.append(known + region.log_prior(at) - density)
    log_weight = np.array(weight) - logsumexp(weight)
    return {
        "hyperparameters": both(np.log(counts))[1],
        "probabilities": float(logsumexp(predictive) - np.log(N_POINTS)),
        "weighted": float(logsumexp(log_weight + predictive)),
        "effective points": float(np.exp(-logsumexp(2 * log_weight))),
        "radius": float(np.sqrt(np.square(region.roots).sum(axis=2).mean())),
    }
