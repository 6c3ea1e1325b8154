"""What every script of this folder shares: units of work, a progress bar, results that last.

A script names its units (a dictionary of plain values each, the seed among them) and a function
that computes one. Each finished unit is one line of a JSON-lines file, so a killed run goes on
where it stopped; the line has the versions and a fingerprint of the library's source. When all
units are there, the script's ``finish`` turns them into one JSON file of docs/results/papers, from
which ``page.py`` writes the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import bhclust

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results" / "papers"
CACHE = RESULTS / "units"
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")

Unit = dict[str, Any]
Record = dict[str, Any]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that every script has."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--fresh", action="store_true", help="forget what was computed before")
    parser.add_argument("--stale", action="store_true", help="redo what another version computed")
    parser.add_argument("--check", type=int, metavar="N", help="redo N older units and compare")
    parser.add_argument("--only", nargs="*", help="units whose text holds one of these words")
    parser.add_argument("--done", action="store_true", help="take what is there, compute nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    return parser


@cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on, and a fingerprint of the library's source."""
    source = hashlib.sha256()
    for path in sorted(Path(bhclust.__file__).parent.rglob("*.py")):
        source.update(path.read_bytes())
    return {
        "bhclust": bhclust.__version__,
        "source": source.hexdigest()[:12],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def key_of(unit: Unit) -> str:
    """Return the text under which a unit is kept."""
    return json.dumps(unit, sort_keys=True)


class Store:
    """Finished units, one line each; a line that was cut off by a kill is not seen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Record]:
        """Return the records by key; of several, the last."""
        if not self.path.exists():
            return {}
        found: dict[str, Record] = {}
        for line in self.path.read_text("utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[key_of(record["unit"])] = record
        return found

    def add(self, record: Record) -> None:
        """Append a record in one write, on the disk before the next unit starts."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, sort_keys=True, default=_plain) + "\n"
        with open(self.path, "ab+") as file:
            if file.tell() and _last_byte(self.path) != b"\n":
                line = "\n" + line  # what a kill left behind must not swallow this record
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


def _last_byte(path: Path) -> bytes:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


class Bar:
    """A progress bar on standard error: one line on a terminal, a line a tenth otherwise."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.start = time.perf_counter()
        self.shown = -1

    def step(self) -> None:
        """Count one unit and show it."""
        self.done += 1
        tenth = 10 * self.done // max(self.total, 1)
        if not sys.stderr.isatty() and tenth == self.shown:
            return
        self.shown = tenth
        passed = time.perf_counter() - self.start
        left = passed / self.done * (self.total - self.done)
        full = 30 * self.done // max(self.total, 1)
        bar = "█" * full + "·" * (30 - full)
        end = "\r" if sys.stderr.isatty() and self.done < self.total else "\n"
        text = f"{self.name} {bar} {self.done}/{self.total}, {passed:.0f} s, {left:.0f} s left"
        print(text, end=end, file=sys.stderr, flush=True)


def compute_all(
    name: str,
    units: Sequence[Unit],
    compute: Callable[[Unit], Record],
    options: argparse.Namespace,
) -> list[Record]:
    """Compute the units that are not there yet and return the results of all, in order.

    A result is ``{"unit": …, "result": …, "seconds": …, "versions": …}``. A quick run keeps
    nothing. With ``--stale`` what another version computed counts as missing, so that a killed run
    goes on there too; with ``--check`` some of it is computed again and only compared.
    """
    if options.only:
        units = [unit for unit in units if any(word in key_of(unit) for word in options.only)]
    store = None if options.quick else Store(CACHE / f"{name}.jsonl")
    known = {} if store is None else store.read()
    if options.check and store is not None:
        check_units(name, [known[key_of(u)] for u in units if key_of(u) in known], compute, options)
        options.done = True
    if options.fresh:
        known = {key: value for key, value in known.items() if key not in map(key_of, units)}
    if options.stale:
        known = current(known)
    if options.done:
        units = [unit for unit in units if key_of(unit) in known]
    missing = [unit for unit in units if key_of(unit) not in known]
    bar = Bar(name, len(missing))
    for unit in missing:
        # Another process may work on the same study: what it has finished is not done again.
        found = {} if store is None or options.fresh else store.read()
        if options.stale:
            found = current(found)
        if key_of(unit) in found:
            known[key_of(unit)] = found[key_of(unit)]
            bar.step()
            continue
        start = time.perf_counter()
        result = compute(unit)
        record = {
            "unit": unit,
            "result": result,
            "seconds": round(time.perf_counter() - start, 3),
            "versions": versions(),
        }
        known[key_of(unit)] = record
        if store is not None:
            store.add(record)
        bar.step()
    records = [known[key_of(unit)] for unit in units]
    older = sum(record["versions"] != versions() for record in records)
    if older:
        said = f"{older} of {len(records)} units are of another version; --stale computes them anew"
        print(f"{name}: {said}", file=sys.stderr)
    return records


def current(known: dict[str, Record]) -> dict[str, Record]:
    """Return the records that the present version computed."""
    return {key: value for key, value in known.items() if value["versions"] == versions()}


def largest_difference(one: Any, other: Any) -> float:
    """Return the largest relative difference between the numbers of two results, times aside."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return float("inf")
        kept = [key for key in one if key != "seconds"]
        return max((largest_difference(one[key], other[key]) for key in kept), default=0.0)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return float("inf")
        return max(map(largest_difference, one, other), default=0.0)
    if one == other:
        return 0.0
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) / max(abs(one), abs(other))
    return float("inf")


def check_units(
    name: str,
    records: Sequence[Record],
    compute: Callable[[Unit], Record],
    options: argparse.Namespace,
) -> None:
    """Compute some units of an older version again; note in checks.json how far they are off."""
    older = [record for record in records if record["versions"] != versions()]
    if not older:
        return
    chosen = [older[k] for k in np.linspace(0, len(older) - 1, options.check).round().astype(int)]
    chosen = list({key_of(record["unit"]): record for record in chosen}.values())
    bar = Bar(f"{name}, checked", len(chosen))
    gaps: dict[str, float] = {}
    for record in chosen:
        anew = json.loads(json.dumps(compute(record["unit"]), default=_plain))
        gaps[key_of(record["unit"])] = largest_difference(record["result"], anew)
        bar.step()
    path = RESULTS / "checks.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if name not in found or found[name]["versions"] != versions():
        found[name] = {"versions": versions(), "units": {}}
    found[name]["units"] |= gaps  # a script may have several sets of units
    print(f"{name}: {gaps}", file=sys.stderr)
    write_json(path, dict(sorted(found.items())))


def write_text(path: Path, text: str) -> None:
    """Write a file that is either the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file that is either the old one or the whole new one."""
    write_text(path, json.dumps(content, indent=1, default=_plain, ensure_ascii=False) + "\n")


def study(
    name: str,
    units: Callable[[bool], Sequence[Unit]],
    compute: Callable[[Unit], Record],
    finish: Callable[[list[Record], argparse.Namespace], Record],
    description: str | None,
    argv: Sequence[str] | None = None,
) -> Record:
    """Run a script: compute its units, summarise them, write ``name.json``; return the summary.

    A quick run shows that everything works and writes no result, unless ``--out`` is given.
    """
    options = make_parser(description).parse_args(argv)
    records = compute_all(name, units(options.quick), compute, options)
    if options.only:
        return {}
    summary = finish(records, options)
    content = {
        **summary,
        "name": name,
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "versions": versions_of(records),
        "quick": options.quick,
    }
    if not options.quick or options.out != RESULTS:
        write_json(options.out / f"{name}.json", content)
    print(f"{name}: {len(records)} units, {content['seconds']} s", file=sys.stderr)
    return content


def versions_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return each version that computed some of the records, and how many units are its."""
    counts: dict[str, int] = {}
    for record in records:
        text = json.dumps(record["versions"], sort_keys=True)
        counts[text] = counts.get(text, 0) + 1
    return [{**json.loads(text), "units": count} for text, count in sorted(counts.items())]


def mean_and_error(values: Sequence[float]) -> list[float]:
    """Return mean and standard error (0 for a single value)."""
    array = np.asarray(values, dtype=float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else 0.0
    return [float(array.mean()), float(error)]


def pictures(options: argparse.Namespace) -> bool:
    """Return whether to draw: not in a quick run that keeps no results."""
    return not options.quick or options.out != RESULTS


def pyplot() -> Any:
    """Return matplotlib's pyplot, drawing to files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    return plot
