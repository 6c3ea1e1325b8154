"""Brownian motion along the branches: tables of real numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular

from bhclust._validation import (
    BhclustError,
    FloatArray,
    check_choice,
    check_complete,
    check_magnitude,
    check_matrix,
    check_n_columns,
    check_positive,
    column_number,
)
from bhclust.coalescent._loops import COMPLETE, PARTIAL, PairSpec
from bhclust.coalescent._tree_loops import gaussian_downward, gaussian_upward
from bhclust.coalescent.processes import EntryMoments, Leaves, Process
from bhclust.models.base import Kind
from bhclust.tree import Tree

Structure = Literal["isotropic", "diagonal", "full"]
_OWNER = "Brownian"
_LOG_TWO_PI = float(np.log(2 * np.pi))

# Without any noise at the leaves two identical rows are infinitely likely to be one: identical
# rows get this much, in units of the covariance (a pair of lineages takes about one unit of time).
DUPLICATE_VARIANCE = 1e-6
# Columns are independent in these units: messages of so many entries are held at once (16 MiB).
_BLOCK = 1 << 21


class _Upward(NamedTuple):
    """The messages upwards of some columns; see `GaussianMessages`."""

    mean: FloatArray
    variance: FloatArray
    contrast: FloatArray
    contrast_variance: FloatArray


class GaussianMessages(NamedTuple):
    """Messages of a whole tree in whitened units; each array is ``(n_nodes, n_columns)``.

    ``variance`` is infinite where nothing below is observed. ``contrast`` is the difference that
    a child makes with its elder siblings and ``contrast_variance`` its variance, 0 where there is
    none. ``down_mean`` and ``down_precision`` say what the rest of the tree knows about the state
    at the node's parent (at a root: the prior of the root itself).
    """

    mean: FloatArray
    variance: FloatArray
    contrast: FloatArray
    contrast_variance: FloatArray
    down_mean: FloatArray
    down_precision: FloatArray


class Contrasts(NamedTuple):
    """Independent normal differences, ``(n_contrasts, n_columns)`` each, in whitened units.

    ``variance`` is 0 where a column has no such contrast, because an entry is missing.
    """

    difference: FloatArray
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class Brownian(Process):
    """Real numbers that diffuse: over a time t a row moves by a normal with covariance t Λ.

    The unit of time is that of the coalescent, in which two lineages take one unit to meet on
    average; so Λ is about the covariance of the table.

    Parameters
    ----------
    covariance : float, array of shape (d,) or (d, d), optional
        Λ: a number (isotropic), variances (diagonal) or a matrix (full). ``None``: the variances
        or covariance of the table, in the shape that ``structure`` asks for.
    root_variance : float, optional
        Prior variance of the root in units of Λ. ``None``: a flat prior, with which the density is
        that of the n − 1 independent contrasts.
    root_mean : array of shape (d,), optional
        Prior mean of the root; the column means by default.
    leaf_variance : float, optional
        Noise of each leaf in units of Λ. ``None``: 0, or 1e-6 where there are identical rows,
        which would otherwise be infinitely likely to be one.
    structure : {"diagonal", "isotropic", "full"}
        Shape of a covariance taken from the data. Missing entries need the first or the second.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.tree import Tree
    >>> from bhclust.coalescent import Brownian
    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> tree = Tree([3, 3, 4, 4, -1], n_leaves=3, height=[0, 0, 0, 0.5, 2.0])
    >>> process = Brownian(covariance=1.0, root_variance=10.0, root_mean=[0.0]).resolve(X)
    >>> round(process.log_likelihood(tree, X), 6)
    -8.122748
    """

    covariance: float | FloatArray | None = None
    root_variance: float | None = None
    root_mean: FloatArray | None = None
    leaf_variance: float | None = None
    structure: Structure = "diagonal"

    kinds: ClassVar[tuple[Kind, ...]] = ("real", "count")

    # -- hyperparameters -------------------------------------------------------------------------

    def resolve(self, X: FloatArray) -> Self:
        """Fill the hyperparameters that are ``None`` from a table; a new object."""
        X = check_matrix(X, owner=_OWNER)
        check_magnitude(X)
        check_choice(
            self.structure, ("diagonal", "isotropic", "full"), name="structure", owner=_OWNER
        )
        if self.root_variance is not None and self.root_variance != np.inf:
            check_positive(self.root_variance, name="root_variance", owner=_OWNER)
        leaf_variance = self.leaf_variance
        if leaf_variance is None:
            leaf_variance = DUPLICATE_VARIANCE if _has_twins(X) else 0.0
        elif not (np.isfinite(leaf_variance) and leaf_variance >= 0):
            raise BhclustError(
                f"{_OWNER}: leaf_variance must be a finite number, 0 or above, "
                f"got {leaf_variance!r}."
            )
        elif leaf_variance == 0 and not np.isnan(X).any() and _has_twins(X):
            raise BhclustError(
                f"{_OWNER}: with leaf_variance=0 identical rows are infinitely likely to be one; "
                "leave leaf_variance out, give it a small positive value, or drop repeated rows."
            )
        covariance = self.covariance
        if covariance is None:
            covariance = _default_covariance(X, self.structure)
        covariance = _checked_covariance(covariance, X.shape[1])
        mean = _column_means(X) if self.root_mean is None else self.root_mean
        try:
            root_mean = np.array(np.broadcast_to(mean, (X.shape[1],)), dtype=np.float64)
        except ValueError:
            raise BhclustError(
                f"{_OWNER}: root_mean must have one number for each of the {X.shape[1]} columns, "
                f"got {np.shape(mean)}."
            ) from None
        shapes: tuple[Structure, ...] = ("isotropic", "diagonal", "full")
        process = replace(
            self,
            covariance=covariance,
            root_mean=root_mean,
            leaf_variance=float(leaf_variance),
            structure=shapes[np.ndim(covariance)],
        )
        process._check_missing(X)
        return process

    @property
    def n_columns(self) -> int:
        """Number of columns of the table it was resolved with."""
        return len(self._mean)

    @property
    def matrix(self) -> FloatArray:
        """Λ as a matrix, whatever its structure."""
        if self._scale.ndim == 2:
            return self._scale
        return np.diag(np.broadcast_to(self._scale, self.n_columns))

    @property
    def _mean(self) -> FloatArray:
        return np.asarray(self._resolved().root_mean, dtype=np.float64)

    @property
    def _noise(self) -> float:
        return float(self._resolved().leaf_variance or 0.0)

    @property
    def _scale(self) -> FloatArray:
        """Λ as an array of the shape it was given in."""
        return np.asarray(self._resolved().covariance, dtype=np.float64)

    def _resolved(self) -> Self:
        if self.covariance is None or self.root_mean is None or self.leaf_variance is None:
            raise BhclustError(f"{_OWNER} is not resolved: call resolve(X) on it first.")
        return self

    def _root_variance(self) -> float:
        return np.inf if self.root_variance is None else float(self.root_variance)

    def _check_missing(self, X: FloatArray) -> None:
        if self.structure == "full":
            check_complete(
                X,
                owner=f"{_OWNER} with a full covariance",
                instead='structure="diagonal"',
                column=column_number,
            )

    # -- units -----------------------------------------------------------------------------------

    def whiten(self, X: FloatArray) -> FloatArray:
        """Return rows measured from the root mean, in units in which Λ is the identity."""
        X = check_matrix(X, owner=_OWNER)
        check_n_columns(X, self.n_columns, owner=_OWNER)
        self._check_missing(X)
        centred = X - self._mean
        if self.structure == "full":
            factor = np.linalg.cholesky(self.matrix)
            out = solve_triangular(factor, centred.T, lower=True).T
            return np.ascontiguousarray(out)
        return np.ascontiguousarray(centred / np.sqrt(self._scale))

    def unwhiten(self, moments: EntryMoments) -> EntryMoments:
        """Return means and variances in the units of the table."""
        if self.structure == "full":
            factor = np.linalg.cholesky(self.matrix)
            mean = moments.mean @ factor.T + self._mean
            return EntryMoments(mean, moments.variance @ (factor**2).T)
        mean = moments.mean * np.sqrt(self._scale) + self._mean
        return EntryMoments(mean, moments.variance * self._scale)

    def log_scales(self) -> FloatArray:
        """Half the log determinant of Λ, split over columns."""
        if self.structure == "full":
            return np.asarray(np.log(np.diag(np.linalg.cholesky(self.matrix))))
        return np.asarray(0.5 * np.log(np.broadcast_to(self._scale, self.n_columns)))

    def _log_offset(self, X: FloatArray) -> float:
        counts = (~np.isnan(X)).sum(axis=0)
        if self._root_variance() == np.inf:
            counts = np.maximum(counts - 1, 0)
        return -float(counts @ self.log_scales())

    # -- messages --------------------------------------------------------------------------------

    def leaves(self, X: FloatArray) -> Leaves:
        """Return the messages of the rows of a table."""
        values = self.whiten(X)
        missing = np.isnan(values)
        complete = not missing.any()
        if complete:
            spreads = np.full((len(values), 1), self._noise)
        else:
            spreads = np.where(missing, np.inf, self._noise)
        spec = PairSpec(
            kind=COMPLETE if complete else PARTIAL,
            n_columns=values.shape[1],
            offsets=np.zeros(1, dtype=np.int64),
            equilibrium=np.zeros(1),
            rates=np.zeros(1),
            root_mean=np.zeros(values.shape[1]),
            root_variance=self._root_variance(),
        )
        return Leaves(np.where(missing, 0.0, values), spreads, spec, self._log_offset(X))

    def messages(self, tree: Tree, X: FloatArray) -> GaussianMessages:
        """Return the messages upwards and downwards at every node, in whitened units."""
        values = self.whiten(X)
        up = self._upward(tree, values)
        out = GaussianMessages(*up, *(np.zeros(up.mean.shape) for _ in range(2)))
        gaussian_downward(
            tree.parent,
            tree.child_ptr,
            tree.child_index,
            tree.height,
            out.mean,
            out.variance,
            np.zeros(values.shape[1]),
            self._root_variance(),
            out.down_mean,
            out.down_precision,
        )
        return out

    def _upward(self, tree: Tree, values: FloatArray) -> _Upward:
        """Return the messages upwards of whitened columns."""
        _check_rows(tree, values)
        shape = (tree.n_nodes, values.shape[1])
        out = _Upward(np.zeros(shape), np.full(shape, np.inf), np.zeros(shape), np.zeros(shape))
        observed = ~np.isnan(values)
        out.mean[: tree.n_leaves] = np.where(observed, values, 0.0)
        out.variance[: tree.n_leaves] = np.where(observed, self._noise, np.inf)
        gaussian_upward(tree.parent, tree.height, *out)
        return out

    def _upward_by_block(self, tree: Tree, values: FloatArray) -> Iterator[tuple[slice, _Upward]]:
        """Yield the messages upwards, a few columns at a time."""
        width = max(1, _BLOCK // tree.n_nodes)
        for start in range(0, values.shape[1], width):
            columns = slice(start, start + width)
            yield columns, self._upward(tree, values[:, columns])

    def _contrasts(self, tree: Tree, up: _Upward) -> Contrasts:
        difference, variance = up.contrast, up.contrast_variance
        if self._root_variance() < np.inf:
            root = tree.roots
            known = up.variance[root] < np.inf
            difference = np.concatenate([difference, np.where(known, up.mean[root], 0.0)])
            total = np.where(known, up.variance[root] + self._root_variance(), 0.0)
            variance = np.concatenate([variance, total])
        used = (variance > 0).any(axis=1)
        return Contrasts(difference[used], variance[used])

    def contrasts(self, tree: Tree, X: FloatArray) -> Contrasts:
        """Return the independent contrasts of a table on a tree, in whitened units.

        With a proper root prior the root's difference from its prior mean is the last one.
        """
        return self._contrasts(tree, self._upward(tree, self.whiten(X)))

    def contrast_squares(self, tree: Tree, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum of the squared unit contrasts of each column, and their number."""
        values = self.whiten(X)
        squares, counts = np.zeros(values.shape[1]), np.zeros(values.shape[1])
        for columns, up in self._upward_by_block(tree, values):
            difference, variance = self._contrasts(tree, up)
            used = variance > 0
            squares[columns] = (difference**2 / np.where(used, variance, np.inf)).sum(axis=0)
            counts[columns] = used.sum(axis=0)
        return squares, counts

    def log_likelihood(self, tree: Tree, X: FloatArray) -> float:
        """Return log p(X | tree).

        With a flat root prior it is the density of the contrasts, which differs from a density
        of the table by a constant that no tree changes.
        """
        total = 0.0
        for _, up in self._upward_by_block(tree, self.whiten(X)):
            total += float(_log_normal(*self._contrasts(tree, up)).sum())
        return self._log_offset(X) + total

    def gradient(self, tree: Tree, X: FloatArray) -> dict[str, Any]:
        """Return the derivatives of `log_likelihood` by ``covariance``, ``root_mean`` and
        ``root_variance`` (the last two only with a proper root prior).

        A full covariance is differentiated entry by entry, as if it were not symmetric.
        """
        difference, variance = self.contrasts(tree, X)
        used = variance > 0
        unit = difference / np.sqrt(np.where(used, variance, 1.0))
        scale = self._scale
        out: dict[str, Any] = {}
        if self.structure == "full":
            inverse = np.linalg.inv(np.linalg.cholesky(self.matrix))
            outer = unit.T @ unit - len(unit) * np.eye(unit.shape[1])
            out["covariance"] = 0.5 * inverse.T @ outer @ inverse
        else:
            by_column = 0.5 * ((unit**2).sum(axis=0) - used.sum(axis=0)) / scale
            whole = self.structure == "isotropic"
            out["covariance"] = float(by_column.sum()) if whole else by_column
        if self._root_variance() < np.inf:
            s = np.where(used[-1], variance[-1], np.inf)
            out["root_variance"] = float(0.5 * ((difference[-1] / s) ** 2 - 1 / s).sum())
            pull = difference[-1] / s
            if self.structure == "full":
                factor = np.linalg.cholesky(self.matrix)
                out["root_mean"] = solve_triangular(factor.T, pull, lower=False)
            else:
                out["root_mean"] = pull / np.sqrt(scale)
        return out

    def log_likelihood_ratio(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return log p(leaves of the node) minus that of its children, each with a root prior.

        A flat prior cannot compare one root with two; then the prior is that of the table: its
        mean, and its variance in units of Λ.
        """
        prior = self._root_variance()
        values = self.whiten(X)
        centre = np.zeros(values.shape[1])
        if prior == np.inf:
            centre = _column_means(values)
            squares = (values - centre)[~np.isnan(values)] ** 2
            prior = max(float(squares.mean()), 1e-12) if squares.size else 1.0
        at_root, local = np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
        for columns, up in self._upward_by_block(tree, values):
            spread = np.where(up.variance < np.inf, up.variance + prior, 0.0)
            at_root += _log_normal(up.mean - centre[columns], spread).sum(axis=1)
            local += _log_normal(up.contrast, up.contrast_variance).sum(axis=1)
        ratio: FloatArray = at_root.copy()
        child = np.flatnonzero(tree.parent >= 0)
        np.add.at(ratio, tree.parent[child], local[child] - at_root[child])
        ratio[: tree.n_leaves] = np.inf
        return ratio

    # -- data ------------------------------------------------------------------------------------

    def simulate(self, tree: Tree, rng: np.random.Generator) -> FloatArray:
        """Draw a table; a flat root prior puts the root at the root mean."""
        width = self.n_columns
        states = np.zeros((tree.n_nodes, width))
        noise = rng.standard_normal(states.shape)
        prior = self._root_variance()
        for node in range(tree.n_nodes - 1, -1, -1):
            above = tree.parent[node]
            if above < 0:
                states[node] = noise[node] * np.sqrt(prior if prior < np.inf else 0.0)
            else:
                branch = tree.height[above] - tree.height[node]
                states[node] = states[above] + noise[node] * np.sqrt(branch)
        leaves = states[: tree.n_leaves]
        leaves += rng.standard_normal(leaves.shape) * np.sqrt(self._noise)
        if self.structure == "full":
            leaves = leaves @ np.linalg.cholesky(self.matrix).T
        else:
            leaves = leaves * np.sqrt(self._scale)
        return np.asarray(leaves + self._mean)

    def leaf_moments(self, tree: Tree, X: FloatArray) -> EntryMoments:
        """Return mean and variance of each entry given all other rows, in the table's units.

        The entry's own row tells nothing more about it: columns are independent given the tree,
        unless the covariance is full.
        """
        messages = self.messages(tree, X)
        leaf = np.arange(tree.n_leaves)
        above = tree.parent[leaf]
        branch = np.where(above >= 0, tree.height[above], 0.0)[:, None]
        precision = messages.down_precision[leaf]
        # Nothing known at all about a column: its prior is that of the table's scale.
        known = precision > 0
        variance = np.where(known, 1 / np.where(known, precision, 1.0), 1.0)
        variance = variance + branch + self._noise
        return self.unwhiten(EntryMoments(messages.down_mean[leaf], variance))

    def heldout(self, tree: Tree, X: FloatArray, X_full: FloatArray) -> FloatArray:
        """Return log p(entry | X, tree) of each entry missing in X and known in X_full, else NaN.

        Each entry by itself: see `heldout_log_likelihood` for all of them together.
        """
        moments = self.leaf_moments(tree, X)
        wanted = np.isnan(X) & ~np.isnan(X_full)
        out = np.full(X.shape, np.nan)
        difference = np.where(wanted, X_full, 0.0) - moments.mean
        out[wanted] = _log_normal(difference, moments.variance)[wanted]
        return out

    def impute(self, tree: Tree, X: FloatArray) -> FloatArray:
        """Return the table with its missing entries replaced by their means."""
        return np.asarray(np.where(np.isnan(X), self.leaf_moments(tree, X).mean, X))


def _log_normal(difference: FloatArray, variance: FloatArray) -> FloatArray:
    """Log density of differences with these variances; 0 where the variance is 0."""
    used = variance > 0
    safe = np.where(used, variance, 1.0)
    density = -0.5 * (_LOG_TWO_PI + np.log(safe) + difference**2 / safe)
    return np.asarray(np.where(used, density, 0.0))


def _column_means(X: FloatArray) -> FloatArray:
    observed = ~np.isnan(X)
    counts = np.maximum(observed.sum(axis=0), 1)
    return np.asarray(np.where(observed, X, 0.0).sum(axis=0) / counts)


def _default_covariance(X: FloatArray, structure: str) -> float | FloatArray:
    """Return the table's own covariance; columns that do not vary get 1."""
    observed = ~np.isnan(X)
    centred = np.where(observed, X - _column_means(X), 0.0)
    counts = np.maximum(observed.sum(axis=0) - 1, 1)
    variances = (centred**2).sum(axis=0) / counts
    varies = variances > 1e-20 * _column_means(X) ** 2  # in any unit
    variances = np.where(varies, variances, 1.0)
    if structure == "isotropic":
        return float(variances[varies].mean()) if varies.any() else 1.0
    if structure == "diagonal":
        return np.asarray(variances)
    # Shrunk towards its diagonal as if by one more row a column, so that it is never singular.
    n, d = X.shape
    matrix = centred.T @ centred / max(n - 1, 1)
    share = d / (n + d)
    shrunk = (1 - share) * matrix
    np.fill_diagonal(shrunk, variances)
    return np.asarray(shrunk)


def _checked_covariance(covariance: Any, n_columns: int) -> float | FloatArray:
    array = np.asarray(covariance, dtype=np.float64)
    shapes = ((), (n_columns,), (n_columns, n_columns))
    if array.shape not in shapes:
        raise BhclustError(
            f"{_OWNER}: covariance must be a number, {n_columns} variances or a "
            f"{n_columns} x {n_columns} matrix, got shape {array.shape}."
        )
    if array.ndim < 2:
        if not (np.isfinite(array).all() and (array > 0).all()):
            raise BhclustError(f"{_OWNER}: every variance in covariance must be positive.")
        return float(array) if array.ndim == 0 else array
    try:
        np.linalg.cholesky(array)
    except np.linalg.LinAlgError:
        raise BhclustError(
            f"{_OWNER}: covariance is not positive definite; use variances (one a column) instead."
        ) from None
    return array


def _has_twins(X: FloatArray) -> bool:
    """Whether two rows may be equal wherever both are observed.

    Exact for complete tables. With missing entries a repeated value in any column counts, which
    is cheap and errs on the safe side.
    """
    missing = np.isnan(X)
    if not missing.any():
        return len(np.unique(X, axis=0)) < len(X)
    for column, gone in zip(X.T, missing.T, strict=True):
        observed = column[~gone]
        if len(np.unique(observed)) < len(observed):
            return True
    return False


def _check_rows(tree: Tree, values: FloatArray) -> None:
    if len(values) != tree.n_leaves:
        raise BhclustError(
            f"the tree has {tree.n_leaves} leaves and the table {len(values)} rows: pass the table "
            "that the tree was made for."
        )
