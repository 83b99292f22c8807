"""Checks and conversion of the arrays that users pass."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._checks import PLAIN, as_float64, as_numpy, check_real, is_missing, naming_column, refuse_mask
from ._types import FloatArray, IntArray, PerRow

#: Share of rows that repeat others above which they are reported.
_MAX_COPIES: Final = 0.05
#: Relative difference of products of a linear operator that single precision explains.
_SAME_PRODUCT: Final = 1e-4
#: Least size of the largest number of a column: squares do not underflow.
SMALLEST: Final = 1e-140
#: What to give instead of a sparse X, in error messages.
TO_TABLE: Final = "X.toarray(), for a data frame X.sparse.to_dense()"


@dataclass(frozen=True)
class KnownNoise:
    """Known standard deviations of targets, up to a common factor, as weights.

    Targets with counts c_n and variance sigma^2 s_n^2 have the weights c_n v_n, v_n = ``variance`` / s_n^2.
    """

    #: c_n; None: all 1.
    counts: FloatArray | None
    #: Harmonic mean of s_n^2, so that the sum of the weights is the number of rows.
    variance: float
    #: sum_n c_n ln(v_n) / 2, which the log evidence computed with these weights lacks.
    log_evidence: float


@dataclass(frozen=True)
class Training:
    """Checked training data, without the rows of zero weight."""

    #: N x d, float64, C order; or a sparse matrix of compressed rows, or a linear operator.
    X: Any
    #: Length N: floats for regression (N x C with several outputs), labels as given for classification.
    y: NDArray[Any]
    #: Length N and positive, or None if every row counts once.
    weights: FloatArray | None
    #: Number of each row in the given data, ascending.
    rows: IntArray
    #: Number of rows of the given data.
    n_samples: int
    #: How `weights` were computed from standard deviations of the targets, if these are known.
    noise: KnownNoise | None = None
    #: Exposures of counts; None: all 1.
    exposure: FloatArray | None = None

    @property
    def counts(self) -> FloatArray | None:
        """The sample weights without the known noise; None: all 1."""
        return self.weights if self.noise is None else self.noise.counts

    @property
    def row_counts(self) -> FloatArray:
        """How often each row counts."""
        return np.ones(len(self.y)) if self.counts is None else self.counts

    @property
    def weight(self) -> float:
        """The sum of the weights."""
        return float(len(self.y) if self.weights is None else self.weights.sum())

    @property
    def exposures(self) -> FloatArray:
        """The exposure of each row."""
        return np.ones(len(self.y)) if self.exposure is None else self.exposure

    def at(self, rows: IntArray) -> FloatArray:
        """Return these rows of X, numbered as in the given data."""
        found: FloatArray = self.X[np.searchsorted(self.rows, rows)]
        return found


def check_training(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: PerRow,
    y_std: PerRow = None,
    exposure: PerRow = None,
    *,
    reset: bool = True,
) -> Training:
    """Check training data: finite numbers, shapes that agree, valid weights.

    ``reset``: store the features of X in ``estimator``; else compare with them.
    """
    # Rows of zero weight are dropped below, but must hold numbers too.
    values = check_X(estimator, X, reset=reset)
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    with naming("y"):
        outputs = hasattr(estimator, "shared_noise")
        target = _check_target(y, labels=estimator._labels, outputs=outputs)
    n = values.shape[0]
    if len(target) != n:
        raise ValueError(f"X and y must have the same number of rows, got {n} and {len(target)}")
    weights = check_weights(sample_weight, n)
    rows = np.arange(n) if weights is None else np.flatnonzero(weights)
    if len(rows) < n and weights is not None:
        values, target, weights = _rows_of(values, rows), target[rows], weights[rows]
    if (given := getattr(estimator, "class_weight", None)) is not None:
        weights = np.ones(len(target)) if weights is None else weights
        weights = weights * class_factors(given, learn_classes(target), target, weights)
    if weights is not None and (weights == 1.0).all():
        weights = None
    known = None
    if y_std is not None:
        if target.ndim == 2:
            raise ValueError("y_std must be None where y has several columns; fit each column with its own")
        known, weights = known_noise(check_y_std(y_std, n, rows), weights)
    exposures = None if exposure is None else check_exposure(exposure, n, rows)
    return Training(values, target, weights, rows, n, known, exposures)


def check_exposure(exposure: ArrayLike, n_samples: int, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Return the exposures of these rows, given one per row (or one for all): positive and finite."""
    with naming("exposure"):
        exposures = _one_per_row("exposure", exposure, n_samples)[rows]
        if not 1e-100 <= exposures.min() <= exposures.max() <= 1e100:
            raise ValueError(
                f"exposure must be positive, from 1e-100 to 1e100, got {exposures.min():g} to "
                f"{exposures.max():g}{_how_to_leave_out(rows)}"
            )
        return exposures


def check_y_std(y_std: ArrayLike, n_samples: int, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Return the standard deviations of these rows' targets, given one per row (or one for all): positive."""
    with naming("y_std"):
        stds, remedy = _one_per_row("y_std", y_std, n_samples)[rows], _how_to_leave_out(rows)
        if not 1e-50 <= stds.min() <= stds.max() <= 1e50:
            raise ValueError(
                f"y_std must be positive, from 1e-50 to 1e50, got {stds.min():g} to {stds.max():g}; "
                f"{'rescale y and y_std' if remedy else 'leave it out for typical rows'}{remedy}"
            )
        return stds


def _how_to_leave_out(rows: IntArray | slice) -> str:
    """Return a remedy for where ``rows`` are those of positive weight: predictions have no weights."""
    return "" if isinstance(rows, slice) else "; rows of sample_weight=0 are left out"


def _one_per_row(name: str, values: ArrayLike, n_samples: int, *, least: int = 1) -> FloatArray:
    """Return numbers, one per row (or one for all), as float64; ``least``: the smallest number of rows."""
    if isinstance(values, str):
        raise TypeError(
            f"{name} must hold numbers, one per row; got {values!r}: give the column, not its name"
        )
    given = np.full(n_samples, values) if isinstance(values, Number) else values
    numbers = _numbers(name, given, least)
    if numbers.shape != (n_samples,):
        raise ValueError(f"{name} must have the shape ({n_samples},), one per row, got {numbers.shape}")
    return numbers


def _numbers(name: str, values: ArrayLike, least: int = 1) -> FloatArray:
    """Return finite numbers as float64 in C order; ``least``: the smallest number of rows."""
    values = as_numpy(name, values)
    with naming_column(name, values):
        found = check_array(
            values, dtype="numeric", ensure_2d=False, ensure_min_samples=least, input_name=name
        )
        return as_float64(name, found, PLAIN)


def known_noise(stds: FloatArray, counts: FloatArray | None) -> tuple[KnownNoise, FloatArray | None]:
    """Return the known noise, and the weights of the rows; None if all are 1."""
    c = np.ones(len(stds)) if counts is None else counts
    precisions = (stds.min() / stds) ** 2
    factor = float(c.sum() / (c @ precisions))
    precisions *= factor
    known = KnownNoise(counts, float(stds.min()) ** 2 * factor, 0.5 * float(c @ np.log(precisions)))
    return known, None if counts is None and (precisions == 1.0).all() else c * precisions


def _check_target(y: ArrayLike, *, labels: bool, outputs: bool) -> NDArray[Any]:
    """Check y: labels as given, or finite numbers as float64."""
    if labels:
        return check_labels(y)
    if _is_checked(y, 1):
        return y.copy()
    target = _columns("y", y, several=outputs)
    with naming_column("y", y):
        return _numbers("y", target).copy()


def check_labels(y: ArrayLike) -> NDArray[Any]:
    """Check labels of classes, one per row and maybe of no rows, and return them as given."""
    target = _columns("y", y, several=False)
    kind = target.dtype.kind
    if kind in "OMmT":
        if missing := [row for row, label in enumerate(target) if is_missing(label)]:
            raise ValueError(
                f"y must have a label in each row, got {target[missing[0]]} in row {missing[0]} "
                f"({len(missing)} of {len(target)} rows); leave such rows out"
            )
    else:
        with naming_column("y", target):
            assert_all_finite(target, input_name="y")
    # NumPy's StringDType and objects that are not text, which scikit-learn cannot check.
    if kind == "T" or (kind == "O" and len(target) > 0 and not isinstance(target[0], str)):
        # The first words are required by scikit-learn's checks.
        raise ValueError(
            f"Unknown label type: y is an array of dtype {target.dtype}, with {reprlib.repr(target[0])} in "
            "row 0; give y.astype(bool), y.astype(int) or y.astype(str)"
        )
    # The check is slow, and warns if there are more classes than half of the rows.
    if len(target) > 0 and not (kind in "iu" and int(target.max()) - int(target.min()) < len(target) // 2):
        check_classification_targets(target)
    return target


def learn_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct classes, sorted; ValueError if there are less than two."""
    with naming("y"):
        classes = np.unique(labels)
    if len(classes) == 0:
        raise ValueError("classes: there are none; a classifier needs at least two")
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes.tolist()[0]!r} (rows of zero weight do not count); a "
            "classifier needs at least two"
        )
    return classes


def are_known(labels: ArrayLike, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which labels are among the classes; errors of labels that cannot be compared name y."""
    labels = np.asarray(labels)
    is_text, is_object = ({part.dtype.kind in kinds for part in (labels, classes)} for kinds in ("US", "O"))
    with naming("y"):
        if True in is_object or len(is_text) > 1:  # which not every NumPy compares without a warning
            known = set(classes.tolist())
            found = [label in known for label in labels.ravel().tolist()]
            return np.array(found, dtype=bool).reshape(labels.shape)
        return np.isin(labels, classes)


def class_factors(
    given: object, classes: NDArray[Any], labels: NDArray[Any], weights: FloatArray
) -> FloatArray:
    """Return the factor of the weight of each row that ``class_weight`` is for its class."""
    at, known = np.searchsorted(classes, labels), classes.tolist()
    if isinstance(given, str) and given == "balanced":
        sums = np.bincount(at, weights)
        factors: FloatArray = sums.sum() / len(classes) / sums
    elif isinstance(given, Mapping):
        unknown = [label for label in given if label not in known]
        if unknown and not set(known) <= set(given):  # as scikit-learn
            raise ValueError(
                f"class_weight has a weight for {unknown[0]!r}, which is no label of y; labels are {known}"
            )
        remedy = "; give rows to be left out sample_weight=0"
        checked = [check_real("class_weight", given.get(c, 1), positive=True, remedy=remedy) for c in known]
        factors = np.array(checked)
    else:
        kind = ValueError if isinstance(given, str) else TypeError
        raise kind(
            "class_weight must be None, 'balanced', or a dict such as {0: 1.0, 1: 5.0} from labels to "
            f"weights, got {given!r}"
        )
    return factors[at]


def distinct_rows(training: Training) -> IntArray:
    """Return the first of each set of equal rows of X, numbered as in the data, ascending."""
    first = first_of_equal(training.X)
    return training.rows if len(first) == len(training.rows) else training.rows[first]


def first_of_equal(X: FloatArray) -> IntArray:
    """Return the first of each set of equal rows, ascending."""
    # Sorting whole rows is slow; without equal values in the first column no rows are equal.
    column = np.sort(X[:, 0])
    if (column[1:] != column[:-1]).all():
        return np.arange(len(X))
    return np.sort(np.unique(X, axis=0, return_index=True)[1])


def equal_rows(X: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the first of each set of equal rows, ascending, and for each row the number of its set."""
    if len(first := first_of_equal(X)) == len(X):
        return first, first
    _, at, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    return first, np.searchsorted(first, at)[inverse.ravel()]


def about_copies(X: FloatArray, y: NDArray[Any]) -> str:
    """Return a sentence about rows that repeat others exactly, "" if there are few."""
    codes = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1].reshape(y.shape)
    n_copies = len(X) - len(first_of_equal(np.column_stack([X, codes])))
    if n_copies <= _MAX_COPIES * len(X):
        return ""
    return (
        f"{n_copies} of {len(X)} rows repeat others exactly: if they are copies, remove them, as a fit takes "
        "each row for new evidence"
    )


def _columns(name: str, y: ArrayLike, *, several: bool) -> NDArray[Any]:
    """Return y with one dimension, or with two if it has several columns."""
    if isinstance(y, str):
        raise TypeError(f"{name} must hold a target for each row; got {y!r}: give the column, not its name")
    refuse_mask(name, y)
    y = as_numpy(name, y)
    given = np.asarray(y)
    shape = given.shape
    if several and len(shape) == 2 and shape[1] > 1:
        return given
    if len(shape) > 1 and shape[1:] != (1,):
        kind = "the shape (n_samples,) or (n_samples, n_outputs)" if several else "one column"
        raise ValueError(f"{name} must have {kind}, got an array of shape {shape}; fit columns one by one")
    values: NDArray[Any] = column_or_1d(y, warn=True)
    return values


def publish_features(est: Any, n_features: int, names: NDArray[Any] | None = None) -> None:
    """Publish number and names of the columns."""
    est.n_features_in_ = n_features
    est.__dict__.pop("feature_names_in_", None)
    if names is not None:
        est.feature_names_in_ = names


def check_X(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check X and return it as finite float64 in C order; a view where it already is that.

    Of an estimator of columns X may be a sparse matrix or a linear operator, which it stays.
    """
    if is_sparse_frame(X) and any(kind.fill_value != 0 for kind in X.dtypes):
        X = X.sparse.to_dense()  # a sparse matrix leaves out nothing but 0
    if is_unstored(X):
        return _check_unstored(estimator, X, reset=reset)
    X = as_numpy("X", X)
    with naming("X"):
        if _is_checked(X, 2):
            if reset:
                # As `validate_data`, without its slow search for column names, which an array lacks.
                publish_features(estimator, X.shape[1])
                return X
            checked: FloatArray = validate_data(estimator, X, reset=False, skip_check_array=True)
            return checked
        with naming_column("X", X):
            values = validate_data(estimator, X, reset=reset, dtype="numeric", order="C")
            return check_finite("X", values, PLAIN)


def is_operator(X: Any) -> bool:
    """Tell whether X is a `scipy.sparse.linalg.LinearOperator`."""
    return hasattr(X, "rmatvec") and hasattr(X, "matmat")


def is_unstored(X: Any) -> bool:
    """Tell whether X is a sparse matrix, a data frame of sparse columns alone, or a linear operator."""
    return sparse.issparse(X) or is_operator(X) or is_sparse_frame(X)


def is_sparse_frame(X: Any) -> bool:
    """Tell whether X is a data frame of pandas of sparse columns alone, which scikit-learn converts."""
    return hasattr(X, "dtypes") and np.ndim(X) == 2 and hasattr(getattr(X, "sparse", None), "to_coo")


def _check_unstored(est: Any, X: Any, *, reset: bool) -> Any:
    """Check X and return it as a float64 matrix of compressed rows, or the operator."""
    if hasattr(est, "kernel"):
        raise TypeError(
            f"X is a sparse matrix or a linear operator, but kernels need rows: give {TO_TABLE}, or take "
            "SparseBayesRegressor or SparseBayesClassifier, whose basis functions are the columns of X"
        )
    if not is_operator(X):
        with naming("X"):
            return validate_data(est, X, reset=reset, accept_sparse="csr", dtype=np.float64)
    if len(X.shape) != 2 or 0 in X.shape or np.dtype(X.dtype or float).kind not in "fiub":
        raise ValueError(f"X must be a real linear operator with rows and columns, got {X!r}")
    if reset:
        publish_features(est, X.shape[1])
    elif X.shape[1] != est.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} columns, but {type(est).__name__} was fitted with {est.n_features_in_}"
        )
    return _with_products(X, transposed=reset)


def _with_products(X: Any, *, transposed: bool) -> Any:
    """Return an operator whose products with columns are those with vectors: X itself if it is one.

    ``transposed``: also for products with the transpose, which fits need.
    """
    rng = np.random.default_rng(4711)  # a seed that few operators have
    U, V = (rng.normal(size=(length, 2)) for length in X.shape)
    forward, is_same = _products(X.matvec, X.matmat, V)
    if transposed:
        try:
            back, is_same_back = _products(X.rmatvec, X.rmatmat, U)
        except NotImplementedError:
            raise ValueError("X must be an operator with rmatvec, products with its transpose") from None
        one, other, is_same = np.sum(U * forward), np.sum(back * V), is_same and is_same_back
        if abs(one - other) > _SAME_PRODUCT * (np.abs(U * forward).sum() + np.abs(back * V).sum()):
            raise ValueError(
                "X.rmatvec must give products with the transpose of X: for random u and v, u @ X.matvec(v) "
                f"is {one:.6g}, but v @ X.rmatvec(u) is {other:.6g}"
            )
    if is_same:
        return X
    from scipy.sparse.linalg import LinearOperator  # slow, and loaded by who has an operator

    def matvec(v: FloatArray) -> FloatArray:
        return np.array(X.matvec(v.flatten()))

    def rmatvec(u: FloatArray) -> FloatArray:
        return np.array(X.rmatvec(u.flatten()))

    return LinearOperator(X.shape, matvec, rmatvec, dtype=X.dtype)


def _products(of_vector: Any, of_columns: Any, V: FloatArray) -> tuple[FloatArray, bool]:
    """Return the products with columns one by one, and whether those with all of them are the same."""
    # Copies, as an operator may change its argument, or use the array of its result again.
    with naming("X"):
        each = np.column_stack([np.array(of_vector(v.copy())) for v in V.T])
    try:
        difference = np.abs(of_columns(V.copy()) - each).max()
    except Exception:
        return each, False
    return each, not difference > _SAME_PRODUCT * np.abs(each).max()


def _rows_of(X: Any, rows: IntArray) -> Any:
    """Return these rows of a table, a sparse matrix or a linear operator."""
    if not is_operator(X):
        return X[rows]
    from scipy.sparse.linalg import LinearOperator  # slow, and loaded by who has an operator

    def spread(values: FloatArray) -> FloatArray:
        whole = np.zeros((X.shape[0], *values.shape[1:]))
        whole[rows] = values
        return whole

    return LinearOperator(
        (len(rows), X.shape[1]),
        matvec=lambda w: X.matvec(w)[rows],
        rmatvec=lambda r: X.rmatvec(spread(r)),
        matmat=lambda w: X.matmat(w)[rows],
        rmatmat=lambda r: X.rmatmat(spread(r)),
        dtype=X.dtype,
    )


def check_finite(name: str, values: NDArray[Any], requirements: Any = ()) -> FloatArray:
    """Return values checked by scikit-learn as float64; check objects, such as decimals, here."""
    numbers = as_float64(name, values, requirements)
    if values.dtype == object:
        assert_all_finite(numbers, input_name=name)
    return numbers


def _is_checked(values: ArrayLike, ndim: int) -> TypeGuard[FloatArray]:
    """Tell whether the checks would return these values unchanged; they are slow for few rows."""
    if type(values) is not np.ndarray or values.dtype != np.float64:
        return False
    if values.ndim != ndim or values.size == 0:
        return False
    is_plain = values.flags.c_contiguous and values.flags.aligned
    return is_plain and bool(np.isfinite(values.sum()))


def check_sizes(X: FloatArray) -> None:
    """Raise ValueError for columns that are not zero but whose squares underflow."""
    # For most X a few rows suffice.
    if not (np.abs(X[:8]).max(axis=0) >= SMALLEST).all():
        refuse_faint(np.maximum(X.max(axis=0), -X.min(axis=0)), np.arange(X.shape[1]))


def refuse_faint(sizes: FloatArray, columns: IntArray, smallest: float = SMALLEST) -> None:
    """Raise ValueError if the largest size of a number in one of these columns is too small, but not 0."""
    if (faint := np.flatnonzero((sizes > 0) & (sizes < smallest))).size:
        raise ValueError(
            f"X has no larger value than {sizes[faint[0]]:g} in column {columns[faint[0]]}, too small to "
            f"square; rescale X to values above {smallest:g}"
        )


def check_chunk(name: str, values: ArrayLike, n_columns: int | None = None) -> FloatArray:
    """Return rows of a design, maybe none, as finite float64 in C or Fortran order."""
    values = as_numpy(name, values)
    with naming(name), naming_column(name, values):
        found = check_array(values, dtype="numeric", ensure_min_samples=0, input_name=name)
        rows = check_finite(name, found, ("ALIGNED", "ENSUREARRAY"))
        if n_columns is not None and rows.shape[1] != n_columns:
            raise ValueError(f"{name} must have {n_columns} columns, one per function; got {rows.shape[1]}")
        return rows if rows.flags.forc else np.ascontiguousarray(rows)


def check_chunk_targets(
    name: str, target: ArrayLike, sample_weight: PerRow, n_rows: int
) -> tuple[FloatArray, FloatArray | None]:
    """Check targets and weights of some rows; all weights may be zero."""
    if target is None:
        raise ValueError(f"{name} must hold a target for each of {n_rows} rows, got None")
    with naming(name):
        numbers = _numbers(name, _columns(name, target, several=False), least=0)
        if len(numbers) != n_rows:
            raise ValueError(f"{name} must hold a target for each of {n_rows} rows, got {len(numbers)}")
    return numbers, check_weights(sample_weight, n_rows, may_vanish=True)


def check_scored(
    y: ArrayLike, sample_weight: PerRow, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray | None]:
    """Check targets and weights of rows whose predictions have this shape."""
    with naming("y"):
        target = _check_target(y, labels=False, outputs=len(shape) == 2)
    if target.shape != shape:
        raise ValueError(f"y must have the shape of the predictions, {shape}; got {target.shape}")
    return target, check_weights(sample_weight, shape[0])


def check_weights(sample_weight: PerRow, n_samples: int, *, may_vanish: bool = False) -> FloatArray | None:
    """Return a copy of sample weights: one per row (or one for all), finite, none negative, not all zero."""
    if sample_weight is None:
        return None
    with naming("sample_weight"):
        weights = _one_per_row("sample_weight", sample_weight, n_samples, least=0 if may_vanish else 1)
        if (weights < 0).any():
            raise ValueError("sample_weight must not be negative; weight 0 leaves a row out")
        if not may_vanish and not weights.any():
            # The words in parentheses are required by scikit-learn's checks.
            raise ValueError(
                "sample_weight is zero in every row (it must contain at least one non-zero number)"
            )
        if not np.isfinite(weights.sum()):
            raise ValueError("sample_weight has an infinite sum; it counts rows, so scale it to count them")
        return weights.copy()


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
    """Name the argument in errors."""
    try:
        # Overflow in the checks themselves is no error.
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(error, (OverflowError, UnicodeError)) and re.search(rf"\b{argument}\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{argument}: {error}") from error


def last_step(est: Any, X: Any = None) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline and its input; for other estimators ``est`` and ``X``."""
    while hasattr(est, "steps"):
        check_is_fitted(est)
        steps, est = est[:-1], est[-1]
        if X is not None and len(steps) > 0:
            with naming("X"):
                X = steps.transform(X)
    return est, X
