"""``sparsebayes demo``: comparison with support vector machines on the data sets of scikit-learn."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
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
    X, X_test, y, y_test = _split(X, (y - y.mean()) / y.std())
    regressor = RVR(gamma="ard")
    for model in (regressor, SVR()):
        seconds = _fit(model, X, y)
        rms = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
        yield _row("diabetes", model, f"{rms:.3f} rms", seconds)
    mean, std = regressor.predict(X_test, return_std=True)
    coverage = np.mean(np.abs(y_test - mean) <= 1.96 * std)

    X, X_test, y, y_test = _split(*load_breast_cancer(return_X_y=True))
    classifier = RVC(gamma="ard")
    for model in (classifier, SVC()):
        seconds = _fit(model, X, y)
        yield _row("breast cancer", model, f"{1 - model.score(X_test, y_test):.1%}", seconds)
    p = classifier.predict_proba(X_test)
    yield ""
    yield f"Error bars: 95 % intervals hold {coverage:.0%} of the test rows of diabetes."
    yield f"Probabilities: log loss {log_loss(y_test, p):.3f} on the test rows of breast cancer;"
    yield "the three it is least sure of: " + ", ".join(
        f"row {i}: {p[i, 1]:.0%} benign (it was {'benign' if y_test[i] else 'malignant'})"
        for i in np.argsort(np.abs(p[:, 1] - 0.5))[:3]
    )


def _split(X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Return training and test inputs, standardised, and training and test targets."""
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test), y_train, y_test


def _fit(model: Any, X: Any, y: Any) -> float:
    """Fit a model and return the seconds that it takes."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return time.perf_counter() - start


def _row(name: str, model: Any, error: str, seconds: float) -> str:
    functions = len(model.relevance_) if hasattr(model, "relevance_") else len(model.support_)
    return f"{name:<16}{type(model).__name__:<9}{functions:>10}{error:>12}{seconds:>9.3f}"
