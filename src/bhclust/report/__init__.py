"""A report of a fit: a summary, one self-contained HTML page, and the files of a result folder."""

from bhclust.report.page import render
from bhclust.report.results import RESULT_FILES, check_folder, write_result
from bhclust.report.scores import Scores, score_clusters
from bhclust.report.summary import Summary, summarise
from bhclust.report.tablefile import load_table, save_table
from bhclust.report.terminal import Style, as_text, draw_text, scores_text, text_table

__all__ = [
    "RESULT_FILES",
    "Scores",
    "Style",
    "Summary",
    "as_text",
    "check_folder",
    "draw_text",
    "load_table",
    "render",
    "save_table",
    "score_clusters",
    "scores_text",
    "summarise",
    "text_table",
    "write_result",
]
