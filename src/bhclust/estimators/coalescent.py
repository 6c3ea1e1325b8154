"""Estimator for coalescent clustering."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bhclust import io
from bhclust._validation import (
    FloatArray,
    IntArray,
    check_count,
    check_fitted_rows,
    check_magnitude,
)
from bhclust.coalescent.archive import (
    posterior_arrays,
    posterior_from_arrays,
    process_from_spec,
    process_spec,
)
from bhclust.coalescent.cut import cluster_of_branch
from bhclust.coalescent.fit import ProgressBar, choose_process, fit_trees, flat_labels, learnable
from bhclust.coalescent.history import log_prior
from bhclust.coalescent.mutation import Mutation
from bhclust.coalescent.posterior import TreePosterior
from bhclust.coalescent.predict import Placement, Predictor, heldout_log_likelihood
from bhclust.coalescent.processes import EntryMoments, Process
from bhclust.estimators._view import ViewMixin
from bhclust.models.base import Kind
from bhclust.tables import Schema, Table, read_table
from bhclust.tree import Tree

_OWNER = "CoalescentClustering"


class _Weighted(NamedTuple):
    """Trees to predict with, and their weights."""

    predictors: tuple[Predictor, ...]
    weights: FloatArray


class CoalescentClustering(ViewMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Coalescent clustering: a binary tree with ages, along which the data evolve.

    Teh, Daumé & Roy, "Bayesian agglomerative clustering with coalescents", NIPS 2008.

    Parameters
    ----------
    process : {"auto", "brownian", "mutation"} or Brownian or Mutation
        What evolves: numbers diffuse, categories and 0/1 mutate. ``"auto"`` chooses by the kinds
        of the columns; beside numbers, 0/1 are numbers too. Hyperparameters left open are taken
        from the data and learned.
    inference : str
        One good tree by ``"greedy-rate1"``, ``"greedy-maxprob"`` or ``"greedy-minduration"``; or
        weighted trees from the posterior by ``"smc-race"``, ``"smc-postpost"``,
        ``"smc-priorpost"`` or ``"smc-priorprior"``.
    n_particles : int
        Number of sampled trees.
    learn : {"auto", True, False}
        Which hyperparameters to learn in turn with the tree: those left open, all, or none.
    max_iter : int
        Rounds of learning.
    n_clusters : int, optional
        Number of clusters in `labels_`; by default likelihood ratios decide.
    threshold : float
        A node is split into clusters if its children are more likely apart than together by more
        than this, in log likelihood.
    column_kinds : kind or mapping from column to kind, optional
        "binary", "categorical", "count" or "real", for columns whose kind is not as it looks.
    random_state : int, Generator or RandomState, optional
        Seed of the samplers and of `sample`.
    n_jobs : int, optional
        Threads among which the particles are shared; results do not depend on it.
    verbose : bool
        Whether to show progress and say what was found.

    Attributes
    ----------
    tree_ : Tree
        The greedy tree, or the sampled one with the highest log p(tree, X). Heights are ages, log
        odds are log likelihood ratios of together against apart.
    posterior_ : TreePosterior or None
        The weighted trees of a sampler.
    labels_ : array of int
        Cluster of each row; 0 is the largest.
    n_clusters_ : int
    process_ : Brownian or Mutation
        The process with all hyperparameters filled in; `model_` is the same.
    log_joint_ : float
        log p(tree, X), the paper's (7).
    log_likelihood_ : float
        log p(X | tree).
    log_evidence_ : float
        Samplers: estimate of log p(X). Greedy: log p(X | tree).
    objectives_ : tuple of float
        How the objective of learning went, one number a search.
    n_iter_ : int
        Number of searches: one, and one more for each round of learning.

    Examples
    --------
    >>> from bhclust.estimators.coalescent import CoalescentClustering
    >>> X = [[0.0, 0.1], [0.1, 0.0], [5.0, 5.1], [5.1, 5.0], [5.0, 5.0]]
    >>> CoalescentClustering(n_clusters=2).fit(X).labels_.tolist()
    [1, 1, 0, 0, 0]
    """

    def __init__(
        self,
        process: str | Process = "auto",
        *,
        inference: str = "greedy-rate1",
        n_particles: int = 100,
        learn: str | bool = "auto",
        max_iter: int = 2,
        n_clusters: int | None = None,
        threshold: float = 0.0,
        column_kinds: Kind | Mapping[str | int, Kind] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.process = process
        self.inference = inference
        self.n_particles = n_particles
        self.learn = learn
        self.max_iter = max_iter
        self.n_clusters = n_clusters
        self.threshold = threshold
        self.column_kinds = column_kinds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the tree, or draw trees from the posterior.

        Parameters
        ----------
        X : array, list, DataFrame (pandas, polars, pyarrow) or sparse matrix, (n_rows, n_columns)
            NaN, None and nulls are missing values.
        y : ignored

        Returns
        -------
        self
        """
        if self.n_clusters is not None:
            check_count(self.n_clusters, name="n_clusters", owner=_OWNER)
        table = self._read(X)
        given = choose_process(self.process, table.columns)
        values = _without_huge(table.toarray(), table.schema)
        fitted = fit_trees(
            given.for_columns(table.columns).resolve(values),
            values,
            inference=self.inference,
            names=learnable(given, self.learn),
            max_iter=self.max_iter,
            n_particles=self.n_particles,
            rng=self._rng(),
            n_jobs=effective_n_jobs(self.n_jobs),
            leaf_names=table.row_names,
            progress=ProgressBar(f"{_OWNER} {self.inference}") if self.verbose else None,
        )
        self._check_columns(X, reset=True)
        self.schema_ = table.schema
        self.process_ = fitted.process
        self.tree_ = fitted.tree
        self.posterior_ = fitted.posterior
        self.objectives_ = fitted.objectives
        self._store(values, fitted.log_joint, fitted.log_likelihood)
        n_clusters = None if self.n_clusters is None else min(self.n_clusters, len(values))
        self._label(self.cut(n_clusters, self.threshold))
        return self

    def fit_predict(self, X: Any, y: Any = None) -> IntArray:
        """Fit and return `labels_`."""
        return self.fit(X).labels_

    def cut(self, n_clusters: int | None = None, threshold: float = 0.0) -> IntArray:
        """Return the labels of another cut of the fitted tree; nothing is refitted.

        Parameters
        ----------
        n_clusters : int, optional
            Cut at the age that leaves this many clusters.
        threshold : float
            Otherwise split, from the root down, every node whose children are more likely apart
            than together by more than this in log likelihood.
        """
        check_is_fitted(self)
        return flat_labels(self.process_, self.tree_, self._values, n_clusters, threshold)

    # -- new rows --------------------------------------------------------------------------------

    def predict(self, X: Any) -> IntArray:
        """Return the most probable cluster of each row."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability that a row hangs in each cluster of `labels_` of `tree_`.

        A branch above several clusters is shared among them in proportion to their leaves.
        """
        values = self._encode(X)
        branches = Predictor(self.process_, self.tree_, self._values).branch_probabilities(values)
        return np.asarray(branches @ cluster_of_branch(self.tree_, self.labels_))

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log predictive density of each row; samplers average over their trees.

        It integrates to one over rows. A new item may hang right above a leaf, so the density has
        a sharp peak at every fitted row; without noise at the leaves the peak has no bound in two
        columns or more, and the number returned there is only a large one.
        """
        values = self._encode(X)
        trees = self._trees()
        log_densities = np.stack([one.log_density(values) for one in trees.predictors])
        return np.asarray(logsumexp(log_densities, axis=0, b=trees.weights[:, None]))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log predictive density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> Any:
        """Draw new rows from the predictive density, in the container that was fitted."""
        check_is_fitted(self)
        count = check_count(n_samples, name="n_samples", owner=_OWNER)
        rng, trees = self._rng(), self._trees()
        share = rng.multinomial(count, trees.weights)
        drawn = [one.sample(int(k), rng) for one, k in zip(trees.predictors, share, strict=True)]
        return self.schema_.decode(rng.permutation(np.concatenate(drawn)))

    def nearest_branch(self, X: Any) -> Placement:
        """Return the branch of `tree_` on which each row most probably hangs, and at what age."""
        values = self._encode(X)
        return Predictor(self.process_, self.tree_, self._values).nearest_branch(values)

    # -- missing entries -------------------------------------------------------------------------

    def impute(self, X: Any = None) -> Any:
        """Return rows with their missing entries filled in.

        Numbers get their mean, categories and 0/1 the most probable value.

        Parameters
        ----------
        X : like the fitted table, optional
            New rows, which are hung on the tree by the entries they have. By default the fitted
            rows, each in its place.
        """
        distribution = self.impute_distribution(X)
        values = self._values if X is None else self._encode(X)
        if isinstance(distribution, EntryMoments):
            filled = distribution.mean
        else:
            filled = np.stack([part.argmax(axis=1) for part in distribution], axis=1)
        return self.schema_.decode(np.where(np.isnan(values), filled, values), like=X)

    def impute_distribution(self, X: Any = None) -> EntryMoments | list[FloatArray]:
        """Return how every entry is distributed given the rest of the table.

        Numbers: mean and variance, ``(n_rows, n_columns)`` each. Categories and 0/1: a list with
        one array of probabilities ``(n_rows, n_states)`` a column.
        """
        check_is_fitted(self)
        values = None if X is None else self._encode(X)
        trees = self._trees()
        firsts, seconds = [], []
        for one in trees.predictors:
            if isinstance(self.process_, Mutation):
                flat = (
                    self.process_.leaf_probabilities(one.tree, self._values)
                    if values is None
                    else one.probabilities(values)
                )
                firsts.append(flat)
                continue
            moments = (
                self.process_.leaf_moments(one.tree, self._values)  # type: ignore[attr-defined]
                if values is None
                else one.moments(values)
            )
            firsts.append(moments.mean)
            seconds.append(moments.variance + moments.mean**2)
        mean = np.tensordot(trees.weights, np.stack(firsts), axes=1)
        if isinstance(self.process_, Mutation):
            return self.process_.split(mean)
        square = np.tensordot(trees.weights, np.stack(seconds), axes=1)
        return EntryMoments(mean, square - mean**2)

    def heldout_log_likelihood(self, X_full: Any) -> float:
        """Return log p(entries missing at fit | the others), all of them together.

        Parameters
        ----------
        X_full : like the fitted table
            The fitted rows in the same order, with entries that were missing filled in. Entries
            that stay missing are marginalised.
        """
        full = self._encode(X_full)
        check_fitted_rows(len(full), len(self._values))
        trees = self._trees()
        values = [
            heldout_log_likelihood(self.process_, one.tree, self._values, full)
            for one in trees.predictors
        ]
        return float(logsumexp(values, b=trees.weights))

    # -- pairs of rows ---------------------------------------------------------------------------

    def co_clustering_matrix(self, threshold: float | None = None) -> FloatArray:
        """Return the probability that each pair of rows shares a cluster.

        The share of the sampled trees whose cut by likelihood ratios puts them together; 0 or 1
        for a greedy tree.
        """
        check_is_fitted(self)
        limit = self.threshold if threshold is None else threshold
        posterior = self.posterior_ or _single(self.tree_, self.log_joint_)
        return posterior.co_clustering(
            lambda tree: flat_labels(self.process_, tree, self._values, None, limit)
        )

    def n_clusters_distribution(self, threshold: float | None = None) -> FloatArray:
        """Return the probability of K clusters at index K.

        The share of the sampled trees whose cut by likelihood ratios has K clusters; a greedy
        tree has one number for sure.
        """
        check_is_fitted(self)
        limit = self.threshold if threshold is None else threshold
        posterior = self.posterior_ or _single(self.tree_, self.log_joint_)
        numbers = [
            int(flat_labels(self.process_, tree, self._values, None, limit).max()) + 1
            for tree in posterior.trees
        ]
        return np.bincount(numbers, weights=posterior.weights).astype(np.float64)

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to one ``.npz`` file that `bhclust.load` reads."""
        check_is_fitted(self)
        process_header, process_arrays = process_spec(self.process_)
        skipped = ("process", "random_state")
        parameters = {k: v for k, v in self.get_params().items() if k not in skipped}
        header = {
            "kind": "estimator",
            "estimator": _OWNER,
            "parameters": parameters,
            "process": process_header,
            "tree": io.tree_header(self.tree_),
            "schema": self.schema_.to_dict(),
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "objectives": list(self.objectives_),
        }
        arrays = {
            "labels": self.labels_,
            "values": self._values,
            **process_arrays,
            **io.tree_arrays(self.tree_),
            **({} if self.posterior_ is None else posterior_arrays(self.posterior_)),
        }
        io.write_archive(path, header, arrays)

    @classmethod
    def from_archive(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """Return the estimator that `save` wrote, from its header and arrays."""
        process = process_from_spec(header["process"], arrays)
        estimator = cls(process=process, **header["parameters"])
        estimator.process_ = process
        estimator.tree_ = io.tree_from_arrays(header["tree"], arrays)
        estimator.posterior_ = posterior_from_arrays(
            arrays, estimator.tree_.n_leaves, estimator.tree_.leaf_names
        )
        estimator.schema_ = Schema.from_dict(header["schema"])
        estimator.n_features_in_ = len(estimator.schema_.columns)
        if header["feature_names"]:
            estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        estimator.objectives_ = tuple(header["objectives"])
        values = np.asarray(arrays["values"], dtype=np.float64)
        log_likelihood = process.log_likelihood(estimator.tree_, values)
        estimator._store(values, log_prior(estimator.tree_) + log_likelihood, log_likelihood)
        estimator._label(np.asarray(arrays["labels"], dtype=np.intp))
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    # -- helpers ---------------------------------------------------------------------------------

    def _read(self, X: Any) -> Table:
        name = self.process if isinstance(self.process, str) else type(self.process).__name__
        kinds = self.column_kinds
        if name in ("brownian", "Brownian") and kinds is None:
            kinds = "real"
        table = read_table(X, kinds=kinds)
        if name in ("mutation", "Mutation"):
            # Numbers other than 0 and 1 are categories here.
            declared: dict[str | int, Kind] = {
                j: column.kind if column.kind == "binary" else "categorical"
                for j, column in enumerate(table.columns)
            }
            table = read_table(X, kinds=declared)
        return table

    def _check_columns(self, X: Any, *, reset: bool) -> None:
        """Take over, or compare, number and names of the columns as scikit-learn does."""
        if isinstance(X, Mapping):  # columns by name; the schema compares them
            if reset:
                self.n_features_in_ = len(X)
                self.feature_names_in_ = np.array(list(X), dtype=object)
        elif getattr(X, "ndim", 2) == 2:  # anything else is refused by the table's reader
            validate_data(self, X, reset=reset, skip_check_array=True)

    def _encode(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        self._check_columns(X, reset=False)
        encoded: Any = self.schema_.encode(X, owner=_OWNER)
        values = encoded if isinstance(encoded, np.ndarray) else encoded.toarray()
        return _without_huge(values, self.schema_)

    def _rng(self) -> np.random.Generator:
        if isinstance(self.random_state, np.random.Generator):
            return self.random_state
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))

    def _trees(self) -> _Weighted:
        """Return what predictions are averaged over: the tree, or the trees of some weight."""
        if self.posterior_ is None:
            return _Weighted((self._predictor(self.tree_),), np.ones(1))
        weights = self.posterior_.weights
        kept = np.flatnonzero(weights > 1e-4 * weights.max())
        predictors = tuple(self._predictor(self.posterior_.trees[int(k)]) for k in kept)
        return _Weighted(predictors, weights[kept] / weights[kept].sum())

    def _predictor(self, tree: Tree) -> Predictor:
        return Predictor(self.process_, tree, self._values)

    def _store(self, values: FloatArray, log_joint: float, log_likelihood: float) -> None:
        self._values = values
        self.model_ = self.process_
        self.n_iter_ = len(self.objectives_)
        self.log_joint_ = log_joint
        self.log_likelihood_ = log_likelihood
        posterior = self.posterior_
        self.log_evidence_ = log_likelihood if posterior is None else posterior.log_evidence

    def _label(self, labels: IntArray) -> None:
        self.labels_ = labels
        self.n_clusters_ = int(labels.max()) + 1
        if self.verbose:
            print(f"[{_OWNER}] {self.n_clusters_} clusters, log p(tree, X) {self.log_joint_:.4f}")


def _without_huge(values: FloatArray, schema: Schema) -> FloatArray:
    """Return the values as they are, or say which one is too large to be squared."""
    check_magnitude(values, lambda j: f"column {schema.columns[j].name!r}")
    return values


def _single(tree: Tree, log_joint: float) -> TreePosterior:
    joint = np.array([log_joint])
    return TreePosterior((tree,), np.ones(1), joint, log_joint, np.ones(tree.n_leaves - 1))
