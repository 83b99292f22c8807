"""The command line: ``sparsebayes fit``, ``predict``, ``info`` and ``demo``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import __version__, _tables
from ._tables import TableError
from .predictor import Predictor, load

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._types import FloatArray

#: What the process returns: all well; something to put right; and a model that is saved but not certified.
_DONE: Final = 0
_FAILED: Final = 1
_NOT_CONVERGED: Final = 3
#: Multiples of the inputs' spread that ``--width auto`` tries; the evidence chooses.
_WIDTHS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
_MACHINES: Final = ("auto", "rvr", "rvc", "mrvm1", "mrvm2")
_KERNELS: Final = ("rbf", "laplacian", "poly", "linear", "linear_spline")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: done; 1: something in the files or arguments has to be put right, said on standard error; 2: the
    command is not understood; 3: the model is saved, but its fit ended short of a certified optimum.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except (TableError, ValueError, TypeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has seen enough; a flush at exit must not complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _DONE
        sys.stderr.write(f"sparsebayes: {error}\n")
        return _FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nsparsebayes: interrupted; nothing was written\n")
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparsebayes", description="Relevance vector machines on tables: CSV and Parquet files."
    )
    parser.add_argument("--version", action="version", version=f"sparsebayes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_fit(commands)
    predict = commands.add_parser("predict", help="predict the rows of a table")
    predict.add_argument("model", help="a model file, as `fit` writes it")
    predict.add_argument("data", help="a CSV or Parquet file with the model's columns; others are ignored")
    predict.add_argument("-o", "--output", help="where to write (.csv, .parquet); standard output by default")
    predict.set_defaults(run=_predict)
    info = commands.add_parser("info", help="say what is in a model file")
    info.add_argument("model", help="a model file")
    info.add_argument("--json", action="store_true", help="for programs")
    info.set_defaults(run=_info)
    demo = commands.add_parser("demo", help="fit real data beside support vector machines; takes seconds")
    demo.set_defaults(run=_demo)
    return parser


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser("fit", help="fit a model to a table and save it")
    fit.add_argument("data", help="a CSV file, whose first line names the columns, or a Parquet file")
    fit.add_argument("--target", required=True, help="the column to predict; text means classes")
    fit.add_argument("--weight", help="a column of sample weights")
    fit.add_argument("--drop", action="append", default=[], metavar="COLUMN", help="leave a column out")
    fit.add_argument("--classify", action="store_true", help="take a numeric target for classes")
    fit.add_argument("--machine", choices=_MACHINES, default="auto", help="auto: rvr, or rvc for classes")
    fit.add_argument("--kernel", choices=_KERNELS, default="rbf")
    fit.add_argument(
        "--width",
        default="auto",
        help="width of an rbf in units of each input's spread; auto: that of five with the highest evidence",
    )
    fit.add_argument("--candidates", type=int, metavar="N", help="put functions about N rows, not about all")
    fit.add_argument("--seed", type=int, default=0, help="for the choice of candidates")
    fit.add_argument("-o", "--output", required=True, help="the model file to write (.safetensors)")
    fit.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
    fit.set_defaults(run=_fit)


def _fit(options: argparse.Namespace) -> int:
    from sklearn.exceptions import ConvergenceWarning

    table = _tables.read(options.data)
    for name in [options.target, options.weight, *options.drop]:
        if name is not None and name not in table:
            raise TableError(f"{options.data} has no column {name!r}; it has {', '.join(table)}")
    aside = {options.target, options.weight, *options.drop}
    names = [name for name in table if name not in aside]
    if not names:
        raise TableError(f"{options.data} has no columns beside {options.target!r} to predict from")
    X = _tables.features(options.data, table, names)
    y, classifies = _target(options, table[options.target])
    weights = None
    if options.weight is not None:
        weights = _tables.numbers(options.data, options.weight, table[options.weight])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary and the exit code say so
        model = _best(options, X, y, weights, classifies)
    statuses = {model.status_} if isinstance(model.status_, str) else set(model.status_)
    score = None if options.quiet else model.score(X, y)
    model.feature_names_in_ = np.array(names, dtype=object)
    model.save(options.output)
    if score is not None:
        _summarise(model, len(X), score, options.output, statuses)
    return _DONE if statuses <= {"converged", "empty"} else _NOT_CONVERGED


def _target(options: argparse.Namespace, column: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return the targets, and whether they are classes."""
    machine = options.machine
    if column.dtype.kind not in "fiub":
        if machine == "rvr":
            raise TableError(
                f"column {options.target!r} holds text, which --machine rvr cannot predict; use rvc"
            )
        missing = [i for i, value in enumerate(column) if value is None or value == ""]
        if missing:
            raise TableError(f"column {options.target!r} has no value in row {missing[0] + 1}")
        return column.astype(str), True
    y = _tables.numbers(options.data, options.target, column)
    classifies = machine not in ("auto", "rvr") or options.classify
    if classifies and machine == "rvr":
        raise TableError("--classify does not go with --machine rvr; use rvc")
    if classifies and np.all(y == np.round(y)):
        return y.astype(np.int64), True
    return y, classifies


def _best(
    options: argparse.Namespace,
    X: FloatArray,
    y: NDArray[Any],
    weights: FloatArray | None,
    classifies: bool,
) -> Any:
    """Return the fitted model with the highest evidence among the widths asked for."""
    import sparsebayes
    from sparsebayes.kernels import Gaussian

    name = ("rvc" if classifies else "rvr") if options.machine == "auto" else options.machine
    machine = getattr(sparsebayes, name.upper())
    arguments: dict[str, Any] = {"verbose": int(not options.quiet and sys.stderr.isatty())}
    if options.candidates is not None:
        arguments |= {"candidates": options.candidates, "random_state": options.seed}
    if options.kernel != "rbf":
        return machine(options.kernel, **arguments).fit(X, y, sample_weight=weights)
    spread = X.std(axis=0) * np.sqrt(X.shape[1])
    spread[spread == 0.0] = 1.0
    models = [
        machine(Gaussian(width * spread), **arguments).fit(X, y, sample_weight=weights)
        for width in _widths(options.width)
    ]
    return max(models, key=lambda model: float(np.sum(model.log_marginal_likelihood_)))


def _widths(asked: str) -> Sequence[float]:
    if asked == "auto":
        return _WIDTHS
    try:
        width = float(asked)
    except ValueError:
        width = np.nan
    if not 0.0 < width < np.inf:
        raise TableError(f"--width must be auto or a number above 0, got {asked!r}")
    return (width,)


def _summarise(model: Any, n_rows: int, score: float, path: str, statuses: set[str]) -> None:
    lines = [
        f"{type(model).__name__} on {n_rows} rows of {model.n_features_in_} features: "
        f"{len(model.relevance_)} relevance vectors",
        f"kernel        {model.kernel_}",
        f"log evidence  {float(np.sum(model.log_marginal_likelihood_)):.6g}",
    ]
    if hasattr(model, "noise_variance_"):
        lines.append(f"noise         {float(np.sqrt(model.noise_variance_)):.4g} (standard deviation)")
    kind = "accuracy" if hasattr(model, "classes_") else "R^2"
    lines += [
        f"{kind:<13} {score:.4f} on these rows",
        f"status        {', '.join(sorted(statuses))}",
        f"saved to      {path}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _open(path: str) -> Predictor:
    if not os.path.exists(path):
        raise TableError(f"there is no model file {path}")
    return load(path)


def _predict(options: argparse.Namespace) -> int:
    model = _open(options.model)
    table = _tables.read(options.data)
    names = model.feature_names_in_
    if names is None:
        names = np.array(list(table), dtype=object)
        if len(names) != model.n_features_in_:
            raise TableError(
                f"the model was fitted to {model.n_features_in_} columns without names, and {options.data} "
                f"has {len(names)}; give it those columns alone, in the same order"
            )
    X = _tables.features(options.data, table, names)
    _tables.write(_answers(model, X), options.output)
    return _DONE


def _answers(model: Predictor, X: FloatArray) -> dict[str, NDArray[Any]]:
    """Return the predictions, and what says how sure they are, by column."""
    if model.classes_ is not None:
        probabilities = model.predict_proba(X)
        found: dict[str, NDArray[Any]] = {"prediction": model.predict(X)}
        return found | {f"p({label})": p for label, p in zip(model.classes_, probabilities.T, strict=True)}
    try:
        mean, std = model.predict_std(X)
    except AttributeError:  # a likelihood without error bars
        mean, std = model.predict(X), None
    found = {}
    for name, values in (("prediction", mean), ("std", std)):
        if values is None:
            continue
        columns = values.reshape(len(X), -1).T
        for k, column in enumerate(columns):
            found[name if len(columns) == 1 else f"{name}.{k}"] = column
    return found


def _info(options: argparse.Namespace) -> int:
    model = _open(options.model)
    header = json.loads(model._core.header)
    facts = {
        "estimator": model.estimator,
        "features": model.n_features_in_,
        "feature names": None
        if model.feature_names_in_ is None
        else [str(n) for n in model.feature_names_in_],
        "classes": None if model.classes_ is None else model.classes_.tolist(),
        "functions": model.n_functions_,
        "basis": header["blocks"],
        "format version": header["format_version"],
        "written by": f"sparsebayes {header['library_version']}",
    }
    if options.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return _DONE
    for name, value in facts.items():
        if value is not None:
            sys.stdout.write(f"{name:<15} {_shown(value)}\n")
    return _DONE


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value)
    return str(value)


def _demo(options: argparse.Namespace) -> int:
    from ._demo import compare

    for line in compare():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return _DONE
