"""What every kernel can do; kernels made of functions, sums and products of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._checks.arguments import check_flag
from .._checks.numbers import called, real_array
from .._types import FloatArray, KernelFunction

if TYPE_CHECKING:
    from typing_extensions import Self


class Kernel:
    """A kernel k(x, z). Base of the classes of this module; give ``Custom`` a function to make your own."""

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
            If X or Z is no matrix of real numbers, if they do not have the same number of columns, or not the
            number the kernel was made for.
        """
        x, z = real_array("X", X), real_array("Z", Z)
        if x.ndim != 2 or z.ndim != 2 or x.shape[1] != z.shape[1]:
            raise ValueError(
                f"X and Z must be matrices with the same number of columns, got {x.shape} and {z.shape}"
            )
        self.check_features(x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # infinities are what such numbers have
            return self._values(x, z)

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        raise NotImplementedError

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if the kernel was made for another number of inputs than ``n_features``."""

    def to_core(self) -> _core.Kernel | None:
        """Return the compiled core's own version of this kernel, or None where it has none."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn's estimators and kernels do.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return those of the parts too: ``k1``, ``k1__width``, ``k2`` and so on of a sum or a
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
        """Set parameters by the names of `get_params`, so that a grid search can.

        This changes the kernel in place, and with it whatever shares it: other estimators, sums, and sets or
        dictionaries that have it for a key. Fitted models and clones have copies. Parts of a sum, product or
        `OnColumns` are replaced, so that a kernel that is a part of several stays what it is.

        Parameters
        ----------
        **params
            New values, checked as in the constructor; if one is refused nothing changes.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If there is no such parameter, or it cannot have that value.
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
                    f"{key!r} is no parameter of {self!r}; it has {', '.join(map(repr, self.get_params()))}"
                )
            if rest:
                inner.setdefault(name, {})[rest] = value
        whole = {key: value for key, value in params.items() if key in own}
        new = replace(self, **whole) if whole else self  # type: ignore[type-var] # a dataclass, as it has fields
        parts = new._parts() | {
            key: value for key, value in params.items() if key in parts and key not in own
        }
        if missing := [name for name in inner if name not in parts]:
            raise ValueError(f"{missing[0]!r} is no part of {new!r}")
        return new._of_parts(parts | {name: parts[name]._with(rest) for name, rest in inner.items()})

    def _parts(self) -> dict[str, Kernel]:
        """Return the kernels that this one is made of, by the names that `get_params` has for them."""
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


@dataclass(frozen=True, slots=True, repr=False)
class Sum(Kernel):
    """The sum of kernels; what ``+`` makes.

    Parameters
    ----------
    terms : sequence of Kernel
        At least one; sums among them are taken apart.
    """

    terms: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        """Check and normalise the parameters."""
        object.__setattr__(self, "terms", _flatten("terms", self.terms, Sum))

    def _parts(self) -> dict[str, Kernel]:
        return _numbered(self.terms)

    def _of_parts(self, parts: dict[str, Kernel]) -> Sum:
        return Sum(tuple(parts.values()))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return reduce(np.add, (term(x, z) for term in self.terms))

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if a term was made for another number of inputs than ``n_features``."""
        for term in self.terms:
            term.check_features(n_features)

    def to_core(self) -> _core.Kernel | None:
        """Return the compiled core's own version of this kernel, or None where a term has none."""
        parts = _all_to_core(self.terms)
        return None if parts is None else _core.Kernel.sum(parts)

    def __repr__(self) -> str:
        """Return the terms with plus signs between."""
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True, slots=True, repr=False)
class Product(Kernel):
    """The product of kernels; what ``*`` makes.

    Parameters
    ----------
    factors : sequence of Kernel
        At least one; products among them are taken apart.
    """

    factors: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        """Check and normalise the parameters."""
        object.__setattr__(self, "factors", _flatten("factors", self.factors, Product))

    def _parts(self) -> dict[str, Kernel]:
        return _numbered(self.factors)

    def _of_parts(self, parts: dict[str, Kernel]) -> Product:
        return Product(tuple(parts.values()))

    def _values(self, x: FloatArray, z: FloatArray) -> FloatArray:
        return reduce(np.multiply, (factor(x, z) for factor in self.factors))

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if a factor was made for another number of inputs than ``n_features``."""
        for factor in self.factors:
            factor.check_features(n_features)

    def to_core(self) -> _core.Kernel | None:
        """Return the compiled core's own version of this kernel, or None where a factor has none."""
        parts = _all_to_core(self.factors)
        return None if parts is None else _core.Kernel.product(parts)

    def __repr__(self) -> str:
        """Return the factors with asterisks between."""
        return " * ".join(
            f"({factor!r})" if isinstance(factor, Sum) else repr(factor) for factor in self.factors
        )


@dataclass(frozen=True, slots=True)
class Custom(Kernel):
    """A kernel given by a function k(X, Z) -> (n, m), evaluated in NumPy.

    Parameters
    ----------
    function : callable
        Called with float64 arrays of shapes (n, n_features) and (m, n_features); returns real, finite
        values of shape (n, m). The arrays are copies, made for each call, which it may change.

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
        """Check and normalise the parameters."""
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


def _flatten(name: str, kernels: Iterable[Kernel], kind: type[Sum] | type[Product]) -> tuple[Kernel, ...]:
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
        flat.extend(getattr(kernel, fields(kind)[0].name) if isinstance(kernel, kind) else [kernel])
    if not flat:
        raise ValueError(f"{name} must hold at least one kernel")
    return tuple(flat)


def _numbered(kernels: Sequence[Kernel]) -> dict[str, Kernel]:
    """Return the parts of a sum or a product by name, as scikit-learn's Gaussian processes count theirs."""
    return {f"k{number}": kernel for number, kernel in enumerate(kernels, 1)}


def _all_to_core(kernels: Iterable[Kernel]) -> list[_core.Kernel] | None:
    parts = [kernel.to_core() for kernel in kernels]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None
