"""``sparsebayes fit``: from a table to a model file and a summary."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._progress import LOG
from ..kernels._resolve import NAMED
from . import encoding as _encoding
from . import tables as _tables
from .tables import Table, TableError, counted
from .width_search import Rows, Width, WidthScores, WidthSearch, is_saturated, statuses

#: Exit codes: success; a model that was saved but is not reliable.
_DONE: Final = 0
_DOUBTFUL: Final = 3
#: Widths that ``--width auto`` tries, and the widths for estimators that learn none.
_FIXED_WIDTHS: Final = (4.0, 2.0, 1.0, 0.5, 0.25)
_WIDTHS: Final = ("ard", *_FIXED_WIDTHS)
_ESTIMATORS: Final = ("auto", "rvr", "rvc", "mrvm1", "mrvm2")
_KERNELS: Final = (*NAMED, "linear")
#: Above `_MANY_ROWS` rows, this number of rows are the candidate centres.
_MANY_ROWS: Final = 5000
_CANDIDATES: Final = 500
#: Least number of rows for a fit and its check.
_MIN_ROWS: Final = 5
#: Integer targets with at most this number of distinct values may be labels: a note says so.
_MAX_LABELS: Final = 10
#: Most columns in the summary, and the smallest effect that is shown as a number.
_MAX_COLUMNS: Final = 10
_MIN_EFFECT: Final = 0.005
#: Ratio of the inputs' standard deviations above which a note warns of a kernel with one scale.
_MAX_STD_RATIO: Final = 10.0
#: Coverage of 95 % intervals below which there is a warning.
_MIN_COVERAGE: Final = 0.88
#: Seconds between two lines of progress, on a terminal and elsewhere.
_TERMINAL_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 10.0


def add_arguments(fit: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    add = fit.add_argument
    add("data", help="a CSV file, whose first line names the columns, or a Parquet file; - is CSV on stdin")
    target = "the column to predict; texts, or two integers such as 0 and 1, are classes"
    add("--target", required=True, help=target)
    add("--weight", help="a column of sample weights")
    for option, use in (
        ("--drop", "leave a column out"),
        ("--keep", "use a column that numbers the rows, or one of many different texts"),
        ("--text", "use numbers as texts: codes"),
    ):
        add(option, action="append", default=[], metavar="COLUMN", help=use)
    add(
        "--missing",
        choices=("impute", "drop"),
        help="impute: replace missing numbers by medians; drop: leave out rows with missing inputs; by "
        "default rows without a number are left out if they are fewer than half",
    )
    task = fit.add_mutually_exclusive_group()
    task.add_argument("--classify", action="store_true", help="predict a target of numbers as classes")
    task.add_argument("--regress", action="store_true", help="predict a target of two values as numbers")
    add("--estimator", choices=_ESTIMATORS, default="auto", help="auto: rvr, or rvc for classes")
    add("--kernel", choices=_KERNELS, default="rbf")
    add(
        "--width",
        default="auto",
        help="width of an rbf: ard learns one for each input; a number is in units of each input's "
        "standard deviation; auto (default) tries ard and five numbers on left-out rows",
    )
    centres = f"number of rows that are kernel centres; {_CANDIDATES} by default above {_MANY_ROWS} rows"
    add("--candidates", type=int, metavar="N", help=centres)
    add("--seed", type=int, default=0, help="seed for candidates and left-out rows")
    add("-o", "--output", required=True, help="the model file to write (.safetensors); - is stdout")
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def run(options: argparse.Namespace) -> int:
    """Fit, save and summarise; return the exit code."""
    _refuse_output(options.output)
    table = _tables.read(options.data)
    for name in [options.target, options.weight, *options.drop, *options.keep, *options.text]:
        if name is not None:
            table[name]  # raises an error that lists the columns
    notes = list(table.notes)
    rows, features = _training(options, table, notes)
    widths = _widths(options)
    notes += _unequal_scales(options.kernel, rows, features)
    arguments = _candidates(options, rows, notes)
    with _Progress(quiet=options.quiet) as begin:
        search = WidthSearch(_estimator(options, rows), options.kernel, rows, begin, arguments, options.seed)
        model, best, problems, doubtful = _chosen(search, widths)
        best = best if options.quiet else search.measured(best)
    model.feature_names_in_ = np.array(features, dtype=object)
    if options.output == "-":
        sys.stdout.buffer.write(model.to_predictor().to_bytes())
    else:
        model.save(options.output)
    if not options.quiet:
        groups = _encoding.grouped(table, features)
        lines = [*(f"note          {note}" for note in notes), *_summary(model, rows, widths, best, groups)]
        lines += [f"warning       {problem}" for problem in problems]
        lines.append(f"saved to      {'standard output' if options.output == '-' else options.output}")
        (sys.stderr if options.output == "-" else sys.stdout).write("\n".join(lines) + "\n")
    return _DOUBTFUL if doubtful else _DONE


def _unequal_scales(kernel: str, rows: Rows, features: list[str]) -> list[str]:
    """Return a note if a kernel with one scale for all inputs does not suit them."""
    std = rows.X.std(axis=0)
    wide, narrow = int(np.argmax(std)), int(np.argmin(std))
    if kernel == "rbf" or std[wide] <= _MAX_STD_RATIO * std[narrow]:
        return []
    return [
        f"{kernel} has one scale for all inputs, and the standard deviations of {features[wide]!r} and "
        f"{features[narrow]!r} differ {std[wide] / std[narrow]:.2g}-fold: scale the columns, or use rbf"
    ]


def _refuse_output(path: str) -> None:
    """Raise TableError before the fit if the model cannot be written."""
    folder = os.path.dirname(path) or "."
    if path != "-" and (os.path.isdir(path) or not os.path.isdir(folder)):
        what = "it is a folder" if os.path.isdir(path) else f"there is no folder {folder}"
        raise TableError(f"cannot write the model to {path}: {what}")


# --- from the table to rows ---------------------------------------------------------------------------


def _training(options: argparse.Namespace, table: Table, notes: list[str]) -> tuple[Rows, list[str]]:
    """Return the training rows and the names of their inputs; append to ``notes``."""
    target = table[options.target]
    present: NDArray[np.bool_] = ~target.missing
    if not present.any():
        raise TableError(f"column {target.name!r} of {table.path} holds no values: there is nothing to learn")
    if not present.all():
        notes.append(f"left out {counted(int(np.sum(~present)), 'row')} without a value of {target.name!r}")
    weights = None if options.weight is None else table[options.weight].complete()
    if weights is not None:
        if options.weight == options.target:
            raise TableError(f"--weight {options.weight} is the column to predict; name another")
        if (weights < 0.0).any():
            row = int(np.flatnonzero(weights < 0.0)[0])
            raise TableError(
                f"{table[options.weight].at(row)}, a weight below 0; a row of weight 0 is left out"
            )
        present &= weights != 0.0  # left out, in the scores too
        weights = weights[present]
    _refuse_too_few(table, int(present.sum()))
    y, classifies = _target(options, table, present, notes)
    excluded = {options.target, options.weight, *options.drop}
    features, encoding_notes = _encoding.choose(table, excluded, options.text, options.keep, present)
    notes += encoding_notes
    used = list(_encoding.grouped(table, features))
    for name in used:
        if table[name].is_percent:
            notes.append(f"{name!r} holds percentages: 12 % is 12")
    comma = table.refuse_two_decimal_signs([*used, *(n for n in (options.target, options.weight) if n)])
    if comma is not None:
        notes.append(f"commas are decimal signs, as in column {comma!r}")
    X = _encoding.matrix(table, features)[0][present]
    missing = np.isnan(X)
    if options.missing == "drop":
        missing = np.column_stack([table[name].missing[present] for name in used])
    kept = np.flatnonzero(~missing.any(axis=1))
    rows = Rows(X, y, weights, classifies)
    if options.missing == "drop" or (options.missing is None and 2 * len(kept) >= len(rows)):
        if len(kept) < len(rows):
            notes.append(
                f"left out {counted(len(rows) - len(kept), 'row')} with missing inputs; --missing impute "
                "replaces missing numbers by medians"
            )
            _refuse_too_few(table, len(kept))
            rows = rows.at(kept)
    elif missing.any():
        columns = [features[j] for j in np.flatnonzero(missing.any(axis=0))]
        notes.append(
            f"replaced {counted(int(missing.sum()), 'missing number')} in "
            f"{_tables.listed(columns, 6)} by medians; --missing drop leaves these rows out"
        )
        rows = Rows(np.where(missing, np.nanmedian(X, axis=0), X), y, weights, classifies)
    _refuse_few_values(table, target.name, rows.y, classifies)
    return rows, features


def _refuse_too_few(table: Table, n_rows: int) -> None:
    if n_rows < _MIN_ROWS:
        raise TableError(
            f"{table.path} has {counted(n_rows, 'row')} to learn from; a model and its check "
            f"need {_MIN_ROWS} or more"
        )


def _refuse_few_values(table: Table, target: str, y: NDArray[Any], classifies: bool) -> None:
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        raise TableError(
            f"column {target!r} of {table.path} is {values[0]} in all rows to learn from: there is "
            "nothing to predict"
        )
    if classifies and counts.min() < 2:
        alone = str(values[np.argmin(counts)])
        raise TableError(
            f"class {alone!r} of column {target!r} of {table.path} has one row, and needs at least two: "
            "remove the row or join the class with another (numbers are predicted as numbers with --regress)"
        )


def _target(
    options: argparse.Namespace, table: Table, present: NDArray[np.bool_], notes: list[str]
) -> tuple[NDArray[Any], bool]:
    """Return the targets of the rows that have one, and whether they are classes."""
    column = table[options.target]
    if options.classify and options.estimator == "rvr":
        raise TableError("--classify does not go with --estimator rvr; use rvc")
    if options.regress and options.estimator not in ("auto", "rvr"):
        raise TableError(f"--regress does not go with --estimator {options.estimator}; use rvr")
    regress = options.regress or options.estimator == "rvr"
    classify = options.classify or not (regress or options.estimator == "auto")
    if column.numbers is None or options.target in options.text:
        column.refuse_dates()
        if regress:
            column.finite()
            raise TableError(f"column {column.name!r} cannot be text and predicted as numbers")
        if not classify:
            column.refuse_damaged_numbers("--classify uses each text as a class")
        labels = np.array(column.cells)[present]
        notes.append(f"{column.name!r} is text: its values are classes")
        return labels, True
    y = column.finite()[present]
    integers, n_values = bool(np.all(y == np.round(y))), len(np.unique(y))
    if not (classify or regress) and integers and n_values == 2:
        notes.append(f"{column.name!r} has two values: they are classes; --regress predicts them as numbers")
        classify = True
    if classify and not integers:
        row = int(np.flatnonzero(present)[np.flatnonzero(y != np.round(y))[0]])
        raise TableError(
            f"{column.at(row)}, which is not an integer label; leave --classify and --estimator out to "
            "predict numbers"
        )
    if classify:
        return y.astype(np.int64), True
    if not regress and integers and n_values <= _MAX_LABELS:
        notes.append(
            f"{column.name!r} is predicted as a number; --classify predicts its {n_values} values as classes"
        )
    return y, False


# --- the model ----------------------------------------------------------------------------------------


def _estimator(options: argparse.Namespace, rows: Rows) -> Any:
    """Return the class of the estimator."""
    import sparsebayes

    name = ("rvc" if rows.classifies else "rvr") if options.estimator == "auto" else options.estimator
    return getattr(sparsebayes, name.upper())


def _candidates(options: argparse.Namespace, rows: Rows, notes: list[str]) -> dict[str, Any]:
    """Return the arguments of the estimator that choose candidate centres; append to ``notes``."""
    candidates = options.candidates
    if candidates is None and len(rows) > _MANY_ROWS:
        candidates = _CANDIDATES
        notes.append(f"functions about {candidates} of {len(rows)} rows; --candidates sets the number")
    return {} if candidates is None else {"candidates": candidates, "random_state": options.seed}


def _widths(options: argparse.Namespace) -> Sequence[Width]:
    """Return the widths to choose from."""
    width_option, learns = options.width, options.estimator not in ("mrvm1", "mrvm2")
    if options.kernel != "rbf":
        if width_option != "auto":
            raise TableError(f"--width is for --kernel rbf; {options.kernel} has none")
        return (None,)
    if width_option == "auto":
        return _WIDTHS if learns else _FIXED_WIDTHS
    if width_option == "ard":
        if not learns:
            raise TableError(
                f"--width ard does not go with --estimator {options.estimator}; use auto or a number"
            )
        return ("ard",)
    try:
        width = float(width_option)
    except ValueError:
        width = np.nan
    if not 0.0 < width < np.inf:
        raise TableError(f"--width must be auto, ard or a number above 0, got {width_option!r}")
    return (width,)


def _chosen(search: WidthSearch, widths: Sequence[Width]) -> tuple[Any, WidthScores, list[str], bool]:
    """Return the model with the width that predicts left-out rows best, and the scores of that width.

    Return also its warnings, and whether it is unreliable: not converged, empty or overfitted.
    """
    found: list[tuple[Any, WidthScores, list[str], bool]] = []
    for one in search.ranking(widths):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = search.model(one)
        problems = list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught))
        ended = statuses(model) - {"converged"}
        if ended and not problems:
            problems.append(f"the fit ended as {', '.join(sorted(ended))}")
        n_rows = len(search.rows)
        if not is_saturated(model, n_rows):
            return model, one, problems, bool(ended)
        if not problems:
            problems.append(
                f"{len(model.relevance_)} functions for {n_rows} rows: the kernel is too narrow for these "
                "data or there is no noise, and error bars are too small; try a larger --width"
            )
        found.append((model, one, problems, True))
    return found[0]


class _Progress(logging.Handler):
    """Shows log messages: on a terminal in one line that is overwritten, elsewhere every ten seconds."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet or sys.stderr is None
        self._terminal = not self._quiet and sys.stderr.isatty()
        self._seconds = _TERMINAL_SECONDS if self._terminal else _LINE_SECONDS
        self._shown_at, self._stage, self._level = time.monotonic(), "", LOG.level

    def __enter__(self) -> Callable[[str], None]:
        """Return a function that begins a stage, which is named in each line."""
        if not self._quiet:
            LOG.addHandler(self)
            LOG.setLevel(logging.DEBUG)
        return self._begin

    def __exit__(self, *_: object) -> None:
        LOG.removeHandler(self)
        LOG.setLevel(self._level)
        if self._terminal:
            sys.stderr.write(f"\r{'':<78}\r")
            sys.stderr.flush()

    def _begin(self, stage: str) -> None:
        self._stage = stage
        self._show("begun")

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, if the last one is old enough."""
        self._show(record.getMessage())

    def _show(self, message: str) -> None:
        now = time.monotonic()
        if self._quiet or now - self._shown_at < self._seconds:
            return
        self._shown_at = now
        line = f"{self._stage}: {message}"
        sys.stderr.write(f"\r{line[:78]:<78}" if self._terminal else f"sparsebayes: {line}\n")
        sys.stderr.flush()


def _summary(
    model: Any, rows: Rows, widths: Sequence[Width], best: WidthScores, groups: dict[str, list[int]]
) -> list[str]:
    lines = [
        f"{type(model).__name__} on {len(rows)} rows of {counted(model.n_features_in_, 'input')}: "
        f"{counted(len(model.relevance_), 'relevance vector')}",
        f"kernel        {_kernel(model, widths, best.width)}",
    ]
    warning = ""
    if best.fits:
        scores = best.scores()
        if rows.classifies:
            score = f"accuracy {scores['accuracy']:.4f}, log loss {scores['log loss']:.4f}"
            score += f" (the shares of classes alone: {scores['largest share']:.4f}, {scores['entropy']:.4f})"
            useless, constant = scores["log loss"] >= scores["entropy"], "the shares of the classes"
        else:
            score = f"R^2 {scores['R^2']:.4f}, 95 % intervals hold {100 * scores['coverage']:.1f} % of them"
            useless, constant = scores["R^2"] <= 0.0, "the mean"
            if scores["coverage"] < _MIN_COVERAGE:
                warning = "error bars are too small: 95 % intervals hold too few of the rows left out"
        lines.append(f"left out      {best.n_rows} rows, each left out of a fit: {score}")
        lines.append(f"inputs        {_effects(best.effects(groups), rows.classifies)}")
        warning = f"the model predicts rows left out no better than {constant}" if useless else warning
    if hasattr(model, "noise_variance_"):
        lines.append(f"noise         {float(np.sqrt(model.noise_variance_)):.4g} (standard deviation)")
    lines.append(f"status        {', '.join(sorted(statuses(model)))}")
    return [*lines, f"warning       {warning}"] if warning else lines


def _kernel(model: Any, widths: Sequence[Width], width: Width) -> str:
    if width is None:
        return str(model.kernel_)
    if width == "ard":
        what = "rbf, a width for each input, learned"
    else:
        what = f"rbf, widths {width:g} sqrt({model.n_features_in_}) times the inputs' standard deviations"
    return what + (f"; of {len(widths)} choices it predicts rows left out best" if len(widths) > 1 else "")


def _effects(effects: dict[str, float], classifies: bool) -> str:
    """Return a line with the effects of columns, in descending order."""
    ordered = sorted(effects, key=lambda name: -effects[name])
    shown = [f"{name} {effects[name]:.3g}" for name in ordered if effects[name] >= _MIN_EFFECT]
    rest = ordered[len(shown) :]
    if not shown:
        return "none matters"
    lost = "log loss gained" if classifies else "R^2 lost"
    line = f"{_tables.listed(shown, _MAX_COLUMNS)} ({lost} if shuffled)"
    return line + (f"; little or nothing: {_tables.listed(rest, _MAX_COLUMNS)}" if rest else "")
