"""The old RVM beside the new: `scheme="mackay"` and `"em"` against `"sequential"`.

Time, error and functions in the manner of figures 2 to 5 of Tipping & Faul (2003), on their two problems, and
evidence. The schemes take turns on each data set; medians over the data sets.

Run ``make bench-schemes``, or this file with ``--help``.
"""

import argparse
import sys

import numpy as np
import peers
import plots
import report
from peers import Method
from report import Table, milliseconds, number
from runs import progress, seconds, warm_up

from sparsebayes import RVC, RVR

SCHEMES = ("sequential", "mackay", "em")
SIZES = (100, 200, 400, 700, 1000)
HEADINGS = ("problem", " N", "scheme", " time, ms", " over sequential", " error", " functions", " nats ahead")


def main():
    options = parse()
    for line in report.environment_lines(options.markdown):
        print(line)
    print()
    rows = [row for task in plots.TASKS for n in options.sizes for row in compare(task, n, options.seeds)]
    title = f"Schemes: medians over {options.seeds} data sets"
    for line in Table(title, HEADINGS, rows).lines(options.markdown):
        print(line)


def method(task, scheme):
    if task.name == "regression":
        return Method(scheme, lambda: RVR(gamma=peers.SURFACE_GAMMA, scheme=scheme, **peers.EVERY_ROW))
    return Method(scheme, lambda: RVC(gamma=peers.MIXTURE_GAMMA, scheme=scheme, **peers.EVERY_ROW))


def compare(task, n, seeds):
    """One row a scheme."""
    methods = [method(task, scheme) for scheme in SCHEMES]
    fits = []
    for seed in range(seeds):
        progress(task.name, "N =", n, "seed", seed)
        data = task.problem(n, seed)
        if seed == 0:
            for one in methods:
                warm_up(one, data)
        fits.append([measure(task, one, data, seed) for one in methods])
    measured = np.array(fits)
    first = measured[:, :1]
    ratios = np.median(measured[..., 0] / first[..., 0], axis=0)
    ahead = np.median(measured[..., 3] - first[..., 3], axis=0)
    times, errors, functions = np.median(measured[..., :3], axis=0).T
    for k, scheme in enumerate(SCHEMES):
        yield (
            task.name,
            str(n),
            scheme,
            milliseconds(times[k]),
            number(ratios[k]),
            number(errors[k]),
            number(functions[k]),
            f"{ahead[k]:+.2f}" if k else "",
        )


def measure(task, one, data, seed):
    took, model = seconds(one, data)
    return took, task.error(model, seed), len(model.relevance_), model.log_marginal_likelihood_


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=SIZES)
    parser.add_argument("--seeds", type=int, default=5, help="data sets of each size")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
