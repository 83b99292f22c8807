"""The base class of kernels; kernels given by functions or on some columns; sums and products of kernels.

A kernel class holds all that Python knows about its kernel: its formula, from which values in NumPy, C code
and ONNX graphs follow; its form in the core and in model files; gradients of its parameters.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._checks import (
    NOT_NUMBERS,
    any_array,
    called,
    check_entries,
    check_flag,
    check_integer,
    column_means,
    real_array,
)
from .._types import FloatArray, IntArray, KernelFunction

if TYPE_CHECKING:
    from typing_extensions import Self

#: From dL/dK to dL/d(log parameters).
Pull = Callable[[FloatArray], FloatArray]
#: Bounds of the log parameters below and above their natural values: with a width of 1e4 times its standard
#: deviation an input has no effect.
_MAX_LOG_DECREASE: Final = np.log(1e3)
_MAX_LOG_INCREASE: Final = np.log(1e4)
#: Standard deviation, in units of that of the middle 90 % of the rows, above which it says nothing of most
#: rows. Measured: docs/notebook/kernel-learning.md.
_MAX_STD_OF_FEW: Final = 10.0
#: Width of the middle 90 % of a normal distribution, in standard deviations.
_MIDDLE: Final = 3.29


class Kernel:
    """A kernel k(x, z), the base class of all kernels; `Custom` makes a kernel of your own function."""

    __slots__ = ()

    #: Name in the core and in model files.
    _core_name: ClassVar[str]
    #: Continuous parameters, which can be learned through their logarithms (a 0 remains 0, others keep their
    #: sign), and the power of a length in each: 1 for a width, -1 for an inverse width, or 0.
    _learned: ClassVar[Mapping[str, int]] = {}
    #: Largest changes of the logs of parameters whose value is known in advance but for a small error.
    _max_log_changes: ClassVar[Mapping[str, float]] = {}
    #: Name of the parameter that may have a value for each input.
    _input_parameter: ClassVar[str]
    #: Joins the terms of the inputs, or the parts of a combination.
    _operation: ClassVar[np.ufunc] = np.add

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> FloatArray:
        """Return k of every row of X, (n, n_features), and every row of Z, (m, n_features): (n, m)."""
        x, z = real_array("X", X), real_array("Z", Z)
        if x.ndim != 2 or z.ndim != 2 or x.shape[1] != z.shape[1]:
            raise ValueError(
                f"X and Z must be matrices with the same number of columns, got {x.shape} and {z.shape}"
            )
        self.check_features(x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # values that overflow are infinite
            return self._values(x, z)

    # --- the formula ----------------------------------------------------------------------------------

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return np.asarray(self._of_total(self._total(x, z)))

    def _total(self, x: FloatArray, z: FloatArray) -> FloatArray:
        """Return the joined terms of all inputs, (n, m)."""
        constants = self._per_input()
        constants = [None] * x.shape[1] if constants is None else constants
        terms = map(self._term, x.T[:, :, np.newaxis], z.T, constants)
        start = np.full((len(x), len(z)), float(self._operation.identity))
        return reduce(self._operation, terms, start)

    def _per_input(self) -> Any:
        """Return the constant of each input in its term, or None."""
        return None

    def _term(self, x: Any, z: Any, constant: Any) -> Any:
        """Return the term of an input. Its arguments are arrays, or numbers of `Traced` code."""
        raise NotImplementedError

    def _of_total(self, total: Any) -> Any:
        """Return k from the joined terms."""
        return total

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if the kernel needs a number of inputs other than ``n_features``."""
        n_features, constants = check_integer("n_features", n_features, least=0), self._per_input()
        if constants is not None and len(constants) != n_features:
            raise ValueError(
                f"{self._input_parameter} has {len(constants)} values but X has {n_features} features; give "
                "one per feature"
            )
        for part in self._parts().values():
            part.check_features(n_features)

    def to_core(self) -> _core.Kernel | None:
        """Return this kernel as a kernel of the core, None if Python evaluates it."""
        return _core.Kernel(json.dumps(self._header())) if self._is_in_core() else None

    def _is_in_core(self) -> bool:
        """Return whether fits let the core evaluate this kernel."""
        return all(part._is_in_core() for part in self._parts().values())

    def _header(self) -> Any:
        """Return this kernel as JSON types, in the form of the core and of model files."""
        parameters = self.get_params(deep=False)
        return {self._core_name: parameters} if parameters else self._core_name

    def _has_one_scale(self) -> bool:
        """Return whether one parameter scales all inputs, so that they should have similar deviations."""
        return True

    # --- learning -------------------------------------------------------------------------------------

    def _leaves(self) -> Iterator[Kernel]:
        """Yield the elementary kernels in the order of their parameters, inside `OnColumns` with columns."""
        yield self

    def _kind(self) -> tuple[object, ...]:
        """Return what leaves with comparable parameters have in common: class and columns."""
        return (type(self),)

    def _learnable(self) -> FloatArray:
        """Return the log, the power of a length and the largest change of each parameter, (n, 3)."""
        own = [
            (np.log(np.abs(value)), power, self._max_log_changes.get(name, np.inf))
            for name, power in self._learned.items()
            for value in np.atleast_1d(getattr(self, name))
            if value != 0.0
        ]
        parts = [part._learnable() for part in self._parts().values()]
        return np.concatenate([np.reshape(own, (len(own), 3)), *parts])

    def _log_parameters(self) -> FloatArray:
        """Return the logarithms of the absolute values of all continuous parameters."""
        return self._learnable()[:, 0]

    def _length_powers(self) -> FloatArray:
        return self._learnable()[:, 1]

    def _with_log_parameters(self, theta: FloatArray) -> Kernel:
        """Return the kernel with other values of its continuous parameters."""
        new, start = dict[str, Any](), 0
        for name in self._learned:
            old = getattr(self, name)
            value = np.array(old, dtype=np.float64, ndmin=1)
            at = value != 0.0
            value[at] = np.copysign(np.exp(theta[start : start + at.sum()]), value[at])
            new[name] = tuple(value.tolist()) if isinstance(old, tuple) else float(value[0])
            start += at.sum()
        kernel = replace(self, **new) if new else self  # type: ignore[type-var] # a dataclass
        parts = self._parts()
        values = with_all_log_parameters(list(parts.values()), theta[start:])
        return kernel._of_parts(dict(zip(parts, values, strict=True)))

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        """Return log parameters in proportion to the standard deviations of X, `robust_stds` or plain ones.

        For kernels of the distance the exponent of two rows is then 1/2 on average, with equal shares of the
        inputs; for kernels of the inner product its average square is 1.
        """
        return np.empty(0)

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        """Return K = k(X, Z) and the function from D = dL/dK to the gradient in the log parameters.

        The function needs no array of the size of K times the number of parameters.
        """
        return self(X, Z), lambda D: np.empty(0)

    # --- parameters, sums and products ----------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as in scikit-learn.

        ``deep``: also those of the parts: ``k1``, ``k1__width``, ``k2`` etc. of a sum or product,
        ``kernel__width`` of `OnColumns`.
        """
        own = {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}
        if check_flag("deep", deep):
            for name, part in self._parts().items():
                own[name] = part
                own |= {f"{name}__{inner}": value for inner, value in part.get_params().items()}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set parameters by the names of `get_params`, as a grid search does, and return this kernel.

        This changes the kernel in place, for all estimators, sums, sets and dictionaries that hold it. Fitted
        models and clones hold copies. Parts of a sum, product or `OnColumns` are replaced, not changed. After
        a TypeError or ValueError nothing has changed.
        """
        new = self._with(params)
        for name in self.get_params(deep=False):
            object.__setattr__(self, name, getattr(new, name))
        return self

    def _with(self, params: Mapping[str, Any]) -> Kernel:
        """Return a copy with other parameters."""
        whole = {key: value for key, value in params.items() if key in self.get_params(deep=False)}
        new = replace(self, **whole) if whole else self  # type: ignore[type-var] # a dataclass, as it has fields
        parts, inner = new._parts(), dict[str, dict[str, Any]]()
        for key in (key for key in params if key not in whole):
            name, _, rest = key.partition("__")
            if name not in parts:
                names = ", ".join(map(repr, new.get_params()))
                raise ValueError(f"{key!r} is not a parameter of {new!r}; it has {names}")
            if rest:
                inner.setdefault(name, {})[rest] = params[key]
            else:
                parts[name] = params[key]
        return new._of_parts(parts | {name: parts[name]._with(rest) for name, rest in inner.items()})

    def _parts(self) -> dict[str, Kernel]:
        """Return the kernels that this one consists of, by their names in `get_params`."""
        return {}

    def _of_parts(self, parts: dict[str, Kernel]) -> Kernel:
        return self

    def __sklearn_clone__(self) -> Self:
        return deepcopy(self)

    def __add__(self, other: object) -> Sum:
        return Sum((self, _kernel("+", other)))

    def __mul__(self, other: object) -> Product:
        return Product((self, _kernel("*", other)))


class Combination(Kernel):
    """A sum or a product of kernels: a dataclass with one field, the tuple of its parts."""

    __slots__ = ()

    #: Name of the field.
    _field: ClassVar[str]

    def __post_init__(self) -> None:
        flat: list[Kernel] = []
        for kernel in check_entries(self._field, self._members, "kernel objects"):
            if not isinstance(kernel, Kernel):
                raise TypeError(
                    f"{self._field} must be kernel objects, got {kernel!r}; wrap a function in kernels.Custom"
                )
            flat.extend(kernel._members if isinstance(kernel, type(self)) else [kernel])
        if not flat:
            raise ValueError(f"{self._field} must hold at least one kernel")
        object.__setattr__(self, self._field, tuple(flat))

    @property
    def _members(self) -> tuple[Kernel, ...]:
        members: tuple[Kernel, ...] = getattr(self, self._field)
        return members

    def _of_members(self, members: Iterable[Kernel]) -> Kernel:
        return replace(self, **{self._field: tuple(members)})  # type: ignore[type-var] # a dataclass

    def _parts(self) -> dict[str, Kernel]:
        # Numbered as in scikit-learn's Gaussian processes.
        return {f"k{number}": kernel for number, kernel in enumerate(self._members, 1)}

    def _of_parts(self, parts: dict[str, Kernel]) -> Kernel:
        return self._of_members(parts.values())

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return reduce(self._operation, (kernel(x, z) for kernel in self._members))

    def _header(self) -> Any:
        return {self._core_name: [kernel._header() for kernel in self._members]}

    def _leaves(self) -> Iterator[Kernel]:
        for kernel in self._members:
            yield from kernel._leaves()

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        return np.concatenate([kernel._natural(X, weights, robust=robust) for kernel in self._members])

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        values, pulls = zip(*(kernel._forward(X, Z) for kernel in self._members), strict=True)

        def pull(D: FloatArray) -> FloatArray:
            slopes = [D] * len(values)
            if isinstance(self, Product):  # not K divided by the factor, which may be 0
                others = [[v for j, v in enumerate(values) if j != i] for i in range(len(values))]
                slopes = [reduce(np.multiply, rest, D) for rest in others]
            return np.concatenate([pull(slope) for pull, slope in zip(pulls, slopes, strict=True)])

        return reduce(self._operation, values), pull


@dataclass(frozen=True, slots=True, repr=False)
class Sum(Combination):
    """The sum of kernels, made by ``+``.

    A term of much larger values than the others hides them: scale X, or give a list of kernels instead,
    whose functions have weights of their own.

    Parameters
    ----------
    terms : sequence of Kernel
        At least one; sums among them are expanded.
    """

    terms: tuple[Kernel, ...]

    _core_name, _field = "sum", "terms"

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True, slots=True, repr=False)
class Product(Combination):
    """The product of kernels, made by ``*``.

    Parameters
    ----------
    factors : sequence of Kernel
        At least one; products among them are expanded.
    """

    factors: tuple[Kernel, ...]

    _core_name, _field, _operation = "product", "factors", np.multiply

    def __repr__(self) -> str:
        return " * ".join(
            f"({factor!r})" if isinstance(factor, Sum) else repr(factor) for factor in self.factors
        )


@dataclass(frozen=True, slots=True)
class Custom(Kernel):
    """A kernel given by a function k(X, Z) -> (n, m), evaluated in NumPy.

    Parameters
    ----------
    function : callable
        Called with float64 arrays of shapes (n, n_features) and (m, n_features), copies that it may change;
        returns real, finite values of shape (n, m).

    Examples
    --------
    >>> from sparsebayes.kernels import Custom, Gaussian
    >>> cosine = Custom(lambda X, Z: np.cos(X @ Z.T))
    >>> (cosine * Gaussian(1.0))([[0.0]], [[0.0]])
    array([[1.]])
    """

    function: KernelFunction

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be a callable k(X, Z), got {self.function!r}")

    def _is_in_core(self) -> bool:
        return False

    def _has_one_scale(self) -> bool:
        return False

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        found = called("kernel", self.function, x.copy(order="C"), z.copy(order="C"))
        values = any_array("the values of a kernel function", found)
        given = "; the one given as kernel returned"
        if values.shape != (len(x), len(z)):
            raise ValueError(
                f"a kernel function must return an array of shape {(len(x), len(z))}, one row per row of X "
                f"and one column per row of Z{given} shape {values.shape}"
            )
        if values.dtype.kind not in "fiub":
            raise TypeError(f"a kernel function must return real numbers{given} dtype {values.dtype}")
        result = values.astype(np.float64)
        if not np.isfinite(result).all():
            raise ValueError(f"a kernel function must return finite values{given} NaN or infinity")
        return result


def _kernel(sign: str, other: object) -> Kernel:
    if isinstance(other, Kernel):
        return other
    remedy = "wrap a function in kernels.Custom" if callable(other) else "kernels combine with kernels only"
    raise TypeError(f"cannot apply {sign} to a kernel and {other!r}: {remedy}")


def all_log_parameters(kernels: Sequence[Kernel]) -> FloatArray:
    """Return the log parameters of all kernels, one kernel after another."""
    return np.concatenate([kernel._log_parameters() for kernel in kernels])


def with_all_log_parameters(kernels: Sequence[Kernel], theta: FloatArray) -> list[Kernel]:
    """Return these kernels with other values of their parameters, given one kernel after another."""
    ends = np.cumsum([len(kernel._log_parameters()) for kernel in kernels], dtype=int)
    parts = np.split(theta, ends)  # the last of them is empty
    return [kernel._with_log_parameters(part) for kernel, part in zip(kernels, parts, strict=False)]


def bounds(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return the least and largest log of each parameter, (n, 2)."""
    centre, (_, power, most) = kernel._natural(X), kernel._learnable().T
    # A width below the distance of neighbours is an optimum at zero width, with a function for every row. For
    # one evenly spaced input the natural width of N rows is about N/4 of these distances.
    below = np.where(power != 0.0, np.clip(np.log(len(X) / 4.0), 1.0, _MAX_LOG_DECREASE), _MAX_LOG_DECREASE)
    above = np.full(len(centre), _MAX_LOG_INCREASE)
    least, largest = np.where(power < 0.0, (above, below), (below, above))
    return np.column_stack([centre - np.minimum(least, most), centre + np.minimum(largest, most)])


def column_stds(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the standard deviation of each column of X, exactly 0 if it is constant up to rounding."""
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported where the values are used
        means = column_means(X, weights)
        stds: FloatArray = np.sqrt(np.average((X - means) ** 2, axis=0, weights=weights))
        stds[stds <= 8.0 * np.finfo(float).eps * np.abs(means)] = 0.0
    return stds


def robust_stds(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the standard deviation of each column, or where it comes from few rows alone that of the others.

    It is then a normal distribution's whose middle 90 % are as wide as those of the column. Columns that are
    constant but for few rows, as sparse ones may be, keep their standard deviation.
    """
    stds = column_stds(X, weights)
    order = np.argsort(X, axis=0)
    below = np.cumsum(np.ones(len(X))[order] if weights is None else weights[order], axis=0)
    ends = [np.argmax(below >= share * below[-1], axis=0)[np.newaxis] for share in (0.05, 0.95)]
    low, high = (np.take_along_axis(X, np.take_along_axis(order, end, 0), 0)[0] for end in ends)
    with np.errstate(over="ignore"):  # an infinite standard deviation is reported where it is used
        middle = (high - low) / _MIDDLE
        replaced = (middle > 0.0) & (stds > _MAX_STD_OF_FEW * middle) & np.isfinite(stds)
    return np.where(replaced, middle, stds)


# --- kernels on some of the columns of X, and the selection of columns ------------------------------

#: A checked selection, positions or names.
Columns: TypeAlias = "tuple[int, ...] | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class OnColumns(Kernel):
    """A kernel evaluated on some of the columns of X.

    Parameters
    ----------
    kernel : Kernel, callable or str
        Its inputs are the columns selected. A name, such as ``"rbf"``, takes its parameters from the
        estimator, where ``gamma="scale"`` and ``"auto"`` refer to the columns selected; the kernel cannot be
        evaluated before.
    columns : int, str, or list of int or str
        Positions, negative ones counting from the end; or names, which an estimator finds in the DataFrame of
        ``fit``. Order and repetitions matter. Inside another ``OnColumns`` they refer to the columns that it
        selects.

    Notes
    -----
    Fits store all N times N values of such a kernel. ``kernel_`` of a fitted estimator has positions instead
    of names.

    Examples
    --------
    >>> from sparsebayes.kernels import Gaussian, Linear, OnColumns
    >>> kernel = OnColumns(Gaussian(1.0), [0, 1]) + OnColumns(Linear(), -1)
    >>> kernel([[0.0, 0.0, 2.0]], [[0.0, 1.0, 3.0]]).round(3)
    array([[6.368]])
    """

    kernel: Kernel | KernelFunction | str
    columns: Columns

    def __post_init__(self) -> None:
        kernel = self.kernel
        if isinstance(kernel, str) and kernel == "precomputed":
            raise ValueError("kernel of OnColumns takes the columns of X: it cannot be 'precomputed'")
        if callable(kernel) and not isinstance(kernel, (Kernel, type)):
            kernel = Custom(kernel)
        if not isinstance(kernel, (Kernel, str)):
            raise TypeError(f"kernel must be a kernel object, a callable k(X, Z), or a name; got {kernel!r}")
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "columns", check_columns(self.columns))

    def _parts(self) -> dict[str, Kernel]:
        return {"kernel": self.kernel} if isinstance(self.kernel, Kernel) else {}

    def _of_parts(self, parts: dict[str, Kernel]) -> OnColumns:
        return replace(self, kernel=parts["kernel"]) if parts else self

    def inner(self) -> Kernel:
        """Return the kernel that is evaluated on the columns; ValueError if it is a name."""
        if isinstance(self.kernel, Kernel):
            return self.kernel
        raise ValueError(
            f"kernel {self.kernel!r} of OnColumns has no parameters until an estimator is fitted; give a "
            "kernel object to evaluate it"
        )

    def positions(self, n_features: int) -> IntArray:
        """Return the positions of the columns selected; ValueError if not all exist."""
        return positions(self.columns, n_features)

    def select(self, X: FloatArray) -> FloatArray:
        """Return the columns selected, in C order."""
        values = real_array("X", X)
        if values.ndim != 2:
            raise ValueError(f"X must be a matrix, got shape {values.shape}")
        return values.take(self.positions(values.shape[1]), axis=1)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return self.inner()(self.select(x), self.select(z))

    def _is_in_core(self) -> bool:
        return False

    def _header(self) -> Any:
        return {"on_columns": {"columns": list(self.columns), "kernel": self.inner()._header()}}

    def _leaves(self) -> Iterator[Kernel]:
        yield from (OnColumns(leaf, self.columns) for leaf in self.inner()._leaves())

    def _kind(self) -> tuple[object, ...]:
        return (*self.inner()._kind(), repr(self.columns))

    def _natural(
        self, X: FloatArray, weights: FloatArray | None = None, *, robust: bool = True
    ) -> FloatArray:
        return self.inner()._natural(self.select(X), weights, robust=robust)

    def _forward(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
        return self.inner()._forward(self.select(X), self.select(Z))

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if columns are missing, or the kernel needs another number of them."""
        n_selected = len(self.positions(n_features))
        try:
            self.inner().check_features(n_selected)
        except ValueError as error:
            if n_selected == n_features:
                raise
            raise ValueError(f"{error} (X being the {n_selected} columns that {self!r} selects)") from None


def check_columns(columns: Any) -> Columns:
    """Return a selection as a tuple; TypeError if it is invalid, ValueError if it is empty."""
    if isinstance(columns, str) or _is_integer(columns):
        columns = [columns]
    iterable = isinstance(columns, Iterable) and getattr(columns, "ndim", 1) == 1
    entries = tuple(columns) if iterable and not isinstance(columns, (bytes, Mapping, Set)) else (None,)
    if not entries:
        raise ValueError("columns must name at least one column, got none")
    if all(isinstance(entry, str) for entry in entries):
        return tuple(map(str, entries))
    if all(map(_is_integer, entries)):
        return tuple(map(int, entries))
    raise TypeError(
        f"columns must be positions or names, all entries of one kind; got {columns!r} "
        "(numpy.flatnonzero(mask) returns the positions of a mask)"
    )


def positions(
    columns: Columns, n_features: int, feature_names: Sequence[str] | None = None, of: str = "X"
) -> IntArray:
    """Return the positions among the ``n_features`` columns ``of`` a matrix, counted from 0."""
    check_integer("n_features", n_features, least=0)
    if names := [column for column in columns if isinstance(column, str)]:
        if feature_names is None:
            raise ValueError(
                f"columns are given by name, {_listed(names)}, but {of} has no names of columns; fit a "
                "DataFrame whose column names are all strings, or give positions"
            )
        known = list(feature_names)
        if missing := [name for name in names if name not in known]:
            raise ValueError(
                f"columns {_listed(missing)} are not in {of}, whose columns are {_listed(known)}"
            )
        if double := [name for name in names if known.count(name) > 1]:
            raise ValueError(f"columns {_listed(double)} are in {of} more than once; give positions")
        return np.array([known.index(name) for name in names])
    numbered = [int(column) for column in columns]
    if outside := [column for column in numbered if not -n_features <= column < n_features]:
        raise ValueError(f"columns must lie among the {n_features} columns of {of}; got {_listed(outside)}")
    return np.arange(n_features)[numbered]


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, NOT_NUMBERS)


def _listed(columns: Iterable[object]) -> str:
    entries = list(columns)
    shown = ", ".join(map(repr, entries[:10]))
    return f"{shown}, ... ({len(entries)} in all)" if len(entries) > 10 else shown
