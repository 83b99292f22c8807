"""One signal of `bench_phase.py`: spikes among 256 places seen by 100 random projections, and who finds them.

Our machines are told the variance of the noise; without noise a millionth of the mean square of y, which is
also the floor of its estimate. Orthogonal matching pursuit is told the number of spikes, or finds it by
cross-validation; ARDRegression estimates the noise; the Lasso is cross-validated.
"""

import time
import warnings
from dataclasses import asdict, dataclass

import numpy as np
from peers import PAPERS
from sklearn.linear_model import (
    ARDRegression,
    LassoCV,
    OrthogonalMatchingPursuit,
    OrthogonalMatchingPursuitCV,
)
from threadpoolctl import threadpool_limits

from sparsebayes import SparseBayesRegressor

N_ROWS, N_COLUMNS = 100, 256
AMPLITUDES = ("equal", "normal")
NOISES = ("none", "30 dB")
#: Noise that our machines are told of where there is none, in parts of the mean square of y.
HARDLY_ANY = 1e-6
FOLDS = 5
#: A weight that is smaller, in parts of the largest, is none.
NOTHING = 1e-6

OURS = ("greedy", "exchange", "mackay")
METHODS = (
    "greedy",
    "exchange",
    "mackay",
    "ARDRegression",
    "OMP, number told",
    "OMP, cross-validated",
    "Lasso, cross-validated",
)


@dataclass(frozen=True)
class Task:
    """Which signal."""

    amplitudes: str
    noise: str
    n_spikes: int
    seed: int


@dataclass(frozen=True)
class Signal:
    Phi: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    #: What our machines are told.
    noise_variance: float


def draw(task):
    """Columns of length about one; spikes of +1 or -1, or normal ones; the same with and without noise."""
    rng = np.random.default_rng([task.seed, task.n_spikes, AMPLITUDES.index(task.amplitudes)])
    Phi = rng.normal(size=(N_ROWS, N_COLUMNS)) / N_ROWS**0.5
    weights = np.zeros(N_COLUMNS)
    places = rng.choice(N_COLUMNS, task.n_spikes, replace=False)
    equal = task.amplitudes == "equal"
    weights[places] = rng.choice([-1.0, 1.0], task.n_spikes) if equal else rng.normal(size=task.n_spikes)
    clean = Phi @ weights
    if task.noise == "none":
        return Signal(Phi, clean, weights, HARDLY_ANY * float(np.mean(clean**2)))
    variance = 1e-3 * float(np.mean(clean**2))
    return Signal(Phi, clean + variance**0.5 * rng.normal(size=N_ROWS), weights, variance)


def estimator(method, signal):
    """An unfitted regression without a bias."""
    if method in OURS:
        scheme, search = ("mackay", "greedy") if method == "mackay" else ("sequential", method)
        return SparseBayesRegressor(
            fit_intercept=False,
            noise_variance=signal.noise_variance,
            scheme=scheme,
            search=search,
            n_jobs=1,
            **PAPERS,
        )
    if method == "ARDRegression":
        return ARDRegression(fit_intercept=False)
    if method == "OMP, number told":
        return OrthogonalMatchingPursuit(
            n_nonzero_coefs=int(np.count_nonzero(signal.weights)), fit_intercept=False
        )
    if method == "OMP, cross-validated":
        # As many as a fold has rows: by default it stops at 25.
        most = N_ROWS - N_ROWS // FOLDS
        return OrthogonalMatchingPursuitCV(cv=FOLDS, max_iter=most, fit_intercept=False)
    if method == "Lasso, cross-validated":
        return LassoCV(cv=FOLDS, fit_intercept=False, max_iter=10_000)
    raise ValueError(method)


def measure(task):
    """What each method makes of the signal, and the evidence of a model of the true spikes alone."""
    started = time.perf_counter()
    signal = draw(task)
    result = asdict(task)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # that there is no noise, or that a path ends early
        for method in METHODS:
            result[method] = outcome(method, signal)
        true = np.flatnonzero(signal.weights)
        planted = estimator("greedy", signal).fit(signal.Phi[:, true], signal.y)
    result["planted"] = planted.log_marginal_likelihood_
    result["seconds"] = time.perf_counter() - started
    return result


def outcome(method, signal):
    """Whether the largest weights are at the spikes, how far all are from the signal, how many there are."""
    start = time.perf_counter()
    model = estimator(method, signal).fit(signal.Phi, signal.y)
    took = time.perf_counter() - start
    sizes = np.abs(model.coef_)
    true = np.flatnonzero(signal.weights)
    largest = np.argsort(-sizes, kind="stable")[: len(true)]
    missing = np.linalg.norm(model.coef_ - signal.weights) / np.linalg.norm(signal.weights)
    return {
        "found": bool(sizes[largest].min() > 0.0 and set(largest) == set(true)),
        "error": float(missing),
        "kept": int(np.sum(sizes > NOTHING * sizes.max())),
        "evidence": getattr(model, "log_marginal_likelihood_", None),
        "took": took,
    }
