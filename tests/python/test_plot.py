"""Displays hold and draw what the models say: paths, spectra, circles, bands and contours, in numbers."""

import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import GREVM, MRVM1, MRVM2, RVC, RVR, GREVMRegressor, SparseBayesRegressor
from sparsebayes.inspection import certificate, plot_decision, plot_paths, relevance_counts
from sparsebayes.plot import (
    AlphaSpectrumDisplay,
    EvidencePathDisplay,
    PredictiveBandDisplay,
    ProbabilityDisplay,
    RelevanceVectorsDisplay,
)

mpl.use("Agg")


@pytest.fixture(scope="module")
def wave():
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-10, 10, (80, 1)), axis=0)
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=80)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    which = np.arange(120) % 3
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    return centres[which] + 0.8 * rng.normal(size=(120, 2)), np.array(["north", "east", "west"])[which]


def axes():
    return Figure().subplots()


def circles(ax):
    """Return where the markers without a face are."""
    return next(c for c in ax.collections if c.get_label().startswith("relevance vectors")).get_offsets()


@pytest.mark.parametrize(
    ("model", "path", "label"),
    [
        (RVC(gamma=0.5), "log_marginal_likelihood_path_", "log evidence"),
        (MRVM1(gamma=0.5), "log_marginal_likelihood_path_", "log evidence"),
        (MRVM2(gamma=0.5), "log_joint_likelihood_path_", "log joint likelihood"),
        (RVC(gamma=0.5, alpha_prior=(1e-3, 1e-3)), "log_marginal_likelihood_path_", "log posterior"),
    ],
    ids=["RVC", "MRVM1", "MRVM2", "prior"],
)
def test_the_path_is_the_one_of_the_fit(model, path, label, blobs):
    display = EvidencePathDisplay.from_estimator(model.fit(*blobs), ax=axes(), color="red")
    np.testing.assert_array_equal(display.line_.get_ydata(), getattr(model, path))
    assert display.line_.get_color() == "red"
    assert display.ax_.get_ylabel().startswith(label)
    assert display.figure_ is display.ax_.figure


def test_a_bound_is_called_a_bound(wave):
    model = RVR(gamma=0.1, scheme="variational").fit(*wave)
    assert "bound" in EvidencePathDisplay.from_estimator(model, ax=axes()).ax_.get_ylabel()


def test_alphas_are_all_there_and_ascend(wave, blobs):
    model = RVR(gamma=0.1).fit(*wave)
    display = AlphaSpectrumDisplay.from_estimator(model, ax=axes())
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), np.sort(model.alpha_))
    assert display.ax_.get_yscale() == "log"
    many = GREVM(gamma=0.5).fit(*blobs)
    curves = AlphaSpectrumDisplay.from_estimator(many, ax=axes())
    for curve, alpha in zip(curves.spectra, many.alpha_.T, strict=True):
        np.testing.assert_array_equal(curve, np.sort(alpha[np.isfinite(alpha)]))
    assert [text.get_text() for text in curves.ax_.get_legend().get_texts()] == many.classes_.tolist()


def test_gammas_add_up_to_what_mackay_counts(wave):
    # At an optimum alpha_j mu_j^2 = gamma_j (Tipping 2001, equation 16).
    model = RVR(gamma=0.1).fit(*wave)
    display = AlphaSpectrumDisplay.from_estimator(model, quantity="gamma", ax=axes())
    np.testing.assert_allclose(display.spectra[0], np.sort(model.alpha_ * model.mu_**2), rtol=1e-4)


@pytest.mark.parametrize(
    "model", [RVC(gamma=0.5), RVC(gamma=0.5, multi_class="softmax")], ids=["ovr", "softmax"]
)
def test_gammas_of_classes_are_those_of_their_weights(model, blobs):
    model.fit(*blobs)
    display = AlphaSpectrumDisplay.from_estimator(model, quantity="gamma", ax=axes())
    for c, spectrum in enumerate(display.spectra):
        used = np.isfinite(model.alpha_[:, c])
        # The fixed point of equation 16 again, at the mode.
        expected = model.alpha_[used, c] * model.mu_[used, c] ** 2
        np.testing.assert_allclose(spectrum, np.sort(expected), rtol=1e-3, atol=1e-6)


def test_outputs_share_alphas_and_have_gammas_of_their_own(wave):
    X, y = wave
    Y = np.column_stack([y, 2.0 * y + np.cos(X[:, 0])])
    model = RVR(gamma=0.1).fit(X, Y)
    assert len(AlphaSpectrumDisplay.from_estimator(model, ax=axes()).spectra) == 1
    display = AlphaSpectrumDisplay.from_estimator(model, quantity="gamma", ax=axes())
    expected = np.sort(1.0 - model.alpha_ * np.diagonal(model.sigma_, axis1=1, axis2=2), axis=1)
    np.testing.assert_array_equal(display.spectra, expected)


def test_circles_of_one_input_are_on_the_data(wave):
    X, y = wave
    model = RVR(gamma=0.1).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    expected = np.column_stack([X[model.relevance_], y[model.relevance_]])
    np.testing.assert_array_equal(circles(display.ax_), expected)
    np.testing.assert_array_equal(display.ax_.collections[0].get_offsets(), np.column_stack([X, y]))


def test_centres_that_are_no_rows_are_on_the_curve(wave):
    X, y = wave
    model = RVR(gamma=0.1, candidates=np.linspace(-9.9, 9.9, 34)[:, None]).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    np.testing.assert_allclose(display.vectors[:, 1], model.predict(model.relevance_vectors_))


def test_circles_of_two_inputs_are_the_relevance_vectors(blobs):
    X, y = blobs
    model = RVC(gamma=0.5).fit(X, y)
    display = RelevanceVectorsDisplay.from_estimator(model, X, y, ax=axes())
    np.testing.assert_array_equal(circles(display.ax_), model.relevance_vectors_)
    surface = RVR(gamma=0.5).fit(X, X[:, 0] ** 2)
    display = RelevanceVectorsDisplay.from_estimator(surface, X, X[:, 0] ** 2, ax=axes())
    np.testing.assert_array_equal(circles(display.ax_), surface.relevance_vectors_)
    np.testing.assert_array_equal(display.ax_.collections[0].get_array(), X[:, 0] ** 2)


def test_the_band_is_two_standard_deviations(wave):
    X, y = wave
    model = RVR(gamma=0.1, keep_rows=True).fit(X, y)
    display = PredictiveBandDisplay.from_estimator(model, X, y, ax=axes())
    mean, std = model.predict(display.x[:, None], return_std=True)
    np.testing.assert_array_equal(display.line_.get_ydata(), mean)
    corners = display.band_.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx((mean + 2.0 * std).max())
    assert corners[:, 1].min() == pytest.approx((mean - 2.0 * std).min())
    assert display.x[0] < X.min()
    assert display.x[-1] > X.max()
    healed = PredictiveBandDisplay.from_estimator(model, X, y, healed=True, margin=1.0, ax=axes())
    plain = PredictiveBandDisplay.from_estimator(model, X, y, margin=1.0, ax=axes())
    assert healed.std[0] > plain.std[0]


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_bands_of_models_without_relevance_vectors(wave):
    X, y = wave
    for model in (GREVMRegressor(gamma=0.1), SparseBayesRegressor(fit_intercept=False)):
        display = PredictiveBandDisplay.from_estimator(model.fit(X, y), X, y, ax=axes())
        assert display.std.min() >= np.sqrt(model.noise_variance_)


def test_contours_are_where_the_probability_is(blobs):
    X, y = blobs
    labels = np.where(y == "north", "north", "south")
    model = RVC(gamma=0.5).fit(X, labels)
    display = ProbabilityDisplay.from_estimator(model, X, labels, ax=axes())
    (contours,) = display.contours_
    for level, lines in zip(contours.levels, contours.allsegs, strict=True):
        # To what a grid of 201 by 201 tells.
        np.testing.assert_allclose(model.predict_proba(np.vstack(lines))[:, 1], level, atol=0.01)
    np.testing.assert_array_equal(circles(display.ax_), model.relevance_vectors_)


def test_contours_of_several_classes_or_of_one_of_them(blobs):
    X, y = blobs
    model = RVC(gamma=0.5, multi_class="softmax").fit(X, y)
    display = ProbabilityDisplay.from_estimator(model, X, y, levels=[0.5], ax=axes())
    assert len(display.contours_) == 3
    alone = ProbabilityDisplay.from_estimator(model, X, y, class_of_interest="west", ax=axes())
    np.testing.assert_array_equal(alone.probabilities[:, :, 0], display.probabilities[:, :, 2])
    with pytest.raises(ValueError, match=r"class_of_interest must be one of \['east'"):
        ProbabilityDisplay.from_estimator(model, X, y, class_of_interest="up", ax=axes())


def test_displays_draw_again_and_make_figures_of_their_own(wave):
    import matplotlib.pyplot as plt

    X, y = wave
    model = RVR(gamma=0.1).fit(X, y)
    display = PredictiveBandDisplay.from_estimator(model, X, y)
    first = display.figure_
    assert display.plot() is display
    assert display.figure_ is not first
    plt.close(first)
    plt.close(display.figure_)
    other = axes()
    assert display.plot(other).ax_ is other


def test_names_of_columns_are_on_the_axes(wave):
    pd = pytest.importorskip("pandas")
    X, y = wave
    frame = pd.DataFrame(X, columns=["depth"])
    model = RVR(gamma=0.1).fit(frame, y)
    assert PredictiveBandDisplay.from_estimator(model, frame, y, ax=axes()).ax_.get_xlabel() == "depth"


@pytest.mark.parametrize("nested", [False, True])
def test_a_pipeline_is_drawn_as_its_last_step_sees_the_data(nested, wave, blobs):
    def pipeline(model):
        steps = make_pipeline(model) if nested else model
        return make_pipeline(StandardScaler(), steps)

    for (X, y), model, displays in (
        (wave, RVR(gamma=1.0), [RelevanceVectorsDisplay, PredictiveBandDisplay]),
        (blobs, RVC(gamma=1.0), [RelevanceVectorsDisplay, ProbabilityDisplay]),
    ):
        whole = pipeline(model).fit(X, y)
        Z = StandardScaler().fit_transform(X)
        last = clone(model).fit(Z, y)
        for display in displays:
            drawn = display.from_estimator(whole, X, y, ax=axes())
            expected = display.from_estimator(last, Z, y, ax=axes())
            np.testing.assert_allclose(drawn.points, expected.points)
            np.testing.assert_allclose(drawn.vectors, expected.vectors)
        for curve in (EvidencePathDisplay, AlphaSpectrumDisplay):
            (line,) = curve.from_estimator(whole, ax=axes()).ax_.get_lines()[:1]
            (same,) = curve.from_estimator(last, ax=axes()).ax_.get_lines()[:1]
            np.testing.assert_allclose(line.get_ydata(), same.get_ydata())
        assert certificate(whole, X, y) == certificate(last, Z, y)
    X, y = blobs
    Z = StandardScaler().fit_transform(X)
    drawn = plot_decision(pipeline(RVC(gamma=1.0)).fit(X, y), X, y, ax=axes())
    np.testing.assert_allclose(circles(drawn), RVC(gamma=1.0).fit(Z, y).relevance_vectors_)
    plot_paths(pipeline(MRVM2(gamma=1.0)).fit(X, y), ax=Figure().subplots(2))
    model = pipeline(MRVM2(gamma=1.0, max_iter=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    *_, accuracy, _ = plot_paths(model, X, y, ax=Figure().subplots(4), test=(X, y))
    assert accuracy.get_lines()[0].get_ydata()[-1] == pytest.approx(100 * model.score(X, y))
    if not nested:
        counts = relevance_counts(make_pipeline(StandardScaler(), RVC(gamma=1.0)), X, y, cv=3)
        assert counts.max() <= 2 < counts.sum()


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
def test_refusals_name_the_remedy(wave, blobs):
    X, y = wave
    model = RVR(gamma=0.1).fit(X, y)
    band = PredictiveBandDisplay.from_estimator
    with pytest.raises(NotFittedError):
        band(RVR(), X, y)
    with pytest.raises(TypeError, match="takes a fitted estimator of this package, got list"):
        band([], X, y)
    with pytest.raises(NotFittedError):
        band(make_pipeline(RVR()), X, y)
    with pytest.raises(TypeError, match="takes a fitted estimator of this package, got str"):
        band(make_pipeline(StandardScaler(), "passthrough").fit(X), X, y)
    with pytest.raises(TypeError, match="error bars of regressions, which this RVC"):
        band(RVC().fit(*blobs), *blobs)
    with pytest.raises(ValueError, match=r"1 input\(s\), and est has 2"):
        band(RVR().fit(blobs[0], blobs[0][:, 0]), blobs[0], blobs[0][:, 0])
    with pytest.raises(ValueError, match="draws one output"):
        band(RVR(gamma=0.1).fit(X, np.column_stack([y, -y])), X, y)
    with pytest.raises(ValueError, match="y must hold a finite number for each of 80 rows"):
        band(model, X, y[:5])
    with pytest.raises(ValueError, match=r"X must be finite.*got shape \(80, 2\)"):
        band(model, np.column_stack([X, X]), y)
    with pytest.raises(TypeError, match="relevance vectors, which this SparseBayesRegressor"):
        RelevanceVectorsDisplay.from_estimator(SparseBayesRegressor(fit_intercept=False).fit(X, y), X, y)
    with pytest.raises(TypeError, match="evidence after each step, which this GREVM"):
        EvidencePathDisplay.from_estimator(GREVM().fit(*blobs))
    with pytest.raises(ValueError, match="quantity must be 'alpha' or 'gamma'"):
        AlphaSpectrumDisplay.from_estimator(model, quantity="beta")
    with pytest.raises(TypeError, match="spectra must be a sequence of array-likes"):
        AlphaSpectrumDisplay(np.array(0.5))
    for levels in (None, 0.5, ["high"]):
        with pytest.raises(TypeError, match="levels must be"):
            ProbabilityDisplay.from_estimator(RVC().fit(*blobs), *blobs, levels=levels, ax=axes())
    with pytest.raises(TypeError, match="posterior covariance, which this MRVM2"):
        AlphaSpectrumDisplay.from_estimator(MRVM2().fit(*blobs), quantity="gamma")


def test_the_module_does_not_import_matplotlib_and_names_the_extra_without_it(wave, monkeypatch):
    code = "import sys, sparsebayes; sparsebayes.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    model = RVR(gamma=0.1).fit(*wave)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"EvidencePathDisplay draws with matplotlib.*sparsebayes\[plot\]"):
        EvidencePathDisplay.from_estimator(model)
