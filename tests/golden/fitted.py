"""Fitted numbers that later releases must reproduce.

``PYTHONPATH=python python tests/golden/fitted.py`` writes numbers.json anew. That is for changes that are
meant to move them, and the changelog says which and why. Beside the values of a model stand relative
tolerances, for other processors and libraries of linear algebra.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparsebayes import GREVM, LREVM, MRVM1, MRVM2, RVC, RVR, VGREVM, GREVMRegressor, SparseBayesRegressor
from sparsebayes.kernels import Gaussian

PATH = Path(__file__).parent / "numbers.json"
#: Relative tolerances: predictions relative to the largest.
TOLERANCES = {"log_marginal_likelihood": 1e-8, "noise_variance": 1e-6, "log_alpha": 1e-4, "predicted": 1e-6}
#: For models with an iteration of their own, which ends at its tolerance.
LOOSE = {**TOLERANCES, "log_marginal_likelihood": 1e-6, "log_alpha": 1e-3, "predicted": 1e-4}


def fitted() -> Iterator[tuple[str, Any, Any, dict[str, float]]]:
    """Fit each model; yield its name, the estimator, its rows and tolerances."""
    rng = np.random.default_rng(20)
    X = rng.uniform(-3, 3, (80, 2))
    y = np.sinc(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(80)
    Y = np.column_stack([y, np.cos(X[:, 1]) + 0.2 * rng.standard_normal(80)])
    two = (X**2).sum(axis=1) + rng.standard_normal(80) < 5
    three = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(80), [-1, 1])
    kernel = Gaussian(1.5)
    papers: dict[str, Any] = {"penalize_intercept": True, "complexity": "none"}
    regressions = {
        "RVR": RVR(kernel, **papers),
        "RVR, mackay": RVR(kernel, scheme="mackay", **papers),
        "RVR, variational": RVR(kernel, scheme="variational"),
        "SparseBayesRegressor": SparseBayesRegressor(fit_intercept=True, **papers),
        "GREVMRegressor": GREVMRegressor(kernel),
    }
    for name, est in regressions.items():
        yield name, est.fit(X, y), X, TOLERANCES
    yield "RVR, two outputs", RVR(kernel, **papers).fit(X, Y), X, TOLERANCES
    yield "RVC", RVC(kernel, **papers).fit(X, two), X, TOLERANCES
    yield "RVC, softmax", RVC(kernel, multi_class="softmax", **papers).fit(X, three), X, TOLERANCES
    for kind in (MRVM1, MRVM2, GREVM, LREVM, VGREVM):
        labels = three if kind in (MRVM1, MRVM2) else two
        yield kind.__name__, kind(kernel).fit(X, labels), X, LOOSE


def numbers(est: Any, X: Any) -> dict[str, Any]:
    """Return what is kept of a model."""
    predicted = est.predict_proba(X[:6]) if hasattr(est, "predict_proba") else est.predict(X[:6])
    kept = {"status": est.status_, "predicted": np.asarray(predicted).ravel().tolist()}
    for name in ("log_marginal_likelihood", "noise_variance"):
        value = getattr(est, f"{name}_", None)
        if value is not None:
            kept[name] = np.asarray(value, dtype=float).ravel().tolist()
    alpha = getattr(est, "alpha_", None)
    if isinstance(alpha, np.ndarray):
        kept["log_alpha"] = np.log(alpha[np.isfinite(alpha)]).tolist()
    return kept


def main() -> None:
    """Write the numbers with their tolerances."""
    kept = {name: {"numbers": numbers(est, X), "tolerances": limits} for name, est, X, limits in fitted()}
    lines = [f" {json.dumps(name)}: {json.dumps(model)}" for name, model in kept.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
