"""Choosing the widths of a Gaussian kernel, and measuring a model, by rows that a fit has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ._core import NumericalError
from ._types import FloatArray, IntArray

#: A multiple of the inputs' standard deviations times sqrt(inputs); "ard": one width per input, learned;
#: None: for a kernel without widths.
Width = float | str | None

#: Parts that rows are divided into, each left out once; of more rows than this only the first part is.
_FOLDS: Final = 5
_ROWS_OF_ALL_FOLDS: Final = 1000
#: Rows that widths are learned from; the rest of a larger table changes them little and takes long.
_LEARNING_ROWS: Final = 1000
#: Where learning begins: this multiple of the standard deviations times sqrt(inputs).
_START: Final = 2.0
#: Rows with which the effect of a column is measured.
_SHUFFLED_ROWS: Final = 2000
#: Least probability of a class, so that a class that a fit has not seen costs much and not infinity.
_LEAST: Final = 1e-15
#: A standard normal variable lies within this with probability 0.95.
_Z95: Final = 1.959964


@dataclass(frozen=True)
class Rows:
    """Inputs, targets and weights of rows."""

    X: FloatArray
    y: NDArray[Any]
    weights: FloatArray | None
    classifies: bool

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: IntArray) -> Rows:
        """Return some of them."""
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.X[rows], self.y[rows], weights, self.classifies)

    def folds(self, n: int, seed: int) -> IntArray:
        """Return the number of a fold for each row: at random, classes alike in all."""
        order = np.random.default_rng(seed).permutation(len(self))
        if self.classifies:
            order = order[np.argsort(np.unique(self.y, return_inverse=True)[1][order], kind="stable")]
        found = np.empty(len(self), dtype=np.intp)
        found[order] = np.arange(len(self)) % n
        return found


@dataclass(frozen=True)
class Recipe:
    """An estimator and its arguments, all but the width of its kernel."""

    machine: Callable[..., Any]
    kernel: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def fit(self, width: Width, rows: Rows) -> Any:
        """Return a fitted model."""
        from .kernels import Gaussian

        if width is None:
            return self._fit(self.kernel, rows)
        unit = np.sqrt(rows.X.shape[1] * _variances(rows))
        if width != "ard":
            return self._fit(Gaussian(float(width) * unit), rows)
        n_parts = -(-len(rows) // _LEARNING_ROWS)
        some = rows.at(np.flatnonzero(rows.folds(n_parts, self.seed) == 0))
        learned = self._fit(Gaussian(_START * unit), some, optimize_kernel=True)
        return learned if len(some) == len(rows) else self._fit(learned.kernel_, rows)

    def _fit(self, kernel: Any, rows: Rows, **more: Any) -> Any:
        return self.machine(kernel, **self.arguments, **more).fit(rows.X, rows.y, sample_weight=rows.weights)


@dataclass(frozen=True)
class LeftOut:
    """Fits with one width to parts of the rows, and what they predict for the others.

    Attributes
    ----------
    width : Width
    fits : list of (model, Rows)
        Models, and the rows left out of each.
    saturated : bool
        Whether a model has more functions than half of its rows, or noise at its floor.
    density : float
        Mean log density of the rows left out, or log probability of their classes; -inf if a fit failed.
    """

    width: Width
    fits: list[tuple[Any, Rows]]
    saturated: bool
    density: float

    @property
    def rank(self) -> tuple[bool, float]:
        """Largest for the width to take: a saturated fit follows all others, whatever its density."""
        return (not self.saturated, self.density)

    @property
    def n_rows(self) -> int:
        """Rows that were left out of one of the fits."""
        return sum(len(rows) for _, rows in self.fits)

    def scores(self) -> dict[str, float]:
        """Return R^2 and the coverage of 95 % intervals, or accuracy and log loss, of the rows left out."""
        parts = [rows for _, rows in self.fits]
        weights = np.concatenate([_weights(rows) for rows in parts])
        y = np.concatenate([rows.y for rows in parts])
        if parts[0].classifies:
            right = np.concatenate([model.predict(rows.X) == rows.y for model, rows in self.fits])
            return {"accuracy": float(np.average(right, weights=weights)), "log loss": -self.density}
        mean, std = (
            np.concatenate(part)
            for part in zip(
                *(model.predict(rows.X, return_std=True) for model, rows in self.fits), strict=True
            )
        )
        error, spread = y - mean, y - np.average(y, weights=weights)
        inside = np.abs(error) <= _Z95 * std
        return {
            "R^2": 1.0 - float((weights @ error**2) / (weights @ spread**2)),
            "coverage": float(np.average(inside, weights=weights)),
        }

    def effects(self, groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Return what is lost if a column is shuffled among rows left out: of R^2, or of log probability."""
        found = dict.fromkeys(groups, 0.0)
        rng = np.random.default_rng(0)
        for model, rows in self.fits:
            rows = rows.at(np.arange(min(len(rows), _SHUFFLED_ROWS)))
            whole, order = _loss(model, rows, rows.X), rng.permutation(len(rows))
            for name, inputs in groups.items():
                X = rows.X.copy()
                X[:, inputs] = X[order][:, inputs]
                found[name] += (_loss(model, rows, X) - whole) / len(self.fits)
        if self.fits[0][1].classifies:
            return found
        variance = float(np.var(np.concatenate([rows.y for _, rows in self.fits])))
        return {name: loss / variance for name, loss in found.items()}


def leave_out(
    recipe: Recipe, widths: Sequence[Width], rows: Rows, tell: Callable[[str], None]
) -> list[LeftOut]:
    """Fit with each width to all rows but some, and return what these say of each, the best first.

    Fits to parts of the rows do not warn: how they end is in the result.

    Parameters
    ----------
    recipe : Recipe
    widths : sequence of Width
    rows : Rows
        At least as many as are left out at a time.
    tell : callable
        Hears what comes next.
    """
    n_folds = min(_FOLDS, len(rows))
    fold = rows.folds(n_folds, recipe.seed)
    tried = n_folds if len(rows) <= _ROWS_OF_ALL_FOLDS else 1
    found = []
    for width in widths:
        fits: list[tuple[Any, Rows]] = []
        saturated = False
        for k in range(tried):
            tell(f"{_named(width)}, rows left out: part {k + 1} of {tried}")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = recipe.fit(width, rows.at(np.flatnonzero(fold != k)))
            except NumericalError:
                fits.clear()
                break
            saturated |= is_saturated(model, int(np.sum(fold != k)))
            fits.append((model, rows.at(np.flatnonzero(fold == k))))
        total = [_log_density(model, part) @ _weights(part) for model, part in fits]
        weight = sum(float(np.sum(_weights(part))) for _, part in fits)
        density = float(np.sum(total)) / weight if fits else -np.inf
        found.append(LeftOut(width, fits, saturated, density))
    return sorted(found, key=lambda one: one.rank, reverse=True)


def is_saturated(model: Any, n_rows: int) -> bool:
    """Tell whether a model has a function for every other row or more, or its noise is at its floor."""
    return len(model.relevance_) > n_rows / 2 or "noise_floor" in statuses(model)


def statuses(model: Any) -> set[str]:
    """Return how the fits of a model ended: of several classes there are several."""
    return {model.status_} if isinstance(model.status_, str) else set(model.status_)


def _named(width: Width) -> str:
    return "learned widths" if width == "ard" else "fit" if width is None else f"width {width:g}"


def _variances(rows: Rows) -> FloatArray:
    """Return the variance of each input, 1 for a constant."""
    weights = _weights(rows)
    centred = rows.X - np.average(rows.X, axis=0, weights=weights)
    found: FloatArray = np.average(centred**2, axis=0, weights=weights)
    return np.where(np.ptp(rows.X, axis=0) > 0.0, found, 1.0)


def _weights(rows: Rows) -> FloatArray:
    return np.ones(len(rows)) if rows.weights is None else rows.weights


def _log_density(model: Any, rows: Rows) -> FloatArray:
    if rows.classifies:
        return _log_probability(model, rows, rows.X)
    mean, std = model.predict(rows.X, return_std=True)
    found: FloatArray = -0.5 * (np.log(2.0 * np.pi * std**2) + ((rows.y - mean) / std) ** 2)
    return found


def _log_probability(model: Any, rows: Rows, X: FloatArray) -> FloatArray:
    at = np.searchsorted(model.classes_, rows.y)
    known = np.append(model.classes_, model.classes_[:1])[at] == rows.y
    p = model.predict_proba(X)[np.arange(len(rows)), np.where(known, at, 0)]
    found: FloatArray = np.log(np.maximum(np.where(known, p, 0.0), _LEAST))
    return found


def _loss(model: Any, rows: Rows, X: FloatArray) -> float:
    loss = -_log_probability(model, rows, X) if rows.classifies else (rows.y - model.predict(X)) ** 2
    return float(np.average(loss, weights=_weights(rows)))
