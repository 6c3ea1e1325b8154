"""What commands print: text for people, JSON for machines, CSV for both."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

import bhclust
from bhclust.io import atomic_write_bytes
from bhclust.report.terminal import Style


def terminal_width() -> int:
    """Return the number of columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def can_show(characters: str, stream: TextIO) -> bool:
    """Whether a stream's encoding has these characters."""
    try:
        characters.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def style() -> Style:
    """Return what standard output can show."""
    return Style(terminal_width(), can_show("─│┌└├┤┬┴┼…", sys.stdout))


def say(text: str) -> None:
    """Print text for people; what the encoding cannot show becomes question marks."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    click.echo(text.encode(encoding, "replace").decode(encoding))


def say_json(command: str, content: dict[str, Any]) -> None:
    """Print one JSON object: what was asked, by which release, and the answer."""
    head = {"command": command, "bhclust_version": bhclust.__version__}
    click.echo(json.dumps(_plain({**head, **content}), allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_csv(header: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None) -> None:
    """Write a CSV table in UTF-8 to a file, in full or not at all, or to standard output."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_bytes(text.getvalue().encode("utf-8"), out)


def write_bytes(content: bytes, out: Path | None) -> None:
    """Write to a file, in full or not at all, or to standard output."""
    if out is not None:
        atomic_write_bytes(out, content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
