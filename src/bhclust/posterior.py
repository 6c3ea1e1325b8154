"""What a tree says exactly: sums over all partitions that are consistent with it.

A random tree-consistent partition walks down from the root and stops at node k with probability
``r_k``; where it stops, the leaves below are one cluster. Everything here follows from the log
odds of ``r``, so a function takes a `Tree` (and the statistics for prediction) and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from bhclust._gpu.device import Device, DeviceName
from bhclust._gpu.predict import DeviceMixture, prediction_device
from bhclust._kernels.passes import sum_downward, upward
from bhclust._validation import BhclustError, FloatArray, IntArray, check_choice, check_count
from bhclust.mixing import DirichletProcess, Mixing
from bhclust.models.base import ClusterModel
from bhclust.tree import Tree

CutMethod = Literal["map", "threshold"]

# Rows of new data that are scored against all nodes at a time: 16 MB of log densities.
_BLOCK_NUMBERS = 1 << 21
# Rows of new data whose statistics are sent to a device at a time.
_DEVICE_ROWS = 1 << 18


def log_split_probability(tree: Tree) -> FloatArray:
    """Return ``log(1 - r)`` of each node; ``-inf`` at leaves."""
    return np.asarray(-np.logaddexp(0.0, _log_odds(tree)))


def log_node_weights(tree: Tree) -> FloatArray:
    """Return ``log ω``: the log probability that a node's leaves are exactly one cluster."""
    passed = _log_separation(tree)
    reached = np.where(tree.parent >= 0, passed[tree.parent], 0.0)
    return np.asarray(reached - np.logaddexp(0.0, -_log_odds(tree)))


def expected_n_clusters(tree: Tree) -> float:
    """Return the posterior mean number of clusters."""
    return float(np.exp(log_node_weights(tree)).sum())


def n_clusters_distribution(tree: Tree) -> FloatArray:
    """Return the posterior probability of K clusters at index K, for K = 0 … n.

    The generating polynomial of a node is ``r x + (1 - r) Π_children``.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tree import Tree
    >>> tree = Tree(parent=[2, 2, -1], n_leaves=2, log_odds=[np.inf, np.inf, 0.0])
    >>> n_clusters_distribution(tree).tolist()
    [0.0, 0.5, 0.5]
    """
    log_odds = _log_odds(tree)
    stop, go = np.exp(-np.logaddexp(0.0, -log_odds)), np.exp(-np.logaddexp(0.0, log_odds))
    # A polynomial is kept from its first non-zero power on: (lowest power, coefficients).
    pending: dict[int, _Polynomial] = {}
    whole = _Polynomial(0, np.ones(1))
    parent = tree.parent.tolist()
    for node in range(tree.n_nodes):
        if node < tree.n_leaves:
            polynomial = _Polynomial(1, np.ones(1))
        else:
            polynomial = _stop_or_go(pending.pop(node), float(stop[node]), float(go[node]))
        above = parent[node]
        if above < 0:
            whole = _product(whole, polynomial)
        else:
            pending[above] = (
                _product(pending[above], polynomial) if above in pending else polynomial
            )
    out = np.zeros(tree.n_leaves + 1)
    out[whole.lowest : whole.lowest + len(whole.coefficients)] = whole.coefficients
    return out


class _Polynomial(NamedTuple):
    lowest: int
    coefficients: FloatArray


def _product(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    product = np.convolve(a.coefficients, b.coefficients)
    # Ends that have underflowed to zero are cut off, so that long trees stay cheap.
    nonzero = np.flatnonzero(product)
    first, last = int(nonzero[0]), int(nonzero[-1])
    return _Polynomial(a.lowest + b.lowest + first, product[first : last + 1])


def _stop_or_go(children: _Polynomial, stop: float, go: float) -> _Polynomial:
    if go == 0.0:
        return _Polynomial(1, np.ones(1))
    if stop == 0.0:
        return _Polynomial(children.lowest, go * children.coefficients)
    coefficients = np.zeros(children.lowest + len(children.coefficients) - 1)
    coefficients[children.lowest - 1 :] = go * children.coefficients
    coefficients[0] += stop
    return _Polynomial(1, coefficients)


def co_clustering(tree: Tree, i: npt.ArrayLike, j: npt.ArrayLike) -> FloatArray:
    """Return the posterior probability that leaves i and j share a cluster.

    It is one minus the product of ``1 - r`` from the root to their lowest common ancestor.
    """
    i, j = np.broadcast_arrays(np.asarray(i, dtype=np.intp), np.asarray(j, dtype=np.intp))
    for leaf in (i, j):
        if leaf.size and (leaf.min() < 0 or leaf.max() >= tree.n_leaves):
            raise BhclustError(f"leaves are numbered 0 … {tree.n_leaves - 1}, got {leaf!r}.")
    together = -np.expm1(_log_separation(tree))
    meeting = np.asarray(tree.mrca(i, j))
    out = np.where(meeting >= 0, together[np.maximum(meeting, 0)], 0.0)
    return np.asarray(np.where(i == j, 1.0, out))


def co_clustering_matrix(tree: Tree) -> FloatArray:
    """Return the co-clustering probabilities of all pairs of leaves, shape (n, n)."""
    together = -np.expm1(_log_separation(tree))
    order = tree.leaf_order()
    in_order = np.zeros((tree.n_leaves, tree.n_leaves))
    start = tree.leaf_start
    # Larger intervals first: a node's block is overwritten by the blocks of its children.
    for node in range(tree.n_nodes - 1, -1, -1):
        block = slice(start[node], start[node] + tree.size[node])
        in_order[block, block] = together[node]
    out = np.empty_like(in_order)
    out[np.ix_(order, order)] = in_order
    return out


def sample_partitions(tree: Tree, n: int, rng: np.random.Generator) -> IntArray:
    """Draw partitions from the posterior, shape ``(n, n_leaves)``; labels as in `cut`."""
    n = check_count(n, name="n", owner="sample_partitions")
    probability = np.exp(-np.logaddexp(0.0, -_log_odds(tree)))
    out = np.empty((n, tree.n_leaves), dtype=np.intp)
    for draw in range(n):
        stops = rng.random(tree.n_nodes) < probability
        stops[: tree.n_leaves] = True
        out[draw] = _labels_of_stops(tree, stops)
    return out


def cut(
    tree: Tree,
    n_clusters: int | None = None,
    threshold: float = 0.5,
    method: CutMethod = "map",
) -> IntArray:
    """Return the labels of a tree-consistent partition; label 0 is the largest cluster.

    Parameters
    ----------
    tree : Tree
        A tree with log odds.
    n_clusters : int, optional
        Exactly so many clusters: the most probable partition among those.
    threshold : float
        With ``method="threshold"``, the probability at which the walk from the root stops.
    method : {"map", "threshold"}
        ``"map"`` is the most probable tree-consistent partition; ``"threshold"`` is the cut of
        the BHC paper: from the root down, the first nodes with ``r >= threshold`` are clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tree import Tree
    >>> odds = [np.inf, np.inf, np.inf, 2.0, -1.0]
    >>> tree = Tree(parent=[3, 3, 4, 4, -1], n_leaves=3, log_odds=odds)
    >>> cut(tree).tolist()
    [0, 0, 1]
    >>> cut(tree, n_clusters=1).tolist()
    [0, 0, 0]
    """
    check_choice(method, ("map", "threshold"), name="method", owner="cut")
    if n_clusters is not None:
        k = check_count(n_clusters, name="n_clusters", owner="cut", highest=tree.n_leaves)
        return _labels_of_stops(tree, _best_stops_of_k(tree, k))
    if method == "map":
        return _labels_of_stops(tree, _map_stops(tree))
    if not 0 <= threshold <= 1:
        raise BhclustError(f"cut: threshold must lie between 0 and 1, got {threshold!r}.")
    stops = np.exp(-np.logaddexp(0.0, -_log_odds(tree))) >= threshold
    stops[: tree.n_leaves] = True
    return _labels_of_stops(tree, stops)


def cluster_nodes(tree: Tree, labels: IntArray) -> IntArray:
    """Return the node of each cluster of a tree-consistent labelling, by label."""
    n_clusters = int(labels.max()) + 1
    label = np.full(tree.n_nodes, -1, dtype=np.intp)
    label[: tree.n_leaves] = labels
    pure = np.ones(tree.n_nodes, dtype=np.bool_)
    out = np.full(n_clusters, -1, dtype=np.intp)
    for node, above in enumerate(tree.parent.tolist()):
        if pure[node]:
            out[label[node]] = node  # the highest pure node comes last
        if above >= 0:
            label[above] = label[node] if label[above] < 0 else label[above]
            pure[above] &= pure[node] and label[above] == label[node]
    return out


def log_d_root(tree: Tree, mixing: Mixing) -> float:
    """Return ``log d`` at the root: the normaliser of the prior over tree-consistent partitions."""
    n = tree.n_leaves
    n_children = np.diff(tree.child_ptr)[n:]
    log_one = np.ascontiguousarray(mixing.log_one(tree.weight[n:], n_children))
    log_split = np.ascontiguousarray(mixing.log_split(n_children))
    log_d, _ = upward(tree.parent, n, mixing.log_leaf(tree.weight[:n]), log_one, log_split)
    return float(log_d[tree.roots].sum())


def log_evidence(tree: Tree) -> float:
    """Return ``log p(D | T)``; the trees of a forest are independent."""
    if tree.log_evidence is None:
        raise BhclustError("this tree carries no evidence: score it with score_tree first.")
    return float(tree.log_evidence[tree.roots].sum())


def log_evidence_bound(tree: Tree, mixing: DirichletProcess) -> float:
    """Return the lower bound on the Dirichlet-process mixture's evidence (Corollary 1).

    It is comparable across trees, concentrations and hyperparameters of one model.
    """
    total = float(tree.weight[tree.roots].sum())
    normaliser = gammaln(mixing.alpha) - gammaln(total + mixing.alpha)
    return float(log_evidence(tree) + log_d_root(tree, mixing) + normaliser)


class Components(NamedTuple):
    """The predictive mixture of a tree: one component a node, and "a new cluster".

    ``nodes`` and ``log_weight`` describe the components; ``log_new`` is the weight of the prior
    predictive. All weights together sum to one.
    """

    nodes: IntArray
    log_weight: FloatArray
    log_new: float


def predictive_components(tree: Tree, mixing: Mixing) -> Components:
    """Return the weights of ``p(x | D) = w_new f(x) + Σ_k w_k f(x | D_k)``.

    ``w_k = ω_k n_k / n`` times the probability that x does not open a cluster of its own. (The
    BHC paper's (9) has no factor ``n_k / n`` and does not sum to one.) Nodes whose weight
    underflows to zero are left out.
    """
    total = float(tree.weight[tree.roots].sum())
    log_new = mixing.log_new_cluster(total)
    log_old = np.log(-np.expm1(log_new))
    log_weight = log_node_weights(tree) + np.log(tree.weight) - np.log(total) + log_old
    nodes = np.flatnonzero(np.exp(log_weight) > 0)
    return Components(nodes, log_weight[nodes], log_new)


def log_joint_components(
    tree: Tree, model: ClusterModel, mixing: Mixing, X: Any
) -> tuple[FloatArray, Components]:
    """Return ``log w_k + log f(x | D_k)`` of each row (new cluster last) and the components."""
    components = predictive_components(tree, mixing)
    stats = _stats(tree)
    log_density = model.log_predictive(stats[components.nodes], X)
    out = np.empty((log_density.shape[0], len(components.nodes) + 1))
    out[:, :-1] = log_density + components.log_weight
    out[:, -1] = -np.inf
    if np.isfinite(components.log_new):
        out[:, -1] = model.log_marginal(model.suffstats(X)) + components.log_new
    return out, components


def log_predictive_density(
    tree: Tree,
    model: ClusterModel,
    mixing: Mixing,
    X: Any,
    *,
    device: DeviceName | Device = "cpu",
) -> FloatArray:
    """Return the log predictive density of each new row.

    ``device`` says where it is computed, as in `bhclust.agglomerate.agglomerate`.
    """
    mixture = _device_mixture(tree, model, mixing, X, device)
    if mixture is not None:
        blocks = (X[a : a + _DEVICE_ROWS] for a in range(0, X.shape[0], _DEVICE_ROWS))
        return np.concatenate([mixture.log_density(model.suffstats(block)) for block in blocks])
    parts = [
        logsumexp(log_joint_components(tree, model, mixing, block)[0], axis=1)
        for block in _row_blocks(X, tree.n_nodes)
    ]
    return np.concatenate(parts)


def _device_mixture(
    tree: Tree, model: ClusterModel, mixing: Mixing, X: Any, device: DeviceName | Device
) -> DeviceMixture | None:
    """Return the predictive mixture on a device, a new cluster last; None for the processor."""
    if isinstance(device, str) and device == "cpu":
        return None
    components = predictive_components(tree, mixing)
    n_pairs = X.shape[0] * len(components.nodes)
    chosen = prediction_device(device, model, tree.weight[: tree.n_leaves], n_pairs)
    if chosen is None:
        return None
    stats = _stats(tree)[components.nodes]
    # A new cluster is one without items.
    stats = np.vstack([stats, np.zeros((1, stats.shape[1]))])
    log_weight = np.append(components.log_weight, components.log_new)
    return DeviceMixture(chosen, model, stats, log_weight, n_items=tree.n_leaves)


def cluster_probabilities(
    tree: Tree,
    model: ClusterModel,
    mixing: Mixing,
    X: Any,
    labels: IntArray,
    *,
    device: DeviceName | Device = "cpu",
) -> FloatArray:
    """Return the probability of each cluster for new rows, "a new cluster" last.

    A new row joins the cluster of a random item of the tree. Column c is the probability that this
    item has label c, averaged over all tree-consistent partitions; so a node above the cut
    gives to each cluster below it in proportion to its size. ``device`` says where the densities
    are computed.
    """
    components = predictive_components(tree, mixing)
    share = _label_shares(tree, labels)[components.nodes]
    mixture = _device_mixture(tree, model, mixing, X, device)
    joints: Iterable[FloatArray] = (
        log_joint_components(tree, model, mixing, block)[0]
        for block in _row_blocks(X, tree.n_nodes)
    )
    if mixture is not None:
        joints = mixture.joint(model.suffstats(X))
    parts = []
    for joint in joints:
        responsibility = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        known = responsibility[:, :-1] @ share
        parts.append(np.column_stack([known, responsibility[:, -1]]))
    out = np.concatenate(parts)
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def impute(tree: Tree, model: ClusterModel, mixing: Mixing, X: FloatArray) -> FloatArray:
    """Fill the missing entries of rows from the predictive given their observed entries."""
    stats = _stats(tree)
    nothing = model.repeat(model.suffstats(X[:1]), np.zeros(1))
    parts = []
    for block in _row_blocks(X, tree.n_nodes):
        joint, components = log_joint_components(tree, model, mixing, block)
        weights = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        all_stats = np.concatenate([stats[components.nodes], nothing])
        parts.append(model.impute(all_stats, block, weights))
    return np.concatenate(parts)


def sample_items(
    tree: Tree, model: ClusterModel, mixing: Mixing, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw new rows from the predictive density."""
    n = check_count(n, name="n", owner="sample")
    components = predictive_components(tree, mixing)
    stats = _stats(tree)
    weights = np.exp(np.append(components.log_weight, components.log_new))
    counts = rng.multinomial(n, weights / weights.sum())
    nothing = model.repeat(stats[:1], np.zeros(1))
    rows = []
    for position in np.flatnonzero(counts):
        is_new = position == len(components.nodes)
        source = nothing if is_new else stats[components.nodes[position]][None]
        rows.append(model.sample(source, int(counts[position]), rng))
    return np.asarray(rng.permutation(np.concatenate(rows)))


def split_contributions(tree: Tree, model: ClusterModel, node: int) -> FloatArray:
    """Return the log Bayes factor for splitting a node into its children, feature by feature."""
    return np.asarray(splits_contributions(tree, model, np.array([node]))[0])


def splits_contributions(tree: Tree, model: ClusterModel, nodes: IntArray) -> FloatArray:
    """Return `split_contributions` of many nodes at once, shape ``(len(nodes), n_features)``.

    It is ``Σ log f(child) - log f(node)`` by feature. Each round adds one more child to the
    unions of all nodes that have one left, in one batched call of the model.
    """
    stats = _stats(tree)
    first, n_children = tree.child_ptr[nodes], np.diff(tree.child_ptr)[nodes]
    if (n_children == 0).any():
        leaf = int(nodes[np.argmin(n_children)])
        raise BhclustError(f"node {leaf} is a leaf: there is no split to explain.")
    union = stats[tree.child_index[first]]
    total = np.zeros((len(nodes), 1))
    for k in range(1, int(n_children.max(initial=1))):
        active = np.flatnonzero(n_children > k)
        part = stats[tree.child_index[first[active] + k]]
        added = model.feature_contributions(union[active], part)
        if k == 1:  # every node has a second child, so this round tells the number of features
            total = np.zeros((len(nodes), added.shape[1]))
        total[active] += added
        union[active] = model.merge(union[active], part)
    return total


def cluster_contributions(
    tree: Tree, model: ClusterModel, labels: IntArray, label: int
) -> FloatArray:
    """Return the log Bayes factor for keeping a cluster apart from all the rest, by feature."""
    return cluster_sides(tree, model, labels, label).contributions


class Sides(NamedTuple):
    """A cluster and all the rest: their statistics, and what keeps them apart by feature."""

    stats: FloatArray
    contributions: FloatArray


def cluster_sides(tree: Tree, model: ClusterModel, labels: IntArray, label: int) -> Sides:
    """Return a cluster and all the rest, and what keeps them apart feature by feature."""
    nodes = cluster_nodes(tree, labels)
    label = check_count(label, name="label", owner="explain", lowest=0, highest=len(nodes) - 1)
    stats = _stats(tree)[nodes]
    others = np.delete(stats, label, axis=0)
    if not len(others):
        raise BhclustError("there is only one cluster, and nothing to compare it with.")
    rest = others[:1]
    for other in others[1:]:
        rest = model.merge(rest, other[None])
    here = stats[label : label + 1]
    contributions = model.feature_contributions(here, rest)[0]
    return Sides(np.concatenate([here, rest]), contributions)


def _row_blocks(X: Any, n_nodes: int) -> list[Any]:
    rows = max(1, _BLOCK_NUMBERS // max(1, n_nodes))
    return [X[start : start + rows] for start in range(0, X.shape[0], rows)]


def _label_shares(tree: Tree, labels: IntArray) -> FloatArray:
    """Return the share of each label in the weight below each node, (n_nodes, n_clusters)."""
    share: FloatArray = np.zeros((tree.n_nodes, int(labels.max()) + 1))
    share[np.arange(tree.n_leaves), labels] = tree.weight[: tree.n_leaves]
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            share[above] += share[node]
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def _log_separation(tree: Tree) -> FloatArray:
    """Return the log probability that leaves joined at a node are in different clusters."""
    return sum_downward(tree.parent, log_split_probability(tree))


def _labels_of_stops(tree: Tree, stops: npt.NDArray[np.bool_]) -> IntArray:
    """Label leaves by the first stop on the way down; largest cluster first.

    Clusters of one size are ordered by ``log f`` before the lowest leaf decides, so that labels
    do not depend on the order of the rows.
    """
    top = np.full(tree.n_nodes, -1, dtype=np.intp)
    parent = tree.parent.tolist()
    for node in range(tree.n_nodes - 1, -1, -1):
        above = parent[node]
        if above >= 0 and top[above] >= 0:
            top[node] = top[above]
        elif stops[node]:
            top[node] = node
    nodes, first_leaf = np.unique(top[: tree.n_leaves], return_index=True)
    log_f = np.zeros(len(nodes)) if tree.log_marginal is None else tree.log_marginal[nodes]
    rank = np.lexsort((first_leaf, -log_f, -tree.weight[nodes]))
    label = np.empty(tree.n_nodes, dtype=np.intp)
    label[nodes[rank]] = np.arange(len(nodes))
    return label[top[: tree.n_leaves]]


def _map_stops(tree: Tree) -> npt.NDArray[np.bool_]:
    """Choose at each node the better of stopping and the best way below it."""
    log_odds = _log_odds(tree)
    log_r, log_1m_r = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    below = [0.0] * tree.n_nodes
    stops = np.ones(tree.n_nodes, dtype=np.bool_)
    for node, above in enumerate(tree.parent.tolist()):
        best = 0.0
        if node >= tree.n_leaves:
            go = log_1m_r[node] + below[node]
            stops[node] = log_r[node] >= go  # on a tie, fewer clusters
            best = max(float(log_r[node]), float(go))
        if above >= 0:
            below[above] += best
    return stops


def _best_stops_of_k(tree: Tree, k: int) -> npt.NDArray[np.bool_]:
    """Find the most probable partition into exactly k clusters by a knapsack over the tree.

    ``table[node][c - 1]`` is the best log probability of c clusters below the node; children are
    folded in one at a time, and each fold remembers how many clusters the folded part got.
    """
    log_odds = _log_odds(tree)
    log_r, log_1m_r = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    folds: dict[int, list[tuple[int, npt.NDArray[np.int32]]]] = {}
    tables: dict[int, FloatArray] = {}
    virtual_root = tree.n_nodes
    parent = [above if above >= 0 else virtual_root for above in tree.parent.tolist()]
    for node in range(tree.n_nodes):
        if node < tree.n_leaves:
            table = np.zeros(1)
        else:
            table = tables.pop(node) + log_1m_r[node]
            table[0] = log_r[node]  # the children alone cannot make one cluster
        above = parent[node]
        if above in tables:
            tables[above], given = _fold(tables[above], table, k)
        else:
            # The first child gives an empty fold: c clusters for the child alone.
            tables[above], given = table[:k], np.zeros(min(len(table), k), dtype=np.int32)
        folds.setdefault(above, []).append((node, given))
    total = tables[virtual_root]
    if k > len(total) or not np.isfinite(total[k - 1]):
        raise BhclustError(
            f"cut: no cut of this tree has exactly {k} clusters (a node with many children splits "
            "into all of them at once, and the trees of a forest stay apart); ask for another "
            "number, or for none to get the most probable cut."
        )
    return _backtrack(folds, virtual_root, k, tree.n_nodes)


def _fold(table: FloatArray, child: FloatArray, k: int) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Return max-plus convolution of two tables up to k, and the child's share in each maximum."""
    length = min(len(table) + len(child), k)
    best = np.full(length, -np.inf)
    given = np.zeros(length, dtype=np.int32)
    for c in range(1, min(len(child), k - 1) + 1):
        width = min(len(table), length - c)
        window = slice(c, c + width)
        candidate = table[:width] + child[c - 1]
        better = candidate > best[window]
        best[window][better] = candidate[better]
        given[window][better] = c
    return best, given


def _backtrack(
    folds: dict[int, list[tuple[int, npt.NDArray[np.int32]]]],
    virtual_root: int,
    k: int,
    n_nodes: int,
) -> npt.NDArray[np.bool_]:
    stops = np.zeros(n_nodes, dtype=np.bool_)
    todo = [(virtual_root, k)]
    while todo:
        node, clusters = todo.pop()
        # One cluster at a real node is a stop; at the virtual root it means the only root's.
        if clusters == 1 and node != virtual_root:
            stops[node] = True
            continue
        for child, given in reversed(folds[node][1:]):
            share = int(given[clusters - 1])
            todo.append((child, share))
            clusters -= share
        todo.append((folds[node][0][0], clusters))
    return stops


def _log_odds(tree: Tree) -> FloatArray:
    if tree.log_odds is None:
        raise BhclustError(
            "this tree carries no probabilities (it was read from a linkage or a plain Newick "
            "file): score it with bhclust.agglomerate.score_tree first."
        )
    return tree.log_odds


def _stats(tree: Tree) -> FloatArray:
    if tree.stats is None:
        raise BhclustError(
            "this tree carries no statistics, so it cannot predict: score it with "
            "bhclust.agglomerate.score_tree first."
        )
    return tree.stats
