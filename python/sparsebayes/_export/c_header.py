"""Fitted models as C99 headers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from string import Template
from textwrap import indent, wrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._checks import check_choice, check_flag
from .._core import __version__
from .._estimators.posterior import rounding
from .._types import FloatArray, IntArray
from ..kernels import Kernel, OnColumns
from ..kernels._base import Combination
from .description import Centres, Columns, Constant, Growth, ServedModel, Traced, describe, roots

#: Integer types, the ranges that the C standard guarantees, and their usual sizes.
_INTEGERS = (
    ("unsigned char", 0, 255, 1),
    ("signed char", -127, 127, 1),
    ("unsigned short", 0, 65535, 2),
    ("short", -32767, 32767, 2),
)
#: Operations of kernels.
_SIGNS: dict[np.ufunc, str] = {np.add: "+", np.multiply: "*"}
#: Longest name with which every identifier has at most 63 characters, as many as C99 distinguishes.
_MAX_NAME_LENGTH = 32
_MATH = ("erfc", "exp", "expm1", "fabs", "hypot", "log", "log1p", "sqrt")
#: Functions of NumPy in C; all others of kernels have the same name in both.
_OPERATIONS = {"add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}"}
_OPERATIONS |= {"negative": "-{}", "absolute": "fabs$f({})", "minimum": "fmin$f({}, {})"}
_OPERATIONS |= {"maximum": "fmax$f({}, {})"}


def to_c(est: Any, *, name: str = "model", dtype: str = "float", std: bool = True) -> str:
    r"""Return a fitted estimator as a C99 header that predicts without this package.

    The header has no state, allocates no memory and needs libm only; it also compiles as C++. All its
    identifiers are ``static`` and begin with ``name``, so that a program can include several models. With
    ``name="model"`` it has

    * ``MODEL_N_FEATURES``, ``MODEL_N_OUTPUTS`` or ``MODEL_N_CLASSES``; ``model_real``, the type of numbers;
    * regression: ``model_real model_predict(const model_real *x)``, or with several outputs ``void
      model_predict(x, model_real *mean)``; ``void model_predict_std(x, model_real *mean, model_real *sd)``;
    * classification: ``int model_predict_class(x)``, the index into ``classes_``; ``void
      model_predict_proba(x, model_real *p)``; ``const char *model_class_name(int c)``, in UTF-8.

    ``x`` is one row of X and must hold finite numbers.

    Parameters
    ----------
    est : estimator
        A fitted estimator of this package.
    name : str, default="model"
        Prefix of the identifiers: ASCII letters, digits and single underscores, at most 32.
    dtype : {"float", "double"}, default="float"
        Type of the numbers. Predictions in "float" agree with the estimator's to about 1e-6 of the largest
        term w_j phi_j: compare them where large terms cancel.
    std : bool, default=True
        Whether to include error bars. Their table has m^2 / 2 numbers for m functions. Without them
        regression has no ``model_predict_std``, and probabilities equal those of ``moderate=False``.

    Returns
    -------
    str
        The header, in ASCII. Its first comment states the bytes of constant data.

    Raises
    ------
    TypeError, ValueError, NotFittedError
        If est is not a fitted estimator of this package, if only Python can evaluate its functions (callable
        kernels, ``extra_basis`` other than "linear"), or if numbers are out of the range of ``dtype``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, to_c
    >>> X = np.linspace(-5, 5, 50)[:, np.newaxis]
    >>> header = to_c(RVR(gamma=0.5, noise_variance=0.01).fit(X, np.sinc(X[:, 0])), name="sinc")
    >>> "static inline sinc_real sinc_predict(const sinc_real *x)" in header
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string that begins C identifiers, got {name!r}")
    if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name) or len(name) > _MAX_NAME_LENGTH:
        raise ValueError(
            "name must be ASCII letters, digits and single underscores between them, begin with a letter and "
            f"have {_MAX_NAME_LENGTH} characters at most, got {name!r}"
        )
    real, with_std = Real(check_choice("dtype", dtype, ("float", "double"))), check_flag("std", std)
    return Header(name, real, describe(est), with_std).write()


@dataclass(frozen=True)
class Real:
    """The type of the numbers."""

    #: "float" or "double".
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.name == "float" else np.float64)

    @property
    def suffix(self) -> str:
        """Suffix of literals and libm functions of this type."""
        return "f" if self.name == "float" else ""

    def literal(self, value: float) -> str:
        """Return the shortest decimal that is read back as this number (C++98 has no hexadecimal floats)."""
        with np.errstate(over="ignore", under="ignore"):
            rounded = self.dtype.type(value)
        assert np.isfinite(rounded)
        return str(rounded) + self.suffix

    def check(self, what: str, values: ArrayLike) -> None:
        """Raise ValueError unless every number is 0 or a normal number of this type."""
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        limits = np.finfo(self.dtype)
        outside = (sizes != 0.0) & ~((sizes >= limits.tiny) & (sizes <= limits.max))
        if np.any(outside):
            wider = ", or use dtype='double'" if self.name == "float" else ""
            raise ValueError(
                f"{what} of {sizes[outside][0]:.3g} is out of the range of {self.name}; "
                f"rescale the data{wider}"
            )


class Table(NamedTuple):
    """A constant array: its name, type of elements, size in bytes, and definition."""

    name: str
    type: str
    size: int
    definition: str


@dataclass(frozen=True, eq=False)
class Number(Traced):
    """A number of a C function; arithmetic with it appends statements to ``lines``."""

    text: str
    header: Header
    lines: list[str]

    def _apply(self, function: str, inputs: tuple[Any, ...]) -> Number:
        operation = _OPERATIONS.get(function, f"{function}$f({{}})")
        name, operands = f"t{len(self.lines)}", map(self._operand, inputs)
        self.lines.append(self.header.fill(f"const $REAL {name} = {operation};\n").format(*operands))
        return replace(self, text=name)

    def _operand(self, value: Any) -> str:
        if isinstance(value, Number):
            return value.text
        self.header.real.check("a constant of a kernel", value)
        return self.header.real.literal(value)


class Header:
    """A header under construction."""

    def __init__(self, prefix: str, real: Real, model: ServedModel, std: bool) -> None:
        self.prefix, self.real, self._model = prefix, real, model
        self._uncertain = std and model.uncertainty != "none"
        self._n_outputs = len(model.outputs)
        self._n_results = self._n_outputs if model.classes is None else len(model.classes)
        #: Names in templates.
        self._names: dict[str, object] = {name: name + real.suffix for name in _MATH}
        self._names |= {"NAME": prefix, "MACRO": prefix.upper(), "REAL": f"{prefix}_real", "f": real.suffix}
        self._names |= {"functions": max(model.n_functions, 1), "outputs": self._n_outputs}
        self._names |= {"what": "OUTPUTS" if model.classes is None else "CLASSES", "results": self._n_results}
        self._tables: dict[tuple[str, bytes], Table] = {}
        #: Most numbers in the arrays of a growth.
        self._n_growing = 0
        self._leaves: dict[tuple[object, ...], str] = {}
        #: Each after those that it calls.
        self._functions: list[str] = []

    def fill(self, template: str, **parts: object) -> str:
        """Substitute ``$NAME``, ``$REAL``, ``$exp`` and so on, and ``parts``, in a template."""
        return Template(template).substitute(self._names | parts)

    def write(self) -> str:
        self._define_basis()
        self._define_predictors()
        if self._model.classes is None:
            self._define_regression()
        else:
            self._define_classification(self._model.classes)
        return self.fill(
            HEADER,
            about="\n".join(self._about()),
            features=self._model.n_features,
            type=self.real.name,
            tables="\n".join(table.definition for table in self._tables.values()),
            definitions="\n".join(self._functions),
        )

    def _define(self, template: str, **parts: object) -> None:
        self._functions.append(self.fill(template, **parts))

    def _table(self, role: str, values: ArrayLike, *, indices: bool = False) -> Table:
        """Return a table of these numbers, or non-negative integers; equal tables are written once.

        Small integers have the smallest type that holds them: pixels take a byte each.
        """
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        flat = flat if len(flat) > 0 else np.zeros(1)  # C has no empty tables
        integers = _integers(flat) or (("unsigned long", 4) if indices else None)
        if integers is None:
            # Only the largest is checked: small numbers may underflow to 0.
            self.real.check(f"a number among the {role}", np.abs(flat).max())
        type_, size = integers or (f"{self.prefix}_real", self.real.dtype.itemsize)
        texts = [str(int(value)) if integers else self.real.literal(value) for value in flat]
        key = (type_, flat.tobytes())
        if key not in self._tables:
            name = f"{self.prefix}_{role}_{len(self._tables)}_"
            body = "\n    ".join(wrap(", ".join(texts), 106))
            definition = f"static const {type_} {name}[{len(flat)}] = {{\n    {body}\n}};\n"
            self._tables[key] = Table(name, type_, size * len(flat), definition)
        return self._tables[key]

    def _define_basis(self) -> None:
        body, start = "    (void)x;\n    (void)phi;\n", 0
        for block in self._model.blocks:
            match block:
                case Constant():
                    body += self.fill("    phi[$start] = 1.0$f;\n", start=start)
                case Columns() if block.size > 0:
                    body += self._columns(block, start)
                case Centres() if block.size > 0:
                    body += f"    {self._define_centres(block)}(x, phi + {start});\n"
            start += block.size
        self._define(FUNCTIONS, body=body)

    def _columns(self, block: Columns, start: int) -> str:
        value = f"x[{self._index(block.columns, 'j')}]"
        value += f" - {self._table('offsets', block.offsets).name}[j]" if block.offsets.any() else ""
        return f"    for (size_t j = 0; j < {block.size}; j++)\n        phi[{start} + j] = {value};\n"

    def _index(self, columns: IntArray, counter: str) -> str:
        """Return an expression for an entry of ``columns``."""
        first = int(columns[0])
        if np.array_equal(columns, np.arange(first, first + len(columns))):
            return f"{first} + {counter}" if first > 0 else counter
        return f"{self._table('columns', columns, indices=True).name}[{counter}]"

    def _used(self, kernel: Kernel) -> IntArray:
        """Return the columns of x that a kernel uses, ascending."""
        return np.unique(np.concatenate([self._columns_of(leaf) for leaf in kernel._leaves()]))

    def _define_centres(self, block: Centres) -> str:
        """Define the function that evaluates a kernel about points, and return its name."""
        used = self._used(block.kernel)
        points = self._table("points", block.points[:, used])
        name = f"{self.prefix}_centres_{len(self._functions)}_"
        value = self._value(block.kernel, used, points.type)
        parts = {"name": name, "n": block.size, "type": points.type, "points": points.name}
        self._define(CENTRES, width=len(used), value=value, **parts)
        return name

    def _define_growth(self, growth: Growth) -> str:
        """Define the function that adds a growth to the variances, and return its name."""
        kernel, n = growth.centres.kernel, growth.centres.size
        used, rows = self._used(kernel), growth.factor.copy()
        np.fill_diagonal(rows, 1.0 / np.diagonal(rows))
        factor = self._table("cholesky", rows[np.tril_indices(n)])
        own = self._value(kernel, used, f"{self.prefix}_real")
        parts = {"width": len(used), "column": self._index(used, "d"), "own": own, "n": n}
        parts["most"] = self.real.literal(1.0 - rounding(kernel, self.real.dtype.name))
        parts |= {"centres": self._define_centres(growth.centres), "factor": factor.name}
        parts |= {"type": factor.type, "scales": self._table("scales", growth.scale).name}
        name = f"{self.prefix}_growth_{len(self._functions)}_"
        self._define(GROWTH, name=name, **parts)
        self._n_growing = max(self._n_growing, n + len(used))
        return name

    def _columns_of(self, leaf: Kernel) -> IntArray:
        """Return the columns of x that an elementary kernel uses."""
        n_features = self._model.n_features
        return leaf.positions(n_features) if isinstance(leaf, OnColumns) else np.arange(n_features)

    def _value(self, kernel: Kernel, used: IntArray, type_: str) -> str:
        """Return an expression for k(x, z), where z has this type and holds the columns ``used``."""
        if isinstance(kernel, Combination):
            sign = f" {_SIGNS[kernel._operation]} "
            return f"({sign.join(self._value(part, used, type_) for part in kernel._members)})"
        inner = kernel.inner() if isinstance(kernel, OnColumns) else kernel
        columns = self._columns_of(kernel)
        a, b = f"x[{self._index(columns, 'd')}]", f"z[{self._index(np.searchsorted(used, columns), 'd')}]"
        key = (inner, len(columns), type_, a, b)
        if key not in self._leaves:
            self._leaves[key] = f"{self.prefix}_kernel_{len(self._leaves)}_"
            self._define_leaf(inner, name=self._leaves[key], n=len(columns), type=type_, a=a, b=b)
        return f"{self._leaves[key]}(x, z)"

    def _define_leaf(self, kernel: Kernel, **parts: object) -> None:
        """Define the function of a kernel that is not a sum or a product."""
        constants, constant, lines = kernel._per_input(), None, list[str]()
        if constants is not None:
            self.real.check("a constant of a kernel", constants)
            constant = Number(f"{self._table('inputs', constants).name}[d]", self, lines)
        term = kernel._term(Number("a", self, lines), Number("b", self, lines), constant)
        n_inside = len(lines)
        value = kernel._of_total(Number("s", self, lines))
        self._define(
            LEAF,
            start=self.real.literal(kernel._operation.identity),
            inside=indent("".join(lines[:n_inside]), 8 * " "),
            sign=_SIGNS[kernel._operation],
            term=term.text,
            after=indent("".join(lines[n_inside:]), 4 * " "),
            value=value.text,
            **parts,
        )

    def _define_predictors(self) -> None:
        outputs, index = self._model.outputs, self.fill("j - ${NAME}_starts_(c)")
        starts = f"{self._model.n_functions} * c"
        if not all(map(self._model.has_all_functions, outputs)):
            functions = np.concatenate([output.functions for output in outputs])
            at = self._table("at", functions, indices=True).name
            ends = np.cumsum([0, *(len(output.functions) for output in outputs)])
            starts, index = f"{self._table('starts', ends, indices=True).name}[c]", f"{at}[j]"
        weights = self._table("weights", np.concatenate([output.weights for output in outputs])).name
        self._names["index"] = index
        self._define(ETA, starts=starts, weights=weights)

    def _define_variances(self) -> None:
        factors = roots(self._model)
        joint, n = self._model.uncertainty == "joint", self._n_outputs
        self._names["variances"] = n * n if joint else n
        packed = [R[np.triu_indices(len(R), 0, R.shape[1])] for R in factors]
        table = self._table("factors", np.concatenate(packed))
        own, (n_rows, n_columns) = "${NAME}_starts_(c + 1) - ${NAME}_starts_(c)", factors[0].shape
        rows = self.fill(own) if n_rows == n_columns else n_rows
        parts = {"type": table.type, "factors": table.name, "matrices": len(factors), "rows": rows}
        self._define(JOINT_VARIANCES if joint else VARIANCES, **parts)

    def _define_regression(self) -> None:
        link = self._model.link
        is_log = link in ("log", "log_continuous")
        mean = self.fill("$exp(eta[0])") if is_log else "eta[0]"
        self._define(MEAN if self._n_outputs == 1 else MEANS, mean=mean)
        if not self._uncertain:
            return
        self._define_variances()
        given = self._model.noise_variance
        noise = np.broadcast_to(0.0 if given is None else given, self._n_outputs)
        self.real.check("dispersion" if is_log else "noise variance", noise)
        names = [self._define_growth(growth) for growth in self._model.growths]
        growths = "".join(f"    {name}(x, v);\n" for name in names)
        if is_log:
            counts = COUNT_PART if link == "log" else ""
            options = {"dispersion": self.real.literal(float(noise[0])), "growths": growths}
            self._define(LOG_STD, counts=self.fill(counts), **options)
            return
        self._define(STD, noise=self._table("noise", noise).name, growths=growths)

    def _define_classification(self, classes: NDArray[Any]) -> None:
        if self._uncertain:
            self._define_variances()
        if self._uncertain and self._model.link == "softmax":
            self._define(SOFTMAX_SCORES)
        else:
            moderation = self.fill(MODERATION) if self._uncertain else ""
            self._define(SCORES, moderation=moderation)
        self._define(CLASS_OF_TWO if self._n_outputs == 1 else CLASS)
        self._define_probabilities()
        names = ",\n        ".join(quote(label) for label in classes)
        self._define(CLASS_NAME, names=names)

    def _define_probabilities(self) -> None:
        link, n = self._model.link, self._n_outputs
        if link == "probit" and n == 2:
            self._define(PROBIT_OF_TWO)
            return
        prepare, weigh = "", self.fill(EXPONENTIALS)
        if link == "logistic" and n == 1:
            prepare = self.fill(LOG_ODDS)
        elif link == "probit":
            step = probit_step(n, self.real.name)
            weigh = self.fill(PROBIT, step=step, nodes=round((8.0 + 7.5) / step) + 1)
        self._define(PROBABILITIES, prepare=prepare, weigh=weigh)

    def _about(self) -> list[str]:
        model, width = self._model, self.real.dtype.itemsize
        size = sum(table.size for table in self._tables.values())
        n_variances = int(self._names.get("variances", 0))  # type: ignore[call-overload] # an integer
        stack = width * (
            model.n_functions + model.n_features + n_variances + 3 * self._n_outputs + self._n_growing
        )
        results = f"{'outputs' if model.classes is None else 'classes'} {self._n_results}"
        lines = [
            f"{plain(model.estimator)}: inputs {model.n_features}, {results}, functions "
            f"{model.n_functions}. Written by sparsebayes {plain(__version__)}.",
            f"Constant data: {size} bytes in tables of {self.real.name} ({width} bytes); "
            "code is not counted.",
            f"Stack: {stack} bytes of arrays at most. No allocation, no state; needs libm.",
        ]
        if model.classes is not None:
            strings = sum(len(encode(label)) + 1 for label in model.classes)
            lines.append(f"Names of the classes, if they are used: {strings} bytes, and a pointer each.")
        kernels = (block.kernel for block in model.blocks if isinstance(block, Centres))
        texts = dict.fromkeys(plain(repr(kernel)) for kernel in kernels)
        lines += [f"phi: {text[:100] + ' ...' * (len(text) > 100)}" for text in texts]
        if model.feature_names is not None:
            lines += ["", *(f"x[{d}]: {quote(name)}" for d, name in enumerate(model.feature_names))]
        return [f" * {line}".rstrip() for line in lines]


def _integers(values: FloatArray) -> tuple[str, int] | None:
    """Return the smallest integer type of these numbers and its size; None if there is none."""
    for type_, lowest, highest, size in _INTEGERS if np.all(values == np.trunc(values)) else ():
        if lowest <= values.min() and values.max() <= highest:
            return type_, size
    return None


def probit_step(n_classes: int, real: str) -> float:
    """Return the distance between the nodes of the probit's integral, a power of 2: its multiples are exact.

    The largest measured error of a probability is 1e-13 with "double" and 4e-7 with "float".
    """
    few, many = (14, 300) if real == "float" else (3, 30)
    return 0.5 if n_classes <= few else 0.25 if n_classes <= many else 0.125


def quote(label: Any) -> str:
    """Return a label or name of the user as a C string literal that is safe in comments too.

    The string is UTF-8. Characters that are not in `_SAFE` become octal escapes of three digits, so that no
    quote or backslash ends the string, no ``*/`` ends a comment, and no ``?`` starts a trigraph.
    """
    return '"' + "".join(chr(c) if chr(c) in _SAFE else f"\\{c:03o}" for c in encode(label)) + '"'


_SAFE = frozenset(
    " !#$%&'()+,-.0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
)


def encode(label: Any) -> bytes:
    return str(label).encode("utf-8", "backslashreplace")


def plain(text: str) -> str:
    """Return the name of a kernel or an estimator without characters that could end a comment."""
    return re.sub(r"[^A-Za-z0-9 _.,:+*=()\[\]'-]", "_", text)


# --- templates of the C functions: basis functions, linear predictors, and predictions --------------

HEADER = """\
/*
$about
 */
#ifndef SPARSEBAYES_${NAME}_H
#define SPARSEBAYES_${NAME}_H

#include <math.h>
#include <stddef.h>

#define ${MACRO}_N_FEATURES $features
#define ${MACRO}_N_$what $results

typedef $type $REAL;

$tables
$definitions
#endif
"""

CENTRES = """\
static inline void $name(const $REAL *x, $REAL *phi)
{
    for (size_t j = 0; j < $n; j++) {
        const $type *z = $points + $width * j;
        phi[j] = $value;
    }
}
"""

LEAF = """\
static inline $REAL $name(const $REAL *x, const $type *z)
{
    $REAL s = $start;
    for (size_t d = 0; d < $n; d++) {
        const $REAL a = $a, b = $b;
$inside        s $sign= $term;
    }
$after    return $value;
}
"""

FUNCTIONS = """\
/* The basis functions at x. */
static inline void ${NAME}_functions_(const $REAL *x, $REAL *phi)
{
$body}
"""

#: ``$starts`` and ``$index`` are for outputs with all functions (n * c and j - starts(c)), or from tables.
ETA = """\
/* Position of the first weight of output c. */
static inline size_t ${NAME}_starts_(size_t c)
{
    return $starts;
}

/* The basis functions, and the linear predictors eta_c = sum_j w_cj phi_j. */
static inline void ${NAME}_eta_(const $REAL *x, $REAL *phi, $REAL *eta)
{
    ${NAME}_functions_(x, phi);
    for (size_t c = 0; c < $outputs; c++) {
        eta[c] = 0.0$f;
        for (size_t j = ${NAME}_starts_(c); j < ${NAME}_starts_(c + 1); j++)
            eta[c] += $weights[j] * phi[$index];
    }
}
"""

#: With Sigma = R^T R the variance is |R phi|^2, which is never negative. In single precision its error is
#: 1e-7 of |R phi|, while the error of phi^T Sigma phi is 1e-7 of the largest terms, which cancel. R takes
#: half the memory of Sigma.
VARIANCES = """\
/* Variances |R phi|^2 of the linear predictors, with R upper triangular, stored by rows. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $factors;
    for (size_t c = 0; c < $matrices; c++) {
        v[c] = 0.0$f;
        for (size_t i = 0; i < $rows; i++) {
            $REAL s = 0.0$f;
            for (size_t j = ${NAME}_starts_(c) + i; j < ${NAME}_starts_(c + 1); j++)
                s += *r++ * phi[$index];
            v[c] += s * s;
        }
    }
    for (size_t c = $matrices; c < $outputs; c++)
        v[c] = v[0];
}
"""

#: ``$own`` is k(x, z) of z = x.
GROWTH = """\
/* Adds the variance of the prior given its values at landmarks Z, scale_c (k(x, x) - |L^-1 k(Z, x)|^2). */
static inline void $name(const $REAL *x, $REAL *v)
{
    const $type *l = $factor;
    $REAL z[$width], k[$n], rest;
    for (size_t d = 0; d < $width; d++)
        z[d] = x[$column];
    rest = $most * $own; /* the rest of k(x, x) may be rounding */
    $centres(x, k);
    for (size_t i = 0; i < $n; i++) {
        for (size_t j = 0; j < i; j++)
            k[i] -= *l++ * k[j];
        k[i] *= *l++; /* the inverse of the diagonal of L */
        rest -= k[i] * k[i];
    }
    if (rest > 0.0$f)
        for (size_t c = 0; c < $outputs; c++)
            v[c] += $scales[c] * rest;
}
"""

JOINT_VARIANCES = """\
/* Variances of eta_c - eta_d at v[c * $outputs + d]. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $factors;
    size_t first = 0;
    for (size_t k = 0; k < $variances; k++)
        v[k] = 0.0$f;
    for (size_t i = 0; i < ${NAME}_starts_($outputs); i++) {
        $REAL part[$outputs];
        while (i >= ${NAME}_starts_(first + 1))
            first++;
        for (size_t c = 0; c < $outputs; c++) {
            size_t j = c == first ? i : ${NAME}_starts_(c);
            part[c] = 0.0$f;
            for (; c >= first && j < ${NAME}_starts_(c + 1); j++)
                part[c] += *r++ * phi[$index];
        }
        for (size_t k = 0; k < $variances; k++) {
            const $REAL t = part[k / $outputs] - part[k % $outputs];
            v[k] += t * t;
        }
    }
}
"""

MEAN = """\
/* Returns the mean. */
static inline $REAL ${NAME}_predict(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_eta_(x, phi, eta);
    return $mean;
}
"""

MEANS = """\
/* Writes the ${MACRO}_N_OUTPUTS means. */
static inline void ${NAME}_predict(const $REAL *x, $REAL *mean)
{
    $REAL phi[$functions];
    ${NAME}_eta_(x, phi, mean);
}
"""

STD = """\
/* Writes means and standard deviations, ${MACRO}_N_OUTPUTS of each. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[$variances];
    ${NAME}_eta_(x, phi, mean);
    ${NAME}_variances_(phi, v);
$growths    for (size_t c = 0; c < $outputs; c++)
        sd[c] = $sqrt($noise[c] + v[c]);
}
"""

#: sqrt(a^2 + b^2) with, for counts, a^2 = exp(eta + v/2), and b^2 = (e^v - 1 + d e^v) exp(2 eta + v) = (1 -
#: e^-v + d) exp(2 eta + 2 v); a and b may be finite where their squares overflow.
LOG_STD = """\
/* Writes mean and standard deviation of the target. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[1], eta[1], part;
    ${NAME}_eta_(x, phi, eta);
    ${NAME}_variances_(phi, v);
$growths    mean[0] = $exp(eta[0]);
    part = $dispersion - $expm1(-v[0]);
    sd[0] = part > 0.0$f ? $exp(eta[0] + v[0]) * $sqrt(part) : 0.0$f;
$counts}
"""

COUNT_PART = """\
    sd[0] = $hypot(sd[0], $exp(eta[0] / 2.0$f + v[0] / 4.0$f));
"""

#: The scores are eta, unless ``$moderation`` divides them by a function of their variances.
SCORES = """\
static inline void ${NAME}_scores_(const $REAL *x, $REAL *score)
{
    $REAL phi[$functions];
    ${NAME}_eta_(x, phi, score);
$moderation}
"""

#: pi / 8 = 0.39...
MODERATION = """\
    /* z_c = eta_c / sqrt(1 + pi v_c / 8) */
    $REAL v[$variances];
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++)
        score[c] /= $sqrt(1.0$f + 0.39269908169872414$f * v[c]);
"""

SOFTMAX_SCORES = """\
/* -ln sum_d exp(-k_cd (eta_c - eta_d)), k_cd = (1 + pi v_cd / 8)^(-1/2), v_cd = Var(eta_c - eta_d). */
static inline void ${NAME}_scores_(const $REAL *x, $REAL *log_p)
{
    $REAL phi[$functions], eta[$outputs], v[$variances];
    ${NAME}_eta_(x, phi, eta);
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++) {
        $REAL *t = v + c * $outputs, largest = 0.0$f, sum = 0.0$f;
        for (size_t d = 0; d < $outputs; d++) {
            t[d] = (eta[d] - eta[c]) / $sqrt(1.0$f + 0.39269908169872414$f * t[d]);
            largest = t[d] > largest ? t[d] : largest;
        }
        for (size_t d = 0; d < $outputs; d++)
            sum += $exp(t[d] - largest);
        log_p[c] = -largest - $log(sum);
    }
}
"""

CLASS = """\
/* Returns the index of the most probable class; of equal ones, the first. */
static inline int ${NAME}_predict_class(const $REAL *x)
{
    $REAL score[$outputs];
    int top = 0;
    ${NAME}_scores_(x, score);
    for (int c = 1; c < $outputs; c++)
        if (score[c] > score[top])
            top = c;
    return top;
}
"""

#: The score has the sign of eta, so the variances are not needed.
CLASS_OF_TWO = """\
/* Returns the index of the most probable class, 0 or 1. */
static inline int ${NAME}_predict_class(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_eta_(x, phi, eta);
    return eta[0] > 0.0$f;
}
"""

#: ``$prepare`` may replace the scores; ``$weigh`` computes numbers proportional to the probabilities.
PROBABILITIES = """\
/* Writes the ${MACRO}_N_CLASSES probabilities. */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL largest, sum = 0.0$f;
    ${NAME}_scores_(x, p);
${prepare}    largest = p[0];
    for (size_t c = 1; c < $results; c++)
        largest = p[c] > largest ? p[c] : largest;
$weigh
    for (size_t c = 0; c < $results; c++)
        sum += p[c];
    for (size_t c = 0; c < $results; c++)
        p[c] /= sum;
}
"""

#: From logarithms, because every probability may underflow.
EXPONENTIALS = """\
    for (size_t c = 0; c < $results; c++)
        p[c] = $exp(p[c] - largest);"""

LOG_ODDS = """\
    p[1] = p[0];
    p[0] = 0.0$f;
"""

PROBIT_OF_TWO = """\
/* Writes the probabilities of both classes, Phi((eta_c - eta_d) / sqrt 2). */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL half;
    ${NAME}_scores_(x, p);
    half = (p[1] - p[0]) / 2.0$f;
    p[0] = $erfc(half) / 2.0$f;
    p[1] = $erfc(-half) / 2.0$f;
}
"""

PROBIT = """\
    /* With d_c = max eta - eta_c, P(c) = integral of phi(u + d_c) prod_(k != c) Phi(u + d_k) du,
     * by the trapezoidal rule. */
    $REAL d[$outputs], cdf[$outputs], u = -7.5$f;
    for (size_t c = 0; c < $outputs; c++) {
        d[c] = largest - p[c];
        p[c] = 0.0$f;
    }
    for (int k = 0; k < $nodes; k++, u += $step$f) {
        $REAL all = 1.0$f;
        for (size_t c = 0; c < $outputs; c++) {
            cdf[c] = $erfc(-0.70710678118654752$f * (u + d[c])) / 2.0$f;
            all *= cdf[c];
        }
        for (size_t c = 0; c < $outputs; c++)
            p[c] += all / cdf[c] * $exp((u + d[c]) * (u + d[c]) / -2.0$f);
    }"""

CLASS_NAME = """\
/* Returns the label of class c as text. */
static inline const char *${NAME}_class_name(int c)
{
    static const char *const names[$results] = {
        $names
    };
    return names[c];
}
"""
