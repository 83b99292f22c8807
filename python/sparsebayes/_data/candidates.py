"""The centres of the kernel functions: what `candidates=` takes, and how ``active_`` numbers centres.

- None: every training row is a centre; ``active_`` numbers training rows.
- An int, or "auto" if there are many rows: some rows, in `candidate_rows_` (and `candidates_` unless the
  kernel is precomputed); ``active_`` numbers training rows.
- An array: its rows are the centres, in `candidates_`; ``active_`` numbers its rows.
"""

from __future__ import annotations

import copy
import numbers
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_array, check_random_state

from .._arrays import Training, check_finite, check_square, distinct_rows, first_of_equal, naming
from .._cancellable import one_blas_thread
from .._checks import as_numpy, check_integer, column_names, is_auto, naming_column
from .._types import FloatArray, IntArray
from ..kernels._resolve import is_precomputed

if TYPE_CHECKING:
    from .chunks import Rows

_KINDS: Final = (
    "'auto', None (every training row), an integer of at least 1 (that many training rows), or an array of "
    "centres, (n_candidates, n_features)"
)
#: "auto": every row up to `_MOST` rows; of more, so many that the functions have `_MOST_VALUES` values at the
#: rows, but at least `_LEAST` and at most `_MOST`. Under the prior of a Gaussian process `_MOST`. Measured:
#: docs/notebook/large-data.md, docs/notebook/final-weights.md.
_LEAST, _MOST, _MOST_VALUES = 1000, 2000, 10**7
#: Attributes of estimators whose centres were chosen among the training rows, which are the second.
CHOSEN: Final = ("candidates_", "candidate_rows_")
#: Sample that centres are chosen from: at least so many rows, and so many for each centre. Measured:
#: docs/notebook/large-data.md.
_ROWS: Final = 1 << 15
_ROWS_PER_CENTRE: Final = 20


def place(estimator: Any, training: Training) -> None:
    """Determine the centres of a fit and set the attributes that describe them."""
    for name in CHOSEN:
        estimator.__dict__.pop(name, None)  # from an earlier fit
    given, precomputed = estimator.candidates, is_precomputed(estimator.kernel)
    with naming("random_state"):
        random_state = check_random_state(estimator.random_state)
    if is_auto(given):
        rows = training.rows if precomputed else distinct_rows(training)
        n = min(_MOST, max(_LEAST, _MOST_VALUES // training.n_samples))
        if not precomputed and n < len(rows):
            estimator.candidate_rows_ = _sample(training, rows, n, 0)
            estimator.candidates_ = training.at(estimator.candidate_rows_)
        return
    if given is None:
        return
    if not is_number(given):
        width = training.X.shape[1]
        estimator.candidates_ = _check_centres(estimator, given, width, precomputed=precomputed)
        return
    if precomputed:
        check_square(training)
    estimator.candidate_rows_ = _choose(training, _number(given), random_state, precomputed=precomputed)
    if not precomputed:
        estimator.candidates_ = training.at(estimator.candidate_rows_)


def choose(estimator: Any, training: Training, rows: IntArray) -> None:
    """Set the attributes that describe centres at these training rows; if they are all, there are none."""
    for name in CHOSEN:
        estimator.__dict__.pop(name, None)
    if len(rows) < len(distinct_rows(training)):
        estimator.candidate_rows_, estimator.candidates_ = rows, training.at(rows)


def for_process(estimator: Any, training: Training) -> IntArray | None:
    """Return centres for weights under the prior of a Gaussian process, None if they are those placed."""
    if not is_auto(estimator.candidates) or len(rows := distinct_rows(training)) <= _MOST:
        return None
    return _sample(training, rows, _MOST, 0)


def is_number(given: Any) -> bool:
    """Tell whether ``candidates`` is a number of training rows."""
    return isinstance(given, numbers.Integral) and not isinstance(given, bool)


def number(given: Any, n_samples: int) -> int:
    """Return the number of centres, for estimates, without checks."""
    if is_number(given):
        return min(int(given), n_samples)
    if is_auto(given):
        return min(_MOST, n_samples)
    if isinstance(given, (list, tuple)):
        return len(given)
    shape = getattr(given, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else n_samples


def sample_size(given: Any) -> int:
    """Return the size of the sample from which so many centres are chosen."""
    return max(_ROWS, _ROWS_PER_CENTRE * _number(given))


def block_size(estimator: Any, training: Training) -> int:
    """Return how many numbers of ``active_`` each kernel has: kernel p has p * size to (p + 1) * size - 1."""
    return len(estimator.candidates_) if are_given(estimator) else training.n_samples


def in_use(estimator: Any, training: Training) -> IntArray:
    """Return the functions of a kernel in the dictionary, numbered as in ``active_``, ascending.

    Of equal centres, which have equal functions, only the first is in the dictionary.
    """
    if are_given(estimator):
        return first_of_equal(estimator.candidates_)
    if hasattr(estimator, "candidate_rows_"):
        rows: IntArray = estimator.candidate_rows_
        return rows
    return training.rows if is_precomputed(estimator.kernel) else distinct_rows(training)


def points(estimator: Any, training: Training, functions: IntArray) -> FloatArray:
    """Return the centres of these functions of a kernel, numbered as in ``active_``."""
    if not hasattr(estimator, "candidates_"):
        return training.at(functions)
    at = functions if are_given(estimator) else np.searchsorted(estimator.candidate_rows_, functions)
    centres: FloatArray = estimator.candidates_[at]
    return centres


def are_given(fitted: Any) -> bool:
    """Tell whether the centres were given as an array."""
    return hasattr(fitted, "candidates_") and not hasattr(fitted, "candidate_rows_")


def _choose(
    training: Training, n: int, random_state: np.random.RandomState, *, precomputed: bool
) -> IntArray:
    """Choose ``n`` rows by k-means++ (Arthur & Vassilvitskii 2007), ascending; all if there are fewer.

    Distinct rows count once each, so that a weight of 2 is equivalent to the row twice.
    """
    rows = training.rows if precomputed else distinct_rows(training)
    if n >= len(rows):
        return rows
    size = sample_size(n)
    if size < len(rows):
        if precomputed:
            rows = rows[np.sort(random_state.choice(len(rows), size, replace=False))]
        else:
            rows = _sample(training, rows, size, seed_of(random_state))
    X = training.at(rows)[:, training.rows] if precomputed else training.at(rows)
    # Without its mean, and with a largest entry near 1, so that squares neither overflow nor cancel.
    X = X / (float(np.abs(X).max()) or 1.0)
    X = X - X.mean(axis=0)
    X = X / (float(np.abs(X).max()) or 1.0)
    with one_blas_thread():
        _, found = kmeans_plusplus(X, n, random_state=random_state)
    chosen = np.unique(found)
    if len(chosen) < n:
        # Rows that round-off cannot distinguish may be chosen twice.
        others = np.setdiff1d(np.arange(len(rows)), chosen)
        chosen = np.union1d(chosen, random_state.choice(others, n - len(chosen), replace=False))
    picked: IntArray = rows[chosen]
    return picked


def _sample(training: Training, rows: IntArray, size: int, seed: int) -> IntArray:
    """Draw distinct rows, ascending.

    The draw depends on the values of the rows alone: a fit that reads chunks draws the same.
    """
    drawn: IntArray = rows[np.sort(np.argpartition(keys(training.at(rows), seed), size)[:size])]
    return drawn


def _number(given: Any) -> int:
    try:
        return check_integer("candidates", given, least=1)
    except ValueError:
        raise ValueError(f"candidates must be {_KINDS}; got {given!r}") from None


def _check_centres(estimator: Any, centres: ArrayLike, n_features: int, *, precomputed: bool) -> FloatArray:
    centres = as_numpy("candidates", centres)
    with naming("candidates"):
        n_dimensions = np.ndim(centres)
    if n_dimensions == 0:
        raise TypeError(f"candidates must be {_KINDS}; got {centres!r}")
    if precomputed:
        raise ValueError(
            "candidates must be None or an integer with kernel='precomputed', which has no values for other "
            "centres; give K(X, candidates) to SparseBayesRegressor or SparseBayesClassifier"
        )
    if n_dimensions != 2:
        raise ValueError(
            f"candidates must have the shape (n_candidates, n_features), got {n_dimensions} dimensions; for "
            "training rows by number give X[rows], for one centre [centre]"
        )
    names, own = getattr(estimator, "feature_names_in_", None), column_names(centres)
    if names is not None and own is not None and list(names) != own:
        raise ValueError(
            "candidates must have the columns of X by name and order: give candidates[X.columns], or an array"
        )
    with naming("candidates"), naming_column("candidates", centres):
        values = check_finite("candidates", check_array(centres, dtype="numeric", input_name="candidates"))
    if values.shape[1] != n_features:
        raise ValueError(
            f"candidates must have the {n_features} columns of X, got {values.shape[1]}; give a centre in "
            "each row"
        )
    return np.array(values, order="C")


#: Constants of splitmix64 (Steele, Lea & Flood 2014), a bijection of 64 bits.
_STEP, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def seed_of(random_state: np.random.RandomState) -> int:
    """Return a seed for `keys` from a generator, whose state does not change."""
    return int(copy.deepcopy(random_state).randint(0, 2**63 - 1, dtype=np.int64))


def keys(X: FloatArray, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each row, the same for equal rows.

    The rows with the smallest numbers are a uniform sample of the distinct rows, in whatever order and parts
    they are read.
    """
    state = np.full(len(X), seed, dtype=np.uint64)
    for column in X.T:
        state ^= (column + 0.0).view(np.uint64)  # -0.0 equals 0.0
        state += _STEP
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        state ^= state >> np.uint64(31)
    return state


class RowSample:
    """A uniform sample of the distinct rows of positive weight: the rows with the smallest keys."""

    def __init__(self, size: int, n_features: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._keys, self._rows = np.empty(0, np.uint64), np.empty(0, np.intp)
        self._X, self._weights = np.empty((0, n_features)), np.empty(0)
        self._y: NDArray[Any] = np.empty(0)
        #: Rows with this key or a larger one are not in the sample.
        self._bound: np.uint64 | None = None

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        numbers = keys(rows.X, self._seed)
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        usable = weights > 0.0
        if self._bound is not None:
            usable &= numbers < self._bound
        new = np.flatnonzero(usable)
        self._append(numbers[new], rows.first + new, rows.X[new], weights[new], rows.y[new])

    def merge(self, later: RowSample, first: int) -> None:
        """Add a sample of rows that follow; ``first`` is the number of the row that is 0 there."""
        self._append(later._keys, first + later._rows, later._X, later._weights, later._y)

    def _append(
        self,
        numbers: NDArray[np.uint64],
        rows: IntArray,
        X: FloatArray,
        weights: FloatArray,
        y: NDArray[Any],
    ) -> None:
        if len(numbers) == 0:
            return
        self._y = np.concatenate([self._y, y]) if len(self._keys) > 0 else y
        self._keys = np.concatenate([self._keys, numbers])
        self._rows = np.concatenate([self._rows, rows])
        self._X = np.concatenate([self._X, X])
        self._weights = np.concatenate([self._weights, weights])
        if len(self._keys) > self._size:
            self._trim()

    def _trim(self) -> None:
        """Keep the first row of each key, and the smallest keys."""
        # Of equal keys `unique` returns the first, which was added earlier.
        found, at = np.unique(self._keys, return_index=True)
        found, at = found[: self._size], at[: self._size]
        self._keys, self._rows, self._X = found, self._rows[at], self._X[at]
        self._weights, self._y = self._weights[at], self._y[at]
        if len(found) == self._size:
            self._bound = found[-1]

    def training(self, n_samples: int, most: int | None = None) -> Training:
        """Return the sample, or ``most`` of its rows, as training data out of ``n_samples`` rows."""
        self._trim()
        kept = np.arange(len(self._keys))[:most]  # their keys ascend
        order = kept[np.argsort(self._rows[kept])]
        return Training(self._X[order], self._y[order], self._weights[order], self._rows[order], n_samples)
