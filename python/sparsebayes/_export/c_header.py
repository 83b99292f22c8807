"""Fitted models as C99 headers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._checks.arguments import check_choice, check_flag
from .._core import __version__
from .._types import FloatArray, IntArray
from ..kernels import Kernel, OnColumns, Sum
from ..kernels._base import Combination
from . import c_templates as templates
from .description import Centres, Columns, Constant, ServedModel, describe, factor

#: Integer types, the ranges that the C standard guarantees, and their usual sizes.
_INTEGERS = (
    ("unsigned char", 0, 255, 1),
    ("signed char", -127, 127, 1),
    ("unsigned short", 0, 65535, 2),
    ("short", -32767, 32767, 2),
)
#: Longest name with which every identifier has at most 63 characters, as many as C99 distinguishes.
_MAX_NAME_LENGTH = 32
_MATH = ("erfc", "exp", "expm1", "fabs", "fmin", "hypot", "log", "log1p", "sin", "sqrt", "tanh")


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
    return _Header(Source(name, real), describe(est), with_std).write()


@dataclass(frozen=True)
class Real:
    """The type of the numbers."""

    #: "float" or "double".
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
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


@dataclass
class Source:
    """A header under construction: its tables, and its names for templates."""

    prefix: str
    real: Real
    tables: dict[tuple[str, bytes], Table] = field(default_factory=dict)
    #: Definitions of functions, each after those that it calls.
    definitions: list[str] = field(default_factory=list)

    def table(self, role: str, values: ArrayLike, *, indices: bool = False) -> Table:
        """Return a table of these numbers, or non-negative integers; equal tables are written once.

        Small integers have the smallest type that holds them: pixels take a byte each.
        """
        flat = np.ravel(np.asarray(values, dtype=np.float64))
        integers = _integers(flat) or (("unsigned long", 4) if indices else None)
        if integers is None:
            # Only the largest is checked: small numbers may underflow to 0.
            self.real.check(f"a number among the {role}", np.abs(flat).max())
        type_, size = integers or (f"{self.prefix}_real", self.real.dtype.itemsize)
        texts = [str(int(value)) if integers else self.real.literal(value) for value in flat]
        key = (type_, flat.tobytes())
        if key not in self.tables:
            name = f"{self.prefix}_{role}_{len(self.tables)}_"
            body = "\n    ".join(wrap(", ".join(texts), 106))
            definition = f"static const {type_} {name}[{len(flat)}] = {{\n    {body}\n}};\n"
            self.tables[key] = Table(name, type_, size * len(flat), definition)
        return self.tables[key]

    def number(self, what: str, value: float) -> str:
        """Return a parameter as a literal; ValueError if it is out of range."""
        self.real.check(what, value)
        return self.real.literal(value)

    def power(self) -> str:
        """Return the name of the function base^degree."""
        if (power := self.fill(templates.POWER)) not in self.definitions:
            self.definitions.append(power)
        return f"{self.prefix}_power_"

    def fill(self, template: str, **parts: object) -> str:
        """Substitute ``$NAME``, ``$REAL``, ``$exp`` and so on, and ``parts``, in a template."""
        names: dict[str, object] = {name: name + self.real.suffix for name in _MATH}
        names |= {"NAME": self.prefix, "REAL": f"{self.prefix}_real", "f": self.real.suffix}
        names["MACRO"] = self.prefix.upper()
        return Template(template).substitute(names | parts)


def _integers(values: FloatArray) -> tuple[str, int] | None:
    """Return the smallest integer type of these numbers and its size; None if there is none."""
    for type_, lowest, highest, size in _INTEGERS if np.all(values == np.trunc(values)) else ():
        if lowest <= values.min() and values.max() <= highest:
            return type_, size
    return None


class _Header:
    """One header."""

    def __init__(self, source: Source, model: ServedModel, std: bool) -> None:
        self._source, self._model = source, model
        self._uncertain = std and model.uncertainty != "none"
        self._n_outputs = len(model.outputs)
        self._leaves: dict[tuple[Kernel, int, str], str] = {}
        #: Arguments of all templates of predictions.
        self._parts: dict[str, object] = {"functions": max(model.n_functions, 1), "outputs": self._n_outputs}

    def write(self) -> str:
        """Return the text."""
        model = self._model
        self._functions()
        definitions = [*self._source.definitions, self._predictors()]
        definitions += self._regression() if model.classes is None else self._classification()
        return self._source.fill(
            templates.HEADER,
            about="\n".join(self._about()),
            features=model.n_features,
            what="OUTPUTS" if model.classes is None else "CLASSES",
            count=self._n_outputs if model.classes is None else len(model.classes),
            type=self._source.real.name,
            tables="\n".join(table.definition for table in self._source.tables.values()),
            functions="\n".join(definitions),
        )

    def _functions(self) -> None:
        """Define ``NAME_functions_(x, phi)``."""
        body, start = "    (void)x;\n    (void)phi;\n", 0
        for block in self._model.blocks:
            match block:
                case Constant():
                    body += self._source.fill("    phi[$start] = 1.0$f;\n", start=start)
                case Columns() if block.size > 0:
                    body += self._columns(block, start)
                case Centres() if block.size > 0:
                    body += self._centres(block, start)
            start += block.size
        self._source.definitions.append(self._source.fill(templates.FUNCTIONS, body=body))

    def _columns(self, block: Columns, start: int) -> str:
        first, n = int(block.columns[0]), block.size
        if np.array_equal(block.columns, np.arange(first, first + n)):
            column = f"{first} + j"
        else:
            column = f"{self._source.table('columns', block.columns, indices=True).name}[j]"
        less = f" - {self._source.table('offsets', block.offsets).name}[j]" if block.offsets.any() else ""
        return f"    for (size_t j = 0; j < {n}; j++)\n        phi[{start} + j] = x[{column}]{less};\n"

    def _centres(self, block: Centres, start: int) -> str:
        source, n_features = self._source, self._model.n_features
        leaves = block.kernel._leaves()
        used = np.unique(np.concatenate([_columns_of(leaf, n_features) for leaf in leaves]))
        points = source.table("points", block.points[:, used])
        name = f"{source.prefix}_centres_{len(source.definitions)}_"
        gather, at = "", "x"
        if len(used) < n_features:
            columns = source.table("columns", used, indices=True).name
            gather, at = source.fill(templates.GATHER, width=len(used), columns=columns), "at"
        value = self._value(block.kernel, used, points, at)
        parts = {"name": name, "gather": gather, "n": block.size, "type": points.type, "points": points.name}
        source.definitions.append(source.fill(templates.CENTRES, width=len(used), value=value, **parts))
        return f"    {name}(x, phi + {start});\n"

    def _value(self, kernel: Kernel, used: IntArray, points: Table, at: str) -> str:
        """Return an expression for k(x, z)."""
        if isinstance(kernel, Combination):
            sign = " + " if isinstance(kernel, Sum) else " * "
            return f"({sign.join(self._value(part, used, points, at) for part in kernel._members)})"
        return f"{self._leaf(kernel, used, points.type)}({at}, z)"

    def _leaf(self, kernel: Kernel, used: IntArray, type_: str) -> str:
        """Return the name of the C function of a kernel that is not a sum or a product."""
        source, inner = self._source, kernel.inner() if isinstance(kernel, OnColumns) else kernel
        # Positions among the columns used, so that kernels on equally many leading columns share one.
        columns, index = np.searchsorted(used, _columns_of(kernel, self._model.n_features)), "d"
        if not np.array_equal(columns, np.arange(len(columns))):
            index = f"{source.table('columns', columns, indices=True).name}[d]"
        key = (inner, len(columns), index + type_)
        if key not in self._leaves:
            name = self._leaves[key] = f"{source.prefix}_kernel_{len(self._leaves)}_"
            start, term, ending = inner._c(source)
            parts = {"start": source.fill(start), "term": source.fill(term, d=index), "type": type_}
            parts |= {"ending": source.fill(ending), "name": name}
            source.definitions.append(source.fill(templates.LEAF, n=len(columns), **parts))
        return self._leaves[key]

    def _predictors(self) -> str:
        """Return the definition of the linear predictors."""
        outputs, index = self._model.outputs, self._source.fill("j - ${NAME}_starts_(c)")
        starts = f"{self._model.n_functions} * c"
        if not all(map(self._model.has_all_functions, outputs)):
            functions = np.concatenate([output.functions for output in outputs])
            at = self._source.table("at", functions, indices=True).name
            ends = np.cumsum([0, *(len(output.functions) for output in outputs)])
            starts, index = f"{self._source.table('starts', ends, indices=True).name}[c]", f"{at}[j]"
        weights = self._table("weights", np.concatenate([output.weights for output in outputs])).name
        self._parts["index"] = index
        return self._fill(templates.ETA, starts=starts, weights=weights)

    def _table(self, role: str, values: FloatArray) -> Table:
        """Return a table of these numbers; C has no empty tables."""
        return self._source.table(role, values if len(values) > 0 else [0.0])

    def _variances(self) -> str:
        """Return the definition of ``NAME_variances_(phi, v)``."""
        roots = _roots(self._model)
        joint, n = self._model.uncertainty == "joint", self._n_outputs
        n_variances = n * n if joint else n
        self._parts["variances"] = n_variances
        packed = [root[np.triu_indices(len(root), 0, root.shape[1])] for root in roots]
        table = self._table("factors", np.concatenate(packed))
        own, (n_rows, n_columns) = "${NAME}_starts_(c + 1) - ${NAME}_starts_(c)", roots[0].shape
        rows = self._source.fill(own) if n_rows == n_columns else n_rows
        parts = {"type": table.type, "factors": table.name, "matrices": len(roots), "rows": rows}
        return self._fill(templates.JOINT_VARIANCES if joint else templates.VARIANCES, **parts)

    def _regression(self) -> list[str]:
        counts = self._model.link == "log"
        mean = self._fill("$exp(eta[0])") if counts else "eta[0]"
        found = [self._fill(templates.MEAN if self._n_outputs == 1 else templates.MEANS, mean=mean)]
        if not self._uncertain:
            return found
        found.append(self._variances())
        if counts:
            return [*found, self._fill(templates.COUNT_STD)]
        assert self._model.noise_variance is not None
        noise = np.broadcast_to(self._model.noise_variance, self._n_outputs)
        self._source.real.check("noise variance", noise)
        return [*found, self._fill(templates.STD, noise=self._source.table("noise", noise).name)]

    def _classification(self) -> list[str]:
        model = self._model
        assert model.classes is not None
        self._parts["classes"] = len(model.classes)
        found, moderation = [], ""
        if self._uncertain:
            found.append(self._variances())
            moderation = self._fill(templates.MODERATION)
        if self._uncertain and model.link == "softmax":
            found.append(self._fill(templates.SOFTMAX_SCORES))
        else:
            found.append(self._fill(templates.SCORES, moderation=moderation))
        found.append(self._fill(templates.CLASS_OF_TWO if self._n_outputs == 1 else templates.CLASS))
        found.append(self._probabilities())
        names = ",\n        ".join(quote(label) for label in model.classes)
        return [*found, self._fill(templates.CLASS_NAME, names=names)]

    def _probabilities(self) -> str:
        link, n = self._model.link, self._n_outputs
        if link == "probit" and n == 2:
            return self._fill(templates.PROBIT_OF_TWO)
        prepare, weigh = "", self._fill(templates.EXPONENTIALS)
        if link == "logistic":
            prepare = self._fill(templates.LOG_ODDS if n == 1 else templates.LOG_SIGMOID)
        elif link == "probit":
            step = probit_step(n, self._source.real.name)
            weigh = self._fill(templates.PROBIT, step=step, nodes=round((8.0 + 7.5) / step) + 1)
        return self._fill(templates.PROBABILITIES, prepare=prepare, weigh=weigh)

    def _fill(self, template: str, **parts: object) -> str:
        return self._source.fill(template, **(self._parts | parts))

    def _about(self) -> list[str]:
        """Return the lines of the first comment."""
        model, real = self._model, self._source.real
        size, width = sum(table.size for table in self._source.tables.values()), real.dtype.itemsize
        n_variances = int(self._parts.get("variances", 0))  # type: ignore[call-overload] # an integer
        stack = width * (model.n_functions + model.n_features + n_variances + 3 * self._n_outputs)
        results = "outputs" if model.classes is None else "classes"
        n_results = self._n_outputs if model.classes is None else len(model.classes)
        lines = [
            f"{plain(model.estimator)}: inputs {model.n_features}, {results} {n_results}, functions "
            f"{model.n_functions}. Written by sparsebayes {plain(__version__)}.",
            f"Constant data: {size} bytes in tables of {real.name} ({width} bytes); code is not counted.",
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


def _columns_of(leaf: Kernel, n_features: int) -> IntArray:
    """Return the columns of x that an elementary kernel uses."""
    return leaf.positions(n_features) if isinstance(leaf, OnColumns) else np.arange(n_features)


def _roots(model: ServedModel) -> list[FloatArray]:
    """Return R, upper triangular, with R^T R the covariance, for each covariance of the model."""
    if model.uncertainty != "directions":
        return [factor(covariance) for covariance in model.covariances]
    # A row of zeros if there are no directions.
    return [np.linalg.qr(D.T if D.size else np.zeros((1, len(D))))[1] for D in model.covariances]


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
    """Return a label in UTF-8."""
    return str(label).encode("utf-8", "backslashreplace")


def plain(text: str) -> str:
    """Return the name of a kernel or an estimator without characters that could end a comment."""
    return re.sub(r"[^A-Za-z0-9 _.,:+*=()\[\]'-]", "_", text)
