"""Pictures of fitted models, after Psorakis et al. (2010): borders, paths, and which rows keep coming back.

matplotlib draws them; it is imported only where a picture needs axes of its own.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import check_is_fitted

from ._checks.numbers import any_array, real_array
from ._checks.targets import naming
from ._data.candidates import are_given
from ._types import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Points of the grid along each input, and how far it reaches beyond the data, in parts of their range.
_GRID, _MARGIN = 201, 0.1
_MARKERS = "*.+xv^sD"
#: Fits stopped early that a path is made of, at most.
_STOPS = 20
#: What an iteration raises, by estimator.
_OBJECTIVES = {
    "log_joint_likelihood_path_": "log joint likelihood",
    "log_marginal_likelihood_path_": "log evidence",
}


def axes_for(ax: Any, caller: str) -> Any:
    """Return ``ax``, or new Axes if it is None; TypeError if it is something else."""
    if ax is None:
        return _new_axes(caller)
    if not all(callable(getattr(ax, name, None)) for name in ("plot", "scatter", "set")):
        raise TypeError(f"ax must be matplotlib Axes or None, got {type(ax).__name__}")
    return ax


def last_step(est: Any, X: Any = None) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline, and X as that step sees it; what is no pipeline as it is."""
    while hasattr(est, "steps"):
        check_is_fitted(est)
        steps, est = est[:-1], est[-1]
        if X is not None and len(steps) > 0:
            X = steps.transform(X)
    return est, X


def _new_axes(caller: str, rows: int = 1) -> Any:
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError(
            f"{caller} draws with matplotlib, which is not installed: run `pip install 'sparsebayes[plot]'`"
        ) from None
    _, axes = plt.subplots(rows, 1, sharex=True, layout="constrained")
    return axes


def _labels(y: ArrayLike, n_rows: int, classes: NDArray[Any] | None = None) -> NDArray[Any]:
    labels = any_array("y", y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y must hold one label for each of {n_rows} rows, got shape {labels.shape}")
    if classes is not None and not (known := np.isin(labels, classes)).all():
        raise ValueError(
            f"y holds the label {labels[~known].tolist()[0]!r}, which is not in the classes_ of est"
        )
    return labels


def _points(X: ArrayLike) -> FloatArray:
    try:
        points = real_array("X", X)
    except (TypeError, ValueError):
        raise ValueError("X must be a matrix of numbers with two columns") from None
    if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0 or not np.isfinite(points).all():
        raise ValueError(f"X must be finite, with one row or more of two columns, got shape {points.shape}")
    return points


def plot_decision(est: Any, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw data, the borders between classes, and circles about the relevance vectors.

    Figures 3 and 4 of Psorakis et al. (2010). A border is where two classes have equal scores and no other
    has more; it carries the names of both.

    Parameters
    ----------
    est : fitted classifier
        Of this package, with two inputs, or a pipeline that ends in one. One on the columns of X has no
        relevance vectors to circle.
    X : array-like of shape (n_samples, 2)
        Rows to draw; they need not be those of the fit. Of a pipeline they are drawn as its last step sees
        them.
    y : array-like of shape (n_samples,)
        Their labels, out of ``est.classes_``.
    ax : matplotlib Axes, optional
        Where to draw. None: a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If ``ax`` is None and matplotlib is not installed.
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is no classifier or has other than two inputs, or the data do not fit it.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes import MRVM1
    >>> from sparsebayes.inspection import plot_decision
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> axes = plot_decision(MRVM1().fit(X, y), X, y, ax=Figure().subplots())
    """
    est, X = last_step(est, X)
    if not (isinstance(est, BaseEstimator) and is_classifier(est) and hasattr(est, "decision_function")):
        raise TypeError(f"plot_decision draws classifiers of this package, got {type(est).__name__}")
    check_is_fitted(est)
    if est.n_features_in_ != 2:
        raise ValueError(
            f"est must have two inputs to be drawn, but was fitted to {est.n_features_in_} columns"
        )
    points = _points(X)
    labels = _labels(y, len(points), est.classes_)
    ax = axes_for(ax, "plot_decision")
    _draw_classes(ax, points, labels, est.classes_)
    vectors = getattr(est, "relevance_vectors_", np.empty((0, 2)))
    _circle(ax, vectors[:, 0], vectors[:, 1])
    _draw_borders(est, ax, np.vstack([points, vectors]))
    return ax


def _draw_classes(ax: Axes, points: FloatArray, labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Draw the points of each class with a marker and a colour of its own."""
    for c, label in enumerate(classes):
        marker = _MARKERS[c % len(_MARKERS)]
        of_class = points[labels == label]
        ax.scatter(of_class[:, 0], of_class[:, 1], s=25, marker=marker, color=f"C{c % 10}", label=str(label))


def _circle(ax: Axes, first: ArrayLike, second: ArrayLike) -> None:
    """Circle the relevance vectors, at these coordinates."""
    name = f"relevance vectors ({np.size(first)})"
    ax.scatter(first, second, s=90, facecolors="none", edgecolors="black", label=name, zorder=3)


def _grid(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the two axes of a grid about the points, and its nodes row by row."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = _MARGIN * np.where(high > low, high - low, 1.0)
    first, second = (np.linspace(low[k] - margin[k], high[k] + margin[k], _GRID) for k in range(2))
    return first, second, np.column_stack([v.ravel() for v in np.meshgrid(first, second)])


def _draw_borders(est: Any, ax: Axes, points: FloatArray) -> None:
    """Draw, for each pair of classes, where they tie for the highest score."""
    first, second, nodes = _grid(points)
    scores = _scores(est, nodes)
    for i, j in combinations(range(len(est.classes_)), 2):
        lead = scores[:, i] - scores[:, j]
        others = np.delete(scores, [i, j], axis=1).max(axis=1, initial=-np.inf)
        # Cut off, to a cell of the grid, where a third class has more.
        shown = np.maximum(scores[:, i], scores[:, j]) >= others
        if not (lead[shown].min(initial=np.inf) < 0.0 < lead[shown].max(initial=-np.inf)):
            continue
        border = np.ma.masked_where(~shown, lead).reshape(_GRID, _GRID)
        lines = ax.contour(first, second, border, levels=[0.0], colors="0.3", linewidths=1.2)
        ax.clabel(lines, fmt=f"{est.classes_[i]} | {est.classes_[j]}", fontsize="small")


def _scores(est: Any, grid: FloatArray) -> FloatArray:
    """Return a score for each class; the highest is what ``predict`` goes by."""
    with warnings.catch_warnings():
        # The grid is no data frame, whatever the estimator was fitted to.
        warnings.filterwarnings("ignore", message="X does not have valid feature names", category=UserWarning)
        scores = np.asarray(est.decision_function(grid))
    return np.column_stack([np.zeros(len(grid)), scores]) if scores.ndim == 1 else scores


def plot_paths(
    est: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Sequence[Axes] | None = None,
    *,
    test: tuple[ArrayLike, ArrayLike] | None = None,
) -> NDArray[Any]:
    """Draw the number of functions and the objective against iterations.

    Figures 5 to 11 of Psorakis et al. (2010). With data, accuracy and mean log predictive likelihood too:
    for them the model is fitted again to ``X`` and ``y``, up to 20 times, each stopped after some number of
    iterations.

    Parameters
    ----------
    est : fitted `MRVM1` or `MRVM2`, or a pipeline that ends in one
    X : array-like of shape (n_samples, n_features), optional
        The training data.
    y : array-like of shape (n_samples,), optional
        The training labels.
    ax : sequence of 2 matplotlib Axes, with data 4, optional
        Where to draw. None: a new figure.
    test : tuple of two array-likes, optional
        Rows and labels that accuracy and predictive likelihood are measured on. None: the training data.

    Returns
    -------
    ndarray of matplotlib Axes
        Functions, objective; with data accuracy in per cent and mean log predictive likelihood.

    Raises
    ------
    ImportError
        If ``ax`` is None and matplotlib is not installed.
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is another estimator, one of ``X`` and ``y`` is missing, or there are too few Axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM2
    >>> from sparsebayes.inspection import plot_paths
    >>> model = MRVM2().fit(*load_iris(return_X_y=True))
    >>> functions, objective = plot_paths(model, ax=Figure().subplots(2))
    """
    whole = est
    est, X = last_step(est, X)
    if not hasattr(est, "log_predictive_likelihood"):
        raise TypeError(f"plot_paths draws an MRVM1 or MRVM2, got {type(est).__name__}")
    check_is_fitted(est)
    if (X is None) != (y is None):
        raise ValueError("X and y come together: give both, or neither")
    if X is None and test is not None:
        raise ValueError("test takes the training data too: give X and y")
    n_axes = 2 if X is None else 4
    axes = np.ravel(np.asarray(_new_axes("plot_paths", n_axes) if ax is None else ax, dtype=object))
    if len(axes) != n_axes:
        raise ValueError(f"ax must be {n_axes} Axes here, got {len(axes)}")
    for axis in axes:
        axes_for(axis, "plot_paths")
    path = next(name for name in _OBJECTIVES if hasattr(est, name))
    curves = [(est.n_relevance_path_, "functions"), (getattr(est, path), _OBJECTIVES[path])]
    for axis, (values, label) in zip(axes, curves, strict=False):
        axis.plot(np.arange(len(values)), values)
        axis.set_ylabel(label)
    if X is not None and y is not None:
        if test is None:
            measured = (X, y)
        elif isinstance(test, (tuple, list)) and len(test) == 2:
            measured = (last_step(whole, test[0])[1], test[1])
        else:
            raise TypeError(f"test must be a pair (X, y) of rows and labels, got {reprlib.repr(test)}")
        stops, accuracy, likelihood = _stopped_early(est, X, y, measured)
        for axis, values, label in zip(
            axes[2:], (accuracy, likelihood), ("accuracy, %", "log likelihood"), strict=True
        ):
            axis.plot(stops, values, marker=".")
            axis.set_ylabel(label)
    axes[-1].set_xlabel("iteration")
    return axes


def _stopped_early(
    est: Any, X: ArrayLike, y: ArrayLike, test: tuple[ArrayLike, ArrayLike]
) -> tuple[IntArray, list[float], list[float]]:
    """Return iterations, and accuracy and predictive likelihood of fits stopped there."""
    stops = np.unique(np.geomspace(1, max(est.n_iter_, 1), _STOPS).round().astype(int))
    accuracy, likelihood = [], []
    for stop in stops:
        fit = clone(est).set_params(max_iter=int(stop), callback=None, verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit.fit(X, y)
        accuracy.append(100.0 * float(fit.score(*test)))
        likelihood.append(float(fit.log_predictive_likelihood(*test)))
    return stops, accuracy, likelihood


def relevance_counts(est: Any, X: ArrayLike, y: ArrayLike, cv: Any = None) -> IntArray:
    """Count for each row in how many fits of a cross-validation it is a relevance vector.

    Section VIII-F of Psorakis et al. (2010): prototypes worth the name come back whatever is left out. Equal
    rows share one function, which counts for the first of them in the fit.

    Parameters
    ----------
    est : estimator with kernels
        Of this package, or a pipeline that ends in one; it need not be fitted, and is left as it is.
    X : array-like of shape (n_samples, n_features)
        Data.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets or labels.
    cv : int, splitter or iterable of index pairs, optional
        As for `sklearn.model_selection.cross_val_score`. None: five folds. The paper's is
        ``RepeatedKFold(n_splits=10, n_repeats=10)``.

    Returns
    -------
    ndarray of shape (n_samples,), int
        A row that is left out once in each of ten times ten folds can count 90 at most.

    Raises
    ------
    TypeError, ValueError
        If ``est`` has no relevance vectors, or its fits refuse the data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebayes import MRVM1
    >>> from sparsebayes.inspection import relevance_counts
    >>> X, y = load_iris(return_X_y=True)
    >>> counts = relevance_counts(MRVM1(), X, y, cv=5)
    >>> counts.shape, int(counts.max()) <= 5
    ((150,), True)
    """
    last = est[-1] if hasattr(est, "steps") else est
    if not (isinstance(last, BaseEstimator) and "kernel" in last.get_params(deep=False)):
        raise TypeError(f"relevance_counts takes an estimator with kernels, got {type(last).__name__}")
    y = any_array("y", y)
    if y.ndim not in (1, 2):
        raise ValueError(f"y must have one or two dimensions, got shape {y.shape}")
    counts = np.zeros(len(y), dtype=np.intp)
    with naming("y"):
        splits = list(check_cv(cv, y, classifier=is_classifier(est)).split(X, y))
    for train, _ in splits:
        rows = np.arange(len(y))[train]
        with naming("X"):
            X_train, y_train = _safe_split(est, X, y, rows)
        fitted, _ = last_step(clone(est).fit(X_train, y_train))
        if are_given(fitted):
            raise ValueError(
                "candidates must be None or an integer for relevance_counts, which counts training rows; "
                "given centres are none"
            )
        counts[rows[fitted.relevance_]] += 1
    return counts


def plot_stability(counts: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw how often each row was a relevance vector, class by class with dashed borders.

    Figure 12 of Psorakis et al. (2010).

    Parameters
    ----------
    counts : array-like of shape (n_samples,)
        Of `relevance_counts`.
    y : array-like of shape (n_samples,)
        Labels. Rows are drawn in the order of their classes, and within a class as they come.
    ax : matplotlib Axes, optional
        Where to draw. None: a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If ``ax`` is None and matplotlib is not installed.
    ValueError
        If ``counts`` is not one number for each row, none negative.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sparsebayes.inspection import plot_stability
    >>> axes = plot_stability([9, 0, 3, 0], ["a", "b", "a", "b"], ax=Figure().subplots())
    >>> [float(bar.get_height()) for bar in axes.patches]
    [9.0, 3.0]
    """
    heights = any_array("counts", counts)
    numeric = heights.ndim == 1 and len(heights) > 0 and heights.dtype.kind in "iuf"
    if not numeric or not ((heights >= 0) & (heights < np.inf)).all():
        raise ValueError("counts must be one number for each row, none negative: see relevance_counts")
    classes, numbers = np.unique(_labels(y, len(heights)), return_inverse=True)
    ax = axes_for(ax, "plot_stability")
    heights = heights[np.argsort(numbers, kind="stable")]
    ax.bar(np.flatnonzero(heights), heights[heights > 0], width=1.0)
    ends = np.cumsum(np.bincount(numbers))
    for border in ends[:-1]:
        ax.axvline(border - 0.5, color="0.3", linestyle="--", linewidth=1)
    middles = ends - 0.5 - np.bincount(numbers) / 2.0
    ax.set_xticks(middles, [str(label) for label in classes])
    ax.set(xlim=(-0.5, len(heights) - 0.5), xlabel="training rows by class", ylabel="fits it is relevant in")
    return ax
