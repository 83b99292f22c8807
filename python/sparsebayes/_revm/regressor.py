"""Targets with Gaussian noise, for the relevance eigen-vector machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from .._checks.arguments import check_flag, check_real
from .._checks.numbers import check_predictions
from .._checks.targets import Training
from .._types import FloatArray, KernelSpec
from .eigen import Axes, Rules, Solution, regress
from .estimator import EigenMachine

if TYPE_CHECKING:
    from typing_extensions import Self


class EigenRegressor(RegressorMixin, EigenMachine):  # type: ignore[misc] # scikit-learn carries no types
    """One target; its noise is estimated unless it is given."""

    _labels = False

    def __init__(
        self,
        kernel: KernelSpec = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        noise_variance: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs; with ``kernel="precomputed"`` the kernel values, (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row: 2 counts like two equal rows, 0 like none.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or outside its domain; the message names it and the remedy.
        KeyboardInterrupt
            On Ctrl-C, within a second; what LAPACK has begun it ends in the background.

        Warns
        -----
        ConvergenceWarning
            If the fit ended with a ``status_`` other than ``"converged"``.
        OverfitWarning
            If effective eigenvectors are more than half of the rows; it is a ``ConvergenceWarning`` too.
        UserWarning
            If the inputs of a kernel with one scale for all have spreads that differ more than a
            thousandfold.
        """
        self._train(X, y, sample_weight)
        return self

    def _rules(self) -> Rules:
        given = self.noise_variance
        try:
            noise = None if given is None else check_real("noise_variance", given, positive=True)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; leave it None to have it estimated") from None
        return Rules(prior=self._prior, noise_variance=noise)

    def _solve(self, axes: Axes, training: Training, rules: Rules) -> list[Solution]:
        _check_size(training.y)
        weights = None if training.weights is None else training.weights / training.weights.max()
        mean = float(np.average(training.y, weights=weights))
        square = float(np.average(training.y**2, weights=weights))
        # With a bias the mean is no part of the model, or large ones would widen the prior of all weights.
        self._mean = mean if self.fit_intercept else 0.0
        targets = training.y - self._mean
        variance = float(np.average((training.y - mean) ** 2, weights=weights)) or square or 1.0
        found = self._fit_one(lambda pulse: regress(axes, targets, variance, rules))
        self.beta_, self.noise_variance_ = found.beta, 1.0 / found.beta
        self._directions, self._variances = found.directions, found.variances
        return [found]

    def _publish(self, solutions: list[Solution], training: Training) -> None:
        super()._publish(solutions, training)
        self._bias = self._bias + self._mean
        self.intercept_ = self.intercept_ + self._mean

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> FloatArray: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[FloatArray, FloatArray]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        return_std : bool, default=False
            Whether to return the predictive standard deviation too: noise, and the posterior variances along
            the relevant eigenvectors.

        Returns
        -------
        mean : ndarray of shape (n,)
            At the maximum of the posterior.
        std : ndarray of shape (n,)
            Only if ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        TypeError, ValueError
            If X is no finite numeric matrix with the columns that ``fit`` saw.
        """
        if not check_flag("return_std", return_std):
            return self._predictor(X)[0][:, 0]
        mean, along = self._predictor(X, uncertain=True)
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self.noise_variance_ + along**2 @ self._variances)
        check_predictions("X", std)
        return mean[:, 0], std


def _check_size(y: FloatArray) -> None:
    """Refuse targets whose squares leave the range of numbers."""
    largest = 1e150
    size = float(np.abs(y).max())
    if size and not 1.0 / largest / 1e2 <= size <= largest * 1e2:
        raise ValueError(
            f"y holds values up to {size:g}, whose square is out of range; rescale y to values between "
            f"{1 / largest:g} and {largest:g}"
        )
