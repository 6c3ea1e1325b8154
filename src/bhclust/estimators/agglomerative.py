"""Estimators for Bayesian hierarchical clustering and Bayesian rose trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from bhclust import explanations, io, posterior
from bhclust._coordinates import Prior
from bhclust._gpu.device import DeviceName
from bhclust._validation import (
    BhclustError,
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_fitted_rows,
    check_flag,
    check_learn,
    check_sample_weight,
)
from bhclust._whole_numbers import settle_whole_numbers
from bhclust._wide_counts import suited_model
from bhclust.agglomerate import EngineName, score_tree
from bhclust.estimators._view import ViewMixin
from bhclust.estimators.growth import GrowingMixin
from bhclust.explanations import FeatureContribution
from bhclust.learn import Fitted, Plan, fit_tree
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models import ClusterModel, named_model
from bhclust.models.base import Kind
from bhclust.models.spec import model_spec
from bhclust.randomised import RANDOMISED, Items, compact, fit_randomised, pooled_by_label
from bhclust.strategies import STRATEGIES
from bhclust.tables import Table, read_table
from bhclust.tree import Tree

_MIXINGS = ("dirichlet_process", "constant", "rose")


class _Predictive(NamedTuple):
    """A tree with statistics, and the labels of its leaves."""

    tree: Tree
    labels: IntArray


class _TreeClustering(GrowingMixin, ViewMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """What the binary and the rose tree estimators have in common."""

    _rose: ClassVar[bool]
    _mixings: ClassVar[tuple[str, ...]]

    model: str | ClusterModel
    mixing: str
    alpha: float
    gamma: float
    n_clusters: int | None
    column_kinds: Kind | Mapping[str | int, Kind] | None
    learn: str | bool | Sequence[str]
    strategy: str
    n_restarts: int
    max_iter: int
    polish: bool
    learn_rows: int
    sample_size: int
    part_size: int
    n_seeds: int
    engine: EngineName
    n_jobs: int | None
    device: DeviceName
    random_state: Any
    verbose: bool

    def fit(self, X: Any, y: Any = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Build the tree.

        Parameters
        ----------
        X : array, list, DataFrame (pandas, polars, pyarrow) or sparse matrix, (n_rows, n_columns)
            NaN, None and nulls are missing values.
        y : ignored
        sample_weight : array of shape (n_rows,), optional
            Multiplicities: a row of weight w counts as w copies that always share a cluster. Rows
            of weight zero are not in the tree and get their label by prediction.

        Returns
        -------
        self
        """
        mixing, plan = self._make_mixing(), self._make_plan()
        table = self._read(X)
        weight = check_sample_weight(sample_weight, table.shape[0])
        table = self._settled(table, weight)
        rows = np.flatnonzero(weight > 0)
        names = table.row_names
        model = self._make_model(table, weight).for_columns(table.columns)
        table_values = table.values if model.accepts_sparse else table.toarray()
        values = table_values if len(rows) == len(weight) else table_values[rows]
        model = model.resolve(values, weight[rows])
        self._say(f"model: {model!r}")
        named = None if names is None else tuple(names[row] for row in rows)
        items = Items(values, weight[rows], table.columns, named)
        prior, rng, say = Prior(model, mixing), self._rng(), self._say
        if plan.strategy in RANDOMISED:
            result = fit_randomised(prior, items, plan, rose=self._rose, rng=rng, say=say)
        else:
            result = fit_tree(prior, items.leaves(model), plan, rose=self._rose, rng=rng, say=say)
        model, mixing = result.prior
        leaf_labels = posterior.cut(result.tree, self.n_clusters)
        large = result.tree.stats is None
        cluster_tree = None
        if large:
            pooled = pooled_by_label(model, items, np.arange(len(items)), leaf_labels)
            cluster_tree = compact(result.tree, leaf_labels, model, pooled)
        predictive = _Predictive(result.tree, leaf_labels)
        if cluster_tree is not None:
            predictive = _Predictive(cluster_tree, np.arange(cluster_tree.n_leaves))
        labels = self._label_rows(predictive, model, mixing, table_values, rows, leaf_labels)
        # Nothing is stored before this line, so that a fit that fails changes nothing.
        self._check_columns(X, reset=True)
        self._store_fit(table, result, rows, labels, cluster_tree)
        self._say(f"{self.n_clusters_} clusters, log evidence {self.log_evidence_:.4f}")
        return self

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: npt.ArrayLike | None = None
    ) -> IntArray:
        """Fit and return `labels_`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def cut(
        self,
        n_clusters: int | None = None,
        threshold: float = 0.5,
        method: posterior.CutMethod = "map",
    ) -> IntArray:
        """Return the labels of another cut of the fitted tree; nothing is refitted.

        See `bhclust.posterior.cut`. The labels are those of the tree's leaves, `leaf_rows_`.
        """
        check_is_fitted(self)
        return posterior.cut(self.tree_, n_clusters, threshold, method)

    def predict(self, X: Any) -> IntArray:
        """Return the most probable existing cluster of each row.

        How probable a new cluster is, the last column of `predict_proba` tells. A row that was
        fitted may get another label than in `labels_`: prediction averages over all partitions.
        """
        return np.asarray(np.argmax(self.predict_proba(X)[:, :-1], axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each cluster of `labels_`, "a new cluster" last."""
        values = self._encode(X)
        tree, labels = self._predictive()
        return posterior.cluster_probabilities(
            tree, self.model_, self.mixing_, values, labels, device=self.device
        )

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log predictive density of each row."""
        values = self._encode(X)
        tree = self._predictive().tree
        return posterior.log_predictive_density(
            tree, self.model_, self.mixing_, values, device=self.device
        )

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log predictive density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> Any:
        """Draw new rows from the predictive density, in the container that was fitted."""
        check_is_fitted(self)
        rng = np.random.default_rng(self.random_state)
        tree = self._predictive().tree
        draws = posterior.sample_items(tree, self.model_, self.mixing_, n_samples, rng)
        return self.schema_.decode(draws)

    def impute(self, X: Any) -> Any:
        """Return the rows with missing entries filled from the predictive given the others.

        Reals and counts get their expected value, categories and 0/1 the most probable value.
        """
        values = self._encode(X)
        tree = self._predictive().tree
        filled = posterior.impute(tree, self.model_, self.mixing_, _dense(values))
        return self.schema_.decode(filled, like=X)

    def heldout_log_likelihood(self, X_full: Any) -> float:
        """Return ``log p(missing entries | observed entries, tree)`` (rose-tree paper (1.24)).

        Parameters
        ----------
        X_full : like the fitted table
            The fitted rows in the same order, with entries that were missing filled in. Entries
            that stay missing are marginalised.
        """
        values = self._encode(X_full)
        check_fitted_rows(values.shape[0], len(self.labels_))
        values = values[self.leaf_rows_]
        weight = self.tree_.weight[: self.tree_.n_leaves]
        stats = self.model_.repeat(self.model_.suffstats(values), weight)
        full = score_tree(self.tree_.parent, self.model_, stats, self.mixing_, weight=weight)
        return posterior.log_evidence(full) - self.log_evidence_

    def co_clustering(self, i: npt.ArrayLike, j: npt.ArrayLike) -> FloatArray:
        """Return the posterior probability that rows i and j share a cluster."""
        check_is_fitted(self)
        return posterior.co_clustering(self.tree_, self._leaf(i), self._leaf(j))

    def co_clustering_matrix(self) -> FloatArray:
        """Return the co-clustering probabilities of all pairs of leaves."""
        check_is_fitted(self)
        return posterior.co_clustering_matrix(self.tree_)

    def n_clusters_distribution(self) -> FloatArray:
        """Return the posterior probability of K clusters at index K."""
        check_is_fitted(self)
        return posterior.n_clusters_distribution(self.tree_)

    def sample_partitions(self, n_samples: int = 1) -> IntArray:
        """Draw labellings of the leaves from the posterior over tree-consistent partitions."""
        check_is_fitted(self)
        rng = np.random.default_rng(self.random_state)
        return posterior.sample_partitions(self.tree_, n_samples, rng)

    def explain(self, node: int | None = None, top: int = 10) -> list[FeatureContribution]:
        """Return the features that speak most for splitting a node (the root by default).

        The `levels` of a feature say where each child stands, in the order of
        ``tree_.children(node)``; see `bhclust.explanations`.
        """
        check_is_fitted(self)
        at = int(self.tree_.roots[-1]) if node is None else node
        return explanations.explain_nodes(self, [at], top)[0].features

    def explain_cluster(self, label: int, top: int = 10) -> list[FeatureContribution]:
        """Return the features that set a cluster of `labels_` apart from all the rest.

        The first of the `levels` of a feature is that of the cluster, the second that of all
        other rows of the tree.
        """
        check_is_fitted(self)
        return explanations.explain_cluster(self, label, top)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to one ``.npz`` file that `bhclust.load` reads."""
        check_is_fitted(self)
        model_header, model_arrays = model_spec(self.model_)
        header = {
            "kind": "estimator",
            "estimator": type(self).__name__,
            "parameters": _plain_parameters(self.get_params(deep=False)),
            "model": model_header,
            "mixing_parameter": getattr(self, "alpha_", getattr(self, "gamma_", None)),
            "strategy": self.strategy_,
            "polish_gain": self.polish_gain_,
            "learning": self.learning_info_._asdict(),
            "tree": io.tree_header(self.tree_),
            "schema": self.schema_.to_dict(),
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        arrays = {
            "labels": self.labels_,
            "leaf_rows": self.leaf_rows_,
            "evidence_path": self.evidence_path_,
            **{f"model.{name}": array for name, array in model_arrays.items()},
            **io.tree_arrays(self.tree_),
        }
        if self.cluster_tree_ is not None:
            header["cluster_tree"] = io.tree_header(self.cluster_tree_)
            of_clusters = io.tree_arrays(self.cluster_tree_)
            arrays |= {f"clusters.{name}": array for name, array in of_clusters.items()}
        io.write_archive(path, header, arrays)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        # The tag speaks for any sparse matrix, but only 0/1 and counts may be sparse: so it is
        # set where the model was chosen for that, and not under "auto", which also takes them.
        tags.input_tags.sparse = self._accepts_any_sparse()
        tags.input_tags.string = True
        return tags

    def _accepts_any_sparse(self) -> bool:
        given = self.model if isinstance(self.model, ClusterModel) else None
        return given is not None and given.accepts_sparse

    def _make_mixing(self, learned: float | None = None) -> Mixing:
        """Return the mixing prior, with the value that was learned if there is one."""
        owner = type(self).__name__
        check_choice(self.mixing, self._mixings, name="mixing", owner=owner)
        check_choice(self.engine, ("auto", "numpy", "compiled"), name="engine", owner=owner)
        check_choice(self.device, ("cpu", "cuda", "auto"), name="device", owner=owner)
        if self.n_clusters is not None:
            check_count(self.n_clusters, name="n_clusters", owner=owner)
        if self.mixing == "dirichlet_process":
            return DirichletProcess(self.alpha if learned is None else learned)
        gamma = self.gamma if learned is None else learned
        return Constant(gamma) if self.mixing == "constant" else Rose(gamma)

    def _make_plan(self) -> Plan:
        owner = type(self).__name__
        return Plan(
            learn=check_learn(self.learn, owner=owner),
            strategy=check_choice(
                self.strategy, (*STRATEGIES, *RANDOMISED), name="strategy", owner=owner
            ),
            n_restarts=check_count(self.n_restarts, name="n_restarts", owner=owner, lowest=0),
            max_iter=check_count(self.max_iter, name="max_iter", owner=owner),
            polish=check_flag(self.polish, name="polish", owner=owner),
            learn_rows=check_count(self.learn_rows, name="learn_rows", owner=owner, lowest=2),
            engine=self.engine,
            n_jobs=self.n_jobs,
            sample_size=check_count(self.sample_size, name="sample_size", owner=owner, lowest=2),
            part_size=check_count(self.part_size, name="part_size", owner=owner, lowest=2),
            n_seeds=check_count(self.n_seeds, name="n_seeds", owner=owner),
            device=self.device,
        )

    def _rng(self) -> np.random.Generator:
        """Return the source of restarts and samples; a fit is repeatable unless asked otherwise."""
        return np.random.default_rng(0 if self.random_state is None else self.random_state)

    def _read(self, X: Any) -> Table:
        if isinstance(self.model, str) and self.model == "auto":
            return read_table(X, kinds=self.column_kinds)
        model = self._given_model()
        if self.column_kinds is not None:
            raise BhclustError(
                f"{type(self).__name__}: column_kinds goes with model='auto'; "
                f"{type(model).__name__} says itself what its columns are."
            )
        return read_table(X, kinds=model.column_kinds)

    def _settled(self, table: Table, weight: FloatArray) -> Table:
        """Return the table with the kinds of columns that ``model="auto"`` goes by."""
        if isinstance(self.model, str) and self.model == "auto":
            return settle_whole_numbers(table, weight)
        return table

    def _check_columns(self, X: Any, *, reset: bool) -> None:
        """Take over, or compare, number and names of the columns as scikit-learn does."""
        if isinstance(X, Mapping):  # columns by name; the schema compares them
            if reset:
                self.n_features_in_ = len(X)
                self.feature_names_in_ = np.array(list(X), dtype=object)
        elif getattr(X, "ndim", 2) == 2:  # anything else is refused by the table's reader
            validate_data(self, X, reset=reset, skip_check_array=True)

    def _given_model(self) -> ClusterModel:
        if isinstance(self.model, ClusterModel):
            return self.model
        return named_model(self.model, owner=type(self).__name__)

    def _make_model(self, table: Table, weight: FloatArray) -> ClusterModel:
        if isinstance(self.model, str) and self.model == "auto":
            return suited_model(table, weight)
        return self._given_model()

    def _encode(self, X: Any) -> Any:
        check_is_fitted(self)
        self._check_columns(X, reset=False)
        values = self.schema_.encode(X, owner=type(self).__name__)
        return values if self.model_.accepts_sparse else _dense(values)

    def _store_fit(
        self,
        table: Table,
        result: Fitted,
        leaf_rows: IntArray,
        labels: IntArray,
        cluster_tree: Tree | None,
    ) -> None:
        self.__dict__.pop("_growth", None)
        self.schema_ = table.schema
        self.n_features_in_ = len(table.columns)
        self.model_, self.mixing_ = result.prior
        self.tree_ = result.tree
        self.cluster_tree_ = cluster_tree
        self.search_info_ = result.search
        self.strategy_ = result.origin
        self.learned_ = result.learned
        self.evidence_path_ = result.path
        self.learning_info_ = result.info
        self.n_iter_ = len(result.path)
        self.polish_gain_ = result.polish_gain
        self.leaf_rows_ = leaf_rows
        self.labels_ = labels
        self.n_clusters_ = int(labels.max()) + 1
        self._store_results()

    def _store_results(self) -> None:
        for name in ("alpha_", "gamma_", "log_evidence_bound_"):
            self.__dict__.pop(name, None)  # an earlier fit may have had another mixing prior
        self.log_evidence_ = posterior.log_evidence(self.tree_)
        if isinstance(self.mixing_, DirichletProcess):
            self.alpha_ = float(self.mixing_.alpha)
            self.log_evidence_bound_ = posterior.log_evidence_bound(self.tree_, self.mixing_)
        elif isinstance(self.mixing_, (Constant, Rose)):
            self.gamma_ = float(self.mixing_.gamma)

    def _label_rows(
        self,
        predictive: _Predictive,
        model: ClusterModel,
        mixing: Mixing,
        values: Any,
        leaf_rows: IntArray,
        leaf_labels: IntArray,
    ) -> IntArray:
        """Return the labels of all rows: those of the leaves by the cut, others by prediction."""
        labels = np.zeros(values.shape[0], dtype=np.intp)
        labels[leaf_rows] = leaf_labels
        absent = np.setdiff1d(np.arange(values.shape[0]), leaf_rows)
        if len(absent):
            tree, known = predictive
            probabilities = posterior.cluster_probabilities(
                tree, model, mixing, values[absent], known
            )
            labels[absent] = np.argmax(probabilities[:, :-1], axis=1)
        return labels

    def _predictive(self) -> _Predictive:
        """Return the tree that predicts, and the labels of its leaves."""
        if self.cluster_tree_ is not None:
            return _Predictive(self.cluster_tree_, np.arange(self.cluster_tree_.n_leaves))
        return _Predictive(self.tree_, self.labels_[self.leaf_rows_])

    def _leaf(self, row: npt.ArrayLike) -> IntArray:
        rows = np.asarray(row)
        leaf_of_row = np.full(len(self.labels_), -1, dtype=np.intp)
        leaf_of_row[self.leaf_rows_] = np.arange(len(self.leaf_rows_))
        if rows.size and (rows.min() < 0 or rows.max() >= len(leaf_of_row)):
            raise BhclustError(f"rows are numbered 0 … {len(leaf_of_row) - 1}, got {row!r}.")
        leaves = leaf_of_row[rows]
        if (leaves < 0).any():
            raise BhclustError("a row of weight zero is not in the tree.")
        return np.asarray(leaves)

    def _say(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}")


class BayesianHierarchicalClustering(_TreeClustering):
    """Bayesian hierarchical clustering: a binary tree with probabilities on it.

    Heller & Ghahramani, "Bayesian hierarchical clustering", ICML 2005.

    Parameters
    ----------
    model : {"auto", "bernoulli", "categorical", ...} or ClusterModel
        What a cluster is; ``"auto"`` chooses by the kinds of the columns, and by the data whether
        whole numbers are counts or measurements (``schema_.kinds`` says which).
    mixing : {"dirichlet_process", "constant"}
        Prior weight of "one cluster": a Dirichlet process, or `gamma` at every node.
    alpha : float
        Concentration of the Dirichlet process.
    gamma : float
        Probability of one cluster with ``mixing="constant"``.
    n_clusters : int, optional
        Number of clusters in `labels_`; by default the most probable partition decides.
    column_kinds : kind or mapping from column to kind, optional
        "binary", "categorical", "count" or "real", for columns whose kind is not as it looks.
    learn : {"auto", "shared", True, False} or list of str
        Which hyperparameters are learned from the evidence; what is given is where they start.
        ``"auto"``: one factor for each hyperparameter of the model, if the mixing is a Dirichlet
        process, no column of reals repeats one value in many rows, and the gain is clear (0.1
        nats a row and 30 in all); ``"shared"``: one factor for each without these conditions,
        and `alpha` or `gamma` as well; True: every entry of every hyperparameter;
        False: nothing; names such as ``["alpha", "rate"]``: a factor for each of these.
    strategy : {"best", "greedy", "rounds", "ward", "average", "all", "randomised", "groups"}
        How trees are built. ``"greedy"`` is the papers' order; ``"rounds"`` merges all mutually
        best pairs at once; ``"ward"`` and ``"average"`` score linkage trees under the model;
        ``"best"`` tries greedy, Ward and average and keeps the highest evidence, ``"all"`` also
        rounds. ``"randomised"`` is for many rows, O(n log n): the exact tree of a sample, whose
        parts are built from all the rows that go there; ``"groups"`` starts from groups of
        rows as leaves.
    n_restarts : int
        Further starts of the learning from hyperparameters drawn around the first ones.
    max_iter : int
        Most trees of one start.
    polish : bool
        Whether to prune and regraft subtrees of the final tree while its evidence rises.
    learn_rows : int
        A table with more rows is learned on by a random sample of so many, and then fitted once.
    sample_size, part_size : int
        With ``strategy="randomised"``: how many rows a sample has, and how many rows a part that
        is searched exactly may have.
    n_seeds : int
        With ``strategy="randomised"``: how many trees are built from other samples; the one of
        the highest evidence is kept.
    engine : {"auto", "numpy", "compiled"}
        What computes the scores; all engines give the same tree. ``"auto"`` takes the compiled
        one for the library's own models, and NumPy for others and for weighted rows.
    device : {"cpu", "cuda", "auto"}
        Where the greedy search, learning on its trees and the predictive density run. ``"cuda"``
        takes a graphics processor (``pip install 'bhclust[gpu]'``) and gives the same tree;
        ``"auto"`` takes one if there is one and the table is large.
    random_state : int or Generator, optional
        Seed of the restarts and of the sample that is learned on (None: a fixed seed, so that a
        fit is repeatable), and of `sample` and `sample_partitions` (None: a new one each time).
    verbose : bool
        Whether to say what is being done.

    Attributes
    ----------
    tree_ : Tree
    labels_ : array of int
        Cluster of each row; 0 is the largest.
    n_clusters_ : int
    model_ : ClusterModel
        The model with all hyperparameters filled in and learned.
    alpha_ or gamma_ : float
    learned_ : dict of str to array
        Value of each hyperparameter that was learned.
    evidence_path_ : array of float
        Best evidence after each tree of the learning, with the log prior of the
        hyperparameters (0 where they started): `log_evidence_bound_` for a Dirichlet process,
        else `log_evidence_`. It never falls.
    learning_info_ : LearningInfo
        Raw evidence of every tree, why the learning stopped, and how many rows it used.
    n_iter_ : int
        Trees that were built.
    strategy_ : str
        Where the tree comes from: "greedy", "ward", …, or "kept" for the topology of an earlier
        step that no later candidate could beat.
    polish_gain_ : float
        Evidence that polishing added.
    log_evidence_ : float
        ``log p(D | T)``.
    log_evidence_bound_ : float
        Lower bound on the evidence of the Dirichlet-process mixture (that mixing only).
    leaf_rows_ : array of int
        Row of the table that each leaf of the tree is.
    cluster_tree_ : Tree or None
        For a randomised tree whose statistics would not fit into memory (more than 1 GB): the
        tree above the clusters of `labels_`, with their statistics, which predicts in its place.
    search_info_ : SearchInfo
        Pair scores and rescans of the search.

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering
    >>> X = [[0.0, 0.1], [0.1, 0.0], [5.0, 5.1], [5.1, 5.0], [5.0, 5.0]]
    >>> BayesianHierarchicalClustering("diagonal_gaussian").fit(X).labels_.tolist()
    [1, 1, 0, 0, 0]
    """

    _rose = False
    _mixings = ("dirichlet_process", "constant")

    def __init__(
        self,
        model: str | ClusterModel = "auto",
        *,
        mixing: str = "dirichlet_process",
        alpha: float = 1.0,
        gamma: float = 0.5,
        n_clusters: int | None = None,
        column_kinds: Kind | Mapping[str | int, Kind] | None = None,
        learn: str | bool | Sequence[str] = "auto",
        strategy: str = "best",
        n_restarts: int = 0,
        max_iter: int = 20,
        polish: bool = False,
        learn_rows: int = 2000,
        sample_size: int = 1000,
        part_size: int = 2000,
        n_seeds: int = 1,
        engine: EngineName = "auto",
        n_jobs: int | None = None,
        device: DeviceName = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.mixing = mixing
        self.alpha = alpha
        self.gamma = gamma
        self.n_clusters = n_clusters
        self.column_kinds = column_kinds
        self.learn = learn
        self.strategy = strategy
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.polish = polish
        self.learn_rows = learn_rows
        self.sample_size = sample_size
        self.part_size = part_size
        self.n_seeds = n_seeds
        self.engine = engine
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose


class BayesianRoseTree(_TreeClustering):
    """Bayesian rose trees: nodes with any number of children, where the data ask for it.

    Blundell, Teh & Heller, "Bayesian rose trees", UAI 2010.

    Parameters
    ----------
    model, alpha, gamma, n_clusters, column_kinds, learn, strategy, n_restarts, max_iter, polish, \
learn_rows, sample_size, part_size, n_seeds, engine, n_jobs, device, random_state, verbose
        As in `BayesianHierarchicalClustering`.
    mixing : {"rose", "constant", "dirichlet_process"}
        ``"rose"`` weighs one cluster by ``1 - (1 - gamma)^(children - 1)``, so that a cascade of
        binary nodes is never preferred to one node for its prior alone.

    Attributes
    ----------
    As in `BayesianHierarchicalClustering`.

    Examples
    --------
    >>> from bhclust import BayesianRoseTree
    >>> from bhclust.datasets import make_blocks
    >>> X, y = make_blocks(random_state=0)
    >>> BayesianRoseTree().fit(X).n_clusters_
    3
    """

    _rose = True
    _mixings = ("rose", "constant", "dirichlet_process")

    def __init__(
        self,
        model: str | ClusterModel = "auto",
        *,
        mixing: str = "rose",
        alpha: float = 1.0,
        gamma: float = 0.5,
        n_clusters: int | None = None,
        column_kinds: Kind | Mapping[str | int, Kind] | None = None,
        learn: str | bool | Sequence[str] = "auto",
        strategy: str = "best",
        n_restarts: int = 0,
        max_iter: int = 20,
        polish: bool = False,
        learn_rows: int = 2000,
        sample_size: int = 1000,
        part_size: int = 2000,
        n_seeds: int = 1,
        engine: EngineName = "auto",
        n_jobs: int | None = None,
        device: DeviceName = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.mixing = mixing
        self.alpha = alpha
        self.gamma = gamma
        self.n_clusters = n_clusters
        self.column_kinds = column_kinds
        self.learn = learn
        self.strategy = strategy
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.polish = polish
        self.learn_rows = learn_rows
        self.sample_size = sample_size
        self.part_size = part_size
        self.n_seeds = n_seeds
        self.engine = engine
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose


def _plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as JSON can hold them; keys of a JSON object could only be strings."""
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in parameters.items()
        if not isinstance(value, ClusterModel)
    }
    if isinstance(plain["column_kinds"], Mapping):
        plain["column_kinds"] = [[key, kind] for key, kind in plain["column_kinds"].items()]
    if not isinstance(plain["random_state"], int):
        plain["random_state"] = None
    return plain


def _dense(values: Any) -> FloatArray:
    return np.asarray(values.toarray() if sparse.issparse(values) else values)
