"""Dask collections: checks, partitions of checked rows as tasks, and lazy predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from reprlib import repr as shortened
from typing import Any

import dask.array
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed
from dask.utils import is_dataframe_like, is_series_like
from sklearn.utils.multiclass import check_classification_targets

from .._checks.targets import check_X, naming
from .._data.chunks import Rows, check_rows


def is_array(X: Any) -> bool:
    """Tell whether this is a Dask array."""
    return isinstance(X, dask.array.Array)


def _is_pandas(is_like: Callable[[Any], bool], X: Any) -> bool:
    return is_dask_collection(X) and is_like(getattr(X, "_meta", None))


def _check_columns(local: Any, X: Any, *, reset: bool) -> Any:
    """Check number, names and types of the columns of X; return X with all columns in each chunk.

    ``local``: the estimator in memory. If ``reset`` it learns the columns; else it forgets their names after
    the check, as the rows of partitions have none.
    """
    if is_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, (n_samples, n_features), got {X.ndim}")
        _check_known("X", X.shape[1:])
        check_X(local, np.ones((1, X.shape[1]), X.dtype), reset=reset)
        X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    elif _is_pandas(is_dataframe_like, X):
        check_X(local, X._meta_nonempty, reset=reset)
    else:
        raise TypeError(
            f"X must be a Dask array or data frame, got {type(X).__name__}; for data in memory use "
            f"{type(local).__name__}, or dask.array.from_array"
        )
    if not reset:
        vars(local).pop("feature_names_in_", None)
    return X


def partitions(local: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> list[Delayed]:
    """Return tasks that check the rows of each partition, after checks of types, dimensions and chunks."""
    X = _check_columns(local, X, reset=reset)
    if y is None:
        name = type(local).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    columns = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    _check_known("X", X.chunks[0] if is_array(X) else ())
    for name, values in columns.items():
        _check_column(name, values)
        _check_alike(X, name, values)
    blocks = [list(np.ravel(values.to_delayed())) for values in (X, *columns.values())]
    task = delayed(_checked, pure=False)
    return [
        task(number, local.n_features_in_, local._labels, *block)
        for number, block in enumerate(zip(*blocks, strict=True))
    ]


def _checked(number: int, n_features: int, labels: bool, X: Any, y: Any, weights: Any = None) -> Rows:
    """Check the rows of a partition, which may have none."""
    X, y, weights = np.asarray(X), np.asarray(y), None if weights is None else np.asarray(weights)
    try:
        for name, values in (("y", y), ("sample_weight", weights)):
            if values is not None and len(values) != len(X):
                raise ValueError(
                    f"X and {name} must have the same rows in each partition, got {len(X)} and "
                    f"{len(values)}; make both of one collection, or repartition them alike"
                )
        rows = check_rows(X, y, weights, n_features, labels)
        if labels and len(rows) > 0:
            with naming("y"):
                check_classification_targets(rows.y)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error} (in partition {number}, counted from 0)") from None
    return rows


def _check_known(name: str, sizes: tuple[float, ...]) -> None:
    if any(math.isnan(size) for size in sizes):
        raise ValueError(
            f"{name} has chunks of unknown size, so that its rows cannot be matched with other arrays; call "
            f"{name}.compute_chunk_sizes() first"
        )


def _check_column(name: str, values: Any) -> None:
    if _is_pandas(is_dataframe_like, values):
        raise ValueError(f"{name} must be one column, got a data frame; give {name}[column]")
    if not (is_array(values) or _is_pandas(is_series_like, values)):
        raise TypeError(
            f"{name} must be a Dask array or series with the partitions of X, got {type(values).__name__}"
        )
    if values.ndim != 1:
        raise ValueError(
            f"{name} must have one dimension, got {values.ndim}: fit each column separately, {name}[:, 0]"
        )
    _check_known(name, values.chunks[0] if is_array(values) else ())


def _check_alike(X: Any, name: str, values: Any) -> None:
    """Check that partitions match as far as is known here; the workers compare their lengths."""
    fault, remedy = "", f"rechunk or repartition, as in {name}.rechunk(X.chunks[0])"
    n, m = X.npartitions, values.npartitions
    divisions = [getattr(each, "divisions", (None,)) for each in (X, values)]
    if is_array(X) and is_array(values) and len(X) != len(values):
        raise ValueError(f"X and {name} must have the same number of rows, got {len(X)} and {len(values)}")
    if is_array(X) and is_array(values) and X.chunks[0] != values.chunks[0]:
        fault = f"chunks of rows, got {shortened(X.chunks[0])} and {shortened(values.chunks[0])}"
    elif n != m:
        fault = f"partitions, got {n} and {m}"
    elif None not in (*divisions[0], *divisions[1]) and divisions[0] != divisions[1]:
        fault = "partitions, and their divisions differ"
        remedy = "make both of one data frame, or repartition them alike"
    if fault:
        raise ValueError(f"X and {name} must have the same {fault}; {remedy}")


def lazily(local: Any, X: Any, predict: Callable[[Any], Any], columns: Any = None) -> Any:
    """Return the predictions for X: for a Dask collection a lazy one with its partitions.

    Arrays become arrays; data frames become series, or data frames with these ``columns`` if a prediction has
    several values, with the index of X. ``predict`` takes one or more rows in memory.
    """
    if not is_dask_collection(X):
        return predict(X)
    X = _check_columns(local, X, reset=False)
    empty = predict(local.candidates_[:1])[:0]
    if is_array(X):
        shape = {"drop_axis": 1} if empty.ndim == 1 else {"chunks": (X.chunks[0], empty.shape[1:])}
        return X.map_blocks(_predict_array, predict, empty, dtype=empty.dtype, meta=empty, **shape)
    frame = _as_frame(empty, columns, X._meta.index)
    return X.map_partitions(_predict_frame, predict, empty, columns, meta=frame)


def _predict_array(X: Any, predict: Callable[[Any], Any], empty: Any) -> Any:
    # Partitions may be empty, and Dask calls functions with no rows to find their type.
    return predict(X) if len(X) > 0 else empty


def _predict_frame(X: Any, predict: Callable[[Any], Any], empty: Any, columns: Any) -> Any:
    return _as_frame(_predict_array(X.to_numpy(), predict, empty), columns, X.index)


def _as_frame(values: Any, columns: Any, index: Any) -> Any:
    if values.ndim == 1:
        # With dtype=None pandas would infer another type from labels that are objects.
        return pd.Series(values, index=index, dtype=object if values.dtype == object else None)
    return pd.DataFrame(values, index=index, columns=columns)
