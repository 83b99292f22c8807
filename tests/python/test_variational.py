"""The variational RVM (Bishop & Tipping 2000): its fixed points, its lower bound, unsupported settings."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import variational_reference as reference
from problems import PROBLEMS, assert_certified, columns, standardised
from sparsebayes import RVC, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

SMALL = [name for name, problem in PROBLEMS.items() if len(problem.y) <= 150 and problem.kind != "poisson"]
FLAT = (0.0, 0.0)


def logistic(n, k, *, n_relevant=3, seed=0, strength=1.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k))
    eta = X[:, :n_relevant] @ np.linspace(strength, -strength, n_relevant)
    return X, (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)


def factors(model, X, y, w, *, alpha_prior, noise_prior=None, noise_variance=None):
    """Columns in the model, targets and q, put together from what the model publishes."""
    Phi = X[:, model.active_]
    alpha = reference.with_means(alpha_prior[0] + 0.5, model.alpha_)
    if not hasattr(model, "beta_"):
        # Where the bounds touch is not published: it follows from q(w).
        xi = reference.q_xi(Phi, model.mu_, model.sigma_)
        return Phi, y.astype(float), reference.Posterior(model.mu_, model.sigma_, alpha, None, xi)
    beta = reference.with_means(noise_prior[0] + 0.5 * w.sum(), model.beta_)
    if noise_variance is not None:
        beta = 1.0 / noise_variance
    return Phi, y, reference.Posterior(model.mu_, model.sigma_, alpha, beta, None)


CASES = {
    "regression": (SparseBayesRegressor, columns(60, 8, noise=0.5), {"noise_prior": (2.0, 0.5)}),
    "given-noise": (SparseBayesRegressor, columns(60, 8, noise=0.5), {"noise_variance": 0.25}),
    "classification": (SparseBayesClassifier, logistic(90, 8), {}),
}


def fitted_case(name, weighted, prior, **more):
    kind, (X, y), settings_ = CASES[name]
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y)) if weighted else None
    settings = {"fit_intercept": False, "alpha_prior": prior} | settings_ | more
    model = kind(scheme="variational", **settings).fit(X, y, sample_weight=w)
    assert model.status_ == "converged"
    noise = {"noise_prior": settings_.get("noise_prior", FLAT)} if name != "classification" else {}
    arguments = {"alpha_prior": prior, **noise}
    w = np.ones(len(y)) if w is None else w
    known = {"noise_variance": settings_.get("noise_variance")} if name == "given-noise" else {}
    return model, (*factors(model, X, y, w, **arguments, **known), w), arguments


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("prior", [(0.5, 0.3), (1e-6, 1e-6), (1e-3, 2.0)])
@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_that_of_its_terms(case, prior, weighted):
    model, (Phi, t, q, w), priors = fitted_case(case, weighted, prior)
    expected = reference.lower_bound(Phi, t, q, w, **priors)
    np.testing.assert_allclose(model.log_marginal_likelihood_, expected, rtol=1e-9)
    assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("prior", [(0.5, 0.3), (1e-6, 1e-6), FLAT])
@pytest.mark.parametrize("case", CASES)
def test_the_updates_of_the_paper_leave_the_end_as_it_is(case, prior, weighted):
    model, (Phi, t, q, w), priors = fitted_case(case, weighted, prior)
    again = reference.update(Phi, t, q, w, **priors)
    np.testing.assert_allclose(again.alpha.mean, model.alpha_, rtol=1e-5)
    deviations = np.sqrt(np.diag(model.sigma_))
    assert np.max(np.abs(again.mu - model.mu_) / deviations) <= 1e-5
    np.testing.assert_allclose(again.sigma, model.sigma_, rtol=1e-4, atol=1e-5 * deviations.max() ** 2)
    if case == "regression":
        np.testing.assert_allclose(again.beta.mean, model.beta_, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("prior", [(1.0, 0.5), (0.2, 0.1)])
@pytest.mark.parametrize("noise_variance", [None, 0.3])
def test_it_bounds_the_marginal_likelihood_of_regression(prior, seed, noise_variance):
    X, y = columns(6, 1, n_relevant=1, noise=0.5, seed=seed)
    noise_prior = (2.0, 0.7)
    model = SparseBayesRegressor(
        fit_intercept=False,
        scheme="variational",
        alpha_prior=prior,
        noise_prior=noise_prior,
        noise_variance=noise_variance,
    ).fit(X, y)
    assert len(model.active_) == 1
    beta = None if noise_variance is None else 1.0 / noise_variance
    exact = reference.log_marginal_regression(X[:, 0], y, prior, noise_prior, beta)
    assert exact - 0.7 <= model.log_marginal_likelihood_ < exact


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("prior", [(1.0, 0.5), (0.2, 0.1), FLAT])
def test_it_bounds_the_marginal_likelihood_of_classification(prior, seed):
    X, y = logistic(12, 1, n_relevant=1, seed=seed, strength=2.0)
    model = SparseBayesClassifier(fit_intercept=False, scheme="variational", alpha_prior=prior).fit(X, y)
    assert len(model.active_) == 1
    # With (0, 0) what is bounded is the likelihood of the expected alpha.
    known = {"alpha": model.alpha_[0]} if prior == FLAT else {"alpha_prior": prior}
    exact = reference.log_marginal_classification(X[:, 0], y, **known)
    assert exact - 1.0 <= model.log_marginal_likelihood_ < exact


@given(
    n_rows=st.integers(5, 40),
    n_columns=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([0.1, 1.0, 10.0]),
    shape=st.sampled_from([0.0, 1e-6, 0.1, 1.0]),
    kind=st.sampled_from(["regression", "given-noise", "classification"]),
)
@settings(max_examples=90)
def test_the_bound_never_falls(n_rows, n_columns, seed, noise, shape, kind):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** rng.uniform(-2, 2, size=n_columns)
    y = X[:, 0] / np.std(X[:, 0]) + noise * rng.normal(size=n_rows)
    prior = {"scheme": "variational", "alpha_prior": (shape, shape)}
    if kind == "classification":
        y = np.r_[0, 1, y[2:] > 0.0]
        model = SparseBayesClassifier(**prior)
    else:
        given_noise = noise**2 if kind == "given-noise" else None
        model = SparseBayesRegressor(**prior, noise_prior=(shape, shape), noise_variance=given_noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = model.fit(X, y).log_marginal_likelihood_path_
    assert np.diff(path).min() >= -1e-9 * (1.0 + np.abs(path).max())


@pytest.mark.parametrize("prior", [FLAT, (1e-6, 1e-6), (0.2, 0.1), (0.0, 0.3)])
@pytest.mark.parametrize("name", SMALL)
def test_every_fit_ends_at_a_certified_fixed_point(name, prior):
    problem = PROBLEMS[name]
    if name == "small-targets" and prior != FLAT:
        pytest.skip("precisions 1e16 times what the prior expects: rounding decides")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = problem.fitted(scheme="variational", alpha_prior=prior)
    assert model.status_ in ({problem.status} if prior == FLAT else {problem.status, "converged", "empty"})
    found = assert_certified(model, problem.X, problem.y, problem.sample_weight, status=model.status_)
    assert found.max_mean_error <= 1e-6


@pytest.mark.parametrize("prior", [FLAT, (0.2, 0.1)])
@pytest.mark.parametrize("case", ["regression", "classification"])
def test_the_certificate_detects_a_changed_model(case, prior):
    kind, (X, y), settings_ = CASES[case]
    model = kind(scheme="variational", alpha_prior=prior, **settings_).fit(X, y)
    good = certificate(model, X, y)
    model.alpha_ = model.alpha_ * 1.01
    off = certificate(model, X, y)
    assert off.max_log_alpha_change >= 1e-3 > good.max_log_alpha_change
    assert off.log_marginal_likelihood < good.log_marginal_likelihood
    model.mu_ = model.mu_ + 0.1 * np.sqrt(np.diag(model.sigma_))
    assert certificate(model, X, y).max_mean_error >= 0.05


@pytest.mark.parametrize(
    ("name", "prior"),
    [
        ("sinc-1d-50-width-3.0", FLAT),
        ("sinc-1d-200-width-1.6", FLAT),
        ("sinc-2d-100-width-2.5", FLAT),
        ("laplacian", FLAT),
        ("legendre", FLAT),
        ("columns", (1e-6, 1e-6)),
        ("columns-weights", (1e-6, 1e-6)),
        ("columns-and-bias", (0.2, 0.1)),
    ],
)
def test_regressions_predict_as_with_em(name, prior):
    # Up to constants both objectives are the same, so that only the choice between optima could differ.
    problem = PROBLEMS[name]
    ours, em = (
        problem.fitted(scheme=scheme, alpha_prior=prior, noise_prior=prior)
        for scheme in ("variational", "em")
    )
    difference = np.abs(ours.predict(problem.X) - em.predict(problem.X)).max()
    assert difference <= 1e-2 * np.std(problem.y)
    if prior == FLAT:
        np.testing.assert_allclose(ours.log_marginal_likelihood_, em.log_marginal_likelihood_, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_classifications_predict_as_with_em(seed):
    X, y = logistic(1000, 4, n_relevant=4, strength=1.0, seed=seed)
    ours, em = (
        SparseBayesClassifier(fit_intercept=False, scheme=scheme).fit(X, y)
        for scheme in ("variational", "em")
    )
    np.testing.assert_allclose(ours.alpha_, em.alpha_, rtol=0.05)
    assert np.abs(ours.predict_proba(X) - em.predict_proba(X)).max() <= 1e-2
    # The quadratic bound is no closer than the Laplace approximation.
    assert ours.log_marginal_likelihood_ < em.log_marginal_likelihood_


def test_the_prior_decides_in_the_units_of_the_caller():
    X, y = columns(60, 5, noise=0.5)
    plain = SparseBayesRegressor(
        fit_intercept=False, scheme="variational", alpha_prior=(0.5, 0.2), noise_prior=(2.0, 0.3)
    )
    scaled = SparseBayesRegressor(
        fit_intercept=False, scheme="variational", alpha_prior=(0.5, 20.0), noise_prior=(2.0, 30.0)
    )
    plain.fit(X, y)
    scaled.fit(X, 10.0 * y)
    np.testing.assert_allclose(scaled.mu_, 10.0 * plain.mu_, rtol=1e-6)
    # The density of 10 t is 10^-N times that of t.
    np.testing.assert_allclose(
        scaled.log_marginal_likelihood_, plain.log_marginal_likelihood_ - 60 * np.log(10.0), rtol=1e-8
    )


def test_separable_classes_converge():
    X = np.linspace(-3.0, 3.0, 40)[:, np.newaxis]
    model = RVC(Gaussian(2.0), scheme="variational").fit(X, X[:, 0] > 0.1)
    assert model.status_ == "converged"
    assert model.score(X, X[:, 0] > 0.1) == 1.0


def test_several_classes_are_fitted_one_against_the_rest():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = standardised(rng.normal(size=(90, 2)) + 3.0 * np.c_[np.cos(2 * y), np.sin(2 * y)])
    model = RVC(Gaussian(1.5), scheme="variational").fit(X, y)
    assert model.score(X, y) > 0.9
    assert_certified(model, X, y)


REFUSED = {
    "softmax": (
        SparseBayesClassifier(fit_intercept=False, multi_class="softmax"),
        [0, 1, 2, 0],
        "multi_class='ovr'",
    ),
    "poisson": (
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson"),
        [0, 1, 2, 0],
        "likelihood='gaussian'",
    ),
    "outputs": (SparseBayesRegressor(fit_intercept=False), np.ones((4, 2)), "scheme must be 'sequential'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_offer_is_refused(case):
    model, y, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        model.set_params(scheme="variational").fit([[0.0], [1.0], [2.0], [4.0]], y)


@pytest.mark.parametrize("width", [0.1, 0.4, 0.8])
def test_fits_with_narrow_kernels_converge(width: float) -> None:
    """Narrow kernels leave precisions below rounding; these functions are deleted, the rest is certified."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 10))
    y = (X[:, 0] + 0.5 * rng.standard_normal(50) > 0.0).astype(int)
    model = RVC(Gaussian(width * np.sqrt(2.0)), scheme="variational").fit(X, y)
    found = certificate(model, X, y)
    assert model.status_ == "converged"
    assert model.n_iter_ < 20_000
    assert found.max_log_alpha_change < 1e-5
    assert found.max_gain_outside < 1e-6
    assert np.diff(model.log_marginal_likelihood_path_).min() > -1e-7
