"""What docs/questions.md answers to questions that were asked of other packages, held to what it claims."""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits

import reference
from sparsebayes import (
    MRVM1,
    RVC,
    RVR,
    SparseBayesClassifier,
    SparseBayesRegressor,
)

PAGE = (Path(__file__).parents[2] / "docs/questions.md").read_text()


def sinc(n, seed, width=10.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-width, width, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=n)


def test_every_question_is_answered_by_name():
    for number in ("11", "2", "10", "25", "8", "30951", "10128", "34984", "1513"):
        assert re.search(rf"\[[^\]]*#{number}\]\(https://github\.com/\S+/{number}\)", PAGE), number


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize(
    "machine", [RVC(), RVC(multi_class="softmax"), MRVM1(), SparseBayesClassifier(fit_intercept=False)]
)
def test_probabilities_for_any_number_of_classes(machine, n_classes):
    X, y = load_digits(n_class=n_classes, return_X_y=True)
    X, labels = X[:200] / 16.0, np.array([f"digit {c}" for c in y[:200]])
    machine.fit(X, labels)
    probabilities = machine.predict_proba(X)
    assert probabilities.shape == (200, n_classes)
    assert list(machine.classes_) == [f"digit {c}" for c in range(n_classes)]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert probabilities.min() >= 0.0
    right = probabilities[np.arange(200), y[:200]]
    assert np.exp(np.mean(np.log(right))) > 0.75
    # One row alone, as was asked for.
    np.testing.assert_allclose(machine.predict_proba(X[:1])[0], probabilities[0], rtol=1e-12)


@pytest.mark.parametrize("level", [(1.0, 0.683), (1.96, 0.95), (2.576, 0.99)])
def test_confidence_intervals_contain_their_share(level):
    deviations, share = level
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


def test_nothing_of_scikit_learn_in_use_is_deprecated():
    script = """
import warnings
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor

X = np.random.default_rng(0).normal(size=(60, 2))
warnings.simplefilter("ignore", ConvergenceWarning)
for machine in (RVR(), SparseBayesRegressor(fit_intercept=False)):
    machine.fit(X, X[:, 0] + X[:, 1] ** 2).predict(X)
for machine in (RVC(), SparseBayesClassifier(fit_intercept=False), MRVM1(), GREVM()):
    machine.fit(X, X[:, 0] > 0).predict_proba(X)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
