"""``sparsebayes fit``: from a table to a model file and a summary."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks import counted, listed
from .._types import FloatArray
from ..kernels._resolve import NAMED
from . import tables as _tables
from .tables import Column, Table, TableError

#: Exit codes: success; a model that was saved but is not reliable.
DONE: Final = 0
_DOUBTFUL: Final = 3
_KERNELS: Final = (*NAMED, "linear")
#: Above `_MANY_ROWS` rows, this number of rows are the candidate centres.
_MANY_ROWS: Final = 5000
_CANDIDATES: Final = 500
#: Parts of the rows, each left out once; with more than `_MAX_ROWS_OF_FOLDS` rows only the first is.
_FOLDS: Final = 5
_MAX_ROWS_OF_FOLDS: Final = 1000
#: Least number of rows for a fit and its check.
_MIN_ROWS: Final = 5
#: Integer targets with at most this number of distinct values may be labels: a note says so.
_MAX_LABELS: Final = 10
#: P(|z| < `_Z95`) = 0.95 for a standard normal z; and the coverage of 95 % intervals that causes a warning.
_Z95: Final = 1.959964
_MIN_COVERAGE: Final = 0.88
#: Seconds between two lines of progress.
_LINE_SECONDS: Final = 10.0


def add_arguments(fit: argparse.ArgumentParser) -> None:
    add = fit.add_argument
    add("data", help="a CSV file, whose first line names the columns; - is standard input")
    target = "the column to predict; texts, or two integers such as 0 and 1, are classes"
    add("--target", required=True, help=target)
    for option, use in (
        ("--drop", "leave a column out"),
        ("--keep", "use a column that numbers the rows, or one of many different texts"),
        ("--text", "use numbers as texts: codes"),
    ):
        add(option, action="append", default=[], metavar="COLUMN", help=use)
    task = fit.add_mutually_exclusive_group()
    task.add_argument("--classify", action="store_true", help="predict a target of numbers as classes")
    task.add_argument("--regress", action="store_true", help="predict a target of two values as numbers")
    add("--kernel", choices=_KERNELS, default="rbf")
    gamma = "as in Python: a number, scale, learn, or ard (a width for each input, learned: default)"
    add("--gamma", help=gamma)
    centres = f"number of rows that are kernel centres; {_CANDIDATES} by default above {_MANY_ROWS} rows"
    add("--candidates", type=int, metavar="N", help=centres)
    add("-o", "--output", required=True, help="the model file to write (.safetensors); - is stdout")
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def run(options: argparse.Namespace) -> int:
    """Fit, save and summarise; return the exit code."""
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning

    folder = os.path.dirname(options.output) or "."
    if options.output != "-" and (os.path.isdir(options.output) or not os.path.isdir(folder)):
        what = "it is a folder" if os.path.isdir(options.output) else f"there is no folder {folder}"
        raise TableError(f"cannot write the model to {options.output}: {what}")
    table = _tables.read(options.data)
    X, y, features = _training(options, table)
    estimator = _estimator(options, y, table.notes)
    begin = _progress(quiet=options.quiet)
    begin("all rows")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(estimator).fit(X, y)
    lines = [] if options.quiet else _left_out(estimator, X, y, begin)
    model.feature_names_in_ = np.array(features, dtype=object)
    if options.output == "-":
        sys.stdout.buffer.write(model.to_predictor().to_bytes())
    else:
        model.save(options.output)
    if not options.quiet:
        problems = dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
        summary = model.summary()
        summary.lines.pop("advice", None)  # among the problems
        lines = [*(f"note          {note}" for note in table.notes), *str(summary).splitlines(), *lines]
        lines += [f"warning       {problem}" for problem in problems]
        lines.append(f"saved to      {'standard output' if options.output == '-' else options.output}")
        (sys.stderr if options.output == "-" else sys.stdout).write("\n".join(lines) + "\n")
    return _DOUBTFUL if any(issubclass(one.category, ConvergenceWarning) for one in caught) else DONE


def _progress(*, quiet: bool) -> Callable[[str], None]:
    """Return a function that shows the beginning of a stage, if the last line is old enough."""
    shown_at = time.monotonic()

    def begin(stage: str) -> None:
        nonlocal shown_at
        if not quiet and sys.stderr is not None and time.monotonic() - shown_at >= _LINE_SECONDS:
            shown_at = time.monotonic()
            sys.stderr.write(f"sparsebayes: fitting {stage}\n")
            sys.stderr.flush()

    return begin


def _estimator(options: argparse.Namespace, y: NDArray[Any], notes: list[str]) -> Any:
    """Return the estimator before its fit: targets that are not floats are classes."""
    from sparsebayes import RVC, RVR

    gamma = options.gamma or "ard"
    with suppress(ValueError):  # a name; the estimator checks it
        gamma = float(gamma)
    candidates = options.candidates
    if candidates is None and len(y) > _MANY_ROWS:
        candidates = _CANDIDATES
        notes.append(f"functions about {candidates} of {len(y)} rows; --candidates sets the number")
    kind = RVR if y.dtype.kind == "f" else RVC
    return kind(options.kernel, gamma=gamma, candidates=candidates, random_state=0)


# --- from the table to rows ---------------------------------------------------------------------------


def _training(options: argparse.Namespace, table: Table) -> tuple[FloatArray, NDArray[Any], list[str]]:
    """Return inputs and targets of the training rows, and names of the inputs; append to the notes."""
    for name in [options.target, *options.drop, *options.keep, *options.text]:
        table[name]  # raises an error that lists the columns
    target = table[options.target]
    present: NDArray[np.bool_] = ~target.missing
    if not present.any():
        raise TableError(f"column {target.name!r} of {table.path} holds no values: there is nothing to learn")
    if not present.all():
        n_left_out = counted(int(np.sum(~present)), "row")
        table.notes.append(f"left out {n_left_out} without a value of {target.name!r}")
    y = _target(options, target, present, table.notes)
    names = [name for name in table if name not in {options.target, *options.drop}]
    features = table.inputs(names, present, options)
    comma = table.refuse_two_decimal_signs([*map(table.source, features), options.target])
    if comma is not None:
        table.notes.append(f"commas are decimal signs, as in column {comma!r}")
    X = table.matrix(features)[0][present]
    X, y = _without_gaps(X, y, features, table.notes)
    _refuse_too_little(table.path, target.name, y)
    return X, y, features


def _without_gaps(
    X: FloatArray, y: NDArray[Any], features: list[str], notes: list[str]
) -> tuple[FloatArray, NDArray[Any]]:
    """Return the rows without missing inputs, or if they are fewer than half, all rows with medians."""
    missing = np.isnan(X)
    kept = np.flatnonzero(~missing.any(axis=1))
    columns = listed([features[j] for j in np.flatnonzero(missing.any(axis=0))], 6)
    if len(kept) == len(y):
        return X, y
    if 2 * len(kept) >= len(y):
        notes.append(f"left out {counted(len(y) - len(kept), 'row')} with missing inputs, of {columns}")
        return X[kept], y[kept]
    notes.append(
        f"replaced {counted(int(missing.sum()), 'missing number')} in {columns} by medians, as fewer than "
        "half of the rows are complete"
    )
    return np.where(missing, np.nanmedian(X, axis=0), X), y


def _refuse_too_little(path: str, target: str, y: NDArray[Any]) -> None:
    if len(y) < _MIN_ROWS:
        raise TableError(
            f"{path} has {counted(len(y), 'row')} to learn from; a model and its check need {_MIN_ROWS}"
        )
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        raise TableError(
            f"column {target!r} of {path} is {values[0]} in all rows to learn from: there is "
            "nothing to predict"
        )
    if y.dtype.kind != "f" and counts.min() < 2:
        alone = str(values[np.argmin(counts)])
        raise TableError(
            f"class {alone!r} of column {target!r} of {path} has one row, and needs at least two: "
            "remove the row or join the class with another (numbers are predicted as numbers with --regress)"
        )


def _target(
    options: argparse.Namespace, column: Column, present: NDArray[np.bool_], notes: list[str]
) -> NDArray[Any]:
    """Return the targets of the rows that have one: floats, or labels of classes."""
    name = column.name
    if not options.regress and (column.numbers is None or name in options.text):
        column.refuse_dates()
        if not options.classify:
            column.refuse_damaged_numbers("--classify uses each text as a class")
        notes.append(f"{name!r} is text: its values are classes")
        return np.array(column.cells)[present]
    y = column.finite()[present]
    integers, n_values = bool(np.all(y == np.round(y))), len(np.unique(y))
    if options.classify and not integers:
        row = int(np.flatnonzero(present)[np.flatnonzero(y != np.round(y))[0]])
        raise TableError(
            f"{column.at(row)}, which is not an integer label; leave --classify out to predict numbers"
        )
    if options.classify:
        return y.astype(np.int64)
    if not options.regress and integers and n_values == 2:
        notes.append(f"{name!r} has two values: they are classes; --regress predicts them as numbers")
        return y.astype(np.int64)
    if not options.regress and integers and n_values <= _MAX_LABELS:
        notes.append(
            f"{name!r} is predicted as a number; --classify predicts its {n_values} values as classes"
        )
    return y


# --- the check -----------------------------------------------------------------------------------------


def _left_out(estimator: Any, X: FloatArray, y: NDArray[Any], begin: Callable[[str], None]) -> list[str]:
    """Return a line with the error on rows left out of fits, and a warning if it is large."""
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold

    from ..model_selection import log_densities

    classifies = is_classifier(estimator)
    kind = StratifiedKFold if classifies else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = list(kind(min(_FOLDS, len(y)), shuffle=True, random_state=0).split(X, y))
        folds = folds if len(y) <= _MAX_ROWS_OF_FOLDS else folds[:1]
        found = []
        for k, (rest, part) in enumerate(folds, 1):
            begin(f"all rows but part {k} of {len(folds)}, to measure the error")
            model = clone(estimator).fit(X[rest], y[rest])
            if classifies:
                found.append([model.predict(X[part]) == y[part], log_densities(model, X[part], y[part])])
            else:
                found.append(model.predict(X[part], return_std=True))
    y = y[np.concatenate([part for _, part in folds])]
    first, second = np.hstack([np.stack(pair) for pair in found])
    line, warning = f"left out      {len(y)} rows, each left out of a fit: ", ""
    if classifies:
        log_loss, shares = -second.mean(), np.unique(y, return_counts=True)[1] / len(y)
        entropy = -float(shares @ np.log(shares))
        line += f"accuracy {first.mean():.4f}, log loss {log_loss:.4f} "
        line += f"(the shares of classes alone: {shares.max():.4f}, {entropy:.4f})"
        useless, constant = log_loss >= entropy, "the shares of the classes"
    else:
        error = y - first
        r2 = 1.0 - float((error**2).sum() / ((y - y.mean()) ** 2).sum())
        coverage = float(np.mean(np.abs(error) <= _Z95 * second))
        line += f"R^2 {r2:.4f}, 95 % intervals hold {100 * coverage:.1f} % of them"
        useless, constant = r2 <= 0.0, "the mean"
        if coverage < _MIN_COVERAGE:
            warning = "error bars are too small: 95 % intervals hold too few of the rows left out"
    if useless:
        warning = f"the model predicts rows left out no better than {constant}"
    return [line, f"warning       {warning}"] if warning else [line]
