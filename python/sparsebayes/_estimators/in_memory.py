"""The fits of rows in memory: the dictionary, with kernels that are given or learned, and its likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import Training
from .._checks import check_flag, is_auto
from .._data import candidates as _candidates
from .._data.basis import Basis, basis_of, learns_kernel, with_linear_terms
from .._data.chunks import Checkpoint, digest, open_checkpoint
from .._hyper.evidence import FewCounts, LearningData
from .._hyper.learner import learn, natural
from .._row_likelihoods import DISPERSED
from .._types import FloatArray, ProcessRole, Settings
from ..kernels import Kernel
from ..kernels._base import all_log_parameters
from ..kernels._resolve import learns_smoothness
from .groups import fit_of_groups
from .likelihoods import Classes, Likelihood, Numbers, check_single, fit_of_outputs, with_unpenalized
from .noise import FIRST_FREEDOM, DispersionFit, Start, StudentFit
from .process import number_of_landmarks
from .process_regression import row_weights
from .run import Task
from .status import RowSummary
from .variational import check_variational

#: The mean of y is far from 0 if it exceeds so many standard errors.
_MAX_STANDARD_ERRORS: Final = 1e6
#: Learned kernels that are tried, best first, until a fit converges.
_MAX_KERNELS_TRIED: Final = 3
#: Kernels for counts of a smaller mean are compared by how well counts are predicted.
_FEW_COUNTS: Final = 1.0
#: Most centres to select from if a Gaussian process is the prior of the final weights: their functions are
#: then beside up to two thousand landmarks. Measured: docs/notebook/final-weights.md.
_SELECTION_CENTRES: Final = 500
#: With so many rows only the best is tried: each fit takes minutes.
_MANY_ROWS: Final = 100_000
#: Fewest landmarks, or all rows, that follow a rough kernel as well as a smooth one.
_LANDMARKS_OF_ROUGH: Final = 100


def in_memory(est: Any, training: Training, settings: Settings, start: Start | None = None) -> Iterator[Task]:
    likelihood: Likelihood = est._likelihood_of(training.y, training.weights)
    likelihood.targets(training.y)  # raises an error for those that it cannot have
    if training.noise is not None:
        if likelihood.name != "gaussian":
            raise ValueError(
                f"y_std must be None with likelihood={likelihood.name!r}, which has its own noise"
            )
        settings = settings.with_noise_of(training.noise.variance)
    if training.exposure is not None and isinstance(likelihood, Numbers):
        likelihood.check_has_exposure()
    check_variational(settings, likelihood.name)
    if training.y.ndim == 1:
        check_single(est, settings)
    summary, offset = RowSummary.of(training), offset_of(est, training, likelihood, settings)
    shifts = [offset, 0.0] if np.any(offset) and not settings.flat_intercept else [offset]
    for shift in shifts:
        rows = training if isinstance(likelihood, Classes) else likelihood.shifted(training, shift)
        learning = _to_learn_from(est, rows, likelihood, settings)
        bases = _bases(est, learning, settings)
        if start is not None:
            task, same = start.task, basis_of(est, rows)
            if task.basis.n_columns > same.n_columns:
                same = with_linear_terms(same, rows)
            same = replace(same, kernels=task.basis.kernels, kept=task.basis.kept, centres=task.basis.centres)
            of_process = None if task.of_process is None else task.of_process.kernels
            # A process in reserve that was taken remains: no fit reaches this evidence.
            least = np.inf if task.role == "reserve" and task.sparse is None else None
            bases = iter([_Dictionary(same, least, of_process, task.role)])
        fits = _Fits(est, training, rows, likelihood, learning, settings, summary, shift)
        yield from (fits.of(dictionary, start) for dictionary in bases)


class _Fits(NamedTuple):
    """What the fits of all dictionaries of some rows have in common."""

    est: Any
    training: Training
    #: With shifted targets.
    rows: Training
    likelihood: Likelihood
    learning: _Learning
    settings: Settings
    summary: RowSummary
    shift: FloatArray | float

    def of(self, dictionary: _Dictionary, start: Start | None = None) -> Task:
        """Return the fits of a dictionary."""
        est, training, rows, likelihood, learning, settings, summary, shift = self
        basis, least_evidence, of_process, role, log_variance = dictionary
        if learning.likelihood is not likelihood and least_evidence is not None:
            least_evidence = -np.inf  # another likelihood has another evidence
        n_landmarks = number_of_landmarks(est, basis, training, settings)
        process, sparse = None, None
        if of_process is not None:
            process = replace(basis, kernels=of_process)
            if is_auto(est.landmarks):
                sparse = partial(self.of, _Dictionary(basis))
            if role != "reserve" and sparse is not None and not _candidates.are_given(est):
                if (centres := _candidates.for_process(est, training)) is not None:
                    process = replace(process, kept=centres, centres=training.at(centres))
                basis = _evenly_spaced(basis, _SELECTION_CENTRES)
        elif not est._labels and is_auto(getattr(est, "landmarks", None)):
            n_landmarks = None
        design = basis.design(rows.X, settings.n_threads)
        own = with_unpenalized(est, basis, settings, likelihood)
        parameters: DispersionFit | StudentFit | None = None
        fits: list[Callable[..., Any]] = []
        if getattr(est, "groups", None) is not None:
            if likelihood.name != "gaussian":
                raise ValueError(f"likelihood must be 'gaussian' with groups; got {likelihood.name!r}")
            fits = [fit_of_groups(est, basis, rows, own)]
        elif training.y.ndim == 2:
            fits = [fit_of_outputs(est, design, rows, own)]
        elif start is not None:
            fits = [design.bind(rows.y, rows.weights, likelihood.name, own, first=start.first)]
        elif isinstance(likelihood, Numbers) and likelihood.name != "gaussian":
            if likelihood.name == "student_t":
                parameters = StudentFit(basis, design, rows, likelihood, own, learning.start)
            elif likelihood.name in DISPERSED:
                parameters = DispersionFit(basis, design, rows, likelihood, own)
            extra: Any = {} if rows.exposure is None else {"offset": np.log(rows.exposure)}
            fits = [parameters or design.bind(rows.y, rows.weights, likelihood.name, own, **extra)]
        else:
            targets = likelihood.targets(rows.y)
            for target in targets:
                checkpoint = partial(_checkpoint, est, rows, basis, target, len(targets))
                fits.append(design.bind(target, rows.weights, likelihood.name, own, checkpoint))
        options: Any = {"least_evidence": least_evidence, "n_landmarks": n_landmarks}
        options |= {"parameters": parameters, "of_process": process, "sparse": sparse}
        options |= {"role": role, "log_variance": log_variance}
        return Task(basis, likelihood, own, fits, summary, training, shift, **options)


class _Dictionary(NamedTuple):
    """A dictionary; of learned kernels also the log evidence below which a fit has failed."""

    basis: Basis
    least_evidence: float | None = None
    #: Kernels of the Gaussian process that may be the prior of the final weights of a regression, and when.
    of_process: list[Kernel] | None = None
    role: ProcessRole = "prior"
    #: Of classes, ln v of the process that chose the kernels.
    log_variance: float | None = None


class _Learning(NamedTuple):
    """What kernels are learned from."""

    rows: Training
    likelihood: Likelihood
    #: Weights of the rows for the fit of Student's t to begin with.
    start: FloatArray | None = None
    #: Which rows kernels are learned from; None: all.
    inside: NDArray[np.bool_] | None = None
    few_counts: FewCounts | None = None


def _to_learn_from(est: Any, rows: Training, likelihood: Likelihood, settings: Settings) -> _Learning:
    """Return what kernels are learned from.

    Those of counts and positive numbers are learned from transformed targets with Gaussian noise; those of
    Student's t from the rows that are no outliers.
    """
    if isinstance(likelihood, Classes) or likelihood.name == "gaussian":
        return _Learning(rows, likelihood)
    targets, learns = likelihood.row().targets, learns_kernel(est)
    if not learns and likelihood.name != "student_t":
        return _Learning(rows, likelihood)
    if targets is not None and targets.stabilised is not None:
        counts, exposures = rows.row_counts, rows.exposures
        if not rows.y.any():  # zeros tell nothing about the kernel
            return _Learning(replace(rows, exposure=None), Numbers())
        y, precisions = targets.stabilised(rows.y, rows.y @ counts / (counts @ exposures) * exposures)
        weights = counts * np.maximum(precisions, 1e-10 * precisions.max())
        weights *= counts.sum() / weights.sum()
        few = likelihood.link == "log" and rows.y @ counts < _FEW_COUNTS * counts.sum()
        return _Learning(
            replace(rows, y=y, weights=weights, exposure=None),
            Numbers(),
            few_counts=FewCounts(likelihood, rows.y, counts, np.log(exposures)) if few else None,
        )
    basis = basis_of(est, rows)
    if not basis.kernels or (kernels := natural(basis.kernels, rows.X, rows.weights)) is None:
        return _Learning(rows, likelihood)
    own = with_unpenalized(est, basis, settings, likelihood)
    found = row_weights(basis, kernels, rows, own, likelihood.shape or FIRST_FREEDOM, learns=learns)
    if found is None:
        return _Learning(rows, Numbers())
    weights, is_outlier = found
    # With a given scale that is too small most rows look like outliers.
    inside = ~is_outlier if 2 * is_outlier.sum() < len(is_outlier) else None
    return _Learning(rows, Numbers(), weights, inside)


def _evenly_spaced(basis: Basis, most: int) -> Basis:
    """Return the basis with at most so many of its centres."""
    if (n := len(basis.kept)) <= most:
        return basis
    some = np.linspace(0, n - 1, most).astype(np.intp)
    return replace(basis, kept=basis.kept[some], centres=basis.centres[some])


def _checkpoint(
    est: Any, rows: Training, basis: Basis, target: FloatArray, n_targets: int
) -> Checkpoint | None:
    """Return the checkpoint of a fit in blocks; each of several classes has a file of its own."""
    if est.checkpoint is None:
        return None
    suffix = f".{digest(target)[:8]}" if n_targets > 1 else ""
    data = (rows.X, basis.centres, basis.columns, target, rows.weights, all_log_parameters(basis.kernels))
    return open_checkpoint(est, *data, suffix=suffix)


def offset_of(est: Any, training: Training, likelihood: Likelihood, settings: Settings) -> FloatArray | float:
    """Return what to subtract from y before the fit and add to the intercept after it, mostly 0.

    The larger the mean of y, the smaller the precision of the intercept, 1 / mean(y)^2, which has a lower
    bound at 1e-15 sum(weights) / var(y). If it would come within three decades of that bound, y is
    shifted towards 0 to keep that distance. In the model this changes only the intercept.
    """
    if not likelihood.has_noise:
        is_far = training.exposure is not None or likelihood.name in DISPERSED
        if isinstance(likelihood, Classes) or not (settings.flat_intercept and is_far):
            return 0.0
        # Far from the mode the log density is nearly flat: begin at the mean.
        pair = (training.y, training.exposures)
        total, expected = (np.average(part, weights=training.weights) for part in pair)
        return float(np.log(total) - np.log(expected)) if 0.0 < total < np.inf else 0.0
    if settings.flat_intercept:
        # Exact, and keeps the digits of y. If numbers overflow the fit refuses y.
        if likelihood.name == "student_t":  # the mean may be that of an outlier
            return float(np.median(training.y))
        with np.errstate(all="ignore"):
            mean = np.average(training.y, axis=0, weights=training.weights)
            return mean if np.isfinite(training.y - mean).all() else 0.0
    if settings.alpha_prior != (0.0, 0.0):
        return 0.0
    if not check_flag("fit_intercept", est.fit_intercept):
        return 0.0
    y, weights = training.y, training.weights
    with np.errstate(all="ignore"):
        mean = np.average(y, axis=0, weights=weights)
        std = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weights))
        n = len(y) if weights is None else weights.sum()
        excess = np.abs(mean) - _MAX_STANDARD_ERRORS * std / np.sqrt(n)
    # By rounding the mean of equal numbers may differ from them.
    varies = std > 8.0 * np.finfo(float).eps * np.abs(mean)
    far = varies & (excess > 0.0) & np.isfinite(excess)
    return np.where(far, np.sign(mean) * excess, 0.0)


def _bases(est: Any, learning: _Learning, settings: Settings) -> Iterator[_Dictionary]:
    """Yield the dictionary, or those of learned kernels, the best first."""
    training, likelihood = learning.rows, learning.likelihood
    basis = basis_of(est, training)
    if not learns_kernel(est):
        yield _Dictionary(basis)
        return
    n_landmarks = number_of_landmarks(est, basis, training, settings)
    options: Any = {"is_smooth": n_landmarks is not None, "few_counts": learning.few_counts}
    if not _candidates.are_given(est):
        options["centre_rows"] = np.searchsorted(training.rows, basis.kept)
    if n_landmarks is not None and n_landmarks >= min(_LANDMARKS_OF_ROUGH, len(training.X)):
        options["learns_smoothness"] = learns_smoothness(est.kernel, est.gamma)
    data = replace(LearningData.of(est, basis, training, likelihood, settings), **options)
    if learning.inside is not None:
        data = data.without(~learning.inside)
    tries_linear = (
        is_auto(est.extra_basis)
        and getattr(est, "likelihood", "") in ("gaussian", "student_t")
        and not (settings.is_papers_model or len(training.X) >= _MANY_ROWS)
    )
    linear = data.with_linear_terms() if tries_linear else None
    # A checkpoint belongs to a single fit, and many rows have decided between the kernels.
    single = getattr(est, "checkpoint", None) is not None or len(training.X) >= _MANY_ROWS
    most = 1 if single else _MAX_KERNELS_TRIED
    for learned in learn(basis.kernels, data, settings, linear)[:most]:
        # Other schemes have other optima.
        least = learned.least_evidence if settings.scheme == "sequential" else -np.inf
        chosen = with_linear_terms(basis, training) if learned.has_linear_terms else basis
        chosen = replace(chosen, kernels=learned.kernels)
        of_process = learned.of_process
        role = learned.role if of_process is not None and is_auto(est.landmarks) else "prior"
        yield _Dictionary(chosen, least, of_process, role, learned.log_variance)
