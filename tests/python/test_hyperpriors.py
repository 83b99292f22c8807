"""Gamma priors over the precisions (Tipping 2001, section 2)."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from problems import PROBLEMS, assert_certified, columns, sinc_2d, two_classes
from reference import log_evidence
from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

SMALL = [name for name, problem in PROBLEMS.items() if len(problem.y) <= 100]
WAYS = [
    ("sequential", (0.3, 0.05)),
    ("sequential", (1e-4, 1e-4)),
    ("mackay", (0.0, 0.3)),
    ("em", (0.05, 0.3)),
]


@pytest.mark.parametrize(("scheme", "prior"), WAYS)
@pytest.mark.parametrize("name", SMALL)
def test_every_fit_with_priors_ends_at_a_certified_optimum(name, scheme, prior):
    problem = PROBLEMS[name]
    noise = {"noise_prior": (2.0, 0.5)} if problem.kind == "regression" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = problem.fitted(scheme=scheme, alpha_prior=prior, **noise)
    if model.status_ == "alpha_floor":
        # In the units of these weights the prior asks for a precision of next to nothing.
        assert name == "small-targets"
        return
    assert model.status_ in ("converged", "empty", "noise_floor")
    assert_certified(model, problem.X, problem.y, problem.sample_weight, model.status_)


def log_posterior(X, y, ln_alpha, ln_beta, alpha_prior, noise_prior):
    """Return the log evidence plus the log densities of ln alpha and ln beta (Tipping 2001, appendix A)."""
    (a, b), (c, d) = alpha_prior, noise_prior
    alpha, beta = np.exp(ln_alpha), np.exp(ln_beta)
    prior = np.sum(a * ln_alpha - b * alpha) + c * ln_beta - d * beta
    return log_evidence(X, y, alpha, beta) + prior


def test_the_maximum_is_that_of_the_log_posterior():
    X, y = columns(50, 5, n_relevant=5, noise=0.5)
    priors = {"alpha_prior": (0.5, 0.2), "noise_prior": (3.0, 0.7)}
    model = SparseBayesRegressor(fit_intercept=False, **priors).fit(X, y)
    assert len(model.active_) == 5
    found = minimize(
        lambda theta: -log_posterior(X, y, theta[:-1], theta[-1], **priors), np.zeros(6), tol=1e-12
    )
    np.testing.assert_allclose(np.log(model.alpha_), found.x[:-1], atol=1e-4)
    np.testing.assert_allclose(np.log(model.beta_), found.x[-1], atol=1e-4)
    a, b = priors["alpha_prior"]
    # The path counts each alpha's density from its peak.
    expected = -found.fun - 5 * (a * np.log(a / b) - a)
    np.testing.assert_allclose(model.log_marginal_likelihood_path_[-1], expected, rtol=1e-8)


def test_the_path_of_the_log_posterior_rises_and_differs_from_the_evidence():
    X, y = sinc_2d(120)
    model = RVR(Gaussian(2.5), alpha_prior=(0.1, 0.1), noise_prior=(1.0, 0.01)).fit(X, y)
    assert np.diff(model.log_marginal_likelihood_path_).min() >= -1e-8
    inside = certificate(model, X, y).log_marginal_likelihood
    np.testing.assert_allclose(model.log_marginal_likelihood_, inside, rtol=1e-8)
    assert model.log_marginal_likelihood_ != model.log_marginal_likelihood_path_[-1]


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
@pytest.mark.parametrize("estimator", [RVR, RVC])
def test_flat_priors_are_the_limit(estimator):
    X, y = sinc_2d(100) if estimator is RVR else two_classes(100)
    flat, nearly = (
        estimator(Gaussian(2.0), alpha_prior=prior, complexity="none").fit(X, y)
        for prior in [(0.0, 0.0), (1e-12, 1e-12)]
    )
    np.testing.assert_array_equal(flat.active_, nearly.active_)
    np.testing.assert_allclose(flat.alpha_, nearly.alpha_, rtol=1e-5)


def test_units_of_the_prior_are_those_of_the_weights():
    # alpha has the unit of 1 / weight^2, beta that of 1 / y^2.
    X, y = columns(60, 8, n_relevant=3)

    def fit(X, y, alpha_rate, noise_rate):
        priors = {"alpha_prior": (0.5, alpha_rate), "noise_prior": (2.0, noise_rate)}
        return SparseBayesRegressor(fit_intercept=False, **priors).fit(X, y)

    one, c = fit(X, y, 0.2, 0.1), 1000.0
    y_scaled, X_scaled = fit(X, c * y, 0.2 * c**2, 0.1 * c**2), fit(c * X, y, 0.2 / c**2, 0.1)
    for other, factor in [(y_scaled, c), (X_scaled, 1.0 / c)]:
        np.testing.assert_array_equal(one.active_, other.active_)
        np.testing.assert_allclose(factor * one.mu_, other.mu_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_a_strong_noise_prior_wins():
    X, y = sinc_2d(100)
    # beta near c / d, whatever the data say.
    model = RVR(Gaussian(2.5), noise_prior=(1e6, 1e6)).fit(X, y)
    np.testing.assert_allclose(model.beta_, 1.0, rtol=1e-3)


@pytest.mark.parametrize("name", ["alpha_prior", "noise_prior"])
@pytest.mark.parametrize(
    ("prior", "error"),
    [
        (1e-6, TypeError),
        ((1e-6,), TypeError),
        (("a", 0.0), TypeError),
        ((-1.0, 1.0), ValueError),
        ((0.0, np.nan), ValueError),
        ((np.inf, 1.0), ValueError),
    ],
)
def test_bad_priors_are_refused(name, prior, error):
    with pytest.raises(error, match=f"{name} must be a pair"):
        RVR(**{name: prior}).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])


@pytest.mark.parametrize("estimator", [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier])
def test_priors_without_a_finite_optimum_or_meaning_are_refused(estimator):
    X, y = [[0.0], [1.0], [2.0]], [0, 1, 0]
    with pytest.raises(ValueError, match="alpha_prior must have a positive rate"):
        estimator(alpha_prior=(1.0, 0.0)).fit(X, y)
    with pytest.raises(ValueError, match="noise_prior must be"):
        SparseBayesRegressor(likelihood="poisson", noise_prior=(1.0, 1.0)).fit(X, y)
