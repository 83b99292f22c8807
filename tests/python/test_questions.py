"""What docs/questions.md answers to questions that were asked of other packages, held to what it claims."""

import re
import subprocess
import sys
import warnings
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning

import reference
from sparsebayes import (
    MRVM1,
    RVC,
    RVR,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
    to_c,
)
from sparsebayes.inspection import certificate

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


def test_error_bars_are_those_of_the_posterior_written_out():
    X, y = sinc(60, 0)
    model = RVR(gamma=0.15).fit(X, y)
    new = np.linspace(-10, 10, 7)[:, None]

    def phi(Z):
        kernels = np.exp(-0.15 * (Z - X.T) ** 2)
        return np.column_stack([np.ones(len(Z)) if j < 0 else kernels[:, j] for j in model.active_])

    mu, sigma = reference.posterior(phi(X), y, model.alpha_, model.beta_)
    expected, variance = reference.predict(phi(new), mu, sigma, model.beta_)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(std**2, variance, rtol=1e-8)


def test_a_fit_that_says_converged_is():
    for seed in range(5):
        X, y = sinc(120, seed)
        model = RVR(gamma=0.15).fit(X, y)
        proof = certificate(model, X, y)
        assert model.status_ == "converged"
        assert proof.max_log_alpha_change < 1e-5
        assert proof.max_gain_outside < 1e-6
        assert proof.log_beta_residual < 1e-5


def test_a_fit_cut_short_says_so():
    X, y = sinc(120, 0)
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model = RVR(gamma=0.15, max_iter=3).fit(X, y)
    assert model.status_ == "max_iter"
    proof = certificate(model, X, y)
    assert max(proof.max_log_alpha_change, proof.max_gain_outside) > 0.1


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


def test_a_classifier_becomes_c():
    X, y = load_iris(return_X_y=True)
    header = to_c(RVC().fit(X, y), name="iris")
    assert "iris_predict_class(const iris_real *x)" in header
    assert "#define IRIS_N_CLASSES 3" in header


def test_columns_may_be_scaled_by_anything():
    rng = np.random.default_rng(0)
    for seed in range(10):
        Phi = np.random.default_rng(seed).normal(size=(80, 10))
        t = Phi[:, 0] - 2.0 * Phi[:, 3] + 0.1 * rng.normal(size=80)
        scales = 10.0 ** rng.uniform(-5, 5, 10)
        one, other = (
            SparseBayesRegressor(fit_intercept=False).fit(Phi, t),
            SparseBayesRegressor(fit_intercept=False).fit(Phi * scales, t),
        )
        np.testing.assert_array_equal(one.active_, other.active_)
        np.testing.assert_allclose(one.predict(Phi), other.predict(Phi * scales), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(other.alpha_, one.alpha_ * scales[one.active_] ** 2, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e8, 1e-8])
@pytest.mark.parametrize(
    "machine", [RVR(), SparseBayesRegressor(fit_intercept=False), SparseBayesRegressor(fit_intercept=True)]
)
def test_constant_targets_are_fitted(machine, value):
    X = np.random.default_rng(0).normal(size=(40, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X, np.full(40, value))
    mean, std = machine.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0.0).all()
    if machine.fit_intercept:
        np.testing.assert_allclose(mean, value, rtol=1e-5)
        assert set(machine.active_) <= {-1}


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


@pytest.mark.skipif(sys.platform == "win32", reason="reads the peak of memory from the resource module")
def test_a_fit_never_holds_the_kernel_matrix():
    n = 5000
    script = f"""
import resource, sys
import numpy as np
from sparsebayes import RVR

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, ({n}, 2))
y = np.sinc(np.hypot(*X.T) / np.pi) + 0.1 * rng.normal(size={n})
RVR(gamma=0.16).fit(X[:300], y[:300])
before = peak()
model = RVR(gamma=0.16).fit(X, y)
assert model.status_ == "converged", model.status_
sys.stdout.write(str(peak() - before))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 * n * n / 2


def test_sums_from_anywhere_make_the_model_of_all_rows():
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(400, 15))
    t = Phi[:, 2] - 0.5 * Phi[:, 9] + 0.1 * rng.normal(size=400)
    total = SufficientStatistics(15)
    for rows in reversed(np.array_split(np.arange(400), 7)):
        total.merge(SufficientStatistics(15).update(Phi[rows], t[rows]))
    model = SparseBayesRegressor(fit_intercept=False).fit_statistics(total)
    whole = SparseBayesRegressor(fit_intercept=False).fit(Phi, t)
    np.testing.assert_array_equal(model.active_, whole.active_)
    np.testing.assert_allclose(model.mu_, whole.mu_, rtol=1e-8)
    evidence = reference.log_evidence(Phi[:, model.active_], t, model.alpha_, model.beta_)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-9)
