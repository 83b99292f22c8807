r"""Class probabilities: of one model per class against the rest, and of the softmax model.

The core counts K functions for each of C classes of a softmax: number ``c * K + j`` adds function j to the
logit of class c.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax, logsumexp

from .._arrays import check_X
from .._checks import check_n_jobs
from .._types import FloatArray, IntArray

#: Rows predicted at a time, to bound the memory.
_ROWS = 2048


def check_multi_class(value: object) -> bool:
    """Return whether ``multi_class`` is the softmax; raise TypeError or ValueError if it is unknown."""
    if not isinstance(value, str) or value not in ("ovr", "softmax"):
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(
            f"multi_class must be 'softmax' (one model of all classes) or 'ovr' (each class against the "
            f"rest), got {value!r}"
        )
    return value == "softmax"


def weights_in_order(alpha: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the class of each weight in the model, and its row in ``alpha_``, in the order of ``sigma_``."""
    classes, rows = np.nonzero(np.isfinite(alpha.T))
    return classes, rows


def softmax_probabilities(est: Any, X: ArrayLike, moderate: bool) -> FloatArray:
    """Return the softmax of the logits at the mode, or its mean over their posterior (`moderated`)."""
    values, n_threads = check_X(est, X, reset=False), check_n_jobs(est.n_jobs)
    p = np.empty((len(values), est.mu_.shape[1]))
    for start in range(0, len(values), _ROWS):
        part = slice(start, start + _ROWS)
        phi = est._basis.functions(est.active_, values[part], n_threads)
        means = phi @ est.mu_
        log_p = moderated(means, variances_of_differences(phi, est)) if moderate else log_softmax(means, 1)
        p[part] = np.exp(log_p)
    p /= p.sum(axis=1, keepdims=True)
    return p


def variances_of_differences(phi: FloatArray, est: Any) -> FloatArray:
    """Return the posterior variance of each difference of two logits, (n, n_classes, n_classes)."""
    classes, rows = weights_in_order(est.alpha_)
    n_classes = est.alpha_.shape[1]
    expanded, of_class = phi[:, rows], classes[:, np.newaxis] == np.arange(n_classes)
    covariance = np.empty((len(phi), n_classes, n_classes))
    for c in range(n_classes):
        mine = of_class[:, c]
        covariance[:, c] = (expanded[:, mine] @ est.sigma_[mine] * expanded) @ of_class
    own = np.einsum("ncc->nc", covariance)
    both = own[:, :, np.newaxis] + own[:, np.newaxis]
    # By rounding a variance close to 0 may be negative.
    variances: FloatArray = np.maximum(both - covariance - covariance.transpose(0, 2, 1), 0.0)
    return variances


def moderated(means: FloatArray, variances: FloatArray) -> FloatArray:
    r"""Return the approximate log of the mean softmax over Gaussian logits.

    :math:`1 / p_c = \sum_d e^{-(\eta_c - \eta_d)}`, and the mean of each
    :math:`\sigma(\eta_c - \eta_d)` is about :math:`\sigma(\kappa_{cd} (m_c - m_d))`, MacKay's
    :math:`\kappa_{cd} = (1 + \pi v_{cd} / 8)^{-1/2}` with the variance of that difference. So :math:`p_c
    \propto 1 / \sum_d e^{-\kappa_{cd} (m_c - m_d)}` (Daunizeau 2017), which for two classes is MacKay's
    formula.
    """
    kappa = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * variances)
    log_p = -logsumexp(kappa * (means[:, np.newaxis] - means[:, :, np.newaxis]), axis=2)
    normalised: FloatArray = log_p - logsumexp(log_p, axis=1, keepdims=True)
    return normalised


def log_normalised(logits: FloatArray) -> FloatArray:
    """Return the log of normalised sigmoids of the logits, (n, n_classes).

    One column is the logit of the second of two classes.
    """
    if logits.shape[1] == 1:
        logits = np.hstack([-logits, logits])
    # In logarithms, so that the ratios survive if every probability underflows.
    log_p = -np.logaddexp(0.0, -logits)
    log_p -= log_p.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    return log_p


def normalised(logits: FloatArray) -> FloatArray:
    """Return the sigmoids of the logits, (n, n_classes), with each row divided by its sum."""
    return np.exp(log_normalised(logits))
