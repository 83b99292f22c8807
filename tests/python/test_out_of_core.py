"""Fits of rows that are read part by part, their memory, and what goes on while they run."""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from sklearn.base import clone

from ctrl_c import pressed_after
from problems import assert_same_model
from sparsebayes import RVR, SparseBayesRegressor
from sparsebayes._checks import check_memory_limit
from sparsebayes._data.candidates import RowSample, keys
from sparsebayes._data.chunks import Rows, open_chunks
from sparsebayes._data.statistics import Moments
from sparsebayes.inspection import certificate
from sparsebayes.kernels import Gaussian, OnColumns

#: Less than any fit in memory takes of the data below, and enough for sums.
SMALL = "12MB"


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (20_000, 3))
    y = np.sinc(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=len(X))
    return X, y, rng.uniform(0, 2, len(X)) * (rng.random(len(X)) > 0.1)


@pytest.fixture(scope="module")
def model():
    return RVR(gamma=0.2, candidates=40, random_state=1, tol=1e-9)


@pytest.fixture(scope="module")
def expected(model, data):
    return clone(model).fit(*data)


def split(data, borders):
    return list(zip(*(np.split(column, borders) for column in data), strict=True))


def mapped(path, array):
    out = np.memmap(path, array.dtype, "w+", shape=array.shape, order="F" if array.flags.fnc else "C")
    out[...] = array
    out.flush()
    return out


@pytest.mark.parametrize("borders", [[], [1, 2, 500], [10_000], [3000, 3000, 19_999], range(0, 20_000, 777)])
def test_chunks_make_the_model_of_one_fit_whatever_their_size(borders, data, model, expected):
    found = clone(model).fit(split(data, list(borders)))
    assert_same_model(found, expected)
    # Blocks of one size are summed, so that borders do not show at all.
    np.testing.assert_array_equal(found.mu_, clone(model).fit([data]).mu_)
    np.testing.assert_array_equal(found.candidate_rows_, expected.candidate_rows_)
    np.testing.assert_array_equal(found.relevance_vectors_, expected.relevance_vectors_)
    assert certificate(found, *data).max_gain_outside < 1e-6
    np.testing.assert_allclose(found.predict(data[0][:50]), expected.predict(data[0][:50]), rtol=1e-7)


def test_chunks_in_another_order_make_the_same_model(data, model, expected):
    parts = split(data, range(1500, 20_000, 1500))
    model = clone(model).set_params(candidates=expected.candidates_)
    ordered = clone(model).fit(parts)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(parts))
        assert_same_model(clone(model).fit([parts[k] for k in order]), ordered)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("weighted", [True, False])
def test_mapped_files_make_the_model_of_arrays(order, dtype, weighted, data, model, tmp_path):
    X, y, w = data
    values = np.asarray(X * 3 if dtype == "i4" else X, dtype, order=order)
    weights = mapped(tmp_path / "w", w) if weighted else None
    given = mapped(tmp_path / "X", values), mapped(tmp_path / "y", y), weights
    actions = []
    callback = lambda step: actions.append(step.action)  # noqa: E731
    found = clone(model).set_params(memory_limit=SMALL, callback=callback).fit(*given)
    assert "read" in actions
    assert found.candidates_.shape == (40, 3)
    expected = clone(model).fit(values, y, w if weighted else None)
    assert_same_model(found, expected)
    # Where there is room, maps are arrays.
    np.testing.assert_array_equal(clone(model).fit(*given).mu_, expected.mu_)
    np.testing.assert_array_equal(found.predict(given[0]), found.predict(values))
    for of_map, of_array in zip(
        found.predict(given[0], return_std=True), found.predict(values, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(of_map, of_array)
    assert found.score(given[0], y) == found.score(values, y)


def test_arrays_too_large_for_the_limit_are_summed(data, model, expected):
    actions = []
    callback = lambda step: actions.append(step.action)  # noqa: E731
    found = clone(model).set_params(memory_limit=SMALL, callback=callback).fit(*data)
    assert "read" in actions
    assert_same_model(found, expected)
    actions.clear()
    clone(model).set_params(callback=callback).fit(*data)
    assert "read" not in actions


def test_copy_on_write_maps_keep_what_was_written(data, model, tmp_path):
    X, y, w = data
    mapped(tmp_path / "X", np.zeros_like(X))
    X_map = np.memmap(tmp_path / "X", "f8", "c", shape=X.shape)
    X_map[...] = X
    found = clone(model).set_params(memory_limit=SMALL).fit(X_map, y, w)
    np.testing.assert_array_equal(X_map, X)
    np.testing.assert_array_equal(found.mu_, clone(model).fit([data]).mu_)


@pytest.fixture(scope="module")
def parquet(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrow")
    X, y, w = data
    table = pa.table({"a": X[:, 0], "t": y, "b": X[:, 1], "w": w, "c": X[:, 2]})
    pa.parquet.write_table(table, folder / "all.parquet", row_group_size=900)
    (folder / "parts").mkdir()
    for k, start in enumerate(range(0, len(X), 6000)):
        pa.parquet.write_table(
            table.slice(start, 6000), folder / "parts" / f"{k}.parquet", row_group_size=2500
        )
    pa.dataset.write_dataset(table, folder / "ipc", format="arrow")
    return folder, table


@pytest.mark.parametrize(
    "source",
    [
        lambda folder, table: folder / "all.parquet",
        lambda folder, table: str(folder / "parts"),
        lambda folder, table: str(folder / "parts" / "*.parquet"),
        lambda folder, table: folder / "ipc",
        lambda folder, table: pa.dataset.dataset(folder / "parts"),
        lambda folder, table: table,
    ],
    ids=["file", "directory", "pattern", "arrow", "dataset", "table"],
)
def test_arrow_makes_the_model_of_arrays(source, parquet, data, model, expected):
    found = clone(model).fit(source(*parquet), "t", "w")
    assert_same_model(found, expected)
    np.testing.assert_array_equal(found.mu_, clone(model).fit([data]).mu_)
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    frame = pd.DataFrame(data[0][:5], columns=["a", "b", "c"])
    np.testing.assert_allclose(found.predict(frame), expected.predict(data[0][:5]), rtol=1e-7)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["b", "a", "c"]])


def test_a_reader_is_read_once(parquet, data, model, expected):
    table = parquet[1]
    given = clone(model).set_params(candidates=expected.candidates_)
    reference = clone(given).fit(*data)
    assert_same_model(given.fit(table.to_reader(1234), "t", "w"), reference)
    with pytest.raises(ValueError, match=r"read only once.*integer in candidates"):
        clone(model).fit(table.to_reader(1234), "t", "w")


def test_iterators_do_where_one_pass_is_enough(data, model, expected):
    parts = split(data, [7000, 12_345])
    given = clone(model).set_params(candidates=expected.candidates_)
    reference = clone(given).fit(parts)
    for source in (iter(parts), (part for part in parts), lambda: iter(parts), tuple(parts)):
        np.testing.assert_array_equal(clone(given).fit(source).mu_, reference.mu_)
    with pytest.raises(ValueError, match=r"read only once.*gamma='scale'.*give a list"):
        clone(given).set_params(gamma="scale").fit(iter(parts))
    # No kernel with a gamma, no need for one.
    clone(given).set_params(gamma="scale", kernel=Gaussian(2.0)).fit(iter(parts))
    frames = [(pd.DataFrame(X, columns=list("abc")), pd.Series(y), w) for X, y, w in parts]
    found = clone(model).fit(lambda: iter(frames))
    assert_same_model(found, expected)
    assert list(found.feature_names_in_) == ["a", "b", "c"]


def test_whoever_makes_chunks_may_use_one_buffer(data, model):
    X, y, w = data
    buffer = np.empty((700, 3))

    def chunks():
        for start in range(0, len(X), 700):
            part = X[start : start + 700]
            buffer[: len(part)] = part
            yield buffer[: len(part)], y[start : start + 700], w[start : start + 700]

    np.testing.assert_array_equal(clone(model).fit(chunks).mu_, clone(model).fit([data]).mu_)


@pytest.mark.parametrize("kernel", ["rbf", [OnColumns("rbf", [0, 2]), "laplacian"]])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_gamma_scale_is_that_of_all_rows(kernel, offset, data):
    X, y, w = data[0][:3000] * [1.0, 2.0, 0.1] + offset, data[1][:3000], data[2][:3000]
    model = RVR(kernel, gamma="scale", candidates=12, random_state=0, max_iter=1)
    with pytest.warns(UserWarning, match="max_iter"):
        found, expected = clone(model).fit(split((X, y, w), [5, 1000])), clone(model).fit(X, y, w)
    for a, b in zip(found._kernels(), expected._kernels(), strict=True):
        gamma_a, gamma_b = (
            k.kernel.width if isinstance(k, OnColumns) else getattr(k, "width", None) or k.gamma
            for k in (a, b)
        )
        assert gamma_a == pytest.approx(gamma_b, rel=1e-10)


def test_columns_of_x_are_fitted_part_by_part(data, parquet):
    X, y, w = data
    model = SparseBayesRegressor(fit_intercept=True, tol=1e-9)
    expected = clone(model).fit(X, y, w)
    found = clone(model).fit(parquet[0] / "all.parquet", "t", "w")
    assert_same_model(found, expected)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-8)
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    assert_same_model(clone(model).set_params(memory_limit="4MB").fit(*data), expected)
    assert_same_model(clone(model).fit(iter(split(data, [2000]))), expected)
    with pytest.raises(ValueError, match="likelihood='gaussian'"):
        SparseBayesRegressor(fit_intercept=False, likelihood="poisson").fit([(X, np.abs(y))])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((np.full((4, 3), np.nan), np.ones(4)), r"chunk 1 \(rows 10 to 13\).*X contains NaN"),
        ((np.ones((4, 3)), [1.0, np.inf, 0.0, 0.0]), r"chunk 1 \(rows 10 to 13\).*y contains inf"),
        ((np.ones((4, 2)), np.ones(4)), r"chunk 1 .*X must have 3 columns"),
        ((np.ones((4, 3)), np.ones(3)), "chunk 1: X and y must have the same number of rows, got 4 and 3"),
        ((np.ones((4, 3)), np.ones((4, 2))), r"chunk 1 .*y must have one column"),
        ((np.ones((4, 3)), np.ones(4), [1, 1, 1, -1]), r"chunk 1 .*sample_weight must not be negative"),
        ((np.ones((4, 3)), np.ones(4), np.ones(3)), "chunk 1: X and sample_weight must have the same number"),
        ((np.full((4, 3), "a"), np.ones(4)), r"chunk 1 .*X"),
        ((np.ones(4), np.ones(4)), r"chunk 1: X must have the shape"),
        ((np.ones((4, 3)), None), "chunk 1: y must hold a target"),
        (np.ones((4, 3)), r"chunk 1 of X must be \(X, y\)"),
        ((np.full((4, 3), 1e200), np.ones(4)), r"chunk 1.*X.*too large"),
    ],
)
def test_bad_chunks_are_named(second, message, data):
    first = data[0][:10], data[1][:10]
    fitted = SparseBayesRegressor(fit_intercept=False, noise_variance=0.01).fit(*first)
    before = dict(vars(fitted))
    with pytest.raises((TypeError, ValueError), match=message):
        fitted.fit(iter([first, second]))
    assert vars(fitted) == before


def test_what_is_no_data_set_says_so(data, parquet, tmp_path):
    X, y, w = data[0][:10], data[1][:10], data[2][:10]
    (folder, table), model = parquet, RVR(candidates=3, gamma="scale")
    for error, message, arguments in [
        (ValueError, "y must be None", (iter([(X, y)]), y)),
        (ValueError, "holds no chunks", (iter([]),)),
        (ValueError, "holds no rows", ([(X[:0], y[:0])],)),
        (ValueError, "sample_weight is zero in every row", ([(X, y, 0 * w)],)),
        (FileNotFoundError, "no file", (tmp_path / "none", "t")),
        (FileNotFoundError, "no file", (tmp_path / "*.parquet", "t")),
        (FileNotFoundError, "no file", (tmp_path, "t")),
        (TypeError, "y must be the name", (folder / "all.parquet",)),
        (TypeError, "y must be the name", (folder / "all.parquet", y)),
        (ValueError, "y must name one column of X, a, t, b, w, c; got 'z'", (table, "z")),
        (ValueError, "sample_weight must name one column", (table, "t", "z")),
        (TypeError, "X of pyarrow", (table.schema, "t")),
        (TypeError, "column 's' .*string", (pa.table({"s": ["a"], "x": [1.0], "t": [2.0]}), "t")),
        (
            ValueError,
            r"chunk 0 \(rows 0 to 1\): X holds nulls in column 'x'",
            (pa.table({"x": [1.0, None], "t": [2.0, 3.0]}), "t"),
        ),
        (ValueError, "y", (X, None)),
    ]:
        with pytest.raises(error, match=message):
            model.fit(*arguments)
    with pytest.raises(ValueError, match="candidates must be an integer"):
        RVR(gamma="scale").fit([(X, y)])
    # A wrong path is the first thing to say.
    with pytest.raises(FileNotFoundError, match="no file"):
        RVR().fit("none.parquet", "t")
    big = np.memmap(tmp_path / "X", "f8", "w+", shape=(20_000, 3))
    with pytest.raises(ValueError, match=r"memory_limit is .*candidates must be an integer"):
        RVR(memory_limit="1MB", gamma="scale").fit(big, data[1])
    with pytest.raises(ValueError, match=r"y must have one column"):
        RVR(memory_limit="1MB", candidates=3, gamma="scale").fit(big, np.ones((20_000, 2)))


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(ModuleNotFoundError, match=r"pip install sparsebayes\[arrow\]"):
        RVR(candidates=3, gamma="scale").fit(tmp_path, "t")


def test_memory_limits_are_bytes_or_texts():
    for given, n_bytes in [
        (5, 5),
        (np.int64(7), 7),
        ("100", 100),
        ("2GiB", 2 << 30),
        ("1.5 kB", 1500),
        ("3M", 3_000_000),
        (" 4mib ", 4 << 20),
    ]:
        assert check_memory_limit(given) == n_bytes
    assert check_memory_limit(None) > 1 << 27
    for wrong in (0, -1, "", "GB", "1 XB", "-1GB", "0"):
        with pytest.raises(ValueError, match="memory_limit must be None, a number of bytes"):
            RVR(memory_limit=wrong, gamma="scale").fit([[0.0], [1.0]], [0.0, 1.0])
    for wrong in (1.5, True, [1]):
        with pytest.raises(TypeError, match="memory_limit"):
            RVR(memory_limit=wrong, gamma="scale").fit([[0.0], [1.0]], [0.0, 1.0])


def test_samples_are_uniform_and_do_not_depend_on_order_or_borders():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2))
    X[4000:] = X[:1000]
    X[7] = [0.0, -0.0]
    X[4007] = [-0.0, 0.0]
    y = np.arange(5000.0)
    w = (rng.random(5000) > 0.2).astype(float)
    kept = []
    for seed in range(40):
        whole = RowSample(300, 2, seed)
        whole.add(Rows(X, y, w, 0, 0))
        sample = whole.training(5000)
        assert len(sample.rows) == 300
        assert (w[sample.rows] > 0).all()
        np.testing.assert_array_equal(sample.X, X[sample.rows])
        np.testing.assert_array_equal(sample.y, sample.rows)
        np.testing.assert_array_equal(sample.weights, 1.0)
        few = whole.training(5000, 50)
        assert set(few.rows) < set(sample.rows)
        np.testing.assert_array_equal(few.X, X[few.rows])
        assert len(np.unique(sample.X, axis=0)) == 300
        parts, start = RowSample(300, 2, seed), 0
        for rows in np.split(np.arange(5000), np.sort(rng.integers(0, 5000, 9))):
            parts.add(Rows(X[rows], y[rows], w[rows], start, 0))
            start += len(rows)
        np.testing.assert_array_equal(parts.training(5000).rows, sample.rows)
        order = rng.permutation(5000)
        shuffled = RowSample(300, 2, seed)
        shuffled.add(Rows(X[order], y[order], w[order], 0, 0))
        found = {tuple(x) for x in shuffled.training(5000).X}
        assert found == {tuple(x) for x in sample.X}
        kept.append(np.isin(np.arange(5000), sample.rows))
    # Each distinct row with the same chance, wherever it lies.
    counts = np.sum(kept, axis=0)[1000:4000][w[1000:4000] > 0]
    n_distinct = len(np.unique(X[w > 0] + 0.0, axis=0))
    chance = 300 / n_distinct
    assert counts.mean() == pytest.approx(40 * chance, rel=0.03)
    assert counts.var() == pytest.approx(40 * chance * (1 - chance), rel=0.1)
    assert len(np.unique(keys(X, 0))) == len(np.unique(X + 0.0, axis=0))


def test_moments_add_up():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(1000, 3)) * [1, 5, 0.1] + [0, 3, -2], rng.uniform(0, 2, 1000)
    moments = Moments(3)
    for rows in np.split(np.arange(1000), [0, 1, 300]):
        moments.add(X[rows], w[rows])
    rows = moments.rows()
    for columns in ([0], [1, 2], [0, 1, 2]):
        mean = np.average(X[:, columns].mean(axis=1), weights=w)
        variance = np.average(((X[:, columns] - mean) ** 2).mean(axis=1), weights=w)
        assert np.var(rows[:, columns]) == pytest.approx(variance, rel=1e-13)


def test_blocks_are_of_one_size_wherever_chunks_end(data):
    X, y, w = (column[:1000] for column in data)
    for borders in ([], [3, 4, 900], range(1, 1000, 97)):
        blocks = list(open_chunks(split((X, y, w), list(borders)), None, None).blocks(64))
        assert [len(block) for block in blocks] == [64] * 15 + [40]
        assert [block.first for block in blocks] == list(range(0, 1000, 64))
        np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)
        np.testing.assert_array_equal(np.concatenate([block.weights for block in blocks]), w)
    mixed = open_chunks([(X[:10], y[:10]), (X[10:20], y[10:20], w[10:20])], None, None)
    (block,) = mixed.blocks(64)
    np.testing.assert_array_equal(block.weights, [*np.ones(10), *w[10:20]])
    labels = open_chunks([(X[:2], ["a", "b"]), (X[:1], ["long"])], None, None, labels=True)
    assert [list(block.y) for block in labels.blocks(5)] == [["a", "b", "long"]]


def test_reading_can_be_watched_and_stopped(data, model):
    records = []
    watched = clone(model).set_params(callback=lambda record: records.append(record) or False)
    watched.fit(split(data, [5000]))
    reads = [record for record in records if record.action == "read"]
    assert [record.progress.what for record in reads] == ["looking for centres"] * 3 + ["summing"] * 3
    assert [record.progress.done for record in reads[3:]] == [8192, 16_384, 20_000]
    assert {record.iteration for record in reads} == {0}
    assert all(record.progress is None for record in records[6:])
    arrays = clone(model).set_params(memory_limit=SMALL, callback=records.append)
    records.clear()
    arrays.fit(*data)
    assert records[4].progress.total == 20_000
    # Stopped, the model is that of the rows read.
    for stop in (1, 4, 5):
        records.clear()
        stopped = clone(model).set_params(
            callback=lambda record, stop=stop: records.append(record) or len(records) >= stop
        )
        stopped.fit([data])
        assert stopped.status_ == "stopped"
        assert stopped._n_samples == (8192 if stop < 5 else 16_384)
        assert stopped.n_iter_ == 1


def test_ctrl_c_ends_reading_and_leaves_the_model_before(data, model):
    fitted = clone(model).fit(*data)
    before = dict(vars(fitted))

    def endless():
        while True:
            yield data

    fitted.candidates = fitted.candidates_
    before["candidates"] = fitted.candidates_
    with pressed_after(0.5):
        fitted.fit(endless())
    assert vars(fitted) == before


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts pages as Linux does")
@pytest.mark.parametrize("kind", ["RVR", "SparseBayesRegressor"])
def test_memory_stays_below_the_limit(kind, tmp_path):
    """190 MB of rows, a limit of 64 MB, and the whole process measured."""
    out = run(
        """
        import sys
        import numpy as np
        from sparsebayes import RVR, SparseBayesRegressor
        path, kind = sys.argv[1:]
        N, d, limit = 240_000, 100, 64_000_000
        file = np.memmap(path, "f8", "w+", shape=(N, d))
        rng = np.random.default_rng(0)
        y = np.empty(N)
        for start in range(0, N, 4000):
            part = rng.normal(size=(4000, d))
            file[start : start + 4000] = part
            y[start : start + 4000] = part[:, 3] + 0.1 * rng.normal(size=4000)
            file._mmap.madvise(4)  # MADV_DONTNEED
        X = np.memmap(path, "f8", "r", shape=(N, d))
        if kind == "RVR":
            model = RVR(candidates=150, random_state=0, memory_limit=limit, n_jobs=1)
        else:
            model = SparseBayesRegressor(memory_limit=limit, n_jobs=1)
        # Libraries and threads take memory once.
        small = rng.normal(size=(4000, d))
        model.fit([(small, small[:, 0] + rng.normal(size=4000))]).predict(small)
        def status(field):
            lines = open("/proc/self/status").read().splitlines()
            return [int(line.split()[1]) * 1024 for line in lines if line.startswith(field)][0]
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
        before = status("VmRSS")
        model.fit(X, y)
        fitted = status("VmHWM")
        model.predict(X)
        print(fitted - before, status("VmHWM") - before, X.nbytes, limit)
        """,
        tmp_path / "X",
        kind,
    )
    fitted, predicted, size, limit = map(int, out.split())
    assert size >= 3 * limit
    assert fitted < limit
    assert predicted < limit
