"""Learned widths on Friedman's first function: mean squared error against the truth, and which inputs count.

Tipping (2001), section 4 and appendix C: 240 rows, ten inputs uniform on [0, 1], five of which matter, noise
1; errors against the noise-free function on 1000 fresh rows. The paper reports 2.80 with one width and 0.27
with learned ones. ``ratio`` is the smallest inverse squared width of the inputs that matter over the largest
of those that do not.

Run ``make bench-friedman1``, or this file with ``--help``.
"""

import argparse
import time
import warnings

import numpy as np
from peers import PAPERS

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian

N_ROWS, N_TEST, N_INPUTS, N_RELEVANT = 240, 1000, 10, 5


def truth(X):
    return (
        10.0 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20.0 * (X[:, 2] - 0.5) ** 2
        + 10.0 * X[:, 3]
        + 5.0 * X[:, 4]
    )


def draw(seed):
    rng = np.random.default_rng(seed)
    X, X_test = rng.uniform(size=(N_ROWS, N_INPUTS)), rng.uniform(size=(N_TEST, N_INPUTS))
    return X, truth(X) + rng.normal(size=N_ROWS), X_test


def measure(seed, width, learned):
    """Error, functions, log evidence, seconds and ratio of one fit."""
    X, y, X_test = draw(seed)
    model = RVR(Gaussian(np.full(N_INPUTS, width)), optimize_kernel=learned, **PAPERS)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    error = np.mean((model.predict(X_test) - truth(X_test)) ** 2)
    scales = np.array(model.kernel_.width) ** -2.0
    ratio = scales[:N_RELEVANT].min() / scales[N_RELEVANT:].max()
    return error, len(model.relevance_), model.log_marginal_likelihood_, seconds, ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first draw's seed")
    parser.add_argument("--width", type=float, default=2.0, help="given width of every input")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(options.first, options.first + options.draws)
    head = ("widths", "mean error", "s.e.", "functions", "log evidence", "seconds", "least ratio")
    print("{:>8} {:>10} {:>6} {:>9} {:>12} {:>8} {:>11}".format(*head))
    for name, learned in (("given", False), ("learned", True)):
        rows = np.array([measure(seed, options.width, learned) for seed in seeds])
        error, functions, evidence, seconds, _ = rows.mean(axis=0)
        spread = rows[:, 0].std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
        print(
            f"{name:>8} {error:>10.3f} {spread:>6.3f} {functions:>9.1f} {evidence:>12.1f} {seconds:>8.2f} "
            f"{rows[:, 4].min():>11.0f}"
        )


if __name__ == "__main__":
    main()
