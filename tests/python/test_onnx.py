"""`to_onnx`: what onnxruntime makes of the graphs, held against the estimators at rows they have not seen."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_ndtr

from export_problems import KERNELS, rows
from exports import ONNX, run, same_regression
from sparsebayes import GREVM, MRVM2, RVC, RVR, SparseBayesRegressor, to_onnx
from sparsebayes._export import onnx as onnx_export
from sparsebayes.kernels import Gaussian

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X, NEW = rows(80, 0), rows(60, 1) * 2.0
NOISE = np.random.default_rng(2).normal(size=80)
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * NOISE
TWO = np.where(X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * NOISE > 0, "yes", "no")
FOUR = np.digitize(X[:, 0] + 0.3 * NOISE, [-0.7, 0.0, 0.7])


@pytest.mark.parametrize("export", ONNX)
@pytest.mark.parametrize("name", ["widths", "laplacian", "in-sum"])
def test_inputs_may_be_taken_a_few_at_a_time(name, export, monkeypatch):
    monkeypatch.setattr(onnx_export, "_MAX_DIFFERENCES", 1)
    same_regression(RVR(KERNELS[name], gamma="scale").fit(X, Y), NEW, export)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_very_small_and_very_large_counts_keep_their_error_bars(dtype):
    counts = np.random.default_rng(3).poisson(np.exp(1.0 + 0.5 * Y))
    est = SparseBayesRegressor(likelihood="poisson", fit_intercept=False).fit(X, counts)
    at = np.outer(np.linspace(-30, 20, 11), est.coef_.ravel() / np.sum(est.coef_**2))
    found, limit = run(to_onnx(est, dtype=dtype), at, dtype), {"float64": 1e-10, "float32": 1e-4}[dtype]
    mean, std = est.predict(at, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=limit, atol=limit * np.abs(mean).max())
    np.testing.assert_allclose(found["std"], std, rtol=limit)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_classes", [3, 10, 30])
def test_probit_probabilities_are_right_for_scores_of_all_sizes(n_classes, scale):
    rng = np.random.default_rng(5)
    est = MRVM2("linear", max_iter=2, tol=10.0, n_quadrature=400)
    est.fit(np.tile(np.eye(n_classes), (3, 1)), np.tile(np.arange(n_classes), 3))
    est.dual_coef_ = scale * rng.normal(size=est.dual_coef_.shape)
    at = rng.normal(size=(50, n_classes))
    at[:10] = 0.0  # all classes alike
    at[10:20, 1:] = 0.0
    p = est.predict_proba(at)
    found = run(to_onnx(est), at)["probabilities"]
    np.testing.assert_allclose(found, p, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[p > 1e-10], p[p > 1e-10], rtol=1e-3)
    single = run(to_onnx(est, dtype="float32"), at.astype("float32"), "float32")["probabilities"]
    # Single precision knows scores of this size no better.
    np.testing.assert_allclose(single, p, rtol=0, atol=max(1e-5, 3e-6 * scale))


def test_two_probit_classes_are_right_far_into_the_tail():
    est = MRVM2("linear", fit_intercept=False).fit(X, TWO)
    slope = est.coef_[1] - est.coef_[0]
    z = np.linspace(-35.0, 8.0, 200)
    at = np.outer(z * np.sqrt(2.0) / (slope @ slope), slope)
    found = run(to_onnx(est), at)["probabilities"]
    np.testing.assert_allclose(np.log(found[:, 1]), log_ndtr(z), rtol=1e-12, atol=1e-12)


def test_labels_keep_their_order_where_probabilities_are_at_their_ends():
    est = GREVM("linear").fit(X, FOUR)
    est.dual_coef_ *= 1e3
    found = run(to_onnx(est), NEW)
    np.testing.assert_allclose(found["probabilities"], est.predict_proba(NEW), rtol=1e-9, atol=1e-300)
    np.testing.assert_array_equal(found["label"], est.predict(NEW))


@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (["no", "yes"], ["no", "yes"]),
        ([3, -5], [-5, 3]),
        (np.array([1, 200], dtype=np.uint8), [1, 200]),
        (np.array([1, 2**63 + 1], dtype=np.uint64), ["1", "9223372036854775809"]),
        ([True, False], [0, 1]),
        ([1.0, 2.0], [1, 2]),
        (np.array(["a", "ö"], dtype=object), ["a", "ö"]),
    ],
    ids=["str", "int", "uint8", "uint64", "bool", "whole", "object"],
)
def test_labels_are_whole_numbers_or_text(labels, stored):
    targets = np.asarray(labels)[(X[:, 0] > 0).astype(int)]
    est = RVC("linear").fit(X, targets)
    label = run(to_onnx(est), NEW)["label"]
    assert label.shape == (len(NEW),)
    assert label.dtype == (object if isinstance(stored[0], str) else np.int64)
    np.testing.assert_array_equal(label, np.array(stored)[np.searchsorted(est.classes_, est.predict(NEW))])


def test_another_runtime_agrees():
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    for est in (RVR("linear_spline").fit(X, Y), RVC(multi_class="softmax", gamma="scale").fit(X, FOUR)):
        model = to_onnx(est)
        found = run(model, NEW).values()
        for ours, theirs in zip(found, evaluator(model).run(None, {"X": NEW}), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_all_operator_sets_from_the_oldest_on_do(opset):
    for est in (
        RVR("linear_spline").fit(X, Y),
        RVC(multi_class="softmax", gamma="scale").fit(X, FOUR),
        MRVM2().fit(X, FOUR),
    ):
        model = to_onnx(est, opset=opset)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
        for ours, theirs in zip(run(model, NEW).values(), run(to_onnx(est), NEW).values(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_graph_says_what_it_is_of():
    frame = pd.DataFrame(X, columns=["a", "b", "ü"])
    model = to_onnx(RVR(Gaussian(1.0)).fit(frame, Y), dtype=np.float32)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about == {"estimator": "RVR", "feature_names": '["a", "b", "\\u00fc"]'}
    assert model.producer_name == "sparsebayes"
    (shape,) = [value.type.tensor_type.shape.dim for value in model.graph.input]
    assert shape[0].dim_param == "n"
    assert shape[1].dim_value == 3


def test_bad_input_is_named():
    est = RVR(gamma="scale").fit(X, Y)
    for dtype in ("float16", "int64", None):
        with pytest.raises(ValueError, match="dtype must be 'float64' or 'float32'"):
            to_onnx(est, dtype=dtype)
    for dtype in ("double precision", "\ud800"):
        with pytest.raises(TypeError, match="dtype must be 'float64' or 'float32'"):
            to_onnx(est, dtype=dtype)
    with pytest.raises(TypeError, match="opset"):
        to_onnx(est, opset="13")
    with pytest.raises(ValueError, match="opset must be an integer of at least 13"):
        to_onnx(est, opset=12)
    with pytest.raises(ValueError, match="opset must be at most"):
        to_onnx(est, opset=1000)


def test_numbers_too_large_for_single_precision_are_refused():
    est = RVR("linear").fit(X, Y * 1e40)
    with pytest.raises(ValueError, match="use dtype='float64'"):
        to_onnx(est, dtype="float32")
    mean = est.predict(NEW)
    np.testing.assert_allclose(run(to_onnx(est), NEW)["mean"], mean, atol=1e-10 * np.abs(mean).max())


def test_without_onnx_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install sparsebayes\[onnx\]"):
        to_onnx(RVR(gamma="scale").fit(X, Y))


def test_onnx_is_imported_by_its_users_alone():
    code = "import sys, sparsebayes; sparsebayes.RVR, sparsebayes.to_onnx; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
