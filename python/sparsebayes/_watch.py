"""What goes on between a running fit and its user: the callback and the progress line."""

from __future__ import annotations

import logging
import sys
import time

from ._design import CoreCallback, Layout
from ._types import Callback, StepRecord, Sweep

#: Seconds between two updates of the progress line.
_INTERVAL = 0.1

#: Silent unless the user's logging asks for it.
_LOG = logging.getLogger("sparsebayes")
_LOG.addHandler(logging.NullHandler())


class Watch:
    """Turns the core's steps into records for the callback and a progress line on standard error.

    Once the callback has asked to stop, the current fit ends, and so does each later one of the same
    estimator after its first step. ``stopped``: it has asked before.
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
    ) -> None:
        self._name = name
        self._callback = callback
        self._verbose = verbose
        self._layout = layout
        self._has_noise = has_noise
        self._n_fits = n_fits
        self._n_basis = n_basis
        self._n_rows = n_rows
        self._sweep_began = 0.0
        self._fit = 0
        self._shown_at = 0.0
        self._width = 78
        self._stopped = stopped

    def begin(self) -> CoreCallback | None:
        """Return what the core is to call during the next fit."""
        self._fit += 1
        _LOG.debug("%s %d/%d: fit begun, %d candidates", self._name, self._fit, self._n_fits, self._n_basis)
        return self._step if self._callback is not None or self._verbose else None

    def end(self, status: str, n_iter: int, n_active: int, log_evidence: float) -> None:
        """Finish the progress line, and log how the fit ended."""
        _LOG.info(
            "%s %d/%d: %s after %d steps, %d functions, log evidence %.6g",
            self._name,
            self._fit,
            self._n_fits,
            status,
            n_iter,
            n_active,
            log_evidence,
        )
        if self._verbose:
            self._show(n_iter, n_active, log_evidence, f", {status}")
            sys.stderr.write("\n")

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
        if self._stopped:
            return True
        sweep = None if swept is None else self._sweep(*swept)
        if self._verbose and (sweep is not None or time.monotonic() - self._shown_at > _INTERVAL):
            self._shown_at = time.monotonic()
            self._show(iteration, n_active, evidence, "" if sweep is None else _swept(sweep))
        if self._callback is not None:
            # A softmax counts the functions of one class after those of another.
            index = None if column < 0 else self._layout.name(column % self._n_basis)
            noise = 1.0 / beta if self._has_noise else None
            record = StepRecord(iteration, action, index, gain, evidence, n_active, noise, sweep)
            self._stopped = bool(self._callback(record))
        return self._stopped

    def _sweep(self, done: int, total: int) -> Sweep:
        if done == 0:
            self._sweep_began = time.monotonic()
            return Sweep(done, total, self._n_rows, None)
        left = (time.monotonic() - self._sweep_began) * (total - done) / done
        return Sweep(done, total, self._n_rows, left)

    def _show(self, iteration: int, n_active: int, evidence: float, end: str) -> None:
        which = f" {self._fit}/{self._n_fits}" if self._n_fits > 1 else ""
        line = (
            f"{self._name}{which}: step {iteration}, {n_active} functions, log evidence {evidence:.6g}{end}"
        )
        # Over whatever is left of a longer line before.
        self._width = max(len(line), self._width)
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()


def _swept(sweep: Sweep) -> str:
    left = "" if sweep.seconds_left is None else f", {sweep.seconds_left:.0f} s left"
    return f"; swept {sweep.candidates:,} of {sweep.n_candidates:,} candidates x {sweep.n_rows:,} rows{left}"
