"""Predictors: the same answers as the estimators they come from, without them."""

import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris

from sparsebayes import (
    GREVM,
    LREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    VGREVM,
    GREVMRegressor,
    LREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
)
from sparsebayes.kernels import Gaussian, Laplacian, Linear, LinearSpline, OnColumns, Polynomial, Sigmoid

X, LABELS = load_iris(return_X_y=True)
X = X - X.mean(axis=0)
Y = X[:, 0] + np.sin(2 * X[:, 2])
INPUTS = X[:, 1:]
ROWS = np.random.default_rng(0).normal(size=(40, 3))
ROWS4 = np.random.default_rng(1).normal(size=(40, 4))

KERNELS = {
    "gaussian": Gaussian(1.5),
    "widths": Gaussian([1.0, 2.0, 3.0]),
    "laplacian": Laplacian(0.4),
    "polynomial": Polynomial(3, 0.2, 1.0),
    "linear": Linear(),
    "sigmoid": Sigmoid(0.3, -0.2),
    "spline": LinearSpline(),
    "composed": Gaussian(1.0) * Linear() + Laplacian(0.2),
    "columns": OnColumns(OnColumns(Gaussian([1.0, 2.0]), [1, 0]), [-1, 0]) + OnColumns(Linear(), [0]),
    "list": [Gaussian(1.0), OnColumns("rbf", 1)],
}

REGRESSIONS = {
    **{f"RVR-{name}": RVR(kernel, noise_variance=0.05) for name, kernel in KERNELS.items()},
    "RVR-extra": RVR(Gaussian(1.0), extra_basis="linear", noise_variance=0.05),
    "columns": SparseBayesRegressor(fit_intercept=True, noise_variance=0.05),
    "GREVMRegressor": GREVMRegressor(Gaussian(2.0), noise_variance=0.05),
    "LREVMRegressor": LREVMRegressor([Gaussian(2.0), Linear()], fit_intercept=False, noise_variance=0.05),
    "variational": RVR(Gaussian(2.0), scheme="variational", noise_variance=0.05),
}
OUTPUTS = {
    "own": RVR(Gaussian(2.0), noise_variance=[0.05, 0.1]),
    "shared": RVR(Gaussian(2.0), shared_noise=True, noise_variance=0.05),
}
CLASSES = {
    "RVC": RVC(Gaussian(2.0)),
    "softmax": RVC(Gaussian(2.0), multi_class="softmax"),
    "list": RVC([Gaussian(2.0), Linear()], extra_basis="linear"),
    "columns": SparseBayesClassifier(fit_intercept=True),
    "columns-softmax": SparseBayesClassifier(fit_intercept=False, multi_class="softmax"),
    "MRVM1": MRVM1(Gaussian(2.0)),
    "MRVM2": MRVM2([Gaussian(2.0), Linear()], fit_intercept=False),
    "quadrature": MRVM1(Gaussian(2.0), n_quadrature=20),
    "GREVM": GREVM(Gaussian(2.0)),
    "LREVM": LREVM([Gaussian(2.0), Laplacian(0.2)]),
    "VGREVM": VGREVM(Gaussian(2.0), fit_intercept=False),
}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


def rows_alone_and_together(predictor, rows):
    together = predictor.predict(rows) if predictor.classes_ is None else predictor.predict_proba(rows)
    alone = np.array([predictor.predict_one(row) for row in rows])
    np.testing.assert_array_equal(alone, together)
    out = np.empty_like(together)
    predictor.predict_into(rows, out)
    np.testing.assert_array_equal(out, together)
    np.testing.assert_array_equal(predictor.predict(rows, n_jobs=1), predictor.predict(rows, n_jobs=2))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_predictor_of_regression_predicts_as_its_estimator(name):
    est = REGRESSIONS[name].fit(INPUTS, Y)
    predictor = est.to_predictor()
    mean, std = est.predict(ROWS, return_std=True)
    close(predictor.predict(ROWS), mean)
    close(predictor.predict_std(ROWS), (mean, std))
    one = predictor.predict_one(ROWS[3], return_std=True)
    assert [type(value) for value in one] == [float, float]
    close(one, (mean[3], std[3]))
    rows_alone_and_together(predictor, ROWS)
    assert predictor.classes_ is None
    assert predictor.estimator == type(est).__name__


@pytest.mark.parametrize("name", OUTPUTS)
def test_several_outputs(name):
    est = OUTPUTS[name].fit(INPUTS, np.c_[Y, -2 * Y])
    predictor = est.to_predictor()
    assert [part.shape for part in predictor.predict_std(ROWS)] == [(40, 2)] * 2
    close(predictor.predict_std(ROWS), est.predict(ROWS, return_std=True))
    mean, std = predictor.predict_one(ROWS[0], return_std=True)
    assert mean.shape == std.shape == (2,)
    rows_alone_and_together(predictor, ROWS)


def test_counts():
    rng = np.random.default_rng(0)
    est = SparseBayesRegressor(likelihood="poisson", fit_intercept=True)
    est.fit(INPUTS, rng.poisson(np.exp(INPUTS[:, 0])))
    close(est.to_predictor().predict_std(ROWS), est.predict(ROWS, return_std=True))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", CLASSES)
def test_a_predictor_of_classes_predicts_as_its_estimator(name, n_classes):
    at = LABELS < n_classes
    noisy = np.where(np.arange(150) % 11 == 0, (LABELS + 1) % n_classes, LABELS)[at]
    labels = np.array(["setosa", "versicolor", "virginica"])[noisy]
    est = CLASSES[name].fit(X[at], labels)
    predictor = est.to_predictor()
    np.testing.assert_array_equal(predictor.classes_, est.classes_)
    assert predictor.classes_.dtype == est.classes_.dtype
    close(predictor.predict_proba(ROWS4), est.predict_proba(ROWS4))
    close(predictor.decision_function(ROWS4), est.decision_function(ROWS4))
    np.testing.assert_array_equal(predictor.predict(ROWS4), est.predict(ROWS4))
    assert predictor.predict_one(ROWS4[0]).shape == (n_classes,)
    rows_alone_and_together(predictor, ROWS4)


def test_kernel_values_given():
    kernel = Gaussian(2.0)
    est = RVR("precomputed", noise_variance=0.05).fit(kernel(INPUTS, INPUTS), Y)
    values = kernel(ROWS, INPUTS)
    close(est.to_predictor().predict(values), est.predict(values))


def test_a_model_without_functions():
    est = RVR(fit_intercept=False, noise_variance=1e6).fit(INPUTS, Y)
    assert len(est.active_) == 0
    predictor = est.to_predictor()
    mean, std = predictor.predict_std(ROWS)
    np.testing.assert_array_equal(mean, 0.0)
    close(std, 1e3)


def test_no_rows():
    predictor = RVC().fit(X, LABELS).to_predictor()
    assert predictor.predict(np.empty((0, 4))).shape == (0,)
    assert predictor.predict_proba(np.empty((0, 4))).shape == (0, 3)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (RVR(lambda a, b: a @ b.T, noise_variance=0.05), "evaluated by Python"),
        (RVR(extra_basis=np.exp, noise_variance=0.01), "extra_basis"),
    ],
)
def test_functions_that_only_python_has_cannot_be_served(model, match):
    model.fit(INPUTS, Y)
    with pytest.raises(ValueError, match=match):
        model.to_predictor()


def test_an_estimator_must_be_fitted(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        RVR().to_predictor()
    with pytest.raises(NotFittedError):
        RVR().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def regression():
    return RVR(Gaussian(2.0), noise_variance=0.05).fit(INPUTS, Y).to_predictor()


@pytest.fixture(scope="module")
def classes():
    return RVC(Gaussian(2.0)).fit(X, LABELS).to_predictor()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda p: p.predict(ROWS[:, :2]), ValueError, "X must have 3 columns"),
        (lambda p: p.predict(ROWS[0]), ValueError, "predict_one"),
        (lambda p: p.predict([["a", "b", "c"]]), TypeError, "column 0 holds 'a'"),
        (lambda p: p.predict(ROWS * 1j), TypeError, "complex numbers, give real ones"),
        (lambda p: p.predict(ROWS * np.nan), ValueError, "X contains NaN in column 0"),
        (lambda p: p.predict(ROWS, n_jobs=0), ValueError, "n_jobs"),
        (lambda p: p.predict(ROWS, n_jobs="two"), TypeError, "n_jobs"),
        (lambda p: p.predict_proba(ROWS), ValueError, "classes"),
        (lambda p: p.predict_one(ROWS), ValueError, "one row"),
        (lambda p: p.predict_one([1.0]), ValueError, "x must hold 3 numbers"),
        (lambda p: p.predict_one([1.0, np.inf, 0.0]), ValueError, "not finite"),
        (lambda p: p.predict_one("abc"), TypeError, "real numbers"),
        (lambda p: p.predict_into(ROWS, np.empty(39)), ValueError, "out must have shape"),
        (lambda p: p.predict_into(ROWS, np.empty((40, 1))), ValueError, "out must have shape"),
        (lambda p: p.predict_into(ROWS, np.empty(40, np.float32)), TypeError, "float64"),
        (lambda p: p.predict_into(ROWS, np.empty(80)[::2]), ValueError, "C order"),
        (lambda p: p.predict_into(ROWS, [0.0] * 40), TypeError, "ndarray"),
    ],
)
def test_wrong_arguments_are_refused(regression, call, error, match):
    with pytest.raises(error, match=match):
        call(regression)


def test_wrong_arguments_of_classifiers_are_refused(classes):
    with pytest.raises(ValueError, match="probabilities"):
        classes.predict_std(ROWS4)
    with pytest.raises(ValueError, match="probabilities"):
        classes.predict_one(ROWS4[0], return_std=True)
    with pytest.raises(ValueError, match="out must have shape"):
        classes.predict_into(ROWS4, np.empty((40, 2)))
    with pytest.raises(ValueError, match="out must have"):
        classes.predict_into(ROWS4, np.empty((40, 2, 3)))


def test_an_output_that_overlaps_the_input(regression):
    both = ROWS.copy()
    expected = regression.predict(both)
    out = both.reshape(-1)[:40]
    regression.predict_into(both, out)
    np.testing.assert_array_equal(out, expected)


def test_a_predictor_cannot_be_changed(regression):
    with pytest.raises(AttributeError, match="immutable"):
        regression.n_features_in_ = 5
    with pytest.raises(AttributeError):
        regression.other = 5
    assert "3 features" in repr(regression)
    labels = RVC().fit(X, LABELS).to_predictor().classes_
    with pytest.raises(ValueError, match="read-only"):
        labels[0] = 5


def test_predictors_and_estimators_survive_pickle_and_joblib():
    est = RVC(Gaussian(2.0)).fit(X, LABELS.astype(str))
    predictor = est.to_predictor()
    stream = io.BytesIO()
    joblib.dump((est, predictor), stream)
    stream.seek(0)
    for again_est, again in (pickle.loads(pickle.dumps((est, predictor))), joblib.load(stream)):
        np.testing.assert_array_equal(again.predict_proba(ROWS4), predictor.predict_proba(ROWS4))
        np.testing.assert_array_equal(again_est.predict_proba(ROWS4), est.predict_proba(ROWS4))


def test_large_batches_are_the_same_on_any_number_of_threads(regression):
    rows = np.random.default_rng(0).normal(size=(300_000, 3))
    one = regression.predict_std(rows, n_jobs=1)
    np.testing.assert_array_equal(regression.predict_std(rows, n_jobs=3), one)
    np.testing.assert_array_equal(regression.predict(rows[1000:1100]), one[0][1000:1100])


def test_serving_imports_neither_scikit_learn_nor_scipy(regression, tmp_path):
    path = tmp_path / "model.safetensors"
    regression.save(path)
    code = (
        "import sys, sparsebayes, sparsebayes.kernels\n"
        f"model = sparsebayes.load({str(path)!r})\n"
        "model.predict([[0.0, 1.0, 2.0]]), model.predict_std([[0.0, 1.0, 2.0]])\n"
        "model.predict_one([0, 1, 2])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'sklearn', 'scipy', 'pandas', 'joblib', 'onnx', 'safetensors'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
