"""``bhclust export`` and ``bhclust view``: a result for other programs, and to look at."""

from __future__ import annotations

import io
import json
import os
import tempfile
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from bhclust import bridges
from bhclust._validation import BhclustError, optional_import
from bhclust.cli.commands import main
from bhclust.cli.options import output_options
from bhclust.cli.output import say, say_json, write_bytes
from bhclust.cli.progress import progress
from bhclust.cli.using import load_result, need_estimator
from bhclust.io import to_newick, to_nexus
from bhclust.tree import Tree
from bhclust.viewer import view_result


class _Format(NamedTuple):
    """A format: the suffixes that mean it, and what turns a loaded result into bytes."""

    suffixes: tuple[str, ...]
    encode: Callable[[Any, int | None], bytes]


def _tree(loaded: Any) -> Tree:
    tree: Tree = loaded if isinstance(loaded, Tree) else loaded.tree_
    return tree


def _newick(loaded: Any, seed: int | None) -> bytes:
    support = bridges.node_support(loaded)
    text = to_newick(_tree(loaded), support=False if support is None else support, comments=False)
    return f"{text}\n".encode()


def _nexus(loaded: Any, seed: int | None) -> bytes:
    posterior = getattr(loaded, "posterior_", None)
    if posterior is not None:  # all weighted trees of a sampler
        trees = list(posterior)
        return to_nexus(trees, weights=posterior.weights, support=False).encode()
    support = bridges.node_support(loaded)
    return to_nexus(_tree(loaded), support=False if support is None else support).encode()


def _json(loaded: Any, seed: int | None) -> bytes:
    content = json.loads(_tree(loaded).to_json())
    if not isinstance(loaded, Tree):
        content["labels"] = loaded.labels_.tolist()
    return f"{json.dumps(content)}\n".encode()


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _linkage_csv(loaded: Any, seed: int | None) -> bytes:
    lines = ["left,right,height,size"]
    for left, right, height, size in _tree(loaded).to_linkage().tolist():
        lines.append(f"{int(left)},{int(right)},{height!r},{int(size)}")
    return ("\n".join(lines) + "\n").encode()


def _graph(writer: str) -> Callable[[Any, int | None], bytes]:
    def encode(loaded: Any, seed: int | None) -> bytes:
        graph = bridges.to_networkx(_tree(loaded), bridges.node_support(loaded))
        networkx = optional_import("networkx", extra="bridges", needed_for=f"export to {writer}")
        buffer = io.BytesIO()
        getattr(networkx, f"write_{writer}")(graph, buffer)
        return buffer.getvalue()

    return encode


def _co_clustering(loaded: Any, seed: int | None) -> bytes:
    return _npy(loaded.co_clustering_matrix())


def _through_file(write: Callable[[str], None], suffix: str) -> bytes:
    """Return what a package writes that can only write to files by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"result{suffix}")
        write(path)
        return Path(path).read_bytes()


def _anndata(loaded: Any, seed: int | None) -> bytes:
    adata = bridges.to_anndata(loaded)
    return _through_file(adata.write_h5ad, ".h5ad")


def _arviz(loaded: Any, seed: int | None) -> bytes:
    data = bridges.to_arviz(loaded, random_state=0 if seed is None else seed)
    optional_import("h5netcdf", extra="bridges", needed_for="export to NetCDF")
    return _through_file(partial(data.to_netcdf, engine="h5netcdf"), ".nc")


FORMATS = {
    "newick": _Format((".nwk", ".newick", ".tree", ".tre"), _newick),
    "nexus": _Format((".nexus", ".nex"), _nexus),
    "linkage": _Format((".npy",), lambda loaded, seed: _npy(_tree(loaded).to_linkage())),
    "linkage-csv": _Format((".csv",), _linkage_csv),
    "json": _Format((".json",), _json),
    "graphml": _Format((".graphml",), _graph("graphml")),
    "gml": _Format((".gml",), _graph("gml")),
    "gexf": _Format((".gexf",), _graph("gexf")),
    "co-clustering": _Format((), _co_clustering),
    "anndata": _Format((".h5ad",), _anndata),
    "arviz": _Format((".nc",), _arviz),
}
_NEED_MODEL = ("co-clustering", "anndata", "arviz")
_TEXT = ("newick", "nexus", "linkage-csv", "json", "graphml", "gml", "gexf")


@main.command()
@click.argument("result")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    help="What to write; by default what the suffix of --out says, else newick.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the draws for ArviZ.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; text goes to standard output by default.",
)
@output_options
def export(
    result: str,
    format_name: str | None,
    seed: int | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write the tree of RESULT for other programs.

    \b
    newick         Newick with support values (.nwk)
    nexus          Nexus; all weighted trees of a coalescent sampler (.nexus)
    linkage        SciPy's linkage matrix as an array (.npy)
    linkage-csv    the same as text (.csv)
    json           every number of every node, and the labels (.json)
    graphml, gml, gexf   a graph, through networkx
    co-clustering  the probability that two rows share a cluster, for all pairs
    anndata        labels, dendrogram and co-clustering for scanpy (.h5ad)
    arviz          draws from the posterior (.nc)

    \b
    Examples:
      bhclust export result > tree.nwk
      bhclust export result --out tree.graphml
      bhclust export result --format co-clustering --out pairs.npy
    """
    name = format_name or _format_of(out)
    if out is None and name not in _TEXT:
        raise click.UsageError(f"{name} is not text: give a file with --out.")
    if as_json and out is None:
        raise click.UsageError("--json tells what was written to a file: give one with --out.")
    with progress(f"exporting to {name}", quiet=quiet):
        loaded = load_result(result)
        if name in _NEED_MODEL:
            need_estimator(loaded, result, f"export to {name}")
        content = FORMATS[name].encode(loaded, seed)
    write_bytes(content, out)
    if as_json:
        say_json("export", {"format": name, "out": str(out), "bytes": len(content)})
    elif out is not None and not quiet:
        say(f"wrote {name} to {out}")


def _format_of(out: Path | None) -> str:
    if out is None:
        return "newick"
    for name, one in FORMATS.items():
        if out.suffix.lower() in one.suffixes:
            return name
    raise click.UsageError(
        f"the suffix of {out} says nothing about the format: give one with --format."
    )


@main.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="HTML file to write; view.html in the folder by default.",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@output_options
def view(result: Path, out: Path | None, open_page: bool, quiet: bool, as_json: bool) -> None:
    """Write an interactive page that shows the tree of RESULT.

    RESULT is a folder that bhclust fit wrote. The page is one HTML file that needs no network.

    \b
    Examples:
      bhclust view result --open
      bhclust view result --out flowers.html
    """
    if not result.is_dir():
        raise BhclustError(f"{result} is not a folder: give one that bhclust fit wrote.")
    with progress("drawing", quiet=quiet):
        page = view_result(result, out=out)
    if open_page:
        webbrowser.open(Path(page).absolute().as_uri())
    if as_json:
        say_json("view", {"out": str(page)})
    elif not quiet:
        say(f"wrote {page}")
