"""The command ``bhclust``: a few lines over the library for each thing it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import bhclust
from bhclust._validation import BhclustError
from bhclust.models import RobustTimeSeries, TimeSeries
from bhclust.models.base import Kind
from bhclust.tables import KINDS, NamedColumns, Table

INTERRUPTED = 130

# What --time-columns can go with
_SERIES = {"time_series": TimeSeries, "robust_time_series": RobustTimeSeries}


class _Commands(click.Group):
    """A group whose errors are one line on standard error.

    Exit status: 1 for a mistake in the data or a file, 2 for one in the command line, 130 when
    interrupted.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            # In this mode click hands the status of --help and --version back.
            sys.exit(super().main(args, *rest, **extra) or 0)
        except click.UsageError as error:
            _fail(f"{error.format_message()} Try 'bhclust --help'.", error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            _fail("interrupted", INTERRUPTED)
        except BhclustError as error:
            _fail(str(error), 1)
        except MemoryError:
            _fail("there is not enough memory for a table of this size.", 1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # click itself would put an empty line before our one line.
            raise click.Abort from None


def _fail(message: str, status: int) -> None:
    click.echo(f"bhclust: {' '.join(message.split())}", err=True)
    sys.exit(status)


def _parse_kinds(
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


def _parse_times(
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


@click.group(
    cls=_Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(bhclust.__version__, prog_name="bhclust")
def main() -> None:
    """Bayesian hierarchical clustering: a table in, a tree with probabilities out."""


@main.command()
@click.argument("table")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--method",
    type=click.Choice(["bhc", "brt"]),
    default="bhc",
    show_default=True,
    help="Binary tree (bhc) or rose tree (brt).",
)
@click.option("--model", default="auto", show_default=True, help="What a cluster is.")
@click.option(
    "--time-columns",
    "times",
    metavar="NAME[=TIME],…",
    callback=_parse_times,
    help="The columns of a time series, for --model time-series or robust-time-series; others "
    "are left out.",
)
@click.option("--id-column", help="The column with the names of the rows.")
@click.option("--ignore", multiple=True, metavar="NAME", help="A column to leave out.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="COLUMN=KIND",
    callback=_parse_kinds,
    help="A column's kind: binary, categorical, count or real.",
)
@click.option("--clusters", type=click.IntRange(min=1), help="Number of clusters.")
@click.option("--alpha", type=float, help="Concentration of the Dirichlet process.")
@click.option("--gamma", type=float, help="Prior weight of one cluster.")
@click.option("--delimiter", help="What separates the fields; guessed by default.")
@click.option("--force", is_flag=True, help="Write into a folder that holds other files.")
@click.option("--quiet", is_flag=True, help="Print no summary.")
def fit(
    table: str,
    out: Path,
    method: str,
    model: str,
    times: dict[str, float] | None,
    id_column: str | None,
    ignore: tuple[str, ...],
    kinds: dict[str, Kind],
    clusters: int | None,
    alpha: float | None,
    gamma: float | None,
    delimiter: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Cluster the rows of TABLE, a CSV or TSV file with a header ("-" reads standard input).

    Missing are empty fields and NA, NaN, null, None and "?". The folder gets labels.csv,
    tree.nwk, model.npz and report.html.
    """
    from bhclust.csvtable import read_csv
    from bhclust.report import check_folder

    check_folder(out, force=force)
    text_columns = [column for column, kind in kinds.items() if kind == "categorical"]
    columns = read_csv(
        table,
        delimiter=_delimiter(delimiter),
        text_columns=text_columns,
        ignore=ignore,
        id_column=id_column,
    )
    name = model.replace("-", "_")
    if times is not None:
        if name not in _SERIES:
            raise click.BadParameter("it needs --model time-series.", param_hint="--time-columns")
        columns = _select(columns, list(times))
    given = {"alpha": alpha, "gamma": gamma}
    settings = {name: value for name, value in given.items() if value is not None}
    estimator = _estimator(
        method,
        model=name if times is None else _SERIES[name](times=tuple(times.values())),
        n_clusters=clusters,
        column_kinds=kinds or None,
        **settings,
    )
    _fit_and_write(estimator, columns, out, title=_title(table), force=force, quiet=quiet)


@main.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="bhclust-demo",
    show_default=True,
    help="Folder to write.",
)
@click.option("--force", is_flag=True, help="Write into a folder that holds other files.")
def demo(out: Path, force: bool) -> None:
    """Cluster a small mixed table with holes: 200 guests of a café."""
    from bhclust.datasets import load_example
    from bhclust.report import check_folder

    check_folder(out, force=force)
    columns = NamedColumns(load_example("mixed").columns)
    estimator = _estimator("bhc")
    _fit_and_write(estimator, columns, out, title="Guests of a café", force=force, quiet=False)


def _select(columns: NamedColumns, names: list[str]) -> NamedColumns:
    for name in names:
        if name not in columns:
            raise click.BadParameter(
                f"the table has no column {name!r}.", param_hint="--time-columns"
            )
    return NamedColumns({name: columns[name] for name in names}, columns.row_names)


def _delimiter(given: str | None) -> str | None:
    delimiter = {"\\t": "\t", "tab": "\t"}.get(given or "", given)
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter("must be one character, or 'tab'", param_hint="--delimiter")
    return delimiter


def _title(table: str) -> str:
    return "standard input" if table == "-" else Path(table).name


def _estimator(method: str, **settings: Any) -> Any:
    from bhclust.estimators import BayesianHierarchicalClustering, BayesianRoseTree

    chosen = BayesianRoseTree if method == "brt" else BayesianHierarchicalClustering
    return chosen(**settings)


def _fit_and_write(
    estimator: Any, columns: NamedColumns, out: Path, *, title: str, force: bool, quiet: bool
) -> None:
    from bhclust.report import RESULT_FILES, as_text, summarise, write_result

    estimator.fit(columns)
    schema = estimator.schema_
    table = Table(schema.encode(columns), schema, columns.row_names)
    summary = summarise(estimator, table)
    write_result(estimator, summary, out, row_names=columns.row_names, title=title, force=force)
    if not quiet:
        click.echo(as_text(summary))
        click.echo(f"wrote {', '.join(RESULT_FILES)} to {out}")


if __name__ == "__main__":
    main()
