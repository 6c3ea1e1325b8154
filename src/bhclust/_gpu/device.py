"""What the search asks of a device, and the CUDA device behind it.

Tests have a second device that runs the same kernels on a processor, thread by thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, check_choice, optional_import
from bhclust.models._arrays import Arrays, arrays_of

Words = npt.NDArray[np.int64]
DeviceName = Literal["cpu", "cuda", "auto"]

# From so many rows on, device="auto" takes a graphics processor: below, starting it costs more.
DEVICE_ROWS = 5000

# In this order: each file uses those before it.
_SOURCES = (
    "numbers.cuh",
    "scores.cuh",
    "parts.cuh",
    "categorical.cuh",
    "gaussian.cuh",
    "models.cuh",
    "entries.cuh",
    "board.cuh",
    "runs.cuh",
    "search.cuh",
    "pairs.cuh",
)


class Program(Protocol):
    """Compiled kernels."""

    def write_record(self, words: Words) -> None:
        """Write the record that the kernels read from constant memory."""

    def launch(
        self,
        kernel: str,
        n_blocks: int,
        shared_bytes: int,
        arguments: Sequence[Any] = (),
        *,
        wait: bool = True,
    ) -> None:
        """Run a kernel, to its end or after what was launched before.

        Arguments are integers and arrays of the device.
        """


class Device(Protocol):
    """Arrays and kernels on a device.

    ``arrays`` is a module like NumPy; ``warp`` the number of threads that run in step,
    ``n_blocks`` how many blocks can wait for each other, ``shared_bytes`` what a block may use.
    """

    name: str
    arrays: Any
    warp: int
    n_threads: int
    n_blocks: int
    shared_bytes: int

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device."""

    def get(self, array: Any) -> npt.NDArray[Any]:
        """Copy an array from the device."""

    def address(self, array: Any) -> int:
        """Return where an array of the device begins."""

    def free(self) -> int:
        """Return how many bytes of memory are free."""

    def require(self, n_bytes: int, what: str) -> None:
        """Raise unless so much memory is free."""

    def program(self, kernels: tuple[str, ...]) -> Program:
        """Compile some kernels, each given as a C++ expression."""


def check_device(device: DeviceName | Device, owner: str) -> None:
    """Raise unless this is a device or the name of one."""
    if not hasattr(device, "program"):
        check_choice(device, ("cpu", "cuda", "auto"), name="device", owner=owner)


def kernel_source(*, platform: bool = True) -> str:
    """Return the source of all kernels; without the platform for a device of another kind."""
    folder = resources.files("bhclust._gpu") / "cuda"
    names = ("platform.cuh", *_SOURCES) if platform else _SOURCES
    return "\n".join((folder / name).read_text("utf-8") for name in names)


class CudaDevice:
    """One CUDA device through CuPy."""

    name = "cuda"
    warp = 32
    n_threads = 512

    def __init__(self) -> None:
        self.arrays = optional_import("cupy", extra="gpu", needed_for="device='cuda'")
        try:
            n_devices = self.arrays.cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy has an error class of its own for every library
            raise BhclustError(
                f"device='cuda' found no working CUDA driver ({error}); install the driver of the "
                "graphics processor, or use device='cpu'."
            ) from None
        if n_devices == 0:
            raise BhclustError(
                "device='cuda' found no graphics processor on this machine; use device='cpu'."
            )
        self._device = self.arrays.cuda.Device()
        attributes = self._device.attributes
        if not attributes["CooperativeLaunch"]:
            raise BhclustError(
                "device='cuda' needs a graphics processor whose blocks can wait for each other "
                "(compute capability 6.0 or newer); use device='cpu'."
            )
        special = optional_import("cupyx.scipy.special", extra="gpu", needed_for="device='cuda'")
        formulas = Arrays(self.arrays, special.gammaln, special.digamma)
        arrays_of.register(self.arrays.ndarray, lambda array: formulas)
        self.n_blocks = int(attributes["MultiProcessorCount"])
        self.shared_bytes = int(attributes["MaxSharedMemoryPerBlockOptin"])

    def put(self, array: npt.NDArray[Any]) -> Any:
        return self.arrays.asarray(np.ascontiguousarray(array))

    def get(self, array: Any) -> npt.NDArray[Any]:
        return np.asarray(self.arrays.asnumpy(array))

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def free(self) -> int:
        self.arrays.get_default_memory_pool().free_all_blocks()
        return int(self.arrays.cuda.runtime.memGetInfo()[0])

    def require(self, n_bytes: int, what: str) -> None:
        free, total = self.free(), self.arrays.cuda.runtime.memGetInfo()[1]
        if n_bytes > free:
            raise BhclustError(
                f"{what} needs about {n_bytes:,} bytes on the graphics processor, but {free:,} of "
                f"its {total:,} are free; fit fewer rows, end other programs on it, or use "
                "device='cpu'."
            )

    def program(self, kernels: tuple[str, ...]) -> Program:
        return _compiled(kernels, self.n_threads)


class _CudaProgram:
    def __init__(self, kernels: tuple[str, ...], n_threads: int) -> None:
        self._cupy = optional_import("cupy", extra="gpu", needed_for="device='cuda'")
        self._n_threads = n_threads
        self._module = self._cupy.RawModule(
            code=kernel_source(),
            options=("-std=c++17", f"-DBHCLUST_THREADS={n_threads}"),
            name_expressions=kernels,
            enable_cooperative_groups=True,
        )
        self._module.compile()

    def write_record(self, words: Words) -> None:
        target = self._module.get_global("record")
        target.copy_from_host(words.ctypes.data, words.nbytes)

    def launch(
        self,
        kernel: str,
        n_blocks: int,
        shared_bytes: int,
        arguments: Sequence[Any] = (),
        *,
        wait: bool = True,
    ) -> None:
        function = self._module.get_function(kernel)
        function.max_dynamic_shared_size_bytes = shared_bytes
        typed = tuple(np.int64(a) if isinstance(a, int) else a for a in arguments)
        function((n_blocks,), (self._n_threads,), typed, shared_mem=shared_bytes)
        if wait:
            self._cupy.cuda.get_current_stream().synchronize()


@lru_cache(maxsize=64)
def _compiled(kernels: tuple[str, ...], n_threads: int) -> _CudaProgram:
    return _CudaProgram(kernels, n_threads)


@lru_cache(maxsize=1)
def cuda_device() -> CudaDevice:
    """Return the CUDA device, or say why there is none."""
    return CudaDevice()


def has_cuda() -> bool:
    """Whether there is a CUDA device that `cuda_device` would return."""
    try:
        cuda_device()
    except (ImportError, BhclustError):
        return False
    return True
