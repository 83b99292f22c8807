"""Train relevance vector machines and scikit-learn's support vector machines on the same real data.

The program prints a table and saves a picture. Run it with ``make demo``.
"""

from __future__ import annotations

import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR
from sparsebayes.kernels import Gaussian

mpl.use("Agg")
import matplotlib.pyplot as plt  # the backend has to be chosen first

Array = NDArray[Any]
PICTURE = Path("demo-output") / "sinc.png"
HEADINGS = ("problem", "rows", "method", "functions", "test error", "95 % bars hold", "log-loss", "seconds")


@dataclass(frozen=True)
class Problem:
    """Training and test data, and the two models to fit."""

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    ours: Any
    theirs: Any


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    problem: str
    rows: int
    method: str
    functions: int
    error: float
    error_unit: str
    #: Share of the test targets inside of 95 % intervals.
    coverage: float | None
    log_loss: float | None
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        unit = " %" if self.error_unit == "%" else " rmse"
        return (
            self.problem,
            str(self.rows),
            self.method,
            str(self.functions),
            f"{self.error:.4g}{unit}",
            "" if self.coverage is None else f"{100 * self.coverage:.1f} %",
            "" if self.log_loss is None else f"{self.log_loss:.3f}",
            f"{self.seconds:.2f}",
        )


def real_data(name: str, load: Callable[..., tuple[Array, Array]], ours: Any, theirs: Any) -> Problem:
    """Return a data set of scikit-learn: a third held out, inputs standardised on the rest."""
    X, y = load(return_X_y=True)
    labels = y if isinstance(ours, RVC) else None
    X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=labels)
    scaler = StandardScaler().fit(X)
    return Problem(name, scaler.transform(X), y, scaler.transform(X_test), y_test, ours, theirs)


def sinc(x: Array) -> Array:
    """Return sin(|x|) / |x|, row by row."""
    values: Array = np.sinc(np.linalg.norm(x, axis=1) / np.pi)
    return values


def sinc_2d() -> Problem:
    """Return the problem of Tipping & Faul (2003), section 5: N = 1000, noise 0.1."""
    rng = np.random.default_rng(0)
    X, X_test = rng.uniform(-10, 10, (2, 1000, 2))
    y = sinc(X) + 0.1 * rng.normal(size=1000)
    ours, theirs = RVR(gamma="learn"), SVR(gamma=1 / 2.5**2)
    return Problem("2-D sinc", X, y, X_test, sinc(X_test) + 0.1 * rng.normal(size=1000), ours, theirs)


def n_functions(model: Any) -> int:
    """Return the number of training rows that predictions of this model consult."""
    if isinstance(model, (RVR, RVC)):
        return len(model.relevance_)
    if isinstance(model, CalibratedClassifierCV):
        model = model.calibrated_classifiers_[0].estimator
    elif isinstance(model, TransformedTargetRegressor):
        model = model.regressor_
    return len(model.support_)


def run(problem: Problem, method: str, model: Any) -> Result:
    """Train one model and measure it on the test data."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(problem.X, problem.y)
    seconds = time.perf_counter() - start
    predicted = model.predict(problem.X_test)
    classifies, coverage = hasattr(model, "predict_proba"), None
    if classifies:
        error = 100.0 * float(np.mean(predicted != problem.y_test))
        loss = float(log_loss(problem.y_test, model.predict_proba(problem.X_test)))
    else:
        if isinstance(model, RVR):
            mean, std = model.predict(problem.X_test, return_std=True)
            coverage = float(np.mean(np.abs(problem.y_test - mean) < 1.96 * std))
        error = float(np.sqrt(np.mean((predicted - problem.y_test) ** 2)))
    status = getattr(model, "status_", "converged")
    return Result(
        problem=problem.name,
        rows=len(problem.y),
        method=method if status == "converged" else f"{method} ({status})",
        functions=n_functions(model),
        error=error,
        error_unit="%" if classifies else "rmse",
        coverage=coverage,
        log_loss=loss if classifies else None,
        seconds=seconds,
    )


def print_table(results: list[Result]) -> None:
    """Print the results in columns, text to the left and numbers to the right."""
    rows = [HEADINGS, *(result.cells() for result in results)]
    widths = [max(len(row[c]) for row in rows) for c in range(len(HEADINGS))]
    for n, row in enumerate(rows):
        if n == 1 or (n > 1 and row[0] != rows[n - 1][0]):
            print("-" * (sum(widths) + 2 * len(widths) - 2))
        cells = (
            c.ljust(w) if k in (0, 2) else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def summary(results: list[Result]) -> str:
    """Return what the table shows, in a sentence."""
    pairs = list(zip(results[::2], results[1::2], strict=True))
    shares = [ours.functions / theirs.functions for ours, theirs in pairs]
    better = [ours.problem for ours, theirs in pairs if ours.error < theirs.error]
    losses = [(ours.log_loss, theirs.log_loss) for ours, theirs in pairs]
    surer = sum(a < b for a, b in losses if a is not None and b is not None)
    slower = [ours.seconds / theirs.seconds for ours, theirs in pairs]
    return (
        f"Neither tuned by hand, the relevance vector machine has {min(shares):.2f} to {max(shares):.2f} "
        "times as many functions as the support vector machine; its test error is the lower one on "
        f"{len(better)} of {len(pairs)} problems ({', '.join(better) or 'none'}), its log-loss on {surer} of "
        f"{sum(a is not None for a, _ in losses)}, and training takes {min(slower):.1f} to {max(slower):.1f} "
        "times as long."
    )


def picture() -> Path:
    """Draw a fit to the one-dimensional sinc: mean, error bars, relevance vectors."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(-10, 10, (100, 1)), axis=0)
    y = sinc(X) + 0.1 * rng.normal(size=100)
    model = RVR(Gaussian(3.0)).fit(X, y)
    grid = np.linspace(-12, 12, 400)[:, np.newaxis]
    mean, std = model.predict(grid, return_std=True)
    x = grid[:, 0]

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.fill_between(x, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, lw=0, label="mean ± 2 sd")
    axes.plot(x, mean, color="C0", label="mean")
    axes.plot(x, sinc(grid), color="0.4", ls="--", lw=1, label="sin |x| / |x|")
    axes.plot(X[:, 0], y, ".", color="0.3", ms=4, label="training data")
    at = model.relevance_
    axes.plot(
        X[at, 0], y[at], "o", ms=10, mfc="none", mec="C3", label=f"relevance vectors ({len(at)} of 100)"
    )
    axes.set(xlabel="x", ylabel="y", title=f"noise {model.noise_variance_**0.5:.3f} estimated, 0.1 true")
    axes.legend(loc="upper right", fontsize="small", frameon=False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150)
    plt.close(figure)
    return PICTURE


def main() -> None:
    """Run everything."""
    problems = [
        # The tube of an SVR is 0.1 wide in any unit of y, so y needs a scale.
        real_data(
            "diabetes",
            load_diabetes,
            RVR(),
            TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
        ),
        real_data(
            "breast cancer",
            load_breast_cancer,
            RVC(),
            CalibratedClassifierCV(SVC(), ensemble=False),
        ),
        real_data("digits", load_digits, RVC(), CalibratedClassifierCV(SVC(), ensemble=False)),
        sinc_2d(),
    ]
    results = []
    for problem in problems:
        names = ("RVC", "SVC, calibrated") if isinstance(problem.ours, RVC) else ("RVR", "SVR")
        results.append(run(problem, names[0], problem.ours))
        results.append(run(problem, names[1], problem.theirs))
    print_table(results)
    print()
    print(textwrap.fill(summary(results), 96))
    print(f"\nPicture: {picture()}")


if __name__ == "__main__":
    main()
