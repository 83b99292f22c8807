"""Passes over rows that are read in parts: what basis functions depend on, and sums with checkpoints."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .. import _core
from .._checks.targets import naming
from .._progress import ReadReporter
from .._types import FloatArray
from .candidates import RowSample, seed_of
from .checkpoint import Checkpoint, open_checkpoint
from .chunks import Chunks, Rows, located
from .statistics import SufficientStatistics, Summed, block_rows, check_memory_limit, check_room

if TYPE_CHECKING:
    from .._estimators.chunked import ChunkedEstimator, SumsRegression

#: Bytes of a digest of rows.
_DIGEST: Final = 32
#: Results of a first pass by name, as a checkpoint stores them.
Facts = dict[str, NDArray[Any]]


class Survey:
    """What basis functions and classes depend on, from a first pass over the rows.

    Surveys of successive rows add up.

    Attributes
    ----------
    n_rows : int
    weight : float
        Sum of the weights of the rows.
    classes : ndarray
        Distinct labels of rows of positive weight, sorted; empty if targets are numbers.
    """

    def __init__(self, estimator: ChunkedEstimator, n_features: int) -> None:
        size, needs_moments = estimator._first_pass_needs(n_features)
        self.n_rows, self.weight = 0, 0.0
        self.classes: NDArray[Any] = np.empty(0)
        self._has_labels = estimator._labels
        self._sample: RowSample | None = None
        if size is not None:
            with naming("random_state"):
                seed = seed_of(check_random_state(estimator.random_state))
            self._sample = RowSample(size, n_features, seed)
        self._moments = Moments(n_features) if needs_moments else None

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        if self._sample is not None:
            self._sample.add(rows.X, rows.weights, rows.first)
        if self._moments is not None:
            self._moments.add(rows.X, rows.weights)
        if self._has_labels:
            self._add_labels(rows.y if rows.weights is None else rows.y[rows.weights > 0])
        self.n_rows += len(rows)
        self.weight += len(rows) if rows.weights is None else float(rows.weights.sum())

    def merge(self, later: Survey) -> None:
        """Add the survey of the rows that follow, which are numbered from 0 there."""
        if self._sample is not None and later._sample is not None:
            self._sample.merge(later._sample, self.n_rows)
        if self._moments is not None and later._moments is not None:
            self._moments.merge(later._moments)
        self._add_labels(later.classes)
        self.n_rows += later.n_rows
        self.weight += later.weight

    def _add_labels(self, labels: NDArray[Any]) -> None:
        if len(labels) > 0:
            with naming("y"):
                known = [self.classes] if len(self.classes) > 0 else []
                self.classes = np.unique(np.concatenate([*known, labels]))

    def facts(self, estimator: ChunkedEstimator) -> Facts:
        """Return what the basis functions of an estimator depend on; chooses its centres from the sample."""
        if self.weight == 0.0:
            # The words in parentheses are required by scikit-learn's checks.
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        facts: Facts = {}
        if self._sample is not None:
            facts.update(estimator._choose_centres(self._sample.training(self.n_rows)))
        if self._moments is not None:
            facts["inputs"] = self._moments.rows()
        return facts


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

    def run(self) -> None:
        """Determine the basis functions and sum over all rows, or until the callback stops it."""
        estimator, d = self._estimator, self._chunks.n_features
        state: Facts | None = None if self._checkpoint is None else self._checkpoint.load()
        if state is None:
            estimator._check_memory(self._chunks)
            state = self._first_pass()
            if self._checkpoint is not None and state:
                self._checkpoint.save(**state)
        estimator._publish_functions(state)
        functions = estimator._summed()
        check_room(functions, d, check_memory_limit(estimator.memory_limit))
        self._sum(functions, state)

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint after the fit."""
        if self._checkpoint is not None:
            self._checkpoint.remove()

    def _first_pass(self) -> Facts:
        d, digest = self._chunks.n_features, hashlib.blake2b(digest_size=_DIGEST)
        size, moments = self._estimator._first_pass_needs(d)
        if size is None and not moments:
            return {}
        self._chunks.check_passes("an integer in candidates" if size is not None else "gamma='scale'")
        what = "looking for centres" if size is not None else "measuring X"
        survey = Survey(self._estimator, d)
        for block in self.reading.passing(what, self._chunks.blocks(block_rows(d))):
            if self._checkpoint is not None:
                _feed(digest, block)
            survey.add(block)
        facts = survey.facts(self._estimator)
        if self.reading.stopped:
            # No checkpoint: a fit of all rows would have other centres.
            self._checkpoint = None
        elif self._checkpoint is not None:
            facts["whole"] = np.frombuffer(digest.digest(), np.uint8)
        return facts

    def _sum(self, functions: Summed, state: Facts) -> None:
        checkpoint, digest = self._checkpoint, hashlib.blake2b(digest_size=_DIGEST)
        rows, done = 0, int(state.get("rows", 0))
        self.stats = SufficientStatistics(functions.n_basis, n_jobs=self._estimator.n_jobs)
        if "parts" in state:
            self.stats._core = _core.SufficientStatistics.from_parts(
                functions.n_basis, done, state.pop("parts")
            )
        blocks = self._chunks.blocks(block_rows(max(functions.width, self._chunks.n_features)))
        for block in self.reading.passing("summing", blocks, done):
            rows += len(block)
            if checkpoint is not None:
                _feed(digest, block)
            if rows > done:
                with located(block.chunk, block.first, len(block)):
                    functions.add(self.stats, block.X, block.y, block.weights)
                if checkpoint is not None and checkpoint.is_due():
                    self._save(checkpoint, state, rows, digest.digest())
            elif rows == done and checkpoint is not None and digest.digest() != state["digest"].tobytes():
                raise checkpoint.mismatch()
        if checkpoint is None:
            return
        whole = state["whole"].tobytes() if "whole" in state else digest.digest()
        if not self.reading.stopped and (rows < done or digest.digest() != whole):
            raise checkpoint.mismatch()
        if rows > done:
            self._save(checkpoint, state, rows, digest.digest())

    def _save(self, checkpoint: Checkpoint, state: Facts, rows: int, digest: bytes) -> None:
        _, parts = self.stats._core.parts()
        sums = {"rows": np.array(rows), "parts": parts, "digest": np.frombuffer(digest, np.uint8)}
        checkpoint.save(**state | sums)


def _feed(digest: hashlib.blake2b, rows: Rows) -> None:
    """Add the next rows to a running digest."""
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    for values in (rows.X, rows.y, weights):
        digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


class Moments:
    """Running weighted mean and variance of each column (Chan, Golub & LeVeque 1983)."""

    def __init__(self, n_features: int) -> None:
        self.weight = 0.0
        self.mean, self.squares = np.zeros(n_features), np.zeros(n_features)

    def add(self, X: FloatArray, weights: FloatArray | None) -> None:
        """Add rows."""
        if weights is not None and not weights.all():
            X, weights = X[weights > 0.0], weights[weights > 0.0]
        w = np.ones(len(X)) if weights is None else weights
        total = float(w.sum())
        if total == 0.0:
            return
        mean = w @ X / total
        self._merge(total, mean, w @ (X - mean) ** 2)

    def merge(self, other: Moments) -> None:
        """Add the rows of ``other``."""
        if other.weight > 0.0:
            self._merge(other.weight, other.mean, other.squares)

    def _merge(self, total: float, mean: FloatArray, squares: FloatArray) -> None:
        difference, weight = mean - self.mean, self.weight + total
        self.squares += squares + difference**2 * (self.weight * total / weight)
        self.mean += difference * (total / weight)
        self.weight = weight

    def rows(self) -> FloatArray:
        """Return two rows with the means and variances of all rows, which is all that `resolve` uses."""
        std = np.sqrt(self.squares / self.weight)
        return np.stack([self.mean - std, self.mean + std])
