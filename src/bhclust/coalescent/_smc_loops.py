"""Compiled steps of the sequential Monte Carlo samplers, a range of particles at a time.

A particle keeps its live lineages in the first slots of its arrays. Uniform numbers are drawn
outside, so that a result does not depend on how the particles are shared among threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import FloatArray
from bhclust.coalescent._loops import (
    SEGMENTS,
    Int64Array,
    PairSpec,
    build_proposal,
    compiled,
    draw_beyond,
    level_at,
    log_correction,
    log_local,
    log_root_factor,
    mass_beyond,
    merge_pair,
    prepare_pair,
)

PRIOR_PRIOR, PRIOR_POST, POST_POST = 0, 1, 2
Cube = npt.NDArray[np.float64]


class Particles(NamedTuple):
    """Live lineages of all particles.

    ``messages`` (n_particles, n, width), ``spreads`` (n_particles, n, 1 or n_columns), ``ages``
    and ``ids`` (n_particles, n): the first slots are live, ``ids`` names their nodes.
    """

    messages: Cube
    spreads: Cube
    ages: FloatArray
    ids: Int64Array


class Clocks(NamedTuple):
    """The race: when each pair's clock rings, and the first to ring of each lineage's clocks.

    ``rings`` (n_particles, n, n) is symmetric, in ages; ``first`` (n_particles, n) is the
    smallest of each row and ``partner`` (n_particles, n) its slot.
    """

    rings: Cube
    first: FloatArray
    partner: Int64Array


class Step(NamedTuple):
    """What one step did to each particle.

    The two nodes that met, when, the log weight, and the term of log p(tree, X).
    """

    left: Int64Array
    right: Int64Array
    age: FloatArray
    log_weight: FloatArray
    log_joint: FloatArray


@compiled
def _prepare(
    spec: PairSpec,
    particles: Particles,
    s: int,
    i: int,
    j: int,
    base: float,
    first: FloatArray,
    second: FloatArray,
) -> int:
    return prepare_pair(
        spec,
        particles.messages[s, i],
        particles.spreads[s, i],
        particles.ages[s, i],
        particles.messages[s, j],
        particles.spreads[s, j],
        particles.ages[s, j],
        base,
        first,
        second,
    )


@compiled
def _join(
    spec: PairSpec, particles: Particles, s: int, i: int, j: int, age: float, node: int, m: int
) -> None:
    """Put the new node into slot i and the last lineage into slot j; i < j."""
    merge_pair(
        spec,
        particles.messages[s, i],
        particles.spreads[s, i],
        particles.ages[s, i],
        particles.messages[s, j],
        particles.spreads[s, j],
        particles.ages[s, j],
        age,
        particles.messages[s, i],
        particles.spreads[s, i],
    )
    particles.ages[s, i] = age
    particles.ids[s, i] = node
    last = m - 1
    if j != last:
        particles.messages[s, j] = particles.messages[s, last]
        particles.spreads[s, j] = particles.spreads[s, last]
        particles.ages[s, j] = particles.ages[s, last]
        particles.ids[s, j] = particles.ids[s, last]


@compiled
def _record(
    spec: PairSpec,
    particles: Particles,
    step: Step,
    s: int,
    i: int,
    j: int,
    age: float,
    node: int,
    m: int,
    duration: float,
    first: FloatArray,
    second: FloatArray,
) -> None:
    count = _prepare(spec, particles, s, i, j, age, first, second)
    log_z = log_local(spec, first, second, count, 0.0)
    step.log_joint[s] = log_z - 0.5 * m * (m - 1) * duration
    step.left[s] = particles.ids[s, i]
    step.right[s] = particles.ids[s, j]
    step.age[s] = age
    _join(spec, particles, s, i, j, age, node, m)
    if m == 2:
        at_root = log_root_factor(spec, particles.messages[s, 0], particles.spreads[s, 0])
        step.log_weight[s] += at_root
        step.log_joint[s] += at_root


@compiled
def _pair_of(index: int) -> tuple[int, int]:
    """Return the index-th pair i < j in the order (0, 1), (0, 2), (1, 2), (0, 3), …"""
    j = int((1.0 + math.sqrt(1.0 + 8.0 * index)) / 2.0)
    while j * (j - 1) // 2 > index:
        j -= 1
    while (j + 1) * j // 2 <= index:
        j += 1
    return index - j * (j - 1) // 2, j


@compiled
def _choose(log_weights: FloatArray, count: int, uniform: float) -> tuple[int, float]:
    """Draw an index in proportion to its weight; also return the log of the sum of weights."""
    top = -np.inf
    for p in range(count):
        top = max(top, log_weights[p])
    if top == -np.inf:
        return int(uniform * count), -np.inf
    total = 0.0
    for p in range(count):
        total += math.exp(log_weights[p] - top)
    rest = uniform * total
    for p in range(count):
        rest -= math.exp(log_weights[p] - top)
        if rest < 0.0:
            return p, top + math.log(total)
    return count - 1, top + math.log(total)


@compiled
def stepwise(
    spec: PairSpec,
    particles: Particles,
    step: Step,
    now: FloatArray,
    method: int,
    uniforms: FloatArray,
    node: int,
    m: int,
    start: int,
    stop: int,
    n_terms: int,
) -> None:
    """Advance particles by one merger with one of the paper's three proposals."""
    first, second = np.empty(n_terms), np.empty(n_terms)
    grid, level = np.empty(SEGMENTS + 1), np.empty(SEGMENTS + 2)
    mass = np.empty(SEGMENTS + 2)
    n_pairs = m * (m - 1) // 2
    log_weights = np.empty(n_pairs)
    rate = float(n_pairs)
    log_total = 0.0
    for s in range(start, stop):
        duration = -math.log1p(-uniforms[s, 0]) / rate
        if method == PRIOR_PRIOR:
            pair = min(int(uniforms[s, 1] * n_pairs), n_pairs - 1)
        else:
            for p in range(n_pairs):
                i, j = _pair_of(p)
                count = _prepare(spec, particles, s, i, j, now[s], first, second)
                if method == PRIOR_POST:
                    log_weights[p] = log_local(spec, first, second, count, duration)
                else:
                    log_weights[p] = build_proposal(
                        spec, rate, first, second, count, grid, level, mass
                    )
            pair, log_total = _choose(log_weights, n_pairs, uniforms[s, 1])
        i, j = _pair_of(pair)
        if method == PRIOR_POST:
            step.log_weight[s] = log_total - math.log(rate)
        else:
            count = _prepare(spec, particles, s, i, j, now[s], first, second)
            if method == PRIOR_PRIOR:
                step.log_weight[s] = log_local(spec, first, second, count, duration)
            else:
                build_proposal(spec, rate, first, second, count, grid, level, mass)
                u, height = draw_beyond(grid, level, mass, (1.0 - uniforms[s, 0]) * mass.sum())
                duration = math.exp(u)
                step.log_weight[s] = log_total + log_correction(
                    spec, rate, first, second, count, u, height, level[SEGMENTS + 1]
                )
        now[s] += duration
        _record(spec, particles, step, s, i, j, now[s], node, m, duration, first, second)


@compiled
def _find_first(clocks: Clocks, s: int, i: int, m: int) -> None:
    best, partner = np.inf, -1
    for k in range(m):
        if k != i and clocks.rings[s, i, k] < best:
            best, partner = clocks.rings[s, i, k], k
    clocks.first[s, i] = best
    clocks.partner[s, i] = partner


@compiled
def set_clocks(
    spec: PairSpec,
    particles: Particles,
    clocks: Clocks,
    now: FloatArray,
    i: int,
    m: int,
    uniforms: FloatArray,
    start: int,
    stop: int,
    n_terms: int,
    same: bool,
) -> None:
    """Draw the clocks of the pairs (i, k), k < i, given that they have not rung before now.

    ``same`` says that all particles have the same lineages, as at the start.
    """
    first, second = np.empty(n_terms), np.empty(n_terms)
    grid, level = np.empty(SEGMENTS + 1), np.empty(SEGMENTS + 2)
    mass = np.empty(SEGMENTS + 2)
    for k in range(i):
        for s in range(start, stop):
            base = max(particles.ages[s, i], particles.ages[s, k])
            if s == start or not same:
                count = _prepare(spec, particles, s, i, k, base, first, second)
                build_proposal(spec, 1.0, first, second, count, grid, level, mass)
                left = mass_beyond(grid, level, mass, now[s] - base)
            u, _ = draw_beyond(grid, level, mass, (1.0 - uniforms[s, k]) * left)
            ring = max(base + math.exp(u), now[s])
            clocks.rings[s, i, k] = ring
            clocks.rings[s, k, i] = ring
    if i == m - 1:
        for s in range(start, stop):
            for k in range(m):
                _find_first(clocks, s, k, m)


@compiled
def _weight_of_losers(
    spec: PairSpec,
    particles: Particles,
    s: int,
    i: int,
    j: int,
    age: float,
    m: int,
    first: FloatArray,
    second: FloatArray,
    grid: FloatArray,
    level: FloatArray,
    mass: FloatArray,
) -> float:
    """Return what the pairs add that end because i and j meet: -L - log S(L) each."""
    total = 0.0
    for k in range(m):
        if k in (i, j):
            continue
        for end in (i, j):
            base = max(particles.ages[s, end], particles.ages[s, k])
            count = _prepare(spec, particles, s, end, k, base, first, second)
            build_proposal(spec, 1.0, first, second, count, grid, level, mass)
            survival = mass_beyond(grid, level, mass, age - base) / mass.sum()
            total -= (age - base) + math.log(survival)
    return total


@compiled
def race(
    spec: PairSpec,
    particles: Particles,
    clocks: Clocks,
    step: Step,
    now: FloatArray,
    uniforms: FloatArray,
    node: int,
    m: int,
    start: int,
    stop: int,
    n_terms: int,
) -> None:
    """Advance particles to the next clock that rings.

    With a proposal q, its survival S and a lifetime L, the winner adds log(e^-L Z(L) / q(L)) to
    the log weight, and each other pair that ends with it -L - log S(L).
    """
    first, second = np.empty(n_terms), np.empty(n_terms)
    grid, level = np.empty(SEGMENTS + 1), np.empty(SEGMENTS + 2)
    mass = np.empty(SEGMENTS + 2)
    last = m - 1
    for s in range(start, stop):
        i = 0
        for k in range(1, m):
            if clocks.first[s, k] < clocks.first[s, i]:
                i = k
        j, age = clocks.partner[s, i], clocks.first[s, i]
        i, j = min(i, j), max(i, j)
        base = max(particles.ages[s, i], particles.ages[s, j])
        count = _prepare(spec, particles, s, i, j, base, first, second)
        log_mass = build_proposal(spec, 1.0, first, second, count, grid, level, mass)
        u = math.log(max(age - base, 1e-300))
        log_weight = log_mass + log_correction(
            spec, 1.0, first, second, count, u, level_at(grid, level, u), level[SEGMENTS + 1]
        )
        log_weight += _weight_of_losers(
            spec, particles, s, i, j, age, m, first, second, grid, level, mass
        )
        step.log_weight[s] = log_weight
        _record(spec, particles, step, s, i, j, age, node, m, age - now[s], first, second)
        now[s] = age
        rings = clocks.rings[s]
        if j != last:
            for k in range(m):
                rings[j, k] = rings[last, k]
                rings[k, j] = rings[k, last]
            clocks.first[s, j] = clocks.first[s, last]
            clocks.partner[s, j] = clocks.partner[s, last]
        for k in range(last):
            if k == i:
                continue
            count = _prepare(spec, particles, s, i, k, age, first, second)
            build_proposal(spec, 1.0, first, second, count, grid, level, mass)
            u, _ = draw_beyond(grid, level, mass, (1.0 - uniforms[s, k]) * mass.sum())
            rings[i, k] = age + math.exp(u)
            rings[k, i] = rings[i, k]
        _refresh(clocks, s, i, j, m)


@compiled
def _refresh(clocks: Clocks, s: int, i: int, j: int, m: int) -> None:
    """Find the first clock of each lineage after i and j became i and the last moved to j."""
    last = m - 1
    _find_first(clocks, s, i, last)
    for k in range(last):
        if k == i:
            continue
        partner = clocks.partner[s, k]
        if partner in (i, j):
            _find_first(clocks, s, k, last)
            continue
        if partner == last:
            clocks.partner[s, k] = j
        if clocks.rings[s, k, i] < clocks.first[s, k]:
            clocks.first[s, k] = clocks.rings[s, k, i]
            clocks.partner[s, k] = i
