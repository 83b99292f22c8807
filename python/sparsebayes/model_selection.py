"""Scorers for scikit-learn's searches: the density of rows left out, and the evidence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import _num_samples, check_is_fitted

from ._checks.targets import naming
from ._types import IntArray

__all__ = ["AllRows", "density_score", "evidence_score"]

#: What a model scores that has overfitted its rows; finite, so that a search can average and rank it.
OVERFITTED: Final = -1e6


def evidence_score(est: Any, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
    """Return the log evidence of the rows that an estimator was fitted to: a scorer for scikit-learn.

    The evidence overfits narrow kernels: the precisions are those of most evidence and not integrated over,
    and with a function about every row a model that is narrow enough explains anything. Choose kernels and
    their widths by `density_score`, or have them learned (``gamma="ard"``). The evidence is of use to compare
    models of few functions on few rows: given to ``GridSearchCV`` with ``cv=AllRows()`` it takes one fit for
    each point of the grid.

    Parameters
    ----------
    est : fitted estimator of this package, or Pipeline that ends in one
        With ``log_marginal_likelihood_``. Of several outputs or one fit per class it is the sum over them.
    X, y : ignored
        There because scikit-learn gives them; the rows are those of the fit.

    Returns
    -------
    float
        ``log_marginal_likelihood_``, in nats: the larger, the better.

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError
        If ``est`` has no evidence: `MRVM2`, the eigen-vector machines, estimators of others.

    Warns
    -----
    UserWarning
        If the effective number of parameters exceeds half of the rows, or the noise estimate is at its floor.

    Notes
    -----
    Only evidences of the same targets can be compared: not fits of other rows, of targets transformed in
    another way, or with other sample weights, nor a regression's with a classifier's. Nor those of different
    approximations: Laplace's for `RVC`, that of the auxiliary targets for `MRVM1`, the lower bound of
    ``scheme="variational"``, and ``multi_class="ovr"``, whose sum is over as many tables of labels as there
    are classes, against ``"softmax"``. What is done to the inputs may differ.

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
            f"evidence_score of a model with {reason}: the evidence of such a model says nothing about its "
            "predictions. Choose by density_score with ordinary folds, or learn the kernel (gamma='ard')",
            UserWarning,
            stacklevel=2,
        )
    return float(last.log_marginal_likelihood_)


def density_score(est: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Return the mean log predictive density of rows that were left out: a scorer for scikit-learn.

    Use it with ordinary folds: ``GridSearchCV(RVR(), grid, scoring=density_score)``. It weighs errors and
    error bars: a model that is sure of what is not so scores badly. A model whose effective number of
    parameters exceeds half of its training rows, or whose noise estimate is at its floor, scores -1e6, so
    that it is chosen only where all are of this kind.

    Parameters
    ----------
    est : fitted estimator, or Pipeline that ends in one
        A regressor with ``predict(X, return_std=True)`` or a classifier with ``predict_proba``.
    X : array-like of shape (n_samples, n_features)
        Rows that ``est`` was not fitted to.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.

    Returns
    -------
    float
        In nats per row: the larger, the better. Of several outputs the sum over them; of classes the mean
        log probability of the class of each row.

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    ValueError
        If y holds a class that the fit did not see, or another number of outputs.

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
    if is_classifier(est):
        p = est.predict_proba(X)
        known, at = np.asarray(est.classes_), np.searchsorted(est.classes_, y)
        if not np.array_equal(known[np.minimum(at, len(known) - 1)], np.asarray(y)):
            raise ValueError("y must hold classes that the fit saw; use folds that are stratified")
        return float(np.mean(np.log(np.maximum(p[np.arange(len(p)), at], np.finfo(np.float64).tiny))))
    mean, std = est.predict(X, return_std=True)
    target = np.asarray(y, dtype=np.float64)
    if target.shape != mean.shape:
        raise ValueError(f"y must have the shape {mean.shape} of the predictions, got {target.shape}")
    error = target - mean
    density = -0.5 * (error / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return float(density.sum() / len(density))


def _last(est: Any, scorer: str) -> Any:
    """Return the fitted estimator that a pipeline ends in."""
    last = est
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if not isinstance(last, BaseEstimator):
        raise TypeError(f"{scorer} takes a fitted estimator of this package, got {type(last).__name__}")
    check_is_fitted(last)
    return last


def _overfitted(est: Any) -> str:
    """Return what shows that a model has overfitted its rows, "" if nothing does."""
    if getattr(est, "status_", "") == "noise_floor":
        return "its noise at the floor"
    return "more effective parameters than half of its rows" if getattr(est, "_is_saturated", False) else ""


class AllRows:
    """A splitter with one split, which trains and tests on all rows: ``cv`` for `evidence_score`.

    Scores that are no evidence are too good on rows that a model was fitted to: use it for nothing else.

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
