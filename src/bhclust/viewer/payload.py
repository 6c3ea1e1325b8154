"""What the viewer's script is given: the arrays of a tree, the rule of its cut, names, data."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust import __version__, posterior
from bhclust._validation import FloatArray
from bhclust.tree import Tree

_TYPES = {"i4": np.int32, "f4": np.float32, "f8": np.float64, "u1": np.uint8}
_LARGEST_F4 = float(np.finfo(np.float32).max)


class Start(NamedTuple):
    """The cut that is shown first: "map", "threshold" or "number", and its value."""

    mode: str
    value: float | int | None


def packed(array: npt.ArrayLike, kind: str) -> dict[str, str]:
    """Return an array as base64 with its type: "i4", "f4", "f8" or "u1", little-endian.

    Numbers that are too large for "f4" become "f8".

    Examples
    --------
    >>> packed([1, 2], "u1")
    {'type': 'u1', 'data': 'AQI='}
    """
    numbers = np.asarray(array)
    if kind == "f4" and np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0) > _LARGEST_F4:
        kind = "f8"
    raw = np.ascontiguousarray(numbers, dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"type": kind, "data": base64.b64encode(raw.tobytes()).decode("ascii")}


def tree_payload(tree: Tree) -> dict[str, Any]:
    """Return the arrays of a tree; what follows from others is left out."""
    has_weights = bool((tree.weight != tree.size).any())
    log_f = tree.log_marginal
    return {
        "nLeaves": tree.n_leaves,
        "parent": packed(tree.parent, "i4"),
        "height": packed(tree.height[tree.n_leaves :], "f8"),
        "weight": packed(tree.weight, "f8") if has_weights else None,
        "logMarginal": None if log_f is None else packed(log_f, "f8"),
    }


def rule_payload(tree: Tree, log_ratio: FloatArray | None) -> dict[str, Any]:
    """Return the numbers that the cut goes by, at internal nodes.

    They are computed here and not in the browser, whose exponentials may differ in the last bit:
    so the labels of a cut are those of `Tree.cut`, ties included.
    """
    n = tree.n_leaves
    if log_ratio is not None:
        return {"kind": "ratio", "logRatio": packed(log_ratio[n:], "f8")}
    if tree.log_odds is None:
        return {"kind": "height"}
    log_stop = -np.logaddexp(0.0, -tree.log_odds[n:])
    return {
        "kind": "posterior",
        "probability": packed(np.exp(log_stop), "f8"),
        "logStop": packed(log_stop, "f8"),
        "logGo": packed(posterior.log_split_probability(tree)[n:], "f8"),
    }


def make_payload(
    tree: Tree,
    *,
    title: str,
    facts: list[str],
    names: list[str],
    start: Start,
    log_ratio: FloatArray | None = None,
    heat: dict[str, Any] | None = None,
    explain: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return everything the page shows, as JSON can hold it."""
    numbered = names == [str(i) for i in range(tree.n_leaves)]
    return {
        "version": __version__,
        "title": title,
        "facts": facts,
        "tree": tree_payload(tree),
        "rule": rule_payload(tree, log_ratio),
        "toScale": log_ratio is not None,
        "start": start._asdict(),
        "names": None if numbered else names,
        "heat": heat,
        "explain": explain,
    }
