r"""The certificate of a model of several outputs, from dense arrays alone.

The outputs share their prior precisions, so the objective of one precision is the sum over the outputs:
:math:`F(\alpha) = \sum_c \frac{1}{2} [\ln \alpha - \ln(\alpha + s_c) + q_c^2 / (\alpha + s_c)]` (Tipping &
Faul 2003, equation 18, for each output). With different noise levels F may have several maxima, which a scan
finds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from .._types import FloatArray, OutputsProblem
from ._dense import Certificate, DenseFit, bisect, fit_regression, log_ratio

#: Functions scanned at a time, points of a scan, and bisections that follow it.
_BLOCK = 256
_POINTS = 400
_BISECTIONS = 60
#: Nats by which another maximum must exceed the nearest one to count.
_BETTER = 1e-7


def certify_outputs(problem: OutputsProblem) -> Certificate:
    """Compute the certificate of one fit of several outputs."""
    used = slice(None) if problem.weights is None else problem.weights > 0.0
    Phi, targets = problem.Phi[used], problem.targets[used]
    w = np.ones(len(targets)) if problem.weights is None else problem.weights[used]
    scaled = Phi[:, problem.active] / np.sqrt(problem.alpha)
    fits = [fit_regression(scaled, t, w, beta) for t, beta in zip(targets.T, problem.beta, strict=True)]
    S = _sparsities(Phi, fits, shared=problem.shared_noise)
    Q = np.stack([Phi.T @ fit.pull for fit in fits], axis=1)
    deviation = np.stack([np.sqrt(fit.variance) for fit in fits], axis=1)
    mean = np.stack([fit.mean for fit in fits], axis=1)
    error = (np.sqrt(problem.alpha)[:, np.newaxis] * problem.mu - mean) / deviation
    # S and Q of the active functions, each (M, C).
    factors = np.stack([fit.active_factors(problem.alpha) for fit in fits], axis=-1)
    changes = [
        _log_alpha_change(S_j / alpha, p, Q_j**2 / alpha)
        for S_j, Q_j, alpha, p in zip(*factors, problem.alpha, deviation**2, strict=True)
    ]
    inactive = np.setdiff1d(np.arange(Phi.shape[1]), problem.active)
    return Certificate(
        max_log_alpha_change=max(changes, default=0.0),
        max_gain_outside=_max_gain(S[inactive], Q[inactive]),
        log_beta_residual=_beta_residual(problem, fits, float(w.sum())),
        max_mean_error=float(np.max(np.abs(error), initial=0.0)),
        log_marginal_likelihood=float(sum(fit.log_evidence for fit in fits)),
        n_active=len(problem.alpha),
        n_basis=Phi.shape[1],
    )


def _sparsities(Phi: FloatArray, fits: list[DenseFit], *, shared: bool) -> FloatArray:
    """Return S of each function for each output, (K, C); it depends on the noise and not on the targets."""

    def sparsities(fit: DenseFit) -> FloatArray:
        return fit.sparsities(lambda block: fit.root[:, np.newaxis] * Phi[:, block], Phi.shape[1])

    if shared:
        return np.repeat(sparsities(fits[0])[:, np.newaxis], len(fits), axis=1)
    return np.stack([sparsities(fit) for fit in fits], axis=1)


def _log_alpha_change(free: FloatArray, p: FloatArray, power: FloatArray) -> float:
    r"""Return |move| of one ln alpha to the maximum of F; inf if the function should be deleted.

    As a function of the move x, with :math:`p = \alpha \Sigma_{jj}` and :math:`\alpha \mu_j^2` of each
    output:

    .. math:: F(x) - F(0) = \sum_c \tfrac{1}{2} [x - \ln D - \alpha \mu^2 (e^x - 1) / D], \quad
        D = (1 - p) + p e^x

    ``free`` is 1 - p = S / alpha (Tipping & Faul 2003, equation 24), ``power`` is alpha mu^2 = Q^2 / alpha:
    neither is a difference, and s and q are not needed.
    """

    def slope(x: float) -> float:
        D = free + p * np.exp(x)
        return float(np.sum(free / D - power * np.exp(x) / D**2))

    def value(x: FloatArray) -> FloatArray:
        D = free + p * np.exp(x)[:, np.newaxis]
        terms = x[:, np.newaxis] - np.log(D) - power * np.expm1(x)[:, np.newaxis] / D
        total: FloatArray = 0.5 * terms.sum(axis=1)
        return total

    at_infinity = 0.5 * float(np.sum(-np.log(p) - power / p))
    scan = np.linspace(-40.0, 40.0, 4001)
    values = value(scan)
    near = _nearest_maximum(slope)
    here = float(value(np.array([near]))[0]) if np.isfinite(near) else at_infinity
    if at_infinity > max(here + _BETTER, float(values.max())):
        return np.inf
    if values.max() > here + _BETTER:
        return float(abs(scan[np.argmax(values)]))
    return abs(near)


def _nearest_maximum(slope: Callable[[float], float]) -> float:
    """Return the first zero of ``slope`` uphill from 0; inf if there is none."""
    uphill = float(np.sign(slope(0.0)))
    if uphill == 0.0:
        return 0.0
    last, step = 0.0, 1e-10
    while step < 60.0:
        if slope(uphill * step) * uphill <= 0.0:
            return float(brentq(slope, last, uphill * step, xtol=1e-13))
        last, step = uphill * step, 2.0 * step
    return float(np.inf)


def _max_gain(S: FloatArray, Q: FloatArray) -> float:
    """Return the largest gain of adding a function with its best alpha; columns of zeros have none."""
    usable = (S > 0.0).all(axis=1)
    S, power = S[usable], Q[usable] ** 2
    gain = 0.0
    for start in range(0, len(S), _BLOCK):
        block = slice(start, start + _BLOCK)
        gain = max(gain, float(_gains(S[block], power[block]).max(initial=0.0)))
    return gain


def _gains(S: FloatArray, power: FloatArray) -> FloatArray:
    """Return the maximum of F over ln alpha for each function, by a scan and bisection of the slope."""

    def rising(u: FloatArray) -> NDArray[np.bool_]:
        alpha = np.exp(u)[:, np.newaxis]
        return np.asarray(np.sum((S**2 - alpha * (power - S)) / (alpha + S) ** 2, axis=1) > 0.0)

    def value(u: FloatArray) -> FloatArray:
        alpha = np.exp(u)[:, np.newaxis]
        total: FloatArray = 0.5 * np.sum(power / (alpha + S) - np.log1p(S / alpha), axis=1)
        return total

    excess = np.where(power > S, power - S, np.nan)
    alone = np.where(power > S, S**2 / excess, np.inf).min(axis=1)
    # F rises below the smallest maximum of a single output, and is almost flat far above s.
    low = np.log(np.minimum(alone, S.max(axis=1)))
    high = np.log(S.max(axis=1)) + 18.0
    best, where = value(low), low
    for fraction in np.linspace(0.0, 1.0, _POINTS)[1:]:
        u = low + fraction * (high - low)
        values = value(u)
        where, best = np.where(values > best, u, where), np.maximum(values, best)
    step = (high - low) / (_POINTS - 1)
    return np.maximum(best, value(bisect(where - step, where + step, rising, _BISECTIONS)))


def _beta_residual(problem: OutputsProblem, fits: list[DenseFit], n_rows: float) -> float:
    """Return the largest |change| of ln beta that step 9 of the algorithm would make."""
    if problem.fixed:
        return 0.0
    if problem.shared_noise:
        determined = sum(np.sum(fit.determined) for fit in fits)
        residual = sum(np.sum((fit.pull / fit.root) ** 2) for fit in fits)
        changes = [log_ratio(n_rows * len(fits) - float(determined), float(residual))]
    else:
        changes = [fit.log_beta_change for fit in fits]
    pairs = zip(changes, problem.at_floor, strict=True)
    return max(max(-change, 0.0) if at_floor else abs(change) for change, at_floor in pairs)
