r"""Regression on kernels, with error bars that grow far from the data.

The healed relevance vector machine, RVM*, of Rasmussen and Quinonero-Candela (2005). The prior of the plain
model (Tipping 2001, appendix D) has almost no variance away from the relevance vectors. Adding a function
k(., x) at each test row x restores it. With w* ~ N(0, v) the weight of that function, phi* = k(X, x) its
values at the training rows and W the sample weights,

    c = beta Sigma Phi^T W phi*                    projection of the function on the model,
    e = k(x, x) - phi(x)^T c                       residual of the projection at x,
    s = phi*^T C^-1 phi* = beta r^T W r + c^T A c  with r = phi* - Phi c,
    q = phi*^T C^-1 t = beta phi*^T W (t - Phi mu),

the posterior of w* has precision 1 / v + s and mean q / (1 / v + s). Given w*, the mean of the other weights
shifts by -c w* and their covariance is unchanged. So mean and variance at x change by

    e q / (1 / v + s)   and   e^2 / (1 / v + s).

The hyperparameters stay as fitted. C^-1 belongs to the fitted model: test rows do not affect one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._checks.arguments import check_n_jobs
from .._checks.targets import Training
from .._data.design import evaluate
from .._types import FloatArray, IntArray
from ..kernels import Kernel
from ..kernels._resolve import is_precomputed

if TYPE_CHECKING:
    from ..regression import RVR

#: Kernel values in memory at a time, and rows at a time for computing k(x, x) from k(X, X).
_MAX_KERNEL_VALUES = 1 << 20
_DIAGONAL_ROWS = 64


@dataclass(frozen=True)
class _Fitted:
    """A fitted regression of one output at its training rows."""

    #: Training rows, N x d, their weights and targets.
    X: FloatArray
    weights: FloatArray
    target: FloatArray
    #: Active functions at these rows, N x m, and the number of the kernel of each; -1 for none.
    Phi: FloatArray
    block: IntArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    beta: float
    kernels: list[Kernel]
    n_threads: int | None

    def prior_variances(self) -> FloatArray:
        """Return the prior variance v of the weight of a new function, for each kernel.

        The mean square of a new function at its own centre equals the mean square of what its kernel
        contributes to the fitted model on the training rows. A kernel without active functions gets 0.
        """
        variances = np.zeros(len(self.kernels))
        for p, kernel in enumerate(self.kernels):
            own = self.block == p
            height = self.weights @ _diagonal(kernel, self.X) ** 2
            if height > 0.0:
                variances[p] = self.weights @ (self.Phi[:, own] @ self.mu[own]) ** 2 / height
        return variances

    def changes(self, roots: FloatArray, X: FloatArray, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what the functions centred at the rows ``X`` add to mean and variance at X, each (n,).

        ``roots``: square roots of the prior variances; ``phi``: the active functions at these rows, (n, m). A
        list of P kernels adds P functions per row. Functions are scaled by ``roots``, so that their weights
        have prior variance 1: the matrix of 1 / v + s is then 1 + s, and v = 0 needs no special case.
        """
        pairs = list(zip(roots, self.kernels, strict=True))
        functions = np.stack([root * evaluate(kernel, self.X, X, self.n_threads) for root, kernel in pairs])
        weighted = self.beta * self.weights[:, np.newaxis]
        c = self.sigma @ ((weighted * self.Phi).T @ functions)  # (P, m, n)
        new = np.stack([root * _diagonal(kernel, X) for root, kernel in pairs]) - np.sum(phi.T * c, axis=1)
        pull = (weighted[:, 0] * (self.target - self.Phi @ self.mu)) @ functions
        left = np.sqrt(weighted) * (functions - self.Phi @ c)
        seen = np.sqrt(self.alpha)[:, np.newaxis] * c
        precision = np.eye(len(pairs)) + sum(np.einsum("pin,qin->npq", part, part) for part in (left, seen))
        solved = np.linalg.solve(precision, new.T[:, :, np.newaxis])[:, :, 0].T
        return np.sum(solved * pull, axis=0), np.sum(solved * new, axis=0)


def _diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return k(x, x) of each row."""
    blocks = (X[start : start + _DIAGONAL_ROWS] for start in range(0, len(X), _DIAGONAL_ROWS))
    return np.concatenate([np.diagonal(kernel(block, block)) for block in blocks])


def healed_moments(est: RVR, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the healed function at these rows, each (n, n_outputs)."""
    check_is_fitted(est)
    training = _training_rows(est)
    means, variances = est._moments(X, variance=True)
    assert variances is not None
    values, extra = est._rows(X)
    phi, kernels, n_outputs = est._functions(values, extra), est._kernels(), means.shape[1]
    height = max(1, _MAX_KERNEL_VALUES // (len(training.X) * len(kernels)))
    sigmas = np.broadcast_to(est.sigma_, (n_outputs, *est.sigma_.shape[-2:]))
    betas = np.broadcast_to(est.beta_ / (est._y_variance or 1.0), n_outputs)
    Phi = est._functions(training.X, est._training_extra(training))
    for output, mu in enumerate(est._output_weights()):
        model = _Fitted(
            X=training.X,
            weights=np.ones(len(training.X)) if training.weights is None else training.weights,
            target=training.y.reshape(len(training.X), -1)[:, output],
            Phi=Phi,
            block=np.where(est.active_ < 0, -1, est.active_ // est._block_size),
            alpha=est.alpha_,
            mu=mu,
            sigma=sigmas[output],
            beta=float(betas[output]),
            kernels=kernels,
            n_threads=check_n_jobs(est.n_jobs),
        )
        roots = np.sqrt(model.prior_variances())
        for start in range(0, len(values), height):
            part = slice(start, start + height)
            mean, variance = model.changes(roots, values[part], phi[part])
            means[part, output] += mean
            variances[part, output] += variance
    return means, variances


def _training_rows(est: RVR) -> Training:
    if is_precomputed(est.kernel_):
        raise ValueError(
            "healed=True adds a kernel function at each row of X, which needs kernel values that "
            "kernel='precomputed' lacks; give the kernel as an object or a callable"
        )
    if est._kept is None:
        raise ValueError(
            "healed=True needs the training rows, and this model has none: fit it with keep_rows=True to "
            "rows in memory"
        )
    return est._kept
