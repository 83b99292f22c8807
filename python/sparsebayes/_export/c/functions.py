"""The basis functions of a model as C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import kernels
from ..description import Centres, Columns, Constant
from .source import Source, Table

if TYPE_CHECKING:
    from ..._types import IntArray
    from ..description import Block

_CENTRES = """\
static inline void $name(const $REAL *x, $REAL *phi)
{
$gather    for (size_t j = 0; j < $n; j++) {
        const $type *z = $points + $width * j;
        phi[j] = $value;
    }
}
"""

_GATHER = """\
    $REAL at[$width];
    for (size_t d = 0; d < $width; d++)
        at[d] = x[$columns[d]];
"""

_LEAF = """\
static inline $REAL $name(const $REAL *x, const $type *z)
{
    $REAL s = $start;
    for (size_t d = 0; d < $n; d++) {
$term
    }
    return $value;
}
"""

_POWER = """\
static inline $REAL ${NAME}_power_($REAL base, unsigned long degree)
{
    $REAL result = 1.0$f;
    for (; degree > 0; degree >>= 1) {
        if (degree & 1)
            result *= base;
        base *= base;
    }
    return result;
}
"""

_SPLINE = """\
        const $REAL a = x[$d], b = z[$d], m = a < b ? a : b;
        s *= 1.0$f + a * b + a * b * m - 0.5$f * (a + b) * m * m + m * m * m / 3.0$f;"""

_FUNCTIONS = """\
/* The basis functions at x. */
static inline void ${NAME}_functions_(const $REAL *x, $REAL *phi)
{
$body}
"""


class Functions:
    """Writes the C functions that evaluate the blocks of a model, and counts their stack memory."""

    def __init__(self, source: Source, n_features: int) -> None:
        self._source = source
        self._n_features = n_features
        #: Definitions, each after those that it calls.
        self.definitions: list[str] = []
        #: Numbers on the stack in addition to phi.
        self.scratch = 0
        self._leaves: dict[tuple[kernels.Kernel, int, str], str] = {}

    def write(self, blocks: list[Block]) -> None:
        """Write ``NAME_functions_(x, phi)``."""
        body, start = "    (void)x;\n    (void)phi;\n", 0
        for block in blocks:
            match block:
                case Constant():
                    body += self._source.fill("    phi[$start] = 1.0$f;\n", start=start)
                case Columns() if block.size > 0:
                    body += self._columns(block, start)
                case Centres() if block.size > 0:
                    body += self._centres(block, start)
            start += block.size
        self.definitions.append(self._source.fill(_FUNCTIONS, body=body))

    def _columns(self, block: Columns, start: int) -> str:
        first, n = int(block.columns[0]), block.size
        if np.array_equal(block.columns, np.arange(first, first + n)):
            column = f"{first} + j"
        else:
            column = f"{self._source.indices('columns', block.columns).name}[j]"
        less = f" - {self._source.table('offsets', block.offsets).name}[j]" if block.offsets.any() else ""
        return f"    for (size_t j = 0; j < {n}; j++)\n        phi[{start} + j] = x[{column}]{less};\n"

    def _centres(self, block: Centres, start: int) -> str:
        used = columns_used(block.kernel, self._n_features)
        points = self._source.table("points", block.points[:, used])
        name = f"{self._source.prefix}_centres_{len(self.definitions)}_"
        gather, at = "", "x"
        if len(used) < self._n_features:
            columns = self._source.indices("columns", used).name
            gather, at = self._source.fill(_GATHER, width=len(used), columns=columns), "at"
            self.scratch = max(self.scratch, len(used))
        value = self._value(block.kernel, used, points, at)
        parts = {"name": name, "gather": gather, "n": block.size, "type": points.type, "points": points.name}
        self.definitions.append(self._source.fill(_CENTRES, width=len(used), value=value, **parts))
        return f"    {name}(x, phi + {start});\n"

    def _value(self, kernel: kernels.Kernel, used: IntArray, points: Table, at: str) -> str:
        """Return an expression for k(x, z)."""
        match kernel:
            case kernels.Sum():
                return "(" + " + ".join(self._value(part, used, points, at) for part in kernel.terms) + ")"
            case kernels.Product():
                return " * ".join(self._value(part, used, points, at) for part in kernel.factors)
        return f"{self._leaf(kernel, used, points.type)}({at}, z)"

    def _leaf(self, kernel: kernels.Kernel, used: IntArray, type_: str) -> str:
        """Return the name of the C function of a kernel that is not a sum or a product."""
        if isinstance(kernel, kernels.OnColumns):
            inner, columns = kernel.inner(), np.searchsorted(used, kernel.positions(self._n_features))
        else:
            inner, columns = kernel, np.arange(len(used))
        # Positions among the columns used, so that kernels on equally many leading columns share one.
        index = "d"
        if not np.array_equal(columns, np.arange(len(columns))):
            index = f"{self._source.indices('columns', columns).name}[d]"
        key = (inner, len(columns), index + type_)
        if key not in self._leaves:
            name = f"{self._source.prefix}_kernel_{len(self._leaves)}_"
            self._leaves[key] = name
            fill, (start, term, value) = self._source.fill, self._parts(inner, len(columns))
            parts = {"start": fill(start), "term": fill(term, d=index), "value": fill(value)}
            self.definitions.append(fill(_LEAF, name=name, type=type_, n=len(columns), **parts))
        return self._leaves[key]

    def _parts(self, kernel: kernels.Kernel, n: int) -> tuple[str, str, str]:
        """Return templates: the initial sum, the term of a column, and the kernel as a function of it."""
        product = "        s += x[$d] * z[$d];"
        match kernel:
            case kernels.Linear(offset=None):
                return "0.0$f", product, "s"
            case kernels.Linear():
                offset = self._source.table("offset", np.asarray(kernel.offset)).name
                return "0.0$f", f"        s += (x[$d] - {offset}[d]) * (z[$d] - {offset}[d]);", "s"
            case kernels.LinearSpline():
                return "1.0$f", _SPLINE, "s"
            case kernels.Gaussian():
                return self._gaussian(kernel, n)
            case kernels.Laplacian():
                return (
                    "0.0$f",
                    "        s += $fabs(x[$d] - z[$d]);",
                    f"$exp(-{self._number(kernel, 'gamma')} * s)",
                )
            case kernels.Polynomial() | kernels.Sigmoid():
                argument = f"{self._number(kernel, 'gamma')} * s + {self._number(kernel, 'coef0')}"
                if isinstance(kernel, kernels.Sigmoid):
                    return "0.0$f", product, f"$tanh({argument})"
                power = self._source.fill(_POWER)
                if power not in self.definitions:
                    self.definitions.append(power)
                return "0.0$f", product, f"${{NAME}}_power_({argument}, {kernel.degree}UL)"
        raise ValueError(f"kernel {kernel!r} cannot be written in C; use the kernels of sparsebayes.kernels")

    def _gaussian(self, kernel: kernels.Gaussian, n: int) -> tuple[str, str, str]:
        widths, real = np.atleast_1d(kernel.width), self._source.real
        if len(widths) == 1:
            gamma = float(widths[0]) ** -2
            real.check("kernel parameter 1 / width^2", gamma)
            difference, factor = "x[$d] - z[$d]", f"-{real.literal(gamma)} * s"
        else:
            assert len(widths) == n
            # Scale before squaring: the square of a width can be out of range where the width is not.
            real.check("a kernel width", [widths, 1.0 / widths])
            inverse = self._source.table("inverse_widths", 1.0 / widths).name
            difference, factor = f"(x[$d] - z[$d]) * {inverse}[d]", "-s"
        return "0.0$f", f"        const $REAL t = {difference};\n        s += t * t;", f"$exp({factor})"

    def _number(self, kernel: kernels.Kernel, parameter: str) -> str:
        value = getattr(kernel, parameter)
        self._source.real.check(f"kernel parameter {parameter}", value)
        return self._source.real.literal(value)


def columns_used(kernel: kernels.Kernel, n_features: int) -> IntArray:
    """Return the columns of x that a kernel uses, ascending."""
    if isinstance(kernel, (kernels.Sum, kernels.Product)):
        parts = kernel.terms if isinstance(kernel, kernels.Sum) else kernel.factors
        return np.unique(np.concatenate([columns_used(part, n_features) for part in parts]))
    if isinstance(kernel, kernels.OnColumns):
        return np.unique(kernel.positions(n_features))
    return np.arange(n_features)
