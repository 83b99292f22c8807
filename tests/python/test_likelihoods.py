"""Counts, positive numbers and outliers: likelihoods with exposures, dispersions and degrees of freedom."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, psi
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from exports import TOLERANCE, same_regression
from problems import assert_certified
from sparsebayes import RVR, OverfitWarning, SparseBayesRegressor
from sparsebayes._estimators.noise import StudentFit
from sparsebayes._row_likelihoods import row_likelihood
from sparsebayes.inspection import certificate
from sparsebayes.model_selection import density_score

RNG = np.random.default_rng(0)
N = 300
X = RNG.uniform(-3.0, 3.0, (N, 2))
F = np.sin(X[:, 0]) + 0.5 * X[:, 1]
EXPOSURE = RNG.uniform(0.2, 5.0, N)
COUNTS = RNG.integers(0, 3, N)
Y = {
    "poisson": RNG.poisson(EXPOSURE * np.exp(F)).astype(float),
    "negative_binomial": RNG.poisson(EXPOSURE * np.exp(F) * RNG.gamma(2.0, 0.5, N)).astype(float),
    "gamma": EXPOSURE * np.exp(F) * RNG.gamma(4.0, 0.25, N),
    "student_t": F + 0.1 * RNG.standard_t(3.0, N),
}
Y["student_t"][:20] += RNG.normal(0.0, 5.0, 20)
LOG = ["poisson", "negative_binomial", "gamma"]
AT = RNG.uniform(-3.0, 3.0, (7, 2))

#: The distribution of a target of SciPy, given eta, dispersion or degrees of freedom, and scale.
SCIPY = {
    "poisson": lambda eta, shape, scale: stats.poisson(np.exp(eta)),
    "negative_binomial": lambda eta, d, scale: stats.nbinom(1.0 / d, 1.0 / (1.0 + d * np.exp(eta))),
    "gamma": lambda eta, d, scale: stats.gamma(1.0 / d, scale=d * np.exp(eta)),
    "student_t": lambda eta, nu, scale: stats.t(nu, eta, scale),
}


def shape_of(model):
    return getattr(model, "dispersion_", getattr(model, "degrees_of_freedom_", None))


def known(name):
    return {} if name == "student_t" else {"exposure": EXPOSURE}


# --- fits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, COUNTS], ids=["rows", "weights"])
@pytest.mark.parametrize("complexity", ["auto", "none"])
@pytest.mark.parametrize("kind", ["ard", 0.1, "columns"])
@pytest.mark.parametrize("name", Y)
def test_a_fit_is_certified(name, kind, complexity, weights):
    est = SparseBayesRegressor() if kind == "columns" else RVR(gamma=kind)
    est.set_params(likelihood=name, complexity=complexity)
    model = est.fit(X, Y[name], sample_weight=weights, **known(name))
    found = assert_certified(model, X, Y[name], sample_weight=weights, **known(name))
    assert found.parameter_residual <= 1e-5
    assert found.max_mean_error <= 1e-6


@pytest.mark.parametrize("name", ["negative_binomial", "gamma"])
def test_the_dispersion_maximises_the_evidence(name):
    model = SparseBayesRegressor(likelihood=name, complexity="none").fit(X, Y[name], **known(name))

    def negative(x):
        other = SparseBayesRegressor(likelihood=name, complexity="none", dispersion=np.exp(x))
        return -other.fit(X, Y[name], **known(name)).log_marginal_likelihood_

    x = np.log(model.dispersion_)
    best = minimize_scalar(negative, bounds=(x - 1.0, x + 1.0), method="bounded", options={"xatol": 1e-5})
    # The fixed point is close to the maximum, which it would be if working weights were constant.
    assert abs(best.x - x) < 0.01
    assert -best.fun - model.log_marginal_likelihood_ < 1e-3


@pytest.mark.parametrize(("name", "d"), [("negative_binomial", 0.5), ("gamma", 0.25)])
def test_dispersions_are_found(name, d):
    found = [
        RVR(likelihood=name).fit(X, Y[name], **known(name)).dispersion_,
        SparseBayesRegressor(likelihood=name).fit(np.c_[X, np.sin(X)], Y[name], **known(name)).dispersion_,
    ]
    assert_allclose(found, d, rtol=0.3)


def test_counts_of_little_dispersion_are_poisson_counts():
    y = Y["poisson"]
    poisson = RVR(likelihood="poisson", gamma=0.1).fit(X, y)
    other = RVR(likelihood="negative_binomial", gamma=0.1, dispersion=1e-6).fit(X, y)
    assert (other.active_ == poisson.active_).all()
    assert_allclose(other.mu_, poisson.mu_, rtol=1e-4)
    assert_allclose(other.log_marginal_likelihood_, poisson.log_marginal_likelihood_, atol=1e-2)


@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
def test_positive_numbers_without_noise_end_at_the_floor_of_the_dispersion(kind):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    for y, cause in ((np.exp(rows[:, 0] + 1.0), "Set dispersion"), (np.full(60, 2.0), "y is constant")):
        with pytest.warns(OverfitWarning, match=f"noise_floor.*{cause}"):
            model = kind(likelihood="gamma").fit(rows, y)
        assert model.status_ == "noise_floor"
        assert_allclose(model.dispersion_, 1e-6)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("gamma", "dispersion"),
        ("negative_binomial", "dispersion"),
        ("student_t", "noise_variance"),
        ("poisson", None),
    ],
)
def test_the_overfit_warning_names_the_parameter_of_the_noise(name, remedy):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(40, 3)), np.round(50.0 * np.exp(rng.normal(size=40) + 1.0))
    with pytest.warns(OverfitWarning, match="the kernel is too narrow") as caught:
        RVR(gamma=30.0, likelihood=name, complexity="none").fit(rows, y)
    found = [
        name for name in ("dispersion", "noise_variance") if f"or set {name} to" in str(caught[0].message)
    ]
    assert found == ([remedy] if remedy else [])


def test_counts_that_vary_as_little_as_poisson_counts_give_no_warning():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    model = SparseBayesRegressor(likelihood="negative_binomial").fit(rows, np.round(np.exp(rows[:, 0] + 1.0)))
    assert model.status_ == "converged"
    assert model.dispersion_ < 1e-5


@pytest.mark.parametrize("name", LOG)
def test_equal_exposures_change_the_intercept_only(name):
    plain = RVR(likelihood=name, gamma=0.1).fit(X, Y[name])
    for exposure in (1.0, 20.0, 1e-8, 1e8):
        model = RVR(likelihood=name, gamma=0.1).fit(X, Y[name], exposure=exposure)
        assert_allclose(model.predict(AT), plain.predict(AT) / exposure, rtol=1e-5)
        assert_allclose(model.loo_, plain.loo_, rtol=1e-4)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma"])
def test_predictions_are_for_the_exposures_of_their_rows(name):
    model = RVR(likelihood=name, gamma=0.1).fit(X, Y[name], exposure=EXPOSURE)
    rate, (mean, std) = model.predict(X), model.predict(X, return_std=True, exposure=EXPOSURE)
    assert_allclose(mean, EXPOSURE * rate, rtol=1e-12)
    low, high = model.predict_interval(X, 0.9, exposure=EXPOSURE)
    inside = np.mean((low <= Y[name]) & (Y[name] <= high))
    assert 0.84 < inside < 0.99  # of counts more than 0.9
    draws = model.sample_y(X, 4000, 0, exposure=EXPOSURE)
    assert_allclose(draws.std(axis=1), std, rtol=0.3)
    assert_allclose(np.mean(draws.mean(axis=1) / mean), 1.0, atol=0.05)
    # One exposure for all, and that of 1.
    assert_allclose(model.predict(X, exposure=2.0), 2.0 * rate, rtol=1e-12)
    for one in ("predict_interval", "sample_y"):
        np.testing.assert_array_equal(getattr(model, one)(X), getattr(model, one)(X, exposure=1.0))


def test_predictions_of_other_likelihoods_have_no_exposures():
    model = RVR(gamma=0.1).fit(X, Y["gamma"])
    for method in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(ValueError, match="exposure is for counts and positive targets"):
            method(X, exposure=EXPOSURE)
    with pytest.raises(ValueError, match="exposure is for counts and positive targets"):
        model.predict(X, return_cov=True, exposure=EXPOSURE)
    counts = RVR(likelihood="poisson", gamma=0.1).fit(X, Y["poisson"])
    for wrong in (0.0, np.ones(len(X) - 1), np.full(len(X), np.nan), "a"):
        with pytest.raises((ValueError, TypeError), match="exposure"):
            counts.predict(X, exposure=wrong)


def test_exposures_of_poisson_counts_are_weights_of_rates():
    counts = RVR(likelihood="poisson", gamma=0.1).fit(X, Y["poisson"], exposure=EXPOSURE)
    rates = RVR(likelihood="poisson", gamma=0.1)
    rates.fit(X, Y["poisson"] / EXPOSURE, sample_weight=EXPOSURE)
    assert_allclose(counts.predict(AT), rates.predict(AT), rtol=1e-5)
    score = counts.score(X, Y["poisson"], exposure=EXPOSURE)
    assert score > 0.5
    assert_allclose(counts.score(X, Y["poisson"] / EXPOSURE, EXPOSURE, exposure=1.0), score, rtol=1e-10)
    assert_allclose(rates.score(X, Y["poisson"] / EXPOSURE, EXPOSURE), score, rtol=1e-5)


@pytest.mark.parametrize("name", LOG)
def test_scores_of_equal_exposures_do_not_depend_on_them(name):
    plain = RVR(likelihood=name, gamma=0.1).fit(X, Y[name])
    model = RVR(likelihood=name, gamma=0.1).fit(X, Y[name], exposure=8.0)
    assert_allclose(model.score(X, Y[name], exposure=8.0), plain.score(X, Y[name]), rtol=1e-5)
    expected = density_score(plain, X, Y[name])
    assert_allclose(density_score(model, X, Y[name], exposure=8.0), expected, rtol=1e-5)
    for compares in (model.score, lambda *rows: density_score(model, *rows)):
        with pytest.raises(ValueError, match="exposure must be given"):
            compares(X, Y[name])
    with pytest.raises(ValueError, match=r"exposure must be positive, .* got 0 to 0$"):
        model.predict(X, return_std=True, exposure=0.0)


def test_rates_that_inputs_do_not_explain_score_0():
    rng = np.random.default_rng(2)
    exposure = rng.uniform(0.1, 1000.0, N)
    with pytest.warns(ConvergenceWarning, match="empty"):
        model = SparseBayesRegressor(likelihood="poisson").fit(X, rng.poisson(exposure), exposure=exposure)
    scores = model.score(X, rng.poisson(exposure), exposure=exposure), model._loo.scores.score
    assert_allclose(scores, 0.0, atol=0.05)
    for y in (0.0, 3.0):  # as `r2_score` for constant y
        assert model.score(X, np.full(N, y), exposure=1.0) == 0.0


@pytest.mark.parametrize(
    ("name", "scale", "error"), [("poisson", 30.0, 0.08), ("negative_binomial", 30.0, 0.13)]
)
def test_kernels_are_learned_from_rows_as_their_exposures_allow(name, scale, error):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3.0, 3.0, (1000, 2))
    f, exposure = np.sin(1.5 * rows[:, 0]) - 1.0, scale * (0.02 + 0.98 * rng.beta(0.5, 0.5, 1000))
    spread = 1.0 if name == "poisson" else rng.gamma(2.0, 0.5, 1000)
    model = RVR(likelihood=name).fit(rows, rng.poisson(exposure * np.exp(f) * spread), exposure=exposure)
    assert np.sqrt(np.mean((np.log(model.predict(rows)) - f) ** 2)) < error


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
def test_kernels_of_few_counts_are_not_narrow(name):
    rng = np.random.default_rng(3)
    rows = rng.uniform(-3.0, 3.0, (1000, 2))
    f, exposure = np.sin(1.5 * rows[:, 0]) - 1.0, 0.02 + 0.98 * rng.beta(0.5, 0.5, 1000)
    y = rng.poisson(exposure * np.exp(f) * rng.gamma(2.0, 0.5, 1000))
    model = RVR(likelihood=name).fit(rows, y, exposure=exposure)
    assert np.min(model.kernel_.width) > 0.3
    assert np.sqrt(np.mean((np.log(model.predict(rows)) - f) ** 2)) < 0.8 * np.std(f)


def test_intervals_of_the_largest_counts():
    model = SparseBayesRegressor(likelihood="poisson").fit(X, Y["poisson"], exposure=1e-40)
    low, high = model.predict_interval(X)
    assert (low < 1.01 * model.predict(X)).all()
    assert (high > 0.99 * model.predict(X)).all()


@pytest.mark.parametrize("name", Y)
def test_whole_weights_count_rows(name):
    twice = RVR(likelihood=name, gamma=0.1, candidates=X[:20]).fit(X, Y[name], sample_weight=np.full(N, 2.0))
    rows, y = np.r_[X, X], np.r_[Y[name], Y[name]]
    repeated = RVR(likelihood=name, gamma=0.1, candidates=X[:20]).fit(rows, y)
    assert_allclose(twice.predict(AT), repeated.predict(AT), rtol=1e-5)
    assert_allclose(twice.log_marginal_likelihood_, repeated.log_marginal_likelihood_, rtol=1e-7)
    if shape_of(twice) is not None:
        assert_allclose(shape_of(twice), shape_of(repeated), rtol=1e-4)


# --- Student's t ----------------------------------------------------------------------------------------


def test_outliers_have_little_weight_and_hardly_change_the_model():
    model = RVR(likelihood="student_t").fit(X, Y["student_t"])
    far = np.abs(Y["student_t"] - F) > 1.0
    assert far.sum() > 10
    assert model.row_weights_[far].max() < 0.2 < np.median(model.row_weights_)
    error, gaussian = (
        np.sqrt(np.mean((one.predict(X) - F) ** 2)) for one in (model, RVR().fit(X, Y["student_t"]))
    )
    assert error < 0.1 < gaussian


def test_outliers_are_found_where_a_gaussian_fits_them_too():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 1))
    y = x[:, 0] + 0.1 * rng.normal(size=100)
    x[:5], y[:5] = 10.0, -10.0
    model = SparseBayesRegressor(likelihood="student_t").fit(x, y)
    assert_allclose(model.coef_, 1.0, atol=0.05)
    x = rng.normal(size=(200, 3))
    y = x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=200)
    y[:60] += 5.0 + rng.normal(size=60)
    model = SparseBayesRegressor(likelihood="student_t").fit(x, y)
    assert_allclose(model.coef_, [1.0, -1.0, 0.0], atol=0.05)
    assert_allclose(model.intercept_, 0.0, atol=0.1)


@pytest.mark.parametrize("seed", [1, 2, 5, 7, 8])
def test_columns_are_found_beside_many_outliers(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 10))
    f = x[:, :3].sum(axis=1) / np.sqrt(3.0)
    y = f + 0.3 * rng.normal(size=60)
    bad = rng.uniform(size=60) < 0.2
    y[bad] += 10.0 * rng.normal(size=bad.sum())
    model = SparseBayesRegressor(likelihood="student_t").fit(x, y)
    error = np.sqrt(np.mean((x @ model.coef_ - f) ** 2))
    huber = HuberRegressor().fit(x, y)
    assert error < np.sqrt(np.mean((x @ huber.coef_ - f) ** 2))
    scaled = SparseBayesRegressor(likelihood="student_t").fit(x * 10.0 ** np.arange(-5, 5), y)
    assert_allclose(scaled.coef_ * 10.0 ** np.arange(-5, 5), model.coef_, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 2])
def test_smooth_functions_with_little_noise_are_found_beside_far_outliers(seed):
    rng = np.random.default_rng(seed)
    x, new = rng.uniform(size=(200, 3)), np.random.default_rng(100).uniform(size=(500, 3))
    f, truth = (10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 for x in (x, new))
    y = f + 0.01 * f.std() * rng.normal(size=200)
    bad = rng.uniform(size=200) < 0.1
    y[bad] += 5.0 * f.std() * rng.normal(size=bad.sum())
    model = RVR(likelihood="student_t").fit(x, y)
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.015 * f.std()


def test_a_callback_ends_the_fit_that_finds_first_row_weights():
    steps = []

    def stop(record):
        steps.append(record)
        return True

    x = np.c_[X, np.sin(X)]
    model = SparseBayesRegressor(likelihood="student_t", callback=stop).fit(x, Y["student_t"])
    assert model.status_ == "stopped"
    assert len(steps) == 1


def test_targets_that_are_mostly_equal_end_at_the_noise_floor():
    y = np.zeros(N)
    y[:30] = RNG.normal(size=30)
    with pytest.warns(ConvergenceWarning, match="most targets are equal"):
        model = SparseBayesRegressor(likelihood="student_t").fit(X, y)
    assert model.status_ == "noise_floor"
    assert "smallest allowed" in str(model.summary())


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", [3, 11, 12, 23])
def test_noise_held_by_the_floor_of_weighted_rows_ends_at_the_noise_floor(seed, fit_intercept):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(138, 2)).round()
    y = np.round(np.exp(np.sin(2.0 * (rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std()) + 1.0)) + 1.0
    model = RVR(gamma="scale", likelihood="student_t", fit_intercept=fit_intercept)
    with pytest.warns(ConvergenceWarning, match="noise_floor"):
        model.fit(rows, y)
    assert_certified(model, rows, y, status="noise_floor")


@pytest.mark.parametrize("landmarks", ["auto", None])
@pytest.mark.parametrize("size", [1e3, 1e9, 1e12])
def test_one_wild_target_changes_nothing(size, landmarks):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2.0, 2.0, (150, 2))
    f = np.sin(3.0 * rows[:, 0]) * np.cos(2.0 * rows[:, 1])
    y = f + 0.02 * rng.normal(size=150)
    y[7] = size
    model = RVR(likelihood="student_t", landmarks=landmarks).fit(rows, y)
    assert np.sqrt(np.mean((model.predict(rows) - f) ** 2)) < 0.1
    assert model.row_weights_[7] < 1e-3
    assert model.noise_variance_ < 0.01


@pytest.mark.parametrize("order", [1, 2])
def test_functions_that_only_explain_much_together_are_found_under_students_t(order):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(70, 2))
    truth = rows[:, 0] * rows[:, 1]
    rng.normal(size=(50, 2))
    y = truth + 0.2 * rng.standard_t(3, size=70)
    # In the second order of the rows the search of one fit misses them: 75 nats.
    at = np.random.default_rng(order).permutation(70)
    model = RVR(likelihood="student_t").fit(rows[at], y[at])
    assert model.score(rows, truth) > 0.95


def test_targets_that_are_mostly_equal_leave_noise_to_kernels():
    y = np.full(N, 2.0)
    y[:10] = np.random.default_rng(5).normal(size=10)
    with pytest.warns(ConvergenceWarning, match="most targets are equal"):
        model = RVR(likelihood="student_t").fit(X, y)
    assert not hasattr(model, "process_variance_")


def test_constant_targets_have_a_certificate():
    with pytest.warns(ConvergenceWarning, match="constant"):
        model = RVR(likelihood="student_t").fit(X, np.full(N, 3.0))
    assert certificate(model, X, np.full(N, 3.0)).parameter_residual == 0.0


def test_a_scale_far_below_the_targets_is_refused_as_given():
    with pytest.raises(ValueError, match="noise_variance is 1e-100"):
        RVR(likelihood="student_t", noise_variance=1e-100).fit(X, Y["student_t"])


@pytest.mark.parametrize("nu", [3.0, 8.0])
def test_degrees_of_freedom_and_scale_are_those_of_maximum_likelihood(nu):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1000, 3))
    y = rows[:, 0] + 0.1 * rng.standard_t(nu, 1000)
    model = SparseBayesRegressor(likelihood="student_t", complexity="none").fit(rows, y)
    found, _, scale = stats.t.fit(y - model.predict(rows), floc=0.0)
    assert_allclose(model.degrees_of_freedom_, found, rtol=0.02)
    assert_allclose(model.noise_variance_, scale**2, rtol=0.01)


def test_the_bound_is_that_of_the_mixture_and_never_falls(monkeypatch):
    """Its value by NumPy after each weighted fit: E[ln p(t, w, lambda)] - E[ln q(w)] - E[ln q(lambda)]."""
    bounds, rises = [], []

    def bound_of(fit, posterior):
        c, nu, lam = fit.rows.counts, fit.rows.freedom, fit.rows.values
        Phi, beta = fit.functions(posterior.active), posterior.beta / np.average(lam, weights=c)
        proper = posterior.alpha > 0.0
        alpha, n_flat = posterior.alpha[proper], np.count_nonzero(~proper)
        mu, sigma = posterior.mu, posterior.sigma
        squares = (fit.data.y - Phi @ mu) ** 2 + np.sum((Phi @ sigma) * Phi, axis=1)
        a = 0.5 * (nu + 1.0)
        log_lam = psi(a) - np.log(a / lam)
        p = 0.5 * nu
        log_likelihood = 0.5 * (np.log(beta / (2.0 * np.pi)) + log_lam - beta * lam * squares)
        log_prior = p * np.log(p) - gammaln(p) + (p - 1.0) * log_lam - p * lam
        entropy = a - np.log(a / lam) + gammaln(a) + (1.0 - a) * psi(a)
        moments = mu[proper] ** 2 + np.diag(sigma)[proper]
        of_weights = 0.5 * (np.log(alpha).sum() - alpha @ moments + np.linalg.slogdet(sigma)[1])
        # The intercept has a flat prior: its density in the evidence is that of a column of unit length.
        of_weights += 0.5 * (len(mu) + n_flat * np.log(2.0 * np.pi * N))
        return float(c @ (log_likelihood + log_prior + entropy)) + of_weights

    def watched(fit, first, callback):
        posterior = original(fit, first, callback)
        bounds.append(bound_of(fit, posterior))
        if first is not None:
            rises.append(bounds[-1] - bounds[-2])
        return posterior

    original = StudentFit._fit
    monkeypatch.setattr(StudentFit, "_fit", watched)
    model = SparseBayesRegressor(likelihood="student_t", complexity="none")
    for nu in (1.5, 2.5, 4.0, 8.0):
        model.fit(X, F + 0.2 * RNG.standard_t(nu, N))
        assert_allclose(model.log_marginal_likelihood_, bounds[-1], atol=1e-4)
    assert len(rises) > 5
    assert min(rises) > -1e-7


@pytest.mark.parametrize("model", [RVR(gamma="scale"), RVR(landmarks=None), SparseBayesRegressor()])
def test_students_t_keeps_a_scale_that_is_given(model):
    y = Y["student_t"]
    model.set_params(likelihood="student_t", noise_variance=0.02).fit(X, y)
    assert_allclose(model.noise_variance_, 0.02, rtol=1e-12)
    assert_certified(model, X, y)


def test_many_degrees_of_freedom_are_a_gaussian():
    y = F + 0.1 * RNG.normal(size=N)
    gaussian = SparseBayesRegressor().fit(np.c_[X, np.sin(X)], y)
    student = SparseBayesRegressor(likelihood="student_t", degrees_of_freedom=1000.0)
    student.fit(np.c_[X, np.sin(X)], y)
    assert_allclose(student.coef_, gaussian.coef_, atol=1e-3)
    assert_allclose(student.noise_variance_, gaussian.noise_variance_, rtol=0.01)
    assert_allclose(student.loo_, gaussian.loo_, atol=0.02)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma"])
def test_predictions_that_overflow_do_not_warn(name):
    model = SparseBayesRegressor(likelihood=name).fit(X, Y[name])
    far = 1e4 * X
    assert np.isinf(model.predict(far)).any()
    low, high = model.predict_interval(far)
    assert low.min() >= 0.0
    assert high.max() > 1e300
    assert not np.isnan(model.sample_y(far, 3, random_state=0)).any()
    assert not np.isnan(density_score(model, far, Y[name]))


# --- predictions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", Y)
def test_targets_have_the_distribution_of_scipy(name):
    shape = {"negative_binomial": 0.5, "gamma": 0.25, "student_t": 3.0}.get(name)
    row = row_likelihood(name, shape, 0.09)
    eta = np.array([-1.0, 0.5, 2.0])
    own = SCIPY[name](eta, shape, 0.3)
    t = own.ppf([0.2, 0.6, 0.9])
    log_p = own.logpdf(t) if name in ("gamma", "student_t") else own.logpmf(t)
    assert_allclose(row.log_likelihood(eta, t), log_p, rtol=1e-10)
    v = np.array([0.0, 0.05, 0.1])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    parts = SCIPY[name](eta[:, np.newaxis] + np.sqrt(v)[:, np.newaxis] * nodes, shape, 0.3)
    mean = parts.mean() @ weights
    variance = (parts.var() + parts.mean() ** 2) @ weights - mean**2
    assert_allclose(row.targets.predict(eta, v)[1], np.sqrt(variance), rtol=1e-6)
    below, up_to = row.targets.distribution(eta, v, t)
    assert_allclose(up_to, parts.cdf(t[:, np.newaxis]) @ weights, atol=1e-5)
    assert (below <= up_to + 1e-15).all()
    for p in (0.025, 0.5, 0.99):
        quantile = row.targets.quantile(eta, v, p)
        assert (parts.cdf(quantile[:, np.newaxis]) @ weights >= p - 1e-5).all()
        less = quantile - 1.0 if name in LOG[:2] else quantile * (1.0 - 1e-4) - 1e-4
        assert (parts.cdf(less[:, np.newaxis]) @ weights < p + 1e-5).all()
    draws = row.targets.sample(np.tile(eta, (20_000, 1)), np.random.RandomState(0))
    assert_allclose(draws.mean(axis=0), own.mean(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", Y)
def test_leave_one_out_densities_are_integrals_over_the_cavity(name):
    model = RVR(likelihood=name, gamma=0.1).fit(X, Y[name])
    scale = np.sqrt(getattr(model, "noise_variance_", 1.0))
    phi = model._basis.functions(model.active_, X, 1)
    m, v = phi @ model.mu_, np.sum((phi @ model.sigma_) * phi, axis=1)
    row = row_likelihood(name, shape_of(model))
    for n in range(20, 30):
        if name == "student_t":
            b = model.row_weights_[n] * model.beta_
            e = b * (Y[name][n] - m[n])
        else:
            e, b = (part(m[n], Y[name][n]) for part in (row.slope, row.curvature))
        rest = 1.0 - b * v[n]
        centre, std = m[n] - e * v[n] / rest, np.sqrt(v[n] / rest)

        def density(eta, n=n, centre=centre, std=std):
            own = SCIPY[name](eta, shape_of(model), scale)
            p = own.pdf(Y[name][n]) if name in ("gamma", "student_t") else own.pmf(Y[name][n])
            return p * stats.norm.pdf(eta, centre, std)

        total = quad(density, centre - 9.0 * std, centre + 9.0 * std, limit=200)[0]
        assert_allclose(model.loo_[n], np.log(total), rtol=1e-4)


@pytest.mark.parametrize("name", Y)
def test_intervals_cover_new_targets(name):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-3.0, 3.0, (2000, 2))
    f = np.sin(rows[:, 0]) + 0.5 * rows[:, 1]
    y = {
        "poisson": rng.poisson(np.exp(f)),
        "negative_binomial": rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, 2000)),
        "gamma": np.exp(f) * rng.gamma(4.0, 0.25, 2000),
        "student_t": f + 0.1 * rng.standard_t(3.0, 2000),
    }[name]
    model = RVR(likelihood=name).fit(rows[:400], y[:400])
    low, high = model.predict_interval(rows[400:])
    covered = np.mean((y[400:] >= low) & (y[400:] <= high))
    assert 0.92 < covered < (0.999 if name in LOG[:2] else 0.98)
    assert 0.9 < model.loo_coverage_ <= 1.0
    draws = model.sample_y(rows[400:500], 500)
    assert_allclose(np.median(draws), np.median(model.predict(rows[400:500])), rtol=0.2, atol=0.5)


@pytest.mark.parametrize("name", Y)
def test_density_scores_are_those_of_the_distribution(name):
    model = make_pipeline(StandardScaler(), RVR(likelihood=name, gamma=0.1)).fit(X, Y[name])
    last, rows = model[-1], model[0].transform(X)
    phi = last._basis.functions(last.active_, rows, 1)
    m = phi @ last.mu_
    v = np.sum((phi @ last.sigma_) * phi, axis=1)
    for growth in last._growths:
        v = v + growth.variance(rows, 1)[:, 0]
    draws = m[:, np.newaxis] + np.sqrt(v)[:, np.newaxis] * RNG.normal(size=(N, 4000))
    own = SCIPY[name](draws, shape_of(last), np.sqrt(getattr(last, "noise_variance_", 1.0)))
    p = (own.pdf if name in ("gamma", "student_t") else own.pmf)(Y[name][:, np.newaxis])
    assert_allclose(density_score(model, X, Y[name]), np.log(p.mean(axis=1)).mean(), atol=0.02)


@pytest.mark.parametrize("export", TOLERANCE)
@pytest.mark.parametrize("name", Y)
def test_served_models_predict_the_same(name, export, tmp_path):
    for std in ("full", "plain"):
        model = RVR(likelihood=name, gamma=0.1, std=std).fit(X, Y[name])
        # The growth cancels in single precision.
        tolerance = 1e-2 if std == "full" and export.endswith(("float", "float32")) else None
        same_regression(model, AT, export, tmp_path, *([] if tolerance is None else [tolerance]))


# --- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        (
            {"likelihood": "poisson", "dispersion": 1.0},
            {},
            "dispersion is for likelihood='negative_binomial'",
        ),
        ({"degrees_of_freedom": 3.0}, {}, "degrees_of_freedom is for likelihood='student_t'"),
        ({"likelihood": "gamma", "dispersion": 0.0}, {}, "dispersion"),
        ({"likelihood": "student_t", "degrees_of_freedom": 1.0}, {}, "between 2.1 and 1000"),
        ({"likelihood": "student_t", "scheme": "em"}, {}, "scheme='sequential'"),
        ({"likelihood": "gamma", "noise_variance": 1.0}, {}, "noise_variance must be None"),
        ({}, {"exposure": EXPOSURE}, "exposure is for counts"),
        ({"likelihood": "poisson"}, {"exposure": -EXPOSURE}, "exposure must be positive"),
        ({"likelihood": "poisson"}, {"exposure": EXPOSURE[1:]}, "exposure must have the shape"),
        ({"likelihood": "student_t"}, {"y_std": EXPOSURE}, "y_std must be None"),
        ({"likelihood": "student_t"}, {"sample_weight": np.full(N, 1e-9)}, "sample_weight counts rows"),
    ],
)
def test_what_does_not_fit_is_refused(settings, given, message):
    with pytest.raises(ValueError, match=message):
        RVR(gamma=0.1, **settings).fit(X, Y["poisson"], **given)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "gamma"])
def test_rows_of_zero_weight_may_have_no_exposure(name):
    some = np.where(COUNTS > 0, EXPOSURE, 0.0)
    one, other = (
        RVR(likelihood=name, gamma=0.1).fit(X, Y[name], COUNTS, exposure=given) for given in (some, EXPOSURE)
    )
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert one.score(X, Y[name], COUNTS, some) == other.score(X, Y[name], COUNTS, EXPOSURE)


@pytest.mark.parametrize(
    ("name", "y"), [("negative_binomial", -1.0), ("gamma", 0.0), ("gamma", -1.0), ("poisson", 1e300)]
)
def test_targets_outside_the_support_are_refused(name, y):
    with pytest.raises(ValueError, match=f"y must .* with likelihood='{name}'"):
        RVR(likelihood=name).fit(X, np.full(N, y))


@pytest.mark.parametrize("ratio", [30.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("dispersion", [1.0, None])
def test_means_that_differ_by_orders_of_magnitude_are_found(ratio, dispersion):
    rng = np.random.default_rng(0)
    second = rng.random(200) < 0.5
    y = np.where(second, 1.0, ratio) * rng.gamma(1.0, 1.0, 200)
    model = SparseBayesRegressor(likelihood="gamma", dispersion=dispersion)
    model.fit(second[:, np.newaxis] * 1.0, y)
    assert_certified(model, second[:, np.newaxis] * 1.0, y)
    assert_allclose(model.coef_, -np.log(ratio), atol=0.5)


@pytest.mark.parametrize("kind", [RVR, SparseBayesRegressor])
@pytest.mark.parametrize("given", ["nothing", "exposure", "sample_weight"])
def test_counts_that_are_all_0(kind, given):
    left = X[:, 0] < 0.0
    known = {"exposure": {"exposure": EXPOSURE}, "sample_weight": {"sample_weight": left * 1.0}}.get(
        given, {}
    )
    y = np.where(left, 0.0, 3.0) if given == "sample_weight" else np.zeros(N)
    with pytest.raises(ValueError, match="take likelihood='poisson'"):
        kind(likelihood="negative_binomial").fit(X, y, **known)
    with pytest.warns(ConvergenceWarning):
        model = kind(likelihood="poisson").fit(X, y, **known)
    assert (model.predict(X) < 1e-6).all()
    assert "All counts are 0" in model._advice
    assert np.isposinf(model.predict(X, return_std=True)[1]).all()
    # The remedy that the warning names.
    with pytest.warns(ConvergenceWarning, match=r"not how rare\.$"):
        model = kind(likelihood="poisson", penalize_intercept=True).fit(X, y, **known)
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_the_summary_tells_the_parameters():
    student = RVR(gamma=0.1, likelihood="student_t").fit(X, Y["student_t"])
    few = np.count_nonzero(student.row_weights_ < 0.1)
    assert f"{few} rows with a weight below 0.1" in str(student.summary())
    gamma = RVR(gamma=0.1, likelihood="gamma").fit(X, Y["gamma"])
    assert f"{gamma.dispersion_:.4g}" in gamma.summary().lines["dispersion"]


def test_a_second_fit_forgets_the_first():
    model = RVR(gamma=0.1, likelihood="student_t").fit(X, Y["student_t"])
    model.set_params(likelihood="gamma").fit(X, Y["gamma"])
    gone = ("row_weights_", "degrees_of_freedom_", "noise_variance_", "beta_")
    assert not any(hasattr(model, name) for name in gone)
    model.set_params(likelihood="gaussian").fit(X, Y["gamma"])
    assert not hasattr(model, "dispersion_")
    assert_certified(model, X, Y["gamma"])


def test_positive_targets_without_noise_end_at_the_floor_of_the_dispersion():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(80, 2))
    y = np.exp(0.5 * inputs[:, 0] + 0.3 * inputs[:, 1])
    with pytest.warns(ConvergenceWarning, match="noise_floor.*Set dispersion"):
        model = SparseBayesRegressor(likelihood="gamma").fit(inputs, y)
    assert model.status_ == "noise_floor"
    found = certificate(model, inputs, y)
    assert found.parameter_residual == 0.0
    assert found.max_log_alpha_change < 1e-6


def test_large_counts_that_are_no_poisson_counts_are_named():
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(100, 3))
    y = rng.poisson(1e4 * np.exp(inputs[:, 0]) * rng.gamma(5, 0.2, 100))
    with pytest.warns(ConvergenceWarning, match="times as much as counts of a Poisson.*negative_binomial"):
        RVR(likelihood="poisson", gamma=0.01).fit(inputs, y)
    with pytest.warns(ConvergenceWarning, match="functions for 100 rows.*negative_binomial"):
        RVR(likelihood="poisson", gamma="scale").fit(inputs, y)
    assert RVR(likelihood="negative_binomial").fit(inputs, y).status_ == "converged"


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_that_are_no_poisson_counts_are_named(weighted):
    rng = np.random.default_rng(16)
    inputs = rng.normal(size=(400, 2))
    rates = np.exp(1.0 + 0.8 * inputs[:, 0])
    weights = rng.integers(1, 3, 400) if weighted else None
    with pytest.warns(UserWarning, match="varies [3-6].* times as much as counts of a Poisson"):
        model = RVR(likelihood="poisson").fit(
            inputs, rng.poisson(rates * rng.gamma(0.7, 1 / 0.7, 400)), weights
        )
    assert "Give likelihood='negative_binomial'" in " ".join(str(model.summary()).split())
    counts = rng.poisson(rates)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RVR(likelihood="poisson").fit(inputs, counts, weights)
        RVR(likelihood="poisson").fit(inputs, counts, weights, exposure=np.full(400, 1e3))


@pytest.mark.parametrize("gamma", [0.01, "scale"])
def test_weights_far_too_large_for_numbers_of_rows_are_named(gamma):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 2))
    y = rng.poisson(np.exp(1 + np.sin(inputs[:, 0]) + 0.3 * inputs[:, 1]))
    with pytest.warns(ConvergenceWarning, match="stalled.*sample_weight counts rows.*8e\\+05 over 80 rows"):
        RVR(likelihood="poisson", gamma=gamma).fit(inputs, y, np.full(80, 1e4))
