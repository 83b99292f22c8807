"""``sparsebayes demo``: comparison with support vector machines on the data sets of scikit-learn."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import is_classifier
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
    diabetes = _split(X, (y - y.mean()) / y.std())
    cancer = _split(*load_breast_cancer(return_X_y=True))
    regressor, classifier = RVR(gamma="ard"), RVC(gamma="ard")
    for name, data, model in (
        ("diabetes", diabetes, regressor),
        ("diabetes", diabetes, SVR()),
        ("breast cancer", cancer, classifier),
        ("breast cancer", cancer, SVC()),
    ):
        X, X_test, y, y_test = data
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds = time.perf_counter() - start
        functions = len(model.relevance_) if hasattr(model, "relevance_") else len(model.support_)
        rms = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
        error = f"{1 - model.score(X_test, y_test):.1%}" if is_classifier(model) else f"{rms:.3f} rms"
        yield f"{name:<16}{type(model).__name__:<9}{functions:>10}{error:>12}{seconds:>9.3f}"

    _, X_test, _, y_test = diabetes
    mean, std = regressor.predict(X_test, return_std=True)
    coverage = np.mean(np.abs(y_test - mean) <= 1.96 * std)
    _, X_test, _, y_test = cancer
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
