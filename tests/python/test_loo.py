"""Leave-one-out densities: against fits of the other rows, and dense formulas."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm, poisson
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import reference
import softmax_reference
from sparsebayes import (
    RVC,
    RVR,
    OverfitWarning,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
    load,
)
from sparsebayes.providers import RowPart

N = 40


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(N, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=N), rng


def functions(model, X):
    """The active functions at X, from published attributes."""
    bias = np.ones((len(X), int(model.active_[0] == -1)))
    if hasattr(model, "kernel_"):
        return np.hstack([bias, model.kernel_(X, model.relevance_vectors_)])
    return np.hstack([bias, (X - model.X_offset_)[:, model.active_[model.active_ >= 0]]])


def refitted(model, Phi, y, w, noise):
    """Log density and coverage of each row, from the posterior of the others."""
    density, inside = np.full(N, np.nan), np.full(N, np.nan)
    for n in np.flatnonzero(w):
        others = np.flatnonzero((np.arange(N) != n) & (w > 0.0))
        mu, Sigma = reference.posterior(Phi[others], y[others], model.alpha_, 1.0, w[others] / noise[others])
        predictive = norm(Phi[n] @ mu, np.sqrt(Phi[n] @ Sigma @ Phi[n] + noise[n]))
        density[n] = predictive.logpdf(y[n])
        inside[n] = 0.025 <= predictive.cdf(y[n]) <= 0.975
    return density, np.average(inside[w > 0.0], weights=w[w > 0.0])


def assert_is_refitted(model, found):
    assert_allclose(model.loo_, found[0], rtol=1e-8, atol=1e-10)
    assert_allclose(model.loo_coverage_, found[1], rtol=1e-12)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", [lambda **arguments: RVR(gamma=0.1, **arguments), SparseBayesRegressor])
def test_a_gaussian_is_that_of_the_posterior_of_the_other_rows(rows, kind, flat):
    X, y, rng = rows
    for weights in (None, rng.integers(0, 4, N), rng.uniform(0.1, 3.0, N)):
        model = kind(penalize_intercept=not flat).fit(X, y, sample_weight=weights)
        w = np.ones(N) if weights is None else np.asarray(weights, float)
        noise = np.full(N, model.noise_variance_)
        assert_is_refitted(model, refitted(model, functions(model, X), y, w, noise))


def test_models_with_a_function_for_almost_every_row_keep_the_digits():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=50)
    w = rng.integers(1, 60, 50).astype(float)
    with pytest.warns(OverfitWarning, match="stalled"):
        model = RVR(gamma=0.5).fit(X, y, sample_weight=w)
    Phi, root = functions(model, X), np.sqrt(w / model.noise_variance_)
    expected = []
    for n in range(50):
        others = np.arange(50) != n
        rows = np.vstack([root[others, np.newaxis] * Phi[others], np.diag(np.sqrt(model.alpha_))])
        Q, R = np.linalg.qr(rows)  # the covariance of the weights has lost its digits
        mu = np.linalg.solve(R, Q[:49].T @ (root * y)[others])
        variance = np.sum(np.linalg.solve(R.T, Phi[n]) ** 2) + model.noise_variance_
        expected.append(norm(Phi[n] @ mu, np.sqrt(variance)).logpdf(y[n]))
    assert_allclose(model.loo_, expected, rtol=1e-3)


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3])
def test_known_noise_of_a_row_is_its_own(rows, weights):
    X, y, rng = rows
    y_std = rng.uniform(0.2, 2.0, N)
    model = RVR(gamma=0.3).fit(X, y, sample_weight=weights, y_std=y_std)
    w = np.ones(N) if weights is None else weights.astype(float)
    found = refitted(model, functions(model, X), y, w, model.noise_variance_ * y_std**2)
    assert_is_refitted(model, found)


@pytest.mark.parametrize("shared", [True, False])
def test_several_outputs_have_a_column_each(rows, shared):
    X, y, _ = rows
    Y = np.column_stack([y, y**2])
    model = RVR(gamma=0.3, shared_noise=shared).fit(X, Y)
    assert model.loo_.shape == (N, 2)
    assert model.loo_coverage_.shape == (2,)
    for c, noise in enumerate(np.broadcast_to(model.noise_variance_, 2)):
        found = refitted(model, functions(model, X), Y[:, c], np.ones(N), np.full(N, noise))
        assert_allclose(model.loo_[:, c], found[0], rtol=1e-8, atol=1e-10)
        assert_allclose(model.loo_coverage_[c], found[1], rtol=1e-12)


def test_columns_of_a_transformer_and_kernel_values_are_those_of_the_fit(rows):
    X, y, _ = rows
    calls = []

    def trend(X):
        calls.append(len(X))
        return X**2

    model = RVR(gamma=0.3, extra_basis=trend).fit(X, y)
    assert len(calls) == 1
    assert_allclose(model.loo_, RVR(gamma=0.3, extra_basis=lambda X: X**2).fit(X, y).loo_)
    K = model.kernel_(X, X)
    assert_allclose(RVR("precomputed").fit(K, y).loo_, RVR(gamma=0.3).fit(X, y).loo_, rtol=1e-8)


def cavity(Phi, mu, Sigma, slope, curvature):
    """Moments of each linear predictor from the other rows, by the posterior precision without the row."""
    H = np.linalg.inv(Sigma)
    for phi, e, b in zip(Phi, slope, curvature, strict=True):
        Sigma_without = np.linalg.inv(H - b * np.outer(phi, phi))
        mu_without = Sigma_without @ (H @ mu - phi * (e + b * (phi @ mu)))
        yield phi @ mu_without, phi @ Sigma_without @ phi


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_have_the_cavity_of_the_laplace_approximation(rows, weighted):
    X, y, rng = rows
    w = rng.uniform(0.5, 2.0, N) if weighted else np.ones(N)
    for flat in (True, False):
        model = SparseBayesClassifier(penalize_intercept=not flat).fit(X, y > 0.2, sample_weight=w)
        Phi, t = functions(model, X), (y > 0.2).astype(float)
        slope, B = reference.slope_and_curvature("bernoulli", Phi @ model.mu_, t, w)
        for n, (m, v) in enumerate(cavity(Phi, model.mu_, model.sigma_, slope, B)):
            p = expit(m / np.sqrt(1.0 + np.pi * v / 8.0))
            assert_allclose(model.loo_[n], np.log(p if t[n] else 1.0 - p), rtol=1e-7)


def test_the_cavity_is_close_to_a_fit_of_the_other_rows(rows):
    X, y, _ = rows
    t = (y > 0.2).astype(float)
    model = RVC(gamma=0.3).fit(X, t)
    Phi, found = functions(model, X), np.empty(N)
    for n in range(N):
        others = np.arange(N) != n
        mu, Sigma = reference.laplace_mode(Phi[others], t[others], model.alpha_)
        p = reference.moderated_probability(Phi[[n]], mu, Sigma)[0]
        found[n] = np.log(p if t[n] else 1.0 - p)
    assert abs(model.loo_.mean() - found.mean()) < 0.02
    plain = np.log(model.predict_proba(X)[np.arange(N), t.astype(int)])
    assert abs(model.loo_.mean() - found.mean()) < 0.2 * abs(plain.mean() - found.mean())
    assert not hasattr(model, "loo_coverage_")


def test_several_classes_have_the_density_of_their_probability(rows):
    X, y, _ = rows
    labels = np.array(["c", "a", "b"])[np.digitize(y, [-0.5, 0.7])]
    model = RVC(gamma=0.3).fit(X, labels)
    logits = np.empty((N, 3))
    for c, label in enumerate(model.classes_):
        used = np.isfinite(model.alpha_[:, c])
        Phi, mu = functions(model, X)[:, used], model.mu_[used, c]
        slope, B = reference.slope_and_curvature("bernoulli", Phi @ mu, labels == label, np.ones(N))
        moments = cavity(Phi, mu, model.sigma_[c][np.ix_(used, used)], slope, B)
        logits[:, c] = [m / np.sqrt(1.0 + np.pi * v / 8.0) for m, v in moments]
    others = expit(-logits)
    p = np.column_stack([expit(logits[:, c]) * np.delete(others, c, axis=1).prod(axis=1) for c in range(3)])
    p /= p.sum(axis=1, keepdims=True)
    assert_allclose(model.loo_, np.log(p[np.arange(N), np.searchsorted(model.classes_, labels)]), rtol=1e-7)


def test_a_softmax_has_the_cavity_of_all_logits(rows):
    X, y, _ = rows
    labels = np.digitize(y, [-0.5, 0.7])
    w = np.linspace(0.5, 2.0, N)
    model = SparseBayesClassifier(multi_class="softmax").fit(X, labels, sample_weight=w)
    used = np.isfinite(model.alpha_.T).ravel()
    expanded = softmax_reference.expand(functions(model, X), 3)[:, :, used]
    mu, H = model.mu_.T.ravel()[used], np.linalg.inv(model.sigma_)
    slope, W = softmax_reference.slope_and_curvature(expanded @ mu, labels, w)
    for n, phi in enumerate(expanded):
        Sigma = np.linalg.inv(H - phi.T @ W[n] @ phi)
        m = phi @ Sigma @ (H @ mu - phi.T @ (slope[n] + W[n] @ phi @ mu))
        V = phi @ Sigma @ phi.T
        spread = np.diag(V)[:, None] + np.diag(V) - 2.0 * V
        kappa = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * spread)
        p = 1.0 / np.exp(-kappa * (m[:, None] - m)).sum(axis=1)
        assert_allclose(model.loo_[n], np.log(p[labels[n]] / p.sum()), rtol=1e-6)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_counts_have_the_mean_density_over_the_cavity(rows, scale):
    X, _, rng = rows
    y = rng.poisson(scale * np.exp(0.5 * X[:, 0]))
    w = rng.integers(0, 3, N)
    model = SparseBayesRegressor(likelihood="poisson", complexity="none").fit(X, y, sample_weight=w)
    Phi, inside = functions(model, X), []
    slope, B = reference.slope_and_curvature("poisson", Phi @ model.mu_, y, w)
    for n, (m, v) in enumerate(cavity(Phi, model.mu_, model.sigma_, slope, B)):
        if w[n] == 0:
            assert np.isnan(model.loo_[n])
            continue
        prior, s = norm(m, np.sqrt(v)), np.sqrt(v)

        def mean_of(density, prior=prior, m=m, s=s):
            return quad(lambda eta: density(np.exp(eta)) * prior.pdf(eta), m - 9 * s, m + 9 * s, limit=200)[0]

        assert_allclose(model.loo_[n], np.log(mean_of(lambda rate, n=n: poisson.pmf(y[n], rate))), rtol=1e-5)
        tails = [mean_of(lambda rate, k=k: poisson.cdf(k, rate)) for k in (y[n], y[n] - 1)]
        inside.append(tails[0] >= 0.025 and tails[1] < 0.975)
    assert_allclose(model.loo_coverage_, np.average(inside, weights=w[w > 0]))


def test_a_row_without_leverage_has_the_plain_density():
    X = np.r_[np.zeros((30, 1)), np.linspace(5.0, 9.0, 30)[:, np.newaxis]]
    y = np.r_[0.1 * np.cos(37.0 * np.arange(30)), np.sin(X[30:, 0])]
    model = RVR(gamma=2.0, fit_intercept=False, std="plain").fit(X, y)
    mean, std = model.predict(X, return_std=True)
    plain = norm(mean, std).logpdf(y)
    assert (model.loo_ < plain + 0.05).all()
    assert model.loo_.sum() < plain.sum()


@pytest.mark.parametrize("scheme", ["mackay", "em", "variational"])
@pytest.mark.parametrize("kind", [RVR, RVC])
def test_all_schemes_have_them(rows, kind, scheme):
    X, y, _ = rows
    y = y > 0.0 if kind is RVC else y
    found = kind(gamma=0.3, scheme=scheme).fit(X, y).loo_
    assert_allclose(found.mean(), kind(gamma=0.3).fit(X, y).loo_.mean(), atol=0.1)


def test_they_predict_the_density_of_new_rows(rows):
    _, _, rng = rows
    X = rng.uniform(-3.0, 3.0, size=(1200, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=1200)
    model = RVR(gamma=0.1).fit(X[:200], y[:200])
    mean, std = model.predict(X[200:], return_std=True)
    assert_allclose(model.loo_.mean(), norm(mean, std).logpdf(y[200:]).mean(), atol=0.1)
    assert abs(model.loo_coverage_ - np.mean(np.abs(y[200:] - mean) < 1.96 * std)) < 0.04


def test_rows_that_are_not_in_memory_have_none(rows):
    X, y, _ = rows
    models = [
        SparseBayesRegressor().fit([(X[:20], y[:20]), (X[20:], y[20:])]),
        SparseBayesRegressor().fit(X, y).partial_fit(X, y),
        SparseBayesRegressor().fit_statistics(SufficientStatistics(2).update(X, y)),
        SparseBayesRegressor(fit_intercept=False).fit_provider(RowPart(X, y)),
        SparseBayesClassifier().fit([(X, y > 0.0)]),
    ]
    for model in models:
        assert not hasattr(model, "loo_")
        with pytest.raises(
            AttributeError, match=r"loo_ needs the rows of the fit.*fit it to arrays in memory"
        ):
            _ = model.loo_
    with pytest.raises(NotFittedError):
        _ = RVR(gamma="scale").loo_


def test_pickles_keep_them_and_served_models_do_not(rows, tmp_path):
    X, y, _ = rows
    model = RVR(gamma=0.3, std="plain").fit(X, y)
    assert_allclose(pickle.loads(pickle.dumps(model)).loo_, model.loo_, rtol=0.0)
    assert not hasattr(clone(model), "loo_")
    model.save(tmp_path / "model")
    assert not hasattr(load(tmp_path / "model"), "loo_")
    assert (tmp_path / "model").stat().st_size < 8 * N + 2000


def test_models_without_functions_have_the_density_of_the_mean(rows):
    y = rows[2].normal(size=N)
    model = SparseBayesRegressor(penalize_intercept=False, noise_variance=1.0)
    with pytest.warns(UserWarning, match="the model has no"):
        model.fit(np.zeros((N, 1)), y)
    others = (y.sum() - y) / (N - 1)
    assert_allclose(model.loo_, norm(others, np.sqrt(1.0 + 1.0 / (N - 1))).logpdf(y), rtol=1e-9)
