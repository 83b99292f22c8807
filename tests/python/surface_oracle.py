"""The allowed results of a call: finite numbers, or an error that names the argument."""

import re
import signal
import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.utils._param_validation import InvalidParameterError

from sparsebayes import NumericalError, OverfitWarning
from surface_strategies import Ours

#: Without subclasses: UnicodeEncodeError and LinAlgError are ValueErrors that are raised by accident.
ERRORS = (TypeError, ValueError, NotFittedError, NumericalError, MemoryError)
#: Words by which scikit-learn refers to training data instead of naming X and y.
WORDS = (
    "array-like classes draws estimator feature file fitted functions labels rows sample statistics target"
).split()
STATUSES = {"converged", "noise_floor", "alpha_floor", "max_iter", "stopped", "stalled", "empty"}
#: Processor seconds after which a call counts as hung.
_PATIENCE = 60.0


def STRICT(warnings):
    pass


class Hung(BaseException):
    """Raised in a call that takes too much processor time."""


@contextmanager
def patience():
    """Raise `Hung` after a minute of processor time."""

    def ring(*_):
        raise Hung

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


class Outcome:
    """The value, error and warnings of a call."""

    def __init__(self):
        self.value, self.error, self.said = None, None, []

    @property
    def failed(self):
        return self.error is not None


def attempt(call, names, allowed=()):
    """Call, and check that an error has an allowed type and names one of ``names``.

    Errors of the types ``allowed`` may have any message.
    """
    found = Outcome()
    with warnings.catch_warnings(record=True) as said, patience():
        warnings.simplefilter("always")
        STRICT(warnings)
        try:
            found.value = call()
        except Ours as error:
            found.error = error
        except Exception as error:
            found.error = error
            assert_is_a_reason(error, names, allowed)
    found.said = [(warning.category, str(warning.message)) for warning in said]
    if Warning not in allowed:
        assert_are_fair(found.said)
    return found


def assert_is_a_reason(error, names, allowed=()):
    """Fail unless the type of the error is documented and its message names a cause."""
    if isinstance(error, allowed):
        return
    message = str(error)
    if isinstance(error, NumericalError) and len(message) > 20:
        return
    named = any(
        re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", message, re.IGNORECASE) for name in names
    )
    known = any(word in message for word in WORDS)
    kind = ValueError if isinstance(error, InvalidParameterError) else type(error)  # theirs
    if kind not in ERRORS or len(message) < 12 or not (named or known):
        raise AssertionError(f"no clear reason: {type(error).__name__}: {message}") from error


def assert_are_fair(said):
    """Check that warnings are about fits that did not converge, or the shape of y."""
    for category, message in said:
        if issubclass(category, UserWarning) and re.search(
            "feature names|least populated|very different standard deviations",
            message,
        ):
            continue
        if issubclass(category, FutureWarning) and "labels represented as bytes" in message:
            # scikit-learn before 1.7.
            continue
        assert issubclass(category, (ConvergenceWarning, DataConversionWarning)), (category, message)


def attributes(est):
    """Return all fitted numbers by name."""
    found = {}
    for name, value in sorted(vars(est).items()):
        if name.endswith("_") and not name.startswith("_"):
            parts = value if isinstance(value, (list, tuple)) else [value]
            if all(isinstance(part, (np.ndarray, float, int)) for part in parts):
                found[name] = [np.asarray(part) for part in parts]
    return found


def same_bits(one, other):
    """Return whether two models have the same attributes, bit for bit."""
    a, b = attributes(one), attributes(other)
    return a.keys() == b.keys() and all(
        len(a[name]) == len(b[name])
        and all(
            x.tobytes() == y.tobytes() if name != "classes_" else np.array_equal(x, y)
            for x, y in zip(a[name], b[name], strict=True)
        )
        for name in a
        if not any(part.dtype == object for part in a[name])
    )


def assert_is_a_model(est, said):
    """Check that fitted numbers are finite and that the status has its warning."""
    assert est.status_ in STATUSES, est.status_
    endings = [category for category, _ in said if issubclass(category, ConvergenceWarning)]
    if est.status_ in ("converged", "stopped"):
        assert endings in ([], [OverfitWarning]), (est.status_, said)
    else:
        assert len(endings) == 1, (est.status_, said)
    for name, parts in attributes(est).items():
        for part in parts:
            if part.dtype.kind != "f" or name == "classes_":
                continue
            # The precision of a function that is not in the fit of a class is infinite.
            several = part.ndim == 2 or hasattr(est, "eigenvalues_")
            fine = np.isfinite(part) | (np.isposinf(part) if name == "alpha_" and several else False)
            assert np.all(fine), (est.status_, name, part)


def assert_finite(values):
    """Check that predicted numbers are finite."""
    for part in values if isinstance(values, tuple) else [values]:
        part = np.asarray(part)
        if part.dtype.kind == "f":
            assert np.isfinite(part).all(), part
