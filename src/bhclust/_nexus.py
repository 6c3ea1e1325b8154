"""Nexus text: the names of the leaves in one block, one or several trees in another.

The format is that of Maddison, Swofford & Maddison, "NEXUS: an extensible file format for
systematic information", Systematic Biology 46 (1997).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy.typing as npt

from bhclust._newick import quoted_name, to_newick
from bhclust._validation import BhclustError, FloatArray, listed
from bhclust.tree import Tree


def to_nexus(
    trees: Tree | Sequence[Tree],
    *,
    weights: FloatArray | Sequence[float] | None = None,
    support: bool | npt.ArrayLike = True,
    name: str = "bhclust",
) -> str:
    """Return trees over the same leaves as Nexus text.

    Parameters
    ----------
    trees : Tree or sequence of Tree
        One tree, or the trees of a sampler. Each has one root; leaves without names are called
        row0, row1, …
    weights : sequence of float, optional
        The weight of each tree, written as ``[&W …]``.
    support : bool or array
        As in `bhclust.io.to_newick`; an array goes with a single tree.
    name : str
        What the tree is called; several are numbered.

    Returns
    -------
    str
        The text, with a newline at its end.

    Examples
    --------
    >>> tree = Tree([3, 3, 4, 4, -1], n_leaves=3, leaf_names=("a", "b c", "d"))
    >>> print(to_nexus(tree), end="")
    #NEXUS
    BEGIN TAXA;
      DIMENSIONS NTAX=3;
      TAXLABELS
        a
        'b c'
        d
      ;
    END;
    BEGIN TREES;
      TREE bhclust = [&R] (d:2.0,(a:1.0,'b c':1.0):1.0);
    END;
    """
    several = [trees] if isinstance(trees, Tree) else list(trees)
    _check_trees(several, weights)
    # A name of digits only would be read as the number of a leaf, counted from one.
    names = several[0].leaf_names or tuple(f"row{i}" for i in range(several[0].n_leaves))
    lines = ["#NEXUS", "BEGIN TAXA;", f"  DIMENSIONS NTAX={len(names)};", "  TAXLABELS"]
    lines += [f"    {quoted_name(one)}" for one in names]
    lines += ["  ;", "END;", "BEGIN TREES;"]
    for place, tree in enumerate(several):
        called = name if len(several) == 1 else f"{name}{place + 1}"
        weight = "" if weights is None else f"[&W {float(weights[place])!r}] "
        text = to_newick(replace(tree, leaf_names=names), support=support, comments=False)
        lines.append(f"  TREE {quoted_name(called)} = [&R] {weight}{text}")
    lines += ["END;", ""]
    return "\n".join(lines)


def _check_trees(trees: list[Tree], weights: object) -> None:
    if not trees:
        raise BhclustError("to_nexus: there is no tree to write.")
    if weights is not None and len(weights) != len(trees):  # type: ignore[arg-type]
        raise BhclustError("to_nexus: weights must have one number a tree.")
    for tree in trees:
        if len(tree.roots) > 1:
            raise BhclustError(
                f"to_nexus: a tree of a Nexus file has one root, and this forest has "
                f"{len(tree.roots)}: write tree.subtree(root) for each of tree.roots."
            )
        if (tree.n_leaves, tree.leaf_names) != (trees[0].n_leaves, trees[0].leaf_names):
            raise BhclustError("to_nexus: all trees of one file must have the same leaves.")
    names = trees[0].leaf_names or ()
    repeated = [one for one, count in Counter(names).items() if count > 1]
    if repeated or "" in names:
        raise BhclustError(
            "to_nexus: every leaf of a Nexus file needs a name of its own, but "
            f"{listed(repeated or [''], 3)} stands for several or none: rename the leaves, or "
            "drop leaf_names to number them."
        )
