"""Long computations in NumPy and LAPACK that Ctrl-C interrupts at once, with one BLAS thread."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

#: Seconds between two checks for signals.
_INTERVAL: Final = 0.05

#: Bytes of memory beyond which calls of BLAS may run side by side: choosing kernels takes less.
_AMPLE: Final = 1 << 29

#: Bytes that are taken and freed once. glibc then reuses freed blocks that are smaller, which it otherwise
#: returns to the system and gets back as zeroed pages. Otherwise a fit of 600 rows takes 1.2 times as long.
_KEPT: Final = 1 << 24


class _Cancelled(Exception):
    """The caller no longer waits for the result."""


def in_background(
    work: Callable[[Callable[[], None]], Result], meanwhile: Callable[[int], None] | None = None
) -> Result:
    """Return ``work(pulse)``, computed on another thread, so that signal handlers can run meanwhile.

    If a handler raises, as for Ctrl-C, this function ends at once; the work, which must have no side effects,
    ends at its next call of ``pulse``. Every 50 ms ``meanwhile`` is called with the number of pulses so far.
    """
    cancelled, outcome, n_pulses = threading.Event(), Future[Result](), 0

    def pulse() -> None:
        nonlocal n_pulses
        if cancelled.is_set():
            raise _Cancelled
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
        # Inside the `try`, because Ctrl-C may interrupt `start` once the thread runs.
        thread.start()
        while wait([outcome], _INTERVAL).not_done:
            if meanwhile is not None:
                meanwhile(n_pulses)
    except BaseException:
        cancelled.set()
        raise
    return outcome.result()


class _Limit:
    """The BLAS limit of this process, shared by all fits that run at the same time."""

    lock = threading.Lock()
    users = 0
    #: Numbers of threads before the limit.
    before: ClassVar[list[int]] = []


@cache
def _blas() -> list[Any]:
    # SciPy has its own BLAS, which is found only once it is loaded. Cached, because the search is slow.
    import scipy.linalg  # noqa: F401

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(library: Any, n: int) -> None:
    # From version 3.8 on threadpoolctl obeys only the first thread that set a limit; but fits run on any.
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: the last bits of its sums depend on the number of threads."""
    with _Limit.lock:
        if _Limit.users == 0:
            _Limit.before = [library.num_threads for library in _blas()]
            for library in _blas():
                _set_threads(library, 1)
        _Limit.users += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                for library, n in zip(_blas(), _Limit.before, strict=True):
                    _set_threads(library, n)


@contextmanager
def blas_workers(n: int | None) -> Iterator[ThreadPoolExecutor]:
    """Make ``n`` threads (None: Python's usual number) with one BLAS thread each; one if memory is short.

    OpenBLAS needs a buffer for each call that runs beside others, and ends the process if it gets none.
    """
    try:
        np.empty(_AMPLE, dtype=np.uint8)  # takes addresses only, and gives them back at once
        np.empty(_KEPT, dtype=np.uint8)
    except MemoryError:
        n = 1
    with one_blas_thread(), ThreadPoolExecutor(n) as pool:
        yield pool


def begin(pool: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Begin a call on a thread of the pool, in this context, or make it if memory is short."""
    try:
        return pool.submit(contextvars.copy_context().run, work, *arguments)
    except RuntimeError:  # no memory for another thread
        done = Future[Result]()
        done.set_result(work(*arguments))
        return done
