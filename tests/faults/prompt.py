"""Seconds from Ctrl-C to the end of long work, pressed at random moments.

``python tests/faults/prompt.py [--times 20] [--seed 0] [--limit 1] [--cases kernel ...]``. Work that ends
before Ctrl-C is started again, with an earlier Ctrl-C. Ends with status 1 if work continued for more than
``--limit`` seconds, as it may on a busy computer. `tests/python/test_ctrl_c.py` counts work instead.
"""

from __future__ import annotations

import _thread
import argparse
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsebayes import GREVM, MRVM1, MRVM2, RVC, RVR, SparseBayesRegressor, SufficientStatistics
from sparsebayes.kernels import Gaussian
from sparsebayes.providers import RowPart, SummedStatistics

Work = Callable[[], object]
#: The largest number of processor seconds before Ctrl-C.
LATEST = 4.0


def plane(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two inputs and targets of which half is noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sin(X).prod(axis=1) + rng.normal(size=n)


def of_plane(model: Any, n: int, target: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> Work:
    """Return the fit of a model to `plane`."""
    X, y = plane(n)
    return lambda: model.fit(X, target(y))


def columns() -> Work:
    """Return the fit of noise to as many columns as rows."""
    rng = np.random.default_rng(0)
    Phi, t = rng.normal(size=(3000, 3000)), rng.normal(size=3000)
    return lambda: SparseBayesRegressor(fit_intercept=False).fit(Phi, t)


def wide(n_rows: int, n_outputs: int) -> Work:
    """Return a fit whose kernels take long to evaluate."""
    X = np.random.default_rng(0).normal(size=(n_rows, 1000))
    return lambda: RVR(gamma=1e-3).fit(X, X[:, :n_outputs].squeeze())


def parts() -> Work:
    """Return the fit of two parts that evaluate kernels."""
    X = np.random.default_rng(0).normal(size=(9000, 1000))
    options: dict[str, Any] = {"kernels": Gaussian(30.0), "centres": X, "fit_intercept": True}

    def fit() -> object:
        halves = [RowPart(X[rows], X[rows, 0], **options) for rows in (slice(4500), slice(4500, None))]
        return RVR(Gaussian(30.0), candidates=X).fit_provider(SummedStatistics(halves))

    return fit


def sums() -> Work:
    """Return the sums of many rows."""
    rng = np.random.default_rng(0)
    Phi, t = rng.normal(size=(20_000, 1500)), rng.normal(size=20_000)
    return lambda: SufficientStatistics(1500).update(Phi, t)


def blocks() -> Work:
    """Return a fit whose dictionary goes in blocks."""
    X, y = plane(40_000)
    return lambda: RVR(Gaussian(2.5)).fit(X, y)


def thirds(y: np.ndarray) -> np.ndarray:
    """Return classes."""
    return np.digitize(y, [-0.7, 0.7])


CASES: dict[str, Callable[[], Work]] = {
    "kernel": lambda: of_plane(RVR(Gaussian(0.7)), 9000),
    "kernel-em": lambda: of_plane(RVR(Gaussian(0.7), scheme="em"), 3000),
    "outputs": lambda: of_plane(RVR(Gaussian(0.7)), 9000, lambda y: np.c_[y, y[::-1], -y]),
    "exchange": lambda: of_plane(RVR(Gaussian(0.3), search="exchange"), 2000),
    "classes": lambda: of_plane(RVC(Gaussian(0.7)), 9000, lambda y: y > 0),
    "classes-em": lambda: of_plane(RVC(Gaussian(0.7), scheme="em"), 3000, lambda y: y > 0),
    "classes-variational": lambda: of_plane(RVC(Gaussian(0.7), scheme="variational"), 3000, lambda y: y > 0),
    "softmax": lambda: of_plane(RVC(Gaussian(0.7), multi_class="softmax"), 4000, thirds),
    "mRVM1": lambda: of_plane(MRVM1(Gaussian(0.7)), 3000, thirds),
    "mRVM2": lambda: of_plane(MRVM2(Gaussian(0.7)), 3000, thirds),
    "eigen": lambda: of_plane(GREVM(Gaussian(0.7)), 2000, lambda y: y > 0),
    "columns": columns,
    "wide": lambda: wide(9000, 1),
    "wide outputs": lambda: wide(9000, 2),
    "parts": parts,
    "sums": sums,
    "blocks": blocks,
}


def press(when: float, ended: threading.Event, pressed: list[float]) -> None:
    """Press Ctrl-C at this processor time unless the work has ended, and note the moment."""
    while time.process_time() < when:
        if ended.wait(0.002):
            return
    pressed.append(time.monotonic())
    _thread.interrupt_main()


def seconds_until_heard(work: Work, after: float) -> float:
    """Press Ctrl-C after this processor time; return the seconds until the work ended."""
    while True:
        pressed: list[float] = []
        begun, ended = time.process_time(), threading.Event()
        thread = threading.Thread(target=press, args=(begun + after, ended, pressed))
        try:
            thread.start()
            work()
            took = time.process_time() - begun
            ended.set()
            thread.join()
        except KeyboardInterrupt:
            return time.monotonic() - pressed[0]
        after = 0.5 * took


def main() -> int:
    """Print the seconds of each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    # A process that was started in the background ignores Ctrl-C otherwise.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng, late = random.Random(given.seed), []
    for name in given.cases:
        work = CASES[name]()
        seconds = sorted(seconds_until_heard(work, rng.uniform(0.1, LATEST)) for _ in range(given.times))
        if seconds[-1] > given.limit:
            late.append(name)
        print(f"Ctrl-C, {name}: {seconds[len(seconds) // 2]:.2f} s, at most {seconds[-1]:.2f} s", flush=True)
    if late:
        print(f"late: {', '.join(late)} continued for more than {given.limit:g} s")
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
