"""The method of all estimators that writes the interactive tree."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted


class ViewMixin:
    """Adds `to_html`; the logic lives in `bhclust.viewer`."""

    def to_html(
        self, path: str | PathLike[str], X: Any = None, *, title: str | None = None
    ) -> Path:
        """Write the tree to one HTML file to look at in a browser; it needs no network.

        Parameters
        ----------
        path : str or path
            The file; it is replaced if it exists.
        X : like the fitted table, optional
            The fitted table, all rows of it, for the heat map beside the leaves.
        title : str, optional
            The heading.

        Returns
        -------
        Path
            The file. See `bhclust.viewer.write_view`.
        """
        from bhclust import viewer

        check_is_fitted(self)
        return viewer.write_view(self, path, X, title=title)
