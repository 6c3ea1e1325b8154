"""The pages of the API reference, one a module: everything public, in the order of its module.

Modules that nobody has named here come last, so that a new one is never lost.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple


class Module(NamedTuple):
    """A public module and what a reader looks for in it."""

    name: str
    title: str


# Shown as names of the package; commands and no library; inner parts of the search and of plots.
ELSEWHERE = tuple(f"bhclust.{room}" for room in ("estimators", "tree", "cli", "frontier", "layout"))
MODULES = (
    Module("bhclust", "Estimators, trees, comparison"),
    Module("bhclust.models", "Models of a cluster"),
    Module("bhclust.mixing", "Priors of partitions"),
    Module("bhclust.posterior", "What a tree says"),
    Module("bhclust.explanations", "Explanations"),
    Module("bhclust.plots", "Plots"),
    Module("bhclust.viewer", "The viewer"),
    Module("bhclust.coalescent", "Trees with ages"),
    Module("bhclust.regression", "Regression with experts"),
    Module("bhclust.agglomerate", "The search"),
    Module("bhclust.randomised", "Randomised trees"),
    Module("bhclust.growing", "Growing trees"),
    Module("bhclust.strategies", "Strategies"),
    Module("bhclust.learn", "Learning"),
    Module("bhclust.comparison", "Comparison of models"),
    Module("bhclust.metrics", "Scores of a tree"),
    Module("bhclust.tables", "Tables"),
    Module("bhclust.tablefile", "Files of tables"),
    Module("bhclust.csvtable", "Delimited text"),
    Module("bhclust.io", "Files of trees"),
    Module("bhclust.bridges", "Bridges to other packages"),
    Module("bhclust.datasets", "Data sets"),
    Module("bhclust.report", "Reports"),
)

# Methods of these base classes and of theirs are not repeated.
STOP_AT = "object, int, str, tuple, dict, ABC, BaseEstimator, ClusterMixin, Mapping, Sequence"


def write(folder: Path) -> None:
    """Write a page for each module that there is, and the page that lists them."""
    folder.mkdir(exist_ok=True)
    present = public_modules()
    pages = {f"{module.name}.rst": _page(module) for module in present}
    names = "\n".join(f"   {module.title} <{module.name}>" for module in present)
    pages["index.rst"] = f"{_heading('API reference')}\n.. toctree::\n\n{names}\n"
    for stale in set(folder.glob("*.rst")) - {folder / name for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:  # an equal page is not built again
            path.write_text(text, "utf-8")


def public_modules() -> list[Module]:
    """Return the modules that have a page."""
    package = importlib.import_module("bhclust")
    found = {f"bhclust.{each.name}" for each in pkgutil.iter_modules(package.__path__)}
    public = {"bhclust", *(name for name in found if not name.startswith("bhclust._"))}
    named = [module for module in MODULES if module.name in public]
    others = sorted(public - {module.name for module in MODULES} - set(ELSEWHERE))
    return named + [Module(name, name.removeprefix("bhclust.")) for name in others]


def _page(module: Module) -> str:
    excluded = _shown_elsewhere(module.name)
    options = ["   :members:", f"   :inherited-members: {STOP_AT}"]
    if excluded:
        options.append(f"   :exclude-members: {', '.join(excluded)}")
    body = "\n".join([f".. automodule:: {module.name}", *options])
    return f"{_heading(module.title)}\n``{module.name}``\n\n{body}\n"


def _shown_elsewhere(name: str) -> list[str]:
    """Return the names of a module that are those of the package, which has a page of its own."""
    package, module = importlib.import_module("bhclust"), importlib.import_module(name)
    if module is package:
        return ["__version__"]
    return [each for each in package.__all__ if vars(module).get(each) is vars(package)[each]]


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what every estimator of scikit-learn has."""
    routing = name.startswith("set_") and name.endswith("_request")
    inherited = str(getattr(obj, "__module__", "")).startswith("sklearn.")
    return True if routing or inherited else None


def setup(app: Any) -> dict[str, bool]:
    """Write the pages, and choose what they show."""
    write(Path(app.srcdir) / "api")
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n"
