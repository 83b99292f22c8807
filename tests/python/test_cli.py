"""The command line: its arguments, the files it writes, its messages."""

import csv
import gzip
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

import sparsebayes
from sparsebayes import RVR
from sparsebayes._cli import compare as cli_compare
from sparsebayes._cli import fit as cli_fit
from sparsebayes._cli import main, report
from sparsebayes._cli.tables import PARTS, AmbiguousDateError, check_outputs, days_since_1970, parts_of
from sparsebayes._row_likelihoods import OF_NUMBERS, row_likelihood


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
    """A regression on two inputs of very different units, with two columns that are no inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (80, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    rows = [[x, 1e4 * z, t, 1 + i % 2, f"row {i}"] for i, ((x, z), t) in enumerate(zip(X, y, strict=True))]
    return write_csv(tmp_path / "waves.csv", ["x", "z", "y", "w", "name"], rows)


#: The arguments that fit `waves` to its two inputs.
WAVES = ["--target", "y", "--drop", "name", "--drop", "w"]


def write_csv(path: Path, names: list[str], rows: list[list[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)
    return path


def read_csv(text: str) -> dict[str, list[str]]:
    names, *rows = csv.reader(text.splitlines())
    return {name: [row[j] for row in rows] for j, name in enumerate(names)}


def fit(table: Path, *arguments: str, gamma: str = "scale") -> tuple[int, Path]:
    """Fit without learning, which is fast, and return the exit code and the model file."""
    path = table.with_suffix(".safetensors")
    return main(["fit", str(table), "--gamma", gamma, *arguments, "-o", str(path)]), path


def predicted(path: Path, table: Path, capsys) -> tuple[dict[str, list[str]], str]:
    """Return predictions by column, and the text on standard error."""
    capsys.readouterr()
    assert main(["predict", str(path), str(table)]) == 0
    said = capsys.readouterr()
    return read_csv(said.out), said.err


def columns(table: Path, *names: str) -> list[NDArray[np.float64]]:
    found = read_csv(table.read_text())
    return [np.array(found[name], dtype=float) for name in names]


def test_a_table_of_classes_gives_probabilities(iris, capsys):
    code, path = fit(iris, "--target", "kind")
    assert code == 0
    said = capsys.readouterr()
    assert "RVC on 150 rows of 4 inputs" in said.out
    assert "accuracy 0.9" in said.out
    assert "the shares of classes alone: 0.3333, 1.0986" in said.out
    found, error = predicted(path, iris, capsys)
    assert error == ""
    assert list(found) == ["prediction", "p(setosa)", "p(versicolor)", "p(virginica)"]
    data = load_iris()
    right = np.array(found["prediction"]) == data.target_names[data.target]
    assert right.mean() > 0.95
    served = sparsebayes.load(path)
    np.testing.assert_array_equal(
        np.array(found["p(setosa)"], dtype=float), served.predict_proba(data.data)[:, 0]
    )


def test_quality_on_rows_left_out_holds_for_new_rows(tmp_path, capsys):
    # By the evidence the narrowest width won here: R^2 0.99 on the training rows and below 0 on new ones.
    data = load_diabetes()
    X, X_new, y, y_new = train_test_split(data.data, data.target, test_size=0.25, random_state=42)
    table = write_csv(tmp_path / "diabetes.csv", [*data.feature_names, "y"], np.column_stack([X, y]).tolist())
    code, path = fit(table, "--target", "y", gamma="ard")
    assert code == 0
    said = capsys.readouterr().out
    left_out = float(re.search(r"R\^2 ([\d.]+),", said)[1])
    coverage = float(re.search(r"intervals hold ([\d.]+) %", said)[1])
    mean, std = sparsebayes.load(path).predict_std(X_new)
    assert r2_score(y_new, mean) > 0.45
    assert left_out == pytest.approx(r2_score(y_new, mean), abs=0.1)
    assert coverage == pytest.approx(100 * np.mean(np.abs(y_new - mean) < 1.96 * std), abs=6)
    assert re.search(r"^inputs +(bmi|s5) ", said, re.MULTILINE)


def test_a_fit_to_noise_is_called_useless(tmp_path, capsys):
    # A narrow kernel reproduces every training row and predicts nothing.
    rng = np.random.default_rng(0)
    table = write_csv(tmp_path / "noise.csv", ["a", "b", "y"], rng.normal(size=(60, 3)).tolist())
    code, path = fit(table, "--target", "y", gamma="1000")
    said = capsys.readouterr().out
    assert code == 3
    assert path.exists()
    assert re.search(r"^warning ", said, re.MULTILINE)
    assert float(re.search(r"R\^2 (-?[\d.]+),", said)[1]) < 0.0
    assert "no better than the mean" in said


def test_a_problem_has_one_warning(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3)).tolist()
    assert fit(write_csv(tmp_path / "t.csv", ["a", "b", "y"], rows), "--target", "y", gamma="1e-8")[0] == 3
    said = capsys.readouterr().out
    assert "the model has no functions and predicts the same for every row" in said
    assert "no better than the mean" not in said
    rows = [[x, np.sin(3.0 * x)] for x in np.repeat(rng.normal(size=20), 4)]
    fit(write_csv(tmp_path / "t.csv", ["x", "y"], rows), "--target", "y")
    said = capsys.readouterr().out
    assert "status 'noise_floor'" in said
    assert said.count("60 of 80 rows repeat others exactly") == 1


def test_inputs_that_matter_are_named(waves, capsys):
    fit(waves, *WAVES, gamma="ard")
    inputs = r"^inputs +x 1 \(relevance\); little or nothing: z$"
    assert re.search(inputs, capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [(["0.0", "1.0"], ["0", "1"]), (["-1", "+1"], ["-1", "1"]), (["01", "02"], ["01", "02"])],
)
def test_labels_of_text_stay_as_they_are_and_numbers_are_whole(written, expected, tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", ["x", "y"], [[x / 7, written[x % 3 == 0]] for x in range(30)])
    found, _ = predicted(fit(table, "--target", "y", gamma="1000")[1], table, capsys)
    assert list(found) == ["prediction", *(f"p({label})" for label in expected)]
    assert set(found["prediction"]) <= set(expected)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A regression on a number with two gaps and a text with one."""
    rng = np.random.default_rng(1)
    x, city = rng.uniform(-3, 3, 60), rng.choice(["Rome", "Paris", "Oslo"], 60)
    y = np.sin(x) + 2.0 * (city == "Rome") + 0.1 * rng.normal(size=60)
    rows = [list(row) for row in zip(x.tolist(), city.tolist(), y.tolist(), strict=True)]
    rows[3][0], rows[5][0], rows[7][1] = "NA", "", ""
    return write_csv(tmp_path / "mixed.csv", ["x", "city", "y"], rows)


def test_text_becomes_indicators_and_many_gaps_medians(mixed, tmp_path, capsys):
    with mixed.open() as file:
        names, *rows = csv.reader(file)
    gaps = range(3, 36)
    for i in gaps:
        rows[i][0] = "NA"
    write_csv(mixed, names, rows)
    code, path = fit(mixed, "--target", "y")
    assert code == 0
    said = capsys.readouterr().out
    assert "'city' is text: an input for each of Oslo, Paris, Rome; all 0 in 1 row without a value" in said
    assert f"replaced {len(gaps)} missing numbers in x by medians" in said
    table = read_csv(mixed.read_text())
    x = np.array([float(v) if v not in ("NA", "") else np.nan for v in table["x"]])
    city = np.array(table["city"])
    x[np.isnan(x)] = np.nanmedian(x)
    X = np.column_stack([x, *(city == level for level in ("Oslo", "Paris", "Rome"))])
    expected = RVR(gamma="scale").fit(X, np.array(table["y"], dtype=float))
    served = sparsebayes.load(path)
    assert served.feature_names_in_.tolist() == ["x", "city=Oslo", "city=Paris", "city=Rome"]
    np.testing.assert_allclose(served.predict(X), expected.predict(X), rtol=1e-9)

    new = write_csv(tmp_path / "new.csv", ["city", "x"], [["Rome", 0.5], ["Bonn", 0.5], ["Rome", "NA"]])
    found, error = predicted(path, new, capsys)
    np.testing.assert_array_equal(
        [float(v) for v in found["prediction"][:2]], served.predict([[0.5, 0, 0, 1], [0.5, 0, 0, 0]])
    )
    assert (found["prediction"][2], found["std"][2]) == ("", "")
    assert "1 of 3 rows hold none of the texts of the fit (the first: 'Bonn' in row 2)" in error
    assert "1 of 3 rows lack a value of x" in error

    write_csv(new, ["city", "x"], [["Rome", ""]])
    assert predicted(path, new, capsys)[0] == {"prediction": [""], "std": [""]}


def test_rows_with_gaps_are_left_out(mixed, capsys):
    # Rows that lack a number get no predictions either.
    fit(mixed, "--target", "y")
    said = capsys.readouterr().out
    assert "left out 2 rows with missing inputs, of x" in said
    assert "RVR on 58 rows" in said


def test_any_encoding_and_delimiter_gives_the_same_model(tmp_path, capsys):
    rng = np.random.default_rng(2)
    rows = [
        [f"{x:.4f}", city, f"{np.sin(x) + noise:.4f}"]
        for x, city, noise in zip(
            rng.uniform(-3, 3, 40), ["Köln", "Rom"] * 20, 0.1 * rng.normal(size=40), strict=True
        )
    ]
    commas = [[value.replace(".", ",") for value in row] for row in rows]
    header = ["x", "Straße", "y"]
    models = set()
    for name, values, delimiter, encoding in (
        ("plain", rows, ",", "utf-8"),
        ("excel", commas, ";", "cp1252"),
        ("bom", commas, "\t", "utf-8-sig"),
        ("unicode", rows, "|", "utf-16"),
    ):
        table = write_csv(tmp_path / f"{name}.csv", header, values, delimiter)
        table.write_bytes(table.read_bytes().decode().encode(encoding))
        code, path = fit(table, "--target", "y")
        assert code == 0
        models.add(path.read_bytes())
        said = capsys.readouterr().out
        assert ("commas are decimal signs" in said) == (values is commas)
        assert ("Windows-1252" in said) == (encoding == "cp1252")
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "plain.csv").read_bytes()))
    models.add(fit(packed, "--target", "y")[1].read_bytes())
    assert len(models) == 1


def test_uninformative_columns_are_left_out(tmp_path, capsys):
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    rows = [
        [i, 3, i + 1, "", v, "?", f"{i % 5} %", v + 0.1 * e]
        for i, (v, e) in enumerate(zip(x, rng.normal(size=40), strict=True))
    ]
    table = write_csv(tmp_path / "t.csv", ["", "same", "nr", "Unnamed: 7", "x", "none", "part", "y"], rows)
    code, path = fit(table, "--target", "y")
    assert code == 0
    said = capsys.readouterr().out
    assert "left out 2 columns without a name" in said
    assert "left out 'nr', which numbers the rows" in said
    assert "left out 'same', which is the same in all rows" in said
    assert "left out 'none', which holds no values" in said
    assert sparsebayes.load(path).feature_names_in_.tolist() == ["x", "part"]
    path = fit(table, "--target", "y", "--keep", "nr", "--text", "part", "--drop", "x")[1]
    names = sparsebayes.load(path).feature_names_in_.tolist()
    assert names == ["nr", *(f"part={i} %" for i in range(5))]


def test_a_column_that_counts_rows_is_an_input_only_without_others(tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", ["t", "y"], [[i, np.sin(i / 3)] for i in range(20)])
    assert sparsebayes.load(fit(table, "--target", "y")[1]).feature_names_in_.tolist() == ["t"]
    # The count has gaps in a part of a table.
    ids = np.sort(np.random.default_rng(0).permutation(60)[:40])
    rows = [[i, np.cos(i), np.cos(i) + i / 30] for i in ids]
    path = fit(write_csv(tmp_path / "part.csv", ["id", "x", "y"], rows), "--target", "y")[1]
    assert "left out 'id', which numbers the rows" in capsys.readouterr().out
    assert sparsebayes.load(path).feature_names_in_.tolist() == ["x"]
    for first, expected in ((100001, ["x"]), (1890, ["id", "x"])):
        rows = [[first + i, np.cos(i), np.cos(i) + i / 30] for i in range(120)]
        path = fit(write_csv(tmp_path / "from.csv", ["id", "x", "y"], rows), "--target", "y")[1]
        assert sparsebayes.load(path).feature_names_in_.tolist() == expected


TARGETS = {
    "0 and 1": (["0", "1"], [], "RVC", "has two values: they are classes", {"0", "1"}),
    "1 and 2": (["1", "2"], [], "RVC", "has two values: they are classes", {"1", "2"}),
    "as numbers": (["0", "1"], ["--regress"], "RVR", "", None),
    "text": (["no", "yes"], [], "RVC", "is text: its values are classes", {"no", "yes"}),
    "codes": (["007", "012", "100"], [], "RVC", "is text: its values are classes", {"007", "012", "100"}),
    "few numbers": (["1", "2", "3"], [], "RVR", "--classify predicts its 3 values as classes", None),
    "asked": (["1", "2", "3"], ["--classify"], "RVC", "", {"1", "2", "3"}),
    "numbers": (["1.5", "2", "3"], [], "RVR", "", None),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_target_decides_the_estimator(name, tmp_path, capsys):
    values, arguments, estimator, said, labels = TARGETS[name]
    x = np.random.default_rng(4).normal(size=45)
    rows = [
        [v, values[int(k)]] for v, k in zip(x, np.digitize(x, [-0.5, 0.5][: len(values) - 1]), strict=True)
    ]
    rows[5][1] = ""
    table = write_csv(tmp_path / "t.csv", ["x", "y"], rows)
    _, path = fit(table, "--target", "y", *arguments)
    out = capsys.readouterr().out
    assert f"{estimator} on 44 rows" in out
    assert "left out 1 row without a value of 'y'" in out
    assert said in out
    assert (" is text" in out or "two values" in out or "--classify" in out) == bool(said)
    if labels is not None:
        assert set(predicted(path, table, capsys)[0]["prediction"]) <= labels


@pytest.mark.parametrize(
    ("kernel", "said"), [("rbf", "a width for each input, learned"), ("laplacian", "its width, learned")]
)
@pytest.mark.filterwarnings("ignore:RVR. The inputs have very different")
def test_widths_are_learned_unless_gamma_is_given(kernel, said, waves, tmp_path, capsys):
    path = tmp_path / "model"
    main(["fit", str(waves), *WAVES, "--kernel", kernel, "-o", str(path)])
    assert f"{kernel}, {said}" in capsys.readouterr().out
    x, z, y = columns(waves, "x", "z", "y")
    X = np.column_stack([x, z])
    expected = RVR(kernel, random_state=0).fit(X, y)
    np.testing.assert_allclose(sparsebayes.load(path).predict(X), expected.predict(X), rtol=1e-9)


def test_the_number_of_candidates_can_be_given(waves, capsys):
    fit(waves, *WAVES, "--candidates", "9")
    assert re.search(r": [1-9] of 9 functions", capsys.readouterr().out)


def test_of_many_rows_a_fifth_is_left_out(waves, capsys, monkeypatch):
    monkeypatch.setattr(report, "MAX_ROWS_OF_FOLDS", 79)
    fit(waves, *WAVES)
    assert re.search(r"^left out +16 rows", capsys.readouterr().out, re.MULTILINE)


def test_long_work_reports_progress(waves, capsys, monkeypatch):
    monkeypatch.setattr(cli_fit, "_LINE_SECONDS", 0.0)
    fit(waves, *WAVES)
    assert "sparsebayes: fitting all rows but part 5 of 5, " in capsys.readouterr().err
    fit(waves, *WAVES, "-q")
    assert capsys.readouterr() == ("", "")


def test_tables_and_models_can_be_piped(mixed, capfdbinary, monkeypatch):
    def run(arguments: list[str], content: bytes) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(arguments) == 0
        return capfdbinary.readouterr().out

    content = mixed.read_bytes()
    model = run(["fit", "-", "--target", "y", "--gamma", "scale", "-o", "-"], content)
    path = mixed.with_name("piped.safetensors")
    path.write_bytes(model)
    assert fit(mixed, "--target", "y")[1].read_bytes() == model
    capfdbinary.readouterr()
    assert run(["predict", str(path), "-"], content) == run(["predict", "-", str(mixed)], model)


def test_error_bars_are_written(waves, tmp_path, capsys):
    out = tmp_path / "out.csv"
    code, path = fit(waves, *WAVES, gamma="1e-8")
    assert code == 0
    assert "noise" in capsys.readouterr().out
    assert main(["predict", str(path), str(waves), "-o", str(out)]) == 0
    found = read_csv(out.read_text())
    assert list(found) == ["prediction", "std"]
    assert min(map(float, found["std"])) > 0.05


def test_columns_are_found_by_name(waves, tmp_path, capsys):
    path = fit(waves, *WAVES)[1]
    z, x = columns(waves, "z", "x")
    swapped = write_csv(tmp_path / "swapped.csv", ["z", "x"], np.column_stack([z, x]).tolist(), ";")
    assert predicted(path, swapped, capsys) == predicted(path, waves, capsys)


@pytest.mark.parametrize("kernel", cli_fit._KERNELS)
def test_models_of_every_kernel_can_be_served(kernel, waves, capsys):
    _, path = fit(waves, *WAVES, "--kernel", kernel)
    assert len(predicted(path, waves, capsys)[0]["prediction"]) == 80


def test_inputs_that_do_not_matter_may_be_missing(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (120, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    table = write_csv(tmp_path / "t.csv", ["a", "b", "c", "y"], np.column_stack([X, y]).tolist())
    _, path = fit(table, "--target", "y", gamma="ard")
    unused = np.flatnonzero(np.isinf(RVR(random_state=0).fit(X, y).kernel_.width)).tolist()
    assert unused
    capsys.readouterr()
    whole, _ = predicted(path, write_csv(tmp_path / "n.csv", ["a", "b", "c"], X.tolist()), capsys)
    gaps = [["" if k in unused else value for k, value in enumerate(x)] for x in X]
    found, complaints = predicted(path, write_csv(tmp_path / "g.csv", ["a", "b", "c"], gaps), capsys)
    assert found == whole
    assert complaints == ""
    kept = [k for k in range(3) if k not in unused]
    fewer = write_csv(tmp_path / "f.csv", ["abc"[k] for k in kept], X[:, kept].tolist())
    assert predicted(path, fewer, capsys)[0] == whole


def test_texts_that_mean_missing_values_are_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[["DE", "FR", "NA", ""][k % 4], x, x + (k % 4)] for k, x in enumerate(rng.normal(size=60))]
    fit(write_csv(tmp_path / "t.csv", ["country", "x", "y"], rows), "--target", "y")
    said = capsys.readouterr().out
    assert "an input for each of DE, FR; all 0 in 30 rows without a value (NA means a missing value)" in said


def test_texts_like_dates_can_be_levels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    codes, x = rng.choice(["10-11-20", "12-10-24", "11-12-21"], 90), rng.normal(size=90)
    rows = [[code, a, a + 3.0 * (code == "12-10-24")] for code, a in zip(codes, x, strict=True)]
    table = write_csv(tmp_path / "t.csv", ["part", "x", "y"], rows)
    code, _ = fit(table, "--target", "y", "--text", "part", "--drop", "x")
    assert "'part' is text: an input for each of" in capsys.readouterr().out
    code, _ = fit(table, "--target", "part", "--classify")
    assert code in (0, 3)
    assert "its values are classes" in capsys.readouterr().out


def test_the_command_line_starts_without_scikit_learn():
    code = (
        "import sys, sparsebayes._cli; print([name for name in ('sklearn', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_predictions_read_dates_in_the_order_of_the_fit(tmp_path, capsys):
    days = np.datetime64("2024-01-01") + np.arange(90)
    us = [f"{d.month}/{d.day}/{d.year}" for d in days.astype(object)]
    _, path = fit(
        write_csv(tmp_path / "t.csv", ["when", "y"], list(zip(us, range(90), strict=True))), "--target", "y"
    )
    assert "the inputs days(when, month/day), weekday(when, month/day)" in capsys.readouterr().out
    found, _ = predicted(path, write_csv(tmp_path / "n.csv", ["when"], [["3/4/2024"]]), capsys)
    assert float(found["prediction"][0]) == pytest.approx(63.0, abs=1.0)  # the fourth of March


def test_times_are_no_dates_of_a_model(tmp_path, capsys):
    days = np.datetime64("2024-01-01") + np.arange(40)
    rows = [[str(day), k % 9] for k, day in enumerate(days)]
    _, path = fit(write_csv(tmp_path / "t.csv", ["when", "y"], rows), "--target", "y")
    new = write_csv(tmp_path / "n.csv", ["when"], [["12:30"]])
    assert main(["predict", str(path), str(new)]) == 1
    assert "'12:30' in row 1, a time without a date" in capsys.readouterr().err


def test_names_with_dollars_are_drawn_as_they_are(waves, tmp_path):
    pytest.importorskip("matplotlib")
    page, table = tmp_path / "page.html", tmp_path / "dollars.csv"
    table.write_text(waves.read_text().replace("x,z,y", "$\\frac{$,US$ to A$,y", 1))
    code, _ = fit(table, *WAVES, "--report", str(page), gamma="ard")
    assert code == 0
    assert "US$ to A$" in page.read_text()
    assert "$\\frac{$" in page.read_text()


def test_columns_that_hardly_vary_are_left_out_of_the_comparison(waves, tmp_path, capsys):
    lines = waves.read_text().splitlines()
    train = train_test_split(np.arange(80), train_size=53, test_size=27, random_state=0)[0]
    rows = [f"{line},{0.1 if k in train else 5.0}" for k, line in enumerate(lines[1:])]
    table = tmp_path / "constant.csv"
    table.write_text("\n".join([lines[0] + ",c", *rows, ""]))
    found = compared(table, *WAVES, capsys=capsys)
    assert float(found["Gaussian process"][0]) > 0.9


def test_a_text_whose_input_left_the_model_is_known(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [
        [x, city, 3.0 * (city == "Oslo") + x]
        for x, city in zip(rng.normal(size=90), 30 * ["Oslo", "Rome", "Bern"], strict=True)
    ]
    table = write_csv(
        tmp_path / "t.csv", ["x", "city", "y"], [[*row[:2], row[2] + 0.3 * rng.normal()] for row in rows]
    )
    _, path = fit(table, "--target", "y", gamma="ard")
    assert len(sparsebayes.load(path).feature_names_in_) == 4
    capsys.readouterr()
    assert predicted(path, table, capsys)[1] == ""


def copies(n=150, times=4):
    """Rows that are there several times, of a target that is mostly noise."""
    rng = np.random.default_rng(0)
    rows = [[*x, x[0] + rng.normal()] for x in rng.normal(size=(n, 3)).tolist()]
    return [row for row in rows for _ in range(times)]


def test_copies_have_a_note_and_are_left_out_together(tmp_path, capsys):
    path = write_csv(tmp_path / "t.csv", ["a", "b", "c", "y"], copies())
    fit(path, "--target", "y", gamma="ard")
    said = capsys.readouterr().out
    assert "note          450 of 600 rows repeat others exactly: if they are copies, remove them" in said
    # The share of the variance that a explains is one half.
    assert float(re.search(r"each left out of a fit: R\^2 (-?[\d.]+)", said)[1]) < 0.6
    assert "predicted better" not in said
    main(["compare", str(path), "--target", "y", "-q"])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("RVR"))
    # R^2 of the 200 rows that were not fitted. With copies on both sides it would be 0.99.
    assert float(row.split()[1]) < 0.75


def test_each_class_is_fitted_although_its_rows_are_copies(tmp_path, capsys):
    rows = [[x, "a" if x > 0 else "b"] for x in np.random.default_rng(0).normal(size=40)]
    path = write_csv(tmp_path / "t.csv", ["x", "kind"], rows + 4 * [[9.0, "c"]])
    assert fit(path, "--target", "kind", gamma="ard")[0] in (0, 3)
    assert "left out      44 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "others", "is_noted"),
    [(-999, (100, 300), True), (99, (1, 7), True), (99, (60, 120), False), (0, (100, 300), False)],
)
def test_a_code_for_missing_values_has_a_note(tmp_path, capsys, code, others, is_noted):
    rng = np.random.default_rng(0)
    values = np.where(rng.uniform(size=80) < 0.1, code, rng.uniform(*others, size=80))
    rows = [[a, v, a + 0.1 * rng.normal()] for a, v in zip(rng.normal(size=80), values, strict=True)]
    fit(write_csv(tmp_path / "t.csv", ["a", "v", "y"], rows), "--target", "y")
    note = f"'v' is {code} in {(values == code).sum()} rows, far from its other values"
    assert (note in capsys.readouterr().out) == is_noted


def test_several_codes_and_those_of_the_target_have_notes(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=60)
    codes = np.where(np.arange(60) < 4, 9999, np.where(np.arange(60) < 10, -999, 5))
    rows = [[a, c, c if c == -999 else 1e-3 * a] for a, c in zip(x, codes, strict=True)]
    fit(write_csv(tmp_path / "t.csv", ["x", "v", "y"], rows), "--target", "y")
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "'v' is 9999 in 4 rows and -999 in 6 rows, far from its other values, which are all the same" in said
    )
    assert "'y' is -999 in 6 rows, far from its other values: if that means a missing value" in said


def test_error_bars_that_do_not_fit_along_an_input_are_a_warning(tmp_path, capsys):
    # More rows than `diagnose` is for.
    rng = np.random.default_rng(0)
    rows = [[x, z, np.sin(x) + (0.1 + 0.2 * x) * rng.normal()] for x, z in rng.uniform(0, 10, (1500, 2))]
    fit(write_csv(tmp_path / "t.csv", ["x", "z", "y"], rows), "--target", "y", gamma="ard")
    said = capsys.readouterr().out
    assert "Error bars do not fit everywhere: 95 % intervals hold" in said
    assert "of the rows where 'x' is large" in said


def test_what_diagnose_finds_is_a_warning(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    rows = [[a, float(b)] for a, b in zip(x, np.exp(10.0 + x + 0.5 * rng.normal(size=300)), strict=True)]
    fit(write_csv(tmp_path / "t.csv", ["x", "income"], rows), "--target", "income", gamma="ard")
    said = re.search(
        "^warning +Error bars do not fit everywhere: (.*)", capsys.readouterr().out, re.MULTILINE
    )
    assert said is not None
    # With the options of the command, where there are such.
    assert "--likelihood gamma" in said[1]
    assert said[1].endswith("(noise_basis: only in Python)")


def test_names_in_a_warning_stay_as_they_are(tmp_path, capsys):
    names = ["input 1", "gamma='scale'", "kernel=x"]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [1.0, 1e-4, 1e5]
    rows = [[*row, np.sin(row[0])] for row in X]
    fit(write_csv(tmp_path / "t.csv", [*names, "y"], rows), "--target", "y")
    said = " ".join(capsys.readouterr().out.split())
    assert f"column {names[2]!r} has the standard deviation" in said
    assert f", column {names[1]!r} " in said
    assert "--gamma ard learns its widths" in said
    advice = f"where {names[0]!r} is large. Give {names[1]} or {names[1]!r} and noise_basis='linear'"
    expected = f"where 'input 1' is large. Give --gamma scale or {names[1]!r} and noise_basis='linear'"
    assert cli_fit._for_command(advice, names) == f"{expected} (noise_basis: only in Python)"


def test_counts_have_a_note(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[x, rng.poisson(np.exp(x))] for x in rng.normal(size=60)]
    fit(write_csv(tmp_path / "t.csv", ["x", "y"], rows), "--target", "y")
    assert "if 'y' counts events, --likelihood poisson" in capsys.readouterr().out


@pytest.fixture
def calls(tmp_path: Path) -> tuple[Path, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Counts that belong to different times, as CSV; with the inputs, the times and the counts."""
    rng = np.random.default_rng(0)
    X, hours = rng.normal(size=(80, 2)), rng.uniform(0.5, 20.0, 80)
    y = rng.poisson(hours * np.exp(np.sin(2.0 * X[:, 0]))).astype(np.float64)
    path = write_csv(
        tmp_path / "calls.csv", ["a", "b", "hours", "calls"], np.column_stack([X, hours, y]).tolist()
    )
    return path, X, hours, y


CALLS = ["--target", "calls", "--exposure", "hours"]


@pytest.mark.parametrize(
    ("kernel", "gamma", "likelihood"),
    [
        ("rbf", "ard", "poisson"),
        ("rbf", "scale", "negative_binomial"),
        ("linear", "scale", "poisson"),
        ("poly", "scale", "poisson"),
        ("linear_spline", "scale", "poisson"),
    ],
)
def test_a_model_file_has_the_exposure_as_an_input(kernel, gamma, likelihood, calls, capsys):
    table, X, hours, y = calls
    code, path = fit(table, *CALLS, "--likelihood", likelihood, "--kernel", kernel, gamma=gamma)
    assert code == 0
    model = RVR(kernel, gamma=gamma, likelihood=likelihood, random_state=0).fit(X, y, exposure=hours)
    mean, std = model.predict(X, return_std=True, exposure=hours)
    assert re.search(
        f"leave-one-out D.2 {model.summary().lines['leave-one-out'][4:10]}", capsys.readouterr().out
    )
    found, _ = predicted(path, table, capsys)
    np.testing.assert_allclose([float(cell) for cell in found["prediction"]], mean, rtol=1e-9)
    np.testing.assert_allclose([float(cell) for cell in found["std"]], std, rtol=1e-6)
    served = sparsebayes.load(path)
    assert list(served.feature_names_in_) == ["a", "b", "log_exposure(hours)"]
    np.testing.assert_allclose(served.predict(np.column_stack([X, np.log(hours)])), mean, rtol=1e-9)


def test_rows_left_out_of_a_fit_of_counts_have_their_exposures(calls, capsys):
    table, *_ = calls
    fit(table, *CALLS, "--likelihood", "poisson", gamma="ard")
    said = re.search(r"left out .* D\^2 ([\d.]+), .* hold ([\d.]+) %", capsys.readouterr().out)
    assert float(said[1]) > 0.6
    assert 85 < float(said[2]) <= 100
    compared_with = compared(table, *CALLS, "--likelihood", "poisson", capsys=capsys)
    assert float(compared_with["RVR"][3]) > float(compared_with["one rate"][3])
    assert "failed" not in str(compared_with)


def test_rows_without_an_exposure_are_left_out(calls, capsys):
    table, *_ = calls
    lines = table.read_text().splitlines()
    cells = lines[1].split(",")
    lines[1] = ",".join([*cells[:2], "", cells[3]])
    table.write_text("\n".join(lines))
    _, path = fit(table, *CALLS, "--likelihood", "poisson")
    assert "left out 1 row without a value of 'hours'" in capsys.readouterr().out
    found, said = predicted(path, table, capsys)
    assert (found["prediction"][0], "lack a value of hours" in said) == ("", True)
    assert main(["predict", str(path), str(table), "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_a_likelihood_makes_the_target_numbers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[x, rng.binomial(1, 0.3)] for x in rng.normal(size=60)]
    fit(write_csv(tmp_path / "t.csv", ["x", "y"], rows), "--target", "y", "--likelihood", "poisson")
    assert capsys.readouterr().out.startswith("RVR on 60 rows")


def test_a_code_among_classes_has_a_note(tmp_path, capsys):
    rng = np.random.default_rng(0)
    kinds = np.where(np.arange(80) < 6, -999, rng.integers(0, 3, 80))
    table = write_csv(tmp_path / "t.csv", ["a", "kind"], [[k + rng.normal(), k] for k in kinds])
    fit(table, "--target", "kind", "--classify")
    assert "'kind' is -999 in 6 rows, far from its other values" in capsys.readouterr().out


def test_a_fit_that_did_not_converge_has_its_own_exit_code(tmp_path, capsys):
    # Without noise there is no optimum for the noise level.
    X = np.linspace(-1, 1, 30)
    table = write_csv(tmp_path / "line.csv", ["x", "y"], [[x, 2 * x] for x in X])
    path = tmp_path / "model.safetensors"
    code = main(["fit", str(table), "--target", "y", "--kernel", "linear", "-o", str(path)])
    assert (code, path.exists()) == (3, True)
    assert "noise_floor" in capsys.readouterr().out


def table(header, line, n=9):
    """Return a CSV file; ``line`` is formatted with x = 0, 1, ... and the parity p of x."""
    return "\n".join([header, *(line.format(x=x, p=x % 2, square=x * x) for x in range(n)), ""])


X10 = "".join(f"{x},{x % 3}.5,{x * x}\n" for x in (5, 3, 8, 1, 9, 2, 7, 4, 6, 0))
#: Content of a file (None: it does not exist), arguments, and parts of the message.
MISTAKES = {
    "no file": (None, [], ["cannot read"]),
    "no target": ("x,y\n1,2\n3,4\n", ["--target", "q"], ["has no column 'q'; it has x, y"]),
    "ragged": ("x,y\n1,2,3\n1,2\n", [], ["row 1 of", "3 values where the first line has 2 names"]),
    "no header": ("1,2\n3,4\n", [], ["has to name the columns"]),
    "empty": ("", [], ["is empty"]),
    "no rows": ("x,y\n", [], ["holds no rows"]),
    "few rows": ("x,y\n1,2\n3,5\n", [], ["has 2 rows to learn from"]),
    "workbook": ("PK\x03\x04", [], ["save the table as CSV"]),
    "binary": ("x,y\n\x00", [], ["is not a CSV file"]),
    "twice": ("x,x,y\n1,2,3\n", [], ["more than one column 'x'"]),
    "nothing to predict from": ("y\n1\n2\n4\n8\n9\n", [], ["no column to predict from"]),
    "one target": (table("x,y", "{x},3"), [], ["column 'y'", "nothing to predict"]),
    "one target and gaps": (
        table("x,y", "{x},yes") + "10,NA\n11,\n",
        [],
        ["is yes in all rows", "left out 2 rows without a value of 'y' (NA means a missing value)"],
    ),
    "few targets": ("x,y\n1,2\n3,5\n4,?\n", [], ["has 2 rows to learn from", "left out 1 row", "(? means a"]),
    "no targets": ("x,y\n1,\n2,NA\n", [], ["column 'y'", "holds no values"]),
    "typing error": ("x,z,y\n1,one,5\n" + X10, [], ["'z'", "'one' in row 1", "--text z", "--drop z"]),
    "typing error in y": ("x,z,y\n1,1,five\n" + X10, [], ["'y'", "'five' in row 1", "--classify"]),
    "thousands": (table("x,y", '"1{x},000",{x}'), [], ["'10,000' in row 1", "between thousands"]),
    "two decimal signs": (
        table("x;z;y", "1{x}.100;{x},5;{x}"),
        [],
        ["'10.100' in row 1", "has decimal commas"],
    ),
    "infinity": ("x,z,y\n1,-inf,5\n" + X10, [], ["'z'", "'-inf' in row 1", "leave the cell empty"]),
    "infinities": ("x,z,y\n1,inf,5\n1,inf,5\n" + X10, [], ["'z'", "'inf' in row 1", "leave the cell empty"]),
    "damaged dates": (
        table("x,y", "2024-01-1{x} 12:30,{x}") + "soon,11\n",
        [],
        ["'soon' in row 10", "where most rows hold dates", "--drop x"],
    ),
    "no such day": (table("x,y", "2023-02-{x}9,{x}"), [], ["'2023-02-29' in row 3", "dates"]),
    "day or month": (table("x,y", "{x}/1/2024,{x}"), [], ["'0/1/2024' in row 1"]),
    "day or month first": (
        table("x,y", "1/{x}/2024,{x}").replace("1/0/", "1/9/"),
        [],
        ["'1/9/2024' in row 1", "write dates as 2024-01-31"],
    ),
    "target of dates": (table("x,y", "{x},1{x}.12.2024"), [], ["'y'", "date"]),
    "many texts": (table("x,y", "n{x},{x}"), [], ["'x'", "9 different texts", "--drop x", "--keep x"]),
    "sign in a name": (table("a=b,y", "n{p},{x}"), [], ["without the sign '='"]),
    "level like a column": (table("a,a=n0,y", "n{p},{square},{x}"), [], ["'a=n0'", "rename"]),
    "text as numbers": (table("x,y", "{x},a{p}"), ["--regress"], ["'y'", "'a0' in row 1"]),
    "numbers as classes": ("x,z,y\n" + X10, ["--classify", "--target", "z"], ["'z'", "not an integer label"]),
    "a class of one row": (table("x,y\n9,b", "{square},a"), [], ["class 'b'", "has one row"]),
    "gamma": ("x,z,y\n" + X10, ["--gamma", "-1"], ["gamma must be"]),
    "candidates": ("x,z,y\n" + X10, ["--candidates", "0"], ["candidates must be"]),
    "likelihood of classes": (
        "x,z,y\n" + X10,
        ["--likelihood", "poisson", "--classify"],
        ["--likelihood", "leave out", "--classify"],
    ),
    "target outside": (
        "x,y\n1,-2\n2,5\n3,4\n4,1\n5,2\n",
        ["--likelihood", "poisson"],
        ["column 'y'", "must not be negative", "with --likelihood poisson"],
    ),
    "exposure of numbers": ("x,z,y\n" + X10, ["--exposure", "z"], ["--exposure needs --likelihood poisson"]),
    "exposure of itself": (
        "x,z,y\n" + X10,
        ["--likelihood", "poisson", "--exposure", "y"],
        ["--exposure must be another column than the target, got 'y' twice"],
    ),
    "no such exposure": (
        "x,z,y\n" + X10,
        ["--likelihood", "poisson", "--exposure", "q"],
        ["no column 'q'; it has x, z, y"],
    ),
    "exposure of 0": (
        "x,z,y\n" + X10 + "1,0,2\n",
        ["--likelihood", "poisson", "--exposure", "z"],
        ["column 'z'", "holds '0' in row 11", "not positive"],
    ),
    "no folder": ("x,z,y\n" + X10, ["-o", "/nowhere/model"], ["no folder /nowhere"]),
}


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["1970-01-01", "2024-1-31", None], [0, 19753, np.nan]),
        (["2024/01/31", "2024.02.29"], [19753, 19782]),
        (["2024-01-31T12:00:00Z", "2024-01-31 06:00+02:00"], [19753.5, 19753 + 4 / 24]),
        (["31/1/2024", "5/2/2024"], [19753, 19758]),
        (["1/31/2024 6:00 pm", "2/5/2024 12:00 am"], [19753.75, 19758]),
        (["31.01.2024", "05.02.2024"], [19753, 19758]),
        (["31-Jan-2024", "1 March 1970"], [19753, 59]),
        (["Jan. 31, 2024", "March 1 1970"], [19753, 59]),
        (["12/31/99", "1/1/70"], [10956, 0]),
        (["31.12.99", "01-Jan-70"], [10956, 0]),
        (["9999-12-31T23:59:59-05:00"], [2932896 + 86399 / 86400 + 5 / 24]),
        (["06:00", "18:30:36.0"], [0.25, 18.51 / 24]),
    ],
)
def test_dates_and_times_are_days_since_1970(cells, days):
    np.testing.assert_allclose(days_since_1970(cells), days, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "cells",
    [
        *(["2024-02-30"], ["2024-01-01", "12:30"], ["25:00"], ["24:59"], ["12:61"], ["13:30 pm"]),
        *(["1 Foo 2024"], ["Marble 3 2024"], ["3.10.12"], ["soon"]),
    ],
)
def test_other_texts_are_not_dates(cells):
    assert days_since_1970(cells) is None


def test_dates_that_begin_with_the_day_or_the_month_are_refused():
    with pytest.raises(AmbiguousDateError):
        days_since_1970(["3/4/2024", "5/6/2024"])


def test_parts_of_dates_are_those_of_the_calendar():
    days = pd.date_range("1969-11-30 05:00", "2024-03-01", periods=500)
    numbers = days_since_1970([str(day) for day in days])
    for name, values in {"yearday": days.day_of_year, "weekday": days.day_of_week}.items():
        np.testing.assert_array_equal(PARTS[name](numbers), values)
    hours = days.hour + days.minute / 60 + days.second / 3600 + days.microsecond / 3.6e9
    np.testing.assert_allclose(PARTS["hour"](numbers), hours, atol=1e-6)


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        (["2024-01-01", "2024-01-09"], ["days"]),
        (["2024-01-01", "2024-03-09"], ["days", "weekday"]),
        (["2022-01-01", "2024-03-08 12:00"], ["days", "yearday", "weekday", "hour"]),
        (["2022-01-01 01:00", "2024-03-09 01:00"], ["days", "yearday"]),
        (["06:00", "18:00"], ["hour"]),
    ],
)
def test_dates_give_the_inputs_that_differ(cells, parts):
    assert parts_of(days_since_1970(cells)) == parts


def test_dates_are_inputs_of_a_fit_and_of_predictions(tmp_path, capsys):
    days = np.random.default_rng(0).permutation(np.arange("2021-01-01", "2022-06-01", dtype="M8[D]"))[:200]
    weekday = (days.astype(int) + 3) % 7
    rows = [[day, 1 + 5 * (k >= 5)] for day, k in zip(days, weekday, strict=True)]
    table = write_csv(tmp_path / "days.csv", ["when", "y"], [[*rows[0][:1], 1.5], *rows, ["", 2.5]])
    code, path = fit(table, "--target", "y", gamma="ard")
    said = capsys.readouterr().out
    assert code == 0
    assert "'when' is a date or time: the inputs days(when), yearday(when), weekday(when)" in said
    assert re.search(r"^inputs +weekday\(when\) 1", said, re.MULTILINE)
    new = write_csv(tmp_path / "new.csv", ["when"], [["2022-06-04"], ["2022-06-06"], [""]])
    found, complaints = predicted(path, new, capsys)
    np.testing.assert_allclose([float(cell) for cell in found["prediction"][:2]], [6.0, 1.0], atol=0.5)
    assert found["prediction"][2] == ""
    assert "1 of 3 rows lack a value" in complaints
    new.write_text("when\nsoon\n")
    assert main(["predict", str(path), str(new)]) == 1
    assert "'soon' in row 1, which is not a date or time" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_report_is_a_page_without_a_network(kind, waves, iris, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    table, arguments = (waves, WAVES) if kind == "numbers" else (iris, ["--target", "kind"])
    code, _ = fit(table, *arguments, "--report", str(page), gamma="ard")
    assert code == 0
    said = capsys.readouterr().out
    assert f"report        {page}" in said
    text = page.read_text(encoding="utf-8")
    shown = ElementTree.fromstring(re.sub(r"<meta [^>]*>|<!DOCTYPE html>", "", text))
    assert len(shown.findall(".//figure")) == (3 if kind == "numbers" else 2)
    words = " ".join(shown.itertext())
    assert re.search("left out +(.*)", said)[1] in words
    assert "Inputs that matter" in words
    assert not re.search(r'(src|href)="(?!#)', text)
    first = text
    fit(table, *arguments, "--report", str(page), gamma="ard")
    assert page.read_text(encoding="utf-8") == first
    if kind == "classes":
        counts = [[int(cell.text) for cell in row.findall("td")] for row in shown.findall(".//table")[1]]
        assert np.sum(counts[1:]) == 150
        assert np.trace(counts[1:]) >= 140


def test_a_report_repeats_notes_and_warnings(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    y = np.random.default_rng(0).normal(size=60)
    rows = [[1 + i, "<b>", x, t] for i, (x, t) in enumerate(zip(y[::-1], y, strict=True))]
    table, page = write_csv(tmp_path / "noise.csv", ["id", "same", "x", "y"], rows), tmp_path / "page.html"
    fit(table, "--target", "y", "-q", "--report", str(page))
    assert capsys.readouterr() == ("", "")
    text = page.read_text(encoding="utf-8")
    assert "left out &#x27;same&#x27;, which is the same in all rows" in text
    assert "predicts rows left out no better than the mean" in text


def test_a_report_without_matplotlib_or_folder_is_refused_before_a_fit(waves, tmp_path, capsys, monkeypatch):
    code, path = fit(waves, *WAVES, "--report", "/nowhere/page.html")
    assert code == 1
    assert "cannot write the report to /nowhere/page.html" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, path = fit(waves, *WAVES, "--report", str(tmp_path / "page.html"))
    assert code == 1
    assert "pip install 'sparsebayes[plot]'" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(
    ("command", "what", "other"),
    [
        ("fit waves.csv --target y -o waves.csv", "the model", "the table to learn from"),
        ("fit waves.csv --target y -o soft", "the model", "the table to learn from"),
        ("fit soft --target y -o hard", "the model", "the table to learn from"),
        ("fit waves.csv --target y -o m --report ./waves.csv", "the report", "the table to learn from"),
        ("fit waves.csv --target y -o new --report ./new", "the report", "the model"),
        ("predict waves.safetensors waves.csv -o waves.safetensors", "the predictions", "the model"),
        ("predict waves.safetensors waves.csv -o hard", "the predictions", "the table to predict"),
    ],
)
def test_no_file_is_both_read_and_written_or_written_twice(command, what, other, waves, capsys, monkeypatch):
    fit(waves, *WAVES)
    monkeypatch.chdir(waves.parent)
    Path("soft").symlink_to("waves.csv")
    Path("hard").hardlink_to("waves.csv")
    before = {file: file.read_bytes() for file in Path().iterdir()}
    assert main(command.split()) == 1
    path = command.split()[-1]
    expected = f"cannot write {what} to {path}: {other} is the same file; give another name"
    assert expected in capsys.readouterr().err
    assert {file: file.read_bytes() for file in Path().iterdir()} == before


def test_a_device_may_take_several_outputs():
    check_outputs({"one": os.devnull, "the other": os.devnull}, {})


def compared(table: Path, *arguments: str, capsys) -> dict[str, list[str]]:
    """Return the cells of the lines of `sparsebayes compare`, by name of the model."""
    assert main(["compare", str(table), "-q", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:26].strip(): line[26:].split() for line in lines}


def test_models_are_compared_on_the_same_rows(waves, capsys):
    found = compared(waves, *WAVES, capsys=capsys)
    x, z, y = columns(waves, "x", "z", "y")
    X = np.column_stack([x, z])
    train, test = train_test_split(np.arange(80), train_size=53, test_size=27, random_state=0)
    model = RVR(random_state=0).fit(X[train], y[train])
    mean, std = model.predict(X[test], return_std=True)
    inside = 100 * np.mean(abs(y[test] - mean) < 1.959964 * std)
    density = norm(mean, std).logpdf(y[test]).mean()
    score, held, _, log_density, functions = found["RVR"][:5]
    assert float(score) == pytest.approx(r2_score(y[test], mean), abs=6e-4)
    assert float(held) == pytest.approx(inside, abs=0.06)
    assert float(log_density) == pytest.approx(density, abs=6e-4)
    assert int(functions) == len(model.active_)
    assert float(found["Gaussian process"][0]) > 0.9
    assert float(found["SVM, grid search"][0]) > 0.9
    assert float(found["the mean"][0]) < 0.05


def test_classes_are_compared_by_wrong_labels_and_log_loss(iris, capsys):
    found = compared(iris, "--target", "kind", "--rows", "60", capsys=capsys)
    # Three classes, some 30 rows of each are left; two rows are equal, and so together.
    wrong, _, entropy = found["the shares of the classes"][:3]
    assert float(wrong) == pytest.approx(66.7, abs=0.5)
    assert entropy == "1.099"
    for name in ("RVC", "SVM, grid search", "Gaussian process"):
        wrong, _, loss, functions, _ = found[name]
        assert float(wrong) < 10.0
        assert 0.0 < float(loss) < 0.5
        assert 1 <= int(functions) <= 60


def test_a_model_that_fails_does_not_hide_the_others(waves, capsys, monkeypatch):
    class Fails:
        def fit(self, X, y):
            raise RuntimeError("out of order")

    monkeypatch.setattr(cli_compare, "peers", lambda *_, **__: {"broken": Fails()})
    assert main(["compare", str(waves), "-q", *WAVES]) == 0
    said = capsys.readouterr().out
    assert re.search("^broken +failed: out of order", said, re.MULTILINE)
    assert re.search(r"^RVR +0\.9", said, re.MULTILINE)


def test_a_comparison_of_few_rows_is_refused(waves, iris, capsys):
    assert main(["compare", str(waves), *WAVES, "--rows", "4"]) == 1
    assert "--rows must be 5 or more" in capsys.readouterr().err
    names = "abcdefgh"
    table = iris.with_name("rare.csv")
    write_csv(table, ["x", "kind"], [[x, names[x % 8]] for x in range(64)])
    assert main(["compare", str(table), "--target", "kind", "--keep", "x", "--rows", "5"]) == 1
    assert "do not hold all 8 classes" in capsys.readouterr().err


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name, tmp_path, capsys):
    content, arguments, complaints = MISTAKES[name]
    file, path = tmp_path / "table.csv", tmp_path / "model.safetensors"
    if content is not None:
        file.write_text(content)
    assert main(["fit", str(file), "--target", "y", "-o", str(path), *arguments]) == 1
    said = capsys.readouterr()
    for complaint in complaints:
        assert complaint in said.err
    assert said.err.startswith("sparsebayes: ")
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("x\n1\n", "has no column 'city'"), ("x,city\none,Rome\n", "'one' in row 1")],
)
def test_a_table_without_the_columns_of_the_model_is_named(content, complaint, mixed, tmp_path, capsys):
    _, path = fit(mixed, "--target", "y")
    table = tmp_path / "new.csv"
    table.write_text(content)
    assert main(["predict", str(path), str(table)]) == 1
    assert complaint in capsys.readouterr().err


def test_damaged_and_missing_models_and_unknown_commands_are_refused(tmp_path, capsys, iris):
    assert main(["predict", str(tmp_path / "none"), str(iris)]) == 1
    assert "none: No such file" in capsys.readouterr().err
    (tmp_path / "bad").write_bytes(b"not a model")
    assert main(["predict", str(tmp_path / "bad"), str(iris)]) == 1
    assert "bad" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["fly"])
    assert "invalid choice" in capsys.readouterr().err


def test_it_runs_as_a_module_and_survives_a_closed_pipe(iris):
    path = fit(iris, "--target", "kind", "-q")[1]
    command = [sys.executable, "-m", "sparsebayes", "predict", str(path), str(iris)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_likelihoods_are_those_of_the_estimators():
    """The command line lists them again, as their module needs SciPy."""
    assert set(cli_fit.LIKELIHOODS) == set(OF_NUMBERS)
    with_exposure = {name for name in OF_NUMBERS if row_likelihood(name).link != "identity"}
    assert set(cli_fit._WITH_EXPOSURE) == with_exposure
