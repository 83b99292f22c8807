"""Basis functions whose sums over rows are asked for, and how much memory that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from .. import _core
from .._types import FloatArray
from ..kernels import Kernel
from .design import evaluate
from .extra_columns import columns_at
from .memory import in_words
from .statistics import SufficientStatistics

#: Values of a block of rows, at most, unless it is shorter than the least number of rows.
_VALUES: Final = 1 << 22
_LEAST, _MOST = 512, 8192
#: Bytes for each pair of functions: sums so far and those of a block, of 16 each; then in place of the latter
#: the matrices of a fit, measured with nearly all functions in the model.
_PAIR: Final = 100
#: Bytes for each function: a strip of rows, whole and cut in two.
_FUNCTION: Final = 3 * 520 * 8 + 256
#: Bytes for each value of a block: as it is read, as checked, and as kernels take it.
_VALUE: Final = 32


class Summed(Protocol):
    """Functions of rows."""

    @property
    def n_basis(self) -> int:
        """Number of functions."""

    @property
    def width(self) -> int:
        """Values that a row takes while it is summed."""

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows: all of them or, after an error, none."""

    def most(self, n_basis: int) -> str:
        """Say how many there may be, where ``n_basis`` functions fit."""


@dataclass(frozen=True)
class Columns:
    """The columns of X."""

    n_basis: int

    @property
    def width(self) -> int:
        """Values that a row takes while it is summed."""
        return self.n_basis

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows."""
        stats._take(X, t, w)

    def most(self, n_basis: int) -> str:
        """Say how many columns fit."""
        return f"X has {self.n_basis} columns; give at most {n_basis} of them"


@dataclass(frozen=True)
class Kernels:
    """Kernels about centres, all of the first kernel before those of the second, and extra columns."""

    kernels: list[Kernel]
    centres: FloatArray
    extra: Any = None
    n_extra: int = 0
    n_threads: int | None = None

    @cached_property
    def _cores(self) -> list[_core.Kernel] | None:
        """The kernels as the core knows them, None if it does not know all."""
        cores = [core for kernel in self.kernels if (core := kernel.to_core()) is not None]
        return cores if len(cores) == len(self.kernels) else None

    @property
    def n_basis(self) -> int:
        """Number of functions."""
        return len(self.kernels) * len(self.centres) + self.n_extra

    @property
    def width(self) -> int:
        """Values that a row takes while it is summed: those of kernels only if Python evaluates them."""
        own = 0 if self._cores is not None else len(self.kernels) * len(self.centres)
        return int(self.centres.shape[1]) + self.n_extra + own

    def add(self, stats: SufficientStatistics, X: FloatArray, t: FloatArray, w: FloatArray | None) -> None:
        """Add checked rows; kernels of the core are evaluated strip by strip."""
        X = np.ascontiguousarray(X)
        extra = columns_at(self.extra, X, self.n_extra)
        if self._cores is not None:
            beside = np.asfortranarray(extra) if self.n_extra else None
            stats._core.update_kernel(
                X, self.centres, self._cores, t, w, extra=beside, n_threads=self.n_threads
            )
            return
        rows = block_rows(self.width)
        if len(X) <= rows:
            blocks = [evaluate(kernel, X, self.centres, self.n_threads) for kernel in self.kernels]
            stats._take(np.hstack([*blocks, extra]), t, w)
            return
        sums = SufficientStatistics(self.n_basis, n_jobs=self.n_threads)
        for start in range(0, len(X), rows):
            at = slice(start, start + rows)
            self.add(sums, X[at], t[at], None if w is None else w[at])
        stats.merge(sums)

    def most(self, n_basis: int) -> str:
        """Say how many candidates fit."""
        fit = max(0, n_basis - self.n_extra) // len(self.kernels)
        each = f" for each of {len(self.kernels)} kernels" if len(self.kernels) > 1 else ""
        return f"There are {len(self.centres)} candidates{each}; give at most candidates={fit}"


def block_rows(width: int, values: int = _VALUES) -> int:
    """Return how many rows of so many values are taken at a time: a power of 2, whatever else is known."""
    rows = 1 << max(0, math.floor(math.log2(values / max(1, width))))
    return min(max(rows, _LEAST), _MOST)


def check_room(functions: Summed, n_features: int, limit: int) -> None:
    """Raise ValueError, naming how many functions fit, if sums of these take more than ``limit`` bytes."""
    rows = _VALUE * block_rows(functions.width) * max(functions.width, n_features)
    needed = bytes_of_sums(functions.n_basis) + rows
    if needed <= limit:
        return
    # The root of a K^2 + b K = what is left.
    left, a, b = max(0.0, limit - rows), _PAIR, _FUNCTION
    fits = max(0, int((math.sqrt(b * b + 4 * a * left) - b) / (2 * a)) - 2)
    raise ValueError(
        f"memory_limit of {in_words(limit)} is too small: sums over pairs of functions take "
        f"{in_words(needed)} here. {functions.most(fits)}, or raise memory_limit"
    )


def bytes_of_sums(n_basis: int) -> int:
    """Return the bytes that a fit of sums over so many functions takes beside the rows."""
    size = n_basis + 2
    return _PAIR * size * size + _FUNCTION * size
