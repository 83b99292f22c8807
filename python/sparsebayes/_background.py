"""Long work in NumPy and LAPACK that Ctrl-C ends at once, with one BLAS thread."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

#: Seconds between two looks for signals.
_INTERVAL = 0.05


class _Abandoned(Exception):
    """Nobody waits for the work any more."""


def in_background(
    work: Callable[[Callable[[], None]], Result], meanwhile: Callable[[int], None] | None = None
) -> Result:
    """Return ``work(pulse)``, done on a thread of its own; errors come through.

    ``meanwhile`` is called now and then, by this thread, with how often the work has called ``pulse``.

    A signal is served while the work goes on, even inside a single long call of LAPACK. If that raises, as
    Ctrl-C does, the caller is free at once; the work, which must have no effect but its result, ends in the
    background when it next calls ``pulse``.
    """
    abandoned = threading.Event()
    outcome: list[Any] = []
    failure: list[BaseException] = []

    n_pulses = 0

    def pulse() -> None:
        nonlocal n_pulses
        if abandoned.is_set():
            raise _Abandoned
        n_pulses += 1

    def labour() -> None:
        try:
            with one_blas_thread():
                outcome.append(work(pulse))
        except BaseException as error:
            failure.append(error)

    # NumPy keeps its error state in the context.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(labour,), daemon=True)
    try:
        # Within: Ctrl-C may come while the thread starts, and the work would go on for ever.
        thread.start()
        while thread.is_alive():
            thread.join(_INTERVAL)
            if meanwhile is not None:
                meanwhile(n_pulses)
    except BaseException:
        abandoned.set()
        raise
    if failure:
        raise failure[0]
    result: Result = outcome[0]
    return result


class _Limit:
    """The one limit of this process; several fits may run at once."""

    lock = threading.Lock()
    users = 0
    controller: Any = None
    limiter: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread: sums of several threads differ in their last bits with the number of these."""
    with _Limit.lock:
        if _Limit.users == 0:
            if _Limit.controller is None:
                # SciPy has a BLAS of its own, which is only seen once it is there.
                import scipy.linalg  # noqa: F401

                # Looking for the libraries takes longer than a small fit.
                _Limit.controller = ThreadpoolController()
            _Limit.limiter = _Limit.controller.limit(limits=1, user_api="blas")
        _Limit.users += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                _Limit.limiter.restore_original_limits()
