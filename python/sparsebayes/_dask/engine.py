"""Running tasks on partitions: the only module that calls Dask's schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np
from dask.base import compute, get_scheduler, persist
from dask.delayed import Delayed, delayed
from distributed import Client, TimeoutError

from .._checks.numbers import PLAIN
from ..providers import Call, SummedStatistics, add

#: Results combined by one task.
_FAN_IN = 8
#: Seconds between two checks for cancellation.
_INTERVAL = 0.5


class Engine:
    """Runs tasks with a client, or with Dask's configured scheduler if there is none.

    Results are combined in the order of the partitions, in a tree whose shape depends only on their number,
    and not in the order in which workers finish. A task that runs again because its worker was lost therefore
    leaves the combined result unchanged. So no task may change its arguments.
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
    """The Bernoulli providers of all partitions as one: each call is one round trip to the workers.

    ``parts``: tasks whose results are the providers, kept by the engine.
    """

    def __init__(self, engine: Engine, parts: Sequence[Delayed], n_basis: int) -> None:
        # With a map of its own a sum leaves its parts, which are elsewhere, alone.
        super().__init__(parts, map=map, n_basis=n_basis, likelihood="bernoulli")
        self._tasks, self._engine = parts, engine

    def _sum(self, method: Callable[..., Any], *arguments: Any) -> Any:
        results = on_each(_call, self._tasks, shared(Call(method.__name__, arguments)))
        return self._engine.result(_combined(partial(reduce, add), results), self._cancelled)


def _call(part: Any, call: Call) -> Any:
    return Call(call.method, tuple(map(aligned, call.arguments)))(part)


def aligned(value: Any) -> Any:
    """Return an array as the core can read it, as one unpickled from a message may be misaligned."""
    return np.require(value, value.dtype, PLAIN) if isinstance(value, np.ndarray) else value
