"""The basis functions of a served model as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, mul
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from ... import kernels
from ..._types import FloatArray, IntArray
from ..description import Block, Centres, Columns, Constant
from .graph import Graph, Value

#: Most differences between a row and the centres in memory at a time: 128 KiB in double precision.
_MAX_DIFFERENCES = 2**14
#: A function of rows (n, 1, b), points (1, m, b) and the positions of these b inputs: (n, m).
Term: TypeAlias = Callable[[Value, FloatArray, slice], Value]


class Basis:
    """The basis functions at the rows of the input, and linear combinations of them.

    Linear kernels are not evaluated: sum_j w_j x.z_j is computed as x.(sum_j w_j z_j), so that large terms
    cancel in double precision before they reach the graph.
    """

    def __init__(self, graph: Graph, blocks: list[Block]) -> None:
        self._graph = graph
        self.size = sum(block.size for block in blocks)
        constant = [isinstance(block, Constant) for block in blocks for _ in range(block.size)]
        self._at_zero = np.array(constant, dtype=np.float64)
        parts: list[Value] = []
        slopes = [np.empty((0, 0))]
        for block in blocks:
            if isinstance(block, Constant):
                slopes.append(np.empty((0, 1)))
            else:
                part, slope = _functions(graph, block)
                parts.append(part)
                slopes.append(slope)
        self._values = graph.join(parts, 1) if parts else None
        #: (values, functions): the functions are `_values` @ `_slopes` + `_at_zero`.
        self._slopes = block_diag(*slopes)

    def placed(self, functions: IntArray, rows: FloatArray) -> FloatArray:
        """Return rows for all functions: ``rows`` at ``functions``, 0 elsewhere."""
        placed = np.zeros((self.size, *rows.shape[1:]))
        placed[functions] = rows
        return placed

    def linear(self, weights: FloatArray) -> Value:
        """Return the functions times these weights, (n, k); a row of weights for each function."""
        at_zero = self._at_zero @ weights
        slopes = self._slopes @ weights
        used = np.flatnonzero(slopes.any(axis=1))
        if self._values is None or len(used) == 0:
            return self._graph.repeat_rows(at_zero)
        values = self._values
        # Copying the few values in use is less work than multiplying the many others by 0.
        if 2 * len(used) <= len(slopes):
            values, slopes = values.take(used, 1), slopes[used]
        product: Value = values @ slopes
        if at_zero.any():
            product += at_zero
        return product


def _functions(graph: Graph, block: Columns | Centres) -> tuple[Value, FloatArray]:
    """Return values (n, q) and a matrix (q, size); their product is the functions of a block."""
    if isinstance(block, Columns):
        chosen = graph.x.take(block.columns, 1)
        return chosen - block.offsets if block.offsets.any() else chosen, np.eye(block.size)
    kernel, x, points = block.kernel, graph.x, block.points
    if isinstance(kernel, kernels.OnColumns):
        columns = kernel.positions(points.shape[1])
        kernel, x, points = kernel.inner(), x.take(columns, 1), points[:, columns]
    if isinstance(kernel, kernels.Linear):
        return _centred(kernel, x), kernel.centred(points).T
    return values(kernel, x, points), np.eye(block.size)


def values(kernel: kernels.Kernel, x: Value, points: FloatArray) -> Value:
    """Return the kernel between rows x, (n, d), and points, (m, d): (n, m)."""
    match kernel:
        case kernels.Gaussian():
            return (-_over_inputs(x, points, _squares_over(kernel.width, points), add)).map("Exp")
        case kernels.Laplacian():
            distance = _over_inputs(x, points, lambda x, z, _: (x - z).map("Abs").sum(-1), add)
            return (distance * -kernel.gamma).map("Exp")
        case kernels.Linear():
            return _centred(kernel, x) @ kernel.centred(points).T
        case kernels.Polynomial():
            return _power(_affine(x, points, kernel.gamma, kernel.coef0), kernel.degree)
        case kernels.Sigmoid():
            return _affine(x, points, kernel.gamma, kernel.coef0).map("Tanh")
        case kernels.LinearSpline():
            return _over_inputs(x, points, _spline_factor, mul)
        case kernels.Sum():
            return reduce(add, (values(term, x, points) for term in kernel.terms))
        case kernels.Product():
            return reduce(mul, (values(factor, x, points) for factor in kernel.factors))
        case kernels.OnColumns():
            columns = kernel.positions(points.shape[1])
            return values(kernel.inner(), x.take(columns, 1), points[:, columns])
    raise TypeError(f"kernel {kernel!r} cannot be exported")


def _squares_over(width: ArrayLike, points: FloatArray) -> Term:
    widths = np.broadcast_to(width, points.shape[1])
    # Differences, not the expanded square, whose rounding error grows with the distance from the origin.
    return lambda x, z, at: ((x - z) * (1.0 / widths[at])).squared().sum(-1)


def _spline_factor(x: Value, z: FloatArray, at: slice) -> Value:
    # With m = min(x, z), M = max(x, z): x z m - (x + z) m^2 / 2 + m^3 / 3 = m^2 (M / 2 - m / 6).
    lower, upper = x.minimum(z), x.maximum(z)
    factors = lower * upper + lower.squared() * (upper * 0.5 - lower * (1.0 / 6.0)) + 1.0
    return _product_of_last(factors, z.shape[-1])


def _centred(kernel: kernels.Linear, x: Value) -> Value:
    return x if kernel.offset is None else x - np.asarray(kernel.offset)


def _over_inputs(x: Value, points: FloatArray, term: Term, join: Callable[[Value, Value], Value]) -> Value:
    """Evaluate ``term`` at blocks of b inputs, rows (n, 1, b) and points (1, m, b), and join them: (n, m)."""
    n_points, n_inputs = points.shape
    step = max(1, _MAX_DIFFERENCES // max(1, n_points))
    terms = []
    for start in range(0, n_inputs, step):
        stop = min(start + step, n_inputs)
        block = x if stop - start == n_inputs else x.part(start, stop, 1)
        terms.append(term(block.expand_dims(1), points[np.newaxis, :, start:stop], slice(start, stop)))
    return reduce(join, terms)


def _affine(x: Value, points: FloatArray, gamma: float, coef0: float) -> Value:
    product = x @ (gamma * points.T)
    return product + coef0 if coef0 != 0.0 else product


def _power(base: Value, exponent: int) -> Value:
    """Return a positive integer power by squaring: on some devices pow() of a negative base is NaN."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2).squared()
    return half * base if exponent % 2 else half


def _product_of_last(factors: Value, n: int) -> Value:
    """Return the product along the last of three axes, of length n."""
    while n > 1:
        half = n // 2
        product = factors.part(0, half, 2) * factors.part(half, 2 * half, 2)
        odd = [factors.part(2 * half, n, 2)] if n % 2 else []
        factors, n = factors.graph.join([product, *odd], 2), half + n % 2
    return factors.squeeze(2)
