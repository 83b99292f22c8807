"""The claims of docs/questions.md, which answers questions asked of other packages."""

import re
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits

import reference
from sparsebayes import MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor

PAGE = (Path(__file__).parents[2] / "docs/questions.md").read_text()


def sinc(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10.0, 10.0, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=n)


def test_every_question_is_answered_by_name():
    for number in ("11", "2", "10", "25", "8", "30951", "10128", "34984", "1513"):
        assert re.search(rf"\[[^\]]*#{number}\]\(https://github\.com/\S+/{number}\)", PAGE), number


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize(
    "model",
    [
        RVC(gamma="scale"),
        RVC(multi_class="softmax", gamma="scale"),
        MRVM1(),
        SparseBayesClassifier(fit_intercept=False),
    ],
)
def test_probabilities_for_any_number_of_classes(model, n_classes):
    X, y = load_digits(n_class=n_classes, return_X_y=True)
    X, labels = X[:200] / 16.0, np.array([f"digit {c}" for c in y[:200]])
    model.fit(X, labels)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (200, n_classes)
    assert list(model.classes_) == [f"digit {c}" for c in range(n_classes)]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert probabilities.min() >= 0.0
    right = probabilities[np.arange(200), y[:200]]
    assert np.exp(np.mean(np.log(right))) > 0.75
    # One row alone, as in the question.
    np.testing.assert_allclose(model.predict_proba(X[:1])[0], probabilities[0], rtol=1e-12)


@pytest.mark.parametrize(("deviations", "share"), [(1.0, 0.683), (1.96, 0.95), (2.576, 0.99)])
def test_confidence_intervals_contain_their_share(deviations, share):
    inside = []
    for seed in range(10):
        X, y = sinc(150, seed)
        new, truth = sinc(1000, 1000 + seed)
        mean, std = RVR(gamma=0.15).fit(X, y).predict(new, return_std=True)
        inside.append(np.mean(np.abs(truth - mean) < deviations * std))
    assert abs(np.mean(inside) - share) < 0.03


def test_the_declared_scikit_learn_is_open_to_the_future_and_installed():
    wanted = next(line for line in requires("sparsebayes") if line.startswith("scikit-learn"))
    assert re.fullmatch(r"scikit-learn ?\(?>=1\.6\)?", wanted)
    assert tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6)


def test_the_covariance_goes_with_the_active_columns():
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(60, 20))
    t = Phi[:, 4] + 0.2 * rng.normal(size=60)
    model = SparseBayesRegressor(fit_intercept=False).fit(Phi, t)
    m = len(model.active_)
    assert 0 < m < 20
    assert model.sigma_.shape == (m, m)
    assert model.mu_.shape == model.alpha_.shape == model.active_.shape == (m,)
    _, written_out = reference.posterior(Phi[:, model.active_], t, model.alpha_, model.beta_)
    np.testing.assert_allclose(model.sigma_, written_out, rtol=1e-7, atol=1e-12)
    whole = np.zeros((20, 20))
    whole[np.ix_(model.active_, model.active_)] = model.sigma_
    _, std = model.predict(Phi, return_std=True)
    np.testing.assert_allclose(std**2, model.noise_variance_ + np.sum(Phi @ whole * Phi, axis=1), rtol=1e-9)
