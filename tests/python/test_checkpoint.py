"""Killed fits resume from a checkpoint to the same model, bit for bit, or refuse with a reason."""

import os
from io import BytesIO

import numpy as np
import pytest
from sklearn.base import clone

import sparsebayes._data.chunks
from sparsebayes import RVR, SparseBayesRegressor
from sparsebayes._data.chunks import Checkpoint, digest
from sparsebayes.kernels import Gaussian, Linear


def unchecked(model):
    """Return a clone without a checkpoint."""
    return clone(model).set_params(checkpoint=None)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (30_000, 2))
    return X, np.sinc(X[:, 0]) + 0.1 * rng.normal(size=len(X)), rng.uniform(0, 2, len(X))


@pytest.fixture
def model(tmp_path):
    return RVR(gamma=0.5, candidates=20, random_state=0, checkpoint=tmp_path / "state")


@pytest.fixture
def always(monkeypatch):
    """Save after each block."""
    monkeypatch.setattr(sparsebayes._data.chunks, "_INTERVAL", -1.0)
    monkeypatch.setattr(sparsebayes._data.chunks, "_PATIENCE", 0.0)


def breaking(data, at, borders=(10_000, 20_000), first_passes=1):
    """Return a reader of chunks that fails at row ``at`` of the pass that sums."""
    chunks = list(zip(*(np.split(column, borders) for column in data), strict=True))
    passes = []

    def read():
        passes.append(0)
        seen = 0
        for X, y, w in chunks:
            seen += len(X)
            if len(passes) > first_passes and seen > at:
                raise OSError("the disk is gone")
            yield X, y, w

    return read


def assert_same_bits(a, b):
    for name in ("active_", "alpha_", "mu_", "sigma_", "beta_", "log_marginal_likelihood_", "candidates_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def stop_at(model, data, at):
    first_passes = int(hasattr(model, "candidates"))
    with pytest.raises(OSError, match="disk is gone"):
        model.fit(breaking(data, at, first_passes=first_passes))
    assert model.checkpoint.exists()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("at", [0, 10_000, 20_000])
def test_a_failed_fit_resumes_to_the_same_bits(at, data, model):
    expected = unchecked(model).fit([data])
    stop_at(model, data, at)
    rows = _rows_in(model)
    assert rows == {0: 0, 10_000: 8192, 20_000: 16_384}[at]
    calls = []
    again = clone(model).set_params(callback=lambda record: calls.append(record) and False)
    again.fit([data])
    assert {record.progress.what for record in calls if record.progress} == {"summing"}
    assert_same_bits(again, expected)
    assert os.listdir(model.checkpoint.parent) == []


def _rows_in(model):
    with np.load(BytesIO(model.checkpoint.read_bytes()[32:])) as state:  # after the digest
        return int(state["rows"]) if "rows" in state else 0


@pytest.mark.usefixtures("always")
def test_saving_does_not_change_the_model(data, model):
    assert_same_bits(clone(model).fit([data]), unchecked(model).fit([data]))
    assert not model.checkpoint.exists()


@pytest.mark.filterwarnings("ignore:.*status 'empty'")
@pytest.mark.usefixtures("always")
def test_columns_and_other_chunk_borders_and_limits_resume_too(data, model):
    columns = SparseBayesRegressor(fit_intercept=False, checkpoint=model.checkpoint)
    stop_at(columns, data, 10_000)
    expected = unchecked(columns).fit([data])
    columns.set_params(memory_limit="100MB", n_jobs=1, verbose=0).fit(breaking(data, 10**9, (5, 17_000)))
    np.testing.assert_array_equal(columns.mu_, expected.mu_)
    # These rows in a file.
    stop_at(model, data, 20_000)
    X = np.memmap(model.checkpoint.with_name("X"), "f8", "w+", shape=data[0].shape)
    X[...] = data[0]
    found = clone(model).set_params(memory_limit="12MB").fit(X, *data[1:])
    assert_same_bits(found, unchecked(model).fit([data]))
    assert not model.checkpoint.exists()


@pytest.mark.usefixtures("always")
def test_a_fit_stopped_by_the_callback_resumes(data, model):
    expected = unchecked(model).fit([data])
    seen = []
    model.callback = lambda record: seen.append(record) or len(seen) >= 6
    model.fit([data])
    assert model.status_ == "stopped"
    assert _rows_in(model) == 16_384
    model.callback = None
    assert_same_bits(model.fit([data]), expected)
    assert not model.checkpoint.exists()
    # Stopped while centres are chosen, a fit keeps no state.
    model.callback = lambda record: True
    assert model.fit([data]).status_ == "stopped"
    assert not model.checkpoint.exists()


@pytest.mark.usefixtures("always")
def test_states_of_other_problems_are_refused(data, model):
    X, y, w = data
    stop_at(model, data, 20_000)
    state = model.checkpoint.read_bytes()
    other = y.copy()
    other[100] += 1e-9
    for estimator, chunks in [
        (model, [(X, other, w)]),
        (model, [(X, y)]),
        (model, [(X[:9000], y[:9000], w[:9000])]),
        (model, [(np.hstack([X, X]), y, w)]),
        (clone(model).set_params(gamma=0.6), [data]),
        (clone(model).set_params(candidates=21), [data]),
        (clone(model).set_params(kernel=Gaussian(1.0)), [data]),
        (clone(model).set_params(random_state=1), [data]),
        (SparseBayesRegressor(fit_intercept=False, checkpoint=model.checkpoint), [data]),
    ]:
        with pytest.raises(ValueError, match=r"checkpoint: the file .* belongs to another fit.*Remove it"):
            estimator.fit(chunks)
        assert not hasattr(estimator, "mu_")
        assert model.checkpoint.read_bytes() == state
    # The changed row was not summed yet, but read by the first pass.
    late = y.copy()
    late[-1] += 1e-9
    with pytest.raises(ValueError, match="belongs to another fit"):
        model.fit([(X, late, w)])
    model.checkpoint.unlink()
    model.fit([(X, late, w)])


@pytest.mark.usefixtures("always")
def test_damaged_states_are_refused(data, model):
    stop_at(model, data, 20_000)
    state = model.checkpoint.read_bytes()
    rng, texts = np.random.default_rng(0), [state + b"x", b"something else"]
    for place in [0, 10, 25, 40, 300, len(state) - 1, *rng.integers(0, len(state), 20)]:
        texts.append(bytearray(state))
        texts[-1][place] ^= 1 << rng.integers(8)
    for text in [*texts, *(state[:length] for length in (0, 5, 23, 30, 100, len(state) - 1))]:
        model.checkpoint.write_bytes(text)
        with pytest.raises(ValueError, match=r"checkpoint: the file .*(damaged|no checkpoint).*Remove it"):
            model.fit([data])


def test_bad_paths_are_refused_before_any_work(data, tmp_path):
    for error, path in [(TypeError, 5), (ValueError, tmp_path), (ValueError, tmp_path / "none" / "state")]:
        for model, rows in [
            (RVR(candidates=3, gamma="scale"), ([data],)),
            (RVR(gamma="scale"), (data[0][:5], data[1][:5])),
        ]:
            with pytest.raises(error, match="checkpoint must"):
                model.set_params(checkpoint=path).fit(*rows)


def test_the_remains_of_a_killed_save_are_ignored(data, model):
    part = model.checkpoint.with_name(".state.part")
    part.write_bytes(b"half a sta")
    model.fit([data])
    assert os.listdir(model.checkpoint.parent) == []


def test_a_failed_save_keeps_the_state_before(tmp_path, monkeypatch):
    state = Checkpoint(tmp_path / "state", "p")
    state.save(a=np.arange(3))
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        state.save(a=np.arange(4))
    assert os.listdir(tmp_path) == ["state"]
    np.testing.assert_array_equal(state.load()["a"], np.arange(3))


def test_states_are_loaded_bit_for_bit(tmp_path):
    state = Checkpoint(str(tmp_path / "state"), "p")
    assert state.load() is None
    arrays = {
        "matrix": np.asfortranarray(np.random.default_rng(0).normal(size=(5, 3))),
        "number": np.array(7),
        "nothing": np.empty((0, 4), np.float32),
        "flags": np.array([True, False]),
        "texts": np.array(["a", "\u03b1\u03b2"]),
    }
    state.save(**arrays)
    found = Checkpoint(tmp_path / "state", "p").load()
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(ValueError, match="another fit"):
        Checkpoint(tmp_path / "state", "q").load()
    state.remove()
    state.remove()
    assert state.load() is None


def test_digests_tell_problems_apart():
    X = np.arange(6.0).reshape(2, 3)
    values = [
        *(X, X.T, X.ravel(), X.astype(np.float32), X + 1e-15, None, 0, 0.0, False, "0", [0], (0,)),
        *([[0], 1], [0, [1]], {"a": 1}, {"a": 2}, Gaussian(1.0), Gaussian(2.0), [Gaussian(1.0), Linear()]),
        *(Gaussian(1.0) + Linear(), np.sin, np.cos),
    ]
    assert len({digest(value) for value in values}) == len(values)
    assert digest(np.asfortranarray(X)) == digest(X)
    assert digest([1, 2]) != digest(1, 2) != digest(2, 1)
