"""Scorers for scikit-learn's searches: the predictive density of held-out rows, and the evidence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import _num_samples, check_is_fitted

from ._checks.targets import naming
from ._types import FloatArray, IntArray

__all__ = ["AllRows", "density_score", "evidence_score"]

#: Score of a model that has overfitted; finite, so that a search can average and rank it.
OVERFITTED: Final = -1e6


def evidence_score(est: Any, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
    """Return the log evidence of the training rows of an estimator: a scorer for scikit-learn.

    Choose kernels and their widths by `density_score`, or learn them (``gamma="ard"``): the evidence overfits
    narrow kernels, because the precisions maximise it instead of being integrated out, and a narrow enough
    kernel about every row explains any targets. Use the evidence to compare models with few functions on few
    rows: in ``GridSearchCV`` with ``cv=AllRows()`` it needs one fit for each point of the grid.

    Parameters
    ----------
    est : fitted estimator of this package, or Pipeline that ends in one
        With ``log_marginal_likelihood_``: the sum over several outputs, or over the fits of several classes.
    X, y : ignored
        Part of scikit-learn's interface; the score depends on the rows of the fit only.

    Returns
    -------
    float
        ``log_marginal_likelihood_``, in nats: the larger, the better.

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError
        If ``est`` has no evidence: `MRVM2`, the REVM estimators, estimators of other packages.

    Warns
    -----
    UserWarning
        If the effective number of parameters exceeds half of the rows, or the noise estimate is at its floor.

    Notes
    -----
    Compare evidences only for the same targets and sample weights, and only with the same approximation:
    Laplace's for `RVC`, that of the auxiliary targets for `MRVM1`, the lower bound of
    ``scheme="variational"``; ``multi_class="ovr"``, a sum over binary fits, is not comparable with
    ``"softmax"``. The inputs may be transformed differently.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sparsebayes import RVR
    >>> from sparsebayes.model_selection import AllRows, evidence_score
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> search = GridSearchCV(RVR(), {"gamma": [0.01, 0.3, 10.0]}, scoring=evidence_score, cv=AllRows())
    >>> search.fit(X, y).best_params_
    {'gamma': 0.3}
    """
    last = _last(est, "evidence_score")
    if not hasattr(last, "log_marginal_likelihood_"):
        raise TypeError(
            f"evidence_score takes an estimator with log_marginal_likelihood_, which {type(last).__name__} "
            "does not have: use cross-validation"
        )
    if reason := _overfitted(last):
        warnings.warn(
            f"evidence_score of a model with {reason}: the evidence of such a model does not reflect its "
            "predictions. Choose by density_score with ordinary folds, or learn the kernel (gamma='ard')",
            UserWarning,
            stacklevel=2,
        )
    return float(last.log_marginal_likelihood_)


def density_score(est: Any, X: ArrayLike, y: ArrayLike) -> float:
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

    Returns
    -------
    float
        In nats per row: the larger, the better. For several outputs their sum; for classifiers the mean log
        probability of the true classes.

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    ValueError
        If y holds a class that was not in the training data, or another number of outputs.

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
    last = _last(est, "density_score")
    if _overfitted(last):
        return OVERFITTED
    if is_classifier(est) and not np.isin(y, est.classes_).all():
        raise ValueError("y must hold classes of the training rows only; use stratified folds")
    density = log_densities(est, X, y)
    return float(density.sum() / len(density))


def log_densities(est: Any, X: ArrayLike, y: ArrayLike) -> FloatArray:
    """Return the log predictive density of each row, (n,) or (n, n_outputs), or that of its class, (n,).

    The probability of a class is ``tiny`` at least, also of a class that ``est`` does not know.
    """
    if is_classifier(est):
        p, classes = est.predict_proba(X), np.asarray(est.classes_)
        at = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        of_class = np.where(classes[at] == np.asarray(y), p[np.arange(len(p)), at], 0.0)
        found: FloatArray = np.log(np.maximum(of_class, np.finfo(np.float64).tiny))
        return found
    mean, std = est.predict(X, return_std=True)
    target = np.asarray(y, dtype=np.float64)
    if target.shape != mean.shape:
        raise ValueError(f"y must have the shape {mean.shape} of the predictions, got {target.shape}")
    found = -0.5 * ((target - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return found


def _last(est: Any, scorer: str) -> Any:
    """Return the last step of a fitted pipeline, or the estimator itself."""
    last = est
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if not isinstance(last, BaseEstimator):
        raise TypeError(f"{scorer} takes a fitted estimator of this package, got {type(last).__name__}")
    check_is_fitted(last)
    return last


def _overfitted(est: Any) -> str:
    """Return the sign of overfitting that a model shows, "" if none."""
    if getattr(est, "status_", "") == "noise_floor":
        return "its noise at the floor"
    return "more effective parameters than half of its rows" if getattr(est, "_is_saturated", False) else ""


class AllRows:
    """A splitter with one split, which trains and tests on all rows: ``cv`` for `evidence_score`.

    Use it for the evidence only: other scores are too high on the training rows.

    Examples
    --------
    >>> from sparsebayes.model_selection import AllRows
    >>> [(train.tolist(), test.tolist()) for train, test in AllRows().split([[1.0], [2.0]])]
    [([0, 1], [0, 1])]
    """

    def split(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield all rows, twice.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y, groups : ignored

        Yields
        ------
        train, test : ndarray of shape (n_samples,), int
        """
        with naming("X"):
            rows = np.arange(_num_samples(X))
        yield rows, rows

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return 1.

        Parameters
        ----------
        X, y, groups : ignored

        Returns
        -------
        int
        """
        return 1

    def __repr__(self) -> str:
        return "AllRows()"
