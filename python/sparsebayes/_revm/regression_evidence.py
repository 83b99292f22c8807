"""Noise and common prior of a Gaussian likelihood along the singular vectors of its design.

With C^1/2 Phi = U D V^T and y = U^T C^1/2 t, a weight vector V u is seen through y_i ~ N(d_i u_i, 1 / beta)
alone: the evidence is a product over i for every prior that is one.

The noise cannot come from that product with a precision for each i, maximised over all of them: each factor
then is the greatest for every noise variance up to y_i^2, so that with as many functions as rows the product
grows until there is no noise at all. With one precision lambda for all it has an interior maximum,

    -2 ln p = sum of c ln(2 pi / beta) + sum of ln(1 + d_i^2 / k) + beta Q(k),     k = lambda / beta,
    Q(k) = R^2 + sum of y_i^2 / (1 + d_i^2 / k),

with R^2 the part of C^1/2 t outside U. For given k beta is sum of c / Q(k), and k is found in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from .._types import FloatArray

#: Points of the grid over ln k that the search begins from, four for each factor of ten.
_PER_DECADE = 4
#: Estimated noise variances are at least this share of the targets'.
NOISE_FLOOR = 1e-6


@dataclass(frozen=True)
class Spectrum:
    """A Gaussian likelihood along its eigenvectors."""

    #: Squared singular values, descending.
    squares: FloatArray
    #: The targets along the left singular vectors.
    along: FloatArray
    #: Square of what lies outside.
    rest: float
    #: Number of rows, each counted with its weight.
    n: float


@dataclass(frozen=True)
class Noise:
    """Noise precision and the common prior precision over it."""

    beta: float
    k: float
    at_floor: bool


def estimate(spectrum: Spectrum, variance: float, beta: float | None) -> Noise:
    """Maximise the evidence over k and, unless it is given, beta; ``variance``: that of the targets."""
    least = NOISE_FLOOR * variance

    def noise(k: float) -> tuple[float, float]:
        q = spectrum.rest + float(np.sum(spectrum.along**2 / (1.0 + spectrum.squares / k)))
        return q, beta if beta is not None else 1.0 / max(q / spectrum.n, least)

    def height(log_k: float) -> float:
        k = float(np.exp(log_k))
        q, precision = noise(k)
        return float(precision * q - spectrum.n * np.log(precision) + np.log1p(spectrum.squares / k).sum())

    # A dictionary of zeros has no scale of its own.
    top = np.log(spectrum.squares[0]) if spectrum.squares[0] > 0.0 else 0.0
    grid = np.linspace(top - 16.0 * np.log(10.0), top + 4.0 * np.log(10.0), 20 * _PER_DECADE + 1)
    best = int(np.argmin([height(log_k) for log_k in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(height, bounds=bounds, method="bounded", options={"xatol": 1e-8})
    log_k = found.x if found.fun < height(grid[best]) else grid[best]
    k = float(np.exp(log_k))
    precision = noise(k)[1]
    return Noise(precision, k, beta is None and precision * least >= 1.0)
