"""Compiled kernels of the Gaussian models against the models' own formulas, and whole trees."""

from __future__ import annotations

import numpy as np
import pytest

from bhclust._kernels.compile import compiled
from bhclust._kernels.diagonal import DiagonalPart
from bhclust._kernels.full import FullPart
from bhclust._kernels.part import Member, Part
from bhclust._kernels.vectorlog import vector_log
from bhclust.agglomerate import agglomerate
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models import DiagonalGaussian, Gaussian
from bhclust.models.base import ClusterModel

MIXINGS: dict[str, Mixing] = {
    "BHC-DP": DirichletProcess(0.7),
    "BHC-γ": Constant(0.4),
    "BRT-DP": DirichletProcess(0.7),
    "BRT-γ": Constant(0.4),
    "BRT": Rose(0.4),
}


@compiled
def logs(x, out):
    for i in range(len(x)):
        out[i] = vector_log(x[i])


def test_vector_log_is_right_to_the_last_digit():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            np.exp(rng.uniform(-700, 700, 5000)),
            1 + 10 ** rng.uniform(-16, 0, 5000),
            1 - 10 ** rng.uniform(-16, -0.1, 5000),
            2.0 ** np.arange(-1022, 1024),
            np.sqrt(0.5) * (1 + np.arange(-5, 6) * 2.0**-53),
        ]
    )
    out = np.empty(len(x))
    logs(x, out)
    np.testing.assert_array_max_ulp(out, np.log(x), maxulp=2)


class Walk:
    """Merges clusters at random, by a part and by the model, and compares every score."""

    def __init__(self, model: ClusterModel, part: Part, stats: np.ndarray, seed: int) -> None:
        self.model, self.part = model, part
        self.n = len(stats)
        self.rng = np.random.default_rng(seed)
        self.stats = dict(enumerate(stats[:, None]))
        self.slot: dict[int, int] = {}
        self.free = list(range(n_slots(self.n)))
        self.live = list(range(self.n))
        self.window = np.arange(self.n)

    def run(self) -> None:
        while len(self.live) > 1:
            self.step()
            for focus in {self.live[-1], int(self.rng.choice(self.live))}:
                self.check(focus)

    def member(self, i: int) -> Member:
        return Member(True, i) if i < self.n else Member(False, self.slot[i])

    def step(self) -> None:
        i, j = (int(k) for k in self.rng.choice(self.live, 2, replace=False))
        slot = self.free.pop()
        log_f = self.part.merge(self.member(i), self.member(j), slot)
        k = max(self.stats) + 1
        self.stats[k] = self.model.merge(self.stats[i], self.stats[j])
        close(np.array([log_f]), self.model.log_marginal(self.stats[k]))
        for old in (i, j):
            self.live.remove(old)
            if old in self.slot:
                self.free.append(self.slot.pop(old))
        self.slot[k] = slot
        self.live.append(k)
        if self.rng.random() < 0.3:
            keep = np.flatnonzero(np.isin(self.window, self.live))
            self.window = self.window[keep]
            self.part.compact(keep)

    def check(self, focus: int) -> None:
        self.part.focus(self.member(focus))
        if len(self.window):
            # the window may hold items that are merged already
            start = int(self.rng.integers(len(self.window)))
            out = np.ones(len(self.window) - start)
            self.part.add_singles(start, len(self.window), out)
            close(out - 1, self.expected(focus, self.window[start:]))
        clusters = [k for k in self.live if k >= self.n and k != focus]
        if clusters:
            out = np.zeros(len(clusters))
            self.part.add_clusters(np.array([self.slot[k] for k in clusters]), out)
            close(out, self.expected(focus, clusters))

    def expected(self, focus: int, others: object) -> np.ndarray:
        rows = np.concatenate([self.stats[int(k)] for k in np.asarray(others)])
        return self.model.log_marginal(self.model.merge(self.stats[focus], rows))


def n_slots(n: int) -> int:
    return n // 2 + 2


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-10)


def table(n: int, d: int, rng: np.random.Generator, *, missing: float = 0.0) -> np.ndarray:
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d) + 3 * rng.integers(0, 3, size=(n, 1))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def walk(model: ClusterModel, X: np.ndarray, seed: int = 0) -> None:
    model = model.resolve(X)
    stats = model.suffstats(X)
    kind = DiagonalPart if isinstance(model, DiagonalGaussian) else FullPart
    Walk(model, kind(model, stats, n_slots(len(X))), stats, seed).run()


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("d", [1, 2, 5, 16, 37])
def test_diagonal_scores(d, missing):
    rng = np.random.default_rng([d, int(10 * missing)])
    for offset, n in ((0.0, 70), (1e8, 25)):
        X = table(n, d, rng, missing=missing) + offset
        walk(DiagonalGaussian(), X)
        unequal = DiagonalGaussian(
            shape=rng.choice([0.3, 2.0, 5.0], size=d), strength=rng.choice([0.1, 2.0], size=d)
        )
        walk(unequal, X)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_diagonal_products_do_not_overflow(missing):
    rng = np.random.default_rng(5)
    X = table(30, 40, rng, missing=missing)
    X[3] *= 1e60
    X[4] *= 1e-60
    walk(DiagonalGaussian(rate=1e-40, shape=0.01), X)
    walk(DiagonalGaussian(rate=1e150), X)


def test_diagonal_windows_of_several_blocks():
    rng = np.random.default_rng(6)
    for missing in (0.0, 0.1):
        X = table(700, 3, rng, missing=missing)
        model = DiagonalGaussian().resolve(X)
        stats = model.suffstats(X)
        part = DiagonalPart(model, stats, n_slots(len(X)))
        check_windows(model, part, stats)


def check_windows(model: ClusterModel, part: Part, stats: np.ndarray) -> None:
    part.merge(Member(True, 3), Member(True, 600), 0)
    union = model.merge(stats[3:4], stats[600:601])
    keep = np.delete(np.arange(len(stats)), [3, 20, 300, 600])
    for window in (np.arange(len(stats)), keep):
        if window is keep:
            part.compact(keep)
        for start, stop in ((0, 5), (0, len(window)), (250, 260), (256, 512), (511, len(window))):
            for member, focus in ((Member(True, 7), stats[7:8]), (Member(False, 0), union)):
                part.focus(member)
                out = np.zeros(stop - start)
                part.add_singles(start, stop, out)
                close(out, model.log_marginal(model.merge(focus, stats[window[start:stop]])))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 16, 35])
def test_full_scores(d):
    rng = np.random.default_rng(d)
    for offset, n in ((0.0, 60), (1e8, 20)):
        X = table(n, d, rng) @ rng.normal(size=(d, d)) + offset
        walk(Gaussian(), X)
        root = rng.normal(size=(d, d + 3))
        walk(Gaussian(dof=d + 0.3, strength=2.0, scale=root @ root.T), X)


def test_full_scores_of_small_partners():
    """Partners of 2 … 16 items by the determinant lemma, in broken batches, and of 17."""
    rng = np.random.default_rng(6)
    n, d = 400, 66
    X = table(n, d, rng)
    model = Gaussian().resolve(X)
    stats = model.suffstats(X)
    part = FullPart(model, stats, n_slots(n))
    unions, next_leaf, slot = [], 2, 0
    for size in (*range(2, 18), *rng.integers(2, 5, size=60)):
        union, member = stats[next_leaf : next_leaf + 1], Member(True, next_leaf)
        for i in range(next_leaf + 1, next_leaf + size):
            union = model.merge(union, stats[i : i + 1])
            # A slot for each half, so that a cluster never grows in its own place.
            part.merge(member, Member(True, i), slot + i % 2)
            member = Member(False, slot + i % 2)
        unions.append((member.number, union))
        next_leaf, slot = next_leaf + size, slot + 2
    slots = np.array([number for number, _ in unions])
    rows = np.concatenate([union for _, union in unions])
    for focus, statistics in ((Member(True, 0), stats[:1]), (Member(False, slots[5]), rows[5:6])):
        part.focus(focus)
        out = np.zeros(len(slots))
        part.add_clusters(slots, out)
        close(out, model.log_marginal(model.merge(statistics, rows)))


def test_full_products_do_not_overflow():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(260, 100))
    for scale in (1e-2, 1e200):
        model = Gaussian(scale=scale).resolve(X)
        stats = model.suffstats(X)
        part = FullPart(model, stats, n_slots(len(X)))
        for first, slots in ((0, (0, 1)), (130, (2, 3))):
            union = stats[first : first + 1]
            member = Member(True, first)
            for i in range(first + 1, first + 130):
                union = model.merge(union, stats[i : i + 1])
                log_f = part.merge(member, Member(True, i), slots[i % 2])
                member = Member(False, slots[i % 2])
            close(np.array([log_f]), model.log_marginal(union))
        part.focus(Member(False, 1))
        out = np.zeros(1)
        part.add_clusters(np.array([3]), out)
        everything = union
        for i in range(130):
            everything = model.merge(everything, stats[i : i + 1])
        close(out, model.log_marginal(everything))


def test_full_scores_far_from_the_prior():
    rng = np.random.default_rng(9)
    X = table(30, 6, rng)
    walk(Gaussian(mean=100.0, strength=1.0), X)
    walk(Gaussian(origin=-1e3), X)
    walk(Gaussian(mean=100.0, strength=1.0), table(40, 13, rng))


def test_full_windows_of_several_blocks():
    rng = np.random.default_rng(10)
    for d in (2, 9):
        X = table(700, d, rng)
        model = Gaussian().resolve(X)
        stats = model.suffstats(X)
        check_windows(model, FullPart(model, stats, n_slots(len(X))), stats)


def data_set(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "structureless":
        return rng.normal(size=(n, d))
    if kind == "duplicates":
        return rng.normal(size=(n // 5, d))[rng.integers(0, n // 5, size=n)]
    if kind == "twins":
        return np.repeat(5 * rng.normal(size=(n // 2, d)), 2, axis=0) + rng.normal(size=(n, d))
    centres = 5 * rng.normal(size=(5, d)) + (1e8 if kind == "offset" else 0.0)
    X = centres[rng.integers(0, 5, size=n)] + rng.normal(size=(n, d))
    if kind == "missing":
        X[rng.random(X.shape) < 0.15] = np.nan
    return X


KINDS = ["clusters", "structureless", "duplicates", "twins", "offset", "missing"]


# a full covariance takes no missing values
CASES = [(DiagonalGaussian(), kind) for kind in KINDS] + [
    (Gaussian(), kind) for kind in KINDS if kind != "missing"
]


@pytest.mark.parametrize("method", MIXINGS)
@pytest.mark.parametrize(
    ("model", "kind"), CASES, ids=[f"{type(model).__name__}-{kind}" for model, kind in CASES]
)
def test_both_engines_give_the_same_tree(model, kind, method):
    rng = np.random.default_rng([KINDS.index(kind), len(method)])
    for n, d in ((90, 2), (60, 6)):
        X = data_set(kind, n, d, rng)
        resolved = model.resolve(X)
        stats = resolved.suffstats(X)
        mixing, rose = MIXINGS[method], method.startswith("BRT")
        slow = agglomerate(resolved, stats, mixing, rose=rose, engine="numpy")
        fast = agglomerate(resolved, stats, mixing, rose=rose, engine="compiled")
        assert fast.info.engine == "compiled"
        np.testing.assert_array_equal(fast.tree.parent, slow.tree.parent)
        np.testing.assert_allclose(fast.tree.log_odds, slow.tree.log_odds, rtol=1e-9, atol=1e-9)
