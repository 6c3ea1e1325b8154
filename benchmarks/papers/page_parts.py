"""Pieces of the page: tables, numbers with errors, and the verdict on a reproduced value."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Cell(NamedTuple):
    """A mean with its standard error."""

    mean: float
    error: float


def cell(mean: float, error: float, digits: int = 3) -> str:
    """Return ``mean ± error``."""
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def paragraph(text: str) -> str:
    """Return a paragraph in lines of the house's length."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def section(title: str, script: str, *parts: str) -> str:
    """Return a section with the script that makes it."""
    return "\n".join([f"### {title}\n", f"Script: `benchmarks/papers/{script}.py`.\n", *parts])


def verdict(paper: Cell, ours: Cell, *, spread: float = 0.0, higher_is_better: bool = True) -> str:
    """Return how a reproduced value stands to the paper's; the page's introduction explains it."""
    gap = ours.mean - paper.mean
    if abs(gap) <= 2 * np.hypot(paper.error, ours.error):
        return "within"
    if (gap > 0) == higher_is_better:
        return "better"
    return "other draw" if abs(gap) <= 2 * np.hypot(spread, paper.error) else "differs"
