"""What a fitted model is, how good it is and what to do about it, on one screen: ``summary()``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
from scipy.special import entr
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .._checks import counted, is_auto, listed
from .._data.basis import learns_kernel
from .._row_likelihoods import DISPERSIONS, FREEDOMS
from ..kernels._resolve import is_precomputed
from .status import functions_of, number_of_functions

#: Most inputs and outputs that are shown, and the smallest relevance that is shown as a number.
_MAX_SHOWN: Final = 10
_MIN_RELEVANCE: Final = 0.005
#: Rows of smaller weight are reported as outliers.
_OUTLIER_WEIGHT: Final = 0.1
#: Arguments of the constructor that are read here, after the fit.
SUMMARISED: Final = {"kernel", "gamma", "optimize_kernel", "extra_basis", "class_weight"}
#: Columns of the labels and of the whole text, and letters of a kernel.
_LABEL, _WIDTH, _KERNEL_WIDTH = 14, 100, 80


@dataclass(frozen=True)
class Summary:
    """A summary of a fitted model; its text by ``str`` or ``print``, a table in notebooks."""

    title: str
    lines: dict[str, str]

    def __str__(self) -> str:
        """Return the text."""
        rows = [f"{label:{_LABEL}}{text}" for label, text in self.lines.items()]
        wrapped = [textwrap.fill(row, _WIDTH, subsequent_indent=" " * _LABEL) for row in rows]
        return "\n".join([self.title, *wrapped])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = (
            f'<tr><th style="text-align:left">{escape(label)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for label, text in self.lines.items()
        )
        return f"<table><caption>{escape(self.title)}</caption>{''.join(rows)}</table>"


def summary_of(est: Any) -> Summary:
    """Return the summary of an estimator; NotFittedError before a fit."""
    check_is_fitted(est)
    est = copy(est)
    vars(est).update(est._given)
    rows = "rows" if est._n_rows is None else counted(est._n_rows, "row")
    of = f" of {est._n_basis - int(est._basis.bias)}" if hasattr(est, "_basis") else ""
    found = f"{number_of_functions(est)}{of} {functions_of(est)}"
    inputs = counted(est.n_features_in_, "input")
    return Summary(f"{type(est).__name__} on {rows} of {inputs}: {found}", dict(_lines(est)))


def _lines(est: Any) -> Iterator[tuple[str, str]]:
    if hasattr(est, "kernel_"):
        yield "kernel", _kernel(est)
    if hasattr(est, "class_prior_"):
        shares = zip(est.classes_, est.class_prior_, strict=True)
        shown = listed([f"{label}: {100.0 * share:.3g} %" for label, share in shares], _MAX_SHOWN)
        weighted = "" if getattr(est, "class_weight", None) is None else ", weighted by class_weight"
        yield "classes", f"{shown} of the rows{weighted}"
    if getattr(est, "_loo", None) is not None:
        loo = est._loo.scores
        if is_classifier(est):
            p = est.class_prior_
            alone = f"{100.0 * (1.0 - p.max()):.1f} %, {entr(p).sum():.4g}"
            found = f"error {100.0 * (1.0 - loo.score):.1f} %, log loss {-loo.mean_log_density:.4g}"
            found += f" (the shares of the classes alone: {alone})"
        else:
            shares_within = np.atleast_1d(loo.loo_coverage)[:_MAX_SHOWN]
            covers = ", ".join(f"{100.0 * share:.1f}" for share in shares_within)
            kind = "R^2" if est._likelihood.has_noise else "D^2"
            found = f"{kind} {loo.score:.4g}, log density {loo.mean_log_density:.4g}"
            found += f", 95 % intervals hold {covers} % of the rows"
        yield "leave-one-out", found
    if hasattr(est, "inputs_"):
        yield "inputs", _inputs(est)
    if hasattr(est, "noise_variance_"):
        stds = np.atleast_1d(np.sqrt(est.noise_variance_))
        unit = "" if getattr(est, "_y_variance", None) is None else " times y_std"
        if hasattr(est, "noise_model_"):
            n = number_of_functions(est.noise_model_)
            unit = f" on average, and depends on {counted(n, 'column')} of noise_basis"
        what = "scale of Student's t" if hasattr(est, "row_weights_") else "standard deviation"
        yield "noise", f"{listed([f'{std:.4g}' for std in stds], _MAX_SHOWN)}{unit} ({what})"
    if hasattr(est, "dispersion_"):
        yield "dispersion", f"{est.dispersion_:.4g}{_at_limit(est.dispersion_, DISPERSIONS)}"
    if hasattr(est, "row_weights_"):
        few = int(np.sum((est.row_weights_ > 0.0) & (est.row_weights_ < _OUTLIER_WEIGHT)))
        outliers = f"{counted(few, 'row')} with a weight below {_OUTLIER_WEIGHT}"
        limit = _at_limit(est.degrees_of_freedom_, FREEDOMS)
        yield "outliers", f"{outliers}; {est.degrees_of_freedom_:.4g} degrees of freedom{limit}"
    if hasattr(est, "log_marginal_likelihood_"):
        yield "log evidence", f"{est.log_marginal_likelihood_:.6g}"
    yield "status", est.status_
    if est._advice:
        yield "advice", est._advice


def _at_limit(value: float, limits: tuple[float, float]) -> str:
    """Return a note about a parameter that is as small or as large as it may be."""
    for limit, which in zip(limits, ("smallest", "largest"), strict=True):
        if np.isclose(value, limit, rtol=1e-4):
            return f" (the {which} allowed)"
    return ""


def _kernel(est: Any) -> str:
    own = _kernel_alone(est)
    chosen = is_auto(getattr(est, "extra_basis", None)) and est.extra_basis_ == "linear"
    return f"{own}; linear terms" if chosen else own


def _kernel_alone(est: Any) -> str:
    if is_precomputed(est.kernel_):
        return "precomputed"
    if not isinstance(est.kernel, str):
        learned = ", learned" if learns_kernel(est) else ""
        return textwrap.shorten(repr(est.kernel_), _KERNEL_WIDTH, placeholder=" ...") + learned
    if learns_kernel(est):
        widths = "a width for each input" if hasattr(est, "inputs_") else "its width"
        name = est.kernel_._core_name  # that of a process may be another one
        return f"{'rbf' if name == 'gaussian' else name}, {widths}, learned"
    return f"{est.kernel}, gamma {est.gamma if est.gamma not in ('ard', 'learn') else 'scale'}"


def named_inputs(est: Any) -> dict[str, float]:
    """Return ``inputs_`` by names, which may have been given after the fit; none where there are none."""
    names = getattr(est, "feature_names_in_", None)
    return {
        str(key if names is None or isinstance(key, str) else names[key]): size
        for key, size in getattr(est, "inputs_", {}).items()
    }


def _inputs(est: Any) -> str:
    sizes = named_inputs(est)
    shown = [f"{name} {size:.3g}" for name, size in sizes.items() if size >= _MIN_RELEVANCE]
    rest = list(sizes)[len(shown) :]
    lines = [f"{listed(shown, _MAX_SHOWN)} (relevance)"] if shown else []
    return "; ".join([*lines, f"little or nothing: {listed(rest, _MAX_SHOWN)}"] if rest else lines)
