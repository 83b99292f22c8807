"""Arithmetic at the ends of the range of numbers: errors that name the remedy, no NaN, no warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.linalg import LinAlgError

from .._core import NumericalError
from .eigen import Axes, Solution
from .modes import Pulse

_Result = TypeVar("_Result")

_REMEDY = "scale X and y, give less unequal sample weights, or change the kernel, ridge or noise_variance"


def in_range(work: Callable[[Pulse], _Result]) -> Callable[[Pulse], _Result]:
    """Return ``work`` that raises NumericalError where it cannot go on, and is silent on the way.

    What it returns may have infinities: see `check_solution`.
    """

    def guarded(pulse: Pulse) -> _Result:
        # Here, as before NumPy 2 each thread has an error state of its own.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                return work(pulse)
            except (LinAlgError, OverflowError) as error:
                raise NumericalError(f"the arithmetic of the fit broke down ({error}); {_REMEDY}") from None

    return guarded


def check_axes(found: Axes) -> Axes:
    """Return the axes of a dictionary; NumericalError if they are not finite."""
    if not np.isfinite(found.squares).all():
        raise NumericalError(f"the squares of the functions left the range of numbers; {_REMEDY}")
    return found


def check_solution(found: Solution) -> Solution:
    """Return what a fit found; NumericalError if it is not finite."""
    parts = (found.eigenvalues, found.w, found.directions, found.variances, found.ridge, found.beta)
    finite = all(np.isfinite(part).all() for part in parts)
    if not finite or not found.beta > 0.0 or np.isnan(found.alpha).any():
        raise NumericalError(f"the arithmetic of the fit left the range of numbers; {_REMEDY}")
    return found
