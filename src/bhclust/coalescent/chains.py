"""Several samplers of trees side by side, wherever joblib runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np
from scipy.special import logsumexp

from bhclust._validation import check_count
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.processes import Leaves
from bhclust.coalescent.smc import sample_trees
from bhclust.tree import Tree


def sample_chains(
    leaves: Leaves,
    method: str = "smc-race",
    *,
    n_chains: int = 4,
    n_particles: int = 100,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    resample_below: float = 0.5,
    leaf_names: Sequence[str] | None = None,
) -> TreePosterior:
    """Run independent samplers and put their trees together.

    Each chain estimates the evidence without bias, so their mean does too, and the trees of a
    chain count in proportion to its estimate. Chains have random numbers of their own: the
    result depends neither on `n_jobs` nor on the backend of ``joblib.parallel_config``.

    Parameters
    ----------
    leaves, method, n_particles, rng, resample_below, leaf_names
        As in `sample_trees`; every chain has ``n_particles``.
    n_chains : int
        Number of samplers.
    n_jobs : int, optional
        Chains that run at a time; by default as joblib is configured, else one.

    Returns
    -------
    TreePosterior
        Its effective sizes are the sums of those of the chains.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, sample_chains
    >>> X = np.array([[0.0], [0.1], [3.0]])
    >>> leaves = Brownian(1.0).resolve(X).leaves(X)
    >>> posterior = sample_chains(leaves, n_chains=2, rng=np.random.default_rng(0))
    >>> len(posterior.trees)
    200
    """
    count = check_count(n_chains, name="n_chains", owner="sample_chains")
    how: Any = {"n_particles": n_particles, "resample_below": resample_below}
    chains = joblib.Parallel(n_jobs=n_jobs)(
        joblib.delayed(sample_trees)(leaves, method, rng=own, leaf_names=leaf_names, **how)
        for own in rng.spawn(count)
    )
    log_evidence = np.array([chain.log_evidence for chain in chains])
    share = np.exp(log_evidence - logsumexp(log_evidence))
    trees: list[Tree] = [tree for chain in chains for tree in chain.trees]
    return TreePosterior(
        trees,
        np.concatenate([s * chain.weights for s, chain in zip(share, chains, strict=True)]),
        np.concatenate([chain.log_joints for chain in chains]),
        float(logsumexp(log_evidence) - np.log(count)),
        np.sum([chain.effective_sizes for chain in chains], axis=0),
    )
