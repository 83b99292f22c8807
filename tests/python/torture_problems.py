"""Problems that break numerical code: for each a name, rows, targets of a regression and labels."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Problem:
    """Rows with two kinds of targets, sample weights, and arguments for estimators with kernels."""

    def __init__(self, name: str, X: Array, y: Array, *, labels=None, weights=None, kernel=None) -> None:
        self.name, self.X, self.y, self.weights = name, X, y, weights
        self.labels = (y > np.median(y)).astype(int) if labels is None else labels
        self.kernel = kernel or {}


def _plain(n: int = 40, d: int = 3, seed: int = 0) -> tuple[np.random.Generator, Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return rng, X, X[:, 0] - 0.5 * X[:, -1] + 0.1 * rng.normal(size=n)


def designs() -> Iterator[Problem]:
    """Dependent columns, equal rows, columns on different scales."""
    rng, X, y = _plain(40, 12)
    left, _ = np.linalg.qr(rng.normal(size=(40, 12)))
    right, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    for digits in (8, 12, 16):
        scaled = left * np.logspace(0, -digits, 12) @ right.T
        yield Problem(f"condition number 1e{digits}", scaled, scaled[:, 0] * 10 + 0.01 * rng.normal(size=40))
    yield Problem("repeated columns", np.hstack([X, X, X[:, ::-1]]), y)
    yield Problem("nearly repeated columns", np.hstack([X, X * (1 + 1e-15), X + 1e-13]), y)
    yield Problem("columns that add up", np.hstack([X, X.sum(1, keepdims=True), X[:, :1] - X[:, 1:2]]), y)
    yield Problem("repeated rows", np.repeat(X[:8], 5, axis=0), y)
    yield Problem("equal rows", np.ones((30, 2)), y[:30])
    yield Problem("zero rows", np.zeros((30, 2)), y[:30])
    yield Problem("a constant and zeros", np.hstack([X[:, :2], np.ones((40, 1)), np.zeros((40, 1))]), y)
    scales = 10.0 ** np.linspace(-100, 100, 12)
    yield Problem("columns from 1e-100 to 1e100", X * scales, y)
    yield Problem("100000 columns", *_plain(8, 100_000)[1:])
    yield Problem("one column", *_plain(40, 1)[1:])


def sizes() -> Iterator[Problem]:
    """From one row to ten."""
    for n in (1, 2, 3, 5, 10):
        _, X, y = _plain(n, 2, seed=n)
        yield Problem(f"{n} rows", X, y, labels=np.arange(n) % 2)


def targets() -> Iterator[Problem]:
    """Targets and rows of sizes that squares cannot have, outliers, weights."""
    rng, X, y = _plain()
    for exponent in (-300, -150, -100, 100, 150, 300):
        yield Problem(f"targets at 1e{exponent}", X, y * 10.0**exponent)
        yield Problem(f"rows at 1e{exponent}", X * 10.0**exponent, y)
    yield Problem("constant targets", X, np.full(40, 3.0), labels=(np.arange(40) < 20).astype(int))
    yield Problem("zero targets", X, np.zeros(40), labels=(np.arange(40) < 39).astype(int))
    yield Problem("exact targets", X, 2 * X[:, 0])
    outlier = y.copy()
    outlier[7] = 1e12
    yield Problem("a target of 1e12", X, outlier, labels=(y > 0).astype(int))
    far = X.copy()
    far[7] = 1e12
    yield Problem("a row at 1e12", far, y)
    yield Problem("weights over 24 decades", X, y, weights=10.0 ** rng.uniform(-12, 12, 40))
    yield Problem("one weight above all", X, y, weights=np.where(np.arange(40) == 3, 1e12, 1e-12))


def kernels() -> Iterator[Problem]:
    """Kernels that underflow to the identity, or are the same everywhere."""
    _, X, y = _plain()
    for gamma in (1e-300, 1e-18, 1e-9, 1e9, 1e300):
        yield Problem(f"gamma={gamma:g}", X, y, kernel={"gamma": gamma})
    yield Problem("sigmoid at its ends", X, y, kernel={"kernel": "sigmoid", "gamma": 1e6, "coef0": 1.0})
    yield Problem("tenth powers", X * 1e20, y, kernel={"kernel": "poly", "degree": 10, "gamma": 1.0})


def borders() -> Iterator[Problem]:
    """Separable classes, random labels and rare classes."""
    rng, X, y = _plain(60, 2)
    yield Problem("separable classes", X, y, labels=(X[:, 0] > 0).astype(int))
    gap = X + 1e6 * (X[:, :1] > 0)
    yield Problem("classes a million apart", gap, y, labels=(X[:, 0] > 0).astype(int))
    yield Problem("labels at random", X, y, labels=rng.integers(0, 2, 60))
    yield Problem("the same rows in both classes", np.repeat(X[:30], 2, 0), y, labels=np.arange(60) % 2)
    yield Problem("one of sixty", X, y, labels=(np.arange(60) == 4).astype(int))


def problems() -> list[Problem]:
    """Return all of them."""
    return [*designs(), *sizes(), *targets(), *kernels(), *borders()]
