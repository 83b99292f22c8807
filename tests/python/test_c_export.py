"""Headers compile without a warning and predict what their estimators predict."""

import numpy as np
import pytest

from c_program import ask, needs_compiler
from export_problems import labels, numbers, rows, target
from exports import same_regression
from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor, to_c
from sparsebayes.kernels import Gaussian

DTYPES = ["double", "float"]


@needs_compiler
def test_counts_are_right_where_their_squares_overflow(tmp_path):
    X = rows(80)
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 2]))
    est = SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit(X, y)
    mean, std = est.predict(100.0 * X, return_std=True)
    means, stds = ask(to_c(est), 100.0 * X, tmp_path)
    small = (mean < 1e30) & (mean > 1e-30)
    np.testing.assert_allclose(means[small, 0], mean[small], rtol=1e-4)
    in_range = std < 1e30
    assert 0 < in_range.sum() < len(X)
    np.testing.assert_allclose(stds[in_range, 0], std[in_range], rtol=1e-3, atol=1e-30)
    assert not np.isnan(stds).any()


@needs_compiler
def test_headers_without_error_bars_have_the_same_means(tmp_path):
    X = rows(50)
    est = RVR(gamma=0.3, noise_variance=0.02).fit(X, target(X))
    header = to_c(est, dtype="double", std=False)
    assert "predict_std" not in header
    np.testing.assert_allclose(ask(header, X, tmp_path)[0][:, 0], est.predict(X), rtol=1e-11)


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
def test_empty_classifiers_predict_the_same(tmp_path):
    X = rows(30)
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
        for dtype in DTYPES:
            _, found = ask(to_c(est, dtype=dtype), 1e6 * X, tmp_path)
            np.testing.assert_allclose(found, est.predict_proba(1e6 * X), atol=1e-3)
            np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_floats_represent_targets_whose_squares_overflow(scale, tmp_path):
    X = rows(60)
    for y in (scale * target(X), scale * numbers(X)):
        same_regression(RVR(gamma=0.3).fit(X, y), rows(30, seed=8), "c-float", tmp_path)


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
    same_regression(est, X[:20] + 0.5, "c-double", tmp_path)
    est.fit(X - 128.0, np.sin(X[:, 0] / 40.0))
    assert "static const signed char model_points_" in to_c(est) or "static const short" in to_c(est)
    same_regression(est, X[:20], "c-double", tmp_path)
