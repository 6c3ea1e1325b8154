"""Why a node is split and what sets a cluster apart: features, their weight, their direction.

The log Bayes factor for keeping sets of rows apart is a sum over features for most models. A
feature's share says how much it matters; its levels say what is higher where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, IntArray, check_count
from bhclust.layout import skeleton
from bhclust.models.base import ClusterModel, Column, FeatureLevels
from bhclust.posterior import cluster_sides, splits_contributions
from bhclust.tree import Tree

# The name of the only feature of a model that does not factorise.
ALL_FEATURES = "all features"

# Contributions of nodes held at once: 16 MB.
_BLOCK_NUMBERS = 1 << 21

# Tips of the part of a tree whose nodes are labelled by default.
_LABELLED_TIPS = 12


class FeatureContribution(NamedTuple):
    """One feature's share in the log Bayes factor for keeping sets of rows apart.

    Attributes
    ----------
    feature : str
        Its name; "all features" for a model that does not factorise over features.
    log_bayes_factor : float
        Above zero if the feature speaks for keeping the sets apart. The shares of all features
        add up to the log Bayes factor.
    quantity : str
        What the levels are: "share of ones", "share of 'red'", "mean", "mean count", …; empty if
        the model cannot tell.
    levels : tuple of float or None
        The level of each set as observed, None where nothing was: the children of a node in the
        order of ``tree.children(node)``, or a cluster and all the rest.
    category : object
        The category whose share differs most, None for a feature that is not categorical.

    Examples
    --------
    >>> from bhclust.explanations import FeatureContribution
    >>> milk = FeatureContribution("milk", 62.3, "share of ones", (1.0, 0.0))
    >>> milk.phrase()
    'milk: share of ones 1 | 0'
    >>> milk.highest, milk.lowest
    (0, 1)
    """

    feature: str
    log_bayes_factor: float
    quantity: str = ""
    levels: tuple[float | None, ...] = ()
    category: Any = None

    @property
    def highest(self) -> int | None:
        """The set in which the feature is highest; None if none is above all others."""
        return _only(self.levels, max)

    @property
    def lowest(self) -> int | None:
        """The set in which the feature is lowest; None if none is below all others."""
        return _only(self.levels, min)

    def phrase(self) -> str:
        """Return the feature and its direction in words."""
        if not self.quantity:
            return self.feature
        shown = " | ".join("no value" if level is None else f"{level:.3g}" for level in self.levels)
        return f"{self.feature}: {self.quantity} {shown}"


def _only(levels: Sequence[float | None], best: Any) -> int | None:
    seen = [level for level in levels if level is not None]
    if len(seen) < 2 or seen.count(best(seen)) > 1:
        return None
    return levels.index(best(seen))


class NodeExplanation(NamedTuple):
    """Why a node is split: its children and the features, most telling first."""

    node: int
    children: tuple[int, ...]
    features: list[FeatureContribution]


def explain_nodes(
    estimator: Any, nodes: Iterable[int] | None = None, top: int = 10
) -> list[NodeExplanation]:
    """Explain the splits of many nodes in a few batched calls of the model.

    Parameters
    ----------
    estimator : fitted BayesianHierarchicalClustering or BayesianRoseTree
        Its tree, model and schema are used; a loaded one will do.
    nodes : iterable of int, optional
        Internal nodes of ``estimator.tree_``; all of them by default.
    top : int
        Features a node.

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.explanations import explain_nodes
    >>> X = {"legs": [4, 4, 2, 2, 4], "tail": ["long", "none", "none", "none", "long"]}
    >>> fitted = BayesianHierarchicalClustering().fit(X)
    >>> root = explain_nodes(fitted, top=1)[-1]
    >>> root.children, root.features[0].feature
    ((5, 7), 'tail')
    """
    tree, model, columns = _parts(estimator)
    top = check_count(top, name="top", owner="explain")
    chosen = _checked_nodes(tree, nodes)
    out: list[NodeExplanation] = []
    rows = max(1, _BLOCK_NUMBERS // max(1, len(columns)))
    for start in range(0, len(chosen), rows):
        block = chosen[start : start + rows]
        contributions = splits_contributions(tree, model, block)
        ranked = _ranking(contributions, top)
        children = [tree.children(node) for node in block.tolist()]
        levels = model.feature_levels(_stats(tree)[np.concatenate(children)])
        end = 0
        for k, node in enumerate(block.tolist()):
            begin, end = end, end + len(children[k])
            own = None if levels is None else levels._replace(value=levels.value[begin:end])
            records = _records(contributions[k], ranked[k], own, columns)
            out.append(NodeExplanation(node, tuple(children[k].tolist()), records))
    return out


def explain_cluster(estimator: Any, label: int, top: int = 10) -> list[FeatureContribution]:
    """Return the features that set a cluster apart from all the rest, most telling first.

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.explanations import explain_cluster
    >>> X = [[0.0, 1.0], [0.1, 1.2], [5.0, 1.1], [5.1, 1.0], [5.0, 1.2]]
    >>> fitted = BayesianHierarchicalClustering("diagonal_gaussian", n_clusters=2).fit(X)
    >>> explain_cluster(fitted, 0, top=1)[0].phrase()
    'x0: mean 5.03 | 0.05'
    """
    tree, model, columns = _parts(estimator)
    top = check_count(top, name="top", owner="explain")
    clusters = getattr(estimator, "cluster_tree_", None)
    if (
        clusters is not None
    ):  # a large tree without statistics: its clusters are leaves of their own
        tree, labels = clusters, np.arange(clusters.n_leaves)
    else:
        labels = np.asarray(estimator.labels_)[estimator.leaf_rows_]
    sides = cluster_sides(tree, model, labels, label)
    features = _ranking(sides.contributions[None], top)[0]
    return _records(sides.contributions, features, model.feature_levels(sides.stats), columns)


def label_nodes(
    estimator: Any, nodes: Iterable[int] | None = None, top: int = 3, *, lower: bool = False
) -> dict[int, str]:
    """Return a few words for nodes: the features in which each differs most from its siblings.

    This is how the BHC paper labels the nodes of a tree of documents (its Figure 6). The result
    goes into ``plots.dendrogram(..., node_labels=...)``.

    Parameters
    ----------
    estimator : fitted BayesianHierarchicalClustering or BayesianRoseTree
    nodes : iterable of int, optional
        Nodes to label, leaves or internal; by default those at the top of the tree, down to a
        dozen branches. Roots have no siblings and get no words.
    top : int
        Words a node.
    lower : bool
        Whether features that are lower than in the siblings count too. Words then carry arrows.
        For documents, what is there tells more than what is not.

    Returns
    -------
    dict of int to str
        Nodes for which no feature speaks are left out.

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> from bhclust.explanations import label_nodes
    >>> X = {"goal": [1, 1, 1, 0, 0, 0], "orbit": [0, 0, 0, 1, 1, 1], "the": [1, 1, 0, 1, 1, 1]}
    >>> fitted = BayesianHierarchicalClustering().fit(X)
    >>> root = fitted.tree_.n_nodes - 1
    >>> sorted(label_nodes(fitted, fitted.tree_.children(root), top=1).values())
    ['goal', 'orbit']
    """
    tree, _, columns = _parts(estimator)
    top = check_count(top, name="top", owner="label_nodes")
    chosen = skeleton(tree, _LABELLED_TIPS).nodes.tolist() if nodes is None else list(nodes)
    for node in chosen:
        check_count(node, name="a node", owner="label_nodes", lowest=0, highest=tree.n_nodes - 1)
    above = tree.parent[np.asarray(chosen, dtype=np.intp)]
    parents = np.unique(above[above >= 0]).astype(np.intp)
    out: dict[int, str] = {}
    wanted = set(chosen)
    # Every feature is looked at: the most telling ones may all be higher in the other child.
    for split in explain_nodes(estimator, parents, top=max(1, len(columns))):
        for side, child in enumerate(split.children):
            words = _words(split.features, side, top, lower)
            if child in wanted and words:
                out[child] = ", ".join(words)
    return out


def _words(features: list[FeatureContribution], side: int, top: int, lower: bool) -> list[str]:
    words: list[str] = []
    for record in features:
        if record.log_bayes_factor <= 0 or len(words) == top:
            break
        name = record.feature if record.category is None else f"{record.feature}={record.category}"
        if record.highest == side:
            words.append(f"{name}↑" if lower else name)
        elif lower and record.lowest == side:
            words.append(f"{name}↓")
    return words


class _Parts(NamedTuple):
    tree: Tree
    model: ClusterModel
    columns: tuple[Column, ...]


def _parts(estimator: Any) -> _Parts:
    model = getattr(estimator, "model_", None)
    if not isinstance(model, ClusterModel):
        raise BhclustError(
            f"explanations need a fitted BayesianHierarchicalClustering or BayesianRoseTree, got "
            f"{type(estimator).__name__}: fit one of these first."
        )
    return _Parts(estimator.tree_, model, estimator.schema_.columns)


def _checked_nodes(tree: Tree, nodes: Iterable[int] | None) -> IntArray:
    if nodes is None:
        return np.arange(tree.n_leaves, tree.n_nodes)
    highest = tree.n_nodes - 1
    checked = [
        check_count(node, name="node", owner="explain", lowest=0, highest=highest) for node in nodes
    ]
    return np.array(checked, dtype=np.intp)


def _stats(tree: Tree) -> FloatArray:
    assert tree.stats is not None  # the contributions were computed from them
    return tree.stats


def _ranking(contributions: FloatArray, top: int) -> npt.NDArray[np.intp]:
    """Return the features of each row with the largest contributions, largest first."""
    return np.argsort(-contributions, axis=1, kind="stable")[:, :top]


def _records(
    contributions: FloatArray,
    features: IntArray,
    levels: FeatureLevels | None,
    columns: Sequence[Column],
) -> list[FeatureContribution]:
    if len(contributions) != len(columns):
        return [FeatureContribution(ALL_FEATURES, float(contributions[0]))]
    out = []
    for j in features.tolist():
        record = FeatureContribution(columns[j].name, float(contributions[j]))
        out.append(record if levels is None else _with_direction(record, levels, columns[j], j))
    return out


def _with_direction(
    record: FeatureContribution, levels: FeatureLevels, column: Column, j: int
) -> FeatureContribution:
    first, last = np.searchsorted(levels.feature, [j, j + 1])
    values = levels.value[:, first:last]
    if not values.shape[1]:  # a part of a mixed model without levels
        return record
    quantity, category, code = levels.quantity[j], None, 0
    categorical = values.shape[1] > 1 or column.kind == "categorical"
    observed = values[~np.isnan(values).any(axis=1)]
    if categorical and len(observed):
        # If only one side was observed no category differs, and its most frequent one is told.
        gap = np.ptp(observed, axis=0)
        code = int(np.lexsort((observed.max(axis=0), gap))[-1])
        category = column.categories[code] if code < len(column.categories) else code
        quantity = f"{quantity} of {category!r}"
    shown = tuple(None if np.isnan(level) else float(level) for level in values[:, code])
    return record._replace(quantity=quantity, levels=shown, category=category)
