"""Regression: the model, its attributes, and the limits it has to get through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from problems import PAPERS
from reference import log_evidence, posterior
from sparsebayes import RVR, SparseBayesRegressor
from sparsebayes.kernels import Custom, Gaussian, Linear


def design(model, X):
    """Active functions of a single-kernel model at X, written out."""
    inside = model.active_[model.active_ >= 0]
    if isinstance(model, SparseBayesRegressor):
        values = X[:, inside] - model.X_offset_[inside]
    else:
        values = model.kernel_(X, model.relevance_vectors_)
    return np.column_stack([*[np.ones(len(X))] * (-1 in model.active_), values])


@pytest.fixture
def basis():
    """Sixty rows of twelve random columns, of which three matter."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 12))
    return X, X[:, [1, 5, 8]] @ [2.0, -1.0, 0.5] + 0.1 * rng.normal(size=60)


# --- what is published ----------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_attributes_have_the_shapes_and_meanings_promised(sinc, fit_intercept):
    X, y = sinc
    model = RVR(Gaussian(3.0), fit_intercept=fit_intercept, complexity="none").fit(X, y)
    m, rows = len(model.active_), model.active_[model.active_ >= 0]
    assert model.status_ == "converged"
    assert model.active_.dtype == np.intp
    assert (np.diff(model.active_) > 0).all()
    assert (model.active_[0] == -1) == fit_intercept
    assert model.alpha_.shape == model.mu_.shape == (m,)
    assert model.sigma_.shape == (m, m)
    np.testing.assert_array_equal(model.alpha_ > 0, model.active_ >= 0)
    assert model.noise_variance_ == 1 / model.beta_
    assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)
    assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_
    np.testing.assert_array_equal(model.relevance_, rows)
    np.testing.assert_array_equal(model.relevance_vectors_, X[rows])
    np.testing.assert_array_equal(model.dual_coef_, [model.mu_[model.active_ >= 0]])
    np.testing.assert_array_equal(model.intercept_, [model.mu_[model.active_ == -1].sum()])
    assert not hasattr(model, "coef_")


def test_the_posterior_is_that_of_the_hyperparameters(sinc):
    X, y = sinc
    model = RVR(Gaussian(3.0), **PAPERS).fit(X, y)
    Phi = design(model, X)
    mu, sigma = posterior(Phi, y, model.alpha_, model.beta_)
    np.testing.assert_allclose(model.sigma_, sigma, rtol=1e-6, atol=1e-9 * abs(sigma).max())
    np.testing.assert_allclose(model.mu_, mu, rtol=1e-6)
    evidence = log_evidence(Phi, y, model.alpha_, model.beta_)
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=1e-8)


def test_predictions_are_those_of_the_formulas(sinc):
    X, y = sinc
    model = RVR(Gaussian(3.0), std="plain").fit(X, y)
    new = np.linspace(-15, 15, 31)[:, np.newaxis]
    mean, std = model.predict(new, return_std=True)
    phi = design(model, new)
    np.testing.assert_allclose(mean, phi @ model.mu_, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(model.predict(new), mean)
    variance = model.noise_variance_ + np.einsum("ni,ij,nj->n", phi, model.sigma_, phi)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-10)
    assert (std >= np.sqrt(model.noise_variance_)).all()


def test_the_intercept_is_a_column_of_ones(basis):
    X, y = basis
    ours = SparseBayesRegressor(fit_intercept=True, penalize_intercept=True).fit(X, y + 5.0)
    theirs = SparseBayesRegressor(fit_intercept=False).fit(np.c_[np.ones(60), X - X.mean(axis=0)], y + 5.0)
    assert ours.active_[0] == -1
    np.testing.assert_array_equal(ours.active_, theirs.active_ - 1)
    np.testing.assert_allclose(ours.mu_, theirs.mu_, rtol=1e-9)
    np.testing.assert_allclose(ours.intercept_, [5.0], atol=0.1)
    assert SparseBayesRegressor(fit_intercept=False).fit(X, y).intercept_ == 0.0


# --- equivalent models ----------------------------------------------------------------------------


def same_predictions(a, b, X_a, X_b, rtol=1e-5):
    for ours, theirs in zip(a.predict(X_a, return_std=True), b.predict(X_b, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


def test_precomputed_callable_and_named_kernels_agree(surface):
    X, y = surface
    kernel = Gaussian(3.0)
    named = RVR("rbf", gamma=1 / 9, std="plain").fit(X, y)
    precomputed = RVR("precomputed", std="plain").fit(kernel(X, X), y)
    function = RVR(lambda A, B: kernel(A, B), std="plain").fit(X, y)
    same_predictions(precomputed, named, kernel(X[:9], X), X[:9])
    same_predictions(function, named, X[:9], X[:9])
    np.testing.assert_array_equal(precomputed.active_, named.active_)
    np.testing.assert_array_equal(function.active_, named.active_)
    np.testing.assert_allclose(precomputed.dual_coef_, named.dual_coef_, rtol=1e-4)
    assert precomputed.n_features_in_ == len(X)


@pytest.mark.parametrize("combine", [lambda a, b: a + b, lambda a, b: a * b])
def test_sums_and_products_are_the_same_in_the_core_and_in_numpy(surface, combine):
    X, y = surface
    fast = combine(Gaussian(3.0), Linear([1.0, -2.0]))
    slow = combine(Gaussian(3.0), Custom(lambda A, B: (A - [1.0, -2.0]) @ (B - [1.0, -2.0]).T))
    assert slow.to_core() is None
    same_predictions(RVR(slow).fit(X, y), RVR(fast).fit(X, y), X, X)


def test_a_list_of_kernels_is_their_designs_side_by_side(surface):
    X, y = surface
    kernels = [Gaussian(2.0), Linear([0.0, 0.0]), lambda A, B: np.abs(A @ B.T)]
    model = RVR(kernels, penalize_intercept=True).fit(X, y)
    parts = [Gaussian(2.0)(X, X), X @ X.T, np.abs(X @ X.T)]
    Phi = np.hstack([np.ones((len(X), 1)), *parts])
    columns = SparseBayesRegressor(fit_intercept=False, complexity=0.5).fit(Phi, y)
    np.testing.assert_array_equal(model.active_, columns.active_ - 1)
    np.testing.assert_allclose(model.predict(X), columns.predict(Phi), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.relevance_, np.unique(model.active_[model.active_ >= 0] % len(X)))
    assert not hasattr(model, "dual_coef_")
    # All in the core, all in NumPy: the same too.
    centre = X.mean(axis=0)
    callables = ["rbf", lambda A, B: (A - centre) @ (B - centre).T]
    in_core, in_numpy = (RVR(given, gamma="scale").fit(X, y) for given in (["rbf", "linear"], callables))
    same_predictions(in_core, in_numpy, X, X)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", lambda A, B: np.exp(-np.abs(A[:, :1] - B[:, 0]))])
def test_rows_of_zero_weight_are_left_out_but_counted(surface, kernel):
    X, y = surface
    keep = np.random.default_rng(5).random(90) < 0.7
    gram = Gaussian(3.0)(X, X)
    full, part = (gram, gram[np.ix_(keep, keep)]) if kernel == "precomputed" else (X, X[keep])
    weighted = RVR(kernel).fit(full, y, sample_weight=keep)
    removed = RVR(kernel).fit(part, y[keep])
    rows = np.flatnonzero(keep)
    np.testing.assert_array_equal(weighted.relevance_, rows[removed.relevance_])
    np.testing.assert_array_equal(
        weighted.active_[weighted.active_ >= 0], rows[removed.active_[removed.active_ >= 0]]
    )
    np.testing.assert_array_equal(weighted.mu_, removed.mu_)
    new = gram[:, keep] if kernel == "precomputed" else X
    np.testing.assert_array_equal(weighted.predict(full), removed.predict(new))


def test_scores_take_weights(basis):
    X, y = basis
    model = SparseBayesRegressor(fit_intercept=False).fit(X, y + 1.0)
    only = np.arange(60) < 20
    assert model.score(X, y, only) == pytest.approx(model.score(X[only], y[only]))


# --- scales ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e4, 1e8])
def test_predictions_scale_with_the_targets(basis, surface, scale):
    for X, y, model in ((*basis, SparseBayesRegressor(fit_intercept=False)), (*surface, RVR(gamma="scale"))):
        expected = model.fit(X, y).predict(X, return_std=True)
        beta, evidence = model.beta_, model.log_marginal_likelihood_
        scaled = model.fit(X, scale * y).predict(X, return_std=True)
        np.testing.assert_allclose(np.divide(scaled, scale), expected, rtol=1e-6, atol=1e-6 * np.abs(y).max())
        np.testing.assert_allclose(model.beta_ * scale**2, beta, rtol=1e-6)
        # With a flat prior the evidence is the density of one number less.
        n = len(y) - np.count_nonzero(model.alpha_ == 0.0)
        np.testing.assert_allclose(model.log_marginal_likelihood_, evidence - n * np.log(scale), rtol=1e-7)


def test_predictions_do_not_depend_on_the_scale_of_columns(basis):
    X, y = basis
    plain = SparseBayesRegressor(fit_intercept=False).fit(X, y)
    scales = np.logspace(-6, 6, 12)
    scaled = SparseBayesRegressor(fit_intercept=False).fit(X * scales, y)
    np.testing.assert_array_equal(scaled.active_, plain.active_)
    np.testing.assert_allclose(scaled.predict(X * scales), plain.predict(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scaled.coef_ * scales, plain.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(scaled.alpha_ / scales[plain.active_] ** 2, plain.alpha_, rtol=1e-5)


# --- limits ---------------------------------------------------------------------------------------

quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@quietly
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("make", [RVR, SparseBayesRegressor])
def test_a_handful_of_rows_can_be_fitted(make, n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    model = make().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.isfinite(model.log_marginal_likelihood_)


@quietly
@pytest.mark.parametrize("value", [0.0, 3.0, -1e-8, 1e8])
def test_constant_targets_are_predicted(value):
    X = np.linspace(0, 1, 20)[:, np.newaxis]
    model = RVR(gamma="scale").fit(X, np.full(20, value))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=1e-3, atol=1e-300)
    assert np.isfinite(std).all()


@quietly
def test_targets_of_zero_need_no_function():
    model = SparseBayesRegressor(fit_intercept=False).fit(np.eye(4), np.zeros(4))
    assert model.active_.shape == model.mu_.shape == (0,)
    assert model.sigma_.shape == (0, 0)
    np.testing.assert_array_equal(model.predict(np.eye(4)), 0.0)
    np.testing.assert_array_equal(model.coef_, 0.0)


def test_exact_interpolation_stops_at_the_noise_floor_and_warns():
    X = np.random.default_rng(0).normal(size=(30, 60))
    y = X[:, 3] - 2 * X[:, 40]
    with pytest.warns(ConvergenceWarning, match="noise_floor.*[sS]et noise_variance"):
        model = SparseBayesRegressor(fit_intercept=False).fit(X, y)
    assert model.status_ == "noise_floor"
    np.testing.assert_allclose(model.noise_variance_, 1e-6 * y.var(), rtol=1e-6)
    assert {3, 40} <= set(model.active_)
    np.testing.assert_allclose(model.coef_[[3, 40]], [1.0, -2.0], atol=1e-2)


@pytest.mark.parametrize("n", range(20, 50))
def test_a_noise_level_that_reaches_its_floor_never_passes_for_converged(n):
    # Reached by a step through logarithms, the floor may be missed by the last bit.
    X = np.linspace(-1, 1, n)[:, np.newaxis]
    for y in (2.0 * X[:, 0], np.hstack([2.0 * X, -X])):
        with pytest.warns(ConvergenceWarning, match="noise_floor"):
            model = RVR("linear").fit(X, y)
        assert model.status_ == "noise_floor"


@pytest.mark.parametrize("seed", [0, 5, 6, 15])
def test_nearly_equal_functions_end_in_a_model(seed):
    # Widths of most of the range: alphas come to 1e-10, and updates lose the definiteness of the precision.
    # Round-off decides whether an alpha reaches its floor first.
    # Without a limit on the error of the means, predictions of two of these were 1e2 and 5e8.
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (20_000, 2))
    truth = np.sinc(np.hypot(*X.T) / np.pi)
    w = rng.uniform(0, 2, len(X))
    with pytest.warns(ConvergenceWarning, match="stalled|alpha_floor"):
        model = RVR(candidates=100, random_state=0, gamma="scale").fit(
            X, truth + 0.1 * rng.normal(size=len(X)), w
        )
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.02


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, k = draw(st.integers(3, 20)), draw(st.integers(1, 25))
    X = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-2, 2, k)
    if draw(st.booleans()):
        X[:, rng.integers(k)] = X[:, rng.integers(k)]
    return X, rng.normal(size=n) + X @ (rng.normal(size=k) * (rng.random(k) < 0.2))


@quietly
@settings(max_examples=30)
@given(problem=problems(), data=st.data())
def test_the_order_of_rows_does_not_matter(problem, data):
    X, y = problem
    order = data.draw(st.permutations(range(len(y))))
    first = SparseBayesRegressor(fit_intercept=False, noise_variance=0.5).fit(X, y)
    second = SparseBayesRegressor(fit_intercept=False, noise_variance=0.5).fit(X[order], y[order])
    np.testing.assert_array_equal(first.active_, second.active_)
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-4, atol=1e-4 * np.abs(y).max())


# --- counts ---------------------------------------------------------------------------------------


@pytest.fixture
def counts():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(200, 5))
    return X, rng.poisson(np.exp(0.5 + X[:, 0] - 0.5 * X[:, 3])).astype(float)


def test_a_poisson_likelihood_finds_the_rate(counts):
    X, y = counts
    model = SparseBayesRegressor(likelihood="poisson", fit_intercept=True).fit(X, y)
    assert model.status_ == "converged"
    most_likely = PoissonRegressor(alpha=0.0, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_, most_likely.coef_, atol=0.1)
    np.testing.assert_allclose(model.intercept_, most_likely.intercept_, atol=0.1)
    np.testing.assert_array_equal(model.coef_ == 0.0, [False, True, True, False, True])
    assert not hasattr(model, "beta_")
    assert not hasattr(model, "noise_variance_")


def test_poisson_predictions_are_those_of_the_formulas(counts):
    X, y = counts
    model = SparseBayesRegressor(likelihood="poisson", fit_intercept=True).fit(X, y)
    mean, std = model.predict(X[:5], return_std=True)
    phi = design(model, X[:5])
    np.testing.assert_allclose(mean, np.exp(phi @ model.mu_), rtol=1e-12)
    rng = np.random.default_rng(0)
    draws = rng.poisson(np.exp(phi @ rng.multivariate_normal(model.mu_, model.sigma_, size=200_000).T))
    np.testing.assert_allclose(std, draws.std(axis=1), rtol=0.02)


def test_poisson_scores_are_fractions_of_deviance(counts):
    X, y = counts
    model = SparseBayesRegressor(likelihood="poisson", fit_intercept=True).fit(X, y)
    weights = np.arange(200.0)
    explained = 1 - mean_poisson_deviance(y, model.predict(X), sample_weight=weights) / mean_poisson_deviance(
        y, np.full(200, np.average(y, weights=weights)), sample_weight=weights
    )
    assert model.score(X, y, weights) == pytest.approx(explained)


@pytest.mark.parametrize("noise", [None, 0.01])
@pytest.mark.parametrize("kernel", ["rbf", ["rbf", "linear"], "precomputed"])
def test_problems_hold_all_the_evidence_depends_on(surface, kernel, noise):
    X, y = surface
    data = Gaussian(2.0)(X, X) if kernel == "precomputed" else X
    weights = np.arange(90) % 4 / 2.0
    model = RVR(kernel, gamma="scale", noise_variance=noise, **PAPERS).fit(data, y, weights)
    (problem,) = model._problems(data, y, weights)
    n = np.count_nonzero(weights)
    assert problem.Phi.shape == (n, 1 + n * (2 if isinstance(kernel, list) else 1))
    assert problem.noise == ("estimated" if noise is None else "fixed")
    assert problem.likelihood == "gaussian"
    Phi = problem.Phi[:, problem.active]
    eta = np.zeros(len(problem.target)) + Phi @ model.mu_
    np.testing.assert_allclose(eta, model.predict(data)[weights > 0], rtol=1e-9, atol=1e-9)
    evidence = log_evidence(Phi, problem.target, problem.alpha, problem.beta, problem.weights)
    np.testing.assert_allclose(problem.log_evidence, evidence, rtol=1e-7)
