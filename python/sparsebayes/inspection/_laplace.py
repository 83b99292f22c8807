"""The posterior mode where the likelihood is not Gaussian, for certificates: shares no code with the core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, gammaln

from .._types import FloatArray, Likelihood

#: Newton steps at most; and the squared distance, in posterior deviations, from where on they are left alone.
_NEWTON_STEPS = 500
_CLOSE = 1e-10


def derivatives(
    likelihood: Likelihood, eta: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the slope of the log likelihood in eta and its negative curvature, the B of equation 11."""
    if likelihood == "bernoulli":
        up, down = expit(-eta), expit(eta)
        return w * (t * up - (1.0 - t) * down), w * up * down
    mean = np.exp(eta)
    return w * (t - mean), w * mean


def objective(
    likelihood: Likelihood, scaled: FloatArray, mode: FloatArray, t: FloatArray, w: FloatArray
) -> float:
    """Return the log posterior of the weights (equation 10) without its prior's constant."""
    eta = scaled @ mode
    if likelihood == "bernoulli":
        terms = -t * np.logaddexp(0.0, -eta) - (1.0 - t) * np.logaddexp(0.0, eta)
    else:
        with np.errstate(over="ignore"):
            terms = t * eta - np.exp(eta) - gammaln(t + 1.0)
    return float(w @ terms - 0.5 * mode @ mode)


def find_mode(scaled: FloatArray, t: FloatArray, w: FloatArray, likelihood: Likelihood) -> FloatArray:
    """Find the posterior mode, times the roots of alpha."""

    def local(mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = derivatives(likelihood, scaled @ mode, t, w)
        hessian = np.eye(len(mode)) + scaled.T @ (curvature[:, np.newaxis] * scaled)
        return scaled.T @ slope - mode, hessian

    return climb(scaled.shape[1], local, lambda mode: objective(likelihood, scaled, mode, t, w))


def climb(
    size: int,
    local: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    objective: Callable[[FloatArray], float],
) -> FloatArray:
    """Climb a concave function from zero by Newton's method, halving the steps that overshoot.

    ``local``: its gradient and its negative Hessian.
    """
    mode = np.zeros(size)
    last = np.inf
    for _ in range(_NEWTON_STEPS):
        gradient, hessian = local(mode)
        # SciPy 1.10 cannot solve a system of no unknowns.
        step = cho_solve(cho_factor(hessian), gradient) if size else gradient
        # Twice what the step should gain, and the square of its length in posterior deviations.
        decrement = float(gradient @ step)
        if decrement < _CLOSE:
            # The objective can no longer tell steps apart; here they need no halving.
            mode = mode + step
            if decrement < _CLOSE**2 or decrement > 0.1 * last:
                break
            last = decrement
            continue
        value = objective(mode)
        while not objective(mode + step) >= value:
            step = step / 2.0
        mode = mode + step
    return mode
