"""How well a fitted model predicts each row from all others, with the hyperparameters of all."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit

from ._sorted import Sorted
from ._types import FloatArray, Likelihood


def leave_one_out(
    Phi: FloatArray, posterior: Sorted, t: FloatArray, w: FloatArray, likelihood: Likelihood
) -> float:
    r"""Return the sum over the rows of the log predictive density of each given the others, in nats.

    With s the posterior variance of eta_n, e the slope and b the curvature of row n's log likelihood, and h =
    b s, the others alone leave eta_n with mean eta_n - s e / (1 - h) and variance s / (1 - h). That is exact
    for a Gaussian likelihood and the usual approximation from the Laplace posterior for others.

    Of a row that counts w_n times one is left out. ``Phi`` holds the active functions.
    """
    eta = Phi @ posterior.mu
    one = np.minimum(w, 1.0)
    s = np.maximum(np.sum((Phi @ posterior.sigma) * Phi, axis=1), 0.0)
    if likelihood == "gaussian":
        slope, curvature = posterior.beta * one * (t - eta), posterior.beta * one
    else:
        p = expit(eta)
        slope, curvature = one * (t - p), one * p * (1.0 - p)
    # A row that decides on a function alone has h = 1 but for rounding.
    rest = np.maximum(1.0 - curvature * s, 1e-9)
    mean, variance = eta - s * slope / rest, s / rest
    if likelihood == "gaussian":
        variance = variance + 1.0 / posterior.beta
        return float(-0.5 * w @ (np.log(2.0 * np.pi * variance) + (t - mean) ** 2 / variance))
    moderated = mean / np.sqrt(1.0 + np.pi / 8.0 * variance)
    return float(w @ log_expit(np.where(t > 0.5, moderated, -moderated)))
