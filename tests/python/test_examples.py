"""The examples run and give the results they describe."""

import subprocess
import sys
from pathlib import Path

import sparsebayes

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *options):
    command = [sys.executable, "-W", "error", EXAMPLES / name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_log_odds_of_the_rvm_are_nearer_to_the_truth_than_those_of_the_svm(tmp_path):
    picture = tmp_path / "odds.svg"
    heading, rvm, svm, truth, *_ = run("log_odds.py", "--rows", "300", "--picture", picture)
    assert heading.split()[0] == "method"
    # From the right: log-loss, %, error, largest and rms log odds in the overlap, functions.
    rvm, svm, truth = (row.split() for row in (rvm, svm, truth))
    assert int(rvm[-6]) < int(svm[-6]) / 5
    assert float(truth[-5]) == 0.0 < float(rvm[-5]) < float(svm[-5]) / 2
    # The log-loss of the truth is half of ln 2.
    assert 0.33 < float(truth[-1]) < float(rvm[-1]) < float(svm[-1])
    assert "<svg" in picture.read_text()


def test_growing_error_bars_have_a_smaller_loss_in_a_gap(tmp_path):
    picture = tmp_path / "error-bars.svg"
    _, among, gap, *_ = run("error_bars.py", "--draws", "6", "--picture", picture)
    (inside, inside_full), (plain, full) = (map(float, row[-18:].split()) for row in (among, gap))
    assert abs(inside - inside_full) < 0.05
    assert full < plain - 0.2
    assert "<svg" in picture.read_text()


def test_digits_fit_a_chip_with_an_rvm_but_not_with_an_svm(tmp_path):
    header = tmp_path / "digits.h"
    _, rvc, mrvm, svm, *_ = run("digits_on_a_chip.py", "--splits", "1", "--header", header)
    # Functions, error, %, bytes; microseconds where there is a compiler.
    rvc, mrvm, svm = (row.split()[1:5] for row in (rvc, mrvm, svm))
    for functions, error, _, size in (rvc, mrvm):
        assert int(functions) < int(svm[0]) / 4
        assert 0.0 < float(error) < 6.0
        assert 1000 < int(size) < 65536 / 4 < int(svm[3])
    assert f"Constant data: {mrvm[3]} bytes" in header.read_text()


def test_probit_models_keep_few_rows(tmp_path):
    picture = tmp_path / "mrvm.svg"
    lines = run("mrvm.py", "--folds", "3", "--repeats", "1", "--picture", picture)
    _, *toy, blank, _, first, second = lines[:7]
    assert blank == ""
    for row in toy:
        _, vectors, _, accuracy, _, likelihood = row.split()
        assert 3 <= int(vectors) <= 14
        assert float(accuracy) > 90
        # A uniform guess has -ln 3.
        assert -0.5 < float(likelihood) < 0.0
    for row in (first, second):
        _, vectors, different, often = row.split()
        # Of 178 rows; three folds can have three times as many different ones as one.
        assert 2 <= float(vectors) <= 8
        assert int(often) <= int(different) <= 3 * float(vectors) + 0.2
    assert picture.stat().st_size < 200_000
    assert "<svg" in picture.read_text()


def test_the_model_of_the_service_knows_its_columns(tmp_path):
    path = tmp_path / "diabetes.safetensors"
    vectors, quality = run("service/train.py", path)
    served = sparsebayes.load(path)
    assert served.feature_names_in_.tolist()[:4] == ["age", "sex", "bmi", "bp"]
    assert served.n_functions_ <= int(vectors.split()[0]) + 1
    assert 0.3 < float(quality.split("R2")[1].split(",")[0]) < 0.6


def test_a_cluster_fits_both_models_where_the_rows_are():
    regression, classes, origin = run("dask_million.py", "--rows", "2000", "--centres", "25")
    for line, name in [(regression, "DaskRVR"), (classes, "DaskRVC")]:
        assert line.startswith(f"{name}: 2000 rows in ")
        assert 2 <= int(line.split(" functions")[0].split()[-1]) <= 25
    assert float(regression.split()[-1]) < 0.2
    assert float(classes.split()[-3]) > 80
    assert 0.4 < float(origin.split()[3].rstrip(",")) < 1.2
