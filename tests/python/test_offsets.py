"""A constant added to a column changes nothing but the constant of a model that has one."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from problems import assert_certified, predictions
from sparsebayes import (
    GREVM,
    MRVM2,
    RVC,
    RVR,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
)
from sparsebayes._data.design import matrix
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Linear, OnColumns
from sparsebayes.providers import RowPart, SummedStatistics

N = 200
PARTS = (slice(0, 90), slice(90, N))


def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 4)) * [1.0, 2.0, 0.5, 1.0]
    eta = 3.0 * X[:, 0] - X[:, 1] + 0.3
    weights = rng.uniform(0.5, 2.0, N)
    return X, eta, rng.normal(size=N), weights


X, ETA, NOISE, WEIGHTS = rows()
VALUES = ETA + 0.3 * NOISE
CLASSES = ETA + NOISE > 0
THREE = np.digitize(ETA + 0.5 * NOISE, [-1.0, 1.0])
OUTPUTS = np.column_stack([VALUES, 0.5 * X[:, 3] - VALUES + 0.2 * NOISE**2])
COUNTS = np.round(np.exp(0.5 * ETA + 0.2 * NOISE))


def fit(model, y):
    return lambda X: clone(model).fit(X, y, WEIGHTS)


def on_sums(X):
    first, rest = (SufficientStatistics(4).update(X[part], VALUES[part], WEIGHTS[part]) for part in PARTS)
    return SparseBayesRegressor().fit_statistics(rest.merge(first))


def bit_by_bit(X):
    model = SparseBayesRegressor()
    for part in PARTS:
        model.partial_fit(X[part], VALUES[part], WEIGHTS[part])
    return model


def in_chunks(model, y):
    return lambda X: clone(model).fit([(X[part], y[part], WEIGHTS[part]) for part in PARTS])


def through_a_provider(X):
    parts = [RowPart(X[part], VALUES[part], WEIGHTS[part], fit_intercept=True) for part in PARTS]
    return SparseBayesRegressor().fit_provider(SummedStatistics(parts))


def classes_through_a_provider(X):
    rows = RowPart(X, CLASSES, WEIGHTS, fit_intercept=True, likelihood="bernoulli")
    return SparseBayesClassifier().fit_provider(rows, classes=[False, True])


#: Functions from X to a fitted model.
PATHS = {
    "gaussian": fit(SparseBayesRegressor(), VALUES),
    "several outputs": fit(SparseBayesRegressor(), OUTPUTS),
    "poisson": fit(SparseBayesRegressor(likelihood="poisson"), COUNTS),
    "mackay": fit(SparseBayesRegressor(scheme="mackay"), VALUES),
    "variational": fit(SparseBayesRegressor(scheme="variational"), VALUES),
    "two classes": fit(SparseBayesClassifier(), CLASSES),
    "one against the rest": fit(SparseBayesClassifier(), THREE),
    "softmax": fit(SparseBayesClassifier(multi_class="softmax"), THREE),
    "sums": on_sums,
    "partial_fit": bit_by_bit,
    "chunks": in_chunks(SparseBayesRegressor(), VALUES),
    "chunks of classes": in_chunks(SparseBayesClassifier(), CLASSES),
    "provider": through_a_provider,
    "provider of classes": classes_through_a_provider,
    "linear kernel": fit(RVR("linear"), VALUES),
    "linear kernel, classes": fit(RVC("linear"), CLASSES),
    "linear kernel, softmax": fit(RVC("linear", multi_class="softmax"), THREE),
    "linear and local kernels": fit(RVR(Gaussian(1.0) + OnColumns(Linear(), [0, 2]), gamma="scale"), VALUES),
    "linear kernel in chunks": in_chunks(RVR("linear", candidates=20, random_state=0), VALUES),
    "columns beside kernels": fit(RVR(Gaussian(1.0), extra_basis="linear"), VALUES),
    "columns beside kernels, classes": fit(RVC(Gaussian(1.0), extra_basis="linear"), CLASSES),
    "columns beside kernels in chunks": in_chunks(
        RVR(Gaussian(1.0), candidates=20, random_state=0, extra_basis="linear"), VALUES
    ),
}


def centred(X):
    """X with columns about 0, and of few digits, so that constants are added to it without rounding."""
    return np.round((X - np.average(X, axis=0, weights=WEIGHTS)) * 2**20) / 2**20


@pytest.mark.parametrize("path", PATHS)
def test_offsets_of_columns_do_not_change_the_model(path):
    at_zero = centred(X)
    expected = PATHS[path](at_zero)
    assert expected.status_ == "converged"
    offsets = np.array([1e6, -1e3, 1e6, 7.0]) * at_zero.std(axis=0).round(1)
    found = PATHS[path](at_zero + offsets)
    np.testing.assert_array_equal(found.active_, expected.active_)
    assert found.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-6)
    np.testing.assert_allclose(
        predictions(found, at_zero + offsets), predictions(expected, at_zero), rtol=1e-6, atol=1e-7
    )


@given(
    path=st.sampled_from(["gaussian", "poisson", "two classes", "softmax", "sums", "linear kernel"]),
    offsets=st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
)
def test_random_offsets_do_not_change_the_model(path, offsets):
    at_zero = centred(X)
    rounded = np.round(offsets)
    expected, found = PATHS[path](at_zero), PATHS[path](at_zero + rounded)
    np.testing.assert_array_equal(found.active_, expected.active_)
    assert found.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_predictions_are_still_good_where_few_digits_are_left(path):
    near, far = PATHS[path](X), PATHS[path](X + 1e9)
    np.testing.assert_allclose(predictions(far, X + 1e9), predictions(near, X), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "path", ["gaussian", "two classes", "softmax", "linear kernel", "columns beside kernels"]
)
def test_predictors_subtract_the_same_offsets(path):
    model = PATHS[path](X + 1e6)
    served = model.to_predictor()
    answers = served.predict_proba if hasattr(model, "predict_proba") else served.predict_std
    np.testing.assert_allclose(np.stack(answers(X + 1e6)), predictions(model, X + 1e6), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (SparseBayesRegressor(), VALUES),
        (SparseBayesClassifier(), CLASSES),
        (RVR("linear"), VALUES),
        (RVC("linear"), CLASSES),
        (MRVM2("linear"), THREE),
        (GREVM("linear"), CLASSES),
    ],
)
def test_coefficients_and_intercept_are_those_of_the_columns_given(model, y):
    model = clone(model).fit(X + 100.0, y)
    eta = (X + 100.0) @ np.atleast_2d(model.coef_).T + model.intercept_
    if hasattr(model, "classes_"):
        expected = model.decision_function(X + 100.0).reshape(N, -1)
        eta = eta if eta.shape == expected.shape else eta[:, 1:] - eta[:, :1]
    else:
        expected = model.predict(X + 100.0)[:, np.newaxis]
    np.testing.assert_allclose(eta, expected, rtol=1e-8, atol=1e-8)


def test_a_constant_column_never_enters():
    model = SparseBayesRegressor().fit(np.column_stack([X, np.full(N, 0.1), np.zeros(N)]), VALUES, WEIGHTS)
    assert set(model.active_) <= {-1, 0, 1, 2, 3}
    np.testing.assert_array_equal(model.coef_[4:], 0.0)


def test_without_an_intercept_nothing_is_centred():
    model = SparseBayesRegressor(fit_intercept=False).fit(X + 1.0, VALUES)
    np.testing.assert_array_equal(model.X_offset_, 0.0)
    assert certificate(model, X + 1.0, VALUES).max_gain_outside < 1e-6


@pytest.mark.parametrize("path", ["gaussian", "two classes", "linear kernel", "columns beside kernels"])
def test_a_fit_far_from_0_is_certified(path):
    y = CLASSES if path == "two classes" else VALUES
    model = PATHS[path](X + 1e3)
    assert_certified(model, X + 1e3, y, WEIGHTS)


def test_many_columns_far_from_zero_by_a_linear_kernel():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(80, 4))
    wide = factors @ rng.normal(size=(4, 360)) + 0.2 * rng.normal(size=(80, 360))
    y = factors @ [2.0, -1.0, 0.5, 0.0] + 0.3 * rng.normal(size=80)
    train, test, t, u = train_test_split(wide, y, random_state=0)
    near, far = RVR("linear").fit(train, t), RVR("linear").fit(train + 100.0, t)
    assert far.score(test + 100.0, u) > 0.9
    np.testing.assert_allclose(far.predict(test + 100.0), near.predict(test), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_columns_are_centred_in_the_order_that_the_core_reads(bias):
    X, means = np.random.default_rng(0).normal(size=(300, 7)), np.arange(4.0)  # several blocks of rows
    Phi = matrix([X[:, :3], X[:, 3:]], bias=bias, offset=means)
    assert Phi.flags.f_contiguous
    np.testing.assert_array_equal(Phi[:, bias:], np.column_stack([X[:, :3], X[:, 3:] - means]))
    assert (Phi[:, :bias] == 1.0).all()


def test_a_fit_on_columns_copies_them_once():
    X = np.random.default_rng(0).normal(size=(50, 20_000))
    y = X[:, :3].sum(axis=1)
    model = SparseBayesRegressor(noise_variance=0.01).fit(X[:, :9], y)  # imports what a fit needs
    tracemalloc.start()  # of NumPy alone: the core makes no copy
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * X.nbytes
