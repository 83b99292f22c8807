"""``laplace="exact"`` beside the classic fixed point: log evidence, test log loss, error, functions and time.

On the two-class sets of Tipping (2001), from the folder that SPARSEBAYES_DATA names, and on those that come
with scikit-learn, in folds. Inputs are standardised, and every set is fitted at three widths, the default one
and its half and double: the narrower the kernel, the less is left that the model does not explain.

Run ``make bench-laplace``, or this file with ``--help``.
"""

import argparse
import json
import sys
import time
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import report
from report import Table, number
from sets2001 import BENCHMARKS, FOLDER, Draw, scaled
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from sparsebayes import RVC

N_FOLDS = 5

#: By which the gamma of the default kernel is multiplied.
WIDTHS = {"double": 0.25, "default": 1.0, "half": 4.0}

LAPLACE = ("classic", "exact")

HEADINGS = (
    "set",
    "width",
    " draws",
    " gain in evidence",
    " most",
    " log loss",
    " exact",
    " s.e. of change",
    " unmoderated",
    " exact",
    " error, %",
    " exact",
    " functions",
    " exact",
    " time ratio",
    " not converged",
    " exact",
)

#: Borders of the second table, in nats.
GAINS = (0.0, 0.01, 0.1, 1.0, 10.0, 1000.0)

BY_GAIN = (
    "gain, nats",
    " fits",
    " change of log loss",
    " lower in",
    " unmoderated",
    " lower in",
    " converged",
)


@dataclass(frozen=True)
class DataSet:
    """A set and how many draws or folds of it there are."""

    name: str
    n_draws: int
    draw: Any


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    results = []
    for data_set in data_sets():
        if options.only and not any(word in data_set.name.lower() for word in options.only):
            continue
        for width, factor in WIDTHS.items():
            results.append(measure(data_set, width, factor, options.draws))
            print(data_set.name, width, f"{results[-1]['seconds']:.0f} s", file=sys.stderr, flush=True)
    print()
    title = "The Laplace evidence itself beside the classic fixed point"
    for line in Table(title, HEADINGS, [cells(r) for r in results]).lines(options.markdown):
        print(line)
    print()
    for line in Table("By the gain in evidence", BY_GAIN, list(by_gain(results))).lines(options.markdown):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def data_sets():
    """The sets whose files are there, and those that need none."""
    for benchmark in BENCHMARKS:
        if benchmark.task != "classification" or benchmark.name.startswith("USPS"):
            continue
        if missing := benchmark.missing():
            print(f"{benchmark.name}: left out, {', '.join(missing)} not in {FOLDER}", file=sys.stderr)
            continue
        yield DataSet(benchmark.name, benchmark.n_draws, benchmark.draw)
    for name, load in (
        ("iris", load_iris),
        ("wine", load_wine),
        ("breast cancer (Wisconsin)", load_breast_cancer),
    ):
        yield DataSet(name, N_FOLDS, partial(fold, load=load))


def fold(number_of_fold, load):
    X, y = load(return_X_y=True)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y)
    train, test = list(folds)[number_of_fold]
    return Draw(X[train], y[train], X[test], y[test])


def measure(data_set, width, factor, most_draws):
    """Both fits of each draw, one after the other."""
    started = time.perf_counter()
    runs = {laplace: [] for laplace in LAPLACE}
    for seed in range(min(data_set.n_draws, most_draws or data_set.n_draws)):
        draw = scaled(data_set.draw(seed))
        gamma = factor / draw.X.shape[1]
        for laplace in LAPLACE:
            runs[laplace].append(run(RVC(gamma=gamma, laplace=laplace), draw))
    return {
        "name": data_set.name,
        "width": width,
        "runs": runs,
        "seconds": time.perf_counter() - started,
    }


def run(model, draw):
    """One fit, and what its model says of the test rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        model.fit(draw.X, draw.y)
        took = time.perf_counter() - start
    return {
        "evidence": model.log_marginal_likelihood_,
        "log_loss": log_loss(model, model.predict_proba(draw.X_test), draw.y_test),
        "unmoderated": log_loss(model, model.predict_proba(draw.X_test, moderate=False), draw.y_test),
        "error": 100.0 * float(np.mean(model.predict(draw.X_test) != draw.y_test)),
        "functions": int(np.isfinite(model.alpha_).sum()),
        "took": took,
        "converged": model.status_ == "converged",
    }


def log_loss(model, probabilities, y):
    """Minus the mean log probability of the labels; no probability counts for less than 1e-12."""
    of_label = probabilities[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(-np.log(np.maximum(of_label, 1e-12)).mean())


def of(result, laplace, what):
    return np.array([one[what] for one in result["runs"][laplace]], dtype=float)


def change(result, what):
    """Of the exact fit less the classic one, draw by draw."""
    return of(result, "exact", what) - of(result, "classic", what)


def standard_error(values):
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def cells(result):
    gains = change(result, "evidence")
    means = {
        what: [number(float(of(result, laplace, what).mean())) for laplace in LAPLACE]
        for what in ("log_loss", "unmoderated", "error", "functions")
    }
    return (
        result["name"],
        result["width"],
        str(len(gains)),
        number(float(gains.mean())),
        number(float(gains.max())),
        *means["log_loss"],
        number(standard_error(change(result, "log_loss"))),
        *means["unmoderated"],
        *means["error"],
        *means["functions"],
        number(float(np.median(of(result, "exact", "took") / of(result, "classic", "took")))),
        *(str(int(np.sum(of(result, laplace, "converged") == 0.0))) for laplace in LAPLACE),
    )


def by_gain(results):
    """Over all fits whose evidence rose by so much: what that did to the log loss."""
    gains, losses, plain = (
        np.concatenate([change(result, what) for result in results])
        for what in ("evidence", "log_loss", "unmoderated")
    )
    converged = np.concatenate([of(result, "exact", "converged") for result in results])
    for least, most in pairwise(GAINS):
        rose = (gains >= least) & (gains < most)
        if rose.any():
            yield (
                f"{least:g} to {most:g}",
                str(int(rose.sum())),
                f"{losses[rose].mean():+.4f}",
                f"{np.mean(losses[rose] < 0.0):.0%}",
                f"{plain[rose].mean():+.4f}",
                f"{np.mean(plain[rose] < 0.0):.0%}",
                f"{converged[rose].mean():.0%}",
            )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.lower().split(","), help="parts of names of sets")
    parser.add_argument("--draws", type=int, help="draws of each set at most")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
