"""The basis functions of a model as C, and the variances of its linear predictors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...kernels import (
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    LinearSpline,
    OnColumns,
    Polynomial,
    Product,
    Sigmoid,
    Sum,
)
from ..description import Centres, Columns, Constant
from .source import Source, Table

if TYPE_CHECKING:
    from ..._types import FloatArray, IntArray
    from ..description import Block, ServedModel

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

_SQUARE = """\
/* |R phi|^2, with R upper triangular, stored by rows. */
static inline $REAL ${NAME}_square_(const $type *r, size_t rows, size_t n, const $REAL *phi$parameter)
{
    $REAL sum = 0.0$f;
    for (size_t i = 0; i < rows; i++) {
        $REAL s = 0.0$f;
        for (size_t j = i; j < n; j++)
            s += *r++ * phi[$index];
        sum += s * s;
    }
    return sum;
}
"""

_SHARED = """\
/* Variances of the linear predictors. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    v[0] = ${NAME}_square_($table, $rows, $n, phi$argument);
$copies}
"""

_COPIES = """\
    for (size_t c = 1; c < $outputs; c++)
        v[c] = v[0];
"""

_EACH = """\
/* Variances of the linear predictors. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $table;
    for (size_t c = 0; c < $outputs; c++) {
        const size_t n = $n;
        v[c] = ${NAME}_square_(r, n, n, phi$argument);
        r += n * (n + 1) / 2;
    }
}
"""

_NONE = """\
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    (void)phi;
    for (size_t c = 0; c < $outputs; c++)
        v[c] = 0.0$f;
}
"""

_JOINT = """\
/* Variances of eta_c - eta_d for d < c, at v[c * (c - 1) / 2 + d]. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $table;
    size_t first = 0;
    for (size_t k = 0; k < $pairs; k++)
        v[k] = 0.0$f;
    for (size_t i = 0; i < $weights; i++) {
        $REAL part[$outputs];
        $REAL *to = v;
        while (i >= ${NAME}_starts_(first + 1))
            first++;
        for (size_t c = 0; c < $outputs; c++) {
            const size_t from = c == first ? i : ${NAME}_starts_(c);
            part[c] = 0.0$f;
            for (size_t j = from; c >= first && j < ${NAME}_starts_(c + 1); j++)
                part[c] += *r++ * phi[$index];
            for (size_t d = 0; d < c; d++, to++)
                *to += (part[c] - part[d]) * (part[c] - part[d]);
        }
    }
}
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
        self._leaves: dict[tuple[Kernel, int, str], str] = {}

    def write(self, blocks: list[Block]) -> None:
        """Write ``NAME_functions_(x, phi)``."""
        body, start = [], 0
        for block in blocks:
            if block.size > 0:
                body.append(self._statement(block, start))
                start += block.size
        if all(isinstance(block, Constant) for block in blocks if block.size > 0):
            body.append("    (void)x;\n    (void)phi;\n")
        self.definitions.append(self._source.fill(_FUNCTIONS, body="".join(body)))

    def _statement(self, block: Block, start: int) -> str:
        """Return the statement that writes the functions of a block from ``phi[start]`` on."""
        if isinstance(block, Constant):
            return self._source.fill("    phi[$start] = 1.0$f;\n", start=start)
        return self._columns(block, start) if isinstance(block, Columns) else self._centres(block, start)

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

    def _value(self, kernel: Kernel, used: IntArray, points: Table, at: str) -> str:
        """Return an expression for k(x, z)."""
        if isinstance(kernel, Sum):
            return "(" + " + ".join(self._value(part, used, points, at) for part in kernel.terms) + ")"
        if isinstance(kernel, Product):
            return " * ".join(self._value(part, used, points, at) for part in kernel.factors)
        return f"{self._leaf(kernel, used, points.type)}({at}, z)"

    def _leaf(self, kernel: Kernel, used: IntArray, type_: str) -> str:
        """Return the name of the C function of a kernel that is not a sum or a product."""
        if isinstance(kernel, OnColumns):
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

    def _parts(self, kernel: Kernel, n: int) -> tuple[str, str, str]:
        """Return templates: the initial sum, the term of a column, and the kernel as a function of it."""
        product = "        s += x[$d] * z[$d];"
        if isinstance(kernel, Linear):
            if kernel.offset is not None:
                offset = self._source.table("offset", np.asarray(kernel.offset)).name
                product = f"        s += (x[$d] - {offset}[d]) * (z[$d] - {offset}[d]);"
            return "0.0$f", product, "s"
        if isinstance(kernel, LinearSpline):
            return "1.0$f", _SPLINE, "s"
        if isinstance(kernel, Gaussian):
            return self._gaussian(kernel, n)
        if isinstance(kernel, Laplacian):
            gamma = self._number("kernel parameter gamma", kernel.gamma)
            return "0.0$f", "        s += $fabs(x[$d] - z[$d]);", f"$exp(-{gamma} * s)"
        if not isinstance(kernel, (Polynomial, Sigmoid)):
            raise ValueError(
                f"kernel {kernel!r} cannot be written in C; use the kernels of sparsebayes.kernels"
            )
        gamma = self._number("kernel parameter gamma", kernel.gamma)
        coef0 = self._number("kernel parameter coef0", kernel.coef0)
        if isinstance(kernel, Sigmoid):
            return "0.0$f", product, f"$tanh({gamma} * s + {coef0})"
        power = self._source.fill(_POWER)
        if power not in self.definitions:
            self.definitions.append(power)
        return "0.0$f", product, f"${{NAME}}_power_({gamma} * s + {coef0}, {kernel.degree}UL)"

    def _gaussian(self, kernel: Gaussian, n: int) -> tuple[str, str, str]:
        widths = np.atleast_1d(kernel.width)
        if len(widths) == 1:
            gamma = self._number("kernel parameter 1 / width^2", float(widths[0]) ** -2)
            difference, factor = "const $REAL t = x[$d] - z[$d];", f"-{gamma} * s"
        else:
            assert len(widths) == n
            # Scale before squaring: the square of a width can be out of range where the width is not.
            self._source.real.check("a kernel width", [widths, 1.0 / widths])
            inverse = self._source.table("inverse_widths", 1.0 / widths).name
            difference, factor = f"const $REAL t = (x[$d] - z[$d]) * {inverse}[d];", "-s"
        return "0.0$f", f"        {difference}\n        s += t * t;", f"$exp({factor})"

    def _number(self, what: str, value: float) -> str:
        self._source.real.check(what, value)
        return self._source.real.literal(value)


def columns_used(kernel: Kernel, n_features: int) -> IntArray:
    """Return the columns of x that a kernel uses, ascending."""
    if isinstance(kernel, (Sum, Product)):
        parts = kernel.terms if isinstance(kernel, Sum) else kernel.factors
        return np.unique(np.concatenate([columns_used(part, n_features) for part in parts]))
    if isinstance(kernel, OnColumns):
        return np.unique(kernel.positions(n_features))
    return np.arange(n_features)


def factor(covariance: FloatArray) -> FloatArray:
    """Return R, upper triangular, with R^T R the covariance."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    inverse = 1.0 / np.where(scale > 0.0, scale, 1.0)
    correlation = covariance * inverse[:, np.newaxis] * inverse
    try:
        root = np.asarray(np.linalg.cholesky(correlation).T, dtype=np.float64)
    except np.linalg.LinAlgError:  # semidefinite to rounding
        values, vectors = np.linalg.eigh(correlation)
        root = _triangle((vectors * np.sqrt(np.maximum(values, 0.0))).T)
    return root * scale


def _triangle(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.qr(matrix)[1], dtype=np.float64)


def factors(model: ServedModel) -> list[FloatArray]:
    """Return the triangular factor of each covariance of the model."""
    if model.uncertainty == "directions":
        return [_triangle(directions.T) for directions in model.covariances]
    return [factor(covariance) for covariance in model.covariances]


def packed(root: FloatArray) -> FloatArray:
    """Return the upper triangle by rows."""
    return root[np.triu_indices(len(root), 0, root.shape[1])]


class Variances:
    """Writes ``NAME_variances_(phi, v)``, from triangular factors of the covariances.

    With Sigma = R^T R the variance is |R phi|^2, which is never negative. In single precision its error is
    1e-7 of |R phi|, while the error of phi^T Sigma phi is 1e-7 of the largest terms, which cancel. R takes
    half the memory of Sigma.
    """

    def __init__(self, source: Source, model: ServedModel, roots: list[FloatArray], at: str | None) -> None:
        """``at``: name of the table of the outputs' functions, concatenated; None if each output has all."""
        self._source, self._model, self._roots, self._at = source, model, roots, at
        #: Number of variances.
        self.size = len(model.outputs)
        if model.uncertainty == "joint":
            self.size = self.size * (self.size - 1) // 2

    def write(self) -> list[str]:
        """Return the definitions."""
        numbers = np.concatenate([packed(root) for root in self._roots])
        n_outputs = len(self._model.outputs)
        if len(numbers) == 0:
            return [self._source.fill(_NONE, outputs=self.size)]
        table = self._source.table("factors", numbers)
        shared = {"type": table.type, "table": table.name, "outputs": n_outputs}
        if self._model.uncertainty == "joint":
            weights = len(self._roots[0])
            own = self._source.fill("j - ${NAME}_starts_(c)")
            index = own if self._at is None else f"{self._at}[j]"
            parts = {**shared, "pairs": self.size, "weights": weights, "index": index}
            return [self._source.fill(_JOINT, **parts)]
        if self._model.uncertainty == "each":
            return self._each(shared)
        return self._one(shared)

    def _each(self, shared: dict[str, object]) -> list[str]:
        fill, at = self._source.fill, self._at
        if at is None:
            return [self._square(shared, False), fill(_EACH, n=len(self._roots[0]), argument="", **shared)]
        n = fill("${NAME}_starts_(c + 1) - ${NAME}_starts_(c)")
        argument = fill(", $at + ${NAME}_starts_(c)", at=at)
        return [self._square(shared, True), fill(_EACH, n=n, argument=argument, **shared)]

    def _one(self, shared: dict[str, object]) -> list[str]:
        rows, n = self._roots[0].shape
        # Every output has the same functions: use those of the first.
        argument = "" if self._at is None else f", {self._at}"
        copies = self._source.fill(_COPIES, outputs=self.size) if self.size > 1 else ""
        parts = {**shared, "rows": rows, "n": n, "argument": argument, "copies": copies}
        return [self._square(shared, self._at is not None), self._source.fill(_SHARED, **parts)]

    def _square(self, shared: dict[str, object], indexed: bool) -> str:
        parts = {"parameter": "", "index": "j", **shared}
        if indexed:
            assert self._at is not None
            type_ = next(table.type for table in self._source.tables.values() if table.name == self._at)
            parts |= {"parameter": f", const {type_} *at", "index": "at[j]"}
        return self._source.fill(_SQUARE, **parts)
