r"""Modes of a logistic likelihood under Gaussian or Laplace priors, and the closest Gaussian to it.

All are smooth concave problems of a few hundred to a few thousand unknowns with dense Hessians, so nearly all
time is spent in LAPACK.

The closest Gaussian minimises KL(N(mu, Sigma) || likelihood x ridge). With f_n ~ N(m_n, v_n) the linear
predictor of row n under the Gaussian, it maximises

    F = sum of c_n E ln sigma(s_n f_n) - lambda (|mu|^2 + tr Sigma) / 2 + ln |Sigma| / 2,

which is concave in mu and the Cholesky factor of Sigma. At the maximum Sigma^-1 = Z^T diag(b) Z + lambda with
b_n = c_n E sigma'(f_n) (Opper & Archambeau 2009), so N numbers determine the covariance. The expectations
come from a mixture of eight normal distribution functions that equals the logistic function to 2e-9 (Monahan
& Stefanski 1992) and has closed forms for every mean and variance, derivatives included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.special import expit, ndtr

from .._core import NumericalError
from .._types import FloatArray

#: Called between steps; raises an exception to cancel the fit.
Pulse = Callable[[], None]

#: Fraction of the predicted gain that a step must achieve (Armijo).
_ARMIJO = 1e-4
#: Below this predicted gain, in nats, rounding hides changes of the objective: the full step is accepted.
_MIN_TRUSTED_GAIN = 1e-9
_MAX_HALVINGS = 60


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
        """Return the working weights, the negative second derivatives."""
        return np.asarray(self.weights * expit(eta) * expit(-eta))


class Mode(NamedTuple):
    """The end of a search."""

    w: FloatArray
    n_iter: int
    converged: bool


def gram(Z: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Z^T diag(weights) Z for weights >= 0, exactly symmetric."""
    root = np.sqrt(weights)[:, np.newaxis] * Z
    return np.asarray(root.T @ root)


def posterior_mode(
    model: Logistic,
    precision: float | FloatArray,
    rate: FloatArray | None = None,
    start: FloatArray | None = None,
    *,
    tol: float,
    max_iter: int,
    pulse: Pulse,
) -> Mode:
    """Maximise the log likelihood - sum of precision_i w_i^2 / 2 by Newton's method with step halving.

    It ends after a step of at most ``tol`` posterior standard deviations. With ``rate``, rate^T w is
    subtracted too, and the maximum is over w >= 0 (projected Newton steps, Bertsekas 1982): weights at zero
    with a gradient that keeps them there are held, exactly at zero; the others take a Newton step that is
    projected on the octant. That ends when the Kuhn-Tucker conditions hold to ``tol`` times each rate.
    """
    w = np.zeros(model.Z.shape[1]) if start is None else np.maximum(start, 0.0)
    eta, octant = model.Z @ w, rate is not None
    slope, held = (np.zeros(len(w)) if rate is None else rate), np.zeros(len(w), dtype=np.bool_)
    precision = np.broadcast_to(precision, len(w))

    def value(w: FloatArray, eta: FloatArray) -> float:
        return model.value(eta) - float(0.5 * precision @ w**2 + slope @ w)

    objective = value(w, eta)
    for iteration in range(max_iter):
        pulse()
        gradient = model.Z.T @ model.slope(eta) - precision * w - slope
        if octant:
            violation = np.where(w > 0.0, np.abs(gradient), gradient) / slope
            if violation.max(initial=0.0) <= tol:
                return Mode(w, iteration, True)
            margin = min(1e-3, float(np.abs(np.maximum(w + gradient, 0.0) - w).max()))
            held = (w <= margin) & (gradient < 0.0)
        free = ~held
        step = np.where(held, gradient, 0.0)
        hessian = gram(model.Z[:, free], model.curvature(eta))
        hessian[np.diag_indices_from(hessian)] += precision[free]
        step[free] = _solve(hessian, gradient[free])
        predicted, length = float(gradient[free] @ step[free]), 1.0
        for _ in range(_MAX_HALVINGS):
            there = np.maximum(w + length * step, 0.0) if octant else w + length * step
            along = model.Z @ there
            reached = value(there, along)
            gain = length * predicted + float(gradient[held] @ (there - w)[held])
            if gain < _MIN_TRUSTED_GAIN or reached >= objective + _ARMIJO * gain:
                break
            length *= 0.5
        w, eta, objective = there, along, reached
        if not octant and predicted <= tol * tol:
            return Mode(w, iteration + 1, True)
    return Mode(w, max_iter, False)


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a positive definite system; if rounding made it indefinite, its diagonal is increased."""
    if not len(right):  # SciPy 1.10 cannot solve an empty system
        return right
    # Scaled to unit diagonal: precisions may differ by many orders of magnitude.
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = scale[:, np.newaxis] * matrix * scale
    damping = 0.0
    while True:
        try:
            factor = cho_factor(scaled, lower=True, check_finite=False)
        except LinAlgError:
            if not damping < 1.0:
                raise NumericalError("the Hessian of the likelihood is indefinite") from None
            damping = max(10.0 * damping, 1e-14 * len(scaled))
            scaled[np.diag_indices_from(scaled)] += damping
            continue
        return np.asarray(scale * cho_solve(factor, scale * right, check_finite=False))


#: sigma(x) = sum of weight Phi(scale x) to 2.1e-9 everywhere (Monahan & Stefanski 1992, 8 terms).
_MIXTURE_WEIGHTS = np.fromstring(
    "0.003246343272134 0.051517477033972 0.195077912673858 0.315569823632818 "
    "0.274149576158423 0.131076880695470 0.027912418727972 0.001449567805354",
    sep=" ",
)
_MIXTURE_SCALES = np.fromstring(
    "1.365340806296348 1.059523971016916 0.830791313765644 0.650732166639391 "
    "0.508135425366489 0.396313345166341 0.308904252267995 0.238212616409306",
    sep=" ",
)
_MIN_STEP = 2.0**-20


class Expectations(NamedTuple):
    """Expectations of logistic functions of f ~ N(m, v)."""

    #: E ln(1 + e^f).
    softplus: FloatArray
    #: E sigma(f), and its first three derivatives in m; the first is E sigma'(f).
    sigmoid: FloatArray
    slope: FloatArray
    curvature: FloatArray
    third: FloatArray


def expectations(m: FloatArray, v: FloatArray) -> Expectations:
    """Return the expectations under N(m, v) for each row, from the mixture."""
    std = np.sqrt(_MIXTURE_SCALES**-2 + v[:, np.newaxis])
    ratio = m[:, np.newaxis] / std
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
    below = ndtr(ratio)
    return Expectations(
        (m[:, np.newaxis] * below + std * density) @ _MIXTURE_WEIGHTS,
        below @ _MIXTURE_WEIGHTS,
        (density / std) @ _MIXTURE_WEIGHTS,
        (-ratio * density / std**2) @ _MIXTURE_WEIGHTS,
        ((ratio**2 - 1.0) * density / std**3) @ _MIXTURE_WEIGHTS,
    )


class _Gaussian:
    """A Gaussian N(w, Sigma) with Sigma^-1 = Z^T diag(b) Z + ridge and w = start + Sigma move, and its F."""

    def __init__(
        self, model: Logistic, ridge: float, b: FloatArray, start: FloatArray, move: FloatArray | None = None
    ) -> None:
        precision = gram(model.Z, b)
        precision[np.diag_indices_from(precision)] += ridge
        #: Cholesky factor L of Sigma^-1, and L^-1 Z^T.
        self.factor = np.linalg.cholesky(precision)
        self.whitened = solve_triangular(self.factor, model.Z.T, lower=True, check_finite=False)
        self.b = b
        self.w = start if move is None else start + self.times_sigma(move)
        m, self.v = model.Z @ self.w, np.einsum("ij,ij->j", self.whitened, self.whitened)
        wrong = expectations(-model.sign * m, self.v)
        self.gradient = model.Z.T @ (model.weights * model.sign * wrong.sigmoid) - ridge * self.w
        #: The value that b has at the maximum for these means and variances, and its derivatives in m.
        self.target = model.weights * wrong.slope
        self.first = -model.sign * model.weights * wrong.curvature
        self.second = model.weights * wrong.third
        # The trace of Sigma Sigma^-1 is the number of unknowns.
        penalty = ridge * float(self.w @ self.w) + len(self.w) - float(b @ self.v)
        log_det = float(np.log(np.diag(self.factor)).sum())
        self.F = -float(model.weights @ wrong.softplus) - 0.5 * penalty - log_det

    def times_sigma(self, vector: FloatArray) -> FloatArray:
        """Return Sigma times a vector."""
        return np.asarray(cho_solve((self.factor, True), vector, check_finite=False))

    def is_not_below(self, other: _Gaussian) -> bool:
        """Whether F is at least that of another; rounding may lower it slightly."""
        return self.F >= other.F - 1e-12 * abs(other.F)


def closest_gaussian(
    model: Logistic, ridge: float, start: FloatArray, *, tol: float, max_iter: int, pulse: Pulse
) -> tuple[Mode, FloatArray]:
    """Maximise F. Returns the mean and the working weights b.

    Newton steps on the equations for mean and b if they raise F, else natural-gradient steps (Khan & Lin
    2017), halved until they do. It ends when no mean would move by more than ``tol`` standard deviations, and
    no working weight by more than ``tol`` times the precision of its row's predictor.
    """
    here = _Gaussian(model, ridge, model.curvature(model.Z @ start), start)
    for iteration in range(max_iter):
        pulse()
        step = here.times_sigma(here.gradient)
        change = float(np.max(np.abs(here.target - here.b) * here.v, initial=0.0))
        if max(change, np.sqrt(max(float(here.gradient @ step), 0.0))) <= tol:
            return Mode(here.w, iteration, True), here.b
        here = _newton(model, ridge, here, step) or _natural(model, ridge, here)
    return Mode(here.w, max_iter, False), here.b


def _newton(model: Logistic, ridge: float, here: _Gaussian, step: FloatArray) -> _Gaussian | None:
    """Return the solution of the linearised equations for b and w; None if it does not raise F.

    With K = Z Sigma Z^T a change of b changes the variances by -(K o K) db; these and the gradient change the
    means by Z Sigma g - K (b' o dv) / 2; both change the target of b by b' dm + b'' dv / 2, which db must
    equal.
    """
    K = here.whitened.T @ here.whitened
    squares = K**2
    curved = here.first[:, np.newaxis] * K * here.first
    curved[np.diag_indices_from(curved)] -= here.second
    matrix = -0.5 * curved @ squares
    matrix[np.diag_indices_from(matrix)] += 1.0
    try:
        db = np.linalg.solve(matrix, here.target - here.b + here.first * (model.Z @ step))
    except np.linalg.LinAlgError:
        return None
    b = here.b + db
    if not (b > 0.0).all():
        return None
    pull = model.Z.T @ (0.5 * here.first * (squares @ db))
    there = _Gaussian(model, ridge, b, here.w + step + here.times_sigma(pull))
    return there if there.is_not_below(here) else None


def _natural(model: Logistic, ridge: float, here: _Gaussian) -> _Gaussian:
    """Return the end of a natural-gradient step in precision and its product with the mean."""
    length = 1.0
    while True:
        b = here.b + length * (here.target - here.b)
        there = _Gaussian(model, ridge, b, here.w, length * here.gradient)
        if there.is_not_below(here) or length < _MIN_STEP:
            return there
        length *= 0.5
