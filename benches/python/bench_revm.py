"""Tables 1 to 3 of Kropotov & Vetrov (2007): error, training time and non-zero parameters, paper and ours.

For each set and machine the width is the one of ten with the least error in a 5 x 2-fold cross-validation,
and error, time and parameters are those of the same folds, as in the paper (which makes the errors a little
too good, there and here). Standard deviations are over the five means of two folds. Times are of one fit, in
ratio to that of RVC(scheme="sequential") on the same set, in turns in the same process.

Run ``make bench-revm``, or this file with ``--help``.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import report
from peers import PAPERS
from report import Table, number
from scipy.stats import rankdata
from sets2001 import FOLDER
from sets2007 import METHODS, SETS
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from sparsebayes import GREVM, LREVM, RVC, VGREVM
from sparsebayes.kernels import Gaussian

#: The paper's sigma, of exp(-|x - z|^2 / (2 sigma^2)).
WIDTHS = (0.01, 0.1, 0.3, 0.6, 1, 2, 3, 5, 7, 10)

#: The paper's machines, and the RVM as it was before Tipping & Faul.
MACHINES = {
    "GREVM": lambda kernel: GREVM(kernel, n_jobs=1),
    "LREVM": lambda kernel: LREVM(kernel, n_jobs=1),
    "RVM": lambda kernel: RVC(kernel, n_jobs=1, **PAPERS),
    "VRVM": lambda kernel: RVC(kernel, scheme="variational", n_jobs=1),
    "VGREVM": lambda kernel: VGREVM(kernel, n_jobs=1),
    "RVM, mackay": lambda kernel: RVC(kernel, scheme="mackay", n_jobs=1, **PAPERS),
}
REPEATS = 5


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    machines = [name for name in MACHINES if options.machines is None or name in options.machines]
    results = {}
    for one in SETS:
        if options.only and not any(word in one.name.lower() for word in options.only):
            continue
        if one.missing():
            print(f"{one.name}: left out, {one.file}.csv.gz is not in {FOLDER}", file=sys.stderr)
            continue
        started = time.perf_counter()
        results[one.name] = measure(one, machines)
        print(f"{one.name} {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    if not results:
        sys.exit("no set is there: SPARSEBAYES_DATA has to name the folder of data files")
    for table in tables(results, machines):
        print()
        for line in table.lines(options.markdown):
            print(line)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def measure(one, machines):
    """For each machine: width, and REPEATS means of error, time and non-zero parameters at that width."""
    X, y = one.load()
    some = np.random.default_rng(0).permutation(len(X))[:60]  # files may be sorted by class
    fit_once(machines, X[some], y[some])  # imports and threads are nobody's time
    # Width, repeat, fold, machine, then error, seconds and parameters.
    found = np.empty((len(WIDTHS), REPEATS, 2, len(machines), 3))
    for w, width in enumerate(WIDTHS):
        for repeat in range(REPEATS):
            folds = KFold(2, shuffle=True, random_state=repeat).split(X)
            for fold, (train, test) in enumerate(folds):
                for m, name in enumerate(machines):
                    found[w, repeat, fold, m] = score(name, width, X, y, train, test)
    result = {}
    for m, name in enumerate(machines):
        means = found[:, :, :, m].mean(axis=2)
        best = int(means[:, :, 0].mean(axis=1).argmin())
        error, seconds, parameters = means[best].T
        result[name] = {
            "width": WIDTHS[best],
            "error": list(100.0 * error),
            "seconds": list(seconds),
            # Every width has to be fitted to choose one.
            "seconds, all widths": float(means[:, :, 1].mean()),
            "parameters": list(parameters),
        }
    return result


def score(name, width, X, y, train, test):
    model = MACHINES[name](Gaussian(2**0.5 * width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        model.fit(X[train], y[train])
        seconds = time.perf_counter() - start
    nonzero = model.n_effective_ if hasattr(model, "n_effective_") else len(model.active_)
    return 1.0 - model.score(X[test], y[test]), seconds, nonzero


def fit_once(machines, X, y):
    for name in machines:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            MACHINES[name](Gaussian(3.0)).fit(X, y)


# --- tables ---------------------------------------------------------------------------------------


def tables(results, machines):
    sets = [one for one in SETS if one.name in results]
    headings = ("set", *(f" {name}" for name in machines))
    rows = [line for one in sets for line in error_rows(one, results[one.name], machines)]
    yield Table(
        "Table 1. Error in per cent (*: more than the paper's plus its standard deviation)",
        headings,
        [*rows, *rank_rows(results, sets, machines)],
    )
    rows = [line for one in sets for line in time_rows(one, results[one.name], machines)]
    yield Table("Table 2. Training time over that of RVM; ours in ms for RVM itself", headings, rows)
    rows = [line for one in sets for line in parameter_rows(one, results[one.name], machines)]
    yield Table("Table 3. Non-zero parameters", headings, rows)


def spread(values):
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def paper_row(figures, machines, show):
    return [show(figures[METHODS.index(name)]) if name in METHODS else "" for name in machines]


def error_rows(one, result, machines):
    yield (
        f"{one.name}, paper",
        *paper_row(one.errors, machines, lambda pair: f"{pair[0]:.2f} ± {pair[1]:.2f}"),
    )
    cells = []
    for name in machines:
        late = name in METHODS and np.mean(result[name]["error"]) > sum(one.errors[METHODS.index(name)])
        cells.append(spread(result[name]["error"]) + ("*" if late else ""))
    yield ("  ours", *cells)
    yield ("  width", *(str(result[name]["width"]) for name in machines))


def rank_rows(results, sets, machines):
    """1 for the least error of a set, and so on; ties share; summed over the sets measured."""
    ranked = [name for name in machines if name in METHODS]
    if len(ranked) < 2:
        return
    paper = [[one.errors[METHODS.index(name)][0] for name in ranked] for one in sets]
    ours = [[np.mean(results[one.name][name]["error"]) for name in ranked] for one in sets]
    for label, errors in (("Rank, paper", paper), ("Rank, ours", ours)):
        sums = dict(zip(ranked, rankdata(np.round(errors, 6), axis=1).sum(axis=0), strict=True))
        yield (label, *(f"{sums[name]:.1f}" if name in sums else "" for name in machines))


def time_rows(one, result, machines):
    least = one.times[METHODS.index("RVM")][0]
    yield (f"{one.name}, paper", *paper_row(one.times, machines, lambda pair: number(pair[0] / least)))
    for label, key in (("  ours", "seconds"), ("  ours, all widths", "seconds, all widths")):
        base = np.mean(result["RVM"][key]) if "RVM" in result else None
        cells = []
        for name in machines:
            seconds = np.mean(result[name][key])
            plain = name == "RVM" or base is None
            cells.append(f"{number(1000 * seconds)} ms" if plain else number(seconds / base))
        yield (label, *cells)


def parameter_rows(one, result, machines):
    yield (f"{one.name}, paper", *paper_row(one.nonzero, machines, lambda pair: f"{pair[0]:.1f}"))
    yield ("  ours", *(f"{np.mean(result[name]['parameters']):.1f}" for name in machines))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.lower().split(","), help="parts of names of sets")
    parser.add_argument("--machines", type=lambda text: text.split(";"), help="names, separated by ;")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
