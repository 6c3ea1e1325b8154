"""The command ``bhclust``: a few lines over the library for each thing it does."""

from bhclust.cli.commands import main
from bhclust.cli.comparing import compare
from bhclust.cli.exporting import export, view
from bhclust.cli.fitting import demo, fit
from bhclust.cli.using import cut, predict, score

__all__ = ["compare", "cut", "demo", "export", "fit", "main", "predict", "score", "view"]
