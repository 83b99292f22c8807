"""Pipelines: the graph of their steps by skl2onnx, joined with that of their estimator."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from exports import run
from sparsebayes import RVC, RVR, to_onnx


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("est", [RVR(), RVC()], ids=repr)
def test_graphs_of_scalers_can_be_joined_with_those_of_estimators(est, dtype):
    skl2onnx, compose = pytest.importorskip("skl2onnx"), pytest.importorskip("onnx.compose")
    X = np.random.default_rng(0).normal(size=(80, 3)) * [1.0, 100.0, 0.01] + 1.0
    y = np.sin(X[:, 0]) + X[:, 1] / 300.0
    pipeline = make_pipeline(StandardScaler(), est).fit(X, y > 0 if isinstance(est, RVC) else y)
    before = skl2onnx.to_onnx(pipeline[:-1], X[:1].astype(dtype), target_opset=13)
    after = to_onnx(pipeline[-1], dtype=dtype)
    model = compose.merge_models(before, after, io_map=[(before.graph.output[0].name, "X")])
    found = list(run(model, X, dtype).values())
    if isinstance(est, RVC):
        np.testing.assert_allclose(found[1], pipeline.predict_proba(X), atol=1e-4)
    else:
        np.testing.assert_allclose(found, pipeline.predict(X, return_std=True), rtol=1e-3, atol=1e-4)
