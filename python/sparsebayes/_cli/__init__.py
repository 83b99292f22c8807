"""The command line: ``sparsebayes fit``, ``sparsebayes predict`` and ``sparsebayes compare``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import __version__, _core
from .._checks import listed
from ..predictor import Predictor, load
from . import compare as _compare
from . import fit as _fit
from . import tables as _tables
from .tables import TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._types import FloatArray

#: Exit code: an error that the user can correct.
_FAILED: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: success; 1: a file or an argument is wrong, and standard error names it; 2: the command line cannot be
    parsed; 3: the model is saved, but it did not converge, is empty or overfitted; 130: interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it; the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fit.DONE
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else f"a file: {error}"
        sys.stderr.write(f"sparsebayes: cannot read or write {what}\n")
        return _FAILED
    except (TableError, ValueError, TypeError, MemoryError, _core.NumericalError) as error:
        sys.stderr.write(f"sparsebayes: {error}\n")
        return _FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nsparsebayes: interrupted; nothing was written\n")
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparsebayes", description="Relevance vector machines on tables in CSV files."
    )
    parser.add_argument("--version", action="version", version=f"sparsebayes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    fit = commands.add_parser("fit", help="fit a model to a table and save it")
    _fit.add_arguments(fit)
    fit.set_defaults(run=_fit.run)
    predict = commands.add_parser("predict", help="predict the rows of a table")
    add = predict.add_argument
    add("model", help="a model file, as `fit` writes it")
    add("data", help="a table with the model's columns; others are ignored; - is standard input")
    add("-o", "--output", default="-", help="the CSV file to write; standard output by default")
    add("-q", "--quiet", action="store_true", help="no notes on standard error")
    predict.set_defaults(run=_predict)
    compare = commands.add_parser("compare", help="compare with other models on rows left out of a table")
    _compare.add_arguments(compare)
    compare.set_defaults(run=_compare.run)
    return parser


def _predict(options: argparse.Namespace) -> int:
    if options.model == options.data == "-":
        raise TableError("model and data cannot both be on standard input; give one of them as a file")
    inputs = {"the model": options.model, "the table to predict": options.data}
    _tables.check_outputs({"the predictions": options.output}, inputs)
    is_piped = options.model == "-"
    model = Predictor.from_bytes(sys.stdin.buffer.read()) if is_piped else load(options.model)
    table = _tables.read(options.data)
    features = list(table if model.feature_names_in_ is None else model.feature_names_in_)
    if len(features) != model.n_features_in_:
        raise TableError(
            f"the model was fitted to {model.n_features_in_} columns without names, and {table.path} "
            f"has {len(features)}; give it these columns alone, in the same order"
        )
    # Others may be missing.
    used = _used_inputs(model)
    names = [features[j] for j in used]
    values, notes = table.matrix(names, known=features)
    table.refuse_two_decimal_signs(table.source(name) for name in names)
    X = np.zeros((len(values), len(features)))
    X[:, used] = values
    missing = np.isnan(X)
    complete: NDArray[np.bool_] = ~np.any(missing, axis=1)
    if not complete.all():
        gaps = np.flatnonzero(missing.any(axis=0))
        columns = list(dict.fromkeys(table.source(features[j]) for j in gaps))
        notes.append(
            f"{np.sum(~complete)} of {len(X)} rows lack a value of {listed(columns, 6)} and have no "
            "prediction; fill in the values to have one"
        )
    for note in notes if not options.quiet else ():
        sys.stderr.write(f"sparsebayes: {note}\n")
    found = {
        name: [value if whole else None for value, whole in zip(values.tolist(), complete, strict=True)]
        for name, values in _outputs(model, np.where(missing, 0.0, X)).items()
    }
    _tables.write(found, options.output)
    return _fit.DONE


def _used_inputs(model: Predictor) -> NDArray[np.intp]:
    """Return the inputs that predictions depend on, all where this is not known or there are none.

    An input of infinite width does not count, unless a linear term has it.
    """
    counts = np.zeros(model.n_features_in_)
    header = json.loads(model._core.header)
    blocks = [block["centres"] for block in header["blocks"] if "centres" in block]
    for kernel in [*blocks, *filter(None, header.get("growths") or [])]:
        at: Any = slice(None)
        if "on_columns" in kernel:
            at, kernel = kernel["on_columns"]["columns"], kernel["on_columns"]["kernel"]
        # A kernel without parameters is its name.
        parameters = None if isinstance(kernel, str) else next(iter(kernel.values()))
        counts[at] += parameters.get("inverse_square_widths", [1.0]) if isinstance(parameters, dict) else 1.0
    linear = [block["centred_columns"] for block in header["blocks"] if "centred_columns" in block]
    linear += [block for block in header["blocks"] if "columns" in block]
    for columns in linear:
        counts[columns["columns"]] += 1.0
    known = len(blocks) + len(linear) == sum(block != "constant" for block in header["blocks"])
    used = np.flatnonzero(counts)
    return used if known and len(used) > 0 else np.arange(model.n_features_in_)


def _outputs(model: Predictor, X: FloatArray) -> dict[str, NDArray[Any]]:
    """Return predictions, and their standard deviations or probabilities, by column."""
    if model.classes_ is not None:
        probabilities = zip(model.classes_, model.predict_proba(X).T, strict=True)
        return {"prediction": model.predict(X)} | {f"p({label})": p for label, p in probabilities}
    found = {}
    for name, values in zip(("prediction", "std"), model.predict_std(X), strict=True):
        columns = values.reshape(len(X), -1).T
        for k, column in enumerate(columns):
            found[name if len(columns) == 1 else f"{name}.{k}"] = column
    return found
