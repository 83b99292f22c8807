"""Noise whose variance depends on the inputs: ``noise_basis``."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import PolynomialFeatures

from problems import assert_certified
from sparsebayes import RVR, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.model_selection import density_score

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-3.0, 3.0, (300, 2)), RNG.uniform(-3.0, 3.0, (4000, 2))


def mean(rows):
    return np.sin(1.5 * rows[:, 0]) + 0.5 * rows[:, 1]


def std(rows):
    return np.exp(-1.5 + 0.6 * rows[:, 0])


def draw(rows):
    return mean(rows) + std(rows) * RNG.normal(size=len(rows))


Y, Y_NEW = draw(X), draw(NEW)
COUNTS = RNG.integers(0, 3, len(X))
#: Columns whose sum is the mean.
COLUMNS = np.column_stack([np.sin(1.5 * X[:, 0]), X, X**2])


@pytest.fixture(scope="module")
def learned():
    return RVR(noise_basis="linear").fit(X, Y)


def test_the_noise_is_found_and_intervals_cover_where_it_is_small_and_large(learned):
    assert_allclose(learned.noise_model_.coef_, [1.2, 0.0], atol=0.2)
    _, found = learned.predict(NEW, return_std=True)
    assert_allclose(np.log(found), np.log(std(NEW)), atol=0.45)
    low, high = learned.predict_interval(NEW)
    covered, quiet = (low <= Y_NEW) & (Y_NEW <= high), std(NEW) < np.median(std(NEW))
    assert 0.91 < covered[quiet].mean() < 0.98
    assert 0.91 < covered[~quiet].mean() < 0.98
    assert 0.9 < learned.loo_coverage_ < 0.98
    plain = RVR().fit(X, Y)
    assert density_score(learned, NEW, Y_NEW) > density_score(plain, NEW, Y_NEW) + 0.5
    assert "depends on 1 column of noise_basis" in str(learned.summary())


@pytest.mark.parametrize("weights", [None, COUNTS], ids=["rows", "weights"])
@pytest.mark.parametrize("kind", ["ard", 0.1, "columns", "groups"])
def test_both_models_are_certified(kind, weights):
    if kind in ("columns", "groups"):
        rows, groups = COLUMNS, [0, 1, 1, 2, 2] if kind == "groups" else None
        model = SparseBayesRegressor(groups=groups, noise_basis=lambda C: C[:, 1:3])
    else:
        rows, model = X, RVR(gamma=kind, noise_basis="linear")
    model.fit(rows, Y, weights)
    found = assert_certified(model, rows, Y, weights)
    assert found.parameter_residual < 1e-4


def test_the_end_is_a_fixed_point():
    model = SparseBayesRegressor(noise_basis=lambda C: C[:, 1:3]).fit(COLUMNS, Y)
    _, stds = model.predict(COLUMNS, return_std=True)
    active = model.active_[model.active_ >= 0]
    Phi = np.column_stack([np.ones(len(Y)), (COLUMNS - model.X_offset_)[:, active]])
    v = np.sum((Phi @ model.sigma_) * Phi, axis=1)
    noise = stds**2 - v
    same = SparseBayesRegressor().fit(COLUMNS, Y, y_std=np.sqrt(noise))
    assert_allclose(same.coef_, model.coef_, atol=1e-5)
    assert_allclose(same.noise_variance_, 1.0, atol=0.1)
    # The Gamma likelihood of dispersion 2 has no slope in the weights that the noise model keeps.
    e = (Y - model.predict(COLUMNS)) ** 2 + v
    inputs = COLUMNS[:, 1:3] - COLUMNS[:, 1:3].mean(axis=0)
    kept = model.noise_model_.active_[model.noise_model_.active_ >= 0]
    scaled = e / np.exp(model.noise_model_._linear_predictor(COLUMNS[:, 1:3])[:, 0]) / e.mean()
    slope = 0.5 * inputs[:, kept].T @ (scaled - 1.0)
    alphas = model.noise_model_.alpha_[model.noise_model_.active_ >= 0]
    assert_allclose(slope, alphas * model.noise_model_.coef_[kept], atol=1e-3)


@pytest.mark.parametrize("quiet", [0.3, 0.1, 0.03])
def test_two_instruments_are_told_apart(quiet):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, (200, 1))
    y = x[:, 0] + np.where(x[:, 0] < 0.0, quiet, 1.0) * rng.normal(size=200)
    model = SparseBayesRegressor(noise_basis=lambda rows: (rows < 0.0) * 1.0).fit(x, y)
    assert_allclose(model.noise_model_.coef_, 2.0 * np.log(quiet), atol=0.6)
    assert assert_certified(model, x, y).parameter_residual < 1e-4


def test_extrapolated_noise_stays_in_range():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, (300, 1))
    y = x[:, 0] + np.exp(x[:, 0]) * rng.normal(size=300)
    x[3], y[3] = 1000.0, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SparseBayesRegressor(noise_basis="linear").fit(x, y)
    assert np.isfinite(model.predict(1e6 * x, return_std=True)).all()


@pytest.mark.parametrize("gamma", ["ard", 0.1])
def test_equal_noise_gives_the_model_without_a_noise_basis(gamma):
    rng = np.random.default_rng(4)
    y = mean(X) + 0.2 * rng.normal(size=len(X))
    model, plain = (RVR(gamma=gamma, noise_basis=basis).fit(X, y) for basis in ("linear", None))
    assert len(model.noise_model_.active_) == 1
    assert_allclose(model.predict(NEW, return_std=True), plain.predict(NEW, return_std=True), rtol=1e-3)
    assert_allclose(model.log_marginal_likelihood_, plain.log_marginal_likelihood_, rtol=1e-5)


def test_few_functions_remain_few():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = np.sin(X[:, 0]) + 0.3 * np.exp(0.5 * X[:, 1]) * rng.normal(size=300)
    for basis in (None, "linear"):
        assert not hasattr(RVR(noise_basis=basis).fit(X, y), "process_variance_")


def test_a_process_in_reserve_remains():
    rng = np.random.default_rng(54)
    rows = rng.normal(size=(600, 3))
    y = np.sin(2.0 * rows[:, 0]) + rows[:, 1] * rows[:, 2] + 0.1 * rng.normal(size=600)
    models = [RVR(noise_basis=basis).fit(rows[:300], y[:300]) for basis in (None, "linear")]
    plain, other = (hasattr(model, "process_variance_") for model in models)
    assert plain == other
    assert models[1].score(rows[300:], y[300:]) > 0.7


def test_whole_weights_count_rows():
    settings = {"gamma": 0.1, "candidates": X[:20], "noise_basis": "linear"}
    twice = RVR(**settings).fit(X, Y, np.full(len(X), 2.0))
    repeated = RVR(**settings).fit(np.r_[X, X], np.r_[Y, Y])
    assert_allclose(twice.predict(NEW), repeated.predict(NEW), rtol=1e-4, atol=1e-6)
    assert_allclose(twice.noise_model_.coef_, repeated.noise_model_.coef_, rtol=1e-4)
    assert_allclose(twice.noise_variance_, repeated.noise_variance_, rtol=1e-4)


def test_draws_covariances_and_scores_have_the_noise_of_their_rows(learned):
    _, stds = learned.predict(NEW[:50], return_std=True)
    _, covariance = learned.predict(NEW[:50], return_cov=True)
    assert_allclose(np.sqrt(np.diag(covariance)), stds, rtol=1e-6)
    draws = learned.sample_y(NEW[:50], 4000)
    assert_allclose(draws.std(axis=1), stds, rtol=0.1)
    given = learned.predict(NEW[:50], return_std=True, y_std=1.0)[1]
    assert_allclose(np.median(given**2), learned.noise_variance_, rtol=0.5)
    again = pickle.loads(pickle.dumps(learned))
    assert_array_equal(again.predict(NEW, return_std=True), learned.predict(NEW, return_std=True))


def test_units_do_not_matter(learned):
    scaled = RVR(noise_basis="linear").fit(X, 1e6 * Y)
    assert_allclose(scaled.predict(NEW), 1e6 * learned.predict(NEW), rtol=1e-3, atol=1e3)
    assert_allclose(scaled.noise_model_.coef_, learned.noise_model_.coef_, atol=1e-3)


def test_a_transformer_is_fitted_and_a_second_fit_forgets_it():
    model = clone(RVR(gamma=0.1, noise_basis=PolynomialFeatures(2, include_bias=False))).fit(X, Y)
    assert model.noise_basis_ is not model.noise_basis
    assert model.noise_basis_.transform(X[:2]).shape == (2, 5)
    model.set_params(noise_basis=None).fit(X, Y)
    assert not hasattr(model, "noise_model_")
    assert_certified(model, X, Y)


def test_targets_without_noise():
    with pytest.warns(ConvergenceWarning, match="y seems to be free of noise"):
        model = SparseBayesRegressor(noise_basis="linear").fit(COLUMNS, COLUMNS[:, 0] + COLUMNS[:, 1])
    assert model.noise_variance_ < 1e-5
    assert_allclose(model.coef_, [1.0, 1.0, 0.0, 0.0, 0.0], atol=1e-3)


def test_constant_targets():
    with pytest.warns(ConvergenceWarning, match="y is constant"):
        model = RVR(noise_basis="linear").fit(X, np.ones(len(X)))
    assert_allclose(model.predict(NEW), 1.0)


def test_a_callback_stops_the_fit():
    steps = []

    def stop(step):
        steps.append(step)
        return len(steps) > 3

    model = RVR(gamma=0.1, noise_basis="linear", callback=stop).fit(X, Y)
    assert model.status_ == "stopped"
    assert certificate(model, X, Y).log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_)
    assert np.isfinite(model.predict(NEW, return_std=True)).all()


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"likelihood": "student_t"}, {}, "noise_basis needs likelihood='gaussian'"),
        ({"noise_variance": 1.0}, {}, "noise_variance, y_std and exposure must be None"),
        ({}, {"y_std": 1.0}, "noise_variance, y_std and exposure must be None"),
        ({"noise_basis": "cubic"}, {}, "noise_basis must be"),
        ({"noise_basis": lambda rows: rows * np.nan}, {}, "noise_basis contains NaN"),
    ],
)
def test_what_does_not_go_with_a_noise_basis_is_refused(settings, given, message):
    with pytest.raises(ValueError, match=message):
        RVR(**{"noise_basis": "linear", "gamma": 0.1} | settings).fit(X, Y, **given)


def test_what_needs_one_noise_for_all_rows_is_refused(learned):
    with pytest.raises(ValueError, match=r"cannot be exported.*use pickle or joblib.*noise_basis=None"):
        learned.to_predictor()
    model = SparseBayesRegressor(noise_basis="linear")
    with pytest.raises(ValueError, match="noise_basis must be None"):
        model.fit([(X, Y)])
    with pytest.raises(ValueError, match="one column"):
        model.fit(X, np.column_stack([Y, Y]))
    assert not hasattr(model, "partial_fit")
