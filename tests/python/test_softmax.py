"""Softmax over several classes: compared with dense formulas, and its symmetries and two classes."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference
import softmax_reference
from problems import IGNORES_THE_TAG, PAPERS, assert_certified, two_classes
from sparsebayes import RVC, SparseBayesClassifier, _core
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian


def in_bands(seed, n_rows=90, n_columns=6, n_classes=3):
    """Random columns, and classes that are bands of a mixture of the first two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    borders = np.linspace(-1, 1, n_classes + 1)[1:-1]
    return X, np.digitize(X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n_rows), borders)


def softly(kind=RVC, *args, **settings):
    return kind(*args, multi_class="softmax", **settings)


# --- against dense formulas -----------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_fits_are_those_of_the_reference(seed, n_classes):
    X, y = in_bands(seed, n_classes=n_classes)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(y))
    model = softly(SparseBayesClassifier, fit_intercept=True, **PAPERS).fit(X, y, weights)
    centred = X - np.average(X, axis=0, weights=weights)
    expected = softmax_reference.fit(np.c_[np.ones(len(X)), centred], y, weights)
    assert expected.converged
    assert model.status_ == "converged"
    assert model.log_marginal_likelihood_ > expected.log_evidence - 1e-6
    if model.log_marginal_likelihood_ < expected.log_evidence + 1e-3:
        coef = np.zeros((n_classes, 7))
        coef.flat[expected.active] = expected.mu
        bias = model.intercept_ + model.coef_ @ model.X_offset_
        np.testing.assert_allclose(np.c_[bias, model.coef_], coef, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_end_is_a_fixed_point_by_the_reference(seed):
    X, y = in_bands(seed, n_columns=12)
    weights = np.ones(len(y))
    model = softly(SparseBayesClassifier, fit_intercept=False, **PAPERS).fit(X, y)
    used = np.isfinite(model.alpha_.T)
    active = (np.arange(3)[:, np.newaxis] * 12 + model.active_)[used]
    alpha, mu = model.alpha_.T[used], model.mu_.T[used]
    expanded = softmax_reference.expand(X, 3)
    inside = expanded[:, :, active]
    mode, Sigma = softmax_reference.mode(inside, y, alpha, weights)
    np.testing.assert_allclose(mu, mode, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.sigma_, Sigma, rtol=1e-6, atol=1e-8)
    evidence = softmax_reference.log_evidence(inside, y, alpha, weights)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-9)
    s, q, _, _ = softmax_reference.statistics(expanded, y, active, alpha, weights)
    best = reference.best_alpha(s, q)
    assert np.abs(np.log(best[active] / alpha)).max() < 1e-5
    outside = np.setdiff1d(np.arange(36), active)
    assert reference.contribution(best, s, q)[outside].max() < 1e-6


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_real_fits_are_certified(load):
    X, y = load(return_X_y=True)
    X = scale(X)
    for model in (softly(), softly(SparseBayesClassifier, fit_intercept=True)):
        model.fit(X, y)
        found = assert_certified(model, X, y)
        assert found.max_mean_error <= 1e-6
        assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)
        assert model.score(X, y) > 0.95


@pytest.mark.parametrize("settings", [{"scheme": "mackay"}, {"scheme": "em"}, {"alpha_prior": (0.5, 0.5)}])
def test_every_scheme_and_prior_ends_at_a_certified_optimum(settings):
    X, y = in_bands(2)
    model = softly(SparseBayesClassifier, fit_intercept=True, **settings).fit(X, y)
    assert_certified(model, X, y)


def test_what_is_no_optimum_is_not_certified(three):
    X, y = three
    model = softly(RVC, Gaussian(1.5)).fit(X, y)
    assert certificate(model, X, y).max_gain_outside < 1e-6
    published = model.alpha_
    model.alpha_ = 1.5 * published
    assert certificate(model, X, y).max_log_alpha_change > 0.1
    model.alpha_ = published.copy()
    largest = np.unravel_index(np.argmax(np.abs(model.mu_)), model.mu_.shape)
    model.alpha_[largest] = np.inf
    assert certificate(model, X, y).max_gain_outside > 0.1


# --- two classes ----------------------------------------------------------------------------------


def test_two_weight_vectors_of_precision_alpha_are_one_of_half_that():
    """Weights u and v ~ N(0, 1/alpha) enter as v - u ~ N(0, 2/alpha) alone; u + v keeps its prior.

    So the evidence is that of the Bernoulli model at alpha/2, and the mode has u = -v = half its weight.
    """
    X, y = in_bands(1, n_classes=2)
    alpha = np.geomspace(0.1, 10.0, X.shape[1])
    ones = np.ones(len(y))
    expanded = softmax_reference.expand(X, 2)
    both = softmax_reference.log_evidence(expanded, y, np.tile(alpha, 2), ones)
    one = reference.laplace_log_evidence(X, y.astype(float), alpha / 2)
    assert both == pytest.approx(one, rel=1e-10)
    u_and_v, _ = softmax_reference.mode(expanded, y, np.tile(alpha, 2), ones)
    mu, _ = reference.laplace_mode(X, y.astype(float), alpha / 2)
    np.testing.assert_allclose(u_and_v, np.r_[-mu / 2, mu / 2], rtol=1e-8)


# Both have several optima on kernels; on these data they find the same one.
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("basis", ["kernel", "columns"])
def test_the_softmax_of_two_classes_is_the_bernoulli_model(basis, seed):
    X, y = two_classes(80, seed=seed) if basis == "kernel" else in_bands(seed, n_columns=15, n_classes=2)
    kernel = Gaussian(0.7)
    model = (RVC(kernel, **PAPERS) if basis == "kernel" else SparseBayesClassifier(**PAPERS)).fit(X, y)
    functions = kernel(X, X) if basis == "kernel" else X - X.mean(axis=0)
    Phi = np.asfortranarray(np.c_[np.ones(len(X)), functions])
    two = _core.fit_dense(Phi, y.astype(float), likelihood="multinomial")
    assert two.status == "converged"
    classes, columns = np.divmod(two.active, Phi.shape[1])
    log_odds = Phi[:, columns] @ np.where(classes == 1, two.mu, -two.mu)
    np.testing.assert_allclose(expit(log_odds), model.predict_proba(X, moderate=False)[:, 1], atol=1e-3)
    assert two.log_evidence == pytest.approx(model.log_marginal_likelihood_, abs=1e-4)


@pytest.mark.parametrize("make", [RVC, SparseBayesClassifier])
def test_two_classes_are_published_as_one_logit(classes, make):
    X, y = classes
    soft, ovr = (make(multi_class=how, complexity="none").fit(X, y) for how in ("softmax", "ovr"))
    assert soft.decision_function(X).shape == (len(X),)
    np.testing.assert_array_equal(soft.predict_proba(X), ovr.predict_proba(X))


# --- what is published ----------------------------------------------------------------------------


def test_attributes_have_their_shapes_and_agree(three):
    X, y = three
    model = softly(RVC, Gaussian(1.5)).fit(X, y)
    m = len(model.active_)
    assert model.alpha_.shape == model.mu_.shape == (m, 3)
    used = np.isfinite(model.alpha_)
    assert used.any(axis=1).all()
    assert (model.mu_[~used] == 0.0).all()
    assert model.sigma_.shape == (used.sum(), used.sum())
    assert model.dual_coef_.shape == (3, len(model.relevance_))
    assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)
    # The intercepts alone: with columns of unit length |H| is the product of the shares p, and the flat prior
    # is over orthonormal coordinates by the Hessian at logits of 0, whose correlations are -1/2.
    n = np.unique(y, return_counts=True)[1]
    start = n @ np.log(n / len(y)) + np.log(2 * np.pi) + 0.5 * (np.log(0.75) - np.log(n / len(y)).sum())
    assert model.log_marginal_likelihood_path_[0] == pytest.approx(start)
    proper = softly(RVC, Gaussian(1.5), penalize_intercept=True).fit(X, y)
    assert proper.log_marginal_likelihood_path_[0] == pytest.approx(-len(y) * np.log(3))
    logits = Gaussian(1.5)(X, model.relevance_vectors_) @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), logits, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X, moderate=False), softmax(logits, axis=1), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])


def test_moderated_probabilities_are_close_to_the_mean_over_the_posterior(three):
    X, y = three
    model = softly(RVC, Gaussian(1.5)).fit(X[:60], y[:60])
    used = np.isfinite(model.alpha_.T)
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(model.mu_.T[used], model.sigma_, size=20_000)
    grid = rng.uniform(-3, 3, (40, 2))
    phi = np.ones((len(grid), len(model.active_)))
    phi[:, model.active_ >= 0] = Gaussian(1.5)(grid, model.relevance_vectors_)
    classes, rows = np.nonzero(used)
    eta = np.zeros((len(grid), len(draws), 3))
    for k, (c, row) in enumerate(zip(classes, rows, strict=True)):
        eta[:, :, c] += phi[:, [row]] * draws[:, k]
    mean = softmax(eta, axis=2).mean(axis=1)
    moderated, plain = model.predict_proba(grid), model.predict_proba(grid, moderate=False)
    np.testing.assert_allclose(moderated.sum(axis=1), 1.0)
    assert np.abs(moderated - mean).max() < 0.03
    assert np.abs(moderated - mean).mean() < 0.5 * np.abs(plain - mean).mean()


def test_steps_are_reported_by_the_names_of_functions_and_can_stop_the_fit(three):
    X, y = three
    records = []
    model = softly(RVC, Gaussian(1.5), complexity="none", callback=records.append).fit(X, y)
    assert len(records) == model.n_iter_
    assert {r.index for r in records if r.action == "add"} <= {-1, *range(len(X))}
    assert records[-1].log_marginal_likelihood == model.log_marginal_likelihood_
    assert all(record.noise_variance is None for record in records)
    stopped = softly(callback=lambda record: record.iteration == 5).fit(X, y)
    assert (stopped.status_, stopped.n_iter_) == ("stopped", 5)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert softly(max_iter=5).fit(X, y).status_ == "max_iter"


# --- symmetries -----------------------------------------------------------------------------------


def test_renaming_the_classes_renames_the_model(three):
    X, y = three
    model = softly(RVC, Gaussian(1.5), tol=1e-8).fit(X, y)
    other = softly(RVC, Gaussian(1.5), tol=1e-8).fit(
        X, np.array(["z", "b", "a"])[np.searchsorted(["a", "b", "c"], y)]
    )
    np.testing.assert_array_equal(other.active_, model.active_)
    # A constant added to all intercepts changes nothing; that of the first class is 0.
    assert (model.active_[0], model.mu_[0, 0], other.mu_[0, 0]) == (-1, 0.0, 0.0)
    mu = other.mu_[:, ::-1] - np.outer(other.active_ == -1, other.mu_[0, 2:])
    np.testing.assert_allclose(mu, model.mu_, rtol=1e-5, atol=1e-8)
    assert other.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_, abs=1e-7)
    np.testing.assert_allclose(other.predict_proba(X)[:, ::-1], model.predict_proba(X), rtol=1e-6, atol=1e-9)


def test_several_kernels_and_precomputed_ones_work(three):
    X, y = three
    kernel = Gaussian(1.5)
    named = softly(RVC, kernel, tol=1e-8).fit(X, y)
    given = softly(RVC, "precomputed", tol=1e-8).fit(kernel(X, X), y)
    np.testing.assert_allclose(
        given.predict_proba(kernel(X, X)), named.predict_proba(X), rtol=1e-5, atol=1e-8
    )
    both = softly(RVC, [kernel, "linear"]).fit(X, y)
    found = certificate(both, X, y)
    assert found.max_gain_outside <= 1e-6
    assert found.n_basis == 2 * len(X) + 1


def test_extra_columns_serve_every_class(three):
    X, y = three
    records = []
    model = softly(RVC, Gaussian(1.5), extra_basis="linear", callback=records.append).fit(X, y)
    found = certificate(model, X, y)
    assert found.n_basis == 1 + len(X) + 2
    assert found.max_log_alpha_change <= 1e-5
    assert found.max_gain_outside <= 1e-6
    assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-8)
    assert max(r.index for r in records if r.action == "add") < len(X) + 2


# --- the estimator contract -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
@pytest.mark.parametrize(
    ("value", "error"), [("multinomial", ValueError), (True, TypeError), (None, TypeError)]
)
def test_other_values_of_multi_class_are_refused(classes, kind, value, error):
    with pytest.raises(error, match=r"multi_class must be 'softmax'.*or 'ovr'"):
        kind(multi_class=value).fit(*classes)


@pytest.mark.parametrize(
    "bad", [[0.0, 0.0, 0.0], [0.0, 2.0, 2.0], [0.0, 0.5, 1.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 1e300]]
)
def test_the_core_refuses_numbers_that_are_not_classes(bad):
    with pytest.raises(ValueError, match="class numbers"):
        _core.fit_dense(np.asfortranarray(np.eye(3)), np.array(bad), likelihood="multinomial")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [softly(gamma="scale", tol=1e-8), softly(SparseBayesClassifier)],
    expected_failed_checks=lambda estimator: (
        IGNORES_THE_TAG
        if isinstance(estimator, SparseBayesClassifier)
        else {"check_decision_proba_consistency": "moderated probabilities rank differently, by design"}
    ),
)
def test_scikit_learn_s_checks_pass(estimator, check):
    check(estimator)
