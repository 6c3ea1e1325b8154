"""An interactive tree in one HTML file, and a small one for notebooks."""

from bhclust.report.tablefile import load_table, save_table
from bhclust.viewer.notebook import tree_html
from bhclust.viewer.results import view_result
from bhclust.viewer.view import write_view

__all__ = ["load_table", "save_table", "tree_html", "view_result", "write_view"]
