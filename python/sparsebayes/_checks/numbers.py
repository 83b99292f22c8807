"""What comes from outside: arrays as real numbers, and functions that are called. Knows no scikit-learn."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import FloatArray

#: What the core can read in place; `numpy.require` copies what is otherwise.
PLAIN: tuple[Literal["C_CONTIGUOUS", "ALIGNED", "ENSUREARRAY"], ...] = (
    "C_CONTIGUOUS",
    "ALIGNED",
    "ENSUREARRAY",
)


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64, a view where they are that; TypeError, naming them, if no real numbers.

    Neither shape nor finiteness is checked.
    """
    refuse_mask(name, values)
    with naming_column(name, values):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{name} must hold real numbers: {error}") from None
        return as_float64(name, array)


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

    NumPy would make numbers of dates and texts too, and infinities of long doubles, without a word. Objects,
    such as the decimals of a data base, become floats one by one.

    Raises
    ------
    TypeError
        If the array has a type of something else.
    ValueError
        If it has finite numbers that float64 does not.
    """
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{name} must hold real numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float")
    with np.errstate(over="ignore"):
        found: FloatArray = np.require(array, np.float64, requirements)
    if array.dtype.itemsize > 8 and not np.array_equal(np.isfinite(found), np.isfinite(array)):
        raise ValueError(f"{name} holds numbers beyond those of float64; rescale it")
    return found


def column_names(table: Any) -> list[str] | None:
    """Return the names of the columns of a data frame or an Arrow table; None where not all are texts."""
    names = getattr(table, "column_names", None)  # Arrow, whose ``columns`` are the columns themselves
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or callable(names) or not all(isinstance(name, str) for name in names):
        return None
    return [str(name) for name in names]


@contextmanager
def naming_column(name: str, values: Any) -> Iterator[None]:
    """Have a complaint about the numbers of a matrix say which column, and which row of it, it is about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        try:
            fault = _fault(name, values, error)
        except Exception:  # values are anything at all: what was wrong is known
            fault = None
        if fault is None:
            raise
        raise (TypeError if isinstance(error, TypeError) else ValueError)(fault) from None


def _fault(name: str, values: Any, error: Exception) -> str | None:
    """Say which column of a matrix holds what is no finite number; None if all are finite numbers."""
    names = column_names(values)
    table = values if names is not None or hasattr(values, "iloc") else np.asarray(values)
    if len(table.shape) != 2:
        return None
    for j in range(table.shape[1]):
        column = f"column {j if names is None else repr(names[j])}"
        entries = np.asarray(_column(table, j))
        if entries.dtype.kind in "Mm":
            return (
                f"{name}: {column} holds dates or times; give numbers, such as the days since the first date"
            )
        if entries.dtype.kind == "c":
            return f"{name}: Complex data not supported; {column} holds complex numbers, give real ones"
        numbers = entries if entries.dtype.kind in "fiub" else np.array([_number(v) for v in entries])
        if numbers.dtype == object:
            row = next(i for i, number in enumerate(numbers) if number is None)
            value = entries[row]
            reason, value = ("", str(value)) if isinstance(value, str) else (f" ({error})", value)
            return (
                f"{name}: {column} holds {reprlib.repr(value)} in row {row}, which is no real number; "
                f"give numbers (0 and 1 for two kinds, a column for each of several), or leave it out{reason}"
            )
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad) > 0:
            what = "NaN" if np.isnan(numbers[bad[0]]) else "infinity"
            return (
                f"Input {name} contains {what} in {column}, row {bad[0]} ({len(bad)} of {len(numbers)} rows)"
                "; leave such rows out, or fill them in"
            )
    return None


def _column(table: Any, j: int) -> Any:
    if hasattr(table, "iloc"):  # pandas
        return table.iloc[:, j]
    return table.column(j) if hasattr(table, "column_names") else table[:, j]


def _number(value: Any) -> float | None:
    """Return a value as a float, NaN if it is missing; None if it is no number."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return float("nan")
    if isinstance(value, np.complexfloating):  # float() makes a real number of it, with a warning
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


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
