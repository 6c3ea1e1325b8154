"""One way to compile: cached on disk, free of the global lock, no functions as arguments."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums and products may be taken in any order; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "arcp"}
_PATIENCE_SECONDS = 1.0
_MESSAGE = (
    "bhclust: compiling kernels for this computer; this happens once, later runs take them from "
    "the disk."
)

_announcing = threading.Event()


def compiled(function: Function) -> Function:
    """Compile a kernel for strict IEEE arithmetic."""
    return _cached(function, fastmath=False)


def compiled_fast(function: Function) -> Function:
    """Compile a kernel whose sums and products may be taken in any order.

    Nothing else is relaxed: NaN and infinity keep their meaning.
    """
    return _cached(function, fastmath=_FAST)


def compiled_inside(function: Function) -> Function:
    """Like `compiled`, for a function that only kernels call.

    It has no entry from the interpreter, which would take a part of the time to compile it.
    """
    return _cached(function, fastmath=False, no_cpython_wrapper=True)


def compiled_fast_inside(function: Function) -> Function:
    """Like `compiled_fast`, for a function that only kernels call."""
    return _cached(function, fastmath=_FAST, no_cpython_wrapper=True)


def copied_inside(function: Function) -> Function:
    """Mark a function whose body is copied into the kernels that call it, with their arithmetic."""
    return numba.njit(inline="always")(function)  # type: ignore[return-value]


def compiled_in(folder: Path) -> Callable[[Function], Function]:
    """Return `compiled` for kernels of another folder, which call each other across its files."""
    return lambda function: _cached(function, folder, fastmath=False)


def _cached(function: Function, folder: Path | None = None, **options: Any) -> Function:
    # Nobody calls kernels from C, and an entry for that would take a tenth of the time to compile.
    options["no_cfunc_wrapper"] = True
    # numba keeps the cache beside the source file, or in the user's cache folder where that is
    # read-only. Where it can write neither, it refuses, and each process compiles for itself.
    try:
        kernel = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, **options)(function)  # type: ignore[return-value]
    _stamp_with_all_sources(kernel, folder)
    return kernel  # type: ignore[return-value]


def _stamp_with_all_sources(kernel: Any, folder: Path | None) -> None:
    """Make a kernel's cache valid only as long as no file with kernels has changed.

    numba looks at the file of the kernel alone. What the kernel calls is compiled into it, and
    after an update of the package, or an edit, a kernel in an unchanged file would go on with the
    old code.
    """
    file: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        digests = [_digest_of_sources(), *([_digest_of_sources(folder)] if folder else [])]
        file._source_stamp = (file._source_stamp, *digests)


@cache
def _digest_of_sources(folder: Path = Path(__file__).parent) -> str:
    # The frontier's fields are constants of the kernels.
    sources = [*sorted(folder.glob("*.py")), folder.parent / "frontier.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()


class _CompilationWatch(event.Listener):  # type: ignore[misc]
    """Counts compilations; loading from the disk cache is none."""

    def __init__(self) -> None:
        self.n_started = 0

    def on_start(self, event: Any) -> None:
        self.n_started += 1

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def announced_compilation() -> Iterator[_CompilationWatch]:
    """Say on the standard error stream what is happening if kernels take long to compile.

    Inside another announcement nothing is done: a timer for each of thousands of small searches
    would cost more than they do.
    """
    watch = _CompilationWatch()
    if _announcing.is_set():
        yield watch
        return

    def speak() -> None:
        if watch.n_started:
            print(_MESSAGE, file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE_SECONDS, speak)
    timer.daemon = True
    event.register("numba:compile", watch)
    timer.start()
    _announcing.set()
    try:
        yield watch
    finally:
        _announcing.clear()
        timer.cancel()
        event.unregister("numba:compile", watch)
