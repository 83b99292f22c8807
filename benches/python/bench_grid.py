"""Time of `fit` beside libsvm and oneDAL over rows and inputs: two, ten and fifty inputs, from 500 rows on.

Two inputs are the surface and the mixture of Tipping & Faul (2003), section 5, with the widths of the
paper. Ten and fifty are standard normal, and three of them matter; the kernel is a Gaussian of
``gamma = 1 / (2 d)``, as a user might take who has not chosen a width. The support vector machine of oneDAL
is that of scikit-learn-intelex, left out if this is not installed. All methods take turns; the ratio is that
of our median to the median of the faster peer. Errors are those of 2000 new rows: root mean square, or rate
of wrong classes. ``--model papers`` has no prior on complexity and a penalized intercept; ``--model learned``
learns a width for each input. Three outputs together take turns with fits of each output alone.

Run ``make bench-grid``, or this file with ``--help``.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import peers
import report
from peers import EVERY_ROW, Data, Method
from runs import progress, turns
from sklearn.multioutput import MultiOutputRegressor
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

try:
    from sklearnex import svm as onedal
except ImportError:  # not on all platforms
    onedal = None

SIZES = (500, 1000, 2000, 4000, 8000)
DIMENSIONS = (2, 10, 50)
MODELS = {"default": {}, "papers": EVERY_ROW, "learned": {"gamma": "ard"}}
TEST_ROWS = 2000
#: Fits that take longer than this are timed once.
SECONDS = 5.0
NOISE = 0.3


def score(X):
    """The true function: three inputs matter."""
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def rows(n, d, seed=0):
    """Standard normal inputs, and the function with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, score(X) + NOISE * rng.normal(size=n)


def regression(n, d, seed=0):
    return peers.surface(n, seed) if d == 2 else Data(*rows(n, d, seed))


def classification(n, d, seed=0):
    if d == 2:
        return peers.mixture(n, seed)
    X, y = rows(n, d, seed)
    return Data(X, (y > 0).astype(int))


def outputs(n, d, seed=0):
    """Three outputs of the same inputs, with different noise."""
    X, y = regression(n, d, seed)
    noise = np.random.default_rng(1).normal(size=(2, n))
    return Data(X, np.column_stack([y, X[:, 0] ** 2 + noise[0], np.cos(2 * X[:, 1]) + 0.1 * noise[1]]))


def methods(d, model):
    """Return, for each task, a name, the problem, our estimator and its peers."""
    surface, mixture = (peers.SURFACE_GAMMA, peers.MIXTURE_GAMMA) if d == 2 else (1 / (2 * d),) * 2
    libraries = {"libsvm": (SVR, SVC)} | ({"oneDAL": (onedal.SVR, onedal.SVC)} if onedal else {})
    regressors = [Method(name, lambda c=c: c[0](gamma=surface)) for name, c in libraries.items()]
    classifiers = [Method(name, lambda c=c: c[1](gamma=mixture)) for name, c in libraries.items()]
    ours = Method("RVR", lambda: RVR(**{"gamma": surface} | model))
    alone = Method("RVR of each output", lambda: MultiOutputRegressor(RVR(**{"gamma": surface} | model)))
    yield "regression", regression, ours, regressors
    yield (
        "classification",
        classification,
        Method("RVC", lambda: RVC(**{"gamma": mixture} | model)),
        classifiers,
    )
    yield "three outputs", outputs, ours, [alone]


def measure(options):
    for d in options.dimensions:
        for n in options.sizes:
            for task, problem, *both in methods(d, MODELS[options.model]):
                if options.tasks and task not in options.tasks:
                    continue
                progress(task, "d =", d, "N =", n)
                yield {"task": task, "d": d, "N": n} | compare(*both, problem, (n, d), options.repeats)


def compare(ours, others, problem, shape, repeats):
    test = problem(TEST_ROWS, shape[1], 1)
    methods = [ours, *others]
    times, models = turns(methods, problem(*shape), repeats, most=SECONDS)
    medians = [float(np.median(values)) for values in times]
    names = [method.name for method in methods]
    return {
        "seconds": dict(zip(names, medians, strict=True)),
        "ratio": medians[0] / min(medians[1:]),
        "errors": {name: error(model, test) for name, model in zip(names, models, strict=True)},
        "functions": peers.n_functions(models[0]),
        "evidence": float(models[0].log_marginal_likelihood_),
        "status": models[0].status_,
    }


def error(model, test):
    wrong = model.predict(test.X) - test.y
    return float(np.mean(wrong != 0) if hasattr(model, "classes_") else np.sqrt(np.mean(wrong**2)))


def table(measured):
    headings = ("task", " d", " N", " ours, ms", " peers, ms", " ratio", " error", " of peer")
    headings += (" functions", " evidence", "status")
    cells = [
        (
            line["task"],
            str(line["d"]),
            str(line["N"]),
            report.number(1e3 * times[0]),
            " / ".join(report.number(1e3 * value) for value in times[1:]),
            report.number(line["ratio"]),
            *(report.number(value) for value in list(line["errors"].values())[:2]),
            str(line["functions"]),
            f"{line['evidence']:.3f}",
            line["status"],
        )
        for line in measured
        for times in [list(line["seconds"].values())]
    ]
    title = f"Time of fit beside {'libsvm and oneDAL' if onedal else 'libsvm'}; three outputs: one by one"
    return report.Table(title, headings, cells)


def means(measured):
    """The geometric mean of the ratios of each task and number of inputs, and of all but three outputs."""
    groups = {}
    for line in measured:
        groups.setdefault((line["task"], line["d"]), []).append(np.log(line["ratio"]))
        if line["task"] != "three outputs":
            groups.setdefault(("all", "any"), []).append(np.log(line["ratio"]))
    return [f"{task}, d = {d}: ratio {np.exp(np.mean(logs)):.2f}" for (task, d), logs in groups.items()]


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="numbers of rows, such as 500,1000")
    parser.add_argument("--dimensions", type=numbers, default=DIMENSIONS, help="of 2, 10, 50")
    parser.add_argument("--tasks", nargs="*", help="only these, such as regression")
    parser.add_argument("--model", choices=list(MODELS), default="default", help="our model")
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
    print("\n".join(["", *means(measured)]))
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
