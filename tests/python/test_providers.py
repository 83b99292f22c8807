"""Fits of rows that answer for themselves: the same models, wherever the rows are."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from provider_reference import NumpyRows

from sparsebayes import RVC, RVR, PyStatistics, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Laplacian, Linear
from sparsebayes.providers import RowPart, SummedStatistics

LIKELIHOODS = ("gaussian", "bernoulli", "poisson")


def columns(seed, likelihood="gaussian", n=120, k=15):
    """Return columns in units of all sizes, targets, and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, k))
    eta = Phi[:, 0] - 0.7 * Phi[:, 3] + 0.4 * Phi[:, 7]
    t = {
        "gaussian": lambda: 1e3 * eta + 200.0 * rng.normal(size=n) + 5e4,
        "bernoulli": lambda: (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[likelihood]()
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    return np.c_[np.ones(n), Phi * np.geomspace(1e-3, 1e3, k)], t, weights


def estimator(likelihood, **options):
    """Return an estimator that ends well within what is compared."""
    options = {"tol": 1e-9, **options}
    if likelihood == "bernoulli":
        return SparseBayesClassifier(**options)
    return SparseBayesRegressor(**options) if likelihood == "gaussian" else poisson(**options)


def poisson(**options):
    """The one estimator for counts is a subclass away: see `SparseBayesEstimator._check_likelihood`."""

    class Counts(SparseBayesRegressor):
        def _check_likelihood(self):
            return "poisson"

    return Counts(**options)


def fit(model, provider, likelihood="gaussian", **options):
    if likelihood == "bernoulli":
        options["classes"] = [0.0, 1.0]
    return model.fit_provider(provider, **options)


def partition(rng, n, n_parts):
    """Return the rows of each part, some of which are empty, in a random order of rows."""
    order, cuts = rng.permutation(n), np.sort(rng.integers(0, n + 1, n_parts - 2))
    return [np.array([], int), *np.split(order, cuts)]


def assert_same_model(a, b, rtol=1e-8):
    np.testing.assert_array_equal(a.active_, b.active_)
    np.testing.assert_allclose(a.alpha_, b.alpha_, rtol=rtol)
    np.testing.assert_allclose(a.mu_, b.mu_, rtol=rtol, atol=rtol * np.abs(b.mu_).max())
    np.testing.assert_allclose(a.sigma_, b.sigma_, rtol=1e2 * rtol, atol=rtol * np.abs(b.sigma_).max())
    np.testing.assert_allclose(a.log_marginal_likelihood_, b.log_marginal_likelihood_, rtol=rtol)
    if hasattr(b, "beta_"):
        np.testing.assert_allclose(a.beta_, b.beta_, rtol=rtol)


def same_bits(a, b):
    return all(
        np.asarray(getattr(a, name)).tobytes() == np.asarray(getattr(b, name)).tobytes()
        for name in ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_")
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_parts_answer_as_the_formulae_say(likelihood):
    Phi, t, weights = columns(1, likelihood)
    reference = NumpyRows(Phi, t, weights, likelihood)
    part = RowPart(Phi, t, weights, likelihood=likelihood)
    rng = np.random.default_rng(5)
    active, js = np.array([1, 4, 9]), np.array([14, 2, 4])
    for mu in (np.zeros(3), rng.normal(size=3) / np.abs(Phi[:, active]).max(axis=0)):
        sigma = rng.normal(size=(3, 3))
        for method, *question in [
            ("deviance", active, mu),
            ("gradient", active, mu),
            ("among", active, mu, js),
            ("among", active, mu, active),
            ("sweep", active, mu, js),
            ("sweep", active, mu, js[:0]),
            ("variance_drift", active, mu, sigma @ sigma.T),
        ]:
            expected = getattr(reference, method)(*question)
            found = getattr(part, method)(*question)
            if method == "deviance":
                found, expected = [found], [expected]
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * np.abs(b).max(initial=0.0))
    for centre in (0.0, 5e4):
        np.testing.assert_allclose(part.target_moments(centre), reference.target_moments(centre), rtol=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(3))
def test_a_provider_in_numpy_gives_the_model_of_the_rows(likelihood, seed):
    Phi, t, weights = columns(seed, likelihood)
    reference = estimator(likelihood).fit(Phi, t, weights)
    model = fit(estimator(likelihood), NumpyRows(Phi, t, weights, likelihood), likelihood)
    assert model.status_ == reference.status_ == "converged"
    assert_same_model(model, reference)
    np.testing.assert_allclose(model.predict(Phi), reference.predict(Phi), rtol=1e-8)
    assert certificate(model, Phi, t, weights).max_log_alpha_change < 1e-5


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(4))
def test_partitions_do_not_show(likelihood, seed):
    Phi, t, weights = columns(seed, likelihood)
    rng = np.random.default_rng(seed)
    parts = [
        RowPart(Phi[rows], t[rows], weights[rows], likelihood=likelihood)
        for rows in partition(rng, len(t), 2 + 3 * seed)
    ]
    reference = estimator(likelihood).fit(Phi, t, weights)
    assert_same_model(fit(estimator(likelihood), SummedStatistics(parts), likelihood), reference)


def surface(seed, n=150, n_centres=25, likelihood="gaussian"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    f = np.sin(X[:, 0]) * np.cos(X[:, 1])
    y = f + 0.1 * rng.normal(size=n) if likelihood == "gaussian" else f + 0.3 * rng.normal(size=n) > 0.1
    return X, y, rng.choice([0.0, 1.0, 2.0], size=n), rng.uniform(-3, 3, size=(n_centres, 2))


@pytest.mark.parametrize("kernels", [Gaussian(1.5), [Gaussian(1.5), Linear()], [Laplacian(0.5), lambda X, Z: X @ Z.T]])
@pytest.mark.parametrize("kind", [RVR, RVC])
def test_kernels_about_given_centres(kind, kernels):
    likelihood = "gaussian" if kind is RVR else "bernoulli"
    X, y, weights, centres = surface(3, likelihood=likelihood)
    model = kind(kernels, candidates=centres, tol=1e-9)
    reference = kind(kernels, candidates=centres, tol=1e-9).fit(X, y, weights)
    parts = [
        RowPart(
            X[rows],
            y[rows],
            weights[rows],
            kernels=reference.kernel_,
            centres=centres,
            fit_intercept=True,
            likelihood=likelihood,
            store=len(rows) % 2 == 0,
        )
        for rows in partition(np.random.default_rng(0), len(X), 5)
    ]
    fit(model, SummedStatistics(parts), likelihood, n_samples=len(X))
    assert_same_model(model, reference)
    for name in ("relevance_", "relevance_vectors_", "intercept_"):
        np.testing.assert_allclose(getattr(model, name), getattr(reference, name), rtol=1e-7)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), rtol=1e-7)
    assert certificate(model, X, y, weights).max_gain_outside < 1e-6
