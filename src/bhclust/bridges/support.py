"""What supports a node: the probability that a fit gives it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bhclust._validation import FloatArray
from bhclust.tree import Tree


def node_support(source: Any) -> FloatArray | None:
    """Return the support of each node of a tree, or of a fitted estimator's tree.

    Parameters
    ----------
    source : Tree or fitted estimator

    Returns
    -------
    array of shape (n_nodes,) or None
        For the trees of BHC and BRT, the probability that a node is one cluster given that it is
        not split above. For a coalescent tree from a sampler, the posterior probability of its
        leaves as a clade. For a greedy coalescent tree, the probability of together against apart
        when both are as probable beforehand. None for a tree that knows no odds.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.bridges import node_support
    >>> from bhclust.tree import Tree
    >>> node_support(Tree([2, 2, -1], n_leaves=2, log_odds=[np.inf, np.inf, 0.0])).tolist()
    [1.0, 1.0, 0.5]
    """
    tree = source if isinstance(source, Tree) else source.tree_
    posterior = getattr(source, "posterior_", None)
    if posterior is not None:
        support: FloatArray = posterior.support(tree)
        return support
    if tree.log_odds is None:
        return None
    return np.asarray(np.exp(-np.logaddexp(0.0, -tree.log_odds)))
