"""``bhclust compare``: several models on one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import bhclust
from bhclust.cli.commands import main
from bhclust.cli.fitting import ESTIMATORS, make_estimator
from bhclust.cli.options import (
    file_option,
    kinds_option,
    model_name,
    output_options,
    parse_delimiter,
    table_options,
)
from bhclust.cli.output import say, say_json, write_csv
from bhclust.cli.progress import progress
from bhclust.models.base import Kind
from bhclust.report import score_clusters
from bhclust.tablefile import Roles, read_table_file


@main.command()
@click.argument("table")
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="[METHOD:]MODEL",
    help="A model as in bhclust fit, with its method before a colon if that is not bhc; "
    "repeatable.",
)
@table_options
@kinds_option
@click.option("--folds", type=click.IntRange(min=2), default=5, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--jobs", type=int, help="Threads; -1 is one a processor.")
@file_option("CSV file to write.")
@output_options
def compare(
    table: str,
    models: tuple[str, ...],
    id_column: str | None,
    label_column: str | None,
    ignore: tuple[str, ...],
    delimiter: str | None,
    kinds: dict[str, Kind],
    folds: int,
    seed: int,
    jobs: int | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit several models to TABLE and show which describes it best.

    Best first by the log density of rows that were held out. The evidence is comparable between
    rows of one kind, "bound" or "tree", only. With --label-column the clusters are also scored
    against the classes.

    \b
    Examples:
      bhclust compare flowers.csv --model gaussian --model diagonal-gaussian
      bhclust compare answers.csv --model bernoulli --model brt:bernoulli --folds 10 --json
      bhclust compare traits.csv --model gaussian --model coalescent:brownian
    """
    contestants = {name: _estimator(name, kinds, seed, jobs) for name in models}
    text = tuple(column for column, kind in kinds.items() if kind == "categorical")
    roles = Roles(id_column, label_column, None, ignore, text)
    with progress("reading", quiet=quiet):
        data = read_table_file(table, roles, delimiter=parse_delimiter(delimiter))
    with progress("comparing", quiet=quiet):
        result = bhclust.compare(contestants, data.columns, n_folds=folds, random_state=seed)
    records = result.to_records()
    if data.classes is not None:
        for record, row in zip(records, result, strict=True):
            scores = score_clusters(row.estimator.labels_, data.classes)
            record["purity"] = scores.purity
            record["adjusted_rand_index"] = scores.adjusted_rand_index
    if out is not None:
        write_csv(list(records[0]), [list(record.values()) for record in records], out)
    if as_json:
        say_json("compare", {"models": records, "best": result.best.name, "folds": folds})
    elif not quiet:
        say(_as_text(result, records))


def _estimator(name: str, kinds: dict[str, Kind], seed: int, jobs: int | None) -> Any:
    method, colon, model = name.partition(":")
    if not colon:
        method, model = "bhc", name
    if method not in ESTIMATORS:
        raise click.BadParameter(
            f"{method!r} in {name!r} is no method; there are {', '.join(ESTIMATORS)}.",
            param_hint="--model",
        )
    return make_estimator(
        method,
        model=model_name(model, method),
        column_kinds=kinds or None,
        seed=seed,
        jobs=jobs,
    )


def _as_text(result: bhclust.comparison.Comparison, records: list[dict[str, Any]]) -> str:
    lines = repr(result).splitlines()
    if "purity" not in records[0]:
        return "\n".join(lines)
    width = max(map(len, lines))
    extra = ["  purity     ARI"]
    extra += [f"  {one['purity']:6.3f}  {one['adjusted_rand_index']:6.3f}" for one in records]
    return "\n".join(line.ljust(width) + more for line, more in zip(lines, extra, strict=True))
