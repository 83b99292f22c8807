"""The evidence along one eigenvector, and the prior precision that maximises it, elementwise on arrays.

Kropotov & Vetrov (2007), KV below: along an eigenvector with eigenvalue h of the negative Hessian the
likelihood is exp(-h (u - u_ML)^2 / 2). In units of its own width, z = u_ML sqrt(h), the evidence of a prior
depends on z and one more number alone, so the best Laplace prior is one function of z for all problems.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc, erfcx, eval_hermitenorm

from .._types import FloatArray

_SQRT_2_PI = np.sqrt(2.0 / np.pi)

#: For z^2 - 1 below this the best rate is computed from a series: it is large, and the slope of the evidence
#: a difference of nearly equal numbers.
_SERIES_LIMIT = 1e-3

#: Steps of the root search: bisections, then false positions.
_BISECTIONS = 8
_FALSE_POSITIONS = 16

#: For x above this 1 - sqrt(pi) x erfcx(x) is computed from its asymptotic series.
_ASYMPTOTIC_LIMIT = 50.0


def best_alpha_gaussian(h: FloatArray, u: FloatArray) -> FloatArray:
    """Return the maximum of KV (10) over alpha, KV (11): h / (h u^2 - 1), or infinity."""
    excess = h * u**2 - 1.0
    inside = excess > 0.0
    return np.where(inside, h / np.where(inside, excess, 1.0), np.inf)


def best_alpha_laplace(h: FloatArray, u: FloatArray) -> FloatArray:
    """Return the maximum of KV (13) over alpha: 2 sqrt(h) `best_rate`, or infinity where h u^2 <= 1."""
    root = np.sqrt(h)
    rate = best_rate(root * np.abs(u))
    inside = np.isfinite(rate)
    return np.where(inside, 2.0 * root * np.where(inside, rate, 1.0), np.inf)


def best_rate(z: FloatArray) -> FloatArray:
    r"""Return the rate r of the prior (r / 2) exp(-r |x|) of greatest evidence under exp(-(x - z)^2 / 2).

    The derivative of the log evidence in ln r is 1 - r E|x|, with the mean under the posterior. For large r
    the evidence is asymptotically :math:`e^{-z^2/2} \sum_k He_{2k}(z) r^{-2k}`, which approaches its limit
    from above if and only if z > 1: then there is a maximum, else r is infinite. The maximum is above
    1 / sqrt(1 + z^2), as E|x| < sqrt(1 + z^2), and below 4 / sqrt(z^2 - 1), twice the value of the series
    near z = 1.
    """
    z = np.asarray(z, dtype=float)
    rate = np.full(z.shape, np.inf)
    # As a product, because z^2 - 1 cancels.
    near = (z > 1.0) & ((z - 1.0) * (z + 1.0) < _SERIES_LIMIT)
    rate[near] = _best_rate_near_one(z[near])
    inside = (z > 1.0) & ~near
    rate[inside] = _root(z[inside])
    return rate


def posterior_variance_laplace(z: FloatArray, r: FloatArray) -> FloatArray:
    """Return the variance of x under exp(-(x - z)^2 / 2 - r |x|): two halves of normal densities."""
    sign, z = np.sign(z), np.abs(z)
    first, _, sums, _ = _terms(z, r)
    share = first / sums
    (mean_1, square_1), (mean_2, square_2) = _half(z - r), _half(-z - r)
    mean = sign * (share * mean_1 - (1.0 - share) * mean_2)
    # By rounding it may be negative, or exceed the variance of the likelihood.
    return np.clip(share * square_1 + (1.0 - share) * square_2 - mean**2, 0.0, 1.0)


def _half(mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and second moment of a normal variable of unit variance, given that it is positive."""
    hazard = _SQRT_2_PI / erfcx(-mean / np.sqrt(2.0))
    return mean + hazard, np.maximum(1.0 + mean * (mean + hazard), 0.0)


def _terms(z: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    r"""Return the two terms of the evidence KV (13), their sum, and the exponent of their common factor.

    For the prior (alpha / 4) exp(-alpha |u| / 2), with z = sqrt(h) |u| and r = alpha / (2 sqrt(h)), it is

    .. math:: \sqrt{\pi / 8}\, r\, e^{-z^2/2} \big[ \mathrm{erfcx}\big((r - z) / \sqrt 2\big)
              + \mathrm{erfcx}\big((r + z) / \sqrt 2\big) \big].

    The first term overflows for r far below z; there, as in appendix A of KV, its exponential is combined
    with the factor, e^{-z^2/2} erfcx(x) = e^{r^2/2 - r z} erfc(x).
    """
    x_1, x_2 = (r - z) / np.sqrt(2.0), (r + z) / np.sqrt(2.0)
    scaled = x_1 >= 0.0
    below = np.where(scaled, 0.0, x_1)
    first = np.where(scaled, erfcx(np.where(scaled, x_1, 0.0)), erfc(below))
    second = np.exp(-(below**2)) * erfcx(x_2)
    return first, second, first + second, np.where(scaled, -0.5 * z**2, -r * (z - 0.5 * r))


def _mean_size(z: FloatArray, r: FloatArray) -> FloatArray:
    """E|x| under exp(-(x - z)^2 / 2 - r |x|), for z >= 0."""
    first, second, sums, _ = _terms(z, r)
    x_1, x_2 = (r - z) / np.sqrt(2.0), (r + z) / np.sqrt(2.0)
    scale = np.where(x_1 < 0.0, np.exp(-(np.minimum(x_1, 0.0) ** 2)), 1.0)
    part_1 = np.where(
        x_1 > _ASYMPTOTIC_LIMIT,
        _SQRT_2_PI * _complement(x_1),
        _SQRT_2_PI * scale - np.sqrt(2.0) * x_1 * first,
    )
    part_2 = np.where(
        x_2 > _ASYMPTOTIC_LIMIT,
        _SQRT_2_PI * scale * _complement(x_2),
        _SQRT_2_PI * scale - np.sqrt(2.0) * x_2 * second,
    )
    return np.asarray((part_1 + part_2) / sums)


def _complement(x: FloatArray) -> FloatArray:
    """1 - sqrt(pi) x erfcx(x) for large x (Abramowitz & Stegun 7.1.23); invalid elsewhere."""
    y = 0.5 / np.maximum(x, 1.0) ** 2
    return np.asarray(y * (1.0 - y * (3.0 - y * (15.0 - 105.0 * y))))


def _root(z: FloatArray) -> FloatArray:
    """Solve r E|x| = 1: a few bisections over ln r, then false position with the Illinois rule."""
    low = -0.5 * np.log1p(z**2)
    high = np.log(4.0) - 0.5 * np.log((z - 1.0) * (z + 1.0))
    at_low, at_high = _rate_equation(z, low), _rate_equation(z, high)
    for k in range(_BISECTIONS + _FALSE_POSITIONS):
        share = 0.5 if k < _BISECTIONS else at_low / np.where(at_low == at_high, np.inf, at_low - at_high)
        middle = low + share * (high - low)
        at_middle = _rate_equation(z, middle)
        left = at_middle < 0.0
        # Illinois rule: the value at an end that is kept is halved.
        at_high = np.where(left, 0.5 * at_high if k >= _BISECTIONS else at_high, at_middle)
        at_low = np.where(left, at_middle, 0.5 * at_low if k >= _BISECTIONS else at_low)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.asarray(np.exp(middle))


def _rate_equation(z: FloatArray, log_r: FloatArray) -> FloatArray:
    """Return r E|x| - 1, minus the derivative of the log evidence in ln r."""
    r = np.exp(log_r)
    return np.asarray(r * _mean_size(z, r) - 1.0)


def _best_rate_near_one(z: FloatArray) -> FloatArray:
    """Solve the series: sum of k He_2k(z) y^(k-1) = 0 in y = 1 / r^2, by Newton's method."""
    first = (z - 1.0) * (z + 1.0)
    others = [k * eval_hermitenorm(2 * k, z) for k in range(2, 6)]
    y = 0.25 * first
    for _ in range(6):
        value, slope = others[-1], 0.0
        for coefficient in (*others[-2::-1], first):
            value, slope = coefficient + y * value, value + y * slope
        y = y - value / slope
    return np.asarray(y**-0.5)
