"""Pipelines through skl2onnx, held against scikit-learn at rows they have not seen."""

import sys

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import (
    GREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    GREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
    register_onnx_converters,
)
from sparsebayes.kernels import Gaussian, Laplacian, Linear

skl2onnx = pytest.importorskip("skl2onnx")
runtime = pytest.importorskip("onnxruntime")

SCALES = [1.0, 100.0, 0.01]
RNG = np.random.default_rng(0)
X, NEW = (RNG.normal(size=(n, 3)) * SCALES + 1.0 for n in (80, 60))
Z = (X - 1.0) / SCALES
NOISE = RNG.normal(size=80)
Y = np.sin(Z[:, 0]) + 0.3 * Z[:, 1] + 0.1 * NOISE
TWO = np.where(Z[:, 0] * Z[:, 1] + Z[:, 2] + 0.3 * NOISE > 0, "yes", "no")
FOUR = np.digitize(Z[:, 0] + 0.3 * NOISE, [-0.7, 0.0, 0.7])
# In single precision the scaler itself rounds values that are a hundred times what they differ by.
TOLERANCE = {"float64": 1e-6, "float32": 1e-4}


def soft_vote(est):
    pair = [("ours", est), ("logistic", LogisticRegression())]
    return VotingClassifier(pair, voting="soft", flatten_transform=False)


def stack(est):
    return StackingClassifier([("ours", est), ("logistic", LogisticRegression())])


@pytest.fixture(autouse=True)
def _registered():
    register_onnx_converters()


def run(model, at):
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": at}), strict=True))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("opset", [13, 18, None])
@pytest.mark.parametrize(
    ("est", "targets"),
    [
        (RVR(gamma="scale"), Y),
        (RVR([Laplacian(0.1), Linear()], noise_variance=0.01), np.column_stack([Y, Z[:, 2] ** 2])),
        (GREVMRegressor(Gaussian(2.0)), Y),
        (SparseBayesRegressor(fit_intercept=False, likelihood="poisson"), np.floor(np.exp(1.0 + Y))),
        (RVC(gamma="scale"), TWO),
        (RVC(gamma="scale"), FOUR),
        (RVC(gamma="scale"), TWO == "yes"),
        (RVC(multi_class="softmax", gamma="scale"), FOUR),
        (SparseBayesClassifier(fit_intercept=False), TWO),
        (MRVM1(), FOUR),
        (GREVM(), FOUR.astype(float)),
    ],
)
def test_pipelines_give_the_results_of_their_estimators(est, targets, opset, dtype):
    pipeline = make_pipeline(StandardScaler(), est).fit(X, targets)
    options = {"zipmap": False} if is_classifier(est) else None
    model = skl2onnx.to_onnx(pipeline, X[:1].astype(dtype), target_opset=opset, options=options)
    found, limit = run(model, NEW.astype(dtype)), TOLERANCE[dtype]
    if is_classifier(est):
        assert list(found) == ["label", "probabilities"]
        np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(NEW), atol=limit)
        np.testing.assert_array_equal(found["label"], pipeline.predict(NEW))
    else:
        assert list(found) == ["mean", "std"]
        for ours, value in zip(found.values(), pipeline.predict(NEW, return_std=True), strict=True):
            np.testing.assert_allclose(ours, value, rtol=limit, atol=limit * np.abs(value).max())
    assert list(found.values())[1].dtype == dtype


def test_probabilities_may_be_dictionaries_or_columns():
    pipeline = make_pipeline(StandardScaler(), RVC(gamma="scale")).fit(X, TWO)
    p, at = pipeline.predict_proba(NEW), NEW.astype("float32")
    found = run(skl2onnx.to_onnx(pipeline, at[:1]), at)
    np.testing.assert_allclose([row["yes"] for row in found["output_probability"]], p[:, 1], atol=1e-4)
    found = run(skl2onnx.to_onnx(pipeline, at[:1], options={"zipmap": "columns"}), at)
    np.testing.assert_allclose(found["syes"].ravel(), p[:, 1], atol=1e-4)


def test_integers_are_taken():
    counts = np.round(10 * Z).astype(np.int64)
    est = RVR(gamma="scale").fit(counts, Y)
    model = skl2onnx.to_onnx(est, counts[:1])
    np.testing.assert_allclose(run(model, counts)["mean"], est.predict(counts), rtol=1e-4, atol=1e-4)


def test_ensembles_take_the_mean():
    for ensemble in (VotingRegressor, StackingRegressor):
        est = ensemble([("rvr", RVR(Gaussian([1.0, 100.0, 0.01]))), ("ridge", Ridge())]).fit(X, Y)
        (found,) = run(skl2onnx.to_onnx(est, X[:1]), NEW).values()
        np.testing.assert_allclose(found.ravel(), est.predict(NEW), rtol=1e-6, atol=1e-6)
    pipeline = make_pipeline(StandardScaler(), RVC(gamma="scale"))
    est = StackingClassifier([("rvc", pipeline), ("logistic", LogisticRegression())]).fit(Z, TWO)
    found = run(skl2onnx.to_onnx(est, Z[:1], options={"zipmap": False}), Z)
    np.testing.assert_allclose(found["probabilities"], est.predict_proba(Z), atol=1e-6)


@pytest.mark.parametrize("targets", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize(
    "est", [RVC(), RVC(multi_class="softmax"), SparseBayesClassifier(), MRVM1(), MRVM2(), GREVM()], ids=repr
)
def test_calibrated_classifiers_take_the_decision_function(est, targets, ensemble):
    # skl2onnx evaluates the curve of method="isotonic" at the nearest knot, for any classifier.
    calibrated = CalibratedClassifierCV(est, method="sigmoid", cv=3, ensemble=ensemble)
    pipeline = make_pipeline(StandardScaler(), calibrated).fit(X, targets)
    found = run(skl2onnx.to_onnx(pipeline, NEW[:1], options={"zipmap": False}), NEW)
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(NEW), atol=1e-5)
    np.testing.assert_array_equal(found["label"].ravel(), pipeline.predict(NEW))


@pytest.mark.parametrize("targets", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("wrap", [OneVsRestClassifier, BaggingClassifier, soft_vote, stack])
def test_ensembles_take_the_probabilities(wrap, targets):
    est = wrap(RVC(gamma="scale")).fit(Z, targets)
    found = run(skl2onnx.to_onnx(est, Z[:1], options={"zipmap": False}), NEW - 1.0)
    np.testing.assert_allclose(found["probabilities"], est.predict_proba(NEW - 1.0), atol=1e-5)
    np.testing.assert_array_equal(found["label"].ravel(), est.predict(NEW - 1.0))


def test_one_against_one_takes_the_labels():
    est = OneVsOneClassifier(RVC(gamma="scale")).fit(Z, FOUR)
    found = run(skl2onnx.to_onnx(est, Z[:1], options={"zipmap": False}), Z)
    np.testing.assert_array_equal(found["label"].ravel(), est.predict(Z))


def test_what_does_not_fit_is_named():
    floats, est = skl2onnx.common.data_types.FloatTensorType, RVR(gamma="scale").fit(Z, Y)
    with pytest.raises(ValueError, match=r"give the shape \[None, 3\]"):
        skl2onnx.convert_sklearn(est, initial_types=[("X", floats([None, 5]))])
    with pytest.raises(ValueError, match="takes one input"):
        skl2onnx.convert_sklearn(est, initial_types=[("a", floats([None, 1])), ("b", floats([None, 2]))])
    with pytest.raises(ValueError, match="target_opset must be at least 13"):
        skl2onnx.to_onnx(est, X[:1], target_opset=12)
    with pytest.raises(ValueError, match="cannot be exported"):
        skl2onnx.to_onnx(RVR(lambda x, z: x @ z.T).fit(X, Y), X[:1])


def test_without_skl2onnx_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(ImportError, match="pip install skl2onnx"):
        register_onnx_converters()
