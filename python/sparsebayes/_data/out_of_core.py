"""Sums over rows that are read in parts, with checkpoints to resume from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._progress import ReadReporter
from .._types import FloatArray
from .candidates import RowSample
from .checkpoint import open_checkpoint
from .chunks import Chunks, Rows, located
from .statistics import SufficientStatistics, Summed, block_rows, check_memory_limit, check_room

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .._estimators.chunked import ChunkedEstimator, SumsRegression

#: Results of a first pass by name, as a checkpoint stores them.
Facts = dict[str, NDArray[Any]]


class Gathering:
    """Sums over all rows of a data set, after a first pass if the basis functions depend on the rows.

    Attributes
    ----------
    stats : SufficientStatistics
        The sums, set by `run`.
    reading : ReadReporter
        Reports on the passes; tells whether the callback stopped them.
    """

    stats: SufficientStatistics

    def __init__(self, estimator: SumsRegression, chunks: Chunks) -> None:
        self._estimator, self._chunks = estimator, chunks
        self._checkpoint = open_checkpoint(estimator, chunks.n_features)
        self.reading = ReadReporter(estimator, chunks.n_rows)
        self._digest: RowDigest | None = None if self._checkpoint is None else RowDigest()

    def run(self) -> None:
        """Determine the basis functions and sum over all rows, or until the callback stops it."""
        estimator, d = self._estimator, self._chunks.n_features
        state: Facts | None = None if self._checkpoint is None else self._checkpoint.load()
        if state is None:
            estimator._check_memory(self._chunks)
            state = self._first_pass()
            if self._checkpoint is not None and state:
                self._checkpoint.save(**state)
        estimator._publish_functions(state, d)
        functions = estimator._summed(d)
        check_room(functions, d, check_memory_limit(estimator.memory_limit))
        self._sum(functions, state)

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint after the fit."""
        if self._checkpoint is not None:
            self._checkpoint.remove()

    def _first_pass(self) -> Facts:
        size, moments = self._estimator._first_pass_needs(self._chunks.n_features)
        if size is None and not moments:
            return {}
        self._chunks.check_passes("an integer in candidates" if size is not None else "gamma='scale'")
        digest = None if self._checkpoint is None else RowDigest()
        blocks = self._chunks.blocks(block_rows(self._chunks.n_features))
        if digest is not None:
            blocks = _digested(blocks, digest)
        what = "looking for centres" if size is not None else "measuring X"
        facts = first_pass(self._estimator, self.reading.passing(what, blocks), self._chunks.n_features)
        if self.reading.stopped:
            # No checkpoint: a fit of all rows would have other centres.
            self._checkpoint = self._digest = None
        elif digest is not None:
            facts["whole"] = digest.digest()
        return facts

    def _sum(self, functions: Summed, state: Facts) -> None:
        done = int(state["rows"]) if "rows" in state else 0
        self.stats = _restored(functions.n_basis, self._estimator.n_jobs, done, state)
        known = {name: array for name, array in state.items() if name not in ("rows", "parts", "digest")}
        rows, blocks = 0, self._chunks.blocks(block_rows(max(functions.width, self._chunks.n_features)))
        for block in self.reading.passing("summing", blocks, done):
            rows += len(block)
            if self._digest is not None:
                self._digest.write(block)
            if rows > done:
                with located(block.chunk, block.first, len(block)):
                    functions.add(self.stats, block.X, block.y, block.weights)
                if self._checkpoint is not None and self._checkpoint.is_due():
                    self._save(rows, known)
            elif rows == done and self._digest is not None:
                self._compare("digest", state)
        self._finish(max(rows, done), done, rows, known, state)

    def _finish(self, n: int, done: int, rows: int, known: Facts, state: Facts) -> None:
        if self._checkpoint is None:
            return
        if rows < done and not self.reading.stopped:
            raise self._checkpoint.mismatch()
        if not self.reading.stopped and "whole" in state:
            self._compare("whole", state)
        if n > done:
            self._save(n, known)

    def _compare(self, name: str, state: Facts) -> None:
        """Raise ValueError if the rows read differ from the rows of a stored digest."""
        assert self._digest is not None
        assert self._checkpoint is not None
        if not np.array_equal(self._digest.digest(), state[name]):
            raise self._checkpoint.mismatch()

    def _save(self, rows: int, known: Facts) -> None:
        assert self._digest is not None
        assert self._checkpoint is not None
        _, parts = self.stats._core.parts()
        self._checkpoint.save(**known, rows=np.array(rows), parts=parts, digest=self._digest.digest())


class RowDigest:
    """A running digest of rows."""

    def __init__(self) -> None:
        self._state = hashlib.blake2b(digest_size=32)

    def write(self, rows: Rows) -> None:
        """Add the next rows."""
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        for values in (rows.X, rows.y, weights):
            self._state.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def digest(self) -> NDArray[np.uint8]:
        """Return the digest of all rows so far."""
        return np.frombuffer(self._state.digest(), np.uint8)


def _digested(blocks: Iterable[Rows], digest: RowDigest) -> Iterator[Rows]:
    for block in blocks:
        digest.write(block)
        yield block


def first_pass(estimator: ChunkedEstimator, blocks: Iterable[Rows], n_features: int) -> Facts:
    """Read the rows and return the facts that the basis functions of an estimator depend on."""
    size, needs_moments = estimator._first_pass_needs(n_features)
    sample = None if size is None else RowSample(size, n_features, estimator._sampling_seed())
    moments = Moments(n_features) if needs_moments else None
    n_samples = 0
    for rows in blocks:
        if sample is not None:
            sample.add(rows.X, rows.weights, rows.first)
        if moments is not None:
            moments.add(rows.X, rows.weights)
        n_samples += len(rows)
    facts: Facts = {}
    if sample is not None:
        facts.update(estimator._choose_centres(sample.training(n_samples)))
    if moments is not None:
        facts["inputs"] = moments.rows()
    return facts


def _restored(n_basis: int, n_jobs: int | None, rows: int, state: Facts) -> SufficientStatistics:
    stats = SufficientStatistics(n_basis, n_jobs=n_jobs)
    if "parts" in state:
        stats._core = _core.SufficientStatistics.from_parts(n_basis, rows, state.pop("parts"))
    return stats


class Moments:
    """Running weighted mean and variance of each column (Chan, Golub & LeVeque 1983)."""

    def __init__(self, n_features: int) -> None:
        self._weight = 0.0
        self._mean, self._squares = np.zeros(n_features), np.zeros(n_features)

    def add(self, X: FloatArray, weights: FloatArray | None) -> None:
        """Add rows."""
        if weights is not None and not weights.all():
            X, weights = X[weights > 0.0], weights[weights > 0.0]
        w = np.ones(len(X)) if weights is None else weights
        total = float(w.sum())
        if total == 0.0:
            return
        mean = w @ X / total
        squares = w @ (X - mean) ** 2
        difference, weight = mean - self._mean, self._weight + total
        self._squares += squares + difference**2 * (self._weight * total / weight)
        self._mean += difference * (total / weight)
        self._weight = weight

    def rows(self) -> FloatArray:
        """Return two rows with the means and variances of all rows, which is all that `resolve` uses."""
        if self._weight == 0.0:
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        std = np.sqrt(self._squares / self._weight)
        return np.stack([self._mean - std, self._mean + std])
