"""What a tree of Gaussian-process experts says about an output, given the inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtr

from bhclust._validation import BhclustError, FloatArray, check_matrix, check_open_unit
from bhclust.mixing import Mixing
from bhclust.models import GaussianProcessExpert
from bhclust.posterior import predictive_components
from bhclust.tree import Tree

# Halvings of the interval that holds a quantile: more change no digit.
_HALVINGS = 80

# A mixture of normals has nothing beyond so many of its widest standard deviations.
_REACH = 40.0


class Conditional(NamedTuple):
    """The density of an output at each input: a mixture of normals.

    All arrays have the shape (inputs, components); the weights of a row add up to one.
    """

    weight: FloatArray
    mean: FloatArray
    standard_deviation: FloatArray

    def expectation(self) -> FloatArray:
        """Return the mean of the output at each input."""
        return np.asarray((self.weight * self.mean).sum(axis=1))

    def log_density(self, outputs: npt.ArrayLike) -> FloatArray:
        """Return the log density of some outputs at every input, shape (inputs, outputs)."""
        y = np.atleast_1d(np.asarray(outputs, dtype=np.float64))
        with np.errstate(divide="ignore"):
            log_weight = np.log(self.weight) - np.log(self.standard_deviation)
        out = np.empty((len(self.weight), len(y)))
        for j, value in enumerate(y):
            gap = (value - self.mean) / self.standard_deviation
            out[:, j] = logsumexp(log_weight - 0.5 * gap * gap, axis=1) - 0.5 * np.log(2 * np.pi)
        return out

    def quantile(self, probability: float) -> FloatArray:
        """Return the output below which the given probability lies, at each input."""
        probability = check_open_unit(probability, name="probability", owner="quantile")
        widest = _REACH * self.standard_deviation.max(axis=1)
        low, high = self.mean.min(axis=1) - widest, self.mean.max(axis=1) + widest
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            gap = (middle[:, None] - self.mean) / self.standard_deviation
            below = (self.weight * ndtr(gap)).sum(axis=1) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)


def conditional(
    tree: Tree, model: GaussianProcessExpert, mixing: Mixing, inputs: npt.ArrayLike
) -> Conditional:
    """Return ``p(output | inputs, D, T)``, which is a mixture over the nodes of the tree.

    Every node, and a new cluster, has its predictive weight times its density of the inputs.

    Parameters
    ----------
    tree : Tree
        A tree with statistics.
    model : GaussianProcessExpert
        The resolved model.
    mixing : Mixing
        The mixing prior of the tree.
    inputs : array of shape (n, p)
        Where to look.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust import BayesianRoseTree
    >>> from bhclust.models import GaussianProcessExpert
    >>> x = np.linspace(0, 3, 12)
    >>> y = np.where(np.arange(12) % 2, 4.0, -4.0)
    >>> fitted = BayesianRoseTree(GaussianProcessExpert(noise=0.1)).fit(np.column_stack([x, y]))
    >>> at = conditional(fitted.tree_, fitted.model_, fitted.mixing_, [[1.5]])
    >>> density = np.exp(at.log_density([-4.0, 0.0, 4.0]))[0]
    >>> bool(density[1] < density[0] and density[1] < density[2])  # two branches
    True
    """
    if tree.stats is None:
        raise BhclustError("conditional: the tree has no statistics; fit it with this library.")
    points = check_matrix(inputs, owner="conditional")
    components = predictive_components(tree, mixing)
    nothing = model.repeat(tree.stats[:1], np.zeros(1))
    stats = np.concatenate([tree.stats[components.nodes], nothing])
    log_weight = model.log_input_predictive(stats, points)
    log_weight += np.append(components.log_weight, components.log_new)
    log_weight -= logsumexp(log_weight, axis=1, keepdims=True)
    return Conditional(np.exp(log_weight), *model.output_given(stats, points))
