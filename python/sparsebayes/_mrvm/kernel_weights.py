r"""Composite kernels and the convex weights of their parts.

`learn_kernel_weights` minimises a quadratic form over the simplex (Damoulas & Girolami). `JointAscent`
maximises the variational bound of mRVM1 over weights, precisions and kernel weights together, where
alternating steps would converge slowly. For the functions in the model that bound is

.. math:: B(W, \alpha, b) = \sum_n \ln P(t_n | W^T \phi_n(b)) - \tfrac{1}{2} \sum_c w_c^T A w_c
    + \tfrac{C}{2} (\ln |A| - \ln |\Phi(b)^T \Phi(b) + A|).

Its gradient in b equals that of the quadratic step at the current posterior. Scaling b, and with it the
weights and precisions of the kernel functions, does not change the bound: the joint ascent only requires
b >= 0, and normalises b at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize, nnls

from .._types import FloatArray, IntArray

#: Curvature (that of a single variable is 1) that is added to choose among several minima, and the number of
#: times that the centre of its quadratic moves to the minimum found.
_REGULARISATION: Final = 1e-7
_PROXIMAL_STEPS: Final = 2
#: Relative singular value that counts as zero.
_RANK_RTOL: Final = 1e-12
#: Lower bound of the units of variables, relative to the largest.
_MIN_UNIT_RATIO: Final = 1e-8
#: Bounds of a joint ascent: of the change of each ln alpha, of the sum of the kernel weights, and of each.
_MAX_LN_ALPHA_STEP: Final = 4.0
_MIN_TOTAL: Final = 1e-3
_MAX_WEIGHT: Final = 10.0


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
        columns = np.arange(self.n_basis) if columns is None else columns
        kernels = columns >= int(self.bias)
        at = columns[kernels] - int(self.bias)
        every = len(at) == self.blocks[0].shape[1]
        if every and not self.bias and np.array_equal(kernel_weights, [1.0]):
            return np.asfortranarray(self.blocks[0])
        values = np.ones((self.n_rows, len(columns)), order="F")
        used = [(b, block) for b, block in zip(kernel_weights, self.blocks, strict=True) if b > 0.0]
        parts = [(b, block if every else block[:, at]) for b, block in used]
        # A kernel of weight 1 is copied at most once.
        values[:, kernels] = reduce(np.add, (part if b == 1.0 else b * part for b, part in parts))
        return values

    def aligned_weights(self, targets: FloatArray, row_weights: FloatArray | None) -> FloatArray:
        r"""Return the convex weights of the kernel best aligned with the targets, to start from.

        Centred alignment (Cortes, Mohri & Rostamizadeh 2012, proposition 9): :math:`v \ge 0` minimises
        :math:`v^T M v - 2 v^T a` with :math:`M_{st} = \langle K_s, K_t \rangle` and :math:`a_s = \langle
        K_s, Y Y^T \rangle` of the kernels without their row and column means. A kernel of inputs unrelated to
        the classes starts with almost no weight, so no function is added because of it. The columns of Y Y^T
        belong to the rows that functions are centred at. Centres that are not rows get the targets
        :math:`\sum_s K_s^T Y / \|K_s\|`: a step of the power method for the largest :math:`\|K^T Y\|` of a
        mixture of such kernels, starting from equal shares. ``targets``: (N, C); ``row_weights``: (N,), None.
        """
        n_kernels = len(self.blocks)
        if n_kernels == 1:
            return np.ones(1)
        weigh = np.ones((self.n_rows, 1)) if row_weights is None else row_weights[:, np.newaxis]
        centred = [_centred(block, weigh) for block in self.blocks]
        M = np.array([[(weigh * one * other).sum() for other in centred] for one in centred])
        products = [block.T @ (weigh * targets) for block in centred]
        if self.centres is None:
            sizes = [float(np.linalg.norm(block)) or 1.0 for block in centred]
            about = sum(product / size for product, size in zip(products, sizes, strict=True))
        else:
            about = targets[self.centres]
        a = np.array([(product * about).sum() for product in products])
        units = _units(M)
        L = _regular_factor(units[:, np.newaxis] * M * units)
        v = units * nnls(L.T, solve_triangular(L, units * a, lower=True))[0]
        return v / v.sum() if v.any() else np.full(n_kernels, 1.0 / n_kernels)


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
    bias, n_classes = columns < int(composite.bias), mu.shape[1]
    root = np.ones((composite.n_rows, 1)) if row_weights is None else np.sqrt(row_weights)[:, np.newaxis]
    at = columns[~bias] - int(composite.bias)
    active = np.stack([root * block[:, at] for block in composite.blocks])  # S x N x m
    means = active @ mu[~bias]
    Omega = np.tensordot(means, means, ((1, 2), (1, 2)))
    f = np.tensordot(means, root * (targets - mu[bias].sum(axis=0)), 2)
    if sigma is not None:
        inner, cross = sigma[np.ix_(~bias, ~bias)], sigma[np.ix_(~bias, bias)].sum(axis=1)
        Omega += n_classes * np.tensordot(active @ inner, active, ((1, 2), (1, 2)))
        f -= n_classes * (active @ cross) @ root[:, 0]
    return minimise_on_simplex((Omega + Omega.T) / 2.0, f)


def minimise_on_simplex(Omega: ArrayLike, f: ArrayLike) -> FloatArray:
    r"""Return the b >= 0 with sum 1 that minimises b^T Omega b / 2 - f^T b.

    ``Omega``: symmetric, positive semidefinite, possibly singular. In units in which its diagonal is
    constant, b = units c, a small multiple of the unit matrix is added about the last minimum found (the
    first time about 0), so that :math:`\Omega = L L^T` and the minimum is unique: equal kernels get equal
    weights. With :math:`y = L^{-1} f` it is the shortest vector :math:`L^T c - y` on the simplex, and as
    :math:`units^T c = 1` the shortest :math:`(L^T - y\, units^T) c`. Non-negative least squares finds it up
    to a factor: v = t c that minimises :math:`\|(L^T - y\, units^T) v\|^2 + s^2 (1 - units^T v)^2` for any
    s. Last, the shortest solution of the equations of the minimum in the variables that are not 0 removes
    what the addition and rounding changed.
    """
    Omega, f = np.asarray(Omega, dtype=np.float64), np.asarray(f, dtype=np.float64)
    size = max(np.abs(Omega).max(), np.abs(f).max()) or 1.0  # a common factor does not change the minimum
    units = _units(Omega / size)
    H, linear, n = units[:, np.newaxis] * (Omega / size) * units, units * (f / size), len(f)
    L, c = _regular_factor(H), np.zeros(n)
    for _ in range(_PROXIMAL_STEPS):
        y = solve_triangular(L, linear + _REGULARISATION * H.max() * c, lower=True)
        s = np.linalg.norm(L) + np.linalg.norm(y)
        design = np.vstack([L.T - np.outer(y, units), s * units])
        v, _ = nnls(design, np.append(np.zeros(n), s), maxiter=100 * n)
        c = v / (units @ v)
    at, total = np.flatnonzero(c > _RANK_RTOL * c.max()), np.linalg.norm(units)
    bordered = np.block([[H[np.ix_(at, at)], units[at, np.newaxis] / total], [units[at] / total, 0.0]])
    x = np.zeros(len(at) + 1)
    for _ in range(2):  # the second corrects the rounding of the first
        x += np.linalg.lstsq(bordered, np.append(linear[at], 1.0 / total) - bordered @ x, rcond=_RANK_RTOL)[0]
    smallest = _RANK_RTOL * x[:-1].max()
    if x[:-1].min() > -smallest:
        c = np.zeros(n)
        c[at] = np.where(x[:-1] > smallest, x[:-1], 0.0)
    b: FloatArray = units * c / (units @ c)
    return b


def _units(M: FloatArray) -> FloatArray:
    """Return factors of the variables that make the diagonal of a form constant, but for small values."""
    lengths = np.sqrt(np.maximum(np.diagonal(M), 0.0))
    lengths /= lengths.max() or 1.0
    # Kernels that vanish count like the largest.
    return 1.0 / np.where(lengths > 0.0, np.maximum(lengths, _MIN_UNIT_RATIO), 1.0)


def _regular_factor(H: FloatArray) -> FloatArray:
    """Return the Cholesky factor of a form of constant diagonal with the additional curvature."""
    rounding = 1e-14 * np.abs(H).sum(axis=0).max()
    curvature = _REGULARISATION * (H.max() or 1.0) + rounding
    return np.asarray(cholesky(H + curvature * np.eye(len(H)), lower=True))


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
