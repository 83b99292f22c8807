"""trainstation cross-validates with our fit."""

import numpy as np
import pytest

from sparsebayes import SparseBayesRegressor

client = pytest.importorskip("trainstation")
methods = pytest.importorskip("trainstation.fit_methods")

TRUE = np.zeros(40)
TRUE[[3, 11, 25]] = 2.0, -1.0, 0.5


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(80, 40))
    return A, A @ TRUE + 0.1 * rng.normal(size=80)


@pytest.fixture(autouse=True)
def _our_method(monkeypatch):
    def fit(A, y, **settings):
        return {"parameters": SparseBayesRegressor(fit_intercept=False, **settings).fit(A, y).coef_}

    monkeypatch.setitem(methods.fit_methods, "sparse-bayes", fit)
    for module in (methods, client.base_optimizer):
        monkeypatch.setattr(module, "available_fit_methods", sorted(methods.fit_methods))


def test_cross_validation_finds_the_parameters(rows):
    search = client.CrossValidationEstimator(rows, fit_method="sparse-bayes")
    search.validate()
    search.train()
    assert np.flatnonzero(search.parameters).tolist() == [3, 11, 25]
    np.testing.assert_allclose(search.parameters, TRUE, atol=0.05)
    assert 0.08 < search.rmse_validation < 0.12  # the noise is 0.1


def test_an_ensemble_has_parameters_near_the_true_ones(rows):
    ensemble = client.EnsembleOptimizer(rows, fit_method="sparse-bayes", ensemble_size=20)
    ensemble.train()
    np.testing.assert_allclose(ensemble.parameters, TRUE, atol=0.1)


def test_settings_reach_the_model(rows):
    search = client.Optimizer(rows, fit_method="sparse-bayes", noise_variance=100.0)
    with pytest.warns(UserWarning, match="empty"):
        search.train()
    assert not search.parameters.any()
