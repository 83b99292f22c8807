"""Displays of a model over its data: which rows it kept, its error bars, its probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from ._checks.arguments import check_flag, check_real
from ._checks.numbers import any_array, real_array
from ._display import Display, at_nodes, fitted, heights, inputs, values
from ._figures import _GRID, _circle, _draw_classes, _labels, last_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Self

_VECTORS = "relevance vectors"


class RelevanceVectorsDisplay(Display):
    """Data of one or two inputs, with circles about the relevance vectors.

    Of one input the second coordinate is the target, and for relevance vectors that are not among the rows
    drawn the prediction; of two it is the second input, and colours are targets or classes.

    Parameters
    ----------
    points : array-like of shape (n, 2)
        Coordinates of the rows.
    y : array-like of shape (n,)
        Targets or labels.
    vectors : array-like of shape (n_relevance, 2)
        Coordinates of the relevance vectors.
    labels : sequence of str, default=("x", "y")
        Of the axes.
    classes : array-like, optional
        Of a classifier.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import RVC
    >>> from sparsebayes.plot import RelevanceVectorsDisplay
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> model = RVC().fit(X, y)
    >>> display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=Figure().subplots())
    >>> display.vectors.shape == (len(model.relevance_), 2)
    True
    """

    def __init__(
        self,
        points: ArrayLike,
        y: ArrayLike,
        vectors: ArrayLike,
        *,
        labels: Sequence[str] = ("x", "y"),
        classes: ArrayLike | None = None,
    ) -> None:
        self.points = real_array("points", points)
        self.y = any_array("y", y)
        self.vectors = real_array("vectors", vectors)
        self.labels = labels
        self.classes = None if classes is None else any_array("classes", classes)

    @classmethod
    def from_estimator(
        cls, est: Any, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw data and the relevance vectors of a fitted estimator.

        Parameters
        ----------
        est : fitted estimator with kernels, of this package, or a pipeline that ends in one
            Of one input (regressions) or two.
        X : array-like of shape (n, 1 or 2)
            Rows to draw; they need not be those of the fit. Of a pipeline they are drawn as its last step
            sees them.
        y : array-like of shape (n,)
            Their targets, or labels out of ``est.classes_``.
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            For ``matplotlib.axes.Axes.scatter`` of a regression's data.

        Returns
        -------
        RelevanceVectorsDisplay

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        NotFittedError
            If ``est`` is not fitted.
        TypeError, ValueError
            If ``est`` has no relevance vectors or too many inputs, or the data do not fit it.
        """
        est, X = last_step(est, X)
        fitted(est, cls.__name__, "relevance_vectors_", _VECTORS)
        classes = est.classes_ if is_classifier(est) else None
        rows = inputs(est, X, cls.__name__, (1, 2) if classes is None else (2,))
        default = ("x",) if rows.shape[1] == 1 else ("x1", "x2")
        names = [str(name) for name in getattr(est, "feature_names_in_", default)]
        target = values(y, len(rows)) if classes is None else _labels(y, len(rows), classes)
        if rows.shape[1] == 2:
            return cls(rows, target, est.relevance_vectors_, labels=names, classes=classes).plot(ax, **kwargs)
        vectors = np.column_stack([est.relevance_vectors_, heights(est, rows, target)])
        display = cls(np.column_stack([rows, target]), target, vectors, labels=(names[0], "y"))
        return display.plot(ax, **({"color": "0.5"} | kwargs))

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        if self.classes is None:
            colours = {} if {"c", "color"} & kwargs.keys() else {"c": self.y}
            ax.scatter(
                self.points[:, 0], self.points[:, 1], **{"s": 15, "label": "data", **colours, **kwargs}
            )
        else:
            _draw_classes(ax, self.points, self.y, self.classes)
        _circle(ax, *self.vectors.T)
        ax.set(xlabel=self.labels[0], ylabel=self.labels[1])
        ax.legend()


class PredictiveBandDisplay(Display):
    """The predictive distribution of a regression on one input: mean, error bars, data, relevance vectors.

    Parameters
    ----------
    x, mean, std : array-like of shape (n_nodes,)
        Inputs, and mean and standard deviation of the prediction there.
    points : array-like of shape (n, 2)
        The data.
    vectors : array-like of shape (n_relevance, 2)
        Coordinates of the relevance vectors.
    n_sigma : float, default=2.0
        Half the width of the band, in standard deviations.
    label : str, default="x"
        Of the axis of the input.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The mean.
    band_ : matplotlib PolyCollection

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import RVR
    >>> from sparsebayes.plot import PredictiveBandDisplay
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.cos(37 * np.arange(100))
    >>> model = RVR(gamma=0.1).fit(X, y)
    >>> display = PredictiveBandDisplay.from_estimator(model, X, y, ax=Figure().subplots())
    >>> bool((display.std > np.sqrt(model.noise_variance_)).all())
    True
    """

    def __init__(
        self,
        x: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        points: ArrayLike,
        vectors: ArrayLike,
        n_sigma: float = 2.0,
        label: str = "x",
    ) -> None:
        self.x, self.mean, self.std = real_array("x", x), real_array("mean", mean), real_array("std", std)
        self.points, self.vectors = real_array("points", points), real_array("vectors", vectors)
        self.n_sigma, self.label = n_sigma, label

    @classmethod
    def from_estimator(
        cls,
        est: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_sigma: float = 2.0,
        margin: float = 0.1,
        healed: bool = False,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the predictions of a fitted regression.

        Parameters
        ----------
        est : fitted regression of this package, or a pipeline that ends in one
            Of one input and one output.
        X : array-like of shape (n, 1)
            Rows to draw; they need not be those of the fit. Of a pipeline they are drawn as its last step
            sees them.
        y : array-like of shape (n,)
            Their targets.
        n_sigma : float, default=2.0
            Half the width of the band, in standard deviations.
        margin : float, default=0.1
            How far the picture reaches beyond the data, in parts of their range.
        healed : bool, default=False
            Whether error bars are to grow away from the data: see ``RVR.predict``. Needs an ``RVR`` that was
            fitted with ``keep_rows=True``.
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            For ``matplotlib.axes.Axes.plot`` of the mean.

        Returns
        -------
        PredictiveBandDisplay

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        NotFittedError
            If ``est`` is not fitted.
        TypeError, ValueError
            If ``est`` is no regression of one input and output, or the data do not fit it.
        """
        n_sigma, margin = check_real("n_sigma", n_sigma, positive=True), check_real("margin", margin)
        healed = check_flag("healed", healed)
        est, X = last_step(est, X)
        fitted(est, cls.__name__, "noise_variance_", "the error bars of regressions")
        rows = inputs(est, X, cls.__name__, (1,))
        if np.ndim(est.noise_variance_) > 0 or np.ndim(getattr(est, "mu_", 0.0)) > 1:
            raise ValueError(f"{cls.__name__} draws one output: fit one estimator for each column of y")
        target = values(y, len(rows))
        low, high = rows.min(), rows.max()
        beyond = margin * (high - low if high > low else 1.0)
        x = np.linspace(low - beyond, high + beyond, _GRID)
        options = {"healed": True} if healed else {}
        mean, std = at_nodes(est.predict, x[:, np.newaxis], return_std=True, **options)
        vectors = np.empty((0, 2))
        if hasattr(est, "relevance_vectors_"):
            vectors = np.column_stack([est.relevance_vectors_, heights(est, rows, target)])
        points = np.column_stack([rows, target])
        label = str(getattr(est, "feature_names_in_", ["x"])[0])
        display = cls(x, mean, std, points=points, vectors=vectors, n_sigma=n_sigma, label=label)
        return display.plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        (self.line_,) = ax.plot(self.x, self.mean, **{"label": "mean", **kwargs})
        reach = self.n_sigma * self.std
        colour, name = self.line_.get_color(), f"{self.n_sigma:g} standard deviations"
        self.band_ = ax.fill_between(
            self.x, self.mean - reach, self.mean + reach, color=colour, alpha=0.2, linewidth=0, label=name
        )
        ax.scatter(self.points[:, 0], self.points[:, 1], s=15, color="0.5", label="data")
        if len(self.vectors) > 0:
            _circle(ax, *self.vectors.T)
        ax.set(xlabel=self.label, ylabel="y")
        ax.legend()
