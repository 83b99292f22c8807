"""The command line: what a user types, what files it leaves, what it says of mistakes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import sparsebayes
from sparsebayes import RVR
from sparsebayes._cli import main
from sparsebayes.kernels import Gaussian


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    """Iris with class names, as CSV."""
    data = load_iris()
    return write_csv(
        tmp_path / "iris.csv",
        ["a", "b", "c", "d", "kind"],
        [[*row, data.target_names[k]] for row, k in zip(data.data, data.target, strict=True)],
    )


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """A regression on two inputs of very different units, with a column of weights and one of text."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (80, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    rows = [[x, 1e4 * z, t, 1 + i % 2, f"row {i}"] for i, ((x, z), t) in enumerate(zip(X, y, strict=True))]
    return write_csv(tmp_path / "waves.csv", ["x", "z", "y", "w", "name"], rows)


def write_csv(path: Path, names: list[str], rows: list[list[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)
    return path


def read_csv(text: str) -> dict[str, list[str]]:
    names, *rows = csv.reader(text.splitlines())
    return {name: [row[j] for row in rows] for j, name in enumerate(names)}


def test_classes_go_from_a_table_to_probabilities(iris, tmp_path, capsys):
    model = tmp_path / "iris.safetensors"
    assert main(["fit", str(iris), "--target", "kind", "--width", "1", "-o", str(model)]) == 0
    said = capsys.readouterr()
    assert "RVC on 150 rows of 4 features" in said.out
    assert said.err == ""
    assert main(["predict", str(model), str(iris)]) == 0
    found = read_csv(capsys.readouterr().out)
    assert list(found) == ["prediction", "p(setosa)", "p(versicolor)", "p(virginica)"]
    data = load_iris()
    right = np.array(found["prediction"]) == data.target_names[data.target]
    assert right.mean() > 0.95
    served = sparsebayes.load(model)
    np.testing.assert_array_equal(
        np.array(found["p(setosa)"], dtype=float), served.predict_proba(data.data)[:, 0]
    )


def test_the_evidence_chooses_the_width(waves, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    arguments = ["fit", str(waves), "--target", "y", "--drop", "name", "--drop", "w", "-q", "-o", str(path)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    table = read_csv(waves.read_text())
    X = np.column_stack([np.array(table[name], dtype=float) for name in ("x", "z")])
    y = np.array(table["y"], dtype=float)
    spread = np.sqrt(2) * X.std(axis=0)
    models = [RVR(Gaussian(width * spread)).fit(X, y) for width in (0.25, 0.5, 1.0, 2.0, 4.0)]
    best = max(models, key=lambda model: model.log_marginal_likelihood_)
    np.testing.assert_array_equal(sparsebayes.load(path).predict(X), best.to_predictor().predict(X))


def test_error_bars_and_weights(waves, tmp_path, capsys):
    path, out = tmp_path / "model.safetensors", tmp_path / "out.csv"
    arguments = ["fit", str(waves), "--target", "y", "--weight", "w", "--drop", "name", "--width", "1"]
    assert main([*arguments, "-o", str(path)]) == 0
    assert "noise" in capsys.readouterr().out
    assert main(["predict", str(path), str(waves), "-o", str(out)]) == 0
    found = read_csv(out.read_text())
    assert list(found) == ["prediction", "std"]
    assert min(map(float, found["std"])) > 0.05


def test_columns_are_found_by_name(waves, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    arguments = ["fit", str(waves), "--target", "y", "--drop", "name", "--drop", "w", "--width", "1", "-q"]
    main([*arguments, "-o", str(path)])
    table = read_csv(waves.read_text())
    swapped = write_csv(
        tmp_path / "swapped.csv", ["z", "x"], [list(r) for r in zip(table["z"], table["x"], strict=True)], ";"
    )
    main(["predict", str(path), str(waves)])
    plain = capsys.readouterr().out
    main(["predict", str(path), str(swapped)])
    assert capsys.readouterr().out == plain


def test_parquet_does_as_well(waves, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(waves).drop(columns=["name", "w"])
    parquet, path = tmp_path / "waves.parquet", tmp_path / "model.safetensors"
    frame.to_parquet(parquet)
    assert main(["fit", str(parquet), "--target", "y", "--width", "1", "-q", "-o", str(path)]) == 0
    assert main(["predict", str(path), str(parquet), "-o", str(tmp_path / "out.parquet")]) == 0
    found = pandas.read_parquet(tmp_path / "out.parquet")
    np.testing.assert_array_equal(found["prediction"], sparsebayes.load(path).predict(frame[["x", "z"]]))
    assert capsys.readouterr().out == ""


def test_info_says_what_a_file_holds(iris, tmp_path, capsys):
    path = tmp_path / "iris.safetensors"
    main(["fit", str(iris), "--target", "kind", "--machine", "mrvm1", "--width", "1", "-q", "-o", str(path)])
    assert main(["info", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["estimator"] == "MRVM1"
    assert facts["feature names"] == ["a", "b", "c", "d"]
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    assert main(["info", str(path)]) == 0
    assert "setosa, versicolor, virginica" in capsys.readouterr().out


def test_a_model_short_of_its_optimum_has_an_exit_code_of_its_own(tmp_path, capsys):
    # Without noise there is no optimum for the noise level.
    X = np.linspace(-1, 1, 30)
    table = write_csv(tmp_path / "line.csv", ["x", "y"], [[x, 2 * x] for x in X])
    path = tmp_path / "model.safetensors"
    code = main(["fit", str(table), "--target", "y", "--kernel", "linear", "-o", str(path)])
    assert (code, path.exists()) == (3, True)
    assert "noise_floor" in capsys.readouterr().out


MISTAKES = {
    "no file": (None, [], "cannot read"),
    "no target": ("x,y\n1,2\n3,4\n", ["--target", "q"], "has no column 'q'; it has x, y"),
    "text": ("x,y\na,2\n3,4\n", [], "holds 'a' in row 1"),
    "no value": ("x,y\n,2\n3,4\n", [], "no value in row 1"),
    "ragged": ("x,y\n1,2,3\n", [], "row 1 of"),
    "no header": ("1,2\n3,4\n", [], "has to name the columns"),
    "empty": ("", [], "holds no rows"),
    "nothing to predict from": ("y\n1\n2\n", [], "no columns beside"),
    "twice": ("x,x,y\n1,2,3\n", [], "more than one column 'x'"),
    "width": ("x,y\n1,2\n3,4\n", ["--width", "-1"], "--width must be"),
    "text as numbers": ("x,y\n1,a\n3,b\n", ["--machine", "rvr"], "holds text"),
    "candidates": ("x,y\n1,2\n3,4\n5,7\n", ["--candidates", "0", "--width", "1"], "candidates must be"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name, tmp_path, capsys):
    content, arguments, complaint = MISTAKES[name]
    table = tmp_path / "table.csv"
    if content is not None:
        table.write_text(content)
    path = tmp_path / "model.safetensors"
    target = [] if "--target" in arguments else ["--target", "y"]
    assert main(["fit", str(table), *target, *arguments, "-o", str(path)]) == 1
    said = capsys.readouterr()
    assert complaint in said.err
    assert said.err.startswith("sparsebayes: ")
    assert not path.exists()


def test_damaged_and_missing_models_are_named(tmp_path, capsys, iris):
    assert main(["info", str(tmp_path / "none")]) == 1
    assert "no model file" in capsys.readouterr().err
    (tmp_path / "bad").write_bytes(b"not a model")
    assert main(["predict", str(tmp_path / "bad"), str(iris)]) == 1
    assert "bad" in capsys.readouterr().err


def test_an_unknown_command_exits_with_two(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fly"])
    assert stop.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_it_runs_as_a_module_and_stands_a_closed_pipe(iris, tmp_path):
    path = tmp_path / "iris.safetensors"
    main(["fit", str(iris), "--target", "kind", "--width", "1", "-q", "-o", str(path)])
    command = [sys.executable, "-m", "sparsebayes", "predict", str(path), str(iris)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_the_demo_runs(capsys):
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert {"RVR", "SVR", "RVC", "SVC"} <= set(said.split())
