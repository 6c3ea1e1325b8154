"""Trees as the objects of networkx, ETE and scikit-bio."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, optional_import
from bhclust.bridges.support import node_support
from bhclust.tree import Tree

_EXTRA = "bridges"


def to_networkx(tree: Tree, support: npt.ArrayLike | None = None) -> Any:
    """Return a tree as a directed graph of networkx, edges from parent to child.

    Parameters
    ----------
    tree : Tree
        Any tree or forest.
    support : array of shape (n_nodes,), optional
        Support of each node; by default that of `node_support`.

    Returns
    -------
    networkx.DiGraph
        Nodes are numbered as in the tree and have ``size``, ``weight``, ``height`` and, where
        known, ``name`` (leaves), ``support``, ``log_odds``, ``log_evidence`` and ``log_marginal``
        (internal nodes). Edges have ``length``.

    Examples
    --------
    >>> from bhclust.tree import Tree
    >>> graph = to_networkx(Tree([2, 2, -1], n_leaves=2, leaf_names=("a", "b")))
    >>> sorted(graph.edges), graph.nodes[0]["name"]
    ([(2, 0), (2, 1)], 'a')
    """
    networkx = optional_import("networkx", extra=_EXTRA, needed_for="to_networkx")
    graph = networkx.DiGraph()
    values = _support(tree, support)
    known = {name: getattr(tree, name) for name in ("log_odds", "log_evidence", "log_marginal")}
    held = {name: array.tolist() for name, array in known.items() if array is not None}
    names = tree.leaf_names
    size, weight, height = tree.size.tolist(), tree.weight.tolist(), tree.height.tolist()
    for node in range(tree.n_nodes):
        facts: dict[str, Any] = {
            "size": size[node],
            "weight": weight[node],
            "height": height[node],
        }
        if node < tree.n_leaves:
            if names is not None:
                facts["name"] = names[node]
        else:
            facts.update({name: array[node] for name, array in held.items()})
            if values is not None:
                facts["support"] = float(values[node])
        graph.add_node(node, **facts)
    for node, above in enumerate(tree.parent.tolist()):
        if above >= 0:
            graph.add_edge(above, node, length=height[above] - height[node])
    return graph


def to_ete(tree: Tree, support: npt.ArrayLike | None = None) -> Any:
    """Return a tree as a tree of ETE 4.

    Parameters
    ----------
    tree : Tree
        A tree with one root.
    support : array of shape (n_nodes,), optional
        Support of each node; by default that of `node_support`.

    Returns
    -------
    ete4.Tree
        Leaves have names, branches ``dist``, internal nodes ``support``; every node has the
        properties ``node`` (its number in the tree), ``size`` and ``height``.

    Examples
    --------
    >>> from bhclust.tree import Tree
    >>> sorted(to_ete(Tree([2, 2, -1], n_leaves=2, leaf_names=("a", "b"))).leaf_names())
    ['a', 'b']
    """
    _check_one_root(tree, "to_ete")
    ete = optional_import("ete4", extra=_EXTRA, needed_for="to_ete")
    names = _names(tree)
    values = _support(tree, support)
    height, size = tree.height.tolist(), tree.size.tolist()
    made: dict[int, Any] = {}
    for node in range(tree.n_nodes - 1, -1, -1):  # from the root down
        above = int(tree.parent[node])
        properties: dict[str, Any] = {"node": node, "size": size[node], "height": height[node]}
        if node < tree.n_leaves:
            properties["name"] = names[node]
        elif values is not None:
            properties["support"] = float(values[node])
        if above < 0:
            made[node] = ete.Tree(properties)
        else:
            properties["dist"] = height[above] - height[node]
            made[node] = made[above].add_child(ete.Tree(properties))
    return made[tree.n_nodes - 1]


def to_skbio(tree: Tree, support: npt.ArrayLike | None = None) -> Any:
    """Return a tree as a tree of scikit-bio.

    Parameters
    ----------
    tree : Tree
        A tree with one root.
    support : array of shape (n_nodes,), optional
        Support of each node; by default that of `node_support`.

    Returns
    -------
    skbio.TreeNode
        Leaves have names, branches lengths; internal nodes are called by their support, as
        scikit-bio reads it from Newick, and have it as the attribute ``support``.

    Examples
    --------
    >>> from bhclust.tree import Tree
    >>> to_skbio(Tree([2, 2, -1], n_leaves=2, leaf_names=("a", "b"))).count(tips=True)
    2
    """
    _check_one_root(tree, "to_skbio")
    skbio = optional_import("skbio", extra=_EXTRA, needed_for="to_skbio")
    names = _names(tree)
    values = _support(tree, support)
    height = tree.height.tolist()
    made: list[Any] = []
    for node, above in enumerate(tree.parent.tolist()):
        length = None if above < 0 else height[above] - height[node]
        if node < tree.n_leaves:
            made.append(skbio.TreeNode(name=names[node], length=length))
            continue
        children = [made[child] for child in tree.children(node).tolist()]
        name = None if values is None else f"{values[node]:.6g}"
        made.append(skbio.TreeNode(name=name, length=length, children=children))
        if values is not None:
            made[-1].support = float(values[node])
    return made[-1]


def _names(tree: Tree) -> tuple[str, ...]:
    return tree.leaf_names or tuple(map(str, range(tree.n_leaves)))


def _support(tree: Tree, given: npt.ArrayLike | None) -> FloatArray | None:
    if given is None:
        return node_support(tree)
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (tree.n_nodes,):
        raise BhclustError(
            f"support must have one number a node ({tree.n_nodes} nodes), got an array of shape "
            f"{values.shape}."
        )
    return values


def _check_one_root(tree: Tree, owner: str) -> None:
    if len(tree.roots) > 1:
        raise BhclustError(
            f"{owner}: it makes one tree, and this forest has {len(tree.roots)} roots: convert "
            "tree.subtree(root) for each of tree.roots."
        )
