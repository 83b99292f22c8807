"""The variational scheme (Bishop & Tipping 2000): check of settings, and its bound for certificates.

The bound is computed from arrays, and shares no code with the core.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import svd
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from .._row_likelihoods import row_likelihood
from .._types import FloatArray, Likelihood, Settings

if TYPE_CHECKING:
    from .._types import Problem

#: Largest number of updates of xi, and the relative change that ends them.
_MAX_UPDATES = 100_000
_XI_RTOL = 1e-11


def check_variational(settings: Settings, likelihood: Likelihood) -> None:
    """Raise ValueError if scheme="variational" is not available for this fit."""
    if settings.scheme != "variational":
        return
    needs = None
    if likelihood == "multinomial":
        needs = "multi_class='ovr' for more than two classes, got 'softmax'"
    elif not row_likelihood(likelihood).has_bound:
        needs = f"likelihood='gaussian', got {likelihood!r}"
    if needs is not None:
        raise ValueError(f"scheme='variational' needs {needs}")


def constants(problem: Problem, n_rows: float) -> float:
    """Return the bound minus the log evidence at the expected precisions; sum(w) = ``n_rows``.

    For each function, with q(alpha) = Gamma(A, A / <alpha>) and A = a + 1/2, that is E[ln p(w | alpha)] +
    E[ln p(alpha)] - E[ln q(alpha)] minus ln N(w; 0, 1 / <alpha>), averaged over q(w); for beta likewise, if
    it is estimated, with A = c + N/2. Infinite constants of improper priors are omitted. 0 for other schemes.
    """
    if not problem.variational:
        return 0.0
    value = len(problem.alpha) * per_function(problem)
    (a, b), (c, d) = problem.alpha_prior, problem.noise_prior
    if (a, b) != (0.0, 0.0):
        value += float(np.sum(a * np.log(problem.alpha) - b * problem.alpha))
        value += len(problem.alpha) * (a * math.log(b / a) + a if a > 0.0 else 0.0)
    if problem.noise in ("estimated", "floor") and (c, d) != (0.0, 0.0):
        value += c * math.log(problem.beta) - d * problem.beta
        if c > 0.0 and d > 0.0:
            value += _gamma_terms(c, c + n_rows / 2.0) + c * math.log(d)
    return value


def per_function(problem: Problem) -> float:
    """Return the cost of a function for an uncertain alpha at the peak of its prior; never positive."""
    a, b = problem.alpha_prior
    if not problem.variational or a == 0.0 or b == 0.0:
        return 0.0
    return _gamma_terms(a, a + 0.5) + a * math.log(a) - a


def _gamma_terms(shape: float, updated: float) -> float:
    return float(gammaln(updated) - gammaln(shape) - updated * math.log(updated) + updated)


def bounded(
    scaled: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """Return logistic rows as the equivalent regression problem under their tightest bound.

    ``scaled`` holds the active functions divided by the roots of their expected alphas, so that weights have
    unit prior precision. In order: the root of each row's curvature, the singular value decomposition of the
    whitened design, the posterior mean, the slope of the bound in the linear predictor, and the log evidence.
    """
    xi = tightest_xi(scaled, t, w)
    root = np.sqrt(w * curvature(xi))
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    # The slope at zero lies in the row space, so it is zero in directions that the data do not determine.
    mean = right.T @ ((right @ (scaled.T @ (w * (t - 0.5)))) / (1.0 + singular**2))
    eta = scaled @ mean
    log_evidence = log_bound(xi, eta, t, w) - 0.5 * float(mean @ mean + np.log1p(singular**2).sum())
    slope: FloatArray = w * (t - 0.5) - root**2 * eta
    return root, left, singular, right, mean, slope, log_evidence


def tightest_xi(scaled: FloatArray, t: FloatArray, w: FloatArray) -> FloatArray:
    """Return the xi of each row for which its bound is tightest (Jaakkola & Jordan 2000).

    Alternates xi_n^2 = E[eta_n^2] and the Gaussian posterior under the bound. This converges slowly, so every
    second update extrapolates ln xi (SQUAREM, Varadhan & Roland 2008) if that does not lower the bound.
    """
    xi: FloatArray = np.sqrt(np.sum(scaled**2, axis=1))
    for _ in range(_MAX_UPDATES):
        once, _ = _xi_update(scaled, t, w, xi)
        twice, value = _xi_update(scaled, t, w, once)
        if np.max(np.abs(twice - once), initial=0.0) <= _XI_RTOL * np.max(twice, initial=1.0):
            xi = twice
            break
        with np.errstate(all="ignore"):
            first, last = np.log(once / xi), np.log(twice / once)
            stride = max(1.0, float(np.linalg.norm(first) / np.linalg.norm(last - first)))
            further = xi * np.exp(2.0 * stride * first + stride**2 * (last - first))
        xi = twice
        # A row on which all functions vanish has xi = 0, and no logarithm.
        if np.isfinite(further).all() and _xi_update(scaled, t, w, further)[1] >= value:
            xi = further
    return xi


def _xi_update(scaled: FloatArray, t: FloatArray, w: FloatArray, xi: FloatArray) -> tuple[FloatArray, float]:
    """Return the root of E[eta_n^2] under the bound at ``xi``, and its log evidence."""
    precision = np.eye(scaled.shape[1]) + scaled.T @ ((w * curvature(xi))[:, np.newaxis] * scaled)
    factor = np.linalg.cholesky(precision)
    whitened = solve_triangular(factor, scaled.T, lower=True)
    mean = whitened @ (w * (t - 0.5))
    moments: FloatArray = np.sqrt(np.sum(whitened**2, axis=0) + (mean @ whitened) ** 2)
    log_det = float(np.log(np.diag(factor)).sum())
    return moments, log_bound(xi, np.zeros_like(xi), t, w) + 0.5 * float(mean @ mean) - log_det


def curvature(xi: FloatArray) -> FloatArray:
    """Return the curvature of the bound, 2 lambda(xi) = tanh(xi / 2) / (2 xi)."""
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.25 - xi**2 / 48.0, np.tanh(safe / 2.0) / (2.0 * safe))


def log_bound(xi: FloatArray, eta: FloatArray, t: FloatArray, w: FloatArray) -> float:
    """Return the bound on the log likelihood that is exact at eta = +-xi."""
    constant = -np.logaddexp(xi / 2.0, -xi / 2.0)
    return float(w @ ((t - 0.5) * eta + constant - 0.5 * curvature(xi) * (eta**2 - xi**2)))
