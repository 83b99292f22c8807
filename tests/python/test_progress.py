"""What `verbose` shows and the logger hears while work goes on, and that the work does not mind."""

import io
import logging
import re
import sys
import threading
import time
import types
from contextlib import ExitStack

import numpy as np
import pytest

from ctrl_c import pressed_after, wait_for_background
from sparsebayes import (
    GREVM,
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    VGREVM,
    GREVMRegressor,
    SparseBayesRegressor,
    _blocks,
    _core,
    _news,
)
from sparsebayes._screen import State, Work
from sparsebayes.kernels import Gaussian

tqdm = pytest.importorskip("tqdm").tqdm


@pytest.fixture
def bars_end():
    """No bar is left open, and no thread that redraws one."""
    before = threading.active_count()
    yield
    assert len(getattr(tqdm, "_instances", ())) == 0
    assert threading.active_count() <= before


def shown(text):
    """Return what stood on the screen, one state after another."""
    return [state.strip() for state in re.split(r"[\r\n]+|\x1b\[A", text) if state.strip()]


@pytest.mark.parametrize("machine", [RVR(), RVC(), RVC(multi_class="softmax"), MRVM1(), MRVM2()])
def test_a_bar_shows_a_fit_and_leaves_its_end(machine, surface, three, bars_end, capfd):
    X, y = surface if isinstance(machine, RVR) else three
    machine.set_params(verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("\n")
    last = shown(err)[-1]
    several = isinstance(machine, RVC) and machine.multi_class == "ovr"
    assert last.startswith(f"{type(machine).__name__} 3/3: " if several else f"{type(machine).__name__}: ")
    assert re.search(r": \d+ steps \[.*, \d+ functions, log evidence -?[\d.e+]+, converged\]$", last)
    if not several:
        assert f" {machine.n_iter_} steps [" in last


@pytest.mark.parametrize("machine", [GREVM(), VGREVM(), GREVMRegressor()])
def test_a_bar_shows_eigen_vector_machines(machine, classes, bars_end, capfd):
    machine.set_params(verbose=1).fit(*classes)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{machine.n_effective_} of 151 eigenvectors, converged]" in shown(err)[-1]


def test_reading_has_a_bar_of_known_length_once_the_rows_are_counted(bars_end, capfd):
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (20_000, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=20_000)
    model = RVR(Gaussian(1.0), candidates=30, random_state=0, verbose=1)
    model.fit([(X[:5000], y[:5000]), (X[5000:], y[5000:])])
    states = shown(capfd.readouterr().err)
    assert any(state.startswith("RVR: looking for centres: 20000 rows [") for state in states)
    assert any(re.match(r"RVR: summing: 100%.*20\.0k/20\.0k .*chunk 2\]", state) for state in states)
    assert states[-1].endswith("converged]")


def test_a_sweep_has_a_bar_of_its_own(monkeypatch, bars_end, capfd):
    monkeypatch.setattr(_blocks, "_MOST_WHOLE", 0)
    monkeypatch.setattr(_blocks, "_SIZES", (150, 200, 48, 256, 2))
    monkeypatch.setattr(_news, "_SHOWN", 0.0)
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (1500, 2))
    y = np.sin(X).prod(axis=1) + 0.1 * rng.normal(size=1500)
    RVR(Gaussian(2.5), verbose=1, callback=lambda record: None).fit(X, y)
    states = shown(capfd.readouterr().err)
    assert any(re.match(r"sweep: +\d+%.*/1[34]\d\d ", state) for state in states)
    assert states[-1].startswith("RVR: ")


@pytest.mark.parametrize(
    "machine", [RVR(), RVC(), MRVM1(), MRVM2(), SparseBayesRegressor(fit_intercept=False)]
)
def test_watching_does_not_change_the_model(machine, surface, three, monkeypatch, capfd, caplog):
    monkeypatch.setattr(_news, "_SHOWN", 0.0)
    monkeypatch.setattr(_news, "_LOGGED", 0.0)
    X, y = surface if hasattr(machine, "noise_variance") else three
    expected = machine.fit(X, y)
    posterior = {name: np.copy(getattr(expected, name)) for name in ("mu_", "alpha_", "active_")}
    with caplog.at_level("DEBUG", logger="sparsebayes"):
        watched = machine.set_params(verbose=1).fit(X, y)
    assert capfd.readouterr().err != ""
    for name, values in posterior.items():
        np.testing.assert_array_equal(getattr(watched, name), values)


@pytest.fixture
def notebook(monkeypatch):
    """A notebook: the lines that its cell's output holds, in order, each as it was shown last."""
    lines = []

    class Handle:
        def __init__(self, line):
            self.at = len(lines)
            lines.append(line["text/plain"])

        def update(self, line, *, raw):
            assert raw
            lines[self.at] = line["text/plain"]

    def display(line, *, raw, display_id):
        assert raw
        assert display_id is True
        return Handle(line)

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(_news, "_SHOWN", 0.0)
    return lines


def test_a_fit_leaves_one_line_in_a_notebook(notebook, surface, three, capfd):
    X, y = surface
    fits = [
        lambda: RVR(verbose=1).fit(X, y),
        lambda: RVC(verbose=1).fit(*three),  # a fit for each class
        lambda: RVR(Gaussian(1.0), optimize_kernel=True, verbose=1).fit(X, y),  # tens of fits
        lambda: RVR(Gaussian(1.0), candidates=9, random_state=0, verbose=1).fit([(X, y)]),  # two passes first
        lambda: MRVM1(verbose=1).fit(*three),
        lambda: GREVM(verbose=1).fit(X, y > 0),
    ]
    for number, fit in enumerate(fits, 1):
        est = fit()
        assert len(notebook) == number
        assert notebook[-1].startswith(type(est).__name__)
        assert notebook[-1].endswith(est.status_)
    assert capfd.readouterr() == ("", "")


def test_a_fit_that_fails_leaves_its_line_to_no_other(notebook, surface):
    with pytest.raises(ZeroDivisionError):
        RVR(verbose=1, callback=lambda record: 1 / 0).fit(*surface)
    before = list(notebook)
    RVR(verbose=1).fit(*surface)
    assert notebook[:-1] == before


def test_the_core_calls_who_only_glances_now_and_then_and_does_not_wait():
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (3000, 2))
    y = np.sin(X).prod(axis=1) + rng.normal(size=3000)
    phi = np.asfortranarray(Gaussian(0.7)(X, X[:1000]))

    def steps(callback):
        return _core.fit_dense(phi, y, likelihood="gaussian", n_threads=1, callback=callback)

    heard = []

    def step(iteration, *rest):
        heard.append(iteration)
        time.sleep(
            0.02
        )  # meanwhile the core continues: it neither waits for an answer nor repeats a missed report
        return True  # nobody looks

    expected = steps(None)
    found = steps(_news.Glance(step, 0.0))
    np.testing.assert_array_equal(found.mu, expected.mu)
    assert found.status == expected.status == "converged"
    assert 1 <= len(heard) < found.n_iter
    assert heard == sorted(heard)
    seldom = []
    steps(_news.Glance(lambda *step: seldom.append(step), 1e6))
    assert seldom == []

    def fail(*step):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        steps(_news.Glance(fail, 0.0))
    with pytest.raises(ValueError, match="negative"):
        steps(_news.Glance(step, -1.0))


def test_a_bar_is_closed_when_the_callback_fails(surface, bars_end, capfd):
    def fail(record):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError):
        RVR(verbose=1, callback=fail).fit(*surface)
    assert capfd.readouterr().err.endswith("\n")


def test_a_bar_is_closed_when_a_chunk_cannot_be_read(bars_end, capfd, caplog):
    rng = np.random.default_rng(0)

    def chunks():
        yield rng.normal(size=(10_000, 2)), rng.normal(size=10_000)
        raise OSError("the disk is gone")

    with caplog.at_level("DEBUG", logger="sparsebayes"), pytest.raises(OSError, match="the disk is gone"):
        SparseBayesRegressor(fit_intercept=False, verbose=1).fit(chunks)
    assert capfd.readouterr().err.endswith("\n")
    assert caplog.messages[-1] == "SparseBayesRegressor: summing: ended by OSError"


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("kind", ["sparse", "eigen"])
def test_ctrl_c_leaves_a_clean_screen(kind, bars, request, monkeypatch, bars_end, capfd, caplog):
    if not bars:
        request.getfixturevalue("without_tqdm")
    rng = np.random.default_rng(0)
    n = 9000 if kind == "sparse" else 1200
    X = rng.uniform(-10, 10, (n, 2))
    y = np.sin(X).prod(axis=1) + rng.normal(size=n)
    if kind == "sparse":
        model = RVR(Gaussian(0.7), verbose=1)
    else:
        model, y = VGREVM(Gaussian(0.7), verbose=1), y > 0

    class Pressed(ExitStack):
        def emit(self, record):
            if "fit begun" in record.msg:
                self.enter_context(pressed_after(0.3))

    with caplog.at_level("DEBUG", logger="sparsebayes"), monkeypatch.context() as patch, Pressed() as pressed:
        patch.setattr(caplog.handler, "emit", pressed.emit)
        model.fit(X, y)
        pytest.fail("the fit went on to its end")
    wait_for_background()
    err = capfd.readouterr().err
    assert err.endswith("\n")
    assert shown(err)[-1].startswith(f"{type(model).__name__}: ")


class Clock:
    """Stands for the module `time`: each look is 0.03 s after the one before."""

    def __init__(self):
        self.looks = 0

    def monotonic(self):
        self.looks += 1
        return 0.03 * self.looks


def test_the_logger_hears_at_most_one_state_in_an_interval(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(_news, "time", clock)
    monkeypatch.setattr(_news, "_LOGGED", 0.1)
    heard = []
    with (
        caplog.at_level("DEBUG", logger="sparsebayes"),
        _news.News(Work("work", "steps"), verbose=False) as news,
    ):
        for done in range(100):
            if news.is_due:
                news.tell(State(f"state {done}", done, ""))
                heard.append(clock.looks)
    assert 10 < len(caplog.messages) == len(heard) < 40
    assert 0.03 * min(np.diff(heard)) > 0.1


def test_the_logger_hears_of_states_between_begin_and_end(monkeypatch, capfd, caplog):
    monkeypatch.setattr(_news, "_LOGGED", 0.0)
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (4000, 2))
    y = np.sin(X).prod(axis=1) + rng.normal(size=4000)
    with caplog.at_level("DEBUG", logger="sparsebayes"):
        RVR(Gaussian(0.7), candidates=500, random_state=0).fit(X, y)
    assert capfd.readouterr() == ("", "")
    first, *between, last = caplog.records
    assert (first.levelno, last.levelno) == (logging.DEBUG, logging.INFO)
    assert {record.levelno for record in between} == {logging.DEBUG}
    pattern = r"RVR: step \d+, \d+ functions, log evidence -?[\d.]+"
    assert all(re.fullmatch(pattern, record.getMessage()) for record in between)
    assert 1 <= len(between)


def test_the_logger_hears_of_reading_and_of_eigen_vector_machines(classes, caplog):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    with caplog.at_level("DEBUG", logger="sparsebayes"):
        SparseBayesRegressor(fit_intercept=False).fit([(X, X[:, 0] + 0.1 * rng.normal(size=500))])
    assert caplog.messages[:2] == [
        "SparseBayesRegressor: summing begun",
        "SparseBayesRegressor: summing, chunk 1, 500 of 500 rows, 0 s left",
    ]
    assert caplog.messages[-1].startswith("SparseBayesRegressor 1/1: converged after ")
    caplog.clear()
    with caplog.at_level("DEBUG", logger="sparsebayes"):
        GREVM().fit(*classes)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"]
    assert re.fullmatch(r"GREVM 1/1: converged after \d+ steps, \d+ of 151 eigenvectors", caplog.messages[-1])


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("screen", ["none", "closed"])
def test_a_fit_does_not_need_a_screen(screen, bars, surface, request, monkeypatch):
    if not bars:
        request.getfixturevalue("without_tqdm")
    gone = None
    if screen == "closed":
        gone = io.StringIO()
        gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    model = RVR(verbose=1).fit(*surface)
    assert model.status_ == "converged"
