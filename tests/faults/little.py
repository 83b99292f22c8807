"""Fits with little memory left: each is a model or a `MemoryError`, and no process dies.

``python tests/faults/little.py [--cases kernel outputs ...] [--mebibytes 20 60 ...]`` runs each kind of fit
in a process of its own, once with each amount of memory beyond what it has after a small fit. Ends with
status 1 if one of them ended in another way.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from sparsebayes import (
    MRVM1,
    MRVM2,
    RVC,
    RVR,
    GREVMRegressor,
    SparseBayesRegressor,
    SufficientStatistics,
)
from sparsebayes.providers import RowPart

LADDER = (10, 20, 40, 60, 100, 150, 200, 300, 400, 600, 900, 1300)


class Data:
    """Rows, targets and columns, made before memory is short."""

    def __init__(self, n_rows: int, n_columns: int) -> None:
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(n_rows, 3))
        self.y = self.X[:, 0] + rng.normal(size=n_rows)
        self.several = np.column_stack([self.y, *rng.normal(size=(7, n_rows))])
        self.classes = np.digitize(self.y, [-1.0, 0.0, 1.0])
        self.counts = rng.poisson(np.exp(0.5 * self.X[:, 0])).astype(float)
        self.half = n_rows // 2
        self.Phi = rng.normal(size=(self.half, n_columns))


def columns(data: Data) -> None:
    """Many columns."""
    SparseBayesRegressor(fit_intercept=False, max_iter=20).fit(data.Phi, data.y[: data.half])


def counts(data: Data) -> None:
    """Counts on many columns."""
    SparseBayesRegressor(fit_intercept=False, likelihood="poisson", max_iter=20).fit(
        data.Phi, data.counts[: data.half]
    )


def kernel(data: Data) -> None:
    """A kernel about each row."""
    RVR(max_iter=20).fit(data.X, data.y)


def exchange(data: Data) -> None:
    """A search beyond the greedy optimum."""
    RVR(max_iter=20, search="exchange").fit(data.X, data.y)


def em(data: Data) -> None:
    """All functions at once."""
    RVR(scheme="em", max_iter=3).fit(data.X, data.y)


def variational(data: Data) -> None:
    """All functions at once, by another scheme."""
    RVC(scheme="variational", max_iter=3).fit(data.X[::3], data.y[::3] > 0)


def classes(data: Data) -> None:
    """Two classes."""
    RVC(max_iter=20).fit(data.X, data.y > 0)


def softmax(data: Data) -> None:
    """Four classes in one model."""
    RVC(multi_class="softmax", max_iter=20).fit(data.X, data.classes)


def outputs(data: Data) -> None:
    """Eight outputs of kernel functions."""
    RVR(max_iter=20).fit(data.X, data.several)


def output_columns(data: Data) -> None:
    """Eight outputs of many columns."""
    SparseBayesRegressor(fit_intercept=False, max_iter=20).fit(data.Phi, data.several[: data.half])


def probit(data: Data) -> None:
    """The constructive probit machine."""
    MRVM1(max_iter=3).fit(data.X, data.classes)


def top_down(data: Data) -> None:
    """The probit machine that begins with everything."""
    MRVM2(max_iter=3).fit(data.X[::3], data.classes[::3])


def eigen(data: Data) -> None:
    """Directions of a kernel matrix."""
    GREVMRegressor().fit(data.X, data.y)


def provider(data: Data) -> None:
    """Rows that answer for themselves."""
    SparseBayesRegressor(fit_intercept=False, max_iter=20).fit_provider(
        RowPart(data.Phi, data.y[: data.half])
    )


def sums(data: Data) -> None:
    """Sums over rows, and a fit to them."""
    found = SufficientStatistics(data.Phi.shape[1])
    found.update(data.Phi, data.y[: data.half])
    SparseBayesRegressor(fit_intercept=False, max_iter=20).fit_statistics(found)


def chunks(data: Data) -> None:
    """Rows that come in pieces."""
    pieces = [(data.X[start::6], data.y[start::6]) for start in range(6)]
    RVR(candidates=len(data.y) // 3, max_iter=20, random_state=0).fit(pieces)


CASES = {
    case.__name__: case
    for case in (
        kernel,
        exchange,
        em,
        variational,
        classes,
        softmax,
        outputs,
        columns,
        counts,
        output_columns,
        probit,
        top_down,
        eigen,
        provider,
        sums,
        chunks,
    )
}


def attempt(name: str, mebibytes: int) -> str:
    """Fit with so much memory left; say how it ended."""
    warnings.simplefilter("ignore")
    # Once on a few rows: libraries, threads and buffers take memory once.
    CASES[name](Data(120, 50))
    data = Data(6000, 2500)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        CASES[name](data)
    except MemoryError as error:
        return f"MemoryError {error}"
    return "fitted"


def main() -> int:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--mebibytes", nargs="+", type=int, default=list(LADDER))
    parser.add_argument("--here", action="store_true", help="fit once, in this process")
    given = parser.parse_args()
    if given.here:
        print(attempt(given.cases[0], given.mebibytes[0]))
        return 0
    bad = 0
    for name in given.cases:
        endings: Counter[str] = Counter()
        for mebibytes in given.mebibytes:
            command = [sys.executable, __file__, "--here", "--cases", name, "--mebibytes", str(mebibytes)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            well = done.returncode == 0 and done.stdout.startswith(("fitted", "MemoryError"))
            endings[done.stdout.split()[0] if well else "died"] += 1
            if not well:
                bad += 1
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                print(f"{name}: status {done.returncode} with {mebibytes} MiB: {''.join(last)}")
        print(f"{name}: " + ", ".join(f"{ending} {count}" for ending, count in endings.items()), flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
