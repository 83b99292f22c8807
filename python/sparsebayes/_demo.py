"""What ``sparsebayes demo`` shows: real data that scikit-learn ships, beside its support vector machines."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from .classification import RVC
from .regression import RVR


def compare() -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"{'data':<16}{'machine':<9}{'functions':>10}{'test error':>12}{'seconds':>9}"
    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    for machine in (RVR(), SVR()):
        yield _row("diabetes", machine, X, y, lambda model, X, y: f"{_rms(model, X, y):.3f} rms")
    X, y = load_breast_cancer(return_X_y=True)
    for machine in (RVC(), SVC()):
        yield _row("breast cancer", machine, X, y, lambda model, X, y: f"{1 - model.score(X, y):.1%}")
    yield ""
    yield from _say_how_sure(X, y)


def _row(name: str, machine: Any, X: Any, y: Any, error: Callable[[Any, Any, Any], str]) -> str:
    train, test, y_train, y_test = _split(X, y)
    start = time.perf_counter()
    _fit(machine, train, y_train)
    seconds = time.perf_counter() - start
    functions = len(machine.relevance_) if hasattr(machine, "relevance_") else len(machine.support_)
    wrong = error(machine, test, y_test)
    return f"{name:<16}{type(machine).__name__:<9}{functions:>10}{wrong:>12}{seconds:>9.3f}"


def _split(X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test), y_train, y_test


def _rms(model: Any, X: Any, y: Any) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def _fit(machine: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machine.fit(X, y)


def _say_how_sure(X: Any, y: Any) -> Iterator[str]:
    train, test, y_train, y_test = _split(X, y)
    model = _fit(RVC(), train, y_train)
    p = model.predict_proba(test)
    yield f"Probabilities come with it: log loss {log_loss(y_test, p):.3f} on the test rows of breast cancer;"
    yield "the three it is least sure of: " + ", ".join(
        f"row {i}: {p[i, 1]:.0%} benign (it was {'benign' if y_test[i] else 'malignant'})"
        for i in np.argsort(np.abs(p[:, 1] - 0.5))[:3]
    )
