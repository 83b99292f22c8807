r"""What exchanges of one function for another gain, for certificates: from dense arrays alone.

Without function j the covariance of the targets is :math:`C - \alpha_j^{-1} \phi_j \phi_j^T`. With
:math:`u_i = \phi_i^T B \Phi \Sigma_j` of the posterior, a function i outside then has

.. math:: S_i + u_i^2 / \Sigma_{jj}, \qquad Q_i + u_i \mu_j / \Sigma_{jj}

for its factors (Tipping & Faul 2003, appendix A.4), and may gain what equation 27 says of these; leaving has
gained :math:`-\tfrac{1}{2} [\ln(\alpha_j \Sigma_{jj}) + \mu_j^2 / \Sigma_{jj}]`, mostly a loss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._types import FloatArray, Problem
from ._certificate import _BLOCK, _Fit
from ._hyperpriors import best_alpha, log_density

#: What is left of a function outside the span of the others, as a part of it, that is no rounding.
_RESOLVED = 1e-11


def max_gain_exchange(
    problem: Problem, fit: _Fit, S: FloatArray, Q: FloatArray, whitened: Callable[[slice], FloatArray]
) -> float:
    """Return the largest gain of an exchange, the noise and all other precisions being held; 0 if none gains.

    ``S``, ``Q``: those of all functions. ``whitened``: a block of their columns, each row times the root of
    its noise precision.
    """
    if len(problem.alpha) == 0:
        return 0.0
    shrinkage, variance = _shrinkage(fit)
    leaving = -0.5 * (np.log(variance) + fit.mean**2 / variance)
    if problem.alpha_prior != (0.0, 0.0):
        leaving = leaving - log_density(problem.alpha, problem.alpha_prior)
    outside = np.ones(len(S), dtype=bool)
    outside[problem.active] = False
    reach = (shrinkage * fit.singular)[:, np.newaxis] * fit.right
    most = 0.0
    for start in range(0, len(S), _BLOCK):
        block = slice(start, start + _BLOCK)
        columns = whitened(block)
        u = columns.T @ fit.left @ reach
        s = S[block, np.newaxis] + u**2 / variance
        q = Q[block, np.newaxis] + u * (fit.mean / variance)
        there = outside[block, np.newaxis] & (s > _RESOLVED * np.sum(columns**2, axis=0)[:, np.newaxis])
        there &= q**2 > s
        gains = _entering(s[there], q[there], problem.alpha_prior)
        most = max(most, float(np.max(gains + np.broadcast_to(leaving, s.shape)[there], initial=0.0)))
    return most


def _shrinkage(fit: _Fit) -> tuple[FloatArray, FloatArray]:
    r"""Return 1 / (1 + singular^2), and :math:`\alpha_j \Sigma_{jj}` of each function in the model."""
    shrinkage = 1.0 / (1.0 + fit.singular**2)
    # The diagonal of the posterior covariance times the roots of the alphas on either side.
    variance = (fit.right**2).T @ shrinkage
    if len(fit.singular) < len(variance):
        variance += np.maximum(1.0 - np.sum(fit.right**2, axis=0), 0.0)
    return shrinkage, variance


def _entering(s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return what functions with these factors gain at their best precision (equation 27)."""
    if prior != (0.0, 0.0):
        return best_alpha(s, q, prior)[1]
    excess = np.maximum(q**2 / s - 1.0, 0.0)
    gain: FloatArray = 0.5 * (excess - np.log1p(excess))
    return gain
