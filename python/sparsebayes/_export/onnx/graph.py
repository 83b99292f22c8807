"""A graph of ONNX operators under construction, as plain data: ONNX itself is not needed for it.

Every operator used is unchanged since version 13 of the operator set, and onnxruntime implements it in
single and in double precision. (Erf, Sinh and Softplus lack double precision; the reductions other than
ReduceSum changed in version 18.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: A value of the graph, or numbers that become a constant of it.
Operand: TypeAlias = Union["Value", ArrayLike]


@dataclass(frozen=True)
class Node:
    """An operator with one output."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


def _binary(op: str) -> Callable[[Value, Operand], Value]:
    """Return a method that applies an elementwise operator of two inputs, or the matrix product."""
    return lambda self, other: self.graph.apply(op, self, self.graph.real(other))


@dataclass(frozen=True)
class Value:
    """The output of an operator; arithmetic with it adds operators to its graph."""

    graph: Graph
    name: str

    __add__ = _binary("Add")
    __sub__ = _binary("Sub")
    __mul__ = _binary("Mul")
    __truediv__ = _binary("Div")
    __matmul__ = _binary("MatMul")
    minimum = _binary("Min")
    maximum = _binary("Max")

    def __neg__(self) -> Value:
        return self.map("Neg")

    def map(self, op: str, **attributes: int) -> Value:
        """Apply a unary operator."""
        return self.graph.apply(op, self, **attributes)

    def squared(self) -> Value:
        """Return the square."""
        return self * self

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        """Return the sum along an axis."""
        return self.graph.apply("ReduceSum", self, self.graph.integers([axis]), keepdims=int(keep))

    def take(self, indices: ArrayLike, axis: int) -> Value:
        """Return the elements at these indices of an axis."""
        return self.graph.apply("Gather", self, self.graph.integers(indices), axis=axis)

    def part(self, start: int, stop: int, axis: int) -> Value:
        """Return a slice along an axis."""
        bounds = [self.graph.integers([at]) for at in (start, stop, axis)]
        return self.graph.apply("Slice", self, *bounds)

    def expand_dims(self, axis: int) -> Value:
        """Return this value with another axis, of length 1."""
        return self.graph.apply("Unsqueeze", self, self.graph.integers([axis]))

    def squeeze(self, axis: int) -> Value:
        """Return this value without an axis of length 1."""
        return self.graph.apply("Squeeze", self, self.graph.integers([axis]))


class Graph:
    """Operators in the order of evaluation, and their constants.

    Every name denotes one value: a constant, the output of an earlier operator, or the input.
    """

    def __init__(self, dtype: np.dtype[Any], n_features: int) -> None:
        self.dtype = dtype
        self.n_features = n_features
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        #: The rows to predict at, (n, n_features).
        self.x = Value(self, "X")

    def apply(self, op: str, *inputs: Value, **attributes: int) -> Value:
        """Add an operator."""
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(Node(op, tuple(value.name for value in inputs), output, attributes))
        return Value(self, output)

    def publish(self, value: Value, name: str) -> None:
        """Give a value the name of an output."""
        self.nodes.append(Node("Identity", (value.name,), name, {}))

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
        """Return integers."""
        return self.constant(np.asarray(values, dtype=np.int64))

    def join(self, parts: list[Value], axis: int) -> Value:
        """Concatenate values along an axis."""
        return parts[0] if len(parts) == 1 else self.apply("Concat", *parts, axis=axis)

    def repeat_rows(self, row: NDArray[Any]) -> Value:
        """Repeat a row for each row of the input."""
        n_rows = self.x.map("Shape").part(0, 1, 0)
        return self.apply("Expand", self.real(row), self.join([n_rows, self.integers([len(row)])], 0))

    def constant(self, values: NDArray[Any]) -> Value:
        """Return a constant of this type; equal constants are stored once."""
        content = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        key = (values.dtype.str, values.shape, content)
        if key not in self._known:
            self._known[key] = Value(self, f"constant_{len(self.constants)}")
            self.constants[self._known[key].name] = values
        return self._known[key]
