"""Likelihoods of a target with one linear predictor eta: all that Python knows about each of them.

The core has the same likelihoods in ``rust/src/likelihood/univariate.rs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import (
    betainc,
    expit,
    gammainc,
    gammainccinv,
    gammaincinv,
    gammaln,
    logsumexp,
    ndtr,
    ndtri,
    pdtr,
    xlogy,
)
from sklearn.metrics import r2_score

from ._checks import check_choice
from ._types import FloatArray, Link, PerRow


@dataclass(frozen=True)
class Targets:
    """Numbers whose noise is not Gaussian."""

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
    #: Fraction of deviance explained, D^2, or of variance, R^2, from targets, predicted means and exposures,
    #: and weights.
    score: Callable[[FloatArray, FloatArray, FloatArray, PerRow], float]
    #: Targets transformed so that their noise is nearly Gaussian, and its precisions up to a factor, from
    #: targets and from their means if all had one rate.
    stabilised: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None = None
    #: The log density of a target from t and the moments of eta; None: by the derivatives of the likelihood.
    log_density: Callable[[FloatArray, FloatArray, FloatArray], FloatArray] | None = None

    def first_invalid(self, y: FloatArray) -> int:
        """Return the number of the first target that does not pass the test; some do not."""
        return next(i for i, one in enumerate(y) if not self.is_valid(one))


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
    #: None for the Gaussian, and for class labels.
    targets: Targets | None = None

    def log_mean_likelihood(self, t: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the log of the mean likelihood of targets whose eta is Gaussian, given its moments."""
        own = None if self.targets is None else self.targets.log_density
        found: FloatArray = _in_blocks(own or self._log_mean)(t, mean, variance)
        return found

    def _log_mean(self, t: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the log of the mean of a log-concave likelihood, by quadrature."""
        v = np.maximum(variance, (_LEAST_STD * (1.0 + np.abs(mean))) ** 2)
        mode = _mode(self, t, mean, v)

        def log_product(
            offset: FloatArray, mode: FloatArray, t: FloatArray, rest: FloatArray, v: FloatArray
        ) -> FloatArray:
            return self.log_likelihood(mode + offset, t) - (rest + offset) ** 2 / (2.0 * v)

        # Quadrature takes place where the product is not negligible beside that at the mode. It falls at
        # least as fast as the Gaussian does from its mean.
        given = mode, t, mode - mean, v
        least = log_product(np.zeros_like(mode), *given) - 0.5 * _MOST_STDS**2
        ends = []
        for side in (-1.0, 1.0):
            near, far = np.zeros_like(mode), side * _MOST_STDS * np.sqrt(v)
            for _ in range(_END_STEPS):
                middle = 0.5 * (near + far)
                is_inside = log_product(middle, *given) > least
                near, far = np.where(is_inside, middle, near), np.where(is_inside, far, middle)
            ends.append(far)
        half, centre = (0.5 * (ends[1] + sign * ends[0])[..., np.newaxis] for sign in (-1.0, 1.0))
        columns = (part[..., np.newaxis] for part in given)
        terms = log_product(centre + half * _PLACES, *columns) + np.log(half * _LENGTHS)
        return np.asarray(logsumexp(terms, axis=-1) - 0.5 * np.log(2.0 * np.pi * v))


#: Nodes and weights of the quadrature over an interval.
_PLACES, _LENGTHS = leggauss(64)
#: Standard deviations beyond which a Gaussian has no mass, and the probability that counts as none.
_MOST_STDS: Final = 8.5
_NONE: Final = 1e-10
#: Least standard deviation of eta, relative to its mean plus 1: nodes must be different numbers.
_LEAST_STD: Final = 1e-9
#: Largest size of a mode of eta, where the mean of eta is no larger. Steps to it, bisections at first, and
#: bisections to an end of the quadrature.
_MOST_ETA: Final = 800.0
_MODE_STEPS, _BISECTIONS, _END_STEPS = 60, 14, 25
#: Distance in standard deviations at which a quantile has been found.
_CLOSE: Final = 1e-10
#: Rows at a time.
_ROWS: Final = 2048
#: Range of the logs of the row weights of Student's t, as probabilities, and the number of nodes.
_LEAST_WEIGHT: Final = 1e-30
_N_WEIGHTS: Final = 128
#: Largest count: above, the log likelihood of a dispersed count is a difference of larger numbers.
_LARGEST_COUNT: Final = 1e10
#: Quantiles of counts are no larger.
_LARGEST_QUANTILE: Final = 1e301
#: Largest positive number, and 1 / the smallest: squares are finite.
_LARGEST: Final = 1e100
#: Distribution function of a target given eta, of (t, eta); that of a target, of t.
_Distribution = Callable[[FloatArray, FloatArray], FloatArray]
_Mean = Callable[[FloatArray], FloatArray]
#: Two values of eta for a t: below the first P(target <= t) is 1, above the second 0, but for `_NONE`.
_Ends = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def _exp(eta: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.exp(eta)


def _log_moments(dispersion: float, *, counts: bool) -> Callable[[FloatArray, FloatArray | None], Any]:
    """Return the moments of a target of dispersion d whose log mean is Gaussian.

    The variance is exp(m + v/2) for counts, and (e^v - 1 + d e^v) exp(2 m + v).
    """

    def moments(mean: FloatArray, variance: FloatArray | None) -> Any:
        # Far from the data the expected target may overflow.
        with np.errstate(over="ignore", divide="ignore"):
            if variance is None:
                return np.exp(mean)
            # Terms may overflow, roots not.
            log_mean = mean + variance / 2
            factor = np.expm1(variance) + (dispersion * np.exp(variance) if dispersion > 0.0 else 0.0)
            spread = np.exp(log_mean + np.log(factor) / 2)
            return np.exp(mean), np.hypot(np.exp(log_mean / 2), spread) if counts else spread

    return moments


def _in_blocks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of rows that takes some at a time: their nodes stay in the caches."""

    @wraps(function)
    def of_all(*arrays: Any) -> Any:
        if (n := len(arrays[0])) <= _ROWS:
            return function(*arrays)
        starts = range(0, n, _ROWS)
        parts = [function(*(a[i : i + _ROWS] if np.ndim(a) > 0 else a for a in arrays)) for i in starts]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return np.concatenate(parts)

    return of_all


def _mode(row: RowLikelihood, t: FloatArray, mean: FloatArray, v: FloatArray) -> FloatArray:
    """Return the mode of a Gaussian eta given a target with a log-concave likelihood."""
    with np.errstate(over="ignore", invalid="ignore"):
        # The slope falls with eta, so the mode is between the mean and where the slope there leads to.
        reach = v * row.slope(mean, t)
        low = np.maximum(mean + np.minimum(reach, 0.0), np.minimum(mean, -_MOST_ETA))
        high = np.minimum(mean + np.maximum(reach, 0.0), np.maximum(mean, _MOST_ETA))
        eta = np.clip(mean, low, high)
        for step in range(_MODE_STEPS):
            slope = (mean - eta) / v + row.slope(eta, t)
            low, high = np.where(slope > 0.0, eta, low), np.where(slope < 0.0, eta, high)
            there = eta + slope / (1.0 / v + row.curvature(eta, t))
            is_usable = (there >= low) & (there <= high) & (step >= _BISECTIONS)
            there = np.where(is_usable, there, 0.5 * (low + high))
            if not (np.abs(there - eta) > 1e-9 * (1.0 + np.abs(eta))).any():
                break
            eta = there
    return np.asarray(there)


def _mean_distribution(
    distribution: _Distribution, ends: _Ends, mean: FloatArray, variance: FloatArray
) -> _Mean:
    """Return the distribution function of targets whose eta is Gaussian.

    Quadrature takes place where it is neither 0 nor 1, and eta has mass.
    """
    std = np.maximum(np.sqrt(variance), _LEAST_STD * (1.0 + np.abs(mean)))

    def up_to(t: FloatArray) -> FloatArray:
        low, high = (np.clip((end - mean) / std, -_MOST_STDS, _MOST_STDS) for end in ends(t))
        half = 0.5 * (high - low)[..., np.newaxis]
        z = 0.5 * (high + low)[..., np.newaxis] + half * _PLACES
        eta = mean[..., np.newaxis] + std[..., np.newaxis] * z
        terms = distribution(t[..., np.newaxis], eta) * np.exp(-0.5 * z**2)
        return np.asarray(ndtr(low) + (half * terms) @ _LENGTHS / np.sqrt(2.0 * np.pi))

    return up_to


def _of_counts(distribution: _Distribution, ends: _Ends, dispersion: float) -> dict[str, Any]:
    """Return quantile and distribution functions of counts of variance m + d m^2, d the dispersion."""

    def mean_distribution(mean: FloatArray, variance: FloatArray) -> _Mean:
        up_to = _mean_distribution(distribution, ends, mean, variance)
        return lambda k: np.where(k >= 0.0, up_to(np.maximum(k, 0.0)), 0.0)

    def quantile(mean: FloatArray, variance: FloatArray, p: float) -> FloatArray:
        """Return the smallest k with P(count <= k) >= p."""
        # The first guess is that of a lognormal variable of the same moments.
        std = np.sqrt(variance + np.log1p(dispersion + _exp(np.minimum(-mean - 1.5 * variance, 50.0))))
        wanted = ndtri(np.broadcast_to(p, mean.shape))
        guess = mean + 0.5 * variance - 0.5 * std**2 + wanted * std
        low, high = np.full(mean.shape, -1.0), np.full(mean.shape, np.inf)
        below, above = -np.ones(mean.shape), np.ones(mean.shape)
        result, at = np.empty(mean.shape), np.arange(len(mean))
        for step in range(1000):
            k = np.clip(np.ceil(_exp(guess) - 1.0), low + 1.0, np.minimum(high - 1.0, _LARGEST_QUANTILE))
            up_to = np.nan_to_num(mean_distribution(mean[at], variance[at])(k), nan=1.0)
            excess = ndtri(np.clip(up_to, 1e-300, 1.0 - 1e-16)) - wanted
            enough = (excess >= 0.0) | (k >= _LARGEST_QUANTILE)
            excess += np.where(enough, 1e-12, -1e-12)  # not 0
            low, below = np.where(enough, low, k), np.where(enough, below, excess)
            high, above = np.where(enough, k, high), np.where(enough, excess, above)
            result[at] = high
            going = ~np.isfinite(high) | (high - low > np.maximum(1.0, 1e-12 * high))
            if not going.any():
                break
            # Outward in steps that double; then by linear interpolation and bisection in turn.
            state = np.stack([std, wanted, low, high, below, above, k, excess])[:, going]
            at, (std, wanted, low, high, below, above, k, excess) = at[going], state
            with np.errstate(divide="ignore", invalid="ignore"):
                left, right = np.log1p(low), np.log1p(high)
                share = 0.5 if step % 2 == 1 else below / (below - above)
                between = left + share * (right - left)
            is_open = (low < 0.0) | np.isinf(high)
            guess = np.where(is_open, np.log1p(k) - 2.0**step * excess * std, between)
        return result

    def below_and_up_to(
        mean: FloatArray, variance: FloatArray, t: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        up_to = mean_distribution(mean, variance)
        return up_to(np.ceil(t) - 1.0), up_to(np.floor(t))

    return {"quantile": _in_blocks(quantile), "distribution": _in_blocks(below_and_up_to)}


def _of_continuous(
    mean_distribution: Callable[[FloatArray, FloatArray], _Mean], *, positive: bool, width: float = 1.0
) -> dict[str, Any]:
    """Return quantile and distribution functions of continuous targets.

    ``width``: a length on their scale, or with ``positive`` on the scale of their logarithms.
    """

    def quantile(mean: FloatArray, variance: FloatArray, p: float) -> FloatArray:
        up_to = mean_distribution(mean, variance)
        value: Callable[[FloatArray], FloatArray] = _exp if positive else np.asarray
        step = width + np.sqrt(variance)
        low, high = mean - step, mean + step
        for _ in range(60):
            short, far = up_to(value(high)) < p, up_to(value(low)) >= p
            if not (short.any() or far.any()):
                break
            step = 2.0 * step
            low, high = np.where(far, mean - step, low), np.where(short, mean + step, high)

        def excess(x: FloatArray) -> FloatArray:  # nearly linear in x
            return np.asarray(ndtri(np.clip(up_to(value(x)), 1e-300, 1.0 - 1e-16)) - ndtri(p))

        # The Illinois method: regula falsi that halves the value at an end which stays.
        other, last = excess(low), excess(high)
        for _ in range(60):
            x = high - last * (high - low) / (last - other)
            x = np.where((x > np.minimum(low, high)) & (x < np.maximum(low, high)), x, 0.5 * (low + high))
            x = np.where(np.abs(last) > _CLOSE, x, high)
            here = excess(x)
            crosses = here * last < 0.0
            low, other = np.where(crosses, high, low), np.where(crosses, last, 0.5 * other)
            high, last = x, here
            if not (np.abs(here) > _CLOSE).any():
                break
        return np.asarray(value(high))

    def below_and_up_to(
        mean: FloatArray, variance: FloatArray, t: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        up_to = mean_distribution(mean, variance)(t)
        return up_to, up_to

    return {"quantile": _in_blocks(quantile), "distribution": _in_blocks(below_and_up_to)}


def _root(y: FloatArray, m: FloatArray) -> FloatArray:
    """Return roots of counts over their means m if all had one rate; from m = 1 on they vary alike."""
    return np.asarray(np.sqrt(y / m + 1.0 / np.maximum(m, 1.0)))


def _poisson(rates: FloatArray, random: np.random.RandomState) -> FloatArray:
    # Above this rate NumPy draws no counts; their relative error is below 1e-9 there.
    return np.asarray(np.where(rates < 1e18, random.poisson(np.minimum(rates, 1e18)), rates))


def _d2(
    deviance: Callable[[FloatArray, FloatArray], FloatArray],
) -> Callable[[FloatArray, FloatArray, FloatArray, PerRow], float]:
    """Return the score 1 - (deviance of predicted means) / (deviance of one rate for all rows)."""

    def score(y: FloatArray, mean: FloatArray, exposure: FloatArray, sample_weight: PerRow) -> float:
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        rate = np.average(y, weights=weights) / np.average(exposure, weights=weights)
        means = (np.clip(one, 1e-300, 1e300) for one in (mean, rate * exposure))
        own, null = (float(np.average(deviance(y, m), weights=weights)) for m in means)
        rates = (y / exposure)[weights > 0.0]
        varies = null > 0.0 and np.ptp(rates) > 8.0 * np.finfo(float).eps * rates.max()
        return 1.0 - own / null if varies else 0.0  # as `r2_score` for constant y

    return score


def r2(y: FloatArray, mean: FloatArray, exposure: FloatArray | None, sample_weight: PerRow) -> float:
    """Return R^2, the mean over outputs, also where squares overflow."""
    unit = max(float(np.abs(y).max()), float(np.abs(mean).max())) or 1.0
    return float(r2_score(y / unit, mean / unit, sample_weight=sample_weight))


def _negative_binomial(dispersion: float) -> RowLikelihood:
    """Return that of counts of mean m = exp(eta) and variance m + d m^2; r = 1/d."""
    r, log_d = 1.0 / dispersion, np.log(dispersion)

    def log_likelihood(eta: FloatArray, t: FloatArray) -> FloatArray:
        constant = gammaln(t + r) - gammaln(r) - gammaln(t + 1.0) + t * log_d
        return np.asarray(t * eta - (t + r) * np.logaddexp(0.0, eta + log_d) + constant)

    def curvature(eta: FloatArray, t: FloatArray) -> FloatArray:
        return np.asarray((t + r) * expit(eta + log_d) * expit(-eta - log_d))

    def ends(k: FloatArray) -> tuple[FloatArray, FloatArray]:
        # P(count <= k) = P(d e^eta <= G / H), with Gamma variables G of shape k + 1 and H of shape r.
        least, most = gammaincinv(r, _NONE), gammainccinv(r, _NONE)
        low, high = gammaincinv(k + 1.0, _NONE) / most, gammainccinv(k + 1.0, _NONE) / least
        return np.log(low) - log_d, np.log(high) - log_d

    def deviance(y: FloatArray, mean: FloatArray) -> FloatArray:
        return np.asarray(2.0 * (xlogy(y, y / mean) - (y + r) * np.log((y + r) / (mean + r))))

    def sample(eta: FloatArray, random: np.random.RandomState) -> FloatArray:
        return _poisson(_exp(eta) * random.standard_gamma(r, eta.shape) * dispersion, random)

    return RowLikelihood(
        "negative_binomial",
        link="log",
        log_likelihood=log_likelihood,
        slope=lambda eta, t: t * expit(-eta - log_d) - r * expit(eta + log_d),
        curvature=curvature,
        skew=lambda eta, t: curvature(eta, t) * (expit(-eta - log_d) - expit(eta + log_d)),
        targets=Targets(
            must_be="not be negative, nor above 1e10,",
            is_valid=lambda y: bool(((y >= 0.0) & (y <= _LARGEST_COUNT)).all()),
            predict=_log_moments(dispersion, counts=True),
            # P(count <= k) is a regularised incomplete beta function.
            **_of_counts(lambda k, eta: betainc(r, k + 1.0, expit(-eta - log_d)), ends, dispersion),
            sample=sample,
            score=_d2(deviance),
            stabilised=lambda y, m: (_root(y, m), m / (1.0 + dispersion * m)),
        ),
    )


def _gamma_deviance(y: FloatArray, mean: FloatArray) -> FloatArray:
    return 2.0 * (y / mean - 1.0 - np.log(y / mean))


def _gamma(dispersion: float) -> RowLikelihood:
    """Return that of positive numbers of mean m = exp(eta) and variance d m^2."""
    k = 1.0 / dispersion
    constant = k * np.log(k) - gammaln(k)
    return RowLikelihood(
        "gamma",
        link="log_continuous",
        log_likelihood=lambda eta, t: constant + (k - 1.0) * np.log(t) - k * (eta + t * _exp(-eta)),
        slope=lambda eta, t: k * (t * _exp(-eta) - 1.0),
        curvature=lambda eta, t: k * t * _exp(-eta),
        skew=lambda eta, t: -k * t * _exp(-eta),
        targets=Targets(
            must_be="be positive, from 1e-100 to 1e100,",
            is_valid=lambda y: bool(((y >= 1.0 / _LARGEST) & (y <= _LARGEST)).all()),
            predict=_log_moments(dispersion, counts=False),
            **_of_continuous(
                partial(
                    _mean_distribution,
                    lambda t, eta: gammainc(k, k * t * _exp(-eta)),
                    lambda t: (np.log(k * t / gammainccinv(k, _NONE)), np.log(k * t / gammaincinv(k, _NONE))),
                ),
                positive=True,
            ),
            sample=lambda eta, random: _exp(eta) * random.standard_gamma(k, eta.shape) * dispersion,
            score=lambda y, m, exposure, weights: _d2(_gamma_deviance)(
                y / exposure, m / exposure, np.ones(len(y)), weights
            ),
            stabilised=lambda y, m: (np.log(y / m), np.ones(len(y))),
        ),
    )


def _student_t(freedom: float, noise_variance: float) -> RowLikelihood:
    """Return that of numbers of mean eta with noise of Student's t distribution, which is not log-concave."""
    scale = float(np.sqrt(noise_variance))
    constant = gammaln((freedom + 1.0) / 2.0) - gammaln(freedom / 2.0) - np.log(np.pi * freedom) / 2.0

    def log_likelihood(eta: FloatArray, t: FloatArray) -> FloatArray:
        z = (t - eta) / scale
        return np.asarray(constant - np.log(scale) - (freedom + 1.0) / 2.0 * np.log1p(z**2 / freedom))

    def refuse(eta: FloatArray, t: FloatArray) -> FloatArray:
        raise NotImplementedError("Student's t is fitted as a weighted Gaussian, not by its derivatives")

    def predict(mean: FloatArray, variance: FloatArray | None) -> Any:
        if variance is None:
            return mean
        return mean, np.sqrt(variance + noise_variance * freedom / (freedom - 2.0))

    # A mixture of Gaussians, whose precisions are Gamma variables: by the trapezoidal rule in their logs.
    half = 0.5 * freedom
    least, most = gammaincinv(half, _LEAST_WEIGHT), gammainccinv(half, _LEAST_WEIGHT)
    logs = np.linspace(np.log(least / half), np.log(most / half), _N_WEIGHTS)
    shares = np.exp(half * (logs + 1.0 - np.exp(logs)))
    shares /= shares.sum()

    def standardised(t: FloatArray, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        stds = np.sqrt(variance[..., np.newaxis] + noise_variance * np.exp(-logs))
        return (t - mean)[..., np.newaxis] / stds, stds

    def mean_distribution(mean: FloatArray, variance: FloatArray) -> _Mean:
        return lambda t: np.asarray(ndtr(standardised(t, mean, variance)[0]) @ shares)

    def log_density(t: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        z, stds = standardised(t, mean, variance)
        return np.asarray(logsumexp(-0.5 * z**2 - np.log(np.sqrt(2.0 * np.pi) * stds), b=shares, axis=-1))

    return RowLikelihood(
        "student_t",
        link="identity",
        log_likelihood=log_likelihood,
        slope=refuse,
        curvature=refuse,
        skew=refuse,
        targets=Targets(
            must_be="be numbers",
            is_valid=lambda y: True,
            predict=predict,
            **_of_continuous(mean_distribution, positive=False, width=scale),
            sample=lambda eta, random: eta + scale * random.standard_t(freedom, eta.shape),
            score=r2,
            log_density=log_density,
        ),
    )


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
            must_be="not be negative, nor above 1e10,",
            is_valid=lambda y: bool(((y >= 0.0) & (y <= _LARGEST_COUNT)).all()),
            predict=_log_moments(0.0, counts=True),
            **_of_counts(
                lambda k, eta: pdtr(k, _exp(eta)),
                lambda k: (np.log(gammaincinv(k + 1.0, _NONE)), np.log(gammainccinv(k + 1.0, _NONE))),
                dispersion=0.0,
            ),
            sample=lambda eta, random: _poisson(_exp(eta), random),
            score=_d2(lambda y, m: 2.0 * (xlogy(y, y / m) - y + m)),
            stabilised=lambda y, m: (_root(y, m), m),
        ),
    ),
)
#: Likelihoods without a parameter of their own.
ROW_LIKELIHOODS: Final = {likelihood.name: likelihood for likelihood in _LIKELIHOODS}
#: Likelihoods with a dispersion.
DISPERSED: Final = {"negative_binomial": _negative_binomial, "gamma": _gamma}
#: Ranges of dispersions and of degrees of freedom. Counts of the least dispersion are nearly Poisson counts;
#: below 2 degrees of freedom targets have no variance.
DISPERSIONS: Final = (1e-6, 1e4)
FREEDOMS: Final = (2.1, 1000.0)
#: Likelihoods of `RVR` and `SparseBayesRegressor`.
OF_NUMBERS: Final = ("gaussian", "student_t", "poisson", *DISPERSED)


def row_likelihood(name: str, shape: float | None = None, noise_variance: float = 1.0) -> RowLikelihood:
    """Return a likelihood; ``shape``: its dispersion or degrees of freedom, if it has one."""
    if name in ROW_LIKELIHOODS:
        return ROW_LIKELIHOODS[name]
    shape = 1.0 if shape is None else shape
    return DISPERSED[name](shape) if name in DISPERSED else _student_t(shape, noise_variance)


def check_row_likelihood(value: object) -> str:
    """Return the likelihood of a provider."""
    return str(check_choice("likelihood", value, tuple(ROW_LIKELIHOODS)))
