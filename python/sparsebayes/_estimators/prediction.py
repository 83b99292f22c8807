"""Predictions of a regression on kernels, with healed error bars."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._checks.arguments import check_flag, check_n_jobs
from .._checks.targets import Training
from .._types import FloatArray
from ..kernels._resolve import is_precomputed
from .basis import KernelBasis
from .healing import Fitted, changes


class KernelRegression(KernelBasis):
    """Regression on kernels, whose error bars can be healed."""

    if TYPE_CHECKING:
        keep_rows: bool
        #: The training rows, where the estimator keeps them.
        _kept: Training | None
        beta_: float
        noise_variance_: float

    def _publish_basis(self, training: Training) -> None:
        super()._publish_basis(training)
        self._kept = deepcopy(training) if check_flag("keep_rows", self.keep_rows) else None

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        *,
        y_std: ArrayLike | None = None,
        healed: bool = False,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        *,
        y_std: ArrayLike | None = None,
        healed: bool = False,
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        y_std: ArrayLike | None = None,
        healed: bool = False,
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        r"""Predict targets, with error bars if wanted.

        The predictive distribution is Gaussian with mean :math:`\mu^T \phi(x)` and variance
        :math:`\beta^{-1} + \phi(x)^T \Sigma \phi(x)` (Tipping 2001, equations 21 and 22). With local kernels
        that variance falls to the noise far from the data (appendix D). ``healed=True`` is the remedy of
        Rasmussen and Quinonero-Candela (2005): for each row a function k(., x) is added to the model, its
        weight with the prior variance that gives it the mean square of what its kernel contributes on the
        training rows. The mean changes too, most between training rows that the model could not fit.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel between these and the training rows, (n,
            n_samples).
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        y_std : positive float or array-like of shape (n,), optional
            Standard deviations of new targets, after a fit with ``y_std`` and in its unit: their part of the
            variance is ``noise_variance_ * y_std**2``. None: that of the typical training row, ``y_std**2``
            being the harmonic mean of its squares.
        healed : bool, default=False
            Whether to add a function at each row. Takes about N (n_active + n_features) operations for a row,
            and needs a model that was fitted with ``keep_rows=True``. Not with ``kernel="precomputed"``.

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
            If X is no finite numeric matrix with the columns that ``fit`` saw; or if ``healed`` and the model
            has no training rows.
        """
        if not check_flag("healed", healed):
            plain: FloatArray | tuple[FloatArray, FloatArray]
            plain = super().predict(X, return_std, y_std=y_std)
            return plain
        mean, variance = self._healed_moments(X)
        if self.mu_.ndim == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        if not check_flag("return_std", return_std):
            return mean
        return mean, np.sqrt(self._noise_of(y_std, len(mean)) + variance)

    def _healed_moments(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the function at these rows, each (n, n_outputs)."""
        check_is_fitted(self)
        training = self._training_rows()
        means, variances = self._moments(X, variance=True)
        assert variances is not None
        values, extra = self._rows(X)
        phi, n_threads = self._functions(values, extra), check_n_jobs(self.n_jobs)
        for output, model in enumerate(self._at_training_rows(training)):
            mean, variance = changes(model, values, phi, n_threads)
            means[:, output] += mean
            variances[:, output] += variance
        return means, variances

    def _at_training_rows(self, training: Training) -> Iterator[Fitted]:
        """Yield the fitted model of each output as arrays."""
        mus = self._output_weights()
        Phi = self._functions(training.X, self._training_extra(training))
        for mu, sigma, beta, target in zip(
            mus,
            np.broadcast_to(self.sigma_, (len(mus), *self.sigma_.shape[-2:])),
            np.broadcast_to(self.beta_ / (self._y_variance or 1.0), len(mus)),
            training.y.reshape(len(training.X), -1).T,
            strict=True,
        ):
            yield Fitted(
                X=training.X,
                weights=np.ones(len(training.X)) if training.weights is None else training.weights,
                Phi=Phi,
                block=np.where(self.active_ < 0, -1, self.active_ // self._block_size),
                target=target,
                alpha=self.alpha_,
                mu=mu,
                sigma=sigma,
                beta=float(beta),
                kernels=self._kernels(),
            )

    def _training_rows(self) -> Training:
        if is_precomputed(self.kernel_):
            raise ValueError(
                "healed=True puts a kernel function at each row of X, which takes kernel values that "
                "kernel='precomputed' has not; give the kernel as an object or a callable"
            )
        if self._kept is None:
            raise ValueError(
                "healed=True needs the training rows, and this model has none: fit it with keep_rows=True to "
                "rows in memory"
            )
        return self._kept
