"""How well clusters agree with known classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bhclust._validation import BhclustError
from bhclust.metrics import dendrogram_purity
from bhclust.tree import Tree


class Scores(NamedTuple):
    """Clusters against classes; rows without a class are left out.

    Attributes
    ----------
    n_rows : int
        Rows with a class.
    n_classes : int
    purity : float
        Share of the rows that are of the commonest class of their cluster.
    adjusted_rand_index : float
    normalized_mutual_information : float
    dendrogram_purity : float or None
        Of the tree, if every leaf has a class and some class has two leaves.
    """

    n_rows: int
    n_classes: int
    purity: float
    adjusted_rand_index: float
    normalized_mutual_information: float
    dendrogram_purity: float | None = None


def score_clusters(
    labels: npt.ArrayLike,
    classes: Sequence[str | None],
    *,
    tree: Tree | None = None,
    leaf_rows: npt.ArrayLike | None = None,
) -> Scores:
    """Compare clusters with classes.

    Parameters
    ----------
    labels : array of int
        The cluster of each row.
    classes : sequence of str or None
        The class of each row, None where it is not known.
    tree : Tree, optional
        The tree whose dendrogram purity is wanted.
    leaf_rows : array of int, optional
        The row that each leaf of the tree is; the same by default.

    Examples
    --------
    >>> scores = score_clusters([0, 0, 1, 1], ["a", "a", "b", "a"])
    >>> scores.purity, scores.n_classes
    (0.75, 2)
    """
    clusters = np.asarray(labels)
    known = np.array([one is not None for one in classes], dtype=np.bool_)
    if not known.any():
        raise BhclustError("the column of classes has no value in any row.")
    kept = clusters[known]
    named: Any = np.array([one for one in classes if one is not None], dtype=object).astype(str)
    pairs = Counter(zip(kept.tolist(), named.tolist(), strict=True))
    best: dict[int, int] = {}
    for (cluster, _), count in pairs.items():
        best[cluster] = max(best.get(cluster, 0), count)
    purity = None
    if tree is not None:
        rows = np.arange(tree.n_leaves) if leaf_rows is None else np.asarray(leaf_rows)
        leaves = [classes[row] for row in rows.tolist()]
        if None not in leaves and len(set(leaves)) < len(leaves):
            purity = dendrogram_purity(tree, leaves)
    return Scores(
        n_rows=int(known.sum()),
        n_classes=len(set(named.tolist())),
        purity=sum(best.values()) / int(known.sum()),
        adjusted_rand_index=float(adjusted_rand_score(named, kept)),
        normalized_mutual_information=float(normalized_mutual_info_score(named, kept)),
        dendrogram_purity=purity,
    )
