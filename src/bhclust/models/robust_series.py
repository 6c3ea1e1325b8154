"""Curves at shared times of which a cluster may have one wild measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_positive,
)
from bhclust.models._columnwise import feature_blocks, fill_missing, frozen
from bhclust.models._slots import COUNT, merge_slots, repeat_slots
from bhclust.models.base import ClusterModel, Hyperparameter
from bhclust.models.gaussian import merge_moments, repeat_moments
from bhclust.models.time_series import Posterior, Slopes, TimeSeries

# The most numbers that the statistics of all nodes of a tree may take: 2 GiB.
_MOST_NUMBERS = 1 << 28

# A cluster of less weight does not change an expected value.
_LEAST_WEIGHT = 1e-17


@dataclass(frozen=True, eq=False)
class RobustTimeSeries(TimeSeries):
    """Curves at shared times, of which a cluster may have one measurement that is an outlier.

    As `TimeSeries`, but at most one of the N measurements of a cluster is no measurement of its
    curve: it is uniform over ``outlier_range``. Which one is summed out exactly (after Cooke et
    al. 2011). Missing entries are exact; items take whole numbers as weights.

    Parameters
    ----------
    times, kernel, length_scale, amplitude, noise, mean, period, fixed
        As in `TimeSeries`.
    outliers : {"prior", "maximised"}
        "prior": a cluster of N of the M measurements of the table has an outlier with probability
        ``N / M · odds / (1 + odds)``, the only such prior under which leaving a measurement out
        is the same as integrating over it. "maximised": the weights ``b^N`` and ``b^(N-1) (1-b)``
        of no outlier and of each one, at the b that is best for the cluster; that is no
        probability density, and cannot be compared with one.
    outlier_odds : float, optional
        Odds that the whole table, were it one cluster, has an outlier; 1 by default, and learned.
    outlier_range : (float, float), optional
        Where outliers fall; by default from the least to the largest entry of the table.
    spare : int
        How many rows that are not in the table a cluster can take up.

    Notes
    -----
    Statistics: those of `TimeSeries`, how many times each distinct row of the table is there, and
    ``spare`` places for other rows. ``log f`` costs one matrix of the distinct times and one
    exponential a measurement.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import RobustTimeSeries, TimeSeries
    >>> t = np.linspace(0, 6, 12)
    >>> X = np.sin(t) + 0.1 * np.cos(7 * np.arange(60)).reshape(5, 12)
    >>> X[0, 3] = -2.0
    >>> settings = {"times": t, "length_scale": 2.0, "amplitude": 1.0, "noise": 0.1}
    >>> gap = []
    >>> for model in (TimeSeries(**settings), RobustTimeSeries(**settings)):
    ...     model = model.resolve(X)
    ...     stats = model.suffstats(X)
    ...     cluster = stats[1:2]
    ...     for row in stats[2:]:
    ...         cluster = model.merge(cluster, row[None])
    ...     gap.append(model.feature_contributions(cluster, stats[:1]).sum())
    >>> bool(gap[1] < 0 < gap[0])  # the first row belongs to the others but for one entry
    True
    """

    outliers: str = field(default="prior", kw_only=True)
    outlier_odds: float | None = field(default=None, kw_only=True)
    outlier_range: npt.ArrayLike | None = field(default=None, kw_only=True)
    spare: int = field(default=12, kw_only=True, repr=False)
    items: npt.ArrayLike | None = field(default=None, kw_only=True, repr=False)
    n_entries: float | None = field(default=None, kw_only=True, repr=False)

    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        *TimeSeries.hyperparameters,
        Hyperparameter("outlier_odds", "positive"),
    )

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Fill the prior as `TimeSeries` does, and keep the distinct rows of the table."""
        check_choice(self.outliers, ("prior", "maximised"), name="outliers", owner=self._owner)
        check_count(self.spare, name="spare", owner=self._owner, lowest=1)
        odds = None
        if self.outliers == "prior":
            given = 1.0 if self.outlier_odds is None else self.outlier_odds
            odds = check_positive(given, name="outlier_odds", owner=self._owner)
        elif self.outlier_odds is not None:
            raise BhclustError(
                f"{self._owner}: outlier_odds belong to outliers='prior', got 'maximised'."
            )
        table, multiplicity = self._weighted_rows(X, weight)
        _check_whole(multiplicity, self._owner)
        bare = super().resolve(X, weight)
        items = np.unique(np.nan_to_num(table + 0.0, nan=np.inf), axis=0)
        width = 3 * len(bare._grid.times) + len(items) + self.spare * (1 + 2 * table.shape[1])
        if 2 * len(table) * width > _MOST_NUMBERS:
            raise BhclustError(
                f"{self._owner} keeps the members of every cluster, too much for {len(table)} "
                "rows; fit a sample of them, or use TimeSeries."
            )
        items[np.isinf(items)] = np.nan
        observed = ~np.isnan(table)
        return replace(
            bare,
            outlier_odds=odds,
            outlier_range=frozen(self._checked_range(table)),
            items=frozen(items),
            # One row more than the table has, for a prediction.
            n_entries=float(multiplicity @ observed.sum(axis=1)) + table.shape[1],
        )

    def _checked_range(self, table: FloatArray) -> FloatArray:
        if self.outlier_range is None:
            observed = table[~np.isnan(table)]
            low, high = observed.min(initial=np.inf), observed.max(initial=-np.inf)
            if not low <= high:
                return np.array([-0.5, 0.5])
            # Without spread the unit of the values is all that is known of them.
            unit = 0.0 if low < high else (abs(low) or 1.0) / 2
            return np.array([low - unit, high + unit])
        try:
            limits = np.asarray(self.outlier_range, dtype=np.float64)
        except (TypeError, ValueError):
            limits = np.zeros(0)
        if limits.shape != (2,) or not np.isfinite(limits).all() or limits[0] >= limits[1]:
            raise BhclustError(
                f"{self._owner}: outlier_range must be two finite numbers, the lower one first, "
                f"got {self.outlier_range!r}."
            )
        return limits

    @cached_property
    def _n_moments(self) -> int:
        return 3 * len(self._grid.times)

    @cached_property
    def _row_number(self) -> dict[bytes, int]:
        return {row.tobytes(): i for i, row in enumerate(_hashable(self._parameter("items")))}

    def _cut(self, stats: FloatArray) -> _Blocks:
        """Return moments, counts of the table's rows, and slots of other rows."""
        start = self._n_moments
        stop = start + len(self._parameter("items"))
        slots = stats[:, stop:].reshape(len(stats), self.spare, -1)
        return _Blocks(stats[:, :start], stats[:, start:stop], slots)

    def means_at_times(self, stats: FloatArray) -> FloatArray:
        """Return the mean of each cluster's entries at each distinct time, NaN without any."""
        return super().means_at_times(self._cut(stats).moments)

    def suffstats(self, X: Any) -> FloatArray:
        """Return the moments at each time and the row itself."""
        table = self._table(X)
        d, n_items = table.shape[1], len(self._parameter("items"))
        members = np.zeros((len(table), n_items))
        slots = np.zeros((len(table), self.spare, 1 + 2 * d))
        for i, row in enumerate(_hashable(table)):
            number = self._row_number.get(row.tobytes())
            if number is not None:
                members[i, number] = 1.0
                continue
            observed = ~np.isnan(row)
            slots[i, 0, COUNT] = 1.0
            slots[i, 0, 1 : 1 + d] = np.where(observed, row, 0.0)
            slots[i, 0, 1 + d :] = observed
        moments = super().suffstats(table)
        return np.hstack([moments, members, slots.reshape(len(table), -1)])

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        left, right = self._cut(a), self._cut(b)
        moments = merge_moments(left.moments, right.moments)
        if right.slots[:, :, COUNT].any() or left.slots[:, :, COUNT].any():
            slots = merge_slots(left.slots, right.slots)
        else:
            slots = np.zeros((len(moments), *left.slots.shape[1:]))
        if slots is None:
            raise BhclustError(
                f"{self._owner}: a cluster takes {self.spare} rows that the model was not "
                "resolved with; resolve it with all rows, or set spare."
            )
        return np.hstack([moments, left.members + right.members, slots.reshape(len(slots), -1)])

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over, a whole number."""
        _check_whole(weight, self._owner)
        moments, members, slots = self._cut(stats)
        return np.hstack(
            [
                repeat_moments(moments, weight),
                members * np.asarray(weight)[:, None],
                repeat_slots(slots, weight).reshape(len(stats), -1),
            ]
        )

    def _entries(self, blocks: _Blocks, k: int) -> _Entries:
        """Return every measurement of one cluster, as seen from ``mean``."""
        present = np.flatnonzero(blocks.members[k])
        rows, copies = self._parameter("items")[present], blocks.members[k, present]
        used = blocks.slots[k][blocks.slots[k, :, COUNT] > 0]
        if len(used):
            d = rows.shape[1]
            other = np.where(used[:, 1 + d :] > 0, used[:, 1 : 1 + d], np.nan)
            rows, copies = np.vstack([rows, other]), np.append(copies, used[:, COUNT])
        i, j = np.nonzero(~np.isnan(rows))
        value, time = rows[i, j], self._grid.position[j]
        low, high = self._parameter("outlier_range")
        inside = (low <= value) & (value <= high)
        return _Entries(value - self._parameter("mean")[time], copies[i], time, inside)

    def leaf_entries(self, stats: FloatArray) -> LeafEntries:
        """Return what kernels need of clusters of one row each."""
        blocks = self._cut(stats)
        rows = self._parameter("items")[blocks.members.argmax(axis=1)]
        d = rows.shape[1]
        other = np.flatnonzero(blocks.slots[:, 0, COUNT])
        slots = blocks.slots[other, 0]
        rows[other] = np.where(slots[:, 1 + d :] > 0, slots[:, 1 : 1 + d], np.nan)
        low, high = self._parameter("outlier_range")
        return LeafEntries(
            moments=blocks.moments,
            value=rows - self._parameter("mean")[self._grid.position],
            inside=(low <= rows) & (rows <= high),
            position=self._grid.position,
            range_width=float(high - low),
            n_entries=self._number("n_entries"),
            odds=0.0 if self.outliers == "maximised" else self._number("outlier_odds"),
        )

    def _suspects(self, stats: FloatArray) -> Iterator[_Suspects]:
        """Take each cluster's measurements for the outlier, one after the other.

        With B as in `TimeSeries` and n measurements at a time, the part ``kept`` of the noise's
        precision that is left at one of them is ``(n - 1 + (B⁻¹)_tt) / n``; its distance from
        where the others expect it is ``residual / kept``.
        """
        noise, blocks = self._number("noise"), self._cut(stats)
        log_c1 = super().log_marginal(blocks.moments)
        low, high = self._parameter("outlier_range")
        # log of the uniform density over the highest that p(y_i | the others) can be
        log_uniform = 0.5 * self._log_noise - math.log(high - low)
        for k, centre in enumerate(self._centres(blocks.moments)):
            entries = self._entries(blocks, k)
            at = entries.time
            residual = (entries.value / noise - centre.expected[at]) * entries.inside
            log_ratio = (log_uniform - 0.5 * np.log(centre.kept))[at] + np.log(entries.copies)
            log_ratio += residual * residual * (0.5 / centre.kept)[at]
            log_ratio[~entries.inside] = -np.inf
            log_c2 = _log_sum(log_ratio)
            weights = self._outlier_weights(float(entries.copies.sum()), log_c2)
            log_gain = float(np.logaddexp(weights.log_none, weights.log_each + log_c2))
            none = math.exp(weights.log_none - log_gain)
            yield _Suspects(
                entries=entries,
                log_c1=float(log_c1[k]),
                log_gain=log_gain,
                none=none,
                each=np.exp(log_ratio + (weights.log_each - log_gain)),
                odds_slope=weights.slope_none * none + weights.slope_each * (1 - none),
                residual=residual,
                centre=centre,
            )

    def _centres(self, moments: FloatArray) -> Iterator[_Centre]:
        """Return what the measurements of each cluster say about its curve."""
        noise = self._number("noise")
        count, mean, _ = feature_blocks(moments, 3)
        for rows in self._row_blocks(len(moments)):
            root = np.sqrt(count[rows])
            inverse = np.linalg.inv(self._weighted_covariance(root))
            scaled = root * mean[rows] / noise
            shrunk = (inverse * scaled[:, None, :]).sum(axis=2)
            seen = np.where(count[rows] > 0, count[rows], 1.0)
            kept = (seen - 1 + np.diagonal(inverse, axis1=1, axis2=2)) / seen
            expected = mean[rows] / noise - shrunk / np.sqrt(seen)
            yield from map(_Centre, expected, kept, inverse, root, shrunk)

    def _outlier_weights(self, n: float, log_c2: float) -> _Weights:
        """Return the log prior of no outlier and of each, and their slopes by the odds.

        ``log_c2`` is Σ of uniform density over p(y_i | the others).
        """
        if self.outliers == "maximised":
            return _Weights(*maximised_weights(n, log_c2), 0.0, 0.0)
        odds = self._number("outlier_odds")
        # Beyond the size of the table the probability stays where it is.
        reach = max(n, self._number("n_entries"))
        none = (reach + (reach - n) * odds) / (reach * (1 + odds))
        each = odds / (1 + odds) / reach
        slope_none = -n / reach / (1 + odds) ** 2 / none
        return _Weights(math.log(none), math.log(each), slope_none, 1 / (odds * (1 + odds)))

    def log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(D)`` of each cluster; normalised over data if ``outliers="prior"``."""
        return np.array([s.log_c1 + s.log_gain for s in self._suspects(stats)])

    def feature_log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return the terms of `TimeSeries`, and what an outlier adds where it may be."""
        grid = self._grid
        terms = super()._time_log_marginal(self._cut(stats).moments)
        for k, suspects in enumerate(self._suspects(stats)):
            share = suspects.by_time(suspects.each, len(grid.times))
            total = share.sum()
            share = share / total if total > 0 else np.full(len(share), 1 / len(share))
            terms[k] += suspects.log_gain * share
        return (terms / grid.n_columns)[:, grid.position]

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)`` of each row under each cluster, shape ``(n, m)``."""
        return ClusterModel.log_predictive(self, stats, X)

    def _posterior(self, stats: FloatArray, times: FloatArray | None = None) -> Posterior:
        """Return mean and covariance of each cluster's curve, whichever its outlier is.

        Without measurement i the curve moves by the posterior covariance with its time, times
        ``residual_i / kept``, and that covariance is what its variance grows by.
        """
        noise, grid = self._number("noise"), self._grid.times
        at = grid if times is None else times
        joint = super()._posterior(self._cut(stats).moments, np.concatenate([at, grid]))
        p = len(at)
        mean, covariance = joint.mean[:, :p].copy(), joint.covariance[:, :p, :p].copy()
        for k, suspects in enumerate(self._suspects(stats)):
            across = joint.covariance[k, :p, p:]
            pull = suspects.residual / suspects.centre.kept[suspects.entries.time] / noise
            first, second = (
                suspects.by_time(suspects.each * moment, len(grid)) for moment in (pull, pull**2)
            )
            weight = suspects.by_time(suspects.each, len(grid))
            shift = across @ first
            mean[k] -= shift
            wider = weight / (noise**2 * suspects.centre.kept) + second
            covariance[k] += (across * wider) @ across.T - np.outer(shift, shift)
        return Posterior(mean, covariance)

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        moments = self._cut(stats[:1]).moments
        suspects = next(self._suspects(stats[:1]))
        probability = np.append(suspects.each, suspects.none)
        chosen = rng.choice(len(probability), size=n, p=probability / probability.sum())
        out = np.empty((n, len(self._grid.position)))
        for i in np.unique(chosen):
            rows = np.flatnonzero(chosen == i)
            if i < len(suspects.each):
                clean = _without(moments, suspects.entries, i)
                out[rows] = self._draw(super()._posterior(clean), len(rows), rng)
                continue
            out[rows] = self._draw(super()._posterior(moments), len(rows), rng)
            # The cluster has no outlier yet, so that the new item may be the one to have it.
            wild = rows[rng.random(len(rows)) < self._new_outlier(suspects) * out.shape[1]]
            low, high = self._parameter("outlier_range")
            column = rng.integers(out.shape[1], size=len(wild))
            out[wild, column] = rng.uniform(low, high, size=len(wild))
        return out

    def _new_outlier(self, suspects: _Suspects) -> float:
        """Return the probability that one further measurement of a clean cluster is an outlier."""
        if self.outliers == "maximised":
            return 0.0
        weights = self._outlier_weights(float(suspects.entries.copies.sum()), -np.inf)
        return float(np.exp(weights.log_each - weights.log_none))

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill each missing entry with its expected value given the row's observed ones."""
        table, grid = self._table(X), self._grid
        items = self.suffstats(table)
        middle = self._parameter("outlier_range").mean()
        expected = np.zeros_like(table)
        for i in np.flatnonzero(np.isnan(table).any(axis=1)):
            chosen = np.flatnonzero(weights[i] > _LEAST_WEIGHT)
            joined = self.merge(stats[chosen], items[i : i + 1])
            curves = self._posterior(joined).mean + self._parameter("mean")
            clean = super()._posterior(self._cut(joined).moments).mean + self._parameter("mean")
            for k, suspects in enumerate(self._suspects(joined)):
                # The missing entry itself may be the outlier.
                wild = suspects.none * self._new_outlier(suspects)
                curves[k] += wild * (middle - clean[k])
            expected[i] = (weights[i, chosen] @ curves)[grid.position]
        return fill_missing(table, expected)

    def outlier_probability(self, stats: FloatArray) -> FloatArray:
        """Return the probability that each cluster has an outlier, shape ``(m,)``."""
        return np.array([1 - suspects.none for suspects in self._suspects(stats)])

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return what `TimeSeries` says, and the probability of an ``outlier``, (m, 1)."""
        return {**super().summary(stats), "outlier": self.outlier_probability(stats)[:, None]}

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂`` each free hyperparameter."""
        base = self._slopes(self._cut(stats).moments, weights)
        by_covariance, by_variance, by_odds = base.by_covariance.copy(), base.by_variance, 0.0
        for weight, suspects in zip(weights, self._suspects(stats), strict=True):
            extra = suspects.slopes(self._number("noise"))
            by_covariance += weight * extra.by_covariance
            by_variance += weight * extra.by_variance
            by_odds += weight * suspects.odds_slope
        found = self._pull_back(Slopes(by_covariance, float(by_variance)))
        found["outlier_odds"] = np.asarray(by_odds)
        return {spec.name: found[spec.name] for spec in self.free()}


class _Blocks(NamedTuple):
    """Statistics taken apart: moments at each time, counts of known rows, slots of others."""

    moments: FloatArray
    members: FloatArray
    slots: FloatArray


class LeafEntries(NamedTuple):
    """Single rows: moments, entries as seen from the mean, which of them may be outliers.

    ``position`` is the place of each column among the distinct times; ``odds`` are 0 where the
    weight of an outlier is maximised.
    """

    moments: FloatArray
    value: FloatArray
    inside: npt.NDArray[np.bool_]
    position: IntArray
    range_width: float
    n_entries: float
    odds: float


class _Entries(NamedTuple):
    """Measurements of a cluster: value, copies, place of the time, whether in the range."""

    value: FloatArray
    copies: FloatArray
    time: IntArray
    inside: npt.NDArray[np.bool_]


class _Weights(NamedTuple):
    """Log prior of no outlier and of each one, and the slopes of both by the odds."""

    log_none: float
    log_each: float
    slope_none: float
    slope_each: float


class _Centre(NamedTuple):
    """The curve of a cluster at each time, in units of the noise.

    ``expected`` is its mean; ``inverse`` the matrix B⁻¹, ``root`` the roots of the counts,
    ``shrunk`` the product of B⁻¹ with the weighted means; ``kept`` as in
    `RobustTimeSeries._suspects`.
    """

    expected: FloatArray
    kept: FloatArray
    inverse: FloatArray
    root: FloatArray
    shrunk: FloatArray


class _Suspects(NamedTuple):
    """A cluster and the probability of each measurement to be its outlier.

    ``log f = log_c1 + log_gain``; ``none`` and ``each`` add up to one. The rest is what conditions
    on them: see `RobustTimeSeries._suspects`.
    """

    entries: _Entries
    log_c1: float
    log_gain: float
    none: float
    each: FloatArray
    odds_slope: float
    residual: FloatArray
    centre: _Centre

    def by_time(self, values: FloatArray, n_times: int) -> FloatArray:
        """Add up values of measurements at each time."""
        return np.bincount(self.entries.time, values, minlength=n_times).astype(np.float64)

    def slopes(self, noise: float) -> Slopes:
        """Return the slopes of ``log_gain`` by the curve's covariance and the noise variance.

        They are those of ``-Σ each · log p(y_i | the others)``, by ``κ = (K⁻¹)_ii`` and
        ``α = (K⁻¹ y)_i`` of the dense covariance K of all measurements.
        """
        _, kept, inverse, root, shrunk = self.centre
        n_times, variance = len(kept), noise**2
        kappa = kept / variance
        alpha = self.residual / noise
        own = kappa[self.entries.time]
        by_kappa = self.by_time(self.each * (0.5 / own + 0.5 * alpha**2 / own**2), n_times)
        by_alpha = self.by_time(-self.each * alpha / own, n_times)
        # K⁻¹ between measurements and the curve's times; rows of times without any do not count.
        present = np.where(root > 0, root, 1.0)
        gain = inverse * root / present[:, None] / variance
        total = root * shrunk / noise
        bent = np.outer(by_alpha @ gain, total)
        by_covariance = gain.T @ (by_kappa[:, None] * gain) + (bent + bent.T) / 2
        # K⁻² for a change of the noise: I - WVW = B⁻¹ in units of the noise
        squared = np.square(inverse).sum(axis=1)
        turned = (inverse @ shrunk) / present / noise**3
        n = present * present
        by_noise_kappa = (1 + (squared - 1) / n) / variance**2
        mean_alpha = shrunk / present / noise
        by_noise = by_kappa @ by_noise_kappa
        by_noise += self.by_time(-self.each * alpha / own * alpha, n_times).sum() / variance
        by_noise += by_alpha @ (turned - mean_alpha / variance)
        return Slopes(by_covariance, float(by_noise))


def maximised_weights(n: float, log_c2: float) -> tuple[float, float]:
    """Return ``n log b`` and ``(n - 1) log b + log(1 - b)`` at the b that is best for a cluster.

    ``log_c2`` is the log of C₂ / C₁ in ``L(b) = b^n C₁ + b^(n-1) (1 - b) C₂``. Its maximum is at
    ``b = (n - 1) C₂ / (n (C₂ - C₁))`` if ``C₂ > n C₁``, and at 1 otherwise. (For n = 1 that is 0.)

    Examples
    --------
    >>> maximised_weights(4.0, 1.0)
    (0.0, -inf)
    >>> [round(weight, 3) for weight in maximised_weights(2.0, 3.0)]
    [-1.284, -1.389]
    """
    if n == 0 or not log_c2 > np.log(n):
        return 0.0, -np.inf
    if n == 1:
        return -np.inf, 0.0
    log_b = np.log(n - 1) - np.log(n) - np.log(-np.expm1(-log_c2))
    return float(n * log_b), float((n - 1) * log_b + np.log(-np.expm1(log_b)))


def _without(moments: FloatArray, entries: _Entries, i: int) -> FloatArray:
    """Return the moments of a cluster without one of its measurements."""
    out = moments.copy()
    count, mean, deviation = (block[0] for block in feature_blocks(out, 3))
    t = entries.time[i]
    left = count[t] - 1
    gap = entries.value[i] - mean[t]
    mean[t] = mean[t] - gap / left if left else 0.0
    deviation[t] = max(deviation[t] - gap * gap * count[t] / left, 0.0) if left else 0.0
    count[t] = left
    return out


def _log_sum(values: FloatArray) -> float:
    """Return log Σ exp, -inf of nothing."""
    largest = float(values.max(initial=-np.inf))
    if largest == -np.inf:
        return largest
    return largest + math.log(float(np.exp(values - largest).sum()))


def _hashable(table: FloatArray) -> FloatArray:
    """Return rows whose bytes are equal if and only if the rows are."""
    return np.where(np.isnan(table), np.nan, table + 0.0)


def _check_whole(weight: npt.ArrayLike, owner: str) -> None:
    values = np.asarray(weight)
    if (values != np.floor(values)).any():
        raise BhclustError(
            f"{owner} takes whole numbers as weights: a measurement is an outlier or it is not; "
            "use TimeSeries for other weights."
        )
