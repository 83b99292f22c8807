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
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sparsebayes import MRVM1, MRVM2, RVC, RVR, GREVMRegressor, SparseBayesRegressor, SufficientStatistics
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


BARE = {"fit_intercept": False, "max_iter": 20}


def sums(data: Data) -> None:
    """Sum over rows, and fit to the sums."""
    found = SufficientStatistics(data.Phi.shape[1]).update(data.Phi, data.y[: data.half])
    SparseBayesRegressor(**BARE).fit_statistics(found)


def chunks(data: Data) -> None:
    """Fit to rows that are read in chunks."""
    pieces = [(data.X[start::6], data.y[start::6]) for start in range(6)]
    RVR(candidates=len(data.y) // 3, max_iter=20, random_state=0).fit(pieces)


CASES: dict[str, Callable[[Data], object]] = {
    "kernel": lambda d: RVR(max_iter=20).fit(d.X, d.y),
    "exchange": lambda d: RVR(max_iter=20, search="exchange").fit(d.X, d.y),
    "em": lambda d: RVR(scheme="em", max_iter=3).fit(d.X, d.y),
    "variational": lambda d: RVC(scheme="variational", max_iter=3).fit(d.X[::3], d.y[::3] > 0),
    "classes": lambda d: RVC(max_iter=20).fit(d.X, d.y > 0),
    "softmax": lambda d: RVC(multi_class="softmax", max_iter=20).fit(d.X, d.classes),
    "outputs": lambda d: RVR(max_iter=20).fit(d.X, d.several),
    "columns": lambda d: SparseBayesRegressor(**BARE).fit(d.Phi, d.y[: d.half]),
    "counts": lambda d: SparseBayesRegressor(**BARE, likelihood="poisson").fit(d.Phi, d.counts[: d.half]),
    "output_columns": lambda d: SparseBayesRegressor(**BARE).fit(d.Phi, d.several[: d.half]),
    "probit": lambda d: MRVM1(max_iter=3).fit(d.X, d.classes),
    "top_down": lambda d: MRVM2(max_iter=3).fit(d.X[::3], d.classes[::3]),
    "eigen": lambda d: GREVMRegressor().fit(d.X, d.y),
    "provider": lambda d: SparseBayesRegressor(**BARE).fit_provider(RowPart(d.Phi, d.y[: d.half])),
    "sums": sums,
    "chunks": chunks,
}


def attempt(name: str, mebibytes: int) -> str:
    """Fit with this much memory left, and return how the fit ended."""
    warnings.simplefilter("ignore")
    # The first fit, to a few rows, lets libraries, threads and buffers take their memory.
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
    """Print how the fits ended."""
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
