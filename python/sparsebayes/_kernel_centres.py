"""Gradients of kernels in the centres, where these may move.

``about`` evaluates a kernel about centres Z and returns with the values K a function ``pull``: from D = dL/dK
to dL/dZ. Equations are derivatives of those in `sparsebayes.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, singledispatch

import numpy as np
from scipy.spatial.distance import cdist

from ._kernel_parameters import pulled_factors
from ._types import FloatArray
from .kernels import Gaussian, Kernel, Linear, LinearSpline, Polynomial, Product, Sigmoid, Sum

#: From dL/dK, (n, m), to dL/dZ, (m, d).
Pull = Callable[[FloatArray], FloatArray]


def is_smooth(kernel: Kernel) -> bool:
    """Tell whether the kernel has a gradient in its centres everywhere."""
    if isinstance(kernel, Sum):
        return all(map(is_smooth, kernel.terms))
    if isinstance(kernel, Product):
        return all(map(is_smooth, kernel.factors))
    return isinstance(kernel, (Gaussian, Linear, LinearSpline, Polynomial, Sigmoid))


@singledispatch
def about(kernel: Kernel, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    """Return k(X, Z) and the function that pulls dL/dK back to the centres."""
    raise TypeError(f"no gradient in the centres of {kernel!r}")


@about.register
def _(kernel: Gaussian, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    # dk/dz = 2 k (x - z) / w^2.
    width = np.asarray(kernel.width, dtype=np.float64)
    middle = X.mean(axis=0)  # numbers far from 0 would cancel below
    x, z = (X - middle) / width, (Z - middle) / width
    K: FloatArray = np.exp(-cdist(x, z, "sqeuclidean"))

    def pull(D: FloatArray) -> FloatArray:
        M = D * K
        slope: FloatArray = 2.0 / width * (M.T @ x - M.sum(axis=0)[:, np.newaxis] * z)
        return slope

    return K, pull


@about.register
def _(kernel: Linear, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    return kernel(X, Z), lambda D: np.asarray(D.T @ kernel.centred(X))


@about.register
def _(kernel: Polynomial, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    base = kernel.gamma * (X @ Z.T) + kernel.coef0
    slope = kernel.degree * kernel.gamma * base ** (kernel.degree - 1)
    return base**kernel.degree, lambda D: np.asarray((D * slope).T @ X)


@about.register
def _(kernel: Sigmoid, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    K = kernel(X, Z)
    return K, lambda D: np.asarray(kernel.gamma * (D * (1.0 - K**2)).T @ X)


@about.register
def _(kernel: LinearSpline, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    # A factor is 1 + xz + xz^2 / 2 - z^3 / 6 where z < x, and 1 + xz + zx^2 / 2 - x^3 / 6 elsewhere: the
    # slopes x + xz - z^2 / 2 and x + x^2 / 2 meet at z = x.
    columns = [(X[:, [j]], Z[:, [j]]) for j in range(X.shape[1])]
    factors = [LinearSpline()(x, z) for x, z in columns]

    def pull(D: FloatArray) -> FloatArray:
        gradient = np.empty_like(Z)
        for j, (x, z) in enumerate(columns):
            least = np.minimum(x, z.T)
            others = [factor for i, factor in enumerate(factors) if i != j]
            slope = x + x * least - 0.5 * least**2
            gradient[:, j] = np.sum(reduce(np.multiply, others, D) * slope, axis=0)
        return gradient

    return reduce(np.multiply, factors), pull


@about.register
def _(kernel: Sum, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    values, pulls = zip(*(about(term, X, Z) for term in kernel.terms), strict=True)
    return reduce(np.add, values), lambda D: reduce(np.add, [pull(D) for pull in pulls])


@about.register
def _(kernel: Product, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pull]:
    values, pulls = zip(*(about(factor, X, Z) for factor in kernel.factors), strict=True)

    return reduce(np.multiply, values), lambda D: reduce(np.add, pulled_factors(values, pulls, D))
