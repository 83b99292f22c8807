"""Write the golden models of the current file format: small fitted models, and what they predict.

``PYTHONPATH=python python tests/golden/make.py`` writes them into format-N. A file that has been released
is never written again: later libraries must load it and predict the same. Beside each model lies a text of
plain numbers for readers in any language: the number of classes with their labels, then tables, each a line
with its name, rows and columns and a line for each row. The predictions are those of the fitted estimator
itself, not of the Predictor that was saved.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsebayes import MRVM1, RVC, RVR
from sparsebayes.kernels import Gaussian, Linear, OnColumns

Array = NDArray[Any]
HERE = Path(__file__).parent
#: Rows predicted: enough for a batch that goes side by side, some of it far from the data.
N_ROWS = 11


def rows(seed: int, n: int = 60) -> tuple[np.random.Generator, Array]:
    """Draw n rows of two inputs, and hand over the generator."""
    rng = np.random.default_rng(seed)
    return rng, rng.uniform(-3, 3, (n, 2))


def regression() -> tuple[Any, Array]:
    """One output on a kernel with a width for each input, and a linear trend in the second."""
    rng, X = rows(0)
    y = np.sinc(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(len(X))
    return RVR(kernel=Gaussian([1.2, 2.5]) + OnColumns(Linear(), [1])).fit(X, y), X


def one_input() -> tuple[Any, Array]:
    """The model of docs/rust-and-c.md, of which a part of the tests asks what that page does."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (200, 1))
    y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(200)
    return RVR(kernel=Gaussian(2.5)).fit(X, y), X


def outputs() -> tuple[Any, Array]:
    """Two outputs on the same functions, with a noise level each."""
    rng, X = rows(1)
    Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 1])]) + [0.05, 0.2] * rng.standard_normal((len(X), 2))
    return RVR(kernel=Gaussian(2.0)).fit(X, Y), X


def growing() -> tuple[Any, Array]:
    """Two outputs on two kernels, with error bars that grow away from the data."""
    rng, X = rows(5)
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.standard_normal((len(X), 2))
    return RVR(kernel=[Gaussian(2.0), OnColumns(Linear(), [1])], std="full").fit(X, Y), X


def two_classes() -> tuple[Any, Array]:
    """Two classes of a Bernoulli likelihood, with strings for labels."""
    rng, X = rows(2)
    inside = (X**2).sum(axis=1) + rng.standard_normal(len(X)) < 5
    return RVC(kernel=Gaussian(2.0)).fit(X, np.where(inside, "innen", "außen")), X


def three(seed: int) -> tuple[Array, Array]:
    """Three classes around three centres."""
    rng, X = rows(seed)
    centres = np.array([[-1.5, -1.0], [1.5, -1.0], [0.0, 1.5]])
    distance = ((X[:, None] - centres) ** 2).sum(axis=2) + rng.standard_normal((len(X), 3))
    return X, distance.argmin(axis=1)


def softmax() -> tuple[Any, Array]:
    """Three classes of a softmax, with whole numbers for labels."""
    X, y = three(3)
    return RVC(kernel=Gaussian(2.0), multi_class="softmax").fit(X, 10 * (y + 1)), X


def probit() -> tuple[Any, Array]:
    """Three classes of a multinomial probit."""
    X, y = three(4)
    return MRVM1(kernel=Gaussian(2.0)).fit(X, np.array(["a", "b", "c"])[y]), X


def expected(est: Any, X: Array) -> tuple[list[str], dict[str, Array]]:
    """Return labels and tables of what a fitted estimator predicts."""
    if not hasattr(est, "classes_"):
        mean, std = est.predict(X, return_std=True)
        return [], {"x": X, "predicted": mean, "std": std}
    proba = est.predict_proba(X)
    number = np.searchsorted(est.classes_, est.predict(X))
    tables = {"x": X, "predicted": proba, "decision": est.decision_function(X), "class": number}
    return [str(label) for label in est.classes_], tables


def text(labels: list[str], tables: dict[str, Array]) -> str:
    """Write labels and tables so that any language reads them, numbers with all their digits."""
    lines = [f"labels {len(labels)}", *labels]
    for name, table in tables.items():
        table = np.asarray(table, dtype=np.float64)
        table = table[:, None] if table.ndim == 1 else table
        lines.append(f"{name} {table.shape[0]} {table.shape[1]}")
        lines += [" ".join(f"{value:.17g}" for value in row) for row in table]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write each model that is not there yet."""
    for make in (regression, one_input, outputs, growing, two_classes, softmax, probit):
        est, X = make()
        version = json.loads(est.to_predictor()._core.header)["format_version"]
        folder = HERE / f"format-{version}"
        folder.mkdir(exist_ok=True)
        path = folder / f"{make.__name__}.safetensors"
        if path.exists():
            continue
        est.save(path)
        new = np.vstack([X[: N_ROWS - 1], [[6.0, -7.0][: X.shape[1]]]])
        path.with_suffix(".txt").write_text(text(*expected(est, new)), encoding="utf-8")


if __name__ == "__main__":
    main()
