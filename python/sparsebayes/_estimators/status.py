"""What a fit says of its model: its status, warnings, also about no functions or too many, and ``summary()``.

A fit warns at most once. The warning names the problem with the data or the kernel, if they are known, and
the remedy.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._arrays import TO_TABLE, Training, about_copies, is_unstored
from .._checks import counted, has_flat_intercept, is_auto, listed
from .._data.basis import learns_kernel
from .._data.design import evaluate
from .._row_likelihoods import DISPERSIONS, FREEDOMS
from .._types import FloatArray, IntArray
from ..kernels import Kernel, OnColumns
from ..kernels._base import Sum, column_stds
from ..kernels._resolve import is_precomputed

#: Statuses, best first, with their remedies. Several fits have the worst status of them.
REMEDIES: Final = {
    "converged": "",
    "empty": "",  # see `_cause_of_emptiness`
    "stopped": "",
    "noise_floor": "the estimated noise variance fell to its floor, var(y) / 1e6: y seems to be free of "
    "noise. Set noise_variance to the noise you expect",
    "alpha_floor": "a weight grows without bound: its alpha fell to the floor, 1e-15 for a column of unit "
    "length. If y is far from 0 subtract its mean, or set fit_intercept=True; else scale X or change the "
    "width of the kernel, if there is one",
    "max_iter": "max_iter={max_iter} steps were not enough. Raise max_iter or tol",
    "stalled": "rounding stopped the fit, perhaps far from an optimum: columns of X or functions of the "
    "kernel are almost dependent, with so little noise or so large counts or sample weights, or classes have "
    "a strong alpha_prior. Scale X, change the kernel width, weaken the prior, or raise tol",
}

#: Statuses of models that can be overfitted.
_AT_AN_OPTIMUM: Final = ("converged", "noise_floor", "alpha_floor", "stalled")
_CONSTANT: Final = "y is constant, and so is the model; its error bars are meaningless"
_ALL_ZERO: Final = "All counts are 0, which tells that events are rare but not how rare"
_FLAT_AT_ZERO: Final = (
    ": the predicted rate is nearly 0, and its error bars are infinite. Give rows with events, or "
    "penalize_intercept=True for finite error bars"
)
_LEAST_DISPERSION: Final = (
    "the estimate of the dispersion reached its floor, 1e-6: as far as the fit can tell y is free of noise. "
    "Set dispersion to the one you expect, the variance of y about its mean divided by the squared mean"
)
_MOSTLY_EQUAL: Final = (
    "the model predicts the same for every row, with almost no noise: most targets are equal or nearly so. "
    "If the others are no outliers take another likelihood"
)
#: Mean deviance of counts, by degrees of freedom, above which a Poisson model of them may be far off: with 60
#: and 400 rows it is 0.7 to 1.2 for Poisson counts.
_MAX_DEVIANCE: Final = 3.0
#: Largest ratio of the standard deviations of two inputs that one scale can suit.
_MAX_STD_RATIO: Final = 1e3
#: Number of rows for standard deviations, and for kernel values.
_STD_ROWS: Final = 1000
_KERNEL_ROWS: Final = 50
#: Kernel values, relative to the diagonal, above which a kernel is too wide and below which it is too narrow.
_WIDE_KERNEL_VALUE: Final = 0.99
_NARROW_KERNEL_VALUE: Final = 0.01
#: Weights whose sum is below this and below half of the number of rows were probably normalised: they do not
#: count rows.
_MIN_TOTAL_WEIGHT: Final = 20.0
#: Weights whose mean is above this were probably not meant to count rows, if rounding stops a fit with them.
_MAX_MEAN_WEIGHT: Final = 100.0
#: Largest number of functions that may all be constant; more would be linearly dependent.
_MAX_CONSTANT_FUNCTIONS: Final = 3
#: Predictions that differ by less, in units of the noise std or of log odds, are equal.
_CONSTANT_RTOL: Final = 1e-6


class OverfitWarning(ConvergenceWarning):  # type: ignore[misc] # scikit-learn carries no types
    """Error bars are too small: the parameters are more than half of the rows, or the noise is at its floor.

    Parameters are counted by sum_j (1 - alpha_j Sigma_jj), the number that the data determine; rows by their
    number or the sum of their weights, whichever is less.
    """


@dataclass(frozen=True)
class RowSummary:
    """What a fit knows of its rows when it ends; None if unknown."""

    #: Rows of positive weight, and the sum of their weights.
    n_rows: int | None = None
    weight: float | None = None
    #: Inputs, or kernel values if these were given.
    X: FloatArray | None = None
    #: Targets or labels.
    y: NDArray[Any] | None = None
    #: Parameters that the data determine, of the output with the most.
    n_effective: float | None = None
    #: A column of a sparse matrix or an operator, and the standard deviations from 0 to its mean: too many.
    far: tuple[int, float] | None = None

    @classmethod
    def of(cls, training: Training) -> RowSummary:
        """Return the summary of rows in memory."""
        return cls(
            len(training.y), training.weight, None if is_unstored(training.X) else training.X, training.y
        )

    @property
    def size(self) -> float | None:
        """Number of rows or sum of their weights, whichever is less."""
        known = [value for value in (self.n_rows, self.weight) if value is not None]
        return min(known) if known else None


def is_empty(est: Any) -> bool:
    """Return whether a model has no function but the intercept."""
    return number_of_functions(est) == 0


def number_of_functions(est: Any) -> int:
    """Return the number of functions besides the intercept."""
    if hasattr(est, "n_effective_"):
        return int(np.max(est.n_effective_))
    return int(np.count_nonzero(est.active_ >= 0))


def is_constant(est: Any, summary: RowSummary) -> bool:
    """Return whether the model's functions are all constant, as those of a kernel far too wide are."""
    X = summary.X
    if not hasattr(est, "kernel_") or getattr(est, "extra_basis_", None) is not None:
        return False
    if X is None or len(X) < 2 or number_of_functions(est) > _MAX_CONSTANT_FUNCTIONS:
        return False
    scale = np.sqrt(getattr(est, "noise_variance_", 1.0) * _unit_of_noise(est))
    with np.errstate(all="ignore"):
        predictors = est._linear_predictor(X[_some_rows(X)])
        return bool(np.all(np.ptp(predictors, axis=0) <= _CONSTANT_RTOL * scale))


def _some_rows(X: FloatArray) -> IntArray:
    return np.unique(np.linspace(0, len(X) - 1, _KERNEL_ROWS).astype(np.intp))


def _unit_of_noise(est: Any) -> float:
    """Return the variance of y that ``noise_variance=1`` means: with ``y_std`` that of a typical row."""
    return getattr(est, "_y_variance", None) or 1.0


def warning_of(est: Any, summary: RowSummary) -> tuple[type[Warning], str] | None:
    """Return category and message of the warning about this fit, or None."""
    unscaled, status = _about_far(est, summary) or about_scales(est, summary.X), est.status_
    category: type[Warning] = ConvergenceWarning
    given = getattr(est, "noise_variance", None) is not None
    n, weight = summary.n_rows, summary.weight
    is_heavy = n is not None and weight is not None and weight > _MAX_MEAN_WEIGHT * n
    has_final = hasattr(est, "process_variance_") and not is_heavy
    excess = _deviance(est, summary)
    # Rounding may keep all functions out of a model.
    is_bare = status == "empty" or (status == "stalled" and is_empty(est))
    if is_bare:
        extent = f"no {functions_of(est)}" if is_empty(est) else f"only constant {functions_of(est)}"
        message = f"the model has {extent} and predicts the same for every row. "
        with np.errstate(all="ignore"):
            message += _cause_of_emptiness(est, summary, unscaled)
    elif status in _AT_AN_OPTIMUM and is_saturated(summary) and not given:
        category, message = OverfitWarning, _overfit(est, summary)
    elif has_final and status in ("alpha_floor", "stalled"):
        message = ""  # the final weights do not depend on those of the selection
    elif status == "noise_floor" and is_empty(est):
        is_constant = summary.y is None or (summary.y == summary.y[:1]).all()
        message = _CONSTANT if is_constant else _MOSTLY_EQUAL
    elif status == "noise_floor" and hasattr(est, "dispersion_"):
        message = _LEAST_DISPERSION
    elif status in ("converged", "stalled", "max_iter") and excess > _MAX_DEVIANCE:
        category = UserWarning if status == "converged" else category
        message = (
            f"y varies {excess:.1f} times as much as counts of a Poisson distribution: error bars are too "
            "small, and predictions may be far off. Give likelihood='negative_binomial'"
        )
    else:
        message = REMEDIES[status].format(**est.get_params(deep=False))
    if status == "noise_floor" or category is OverfitWarning:
        category, message = OverfitWarning, message + _copies(summary)
    if status == "stalled" and message and is_heavy:
        message += (
            f". sample_weight counts rows, and sums to {weight:.3g} over {n} rows: scale it if not meant so"
        )
    if unscaled is not None and not is_bare:
        message = f"{message}. {unscaled}" if message else unscaled
        as_meant = status in ("converged", "stopped") and category is not OverfitWarning
        category = UserWarning if as_meant else category
    if not message:
        return None
    ending = "" if status in ("converged", "stopped") else f" ended with status {status!r}"
    return category, f"{type(est).__name__}{ending}: {message}."


def _about_far(est: Any, summary: RowSummary) -> str | None:
    if summary.far is None:
        return None
    j, distance = summary.far
    name = getattr(est, "feature_names_in_", range(est.n_features_in_))[j]
    return (
        f"The mean of column {name!r} of X is {distance:.1g} of its standard deviations, so that sums over "
        f"rows lose its digits: subtract its mean, or give {TO_TABLE}"
    )


def _deviance(est: Any, summary: RowSummary) -> float:
    """Return the mean deviance of Poisson counts by degrees of freedom; 0 if unknown."""
    if getattr(est, "likelihood", "") != "poisson" or est._loo is None or summary.n_effective is None:
        return 0.0
    left_out = est._loo
    y, eta, log_likelihood = left_out.t, left_out.m[:, 0], left_out.row.log_likelihood
    w = np.ones(len(y)) if left_out.counts is None else left_out.counts
    terms = log_likelihood(np.log(np.maximum(y, 1e-300)), y) - log_likelihood(eta, y)
    return float(2.0 * (w @ terms) / max(w.sum() - summary.n_effective, 1.0))


def _copies(summary: RowSummary) -> str:
    if summary.X is None or summary.y is None or len(summary.X) != len(summary.y):
        return ""
    found = about_copies(summary.X, summary.y)
    return f". {found}" if found else ""


def _widths_of(est: Any) -> str:
    """Return how to choose other widths."""
    if not hasattr(est, "optimize_kernel"):
        return "kernels.Gaussian takes widths"
    if learns_kernel(est):
        return f"its widths were learned from {_extent(est)}"
    return "gamma='ard' learns its widths"


def _extent(est: Any, y: NDArray[Any] | None = None) -> str:
    """Return the numbers of rows and inputs, and of events or rows of the rarest class in ``y``."""
    rows = "rows" if est._n_rows is None else counted(est._n_rows, "row")
    extent = f"{rows} of {counted(est.n_features_in_, 'input')}"
    if y is not None and is_classifier(est):
        return f"{extent} with {np.unique(y, return_counts=True)[1].min()} of the rarest class"
    if y is not None and getattr(est, "likelihood", "") in ("poisson", "negative_binomial"):
        return f"{extent} with {y.sum():.6g} events"
    return extent


def functions_of(est: Any) -> str:
    """Return the name of the parts of a model."""
    if hasattr(est, "eigenvalues_"):
        return "relevant eigenvectors"
    return "functions" if hasattr(est, "kernel_") else "columns"


def _has_width(est: Any) -> bool:
    return any(leaf._length_powers().any() for leaf, _ in _leaves_of(est))


def _leaves_of(est: Any) -> Iterator[tuple[Kernel, IntArray]]:
    """Yield the elementary kernels of a model, and the columns of X that each of them uses."""
    if isinstance(getattr(est, "kernel_", ""), str):  # no kernel, or "precomputed"
        return
    for kernel in est._kernels():
        for leaf in kernel._leaves():
            columns = np.arange(est.n_features_in_)
            while isinstance(leaf, OnColumns):
                columns, leaf = columns[leaf.positions(len(columns))], leaf.inner()
            yield leaf, columns


def _cause_of_emptiness(est: Any, summary: RowSummary, unscaled: str | None) -> str:
    X, y = summary.X, summary.y
    given = getattr(est, "noise_variance", None)
    given = None if given is None else np.asarray(given) * _unit_of_noise(est)
    if y is not None and (y == y[:1]).all():
        if getattr(est, "likelihood", "") != "poisson" or y.any():
            return _CONSTANT
        return _ALL_ZERO + (_FLAT_AT_ZERO if has_flat_intercept(est) else "")
    if (fault := _about_weights(est, summary)) is not None:
        found = fault
    elif given is not None and y is not None and np.all(given >= y.var(axis=0)):
        found = "noise_variance is not less than the variance of y, which leaves nothing to explain"
    elif _lacks_intercept(est, y):
        found = "y is far from 0: subtract its mean, or set fit_intercept=True"
    elif X is not None and len(X) > 1 and not _stds(X).any():
        return "All rows of X are the same: there is nothing to learn from"
    elif (fault := unscaled or _about_sums(est, X)) is not None:
        found = fault
    elif learns_kernel(est):  # a learned kernel is wide because no function was found, not the reverse
        too_few = f"{_extent(est, y)} are too few to learn it"
        return f"The inputs may not explain y; or the kernel does not suit them, or {too_few}"
    elif (fault := _unsuited(est, X)) is not None:
        found = fault
    elif hasattr(est, "kernel_"):
        remedy = f"change its width ({_widths_of(est)})" if _has_width(est) else "take another"
        return f"The inputs may not explain y; or the kernel does not suit them: scale X, or {remedy}"
    else:
        scaled = "" if summary.weight == summary.n_rows else ", or sample_weight scaled"
        return f"The inputs may not explain y; or they need to be transformed first{scaled}"
    return f"{found}. If this is intended, the inputs may not explain y"


def _about_weights(est: Any, summary: RowSummary) -> str | None:
    """Return a message if the sample weights were probably normalised."""
    n, weight = summary.n_rows, summary.weight
    if n is None or weight is None or weight >= min(_MIN_TOTAL_WEIGHT, n / 2):
        return None
    found = (
        f"sample_weight counts rows, and sums to {weight:.3g} over {n} rows. The fit takes this sum for the "
        f"number of rows: multiply the weights by {n / weight:.3g}"
    )
    if getattr(est, "likelihood", "") == "gaussian":
        found += "; weights that are precisions of y, 1/sigma^2, go into y_std as sigma"
    return found


def _lacks_intercept(est: Any, y: NDArray[Any] | None) -> bool:
    """Return whether a constant, which the model lacks, would explain most of the targets of a regression."""
    if y is None or getattr(est, "fit_intercept", True) or hasattr(est, "classes_"):
        return False
    if getattr(est, "likelihood", "gaussian") not in ("gaussian", "student_t"):
        return False
    return bool(np.any(np.abs(y.mean(axis=0)) > y.std(axis=0)))


def _unsuited(est: Any, X: FloatArray | None) -> str | None:
    """Return a message if kernel values of pairs of rows, relative to the diagonal, are nearly all 1 or 0."""
    kernel = getattr(est, "kernel_", None)
    if X is None or kernel is None or len(X) < 3:
        return None
    if isinstance(kernel, str) and X.shape[0] != X.shape[1]:  # rows of weight 0 are left out of X
        return None
    rows = _some_rows(X)
    if isinstance(kernel, str):
        blocks = [X[np.ix_(rows, rows)]]
    else:
        blocks = [evaluate(one, X[rows], X[rows], 1) for one in est._kernels()]
    values = np.abs(np.stack(blocks))
    sizes = np.sqrt(np.diagonal(values, axis1=1, axis2=2))
    values /= sizes[:, :, np.newaxis] * sizes[:, np.newaxis]
    values = np.nan_to_num(values[:, ~np.eye(len(rows), dtype=bool)], nan=0.0)
    wide = np.quantile(values, 0.05) > _WIDE_KERNEL_VALUE
    if not wide and np.quantile(values, 0.95) >= _NARROW_KERNEL_VALUE:
        return None
    fact = f"values are nearly {'the same' if wide else '0'} for all pairs of rows"
    if not _has_width(est):
        remedy = "" if isinstance(kernel, str) else ": centre and scale X (StandardScaler)"
        return f"The kernel does not tell rows apart, as its {fact}{remedy}"
    fault, remedy = ("wide", "narrower") if wide else ("narrow", "wider")
    return (
        f"The kernel is far too {fault} for these inputs, as its {fact}: scale X, or make the kernel "
        f"{remedy} ({_widths_of(est)})"
    )


def _about_sums(est: Any, X: FloatArray | None) -> str | None:
    """Return a message if a term of a sum of kernels is hidden by the others."""
    if X is None or isinstance(getattr(est, "kernel_", ""), str):
        return None
    rows = X[_some_rows(X)]
    for kernel in est._kernels():
        if not isinstance(kernel, Sum):
            continue
        sizes = [np.abs(np.diagonal(evaluate(term, rows, rows, 1))).mean() for term in kernel.terms]
        least, most = (pick(sizes) for pick in (np.argmin, np.argmax))
        if sizes[least] < _NARROW_KERNEL_VALUE * sizes[most]:
            hidden, large = (_shortened(kernel.terms[which]) for which in (least, most))
            return (
                f"The kernel is a sum in which {large} hides {hidden}: k(x, x) is {sizes[most]:.2g} and "
                f"{sizes[least]:.2g} on average. Give a list of kernels instead of their sum, or scale X"
            )
    return None


def about_scales(est: Any, X: FloatArray | None) -> str | None:
    """Return a message if a kernel has one scale for inputs of very different standard deviations."""
    leaves = [(leaf, columns) for leaf, columns in _leaves_of(est) if leaf._has_one_scale()]
    if X is None or not leaves:
        return None
    stds = _stds(X)
    for leaf, columns in leaves:
        varying = columns[stds[columns] > 0.0]
        if len(varying) < 2:
            continue
        least, most = (varying[pick(stds[varying])] for pick in (np.argmin, np.argmax))
        if stds[most] > _MAX_STD_RATIO * stds[least]:
            names = getattr(est, "feature_names_in_", range(X.shape[1]))
            how = "" if learns_kernel(est) else f" ({_widths_of(est)})"
            widths = f", or take one width per input{how}"
            return (
                f"The inputs have very different standard deviations, for which the kernel has one scale: "
                f"column {names[most]!r} has the standard deviation {stds[most]:.3g}, "
                f"column {names[least]!r} {stds[least]:.3g}. Scale X (StandardScaler)"
                f"{widths if leaf._length_powers().any() else ''}"
            )
    return None


def _stds(X: FloatArray) -> FloatArray:
    """Return the standard deviation of each column over some of the rows, 0 where it overflows."""
    stds = column_stds(X[:: max(1, len(X) // _STD_ROWS)], None)
    return np.where(np.isfinite(stds), stds, 0.0)


def is_saturated(summary: RowSummary) -> bool:
    """Return whether the data determine more parameters than half of the rows."""
    return summary.size is not None and (summary.n_effective or 0.0) > summary.size / 2


def _overfit(est: Any, summary: RowSummary) -> str:
    assert summary.size is not None
    n = number_of_functions(est) if hasattr(est, "n_effective_") else len(est.active_)
    if (fault := _about_weights(est, summary)) is not None:
        return f"{n} {functions_of(est)} for so few rows: {fault}"
    counted = f"{summary.n_rows} rows"
    if summary.size != summary.n_rows:
        counted = f"{summary.size:.3g} rows (the sum of sample_weight)"
    if _has_width(est):
        cause, remedy = "the kernel is too narrow for these data", f"Make it wider ({_widths_of(est)})"
        remedy += ", or take fewer candidates" if hasattr(est, "candidates") else ""
    elif hasattr(est, "kernel_"):
        cause, remedy = "the kernel makes too many functions", "Take another kernel, or more rows"
    else:
        cause, remedy = "the columns are too many", "Take fewer columns, or more rows"
    if hasattr(est, "classes_"):
        cause += "; probabilities are too close to 0 and 1"
    else:
        found, change = "there is no noise", "set noise_variance to the noise you expect"
        if getattr(est, "likelihood", "") == "poisson":
            found, change = "counts vary more than Poisson counts", "give likelihood='negative_binomial'"
        elif hasattr(est, "dispersion_"):
            change = "set dispersion to the one you expect"
        cause += f" or {found}; error bars are too small"
        remedy += f", or {change}"
    return f"{n} {functions_of(est)} for {counted}: {cause}. {remedy}"


# --- what a fitted model is, how good it is and what to do about it, on one screen ------------------

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
        return _shortened(est.kernel_) + learned
    if learns_kernel(est):
        widths = "a width for each input" if hasattr(est, "inputs_") else "its width"
        name = est.kernel_._core_name  # that of a process may be another one
        return f"{'rbf' if name == 'gaussian' else name}, {widths}, learned"
    return f"{est.kernel}, gamma {est.gamma if est.gamma not in ('ard', 'learn') else 'scale'}"


def _shortened(kernel: object) -> str:
    return textwrap.shorten(repr(kernel), _KERNEL_WIDTH, placeholder=" ...")


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
