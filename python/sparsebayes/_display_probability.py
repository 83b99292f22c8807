"""Display of class probabilities over two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._checks.arguments import check_entries, check_real
from ._checks.numbers import any_array, real_array
from ._display import Display, at_nodes, fitted, inputs
from ._figures import _circle, _draw_classes, _grid, _labels, last_step
from ._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Self


class ProbabilityDisplay(Display):
    """Contours of class probabilities over two inputs, with the data and the relevance vectors.

    Figure 4 of Tipping (2001). `sparsebayes.inspection.plot_decision` draws the borders between classes.

    Parameters
    ----------
    first, second : array-like of shape (n_first,), (n_second,)
        Nodes along the two inputs.
    probabilities : array-like of shape (n_second, n_first, n_drawn)
        Of each class drawn, at the nodes.
    drawn : sequence of int
        Which of ``classes`` these are.
    points : array-like of shape (n, 2)
        The data.
    y : array-like of shape (n,)
        Their labels.
    vectors : array-like of shape (n_relevance, 2)
        The relevance vectors.
    classes : array-like of shape (n_classes,)
        All labels.
    levels : sequence of float, default=(0.25, 0.5, 0.75)
        Probabilities to draw a contour at.
    labels : sequence of str, default=("x1", "x2")
        Of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    contours_ : list of matplotlib QuadContourSet
        One for each class drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import RVC
    >>> from sparsebayes.plot import ProbabilityDisplay
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] + 0.3 * np.sin(np.arange(60)) > 0, "right", "left")
    >>> display = ProbabilityDisplay.from_estimator(RVC().fit(X, y), X, y, ax=Figure().subplots())
    >>> display.contours_[0].levels.tolist()
    [0.25, 0.5, 0.75]
    """

    def __init__(
        self,
        first: ArrayLike,
        second: ArrayLike,
        probabilities: ArrayLike,
        *,
        drawn: Sequence[int],
        points: ArrayLike,
        y: ArrayLike,
        vectors: ArrayLike,
        classes: ArrayLike,
        levels: Sequence[float] = (0.25, 0.5, 0.75),
        labels: Sequence[str] = ("x1", "x2"),
    ) -> None:
        self.first, self.second = real_array("first", first), real_array("second", second)
        self.probabilities = real_array("probabilities", probabilities)
        self.levels = [check_real("levels", level) for level in check_entries("levels", levels, "numbers")]
        self.drawn, self.labels = drawn, labels
        self.points, self.vectors = real_array("points", points), real_array("vectors", vectors)
        self.y, self.classes = any_array("y", y), any_array("classes", classes)

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
        """Draw the probabilities of a fitted classifier.

        Parameters
        ----------
        est : fitted classifier of this package, or a pipeline that ends in one
            With two inputs. One on the columns of X has no relevance vectors to circle.
        X : array-like of shape (n, 2)
            Rows to draw; they need not be those of the fit. Of a pipeline they are drawn as its last step
            sees them.
        y : array-like of shape (n,)
            Their labels, out of ``est.classes_``.
        class_of_interest : label, optional
            Of which class. None: of two classes the second, ``est.classes_[1]``; of more each.
        levels : sequence of float, default=(0.25, 0.5, 0.75)
            Probabilities to draw a contour at, ascending.
        ax : matplotlib Axes, optional
            Where to draw. None: a new figure.
        **kwargs
            For ``matplotlib.axes.Axes.contour``.

        Returns
        -------
        ProbabilityDisplay

        Raises
        ------
        ImportError
            If ``ax`` is None and matplotlib is not installed.
        NotFittedError
            If ``est`` is not fitted.
        TypeError, ValueError
            If ``est`` gives no probabilities or has other than two inputs, or the data do not fit it.
        """
        est, X = last_step(est, X)
        fitted(est, cls.__name__, "predict_proba", "probabilities of classes")
        rows = inputs(est, X, cls.__name__, (2,))
        labels = _labels(y, len(rows), est.classes_)
        drawn = _drawn(est.classes_, class_of_interest)
        vectors = getattr(est, "relevance_vectors_", np.empty((0, 2)))
        first, second, nodes = _grid(np.vstack([rows, vectors]))
        probabilities: FloatArray = at_nodes(est.predict_proba, nodes)[:, drawn]
        return cls(
            first,
            second,
            probabilities.reshape(len(second), len(first), len(drawn)),
            drawn=drawn,
            points=rows,
            y=labels,
            vectors=vectors,
            classes=est.classes_,
            levels=levels,
            labels=[str(name) for name in getattr(est, "feature_names_in_", ("x1", "x2"))],
        ).plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        _draw_classes(ax, self.points, self.y, self.classes)
        _circle(ax, *self.vectors.T)
        self.contours_ = []
        for i, c in enumerate(self.drawn):
            found, style = self.probabilities[:, :, i], dict(kwargs)
            if not {"colors", "cmap"} & kwargs.keys():
                style["colors"] = "0.3" if len(self.drawn) == 1 else f"C{c % 10}"
            inside = [level for level in self.levels if found.min() < level < found.max()]
            if not inside:
                # matplotlib warns of contours that there are none of.
                continue
            contours = ax.contour(self.first, self.second, found, levels=inside, **style)
            ax.clabel(contours, fmt="%g", fontsize="small")
            self.contours_.append(contours)
        ax.set(xlabel=self.labels[0], ylabel=self.labels[1])
        ax.legend()


def _drawn(classes: NDArray[Any], wanted: Any) -> list[int]:
    """Return the numbers of the classes to draw."""
    if wanted is None:
        return [1] if len(classes) == 2 else list(range(len(classes)))
    found: list[int] = np.flatnonzero(classes == wanted).tolist()
    if not found:
        raise ValueError(f"class_of_interest must be one of {classes.tolist()}, got {wanted!r}")
    return found
