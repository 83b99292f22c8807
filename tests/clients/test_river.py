"""river gives our models one row, or a few, at a time."""

import numpy as np
import pandas as pd
import pytest

from sparsebayes import RVR, SparseBayesClassifier, SparseBayesRegressor

client = pytest.importorskip("river.compat")
stream = pytest.importorskip("river.stream")
metrics = pytest.importorskip("river.metrics")

_RNG = np.random.default_rng(0)
X = pd.DataFrame(_RNG.uniform(-3.0, 3.0, (300, 2)), columns=["a", "b"])
Y = pd.Series(np.sin(X["a"]) + 0.3 * X["b"] + 0.2 * _RNG.normal(size=300))
LABELS = pd.Series(np.where(Y > 0.0, "high", "low"))

# The first few rows.
early = [
    pytest.mark.filterwarnings("ignore::sparsebayes.OverfitWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def parts():
    return (slice(k, k + 100) for k in range(0, 300, 100))


class TestOneRowAtATime:
    pytestmark = early

    def test_the_model_is_that_of_all_rows(self):
        model = client.convert_sklearn_to_river(SparseBayesRegressor())
        for row, target in stream.iter_frame(X, Y):
            model.learn_one(row, target)
        whole = SparseBayesRegressor().fit(X, Y)
        np.testing.assert_allclose(model.estimator.coef_, whole.coef_, rtol=1e-7)
        first = X.iloc[0]
        assert np.isclose(model.predict_one({"b": first["b"], "a": first["a"]}), whole.predict(X[:1])[0])

    def test_each_class_is_predicted_before_it_is_learned(self):
        model = client.convert_sklearn_to_river(SparseBayesClassifier(), classes=["high", "low"])
        accuracy = metrics.Accuracy()
        for row, label in stream.iter_frame(X, LABELS):
            accuracy.update(label, model.predict_one(row))
            model.learn_one(row, label)
        assert accuracy.get() > 0.8


def test_a_kernel_model_learns_parts():
    model = client.convert_sklearn_to_river(RVR(candidates=X[:60].to_numpy()))
    for part in parts():
        model.learn_many(X[part], Y[part])
    assert np.abs(model.predict_many(X) - (np.sin(X["a"]) + 0.3 * X["b"])).mean() < 0.1


def test_probabilities_of_parts_are_those_of_the_model():
    model = client.convert_sklearn_to_river(SparseBayesClassifier(), classes=["high", "low"])
    for part in parts():
        model.learn_many(X[part], LABELS[part])
    found = model.predict_proba_many(X)
    np.testing.assert_array_equal(found, model.estimator.predict_proba(X))
    assert np.mean(model.predict_many(X) == LABELS) > 0.8
