"""Maxima of a logistic likelihood: under a Gaussian prior, and inside an octant under a Laplace prior.

Both are smooth concave problems of a few hundred to a few thousand unknowns whose Hessians are dense, so
that all time goes to products and factorisations: LAPACK's, through NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from .._core import NumericalError
from .._types import FloatArray

#: Called between steps; raises to end the work.
Pulse = Callable[[], None]

#: Share of the predicted gain that a step has to achieve (Armijo).
_SHARE = 1e-4
#: Below this predicted gain in nats rounding of the objective says nothing: the step is taken as it is.
_TRUST = 1e-9
_HALVINGS = 60


@dataclass(frozen=True)
class Logistic:
    """Log likelihood of labels under the linear predictors eta = Z w: sum of c_n ln sigma(s_n eta_n)."""

    #: N x r.
    Z: FloatArray
    #: +1 or -1 for each row.
    sign: FloatArray
    #: Sample weight of each row.
    weights: FloatArray

    def value(self, eta: FloatArray) -> float:
        """Return the log likelihood."""
        return -float(self.weights @ np.logaddexp(0.0, -self.sign * eta))

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return its derivative in each eta."""
        return np.asarray(self.weights * self.sign * expit(-self.sign * eta))

    def curvature(self, eta: FloatArray) -> FloatArray:
        """Return the working weights, the second derivatives with their sign changed."""
        return np.asarray(self.weights * expit(eta) * expit(-eta))


@dataclass(frozen=True)
class Mode:
    """Where a search ended."""

    w: FloatArray
    n_iter: int
    converged: bool


def gram(Z: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Z^T diag(weights) Z for weights >= 0, exactly symmetric."""
    root = np.sqrt(weights)[:, np.newaxis] * Z
    return np.asarray(root.T @ root)


def posterior_mode(
    model: Logistic, precision: FloatArray, *, tol: float, max_iter: int, pulse: Pulse
) -> Mode:
    """Maximise the log likelihood - sum of precision_i w_i^2 / 2 by Newton's method with halved steps.

    It ends after a step that was at most ``tol`` posterior standard deviations long.
    """
    w = np.zeros(model.Z.shape[1])
    eta = model.Z @ w
    height = model.value(eta)
    for iteration in range(max_iter):
        pulse()
        gradient = model.Z.T @ model.slope(eta) - precision * w
        hessian = gram(model.Z, model.curvature(eta))
        hessian[np.diag_indices_from(hessian)] += precision
        step = _solve(hessian, gradient)
        square = float(gradient @ step)
        along, length = model.Z @ step, 1.0
        for _ in range(_HALVINGS):
            there = w + length * step
            reached = model.value(eta + length * along) - 0.5 * float(precision @ there**2)
            if square < _TRUST or reached >= height + _SHARE * length * square:
                break
            length *= 0.5
        w, height = w + length * step, reached
        eta = model.Z @ w
        if square <= tol * tol:
            return Mode(w, iteration + 1, True)
    return Mode(w, max_iter, False)


def octant_mode(
    model: Logistic, rate: FloatArray, start: FloatArray, *, tol: float, max_iter: int, pulse: Pulse
) -> Mode:
    """Maximise the log likelihood - rate^T w over w >= 0 by projected Newton steps (Bertsekas 1982).

    Weights at zero that the gradient keeps there are held; the others take a Newton step, which is bent at
    the walls of the octant and halved until the objective has risen enough. Weights that end at zero are
    exactly zero. It ends where the Kuhn-Tucker conditions hold to ``tol`` times each rate.
    """
    w = np.maximum(start, 0.0)
    eta = model.Z @ w
    height = model.value(eta) - float(rate @ w)
    for iteration in range(max_iter):
        pulse()
        gradient = model.Z.T @ model.slope(eta) - rate
        violation = np.where(w > 0.0, np.abs(gradient), gradient) / rate
        if violation.max(initial=0.0) <= tol:
            return Mode(w, iteration, True)
        margin = min(1e-3, float(np.abs(np.maximum(w + gradient, 0.0) - w).max()))
        held = (w <= margin) & (gradient < 0.0)
        free = ~held
        step = np.where(held, gradient, 0.0)
        if free.any():
            step[free] = _solve(gram(model.Z[:, free], model.curvature(eta)), gradient[free])
        promised, length = float(gradient[free] @ step[free]), 1.0
        for _ in range(_HALVINGS):
            there = np.maximum(w + length * step, 0.0)
            along = model.Z @ there
            reached = model.value(along) - float(rate @ there)
            gain = length * promised + float(gradient[held] @ (there - w)[held])
            if gain < _TRUST or reached >= height + _SHARE * gain:
                break
            length *= 0.5
        w, eta, height = there, along, reached
    return Mode(w, max_iter, False)


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a positive definite system; one that is so but for rounding gets a little on its diagonal."""
    if not len(right):  # SciPy 1.10 cannot
        return right
    # To unit diagonal: precisions may be worlds apart.
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = scale[:, np.newaxis] * matrix * scale
    damping = 0.0
    while True:
        try:
            factor = cho_factor(scaled, lower=True, check_finite=False)
        except LinAlgError:
            if not damping < 1.0:
                raise NumericalError("the Hessian of the likelihood has lost its definiteness") from None
            damping = max(10.0 * damping, 1e-14 * len(scaled))
            scaled[np.diag_indices_from(scaled)] += damping
            continue
        return np.asarray(scale * cho_solve(factor, scale * right, check_finite=False))
