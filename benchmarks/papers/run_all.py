"""Run every script of this folder and write the page.

    python benchmarks/papers/run_all.py [--quick] [--fresh]

Options go to each script. With ``--quick`` nothing is written: it shows that all of them work.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

SCRIPTS = (
    "bhc_table_1",
    "bhc_table_1_readings",
    "bhc_figure_4",
    "bhc_figure_5",
    "bhc_figure_6",
    "yang_qin",
    "rose_figure_1_1",
    "rose_tables",
    "rose_tables_readings",
    "rose_figure_1_6",
    "rose_figure_1_7",
    "rose_figure_1_8",
    "rose_figure_1_9",
    "coalescent_figure2",
    "coalescent_table1",
    "coalescent_table1_readings",
    "coalescent_wals",
    "coalescent_nips",
    "beyond",
)


def main() -> None:
    folder = Path(__file__).parent
    given = sys.argv[1:]
    sys.path.insert(0, str(folder))
    start = time.perf_counter()
    for name in SCRIPTS:
        print(f"== {name} ({time.perf_counter() - start:.0f} s)", flush=True)
        # In this process, so that the libraries are loaded once.
        sys.argv = [str(folder / f"{name}.py"), *given]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as stop:  # a script that has no data to work on ends itself
            if stop.code not in (None, 0):
                raise
    sys.argv = ["page.py", *(["--check"] if "--quick" in given else [])]
    runpy.run_path(str(folder / "page.py"), run_name="__main__")
    print(f"all scripts ran in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
