"""The intercept with a flat prior (``penalize_intercept=False``)."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from problems import PAPERS, assert_same_bits
from sparsebayes import (
    RVC,
    RVR,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
    inspection,
)


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 5.0 + 0.2 * rng.normal(size=80)


def contrasts_log_density(model, Phi, y):
    """Log density of the contrasts of y orthogonal to a constant, from the dense covariance."""
    C = np.eye(len(y)) / model.beta_ + (Phi / model.alpha_[model.alpha_ > 0.0]) @ Phi.T
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), np.eye(len(y))[:, 1:]]))[0][:, 1:]
    return multivariate_normal(cov=basis.T @ C @ basis).logpdf(basis.T @ y)


def certify(model, X, y):
    found = inspection.certificate(model, X, y)
    assert model.active_[0] == -1
    assert model.alpha_[0].max() == 0.0
    assert found.max_log_alpha_change < 1e-5
    assert found.max_gain_outside < 1e-6
    assert found.log_beta_residual < 1e-5
    assert found.max_mean_error < 1e-6
    assert_allclose(found.log_marginal_likelihood, model.log_marginal_likelihood_, rtol=1e-9)


def test_the_evidence_is_the_density_of_the_contrasts(rows):
    X, y = rows
    model = RVR(gamma=0.5, penalize_intercept=False).fit(X, y)
    assert model.active_[0] == -1
    assert model.alpha_[0] == 0.0
    Phi = model.kernel_(X, model.relevance_vectors_)
    assert_allclose(model.log_marginal_likelihood_, contrasts_log_density(model, Phi, y), rtol=1e-9)


@pytest.mark.parametrize("scheme", ["sequential", "mackay", "em"])
def test_fits_are_certified(rows, scheme):
    X, y = rows
    model = RVR(gamma=0.5, penalize_intercept=False, scheme=scheme).fit(X, y)
    assert model.status_ == "converged"
    certify(model, X, y)


def test_an_exchange_search_keeps_the_intercept(rows):
    X, y = rows
    greedy = RVR(gamma=2.0, penalize_intercept=False).fit(X, y)
    model = RVR(gamma=2.0, penalize_intercept=False, search="exchange").fit(X, y)
    assert model.active_[0] == -1
    assert model.log_marginal_likelihood_ >= greedy.log_marginal_likelihood_ - 1e-9
    assert inspection.certificate(model, X, y).max_gain_exchange < 1e-3


def test_adding_a_constant_to_y_changes_the_intercept_only(rows):
    X, y = rows
    model = RVR(gamma=0.5, penalize_intercept=False).fit(X, y)
    for constant in (-7.0, 1e9):
        moved = RVR(gamma=0.5, penalize_intercept=False).fit(X, y + constant)
        assert_allclose(moved.relevance_, model.relevance_)
        assert_allclose(moved.dual_coef_, model.dual_coef_, rtol=1e-4, atol=1e-6)
        assert_allclose(
            moved.predict(X) - constant, model.predict(X), atol=1e-6 * (1.0 + 1e-9 * abs(constant))
        )


def test_several_outputs_are_certified(rows):
    X, y = rows
    Y = np.column_stack([y, 3.0 - 2.0 * np.cos(X[:, 0])])
    for shared in (True, False):
        certify(RVR(gamma=0.5, penalize_intercept=False, shared_noise=shared).fit(X, Y), X, Y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifications_are_certified(rows, n_classes):
    X, y = rows
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    certify(RVC(gamma=0.5, penalize_intercept=False).fit(X, labels), X, labels)


def test_counts_and_columns_are_certified(rows):
    X, y = rows
    counts = np.random.default_rng(0).poisson(np.exp(0.5 * X[:, 0] + 1.0))
    columns = np.column_stack([X, X**2, X**3])
    for model, target in (
        (SparseBayesRegressor(likelihood="poisson", penalize_intercept=False), counts),
        (SparseBayesRegressor(penalize_intercept=False), y),
        (SparseBayesClassifier(penalize_intercept=False), counts > 2),
    ):
        certify(model.fit(columns, target), columns, target)


def test_a_wide_kernel_is_not_empty():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    y = (y - y.mean()) / y.std()
    flat = RVR(gamma=0.0016, complexity="none").fit(X, y)
    assert len(flat.relevance_) > 5
    assert flat.score(X, y) > 0.5
    with pytest.warns(ConvergenceWarning, match="empty"):
        RVR(gamma=0.0016, **PAPERS).fit(X, y)


def test_served_models_agree(rows):
    X, y = rows
    model = RVR(gamma=0.5, penalize_intercept=False).fit(X, y)
    served = model.to_predictor()
    mean, std = model.predict(X, return_std=True)
    assert_allclose(served.predict(X), mean, rtol=1e-12)
    assert_allclose(served.predict_std(X)[1], std, rtol=1e-10)


def test_many_rows_start_from_low_rank_features():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 30.0 + 0.1 * rng.normal(size=2500)
    certify(RVR(gamma=0.5, penalize_intercept=False).fit(X, y), X, y)


@pytest.mark.parametrize("classify", [False, True])
def test_fits_in_blocks_are_certified(rows, classify, monkeypatch):
    monkeypatch.setattr("sparsebayes._data.design._MAX_UNBLOCKED", 20)
    X, y = rows
    if classify:
        certify(RVC(gamma=0.5, penalize_intercept=False).fit(X, y > 5.0), X, y > 5.0)
    else:
        certify(RVR(gamma=0.5, penalize_intercept=False).fit(X, y), X, y)


def test_sums_over_rows_give_the_same_model(rows):
    X, y = rows
    model = SparseBayesRegressor(penalize_intercept=False)
    columns = np.column_stack([X, X**2, np.sin(2.0 * X)])
    expected = model.fit(columns, y).coef_
    chunks = [(columns[:30], y[:30]), (columns[30:], y[30:])]
    stats = SufficientStatistics(columns.shape[1]).update(columns, y)
    for found in (clone(model).fit(chunks), clone(model).fit_statistics(stats)):
        assert found.alpha_[0] == 0.0
        assert_allclose(found.coef_, expected, rtol=1e-6, atol=1e-9)
        assert_allclose(found.predict(columns), model.predict(columns), atol=1e-7)


def test_weights_count_rows(rows):
    X, y = rows
    twice = RVR(gamma=0.5, penalize_intercept=False).fit(X, y, sample_weight=np.full(80, 2.0))
    certify_with = inspection.certificate(twice, X, y, np.full(80, 2.0))
    assert certify_with.max_log_alpha_change < 1e-5
    doubled = RVR(gamma=0.5, penalize_intercept=False, candidates=X).fit(np.vstack([X, X]), np.append(y, y))
    assert_allclose(doubled.predict(X), twice.predict(X), atol=1e-5)
    assert_allclose(doubled.log_marginal_likelihood_, twice.log_marginal_likelihood_, rtol=1e-8)


@pytest.mark.parametrize("y", [np.full(30, 4.0), np.zeros(30)])
def test_constant_targets_are_predicted(y):
    X = np.linspace(0.0, 1.0, 30)[:, np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RVR(penalize_intercept=False, gamma="scale").fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-12)


def test_zero_counts_are_predicted():
    X = np.linspace(0.0, 1.0, 30)[:, np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseBayesRegressor(likelihood="poisson", penalize_intercept=False).fit(X, np.zeros(30))
    assert (model.predict(X) < 1e-6).all()


def test_bad_arguments_are_named(rows):
    X, y = rows
    with pytest.raises(TypeError, match="penalize_intercept must be True or False"):
        RVR(penalize_intercept="no", gamma="scale").fit(X, y)


def test_the_variational_scheme_has_no_flat_prior(rows):
    flat, proper = (
        RVR(gamma=0.5, penalize_intercept=each, scheme="variational").fit(*rows) for each in (False, True)
    )
    assert_same_bits(flat, proper)
    assert proper.alpha_.min() > 0.0


def test_a_softmax_of_a_wide_kernel_is_not_empty():
    X, y = load_digits(return_X_y=True)
    X = X[:500] / 16.0
    model = RVC(gamma=1e-3, multi_class="softmax").fit(X, y[:500])
    assert model.score(X, y[:500]) > 0.98


@pytest.mark.parametrize("scheme", ["sequential", "mackay", "em"])
def test_priors_of_precisions_leave_the_intercept_alone(rows, scheme):
    X, y = rows
    model = RVR(
        gamma=0.5, penalize_intercept=False, complexity="none", scheme=scheme, alpha_prior=(0.05, 0.3)
    )
    certify(model.fit(X, y), X, y)
