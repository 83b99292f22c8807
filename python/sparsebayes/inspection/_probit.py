r"""The multinomial probit model as a regression on its auxiliary targets, for the certificate.

At convergence of mRVM1 (Psorakis et al. 2010) the auxiliary targets are their expectations given the classes
and the scores (equations 3 and 4), and the precisions maximise the evidence of these targets (6): a
regression of several outputs with noise precision 1. This E-step integrates on an even grid with SciPy's
functions and shares no code with the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr
from sklearn.utils.validation import check_is_fitted

from .._arrays import Training, check_training
from .._data import candidates as _candidates
from .._data.basis import dense_blocks
from .._mrvm import Composite
from .._types import FloatArray, IntArray, OutputsProblem, PerRow
from ..kernels._resolve import is_precomputed
from ._dense import bisect

if TYPE_CHECKING:
    from ..multiclass import MRVM1

#: The integrand is log-concave with a curvature between 1 and the number of classes: beyond ten units from
#: its mode it vanishes, and this grid is exact to round-off for up to a hundred classes.
_HALF_WIDTH: Final = 10.0
_NODES: Final = 401
_BISECTIONS: Final = 80
#: Rows evaluated at a time.
_ROWS: Final = 256


def expected_targets(scores: FloatArray, labels: IntArray) -> FloatArray:
    """Return the expectations of the auxiliary targets, (N, C): equations (3) and (4).

    ``scores``: (N, C); ``labels``: class numbers, (N,).
    """
    n_rows, n_classes = scores.shape
    if n_rows > _ROWS:
        parts = [(scores[at : at + _ROWS], labels[at : at + _ROWS]) for at in range(0, n_rows, _ROWS)]
        return np.concatenate([expected_targets(*part) for part in parts])
    others = np.arange(n_classes) != labels[:, np.newaxis]
    own = scores[~others]
    differences = own[:, np.newaxis] - scores[others].reshape(n_rows, n_classes - 1)
    u = _modes(differences)[:, np.newaxis] + np.linspace(-_HALF_WIDTH, _HALF_WIDTH, _NODES)
    x = u[:, :, np.newaxis] + differences[:, np.newaxis, :]
    log_cdf = log_ndtr(x)
    log_terms = log_cdf.sum(axis=2) - 0.5 * u**2
    weights = np.exp(log_terms - log_terms.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    # phi instead of Phi for one of the other classes.
    shift = np.einsum("nu,nuc->nc", weights, _hazard(x, log_cdf))
    targets = scores.copy()
    targets[others] -= shift.ravel()
    targets[~others] += shift.sum(axis=1)
    return targets


def _hazard(x: FloatArray, log_cdf: FloatArray) -> FloatArray:
    r"""Return phi(x) / Phi(x)."""
    values: FloatArray = np.exp(-0.5 * (x**2 + np.log(2.0 * np.pi)) - log_cdf)
    return values


def _modes(differences: FloatArray) -> FloatArray:
    """Return the mode of each row's integrand, by bisection of the slope of its logarithm."""

    def rising(u: FloatArray) -> NDArray[np.bool_]:
        x = u[:, np.newaxis] + differences
        return np.asarray(_hazard(x, log_ndtr(x)).sum(axis=1) > u)

    high = np.maximum(-differences.min(axis=1), 0.0) + 12.0
    return bisect(np.zeros(len(differences)), high, rising, _BISECTIONS)


def written_out(est: MRVM1, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> OutputsProblem:
    """Return a fitted model as the regression on its auxiliary targets; X and y are its training data."""
    check_is_fitted(est)
    training = check_training(est, X, y, sample_weight, reset=False)
    _check_same_data(est, training)
    layout = est._layout(training)
    # The third argument serves only the initial kernel weights, which are learned here.
    composite = Composite(dense_blocks(est, training, layout.kept), layout.bias, None)
    Phi = composite.Phi(est.kernel_weights_)
    active, n_classes = layout.columns(est.active_), len(est.classes_)
    labels = np.searchsorted(est.classes_, training.y).astype(np.intp)
    return OutputsProblem(
        Phi=Phi,
        targets=expected_targets(Phi[:, active] @ est.mu_, labels),
        weights=training.weights,
        active=active,
        alpha=est.alpha_,
        mu=est.mu_,
        beta=np.ones(n_classes),
        shared_noise=True,
        fixed=True,
        at_floor=np.zeros(n_classes, dtype=np.bool_),
        log_evidence=est.log_marginal_likelihood_,
    )


def _check_same_data(est: MRVM1, training: Training) -> None:
    """Check that the data hold the classes and the relevance vectors of the fit; given centres may be any."""
    same = training.n_samples == est._n_samples and np.array_equal(np.unique(training.y), est.classes_)
    if same and not _candidates.are_given(est):
        rows = getattr(est, "candidate_rows_", est.relevance_)
        same = bool(np.isin(rows, training.rows).all())
        if same and not is_precomputed(est.kernel_):
            same = np.array_equal(training.at(rows), getattr(est, "candidates_", est.relevance_vectors_))
    if not same:
        raise ValueError("X, y, sample_weight must be the training data: classes or relevance vectors differ")
