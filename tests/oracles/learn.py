"""The evidence of a tree by enumeration, and derivatives by differences of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, logsumexp

from bhclust._coordinates import Prior
from bhclust.mixing import Constant, DirichletProcess, Mixing
from bhclust.models import ClusterModel
from bhclust.tree import Tree
from tests.oracles.partitions import consistent_partitions, leaf_sets, log_prior


class Enumerated:
    """All tree-consistent partitions of a small tree, listed once."""

    def __init__(self, tree: Tree, X: np.ndarray, weight: np.ndarray) -> None:
        self.tree, self.X, self.weight = tree, X, weight
        self.sets = leaf_sets(tree)
        self.partitions = consistent_partitions(tree)
        self.member = np.zeros((len(self.partitions), tree.n_nodes))
        for row, partition in enumerate(self.partitions):
            self.member[row, partition] = 1

    def log_f(self, model: ClusterModel) -> np.ndarray:
        """Return log f of every node from the rows below it, one merge after the other."""
        items = model.repeat(model.suffstats(self.X), self.weight)
        out = []
        for rows in self.sets:
            total = items[[rows[0]]]
            for row in rows[1:]:
                total = model.merge(total, items[[row]])
            out.append(float(model.log_marginal(total)[0]))
        return np.array(out)

    def log_copies(self, mixing: Mixing) -> np.ndarray:
        """Return the log probability that the copies of each leaf stay together."""
        out = []
        for copies in np.ceil(self.weight):
            steps = 1 if isinstance(mixing, Constant) else copies - 1
            out.append(np.log(1 - (1 - mixing.gamma) ** steps) if copies > 1 else 0.0)
        return np.array(out)

    def value(self, prior: Prior, objective: str) -> float:
        """Return ``log p(D | T)`` or the bound on the mixture's evidence, term by term."""
        model, mixing = prior
        log_f = self.log_f(model)
        if not isinstance(mixing, DirichletProcess):
            priors = np.array([log_prior(self.tree, mixing, p) for p in self.partitions])
            priors += self.member[:, : len(self.weight)] @ self.log_copies(mixing)
            return float(logsumexp(priors + self.member @ log_f))
        size = np.array([self.weight[list(rows)].sum() for rows in self.sets])
        mass = self.member @ (np.log(mixing.alpha) + gammaln(size))
        total = float(logsumexp(mass + self.member @ log_f))
        if objective == "evidence":
            return total - float(logsumexp(mass))
        n = self.weight.sum()
        return total + float(gammaln(mixing.alpha) - gammaln(n + mixing.alpha))


def central_difference(function: Callable[[float], float], at: float, step: float) -> float:
    """Return the derivative by central differences of two steps, extrapolated (error ~ step⁴)."""
    wide = (function(at + step) - function(at - step)) / (2 * step)
    narrow = (function(at + step / 2) - function(at - step / 2)) / step
    return (4 * narrow - wide) / 3
