"""Problems at the ends of arithmetic: a certified model, a stated non-convergence, or a clear error."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from problems import ESTIMATORS
from sparsebayes import RVC, RVR, NumericalError, OverfitWarning, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian
from surface_oracle import attributes
from torture_problems import Problem, problems

MODELS = {name: kind() for name, kind in ESTIMATORS.items()} | {
    "RVR-mackay": RVR(scheme="mackay", gamma="scale"),
    "RVR-em": RVR(scheme="em", gamma="scale"),
    "RVR-variational": RVR(scheme="variational", gamma="scale"),
    "RVR-exchange": RVR(search="exchange", gamma="scale"),
    "SparseBayesRegressor-exchange": SparseBayesRegressor(search="exchange"),
    "RVC-mackay": RVC(scheme="mackay", gamma="scale"),
    "RVC-exchange": RVC(search="exchange", gamma="scale"),
    "SparseBayesClassifier-exchange": SparseBayesClassifier(search="exchange"),
}
PROBLEMS = {problem.name: problem for problem in problems()}
CERTIFIED = {RVR, RVC, SparseBayesRegressor, SparseBayesClassifier}
#: Limits of the certificates of these models.
LIMITS = {
    "max_log_alpha_change": 1e-5,
    "max_gain_outside": 1e-6,
    "log_beta_residual": 1e-5,
    "max_gain_exchange": 1e-3,
}


def assert_numbers(est, X):
    for name, parts in attributes(est).items():
        for part in parts:
            if part.dtype.kind == "f":
                # A precision may be infinite where that is how irrelevance is written.
                allowed = np.isposinf(part) if name == "alpha_" and hasattr(est, "eigenvalues_") else False
                assert np.all(np.isfinite(part) | allowed), (name, part)
    if is_classifier(est):
        probabilities = est.predict_proba(X)
        assert np.all(probabilities >= 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-9)
    else:
        assert np.all(np.isfinite(est.predict(X)))


def outcome(est, problem: Problem):
    """Fit, check the model or the error, and return the status or "refused"."""
    est = clone(est)
    est.set_params(**{name: value for name, value in problem.kernel.items() if name in est.get_params()})
    y = problem.labels if is_classifier(est) else problem.y
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            est.fit(problem.X, y, sample_weight=problem.weights)
        except (ValueError, NumericalError) as error:
            reason = str(error)
            assert len(reason) > 20
            return "refused"
        assert_numbers(est, problem.X)
    # Nothing overflows on the way: NumPy's warnings would be ours.
    categories, messages = {warning.category for warning in said}, [str(warning.message) for warning in said]
    assert len(said) <= 1, messages
    status = getattr(est, "status_", None)
    if status == "converged":
        assert categories <= {OverfitWarning, UserWarning}, messages
    else:
        assert categories <= {OverfitWarning, ConvergenceWarning}, messages
        assert said, status
    if status in ("converged", "empty") and type(est) in CERTIFIED:
        found = certificate(est, problem.X, y, problem.weights)
        for name, limit in LIMITS.items():
            value = getattr(found, name)
            # Of another likelihood an exchange that seems to gain may have been tried, and lost.
            if value is not None and (name != "max_gain_exchange" or not is_classifier(est)):
                assert value <= limit, (name, found)
        assert np.isclose(found.log_marginal_likelihood, est.log_marginal_likelihood_, rtol=1e-6)
    return status


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("model", MODELS)
def test_an_outcome_is_a_model_or_a_reason(model, problem):
    outcome(MODELS[model], PROBLEMS[problem])


@pytest.mark.parametrize("est", [SparseBayesClassifier(), RVC(candidates=20, random_state=0, gamma="scale")])
def test_one_positive_in_ten_thousand(est):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    labels = (np.arange(10_000) == 17).astype(int)
    assert outcome(est, Problem("one in 10000", X, X[:, 0], labels=labels)) != "refused"


@pytest.mark.parametrize("seed", [15, 24, 38, 44, 60, 70, 92, 107, 188, 208])
def test_exact_targets_beside_nearly_dependent_functions(seed):
    """Additions that round-off forbids cost functions, not the fit."""
    rng = np.random.default_rng(seed)
    n, d = 150, int(rng.integers(1, 12))
    X = rng.normal(size=(n, d))
    x = np.exp(rng.uniform(0.5, 1.5) * rng.normal(size=n))
    X[:, 0] = x = (x - x.mean()) / x.std()
    y = np.log(x - x.min() + 10.0 ** rng.uniform(-4, -1))
    y = (y - y.mean()) / y.std()
    kernel = Gaussian([10.0 ** rng.uniform(-0.7, 0.3), *[1e5] * (d - 1)])
    for complexity in ("none", "aic", "bic"):
        for extra_basis in (None, "linear"):
            for penalize in (False, True):
                est = RVR(kernel, extra_basis=extra_basis, complexity=complexity, penalize_intercept=penalize)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    est.fit(X, y)
                assert est.score(X, y) > 0.9
