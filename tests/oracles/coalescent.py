"""Slow plain definitions for the coalescent: dense Gaussians, enumeration, quadrature, loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import integrate
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from bhclust.tree import Tree


def random_tree(n, rng, *, scale=1.0):
    """Draw a tree from Kingman's coalescent by its definition."""
    live = list(range(n))
    parent = np.full(2 * n - 1, -1)
    height = np.zeros(2 * n - 1)
    age = 0.0
    for node in range(n, 2 * n - 1):
        m = len(live)
        age += scale * rng.exponential(2 / (m * (m - 1)))
        i, j = sorted(rng.choice(m, size=2, replace=False))
        b, a = live.pop(j), live.pop(i)
        parent[a] = parent[b] = node
        height[node] = age
        live.append(node)
    return Tree(parent, n_leaves=n, height=height)


def shared_time(tree):
    """Return the time that each pair of leaves has travelled together below the root."""
    n = tree.n_leaves
    top = tree.height[-1]
    return np.array([[top - tree.height[tree.mrca(i, j)] for j in range(n)] for i in range(n)])


def brownian_log_density(tree, X, covariance, root_mean, root_variance, leaf_variance):
    """Density of the observed entries as one multivariate normal over all of them."""
    n = len(X)
    rows = shared_time(tree) + root_variance + leaf_variance * np.eye(n)
    big = np.kron(rows, covariance)
    values = (X - root_mean).ravel()
    seen = ~np.isnan(values)
    if not seen.any():
        return 0.0
    return multivariate_normal(np.zeros(seen.sum()), big[np.ix_(seen, seen)]).logpdf(values[seen])


def contrast_log_density(tree, X, covariance):
    """Density of orthonormal contrasts between leaves: what a flat root prior leaves, up to scale.

    The scale is the square root of the number of leaves, from the change of variables between
    orthonormal contrasts and Felsenstein's, which have a unit triangular matrix.
    """
    n, d = X.shape
    basis = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]
    big = np.kron(basis.T @ shared_time(tree) @ basis, covariance)
    values = (basis.T @ X).ravel()
    return multivariate_normal(np.zeros(len(values)), big).logpdf(values) - 0.5 * d * math.log(n)


def brownian_conditional(tree, X, covariance, root_mean, root_variance, i, d):
    """Mean and variance of one missing entry given all observed ones, by dense conditioning."""
    width = X.shape[1]
    big = np.kron(shared_time(tree) + root_variance, covariance)
    values = (X - root_mean).ravel()
    seen = ~np.isnan(values)
    place = i * width + d
    weights = np.linalg.solve(big[np.ix_(seen, seen)], big[seen, place])
    mean = root_mean[d] + weights @ values[seen]
    return mean, big[place, place] - weights @ big[seen, place]


def site_likelihood(tree, codes, rate, equilibrium):
    """Likelihood of one site as a sum over the states of all nodes that are not observed.

    ``equilibrium`` need not add up to one: the transition is e I + (1 - e) 1 q'.
    """
    q = np.asarray(equilibrium)
    hidden = [i for i in range(tree.n_nodes) if i >= tree.n_leaves or codes[i] < 0]
    states = [int(codes[i]) if i < tree.n_leaves else -1 for i in range(tree.n_nodes)]
    total = 0.0
    for choice in itertools.product(range(len(q)), repeat=len(hidden)):
        for i, state in zip(hidden, choice, strict=True):
            states[i] = state
        probability = q[states[-1]]
        for i in range(tree.n_nodes - 1):
            above = tree.parent[i]
            keep = math.exp(-rate * (tree.height[above] - tree.height[i]))
            probability *= keep * (states[i] == states[above]) + (1 - keep) * q[states[i]]
        total += probability
    return total


def log_coalescent(tree):
    """Log density of a history: between events every pair of lineages waits at rate 1."""
    n = tree.n_leaves
    ages = np.sort(tree.height[n:])
    total, before = 0.0, 0.0
    for i, age in enumerate(ages):
        m = n - i
        total -= m * (m - 1) / 2 * (age - before)
        before = age
    return total


def histories(n, ages):
    """Every tree on n leaves with these increasing ages of its internal nodes."""

    def grow(live, parent, node):
        if len(live) == 1:
            height = np.concatenate([np.zeros(n), ages])
            yield Tree(list(parent), n_leaves=n, height=height)
            return
        for a, b in itertools.combinations(live, 2):
            above = list(parent)
            above[a] = above[b] = node
            rest = [c for c in live if c not in (a, b)] + [node]
            yield from grow(rest, above, node + 1)

    yield from grow(list(range(n)), [-1] * (2 * n - 1), n)


def log_evidence(process, X):
    """Log p(X) for two or three rows by quadrature over the ages and a sum over the trees."""
    n = len(X)

    def joint(*ages):
        return sum(
            math.exp(log_coalescent(tree) + process.log_likelihood(tree, X))
            for tree in histories(n, np.array(ages))
        )

    # log ages make the integrand smooth at 0
    if n == 2:
        value = integrate.quad(
            lambda u: joint(math.exp(u)) * math.exp(u), -14, 5, epsabs=0, epsrel=1e-9, limit=200
        )[0]
        return math.log(value)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    u = 0.5 * (nodes + 1) * 15 - 11
    w = weights * 7.5
    total = 0.0
    for u1, w1 in zip(u, w, strict=True):
        for u2, w2 in zip(u, w, strict=True):
            first, gap = math.exp(u1), math.exp(u2)
            total += w1 * w2 * first * gap * joint(first, first + gap)
    return math.log(total)


def brownian_pair_duration(first, second, n_columns, rate):
    """Maximise the local posterior of a Gaussian pair over a fine grid and polish."""

    def loss(x):
        s = first + 2 * x
        return rate * x + 0.5 * (n_columns * math.log(s) + second / s)

    grid = np.concatenate([[0.0], np.geomspace(1e-8, 1e3, 4000)])
    best = int(np.argmin([loss(x) for x in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    polished = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return polished.x if polished.fun < loss(0.0) else 0.0


def naive_rate1(leaves_mean, leaf_variance=0.0):
    """Greedy-Rate1 on complete whitened rows: all pairs again at every step.

    Returns the merges as (set of leaves, age), in order.
    """
    n, width = leaves_mean.shape
    live = {i: (frozenset([i]), leaves_mean[i], leaf_variance, 0.0) for i in range(n)}
    merges = []
    for node in range(n, 2 * n - 1):
        best = None
        for a, b in itertools.combinations(sorted(live), 2):
            _, y_a, v_a, t_a = live[a]
            _, y_b, v_b, t_b = live[b]
            gap = float(((y_a - y_b) ** 2).sum())
            s = (math.sqrt(width**2 + 4 * gap) - width) / 2
            age = max((s - v_a - v_b + t_a + t_b) / 2, t_a, t_b)
            if best is None or age < best[0] - 1e-12:
                best = (age, a, b)
        age, a, b = best
        set_a, y_a, v_a, t_a = live.pop(a)
        set_b, y_b, v_b, t_b = live.pop(b)
        s_a, s_b = v_a + age - t_a, v_b + age - t_b
        if s_a + s_b == 0:
            y, v = (y_a + y_b) / 2, 0.0
        else:
            v = s_a * s_b / (s_a + s_b)
            y = (s_b * y_a + s_a * y_b) / (s_a + s_b)
        live[node] = (set_a | set_b, y, v, age)
        merges.append((set_a | set_b, age))
    return merges


def site_pair_log_z(left, right, rates, equilibrium, gap):
    """Log Z of two messages whose branches together have the length ``gap``."""
    total = 0.0
    for m_l, m_r, rate, q in zip(left, right, rates, equilibrium, strict=True):
        total += math.log(1 - math.exp(-rate * gap) * (1 - float((q * m_l * m_r).sum())))
    return total


def best_on_grid(function, top):
    """Maximise over [0, top] by a fine grid and a bounded polish."""
    grid = np.concatenate([[0.0], np.geomspace(1e-7 * top, top, 3000)])
    with np.errstate(divide="ignore"):
        values = [function(x) for x in grid]
    best = int(np.argmax(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    polished = minimize_scalar(
        lambda x: -function(x), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    return polished.x if -polished.fun > values[0] else 0.0


def naive_mutation_greedy(codes, rates, equilibrium, method):
    """The three greedy searches on sites by their definitions; merges as (leaves, age)."""
    n, d = codes.shape

    def leaf(i):
        message = []
        for j in range(d):
            q = equilibrium[j]
            message.append(np.ones(len(q)) if codes[i, j] < 0 else np.eye(len(q))[codes[i, j]] / q)
        return frozenset([i]), message, 0.0

    live = {i: leaf(i) for i in range(n)}
    now, merges = 0.0, []
    for node in range(n, 2 * n - 1):
        m = len(live)
        rate = 1.0 if method == "greedy-rate1" else m * (m - 1) / 2
        best = None
        for a, b in itertools.combinations(sorted(live), 2):
            _, m_a, t_a = live[a]
            _, m_b, t_b = live[b]
            base = max(t_a, t_b) if method == "greedy-rate1" else now

            def log_z(x, m_a=m_a, m_b=m_b, gap=2 * base - t_a - t_b):
                try:
                    return site_pair_log_z(m_a, m_b, rates, equilibrium, gap + 2 * x)
                except ValueError:
                    return -np.inf

            x = best_on_grid(lambda x, f=log_z, rate=rate: f(x) - rate * x, 4.0 * d)
            key = {
                "greedy-rate1": (round(base + x, 7), -round(log_z(x), 6)),
                "greedy-minduration": (round(x, 7), -round(log_z(x), 6)),
                "greedy-maxprob": (round(rate * x - log_z(x), 6),),
            }[method]
            if best is None or key < best[0]:
                best = (key, a, b, base + x)
        _, a, b, now = best
        set_a, m_a, t_a = live.pop(a)
        set_b, m_b, t_b = live.pop(b)
        joined = []
        for j in range(d):
            value = (1 - math.exp(-rates[j] * (now - t_a)) * (1 - m_a[j])) * (
                1 - math.exp(-rates[j] * (now - t_b)) * (1 - m_b[j])
            )
            joined.append(value / (equilibrium[j] * value).sum())
        live[node] = (set_a | set_b, joined, now)
        merges.append((set_a | set_b, now))
    return merges
