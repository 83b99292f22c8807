"""The relevance eigenvector machines as estimators: classes, kernels, bad input."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import GREVM, LREVM, RVC, VGREVM, GREVMRegressor, LREVMRegressor
from sparsebayes.kernels import Gaussian, Laplacian

CLASSIFIERS = [GREVM, LREVM, VGREVM]
REGRESSORS = [GREVMRegressor, LREVMRegressor]
ALL = CLASSIFIERS + REGRESSORS


# Some of the checks have labels that do not depend on the inputs, or targets without noise.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([kind() for kind in ALL] + [LREVM(["rbf", "linear"], fit_intercept=False)])
def test_scikit_learn_s_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", ALL)
def test_attributes_have_the_shapes_promised(kind, classes):
    X, y = classes
    model = kind(Gaussian(1.5)).fit(X, y)
    assert model.eigenvalues_.shape == model.alpha_.shape == (151,)
    assert (np.diff(model.eigenvalues_) <= 0).all()
    assert 0 < model.n_effective_ <= np.isfinite(model.alpha_).sum() < 60
    assert isinstance(model.n_effective_, int)
    assert model.dual_coef_.shape == (1, 150)
    assert model.intercept_.shape == (1,)
    assert model.status_ == "converged"
    assert model.ridge_ > 0
    np.testing.assert_array_equal(model.relevance_, np.arange(150))
    np.testing.assert_array_equal(model.relevance_vectors_, X)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_belong_to_the_decision_function(kind, classes):
    X, y = classes
    model = kind(Gaussian(1.5)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))
    assert model.score(X, y) > 0.8
    # Similar to the predictions of an RVC.
    assert np.mean(model.predict(X) == RVC(Gaussian(1.5)).fit(X, y).predict(X)) > 0.85


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_several_classes_are_fitted_one_against_the_rest(kind, three):
    X, y = three
    model = kind(Gaussian(3.0)).fit(X, y)
    assert model.eigenvalues_.shape == model.alpha_.shape == (121, 3)
    assert model.n_effective_.shape == model.ridge_.shape == (3,)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.score(X, y) > 0.7
    for c, label in enumerate("abc"):
        one = kind(Gaussian(3.0)).fit(X, y == label)
        np.testing.assert_allclose(
            model.decision_function(X)[:, c], one.decision_function(X), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("kind", ALL)
def test_a_kernel_is_the_same_however_it_is_given(kind, classes):
    X, y = classes
    kernel = Gaussian(1.5)
    function = "decision_function" if kind in CLASSIFIERS else "predict"
    expected = getattr(kind(kernel).fit(X, y), function)(X)
    for other in (lambda X, Z: kernel(X, Z), [kernel]):
        np.testing.assert_allclose(
            getattr(kind(other).fit(X, y), function)(X), expected, rtol=1e-6, atol=1e-7
        )
    given = kind("precomputed").fit(kernel(X, X), y)
    np.testing.assert_allclose(getattr(given, function)(kernel(X, X)), expected, rtol=1e-6, atol=1e-7)
    assert not hasattr(given, "relevance_vectors_")
    linear = kind("linear").fit(X, X[:, 0] + 0.1 * y > 0)
    np.testing.assert_allclose(
        X @ linear.coef_[0] + linear.intercept_[0], getattr(linear, function)(X), rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize("kind", ALL)
def test_several_kernels_make_one_dictionary(kind, classes):
    X, y = classes
    model = kind([Gaussian(1.0), Laplacian(0.5)]).fit(X, y)
    assert model.dual_coef_.shape == (1, 300)
    assert model.alpha_.shape == (301,)
    assert model.score(X, y) > 0.3


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize(("ridge", "error"), [(0.0, ValueError), ("auto", TypeError)])
def test_bad_ridges_are_refused_by_name(kind, ridge, error, classes):
    with pytest.raises(error, match="ridge"):
        kind(ridge=ridge).fit(*classes)


@pytest.mark.parametrize("kind", ALL)
def test_kernels_that_overflow_are_refused(kind, classes):
    X, y = classes
    with pytest.raises(ValueError, match="kernel values must be below"):
        kind("poly", degree=9, gamma=1e30).fit(X, y)
    with pytest.raises(ValueError, match="kernel values must be below"):
        kind("linear").fit(1e80 * X, y)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_the_kernel_does_not_matter(kind, scale, classes):
    X, y = classes
    K = Gaussian(1.5)(X, X)
    model = kind("precomputed", fit_intercept=False).fit(K, y)
    scaled = kind("precomputed", fit_intercept=False).fit(scale * K, y)
    assert scaled.n_effective_ == model.n_effective_
    np.testing.assert_allclose(scaled.eigenvalues_[0], scale**2 * model.eigenvalues_[0], rtol=1e-6)
    function = "decision_function" if kind in CLASSIFIERS else "predict"
    expected = getattr(model, function)(K)
    np.testing.assert_allclose(getattr(scaled, function)(scale * K), expected, rtol=1e-5, atol=1e-6)


def test_too_few_steps_are_reported(classes):
    with pytest.warns(ConvergenceWarning, match="max_iter=2 steps"):
        model = VGREVM(max_iter=2).fit(*classes)
    assert model.status_ == "max_iter"
