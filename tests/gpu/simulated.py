"""A device whose kernels are the CUDA sources, compiled for the processor by ``simulator.h``."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bhclust._gpu.device import kernel_source
from bhclust._validation import BhclustError
from tests.gpu import arrays

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
_FOLDER = Path(tempfile.gettempdir()) / "bhclust-simulated-kernels"

_LAUNCHER = """
extern "C" int launch_{number}(int blocks, int threads, long doubles, unsigned seed, void** a) {{
    return simulator::run(blocks, threads, doubles, seed, [=] {{ {call}; }});
}}
"""


def _call(kernel: str) -> str:
    """Return the C++ call of a kernel with the arguments that it takes."""
    arguments = {
        "search": (),
        "first_pairs": ("i64", "i64"),
        "fold_products": ("i64", "i64", "i64", "i64", "const double*", "const double*"),
        "joint_densities": ("i64", "i64", "i64", "const double*", "double*"),
        "leaf_log_marginals": ("i64", "double*"),
        "mixture_densities": ("i64", "i64", "const double*", "double*"),
    }[kernel.split("<")[0]]
    values = [
        f"({kind})a[{k}]" if "*" in kind else f"(i64)(intptr_t)a[{k}]"
        for k, kind in enumerate(arguments)
    ]
    return f"{kernel}({', '.join(values)})"


class SimulatedProgram:
    """Kernels in a shared library."""

    def __init__(self, kernels: tuple[str, ...], device: SimulatedDevice) -> None:
        self._kernels, self._device = kernels, device
        source = "\n".join(
            [
                "#define BHCLUST_THREADS 1",
                (HERE / "simulator.h").read_text("utf-8"),
                kernel_source(platform=False),
                *(
                    _LAUNCHER.format(number=k, call=_call(kernel))
                    for k, kernel in enumerate(kernels)
                ),
            ]
        )
        self._library = ctypes.CDLL(str(_compiled(source)))
        self._library.address_of_record.restype = ctypes.c_void_p

    def write_record(self, words: np.ndarray) -> None:
        ctypes.memmove(self._library.address_of_record(), words.ctypes.data, words.nbytes)

    def launch(
        self,
        kernel: str,
        n_blocks: int,
        shared_bytes: int,
        arguments: Sequence[Any] = (),
        *,
        wait: bool = True,
    ) -> None:
        assert shared_bytes <= self._device.shared_bytes
        values = [a if isinstance(a, int) else a.ctypes.data for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*values)
        function = getattr(self._library, f"launch_{self._kernels.index(kernel)}")
        threads, seed = self._device.n_threads, next(self._device.seeds)
        shared = ctypes.c_long(shared_bytes // 8)
        if function(n_blocks, threads, shared, ctypes.c_uint(seed), pointers):
            raise AssertionError(f"the threads of {kernel} wait for each other for ever")


def _compiled(source: str) -> Path:
    """Return the library of a source, from an earlier run of the tests if it is there."""
    assert COMPILER is not None
    _FOLDER.mkdir(exist_ok=True)
    target = _FOLDER / f"{hashlib.sha256(source.encode()).hexdigest()[:32]}.so"
    if not target.exists():
        text = target.with_suffix(".cpp")
        text.write_text(source, "utf-8")
        made = target.with_suffix(f".{ctypes.pythonapi.PyThread_get_thread_ident() % 99991}.part")
        options = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-U_FORTIFY_SOURCE"]
        subprocess.run([COMPILER, *options, str(text), "-o", str(made)], check=True)
        made.replace(target)
    return target


class SimulatedDevice:
    """Three blocks of two short warps, scheduled at random."""

    name = "simulated"
    arrays = arrays.module
    warp = 8
    n_threads = 16
    n_blocks = 3

    def __init__(self, shared_bytes: int = 1 << 18, free_bytes: int = 1 << 40) -> None:
        self.shared_bytes, self.free_bytes = shared_bytes, free_bytes
        self.seeds = itertools.count(1)
        self._programs: dict[tuple[str, ...], SimulatedProgram] = {}

    def put(self, array: Any) -> Any:
        return arrays.DeviceArray(np.array(array, order="C"))

    def get(self, array: Any) -> Any:
        return np.array(array.inside)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def free(self) -> int:
        return self.free_bytes

    def require(self, n_bytes: int, what: str) -> None:
        if n_bytes > self.free_bytes:
            raise BhclustError(f"{what} needs about {n_bytes:,} bytes")

    def program(self, kernels: tuple[str, ...]) -> SimulatedProgram:
        if kernels not in self._programs:
            self._programs[kernels] = SimulatedProgram(kernels, self)
        return self._programs[kernels]


@cache
def simulated_device() -> SimulatedDevice:
    """Return the device that the tests share, with its compiled kernels."""
    return SimulatedDevice()
