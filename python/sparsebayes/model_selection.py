"""A scorer for scikit-learn's searches: the predictive density of held-out rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from ._arrays import are_known, check_scored, last_step
from ._estimators.likelihoods import Numbers
from ._estimators.posterior import moments
from ._types import FloatArray, PerRow

__all__ = ["density_score"]

#: Score of a model that has overfitted; finite, so that a search can average and rank it.
OVERFITTED: Final = -1e6


def density_score(est: Any, X: ArrayLike, y: ArrayLike, exposure: PerRow = None) -> float:
    """Return the mean log predictive density of held-out rows: a scorer for scikit-learn.

    Use it with ordinary folds: ``GridSearchCV(RVR(), grid, scoring=density_score)``. It takes error bars into
    account: confident wrong predictions score badly. A model whose effective number of parameters exceeds
    half of its training rows, or whose noise estimate is at its floor, scores -1e6, so that it is chosen only
    if no other is available.

    Parameters
    ----------
    est : fitted estimator, or Pipeline that ends in one
        A regressor with ``predict(X, return_std=True)`` or a classifier with ``predict_proba``.
    X : array-like of shape (n_samples, n_features)
        Held-out rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    exposure : array-like of shape (n_samples,), optional
        Exposures of counts and positive targets; needed if the fit had them.

    Returns
    -------
    float
        In nats per row: the larger, the better. For several outputs their sum; for classifiers the mean log
        probability of the true classes.

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is no estimator, or y holds a class that was not in the training data, or another number of
        outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sparsebayes import RVR
    >>> from sparsebayes.model_selection import density_score
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> rows = np.random.default_rng(1).permutation(100)
    >>> search = GridSearchCV(RVR(), {"gamma": [0.001, 0.1, 2.0]}, scoring=density_score)
    >>> search.fit(X[rows], y[rows]).best_params_
    {'gamma': 0.1}
    """
    last, _ = last_step(est)
    if not isinstance(last, BaseEstimator):
        raise TypeError(f"density_score takes a fitted estimator of this package, got {type(last).__name__}")
    check_is_fitted(last)
    if getattr(last, "status_", "") == "noise_floor" or getattr(last, "_is_saturated", False):
        return OVERFITTED
    if is_classifier(est) and not are_known(y, est.classes_).all():
        raise ValueError("y must hold classes of the training rows only; use stratified folds")
    density = log_densities(est, X, y, exposure)
    return float(density.sum() / len(density))


def log_densities(est: Any, X: ArrayLike, y: ArrayLike, exposure: PerRow = None) -> FloatArray:
    """Return the log predictive density of each row, (n,) or (n, n_outputs), or that of its class, (n,).

    The probability of a class is ``tiny`` at least, also of a class that ``est`` does not know.
    """
    if is_classifier(est):
        p, classes = est.predict_proba(X), np.asarray(est.classes_)
        at = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        of_class = np.where(classes[at] == np.asarray(y), p[np.arange(len(p)), at], 0.0)
        found: FloatArray = np.log(np.maximum(of_class, np.finfo(np.float64).tiny))
        return found
    last, rows = last_step(est, X)
    own = getattr(last, "_likelihood", None)
    if isinstance(own, Numbers) and own.name != "gaussian":
        mean, variance = moments(last, rows, variance=True)
        target, _ = check_scored(y, None, (len(mean),))
        assert variance is not None
        offset = np.log(own.exposures(last, exposure, len(mean)))[:, np.newaxis]
        return own.log_density(last, (mean + offset, variance), target)
    if exposure is not None:
        raise ValueError("exposure must be None: the targets are not counts or positive numbers")
    mean, std = est.predict(X, return_std=True)
    target, _ = check_scored(y, None, mean.shape)
    found = -0.5 * ((target - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return found
