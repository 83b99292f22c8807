"""Pictures show what the models hold: circles, borders, curves and bars, in numbers."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier

from sparsebayes import MRVM1, MRVM2, RVC, RVR, SparseBayesClassifier
from sparsebayes.inspection import plot_decision, plot_paths, plot_stability, relevance_counts

CENTRES = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
NAMES = np.array(["north", "east", "west"])


def blobs(n=90, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    which = np.arange(n) % classes
    return CENTRES[which] + 0.7 * rng.normal(size=(n, 2)), NAMES[which]


def draw(model, X, y):
    return plot_decision(model, X, y, ax=Figure().subplots())


def circles(axes):
    """Those of the relevance vectors: the only markers without a face."""
    return next(c for c in axes.collections if c.get_label().startswith("relevance vectors")).get_offsets()


def borders(axes):
    """The corners of each contour line, contour by contour."""
    pytest.importorskip(
        "matplotlib", minversion="3.8", reason="before, contours are no objects of a class of their own"
    )
    return [
        np.vstack([path.vertices for path in c.get_paths()])
        for c in axes.collections
        if type(c).__name__ == "QuadContourSet"
    ]


@pytest.mark.parametrize(
    "model",
    [MRVM1(gamma=0.5), MRVM2(gamma=0.5), RVC(gamma=0.5), RVC(gamma=0.5, multi_class="softmax")],
    ids=["MRVM1", "MRVM2", "ovr", "softmax"],
)
def test_circles_are_about_the_relevance_vectors_and_borders_are_ties(model):
    X, y = blobs()
    axes = draw(model.fit(X, y), X, y)
    np.testing.assert_array_equal(circles(axes), model.relevance_vectors_)
    assert len(circles(axes)) > 0
    lines = borders(axes)
    assert len(lines) == 3
    for line in lines:
        best = np.sort(model.decision_function(line), axis=1)[:, ::-1]
        span = np.ptp(model.decision_function(X))
        # The two highest tie, but for the grid the line was found on.
        assert np.median(best[:, 0] - best[:, 1]) < 1e-3 * span
        assert (best[:, 0] - best[:, 1]).max() < 0.1 * span


def test_borders_carry_the_names_of_the_classes_they_separate():
    X, y = blobs()
    axes = draw(MRVM1(gamma=0.5).fit(X, y), X, y)
    assert {text.get_text() for text in axes.texts} <= {"east | north", "east | west", "north | west"}
    assert len(axes.texts) >= 2


@pytest.mark.parametrize(
    "model", [MRVM1(gamma=0.5), RVC(gamma=0.5), SparseBayesClassifier(fit_intercept=False)]
)
def test_two_classes_have_one_border_between_predictions_that_differ(model):
    X, y = blobs(60, classes=2)
    axes = draw(model.fit(X, y), X, y)
    (line,) = borders(axes)
    scores = model.decision_function(line)
    assert np.abs(scores).max() < 0.05 * np.abs(model.decision_function(X)).max()
    assert len(circles(axes)) == len(getattr(model, "relevance_vectors_", ()))


def test_every_row_is_drawn_once_with_its_class():
    X, y = blobs()
    axes = draw(MRVM2(gamma=0.5).fit(X, y), X, y)
    for name in NAMES:
        (points,) = (c for c in axes.collections if c.get_label() == name)
        np.testing.assert_array_equal(points.get_offsets(), X[y == name])


def test_a_classifier_fitted_to_a_data_frame_is_drawn_without_a_warning():
    pd = pytest.importorskip("pandas")
    X, y = blobs()
    frame = pd.DataFrame(X, columns=["length", "width"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes = draw(MRVM1(gamma=0.5).fit(frame, y), frame, y)
    assert len(borders(axes)) == 3


def test_classes_that_never_win_have_no_border():
    X, y = blobs()
    model = MRVM1(gamma=0.5).fit(X, y)
    north = y == "north"
    far = X[north][np.argsort(X[north][:, 1])[-3:]]
    # Circles widen what is drawn; without them only the rows count.
    model.relevance_vectors_ = np.empty((0, 2))
    model.decision_function = lambda grid: np.tile([0.0, 1.0, 0.5], (len(grid), 1))
    assert borders(draw(model, far, ["north"] * 3)) == []


@pytest.mark.parametrize("model", [MRVM1(gamma=0.5), MRVM2(gamma=0.5)])
def test_paths_are_those_of_the_fit(model):
    model.fit(*blobs())
    axes = plot_paths(model, ax=Figure().subplots(2))
    objective = getattr(model, "log_joint_likelihood_path_", None)
    if objective is None:
        objective = model.log_marginal_likelihood_path_
    for axis, values in zip(axes, (model.n_relevance_path_, objective), strict=True):
        (line,) = axis.lines
        np.testing.assert_array_equal(line.get_xdata(), np.arange(model.n_iter_ + 1))
        np.testing.assert_array_equal(line.get_ydata(), values)


def test_paths_with_data_end_at_the_fitted_model():
    X, y = blobs()
    X_test, y_test = blobs(300, seed=1)
    model = MRVM2(gamma=0.5, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    axes = plot_paths(model, X, y, Figure().subplots(4), test=(X_test, y_test))
    (accuracy,), (likelihood,) = (axis.lines for axis in axes[2:])
    assert accuracy.get_xdata()[0] == 1
    assert accuracy.get_xdata()[-1] == likelihood.get_xdata()[-1] == model.n_iter_ == 30
    assert accuracy.get_ydata()[-1] == pytest.approx(100.0 * model.score(X_test, y_test))
    expected = model.log_predictive_likelihood(X_test, y_test)
    assert likelihood.get_ydata()[-1] == pytest.approx(expected, rel=1e-12)
    assert likelihood.get_ydata()[0] != pytest.approx(expected, rel=1e-3)
    (on_training,) = plot_paths(model, X, y, Figure().subplots(4))[2].lines
    assert on_training.get_ydata()[-1] == pytest.approx(100.0 * model.score(X, y))


@pytest.mark.parametrize("model", [MRVM1(gamma=0.5), RVC(gamma=0.5), RVR(gamma=0.5)])
def test_counts_are_those_of_the_fits_one_by_one(model):
    X, y = blobs(60)
    y = X[:, 0] if isinstance(model, RVR) else y
    cv = KFold(4, shuffle=True, random_state=3)
    expected = np.zeros(60, dtype=int)
    for train, _ in cv.split(X):
        for vector in model.fit(X[train], y[train]).relevance_vectors_:
            expected[np.flatnonzero((vector == X).all(axis=1))] += 1
    before = model.relevance_.copy()
    np.testing.assert_array_equal(relevance_counts(model, X, y, cv), expected)
    np.testing.assert_array_equal(model.relevance_, before)
    assert expected.any()


def test_counts_of_a_precomputed_kernel_are_those_of_the_kernel():
    X, y = blobs(60)
    square = ((X[:, np.newaxis] - X) ** 2).sum(axis=2)
    given = relevance_counts(MRVM2(kernel="precomputed"), np.exp(-0.5 * square), y, 3)
    np.testing.assert_array_equal(given, relevance_counts(MRVM2(gamma=0.5), X, y, 3))


def test_bars_are_the_counts_in_the_order_of_the_classes():
    y = np.array(["b", "a", "c", "a", "b", "b"])
    counts = np.array([1, 2, 3, 0, 5, 0])
    axes = plot_stability(counts, y, ax=Figure().subplots())
    # a: 2 0, b: 1 5 0, c: 3; rows without a count have no bar.
    middles = [round(bar.get_x() + bar.get_width() / 2) for bar in axes.patches]
    assert dict(zip(middles, (bar.get_height() for bar in axes.patches), strict=True)) == {
        0: 2,
        2: 1,
        3: 5,
        5: 3,
    }
    assert [float(line.get_xdata()[0]) for line in axes.lines] == [1.5, 4.5]
    assert all(line.get_linestyle() == "--" for line in axes.lines)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
    assert axes.get_xticks().tolist() == [0.5, 3.0, 5.0]


def test_pictures_make_their_own_axes():
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")
    X, y = blobs()
    model = MRVM2(gamma=0.5).fit(X, y)
    made = [plot_decision(model, X, y), *plot_paths(model), plot_stability(np.ones(90), y)]
    assert len({axes.figure.number for axes in made}) == 3
    for axes in made:
        plt.close(axes.figure)


def test_bad_input_is_refused_by_name():
    X, y = blobs()
    model = MRVM1(gamma=0.5).fit(X, y)
    with pytest.raises(NotFittedError):
        plot_decision(MRVM1(), X, y)
    with pytest.raises(TypeError, match="RVR"):
        plot_decision(RVR().fit(X, X[:, 0]), X, y)
    with pytest.raises(ValueError, match=r"est must have two inputs.*3 columns"):
        plot_decision(MRVM1().fit(np.column_stack([X, X[:, 0]]), y), X, y)
    with pytest.raises(ValueError, match="X must be finite"):
        plot_decision(model, X[:, :1], y)
    with pytest.raises(ValueError, match="X must be finite"):
        plot_decision(model, np.full((3, 2), np.nan), y[:3])
    with pytest.raises(ValueError, match="X must be a matrix of numbers"):
        plot_decision(model, [["a", "b"]], y[:1])
    with pytest.raises(ValueError, match="y must hold one label for each of 90 rows"):
        plot_decision(model, X, y[:5])
    with pytest.raises(ValueError, match="'south'"):
        plot_decision(model, X[:1], ["south"])
    with pytest.raises(TypeError, match="RVC"):
        plot_paths(RVC().fit(X, y))
    with pytest.raises(NotFittedError):
        plot_paths(MRVM2())
    with pytest.raises(ValueError, match="X and y come together"):
        plot_paths(model, X)
    with pytest.raises(ValueError, match="test takes the training data"):
        plot_paths(model, test=(X, y))
    with pytest.raises(ValueError, match="ax must be 2 Axes here, got 3"):
        plot_paths(model, ax=Figure().subplots(3))
    for bad in (KNeighborsClassifier(), SparseBayesClassifier(fit_intercept=False), 3):
        with pytest.raises(TypeError, match="estimator with kernels"):
            relevance_counts(bad, X, y)
    with pytest.raises(ValueError, match="one label for each of 3 rows"):
        plot_stability([1, 2, 3], y)
    for bad in ([-1, 2], [np.nan, 1], [], [[1, 2]], ["a", "b"]):
        with pytest.raises(ValueError, match="counts must be"):
            plot_stability(bad, ["a", "b"])


def test_without_matplotlib_the_remedy_is_named_and_nothing_else_breaks(monkeypatch):
    X, y = blobs()
    model = MRVM2(gamma=0.5).fit(X, y)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for name, call in {
        "plot_decision": lambda: plot_decision(model, X, y),
        "plot_paths": lambda: plot_paths(model),
        "plot_stability": lambda: plot_stability([1], ["a"]),
    }.items():
        with pytest.raises(ImportError, match=f"{name} draws with matplotlib.*sparsebayes.plot."):
            call()
    assert relevance_counts(MRVM2(gamma=0.5), X, y, 2).shape == (90,)


def test_inspection_does_not_import_matplotlib():
    code = "import sys, sparsebayes.inspection; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
