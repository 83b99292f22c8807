"""Classifications of rows that are read in chunks at each step of a fit, or arrive in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._arrays import are_known, check_X, class_factors, is_unstored, learn_classes, naming
from .._cancellable import one_blas_thread
from .._checks import any_array, check_memory_limit, check_n_jobs, check_settings, in_words, is_missing
from .._data.basis import Basis, block_rows
from .._data.chunks import Chunks, Rows, check_rows, located
from .._data.design import core_kernels
from .._data.statistics import Survey, basis_after, check_room
from .._progress import ReadReporter
from .._types import FloatArray, Settings
from ..providers import PyStatistics, RowPart, SummedStatistics, add
from .likelihoods import Classes, with_unpenalized
from .process import TYPICAL_ACTIVE
from .run import Task
from .status import RowSummary

#: Largest number of values in a block of rows (a block has a minimum number of rows): the core copies some of
#: them, and the allocator does not return the memory of all blocks at once.
_MAX_BLOCK_VALUES: Final = 3 << 18
#: Rows that ``partial_fit`` of a classifier collects before it expands their likelihood. Measured:
#: docs/notebook/large-data.md.
_RECENT_ROWS: Final = 2000


def check_class_weight(est: Any, doing: str) -> None:
    """Raise ValueError, naming the remedy, if ``class_weight`` is given, for ``doing`` this."""
    if est.class_weight is not None:
        raise ValueError(
            f"class_weight must be None for {doing}, where the classes are not known ahead; give the weight "
            "of its class as the sample_weight of each row"
        )


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

        fits: list[Any] = [partial(fit, label) for label in self.likelihood.positive]
        return Task(basis, self.likelihood, settings, fits, self.summary, shift=self.shift, stopped=stopped)


def by_passes(est: Any, chunks: Chunks, settings: Settings) -> Task:
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
            values = any_array("classes", classes).ravel()
            if any(is_missing(value) for value in values):
                raise ValueError(f"classes must hold labels alone; leave out missing values: {classes!r}")
            given = np.unique(values)
        if len(given) < 2:
            raise ValueError(f"classes must hold all labels, at least two; got {classes!r}")
        if known is not None and not np.array_equal(given, known):
            raise ValueError(f"classes must be those of the first call, {known.tolist()}; got {classes!r}")
        known = given
    values = check_X(est, X, reset=stream is None)
    rows = check_rows(values, y, sample_weight, values.shape[1], labels=True)
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
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
    basis = stream.functions.basis.for_calls(est)
    functions = replace(
        stream.functions, basis=basis, likelihood=likelihood, summary=RowSummary(n_rows, weight)
    )
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
