"""One way to compile: cached on disk, free of the global lock, no functions as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a kernel for strict IEEE arithmetic."""
    return numba.njit(cache=True, nogil=True)(function)  # type: ignore[return-value]


def compiled_fast(function: Function) -> Function:
    """Compile a kernel whose sums and products may be taken in any order.

    Nothing else is relaxed: NaN and infinity keep their meaning.
    """
    options = {"reassoc", "contract", "arcp"}
    return numba.njit(cache=True, nogil=True, fastmath=options)(function)  # type: ignore[return-value]
