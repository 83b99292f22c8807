"""Predictions of exported models, held against those of their estimators."""

import shutil

import numpy as np
import pytest

from c_program import ask
from sparsebayes import to_c, to_onnx

#: Largest error relative to the scale of the results.
TOLERANCE = {
    "predictor": 1e-10,
    "c-double": 1e-12,
    "c-float": 1e-4,
    "onnx-float64": 1e-10,
    "onnx-float32": 1e-4,
}
ONNX = ["onnx-float64", "onnx-float32"]


def run(model, at, dtype="float64"):
    """Return the outputs of an ONNX model by name."""
    pytest.importorskip("onnx").checker.check_model(model, full_check=True)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": np.asarray(at, dtype=dtype)}), strict=True))


def predictions(est, X, export, directory):
    """Return means and standard deviations, or labels and probabilities."""
    if export == "predictor":
        return of_predictor(est.to_predictor(), est, X)
    kind, dtype = export.split("-")
    if kind == "c":
        if shutil.which("cc") is None:
            pytest.skip("there is no C compiler called cc")
        first, second = ask(to_c(est, dtype=dtype), X, directory)
        return (est.classes_[first] if hasattr(est, "classes_") else first), second
    found = run(to_onnx(est, dtype=dtype), X, dtype)
    assert list(found) == (["label", "probabilities"] if hasattr(est, "classes_") else ["mean", "std"])
    first, second = found.values()
    assert second.dtype == dtype
    return first, second


def of_predictor(predictor, est, X):
    """Return the predictions of a `Predictor`; they have the same bits one by one and on several threads."""
    classes = predictor.classes_
    together = predictor.predict(X) if classes is None else predictor.predict_proba(X)
    np.testing.assert_array_equal([predictor.predict_one(row) for row in X], together)
    out = np.empty_like(together)
    predictor.predict_into(X, out)
    np.testing.assert_array_equal(out, together)
    np.testing.assert_array_equal(predictor.predict(X, n_jobs=1), predictor.predict(X, n_jobs=2))
    assert predictor.estimator == type(est).__name__
    if classes is None:
        return predictor.predict_std(X)
    np.testing.assert_array_equal(classes, est.classes_)
    np.testing.assert_allclose(
        predictor.decision_function(X), est.decision_function(X), rtol=1e-9, atol=1e-10
    )
    return predictor.predict(X), together


def same_regression(est, X, export, directory=None, tolerance_of_std=1e-10):
    mean, std = est.predict(X, return_std=True)
    means, stds = predictions(est, X, export, directory)
    # Terms of either sign cancel: errors are relative to the largest mean.
    size, tolerance = np.abs(mean).max(axis=0), TOLERANCE[export]
    assert np.all(np.abs(means.reshape(mean.shape) - mean) <= tolerance * size)
    # Where Sigma is badly conditioned, both ways to the variance have rounding errors.
    np.testing.assert_allclose(stds.reshape(std.shape), std, rtol=max(tolerance, tolerance_of_std))


def same_classes(est, X, export, directory=None, tolerance=0.0):
    p = est.predict_proba(X)
    labels, probabilities = predictions(est, X, export, directory)
    np.testing.assert_allclose(probabilities, p, rtol=0.0, atol=max(tolerance, TOLERANCE[export]))
    # Where two classes are as probable as one another rounding decides.
    best = np.sort(p, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-3
    assert clear.sum() > len(X) / 2
    assert np.array_equal(labels[clear], est.predict(X)[clear])
