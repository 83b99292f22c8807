"""Relevance eigenvector models against dense references, quadrature and decimal arithmetic."""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning

import revm_reference as reference
from problems import standardised
from reference import log_evidence
from sparsebayes import GREVM, LREVM, VGREVM, GREVMRegressor, LREVMRegressor
from sparsebayes._revm import (
    Logistic,
    _terms,
    best_alpha_gaussian,
    best_alpha_laplace,
    closest_gaussian,
    expectations,
    posterior_mode,
    posterior_variance_laplace,
)
from sparsebayes.kernels import Gaussian

CLASSIFIERS = [GREVM, LREVM, VGREVM]
REGRESSORS = [GREVMRegressor, LREVMRegressor]


def log_evidence_gaussian(h, u, alpha):
    """KV (10): the log evidence of the prior N(0, 1 / alpha)."""
    with np.errstate(divide="ignore"):
        ratio = h / np.asarray(alpha, dtype=float)
    return -0.5 * np.log1p(ratio) - 0.5 * h * u**2 / (1.0 + ratio)


def log_evidence_laplace(h, u, alpha):
    """KV (13): the log evidence of the prior (alpha / 4) exp(-alpha |u| / 2), from the package's terms."""
    root = np.sqrt(np.asarray(h, dtype=float))
    z, alpha = root * np.abs(u), np.asarray(alpha, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(root > 0.0, 0.5 * alpha / root, np.inf)
    z, r = np.broadcast_arrays(z, r)
    finite = np.isfinite(r)
    sums, exponent = _terms(z, np.where(finite, r, 1.0))[2:]
    with np.errstate(divide="ignore"):
        log_f = exponent + np.log(np.sqrt(np.pi / 8.0) * np.where(finite, r, 1.0) * sums)
    return np.where(finite, log_f, -0.5 * z**2)


EVIDENCE = {"gaussian": log_evidence_gaussian, "laplace": log_evidence_laplace}
BEST = {"gaussian": best_alpha_gaussian, "laplace": best_alpha_laplace}


def dictionary(model, X):
    """Bias and kernels about all rows; the rows of the tests differ."""
    return np.c_[np.ones(len(X)), model.kernel_(X, X)]


def weights_of(model):
    return np.append(model.intercept_, model.dual_coef_[0])


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVIDENCE)
@pytest.mark.parametrize(
    ("h", "u", "alpha"), list(itertools.product([0.01, 1.0, 300.0], [-3.0, 0.0, 0.2], [0.1, 2.0, 90.0]))
)
def test_evidence_along_one_eigenvector_is_its_integral(kind, h, u, alpha):
    expected = reference.evidence_by_quadrature(kind, h, u, alpha)
    np.testing.assert_allclose(np.exp(EVIDENCE[kind](h, u, alpha)), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", EVIDENCE)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_factorised_evidence_equals_the_integral_over_all_weights(kind, dimensions):
    rng = np.random.default_rng(dimensions)
    h, u_ml, alpha = np.array([2.0, 0.7, 5.0]), np.array([1.5, -1.0, 0.1]), np.array([0.8, 3.0, 2.0])
    h, u_ml, alpha = h[:dimensions], u_ml[:dimensions], alpha[:dimensions]
    Q = np.linalg.qr(rng.normal(size=(dimensions, dimensions)))[0]
    mu, H = Q.T @ u_ml, Q.T @ np.diag(h) @ Q
    # The trapezium rule in coordinates that know nothing of the eigenvectors.
    n = 1201 if dimensions == 2 else 221
    axis = np.linspace(-9.0, 9.0, n)
    total = 0.0
    for first in axis:
        others = np.stack(np.meshgrid(*[axis] * (dimensions - 1), indexing="ij"), axis=-1).reshape(
            -1, dimensions - 1
        )
        w = np.c_[np.full(len(others), first), others]
        exponent = -0.5 * np.einsum("ni,ij,nj->n", w - mu, H, w - mu)
        prior = np.prod(reference.prior_density(kind, w @ Q.T, alpha), axis=1)
        total += np.exp(exponent) @ prior
    total *= (axis[1] - axis[0]) ** dimensions
    found = np.exp(EVIDENCE[kind](h, u_ml, alpha).sum())
    # The kink of the Laplace prior lies across the grid.
    np.testing.assert_allclose(found, total, rtol=1e-10 if kind == "gaussian" else 1e-3)


def test_laplace_evidence_keeps_ten_digits_over_sixteen_decades():
    rng = np.random.default_rng(0)
    h = 10.0 ** rng.uniform(-8, 8, 400)
    u = rng.choice([-1.0, 1.0], 400) * 10.0 ** rng.uniform(-6, 4, 400)
    alpha = 10.0 ** rng.uniform(-8, 8, 400)
    # A third of them near the border between the two forms, alpha = 2 h |u|.
    alpha[::3] = 2 * h[::3] * np.abs(u[::3]) * rng.uniform(0.9, 1.1, len(alpha[::3]))
    found = log_evidence_laplace(h, u, alpha)
    expected = np.array([reference.log_evidence_laplace(*row) for row in zip(h, u, alpha, strict=True)])
    # The relative error of the evidence itself, where that can be written down; of its logarithm elsewhere.
    assert np.max(np.abs(found - expected) / np.maximum(1.0, np.abs(expected))) < 1e-10
    exists = np.abs(expected) < 300.0
    assert exists.sum() > 100
    assert np.max(np.abs(found - expected)[exists]) < 1e-10


@pytest.mark.parametrize("kind", EVIDENCE)
def test_the_ends_of_the_evidence_are_its_limits(kind):
    evidence = EVIDENCE[kind]
    with np.errstate(all="raise", under="ignore"):
        assert evidence(2.0, 3.0, np.inf) == pytest.approx(-9.0)
        assert evidence(0.0, 3.0, 1.0) == 0.0
        np.testing.assert_allclose(evidence(2.0, 3.0, 1e9), -9.0, rtol=1e-6)
    assert evidence(1.0, 1.0, 1e-300) < -300.0


@pytest.mark.parametrize("kind", EVIDENCE)
@pytest.mark.parametrize("h", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("z", [1.0001, 1.02, 1.3, 2.0, 5.0, 40.0, 1e4])
def test_alpha_is_where_the_evidence_is_greatest(kind, h, z):
    u = -z / np.sqrt(h)
    alpha = BEST[kind](np.array([h]), np.array([u]))[0]
    grid = alpha * np.exp(np.linspace(-6.0, 6.0, 4001))
    evidence = EVIDENCE[kind](h, u, grid)
    # Up to rounding.
    assert EVIDENCE[kind](h, u, alpha) >= evidence.max() - 1e-14 * max(1.0, 0.5 * z**2)
    if z > 1.3:
        assert abs(np.log(grid[evidence.argmax()] / alpha)) < 0.01
    # One maximum: up, then down.
    signs = np.sign(np.diff(evidence)[np.abs(np.diff(evidence)) > 1e-13 * max(1.0, 0.5 * z**2)])
    assert (np.diff(signs) <= 0).all()


@pytest.mark.parametrize("kind", EVIDENCE)
@pytest.mark.parametrize("z", [0.0, 0.5, 0.99, 1.0])
def test_an_eigenvector_below_the_noise_is_irrelevant(kind, z):
    h = 7.0
    u = z / np.sqrt(h)
    assert BEST[kind](np.array([h]), np.array([u]))[0] == np.inf
    grid = np.exp(np.linspace(-5.0, 8.0, 200))
    assert (EVIDENCE[kind](h, u, grid) <= EVIDENCE[kind](h, u, np.inf) + 1e-12).all()


def test_both_priors_agree_on_the_limit_next_to_the_threshold():
    # The expansion in 1 / alpha: h / (z^2 - 1) for the one, 4 sqrt(h / (z^2 - 1)) for the other.
    z = 1.0 + np.array([1e-7, 1e-9])
    excess = (z - 1.0) * (z + 1.0)
    np.testing.assert_allclose(
        best_alpha_laplace(np.full(2, 3.0), z / np.sqrt(3.0)), 4 * np.sqrt(3.0 / excess), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("z", "r"), [(0.0, 1.0), (2.0, 0.5), (-2.0, 3.0), (5.0, 1.0), (1.0, 20.0), (30.0, 0.03)]
)
def test_variance_under_a_laplace_prior_is_that_of_the_density(z, r):
    _, variance = reference.laplace_moments(1.0, z, 2.0 * r)
    np.testing.assert_allclose(posterior_variance_laplace(np.array(z), np.array(r)), variance, rtol=1e-5)


# --- classification -------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [1.0, 3.0])
def test_grevm_is_the_reference(classes, width, weighted):
    X, y = classes
    X, y = X[:60], y[:60]
    weights = np.random.default_rng(0).integers(1, 4, 60).astype(float) if weighted else np.ones(60)
    model = GREVM(Gaussian(width)).fit(X, y, sample_weight=weights)
    Phi = dictionary(model, X)
    h, alpha, w = reference.grevm(Phi, 2 * y - 1, 3e-3, weights)
    assert model.ridge_ == pytest.approx(reference.ridge_of(Phi, 3e-3, weights))
    np.testing.assert_allclose(model.eigenvalues_, h, rtol=1e-6, atol=1e-10 * h[0])
    np.testing.assert_array_equal(np.isfinite(model.alpha_), np.isfinite(alpha))
    np.testing.assert_allclose(model.alpha_, alpha, rtol=1e-5)
    assert model.n_effective_ == np.isfinite(alpha).sum()
    np.testing.assert_allclose(model.decision_function(X), Phi @ w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [0.7, 1.0, 3.0])
def test_lrevm_satisfies_the_kuhn_tucker_conditions_inside_its_octant(classes, width, weighted):
    X, y = classes
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 150) if weighted else np.ones(150)
    model = LREVM(Gaussian(width)).fit(X, y, sample_weight=weights)
    assert model.status_ == "converged"
    Phi, t = dictionary(model, X), 2 * y - 1
    w_ml = reference.regularised_mode(Phi, t, np.full(151, model.ridge_), weights)
    h, Q, u = reference.spectrum(reference.hessian(Phi, w_ml, weights), w_ml)
    np.testing.assert_allclose(model.eigenvalues_, h, rtol=1e-6, atol=1e-10 * h[0])
    relevant = np.isfinite(model.alpha_)
    np.testing.assert_array_equal(relevant, h * u**2 > 1)
    np.testing.assert_allclose(model.alpha_[relevant], BEST["laplace"](h, u)[relevant], rtol=1e-4)
    # The published weights, along the eigenvectors of the reference.
    assert reference.kuhn_tucker(Phi, t, Q, u, model.alpha_, weights_of(model), weights) < 1e-8
    assert (np.sqrt(h) * np.abs(Q @ weights_of(model)))[~relevant].max() < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_the_octant_search_ends_at_the_kuhn_tucker_conditions_to_eight_digits(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(40, 12)) * np.exp(rng.normal(size=12))
    sign, weights = rng.choice([-1.0, 1.0], 40), rng.uniform(0.1, 3.0, 40)
    rate = np.exp(rng.normal(size=12))
    model = Logistic(Z, sign, weights)
    end = posterior_mode(model, 0.0, rate, np.zeros(12), tol=1e-8, max_iter=200, pulse=lambda: None)
    other = posterior_mode(
        model, 0.0, rate, np.exp(rng.normal(size=12)), tol=1e-8, max_iter=200, pulse=lambda: None
    )
    assert end.converged
    assert other.converged
    np.testing.assert_allclose(end.w, other.w, rtol=1e-6, atol=1e-7)
    worst = reference.kuhn_tucker(Z, sign, np.eye(12), np.ones(12), 2.0 * rate, end.w, weights)
    assert worst <= 1.01e-8
    assert np.count_nonzero(end.w == 0.0) > 0


@pytest.mark.filterwarnings("ignore::sparsebayes.OverfitWarning")
@pytest.mark.parametrize(("c", "share"), [(3.0, 1e-2), (1.0, 0.3), (5.0, 0.1)])
def test_with_equal_eigenvalues_grevm_has_its_closed_form(c, share):
    y = np.arange(8) % 2
    model = GREVM("precomputed", fit_intercept=False, ridge=share)
    model.fit(c * np.eye(8), y, sample_weight=np.full(8, 10.0))
    h, alpha, size, ridge = reference.equal_eigenvalues(c, share, 10.0)
    assert np.isfinite(alpha)
    assert model.ridge_ == pytest.approx(ridge)
    np.testing.assert_allclose(model.eigenvalues_, np.full(8, h), rtol=1e-9)
    np.testing.assert_allclose(model.alpha_, np.full(8, alpha), rtol=1e-8)
    np.testing.assert_allclose(model.dual_coef_[0], (2 * y - 1) * size, rtol=1e-8)


def test_with_equal_eigenvalues_single_rows_are_irrelevant_for_any_ridge():
    # h u^2 = v^2 sigma(v) sigma(-v) with v the predictor: at most 0.44.
    assert all(np.isinf(reference.equal_eigenvalues(3.0, 10.0**k, 1.0)[1]) for k in range(-6, 3))
    with pytest.warns(ConvergenceWarning, match="empty"):
        GREVM("precomputed", fit_intercept=False).fit(3.0 * np.eye(8), np.arange(8) % 2)


def test_the_logistic_mixture_has_the_moments_it_should():
    m, v = (grid.ravel() for grid in np.meshgrid([-20.0, -3.0, 0.0, 1.0, 8.0], [1e-9, 0.3, 4.0, 900.0]))
    found = expectations(m, v)
    z = np.linspace(-10.0, 10.0, 20001)
    p = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    f = m[:, None] + np.sqrt(v)[:, None] * z
    sigma = 1.0 / (1.0 + np.exp(-np.clip(f, -700, 700)))
    np.testing.assert_allclose(found.softplus, np.logaddexp(0.0, f) @ p, atol=2e-8, rtol=1e-9)
    np.testing.assert_allclose(found.sigmoid, sigma @ p, atol=3e-9)
    np.testing.assert_allclose(found.slope, (sigma * (1 - sigma)) @ p, atol=2e-8)
    np.testing.assert_allclose(found.curvature, (sigma * (1 - sigma) * (1 - 2 * sigma)) @ p, atol=1e-6)
    third = sigma * (1 - sigma) * (1 - 6 * sigma + 6 * sigma**2)
    np.testing.assert_allclose(found.third, third @ p, atol=1e-5)


@pytest.mark.parametrize("ridge", [1e-4, 0.1, 3.0])
def test_the_variational_gaussian_is_stationary(ridge):
    rng = np.random.default_rng(0)
    Phi, t = rng.normal(size=(40, 5)), rng.choice([-1.0, 1.0], 40)
    model = Logistic(Phi, t, np.ones(40))
    mode, b = closest_gaussian(model, ridge, np.zeros(5), tol=1e-9, max_iter=100, pulse=lambda: None)
    assert mode.converged
    Sigma = np.linalg.inv(Phi.T @ np.diag(b) @ Phi + ridge * np.eye(5))
    in_mu, in_Sigma = reference.divergence_gradients(Phi, t, ridge, mode.w, Sigma)
    assert np.abs(in_mu).max() < 1e-6
    assert np.abs(in_Sigma).max() < 1e-6


def test_vgrevm_takes_its_axes_from_the_variational_gaussian(classes):
    X, y = classes
    X, y = X[:50], y[:50]
    model = VGREVM(Gaussian(2.0)).fit(X, y)
    Phi, t = dictionary(model, X), 2 * y - 1
    mode, b = closest_gaussian(
        Logistic(Phi, t, np.ones(50)), model.ridge_, np.zeros(51), tol=1e-9, max_iter=200, pulse=lambda: None
    )
    h, Q, u = reference.spectrum(Phi.T @ np.diag(b) @ Phi, mode.w)
    np.testing.assert_allclose(model.eigenvalues_, h, rtol=1e-5, atol=1e-9 * h[0])
    kept = h * u**2 > 1
    alpha = h[kept] / (h[kept] * u[kept] ** 2 - 1)
    np.testing.assert_allclose(model.alpha_[kept], alpha, rtol=1e-4)
    assert model.n_effective_ == kept.sum()
    u_mp = reference.regularised_mode(Phi @ Q[kept].T, t, alpha, np.ones(50))
    np.testing.assert_allclose(model.decision_function(X), Phi @ Q[kept].T @ u_mp, rtol=1e-4, atol=1e-5)


# --- the ridge ------------------------------------------------------------------------------------


def overlapping(name):
    """Classes of scikit-learn's sets that no plane separates."""
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return standardised(X[:300, :2]), y[:300]
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return standardised(X[y < 2][:, [1, 2]]), y[y < 2]
    X, y = load_diabetes(return_X_y=True)
    return standardised(X)[:300], (y > np.median(y))[:300]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("name", ["breast cancer", "wine", "diabetes"])
def test_where_the_likelihood_has_a_maximum_the_ridge_does_not_show_over_four_decades(kind, name):
    X, y = overlapping(name)
    models = [kind("linear", ridge=ridge).fit(X, y) for ridge in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)]
    assert len({model.n_effective_ for model in models}) == 1
    assert 0 < models[0].n_effective_ <= X.shape[1] + 1
    for model in models[1:]:
        np.testing.assert_allclose(model.predict_proba(X), models[0].predict_proba(X), atol=2e-3)


SEPARABLE = (np.r_[np.linspace(-3, -1, 15), np.linspace(1, 3, 15)][:, np.newaxis], np.repeat([0, 1], 15))


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("kernel", ["linear", Gaussian(2.0), Gaussian(0.3)])
def test_separable_classes_converge_and_are_separated_whatever_the_ridge(kind, kernel):
    X, y = SEPARABLE
    models = [kind(kernel, ridge=ridge).fit(X, y) for ridge in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)]
    for model in models:
        assert model.status_ == "converged"
        assert model.score(X, y) == 1.0
        assert model.n_effective_ > 0
        # Far from certain only where the kernel is so narrow that rows know little of one another.
        assert model.predict_proba(X)[np.arange(30), y].min() > 0.9
    if kind is not VGREVM:
        # All of these ridges leave nothing, and all are raised to the same.
        assert len({round(np.log10(model.ridge_), 6) for model in models}) == 1
        np.testing.assert_allclose(models[0].decision_function(X), models[-1].decision_function(X), rtol=1e-6)


def test_inputs_without_information_give_an_empty_model_and_a_warning():
    X, y = np.zeros((10, 1)), np.arange(10) % 2
    with pytest.warns(ConvergenceWarning, match="empty"):
        model = LREVM().fit(X, y)
    assert model.n_effective_ == 0
    assert np.isinf(model.alpha_).all()
    np.testing.assert_array_equal(model.predict_proba(X), np.full((10, 2), 0.5))


# --- regression -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REGRESSORS)
def test_the_noise_maximises_the_evidence_of_one_common_precision(sinc, kind):
    X, y = sinc
    model = kind(Gaussian(3.0)).fit(X, y)
    Phi, t = dictionary(model, X), y - y.mean()
    ridge = np.full(Phi.shape[1], model.ridge_)
    best = log_evidence(Phi, t, ridge, model.beta_)
    for d_beta, d_ridge in itertools.product([-0.1, -1e-3, 0.0, 1e-3, 0.1], repeat=2):
        assert log_evidence(Phi, t, ridge * np.exp(d_ridge), model.beta_ * np.exp(d_beta)) <= best + 1e-6
    assert 0.07 < model.noise_variance_**0.5 < 0.13


@pytest.mark.parametrize("noise_variance", [None, 0.04])
def test_regression_is_the_exact_posterior(sinc, noise_variance):
    X, y = sinc
    model = GREVMRegressor(Gaussian(3.0), noise_variance=noise_variance).fit(X, y)
    Phi, t = dictionary(model, X), y - y.mean()
    h, V = np.linalg.eigh(model.beta_ * Phi.T @ Phi)
    h, Q = h[::-1], V[:, ::-1].T
    kept = np.isfinite(model.alpha_)
    np.testing.assert_allclose(model.eigenvalues_[kept], h[kept], rtol=1e-6)
    # The maximum under the common precision decides.
    u = Q @ np.linalg.solve(model.beta_ * Phi.T @ Phi + model.ridge_ * np.eye(81), model.beta_ * Phi.T @ t)
    np.testing.assert_array_equal(kept, h * u**2 > 1)
    np.testing.assert_allclose(model.alpha_[kept], (h / (h * u**2 - 1))[kept], rtol=1e-4)
    w, S = reference.gaussian_posterior(Phi, t, model.beta_, Q, model.alpha_)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, y.mean() + Phi @ w, atol=1e-6)
    np.testing.assert_allclose(std**2, 1 / model.beta_ + np.sum(Phi @ S * Phi, axis=1), rtol=1e-6)


def test_laplace_regression_is_the_maximum_along_each_eigenvector(sinc):
    X, y = sinc
    model = LREVMRegressor(Gaussian(3.0)).fit(X, y)
    Phi, t = dictionary(model, X), y - y.mean()
    h, V = np.linalg.eigh(model.beta_ * Phi.T @ Phi)
    h, Q = h[::-1], V[:, ::-1].T
    kept = np.isfinite(model.alpha_)
    u_ml = np.where(kept, model.beta_ * Q @ Phi.T @ t / np.where(kept, h, 1.0), 0.0)
    zeros, variance = 0, np.full(80, 1 / model.beta_)
    u = Q @ weights_of(model) - Q[:, 0] * y.mean()
    for i in np.flatnonzero(kept):
        grid = np.linspace(-2.0, 2.0, 400_001) * abs(u_ml[i])
        objective = -0.5 * h[i] * (grid - u_ml[i]) ** 2 - 0.5 * model.alpha_[i] * np.abs(grid)
        assert abs(u[i] - grid[objective.argmax()]) < 1e-4 * abs(u_ml[i])
        zeros += grid[objective.argmax()] == 0.0
        variance += reference.laplace_moments(h[i], u_ml[i], model.alpha_[i])[1] * (Phi @ Q[i]) ** 2
    assert model.n_effective_ == kept.sum() - zeros
    np.testing.assert_allclose(model.predict(X, return_std=True)[1] ** 2, variance, rtol=1e-4)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_units_of_the_target_do_not_matter(sinc, kind):
    X, y = sinc
    model = kind(Gaussian(3.0)).fit(X, y)
    for scale, shift in [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e3)]:
        other = kind(Gaussian(3.0)).fit(X, scale * y + shift)
        assert other.n_effective_ == model.n_effective_
        np.testing.assert_allclose((other.predict(X) - shift) / scale, model.predict(X), atol=1e-5)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_targets_without_noise_end_at_the_floor(kind):
    X = np.linspace(0.0, 1.0, 20)[:, np.newaxis]
    with pytest.warns(ConvergenceWarning, match="noise_floor"):
        model = kind("linear").fit(X, 3.0 * X[:, 0])
    np.testing.assert_allclose(model.noise_variance_, 1e-6 * np.var(3.0 * X))
    np.testing.assert_allclose(model.predict(X), 3.0 * X[:, 0], atol=1e-2)
    with pytest.warns(ConvergenceWarning, match="y is constant"):
        constant = kind().fit(X, np.full(20, 5.0))
    np.testing.assert_allclose(constant.predict(X), 5.0)
    assert constant.n_effective_ == 0
