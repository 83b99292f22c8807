"""What exchanges find beyond the greedy optimum: `search="exchange"` beside `"greedy"`.

Evidence, functions and time on random problems: 2-D sinc on kernels, compressed sensing near its limits,
correlated columns, the generated sets of Tipping (2001). Then problems of so few functions that the best
model of all there are is known, and how often each search finds it.

Run ``make bench-search``, or this file with ``--help``.
"""

import argparse
import sys
import time
import warnings

import numpy as np
import report
from all_subsets import KINDS, best_of_all, problem
from peers import EVERY_ROW, PAPERS
from report import Table, milliseconds, number
from runs import progress
from sets2001 import friedman, sinc
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from sparsebayes import RVR, SparseBayesRegressor
from sparsebayes.kernels import Gaussian

SEARCHES = ("greedy", "exchange")
HEADINGS = (
    "problems",
    " number",
    "search",
    " higher, %",
    " lower",
    " nats, mean",
    " most",
    " functions",
    " ms",
    " times greedy's",
)
#: Nats by which an evidence is higher, or is not that of the best model.
CLEAR = 1e-3
#: Nats that two fits of the same optimum may differ by.
SAME = 1e-6


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    rows, everything = [], []
    for name, make, share in FAMILIES:
        n = max(1, round(share * options.problems / 100))
        fits = np.array([measure(make, seed, name) for seed in range(n)])
        everything.append(fits)
        rows += summary(name, fits)
    rows += summary("all", np.concatenate(everything))
    tables = [Table("Beyond the greedy optimum", HEADINGS, rows)]
    tables.append(subsets(options.n_basis, options.small))
    for table in tables:
        print()
        for line in table.lines(options.markdown):
            print(line)


# --- the problems ---------------------------------------------------------------------------------


def surface(n_rows):
    def make(seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-10, 10, (n_rows, 2))
        y = np.sinc(np.linalg.norm(X, axis=1) / np.pi) + 0.1 * rng.normal(size=n_rows)
        return RVR(Gaussian(2.5), **EVERY_ROW), X, y

    return make


def spikes(seed):
    """100 projections of 28 to 39 spikes among 256: up to where nothing finds them."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(100, 256)) / 10.0
    signal = np.zeros(256)
    n_spikes = 28 + seed % 12
    signal[rng.choice(256, n_spikes, replace=False)] = rng.choice([-1.0, 1.0], n_spikes)
    noise = (0.005, 0.03)[seed % 2]
    model = SparseBayesRegressor(noise_variance=noise**2, **PAPERS)
    return model, Phi, Phi @ signal + noise * rng.normal(size=100)


def correlated(seed):
    """Each column resembles those beside it."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(200, 150))
    for j in range(1, 150):
        Phi[:, j] = 0.95 * Phi[:, j - 1] + np.sqrt(1 - 0.95**2) * Phi[:, j]
    weights = np.zeros(150)
    weights[rng.choice(150, 10, replace=False)] = rng.choice([-1.0, 1.0], 10) * rng.uniform(0.5, 2.0, 10)
    signal = Phi @ weights
    model = SparseBayesRegressor(fit_intercept=False, **PAPERS)
    return model, Phi, signal + 0.3 * signal.std() * rng.normal(size=200)


def paper(seed):
    """The generated sets of Tipping (2001) in turns."""
    draws = (
        (sinc, "gaussian", 3.0),
        (friedman, (make_friedman1, 1.0), 1.5),
        (friedman, (make_friedman2, 125.0), 3.0),
        (friedman, (make_friedman3, 0.1), 3.0),
    )
    draw, argument, width = draws[seed % len(draws)]
    argument = argument if isinstance(argument, tuple) else (argument,)
    data = draw(seed, *argument)
    return RVR(Gaussian(width), **PAPERS), data.X, data.y


#: Name, what makes estimator, X and y from a seed, and how many of a hundred.
FAMILIES = (
    ("2-D sinc, N = 200", surface(200), 10),
    ("2-D sinc, N = 500", surface(500), 15),
    ("2-D sinc, N = 1000", surface(1000), 10),
    ("2-D sinc, N = 2000", surface(2000), 5),
    ("compressed sensing", spikes, 20),
    ("correlated columns", correlated, 20),
    ("Tipping (2001)", paper, 20),
)


# --- measurements ---------------------------------------------------------------------------------


def measure(make, seed, name):
    """Return log evidence, functions and seconds of each search."""
    progress(name, "seed", seed)
    return [one(make, seed, search) for search in SEARCHES]


def one(make, seed, search):
    model, X, y = make(seed)
    model.set_params(search=search)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = []
        # Short fits once more, as the first of a kind pays for what others find ready.
        while not times or (sum(times) < 0.2 and len(times) < 3):
            start = time.perf_counter()
            model.fit(X, y)
            times.append(time.perf_counter() - start)
    return model.log_marginal_likelihood_, len(model.active_), min(times)


def summary(name, fits):
    """One row a search; times as totals over all problems."""
    gains = fits[..., 0] - fits[:, :1, 0]
    for k, search in enumerate(SEARCHES):
        gain = gains[:, k]
        yield (
            name,
            str(len(fits)),
            search,
            f"{100 * np.mean(gain > CLEAR):.0f}" if k else "",
            str(np.sum(gain < -SAME)) if k else "",
            f"{gain.mean():+.3f}" if k else "",
            f"{gain.max():+.2f}" if k else "",
            number(fits[:, k, 1].mean()),
            milliseconds(fits[:, k, 2].mean()),
            number(fits[:, k, 2].sum() / fits[:, 0, 2].sum()),
        )


def subsets(n_basis, n_problems):
    """How often each search ends at the best model of all."""
    rows = []
    for kind in KINDS:
        progress("all subsets,", kind)
        missing = np.array([below_best(kind, n_basis, seed) for seed in range(n_problems)])
        found = 100 * np.mean(missing < CLEAR, axis=0)
        rows.append((kind, *(f"{rate:.0f}" for rate in found), *(number(m) for m in missing.mean(axis=0))))
    headings = ("functions", *(f" {s}, %" for s in SEARCHES), *(f" {s}, nats below" for s in SEARCHES))
    return Table(f"Best of all 2^{n_basis} models found: {n_problems} problems of each kind", headings, rows)


def below_best(kind, n_basis, seed):
    Phi, t, noise = problem(kind, n_basis, seed)
    best = best_of_all(Phi, t, 1.0 / noise)
    fits = [
        SparseBayesRegressor(fit_intercept=False, noise_variance=noise, search=search, **PAPERS).fit(Phi, t)
        for search in SEARCHES
    ]
    return [best - fit.log_marginal_likelihood_ for fit in fits]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100, help="random problems in all")
    parser.add_argument(
        "--small", type=int, default=40, help="problems of each kind whose best model is known"
    )
    parser.add_argument("--n-basis", type=int, default=12, help="functions of these")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
