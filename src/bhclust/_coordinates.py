"""Hyperparameters as a vector of free numbers, with weak priors that keep them finite.

Each learned hyperparameter moves by a factor (or a shift) from where it started, its *anchor*;
the logarithm of the factor is the free number. It has a normal prior around zero and hard bounds,
so that nothing runs to infinity where the evidence is flat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from bhclust._pinning import pinning
from bhclust._validation import BhclustError, FloatArray, listed
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models.base import ClusterModel, Hyperparameter

# Standard deviations of the priors of log factors: a shared factor is e^±3 with two thirds of its
# mass, a feature's own deviation from the shared factor e^±1.
SHARED_DEVIATION = 3.0
OWN_DEVIATION = 1.0

# Hard bounds, in standard deviations.
_BOUND = 3.0

# Hyperparameters that keep their ratio, and so the prior mean, when their factor is shared: the
# prior counts of ones and zeros; shape and rate of a prior rate.
_TIED = {frozenset(("a", "b")), frozenset(("shape", "rate"))}


class Block(ABC):
    """Some free numbers and the hyperparameters they move."""

    #: standard deviation of the prior of each free number
    deviation: FloatArray

    @abstractmethod
    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        """Return the hyperparameters at the free numbers."""

    @abstractmethod
    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        """Return the gradient by the free numbers from that by the hyperparameters."""


class SharedFactor(Block):
    """One factor for every entry of one or several positive arrays or covariances."""

    def __init__(self, anchors: Mapping[str, FloatArray]) -> None:
        self.anchors = dict(anchors)
        self.deviation = np.array([SHARED_DEVIATION])

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        return {name: anchor * np.exp(free[0]) for name, anchor in self.anchors.items()}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        moved = self.values(free)
        return np.array([sum(float(np.sum(moved[name] * gradient[name])) for name in moved)])


class OwnFactors(Block):
    """A shared factor times one factor an entry of a positive array."""

    def __init__(self, name: str, anchor: FloatArray) -> None:
        self.name, self.anchor = name, anchor
        own = np.full(anchor.size if anchor.size > 1 else 0, OWN_DEVIATION)
        self.deviation = np.concatenate([[SHARED_DEVIATION], own])

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        own = free[1:].reshape(self.anchor.shape) if len(free) > 1 else 0.0
        return {self.name: self.anchor * np.exp(free[0] + own)}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        slopes = np.ravel(self.values(free)[self.name] * gradient[self.name])
        return np.concatenate([[slopes.sum()], slopes if len(free) > 1 else []])


class Shift(Block):
    """A move of real numbers, in units of a scale."""

    def __init__(self, name: str, anchor: FloatArray, scale: FloatArray) -> None:
        self.name, self.anchor, self.scale = name, anchor, np.broadcast_to(scale, anchor.shape)
        self.deviation = np.full(anchor.size, OWN_DEVIATION)

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        return {self.name: self.anchor + self.scale * free.reshape(self.anchor.shape)}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        return np.ravel(self.scale * gradient[self.name])


class Excess(Block):
    """A factor of how far a number is above its lowest value (degrees of freedom)."""

    def __init__(self, name: str, anchor: FloatArray, lowest: float) -> None:
        self.name, self.anchor, self.lowest = name, anchor, lowest
        self.deviation = np.array([SHARED_DEVIATION])

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        return {self.name: self.lowest + (self.anchor - self.lowest) * np.exp(free[0])}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        excess = self.values(free)[self.name] - self.lowest
        return np.array([float(np.sum(excess * gradient[self.name]))])


class CovarianceFactor(Block):
    """A whole covariance, ``S = C M Mᵀ Cᵀ`` with C the anchor's Cholesky factor.

    M is lower triangular with the exponentials of free numbers on its diagonal, so S is positive
    definite wherever the free numbers are.
    """

    def __init__(self, name: str, anchor: FloatArray) -> None:
        self.name = name
        self.factor = np.linalg.cholesky(anchor)
        self.rows, self.columns = np.tril_indices(len(anchor))
        on_diagonal = self.rows == self.columns
        self.diagonal = np.flatnonzero(on_diagonal)
        self.deviation = np.where(on_diagonal, SHARED_DEVIATION, OWN_DEVIATION)

    def _triangle(self, free: FloatArray) -> FloatArray:
        entries = free.copy()
        entries[self.diagonal] = np.exp(free[self.diagonal] / 2)
        out = np.zeros_like(self.factor)
        out[self.rows, self.columns] = entries
        return out

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        root = self.factor @ self._triangle(free)
        return {self.name: root @ root.T}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        triangle = self._triangle(free)
        slopes = 2 * self.factor.T @ gradient[self.name] @ self.factor @ triangle
        out = slopes[self.rows, self.columns]
        out[self.diagonal] *= triangle[self.rows, self.columns][self.diagonal] / 2
        return np.asarray(out)


class Chance(Block):
    """A probability, moved in log odds."""

    def __init__(self, name: str, anchor: float) -> None:
        self.name, self.anchor = name, float(logit(anchor))
        self.deviation = np.array([SHARED_DEVIATION])

    def values(self, free: FloatArray) -> dict[str, FloatArray]:
        return {self.name: np.asarray(expit(self.anchor + free[0]))}

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        chance = self.values(free)[self.name]
        return np.array([float(chance * (1 - chance) * gradient[self.name])])


class Prior(NamedTuple):
    """A model and a mixing prior: everything that hyperparameters belong to."""

    model: ClusterModel
    mixing: Mixing


class Coordinates:
    """The free numbers of all that is learned; zero is the anchor.

    Parameters
    ----------
    anchor : Prior
        Where the hyperparameters start, and where their priors are centred.
    names : collection of str, optional
        What to learn, among the model's hyperparameters and "alpha" or "gamma"; by default
        everything if ``per_feature``, else everything that can share a factor. The hyperparameter
        "rate" of the second part of a `Mixed` is "1.rate"; "rate" stands for those of all parts.
    per_feature : bool
        Whether every entry of an array has a number of its own, or one factor moves them all.
    n_items : float
        Rows that the centre of the prior was read off, for what `pinning` charges for it; with 0
        it costs nothing.
    toll : float
        What leaving the anchor costs, in nats: how much better the evidence must be before
        anything moves at all.
    """

    def __init__(
        self,
        anchor: Prior,
        names: Collection[str] | None = None,
        *,
        per_feature: bool = False,
        n_items: float = 0.0,
        toll: float = 0.0,
    ) -> None:
        self.anchor = anchor
        self.n_items = n_items
        self.toll = toll
        self._start_cost = pinning(anchor.model, n_items).cost
        specs = {spec.name: spec for spec in anchor.model.free()}
        mixing_name = "alpha" if isinstance(anchor.mixing, DirichletProcess) else "gamma"
        chosen = _chosen(specs, mixing_name, names, per_feature)
        make = _own_blocks if per_feature else _shared_blocks
        self.blocks = make(anchor.model, [specs[name] for name in chosen if name in specs])
        if mixing_name in chosen:
            self.blocks.append(_mixing_block(anchor.mixing))
        self.names = chosen
        deviations = [block.deviation for block in self.blocks]
        self.deviation = np.concatenate(deviations) if deviations else np.zeros(0)
        self.ends = np.cumsum([len(deviation) for deviation in deviations])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of the free numbers."""
        return [(-_BOUND * deviation, _BOUND * deviation) for deviation in self.deviation]

    def prior_at(self, free: FloatArray) -> Prior:
        """Return the model and the mixing prior at the free numbers."""
        values: dict[str, FloatArray] = {}
        for block, part in zip(self.blocks, self._parts(free), strict=True):
            values.update(block.values(part))
        mixing = self.anchor.mixing
        if isinstance(mixing, DirichletProcess) and "alpha" in values:
            mixing = replace(mixing, alpha=float(values.pop("alpha")))
        elif isinstance(mixing, (Constant, Rose)) and "gamma" in values:
            mixing = replace(mixing, gamma=float(values.pop("gamma")))
        model = self.anchor.model
        if not values:
            return Prior(model, mixing)
        # A hyperparameter without axes is a plain number to its model.
        plain = {name: array if array.ndim else float(array) for name, array in values.items()}
        return Prior(model.with_hyperparameters(plain), mixing)

    def pull_back(self, free: FloatArray, gradient: Mapping[str, FloatArray]) -> FloatArray:
        """Return the gradient by the free numbers from that by the hyperparameters."""
        parts = zip(self.blocks, self._parts(free), strict=True)
        slopes = [block.pull_back(part, gradient) for block, part in parts]
        return np.concatenate(slopes) if slopes else np.zeros(0)

    def log_prior(self, free: FloatArray) -> float:
        """Return the log prior of the free numbers, 0 at the anchor."""
        cost = pinning(self.prior_at(free).model, self.n_items).cost - self._start_cost
        return float(-0.5 * np.sum(np.square(free / self.deviation)) - cost)

    def toll_at(self, free: FloatArray) -> float:
        """Return what it costs to be at the free numbers and not at the anchor.

        The optimiser does not see it: a step off the anchor would never seem to pay.
        """
        return self.toll if np.any(free) else 0.0

    def log_prior_gradient(self, free: FloatArray) -> FloatArray:
        """Return the gradient of `log_prior`."""
        slopes = pinning(self.prior_at(free).model, self.n_items).slopes
        every = {
            spec.name: np.zeros(np.shape(self.anchor.model.hyperparameter(spec.name)))
            for spec in self.anchor.model.free()
        }
        mixing = {"alpha": np.zeros(()), "gamma": np.zeros(())}
        pulled = self.pull_back(free, {**every, **mixing, **slopes})
        return np.asarray(-free / np.square(self.deviation) - pulled)

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Draw free numbers for a restart around the anchor, a third as wide as their prior."""
        return rng.normal(size=len(self.deviation)) * self.deviation / 3

    def _parts(self, free: FloatArray) -> list[FloatArray]:
        return np.split(free, self.ends[:-1]) if self.blocks else []


def _chosen(
    specs: Mapping[str, Hyperparameter],
    mixing_name: str,
    names: Collection[str] | None,
    per_feature: bool,
) -> tuple[str, ...]:
    """Return the names to learn, in the model's order."""
    known = (*specs, mixing_name)
    if names is None:
        # One common shift of all columns means nothing: reals need numbers of their own.
        return tuple(
            name
            for name in known
            if per_feature or name == mixing_name or specs[name].domain != "real"
        )
    wanted = {name for name in known if name in names or _inner(name) in names}
    unknown = sorted(set(names) - wanted - {_inner(name) for name in wanted})
    if unknown:
        raise BhclustError(
            f"learn: {listed(unknown)} cannot be learned here; the names are {listed(known, 20)}."
        )
    return tuple(name for name in known if name in wanted)


def _inner(name: str) -> str:
    """Return the name inside its part of a product: "rate" for "1.rate"."""
    return name.rpartition(".")[2]


def _part(name: str) -> str:
    """Return the part of a product that a name belongs to: "1" for "1.rate"."""
    return name.rpartition(".")[0]


def _shared_blocks(model: ClusterModel, specs: Sequence[Hyperparameter]) -> list[Block]:
    siblings: dict[str, set[str]] = {}
    for spec in model.free():
        siblings.setdefault(_part(spec.name), set()).add(_inner(spec.name))
    groups: dict[str, list[Hyperparameter]] = {}
    for spec in specs:
        part = _part(spec.name)
        tied = frozenset(siblings[part]) in _TIED
        groups.setdefault(f"{part}." if tied else spec.name, []).append(spec)
    out: list[Block] = []
    for members in groups.values():
        if members[0].domain in ("positive", "covariance"):
            out.append(SharedFactor({s.name: model.hyperparameter(s.name) for s in members}))
        else:
            out.append(_own_block(model, members[0]))
    return out


def _own_blocks(model: ClusterModel, specs: Sequence[Hyperparameter]) -> list[Block]:
    return [_own_block(model, spec) for spec in specs]


def _own_block(model: ClusterModel, spec: Hyperparameter) -> Block:
    anchor = model.hyperparameter(spec.name)
    if spec.domain == "real":
        return Shift(spec.name, anchor, _location_scale(model, spec.name))
    if spec.domain == "degrees_of_freedom":
        return Excess(spec.name, anchor, _lowest_dof(model, spec.name))
    if spec.domain == "covariance":
        return CovarianceFactor(spec.name, anchor)
    return OwnFactors(spec.name, anchor)


def _mixing_block(mixing: Mixing) -> Block:
    if isinstance(mixing, DirichletProcess):
        return SharedFactor({"alpha": np.asarray(mixing.alpha)})
    if isinstance(mixing, (Constant, Rose)):
        return Chance("gamma", mixing.gamma)
    raise BhclustError(f"nothing is known to learn about the mixing prior {mixing!r}.")


def _location_scale(model: ClusterModel, name: str) -> FloatArray:
    """Return the standard deviation of a cluster's mean under the prior, as a unit of moves."""
    values = {
        _inner(spec.name): model.hyperparameter(spec.name)
        for spec in model.free()
        if _part(spec.name) == _part(name)
    }
    if {"strength", "shape", "rate"} <= values.keys():
        return np.sqrt(values["rate"] / (values["shape"] * values["strength"]))
    if {"strength", "dof", "scale"} <= values.keys():
        return np.sqrt(np.diagonal(values["scale"]) / (values["dof"] * values["strength"]))
    return np.maximum(np.abs(model.hyperparameter(name)), 1.0)


def _lowest_dof(model: ClusterModel, name: str) -> float:
    """Return d - 1, where d is the size of the covariance that the degrees of freedom belong to."""
    sizes = [
        len(model.hyperparameter(spec.name))
        for spec in model.free()
        if spec.domain == "covariance" and _part(spec.name) == _part(name)
    ]
    return max(sizes, default=1) - 1.0
