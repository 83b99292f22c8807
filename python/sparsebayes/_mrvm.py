r"""mRVM1 and mRVM2 of Psorakis et al. (2010) as algorithms on arrays.

mRVM1 starts from an empty model and adds functions, mRVM2 starts from all functions and prunes them. Both are
coordinate ascent with auxiliary targets Y, one for each row and class. The E-step computes their expectations
given the class and the scores (equations 3 and 4); the M-step fits the weights to them.

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

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize, nnls

from . import _core
from ._data.design import CoreCallback
from ._types import FloatArray, IntArray

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
        at: Any = slice(None)
        if columns is None:
            columns = np.arange(self.n_basis)
        else:
            at = columns[columns >= int(self.bias)] - int(self.bias)
        kernels = columns >= int(self.bias)
        values = np.ones((self.n_rows, len(columns)), order="F")
        weighted = zip(kernel_weights, self.blocks, strict=True)
        values[:, kernels] = reduce(np.add, (b * block[:, at] for b, block in weighted if b > 0.0))
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
    # The shortest solution, or if it has negative numbers the one nearest to c.
    for x in (np.zeros(len(at) + 1), np.append(c[at], 0.0)):
        for _ in range(2):  # the second corrects the rounding of the first
            rest = np.append(linear[at], 1.0 / total) - bordered @ x
            x += np.linalg.lstsq(bordered, rest, rcond=_RANK_RTOL)[0]
        smallest = _RANK_RTOL * x[:-1].max()
        if x[:-1].min() > -smallest:
            c = np.zeros(n)
            c[at] = np.where(x[:-1] > smallest, x[:-1], 0.0)
            break
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


# --- the two algorithms -------------------------------------------------------------------------------

#: Distance between the first targets of the true class and of the others, in units of the noise; for two
#: classes two on either side. They sum to zero over the classes: the likelihood does not depend on a common
#: shift, so E- and M-steps remove an initial one only slowly.
_TARGET_SEPARATION = 4.0

#: A function is pruned once the precisions of all its weights exceed this: section IV.
_PRUNE_ALPHA = 1e5

#: Until the active set stays the same, an M-step ends at gains below this, in nats for each class (a function
#: has a weight for each), and at changes of ln alpha below this; then at the fine gain.
_COARSE_GAIN, _COARSE_TOL = 1.0 / 3.0, 0.1
_FINE_GAIN = 1e-7

#: A joint ascent ends when a step gains less than this, in nats: after an M-step that changed the active set;
#: after one that moved a ln alpha by more than `_NEAR_LN_ALPHA`. M-steps delete functions that would make an
#: ascent long.
_CHANGED_SET_GAIN, _COARSE_ASCENT_GAIN, _NEAR_LN_ALPHA = 20.0, 1.0, 0.3
#: Otherwise it converges: it ends when a step gains less than this fraction of the bound.
_ASCENT_RTOL = 1e-13
#: Initial trust-region radii of converging and of coarse ascents.
_FINE_RADIUS, _COARSE_RADIUS = 30.0, 3.0
#: Largest number of steps of a joint ascent with several kernels: of the first, and of one that follows
#: another.
_FIRST_ASCENT_STEPS, _NEXT_ASCENT_STEPS = 50, 1000

#: Kernel weights have converged when they change by less; the remaining error moves no ln alpha by 1e-5.
_KERNEL_WEIGHT_TOL = 5e-6


@dataclass(frozen=True)
class Task:
    """The input of both algorithms."""

    composite: Composite
    #: Class numbers, length N.
    labels: IntArray
    n_classes: int
    row_weights: FloatArray | None
    n_quadrature: int | None
    n_threads: int | None
    tol: float
    #: Number of iterations of the rules that count them, and the largest allowed.
    min_iter: int
    max_iter: int
    callback: CoreCallback | None

    def first_targets(self) -> FloatArray:
        """Return the initial targets, given by the labels."""
        targets = np.full((len(self.labels), self.n_classes), -_TARGET_SEPARATION / self.n_classes, order="F")
        targets[np.arange(len(self.labels)), self.labels] += _TARGET_SEPARATION
        return targets

    def expectations(self, scores: FloatArray) -> tuple[FloatArray, float]:
        """Return the targets of the E-step, and the log-likelihood of the labels."""
        targets, log_p = _core.probit_expectations(
            scores, self.labels, n_nodes=self.n_quadrature, n_threads=self.n_threads
        )
        return targets, float(log_p.sum() if self.row_weights is None else self.row_weights @ log_p)


@dataclass
class Outcome:
    """The fitted model. Functions are columns of the composite dictionary."""

    columns: IntArray
    #: (m,) for mRVM1, (m, C) for mRVM2.
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray | None
    kernel_weights: FloatArray
    status: str = "max_iter"
    #: The objective, and the number of functions, at the start and after each iteration.
    path: list[float] = field(default_factory=list)
    n_active: list[int] = field(default_factory=list)
    #: The variational bound after each E-step of mRVM1.
    bounds: list[float] = field(default_factory=list)


class _Scheme(ABC):
    """State of both algorithms: targets, a model, and the step on the kernel weights."""

    def __init__(self, task: Task, columns: IntArray, alpha: FloatArray, sigma: FloatArray | None) -> None:
        self.task, self.targets = task, task.first_targets()
        weights = task.composite.aligned_weights(self.targets, task.row_weights)
        mu = np.zeros((len(columns), task.n_classes))
        self.out = Outcome(columns, alpha, mu, sigma, weights)
        self.restart()

    @abstractmethod
    def restart(self) -> None:
        """Rebuild the core fit for the current functions and kernel weights."""

    def _learn_kernel_weights(self) -> float:
        """Update the kernel weights, if there are several; return the largest change."""
        composite, out = self.task.composite, self.out
        if len(composite.blocks) == 1 or len(out.columns) == 0:
            return 0.0
        learned = learn_kernel_weights(
            composite, out.columns, out.mu, out.sigma, self.targets, self.task.row_weights
        )
        change = float(np.abs(learned - out.kernel_weights).max())
        if change > 0.0:
            out.kernel_weights = learned
            self.restart()
        return change


class Constructive(_Scheme):
    """mRVM1: Algorithm 1. M-steps by the sequential scheme with C targets and shared alphas.

    An M-step maximises the evidence of the targets, equation (6), over functions and alphas until no change
    has a gain, instead of making one update: this raises the same bound, and E-steps are the expensive part.
    A joint ascent maximises the bound over weights and alphas together, for which alternating steps would
    need thousands. With one kernel it follows each M-step after which the fit has not converged. With several
    kernels it includes their weights, and follows only such M-steps that leave the active set unchanged.
    ``at_once``: no minimum number of iterations.
    """

    def __init__(self, task: Task, *, at_once: bool) -> None:
        super().__init__(task, np.empty(0, dtype=np.intp), np.empty(0), np.empty((0, 0)))
        self.min_iter = 0 if at_once else task.min_iter
        #: Whether M-steps use the fine tolerances: an M-step has left the active set unchanged.
        self.fine = False
        #: Whether a joint ascent preceded the last M-step.
        self.ascended = False

    def restart(self) -> None:
        Phi, out = self.task.composite.Phi(self.out.kernel_weights), self.out
        # A function vanishes if no kernel with a weight has values there, as a linear kernel alone at x = 0.
        if len(kept := np.flatnonzero(Phi[:, out.columns].any(axis=0))) < len(out.columns):
            out.columns, out.alpha, out.mu = out.columns[kept], out.alpha[kept], out.mu[kept]
            out.sigma = None if out.sigma is None else out.sigma[np.ix_(kept, kept)]
        self.fit = _core.RetargetedFit(
            Phi,
            self.targets,
            self.task.row_weights,
            active=out.columns.astype(np.int64),
            alpha=out.alpha,
            n_threads=self.task.n_threads,
        )

    def run(self) -> Outcome:
        """Run to convergence, and at least for the minimum number of iterations."""
        while True:
            change, n_updates = self._maximise()
            self.targets, log_likelihood = self.task.expectations(self.fit.predictions())
            self.out.bounds.append(log_likelihood + self.fit.log_occam_factor())
            if self.out.status not in ("converged", "alpha_floor"):
                return self.out
            kernels_stayed = self._learn_kernel_weights() < _KERNEL_WEIGHT_TOL
            converged = kernels_stayed and change < self.task.tol and self.fine
            if converged and (len(self.out.path) > self.min_iter or n_updates == 0):
                return self.out
            # With several kernels a joint ascent takes too long while the active set still changes.
            ascends = not converged and (np.isfinite(change) or len(self.task.composite.blocks) == 1)
            if ascends:
                self._ascend_jointly(change)
                self.fine |= bool(np.isfinite(change))
            self.ascended = ascends

    def _maximise(self) -> tuple[float, int]:
        """Make an M-step; return the largest change of a ln alpha (inf if functions did) and the updates."""
        out, n_iter = self.out, max(len(self.out.path) - 1, 0)
        before, callback = self.fit.posterior(), self.task.callback

        def counted(iteration: int, *step: Any) -> bool:
            return callback is not None and callback(n_iter + iteration, *step)

        out.status, trace, n_active = self.fit.maximise(
            self.targets,
            gain=_FINE_GAIN if self.fine else _COARSE_GAIN * self.task.n_classes,
            tol=0.1 * self.task.tol if self.fine else _COARSE_TOL,
            max_iter=max(self.task.max_iter - n_iter, 1),
            callback=counted if callback is not None else None,
        )
        first = int(len(out.path) > 0)
        out.path.extend(trace[first:].tolist())
        out.n_active.extend(n_active[first:].tolist())
        after = self.fit.posterior()
        out.columns, out.alpha, out.mu = after.active.astype(np.intp), after.alpha, after.mu
        (out.sigma,) = after.sigma
        if len(out.columns) == 0:
            # The targets have changed since the step that emptied the model.
            out.path[-1] = float(trace[-1])
        if not np.array_equal(before.active, after.active):
            return np.inf, len(trace) - 1
        return float(np.abs(np.log(after.alpha / before.alpha)).max(initial=0.0)), len(trace) - 1

    def _ascend_jointly(self, change: float) -> None:
        """Maximise the bound over weights, alphas and kernel weights together; sets targets and alphas.

        ``change``: the result of the M-step.
        """
        task, out = self.task, self.out
        if len(out.alpha) == 0:
            return
        if len(task.composite.blocks) > 1:
            ascent = JointAscent(task.composite, out.columns, task.row_weights, task.expectations)
            n_steps = _NEXT_ASCENT_STEPS if self.ascended else _FIRST_ASCENT_STEPS
            top = ascent.maximise(out.mu, out.alpha, out.kernel_weights, n_steps=n_steps, ftol=_ASCENT_RTOL)
            if top is not None:
                scores, out.alpha, out.kernel_weights = top
                self.targets, _ = task.expectations(np.asfortranarray(scores))
                self.restart()
            return
        if change < _NEAR_LN_ALPHA:
            gain, radius = _ASCENT_RTOL * (1.0 + abs(out.bounds[-1])), _FINE_RADIUS
        else:
            gain, radius = _COARSE_ASCENT_GAIN if np.isfinite(change) else _CHANGED_SET_GAIN, _COARSE_RADIUS
        try:
            self.targets = self.fit.maximise_bound(
                task.labels, gain=gain, radius=radius, n_nodes=task.n_quadrature
            )
        except _core.NumericalError:
            return  # rounding prevents long joint steps; E- and M-steps continue


class TopDown(_Scheme):
    r"""mRVM2: Algorithm 2. A precision for each weight, by EM from all functions.

    EM integrates out auxiliary targets and precisions, so each iteration raises the log of the joint density
    of labels and weights, :math:`\sum_n \ln P(t_n | w) - (\tau + 1/2) \sum_{ic} \ln(\upsilon +
    w_{ic}^2 / 2)` and a constant. Pruned functions count with weights of zero, so pruning may lower it.
    """

    def __init__(self, task: Task, *, tau: float, upsilon: float, prune: bool, until_converged: bool) -> None:
        n_basis = task.composite.n_basis
        super().__init__(task, np.arange(n_basis), np.ones((n_basis, task.n_classes), order="F"), None)
        self.tau, self.upsilon, self.prune = tau, upsilon, prune
        self.until_converged = until_converged

    def restart(self) -> None:
        Phi = self.task.composite.Phi(self.out.kernel_weights, self.out.columns)
        self.fit = _core.TopDownFit(Phi, self.task.row_weights, n_threads=self.task.n_threads)

    def run(self) -> Outcome:
        """Run until the rule for convergence is met."""
        while len(self.out.path) <= self.task.max_iter:
            change = self._iterate()
            out, n_iter = self.out, len(self.out.path) - 1
            if n_iter > 0 and self.task.callback is not None:
                gain, n_active = out.path[-1] - out.path[-2], len(out.columns)
                if self.task.callback(n_iter, "joint", -1, gain, out.path[-1], n_active, 1.0):
                    out.status = "stopped"
                    break
            if change < self.task.tol if self.until_converged else n_iter >= self.task.min_iter:
                out.status = "converged"
                break
            kept = np.flatnonzero((out.alpha <= _PRUNE_ALPHA).any(axis=1))
            if self.prune and len(kept) < len(out.columns):
                out.columns, out.mu = out.columns[kept], out.mu[kept]
                out.alpha = np.asfortranarray(out.alpha[kept])
                self.fit.keep(kept)
            self._learn_kernel_weights()
        return self.out

    def _iterate(self) -> float:
        """Update weights, targets and precisions; return the largest change of a ln alpha."""
        out = self.out
        try:
            out.mu, scores = self.fit.solve(self.targets, out.alpha)
        except _core.NumericalError as error:
            largest = max(float(np.abs(block).max()) for block in self.task.composite.blocks)
            raise _core.NumericalError(
                f"the weights of MRVM2 cannot be computed: {error}. Precisions are in the units of the "
                f"kernel's values, which should be of order 1 and reach {largest:.1e}; scale X, change the "
                "kernel, or use MRVM1, which does not depend on units"
            ) from error
        self.targets, log_likelihood = self.task.expectations(scores)
        shape, n_gone = self.tau + 0.5, self.task.composite.n_basis - len(out.columns)
        penalty = np.log(self.upsilon + 0.5 * out.mu**2).sum()
        penalty += n_gone * self.task.n_classes * np.log(self.upsilon)
        out.path.append(log_likelihood - shape * float(penalty))
        out.n_active.append(len(out.columns))
        updated = np.asfortranarray((2.0 * self.tau + 1.0) / (out.mu**2 + 2.0 * self.upsilon))
        change = float(np.abs(np.log(updated / out.alpha)).max(initial=0.0))
        out.alpha = updated
        return change
