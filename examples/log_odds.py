"""Posterior log odds of two classifiers beside the true ones.

The problem is from the end of Tipping (2001): two classes, each uniform on an interval, overlap by half. In
the overlap both classes are equally likely, so the log odds are 0; elsewhere the class is certain. A
relevance vector machine models these odds. A support vector machine models only the border, and Platt
scaling, a sigmoid of its output, cannot recover the odds.

The program prints a table and draws docs/log-odds.svg. Run it with ``make examples``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from sparsebayes import RVC
from sparsebayes.kernels import Gaussian

Array = NDArray[np.float64]
PICTURE = Path(__file__).parents[1] / "docs" / "log-odds.svg"
HEADINGS = ("method", "functions", "rms in overlap", "largest there", "error", "log-loss")
#: Where the classes lie; both have the same prior probability.
FIRST, SECOND = (0.0, 1.0), (0.5, 1.5)
OVERLAP = (SECOND[0], FIRST[1])
WIDTH = 0.1
N_TEST = 20_000


@dataclass(frozen=True)
class Method:
    """A classifier by name, its log odds of the second class, and how many rows it consults."""

    name: str
    functions: str
    log_odds: Callable[[Array], Array]


def draw_rows(n: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return ``n`` rows, half of each class: inputs (n, 1) and labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    lows, highs = np.array([FIRST, SECOND]).T
    return rng.uniform(lows[labels], highs[labels])[:, np.newaxis], labels


def true_log_odds(x: Array) -> Array:
    """Return the log odds of the second class: 0 in the overlap, infinite where only one class is."""
    values: Array = np.where(x < OVERLAP[0], -np.inf, np.where(x > OVERLAP[1], np.inf, 0.0))
    return values


def logit(p: Array) -> Array:
    """Return ln(p / (1 - p))."""
    values: Array = np.log(p) - np.log1p(-p)
    return values


def train(X: Array, y: NDArray[np.int64]) -> list[Method]:
    """Return both models, with the same kernel, and the true log odds."""
    rvm = RVC(Gaussian(WIDTH)).fit(X, y)
    svm: Any = CalibratedClassifierCV(SVC(gamma=WIDTH**-2), method="sigmoid", ensemble=False).fit(X, y)
    support = svm.calibrated_classifiers_[0].estimator.support_
    return [
        Method("RVC", str(len(rvm.active_)), rvm.decision_function),
        Method("SVC, Platt scaling", str(len(support)), lambda X: logit(svm.predict_proba(X)[:, 1])),
        Method("truth", "", lambda X: true_log_odds(X[:, 0])),
    ]


def measure(method: Method) -> tuple[str, ...]:
    """Return a row of the table: distance of the log odds from 0 in the overlap, error and log loss."""
    X, y = draw_rows(N_TEST, seed=1)
    grid = np.linspace(*OVERLAP, 501)[:, np.newaxis]
    found, odds = method.log_odds(grid), method.log_odds(X)
    return (
        method.name,
        method.functions,
        f"{np.sqrt(np.mean(found**2)):.3f}",
        f"{np.abs(found).max():.3f}",
        f"{100 * np.mean((odds > 0) != y):.1f} %",
        f"{log_loss(y, expit(odds)):.3f}",
    )


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print the rows in columns."""
    table = [HEADINGS, *rows]
    widths = [max(len(row[c]) for row in table) for c in range(len(HEADINGS))]
    for row in table:
        cells = (
            cell.ljust(w) if c == 0 else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells))


def picture(methods: list[Method], path: Path) -> None:
    """Draw the log odds of each method over the inputs; the true ones leave the picture at the borders."""
    x = np.linspace(FIRST[0], SECOND[1], 601)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(*OVERLAP, color="0.92", lw=0, label="both classes")
    for method, colour in zip(methods, ("C0", "C1", "0.3"), strict=True):
        odds = np.clip(method.log_odds(x[:, np.newaxis]), -20, 20)
        style = {"ls": "--", "lw": 1.2} if method.name == "truth" else {"lw": 1.8}
        axes.plot(x, odds, color=colour, label=method.name, **style)
    axes.set(xlabel="x", ylabel="log odds of the second class", ylim=(-8, 8), xlim=(x[0], x[-1]))
    axes.legend(loc="upper left", frameon=False)
    with mpl.rc_context({"svg.hashsalt": "sparsebayes"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description="Log odds of an RVM and an SVM beside the true ones.")
    parser.add_argument("--rows", type=int, default=500, help="training rows")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw")
    options = parser.parse_args()
    methods = train(*draw_rows(options.rows, seed=0))
    print_table([measure(method) for method in methods])
    picture(methods, options.picture)
    print(f"\nPicture: {options.picture}")


if __name__ == "__main__":
    main()
