"""What a pass over rows tells its user: the callback and a progress line."""

from __future__ import annotations

import math
import sys
import time

from ._types import Callback, Progress, StepRecord

#: Seconds between two updates of the progress line.
_INTERVAL = 0.1


class Reading:
    """Turns blocks of rows into records for the callback and a progress line on standard error.

    Once the callback has asked to stop, later passes end after their first block: a model is that of the rows
    read.
    """

    def __init__(self, name: str, callback: Callback | None, verbose: bool, n_rows: int | None) -> None:
        self._name, self._callback, self._verbose = name, callback, verbose
        self._n_rows = n_rows
        self._shown_at = 0.0
        #: Whether the callback has asked to stop.
        self.stopped = False
        self.begin("reading")

    def begin(self, what: str, rows: int = 0) -> None:
        """Begin a pass, of which ``rows`` cost nothing, having been summed before."""
        self._what, self._began, self._before = what, time.monotonic(), rows

    def step(self, rows: int, chunk: int) -> bool:
        """Say that so many rows have been read, up to chunk number ``chunk``; return whether to stop."""
        progress = Progress(self._what, rows, self._n_rows, chunk + 1, self._seconds_left(rows))
        if self._verbose and time.monotonic() - self._shown_at > _INTERVAL:
            self._shown_at = time.monotonic()
            self._show(progress)
        if self._callback is not None and not self.stopped:
            record = StepRecord(0, "read", None, 0.0, math.nan, 0, None, progress)
            self.stopped = bool(self._callback(record))
        return self.stopped

    def end(self, rows: int, chunk: int) -> None:
        """Finish the progress line of a pass."""
        if self._verbose:
            self._n_rows = rows if self._n_rows is None and not self.stopped else self._n_rows
            self._show(Progress(self._what, rows, self._n_rows, chunk + 1, 0.0))
            sys.stderr.write("\n")

    def _seconds_left(self, rows: int) -> float | None:
        if self._n_rows is None or rows <= self._before:
            return None
        speed = (time.monotonic() - self._began) / (rows - self._before)
        return speed * max(0, self._n_rows - rows)

    def _show(self, progress: Progress) -> None:
        of = "" if progress.n_rows is None else f" of {progress.n_rows:,}"
        left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
        line = f"{self._name}: {progress.what}, chunk {progress.chunk}, {progress.rows:,}{of} rows{left}"
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()
