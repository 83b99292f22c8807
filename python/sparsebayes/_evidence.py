r"""Log evidence and its gradient in the basis functions and all hyperparameters, active functions given.

With P = Phi A^-1/2 and v = A^1/2 w the prior of v is standard normal, and nothing below depends on the scale
of a function. G = dL/dP is all that is needed: dL/dPhi = G A^-1/2, and since P_j goes as alpha_j^-1/2,
dL/dln alpha_j = -P_j . G_j / 2. A row of weight w_n counts w_n times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.special import expit

from ._types import FloatArray

#: Newton steps at most, and halvings of each.
_NEWTON_STEPS = 200
_HALVINGS = 40
#: Squared length of a step in posterior deviations below which rounding hides what it gains; and below which
#: it is the last.
_CLOSE = 1e-8
_CLOSED = 1e-22


@dataclass(frozen=True)
class Evidence:
    """Log evidence in nats and its derivatives."""

    value: float
    #: dL/dPhi, N x m.
    functions: FloatArray
    #: dL/dln alpha, length m.
    log_alpha: FloatArray
    #: dL/dln beta; 0 for a likelihood without noise.
    log_beta: float
    #: The posterior mean or mode of v.
    mean: FloatArray


def gaussian(
    Phi: FloatArray, t: FloatArray, w: FloatArray, log_alpha: FloatArray, log_beta: float
) -> Evidence | None:
    r"""Return the evidence of regression (Tipping & Faul 2003, equation 7); None where it breaks down.

    With H = 1 + beta P^T W P, Sigma = H^-1, v = beta Sigma P^T W t and r = t - P v,

    2 L = sum(w) ln(beta / 2 pi) - ln|H| - beta r^T W r - v^T v,
    dL/dP = beta W (r v^T - P Sigma)                            (Tipping 2001, appendix C, in these units),
    2 dL/dln beta = sum(w) - beta r^T W r - tr(1 - Sigma).
    """
    root, beta = np.exp(-0.5 * log_alpha), np.exp(log_beta)
    P = Phi * root
    WP = w[:, np.newaxis] * P
    factored = _inverse(np.eye(len(root)) + beta * (P.T @ WP))
    if factored is None:
        return None
    sigma, log_det = factored
    v = beta * sigma @ (WP.T @ t)
    r = t - P @ v
    misfit = beta * float(r @ (w * r))
    value = 0.5 * (w.sum() * (log_beta - np.log(2.0 * np.pi)) - log_det - misfit - v @ v)
    G = beta * (np.outer(w * r, v) - WP @ sigma)
    slope = 0.5 * (w.sum() - misfit - (len(root) - np.trace(sigma)))
    return _result(value, P, G, root, float(slope), v)


def laplace(
    Phi: FloatArray, t: FloatArray, w: FloatArray, log_alpha: FloatArray, start: FloatArray | None = None
) -> Evidence | None:
    r"""Return the Laplace approximation for t of 0 and 1 (Tipping 2001, section 3); None if it breaks down.

    At the mode v of l(P v) - v^T v / 2, with slope e = dl/deta, weights b = -d^2 l/deta^2, c = db/deta,
    H = 1 + P^T B P, Sigma = H^-1:

    L = l - v^T v / 2 - ln|H| / 2.

    B moves with eta: ln|H| / 2 has the slope u_n = c_n (P Sigma P^T)_nn / 2 in eta_n. And eta moves with P
    directly and through the mode: from P^T e = v, dv = Sigma (dP^T e - P^T B dP v). With s = Sigma P^T u,

    dL/dP = e (v - s)^T - B P Sigma + (B P s - u) v^T.

    ``start`` is where to begin to look for the mode.
    """
    root = np.exp(-0.5 * log_alpha)
    P = Phi * root
    v = _mode(P, t, w, np.zeros(len(root)) if start is None else start)
    if v is None:
        return None
    eta = P @ v
    p, q = expit(eta), expit(-eta)
    e, b = w * (t * q - (1.0 - t) * p), w * p * q
    BP = b[:, np.newaxis] * P
    factored = _inverse(np.eye(len(root)) + P.T @ BP)
    if factored is None:
        return None
    sigma, log_det = factored
    P_sigma = P @ sigma
    u = 0.5 * b * (q - p) * np.sum(P_sigma * P, axis=1)
    s = P_sigma.T @ u
    G = np.outer(e, v - s) - b[:, np.newaxis] * P_sigma + np.outer(BP @ s - u, v)
    return _result(_log_posterior(eta, v, t, w) - 0.5 * log_det, P, G, root, 0.0, v)


def _result(
    value: float, P: FloatArray, G: FloatArray, root: FloatArray, log_beta: float, mean: FloatArray
) -> Evidence | None:
    if not np.isfinite(value):
        return None
    return Evidence(float(value), G * root, -0.5 * np.sum(P * G, axis=0), log_beta, mean)


def solved(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Solve the system of a lower Cholesky factor; one of no unknowns too, which SciPy 1.10 cannot."""
    return np.asarray(cho_solve((factor, True), right)) if right.size else right


def _inverse(H: FloatArray) -> tuple[FloatArray, float] | None:
    """Return the inverse and the log determinant of H, or None where it is not positive definite."""
    try:
        factor = cholesky(H, lower=True)
    except (LinAlgError, ValueError):  # ValueError: not finite
        return None
    return solved(factor, np.eye(len(H))), 2.0 * float(np.log(np.diag(factor)).sum())


def _log_posterior(eta: FloatArray, v: FloatArray, t: FloatArray, w: FloatArray) -> float:
    return float(-w @ (np.logaddexp(0.0, eta) - t * eta) - 0.5 * v @ v)


def _mode(P: FloatArray, t: FloatArray, w: FloatArray, v: FloatArray) -> FloatArray | None:
    """Find the posterior mode by Newton's method, halving steps that overshoot."""
    value, last = _log_posterior(P @ v, v, t, w), np.inf
    for _ in range(_NEWTON_STEPS):
        p = expit(P @ v)
        gradient = P.T @ (w * (t - p)) - v
        try:
            factor = cholesky(np.eye(len(v)) + P.T @ ((w * p * (1.0 - p))[:, np.newaxis] * P), lower=True)
        except (LinAlgError, ValueError):
            return None
        step = solved(factor, gradient)
        decrement = float(gradient @ step)
        if decrement < _CLOSE:
            v = v + step
            if decrement < _CLOSED or decrement > 0.1 * last:
                return v
            value, last = _log_posterior(P @ v, v, t, w), decrement
            continue
        for _ in range(_HALVINGS):
            new = _log_posterior(P @ (v + step), v + step, t, w)
            if new >= value:
                break
            step = step / 2.0
        v, value = v + step, new
    return v
