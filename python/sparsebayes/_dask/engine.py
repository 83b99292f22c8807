"""How work gets to the partitions and its results back: the only file that talks to Dask's schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask.base import compute, get_scheduler, persist
from dask.delayed import Delayed, delayed
from distributed import Client, TimeoutError

#: Results that are brought together by one task.
_FAN_IN = 8
#: Seconds between two looks whether anybody waits for a result.
_INTERVAL = 0.5


class Engine:
    """Runs tasks with a client, or where Dask runs things if there is none.

    What is added up is added up in the order of the partitions, in a tree whose form depends on their number
    alone, and never in the order in which workers get done. So a task that runs again because its worker was
    lost has the same result, and so has what comes of it.
    """

    def __init__(self, client: Any) -> None:
        if client is not None and (not isinstance(client, Client) or client.asynchronous):
            raise TypeError(
                "client must be a dask.distributed.Client that is not asynchronous, or None for the current "
                f"one; got {client!r}"
            )
        # Looked up now: questions are asked on another thread, where the current client is not current.
        self._client: Any = _current_client() if client is None else client

    def keep(self, tasks: Sequence[Delayed]) -> list[Delayed]:
        """Begin with these tasks and keep their results there; how they are made is not forgotten."""
        kept = persist(*tasks) if self._client is None else self._client.persist(list(tasks))  # type: ignore[no-untyped-call] # Dask's
        return list(kept)

    def result(self, task: Delayed, cancelled: Callable[[], bool] | None = None) -> Any:
        """Return the result of a task, here; KeyboardInterrupt once ``cancelled`` says so."""
        if self._client is None:
            return compute(task)[0]  # type: ignore[no-untyped-call] # Dask's
        future = self._client.compute(task)
        while cancelled is not None and not future.done():
            try:
                return future.result(timeout=_INTERVAL)
            except TimeoutError:
                if cancelled():
                    raise KeyboardInterrupt from None  # and with the future goes the work on it
        return future.result()


def _current_client() -> Client | None:
    """Return the client that Dask would run things with, None if that is none."""
    owner = getattr(get_scheduler(), "__self__", None)  # type: ignore[no-untyped-call] # Dask's
    return owner if isinstance(owner, Client) else None


def shared(value: Any) -> Delayed:
    """Return a task that hands out ``value``, which then goes to each worker once and not with each task."""
    task: Delayed = delayed(value, pure=False, traverse=False)
    return task


def on_each(function: Callable[..., Any], parts: Sequence[Delayed], *arguments: Any) -> list[Delayed]:
    """Return a task for each partition: ``function(part, *arguments)``."""
    task = delayed(function, pure=False)
    return [task(part, *arguments) for part in parts]


def brought_together(function: Callable[[Sequence[Any]], Any], tasks: Sequence[Delayed]) -> Delayed:
    """Return one task with all results, neighbours brought together by ``function``, and again."""
    task, level = delayed(function, pure=False), list(tasks)
    while True:
        level = [task(level[start : start + _FAN_IN]) for start in range(0, len(level), _FAN_IN)]
        if len(level) == 1:
            return level[0]
