r"""Relevance eigenvector models on dense arrays: Kropotov & Vetrov (2007), KV, algorithms 1 and 2.

Weights w belong to the M functions of a dictionary, u = Q w to the eigenvectors of the negative Hessian.
`Axes` are orthonormal directions that span the part of weight space the data determine; Z = Phi V are the
coordinates that everything is computed in. Along an eigenvector with eigenvalue h the likelihood is
exp(-h (u - u_ML)^2 / 2). In units of its own width, z = u_ML sqrt(h), the evidence of a prior depends on z
and one more number alone, so the best Laplace prior is one function of z for all problems.

Modes of the logistic likelihood are smooth concave problems of a few hundred to a few thousand unknowns with
dense Hessians, so nearly all time is spent in LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import erfc, erfcx, eval_hermitenorm, expit, ndtr

from ._core import NumericalError
from ._types import NOISE_FLOOR, FloatArray

Prior = Literal["gaussian", "laplace"]
Approximation = Literal["laplace", "variational"]
#: Called between steps; raises an exception to cancel the fit.
Pulse = Callable[[], None]

#: Largest ridge tried, in units of the mean curvature.
_MAX_RIDGE: Final = 10.0
#: Points per factor of ten of the initial grid over ln k.
_GRID_PER_DECADE: Final = 4
#: For z^2 - 1 below this the best rate is computed from a series: it is large, and the slope of the evidence
#: a difference of nearly equal numbers. Above, by bisections of ln r.
_SERIES_LIMIT: Final = 1e-2
_BISECTIONS: Final = 55


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

    @classmethod
    def of(cls, Phi: FloatArray, weights: FloatArray, pulse: Pulse) -> Axes:
        """Decompose Phi^T C Phi; functions that differ only by rounding are merged."""
        squares, V = np.linalg.eigh(gram(Phi, weights))
        pulse()
        if not np.isfinite(squares).all():
            raise LinAlgError("the squares of the functions left the range of numbers")
        squares, V = squares[::-1], V[:, ::-1]
        kept = squares > len(squares) * np.finfo(float).eps * squares[0]
        # A dictionary of zeros keeps one direction, which the data do not determine.
        kept[0] = True
        V = np.ascontiguousarray(V[:, kept])
        return cls(len(squares), V, Phi @ V, np.maximum(squares[kept], 0.0), weights)

    def padded(self, values: FloatArray, filling: float) -> FloatArray:
        """Return a value for each of the M eigenvectors."""
        return np.concatenate([values, np.full(self.n_basis - len(values), filling)])


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


def classify(
    axes: Axes,
    sign: FloatArray,
    pulse: Pulse,
    *,
    prior: Prior,
    approximation: Approximation,
    ridge: float,
    **search: Any,
) -> Solution:
    """Fit labels of +1 and -1: algorithm 1 or 2 of KV, with a ridge on the likelihood.

    For separable classes the mode diverges as the ridge vanishes; the likelihood is flat there, and no
    eigenvector is relevant. Then the ridge is raised tenfold until one is. ``ridge`` is in units of the mean
    curvature at w = 0; ``search``: ``tol`` and ``max_iter`` of each search.
    """
    search["pulse"] = pulse
    model = Logistic(axes.Z, sign, axes.weights)
    # If the dictionary is zero, any ridge is suitable.
    unit = float(axes.squares.sum()) / (4.0 * axes.n_basis) or 1.0
    n_iter = 0
    while True:
        # Steps 1 to 4: the mode, eigenvalues h, eigenvectors as columns, and u.
        end = posterior_mode(model, ridge * unit, **search)
        b, n_iter, converged = model.curvature(axes.Z @ end.w), n_iter + end.n_iter, end.converged
        if approximation == "variational":
            end, b = closest_gaussian(model, ridge * unit, end.w, **search)
            n_iter, converged = n_iter + end.n_iter, converged and end.converged
        pulse()
        h, Q = np.linalg.eigh(gram(axes.Z, b))
        pulse()
        h, Q = np.maximum(h[::-1], 0.0), Q[:, ::-1]
        u = Q.T @ end.w
        alpha, rate, kept = _relevance(prior, h, u)
        if kept.any() or ridge > _MAX_RIDGE:
            break
        ridge *= 10.0
    # Step 5, in units in which each h is 1.
    root = np.sqrt(h[kept])
    to_x = Q[:, kept] * (np.sign(u[kept]) / root)
    inner = Logistic(axes.Z @ to_x, sign, axes.weights)
    if prior == "gaussian":
        end = posterior_mode(inner, alpha[kept] / h[kept], **search)
    else:
        start = np.maximum(root * np.abs(u[kept]) - rate[kept], 0.0)
        end = posterior_mode(inner, 0.0, rate[kept], start, **search)
    return Solution(
        eigenvalues=axes.padded(h, 0.0),
        alpha=axes.padded(alpha, np.inf),
        w=axes.V @ (to_x @ end.w),
        n_effective=int(np.count_nonzero(end.w)),
        n_iter=n_iter + end.n_iter,
        status="converged" if converged and end.converged else "max_iter",
        ridge=ridge * unit,
    )


def regress(
    axes: Axes, targets: FloatArray, prior: Prior, variance: float, noise_variance: float | None
) -> Solution:
    """Fit Gaussian targets; every step is exact along the eigenvectors, and only the noise needs a search.

    ``variance``: the variance of the targets, in whose units the noise floor is.
    """
    weighted = axes.weights * targets
    singular = np.sqrt(np.where(axes.squares > 0.0, axes.squares, 1.0))
    along = axes.Z.T @ weighted / singular
    rest = max(float(weighted @ targets) - float(along @ along), 0.0)
    beta, k, at_floor = _estimate_noise(axes, along, rest, variance, noise_variance)
    h = beta * axes.squares
    root = np.sqrt(beta) * singular
    # Maximum of the likelihood, and of the likelihood times the common prior, which decides on relevance.
    z = np.sqrt(beta) * along
    shrunk = z * (axes.squares / (axes.squares + k))
    alpha, rate, kept = _relevance(prior, h, shrunk / root)
    if prior == "gaussian":
        variances = h[kept] / (h[kept] + alpha[kept])
        x = variances * z[kept]
    else:
        # The maximum is in the octant of z: each coordinate moves towards 0 by the rate, and stops at 0.
        x = np.sign(z[kept]) * np.maximum(np.abs(z[kept]) - rate[kept], 0.0)
        variances = posterior_variance_laplace(z[kept], rate[kept])
    directions = axes.V[:, kept] / root[kept]
    return Solution(
        eigenvalues=axes.padded(h, 0.0),
        alpha=axes.padded(alpha, np.inf),
        w=directions @ x,
        n_effective=int(np.count_nonzero(x)),
        n_iter=1,
        status="noise_floor" if at_floor else "converged",
        ridge=beta * k,
        directions=directions,
        variances=variances,
        beta=beta,
    )


def _estimate_noise(
    axes: Axes, along: FloatArray, rest: float, variance: float, noise_variance: float | None
) -> tuple[float, float, bool]:
    """Return the beta (unless the noise is given) and k of most evidence, and whether beta is at its bound.

    With C^1/2 Phi = U D V^T and y = U^T C^1/2 t (``along``) the data determine a weight vector V u only
    through y_i ~ N(d_i u_i, 1 / beta): for every factorised prior the evidence is a product over i. Maximised
    over a precision for each i, each factor is maximal for every noise variance up to y_i^2, so with as many
    functions as rows the product grows until the noise vanishes. With one common precision lambda there is an
    interior maximum,

        -2 ln p = sum of c ln(2 pi / beta) + sum of ln(1 + d_i^2 / k) + beta Q(k),     k = lambda / beta,
        Q(k) = R^2 + sum of y_i^2 / (1 + d_i^2 / k),

    with R^2 (``rest``) the squared norm of the part of C^1/2 t orthogonal to U. For given k, beta = sum of c
    / Q(k), and k is found by a search in one dimension.
    """
    floor, n = NOISE_FLOOR * variance, float(axes.weights.sum())

    def precision(q: float) -> float:
        return 1.0 / (max(q / n, floor) if noise_variance is None else noise_variance)

    def misfit(k: float) -> float:
        return rest + float(np.sum(along**2 / (1.0 + axes.squares / k)))

    def objective(log_k: float) -> float:
        k = float(np.exp(log_k))
        q = misfit(k)
        beta = precision(q)
        return float(beta * q - n * np.log(beta) + np.log1p(axes.squares / k).sum())

    # A dictionary of zeros has no scale.
    top = np.log(axes.squares[0]) if axes.squares[0] > 0.0 else 0.0
    grid = np.linspace(top - 16.0 * np.log(10.0), top + 4.0 * np.log(10.0), 20 * _GRID_PER_DECADE + 1)
    best = int(np.argmin([objective(log_k) for log_k in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-8})
    k = float(np.exp(found.x if found.fun < objective(grid[best]) else grid[best]))
    beta = precision(misfit(k))
    return beta, k, noise_variance is None and beta * floor >= 1.0


# --- the prior along one eigenvector, elementwise on arrays ----------------------------------------


def _relevance(prior: Prior, h: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return step 4 of KV: prior precisions, Laplace rates in units of sqrt(h), and which are finite."""
    alpha = best_alpha_gaussian(h, u) if prior == "gaussian" else best_alpha_laplace(h, u)
    kept = np.isfinite(alpha)
    rate = np.where(kept, 0.5 * alpha / np.sqrt(np.where(kept, h, 1.0)), np.inf)
    return alpha, rate, kept


def best_alpha_gaussian(h: FloatArray, u: FloatArray) -> FloatArray:
    """Return the maximum of KV (10) over alpha, KV (11): h / (h u^2 - 1), or infinity."""
    excess = h * u**2 - 1.0
    inside = excess > 0.0
    return np.where(inside, h / np.where(inside, excess, 1.0), np.inf)


def best_alpha_laplace(h: FloatArray, u: FloatArray) -> FloatArray:
    """Return the maximum of KV (13) over alpha: 2 sqrt(h) `best_rate`, or infinity where h u^2 <= 1."""
    root = np.sqrt(h)
    rate = best_rate(root * np.abs(u))
    inside = np.isfinite(rate)
    return np.where(inside, 2.0 * root * np.where(inside, rate, 1.0), np.inf)


def best_rate(z: FloatArray) -> FloatArray:
    r"""Return the rate r of the prior (r / 2) exp(-r |x|) of greatest evidence under exp(-(x - z)^2 / 2).

    The derivative of the log evidence in ln r is 1 - r E|x|, with the mean under the posterior. For large r
    the evidence is asymptotically :math:`e^{-z^2/2} \sum_k He_{2k}(z) r^{-2k}`, which approaches its limit
    from above if and only if z > 1: then there is a maximum, else r is infinite. The maximum is above
    1 / sqrt(1 + z^2), as E|x| < sqrt(1 + z^2), and below 4 / sqrt(z^2 - 1), twice the value of the series
    near z = 1.
    """
    z = np.asarray(z, dtype=float)
    rate = np.full(z.shape, np.inf)
    # As a product, because z^2 - 1 cancels.
    near = (z > 1.0) & ((z - 1.0) * (z + 1.0) < _SERIES_LIMIT)
    rate[near] = _best_rate_near_one(z[near])
    inside = (z > 1.0) & ~near
    z = z[inside]
    low, high = -0.5 * np.log1p(z**2), np.log(4.0) - 0.5 * np.log((z - 1.0) * (z + 1.0))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        rises = np.exp(middle) * _mean_size(z, np.exp(middle)) < 1.0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    rate[inside] = np.exp(0.5 * (low + high))
    return rate


def _best_rate_near_one(z: FloatArray) -> FloatArray:
    """Solve the series: sum of k He_2k(z) y^(k-1) = 0 in y = 1 / r^2, by Newton's method."""
    first = (z - 1.0) * (z + 1.0)
    others = [k * eval_hermitenorm(2 * k, z) for k in range(2, 8)]
    y = 0.25 * first
    for _ in range(6):
        value, slope = others[-1], 0.0
        for coefficient in (*others[-2::-1], first):
            value, slope = coefficient + y * value, value + y * slope
        y = y - value / slope
    return np.asarray(y**-0.5)


def posterior_variance_laplace(z: FloatArray, r: FloatArray) -> FloatArray:
    """Return the variance of x under exp(-(x - z)^2 / 2 - r |x|): two halves of normal densities."""
    sign, z = np.sign(z), np.abs(z)
    first, _, sums, _ = _terms(z, r)
    share = first / sums
    (mean_1, square_1), (mean_2, square_2) = _half(z - r), _half(-z - r)
    mean = sign * (share * mean_1 - (1.0 - share) * mean_2)
    # By rounding it may be negative, or exceed the variance of the likelihood.
    return np.clip(share * square_1 + (1.0 - share) * square_2 - mean**2, 0.0, 1.0)


def _half(mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first two moments of a normal variable of unit variance, given that it is positive."""
    hazard = np.sqrt(2.0 / np.pi) / erfcx(-mean / np.sqrt(2.0))
    return mean + hazard, np.maximum(1.0 + mean * (mean + hazard), 0.0)


def _mean_size(z: FloatArray, r: FloatArray) -> FloatArray:
    """Return E|x| under exp(-(x - z)^2 / 2 - r |x|), for z >= 0."""
    first, second, sums, _ = _terms(z, r)
    scale = np.exp(-0.5 * np.minimum(r - z, 0.0) ** 2)
    return np.asarray((2.0 * np.sqrt(2.0 / np.pi) * scale - (r - z) * first - (r + z) * second) / sums)


def _terms(z: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    r"""Return the two terms of the evidence KV (13), their sum, and the exponent of their common factor.

    For the prior (alpha / 4) exp(-alpha |u| / 2), with z = sqrt(h) |u| and r = alpha / (2 sqrt(h)), it is

    .. math:: \sqrt{\pi / 8}\, r\, e^{-z^2/2} \big[ \mathrm{erfcx}\big((r - z) / \sqrt 2\big)
              + \mathrm{erfcx}\big((r + z) / \sqrt 2\big) \big].

    The first term overflows for r far below z; there, as in appendix A of KV, its exponential is combined
    with the factor, e^{-z^2/2} erfcx(x) = e^{r^2/2 - r z} erfc(x).
    """
    x_1, x_2 = (r - z) / np.sqrt(2.0), (r + z) / np.sqrt(2.0)
    scaled = x_1 >= 0.0
    below = np.where(scaled, 0.0, x_1)
    first = np.where(scaled, erfcx(np.where(scaled, x_1, 0.0)), erfc(below))
    second = np.exp(-(below**2)) * erfcx(x_2)
    return first, second, first + second, np.where(scaled, -0.5 * z**2, -r * (z - 0.5 * r))


# --- modes of a logistic likelihood, and the closest Gaussian to it ----------------------------------

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


#: Weights and scales of the mixture: sigma(x) = sum of weight Phi(scale x).
_MIXTURE_WEIGHTS, _MIXTURE_SCALES = np.transpose(
    [
        (0.003246343272134, 1.365340806296348),
        (0.051517477033972, 1.059523971016916),
        (0.195077912673858, 0.830791313765644),
        (0.315569823632818, 0.650732166639391),
        (0.274149576158423, 0.508135425366489),
        (0.131076880695470, 0.396313345166341),
        (0.027912418727972, 0.308904252267995),
        (0.001449567805354, 0.238212616409306),
    ]
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
    """Return the expectations under N(m, v) for each row.

    They come from a mixture of eight normal distribution functions that equals the logistic function to 2e-9
    (Monahan & Stefanski 1992) and has closed forms for every mean and variance, derivatives included.
    """
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
    """Minimise KL(N(mu, Sigma) || likelihood x ridge); return the mean and the working weights b.

    With f_n ~ N(m_n, v_n) the linear predictor of row n under the Gaussian, that is to maximise

        F = sum of c_n E ln sigma(s_n f_n) - lambda (|mu|^2 + tr Sigma) / 2 + ln |Sigma| / 2,

    which is concave in mu and the Cholesky factor of Sigma. At the maximum Sigma^-1 = Z^T diag(b) Z + lambda
    with b_n = c_n E sigma'(f_n) (Opper & Archambeau 2009), so N numbers determine the covariance.

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
