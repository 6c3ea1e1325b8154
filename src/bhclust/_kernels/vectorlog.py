"""A natural logarithm that compilers turn into vector code.

The library function is a call per number. This one is arithmetic on the bits alone, so a loop over
an array runs in vector registers, at about a nanosecond a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from bhclust._kernels.compile import compiled_fast_inside

# log x = k log 2 + log m with m between √½ and √2; the series in s = (m - 1) / (m + 1) and the
# two parts of log 2 are those of the C library of Sun Microsystems, right to the last digit.
_ROOT_HALF = 0x3FE6A09E667F3BCD
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SERIES_1 = 6.666666666666735130e-01
_SERIES_2 = 3.999999999940941908e-01
_SERIES_3 = 2.857142874366239149e-01
_SERIES_4 = 2.222219843214978396e-01
_SERIES_5 = 1.818357216161805012e-01
_SERIES_6 = 1.531383769920937332e-01
_SERIES_7 = 1.479819860511658591e-01


def _define_to_bits(_context: Any, _number: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


_to_bits: Any = intrinsic(_define_to_bits)


def _define_from_bits(_context: Any, _bits: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


_from_bits: Any = intrinsic(_define_from_bits)


@compiled_fast_inside
def vector_log(x):  # type: ignore[no-untyped-def]
    """Return the log of a normal positive number (neither zero, subnormal, infinite nor NaN)."""
    bits = _to_bits(x)
    exponent = (bits - _ROOT_HALF) >> 52
    f = _from_bits(bits - (exponent << 52)) - 1.0
    k = float(exponent)
    s = np.divide(f, 2.0 + f)  # the operator would look for zero, which vectors cannot do
    z = s * s
    w = z * z
    even = w * (_SERIES_2 + w * (_SERIES_4 + w * _SERIES_6))
    odd = z * (_SERIES_1 + w * (_SERIES_3 + w * (_SERIES_5 + w * _SERIES_7)))
    half_square = 0.5 * f * f
    small = s * (half_square + (even + odd)) + k * _LN2_LOW
    return k * _LN2_HIGH - ((half_square - small) - f)
