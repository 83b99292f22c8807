"""Learned widths on real tables: errors, densities and error bars on rows left out.

Regression: ``RVR(gamma="ard")``, ``RVR(gamma="learn")`` and ``RVR()`` beside a support vector machine whose
C and gamma are chosen by a grid search in five folds, and with ``--gaussian-process`` a Gaussian process with
one length per input. Classification: ``RVC`` with the same arguments. Training rows are two thirds of a
table, at most ``--rows``; inputs and target are standardised.

``ratio``: root mean square error by that of the support vector machine. ``nlpd``: mean negative log density
of a row left out, its target standardised; of classes the log loss. ``cover``: share of rows left out within
the 95 % bars. The environment variable SPARSEBAYES_DATA names the folder of the tables, gzipped CSV files
whose last column is the target. Run ``make bench-widths``, or this file with ``--help``.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from sparsebayes import RVC, RVR

FOLDER = Path(os.environ.get("SPARSEBAYES_DATA", "data"))
REGRESSION = (
    "boston",
    "concrete",
    "airfoil",
    "yacht_hydrodynamics",
    "winequality_red",
    "qsar_aquatic_toxicity",
    "real_estate_valuation",
    "puma32h",
    "kin8nm",
    "kin40k",
    "california",
    "protein",
)
CLASSIFICATION = ("pima", "ionosphere", "vehicle")
SPARSE = {"ard": {"gamma": "ard"}, "learn": {"gamma": "learn"}, "default": {}}
MOST_TEST_ROWS = 2000
GAUSS_95 = 1.959963984540054


def split(name, seed, n_rows):
    """Standardised training and test rows; of a target of labels only the inputs are standardised."""
    table = pd.read_csv(FOLDER / f"{name}.csv.gz")
    X, y = table.iloc[:, :-1].to_numpy(dtype=float), table.iloc[:, -1].to_numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    n_train = min(n_rows, 2 * len(y) // 3)
    train, test = order[:n_train], order[n_train:][:MOST_TEST_ROWS]
    varies = np.ptp(X[train], axis=0) > 0.0
    X = (X[:, varies] - X[train][:, varies].mean(axis=0)) / X[train][:, varies].std(axis=0)
    if name not in CLASSIFICATION:
        y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def regressors(n_features, *, gaussian_process):
    grid = {"C": [0.3, 3.0, 30.0, 300.0], "gamma": np.array([0.06, 0.25, 1.0, 4.0]) / n_features}
    models = {"svr": GridSearchCV(SVR(), grid, cv=5)}
    models |= {label: RVR(**arguments) for label, arguments in SPARSE.items()}
    if gaussian_process:
        lengths = RBF(np.full(n_features, np.sqrt(n_features)), (1e-2, 1e4))
        models["gp"] = GaussianProcessRegressor(ConstantKernel(1.0) * lengths + WhiteKernel(0.1))
    return models


def measure_regression(model, X, y, X_test, y_test):
    """Root mean square error, negative log density, coverage, functions and seconds of one fit."""
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    if isinstance(model, GridSearchCV):
        error = y_test - model.predict(X_test)
        return [np.sqrt(np.mean(error**2)), np.nan, np.nan, len(model.best_estimator_.support_), seconds]
    mean, std = model.predict(X_test, return_std=True)
    error = y_test - mean
    nlpd = np.mean(0.5 * (error / std) ** 2 + np.log(std) + 0.5 * np.log(2.0 * np.pi))
    functions = len(model.active_) if isinstance(model, RVR) else len(y)
    return [np.sqrt(np.mean(error**2)), nlpd, np.mean(np.abs(error) < GAUSS_95 * std), functions, seconds]


def measure_classification(model, X, y, X_test, y_test):
    """Error rate, log loss, functions and seconds of one fit."""
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
    return [1.0 - model.score(X_test, y_test), loss, np.nan, len(model.active_), seconds]


def show(name, label, values, reference):
    ratio = "" if reference is None else f"{values[0] / reference:.3f}"
    print(
        f"{name:22s} {label:8s} {ratio:>6} {values[0]:7.4f} {values[1]:8.3f} {values[2]:6.3f} "
        f"{values[3]:6.1f} {values[4]:7.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=600, help="most training rows")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--tables", nargs="*", default=[*REGRESSION, *CLASSIFICATION])
    parser.add_argument("--gaussian-process", action="store_true", help="minutes a table")
    options = parser.parse_args()
    if not FOLDER.is_dir():
        sys.exit("no table is there: SPARSEBAYES_DATA has to name the folder of data files")
    warnings.simplefilter("ignore")
    head = ("table", "model", "ratio", "error", "nlpd", "cover", "funct.", "s")
    print("{:22s} {:8s} {:>6} {:>7} {:>8} {:>6} {:>6} {:>7}".format(*head))
    measured = {}
    for name in options.tables:
        of_table = {}
        for seed in range(options.splits):
            data = split(name, seed, options.rows)
            if name in CLASSIFICATION:
                models = {label: RVC(**arguments) for label, arguments in SPARSE.items()}
                measure = measure_classification
            else:
                models = regressors(data[0].shape[1], gaussian_process=options.gaussian_process)
                measure = measure_regression
            for label, model in models.items():
                of_table.setdefault(label, []).append(measure(model, *data))
        for label, values in of_table.items():
            mean = np.mean(values, axis=0)
            reference = np.mean(of_table["svr"], axis=0)[0] if "svr" in of_table else None
            show(name, label, mean, reference)
            if reference is not None:
                measured.setdefault(label, []).append([mean[0] / reference, *mean[1:]])
    for label, values in measured.items():
        values = np.array(values)
        summary = [1.0, *np.median(values[:, 1:], axis=0)]
        show("geometric mean, medians", label, [np.exp(np.log(values[:, 0]).mean()), *summary[1:]], 1.0)


if __name__ == "__main__":
    main()
