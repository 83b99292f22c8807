r"""Weights, precisions and kernel weights of mRVM1 together, where steps in turn would creep.

For the functions in the model the variational bound that E-, M- and kernel-weight steps raise in turn is

.. math:: B(W, \alpha, b) = \sum_n \ln P(t_n | W^T \phi_n(b)) - \tfrac{1}{2} \sum_c w_c^T A w_c
    + \tfrac{C}{2} (\ln |A| - \ln |\Phi(b)^T \Phi(b) + A|),

whose slope in b is that of the quadratic step at the posterior as it is. Scaling b, and with it the weights
and precisions of the kernel functions, changes nothing: b need only be non-negative here, and is brought back
to the simplex at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from .._types import FloatArray, IntArray
from .composite_kernel import Composite

#: No ln alpha is moved further than this, no kernel weight beyond the largest, nor all below the smallest.
_BOX = 4.0
_SMALLEST, _LARGEST = 1e-3, 10.0

Expectations = Callable[[FloatArray], tuple[FloatArray, float]]


class CompositeClimb:
    """The bound as a function of whitened weights, ln alpha and kernel weights, in units of its curvature.

    Parameters
    ----------
    composite : Composite
    columns : ndarray of shape (m,), int
        Functions in the model, ascending.
    row_weights : ndarray of shape (N,) or None
    expectations : callable
        The E-step: from scores (N, C) to targets and the log-likelihood.
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

    def top(
        self, mu: FloatArray, alpha: FloatArray, kernel_weights: FloatArray, *, n_steps: int, ftol: float
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Climb from where these are; return scores, alpha and kernel weights, None where there is no top.

        Parameters
        ----------
        mu : ndarray of shape (m, C)
        alpha : ndarray of shape (m,)
        kernel_weights : ndarray of shape (S,)
        n_steps : int
            Steps at most.
        ftol : float
            Ends where a step gains less than this part of the bound.
        """
        m, n_classes = mu.shape
        Phi = self._Phi(kernel_weights)
        try:
            L = cholesky(Phi.T @ (self.weigh * Phi) + np.diag(alpha), lower=True)
        except LinAlgError:
            return None
        unit = np.sqrt(2.0 / n_classes)
        # A kernel weight is in units of what it takes to move the scores by 1.
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
        box = [(None, None)] * (m * n_classes) + [(-_BOX / unit, _BOX / unit)] * m
        box += [(0.0, _LARGEST * length) for length in lengths]
        options = {"maxiter": n_steps, "maxcor": 20, "ftol": ftol, "gtol": 1e-7}
        try:
            found = minimize(descent, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        except LinAlgError:
            return None
        W, alpha, b = unpack(found.x)
        scores, total = self._Phi(b) @ W, b.sum()
        if total < _SMALLEST:
            return None  # on their way out, which is for the M-step
        # Functions of kernels are divided by the sum, so their weights are times it.
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
        # SciPy 1.10 cannot solve a system without unknowns.
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
