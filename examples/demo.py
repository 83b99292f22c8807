"""Compare sparsebayes with other models on real tables, and draw what it predicts for rows it has not seen.

Run it with ``make demo``. The tables become CSV files in ``demo-output``, and `sparsebayes compare` measures
the models on them, as it does on a table of your own.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import train_test_split

from sparsebayes import RVR
from sparsebayes._cli import main as sparsebayes

mpl.use("Agg")
import matplotlib.pyplot as plt  # the backend has to be chosen first

FOLDER = Path("demo-output")
TABLES = {
    "diabetes: how far a disease progresses in a year": load_diabetes,
    "breast_cancer: malignant or benign cells": load_breast_cancer,
    "wine: three growers by the chemistry of their wine": load_wine,
    "digits: ten classes, images of 8 x 8 pixels": load_digits,
}


def compare_tables() -> None:
    """Write each table as CSV and compare the models on it."""
    for title, load in TABLES.items():
        bunch = load()
        path = FOLDER / f"{title.split(':')[0]}.csv"
        names = [str(name).replace(",", " ") for name in bunch.feature_names]
        table = np.column_stack([bunch.data, bunch.target])
        np.savetxt(path, table, "%.10g", ",", header=",".join([*names, "target"]), comments="")
        command = ["compare", str(path), "--target", "target"]
        command += ["--classify"] if hasattr(bunch, "target_names") else []
        print(f"\n{title}\n$ sparsebayes {' '.join(command)}", flush=True)
        sparsebayes([*command, "-q"])


def draw_predictions() -> Path:
    """Fit a regression, print its summary and draw rows that it has not seen with their error bars."""
    frame = load_diabetes(as_frame=True, scaled=False)
    X, X_test, y, y_test = train_test_split(frame.data, frame.target, random_state=0)
    model = RVR().fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    inside = np.abs(y_test - mean) < 1.96 * std
    print(f"\n{model.summary()}")
    print(f"on {len(X_test)} other rows: R^2 {model.score(X_test, y_test):.2f},", end=" ")
    print(f"{100 * inside.mean():.0f} % are inside their 95 % intervals")

    order = np.argsort(mean)
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    at = np.arange(len(mean))
    axes.errorbar(
        at, mean[order], 1.96 * std[order], fmt=".", ecolor="0.75", label="prediction, 95 % interval"
    )
    axes.plot(at, y_test.to_numpy()[order], "x", color="C3", ms=5, label="true value")
    axes.set(xlabel="row that the model has not seen", ylabel="progression of diabetes")
    axes.legend(frameon=False)
    figure.savefig(FOLDER / "diabetes.png", dpi=150)
    plt.close(figure)
    return FOLDER / "diabetes.png"


def main() -> None:
    """Run everything."""
    FOLDER.mkdir(exist_ok=True)
    compare_tables()
    print(f"\nPicture: {draw_predictions()}")


if __name__ == "__main__":
    main()
