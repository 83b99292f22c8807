"""What models mean: order, units and storage of the data do not matter, and error bars are right."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

from problems import sinc_2d
from sparsebayes import RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.kernels import Gaussian


def outputs(model, X):
    """Return predictions with their error bars, or probabilities."""
    if hasattr(model, "predict_proba"):
        return (model.predict_proba(X),)
    return model.predict(X, return_std=True)


def assert_same(ours, theirs, rtol=1e-5, atol=1e-6):
    """Compare two correct fits, which may stop at slightly different points."""
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.fixture(params=["RVR", "RVC", "SparseBayesRegressor", "SparseBayesClassifier"])
def case(request):
    """Return an estimator with a given kernel, if it has one, training rows, targets and new rows."""
    X, y = sinc_2d(150, seed=3)
    y = y + 0.1 * X[:, 0]
    if request.param in ("RVC", "SparseBayesClassifier"):
        y = y > np.median(y)
    X = X if request.param.startswith("RV") else np.column_stack([X, X**2, X**3 / 100.0])
    kernel = {"kernel": Gaussian(3.0)} if request.param.startswith("RV") else {}
    classes = {kind.__name__: kind for kind in (RVR, RVC, SparseBayesRegressor, SparseBayesClassifier)}
    return classes[request.param](**kernel), X[:120], y[:120], X[120:]


def test_the_order_of_rows_and_columns_does_not_matter(case):
    model, X, y, new = case
    expected = outputs(clone(model).fit(X, y), new)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
    assert_same(outputs(clone(model).fit(X[rows], y[rows]), new), expected)
    assert_same(outputs(clone(model).fit(X[:, columns], y), new[:, columns]), expected)


def test_copies_of_rows_are_weights(case):
    model, X, y, new = case
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    expected = outputs(clone(model).fit(X, y, sample_weight=counts), new)
    assert_same(outputs(clone(model).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)), new), expected)


def test_float32_and_sparse_rows_give_the_same_model(case):
    model, X, y, new = case
    X, new = X.astype(np.float32), new.astype(np.float32)
    expected = outputs(clone(model).fit(X.astype(float), y), new.astype(float))
    for one, other in zip(outputs(clone(model).fit(X, y), new), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    if not hasattr(model, "kernel"):
        found = outputs(clone(model).fit(csr_matrix(X.astype(float)), y), new.astype(float))
        assert_same(found, expected)


@pytest.mark.parametrize("estimator", [RVR(), RVC(), RVC(landmarks=None), SparseBayesRegressor()], ids=repr)
def test_units_of_inputs_do_not_matter(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=200)
    y = y > 0.0 if isinstance(estimator, RVC) else y
    scale, shift = np.array([1e-6, 1.0, 1e5]), np.array([3.0, -1e3, 1e7])
    expected = outputs(clone(estimator).fit(X[:150], y[:150]), X[150:])
    found = outputs(clone(estimator).fit(scale * X[:150] + shift, y[:150]), scale * X[150:] + shift)
    # 1e-6 beside 3 leaves ten digits.
    assert_same(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 7.0, 1e30])
def test_predictions_have_the_unit_of_the_targets(factor):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=200)
    for estimator in (RVR(), SparseBayesRegressor()):
        mean, std = outputs(clone(estimator).fit(X[:150], y[:150]), X[150:])
        found = outputs(clone(estimator).fit(X[:150], factor * (y[:150] + 5.0)), X[150:])
        assert_same((found[0] / factor - 5.0, found[1] / factor), (mean, std))


@pytest.mark.parametrize("kind", ["kernel", "columns"])
def test_more_rows_do_not_widen_error_bars(kind):
    widths = {60: [], 120: [], 240: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, new = rng.uniform(-2.0, 2.0, (240, 2)), rng.uniform(-2.0, 2.0, (100, 2))
        y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=240)
        for n in widths:
            model = RVR(Gaussian(2.0), noise_variance=0.09)
            if kind == "columns":
                model = SparseBayesRegressor(noise_variance=0.09)
            widths[n].append(model.fit(X[:n], y[:n]).predict(new, return_std=True)[1].mean())
    first, second, third = (np.mean(widths[n]) for n in sorted(widths))
    assert first > second > third > 0.3


@pytest.mark.parametrize("kind", ["kernel", "columns"])
def test_intervals_hold_their_probability_for_draws_from_the_prior(kind):
    held = {0.5: [], 0.95: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (400, 1 if kind == "kernel" else 20))
        if kind == "kernel":
            centres = X[rng.choice(200, 4, replace=False)]
            model, truth = RVR(Gaussian(1.0)), Gaussian(1.0)(X, centres) @ rng.normal(size=4)
        else:
            model, truth = SparseBayesRegressor(), X[:, :4] @ rng.normal(size=4)
        y = truth + 0.3 * rng.normal(size=400)
        model.fit(X[:200], y[:200])
        for probability, shares in held.items():
            low, high = model.predict_interval(X[200:], probability)
            shares.append(np.mean((low <= y[200:]) & (y[200:] <= high)))
    assert 0.47 < np.mean(held[0.5]) < 0.53
    assert 0.935 < np.mean(held[0.95]) < 0.965
