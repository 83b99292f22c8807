"""``sparsebayes compare``: our defaults beside other models on the rows of a table that they do not see."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from inspect import signature
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import counted
from .._types import FloatArray
from . import tables as _tables
from .fit import DONE, MIN_ROWS, add_table_arguments, progress, training_rows
from .report import Z95, coverage, together
from .tables import TableError

#: Most rows that models are fitted to, by default, and most rows that measure them.
_ROWS: Final = 1000
_TEST_ROWS: Final = 10_000
#: Most rows of a Gaussian process, whose time grows with their cube, and with the number of classes.
_PROCESS_ROWS: Final = 2000
_PROCESS: Final = "Gaussian process"
_FOLDS: Final = 5
#: Letters of the name of a model.
_NAME: Final = 26


class Measures(NamedTuple):
    """What a model is worth on rows left out; NaN where it gives no distribution."""

    #: Root mean square error, or the share of wrong classes.
    error: float
    #: Mean negative log density, or log loss.
    nlpd: float
    #: Share of the rows inside the 95 % intervals.
    coverage: float
    #: Kernel functions, or rows that a prediction consults.
    functions: float
    #: To fit, with the search of a grid.
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_table_arguments(parser)
    rows = f"number of rows to fit to, at most two thirds of the table; {_ROWS} by default"
    parser.add_argument("--rows", type=int, default=_ROWS, metavar="N", help=rows)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def run(options: argparse.Namespace) -> int:
    """Fit each model, and print a table of what they are worth."""
    from sparsebayes import RVC, RVR

    if options.rows < MIN_ROWS:
        raise TableError(f"--rows must be {MIN_ROWS} or more, got {options.rows}")
    table = _tables.read(options.data)
    X, y, _, exposure = training_rows(options, table)
    classes = y.dtype.kind != "f"
    train, test = _split(X, y, options.rows, stratify=classes)
    columns = ("wrong", "log loss") if classes else ("R2", "95 % hold", "log density")
    lines = [f"note          {note}" for note in table.notes]
    lines += [
        f"fitted to {len(train)} rows of {counted(X.shape[1], 'input')}, measured on {len(test)} others",
        " " * _NAME + "".join(f"{column:>13}" for column in (*columns, "functions", "seconds")),
    ]
    at_train, at_test = (None if exposure is None else exposure[rows] for rows in (train, test))
    if at_train is not None and at_test is not None:
        rate = y[train].sum() / at_train.sum()
        errors = y[train] - rate * at_train
        simplest = "one rate", _of_normal(y[test] - rate * at_test, float(errors.std()) or 1.0, 0.0, 0.0)
    else:
        simplest = "the shares of the classes" if classes else "the mean", _constant(y[train], y[test])
    lines.append(_row(*simplest, y[test]))
    begin = progress(quiet=options.quiet)
    name = "RVC" if classes else "RVR"
    begin(name)
    likelihood = options.likelihood or "gaussian"
    ours: Any = RVC(random_state=0) if classes else RVR(random_state=0, likelihood=likelihood)
    found = measured(ours, X[train], y[train], X[test], y[test], at_train, at_test)
    lines.append(_row(name, found, y[test]))
    # Others are given standardised inputs and targets, as their users would, and logarithms of exposures.
    X = X if exposure is None else np.column_stack([X, np.log(exposure)])
    scale, varies = X[train].std(axis=0), np.ptp(X[train], axis=0) > 0.0
    X = (X - X[train].mean(axis=0))[:, varies] / scale[varies]
    unit = 1.0 if classes else float(y[train].std()) or 1.0
    z = y if classes else (y - y[train].mean()) / unit
    models = _models(X.shape[1], y[train], classes=classes)
    for name, model in models.items():
        begin(name)
        try:
            found = measured(model, X[train], z[train], X[test], z[test])
        except Exception as error:  # any of another package
            lines.append(f"{name:{_NAME}}failed: {' '.join(str(error).split())[:200]}")
            continue
        if not classes:
            found = found._replace(error=unit * found.error, nlpd=found.nlpd + np.log(unit))
        lines.append(_row(name, found, y[test]))
    if _PROCESS not in models:
        lines.append(f"{_PROCESS:{_NAME}}left out: its time grows with the cube of the rows")
    if "LightGBM" not in models:
        lines.append("pip install lightgbm to compare with boosted trees")
    sys.stdout.write("\n".join(lines) + "\n")
    return DONE


def _split(
    X: FloatArray, y: NDArray[Any], n_rows: int, *, stratify: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to fit to, and to predict."""
    from sklearn.model_selection import train_test_split

    first, number = together(X, y, classifies=stratify)
    n_train = min(n_rows * len(first) // len(y), 2 * len(first) // 3)
    n_test = min(len(first) - n_train, _TEST_ROWS)
    n_classes = len(np.unique(y)) if stratify else 0
    strata = y[first] if stratify and min(n_train, n_test) >= n_classes else None
    parts = train_test_split(
        np.arange(len(first)), train_size=n_train, test_size=n_test, random_state=0, stratify=strata
    )
    train, test = parts if len(first) == len(y) else (np.flatnonzero(np.isin(number, part)) for part in parts)
    if stratify and len(np.unique(y[train])) < n_classes:
        raise TableError(
            f"{len(train)} rows to fit to do not hold all {n_classes} classes; give more with --rows"
        )
    return train, test


def _models(n_features: int, y: NDArray[Any], *, classes: bool) -> dict[str, Any]:
    """Return the other models by name."""
    counts = np.unique(y, return_counts=True)[1] if classes else np.array([len(y)])
    found = peers(n_features, classes=classes, n_folds=max(2, min(_FOLDS, int(counts.min()))))
    if len(counts) * float(len(y)) ** 3 > _PROCESS_ROWS**3:
        found.pop(_PROCESS)
    try:
        import lightgbm
    except (ImportError, OSError):  # OSError: a library of the system is missing
        return found
    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    return found | {"LightGBM": kind(verbose=-1, n_jobs=1, random_state=0)}


def peers(n_features: int, *, classes: bool, n_folds: int = _FOLDS) -> dict[str, Any]:
    """Return a support vector machine chosen by a grid search, and a Gaussian process, for standardised data.

    For regression with 32 combinations of C, gamma and epsilon, and a length for each input; for classes with
    32 of C and gamma, calibrated, and one length.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC, SVR

    bounds = (1e-2, 1e4)
    if classes:
        grid: dict[str, Any] = {"C": np.logspace(-1, 3, 4), "gamma": np.logspace(-2.4, 1, 8) / n_features}
        search = GridSearchCV(SVC(), grid, cv=n_folds)
        process = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(np.sqrt(n_features), bounds))
    else:
        grid = {"C": [0.3, 3.0, 30.0, 300.0], "gamma": np.array([0.06, 0.25, 1.0, 4.0]) / n_features}
        lengths = RBF(np.full(n_features, np.sqrt(n_features)), bounds)
        search = GridSearchCV(SVR(), grid | {"epsilon": [0.03, 0.2]}, cv=n_folds)
        process = GaussianProcessRegressor(ConstantKernel(1.0) * lengths + WhiteKernel(0.1))
    return {"SVM, grid search": search, _PROCESS: process}


def measured(
    model: Any,
    X: FloatArray,
    y: NDArray[Any],
    X_test: FloatArray,
    y_test: NDArray[Any],
    exposure: FloatArray | None = None,
    exposure_test: FloatArray | None = None,
) -> Measures:
    """Fit a model, a support vector classifier with its calibration, and measure it on other rows."""
    from sklearn.base import is_classifier
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.metrics import log_loss
    from sklearn.model_selection import GridSearchCV

    from ..model_selection import log_densities

    given, new = ({} if e is None else {"exposure": e} for e in (exposure, exposure_test))
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, **given)
        functions = _n_functions(model, len(y))
        if is_classifier(model) and isinstance(model, GridSearchCV):
            model = CalibratedClassifierCV(model.best_estimator_, cv=model.cv, ensemble=False).fit(X, y)
        seconds = time.perf_counter() - start
        if is_classifier(model):
            loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
            return Measures(1.0 - model.score(X_test, y_test), loss, np.nan, functions, seconds)
        if "return_std" not in signature(model.predict).parameters:
            error = y_test - model.predict(X_test)
            return Measures(float(np.sqrt(np.mean(error**2))), np.nan, np.nan, functions, seconds)
        if getattr(model, "likelihood", "gaussian") != "gaussian":
            error = y_test - model.predict(X_test, **new)
            nlpd = -float(log_densities(model, X_test, y_test, **new).mean())
            held = float(np.mean(coverage(model, X_test, y_test, **new) <= 0.95))
            return Measures(float(np.sqrt(np.mean(error**2))), nlpd, held, functions, seconds)
        mean, std = model.predict(X_test, return_std=True)
    return _of_normal(y_test - mean, std, functions, seconds)


def _of_normal(error: FloatArray, std: FloatArray | float, functions: float, seconds: float) -> Measures:
    """Return the measures of normal predictions with these errors."""
    nlpd = np.mean(0.5 * (error / std) ** 2 + np.log(std) + 0.5 * np.log(2.0 * np.pi))
    held = np.mean(np.abs(error) < Z95 * std)
    return Measures(float(np.sqrt(np.mean(error**2))), float(nlpd), float(held), functions, seconds)


def _n_functions(model: Any, n_rows: int) -> float:
    """Return the number of kernel functions, or rows that a prediction consults; NaN for trees."""
    for part in (model, getattr(model, "best_estimator_", None)):
        for name in ("active_", "support_"):
            if hasattr(part, name):
                return float(len(getattr(part, name)))
    return float("nan") if hasattr(model, "booster_") else float(n_rows)


def _constant(y: NDArray[Any], y_test: NDArray[Any]) -> Measures:
    """Return what the mean with the standard deviation is worth, or the shares of the classes."""
    if y.dtype.kind != "f":
        labels, counts = np.unique(y, return_counts=True)
        losses = -np.log(counts / len(y))[np.searchsorted(labels, y_test)]
        wrong = float(np.mean(y_test != labels[np.argmax(counts)]))
        return Measures(wrong, float(losses.mean()), np.nan, 0.0, 0.0)
    return _of_normal(y_test - y.mean(), float(y.std()) or 1.0, 0.0, 0.0)


def _row(name: str, found: Measures, y_test: NDArray[Any]) -> str:
    """Return a line of the table: errors of numbers as R2."""
    if y_test.dtype.kind != "f":
        cells = [f"{100.0 * found.error:.1f} %", f"{found.nlpd:.3f}"]
    else:
        variance = float(np.mean((y_test - y_test.mean()) ** 2)) or 1.0
        held = "" if np.isnan(found.coverage) else f"{100.0 * found.coverage:.1f} %"
        cells = [f"{1.0 - found.error**2 / variance:.3f}", held]
        cells.append("" if np.isnan(found.nlpd) else f"{-found.nlpd:.3f}")
    cells += ["" if np.isnan(found.functions) else f"{found.functions:.0f}", f"{found.seconds:.2f}"]
    return f"{name:{_NAME}}" + "".join(f"{cell:>13}" for cell in cells)
