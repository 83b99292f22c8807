"""Fits of rows that are stored elsewhere: on other computers or devices, in files, in other engines.

Estimators have ``fit_provider`` for objects that compute the sums of `PyStatistics`. `RowPart` computes them
for rows in memory, and `SummedStatistics` for several parts together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import check_chunk, check_chunk_targets
from ._checks import (
    PLAIN,
    any_array,
    check_flag,
    check_integer,
    check_n_jobs,
    check_real,
    real_array,
)
from ._data.design import check_kernels, core_kernels, evaluate
from ._row_likelihoods import check_row_likelihood
from ._types import FloatArray, Likelihood
from .kernels import Kernel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["PyStatistics", "RowPart", "SummedStatistics"]

#: Numbers of basis functions, as the core passes them.
Functions: TypeAlias = NDArray[np.int64]


class PyStatistics(ABC):
    r"""The sums over rows that a fit needs: the interface for other computers, devices and engines.

    Each method takes the weights ``mu`` of the functions ``active``, all others being zero, and returns sums
    over the rows :math:`\phi_n` of the design matrix. :math:`r_n` and :math:`-w_n` are the first and second
    derivative of :math:`v_n \ln p(t_n | \eta_n)` in the linear predictor :math:`\eta_n = \sum_{j \in active}
    \mu_j \phi_{nj}`, with the sample weight :math:`v_n` and the target :math:`t_n`: for a Gaussian
    :math:`v_n (t_n - \eta_n)` and :math:`v_n`. The guide to providers lists them for each likelihood.

    Do not scale or centre columns and targets. For estimators with ``fit_intercept=True`` the first function
    must be 1 everywhere; their fits compute the sums of centred columns, and lose twice the digits by which a
    mean exceeds a standard deviation: subtract a number near the mean from such columns.

    No call depends on an earlier one. A fit is reproducible to the bit if the results of equal calls are.
    Calls follow one another on a thread that is not the caller's.

    A subclass defines ``n_basis``, ``likelihood``, ``target_moments`` and ``sweep``; for likelihoods other
    than the Gaussian also ``variance_drift``. The other methods return parts of the result of ``sweep``:
    override them to make a fit faster. Arrays ``active``, ``wanted`` and ``js`` hold numbers of functions,
    of type int64, and may be empty.

    Attributes
    ----------
    n_basis : int
        Number K of basis functions.
    likelihood : {"gaussian", "bernoulli", "poisson"}
        Distribution of a target. Bernoulli targets are from 0 to 1, Poisson targets are counts.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import PyStatistics, SparseBayesRegressor
    >>> class Rows(PyStatistics):
    ...     likelihood = "gaussian"
    ...
    ...     def __init__(self, Phi, t):
    ...         self.Phi, self.t, self.n_basis = Phi, t, Phi.shape[1]
    ...
    ...     def target_moments(self, centre):
    ...         return [len(self.t), (self.t - centre).sum(), ((self.t - centre) ** 2).sum()]
    ...
    ...     def sweep(self, active, mu, wanted):
    ...         r = self.t - self.Phi[:, active] @ mu
    ...         return r @ r, self.Phi.T @ r, (self.Phi**2).sum(axis=0), self.Phi.T @ self.Phi[:, wanted]
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.normal(size=(100, 5))
    >>> model = SparseBayesRegressor(fit_intercept=False)
    >>> model.fit_provider(Rows(Phi, 2 * Phi[:, 3] + 0.1 * rng.normal(size=100))).active_
    array([3])
    """

    n_basis: int
    likelihood: Likelihood

    @abstractmethod
    def target_moments(self, centre: float) -> FloatArray:
        r"""Return three sums: of :math:`v_n`, :math:`v_n (t_n - c)` and :math:`v_n (t_n - c)^2`.

        Called with ``centre`` c = 0 and, for a Gaussian likelihood, again with the mean.
        """

    @abstractmethod
    def sweep(
        self, active: Functions, mu: FloatArray, wanted: Functions
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        r"""Return sums for all K functions, with N K (len(wanted) + 2) operations.

        Returns
        -------
        deviance : float
            Minus twice the log likelihood; for a Gaussian the weighted sum of squared residuals.
        gradient : array-like of shape (K,)
            :math:`\sum_n r_n \phi_{ni}`.
        diag : array-like of shape (K,)
            :math:`\sum_n w_n \phi_{ni}^2`.
        gram : array-like of shape (K, len(wanted))
            :math:`\sum_n w_n \phi_{ni} \phi_{nj}` for each j in ``wanted``.
        """

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> tuple[float, FloatArray, FloatArray]:
        """Return the deviance, and gradient and Gram matrix as in ``sweep``, of the functions ``js`` only.

        Takes N len(js)^2 operations. Called at each Newton step with the active functions, and sometimes with
        up to a few hundred others. By default it calls ``sweep``, which is slow.
        """
        deviance, gradient, _, gram = self.sweep(active, mu, js)
        return deviance, np.asarray(gradient)[js], np.asarray(gram)[js]

    def gradient(self, active: Functions, mu: FloatArray) -> tuple[float, FloatArray]:
        """Return the deviance and the gradient of the active functions; by default from ``among``."""
        deviance, gradient, _ = self.among(active, mu, active)
        return deviance, gradient

    def deviance(self, active: Functions, mu: FloatArray) -> float:
        """Return the deviance, for line searches; by default from ``gradient``.

        It may be infinite if a step is too long; all other results must be finite.
        """
        return self.gradient(active, mu)[0]

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        r"""Return how posterior variances change with the mode through the weights :math:`w_n`.

        The result has :math:`\sum_n (\partial w_n / \partial \eta_n) T_{nj}^2 T_{nk}` at (j, k), where
        :math:`T = \Phi_A \Sigma` has the rows :math:`\phi_n^T \Sigma`. ``sigma`` is the covariance of the
        weights, or another, unsymmetric matrix if the fit centres columns.
        """
        raise NotImplementedError(
            f"{type(self).__name__} needs a method variance_drift for the likelihood {self.likelihood!r}"
        )

    def listen(self, cancelled: Callable[[], bool]) -> None:  # noqa: B027 # optional
        """Store a function that tells whether the fit was cancelled, as by Ctrl-C.

        A provider whose methods take seconds should call it regularly, and raise any exception if it returns
        True. By default Ctrl-C takes effect between calls.
        """


@dataclass(frozen=True)
class Call:
    """A call of a method of a provider. Small, and can be pickled."""

    method: str
    arguments: tuple[Any, ...]

    def __call__(self, part: Any) -> Any:
        """Return the result of the method of ``part``."""
        method = getattr(part, self.method, None)
        if method is None:
            raise TypeError(f"parts must be PyStatistics, with a method {self.method}; got {part!r}")
        return method(*self.arguments)


class _Forwarding(PyStatistics):
    """A provider that passes each call on, with its arguments by name."""

    @abstractmethod
    def _forward(self, method: str, **arguments: Any) -> Any:
        """Return the result of a method of `PyStatistics`."""

    def target_moments(self, centre: float) -> Any:
        return self._forward("target_moments", centre=centre)

    def deviance(self, active: Functions, mu: FloatArray) -> Any:
        return self._forward("deviance", active=active, mu=mu)

    def gradient(self, active: Functions, mu: FloatArray) -> Any:
        return self._forward("gradient", active=active, mu=mu)

    def among(self, active: Functions, mu: FloatArray, js: Functions) -> Any:
        return self._forward("among", active=active, mu=mu, js=js)

    def sweep(self, active: Functions, mu: FloatArray, wanted: Functions) -> Any:
        return self._forward("sweep", active=active, mu=mu, wanted=wanted)

    def variance_drift(self, active: Functions, mu: FloatArray, sigma: FloatArray) -> Any:
        return self._forward("variance_drift", active=active, mu=mu, sigma=sigma)


class SummedStatistics(_Forwarding):
    """Several providers as one: their results are added up, in the order of the parts.

    Parameters
    ----------
    parts : iterable of PyStatistics
        Iterated over at each call: a list, or an object that makes its parts anew each time, for instance
        from files. With ``map``: whatever that passes to its function.
    map : callable, optional
        ``map(function, parts)`` returns ``function(part)`` for each part, in the order of the parts:
        ``ThreadPoolExecutor().map``, or for parts on a cluster ``lambda f, parts:
        client.gather(client.map(f, parts))``. The function and its results are small and can be pickled.
    n_basis, likelihood : optional
        Attributes that the parts share; None: taken from the first part, which must then be local.
    """

    def __init__(
        self,
        parts: Iterable[Any],
        *,
        map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] | None = None,
        n_basis: int | None = None,
        likelihood: Likelihood | None = None,
    ) -> None:
        try:
            only_once = iter(parts) is parts
        except TypeError:
            only_once = True
        if only_once:
            raise TypeError(
                "parts must be an iterable that can be iterated over again, such as a list; got "
                f"{type(parts).__name__}"
            )
        if map is not None and not callable(map):
            raise TypeError(f"map must be None or a callable map(function, parts), got {map!r}")
        self._parts, self._map = parts, map
        self._cancelled: Callable[[], bool] | None = None
        if n_basis is None or likelihood is None:
            first = next(iter(parts), None)
            n_basis = getattr(first, "n_basis", None) if n_basis is None else n_basis
            likelihood = getattr(first, "likelihood", None) if likelihood is None else likelihood
        remedy = ": the parts must have n_basis and likelihood, or give them as arguments"
        self.n_basis = check_integer("n_basis", n_basis, least=1, remedy=remedy)
        self.likelihood = check_row_likelihood(likelihood)

    def _forward(self, method: str, **arguments: Any) -> Any:
        results = iter((self._map or map)(Call(method, tuple(arguments.values())), self._parts))
        total = next(results, None)
        if total is None:
            raise ValueError("parts must hold at least one part")
        for result in results:
            if self._cancelled is not None and self._cancelled():
                raise KeyboardInterrupt
            total = add(total, result)
        return total

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """Check for cancellation between parts, and within local parts."""
        self._cancelled = cancelled
        if self._map is not None or not isinstance(self._parts, (list, tuple)):
            return
        for part in self._parts:
            if hasattr(part, "listen"):
                part.listen(cancelled)

    def shifted(self, offset: FloatArray) -> SummedStatistics | None:
        """Return the parts with an offset subtracted from each column; None if they have no ``shifted``."""
        if not isinstance(self._parts, (list, tuple)) or not all(hasattr(p, "shifted") for p in self._parts):
            return None
        parts = [part.shifted(offset) for part in self._parts]
        return SummedStatistics(parts, map=self._map, n_basis=self.n_basis, likelihood=self.likelihood)


def add(total: Any, result: Any) -> Any:
    """Return the sum of two results: numbers, arrays, or sequences of these."""
    is_sequence = isinstance(total, (tuple, list))
    shapes = [len(total), len(result)] if is_sequence else [np.shape(total), np.shape(result)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"parts must return results of one shape, for the same functions; got {shapes}")
    if is_sequence:
        return tuple(add(a, b) for a, b in zip(total, result, strict=True))
    return np.add(total, result)


class RowPart(_Forwarding):
    """A provider of the sums over rows in memory.

    Parts with the same functions can be added up by `SummedStatistics`. A pickle holds only the arrays.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        Inputs or, without ``kernels``, the values of the basis functions. There may be no rows.
    y : array-like of shape (n,)
        Targets: numbers, for a Bernoulli likelihood 0 or 1, for Poisson counts.
    sample_weight : array-like of shape (n,), optional
        Weight of each row: 2 counts like two equal rows, 0 like none.
    kernels : kernel object or list of these, optional
        Of `sparsebayes.kernels`, evaluated at each call. None: the columns of X are the functions.
    centres : array-like of shape (m, n_features), optional
        Centres of the kernel functions, the same for all parts.
    fit_intercept : bool, default=False
        Whether the first function is constant, as in estimators with an intercept.
    likelihood : {"gaussian", "bernoulli", "poisson"}, default="gaussian"
    n_jobs : int, optional
        Threads; None or -1: all cores. The results do not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVC
    >>> from sparsebayes.kernels import Gaussian
    >>> from sparsebayes.providers import RowPart, SummedStatistics
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> kernel, centres, y = Gaussian(1.0), X[:40], X[:, 0] * X[:, 1] > 0
    >>> options = {"kernels": kernel, "centres": centres, "fit_intercept": True, "likelihood": "bernoulli"}
    >>> parts = [RowPart(X[rows], y[rows], **options) for rows in (slice(30), slice(30, 100))]
    >>> model = RVC(kernel, candidates=centres)
    >>> model = model.fit_provider(SummedStatistics(parts), classes=[False, True])
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
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
        n_jobs: int | None = None,
    ) -> None:
        self.likelihood = check_row_likelihood(likelihood)
        self._kernels = None if kernels is None else check_kernels("kernels", kernels)
        self._bias = check_flag("fit_intercept", fit_intercept)
        self._n_threads = check_n_jobs(n_jobs)
        if (centres is None) != (self._kernels is None):
            raise ValueError("kernels and centres go together: give both, or neither for the columns of X")
        self._centres = None if centres is None else np.ascontiguousarray(check_chunk("centres", centres))
        if self._centres is not None and len(self._centres) == 0:
            raise ValueError("centres must hold at least one point")
        n_columns = None if self._centres is None else self._centres.shape[1]
        values = np.ascontiguousarray(check_chunk("X", X, n_columns))
        target, weights = check_chunk_targets("y", y, sample_weight, len(values))
        self.n_samples = len(values)
        if weights is not None and not weights.all():
            counts = weights > 0
            values, target, weights = values[counts], target[counts], weights[counts]
        self._rows = (values, target, weights)
        self._core_part: _core.RowPart | None = None
        per_row = len(self._kernels or ()) * (0 if self._centres is None else len(self._centres))
        self.n_basis = int(self._bias) + (per_row or values.shape[1])

    def _part(self) -> _core.RowPart:
        """Return the part of the core, made at the first call."""
        if self._core_part is not None:
            return self._core_part
        # An array unpickled from a message may be misaligned.
        arrays: Any = (*self._rows, self._centres)
        arrays = [a if a is None else np.require(a, np.float64, PLAIN) for a in arrays]
        X, target, weights, centres = arrays
        options: Any = {"bias": self._bias, "likelihood": self.likelihood, "n_threads": self._n_threads}
        kernels = self._kernels or []
        if cores := core_kernels(kernels):
            self._core_part = _core.RowPart.kernel(X, centres, cores, target, weights, **options)
        else:
            blocks = [evaluate(kernel, X, centres, self._n_threads) for kernel in kernels]
            self._core_part = _core.RowPart.dense(blocks or [X], target, weights, **options)
        return self._core_part

    def shifted(self, offset: FloatArray) -> RowPart:
        """Return the same rows with an offset subtracted from each column of X."""
        other = copy(self)
        X, target, weights = self._rows
        other._rows, other._core_part = (X - offset, target, weights), None
        return other

    def listen(self, cancelled: Callable[[], bool]) -> None:
        """End calls early once the fit is cancelled."""
        if isinstance(cancelled, _core.Cancelled):
            self._part().listen(cancelled)

    def _forward(self, method: str, **arguments: Any) -> Any:
        """Call the method of the core's part, with arguments as the core takes them."""
        converted = [_converted(name, given) for name, given in arguments.items()]
        return getattr(self._part(), method)(*converted)

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays and options, without the part of the core."""
        return self.__dict__ | {"_core_part": None}

    def __repr__(self) -> str:
        """Return the class and its sizes."""
        return f"RowPart(n_basis={self.n_basis}, n_samples={self.n_samples})"


def _converted(name: str, given: Any) -> Any:
    """Return an argument of a method as the core takes it; errors name the argument."""
    if name == "centre":
        return check_real(name, given)
    if name in ("mu", "sigma"):
        values, ndim = real_array(name, given), 1 if name == "mu" else 2
        if values.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension(s), got shape {values.shape}")
        return np.ascontiguousarray(values)
    numbers = any_array(name, given)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers) > 0):
        raise TypeError(f"{name} must hold numbers of functions, of shape (m,), got {given!r}")
    return np.ascontiguousarray(numbers, dtype=np.int64)
