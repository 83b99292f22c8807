"""Functions that run on the workers, on the rows of one partition. They use arrays and no Dask.

None of them changes its arguments: a task may run twice, and other tasks may use the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from .._checks.numbers import PLAIN
from .._checks.targets import Training, check_chunk, check_chunk_targets, check_weights, naming
from .._data.candidates import keys
from .._data.design import columns_at, evaluate
from .._data.statistics import Kernels, SufficientStatistics
from .._types import FloatArray, IntArray
from ..providers import RowPart

#: Bytes that the core stores for each row and active function, and an upper estimate of the active functions.
_BYTES_PER_ACTIVE, _MAX_ACTIVE = 24, 100


@contextmanager
def naming_partition(number: int) -> Iterator[None]:
    """Add the number of the partition to errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error} (in partition {number}, counted from 0)") from None


class Part(Training):
    """The rows of a partition, with their size for Dask's scheduler."""

    def __sizeof__(self) -> int:
        return sum(
            values.nbytes for values in (self.X, self.y, self.weights, self.rows) if values is not None
        )


def checked(number: int, n_features: int, labels: bool, X: Any, y: Any, weights: Any) -> Part:
    """Check the rows of a partition, which may have none, and drop those of zero weight."""
    X, y, weights = np.asarray(X), np.asarray(y), None if weights is None else np.asarray(weights)
    with naming_partition(number):
        values = np.ascontiguousarray(check_chunk("X", X, n_features))
        n = len(values)
        if len(y) != n:
            raise ValueError(
                f"X and y must have the same rows in each partition, got {n} and {len(y)}; make both of one "
                "collection, or repartition them alike"
            )
        if weights is not None and len(weights) != n:
            raise ValueError(
                f"X and sample_weight must have the same rows in each partition, got {n} and {len(weights)}; "
                "make both of one collection, or repartition them alike"
            )
        if labels:
            target, checked_weights = _labels(y), check_weights(weights, n, may_vanish=True)
        else:
            target, checked_weights = check_chunk_targets("y", y, weights, n)
    rows = np.arange(n) if checked_weights is None else np.flatnonzero(checked_weights)
    if checked_weights is not None and len(rows) < n:
        values, target, checked_weights = values[rows], target[rows], checked_weights[rows]
    return Part(values, target, checked_weights, rows, n)


def _labels(y: Any) -> NDArray[Any]:
    with naming("y"):
        target: NDArray[Any] = column_or_1d(y)
        assert_all_finite(target, input_name="y")
        if len(target) > 0:
            check_classification_targets(target)
    return target


@dataclass(frozen=True)
class Facts:
    """Facts about successive partitions that the set-up of a model needs."""

    #: Rows of each partition, and those of positive weight.
    n_samples: IntArray
    n_rows: IntArray
    #: Sum of the weights; mean of each column, and sum of squares about it.
    weight: float
    mean: FloatArray
    squares: FloatArray
    #: Distinct labels of rows of positive weight, sorted; empty for numbers.
    classes: NDArray[Any]
    #: One row, (1, d), or none, (0, d).
    example: FloatArray


def facts(part: Training, labels: bool) -> Facts:
    """Return the facts about one partition."""
    X = part.X
    weights = np.ones(len(X)) if part.weights is None else part.weights
    weight, mean = float(weights.sum()), np.zeros(X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        if len(X) > 0:
            mean = (weights[:, np.newaxis] * X).sum(axis=0) / weight
        squares = (weights[:, np.newaxis] * (X - mean) ** 2).sum(axis=0)
    classes = np.unique(part.y) if labels else part.y[:0]
    counts = np.array([part.n_samples]), np.array([len(X)])
    return Facts(*counts, weight, mean, squares, classes, X[:1])


def combined_facts(facts: Sequence[Facts]) -> Facts:
    """Return the facts about these partitions together, by the update of Chan, Golub & LeVeque (1983)."""
    weight, mean, squares = 0.0, np.zeros_like(facts[0].mean), np.zeros_like(facts[0].squares)
    for one in facts:
        if one.weight == 0.0:
            continue
        total = weight + one.weight
        with np.errstate(over="ignore", invalid="ignore"):
            step = one.mean - mean
            squares = squares + one.squares + step**2 * (weight * one.weight / total)
            mean = mean + step * (one.weight / total)
        weight = total
    with_rows = [one for one in facts if len(one.example) > 0] or list(facts[:1])
    with naming("y"):
        classes = np.unique(np.concatenate([one.classes for one in with_rows]))
    return Facts(
        np.concatenate([one.n_samples for one in facts]),
        np.concatenate([one.n_rows for one in facts]),
        weight,
        mean,
        squares,
        classes,
        with_rows[0].example,
    )


@dataclass(frozen=True)
class Sample:
    """Distinct rows of positive weight with their keys, ascending, and their numbers among all rows."""

    keys: NDArray[np.uint64]
    rows: IntArray
    X: FloatArray


def sample(part: Training, first: int, size: int, seed: int) -> Sample:
    """Return the ``size`` rows with the smallest keys; ``first`` is the number of the first row."""
    return joined_samples([Sample(keys(part.X, seed), first + part.rows, part.X)], size)


def joined_samples(samples: Sequence[Sample], size: int) -> Sample:
    """Return the ``size`` rows with the smallest keys of these samples, given in the order of their rows."""
    found, at = np.unique(np.concatenate([one.keys for one in samples]), return_index=True)
    found, at = found[:size], at[:size]
    rows = np.concatenate([one.rows for one in samples])[at]
    return Sample(found, rows, np.concatenate([one.X for one in samples])[at])


@dataclass(frozen=True)
class Functions(Kernels):
    """The basis functions without the bias: kernels about centres, one kernel after another, then columns."""

    #: Subtracted from the extra columns, so that their sums do not cancel.
    shift: FloatArray = field(default_factory=lambda: np.zeros(0))

    def at(self, X: FloatArray) -> FloatArray:
        """Return the values at these rows, (n, n_basis)."""
        blocks = [evaluate(kernel, X, self.centres, self.n_threads) for kernel in self.kernels]
        return np.hstack([*blocks, columns_at(self.extra, X, self.n_extra) - self.shift])


def aligned(part: Training, functions: Functions) -> tuple[Training, Functions]:
    """Return both as the core can read them: an array unpickled from a message may be misaligned."""
    y = part.y if part.y.dtype != np.float64 else np.require(part.y, np.float64, PLAIN)
    weights = None if part.weights is None else np.require(part.weights, np.float64, PLAIN)
    rows = replace(part, X=np.require(part.X, np.float64, PLAIN), y=y, weights=weights)
    return rows, replace(functions, centres=np.require(functions.centres, np.float64, PLAIN))


def sums(part: Training, functions: Functions) -> SufficientStatistics:
    """Return the sums of a regression over the rows of a partition."""
    part, functions = aligned(part, functions)
    statistics = SufficientStatistics(functions.n_basis, n_jobs=functions.n_threads)
    if len(part.X) > 0:
        functions.add(statistics, part.X, part.y, part.weights)
    return statistics


def merged_sums(parts: Sequence[SufficientStatistics]) -> SufficientStatistics:
    """Return the sum of these, added in their order."""
    total = SufficientStatistics(parts[0].n_basis, n_jobs=1)
    for one in parts:
        total.merge(one)
    return total


class WorkerRows(RowPart):
    """A provider on a worker, with its size for Dask's scheduler.

    The size includes what the core stores between calls: moving the rows to another worker loses that.
    """

    def __sizeof__(self) -> int:
        given = sum(values.nbytes for values in self._rows if values is not None)
        return 2 * given + self.n_samples * _BYTES_PER_ACTIVE * min(self.n_basis, _MAX_ACTIVE)


def one_against_the_rest(part: Training, functions: Functions, bias: bool, label: Any) -> WorkerRows:
    """Return the provider of a partition's rows, with target 1 for rows of this label and 0 for others."""
    part, functions = aligned(part, functions)
    target = (part.y == label).astype(np.float64)
    options: dict[str, Any] = {
        "fit_intercept": bias,
        "likelihood": "bernoulli",
        "n_jobs": functions.n_threads,
    }
    if functions.n_extra > 0:
        return WorkerRows(functions.at(part.X), target, part.weights, **options)
    options |= {"kernels": functions.kernels, "centres": functions.centres}
    return WorkerRows(part.X, target, part.weights, **options)
