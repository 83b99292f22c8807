"""Checks of scalar arguments, conversion of arrays, calls of user functions. Does not import scikit-learn."""

from __future__ import annotations

import math
import numbers
import os
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._types import FloatArray, Scheme, Search, Settings

#: Types that Python or NumPy register as numbers but that are not: booleans and time spans.
NOT_NUMBERS: Final = (bool, np.bool_, np.timedelta64)
#: More threads do not help, and some systems refuse them.
_MAX_THREADS: Final = max(32, 4 * (os.cpu_count() or 1))


def check_real(name: str, value: object, *, positive: bool = False, remedy: str = "") -> float:
    """Return ``value`` as a float; TypeError if it is not real, ValueError if not finite or positive."""
    reason = f"{name} must be a {'positive' if positive else 'finite'} number, got {value!r}{remedy}"
    if isinstance(value, NOT_NUMBERS) or not isinstance(value, numbers.Real):
        raise TypeError(reason)
    try:
        number = float(value)
    except OverflowError:  # a large integer or fraction
        number = math.inf
    if not math.isfinite(number) or (positive and number <= 0.0):
        raise ValueError(reason)
    return number


def check_integer(name: str, value: object, *, least: int, most: int = sys.maxsize, remedy: str = "") -> int:
    """Return ``value`` as an int; TypeError if it is not one, ValueError outside ``least`` to ``most``."""
    reason = f"{name} must be an integer of at least {least}, got {value!r}{remedy}"
    if isinstance(value, NOT_NUMBERS) or not isinstance(value, numbers.Integral):
        raise TypeError(reason)
    number = int(value)
    if number < least:
        raise ValueError(reason)
    if number > most:
        raise ValueError(f"{name} must be at most {most}, got {value!r}")
    return number


def check_entries(name: str, values: Any, kind: str) -> list[Any]:
    """Return ``values`` as a list; TypeError if they are not iterable."""
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of {kind}, got {values!r}") from None


def check_n_jobs(n_jobs: object) -> int | None:
    """Return the number of threads, None for one per core."""
    if n_jobs is None or (isinstance(n_jobs, numbers.Integral) and n_jobs == -1):
        return None
    return min(check_integer("n_jobs", n_jobs, least=1, remedy="; None or -1: all cores"), _MAX_THREADS)


def is_auto(given: object) -> bool:
    """Tell whether an argument leaves the choice to the fit."""
    return isinstance(given, str) and given == "auto"


def check_flag(name: str, value: object) -> bool:
    """Return ``value`` as a bool; TypeError if it is neither a bool nor an integer."""
    if isinstance(value, np.timedelta64) or not isinstance(value, (bool, np.bool_, numbers.Integral)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> Any:
    """Return ``value``; TypeError if it is not a string, ValueError if it is not among the choices."""
    if isinstance(value, str) and value in choices:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    first, last = ", ".join(map(repr, choices[:-1])), choices[-1]
    raise kind(f"{name} must be {first} or {last!r}, got {value!r}")


def check_file(name: str, value: object) -> str:
    """Return a path as a string; TypeError if it is not a path, ValueError if no file can have that name."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} must be a path, got {reprlib.repr(value)}")
    try:
        path = os.fsdecode(value)
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeError:
        pass
    raise ValueError(f"{name} must be a name that files can have here, got {reprlib.repr(value)}")


def check_verbose(verbose: object) -> None:
    """Check ``verbose``: a number, or a bool."""
    if not isinstance(verbose, bool):
        check_integer("verbose", verbose, least=0)


def check_reporting(estimator: Any) -> None:
    """Check ``callback`` and ``verbose``."""
    callback = estimator.callback
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be None or a callable taking a StepRecord, got {callback!r}")
    check_verbose(estimator.verbose)


def check_settings(estimator: Any) -> Settings:
    """Check the constructor arguments common to regression and classification."""
    check_reporting(estimator)
    noise_variance, noise_variances = _noise_variance(getattr(estimator, "noise_variance", None))
    scheme: Scheme = check_choice("scheme", estimator.scheme, get_args(Scheme))
    search: Search = check_choice("search", getattr(estimator, "search", "greedy"), get_args(Search))
    if search != "greedy" and scheme != "sequential":
        raise ValueError(f"search={search!r} needs scheme='sequential'; or set search='greedy'")
    shape, rate = alpha_prior = check_prior("alpha_prior", estimator.alpha_prior)
    if shape > 0.0 and rate == 0.0:
        raise ValueError(
            "alpha_prior must have a positive rate if it has a positive shape: with rate 0 all precisions "
            f"would be infinite; got {estimator.alpha_prior!r}"
        )
    return Settings(
        noise_variance=noise_variance,
        noise_variances=noise_variances,
        tol=check_real("tol", estimator.tol, positive=True),
        max_iter=check_integer("max_iter", estimator.max_iter, least=1),
        scheme=scheme,
        alpha_prior=alpha_prior,
        noise_prior=check_prior("noise_prior", getattr(estimator, "noise_prior", (0.0, 0.0))),
        search=search,
        n_threads=check_n_jobs(estimator.n_jobs),
        unpenalized=(0,) if has_flat_intercept(estimator) else (),
        complexity=_complexity(estimator, scheme),
    )


#: The weight of the prior on complexity for its names; some depend on the data.
_COMPLEXITIES: Final[dict[str, float | Literal["bic", "ebic"]]] = {
    "none": 0.0,
    "aic": 1.0,
    "bic": "bic",
    "ebic": "ebic",
}


def _complexity(estimator: Any, scheme: Scheme) -> float | Literal["bic", "ebic"]:
    value = getattr(estimator, "complexity", "none")
    if isinstance(value, str) and value == "auto":
        if scheme != "sequential" or tuple(estimator.alpha_prior) != (0.0, 0.0):
            return 0.0
        return 0.5 if hasattr(estimator, "kernel") else "ebic"
    if isinstance(value, str):
        weight = _COMPLEXITIES[check_choice("complexity", value, ("auto", *_COMPLEXITIES))]
    else:
        weight = check_real("complexity", value)
        if not 0.0 <= weight <= 1e6:
            choices = ", ".join(map(repr, ("auto", *_COMPLEXITIES)))
            raise ValueError(f"complexity must be between 0 and 1e6, or one of {choices}; got {value!r}")
    if weight != 0.0 and scheme != "sequential":
        raise ValueError(f"complexity={value!r} needs scheme='sequential'; or set complexity='none'")
    return weight


def has_flat_intercept(estimator: Any) -> bool:
    """Whether the intercept of this estimator has a flat prior."""
    penalized = check_flag("penalize_intercept", getattr(estimator, "penalize_intercept", True))
    # The variational scheme has no flat priors.
    penalized = penalized or estimator.scheme == "variational"
    return check_flag("fit_intercept", estimator.fit_intercept) and not penalized


def _noise_variance(value: object) -> tuple[float | None, tuple[float, ...] | None]:
    """Return the noise variance, and that of each output if ``value`` is an array."""
    if value is None:
        return None, None
    # A pandas series has __array__.
    if isinstance(value, (list, tuple)) or (hasattr(value, "__array__") and np.ndim(value) == 1):
        return None, tuple(check_real("noise_variance", one, positive=True) for one in value)  # type: ignore[attr-defined] # an array
    remedy = "; leave it None to estimate it, or give one for each column of y"
    return check_real("noise_variance", value, positive=True, remedy=remedy), None


def check_prior(name: str, value: object) -> tuple[float, float]:
    """Return shape and rate of a Gamma prior; TypeError if not a pair of numbers, ValueError if negative."""
    reason = f"{name} must be a pair (shape, rate) of numbers >= 0; (0, 0) is uniform in the logarithm"
    try:
        if not isinstance(value, (tuple, list, np.ndarray)) or np.shape(value) != (2,):
            raise TypeError
        shape, rate = (check_real(name, number) for number in value)
        if min(shape, rate) < 0.0:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise type(error)(f"{reason}; got {value!r}") from None
    return shape, rate


#: Files with the memory limit of a container under Linux.
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Bytes assumed if the system does not report its memory.
_UNKNOWN_MEMORY: Final = 4 << 30


def check_memory_limit(value: object) -> int:
    """Return ``memory_limit`` in bytes; None is half of the memory of the computer."""
    if value is None:
        return _total_memory() // 2
    remedy = f"memory_limit must be None, a number of bytes, or a string such as '2GiB'; got {value!r}"
    n_bytes: Any = value
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(i?)B?\s*", value, re.IGNORECASE)
        if found is None:
            raise ValueError(remedy)
        number, unit, binary = found.groups()
        n_bytes = float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " ")
    elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(remedy)
    if not 1 <= n_bytes < math.inf:
        raise ValueError(remedy)
    return int(n_bytes)


@cache
def _total_memory() -> int:
    """Return the bytes of memory of the computer, or of its container."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        found = _UNKNOWN_MEMORY
    for path in _LIMIT_FILES:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return found


# --- arrays and functions of the user ---------------------------------------------------------------

#: Requirements of the core for `numpy.require`.
PLAIN: tuple[Literal["C", "A", "E"], ...] = ("C", "A", "E")  # C order, aligned, no subclass


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64, a view if possible; neither shape nor finiteness is checked."""
    values = as_numpy(name, values)
    with naming_column(name, values):
        return as_float64(name, any_array(name, values))


def any_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return ``values``, such as labels, as an array; ValueError if that fails."""
    refuse_mask(name, values)
    values = as_numpy(name, values)
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


_DATES: Final = "dates or times; give numbers, such as days since the first date"


def column_names(table: Any) -> list[str] | None:
    """Return the column names of a data frame or an Arrow table; None if not all are strings."""
    # The ``columns`` of Arrow are the columns themselves.
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is None or callable(names) or not all(isinstance(name, str) for name in names):
        return None
    return [str(name) for name in names]


@contextmanager
def naming_column(name: str, values: Any) -> Iterator[None]:
    """Refuse masked values, and name column and row in errors about the numbers of an array."""
    refuse_mask(name, values)
    _refuse_dates(name, values)
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


def _refuse_dates(name: str, values: Any) -> None:
    """Refuse dates and times in frames of polars, whose arrays hold numbers of unknown unit instead."""
    for column, kind in getattr(values, "schema", {}).items() if hasattr(values, "lazy") else ():
        if kind.is_temporal():
            raise TypeError(f"{name}: column {column!r} holds {_DATES}")


def _fault(name: str, values: Any, error: Exception) -> str | None:
    """Return a message that names the first column and row with invalid values; None if there is none."""
    names = column_names(values)
    table: Any = values if names is not None or hasattr(values, "iloc") else np.asarray(values)
    if len(table.shape) not in (1, 2):
        return None
    is_table = len(table.shape) == 2
    for j in range(table.shape[1] if is_table else 1):
        column = f"column {j if names is None else repr(names[j])}"
        it, at = (f"{name}: {column}", f"{column}, row") if is_table else (name, "row")
        if not is_table:
            entries = np.asarray(table)
        elif hasattr(table, "iloc"):  # pandas
            entries = np.asarray(table.iloc[:, j])
        else:
            entries = np.asarray(table.column(j) if hasattr(table, "column_names") else table[:, j])
        if entries.dtype.kind in "Mm":
            return f"{it} holds {_DATES}"
        if entries.dtype.kind == "c":
            where = column if is_table else "it"
            return f"{name}: Complex data not supported; {where} holds complex numbers, give real ones"
        numbers = entries if entries.dtype.kind in "fiub" else np.array([_number(v) for v in entries])
        if numbers.dtype == object:
            row = next(i for i, number in enumerate(numbers) if number is None)
            value = entries[row]
            kinds = " (0 and 1 for two kinds, a column for each of several), or leave it out"
            kinds = kinds if is_table else ", or labels to a classifier such as RVC" if name == "y" else ""
            reason, value = ("", str(value)) if isinstance(value, str) else (f" ({error})", value)
            return (
                f"{it} holds {reprlib.repr(value)} in row {row}, which is not a real number; "
                f"give numbers{kinds}{reason}"
            )
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad) > 0:
            what = "NaN" if np.isnan(numbers[bad[0]]) else "infinity"
            return (
                f"Input {name} contains {what} in {at} {bad[0]} ({len(bad)} of {len(numbers)} rows)"
                "; leave such rows out, or fill them in"
            )
    return None


def is_missing(value: Any) -> bool:
    """Tell whether a value is None, NaN, a missing date, or pandas' sign of a missing value."""
    if isinstance(value, (float, np.floating, np.datetime64, np.timedelta64)):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _number(value: Any) -> float | None:
    """Return a value as a float, NaN if it is missing; None if it is not a number."""
    if is_missing(value):
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


def as_numpy(name: str, values: Any) -> Any:
    """Return an array of another library as one of NumPy, other values as they are.

    TypeError if NumPy cannot read it, as on a GPU, or if it is a sparse matrix or a linear operator.
    """
    if hasattr(values, "toarray"):
        raise TypeError(f"{name} is a sparse matrix, but must be a table here: give {name}.toarray()")
    if hasattr(values, "rmatvec"):
        raise TypeError(f"{name} is a linear operator, but must be a table here: give its values")
    if hasattr(values, "to_pandas") and not hasattr(values, "shape"):  # a record batch of an old pyarrow
        return values.to_pandas()
    if isinstance(values, (np.ndarray, np.generic)) or not hasattr(values, "__dlpack__"):
        return values
    try:
        return np.asarray(values) if hasattr(values, "__array__") else np.from_dlpack(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        kind = f"{type(values).__module__.split('.')[0]}.{type(values).__name__}"
        raise TypeError(
            f"{name} is of the type {kind}, which NumPy cannot read; copy it to the CPU, and detach it from "
            f"gradients ({error})"
        ) from None


def check_predictions(*parts: FloatArray) -> None:
    """Raise ValueError if predictions for X overflowed."""
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("X holds rows so large that predictions overflow; rescale X")


def column_means(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the weighted mean of each column, as the first row plus the mean difference from it.

    This loses no digits for columns far from 0. Rows are added up in order, a block at a time.
    """
    first, total = X[0], np.zeros(X.shape[1])
    rows = max(1, min(4096, (1 << 18) // max(1, X.shape[1])))  # differences stay in the caches
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported where the means are used
        for start in range(0, len(X), rows):
            difference = X[start : start + rows] - first
            if weights is not None:
                difference *= weights[start : start + rows, np.newaxis]
            total += difference.sum(axis=0)
        means: FloatArray = first + total / (len(X) if weights is None else weights.sum())
    return means


# --- texts of messages ---------------------------------------------------------------------------------


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return at most ``limit`` names in a line, and the number of others."""
    names = [" ".join(name.split()) for name in names]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def counted(n: int, what: str) -> str:
    """Return a number and a noun, in the plural unless the number is 1."""
    return f"{n} {what}" + ("" if n == 1 else "s")


def in_words(n_bytes: float) -> str:
    """Return a number of bytes with a unit."""
    power = 0 if n_bytes < 1 else min(4, int(math.log(n_bytes, 1024)))
    unit = "B" if power == 0 else f"{' KMGT'[power]}iB"
    return f"{n_bytes / 1024**power:.3g} {unit}"
