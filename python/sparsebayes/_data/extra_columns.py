"""Extra basis functions beside the kernels: from what ``extra_basis=`` takes to columns of numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from sklearn.base import clone

from .._checks.numbers import called
from .._checks.targets import check_columns
from .._types import FloatArray
from ..kernels import Kernel
from ..kernels._resolve import is_precomputed

_KINDS: Final = "'linear', a transformer of scikit-learn, or a callable f(X) -> (n, p)"


def check_extra_basis(extra_basis: Any, kernel: object) -> None:
    """Raise TypeError or ValueError unless ``extra_basis`` can compute columns from X."""
    if extra_basis is None or is_transformer(extra_basis):
        return
    if isinstance(extra_basis, str):
        if extra_basis != "linear":
            raise ValueError(f"extra_basis must be {_KINDS}; got {extra_basis!r}")
        if is_precomputed(kernel):
            raise ValueError(
                "extra_basis='linear' takes the columns of X, which with kernel='precomputed' are kernel "
                "values; give the kernel as an object or a callable k(X, Z)"
            )
    elif isinstance(extra_basis, Kernel):
        raise TypeError(
            f"extra_basis must be {_KINDS}; put kernels into a list, kernel=[..., {extra_basis!r}]"
        )
    elif isinstance(extra_basis, type):
        raise TypeError(
            f"extra_basis must be {_KINDS}; got the class {extra_basis.__name__}, not an instance"
        )
    elif not callable(extra_basis):
        raise TypeError(
            f"extra_basis must be {_KINDS}; got {type(extra_basis).__name__}. If no function of X gives the "
            "columns, append them to X, give a callable that returns them, and put the kernels on the other "
            "columns with kernels.OnColumns"
        )


def is_transformer(extra_basis: Any) -> bool:
    """Tell whether ``extra_basis`` is an instance that has to be fitted to rows."""
    # Data frames have a transform too.
    fits = hasattr(extra_basis, "transform") and hasattr(extra_basis, "fit")
    return fits and not isinstance(extra_basis, type)


def fitted_extra(extra_basis: Any, kernel: object, X: FloatArray) -> Any:
    """Return ``extra_basis_``: a transformer fitted to the training rows ``X``, or what needs no fitting."""
    check_extra_basis(extra_basis, kernel)
    # A copy: it may write to what it is given.
    return clone(extra_basis).fit(X.copy()) if is_transformer(extra_basis) else extra_basis


def columns_at(fitted: Any, X: FloatArray, n_columns: int | None = None) -> FloatArray:
    """Return the extra columns at the rows ``X``, (n, p); ``n_columns``: the p that there has to be."""
    if fitted is None:
        return np.empty((len(X), 0))
    if isinstance(fitted, str):  # "linear"
        return X
    own = X.copy()  # compiled code may want a buffer that can be written to, and write to it
    values = fitted.transform(own) if hasattr(fitted, "transform") else called("extra_basis", fitted, own)
    return check_columns("extra_basis", values, len(X), n_columns)


def middle_of_extra(fitted: Any, points: FloatArray, n_columns: int, *, bias: bool) -> FloatArray:
    """Return the mean of the extra columns over some points: where to sum them about, beside a bias."""
    if not bias or n_columns == 0:
        return np.zeros(n_columns)
    middle: FloatArray = columns_at(fitted, points, n_columns).mean(axis=0)
    return middle
