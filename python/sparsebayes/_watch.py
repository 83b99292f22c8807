"""What goes on between a running fit and its user: the callback and the progress line."""

from __future__ import annotations

import sys
import time

from ._design import CoreCallback, Layout
from ._types import Callback, StepRecord

#: Seconds between two updates of the progress line.
_INTERVAL = 0.1


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
    ) -> None:
        self._name = name
        self._callback = callback
        self._verbose = verbose
        self._layout = layout
        self._has_noise = has_noise
        self._n_fits = n_fits
        self._n_basis = n_basis
        self._fit = 0
        self._shown_at = 0.0
        self._stopped = stopped

    def begin(self) -> CoreCallback | None:
        """Return what the core is to call during the next fit."""
        self._fit += 1
        return self._step if self._callback is not None or self._verbose else None

    def end(self, status: str, n_iter: int, n_active: int, log_evidence: float) -> None:
        """Finish the progress line."""
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
    ) -> bool:
        if self._stopped:
            return True
        if self._verbose and time.monotonic() - self._shown_at > _INTERVAL:
            self._shown_at = time.monotonic()
            self._show(iteration, n_active, evidence, "")
        if self._callback is not None:
            # A softmax counts the functions of one class after those of another.
            index = None if column < 0 else self._layout.name(column % self._n_basis)
            noise = 1.0 / beta if self._has_noise else None
            record = StepRecord(iteration, action, index, gain, evidence, n_active, noise)
            self._stopped = bool(self._callback(record))
        return self._stopped

    def _show(self, iteration: int, n_active: int, evidence: float, end: str) -> None:
        which = f" {self._fit}/{self._n_fits}" if self._n_fits > 1 else ""
        line = (
            f"{self._name}{which}: step {iteration}, {n_active} functions, log evidence {evidence:.6g}{end}"
        )
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()
