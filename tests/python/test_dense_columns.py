"""Weights of all columns with one prior variance, where these predict rows left out better than few."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.metrics import log_loss

from sparsebayes import (
    OverfitWarning,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
    inspection,
)


def many_effects(n=120, p=40, n_effects=40, noise=0.3, seed=0):
    """Columns of different scale, of which some have effects: X, the mean of y, and y, of n + 1000 rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 1000, p))
    f = X[:, :n_effects] @ rng.normal(size=n_effects)
    y = 5.0 + f + noise * f.std() * rng.normal(size=len(f))
    return X * np.logspace(-3, 3, p), f, y


def log_evidence(F, y, variance, noise):
    """The log density of y without its mean, with an intercept of flat prior."""
    n = len(y)
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    C = basis.T @ (variance * F @ F.T + noise * np.eye(n)) @ basis
    z = basis.T @ y
    return -0.5 * (np.linalg.slogdet(C)[1] + z @ np.linalg.solve(C, z))


def test_many_effects():
    X, f, y = many_effects()
    model, few = (
        SparseBayesRegressor(allow_dense=allowed).fit(X[:120], y[:120]) for allowed in (True, False)
    )
    scaled = X / np.logspace(-3, 3, 40)
    peer = BayesianRidge().fit(scaled[:120], y[:120])
    errors = [np.std(one - 5.0 - f[120:]) for one in (model.predict(X[120:]), peer.predict(scaled[120:]))]
    assert errors[0] < 1.05 * errors[1]
    assert errors[0] < 0.6 * np.std(few.predict(X[120:]) - 5.0 - f[120:])
    assert_array_equal(model.active_, np.arange(-1, 40))
    assert not hasattr(few, "process_variance_")
    low, high = model.predict_interval(X[120:])
    assert 0.9 < np.mean((low < y[120:]) & (y[120:] < high)) < 0.98
    assert inspection.certificate(model, X[:120], y[:120]).max_mean_error < 1e-6


def test_many_effects_beside_outliers():
    X, f, y = many_effects(n=200, p=30, n_effects=30)
    y[:200:20] += 100.0
    model = SparseBayesRegressor(likelihood="student_t").fit(X[:200], y[:200])
    assert_array_equal(model.active_, np.arange(-1, 30))
    assert np.std(model.predict(X[200:]) - 5.0 - f[200:]) < 0.2 * np.std(f)
    assert model.row_weights_[::20].max() < 0.1
    assert inspection.certificate(model, X[:200], y[:200]).max_mean_error < 1e-6


def test_weights_and_variances_are_those_of_the_evidence():
    X, _, y = many_effects(n=60, p=10, n_effects=10)
    X, y = X[:60], y[:60]
    model = SparseBayesRegressor().fit(X, y)
    F = X - X.mean(axis=0)
    squares = np.mean(F**2, axis=0)
    v, noise = model.process_variance_, model.noise_variance_
    assert_allclose(model.alpha_, np.append(0.0, squares / v))
    precision = F.T @ F / noise + np.diag(squares / v)
    assert_allclose(model.coef_, np.linalg.solve(precision, F.T @ (y - y.mean()) / noise), rtol=1e-9)
    assert_allclose(model.sigma_[1:, 1:], np.linalg.inv(precision), rtol=1e-6)
    found = log_evidence(F / np.sqrt(squares), y, v, noise)
    for factors in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)):
        assert log_evidence(F / np.sqrt(squares), y, *np.array(factors) * (v, noise)) < found


@pytest.mark.parametrize(("n_effects", "noise"), [(3, 0.3), (3, 0.0)])
def test_few_effects_stay_few(n_effects, noise):
    X, _, y = many_effects(n_effects=n_effects, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverfitWarning)  # without noise
        model = SparseBayesRegressor().fit(X[:120], y[:120])
    assert set(model.active_) <= {-1, 0, 1, 2}
    assert not hasattr(model, "process_variance_")


def test_copies_are_no_evidence():
    # Copies predict each other, the better the more columns have weights.
    rng = np.random.default_rng(3)
    X = np.repeat(rng.normal(size=(40, 30)), 3, axis=0)
    model = SparseBayesRegressor().fit(X, X[:, 0] + np.repeat(rng.normal(size=40), 3))
    assert not hasattr(model, "process_variance_")


def test_weights_count_rows():
    X, _, y = many_effects()
    X, y, counts = X[:120], y[:120], 1 + (np.arange(120) % 20 == 0)
    weighted = SparseBayesRegressor().fit(X, y, sample_weight=counts)
    repeated = SparseBayesRegressor().fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.process_variance_ == pytest.approx(repeated.process_variance_, rel=1e-6)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(n_classes):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1200, 30))
    f = X @ rng.normal(size=30) + rng.logistic(size=1200)
    y = np.digitize(f, [-2.0, 2.0][: n_classes - 1])
    model, few = (SparseBayesClassifier(allow_dense=one).fit(X[:200], y[:200]) for one in (True, False))
    peer = LogisticRegression(C=0.3).fit(X[:200], y[:200])
    losses = [log_loss(y[200:], one.predict_proba(X[200:])) for one in (model, peer, few)]
    assert losses[0] < losses[1] + 0.03
    assert losses[0] < losses[2] - 0.05
    assert np.all(model.coef_ != 0.0)
    assert inspection.certificate(model, X[:200], y[:200]).max_mean_error < 1e-3


def test_sums_have_the_sparse_model():
    X, _, y = many_effects(p=20, n_effects=20)
    X, y = X[:120] / np.logspace(-3, 3, 20), y[:120]
    stats = SufficientStatistics(20)
    stats.update(X, y)
    model = SparseBayesRegressor().fit_statistics(stats)
    assert_allclose(model.coef_, SparseBayesRegressor(allow_dense=False).fit(X, y).coef_, atol=1e-6)
