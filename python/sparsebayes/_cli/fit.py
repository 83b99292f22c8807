"""``sparsebayes fit``: from a table to a model file and a summary."""

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

from ..kernels._resolve import NAMED
from . import left_out, report, training
from . import tables as _tables

#: Exit codes: success; a model that was saved but is not reliable.
DONE: Final = 0
_DOUBTFUL: Final = 3
_KERNELS: Final = (*NAMED, "linear")
#: Seconds between two lines of progress.
_LINE_SECONDS: Final = 10.0


def add_arguments(fit: argparse.ArgumentParser) -> None:
    training.add_arguments(fit)
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

    from .._estimators.status import about_scales, is_empty
    from .._estimators.summary import named_inputs
    from .._export.description import to_predictor
    from ..inspection import diagnose
    from ..inspection._diagnosis import bars

    outputs = {"the model": options.output, "the report": options.report}
    _tables.check_outputs(outputs, {"the table to learn from": options.data})
    if options.report is not None:
        report.require_matplotlib()
    table = _tables.read(options.data)
    X, y, features, exposure = training.training_rows(options, table)
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
    if measures and len(y) <= left_out.MAX_ROWS_OF_FOLDS:
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
        measured = left_out.leave_out(estimator, X, y, begin, exposure)
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
