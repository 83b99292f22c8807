"""Sums over rows whose basis functions are the columns of a sparse matrix or of a linear operator.

Neither is stored as a table: columns are made a few at a time, as a fit asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from .._arrays import SMALLEST, is_operator, refuse_faint
from .._row_likelihoods import ROW_LIKELIHOODS
from .._types import FloatArray, IntArray, Likelihood
from ..providers import Functions, PyStatistics

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

#: Numbers in memory for some columns at a time, at most.
_BLOCK: Final = 1 << 22
#: Least size of the largest number of a column where products of squares must not underflow.
_SMALLEST: Final = 1e-80
#: Standard deviations between 0 and the mean of a column from which on sums over rows keep too few digits of
#: it, and from which on the column is constant.
_FAR, _CONSTANT = 3e5, 1e14


def columns_of(X: Any, js: IntArray) -> Any:
    """Return columns of a sparse matrix, sparse, or of an operator, as a table; finite numbers."""
    if not is_operator(X):
        return X[:, js]
    if len(js) == 0:  # SciPy's product, where an operator has none of its own, needs a column
        return np.zeros((X.shape[0], 0))
    units = np.zeros((X.shape[1], len(js)))
    units[js, np.arange(len(js))] = 1.0
    columns = np.asarray(X.matmat(units), dtype=np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("X must be an operator with finite columns; got nan or infinity")
    return columns


def with_columns(X: LinearOperator, js: IntArray) -> Any:
    """Return a sparse matrix of the shape of an operator that has these of its columns."""
    columns = columns_of(X, js)
    n, m = columns.shape
    rows, places = np.tile(np.arange(n), m), np.repeat(js, n)
    return sparse.csr_array((columns.T.ravel(), (rows, places)), shape=X.shape)


def _watched(X: LinearOperator, check: Callable[[], None]) -> LinearOperator:
    """Return an operator that calls ``check`` before each product that SciPy makes of a vector."""
    from scipy.sparse.linalg import LinearOperator  # slow, and loaded by who has an operator

    def own(name: str, *of_class: str) -> Any:
        """Return the product with several columns if the operator has its own."""
        given = getattr(X, f"_CustomLinearOperator__{name}_impl", X)
        if given is X:  # not made by the constructor
            pairs = (
                (getattr(kind, method, None) for kind in (type(X), LinearOperator)) for method in of_class
            )
            given = X if any(one is not other for one, other in pairs) else None
        return None if given is None else getattr(X, name)

    def matvec(v: FloatArray) -> Any:
        check()
        return X.matvec(v)

    def rmatvec(u: FloatArray) -> Any:
        check()
        return X.rmatvec(u)

    several, back = own("matmat", "_matmat"), own("rmatmat", "_rmatmat", "_adjoint")
    return LinearOperator(X.shape, matvec, rmatvec, several, X.dtype, back)


def as_table(values: Any) -> FloatArray:
    """Return a sparse matrix or a table as a table."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


class ColumnStatistics(PyStatistics):
    """The provider of these rows; the first function is constant with ``bias``.

    ``X``: a sparse matrix of compressed columns, or a linear operator.
    """

    def __init__(
        self, X: Any, target: FloatArray, weights: FloatArray | None, likelihood: Likelihood, *, bias: bool
    ) -> None:
        self.likelihood, self.n_basis = likelihood, X.shape[1] + bias
        self._row = ROW_LIKELIHOODS[likelihood]
        self._cancelled: Callable[[], bool] | None = None
        self._X = _watched(X, self._check) if is_operator(X) else X
        self._target = np.asarray(target, np.float64)
        self._weights = np.ones(len(target)) if weights is None else weights
        self._bias = int(bias)
        self._squares: FloatArray | None = None

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Check for cancellation before products."""
        self._cancelled = cancelled

    def _check(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise KeyboardInterrupt

    def first_far(self) -> tuple[int, float] | None:
        """Return the first column that is far from 0, and by how many of its standard deviations.

        None: there is none, or no intercept, which takes up the means. ValueError for columns too small to
        square.
        """
        smallest = SMALLEST if self.likelihood == "gaussian" else _SMALLEST
        v, own = self._weights, slice(self._bias, None)
        with np.errstate(over="ignore", invalid="ignore"):  # the fit reports it
            means, squares = (part[own] / v.sum() for part in (self._products(v), self._diagonal(v)))
            is_doubtful = squares - means**2 < (means / _FAR) ** 2
        faint = np.flatnonzero(squares < smallest**2) + self._bias
        for part, columns in self._blocks(faint):
            sizes = as_table(abs(columns).max(axis=0)).ravel()
            refuse_faint(sizes, faint[part] - self._bias, smallest)
        doubtful = np.flatnonzero(is_doubtful & (self._bias > 0)) + self._bias
        for part, columns in self._blocks(doubtful):
            js, stds = doubtful[part] - self._bias, as_table(columns).std(axis=0)
            is_far = np.abs(means[js]) > _FAR * stds
            if (far := np.flatnonzero(is_far & (_CONSTANT * stds > np.abs(means[js])))).size:
                return int(js[far[0]]), float(abs(means[js[far[0]]]) / stds[far[0]])
        return None

    def target_moments(self, centre: float) -> FloatArray:
        v, t = self._weights, self._target - centre
        return np.array([v.sum(), v @ t, v @ t**2])

    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        deviance, r, w = self._at(active, mu)
        gram = np.empty((self.n_basis, len(wanted)))
        for part, columns in self._blocks(wanted):
            gram[:, part] = self._products(self._weighted(columns, w))
        return deviance, self._products(r), self._diagonal(w), gram

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        deviance, r, w = self._at(active, mu)
        columns = self._columns(js)
        gram = as_table(columns.T @ self._weighted(columns, w))
        return deviance, np.asarray(columns.T @ r), gram

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        deviance, r, _ = self._at(active, mu)
        if is_operator(self._X):
            return deviance, self._products(r)[active]
        return deviance, np.asarray(self._columns(active).T @ r)

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        return self._deviance(self._eta(active, mu))

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        skew = self._weights * self._row.skew(self._eta(active, mu), self._target)
        T = np.asarray(self._columns(active) @ sigma)
        return np.asarray((T**2).T @ (skew[:, np.newaxis] * T))

    def _eta(self, active: Functions, mu: FloatArray) -> FloatArray:
        if len(active) == 0:
            return np.zeros(len(self._target))
        if is_operator(self._X):
            weights = np.zeros(self.n_basis)
            weights[active] = mu
            return np.asarray(self._X.matvec(weights[self._bias :]) + weights[: self._bias].sum())
        return np.asarray(self._columns(active) @ mu)

    def _at(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the deviance, and the derivatives r and w."""
        eta, t, v = self._eta(active, mu), self._target, self._weights
        return self._deviance(eta), v * self._row.slope(eta, t), v * self._row.curvature(eta, t)

    def _deviance(self, eta: FloatArray) -> float:
        if self.likelihood == "gaussian":
            return float(self._weights @ (self._target - eta) ** 2)
        return -2.0 * float(self._weights @ self._row.log_likelihood(eta, self._target))

    def _columns(self, js: Functions) -> Any:
        """Return these functions, (n, len(js)), sparse or as a table."""
        own = js >= self._bias
        columns = columns_of(self._X, js[own] - self._bias)
        if own.all():
            return columns
        # The constant function comes last, and may be asked for several times.
        place = np.where(own, np.cumsum(own) - 1, columns.shape[1])
        ones = np.ones((len(self._target), 1))
        if not sparse.issparse(columns):
            return np.hstack([columns, ones])[:, place]
        return sparse.hstack([columns, sparse.csc_array(ones)], format="csc")[:, place]

    def _blocks(self, js: Functions) -> Iterator[tuple[slice, Any]]:
        """Yield the functions js, a few at a time."""
        height = max(1, _BLOCK // max(self._X.shape))
        for start in range(0, len(js), height):
            part = slice(start, start + height)
            yield part, self._columns(js[part])

    @staticmethod
    def _weighted(columns: Any, w: FloatArray) -> Any:
        """Return rows multiplied by w."""
        if sparse.issparse(columns):
            return columns.multiply(w[:, np.newaxis]).tocsc()
        return w[:, np.newaxis] * columns

    def _products(self, values: Any) -> FloatArray:
        """Return the products of all functions with a vector or columns."""
        if not is_operator(self._X):
            products = as_table(self._X.T @ values)
        elif values.ndim == 1:
            products = np.asarray(self._X.rmatvec(values))
        else:
            products = np.asarray(self._X.rmatmat(as_table(values)))
        if self._bias == 0:
            return products
        sums = np.asarray(values.sum(axis=0))
        return np.concatenate([sums.reshape(1, *products.shape[1:]), products])

    def _diagonal(self, w: FloatArray) -> FloatArray:
        """Return the sums of squares of all functions with these weights."""
        if self.likelihood == "gaussian" and self._squares is not None:
            return self._squares
        n, k = self._X.shape
        if is_operator(self._X) and n < k:  # its rows take fewer products than its columns
            parts = np.array_split(np.arange(n), -(-n * k // _BLOCK))
            sums = np.sum([columns_of(self._X.T, rows) ** 2 @ w[rows] for rows in parts], axis=0)
            self._squares = np.concatenate([[w.sum()] * self._bias, sums])
            return self._squares
        squares = np.empty(self.n_basis)
        for part, columns in self._blocks(np.arange(self.n_basis)):
            squares[part] = (columns.multiply(columns) if sparse.issparse(columns) else columns**2).T @ w
        self._squares = squares
        return squares
