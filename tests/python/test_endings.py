"""Statuses and warnings: empty models, overfitting, unscaled inputs, and targets far from 0."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning

from problems import ON_KERNELS, PAPERS, assert_certified
from provider_reference import NumpyRows
from sparsebayes import (
    MRVM1,
    RVC,
    RVR,
    GREVMRegressor,
    LREVMRegressor,
    OverfitWarning,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
)
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, Linear, OnColumns

SCALES = np.array([1.0, 1e3, 1e6])


def rows(n=120, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def warned(fit):
    """Return the model, and the only warning of its fit or None."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    assert len(caught) <= 1, [str(warning.message) for warning in caught]
    assert all(warning.filename == __file__ for warning in caught)
    return model, caught[0] if caught else None


def unexplained(X):
    """Return noise orthogonal to the columns of X."""
    noise = np.random.default_rng(1).normal(size=len(X))
    return noise - X @ np.linalg.lstsq(X, noise, rcond=None)[0]


def halves(X, y):
    return [(X[: len(X) // 2], y[: len(X) // 2]), (X[len(X) // 2 :], y[len(X) // 2 :])]


# --- models without functions -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ON_KERNELS)
def test_the_warning_of_an_empty_model_names_the_inputs(kind):
    X, y = rows()
    y = y if is_regressor(kind()) else (y > 0).astype(int)
    model, warning = warned(lambda: kind(gamma=1e-14).fit(X, y))
    assert (model.status_, warning.category) == ("empty", ConvergenceWarning)
    assert all(text in str(warning.message) for text in ("'empty'", "far too wide", "may not explain y"))


@pytest.mark.parametrize("kind", [RVR, RVC])
def test_a_kernel_too_wide_for_rounding_is_named(kind):
    X, y = rows()
    y = y if kind is RVR else (y > 0).astype(int)
    model, warning = warned(lambda: kind(gamma=1e-7).fit(X, y))
    np.testing.assert_array_equal(model.active_, [-1])
    assert model.status_ in ("empty", "stalled")
    assert "has no functions" in str(warning.message)
    assert "far too wide" in str(warning.message)


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
@pytest.mark.parametrize("candidates", [None, 20])
def test_several_classes_are_empty_if_all_are(multi_class, candidates):
    X, y = rows()
    labels = np.digitize(y, [-0.5, 0.5])
    empty = RVC(gamma=1e-14, multi_class=multi_class, candidates=candidates, random_state=0)
    model, warning = warned(lambda: empty.fit(X, labels))
    assert (model.status_, warning.category) == ("empty", ConvergenceWarning)
    found, warning = warned(lambda: RVC(gamma=0.1, multi_class=multi_class).fit(X, labels))
    assert (found.status_, warning) == ("converged", None)


def test_the_warning_of_an_empty_model_names_the_cause():
    X, y = rows()
    labels = y > 0
    for model, inputs, target, weights, cause in [
        (MRVM1(gamma=1e8), X, labels, None, "far too narrow"),
        (RVC(gamma="scale"), np.ones((120, 2)), X[:, 0] > 0.5, None, "All rows of X are the same"),
        (RVR(gamma="scale"), np.ones((120, 2)), y, None, "All rows of X are the same"),
        (RVR("poly", gamma=1e-6, coef0=1.0, **PAPERS), X, y, None, "centre and scale X"),
        (RVR("precomputed"), np.ones((120, 120)) - 1e-12 * np.eye(120), y, None, "does not tell rows apart"),
        (RVR(gamma="scale"), X, y, np.full(120, 1e-6), r"sums to 0.00012 over 120 rows.*y_std"),
        (RVC(gamma="scale"), X, labels, np.full(120, 1e-6), "sample_weight counts rows"),
        (MRVM1(), X, labels, np.full(120, 1e-6), "sample_weight counts rows"),
        (GREVMRegressor(), X, y, np.full(120, 1e-9), "sample_weight counts rows"),
        (SparseBayesRegressor(fit_intercept=True), X, y, np.full(120, 1e-6), "sample_weight counts rows"),
        (
            RVR(noise_variance=100.0, gamma="scale"),
            X,
            y,
            None,
            "noise_variance is not less than the variance of y",
        ),
        (SparseBayesRegressor(), X, unexplained(X), None, r"may not explain y; .* transformed first\.$"),
        (SparseBayesRegressor(), X, unexplained(X), np.full(120, 0.5), "or sample_weight scaled"),
    ]:
        with pytest.warns(ConvergenceWarning, match=f"'empty'.*{cause}"):
            model.fit(inputs, target, sample_weight=weights)
        assert model.status_ == "empty"


def test_tiny_weights_are_named_where_rows_are_not_kept():
    X, y = rows()
    weights = np.full(120, 1e-6)
    chunks = [(X, y, weights)]
    sums = SufficientStatistics(3).update(X, y, weights)
    for fit in [
        lambda: SparseBayesRegressor().fit_statistics(sums),
        lambda: SparseBayesRegressor().partial_fit(X, y, weights),
        lambda: SparseBayesRegressor().fit(chunks),
        lambda: RVR(candidates=X[:30], gamma="scale").fit(chunks),
        lambda: RVC(candidates=X[:30], gamma="scale").fit([(X, y > 0, weights)]),
        lambda: SparseBayesClassifier().fit([(X, y > 0, weights)]),
    ]:
        model, warning = warned(fit)
        assert model.status_ == "empty"
        assert "sums to 0.00012 over 120 rows" in str(warning.message)


@pytest.mark.parametrize(
    "model", [RVC(), RVC(multi_class="ovr"), RVC(gamma=0.1), MRVM1(), SparseBayesClassifier()], ids=repr
)
def test_normalised_weights_are_named_whether_the_model_is_empty_or_overfitted(model):
    X, y = rows()
    _, warning = warned(lambda: model.fit(X, np.digitize(y, [-0.5, 0.5]), np.full(120, 1 / 120)))
    assert "sums to 1 over 120 rows" in str(warning.message)
    assert "multiply the weights by 120" in str(warning.message)
    assert "kernel" not in str(warning.message)


def test_providers_end_empty_too():
    X, y = rows()
    model, warning = warned(
        lambda: SparseBayesRegressor(fit_intercept=False).fit_provider(NumpyRows(X, unexplained(X)))
    )
    assert (model.status_, warning.category) == ("empty", ConvergenceWarning)
    wide = RVR(Gaussian(1e7), fit_intercept=False, candidates=X[:5])
    model, warning = warned(lambda: wide.fit_provider(NumpyRows(np.ones((120, 5)), y + 5.0)))
    assert model.status_ == "empty"
    assert "far too wide" in str(warning.message)


def test_an_empty_model_is_certified():
    X, _ = rows()
    noise = unexplained(X)
    model, _ = warned(lambda: SparseBayesRegressor().fit(X, noise))
    assert_certified(model, X, noise, status="empty")


def test_constant_targets_are_named():
    X, _ = rows()
    for model in (RVR(gamma="scale"), SparseBayesRegressor(fit_intercept=True), GREVMRegressor()):
        for level in (0.0, 5.0):
            with pytest.warns(ConvergenceWarning, match="y is constant"):
                model.fit(X, np.full(120, level))
            np.testing.assert_allclose(model.predict(X), level, rtol=1e-4)


def test_a_term_that_hides_the_others_of_a_sum_is_named():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 250.0, (150, 1)), axis=0)
    y = 0.002 * t[:, 0] + np.sin(2.0 * np.pi * t[:, 0] / 50.0) + 0.1 * rng.normal(size=150)
    for learns in (False, True):
        model = RVR(Gaussian(20.0) + Linear(), optimize_kernel=learns)
        with pytest.warns(ConvergenceWarning, match="Linear.* hides Gaussian.*Give a list of kernels"):
            model.fit(t, y)
        assert model.status_ == "empty"
    assert RVR([Gaussian(20.0), Linear()]).fit(t, y).score(t, y) > 0.9
    assert RVR(Gaussian(2.0) + Linear()).fit(t / 10.0, y).score(t / 10.0, y) > 0.9


def test_terms_of_a_sum_that_suit_each_other_are_not_named():
    X, _ = rows()
    _, warning = warned(lambda: RVR(Gaussian(2.0) + Linear()).fit(X, unexplained(X)))
    assert warning is None or "sum" not in str(warning.message)


def test_few_rows_or_events_are_named_where_a_kernel_was_learned():
    rng = np.random.default_rng(7)
    X = rng.uniform(-2.0, 2.0, (60, 1))
    counts = np.zeros(60)
    counts[:10] = 1.0
    for model, y, extent in [
        (RVR(), rng.normal(size=60), "60 rows of 1 input"),
        (RVR(likelihood="poisson"), rng.permutation(counts), "60 rows of 1 input with 10 events"),
        (RVC(), rng.permutation(counts), "60 rows of 1 input with 10 of the rarest class"),
    ]:
        with pytest.warns(ConvergenceWarning, match=f"or {extent} are too few to learn it.$"):
            model.fit(X, y)
        assert model.status_ == "empty"


# --- inputs that were not scaled --------------------------------------------------------------------


def test_kernels_without_widths_have_no_advice_about_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    y[3] = 1e6
    with pytest.warns(ConvergenceWarning, match="does not suit them: scale X, or take another.$"):
        RVR("linear").fit(X, y)
    with pytest.warns(ConvergenceWarning, match="there is nothing to learn from.$"):
        RVR().fit(np.ones((80, 3)), y)


@pytest.mark.parametrize("kind", ON_KERNELS)
def test_unscaled_inputs_are_named(kind):
    X, y = rows()
    y = y if is_regressor(kind()) else (y > 0).astype(int)
    _, warning = warned(lambda: kind(gamma="scale").fit(X * SCALES, y))
    most, least = 1e6 * X[:, 2].std(), X[:, 0].std()
    named = f"column 2 has the standard deviation {most:.3g}, column 0 {least:.3g}. Scale X"
    assert named in str(warning.message)
    frame = pd.DataFrame(X * SCALES, columns=["age", "income", "area"])
    _, warning = warned(lambda: kind(gamma="scale").fit(frame, y))
    assert f"column 'area' has the standard deviation {most:.3g}, column 'age'" in str(warning.message)
    assert issubclass(warning.category, UserWarning)


def test_fits_with_one_scale_for_unscaled_inputs_warn():
    X, y = rows()
    Z = X * SCALES
    for fit in [
        *(lambda name=name: RVC(name).fit(Z, y > 0) for name in ("laplacian", "poly", "linear", "sigmoid")),
        lambda: RVR(candidates=30, random_state=0, gamma="scale").fit(Z, y),
        lambda: RVR(candidates=30, random_state=0, gamma="scale").fit(halves(Z, y)),
        lambda: RVR(candidates=Z[:30], gamma="scale").partial_fit(Z, y),
        lambda: RVC(candidates=30, random_state=0, gamma="scale").fit(halves(Z, y > 0)),
    ]:
        assert "very different standard deviations" in str(warned(fit)[1].message)
    X[:, 2] = X[:, 0]
    model, warning = warned(lambda: RVR(gamma=1e-11).fit(X * SCALES, y))
    assert (model.status_, warning.category) == ("converged", UserWarning)
    assert str(warning.message).startswith("RVR: The inputs have very different standard deviations")


def test_advice_for_unscaled_inputs_does_not_blame_a_learned_width():
    X, y = rows()
    _, warning = warned(lambda: RVR(gamma="learn").fit(X * SCALES, y))
    assert str(warning.message).endswith("Scale X (StandardScaler), or take one width per input.")


def test_a_stopped_fit_of_unscaled_inputs_has_converged_as_far_as_asked():
    X, y = rows()
    model = RVR(gamma="scale", callback=lambda record: True)
    _, warning = warned(lambda: model.fit(X * SCALES, y))
    assert model.status_ == "stopped"
    assert warning.category is UserWarning


def test_kernels_with_a_width_for_each_input_do_not_warn():
    X, y = rows()
    narrow = OnColumns("rbf", [0]) + OnColumns("rbf", [1]) + OnColumns("rbf", [2])
    for model, scales in [
        (RVR(Gaussian(2 * SCALES)), SCALES),
        (RVR(narrow), SCALES),
        (SparseBayesRegressor(), SCALES),
        (RVR(gamma="scale"), [1.0, 30.0, 0.0]),  # a constant column does not count as a small one
    ]:
        _, warning = warned(lambda model=model, scales=scales: model.fit(X * scales, y))
        assert warning is None, str(warning.message)


# --- models with too many functions -----------------------------------------------------------------


def test_the_overfit_warning_names_a_narrow_kernel():
    X, y = rows(500, 50)
    model, warning = warned(lambda: RVR(gamma=1 / 100, **PAPERS).fit(X, y))
    assert warning.category is OverfitWarning
    assert f"{len(model.active_)} functions for 500 rows: the kernel is too narrow" in str(warning.message)
    assert "there is no noise; error bars are too small" in str(warning.message)
    assert len(model.active_) > 450


def test_overfitting_counts_parameters_and_rows():
    X, y = rows(60, 10)
    model, warning = warned(lambda: RVR(gamma=0.3, **PAPERS).fit(X, y))
    gamma = 1.0 - model.alpha_ * model.sigma_.diagonal()
    assert gamma.sum() > 30
    assert warning.category is OverfitWarning
    given, warning = warned(lambda: RVR(gamma=0.3, noise_variance=1e-4, **PAPERS).fit(X, y))
    assert (given.status_, warning) == ("converged", None)  # the remedy
    wide, warning = warned(lambda: RVR(gamma=0.01, **PAPERS).fit(X, y))
    assert (1.0 - wide.alpha_ * wide.sigma_.diagonal()).sum() < 30
    assert warning is None
    # Weights count rows, but never more rows than there are.
    _, warning = warned(lambda: RVR(gamma=0.3, **PAPERS).fit(X, y, sample_weight=np.full(60, 0.9)))
    assert "46 functions for 54 rows (the sum of sample_weight):" in str(warning.message)
    _, warning = warned(lambda: RVR(gamma=0.3, **PAPERS).fit(X, y, sample_weight=np.full(60, 100.0)))
    assert "functions for 60 rows:" in str(warning.message)


def test_every_kind_of_fit_warns_of_overfitting():
    X, y = rows(60, 10)
    narrow = RVR(gamma=0.3, candidates=X, **PAPERS)
    bare = SparseBayesRegressor(fit_intercept=False, **PAPERS)
    columns = np.random.default_rng(0).normal(size=(40, 100))
    noise = np.random.default_rng(1).normal(size=(40, 2))
    for fit, what in [
        (lambda: narrow.fit(halves(X, y)), "functions for 60 rows"),
        (lambda: narrow.partial_fit(X, y), "functions for 60 rows"),
        (lambda: RVR(gamma=0.3, **PAPERS).fit(X, np.column_stack([y, -y[::-1]])), "functions for 60 rows"),
        (
            lambda: SparseBayesRegressor(**PAPERS).fit(columns, noise[:, 0]),
            "columns for 40 rows: the columns are",
        ),
        (lambda: SparseBayesRegressor(**PAPERS).fit(columns, noise), "columns for 40 rows: the columns are"),
        (lambda: bare.fit_provider(NumpyRows(columns, noise[:, 0]), n_samples=40), "columns for 40 rows"),
        (lambda: GREVMRegressor(gamma=0.3).fit(X, y), "relevant eigenvectors for 60 rows"),
    ]:
        _, warning = warned(fit)
        assert warning.category is OverfitWarning
        assert what in str(warning.message)


def test_noise_free_problems_give_one_warning():
    x = np.arange(5.0)
    for y in (x**3 - 2 * x**2 + 1, np.column_stack([x**3 - 1, x])):
        model, warning = warned(lambda y=y: SparseBayesRegressor(**PAPERS).fit(np.vander(x, 4), y))
        assert warning.category is OverfitWarning
        assert model.status_ == "noise_floor"
        assert "'noise_floor'" in str(warning.message)
    _, warning = warned(lambda: RVR("poly", coef0=1.0, **PAPERS).fit(x[:, None], x**3))
    assert "4 functions for 5 rows" in str(warning.message)


@pytest.mark.parametrize(
    "model",
    [
        *(SparseBayesRegressor(scheme=scheme) for scheme in ("sequential", "mackay", "em", "variational")),
        SparseBayesRegressor(groups=[0]),
        *(kind("linear") for kind in (RVR, GREVMRegressor, LREVMRegressor)),
    ],
    ids=repr,
)
def test_noise_at_its_floor_gives_an_overfit_warning(model):
    X = np.linspace(0.0, 1.0, 20)[:, np.newaxis]
    _, warning = warned(lambda: model.fit(X, 3.0 * X[:, 0]))
    assert (model.status_, warning.category) == ("noise_floor", OverfitWarning)


def test_trial_fits_of_kernel_learning_do_not_warn():
    X, y = rows(80, 2)
    model, warning = warned(lambda: RVR(Gaussian(1e-3), optimize_kernel=True).fit(X, y))
    assert warning is None
    assert len(model.active_) < 40


# --- targets far from 0 -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["sequential", "mackay", "variational"])
@pytest.mark.parametrize("offset", [-1e6, 1e9])
def test_a_bias_absorbs_targets_far_from_zero(scheme, offset):
    X, y = rows(80, 2)
    y = np.round(y, 2)  # so that the offset costs few digits
    for model in (RVR(gamma=0.2, scheme=scheme), SparseBayesRegressor(fit_intercept=True, scheme=scheme)):
        near = clone(model).fit(X, y + 1e3)
        _, warning = warned(lambda model=model: model.fit(X, y + offset))
        assert warning is None
        assert model.intercept_[0] == pytest.approx(offset, rel=1e-3)
        assert model.score(X, y + offset) == pytest.approx(near.score(X, y + 1e3), abs=5e-3)
        if scheme == "sequential":  # the others may end at another optimum
            np.testing.assert_allclose(model.predict(X) - offset, near.predict(X) - 1e3, atol=1e-4)
            np.testing.assert_allclose(model.noise_variance_, near.noise_variance_, rtol=1e-4)
        assert model.to_predictor().predict(X) == pytest.approx(model.predict(X), rel=1e-12)
        if scheme != "variational":
            found = certificate(model, X, y + offset)
            assert max(found.max_log_alpha_change, 10.0 * found.max_gain_outside) <= 1e-5
            assert found.log_marginal_likelihood == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)


def test_several_targets_far_from_zero():
    X, y = rows(80, 2)
    Y = np.column_stack([y, X[:, 1] - y, y**2])
    offsets = np.array([1e9, -1e7, 0.0])
    moved, warning = warned(lambda: SparseBayesRegressor(fit_intercept=True).fit(X, Y + offsets))
    assert warning is None
    near = SparseBayesRegressor(fit_intercept=True).fit(X, Y + np.array([1e3, -1e3, 0.0]))
    np.testing.assert_allclose(moved.coef_, near.coef_, atol=1e-3)
    assert certificate(moved, X, Y + offsets).max_log_alpha_change <= 1e-5


def test_the_remedy_of_targets_far_from_zero_is_named():
    X, y = rows(80, 2)
    for settings, status in (({}, "empty"), (PAPERS, "alpha_floor")):
        bare = SparseBayesRegressor(fit_intercept=False, **settings)
        with pytest.warns(
            ConvergenceWarning, match=f"{status}.*subtract its mean, or set fit_intercept=True"
        ):
            bare.fit(X, y + 1e9)
    sums = SufficientStatistics(2).update(X, y + 1e9)
    with pytest.warns(ConvergenceWarning, match="alpha_floor.*far from 0.*subtract its mean"):
        SparseBayesRegressor(**PAPERS).fit_statistics(sums)
    # An intercept with a flat prior has no precision to reach a floor.
    flat = SparseBayesRegressor().fit_statistics(sums)
    np.testing.assert_allclose(flat.coef_, SparseBayesRegressor().fit(X, y).coef_, rtol=1e-5)
