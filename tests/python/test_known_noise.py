"""Targets of known standard deviation: `y_std` of regressions, beside `sample_weight`, which counts rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict

from problems import PAPERS, assert_certified
from sparsebayes import MRVM1, RVR, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-5, 5, (120, 1)), axis=0)
STD = np.exp(RNG.normal(size=120))
Y = np.sin(X[:, 0]) + 0.1 * STD * RNG.normal(size=120)
BASIS = np.polynomial.legendre.legvander(X[:, 0] / 5, 9)
AT = np.linspace(-6, 6, 30)[:, np.newaxis]

FITS = {
    "kernel": (RVR(Gaussian(2.0)), X),
    "scale": (RVR(gamma="scale"), X),
    "candidates": (RVR(Gaussian(2.0), candidates=20, random_state=0), X),
    "precomputed": (RVR("precomputed"), Gaussian(2.0)(X, X)),
    "fixed noise": (RVR(Gaussian(2.0), noise_variance=0.01), X),
    "noise prior": (RVR(Gaussian(2.0), noise_prior=(3.0, 0.05)), X),
    "mackay": (RVR(Gaussian(2.0), scheme="mackay"), X),
    "variational": (RVR(Gaussian(2.0), scheme="variational", noise_prior=(1.0, 0.01)), X),
    "columns": (SparseBayesRegressor(), BASIS),
    "intercept": (SparseBayesRegressor(fit_intercept=True), BASIS),
}


def assert_close(found, expected, **tolerance):
    """Compare means and standard deviations."""
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, **tolerance)


def fitted(name, scale=1.0, unit=1.0, **settings):
    """Return the model fitted to y times ``scale`` and y_std times ``scale * unit``, and its rows."""
    est, rows = FITS[name]
    est = clone(est).set_params(**settings)
    if est.noise_variance is not None:
        est.set_params(noise_variance=est.noise_variance / unit**2)
    shape, rate = est.noise_prior
    est.set_params(noise_prior=(shape, rate / unit**2))  # of beta, in units of y_std squared
    return est.fit(rows, scale * Y, y_std=scale * unit * STD), rows


@pytest.mark.parametrize("name", FITS)
def test_a_model_of_known_noise_is_certified(name):
    model, rows = fitted(name)
    assert assert_certified(model, rows, Y, y_std=STD).max_mean_error <= 1e-6
    if model.noise_prior == (0.0, 0.0):  # otherwise the path is that of the log posterior
        model, rows = fitted(name, complexity="none")
        assert_certified(model, rows, Y, y_std=STD)
        assert model.log_marginal_likelihood_path_[-1] == pytest.approx(model.log_marginal_likelihood_)


@pytest.mark.parametrize("name", ["kernel", "fixed noise", "columns"])
def test_the_evidence_is_the_density_of_the_targets(name):
    model, rows = fitted(name, **PAPERS)
    phi = model._basis.functions(model.active_, rows, None)
    covariance = np.diag(model.noise_variance_ * STD**2) + (phi / model.alpha_) @ phi.T
    expected = multivariate_normal(np.zeros(len(Y)), covariance).logpdf(Y)
    np.testing.assert_allclose(model.log_marginal_likelihood_, expected, rtol=1e-9)
    # Step 9 of the algorithm: the noise that the evidence asks for.
    if model.noise_variance is None:
        gamma = np.sum(1.0 - model.alpha_ * np.diag(model.sigma_))
        residual = np.sum(((Y - phi @ model.mu_) / STD) ** 2)
        np.testing.assert_allclose(model.noise_variance_, residual / (len(Y) - gamma), rtol=1e-4)
        np.testing.assert_allclose(model.noise_variance_, 0.01, rtol=0.4)
    np.testing.assert_allclose(model.beta_, 1.0 / model.noise_variance_)


@pytest.mark.parametrize("name", FITS)
def test_predictions_do_not_depend_on_the_units_of_y_and_y_std(name):
    model, rows = fitted(name)
    mean, std = model.predict(rows, return_std=True, y_std=STD)
    for unit in (1e-4, 37.0):
        other, _ = fitted(name, unit=unit)
        again = other.predict(rows, return_std=True, y_std=unit * STD)
        assert_close(again, (mean, std), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(other.noise_variance_ * unit**2, model.noise_variance_, rtol=1e-5)
    if FITS[name][0].noise_variance is None or FITS[name][0].noise_variance == 0.01:
        other, _ = fitted(name, scale=1000.0)
        found = other.predict(rows, return_std=True, y_std=1000 * STD)
        assert_close(found, (1000 * mean, 1000 * std), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FITS)
def test_equal_standard_deviations_change_nothing(name):
    est, rows = FITS[name]
    plain, same = clone(est).fit(rows, Y), clone(est).fit(rows, Y, y_std=np.ones(120))
    np.testing.assert_array_equal(same.predict(rows), plain.predict(rows))
    assert same.log_marginal_likelihood_ == plain.log_marginal_likelihood_
    other = clone(est).set_params(noise_variance=None, noise_prior=(0.0, 0.0))
    plain, same = clone(other).fit(rows, Y), other.fit(rows, Y, y_std=0.3)
    np.testing.assert_allclose(same.predict(rows), plain.predict(rows), rtol=1e-9)
    np.testing.assert_allclose(same.noise_variance_ * 0.09, plain.noise_variance_, rtol=1e-9)
    assert_close(same.predict(rows, return_std=True), plain.predict(rows, return_std=True), rtol=1e-9)


@pytest.mark.parametrize("name", ["kernel", "columns", "fixed noise", "noise prior", "variational"])
def test_weights_count_rows_of_known_noise(name):
    """A weight of 2 is two rows of that standard deviation, and 0 is none."""
    est, rows = FITS[name]
    counts = RNG.integers(0, 3, 120)
    stds = np.where(counts > 0, STD, 0.0)
    once = clone(est).fit(rows, Y, counts, stds)
    at = np.repeat(np.arange(120), counts)
    twice = clone(est).fit(rows[at], Y[at], y_std=STD[at])
    np.testing.assert_allclose(once.log_marginal_likelihood_, twice.log_marginal_likelihood_, rtol=1e-6)
    np.testing.assert_allclose(once.noise_variance_, twice.noise_variance_, rtol=1e-5)
    expected = twice.predict(rows, return_std=True)  # with the noise of the typical row
    assert_close(once.predict(rows, return_std=True), expected, rtol=1e-5, atol=1e-7)
    found = certificate(once, rows, Y, counts, y_std=stds)
    assert max(found.max_log_alpha_change, found.log_beta_residual) <= 1e-5


@pytest.mark.parametrize("name", ["kernel", "columns", "intercept", "variational"])
def test_weights_with_a_mean_of_one_make_the_same_model(name):
    """The error messages advise such weights where `y_std` is refused."""
    est, rows = FITS[name]
    est = clone(est).set_params(noise_prior=(0.0, 0.0))
    if isinstance(est, RVR):
        est.set_params(std="plain")  # growing error bars take weights as counts
    weights = STD**-2.0 / np.mean(STD**-2.0)
    model, same = clone(est).fit(rows, Y, y_std=STD), clone(est).fit(rows, Y, sample_weight=weights)
    found, expected = (one.predict(rows, return_std=True) for one in (model, same))
    assert_close(found, expected, rtol=1e-9, atol=1e-12)
    # Added to the evidence of weights that count rows, it gives that of the standard deviations.
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, same.log_marginal_likelihood_ + 0.5 * np.log(weights).sum(), rtol=1e-9
    )


def test_the_scale_of_a_kernel_does_not_depend_on_the_noise():
    assert RVR(gamma="scale").fit(X, Y, y_std=STD).kernel_ == RVR(gamma="scale").fit(X, Y).kernel_


def test_error_bars_of_new_rows_include_their_noise():
    model, _ = fitted("kernel")
    _, typical = model.predict(AT, return_std=True)
    harmonic = 1.0 / np.mean(STD**-2.0)
    _, same = model.predict(AT, return_std=True, y_std=np.sqrt(harmonic))
    np.testing.assert_allclose(same, typical, rtol=1e-12)
    new = np.linspace(0.1, 3.0, len(AT))
    _, std = model.predict(AT, return_std=True, y_std=new)
    noise = model._variance_factor * model.noise_variance_
    np.testing.assert_allclose(std**2 - typical**2, noise * (new**2 - harmonic), rtol=1e-9)
    # A predictor uses the noise of the typical row.
    assert_close(model.to_predictor().predict_std(AT), model.predict(AT, return_std=True), rtol=1e-9)


def test_error_bars_cover_targets_of_known_noise():
    rng = np.random.default_rng(1)
    rows = rng.uniform(-5, 5, (1000, 1))
    std = np.exp(rng.normal(size=1000))
    y = np.sin(rows[:, 0]) + 0.1 * std * rng.normal(size=1000)
    model = RVR(Gaussian(2.0)).fit(rows[:500], y[:500], y_std=std[:500])
    mean, bars = model.predict(rows[500:], return_std=True, y_std=std[500:])
    for part in (std[500:] < 0.5, std[500:] > 2.0):  # of precise targets as of others
        inside = np.abs(y[500:] - mean)[part] < 1.96 * bars[part]
        assert 0.9 < inside.mean() < 0.99


def test_records_give_the_noise_in_units_of_y_std():
    records = []
    model = RVR(Gaussian(2.0), complexity="none", callback=records.append).fit(X, Y, y_std=STD)
    assert records[-1].noise_variance == pytest.approx(model.noise_variance_, rel=1e-6)
    assert records[-1].log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-9)


def test_a_later_fit_forgets_the_noise_of_an_earlier_one():
    model = clone(FITS["columns"][0])
    plain = clone(model).fit(BASIS, Y)
    for again in (
        model.fit(BASIS, Y, y_std=STD).fit(BASIS, Y),
        model.fit(BASIS, Y, y_std=STD).fit([(BASIS, Y)]),
    ):
        np.testing.assert_allclose(
            again.predict(BASIS, return_std=True), plain.predict(BASIS, return_std=True), rtol=1e-6, atol=1e-9
        )
        certificate(again, BASIS, Y)


def test_cross_validation_splits_the_noise_with_the_rows():
    found = cross_val_predict(
        RVR(Gaussian(2.0)), X, Y, params={"y_std": STD}, cv=KFold(3, shuffle=True, random_state=0)
    )
    assert np.mean((found - np.sin(X[:, 0])) ** 2) < 0.01


@pytest.mark.parametrize(
    ("y_std", "words"),
    [
        (np.zeros(120), "y_std must be positive.*sample_weight=0"),
        (-STD, "y_std must be positive"),
        (STD[:5], r"y_std must have the shape \(120,\)"),
        (np.full(120, np.nan), "y_std"),
        (STD * 1e-200, "rescale y and y_std"),
        (np.where(np.arange(120) == 3, 1e-150, 1.0), "rescale y and y_std"),
    ],
)
def test_bad_standard_deviations_are_refused(y_std, words):
    for est, rows in (FITS["kernel"], FITS["columns"]):
        with pytest.raises((TypeError, ValueError), match=words):
            clone(est).fit(rows, Y, y_std=y_std)
    model, _ = fitted("kernel")
    if "rescale" not in words:
        with pytest.raises((TypeError, ValueError), match="y_std") as error:
            model.predict(X, return_std=True, y_std=y_std)
        assert "sample_weight" not in str(error.value)


def test_fits_that_do_not_take_y_std_refuse_it():
    counts = np.abs(Y).round()
    for fit, words in (
        (lambda: SparseBayesRegressor(likelihood="poisson").fit(BASIS, counts, y_std=STD), "poisson"),
        (lambda: SparseBayesRegressor().fit([(BASIS, Y)], y_std=STD), "rows in memory.*sample_weight"),
        (lambda: RVR(candidates=5, gamma="scale").fit([(X, Y)], y_std=STD), "rows in memory.*sample_weight"),
        (lambda: RVR(gamma="scale").fit(X, np.c_[Y, Y], y_std=STD), "several columns; fit each column"),
        (lambda: RVR(gamma="scale").fit(X, Y).predict(X, return_std=True, y_std=STD), "leave y_std out"),
        (lambda: certificate(RVR(gamma="scale").fit(X, Y), X, Y, y_std=STD), "fit, which had none"),
        (lambda: certificate(RVR(gamma="scale").fit(X, Y, y_std=STD), X, Y), "fit, which had one"),
        (lambda: certificate(MRVM1().fit(X, Y > 0), X, Y > 0, y_std=STD), "MRVM1 has none"),
    ):
        with pytest.raises(ValueError, match=words):
            fit()
