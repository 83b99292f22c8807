"""How well models predict rows left out of fits, and the page that ``sparsebayes fit --report`` writes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .._types import FloatArray
from .tables import TableError

if TYPE_CHECKING:
    from .._estimators.status import Summary

#: Parts of the rows, each left out once; with more than `MAX_ROWS_OF_FOLDS` rows only the first is.
_FOLDS: Final = 5
MAX_ROWS_OF_FOLDS: Final = 1000
#: P(|z| < `Z95`) = 0.95, without SciPy, as the command line starts; and the coverage of 95 % intervals that
#: causes a warning.
Z95: Final = NormalDist().inv_cdf(0.975)
_MIN_COVERAGE: Final = 0.88


@dataclass(frozen=True)
class LeftOut:
    """Targets of the rows left out, and what models that were fitted without them predict.

    Numbers have 95 % ``intervals``, (n, 2), the ``coverage`` of the narrowest central interval that holds the
    target, and the share of variance or deviance ``explained``; classes have ``probabilities``, (n,
    n_classes), and their log densities.
    """

    y: NDArray[Any]
    predicted: NDArray[Any]
    intervals: FloatArray | None = None
    coverage: FloatArray | None = None
    explained: float = float("nan")
    #: Whether this is the share of the variance, R^2, or of the deviance, D^2.
    of_variance: bool = True
    classes: NDArray[Any] | None = None
    probabilities: FloatArray | None = None
    log_densities: FloatArray | None = None
    #: Whether another warning says why the model predicts no better than a constant.
    is_explained: bool = False

    def score(self) -> str:
        """Return the error in words."""
        if self.classes is not None:
            shares, entropy = self._shares()
            return (
                f"accuracy {np.mean(self.predicted == self.y):.4f}, log loss {self._log_loss():.4f} "
                f"(the shares of classes alone: {shares.max():.4f}, {entropy:.4f})"
            )
        name = "R^2" if self.of_variance else "D^2"
        return f"{name} {self.explained:.4f}, 95 % intervals hold {100 * self.inside(0.95):.1f} % of them"

    def lines(self) -> list[str]:
        """Return a line with the error, and a warning if it is large."""
        line = f"left out      {len(self.y)} rows, each left out of a fit: {self.score()}"
        return [line, *(f"warning       {warning}" for warning in self.warnings())]

    def warnings(self) -> list[str]:
        if self.classes is not None:
            useless, constant = self._log_loss() >= self._shares()[1], "the shares of the classes"
        else:
            useless, constant = self.explained <= 0.0, "the mean" if self.of_variance else "one rate"
        if useless:
            return (
                [] if self.is_explained else [f"the model predicts rows left out no better than {constant}"]
            )
        if self.classes is None and self.inside(0.95) < _MIN_COVERAGE:
            return ["error bars are too small: 95 % intervals hold too few of the rows left out"]
        return []

    def inside(self, coverage: float) -> float:
        """Return the share of the rows that intervals of this coverage hold."""
        assert self.coverage is not None
        return float(np.mean(self.coverage <= coverage))

    def _log_loss(self) -> float:
        assert self.log_densities is not None
        return -float(self.log_densities.mean())

    def _shares(self) -> tuple[FloatArray, float]:
        """Return the shares of the classes, and their entropy, the log loss of a model that knows no more."""
        shares = np.unique(self.y, return_counts=True)[1] / len(self.y)
        return shares, -float(shares @ np.log(shares))


def together(
    X: FloatArray, y: NDArray[Any], *, classifies: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first of each set of rows left out together, and for each row the number of its set.

    Rows with equal inputs are together: one would tell the target of the others. With too few different rows
    each is alone.
    """
    from .._arrays import equal_rows

    first, number = equal_rows(X)
    classes, counts = np.unique(y[first], return_counts=True)
    if len(first) < _FOLDS or (classifies and (counts.min() < 2 or len(classes) < len(np.unique(y)))):
        first = number = np.arange(len(y))
    return first, number


def leave_out(
    estimator: Any,
    X: FloatArray,
    y: NDArray[Any],
    begin: Callable[[str], None],
    exposure: FloatArray | None = None,
) -> LeftOut:
    """Fit without each part of the rows, and predict it; ``begin`` is called with the name of each part."""
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold

    from .._row_likelihoods import r2
    from ..model_selection import log_densities

    classifies = is_classifier(estimator)
    kind = StratifiedKFold if classifies else KFold
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, number = together(X, y, classifies=classifies)
        splits = kind(min(_FOLDS, len(first)), shuffle=True, random_state=0).split(first, y[first])
        parts = [np.isin(number, part) for _, part in splits]
        folds = [(np.flatnonzero(~part), np.flatnonzero(part)) for part in parts]
        folds = folds if len(y) <= MAX_ROWS_OF_FOLDS else folds[:1]
        for k, (rest, part) in enumerate(folds, 1):
            begin(f"all rows but part {k} of {len(folds)}, to measure the error")
            given, new = ({} if exposure is None else {"exposure": exposure[at]} for at in (rest, part))
            model = clone(estimator).fit(X[rest], y[rest], **given)
            if classifies:
                probabilities = model.predict_proba(X[part])
                found.append((model.predict(X[part]), probabilities, log_densities(model, X[part], y[part])))
            else:
                intervals = np.column_stack(model.predict_interval(X[part], **new))
                found.append(
                    (model.predict(X[part], **new), intervals, coverage(model, X[part], y[part], **new))
                )
    rows = np.concatenate([part for _, part in folds])
    y, (predictions, second, third) = y[rows], (np.concatenate(parts) for parts in zip(*found, strict=True))
    if classifies:
        return LeftOut(y, predictions, classes=model.classes_, probabilities=second, log_densities=third)
    own = model._likelihood.row(model).targets
    score = r2 if own is None else own.score
    explained = score(y, predictions, np.ones(len(y)) if exposure is None else exposure[rows], None)
    return LeftOut(y, predictions, second, third, explained, model._likelihood.has_noise)


def coverage(model: Any, X: FloatArray, y: FloatArray, exposure: FloatArray | None = None) -> FloatArray:
    """Return the coverage of the narrowest central interval of a regression that holds each target."""
    from scipy.special import ndtr

    from .._estimators.posterior import moments

    if (own := model._likelihood.row(model).targets) is None:
        mean, std = model.predict(X, return_std=True)
        below = up_to = ndtr((y - mean) / std)
    else:
        mean, variance = moments(model, X, variance=True)
        assert variance is not None
        below, up_to = own.distribution(model._exposed(mean, exposure)[:, 0], variance[:, 0], y)
    return np.asarray(np.maximum(1.0 - 2.0 * up_to, 2.0 * below - 1.0))


# --- a page of a model, its errors and what to do, with pictures ------------------------------------

#: Most rows, inputs and classes in a picture or a table, and bins of probabilities.
_MAX_ROWS: Final = 60
_MAX_INPUTS: Final = 20
_MAX_CLASSES: Final = 30
_BINS: Final = 10
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
.numbers td, .numbers th { text-align: right; padding: .2rem .6rem; border: 1px solid #ddd; }
.warning { background: #fff3cd; padding: .5rem 1rem; border-left: 4px solid #d39e00; }
caption { text-align: left; padding-bottom: .5rem; }
figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; } figcaption { color: #555; }
"""


def require_matplotlib() -> None:
    """Raise TableError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TableError("--report needs matplotlib: pip install 'sparsebayes[plot]'") from None


def write(
    path: str,
    target: str,
    summary: Summary,
    inputs: Mapping[str, float],
    left_out: LeftOut,
    notes: Sequence[str],
    problems: Sequence[str],
) -> None:
    """Write the page, which needs no network; ``problems``: warnings of the fit to all rows."""
    title = f"A model of {target}"
    warnings = [f'<p class="warning">{escape(text)}</p>' for text in [*left_out.warnings(), *problems]]
    row = {"left out": f"{len(left_out.y)} rows, each left out of a fit: {left_out.score()}"}
    table = replace(summary, lines=summary.lines | row)._repr_html_()
    parts = [f"<h1>{escape(title)}</h1>", *warnings, table]
    if notes:
        parts += ["<h2>The table</h2><ul>", *(f"<li>{escape(note)}</li>" for note in notes), "</ul>"]
    import matplotlib as mpl

    parts.append("<h2>Rows left out of fits</h2>")
    # Names are texts, also those with dollars; and the same table gives the same page.
    with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "sparsebayes"}):
        if left_out.classes is None:
            parts += [_draw_rows(left_out, target), _draw_coverage(left_out)]
        else:
            parts += [_draw_reliability(left_out), _confusion(left_out)]
        if inputs:
            parts += ["<h2>Inputs that matter</h2>", _draw_inputs(inputs)]
    head = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([head, "<body>", *parts, "</body></html>", ""]))


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure and its axes, without a backend for windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _diagonal(xlabel: str, ylabel: str, top: float) -> tuple[Any, Any]:
    """Return a figure and axes of two shares, with a line where they are equal."""
    figure, axes = _figure(4.5, 3.8)
    axes.plot([0, 1], [0, 1], color="0.6", ls="--", lw=1)
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 1), ylim=(0, top))
    return figure, axes


def _svg(figure: Any, caption: str) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return f"<figure>{text[text.index('<svg') :]}<figcaption>{escape(caption)}</figcaption></figure>"


def _draw_rows(left_out: LeftOut, target: str) -> str:
    """Draw predictions, 95 % intervals and targets of some rows, in the order of the predictions."""
    some = np.linspace(0, len(left_out.y) - 1, min(len(left_out.y), _MAX_ROWS)).astype(int)
    chosen = np.argsort(left_out.predicted, kind="stable")[some]
    mean, y = left_out.predicted[chosen], left_out.y[chosen]
    assert left_out.intervals is not None
    figure, axes = _figure(8.5, 3.5)
    low, high = left_out.intervals[chosen].T
    bars = np.maximum(0.0, [mean - low, high - mean])
    at = np.arange(len(y))
    axes.errorbar(
        at, mean, yerr=bars, fmt=".", color="C0", ecolor="#9bbad6", label="prediction, 95 % interval"
    )
    axes.plot(at, y, "x", color="C3", ms=5, label=f"true {target}")
    axes.set(xlabel="row left out, in the order of the predictions", ylabel=target)
    axes.legend(frameon=False, fontsize="small")
    return _svg(figure, f"{len(y)} rows that the models did not see.")


def _draw_coverage(left_out: LeftOut) -> str:
    """Draw the share of rows inside intervals against the share that should be."""
    nominal = np.linspace(0.05, 0.99, 48)
    held = [left_out.inside(share) for share in nominal.tolist()]
    figure, axes = _diagonal("probability of the interval", "share of rows inside", 1.0)
    axes.plot(nominal, held, color="C0")
    return _svg(
        figure,
        "Calibration of the error bars. On the dashed line they are right; below it they are too small, "
        "above it too large.",
    )


def _draw_reliability(left_out: LeftOut) -> str:
    """Draw how often predictions are right, against their probability."""
    assert left_out.probabilities is not None
    sure = left_out.probabilities.max(axis=1)
    right = left_out.predicted == left_out.y
    bins = np.minimum((_BINS * sure).astype(int), _BINS - 1)
    used = np.unique(bins)
    figure, axes = _diagonal("probability of the predicted class", "share that is right", 1.05)
    x, share = (np.array([values[bins == k].mean() for k in used]) for values in (sure, right))
    sizes = np.array([np.sum(bins == k) for k in used])
    axes.errorbar(x, share, yerr=2.0 * np.sqrt(x * (1.0 - x) / sizes), fmt="o", color="C0", ecolor="#9bbad6")
    return _svg(
        figure,
        "Calibration of the probabilities. On the dashed line they are right; below it too large, above it "
        "too small. Bars: two standard errors.",
    )


def _confusion(left_out: LeftOut) -> str:
    """Return how many rows of each class are predicted as each."""
    assert left_out.classes is not None
    classes = left_out.classes[:_MAX_CLASSES]
    head = "".join(f"<th>{escape(str(label))}</th>" for label in classes)
    rows = ""
    for label in classes:
        own = left_out.predicted[left_out.y == label]
        counts = "".join(f"<td>{np.sum(own == other)}</td>" for other in classes)
        rows += f"<tr><th>{escape(str(label))}</th>{counts}</tr>"
    rest = len(left_out.classes) - len(classes)
    note = f"<p>{rest} more classes are not shown.</p>" if rest else ""
    return (
        "<p>Rows of each class (to the left) by their predicted class (above):</p>"
        f'<table class="numbers"><tr><th></th>{head}</tr>{rows}</table>{note}'
    )


def _draw_inputs(inputs: Mapping[str, float]) -> str:
    shown = list(inputs.items())[:_MAX_INPUTS]
    figure, axes = _figure(6.0, 0.6 + 0.28 * len(shown))
    axes.barh([name for name, _ in shown][::-1], [size for _, size in shown][::-1], color="C0")
    axes.set(xlabel="how much the prediction changes with the input; 1: the most", xlim=(0, 1))
    rest = len(inputs) - len(shown)
    return _svg(figure, f"{rest} more inputs matter less." if rest else "The inputs of the model.")
