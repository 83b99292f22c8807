"""What a pass over rows tells its user: the callback, the progress bar and the logger."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ._news import LOG, News
from ._numbers import asked_to_stop
from ._screen import State, Work
from ._types import Callback, Progress, StepRecord

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Reading:
    """Turns blocks of rows into records for the callback, and tells the screen and the logger of them.

    A context around passes, which ends what is shown of one that an exception ended.

    Once the callback has asked to stop, later passes end after their first block: a model is that of the rows
    read.
    """

    def __init__(self, name: str, callback: Callback | None, verbose: bool, n_rows: int | None) -> None:
        self._name, self._callback, self._verbose = name, callback, verbose
        self._n_rows = n_rows
        self._news: News | None = None
        #: Whether the callback has asked to stop.
        self.stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._news is not None:
            self._news.__exit__(kind, error, trace)
            self._news = None

    def begin(self, what: str, rows: int = 0) -> None:
        """Begin a pass, of which ``rows`` cost nothing, having been summed before."""
        self._what, self._began, self._before = what, time.monotonic(), rows
        LOG.debug("%s: %s begun", self._name, what)
        work = Work(f"{self._name}: {what}", "rows", self._n_rows, rows)
        self._news = News(work, verbose=self._verbose)

    def step(self, rows: int, chunk: int) -> bool:
        """Say that so many rows have been read, up to chunk number ``chunk``; return whether to stop."""
        progress = Progress(self._what, rows, self._n_rows, chunk + 1, self._seconds_left(rows))
        if self._news is not None and self._news.is_due:
            self._news.tell(self._state(progress))
        if self._callback is not None and not self.stopped:
            record = StepRecord(0, "read", None, 0.0, math.nan, 0, None, progress)
            self.stopped = asked_to_stop(self._callback, record)
        return self.stopped

    def end(self, rows: int, chunk: int) -> None:
        """End a pass."""
        self._n_rows = rows if self._n_rows is None and not self.stopped else self._n_rows
        state = self._state(Progress(self._what, rows, self._n_rows, chunk + 1, 0.0))
        LOG.debug("%s", state.line)
        if self._news is not None:
            self._news.end(state)
            self.__exit__(None, None, None)

    def _seconds_left(self, rows: int) -> float | None:
        if self._n_rows is None or rows <= self._before:
            return None
        speed = (time.monotonic() - self._began) / (rows - self._before)
        return speed * max(0, self._n_rows - rows)

    def _state(self, progress: Progress) -> State:
        of = "" if progress.n_rows is None else f" of {progress.n_rows:,}"
        left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
        line = f"{self._name}: {progress.what}, chunk {progress.chunk}, {progress.rows:,}{of} rows{left}"
        return State(line, progress.rows, f"chunk {progress.chunk}")
