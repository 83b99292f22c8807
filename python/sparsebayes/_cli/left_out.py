"""Rows left out of fits: how well a model predicts rows that it was not fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._types import FloatArray

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
