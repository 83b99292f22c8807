"""Choosing a model by its evidence: no rows are held out, and one fit of each candidate will do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _num_samples, check_is_fitted

from ._types import IntArray
from ._validation import naming

__all__ = ["AllRows", "evidence_score"]


def evidence_score(est: Any, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
    """Return the log evidence of the rows that an estimator was fitted to: a scorer for scikit-learn.

    The evidence weighs fit against complexity by itself (Tipping 2001, section 5.3; MacKay 1992), so that it
    chooses kernels and their widths on the training rows alone. Given to ``GridSearchCV`` with
    ``cv=AllRows()`` it takes one fit for each point of the grid.

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

    Notes
    -----
    Only evidences of the same targets can be compared: not fits of other rows, of targets transformed in
    another way, or with other sample weights, nor a regression's with a classifier's. Nor those of different
    approximations: Laplace's for `RVC`, that of the auxiliary targets for `MRVM1`, the lower bound of
    ``scheme="variational"``, and ``multi_class="ovr"``, whose sum is over as many tables of labels as there
    are classes, against ``"softmax"``. What is done to the inputs may differ.

    The precisions are those of most evidence and not integrated over, which is generous to narrow kernels,
    whose models have more functions: differences of a few nats are no reason to prefer the narrower.

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
    last = est
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if not isinstance(last, BaseEstimator):
        raise TypeError(f"evidence_score takes a fitted estimator of this package, got {type(last).__name__}")
    check_is_fitted(last)
    if not hasattr(last, "log_marginal_likelihood_"):
        raise TypeError(
            f"evidence_score takes an estimator with log_marginal_likelihood_, which {type(last).__name__} "
            "does not have: use cross-validation"
        )
    return float(last.log_marginal_likelihood_)


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
