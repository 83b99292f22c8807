"""What a first pass over rows finds out: a sample to choose centres from, and the scale of X."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from .._checks.targets import Training
from .._types import FloatArray, IntArray

#: Constants of splitmix64 (Steele, Lea & Flood 2014), a bijection of 64 bits that mixes well.
_STEP, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def seed_of(random_state: np.random.RandomState) -> int:
    """Return a seed for `keys` from a generator, which is left as it is."""
    return int(copy.deepcopy(random_state).randint(0, 2**63 - 1, dtype=np.int64))


def keys(X: FloatArray, seed: int) -> NDArray[np.uint64]:
    """Return a number for each row that looks random, and is the same for equal rows.

    The rows with the smallest numbers are a uniform sample of the distinct rows, in whatever order and parts
    they come.
    """
    state = np.full(len(X), seed, dtype=np.uint64)
    for column in X.T:
        state ^= (column + 0.0).view(np.uint64)  # the zero of either sign is one number
        state += _STEP
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        state ^= state >> np.uint64(31)
    return state


class RowSample:
    """A uniform sample of the distinct rows that count, as they pass by: those with the smallest keys."""

    def __init__(self, size: int, n_features: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._keys, self._rows = np.empty(0, np.uint64), np.empty(0, np.intp)
        self._X = np.empty((0, n_features))
        #: Keys of this size and more are those of rows left out.
        self._bound: np.uint64 | None = None

    def take(self, X: FloatArray, weights: FloatArray | None, first: int) -> None:
        """Look at rows of which ``first`` is the number of the first; those of zero weight do not count."""
        numbers = keys(X, self._seed)
        wanted = np.ones(len(X), bool) if weights is None else weights > 0.0
        if self._bound is not None:
            wanted &= numbers < self._bound
        new = np.flatnonzero(wanted)
        if len(new) == 0:
            return
        self._keys = np.concatenate([self._keys, numbers[new]])
        self._rows = np.concatenate([self._rows, first + new])
        self._X = np.concatenate([self._X, X[new]])
        if len(self._keys) > self._size:
            self._tidy()

    def _tidy(self) -> None:
        """Keep the first row of each key, and the smallest keys."""
        # Of equal keys `unique` finds the first, which came earlier.
        found, at = np.unique(self._keys, return_index=True)
        found, at = found[: self._size], at[: self._size]
        self._keys, self._rows, self._X = found, self._rows[at], self._X[at]
        if len(found) == self._size:
            self._bound = found[-1]

    def training(self, n_samples: int) -> Training:
        """Return the sample as if it were the rows that count, out of ``n_samples``."""
        self._tidy()
        order = np.argsort(self._rows)
        rows: IntArray = self._rows[order]
        return Training(self._X[order], np.zeros(len(rows)), None, rows, n_samples)


class Moments:
    """Weighted mean and variance of each column of rows that pass by (Chan, Golub & LeVeque 1983)."""

    def __init__(self, n_features: int) -> None:
        self._weight = 0.0
        self._mean, self._squares = np.zeros(n_features), np.zeros(n_features)

    def take(self, X: FloatArray, weights: FloatArray | None) -> None:
        """Take in rows."""
        if weights is not None and not weights.all():
            X, weights = X[weights > 0.0], weights[weights > 0.0]
        w = np.ones(len(X)) if weights is None else weights
        total = float(w.sum())
        if total == 0.0:
            return
        mean = w @ X / total
        squares = w @ (X - mean) ** 2
        apart, weight = mean - self._mean, self._weight + total
        self._squares += squares + apart**2 * (self._weight * total / weight)
        self._mean += apart * (total / weight)
        self._weight = weight

    def stand_in(self) -> FloatArray:
        """Return two rows whose columns have the means and variances of all: what `resolve` asks of rows."""
        if self._weight == 0.0:
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        spread = np.sqrt(self._squares / self._weight)
        return np.stack([self._mean - spread, self._mean + spread])
