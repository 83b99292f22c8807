r"""Relevance eigenvector models on dense arrays: Kropotov & Vetrov (2007), KV, algorithms 1 and 2.

Weights w belong to the M functions of a dictionary, u = Q w to the eigenvectors of the negative Hessian.
`Axes` are orthonormal directions that span the part of weight space the data determine; Z = Phi V are the
coordinates that everything is computed in.

With Gaussian noise, C^1/2 Phi = U D V^T and y = U^T C^1/2 t, the data determine a weight vector V u only
through y_i ~ N(d_i u_i, 1 / beta): for every factorised prior the evidence is a product over i. The noise
cannot be estimated from that product maximised over a precision for each i: each factor is then maximal for
every noise variance up to y_i^2, so with as many functions as rows the product grows until the noise
vanishes. With one common precision lambda there is an interior maximum,

    -2 ln p = sum of c ln(2 pi / beta) + sum of ln(1 + d_i^2 / k) + beta Q(k),     k = lambda / beta,
    Q(k) = R^2 + sum of y_i^2 / (1 + d_i^2 / k),

with R^2 the squared norm of the part of C^1/2 t orthogonal to U. For given k, beta = sum of c / Q(k), and k
is found by a search in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize_scalar

from .._types import FloatArray
from .evidence import best_alpha_gaussian, best_alpha_laplace, posterior_variance_laplace
from .modes import Logistic, Mode, Pulse, closest_gaussian, gram, octant_mode, posterior_mode

Prior = Literal["gaussian", "laplace"]
Approximation = Literal["laplace", "variational"]

#: Largest ridge tried, in units of the mean curvature.
_MAX_RIDGE = 10.0


@dataclass(frozen=True)
class Rules:
    """Checked settings of a fit."""

    prior: Prior
    # Classification.
    approximation: Approximation = "laplace"
    #: In units of the mean curvature at w = 0.
    ridge: float = 1.0
    #: ``tol`` and ``max_iter`` of each search.
    search: dict[str, Any] = field(default_factory=dict)
    # Regression; None: estimated.
    noise_variance: float | None = None


@dataclass(frozen=True)
class Axes:
    """A dictionary along the eigenvectors of Phi^T C Phi, without those that are only rounding."""

    #: Number of functions.
    n_basis: int
    #: M x r, orthonormal columns.
    V: FloatArray
    #: N x r: Phi V.
    Z: FloatArray
    #: Eigenvalues, descending, length r.
    squares: FloatArray
    #: Sample weights, length N.
    weights: FloatArray


@dataclass(frozen=True)
class Solution:
    """The fit of one target."""

    #: Eigenvectors, M of them, in descending order of their eigenvalues; alpha is inf where irrelevant.
    eigenvalues: FloatArray
    alpha: FloatArray
    #: Weights of the M functions.
    w: FloatArray
    n_effective: int
    n_iter: int
    status: str
    ridge: float
    #: Directions whose weight is uncertain, M x p, and the variances along them; regression only.
    directions: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    variances: FloatArray = field(default_factory=lambda: np.empty(0))
    beta: float = 1.0


def axes(Phi: FloatArray, weights: FloatArray, pulse: Pulse) -> Axes:
    """Decompose Phi^T C Phi; functions that differ only by rounding are merged."""
    squares, V = np.linalg.eigh(gram(Phi, weights))
    pulse()
    squares, V = squares[::-1], V[:, ::-1]
    kept = squares > len(squares) * np.finfo(float).eps * squares[0]
    # A dictionary of zeros keeps one direction, which the data do not determine.
    kept[0] = True
    V = np.ascontiguousarray(V[:, kept])
    return Axes(len(squares), V, Phi @ V, np.maximum(squares[kept], 0.0), weights)


def classify(axes: Axes, sign: FloatArray, rules: Rules, pulse: Pulse) -> Solution:
    """Fit labels of +1 and -1: algorithm 1 or 2 of KV, with a ridge on the likelihood.

    For separable classes the mode diverges as the ridge vanishes; the likelihood is flat there, and no
    eigenvector is relevant. Then the ridge is raised tenfold until one is.
    """
    model = Logistic(axes.Z, sign, axes.weights)
    n_iter, share = 0, rules.ridge
    while True:
        # If the dictionary is zero, any ridge is suitable.
        ridge = share * (float(axes.squares.sum()) / (4.0 * axes.n_basis) or 1.0)
        ends, h, Q, u = _approximation(model, ridge, rules, pulse)
        alpha, rate, kept = _relevance(rules.prior, h, u)
        n_iter += sum(end.n_iter for end in ends)
        if kept.any() or share > _MAX_RIDGE:
            break
        share *= 10.0
    # Step 5, in units in which each h is 1.
    root = np.sqrt(h[kept])
    to_x = Q[:, kept] * (np.sign(u[kept]) / root)
    inner = Logistic(axes.Z @ to_x, sign, axes.weights)
    if rules.prior == "gaussian":
        end = posterior_mode(inner, alpha[kept] / h[kept], **rules.search, pulse=pulse)
    else:
        start = np.maximum(root * np.abs(u[kept]) - rate[kept], 0.0)
        end = octant_mode(inner, rate[kept], start, **rules.search, pulse=pulse)
    converged = all(end.converged for end in (*ends, end))
    return Solution(
        eigenvalues=_padded(h, axes.n_basis, 0.0),
        alpha=_padded(alpha, axes.n_basis, np.inf),
        w=axes.V @ (to_x @ end.w),
        n_effective=int(np.count_nonzero(end.w)),
        n_iter=n_iter + end.n_iter,
        status="converged" if converged else "max_iter",
        ridge=ridge,
    )


def _approximation(
    model: Logistic, ridge: float, rules: Rules, pulse: Pulse
) -> tuple[list[Mode], FloatArray, FloatArray, FloatArray]:
    """Return the results of steps 1 to 3 of KV: the modes, h descending, eigenvectors as columns, and u."""
    pulse()
    mode = posterior_mode(model, np.full(model.Z.shape[1], ridge), **rules.search, pulse=pulse)
    b, ends = model.curvature(model.Z @ mode.w), [mode]
    if rules.approximation == "variational":
        mode, b = closest_gaussian(model, ridge, mode.w, **rules.search, pulse=pulse)
        ends.append(mode)
    pulse()
    h, Q = np.linalg.eigh(gram(model.Z, b))
    pulse()
    h, Q = np.maximum(h[::-1], 0.0), Q[:, ::-1]
    return ends, h, Q, Q.T @ mode.w


def regress(axes: Axes, targets: FloatArray, variance: float, rules: Rules) -> Solution:
    """Fit Gaussian targets; every step is exact along the eigenvectors, and only the noise needs a search.

    ``variance``: the variance of the targets, in whose units the noise floor is.
    """
    weighted = axes.weights * targets
    singular = np.sqrt(np.where(axes.squares > 0.0, axes.squares, 1.0))
    along = axes.Z.T @ weighted / singular
    total = float(weighted @ targets)
    rest = max(total - float(along @ along), 0.0)
    given = None if rules.noise_variance is None else 1.0 / rules.noise_variance
    beta, k, at_floor = estimate_noise(axes, along, rest, variance, given)
    h = beta * axes.squares
    root = np.sqrt(beta) * singular
    # Maximum of the likelihood, and of the likelihood times the common prior, which decides on relevance.
    z = np.sqrt(beta) * along
    shrunk = z * (axes.squares / (axes.squares + k))
    alpha, rate, kept = _relevance(rules.prior, h, shrunk / root)
    if rules.prior == "gaussian":
        shrinkage = h[kept] / (h[kept] + alpha[kept])
        x, variances = shrinkage * z[kept], shrinkage
    else:
        # The maximum is in the octant of z: each coordinate moves towards 0 by the rate, and stops at 0.
        x = np.sign(z[kept]) * np.maximum(np.abs(z[kept]) - rate[kept], 0.0)
        variances = posterior_variance_laplace(z[kept], rate[kept])
    directions = axes.V[:, kept] / root[kept]
    return Solution(
        eigenvalues=_padded(h, axes.n_basis, 0.0),
        alpha=_padded(alpha, axes.n_basis, np.inf),
        w=directions @ x,
        n_effective=int(np.count_nonzero(x)),
        n_iter=1,
        status="noise_floor" if at_floor else "converged",
        ridge=beta * k,
        directions=directions,
        variances=variances,
        beta=beta,
    )


def _relevance(prior: Prior, h: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return step 4 of KV: prior precisions, Laplace rates in units of sqrt(h), and which are finite."""
    alpha = best_alpha_gaussian(h, u) if prior == "gaussian" else best_alpha_laplace(h, u)
    kept = np.isfinite(alpha)
    rate = np.where(kept, 0.5 * alpha / np.sqrt(np.where(kept, h, 1.0)), np.inf)
    return alpha, rate, kept


def _padded(values: FloatArray, length: int, filling: float) -> FloatArray:
    return np.concatenate([values, np.full(length - len(values), filling)])


#: Points per factor of ten of the initial grid over ln k.
_GRID_PER_DECADE = 4
#: Lower bound of estimated noise variances, relative to the variance of the targets.
_NOISE_FLOOR = 1e-6


def estimate_noise(
    axes: Axes, along: FloatArray, rest: float, variance: float, given: float | None
) -> tuple[float, float, bool]:
    """Return the beta (unless ``given``) and k of most evidence, and whether the noise is at its floor.

    ``along``: the targets along the left singular vectors; ``rest``: the squared norm of the part of the
    targets orthogonal to these; ``variance``: that of the targets.
    """
    floor, n = _NOISE_FLOOR * variance, float(axes.weights.sum())

    def noise(k: float) -> tuple[float, float]:
        q = rest + float(np.sum(along**2 / (1.0 + axes.squares / k)))
        return q, given if given is not None else 1.0 / max(q / n, floor)

    def objective(log_k: float) -> float:
        k = float(np.exp(log_k))
        q, precision = noise(k)
        return float(precision * q - n * np.log(precision) + np.log1p(axes.squares / k).sum())

    # A dictionary of zeros has no scale.
    top = np.log(axes.squares[0]) if axes.squares[0] > 0.0 else 0.0
    grid = np.linspace(top - 16.0 * np.log(10.0), top + 4.0 * np.log(10.0), 20 * _GRID_PER_DECADE + 1)
    best = int(np.argmin([objective(log_k) for log_k in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-8})
    log_k = found.x if found.fun < objective(grid[best]) else grid[best]
    k = float(np.exp(log_k))
    precision = noise(k)[1]
    return precision, k, given is None and precision * floor >= 1.0
