"""A report of a fit: a summary, one self-contained HTML page, and the files of a result folder."""

from bhclust.report.page import render
from bhclust.report.results import RESULT_FILES, check_folder, write_result
from bhclust.report.summary import Summary, as_text, summarise
from bhclust.report.tablefile import load_table, save_table

__all__ = [
    "RESULT_FILES",
    "Summary",
    "as_text",
    "check_folder",
    "load_table",
    "render",
    "save_table",
    "summarise",
    "write_result",
]
