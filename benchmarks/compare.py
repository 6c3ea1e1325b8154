"""Compare two result files of ``speed.py``: which ratios have changed, and by how much.

    python benchmarks/compare.py old.json new.json [--tolerance 0.15]

Exit status 1 if some ratio to a competitor of the same run has become worse by more than the
tolerance.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

#: ratios that stand in the files, smaller is better
RATIOS = ("ratio", "rose_ratio", "memory_ratio", "exponent")
#: what tells the rows of a section apart
KEYS = ("model", "n", "d", "structure")


def ratios(results: dict[str, Any]) -> dict[tuple[Any, ...], float]:
    """Return every ratio of a result file under a key that names it."""
    out = {}
    for section, rows in results["sections"].items():
        for row in rows:
            name = tuple(row[key] for key in KEYS if key in row)
            for ratio in RATIOS:
                if isinstance(row.get(ratio), (int, float)):
                    out[(section, *name, ratio)] = float(row[ratio])
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.15)
    arguments = parser.parse_args()
    old, new = (ratios(json.loads(p.read_text())) for p in (arguments.old, arguments.new))
    worse = 0
    for key in sorted(old.keys() & new.keys(), key=str):
        change = new[key] / old[key] - 1
        mark = "worse" if change > arguments.tolerance else ""
        worse += bool(mark)
        name = " ".join(str(part) for part in key)
        print(f"{name:<60} {old[key]:8.3f} {new[key]:8.3f} {100 * change:+7.1f} % {mark}")
    for key in sorted(old.keys() ^ new.keys(), key=str):
        print(f"{' '.join(str(part) for part in key):<60} in one file only")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
