"""A product of models, each over its own columns: tables of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bhclust._validation import (
    BhclustError,
    FloatArray,
    check_matrix,
    check_n_columns,
    listed,
)
from bhclust.models._arrays import arrays_of
from bhclust.models.base import (
    ClusterModel,
    Column,
    FeatureLevels,
    Hyperparameter,
    Kind,
    Missing,
)

# From what asks least of missing values to what asks most.
_STRICTNESS: tuple[Missing, ...] = ("exact", "row", "error")


class Part(NamedTuple):
    """One model and the columns it describes, by name or by position."""

    model: ClusterModel
    columns: tuple[str | int, ...]


class _Slice(NamedTuple):
    """One part of a resolved product: its model, its columns, its block of the statistics."""

    model: ClusterModel
    positions: tuple[int, ...]
    block: slice


@dataclass(frozen=True, eq=False)
class Mixed(ClusterModel):
    """Independent models over groups of columns; log f is the sum of the parts'.

    Every column belongs to exactly one part. Missing values are treated as the parts treat them.

    Parameters
    ----------
    parts : sequence of (model, columns)
        Each model with the columns it describes, by name or by position; a single name or
        position may stand for a group of one.
    widths : tuple of int, optional
        Number of statistics of each part; set by `resolve`.

    Notes
    -----
    Statistics: those of the first part, then those of the second, and so on. Hyperparameters and
    summaries are named after the part, ``"0.a"``, ``"1.concentration"``.

    Examples
    --------
    >>> import numpy as np
    >>> from bhclust.models import Bernoulli, DiagonalGaussian, Mixed
    >>> X = np.array([[1, 3.2], [1, np.nan], [0, -1.0]])
    >>> model = Mixed([(Bernoulli(), 0), (DiagonalGaussian(), 1)]).resolve(X)
    >>> model.suffstats(X).shape
    (3, 5)
    >>> [name for name, domain in model.free()]
    ['0.a', '0.b', '1.mean', '1.strength', '1.shape', '1.rate']
    """

    parts: Sequence[tuple[ClusterModel, Sequence[str | int] | str | int]]
    widths: tuple[int, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Bring the parts into one form and take over what they ask of the data."""
        parts = tuple(Part(model, _group(columns)) for model, columns in self.parts)
        if not parts:
            raise BhclustError("Mixed needs at least one part (model, columns).")
        specs = tuple(
            Hyperparameter(f"{k}.{spec.name}", spec.domain)
            for k, (model, _) in enumerate(parts)
            for spec in model.hyperparameters
        )
        strictest = max(_STRICTNESS.index(model.missing) for model, _ in parts)
        # The dataclass is frozen; these three follow from the parts and are set once, here.
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "hyperparameters", specs)
        object.__setattr__(self, "missing", _STRICTNESS[strictest])

    def _parts(self) -> tuple[Part, ...]:
        return tuple(Part(model, _group(columns)) for model, columns in self.parts)

    def column_kinds(self, names: Sequence[str]) -> tuple[Kind, ...]:
        """Return the kind of data wanted in each column of a table with these names."""
        kinds: dict[int, Kind] = {}
        for model, columns in self._positioned(names):
            inside = [names[j] for j in columns]
            kinds.update(zip(columns, model.column_kinds(inside), strict=True))
        return tuple(kinds[j] for j in range(len(names)))

    def for_columns(self, columns: Sequence[Column]) -> Self:
        """Turn names into positions and hand each part its columns."""
        parts = [
            Part(model.for_columns([columns[j] for j in positions]), positions)
            for model, positions in self._positioned([column.name for column in columns])
        ]
        return replace(self, parts=parts)

    def resolve(self, X: Any, weight: npt.ArrayLike | None = None) -> Self:
        """Resolve each part on its columns."""
        table = check_matrix(X, owner="Mixed")
        parts, widths = [], []
        for model, positions in self._positioned(None, table.shape[1]):
            inside = np.ascontiguousarray(table[:, positions])
            resolved = model.resolve(inside, weight)
            parts.append(Part(resolved, positions))
            widths.append(resolved.suffstats(inside[:0]).shape[1])
        return replace(self, parts=parts, widths=tuple(widths))

    def _positioned(
        self, names: Sequence[str] | None, n_columns: int | None = None
    ) -> list[tuple[ClusterModel, tuple[int, ...]]]:
        """Return the parts with positions for names; every column must be in exactly one."""
        n = len(names) if names is not None else n_columns or 0
        found: list[tuple[ClusterModel, tuple[int, ...]]] = []
        owners: dict[int, int] = {}
        for k, (model, columns) in enumerate(self._parts()):
            positions = tuple(_position(column, names, n) for column in columns)
            for j in positions:
                if j in owners:
                    raise BhclustError(
                        f"Mixed: {_name(j, names)} is in part {owners[j]} and in part {k}; "
                        "a column belongs to one part."
                    )
                owners[j] = k
            found.append((model, positions))
        left = [_name(j, names) for j in range(n) if j not in owners]
        if left:
            raise BhclustError(
                f"Mixed: {listed(left)} belong(s) to no part; add a part or leave the column out "
                "of the table."
            )
        return found

    def blocks(self, stats: FloatArray) -> list[tuple[ClusterModel, FloatArray]]:
        """Return each part's model with its own columns of the statistics."""
        contiguous = arrays_of(stats).xp.ascontiguousarray
        return [(part.model, contiguous(stats[:, part.block])) for part in self._slices()]

    def _slices(self) -> Iterator[_Slice]:
        if self.widths is None:
            raise BhclustError("Mixed is not resolved yet: call resolve(X) first.")
        start = 0
        for (model, columns), width in zip(self._parts(), self.widths, strict=True):
            positions = tuple(int(j) for j in columns)
            yield _Slice(model, positions, slice(start, start + width))
            start += width

    def _n_columns(self) -> int:
        return sum(len(columns) for _, columns in self._parts())

    def _table(self, X: Any) -> FloatArray:
        table = check_matrix(X, owner="Mixed")
        check_n_columns(table, self._n_columns(), owner="Mixed")
        return table

    def _by_block(
        self, function: Callable[[ClusterModel, FloatArray], FloatArray], stats: FloatArray
    ) -> list[FloatArray]:
        return [function(model, block) for model, block in self.blocks(stats)]

    def _columns_from(
        self, shape: tuple[int, int], function: Callable[[_Slice], FloatArray]
    ) -> FloatArray:
        """Put what each part gives for its columns into table order."""
        out = np.empty(shape)
        for part in self._slices():
            out[:, part.positions] = function(part)
        return out

    def suffstats(self, X: Any) -> FloatArray:
        """Return the statistics of the parts side by side."""
        table = self._table(X)
        return np.hstack([part.model.suffstats(_take(table, part)) for part in self._slices()])

    def merge(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the statistics of the unions, row by row; one side may be a single row."""
        return np.hstack(
            [part.model.merge(a[:, part.block], b[:, part.block]) for part in self._slices()]
        )

    def repeat(self, stats: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the statistics of each cluster taken ``weight`` times over."""
        return np.hstack(self._by_block(lambda model, own: model.repeat(own, weight), stats))

    def log_marginal(self, stats: FloatArray) -> FloatArray:
        """Return ``log f(D)`` of each cluster, the sum over the parts."""
        terms = self._by_block(lambda model, own: model.log_marginal(own), stats)
        return sum(terms[1:], start=terms[0])

    def log_predictive(self, stats: FloatArray, X: Any) -> FloatArray:
        """Return ``log f(x | D)``, the sum over the parts."""
        table = self._table(X)
        out = np.zeros((len(table), len(stats)))
        for part in self._slices():
            own = np.ascontiguousarray(stats[:, part.block])
            out += part.model.log_predictive(own, _take(table, part))
        return out

    def sample(self, stats: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n independent items from the posterior predictive of one cluster."""
        shape = (n, self._n_columns())
        return self._columns_from(
            shape, lambda part: part.model.sample(stats[:, part.block], n, rng)
        )

    def impute(self, stats: FloatArray, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Fill missing entries as the parts do; a part without holes is left alone."""
        table = self._table(X)

        def fill(part: _Slice) -> FloatArray:
            own = _take(table, part)
            if not np.isnan(own).any():
                return own
            return part.model.impute(stats[:, part.block], own, weights)

        return self._columns_from(table.shape, fill)

    def feature_contributions(self, stats_a: FloatArray, stats_b: FloatArray) -> FloatArray:
        """Return the log Bayes factor for keeping a and b apart, in table order, ``(m, d)``.

        A part that does not factorise puts its total on its first column.
        """

        def contributions(part: _Slice) -> FloatArray:
            own = part.model.feature_contributions(stats_a[:, part.block], stats_b[:, part.block])
            wide = np.zeros((len(own), len(part.positions)))
            wide[:, : own.shape[1]] = own
            return wide

        n_rows = np.broadcast_shapes((len(stats_a),), (len(stats_b),))[0]
        return self._columns_from((n_rows, self._n_columns()), contributions)

    def feature_levels(self, stats: FloatArray) -> FeatureLevels:
        """Return the levels of the parts, in table order; a part without any has none."""
        quantity = [""] * self._n_columns()
        values, features = [np.empty((len(stats), 0))], [np.empty(0, dtype=np.intp)]
        for part in self._slices():
            own = part.model.feature_levels(stats[:, part.block])
            if own is None:
                continue
            values.append(own.value)
            features.append(np.asarray(part.positions, dtype=np.intp)[own.feature])
            for position, words in zip(part.positions, own.quantity, strict=True):
                quantity[position] = words
        feature = np.concatenate(features)
        order = np.argsort(feature, kind="stable")
        value = np.hstack(values)[:, order]
        return FeatureLevels(value, feature[order], tuple(quantity))

    def summary(self, stats: FloatArray) -> dict[str, FloatArray]:
        """Return the summaries of the parts, named ``"0.probability"`` and so on."""
        return {
            f"{k}.{name}": array
            for k, part in enumerate(self._slices())
            for name, array in part.model.summary(stats[:, part.block]).items()
        }

    def gradient(self, stats: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Return the gradients of the parts, named ``"0.a"`` and so on."""
        return {
            f"{k}.{name}": array
            for k, (model, own) in enumerate(self.blocks(stats))
            for name, array in model.gradient(own, weights).items()
        }

    def free(self) -> tuple[Hyperparameter, ...]:
        """Return the learnable hyperparameters of the parts, named ``"0.a"`` and so on."""
        return tuple(
            Hyperparameter(f"{k}.{spec.name}", spec.domain)
            for k, (model, _) in enumerate(self._parts())
            for spec in model.free()
        )

    def learnable(self, stats: FloatArray) -> tuple[str, ...]:
        """Return those names of `free` whose evidence the parts trust."""
        return tuple(
            f"{k}.{name}"
            for k, (model, block) in enumerate(self.blocks(stats))
            for name in model.learnable(block)
        )

    def hyperparameter(self, name: str) -> FloatArray:
        """Return the current value of one of the names that `free` lists."""
        k, inner = self._address(name)
        return self._parts()[k].model.hyperparameter(inner)

    def with_hyperparameters(self, values: Mapping[str, npt.ArrayLike]) -> Self:
        """Return a copy with some hyperparameters replaced."""
        shares: dict[int, dict[str, npt.ArrayLike]] = {}
        for name, value in values.items():
            k, inner = self._address(name)
            shares.setdefault(k, {})[inner] = value
        parts = [
            Part(model.with_hyperparameters(shares[k]) if k in shares else model, columns)
            for k, (model, columns) in enumerate(self._parts())
        ]
        return replace(self, parts=parts)

    def _address(self, name: str) -> tuple[int, str]:
        number, _, inner = name.partition(".")
        if not (inner and number.isdecimal() and int(number) < len(self.parts)):
            raise BhclustError(
                f"Mixed has no hyperparameter {name!r}; names are like '0.mean', part number first."
            )
        return int(number), inner


def _group(columns: Sequence[str | int] | str | int) -> tuple[str | int, ...]:
    if isinstance(columns, (str, int, np.integer)):
        return (columns if isinstance(columns, str) else int(columns),)
    return tuple(column if isinstance(column, str) else int(column) for column in columns)


def _name(j: int, names: Sequence[str] | None) -> str:
    return f"column {j}" if names is None else f"column {names[j]!r}"


def _position(column: str | int, names: Sequence[str] | None, n: int) -> int:
    if isinstance(column, str):
        if names is None:
            raise BhclustError(
                f"Mixed: column {column!r} is a name, but the table has none; pass a DataFrame "
                "to an estimator, call for_columns(columns) first, or give positions."
            )
        if column not in names:
            raise BhclustError(f"Mixed: no column {column!r} among {listed(list(names))}.")
        return list(names).index(column)
    if not 0 <= column < n:
        raise BhclustError(f"Mixed: position {column} is outside the table's {n} column(s).")
    return column


def _take(table: FloatArray, part: _Slice) -> FloatArray:
    return np.ascontiguousarray(table[:, part.positions])
