"""Evidence of a fixed tree and its exact gradients.

A random tree-consistent partition walks down from the root and stops at node k with probability
``r_k``. With ``ω_k`` the probability of stopping at k and ``σ_k`` that of passing through it,

    d log p / d η = Σ_k ω_k d log f_k / d η                    (cluster hyperparameters)
    d log p / d γ = Σ_k ω_k d log π_k / d γ + σ_k d log(1 - π_k) / d γ

(rose-tree paper (1.27), (1.28)): one upward pass, one downward pass, and sums over nodes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln

from bhclust._gpu.device import Device
from bhclust._gpu.nodes import DeviceNodes
from bhclust._kernels.compile import compiled
from bhclust._kernels.passes import upward
from bhclust._validation import BhclustError, FloatArray
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models._columnwise import row_blocks
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

Objective = Literal["bound", "evidence"]


class FixedTree(NamedTuple):
    """A topology with the statistics of its nodes: all that stays while a prior is learned.

    ``on_device`` holds the statistics once more where they are summed on a device. The passes
    over the tree are the processor's in any case: each node waits for its children, and all that
    travels for them is a number or two a node.
    """

    parent: npt.NDArray[np.int32]
    n_leaves: int
    n_children: npt.NDArray[np.int64]  # of the internal nodes
    weight: FloatArray
    total_weight: float
    stats: FloatArray
    on_device: DeviceNodes | None = None

    @classmethod
    def of(cls, tree: Tree, device: Device | None = None) -> Self:
        """Take what is needed from a scored tree, its statistics to a device if there is one."""
        if tree.stats is None:
            raise BhclustError(
                "this tree carries no statistics, so nothing can be learned on it: score it with "
                "bhclust.agglomerate.score_tree first."
            )
        return cls(
            parent=tree.parent,
            n_leaves=tree.n_leaves,
            n_children=np.diff(tree.child_ptr)[tree.n_leaves :].astype(np.int64),
            weight=tree.weight,
            total_weight=float(tree.weight[tree.roots].sum()),
            stats=tree.stats,
            on_device=None if device is None else DeviceNodes(device, tree.stats),
        )

    def log_marginal(self, model: ClusterModel) -> FloatArray:
        """Return ``log f`` of every node."""
        if self.on_device is not None:
            return self.on_device.log_marginal(model)
        return model.log_marginal(self.stats)

    def model_gradient(self, model: ClusterModel, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ hyperparameter`` over all nodes."""
        # Most nodes are never a cluster; those below rounding error need no derivative.
        nodes = np.flatnonzero(weights > 1e-18)
        if self.on_device is not None:
            return self.on_device.gradient(model, nodes, weights[nodes])
        out: dict[str, FloatArray] = {}
        for rows in row_blocks(len(nodes), self.stats.shape[1]):
            some = nodes[rows]
            slopes = model.gradient(self.stats[some], weights[some])
            out = {name: out.get(name, 0.0) + slope for name, slope in slopes.items()}
        return out


class Evaluation(NamedTuple):
    """Value of the objective, and what its gradient needs.

    ``stop`` and ``split`` are ω and σ of each node; ``prior_n_clusters`` is the expected number
    of clusters under the tree's prior alone (0 where it is not needed).
    """

    value: float
    stop: FloatArray
    split: FloatArray
    prior_n_clusters: float


def objective_of(mixing: Mixing) -> Objective:
    """Return the objective that is comparable across values of the mixing parameter.

    For the Dirichlet process this is the bound on the mixture's evidence: ``log p(D | T)`` has
    another normaliser for every α. For the other priors it is ``log p(D | T)`` itself.
    """
    return "bound" if isinstance(mixing, DirichletProcess) else "evidence"


def evaluate(
    tree: FixedTree,
    model: ClusterModel,
    mixing: Mixing,
    objective: Objective | None = None,
    *,
    log_f: FloatArray | None = None,
) -> Evaluation:
    """Return the evidence of a fixed tree under a model and a mixing prior.

    Parameters
    ----------
    tree : FixedTree
        Topology and statistics.
    model : ClusterModel
        A resolved model; its hyperparameters need not be those the tree was built with.
    mixing : Mixing
        Prior weight of "one cluster".
    objective : {"bound", "evidence"}, optional
        ``"evidence"`` is ``log p(D | T)``; ``"bound"`` the lower bound on the evidence of the
        Dirichlet-process mixture. By default as `objective_of` says.
    log_f : array of shape (n_nodes,), optional
        ``log f`` of the nodes, if it is known already.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.agglomerate import agglomerate
    >>> from bhclust.mixing import DirichletProcess
    >>> from bhclust.models import Bernoulli
    >>> X = np.eye(3)
    >>> model = Bernoulli(a=1, b=1).resolve(X)
    >>> tree = agglomerate(model, model.suffstats(X), DirichletProcess(1.0)).tree
    >>> value = evaluate(FixedTree.of(tree), model, DirichletProcess(1.0), "evidence").value
    >>> bool(abs(value - tree.log_evidence[-1]) < 1e-12)
    True
    """
    objective = objective_of(mixing) if objective is None else objective
    n = tree.n_leaves
    log_f = tree.log_marginal(model) if log_f is None else log_f
    log_leaf = mixing.log_leaf(tree.weight[:n])
    log_one = np.ascontiguousarray(mixing.log_one(tree.weight[n:], tree.n_children))
    log_split = np.ascontiguousarray(mixing.log_split(tree.n_children))
    leaf, one = log_leaf + log_f[:n], log_one + log_f[n:]
    log_mass, log_odds = upward(tree.parent, n, leaf, one, log_split)
    stop, split = _downward(tree.parent, log_odds)
    roots = tree.parent < 0
    value, prior_n_clusters = float(log_mass[roots].sum()), 0.0
    if not mixing.has_normaliser:
        return Evaluation(value, stop, split, prior_n_clusters)
    if objective == "bound":
        alpha = _alpha(mixing)
        value += float(gammaln(alpha) - gammaln(tree.total_weight + alpha))
    else:
        # The normaliser d obeys the same recursion with f = 1.
        log_d, prior_odds = upward(tree.parent, n, log_leaf, log_one, log_split)
        value -= float(log_d[roots].sum())
        prior_n_clusters = float(_downward(tree.parent, prior_odds)[0].sum())
    return Evaluation(value, stop, split, prior_n_clusters)


def gradient(
    tree: FixedTree,
    model: ClusterModel,
    mixing: Mixing,
    at: Evaluation,
    objective: Objective | None = None,
) -> dict[str, FloatArray]:
    """Return the derivatives of the objective by every hyperparameter, α or γ among them.

    Parameters
    ----------
    tree, model, mixing, objective
        As in `evaluate`.
    at : Evaluation
        What `evaluate` returned for the same arguments.
    """
    out = tree.model_gradient(model, at.stop)
    name, slope = mixing_gradient(tree, mixing, at, objective)
    return {**out, name: np.asarray(slope)}


def mixing_gradient(
    tree: FixedTree, mixing: Mixing, at: Evaluation, objective: Objective | None = None
) -> tuple[str, float]:
    """Return the name of the mixing parameter and the derivative of the objective by it."""
    objective = objective_of(mixing) if objective is None else objective
    if isinstance(mixing, DirichletProcess):
        alpha, n_clusters = mixing.alpha, float(at.stop.sum())
        slope = (n_clusters - at.prior_n_clusters) / alpha
        if objective == "bound":
            slope += float(digamma(alpha) - digamma(tree.total_weight + alpha))
        return "alpha", slope
    if not isinstance(mixing, (Constant, Rose)):
        raise BhclustError(f"nothing is known to learn about the mixing prior {mixing!r}.")
    # Rose: log(1 - π) = (children - 1) log(1 - γ); a constant prior is that of two children. A
    # leaf of several copies has the weight of one cluster of them (`Mixing.log_leaf`).
    copies = np.ceil(tree.weight[: tree.n_leaves])
    steps = np.concatenate([copies, tree.n_children]) - 1.0
    if isinstance(mixing, Constant):
        steps = np.minimum(steps, 1.0)
    able = steps > 0
    log_not = steps[able] * np.log1p(-mixing.gamma)
    by_log_split = -steps[able] / (1 - mixing.gamma)
    by_log_one = by_log_split * np.exp(log_not) / np.expm1(log_not)
    return "gamma", float(at.stop[able] @ by_log_one + at.split[able] @ by_log_split)


def _alpha(mixing: Mixing) -> float:
    if isinstance(mixing, DirichletProcess):
        return mixing.alpha
    raise BhclustError(f"the evidence bound is one for a Dirichlet process, not for {mixing!r}.")


@compiled
def _downward(parent: Any, log_odds: Any):  # type: ignore[no-untyped-def]
    """Return the probabilities that the walk from the root stops at, or passes, each node."""
    n_nodes = len(parent)
    stop = np.zeros(n_nodes)
    split = np.zeros(n_nodes)
    for node in range(n_nodes - 1, -1, -1):
        reached = 1.0 if parent[node] < 0 else split[parent[node]]
        odds = log_odds[node]
        # Either side keeps its relative accuracy, however lopsided the odds are.
        small = np.exp(-abs(odds))
        if odds >= 0:
            stop[node] = reached / (1 + small)
            split[node] = reached * small / (1 + small)
        else:
            stop[node] = reached * small / (1 + small)
            split[node] = reached / (1 + small)
    return stop, split
