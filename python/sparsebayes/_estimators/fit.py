"""From the arguments of ``fit`` to the fits of the core: rows in memory, rows in chunks, and sums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks.arguments import check_flag, check_settings, learning_argument
from .._checks.targets import Training, check_chunk_targets, check_training, check_X
from .._data import candidates as _candidates
from .._data.basis import Basis, basis_of, check_without_rows, sized, without_rows
from .._data.checkpoint import Checkpoint, check_path, digest, open_checkpoint
from .._data.chunks import Chunks, Rows, are_chunks, open_chunks
from .._data.design import centre
from .._data.out_of_core import Survey, basis_after, gather
from .._data.statistics import SufficientStatistics, check_memory_limit, check_room, in_words
from .._hyper import LearningData, check_learnable, check_model, learn
from .._types import FloatArray, Settings
from .chunked_classes import by_passes
from .likelihoods import Likelihood, Numbers, check_single, fit_of_outputs
from .run import Task
from .status import RowSummary, mean_excess
from .variational import check_variational

#: Name of this kind of fit in error messages.
CHUNKED_FIT: Final = "a fit that reads its rows in chunks"
#: Bytes of a row for each function in a model, and the number of functions to expect.
_ACTIVE_BYTES: Final = 24
_TYPICAL_ACTIVE: Final = 100
#: Learned kernels that are tried, best first, until a fit converges.
_MAX_KERNELS_TRIED: Final = 3


def validate(est: Any, X: Any, y: Any, sample_weight: Any, y_std: Any = None) -> Training | Chunks:
    """Return the rows, checked in memory or to be read in chunks."""
    limit = check_memory_limit(est.memory_limit)
    if (path := getattr(est, "checkpoint", None)) is not None:
        check_path(path)
    if are_chunks(X, y):
        if isinstance(X, (str, os.PathLike)) and os.fspath(X).endswith((".csv", ".tsv", ".txt")):
            raise ValueError(
                f"X: {X!r} is a text file; read it with pandas.read_csv, or use the command `sparsebayes fit`"
            )
        _check_chunked(est)
    elif not _is_too_large(est, X, y, limit):
        labels = est._labels
        return check_training(est, X, y, sample_weight, y_std=y_std, labels=labels, outputs=not labels)
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
    n_active = min(sized(est, *X.shape).n_summed, _TYPICAL_ACTIVE)
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
    if est._likelihood_of(None).name != "gaussian":
        raise ValueError(
            f"{doing} needs likelihood='gaussian': with another the sums over rows change with the "
            "weights; use fit"
        )


def build(est: Any, rows: Training | Chunks) -> Iterable[Task]:
    """Return the dictionary and its fits; if kernels are learned several dictionaries, the best first."""
    settings = check_settings(est)
    if isinstance(rows, Training):
        return _in_memory(est, rows, settings)
    publish_features(est, rows.n_features, rows.names)
    if est._labels:
        return [by_passes(est, rows, settings)]
    found = gather(est, rows)
    task = of_sums(est, found.basis, found.stats, settings)
    return [replace(task, stopped=found.stopped, checkpoint=found.checkpoint)]


def publish_features(est: Any, n_features: int, names: NDArray[Any] | None = None) -> None:
    """Publish number and names of the columns."""
    est.n_features_in_ = n_features
    est.__dict__.pop("feature_names_in_", None)
    if names is not None:
        est.feature_names_in_ = names


def of_sums(est: Any, basis: Basis, stats: SufficientStatistics, settings: Settings) -> Task:
    """Return the fit of sums over rows."""
    # A copy, as another thread may add rows.
    sums = stats._core.snapshot()
    check_single(est, settings)
    check_variational(settings, "gaussian", learning=False)
    # Centres may have been chosen among more rows than the callback let the sums read.
    basis = basis.whole(est, without_rows(est.n_features_in_, max(sums.n_rows, basis.size)))
    bias, n_basis = basis.bias, int(basis.bias) + basis.n_summed
    n_columns = basis.n_columns if bias else 0
    fit = partial(sums.fit, bias=bias, n_centred=n_columns, **settings.of_one_target())
    summary = RowSummary(sums.n_rows, sums.weight)
    return Task(basis, Numbers(), settings, [fit], n_basis, summary, shift=0.0)


def add_rows(est: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Task, SufficientStatistics]:
    """Return the fit of all rows so far and these, for ``partial_fit``, and their sums."""
    settings = check_settings(est)
    before: SufficientStatistics | None = getattr(est, "_statistics", None)
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


def _in_memory(est: Any, training: Training, settings: Settings) -> Iterator[Task]:
    likelihood: Likelihood = est._likelihood_of(training.y)
    targets = likelihood.targets(training.y)
    if training.noise is not None:
        if likelihood.name != "gaussian":
            raise ValueError(
                f"y_std must be None with likelihood={likelihood.name!r}, which has its own noise"
            )
        settings = settings.with_noise_of(training.noise.variance)
    check_variational(settings, likelihood.name, learning=bool(learning_argument(est)))
    if training.y.ndim == 1:
        check_single(est, settings)
    summary, offset = RowSummary.of(training), _offset_of(est, training, likelihood, settings)
    for shift in [offset, 0.0] if np.any(offset) else [0.0]:
        rows = replace(training, y=training.y - shift) if np.any(shift) else training
        for basis, learned in _bases(est, rows, likelihood, settings):
            design = basis.design(rows, settings.n_threads)
            if training.y.ndim == 2:
                fits = [fit_of_outputs(est, design, rows, settings)]
            else:
                fits = [
                    design.bind(
                        target,
                        rows.weights,
                        likelihood.name,
                        settings,
                        # The checkpoint belongs to a single fit; the fits that learn a kernel are short.
                        None if learned else partial(_checkpoint, est, rows, basis, target, len(targets)),
                    )
                    for target in (targets if rows is training else [rows.y])
                ]
            yield Task(
                basis, likelihood, settings, fits, design.n_basis, summary, training, shift, learned=learned
            )


def _checkpoint(
    est: Any, rows: Training, basis: Basis, target: FloatArray, n_targets: int
) -> Checkpoint | None:
    """Return the checkpoint of a fit in blocks; each of several classes has a file of its own."""
    if est.checkpoint is None:
        return None
    suffix = f".{digest(target)[:8]}" if n_targets > 1 else ""
    data = (rows.X, basis.centres, basis.columns, target, rows.weights)
    return open_checkpoint(est, *data, suffix=suffix)


def _offset_of(
    est: Any, training: Training, likelihood: Likelihood, settings: Settings
) -> FloatArray | float:
    """Return what to subtract from y before the fit and add to the intercept after it, mostly 0.

    The larger the mean of y, the smaller the precision of the intercept, 1 / mean(y)^2, which has a lower
    bound at 1e-15 sum(weights) / var(y). If it would come within three decades of that bound, y is
    shifted towards 0 to keep that distance. In the model this changes only the intercept.
    """
    if likelihood.name != "gaussian" or settings.alpha_prior != (0.0, 0.0):
        return 0.0
    if not check_flag("fit_intercept", est.fit_intercept):
        return 0.0
    return mean_excess(training.y, training.weights)


def _bases(
    est: Any, training: Training, likelihood: Likelihood, settings: Settings
) -> Iterator[tuple[Basis, bool]]:
    """Yield the basis of an estimator, or those of learned kernels, and whether kernels were learned."""
    if not (argument := learning_argument(est)):
        yield basis_of(est, training), False
        return
    check_model(argument, est.kernel, training.y, likelihood.name, settings)
    basis = basis_of(est, training)
    assert basis.columns is not None
    check_learnable(basis.kernels)
    given, columns = _candidates.are_given(est), centre(basis.columns.copy(), basis.offset)
    data = LearningData(
        X=training.X,
        centres=basis.centres,
        fixed=np.hstack([np.ones((len(training.X), int(basis.bias))), columns]),
        n_before=int(basis.bias),
        centre_rows=None if given else np.searchsorted(training.rows, basis.kept),
        targets=likelihood.targets(training.y),
        weights=np.ones(len(training.X)) if training.weights is None else training.weights,
        likelihood=likelihood.name,
        noise_variance=settings.noise_variance,
    )
    for kernels in learn(basis.kernels, data, settings)[:_MAX_KERNELS_TRIED]:
        yield replace(basis, kernels=kernels), True
