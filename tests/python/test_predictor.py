"""Predictors: forms of input and output, errors, threads; test_exports.py has their predictions."""

import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from sparsebayes import RVC, RVR
from sparsebayes.kernels import Gaussian

X, LABELS = load_iris(return_X_y=True)
X = X - X.mean(axis=0)
Y = X[:, 0] + np.sin(2 * X[:, 2])
INPUTS = X[:, 1:]
ROWS = np.random.default_rng(0).normal(size=(40, 3))
ROWS4 = np.random.default_rng(1).normal(size=(40, 4))

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_one_row_has_numbers_or_arrays():
    one = RVR(Gaussian(2.0)).fit(INPUTS, Y).to_predictor()
    mean, std = one.predict_std(ROWS)
    assert [type(value) for value in one.predict_one(ROWS[3], return_std=True)] == [float, float]
    assert one.predict_one(ROWS[3], return_std=True) == (mean[3], std[3])
    two = RVR(Gaussian(2.0)).fit(INPUTS, np.c_[Y, -2 * Y]).to_predictor()
    assert [part.shape for part in two.predict_std(ROWS)] == [(40, 2)] * 2
    assert [part.shape for part in two.predict_one(ROWS[0], return_std=True)] == [(2,), (2,)]


def test_no_rows():
    predictor = RVC(gamma="scale").fit(X, LABELS).to_predictor()
    assert predictor.predict(np.empty((0, 4))).shape == (0,)
    assert predictor.predict_proba(np.empty((0, 4))).shape == (0, 3)


def test_an_estimator_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        RVR(gamma="scale").save(tmp_path / "model")
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
    labels = RVC(gamma="scale").fit(X, LABELS).to_predictor().classes_
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
