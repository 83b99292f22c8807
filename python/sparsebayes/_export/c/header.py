"""Fitted models as C99 headers."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import numpy as np

from ..._checks.arguments import check_flag
from ..._core import __version__
from ..._types import FloatArray
from ..description import Centres, ServedModel, describe, factor
from . import links
from .functions import Functions
from .source import Source, Table, check_name, check_real_type, encode, plain, quote

_HEADER = """\
/*
$about
 */
#ifndef SPARSEBAYES_${NAME}_H
#define SPARSEBAYES_${NAME}_H

#include <math.h>
#include <stddef.h>

#define ${MACRO}_N_FEATURES $features
$count
typedef $type $REAL;

$tables
$functions
#endif
"""

_FORMULAE = {
    "identity": "mean eta, variance noise + v",
    "log": "a count with mean exp(eta), variance exp(eta + v/2) + (e^v - 1) exp(2 eta + v)",
    "logistic": "P(c) proportional to s(z_c), s(z) = 1 / (1 + e^-z), z = eta / sqrt(1 + pi v / 8)",
    "softmax": "P(c) proportional to 1 / sum_d exp(-k_cd (eta_c - eta_d)), k_cd = 1 / sqrt(1 + pi v_cd / 8), "
    "v_cd the variance of eta_c - eta_d",
    "probit": "P(c) = E_u prod_(d != c) Phi(u + eta_c - eta_d), u standard normal",
}
_WITHOUT_VARIANCES = {
    "identity": "mean eta",
    "log": "a count with mean exp(eta)",
    "logistic": "P(c) proportional to s(eta_c), s(z) = 1 / (1 + e^-z)",
    "softmax": "P(c) proportional to exp(eta_c)",
    "probit": _FORMULAE["probit"],
}
#: Standard deviations above these, or below their inverses, are computed in other units, because their
#: squares might overflow or underflow.
_MAX_STD = {"float": 1e6, "double": 1e100}


def to_c(est: Any, *, name: str = "model", dtype: str = "float", std: bool = True) -> str:
    r"""Return a fitted estimator as a C99 header that predicts without this package.

    The header needs no memory allocation, no state and no library but libm; it also compiles as C++. All its
    identifiers are ``static`` and begin with ``name``, so that a program can include several models, and the
    same model in several files. Its first comment states the bytes of constant data. With ``name="model"`` it
    has

    * ``MODEL_N_FEATURES`` and ``MODEL_N_OUTPUTS`` or ``MODEL_N_CLASSES``; ``model_real``, the type of the
      numbers;
    * regression: ``model_real model_predict(const model_real *x)``, or with several outputs ``void
      model_predict(x, model_real *mean)``; ``void model_predict_std(x, model_real *mean, model_real *sd)``;
    * classification: ``int model_predict_class(x)``, the index into ``classes_``; ``void
      model_predict_proba(x, model_real *p)``; ``const char *model_class_name(int c)``, the label as text in
      UTF-8.

    ``x`` is one row of X and must hold finite numbers.

    Parameters
    ----------
    est : estimator
        A fitted estimator of this package.
    name : str, default="model"
        Prefix of the identifiers in the header: ASCII letters, digits and single underscores, at most 32.
    dtype : {"float", "double"}, default="float"
        The type of the numbers. Predictions in "float" agree with the estimator's to about 1e-6 of the
        largest term w_j phi_j: compare them where large terms cancel.
    std : bool, default=True
        Whether to include error bars. Their table has m^2 / 2 numbers for m functions. Without them
        regression has no ``model_predict_std``, and probabilities equal those of ``moderate=False``.

    Returns
    -------
    str
        The header, in ASCII.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, if only Python can evaluate the basis functions (callable kernels, extra
        basis functions other than "linear"), or if numbers of the model are out of the range of ``dtype``.
    NotFittedError
        If est is not fitted.

    Notes
    -----
    Tables of small integers have small types: relevance vectors made of pixels take a byte per pixel.
    Variances are equation 22 of Tipping (2001), from a triangular factor of the posterior covariance. The
    probit's probabilities are integrated to rounding error, whatever ``n_quadrature`` is.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, to_c
    >>> X = np.linspace(-5, 5, 50)[:, np.newaxis]
    >>> header = to_c(RVR(gamma=0.5, noise_variance=0.01).fit(X, np.sinc(X[:, 0])), name="sinc")
    >>> print(*header.splitlines()[1:3], sep="\n")  # doctest: +ELLIPSIS
     * RVR with 1 input and ... functions, written by sparsebayes ...
     * Constant data: ... bytes in tables of float (4 bytes); code is not counted.
    >>> "static inline sinc_real sinc_predict(const sinc_real *x)" in header
    True
    """
    source = Source(check_name(name), check_real_type(dtype))
    with_std = check_flag("std", std)
    return _Header(source, describe(est), with_std).write()


class _Header:
    """One header."""

    def __init__(self, source: Source, model: ServedModel, std: bool) -> None:
        self._source, self._model = source, model
        self._uncertain = std and model.uncertainty != "none"
        self._n_outputs = len(model.outputs)
        #: Numbers on the stack.
        self._stack = max(model.n_functions, 1)
        #: Arguments of all templates of predictions.
        self._parts: dict[str, object] = {"functions": max(model.n_functions, 1), "outputs": self._n_outputs}

    def write(self) -> str:
        """Return the text."""
        model = self._model
        functions = Functions(self._source, model.n_features)
        functions.write(model.blocks)
        self._stack += functions.scratch
        definitions = [*functions.definitions, self._predictors()]
        definitions += self._regression() if model.classes is None else self._classification()
        n = self._n_outputs if model.classes is None else len(model.classes)
        what = "OUTPUTS" if model.classes is None else "CLASSES"
        return self._source.fill(
            _HEADER,
            about="\n".join(self._about()),
            features=model.n_features,
            count=self._source.fill("#define ${MACRO}_N_$what $n\n", what=what, n=n),
            type=self._source.real.name,
            tables="\n".join(table.definition for table in self._source.tables.values()),
            functions="\n".join(definitions),
        )

    def _predictors(self) -> str:
        """Return the definition of the linear predictors."""
        outputs, starts, index = self._model.outputs, "", self._source.fill("j - ${NAME}_starts_(c)")
        if all(map(self._model.has_all_functions, outputs)):
            starts = f"{self._model.n_functions} * c"
        else:
            at = self._source.indices("at", np.concatenate([output.functions for output in outputs])).name
            ends = np.cumsum([0, *(len(output.functions) for output in outputs)])
            starts, index = f"{self._source.indices('starts', ends).name}[c]", f"{at}[j]"
        weights = self._table("weights", np.concatenate([output.weights for output in outputs])).name
        self._parts |= {"index": index}
        return self._fill(links.ETA, starts=starts, weights=weights)

    def _table(self, role: str, values: FloatArray) -> Table:
        """Return a table of these numbers; C has no empty tables."""
        return self._source.table(role, values if len(values) > 0 else [0.0])

    def _variances(self, roots: list[FloatArray]) -> str:
        """Return the definition of ``NAME_variances_(phi, v)``; the roots are R, the covariances R^T R."""
        joint, n = self._model.uncertainty == "joint", self._n_outputs
        n_variances = n * (n - 1) // 2 if joint else n
        self._stack += n_variances
        self._parts["variances"] = n_variances
        packed = [root[np.triu_indices(len(root), 0, root.shape[1])] for root in roots]
        table = self._table("factors", np.concatenate(packed))
        own, (n_rows, n_columns) = "${NAME}_starts_(c + 1) - ${NAME}_starts_(c)", roots[0].shape
        rows = self._source.fill(own) if n_rows == n_columns else n_rows
        parts = {"type": table.type, "factors": table.name, "matrices": len(roots), "rows": rows}
        return self._fill(links.JOINT_VARIANCES if joint else links.VARIANCES, **parts)

    def _regression(self) -> list[str]:
        self._stack += self._n_outputs
        counts = self._model.link == "log"
        mean = self._fill("$exp(eta[0])") if counts else "eta[0]"
        found = [self._fill(links.MEAN, mean=mean) if self._n_outputs == 1 else self._fill(links.MEANS)]
        if not self._uncertain:
            return found
        roots, units, noise = self._in_units()
        found.append(self._variances(roots))
        if counts:
            return [*found, self._fill(links.COUNT_STD)]
        unit = "" if np.all(units == 1.0) else f"{self._source.table('units', units).name}[c] * "
        self._source.real.check("noise variance", noise)
        level = self._source.table("noise", noise).name
        return [*found, self._fill(links.STD, unit=unit, noise=level)]

    def _in_units(self) -> tuple[list[FloatArray], FloatArray, FloatArray]:
        """Return roots, units of the standard deviations (powers of 2 divide exactly), and noise."""
        model, roots = self._model, _roots(self._model)
        given = np.zeros(1) if model.noise_variance is None else model.noise_variance
        noise = np.broadcast_to(given, self._n_outputs)
        sizes = np.sqrt(noise)
        if len(roots) == 1:  # one matrix, one unit
            sizes = np.full(self._n_outputs, sizes.max())
        large = _MAX_STD[self._source.real.name]
        ordinary = (sizes == 0.0) | ((sizes > 1.0 / large) & (sizes < large))
        units = np.where(ordinary, 1.0, 2.0 ** np.round(np.log2(np.where(ordinary, 1.0, sizes))))
        return [root / unit for root, unit in zip(roots, units, strict=False)], units, noise / units**2

    def _classification(self) -> list[str]:
        model = self._model
        assert model.classes is not None
        self._parts["classes"] = len(model.classes)
        self._stack += 2 * self._n_outputs
        found, moderation = [], ""
        if self._uncertain:
            found.append(self._variances(_roots(model)))
            moderation = self._fill(links.MODERATION)
        if self._uncertain and model.link == "softmax":
            self._stack += self._n_outputs
            found.append(self._fill(links.SOFTMAX_SCORES))
        else:
            found.append(self._fill(links.SCORES, moderation=moderation))
        found.append(self._fill(links.CLASS_OF_TWO if self._n_outputs == 1 else links.CLASS))
        found.append(self._probabilities())
        names = ",\n        ".join(quote(label) for label in model.classes)
        return [*found, self._fill(links.CLASS_NAME, names=names)]

    def _probabilities(self) -> str:
        link, n = self._model.link, self._n_outputs
        if link == "probit" and n == 2:
            return self._fill(links.PROBIT_OF_TWO)
        prepare, weigh = "", self._fill(links.EXPONENTIALS)
        if link == "logistic":
            prepare = self._fill(links.LOG_ODDS if n == 1 else links.LOG_SIGMOID)
        elif link == "probit":
            step = probit_step(n, self._source.real.name)
            weigh = self._fill(links.PROBIT, step=step, nodes=round((8.0 + 7.5) / step) + 1)
        return self._fill(links.PROBABILITIES, prepare=prepare, weigh=weigh)

    def _fill(self, template: str, **parts: object) -> str:
        return self._source.fill(template, **(self._parts | parts))

    def _about(self) -> list[str]:
        """Return the lines of the first comment."""
        model, real = self._model, self._source.real
        size, width = sum(table.size for table in self._source.tables.values()), real.dtype.itemsize
        counts = [_count(model.n_features, "input")]
        if model.classes is None:
            counts += [_count(self._n_outputs, "output")] * (self._n_outputs > 1)
        else:
            counts.append(f"{len(model.classes)} classes")
        lines = [
            f"{plain(model.estimator)} with {', '.join(counts)} and {_count(model.n_functions, 'function')}, "
            f"written by sparsebayes {plain(__version__)}.",
            f"Constant data: {size} bytes in tables of {real.name} ({width} bytes); code is not counted.",
        ]
        if model.classes is not None:
            strings = sum(len(encode(label)) + 1 for label in model.classes)
            lines.append(f"Names of the classes, if they are used: {strings} bytes, and a pointer each.")
        stack = width * self._stack
        lines.append(f"Stack: {stack} bytes of arrays at most. No allocation, no state; needs libm.")
        eta = "eta = sum_j w_j phi_j(x)" + (", v = |R phi|^2 its variance" if self._uncertain else "")
        formula = (_FORMULAE if self._uncertain else _WITHOUT_VARIANCES)[model.link]
        lines += ["", *wrap(f"{eta}: {formula}.", 110), *self._kernels()]
        if model.feature_names is not None:
            lines += ["", *(f"x[{d}]: {quote(name)}" for d, name in enumerate(model.feature_names))]
        return [f" * {line}".rstrip() for line in lines]

    def _kernels(self) -> list[str]:
        kernels = [block.kernel for block in self._model.blocks if isinstance(block, Centres)]
        texts = dict.fromkeys(plain(repr(kernel)) for kernel in kernels)
        return [f"phi: {text[:100] + ' ...' * (len(text) > 100)}" for text in texts]


def _roots(model: ServedModel) -> list[FloatArray]:
    """Return R, upper triangular, with R^T R the covariance, for each covariance of the model."""
    if model.uncertainty != "directions":
        return [factor(covariance) for covariance in model.covariances]
    # A row of zeros if there are no directions.
    return [np.linalg.qr(D.T if D.size else np.zeros((1, len(D))))[1] for D in model.covariances]


def probit_step(n_classes: int, real: str) -> float:
    """Return the distance between the nodes of the probit's integral.

    It is a power of 2, so that its multiples are exact. The largest measured error of a probability is 1e-13
    with "double" and 4e-7 with "float".
    """
    few, many = (14, 300) if real == "float" else (3, 30)
    return 0.5 if n_classes <= few else 0.25 if n_classes <= many else 0.125


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
