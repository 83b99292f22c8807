"""Settings and data of all tests."""

import os
import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from sparsebayes import _progress

# A busy computer must not fail a test, and only ``make surface`` draws new examples each time.
settings.register_profile("patient", deadline=None, derandomize="SURFACE_EXAMPLES" not in os.environ)
settings.load_profile("patient")

# A shell lets background processes ignore Ctrl-C, and child processes inherit this; some tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


@pytest.fixture
def sinc() -> Arrays:
    """One-dimensional sinc with noise 0.1, 80 rows."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-10, 10, (80, 1)), axis=0)
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=80)


@pytest.fixture
def surface() -> Arrays:
    """Two inputs on different scales, smooth, noise 0.1, 90 rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2)) * [1.0, 3.0]
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2 + 0.1 * rng.normal(size=90)


@pytest.fixture
def classes() -> Arrays:
    """Two overlapping classes 0 and 1 with a curved border, 150 rows."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 2))
    return X, (X[:, 0] * X[:, 1] + 0.4 * rng.normal(size=150) > 0).astype(float)


@pytest.fixture
def three() -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Three overlapping classes in a row, 120 rows."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 2))
    return X, np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.4 * rng.normal(size=120), [-0.5, 0.5])]


@pytest.fixture
def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package without tqdm."""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    _progress._tqdm.cache_clear()
    yield
    _progress._tqdm.cache_clear()
