"""Extra basis functions beside the kernels: from what ``extra_basis=`` takes to columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from ._numbers import called
from ._resolve import is_precomputed
from ._types import FloatArray
from ._validation import Training, check_columns
from .kernels import Kernel

#: What ``extra_basis_`` is where the columns were given as an array.
_ARRAY = "array"

_KINDS = (
    "'linear', a transformer of scikit-learn, a callable f(X) -> (n, p), or an array of shape (n_samples, p)"
)


@dataclass(frozen=True)
class Beside:
    """Rows to predict at, together with the extra columns that the caller gave for them."""

    X: ArrayLike
    columns: ArrayLike | None


def fitted_extra(extra_basis: Any, kernel: object, X: FloatArray) -> Any:
    """Return ``extra_basis_``: a transformer fitted to the training rows ``X``, or what needs no fitting."""
    if extra_basis is None:
        return None
    if isinstance(extra_basis, str):
        if extra_basis != "linear":
            raise ValueError(f"extra_basis must be {_KINDS}; got {extra_basis!r}")
        if is_precomputed(kernel):
            raise ValueError(
                "extra_basis='linear' takes the columns of X, which with kernel='precomputed' are kernel "
                "values; give the columns as an array"
            )
        return extra_basis
    if isinstance(extra_basis, Kernel):
        raise TypeError(
            f"extra_basis must be {_KINDS}; put kernels into a list, kernel=[..., {extra_basis!r}]"
        )
    if isinstance(extra_basis, type):
        raise TypeError(
            f"extra_basis must be {_KINDS}; got the class {extra_basis.__name__}, not an instance"
        )
    # Data frames have a transform too.
    if hasattr(extra_basis, "transform") and hasattr(extra_basis, "fit"):
        return clone(extra_basis).fit(X.copy())  # a copy: it may write to what it is given
    if callable(extra_basis):
        return extra_basis
    if not (hasattr(extra_basis, "__len__") or hasattr(extra_basis, "__array__")):
        raise TypeError(f"extra_basis must be {_KINDS}; got {extra_basis!r}")
    return _ARRAY


def is_array(fitted: Any) -> bool:
    """Tell whether the columns of this ``extra_basis_`` were given as an array."""
    return isinstance(fitted, str) and fitted == _ARRAY


def training_columns(fitted: Any, extra_basis: Any, training: Training) -> FloatArray:
    """Return the extra columns at the training rows, N x p."""
    if is_array(fitted):
        with_all = check_columns("extra_basis", extra_basis, training.n_samples)
        return with_all[training.rows]
    return _evaluate(fitted, training.X)


def columns_at(fitted: Any, X: FloatArray, given: ArrayLike | None, n_columns: int) -> FloatArray:
    """Return the extra columns at the rows ``X``; ``given`` by the caller if the fit's were an array."""
    if is_array(fitted):
        if given is None:
            raise ValueError(
                "extra_basis was fitted as an array, so its columns at these rows have to be given too: "
                "extra_basis=array of shape (n, p); a callable or a transformer needs no second array"
            )
        return check_columns("extra_basis", given, len(X), n_columns)
    if given is not None:
        raise ValueError(
            "extra_basis can be given here only to a model that was fitted with an array; "
            "this one computes all its columns from X"
        )
    return _evaluate(fitted, X, n_columns)


def middle_of_extra(fitted: Any, points: FloatArray, n_columns: int, *, bias: bool) -> FloatArray:
    """Return the mean of the extra columns over some points: where to sum them about, beside a bias."""
    if not bias or n_columns == 0:
        return np.zeros(n_columns)
    middle: FloatArray = columns_at(fitted, points, None, n_columns).mean(axis=0)
    return middle


def _evaluate(fitted: Any, X: FloatArray, n_columns: int | None = None) -> FloatArray:
    if fitted is None:
        return np.empty((len(X), 0))
    if isinstance(fitted, str):  # "linear"
        return X
    own = X.copy()  # compiled code may want a buffer that can be written to, and write to it
    values = fitted.transform(own) if hasattr(fitted, "transform") else called("extra_basis", fitted, own)
    return check_columns("extra_basis", values, len(X), n_columns)
