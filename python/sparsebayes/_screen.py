"""What ``verbose`` shows: a line of a notebook; elsewhere, on standard error, a bar of tqdm, or a line.

The only file that names tqdm, and late: who wants nothing shown does not load it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

#: Characters of a line that is written over: what is left of a longer one before is gone.
_WIDTH: Final = 78
#: What tqdm shows of work of unknown length; its own has a rate, and no room for how a fit ended.
_COUNT: Final = "{desc}: {n_fmt}{unit} [{elapsed}{postfix}]"


@dataclass(frozen=True)
class Part:
    """How far a part of the work has come whose length is known."""

    name: str
    unit: str
    done: int
    total: int


@dataclass(frozen=True)
class State:
    """How far a piece of work has come.

    Attributes
    ----------
    line : str
        All of it in words, as the line and the logger have it.
    done : int
        How far a bar has come.
    note : str
        What stands beside a bar.
    part : Part or None
        What else is on its way, if anything.
    """

    line: str
    done: int
    note: str
    part: Part | None = None


@dataclass(frozen=True)
class Work:
    """A piece of work: its name, what is counted, how many of these there are and were done before."""

    name: str
    unit: str
    total: int | None = None
    before: int = 0


class Screen(Protocol):
    """Shows one piece of work."""

    def show(self, state: State) -> None:
        """Show how far it has come, in place of what was shown before."""

    def close(self) -> None:
        """Leave what was shown last, and go on to the next line."""


def open_screen(work: Work) -> Screen | None:
    """Return what shows a piece of work; None if there is neither a notebook nor a standard error."""
    if _is_notebook():
        return _Cell()
    if sys.stderr is None:  # a program without a console
        return None
    kind = _kind_of_bar()
    return _Line() if kind is None else _Bar(kind, work)


@cache
def _kind_of_bar() -> Any:
    """Return tqdm's class; None if tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    # Without the thread that redraws bars nobody updates: it would outlive the fit.
    return type("tqdm", (tqdm,), {"monitor_interval": 0})


#: What shows the line of the fit that is on its way, by "line".
_LINE: ContextVar[dict[str, Any]] = ContextVar("_LINE")


@contextmanager
def one_line() -> Iterator[None]:
    """Have all work within, the parts of one fit, leave one line in a notebook: how the last part ended."""
    token = _LINE.set({})
    try:
        yield
    finally:
        _LINE.reset(token)


def _is_notebook() -> bool:
    """Tell whether there is more than a stream of characters to write to."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _Cell:
    """A line of the output of a notebook's cell, replaced as work proceeds: what is saved says how it ended.

    A widget would be saved as it was when it began, and carriage returns as lines of their own.
    """

    def __init__(self) -> None:
        self._fit = _LINE.get({})

    def show(self, state: State) -> None:
        from IPython.display import display

        line = {"text/plain": state.line}
        if "line" in self._fit:
            self._fit["line"].update(line, raw=True)
        else:
            self._fit["line"] = display(line, raw=True, display_id=True)

    def close(self) -> None:
        pass  # what was shown last stays


class _Line:
    def __init__(self) -> None:
        self._width, self._shown = _WIDTH, False

    def show(self, state: State) -> None:
        # Over whatever is left of a longer line before.
        self._width, self._shown = max(len(state.line), self._width), True
        sys.stderr.write(f"\r{state.line:<{self._width}}")
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")


class _Bar:
    """A bar, and below it one of a part as long as that goes on."""

    def __init__(self, kind: Any, work: Work) -> None:
        self._kind, self._part = kind, None
        self._bar = self._opened(work.name, work.unit, work.total, initial=work.before)

    def _opened(self, name: str, unit: str, total: int | None, **arguments: Any) -> Any:
        return self._kind(
            desc=name,
            total=total,
            unit=f" {unit}",
            bar_format=_COUNT if total is None else None,
            unit_scale=total is not None and total >= 10_000,
            **_width_of_terminal(),
            **arguments,
        )

    def show(self, state: State) -> None:
        _redraw(self._bar, state.done, state.note)
        if state.part is None:
            self._close_part()
            return
        if self._part is None:
            part = state.part
            self._part = self._opened(f"  {part.name}", part.unit, part.total, leave=False)
        _redraw(self._part, state.part.done, "")

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def close(self) -> None:
        self._close_part()
        self._bar.close()


def _width_of_terminal() -> dict[str, Any]:
    """Return how tqdm learns of the width: it shows nothing on terminals that give their size as 0."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # no terminal
        columns = -1
    return {"ncols": _WIDTH, "nrows": 24} if columns == 0 else {"dynamic_ncols": True}


def _redraw(bar: Any, done: int, note: str) -> None:
    bar.n = done
    bar.set_postfix_str(note, refresh=False)
    bar.refresh()
