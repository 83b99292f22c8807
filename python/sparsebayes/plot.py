"""Displays of fitted models in scikit-learn's style; they need ``pip install "sparsebayes[plot]"``.

``SomeDisplay.from_estimator(est, ...)`` draws, and returns an object with the plotted numbers, ``ax_`` and
``figure_``; its method ``plot(ax)`` draws them again. For a fitted pipeline, the last step is drawn with the
data that it receives. X and y need not be the training data.

All displays raise ``ImportError`` if ``ax`` is None and matplotlib is not installed, ``NotFittedError`` if
``est`` is not fitted, and ``TypeError`` or ``ValueError`` if ``est`` or the data do not suit the display.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from ._arrays import are_known, last_step
from ._checks import any_array, check_entries, check_real, real_array
from ._estimators.docs import documented
from ._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Self

__all__ = [
    "PredictiveBandDisplay",
    "ProbabilityDisplay",
    "RelevanceVectorsDisplay",
]

#: Points of a grid along each input, and its range beyond the data as a fraction of their range.
_GRID, _MARGIN = 201, 0.1
_MARKERS = "*.+xv^sD"
#: Fields of displays that are arrays of numbers, or of labels.
_NUMBERS: Final = frozenset("points vectors x mean std first second probabilities".split())
_LABELS: Final = frozenset(["y", "classes"])


@dataclass(eq=False, repr=False, kw_only=True)
class _Display:
    """Data and relevance vectors of a model of one or two inputs."""

    points: Any
    vectors: Any
    y: Any = None
    classes: Any = None
    labels: Sequence[str] = ("x", "y")

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if name in _NUMBERS or (name in _LABELS and values is not None):
                setattr(self, name, (real_array if name in _NUMBERS else any_array)(name, values))

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw on ``ax``, or in a new figure if it is None; ``kwargs`` as for ``from_estimator``."""
        if ax is None:
            try:
                from matplotlib import pyplot as plt
            except ImportError:
                name = type(self).__name__
                raise ImportError(f"{name} needs matplotlib: pip install 'sparsebayes[plot]'") from None
            _, ax = plt.subplots(layout="constrained")
        elif not all(callable(getattr(ax, name, None)) for name in ("plot", "scatter", "set")):
            raise TypeError(f"ax must be matplotlib Axes or None, got {type(ax).__name__}")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax, **kwargs)
        return self

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def _finish(self, ax: Any) -> None:
        """Circle the relevance vectors, and label the axes."""
        if len(self.vectors) > 0:
            name = f"relevance vectors ({len(self.vectors)})"
            ax.scatter(*self.vectors.T, s=90, facecolors="none", edgecolors="black", label=name, zorder=3)
        ax.set(xlabel=self.labels[0], ylabel=self.labels[1])
        ax.legend()

    def _scatter_classes(self, ax: Any) -> None:
        for c, label in enumerate(self.classes):
            style = {"marker": _MARKERS[c % len(_MARKERS)], "color": f"C{c % 10}"}
            ax.scatter(*self.points[self.y == label].T, s=25, label=str(label), **style)


@documented
class RelevanceVectorsDisplay(_Display):
    """Data of one or two inputs, with circles around the relevance vectors.

    With one input the second coordinate is the target, or the prediction for a relevance vector that is not
    among the rows. With two inputs the colour is the target or the class.

    Parameters
    ----------
    {display_data}
    """

    @classmethod
    def from_estimator(
        cls, est: Any, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw data and relevance vectors of a regression of one or two inputs, or a classifier of two.

        ``kwargs`` are for ``matplotlib.axes.Axes.scatter`` of the data of a regression.
        """
        est, rows, target = _prepared(cls, est, X, y, "relevance_vectors_", "relevance vectors")
        style = {"color": "0.5"} if rows.shape[1] == 1 else {}
        return cls(**_data(est, rows, target)).plot(ax, **(style | kwargs))

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        if self.classes is None:
            colour = {} if {"c", "color"} & kwargs.keys() else {"c": self.y}
            ax.scatter(*self.points.T, **{"s": 15, "label": "data", **colour, **kwargs})
        else:
            self._scatter_classes(ax)
        self._finish(ax)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PredictiveBandDisplay(_Display):
    """The predictive distribution of a regression on one input: mean, error bars, data, relevance vectors.

    Parameters
    ----------
    x, mean, std : array-like of shape (n_nodes,)
        Inputs, and mean and standard deviation of the prediction there.
    n_sigma : float, default=2.0
        Half the width of the band, in standard deviations.
    {display_data}

    Attributes
    ----------
    line_, band_ : matplotlib Line2D and PolyCollection
        The mean and the error bars.
    """

    x: Any
    mean: Any
    std: Any
    n_sigma: float = 2.0

    @classmethod
    def from_estimator(
        cls,
        est: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_sigma: float = 2.0,
        margin: float = _MARGIN,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the predictions of a fitted regression of one input and one output.

        The band has ``n_sigma`` standard deviations on each side; the axis extends beyond the data by
        ``margin`` times their range. Those of `RVR` grow away from the data.
        ``kwargs`` are for ``matplotlib.axes.Axes.plot`` of the mean.
        """
        n_sigma, margin = check_real("n_sigma", n_sigma, positive=True), check_real("margin", margin)
        what = "the error bars of regressions"
        est, rows, target = _prepared(cls, est, X, y, "noise_variance_", what, most=1)
        x = _axis(rows[:, 0], margin)
        mean, std = _at_nodes(est.predict, x[:, np.newaxis], return_std=True)
        display = cls(x=x, mean=mean, std=std, n_sigma=n_sigma, **_data(est, rows, target))
        return display.plot(ax, **kwargs)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        (self.line_,) = ax.plot(self.x, self.mean, **{"label": "mean", **kwargs})
        half_width, name = self.n_sigma * self.std, f"{self.n_sigma:g} standard deviations"
        style = {"color": self.line_.get_color(), "alpha": 0.2, "linewidth": 0, "label": name}
        self.band_ = ax.fill_between(self.x, self.mean - half_width, self.mean + half_width, **style)
        ax.scatter(*self.points.T, s=15, color="0.5", label="data")
        self._finish(ax)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ProbabilityDisplay(_Display):
    """Contours of class probabilities over two inputs, with the data and the relevance vectors.

    Parameters
    ----------
    first, second : array-like of shape (n_first,) and (n_second,)
        Nodes along the two inputs.
    probabilities : array-like of shape (n_second, n_first, n_drawn)
        Probability of each class drawn, at the nodes.
    drawn : sequence of int
        Indices into ``classes`` of the classes drawn.
    levels : sequence of float, default=(0.25, 0.5, 0.75)
        Probabilities of the contours.
    {display_data}

    Attributes
    ----------
    contours_ : list of matplotlib QuadContourSet
        One for each class drawn.
    """

    first: Any
    second: Any
    probabilities: Any
    drawn: Sequence[int]
    levels: Sequence[float] = (0.25, 0.5, 0.75)

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = check_entries("levels", self.levels, "numbers")
        self.levels = [check_real("levels", level) for level in levels]

    @classmethod
    def from_estimator(
        cls,
        est: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        class_of_interest: Any = None,
        levels: Sequence[float] = (0.25, 0.5, 0.75),
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the probabilities of a fitted classifier of two inputs.

        The contours at ``levels``, ascending, belong to ``class_of_interest``; if that is None, to the second
        of two classes, or to each of more. ``kwargs`` are for ``matplotlib.axes.Axes.contour``.
        """
        est, rows, target = _prepared(cls, est, X, y, "predict_proba", "probabilities of classes")
        classes = est.classes_
        drawn = [1] if len(classes) == 2 else list(range(len(classes)))
        if class_of_interest is not None:
            drawn = np.flatnonzero(classes == class_of_interest).tolist()
        if not drawn:
            raise ValueError(f"class_of_interest must be in {classes.tolist()}, got {class_of_interest!r}")
        data = _data(est, rows, target)
        first, second = (_axis(column, _MARGIN) for column in np.vstack([rows, data["vectors"]]).T)
        nodes = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
        found = _at_nodes(est.predict_proba, nodes)[:, drawn].reshape(_GRID, _GRID, -1)
        axes = {"first": first, "second": second, "probabilities": found}
        return cls(**axes, drawn=drawn, levels=levels, **data).plot(ax, **kwargs)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        self._scatter_classes(ax)
        self.contours_ = []
        for i, c in enumerate(self.drawn):
            found, colour = self.probabilities[:, :, i], "0.3" if len(self.drawn) == 1 else f"C{c % 10}"
            style = {} if {"colors", "cmap"} & kwargs.keys() else {"colors": colour}
            # matplotlib warns about levels outside the range of the surface.
            levels = [level for level in self.levels if found.min() < level < found.max()]
            if levels:
                contours = ax.contour(self.first, self.second, found, levels=levels, **style, **kwargs)
                ax.clabel(contours, fmt="%g", fontsize="small")
                self.contours_.append(contours)
        self._finish(ax)


def _prepared(
    display: type, est: Any, X: ArrayLike, y: ArrayLike, needs: str, what: str, most: int = 2
) -> tuple[Any, FloatArray, NDArray[Any]]:
    """Return the last step of a pipeline, X as a finite matrix, and y as finite numbers or known labels."""
    est, X = last_step(est, X)
    if not isinstance(est, BaseEstimator):
        raise TypeError(f"est must be a fitted estimator of this package, got {type(est).__name__}")
    check_is_fitted(est)
    if not hasattr(est, needs):
        raise TypeError(f"{display.__name__} draws {what}, which this {type(est).__name__} does not have")
    classes = est.classes_ if is_classifier(est) else None
    columns = est.n_features_in_
    if not (1 if classes is None else 2) <= columns <= most:
        required = " or ".join(map(str, range(1 if classes is None else 2, most + 1)))
        raise ValueError(f"{display.__name__} draws models of {required} input(s), and est has {columns}")
    if classes is None and np.ndim(getattr(est, "mu_", 0.0)) > 1:
        raise ValueError(f"{display.__name__} draws one output: fit one estimator for each column of y")
    rows = real_array("X", X)
    if rows.ndim != 2 or rows.shape[1] != columns or len(rows) == 0 or not np.isfinite(rows).all():
        raise ValueError(f"X must be finite, with rows of {columns} column(s), got shape {rows.shape}")
    targets = real_array("y", y) if classes is None else any_array("y", y)
    if targets.shape != (len(rows),):
        raise ValueError(f"y must hold one value for each of {len(rows)} rows, got shape {targets.shape}")
    known = np.isfinite(targets) if classes is None else are_known(targets, classes)
    if not known.all():
        required = "finite" if classes is None else "in the classes_ of est"
        raise ValueError(f"y holds {targets[~known].tolist()[0]!r}, which is not {required}")
    return est, rows, targets


def _axis(values: FloatArray, margin: float) -> FloatArray:
    low, high = values.min(), values.max()
    extra = margin * (high - low if high > low else 1.0)
    return np.linspace(low - extra, high + extra, _GRID)


def _data(est: Any, rows: FloatArray, y: NDArray[Any]) -> dict[str, Any]:
    """Return the fields of `_Display`.

    With one input, the heights of relevance vectors that are not among the rows are predictions.
    """
    n_inputs = rows.shape[1]
    vectors = getattr(est, "relevance_vectors_", np.empty((0, n_inputs)))
    names = [
        str(name) for name in getattr(est, "feature_names_in_", ["x", "y"] if n_inputs == 1 else ["x1", "x2"])
    ]
    if n_inputs == 2:
        classes = est.classes_ if is_classifier(est) else None
        return {"points": rows, "vectors": vectors, "y": y, "classes": classes, "labels": names}
    means = _at_nodes(est.predict, vectors) if len(vectors) > 0 else []
    heights = [next(iter(y[rows[:, 0] == v]), mean) for v, mean in zip(vectors[:, 0], means, strict=True)]
    vectors = np.column_stack([vectors, np.array(heights, dtype=float)])
    return {"points": np.column_stack([rows, y]), "vectors": vectors, "y": y, "labels": (names[0], "y")}


def _at_nodes(predict: Any, nodes: FloatArray, **kwargs: Any) -> Any:
    """Return predictions for an array, without the warning if the fit was to a data frame."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names", category=UserWarning)
        return predict(nodes, **kwargs)
