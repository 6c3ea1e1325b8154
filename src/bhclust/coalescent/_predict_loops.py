"""Compiled passes of prediction: a new item hung at many points of a tree.

A point is a place on the branch above a node, at some age. What the whole tree knows about the
state there is the product of the upward message from below and the downward message from above.
"""

from __future__ import annotations

import math

import numpy as np

from bhclust._validation import FloatArray
from bhclust.coalescent._loops import Int64Array, compiled
from bhclust.coalescent._tree_loops import ParentArray

_LOG_TWO_PI = math.log(2.0 * math.pi)


@compiled
def gaussian_point(
    parent: ParentArray,
    age: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    down_mean: FloatArray,
    down_precision: FloatArray,
    noise: float,
    node: int,
    at: float,
    out_mean: FloatArray,
    out_variance: FloatArray,
) -> None:
    """Write mean and variance of each column of an item that hangs at a point."""
    above = parent[node]
    for d in range(mean.shape[1]):
        precision, weighted, drift = 0.0, 0.0, at
        # Above the root the state diffuses backwards from what is known of it at the root.
        place = at if above >= 0 else age[node]
        drift += at - place
        if variance[node, d] < np.inf:
            precision = 1.0 / max(variance[node, d] + place - age[node], 1e-300)
            weighted = precision * mean[node, d]
        from_above = down_precision[node, d]
        if from_above > 0.0:
            if above >= 0:
                from_above = from_above / (1.0 + from_above * (age[above] - place))
            precision += from_above
            weighted += from_above * down_mean[node, d]
        if precision > 0.0:
            out_mean[d] = weighted / precision
            out_variance[d] = 1.0 / precision + drift + noise
        else:
            # A column without a single observation and a flat prior: the scale of the table.
            out_mean[d], out_variance[d] = 0.0, 1.0 + drift + noise


@compiled
def gaussian_scores(
    parent: ParentArray,
    age: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    down_mean: FloatArray,
    down_precision: FloatArray,
    noise: float,
    branch: Int64Array,
    point_age: FloatArray,
    log_weight: FloatArray,
    items: FloatArray,
    scores: FloatArray,
) -> None:
    """Fill log weight plus log density of every item at every point, ``(n_items, n_points)``."""
    n_columns = mean.shape[1]
    centre, spread = np.empty(n_columns), np.empty(n_columns)
    log_spread = np.empty(n_columns)
    for p in range(branch.shape[0]):
        gaussian_point(
            parent, age, mean, variance, down_mean, down_precision, noise,
            branch[p], point_age[p], centre, spread,
        )  # fmt: skip
        for d in range(n_columns):
            log_spread[d] = _LOG_TWO_PI + math.log(spread[d])
        for i in range(items.shape[0]):
            total = 0.0
            for d in range(n_columns):
                value = items[i, d]
                if value == value:  # not NaN
                    difference = value - centre[d]
                    total += log_spread[d] + difference * difference / spread[d]
            scores[i, p] = log_weight[p] - 0.5 * total


@compiled
def gaussian_moments(
    parent: ParentArray,
    age: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    down_mean: FloatArray,
    down_precision: FloatArray,
    noise: float,
    branch: Int64Array,
    point_age: FloatArray,
    shares: FloatArray,
    first: FloatArray,
    second: FloatArray,
) -> None:
    """Add up the first and second moments of every item over points, weighted by its shares."""
    n_columns = mean.shape[1]
    centre, spread = np.empty(n_columns), np.empty(n_columns)
    for p in range(branch.shape[0]):
        gaussian_point(
            parent, age, mean, variance, down_mean, down_precision, noise,
            branch[p], point_age[p], centre, spread,
        )  # fmt: skip
        for i in range(shares.shape[0]):
            for d in range(n_columns):
                first[i, d] += shares[i, p] * centre[d]
                second[i, d] += shares[i, p] * (spread[d] + centre[d] * centre[d])


@compiled
def sites_point(
    parent: ParentArray,
    age: FloatArray,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    up: FloatArray,
    down: FloatArray,
    node: int,
    at: float,
    out: FloatArray,
) -> None:
    """Write the probability of each state of each site of an item that hangs at a point."""
    above = parent[node]
    for d in range(rates.shape[0]):
        from_below = math.exp(-rates[d] * (at - age[node]))
        from_above = math.exp(-rates[d] * (age[above] - at)) if above >= 0 else 0.0
        keep = math.exp(-rates[d] * at)
        total = 0.0
        for k in range(offsets[d], offsets[d + 1]):
            value = equilibrium[k] * (1.0 - from_below * (1.0 - up[node, k]))
            value *= 1.0 - from_above * (1.0 - down[node, k])
            out[k] = value
            total += value
        for k in range(offsets[d], offsets[d + 1]):
            out[k] = keep * out[k] / total + (1.0 - keep) * equilibrium[k]


@compiled
def sites_scores(
    parent: ParentArray,
    age: FloatArray,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    up: FloatArray,
    down: FloatArray,
    branch: Int64Array,
    point_age: FloatArray,
    log_weight: FloatArray,
    codes: Int64Array,
    scores: FloatArray,
) -> None:
    """Fill log weight plus log probability of every item at every point."""
    probability = np.empty(equilibrium.shape[0])
    for p in range(branch.shape[0]):
        sites_point(
            parent, age, rates, equilibrium, offsets, up, down, branch[p], point_age[p], probability
        )
        for k in range(equilibrium.shape[0]):
            probability[k] = math.log(max(probability[k], 1e-300))
        for i in range(codes.shape[0]):
            total = log_weight[p]
            for d in range(codes.shape[1]):
                if codes[i, d] >= 0:
                    total += probability[offsets[d] + codes[i, d]]
            scores[i, p] = total


@compiled
def sites_probabilities(
    parent: ParentArray,
    age: FloatArray,
    rates: FloatArray,
    equilibrium: FloatArray,
    offsets: Int64Array,
    up: FloatArray,
    down: FloatArray,
    branch: Int64Array,
    point_age: FloatArray,
    shares: FloatArray,
    out: FloatArray,
) -> None:
    """Add up the states' probabilities of every item over points, weighted by its shares."""
    probability = np.empty(equilibrium.shape[0])
    for p in range(branch.shape[0]):
        sites_point(
            parent, age, rates, equilibrium, offsets, up, down, branch[p], point_age[p], probability
        )
        for i in range(shares.shape[0]):
            for k in range(equilibrium.shape[0]):
                out[i, k] += shares[i, p] * probability[k]
