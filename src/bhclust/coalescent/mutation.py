"""Mutation along the branches: tables of categories and of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bhclust._validation import (
    BhclustError,
    FloatArray,
    broadcast_hyperparameter,
    check_matrix,
    check_n_columns,
)
from bhclust.coalescent._loops import SITES, Int64Array, PairSpec
from bhclust.coalescent._tree_loops import (
    all_sites_log_likelihood,
    sites_downward,
    sites_upward,
)
from bhclust.coalescent.processes import Leaves, Process
from bhclust.models.base import Column, Kind
from bhclust.tree import Tree

_OWNER = "Mutation"

#: what is added to each state's count before frequencies are taken for an equilibrium
SMOOTHING = 0.5


class SiteMessages(NamedTuple):
    """Messages of a whole tree, all states of all sites in a row.

    ``up[i]`` and ``down[i]`` are ``(n_nodes, width)``, normalised to ``sum_k q_k M_k = 1``: what
    the leaves below say about the state at the node, and what all others say about the state at
    its parent. ``log_z`` is the log likelihood ratio of each node and site, 0 at leaves.
    """

    up: FloatArray
    down: FloatArray
    log_z: FloatArray


class SiteGradient(NamedTuple):
    """Log likelihood of each site and its derivatives; ``by_equilibrium`` is flat over states."""

    values: FloatArray
    by_rate: FloatArray
    by_equilibrium: FloatArray


@dataclass(frozen=True, eq=False)
class Mutation(Process):
    """Categories that mutate: at a rate λ a site forgets its state and draws one anew.

    Over a time t a site keeps its state with probability e^{−λt} and else takes one from its
    equilibrium distribution, independently of the other sites. Missing entries are exact.

    Parameters
    ----------
    rate : float or array of shape (d,), optional
        Mutation rate of each site. ``None``: 1, to be learned.
    equilibrium : sequence of d arrays, or array of shape (d, K), optional
        Equilibrium distribution of each site. ``None``: smoothed frequencies of the table.
    n_states : sequence of d ints, optional
        Number of states of each site; by default what the table or its columns tell, at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tree import Tree
    >>> from bhclust.coalescent import Mutation
    >>> X = np.array([[1.0, 0.0], [1.0, np.nan]])
    >>> tree = Tree([2, 2, -1], n_leaves=2, height=[0, 0, 0.5])
    >>> process = Mutation(rate=1.0, equilibrium=[[0.5, 0.5], [0.9, 0.1]]).resolve(X)
    >>> expected = 0.5 * (np.exp(-1) + (1 - np.exp(-1)) * 0.5) * 0.9
    >>> bool(np.isclose(process.log_likelihood(tree, X), np.log(expected)))
    True
    """

    rate: float | FloatArray | None = None
    equilibrium: Any = None
    n_states: Sequence[int] | None = None

    kinds: ClassVar[tuple[Kind, ...]] = ("binary", "categorical")

    # -- hyperparameters -------------------------------------------------------------------------

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Take the number of states of each site from the table's categories."""
        if self.n_states is not None:
            return self
        return replace(self, n_states=tuple(max(2, len(c.categories)) for c in columns))

    def resolve(self, X: FloatArray) -> Self:
        """Fill the hyperparameters that are ``None`` from a table; a new object."""
        X = check_matrix(X, owner=_OWNER)
        _check_codes(X)
        n_columns = X.shape[1]
        n_states = self._count_states(X)
        equilibrium = self.equilibrium
        if equilibrium is None:
            equilibrium = tuple(
                _frequencies(column, k) for column, k in zip(X.T, n_states, strict=True)
            )
        else:
            equilibrium = _checked_equilibrium(equilibrium, n_states)
        rate = 1.0 if self.rate is None else self.rate
        rates = broadcast_hyperparameter(rate, (n_columns,), name="rate", owner=_OWNER)
        return replace(self, rate=rates, equilibrium=equilibrium, n_states=n_states)

    def _count_states(self, X: FloatArray) -> tuple[int, ...]:
        highest = np.where(np.isnan(X), -1, X).max(axis=0, initial=-1)
        if self.equilibrium is not None and self.n_states is None:
            given: Sequence[int] = [len(q) for q in self.equilibrium]
        elif self.n_states is not None:
            given = self.n_states
        else:
            given = [max(2, int(code) + 1) for code in highest]
        if len(given) != X.shape[1]:
            raise BhclustError(
                f"{_OWNER}: the table has {X.shape[1]} column(s), but equilibrium or n_states is "
                f"for {len(given)}."
            )
        for j, (k, code) in enumerate(zip(given, highest, strict=True)):
            if code >= k:
                raise BhclustError(
                    f"{_OWNER}: column {j} holds the code {int(code)}, but has only {k} states; "
                    "give it more states or leave n_states and equilibrium out."
                )
        return tuple(int(k) for k in given)

    def _resolved(self) -> Self:
        if self.rate is None or self.equilibrium is None or self.n_states is None:
            raise BhclustError(f"{_OWNER} is not resolved: call resolve(X) on it first.")
        return self

    @property
    def rates(self) -> FloatArray:
        """Rate of each site."""
        return np.asarray(self._resolved().rate, dtype=np.float64)

    @property
    def offsets(self) -> Int64Array:
        """Where the states of each site begin in a flat row of all states."""
        return np.concatenate([[0], np.cumsum(self._resolved().n_states or ())]).astype(np.int64)

    @property
    def flat_equilibrium(self) -> FloatArray:
        """Equilibrium probabilities of all sites in a row."""
        return np.concatenate([np.asarray(q) for q in self._resolved().equilibrium])

    def split(self, flat: FloatArray) -> list[FloatArray]:
        """Cut the last axis of an array over all states into one array a site."""
        return np.split(flat, self.offsets[1:-1], axis=-1)

    # -- messages --------------------------------------------------------------------------------

    def codes(self, X: FloatArray) -> Int64Array:
        """Return a table as whole numbers, −1 for missing."""
        self._resolved()
        X = check_matrix(X, owner=_OWNER)
        check_n_columns(X, len(self.rates), owner=_OWNER)
        _check_codes(X)
        self._count_states(X)
        return np.where(np.isnan(X), -1, X).astype(np.int64)

    def _leaf_messages(self, codes: Int64Array) -> FloatArray:
        offsets, q = self.offsets, self.flat_equilibrium
        out = np.ones((len(codes), len(q)))
        for d in range(codes.shape[1]):
            seen = np.flatnonzero(codes[:, d] >= 0)
            place = offsets[d] + codes[seen, d]
            out[seen, offsets[d] : offsets[d + 1]] = 0.0
            out[seen, place] = 1.0 / q[place]
        return out

    def _log_offset(self, codes: Int64Array) -> float:
        log_q = np.log(self.flat_equilibrium)
        places = self.offsets[:-1] + np.maximum(codes, 0)
        return float(np.where(codes >= 0, log_q[places], 0.0).sum())

    def leaves(self, X: FloatArray) -> Leaves:
        """Return the messages of the rows of a table."""
        codes = self.codes(X)
        spec = PairSpec(
            kind=SITES,
            n_columns=codes.shape[1],
            offsets=self.offsets,
            equilibrium=self.flat_equilibrium,
            rates=self.rates,
            root_mean=np.zeros(1),
            root_variance=np.inf,
        )
        spreads = np.zeros((len(codes), 1))
        return Leaves(self._leaf_messages(codes), spreads, spec, self._log_offset(codes))

    def messages(self, tree: Tree, X: FloatArray) -> SiteMessages:
        """Return the messages upwards and downwards at every node."""
        codes = self.codes(X)
        if len(codes) != tree.n_leaves:
            raise BhclustError(
                f"the tree has {tree.n_leaves} leaves and the table {len(codes)} rows: pass the "
                "table that the tree was made for."
            )
        offsets, q = self.offsets, self.flat_equilibrium
        up = np.ones((tree.n_nodes, len(q)))
        up[: tree.n_leaves] = self._leaf_messages(codes)
        down = np.ones_like(up)
        log_z = np.zeros((tree.n_nodes, codes.shape[1]))
        parent, age = tree.parent, tree.height
        sites_upward(parent, age, self.rates, q, offsets, tree.n_leaves, up, log_z)
        sites_downward(
            parent, tree.child_ptr, tree.child_index, age, self.rates, q, offsets, up, down
        )
        return SiteMessages(up, down, log_z)

    def log_likelihood(self, tree: Tree, X: FloatArray) -> float:
        """Return log p(X | tree)."""
        return float(self.site_gradient(tree, X).values.sum())

    def site_gradient(self, tree: Tree, X: FloatArray) -> SiteGradient:
        """Return the log likelihood of each site and its derivatives."""
        codes = np.ascontiguousarray(self.codes(X).T)
        q = self.flat_equilibrium
        out = SiteGradient(np.empty(len(codes)), np.empty(len(codes)), np.empty(len(q)))
        all_sites_log_likelihood(tree.parent, tree.height, codes, self.rates, q, self.offsets, *out)
        return out

    def gradient(self, tree: Tree, X: FloatArray) -> dict[str, Any]:
        """Return the derivatives of `log_likelihood` by ``rate`` and ``equilibrium``.

        An equilibrium is differentiated entry by entry, as if its entries were free; moves that
        keep its sum are what counts.
        """
        out = self.site_gradient(tree, X)
        return {"rate": out.by_rate, "equilibrium": tuple(self.split(out.by_equilibrium))}

    def log_likelihood_ratio(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return log p(leaves of the node) minus that of its children: the sum of log Z."""
        ratio = self.messages(tree, X).log_z.sum(axis=1)
        ratio[: tree.n_leaves] = np.inf
        return np.asarray(ratio)

    # -- data ------------------------------------------------------------------------------------

    def simulate(self, tree: Tree, rng: np.random.Generator) -> FloatArray:
        """Draw a table from the process on a tree."""
        rates = self.rates
        fresh = np.empty((tree.n_nodes, len(rates)))
        for d, q in enumerate(self.equilibrium):
            fresh[:, d] = rng.choice(len(q), size=tree.n_nodes, p=q)
        uniform = rng.random(fresh.shape)
        states = fresh
        for node in range(tree.n_nodes - 1, -1, -1):
            above = tree.parent[node]
            if above >= 0:
                kept = uniform[node] < np.exp(-rates * (tree.height[above] - tree.height[node]))
                states[node] = np.where(kept, states[above], fresh[node])
        return states[: tree.n_leaves]

    def leaf_probabilities(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return the probability of every state of each entry given all other rows, flat."""
        messages = self.messages(tree, X)
        q = self.flat_equilibrium
        leaf = np.arange(tree.n_leaves)
        above = tree.parent[leaf]
        branch = np.where(above >= 0, tree.height[above], np.inf)
        keep = np.exp(-branch[:, None] * np.repeat(self.rates, self.n_states or ()))
        return np.asarray(q * (1 - keep * (1 - messages.down[leaf])))

    def heldout(self, tree: Tree, X: FloatArray, X_full: FloatArray) -> FloatArray:
        """Return log p(entry | X, tree) of each entry missing in X and known in X_full, else NaN.

        Each entry by itself: see `heldout_log_likelihood` for all of them together.
        """
        probabilities = self.leaf_probabilities(tree, X)
        codes = self.codes(X_full)
        places = self.offsets[:-1] + np.maximum(codes, 0)
        chosen = np.take_along_axis(probabilities, places, axis=1)
        wanted = np.isnan(X) & (codes >= 0)
        return np.where(wanted, np.log(np.where(wanted, chosen, 1.0)), np.nan)

    def impute(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return the table with its missing entries replaced by their most probable states."""
        return np.where(np.isnan(X), self.most_probable(self.leaf_probabilities(tree, X)), X)

    def most_probable(self, probabilities: FloatArray) -> FloatArray:
        """Return the most probable state of each site from flat probabilities."""
        best = [part.argmax(axis=1) for part in self.split(probabilities)]
        return np.stack(best, axis=1).astype(np.float64)


def _check_codes(X: FloatArray) -> None:
    bad = ~np.isnan(X) & ((X < 0) | (np.floor(X) != X))
    if bad.any():
        i, j = (int(v) for v in np.argwhere(bad)[0])
        raise BhclustError(
            f"{_OWNER}: column {j} holds {X[i, j]:g} in row {i}, which is not a code 0, 1, 2, …; "
            "use Brownian for real numbers, or declare the column categorical."
        )


def _frequencies(column: FloatArray, n_states: int) -> FloatArray:
    observed = column[~np.isnan(column)].astype(np.intp)
    counts = np.bincount(observed, minlength=n_states) + SMOOTHING
    return np.asarray(counts / counts.sum())


def _checked_equilibrium(equilibrium: Any, n_states: tuple[int, ...]) -> tuple[FloatArray, ...]:
    out = []
    for j, (given, k) in enumerate(zip(equilibrium, n_states, strict=True)):
        q = np.asarray(given, dtype=np.float64)
        if q.shape != (k,) or not (q > 0).all() or abs(q.sum() - 1) > 1e-6:
            raise BhclustError(
                f"{_OWNER}: equilibrium of column {j} must be {k} positive numbers that add up "
                f"to 1, got {np.array2string(q, precision=4)}."
            )
        out.append(q / q.sum())
    return tuple(out)
