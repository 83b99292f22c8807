"""Design matrices of formulaic are basis functions."""

import numpy as np
import pandas as pd
import pytest

from sparsebayes import SparseBayesRegressor

client = pytest.importorskip("formulaic")

_RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": _RNG.uniform(-2.0, 2.0, 300), "b": _RNG.uniform(-2.0, 2.0, 300)})
FRAME["g"] = np.array(["u", "v", "w"])[np.arange(300) % 3]
FRAME["y"] = 1.0 + 2.0 * FRAME["a"] - FRAME["b"] ** 2 + (FRAME["g"] == "v") + 0.1 * _RNG.normal(size=300)
FORMULA = "y ~ a + b + I(b**2) + I(b**3) + a:b + C(g)"
WEIGHTS = {"a": 2.0, "I(b ** 2)": -1.0, "C(g)[T.v]": 1.0}


def test_a_formula_gives_the_terms_of_the_data():
    y, X = client.model_matrix(FORMULA, FRAME)
    model = SparseBayesRegressor().fit(X, y["y"])
    found = {model.feature_names_in_[j]: model.coef_[j] for j in model.active_ if j >= 0}
    assert found.keys() == WEIGHTS.keys()
    assert all(abs(found[name] - value) < 0.05 for name, value in WEIGHTS.items())
    assert abs(model.intercept_[0] - 1.0) < 0.05


def test_new_rows_are_predicted_with_the_same_formula():
    y, X = client.model_matrix(FORMULA, FRAME[:200])
    new = X.model_spec.get_model_matrix(FRAME[200:])
    mean, std = SparseBayesRegressor().fit(X, y["y"]).predict(new, return_std=True)
    assert 0.9 < np.mean(np.abs(FRAME["y"][200:] - mean) < 1.96 * std) < 1.0


def test_a_sparse_design_gives_the_same_model():
    y, X = client.model_matrix(FORMULA, FRAME)
    sparse = client.model_matrix(FORMULA, FRAME, output="sparse").rhs
    dense = SparseBayesRegressor(fit_intercept=False).fit(X, y["y"])
    model = SparseBayesRegressor(fit_intercept=False).fit(sparse, y["y"])
    np.testing.assert_allclose(model.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
