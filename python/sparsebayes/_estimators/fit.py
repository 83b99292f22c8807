"""From arguments to the fits of the core: rows in memory or in chunks, sums, sparse columns, providers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from .. import _core
from .._arrays import (
    TO_TABLE,
    Training,
    check_chunk_targets,
    check_training,
    check_X,
    first_of_equal,
    is_operator,
    is_unstored,
    learn_classes,
    naming,
    publish_features,
)
from .._cancellable import one_blas_thread
from .._checks import check_flag, check_integer, check_memory_limit, check_settings, in_words
from .._data import candidates as _candidates
from .._data.basis import (
    Basis,
    ColumnStatistics,
    basis_of,
    check_sums_suffice,
    check_without_rows,
    sized,
    without_rows,
)
from .._data.chunks import Chunks, Rows, are_chunks, check_path, files_of, open_chunks
from .._data.design import is_given
from .._data.statistics import SufficientStatistics, Survey, basis_after, check_room, gather
from .._row_likelihoods import ROW_LIKELIHOODS
from .._types import FloatArray, Settings
from .._types import Likelihood as Name
from ..kernels._resolve import is_precomputed, measures_inputs
from .class_rows import by_passes, check_class_weight
from .in_memory import in_memory, offset_of
from .likelihoods import Classes, Likelihood, Numbers, check_single, check_variational, with_unpenalized
from .noise import Start
from .posterior import check_multi_class
from .process import TYPICAL_ACTIVE
from .run import Task
from .status import RowSummary

#: Name of this kind of fit in error messages.
CHUNKED_FIT: Final = "a fit that reads its rows in chunks"
#: Bytes of a row for each function in a model.
_ACTIVE_BYTES: Final = 24
#: What providers of all likelihoods have.
_METHODS: Final = ("target_moments", "deviance", "gradient", "among", "sweep")


def validate(
    est: Any, X: Any, y: Any, sample_weight: Any, y_std: Any = None, exposure: Any = None
) -> Training | Chunks:
    """Return the rows, checked in memory or to be read in chunks."""
    limit = check_memory_limit(est.memory_limit)
    if (path := getattr(est, "checkpoint", None)) is not None:
        check_path(path)
    if are_chunks(X, y):
        if isinstance(X, (str, os.PathLike)):
            if os.fspath(X).endswith((".csv", ".tsv", ".txt")):
                raise ValueError(
                    f"X: {X!r} is a text file; read it with pandas.read_csv, or use the command "
                    "`sparsebayes fit`"
                )
            files_of(os.fspath(X))
        _check_chunked(est)
    elif not _is_too_large(est, X, y, limit):
        return check_training(est, X, y, sample_weight, y_std, exposure)
    if exposure is not None:
        raise ValueError(
            "exposure needs the rows in memory; give arrays, and raise memory_limit if they are large"
        )
    if y_std is not None:
        raise ValueError(
            "y_std needs the rows in memory; for rows that are read in chunks give weights proportional "
            "to 1 / y_std**2 with a mean of 1 as sample_weight, or raise memory_limit"
        )
    return open_chunks(X, y, sample_weight, labels=est._labels)


def _is_too_large(est: Any, X: Any, y: Any, limit: int) -> bool:
    """Tell whether an array is to be read in chunks, as a fit in memory would exceed the limit."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or X.size == 0:
        return False
    n_active = min(sized(est, *X.shape).n_summed, TYPICAL_ACTIVE)
    needed = 16.0 * X.size + _ACTIVE_BYTES * len(X) * n_active
    if needed <= limit:
        return False
    try:
        _check_chunked(est, y)
    except ValueError as error:
        if est.memory_limit is None and not isinstance(X, np.memmap):
            return False  # the limit was not set by the user
        raise ValueError(
            f"memory_limit is {in_words(limit)}, and a fit in memory needs about {in_words(needed)}. "
            f"Reading the rows in chunks is not possible: {error}; or raise memory_limit"
        ) from None
    return True


def _check_chunked(est: Any, y: Any = None) -> None:
    """Raise ValueError, naming the remedy, if an estimator cannot read its rows in chunks."""
    if est._labels:
        check_without_rows(est, CHUNKED_FIT)
        check_class_weight(est, CHUNKED_FIT)
        if getattr(est, "checkpoint", None) is not None:
            raise ValueError(
                "checkpoint must be None for a classification that reads its rows in chunks: set "
                "checkpoint=None, or give the rows as arrays and raise memory_limit"
            )
        return
    check_sums(est, CHUNKED_FIT)
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        raise ValueError(f"y must have one column for {CHUNKED_FIT}, got an array of shape {np.shape(y)}")


def check_sums(est: Any, doing: str) -> None:
    """Raise ValueError, naming the remedy, if sums over rows do not suffice for ``doing`` this."""
    check_without_rows(est, doing)
    check_sums_suffice(est, doing)
    if est._likelihood_of(None, None).name != "gaussian":
        raise ValueError(
            f"{doing} needs likelihood='gaussian': with another the sums over rows change with the "
            "weights; use fit with the rows in memory"
        )


def build(est: Any, rows: Training | Chunks, start: Start | None = None) -> Iterable[Task]:
    """Return the dictionary and its fits; if kernels are learned several dictionaries, the best first."""
    settings = check_settings(est)
    if isinstance(rows, Training):
        if is_unstored(rows.X):
            return _of_columns(est, rows, settings)
        return in_memory(est, rows, settings, start)
    publish_features(est, rows.n_features, rows.names)
    if est._labels:
        return [by_passes(est, rows, settings)]
    found = gather(est, rows)
    task = of_sums(est, found.basis, found.stats, settings)
    return [replace(task, stopped=found.stopped, checkpoint=found.checkpoint)]


def of_sums(est: Any, basis: Basis, stats: SufficientStatistics, settings: Settings) -> Task:
    """Return the fit of sums over rows."""
    # A copy, as another thread may add rows.
    sums = stats._core.snapshot()
    check_single(est, settings)
    # Centres may have been chosen among more rows than the callback let the sums read.
    basis = basis.whole(est, without_rows(est.n_features_in_, max(sums.n_rows, basis.size)))
    settings = with_unpenalized(est, basis, settings, Numbers())
    fit = partial(sums.fit, bias=basis.bias, n_centred=basis.n_centred, **settings.of_one_target())
    summary = RowSummary(sums.n_rows, sums.weight)
    return Task(basis, Numbers(), settings, [fit], summary, shift=0.0)


def add_rows(est: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Task, SufficientStatistics]:
    """Return the fit of all rows so far and these, for ``partial_fit``, and their sums."""
    settings = check_settings(est)
    before: SufficientStatistics | None = getattr(est, "_statistics", None)
    if is_unstored(X):
        raise TypeError("X must be a table for partial_fit, which keeps the products of all columns; use fit")
    values = check_X(est, X, reset=before is None)
    target, weights = check_chunk_targets("y", y, sample_weight, len(values))
    d = values.shape[1]
    if before is None:
        survey = Survey(est, d)
        survey.add(Rows(values, target, weights, 0, 0))
        basis = basis_after(est, survey.facts(est), d).for_calls(est)
        check_room(basis, d, check_memory_limit(est.memory_limit))
    else:
        basis = est._basis.for_calls(est).whole(est, without_rows(d))
    stats = SufficientStatistics(basis.n_summed, n_jobs=est.n_jobs)
    basis.add(stats, values, target, weights)
    if before is not None:
        stats.merge(before)
    return of_sums(est, basis, stats, settings), stats


def _of_columns(est: Any, training: Training, settings: Settings) -> list[Task]:
    """Return the fits of columns of a sparse matrix or a linear operator."""
    what = "X is a sparse matrix or a linear operator"
    likelihood: Likelihood = est._likelihood_of(training.y, training.weights)
    check_sums_suffice(est, "a sparse matrix or a linear operator")
    if likelihood.name == "multinomial":
        raise ValueError(f"multi_class must be 'ovr' where {what}; got 'softmax'")
    if isinstance(likelihood, Numbers) and likelihood.name not in ROW_LIKELIHOODS:
        raise ValueError(f"likelihood must be 'gaussian' or 'poisson' where {what}; got {likelihood.name!r}")
    if training.exposure is not None:
        raise ValueError(f"exposure must be None where {what}; or give {TO_TABLE}")
    if training.noise is not None or training.y.ndim == 2:
        raise ValueError(f"{what}: y must have one column, and y_std be None; or give {TO_TABLE}")
    check_single(est, settings)
    if settings.scheme == "variational":
        raise ValueError(f"scheme must not be 'variational' where {what}")
    if getattr(est, "checkpoint", None) is not None:
        raise ValueError(f"checkpoint must be None where {what}; got {est.checkpoint!r}")
    offset = offset_of(est, training, likelihood, settings) if settings.flat_intercept else 0.0
    X = training.X if is_operator(training.X) else training.X.tocsc()
    bias = check_flag("fit_intercept", est.fit_intercept)
    providers = [
        ColumnStatistics(X, target - offset, training.weights, likelihood.name, bias=bias)
        for target in likelihood.targets(training.y)
    ]
    names = getattr(est, "feature_names_in_", None)
    (task,) = of_providers(est, providers, len(training.y), likelihood)
    publish_features(est, est.n_features_in_, names)  # providers have no names
    fits = [one_blas_thread()(fit) for fit in task.fits]
    summary = replace(RowSummary.of(training), far=one_blas_thread()(providers[0].first_far)())
    return [replace(task, fits=fits, summary=summary, training=training, offset=offset)]


# --- providers of statistics instead of rows -----------------------------------------------------------


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
    n_basis = _check_providers(providers, likelihood.name)
    if n_samples is None:
        n_samples = getattr(providers[0], "n_samples", None)
    n_samples = None if n_samples is None else check_integer("n_samples", n_samples, least=1)
    basis = _basis_of_providers(est, n_basis)
    settings = with_unpenalized(est, basis, settings, likelihood)
    providers, shift = _near_zero(providers, basis.n_centred)
    options = settings.of_one_target() | {"n_centred": basis.n_centred}
    fits: list[Any] = [partial(_core.fit_provider, provider, **options) for provider in providers]
    return [Task(basis, likelihood, settings, fits, RowSummary(n_samples), shift=shift)]


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


def _check_providers(providers: Sequence[Any], likelihood: Name) -> int:
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


def _basis_of_providers(est: Any, n_basis: int) -> Basis:
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
