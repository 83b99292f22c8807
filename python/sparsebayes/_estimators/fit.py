"""From arguments to the fits of the core: of rows in memory or in chunks, of sums, and of providers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from .. import _core
from .._arrays import (
    Training,
    are_known,
    check_chunk_targets,
    check_training,
    check_X,
    class_factors,
    first_of_equal,
    is_operator,
    is_unstored,
    learn_classes,
    naming,
)
from .._cancellable import one_blas_thread
from .._checks import any_array, check_flag, check_integer, check_n_jobs, check_settings, is_auto
from .._data import candidates as _candidates
from .._data.basis import (
    Basis,
    basis_of,
    block_rows,
    check_sums_suffice,
    check_without_rows,
    flat_columns,
    groups_of,
    learns_kernel,
    sized,
    with_linear_terms,
    without_rows,
)
from .._data.checkpoint import Checkpoint, check_path, digest, open_checkpoint
from .._data.chunks import Chunks, Rows, are_chunks, check_rows, files_of, located, open_chunks
from .._data.design import core_kernels, is_given
from .._data.out_of_core import Survey, basis_after, gather
from .._data.statistics import SufficientStatistics, check_memory_limit, check_room, in_words
from .._data.unstored import ColumnStatistics
from .._hyper.data import FewCounts, LearningData
from .._hyper.learner import learn, natural
from .._progress import ReadReporter
from .._row_likelihoods import DISPERSED, ROW_LIKELIHOODS
from .._types import FloatArray, Settings
from .._types import Likelihood as Name
from ..kernels import Kernel
from ..kernels._base import all_log_parameters
from ..kernels._resolve import is_precomputed, measures_inputs
from ..providers import PyStatistics, RowPart, SummedStatistics, add
from .groups import fit_of_groups
from .likelihoods import Classes, Likelihood, Numbers, check_single, fit_of_outputs
from .noise_parameters import FIRST_FREEDOM, DispersionFit, First, StudentFit
from .outliers import row_weights
from .posterior import check_multi_class
from .process import TYPICAL_ACTIVE, number_of_landmarks
from .run import Task
from .status import RowSummary
from .variational import check_variational

#: Name of this kind of fit in error messages.
CHUNKED_FIT: Final = "a fit that reads its rows in chunks"
#: Bytes of a row for each function in a model.
_ACTIVE_BYTES: Final = 24
#: Largest number of values in a block of rows (a block has a minimum number of rows): the core copies some of
#: them, and the allocator does not return the memory of all blocks at once.
_MAX_BLOCK_VALUES: Final = 3 << 18
#: The mean of y is far from 0 if it exceeds so many standard errors.
_MAX_STANDARD_ERRORS: Final = 1e6
#: Learned kernels that are tried, best first, until a fit converges.
_MAX_KERNELS_TRIED: Final = 3
#: Rows that ``partial_fit`` of a classifier collects before it expands their likelihood. Measured:
#: docs/notebook/large-data.md.
_RECENT_ROWS: Final = 2000
#: Kernels for counts of a smaller mean are compared by how well counts are predicted.
_FEW_COUNTS: Final = 1.0
#: Most centres to select from if a Gaussian process is the prior of the final weights: their functions are
#: then beside up to two thousand landmarks. Measured: docs/notebook/final-weights.md.
_SELECTION_CENTRES: Final = 500
#: With so many rows only the best is tried: each fit takes minutes.
_MANY_ROWS: Final = 100_000


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


def check_class_weight(est: Any, doing: str) -> None:
    """Raise ValueError, naming the remedy, if ``class_weight`` is given, for ``doing`` this."""
    if est.class_weight is not None:
        raise ValueError(
            f"class_weight must be None for {doing}, where the classes are not known ahead; give the weight "
            "of its class as the sample_weight of each row"
        )


def check_sums(est: Any, doing: str) -> None:
    """Raise ValueError, naming the remedy, if sums over rows do not suffice for ``doing`` this."""
    check_without_rows(est, doing)
    check_sums_suffice(est, doing)
    if est._likelihood_of(None, None).name != "gaussian":
        raise ValueError(
            f"{doing} needs likelihood='gaussian': with another the sums over rows change with the "
            "weights; use fit"
        )


class Start(NamedTuple):
    """A model to continue from: its fits, and functions with their precisions and that of the noise."""

    task: Task
    first: First


def build(est: Any, rows: Training | Chunks, start: Start | None = None) -> Iterable[Task]:
    """Return the dictionary and its fits; if kernels are learned several dictionaries, the best first."""
    settings = check_settings(est)
    if isinstance(rows, Training):
        if is_unstored(rows.X):
            return _of_columns(est, rows, settings)
        return _in_memory(est, rows, settings, start)
    publish_features(est, rows.n_features, rows.names)
    if est._labels:
        return [_by_passes(est, rows, settings)]
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


def _in_memory(
    est: Any, training: Training, settings: Settings, start: Start | None = None
) -> Iterator[Task]:
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
    summary, offset = RowSummary.of(training), _offset_of(est, training, likelihood, settings)
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
            bases = iter([_Dictionary(same, of_process=of_process)])
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
        basis, least_evidence, of_process, log_variance = dictionary
        if learning.likelihood is not likelihood and least_evidence is not None:
            least_evidence = -np.inf  # another likelihood has another evidence
        n_landmarks = number_of_landmarks(est, basis, training, settings)
        process, sparse = None, None
        if of_process is not None:
            process = replace(basis, kernels=of_process)
            if is_auto(est.landmarks) and not _candidates.are_given(est):
                sparse = partial(self.of, _Dictionary(basis))
                if (centres := _candidates.for_process(est, training)) is not None:
                    process = replace(process, kept=centres, centres=training.at(centres))
                basis = _evenly_spaced(basis, _SELECTION_CENTRES)
        elif not est._labels and is_auto(getattr(est, "landmarks", None)):
            n_landmarks = None
        design = basis.design(rows, settings.n_threads)
        own = with_unpenalized(est, basis, settings, likelihood)
        parameters: DispersionFit | StudentFit | None = None
        fits: list[Callable[..., Any]]
        if groups_of(est, basis) is not None:
            if likelihood.name != "gaussian":
                raise ValueError(f"likelihood must be 'gaussian' with groups; got {likelihood.name!r}")
            fits = [fit_of_groups(est, basis, rows, own)]
        elif training.y.ndim == 2:
            fits = [fit_of_outputs(est, design, rows, own)]
        elif start is not None:
            fits = [design.bind(rows.y, rows.weights, likelihood.name, own, first=start.first)]
        elif isinstance(likelihood, Numbers) and likelihood.name != "gaussian":
            if likelihood.name == "student_t":
                parameters = StudentFit.of(basis, design, rows, likelihood, own, learning.start)
            elif likelihood.name in DISPERSED:
                parameters = DispersionFit.of(basis, design, rows, likelihood, own)
            extra: Any = {} if rows.exposure is None else {"offset": np.log(rows.exposure)}
            fits = [parameters or design.bind(rows.y, rows.weights, likelihood.name, own, **extra)]
        else:
            targets = likelihood.targets(rows.y)
            fits = [
                design.bind(
                    target,
                    rows.weights,
                    likelihood.name,
                    own,
                    partial(_checkpoint, est, rows, basis, target, len(targets)),
                )
                for target in targets
            ]
        of_rows = (design.n_basis, summary, training, shift)
        options: Any = {"least_evidence": least_evidence, "n_landmarks": n_landmarks}
        options |= {"parameters": parameters, "of_process": process, "sparse": sparse}
        options["log_variance"] = log_variance
        return Task(basis, likelihood, own, fits, *of_rows, **options)


class _Dictionary(NamedTuple):
    """A dictionary; of learned kernels also the log evidence below which a fit has failed."""

    basis: Basis
    least_evidence: float | None = None
    #: Kernels of the Gaussian process that is to be the prior of the final weights of a regression.
    of_process: list[Kernel] | None = None
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
    offset = _offset_of(est, training, likelihood, settings) if settings.flat_intercept else 0.0
    X = training.X if is_operator(training.X) else training.X.tocsc()
    bias = check_flag("fit_intercept", est.fit_intercept)
    providers = [
        ColumnStatistics(X, target - offset, training.weights, likelihood.name, bias=bias)
        for target in likelihood.targets(training.y)
    ]
    (task,) = of_providers(est, providers, len(training.y), likelihood)
    fits = [one_blas_thread()(fit) for fit in task.fits]
    return [replace(task, fits=fits, summary=RowSummary.of(training), training=training, offset=offset)]


def with_unpenalized(est: Any, basis: Basis, settings: Settings, likelihood: Likelihood) -> Settings:
    """Return the settings of a fit of this dictionary, with the flat priors that ``unpenalized`` asks for.

    A softmax depends on the differences of its logits only, so its first class has no function with a flat
    prior.
    """
    first, n_basis = basis.n_basis - basis.n_columns, basis.n_basis
    flat = (*settings.unpenalized, *(first + j for j in flat_columns(est, basis, settings.scheme)))
    if isinstance(likelihood, Classes) and likelihood.name == "multinomial":
        flat = tuple(c * n_basis + j for c in range(1, len(likelihood.classes)) for j in flat)
    return replace(settings, unpenalized=flat)


def _checkpoint(
    est: Any, rows: Training, basis: Basis, target: FloatArray, n_targets: int
) -> Checkpoint | None:
    """Return the checkpoint of a fit in blocks; each of several classes has a file of its own."""
    if est.checkpoint is None:
        return None
    suffix = f".{digest(target)[:8]}" if n_targets > 1 else ""
    data = (rows.X, basis.centres, basis.columns, target, rows.weights, all_log_parameters(basis.kernels))
    return open_checkpoint(est, *data, suffix=suffix)


def _offset_of(
    est: Any, training: Training, likelihood: Likelihood, settings: Settings
) -> FloatArray | float:
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
    given = _candidates.are_given(est)
    centre_rows = None if given else np.searchsorted(training.rows, basis.kept)
    is_smooth = number_of_landmarks(est, basis, training, settings) is not None
    options: Any = {"is_smooth": is_smooth, "few_counts": learning.few_counts}
    data = LearningData.of(est, basis, training, likelihood, settings, centre_rows, **options)
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
        is_process = learned.prefers_process or not is_auto(getattr(est, "landmarks", None))
        of_process = learned.of_process if is_process else None
        chosen = replace(chosen, kernels=learned.kernels)
        yield _Dictionary(chosen, least, of_process, learned.log_variance)


# --- classifications of rows in chunks, which are read again at each step of the fit -------------------


@dataclass(frozen=True)
class ClassBasis:
    """A basis and the likelihood of its classes, after a first pass over the rows.

    ``shift`` is close to the mean of the columns of X, or of the extra columns, and is subtracted before they
    are summed: sums of numbers far from 0 keep too few digits of their differences.
    """

    basis: Basis
    likelihood: Classes
    shift: FloatArray
    n_threads: int | None
    summary: RowSummary

    @classmethod
    def after(cls, est: Any, survey: Survey, n_features: int) -> ClassBasis:
        """Return the basis and the classes of an estimator, given a survey of all rows."""
        facts = survey.facts(est)
        likelihood = Classes.of(survey.classes, est.multi_class, survey.class_weights)
        if likelihood.name == "multinomial":
            raise ValueError("multi_class='softmax' needs the rows in memory; take multi_class='ovr'")
        basis = basis_after(est, facts, n_features)
        shift, n_threads = basis.shift(facts.get("inputs")), check_n_jobs(est.n_jobs)
        summary = RowSummary(survey.n_rows, survey.weight)
        return cls(basis, likelihood, shift, n_threads, summary)

    def part(self, X: FloatArray, is_class: NDArray[Any], weights: FloatArray | None) -> RowPart:
        """Return the provider of these rows, with target 1 for rows of a class and 0 for others."""
        basis, targets = self.basis, is_class.astype(np.float64)
        options: Any = {"fit_intercept": basis.bias, "likelihood": "bernoulli", "n_jobs": self.n_threads}
        if basis.n_columns == 0:
            options |= {"kernels": basis.kernels, "centres": basis.centres}
        else:
            X = basis.summed(X, self.shift, self.n_threads)
        return RowPart(X, targets, weights, **options)

    def task(
        self,
        provider_of: Callable[[Any], PyStatistics],
        settings: Settings,
        *,
        stopped: bool = False,
        centred: bool = True,
    ) -> Task:
        """Return the fits of each class against the rest, given a function that makes a class's provider.

        ``centred``: False if the providers weight rows differently, so that columns have no common means.
        """
        basis = self.basis
        options = settings.of_one_target() | {"n_centred": basis.n_centred if centred else 0}

        def fit(label: Any, callback: Any) -> _core.Posterior:
            # The rows of one class are freed before those of the next are read.
            return _core.fit_provider(provider_of(label), callback=callback, **options)

        return Task(
            basis,
            self.likelihood,
            settings,
            [partial(fit, label) for label in self.likelihood.positive],
            basis.n_basis,
            self.summary,
            shift=self.shift,
            stopped=stopped,
        )


def _by_passes(est: Any, chunks: Chunks, settings: Settings) -> Task:
    """Return the fits of rows that are read in chunks at each step, after a first pass over them."""
    check_scheme(settings.scheme)
    chunks.check_passes("a classification")
    d, limit = chunks.n_features, check_memory_limit(est.memory_limit)
    reading, survey = ReadReporter(est, chunks.n_rows), Survey(est, d)
    for block in reading.passing("looking at classes", chunks.blocks(block_rows(d, _MAX_BLOCK_VALUES))):
        survey.add(block)
    functions = ClassBasis.after(est, survey, d)
    settings = with_unpenalized(est, functions.basis, settings, functions.likelihood)
    basis, n_basis = functions.basis, functions.basis.n_basis
    # Values of a row in memory while its block is processed.
    width = d if basis.n_columns == 0 and core_kernels(basis.kernels) else max(d, n_basis)
    height = block_rows(width, _MAX_BLOCK_VALUES)
    if (needed := 32.0 * height * width) > limit:
        raise ValueError(
            f"memory_limit of {in_words(limit)} is too small: a block of rows takes {in_words(needed)} "
            "here; raise memory_limit"
        )
    values_per_row = d + width + 6 + 2 * min(n_basis, TYPICAL_ACTIVE)
    kept = 8.0 * survey.n_rows * values_per_row <= limit

    def provider_of(label: Any) -> PyStatistics:
        rows = _ClassRows(chunks, functions, label, height, kept)
        parts = list(rows) if kept else rows
        return SummedStatistics(parts, n_basis=n_basis, likelihood="bernoulli")

    return functions.task(provider_of, settings, stopped=reading.stopped)


def check_scheme(scheme: str) -> None:
    """Raise ValueError for a scheme that needs the rows in memory."""
    if scheme == "variational":
        raise ValueError(
            "scheme='variational' needs the rows in memory; take a scheme other than 'variational'"
        )


@dataclass(frozen=True)
class _ClassRows:
    """All rows as providers, block by block, read again by each iteration.

    ``kept``: the providers outlive the iteration.
    """

    chunks: Chunks
    functions: ClassBasis
    label: Any
    height: int
    kept: bool

    def __iter__(self) -> Iterator[RowPart]:
        for block in self.chunks.blocks(self.height):
            with located(block.chunk, block.first, len(block)):
                block = block.copy() if self.kept else block
                yield self.functions.part(block.X, block.y == self.label, block.weights)


# --- classifications of rows that arrive in parts -------------------------------------------------------


class PastRows(PyStatistics):
    """The log likelihood of rows of earlier calls, expanded to second order at the mode after them.

    With d the difference of the weights of all functions from those at the centre, -2 ln p = D - 2 g^T d +
    d^T G d: sums of -2 ln p, and of the residuals and working weights of `PyStatistics` (the online Laplace
    approximation, Spiegelhalter & Lauritzen 1990).
    """

    likelihood = "bernoulli"

    def __init__(self, centre: FloatArray, sums: Sequence[Any], moments: FloatArray) -> None:
        self.n_basis, self._centre, self._sums, self._moments = len(centre), centre, sums, moments

    def with_rows(self, rows: RowPart, posterior: _core.Posterior) -> PastRows:
        """Return the sums with those of more rows, expanded at the mode."""
        centre, every = np.zeros(self.n_basis), np.arange(self.n_basis)
        centre[posterior.active] = posterior.mu
        deviance, gradient, _, gram = add(*(part.sweep(every, centre, every) for part in (self, rows)))
        return PastRows(centre, (deviance, gradient, gram), self._moments + rows.target_moments(0.0))

    def target_moments(self, centre: float) -> FloatArray:
        return self._moments  # the centre is 0 for Bernoulli targets

    def sweep(
        self, active: Any, mu: FloatArray, wanted: Any
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        deviance, gradient, gram = self._sums
        d = -self._centre
        d[active] += mu
        here = gradient - gram @ d
        return deviance - float(d @ (gradient + here)), here, gram.diagonal(), gram[:, wanted]

    def variance_drift(self, active: Any, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        return np.zeros((len(active), len(active)))


@dataclass(frozen=True)
class Stream:
    """What ``partial_fit`` of a classifier keeps of the rows so far."""

    functions: ClassBasis
    class_weights: FloatArray
    #: Of each class against the rest.
    past: list[PastRows]
    #: The latest rows, which are not in ``past`` yet.
    recent: list[Rows]

    @classmethod
    def start(cls, est: Any, rows: Rows, classes: NDArray[Any]) -> Stream:
        """Return a stream without rows, whose functions depend on the first ones."""
        d, nothing = rows.X.shape[1], np.zeros(len(classes))
        survey = Survey(est, d)
        survey.add_labels(classes, nothing)
        survey.add(rows)
        functions = replace(ClassBasis.after(est, survey, d), summary=RowSummary(0, 0.0))
        check_room(functions.basis, d, check_memory_limit(est.memory_limit))
        zeros = np.zeros(k := functions.basis.n_basis)
        past = PastRows(zeros, (0.0, zeros, np.zeros((k, k))), np.zeros(3))
        return cls(functions, nothing, [past] * len(functions.likelihood.positive), [])


def add_labels(
    est: Any, X: Any, y: Any, classes: Any, sample_weight: Any
) -> tuple[Task, Callable[[list[Any]], Stream]]:
    """Return the fit of all rows so far and these, and a function from posteriors to what to keep."""
    settings, stream = check_settings(est), getattr(est, "_statistics", None)
    if is_unstored(X):
        raise TypeError("X must be a table for partial_fit, which keeps the products of all columns; use fit")
    if isinstance(est.class_weight, str):
        raise ValueError(
            f"class_weight={est.class_weight!r} needs all rows at once; for partial_fit give a dict from "
            "labels to weights"
        )
    known = None if stream is None else stream.functions.likelihood.classes
    if classes is not None:
        with naming("classes"):
            given = np.unique(any_array("classes", classes))
        if len(given) < 2:
            raise ValueError(f"classes must hold all labels, at least two; got {classes!r}")
        if known is not None and not np.array_equal(given, known):
            raise ValueError(f"classes must be those of the first call, {known.tolist()}; got {classes!r}")
        known = given
    values = check_X(est, X, reset=stream is None)
    rows = check_rows(values, y, sample_weight, values.shape[1], labels=True)
    with naming("y"):
        check_classification_targets(rows.y)
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights.copy()
    labels = rows.y[counts := weights > 0.0]
    known = learn_classes(labels) if known is None else known
    if not (found := are_known(labels, known)).all():
        raise ValueError(
            f"y holds the label {labels[~found].tolist()[0]!r}, which is not among the classes "
            f"{known.tolist()}; give all of them as classes at the first call of partial_fit"
        )
    if est.class_weight is not None:
        weights[counts] *= class_factors(est.class_weight, known, labels, weights)
    rows = replace(rows, weights=weights)
    stream = Stream.start(est, rows, known) if stream is None else stream
    new = np.bincount(np.searchsorted(known, labels), weights[counts], len(known))
    sums = stream.class_weights + new
    n_rows, weight = (stream.functions.summary.n_rows or 0) + len(rows), float(sums.sum())
    likelihood = replace(stream.functions.likelihood, shares=sums / weight)
    functions = replace(stream.functions, likelihood=likelihood, summary=RowSummary(n_rows, weight))
    recent = [*stream.recent, rows.copy()]
    X, y, weights = (np.concatenate([getattr(one, name) for one in recent]) for name in ("X", "y", "weights"))
    parts = {}
    for label, past in zip(likelihood.positive, stream.past, strict=True):
        targets = (y == label).astype(np.float64)
        if (share := likelihood.shares[known == label][0]) in (0.0, 1.0):
            # So far all targets are equal, and the mode would be infinite (Platt 1999, section 2.2).
            targets = np.full(len(y), (share * weight + 1.0) / (weight + 2.0))
        parts[label] = functions.part(X, targets, weights), past
    settings = with_unpenalized(est, functions.basis, settings, functions.likelihood)
    task = functions.task(lambda label: SummedStatistics(parts[label]), settings, centred=False)

    def after(posteriors: list[Any]) -> Stream:
        if len(y) < _RECENT_ROWS:
            return Stream(functions, sums, stream.past, recent)
        with one_blas_thread():
            pairs = zip(parts.values(), posteriors, strict=True)
            return Stream(functions, sums, [past.with_rows(part, one) for (part, past), one in pairs], [])

    return replace(task, fits=[one_blas_thread()(fit) for fit in task.fits]), after


# --- providers of statistics instead of rows -----------------------------------------------------------

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
