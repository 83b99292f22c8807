"""Model files: bit for bit what was saved, and nothing believed that is not checked."""

import json
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from sparsebayes import MRVM1, RVC, RVR, load
from sparsebayes.kernels import Gaussian, LinearSpline, OnColumns
from sparsebayes.predictor import Predictor

X, LABELS = load_iris(return_X_y=True)
Y = X[:, 0]
ROWS = np.random.default_rng(0).normal(size=(30, 4))


@pytest.fixture(scope="module")
def predictor():
    kernel = Gaussian([1.0, 2.0, 3.0, 1 / 3]) + OnColumns(LinearSpline(), [0, 2])
    return RVR(kernel, noise_variance=0.1, std="plain").fit(X, np.sin(X[:, 1]) + Y).to_predictor()


def split(content):
    """Return the header of a safetensors file, our own header in it, and the numbers."""
    (n,) = struct.unpack("<Q", content[:8])
    outer = json.loads(content[8 : 8 + n])
    return outer, json.loads(outer["__metadata__"]["sparsebayes"]), content[8 + n :]


def joined(outer, own, numbers):
    outer = {**outer, "__metadata__": {"sparsebayes": json.dumps(own)}}
    text = json.dumps(outer).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + numbers


def test_a_file_gives_back_the_model_bit_for_bit(predictor, tmp_path):
    path = tmp_path / "model.safetensors"
    predictor.save(path)
    again = load(path)
    assert again.to_bytes() == predictor.to_bytes() == path.read_bytes()
    for got, expected in zip(again.predict_std(ROWS), predictor.predict_std(ROWS), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert load(str(path)).estimator == "RVR"


def test_saving_an_estimator_is_saving_its_predictor(tmp_path):
    est = MRVM1(Gaussian(2.0)).fit(X, LABELS)
    est.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == est.to_predictor().to_bytes()


def test_the_form_of_a_file_is_that_of_safetensors(predictor):
    outer, own, numbers = split(predictor.to_bytes())
    assert own["format_version"] == 1
    assert own["estimator"] == "RVR"
    tensors = {name: info for name, info in outer.items() if name != "__metadata__"}
    assert sorted(tensors) == ["covariance.0", "noise_variance", "points.1", "weights.0"]
    assert {info["dtype"] for info in tensors.values()} == {"F64"}
    start, end = tensors["noise_variance"]["data_offsets"]
    assert struct.unpack("<d", numbers[start:end]) == (pytest.approx(0.1, rel=1e-14),)


def test_the_public_package_reads_a_file(predictor, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    predictor.save(tmp_path / "model")
    tables = safetensors.load_file(tmp_path / "model")
    m = predictor.n_functions_
    assert tables["weights.0"].shape == (m,)
    assert tables["covariance.0"].shape == (m, m)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-5, 2, 7]),
        np.array([0, 1, 2**63 + 5], dtype=np.uint64),
        np.array([1, 2, 3], dtype=np.int8),
        np.array([-1.0, 0.0, 1e15]),
        np.array([0.0, 1.0, 2.0], dtype=np.float32),
        np.array(["a", "b c", '\u00e4\U0001f600"\\\n']),
        np.array(["short", "longer", "the longest"], dtype=object),
        np.array(["2020-01-01", "2021-01-01", "2022-06-05"], dtype="datetime64[D]"),
        np.array([1, 5, 70], dtype="timedelta64[s]"),
        np.array([False, True, True]),
    ],
    ids=lambda labels: labels.dtype.str,
)
def test_labels_of_any_type_survive(labels, tmp_path):
    est = RVC(Gaussian(2.0)).fit(X, labels[LABELS])
    est.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.classes_.dtype == est.classes_.dtype
    np.testing.assert_array_equal(again.classes_, est.classes_)
    np.testing.assert_array_equal(again.predict(X), est.predict(X))


def test_long_doubles_are_saved_as_doubles_that_equal_them():
    labels = np.array([0.0, 1.0, 2.0**60], dtype=np.longdouble)
    est = RVC(Gaussian(2.0)).fit(X, labels[LABELS])
    served = est.to_predictor()
    assert served.classes_.dtype == np.float64
    np.testing.assert_array_equal(served.predict(X), est.predict(X))
    labels[2] += 1.0
    if labels[2] != 2.0**60:
        with pytest.raises(ValueError, match=r"y has labels of type .* fit with strings"):
            RVC(Gaussian(2.0)).fit(X, labels[LABELS]).to_predictor()


def test_folders_and_other_objects_are_no_files(tmp_path):
    with pytest.raises((IsADirectoryError, PermissionError, ValueError)):
        load(tmp_path)
    with pytest.raises(TypeError):
        load(5)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    # Opening it waits for a writer; that writer says nothing and goes.
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").open("wb").close())
    writer.start()
    with pytest.raises(ValueError, match="regular file"):
        load(tmp_path / "pipe")
    writer.join()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_model_that_cannot_be_written_leaves_what_was_there(predictor, tmp_path):
    path = tmp_path / "model"
    predictor.save(path)
    before = path.read_bytes()
    resource = pytest.importorskip("resource")
    import signal

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=r"large|write|space"):
            predictor.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are of Unix")
def test_a_pipe_is_written_to_and_stays(predictor, tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    predictor.save(pipe)
    reader.join()
    assert found == [predictor.to_bytes()]
    assert pipe.is_fifo()


def test_a_new_file_is_for_whoever_may_read_new_files(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


SECRET = 'SECRET", expected '


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda outer, own: own.update(format_version=3), "format version 3.*newer"),
        (lambda outer, own: own.update(format_version=SECRET), "header"),
        (lambda outer, own: own.pop("link"), "link"),
        (lambda outer, own: own.update({SECRET: 1}), "unknown field"),
        (lambda outer, own: own.update(link="probit"), "do not fit"),
        (lambda outer, own: own.update(n_features=10**18), "width must be one number|columns"),
        (lambda outer, own: own.update(n_features=-1), "header"),
        (lambda outer, own: own.update(blocks=[]), "must"),
        (lambda outer, own: own.update(outputs=[[0]]), "weights.0 must have shape"),
        (lambda outer, own: own.update(uncertainty="none"), "tables"),
        (lambda outer, own: own["blocks"].append({"columns": [4]}), "column 4"),
        (lambda outer, own: own["blocks"].append({SECRET: "import os"}), "header"),
        (lambda outer, own: outer.pop("weights.0"), "safetensors|missing"),
        (lambda outer, own: outer["weights.0"].update(dtype="I64"), "F64"),
        (lambda outer, own: outer["points.1"].update(shape=[2**40, 4]), "safetensors"),
        (lambda outer, own: outer["points.1"].update(shape=[4, -1]), "safetensors"),
        (lambda outer, own: own.update(link=SECRET), r"\w{3}"),
        (lambda outer, own: own.update(n_features=SECRET), r"\w{3}"),
        (lambda outer, own: own["blocks"].append(SECRET), r"\w{3}"),
        (lambda outer, own: own.update(classes={"dtype": SECRET, "values": [1, 2]}), r"\w{3}"),
        (lambda outer, own: own.update(classes={"dtype": "<i8", "values": [SECRET, "b"]}), r"\w{3}"),
        (lambda outer, own: own.update(estimator=[SECRET]), r"\w{3}"),
        (lambda outer, own: outer["weights.0"].update(dtype=SECRET), r"\w{3}"),
        (lambda outer, own: outer["weights.0"].update(shape=SECRET), r"\w{3}"),
        (lambda outer, own: outer.update({SECRET: {**outer.pop("weights.0"), "dtype": "I64"}}), r"\w{3}"),
        (
            lambda outer, own: outer.update({SECRET: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}),
            r"\w{3}",
        ),
    ],
)
def test_a_file_with_something_wrong_in_it_is_refused_and_not_quoted(predictor, tmp_path, change, match):
    outer, own, numbers = split(predictor.to_bytes())
    change(outer, own)
    content = joined(outer, own, numbers)
    path = tmp_path / "model"
    path.write_bytes(content)
    for action, words in (
        (lambda: load(path), rf"model: (.*)({match})"),
        (lambda: Predictor.from_bytes(content), match),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            action()
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"12345",
        b"\xff" * 64,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 10**9) + b"{}",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        b"SECRET password " * 20,
        b'{"SECRET": 1}',
        b"\x80\0\0\0\0\0\0\0{SECRET" * 20,
    ],
    ids=["empty", "short", "ones", "huge", "no model", "long", "deep", "text", "json", "broken"],
)
def test_what_is_no_model_is_refused_and_not_quoted(tmp_path, content):
    (tmp_path / "model").write_bytes(content)
    for action in (lambda: load(tmp_path / "model"), lambda: Predictor.from_bytes(content)):
        with pytest.raises(ValueError, match="safetensors") as refused:
            action()
        assert "SECRET" not in str(refused.value)


def test_kernels_nested_without_end_are_refused(predictor, tmp_path):
    outer, own, numbers = split(predictor.to_bytes())
    kernel = "linear"
    for _ in range(400):
        kernel = {"sum": [kernel]}
    own["blocks"][1]["centres"] = kernel
    (tmp_path / "model").write_bytes(joined(outer, own, numbers))
    with pytest.raises(ValueError, match="recursion"):
        load(tmp_path / "model")


def test_labels_that_are_not_of_their_type_are_refused():
    content = RVC(Gaussian(2.0)).fit(X, LABELS).to_predictor().to_bytes()
    outer, own, numbers = split(content)
    for dtype, values in (
        ("<i8", ["a", "b", "c"]),
        ("O&", [0, 1, 2]),
        ("V8", [0, 1, 2]),
        ("<i1", [0, 1, 10**6]),
        ("<i8", [0, 1, 2.5]),
        ("<i8", ["0", "1", "2"]),
        ("<U1", ["a", "b", "cd"]),
        ("|S1", [0, 1, 2]),
        ("<M8[D]", ["x", "y", "z"]),
    ):
        own["classes"] = {"dtype": dtype, "values": values}
        with pytest.raises(ValueError, match="label"):
            Predictor.from_bytes(joined(outer, own, numbers))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_from_bytes_inverts_to_bytes(kind, predictor):
    again = Predictor.from_bytes(kind(predictor.to_bytes()))
    assert again.to_bytes() == predictor.to_bytes()
    np.testing.assert_array_equal(again.predict(ROWS), predictor.predict(ROWS))


def test_bytes_and_paths_are_told_apart(predictor):
    with pytest.raises(TypeError, match="from_bytes") as refused:
        load(predictor.to_bytes())
    assert "safetensors" not in str(refused.value)
    for path in ("model", Path("model"), 5, None):
        with pytest.raises(TypeError, match=r"content must be bytes.*(str|Path|int|NoneType)"):
            Predictor.from_bytes(path)


def test_a_missing_file_is_named_as_python_names_it(predictor, tmp_path):
    for action in (load, predictor.save):
        path = str(tmp_path / "missing" / "model")
        with pytest.raises(FileNotFoundError) as refused:
            action(path)
        assert refused.value.filename == path
        assert str(refused.value) == f"[Errno 2] No such file or directory: {path!r}"


def test_reading_while_another_thread_saves_gives_one_model_or_the_other(predictor, tmp_path):
    other = RVR(Gaussian(2.0), noise_variance=0.1).fit(X, Y).to_predictor()
    path, kinds = tmp_path / "model", (predictor.to_bytes(), other.to_bytes())
    predictor.save(path)

    def save():
        for k in range(40):
            (other, predictor)[k % 2].save(path)

    writer = threading.Thread(target=save)
    writer.start()
    while writer.is_alive():
        assert load(path).to_bytes() in kinds
    writer.join()
