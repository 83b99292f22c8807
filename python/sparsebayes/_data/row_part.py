"""`RowPart`: rows in memory that answer for themselves, in the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._checks.arguments import check_flag, check_n_jobs, check_real, check_row_likelihood
from .._checks.numbers import any_array, real_array
from .._checks.targets import check_chunk, check_chunk_targets
from .._types import FloatArray, Likelihood
from ..kernels import Kernel
from .design import evaluate
from .provider import Functions, PyStatistics

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class RowPart(PyStatistics):
    """Some rows out of more, in memory, that answer for themselves.

    Parts with the same functions add up: see `SummedStatistics`. They are pickled as arrays, and what was
    computed is made anew where they arrive.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        Inputs or, without ``kernels``, the values of the basis functions. There may be no rows.
    y : array-like of shape (n,)
        Targets: numbers, for a Bernoulli likelihood 0 or 1, for Poisson counts.
    sample_weight : array-like of shape (n,), optional
        Weight of each row: 2 counts like two equal rows, 0 like none.
    kernels : kernel object or list of these, optional
        Of `sparsebayes.kernels`. None: the columns of X are the functions.
    centres : array-like of shape (m, n_features), optional
        What the kernel functions stand about; all parts need the same.
    fit_intercept : bool, default=False
        Whether a constant function comes before the others, as in the estimators that have an intercept.
    likelihood : {"gaussian", "bernoulli", "poisson"}, default="gaussian"
    store : bool, default=False
        Whether to keep the values of kernels, n m numbers for each kernel, in place of computing them at each
        question. Worth its memory for inputs of many columns.
    n_jobs : int, optional
        Threads; None or -1: all cores. They do not show in the answers.

    Attributes
    ----------
    n_basis : int
    n_samples : int
        Rows given, those of zero weight too.

    Raises
    ------
    TypeError, ValueError
        If an argument is not finite numbers of its shape, or outside the domain of the likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVC
    >>> from sparsebayes.kernels import Gaussian
    >>> from sparsebayes.providers import RowPart, SummedStatistics
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=100) > 0
    >>> kernel, centres = Gaussian(1.0), X[:40]
    >>> parts = [
    ...     RowPart(
    ...         X[rows], y[rows], kernels=kernel, centres=centres, fit_intercept=True, likelihood="bernoulli"
    ...     )
    ...     for rows in (slice(0, 30), slice(30, 100))
    ... ]
    >>> model = RVC(kernel, candidates=centres)
    >>> model.fit_provider(SummedStatistics(parts), classes=[False, True]).predict([[1.0, 1.0], [1.0, -1.0]])
    array([ True, False])
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        kernels: Kernel | Sequence[Kernel] | None = None,
        centres: ArrayLike | None = None,
        fit_intercept: bool = False,
        likelihood: Likelihood = "gaussian",
        store: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.likelihood = check_row_likelihood(likelihood)
        self._kernels = _check_kernels(kernels)
        self._bias = check_flag("fit_intercept", fit_intercept)
        self._store, self._n_threads = check_flag("store", store), check_n_jobs(n_jobs)
        if (centres is None) != (self._kernels is None):
            raise ValueError("kernels and centres go together: give both, or neither for the columns of X")
        self._centres = None if centres is None else _check_centres(centres)
        n_columns = _width(X) if self._centres is None else self._centres.shape[1]
        values = np.ascontiguousarray(check_chunk("X", X, n_columns))
        target, weights = check_chunk_targets("y", y, sample_weight, len(values))
        self.n_samples = len(values)
        if weights is not None and not weights.all():
            counts = weights > 0
            values, target, weights = values[counts], target[counts], weights[counts]
        self._rows = (values, target, weights)
        self._answering: _core.RowPart | None = None
        per_row = n_columns if self._centres is None else len(self._kernels or ()) * len(self._centres)
        self.n_basis = int(self._bias) + per_row

    def _part(self, cancelled: _core.Cancelled | None = None) -> _core.RowPart:
        """Return the part of the core, made at the first question or by the fit that is to ask."""
        if self._answering is None:
            self._answering = self._made(cancelled)
        return self._answering

    def _made(self, cancelled: _core.Cancelled | None) -> _core.RowPart:
        # What came from another process may lie anywhere in its message.
        X, target, weights = (
            None if a is None else np.require(a, np.float64, ("C", "A")) for a in self._rows
        )
        assert X is not None
        assert target is not None
        options: Any = {"bias": self._bias, "likelihood": self.likelihood, "n_threads": self._n_threads}
        if self._centres is None or self._kernels is None:
            return _core.RowPart.dense([X], target, weights, **options)
        centres = np.require(self._centres, np.float64, ("C", "A"))
        cores = [core for kernel in self._kernels if (core := kernel.to_core()) is not None]
        if len(cores) == len(self._kernels):
            options |= {"stored": self._store, "cancelled": cancelled}
            return _core.RowPart.kernel(X, centres, cores, target, weights, **options)
        blocks = [evaluate(kernel, X, centres, self._n_threads) for kernel in self._kernels]
        return _core.RowPart.dense(blocks, target, weights, **options)

    def shifted(self, offset: FloatArray) -> RowPart:
        """Return the same rows with an offset subtracted from each column of X."""
        other = copy(self)
        X, target, weights = self._rows
        other._rows, other._answering = (X - offset, target, weights), None
        return other

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Have questions end early once the fit was given up."""
        if isinstance(cancelled, _core.Cancelled):
            self._part(cancelled).listen(cancelled)

    def target_moments(self, centre: float) -> FloatArray:
        """Return the sums of `PyStatistics.target_moments` over these rows."""
        return self._part().target_moments(check_real("centre", centre))

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        """Return the deviance of these rows."""
        return self._part().deviance(_numbers("active", active), _weights("mu", mu))

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return the sums of `PyStatistics.gradient` over these rows."""
        return self._part().gradient(_numbers("active", active), _weights("mu", mu))

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        """Return the sums of `PyStatistics.among` over these rows."""
        return self._part().among(_numbers("active", active), _weights("mu", mu), _numbers("js", js))

    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return the sums of `PyStatistics.sweep` over these rows."""
        return self._part().sweep(_numbers("active", active), _weights("mu", mu), _numbers("wanted", wanted))

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return the sums of `PyStatistics.variance_drift` over these rows."""
        return self._part().variance_drift(
            _numbers("active", active), _weights("mu", mu), _weights("sigma", sigma, 2)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays and options, without what was made of them."""
        return self.__dict__ | {"_answering": None}

    def __repr__(self) -> str:
        """Return what it is and how much it holds."""
        return f"RowPart(n_basis={self.n_basis}, n_samples={self.n_samples})"


def _numbers(name: str, given: Any) -> Functions:
    """Return functions by number; TypeError or ValueError, naming them, if they are none."""
    if type(given) is np.ndarray and given.dtype == np.int64 and given.ndim == 1:
        return given  # what the core asks
    values = any_array(name, given)
    if values.ndim != 1 or (values.dtype.kind not in "iu" and len(values) > 0):
        raise TypeError(f"{name} must hold functions by number, of shape (m,), got {given!r}")
    return np.ascontiguousarray(values, dtype=np.int64)


def _weights(name: str, given: Any, ndim: int = 1) -> FloatArray:
    """Return numbers for the functions; TypeError or ValueError, naming them, if they are none."""
    values = real_array(name, given)
    if values.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {values.shape}")
    return np.ascontiguousarray(values)


def _check_kernels(kernels: Any) -> list[Kernel] | None:
    if kernels is None:
        return None
    several = list(kernels) if isinstance(kernels, (list, tuple)) else [kernels]
    if not several or not all(isinstance(kernel, Kernel) for kernel in several):
        raise TypeError(
            f"kernels must be a kernel object of sparsebayes.kernels or a list of these, got {kernels!r}"
        )
    return several


def _check_centres(centres: ArrayLike) -> FloatArray:
    values = check_chunk("centres", centres, _width(centres, "centres"))
    if len(values) == 0:
        raise ValueError("centres must hold at least one point")
    return np.ascontiguousarray(values)


def _width(X: Any, name: str = "X") -> int:
    # Classes have a shape too, which is none.
    shape = getattr(X, "shape", None)
    if not isinstance(shape, tuple):
        shape = any_array(name, X).shape
    if len(shape) != 2:
        raise ValueError(f"{name} must have two dimensions, got the shape {shape}")
    return int(shape[1])
