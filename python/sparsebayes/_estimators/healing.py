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

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._arrays import Training, check_X
from .._checks import check_n_jobs
from .._data.basis import output_weights
from .._data.design import evaluate
from .._types import FloatArray
from ..kernels import Kernel
from ..kernels._resolve import is_precomputed
from .growth import diagonal
from .posterior import moments

if TYPE_CHECKING:
    from ..regression import RVR

#: Kernel values in memory at a time.
_MAX_KERNEL_VALUES = 1 << 20


def healed_moments(est: RVR, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the healed function at these rows, each (n, n_outputs)."""
    check_is_fitted(est)
    training = _training_rows(est)
    means, variances = moments(est, X, variance=True, grows=False)
    assert variances is not None
    values, n_threads = check_X(est, X, reset=False), check_n_jobs(est.n_jobs)
    kernels, rows, n_outputs = est._kernels(), training.X, means.shape[1]
    phi, Phi = (est._basis.functions(est.active_, each, n_threads) for each in (values, rows))
    #: The kernel of each active function; -1 for none.
    block = np.where(est.active_ < 0, -1, est.active_ // est._basis.size)
    weights = np.ones(len(rows)) if training.weights is None else training.weights
    targets = training.y.reshape(len(rows), -1)
    sigmas = np.broadcast_to(est.sigma_, (n_outputs, *est.sigma_.shape[-2:]))
    betas = np.broadcast_to(est.beta_ / (est._y_variance or 1.0), n_outputs)
    height = max(1, _MAX_KERNEL_VALUES // (len(rows) * len(kernels)))
    for output, mu in enumerate(output_weights(est)):
        sigma, weighted = sigmas[output], betas[output] * weights[:, np.newaxis]
        contributions = [Phi[:, block == p] @ mu[block == p] for p in range(len(kernels))]
        roots = np.sqrt(_prior_variances(kernels, rows, weights, contributions))
        residual = targets[:, output] - Phi @ mu
        for start in range(0, len(values), height):
            part = slice(start, start + height)
            # The functions centred at these rows, P for each with a list of P kernels. They are scaled by
            # `roots`, so that their weights have prior variance 1: the matrix of 1 / v + s is then 1 + s, and
            # v = 0 needs no special case.
            pairs = list(zip(roots, kernels, strict=True))
            functions = np.stack([r * evaluate(kernel, rows, values[part], n_threads) for r, kernel in pairs])
            c = sigma @ ((weighted * Phi).T @ functions)  # (P, m, n)
            new = np.stack([r * diagonal(kernel, values[part]) for r, kernel in pairs])
            new = new - np.sum(phi[part].T * c, axis=1)
            pull = (weighted[:, 0] * residual) @ functions
            left = np.sqrt(weighted) * (functions - Phi @ c)
            seen = np.sqrt(est.alpha_)[:, np.newaxis] * c
            s = sum(np.einsum("pin,qin->npq", each, each) for each in (left, seen))
            solved = np.linalg.solve(np.eye(len(pairs)) + s, new.T[:, :, np.newaxis])[:, :, 0].T
            means[part, output] += np.sum(solved * pull, axis=0)
            variances[part, output] += np.sum(solved * new, axis=0)
    return means, variances


def _prior_variances(
    kernels: list[Kernel], X: FloatArray, weights: FloatArray, contributions: list[FloatArray]
) -> FloatArray:
    """Return the prior variance v of the weight of a new function, for each kernel.

    The mean square of a new function at its own centre equals the mean square of what its kernel contributes
    to the fitted model on the training rows. A kernel without active functions gets 0.
    """
    variances = np.zeros(len(kernels))
    for p, (kernel, contribution) in enumerate(zip(kernels, contributions, strict=True)):
        height = weights @ diagonal(kernel, X) ** 2
        if height > 0.0:
            variances[p] = weights @ contribution**2 / height
    return variances


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
