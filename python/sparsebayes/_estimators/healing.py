r"""Error bars that do not shrink far from the data: one more function at each test row.

The healed relevance vector machine, RVM*, of Rasmussen and Quinonero-Candela (2005). The prior of the plain
one (Tipping 2001, appendix D) has next to no variance away from the relevance vectors; giving each test row
x a function k(., x) of its own brings it back. With w* ~ N(0, v) the weight of that function,
phi* = k(X, x) its values at the training rows and W the sample weights,

    c = beta Sigma Phi^T W phi*                    the function as the model sees it,
    e = k(x, x) - phi(x)^T c                       what of it is new at x,
    s = phi*^T C^-1 phi* = beta r^T W r + c^T A c  with r = phi* - Phi c,
    q = phi*^T C^-1 t = beta phi*^T W (t - Phi mu),

the posterior of w* has precision 1 / v + s and mean q / (1 / v + s), and given w* the other weights have
their mean shifted by -c w* and the covariance they had. So mean and variance at x change by

    e q / (1 / v + s)   and   e^2 / (1 / v + s).

Hyperparameters stay as fitted. This is C^-1 of the fitted model: test rows know nothing of one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._data.design import evaluate
from .._types import FloatArray, IntArray
from ..kernels import Kernel

#: Kernel values held at a time, and rows at a time where only k(x, x) is wanted of k(X, X).
_VALUES = 1 << 20
_DIAGONAL = 64


@dataclass(frozen=True)
class Fitted:
    """A fitted regression at its training rows."""

    #: Training rows, N x d, and their weights.
    X: FloatArray
    weights: FloatArray
    #: Active functions there, N x m, with the kernel that each is of; -1 for none.
    Phi: FloatArray
    block: IntArray
    target: FloatArray
    alpha: FloatArray
    mu: FloatArray
    sigma: FloatArray
    beta: float
    kernels: Sequence[Kernel]

    def prior_variances(self) -> FloatArray:
        """Return the prior variance v of the weight of a new function, for each kernel.

        Such that on the training rows each function has, at its own centre, the mean square of what its
        kernel contributes to the fitted model: a kernel that explains deviations of size 1 is expected to
        have deviations of that size elsewhere too, and one that is not in the model none.
        """
        total = self.weights.sum()
        variances = np.zeros(len(self.kernels))
        for p, kernel in enumerate(self.kernels):
            own = self.block == p
            contribution = self.Phi[:, own] @ self.mu[own]
            height = self.weights @ _diagonal(kernel, self.X) ** 2 / total
            if height > 0.0:
                variances[p] = self.weights @ contribution**2 / total / height
        return variances


def changes(
    model: Fitted, X: FloatArray, phi: FloatArray, n_threads: int | None
) -> tuple[FloatArray, FloatArray]:
    """Return what the functions centred at the rows ``X`` add to mean and variance there, each (n,).

    ``phi``: the active functions at these rows, (n, m). A list of kernels puts one function of each there.
    Takes N (m + d) operations for a row, kernel and kernel alike.
    """
    mean, variance = np.empty(len(X)), np.empty(len(X))
    roots = np.sqrt(model.prior_variances())
    height = max(1, _VALUES // (len(model.X) * len(model.kernels)))
    for start in range(0, len(X), height):
        part = slice(start, start + height)
        mean[part], variance[part] = _changes(model, roots, X[part], phi[part], n_threads)
    return mean, variance


def _changes(
    model: Fitted, roots: FloatArray, X: FloatArray, phi: FloatArray, n_threads: int | None
) -> tuple[FloatArray, FloatArray]:
    """Do what `changes` does for rows few enough to hold all their functions.

    In units in which the new weights have prior variance 1: the matrix of 1 / v + s for P kernels is then
    1 + s, without a v to divide by.
    """
    residual = model.target - model.Phi @ model.mu
    weighted = model.weights[:, np.newaxis] * model.Phi
    n, n_kernels = len(X), len(model.kernels)
    new, left, seen, pull = np.empty((n_kernels, n)), [], [], np.empty((n_kernels, n))
    for p, kernel in enumerate(model.kernels):
        functions = roots[p] * evaluate(kernel, model.X, X, n_threads)
        c = model.beta * model.sigma @ (weighted.T @ functions)
        new[p] = roots[p] * _diagonal(kernel, X) - np.sum(phi.T * c, axis=0)
        pull[p] = model.beta * (model.weights * residual) @ functions
        left.append(np.sqrt(model.beta * model.weights)[:, np.newaxis] * (functions - model.Phi @ c))
        seen.append(np.sqrt(model.alpha)[:, np.newaxis] * c)
    precision = np.empty((n, n_kernels, n_kernels))
    for p in range(n_kernels):
        for q in range(n_kernels):
            s = np.sum(left[p] * left[q], axis=0) + np.sum(seen[p] * seen[q], axis=0)
            precision[:, p, q] = s + float(p == q)
    solved = np.linalg.solve(precision, new.T[:, :, np.newaxis])[:, :, 0].T
    return np.sum(solved * pull, axis=0), np.sum(solved * new, axis=0)


def _diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return k(x, x) of each row."""
    blocks = (X[start : start + _DIAGONAL] for start in range(0, len(X), _DIAGONAL))
    return np.concatenate([np.diagonal(kernel(block, block)) for block in blocks])
