"""What goes on between a running fit and its user: the callback, the progress bar and the logger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ._design import CoreCallback, Layout
from ._news import LOG, Glance, News
from ._numbers import asked_to_stop
from ._screen import Part, State, Work
from ._types import Callback, StepRecord, Sweep
from ._validation import KnownNoise


class Watch:
    """Turns the core's steps into records for the callback, and tells the screen and the logger of them.

    Once the callback has asked to stop, the current fit ends, and so does each later one of the same
    estimator after its first step. ``stopped``: it has asked, or had before.
    """

    def __init__(
        self,
        name: str,
        callback: Callback | None,
        verbose: bool,
        layout: Layout,
        has_noise: bool,
        n_fits: int,
        n_basis: int,
        stopped: bool = False,
        n_rows: int = 0,
        noise: KnownNoise | None = None,
    ) -> None:
        self._name = name
        self._callback = callback
        self._verbose = verbose
        self._layout = layout
        self._has_noise = has_noise
        self._n_fits = n_fits
        self._n_basis = n_basis
        self._n_rows = n_rows
        # What is reported is in units of the standard deviations known, where there are any.
        self._more_evidence, self._variance = (
            (0.0, 1.0) if noise is None else (noise.log_evidence, noise.variance)
        )
        self._sweep_began = 0.0
        self._fit = 0
        self.stopped = stopped

    @contextmanager
    def fit(self) -> Iterator[CoreCallback | None]:
        """Watch the next fit: gives what the core is to call. Say within it how it ended: `end`."""
        self._fit += 1
        which = f" {self._fit}/{self._n_fits}" if self._n_fits > 1 else ""
        self._title = f"{self._name}{which}"
        LOG.debug("%s %d/%d: fit begun, %d candidates", self._name, self._fit, self._n_fits, self._n_basis)
        with News(Work(self._title, "steps"), verbose=self._verbose) as self._news:
            if self._callback is not None:
                yield self._step
            elif self._news.seconds is not None:
                yield Glance(self._step, self._news.seconds)
            else:
                yield None

    def end(self, status: str, n_iter: int, n_active: int, log_evidence: float) -> None:
        """Show and log how the fit ended."""
        LOG.info(
            "%s %d/%d: %s after %d steps, %d functions, log evidence %.6g",
            self._name,
            self._fit,
            self._n_fits,
            status,
            n_iter,
            n_active,
            log_evidence + self._more_evidence,
        )
        if self._news.is_shown:
            self._news.end(self._state(n_iter, n_active, log_evidence + self._more_evidence, f", {status}"))

    def _step(
        self,
        iteration: int,
        action: str,
        column: int,
        gain: float,
        evidence: float,
        n_active: int,
        beta: float,
        swept: tuple[int, int] | None = None,
    ) -> bool:
        if self.stopped:
            return True
        evidence += self._more_evidence
        sweep = None if swept is None else self._sweep(*swept)
        if self._news.is_due or (sweep is not None and sweep.candidates == 0):
            self._news.tell(self._state(iteration, n_active, evidence, "", sweep))
        if self._callback is not None:
            # A softmax counts the functions of one class after those of another.
            index = None if column < 0 else self._layout.name(column % self._n_basis)
            noise = 1.0 / (beta * self._variance) if self._has_noise else None
            record = StepRecord(iteration, action, index, gain, evidence, n_active, noise, sweep)
            self.stopped = asked_to_stop(self._callback, record)
        return self.stopped

    def _sweep(self, done: int, total: int) -> Sweep:
        if done == 0:
            self._sweep_began = time.monotonic()
            return Sweep(done, total, self._n_rows, None)
        left = (time.monotonic() - self._sweep_began) * (total - done) / done
        return Sweep(done, total, self._n_rows, left)

    def _state(
        self, iteration: int, n_active: int, evidence: float, end: str, sweep: Sweep | None = None
    ) -> State:
        note = f"{n_active} functions, log evidence {evidence:.6g}{end}"
        line = f"{self._title}: step {iteration}, {note}"
        if sweep is None:
            return State(line, iteration, note)
        part = Part("sweep", "candidates", sweep.candidates, sweep.n_candidates)
        return State(line + _swept(sweep), iteration, note, part)


def _swept(sweep: Sweep) -> str:
    left = "" if sweep.seconds_left is None else f", {sweep.seconds_left:.0f} s left"
    return f"; swept {sweep.candidates:,} of {sweep.n_candidates:,} candidates x {sweep.n_rows:,} rows{left}"
