"""Kernels on some of the columns of X, and the selection of columns."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from .._checks import NOT_NUMBERS, check_integer, real_array
from .._types import FloatArray, IntArray, KernelFunction
from ._base import Custom, Kernel, Pull

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

    def _natural(self, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        return self.inner()._natural(self.select(X), weights)

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
