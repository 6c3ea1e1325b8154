"""The page's last part: which version of the library each result is of."""

from __future__ import annotations

import json
from typing import Any

from page_parts import paragraph, table
from runner import RESULTS

SAME = 1e-9


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
    gaps = part["units"].values()
    same = sum(gap <= SAME for gap in gaps)
    if same == len(gaps):
        return f"{len(gaps)} units again with {version}: the same"
    return (
        f"{len(gaps)} units again with {version}: {same} the same, the largest relative difference "
        f"{max(gaps):.1e}"
    )


def version_part(results: dict[str, dict[str, Any]]) -> str:
    """Return the versions of all results as a table, and what was checked with a later one."""
    rows: list[list[str]] = []
    packages: set[str] = set()
    noted = checks()
    for name, found in results.items():
        for k, version in enumerate(versions_of(found)):
            others = {
                key: version[key] for key in version if key not in ("source", "units", "part")
            }
            packages.add(", ".join(f"{key} {others[key]}" for key in sorted(others)))
            stale = name in noted and noted[name]["versions"]["source"] != version.get("source")
            rows.append(
                [
                    f"`{name}`" if k == 0 else "",
                    version.get("source", "not noted"),
                    str(version.get("part", version.get("units", "all"))),
                    checked(noted[name]) if stale else "",
                ]
            )
        if not versions_of(found):
            rows.append([f"`{name}`", "not noted", "all", ""])
    lines = "\n".join(f"* {text}" for text in sorted(packages))
    return "\n".join(
        [
            "## Versions\n",
            paragraph(
                "Which source of the library each result was computed with (the first digits of "
                "a hash over its Python files), and what came out where units of an older one "
                "were computed again (`--check`; the same means to nine digits, times aside). "
                "What is not noted was run before results noted their source. In `beyond` older "
                "units "
                "are of methods of other packages, which see the library only as encoding and "
                "purity, and of Rate1; BHC and BRT are all of the newest source named."
            ),
            table(["result", "source", "units", "checked"], rows),
            f"The packages:\n\n{lines}\n",
        ]
    )
