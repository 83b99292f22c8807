"""What all displays of `sparsebayes.plot` share: axes, and the data and relevance vectors drawn on them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._checks.numbers import real_array
from ._figures import axes_for
from ._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Self


class Display:
    """A picture as numbers, which ``plot`` draws, as often as wanted."""

    if TYPE_CHECKING:
        ax_: Axes
        figure_: Figure

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            As for ``from_estimator``.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        TypeError
            If ``ax`` is something else.
        """
        self.ax_ = axes_for(ax, type(self).__name__)
        self.figure_ = self.ax_.figure  # type: ignore[assignment] # or a part of a figure
        self._draw(self.ax_, **kwargs)
        return self

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        raise NotImplementedError


def fitted(est: Any, display: str, needs: str, what: str) -> None:
    """Check that ``est`` is a fitted estimator with the attribute ``needs``, which is ``what``."""
    if not isinstance(est, BaseEstimator):
        raise TypeError(f"{display} takes a fitted estimator of this package, got {type(est).__name__}")
    check_is_fitted(est)
    if not hasattr(est, needs):
        raise TypeError(f"{display} draws {what}, which this {type(est).__name__} does not have")


def inputs(est: Any, X: ArrayLike, display: str, allowed: tuple[int, ...]) -> FloatArray:
    """Return X as a matrix of numbers with as many columns as the model has inputs."""
    columns = est.n_features_in_
    if columns not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{display} draws models of {wanted} input(s), and est has {columns}")
    try:
        rows = real_array("X", X)
    except (TypeError, ValueError):
        raise ValueError(f"X must be a matrix of numbers with {columns} column(s)") from None
    if rows.ndim != 2 or rows.shape[1] != columns or len(rows) == 0 or not np.isfinite(rows).all():
        raise ValueError(
            f"X must be finite, with one row or more of {columns} column(s), got shape {rows.shape}"
        )
    return rows


def values(y: ArrayLike, n_rows: int) -> FloatArray:
    """Return y as one number for each row."""
    try:
        targets = real_array("y", y)
    except (TypeError, ValueError):
        raise ValueError("y must hold a number for each row of X") from None
    if targets.shape != (n_rows,) or not np.isfinite(targets).all():
        raise ValueError(f"y must hold a finite number for each of {n_rows} rows, got shape {targets.shape}")
    return targets


def heights(est: Any, X: FloatArray, y: FloatArray) -> FloatArray:
    """Return what to draw the relevance vectors of one input at: their targets, or the model's values.

    The latter for those that are not among the rows of X.
    """
    vectors = est.relevance_vectors_
    if len(vectors) == 0:
        return np.empty(0)
    found = np.asarray(at_nodes(est.predict, vectors), dtype=float)
    for i, vector in enumerate(vectors):
        rows = np.flatnonzero((X == vector).all(axis=1))
        if len(rows) > 0:
            found[i] = y[rows[0]]
    return found


def at_nodes(predict: Any, nodes: FloatArray, **kwargs: Any) -> NDArray[Any]:
    """Return what ``predict`` says of rows that are no data frame, whatever the estimator was fitted to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names", category=UserWarning)
        found: NDArray[Any] = predict(nodes, **kwargs)
    return found
