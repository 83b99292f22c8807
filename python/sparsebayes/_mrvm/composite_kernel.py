"""Several kernels as one, with convex weights that are learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from .._types import FloatArray, IntArray
from .simplex import minimise_on_simplex


@dataclass(frozen=True)
class Composite:
    """The dictionary Phi(b): a constant column if there is a bias, then sum_s b_s K_s."""

    #: Values of each kernel, N x K.
    blocks: list[FloatArray]
    bias: bool
    #: The row that each of these K functions is about; None where they are about other points.
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
        """Return the columns asked for (all if None) with these weights of the kernels, in Fortran order."""
        if columns is None and np.array_equal(kernel_weights, [1.0]):
            return self._as_it_is()
        if columns is None:
            columns = np.arange(self.n_basis)
        values = np.ones((self.n_rows, len(columns)), order="F")
        kernels = columns >= int(self.bias)
        at = columns[kernels] - int(self.bias)
        values[:, kernels] = sum(
            b * block[:, at] for b, block in zip(kernel_weights, self.blocks, strict=True) if b > 0.0
        )
        return values

    def _as_it_is(self) -> FloatArray:
        """Return all columns of a single kernel, copied once at most."""
        if not self.bias:
            return np.asfortranarray(self.blocks[0])
        values = np.ones((self.n_rows, self.n_basis), order="F")
        values[:, 1:] = self.blocks[0]
        return values

    def aligned_weights(self, targets: FloatArray, row_weights: FloatArray | None) -> FloatArray:
        r"""Return the convex weights whose kernel is most like that of the targets: where learning begins.

        Centred alignment (Cortes, Mohri & Rostamizadeh 2012, proposition 9): :math:`v \ge 0` minimises
        :math:`v^T M v - 2 v^T a` with :math:`M_{st} = \langle K_s, K_t \rangle` and :math:`a_s = \langle
        K_s, Y Y^T \rangle` of the kernels without their row and column means. A kernel of inputs that say
        nothing about the classes begins with next to nothing, and no function is chosen for what that
        kernel makes of it. Columns of Y Y^T are those of the rows that functions are about; points that are
        no rows are credited with targets.

        Parameters
        ----------
        targets : ndarray of shape (N, C)
        row_weights : ndarray of shape (N,) or None
        """
        n_kernels = len(self.blocks)
        if n_kernels == 1:
            return np.ones(1)
        weigh = np.ones((self.n_rows, 1)) if row_weights is None else row_weights[:, np.newaxis]
        centred = [_centred(block, weigh) for block in self.blocks]
        M = np.array([[(weigh * one * other).sum() for other in centred] for one in centred])
        about = _credited(centred, weigh * targets) if self.centres is None else targets[self.centres]
        ideal = about.T
        a = np.array([(((weigh * targets).T @ block) * ideal).sum() for block in centred])
        scale = _norm_of_cone_minimum(M, a)
        if scale == 0.0:
            return np.full(n_kernels, 1.0 / n_kernels)
        # v / sum(v) minimises the form with the slope a / sum(v) over the simplex, where ties are broken
        # for us.
        return minimise_on_simplex(M, a / scale)


def _credited(centred: list[FloatArray], targets: FloatArray) -> FloatArray:
    r"""Return targets for points that have none, K x C: those of the rows, as the kernels link the two.

    :math:`\sum_s K_s^T Y / \|K_s\|`: a step of the power method for the largest :math:`\|K^T Y\|` of a
    mixture of such kernels, from all of them alike. A kernel that says nothing about the classes sums targets
    with weights at random, and adds little.
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
