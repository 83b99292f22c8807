"""The reference itself: held against brute force, other libraries, and finite differences."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import pairwise

from reference import (
    best_alpha,
    contribution,
    covariance,
    fit_laplace,
    fit_regression,
    gaussian,
    kernel_matrix,
    laplace_log_evidence,
    laplace_mode,
    laplace_statistics,
    laplacian,
    linear,
    linear_spline,
    log_evidence,
    log_likelihood,
    moderated_probability,
    noise_precision,
    polynomial,
    posterior,
    predict,
    sigmoid,
    slope_and_curvature,
    statistics,
)

ACTIVE = np.array([1, 4, 5])
ALPHA = np.array([0.3, 2.0, 40.0])
BETA = 3.0


@pytest.fixture
def dictionary():
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(30, 8))
    return Phi, Phi[:, [1, 4]] @ [1.0, -0.5] + rng.normal(size=30) / np.sqrt(BETA)


@pytest.fixture
def whole_weights():
    return np.random.default_rng(1).integers(1, 4, 30).astype(float)


def targets(likelihood, eta, seed=2):
    rng = np.random.default_rng(seed)
    if likelihood == "bernoulli":
        return (rng.uniform(size=len(eta)) < expit(eta)).astype(float)
    return rng.poisson(np.exp(eta)).astype(float)


def gradient(function, x, h=1e-5):
    steps = h * np.eye(len(x))
    return np.array([(function(x + step) - function(x - step)) / (2 * h) for step in steps])


# --- Gaussian likelihood --------------------------------------------------------------------------


def test_evidence_is_the_density_of_the_targets(dictionary):
    Phi, t = dictionary
    terms = [np.outer(Phi[:, j], Phi[:, j]) / a for j, a in zip(ACTIVE, ALPHA, strict=True)]
    expected = multivariate_normal(np.zeros(30), np.eye(30) / BETA + sum(terms)).logpdf(t)
    np.testing.assert_allclose(log_evidence(Phi[:, ACTIVE], t, ALPHA, BETA), expected, rtol=1e-12)


def test_evidence_from_statistics_agrees(dictionary, whole_weights):
    """The form without C: what is known of the rows is their weighted Gram matrix and projections."""
    Phi, t = dictionary
    for w in [np.ones(30), whole_weights, whole_weights / 3]:
        inside = Phi[:, ACTIVE]
        mu, Sigma = posterior(inside, t, ALPHA, BETA, w)
        energy = BETA * (t @ (w * t) - (inside.T @ (w * t)) @ mu)
        constants = w.sum() * np.log(BETA / (2 * np.pi)) + np.log(ALPHA).sum() + np.linalg.slogdet(Sigma)[1]
        np.testing.assert_allclose(
            log_evidence(inside, t, ALPHA, BETA, w), 0.5 * (constants - energy), rtol=1e-10
        )


def test_left_out_factors_are_those_of_the_model_without_the_function(dictionary):
    Phi, t = dictionary
    s, q, _, _ = statistics(Phi, t, ACTIVE, ALPHA, BETA)
    for i in range(8):
        rest = ACTIVE != i
        C = covariance(Phi[:, ACTIVE[rest]], ALPHA[rest], BETA)
        np.testing.assert_allclose(s[i], Phi[:, i] @ np.linalg.solve(C, Phi[:, i]), rtol=1e-9)
        np.testing.assert_allclose(q[i], Phi[:, i] @ np.linalg.solve(C, t), rtol=1e-9)


def test_contributions_are_differences_of_evidence(dictionary):
    Phi, t = dictionary
    s, q, _, _ = statistics(Phi, t, ACTIVE, ALPHA, BETA)
    before = log_evidence(Phi[:, ACTIVE], t, ALPHA, BETA)
    added = log_evidence(Phi[:, [*ACTIVE, 7]], t, np.append(ALPHA, 5.0), BETA)
    np.testing.assert_allclose(added - before, contribution(5.0, s[7], q[7]), rtol=1e-8)
    changed = log_evidence(Phi[:, ACTIVE], t, [0.3, 7.0, 40.0], BETA)
    expected = contribution(7.0, s[4], q[4]) - contribution(2.0, s[4], q[4])
    np.testing.assert_allclose(changed - before, expected, rtol=1e-8)
    deleted = log_evidence(Phi[:, ACTIVE[1:]], t, ALPHA[1:], BETA)
    np.testing.assert_allclose(deleted - before, -contribution(0.3, s[1], q[1]), rtol=1e-8)
    assert contribution(np.inf, s[7], q[7]) == 0.0


@pytest.mark.parametrize(("s", "q"), [(2.0, 3.0), (0.5, 0.8), (30.0, 5.6)])
def test_best_alpha_is_the_maximum(s, q):
    best = best_alpha(np.array([s]), np.array([q]))[0]
    others = best * np.exp(np.linspace(-3, 3, 201))
    assert contribution(best, s, q) == contribution(others, s, q).max() > 0.0
    assert best_alpha(np.array([s]), np.array([0.99 * np.sqrt(s)]))[0] == np.inf


def test_noise_fixed_point_is_stationary(dictionary, whole_weights):
    Phi, t = dictionary
    inside, beta = Phi[:, ACTIVE], BETA
    for _ in range(200):
        beta = noise_precision(inside, t, ALPHA, beta, whole_weights)
    slope = gradient(lambda x: log_evidence(inside, t, ALPHA, np.exp(x[0]), whole_weights), np.log([beta]))
    np.testing.assert_allclose(slope, 0.0, atol=1e-7)


def test_whole_weights_count_rows(dictionary, whole_weights):
    Phi, t = dictionary

    def numbers(Phi, t, weights=None):
        at = (Phi[:, ACTIVE], t, ALPHA, BETA, weights)
        all_functions = statistics(Phi, t, ACTIVE, ALPHA, BETA, weights)
        return [log_evidence(*at), noise_precision(*at), *posterior(*at), *all_functions]

    repeated = numbers(*(np.repeat(a, whole_weights.astype(int), axis=0) for a in (Phi, t)))
    for given, expected in zip(numbers(Phi, t, whole_weights), repeated, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-9)


def test_predictions_are_those_of_the_gaussian_process(dictionary):
    """The weights integrated out by hand: condition the joint Gaussian of old and new targets."""
    Phi, t = dictionary
    new = np.random.default_rng(3).normal(size=(5, 3))
    mean, variance = predict(new, *posterior(Phi[:, ACTIVE], t, ALPHA, BETA), BETA)
    cross = new / ALPHA @ Phi[:, ACTIVE].T
    C = covariance(Phi[:, ACTIVE], ALPHA, BETA)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(C, t), rtol=1e-9)
    prior = 1 / BETA + np.sum(new**2 / ALPHA, axis=1)
    explained = np.sum(cross * np.linalg.solve(C, cross.T).T, axis=1)
    np.testing.assert_allclose(variance, prior - explained, rtol=1e-9)


def test_regression_ends_at_a_stationary_point_with_nothing_to_add(dictionary):
    Phi, t = dictionary
    fit = fit_regression(Phi, t, tol=1e-9)
    assert fit.converged

    def evidence(x):
        return log_evidence(Phi[:, fit.active], t, np.exp(x[:-1]), np.exp(x[-1]))

    x = np.log([*fit.alpha, fit.beta])
    np.testing.assert_allclose(evidence(x), fit.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(gradient(evidence, x), 0.0, atol=1e-6)
    s, q, _, _ = statistics(Phi, t, fit.active, fit.alpha, fit.beta)
    outside = np.setdiff1d(np.arange(8), fit.active)
    assert len(outside) > 0
    assert (q[outside] ** 2 <= s[outside]).all()


# --- likelihoods with a mode ----------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_slope_and_curvature_are_derivatives(likelihood):
    eta = np.linspace(-3, 3, 9)
    t, w = targets(likelihood, eta), np.linspace(0.5, 2.0, 9)
    slope, B = slope_and_curvature(likelihood, eta, t, w)
    np.testing.assert_allclose(gradient(lambda e: log_likelihood(likelihood, e, t, w), eta), slope, atol=1e-8)
    up, down = (slope_and_curvature(likelihood, eta + h, t, w)[0] for h in (1e-5, -1e-5))
    np.testing.assert_allclose((down - up) / 2e-5, B, atol=1e-8)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_the_mode_is_a_maximum_with_the_curvature_claimed(dictionary, whole_weights, likelihood):
    Phi = dictionary[0][:, ACTIVE]
    t = targets(likelihood, Phi @ [1.0, -0.5, 0.2])

    def log_posterior(mu):
        return log_likelihood(likelihood, Phi @ mu, t, whole_weights) - 0.5 * np.sum(ALPHA * mu**2)

    mu, Sigma = laplace_mode(Phi, t, ALPHA, likelihood, whole_weights)
    np.testing.assert_allclose(gradient(log_posterior, mu), 0.0, atol=1e-6)
    hessian = gradient(lambda x: gradient(log_posterior, x, 1e-4), mu, 1e-4)
    np.testing.assert_allclose(-hessian, np.linalg.inv(Sigma), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 1e-8])
def test_the_mode_is_found_where_the_classes_are_separable(alpha):
    x = np.array([-2.0, -1.0, 1.0, 3.0])
    Phi = np.column_stack([np.ones(4), x])
    mu, Sigma = laplace_mode(Phi, (x > 0) * 1.0, np.full(2, alpha))
    slope, _ = slope_and_curvature("bernoulli", Phi @ mu, (x > 0) * 1.0, np.ones(4))
    np.testing.assert_allclose(Phi.T @ slope, alpha * mu, rtol=1e-6, atol=1e-12)
    assert np.isfinite(Sigma).all()


@pytest.mark.parametrize(("likelihood", "rtol"), [("bernoulli", 1e-3), ("poisson", 1e-4)])
def test_laplace_evidence_is_near_the_integral(likelihood, rtol):
    rng = np.random.default_rng(4)
    Phi, alpha = rng.normal(size=(60, 1)), np.array([0.7])
    t, w = targets(likelihood, 1.5 * Phi[:, 0]), rng.uniform(0.5, 2.0, 60)
    approximate = laplace_log_evidence(Phi, t, alpha, likelihood, w)

    def integrand(weight):
        fit = log_likelihood(likelihood, Phi[:, 0] * weight, t, w)
        return np.exp(fit + norm.logpdf(weight, scale=alpha[0] ** -0.5) - approximate)

    np.testing.assert_allclose(approximate + np.log(quad(integrand, -1, 5)[0]), approximate, rtol=rtol)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_statistics_are_those_of_the_linearised_regression(dictionary, whole_weights, likelihood):
    """Working responses and noise precisions per row, put through the formulas of regression."""
    Phi = dictionary[0]
    t = targets(likelihood, Phi[:, ACTIVE] @ [1.0, -0.5, 0.2])
    mu, _ = laplace_mode(Phi[:, ACTIVE], t, ALPHA, likelihood, whole_weights)
    slope, B = slope_and_curvature(likelihood, Phi[:, ACTIVE] @ mu, t, whole_weights)
    expected = statistics(Phi, Phi[:, ACTIVE] @ mu + slope / B, ACTIVE, ALPHA, 1.0, B)
    found = laplace_statistics(Phi, t, ACTIVE, ALPHA, likelihood, whole_weights)
    for given, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_whole_weights_count_rows_in_the_laplace_approximation(dictionary, whole_weights, likelihood):
    Phi = dictionary[0]
    t = targets(likelihood, Phi[:, ACTIVE] @ [1.0, -0.5, 0.2])

    def numbers(Phi, t, weights=None):
        evidence = laplace_log_evidence(Phi[:, ACTIVE], t, ALPHA, likelihood, weights)
        return [evidence, *laplace_statistics(Phi, t, ACTIVE, ALPHA, likelihood, weights)]

    repeated = numbers(*(np.repeat(a, whole_weights.astype(int), axis=0) for a in (Phi, t)))
    for given, expected in zip(numbers(Phi, t, whole_weights), repeated, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-8)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_fits_end_at_the_classic_fixed_point(likelihood):
    Phi = np.random.default_rng(5).normal(size=(80, 10))
    t = targets(likelihood, Phi[:, [0, 3]] @ [1.2, -0.8])
    found = fit_laplace(Phi, t, likelihood)
    assert found.converged
    s, q, S, _ = laplace_statistics(Phi, t, found.active, found.alpha, likelihood)
    np.testing.assert_allclose(best_alpha(s, q)[found.active], found.alpha, rtol=1e-5)
    outside = np.setdiff1d(np.arange(10), found.active)
    assert len(outside) > 0
    assert (q[outside] ** 2 <= s[outside]).all()
    # MacKay's form of the same condition: gamma = alpha mu^2.
    np.testing.assert_allclose(S[found.active] / found.alpha, found.alpha * found.mu**2, rtol=1e-5)


def test_moderated_probability_is_near_the_mean_of_the_sigmoid():
    for mean, variance in [(0.5, 0.2), (-2.0, 3.0), (4.0, 10.0)]:
        expected = quad(lambda x, m=mean, v=variance: expit(x) * norm.pdf(x, m, np.sqrt(v)), -30, 30)[0]
        given = moderated_probability(np.ones((1, 1)), np.array([mean]), np.array([[variance]]))
        np.testing.assert_allclose(given, expected, atol=0.02)


# --- kernels --------------------------------------------------------------------------------------


def test_kernels_are_those_of_scikit_learn():
    rng = np.random.default_rng(6)
    X, Z = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    for ours, theirs in [
        (kernel_matrix(lambda x, z: gaussian(x, z, 2.5), X, Z), pairwise.rbf_kernel(X, Z, 1 / 2.5**2)),
        (kernel_matrix(lambda x, z: laplacian(x, z, 0.7), X, Z), pairwise.laplacian_kernel(X, Z, 0.7)),
        (kernel_matrix(linear, X, Z), pairwise.linear_kernel(X, Z)),
        (kernel_matrix(lambda x, z: sigmoid(x, z, 0.5, 0.2), X, Z), pairwise.sigmoid_kernel(X, Z, 0.5, 0.2)),
    ]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    cubic = kernel_matrix(lambda x, z: polynomial(x, z, 3, 0.5, 1.5), X, Z)
    np.testing.assert_allclose(cubic, pairwise.polynomial_kernel(X, Z, 3, 0.5, 1.5), rtol=1e-12)
    widths = np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(gaussian(X[0], Z[0], widths), gaussian(X[0] / widths, Z[0] / widths, 1.0))


def test_linear_spline_is_the_integral_that_defines_it():
    """For positive inputs: 1 + x z + the integral over all knots u of (x - u)+ (z - u)+."""

    def integral(x, z):
        return 1 + x * z + quad(lambda u: (x - u) * (z - u), 0, min(x, z))[0]

    for x, z in [(0.5, 2.0), (3.0, 1.0), (2.0, 2.0)]:
        np.testing.assert_allclose(linear_spline(np.array([x]), np.array([z])), integral(x, z), rtol=1e-12)
    pair = linear_spline(np.array([0.5, 3.0]), np.array([2.0, 1.0]))
    np.testing.assert_allclose(pair, integral(0.5, 2.0) * integral(3.0, 1.0))
