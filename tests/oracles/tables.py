"""The kind of a column, by its plain definition."""

from __future__ import annotations

import math


def plain_kind(values):
    """Return the inferred kind of a list of Python numbers, bools and missing values."""
    observed = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    if not observed:
        return "real"
    if all(v in (0, 1) for v in observed):
        return "binary"
    if all(isinstance(v, int) and v >= 0 for v in observed):
        return "count"
    return "real"
