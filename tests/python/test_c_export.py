"""Headers compile without a warning and predict what their estimators predict."""

import numpy as np
import pytest

from c_program import ask, needs_compiler
from export_problems import (
    CLASSIFIERS,
    KERNELS,
    OF_SEVERAL_OUTPUTS,
    PROBIT_MODELS,
    REGRESSORS,
    labels,
    numbers,
    rows,
    target,
)
from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, to_c
from sparsebayes.kernels import Gaussian

TOLERANCE = {"double": 1e-12, "float": 1e-4}


def same_regression(est, X, directory, dtype, **options):
    mean, std = est.predict(X, return_std=True)
    n_outputs = 1 if mean.ndim == 1 else mean.shape[1]
    means, stds = ask(to_c(est, dtype=dtype, **options), X, directory, n_outputs=n_outputs)
    # Terms of either sign cancel: errors are relative to the largest mean.
    size, tolerance = np.abs(mean).max(axis=0), TOLERANCE[dtype]
    assert np.all(np.abs(means.reshape(mean.shape) - mean) <= tolerance * size)
    # Where Sigma is badly conditioned, both ways to the variance have rounding errors.
    np.testing.assert_allclose(stds.reshape(std.shape), std, rtol=max(tolerance, 1e-10))


def same_classes(est, X, directory, dtype, tolerance=None):
    p = est.predict_proba(X)
    found, probabilities = ask(to_c(est, dtype=dtype), X, directory)
    np.testing.assert_allclose(probabilities, p, rtol=0.0, atol=tolerance or TOLERANCE[dtype])
    best = np.sort(p, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-3
    assert clear.sum() > len(X) / 2
    assert np.array_equal(est.classes_[found][clear], est.predict(X)[clear])


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_predicts_the_same_with_error_bars(kernel, dtype, tmp_path):
    X = rows(60)
    est = RVR(KERNELS[kernel], noise_variance=0.02).fit(X, target(X))
    assert len(est.active_) > 1
    same_regression(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("est", REGRESSORS, ids=repr)
def test_regressors_predict_the_same(est, dtype, tmp_path):
    X = rows(60)
    same_regression(est.fit(X, target(X)), rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("est", OF_SEVERAL_OUTPUTS, ids=repr)
def test_regressors_of_several_outputs_predict_the_same(est, dtype, tmp_path):
    X = rows(60)
    same_regression(est.fit(X, numbers(X, n_outputs=3)), rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_counts_predict_the_same(dtype, tmp_path):
    X = rows(80)
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 2]))
    est = SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, y)
    same_regression(est, rows(30, seed=8), tmp_path, dtype)
    mean, std = est.predict(100.0 * X, return_std=True)
    means, stds = ask(to_c(est), 100.0 * X, tmp_path)
    small = (mean < 1e30) & (mean > 1e-30)
    np.testing.assert_allclose(means[small, 0], mean[small], rtol=1e-4)
    in_range = std < 1e30
    assert 0 < in_range.sum() < len(X)
    np.testing.assert_allclose(stds[in_range, 0], std[in_range], rtol=1e-3, atol=1e-30)
    assert not np.isnan(stds).any()


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("est", CLASSIFIERS, ids=repr)
def test_classifiers_predict_the_same(est, n_classes, dtype, tmp_path):
    X = rows(120)
    est.fit(X, labels(X, n_classes))
    same_classes(est, rows(30, seed=8), tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_classes", [2, 3, 4, 20])
@pytest.mark.parametrize("est", PROBIT_MODELS.values(), ids=PROBIT_MODELS)
def test_probit_models_predict_the_same(est, n_classes, dtype, tmp_path):
    X, new = rows(90), rows(30, seed=8)
    y = labels(X, n_classes) if n_classes < 20 else np.repeat(np.arange(20), 8)
    if n_classes == 20:
        rng = np.random.default_rng(0)
        X = np.repeat(rng.normal(size=(20, 3)) * 3.0, 8, axis=0) + 0.5 * rng.normal(size=(160, 3))
        new = X[::3].astype(np.float32).astype(float)
    # With this many nodes the estimator's own integrals are exact to rounding.
    same_classes(est.fit(X, y).set_params(n_quadrature=300), new, tmp_path, dtype)


@needs_compiler
@pytest.mark.parametrize("std", [True, False])
def test_precomputed_kernels_take_kernel_values(std, tmp_path):
    X, new = rows(50), rows(20, seed=8)
    kernel = Gaussian(2.0)
    est = RVR("precomputed", noise_variance=0.02).fit(kernel(X, X), target(X))
    header = to_c(est, dtype="double", std=std)
    means, _ = ask(header, kernel(new, X), tmp_path)
    np.testing.assert_allclose(means[:, 0], est.predict(kernel(new, X)), rtol=1e-11)
    assert std == ("predict_std" in header)
    classifier = GREVM("precomputed").fit(kernel(X, X), labels(X, 3))
    same_classes(classifier, kernel(new, X), tmp_path, "double")


@needs_compiler
@pytest.mark.parametrize("est", [RVC(gamma=0.3), RVC(gamma=0.3, multi_class="softmax")], ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_variances_probabilities_are_those_of_the_mode(est, n_classes, tmp_path):
    X, new = rows(100), rows(30, seed=8)
    est.fit(X, labels(X, n_classes))
    header = to_c(est, dtype="double", std=False)
    assert len(header) < len(to_c(est, dtype="double"))
    _, found = ask(header, new, tmp_path)
    np.testing.assert_allclose(found, est.predict_proba(new, moderate=False), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
@needs_compiler
def test_empty_models_predict_the_same(tmp_path):
    X = rows(30)
    empty = RVR(gamma=0.3, fit_intercept=False, noise_variance=100.0).fit(X, 1e-3 * target(X))
    assert len(empty.active_) == 0
    for dtype in TOLERANCE:
        same_regression(empty, X, tmp_path, dtype)
    coin = np.random.default_rng(0).permutation(np.arange(30) % 3)
    for multi_class in ("ovr", "softmax"):
        est = RVC(gamma=1e-8, fit_intercept=False, multi_class=multi_class).fit(X, coin)
        _, found = ask(to_c(est), X, tmp_path)
        np.testing.assert_allclose(found, est.predict_proba(X), atol=1e-5)


@needs_compiler
def test_probabilities_survive_extreme_predictors(tmp_path):
    X = rows(80)
    softmax, columns = RVC("linear", multi_class="softmax"), SparseBayesClassifier(fit_intercept=False)
    for est in (RVC("linear"), softmax, GREVM("linear"), MRVM1("linear"), columns):
        est.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
        for dtype in TOLERANCE:
            _, found = ask(to_c(est, dtype=dtype), 1e6 * X, tmp_path)
            np.testing.assert_allclose(found, est.predict_proba(1e6 * X), atol=1e-3)
            np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_floats_represent_targets_whose_squares_overflow(scale, tmp_path):
    X = rows(60)
    for y in (scale * target(X), scale * numbers(X)):
        same_regression(RVR(gamma=0.3).fit(X, y), rows(30, seed=8), tmp_path, "float")


def test_numbers_out_of_the_range_of_a_float_are_refused():
    X = rows(40)
    with pytest.raises(ValueError, match="range of float; rescale the data, or use dtype='double'"):
        to_c(RVR(gamma=0.3).fit(X, 1e60 * target(X)))
    with pytest.raises(ValueError, match=r"kernel parameter 1 / width\^2 of 5e-51 is out of the range"):
        to_c(RVR(Gaussian(2**0.5 * 1e25)).fit(1e25 * X, target(X)))


@needs_compiler
def test_pixels_are_stored_in_bytes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(60, 20)).astype(float)
    est = RVR(gamma=1e-6, noise_variance=0.01).fit(X, np.sin(X[:, 0] / 40.0))
    assert "static const unsigned char model_points_" in to_c(est)
    same_regression(est, X[:20] + 0.5, tmp_path, "double")
    est.fit(X - 128.0, np.sin(X[:, 0] / 40.0))
    assert "static const signed char model_points_" in to_c(est) or "static const short" in to_c(est)
    same_regression(est, X[:20], tmp_path, "double")
