"""Smooth kernels, whose dictionaries have few features: a first model from these, and a certified end."""

import numpy as np
import pytest

from problems import assert_certified, sinc_2d, two_classes
from sparsebayes import RVC, RVR
from sparsebayes.kernels import Gaussian

#: Enough rows for a first model from features alone, and a width at which there are few of them.
N = 1400
WIDE = Gaussian(2.5)


def surface(seed=0, noise=0.1):
    return sinc_2d(N, noise=noise, seed=seed)


def weights():
    return np.random.default_rng(1).uniform(0.5, 2.0, N)


@pytest.mark.parametrize(
    ("settings", "sample_weight"),
    [
        ({}, None),
        ({"fit_intercept": False}, None),
        ({"noise_variance": 0.02}, None),
        ({}, weights()),
        ({"candidates": 1200}, None),
        ({"kernel": [Gaussian(2.5), Gaussian(4.0)], "candidates": 600}, None),
    ],
)
def test_a_first_model_from_features_is_brought_to_a_certified_optimum(settings, sample_weight):
    X, y = surface()
    model = RVR(**{"kernel": WIDE, **settings}).fit(X, y, sample_weight=sample_weight)
    assert_certified(model, X, y, sample_weight)
    # The first model is a step like any other, and none lowers the evidence at fixed noise.
    path = model.log_marginal_likelihood_path_
    assert len(path) == model.n_iter_ + 1
    assert path[1] > path[0] + 100
    if "noise_variance" in settings:
        assert np.all(np.diff(path) >= -1e-8)


def test_the_end_is_as_high_as_without_features():
    gains = []
    for seed in range(4):
        X, y = surface(seed)
        with_features = RVR(kernel=WIDE).fit(X, y)
        # A fit of so few steps keeps to rows.
        on_rows = RVR(kernel=WIDE, max_iter=999).fit(X, y)
        assert with_features.n_iter_ < on_rows.n_iter_
        gains.append(with_features.log_marginal_likelihood_ - on_rows.log_marginal_likelihood_)
    assert np.mean(gains) > -2
    assert min(gains) > -6


def test_targets_of_nothing_but_noise_keep_the_model_small():
    X = surface()[0]
    y = np.random.default_rng(5).normal(size=N)
    model = RVR(kernel=WIDE).fit(X, y)
    assert_certified(model, X, y)
    assert len(model.relevance_) < 30


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_with_little_noise_do_not_use_features():
    X, y = surface(noise=0.0)
    model, on_rows = (
        RVR(kernel=WIDE, noise_variance=1e-5, max_iter=steps).fit(X, y) for steps in (100_000, 999)
    )
    np.testing.assert_array_equal(model.alpha_, on_rows.alpha_)


@pytest.mark.parametrize("lazy_threads", [1, 2])
def test_threads_change_no_bit(lazy_threads):
    X, y = surface()
    reference, model = (RVR(kernel=WIDE, n_jobs=n).fit(X, y) for n in (None, lazy_threads))
    np.testing.assert_array_equal(model.alpha_, reference.alpha_)
    assert model.log_marginal_likelihood_ == reference.log_marginal_likelihood_
    X, y = two_classes(N)
    reference, model = (RVC(kernel=Gaussian(1.0), n_jobs=n).fit(X, y) for n in (None, lazy_threads))
    np.testing.assert_array_equal(model.alpha_, reference.alpha_)


@pytest.mark.parametrize("settings", [{}, {"fit_intercept": True}, {"candidates": 900}])
def test_classes_are_certified_through_features(settings):
    X, y = two_classes(N)
    model = RVC(kernel=Gaussian(1.0), **settings).fit(X, y)
    assert_certified(model, X, y)


def test_a_row_far_from_all_others_is_seen():
    X, y = two_classes(N)
    X = np.vstack([X, [[40.0, -35.0]]])
    y = np.append(y, 1 - y[0])
    model = RVC(kernel=Gaussian(1.0)).fit(X, y)
    assert_certified(model, X, y)
    assert np.isfinite(model.predict_proba(X)).all()
