"""A public check of a model against its contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from bhclust._validation import BhclustError, FloatArray, check_matrix
from bhclust.models.base import ClusterModel, Hyperparameter, slope_along

# Largest number of rows the laws are tried on; some laws take every pair of them.
_MOST_ROWS = 12

# Differences up to this part of the quantities that were added are rounding.
_ROUNDING = 1e-8

# Numerical differentiation is less exact than the rest.
_SLOPE_ROUNDING = 1e-5


def check_model(model: ClusterModel, X: Any, *, seed: int = 0) -> None:
    """Test a model against the contract that the library relies on.

    The laws: statistics and log marginals are finite float64 arrays of the right shape; a batch
    equals a loop to the last bit; `merge` is commutative to the last bit and associative; the
    order of items does not matter; log f is the sum of one-item log predictives (chain rule);
    missing entries add nothing where the model says so; `repeat` equals merging copies, and a
    row of weight w counts like w copies in `resolve`;
    `feature_contributions` add up; `feature_levels`, if there are any, fit the table; `gradient`
    equals numerical differentiation.

    That log f is normalised over data cannot be tested for an unknown kind of data.

    Parameters
    ----------
    model : ClusterModel
        It is resolved on ``X`` first.
    X : array of shape (n, d)
        Typical data, at least three rows; a few rows chosen at random are used.
    seed : int
        Seed of the choice of rows, orders and directions.

    Raises
    ------
    BhclustError
        It names the law that is broken and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Poisson, check_model
    >>> check_model(Poisson(), np.array([[3, 0], [5, 1], [4, 40]]))
    """
    owner = type(model).__name__
    table = X.toarray() if scipy.sparse.issparse(X) else X
    table = check_matrix(table, owner=owner)
    if len(table) < 3:
        raise BhclustError(f"check_model needs at least 3 rows, got {len(table)}.")
    resolved = model.resolve(table)
    rng = np.random.default_rng(seed)
    few = rng.permutation(len(table))[:_MOST_ROWS]
    laws = _Laws(resolved, np.ascontiguousarray(table[few]), rng)
    laws.check_shapes()
    laws.check_batches()
    laws.check_merge()
    laws.check_exchangeable()
    laws.check_chain_rule(laws.X, "chain rule")
    laws.check_missing()
    laws.check_repeat()
    laws.check_contributions()
    laws.check_levels()
    laws.check_gradient()
    _check_weighted_resolve(model, laws.X)


def _check_weighted_resolve(model: ClusterModel, X: FloatArray) -> None:
    """Compare what a model takes from weighted rows with what it takes from repeated ones."""
    copies = 1 + np.arange(len(X)) % 3
    repeated = model.resolve(np.repeat(X, copies, axis=0))
    try:
        weighted = model.resolve(X, copies.astype(np.float64))
    except TypeError as error:
        raise BhclustError(
            f"{type(model).__name__} must have a method `resolve(X, weight=None)` that takes the "
            f"multiplicities of the rows ({error})."
        ) from None
    found, expected = (side.log_marginal(side.suffstats(X)) for side in (weighted, repeated))
    laws = _Laws(weighted, X, np.random.default_rng(0))
    laws.expect_close("weight = copies", "log f under the defaults of both", found, expected)


class _Laws:
    def __init__(self, model: ClusterModel, X: FloatArray, rng: np.random.Generator) -> None:
        self.model = model
        self.X = X
        self.rng = rng
        self.items = model.suffstats(X)

    def fail(self, law: str, detail: str) -> None:
        raise BhclustError(f"{type(self.model).__name__} breaks the law '{law}': {detail}.")

    def expect_same(self, law: str, what: str, found: FloatArray, expected: FloatArray) -> None:
        """Raise unless both arrays are the same to the last bit."""
        if not np.array_equal(found, expected):
            gap = _largest_gap(found, expected)
            self.fail(law, f"{what} must be the same to the last bit, and differ by {gap:.3g}")

    def expect_close(
        self,
        law: str,
        what: str,
        found: FloatArray,
        expected: FloatArray,
        *,
        tolerance: float = _ROUNDING,
        size: float = 0.0,
    ) -> None:
        """Raise unless both arrays are the same to rounding of numbers of a certain size."""
        allowed = tolerance * (1 + size + np.abs(expected))
        with np.errstate(invalid="ignore"):
            fine = np.shape(found) == np.shape(expected) and bool(
                (np.abs(found - expected) <= allowed).all()
            )
        if not fine:
            self.fail(law, f"{what} differ by {_largest_gap(found, expected):.3g}")

    def random_clusters(self) -> FloatArray:
        """Return clusters of two and three items, next to the single items."""
        order = self.rng.permutation(len(self.items))
        pairs = self.model.merge(self.items, self.items[order])
        triples = self.model.merge(pairs, self.items[self.rng.permutation(len(self.items))])
        return np.vstack([self.items, pairs, triples])

    def union(self, items: FloatArray) -> FloatArray:
        out = items[:1]
        for i in range(1, len(items)):
            out = self.model.merge(out, items[i : i + 1])
        return out

    def check_shapes(self) -> None:
        law, items = "statistics", self.items
        if not (isinstance(items, np.ndarray) and items.dtype == np.float64):
            self.fail(law, "suffstats must return a float64 array")
        if items.ndim != 2 or len(items) != len(self.X) or not items.flags.c_contiguous:
            self.fail(
                law, f"suffstats must return {len(self.X)} C-contiguous rows, got {items.shape}"
            )
        merged = self.model.merge(items, items[::-1])
        if merged.shape != items.shape or merged.dtype != np.float64:
            self.fail(law, f"merge must keep the shape {items.shape}, got {merged.shape}")
        log_f = self.model.log_marginal(items)
        if np.shape(log_f) != (len(items),):
            self.fail(law, f"log_marginal must return shape {(len(items),)}, got {np.shape(log_f)}")
        if not (np.isfinite(items).all() and np.isfinite(log_f).all()):
            self.fail(law, "statistics and log_marginal must be finite")

    def check_batches(self) -> None:
        law = "batch = loop"
        clusters = self.random_clusters()
        loop = [self.model.log_marginal(clusters[i : i + 1])[0] for i in range(len(clusters))]
        whole = self.model.log_marginal(clusters)
        self.expect_same(law, "log_marginal of a batch and of its rows", whole, np.array(loop))
        rows = [self.model.suffstats(self.X[i : i + 1])[0] for i in range(len(self.X))]
        self.expect_same(law, "suffstats of a table and of its rows", self.items, np.array(rows))
        one = clusters[-1:]
        loop_rows = [self.model.merge(one, row[None])[0] for row in clusters]
        merged = self.model.merge(one, clusters)
        self.expect_same(law, "merge of one row with a batch", merged, np.array(loop_rows))

    def check_merge(self) -> None:
        clusters = self.random_clusters()
        a, b, c = (clusters[self.rng.permutation(len(clusters))] for _ in range(3))
        merge = self.model.merge
        self.expect_same(
            "merge is commutative", "merge(a, b), merge(b, a)", merge(a, b), merge(b, a)
        )
        left, right = merge(merge(a, b), c), merge(a, merge(b, c))
        size = float(np.abs(left).max(initial=0.0))
        self.expect_close(
            "merge is associative",
            "merge(merge(a, b), c), merge(a, merge(b, c))",
            left,
            right,
            size=size,
        )
        log_f = self.model.log_marginal
        self.expect_close(
            "merge is associative", "log f after the two ways", log_f(left), log_f(right)
        )

    def check_exchangeable(self) -> None:
        expected = self.model.log_marginal(self.union(self.items))
        for _ in range(3):
            order = self.rng.permutation(len(self.items))
            found = self.model.log_marginal(self.union(self.items[order]))
            self.expect_close("exchangeability", "log f of two orders", found, expected)

    def check_chain_rule(self, X: FloatArray, law: str) -> None:
        """Compare log f with the sum of log predictives, of all items given growing clusters."""
        items = self.model.suffstats(X)
        cluster = items[:1]
        for i in range(1, len(X)):
            found = self.model.log_predictive(cluster, X)[:, 0]
            unions = self.model.log_marginal(self.model.merge(cluster, items))
            before = self.model.log_marginal(cluster)
            what = "log_predictive and the difference of log marginals"
            size = float(np.abs(unions).max())
            self.expect_close(law, what, found, unions - before, size=size)
            cluster = self.model.merge(cluster, items[i : i + 1])
        clusters = self.random_clusters()
        together = self.model.log_predictive(clusters, X)
        alone = [
            self.model.log_predictive(clusters[k : k + 1], X)[:, 0] for k in range(len(clusters))
        ]
        self.expect_close(
            law, "log_predictive of a batch of clusters and of each", together, np.array(alone).T
        )

    def check_missing(self) -> None:
        if self.model.missing == "error":
            return
        law = "missing entries add nothing"
        nothing = self.model.suffstats(np.full_like(self.X[:1], np.nan))
        zero = np.zeros(1)
        self.expect_close(
            law, "log f of a missing row and 0", self.model.log_marginal(nothing), zero
        )
        clusters = self.random_clusters()
        merged = self.model.log_marginal(self.model.merge(clusters, nothing))
        before = self.model.log_marginal(clusters)
        self.expect_close(law, "log f with and without a missing row", merged, before)
        if self.model.missing == "exact":
            holes = self.rng.random(self.X.shape) < 0.3
            self.check_chain_rule(np.where(holes, np.nan, self.X), law)

    def check_repeat(self) -> None:
        law = "repeat = merging copies"
        clusters = self.random_clusters()
        twice = self.model.merge(clusters, clusters)
        thrice = self.model.merge(twice, clusters)
        for copies, expected in ((1.0, clusters), (2.0, twice), (3.0, thrice)):
            found = self.model.repeat(clusters, np.full(len(clusters), copies))
            size = float(np.abs(expected).max(initial=0.0))
            self.expect_close(law, f"{copies:g} copies", found, expected, size=size)

    def check_contributions(self) -> None:
        clusters = self.random_clusters()
        a, b = (clusters[self.rng.permutation(len(clusters))] for _ in range(2))
        log_f = self.model.log_marginal
        union = log_f(self.model.merge(a, b))
        found = self.model.feature_contributions(a, b).sum(axis=1)
        self.expect_close(
            "feature_contributions add up",
            "their sum and the log Bayes factor",
            found,
            log_f(a) + log_f(b) - union,
            size=float(np.abs(union).max()),
        )

    def check_levels(self) -> None:
        law = "feature_levels"
        levels = self.model.feature_levels(self.items)
        if levels is None:
            return
        expected = (len(self.items), len(levels.feature))
        if np.shape(levels.value) != expected:
            self.fail(law, f"value must have shape {expected}, got {np.shape(levels.value)}")
        n_columns = self.X.shape[1]
        if len(levels.quantity) != n_columns:
            self.fail(law, f"quantity must have {n_columns} entries, got {len(levels.quantity)}")
        feature = np.asarray(levels.feature)
        inside = (feature >= 0) & (feature < n_columns)
        if not inside.all() or (np.diff(feature) < 0).any():
            self.fail(law, f"feature must rise within 0 … {n_columns - 1}, got {feature.tolist()}")

    def check_gradient(self) -> None:
        law = "gradient"
        clusters = self.random_clusters()
        weights = self.rng.normal(size=len(clusters))
        gradient = self.model.gradient(clusters, weights)
        names = {spec.name for spec in self.model.free()}
        if set(gradient) != names:
            self.fail(law, f"it must have the names {sorted(names)}, got {sorted(gradient)}")
        for spec in self.model.free():
            found, centre = np.asarray(gradient[spec.name]), self.model.hyperparameter(spec.name)
            if found.shape != centre.shape:
                self.fail(law, f"{spec.name} must have shape {centre.shape}, got {found.shape}")
            direction = self.direction(spec, centre)
            expected = slope_along(self.model, spec.name, direction, clusters, weights)
            along = float(np.sum(found * direction))
            size = float(np.abs(found * direction).sum())
            self.expect_close(
                law,
                f"∂ log f / ∂ {spec.name} and numerical differentiation",
                np.array(along),
                np.array(expected),
                tolerance=_SLOPE_ROUNDING,
                size=size,
            )

    def direction(self, spec: Hyperparameter, centre: FloatArray) -> FloatArray:
        """Return a random direction in which small steps stay inside the domain."""
        if spec.domain == "covariance":
            scale = np.sqrt(np.diagonal(centre))
            noise = self.rng.normal(size=centre.shape) * np.outer(scale, scale)
            return np.asarray(noise + noise.T) / len(centre)
        noise = self.rng.uniform(0.5, 1.0, size=centre.shape)
        noise = noise * self.rng.choice([-1.0, 1.0], size=centre.shape)
        if spec.domain == "real":
            return np.asarray(noise * np.maximum(np.abs(centre), 1.0))
        return np.asarray(noise * centre)


def _largest_gap(found: FloatArray, expected: FloatArray) -> float:
    if np.shape(found) != np.shape(expected):
        return float("inf")
    gaps = np.abs(np.asarray(found) - np.asarray(expected))
    return float("inf") if np.isnan(gaps).any() else float(gaps.max(initial=0.0))
