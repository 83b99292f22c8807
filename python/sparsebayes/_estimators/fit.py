"""From arguments to the fits of the core: rows in memory or in chunks, sums over rows, and sparse columns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from .._arrays import (
    Training,
    check_chunk_targets,
    check_training,
    check_X,
    is_operator,
    is_unstored,
    publish_features,
)
from .._cancellable import one_blas_thread
from .._checks import check_flag, check_settings
from .._data.basis import Basis, check_sums_suffice, check_without_rows, sized, without_rows
from .._data.checkpoint import check_path
from .._data.chunks import Chunks, Rows, are_chunks, files_of, open_chunks
from .._data.out_of_core import Survey, basis_after, gather
from .._data.statistics import SufficientStatistics, check_memory_limit, check_room, in_words
from .._data.unstored import ColumnStatistics
from .._row_likelihoods import ROW_LIKELIHOODS
from .._types import Settings
from .class_rows import by_passes, check_class_weight
from .in_memory import Start, in_memory, offset_of
from .likelihoods import Likelihood, Numbers, check_single, with_unpenalized
from .of_providers import of_providers
from .process import TYPICAL_ACTIVE
from .run import Task
from .status import RowSummary
from .variational import check_variational

#: Name of this kind of fit in error messages.
CHUNKED_FIT: Final = "a fit that reads its rows in chunks"
#: Bytes of a row for each function in a model.
_ACTIVE_BYTES: Final = 24


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
            "weights; use fit"
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
    check_sums_suffice(est, "a fit to sums over rows")
    # A copy, as another thread may add rows.
    sums = stats._core.snapshot()
    check_single(est, settings)
    check_variational(settings, "gaussian")
    # Centres may have been chosen among more rows than the callback let the sums read.
    basis = basis.whole(est, without_rows(est.n_features_in_, max(sums.n_rows, basis.size)))
    settings = with_unpenalized(est, basis, settings, Numbers())
    fit = partial(sums.fit, bias=basis.bias, n_centred=basis.n_centred, **settings.of_one_target())
    summary = RowSummary(sums.n_rows, sums.weight)
    return Task(basis, Numbers(), settings, [fit], basis.n_basis, summary, shift=0.0)


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
        basis = basis_after(est, survey.facts(est), d)
        check_room(basis, d, check_memory_limit(est.memory_limit))
    else:
        basis = est._basis.whole(est, without_rows(d))
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
        raise ValueError(f"exposure must be None where {what}; or give X.toarray()")
    if training.noise is not None or training.y.ndim == 2:
        raise ValueError(f"{what}: y must have one column, and y_std be None; or give X.toarray()")
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
    (task,) = of_providers(est, providers, len(training.y), likelihood)
    fits = [one_blas_thread()(fit) for fit in task.fits]
    return [replace(task, fits=fits, summary=RowSummary.of(training), training=training, offset=offset)]
