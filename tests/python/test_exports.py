"""Predictors and models in C and ONNX predict what their estimators predict, at rows not seen before."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

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
from exports import TOLERANCE, predictions, same_classes, same_regression
from sparsebayes import GREVM, RVC, RVR, GREVMRegressor, SparseBayesRegressor, to_c, to_onnx
from sparsebayes.kernels import Gaussian

pytestmark = pytest.mark.parametrize("export", TOLERANCE)
NEW = rows(30, seed=8)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel_predicts_the_same_with_error_bars(kernel, export, tmp_path):
    X = rows(60)
    est = RVR(kernel, noise_variance=0.02, std="plain").fit(X, target(X))
    assert len(est.active_) > 1
    same_regression(est, NEW, export, tmp_path)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_error_bars_of_every_kernel_grow_the_same(kernel, export, tmp_path):
    X = rows(60)
    est = RVR(kernel, noise_variance=0.02, std="full").fit(X, target(X))
    # k(x, x) - |L^-1 k(Z, x)|^2 cancels among the rows.
    tolerance = 1e-2 if export.endswith(("float", "float32")) else 1e-9
    same_regression(est, np.vstack([NEW, 10.0 * NEW[:5]]), export, tmp_path, tolerance)


@pytest.mark.parametrize("est", REGRESSORS, ids=repr)
def test_regressors_predict_the_same(est, export, tmp_path):
    X = rows(60)
    same_regression(est.fit(X, target(X)), NEW, export, tmp_path)


@pytest.mark.parametrize("est", OF_SEVERAL_OUTPUTS, ids=repr)
def test_regressors_of_several_outputs_predict_the_same(est, export, tmp_path):
    X = rows(60)
    same_regression(est.fit(X, numbers(X, n_outputs=3)), NEW, export, tmp_path)


@pytest.mark.parametrize("intercept", [False, True])
def test_counts_predict_the_same(intercept, export, tmp_path):
    X = rows(80)
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 2]))
    est = SparseBayesRegressor(fit_intercept=intercept, likelihood="poisson").fit(X, y)
    same_regression(est, NEW, export, tmp_path)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("est", CLASSIFIERS, ids=repr)
def test_classifiers_predict_the_same(est, n_classes, export, tmp_path):
    X = rows(120)
    same_classes(est.fit(X, labels(X, n_classes)), NEW, export, tmp_path)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 20])
@pytest.mark.parametrize("est", PROBIT_MODELS.values(), ids=PROBIT_MODELS)
def test_probit_models_predict_the_same(est, n_classes, export, tmp_path):
    X, new = rows(90), NEW
    y = labels(X, n_classes) if n_classes < 20 else np.repeat(np.arange(20), 8)
    if n_classes == 20:
        rng = np.random.default_rng(0)
        X = np.repeat(rng.normal(size=(20, 3)) * 3.0, 8, axis=0) + 0.5 * rng.normal(size=(160, 3))
        new = X[::3].astype(np.float32).astype(float)
    # With its default of nodes the estimator's own quadrature errs by up to 1e-6, with 300 by rounding.
    same_classes(est.fit(X, y), new, export, tmp_path, tolerance=1e-6)
    same_classes(est.set_params(n_quadrature=300), new, export, tmp_path)
    est.set_params(n_quadrature=None)


def test_precomputed_kernels_take_kernel_values(export, tmp_path):
    X, kernel = rows(50), Gaussian(2.0)
    for est in (RVR("precomputed", noise_variance=0.02), GREVMRegressor("precomputed")):
        same_regression(est.fit(kernel(X, X), target(X)), kernel(NEW, X), export, tmp_path)
    for est in (RVC("precomputed"), GREVM("precomputed")):
        same_classes(est.fit(kernel(X, X), labels(X, 3)), kernel(NEW, X), export, tmp_path)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_empty_models_predict_the_same(n_outputs, export, tmp_path):
    y = np.zeros(30) if n_outputs == 1 else np.zeros((30, 2))
    est = RVR(fit_intercept=False, gamma="scale").fit(rows(30), y)
    assert len(est.active_) == 0
    same_regression(est, NEW, export, tmp_path)


def test_models_that_cannot_be_exported_are_refused(export):
    write = {"predictor": RVR.to_predictor, "c": to_c, "onnx": to_onnx}[export.split("-")[0]]
    X = rows(30)
    with pytest.raises(NotFittedError):
        write(RVR(gamma="scale"))
    with pytest.raises(ValueError, match="evaluated by Python"):
        write(RVR(lambda A, B: np.cos(A @ B.T), noise_variance=0.1).fit(X, target(X)))
    with pytest.raises(ValueError, match="extra_basis can be exported only where it is 'linear'"):
        write(RVR(gamma=0.3, extra_basis=lambda A: A**2, noise_variance=0.01).fit(X, X[:, 0] ** 2))
    for foreign in (Ridge().fit(X, target(X)), None, RVR) if export != "predictor" else ():
        with pytest.raises(TypeError, match="est must be a fitted estimator of sparsebayes"):
            write(foreign)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_empty_classifiers_predict_the_same(multi_class, export, tmp_path):
    coin = np.random.default_rng(0).permutation(np.arange(30) % 3)
    est = RVC(gamma=1e-8, fit_intercept=False, multi_class=multi_class).fit(rows(30), coin)
    _, found = predictions(est, NEW, export, tmp_path)
    np.testing.assert_allclose(found, est.predict_proba(NEW), atol=1e-5)
