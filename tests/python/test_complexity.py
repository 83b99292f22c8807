"""The prior on the complexity of the model, against the dense objective and the certificate."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from problems import assert_certified
from sparsebayes import RVC, RVR, SparseBayesRegressor, SufficientStatistics, inspection


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=120)


def certify(model, X, y, **known):
    found = inspection.certificate(model.fit(X, y, **known), X, y, **known)
    assert model.status_ == "converged"
    assert found.max_log_alpha_change < 1e-5
    assert found.max_gain_outside < 1e-6
    assert found.log_beta_residual < 1e-5
    assert found.max_mean_error < 1e-6
    assert_allclose(found.log_marginal_likelihood, model.log_marginal_likelihood_, rtol=1e-9)
    return found


def test_the_model_maximises_the_dense_objective(rows):
    X, y = rows
    c = 0.7
    model = RVR(gamma=2.0, penalize_intercept=True, complexity=c, tol=1e-10).fit(X, y)
    bias = np.ones((len(X), int(model.active_[0] == -1)))
    Phi = np.hstack([bias, model.kernel_(X, model.relevance_vectors_)])

    def objective(x):
        alpha, beta = np.exp(x[:-1]), np.exp(x[-1])
        fitted = (Phi / alpha) @ Phi.T
        C = fitted + np.eye(len(y)) / beta
        smoother = np.linalg.solve(C, fitted)
        return multivariate_normal(cov=C).logpdf(y) - c * np.trace(smoother)

    best = np.log(np.append(model.alpha_, model.beta_))
    assert_allclose(model.log_marginal_likelihood_path_[-1], objective(best), rtol=1e-10)
    h = 1e-4
    for step in h * np.eye(len(best)):
        up, down = objective(best + step), objective(best - step)
        assert abs(up - down) / (2.0 * h) < 1e-5
        assert max(up, down) < objective(best)


@pytest.mark.parametrize("complexity", [0.25, "aic", "bic", "ebic"])
@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_every_likelihood_is_certified(rows, complexity, penalize_intercept):
    X, y = rows
    rng = np.random.default_rng(0)
    Y = np.column_stack([y, 3.0 - 2.0 * np.cos(X[:, 0]) + 0.1 * rng.normal(size=len(X))])
    labels = np.digitize(y, [-0.4, 0.4])
    columns = np.column_stack([X, X**2, X**3, rng.normal(size=(len(X), 10))])
    common = {"complexity": complexity, "penalize_intercept": penalize_intercept}
    certify(RVR(gamma=2.0, **common), X, y)
    certify(RVR(gamma=2.0, **common), X, y, y_std=rng.uniform(0.5, 2.0, len(X)))
    certify(RVR(gamma=2.0, **common), X, y, sample_weight=rng.uniform(0.5, 2.0, len(X)))
    for shared_noise in (False, True):
        certify(RVR(gamma=2.0, shared_noise=shared_noise, **common), X, Y)
    certify(RVC(gamma=2.0, **common), X, labels > 0)
    certify(RVC(gamma=2.0, **common), X, labels)
    certify(RVC(gamma=2.0, multi_class="softmax", **common), X, labels)
    counts = rng.poisson(np.exp(0.5 * X[:, 0] + 1.0))
    certify(SparseBayesRegressor(likelihood="poisson", **common), columns, counts)


@pytest.mark.parametrize("complexity", [0.25, "ebic"])
def test_exchanges_use_the_same_objective(rows, complexity):
    X, y = rows
    model = RVR(gamma=2.0, complexity=complexity, search="exchange")
    assert certify(model, X, y).max_gain_exchange < 1e-3


def test_names_stand_for_weights(rows):
    X, y = rows
    columns = np.column_stack([X, X**2, X**3])
    # With the constant function.
    n, p = len(X), columns.shape[1] + 1
    for name, weight in (
        ("none", 0.0),
        ("aic", 1.0),
        ("bic", 0.5 * np.log(n)),
        ("ebic", 0.5 * np.log(n * p)),
    ):
        named = SparseBayesRegressor(complexity=name).fit(columns, y)
        given = SparseBayesRegressor(complexity=weight).fit(columns, y)
        assert_allclose(named.coef_, given.coef_, rtol=1e-8)


def test_sums_and_blocks_give_the_same_model(rows, monkeypatch):
    X, y = rows
    columns = np.column_stack([X, X**2, X**3])
    model = SparseBayesRegressor(complexity="ebic", fit_intercept=False)
    stats = SufficientStatistics(columns.shape[1])
    stats.update(columns, y)
    expected = model.fit(columns, y).coef_
    assert_allclose(model.fit_statistics(stats).coef_, expected, rtol=1e-6)
    monkeypatch.setattr("sparsebayes._data.design._MAX_UNBLOCKED", 20)
    certify(RVR(gamma=2.0, complexity=0.5), X, y)


def test_many_rows_start_from_low_rank_features():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=2500)
    certify(RVR(gamma=0.5, complexity=0.5), X, y)


@pytest.mark.filterwarnings("ignore:.*empty:sklearn.exceptions.ConvergenceWarning")
def test_the_error_bars_of_pure_noise_hold():
    kept, covered = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(400, 200)), rng.normal(size=400)
        model = SparseBayesRegressor(complexity="ebic", penalize_intercept=False).fit(X[:200], y[:200])
        mean, std = model.predict(X[200:], return_std=True)
        kept.append(len(model.active_) - 1)
        covered.append(np.mean(np.abs(y[200:] - mean) < 1.96 * std))
    assert sorted(kept)[-2] <= 2
    assert min(covered) > 0.85


def test_weak_functions_together_are_found():
    """Beside an empty model, whose noise explains everything, none of 20 spikes gains alone."""
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(100, 256))
        A /= np.linalg.norm(A, axis=0)
        w = np.zeros(256)
        w[rng.choice(256, 20, replace=False)] = rng.choice([-1.0, 1.0], 20)
        y = A @ w
        y += np.sqrt(np.mean(y**2)) * 10.0**-1.5 * rng.normal(size=100)
        model = SparseBayesRegressor(complexity="ebic", penalize_intercept=False).fit(A, y)
        errors.append(np.linalg.norm(model.coef_ - w) / np.linalg.norm(w))
    # A local optimum is the end of one in twenty.
    assert np.sort(errors)[-2] < 0.05


@pytest.mark.parametrize("complexity", ["akaike", -1.0, np.nan, 1e7, None])
def test_bad_values_are_refused(rows, complexity):
    with pytest.raises((TypeError, ValueError), match="complexity"):
        RVR(complexity=complexity, gamma="scale").fit(*rows)


@pytest.mark.parametrize("scheme", ["mackay", "em", "variational"])
def test_other_schemes_have_no_such_prior(rows, scheme):
    with pytest.raises(ValueError, match="complexity='aic' needs scheme='sequential'"):
        RVR(complexity="aic", scheme=scheme, gamma="scale").fit(*rows)


def test_many_effects_with_little_noise_are_found():
    """Each of 128 effects gains less than its weight of the prior as long as the others are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(512, 2048)) / np.sqrt(512.0)
    w = np.zeros(2048)
    w[rng.choice(2048, 128, replace=False)] = rng.normal(size=128)
    y = X @ w + 0.01 * rng.normal(size=512)
    model = SparseBayesRegressor().fit(X, y)
    assert np.linalg.norm(model.coef_ - w) < 0.05 * np.linalg.norm(w)
    assert_certified(model, X, y)
