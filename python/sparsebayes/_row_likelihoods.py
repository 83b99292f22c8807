"""Likelihoods of a target with one linear predictor eta: all that Python knows about each of them.

The core has the same likelihoods in ``rust/src/likelihood/univariate.rs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.polynomial.hermite import hermgauss
from scipy.special import expit, gammaln, pdtr
from sklearn.metrics import d2_tweedie_score

from ._checks import check_choice
from ._types import FloatArray, Link, PerRow


@dataclass(frozen=True)
class Targets:
    """Numbers with noise of their own: a `SparseBayesRegressor` estimates no noise variance."""

    #: A word for them in messages, and the test that they must pass.
    must_be: str
    is_valid: Callable[[FloatArray], bool]
    #: Mean and standard deviation from the moments of eta, or the mean alone if the variance is None.
    predict: Callable[[FloatArray, FloatArray | None], Any]
    #: The value that a target exceeds with probability 1 - p, from the moments of eta and p.
    quantile: Callable[[FloatArray, FloatArray, float], FloatArray]
    #: P(target < t) and P(target <= t), from the moments of eta and t.
    distribution: Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    #: A draw for each eta.
    sample: Callable[[FloatArray, np.random.RandomState], FloatArray]
    #: Fraction of deviance explained, D^2, from targets, predicted means and weights.
    score: Callable[[FloatArray, FloatArray, PerRow], float]


@dataclass(frozen=True)
class RowLikelihood:
    """The distribution of a target t given its linear predictor eta.

    The functions of (eta, t) are plain NumPy: certificates use them instead of the core.
    """

    #: Its name in the core and as an argument.
    name: str
    #: How the mean of a target follows from eta, in predictors and exports.
    link: Link
    log_likelihood: Callable[[FloatArray, FloatArray], FloatArray]
    #: First derivative of the log likelihood in eta, and minus the second.
    slope: Callable[[FloatArray, FloatArray], FloatArray]
    curvature: Callable[[FloatArray, FloatArray], FloatArray]
    #: Derivative of the curvature.
    skew: Callable[[FloatArray, FloatArray], FloatArray]
    #: Whether ``scheme="variational"`` has a quadratic lower bound of the likelihood.
    has_bound: bool = False
    #: None for the Gaussian, whose noise variance is estimated, and for class labels.
    targets: Targets | None = None


def _counts(mean: FloatArray, variance: FloatArray | None) -> Any:
    """Return the moments of a count whose log mean is Gaussian."""
    # Far from the data the expected count may overflow.
    with np.errstate(over="ignore", divide="ignore"):
        if variance is None:
            return np.exp(mean)
        # The variance is exp(log_mean) + (e^v - 1) exp(2 log_mean): terms may overflow, roots not.
        log_mean = mean + variance / 2
        dispersion = np.exp(log_mean + np.log(np.expm1(variance)) / 2)
        return np.exp(mean), np.hypot(np.exp(log_mean / 2), dispersion)


_NODES, _WEIGHTS = hermgauss(32)
_WEIGHTS /= _WEIGHTS.sum()


def _rates_of_counts(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the rates at the quadrature nodes of a Gaussian log mean."""
    return _exp(mean[..., np.newaxis] + np.sqrt(2.0 * variance)[..., np.newaxis] * _NODES)


def _quantile_of_counts(mean: FloatArray, variance: FloatArray, p: float) -> FloatArray:
    """Return the p-quantile of counts whose log mean is Gaussian: the smallest k with P(count <= k) >= p."""
    rates = _rates_of_counts(mean, variance)
    low, high = np.full(mean.shape, -1.0), np.minimum(rates.max(axis=-1) * 4.0 + 40.0, 1e15)
    while (high - low > 1.0).any():
        middle = np.floor(0.5 * (low + high))
        # pdtr is the distribution function of a Poisson variable.
        enough = pdtr(middle[..., np.newaxis], rates) @ _WEIGHTS >= p
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)


def _distribution_of_counts(
    mean: FloatArray, variance: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    rates = _rates_of_counts(mean, variance)
    below, up_to = (pdtr(k[..., np.newaxis], rates) @ _WEIGHTS for k in (np.ceil(t) - 1.0, np.floor(t)))
    return np.where(t > 0.0, below, 0.0), up_to


def _sample_of_counts(eta: FloatArray, random: np.random.RandomState) -> FloatArray:
    # Above this rate NumPy draws no counts; their relative error is below 1e-9 there.
    rates = _exp(eta)
    return np.asarray(np.where(rates < 1e18, random.poisson(np.minimum(rates, 1e18)), rates))


def _d2_of_counts(y: FloatArray, mean: FloatArray, sample_weight: PerRow) -> float:
    positive = np.clip(mean, np.finfo(np.float64).tiny, None)
    return float(d2_tweedie_score(y, positive, sample_weight=sample_weight, power=1))


def _exp(eta: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.exp(eta)


_LIKELIHOODS = (
    # With unit noise. Regressions have closed forms, so certificates need the name alone.
    RowLikelihood(
        "gaussian",
        link="identity",
        log_likelihood=lambda eta, t: -0.5 * (np.log(2.0 * np.pi) + (t - eta) ** 2),
        slope=lambda eta, t: t - eta,
        curvature=lambda eta, t: np.ones_like(eta),
        skew=lambda eta, t: np.zeros_like(eta),
        has_bound=True,
    ),
    # P(t = 1) = 1 / (1 + exp(-eta)); t may lie between 0 and 1.
    RowLikelihood(
        "bernoulli",
        link="logistic",
        log_likelihood=lambda eta, t: -t * np.logaddexp(0.0, -eta) - (1.0 - t) * np.logaddexp(0.0, eta),
        slope=lambda eta, t: t * expit(-eta) - (1.0 - t) * expit(eta),
        curvature=lambda eta, t: expit(-eta) * expit(eta),
        skew=lambda eta, t: expit(-eta) * expit(eta) * (expit(-eta) - expit(eta)),
        has_bound=True,
    ),
    # Counts of mean exp(eta).
    RowLikelihood(
        "poisson",
        link="log",
        log_likelihood=lambda eta, t: t * eta - _exp(eta) - gammaln(t + 1.0),
        slope=lambda eta, t: t - _exp(eta),
        curvature=lambda eta, t: _exp(eta),
        skew=lambda eta, t: _exp(eta),
        targets=Targets(
            must_be="not be negative",
            is_valid=lambda y: bool((y >= 0.0).all()),
            predict=_counts,
            quantile=_quantile_of_counts,
            distribution=_distribution_of_counts,
            sample=_sample_of_counts,
            score=_d2_of_counts,
        ),
    ),
)
ROW_LIKELIHOODS: Final = {likelihood.name: likelihood for likelihood in _LIKELIHOODS}
#: Names of the likelihoods of `SparseBayesRegressor`.
OF_NUMBERS: Final = ("gaussian", *(row.name for row in _LIKELIHOODS if row.targets))


def check_row_likelihood(value: object) -> str:
    """Return the likelihood of a provider."""
    return str(check_choice("likelihood", value, tuple(ROW_LIKELIHOODS)))
