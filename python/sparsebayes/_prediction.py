"""What the kernel estimators' predictions can be asked for beside those of any basis.

Columns of ``extra_basis`` where the fit's were an array. Each method hands them on together with X, through
methods that only pass X along.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from ._basis import KernelBasis
from ._extra import Beside
from ._types import FloatArray


def _with(X: ArrayLike, extra_basis: ArrayLike | None) -> Any:
    return X if extra_basis is None else Beside(X, extra_basis)


class KernelRegression(KernelBasis):
    """Regression on kernels: `predict` and `score` with extra columns."""

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        *,
        extra_basis: ArrayLike | None = None,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        *,
        extra_basis: ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        extra_basis: ArrayLike | None = None,
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        The predictive distribution is Gaussian with mean :math:`\mu^T \phi(x)` and variance
        :math:`\beta^{-1} + \phi(x)^T \Sigma \phi(x)` (Tipping 2001, equations 21 and 22).

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        extra_basis : array-like of shape (n, p), optional
            The extra columns at these rows; needed if, and only if, the constructor got them as an array.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,)
            Only if ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw; likewise ``extra_basis``.
        """
        plain: FloatArray | tuple[FloatArray, FloatArray]
        plain = super().predict(_with(X, extra_basis), return_std)
        return plain

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        extra_basis: ArrayLike | None = None,
    ) -> float:
        """Return R^2 of the predictions.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        extra_basis : array-like of shape (n, p), optional
            As for ``predict``.

        Returns
        -------
        float
            1 is best; 0 is as good as the mean of y.
        """
        return float(super().score(_with(X, extra_basis), y, sample_weight))


class KernelClassification(KernelBasis):
    """Classification on kernels: every prediction with extra columns."""

    def decision_function(self, X: ArrayLike, *, extra_basis: ArrayLike | None = None) -> FloatArray:
        r"""Return the linear predictor at the posterior mode, :math:`\mu^T \phi(x)`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        extra_basis : array-like of shape (n, p), optional
            The extra columns at these rows; needed if, and only if, the constructor got them as an array.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Two classes: the log odds of the second. More: one column per class, of that class against the
            rest.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw; likewise ``extra_basis``.
        """
        values: FloatArray = super().decision_function(_with(X, extra_basis))
        return values

    def predict_proba(
        self, X: ArrayLike, *, moderate: bool = True, extra_basis: ArrayLike | None = None
    ) -> FloatArray:
        r"""Return class probabilities.

        Uncertainty about the weights draws probabilities towards one half: with m and v the posterior mean
        and variance of the linear predictor, :math:`\sigma(\kappa m)` with :math:`\kappa = (1 + \pi v /
        8)^{-1/2}` (MacKay 1992). With more than two classes these are divided by their sum.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        moderate : bool, default=True
            False: the plain sigmoid of the mode, :math:`\sigma(m)`.
        extra_basis : array-like of shape (n, p), optional
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns as in ``classes_``; rows sum to 1.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            As for ``decision_function``.
        """
        values: FloatArray = super().predict_proba(_with(X, extra_basis), moderate=moderate)
        return values

    def predict(self, X: ArrayLike, *, extra_basis: ArrayLike | None = None) -> NDArray[Any]:
        """Predict the most probable class, as `predict_proba` sees it.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        extra_basis : array-like of shape (n, p), optional
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Labels out of ``classes_``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            As for ``decision_function``.
        """
        labels: NDArray[Any] = super().predict(_with(X, extra_basis))
        return labels

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        extra_basis: ArrayLike | None = None,
    ) -> float:
        """Return the fraction of labels that `predict` gets right.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        extra_basis : array-like of shape (n, p), optional
            As for ``decision_function``.

        Returns
        -------
        float
            Between 0 and 1.
        """
        return float(super().score(_with(X, extra_basis), y, sample_weight))
