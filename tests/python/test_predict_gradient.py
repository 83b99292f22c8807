"""Gradients of predicted means and standard deviations, beside differences of predictions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from export_problems import KERNELS, labels, numbers, rows, target
from sparsebayes import RVC, RVR, GREVMRegressor, SparseBayesRegressor

X = rows(60)
#: Rows between the centres, where the gradient of every kernel exists; some are far away.
NEW = np.vstack([rows(10, seed=8), 4.0 * rows(3, seed=9)])
STEP = 1e-5


def assert_is_gradient(est):
    """Compare with central differences of the predictor."""
    served = est.to_predictor()
    mean, std = served.predict_gradient(NEW)
    for d in range(NEW.shape[1]):
        up, down = (served.predict_std(NEW + sign * STEP * np.eye(NEW.shape[1])[d]) for sign in (1, -1))
        for found, high, low in zip((mean, std), up, down, strict=True):
            slope = (high - low) / (2.0 * STEP)
            assert_allclose(found[..., d], slope, rtol=1e-5, atol=1e-7 * (1.0 + np.abs(slope).max()))
    one = served.predict_gradient(NEW[:1])
    assert_allclose(one[0], mean[:1], rtol=0, atol=0)
    assert_allclose(one[1], std[:1], rtol=0, atol=0)


@pytest.mark.parametrize("std", ["full", "plain"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel(kernel, std):
    est = RVR(kernel, noise_variance=0.02, std=std).fit(X, target(X))
    assert len(est.active_) > 1
    assert_is_gradient(est)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma", "student_t"])
def test_every_likelihood(name):
    y = target(X) if name == "student_t" else 1.0 + np.round(np.exp(1.0 + target(X)))
    assert_is_gradient(RVR(gamma=0.3, likelihood=name).fit(X, y))


def test_several_outputs_and_other_models():
    assert_is_gradient(RVR(gamma=0.3).fit(X, numbers(X)))
    assert_is_gradient(RVR(gamma=0.3, extra_basis="linear").fit(X, target(X)))
    assert_is_gradient(SparseBayesRegressor().fit(X, X[:, 0] + 0.1 * target(X)))
    assert_is_gradient(GREVMRegressor(gamma=0.3).fit(X, target(X)))


def test_classes_have_none():
    with pytest.raises(ValueError, match="predict_gradient is for regression"):
        RVC(gamma=0.3).fit(X, labels(X, 2)).to_predictor().predict_gradient(NEW)


def test_invalid_rows_are_refused():
    served = RVR(gamma=0.3).fit(X, target(X)).to_predictor()
    with pytest.raises(ValueError, match="X must have 3 columns"):
        served.predict_gradient(NEW[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        served.predict_gradient(np.full((1, 3), np.nan))
    assert served.predict_gradient(NEW[:0])[0].shape == (0, 3)


@pytest.mark.parametrize("dispersion", [None, 0.1])
@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma"])
def test_exponentials_may_overflow(name, dispersion):
    y = 1.0 + np.round(np.exp(X[:, 0] + 0.1 * target(X)))
    given = {} if name == "poisson" else {"dispersion": dispersion}
    est = SparseBayesRegressor(likelihood=name, **given).fit(X, y)
    assert est.coef_[0] > 0.5
    assert est.coef_[2] == 0.0
    served = est.to_predictor()
    along = np.linspace(10.0, 600.0, 600)[:, np.newaxis] * np.eye(3)[0]
    squares_overflow = served.predict_std(along)[1] > 1e160
    far = np.vstack(
        [along[:1], along[squares_overflow][:1], 3000.0 * np.eye(3)[:1], [[1e5, 0, 0], [-1e5, 0, 0]]]
    )
    (mean, std), sizes = served.predict_gradient(far), served.predict_std(far)
    assert not np.isnan([mean, std]).any()
    assert (mean[:, 2] == 0.0).all()
    assert (std[:, 2] == 0.0).all()
    assert np.isposinf(mean[3, 0])
    assert np.isposinf(std[2:4, 0]).all()
    assert np.isneginf(std[4, 0])
    assert np.isfinite(std[1, 0])
    step = 1e-4 * np.eye(3)[0]
    up, down = (np.log(served.predict_std(far[:2] + sign * step)) for sign in (1.0, -1.0))
    for part, size, slope in zip((mean, std), sizes, (up - down) / 2e-4, strict=True):
        assert_allclose(part[:2, 0] / size[:2], slope, rtol=1e-5)
