"""Classification of rows that are read in chunks, again at each step of the fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._checks.arguments import check_flag, check_n_jobs, check_settings
from .._checks.targets import learn_classes
from .._data.chunks import Chunks, located
from .._data.design import extra_offset
from .._data.out_of_core import Facts, Survey
from .._data.statistics import Kernels, Summed, block_rows, check_memory_limit, in_words
from .._progress import ReadReporter
from .._types import FloatArray, Settings
from ..providers import PyStatistics, RowPart, SummedStatistics
from .basis import ColumnBasis, KernelBasis
from .chunked import CHUNKED_FIT, ChunkedEstimator
from .probabilities import check_multi_class
from .provider_fit import publish_fits
from .status import RowSummary

#: Number of active functions to expect: rows are kept if there is memory for so many columns.
_TYPICAL_ACTIVE: Final = 100
#: Largest number of values in a block of rows (a block has a minimum number of rows): the core copies some of
#: them, and the allocator does not return the memory of all blocks at once.
_MAX_BLOCK_VALUES: Final = 3 << 18


def _rows_at_a_time(width: int) -> int:
    return block_rows(width, _MAX_BLOCK_VALUES)


@dataclass(frozen=True)
class Functions:
    """The basis functions: the constant one, and the columns of X, or kernels and extra columns.

    ``shift`` is close to the mean of the columns of X, or of the extra columns, and is subtracted before they
    are summed: sums of numbers far from 0 keep too few digits of their differences.
    """

    bias: bool
    summed: Summed
    shift: FloatArray
    n_features: int
    n_threads: int | None

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return int(self.bias) + self.summed.n_basis

    @property
    def width(self) -> int:
        """Number of values per row in memory while its block is processed."""
        summed = self.summed
        in_core = isinstance(summed, Kernels) and summed.n_extra == 0 and summed.cores is not None
        return max(self.n_features, 0 if in_core else self.n_basis)

    @property
    def bytes_of_block(self) -> float:
        """Estimated bytes of a block of rows that is read, processed and discarded."""
        return 32.0 * _rows_at_a_time(self.width) * self.width

    def bytes_of(self, n_rows: int) -> float:
        """Return the estimated bytes of rows that are kept between steps."""
        return 8.0 * n_rows * (self.n_features + self.width + 6 + 2 * min(self.n_basis, _TYPICAL_ACTIVE))

    def part(self, X: FloatArray, is_class: NDArray[np.bool_], weights: FloatArray | None) -> RowPart:
        """Return the provider of these rows, with target 1 for rows of a class and 0 for others."""
        summed, targets = self.summed, is_class.astype(np.float64)
        options: Any = {"fit_intercept": self.bias, "likelihood": "bernoulli", "n_jobs": self.n_threads}
        if isinstance(summed, Kernels) and summed.n_extra == 0:
            options |= {"kernels": summed.kernels, "centres": summed.centres}
            return RowPart(X, targets, weights, **options)
        return RowPart(summed.values(X, self.shift), targets, weights, **options)


class ChunkedClassification(ChunkedEstimator):
    """A classification that can read its rows again at each step of the fit."""

    if TYPE_CHECKING:
        multi_class: str
        classes_: NDArray[Any]

    @abstractmethod
    def _shift(self, facts: Facts, summed: Summed, bias: bool) -> FloatArray:
        """Return what to subtract from the columns before they are summed."""

    def _fit_parts(self, chunks: Chunks) -> None:
        settings = check_settings(self)
        check_multi_class(self.multi_class)
        self._check_scheme(settings)
        chunks.check_passes("a classification")
        self._publish_features(chunks)
        survey, reading = Survey(self, chunks.n_features), ReadReporter(self, chunks.n_rows)
        blocks = chunks.blocks(_rows_at_a_time(chunks.n_features))
        for block in reading.passing("looking at classes", blocks):
            survey.add(block)
        functions = self._functions_after(survey)
        limit, needed = check_memory_limit(self.memory_limit), functions.bytes_of_block
        if needed > limit:
            raise ValueError(
                f"memory_limit of {in_words(limit)} is too small: a block of rows takes {in_words(needed)} "
                "here; raise memory_limit"
            )
        kept = functions.bytes_of(survey.n_rows) <= limit

        def provider_of(label: Any) -> PyStatistics:
            rows = ClassRows(chunks, functions, label, kept)
            parts = list(rows) if kept else rows
            return SummedStatistics(parts, n_basis=functions.n_basis, likelihood="bernoulli")

        self._fit_classes(provider_of, functions, survey, settings, stopped=reading.stopped)

    def _check_scheme(self, settings: Settings) -> None:
        if settings.scheme == "variational":
            raise ValueError(
                "scheme='variational' needs the rows in memory; take a scheme other than 'variational'"
            )

    def _functions_after(self, survey: Survey) -> Functions:
        """Return the basis functions, given a first pass over the rows; publishes them and the classes."""
        facts = survey.facts(self)
        self.classes_ = learn_classes(survey.classes)
        if check_multi_class(self.multi_class) and len(self.classes_) > 2:
            raise ValueError("multi_class='softmax' needs the rows in memory; take multi_class='ovr'")
        self._publish_functions(facts)
        bias, summed = check_flag("fit_intercept", self.fit_intercept), self._summed()
        shift = self._shift(facts, summed, bias)
        return Functions(bias, summed, shift, self.n_features_in_, check_n_jobs(self.n_jobs))

    def _fit_classes(
        self,
        provider_of: Callable[[Any], PyStatistics],
        functions: Functions,
        survey: Survey,
        settings: Settings,
        *,
        stopped: bool = False,
    ) -> None:
        """Fit each class against the rest, given a function that returns the provider of a class."""

        def fit(label: Any, **options: Any) -> _core.Posterior:
            # The rows of one class are freed before those of the next are read.
            return _core.fit_provider(provider_of(label), **options)

        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        fits, summary = [partial(fit, label) for label in positive], RowSummary(survey.n_rows, survey.weight)
        publish_fits(
            self, fits, "bernoulli", settings, functions.n_basis, summary, functions.shift, stopped=stopped
        )


@dataclass(frozen=True)
class ClassRows:
    """All rows as providers, block by block, read again by each iteration.

    ``kept``: the providers outlive the iteration.
    """

    chunks: Chunks
    functions: Functions
    label: Any
    kept: bool

    def __iter__(self) -> Iterator[RowPart]:
        """Yield all rows, block by block."""
        for block in self.chunks.blocks(_rows_at_a_time(self.functions.width)):
            with located(block.chunk, block.first, len(block)):
                block = block.copy() if self.kept else block
                yield self.functions.part(block.X, block.y == self.label, block.weights)


class ChunkedKernelClassification(KernelBasis, ChunkedClassification):
    """Classification on kernels whose centres are fixed after a first pass over the rows."""

    def _check_parts(self, y: Any = None) -> None:
        self._check_fixed(CHUNKED_FIT)

    def _fit_parts(self, chunks: Chunks) -> None:
        if self.checkpoint is not None:
            raise ValueError(
                "checkpoint must be None for a classification that reads its rows in chunks: set "
                "checkpoint=None, or give the rows as arrays and raise memory_limit"
            )
        super()._fit_parts(chunks)

    def _shift(self, facts: Facts, summed: Summed, bias: bool) -> FloatArray:
        assert isinstance(summed, Kernels)
        return extra_offset(summed.extra, summed.centres, summed.n_extra, bias=bias)


class ChunkedColumnClassification(ColumnBasis, ChunkedClassification):
    """Classification on the columns of X."""

    def _check_parts(self, y: Any = None) -> None:
        pass  # columns can always be read in chunks

    def _first_pass_needs(self, n_features: int) -> tuple[int | None, bool]:
        return None, check_flag("fit_intercept", self.fit_intercept)

    def _shift(self, facts: Facts, summed: Summed, bias: bool) -> FloatArray:
        shift = facts["inputs"].mean(axis=0) if bias else np.zeros(self.n_features_in_)
        return np.where(np.isfinite(shift), shift, 0.0)  # others raise errors in the fit
