"""What comes from outside: arrays as real numbers, and functions that are called. Knows no scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._types import FloatArray

#: What the core can read in place; `numpy.require` copies what is otherwise.
PLAIN: tuple[Literal["C_CONTIGUOUS", "ALIGNED", "ENSUREARRAY"], ...] = (
    "C_CONTIGUOUS",
    "ALIGNED",
    "ENSUREARRAY",
)


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64, a view where they are that; TypeError, naming them, if no real numbers.

    Neither shape nor finiteness is checked. Objects, such as the decimals of a data base, become floats one
    by one.
    """
    refuse_mask(name, values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must hold real numbers: {error}") from None
    if array.dtype != object:
        return as_float64(name, array)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must hold real numbers: {error}") from None


def any_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return ``values``, labels for instance, as an array; ValueError, naming them, if they are none."""
    refuse_mask(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:  # lists of unequal lengths
        raise ValueError(f"{name}: {error}") from None


def as_float64(
    name: str, array: NDArray[Any], requirements: Sequence[Literal["C", "A", "F", "E"]] | Any = ()
) -> FloatArray:
    """Return an array of real numbers as float64 that meets what `numpy.require` is to require.

    NumPy would make numbers of dates and texts too, and infinities of long doubles, without a word.

    Raises
    ------
    TypeError
        If the array has a type of something else.
    ValueError
        If it has finite numbers that float64 does not.
    """
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float")
    with np.errstate(over="ignore"):
        found: FloatArray = np.require(array, np.float64, requirements)
    if array.dtype.itemsize > 8 and not np.array_equal(np.isfinite(found), np.isfinite(array)):
        raise ValueError(f"{name} holds numbers beyond those of float64; rescale it")
    return found


def called(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what a user gave as ``name``; an error of the call itself, as of the number of arguments, says so.

    Errors inside the function come through as they are.
    """
    try:
        return function(*arguments)
    except (TypeError, ValueError) as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise type(error)(f"{name}, called with {len(arguments)} argument(s): {error}") from None
        raise


def asked_to_stop(callback: Callable[[Any], object], record: object) -> bool:
    """Tell a user's callback of a step, and return whether it asks for an end of the fit."""
    answer = called("callback", callback, record)
    try:
        return bool(answer)
    except (TypeError, ValueError) as error:  # of several truths, as an array has
        raise type(error)(f"callback must return True, False or None: {error}") from None


def refuse_mask(name: str, values: Any) -> None:
    """Raise ValueError if some of ``values`` are masked: all that comes after would take what is below."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} holds masked values; fill them, or leave their rows out")


def check_predictions(name: str, *parts: FloatArray) -> None:
    """Raise ValueError if predictions overflowed."""
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError(f"{name} holds rows so large that predictions overflow; rescale X")


def column_means(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the weighted mean of each column: the first row, and the mean of what others differ from it by.

    So it loses no digits where columns are far from 0. Rows are added up in their order, a block at a time.
    """
    first, rows, total = X[0], 4096, np.zeros(X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is said where it is used
        for start in range(0, len(X), rows):
            apart = X[start : start + rows] - first
            if weights is not None:
                apart *= weights[start : start + rows, np.newaxis]
            total += apart.sum(axis=0)
        means: FloatArray = first + total / (len(X) if weights is None else weights.sum())
    return means
