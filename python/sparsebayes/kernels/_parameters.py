"""The continuous parameters of kernels: values, replacement, natural scale and gradients.

Each parameter has a fixed sign and is represented by the logarithm of its absolute value. ``forward`` returns
the values K of a kernel and a function ``pull`` from D = dL/dK to dL/d(log parameters), which needs no array
of the size of K times the number of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce, singledispatch
from typing import Final

import numpy as np
from scipy.spatial.distance import cdist

from .._checks.numbers import column_means
from .._types import FloatArray
from ._base import Combination, Kernel, Product, Sum
from ._columns import OnColumns
from ._standard import Gaussian, Laplacian, Polynomial, Sigmoid

#: From dL/dK to dL/d(log parameters).
Pull = Callable[[FloatArray], FloatArray]
#: Bounds of the log parameters below and above their natural values: with a width of 1e4 times its standard
#: deviation an input has no effect.
_MAX_LOG_DECREASE: Final = np.log(1e3)
_MAX_LOG_INCREASE: Final = np.log(1e4)


def leaves(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the elementary kernels of sums and products, in the order of their parameters.

    Kernels inside `OnColumns` are yielded with their columns.
    """
    if isinstance(kernel, OnColumns):
        yield from (OnColumns(leaf, kernel.columns) for leaf in leaves(kernel.inner()))
        return
    if not isinstance(kernel, Combination):
        yield kernel
        return
    for part in kernel._members:
        yield from leaves(part)


def kind(leaf: Kernel) -> tuple[object, ...]:
    """Return the class and columns of a leaf; leaves of one kind have comparable parameters."""
    return (*kind(leaf.inner()), repr(leaf.columns)) if isinstance(leaf, OnColumns) else (type(leaf),)


# --- values ---------------------------------------------------------------------------------------


@singledispatch
def log_parameters(kernel: Kernel) -> FloatArray:
    """Return the logarithms of the absolute values of all continuous parameters."""
    parts = [leaf for leaf in leaves(kernel) if leaf is not kernel]
    return np.concatenate([log_parameters(part) for part in parts]) if parts else np.empty(0)


@log_parameters.register
def _(kernel: Gaussian) -> FloatArray:
    return np.log(np.atleast_1d(np.asarray(kernel.width, dtype=np.float64)))


@log_parameters.register
def _(kernel: Laplacian) -> FloatArray:
    return np.log([kernel.gamma])


@log_parameters.register(Polynomial)
@log_parameters.register(Sigmoid)
def _(kernel: Polynomial | Sigmoid) -> FloatArray:
    # A coef0 of 0 stays 0; others keep their sign.
    return np.log([kernel.gamma, *([abs(kernel.coef0)] if kernel.coef0 != 0.0 else [])])


@log_parameters.register
def _(kernel: OnColumns) -> FloatArray:
    return log_parameters(kernel.inner())


@singledispatch
def with_log_parameters(kernel: Kernel, theta: FloatArray) -> Kernel:
    """Return the kernel with other values of its continuous parameters."""
    return kernel


@with_log_parameters.register
def _(kernel: Gaussian, theta: FloatArray) -> Kernel:
    widths = tuple(map(float, np.exp(theta)))
    return Gaussian(widths if isinstance(kernel.width, tuple) else widths[0])


@with_log_parameters.register
def _(kernel: Laplacian, theta: FloatArray) -> Kernel:
    return Laplacian(float(np.exp(theta[0])))


@with_log_parameters.register(Polynomial)
@with_log_parameters.register(Sigmoid)
def _(kernel: Polynomial | Sigmoid, theta: FloatArray) -> Kernel:
    gamma, *rest = map(float, np.exp(theta))
    return replace(kernel, gamma=gamma, coef0=float(np.copysign(rest[0], kernel.coef0)) if rest else 0.0)


@with_log_parameters.register
def _(kernel: OnColumns, theta: FloatArray) -> Kernel:
    return replace(kernel, kernel=with_log_parameters(kernel.inner(), theta))


@with_log_parameters.register
def _(kernel: Combination, theta: FloatArray) -> Kernel:
    return kernel._of_members(with_all_log_parameters(kernel._members, theta))


def with_all_log_parameters(kernels: list[Kernel] | tuple[Kernel, ...], theta: FloatArray) -> list[Kernel]:
    """Return these kernels with other values of their parameters, given one kernel after another."""
    ends = np.cumsum([len(log_parameters(kernel)) for kernel in kernels])
    return [
        with_log_parameters(kernel, part)
        for kernel, part in zip(kernels, np.split(theta, ends[:-1]), strict=True)
    ]


# --- natural values -------------------------------------------------------------------------------


@singledispatch
def natural(kernel: Kernel, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return log parameters in proportion to the standard deviations of X.

    For kernels of the distance the exponent of two rows is then 1/2 on average, with equal shares of the
    inputs; for kernels of the inner product its average square is 1.
    """
    parts = [natural(leaf, X, weights) for leaf in leaves(kernel) if leaf is not kernel]
    return np.concatenate(parts) if parts else np.empty(0)


@natural.register
def _(kernel: Gaussian, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    stds = column_stds(X, weights)
    if not isinstance(kernel.width, tuple):
        return np.log([2.0 * (np.sqrt(np.sum(stds**2)) or 1.0)])
    stds[stds == 0.0] = 1.0  # a constant input has any width
    widths: FloatArray = np.log(2.0 * np.sqrt(X.shape[1]) * stds)
    return widths if len(kernel.width) == X.shape[1] else np.atleast_1d(widths.mean())


@natural.register
def _(kernel: Laplacian, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    # The mean distance of two normal numbers is 2 / sqrt(pi) of their standard deviation.
    total = float(column_stds(X, weights).sum()) or 1.0
    return -np.log([total * 4.0 / np.sqrt(np.pi)])


@natural.register(Polynomial)
@natural.register(Sigmoid)
def _(kernel: Polynomial | Sigmoid, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    square = float(np.sum(np.average(X**2, axis=0, weights=weights)))
    gamma = -np.log(square) if square > 0.0 else 0.0
    return np.array([gamma, *([np.log(abs(kernel.coef0))] if kernel.coef0 != 0.0 else [])])


@natural.register
def _(kernel: OnColumns, X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    return natural(kernel.inner(), kernel.select(X), weights)


def column_stds(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the standard deviation of each column of X, exactly 0 if it is constant up to rounding."""
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported where the values are used
        means = column_means(X, weights)
        stds: FloatArray = np.sqrt(np.average((X - means) ** 2, axis=0, weights=weights))
        stds[stds <= 8.0 * np.finfo(float).eps * np.abs(means)] = 0.0
    return stds


def length_powers(kernel: Kernel) -> FloatArray:
    """Return 1 for each parameter that is a length, -1 for an inverse length, 0 for others."""
    sign: dict[object, float] = {Gaussian: 1.0, Laplacian: -1.0}
    parts = [np.full(len(log_parameters(leaf)), sign.get(kind(leaf)[0], 0.0)) for leaf in leaves(kernel)]
    return np.concatenate(parts)


def bounds(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return the least and largest log of each parameter, (n, 2)."""
    centre, power = natural(kernel, X), length_powers(kernel)
    # A width below the distance of neighbours is an optimum at zero width, with a function for every row. For
    # one evenly spaced input the natural width of N rows is about N/4 of these distances.
    below = np.where(power != 0.0, np.clip(np.log(len(X) / 4.0), 1.0, _MAX_LOG_DECREASE), _MAX_LOG_DECREASE)
    above = np.full(len(centre), _MAX_LOG_INCREASE)
    return np.column_stack(
        [centre - np.where(power < 0.0, above, below), centre + np.where(power < 0.0, below, above)]
    )


# --- gradients ------------------------------------------------------------------------------------


@singledispatch
def forward(kernel: Kernel, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    """Return k(X, Z) and the function that pulls dL/dK back to the log parameters."""
    return kernel(X, Z), lambda D: np.empty(0)


@forward.register
def _(kernel: Gaussian, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    # d exp(-sum_d (x_d - z_d)^2 / w_d^2) / d ln w_d = 2 k (x_d - z_d)^2 / w_d^2.
    width = np.asarray(kernel.width, dtype=np.float64)
    centre = X.mean(axis=0)  # the expanded square below would cancel for numbers far from 0
    x, z = (X - centre) / width, (Z - centre) / width
    K: FloatArray = np.exp(-cdist(x, z, "sqeuclidean"))

    def pull(D: FloatArray) -> FloatArray:
        M = D * K
        squares = M.sum(axis=1) @ x**2 + M.sum(axis=0) @ z**2 - 2.0 * np.sum(x * (M @ z), axis=0)
        return 2.0 * (squares if width.size == X.shape[1] > 1 else np.atleast_1d(squares.sum()))

    return K, pull


@forward.register
def _(kernel: Laplacian, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    exponent = -kernel.gamma * cdist(X, Z, "cityblock")
    K: FloatArray = np.exp(exponent)
    return K, lambda D: np.atleast_1d(np.sum(D * K * exponent))


@forward.register
def _(kernel: Polynomial, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    product = kernel.gamma * (X @ Z.T)
    base = product + kernel.coef0
    K: FloatArray = base**kernel.degree
    slope = kernel.degree * base ** (kernel.degree - 1)
    return K, lambda D: _affine(D * slope, product, kernel.coef0)


@forward.register
def _(kernel: Sigmoid, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    product = kernel.gamma * (X @ Z.T)
    K: FloatArray = np.tanh(product + kernel.coef0)
    return K, lambda D: _affine(D * (1.0 - K**2), product, kernel.coef0)


def _affine(D: FloatArray, product: FloatArray, coef0: float) -> FloatArray:
    """Gradient in ln gamma and ln |coef0| of what depends on gamma x.z + coef0 with the slopes D."""
    return np.array([np.sum(D * product), *([coef0 * D.sum()] if coef0 != 0.0 else [])])


@forward.register
def _(kernel: OnColumns, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    return forward(kernel.inner(), kernel.select(X), kernel.select(Z))


@forward.register
def _(kernel: Sum, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    values, pulls = zip(*(forward(term, X, Z) for term in kernel.terms), strict=True)
    return reduce(np.add, values), lambda D: np.concatenate([pull(D) for pull in pulls])


@forward.register
def _(kernel: Product, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    values, pulls = zip(*(forward(factor, X, Z) for factor in kernel.factors), strict=True)

    def pull(D: FloatArray) -> FloatArray:
        parts = []
        for i, back in enumerate(pulls):
            # Not K divided by the factor, which may be 0.
            others = [value for j, value in enumerate(values) if j != i]
            parts.append(back(reduce(np.multiply, others, D)))
        return np.concatenate(parts)

    return reduce(np.multiply, values), pull
