"""The only place where arrays from outside are checked and coerced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._types import FloatArray, IntArray
from .numbers import PLAIN, as_float64, naming_column, refuse_mask


@dataclass(frozen=True)
class KnownNoise:
    """Known standard deviations of targets, up to a common factor, as weights that add up to the rows.

    With counts c_n and targets of variance sigma^2 s_n^2 the weights are c_n v_n, v_n = ``variance`` / s_n^2,
    where ``variance`` is such that their sum is that of c_n. The noise precision of a row of weight 1 is then
    1 / (sigma^2 ``variance``), and all that counts rows by the sum of weights is right as it stands. The log
    evidence of rows that count w_n lacks sum_n c_n ln(v_n) / 2.
    """

    #: What each row counts; None: once.
    counts: FloatArray | None
    #: Mean of s_n^2, the harmonic one: what a row of weight 1 has.
    variance: float
    #: What the log evidence lacks.
    log_evidence: float


@dataclass(frozen=True)
class Training:
    """Checked training data, without the rows that weigh nothing."""

    #: N x d, float64, C order.
    X: FloatArray
    #: Length N: floats for regression (N x C with several outputs), labels as given for classification.
    y: NDArray[Any]
    #: Length N and positive, or None where every row counts once.
    weights: FloatArray | None
    #: Where each row was in the data given, ascending.
    rows: IntArray
    #: Rows in the data given.
    n_samples: int
    #: What `weights` are made of where standard deviations of the targets are known.
    noise: KnownNoise | None = None

    @property
    def counts(self) -> FloatArray | None:
        """What each row counts, whatever its noise; None: once."""
        return self.weights if self.noise is None else self.noise.counts

    def at(self, rows: IntArray) -> FloatArray:
        """Return these rows of X, counted as in the data given."""
        values: FloatArray = self.X[np.searchsorted(self.rows, rows)]
        return values


def check_training(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    *,
    labels: bool,
    reset: bool = True,
    outputs: bool = False,
    unread: bool = False,
    y_std: ArrayLike | None = None,
) -> Training:
    """Check training data: numbers, finite, shapes that agree, weights that make sense.

    ``labels``: y holds class labels. ``reset``: remember the features of X in ``estimator``; else compare
    with them. ``outputs``: y may have several columns. ``unread``: X need not be read where nothing else is
    to be found out; whoever takes it sees what is not finite, and asks `check_X` what to say.
    """
    # Rows that weigh nothing are left out below, and have to be numbers all the same.
    values = check_X(estimator, X, reset=reset, unread=unread and sample_weight is None)
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    with naming("y"):
        target = _check_target(y, labels=labels, outputs=outputs)
    n = len(values)
    if len(target) != n:
        raise ValueError(f"X and y must have the same number of rows, got {n} and {len(target)}")
    weights = check_weights(sample_weight, n)
    rows = np.arange(n) if weights is None else np.flatnonzero(weights)
    if len(rows) < n and weights is not None:
        values, target, weights = values[rows], target[rows], weights[rows]
    if weights is not None and (weights == 1.0).all():
        weights = None
    if y_std is None:
        return Training(values, target, weights, rows, n)
    if target.ndim == 2:
        raise ValueError("y_std must be None where y has several columns; fit each column with its own")
    known, weights = _known_noise(check_y_std(y_std, n)[rows], weights)
    return Training(values, target, weights, rows, n, known)


def check_y_std(y_std: ArrayLike, n_samples: int) -> FloatArray:
    """Check standard deviations of targets: one per row (or one for all), positive and finite."""
    with naming("y_std"):
        refuse_mask("y_std", y_std)
        given = np.full(n_samples, y_std) if isinstance(y_std, Number) else y_std
        stds = as_float64("y_std", check_array(given, dtype="numeric", ensure_2d=False, input_name="y_std"))
        if stds.shape != (n_samples,):
            raise ValueError(f"y_std must have the shape ({n_samples},), one per row, got {stds.shape}")
        if not (stds > 0.0).all():
            raise ValueError(
                f"y_std must be positive, got {stds.min():g}; give a target that is known exactly a small "
                "one, and leave rows out by sample_weight=0"
            )
        if not (1e-100 <= stds.min() <= stds.max() <= 1e100):
            raise ValueError(
                f"y_std must lie between 1e-100 and 1e100, got {stds.min():g} to {stds.max():g}; rescale y "
                "and y_std"
            )
        return stds


def _known_noise(stds: FloatArray, counts: FloatArray | None) -> tuple[KnownNoise, FloatArray | None]:
    """Return what is known of the noise, and the weights of the rows; None where all are 1."""
    c = np.ones(len(stds)) if counts is None else counts
    least = float(stds.min())
    precisions = (least / stds) ** 2
    factor = float(c.sum() / (c @ precisions))
    variance = least**2 * factor
    if precisions.min() < 1e-200:
        raise ValueError(
            f"y_std must lie within a factor of 1e100, got {least:g} to {stds.max():g}; leave rows out by "
            "sample_weight=0"
        )
    precisions *= factor
    known = KnownNoise(counts, variance, 0.5 * float(c @ np.log(precisions)))
    return known, None if counts is None and (precisions == 1.0).all() else c * precisions


def _check_target(y: ArrayLike, *, labels: bool, outputs: bool) -> NDArray[Any]:
    """Check y alone: labels as they are, or finite numbers as float64."""
    if not labels and _is_checked(y, 1):
        return y.copy()
    refuse_mask("y", y)
    target = _columns(y) if outputs else column_or_1d(y, warn=True)
    if not labels:
        with naming_column("y", y):
            target = check_array(target, dtype="numeric", ensure_2d=False, input_name="y")
            return as_float64("y", target).copy(order="C")
    assert_all_finite(target, input_name="y")
    if not _are_few_integers(target):
        check_classification_targets(target)
    return target


def learn_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the classes there are, sorted; ValueError if there is but one."""
    with naming("y"):
        classes = np.unique(labels)
    if len(classes) == 0:
        raise ValueError("classes: there are none; a classifier needs at least two")
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes.tolist()[0]!r} (rows of zero weight do not count); a "
            f"classifier "
            "needs at least two"
        )
    return classes


def distinct_rows(training: Training) -> IntArray:
    """Return the first of each set of equal rows of X, as in the data given, ascending."""
    first = first_of_equal(training.X)
    return training.rows if len(first) == len(training.rows) else training.rows[first]


def first_of_equal(X: FloatArray) -> IntArray:
    """Return the first of each set of equal rows, ascending."""
    # Whole rows take long to sort, and where the first column has no value twice no row is there twice.
    column = np.sort(X[:, 0])
    if (column[1:] != column[:-1]).all():
        return np.arange(len(X))
    first: IntArray = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return first


def _columns(y: ArrayLike) -> NDArray[Any]:
    """Return y with two dimensions if it has several columns, else with one."""
    given = np.asarray(y)
    shape = given.shape
    if len(shape) == 2 and shape[1] > 1:
        return given
    if len(shape) > 2 or shape[1:] == (0,):
        raise ValueError(
            f"y must have the shape (n_samples,) or (n_samples, n_outputs), got an array of shape {shape}"
        )
    values: NDArray[Any] = column_or_1d(y, warn=True)
    return values


def _are_few_integers(labels: NDArray[Any]) -> bool:
    """Tell whether scikit-learn, which takes its time to find out, has nothing to say of these labels."""
    if labels.dtype.kind not in "iu" or len(labels) == 0:
        return False
    # It warns where classes outnumber half of the rows.
    return int(labels.max()) - int(labels.min()) < len(labels) // 2


def check_X(estimator: Any, X: ArrayLike, *, reset: bool, unread: bool = False) -> FloatArray:
    """Check X and return it as finite float64 in C order; a view where it already is that.

    ``unread``: see `check_training`.
    """
    with naming("X"):
        refuse_mask("X", X)
        if _is_checked(X, 2, unread=unread):
            if reset:
                # What scikit-learn does too, after a search for names of columns that takes longer than the
                # rest of these checks; an array has none.
                estimator.__dict__.pop("feature_names_in_", None)
                estimator.n_features_in_ = X.shape[1]
                return X
            checked: FloatArray = validate_data(estimator, X, reset=False, skip_check_array=True)
            return checked
        with naming_column("X", X):
            values = validate_data(estimator, X, reset=reset, dtype="numeric", order="C")
            return check_finite("X", values, PLAIN)


def check_finite(name: str, values: NDArray[Any], requirements: Any = ()) -> FloatArray:
    """Return what scikit-learn has checked as float64, and check what it has not: objects of a table."""
    numbers = as_float64(name, values, requirements)
    if values.dtype == object:
        assert_all_finite(numbers, input_name=name)
    return numbers


def _is_checked(values: ArrayLike, ndim: int, *, unread: bool = False) -> TypeGuard[FloatArray]:
    """Tell whether these are what checks would return; of a few rows they take longer than to look.

    ``unread``: but for what is not finite.
    """
    if type(values) is not np.ndarray or values.dtype != np.float64:
        return False
    if values.ndim != ndim or values.size == 0:
        return False
    is_plain = values.flags.c_contiguous and values.flags.aligned
    return is_plain and (unread or bool(np.isfinite(values.sum())))


def check_sizes(X: FloatArray) -> None:
    """Refuse columns that are there but too small to square: no fit would see them."""
    least, few = 1e-140, 8
    # As a rule a few rows tell, and the others need not be read.
    for rows in (X[:few], X):
        sizes = np.maximum(rows.max(axis=0), -rows.min(axis=0))
        if (sizes >= least).all():
            return
    if (faint := np.flatnonzero((sizes > 0) & (sizes < least))).size:
        raise ValueError(
            f"X holds nothing beyond {sizes[faint[0]]:g} in column {faint[0]}, too small to square; rescale "
            f"X to values beyond {least:g}"
        )


def check_chunk(name: str, values: ArrayLike, n_columns: int) -> FloatArray:
    """Check rows of a design, maybe none; return them as finite float64 in C or Fortran order."""
    with naming(name):
        refuse_mask(name, values)
        with naming_column(name, values):
            rows = check_array(values, dtype="numeric", ensure_min_samples=0, input_name=name)
            rows = check_finite(name, rows, ("ALIGNED", "ENSUREARRAY"))
        if rows.shape[1] != n_columns:
            raise ValueError(f"{name} must have {n_columns} columns, one per function; got {rows.shape[1]}")
        return rows if rows.flags.forc else np.ascontiguousarray(rows)


def check_chunk_targets(
    name: str, target: ArrayLike, sample_weight: ArrayLike | None, n_rows: int
) -> tuple[FloatArray, FloatArray | None]:
    """Check targets and weights of some rows, of which none need count."""
    if target is None:
        raise ValueError(f"{name} must hold a target for each of {n_rows} rows, got None")
    with naming(name):
        refuse_mask(name, target)
        shape = np.shape(target)
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"{name} must have one column, got an array of shape {shape}; take each column on its own"
            )
        values = column_or_1d(target, warn=True)
        values = check_array(values, dtype="numeric", ensure_2d=False, ensure_min_samples=0, input_name=name)
        numbers = as_float64(name, values, PLAIN)
        if len(numbers) != n_rows:
            raise ValueError(f"{name} must hold a target for each of {n_rows} rows, got {len(numbers)}")
    return numbers, check_weights(sample_weight, n_rows, may_vanish=True)


def check_weights(
    sample_weight: ArrayLike | None, n_samples: int, *, may_vanish: bool = False
) -> FloatArray | None:
    """Check sample weights: one per row (or one for all), finite, none negative, not all zero."""
    if sample_weight is None:
        return None
    with naming("sample_weight"):
        refuse_mask("sample_weight", sample_weight)
        given = np.full(n_samples, sample_weight) if isinstance(sample_weight, Number) else sample_weight
        weights = check_array(
            given,
            dtype="numeric",
            ensure_2d=False,
            ensure_min_samples=0 if may_vanish else 1,
            input_name="sample_weight",
        )
        weights = as_float64("sample_weight", weights, PLAIN)
        if weights.shape != (n_samples,):
            raise ValueError(
                f"sample_weight must have the shape ({n_samples},), one per row, got {weights.shape}"
            )
        if (weights < 0).any():
            raise ValueError("sample_weight must not be negative; weight 0 leaves a row out")
        if not may_vanish and not weights.any():
            # The words in parentheses are scikit-learn's.
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        return weights


def check_columns(name: str, values: ArrayLike, n_rows: int, n_columns: int | None = None) -> FloatArray:
    """Check columns of numbers: finite, ``n_rows`` of them, and as many columns as the fit had."""
    with naming(name):
        refuse_mask(name, values)
        with naming_column(name, values):
            columns = check_array(values, dtype="numeric", order="C", ensure_min_samples=0, input_name=name)
            columns = check_finite(name, columns, PLAIN)
        if len(columns) != n_rows:
            raise ValueError(f"{name} must have a row for each row of X, {n_rows}; got {len(columns)}")
        if n_columns is not None and columns.shape[1] != n_columns:
            raise ValueError(f"{name} must have {n_columns} columns, as in fit; got {columns.shape[1]}")
        return columns


def check_square(training: Training) -> None:
    """Check that precomputed training values have a column for each row."""
    shape = (training.n_samples, training.X.shape[1])
    if shape[0] != shape[1]:
        raise ValueError(
            "X must be square for kernel='precomputed', one row and one column per training sample, "
            f"got shape {shape}"
        )


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """See to it that a complaint about ``argument`` says so."""
    try:
        # Sums that overflow on the way to a verdict are no news.
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(error, (OverflowError, UnicodeError)) and re.search(rf"\b{argument}\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{argument}: {error}") from error


def last_step(est: Any, X: Any = None) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline, and X as it receives it; any other estimator as it is."""
    while hasattr(est, "steps"):
        check_is_fitted(est)
        steps, est = est[:-1], est[-1]
        if X is not None and len(steps) > 0:
            X = steps.transform(X)
    return est, X
