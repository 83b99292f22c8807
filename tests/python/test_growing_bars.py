"""Error bars that grow and count fitted parameters (``RVR(std="full")``), against the dense formula."""

import json
from copy import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsebayes import RVR, load
from sparsebayes.kernels import Gaussian, Laplacian


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(90, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=90)


NEW = np.array([[0.0, 0.0], [2.9, -2.9], [5.0, 0.0], [60.0, -60.0]])


def added(model, X):
    """What std="full" adds to the variance, before the factor for fitted parameters."""
    plain = copy(model).set_params(std="plain")
    full = model.predict(X, return_std=True)[1] ** 2 / model._variance_factor
    return full - plain.predict(X, return_std=True)[1] ** 2


def factor_of(model, n_rows, n_learned=0):
    """(N - M) / (N - M - P), with a precision for each weight but the intercept's."""
    n_weights = len(model.active_)
    n_others = n_weights - np.isin(-1, model.active_) + n_learned
    return (n_rows - n_weights) / (n_rows - n_weights - n_others)


@pytest.mark.parametrize(("kernel", "rounding"), [("rbf", 1e-6), ("matern32", 1e-9), ("matern52", 1e-9)])
def test_the_variance_is_that_of_the_prior_given_the_centres(rows, kernel, rounding):
    X, y = rows
    model = RVR(kernel, gamma=0.3, std="full").fit(X, y)
    (growth,) = model._growths
    Z, k = growth.centres, model.kernel_
    assert {tuple(z) for z in model.relevance_vectors_} <= {tuple(z) for z in Z} <= {tuple(x) for x in X}
    scale = np.var(model.predict(X))
    rest = 1.0 - np.sum(k(NEW, Z) * np.linalg.solve(k(Z, Z), k(Z, NEW)).T, axis=1)
    assert_allclose(added(model, NEW), scale * (rest - rounding), rtol=1e-6, atol=1e-9)
    assert_allclose(added(model, NEW)[-1], scale, rtol=2e-6)
    assert_allclose(added(model, Z), 0.0, atol=1e-9)
    # The other training rows are near these.
    assert added(model, X).max() < (1e-3 if kernel == "rbf" else 0.1) * scale


def test_at_most_100_rows_are_landmarks():
    rng = np.random.default_rng(1)
    X = rng.uniform(-9.0, 9.0, size=(300, 3))
    model = RVR(gamma=1.0, std="full", candidates=40, random_state=0).fit(X, np.sin(X[:, 0]))
    (growth,) = model._growths
    assert len(growth.centres) == len(model.relevance_) + 100


def test_predictions_are_the_same_and_intervals_wider(rows):
    X, y = rows
    full, plain = RVR(gamma=0.3, std="full").fit(X, y), RVR(gamma=0.3, std="plain").fit(X, y)
    assert_allclose(full.predict(NEW), plain.predict(NEW), rtol=0.0)
    assert_allclose(full.loo_, plain.loo_, rtol=0.0)
    wide, narrow = (np.ptp(model.predict_interval(NEW), axis=0) for model in (full, plain))
    assert (wide >= narrow).all()
    assert wide[-1] > 3.0 * narrow[-1]


def test_covariances_and_draws_have_these_variances(rows):
    X, y = rows
    model = RVR(gamma=0.3, std="full").fit(X, y)
    X_new = np.vstack([NEW, NEW[2:] + 0.1])
    _, cov = model.predict(X_new, return_cov=True)
    _, std = model.predict(X_new, return_std=True)
    assert_allclose(np.diag(cov), std**2, rtol=1e-8)
    assert_allclose(np.cov(model.sample_y(X_new, 50_000)), cov, atol=0.03 * cov.max())
    # Far away rows near one another have nearly the same value of the function.
    scale = std[-1] ** 2 - factor_of(model, 90) * model.noise_variance_
    assert_allclose(cov[3, 5], scale * model.kernel_(X_new[[3]], X_new[[5]])[0, 0], rtol=1e-3)


def test_outputs_and_kernels_have_a_scale_each(rows):
    X, y = rows
    Y = np.column_stack([y, 10.0 * y + 3.0])
    kernels = [Gaussian(2.0), Laplacian(0.2)]
    model = RVR(kernels, std="full").fit(X, Y)
    assert len(model._growths) == len({*(model.active_[model.active_ >= 0] // 90)})
    far = np.full((1, 2), 1e4)
    scales = np.sum([growth.scale for growth in model._growths], axis=0)
    assert_allclose(model.predict(far, return_std=True)[1] ** 2, [model.noise_variance_ + scales], rtol=0.3)
    assert model.predict(far, return_cov=True)[1].shape == (1, 1, 2)


def test_the_order_of_the_rows_does_not_matter(rows):
    X, y = rows
    order = np.random.default_rng(2).permutation(len(y))
    first, second = (RVR(gamma=0.3, std="full").fit(X[at], y[at]) for at in (np.arange(90), order))
    for found, expected in zip(*(m.predict(NEW, return_std=True) for m in (first, second)), strict=True):
        assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


def test_a_row_of_weight_two_counts_like_two(rows):
    X, y = rows
    w = np.arange(90) % 3
    first = RVR(gamma=0.3, std="full").fit(X, y, sample_weight=w)
    second = RVR(gamma=0.3, std="full").fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    for found, expected in zip(*(m.predict(NEW, return_std=True) for m in (first, second)), strict=True):
        assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("width", [2.0, 5.0])
def test_bars_grow_by_what_the_targets_vary(width):
    """The intercept cancels the mean of wide kernel functions, which is far larger than their variance."""
    X = np.random.default_rng(0).uniform(size=(100, 2))
    y = X[:, 0] + X[:, 1] ** 2 + 0.05 * np.cos(37.0 * np.arange(100))
    model = RVR(Gaussian(width)).fit(X, y)
    assert 0.8 * y.var() < added(model, np.full((1, 2), 1e3)) < 1.2 * y.var()


def test_rows_in_chunks_have_candidates_as_landmarks(rows):
    X, y = rows
    model = RVR(gamma=0.3, std="full", candidates=X[:60]).fit([(X[:50], y[:50]), (X[50:], y[50:])])
    assert added(model, NEW)[-1] > 0.2
    assert {tuple(z) for z in model._growths[0].centres} <= {tuple(x) for x in X[:60]}
    in_memory = RVR(gamma=0.3, candidates=X[:60]).fit(X, y)
    assert_allclose(model.predict(NEW), in_memory.predict(NEW), rtol=1e-8)
    plain = [one.set_params(std="plain").predict(NEW, return_std=True)[1] for one in (model, in_memory)]
    assert_allclose(plain[0], plain[1], rtol=1e-8)
    assert not hasattr(model, "loo_")


def test_variances_count_fitted_parameters(rows):
    """Few rows and many parameters: 95 % intervals of plain error bars hold too few new rows."""
    X, y = rows
    for model in (RVR(gamma=0.3), RVR(extra_basis=None), RVR(extra_basis="linear")):
        model.fit(X, y)
        n_learned = np.isfinite(model.kernel_.width).sum() if model.gamma == "ard" else 0
        at = model.relevance_vectors_  # where bars do not grow
        plain = copy(model).set_params(std="plain").predict(at, return_std=True)[1]
        full = model.predict(at, return_std=True)[1]
        assert_allclose(full**2 / plain**2, factor_of(model, 90, n_learned), rtol=1e-6)
        assert_allclose(model.to_predictor().predict_std(at)[1], full, rtol=1e-9)
    known = RVR(gamma=0.3, noise_variance=0.04).fit(X, y)
    assert_allclose(known._variance_factor, 1.0)
    Y = np.column_stack([y, np.cos(X[:, 1])])
    each, shared = (RVR(gamma=0.3, shared_noise=flag).fit(X, Y) for flag in (False, True))
    for several in (each, shared):
        for outputs, served in zip(
            several.predict(NEW, return_std=True), several.to_predictor().predict_std(NEW), strict=True
        ):
            assert_allclose(outputs, served, rtol=1e-9)
        _, cov = several.predict(NEW, return_cov=True)
        rows_ = np.arange(len(NEW))
        assert_allclose(cov[rows_, rows_], several.predict(NEW, return_std=True)[1] ** 2, rtol=1e-9)
    with pytest.warns(UserWarning, match="functions"):
        crowded = RVR(Gaussian(0.1), complexity="none").fit(X, y)
    assert crowded._variance_factor <= 4.0


def test_intervals_of_few_rows_with_many_inputs_hold():
    """Without the factor they hold 87 % of new rows."""
    inside = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(260, 8))
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=260)
        model = RVR().fit(X[:60], y[:60])
        low, high = model.predict_interval(X[60:])
        inside.append(np.mean((low < y[60:]) & (y[60:] < high)))
    assert 0.9 < np.mean(inside) < 0.97


def test_models_without_kernels_have_bars_that_do_not_grow(rows):
    X, y = rows
    K = Gaussian(2.0)(X, X)
    assert_allclose(added(RVR("precomputed", std="full").fit(K, y), K), 0.0, atol=1e-12)
    empty = RVR(gamma=0.3, std="full", noise_variance=4.0, fit_intercept=False)
    with pytest.warns(UserWarning, match="no functions"):
        empty.fit(X, 0.1 * np.cos(37.0 * np.arange(90)))
    assert empty._growths == []


def test_files_keep_growing_bars_and_plain_models_the_older_format(rows, tmp_path):
    X, y = rows
    model = RVR(gamma=0.3, std="full").fit(X, y)
    model.save(tmp_path / "model")
    assert_allclose(
        load(tmp_path / "model").predict_std(NEW), model.predict(NEW, return_std=True), rtol=1e-10
    )
    assert load(tmp_path / "model").to_bytes() == (tmp_path / "model").read_bytes()
    assert json.loads(model.to_predictor()._core.header)["format_version"] == 2
    model.set_params(std="plain")
    assert_allclose(model.to_predictor().predict_std(NEW), model.predict(NEW, return_std=True), rtol=1e-10)
    assert json.loads(model.to_predictor()._core.header)["format_version"] == 1


def test_a_plain_fit_has_no_growing_bars_to_export(rows):
    X, y = rows
    model = RVR(gamma=0.3, std="plain").fit(X, y).set_params(std="full")
    with pytest.raises(ValueError, match="fit again"):
        model.to_predictor()


def test_the_argument_is_checked(rows):
    X, y = rows
    with pytest.raises(ValueError, match="std must be"):
        RVR(std="wide", gamma="scale").fit(X, y)
    model = RVR(gamma=0.3, std="plain").fit(X, y)
    model.set_params(std="full")
    with pytest.raises(ValueError, match="std='full' needs landmarks"):
        model.predict(X, return_std=True)
