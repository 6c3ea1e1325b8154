"""Compiled passes over a whole tree: messages upwards and downwards, and their derivatives.

Trees are parent arrays in which every parent has a higher number than its children, of any arity;
ages are 0 at the leaves. Everything is in whitened units: Brownian motion has variance 1 a unit
of time in every column. A missing entry has variance infinity (Brownian) or a message of ones
(mutation).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray
from bhclust.coalescent._loops import Int64Array, compiled

_LOG_TWO_PI = math.log(2.0 * math.pi)
ParentArray = npt.NDArray[np.int32]


@compiled
def gaussian_upward(
    parent: ParentArray,
    age: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    contrast: FloatArray,
    contrast_variance: FloatArray,
) -> None:
    """Fill the messages of internal nodes and the contrast that each child adds at its parent.

    ``mean`` and ``variance`` come with the leaves filled and variance infinity elsewhere. A child
    that meets what its elder siblings have left at the parent makes a contrast: their difference
    and its variance; elsewhere the variance of the contrast stays 0.
    """
    n_nodes, n_columns = mean.shape
    for node in range(n_nodes):
        above = parent[node]
        if above < 0:
            continue
        branch = age[above] - age[node]
        for d in range(n_columns):
            spread = variance[node, d] + branch
            resident = variance[above, d]
            if spread == np.inf:
                continue
            if resident == np.inf:
                mean[above, d] = mean[node, d]
                variance[above, d] = spread
                continue
            total = spread + resident
            difference = mean[node, d] - mean[above, d]
            contrast[node, d] = difference
            contrast_variance[node, d] = total
            share = resident / total if total > 0.0 else 0.5
            mean[above, d] += share * difference
            variance[above, d] = spread * share


@compiled
def gaussian_downward(
    parent: ParentArray,
    child_ptr: Int64Array,
    child_index: Int64Array,
    age: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    root_mean: FloatArray,
    root_variance: float,
    down_mean: FloatArray,
    down_precision: FloatArray,
) -> None:
    """Fill, for each node, what all but its own subtree says about the state at its parent.

    At a root it is the root prior, about the root itself.
    """
    n_nodes, n_columns = mean.shape
    for node in range(n_nodes - 1, -1, -1):
        above = parent[node]
        for d in range(n_columns):
            if above < 0:
                down_mean[node, d] = root_mean[d]
                down_precision[node, d] = 1.0 / root_variance if root_variance < np.inf else 0.0
                continue
            precision, weighted = down_precision[above, d], 0.0
            if precision > 0.0:
                grand = parent[above]
                rise = age[grand] - age[above] if grand >= 0 else 0.0
                precision = precision / (1.0 + precision * rise)
                weighted = precision * down_mean[above, d]
            for c in range(child_ptr[above], child_ptr[above + 1]):
                sibling = child_index[c]
                if sibling == node or variance[sibling, d] == np.inf:
                    continue
                spread = max(variance[sibling, d] + age[above] - age[sibling], 1e-300)
                precision += 1.0 / spread
                weighted += mean[sibling, d] / spread
            down_precision[node, d] = precision
            down_mean[node, d] = weighted / precision if precision > 0.0 else 0.0


@compiled
def sites_upward(
    parent: ParentArray,
    age: FloatArray,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    n_leaves: int,
    message: FloatArray,
    log_z: FloatArray,
) -> None:
    """Fill the messages of internal nodes and the log likelihood ratio of each node and site.

    ``message`` comes with the leaves filled and ones elsewhere; every message is normalised to
    ``sum_k q_k M_k = 1``.
    """
    n_nodes = message.shape[0]
    n_columns = rates.shape[0]
    for node in range(n_nodes):
        above = parent[node]
        for d in range(n_columns):
            start, stop = offsets[d], offsets[d + 1]
            if node >= n_leaves:
                # All children are in: their product becomes a message.
                total = 0.0
                for k in range(start, stop):
                    total += equilibrium[k] * message[node, k]
                for k in range(start, stop):
                    message[node, k] /= total
                log_z[node, d] = math.log(total)
            if above >= 0:
                keep = math.exp(-rates[d] * (age[above] - age[node]))
                for k in range(start, stop):
                    message[above, k] *= 1.0 - keep * (1.0 - message[node, k])


@compiled
def sites_downward(
    parent: ParentArray,
    child_ptr: Int64Array,
    child_index: Int64Array,
    age: FloatArray,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    message: FloatArray,
    down: FloatArray,
) -> None:
    """Fill, for each node, what all but its own subtree says about the state at its parent."""
    n_nodes = message.shape[0]
    n_columns = rates.shape[0]
    for node in range(n_nodes - 1, -1, -1):
        above = parent[node]
        if above < 0:
            down[node] = 1.0
            continue
        grand = parent[above]
        for d in range(n_columns):
            start, stop = offsets[d], offsets[d + 1]
            keep = math.exp(-rates[d] * (age[grand] - age[above])) if grand >= 0 else 1.0
            total = 0.0
            for k in range(start, stop):
                value = 1.0 - keep * (1.0 - down[above, k])
                for c in range(child_ptr[above], child_ptr[above + 1]):
                    sibling = child_index[c]
                    if sibling != node:
                        retain = math.exp(-rates[d] * (age[above] - age[sibling]))
                        value *= 1.0 - retain * (1.0 - message[sibling, k])
                down[node, k] = value
                total += equilibrium[k] * value
            for k in range(start, stop):
                down[node, k] /= total


@compiled
def site_log_likelihood(
    parent: ParentArray,
    age: FloatArray,
    codes: Int64Array,
    rate: float,
    equilibrium: FloatArray,
    gradient: FloatArray,
) -> float:
    """Return the log likelihood of one site, and its derivatives by rate and equilibrium.

    ``codes`` has the state of each leaf, -1 where it is missing. ``gradient`` receives the
    derivative by the rate, then by each equilibrium probability as if it were free (the
    transition matrix ``e I + (1 - e) 1 q'`` and the root distribution q taken as they stand).
    Tangents travel upwards beside the messages.
    """
    n_nodes, n_states, n_leaves = parent.shape[0], equilibrium.shape[0], codes.shape[0]
    n_tangents = 1 + n_states
    message = np.ones((n_nodes, n_states))
    tangent = np.zeros((n_nodes, n_states, n_tangents))
    total = 0.0
    gradient[:] = 0.0
    slope = np.empty(n_tangents)
    for node in range(n_nodes):
        if node < n_leaves and codes[node] >= 0:
            message[node] = 0.0
            message[node, codes[node]] = 1.0
        # Normalise to q'M = 1 and carry the derivatives of the normaliser along.
        z = 0.0
        slope[:] = 0.0
        for k in range(n_states):
            z += equilibrium[k] * message[node, k]
            slope[1 + k] += message[node, k]
            for p in range(n_tangents):
                slope[p] += equilibrium[k] * tangent[node, k, p]
        total += math.log(z)
        for p in range(n_tangents):
            slope[p] /= z
            gradient[p] += slope[p]
        for k in range(n_states):
            message[node, k] /= z
            for p in range(n_tangents):
                tangent[node, k, p] = tangent[node, k, p] / z - message[node, k] * slope[p]
        above = parent[node]
        if above < 0:
            continue
        branch = age[above] - age[node]
        keep = math.exp(-rate * branch)
        for k in range(n_states):
            value = 1.0 - keep * (1.0 - message[node, k])
            for p in range(n_tangents):
                change = keep * tangent[node, k, p]
                if p == 0:
                    change += branch * keep * (1.0 - message[node, k])
                tangent[above, k, p] = tangent[above, k, p] * value + message[above, k] * change
            message[above, k] *= value
    return total


@compiled
def all_sites_log_likelihood(
    parent: ParentArray,
    age: FloatArray,
    codes: Int64Array,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    values: FloatArray,
    rate_gradient: FloatArray,
    equilibrium_gradient: FloatArray,
) -> None:
    """Fill the log likelihood of each site and its derivatives; ``codes`` is sites by leaves."""
    for d in range(rates.shape[0]):
        start, stop = offsets[d], offsets[d + 1]
        gradient = np.empty(1 + stop - start)
        values[d] = site_log_likelihood(
            parent, age, codes[d], rates[d], equilibrium[start:stop], gradient
        )
        rate_gradient[d] = gradient[0]
        equilibrium_gradient[start:stop] = gradient[1:]
