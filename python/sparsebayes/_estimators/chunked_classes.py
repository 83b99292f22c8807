"""Classification of rows that are read in chunks, again at each step of the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._checks import check_n_jobs
from .._data.basis import Basis, block_rows
from .._data.chunks import Chunks, located
from .._data.out_of_core import Survey, basis_after
from .._data.statistics import check_memory_limit, in_words
from .._progress import ReadReporter
from .._types import FloatArray, Settings
from ..providers import PyStatistics, RowPart, SummedStatistics
from .likelihoods import Classes
from .run import Task
from .status import RowSummary

#: Number of active functions to expect: rows are kept if there is memory for so many columns.
TYPICAL_ACTIVE: Final = 100
#: Largest number of values in a block of rows (a block has a minimum number of rows): the core copies some of
#: them, and the allocator does not return the memory of all blocks at once.
_MAX_BLOCK_VALUES: Final = 3 << 18


@dataclass(frozen=True)
class ClassBasis:
    """A basis and the likelihood of its classes, after a first pass over the rows.

    ``shift`` is close to the mean of the columns of X, or of the extra columns, and is subtracted before they
    are summed: sums of numbers far from 0 keep too few digits of their differences.
    """

    basis: Basis
    likelihood: Classes
    shift: FloatArray
    n_features: int
    n_threads: int | None
    summary: RowSummary

    @classmethod
    def after(cls, est: Any, survey: Survey, n_features: int) -> ClassBasis:
        """Return the basis and the classes of an estimator, given a survey of all rows."""
        facts = survey.facts(est)
        likelihood = Classes.of(survey.classes, est.multi_class)
        if likelihood.name == "multinomial":
            raise ValueError("multi_class='softmax' needs the rows in memory; take multi_class='ovr'")
        basis = basis_after(est, facts, n_features)
        shift, n_threads = basis.shift(facts.get("inputs")), check_n_jobs(est.n_jobs)
        summary = RowSummary(survey.n_rows, survey.weight)
        return cls(basis, likelihood, shift, n_features, n_threads, summary)

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.basis.bias) + self.basis.n_summed

    @property
    def width(self) -> int:
        """Number of values per row in memory while its block is processed."""
        return max(self.n_features, 0 if self.basis.in_core else self.n_basis)

    def part(self, X: FloatArray, is_class: NDArray[np.bool_], weights: FloatArray | None) -> RowPart:
        """Return the provider of these rows, with target 1 for rows of a class and 0 for others."""
        basis, targets = self.basis, is_class.astype(np.float64)
        options: Any = {"fit_intercept": basis.bias, "likelihood": "bernoulli", "n_jobs": self.n_threads}
        if basis.n_columns == 0:
            options |= {"kernels": basis.kernels, "centres": basis.centres}
        else:
            X = basis.summed(X, self.shift, self.n_threads)
        return RowPart(X, targets, weights, **options)

    def task(
        self, provider_of: Callable[[Any], PyStatistics], settings: Settings, *, stopped: bool = False
    ) -> Task:
        """Return the fits of each class against the rest, given a function that makes a class's provider."""
        basis = self.basis
        options = settings.of_one_target() | {"n_centred": basis.n_columns if basis.bias else 0}

        def fit(label: Any, callback: Any) -> _core.Posterior:
            # The rows of one class are freed before those of the next are read.
            return _core.fit_provider(provider_of(label), callback=callback, **options)

        return Task(
            basis,
            self.likelihood,
            settings,
            [partial(fit, label) for label in self.likelihood.positive],
            self.n_basis,
            self.summary,
            shift=self.shift,
            stopped=stopped,
        )


def by_passes(est: Any, chunks: Chunks, settings: Settings) -> Task:
    """Return the fits of rows that are read in chunks at each step, after a first pass over them."""
    check_scheme(settings)
    chunks.check_passes("a classification")
    d, limit, reading = (
        chunks.n_features,
        check_memory_limit(est.memory_limit),
        ReadReporter(est, chunks.n_rows),
    )
    survey = Survey(est, d)
    for block in reading.passing("looking at classes", chunks.blocks(block_rows(d, _MAX_BLOCK_VALUES))):
        survey.add(block)
    functions = ClassBasis.after(est, survey, d)
    height, width = block_rows(functions.width, _MAX_BLOCK_VALUES), functions.width
    if (needed := 32.0 * height * width) > limit:
        raise ValueError(
            f"memory_limit of {in_words(limit)} is too small: a block of rows takes {in_words(needed)} "
            "here; raise memory_limit"
        )
    values_per_row = d + width + 6 + 2 * min(functions.n_basis, TYPICAL_ACTIVE)
    kept = 8.0 * survey.n_rows * values_per_row <= limit

    def provider_of(label: Any) -> PyStatistics:
        rows = _ClassRows(chunks, functions, label, height, kept)
        parts = list(rows) if kept else rows
        return SummedStatistics(parts, n_basis=functions.n_basis, likelihood="bernoulli")

    return functions.task(provider_of, settings, stopped=reading.stopped)


def check_scheme(settings: Settings) -> None:
    """Raise ValueError for a scheme that needs the rows in memory."""
    if settings.scheme == "variational":
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
