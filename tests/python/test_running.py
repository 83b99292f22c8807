"""While a fit runs: the callback, threads, Ctrl-C."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import MRVM1, MRVM2, RVC, RVR, StepRecord
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

ACTIONS = {"add", "reestimate", "delete", "noise", "joint", "mode", "search"}


def test_the_callback_sees_each_step(surface):
    X, y = surface
    records = []
    model = RVR(callback=records.append, gamma="scale").fit(X, y)
    assert all(isinstance(record, StepRecord) for record in records)
    assert [record.iteration for record in records] == list(range(1, model.n_iter_ + 1))
    path = model.log_marginal_likelihood_path_
    np.testing.assert_array_equal([record.log_marginal_likelihood for record in records], path[1:])
    np.testing.assert_allclose([record.gain for record in records], np.diff(path), rtol=1e-6, atol=1e-7)
    assert {record.action for record in records} <= ACTIONS
    assert records[0].action == "add"
    assert records[-1].n_active == len(model.active_)
    assert records[-1].noise_variance == pytest.approx(model.noise_variance_)
    # Without a callback the model is the same.
    np.testing.assert_array_equal(RVR(gamma="scale").fit(X, y).mu_, model.mu_)


def test_steps_name_functions_as_the_model_does(surface):
    X, y = surface
    keep = np.arange(90) % 2 == 1
    # The intercept is in the model from the start.
    present, searched = {-1}, []

    def follow(record):
        if record.action == "add":
            present.add(record.index)
        elif record.action == "delete":
            present.discard(record.index)
        elif record.action == "search":
            searched.append(record)
        elif record.action != "reestimate":
            assert record.index is None
        assert searched or len(present) == record.n_active

    model = RVR(["rbf", "linear"], callback=follow, gamma="scale").fit(X, y, sample_weight=keep)
    assert searched or present == set(model.active_)
    assert all(keep[name % 90] for name in present - {-1})


def test_classifiers_have_no_noise_to_report(classes):
    records = []
    RVC(callback=records.append, gamma="scale").fit(*classes)
    assert {record.noise_variance for record in records} == {None}
    assert "mode" in {record.action for record in records}


@pytest.mark.parametrize("word", [True, np.True_, 1])
def test_the_callback_can_stop_the_fit(surface, word):
    X, y = surface
    model = RVR(callback=lambda record: word if record.iteration == 5 else None, gamma="scale").fit(X, y)
    assert (model.status_, model.n_iter_) == ("stopped", 5)
    assert np.isfinite(model.predict(X)).all()


def test_stopping_one_class_stops_the_others(three):
    seen = []
    model = RVC(callback=lambda record: seen.append(record) or len(seen) == 20, gamma="scale").fit(*three)
    assert len(seen) == 20
    assert model.status_ == "stopped"
    assert model.predict_proba(three[0]).shape == (120, 3)


@pytest.mark.parametrize("kernel", ["rbf", "linear_spline", ["rbf", "laplacian"]])
def test_the_number_of_threads_does_not_change_the_result(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=700)
    first, *others = (RVR(kernel, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, None, -1))
    for other in others:
        for name in ("active_", "mu_", "sigma_", "alpha_", "log_marginal_likelihood_path_"):
            np.testing.assert_array_equal(getattr(other, name), getattr(first, name))
        np.testing.assert_array_equal(other.predict(X, return_std=True), first.predict(X, return_std=True))


def test_estimators_can_be_fitted_in_many_threads_at_once(surface):
    X, y = surface
    expected = RVR(gamma="scale").fit(X, y).mu_
    results = [None] * 8
    start = threading.Barrier(8)

    def work(k):
        start.wait()
        results[k] = RVR(n_jobs=1, gamma="scale").fit(X, y).mu_

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", [RVR, RVC, MRVM1, MRVM2])
def test_a_fit_that_fails_keeps_the_earlier_model(kind, classes):
    X, y = classes
    model = kind(Gaussian(1.0)).fit(X, y)
    expected = model.predict(X)

    def fail(record):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.set_params(kernel=Gaussian(5.0), callback=fail).fit(X[:50], 1 - y[:50])
    np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_a_classifier_stopped_early_is_at_its_mode(multi_class):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning):
        model = RVC(Gaussian(2.0), multi_class=multi_class, max_iter=5).fit(X, y)
    found = certificate(model, X, y)
    assert found.max_mean_error < 1e-6
    np.testing.assert_allclose(model.log_marginal_likelihood_, found.log_marginal_likelihood, rtol=1e-8)


def test_a_limit_on_threads_holds_for_each_blas_whenever_it_is_loaded():
    code = """
from sparsebayes._cancellable import one_blas_thread
with one_blas_thread():
    pass
import scipy.linalg
from threadpoolctl import threadpool_info
with one_blas_thread():
    print(*(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"1"}


def test_a_limit_on_threads_holds_in_every_thread():
    """Threadpoolctl obeys one thread alone, here the main one, but fits run on any."""
    code = """
import threading
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
from sparsebayes._cancellable import one_blas_thread

def numbers():
    print(*(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"))

def limited():
    with one_blas_thread():
        numbers()
    numbers()

threadpool_limits(2)
numbers()
thread = threading.Thread(target=limited)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, within, after = (set(line.split()) for line in done.stdout.splitlines())
    assert within == {"1"}
    assert after == before
