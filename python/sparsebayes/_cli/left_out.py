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
#: The standard library's, so that the command line starts without SciPy; P(|z| < `Z95`) = 0.95; and the
#: coverage of 95 % intervals that causes a warning.
NORMAL: Final = NormalDist()
Z95: Final = NORMAL.inv_cdf(0.975)
_MIN_COVERAGE: Final = 0.88


@dataclass(frozen=True)
class LeftOut:
    """Targets of the rows left out, and what models that were fitted without them predict.

    ``std`` of numbers, ``probabilities`` of ``classes``, (n, n_classes), and their log densities.
    """

    y: NDArray[Any]
    predicted: NDArray[Any]
    std: FloatArray | None = None
    classes: NDArray[Any] | None = None
    probabilities: FloatArray | None = None
    log_densities: FloatArray | None = None

    def score(self) -> str:
        """Return the error in words."""
        if self.classes is not None:
            shares, entropy = self._shares()
            return (
                f"accuracy {np.mean(self.predicted == self.y):.4f}, log loss {self._log_loss():.4f} "
                f"(the shares of classes alone: {shares.max():.4f}, {entropy:.4f})"
            )
        return f"R^2 {self._r2():.4f}, 95 % intervals hold {100 * self._coverage():.1f} % of them"

    def lines(self) -> list[str]:
        """Return a line with the error, and a warning if it is large."""
        line = f"left out      {len(self.y)} rows, each left out of a fit: {self.score()}"
        return [line, *(f"warning       {warning}" for warning in self.warnings())]

    def warnings(self) -> list[str]:
        if self.classes is not None:
            useless, constant = self._log_loss() >= self._shares()[1], "the shares of the classes"
        else:
            useless, constant = self._r2() <= 0.0, "the mean"
        if useless:
            return [f"the model predicts rows left out no better than {constant}"]
        if self.classes is None and self._coverage() < _MIN_COVERAGE:
            return ["error bars are too small: 95 % intervals hold too few of the rows left out"]
        return []

    def inside(self, z: float) -> float:
        """Return the share of the rows within ``z`` standard deviations of their predictions."""
        assert self.std is not None
        return float(np.mean(np.abs(self.y - self.predicted) <= z * self.std))

    def _coverage(self) -> float:
        return self.inside(Z95)

    def _r2(self) -> float:
        from .._row_likelihoods import r2

        return r2(self.y, self.predicted, None, None)

    def _log_loss(self) -> float:
        assert self.log_densities is not None
        return -float(self.log_densities.mean())

    def _shares(self) -> tuple[FloatArray, float]:
        """Return the shares of the classes, and their entropy, the log loss of a model that knows no more."""
        shares = np.unique(self.y, return_counts=True)[1] / len(self.y)
        return shares, -float(shares @ np.log(shares))


def leave_out(estimator: Any, X: FloatArray, y: NDArray[Any], begin: Callable[[str], None]) -> LeftOut:
    """Fit without each part of the rows, and predict it; ``begin`` is called with the name of each part."""
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold

    from ..model_selection import log_densities

    classifies = is_classifier(estimator)
    kind = StratifiedKFold if classifies else KFold
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = list(kind(min(_FOLDS, len(y)), shuffle=True, random_state=0).split(X, y))
        folds = folds if len(y) <= MAX_ROWS_OF_FOLDS else folds[:1]
        for k, (rest, part) in enumerate(folds, 1):
            begin(f"all rows but part {k} of {len(folds)}, to measure the error")
            model = clone(estimator).fit(X[rest], y[rest])
            if classifies:
                probabilities = model.predict_proba(X[part])
                found.append((model.predict(X[part]), probabilities, log_densities(model, X[part], y[part])))
            else:
                found.append(model.predict(X[part], return_std=True))
    y = y[np.concatenate([part for _, part in folds])]
    first, second, *third = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if classifies:
        return LeftOut(y, first, classes=model.classes_, probabilities=second, log_densities=third[0])
    return LeftOut(y, first, std=second)
