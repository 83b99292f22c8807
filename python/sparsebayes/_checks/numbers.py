"""Conversion of user arrays to real numbers, and calls of user functions. Does not import scikit-learn."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import FloatArray

#: Requirements of the core for `numpy.require`.
PLAIN: tuple[Literal["C", "A", "E"], ...] = ("C", "A", "E")  # C order, aligned, no subclass


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64, a view if possible; neither shape nor finiteness is checked."""
    with naming_column(name, values):
        return as_float64(name, any_array(name, values))


def any_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return ``values``, such as labels, as an array; ValueError if that fails."""
    refuse_mask(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:  # lists of unequal lengths
        raise ValueError(f"{name}: {error}") from None


def as_float64(
    name: str, array: NDArray[Any], requirements: Sequence[Literal["C", "A", "E"]] | Any = ()
) -> FloatArray:
    """Return an array of real numbers as float64, with the requirements of `numpy.require`.

    TypeError for other types, such as dates and strings, which NumPy would convert; ValueError for long
    doubles beyond the range of float64. Objects, such as decimals of a data base, become floats one by one.
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
    """Return the column names of a data frame or an Arrow table; None if not all are strings."""
    names = getattr(table, "column_names", None)  # Arrow, whose ``columns`` are the columns themselves
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or callable(names) or not all(isinstance(name, str) for name in names):
        return None
    return [str(name) for name in names]


@contextmanager
def naming_column(name: str, values: Any) -> Iterator[None]:
    """Refuse masked values, and name column and row in errors about the numbers of a matrix."""
    refuse_mask(name, values)
    try:
        yield
    except (TypeError, ValueError) as error:
        try:
            fault = _fault(name, values, error)
        except Exception:  # values can be any object; keep the original error
            fault = None
        if fault is None:
            raise
        raise (TypeError if isinstance(error, TypeError) else ValueError)(fault) from None


def _fault(name: str, values: Any, error: Exception) -> str | None:
    """Return a message that names the first column with invalid values; None if there is none."""
    names = column_names(values)
    table = values if names is not None or hasattr(values, "iloc") else np.asarray(values)
    if len(table.shape) != 2:
        return None
    for j in range(table.shape[1]):
        column = f"column {j if names is None else repr(names[j])}"
        entries = np.asarray(_column(table, j))
        if entries.dtype.kind in "Mm":
            return f"{name}: {column} holds dates or times; give numbers, such as days since the first date"
        if entries.dtype.kind == "c":
            return f"{name}: Complex data not supported; {column} holds complex numbers, give real ones"
        numbers = entries if entries.dtype.kind in "fiub" else np.array([_number(v) for v in entries])
        if numbers.dtype == object:
            row = next(i for i, number in enumerate(numbers) if number is None)
            value = entries[row]
            reason, value = ("", str(value)) if isinstance(value, str) else (f" ({error})", value)
            return (
                f"{name}: {column} holds {reprlib.repr(value)} in row {row}, which is not a real number; "
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
    """Return a value as a float, NaN if it is missing; None if it is not a number."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return float("nan")
    if isinstance(value, np.complexfloating):  # float() would drop the imaginary part, with a warning
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def called(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; name it in errors of the call itself, such as a wrong number of arguments.

    Errors inside the function are raised unchanged.
    """
    try:
        return function(*arguments)
    except (TypeError, ValueError) as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise type(error)(f"{name}, called with {len(arguments)} argument(s): {error}") from None
        raise


def asked_to_stop(callback: Callable[[Any], object], record: object) -> bool:
    """Call a user's callback with a record, and return whether it stops the fit."""
    result = called("callback", callback, record)
    try:
        return bool(result)
    except (TypeError, ValueError) as error:  # an array with several values
        raise type(error)(f"callback must return True, False or None: {error}") from None


def refuse_mask(name: str, values: Any) -> None:
    """Raise ValueError if some of ``values`` are masked, because NumPy would use the masked values."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} holds masked values; fill them, or leave their rows out")


def check_predictions(name: str, *parts: FloatArray) -> None:
    """Raise ValueError if predictions overflowed."""
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError(f"{name} holds rows so large that predictions overflow; rescale X")


def column_means(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the weighted mean of each column, as the first row plus the mean difference from it.

    This loses no digits for columns far from 0. Rows are added up in order, a block at a time.
    """
    first, rows, total = X[0], 4096, np.zeros(X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported where the means are used
        for start in range(0, len(X), rows):
            difference = X[start : start + rows] - first
            if weights is not None:
                difference *= weights[start : start + rows, np.newaxis]
            total += difference.sum(axis=0)
        means: FloatArray = first + total / (len(X) if weights is None else weights.sum())
    return means
