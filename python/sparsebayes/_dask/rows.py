"""From Dask collections to partitions of rows that have been checked, as tasks."""

from __future__ import annotations

import math
from typing import Any

import dask.array
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed
from dask.utils import is_dataframe_like, is_series_like

from .._checks.targets import check_X, naming
from .parts import checked

_UNKNOWN = (
    "{name} has chunks of unknown size, so that its rows cannot be told to be those of others; call "
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
    """Check number, names and types of the columns of X without a look at its rows.

    Returns X with all its columns in each chunk.
    """
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
    """Return tasks that check the rows of each partition.

    Raises what can be told without a look at the rows: kinds, dimensions, chunks and partitions that differ.
    """
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
            f"{name} must have one dimension, got {values.ndim}: fit each column of its own, {name}[:, 0]"
        )
    with naming(name):
        _check_chunks(name, values)


def _check_chunks(name: str, values: Any) -> None:
    if is_array(values) and any(math.isnan(size) for size in values.chunks[0]):
        raise ValueError(_UNKNOWN.format(name=name))


def _check_alike(X: Any, name: str, values: Any) -> None:
    """Check that partitions are the same as far as can be told; the rest is seen where the rows are."""
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
