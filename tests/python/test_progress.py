"""`verbose=1` shows a bar, the logger reports fits, and neither changes a fit."""

import errno
import io
import logging
import re
import sys

import numpy as np
import pytest

from sparsebayes import GREVM, MRVM1, MRVM2, RVC, RVR, GREVMRegressor, SparseBayesRegressor

tqdm = pytest.importorskip("tqdm").tqdm


@pytest.fixture(autouse=True)
def no_bar_is_left_open():
    yield
    assert len(getattr(tqdm, "_instances", ())) == 0


def shown(text):
    """Return the states of a screen, one after another."""
    return [state.strip() for state in re.split(r"[\r\n]+", text) if state.strip()]


SEVERAL = ["RVR", "RVC", "softmax", "MRVM1", "MRVM2", "GREVM", "GREVMRegressor"]
MODELS = [
    RVR(gamma="scale"),
    RVC(gamma="scale"),
    RVC(multi_class="softmax", gamma="scale"),
    MRVM1(),
    MRVM2(),
    GREVM(),
    GREVMRegressor(),
]


@pytest.mark.parametrize("model", MODELS, ids=SEVERAL)
def test_a_bar_ends_with_the_status_and_changes_no_model(model, surface, three, capfd):
    X, y = surface if isinstance(model, (RVR, GREVMRegressor)) else three
    expected = model.fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(model.set_params(verbose=1).fit(X, y).predict(X), expected)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("\n")
    several = isinstance(model, GREVM) or getattr(model, "multi_class", "") == "ovr"
    name = type(model).__name__ + (" 3/3" if several else "")
    assert re.fullmatch(rf"{name}: \d+ steps \[.*(functions|eigenvectors).*, converged\]", shown(err)[-1])


def test_passes_over_rows_have_a_bar_with_an_end(surface, capfd):
    X, y = surface
    RVR(candidates=30, random_state=0, verbose=1, gamma="scale").fit([(X[:50], y[:50]), (X[50:], y[50:])])
    states = shown(capfd.readouterr().err)
    assert any(re.match(r"RVR: looking for centres: 90 rows \[.*chunk 2\]", state) for state in states)
    assert any(re.match(r"RVR: summing: 100%.*90.*/90.*chunk 2\]", state) for state in states)


def test_without_tqdm_a_note_names_it(surface, without_tqdm, capfd, caplog):
    RVR(verbose=1, gamma="scale").fit(*surface)
    RVR(verbose=1, gamma="scale").fit(*surface)
    (note,) = caplog.records
    assert (note.name, note.levelno) == ("sparsebayes", logging.WARNING)
    assert "pip install 'sparsebayes[progress]'" in note.getMessage()
    assert capfd.readouterr() == ("", "")


def test_the_logger_reports_beginning_and_end(surface, three, caplog):
    caplog.set_level("DEBUG", logger="sparsebayes")
    RVC(gamma="scale").fit(*three)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"] * 3
    assert caplog.messages[0] == "RVC 1/3: fit begun, 121 candidates"
    pattern = r"RVC 3/3: converged after \d+ steps, \d+ functions, log evidence -[\d.]+"
    assert re.fullmatch(pattern, caplog.messages[-1])
    caplog.clear()
    SparseBayesRegressor(fit_intercept=False).fit([surface])
    assert caplog.messages[0] == "SparseBayesRegressor: summing"
    assert caplog.messages[-1].startswith("SparseBayesRegressor: converged after ")
    caplog.clear()
    GREVM().fit(three[0], three[1] == "a")
    assert re.fullmatch(r"GREVM: converged after \d+ steps, \d+ of 121 eigenvectors", caplog.messages[-1])


def test_a_bar_is_closed_when_a_fit_stops_or_fails(surface, capfd):
    model = RVR(verbose=1, callback=lambda record: record.iteration == 5, gamma="scale").fit(*surface)
    assert (model.status_, model.n_iter_) == ("stopped", 5)
    assert shown(capfd.readouterr().err)[-1].endswith("stopped]")

    def chunks():
        yield surface
        raise OSError("the disk is gone")

    with pytest.raises(ZeroDivisionError):
        RVR(verbose=1, callback=lambda record: 1 / 0, gamma="scale").fit(*surface)
    with pytest.raises(OSError, match="the disk is gone"):
        SparseBayesRegressor(fit_intercept=False, verbose=1).fit(chunks)
    assert capfd.readouterr().err.endswith("\n")


class BrokenPipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("screen", ["none", "closed", "broken"])
def test_a_fit_does_not_need_a_screen(screen, bars, surface, request, monkeypatch):
    if not bars:
        request.getfixturevalue("without_tqdm")
    gone = {"none": None, "closed": io.StringIO(), "broken": BrokenPipe()}[screen]
    if screen == "closed":
        gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    assert RVR(verbose=1, gamma="scale").fit(*surface).status_ == "converged"
