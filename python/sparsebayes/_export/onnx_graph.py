"""A graph of ONNX operators under construction, as plain data: ONNX itself is not needed for it.

Every operator used means the same since version 13 of the operator set, and onnxruntime implements it in
single and in double precision. (Erf, Sinh and Softplus lack double precision.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias, Union, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from .._types import FloatArray, IntArray
from ..kernels import Kernel, Linear, OnColumns
from ..kernels._base import Combination
from ..kernels._standard import Affine
from .description import Block, Columns, Constant, Traced

#: A value of the graph, or numbers that become a constant of it.
Operand: TypeAlias = Union["Value", ArrayLike]
#: Functions of NumPy in ONNX; all others have the same name in both, in lower case there.
_OPERATORS = {"subtract": "Sub", "multiply": "Mul", "divide": "Div", "matmul": "MatMul", "negative": "Neg"}
_OPERATORS |= {"absolute": "Abs", "minimum": "Min", "maximum": "Max", "rint": "Round"}
#: Most differences between a row and the centres in memory at a time: 128 KiB in double precision.
_MAX_DIFFERENCES = 2**14


class Node(NamedTuple):
    op: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Value(Traced):
    """The output of an operator; arithmetic with it adds operators to its graph."""

    graph: Graph
    name: str

    def _apply(self, function: str, inputs: tuple[Any, ...]) -> Value:
        if function == "log1p":
            return self._log1p()
        operands = map(self.graph.real, inputs)
        return self.graph.apply(_OPERATORS.get(function, function.title()), *operands)

    def map(self, op: str, **attributes: Any) -> Value:
        return self.graph.apply(op, self, **attributes)

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        return self.graph.apply("ReduceSum", self, self.graph.integers([axis]), keepdims=int(keep))

    def take(self, indices: ArrayLike, axis: int) -> Value:
        return self.graph.apply("Gather", self, self.graph.integers(indices), axis=axis)

    def part(self, start: int, stop: int, axis: int) -> Value:
        bounds = [self.graph.integers([at]) for at in (start, stop, axis)]
        return self.graph.apply("Slice", self, *bounds)

    def expand_dims(self, axis: int) -> Value:
        return self.graph.apply("Unsqueeze", self, self.graph.integers([axis]))

    def squeeze(self, axis: int) -> Value:
        return self.graph.apply("Squeeze", self, self.graph.integers([axis]))

    def _log1p(self) -> Value:
        """Return ln(1 + t) for t >= 0, with the error of u = 1 + t corrected to first order."""
        t: Any = self._apply("minimum", (self, np.finfo(self.graph.dtype).max / 4.0))
        u = t + 1.0
        value: Value = np.log(u) + (t - (u - 1.0)) / u
        return value


def evaluate(kernel: Kernel, x: Value, points: FloatArray) -> Value:
    """Return k of rows x, (n, d), and points, (m, d): (n, m)."""
    operation, (n_points, n_inputs) = kernel._operation, points.shape
    if isinstance(kernel, Combination):
        return reduce(operation, (evaluate(part, x, points) for part in kernel._members))
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(n_inputs)
        return evaluate(kernel.inner(), x.take(columns, 1), points[:, columns])
    if isinstance(kernel, Linear):
        return cast(Value, kernel.centred(x) @ kernel.centred(points).T)
    if isinstance(kernel, Affine):
        return cast(Value, kernel._profile(x @ (kernel.gamma * points.T) + kernel.coef0))
    constants, parts = kernel._per_input(), []
    # The reductions but ReduceSum changed in version 18 of the operator set.
    step = max(1, _MAX_DIFFERENCES // max(1, n_points)) if operation is np.add else 1
    for start in range(0, n_inputs, step):
        at = slice(start, min(start + step, n_inputs))
        block = x if step >= n_inputs else x.part(at.start, at.stop, 1)
        terms = kernel._term(
            block.expand_dims(1), points[np.newaxis, :, at], None if constants is None else constants[at]
        )
        parts.append(terms.sum(2))
    return cast(Value, kernel._of_total(reduce(operation, parts)))


def diagonal(kernel: Kernel, x: Value, n_inputs: int) -> Value:
    """Return k(x, x) of each row of x, (n, n_inputs): (n, 1)."""
    operation = kernel._operation
    if isinstance(kernel, Combination):
        return reduce(operation, (diagonal(part, x, n_inputs) for part in kernel._members))
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(n_inputs)
        return diagonal(kernel.inner(), x.take(columns, 1), len(columns))
    constants = kernel._per_input()
    if operation is np.add:
        return cast(Value, kernel._of_total(kernel._term(x, x, constants).sum(1, keep=True)))
    inputs = (x.part(d, d + 1, 1) for d in range(n_inputs))
    each = [None] * n_inputs if constants is None else constants
    terms = (kernel._term(value, value, constant) for value, constant in zip(inputs, each, strict=True))
    return cast(Value, kernel._of_total(reduce(operation, terms)))


class Graph:
    """Operators in the order of evaluation, and their constants.

    Every name denotes one value: a constant, the output of an earlier operator, or the input ``x``, the rows
    to predict at, (n, n_features). ``unique`` makes names that no other part of the model has.
    """

    def __init__(self, dtype: np.dtype[Any], x: str = "X", unique: Callable[[str], str] = str) -> None:
        self.dtype, self.x, self._unique = dtype, Value(self, x), unique
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def apply(self, op: str, *inputs: Value, output: str | None = None, **attributes: int) -> Value:
        """Add an operator; ``output`` is the name of its result."""
        output = output or self._unique(f"{op.lower()}_{len(self.nodes)}")
        self.nodes.append(Node(op, [value.name for value in inputs], output, attributes))
        return Value(self, output)

    def real(self, values: Operand) -> Value:
        """Return real numbers in the precision of the graph; ValueError if one is too large for it."""
        if isinstance(values, Value):
            return values
        exact = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore"):
            stored = exact.astype(self.dtype)
        if not np.array_equal(np.isfinite(exact), np.isfinite(stored)):
            raise ValueError(
                f"the model holds numbers up to {np.abs(exact).max():.3g}, too large for "
                f"dtype={self.dtype.name!r}; use dtype='float64', or scale X and y and fit again"
            )
        return self.constant(stored)

    def integers(self, values: ArrayLike) -> Value:
        return self.constant(np.asarray(values, dtype=np.int64))

    def join(self, parts: list[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.apply("Concat", *parts, axis=axis)

    def repeat_rows(self, row: NDArray[Any]) -> Value:
        n_rows = self.x.map("Shape").part(0, 1, 0)
        return self.apply("Expand", self.real(row), self.join([n_rows, self.integers([len(row)])], 0))

    def constant(self, values: NDArray[Any]) -> Value:
        """Return a constant of this type; equal constants are stored once."""
        content = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        key = (values.dtype.str, values.shape, content)
        if key not in self._known:
            self._known[key] = Value(self, self._unique(f"constant_{len(self.constants)}"))
            self.constants[self._known[key].name] = values
        return self._known[key]


def _factors(kernel: Kernel, x: Value, points: FloatArray) -> tuple[Value, FloatArray]:
    """Return values (n, q) and numbers (q, m) whose product is k."""
    if isinstance(kernel, OnColumns):
        columns = kernel.positions(points.shape[1])
        return _factors(kernel.inner(), x.take(columns, 1), points[:, columns])
    if isinstance(kernel, Linear):
        return kernel.centred(x), kernel.centred(points).T
    return evaluate(kernel, x, points), np.eye(len(points))


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
                continue
            if isinstance(block, Columns):
                part, slope = graph.x.take(block.columns, 1), np.eye(block.size)
                part = part - block.offsets if block.offsets.any() else part
            else:
                part, slope = _factors(block.kernel, graph.x, block.points)
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
        if self._values is None or not slopes.any():
            return self._graph.repeat_rows(at_zero)
        product: Value = self._values @ slopes
        return product + at_zero if at_zero.any() else product
