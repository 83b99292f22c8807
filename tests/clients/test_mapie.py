"""Conformal intervals and sets of MAPIE hold their coverage."""

import numpy as np
import pytest

from sparsebayes import RVC, RVR

client = pytest.importorskip("mapie.regression")
scores = pytest.importorskip("mapie.conformity_scores")
classification = pytest.importorskip("mapie.classification")

_RNG = np.random.default_rng(0)
X = _RNG.uniform(-3.0, 3.0, (1500, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * _RNG.standard_t(3, 1500)
TRAIN, HELD, NEW = slice(0, 200), slice(200, 500), slice(500, None)


def coverage(limits):
    return np.mean((limits[:, 0, 0] <= Y[NEW]) & (Y[NEW] <= limits[:, 1, 0]))


def test_cross_conformal_intervals_hold_their_coverage():
    model = client.CrossConformalRegressor(RVR(gamma="scale"), confidence_level=0.9, cv=5)
    model.fit_conformalize(X[:500], Y[:500])
    assert 0.87 < coverage(model.predict_interval(X[NEW])[1]) < 0.95


def test_split_intervals_are_multiples_of_our_standard_deviations():
    fitted = RVR(gamma="scale").fit(X[TRAIN], Y[TRAIN])
    score = scores.StdConformityScore()
    model = client.SplitConformalRegressor(fitted, confidence_level=0.9, conformity_score=score, prefit=True)
    mean, limits = model.conformalize(X[HELD], Y[HELD]).predict_interval(X[NEW])
    ours, std = fitted.predict(X[NEW], return_std=True)
    np.testing.assert_allclose(mean, ours)
    widths = (limits[:, 1, 0] - limits[:, 0, 0]) / std
    np.testing.assert_allclose(widths, widths[0])
    assert 0.85 < coverage(limits) < 0.95


def test_sets_of_classes_hold_their_coverage():
    labels = np.where(Y > 0.0, "high", "low")
    fitted = RVC(gamma="scale").fit(X[TRAIN], labels[TRAIN])
    model = classification.SplitConformalClassifier(fitted, confidence_level=0.9, prefit=True)
    best, sets = model.conformalize(X[HELD], labels[HELD]).predict_set(X[NEW])
    np.testing.assert_array_equal(best, fitted.predict(X[NEW]))
    inside = sets[np.arange(len(best)), np.searchsorted(fitted.classes_, labels[NEW]), 0]
    assert 0.85 < inside.mean() < 0.95
