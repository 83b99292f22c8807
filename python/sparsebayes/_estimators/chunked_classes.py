"""Classification of rows that are read in chunks, again at each step of the fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks.arguments import check_flag, check_n_jobs, check_settings
from .._checks.targets import Training, learn_classes
from .._data import candidates as _candidates
from .._data.chunks import Chunks, Rows, located
from .._data.design import DenseDesign, Layout, columns_at, evaluate, extra_offset
from .._data.out_of_core import Facts, first_pass
from .._data.statistics import block_rows, check_memory_limit, in_words
from .._progress import ReadReporter
from .._types import FloatArray, Settings
from ..providers import RowPart, SummedStatistics
from .basis import ColumnBasis, KernelBasis
from .chunked import CHUNKED_FIT, ChunkedEstimator
from .probabilities import check_multi_class
from .provider_fit import offset_of, posteriors_of
from .status import RowSummary

if TYPE_CHECKING:
    from ..kernels import Kernel

#: Number of active functions to expect: rows are kept if there is memory for so many columns.
_TYPICAL_ACTIVE: Final = 100
#: Largest number of values in a block of rows (a block has a minimum number of rows): the core copies some of
#: them, and the allocator does not return the memory of all blocks at once.
_MAX_BLOCK_VALUES: Final = 3 << 18


def _rows_at_a_time(width: int) -> int:
    return block_rows(width, _MAX_BLOCK_VALUES)


class ChunkedClassification(ChunkedEstimator):
    """A classification that can read its rows again at each step of the fit."""

    _takes_labels = True

    if TYPE_CHECKING:
        multi_class: str
        classes_: NDArray[Any]

    @abstractmethod
    def _functions_of(self, layout: Layout) -> Functions:
        """Return the basis functions, after `_publish_functions`."""

    def _fit_parts(self, chunks: Chunks) -> None:
        settings = check_settings(self)
        softmax = check_multi_class(self.multi_class)
        if settings.scheme == "variational":
            raise ValueError("scheme='variational' needs the rows in memory; take scheme='sequential'")
        chunks.check_passes("a classification")
        self._publish_features(chunks)
        survey = Survey(self, chunks)
        survey.run()
        if softmax and len(self.classes_) > 2:
            raise ValueError("multi_class='softmax' needs the rows in memory; take multi_class='ovr'")
        self._publish_functions(survey.facts, chunks.n_features)
        layout = self._layout_of(survey.n_rows, chunks.n_features)
        self._fit_classes(chunks, survey, layout, settings)

    def _fit_classes(self, chunks: Chunks, survey: Survey, layout: Layout, settings: Settings) -> None:
        functions = self._functions_of(layout)
        limit, needed = check_memory_limit(self.memory_limit), functions.bytes_of_block
        if needed > limit:
            raise ValueError(
                f"memory_limit of {in_words(limit)} is too small: a block of rows takes {in_words(needed)} "
                "here; raise memory_limit"
            )
        kept = functions.bytes_of(survey.n_rows) <= limit
        rows = RowBlocks(chunks, functions, kept=kept)
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        providers: list[Any] = [
            SummedStatistics(ClassRows(rows, label), n_basis=functions.n_basis, likelihood="bernoulli")
            for label in positive
        ]
        posteriors = posteriors_of(
            self, providers, "bernoulli", settings, layout, stopped=survey.reading.stopped
        )
        self._publish_offset(functions.shift + offset_of(posteriors, self._n_columns()))
        summary = RowSummary(survey.n_rows, survey.weight)
        self._publish_fit(
            settings, "bernoulli", survey.n_rows, functions.n_basis, layout, posteriors, summary
        )
        self._publish_sums(survey.n_rows)


class Survey:
    """A first pass over the rows: the classes, and the facts that the functions depend on."""

    facts: Facts
    n_rows: int
    #: Sum of the weights.
    weight: float

    def __init__(self, estimator: ChunkedClassification, chunks: Chunks) -> None:
        self._estimator, self._chunks = estimator, chunks
        self.reading = ReadReporter(estimator, chunks.n_rows)

    def run(self) -> None:
        """Read all rows once."""
        self._labels: list[NDArray[Any]] = []
        self.n_rows, self.weight = 0, 0.0
        self.facts = first_pass(self._estimator, self._passing(), self._chunks.n_features)
        if not self._labels:
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        self._estimator.classes_ = learn_classes(np.unique(np.concatenate(self._labels)))

    def _passing(self) -> Iterator[Rows]:
        blocks = self._chunks.blocks(_rows_at_a_time(self._chunks.n_features))
        for block in self.reading.passing("looking at classes", blocks):
            counting = block.y if block.weights is None else block.y[block.weights > 0]
            self.weight += len(block) if block.weights is None else float(block.weights.sum())
            if len(counting) > 0:
                self._labels.append(np.unique(counting))
            self.n_rows += len(block)
            yield block


@dataclass(frozen=True)
class Functions:
    """The basis functions: the constant one, and the columns of X, or kernels and extra columns.

    ``shift`` is close to the mean of the columns of X, or of the extra columns, and is subtracted before they
    are summed: sums of numbers far from 0 keep too few digits of their differences.
    """

    bias: bool
    n_features: int
    n_threads: int | None
    shift: FloatArray
    kernels: list[Kernel] | None = None
    centres: FloatArray | None = None
    extra: Any = None
    n_extra: int = 0

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        if self.kernels is None or self.centres is None:
            return int(self.bias) + self.n_features
        return int(self.bias) + len(self.kernels) * len(self.centres) + self.n_extra

    @property
    def _evaluated(self) -> bool:
        """Whether all values of a block are in memory at once."""
        kernels = self.kernels or []
        return self.n_extra > 0 or any(kernel.to_core() is None for kernel in kernels)

    @property
    def width(self) -> int:
        """Number of values per row in memory while its block is processed."""
        return max(self.n_features, self.n_basis if self.kernels is None or self._evaluated else 0)

    @property
    def bytes_of_block(self) -> float:
        """Estimated bytes of a block of rows that is read, processed and discarded."""
        return 32.0 * _rows_at_a_time(self.width) * self.width

    def bytes_of(self, n_rows: int) -> float:
        """Return the estimated bytes of rows that are kept between steps."""
        return 8.0 * n_rows * (self.n_features + self.width + 6 + 2 * min(self.n_basis, _TYPICAL_ACTIVE))

    def part(self, X: FloatArray, targets: FloatArray, weights: FloatArray | None) -> RowPart:
        """Return the statistics provider of these rows."""
        kernels, centres = self.kernels, self.centres
        options: Any = {"fit_intercept": self.bias, "likelihood": "bernoulli", "n_jobs": self.n_threads}
        if kernels is not None and centres is not None:
            if self.n_extra == 0:
                return RowPart(X, targets, weights, kernels=kernels, centres=centres, **options)
            blocks = [evaluate(kernel, X, centres, self.n_threads) for kernel in kernels]
            layout = Layout(False, len(centres), np.arange(len(centres)), len(kernels))
            extra = columns_at(self.extra, X, self.n_extra) - self.shift
            return RowPart(DenseDesign([*blocks, extra], layout).Phi, targets, weights, **options)
        X = X - self.shift if self.shift.any() else X
        return RowPart(X, targets, weights, **options)


class RowBlocks:
    """All rows, in blocks of one size; ``kept``: those of one class at a time stay in memory."""

    def __init__(self, chunks: Chunks, functions: Functions, *, kept: bool) -> None:
        self._chunks, self._functions, self._kept = chunks, functions, kept
        self._held: tuple[Any, list[RowPart]] | None = None

    def parts(self, label: Any) -> Iterable[RowPart]:
        """Return the rows as providers whose targets are 1 for this label and 0 for others."""
        if not self._kept:
            return self._read(label)
        if self._held is None or self._held[0] is not label:
            self._held = None  # free the rows of one class before reading those of the next
            self._held = (label, list(self._read(label)))
        return self._held[1]

    def _read(self, label: Any) -> Iterator[RowPart]:
        for block in self._chunks.blocks(_rows_at_a_time(self._functions.width)):
            with located(block.chunk, block.first, len(block)):
                block = block.copy() if self._kept else block
                yield self._functions.part(block.X, (block.y == label).astype(np.float64), block.weights)


@dataclass(frozen=True)
class ClassRows:
    """The rows with the targets of one class, read again by each iteration."""

    blocks: RowBlocks
    label: Any

    def __iter__(self) -> Iterator[RowPart]:
        """Yield all rows, block by block."""
        return iter(self.blocks.parts(self.label))


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

    def _functions_of(self, layout: Layout) -> Functions:
        nothing = np.empty((0, self.n_features_in_))
        training = Training(nothing, nothing[:, 0], None, np.arange(0), layout.size)
        centres = _candidates.points(self, training, layout.kept)
        n_threads, kernels, extra = check_n_jobs(self.n_jobs), self._kernels(), self.extra_basis_
        shift = extra_offset(extra, centres, self._n_extra, bias=layout.bias)
        return Functions(
            layout.bias, self.n_features_in_, n_threads, shift, kernels, centres, extra, self._n_extra
        )


class ChunkedColumnClassification(ColumnBasis, ChunkedClassification):
    """Classification on the columns of X."""

    def _check_parts(self, y: Any = None) -> None:
        pass  # columns can always be read in chunks

    def _first_pass_needs(self, n_features: int) -> tuple[int | None, bool]:
        return None, check_flag("fit_intercept", self.fit_intercept)

    def _publish_functions(self, facts: Facts, n_features: int) -> None:
        shift = facts["inputs"].mean(axis=0) if "inputs" in facts else np.zeros(n_features)
        self._shift = np.where(np.isfinite(shift), shift, 0.0)  # others raise errors in the fit

    def _functions_of(self, layout: Layout) -> Functions:
        return Functions(
            layout.bias, self.n_features_in_, check_n_jobs(self.n_jobs), self.__dict__.pop("_shift")
        )
