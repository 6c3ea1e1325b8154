"""Processes and posteriors as JSON headers and named arrays, for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FileFormatError
from bhclust.coalescent.brownian import Brownian
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.processes import Process
from bhclust.tree import Tree

Header = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]


def process_spec(process: Process) -> tuple[Header, Arrays]:
    """Return a resolved process as a header and arrays."""
    if isinstance(process, Brownian):
        root = process.root_variance
        header = {
            "process": "Brownian",
            "root_variance": None if root is None or root == np.inf else float(root),
            "leaf_variance": process.leaf_variance,
        }
        arrays = {
            "process.covariance": np.asarray(process.covariance, dtype=np.float64),
            "process.root_mean": np.asarray(process.root_mean, dtype=np.float64),
        }
        return header, arrays
    if isinstance(process, Mutation):
        arrays = {
            "process.rate": process.rates,
            "process.equilibrium": process.flat_equilibrium,
            "process.n_states": np.asarray(process.n_states, dtype=np.int64),
        }
        return {"process": "Mutation"}, arrays
    raise BhclustError(
        f"only Brownian and Mutation can be saved, not {type(process).__name__}: save its tree."
    )


def process_from_spec(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Process:
    """Return the process that `process_spec` described."""
    kind = header.get("process")
    try:
        if kind == "Brownian":
            covariance = np.asarray(arrays["process.covariance"], dtype=np.float64)
            mean = np.asarray(arrays["process.root_mean"], dtype=np.float64)
            shapes = ("isotropic", "diagonal", "full")
            return Brownian(
                covariance=float(covariance) if covariance.ndim == 0 else covariance,
                root_variance=header["root_variance"],
                root_mean=mean,
                leaf_variance=header["leaf_variance"],
                structure=shapes[covariance.ndim],  # type: ignore[arg-type]
            )
        if kind == "Mutation":
            n_states = tuple(int(k) for k in arrays["process.n_states"])
            cuts = np.cumsum(n_states)[:-1]
            return Mutation(
                rate=np.asarray(arrays["process.rate"], dtype=np.float64),
                equilibrium=tuple(np.split(np.asarray(arrays["process.equilibrium"]), cuts)),
                n_states=n_states,
            )
    except (KeyError, IndexError, ValueError) as error:
        raise FileFormatError(f"the process in the file is incomplete: {error}.") from error
    raise FileFormatError(f"the file holds a process {kind!r}, which this release does not know.")


def posterior_arrays(posterior: TreePosterior) -> Arrays:
    """Return a posterior's trees, weights and estimates as arrays."""
    return {
        "posterior.parent": np.stack([tree.parent for tree in posterior]),
        "posterior.height": np.stack([tree.height for tree in posterior]),
        "posterior.weights": posterior.weights,
        "posterior.log_joints": posterior.log_joints,
        "posterior.log_evidence": np.array(posterior.log_evidence),
        "posterior.effective_sizes": posterior.effective_sizes,
    }


def posterior_from_arrays(
    arrays: Mapping[str, Any], n_leaves: int, leaf_names: tuple[str, ...] | None
) -> TreePosterior | None:
    """Return the posterior that `posterior_arrays` described, None where there is none."""
    if "posterior.parent" not in arrays:
        return None
    rows = zip(arrays["posterior.parent"], arrays["posterior.height"], strict=True)
    trees = tuple(
        Tree(parent, n_leaves=n_leaves, height=height, leaf_names=leaf_names)
        for parent, height in rows
    )
    return TreePosterior(
        trees,
        arrays["posterior.weights"],
        arrays["posterior.log_joints"],
        float(arrays["posterior.log_evidence"]),
        arrays["posterior.effective_sizes"],
    )
