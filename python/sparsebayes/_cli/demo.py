"""``sparsebayes demo``: comparison with support vector machines on the data sets of scikit-learn."""

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

from ..classification import RVC
from ..regression import RVR


def compare() -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"{'data':<16}{'model':<9}{'functions':>10}{'test error':>12}{'seconds':>9}"
    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    regressor = RVR(gamma="ard")
    for model in (regressor, SVR()):
        yield _row("diabetes", model, X, y, lambda model, X, y: f"{_rms(model, X, y):.3f} rms")
    coverage = _coverage(regressor, X, y)
    X, y = load_breast_cancer(return_X_y=True)
    classifier = RVC(gamma="ard")
    for model in (classifier, SVC()):
        yield _row("breast cancer", model, X, y, lambda model, X, y: f"{1 - model.score(X, y):.1%}")
    yield ""
    yield f"Error bars: 95 % intervals hold {coverage:.0%} of the test rows of diabetes."
    yield from _least_certain(classifier, X, y)


def _row(name: str, model: Any, X: Any, y: Any, error: Callable[[Any, Any, Any], str]) -> str:
    train, test, y_train, y_test = _split(X, y)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, y_train)
    seconds = time.perf_counter() - start
    functions = len(model.relevance_) if hasattr(model, "relevance_") else len(model.support_)
    test_error = error(model, test, y_test)
    return f"{name:<16}{type(model).__name__:<9}{functions:>10}{test_error:>12}{seconds:>9.3f}"


def _split(X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test), y_train, y_test


def _rms(model: Any, X: Any, y: Any) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def _coverage(model: Any, X: Any, y: Any) -> float:
    """Return the fraction of the test rows inside 95 % intervals."""
    _, test, _, y_test = _split(X, y)
    mean, std = model.predict(test, return_std=True)
    return float(np.mean(np.abs(y_test - mean) <= 1.96 * std))


def _least_certain(model: Any, X: Any, y: Any) -> Iterator[str]:
    _, test, _, y_test = _split(X, y)
    p = model.predict_proba(test)
    yield f"Probabilities: log loss {log_loss(y_test, p):.3f} on the test rows of breast cancer;"
    yield "the three it is least sure of: " + ", ".join(
        f"row {i}: {p[i, 1]:.0%} benign (it was {'benign' if y_test[i] else 'malignant'})"
        for i in np.argsort(np.abs(p[:, 1] - 0.5))[:3]
    )
