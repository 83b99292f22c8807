"""Several outputs of one regression: shared functions and precisions, noise of each or of all."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

import reference
from problems import PAPERS, assert_certified
from sparsebayes import RVR, SparseBayesRegressor, _core
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

# --- the reference: dense, slow, written for this purpose ------------------------------------------


def log_evidence(Phi, Y, alpha, beta):
    """Sum over the outputs of ln N(t_c; 0, C_c)."""
    levels = np.broadcast_to(beta, Y.shape[1])
    return sum(reference.log_evidence(Phi, t, alpha, b) for t, b in zip(Y.T, levels, strict=True))


def best_alpha(s, q):
    """Scan ln alpha, then refine about the best point; infinite where nothing is gained."""
    scan = np.linspace(-25, 25, 1001)

    def loss(ln_alpha):
        return -reference.contribution(np.exp(ln_alpha)[..., np.newaxis], s, q).sum(axis=-1)

    k = int(np.argmin(loss(scan)))
    around = (scan[max(k - 1, 0)], scan[min(k + 1, len(scan) - 1)])
    found = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-10})
    return np.exp(found.x) if -found.fun > 1e-9 else np.inf


def left_out(Phi, Y, alpha, beta, j):
    """Sparsity and quality factors of function j for each output, with j left out of the covariance."""
    rest = np.flatnonzero(np.isfinite(alpha) & (np.arange(len(alpha)) != j))
    each = [reference.statistics(Phi, t, rest, alpha[rest], b) for t, b in zip(Y.T, beta, strict=True)]
    return np.array([of.S[j] for of in each]), np.array([of.Q[j] for of in each])


def new_noise(Phi, Y, alpha, beta, *, shared):
    """The fixed point of the noise precisions: (N - sum of gamma) / squared residual, pooled if shared."""
    inside = np.flatnonzero(np.isfinite(alpha))
    degrees, residual = [], []
    for t, b in zip(Y.T, beta, strict=True):
        mu, Sigma = reference.posterior(Phi[:, inside], t, alpha[inside], b)
        degrees.append(len(t) - np.sum(1 - alpha[inside] * np.diag(Sigma)))
        residual.append(np.sum((t - Phi[:, inside] @ mu) ** 2))
    if shared:
        return np.full(len(beta), np.sum(degrees) / np.sum(residual))
    return np.array(degrees) / np.array(residual)


def reference_fit(Phi, Y, *, shared=False, beta=None, rounds=400):
    """Coordinate ascent: each alpha to its maximum in turn, then the noise, until nothing moves."""
    alpha = np.full(Phi.shape[1], np.inf)
    given, n_outputs = beta is not None, Y.shape[1]
    beta = np.broadcast_to(beta, n_outputs) if given else 10 / Y.var(axis=0)
    if shared and not given:
        beta = np.full(n_outputs, 10 / Y.var())
    for turn in range(rounds):
        before = (alpha.copy(), beta)
        for j in range(len(alpha)):
            alpha[j] = best_alpha(*left_out(Phi, Y, alpha, beta, j))
        if not given and turn > 2:
            beta = new_noise(Phi, Y, alpha, beta, shared=shared)
        if turn > 2:
            same = np.array_equal(np.isfinite(alpha), np.isfinite(before[0]))
            inside = np.isfinite(alpha)
            if same and np.allclose(alpha[inside], before[0][inside], rtol=1e-7):
                break
    return alpha, beta


# --- data ------------------------------------------------------------------------------------------


@pytest.fixture
def basis():
    """Fifty rows of eight columns, of which three matter, to three outputs of different noise."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 8))
    W = np.array([[2.0, -1.0, 0.5], [-1.5, 0.7, 1.0], [0.8, 1.2, -2.0]])
    return X, X[:, [1, 4, 6]] @ W + rng.normal(size=(50, 3)) * [0.1, 0.3, 0.6]


@pytest.fixture
def waves():
    """One input, three smooth outputs of different noise, 120 rows."""
    rng = np.random.default_rng(6)
    X = np.sort(rng.uniform(-10, 10, (120, 1)), axis=0)
    clean = np.column_stack([np.sinc(X[:, 0] / np.pi), np.sin(X[:, 0] / 2), 0.1 * X[:, 0]])
    return X, clean + rng.normal(size=clean.shape) * [0.05, 0.2, 0.4], clean


# --- against the reference -------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_the_fit_is_that_of_the_reference(basis, shared, given):
    X, Y = basis
    noise = None if not given else 0.09 if shared else np.array([0.01, 0.09, 0.36])
    settings = {"shared_noise": shared, "noise_variance": noise}
    model = SparseBayesRegressor(fit_intercept=False, **settings, **PAPERS).fit(X, Y)
    alpha, beta = reference_fit(X, Y, shared=shared, beta=None if noise is None else 1 / np.array(noise))
    inside = np.flatnonzero(np.isfinite(alpha))
    np.testing.assert_array_equal(model.active_, inside)
    np.testing.assert_allclose(model.alpha_, alpha[inside], rtol=1e-4)
    np.testing.assert_allclose(model.beta_, beta[0] if shared else beta, rtol=1e-5)
    expected = log_evidence(X[:, inside], Y, alpha[inside], beta)
    np.testing.assert_allclose(model.log_marginal_likelihood_, expected, rtol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_posterior_and_predictions_are_those_of_the_formulas(waves, shared):
    X, Y, _ = waves
    model = RVR(Gaussian(3.0), shared_noise=shared, std="plain", **PAPERS).fit(X, Y)
    assert_certified(model, X, Y)
    Phi = np.column_stack(
        [np.ones(len(X))] * (-1 in model.active_) + [model.kernel_(X, model.relevance_vectors_)]
    )
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X))
    for c in range(3):
        beta = model.beta_ if shared else model.beta_[c]
        mu, sigma = reference.posterior(Phi, Y[:, c], model.alpha_, beta)
        published = model.sigma_ if shared else model.sigma_[c]
        np.testing.assert_allclose(published, sigma, rtol=1e-6, atol=1e-9 * abs(sigma).max())
        np.testing.assert_allclose(model.mu_[:, c], mu, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(mean[:, c], Phi @ mu, rtol=1e-7, atol=1e-9)
        variance = 1 / beta + np.einsum("ni,ij,nj->n", Phi, sigma, Phi)
        np.testing.assert_allclose(std[:, c], np.sqrt(variance), rtol=1e-7)
    expected = log_evidence(Phi, Y, model.alpha_, model.beta_)
    np.testing.assert_allclose(model.log_marginal_likelihood_, expected, rtol=1e-8)


# With more columns than rows the noise may well go to its floor, where a warning is right.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n_outputs=st.integers(2, 5),
    n_columns=st.integers(2, 40),
    shared=st.booleans(),
    noise=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_random_problems_end_certified(seed, n_outputs, n_columns, shared, noise):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, n_columns)) * np.exp(rng.normal(size=n_columns))
    signal = X[:, :3] @ rng.normal(size=(min(3, n_columns), n_outputs))
    Y = signal + noise * np.exp(rng.normal(size=n_outputs)) * rng.normal(size=(25, n_outputs))
    model = SparseBayesRegressor(fit_intercept=False, shared_noise=shared, n_jobs=1)
    model.fit(X, Y)
    assert model.status_ in ("converged", "noise_floor", "empty")
    assert_certified(model, X, Y, status=model.status_)


# --- the ordinary model as a special case ----------------------------------------------------------


def test_one_output_of_the_joint_solver_is_the_ordinary_model(basis):
    X, Y = basis
    alone = SparseBayesRegressor(fit_intercept=False, **PAPERS).fit(X, Y[:, 1])
    for shared in (False, True):
        joint = _core.fit_dense_outputs(np.asfortranarray(X), Y[:, [1]].copy("F"), shared_noise=shared)
        np.testing.assert_array_equal(joint.active, alone.active_)
        np.testing.assert_allclose(joint.log_evidence, alone.log_marginal_likelihood_, rtol=1e-10)
        np.testing.assert_allclose(X[:, joint.active] @ joint.mu[:, 0], alone.predict(X), rtol=1e-6)


def test_a_single_column_is_the_ordinary_model(waves):
    X, Y, _ = waves
    alone = RVR(Gaussian(3.0)).fit(X, Y[:, 0])
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        column = RVR(Gaussian(3.0), shared_noise=True).fit(X, Y[:, [0]])
    assert column.mu_.ndim == 1
    np.testing.assert_array_equal(column.predict(X), alone.predict(X))


@pytest.mark.parametrize("n_outputs", [2, 5])
@pytest.mark.parametrize("shared", [False, True])
def test_equal_outputs_are_one_output_several_times(basis, n_outputs, shared):
    X, Y = basis
    # The outputs would share a part of the price that "ebic" puts on a function.
    settings = {"fit_intercept": False, "complexity": "bic"}
    alone = SparseBayesRegressor(**settings).fit(X, Y[:, 0])
    model = SparseBayesRegressor(**settings, shared_noise=shared).fit(
        X, np.repeat(Y[:, [0]], n_outputs, axis=1)
    )
    np.testing.assert_array_equal(model.active_, alone.active_)
    np.testing.assert_allclose(model.alpha_, alone.alpha_, rtol=1e-5)
    np.testing.assert_allclose(model.mu_, np.repeat(alone.mu_[:, np.newaxis], n_outputs, axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, n_outputs * alone.log_marginal_likelihood_, rtol=1e-9
    )


# --- invariances -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_permuting_outputs_permutes_the_model(basis, shared):
    X, Y = basis
    order = [2, 0, 1]
    model = SparseBayesRegressor(fit_intercept=False, shared_noise=shared).fit(X, Y)
    permuted = SparseBayesRegressor(fit_intercept=False, shared_noise=shared).fit(X, Y[:, order])
    np.testing.assert_allclose(permuted.coef_, model.coef_[order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(permuted.alpha_, model.alpha_, rtol=1e-5)
    if not shared:
        np.testing.assert_allclose(permuted.noise_variance_, model.noise_variance_[order], rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-8, 1e-2, 1e8])
@pytest.mark.parametrize("shared", [False, True])
def test_scaling_all_outputs_alike_scales_the_model(basis, factor, shared):
    X, Y = basis
    model = SparseBayesRegressor(fit_intercept=False, shared_noise=shared).fit(X, Y)
    scaled = SparseBayesRegressor(fit_intercept=False, shared_noise=shared).fit(X, factor * Y)
    np.testing.assert_allclose(scaled.coef_, factor * model.coef_, rtol=1e-6, atol=1e-9 * factor)
    np.testing.assert_allclose(scaled.alpha_, model.alpha_ / factor**2, rtol=1e-5)
    np.testing.assert_allclose(scaled.noise_variance_, model.noise_variance_ * factor**2, rtol=1e-6)
    np.testing.assert_allclose(
        scaled.log_marginal_likelihood_, model.log_marginal_likelihood_ - Y.size * np.log(factor), rtol=1e-8
    )


def test_a_rotation_of_outputs_with_shared_noise_rotates_the_model(basis):
    X, Y = basis
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    model = SparseBayesRegressor(fit_intercept=False, shared_noise=True).fit(X, Y)
    rotated = SparseBayesRegressor(fit_intercept=False, shared_noise=True).fit(X, Y @ rotation)
    np.testing.assert_allclose(rotated.alpha_, model.alpha_, rtol=1e-5)
    np.testing.assert_allclose(rotated.coef_, rotation.T @ model.coef_, rtol=1e-5, atol=1e-8)
    assert rotated.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_, rel=1e-9)


def test_common_rows_are_found_where_separate_fits_fail():
    """Multiple measurement vectors: 30 measurements of 120 sources, 10 of them active, five snapshots."""
    rng = np.random.default_rng(11)
    wrong_joint, wrong_apart, error_joint, error_apart = 0, 0, 0.0, 0.0
    for _ in range(4):
        Phi = rng.normal(size=(30, 120)) / np.sqrt(30)
        truth = np.zeros((120, 5))
        rows = rng.choice(120, 10, replace=False)
        truth[rows] = rng.normal(size=(10, 5))
        Y = Phi @ truth + 0.02 * rng.normal(size=(30, 5))
        joint = SparseBayesRegressor(shared_noise=True, noise_variance=0.02**2).fit(Phi, Y).coef_.T
        fits = [SparseBayesRegressor(noise_variance=0.02**2).fit(Phi, t) for t in Y.T]
        apart = np.column_stack([fit.coef_ for fit in fits])
        found = np.flatnonzero(np.abs(joint).max(axis=1) > 0.1)
        wrong_joint += len(np.setxor1d(found, rows))
        wrong_apart += len(np.setxor1d(np.flatnonzero(np.abs(apart).max(axis=1) > 0.1), rows))
        error_joint += np.sum((joint - truth) ** 2)
        error_apart += np.sum((apart - truth) ** 2)
    assert wrong_joint == 0
    assert wrong_apart > 10
    assert error_joint < 0.1 * error_apart


# --- the estimator contract ------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_attributes_have_the_shapes_promised(waves, shared):
    X, Y, _ = waves
    model = RVR(Gaussian(3.0), shared_noise=shared, complexity="none").fit(X, Y)
    m, relevant = len(model.active_), len(model.relevance_)
    assert model.alpha_.shape == (m,)
    assert model.mu_.shape == (m, 3)
    assert model.sigma_.shape == ((m, m) if shared else (3, m, m))
    assert np.shape(model.beta_) == np.shape(model.noise_variance_) == (() if shared else (3,))
    assert model.dual_coef_.shape == (3, relevant)
    assert model.intercept_.shape == (3,)
    assert model.log_marginal_likelihood_path_.shape == (model.n_iter_ + 1,)
    assert model.log_marginal_likelihood_path_[-1] == model.log_marginal_likelihood_
    linear = RVR("linear").fit(np.c_[X, X**2], Y)
    assert linear.coef_.shape == (3, 2)


def test_every_step_raises_the_evidence_at_given_noise(basis):
    X, Y = basis
    records = []
    model = SparseBayesRegressor(fit_intercept=False, noise_variance=0.1, callback=records.append).fit(X, Y)
    path = model.log_marginal_likelihood_path_
    assert (np.diff(path) >= -1e-9 * abs(path[-1])).all()
    for record, gain in zip(records, np.diff(path), strict=True):
        assert record.gain == pytest.approx(gain, abs=1e-8)
    assert records[-1].noise_variance == pytest.approx(0.1)
    assert records[-1].n_active == len(model.active_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shared", [False, True])
def test_targets_that_are_all_zero_or_constant_are_fitted(waves, shared):
    X, Y, _ = waves
    for odd in (np.zeros(120), np.full(120, 3.0)):
        model = RVR(Gaussian(3.0), shared_noise=shared).fit(X, np.c_[Y[:, 0], odd])
        np.testing.assert_allclose(model.predict(X)[:, 1], odd, atol=0.05)
        assert np.isfinite(model.log_marginal_likelihood_)
    nothing = RVR(shared_noise=shared, gamma="scale").fit(X, np.zeros((120, 2)))
    assert not nothing.predict(X).any()


def test_an_output_without_noise_is_reported(basis):
    X, Y = basis
    exact = np.c_[X[:, 0] - 2 * X[:, 3], Y[:, 1]]
    with pytest.warns(ConvergenceWarning, match="noise_floor"):
        model = SparseBayesRegressor(fit_intercept=False).fit(X, exact)
    assert model.status_ == "noise_floor"
    assert model.noise_variance_[0] < 1e-4 < model.noise_variance_[1]
    assert_certified(model, X, exact, status="noise_floor")


def test_the_certificate_detects_changed_models(basis):
    X, Y = basis
    model = SparseBayesRegressor(fit_intercept=False).fit(X, Y)
    kept, alpha, beta = model.active_, model.alpha_, model.beta_
    model.alpha_ = alpha * np.where(np.arange(len(alpha)) == 1, 1.1, 1.0)
    assert certificate(model, X, Y).max_log_alpha_change == pytest.approx(np.log(1.1), rel=0.05)
    model.alpha_, model.beta_ = alpha, beta * [1.0, 1.2, 1.0]
    assert certificate(model, X, Y).log_beta_residual > 0.1
    model.beta_, model.active_, model.alpha_, model.mu_ = beta, kept[1:], alpha[1:], model.mu_[1:]
    found = certificate(model, X, Y, exchanges=True)
    assert found.max_gain_outside > 10.0
    assert found.max_gain_exchange is None  # there is no such number for several outputs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": np.zeros((50, 2, 2))}, "y must have the shape"),
        ({"Y": np.zeros((50, 0))}, "y must have the shape"),
        ({"Y": np.full((50, 2), np.nan)}, "y contains NaN"),
        ({"Y": np.full((50, 2), "a")}, "y"),
        ({"Y": np.zeros((49, 2))}, "same number of rows"),
        ({"likelihood": "poisson", "Y": np.ones((50, 2))}, "y .*poisson"),
        ({"noise_variance": [1.0, 2.0]}, "one for each of the 3 columns"),
        ({"noise_variance": [1.0, 2.0, -1.0]}, "noise_variance must be a positive"),
        ({"noise_variance": [1.0, 2.0, 3.0], "shared_noise": True}, "one number with shared_noise"),
        ({"noise_variance": [1.0, 2.0, 3.0], "Y": np.ones(50)}, "one number if y has one column"),
        ({"shared_noise": "yes"}, "shared_noise must be True or False"),
        ({"shared_noise": "yes", "Y": np.ones(50)}, "shared_noise must be True or False"),
    ],
)
def test_bad_input_is_named(basis, change, message):
    X, Y = basis
    Y = change.pop("Y", Y)
    with pytest.raises((TypeError, ValueError), match=message):
        SparseBayesRegressor(**change).fit(X, Y)


def test_extra_columns_work_with_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-10.0, 10.0, (120, 1))
    Y = np.c_[np.sinc(X[:, 0] / np.pi) + 0.1 * X[:, 0], 0.2 * X[:, 0]] + 0.05 * rng.normal(size=(120, 2))
    model = RVR(Gaussian(2.0), extra_basis="linear").fit(X, Y)
    assert 120 in model.active_
    np.testing.assert_allclose(model.extra_coef_[:, 0], [0.1, 0.2], atol=0.01)
    assert_certified(model, X, Y)
    assert model.predict(X).shape == Y.shape


@pytest.mark.parametrize("shared_noise", [False, True])
def test_growing_error_bars_are_those_of_each_output(shared_noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(-5.0, 5.0, (60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    models = (RVR(Gaussian(1.5), shared_noise=shared_noise, std=std) for std in ("plain", "full"))
    far = np.array([[0.0], [30.0]])
    plain, full = (model.fit(X, np.c_[y, y]).predict(far, return_std=True)[1] for model in models)
    assert full.shape == (2, 2)
    np.testing.assert_allclose(full[:, 0], full[:, 1], rtol=1e-6)
    assert (full[1] > 3.0 * plain[1]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "em"}, "scheme must be 'sequential'"),
        ({"alpha_prior": (1.0, 1.0)}, "alpha_prior must be"),
        ({"noise_prior": (1.0, 1.0)}, "noise_prior must be"),
    ],
)
def test_what_several_outputs_do_not_have_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SparseBayesRegressor(**settings).fit(np.eye(4), np.eye(4)[:, :2])


def test_rounding_ends_a_fit_of_several_outputs_with_a_model():
    statuses = set()
    for seed in range(6):  # which of them rounding ends is rounding's affair
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 1))
        y = np.sin(2 * X[:, 0]) + 1e-2 * rng.normal(size=60)
        weights = rng.choice([1.0, 10.0, 100.0], 60)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = RVR(Gaussian(4.0)).fit(X, np.c_[y, rng.normal(size=60)], weights)
        warned = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        assert warned == (model.status_ in ("stalled", "alpha_floor"))
        assert np.isfinite(model.predict(X)).all()
        statuses.add(model.status_)
    assert "stalled" in statuses


def many_outputs(n_outputs, n_rows=40, n_columns=600):
    """Targets that share three of the columns, with noise of variance 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X /= np.linalg.norm(X, axis=0)
    W = np.zeros((n_columns, n_outputs))
    W[:3] = 3.0 * rng.normal(size=(3, n_outputs))
    return X, X @ W + rng.normal(size=(n_rows, n_outputs))


def test_many_outputs_and_columns_end():
    # Steps whose gains are below a limit that grows with the number of outputs were awaited for ever.
    X, Y = many_outputs(40)
    model = SparseBayesRegressor(complexity=0.5).fit(X, Y)
    assert {0, 1, 2} <= set(model.active_)
    assert len(model.active_) < 20


def test_outputs_pay_once_for_the_choice_of_a_column():
    X, Y = many_outputs(40)
    model = SparseBayesRegressor().fit(X, Y)
    assert model.active_.tolist() == [-1, 0, 1, 2]
    assert certificate(model, X, Y).max_gain_outside < 1e-6
    noise = np.random.default_rng(1).normal(size=Y.shape)
    with pytest.warns(ConvergenceWarning, match="empty"):
        assert SparseBayesRegressor().fit(X, noise).active_.tolist() == [-1]
