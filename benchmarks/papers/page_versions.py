"""The page's last part: which version of the library each result is of."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from page_parts import paragraph, table
from runner import RESULTS, key_of, largest_difference

SAME = 1e-9
NAMED = ("beyond",)  # where the page says which units those are
WHY = (
    "The reason was looked for with Rate1 on WALS only: the older source, run again, has the "
    "present values too, so it is not the source there. For the others it was not looked for: "
    "rounding that decides between nearly equal choices is a possible reason, a change of the "
    "source or of the scripts another."
)


def versions_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the versions of a result; a result made in one go names one."""
    noted = found.get("versions") or []
    return noted if isinstance(noted, list) else [noted]


def checks() -> dict[str, Any]:
    """Return what was computed again with a later version, by result."""
    path = RESULTS / "checks.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def checked(part: dict[str, Any]) -> str:
    """Return in words how a later version compares."""
    version = part["versions"]["source"]
    gaps = list(part["units"].values())
    count = f"{len(gaps)} unit{'s' if len(gaps) > 1 else ''} again with {version}"
    same = sum(gap <= SAME for gap in gaps)
    if same == len(gaps):
        return f"{count}: the same"
    finite = [gap for gap in gaps if SAME < gap < float("inf")]
    parts = [f"{same} the same"]
    if finite:
        parts.append(f"{len(finite)} off by a factor of up to 1 ± {max(finite):.1e}")
    if same + len(finite) < len(gaps):
        parts.append(f"{len(gaps) - same - len(finite)} with other entries")
    return f"{count}: {', '.join(parts)}"


def shared_difference(one: Any, other: Any) -> float:
    """Return the largest relative difference between what two results both have, times aside."""
    if isinstance(one, dict) and isinstance(other, dict):
        kept = (one.keys() & other.keys()) - {"seconds"}
        return max((shared_difference(one[key], other[key]) for key in kept), default=0.0)
    return largest_difference(one, other)


class Reruns(NamedTuple):
    """How many units an older source had computed before, and those that came out otherwise."""

    units: int
    other: dict[str, list[str]]


def kept(name: str, folder: Path = RESULTS / "units") -> list[list[dict[str, Any]]]:
    """Return what is kept of each unit of a result, the oldest record first."""
    path = folder / f"{name}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found: dict[str, list[dict[str, Any]]] = {}
    for record in map(json.loads, lines):
        found.setdefault(key_of(record["unit"]), []).append(record)
    return list(found.values())


def reruns(names: Collection[str], source: str, folder: Path = RESULTS / "units") -> Reruns:
    """Compare each unit of a source with what the one before had, if that is kept.

    What a later source has computed since is left aside.
    """
    count = 0
    other: dict[str, list[str]] = {}
    for name in names:
        for records in kept(name, folder):
            of_source = [r["versions"]["source"] == source for r in records]
            if not any(of_source):
                continue
            place = len(records) - 1 - of_source[::-1].index(True)
            last = records[place]
            older = [r for r in records[:place] if r["versions"]["source"] != source]
            if not older:
                continue
            count += 1
            if shared_difference(older[-1]["result"], last["result"]) > SAME:
                unit = last["unit"]
                text = " ".join(str(v) for k, v in unit.items() if k not in ("seed", "draws"))
                other.setdefault(name, []).append(text)
    return Reruns(count, other)


def outcome(found: Reruns) -> str:
    """Return in words how many units came out the same, and which did not."""
    total = sum(map(len, found.other.values()))
    named = "; ".join(
        f"`{name}` {len(units)}" + (f" ({', '.join(units)})" if name in NAMED else "")
        for name, units in found.other.items()
    )
    count = f"{found.units - total}" if total else f"all {found.units}"
    return f"{count} came out the same to nine digits (times aside)" + (
        f" and {total} did not: {named}." if total else "."
    )


def rerun_note(found: Reruns, source: str = "the present one") -> str:
    """Return in words what came out otherwise when a source computed it again."""
    if not found.units:
        return ""
    why = f" {WHY}" if found.other else ""
    return (
        f"{found.units} units had been computed before, with older sources; with {source} "
        f"{outcome(found)}{why}"
    )


def replaced(name: str, source: str, main: str) -> bool:
    """Return whether a source came after the main one: its units replaced units of that."""
    return any(
        main in [r["versions"]["source"] for r in records[:-1]]
        for records in kept(name)
        if records[-1]["versions"]["source"] == source
    )


def later_note(name: str, version: dict[str, Any], main: str) -> str:
    """Return in words which units a later source computed, and what differs from the main one."""
    source = version["source"]
    by_method: dict[str, set[str]] = {}
    for records in kept(name):
        method = records[-1]["unit"].get("method", "")
        by_method.setdefault(method, set()).add(records[-1]["versions"]["source"])
    methods = [method for method, sources in by_method.items() if method and sources == {source}]
    all_of = f", all those of {' and '.join(methods)}," if methods else ""
    return (
        f"{version['units']} units of `{name}`{all_of} were computed again with a later source, "
        f"`{source}`; the page shows these, times included. Beside what `{main}` had, "
        f"{outcome(reruns([name], source))}"
    )


def version_part(results: dict[str, dict[str, Any]]) -> str:
    """Return which source all results are of, and the exceptions with what was checked of them."""
    units: dict[str, int] = {}
    packages: set[str] = set()
    for found in results.values():
        for version in versions_of(found):
            source = version.get("source", "not noted")
            units[source] = units.get(source, 0) + int(version.get("units", 1))
            others = {k: v for k, v in version.items() if k not in ("source", "units", "part")}
            packages.add(", ".join(f"{key} {others[key]}" for key in sorted(others)))
    main = max(units, key=lambda source: units[source], default="")
    noted = checks()
    rows: list[list[str]] = []
    later: list[str] = []
    for name, found in results.items():
        older = [v for v in versions_of(found) if v.get("source", "not noted") != main]
        for version in older or ([] if versions_of(found) else [{}]):
            if version and replaced(name, version.get("source", "not noted"), main):
                later.append(later_note(name, version, main))
                continue
            count = version.get("part", version.get("units", "all"))
            told = checked(noted[name]) if name in noted else "not checked"
            rows.append([f"`{name}`", version.get("source", "not noted"), str(count), told])
    if later:
        later[-1] += " Nothing else was computed again with a later source."
    lines = "\n".join(f"* {text}" for text in sorted(packages))
    digits = f"`{main}` (the first digits of a hash over its Python files)"
    if len(units) < 2:
        text = (
            f"All {sum(units.values())} units of work on this page were computed with one source "
            f"of the library, {digits}."
        )
    else:
        text = (
            f"{units[main]} of {sum(units.values())} units of work were computed with one source "
            f"of the library, {digits}."
        )
    if rows:
        text += (
            " Those in the table are of an older one; “checked” says what came out where some of "
            "them were computed again (the same means to nine digits, times aside)."
        )
    note = rerun_note(reruns(results, main), f"`{main}`")
    return "\n".join(
        [
            "## Versions\n",
            *[paragraph(part) for part in (text, *later, note) if part],
            *([table(["result", "source", "units", "checked"], rows)] if rows else []),
            f"The packages:\n\n{lines}\n",
        ]
    )
