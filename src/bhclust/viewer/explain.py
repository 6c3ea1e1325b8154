"""The features that speak for the splits of the largest nodes, ready for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bhclust._validation import FloatArray, IntArray
from bhclust.coalescent.processes import Process
from bhclust.models.base import ClusterModel, Column
from bhclust.posterior import splits_contributions
from bhclust.tree import Tree
from bhclust.viewer.means import DataMeans, Side, model_means
from bhclust.viewer.payload import packed

MAX_NODES = 1000
TOP = 8
SIDES = 4  # children of a split that are described

# Numbers of (node, feature) that are worth computing, and that are held at once.
_BUDGET = 8_000_000
_BLOCK = 1_000_000
# Entries that the processes of a coalescent may touch: every column takes a pass over all.
_PROCESS_BUDGET = 300_000_000

Centres = Callable[[IntArray, Sequence[Side]], FloatArray]


class Ranked(NamedTuple):
    """The features with the largest factors of each node.

    ``feature`` is −1 beyond the last; ``total`` adds up all features, and is NaN where there is
    nothing to explain.
    """

    feature: IntArray
    factor: FloatArray
    total: FloatArray


class Explanation(NamedTuple):
    """What the page gets, and how much each column speaks for all splits together."""

    payload: dict[str, Any]
    importance: FloatArray


def explain_model(
    tree: Tree, model: ClusterModel, columns: Sequence[Column], data: DataMeans | None
) -> Explanation | None:
    """Explain the largest nodes of a tree with statistics: each split, and each node alone."""
    if tree.stats is None or tree.n_nodes == tree.n_leaves:
        return None
    stats = tree.stats
    if type(model).feature_contributions is ClusterModel.feature_contributions:
        return None if tree.log_marginal is None else _whole_model(tree)
    nodes = largest_nodes(tree, len(columns))
    split = _split_factors(tree, model, nodes, len(columns))
    outside = _outside_stats(tree, model, stats, nodes)
    has_rest = np.array([node in outside for node in nodes.tolist()])
    rest = np.full_like(split, np.nan)
    if has_rest.any():
        others = np.stack([outside[node] for node in nodes[has_rest].tolist()])
        rest[has_rest] = _in_blocks(
            model.feature_contributions, stats[nodes[has_rest]], others, split.shape[1]
        )

    def centres(features: IntArray, sides: Sequence[Side]) -> FloatArray:
        if data is not None:
            return data.at(features, sides)
        out = np.full((*features.shape, len(sides)), np.nan)
        for s, side in enumerate(sides):
            source = outside if side.complement else dict(enumerate(stats))
            rows = [i for i, node in enumerate(side.nodes.tolist()) if node in source]
            if not rows:
                continue
            chosen = np.stack([source[int(side.nodes[i])] for i in rows])
            means = model_means(model, chosen, len(columns))
            if means is not None:
                taken = np.take_along_axis(means, np.maximum(features[rows], 0), axis=1)
                out[rows, :, s] = np.where(features[rows] >= 0, taken, np.nan)
        return out

    named = _described(columns, split.shape[1])
    return _explanation(tree, nodes, split, rest, named, centres)


def explain_process(
    tree: Tree,
    process: Process,
    columns: Sequence[Column],
    values: FloatArray,
    data: DataMeans,
) -> Explanation | None:
    """Explain the largest nodes of a coalescent tree, column by column.

    A column's share is the log likelihood ratio of the tree with all other columns missing. They
    add up to the whole where columns evolve independently.
    """
    if values.size * len(columns) > _PROCESS_BUDGET or tree.n_nodes == tree.n_leaves:
        return None
    nodes = largest_nodes(tree, len(columns))
    split = np.zeros((len(nodes), len(columns)))
    for j in range(len(columns)):
        alone = np.full_like(values, np.nan)
        alone[:, j] = values[:, j]
        split[:, j] = -process.log_likelihood_ratio(tree, alone)[nodes]

    whole = -process.log_likelihood_ratio(tree, values)[nodes]
    return _explanation(tree, nodes, split, None, list(columns), data.at, whole)


def largest_nodes(tree: Tree, n_features: int) -> IntArray:
    """Return the internal nodes with most leaves, as many as the budget allows.

    A node comes after all nodes above it, which are larger.
    """
    inner = np.arange(tree.n_leaves, tree.n_nodes)
    most = max(20, min(MAX_NODES, _BUDGET // max(n_features, 1)))
    return inner[np.lexsort((-inner, -tree.size[inner]))][:most]


def _in_blocks(
    contributions: Callable[[FloatArray, FloatArray], FloatArray],
    a: FloatArray,
    b: FloatArray,
    n_features: int,
) -> FloatArray:
    step = max(1, _BLOCK // max(n_features, a.shape[1]))
    parts = [
        contributions(np.ascontiguousarray(a[i : i + step]), np.ascontiguousarray(b[i : i + step]))
        for i in range(0, len(a), step)
    ]
    return np.concatenate(parts)


def _split_factors(tree: Tree, model: ClusterModel, nodes: IntArray, n_features: int) -> FloatArray:
    """Return what speaks for each split by feature, some nodes at a time."""
    assert tree.stats is not None
    step = max(1, _BLOCK // max(n_features, tree.stats.shape[1]))
    parts = [
        splits_contributions(tree, model, nodes[i : i + step]) for i in range(0, len(nodes), step)
    ]
    return np.concatenate(parts)


def _outside_stats(
    tree: Tree, model: ClusterModel, stats: FloatArray, nodes: IntArray
) -> dict[int, FloatArray]:
    """Return the statistics of all leaves that are not below a node; none at a lone root."""
    wanted = set(nodes.tolist())
    outside: dict[int, FloatArray] = {}
    families = [(-1, tree.roots), *((node, tree.children(node)) for node in nodes.tolist())]
    for above, members in families:
        if not wanted.intersection(members.tolist()):
            continue
        rows = [stats[member] for member in members.tolist()]
        before = _running(model, rows)
        after = _running(model, rows[::-1])[::-1]
        for i, member in enumerate(members.tolist()):
            if member not in wanted:
                continue
            around = [outside.get(above), before[i - 1] if i else None]
            around.append(after[i + 1] if i + 1 < len(rows) else None)
            present = [row for row in around if row is not None]
            if present:
                outside[member] = _running(model, present)[-1]
    return outside


def _running(model: ClusterModel, rows: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the merge of the first row, of the first two, of the first three, …"""
    out = [rows[0]]
    for row in rows[1:]:
        out.append(model.merge(out[-1][None], row[None])[0])
    return out


def _whole_model(tree: Tree) -> Explanation:
    """Explain splits by their total, for models that are not a product over features."""
    log_f = tree.log_marginal
    assert log_f is not None
    apart = np.bincount(
        tree.parent[tree.parent >= 0],
        weights=log_f[tree.parent >= 0],
        minlength=tree.n_nodes,
    )
    nodes = largest_nodes(tree, 1)
    split = (apart - log_f)[nodes, None]

    def centres(features: IntArray, sides: Sequence[Side]) -> FloatArray:
        return np.full((*features.shape, len(sides)), np.nan)

    return _explanation(tree, nodes, split, None, [Column("all features", "real")], centres)


def _described(columns: Sequence[Column], n_features: int) -> list[Column]:
    if n_features == len(columns):
        return list(columns)
    return [Column("all features", "real")]


def rank(factors: FloatArray, top: int = TOP) -> Ranked:
    """Return the ``top`` features by size of factor, the most positive first.

    Examples
    --------
    >>> import numpy as np
    >>> rank(np.array([[0.5, -3.0, 2.0]]), top=2).feature.tolist()
    [[2, 1]]
    """
    count = min(top, factors.shape[1])
    known = np.where(np.isnan(factors), 0.0, factors)
    strongest = np.argsort(-np.abs(known), axis=1, kind="stable")[:, :count]
    values = np.take_along_axis(known, strongest, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    feature = np.full((len(factors), top), -1, dtype=np.intp)
    factor = np.zeros((len(factors), top))
    feature[:, :count] = np.take_along_axis(strongest, order, axis=1)
    factor[:, :count] = np.take_along_axis(values, order, axis=1)
    return Ranked(feature, factor, factors.sum(axis=1))


def _explanation(
    tree: Tree,
    nodes: IntArray,
    split: FloatArray,
    rest: FloatArray | None,
    named: Sequence[Column],
    centres: Centres,
    whole: FloatArray | None = None,
) -> Explanation:
    """Put the parts together; ``whole`` is a split's factor where features need not add up."""
    by_split = rank(split)
    additive = whole is None or np.allclose(whole, by_split.total, rtol=1e-6, atol=1e-6)
    if whole is not None:
        by_split = by_split._replace(total=whole)
    children = [Side(child) for child in _first_children(tree, nodes).T]
    parts = {"split": (by_split, centres(by_split.feature, children)), "rest": None}
    used = [by_split.feature]
    if rest is not None:
        alone = rank(rest)
        here_and_elsewhere = [Side(nodes), Side(nodes, complement=True)]
        parts["rest"] = (alone, centres(alone.feature, here_and_elsewhere))
        used.append(alone.feature)
    kept = np.unique(np.concatenate(used))
    kept = kept[kept >= 0]
    number = np.full(len(named) + 1, -1, dtype=np.intp)
    number[kept] = np.arange(len(kept))
    payload: dict[str, Any] = {
        "features": [_feature(named[j]) for j in kept.tolist()],
        "nodes": packed(nodes, "i4"),
        "top": TOP,
        "nFeatures": len(named),
        "additive": additive,
    }
    for name, part in parts.items():
        payload[name] = None if part is None else _part(*part, number)
    return Explanation(payload, np.maximum(split, 0.0).sum(axis=0))


def _first_children(tree: Tree, nodes: IntArray) -> IntArray:
    """Return the first children of each node as the page draws them: the larger ones first."""
    out = np.full((len(nodes), SIDES), -1, dtype=np.intp)
    for i, node in enumerate(nodes.tolist()):
        children = tree.children(node)
        first = children[np.lexsort((children, -tree.size[children]))][:SIDES]
        out[i, : len(first)] = first
    return out


def _feature(column: Column) -> dict[str, Any]:
    record: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind == "categorical":
        record["categories"] = [str(category) for category in column.categories]
    return record


def _part(ranked: Ranked, values: FloatArray, number: IntArray) -> dict[str, Any]:
    return {
        "feature": packed(number[ranked.feature], "i4"),
        "factor": packed(ranked.factor, "f4"),
        "total": packed(ranked.total, "f4"),
        "sides": values.shape[2],
        "values": None if np.isnan(values).all() else packed(values, "f4"),
    }
