"""`inspection.diagnose`: each fault is found and named, and good models have none."""

import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import GREVM, MRVM1, RVC, RVR, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.inspection import certificate, diagnose
from sparsebayes.kernels import Gaussian, OnColumns

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def wave():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, (300, 1))
    return x, np.sin(2.0 * x[:, 0]) + 0.1 * rng.normal(size=300)


def test_good_models_have_no_advice(wave):
    X, y = wave
    for model in (RVR(), make_pipeline(StandardScaler(), RVR(gamma=1.0))):
        found = diagnose(model.fit(X, y), X, y)
        assert found.advice == []
        assert "nothing to complain of" in str(found)
        assert found.certificate.max_gain_outside < 1e-6
    model = RVR().fit(X, y)
    found = diagnose(model, X, y)
    assert found.certificate == certificate(model, X, y)
    own = found.certificate
    assert found.share_of_rows == own.share_of_rows == np.sum(model.active_ >= 0) / 300
    assert found.loo_coverage == own.loo_coverage == model.loo_coverage_
    assert found.loo_score == own.loo_score > 0.9
    assert np.mean(found.coverage_by_prediction) == pytest.approx(found.loo_coverage)
    assert diagnose(pickle.loads(pickle.dumps(model)), X, y).coverage_by_prediction == ()


@pytest.mark.parametrize("gamma", [0.01, 1000.0])
def test_widths_that_do_not_fit_are_named(gamma, wave):
    X, y = wave
    model = RVR(gamma=gamma).fit(X, y)
    found = diagnose(model, X, y)
    assert any("gamma='ard', learned widths" in one for one in found.advice)
    density, evidence = found.alternatives["learned widths"]
    assert density == pytest.approx(np.mean(RVR().fit(X, y).loo_ - model.loo_), rel=1e-6)
    assert density > 0.1
    assert np.isnan(evidence)
    half, twice = (found.alternatives[name][0] for name in ("half the widths", "twice the widths"))
    assert (half > twice) == (gamma < 1.0)
    other = RVR(gamma=gamma * 4.0).fit(X, y)
    assert half == pytest.approx(np.mean(other.loo_ - model.loo_), rel=1e-6)


def test_callbacks_are_for_the_fit_of_the_user(wave):
    X, y = wave
    calls = []
    model = RVR(gamma=1.0, callback=calls.append).fit(X, y)
    n = len(calls)
    diagnose(model, X, y)
    assert len(calls) == n > 0


def test_kernels_without_widths_are_compared_with_learned_ones(wave):
    X, y = wave
    assert any("learned widths" in one for one in diagnose(RVR("linear").fit(X, y), X, y).advice)


def test_rough_functions_ask_for_a_matern_kernel():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (400, 4))
    f = np.sin(3.0 * X[:, 0] * X[:, 1]) + X[:, 2]
    y = f + 0.2 * rng.normal(size=400)
    model = RVR(extra_basis=None).fit(X, y)
    assert any("kernel='matern52'" in one for one in diagnose(model, X, y).advice)


def test_noise_alone_hardly_gets_advice_about_kernels_and_bars():
    found = []
    for n_inputs, seed in product([1, 2, 8], range(6)):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, n_inputs)), rng.normal(size=300)
        model = RVR().fit(X, y)
        found += [one for one in diagnose(model, X, y).advice if one != model._advice]
    # Advice needs a gain of two standard errors on rows left out of both fits; one in forty is chance.
    assert len(found) <= 1, found


def test_noise_that_is_underestimated_is_no_outlier(wave):
    X, y = wave
    model = RVR(noise_variance=1e-6, gamma=1.0).fit(X, y)
    assert any("The noise is underestimated" in one for one in diagnose(model, X, y).advice)


def test_outliers_are_counted(wave):
    X, y = wave
    y[:7] += 4.0
    found = diagnose(RVR().fit(X, y), X, y)
    assert any(
        one.startswith("In 7 rows the target is more than 5 standard deviations") for one in found.advice
    )
    found = diagnose(RVR(likelihood="student_t").fit(X, y), X, y)
    assert not any("5 standard deviations" in one for one in found.advice)


def test_noise_that_depends_on_the_inputs_is_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    y = np.exp(10.0 + x[:, 0] + 0.5 * rng.normal(size=300))
    found = diagnose(RVR().fit(x, y), x, y)
    assert any("where the prediction is large" in one and "likelihood='gamma'" in one for one in found.advice)
    assert found.coverage_by_prediction[2] < 0.9
    for model, target in ((RVR(likelihood="gamma"), y), (RVR(), np.log(y))):
        assert diagnose(model.fit(x, target), x, target).advice == []


def test_noise_that_depends_on_one_input_is_found_by_its_name():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0, 10, (600, 2)), columns=["age", "dose"])
    y = np.sin(X["age"]) + 0.5 * X["dose"] + (0.1 + 0.2 * X["age"]) * rng.normal(size=600)
    uneven = "Error bars do not fit everywhere"
    (advice,) = (one for one in diagnose(RVR().fit(X, y), X, y).advice if one.startswith(uneven))
    assert "of the rows where input age is large" in advice
    assert advice.endswith("The noise depends on the inputs: give noise_basis='linear'.")
    other = RVR(noise_basis="linear").fit(X, y)
    assert not any(one.startswith(uneven) for one in diagnose(other, X, y).advice)


def test_counts_that_vary_more_than_poisson_need_another_likelihood():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (500, 1))
    mean = np.exp(X[:, 0])
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, size=500))
    found = diagnose(RVR(likelihood="poisson").fit(X, y), X, y).advice
    assert len(found) == 2  # that of the fit, and that of the intervals
    assert all(one.lower().endswith("give likelihood='negative_binomial'.") for one in found)
    assert diagnose(RVR(likelihood="negative_binomial").fit(X, y), X, y).advice == []


def test_copies_of_rows_are_reported_and_nothing_else_advised():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    X, y = (np.repeat(values, 4, axis=0) for values in (X, X[:, 0] + rng.normal(size=150)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RVR().fit(X, y)
    found = diagnose(model, X, y)
    assert found.alternatives == {}
    assert any(one.startswith("450 of 600 rows repeat others exactly") for one in found.advice)
    with pytest.warns(ConvergenceWarning, match="450 of 600 rows repeat others exactly"):
        overfitted = RVR(gamma=10.0).fit(X, y)
    assert overfitted.status_ == "noise_floor"
    advice = diagnose(overfitted, X, y).advice
    assert sum("rows repeat others exactly" in one for one in advice) == 1


def test_overfitted_and_empty_models_repeat_their_warning():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 200)), rng.normal(size=80)
    found = diagnose(model := SparseBayesRegressor(complexity="none").fit(X, y), X, y)
    assert found.advice[0] == model._advice
    assert found.share_of_rows > 0.5
    found = diagnose(model := SparseBayesRegressor().fit(X, y), X, y)
    assert found.advice[0] == model._advice


def test_other_data_are_no_optimum(wave):
    X, y = wave
    found = diagnose(RVR(gamma=1.0).fit(X, y), X, -2.0 * y)
    assert any("not at an optimum of these data" in one for one in found.advice)


def test_classifiers_have_no_coverage():
    X, y = load_iris(return_X_y=True)
    for model in (RVC(), RVC(landmarks=None), SparseBayesClassifier(), RVC(gamma="scale")):
        found = diagnose(model.fit(X, y), X, y)
        assert np.isnan(found.loo_coverage)
        assert found.coverage_by_prediction == ()
        assert found.loo_score > 0.9
        assert ("twice the widths" in found.alternatives) == hasattr(model, "kernel_")


def test_rows_have_weights_known_errors_and_exposures(wave):
    X, y = wave
    stds = np.linspace(0.5, 2.0, 300)
    model = RVR(gamma=1.0).fit(X, y, np.full(300, 2.0), y_std=stds)
    found = diagnose(model, X, y, np.full(300, 2.0), y_std=stds)
    assert found.certificate == certificate(model, X, y, np.full(300, 2.0), y_std=stds)
    counts = np.random.default_rng(0).poisson(np.exp(y) * stds)
    model = RVR(likelihood="poisson", gamma=1.0).fit(X, counts, exposure=stds)
    assert diagnose(model, X, counts, exposure=stds).alternatives.keys() >= {"twice the widths"}
    both = np.column_stack([y, -y])
    assert diagnose(RVR(gamma=1.0).fit(X, both), X, both).coverage_by_prediction == ()


def test_models_without_leave_one_out_predictions_are_refused():
    X, y = load_iris(return_X_y=True)
    for other in (MRVM1().fit(X, y), GREVM(), "model"):
        with pytest.raises(TypeError, match=r"est must be a fitted RVR, RVC, .* SparseBayesClassifier, or a"):
            diagnose(other, X, y)
    with pytest.raises(TypeError, match="leave-one-out predictions: fit it to rows in memory"):
        diagnose(SparseBayesRegressor().fit([(X, X[:, 0])]), X, X[:, 0])


def test_one_of_several_better_kernels_is_named(wave):
    X, y = wave
    found = diagnose(RVR(gamma=0.01).fit(X, y), X, y)
    better = [name for name, (gain, _) in found.alternatives.items() if gain > 0.1]
    assert len(better) > 2
    assert sum("Rows left out are predicted better" in one for one in found.advice) == 1


def test_columns_that_predict_better_than_a_kernel_are_named():
    rng = np.random.default_rng(500)
    X = rng.normal(size=(200, 300))
    y = (rng.random(200) < 1.0 / (1.0 + np.exp(-1.5 * X[:, :5].sum(axis=1)))).astype(int)
    found = diagnose(RVC().fit(X, y), X, y)
    assert found.alternatives["the columns of X"][0] > 0.1
    assert "with SparseBayesClassifier, whose functions are the columns of X" in " ".join(found.advice)


def test_many_rows_are_compared_by_some_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (1500, 1))
    y = np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=1500)
    weights, names = np.linspace(0.5, 1.5, 1500), pd.DataFrame(X, columns=["x"])
    model = RVR(gamma=0.01, candidates=1200).fit(names, y, weights)
    n_rows = []
    monkeypatch.setattr(
        RVR, "fit", lambda *args, own=RVR.fit, **extra: n_rows.append(len(args[1])) or own(*args, **extra)
    )
    found = diagnose(model, names, y, weights)
    assert max(n_rows) == found.rows_of_alternatives == 1000
    assert found.n_rows == 1500
    assert "other fits: to 1000 rows drawn at random" in str(found)
    assert "an exchange search" not in found.alternatives
    assert any("gamma='ard', learned widths (found with 1000 of the rows)." in one for one in found.advice)
    assert diagnose(RVR(OnColumns(Gaussian(1.0), ["x"])).fit(names, y), names, y).rows_of_alternatives == 1000
    labels = np.where(np.arange(1500) == 7, "rare", np.where(y > 0.0, "high", "low"))
    found = diagnose(SparseBayesClassifier().fit(X, labels), X, labels)
    assert (found.alternatives, found.rows_of_alternatives) == ({}, 0)
    assert "other fits: none" in str(found)
    found = diagnose(RVC(gamma=0.01).fit(X, labels), X, labels)
    assert found.rows_of_alternatives == 1000
