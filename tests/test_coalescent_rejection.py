"""Greedy-Rate1's rejection of pairs: the same trees, no pair that matters, nearly all others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bhclust.coalescent import Brownian, Mutation
from bhclust.coalescent._greedy_loops import pair_key, rounded
from bhclust.coalescent._loops import merge_pair
from bhclust.coalescent._rejection import (
    LATER,
    Limits,
    place_of,
    put_deviation,
    rejection,
    screen,
)
from bhclust.coalescent.greedy import _rate1


def codes(rng, n, d, n_states, missing=0.0, noise=1.0):
    """Rows that copy one of a few and change some entries."""
    parents = rng.integers(n_states, size=(max(2, n // 8), d))
    X = parents[rng.integers(len(parents), size=n)]
    X = np.where(rng.random(X.shape) < noise, rng.integers(n_states, size=X.shape), X)
    return np.where(rng.random(X.shape) < missing, np.nan, X.astype(float))


def mixed_sites(rng):
    X = codes(rng, 90, 12, 2, 0.2, 0.3)
    X[:, 5:8] = codes(rng, 90, 3, 7, 0.2, 0.3)
    return Mutation(rng.gamma(2.0, 0.5, 12)).resolve(X), X


def rare_states(rng):
    X = codes(rng, 60, 6, 3, 0.1, 0.2)
    X[0, 0] = 5.0
    extreme = [rng.dirichlet([1, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2]) + 1e-7 for _ in range(6)]
    equilibrium = [q / q.sum() for q in extreme]
    return Mutation(np.geomspace(0.01, 20, 6), equilibrium).resolve(X), X


def holes(rng, groups=0.0):
    X = rng.normal(size=(120, 5)) + groups * rng.normal(size=(6, 5))[rng.integers(6, size=120)]
    X[rng.random(X.shape) < 0.25] = np.nan
    return Brownian().resolve(X), X


def sites(rng, *table, rate=None):
    X = codes(rng, *table)
    return Mutation(rate).resolve(X), X


TABLES = {
    "binary": lambda rng: sites(rng, 150, 20, 2, 0.0, 0.3),
    "binary without structure": lambda rng: sites(rng, 80, 30, 2),
    "many states": lambda rng: sites(rng, 120, 15, 9, 0.0, 0.2),
    "few values known": lambda rng: sites(rng, 120, 20, 4, 0.85, 0.3),
    "identical rows": lambda rng: sites(rng, 100, 5, 2, 0.0, 0.05),
    "one column": lambda rng: sites(rng, 40, 1, 3, 0.1, 0.5),
    "slow": lambda rng: sites(rng, 60, 10, 3, 0.1, 0.2, rate=0.02),
    "fast": lambda rng: sites(rng, 60, 10, 3, 0.1, 0.2, rate=90.0),
    "unequal rates": mixed_sites,
    "rare states": rare_states,
    "holes": holes,
    "holes in groups": lambda rng: holes(rng, 6.0),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TABLES)
def test_the_tree_is_that_without_rejection(name, seed):
    process, X = TABLES[name](np.random.default_rng(seed))
    leaves = process.leaves(X)
    plain, early = _rate1(leaves, None, reject_early=False), _rate1(leaves, None)
    for found, expected in zip(early, plain, strict=True):
        np.testing.assert_array_equal(found, expected)


def every_pair_at_every_step(leaves):
    """Greedy-Rate1 by its definition: the best key of all pairs, then the lowest pair."""
    work = np.empty((2, leaves.n_terms))
    messages, spreads = list(leaves.messages.copy()), list(leaves.spreads.copy())
    ages, live, merges = [0.0] * leaves.n_leaves, list(range(leaves.n_leaves)), []
    keys = {}
    while len(live) > 1:
        for j, high in enumerate(live):
            for low in live[:j]:
                if (low, high) not in keys:
                    pair = [low, high]
                    rows = (np.array([of[k] for k in pair]) for of in (messages, spreads, ages))
                    age, gain = pair_key(leaves.spec, *rows, 0, 1, *work)
                    keys[low, high] = age, -gain
        found = {(low, high): keys[low, high] for j, high in enumerate(live) for low in live[:j]}
        low, high = min(found, key=lambda pair: (found[pair], pair))
        age = found[low, high][0]
        message, spread = messages[low].copy(), spreads[low].copy()
        merge_pair(
            leaves.spec, message, spread, ages[low], messages[high], spreads[high], ages[high],
            age, message, spread,
        )  # fmt: skip
        merges.append((low, high, age))
        live = [node for node in live if node not in (low, high)] + [len(messages)]
        messages.append(message)
        spreads.append(spread)
        ages.append(age)
    return merges


@pytest.mark.parametrize("name", [*TABLES, "equal rows"])
def test_the_tree_is_that_of_the_definition(name):
    """Also where equal rows make nearly every choice a tie."""
    rng = np.random.default_rng(5)
    if name == "equal rows":
        process, X = sites(rng, 45, 2, 2, 0.1, 0.2)
    else:
        process, X = TABLES[name](rng)
    leaves = process.leaves(X[:45])
    found = [tuple(merge) for merge in zip(*_rate1(leaves, None), strict=True)]
    assert found == every_pair_at_every_step(leaves)


class Lineages:
    """Lineages of different ages, some of them rows, with all their pairs' keys."""

    def __init__(self, leaves, rng, n_merges, tempo):
        n = leaves.n_leaves
        self.spec = leaves.spec
        self.messages, self.spreads = leaves.messages.copy(), leaves.spreads.copy()
        self.ages = np.zeros(n)
        for _ in range(n_merges):
            i, j = rng.choice(n, 2, replace=False)
            # At once, different rows cannot meet; ages of nodes are rounded, as keys are.
            base = max(self.ages[i], self.ages[j]) + 1e-3
            age = rounded(base + tempo * rng.exponential() * rng.integers(2))
            merge_pair(
                self.spec, self.messages[i], self.spreads[i], self.ages[i], self.messages[j],
                self.spreads[j], self.ages[j], age, self.messages[i], self.spreads[i],
            )  # fmt: skip
            self.ages[i] = age
        self.test = rejection(self.spec, self.messages, self.spreads)
        if len(self.test.deviations):
            for slot, (message, age) in enumerate(zip(self.messages, self.ages, strict=True)):
                put_deviation(self.spec, self.test, slot, message, age)
        self.work = np.empty((2, leaves.n_terms))
        self.keys = np.array([[self.key(i, j) for j in range(n)] for i in range(n)])

    def key(self, i, j):
        if i == j:
            return np.inf, -np.inf
        return pair_key(self.spec, self.messages, self.spreads, self.ages, i, j, *self.work)

    def kept(self, slot, ages, gains, for_both):
        n = len(self.ages)
        places = np.array([place_of(age * (1 + LATER)) for age in ages])
        out = np.empty(n, np.intp)
        count = screen(
            self.spec, self.test, self.messages, self.spreads, self.ages, slot, 0, n,
            Limits(ages, gains, places), for_both, self.work[0], out,
        )  # fmt: skip
        return out[:count].tolist()


def comes_after(key, limit):
    return key[0] > limit[0] or (key[0] == limit[0] and key[1] < limit[1])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(TABLES)),
    tempo=st.sampled_from([0.0, 0.01, 0.3, 3.0, 50.0]),
)
def test_what_is_rejected_comes_after_the_limit(seed, name, tempo):
    """Limits are the keys of pairs, so that ties and near ties are common."""
    rng = np.random.default_rng(seed)
    process, X = TABLES[name](rng)
    rows = rng.choice(len(X), 14, replace=False)
    state = Lineages(process.leaves(X[rows]), rng, int(rng.integers(12)), tempo)
    n = len(rows)
    for slot in range(n):
        limits = state.keys[np.arange(n), rng.integers(n, size=n)]
        ages, gains = limits[:, 0].copy(), limits[:, 1].copy()
        ages *= rng.choice([1.0, 1.0 - 1e-9, 1.0 + 1e-9, 0.7], size=n)
        for for_both in (False, True):
            kept = state.kept(slot, ages, gains, for_both)
            for j in set(range(n)) - set(kept) - {slot}:
                key = state.keys[slot, j]
                assert comes_after(key, (ages[slot], gains[slot]))
                if for_both:
                    assert comes_after(key, (ages[j], gains[j]))


@pytest.mark.parametrize(
    ("name", "share"),
    [("binary", 0.9), ("many states", 0.9), ("few values known", 0.8), ("unequal rates", 0.9),
     ("holes", 0.9), ("holes in groups", 0.9)],
)  # fmt: skip
def test_nearly_all_pairs_that_do_not_matter_are_rejected(name, share):
    rng = np.random.default_rng(0)
    process, X = TABLES[name](rng)
    state = Lineages(process.leaves(X), rng, 20, 0.1)
    n = len(X)
    best = [min(row, key=lambda key: (key[0], -key[1])) for row in state.keys.tolist()]
    ages, gains = (np.array(column) for column in zip(*best, strict=True))
    n_kept = sum(len(set(state.kept(slot, ages, gains, True)) - {slot}) for slot in range(n))
    assert n_kept < (1 - share) * n * (n - 1)


def test_what_overflows_is_not_rejected():
    """Messages of fast sites as if at age 0 are beyond all numbers once lineages are old."""
    rng = np.random.default_rng(1)
    X = codes(rng, 12, 4, 3, 0.0, 0.3)
    state = Lineages(Mutation([100.0, 1.0, 1.0, 0.1]).resolve(X).leaves(X), rng, 40, 10.0)
    assert not np.isfinite(state.test.deviations).all()
    ages, gains = np.full(12, 1.01 * state.ages.max()), np.zeros(12)
    for slot in range(12):
        rejected = set(range(12)) - set(state.kept(slot, ages, gains, True)) - {slot}
        assert all(state.keys[slot, j][0] > ages[0] for j in rejected)
