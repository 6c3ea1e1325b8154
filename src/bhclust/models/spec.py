"""Models as plain numbers and words, for files: no pickle, no code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from bhclust._validation import BhclustError, FileFormatError, FloatArray
from bhclust.models.base import ClusterModel
from bhclust.models.discrete import Bernoulli, Categorical, Multinomial, Poisson
from bhclust.models.gaussian import DiagonalGaussian, Gaussian
from bhclust.models.gp_expert import GaussianProcessExpert
from bhclust.models.inducing import InducingPointExpert
from bhclust.models.product import Mixed
from bhclust.models.robust_series import RobustTimeSeries
from bhclust.models.time_series import TimeSeries

_SHIPPED: tuple[type[ClusterModel], ...] = (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Gaussian,
    GaussianProcessExpert,
    InducingPointExpert,
    Mixed,
    Multinomial,
    Poisson,
    RobustTimeSeries,
    TimeSeries,
)


def model_spec(model: ClusterModel) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """Take a model apart into a header for JSON and named arrays.

    A model of one's own can be written if its fields are arrays, numbers, words, None, or tuples
    of these.

    Examples
    --------
    >>> from bhclust.models import Poisson
    >>> header, arrays = model_spec(Poisson(shape=2.0))
    >>> header["class"], header["fields"]["shape"], arrays
    ('Poisson', 2.0, {})
    """
    name = type(model).__name__
    if type(model) not in _SHIPPED and name in _by_name(()):
        raise BhclustError(
            f"A model of one's own cannot be saved under the name {name}, which is taken; "
            "rename the class or save the tree only."
        )
    arrays: dict[str, FloatArray] = {}
    if isinstance(model, Mixed):
        headers = []
        for k, (part, columns) in enumerate(model.parts):
            header, inner = model_spec(part)
            group = list(columns) if isinstance(columns, tuple) else [columns]
            headers.append({"model": header, "columns": group})
            arrays.update({f"{k}.{key}": array for key, array in inner.items()})
        widths = None if model.widths is None else list(model.widths)
        return {"class": name, "parts": headers, "fields": {"widths": widths}}, arrays
    plain: dict[str, Any] = {}
    for entry in fields(model):
        value = getattr(model, entry.name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[entry.name] = np.asarray(value, dtype=np.float64)
        else:
            plain[entry.name] = _plain(value, f"{name}.{entry.name}")
    return {"class": name, "fields": plain, "arrays": sorted(arrays)}, arrays


def model_from_spec(
    header: Mapping[str, Any],
    arrays: Mapping[str, FloatArray],
    *,
    known: Iterable[type[ClusterModel]] = (),
) -> ClusterModel:
    """Put a model together again from what `model_spec` returned.

    Parameters
    ----------
    header : mapping
        The header.
    arrays : mapping of str to array
        The named arrays.
    known : iterable of classes
        Models of one's own that the header may name.

    Examples
    --------
    >>> from bhclust.models import Poisson
    >>> model_from_spec(*model_spec(Poisson(shape=2.0)))
    Poisson(shape=2.0, rate=None)
    """
    return _build(header, arrays, "", _by_name(known))


def _build(
    header: Mapping[str, Any],
    arrays: Mapping[str, FloatArray],
    prefix: str,
    classes: Mapping[str, type[ClusterModel]],
) -> ClusterModel:
    try:
        name, values = header["class"], dict(header["fields"])
        if name not in classes:
            raise FileFormatError(
                f"The file holds a model of class {name!r}, which is not one of bhclust's; load "
                f"it with known=[{name}], or load the tree only."
            )
        kind = classes[name]
        for key in header.get("arrays", ()):
            values[key] = np.asarray(arrays[prefix + key], dtype=np.float64)
        if kind is Mixed:
            values["parts"] = [
                (_build(part["model"], arrays, f"{prefix}{k}.", classes), part["columns"])
                for k, part in enumerate(header["parts"])
            ]
        values = {key: _tupled(value) for key, value in values.items()}
        return _checked(kind(**values))
    except FileFormatError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FileFormatError(
            f"The description of the model in the file is damaged ({error})."
        ) from None


def _checked(model: ClusterModel) -> ClusterModel:
    """Pass the numbers through the model's own checks, which also make them read-only."""
    if isinstance(model, Mixed):
        return model
    settled = {
        spec.name: getattr(model, spec.name)
        for spec in model.free()
        if isinstance(getattr(model, spec.name), np.ndarray)
    }
    for value in vars(model).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return model.with_hyperparameters(settled)


def _by_name(known: Iterable[type[ClusterModel]]) -> dict[str, type[ClusterModel]]:
    return {kind.__name__: kind for kind in (*known, *_SHIPPED)}


def _plain(value: Any, owner: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_plain(entry, owner) for entry in value]
    raise BhclustError(
        f"{owner} is a {type(value).__name__}, which a file cannot hold; keep arrays, numbers and "
        "words in a model's fields, or save the tree only."
    )


def _tupled(value: Any) -> Any:
    return tuple(_tupled(entry) for entry in value) if isinstance(value, list) else value
