"""Predictions of a fitted model for Dask collections, made when somebody asks for them; and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from .._checks.targets import Training
from .engine import Engine, brought_together, on_each, shared
from .rows import check_columns, is_array, partitions

if TYPE_CHECKING:
    from .._types import FloatArray

#: Returns predictions for rows in memory, of which there is at least one.
Predict = Callable[[Any], Any]


def lazily(estimator: Any, X: Any, predict: Predict, dtype: Any, columns: Any = None) -> Any:
    """Return what ``predict`` says of each row of X: a collection of the kind of X with its partitions.

    ``columns``: names of the columns where a row has several values. Arrays become arrays, data frames
    series or data frames with the index of X.
    """
    check_is_fitted(estimator)
    X = check_columns(estimator, X, reset=False)
    n_columns = None if columns is None else len(columns)
    if is_array(X):
        meta = np.empty((0,) if n_columns is None else (0, n_columns), dtype)
        shape = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
        return X.map_blocks(_of_array, predict, meta, dtype=meta.dtype, meta=meta, **shape)
    empty = np.empty((0,) if n_columns is None else (0, n_columns), dtype)
    frame = _as_frame(empty, columns, X._meta.index)
    return X.map_partitions(_of_frame, predict, empty, columns, meta=frame)


def _of_array(X: Any, predict: Predict, empty: Any) -> Any:
    # Dask tries functions with no rows, and partitions may have none.
    return predict(X) if len(X) > 0 else empty


def _of_frame(X: Any, predict: Predict, empty: Any, columns: Any) -> Any:
    return _as_frame(_of_array(X.to_numpy(), predict, empty), columns, X.index)


def _as_frame(values: Any, columns: Any, index: Any) -> Any:
    if columns is None:
        # Labels that are objects stay such: pandas would look at them, and find nothing where there are none.
        return pd.Series(values, index=index, dtype=object if values.dtype == object else None)
    return pd.DataFrame(values, index=index, columns=columns)


class Moments:
    """Mean and standard deviation side by side, so that both come of one pass over the functions."""

    def __init__(self, local: Any) -> None:
        self._local = local

    def __call__(self, X: Any) -> FloatArray:
        return np.column_stack(self._local.predict(X, return_std=True))


class Squares:
    """What R^2 is made of, of some rows: weight, mean of y, squares about it, squares of what is left."""

    def __init__(self, local: Any) -> None:
        self._local = local

    def __call__(self, part: Training) -> FloatArray:
        if len(part.X) == 0:
            return np.zeros(4)
        weights = np.ones(len(part.X)) if part.weights is None else part.weights
        mean = float(np.average(part.y, weights=weights))
        left = part.y - self._local.predict(part.X)
        return np.array([weights.sum(), mean, weights @ (part.y - mean) ** 2, weights @ left**2])


def joined_squares(parts: Sequence[FloatArray]) -> FloatArray:
    """Return what R^2 is made of for all rows of these."""
    weight, mean, squares, left = parts[0]
    for other in parts[1:]:
        if other[0] == 0.0:
            continue
        total = weight + other[0]
        squares += other[2] + (other[1] - mean) ** 2 * weight * other[0] / total
        mean += (other[1] - mean) * other[0] / total
        weight, left = total, left + other[3]
    return np.array([weight, mean, squares, left])


class Hits:
    """Weight of some rows, and of those whose label is predicted."""

    def __init__(self, local: Any) -> None:
        self._local = local

    def __call__(self, part: Training) -> FloatArray:
        if len(part.X) == 0:
            return np.zeros(2)
        weights = np.ones(len(part.X)) if part.weights is None else part.weights
        return np.array([weights.sum(), weights @ (part.y == self._local.predict(part.X))])


def added(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the sum of these, in their order."""
    total: FloatArray = np.sum(parts, axis=0)
    return total


def of_all_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, measure: Any, together: Callable[..., Any]
) -> FloatArray:
    """Return what ``measure`` says of the rows of each partition, brought together."""
    check_is_fitted(estimator)
    parts = partitions(estimator, X, y, sample_weight, labels=estimator._labels, reset=False)
    answers = on_each(_apply, parts, shared(measure))
    values: FloatArray = Engine(estimator.client).result(brought_together(together, answers))
    if values[0] == 0.0:
        raise ValueError("X has no row of positive weight in any partition")
    return values


def _apply(part: Training, measure: Any) -> Any:
    return measure(part)
