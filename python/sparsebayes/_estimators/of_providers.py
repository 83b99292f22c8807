"""Fits to providers of statistics instead of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from .. import _core
from .._arrays import first_of_equal, learn_classes, naming, publish_features
from .._checks import check_flag, check_integer, check_settings
from .._data import candidates as _candidates
from .._data.basis import Basis, basis_of, check_sums_suffice, check_without_rows, without_rows
from .._data.design import is_given
from .._row_likelihoods import ROW_LIKELIHOODS
from .._types import FloatArray
from .._types import Likelihood as Name
from ..kernels._resolve import is_precomputed, measures_inputs
from .class_rows import check_class_weight
from .likelihoods import Classes, Likelihood, Numbers, check_single, with_unpenalized
from .posterior import check_multi_class
from .run import Task
from .status import RowSummary
from .variational import check_variational

_METHODS: Final = ("target_moments", "deviance", "gradient", "among", "sweep")


def of_providers(
    est: Any, providers: Sequence[Any], n_samples: int | None, likelihood: Likelihood
) -> list[Task]:
    """Return the fits of an estimator to one provider for each target."""
    settings = check_settings(est)
    check_sums_suffice(est, "a fit to a provider")
    check_single(est, settings)
    check_variational(settings, likelihood.name)
    if isinstance(likelihood, Numbers) and likelihood.name not in ROW_LIKELIHOODS:
        raise ValueError(
            f"likelihood must be 'gaussian' or 'poisson' for a fit to a provider; got {likelihood.name!r}"
        )
    n_basis = _check(providers, likelihood.name)
    if n_samples is None:
        n_samples = getattr(providers[0], "n_samples", None)
    n_samples = None if n_samples is None else check_integer("n_samples", n_samples, least=1)
    basis = _basis(est, n_basis)
    settings = with_unpenalized(est, basis, settings, likelihood)
    providers, shift = _near_zero(providers, basis.n_centred)
    options = settings.of_one_target() | {"n_centred": basis.n_centred}
    fits: list[Any] = [partial(_core.fit_provider, provider, **options) for provider in providers]
    return [Task(basis, likelihood, settings, fits, n_basis, RowSummary(n_samples), shift=shift)]


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


def classes_of_providers(est: Any, classes: Any, n_providers: int) -> Classes:
    """Return the likelihood of classes whose rows are elsewhere; ValueError for invalid classes.

    The shares of the classes are still to be found.
    """
    check_class_weight(est, "a fit to a provider")
    with naming("classes"):
        n_classes = len(np.unique(classes))
    if classes.ndim != 1 or n_classes < len(classes):
        raise ValueError(f"classes must hold each label once, in one dimension; got {classes!r}")
    known = learn_classes(classes)
    if (known != classes).any():
        raise ValueError(f"classes must be sorted, as providers are in their order; got {classes!r}")
    if check_multi_class(est.multi_class) and len(classes) > 2:
        raise ValueError("multi_class='softmax' needs the rows; for more than two classes take 'ovr'")
    needed = 1 if len(classes) == 2 else len(classes)
    if n_providers != needed:
        raise ValueError(
            f"provider must be {'one' if needed == 1 else f'a list of {needed}, one for each class,'} for "
            f"{len(classes)} classes; got {n_providers}"
        )
    return Classes(known, "bernoulli", np.full(len(known), np.nan))


def _check(providers: Sequence[Any], likelihood: Name) -> int:
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


def _basis(est: Any, n_basis: int) -> Basis:
    """Return the basis of an estimator without rows; ValueError unless it has ``n_basis`` functions."""
    bias = check_flag("fit_intercept", est.fit_intercept)
    if not hasattr(est, "kernel"):
        if n_basis <= int(bias):
            raise ValueError("provider must have a function besides the constant one; got n_basis=1")
        publish_features(est, n_basis - int(bias))
    else:
        if np.ndim(est.candidates) != 2 and not is_precomputed(est.kernel):
            raise ValueError(
                "candidates must be an array of centres, (n_candidates, n_features), for a provider; "
                f"got {est.candidates!r}"
            )
        check_without_rows(est, "a fit to a provider")
        if is_given(est.extra_basis):
            raise ValueError("extra_basis needs the rows; take SparseBayes* on columns of both kinds")
        publish_features(est, int(np.shape(est.candidates)[1]))
        _candidates.place(est, without_rows(est.n_features_in_))
        if len(first_of_equal(est.candidates_)) < len(est.candidates_):
            raise ValueError("candidates must be distinct for a provider; apply numpy.unique")
        if measures_inputs(est.kernel, est.gamma):
            raise ValueError(f"gamma={est.gamma!r} needs the rows; give a number, or a kernel object")
    basis: Basis = basis_of(est, without_rows(est.n_features_in_), stored=False)
    if n_basis != basis.n_basis:
        raise ValueError(
            f"provider must have the functions of the estimator, {basis.n_basis}: {int(bias)} for "
            f"fit_intercept, and {len(basis.kernels)} kernel(s) centred at {len(est.candidates_)} "
            f"candidates; got {n_basis}"
        )
    return basis
