"""What `MRVM1(search=...)` finds beyond the greedy machine on the sets of Psorakis et al. (2010).

For `bench_search.py`; alone it prints its table. Ten-fold cross-validation, inputs standardised on the
training rows, kernels as in the paper's table I, no bias, one thread; times are of the processor, searches
of a fold in turns. Sets whose files are not there are left out; see ``sets2001``.
"""

import argparse
import sys
import time
import warnings

import numpy as np
from report import Table, milliseconds, number
from runs import progress
from sets2010 import SETS
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from sparsebayes import MRVM1

HEADINGS = (
    "set",
    "search",
    " higher, %",
    " lower",
    " nats, mean",
    " most",
    " functions",
    " accuracy, %",
    " log probability",
    " ms",
    " times greedy's",
)
#: Nats by which a bound is higher, and by which two fits of the same optimum may differ.
CLEAR, SAME = 1e-3, 1e-6


def searches_table(searches, n_folds=10):
    """The table of all sets whose files are there; None without any."""
    rows, everything = [], []
    for data in SETS:
        if data.missing:
            continue
        progress("mRVM1,", data.name)
        fits = measure(data, searches, n_folds)
        everything.append(fits)
        rows += summary(data.name, fits, searches)
    if not rows:
        return None
    rows += summary("all", np.concatenate(everything), searches)
    return Table(f"mRVM1 on {n_folds} folds of each set", HEADINGS, rows)


def measure(data, searches, n_folds):
    """Return bound, functions, accuracy, mean log probability and seconds, (folds, searches, 5)."""
    X, y = data.load()
    folds = list(KFold(10, shuffle=True, random_state=0).split(X))[:n_folds]
    return np.array([[one(data, X, y, fold, search) for search in searches] for fold in folds])


def one(data, X, y, fold, search):
    train, test = fold
    scaler = StandardScaler().fit(X[train])
    inside, outside = scaler.transform(X[train]), scaler.transform(X[test])
    model = MRVM1(
        **data.kernel_arguments(X.shape[1]),
        fit_intercept=False,
        convergence="conv1",
        search=search,
        random_state=0,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model.fit(inside, y[train])
        seconds = time.process_time() - start
    accuracy = 100.0 * float(np.mean(model.predict(outside) == y[test]))
    return (
        model.lower_bound_,
        len(model.active_),
        accuracy,
        model.log_predictive_likelihood(outside, y[test]),
        seconds,
    )


def summary(name, fits, searches):
    """One row a search; times as totals."""
    gains = fits[..., 0] - fits[:, :1, 0]
    for k, search in enumerate(searches):
        gain, (_, functions, accuracy, log_probability, seconds) = gains[:, k], fits[:, k].mean(axis=0)
        yield (
            name,
            search,
            f"{100 * np.mean(gain > CLEAR):.0f}" if k else "",
            str(np.sum(gain < -SAME)) if k else "",
            f"{gain.mean():+.2f}" if k else "",
            f"{gain.max():+.1f}" if k else "",
            number(functions),
            f"{accuracy:.1f}",
            f"{log_probability:.3f}",
            milliseconds(seconds),
            number(fits[:, k, 4].sum() / fits[:, 0, 4].sum()),
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folds", type=int, default=10, help="how many of the ten")
    parser.add_argument("--thorough", action="store_true", help='search="thorough" too')
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    searches = ("greedy", "exchange", "thorough")[: 3 if options.thorough else 2]
    table = searches_table(searches, options.folds)
    if table is not None:
        print("\n".join(table.lines(options.markdown)))


if __name__ == "__main__":
    sys.exit(main())
