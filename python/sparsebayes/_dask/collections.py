"""Dask collections: checks, partitions of checked rows as tasks, lazy predictions and scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import dask.array
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed
from dask.utils import is_dataframe_like, is_series_like
from sklearn.utils.validation import check_is_fitted

from .._checks.targets import Training, check_X, naming
from .engine import Engine, combined, on_each, shared
from .parts import checked

if TYPE_CHECKING:
    from .._types import FloatArray

_UNKNOWN = (
    "{name} has chunks of unknown size, so that its rows cannot be matched with other arrays; call "
    "{name}.compute_chunk_sizes() first"
)


def is_array(X: Any) -> bool:
    """Tell whether this is a Dask array."""
    return isinstance(X, dask.array.Array)


def is_frame(X: Any) -> bool:
    """Tell whether this is a Dask data frame."""
    return is_dask_collection(X) and is_dataframe_like(getattr(X, "_meta", None))


def _is_series(X: Any) -> bool:
    return is_dask_collection(X) and is_series_like(getattr(X, "_meta", None))


def check_columns(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check number, names and types of the columns of X; return X with all columns in each chunk."""
    if is_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, (n_samples, n_features), got {X.ndim}")
        if math.isnan(X.shape[1]):
            raise ValueError(_UNKNOWN.format(name="X"))
        check_X(estimator, np.ones((1, X.shape[1]), X.dtype), reset=reset)
        return X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    if is_frame(X):
        check_X(estimator, X._meta_nonempty, reset=reset)
        return X
    raise TypeError(
        f"X must be a Dask array or data frame, got {type(X).__name__}; for data in memory use "
        f"{type(estimator)._local.__name__}, or dask.array.from_array"
    )


def partitions(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, labels: bool, reset: bool
) -> list[Delayed]:
    """Return tasks that check the rows of each partition, after checks of types, dimensions and chunks."""
    X = check_columns(estimator, X, reset=reset)
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    _check_column("y", y)
    _check_chunks("X", X)
    _check_alike(X, "y", y)
    blocks: list[list[Any]] = [_blocks(X), _blocks(y)]
    if sample_weight is None:
        blocks.append([None] * len(blocks[0]))
    else:
        _check_column("sample_weight", sample_weight)
        _check_alike(X, "sample_weight", sample_weight)
        blocks.append(_blocks(sample_weight))
    task = delayed(checked, pure=False)
    return [
        task(number, estimator.n_features_in_, labels, *block)
        for number, block in enumerate(zip(*blocks, strict=True))
    ]


def _check_column(name: str, values: Any) -> None:
    if is_frame(values):
        raise ValueError(f"{name} must be one column, got a data frame; give {name}[column]")
    if not (is_array(values) or _is_series(values)):
        raise TypeError(
            f"{name} must be a Dask array or series with the partitions of X, got {type(values).__name__}"
        )
    if values.ndim != 1:
        raise ValueError(
            f"{name} must have one dimension, got {values.ndim}: fit each column separately, {name}[:, 0]"
        )
    with naming(name):
        _check_chunks(name, values)


def _check_chunks(name: str, values: Any) -> None:
    if is_array(values) and any(math.isnan(size) for size in values.chunks[0]):
        raise ValueError(_UNKNOWN.format(name=name))


def _check_alike(X: Any, name: str, values: Any) -> None:
    """Check that partitions match as far as is known here; the workers compare their lengths."""
    remedy = f"rechunk or repartition, as in {name}.rechunk(X.chunks[0])"
    if is_array(X) and is_array(values):
        if X.shape[0] != values.shape[0]:
            raise ValueError(
                f"X and {name} must have the same number of rows, got {X.shape[0]} and {values.shape[0]}"
            )
        if X.chunks[0] != values.chunks[0]:
            raise ValueError(
                f"X and {name} must have the same chunks of rows, got {_few(X.chunks[0])} and "
                f"{_few(values.chunks[0])}; {remedy}"
            )
    n, m = X.npartitions, values.npartitions
    if n != m:
        raise ValueError(f"X and {name} must have the same partitions, got {n} and {m}; {remedy}")
    ours, theirs = getattr(X, "divisions", (None,)), getattr(values, "divisions", (None,))
    if None not in (*ours, *theirs) and ours != theirs:
        raise ValueError(
            f"X and {name} must have the same partitions, and their divisions differ; make both of one data "
            "frame, or repartition them alike"
        )


def _few(sizes: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, sizes[:4]))
    return f"({shown}, ... {len(sizes)} in all)" if len(sizes) > 4 else f"({shown})"


def _blocks(values: Any) -> list[Delayed]:
    return list(np.ravel(values.to_delayed()))


#: Returns predictions for one or more rows in memory.
Predict = Callable[[Any], Any]


def lazily(estimator: Any, X: Any, predict: Predict, dtype: Any, columns: Any = None) -> Any:
    """Return the predictions for X as a lazy collection with the partitions of X.

    Arrays become arrays; data frames become series, or data frames with these ``columns`` if a prediction has
    several values, with the index of X.
    """
    check_is_fitted(estimator)
    X = check_columns(estimator, X, reset=False)
    n_columns = None if columns is None else len(columns)
    if is_array(X):
        meta = np.empty((0,) if n_columns is None else (0, n_columns), dtype)
        shape = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
        return X.map_blocks(_predict_array, predict, meta, dtype=meta.dtype, meta=meta, **shape)
    empty = np.empty((0,) if n_columns is None else (0, n_columns), dtype)
    frame = _as_frame(empty, columns, X._meta.index)
    return X.map_partitions(_predict_frame, predict, empty, columns, meta=frame)


def _predict_array(X: Any, predict: Predict, empty: Any) -> Any:
    # Partitions may be empty, and Dask calls functions with no rows to find their type.
    return predict(X) if len(X) > 0 else empty


def _predict_frame(X: Any, predict: Predict, empty: Any, columns: Any) -> Any:
    return _as_frame(_predict_array(X.to_numpy(), predict, empty), columns, X.index)


def _as_frame(values: Any, columns: Any, index: Any) -> Any:
    if columns is None:
        # With dtype=None pandas would infer another type from labels that are objects.
        return pd.Series(values, index=index, dtype=object if values.dtype == object else None)
    return pd.DataFrame(values, index=index, columns=columns)


class Moments:
    """Mean and standard deviation as two columns, from one evaluation of the basis functions."""

    def __init__(self, local: Any) -> None:
        self._local = local

    def __call__(self, X: Any) -> FloatArray:
        return np.column_stack(self._local.predict(X, return_std=True))


class Squares:
    """The sums in R^2: weight, mean of y, squares about the mean, squared residuals."""

    def __init__(self, local: Any) -> None:
        self._local = local

    def __call__(self, part: Training) -> FloatArray:
        if len(part.X) == 0:
            return np.zeros(4)
        weights = np.ones(len(part.X)) if part.weights is None else part.weights
        mean = float(np.average(part.y, weights=weights))
        residual = part.y - self._local.predict(part.X)
        return np.array([weights.sum(), mean, weights @ (part.y - mean) ** 2, weights @ residual**2])


def added_squares(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the sums in R^2 over all these rows."""
    weight, mean, squares, residuals = parts[0]
    for other in parts[1:]:
        if other[0] == 0.0:
            continue
        total = weight + other[0]
        squares += other[2] + (other[1] - mean) ** 2 * weight * other[0] / total
        mean += (other[1] - mean) * other[0] / total
        weight, residuals = total, residuals + other[3]
    return np.array([weight, mean, squares, residuals])


class Hits:
    """Weight of some rows, and of those whose predicted label is right."""

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


def measure_all(
    estimator: Any, X: Any, y: Any, sample_weight: Any, measure: Any, combine: Callable[..., Any]
) -> FloatArray:
    """Return ``measure`` of the rows of each partition, put together by ``combine``."""
    check_is_fitted(estimator)
    parts = partitions(estimator, X, y, sample_weight, labels=estimator._labels, reset=False)
    results = on_each(_apply, parts, shared(measure))
    values: FloatArray = Engine(estimator.client).result(combined(combine, results))
    if values[0] == 0.0:
        raise ValueError("X has no row of positive weight in any partition")
    return values


def _apply(part: Training, measure: Any) -> Any:
    return measure(part)
