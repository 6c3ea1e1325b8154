"""``bhclust fit`` and ``bhclust demo``."""

from __future__ import annotations

import inspect
import math
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bhclust import (
    BayesianHierarchicalClustering,
    BayesianRoseTree,
    CoalescentClustering,
    _progress,
)
from bhclust.cli.commands import main
from bhclust.cli.options import (
    kinds_option,
    model_name,
    output_options,
    parse_delimiter,
    parse_learn,
    parse_times,
    table_options,
)
from bhclust.cli.output import say, say_json, style
from bhclust.cli.progress import progress
from bhclust.coalescent.fit import INFERENCES
from bhclust.datasets import load_example
from bhclust.models import RobustTimeSeries, TimeSeries
from bhclust.models.base import Kind
from bhclust.report import (
    Summary,
    as_text,
    check_folder,
    score_clusters,
    summarise,
    write_result,
)
from bhclust.strategies import STRATEGIES
from bhclust.tablefile import Roles, TableFile, read_table_file
from bhclust.tables import NamedColumns, Table

ESTIMATORS: dict[str, Any] = {
    "bhc": BayesianHierarchicalClustering,
    "brt": BayesianRoseTree,
    "coalescent": CoalescentClustering,
}

# What --time-columns can go with
_SERIES = {"time_series": TimeSeries, "robust_time_series": RobustTimeSeries}

# Entries of a table that goes into the result folder, for the heat map of `bhclust view`.
_LARGEST_KEPT_TABLE = 5_000_000


@main.command()
@click.argument("table")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder to write."
)
@click.option(
    "--method",
    type=click.Choice(list(ESTIMATORS)),
    default="bhc",
    show_default=True,
    help="Binary tree (bhc), rose tree (brt) or tree with ages (coalescent).",
)
@click.option(
    "--model",
    default="auto",
    show_default=True,
    help="What a cluster is (bernoulli, categorical, multinomial, poisson, gaussian, "
    "diagonal-gaussian, time-series, gaussian-process-expert), or for the coalescent what evolves "
    "(brownian, mutation).",
)
@click.option(
    "--time-columns",
    "times",
    metavar="NAME[=TIME],…",
    callback=parse_times,
    help="The columns of a time series, for --model time-series; others are left out.",
)
@table_options
@kinds_option
@click.option("--weight-column", metavar="NAME", help="The column with multiplicities of rows.")
@click.option("--clusters", type=click.IntRange(min=1), help="Number of clusters.")
@click.option(
    "--learn",
    callback=parse_learn,
    metavar="WHAT",
    help="Hyperparameters to learn: auto (default), shared, all, none, or names (alpha,rate).",
)
@click.option(
    "--mixing",
    type=click.Choice(["dirichlet-process", "constant", "rose"]),
    help="Prior weight of one cluster.",
)
@click.option("--alpha", type=float, help="Concentration of the Dirichlet process.")
@click.option("--gamma", type=float, help="Prior weight of one cluster, for the other mixings.")
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), help="How trees are built.")
@click.option("--restarts", type=click.IntRange(min=0), help="Further starts of the learning.")
@click.option("--polish", is_flag=True, help="Prune and regraft while the evidence rises.")
@click.option(
    "--inference", type=click.Choice(list(INFERENCES)), help="How coalescent trees are found."
)
@click.option("--particles", type=click.IntRange(min=1), help="Trees of a coalescent sampler.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to compute.",
)
@click.option("--jobs", type=int, help="Threads; -1 is one a processor.")
@click.option("--force", is_flag=True, help="Write into a folder that holds other files.")
@output_options
@click.pass_context
def fit(
    context: click.Context,
    /,
    table: str,
    out: Path,
    method: str,
    model: str,
    times: dict[str, float] | None,
    id_column: str | None,
    label_column: str | None,
    ignore: tuple[str, ...],
    delimiter: str | None,
    kinds: dict[str, Kind],
    weight_column: str | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Cluster the rows of TABLE and write a folder with the result.

    TABLE is a CSV or TSV file with a header, a Parquet, Feather, .npy or .npz file, or "-" for
    standard input. Missing in text are empty fields and NA, NaN, null, None and "?". The folder
    gets labels.csv, tree.nwk, model.npz and report.html.

    \b
    Examples:
      bhclust fit flowers.csv --out result
      bhclust fit flowers.csv --out result --id-column name --label-column species
      bhclust fit answers.tsv --out result --method brt --kind age=real --ignore note
      bhclust fit traits.parquet --out result --method coalescent --inference smc-race --seed 1
      zcat big.csv.gz | bhclust fit - --out result --jobs -1 --json > summary.json
    """
    check_folder(out, force=force)
    given = _given(context, settings)
    given["model"] = model_name(model, method)
    if times is not None:
        if given["model"] not in _SERIES:
            raise click.BadParameter("it needs --model time-series.", param_hint="--time-columns")
        given["model"] = _SERIES[given["model"]](times=tuple(times.values()))
    estimator = make_estimator(method, column_kinds=kinds or None, **given)
    roles = Roles(
        id_column=id_column,
        label_column=label_column,
        weight_column=weight_column,
        ignore=ignore,
        text=tuple(column for column, kind in kinds.items() if kind == "categorical"),
    )
    if weight_column is not None and method == "coalescent":
        raise _not_for("--weight-column", method)
    with progress("reading", quiet=quiet):
        data = read_table_file(table, roles, delimiter=parse_delimiter(delimiter))
    if times is not None:
        data = data._replace(columns=_select(data.columns, list(times)))
    with progress("fitting", quiet=quiet):
        title = "standard input" if table == "-" else Path(table).name
        result = _fit_and_write(estimator, data, out, title=title, force=force)
    _report(result, out, quiet=quiet, as_json=as_json, command="fit")


@main.command()
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default="bhclust-demo",
    show_default=True,
    help="Folder to write.",
)
@click.option("--force", is_flag=True, help="Write into a folder that holds other files.")
@output_options
def demo(out: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Cluster a small mixed table with holes: 200 guests of a café.

    \b
    Example:
      bhclust demo --out result
    """
    check_folder(out, force=force)
    data = TableFile(NamedColumns(load_example("mixed").columns), None, None)
    with progress("fitting", quiet=quiet):
        estimator = make_estimator("bhc")
        result = _fit_and_write(estimator, data, out, title="Guests of a café", force=force)
    _report(result, out, quiet=quiet, as_json=as_json, command="demo")


# -- the estimator -----------------------------------------------------------------------------

# what each option is called in the library
_PARAMETERS = {
    "clusters": "n_clusters",
    "restarts": "n_restarts",
    "particles": "n_particles",
    "seed": "random_state",
    "jobs": "n_jobs",
}


def _given(context: click.Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the command line gives, under the names of the options."""
    return {
        name: value
        for name, value in settings.items()
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def make_estimator(method: str, **given: Any) -> Any:
    """Return the estimator of a method; a setting that it does not have is a usage error."""
    kind = ESTIMATORS[method]
    known = inspect.signature(kind).parameters
    settings: dict[str, Any] = {}
    for option, value in given.items():
        name = _PARAMETERS.get(option, option)
        if option == "model" and method == "coalescent":
            name = "process"
        if option == "device" and value == "cpu":
            continue
        if option == "device" and name not in known:
            raise click.UsageError(
                f"--device {value}: {kind.__name__} computes on the processor only; leave it out."
            )
        if name not in known:
            raise _not_for(f"--{option.replace('_', '-')}", method)
        settings[name] = value.replace("-", "_") if option == "mixing" else value
    return kind(**settings)


def _not_for(option: str, method: str) -> click.UsageError:
    return click.UsageError(f"{option} does not go with --method {method}: leave it out.")


def _select(columns: NamedColumns, names: list[str]) -> NamedColumns:
    for name in names:
        if name not in columns:
            raise click.BadParameter(
                f"the table has no column {name!r}.", param_hint="--time-columns"
            )
    return NamedColumns({name: columns[name] for name in names}, columns.row_names)


# -- fitting and telling -----------------------------------------------------------------------


class _Result:
    """A fit, what it says, how long it took, and the files that hold it."""

    def __init__(
        self, estimator: Any, summary: Summary, seconds: float, files: tuple[str, ...]
    ) -> None:
        self.estimator, self.summary = estimator, summary
        self.seconds, self.files = seconds, files


def _fit_and_write(
    estimator: Any, data: TableFile, out: Path, *, title: str, force: bool
) -> _Result:
    columns = data.columns
    began = time.perf_counter()
    if data.weight is None:
        estimator.fit(columns)
    else:
        estimator.fit(columns, sample_weight=data.weight)
    seconds = time.perf_counter() - began
    _progress.begin("writing", work=0)
    schema = estimator.schema_
    table = Table(schema.encode(columns), schema, columns.row_names)
    scores = None
    if data.classes is not None:
        leaf_rows = getattr(estimator, "leaf_rows_", None)
        scores = score_clusters(
            estimator.labels_, data.classes, tree=estimator.tree_, leaf_rows=leaf_rows
        )
    summary = summarise(estimator, table, scores=scores)
    kept = table if math.prod(table.shape) <= _LARGEST_KEPT_TABLE else None
    files = write_result(
        estimator,
        summary,
        out,
        row_names=columns.row_names,
        title=title,
        force=force,
        table=kept,
    )
    return _Result(estimator, summary, seconds, files)


def _report(result: _Result, out: Path, *, quiet: bool, as_json: bool, command: str) -> None:
    if as_json:
        say_json(command, _as_json(result, out))
    elif not quiet:
        estimator = result.estimator
        leaf_labels = estimator.labels_[getattr(estimator, "leaf_rows_", slice(None))]
        say(as_text(result.summary, estimator.tree_, leaf_labels, style()))
        say(f"\nwrote {', '.join(result.files)} to {out}")


def _as_json(result: _Result, out: Path) -> dict[str, Any]:
    summary, estimator = result.summary, result.estimator
    return {
        "rows": summary.n_rows,
        "columns": [{"name": column.name, "kind": column.kind} for column in summary.columns],
        "missing": summary.n_missing,
        "method": summary.method,
        "model": summary.model,
        "log_evidence": summary.log_evidence,
        "log_evidence_bound": getattr(estimator, "log_evidence_bound_", None),
        "n_clusters": len(summary.clusters),
        "clusters": [
            {
                "label": cluster.label,
                "size": cluster.size,
                "features": [feature._asdict() for feature in cluster.features],
            }
            for cluster in summary.clusters
        ],
        "scores": None if summary.scores is None else summary.scores._asdict(),
        "seconds": round(result.seconds, 3),
        "out": str(out),
        "files": list(result.files),
    }
