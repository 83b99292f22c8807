"""Optimal precisions under Gamma priors, for certificates: by scanning, with no algebra of the core's."""

from __future__ import annotations

import numpy as np

from .._types import FloatArray

#: ln(alpha / s) of the scan; beyond, a function is worth nothing or its weight has no bound.
_GRID = np.linspace(-40.0, 40.0, 1601)
_HALVINGS = 60


def log_density(alpha: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return the log density of ln alpha under Gamma(shape, rate), less that at its peak."""
    shape, rate = prior
    if shape == 0.0:
        return -rate * alpha
    return shape * (np.log(alpha * rate / shape) + 1.0) - rate * alpha


def best_alpha(s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Maximise the log posterior over one alpha, the other hyperparameters held.

    Parameters
    ----------
    s, q : ndarray of shape (n,)
        Sparsity and quality factors (Tipping & Faul 2003, equation 19), s > 0.
    prior : (shape, rate)

    Returns
    -------
    alpha, gain : ndarray of shape (n,)
        The best alpha, and what it gains over leaving the function out (equation 18 and the prior's part).
    """
    values = _gain(np.exp(_GRID)[:, np.newaxis] * s, s, q, prior)
    best = np.clip(np.argmax(values, axis=0), 1, len(_GRID) - 2)
    low, high = _GRID[best - 1], _GRID[best + 1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        rising = _slope(np.exp(middle) * s, s, q, prior) > 0.0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    alpha = np.exp(0.5 * (low + high)) * s
    return alpha, _gain(alpha, s, q, prior)


def _gain(alpha: FloatArray, s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> FloatArray:
    gain: FloatArray = 0.5 * (q**2 / (alpha + s) - np.log1p(s / alpha)) + log_density(alpha, prior)
    return gain


def _slope(alpha: FloatArray, s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return the derivative of `_gain` in ln alpha."""
    shape, rate = prior
    slope: FloatArray = 0.5 * (s / (alpha + s) - alpha * (q / (alpha + s)) ** 2) + shape - rate * alpha
    return slope
