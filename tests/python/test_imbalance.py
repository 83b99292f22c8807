"""Rare classes: weights of classes, and probabilities for other shares of the classes."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss, recall_score
from sklearn.utils.class_weight import compute_sample_weight

from sparsebayes import MRVM1, RVC, RVR, SparseBayesClassifier
from sparsebayes.inspection import certificate
from sparsebayes.providers import RowPart
from test_chunked_classes import assert_same_model, in_chunks, problem

KINDS = {
    "columns": SparseBayesClassifier,
    "kernels": lambda **o: RVC(gamma=0.7, candidates=30, random_state=2, **o),
    "softmax": lambda **o: RVC(gamma=0.7, candidates=30, random_state=2, multi_class="softmax", **o),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("given", ["balanced", {"ant": 3.0, "bee": 0.5}])
def test_class_weights_multiply_the_weights_of_rows(kind, n_classes, given):
    X, y, weights = problem(3, n_classes=n_classes)
    keep = (y == "ant") | (np.arange(len(y)) % 3 == 0)
    X, y, weights = X[keep], y[keep], weights[keep]
    model = KINDS[kind](class_weight=given).fit(X, y)
    rows = compute_sample_weight(given, y)
    assert_same_model(model, KINDS[kind]().fit(X, y, rows))
    shares = [rows[y == label].sum() / rows.sum() for label in model.classes_]
    np.testing.assert_allclose(model.class_prior_, shares, rtol=1e-12)
    assert certificate(model, X, y).max_log_alpha_change < 1e-5
    # Weights count as rows, also where classes are balanced.
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    counted = KINDS[kind](class_weight=given).fit(X[repeated], y[repeated])
    weighted = KINDS[kind](class_weight=given).fit(X, y, weights)
    np.testing.assert_allclose(weighted.class_prior_, counted.class_prior_, rtol=1e-12)
    if kind == "columns":
        assert_same_model(weighted, counted, rtol=1e-6)


def test_shares_of_classes_are_known_wherever_the_rows_are():
    X, y, weights = problem(5, n_classes=3)
    for targets in (y, np.where(y == "ant", "ant", "bee")):
        model = SparseBayesClassifier().fit(X, targets, weights)
        shares = [weights[targets == label].sum() / weights.sum() for label in model.classes_]
        chunked = SparseBayesClassifier().fit(in_chunks(1, X, targets, weights))
        positive = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
        parts = [
            RowPart(X, targets == label, weights, fit_intercept=True, likelihood="bernoulli")
            for label in positive
        ]
        provided = SparseBayesClassifier().fit_provider(parts, classes=model.classes_)
        for one in (model, chunked, provided):
            np.testing.assert_allclose(one.class_prior_, shares, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("even", ValueError, "class_weight must be None, 'balanced', or a dict"),
        ([1.0, 2.0], TypeError, "class_weight must be None, 'balanced', or a dict"),
        ({"ant": 0.0}, ValueError, "class_weight must be a positive number, got 0.0; .* sample_weight=0"),
        ({"ant": "much"}, TypeError, "class_weight must be a positive number"),
        ({"ant": 1.0, "bug": 2.0}, ValueError, "class_weight has a weight for 'bug', .* are"),
    ],
)
def test_invalid_class_weights_are_named(given, error, message):
    X, y, _ = problem(1)
    with pytest.raises(error, match=message):
        SparseBayesClassifier(class_weight=given).fit(X, y)


def test_class_weights_need_rows_in_memory():
    X, y, weights = problem(1)
    model = SparseBayesClassifier(class_weight="balanced")
    for fit in (
        lambda: model.fit(in_chunks(1, X, y, weights)),
        lambda: model.fit_provider(RowPart(X, y == "bee", likelihood="bernoulli"), classes=["ant", "bee"]),
    ):
        with pytest.raises(ValueError, match=r"class_weight must be None .* sample_weight of each row"):
            fit()


@pytest.mark.parametrize("kind", [*KINDS, "probit"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_for_other_shares_follow_bayes_rule(kind, n_classes):
    X, y, weights = problem(3, n_classes=n_classes)
    model = (KINDS | {"probit": MRVM1})[kind]().fit(X, y, weights)
    prior = np.array([0.01, 0.99] if n_classes == 2 else [0.9, 0.01, 0.09])
    for options in ({}, {"moderate": False})[: 1 if kind == "probit" else 2]:
        p = model.predict_proba(X, **options)
        odds = p * prior / model.class_prior_
        adjusted = model.predict_proba(X, **options, prior=prior)
        np.testing.assert_allclose(adjusted, odds / odds.sum(axis=1, keepdims=True), rtol=1e-12)
        same = model.predict_proba(X, **options, prior=model.class_prior_)
        np.testing.assert_allclose(same, p, rtol=1e-12)
    best = model.classes_[model.predict_proba(X, prior=prior).argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X, prior=prior), best)
    assert (best != model.predict(X)).any()
    for bad in ([0.5] * 4, prior[:1], 2.0 * prior, prior - 0.02, np.full(n_classes, np.nan), [[0.5, 0.5]]):
        with pytest.raises(ValueError, match=f"prior must hold {n_classes} positive numbers that sum to 1"):
            model.predict(X, prior=bad)


# --- one row in 500 ----------------------------------------------------------------------------------

PRIOR = np.array([500.0, 1.0]) / 501.0
SHIFT = np.array([2.0, 1.0])


def rare(n, seed):
    """Return rows of two Gaussian classes, one of them rare: log odds 2 x_0 + x_1 - 2.5 - ln 500."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < PRIOR[1]).astype(int)
    return rng.normal(size=(n, 2)) + SHIFT * y[:, np.newaxis], y


@pytest.fixture(scope="module")
def tests():
    X, y = rare(200_000, 1)
    return X, y, log_loss(y, expit(X @ SHIFT - 2.5 - np.log(500.0)))


MODELS = {
    "defaults": RVC,
    "candidates": lambda: RVC(candidates=200, random_state=0),
    "columns": SparseBayesClassifier,
    "balanced columns": lambda: SparseBayesClassifier(class_weight="balanced"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", MODELS)
def test_a_class_of_one_row_in_500_is_learned(kind, tests):
    X, y, least = tests
    # Kernels are compared on 600 rows. A random sample of that size has no row of the rare class.
    model = MODELS[kind]().fit(*rare(20_000, 107))
    assert model.status_ == "converged"
    p = model.predict_proba(X, prior=PRIOR)[:, 1]
    # Means of ten fits: 1.01 of the least for columns, 1.03 balanced, 1.05 for kernels.
    assert log_loss(y, p) < 1.1 * least
    for low, high in [(0.0, 1e-3), (1e-3, 1e-2), (1e-2, 0.1)]:
        inside = (low <= p) & (p < high)
        assert 0.6 < p[inside].mean() / y[inside].mean() < 1.6  # the fit has 39 rows of the rare class
    assert recall_score(y, model.predict(X, prior=[0.5, 0.5])) > 0.8


def test_weights_are_used_for_the_relevance_of_inputs_of_many_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=6000)
    model = RVR(candidates=20, random_state=0).fit(X, y, rng.uniform(0.5, 2.0, 6000))
    assert next(iter(model.inputs_)) == 0
