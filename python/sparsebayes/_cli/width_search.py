"""Choice of the widths of a Gaussian kernel, and scores of a model, from left-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import NumericalError
from .._types import FloatArray, IntArray
from ..model_selection import log_densities

#: A multiple of the inputs' standard deviations times sqrt(n_inputs); "ard": one learned width per input;
#: None: a kernel without widths.
Width = float | str | None

#: Folds, each left out once; with more than `_SAMPLE_ROWS` rows only the first is.
_FOLDS: Final = 5
#: Most rows of a fit that compares widths.
_SAMPLE_ROWS: Final = 1000
#: Most rows per fold that measure the effect of a column.
_MAX_SHUFFLED_ROWS: Final = 2000
#: Lower bound on class probabilities, so that the log loss of an unknown class is finite.
_MIN_PROBABILITY: Final = 1e-15
#: P(|z| < `_Z95`) = 0.95 for a standard normal z.
_Z95: Final = 1.959964


@dataclass(frozen=True)
class Rows:
    """Inputs, targets and weights of rows."""

    X: FloatArray
    y: NDArray[Any]
    given_weights: FloatArray | None
    classifies: bool

    def __len__(self) -> int:
        return len(self.y)

    @property
    def weights(self) -> FloatArray:
        """The given weights, or 1 for each row."""
        return np.ones(len(self)) if self.given_weights is None else self.given_weights

    def at(self, rows: IntArray) -> Rows:
        """Return the rows at these positions."""
        weights = None if self.given_weights is None else self.given_weights[rows]
        return Rows(self.X[rows], self.y[rows], weights, self.classifies)

    def without(self, rows: IntArray) -> Rows:
        """Return the rows at all other positions."""
        return self.at(np.setdiff1d(np.arange(len(self)), rows))

    def fold(self, k: int, n: int, seed: int) -> IntArray:
        """Return fold k of n, random and stratified by class."""
        return np.sort(self._order(seed)[k::n])

    def sample(self, n: int, seed: int) -> Rows:
        """Return about n random rows, or all if there are fewer; at least two of each class."""
        order = self._order(seed)
        chosen = order[:: -(-len(self) // n)]
        if self.classifies:
            first = np.unique(self.y[order], return_index=True)[1]
            chosen = np.concatenate([chosen, order[first], order[np.minimum(first + 1, len(self) - 1)]])
        return self.at(np.unique(chosen))

    def _order(self, seed: int) -> IntArray:
        """Return the rows in random order, sorted by class."""
        order: IntArray = np.random.default_rng(seed).permutation(len(self))
        return order[np.argsort(self.y[order], kind="stable")] if self.classifies else order


@dataclass(frozen=True)
class WidthScores:
    """Fits with one width to training folds, and their scores on left-out rows."""

    width: Width
    #: Models, and the rows left out of each.
    fits: list[tuple[Any, Rows]]
    #: Whether a model has more functions than half of its rows, or noise at its floor.
    saturated: bool

    @cached_property
    def density(self) -> float:
        """Mean log density of the left-out rows, or log probability of their classes; -inf without fits."""
        if not self.fits:
            return -np.inf
        total = sum(float(_log_density(model, rows, rows.X) @ rows.weights) for model, rows in self.fits)
        return total / sum(float(np.sum(rows.weights)) for _, rows in self.fits)

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, larger is better: every saturated fit is below all others."""
        return (not self.saturated, self.density)

    @property
    def n_rows(self) -> int:
        """Total number of left-out rows."""
        return sum(len(rows) for _, rows in self.fits)

    def scores(self) -> dict[str, float]:
        """Return R^2 and the coverage of 95 % intervals, or accuracy and log loss, of the left-out rows.

        For classes, also the accuracy and log loss of a model that predicts the class frequencies.
        """
        weights = np.concatenate([rows.weights for _, rows in self.fits])
        y = np.concatenate([rows.y for _, rows in self.fits])
        if self.fits[0][1].classifies:
            right = np.concatenate([model.predict(rows.X) == rows.y for model, rows in self.fits])
            shares = np.bincount(np.unique(y, return_inverse=True)[1], weights) / weights.sum()
            return {
                "accuracy": float(np.average(right, weights=weights)),
                "log loss": -self.density,
                "largest share": float(shares.max()),
                "entropy": -float(shares @ np.log(np.maximum(shares, _MIN_PROBABILITY))),
            }
        mean, std = np.hstack([model.predict(rows.X, return_std=True) for model, rows in self.fits])
        error, centred = y - mean, y - np.average(y, weights=weights)
        return {
            "R^2": 1.0 - float((weights @ error**2) / (weights @ centred**2)),
            "coverage": float(np.average(np.abs(error) <= _Z95 * std, weights=weights)),
        }

    def effects(self, groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Return the decrease of R^2, or the increase of log loss, from shuffling each column."""
        found = dict.fromkeys(groups if self.fits else (), 0.0)
        rng = np.random.default_rng(0)
        for model, rows in self.fits:
            rows = rows.at(np.arange(min(len(rows), _MAX_SHUFFLED_ROWS)))
            unshuffled, order = _loss(model, rows, rows.X), rng.permutation(len(rows))
            for name, inputs in groups.items():
                X = rows.X.copy()
                X[:, inputs] = X[order][:, inputs]
                found[name] += (_loss(model, rows, X) - unshuffled) / len(self.fits)
        if not self.fits or self.fits[0][1].classifies:
            return found
        variance = float(np.var(np.concatenate([rows.y for _, rows in self.fits])))
        return {name: loss / variance for name, loss in found.items()}


@dataclass(frozen=True)
class WidthSearch:
    """Compares widths on left-out rows, and fits the model with one of them to all rows."""

    estimator: Callable[..., Any]
    kernel: str
    rows: Rows
    #: Shows the beginning of a stage of the search.
    begin: Callable[[str], None]
    #: Arguments of the estimator other than the kernel.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def _is_sampled(self) -> bool:
        return len(self.rows) > _SAMPLE_ROWS

    def ranking(self, widths: Sequence[Width]) -> list[WidthScores]:
        """Return the scores of each width on left-out rows, the best first.

        Numbers are tried in the given order, from wide to narrow, until one is saturated or predicts worse
        than the number before. Warnings of these fits are suppressed.
        """
        n_folds = min(_FOLDS, len(self.rows))
        folds = [self.rows.fold(k, n_folds, self.seed) for k in range(1 if self._is_sampled else n_folds)]
        found: list[WidthScores] = []
        for width in widths:
            found.append(self._cross_validate(width, folds, only=len(widths) == 1))
            if isinstance(width, float) and (found[-1].saturated or _is_worse(found)):
                break
        return sorted(found, key=lambda one: one.rank, reverse=True)

    def _cross_validate(self, width: Width, folds: list[IntArray], *, only: bool) -> WidthScores:
        fits: list[tuple[Any, Rows]] = []
        saturated = False
        name = "learned widths" if width == "ard" else "fit" if width is None else f"width {width:g}"
        for k, fold in enumerate(folds):
            self.begin(f"{name}, rows left out: part {k + 1} of {len(folds)}")
            rest = self.rows.without(fold).sample(_SAMPLE_ROWS, self.seed)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = self._fit(width, rest)
            except NumericalError:
                return WidthScores(width, [], True)
            fits.append((model, self.rows.at(fold)))
            saturated |= is_saturated(model, len(rest))
            if saturated and not only:
                break  # it can rank first only if all widths are saturated
        return WidthScores(width, fits, saturated)

    def model(self, scores: WidthScores) -> Any:
        """Fit to all rows."""
        self.begin("all rows")
        if self._is_sampled and scores.fits:
            return self._fit_kernel(scores.fits[0][0].kernel_, self.rows)
        return self._fit(scores.width, self.rows)

    def measured(self, one: WidthScores) -> WidthScores:
        """Return the scores of a fit to all other rows, if the width was chosen on a sample."""
        if not (self._is_sampled and one.fits):
            return one
        self.begin("rows left out of a fit to all others")
        fold = self.rows.fold(0, _FOLDS, self.seed)
        rest = self.rows.without(fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self._fit_kernel(one.fits[0][0].kernel_, rest)
        return WidthScores(one.width, [(model, self.rows.at(fold))], is_saturated(model, len(rest)))

    def _fit(self, width: Width, rows: Rows) -> Any:
        """Return a model fitted with this width."""
        from ..kernels import Gaussian
        from ..kernels._base import column_stds

        if width is None:
            return self._fit_kernel(self.kernel, rows)
        if width == "ard":
            return self._fit_kernel("rbf", rows, gamma="ard")
        std = column_stds(rows.X, rows.given_weights)
        std[std == 0.0] = 1.0  # the width of a constant input is arbitrary
        return self._fit_kernel(Gaussian(float(width) * np.sqrt(len(std)) * std), rows)

    def _fit_kernel(self, kernel: Any, rows: Rows, **more: Any) -> Any:
        """Return a model fitted with this kernel."""
        model = self.estimator(kernel, **self.arguments, **more)
        return model.fit(rows.X, rows.y, sample_weight=rows.given_weights)


def is_saturated(model: Any, n_rows: int) -> bool:
    """Return whether a model has more functions than half the rows, or its noise is at its floor."""
    return len(model.relevance_) > n_rows / 2 or "noise_floor" in statuses(model)


def statuses(model: Any) -> set[str]:
    """Return the statuses of a model; a classifier of several classes may have several."""
    return {model.status_} if isinstance(model.status_, str) else set(model.status_)


def _is_worse(found: Sequence[WidthScores]) -> bool:
    """Return whether the last width predicts worse than the number before it."""
    *before, last = [one for one in found if isinstance(one.width, float)]
    return bool(before) and last.density < before[-1].density


def _log_density(model: Any, rows: Rows, X: FloatArray) -> FloatArray:
    density = log_densities(model, X, rows.y)
    return np.maximum(density, np.log(_MIN_PROBABILITY)) if rows.classifies else density


def _loss(model: Any, rows: Rows, X: FloatArray) -> float:
    loss = -_log_density(model, rows, X) if rows.classifies else (rows.y - model.predict(X)) ** 2
    return float(np.average(loss, weights=rows.weights))
