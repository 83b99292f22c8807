"""Long work in NumPy and LAPACK that Ctrl-C ends at once, with one BLAS thread."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

#: Seconds between two checks for signals.
_INTERVAL: Final = 0.05


class _Abandoned(Exception):
    """The caller no longer waits for the work."""


def in_background(
    work: Callable[[Callable[[], None]], Result], meanwhile: Callable[[int], None] | None = None
) -> Result:
    """Return ``work(pulse)``, computed on a thread of its own; its errors are raised here.

    This thread calls ``meanwhile`` every 50 ms with the number of calls of ``pulse`` so far.

    Signal handlers run while the work goes on, even during one long call of LAPACK. If a handler raises, as
    Ctrl-C does, the caller is free at once; the work, which must have no effect but its result, ends at its
    next call of ``pulse``.
    """
    abandoned, outcome, n_pulses = threading.Event(), Future[Result](), 0

    def pulse() -> None:
        nonlocal n_pulses
        if abandoned.is_set():
            raise _Abandoned
        n_pulses += 1

    def run() -> None:
        try:
            with one_blas_thread():
                outcome.set_result(work(pulse))
        except BaseException as error:
            outcome.set_exception(error)

    # The context holds NumPy's error state.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    try:
        # Inside the `try`: Ctrl-C may come while the thread starts, and the work would never end.
        thread.start()
        while wait([outcome], _INTERVAL).not_done:
            if meanwhile is not None:
                meanwhile(n_pulses)
    except BaseException:
        abandoned.set()
        raise
    return outcome.result()


class _Limit:
    """The one limit of this process, shared by all fits that run at the same time."""

    lock = threading.Lock()
    users = 0
    limiter: Any = None


@cache
def _blas() -> ThreadpoolController:
    # SciPy brings a BLAS of its own, which is found only once it is loaded. The search takes longer than a
    # small fit.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread: the last bits of its sums depend on the number of threads."""
    with _Limit.lock:
        if _Limit.users == 0:
            _Limit.limiter = _blas().limit(limits=1, user_api="blas")
        _Limit.users += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                _Limit.limiter.restore_original_limits()
