"""Regressions with several outputs: checks of their settings, the fit, and the attributes it publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core
from .._checks.arguments import check_flag, is_learned
from .._types import FloatArray, OutputsProblem, Settings

if TYPE_CHECKING:
    from .._checks.targets import Training
    from .._data.design import CoreCallback, Design, Layout
    from .._types import IntArray


#: The settings that several outputs need.
_NEEDED: Final[dict[str, Any]] = {
    "search": "greedy",
    "scheme": "sequential",
    "alpha_prior": (0, 0),
    "noise_prior": (0, 0),
}


def fit(
    estimator: Any, design: Design, training: Training, settings: Settings, callback: CoreCallback | None
) -> _core.OutputPosterior:
    """Fit one model to all columns of y, with the settings of ``estimator``."""
    _check_plain(settings)
    shared = check_flag("shared_noise", estimator.shared_noise)
    noise = _noise_variances(settings, training.y.shape[1], shared=shared)
    return design.core_fits()[1](
        np.asfortranarray(training.y),
        training.weights,
        noise_variance=noise,
        shared_noise=shared,
        tol=settings.tol,
        max_iter=settings.max_iter,
        n_threads=settings.n_threads,
        callback=callback,
    )


def are_possible(estimator: Any) -> bool:
    """Whether y may have several columns with these arguments."""
    learning = is_learned(getattr(estimator, "gamma", None)) or getattr(estimator, "optimize_kernel", False)
    plain = all(np.array_equal(getattr(estimator, name), needed) for name, needed in _NEEDED.items())
    return plain and not learning


def _check_plain(settings: Settings) -> None:
    """Raise ValueError if a setting is not available for several outputs."""
    for name, needed in _NEEDED.items():
        if (value := getattr(settings, name)) != needed:
            raise ValueError(
                f"{name} must be {needed!r} if y has several columns, got {value!r}; with another value "
                "fit the columns one by one"
            )


def _noise_variances(settings: Settings, n_outputs: int, *, shared: bool) -> list[float] | None:
    """Return a variance for each noise level, or None if they are estimated."""
    if settings.noise_variance is not None:
        return [settings.noise_variance] * (1 if shared else n_outputs)
    given = settings.noise_variances
    if given is None:
        return None
    if shared:
        raise ValueError("noise_variance must be one number with shared_noise=True, got an array")
    if len(given) != n_outputs:
        raise ValueError(
            f"noise_variance must be one number, or one for each of the {n_outputs} columns of y, "
            f"got {len(given)}"
        )
    return list(given)


def check_single(estimator: Any, settings: Settings) -> None:
    """Raise ValueError if a setting needs several outputs."""
    check_flag("shared_noise", getattr(estimator, "shared_noise", False))
    if settings.noise_variances is not None:
        raise ValueError(
            "noise_variance must be one number if y has one column, got an array of "
            f"{len(settings.noise_variances)}"
        )


def publish(estimator: Any, posterior: _core.OutputPosterior, layout: Layout) -> None:
    """Publish the posterior of all outputs; with shared noise they have one covariance and noise level."""
    shared = bool(estimator.shared_noise)
    estimator.active_ = layout.names(posterior.active.astype(np.intp))
    estimator.alpha_, estimator.mu_ = posterior.alpha, posterior.mu
    estimator.sigma_ = posterior.sigma[0] if shared else np.stack(posterior.sigma)
    estimator.beta_ = float(posterior.beta[0]) if shared else posterior.beta
    estimator.noise_variance_ = 1.0 / estimator.beta_
    estimator._noise_at_floor = posterior.at_floor


def problem(estimator: Any, training: Training, Phi: FloatArray, columns: IntArray) -> OutputsProblem:
    """Return the fit as dense arrays; ``columns`` are those of the active functions."""
    return OutputsProblem(
        Phi=Phi,
        targets=training.y,
        weights=training.weights,
        active=columns,
        alpha=estimator.alpha_,
        mu=estimator.mu_,
        beta=np.broadcast_to(estimator.beta_, training.y.shape[1]),
        shared_noise=estimator.sigma_.ndim == 2,
        fixed=estimator.noise_variance is not None,
        at_floor=estimator._noise_at_floor,
        log_evidence=estimator.log_marginal_likelihood_,
    )
