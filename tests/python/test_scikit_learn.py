"""The estimators do in scikit-learn's machinery what its own do."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import GREVM, MRVM1, RVC, RVR
from sparsebayes.kernels import Gaussian, Laplacian, Linear, OnColumns


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=120), rng.uniform(0.2, 2.0, 120)


def test_weights_are_routed_through_searches_and_pipelines(data):
    X, y, weights = data
    with config_context(enable_metadata_routing=True):
        model = RVR(gamma=0.5).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        # scikit-learn 1.6 does not route to the score of a pipeline that is searched with no scorer named.
        scorer = make_scorer(r2_score).set_score_request(sample_weight=True)
        search = GridSearchCV(pipe, {"rvr__gamma": [0.1, 1.0]}, scoring=scorer, cv=3)
        search.fit(X, y, sample_weight=weights)
    best = search.best_estimator_
    scaled = best[0].transform(X)
    alone = RVR(**best[-1].get_params()).fit(scaled, y, sample_weight=weights)
    np.testing.assert_array_equal(best.predict(X), alone.predict(scaled))
    assert alone.noise_variance_ != RVR(**best[-1].get_params()).fit(scaled, y).noise_variance_


def test_names_of_columns_pass_through_set_output(data):
    X, y, _ = data
    frame = pd.DataFrame(X, columns=["depth", "time"])
    pipe = make_pipeline(StandardScaler(), RVR(gamma=0.5)).set_output(transform="pandas").fit(frame, y)
    assert pipe[-1].feature_names_in_.tolist() == ["depth", "time"]
    with pytest.raises(ValueError, match="feature names"):
        pipe.predict(frame[["time", "depth"]])


def test_calibration_is_drawn(data):
    X, y, _ = data
    model = RVC(gamma=0.5).fit(X, y > 0)
    display = CalibrationDisplay.from_estimator(model, X, y > 0, n_bins=5, ax=Figure().subplots())
    np.testing.assert_array_equal(display.y_prob, model.predict_proba(X)[:, 1])


def test_notebooks_show_the_estimator():
    assert "RVR" in RVR(gamma=0.25)._repr_html_()
    assert "0.25" in RVR(gamma=0.25)._repr_html_()


LONG = Gaussian([float(1 + k) for k in range(200)]) + Linear() * OnColumns(Laplacian(0.125), [0, 1, 2])


@pytest.mark.parametrize("kind", [RVR, RVC, MRVM1, GREVM])
def test_long_kernels_are_shown_whole(kind):
    est = kind(LONG)
    assert repr(LONG) in re.sub(r"\n\s*", " ", repr(est))
    assert "..." not in repr(est)
