"""Estimators fitted to providers of statistics, and to sums, instead of rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core
from .._checks.arguments import check_flag, check_integer, check_settings, learning_argument
from .._checks.targets import first_of_equal, learn_classes, naming
from .._data import candidates as _candidates
from .._progress import FitReporter
from .._types import FloatArray
from ..kernels._resolve import is_precomputed, measures_inputs, resolve
from . import outputs as _outputs
from .basis import KernelBasis, no_rows
from .probabilities import check_multi_class
from .status import RowSummary
from .variational import check_variational

if TYPE_CHECKING:
    from .._data.design import Layout
    from .._types import Likelihood, Settings

_METHODS: Final = ("target_moments", "deviance", "gradient", "among", "sweep")


def train_on_providers(
    estimator: Any, providers: list[Any], n_samples: int | None, classes: Any = None
) -> None:
    """Fit an estimator to one provider for each target, and publish all attributes of a fit."""
    estimator._run_atomically(partial(_train, estimator, providers, n_samples, classes))


def _train(estimator: Any, providers: list[Any], n_samples: int | None, classes: Any) -> None:
    if classes is not None:
        _learn_classes(estimator, classes, len(providers))
    likelihood, settings = estimator._check_likelihood(), check_settings(estimator)
    _outputs.check_single(estimator, settings)
    check_variational(settings, likelihood, learning=False)
    n_basis = _check(providers, likelihood)
    if n_samples is None:
        n_samples = getattr(providers[0], "n_samples", None)
    n_samples = None if n_samples is None else check_integer("n_samples", n_samples, least=1)
    bias = check_flag("fit_intercept", estimator.fit_intercept)
    _publish_functions(estimator, n_basis, bias)
    moved, shift = _near_zero(providers, estimator._n_columns() if bias else 0)
    for attribute in ("feature_names_in_", "_statistics"):
        estimator.__dict__.pop(attribute, None)  # from an earlier fit of rows
    fits = [partial(_core.fit_provider, provider) for provider in moved]
    publish_fits(estimator, fits, likelihood, settings, n_basis, RowSummary(n_samples), shift)


def _near_zero(providers: Sequence[Any], n_columns: int) -> tuple[Sequence[Any], FloatArray | float]:
    """Return providers with columns near 0, if they can shift them, and what was subtracted from each column.

    If the mean of a column exceeds a thousand standard deviations, centred sums keep too few digits.
    """
    first, nothing = providers[0], np.zeros(0, np.int64)
    if n_columns == 0 or not all(hasattr(provider, "shifted") for provider in providers):
        return providers, 0.0
    result = first.sweep(nothing, np.zeros(0), np.zeros(1, np.int64))
    try:
        _, _, squares, sums = result
        with np.errstate(all="ignore"):
            means, squares = (np.asarray(part)[-n_columns:] / sums[0, 0] for part in (sums[:, 0], squares))
            far = means**2 > 1e6 * np.maximum(squares - means**2, 0.0)
    except (TypeError, ValueError, IndexError):
        return providers, 0.0  # the fit calls sweep again, and reports what is wrong with the result
    if not far.any() or not np.isfinite(means).all():
        return providers, 0.0
    moved = [provider.shifted(means) for provider in providers]
    return (providers, 0.0) if any(provider is None for provider in moved) else (moved, means)


def publish_fits(
    estimator: Any,
    fits: Sequence[Callable[..., _core.Posterior]],
    likelihood: Likelihood,
    settings: Settings,
    n_basis: int,
    summary: RowSummary,
    shift: FloatArray | float = 0.0,
    *,
    stopped: bool = False,
) -> None:
    """Fit each target without its rows, and publish all attributes of a fit.

    With an intercept the columns among the functions, `_n_columns` of the estimator, are centred.

    Parameters
    ----------
    fits
        Functions of the core, with the data of one target each; they take the settings as keywords.
    n_basis
        Number of functions, with the constant one.
    shift
        What has been subtracted from each column before the fit.
    stopped
        Whether the callback has stopped the passes over the rows.
    """
    n_columns, rows = estimator._n_columns(), no_rows(estimator.n_features_in_, summary.n_rows or 0)
    layout: Layout = estimator._layout(rows)
    options = settings.of_one_target() | {"n_centred": n_columns if layout.bias else 0}
    has_noise = likelihood == "gaussian"
    watch = FitReporter(estimator, layout, n_basis, has_noise=has_noise, n_fits=len(fits), stopped=stopped)
    posteriors = []
    for fit in fits:
        with watch.fit() as step:
            posterior = fit(callback=step, **options)
            watch.end(posterior.status, posterior.n_iter, len(posterior.active), posterior.log_evidence)
        posteriors.append(posterior)
    means = posteriors[0].means  # subtracted from the columns by the fits, the same for all targets
    estimator._publish_offset(shift + (means if len(means) == n_columns else np.zeros(n_columns)))
    estimator._publish_fit(settings, likelihood, summary.n_rows, n_basis, layout, posteriors, summary)
    estimator._publish_basis(rows)


def _learn_classes(estimator: Any, classes: Any, n_providers: int) -> None:
    with naming("classes"):
        n_classes = len(np.unique(classes))
    if classes.ndim != 1 or n_classes < len(classes):
        raise ValueError(f"classes must hold each label once, in one dimension; got {classes!r}")
    estimator.classes_ = learn_classes(classes)
    if (estimator.classes_ != classes).any():
        raise ValueError(f"classes must be sorted, as providers are in their order; got {classes!r}")
    if check_multi_class(estimator.multi_class) and len(classes) > 2:
        raise ValueError("multi_class='softmax' needs the rows; for more than two classes take 'ovr'")
    needed = 1 if len(classes) == 2 else len(classes)
    if n_providers != needed:
        raise ValueError(
            f"provider must be {'one' if needed == 1 else f'a list of {needed}, one for each class,'} for "
            f"{len(classes)} classes; got {n_providers}"
        )


def _check(providers: Sequence[Any], likelihood: Likelihood) -> int:
    """Return the number of functions of the providers; raise TypeError or ValueError if one is invalid."""
    for provider in providers:
        methods = _METHODS if likelihood == "gaussian" else (*_METHODS, "variance_drift")
        missing = [name for name in methods if not callable(getattr(provider, name, None))]
        missing += [name for name in ("n_basis", "likelihood") if not hasattr(provider, name)]
        if missing:
            raise TypeError(
                f"provider must have what sparsebayes.PyStatistics has; {type(provider).__name__} lacks "
                f"{', '.join(missing)}"
            )
        if provider.likelihood != likelihood:
            raise ValueError(
                f"provider must have the likelihood of the estimator, {likelihood!r}; got "
                f"{provider.likelihood!r}"
            )
    counts = {check_integer("n_basis of provider", provider.n_basis, least=1) for provider in providers}
    if len(counts) > 1:
        raise ValueError(f"provider: all classes need the same functions; got {sorted(counts)}")
    return counts.pop()


def _publish_functions(estimator: Any, n_basis: int, bias: bool) -> None:
    """Publish the attributes of the dictionary; raise ValueError unless it has ``n_basis`` functions."""
    if not isinstance(estimator, KernelBasis):
        if n_basis <= int(bias):
            raise ValueError("provider must have a function besides the constant one; got n_basis=1")
        estimator.n_features_in_ = n_basis - int(bias)
        return
    n_kernels = _publish_kernels(estimator)
    expected = int(bias) + n_kernels * len(estimator.candidates_)
    if n_basis != expected:
        raise ValueError(
            f"provider must have the functions of the estimator, {expected}: {int(bias)} for fit_intercept, "
            f"and {n_kernels} kernel(s) centred at {len(estimator.candidates_)} candidates; got {n_basis}"
        )


def _publish_kernels(estimator: KernelBasis) -> int:
    """Publish kernels and centres of an estimator without rows; return the number of kernels."""
    if is_precomputed(estimator.kernel):
        raise ValueError("kernel='precomputed' needs the rows; take a kernel, or SparseBayes* on its columns")
    if argument := learning_argument(estimator):
        raise ValueError(f"{argument} needs the rows; learn a kernel on some, and give its kernel_")
    if estimator.extra_basis is not None:
        raise ValueError("extra_basis needs the rows; take SparseBayes* on columns of both kinds")
    if check_flag("keep_rows", getattr(estimator, "keep_rows", False)):
        raise ValueError("keep_rows must be False for a provider; got True")
    candidates: Any = estimator.candidates
    if np.ndim(candidates) != 2:
        raise ValueError(
            "candidates must be an array of centres, (n_candidates, n_features), for a provider; "
            f"got {candidates!r}"
        )
    estimator.__dict__.pop("candidate_rows_", None)
    width = int(np.shape(candidates)[1])
    estimator.candidates_ = _candidates._check_centres(estimator, candidates, width, precomputed=False)
    if len(first_of_equal(estimator.candidates_)) < len(estimator.candidates_):
        raise ValueError("candidates must be distinct for a provider; apply numpy.unique")
    estimator.n_features_in_ = width
    gamma = estimator.gamma
    if measures_inputs(estimator.kernel, gamma):
        raise ValueError(
            "gamma='scale' needs the rows, for their variance; give a number, or a kernel object"
        )
    if isinstance(gamma, str) and gamma == "scale":
        gamma = 1.0  # no kernel uses it
    kernels = resolve(
        estimator.kernel,
        X=np.empty((0, width)),
        gamma=gamma,
        degree=estimator.degree,
        coef0=estimator.coef0,
    )
    estimator.kernel_ = estimator._as_given(kernels)
    estimator.extra_basis_, estimator._n_extra = None, 0
    return len(kernels)
