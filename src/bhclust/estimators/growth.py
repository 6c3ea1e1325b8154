"""`partial_fit`: what the tree estimators share about growing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.metrics import adjusted_rand_score

from bhclust import posterior
from bhclust._coordinates import Prior
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate
from bhclust.growing import Growing, make_growing
from bhclust.randomised import comparable_evidence

if TYPE_CHECKING:
    from bhclust.mixing import Mixing
    from bhclust.models import ClusterModel

# Results that are computed when they are asked for after the tree has grown.
_LATER = ("tree_", "labels_", "leaf_rows_", "n_clusters_", "log_evidence_", "log_evidence_bound_")


class GrowthCheck(NamedTuple):
    """A grown tree beside the greedy tree of the same rows under the same prior.

    ``evidence`` and ``batch_evidence`` are comparable (the bound for a Dirichlet process);
    ``agreement`` is the adjusted Rand index of the two most probable partitions.
    """

    evidence: float
    batch_evidence: float
    agreement: float


class _Growth(NamedTuple):
    """A growing tree, and the rows that its first leaves are."""

    growing: Growing
    n_rows: int


class GrowingMixin:
    """Adds `partial_fit` to an estimator with `fit`, `_encode`, `_store_results` and a tree."""

    _rose: ClassVar[bool]
    n_clusters: int | None
    model_: ClusterModel
    mixing_: Mixing

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Insert rows into the tree, one after the other; the first call is `fit`.

        Each row goes to the place on its best predictive path that raises the evidence most, and
        the tree is repaired around it (see `bhclust.growing`). The model's hyperparameters stay
        those of the first call: let it have enough rows to tell the scale of each column, or
        give the model its hyperparameters. New rows are numbered after the old ones. Trees,
        labels and evidence are computed anew when they are asked for.

        Parameters
        ----------
        X : like the table of `fit`
            Rows with the same columns.
        y : ignored

        Returns
        -------
        self
        """
        if not hasattr(self, "model_"):
            return self.fit(X)  # type: ignore[no-any-return]
        values = self._encode(X)
        growth = self.__dict__.get("_growth")
        if growth is None:
            growth = self._start_growing()
        growth.growing.insert(values)
        # From here on nothing can fail.
        self._growth = _Growth(growth.growing, growth.n_rows + values.shape[0])
        for name in _LATER:
            self.__dict__.pop(name, None)
        return self

    def check_growth(self) -> GrowthCheck:
        """Compare the tree with the greedy tree of all its rows at once.

        The greedy tree takes time quadratic in the number of rows.
        """
        tree, prior = self.tree_, Prior(self.model_, self.mixing_)
        n = tree.n_leaves
        if tree.stats is None:
            raise BhclustError("check_growth needs a tree with the statistics of its nodes.")
        batch = agglomerate(
            prior.model,
            np.ascontiguousarray(tree.stats[:n]),
            prior.mixing,
            rose=self._rose,
            weight=tree.weight[:n],
        ).tree
        return GrowthCheck(
            comparable_evidence(tree, prior.mixing),
            comparable_evidence(batch, prior.mixing),
            float(adjusted_rand_score(posterior.cut(tree), posterior.cut(batch))),
        )

    def _start_growing(self) -> _Growth:
        n_rows = len(self.labels_)
        if len(self.leaf_rows_) < n_rows:
            raise BhclustError(
                "partial_fit cannot follow a fit with rows of weight zero, which are not in the "
                "tree: leave them out."
            )
        prior = Prior(self.model_, self.mixing_)
        return _Growth(make_growing(self.tree_, prior, rose=self._rose), n_rows)

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that are not there.
        if name not in _LATER or "_growth" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        growth = self.__dict__["_growth"]
        self.tree_ = growth.growing.tree()
        self.leaf_rows_ = np.arange(growth.n_rows)
        self.labels_ = posterior.cut(self.tree_, self.n_clusters)
        self.n_clusters_ = int(self.labels_.max()) + 1
        self._store_results()
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__[name]
