"""Ctrl-C ends the work, and the estimator keeps its earlier model.

The tests count the work after Ctrl-C: steps, calls of providers, parts. Where nothing can be counted, the
work would take minutes, and only has to end. `tests/faults/prompt.py` measures seconds.
"""

import copy
import signal
import threading

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator
from sklearn.datasets import load_iris

from ctrl_c import pressed_after, pressed_and_heard, wait_for_background
from provider_reference import NumpyRows
from sparsebayes import (
    GREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    GREVMRegressor,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
)
from sparsebayes._cancellable import in_background
from sparsebayes._data import design
from sparsebayes.kernels import Gaussian
from sparsebayes.providers import RowPart, SummedStatistics

# Work that does not end on Ctrl-C would take longer.
pytestmark = pytest.mark.timeout(300)


def surface(n, noise=0.1):
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sin(X).prod(axis=1) + noise * rng.normal(size=n)


X, Y = surface(150)
IRIS = load_iris(return_X_y=True)

# --- counted: steps --------------------------------------------------------------------------------

FITS = {
    "kernel": (RVR(gamma="scale"), X, Y),
    "outputs": (RVR(gamma="scale"), X, np.c_[Y, Y[::-1]]),
    "kernel-em": (RVR(scheme="em", tol=1e-3, gamma="scale"), X, Y),
    "kernel-mackay": (RVR(scheme="mackay", gamma="scale"), X, Y),
    "kernel-variational": (RVR(scheme="variational", tol=1e-3, gamma="scale"), X, Y),
    "exchange": (RVR(search="exchange", gamma="scale"), X, Y),
    "callable kernel": (RVR(lambda A, B: A @ B.T), X, Y),
    "chunks": (RVR(candidates=20, random_state=0, gamma="scale"), [(X[:70], Y[:70]), (X[70:], Y[70:])], None),
    "columns": (SparseBayesRegressor(fit_intercept=False), X, Y),
    "counts": (SparseBayesRegressor(fit_intercept=False, likelihood="poisson"), X, np.arange(150.0) % 3),
    "classes": (RVC(gamma="scale"), X, Y > 0),
    "classes-em": (RVC(scheme="em", tol=1e-3, gamma="scale"), X, Y > 0),
    "classes-variational": (RVC(scheme="variational", tol=1e-3, gamma="scale"), X, Y > 0),
    "one against the rest": (RVC(gamma="scale"), *IRIS),
    "softmax": (RVC(multi_class="softmax", gamma="scale"), *IRIS),
    "classes of columns": (SparseBayesClassifier(fit_intercept=False), *IRIS),
    "mRVM1": (MRVM1(), *IRIS),
    "mRVM2": (MRVM2(), *IRIS),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_no_step_follows_ctrl_c(name):
    estimator, *data = FITS[name]
    model = copy.deepcopy(estimator)
    records = []
    model.set_params(callback=records.append).fit(*data)
    steps = len(records)
    assert steps > 2

    def press(record):
        records.append(record)
        if len(records) == last:
            signal.raise_signal(signal.SIGINT)

    model.set_params(callback=press)
    before = dict(vars(model))
    for last in (1, steps // 2, steps):
        records.clear()
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
        assert len(records) == last
        assert vars(model) == before
    again = copy.deepcopy(estimator).fit(*data)
    np.testing.assert_array_equal(again.mu_, model.mu_)


def test_no_step_follows_ctrl_c_in_a_sweep(monkeypatch):
    """A sweep over a dictionary in blocks is reported too."""
    monkeypatch.setattr(design, "_MAX_UNBLOCKED", 0)
    monkeypatch.setattr(design, "_BLOCK_SIZES", (50, 60, 16, 64, 2))
    records = []

    def press(record):
        records.append(record.action)
        if record.action == "sweep" and 0 < record.progress.done < record.progress.total:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        RVR(Gaussian(2.5), callback=press).fit(*surface(600))
    assert records.count("sweep") == 2


# --- counted: calls --------------------------------------------------------------------------------


def pressing(press, at):
    """Return a provider that presses Ctrl-C during the call of this number."""

    class Asked(list):
        def append(self, method):
            super().append(method)
            if len(self) == at:
                press()

    rows = NumpyRows(X, Y)
    rows.asked = Asked()
    return rows


@pytest.mark.parametrize("at", [1, 2, 4])
def test_no_call_of_a_provider_follows_ctrl_c(at):
    model = SparseBayesRegressor(fit_intercept=False)
    with pressed_and_heard() as press:
        rows = pressing(press, at)
        model.fit_provider(rows)
    assert len(rows.asked) == at
    assert vars(model) == vars(SparseBayesRegressor(fit_intercept=False))


@pytest.mark.parametrize("at", [20, 100, 120])
@pytest.mark.parametrize("kind", [SparseBayesRegressor, SparseBayesClassifier])
def test_no_product_of_an_operator_follows_ctrl_c(kind, at):
    table, calls = np.random.default_rng(0).normal(size=(150, 40)), []

    def product(matrix, vector):
        calls.append(len(vector))
        if len(calls) == at:
            press()
        return matrix @ vector

    X = LinearOperator(table.shape, lambda v: product(table, v), lambda u: product(table.T, u), dtype=float)
    with pressed_and_heard() as press:
        y = table[:, :9].sum(axis=1)
        kind().fit(X, y > 0.0 if kind is SparseBayesClassifier else y)
    assert len(calls) == at


@pytest.mark.parametrize("at", [1, 2, 4])
def test_at_most_one_part_is_called_after_ctrl_c(at):
    with pressed_and_heard() as press:
        parts = [pressing(press, at), *(NumpyRows(X, Y) for _ in range(9))]
        SparseBayesRegressor(fit_intercept=False).fit_provider(SummedStatistics(parts))
    first, second, *others = (len(part.asked) for part in parts)
    assert first == at
    assert second <= at
    assert set(others) == {at - 1}


def test_no_call_of_a_kernel_follows_ctrl_c():
    calls = []

    def kernel(A, B):
        calls.append(len(A))
        signal.raise_signal(signal.SIGINT)
        return A @ B.T

    model = RVR(kernel)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert len(calls) == 1
    assert not hasattr(model, "mu_")


@pytest.mark.parametrize("kind", [GREVM, GREVMRegressor])
def test_ctrl_c_ends_a_fit_inside_a_call_of_lapack(kind, monkeypatch):
    """The fit ends before the call returns."""
    go_on, after = threading.Event(), []

    def of(Phi, weights, pulse):
        press()
        go_on.wait()
        pulse()
        after.append("the work continues")

    model = kind(gamma=0.1)
    monkeypatch.setattr("sparsebayes.revm.Axes.of", of)
    with pressed_and_heard() as press:
        model.fit(X, Y > 0)
    assert not hasattr(model, "dual_coef_")
    go_on.set()
    wait_for_background()
    assert not after


def test_work_in_the_background_ends_when_ctrl_c_comes_while_it_starts(monkeypatch):
    class Thread(threading.Thread):
        def start(self):
            super().start()
            signal.raise_signal(signal.SIGINT)

    def work(pulse):
        while True:
            pulse()

    monkeypatch.setattr(threading, "Thread", Thread)
    with pytest.raises(KeyboardInterrupt):
        in_background(work)
    wait_for_background()


# --- work of many minutes --------------------------------------------------------


def wide(n_rows):
    """Return inputs of which kernels take minutes to evaluate."""
    return np.resize(np.random.default_rng(0).normal(size=99_991), (n_rows, 1000))


@pytest.mark.parametrize("callback", [None, lambda record: None])
@pytest.mark.parametrize(("n_rows", "n_outputs"), [(20_000, 1), (20_000, 2)])
def test_ctrl_c_ends_the_evaluation_of_kernels(n_rows, n_outputs, callback):
    X, model = wide(n_rows), RVR(gamma=1e-3, callback=callback)
    with pressed_after():
        model.fit(X, X[:, :n_outputs].squeeze())
    assert not hasattr(model, "mu_")


def test_ctrl_c_ends_the_evaluation_of_kernels_in_parts():
    X = wide(20_000)
    y = X[:, 0]
    options = {"kernels": Gaussian(30.0), "centres": X, "fit_intercept": True}
    parts = [RowPart(X[rows], y[rows], **options) for rows in (slice(9000), slice(9000, None))]
    for provider in (SummedStatistics(parts), parts[0]):
        with pressed_after():
            RVR(Gaussian(30.0), candidates=X).fit_provider(provider)


@pytest.mark.parametrize("callback", [None, lambda record: None])
@pytest.mark.parametrize(
    "model",
    [
        RVR(Gaussian(0.7), scheme="em", tol=1e-300),
        RVC(Gaussian(0.7), scheme="em", tol=1e-300),
        RVC(Gaussian(0.7), scheme="variational", tol=1e-300),
        MRVM1(Gaussian(0.7), tol=1e-300, max_iter=10**9),
        MRVM2(Gaussian(0.7), tol=1e-300, max_iter=10**9),
    ],
    ids=["kernel-em", "classes-em", "classes-variational", "mRVM1", "mRVM2"],
)
def test_ctrl_c_ends_updates_of_long_batch_fits(model, callback):
    X, y = surface(2000 if isinstance(model, (RVR, RVC)) else 3000, noise=1.0)
    model = copy.deepcopy(model).set_params(callback=callback)
    with pressed_after(0.8):
        model.fit(X, y if isinstance(model, RVR) else y > 0)
    assert not hasattr(model, "mu_")


def test_ctrl_c_leaves_statistics_as_they_were():
    """Either all rows are added or none, so that their number shows whether the work was completed."""
    rng = np.random.default_rng(0)
    Phi, t = rng.normal(size=(20_000, 1000)), rng.normal(size=20_000)
    stats = SufficientStatistics(1000).update(Phi[:1000], t[:1000])
    before = stats.gram
    with pressed_after(0.2):
        stats.update(Phi, t)
    assert stats.n_samples == 1000
    np.testing.assert_array_equal(stats.gram, before)
    model = SparseBayesRegressor(fit_intercept=False).partial_fit(Phi[:2000], Phi[:2000, 0] + 0.1 * t[:2000])
    before = dict(vars(model))
    with pressed_after(0.2):
        model.partial_fit(Phi, t)
    assert vars(model) == before
