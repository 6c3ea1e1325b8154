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
    "They are learned hyperparameters, Rate1 with missing entries, and tables of many equal "
    "numbers, where rounding, which another computer or another order of a sum changes, decides "
    "between nearly equal choices: Rate1 on WALS, the largest of these differences, has the "
    "present values on the present computer with the older source too."
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


def reruns(names: Collection[str], source: str, folder: Path = RESULTS / "units") -> Reruns:
    """Compare each unit of a source with what an older one had, if that is kept."""
    count = 0
    other: dict[str, list[str]] = {}
    for name in names:
        path = folder / f"{name}.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        found: dict[str, list[Any]] = {}
        for record in map(json.loads, lines):
            found.setdefault(key_of(record["unit"]), []).append(record)
        for *before, last in found.values():
            older = [r for r in before if r["versions"]["source"] != source]
            if not older or last["versions"]["source"] != source:
                continue
            count += 1
            if shared_difference(older[-1]["result"], last["result"]) > SAME:
                unit = last["unit"]
                text = " ".join(str(v) for k, v in unit.items() if k not in ("seed", "draws"))
                other.setdefault(name, []).append(text)
    return Reruns(count, other)


def rerun_note(found: Reruns) -> str:
    """Return in words what came out otherwise when it was computed again."""
    if not found.units:
        return ""
    total = sum(map(len, found.other.values()))
    named = "; ".join(
        f"`{name}` {len(units)}" + (f" ({', '.join(units)})" if name in NAMED else "")
        for name, units in found.other.items()
    )
    return (
        f"{found.units} units had been computed before, with older sources and on another "
        f"computer; {found.units - total} came out the same to nine digits (times aside)"
        + (f" and {total} did not: {named}. {WHY}" if total else ".")
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
    for name, found in results.items():
        older = [v for v in versions_of(found) if v.get("source", "not noted") != main]
        for version in older or ([] if versions_of(found) else [{}]):
            count = version.get("part", version.get("units", "all"))
            told = checked(noted[name]) if name in noted else "not checked"
            rows.append([f"`{name}`", version.get("source", "not noted"), str(count), told])
    lines = "\n".join(f"* {text}" for text in sorted(packages))
    if rows:
        text = (
            f"{units[main]} of {sum(units.values())} units of work were computed with one source "
            f"of the library, `{main}` (the first digits of a hash over its Python files). The "
            "others are of an older one; “checked” says what came out where some of them were "
            "computed again (the same means to nine digits, times aside)."
        )
    else:
        text = (
            f"All {sum(units.values())} units of work on this page were computed with one source "
            f"of the library, `{main}` (the first digits of a hash over its Python files)."
        )
    return "\n".join(
        [
            "## Versions\n",
            paragraph(f"{text} {rerun_note(reruns(results, main))}".strip()),
            *([table(["result", "source", "units", "checked"], rows)] if rows else []),
            f"The packages:\n\n{lines}\n",
        ]
    )
