"""Columns of ``extra_basis`` with a flat prior (``unpenalized=``), held to dense formulas."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space
from scipy.special import expit, gammaln
from scipy.stats import multivariate_normal

from problems import assert_certified
from sparsebayes import RVC, RVR, _core, load
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

WIDE = Gaussian(1.4)


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 5.0 + 0.2 * rng.normal(size=80)


def design(model, X, flat=(0, 1)):
    """The kernel functions of a model with their precisions, and the columns with a flat prior."""
    centred = X - X.mean(axis=0)
    return (
        model.kernel_(X, model.relevance_vectors_),
        model.alpha_[(model.active_ >= 0) & (model.active_ < len(X))],
        np.column_stack([np.ones(len(X)), centred[:, list(flat)]]),
    )


def log_evidence_of_contrasts(model, X, y):
    """Log density of the contrasts of y orthogonal to the columns with a flat prior (Harville 1974)."""
    Phi, alpha, F = design(model, X)
    contrasts = null_space(F.T)
    C = np.eye(len(y)) / model.beta_ + (Phi / alpha) @ Phi.T
    return multivariate_normal(cov=contrasts.T @ C @ contrasts).logpdf(contrasts.T @ y)


@pytest.mark.parametrize("scheme", ["sequential", "mackay", "em"])
def test_the_evidence_is_the_density_of_the_contrasts(rows, scheme):
    X, y = rows
    model = RVR(WIDE, extra_basis="linear", unpenalized="all", scheme=scheme).fit(X, y)
    assert_array_equal(model.active_[[0, -2, -1]], [-1, 80, 81])
    assert_array_equal(model.alpha_[[0, -2, -1]], 0.0)
    assert (model.alpha_[1:-2] > 0.0).all()
    assert_allclose(model.log_marginal_likelihood_, log_evidence_of_contrasts(model, X, y), rtol=1e-9)
    assert_certified(model, X, y)


def test_posterior_and_noise_agree_with_dense_formulas(rows):
    X, y = rows
    model = RVR(WIDE, extra_basis="linear", unpenalized="all", complexity="none").fit(X, y)
    Phi, alpha, F = design(model, X)
    active, A = np.column_stack([F, Phi]), np.diag(np.append(np.zeros(3), alpha))
    Sigma = np.linalg.inv(A + model.beta_ * active.T @ active)
    mu = model.beta_ * Sigma @ active.T @ y
    assert_allclose(model.extra_coef_[0], mu[1:3], rtol=1e-8)
    assert_allclose(model.dual_coef_[0], mu[3:], rtol=1e-6, atol=1e-9)
    assert_allclose(np.diag(model.sigma_)[-2:], np.diag(Sigma)[1:3], rtol=1e-8)
    # Tipping (2001), equation 18, with gamma = 1 for the weights without a prior.
    determined = len(A) - np.trace(A @ Sigma)
    variance = np.sum((y - active @ mu) ** 2) / (len(y) - determined)
    assert_allclose(model.noise_variance_, variance, rtol=1e-5)


def test_scales_of_columns_and_combinations_of_them_change_nothing(rows):
    X, y = rows
    model = RVR(WIDE, extra_basis="linear", unpenalized="all").fit(X, y)
    mixed = RVR(WIDE, extra_basis=lambda X: X @ [[1e3, 2.0], [0.0, 0.1]], unpenalized="all").fit(X, y)
    assert_array_equal(mixed.relevance_, model.relevance_)
    assert_allclose(mixed.predict(X), model.predict(X), rtol=1e-8)
    assert_allclose(mixed.log_marginal_likelihood_, model.log_marginal_likelihood_, rtol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"fit_intercept": False}, {"gamma": "ard"}])
@pytest.mark.parametrize("slope", [-3.0, 1e5])
def test_a_trend_added_to_y_changes_nothing_but_its_weights(rows, settings, slope):
    X, y = rows
    settings = {"gamma": 0.5, "extra_basis": "linear", "unpenalized": "all"} | settings
    model = RVR(**settings).fit(X, y)
    moved = RVR(**settings).fit(X, y + X @ [slope, 1.0])
    assert_array_equal(moved.active_, model.active_)
    assert_allclose(moved.extra_coef_ - [[slope, 1.0]], model.extra_coef_, atol=1e-6)
    assert_allclose(moved.predict(X) - X @ [slope, 1.0], model.predict(X), atol=1e-6)
    assert_allclose(moved.log_marginal_likelihood_, model.log_marginal_likelihood_, rtol=1e-6)


def test_columns_are_chosen_by_position_or_name(rows):
    X, y = rows
    table = pd.DataFrame(X, columns=["a", "b"])
    fits = [
        RVR(WIDE, extra_basis="linear", unpenalized=columns).fit(table, y)
        for columns in ([1], -1, ["b"], "b", np.array([1, 1]))
    ]
    for model in fits:
        assert_array_equal(model.alpha_[model.active_ == 81], 0.0)
        assert (model.alpha_ == 0.0).sum() == 2
        assert_array_equal(model.predict(table), fits[0].predict(table))
    assert_certified(fits[0], table, y)


CASES = {
    "no intercept": (RVR, {"fit_intercept": False}),
    "intercept with a precision": (RVR, {"penalize_intercept": True}),
    "exchanges": (RVR, {"search": "exchange"}),
    "no complexity prior": (RVR, {"complexity": "none"}),
    "hyperpriors": (RVR, {"complexity": "none", "alpha_prior": (0.05, 0.3)}),
    "fixed noise": (RVR, {"noise_variance": 0.04}),
    "two classes": (RVC, {}),
    "two classes by EM": (RVC, {"scheme": "em"}),
    "three classes": (RVC, {}),
    "outputs": (RVR, {}),
    "outputs with shared noise": (RVR, {"shared_noise": True}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_fits_are_certified(rows, case, weighted):
    X, y = rows
    kind, settings = CASES[case]
    if "classes" in case:
        y = np.digitize(y, [4.5, 5.5] if "three" in case else [5.0])
    elif "outputs" in case:
        y = np.column_stack([y, 3.0 - 2.0 * np.cos(X[:, 0])])
    w = np.random.default_rng(5).uniform(0, 2, len(y)).round(1) if weighted else None
    model = kind(WIDE, extra_basis="linear", unpenalized="all", **settings).fit(X, y, w)
    assert_array_equal(model.alpha_[-2:], 0.0)
    found = assert_certified(model, X, y, w)
    assert found.max_mean_error <= 1e-6
    assert_allclose(found.log_marginal_likelihood, model.log_marginal_likelihood_, rtol=1e-8)


def log_likelihood(likelihood, eta, t):
    if likelihood == "bernoulli":
        return t @ eta - np.logaddexp(0.0, eta).sum()
    return t @ eta - np.exp(eta).sum() - gammaln(t + 1.0).sum()


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_evidence_and_mode_agree_with_dense_formulas(rows, likelihood):
    X, _ = rows
    rng = np.random.default_rng(0)
    signal = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    t = rng.poisson(np.exp(signal)) if likelihood == "poisson" else rng.random(80) < expit(2.0 * signal)
    t, flat = t.astype(float), [0, 1, 2]
    Phi = np.column_stack([np.ones(80), X, WIDE(X, X)])
    found = _core.fit_dense(Phi, t, likelihood=likelihood, unpenalized=flat)
    assert found.status == "converged"
    assert_array_equal(found.active[:3], flat)
    assert_array_equal(found.alpha[:3], 0.0)
    assert len(found.active) > 3
    active = Phi[:, found.active]
    eta = active @ found.mu
    mean, weight = (np.exp(eta),) * 2 if likelihood == "poisson" else (expit(eta), expit(eta) * expit(-eta))
    assert_allclose(active.T @ (t - mean), found.alpha * found.mu, atol=1e-6)
    H = np.diag(found.alpha) + active.T @ (weight[:, np.newaxis] * active)
    # A flat density over the coordinates in an orthonormal basis of the columns' span.
    volume = np.linalg.slogdet(active[:, :3].T @ active[:, :3])[1]
    evidence = (
        log_likelihood(likelihood, eta, t)
        - 0.5 * found.alpha @ found.mu**2
        + 0.5 * np.log(found.alpha[3:]).sum()
        + 0.5 * (volume + 3.0 * np.log(2.0 * np.pi))
        - 0.5 * np.linalg.slogdet(H)[1]
    )
    assert_allclose(found.log_evidence, evidence, rtol=1e-8)


def test_a_softmax_does_not_depend_on_the_class_without_flat_weights(rows):
    X, y = rows
    labels = np.digitize(y, [4.5, 5.5])
    models = [
        RVC(WIDE, extra_basis="linear", unpenalized="all", multi_class="softmax", tol=1e-8).fit(X, each)
        for each in (labels, -labels)
    ]
    for model, each in zip(models, (labels, -labels), strict=True):
        assert_array_equal(model.alpha_[[0, -2, -1], 0], np.inf)
        assert_array_equal(model.alpha_[[0, -2, -1], 1:], 0.0)
        assert_certified(model, X, each)
    assert_allclose(models[0].predict_proba(X), models[1].predict_proba(X)[:, ::-1], atol=1e-7)
    assert_allclose(*(model.log_marginal_likelihood_ for model in models), rtol=1e-9)


@pytest.mark.parametrize("classify", [False, True])
def test_fits_in_blocks_are_certified(rows, classify, monkeypatch):
    X, y = rows
    kind, y = (RVC, y > 5.0) if classify else (RVR, y)
    model = kind(WIDE, extra_basis="linear", unpenalized="all")
    whole = model.fit(X, y).predict(X)
    monkeypatch.setattr("sparsebayes._data.design._MAX_UNBLOCKED", 20)
    monkeypatch.setattr("sparsebayes._data.design._BLOCK_SIZES", (8, 8, 4, 16, 1))
    assert_certified(model.fit(X, y), X, y)
    assert_array_equal(model.alpha_[-2:], 0.0)
    assert np.mean(np.abs(model.predict(X) * 1.0 - whole)) < 0.2


def test_many_rows_start_from_low_rank_features():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 30.0 * X[:, 1] + 0.1 * rng.normal(size=2500)
    assert_certified(RVR(WIDE, extra_basis="linear", unpenalized="all").fit(X, y), X, y)


def test_rows_in_chunks_give_the_same_model(rows):
    X, y = rows
    settings = {"extra_basis": "linear", "unpenalized": [1], "candidates": X[:30]}
    for kind, target in ((RVR, y), (RVC, y > 5.0)):
        expected = kind(WIDE, **settings).fit(X, target)
        chunks = [(X[:30], target[:30]), (X[30:], target[30:])]
        found = kind(WIDE, **settings).fit(lambda chunks=chunks: iter(chunks))
        assert_array_equal(found.active_, expected.active_)
        assert found.alpha_[-1] == 0.0
        assert_allclose(found._linear_predictor(X), expected._linear_predictor(X), atol=1e-5)


def test_saved_models_agree(rows, tmp_path):
    X, y = rows
    model = RVR(WIDE, extra_basis="linear", unpenalized="all").fit(X, y)
    model.save(tmp_path / "model")
    far = np.vstack([X, 10.0 * X])
    for served in (model.to_predictor(), load(tmp_path / "model")):
        mean, std = model.predict(far, return_std=True)
        assert_allclose(served.predict(far), mean, rtol=1e-10)
        assert_allclose(served.predict_std(far)[1], std, rtol=1e-8)


def test_linearly_dependent_columns_are_refused(rows):
    X, y = rows
    for columns in (
        lambda X: X[:, [0, 0]],
        lambda X: X[:, :1] * [0.0, 1.0] + 7.0,
        lambda X: X @ [[1, 2, 1], [0, 1, 1]],
    ):
        with pytest.raises(
            ValueError, match="unpenalized must name columns whose weights the rows determine"
        ):
            RVR(WIDE, extra_basis=columns, unpenalized="all").fit(X, y)
    for kind in (RVR, RVC):
        with pytest.raises(ValueError, match="unpenalized must name columns"):
            kind(WIDE, extra_basis=lambda X: X[:, [0, 0]], unpenalized="all").fit(X, y > 5.0)
    # Without an intercept a constant column takes its place.
    constant = RVR(WIDE, extra_basis=lambda X: X[:, :1] * 0.0 + 1.0, unpenalized=0, fit_intercept=False).fit(
        X, y
    )
    assert_allclose(constant.predict(X), RVR(WIDE).fit(X, y).predict(X), atol=1e-6)


@pytest.mark.parametrize("scheme", ["sequential", "em"])
def test_columns_that_separate_classes_are_refused(rows, scheme):
    X, y = rows
    few = (np.arange(80) < 6).astype(float)
    model = RVC(WIDE, extra_basis="linear", unpenalized="all", scheme=scheme)
    for columns, labels in ((X, X[:, 0] > 0.1), (np.column_stack([X, few]), (y > 5.0) | (few > 0.0))):
        with pytest.raises(ValueError, match="unpenalized names columns that separate classes"):
            model.fit(columns, labels)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (RVR, {"extra_basis": None}, "unpenalized needs columns besides the kernels; set extra_basis"),
        (RVR, {"scheme": "variational"}, "unpenalized needs a scheme other than 'variational'"),
        (
            RVR,
            {"unpenalized": [2]},
            "unpenalized: columns must lie among the 2 columns of extra_basis; got 2",
        ),
        (
            RVR,
            {"unpenalized": ["a"]},
            "unpenalized: columns are given by name, 'a', but extra_basis has no names",
        ),
        (RVR, {"unpenalized": []}, "unpenalized: columns must name at least one"),
    ],
)
def test_invalid_arguments_are_named(rows, kind, settings, message):
    X, y = rows
    labels = np.digitize(y, [4.5, 5.5])
    with pytest.raises(ValueError, match=message):
        kind(WIDE, **({"extra_basis": "linear", "unpenalized": "all"} | settings)).fit(X, labels)


def test_no_more_rows_than_columns(rows):
    X, y = rows
    with pytest.warns(UserWarning, match="3 functions for 3 rows"):
        model = RVR(WIDE, extra_basis="linear", unpenalized="all").fit(X[:3], y[:3])
    assert_allclose(model.predict(X[:3]), y[:3], rtol=1e-9)
    assert np.isfinite(certificate(model, X[:3], y[:3]).log_marginal_likelihood)
