"""Intervals, covariances and draws of the predictive distribution."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm, poisson
from sklearn.exceptions import ConvergenceWarning

from problems import PAPERS
from sparsebayes import RVR, SparseBayesRegressor


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(150, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=150)


def test_intervals_of_a_gaussian_are_its_quantiles(rows):
    X, y = rows
    for model in (RVR(gamma=0.5).fit(X, y), RVR(gamma=0.5).fit(X, np.column_stack([y, -y]))):
        mean, std = model.predict(X, return_std=True)
        for coverage in (0.5, 0.95):
            low, high = model.predict_interval(X, coverage)
            z = norm.ppf(0.5 + coverage / 2.0)
            assert_allclose(low, mean - z * std, rtol=1e-10)
            assert_allclose(high, mean + z * std, rtol=1e-10)


def test_known_noise_widens_intervals(rows):
    X, y = rows
    model = RVR(gamma=0.5).fit(X, y, y_std=np.linspace(0.5, 2.0, 150))
    narrow, wide = (np.ptp(model.predict_interval(X, y_std=std), axis=0) for std in (0.5, 2.0))
    assert (wide > narrow).all()
    draws = model.sample_y(X, 4000, y_std=2.0)
    assert_allclose(draws.std(axis=1), model.predict(X, return_std=True, y_std=2.0)[1], rtol=0.1)


def test_draws_have_the_predictive_moments(rows):
    X, y = rows
    model = RVR(gamma=0.5).fit(X, y)
    mean, std = model.predict(X[:20], return_std=True)
    draws = model.sample_y(X[:20], 20_000)
    assert draws.shape == (20, 20_000)
    assert_allclose(draws.mean(axis=1), mean, atol=5.0 * std.max() / np.sqrt(20_000))
    assert_allclose(draws.std(axis=1), std, rtol=0.05)
    assert_allclose(model.sample_y(X[:20], 3), model.sample_y(X[:20], 3, random_state=0))


def test_draws_of_the_weights_are_shared_by_all_rows(rows):
    X, y = rows
    model = RVR(gamma=0.5, std="plain", **PAPERS).fit(X[:15], y[:15])
    first, second = model.sample_y([[1.0], [1.0]], 20_000)
    assert_allclose(np.std(first - second), np.sqrt(2.0 * model.noise_variance_), rtol=0.05)
    assert np.std(first) > 1.1 * np.sqrt(model.noise_variance_)


def test_the_covariance_is_that_of_draws_and_its_diagonal_the_variance(rows):
    X, y = rows
    plain = RVR(gamma=0.5).fit(X[:15], y[:15])
    mean, cov = plain.predict(X[:9], return_cov=True)
    assert_allclose(mean, plain.predict(X[:9]))
    assert_allclose(np.diag(cov), plain.predict(X[:9], return_std=True)[1] ** 2, rtol=1e-9)
    assert_allclose(cov, cov.T, rtol=0.0, atol=0.0)
    draws = plain.sample_y(X[:9], 100_000)
    assert_allclose(np.cov(draws), cov, atol=0.02 * cov.max())
    known = RVR(gamma=0.5).fit(X[:15], y[:15], y_std=np.linspace(0.5, 2.0, 15))
    for y_std in (None, 0.7, np.linspace(0.5, 2.0, 9)):
        _, cov = known.predict(X[:9], return_cov=True, y_std=y_std)
        _, std = known.predict(X[:9], return_std=True, y_std=y_std)
        assert_allclose(np.diag(cov), std**2, rtol=1e-9)
    assert known.predict(X[:1], return_cov=True)[1].shape == (1, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_several_outputs_have_a_covariance_each(rows, shared):
    X, y = rows
    model = RVR(gamma=0.5, shared_noise=shared, std="full").fit(X, np.column_stack([y, y**2]))
    mean, cov = model.predict(X[:9], return_cov=True)
    assert (mean.shape, cov.shape) == ((9, 2), (9, 9, 2))
    std = model.predict(X[:9], return_std=True)[1]
    assert_allclose(np.diagonal(cov).T, std**2, rtol=1e-9)


def test_covariances_that_do_not_exist_are_refused(rows):
    X, y = rows
    model = RVR(gamma=0.5).fit(X, y)
    with pytest.raises(ValueError, match="return_std and return_cov must not both be True"):
        model.predict(X, True, True)
    counts = SparseBayesRegressor(likelihood="poisson").fit(X, np.arange(150))
    with pytest.raises(ValueError, match="return_cov must be False with likelihood='poisson'"):
        counts.predict(X, return_cov=True)


def test_several_outputs_have_their_own_draws(rows):
    X, y = rows
    Y = np.column_stack([y, 10.0 * y])
    for shared in (True, False):
        model = RVR(gamma=0.5, shared_noise=shared).fit(X, Y)
        draws = model.sample_y(X[:5], 5000)
        assert draws.shape == (5, 2, 5000)
        assert_allclose(draws.std(axis=2), model.predict(X[:5], return_std=True)[1], rtol=0.1)


def test_counts_have_whole_limits_and_draws():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2))
    y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]))
    model = SparseBayesRegressor(likelihood="poisson").fit(X, y)
    low, high = model.predict_interval(X)
    assert_allclose(low, np.floor(low))
    inside = np.mean((y >= low) & (y <= high))
    assert 0.93 < inside < 0.995
    # With many rows the weights are known well, and the limits are near those of a Poisson distribution.
    assert_allclose(high, poisson.ppf(0.975, model.predict(X)), atol=2.0)
    draws = model.sample_y(X, 2000)
    assert_allclose(draws.mean(axis=1), model.predict(X), rtol=0.2)
    assert_allclose(np.quantile(draws, 0.975, axis=1), high, atol=2.0)


def test_counts_have_noise_of_their_own():
    model = SparseBayesRegressor(likelihood="poisson").fit(np.arange(40.0)[:, np.newaxis], np.arange(40))
    for method in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(ValueError, match="y_std must be None"):
            method([[1.0]], y_std=1.0)


def test_far_counts_do_not_overflow():
    X = np.linspace(0.0, 3.0, 40)[:, np.newaxis]
    model = SparseBayesRegressor(likelihood="poisson").fit(X, np.floor(np.exp(2.0 * X[:, 0])))
    for values in (*model.predict_interval([[400.0]]), model.sample_y([[400.0]])):
        assert not np.isnan(values).any()


def test_models_without_functions_have_draws_of_the_noise():
    X = np.linspace(0.0, 1.0, 50)[:, np.newaxis]
    model = RVR(gamma=0.5, noise_variance=4.0, fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="no functions"):
        model.fit(X, 0.1 * np.cos(37.0 * np.arange(50)))
    draws = model.sample_y(X, 1000)
    assert_allclose(draws.std(), 2.0, rtol=0.05)
    assert_allclose(model.predict_interval(X)[1], 2.0 * norm.ppf(0.975), rtol=1e-9)


def test_bad_arguments_are_named(rows):
    X, y = rows
    model = RVR(gamma=0.5).fit(X, y)
    for coverage in (0.0, 1.0, -1.0, 95):
        with pytest.raises(ValueError, match="coverage"):
            model.predict_interval(X, coverage)
    with pytest.raises(TypeError, match="coverage"):
        model.predict_interval(X, "most")
    with pytest.raises(ValueError, match="random_state"):
        model.sample_y(X, random_state="seed")
    with pytest.raises(ValueError, match="n_samples"):
        model.sample_y(X, 0)
    with pytest.raises(ValueError, match="y_std"):
        model.predict_interval(X, y_std=1.0)
    with pytest.raises(ValueError, match="y_std"):
        model.sample_y(X, y_std=1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "predict",
    [
        lambda model, X: model.predict(X),
        lambda model, X: model.predict(X, return_std=True),
        lambda model, X: model.predict(X, return_cov=True),
        lambda model, X: model.predict_interval(X),
        lambda model, X: model.sample_y(X, 3),
    ],
)
def test_predictions_that_overflow_are_refused(predict):
    columns = np.random.default_rng(0).normal(size=(30, 2))
    model = SparseBayesRegressor().fit(columns, columns @ [9.0, -9.0] + 0.1 * np.sin(np.arange(30.0)))
    with pytest.raises(ValueError, match="X holds rows so large that predictions overflow"):
        predict(model, np.array([[1e308, 0.0], [0.0, 1.0]]))
