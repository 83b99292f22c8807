"""The base class of kernels; kernels given by functions; sums and products of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._checks.arguments import check_flag
from .._checks.numbers import called, real_array
from .._types import FloatArray, KernelFunction

if TYPE_CHECKING:
    from typing_extensions import Self


class Kernel:
    """A kernel k(x, z), the base class of all kernels; `Custom` makes a kernel of your own function."""

    __slots__ = ()

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> FloatArray:
        """Evaluate the kernel for every pair of rows.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        Z : array-like of shape (m, n_features)

        Returns
        -------
        ndarray of shape (n, m)

        Raises
        ------
        TypeError, ValueError
            If X or Z is not a matrix of real numbers, or has a number of columns other than that of the other
            matrix or of the kernel.
        """
        x, z = real_array("X", X), real_array("Z", Z)
        if x.ndim != 2 or z.ndim != 2 or x.shape[1] != z.shape[1]:
            raise ValueError(
                f"X and Z must be matrices with the same number of columns, got {x.shape} and {z.shape}"
            )
        self.check_features(x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # values that overflow are infinite
            return self._values(x, z)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        raise NotImplementedError

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if the kernel needs a number of inputs other than ``n_features``."""

    def to_core(self) -> _core.Kernel | None:
        """Return this kernel as a kernel of the core, None if the core lacks it."""
        return self._to_core()

    def _to_core(self) -> _core.Kernel | None:
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as in scikit-learn.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of parts: ``k1``, ``k1__width``, ``k2`` etc. of a sum or
            product, ``kernel__width`` of `OnColumns`.

        Returns
        -------
        dict
        """
        own = {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}
        if check_flag("deep", deep):
            for name, part in self._parts().items():
                own[name] = part
                own |= {f"{name}__{inner}": value for inner, value in part.get_params().items()}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set parameters by the names of `get_params`, as a grid search does.

        This changes the kernel in place, for all estimators, sums, sets and dictionaries that hold it. Fitted
        models and clones hold copies. Parts of a sum, product or `OnColumns` are replaced, not changed.

        Parameters
        ----------
        **params
            New values, checked as in the constructor; after an error nothing has changed.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If there is no such parameter, or its value is invalid.
        """
        new = self._with(params)
        for name in self.get_params(deep=False):
            object.__setattr__(self, name, getattr(new, name))
        return self

    def _with(self, params: Mapping[str, Any]) -> Kernel:
        """Return a copy with other parameters."""
        own, inner = self.get_params(deep=False), dict[str, dict[str, Any]]()
        parts = self._parts()
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in (parts if rest else own | parts):
                raise ValueError(
                    f"{key!r} is not a parameter of {self!r}; it has "
                    f"{', '.join(map(repr, self.get_params()))}"
                )
            if rest:
                inner.setdefault(name, {})[rest] = value
        whole = {key: value for key, value in params.items() if key in own}
        new = replace(self, **whole) if whole else self  # type: ignore[type-var] # a dataclass, as it has fields
        parts = new._parts() | {
            key: value for key, value in params.items() if key in parts and key not in own
        }
        if missing := [name for name in inner if name not in parts]:
            raise ValueError(f"{missing[0]!r} is not a part of {new!r}")
        return new._of_parts(parts | {name: parts[name]._with(rest) for name, rest in inner.items()})

    def _parts(self) -> dict[str, Kernel]:
        """Return the kernels that this one consists of, by their names in `get_params`."""
        return {}

    def _of_parts(self, parts: dict[str, Kernel]) -> Kernel:
        """Return this kernel with other parts."""
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a copy that shares no kernel with this one."""
        return deepcopy(self)

    def __add__(self, other: object) -> Sum:
        """Return the sum of two kernels."""
        return Sum((self, _kernel("+", other)))

    def __mul__(self, other: object) -> Product:
        """Return the product of two kernels."""
        return Product((self, _kernel("*", other)))


class Combination(Kernel):
    """A sum or a product of kernels: a dataclass with one field, the tuple of its parts."""

    __slots__ = ()

    #: Name of the field, and the operation on values and on kernels of the core.
    _field: ClassVar[str]
    _operation: ClassVar[np.ufunc]
    _combine: ClassVar[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, self._field, _flatten(self._field, self._members, type(self)))

    @property
    def _members(self) -> tuple[Kernel, ...]:
        members: tuple[Kernel, ...] = getattr(self, self._field)
        return members

    def _of_members(self, members: Iterable[Kernel]) -> Kernel:
        """Return the same combination of other kernels."""
        return replace(self, **{self._field: tuple(members)})  # type: ignore[type-var] # a dataclass

    def _parts(self) -> dict[str, Kernel]:
        # Numbered as in scikit-learn's Gaussian processes.
        return {f"k{number}": kernel for number, kernel in enumerate(self._members, 1)}

    def _of_parts(self, parts: dict[str, Kernel]) -> Kernel:
        return self._of_members(parts.values())

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if a part needs a number of inputs other than ``n_features``."""
        for kernel in self._members:
            kernel.check_features(n_features)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return reduce(self._operation, (kernel(x, z) for kernel in self._members))

    def _to_core(self) -> _core.Kernel | None:
        cores = [core for kernel in self._members if (core := kernel.to_core()) is not None]
        return self._combine(cores) if len(cores) == len(self._members) else None


@dataclass(frozen=True, slots=True, repr=False)
class Sum(Combination):
    """The sum of kernels, made by ``+``.

    Parameters
    ----------
    terms : sequence of Kernel
        At least one; sums among them are expanded.
    """

    terms: tuple[Kernel, ...]

    _field, _operation, _combine = "terms", np.add, staticmethod(_core.Kernel.sum)

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

    _field, _operation, _combine = "factors", np.multiply, staticmethod(_core.Kernel.product)

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

    Raises
    ------
    TypeError
        If function is not callable.

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

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        found = called("kernel", self.function, x.copy(order="C"), z.copy(order="C"))
        try:
            values = np.asarray(found)
        except ValueError as error:  # lists of unequal lengths
            raise ValueError(f"a kernel function must return an array: {error}") from None
        if values.shape != (len(x), len(z)):
            raise ValueError(
                f"a kernel function must return an array of shape {(len(x), len(z))}, one row per row of X "
                f"and one column per row of Z; the one given as kernel returned shape {values.shape}"
            )
        if values.dtype.kind not in "fiub":
            raise TypeError(
                "a kernel function must return real numbers; "
                f"the one given as kernel returned dtype {values.dtype}"
            )
        result = values.astype(np.float64)
        if not np.isfinite(result).all():
            raise ValueError(
                "a kernel function must return finite values; "
                "the one given as kernel returned NaN or infinity"
            )
        return result


def _kernel(operator: str, other: object) -> Kernel:
    if isinstance(other, Kernel):
        return other
    remedy = "wrap a function in kernels.Custom" if callable(other) else "kernels combine with kernels only"
    raise TypeError(f"cannot apply {operator} to a kernel and {other!r}: {remedy}")


def _flatten(name: str, kernels: Iterable[Kernel], kind: type[Combination]) -> tuple[Kernel, ...]:
    try:
        kernels = list(kernels)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of kernel objects, got {kernels!r}") from None
    flat: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"{name} must be kernel objects, got {kernel!r}; wrap a function in kernels.Custom"
            )
        flat.extend(kernel._members if isinstance(kernel, kind) else [kernel])
    if not flat:
        raise ValueError(f"{name} must hold at least one kernel")
    return tuple(flat)
