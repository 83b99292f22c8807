"""What all estimators share: validate, build the design, fit in the core, publish attributes.

Two axes, free of one another: the *basis* (`KernelBasis`: one function per candidate; `ColumnBasis`: the
columns of X) and the *task* (regression, classification; see their modules).
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _core, _outputs
from ._arguments import check_prior, check_settings, learning_argument
from ._chunks import located, release
from ._design import Design, Layout
from ._numbers import check_predictions
from ._types import FloatArray, IntArray, Likelihood, OutputsProblem, Problem, Scheme, Settings
from ._validation import Training, check_training, check_X
from ._variational import check_variational
from ._watch import Watch
from .predictor import Predictor

AnyPosterior: TypeAlias = "_core.Posterior | _core.OutputPosterior"

#: How a fit may end, best first; several fits end as the worst of them. With it, what to do about it.
_REMEDIES = {
    "converged": "",
    "stopped": "",
    "noise_floor": "the estimate of the noise variance reached its floor, var(y) / 1e6: as far as the fit "
    "can tell y is free of noise. Set noise_variance to the noise you expect",
    "alpha_floor": "the prior precision of some weight reached its floor, 1e-15 for a column of unit length: "
    "the data ask for a weight without bound. Scale X or change the kernel width",
    "max_iter": "max_iter={max_iter} steps were not enough. Raise max_iter or tol",
    "stalled": "the model is close to an optimum that could not be reached to tol, as happens when basis "
    "functions depend on one another almost exactly, with very unequal sample weights, or for classes with a "
    "strong alpha_prior. Scale X, change the kernel width, weaken the prior, or raise tol",
}

#: Rows predicted at a time, so that memory does not grow with their number.
_PREDICT_ROWS = 8192


class Trainable(BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn carries no types
    """An estimator whose fit happens whole or not at all, and that says how it ended."""

    if TYPE_CHECKING:
        status_: str

    #: How a fit may end, and what to do about it.
    _remedies: ClassVar[dict[str, str]] = _REMEDIES

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has come to its end."""
        return hasattr(self, "status_")

    def to_predictor(self) -> Predictor:
        """Return the fitted model without the estimator, for services.

        Returns
        -------
        Predictor
            Predicts the same, in microseconds, and needs neither scikit-learn nor SciPy.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            If predictions take functions that only Python can evaluate: a callable as kernel, or
            ``extra_basis`` other than "linear".
        """
        from ._serving import to_predictor  # imports this module

        return to_predictor(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `sparsebayes.load` reads, whole or not at all.

        Parameters
        ----------
        path : str or path-like
            The format is safetensors, whatever the name; ``.safetensors`` is the custom.

        Raises
        ------
        NotFittedError, ValueError
            As for ``to_predictor``.
        TypeError, ValueError
            If ``path`` is no path.
        OSError
            If the file cannot be written; what was there is then still there.
        """
        self.to_predictor().save(path)

    @abstractmethod
    def _train_anew(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        """Fit, and publish attributes; whatever stands in the estimator when this raises is forgotten."""

    def _train(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._wholly(lambda: self._train_anew(X, y, sample_weight))

    def _wholly(self, train: Callable[[], None]) -> None:
        """Have ``train`` fit, whole or not at all; warnings name the line two calls further out."""
        before = self.__dict__.copy()
        try:
            train()
        except BaseException:
            # A fit that fails, or is interrupted, leaves the model that was there, and all of it.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        if remedy := self._remedies[self.status_]:
            name, remedy = type(self).__name__, remedy.format(**self.get_params(deep=False))
            message = f"{name} ended with status {self.status_!r}: {remedy}."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)


class SparseBayesEstimator(Trainable):
    """Template of the estimators that maximise the evidence of a basis."""

    if TYPE_CHECKING:
        scheme: Scheme
        search: str
        alpha_prior: tuple[float, float]
        tol: float
        max_iter: int
        n_jobs: int | None
        verbose: int
        callback: Any
        # After a fit.
        active_: IntArray
        alpha_: FloatArray
        mu_: FloatArray
        sigma_: FloatArray

    #: Whether y holds class labels.
    _labels: ClassVar[bool]
    #: Whether fits hand X to the core as it is, which sees what is not finite: to look for that first is one
    #: more pass over all of X.
    _core_reads_X: ClassVar[bool] = False

    @abstractmethod
    def _design(self, training: Training) -> Design:
        """Return the dictionary for these rows, ready for the core; publishes what it is made of."""

    @abstractmethod
    def _dense(self, training: Training) -> FloatArray:
        """Return the dictionary of the fitted model as an N x K matrix, evaluated in NumPy alone."""

    @abstractmethod
    def _layout(self, training: Training) -> Layout:
        """Return which column of the dictionary is which function."""

    @abstractmethod
    def _publish_basis(self, training: Training) -> None:
        """Publish attributes that depend on the kind of basis; those of the posterior are there."""

    def _rows(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the rows to predict at, checked, and any extra columns there, (n, p)."""
        values = check_X(self, X, reset=False)
        return values, np.empty((len(values), 0))

    @abstractmethod
    def _functions(self, X: FloatArray, extra: FloatArray) -> FloatArray:
        """Return the active functions at these rows, (n, n_active); ``extra``: the extra columns there."""

    @abstractmethod
    def _targets(self, labels_or_values: NDArray[Any], *, reset: bool) -> list[FloatArray]:
        """Return the target of each fit; ``reset``: learn the classes."""

    @abstractmethod
    def _check_likelihood(self) -> Likelihood:
        """Return the likelihood, checked."""

    def _takes_outputs(self) -> bool:
        """Whether y may have several columns."""
        return False

    def _publish_posteriors(self, posteriors: list[_core.Posterior], layout: Layout) -> None:
        """Publish ``active_``, ``alpha_``, ``mu_``, ``sigma_`` and what belongs to the likelihood."""
        (posterior,) = posteriors
        self.active_ = layout.names(posterior.active.astype(np.intp))
        self.alpha_, self.mu_, self.sigma_ = posterior.alpha, posterior.mu, posterior.sigma

    def _train_anew(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        settings = check_settings(self)
        training = check_training(
            self,
            X,
            y,
            sample_weight,
            labels=self._labels,
            outputs=self._takes_outputs(),
            unread=self._core_reads_X,
        )
        targets = self._targets(training.y, reset=True)
        likelihood = self._check_likelihood()
        check_variational(settings, likelihood, learning=bool(learning_argument(self)))
        design, posteriors = self._infer(training, targets, likelihood, settings)
        self._publish_fit(settings, likelihood, training.n_samples, design.n_basis, design.layout, posteriors)
        self._publish_basis(training)

    def _publish_fit(
        self,
        settings: Settings,
        likelihood: Likelihood,
        n_samples: int | None,
        n_basis: int,
        layout: Layout,
        posteriors: list[Any],
    ) -> None:
        """Publish all that does not depend on the kind of basis."""
        self._variational = settings.scheme == "variational"
        self._n_samples, self._n_basis, self._likelihood = n_samples, n_basis, likelihood
        self._laplace_is_exact = settings.laplace == "exact"
        self._shares_alpha = settings.share_alpha and likelihood == "multinomial"
        self._publish_record(posteriors)
        self._publish_posteriors(posteriors, layout)

    def _infer(
        self, training: Training, targets: list[FloatArray], likelihood: Likelihood, settings: Settings
    ) -> tuple[Design, list[Any]]:
        """Build the dictionary and fit the model of it to each target."""
        design = self._design(training)
        return design, self._fit_design(design, training, targets, likelihood, settings)

    def _fit_design(
        self,
        design: Design,
        training: Training,
        targets: list[FloatArray],
        likelihood: Likelihood,
        settings: Settings,
    ) -> list[Any]:
        watch = Watch(
            type(self).__name__,
            self.callback,
            bool(self.verbose),
            design.layout,
            likelihood == "gaussian",
            len(targets),
            design.n_basis,
            n_rows=training.n_samples,
        )
        if training.y.ndim == 1:
            _outputs.check_single(self, settings)
        posteriors: list[Any] = []
        for target in targets:
            posterior: AnyPosterior
            with watch.fit() as step:
                if target.ndim == 2:
                    posterior = _outputs.fit(self, design, training, settings, step)
                else:
                    posterior = design.fit(target, training.weights, likelihood, settings, step)
                watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
            posteriors.append(posterior)
        return posteriors

    def _publish_record(self, posteriors: list[AnyPosterior]) -> None:
        self._log_evidences = [posterior.log_evidence for posterior in posteriors]
        self.log_marginal_likelihood_path_ = _joint_path([posterior.trace for posterior in posteriors])
        # With priors the path holds the log posterior; that of the variational scheme ends at the bound.
        priors = sum(posterior.trace[-1] - posterior.log_evidence for posterior in posteriors)
        self.log_marginal_likelihood_ = float(self.log_marginal_likelihood_path_[-1] - priors)
        self.n_iter_ = sum(posterior.n_iter for posterior in posteriors)
        self.status_ = max((posterior.status for posterior in posteriors), key=list(_REMEDIES).index)

    def _output_weights(self) -> FloatArray:
        """Posterior means, (n_outputs, n_active)."""
        return np.atleast_2d(self.mu_.T)

    def _bias_weights(self) -> FloatArray:
        """Posterior mean of the bias for each output; 0 where it is not in the model."""
        bias: FloatArray = self._output_weights()[:, self.active_ == -1].sum(axis=1)
        return bias

    def _moments(self, X: ArrayLike, *, variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Return mean and, if asked for, variance of the linear predictor, each (n, n_outputs)."""
        check_is_fitted(self)
        if isinstance(X, np.memmap) and X.ndim == 2 and len(X) > _PREDICT_ROWS:
            return self._moments_of_mapped(X, variance=variance)
        values, extra = self._rows(X)
        weights = self._output_weights()
        sigmas = self.sigma_ if self.sigma_.ndim == 3 else self.sigma_[np.newaxis]
        means = np.empty((len(values), len(weights)))
        variances = np.empty_like(means) if variance else None
        for start in range(0, len(values), _PREDICT_ROWS):
            part = slice(start, start + _PREDICT_ROWS)
            phi = self._functions(values[part], extra[part])
            with np.errstate(over="ignore", invalid="ignore"):
                means[part] = phi @ weights.T
                if variances is not None:
                    for output, sigma in enumerate(sigmas):
                        # Rounding can leave a tiny negative where there is next to no variance.
                        variances[part, output] = np.maximum(((phi @ sigma) * phi).sum(axis=1), 0.0)
                    # Outputs with the same noise have the same covariance.
                    variances[part, len(sigmas) :] = variances[part, :1]
        check_predictions("X", *(part for part in (means, variances) if part is not None))
        return means, variances

    def _moments_of_mapped(self, X: Any, *, variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Return the moments at the rows of a mapped file, of which a few at a time come to memory."""
        parts = []
        for number, start in enumerate(range(0, len(X), _PREDICT_ROWS)):
            rows = X[start : start + _PREDICT_ROWS]
            with located(number, start, len(rows)):
                parts.append(self._moments(rows, variance=variance))
            release(X)
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances) if variance else None

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Iterator[Problem | OutputsProblem]:
        """Yield each fit of this estimator as arrays; give it the data it was fitted to."""
        check_is_fitted(self)
        training = check_training(
            self, X, y, sample_weight, labels=self._labels, reset=False, outputs=self._takes_outputs()
        )
        # A provider need not know how many rows it answers for.
        if self._n_samples is not None and training.n_samples != self._n_samples:
            raise ValueError(
                f"X and y must be the training data, {self._n_samples} rows; got {training.n_samples} rows"
            )
        if self._takes_outputs():
            n_outputs = [1 if part.ndim == 1 else part.shape[1] for part in (self.mu_, training.y)]
            if n_outputs[0] != n_outputs[1]:
                raise ValueError(
                    f"y must be the training data, with {n_outputs[0]} outputs; got {n_outputs[1]}"
                )
        likelihood = self._likelihood
        Phi, columns = self._dense(training), self._layout(training).columns(self.active_)
        if training.y.ndim == 2:
            yield _outputs.problem(self, training, Phi, columns)
            return
        for output, (target, evidence) in enumerate(
            zip(self._targets(training.y, reset=False), self._log_evidences, strict=True)
        ):
            active, alpha, mu = self._of_output(output, columns)
            yield Problem(
                Phi=Phi,
                target=target,
                weights=training.weights,
                active=active,
                alpha=alpha,
                mu=mu,
                beta=getattr(self, "beta_", 1.0),
                noise=self._noise_state(likelihood),
                likelihood=likelihood,
                alpha_prior=check_prior("alpha_prior", self.alpha_prior),
                noise_prior=check_prior("noise_prior", getattr(self, "noise_prior", (0.0, 0.0))),
                variational=getattr(self, "_variational", False),
                log_evidence=evidence,
                share_alpha=self._shares_alpha,
                exchanges=getattr(self, "search", "greedy") != "greedy",
                exact=getattr(self, "_laplace_is_exact", False),
            )

    def _of_output(self, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the functions of one fit, as the core counts them, with their alpha and mu."""
        one = self.alpha_.ndim == 1
        alpha, mu = (self.alpha_, self.mu_) if one else (self.alpha_[:, output], self.mu_[:, output])
        used = np.isfinite(alpha)
        return columns[used], alpha[used], mu[used]

    def _noise_state(self, likelihood: Likelihood) -> Literal["estimated", "fixed", "floor", "none"]:
        if likelihood != "gaussian":
            return "none"
        if getattr(self, "noise_variance", None) is not None:
            return "fixed"
        return "floor" if self.status_ == "noise_floor" else "estimated"


def _joint_path(traces: list[FloatArray]) -> FloatArray:
    """Sum of the log evidences of fits made one after another: those still to come stand at their start."""
    if len(traces) == 1:
        return traces[0]
    starts, ends = [trace[:1] for trace in traces], [trace[-1:] for trace in traces]
    parts = [np.sum(starts, axis=0)]
    for k, trace in enumerate(traces):
        parts.append(trace[1:] + np.sum([*ends[:k], *starts[k + 1 :]], axis=0))
    return np.concatenate(parts)
