"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from bhclust._validation import BhclustError, check_choice
from bhclust.coalescent.fit import PROCESSES
from bhclust.models import named_model
from bhclust.models.base import Kind
from bhclust.tables import KINDS

Command = TypeVar("Command", bound=Callable[..., Any])


def table_options(command: Command) -> Command:
    """Add the options that say what the columns of a table are for."""
    for option in reversed(
        [
            click.option("--id-column", metavar="NAME", help="The column with the names of rows."),
            click.option(
                "--label-column",
                metavar="NAME",
                help="The column with the true classes: not used to cluster, only to score.",
            ),
            click.option(
                "--ignore", multiple=True, metavar="NAME", help="A column to leave out; repeatable."
            ),
            click.option(
                "--delimiter", help="What separates the fields of text; found out by default."
            ),
        ]
    ):
        command = option(command)
    return command


def kinds_option(command: Command) -> Command:
    """Add ``--kind column=kind``."""
    return click.option(
        "--kind",
        "kinds",
        multiple=True,
        metavar="COLUMN=KIND",
        callback=parse_kinds,
        help="A column's kind, if it is not as it looks: binary, categorical, count or real.",
    )(command)


def output_options(command: Command) -> Command:
    """Add ``--quiet`` and ``--json``."""
    command = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
    )(command)
    return click.option(
        "-q", "--quiet", is_flag=True, help="Print no summary and show no progress."
    )(command)


def file_option(help_text: str) -> Callable[[Command], Command]:
    """Add ``--out`` for a file."""
    return click.option(
        "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help=help_text
    )


def parse_kinds(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, Kind]:
    """Turn ``column=kind`` into pairs; the column's name may hold further equals signs."""
    kinds: dict[str, Kind] = {}
    for value in values:
        column, _, kind = value.rpartition("=")
        if not column or kind not in KINDS:
            raise click.BadParameter(
                f"{value!r} is not of the form column=kind, kind one of {', '.join(KINDS)}."
            )
        kinds[column] = kind
    return kinds


def parse_times(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> dict[str, float] | None:
    """Turn ``a=0,b=2.5`` into the time of each column; ``a,b`` gets 0, 1, 2, …"""
    if value is None:
        return None
    times: dict[str, float] = {}
    entries = value.split(",")
    for position, entry in enumerate(entries):
        column, equals, time = entry.strip().rpartition("=")
        name = column if equals else time
        try:
            times[name] = float(time) if equals else float(position)
        except ValueError:
            raise click.BadParameter(f"{time!r} in {entry!r} is not a number.") from None
    if len(times) < len(entries) or len({"=" in entry for entry in entries}) > 1:
        raise click.BadParameter(
            "give every column once, and a time for all of them (a=0,b=2.5) or for none (a,b)."
        )
    return times


def parse_learn(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | bool | list[str] | None:
    """Turn ``all``, ``none``, ``auto``, ``shared`` or names with commas into the parameter."""
    if value is None or value in ("auto", "shared"):
        return value
    if value in ("all", "none"):
        return value == "all"
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r} has an empty name; write names as in alpha,rate.")
    return names


def parse_delimiter(given: str | None) -> str | None:
    """Return one character, or None to find out."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(given or "", given)
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter("must be one character, or 'tab'.", param_hint="--delimiter")
    return delimiter


def model_name(given: str, method: str) -> str:
    """Return a model as the library calls it; names may have hyphens or underscores."""
    name = given.lower().replace("-", "_")
    owner = f"--method {method}"
    try:
        if method == "coalescent":
            check_choice(name, PROCESSES, name="--model", owner=owner)
        elif name != "auto":
            named_model(name, owner=owner)
    except BhclustError as error:
        raise click.UsageError(str(error)) from None
    return name
