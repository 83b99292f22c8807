"""A softmax with one precision for each function: held to dense formulas, and to the model of two classes."""

import pickle

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import softmax_reference
from problems import two_classes
from sparsebayes import RVC, SparseBayesClassifier, _core
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian
from test_softmax import in_bands


def sharing(kind=RVC, *args, **settings):
    return kind(*args, multi_class="softmax", share_alpha=True, **settings)


def assert_certified(model, *data):
    found = certificate(model, *data)
    assert model.status_ == "converged"
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    assert found.max_mean_error <= 1e-6
    assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)
    assert found.n_active == len(model.active_)


# --- against dense formulas -----------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_fits_are_those_of_the_reference(seed, n_classes):
    X, y = in_bands(seed, n_classes=n_classes)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(y))
    model = sharing(SparseBayesClassifier, fit_intercept=False).fit(X, y, weights)
    expected = softmax_reference.fit_shared(X, y, weights)
    np.testing.assert_array_equal(model.active_, np.flatnonzero(np.isfinite(expected)))
    np.testing.assert_allclose(model.alpha_, np.tile(expected[model.active_], (n_classes, 1)).T, rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_end_is_a_fixed_point_by_the_reference(seed):
    X, y = in_bands(seed, n_columns=12, n_classes=4)
    weights = np.ones(len(y))
    model = sharing(SparseBayesClassifier, fit_intercept=False).fit(X, y)
    alpha = np.full(12, np.inf)
    alpha[model.active_] = model.alpha_[:, 0]
    inside = softmax_reference.expand(X[:, model.active_], 4)
    mu, Sigma = softmax_reference.mode(inside, y, model.alpha_.T.ravel(), weights)
    np.testing.assert_allclose(model.mu_.T.ravel(), mu, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.sigma_, Sigma, rtol=1e-6, atol=1e-8)
    evidence = softmax_reference.log_evidence(inside, y, model.alpha_.T.ravel(), weights)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-9)
    s, q = softmax_reference.shared_factors(X, y, alpha, weights)
    for j in range(12):
        best = softmax_reference.best_shared_alpha(s[j], q[j])
        assert (np.isinf(best) and np.isinf(alpha[j])) or abs(np.log(best / alpha[j])) < 1e-5


def test_the_sum_of_mackays_updates_is_the_same_at_the_end():
    X, y = in_bands(5, n_classes=4)
    model = sharing(SparseBayesClassifier, fit_intercept=False).fit(X, y)
    determined = 1.0 - (model.alpha_.T.ravel() * np.diag(model.sigma_)).reshape(4, -1)
    new = determined.sum(axis=0) / np.sum(model.mu_**2, axis=1)
    np.testing.assert_allclose(new, model.alpha_[:, 0], rtol=1e-5)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_real_fits_are_certified(load):
    X, y = load(return_X_y=True)
    X = scale(X)
    for model in (sharing(), sharing(SparseBayesClassifier, fit_intercept=True)):
        model.fit(X, y)
        assert_certified(model, X, y)
        assert model.score(X, y) > 0.95


def test_what_is_no_optimum_is_not_certified(three):
    X, y = three
    model = sharing(RVC, Gaussian(1.5)).fit(X, y)
    assert_certified(model, X, y)
    published = model.alpha_
    for factor in (1.001, 0.999, 3.0):
        model.alpha_ = factor * published
        change = certificate(model, X, y).max_log_alpha_change
        assert change > 1e-4
    # A precision that differs from class to class is not what was asked for.
    model.alpha_ = published.copy()
    model.alpha_[0, 0] *= 1.01
    assert certificate(model, X, y).max_log_alpha_change == np.inf
    model.alpha_ = published.copy()
    model.alpha_[np.argmax(np.sum(model.mu_**2, axis=1))] = np.inf
    assert certificate(model, X, y).max_gain_outside > 0.1


def test_a_function_more_than_wanted_is_told_by_its_certificate(three):
    X, y = three
    model = sharing(SparseBayesClassifier, fit_intercept=False).fit(
        np.c_[X, np.cos(37 * np.arange(len(X)))], y
    )
    assert list(model.active_) == [0]
    X = np.c_[X, np.cos(37 * np.arange(len(X)))]
    model.active_ = np.array([0, 2])
    model.alpha_ = np.vstack([model.alpha_, np.full((1, 3), 5.0)])
    model.mu_ = np.vstack([model.mu_, np.zeros((1, 3))])
    assert certificate(model, X, y).max_log_alpha_change == np.inf


# --- what is shared -------------------------------------------------------------------------------


def test_a_function_serves_all_classes_with_one_precision(three):
    X, y = three
    model = sharing(RVC, Gaussian(1.5)).fit(X, y)
    m = len(model.active_)
    assert model.alpha_.shape == model.mu_.shape == (m, 3)
    assert np.isfinite(model.alpha_).all()
    np.testing.assert_array_equal(model.alpha_, model.alpha_[:, [0, 0, 0]])
    assert model.sigma_.shape == (3 * m, 3 * m)
    # The likelihood does not care for their sum, and the prior wants it small.
    np.testing.assert_allclose(model.mu_.sum(axis=1), 0.0, atol=1e-8 * np.abs(model.mu_).max())
    assert model.log_marginal_likelihood_path_[0] == pytest.approx(-len(y) * np.log(3))
    assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)


# On kernels both have several optima; on these data they find the same one.
@pytest.mark.parametrize("seed", [2, 4, 7])
@pytest.mark.parametrize("basis", ["kernel", "columns"])
def test_two_classes_with_one_precision_are_the_bernoulli_model(basis, seed):
    X, y = two_classes(80, seed=seed) if basis == "kernel" else in_bands(seed, n_columns=15, n_classes=2)
    kernel = Gaussian(0.7)
    model = (RVC(kernel) if basis == "kernel" else SparseBayesClassifier(fit_intercept=True)).fit(X, y)
    functions = kernel(X, X) if basis == "kernel" else X - X.mean(axis=0)
    Phi = np.asfortranarray(np.c_[np.ones(len(X)), functions])
    two = _core.fit_dense(Phi, y.astype(float), likelihood="multinomial", share_alpha=True)
    assert two.status == "converged"
    classes, columns = np.divmod(two.active, Phi.shape[1])
    log_odds = Phi[:, columns] @ np.where(classes == 1, two.mu, -two.mu)
    np.testing.assert_allclose(expit(log_odds), model.predict_proba(X, moderate=False)[:, 1], atol=1e-3)
    assert two.log_evidence == pytest.approx(model.log_marginal_likelihood_, abs=1e-3)


@pytest.mark.parametrize("make", [RVC, SparseBayesClassifier])
def test_two_classes_are_published_as_one_logit(classes, make):
    X, y = classes
    shared, own = sharing(make).fit(X, y), make(multi_class="softmax").fit(X, y)
    np.testing.assert_array_equal(shared.alpha_, own.alpha_)
    np.testing.assert_array_equal(shared.predict_proba(X), own.predict_proba(X))


def test_renaming_the_classes_renames_the_model(three):
    X, y = three
    model = sharing(RVC, Gaussian(1.5), tol=1e-8).fit(X, y)
    other = sharing(RVC, Gaussian(1.5), tol=1e-8).fit(
        X, np.array(["z", "b", "a"])[np.searchsorted(["a", "b", "c"], y)]
    )
    np.testing.assert_array_equal(other.active_, model.active_)
    np.testing.assert_allclose(other.mu_[:, ::-1], model.mu_, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
def test_integer_weights_count_like_repeated_rows(three, kind):
    X, y = three
    n = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = sharing(kind, tol=1e-8).fit(X, y, sample_weight=n)
    repeated = sharing(kind, tol=1e-8).fit(np.repeat(X, n, axis=0), np.repeat(y, n))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-5, atol=1e-8)
    assert_certified(weighted, X, y, n)


def test_the_number_of_threads_does_not_show():
    X, y = load_iris(return_X_y=True)
    one, two = sharing(n_jobs=1).fit(X, y), sharing(n_jobs=2).fit(X, y)
    for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_precomputed_kernels_several_kernels_and_extra_columns_work(three):
    X, y = three
    kernel = Gaussian(1.5)
    named = sharing(RVC, kernel, tol=1e-8).fit(X, y)
    given = sharing(RVC, "precomputed", tol=1e-8).fit(kernel(X, X), y)
    np.testing.assert_allclose(
        given.predict_proba(kernel(X, X)), named.predict_proba(X), rtol=1e-5, atol=1e-8
    )
    both = sharing(RVC, [kernel, "linear"], extra_basis=lambda X: X**2).fit(X, y)
    assert_certified(both, X, y)


# --- running --------------------------------------------------------------------------------------


def test_steps_are_reported_and_can_stop_the_fit(three):
    X, y = three
    records = []
    model = sharing(RVC, Gaussian(1.5), callback=records.append).fit(X, y)
    assert len(records) == model.n_iter_
    assert {r.index for r in records if r.action == "add"} <= {-1, *range(len(X))}
    assert records[-1].n_active == len(model.active_)
    assert records[-1].log_marginal_likelihood == model.log_marginal_likelihood_
    stopped = sharing(callback=lambda record: record.iteration == 5).fit(X, y)
    assert (stopped.status_, stopped.n_iter_) == ("stopped", 5)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert sharing(max_iter=5).fit(X, y).status_ == "max_iter"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"multi_class": "ovr"}, "multi_class='softmax'"),
        ({"scheme": "mackay"}, "scheme='sequential'"),
        ({"scheme": "em", "alpha_prior": (1.0, 1.0)}, r"scheme='sequential' and alpha_prior=\(0, 0\)"),
        ({"optimize_kernel": True}, r"given kernel parameters \(optimize_kernel=False.*\)"),
    ],
)
def test_what_does_not_go_with_it_is_refused(three, settings, message):
    with pytest.raises(ValueError, match=f"share_alpha=True needs {message}; or set share_alpha=False"):
        RVC(**{"multi_class": "softmax", "share_alpha": True, **settings}).fit(*three)


@pytest.mark.parametrize("value", ["yes", None, 0.5])
def test_values_that_are_no_flag_are_refused(three, value):
    with pytest.raises(TypeError, match="share_alpha must be True or False"):
        SparseBayesClassifier(fit_intercept=False, multi_class="softmax", share_alpha=value).fit(*three)


def test_models_survive_cloning_and_pickling(three):
    X, y = three
    model = sharing(RVC, Gaussian(1.5)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert certificate(again, X, y) == certificate(model, X, y)
    assert clone(model).get_params()["share_alpha"] is True
    # What was fitted, not what has been set since, is what is certified.
    before = certificate(model, X, y)
    assert certificate(model.set_params(share_alpha=False), X, y) == before


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [sharing(tol=1e-8), sharing(SparseBayesClassifier)],
    expected_failed_checks=lambda estimator: {
        "check_decision_proba_consistency": "moderated probabilities rank differently, by design"
    },
)
def test_scikit_learn_has_no_complaint(estimator, check):
    check(estimator)
