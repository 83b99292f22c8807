"""Log evidence and number of basis functions of the certificate's problems and the benchmarks'.

``PYTHONPATH=python:tests/python python tests/golden/evidences.py`` writes evidences.json anew. That is for
changes that are meant to move them, and the changelog says which and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from problems import BARE, PAPERS, PROBLEMS, mixture, sinc_2d
from sparsebayes import RVC, RVR, SparseBayesRegressor

PATH = Path(__file__).parent / "evidences.json"
#: Nats that the evidence may move: another certified optimum of the same problem is closer than that.
TOLERANCE = 0.1


def columns(n: int) -> Any:
    """Fit n / 4 random columns of which 20 matter, as the benchmarks do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n // 4))
    weights = rng.normal(size=20)
    inside = rng.choice(n // 4, 20, replace=False)
    y = X[:, inside] @ weights + 0.1 * rng.normal(size=n)
    return SparseBayesRegressor(**BARE, **PAPERS).fit(X, y)


def ten_inputs(n: int) -> tuple[Any, Any]:
    """Return the ten standard normal inputs of the grid benchmark and its targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def fitted() -> Iterator[tuple[str, Any]]:
    """Fit each problem; yield its name and the model."""
    for name, problem in PROBLEMS.items():
        yield name, problem.fitted()
    for n in (500, 1000, 2000, 4000):
        every_row: Any = {"candidates": None, **PAPERS}
        yield f"benchmark-surface-{n}", RVR(gamma=1 / 2.5**2, **every_row).fit(*sinc_2d(n))
        yield f"benchmark-mixture-{n}", RVC(gamma=1.0, **every_row).fit(*mixture(n))
    for n in (1000, 2000):
        yield f"benchmark-columns-{n}", columns(n)
    for n in (500, 1000):
        X, y = ten_inputs(n)
        yield f"benchmark-ten-inputs-{n}", RVR(gamma=0.05, **PAPERS).fit(X, y)
        yield f"benchmark-ten-inputs-classes-{n}", RVC(gamma=0.05, **PAPERS).fit(X, y > 0)


def numbers(model: Any) -> list[float]:
    """Return the log evidence and the number of functions, each summed over the models of a fit."""
    evidence = float(np.sum(model.log_marginal_likelihood_))
    alphas = model.alpha_ if isinstance(model.alpha_, list) else [model.alpha_]
    return [evidence, sum(len(alpha) for alpha in alphas)]


def main() -> None:
    """Write the numbers, a problem on each line."""
    lines = [f" {json.dumps(name)}: {json.dumps(numbers(model))}" for name, model in fitted()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
