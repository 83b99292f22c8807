"""The data sets of Tipping (2001), section 4: generated ones, and files where there are any.

Files are gzipped CSV with a header and the target last, ``NAME_splits.npz`` with the rows of each published
split (``train``, ``test``), and ``usps_train.npz``, ``usps_test.npz`` (``x``: a thousand times the grey
value, ``y``: the digit). They lie in the folder that the environment variable SPARSEBAYES_DATA names, or in
``data`` here.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3
from sklearn.preprocessing import StandardScaler

FOLDER = Path(os.environ.get("SPARSEBAYES_DATA", "data"))

N_TEST = 1000


@dataclass(frozen=True)
class Draw:
    """Training and test rows of one draw or split; the test targets of generated sets are free of noise."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Benchmark:
    """One line of the paper's tables.

    ``paper``: error and vectors of its SVM, then of its RVM, in the units of ``scale`` times ours.
    """

    name: str
    task: str  # "regression" (mean squared error, or its root) or "classification" (per cent wrong)
    n_draws: int
    draw: Any
    paper: tuple[float, float, float, float]
    files: tuple[str, ...] = ()
    root: bool = False
    scale: float = 1.0
    #: Cross-validations whose average error selects the parameters.
    rounds: int = 5
    #: Rows that they see at most, and which of the widths: on the digits all of them would take hours.
    tuning_rows: int = 2000
    every_nth_width: int = 1
    #: `multi_class` of our classifier.
    multi_class: str = "ovr"

    def missing(self):
        return [name for name in self.files if not (FOLDER / name).exists()]


# --- generated ------------------------------------------------------------------------------------


def sinc(seed, noise):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10.0, 10.0, size=100)
    error = 0.1 * rng.normal(size=100) if noise == "gaussian" else rng.uniform(-0.1, 0.1, size=100)
    grid = np.linspace(-10.0, 10.0, N_TEST)
    return Draw(x[:, None], np.sinc(x / np.pi) + error, grid[:, None], np.sinc(grid / np.pi))


def friedman(seed, make, noise):
    """240 rows with noise, 1000 without; inputs to unit variance where their ranges differ."""
    X, y = make(n_samples=240, noise=noise, random_state=seed)
    X_test, y_test = make(n_samples=N_TEST, noise=0.0, random_state=100_000 + seed)
    return Draw(X, y, X_test, y_test) if make is make_friedman1 else scaled(Draw(X, y, X_test, y_test))


def scaled(draw):
    scaler = StandardScaler().fit(draw.X)
    return Draw(scaler.transform(draw.X), draw.y, scaler.transform(draw.X_test), draw.y_test)


# --- from files -----------------------------------------------------------------------------------


def table(name):
    values = np.loadtxt(FOLDER / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=str)
    return values[:, :-1].astype(float), values[:, -1]


def boston(seed):
    X, y = table("boston")
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:481], order[481:]
    y = y.astype(float)
    return scaled(Draw(X[train], y[train], X[test], y[test]))


def split(seed, name):
    X, y = table(name)
    with np.load(FOLDER / f"{name}_splits.npz", allow_pickle=False) as rows:
        train, test = rows["train"][seed], rows["test"][seed]
    return Draw(X[train], y[train], X[test], y[test])


def pair(seed, train, test, size=None):
    """Fixed training and test rows; ``size``: that many of the training rows, drawn anew."""
    (X, y), (X_test, y_test) = table(train), table(test)
    if size is not None:
        rows = np.random.default_rng(seed).permutation(len(y))[:size]
        X, y = X[rows], y[rows]
    return Draw(X, y, X_test, y_test)


def pima(seed):
    return scaled(pair(seed, "pima_ripley_train", "pima_ripley_test"))


def usps(seed, size=None):
    """The digits; ``size``: that many of the training rows."""
    parts = []
    for part in ("train", "test"):
        with np.load(FOLDER / f"usps_{part}.npz", allow_pickle=False) as digits:
            parts += [digits["x"] / 1000.0, digits["y"].astype(int)]
    X, y, X_test, y_test = parts
    if size is not None:
        rows = np.random.default_rng(seed).permutation(len(y))[:size]
        X, y = X[rows], y[rows]
    return Draw(X, y, X_test, y_test)


def raetsch(name, paper):
    name = f"raetsch_{name}"
    files = (f"{name}.csv.gz", f"{name}_splits.npz")
    return Benchmark(name[8:], "classification", 10, partial(split, name=name), paper, files)


def digits(name, multi_class, size=None):
    return Benchmark(
        name,
        "classification",
        1,
        partial(usps, size=size),
        (4.4, 2540.0, 5.1, 316.0),
        ("usps_train.npz", "usps_test.npz"),
        rounds=1,
        tuning_rows=1000,
        every_nth_width=2,
        multi_class=multi_class,
    )


RIPLEY = ("ripley_train.csv.gz", "ripley_test.csv.gz")
PIMA = ("pima_ripley_train.csv.gz", "pima_ripley_test.csv.gz")

#: The figures of the paper's tables 1 and 2 and of section 4.3.
BENCHMARKS = [
    Benchmark(
        "sinc, Gaussian noise",
        "regression",
        100,
        partial(sinc, noise="gaussian"),
        (0.378, 45.2, 0.326, 6.7),
        root=True,
        scale=10.0,
    ),
    Benchmark(
        "sinc, uniform noise",
        "regression",
        100,
        partial(sinc, noise="uniform"),
        (0.215, 44.3, 0.187, 7.0),
        root=True,
        scale=10.0,
    ),
    Benchmark(
        "Friedman 1",
        "regression",
        100,
        partial(friedman, make=make_friedman1, noise=1.0),
        (2.92, 116.2, 2.80, 59.4),
    ),
    Benchmark(
        "Friedman 2",
        "regression",
        100,
        partial(friedman, make=make_friedman2, noise=125.0),
        (4140.0, 110.3, 3505.0, 6.9),
    ),
    Benchmark(
        "Friedman 3",
        "regression",
        100,
        partial(friedman, make=make_friedman3, noise=0.1),
        (0.0202, 106.5, 0.0164, 11.5),
    ),
    Benchmark("Boston", "regression", 100, boston, (8.04, 142.8, 7.46, 39.0), ("boston.csv.gz",)),
    Benchmark("Pima", "classification", 1, pima, (20.1, 109.0, 19.6, 4.0), PIMA),
    raetsch("banana", (10.9, 135.2, 10.8, 11.4)),
    raetsch("breast_cancer", (26.9, 116.7, 29.9, 6.3)),
    raetsch("titanic", (22.1, 93.7, 23.0, 65.3)),
    raetsch("waveform", (10.3, 146.4, 10.9, 14.6)),
    raetsch("image", (3.0, 166.6, 3.9, 34.6)),
    Benchmark(
        "Ripley, 100 rows",
        "classification",
        10,
        partial(pair, train="ripley_train", test="ripley_test", size=100),
        (10.6, 38.0, 9.3, 4.0),
        RIPLEY,
    ),
    Benchmark(
        "Ripley, 250 rows",
        "classification",
        1,
        partial(pair, train="ripley_train", test="ripley_test"),
        (np.nan, np.nan, np.nan, np.nan),
        RIPLEY,
    ),
    digits("USPS", "ovr"),
    # One model of all classes takes minutes where ten of two classes take one.
    digits("USPS, softmax, 2000 rows", "softmax", 2000),
]
