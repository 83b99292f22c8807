"""The estimators do in scikit-learn's machinery what its own do."""

import re
from email.message import Message

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn import clone, config_context
from sklearn.base import is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import (
    GREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    GREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
    inspection,
)
from sparsebayes._estimators import base
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


class Recorder:
    """A callback of scikit-learn that records what it is told, and stops a fit after some steps."""

    def __init__(self, n_steps=None):
        self.told, self.n_steps = [], n_steps

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.told.append(f"{context.task_name} begins")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.told.append(f"{context.task_name} ends")
        if context.task_name == "fit":
            self.score = None if X is None else fitted_estimator.score(X, y)
        return self.n_steps is not None and self.told.count("step ends") >= self.n_steps


needs_callbacks = pytest.mark.skipif(
    not hasattr(RVR, "set_callbacks"), reason="scikit-learn before 1.9 has no callbacks"
)


@needs_callbacks
@pytest.mark.parametrize(
    "kind", [RVR, RVC, SparseBayesRegressor, SparseBayesClassifier, MRVM1, MRVM2, GREVM, GREVMRegressor]
)
def test_callbacks_of_scikit_learn_are_told_of_a_fit(kind, data):
    X, y, _ = data
    y = np.digitize(y, [-0.5, 0.5]) if is_classifier(kind()) else y
    expected, recorder = kind().fit(X, y), Recorder()
    est = clone(kind().set_callbacks(recorder)).fit(X, y)
    np.testing.assert_array_equal(est.predict(X), expected.predict(X))
    assert recorder.told[:2] == ["setup", "fit begins"]
    assert recorder.told[-2:] == ["fit ends", "teardown"]
    n_steps = 0 if kind in (GREVM, GREVMRegressor) else est.n_iter_
    assert recorder.told[2:-2] == ["step begins", "step ends"] * n_steps
    assert recorder.score == est.score(X, y)
    assert vars(est).keys() - vars(expected).keys() == {"_skl_callbacks"}


@needs_callbacks
def test_callbacks_of_scikit_learn_stop_fits_and_passes_over_rows(data):
    X, y, _ = data
    stopped = RVR(gamma=0.5).set_callbacks(Recorder(3)).fit(X, y)
    assert (stopped.status_, stopped.n_iter_) == ("stopped", 3)
    recorder = Recorder()
    SparseBayesRegressor(fit_intercept=False).set_callbacks(recorder).fit(
        [(X[:60], y[:60]), (X[60:], y[60:])]
    )
    assert recorder.told[2:5] == ["read begins", "read ends", "step begins"]
    assert recorder.score is None  # the rows are no longer there


@needs_callbacks
def test_callbacks_of_scikit_learn_are_told_of_a_fit_on_dask(data):
    da = pytest.importorskip("dask.array")
    from sparsebayes.dask import DaskRVR

    rows = [da.from_array(part, chunks=(60, *part.shape[1:])) for part in data[:2]]
    recorder = Recorder()
    model = DaskRVR(gamma=0.5, candidates=data[0][:20]).set_callbacks(recorder)
    for est in (model, clone(model)):
        est.fit(*rows)
        steps = ["step begins", "step ends"] * est.n_iter_
        assert recorder.told == ["setup", "fit begins", *steps, "fit ends", "teardown"]
        recorder.told.clear()
    assert "_skl_callbacks" not in vars(model.to_local())


@needs_callbacks
@pytest.mark.parametrize("part", ["on_fit_task_begin", "on_fit_task_end", "setup", "teardown"])
def test_a_callback_that_raises_leaves_the_estimator_as_it_was(part, data, monkeypatch):
    X, y, _ = data
    recorder = Recorder()
    est = RVR(gamma=0.5).fit(X, y).set_callbacks(recorder)
    before = vars(est).copy()
    monkeypatch.setattr(recorder, part, lambda estimator, context: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        est.fit(X[:50], y[:50])
    monkeypatch.undo()
    if part != "teardown":
        assert vars(est) == before
        assert recorder.told[-1] == "teardown"
    with pytest.raises(ValueError, match="NaN"):
        est.fit(np.full_like(X, np.nan), y)
    assert recorder.told[-1] == "teardown"
    assert not {"_callback_fit_ctx", "_skl_callbacks_to_teardown"} & vars(est).keys()


@needs_callbacks
def test_scores_are_monitored_in_a_search(data):
    from sklearn.callback import ScoringMonitor

    X, y, weights = data
    monitor = ScoringMonitor(scoring="r2")
    model = RVR(gamma=0.5).set_callbacks(monitor).fit(X, y, sample_weight=weights)
    (row,) = monitor.get_logs().data
    assert row["r2"] == model.score(X, y, weights)
    monitor = ScoringMonitor(scoring="r2")
    search = GridSearchCV(RVR(gamma=0.5).set_callbacks(monitor), {"gamma": [0.1, 1.0]}, cv=3).fit(X, y)
    rows = monitor.get_logs().data
    assert len(rows) == 7
    assert search.best_estimator_.score(X, y) in [pytest.approx(row["r2"]) for row in rows]
    inspection.diagnose(search.best_estimator_, X, y)
    assert len(monitor.get_logs(select="all")) == 1


def test_notebooks_show_the_estimator():
    assert "RVR" in RVR(gamma=0.25)._repr_html_()
    assert "0.25" in RVR(gamma=0.25)._repr_html_()


@pytest.mark.parametrize("url", [None, "https://example.org/docs/"])
def test_the_diagram_links_to_the_documentation(url, monkeypatch):
    urls = Message()
    if url is not None:
        urls["Project-URL"] = "Source, https://example.org/code"
        urls["Project-URL"] = f"Documentation, {url}"
    monkeypatch.setattr(base, "metadata", lambda name: urls)
    base._documentation.cache_clear()
    try:
        shown = RVR()._repr_html_()
        assert ("https://example.org/docs/generated/sparsebayes.RVR.html" in shown) == (url is not None)
        assert ("Documentation for" in shown) == (url is not None)
        if url is not None:
            dask = pytest.importorskip("sparsebayes.dask")
            assert dask.DaskRVC()._get_doc_link() == f"{url}generated/sparsebayes.dask.DaskRVC.html"
    finally:
        base._documentation.cache_clear()


LONG = Gaussian([float(1 + k) for k in range(200)]) + Linear() * OnColumns(Laplacian(0.125), [0, 1, 2])


@pytest.mark.parametrize("kind", [RVR, RVC, MRVM1, GREVM])
def test_long_kernels_are_shown_whole(kind):
    est = kind(LONG)
    assert repr(LONG) in re.sub(r"\n\s*", " ", repr(est))
    assert "..." not in repr(est)
