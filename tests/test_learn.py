"""Learning: gradients against enumeration, the alternation, and what estimators report."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, load
from bhclust._coordinates import Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust._pinning import pinning
from bhclust._validation import BhclustError
from bhclust.agglomerate import agglomerate, score_tree
from bhclust.datasets import make_blocks
from bhclust.learn import alternate, make_coordinates, maximise
from bhclust.mixing import Constant, DirichletProcess, Mixing, Rose
from bhclust.models import Bernoulli, DiagonalGaussian, Gaussian, Mixed, Poisson
from bhclust.posterior import log_evidence_bound
from bhclust.strategies import Builder, Leaves
from tests.oracles.learn import Enumerated, central_difference
from tests.test_agglomerate import MIXINGS, is_rose
from tests.zoo import MODELS, MODELS_AND_HOLES, Case, make_case

OBJECTIVES = [("BHC-DP", "bound"), ("BRT-DP", "evidence")] + [
    (method, "evidence") for method in MIXINGS if "DP" not in method
]


def small_tree(case: Case, mixing: Mixing, rose: bool, weight: np.ndarray):
    stats = case.model.repeat(case.model.suffstats(case.X), weight)
    return agglomerate(case.model, stats, mixing, rose=rose, weight=weight).tree


def seed_of(*parts) -> int:
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(repr(parts)))


@pytest.mark.parametrize(("method", "objective"), OBJECTIVES)
@pytest.mark.parametrize(("name", "missing"), MODELS_AND_HOLES)
def test_gradients_equal_differences_of_the_enumerated_evidence(name, missing, method, objective):
    rng = np.random.default_rng(seed_of(name, missing, method))
    case = make_case(name, 6, rng, missing)
    mixing = MIXINGS[method]
    weight = np.ones(6)
    tree = small_tree(case, mixing, is_rose(method), weight)
    every = Enumerated(tree, case.X, weight)
    fixed = FixedTree.of(tree)
    here = evaluate(fixed, case.model, mixing, objective)
    assert here.value == pytest.approx(every.value(Prior(case.model, mixing), objective), rel=1e-10)
    slopes = gradient(fixed, case.model, mixing, here, objective)
    known = {spec.name: spec.domain for spec in case.model.free()}
    assert set(slopes) == {*known, "alpha" if "DP" in method else "gamma"}
    for hyperparameter, domain in known.items():
        check_one_hyperparameter(every, case, mixing, objective, hyperparameter, domain, slopes)
    check_mixing_parameter(every, case, mixing, objective, slopes)


def check_one_hyperparameter(every, case, mixing, objective, name, domain, slopes):
    centre = case.model.hyperparameter(name)
    scale = max(float(np.abs(slopes[name]).max()), 1e-2)
    for index in np.ndindex(centre.shape):
        direction = np.zeros(centre.shape)
        direction[index] = 1.0
        if domain == "covariance":
            direction = (direction + direction.T) / 2

        def value(step, direction=direction):
            moved = centre + step * direction
            model = case.model.with_hyperparameters({name: moved if moved.ndim else float(moved)})
            return every.value(Prior(model, mixing), objective)

        expected = central_difference(value, 0.0, 3e-4 * max(abs(float(centre[index])), 0.1))
        assert slopes[name][index] == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)


def check_mixing_parameter(every, case, mixing, objective, slopes):
    name = "alpha" if isinstance(mixing, DirichletProcess) else "gamma"

    def value(at):
        return every.value(Prior(case.model, type(mixing)(at)), objective)

    expected = central_difference(value, getattr(mixing, name), 1e-3)
    assert float(slopes[name]) == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("method", MIXINGS)
def test_gradients_with_weights(method):
    rng = np.random.default_rng(5)
    case = make_case("diagonal_gaussian", 6, rng, 0.2)
    weight = np.array([1.0, 3.0, 1.0, 2.0, 1.0, 4.0])
    mixing, objective = MIXINGS[method], "bound" if "DP" in method else "evidence"
    tree = small_tree(case, mixing, is_rose(method), weight)
    every = Enumerated(tree, case.X, weight)
    fixed = FixedTree.of(tree)
    here = evaluate(fixed, case.model, mixing)
    assert here.value == pytest.approx(every.value(Prior(case.model, mixing), objective), rel=1e-10)
    slopes = gradient(fixed, case.model, mixing, here)
    check_one_hyperparameter(every, case, mixing, objective, "rate", "positive", slopes)
    check_mixing_parameter(every, case, mixing, objective, slopes)


@pytest.mark.parametrize("method", MIXINGS)
def test_evaluation_agrees_with_the_scored_tree(method):
    rng = np.random.default_rng(1)
    case = make_case("bernoulli", 40, rng)
    mixing = MIXINGS[method]
    tree = small_tree(case, mixing, is_rose(method), np.ones(40))
    fixed = FixedTree.of(tree)
    value = evaluate(fixed, case.model, mixing, "evidence").value
    assert value == pytest.approx(tree.log_evidence[-1], rel=1e-12)
    if isinstance(mixing, DirichletProcess):
        bound = evaluate(fixed, case.model, mixing).value
        assert bound == pytest.approx(log_evidence_bound(tree, mixing), rel=1e-12)


@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("method", ["BHC-DP", "BRT"])
@pytest.mark.parametrize("name", MODELS)
def test_coordinates_pull_gradients_back(name, method, per_feature):
    rng = np.random.default_rng(seed_of(name, method))
    case = make_case(name, 12, rng)
    mixing = MIXINGS[method]
    coordinates = Coordinates(Prior(case.model, mixing), per_feature=per_feature, n_items=12.0)
    fixed = FixedTree.of(small_tree(case, mixing, is_rose(method), np.ones(12)))
    free = 0.3 * rng.normal(size=len(coordinates.deviation))

    def value(at):
        return evaluate(fixed, *coordinates.prior_at(at)).value + coordinates.log_prior(at)

    prior = coordinates.prior_at(free)
    slopes = gradient(fixed, *prior, evaluate(fixed, *prior))
    found = coordinates.pull_back(free, slopes) + coordinates.log_prior_gradient(free)
    scale = max(np.abs(found).max(), 1.0)
    for j in range(len(free)):
        unit = np.eye(len(free))[j]
        expected = central_difference(lambda step, unit=unit: value(free + step * unit), 0.0, 1e-3)
        assert found[j] == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)


def test_anchor_is_the_given_prior():
    case = make_case("gaussian", 10, np.random.default_rng(0))
    for per_feature in (False, True):
        coordinates = Coordinates(Prior(case.model, Rose(0.3)), per_feature=per_feature)
        back = coordinates.prior_at(np.zeros(len(coordinates.deviation)))
        assert back.mixing.gamma == pytest.approx(0.3)
        for spec in case.model.free():
            np.testing.assert_allclose(
                back.model.hyperparameter(spec.name), case.model.hyperparameter(spec.name)
            )


def test_shared_factors_keep_the_mean_of_the_prior():
    X = make_blocks(random_state=0).X * 1.0
    model = Bernoulli().resolve(X)
    coordinates = Coordinates(Prior(model, DirichletProcess(1.0)), ["a", "b"])
    assert len(coordinates.deviation) == 1
    moved = coordinates.prior_at(np.array([1.0])).model
    np.testing.assert_allclose(moved.a / (moved.a + moved.b), model.a / (model.a + model.b))
    np.testing.assert_allclose(moved.a, np.e * model.a)


def test_names_choose_what_moves():
    X = np.hstack(
        [make_blocks(random_state=0).X[:, :3], np.random.default_rng(0).normal(size=(48, 2))]
    )
    model = Mixed([(Bernoulli(), [0, 1, 2]), (DiagonalGaussian(), [3, 4])]).resolve(X)
    prior = Prior(model, DirichletProcess(2.0))
    assert Coordinates(prior, ["rate", "alpha"]).names == ("1.rate", "alpha")
    assert Coordinates(prior, ["0.a"]).names == ("0.a",)
    assert "1.mean" not in Coordinates(prior).names
    assert "1.mean" in Coordinates(prior, per_feature=True).names
    with pytest.raises(BhclustError, match="'gamma' cannot be learned"):
        Coordinates(prior, ["gamma"])
    assert make_coordinates(prior, False).names == ()
    assert "alpha" not in make_coordinates(prior, "auto").names
    assert "alpha" in make_coordinates(prior, "shared").names
    assert make_coordinates(Prior(model, Constant(0.5)), "auto").names == ()


@pytest.mark.parametrize("name", MODELS)
def test_maximise_finds_a_stationary_point_above_the_start(name):
    rng = np.random.default_rng(3)
    case = make_case(name, 30, rng)
    prior = Prior(case.model, DirichletProcess(1.0))
    tree = small_tree(case, prior.mixing, False, np.ones(30))
    coordinates = Coordinates(prior)
    best = maximise(tree, coordinates)
    fixed = FixedTree.of(tree)
    assert best.value >= evaluate(fixed, *prior).value
    slopes = gradient(fixed, *best.prior, evaluate(fixed, *best.prior))
    slopes = coordinates.pull_back(best.free, slopes) + coordinates.log_prior_gradient(best.free)
    bounds = np.array(coordinates.bounds)
    inside = (best.free > bounds[:, 0]) & (best.free < bounds[:, 1])
    assert np.abs(slopes[inside]).max(initial=0.0) < 0.02
    assert (best.free >= bounds[:, 0]).all()
    assert (best.free <= bounds[:, 1]).all()


def test_a_strong_prior_at_fitted_centres_is_charged_for_them():
    """Weak classes: pinning all rows to the column frequencies must not look like one cluster."""
    rng = np.random.default_rng([2005, 1])
    y = rng.integers(4, size=200)
    X = (rng.random((200, 30)) < rng.beta(2, 2, size=(4, 30))[y]) * 1.0
    fitted = BayesianHierarchicalClustering(n_restarts=0).fit(X)
    assert (fitted.model_.a + fitted.model_.b).max() < 20
    assert fitted.n_clusters_ > 1
    model = Bernoulli().resolve(X)
    pinned = model.with_hyperparameters({"a": 1e6 * model.a, "b": 1e6 * model.b})
    # 30 numbers fitted to 200 rows
    assert pinning(pinned, 200.0).cost == pytest.approx(15 * np.log(201), rel=1e-3)
    assert pinning(model, 200.0).cost < 15 * np.log(3.01)


def test_duplicates_do_not_run_to_infinity():
    X = np.repeat([[0.0, 1.0], [5.0, 2.0]], 20, axis=0)
    for model in (DiagonalGaussian(), Gaussian()):
        for learn in ("shared", True):
            fitted = BayesianHierarchicalClustering(model, learn=learn, n_restarts=0).fit(X)
            assert np.isfinite(fitted.log_evidence_bound_)
            for value in fitted.learned_.values():
                assert np.isfinite(value).all()
            assert fitted.n_clusters_ == 2


def gaussian_clusters(n: int, d: int, spread: float, seed: int):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    return spread * rng.normal(size=(4, d))[y] + rng.normal(size=(n, d)), y


def vague(X: np.ndarray) -> DiagonalGaussian:
    return DiagonalGaussian(strength=0.01, shape=1.0, rate=X.var(axis=0))


def test_evidence_never_falls_and_the_best_is_kept():
    X, _ = gaussian_clusters(60, 4, 2.0, 0)
    for kind, mixing in (
        (BayesianHierarchicalClustering, "dirichlet_process"),
        (BayesianHierarchicalClustering, "constant"),
        (BayesianRoseTree, "rose"),
        (BayesianRoseTree, "dirichlet_process"),
    ):
        fitted = kind(vague(X), mixing=mixing, learn="shared", n_restarts=2).fit(X)
        path, steps = fitted.evidence_path_, fitted.learning_info_.steps
        assert len(path) == len(steps) == fitted.n_iter_
        assert (np.diff(path) >= 0).all()
        values = [step.evidence + step.log_prior for step in steps]
        np.testing.assert_array_equal(path, np.maximum.accumulate(values))
        final = fitted.log_evidence_bound_ if "process" in mixing else fitted.log_evidence_
        assert final == pytest.approx(steps[int(np.argmax(values))].evidence, rel=1e-10)
        assert path[0] == steps[0].evidence
        assert path[-1] > path[0]
        assert {step.start for step in steps} == {0, 1, 2}


def test_learning_repairs_a_vague_start():
    X, y = gaussian_clusters(200, 10, 1.5, 1)
    plain = BayesianHierarchicalClustering(vague(X), learn=False, strategy="greedy").fit(X)
    fitted = BayesianHierarchicalClustering(vague(X)).fit(X)
    assert fitted.log_evidence_bound_ > plain.log_evidence_bound_ + 50
    assert plain.n_clusters_ < 4
    assert adjusted_rand_score(y, plain.labels_) < 0.5
    assert adjusted_rand_score(y, fitted.labels_) > 0.85


def test_auto_moves_a_prior_only_for_a_clear_gain():
    X, _ = gaussian_clusters(200, 10, 1.5, 1)
    start = BayesianHierarchicalClustering(learn=False).fit(X)
    anchor = {name: start.model_.hyperparameter(name) for name in ("strength", "shape", "rate")}
    # The default start is good here: any gain makes "shared" move, "auto" stays.
    auto = BayesianHierarchicalClustering().fit(X)
    shared = BayesianHierarchicalClustering(learn=list(anchor)).fit(X)
    gain = shared.log_evidence_bound_ - start.log_evidence_bound_
    assert 0 < gain < 30
    for name, value in anchor.items():
        np.testing.assert_array_equal(auto.learned_[name], value)
        assert not np.array_equal(shared.learned_[name], value)
    # From a vague start it is worth hundreds of nats, and both move.
    moved = BayesianHierarchicalClustering(vague(X)).fit(X)
    assert moved.log_evidence_bound_ > start.log_evidence_bound_ - 30
    assert not np.array_equal(moved.learned_["rate"], vague(X).rate)


def test_the_toll_is_paid_once_and_only_away_from_the_anchor():
    X, _ = gaussian_clusters(30, 3, 1.5, 2)
    prior = Prior(DiagonalGaussian().resolve(X), DirichletProcess(1.0))
    free, charged = (Coordinates(prior, ["rate"], toll=toll) for toll in (0.0, 7.0))
    still, moved = np.zeros(1), np.array([0.3])
    assert charged.toll_at(still) == free.toll_at(moved) == 0.0
    assert charged.toll_at(moved) == 7.0
    # The optimiser does not see it, or it would never leave the anchor.
    tree = agglomerate(prior.model, prior.model.suffstats(X), prior.mixing).tree
    np.testing.assert_array_equal(maximise(tree, charged).free, maximise(tree, free).free)
    assert maximise(tree, charged).free[0] != 0.0


def test_auto_learns_no_density_of_a_column_that_repeats_one_value():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    X[:40, 1] = 0.0
    for model in (DiagonalGaussian(), Gaussian()):
        assert model.resolve(X).learnable(model.resolve(X).suffstats(X)) == ()
        assert BayesianHierarchicalClustering(model).fit(X).learning_info_.names == ()
    few = X.copy()
    few[20:40, 1] = rng.normal(size=20)
    assert BayesianHierarchicalClustering(DiagonalGaussian()).fit(few).learning_info_.names
    constant = np.column_stack([X[:, 0], np.ones(100)])
    assert BayesianHierarchicalClustering(DiagonalGaussian()).fit(constant).learning_info_.names
    # In a mixed table the other columns are learned all the same.
    mixed = np.column_stack([X, rng.integers(2, size=100)])
    kinds = {0: "real", 1: "real", 2: "binary"}
    names = BayesianHierarchicalClustering(column_kinds=kinds).fit(mixed).learning_info_.names
    assert names
    assert not [name for name in names if name.endswith(("rate", "strength", "shape"))]
    # Who asks for it gets it.
    asked = BayesianHierarchicalClustering(DiagonalGaussian(), learn=["rate"]).fit(X)
    assert asked.learning_info_.names == ("rate",)


def test_restarts_are_repeatable_and_never_hurt():
    X, _ = gaussian_clusters(50, 3, 1.5, 2)
    one = BayesianHierarchicalClustering(n_restarts=3, random_state=1).fit(X)
    two = BayesianHierarchicalClustering(n_restarts=3, random_state=1).fit(X)
    none = BayesianHierarchicalClustering(n_restarts=0).fit(X)
    np.testing.assert_array_equal(one.evidence_path_, two.evidence_path_)
    np.testing.assert_array_equal(one.tree_.parent, two.tree_.parent)
    assert one.evidence_path_[-1] >= none.evidence_path_[-1]
    np.testing.assert_array_equal(one.evidence_path_[: none.n_iter_], none.evidence_path_)


def test_max_iter_and_the_reason_for_stopping():
    X, _ = gaussian_clusters(50, 3, 1.5, 2)
    cut_short = BayesianHierarchicalClustering(vague(X), max_iter=1, n_restarts=0).fit(X)
    assert cut_short.n_iter_ == 2
    assert cut_short.learning_info_.stopped == "max_iter"
    assert BayesianHierarchicalClustering().fit(X).learning_info_.stopped == "converged"
    still = BayesianHierarchicalClustering(learn=False).fit(X)
    assert (still.learning_info_.stopped, still.learned_) == ("nothing to learn", {})


def test_learned_values_are_those_of_the_model():
    X = np.random.default_rng(0).poisson(3.0, size=(30, 2))
    fitted = BayesianHierarchicalClustering(Poisson(), learn=["shape", "alpha"]).fit(X)
    assert set(fitted.learned_) == {"shape", "alpha"}
    np.testing.assert_array_equal(fitted.learned_["shape"], fitted.model_.shape)
    assert float(fitted.learned_["alpha"]) == fitted.alpha_ != 1.0
    # only the shape was free: the rate is still that of the moments
    np.testing.assert_array_equal(fitted.model_.rate, Poisson().resolve(X * 1.0).rate)


def test_large_tables_are_learned_on_a_sample(capsys):
    X, _ = gaussian_clusters(90, 3, 3.0, 3)
    fitted = BayesianHierarchicalClustering(learn_rows=40, verbose=True, random_state=0).fit(X)
    assert "sample of 40 of 90 rows" in capsys.readouterr().out
    assert fitted.learning_info_.n_rows == 40
    assert fitted.tree_.n_leaves == 90
    # the final tree is the exact fit with what was learned
    again = BayesianHierarchicalClustering(fitted.model_, learn=False).fit(X)
    np.testing.assert_array_equal(again.tree_.parent, fitted.tree_.parent)


def test_weights_are_multiplicities_for_learning_too():
    X, _ = gaussian_clusters(25, 2, 6.0, 4)
    weight = np.random.default_rng(0).integers(1, 4, size=25)
    # with the shape given, that copies of a row may be split in the second fit hardly matters
    settings = {"model": DiagonalGaussian(), "learn": ["strength", "rate"]}
    weighted = BayesianHierarchicalClustering(**settings).fit(X, sample_weight=weight)
    repeated = BayesianHierarchicalClustering(**settings).fit(np.repeat(X, weight, axis=0))
    plain = BayesianHierarchicalClustering(**settings).fit(X)
    for name, value in weighted.learned_.items():
        np.testing.assert_allclose(value, repeated.learned_[name], rtol=0.1)
    assert np.abs(weighted.learned_["rate"] / plain.learned_["rate"] - 1).max() > 0.01
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weight), repeated.labels_)


def test_saved_estimators_keep_what_was_learned(tmp_path):
    X, _ = gaussian_clusters(30, 2, 3.0, 5)
    fitted = BayesianHierarchicalClustering(learn="shared").fit(X)
    fitted.save(tmp_path / "fit.npz")
    back = load(tmp_path / "fit.npz")
    assert back.alpha_ == fitted.alpha_ != 1.0
    assert back.learning_info_ == fitted.learning_info_
    np.testing.assert_array_equal(back.evidence_path_, fitted.evidence_path_)
    np.testing.assert_allclose(back.score_samples(X), fitted.score_samples(X))
    assert set(back.learned_) == set(fitted.learned_)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("learn", "everything", "learn must be 'auto', 'shared', True, False, or a list of names"),
        ("learn", ["beta"], "'beta' cannot be learned here; the names are"),
        ("strategy", "clever", "strategy must be one of 'greedy'"),
        ("n_restarts", -1, "n_restarts must be a whole number, at least 0"),
        ("max_iter", 0, "max_iter must be a whole number, at least 1"),
        ("polish", "yes", "polish must be True or False"),
        ("learn_rows", 1, "learn_rows must be a whole number, at least 2"),
    ],
)
def test_bad_settings_are_named(parameter, value, message):
    with pytest.raises(BhclustError, match=message):
        BayesianHierarchicalClustering(**{parameter: value}).fit([[0.0], [1.0], [5.0]])


def test_a_tree_without_statistics_cannot_be_learned_on():
    case = make_case("bernoulli", 5, np.random.default_rng(0))
    tree = small_tree(case, Rose(0.5), True, np.ones(5))
    bare = type(tree)(tree.parent, tree.n_leaves)
    with pytest.raises(BhclustError, match="no statistics"):
        FixedTree.of(bare)


def test_alternation_keeps_an_earlier_tree_that_is_better():
    """A builder that gets worse: the first tree must come back, scored under its own prior."""
    case = make_case("bernoulli", 12, np.random.default_rng(2))
    stats = case.model.suffstats(case.X)
    prior = Prior(case.model, DirichletProcess(1.0))

    class Worsening(Builder):
        n_calls = 0

        def __call__(self, prior, known=None):
            self.n_calls += 1
            good = super().__call__(prior)
            if self.n_calls == 1:
                return good
            star = score_tree([12] * 12 + [-1], prior.model, stats, prior.mixing)
            self.candidates = {"greedy": evaluate(FixedTree.of(star), *prior).value - 1e3}
            return star

    builder = Worsening(Leaves(stats, np.ones(12), None, None), "greedy", rose=False)
    learned = alternate(builder, Coordinates(prior))
    np.testing.assert_array_equal(learned.prior.model.a, case.model.a)
    assert learned.tree.is_binary
    assert (np.diff(learned.path) == 0).all()
    assert learned.steps[-1].evidence < learned.evidence
