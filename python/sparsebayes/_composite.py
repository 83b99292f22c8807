"""Several kernels as one, with convex weights that are learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._simplex import minimise_on_simplex
from ._types import FloatArray, IntArray


@dataclass(frozen=True)
class Composite:
    """The dictionary Phi(b): a constant column if there is a bias, then sum_s b_s K_s."""

    #: Values of each kernel, N x K.
    blocks: list[FloatArray]
    bias: bool

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.blocks[0])

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.bias) + int(self.blocks[0].shape[1])

    def uniform(self) -> FloatArray:
        """Return equal weights."""
        return np.full(len(self.blocks), 1.0 / len(self.blocks))

    def Phi(self, kernel_weights: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the columns asked for (all if None) with these weights of the kernels, in Fortran order."""
        if columns is None:
            columns = np.arange(self.n_basis)
        values = np.ones((self.n_rows, len(columns)), order="F")
        kernels = columns >= int(self.bias)
        at = columns[kernels] - int(self.bias)
        values[:, kernels] = sum(
            b * block[:, at] for b, block in zip(kernel_weights, self.blocks, strict=True) if b > 0.0
        )
        return values


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
    :math:`m_s = K_s E[w]` that is the form :math:`\Omega_{st} = \sum_c m_{sc}^T m_{tc} + C \,
    tr(\Sigma K_s^T K_t)` and the slope :math:`f_s = \sum_c m_{sc}^T (y_c - w_{0c})`, less C times the
    covariance with the bias.

    Parameters
    ----------
    composite : Composite
    columns : ndarray of shape (m,), int
        Active functions, ascending; 0 is the bias if there is one.
    mu : ndarray of shape (m, C)
    sigma : ndarray of shape (m, m) or None
    targets : ndarray of shape (N, C)
    row_weights : ndarray of shape (N,) or None

    Returns
    -------
    ndarray of shape (S,)
        None negative, sum 1.
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
        spread = None
        if sigma is not None:
            spread = weigh[:, np.newaxis] * (active[s] @ sigma[np.ix_(~bias, ~bias)])
            f[s] -= n_classes * (weigh @ (active[s] @ sigma[np.ix_(~bias, bias)]).sum(axis=1))
        for t in range(s + 1):
            Omega[s, t] = (weigh[:, np.newaxis] * means[s] * means[t]).sum()
            if spread is not None:
                Omega[s, t] += n_classes * (spread * active[t]).sum()
            Omega[t, s] = Omega[s, t]
    return minimise_on_simplex(Omega, f)
