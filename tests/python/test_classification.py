"""Classification: the Bernoulli model, moderation, one against the rest."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from problems import PAPERS
from sparsebayes import RVC, SparseBayesClassifier
from sparsebayes.kernels import Gaussian

# For tests that do not depend on convergence.
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def sigmoid(eta):
    return 1.0 / (1.0 + np.exp(-eta))


def functions(model, X):
    """Return the active functions at X: the bias, and kernels at the relevance vectors."""
    values = model.kernel_(X, model.relevance_vectors_)
    return np.hstack([np.ones((len(X), len(model.active_) - values.shape[1])), values])


def test_two_classes_publish_one_model(classes):
    X, y = classes
    model = RVC(Gaussian(1.0), complexity="none").fit(X, y)
    m, inside = len(model.active_), model.active_ >= 0
    assert model.status_ == "converged"
    assert model.alpha_.shape == model.mu_.shape == (m,)
    assert model.sigma_.shape == (m, m)
    assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)
    assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_
    assert not hasattr(model, "beta_")
    np.testing.assert_array_equal(model.classes_, [0, 1])
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])
    np.testing.assert_array_equal(model.dual_coef_, [model.mu_[inside]])
    assert model.intercept_.shape == (1,)
    assert model.score(X, y) > 0.75
    assert len(model.relevance_) < 20


def test_the_mode_and_the_evidence_agree_with_the_laplace_approximation(classes):
    X, y = classes
    model = RVC(Gaussian(1.0), tol=1e-9, **PAPERS).fit(X, y)
    Phi = functions(model, X)
    p = sigmoid(Phi @ model.mu_)
    # The gradient of the log posterior is zero at its mode.
    np.testing.assert_allclose(Phi.T @ (y - p), model.alpha_ * model.mu_, atol=1e-6)
    H = np.diag(model.alpha_) + Phi.T @ ((p * (1 - p))[:, np.newaxis] * Phi)
    np.testing.assert_allclose(model.sigma_, np.linalg.inv(H), rtol=1e-5, atol=1e-7)
    fit = np.sum(np.where(y == 1, np.log(p), np.log1p(-p)))
    prior = 0.5 * np.sum(np.log(model.alpha_) - model.alpha_ * model.mu_**2)
    evidence = fit + prior - 0.5 * np.linalg.slogdet(H)[1]
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=1e-7)


def test_probabilities_are_moderated_by_the_variance_by_default(classes):
    X, y = classes
    model = RVC(Gaussian(1.0)).fit(X, y)
    new = np.vstack([X, 10.0 * X[:20]])
    phi = functions(model, new)
    eta = phi @ model.mu_
    variance = np.einsum("ni,ij,nj->n", phi, model.sigma_, phi)
    np.testing.assert_allclose(model.decision_function(new), eta, rtol=1e-9, atol=1e-12)
    plain = model.predict_proba(new, moderate=False)
    moderated = model.predict_proba(new)
    np.testing.assert_allclose(plain[:, 1], sigmoid(eta), rtol=1e-9)
    np.testing.assert_allclose(moderated[:, 1], sigmoid(eta / np.sqrt(1 + np.pi / 8 * variance)), rtol=1e-9)
    np.testing.assert_allclose(moderated.sum(axis=1), 1.0, rtol=1e-14)
    assert (np.abs(moderated - 0.5) <= np.abs(plain - 0.5) + 1e-15).all()
    np.testing.assert_array_equal(model.predict(new), (eta > 0).astype(float))


@quietly
def test_three_classes_are_fitted_one_against_the_rest(three):
    X, y = three
    machine = RVC(Gaussian(1.5), complexity="none")
    model = clone(machine).fit(X, y)
    ones = [clone(machine).fit(X, y == label) for label in "abc"]
    m = len(model.active_)
    assert model.mu_.shape == model.alpha_.shape == (m, 3)
    assert model.sigma_.shape == (3, m, m)
    assert model.dual_coef_.shape == (3, len(model.relevance_))
    assert model.intercept_.shape == (3,)
    np.testing.assert_array_equal(model.active_, np.unique(np.concatenate([one.active_ for one in ones])))
    for output, one in enumerate(ones):
        used = np.isin(model.active_, one.active_)
        np.testing.assert_array_equal(np.isfinite(model.alpha_[:, output]), used)
        np.testing.assert_array_equal(model.alpha_[used, output], one.alpha_)
        np.testing.assert_array_equal(model.mu_[used, output], one.mu_)
        np.testing.assert_array_equal(model.mu_[~used, output], 0.0)
        np.testing.assert_array_equal(model.sigma_[output][np.ix_(used, used)], one.sigma_)
        np.testing.assert_array_equal(model.sigma_[output][~used], 0.0)
    for moderate in (True, False):
        # Exactly one class holds: P(c) ~ p_c prod_{d != c} (1 - p_d).
        rest, each = np.stack([one.predict_proba(X, moderate=moderate) for one in ones], axis=2).swapaxes(
            0, 1
        )
        expected = each / rest
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(model.predict_proba(X, moderate=moderate), expected, rtol=1e-9)
    decisions = np.column_stack([one.decision_function(X) for one in ones])
    np.testing.assert_allclose(model.decision_function(X), decisions, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    # The paths are joined: the second fit follows the first.
    path = model.log_marginal_likelihood_path_
    assert model.n_iter_ == sum(one.n_iter_ for one in ones) == len(path) - 1
    assert model.log_marginal_likelihood_ == path[-1]
    assert path[-1] == pytest.approx(sum(one.log_marginal_likelihood_ for one in ones))
    assert path[0] == pytest.approx(sum(one.log_marginal_likelihood_path_[0] for one in ones))
    first = ones[0].log_marginal_likelihood_path_
    np.testing.assert_allclose(np.diff(path[: len(first)]), np.diff(first), atol=1e-9)


@quietly
def test_probabilities_far_away_are_finite(three):
    X, y = three
    model = SparseBayesClassifier(fit_intercept=True).fit(X, y)
    for moderate in (True, False):
        p = model.predict_proba(1e5 * X, moderate=moderate)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0)


@quietly
@pytest.mark.parametrize("make", [lambda: SparseBayesClassifier(fit_intercept=True), lambda: RVC("linear")])
def test_columns_and_linear_kernels_have_weights_for_each_class(make, three):
    X, y = three
    for target, n_outputs in ((y, 3), (y == "a", 1)):
        model = make().fit(X, target)
        assert model.coef_.shape == (n_outputs, 2)
        assert model.intercept_.shape == (n_outputs,)
        decision = np.reshape(model.decision_function(X), (len(X), n_outputs))
        np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, decision, rtol=1e-8, atol=1e-10)


@quietly
@pytest.mark.parametrize("y_name", ["classes", "three"])
def test_precomputed_callable_and_named_kernels_agree(request, y_name):
    X, y = request.getfixturevalue(y_name)
    kernel = Gaussian(1.5)
    named = RVC(kernel, tol=1e-8).fit(X, y).predict_proba(X)
    precomputed = RVC("precomputed", tol=1e-8).fit(kernel(X, X), y).predict_proba(kernel(X, X))
    function = RVC(lambda A, B: kernel(A, B), tol=1e-8).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(precomputed, named, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(function, named, rtol=1e-5, atol=1e-8)


@quietly
def test_rows_and_classes_of_zero_weight_are_ignored(three):
    X, y = three
    keep = np.random.default_rng(1).random(len(y)) < 0.7
    weighted, removed = (
        RVC(gamma="scale").fit(X, y, sample_weight=keep),
        RVC(gamma="scale").fit(X[keep], y[keep]),
    )
    np.testing.assert_array_equal(weighted.predict_proba(X), removed.predict_proba(X))
    np.testing.assert_array_equal(weighted.relevance_, np.flatnonzero(keep)[removed.relevance_])
    model = RVC(gamma="scale").fit(X, y, sample_weight=y != "b")
    np.testing.assert_array_equal(model.classes_, ["a", "c"])
    assert model.decision_function(X).shape == (len(y),)


@quietly
@pytest.mark.parametrize("gap", [0.1, 5.0])
@pytest.mark.parametrize("make", [RVC, lambda: SparseBayesClassifier(fit_intercept=True)])
def test_separable_classes_give_finite_models(make, gap):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] > 0
    X[:, 0] += np.where(y, gap, -gap)
    model = make().fit(X, y)
    assert model.score(X, y) == 1.0
    fitted = (model.alpha_, model.mu_, model.sigma_, model.log_marginal_likelihood_path_)
    assert all(np.isfinite(values).all() for values in (*fitted, model.predict_proba(X)))


def test_the_status_is_the_worst_of_the_fits(three):
    X, y = three
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = RVC(max_iter=5, gamma="scale").fit(X, y)
    assert model.status_ == "max_iter"
    assert model.n_iter_ <= 15


def test_a_missing_label_is_named():
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(ValueError, match="y must have a label in each row, got None in row 1"):
        RVC().fit(X, ["a", None, "b", "a", "b", "a"])
