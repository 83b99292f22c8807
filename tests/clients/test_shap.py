"""Explanations of shap are Shapley values of our predictions."""

import numpy as np
import pytest

from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor

client = pytest.importorskip("shap")

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of its use of matplotlib

_RNG = np.random.default_rng(0)
X = _RNG.uniform(-3.0, 3.0, (200, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * _RNG.normal(size=200)
LABELS = np.where(Y > 0.0, "high", "low")
BACKGROUND, EXPLAINED = X[:50], X[150:155]


def with_column(j, values):
    """Return the background with these values in column j: (values, rows, columns)."""
    rows = np.repeat(BACKGROUND[np.newaxis], len(values), axis=0)
    rows[:, :, j] = values[:, np.newaxis]
    return rows


def test_explanations_of_a_kernel_model_are_shapley_values():
    model = RVR().fit(X, Y)
    found = client.Explainer(model.predict, BACKGROUND)(EXPLAINED)
    average = model.predict(BACKGROUND).mean()
    alone = [
        model.predict(with_column(j, EXPLAINED[:, j]).reshape(-1, 2)).reshape(-1, 50).mean(axis=1)
        for j in (0, 1)
    ]
    first = ((alone[0] - average) + (model.predict(EXPLAINED) - alone[1])) / 2.0
    np.testing.assert_allclose(found.values[:, 0], first)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict(EXPLAINED))


def test_explanations_of_probabilities_sum_to_the_probabilities():
    model = RVC().fit(X, LABELS)
    found = client.Explainer(model.predict_proba, BACKGROUND)(EXPLAINED)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict_proba(EXPLAINED))


@pytest.mark.parametrize("kind", [SparseBayesRegressor, SparseBayesClassifier])
def test_explanations_of_a_linear_model_are_its_weights_times_the_inputs(kind):
    model = kind().fit(X, Y if kind is SparseBayesRegressor else LABELS)
    found = client.Explainer(model, BACKGROUND)(EXPLAINED)
    np.testing.assert_allclose(found.values, (EXPLAINED - BACKGROUND.mean(axis=0)) * model.coef_.ravel())


def test_explanations_of_linear_log_odds_sum_to_the_log_odds():
    model = SparseBayesClassifier().fit(X, LABELS)
    found = client.Explainer(model, BACKGROUND)(EXPLAINED)
    np.testing.assert_allclose(
        found.values.sum(axis=1) + found.base_values, model.decision_function(EXPLAINED)
    )


def test_explanations_of_a_linear_model_sum_to_the_prediction():
    # `client.Explainer(model)` returns base values of a wrong shape, because `intercept_` is an array.
    model = SparseBayesRegressor().fit(X, Y)
    found = client.Explainer(model.predict, BACKGROUND)(EXPLAINED)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict(EXPLAINED))
