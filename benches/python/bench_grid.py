"""Time of `fit` beside libsvm over rows and inputs: two, ten and fifty inputs, from 500 rows on.

Three outputs together take turns with fits of each output alone.

Two inputs are the surface and the mixture of Tipping & Faul (2003), section 5, with the widths of the
paper. Ten and fifty are standard normal, and three of them matter; the kernel is a Gaussian of
``gamma = 1 / (2 d)``, as a user might take who has not chosen a width. Fits of the two methods take turns;
the ratio is the median of the ratios of neighbouring fits.

Run ``make bench-grid``, or this file with ``--help``.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import peers
import report
from peers import PAPERS, Data, Method
from runs import duel, progress
from sklearn.multioutput import MultiOutputRegressor
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

SIZES = (500, 1000, 2000, 4000)
DIMENSIONS = (2, 10, 50)
#: Largest regression of fifty inputs: at this width all rows enter the model, at a cubic cost.
MOST_ROWS_OF_FIFTY = 1000
NOISE = 0.3


def score(X):
    """The true function: three inputs matter."""
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def rows(n, d, seed=0):
    """Standard normal inputs, and the function with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, score(X) + NOISE * rng.normal(size=n)


def regression(n, d):
    return peers.surface(n) if d == 2 else Data(*rows(n, d))


def classification(n, d):
    if d == 2:
        return peers.mixture(n)
    X, y = rows(n, d)
    return Data(X, (y > 0).astype(int))


def outputs(n, d):
    """Three outputs of the same inputs, with different noise."""
    X, y = regression(n, d)
    noise = np.random.default_rng(1).normal(size=(2, n))
    return Data(X, np.column_stack([y, X[:, 0] ** 2 + noise[0], np.cos(2 * X[:, 1]) + 0.1 * noise[1]]))


def methods(d):
    """Return, for each task, a name, the problem, our estimator and its peer."""
    surface, mixture = (peers.SURFACE_GAMMA, peers.MIXTURE_GAMMA) if d == 2 else (1 / (2 * d),) * 2
    yield (
        "regression",
        regression,
        Method("RVR", lambda: RVR(gamma=surface, **PAPERS)),
        Method("SVR", lambda: SVR(gamma=surface, C=1.0, epsilon=0.1)),
    )
    yield (
        "classification",
        classification,
        Method("RVC", lambda: RVC(gamma=mixture, **PAPERS)),
        Method("SVC", lambda: SVC(gamma=mixture, C=1.0)),
    )
    yield (
        "three outputs",
        outputs,
        Method("RVR", lambda: RVR(gamma=surface, **PAPERS)),
        Method("RVR of each output", lambda: MultiOutputRegressor(RVR(gamma=surface, **PAPERS))),
    )


def is_skipped(task, n, d):
    return task != "classification" and d == 50 and n > MOST_ROWS_OF_FIFTY


def measure(options):
    for d in options.dimensions:
        for n in options.sizes:
            for task, problem, ours, peer in methods(d):
                if is_skipped(task, n, d):
                    continue
                progress(task, "d =", d, "N =", n)
                result = duel(ours, peer, problem(n, d), options.repeats)
                yield {
                    "task": task,
                    "d": d,
                    "N": n,
                    "ours_ms": 1e3 * float(np.median(result.ours)),
                    "peer_ms": 1e3 * float(np.median(result.peer)),
                    "ratio": float(np.median(result.ratios)),
                    "functions": peers.n_functions(result.our_model),
                    "evidence": float(result.our_model.log_marginal_likelihood_),
                    "status": result.our_model.status_,
                }


def table(measured):
    headings = ("task", " d", " N", " ours, ms", " peer, ms", " ratio", " functions", " evidence", "status")
    cells = [
        (
            line["task"],
            str(line["d"]),
            str(line["N"]),
            *(report.number(line[name]) for name in ("ours_ms", "peer_ms", "ratio")),
            str(line["functions"]),
            f"{line['evidence']:.3f}",
            line["status"],
        )
        for line in measured
    ]
    return report.Table("Time of fit beside libsvm; three outputs: beside one by one", headings, cells)


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="numbers of rows, such as 500,1000")
    parser.add_argument("--dimensions", type=numbers, default=DIMENSIONS, help="of 2, 10, 50")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    options = parser.parse_args()
    for line in report.environment_lines(options.markdown):
        print(line)
    measured = list(measure(options))
    print()
    for line in table(measured).lines(options.markdown):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
