"""Reports of a running fit: callbacks, a tqdm bar, and the logger ``"sparsebayes"``.

There are two kinds of callbacks: the argument ``callback``, which is called with records, and those of
scikit-learn from 1.9 on, which ``set_callbacks`` sets and which are called with the tasks of a fit.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ._arrays import KnownNoise
from ._checks import asked_to_stop
from ._types import Progress, StepRecord

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9
    CallbackSupportMixin = object

    def with_callbacks(method: Any) -> Any:
        """Return the method."""
        return method


if TYPE_CHECKING:
    from ._data.chunks import Rows
    from ._data.design import CoreCallback, Layout

#: DEBUG at the beginning of a fit or a pass over rows, INFO at the end of a fit.
LOG: Final = logging.getLogger("sparsebayes")
#: Errors of writing to a closed standard error; they do not end a fit.
_CLOSED_STREAM: Final = (OSError, ValueError)
#: Format of bars without a total: tqdm's default shows a rate instead of the status of a fit.
_BAR_FORMAT: Final = "{desc}: {n_fmt}{unit} [{elapsed}{postfix}]"


def begin_fit(estimator: Any, data: dict[str, Any]) -> None:
    """Begin the fit for the callbacks of ``set_callbacks``; ``data``: what they are given, X, y, metadata."""
    if hasattr(estimator, "_skl_callbacks"):
        context = estimator._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=estimator, **data)


def _step_ends(estimator: Any, task_name: str) -> bool:
    """Tell those callbacks of a step, and return whether one of them asks to stop the fit."""
    if (context := getattr(estimator, "_callback_fit_ctx", None)) is None:
        return False
    step = context.subcontext(task_name=task_name).call_on_fit_task_begin(estimator=estimator)
    return bool(step.call_on_fit_task_end(estimator=estimator))


def end_fit(estimator: Any, data: dict[str, Any]) -> None:
    """Tell those callbacks that the estimator is fitted."""
    if (context := getattr(estimator, "_callback_fit_ctx", None)) is not None:
        context.call_on_fit_task_end(estimator=estimator, reconstruction_attributes={}, **data)


@with_callbacks  # type: ignore[untyped-decorator] # scikit-learn carries no types
def release_callbacks(estimator: Any) -> None:
    """Tear those callbacks down, which the decorator does."""


@cache
def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        with suppress(*_CLOSED_STREAM):
            LOG.warning("verbose=1 shows a progress bar with tqdm: pip install 'sparsebayes[progress]'")
        return None
    return tqdm


@contextmanager
def progress_bar(
    verbose: int, title: str, unit: str, total: int | None = None, done: int = 0
) -> Iterator[Callable[..., None] | None]:
    """Open a bar and yield ``show(done, note="")``, which redraws at most every 0.1 s; None without a bar."""
    kind, bar = _tqdm() if verbose and sys.stderr is not None else None, None
    if kind is not None:
        style = {"bar_format": _BAR_FORMAT} if total is None else {"unit_scale": True}
        with suppress(*_CLOSED_STREAM):
            sys.stderr.write("")  # fails here: a bar that fails at its start prints an error later
            bar = kind(desc=title, unit=f" {unit}", total=total, initial=done, miniters=0, **style)
    if bar is None:
        yield None
        return

    def show(done: int, note: str = "") -> None:
        with suppress(*_CLOSED_STREAM):
            bar.set_postfix_str(note, refresh=False)
            bar.update(done - bar.n)

    try:
        yield show
    finally:
        with suppress(*_CLOSED_STREAM):
            bar.close()


@dataclass
class FitReporter:
    """Passes the steps of the core to the callback, the bar and the log of one estimator.

    Once the callback has asked to stop (``stopped``), the fit ends, and each later fit after its first step.
    """

    estimator: Any
    layout: Layout
    n_basis: int
    has_noise: bool
    n_fits: int = 1
    noise: KnownNoise | None = None
    stopped: bool = False

    def __post_init__(self) -> None:
        self._units, self._fit = self.noise or KnownNoise(None, 1.0, 0.0), 0

    @contextmanager
    def fit(self) -> Iterator[CoreCallback | None]:
        """Begin the next fit and yield the callback for the core. Call `end` in the context."""
        self._fit += 1
        self._title = title(self.estimator, self._fit, self.n_fits)
        LOG.debug("%s: fit begun, %d candidates", self._title, self.n_basis)
        with progress_bar(self.estimator.verbose, self._title, "steps") as self._show:
            watched = self.estimator.callback is not None or hasattr(self.estimator, "_callback_fit_ctx")
            yield self._step if watched or self._show is not None else None

    def end(self, status: str, n_iter: int, n_active: int, log_evidence: float) -> None:
        note = _note(n_active, log_evidence + self._units.log_evidence)
        LOG.info("%s: %s after %d steps, %s", self._title, status, n_iter, note)
        if self._show is not None:
            self._show(n_iter, f"{note}, {status}")

    def _step(
        self,
        iteration: int,
        action: str,
        column: int,
        gain: float,
        log_evidence: float,
        n_active: int,
        beta: float,
        swept: tuple[int, int] | None = None,
    ) -> bool:
        if self.stopped:
            return True
        log_evidence += self._units.log_evidence
        if self._show is not None:
            sweep = "" if swept is None else f", {swept[0]:,} of {swept[1]:,} candidates swept"
            self._show(iteration, _note(n_active, log_evidence) + sweep)
        if self.estimator.callback is not None:
            # The columns of a softmax are ordered by class.
            index = None if column < 0 else self.layout.name(column % self.n_basis)
            noise = 1.0 / (beta * self._units.variance) if self.has_noise else None
            progress = None if swept is None else Progress("sweeping", *swept)
            record = StepRecord(iteration, action, index, gain, log_evidence, n_active, noise, progress)
            self.stopped = asked_to_stop(self.estimator.callback, record)
        self.stopped |= _step_ends(self.estimator, "step" if swept is None else "sweep")
        return self.stopped


class ReadReporter:
    """Passes the progress of reading rows to the callback, the bar and the log.

    Once the callback has asked to stop (``stopped``), later passes end after their first block.
    """

    def __init__(self, estimator: Any, n_rows: int | None) -> None:
        self._estimator, self._n_rows, self.stopped = estimator, n_rows, False

    def passing(self, what: str, blocks: Iterable[Rows], before: int = 0) -> Iterator[Rows]:
        """Yield the blocks of a pass until the callback asks to stop; ``before`` rows are already done."""
        name, rows = f"{title(self._estimator)}: {what}", 0
        LOG.debug("%s", name)
        with progress_bar(self._estimator.verbose, name, "rows", self._n_rows, before) as show:
            for block in blocks:
                yield block
                rows += len(block)
                if show is not None:
                    show(rows, f"chunk {block.chunk + 1}")
                if self._estimator.callback is not None and not self.stopped:
                    progress = Progress(what, rows, self._n_rows)
                    record = StepRecord(0, "read", None, 0.0, math.nan, 0, None, progress)
                    self.stopped = asked_to_stop(self._estimator.callback, record)
                self.stopped |= _step_ends(self._estimator, "read")
                if self.stopped:
                    break
        self._n_rows = self._n_rows if self.stopped else rows


def title(estimator: Any, number: int = 1, n_fits: int = 1) -> str:
    """Return the name of a fit in messages: the estimator, and the number if there are several fits."""
    return type(estimator).__name__ + (f" {number}/{n_fits}" if n_fits > 1 else "")


def _note(n_active: int, log_evidence: float) -> str:
    return f"{n_active} functions, log evidence {log_evidence:.6g}"
