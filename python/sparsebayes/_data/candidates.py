"""Where the kernel functions of a dictionary stand: what `candidates=` takes, and how centres are numbered.

All rows (None): nothing is published, and functions are training rows. Some rows (an int): `candidate_rows_`
and, where rows are points, `candidates_`; functions still are training rows. Given centres: `candidates_`
alone, and functions are its rows.
"""

from __future__ import annotations

import copy
import numbers
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_array, check_random_state

from .._cancellable import one_blas_thread
from .._checks.arguments import check_integer
from .._checks.numbers import column_names, naming_column
from .._checks.targets import Training, check_finite, check_square, distinct_rows, first_of_equal, naming
from .._types import FloatArray, IntArray
from ..kernels._resolve import is_precomputed

_KINDS: Final = (
    "None (every training row), an integer of at least 1 (that many training rows), or an array of centres, "
    "(n_candidates, n_features)"
)
#: How many rows the choice looks at: at least so many, and so many for each centre. Measured:
#: docs/notebook/large-data.md.
_ROWS: Final = 1 << 15
_ROWS_PER_CENTRE: Final = 20


def place(estimator: Any, training: Training) -> None:
    """Find the centres of a fit and publish them."""
    for name in ("candidates_", "candidate_rows_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit
    asked, precomputed = estimator.candidates, is_precomputed(estimator.kernel)
    with naming("random_state"):
        random_state = check_random_state(estimator.random_state)
    if asked is None:
        return
    if is_number(asked):
        if precomputed:
            check_square(training)
        estimator.candidate_rows_ = _choose(training, _number(asked), random_state, precomputed=precomputed)
        if not precomputed:
            estimator.candidates_ = training.at(estimator.candidate_rows_)
        return
    estimator.candidates_ = _check_centres(estimator, asked, training.X.shape[1], precomputed=precomputed)


def is_number(asked: Any) -> bool:
    """Tell whether a number of training rows is asked for."""
    return isinstance(asked, numbers.Integral) and not isinstance(asked, bool)


def number(asked: Any, n_samples: int) -> int:
    """Return how many centres are asked for, for estimates: nothing is checked."""
    if is_number(asked):
        return min(int(asked), n_samples)
    if isinstance(asked, (list, tuple)):
        return len(asked)
    shape = getattr(asked, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else n_samples


def sample_size(asked: Any) -> int:
    """Return how many rows the choice of so many centres looks at."""
    return max(_ROWS, _ROWS_PER_CENTRE * _number(asked))


def block_size(estimator: Any, training: Training) -> int:
    """Return how many functions a kernel has by the count of ``active_``, in use or not."""
    return len(estimator.candidates_) if are_given(estimator) else training.n_samples


def in_use(estimator: Any, training: Training) -> IntArray:
    """Return the functions of a kernel that the dictionary holds, counted as in ``active_``, ascending.

    Equal centres have equal functions; the first stands for all.
    """
    if are_given(estimator):
        return first_of_equal(estimator.candidates_)
    if hasattr(estimator, "candidate_rows_"):
        rows: IntArray = estimator.candidate_rows_
        return rows
    return _every_row(training, precomputed=is_precomputed(estimator.kernel))


def points(estimator: Any, training: Training, functions: IntArray) -> FloatArray:
    """Return the centres of these functions of a kernel, counted as in ``active_``."""
    if not hasattr(estimator, "candidates_"):
        return training.at(functions)
    at = functions if are_given(estimator) else np.searchsorted(estimator.candidate_rows_, functions)
    centres: FloatArray = estimator.candidates_[at]
    return centres


def are_given(fitted: Any) -> bool:
    """Tell whether the centres were given as an array, so that functions are not training rows."""
    return hasattr(fitted, "candidates_") and not hasattr(fitted, "candidate_rows_")


def _every_row(training: Training, *, precomputed: bool) -> IntArray:
    """Return the rows with functions of their own; precomputed values say nothing of equal rows."""
    return training.rows if precomputed else distinct_rows(training)


def _choose(
    training: Training, n: int, random_state: np.random.RandomState, *, precomputed: bool
) -> IntArray:
    """Choose ``n`` rows that cover the inputs, ascending; all of them where there are no more than that.

    By k-means++ (Arthur & Vassilvitskii 2007): each row with a probability in proportion to its squared
    distance from the nearest one chosen before, the best of several drawn. Distinct rows count once each,
    so that a weight of 2 remains the row twice.
    """
    rows = _every_row(training, precomputed=precomputed)
    if n >= len(rows):
        return rows
    size = sample_size(n)
    if size < len(rows):
        if precomputed:
            sample = random_state.choice(len(rows), size, replace=False)
        else:
            # By keys: rows read part by part have the same sample.
            sample = np.argpartition(keys(training.at(rows), seed_of(random_state)), size)[:size]
        rows = rows[np.sort(sample)]
    X = _in_own_units(training.at(rows)[:, training.rows] if precomputed else training.at(rows))
    with one_blas_thread():
        _, found = kmeans_plusplus(X, n, random_state=random_state)
    chosen = np.unique(found)
    if len(chosen) < n:
        # Where rows are closer to one another than rounding lets distances see, some are found twice.
        others = np.setdiff1d(np.arange(len(rows)), chosen)
        chosen = np.union1d(chosen, random_state.choice(others, n - len(chosen), replace=False))
    picked: IntArray = rows[chosen]
    return picked


def _in_own_units(X: FloatArray) -> FloatArray:
    """Return X about its mean, the largest entry being 1 or so: squares neither overflow nor cancel."""
    largest = float(np.abs(X).max())
    X = X / largest if largest > 0.0 else X
    X = X - X.mean(axis=0)
    largest = float(np.abs(X).max())
    return X / largest if largest > 0.0 else X


def _number(asked: Any) -> int:
    try:
        return check_integer("candidates", asked, least=1)
    except ValueError:
        raise ValueError(f"candidates must be {_KINDS}; got {asked!r}") from None


def _check_centres(estimator: Any, centres: ArrayLike, n_features: int, *, precomputed: bool) -> FloatArray:
    with naming("candidates"):
        n_dimensions = np.ndim(centres)
    if n_dimensions == 0:
        raise TypeError(f"candidates must be {_KINDS}; got {centres!r}")
    if precomputed:
        raise ValueError(
            "candidates must be None or an integer with kernel='precomputed', which has no values about "
            "others; give K(X, candidates) to SparseBayesRegressor or SparseBayesClassifier"
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
