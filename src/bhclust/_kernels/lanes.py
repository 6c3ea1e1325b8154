"""Steps of Cholesky factorisations of several matrices at once.

Each matrix has one place in a vector register. Compilers do not keep sums over a short inner loop
in registers, so these loops are written in the compiler's own language.

``work`` holds the entries of the matrices, a row of ``LANES`` numbers an entry; matrices are square
and ``stride`` wide, so that entry (i, j) is row ``i * stride + j``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: matrices side by side
LANES = 8
#: rows and columns of the blocks in which matrices are factorised
TILE = 4

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_FUSED = ("contract",)


class _Rows:
    """Access to an array of rows of LANES numbers."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        self._data = context.make_array(kind)(context, builder, value).data

    def _at(self, row: Any) -> Any:
        place = self._builder.mul(row, ir.Constant(row.type, LANES))
        return self._builder.bitcast(self._builder.gep(self._data, [place]), _VECTOR.as_pointer())

    def load(self, row: Any) -> Any:
        return self._builder.load(self._at(row), align=8)

    def store(self, value: Any, row: Any) -> None:
        self._builder.store(value, self._at(row), align=8)


def _subtract(builder: Any, total: Any, a: Any, b: Any) -> None:
    product = builder.fmul(a, b, flags=_FUSED)
    builder.store(builder.fsub(builder.load(total), product, flags=_FUSED), total)


def _rows_below(builder: Any, first: Any, stride: Any) -> list[Any]:
    steps = [builder.mul(stride, ir.Constant(stride.type, r)) for r in range(TILE)]
    return [builder.add(first, step) for step in steps]


def _define_subtract_tile(_context: Any, work: Any, _a: Any, _b: Any, _stride: Any, _n: Any) -> Any:
    """subtract_tile(work, a, b, stride, n): take rows ``a`` times rows ``b`` off a tile.

    ``work[a + r stride + n + c] -= Σ_{k<n} work[a + r stride + k] work[b + c stride + k]``
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, a, b, stride, n = arguments
        entries = _Rows(context, builder, signature.args[0], array)
        rows, columns = _rows_below(builder, a, stride), _rows_below(builder, b, stride)
        offsets = [builder.add(n, ir.Constant(n.type, c)) for c in range(TILE)]
        sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in columns] for _ in rows]
        for row, totals in zip(rows, sums, strict=True):
            for offset, total in zip(offsets, totals, strict=True):
                builder.store(entries.load(builder.add(row, offset)), total)
        with cgutils.for_range(builder, n) as loop:
            right = [entries.load(builder.add(column, loop.index)) for column in columns]
            for row, totals in zip(rows, sums, strict=True):
                left = entries.load(builder.add(row, loop.index))
                for total, other in zip(totals, right, strict=True):
                    _subtract(builder, total, left, other)
        for row, totals in zip(rows, sums, strict=True):
            for offset, total in zip(offsets, totals, strict=True):
                entries.store(builder.load(total), builder.add(row, offset))
        return context.get_dummy_value()

    return types.void(work, *[types.int64] * 4), generate


def _define_finish_column(
    _context: Any, work: Any, inverse: Any, _a: Any, _b: Any, _stride: Any, _first: Any, _n: Any
) -> Any:
    """finish_column(work, inverse, a, b, stride, first, n): one column of four rows of the factor.

    ``work[a + r stride + n]`` less the products from column ``first`` on, times ``inverse[n]``
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, inverses, a, b, stride, first, n = arguments
        entries = _Rows(context, builder, signature.args[0], array)
        rows = _rows_below(builder, a, stride)
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in rows]
        for row, total in zip(rows, sums, strict=True):
            builder.store(entries.load(builder.add(row, n)), total)
        with cgutils.for_range(builder, n, start=first) as loop:
            other = entries.load(builder.add(b, loop.index))
            for row, total in zip(rows, sums, strict=True):
                _subtract(builder, total, entries.load(builder.add(row, loop.index)), other)
        factor = _Rows(context, builder, signature.args[1], inverses).load(n)
        for row, total in zip(rows, sums, strict=True):
            entries.store(builder.fmul(builder.load(total), factor), builder.add(row, n))
        return context.get_dummy_value()

    return types.void(work, inverse, *[types.int64] * 5), generate


def _define_take_pivot(
    _context: Any, work: Any, inverse: Any, product: Any, _a: Any, _first: Any, _n: Any
) -> Any:
    """take_pivot(work, inverse, product, a, first, n): the pivot of the row at ``a``.

    ``product`` is multiplied by it; ``inverse[n]`` becomes one over its root.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, inverses, products, a, first, n = arguments
        entries = _Rows(context, builder, signature.args[0], array)
        total = cgutils.alloca_once(builder, _VECTOR)
        builder.store(entries.load(builder.add(a, n)), total)
        with cgutils.for_range(builder, n, start=first) as loop:
            own = entries.load(builder.add(a, loop.index))
            _subtract(builder, total, own, own)
        pivot = builder.load(total)
        so_far = _Rows(context, builder, signature.args[2], products)
        zero = ir.Constant(n.type, 0)
        so_far.store(builder.fmul(so_far.load(zero), pivot), zero)
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f64")
        ones = ir.Constant(_VECTOR, [1.0] * LANES)
        into = _Rows(context, builder, signature.args[1], inverses)
        into.store(builder.fdiv(ones, builder.call(root, [pivot])), n)
        return context.get_dummy_value()

    return types.void(work, inverse, product, *[types.int64] * 3), generate


subtract_tile: Any = intrinsic(_define_subtract_tile)
finish_column: Any = intrinsic(_define_finish_column)
take_pivot: Any = intrinsic(_define_take_pivot)
