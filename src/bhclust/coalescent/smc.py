"""Trees from the posterior: four sequential Monte Carlo samplers.

Three are those of Teh, Daumé and Roy (2008, section 4.1); ``smc-race`` is the O(n²) sampler of
Görür and Teh (2009), in which each pair of lineages has a clock of its own, set once when the
pair is born, and the clocks of pairs that never met are integrated out of the weight.

Durations are proposed from a piecewise log-linear fit of their local posterior. Weights are
computed against that fit, not against what it approximates, so that the evidence estimate is
unbiased whatever the error of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from bhclust._validation import BhclustError, FloatArray, IntArray, check_choice, check_count
from bhclust.coalescent._loops import log_root_factor
from bhclust.coalescent._smc_loops import (
    POST_POST,
    PRIOR_POST,
    PRIOR_PRIOR,
    Clocks,
    Particles,
    Step,
    race,
    set_clocks,
    stepwise,
)
from bhclust.coalescent.greedy import Progress
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.processes import Leaves

_STEPWISE = {
    "smc-priorprior": PRIOR_PRIOR,
    "smc-priorpost": PRIOR_POST,
    "smc-postpost": POST_POST,
}
SMC = (*_STEPWISE, "smc-race")
_ChunkCall = Callable[[int, int], None]


class _Histories(NamedTuple):
    """Mergers of all particles, each array ``(n_particles, n - 1)``."""

    left: IntArray
    right: IntArray
    age: FloatArray


def sample_trees(
    leaves: Leaves,
    method: str = "smc-race",
    *,
    n_particles: int = 100,
    rng: np.random.Generator,
    n_jobs: int = 1,
    resample_below: float = 0.5,
    leaf_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> TreePosterior:
    """Draw weighted trees from the posterior and estimate the evidence.

    Parameters
    ----------
    leaves : Leaves
        The rows of a table as a process sees them: ``process.leaves(X)``.
    method : {"smc-race", "smc-postpost", "smc-priorpost", "smc-priorprior"}
        How durations and pairs are proposed: from the race of the pairs' clocks, both from the
        local posterior, only the pair from it, or both from the prior. Costs a particle: O(n²),
        O(n³), O(n³) and O(n). The race also keeps n² clocks a particle.
    n_particles : int
    rng : numpy.random.Generator
    n_jobs : int
        Threads among which the particles are shared; the result does not depend on it.
    resample_below : float
        Particles are resampled (systematically) when their effective number falls below this
        share of all; 0 never resamples.
    leaf_names : sequence of str, optional
    progress : callable, optional
        Called with the number of mergers done and to be done.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.coalescent import Brownian, sample_trees
    >>> X = np.array([[0.0], [0.1], [3.0]])
    >>> leaves = Brownian(1.0).resolve(X).leaves(X)
    >>> posterior = sample_trees(leaves, rng=np.random.default_rng(0))
    >>> bool(posterior.clade_probability([0, 1]) > 0.8)
    True
    """
    check_choice(method, SMC, name="method", owner="sample_trees")
    count = check_count(n_particles, name="n_particles", owner="sample_trees")
    check_count(n_jobs, name="n_jobs", owner="sample_trees")
    if not 0 <= resample_below <= 1:
        raise BhclustError(
            f"sample_trees: resample_below must lie between 0 and 1, got {resample_below!r}."
        )
    sampler = _Sampler(leaves, method, count, rng, n_jobs)
    n = leaves.n_leaves
    for k in range(n - 1):
        sampler.advance(k)
        sampler.weigh()
        if n - k > 2 and sampler.effective_size() < resample_below * count:
            sampler.resample(k)
        if progress is not None:
            progress(k + 1, n - 1)
    return sampler.result(leaf_names)


class _Sampler:
    """The state of all particles between two mergers."""

    def __init__(
        self,
        leaves: Leaves,
        method: str,
        n_particles: int,
        rng: np.random.Generator,
        n_jobs: int,
    ) -> None:
        n = leaves.n_leaves
        self.leaves, self.method, self.rng, self.n_jobs = leaves, method, rng, n_jobs
        self.count = n_particles
        self.now = np.zeros(n_particles)
        self.particles = Particles(
            np.repeat(leaves.messages[None], n_particles, axis=0),
            np.repeat(leaves.spreads[None], n_particles, axis=0),
            np.zeros((n_particles, n)),
            np.tile(np.arange(n), (n_particles, 1)),
        )
        shape = (n_particles, n - 1)
        self.histories = _Histories(
            np.empty(shape, np.intp), np.empty(shape, np.intp), np.empty(shape)
        )
        self.log_weights = np.zeros(n_particles)
        self.log_joints = np.full(n_particles, leaves.log_offset)
        self.log_evidence = leaves.log_offset
        self.effective_sizes: list[float] = []
        self.step = Step(
            np.empty(n_particles, np.int64),
            np.empty(n_particles, np.int64),
            *(np.zeros(n_particles) for _ in range(3)),
        )
        self.resets_left = n * n
        self.clocks: Clocks | None = None
        if method == "smc-race":
            self.clocks = Clocks(
                np.full((n_particles, n, n), np.inf),
                np.full((n_particles, n), np.inf),
                np.full((n_particles, n), -1, dtype=np.int64),
            )
            self._set_clocks(n, same=True)

    def _share(self, call: _ChunkCall) -> None:
        """Run a compiled loop on ranges of particles, one range a thread."""
        if self.n_jobs == 1:
            call(0, self.count)
            return
        edges = np.linspace(0, self.count, min(self.n_jobs, self.count) + 1).astype(int)
        with ThreadPoolExecutor(self.n_jobs) as pool:
            list(pool.map(call, edges[:-1].tolist(), edges[1:].tolist()))

    def _set_clocks(self, m: int, *, same: bool) -> None:
        assert self.clocks is not None
        clocks = self.clocks
        for i in range(1, m):
            uniforms = self.rng.random((self.count, i))

            def call(start: int, stop: int, i: int = i, uniforms: Any = uniforms) -> None:
                set_clocks(
                    self.leaves.spec, self.particles, clocks, self.now, i, m, uniforms,
                    start, stop, self.leaves.n_terms, same,
                )  # fmt: skip

            self._share(call)

    def advance(self, k: int) -> None:
        """Make merger k in every particle."""
        n, n_terms, spec = self.leaves.n_leaves, self.leaves.n_terms, self.leaves.spec
        m, node = n - k, n + k
        clocks = self.clocks
        if clocks is not None:
            uniforms = self.rng.random((self.count, m))

            def call(start: int, stop: int) -> None:
                race(
                    spec, self.particles, clocks, self.step, self.now, uniforms,
                    node, m, start, stop, n_terms,
                )  # fmt: skip
        else:
            method = _STEPWISE[self.method]
            uniforms = self.rng.random((self.count, 2))

            def call(start: int, stop: int) -> None:
                stepwise(
                    spec, self.particles, self.step, self.now, method, uniforms,
                    node, m, start, stop, n_terms,
                )  # fmt: skip

        self._share(call)
        self.histories.left[:, k] = self.step.left
        self.histories.right[:, k] = self.step.right
        self.histories.age[:, k] = self.step.age

    def weigh(self) -> None:
        """Take over the weights of the last merger."""
        self.log_weights += self.step.log_weight
        self.log_joints += self.step.log_joint
        if not np.isfinite(self.log_weights).any():
            raise BhclustError(
                f"{self.method}: every particle has weight zero; use more particles, or "
                "inference='smc-race', whose proposals follow the data."
            )
        self.effective_sizes.append(self.effective_size())

    def effective_size(self) -> float:
        """Effective number of particles, (sum w)² / sum w²."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return float(weights.sum() ** 2 / (weights**2).sum())

    def _absorb_weights(self) -> FloatArray:
        """Move the mean weight into the evidence; return normalised weights."""
        top = self.log_weights.max()
        weights = np.exp(self.log_weights - top)
        self.log_evidence += top + math.log(weights.mean())
        return np.asarray(weights / weights.sum())

    def resample(self, k: int) -> None:
        """Draw particles anew in proportion to their weights, all with weight one."""
        weights = self._absorb_weights()
        points = (self.rng.random() + np.arange(self.count)) / self.count
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), points), self.count - 1)
        moved = (*self.particles, *self.histories, self.now, self.log_joints)
        for array in moved:
            array[:] = array[chosen]
        self.log_weights = np.zeros(self.count)
        if self.clocks is None:
            return
        for array in self.clocks:
            array[:] = array[chosen]
        # Copies of a particle had better not race with the same clocks. Given that they have not
        # rung yet clocks follow their proposals still, so they may be set anew; but only as often
        # as leaves the whole race at O(n²).
        m = self.leaves.n_leaves - k - 1
        if m * (m - 1) // 2 <= self.resets_left:
            self.resets_left -= m * (m - 1) // 2
            self._set_clocks(m, same=False)

    def result(self, leaf_names: Sequence[str] | None) -> TreePosterior:
        """Return the weighted trees."""
        if self.leaves.n_leaves == 1:
            leaves = self.leaves
            at_root = log_root_factor(leaves.spec, leaves.messages[0], leaves.spreads[0])
            self.log_weights += at_root
            self.log_joints += at_root
        weights = self._absorb_weights()
        return TreePosterior.of_merges(
            self.histories.left,
            self.histories.right,
            self.histories.age,
            weights=weights,
            log_joints=self.log_joints,
            log_evidence=self.log_evidence,
            effective_sizes=np.array(self.effective_sizes),
            leaf_names=leaf_names,
        )
