"""Base classes of all estimators: validate, build the design, fit in the core, publish attributes.

Estimators combine a *basis* (`KernelBasis`: one function per candidate; `ColumnBasis`: the columns of X) with
a *task* (regression or classification; see their modules).
"""

from __future__ import annotations

import html
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import _core
from .._checks.arguments import check_flag, check_prior, check_settings, learning_argument
from .._checks.numbers import check_predictions
from .._checks.targets import KnownNoise, Training, check_training, check_X, check_y_std
from .._data.chunks import located, release
from .._data.design import Design, Layout
from .._progress import FitReporter
from .._types import (
    Callback,
    FloatArray,
    IntArray,
    Likelihood,
    OutputsProblem,
    PerRow,
    Problem,
    Scheme,
    Search,
    Settings,
)
from ..predictor import Predictor
from . import outputs as _outputs
from .status import REMEDIES, RowSummary, is_constant, is_saturated, mean_excess, warning_of
from .variational import check_variational

AnyPosterior: TypeAlias = "_core.Posterior | _core.OutputPosterior"
#: A dictionary, and the posterior of each target.
Fits: TypeAlias = tuple[Design, list[Any]]

#: Rows predicted at a time, to bound the memory.
_PREDICT_ROWS = 8192


class _WholeValues:
    """A table of parameters in HTML that shows whole values instead of truncated ones."""

    _cell = re.compile(r'(?<=<td class="value">).*?(?=</td>)', re.DOTALL)

    def _html_repr(self) -> str:
        table: str = super()._html_repr()  # type: ignore[misc] # scikit-learn's class, the other base
        texts = [html.escape(repr(value)) for value in self.values()]  # type: ignore[attr-defined] # a dict
        if len(self._cell.findall(table)) != len(texts):
            return table  # an unknown version of the table
        whole = iter(texts)
        return self._cell.sub(lambda cell: next(whole), table)


@dataclass(kw_only=True, repr=False, eq=False)
class Trainable(BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn carries no types
    """An estimator whose fit is atomic, and which warns if it did not converge.

    The fields of the classes of an estimator are the arguments of its constructor, except those that a fit
    sets.
    """

    fit_intercept: bool = True
    n_jobs: int | None = None
    verbose: int = 0

    #: Whether y holds class labels.
    _labels: ClassVar[bool]

    # After a fit.
    active_: IntArray = field(init=False)
    status_: str = field(init=False)
    #: Facts about the rows of a fit, from its end to its warning.
    _row_summary: RowSummary = field(init=False)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has finished."""
        return hasattr(self, "status_")

    def __dask_tokenize__(self) -> Any:
        # Dask takes the fields of a dataclass for its whole state.
        return type(self), self.__getstate__()

    def __repr__(self, N_CHAR_MAX: int = 100_000) -> str:
        """Return the whole constructor call; scikit-learn would truncate long kernels."""
        return str(super().__repr__(N_CHAR_MAX=N_CHAR_MAX))

    def _get_params_html(self, deep: bool = False, **kwargs: Any) -> Any:
        """Return scikit-learn's table of parameters with whole values, without those of kernel objects."""
        params = super()._get_params_html(deep=False, **kwargs)
        params.__class__ = type("ParamsDict", (_WholeValues, type(params)), {})
        return params

    def to_predictor(self) -> Predictor:
        """Return the fitted model without the estimator, for services.

        Returns
        -------
        Predictor
            Makes the same predictions in microseconds, and needs neither scikit-learn nor SciPy.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            If predictions use functions that only Python can evaluate: a callable kernel, or an
            ``extra_basis`` other than "linear".
        """
        from .._export.description import to_predictor  # imports this module

        return to_predictor(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `sparsebayes.load` reads, completely or not at all.

        Parameters
        ----------
        path : str or path-like
            The format is safetensors, whatever the name; ``.safetensors`` is customary.

        Raises
        ------
        NotFittedError, ValueError
            As for ``to_predictor``.
        TypeError, ValueError
            If ``path`` is not a path.
        OSError
            If the file cannot be written; an existing file is then unchanged.
        """
        self.to_predictor().save(path)

    @abstractmethod
    def _fit_and_publish(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow) -> None:
        """Fit and publish attributes; if this raises, `_run_atomically` restores the previous attributes."""

    def _train(self, X: Any, y: Any, sample_weight: Any, **known: Any) -> None:
        self._run_atomically(lambda: self._fit_and_publish(X, y, sample_weight, **known))

    def _run_atomically(self, train: Callable[[], None]) -> None:
        """Run ``train`` atomically; warnings name the line of the caller's caller."""
        before = self.__dict__.copy()
        try:
            train()
        except BaseException:
            # A fit that fails or is interrupted keeps the previous model.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        summary = self.__dict__.pop("_row_summary")
        if self.status_ == "converged" and (self._is_empty() or is_constant(self, summary)):
            self.status_ = "empty"
        self._is_saturated = is_saturated(summary)
        if warning := warning_of(self, summary):
            category, message = warning
            warnings.warn(message, category, stacklevel=4)

    def _is_empty(self) -> bool:
        """Whether the model has no function but the intercept."""
        return not (self.active_ >= 0).any()

    def _kernel_contribution(self, X: FloatArray) -> FloatArray | None:
        """Return the contribution of the kernel functions at rows of X, without the intercept.

        None if there are more than a few functions, or they do not belong to kernels.
        """
        return None


@dataclass(kw_only=True, repr=False, eq=False)
class SparseBayesEstimator(Trainable):
    """Template of the estimators that maximise the evidence of a basis."""

    scheme: Scheme = "sequential"
    alpha_prior: tuple[float, float] = (0.0, 0.0)
    memory_limit: int | str | None = None
    search: Search = "greedy"
    tol: float = 1e-6
    max_iter: int = 100_000
    callback: Callback | None = None

    # After a fit.
    alpha_: FloatArray = field(init=False)
    mu_: FloatArray = field(init=False)
    sigma_: FloatArray = field(init=False)
    beta_: Any = field(init=False)
    noise_variance_: Any = field(init=False)
    log_marginal_likelihood_: float = field(init=False)
    log_marginal_likelihood_path_: FloatArray = field(init=False)
    _log_evidences: list[float] = field(init=False)

    #: Noise variance of a row of weight 1 in units of ``noise_variance_``: the harmonic mean of squares of
    #: ``y_std``. None: the fit had no ``y_std``.
    if TYPE_CHECKING:
        _y_variance: float | None = field(init=False)
    else:
        _y_variance = None
    #: Whether y may have several columns.
    _takes_outputs: ClassVar[bool] = False
    #: Whether the core receives X unchanged. It rejects values that are not finite, so a separate check,
    #: another pass over X, is not needed.
    _core_reads_X: ClassVar[bool] = False

    @abstractmethod
    def _design(self, training: Training) -> Design:
        """Return the dictionary for these rows in the form of the core; publishes its parts."""

    @abstractmethod
    def _dense(self, training: Training) -> FloatArray:
        """Return the dictionary of the fitted model as an N x K matrix, evaluated in NumPy alone."""

    @abstractmethod
    def _layout(self, training: Training) -> Layout:
        """Return the layout of the dictionary: the function that each column is."""

    @abstractmethod
    def _publish_basis(self, training: Training) -> None:
        """Publish attributes that depend on the kind of basis; the posterior is already published."""

    def _rows(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the checked rows to predict at, and the extra columns there, (n, p)."""
        values = check_X(self, X, reset=False)
        return values, np.empty((len(values), 0))

    @abstractmethod
    def _n_columns(self) -> int:
        """Return the number of functions, the last ones, that are columns centred by an intercept."""

    @abstractmethod
    def _publish_offset(self, offset: FloatArray) -> None:
        """Publish what was subtracted from each of these columns."""

    @abstractmethod
    def _functions(self, X: FloatArray, extra: FloatArray) -> FloatArray:
        """Return the active functions at these rows, (n, n_active); ``extra``: the extra columns there."""

    @abstractmethod
    def _targets(self, labels_or_values: NDArray[Any], *, reset: bool) -> list[FloatArray]:
        """Return the target of each fit; ``reset``: learn the classes."""

    @abstractmethod
    def _check_likelihood(self) -> Likelihood:
        """Return the likelihood, checked."""

    def _publish_posteriors(self, posteriors: list[_core.Posterior], layout: Layout) -> None:
        """Publish ``active_``, ``alpha_``, ``mu_``, ``sigma_`` and the attributes of the likelihood."""
        (posterior,) = posteriors
        self.active_ = layout.names(posterior.active.astype(np.intp))
        self.alpha_, self.mu_, self.sigma_ = posterior.alpha, posterior.mu, posterior.sigma

    def _training(self, X: Any, y: Any, sample_weight: Any, y_std: Any, **options: bool) -> Training:
        labels, outputs = self._labels, self._takes_outputs
        return check_training(
            self, X, y, sample_weight, y_std=y_std, labels=labels, outputs=outputs, **options
        )

    def _fit_and_publish(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow, y_std: PerRow = None
    ) -> None:
        settings = check_settings(self)
        training = self._training(X, y, sample_weight, y_std, unread=self._core_reads_X)
        targets = self._targets(training.y, reset=True)
        likelihood = self._check_likelihood()
        if training.noise is not None:
            if likelihood != "gaussian":
                raise ValueError(
                    f"y_std must be None with likelihood={likelihood!r}, which has its own noise"
                )
            settings = settings.with_noise_of(training.noise.variance)
        check_variational(settings, likelihood, learning=bool(learning_argument(self)))
        summary = RowSummary.of(training)
        offset = self._offset_of(training, settings)
        if np.any(offset):
            centred = replace(training, y=training.y - offset)
            design, posteriors = self._infer(centred, [centred.y], settings)
            if 0 not in posteriors[0].active:  # the bias was pruned, so the offset cannot be added to it
                offset = 0.0
        if not np.any(offset):
            design, posteriors = self._infer(training, targets, settings)
        n_samples, n_basis, layout = training.n_samples, design.n_basis, design.layout
        self._publish_fit(settings, likelihood, n_samples, n_basis, layout, posteriors, summary, offset)
        if training.noise is not None:
            self._publish_known_noise(training.noise)
        self._publish_basis(training)

    def _offset_of(self, training: Training, settings: Settings) -> FloatArray | float:
        """Return what to subtract from y before the fit and add to the intercept after it, mostly 0.

        The larger the mean of y, the smaller the precision of the intercept, 1 / mean(y)^2, which has a lower
        bound at 1e-15 sum(weights) / var(y). If it would come within three decades of that bound, y is
        shifted towards 0 to keep that distance. In the model this changes only the intercept.
        """
        if self._check_likelihood() != "gaussian" or settings.alpha_prior != (0.0, 0.0):
            return 0.0
        if not check_flag("fit_intercept", getattr(self, "fit_intercept", False)):
            return 0.0
        return mean_excess(training.y, training.weights)

    def _publish_fit(
        self,
        settings: Settings,
        likelihood: Likelihood,
        n_samples: int | None,
        n_basis: int,
        layout: Layout,
        posteriors: list[Any],
        summary: RowSummary,
        offset: FloatArray | float = 0.0,
    ) -> None:
        """Publish all attributes that do not depend on the kind of basis.

        ``offset``: what was subtracted from y, of each output.
        """
        self._variational = settings.scheme == "variational"
        self._n_samples, self._n_basis, self._likelihood = n_samples, n_basis, likelihood
        self._y_variance = None
        self._publish_record(posteriors)
        self._publish_posteriors(posteriors, layout)
        self._offset = offset
        self.mu_[self.active_ == -1] += offset
        self._row_summary = replace(
            summary, n_effective=_effective_parameters(posteriors, likelihood, n_basis)
        )

    def _publish_known_noise(self, noise: KnownNoise) -> None:
        """Publish noise in units of ``y_std`` squared, and the evidence of these standard deviations."""
        self._y_variance = noise.variance
        self.beta_ *= noise.variance
        self.noise_variance_ = 1.0 / self.beta_
        self._log_evidences = [evidence + noise.log_evidence for evidence in self._log_evidences]
        self.log_marginal_likelihood_path_ = self.log_marginal_likelihood_path_ + noise.log_evidence
        self.log_marginal_likelihood_ += noise.log_evidence

    def _noise_of(self, y_std: PerRow, n_rows: int) -> Any:
        """Return the noise variance of rows with these standard deviations of their targets."""
        if self._y_variance is None:
            if y_std is not None:
                raise ValueError(
                    "y_std is for models that were fitted with y_std; this one has the same noise in all rows"
                )
            return self.noise_variance_
        if y_std is None:
            return self.noise_variance_ * self._y_variance
        return self.noise_variance_ * check_y_std(y_std, n_rows) ** 2

    def _predict(
        self, X: ArrayLike, return_std: bool, y_std: PerRow
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Return mean and, if asked for, standard deviation of Gaussian targets.

        The mean is mu^T phi(x), the variance 1 / beta + phi(x)^T Sigma phi(x) (Tipping 2001, equations 21
        and 22).
        """
        mean, variance = self._moments(X, variance=check_flag("return_std", return_std))
        return self._targets_at(mean, variance, y_std)

    def _targets_at(
        self, mean: FloatArray, variance: FloatArray | None, y_std: PerRow
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Return mean and, unless ``variance`` is None, standard deviation of targets."""
        if self.mu_.ndim == 1:
            mean, variance = mean[:, 0], None if variance is None else variance[:, 0]
        return mean if variance is None else (mean, np.sqrt(self._noise_of(y_std, len(mean)) + variance))

    def _infer(self, training: Training, targets: list[FloatArray], settings: Settings) -> Fits:
        """Build the dictionary and fit a model of it to each target."""
        design = self._design(training)
        return design, self._fit_design(design, training, targets, settings)

    def _fit_design(
        self, design: Design, training: Training, targets: list[FloatArray], settings: Settings
    ) -> list[Any]:
        likelihood = self._check_likelihood()
        watch = FitReporter(
            self,
            design.layout,
            design.n_basis,
            has_noise=likelihood == "gaussian",
            n_fits=len(targets),
            n_rows=training.n_samples,
            noise=training.noise,
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
        # With priors the path holds the log posterior; the variational path ends at the bound.
        priors = sum(posterior.trace[-1] - posterior.log_evidence for posterior in posteriors)
        self.log_marginal_likelihood_ = float(self.log_marginal_likelihood_path_[-1] - priors)
        self.n_iter_ = sum(posterior.n_iter for posterior in posteriors)
        self.status_ = max((posterior.status for posterior in posteriors), key=list(REMEDIES).index)

    def _output_weights(self) -> FloatArray:
        """Return the posterior means, (n_outputs, n_active)."""
        return np.atleast_2d(self.mu_.T)

    def _bias_weights(self) -> FloatArray:
        """Return the posterior mean of the bias for each output, 0 if it is not in the model."""
        bias: FloatArray = self._output_weights()[:, self.active_ == -1].sum(axis=1)
        return bias

    def _moments(self, X: ArrayLike, *, variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Return mean and, if asked for, variance of the linear predictor, each (n, n_outputs)."""
        check_is_fitted(self)
        if isinstance(X, np.memmap) and X.ndim == 2 and len(X) > _PREDICT_ROWS:
            return self._moments_of_memmap(X, variance=variance)
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
                        # By rounding a variance close to 0 may be negative.
                        variances[part, output] = np.maximum(((phi @ sigma) * phi).sum(axis=1), 0.0)
                    # Outputs with the same noise have the same covariance.
                    variances[part, len(sigmas) :] = variances[part, :1]
        check_predictions("X", *(part for part in (means, variances) if part is not None))
        return means, variances

    def _moments_of_memmap(self, X: Any, *, variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Return the moments at the rows of a memory-mapped file, reading a few rows at a time."""
        parts = []
        for number, start in enumerate(range(0, len(X), _PREDICT_ROWS)):
            rows = X[start : start + _PREDICT_ROWS]
            with located(number, start, len(rows)):
                parts.append(self._moments(rows, variance=variance))
            release(X)
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances) if variance else None

    def _problems(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, y_std: PerRow = None
    ) -> Iterator[Problem | OutputsProblem]:
        """Yield each fit of this estimator as arrays, given the training data."""
        check_is_fitted(self)
        training = self._training(X, y, sample_weight, y_std, reset=False)
        if (self._y_variance is None) != (training.noise is None):
            raise ValueError(
                f"y_std must be that of the fit, which had {'none' if y_std is not None else 'one'}"
            )
        # A provider may not know its number of rows.
        if self._n_samples is not None and training.n_samples != self._n_samples:
            raise ValueError(
                f"X and y must be the training data, {self._n_samples} rows; got {training.n_samples} rows"
            )
        n_outputs = [1 if part.ndim == 1 else part.shape[1] for part in (self.mu_, training.y)]
        if self._takes_outputs and n_outputs[0] != n_outputs[1]:
            raise ValueError(f"y must be the training data, with {n_outputs[0]} outputs; got {n_outputs[1]}")
        training = replace(training, y=training.y - self._offset) if np.any(self._offset) else training
        likelihood = self._likelihood
        Phi, columns = self._dense(training), self._layout(training).columns(self.active_)
        if training.y.ndim == 2:
            yield _outputs.problem(self, training, Phi, columns)
            return
        noise = training.noise
        variance = 1.0 if noise is None else noise.variance  # of a row of weight 1
        shape, rate = check_prior("noise_prior", getattr(self, "noise_prior", (0.0, 0.0)))
        for output, (target, evidence) in enumerate(
            zip(self._targets(training.y, reset=False), self._log_evidences, strict=True)
        ):
            active, alpha, mu = self._model_of_output(output, columns)
            yield Problem(
                Phi=Phi,
                target=target,
                weights=training.weights,
                active=active,
                alpha=alpha,
                mu=mu,
                beta=getattr(self, "beta_", 1.0) / variance,
                noise=self._noise_state(likelihood),
                likelihood=likelihood,
                alpha_prior=check_prior("alpha_prior", self.alpha_prior),
                noise_prior=(shape, rate * variance),
                variational=getattr(self, "_variational", False),
                log_evidence=evidence,
                exchanges=getattr(self, "search", "greedy") != "greedy",
                log_evidence_of_weights=0.0 if noise is None else noise.log_evidence,
            )

    def _model_of_output(self, output: int, columns: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the columns of one fit in the dictionary, with their alpha and mu."""
        alpha, mu = self.alpha_, self.mu_
        if np.any(self._offset):
            mu = mu.copy()
            mu[self.active_ == -1] -= self._offset
        if alpha.ndim == 2:
            alpha, mu = alpha[:, output], mu[:, output]
        used = np.isfinite(alpha)
        return columns[used], alpha[used], mu[used]

    def _noise_state(self, likelihood: Likelihood) -> Literal["estimated", "fixed", "floor", "none"]:
        if likelihood != "gaussian":
            return "none"
        if getattr(self, "noise_variance", None) is not None:
            return "fixed"
        return "floor" if self.status_ == "noise_floor" else "estimated"


def _effective_parameters(posteriors: list[Any], likelihood: Likelihood, n_basis: int) -> float:
    """Return sum_j gamma_j = sum_j (1 - alpha_j Sigma_jj), the maximum over the outputs."""
    sums = [0.0]
    for posterior in posteriors:
        if isinstance(posterior, _core.OutputPosterior):
            sums += [float((1.0 - posterior.alpha * sigma.diagonal()).sum()) for sigma in posterior.sigma]
        elif likelihood == "multinomial" and len(posterior.active) > 0:
            sums += np.bincount(posterior.active // n_basis, weights=posterior.gamma).tolist()
        else:
            sums.append(float(posterior.gamma.sum()))
    return max(sums)


def _joint_path(traces: list[FloatArray]) -> FloatArray:
    """Return the summed log evidence of consecutive fits; fits yet to begin count with their start value."""
    if len(traces) == 1:
        return traces[0]
    starts, ends = [trace[:1] for trace in traces], [trace[-1:] for trace in traces]
    parts = [np.sum(starts, axis=0)]
    for k, trace in enumerate(traces):
        parts.append(trace[1:] + np.sum([*ends[:k], *starts[k + 1 :]], axis=0))
    return np.concatenate(parts)
