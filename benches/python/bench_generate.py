"""What centres that are not rows gain: `generate=True` beside fits about the rows.

Evidence, functions, error against the truth and time on the 2-D sinc and on the generated sets of Tipping
(2001), for each with `search="greedy"` and `"exchange"`; and two classes, whose error is that of new rows.

Run ``make bench-generate``, or this file with ``--help``.
"""

import argparse
import sys
import time
import warnings

import numpy as np
import report
from report import Table, milliseconds, number
from runs import progress
from sets2001 import friedman, sinc
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from sparsebayes import RVC, RVR
from sparsebayes.kernels import Gaussian

HEADINGS = (
    "problems",
    " number",
    "generate",
    "search",
    " nats",
    " least",
    " functions",
    " error",
    " ms",
    " times",
)
#: The first is what the others are set beside.
SETTINGS = ((False, "greedy"), (False, "exchange"), (True, "greedy"), (True, "exchange"))


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    rows = []
    for name, make in FAMILIES:
        fits = np.array([measure(make, seed, name) for seed in range(options.problems)])
        rows += summary(name, fits)
    print()
    for line in Table("Centres that are not rows", HEADINGS, rows).lines(options.markdown):
        print(line)


# --- the problems ---------------------------------------------------------------------------------


def surface(n_rows):
    def make(seed):
        rng = np.random.default_rng(seed)
        X, there = rng.uniform(-10, 10, (n_rows, 2)), rng.uniform(-10, 10, (2000, 2))
        truth = lambda rows: np.sinc(np.linalg.norm(rows, axis=1) / np.pi)  # noqa: E731
        y = truth(X) + 0.1 * rng.normal(size=n_rows)
        return RVR(Gaussian(2.5)), X, y, there, truth(there)

    return make


def generated(draw, width, *arguments):
    def make(seed):
        data = draw(seed, *arguments)
        return RVR(Gaussian(width)), data.X, data.y, data.X_test, data.y_test

    return make


def mixtures(n_rows):
    """Two classes, each a mixture of two Gaussians, after Ripley."""

    def make(seed):
        rng = np.random.default_rng(seed)
        centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])

        def rows(n):
            label = np.arange(n) % 2
            return centres[label, rng.integers(0, 2, n)] + np.sqrt(0.03) * rng.normal(size=(n, 2)), label

        return RVC(Gaussian(0.5)), *rows(n_rows), *rows(2000)

    return make


#: Name, and what makes estimator, rows, targets, and rows and values to be held to, from a seed.
FAMILIES = (
    ("2-D sinc, N = 200", surface(200)),
    ("2-D sinc, N = 1000", surface(1000)),
    ("sinc", generated(sinc, 3.0, "gaussian")),
    ("Friedman 1", generated(friedman, 1.5, make_friedman1, 1.0)),
    ("Friedman 2", generated(friedman, 3.0, make_friedman2, 125.0)),
    ("Friedman 3", generated(friedman, 3.0, make_friedman3, 0.1)),
    ("two classes, N = 250", mixtures(250)),
)


# --- measurements ---------------------------------------------------------------------------------


def measure(make, seed, name):
    """Return log evidence, functions, error and seconds of each setting."""
    progress(name, "seed", seed)
    return [one(make, seed, generate, search) for generate, search in SETTINGS]


def one(make, seed, generate, search):
    model, X, y, there, truth = make(seed)
    model.set_params(generate=generate, search=search, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
    said = model.predict(there)
    if isinstance(model, RVC):
        error = float(np.mean(said != truth))
    else:
        error = float(np.sqrt(np.mean((said - truth) ** 2)))
    return model.log_marginal_likelihood_, len(model.active_), error, seconds


def summary(name, fits):
    """One row a setting; nats beyond the first, and times as totals over all problems."""
    gains = fits[..., 0] - fits[:, :1, 0]
    for k, (generate, search) in enumerate(SETTINGS):
        yield (
            name,
            str(len(fits)),
            str(generate),
            search,
            f"{gains[:, k].mean():+.2f}" if k else "",
            f"{gains[:, k].min():+.2f}" if k else "",
            number(fits[:, k, 1].mean()),
            number(fits[:, k, 2].mean()),
            milliseconds(fits[:, k, 3].mean()),
            number(fits[:, k, 3].sum() / fits[:, 0, 3].sum()),
        )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=10, help="of each kind")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
