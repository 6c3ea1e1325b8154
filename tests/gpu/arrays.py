"""Arrays of the simulated device: NumPy inside, but as strict as those of a graphics processor.

They never become NumPy arrays by themselves and never meet one in an operation, a reduction is an
array without axes, and the module has only functions that CuPy has too, with the arguments that
CuPy takes. So code that would stop on a card stops here.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.special

from bhclust.models._arrays import Arrays, arrays_of


def _opened(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.inside
    if isinstance(value, tuple):
        return tuple(_opened(one) for one in value)
    if value is None or isinstance(value, (bool, int, float, str, slice, np.generic, np.dtype)):
        return value
    if isinstance(value, type) and issubclass(value, (np.generic, int, float, bool)):
        return value  # a kind of number
    raise TypeError(f"unsupported type on the device: {type(value)}")


def _closed(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return DeviceArray(np.asarray(value))
    return tuple(_closed(one) for one in value) if isinstance(value, tuple) else value


class DeviceArray:
    """An array that only the device's own functions touch."""

    __array_ufunc__ = None  # NumPy arrays and functions refuse it
    __iter__ = None
    __hash__ = None

    def __init__(self, inside: np.ndarray) -> None:
        self.inside = inside

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed; use device.get")

    def __getattr__(self, name: str) -> Any:
        if name in _PLAIN:
            return getattr(self.inside, name)
        if name in _METHODS:
            method = getattr(self.inside, name)
            return lambda *a, **k: _closed(method(*map(_opened, a), **_opened_values(k)))
        raise AttributeError(name)

    @property
    def T(self) -> DeviceArray:
        return DeviceArray(self.inside.T)

    def __len__(self) -> int:
        return len(self.inside)

    def __bool__(self) -> bool:
        return bool(self.inside)

    def __float__(self) -> float:
        return float(self.inside)

    def __getitem__(self, index: Any) -> DeviceArray:
        return _closed(self.inside[_opened(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.inside[_opened(index)] = _opened(value)


_PLAIN = ("shape", "ndim", "dtype", "size", "nbytes", "ctypes")
_METHODS = ("sum", "any", "all", "argmax", "reshape", "transpose", "astype", "ravel")
_BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "and",
    "or",
    "xor",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]


def _opened_values(options: dict[str, Any]) -> dict[str, Any]:
    return {name: _opened(value) for name, value in options.items()}


def _give_operators() -> None:
    def both_ways(name: str) -> None:
        function = getattr(operator, f"__{name}__")

        def forward(self: DeviceArray, other: Any) -> Any:
            return _closed(function(self.inside, _opened(other)))

        def backward(self: DeviceArray, other: Any) -> Any:
            return _closed(function(_opened(other), self.inside))

        def in_place(self: DeviceArray, other: Any) -> Any:
            self.inside[...] = function(self.inside, _opened(other))
            return self

        setattr(DeviceArray, f"__{name}__", forward)
        if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
            setattr(DeviceArray, f"__r{name}__", backward)
            setattr(DeviceArray, f"__i{name}__", in_place)

    for name in _BINARY:
        both_ways(name)
    for name in ("neg", "invert"):
        function = getattr(operator, f"__{name}__")
        setattr(
            DeviceArray,
            f"__{name}__",
            lambda self, function=function: _closed(function(self.inside)),
        )


_give_operators()


def _on_device(function: Any) -> Any:
    def called(*arguments: Any, **options: Any) -> Any:
        if not any(isinstance(a, DeviceArray) for a in arguments):
            raise TypeError(f"{function.__name__} got no array of the device")
        return _closed(function(*map(_opened, arguments), **_opened_values(options)))

    return called


def _made(function: Any) -> Any:
    return lambda *a, **k: _closed(function(*map(_opened, a), **_opened_values(k)))


def asarray(value: Any) -> DeviceArray:
    """Copy numbers to the device."""
    return value if isinstance(value, DeviceArray) else DeviceArray(np.array(value))


_FUNCTIONS = [
    "ascontiguousarray",
    "where",
    "log",
    "log1p",
    "sqrt",
    "square",
    "isnan",
    "flatnonzero",
    "take",
    "cumsum",
    "diagonal",
    "diag",
    "dot",
    "tensordot",
    "trace",
]

module = SimpleNamespace(
    ndarray=DeviceArray,
    asarray=asarray,
    **{name: _on_device(getattr(np, name)) for name in _FUNCTIONS},
    **{name: _made(getattr(np, name)) for name in ("zeros", "empty", "arange")},
    linalg=SimpleNamespace(
        **{name: _on_device(getattr(np.linalg, name)) for name in ("cholesky", "inv", "solve")}
    ),
)
formulas = Arrays(module, _on_device(scipy.special.gammaln), _on_device(scipy.special.digamma))
arrays_of.register(DeviceArray, lambda array: formulas)
