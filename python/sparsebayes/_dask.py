"""Dask: checks of collections, tasks on their partitions, and lazy predictions.

`Engine` alone calls Dask's schedulers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial, reduce
from reprlib import repr as shortened
from typing import Any

import dask.array
import numpy as np
import pandas as pd
from dask.base import compute, get_scheduler, is_dask_collection, persist
from dask.delayed import Delayed, delayed
from dask.utils import is_dataframe_like, is_series_like
from distributed import Client, TimeoutError
from sklearn.utils.multiclass import check_classification_targets

from ._arrays import check_X, naming
from ._checks import PLAIN
from ._data.chunks import Rows, check_rows
from .providers import Call, SummedStatistics, add

#: Results combined by one task.
_FAN_IN = 8
#: Seconds between two checks for cancellation.
_INTERVAL = 0.5


class Engine:
    """Runs tasks with a client, or with Dask's configured scheduler if there is none.

    Results are combined in the order of the partitions, in a tree whose shape depends only on their number: a
    task that runs again leaves the combined result unchanged. So no task may change its arguments.
    """

    def __init__(self, client: Any) -> None:
        if client is not None and (not isinstance(client, Client) or client.asynchronous):
            raise TypeError(
                "client must be a dask.distributed.Client that is not asynchronous, or None for the current "
                f"one; got {client!r}"
            )
        # Found now, because the fit calls `result` from another thread, which has no current client.
        owner = getattr(get_scheduler(), "__self__", None) if client is None else client  # type: ignore[no-untyped-call] # Dask's
        self._client: Any = owner if isinstance(owner, Client) else None

    def keep(self, tasks: Sequence[Delayed]) -> list[Delayed]:
        """Start these tasks and keep their results on the workers, which can still recompute them."""
        kept = persist(*tasks) if self._client is None else self._client.persist(list(tasks))  # type: ignore[no-untyped-call] # Dask's
        return list(kept)

    def result(self, task: Delayed, cancelled: Callable[[], bool] | None = None) -> Any:
        """Return the result of a task; KeyboardInterrupt if ``cancelled`` returns True meanwhile."""
        if self._client is None:
            return compute(task)[0]  # type: ignore[no-untyped-call] # Dask's
        future = self._client.compute(task)
        while cancelled is not None and not future.done():
            try:
                return future.result(timeout=_INTERVAL)
            except TimeoutError:
                if cancelled():
                    raise KeyboardInterrupt from None  # releasing the future stops its tasks
        return future.result()

    def merged(self, tasks: Sequence[Delayed]) -> Any:
        """Return the results of all tasks merged into one, by their own method ``merge``."""
        return self.result(_combined(_merged, tasks))


def shared(value: Any) -> Delayed:
    """Return a task with the result ``value``, sent once to each worker instead of with each task."""
    task: Delayed = delayed(value, pure=False, traverse=False)
    return task


def on_each(function: Callable[..., Any], parts: Sequence[Delayed], *arguments: Any) -> list[Delayed]:
    """Return a task for each partition: ``function(part, *arguments)``."""
    task = delayed(function, pure=False)
    return [task(part, *arguments) for part in parts]


def _combined(function: Callable[[Sequence[Any]], Any], tasks: Sequence[Delayed]) -> Delayed:
    """Return one task that combines all results with ``function``, in a tree."""
    task, level = delayed(function, pure=False), list(tasks)
    while True:
        level = [task(level[start : start + _FAN_IN]) for start in range(0, len(level), _FAN_IN)]
        if len(level) == 1:
            return level[0]


def _merged(results: Sequence[Any]) -> Any:
    total = deepcopy(results[0])
    for result in results[1:]:
        total.merge(result)
    return total


class Partitions(SummedStatistics):
    """The Bernoulli providers that tasks return as one: each call is one round trip to the workers."""

    def __init__(self, engine: Engine, parts: Sequence[Delayed], n_basis: int) -> None:
        # With a map of its own a sum leaves its parts, which are elsewhere, alone.
        super().__init__(parts, map=map, n_basis=n_basis, likelihood="bernoulli")
        self._tasks, self._engine = parts, engine

    def _sum(self, method: Callable[..., Any], *arguments: Any) -> Any:
        results = on_each(_call, self._tasks, shared(Call(method.__name__, arguments)))
        return self._engine.result(_combined(partial(reduce, add), results), self._cancelled)


def _call(part: Any, call: Call) -> Any:
    # Arrays unpickled from messages may be misaligned.
    arguments = (np.require(a, a.dtype, PLAIN) if isinstance(a, np.ndarray) else a for a in call.arguments)
    return Call(call.method, tuple(arguments))(part)


# --- collections ---------------------------------------------------------------------------------------


def is_array(X: Any) -> bool:
    """Tell whether this is a Dask array."""
    return isinstance(X, dask.array.Array)


def _is_pandas(is_like: Callable[[Any], bool], X: Any) -> bool:
    return is_dask_collection(X) and is_like(getattr(X, "_meta", None))


def _check_columns(local: Any, X: Any, *, reset: bool) -> Any:
    """Check the columns of X, which ``local`` learns if ``reset``; return X with all in each chunk."""
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
    if not reset:  # the rows of partitions have no names
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
        _check_column(X, name, values)
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


def _check_column(X: Any, name: str, values: Any) -> None:
    """Check a column of y or weights; the workers compare the lengths of its partitions with those of X."""
    if not (is_array(values) or _is_pandas(is_series_like, values)):
        raise TypeError(
            f"{name} must be one column, a Dask array or series with the partitions of X, got "
            f"{type(values).__name__}"
        )
    if values.ndim != 1:
        raise ValueError(
            f"{name} must have one dimension, got {values.ndim}: fit each column separately, {name}[:, 0]"
        )
    _check_known(name, values.chunks[0] if is_array(values) else ())
    both, remedy = [X, values], f"rechunk or repartition, as in {name}.rechunk(X.chunks[0])"
    if all(map(is_array, both)) and X.chunks[0] != values.chunks[0]:
        got = " and ".join(f"{len(each)} in {shortened(each.chunks[0])}" for each in both)
        raise ValueError(f"X and {name} must have the same number of rows and chunks, got {got}; {remedy}")
    if X.npartitions != values.npartitions:
        got = f"{X.npartitions} and {values.npartitions}"
        raise ValueError(f"X and {name} must have the same partitions, got {got}; {remedy}")
    first, second = (getattr(each, "divisions", (None,)) for each in both)
    if None not in (*first, *second) and first != second:
        raise ValueError(f"X and {name} must have the same divisions: make both of one data frame; {remedy}")


def lazily(local: Any, X: Any, predict: Callable[[Any], Any], columns: Any = None) -> Any:
    """Return the predictions for X: for a Dask collection a lazy one with its partitions.

    Data frames become series, or data frames with these ``columns`` if a prediction has several values.
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
