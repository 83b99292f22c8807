"""What goes on while a fit runs: the callback, the progress line, threads, Ctrl-C."""

import _thread
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from ctrl_c import seconds_until_heard
from sparsebayes import RVC, RVR, SparseBayesRegressor, StepRecord
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian

ACTIONS = {"add", "reestimate", "delete", "noise", "joint", "mode", "search"}


def test_the_callback_sees_each_step(surface):
    X, y = surface
    records = []
    model = RVR(callback=records.append).fit(X, y)
    assert all(isinstance(record, StepRecord) for record in records)
    assert [record.iteration for record in records] == list(range(1, model.n_iter_ + 1))
    path = model.log_marginal_likelihood_path_
    np.testing.assert_array_equal([record.log_marginal_likelihood for record in records], path[1:])
    np.testing.assert_allclose([record.gain for record in records], np.diff(path), rtol=1e-6, atol=1e-7)
    assert {record.action for record in records} <= ACTIONS
    assert records[0].action == "add"
    assert records[-1].n_active == len(model.active_)
    assert records[-1].noise_variance == pytest.approx(model.noise_variance_)
    # With nobody watching the model is the same.
    np.testing.assert_array_equal(RVR().fit(X, y).mu_, model.mu_)


def test_steps_name_functions_as_the_model_does(surface):
    X, y = surface
    keep = np.arange(90) % 2 == 1
    present, searched = set(), []

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

    model = RVR(["rbf", "linear"], callback=follow).fit(X, y, sample_weight=keep)
    assert searched or present == set(model.active_)
    assert all(keep[name % 90] for name in present - {-1})


def test_classifiers_have_no_noise_to_report(classes):
    records = []
    RVC(callback=records.append).fit(*classes)
    assert {record.noise_variance for record in records} == {None}
    assert "mode" in {record.action for record in records}


@pytest.mark.parametrize("word", [True, np.True_, 1])
def test_the_callback_can_stop_the_fit(surface, word):
    X, y = surface
    model = RVR(callback=lambda record: word if record.iteration == 5 else None).fit(X, y)
    assert (model.status_, model.n_iter_) == ("stopped", 5)
    assert np.isfinite(model.predict(X)).all()


def test_stopping_one_class_stops_the_others(three):
    seen = []
    model = RVC(callback=lambda record: seen.append(record) or len(seen) == 20).fit(*three)
    assert len(seen) == 20
    assert model.status_ == "stopped"
    assert model.predict_proba(three[0]).shape == (120, 3)


def test_an_error_in_the_callback_ends_the_fit_and_comes_through(surface):
    def fail(record):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        RVR(callback=fail).fit(*surface)


def test_fits_are_silent_unless_asked(surface, three, without_tqdm, capfd):
    RVR().fit(*surface)
    assert capfd.readouterr() == ("", "")
    RVR(verbose=1).fit(*surface)
    out, err = capfd.readouterr()
    assert out == ""
    assert "RVR: step" in err
    assert err.rstrip().endswith("converged")
    assert err.endswith("\n")
    RVC(verbose=True).fit(*three)
    assert "RVC 3/3: step" in capfd.readouterr().err


def test_the_logger_hears_how_fits_begin_and_end(three, caplog):
    with caplog.at_level("DEBUG", logger="sparsebayes"):
        RVC().fit(*three)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["DEBUG", "INFO"] * 3
    assert caplog.records[0].getMessage().startswith("RVC 1/3: fit begun")
    assert caplog.records[-1].getMessage().startswith("RVC 3/3: converged after ")


@pytest.mark.parametrize("kernel", ["rbf", "linear_spline", ["rbf", "laplacian"]])
def test_the_number_of_threads_does_not_show_in_the_result(kernel):
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
    expected = RVR().fit(X, y).mu_
    results = [None] * 8
    start = threading.Barrier(8)

    def work(k):
        start.wait()
        results[k] = RVR(n_jobs=1).fit(X, y).mu_

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.alone
@pytest.mark.parametrize("callback", [None, lambda record: None])
@pytest.mark.parametrize(
    "case", ["kernel", "columns", "classes", "outputs", "kernel-em", "classes-em", "classes-variational"]
)
def test_ctrl_c_ends_a_long_fit_within_a_second(case, callback):
    rng = np.random.default_rng(0)
    if case == "columns":
        X = rng.normal(size=(3000, 3000))
        y, model = rng.normal(size=3000), SparseBayesRegressor(fit_intercept=False, callback=callback)
    else:
        n, scheme = (9000, "sequential") if "-" not in case else (3000, case.split("-")[1])
        X = rng.uniform(-10, 10, (n, 2))
        y = np.sin(X).prod(axis=1) + rng.normal(size=n)
        if case == "outputs":
            y = np.c_[y, y[::-1], rng.normal(size=n)]
        y, model = (y > 0, RVC(Gaussian(0.7))) if case.startswith("classes") else (y, RVR(Gaussian(0.7)))
        model.set_params(callback=callback, scheme=scheme)
    assert seconds_until_heard(lambda: model.fit(X, y), 2.0 if "-" in case else 0.5) < 1.0


@pytest.mark.alone
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_ctrl_c_is_heard_while_kernels_of_many_inputs_are_evaluated(n_outputs):
    """Which takes half a minute, before the first step."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 1500))
    y = X[:, :n_outputs].squeeze()
    assert seconds_until_heard(lambda: RVR(gamma=1e-3).fit(X, y), 1.5) < 1.0


@pytest.mark.alone
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("case", ["exact", "thorough"])
def test_ctrl_c_ends_what_follows_the_classic_fit_within_a_second(case, watched):
    """Pressed once the steps of the plain fit are over, which come first; what follows takes far longer."""
    X, y, plain, settings = long_after(case)
    # Threads that earlier tests left in LAPACK may slow down the plain fit, and be gone by the next.
    pressed = next(filter(None, (pressed_after(X, y, plain, settings, watched) for _ in range(3))))
    assert time.monotonic() - pressed < 1.0


def pressed_after(X, y, plain, settings, watched):
    """Interrupt a fit beyond its plain optimum and return when; None if it had ended by then."""
    started = time.monotonic()
    n_iter = clone(plain).fit(X, y).n_iter_
    took = time.monotonic() - started
    pressed = []

    def press():
        pressed.append(time.monotonic())
        _thread.interrupt_main()

    timers = [] if watched else [threading.Timer(1.2 * took, press)]

    def watch(step):
        if not timers and step.iteration >= n_iter:
            timers.append(threading.Timer(0.2, press))
            timers[0].start()

    model = clone(plain).set_params(**settings, callback=watch if watched else None)
    for timer in timers:
        timer.start()
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        assert not hasattr(model, "active_")
        return pressed[0]
    except ConvergenceWarning:
        pass
    finally:
        for timer in timers:
            timer.cancel()
    # What was pressed during the fit is heard.
    assert not pressed
    return None


def long_after(case):
    """Inputs, targets, an estimator, and settings with which it goes on long beyond its plain optimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    score = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.5 * rng.normal(size=1000)
    if case == "exact":
        return X, score > 0.0, RVC(Gaussian(0.2)), {"laplace": "exact"}
    return X, score, RVR(Gaussian(0.2)), {"search": "thorough", "random_state": 0}


def test_a_fit_that_fails_leaves_the_model_that_was_there(surface):
    X, y = surface
    model = RVR(Gaussian(1.0)).fit(X, y)
    expected = model.predict(X)

    def fail(record):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.set_params(kernel=Gaussian(5.0), callback=fail).fit(X[:50], -y[:50])
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
from sparsebayes._background import one_blas_thread
with one_blas_thread():
    pass
import scipy.linalg
from threadpoolctl import threadpool_info
with one_blas_thread():
    print(*(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"1"}


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_the_memory_of_a_fit_serves_one_seconds_later():
    code = """
import resource, time
from sklearn.datasets import make_friedman1
from sparsebayes import RVR
X, y = make_friedman1(1000, random_state=0)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    RVR(gamma=1.0).fit(X[:, :2], y)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def later():
    time.sleep(1.2)
    return faults()
print(max(faults() for _ in range(6)), min(later() for _ in range(3)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, later = map(int, done.stdout.split())
    assert later < 0.3 * first
