r"""Certificates of columns in groups that share a precision. Shares no code with the solver.

Along the eigenvectors u_k of the sparsity matrix S of a group with itself left out, the objective depends on
its precision alpha by

    l(alpha) = 1/2 sum_k [n ln(alpha / (alpha + s_k)) + (q_k^2 - 2 n rho_k) / (alpha + s_k)].

The prior on complexity has the weight c / (number of columns)^(3/4) for each column of a group.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from .._types import FloatArray, OutputsProblem, Problem
from ._dense import DenseFit

#: Logs of precisions, relative to the size of S, of the scan for the largest gain.
_SCAN = np.linspace(-40.0, 40.0, 1601)
#: Distances in ln alpha at which the nearest maximum is looked for.
_DISTANCES = np.geomspace(1e-10, 60.0, 200)


def changes_of_groups(problem: Problem | OutputsProblem, fits: list[DenseFit]) -> tuple[float, float]:
    """Return the largest change of ln alpha to the nearest maximum, and the largest gain of a group outside.

    ``fits``: one for each output, which have the same noise.
    """
    assert problem.groups is not None
    n = len(fits)
    proper = problem.alpha > 0.0
    active, alphas, c = problem.active[proper], problem.alpha[proper], weights_of_groups(problem)
    change, gain = 0.0, 0.0
    for group in problem.groups:
        at = np.isin(active, group)
        if at.any():
            (alpha,) = np.unique(alphas[at])
            s, _, rho = fits[0].factors_of_active_group(at, alpha, c)
            q = np.stack([fit.factors_of_active_group(at, alpha, c)[1] for fit in fits])
            change = max(change, _distance(s, np.sum(q**2, axis=0) - 2.0 * n * rho, n, alpha))
        elif not np.isin(group, problem.active).any():
            S, of_others = fits[0].factors_of_group(group, c)
            R = _weight(problem, len(group)) * S - of_others
            s, u = np.linalg.eigh(S)
            q = u.T @ np.stack([fit.Q[group] for fit in fits], axis=1)
            rho = np.maximum(np.sum(u * (R @ u), axis=0), 0.0)
            used = s > 1e-12 * s.max()
            gain = max(gain, _largest_gain(s[used], (np.sum(q**2, axis=1) - 2.0 * n * rho)[used], n))
    return change, gain


def weights_of_groups(problem: Problem | OutputsProblem) -> FloatArray:
    """Return the weight of each active function with a proper prior in the prior on complexity."""
    active = problem.active[problem.alpha > 0.0]
    if problem.groups is None:
        return np.full(len(active), problem.complexity)
    weights = np.empty(problem.Phi.shape[1])
    for group in problem.groups:
        weights[group] = _weight(problem, len(group))
    return weights[active]


def _weight(problem: Problem | OutputsProblem, size: int) -> float:
    """Return the weight of each column of a group of this size in the prior on complexity."""
    return float(problem.complexity / size**0.75)


def _slope(x: float, s: FloatArray, square: FloatArray, n: int) -> float:
    """Return the derivative of l in ln alpha."""
    alpha = np.exp(x)
    return float(0.5 * np.sum(n * s / (alpha + s) - alpha * square / (alpha + s) ** 2))


def _distance(s: FloatArray, square: FloatArray, n: int, alpha: float) -> float:
    """Return the distance in ln alpha of the nearest maximum uphill; infinite if that is at infinity."""
    x = float(np.log(alpha))
    uphill = np.sign(_slope(x, s, square, n))
    for near, far in zip(np.append(0.0, _DISTANCES), _DISTANCES, strict=False):
        if uphill * _slope(x + uphill * far, s, square, n) <= 0.0:
            ends = x + uphill * near, x + uphill * far
            return float(abs(brentq(_slope, *ends, args=(s, square, n), xtol=1e-12) - x))
    return float(np.inf)


def _largest_gain(s: FloatArray, square: FloatArray, n: int) -> float:
    """Return the largest value of l, 0 at an infinite precision."""
    if len(s) == 0:
        return 0.0
    alpha = np.exp(np.log(s.max()) + _SCAN)[:, np.newaxis]
    values = 0.5 * np.sum(-n * np.log1p(s / alpha) + square / (alpha + s), axis=1)
    return max(float(values.max()), 0.0)
