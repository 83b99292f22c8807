"""What a piece of work tells of itself: on the screen if that is wanted, and to the logger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ._screen import State, Work, open_screen

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

#: Seconds between two looks at the screen, and between two records of the logger while work goes on.
_SHOWN: Final = 0.1
_LOGGED: Final = 1.0

#: Silent unless the user's logging asks for it.
LOG: Final = logging.getLogger("sparsebayes")
LOG.addHandler(logging.NullHandler())


class Glance:
    """A callback that does not hear of each step, and that nobody waits for.

    The core looks for ``seconds``: it calls this at most once in so many, goes on meanwhile, and does not
    look at the answer.
    """

    def __init__(self, step: Callable[..., bool], seconds: float, before: int = 0) -> None:
        self._step, self.seconds, self._before = step, seconds, before

    def __call__(self, iteration: int, *rest: Any) -> bool:
        """Hear of a step."""
        return self._step(self._before + iteration, *rest)

    def after(self, before: int) -> Glance:
        """Return the callback of a fit that begins after so many steps."""
        return Glance(self._step, self.seconds, before)


class News:
    """Tells of one piece of work, not too often. A context, which clears the screen up however it is left."""

    def __init__(self, work: Work, *, verbose: bool) -> None:
        self._work = work
        self._screen = open_screen(work) if verbose else None
        self._logging = LOG.isEnabledFor(logging.DEBUG)
        self._shown_at, self._logged_at = 0.0, time.monotonic()

    @property
    def seconds(self) -> float | None:
        """How often at most there is anything to tell; None: never."""
        return _SHOWN if self._screen is not None else _LOGGED if self._logging else None

    @property
    def is_shown(self) -> bool:
        """Whether there is a screen."""
        return self._screen is not None

    @property
    def is_due(self) -> bool:
        """Whether there is anybody to tell now."""
        now = time.monotonic()
        return (self._screen is not None and now - self._shown_at > _SHOWN) or (
            self._logging and now - self._logged_at > _LOGGED
        )

    def tell(self, state: State) -> None:
        """Tell how far the work has come; for work that `is_due`, or has begun something new."""
        now = time.monotonic()
        self._show(state, now)
        if self._logging and now - self._logged_at > _LOGGED:
            self._logged_at = now
            LOG.debug("%s", state.line)

    def end(self, state: State) -> None:
        """Show how the work ended."""
        self._show(state, time.monotonic())

    def _show(self, state: State, now: float) -> None:
        if self._screen is None:
            return
        self._shown_at = now
        try:
            self._screen.show(state)
        except (OSError, ValueError):
            # A screen that is gone is no reason to give up the work.
            self._screen = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            LOG.debug("%s: ended by %s", self._work.name, kind.__name__)
        screen, self._screen = self._screen, None
        if screen is not None:
            try:
                screen.close()
            except (OSError, ValueError):
                return
