r"""Composite kernels and the convex weights of their parts.

`learn_kernel_weights` minimises a quadratic form over the simplex (Damoulas & Girolami). `JointAscent`
maximises the variational bound of mRVM1 over weights, precisions and kernel weights together, where
alternating steps would converge slowly. For the functions in the model that bound is

.. math:: B(W, \alpha, b) = \sum_n \ln P(t_n | W^T \phi_n(b)) - \tfrac{1}{2} \sum_c w_c^T A w_c
    + \tfrac{C}{2} (\ln |A| - \ln |\Phi(b)^T \Phi(b) + A|).

Its gradient in b equals that of the quadratic step at the current posterior. Scaling b, and with it the
weights and precisions of the kernel functions, does not change the bound: the joint ascent only requires
b >= 0, and normalises b at the end.

The quadratic program is

    minimise b^T Omega b / 2 - f^T b  subject to  b >= 0, sum(b) = 1,

with Omega symmetric and positive semidefinite. With g = Omega b - f, b is a minimum if and only if
g_i = lambda where b_i > 0 and g_i >= lambda elsewhere (Karush, Kuhn and Tucker). Of several minima, as for
equal kernels, the one with the least sum of Omega_ii b_i^2 is returned: equal kernels get equal weights.

With Omega = A^T A and f = A^T y the minimum is the point of a polytope nearest to 0, which non-negative least
squares finds to rounding; but that fails where rounding, or the caller, moves f out of the range of Omega.
SciPy's SLSQP meets the conditions only to 1e-7 of the terms in g. Hence the active-set method here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize, nnls

from .._types import FloatArray, IntArray


@dataclass(frozen=True)
class Composite:
    """The dictionary Phi(b): a constant column if there is a bias, then sum_s b_s K_s."""

    #: Values of each kernel, N x K.
    blocks: list[FloatArray]
    bias: bool
    #: The row that each of these K functions is centred at; None if the centres are not rows.
    centres: IntArray | None

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.blocks[0])

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.bias) + int(self.blocks[0].shape[1])

    def Phi(self, kernel_weights: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the given columns (all if None) at these kernel weights, in Fortran order."""
        if columns is None and np.array_equal(kernel_weights, [1.0]):
            return self._single_kernel()
        if columns is None:
            columns = np.arange(self.n_basis)
        values = np.ones((self.n_rows, len(columns)), order="F")
        kernels = columns >= int(self.bias)
        at = columns[kernels] - int(self.bias)
        values[:, kernels] = sum(
            b * block[:, at] for b, block in zip(kernel_weights, self.blocks, strict=True) if b > 0.0
        )
        return values

    def _single_kernel(self) -> FloatArray:
        """Return all columns of a single kernel, copied at most once."""
        if not self.bias:
            return np.asfortranarray(self.blocks[0])
        values = np.ones((self.n_rows, self.n_basis), order="F")
        values[:, 1:] = self.blocks[0]
        return values

    def aligned_weights(self, targets: FloatArray, row_weights: FloatArray | None) -> FloatArray:
        r"""Return the convex weights of the kernel best aligned with the targets, to start from.

        Centred alignment (Cortes, Mohri & Rostamizadeh 2012, proposition 9): :math:`v \ge 0` minimises
        :math:`v^T M v - 2 v^T a` with :math:`M_{st} = \langle K_s, K_t \rangle` and :math:`a_s = \langle
        K_s, Y Y^T \rangle` of the kernels without their row and column means. A kernel of inputs unrelated to
        the classes starts with almost no weight, so no function is added because of it. The columns of Y Y^T
        belong to the rows that functions are centred at; centres that are not rows get estimated targets
        (`_estimated_targets`). ``targets``: (N, C); ``row_weights``: (N,) or None.
        """
        n_kernels = len(self.blocks)
        if n_kernels == 1:
            return np.ones(1)
        weigh = np.ones((self.n_rows, 1)) if row_weights is None else row_weights[:, np.newaxis]
        centred, weighted = [_centred(block, weigh) for block in self.blocks], weigh * targets
        M = np.array([[(weigh * one * other).sum() for other in centred] for one in centred])
        about = _estimated_targets(centred, weighted) if self.centres is None else targets[self.centres]
        a = np.array([((weighted.T @ block) * about.T).sum() for block in centred])
        scale = _norm_of_cone_minimum(M, a)
        if scale == 0.0:
            return np.full(n_kernels, 1.0 / n_kernels)
        # v / sum(v) minimises the form with the linear term a / sum(v) over the simplex, where ties are
        # broken.
        return minimise_on_simplex(M, a / scale)


def _estimated_targets(centred: list[FloatArray], targets: FloatArray) -> FloatArray:
    r"""Return targets for centres that are not rows, K x C, from the targets of the rows and the kernels.

    :math:`\sum_s K_s^T Y / \|K_s\|`: a step of the power method for the largest :math:`\|K^T Y\|` of a
    mixture of such kernels, starting from equal shares. A kernel unrelated to the classes sums targets with
    random weights, and adds little.
    """
    credit = np.zeros((centred[0].shape[1], targets.shape[1]))
    for block in centred:
        norm = float(np.linalg.norm(block))
        if norm > 0.0:
            credit += block.T @ targets / norm
    return credit


def _norm_of_cone_minimum(M: FloatArray, a: FloatArray) -> float:
    """Return sum(v) for the v >= 0 that minimises v^T M v - 2 v^T a."""
    values, vectors = np.linalg.eigh(M)
    kept = values > 1e-12 * values.max(initial=0.0)
    roots = np.sqrt(values[kept])
    v, _ = nnls(roots[:, np.newaxis] * vectors[:, kept].T, (vectors[:, kept].T @ a) / roots)
    return float(v.sum())


def _centred(block: FloatArray, weigh: FloatArray) -> FloatArray:
    """Return the values without their row and column means."""
    over_rows = (weigh * block).sum(axis=0) / weigh.sum()
    centred: FloatArray = block - over_rows - block.mean(axis=1, keepdims=True) + over_rows.mean()
    return centred


def learn_kernel_weights(
    composite: Composite,
    columns: IntArray,
    mu: FloatArray,
    sigma: FloatArray | None,
    targets: FloatArray,
    row_weights: FloatArray | None,
) -> FloatArray:
    r"""Return the convex kernel weights that fit the targets best: Damoulas & Girolami's quadratic step.

    They minimise :math:`\sum_c E \|y_c - \Phi(b) w_c\|^2` over the simplex, the expectation being over the
    posterior of the weights, of covariance ``sigma`` for every class (None: the weights are a point). With
    :math:`m_s = K_s E[w]` the quadratic form is :math:`\Omega_{st} = \sum_c m_{sc}^T m_{tc} + C \,
    tr(\Sigma K_s^T K_t)` and the linear term :math:`f_s = \sum_c m_{sc}^T (y_c - w_{0c})`, minus C times the
    covariance with the bias. ``columns``: the m active functions, ascending, 0 being the bias if there is
    one; ``mu``: (m, C); ``sigma``: (m, m) or None; ``targets``: (N, C); ``row_weights``: (N,) or None.
    """
    bias = columns < int(composite.bias)
    at, n_kernels, n_classes = columns[~bias] - int(composite.bias), len(composite.blocks), mu.shape[1]
    weigh = np.ones(composite.n_rows) if row_weights is None else row_weights
    residuals = targets - mu[bias].sum(axis=0)
    active = [block[:, at] for block in composite.blocks]
    means = [block @ mu[~bias] for block in active]
    Omega, f = np.empty((n_kernels, n_kernels)), np.empty(n_kernels)
    for s in range(n_kernels):
        f[s] = (weigh[:, np.newaxis] * means[s] * residuals).sum()
        weighted = None
        if sigma is not None:
            weighted = weigh[:, np.newaxis] * (active[s] @ sigma[np.ix_(~bias, ~bias)])
            f[s] -= n_classes * (weigh @ (active[s] @ sigma[np.ix_(~bias, bias)]).sum(axis=1))
        for t in range(s + 1):
            Omega[s, t] = (weigh[:, np.newaxis] * means[s] * means[t]).sum()
            if weighted is not None:
                Omega[s, t] += n_classes * (weighted * active[t]).sum()
            Omega[t, s] = Omega[s, t]
    return minimise_on_simplex(Omega, f)


#: Differences between g_i and lambda below this fraction of their terms count as zero.
_SLOPE_RTOL: Final = 1e-13
#: Curvature (that of a single variable is 1) and relative singular value that count as zero.
_CURVATURE_TOL: Final = 1e-14
_RANK_RTOL: Final = 1e-12
#: Curvature that is added to find the shortest of several minima.
_REGULARISATION: Final = 1e-7
#: Lower bound of the units of variables, relative to the largest.
_MIN_UNIT_RATIO: Final = 1e-8
_EPS: Final = float(np.finfo(np.float64).eps)


def minimise_on_simplex(Omega: ArrayLike, f: ArrayLike) -> FloatArray:
    """Return the b on the simplex that minimises b^T Omega b / 2 - f^T b.

    A primal active-set method: from equal weights, Newton steps lead to the minimum of a face of the simplex;
    a variable that reaches 0 is removed from the face; at the minimum the variable whose slope is furthest
    below lambda is added. Each face has a lower minimum than those before, so in exact arithmetic none
    repeats; if rounding repeats one the search ends, and the number of faces is finite. All minima have the
    same Omega b and f^T b. The shortest of them is returned, in units in which the diagonal of Omega is
    constant; variables with a zero diagonal count like the largest.

    That minimum is unique, so permuting the variables permutes the result, and variables with the same rows
    in Omega and f have the same weight, both up to rounding. Slopes agree to about 1e-12 of their terms, even
    if the diagonal of Omega covers twelve orders of magnitude.

    Parameters
    ----------
    Omega : array-like of shape (S, S)
        Symmetric, positive semidefinite, possibly singular.
    f : array-like of shape (S,)

    Returns
    -------
    ndarray of shape (S,)
        Not negative, sum 1.

    Raises
    ------
    ValueError
        If the shapes do not agree, or values are not finite.

    Examples
    --------
    >>> minimise_on_simplex([[2.0, 0.0], [0.0, 1.0]], [0.0, 0.0]).round(3)
    array([0.333, 0.667])
    >>> minimise_on_simplex(np.ones((3, 3)), [1.0, 1.0, 0.0])
    array([0.5, 0.5, 0. ])
    """
    quadratic, linear = _checked(Omega, f)
    problem = _Problem.of(quadratic, linear)
    found = _some_minimum(problem)
    shortest = _shortest_minimum(problem, found)
    best = shortest if problem.residual(shortest) <= max(problem.residual(found), 1e-11) else found
    return best * problem.units / (best @ problem.units)


def _checked(Omega: ArrayLike, f: ArrayLike) -> tuple[FloatArray, FloatArray]:
    quadratic, linear = np.array(Omega, dtype=np.float64), np.array(f, dtype=np.float64)
    if linear.ndim != 1 or len(linear) == 0 or quadratic.shape != 2 * linear.shape:
        raise ValueError(
            f"Omega must have the shape (S, S) and f (S,), S >= 1; got {quadratic.shape} and {linear.shape}"
        )
    if not (np.isfinite(quadratic).all() and np.isfinite(linear).all()):
        raise ValueError("Omega and f must be finite")
    size = max(np.abs(quadratic).max(), np.abs(linear).max())
    if size > 0.0:
        quadratic, linear = quadratic / size, linear / size  # does not change the minimum
    return (quadratic + quadratic.T) / 2.0, linear


@dataclass(frozen=True)
class _Problem:
    """The problem in variables c = b / units: H has a constant diagonal, and units^T c = 1."""

    H: FloatArray
    f: FloatArray
    units: FloatArray

    @classmethod
    def of(cls, Omega: FloatArray, f: FloatArray) -> _Problem:
        lengths = np.sqrt(np.maximum(np.diagonal(Omega), 0.0))
        # Kernels that vanish have no unit.
        longest = lengths.max() or 1.0
        lengths = np.where(lengths > 0.0, np.maximum(lengths / longest, _MIN_UNIT_RATIO), 1.0)
        # The corners of the simplex are at c_i = lengths_i <= 1: a step of length 2 leaves it.
        units = 1.0 / lengths
        return cls(units[:, np.newaxis] * Omega * units, units * f, units)

    def slopes(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return g - lambda units, which is 0 inside a face at its minimum, and the size of its terms."""
        g, terms = self.H @ c - self.f, np.abs(self.H) @ c + np.abs(self.f)
        size = terms + (c @ terms) * self.units
        return g - (c @ g) * self.units, np.where(size > 0.0, size, 1.0)

    def residual(self, c: FloatArray) -> float:
        """Return the violation of the conditions for a minimum, relative to the terms in them."""
        slopes, size = self.slopes(c)
        return float(np.max(np.where(c > 0.0, np.abs(slopes), -slopes) / size))


def _some_minimum(problem: _Problem) -> FloatArray:
    """Return a minimum; if there are several, the order of the variables decides which."""
    n = len(problem.f)
    c, inside = 1.0 / (n * problem.units), np.ones(n, dtype=np.bool_)
    best, least, seen = c, np.inf, set()
    while True:
        c, inside = _minimum_of_face(problem, c, inside)
        residual = problem.residual(c)
        if residual < least:
            best, least = c, residual
        slopes, size = problem.slopes(c)
        shortfall = np.where(inside, 0.0, slopes / size)
        entering = int(np.argmin(shortfall))
        if inside.tobytes() in seen or shortfall[entering] >= -_SLOPE_RTOL:
            return best
        seen.add(inside.tobytes())
        inside[entering] = True


def _minimum_of_face(
    problem: _Problem, c: FloatArray, inside: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Descend to the minimum over the variables ``inside``, or over those that stay positive."""
    inside, whole_steps = inside.copy(), 0
    while whole_steps < 2:  # the second corrects the rounding of the first
        step = _newton(problem, c, inside)
        falling = np.flatnonzero(step < 0.0)
        reach = -c[falling] / step[falling]
        if len(falling) == 0 or reach.min() > 1.0:
            c, whole_steps = c + step, whole_steps + 1
        else:
            nearest = int(np.argmin(reach))
            c = np.maximum(c + reach[nearest] * step, 0.0)
            c[falling[nearest]] = 0.0
        c[c <= _EPS**2 * c.max()] = 0.0
        inside &= c > 0.0
        c = c / (c @ problem.units)
    return c, inside


def _newton(problem: _Problem, c: FloatArray, inside: NDArray[np.bool_]) -> FloatArray:
    """Return the step to the minimum over a face; far past its boundary if the descent has no curvature."""
    step, at = np.zeros(len(c)), np.flatnonzero(inside)
    if len(at) < 2:
        return step
    # Directions that keep sum(b) constant.
    Z = np.linalg.qr(problem.units[at, np.newaxis], mode="complete")[0][:, 1:]
    curvature, V = np.linalg.eigh(Z.T @ problem.H[np.ix_(at, at)] @ Z)
    slopes, size = problem.slopes(c)
    Z = Z @ V
    downhill = -Z.T @ slopes[at]
    flat = curvature <= _CURVATURE_TOL * len(at)
    rounding = 4.0 * _EPS * len(at) * np.abs(Z.T) @ size[at]
    downhill[flat & (np.abs(downhill) <= rounding)] = 0.0
    step[at] = Z @ (downhill / np.where(flat, _EPS, curvature))
    return step


def _shortest_minimum(problem: _Problem, c: FloatArray) -> FloatArray:
    """Return the shortest of all minima, given any of them.

    If all directions get a small enough additional curvature, the active set becomes that of the shortest
    minimum; the equations of all minima are then solved for the shortest solution in the remaining variables.
    """
    n, size = len(c), max(float(np.linalg.norm(problem.f)), float(np.linalg.norm(problem.H @ c)), _EPS)
    sums = problem.units / np.linalg.norm(problem.units)
    equations = np.vstack([problem.H, problem.f / size, sums])
    singular = np.linalg.svd(equations, compute_uv=False)
    if singular[-1] > _RANK_RTOL * singular[0]:
        return c
    near = _some_minimum(replace(problem, H=problem.H + _REGULARISATION * np.eye(n)))
    at = np.flatnonzero(near)
    shortest = np.zeros(n)
    shortest[at] = np.linalg.pinv(equations[:, at], rcond=_RANK_RTOL) @ (equations @ c)
    if shortest.min() < -_REGULARISATION * shortest.max():
        shortest = near
    shortest = np.where(shortest > _CURVATURE_TOL * shortest.max(), shortest, 0.0)
    # Newton steps are orthogonal to the free directions, and correct the rounding.
    return _minimum_of_face(problem, shortest / (shortest @ problem.units), shortest > 0.0)[0]


#: Bounds of a joint ascent: of the change of each ln alpha, of the sum of the kernel weights, and of each.
_MAX_LN_ALPHA_STEP = 4.0
_MIN_TOTAL, _MAX_WEIGHT = 1e-3, 10.0

Expectations = Callable[[FloatArray], tuple[FloatArray, float]]


class JointAscent:
    """The bound as a function of whitened weights, ln alpha and kernel weights, in units of its curvature.

    ``columns``: the m functions in the model, ascending; ``row_weights``: (N,) or None; ``expectations``: the
    E-step, from scores (N, C) to targets and the log-likelihood.
    """

    def __init__(
        self,
        composite: Composite,
        columns: IntArray,
        row_weights: FloatArray | None,
        expectations: Expectations,
    ) -> None:
        self.kernels = columns >= int(composite.bias)
        at = columns[self.kernels] - int(composite.bias)
        self.active = [block[:, at] for block in composite.blocks]
        weigh = np.ones(composite.n_rows) if row_weights is None else row_weights
        self.weigh = weigh[:, np.newaxis]
        self.expectations = expectations

    def maximise(
        self, mu: FloatArray, alpha: FloatArray, kernel_weights: FloatArray, *, n_steps: int, ftol: float
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Maximise the bound; return scores, alpha and kernel weights, or None if that fails.

        It starts at ``mu``, (m, C), and ends after ``n_steps`` or when a step gains less than the fraction
        ``ftol`` of the bound.
        """
        m, n_classes = mu.shape
        Phi = self._Phi(kernel_weights)
        try:
            L = cholesky(Phi.T @ (self.weigh * Phi) + np.diag(alpha), lower=True)
        except LinAlgError:
            return None
        unit = np.sqrt(2.0 / n_classes)
        # A kernel weight is in units of the change that moves the scores by 1.
        lengths = np.array([np.sqrt((self.weigh * (K @ mu[self.kernels]) ** 2).sum()) for K in self.active])
        lengths = np.maximum(lengths, 1e-6 * lengths.max(initial=1.0))

        def unpack(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            W = solve_triangular(L, x[: m * n_classes].reshape(m, n_classes), lower=True, trans=1)
            moves = x[m * n_classes : m * (n_classes + 1)]
            return W, alpha * np.exp(unit * moves), x[m * (n_classes + 1) :] / lengths

        def descent(x: FloatArray) -> tuple[float, FloatArray]:
            bound, slopes = self._bound(*unpack(x))
            dW = solve_triangular(L, slopes[0], lower=True)
            return -bound, -np.concatenate([dW.ravel(), unit * slopes[1], slopes[2] / lengths])

        start = np.concatenate([(L.T @ mu).ravel(), np.zeros(m), kernel_weights * lengths])
        box = [(None, None)] * (m * n_classes) + [(-_MAX_LN_ALPHA_STEP / unit, _MAX_LN_ALPHA_STEP / unit)] * m
        box += [(0.0, _MAX_WEIGHT * length) for length in lengths]
        options = {"maxiter": n_steps, "maxcor": 20, "ftol": ftol, "gtol": 1e-7}
        try:
            found = minimize(descent, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        except LinAlgError:
            return None
        W, alpha, b = unpack(found.x)
        scores, total = self._Phi(b) @ W, b.sum()
        if total < _MIN_TOTAL:
            return None  # the kernels vanish; the M-step deletes their functions
        # Kernel functions are divided by the sum, so their weights are multiplied by it.
        return scores, np.where(self.kernels, alpha / total**2, alpha), b / total

    def _Phi(self, kernel_weights: FloatArray) -> FloatArray:
        """Return the functions in the model."""
        Phi = np.ones((len(self.weigh), len(self.kernels)))
        Phi[:, self.kernels] = sum(b * K for b, K in zip(kernel_weights, self.active, strict=True))
        return Phi

    def _bound(
        self, W: FloatArray, alpha: FloatArray, kernel_weights: FloatArray
    ) -> tuple[float, tuple[FloatArray, FloatArray, FloatArray]]:
        """Return the bound and its slopes in the weights, the ln alpha and the kernel weights."""
        n_classes, Phi = W.shape[1], self._Phi(kernel_weights)
        scores = Phi @ W
        targets, log_likelihood = self.expectations(np.asfortranarray(scores))
        residuals = self.weigh * (targets - scores)
        L = cholesky(Phi.T @ (self.weigh * Phi) + np.diag(alpha), lower=True)
        identity = np.eye(len(alpha))
        # SciPy 1.10 cannot solve an empty system.
        sigma = cho_solve((L, True), identity) if len(alpha) > 0 else identity
        squares = (W**2).sum(axis=1)
        occam = np.log(alpha).sum() - 2.0 * np.log(np.diagonal(L)).sum()
        bound = log_likelihood - 0.5 * float(alpha @ squares) + 0.5 * n_classes * float(occam)
        in_W = Phi.T @ residuals - alpha[:, np.newaxis] * W
        in_alpha = 0.5 * (n_classes * (1.0 - alpha * np.diagonal(sigma)) - alpha * squares)
        # The slope of ln|H| in the values of the functions is 2 weigh Phi sigma.
        in_values = residuals @ W.T - n_classes * self.weigh * (Phi @ sigma)
        in_b = np.array([(in_values[:, self.kernels] * K).sum() for K in self.active])
        return bound, (in_W, in_alpha, in_b)
