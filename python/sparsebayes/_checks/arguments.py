"""Checks of scalar arguments. Does not import scikit-learn."""

from __future__ import annotations

import math
import numbers
import os
import reprlib
import sys
from collections.abc import Sequence
from typing import Any, Final, get_args

import numpy as np

from .._types import Likelihood, Scheme, Search, Settings

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


def check_row_likelihood(value: object) -> Likelihood:
    """Return the likelihood of a provider."""
    known = [name for name in get_args(Likelihood) if name != "multinomial"]
    likelihood: Likelihood = check_choice("likelihood", value, known)
    return likelihood


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


def check_reporting(estimator: Any) -> None:
    """Check ``callback`` and ``verbose``."""
    callback = estimator.callback
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be None or a callable taking a StepRecord, got {callback!r}")
    if not isinstance(estimator.verbose, bool):
        check_integer("verbose", estimator.verbose, least=0)


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
    )


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


def is_learned(gamma: object) -> bool:
    """Tell whether ``gamma`` means that widths are learned."""
    return isinstance(gamma, str) and gamma in ("learn", "ard")


def learning_argument(estimator: Any) -> str:
    """Return the argument of ``estimator`` that turns kernel learning on, "" if none does."""
    optimize_kernel = getattr(estimator, "optimize_kernel", False)
    if not isinstance(optimize_kernel, (bool, np.bool_)):
        raise TypeError(f"optimize_kernel must be True or False, got {optimize_kernel!r}")
    gamma = getattr(estimator, "gamma", None)
    if is_learned(gamma):
        return f"gamma={gamma!r}"
    return "optimize_kernel=True" if optimize_kernel else ""
