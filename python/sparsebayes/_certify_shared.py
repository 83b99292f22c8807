r"""The certificate of a softmax whose classes share the precision of each function, from dense arrays alone.

Function j has a weight for each of C classes and one :math:`\alpha`. Left out of the model it has a C x C
matrix s and a C-vector q of sparsity and quality factors, and what its precision is held against is

.. math:: F(\alpha) = \tfrac{1}{2} [C \ln \alpha - \ln |\alpha I + s| + q^T (\alpha I + s)^{-1} q],

in the eigenvectors of s the sum over several outputs that `_certify_outputs` scans. Logits that rise together
change no probability: s and q vanish along (1, ..., 1), and only the C - 1 contrasts of the classes count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.linalg import svd
from scipy.linalg import helmert

from ._certify_outputs import _log_alpha_change, _max_gain
from ._softmax_certificate import SoftmaxRows
from ._types import FloatArray, IntArray
from .inspection import _Fit, _split

#: Functions worked on at a time.
_BLOCK = 64


def shared_conditions(rows: SoftmaxRows, fit: _Fit, Q: FloatArray) -> tuple[float, float]:
    """Return the largest change of a ln alpha, inf where a function should leave, and the largest gain.

    The gain is that of functions outside. ``Q``: slopes of the log likelihood in the weights of all K C
    functions, at the mode.
    """
    n_each, n_classes = rows.Phi.shape[1], rows.n_classes
    change = 0.0
    outside: list[tuple[FloatArray, FloatArray]] = []
    inside = set((rows.active % n_each).tolist())
    eta = rows.logits(fit.mean)
    for j, values, vectors in _spectra(rows, eta, fit):
        slopes = vectors.T @ Q[j + n_each * np.arange(n_classes)]
        if j not in inside:
            outside.append((values, slopes))
            continue
        at = np.flatnonzero(rows.active % n_each == j)
        alphas = rows.alpha[at]
        if len(at) < n_classes or np.ptp(np.log(alphas)) > 1e-9:
            change = np.inf
            continue
        p = np.einsum("cl,cd,dl->l", vectors, _prior_share(fit, at), vectors)
        change = max(change, _log_alpha_change(values / alphas[0], p, slopes**2 / alphas[0]))
    if not outside:
        return change, 0.0
    S, pull = (np.stack(part) for part in zip(*outside, strict=True))
    return change, _max_gain(S, pull)


def _spectra(rows: SoftmaxRows, eta: FloatArray, fit: _Fit) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Yield each function with the eigenvalues of its S (equation 22) on the contrasts, and the eigenvectors.

    S is A^T A for the whitened columns less what the model explains of them, so that eigenvalues are squares
    of singular values and not differences.
    """
    n_each, n_classes = rows.Phi.shape[1], rows.n_classes
    shrinkage = 1.0 / np.sqrt(1.0 + fit.singular**2)
    contrasts = helmert(n_classes).T
    for start in range(0, n_each, _BLOCK):
        functions = np.arange(start, min(start + _BLOCK, n_each))
        for_all: IntArray = np.add.outer(functions, n_each * np.arange(n_classes)).ravel()
        explained, outside = _split(rows.whitened(for_all, eta), fit.left)
        parts = np.concatenate([shrinkage[:, np.newaxis] * explained, outside])
        for place, j in enumerate(functions):
            mine = parts[:, place * n_classes : (place + 1) * n_classes] @ contrasts
            _, singular, right = svd(mine, full_matrices=False)
            yield int(j), singular**2, contrasts @ right.T


def _prior_share(fit: _Fit, at: IntArray) -> FloatArray:
    """Return alpha Sigma among the weights ``at`` of the model."""
    right = fit.right[:, at]
    share: FloatArray = right.T @ (right / (1.0 + fit.singular**2)[:, np.newaxis])
    if len(fit.singular) < fit.right.shape[1]:
        # More weights than rows: directions the data do not reach keep their prior variance of one.
        share += np.eye(len(at)) - right.T @ right
    return share
