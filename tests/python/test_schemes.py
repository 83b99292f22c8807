"""MacKay's and EM updates from the full basis (Tipping 2001): the steps, and where they end."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from problems import PAPERS, PROBLEMS, assert_certified, columns, sinc_2d, two_classes
from reference import em_step, log_evidence, mackay_step
from sparsebayes import RVC, RVR, SparseBayesRegressor
from sparsebayes.kernels import Gaussian

SMALL = [name for name, problem in PROBLEMS.items() if len(problem.y) <= 150]


@pytest.mark.parametrize("scheme", ["mackay", "em"])
@pytest.mark.parametrize("name", SMALL)
def test_every_scheme_ends_at_a_certified_optimum(name, scheme):
    problem = PROBLEMS[name]
    model = problem.fitted(scheme=scheme)
    found = assert_certified(model, problem.X, problem.y, problem.sample_weight, status=problem.status)
    assert found.max_mean_error <= 1e-6


def first_updates(scheme, X, y, weights, alpha_prior, noise_prior, count):
    """Log posterior at the start and after each of the first updates of everything."""
    steps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SparseBayesRegressor(
            fit_intercept=False,
            scheme=scheme,
            alpha_prior=alpha_prior,
            noise_prior=noise_prior,
            max_iter=count,
            callback=steps.append,
        ).fit(X, y, sample_weight=weights)
    assert all(step.action == "joint" for step in steps)
    return model.log_marginal_likelihood_path_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("priors", [((0.0, 0.0), (0.0, 0.0)), ((0.2, 0.1), (0.5, 0.3))])
@pytest.mark.parametrize("scheme", ["mackay", "em"])
def test_updates_are_those_of_the_paper(scheme, priors, weighted):
    # Every column matters, so that none is pruned within the first updates.
    X, y = columns(60, 6, n_relevant=6, noise=0.5)
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=60) if weighted else None
    path = first_updates(scheme, X, y, w, *priors, 4)
    rows = np.ones(60) if w is None else w
    variance = np.average((y - np.average(y, weights=rows)) ** 2, weights=rows)
    alpha, beta = rows @ X**2 / variance, 10.0 / variance
    (a, b), (c, d) = priors
    step = em_step if scheme == "em" else mackay_step
    expected = []
    for _ in range(5):
        # The density of ln alpha is taken from its peak, at a / b.
        prior = np.sum(a * np.log(alpha) - b * alpha) + c * np.log(beta) - d * beta
        peak = len(alpha) * (a * np.log(a / b) - a) if a > 0.0 else 0.0
        expected.append(log_evidence(X, y, alpha, beta, w) + prior - peak)
        old = alpha
        alpha, beta = step(X, y, alpha, beta, w, alpha_prior=(a, b), noise_prior=(c, d))
        if scheme == "mackay" and a > 0.0:
            alpha = np.sqrt(old * alpha)
    np.testing.assert_allclose(path, expected, rtol=1e-9, atol=1e-8)


@given(
    n_rows=st.integers(5, 40),
    n_columns=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([1e-3, 0.1, 1.0, 10.0]),
    shape=st.sampled_from([0.0, 1e-3, 1.0]),
    fixed=st.booleans(),
)
@settings(max_examples=60)
def test_em_never_lowers_the_evidence(n_rows, n_columns, seed, noise, shape, fixed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** rng.uniform(-2, 2, size=n_columns)
    y = X[:, 0] / np.std(X[:, 0]) + noise * rng.normal(size=n_rows)
    prior = (shape, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SparseBayesRegressor(
            scheme="em",
            alpha_prior=prior,
            noise_prior=prior,
            noise_variance=noise**2 if fixed else None,
        ).fit(X, y)
    path = model.log_marginal_likelihood_path_
    assert np.diff(path).min() >= -1e-9 * (1.0 + np.abs(path).max())


@pytest.mark.parametrize("n", [100, 200])
def test_schemes_agree_on_regression(n):
    X, y = sinc_2d(n)
    evidence = {
        scheme: RVR(Gaussian(2.5), scheme=scheme).fit(X, y).log_marginal_likelihood_
        for scheme in ("sequential", "mackay", "em")
    }
    best = max(evidence["mackay"], evidence["em"])
    assert abs(best - evidence["sequential"]) <= 0.01 * abs(evidence["sequential"])


def test_schemes_agree_on_classification():
    X, y = two_classes(120)
    models = [RVC(Gaussian(0.5), scheme=scheme).fit(X, y) for scheme in ("sequential", "mackay", "em")]
    sequential, *others = (model.log_marginal_likelihood_ for model in models)
    np.testing.assert_allclose(max(others), sequential, rtol=0.01)


def test_deleted_functions_are_added_again():
    X, y = sinc_2d(100)
    steps = []
    model = RVR(Gaussian(2.5), scheme="mackay", callback=steps.append, **PAPERS).fit(X, y)
    gone = {step.index for step in steps if step.action == "delete"}
    # By additions, or by exchanges, which a step does not name.
    assert gone.intersection(model.active_.tolist())
