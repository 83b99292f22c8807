"""Displays hold and draw what the models say: circles, bands and contours, in numbers."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVC, RVR, GREVMRegressor, SparseBayesRegressor
from sparsebayes.inspection import certificate
from sparsebayes.plot import (
    PredictiveBandDisplay,
    ProbabilityDisplay,
    RelevanceVectorsDisplay,
)

mpl.use("Agg")


def axes():
    return Figure().subplots()


def circles(ax):
    """Return where the markers without a face are."""
    return next(c for c in ax.collections if c.get_label().startswith("relevance vectors")).get_offsets()


def test_circles_of_one_input_are_on_the_data(sinc):
    X, y = sinc
    model = RVR(gamma=0.1).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    expected = np.column_stack([X[model.relevance_], y[model.relevance_]])
    np.testing.assert_array_equal(circles(display.ax_), expected)
    np.testing.assert_array_equal(display.ax_.collections[0].get_offsets(), np.column_stack([X, y]))


def test_centres_that_are_no_rows_are_on_the_curve(sinc):
    X, y = sinc
    model = RVR(gamma=0.1, candidates=np.linspace(-9.9, 9.9, 34)[:, None]).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    np.testing.assert_allclose(display.vectors[:, 1], model.predict(model.relevance_vectors_))


def test_circles_of_two_inputs_are_the_relevance_vectors(three):
    X, y = three
    model = RVC(gamma=0.5).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    np.testing.assert_array_equal(circles(display.ax_), model.relevance_vectors_)
    surface = RVR(gamma=0.5).fit(X, X[:, 0] ** 2)
    display = RelevanceVectorsDisplay.from_estimator(surface, X, X[:, 0] ** 2, ax=axes())
    np.testing.assert_array_equal(circles(display.ax_), surface.relevance_vectors_)
    np.testing.assert_array_equal(display.ax_.collections[0].get_array(), X[:, 0] ** 2)


def test_the_band_is_two_standard_deviations(sinc):
    X, y = sinc
    model = RVR(gamma=0.1, std="plain").fit(X, y)
    display = PredictiveBandDisplay.from_estimator(model, X, y, ax=axes())
    mean, std = model.predict(display.x[:, None], return_std=True)
    np.testing.assert_array_equal(display.line_.get_ydata(), mean)
    corners = display.band_.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx((mean + 2.0 * std).max())
    assert corners[:, 1].min() == pytest.approx((mean - 2.0 * std).min())
    assert display.x[0] < X.min()
    assert display.x[-1] > X.max()
    full = RVR(gamma=0.1, std="full").fit(X, y)
    grown = PredictiveBandDisplay.from_estimator(full, X, y, margin=1.0, ax=axes())
    plain = PredictiveBandDisplay.from_estimator(model, X, y, margin=1.0, ax=axes())
    assert grown.std[0] > plain.std[0]


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_bands_of_models_without_relevance_vectors(sinc):
    for model in (GREVMRegressor(gamma=0.1), SparseBayesRegressor(fit_intercept=False)):
        display = PredictiveBandDisplay.from_estimator(model.fit(*sinc), *sinc, ax=axes())
        assert display.std.min() >= np.sqrt(model.noise_variance_)


def test_contours_are_where_the_probability_is(three):
    X, y = three
    labels = np.where(y == "a", "a", "b")
    model = RVC(gamma=0.5).fit(X, labels)
    display = ProbabilityDisplay.from_estimator(model, X, labels, ax=axes())
    (contours,) = display.contours_
    for level, lines in zip(contours.levels, contours.allsegs, strict=True):
        # Up to the spacing of the grid, 201 by 201.
        np.testing.assert_allclose(model.predict_proba(np.vstack(lines))[:, 1], level, atol=0.01)
    np.testing.assert_array_equal(circles(display.ax_), model.relevance_vectors_)


def test_contours_of_several_classes_or_of_one_of_them(three):
    X, y = three
    model = RVC(gamma=0.5, multi_class="softmax").fit(X, y)
    display = ProbabilityDisplay.from_estimator(model, X, y, levels=[0.5], ax=axes())
    assert len(display.contours_) == 3
    alone = ProbabilityDisplay.from_estimator(model, X, y, class_of_interest="c", ax=axes())
    np.testing.assert_array_equal(alone.probabilities[:, :, 0], display.probabilities[:, :, 2])


def test_displays_draw_again_and_make_figures_of_their_own(sinc):
    import matplotlib.pyplot as plt

    X, y = sinc
    model = RVR(gamma=0.1, std="plain").fit(X, y)
    display = PredictiveBandDisplay.from_estimator(model, X, y)
    first = display.figure_
    assert display.plot() is display
    assert display.figure_ is not first
    plt.close(first)
    plt.close(display.figure_)
    assert display.plot(other := axes()).ax_ is other


def test_names_of_columns_are_on_the_axes(sinc):
    pd = pytest.importorskip("pandas")
    X, y = sinc
    frame = pd.DataFrame(X, columns=["depth"])
    model = RVR(gamma=0.1).fit(frame, y)
    assert PredictiveBandDisplay.from_estimator(model, frame, y, ax=axes()).ax_.get_xlabel() == "depth"


def test_a_pipeline_is_drawn_as_its_last_step_sees_the_data(sinc, three):
    for (X, y), model, displays in (
        (sinc, RVR(gamma=1.0), [RelevanceVectorsDisplay, PredictiveBandDisplay]),
        (three, RVC(gamma=1.0), [RelevanceVectorsDisplay, ProbabilityDisplay]),
    ):
        whole = make_pipeline(StandardScaler(), make_pipeline(model)).fit(X, y)
        Z = StandardScaler().fit_transform(X)
        last = clone(model).fit(Z, y)
        for display in displays:
            drawn = display.from_estimator(whole, X, y, ax=axes())
            expected = display.from_estimator(last, Z, y, ax=axes())
            np.testing.assert_allclose(drawn.points, expected.points)
            np.testing.assert_allclose(drawn.vectors, expected.vectors)
        assert certificate(whole, X, y) == certificate(last, Z, y)


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_refusals_name_the_remedy(sinc, three):
    X, y = sinc
    model, classifier, two = (
        RVR(gamma=0.1).fit(X, y),
        RVC(gamma="scale").fit(*three),
        RVR(gamma="scale").fit(three[0], three[0][:, 0]),
    )
    band, contours = PredictiveBandDisplay.from_estimator, ProbabilityDisplay.from_estimator
    circled, columns = RelevanceVectorsDisplay.from_estimator, SparseBayesRegressor(fit_intercept=False)
    outputs = RVR(gamma=0.1).fit(X, np.c_[y, -y])
    for kind, message, call, *arguments in (
        (NotFittedError, "not fitted", band, RVR(gamma="scale"), X, y),
        (NotFittedError, "not fitted", band, make_pipeline(RVR(gamma="scale")), X, y),
        (TypeError, "est must be a fitted estimator of this package, got list", band, [], X, y),
        (TypeError, "error bars of regressions, which this RVC", band, classifier, *three),
        (TypeError, "relevance vectors, which", circled, columns.fit(X, y), X, y),
        (TypeError, "ax must be matplotlib Axes", lambda: circled(model, X, y, ax=3)),
        (TypeError, "levels must be", lambda: contours(classifier, *three, levels=0.5)),
        (ValueError, "must be in \\['a'", lambda: contours(classifier, *three, class_of_interest="up")),
        (ValueError, r"1 input\(s\), and est has 2", band, two, X, y),
        (ValueError, "draws one output", band, outputs, X, y),
        (ValueError, "y must hold one value for each of 80 rows", band, model, X, y[:5]),
        (ValueError, "y holds nan, which is not finite", band, model, X, y * np.nan),
        (ValueError, r"X must be finite.*got shape \(80, 2\)", band, model, np.c_[X, X], y),
        (ValueError, "'up', which is not in the classes_", contours, classifier, X.repeat(2, 1), ["up"] * 80),
    ):
        with pytest.raises(kind, match=message):
            call(*arguments)


def test_the_module_does_not_import_matplotlib_and_names_the_extra_without_it(sinc, monkeypatch):
    code = "import sys, sparsebayes; sparsebayes.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    model = RVR(gamma=0.1).fit(*sinc)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"PredictiveBandDisplay needs matplotlib: .*sparsebayes\[plot\]"):
        PredictiveBandDisplay.from_estimator(model, *sinc)
