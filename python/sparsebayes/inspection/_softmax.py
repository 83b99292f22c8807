r"""The softmax model as dense arrays, for the certificate. Shares no code with the solver.

Each of N rows has a logit for each of C classes. The negative Hessian of its log likelihood in the logits is
:math:`W_n = w_n (\mathrm{diag}(p) - p p^T) = R R^T` for :math:`R = \sqrt{w_n}\,
\mathrm{diag}(\sqrt p)\,(1 - \sqrt p \sqrt p^T)`. Row (n, d) of the whitened design holds, for function j of
class c, :math:`R_{cd} \phi_j(x_n)`: a regression of N C rows on K C functions with noise of variance one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import FloatArray, IntArray, Problem
from ._dense import find_mode


@dataclass(frozen=True)
class SoftmaxRows:
    """Rows with class labels, and the active functions; number c K + j is function j of class c."""

    #: The fit, and its rows of positive weight: functions N x K, class numbers and weights, of length N.
    problem: Problem
    Phi: FloatArray
    labels: IntArray
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    @property
    def n_basis(self) -> int:
        """K C."""
        return int(self.Phi.shape[1]) * self.n_classes

    def _expanded(self, functions: IntArray) -> tuple[FloatArray, IntArray]:
        """Return the columns of these functions, and the class of each."""
        classes, columns = np.divmod(functions, self.Phi.shape[1])
        return self.Phi[:, columns], classes

    def logits(self, mode: FloatArray) -> FloatArray:
        """Return the logits (N, C); ``mode`` holds the weights times the roots of their alphas."""
        phi, classes = self._expanded(self.problem.active)
        eta = np.zeros((len(phi), self.n_classes))
        for c in range(self.n_classes):
            own = classes == c
            eta[:, c] = phi[:, own] @ (mode[own] / np.sqrt(self.problem.alpha[own]))
        return eta

    def whitened(self, functions: IntArray, eta: FloatArray) -> FloatArray:
        """Return the whitened columns of these functions, (N C, n_functions)."""
        phi, classes = self._expanded(functions)
        p, others = _probabilities(eta)
        root = np.sqrt(p)
        out = np.empty((len(phi), self.n_classes, len(functions)))
        for k, c in enumerate(classes):
            column = -root * p[:, [c]]
            column[:, c] = root[:, c] * others[:, c]
            out[:, :, k] = column * (np.sqrt(self.weights) * phi[:, k])[:, np.newaxis]
        return out.reshape(len(phi) * self.n_classes, len(functions))

    def slopes(self, eta: FloatArray) -> FloatArray:
        """Return the slope of the log likelihood in the weight of each of the K C functions."""
        p, others = _probabilities(eta)
        pull = -p
        rows = np.arange(len(p))
        pull[rows, self.labels] = others[rows, self.labels]
        return (self.Phi.T @ (self.weights[:, np.newaxis] * pull)).T.ravel()

    def objective(self, mode: FloatArray) -> float:
        """Return the log posterior of the weights without its prior's constant."""
        eta = self.logits(mode)
        behind = eta - eta[np.arange(len(eta)), self.labels][:, np.newaxis]
        return float(-self.weights @ np.logaddexp.reduce(behind, axis=1) - 0.5 * mode @ mode)

    def mode(self) -> FloatArray:
        """Find the posterior mode, times the roots of alpha."""
        return find_mode(len(self.problem.active), self._local, self.objective)

    def _local(self, mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        eta = self.logits(mode)
        psi = self.whitened(self.problem.active, eta) / np.sqrt(self.problem.alpha)
        gradient = self.slopes(eta)[self.problem.active] / np.sqrt(self.problem.alpha) - mode
        return gradient, np.eye(len(mode)) + psi.T @ psi


def _probabilities(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return p and 1 - p, computed as the sum of the other classes: exact for p near 1."""
    e = np.exp(eta - eta.max(axis=1, keepdims=True))
    total = e.sum(axis=1, keepdims=True)
    others = np.stack([np.delete(e, c, axis=1).sum(axis=1) for c in range(e.shape[1])], axis=1)
    return e / total, others / total
