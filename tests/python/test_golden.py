"""Model files of every format still give their predictions, and fits their evidences."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from sparsebayes import load

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("format-*/*.safetensors"))


def expected_of(path):
    """Return the labels and the tables of the text beside a model."""
    lines = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    n_classes = int(lines[0].split()[1])
    labels, at, tables = lines[1 : 1 + n_classes], 1 + n_classes, {}
    while at < len(lines):
        name, rows, columns = lines[at].split()
        body = [[float(number) for number in line.split()] for line in lines[at + 1 : at + 1 + int(rows)]]
        tables[name] = np.array(body).reshape(int(rows), int(columns))
        at += 1 + int(rows)
    return labels, tables


def test_there_are_golden_models():
    assert len(GOLDEN) >= 5


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models_of_every_format_give_their_predictions(path):
    model, (labels, tables) = load(path), expected_of(path)
    X = tables["x"]
    if labels:
        assert [str(label) for label in model.classes_] == labels
        predicted = model.predict_proba(X)
        np.testing.assert_array_equal(model.predict(X), model.classes_[tables["class"][:, 0].astype(int)])
        decision = model.decision_function(X).reshape(len(X), -1)
        np.testing.assert_allclose(decision, tables["decision"], rtol=1e-11, atol=1e-13)
    else:
        mean, std = model.predict_std(X)
        predicted = mean.reshape(len(X), -1)
        np.testing.assert_allclose(std.reshape(len(X), -1), tables["std"], rtol=1e-11)
    np.testing.assert_allclose(predicted, tables["predicted"], rtol=1e-11, atol=1e-13)


def golden_module(name):
    """Return the script of that name in tests/golden as a module."""
    spec = spec_from_file_location(f"golden_{name}", Path(__file__).parents[1] / "golden" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_evidences_are_those_of_the_last_release():
    golden = golden_module("evidences")
    frozen = json.loads(golden.PATH.read_text(encoding="utf-8"))
    found = {name: golden.numbers(model) for name, model in golden.fitted()}
    assert found.keys() == frozen.keys()
    moved = [
        f"{name}: evidence {frozen[name][0]:.3f} -> {evidence:.3f}, functions {frozen[name][1]} -> {count}"
        for name, (evidence, count) in found.items()
        if abs(evidence - frozen[name][0]) > golden.TOLERANCE
    ]
    assert not moved, "\n".join(moved)


def test_fitted_numbers_are_those_of_the_last_release():
    golden = golden_module("fitted")
    kept = json.loads(golden.PATH.read_text(encoding="utf-8"))
    seen = []
    for name, est, X, limits in golden.fitted():
        expected, found = kept[name]["numbers"], golden.numbers(est, X)
        assert kept[name]["tolerances"] == limits
        assert found.keys() == expected.keys()
        assert found["status"] == expected["status"] == "converged", name
        for quantity in expected.keys() - {"status"}:
            values, rtol = np.array(expected[quantity]), limits[quantity]
            # Logarithms are absolute; predictions are compared with the largest.
            atol = rtol * (1.0 if quantity == "log_alpha" else np.abs(values).max(initial=0.0))
            np.testing.assert_allclose(
                found[quantity], values, rtol=0, atol=atol, err_msg=f"{name} {quantity}"
            )
        seen.append(name)
    assert sorted(seen) == sorted(kept)
