"""Weights of a regression under a Gaussian process prior: posterior, evidence, choice, bars, arguments."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space

from reference import gaussian, kernel_matrix, matern32, matern52
from sparsebayes import RVR, SparseBayesRegressor, inspection, kernels, load
from sparsebayes._data import candidates
from sparsebayes._estimators import process_regression, run


def waves(n=150, noise=0.05, seed=0):
    """Waves in three inputs, which need many functions."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    truth = np.sin(2.0 * X[:, 0] + X[:, 1] * X[:, 2])
    return X, truth + noise * rng.normal(size=n), truth


def rough(seed=0, n=400):
    """A draw of a process of three inputs with a Matern kernel of order 3/2, with noise and without."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 3))
    truth = np.linalg.cholesky(kernels.Matern32([2.0, 3.0, 6.0])(X, X) + 1e-10 * np.eye(n)) @ rng.normal(
        size=n
    )
    return X, truth + 0.05 * rng.normal(size=n), truth


FORMULAS = {kernels.Gaussian: gaussian, kernels.Matern32: matern32, kernels.Matern52: matern52}


class Dense:
    """The model as dense matrices, from the kernel and v of a fitted model with one radial kernel."""

    def __init__(self, model, X, weights=None):
        self.model, self.weights = model, np.ones(len(X)) if weights is None else weights
        self.Phi = self.functions(X)
        K = self.covariance(model.relevance_vectors_, model.relevance_vectors_)
        self.precision = np.zeros((len(K) + 1, len(K) + 1))
        self.precision[1:, 1:] = K

    def covariance(self, X, Z):
        width, kernel = np.array(self.model.kernel_.width), FORMULAS[type(self.model.kernel_)]
        return kernel_matrix(lambda x, z: kernel(x, z, width), X, Z)

    def functions(self, X):
        return np.hstack([np.ones((len(X), 1)), self.covariance(X, self.model.relevance_vectors_)])

    def posterior(self, y, v, noise):
        H = self.Phi.T @ (self.weights[:, np.newaxis] * self.Phi) / noise + self.precision / v
        return np.linalg.solve(H, self.Phi.T @ (self.weights * y)) / noise, np.linalg.inv(H)

    def log_evidence(self, y, v, noise):
        """Return the log evidence of y less its mean, as the constant has a flat prior."""
        K, F = self.precision[1:, 1:], self.Phi[:, 1:]
        P = null_space(np.ones((1, len(y))))
        C = P.T @ (v * F @ np.linalg.solve(K, F.T) + noise * np.eye(len(y))) @ P
        z = P.T @ y
        return -0.5 * (np.linalg.slogdet(C)[1] + z @ np.linalg.solve(C, z))


@pytest.mark.parametrize("weighted", [False, True])
def test_posterior(weighted):
    X, y, _ = waves()
    weights = np.random.default_rng(1).integers(1, 4, len(y)) if weighted else None
    model = RVR(landmarks=40, extra_basis=None).fit(X, y + 100.0, sample_weight=weights)
    dense = Dense(model, X, weights)
    mu, sigma = dense.posterior(y, model.process_variance_, model.noise_variance_)
    assert_array_equal(model.active_, [-1, *model.relevance_])
    phi = dense.functions(X)
    assert_allclose(model.predict(X), 100.0 + phi @ mu, atol=1e-6)
    found, expected = (np.sum((phi @ part) * phi, axis=1) for part in (model.sigma_, sigma))
    assert_allclose(found, expected, rtol=1e-5)
    assert_allclose(model.alpha_[1:], np.diag(dense.precision)[1:] / model.process_variance_)
    assert model.alpha_[0] == 0.0
    assert model.beta_ == pytest.approx(1.0 / model.noise_variance_)


def test_variances_of_largest_evidence():
    X, y, _ = waves()
    model = RVR(landmarks=40).fit(X, y)
    dense, v, noise = Dense(model, X), model.process_variance_, model.noise_variance_
    best = dense.log_evidence(y, v, noise)
    for a, b in [(1.1, 1.0), (0.9, 1.0), (1.0, 1.1), (1.0, 0.9), (0.1, 1.0), (1.0, 3.0)]:
        assert dense.log_evidence(y, a * v, b * noise) < best


def test_noise_that_is_given():
    X, y, _ = waves()
    model = RVR(landmarks=40, noise_variance=0.01).fit(X, y)
    dense, v = Dense(model, X), model.process_variance_
    assert model.noise_variance_ == 0.01
    best = dense.log_evidence(y, v, 0.01)
    assert max(dense.log_evidence(y, a * v, 0.01) for a in (0.9, 1.1)) < best


@pytest.mark.parametrize("noise_variance", [None, 0.01])
def test_students_t(noise_variance):
    """Row weights suit the process; its posterior is that of the weighted rows."""
    X, y, truth = waves(200)
    y[::10] += 3.0
    model = RVR(likelihood="student_t", extra_basis=None, noise_variance=noise_variance).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.1
    assert model.row_weights_[::10].max() < 0.05 < np.delete(model.row_weights_, np.s_[::10]).min()
    assert noise_variance is None or model.noise_variance_ == pytest.approx(noise_variance)
    weights, nu = model.row_weights_, model.degrees_of_freedom_
    dense, phi = Dense(model, X, weights), Dense(model, X).Phi
    shift = np.average(y, weights=weights)
    mu, sigma = dense.posterior(y - shift, model.process_variance_, model.noise_variance_)
    assert_allclose(model.predict(X), shift + phi @ mu, atol=1e-6)
    squares = (y - shift - phi @ mu) ** 2 + np.sum((phi @ sigma) * phi, axis=1)
    assert_allclose(weights, (nu + 1.0) / (nu + squares / model.noise_variance_), rtol=0.1)
    found = inspection.certificate(model, X, y)
    assert found.max_mean_error < 1e-6
    assert max(found.max_log_alpha_change, found.parameter_residual, found.log_beta_residual) < 1e-5


@pytest.mark.parametrize("weighted", [False, True])
def test_known_noise(weighted):
    X, y, truth = waves(200, noise=0.0)
    rng = np.random.default_rng(10)
    std = rng.uniform(0.02, 0.3, 200)
    y += std * rng.normal(size=200)
    counts = rng.integers(1, 4, 200) if weighted else None
    landmarks = 80 if weighted else "auto"  # where rows count several times a process is hardly chosen
    model = RVR(extra_basis=None, landmarks=landmarks).fit(X, y, sample_weight=counts, y_std=std)
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.2
    weights = (counts if weighted else 1.0) / std**2
    dense, shift = Dense(model, X, weights), np.average(y, weights=weights)
    mu, _ = dense.posterior(y - shift, model.process_variance_, model.noise_variance_)
    assert_allclose(model.predict(X), shift + dense.Phi @ mu, atol=1e-6)
    found = inspection.certificate(model, X, y, counts, y_std=std)
    assert max(found.max_mean_error, found.max_log_alpha_change, found.log_beta_residual) < 1e-5


def test_noise_that_depends_on_the_inputs():
    X, y, _ = waves(300, noise=0.0)
    std = 0.05 * np.exp(X[:, 0])  # with 0.02 rounding of sigma_ changes the residual by 1e-4
    y += std * np.random.default_rng(2).normal(size=300)
    model = RVR(noise_basis="linear").fit(X, y)
    assert model.process_variance_ > 0.0
    assert_allclose(model.noise_model_.coef_, [2.0, 0.0, 0.0], atol=0.3)
    found = inspection.certificate(model, X, y)
    assert max(found.max_mean_error, found.max_log_alpha_change, found.parameter_residual) < 1e-5


def test_rows_as_functions_are_the_gaussian_process():
    """With every row as a function mean and error bars are those of the process, far from the data too."""
    X, y, _ = waves(80, noise=0.2)
    model = RVR(kernels.Gaussian(0.8), landmarks=80).fit(X, y)
    assert len(model.relevance_) == 80
    dense, v, noise = Dense(model, X), model.process_variance_, model.noise_variance_
    new = np.random.default_rng(1).uniform(-4, 4, (50, 3))
    C = v * dense.covariance(X, X) + noise * np.eye(80)
    k, one = v * dense.covariance(X, new), np.ones(80)
    b = one @ np.linalg.solve(C, y) / (one @ np.linalg.solve(C, one))
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, b + k.T @ np.linalg.solve(C, y - b), atol=1e-6)
    lacks = 1.0 - one @ np.linalg.solve(C, k)
    variance = v - np.sum(k * np.linalg.solve(C, k), axis=0) + lacks**2 / (one @ np.linalg.solve(C, one))
    assert_allclose(std**2, model._variance_factor[0] * (variance + noise), rtol=1e-4, atol=1e-6 * v)
    assert model._variance_factor[0] >= 1.0
    cov = model.predict(new, return_cov=True)[1]
    assert_allclose(np.sqrt(np.diag(cov)), std)


def test_left_out_rows():
    X, y, _ = waves(60)
    model = RVR(landmarks=20).fit(X, y)
    v, noise = model.process_variance_, model.noise_variance_
    for n in (0, 17, 59):
        weights = np.where(np.arange(60) == n, 0.0, 1.0)
        dense = Dense(model, X, weights)
        mu, sigma = dense.posterior(y, v, noise)
        phi = dense.Phi[n]
        variance = phi @ sigma @ phi + noise
        expected = -0.5 * (np.log(2.0 * np.pi * variance) + (y[n] - phi @ mu) ** 2 / variance)
        assert model.loo_[n] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("unpenalized", [None, [1]])
def test_certificate(unpenalized):
    X, y, _ = waves()
    model = RVR(landmarks=40, extra_basis="linear", unpenalized=unpenalized).fit(X, y + X[:, 2])
    found = inspection.certificate(model, X, y + X[:, 2])
    assert found.max_mean_error < 1e-6
    assert found.max_log_alpha_change < 1e-5
    assert found.max_gain_outside < 1e-6
    flat = [-1, *([151] if unpenalized else [])]
    assert_array_equal(model.active_[model.alpha_ == 0.0], flat)
    model.mu_ = model.mu_ + 1e-3 * np.abs(model.mu_).max()
    assert inspection.certificate(model, X, y + X[:, 2]).max_mean_error > 1e-3


def test_chosen_where_rows_left_out_are_predicted_better():
    X, y, truth = waves(900, noise=0.02)
    model, sparse = (RVR(landmarks=k).fit(X[:400], y[:400]) for k in ("auto", None))
    assert model.process_variance_ > 0.0
    assert not hasattr(sparse, "process_variance_")
    errors = [np.sqrt(np.mean((one.predict(X[400:]) - truth[400:]) ** 2)) for one in (model, sparse)]
    assert errors[0] < 0.7 * errors[1]
    low, high = model.predict_interval(X[400:])
    assert 0.88 < np.mean((low <= y[400:]) & (y[400:] <= high)) < 0.99
    assert model.loo_.mean() > sparse.loo_.mean()


@pytest.mark.parametrize("seed", range(3))
def test_rough_functions_have_rough_kernels(seed, tmp_path):
    X, y, truth = rough(seed)
    model = RVR(extra_basis=None).fit(X[:250], y[:250])
    smooth = RVR(kernels.Gaussian([1.0] * 3), optimize_kernel=True, extra_basis=None).fit(X[:250], y[:250])
    assert isinstance(model.kernel_, kernels.Matern32 | kernels.Matern52)
    assert isinstance(smooth.kernel_, kernels.Gaussian)
    errors = [np.std(one.predict(X[250:]) - truth[250:]) for one in (model, smooth)]
    assert errors[0] < 0.97 * errors[1]
    dense, shift = Dense(model, X[:250]), y[:250].mean()
    mu, _ = dense.posterior(y[:250] - shift, model.process_variance_, model.noise_variance_)
    assert_allclose(model.predict(X), shift + dense.functions(X) @ mu, atol=1e-5)
    assert model.inputs_[0] > model.inputs_[2]
    assert isinstance(model._selection["kernel_"], kernels.Gaussian)
    model.save(tmp_path / "model.json")
    served, expected = load(tmp_path / "model.json").predict_std(X), model.predict(X, return_std=True)
    assert_allclose(served, expected, rtol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_smooth_functions_have_smooth_kernels(seed):
    X, y, _ = waves(300, seed=seed)
    assert isinstance(RVR(landmarks=100).fit(X, y).kernel_, kernels.Gaussian)


@pytest.mark.parametrize("n_landmarks", [0, 30])
def test_few_landmarks_have_smooth_kernels(n_landmarks):
    X, y, _ = rough()
    assert isinstance(RVR(landmarks=n_landmarks).fit(X, y).kernel_, kernels.Gaussian)


def test_rough_kernels_need_a_moderate_variance(monkeypatch):
    X, y, _ = rough()
    monkeypatch.setattr(process_regression, "_MAX_ROUGH_VARIANCE", {})
    monkeypatch.setattr(process_regression, "_MAX_VARIANCE", 1e-3)
    assert isinstance(RVR(landmarks=100).fit(X, y).kernel_, kernels.Gaussian)


@pytest.mark.parametrize(("most", "selected", "placed"), [(2000, 500, None), (300, 100, 300)])
def test_the_selection_has_fewer_candidates_than_the_process(monkeypatch, most, selected, placed):
    X, y, _ = waves(600, noise=0.02)
    for name, value in {"_MOST": most, "_LEAST": 100, "_MOST_VALUES": 1 if most < 600 else 10**7}.items():
        monkeypatch.setattr(candidates, name, value)
    model = RVR().fit(X, y)
    assert model.process_variance_ > 0.0
    assert len(model._selection["candidate_rows_"]) == selected
    assert model._n_basis - 1 >= (placed or 600)
    assert len(model.__dict__.get("candidate_rows_", ())) == (placed or 0)
    assert_array_equal(model.relevance_vectors_, X[model.relevance_])
    found = inspection.certificate(model, X, y)
    assert found.max_gain_outside < 1e-3
    assert found.max_mean_error < 1e-5
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_all_candidates_are_selected_from_if_the_sparse_model_is_as_good(monkeypatch):
    X, y, _ = waves(600, noise=0.02)
    monkeypatch.setattr(process_regression, "_MAX_VARIANCE", 1e-3)
    monkeypatch.setattr(run, "_MAX_LOSS", np.inf)
    model, sparse = (RVR(landmarks=k).fit(X, y) for k in ("auto", None))
    assert not hasattr(model, "process_variance_")
    assert not hasattr(model, "candidate_rows_")
    assert_array_equal(model.relevance_, sparse.relevance_)
    assert_array_equal(model.mu_, sparse.mu_)
    assert inspection.certificate(model, X, y).max_gain_outside < 1e-3


def product(X):
    return X[:, 0] * X[:, 1]


def wave_and_product(X):
    return np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]


def quotient_and_product(X):
    return X[:, 0] / (1.2 + 0.5 * X[:, 1]) + X[:, 2] * X[:, 3]


@pytest.mark.parametrize(
    ("function", "d", "n", "noise", "seed"),
    [
        *((product, 2, 250, 0.01, seed) for seed in (0, 1, 7)),
        *((wave_and_product, 3, 250, 0.0, seed) for seed in (0, 1)),
        *((quotient_and_product, 4, 300, 0.05, seed) for seed in (0, 1)),
        *((lambda X: np.sin(3.0 * X[:, 0]), 1, 16, 0.0, seed) for seed in range(4)),
    ],
)
def test_smooth_functions_with_little_noise(function, d, n, noise, seed):
    # Kernels of very long lengths imitate polynomials. Sparse models of these often end without functions.
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n + 400, d))
    y = function(X) + noise * rng.normal(size=n + 400)
    model = RVR().fit(X[:n], y[:n])
    assert model.score(X[n:], y[n:]) > 0.98
    assert getattr(model, "process_variance_", 0.0) < 30.0 * y.var()


def test_a_process_replaces_a_fit_that_falls_short_of_its_trials():
    rng = np.random.default_rng(54)
    X = rng.normal(size=(600, 3))
    y = wave_and_product(X) + 0.1 * rng.normal(size=600)
    model = RVR().fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n", [10, 15])
def test_very_few_rows_have_no_process(n):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (n, 1))
    model = RVR().fit(X, np.sin(2.0 * X[:, 0]))
    assert not hasattr(model, "process_variance_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_copies_of_rows_do_not_prefer_a_process():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (40, 2))
        y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=40)
        found.append(hasattr(RVR().fit(np.repeat(X, 3, axis=0), np.repeat(y, 3)), "process_variance_"))
    assert sum(found) <= 2


@pytest.mark.parametrize("seed", [0, 1])
def test_kernels_are_learned_with_copies_as_well_as_without(seed):
    rng = np.random.default_rng(seed)
    X, new = rng.uniform(-3.0, 3.0, (200, 4)), rng.uniform(-3.0, 3.0, (500, 4))
    y = np.sin(1.5 * X[:, 0]) + 0.3 * X[:, -1] + 0.3 * rng.normal(size=200)
    truth, counts = np.sin(1.5 * new[:, 0]) + 0.3 * new[:, -1], rng.integers(1, 4, 200)
    weighted = RVR().fit(X, y, sample_weight=counts)
    repeated = RVR().fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    for model in (weighted, repeated):
        assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.15
    assert abs(np.sqrt(weighted.noise_variance_) - 0.3) < 0.1


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_few_functions_where_these_suffice(noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 3))
    model = RVR().fit(X, np.sin(X[:, 0]) + X[:, 1] + noise * rng.normal(size=400))
    assert not hasattr(model, "process_variance_")
    assert len(model.relevance_) < 15


def test_all_folds_decide_where_one_does_not():
    # One fold of 80 rows is clear in one of these draws.
    draws = [waves(400, noise=0.2, seed=seed)[:2] for seed in range(6)]
    assert sum(hasattr(RVR().fit(X, y), "process_variance_") for X, y in draws) >= 5


def test_landmarks_end_where_the_rest_is_far_below_the_noise():
    X, noise = np.random.default_rng(0).uniform(-2, 2, (300, 3)), waves(300, noise=0.5)
    model = RVR(landmarks=300).fit(X, np.sin(X[:, 0]) * X[:, 1] + noise[1] - noise[2])
    assert len(model.relevance_) < 150
    dense = Dense(model, X)
    F = dense.Phi[:, 1:] @ np.linalg.inv(np.linalg.cholesky(dense.precision[1:, 1:])).T
    rest = model.process_variance_ * (1.0 - np.sum(F**2, axis=1))
    assert rest.sum() / (2.0 * model.noise_variance_) < 1.5


@pytest.mark.parametrize("landmarks", ["auto", 30])
def test_weights_count_rows(landmarks):
    X, y, _ = waves(120)
    copies = np.random.default_rng(1).integers(0, 3, len(y))
    weighted = RVR(kernels.Gaussian(1.5), landmarks=landmarks).fit(X, y, sample_weight=copies)
    repeated = RVR(kernels.Gaussian(1.5), landmarks=landmarks).fit(
        np.repeat(X, copies, axis=0), np.repeat(y, copies)
    )
    assert_allclose(*(one.predict(X) for one in (weighted, repeated)), rtol=1e-5)
    assert_allclose(weighted.noise_variance_, repeated.noise_variance_, rtol=1e-5)


def test_scale_and_shift_of_y():
    X, y, _ = waves()
    model, other = (RVR(landmarks=40).fit(X, a + b * y) for a, b in [(0.0, 1.0), (1e6, 1e3)])
    assert_allclose(other.predict(X), 1e6 + 1e3 * model.predict(X), rtol=1e-7)
    assert other.process_variance_ == pytest.approx(1e6 * model.process_variance_, rel=1e-3)


def test_same_bits_for_any_number_of_threads():
    X, y, _ = waves(400, noise=0.02)
    one, four = (RVR(n_jobs=n).fit(X, y) for n in (1, 4))
    assert_array_equal(one.mu_, four.mu_)
    assert_array_equal(one.sigma_, four.sigma_)
    copy = pickle.loads(pickle.dumps(one))
    for found, expected in zip(copy.predict(X, True), one.predict(X, True), strict=True):
        assert_array_equal(found, expected)


def test_served(tmp_path):
    X, y, _ = waves(300, noise=0.02)
    model = RVR().fit(X, y)
    model.save(tmp_path / "model")
    new = np.random.default_rng(1).uniform(-3, 3, (40, 3))
    mean, std = model.predict(new, return_std=True)
    for predictor in (model.to_predictor(), load(tmp_path / "model")):
        found = predictor.predict_std(new)
        assert_allclose(found[0], mean, atol=1e-9)
        assert_allclose(found[1], std, atol=2e-6)
    assert model.sample_y(new, 2, random_state=0).shape == (40, 2)


def test_another_fit_of_the_same_estimator():
    X, y, _ = waves(300, noise=0.02)
    model = RVR().fit(X, y)
    assert hasattr(model, "process_variance_")
    model.set_params(landmarks=None).fit(X, y)
    assert not hasattr(model, "process_variance_")
    assert_array_equal(model.predict(X), RVR(landmarks=None).fit(X, y).predict(X))


@pytest.mark.parametrize(
    "options", [{"complexity": "none"}, {"penalize_intercept": True}, {"scheme": "em"}, {"gamma": 0.5}]
)
def test_auto_leaves_the_papers_models(options):
    X, y, _ = waves(100, noise=0.02)
    assert not hasattr(RVR(**options).fit(X, y), "process_variance_")


def test_without_an_intercept():
    X, y, _ = waves()
    model = RVR(kernels.Gaussian(1.5), landmarks=40, fit_intercept=False).fit(X, y)
    assert_array_equal(model.active_, model.relevance_)
    assert model.score(X, y) > 0.9
    assert inspection.certificate(model, X, y).max_mean_error < 1e-6


@pytest.mark.parametrize(
    ("options", "fit", "message"),
    [
        ({"landmarks": "all"}, {}, "landmarks must be 'auto', None or an integer"),
        ({"landmarks": -1}, {}, "landmarks must be an integer of at least 0"),
        ({"landmarks": 5, "likelihood": "gamma"}, {}, "landmarks must be None with likelihood='gamma'"),
        ({"landmarks": 5, "noise_prior": (1.0, 1.0)}, {}, "landmarks must be None with noise_prior"),
    ],
)
def test_invalid(options, fit, message):
    X, y, _ = waves()
    with pytest.raises(ValueError, match=message):
        RVR(**options).fit(X, np.abs(y) + 1.0, **fit)


def test_several_outputs_are_sparse():
    X, y, truth = waves(150, noise=0.02)
    Y = np.column_stack([y, truth])
    assert not hasattr(RVR().fit(X, Y), "process_variance_")
    with pytest.raises(ValueError, match="landmarks must be None with y of several columns"):
        RVR(landmarks=5).fit(X, Y)


def test_columns_have_no_landmarks():
    assert "landmarks" not in SparseBayesRegressor().get_params()


def test_a_small_memory_limit_leaves_the_sparse_model():
    X, y, _ = waves(400, noise=0.02)
    assert not hasattr(RVR(memory_limit="6MB").fit(X, y), "process_variance_")


def test_diagnosis_compares_with_as_many_functions():
    X, y, _ = waves(250, noise=0.02)
    model = RVR().fit(X, y)
    assert hasattr(model, "process_variance_")
    found = inspection.diagnose(model, X, y)
    assert not any("standard deviations" in text for text in found.advice)
    assert not any("overfitted" in text for text in found.advice)


@pytest.mark.parametrize("n_functions", [1, 2, 65, 130])
@pytest.mark.parametrize("given", [None, 0.3])
def test_noise_and_evidence_without_eigenvectors(n_functions, given):
    rng = np.random.default_rng(0)
    F, y, n = rng.normal(size=(200, n_functions)), rng.normal(size=200), 199.0
    evidence = process_regression._evidence(F.T @ F, F.T @ y, y @ y, n, given)
    for log_ratio in (-12.0, 0.0, 5.0, 13.5):
        C = np.eye(200) + np.exp(log_ratio) * F @ F.T  # the covariance of y in units of the noise variance
        square = y @ np.linalg.solve(C, y)
        noise = square / n if given is None else given
        cost = n * np.log(noise) + np.linalg.slogdet(C)[1] + square / noise
        assert_allclose(evidence(log_ratio), (noise, cost), rtol=1e-8)
