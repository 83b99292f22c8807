"""Moments of the linear predictor of a fitted model, and the model as arrays for its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._arrays import check_training, check_X
from .._checks import check_n_jobs, check_predictions, check_prior
from .._data.basis import output_weights
from .._data.chunks import located, release
from .._types import FloatArray, OutputsProblem, PerRow, Problem
from .status import MAX_CONSTANT_FUNCTIONS

#: Rows predicted at a time, to bound the memory.
_ROWS = 8192


def moments(est: Any, X: ArrayLike, *, variance: bool) -> tuple[FloatArray, FloatArray | None]:
    """Return mean and, if asked for, variance of the linear predictor, each (n, n_outputs)."""
    check_is_fitted(est)
    if isinstance(X, np.memmap) and X.ndim == 2 and len(X) > _ROWS:
        parts = []
        for number, start in enumerate(range(0, len(X), _ROWS)):
            rows = X[start : start + _ROWS]
            with located(number, start, len(rows)):
                parts.append(moments(est, rows, variance=variance))
            release(X)
        means, variances = (list(part) for part in zip(*parts, strict=True))
        return np.concatenate(means), np.concatenate(variances) if variance else None
    values, n_threads = check_X(est, X, reset=False), check_n_jobs(est.n_jobs)
    weights = output_weights(est)
    sigmas = est.sigma_ if est.sigma_.ndim == 3 else est.sigma_[np.newaxis]
    mean = np.empty((len(values), len(weights)))
    v = np.empty_like(mean) if variance else None
    for start in range(0, len(values), _ROWS):
        part = slice(start, start + _ROWS)
        phi = est._basis.functions(est.active_, values[part], n_threads)
        with np.errstate(over="ignore", invalid="ignore"):
            mean[part] = phi @ weights.T
            if v is not None:
                for output, sigma in enumerate(sigmas):
                    # By rounding a variance close to 0 may be negative.
                    v[part, output] = np.maximum(((phi @ sigma) * phi).sum(axis=1), 0.0)
                # Outputs with the same noise have the same covariance.
                v[part, len(sigmas) :] = v[part, :1]
    check_predictions(*(values for values in (mean, v) if values is not None))
    return mean, v


def kernel_contribution(est: Any, X: FloatArray) -> FloatArray | None:
    """Return the contribution of a few kernel functions at rows of X, (n, n_outputs), without the intercept.

    None if there are many, or extra columns.
    """
    if est.extra_basis_ is not None or len(est.relevance_) > MAX_CONSTANT_FUNCTIONS:
        return None
    columns = est.active_ >= 0
    phi = est._basis.functions(est.active_, X, check_n_jobs(est.n_jobs))
    contribution: FloatArray = phi[:, columns] @ output_weights(est)[:, columns].T
    return contribution


def problems(
    est: Any, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, y_std: PerRow = None
) -> Iterator[Problem | OutputsProblem]:
    """Yield each fit of an estimator as arrays, given the training data."""
    check_is_fitted(est)
    labels = est._labels
    training = check_training(
        est, X, y, sample_weight, y_std=y_std, labels=labels, outputs=not labels, reset=False
    )
    if (est._y_variance is None) != (training.noise is None):
        raise ValueError(f"y_std must be that of the fit, which had {'none' if y_std is not None else 'one'}")
    # A provider may not know its number of rows.
    if est._n_samples is not None and training.n_samples != est._n_samples:
        raise ValueError(
            f"X and y must be the training data, {est._n_samples} rows; got {training.n_samples} rows"
        )
    n_outputs = [1 if part.ndim == 1 else part.shape[1] for part in (est.mu_, training.y)]
    if not labels and n_outputs[0] != n_outputs[1]:
        raise ValueError(f"y must be the training data, with {n_outputs[0]} outputs; got {n_outputs[1]}")
    if np.any(est._offset):
        training = replace(training, y=training.y - est._offset)
    Phi = est._basis.dense(est, training)
    columns = est._basis.whole(est, training).layout.columns(est.active_)
    if training.y.ndim == 2:
        yield OutputsProblem(
            Phi=Phi,
            targets=training.y,
            weights=training.weights,
            active=columns,
            alpha=est.alpha_,
            mu=est.mu_,
            beta=np.broadcast_to(est.beta_, training.y.shape[1]),
            shared_noise=est.sigma_.ndim == 2,
            fixed=est.noise_variance is not None,
            at_floor=est._noise_at_floor,
            log_evidence=est.log_marginal_likelihood_,
        )
        return
    likelihood, noise = est._likelihood, training.noise
    variance = 1.0 if noise is None else noise.variance  # of a row of weight 1
    shape, rate = check_prior("noise_prior", getattr(est, "noise_prior", (0.0, 0.0)))
    for output, (target, evidence) in enumerate(
        zip(likelihood.targets(training.y), est._log_evidences, strict=True)
    ):
        active, alpha, mu = likelihood.model_of(est, output, columns)
        yield Problem(
            Phi=Phi,
            target=target,
            weights=training.weights,
            active=active,
            alpha=alpha,
            mu=mu,
            beta=getattr(est, "beta_", 1.0) / variance,
            noise=_noise_state(est),
            likelihood=likelihood.name,
            alpha_prior=check_prior("alpha_prior", est.alpha_prior),
            noise_prior=(shape, rate * variance),
            variational=est._variational,
            log_evidence=evidence,
            exchanges=est.search != "greedy",
            log_evidence_of_weights=0.0 if noise is None else noise.log_evidence,
        )


def _noise_state(est: Any) -> Literal["estimated", "fixed", "floor", "none"]:
    if est._likelihood.name != "gaussian":
        return "none"
    if est.noise_variance is not None:
        return "fixed"
    return "floor" if est.status_ == "noise_floor" else "estimated"
