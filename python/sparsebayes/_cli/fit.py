"""``sparsebayes fit``: from a table to training rows, a model file and a summary."""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._checks import counted, listed
from .._types import FloatArray
from ..kernels._resolve import NAMED
from . import report
from . import tables as _tables
from .tables import Column, Table, TableError, log_exposure

#: Exit codes: success; a model that was saved but is not reliable.
DONE: Final = 0
_DOUBTFUL: Final = 3
_KERNELS: Final = (*NAMED, "linear")
#: Seconds between two lines of progress.
_LINE_SECONDS: Final = 10.0


def add_arguments(fit: argparse.ArgumentParser) -> None:
    add_table_arguments(fit)
    add = fit.add_argument
    add("--kernel", choices=_KERNELS, default="rbf")
    gamma = "as in Python: a number, scale, learn, or ard (a width for each input, learned: default)"
    add("--gamma", help=gamma)
    centres = "number of rows that are kernel centres; by default every row, or up to 2000 of many rows"
    add("--candidates", type=int, metavar="N", help=centres)
    add("-o", "--output", required=True, help="the model file to write (.safetensors); - is stdout")
    add("--report", metavar="FILE", help="also write a page with pictures (.html); needs matplotlib")
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def run(options: argparse.Namespace) -> int:
    """Fit, save and summarise; return the exit code."""
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning

    from .._estimators.status import about_scales, is_empty, named_inputs
    from .._export.description import to_predictor
    from ..inspection import diagnose
    from ..inspection._diagnosis import bars

    outputs = {"the model": options.output, "the report": options.report}
    _tables.check_outputs(outputs, {"the table to learn from": options.data})
    if options.report is not None:
        report.require_matplotlib()
    table = _tables.read(options.data)
    X, y, features, exposure = training_rows(options, table)
    per_row = {} if exposure is None else {"exposure": exposure}
    estimator = _estimator(options, y)
    begin = progress(quiet=options.quiet)
    begin("all rows")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(estimator).fit(X, y, **per_row)
    problems = list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught))
    by_number = about_scales(model, X)
    model.feature_names_in_ = np.array(features, dtype=object)
    by_name = about_scales(model, X)
    measures = options.report is not None or not options.quiet
    advice: list[str] = []
    if measures and len(y) <= report.MAX_ROWS_OF_FOLDS:
        begin("all rows with other kernels, to see whether they are better")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # X has no names
            advice = diagnose(model, X, y, **per_row).advice
    elif measures:
        _, advice = bars(model, X)
    # Neither notes once more, nor what gains evidence alone.
    known = {*problems, *(f"{note}." for note in table.notes)}
    problems += [one for one in advice if one not in known and not one.startswith("The log evidence")]
    for note in table.notes:
        problems = [one.replace(f" {note}.", "") for one in problems]
    if by_number is not None and by_name is not None:
        problems = [one.replace(by_number, by_name) for one in problems]
    problems = [_for_command(one, features) for one in problems]
    offset = None if exposure is None else _tables.log_exposure(options.exposure)
    predictor = to_predictor(model, offset)
    if options.output == "-":
        sys.stdout.buffer.write(predictor.to_bytes())
    else:
        predictor.save(options.output)
    summary = model.summary()
    summary.lines.pop("advice", None)  # among the problems
    if measures:
        measured = report.leave_out(estimator, X, y, begin, exposure)
        # A warning that the model has no functions says as much, and why.
        measured = replace(measured, is_explained=is_empty(model))
    if options.report is not None:
        report.write(
            options.report, options.target, summary, named_inputs(model), measured, table.notes, problems
        )
    if not options.quiet:
        lines = [*(f"note          {note}" for note in table.notes), *str(summary).splitlines()]
        lines += [*measured.lines(), *(f"warning       {problem}" for problem in problems)]
        lines.append(f"saved to      {'standard output' if options.output == '-' else options.output}")
        if options.report is not None:
            lines.append(f"report        {options.report}")
        (sys.stderr if options.output == "-" else sys.stdout).write("\n".join(lines) + "\n")
    return _DOUBTFUL if any(issubclass(one.category, ConvergenceWarning) for one in caught) else DONE


def _for_command(advice: str, features: list[str]) -> str:
    """Return an advice in the words of the command: its options for arguments. Names of inputs stay."""
    quoted = "|".join(re.escape(repr(name)) for name in sorted(features, key=len, reverse=True))
    # Every second part is a name.
    parts = re.split(rf"(?<![=\w])({quoted})", advice)
    rest = [re.sub(r"\b(likelihood|kernel|gamma)='(\w+)'", r"--\1 \2", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"(the widths of the kernel) \(.*\)", r"\1 (only in Python)", part) for part in rest]
    others = dict.fromkeys(re.findall(r"\b(\w+)=", " ".join(parts[::2])))
    advice = "".join(parts)
    return f"{advice} ({', '.join(others)}: only in Python)" if others else advice


def progress(*, quiet: bool) -> Callable[[str], None]:
    """Return a function that shows the beginning of a stage, if the last line is old enough."""
    shown_at = time.monotonic()

    def begin(stage: str) -> None:
        nonlocal shown_at
        if not quiet and sys.stderr is not None and time.monotonic() - shown_at >= _LINE_SECONDS:
            shown_at = time.monotonic()
            sys.stderr.write(f"sparsebayes: fitting {stage}\n")
            sys.stderr.flush()

    return begin


def _estimator(options: argparse.Namespace, y: NDArray[Any]) -> Any:
    """Return the estimator before its fit: targets that are not floats are classes."""
    from sparsebayes import RVC, RVR

    gamma = options.gamma or "ard"
    with suppress(ValueError):  # a name; the estimator checks it
        gamma = float(gamma)
    candidates = "auto" if options.candidates is None else options.candidates
    arguments: dict[str, Any] = {"gamma": gamma, "candidates": candidates, "random_state": 0}
    if y.dtype.kind != "f":
        return RVC(options.kernel, **arguments)
    return RVR(options.kernel, likelihood=options.likelihood or "gaussian", **arguments)


# --- from a table to training rows: which columns are inputs, and what the target is ----------------

#: Least number of rows for a fit and its check.
MIN_ROWS: Final = 5
#: Integer targets with at most this number of distinct values may be labels: a note says so.
_MAX_LABELS: Final = 10
#: Those of `RVR`, and those of them that have exposures. Their own module needs SciPy, which is slow to load.
LIKELIHOODS: Final = ("gaussian", "student_t", "poisson", "negative_binomial", "gamma")
_WITH_EXPOSURE: Final = LIKELIHOODS[2:]


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
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
