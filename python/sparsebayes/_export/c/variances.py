"""Variances of linear predictors as C, from triangular factors of the covariances.

With Sigma = R^T R the variance is |R phi|^2, a sum of squares. It cannot come out negative, and single
precision loses 1e-7 of |R phi| where phi^T Sigma phi would lose 1e-7 of the largest terms, which cancel. R
takes the room of half of Sigma.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..._types import FloatArray
    from ..description import ServedModel
    from .source import Source

_SQUARE = """\
/* |R phi|^2, with R upper triangular, row after row. */
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
    """Return the factor of each covariance of the model, with no more rows than columns."""
    if model.uncertainty == "directions":
        return [_triangle(directions.T) for directions in model.covariances]
    return [factor(covariance) for covariance in model.covariances]


def packed(root: FloatArray) -> FloatArray:
    """Return the upper triangle, row after row."""
    return root[np.triu_indices(len(root), 0, root.shape[1])]


class Variances:
    """Writes ``NAME_variances_(phi, v)``."""

    def __init__(self, source: Source, model: ServedModel, roots: list[FloatArray], at: str | None) -> None:
        """``at`` names the table of the outputs' functions, one output after another; None: each has all."""
        self._source, self._model, self._roots, self._at = source, model, roots, at
        #: How many variances there are.
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
        # Every output has the same functions; the first stands for all.
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
