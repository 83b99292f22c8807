"""From a table to training rows: which columns are inputs, and what the target is."""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks import counted, listed
from .._types import FloatArray
from .tables import Column, Table, TableError, log_exposure

#: Least number of rows for a fit and its check.
MIN_ROWS: Final = 5
#: Integer targets with at most this number of distinct values may be labels: a note says so.
_MAX_LABELS: Final = 10
#: Those of `RVR`, and those of them that have exposures. Their own module needs SciPy, which is slow to load.
LIKELIHOODS: Final = ("gaussian", "student_t", "poisson", "negative_binomial", "gamma")
_WITH_EXPOSURE: Final = LIKELIHOODS[2:]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a table, its target and its inputs."""
    add = parser.add_argument
    add("data", help="a CSV file, whose first line names the columns; - is standard input")
    target = "the column to predict; texts, or two integers such as 0 and 1, are classes"
    add("--target", required=True, help=target)
    for option, use in (
        ("--drop", "leave a column out"),
        ("--keep", "use a column that numbers the rows, or one of many different texts"),
        ("--text", "use numbers as texts: codes"),
    ):
        add(option, action="append", default=[], metavar="COLUMN", help=use)
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--classify", action="store_true", help="predict a target of numbers as classes")
    task.add_argument("--regress", action="store_true", help="predict a target of two values as numbers")
    distribution = (
        "the distribution of a target of numbers: gaussian (default), student_t if some targets are wrong, "
        "poisson or negative_binomial for counts, gamma for positive numbers"
    )
    add("--likelihood", choices=LIKELIHOODS, metavar="NAME", help=distribution)
    add("--exposure", metavar="COLUMN", help="the time, area or population that counts belong to")


def training_rows(
    options: argparse.Namespace, table: Table
) -> tuple[FloatArray, NDArray[Any], list[str], FloatArray | None]:
    """Return inputs, targets (floats or labels), names of the inputs and exposures; append to the notes."""
    from .._arrays import about_copies

    _check_likelihood(options)
    exposures = [] if options.exposure is None else [options.exposure]
    for name in [options.target, *options.drop, *options.keep, *options.text, *exposures]:
        table[name]  # raises an error that lists the columns
    target = table[options.target]
    present: NDArray[np.bool_] = ~target.missing
    if not present.any():
        raise TableError(f"column {target.name!r} of {table.path} holds no values: there is nothing to learn")
    if not present.all():
        table.leave_out(~present, f"without a value of {target.name!r}{target.about_gaps(~present)}")
    exposure = None if options.exposure is None else table[options.exposure].positive()
    if exposure is not None and (gaps := present & np.isnan(exposure)).any():
        present &= ~gaps
        table.leave_out(gaps, f"without a value of {exposures[0]!r}")
    if not present.any():
        raise TableError(f"no row of {table.path} has values of both {target.name!r} and {exposures[0]!r}")
    y = _target(options, target, present, table.notes)
    names = [name for name in table if name not in {options.target, *options.drop, *exposures}]
    features = table.inputs(names, present, options)
    if any(log_exposure(name) in features for name in exposures):
        raise TableError(f"{table.path} has a column {log_exposure(exposures[0])!r}; rename it")
    comma = table.refuse_two_decimal_signs([*map(table.source, features), options.target, *exposures])
    if comma is not None:
        table.notes.append(f"commas are decimal signs, as in column {comma!r}")
    X = table.matrix(features)[0][present]
    X, kept = _without_gaps(X, features, table)
    y, exposure = y[kept], None if exposure is None else exposure[present][kept]
    _refuse_too_little(table, target.name, y)
    if options.likelihood is not None:
        _refuse_outside(options.likelihood, table.path, target.name, y)
    if note := about_copies(X, y):
        table.notes.append(note)
    return X, y, features, exposure


def _check_likelihood(options: argparse.Namespace) -> None:
    """Raise TableError if arguments contradict each other; a likelihood makes the target numbers."""
    if options.likelihood is not None:
        if options.classify:
            raise TableError("--likelihood is for a target of numbers: leave out --likelihood or --classify")
        options.regress = True
    if options.exposure is None:
        return
    if options.likelihood not in _WITH_EXPOSURE:
        raise TableError(
            f"--exposure needs --likelihood {', '.join(_WITH_EXPOSURE[:-1])} or {_WITH_EXPOSURE[-1]}"
        )
    if options.exposure == options.target:
        raise TableError(f"--exposure must be another column than the target, got {options.target!r} twice")


def _refuse_outside(likelihood: str, path: str, target: str, y: FloatArray) -> None:
    """Raise TableError if the likelihood does not have such targets."""
    from .._row_likelihoods import row_likelihood

    own = row_likelihood(likelihood).targets
    if own is not None and not own.is_valid(y):
        value = y[own.first_invalid(y)]
        raise TableError(
            f"column {target!r} of {path} must {own.must_be} with --likelihood {likelihood}, and holds "
            f"{value:g}; leave --likelihood out for such numbers"
        )


def _without_gaps(X: FloatArray, features: list[str], table: Table) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the rows without missing inputs, or if they are fewer than half, all with medians; and which."""
    missing = np.isnan(X)
    kept = np.flatnonzero(~missing.any(axis=1))
    columns = listed([features[j] for j in np.flatnonzero(missing.any(axis=0))], 6)
    if len(kept) == len(X):
        return X, kept
    if 2 * len(kept) >= len(X):
        table.leave_out(np.any(missing, axis=1), f"with missing inputs, of {columns}")
        return X[kept], kept
    table.notes.append(
        f"replaced {counted(int(missing.sum()), 'missing number')} in {columns} by medians, as fewer than "
        "half of the rows are complete"
    )
    return np.where(missing, np.nanmedian(X, axis=0), X), np.arange(len(X))


def _refuse_too_little(table: Table, target: str, y: NDArray[Any]) -> None:
    """Raise TableError, with the notes about rows left out, if there are too few rows or only one target."""
    path, rest = table.path, "".join(f"; {note}" for note in table.rows_left_out)
    if len(y) < MIN_ROWS:
        raise TableError(
            f"{path} has {counted(len(y), 'row')} to learn from; a model and its check need {MIN_ROWS}{rest}"
        )
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        raise TableError(
            f"column {target!r} of {path} is {values[0]} in all rows to learn from: there is "
            f"nothing to predict{rest}"
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
        if column.mostly_dates() and not options.classify and name not in options.text:
            row = int(np.flatnonzero(present)[0])
            raise TableError(
                f"{column.at(row)}, a date or time: write it as a number, such as days since the start"
            )
        if not options.classify:
            column.refuse_damaged_numbers("--classify uses each text as a class")
        notes.append(f"{name!r} is text: its values are classes")
        return np.array(column.cells)[present]
    y = column.finite()[present]
    if note := column.about_codes(present):
        notes.append(note)
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
    if options.likelihood is None and integers and y.min() == 0.0 and n_values > 2:
        notes.append(
            f"if {name!r} counts events, --likelihood poisson has fitting error bars, or negative_binomial "
            "where counts vary more"
        )
    return y
