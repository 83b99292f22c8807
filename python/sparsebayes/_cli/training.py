"""From a table to training rows: which columns are inputs, and what the target is."""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks import counted, listed
from .._types import FloatArray
from .tables import Column, Table, TableError

#: Least number of rows for a fit and its check.
MIN_ROWS: Final = 5
#: Integer targets with at most this number of distinct values may be labels: a note says so.
_MAX_LABELS: Final = 10


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


def training_rows(options: argparse.Namespace, table: Table) -> tuple[FloatArray, NDArray[Any], list[str]]:
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
    if len(y) < MIN_ROWS:
        raise TableError(
            f"{path} has {counted(len(y), 'row')} to learn from; a model and its check need {MIN_ROWS}"
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
    if not options.regress and integers and y.min() == 0.0 and n_values > 2:
        notes.append(f"if {name!r} counts events, RVR(likelihood='poisson') in Python has fitting error bars")
    return y
