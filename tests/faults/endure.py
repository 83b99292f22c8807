"""Endurance: the same fit many times under load, memory over many fits, many threads on one model.

``python tests/faults/endure.py [--repeats 100] [--cycles 100000] [--threads 32] [--seconds 20]``. Ends with
status 1 if bits differ, memory grows or a prediction is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Wrong, report, resident
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import MRVM1, RVC, RVR, SparseBayesRegressor

ATTRIBUTES = ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_")


def surface(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a surface and its targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4, 4, (n, 2))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=n)


def bits(est: object, X: np.ndarray) -> bytes:
    """Return the attributes and predictions of a model as bytes."""
    values = [np.asarray(getattr(est, name)) for name in ATTRIBUTES]
    return b"".join(np.ascontiguousarray(value).tobytes() for value in [*values, est.predict(X)])


def burn() -> None:
    """Keep a core busy."""
    while True:
        sum(range(10_000))


def same_bits(repeats: int) -> str:
    """Fit with 1, 2 and 4 threads, again and again, while other processes take the cores."""
    X, y = surface(600)
    jobs = {"RVR": (RVR(gamma=0.5), y), "RVC": (RVC(gamma=0.5), y > 0)}
    others = [multiprocessing.Process(target=burn, daemon=True) for _ in range(3)]
    for process in others:
        process.start()
    try:
        for name, (est, target) in jobs.items():
            first = bits(est.set_params(n_jobs=1).fit(X, target), X)
            for repeat in range(repeats):
                for n_jobs in (1, 2, 4):
                    if bits(est.set_params(n_jobs=n_jobs).fit(X, target), X) != first:
                        raise Wrong(f"{name}, n_jobs={n_jobs}, repeat {repeat}: other bits")
    finally:
        for process in others:
            process.kill()
            process.join()
    return f"same bits: {len(jobs)} models x n_jobs 1, 2, 4 x {repeats} repeats under load"


def flat_memory(cycles: int, most: float = 4.0) -> str:
    """Fit, save to bytes and predict in cycles; memory must not grow after the first tenth of them."""
    X, y = surface(24)
    several, thirds = np.c_[y, X], np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    kinds: list[tuple[Callable[[], Any], np.ndarray]] = [
        (lambda: RVR(gamma=0.5), y),
        (lambda: RVR(gamma=0.5), several),
        (lambda: RVC(gamma=0.5), y > 0),
        (lambda: RVC(gamma=0.5, multi_class="softmax", max_iter=10), thirds),
        (lambda: MRVM1(gamma=0.5, max_iter=3), thirds),
        (lambda: SparseBayesRegressor(fit_intercept=True), y),
    ]
    begun = 0.0
    for cycle in range(cycles):
        if cycle == cycles // 10:
            begun = resident()
        make, target = kinds[cycle % len(kinds)]
        if cycle % 12 == 11:  # a model of columns, fitted to one half of the rows after the other
            est = make().partial_fit(X[:12], y[:12]).partial_fit(X[12:], y[12:])
        else:
            est = make().fit(X, target)
        served = est.to_predictor()
        again = pickle.loads(pickle.dumps(served)).predict(X[:3])
        if (served.predict(X[:3]) != again).any():
            raise Wrong(f"cycle {cycle}: a model that was saved and loaded predicts other values")
    ended = resident()
    if ended - begun > most:
        raise Wrong(f"memory grew from {begun:.1f} to {ended:.1f} MiB in {cycles} cycles")
    told = f"{begun:.1f} MiB after a tenth, {ended:.1f} MiB at the end"
    return f"flat memory: {cycles} cycles of fit and predict, {told}"


def many_threads(threads: int, seconds: float) -> str:
    """Predict rows, batches and error bars with one model in many threads while two more fit."""
    X, y = surface(200)
    model = RVR(gamma=0.5).fit(X, y).to_predictor()
    expected, mu = model.predict_std(X), RVR(gamma=0.5).fit(X, y).mu_
    end, answers, wrong = time.monotonic() + seconds, [0] * threads, []

    def ask(k: int) -> None:
        rng = np.random.default_rng(k)
        while time.monotonic() < end and not wrong:
            row = rng.integers(len(X))
            one = model.predict_one(X[row])
            mean, std = model.predict_std(X)
            if one != expected[0][row] or (mean != expected[0]).any() or (std != expected[1]).any():
                wrong.append(f"thread {k}: other predictions")
            answers[k] += len(X) + 1

    def fit() -> None:
        while time.monotonic() < end and not wrong:
            if (RVR(gamma=0.5, n_jobs=2).fit(X, y).mu_ != mu).any():
                wrong.append("a fit beside them has other bits")

    workers = [threading.Thread(target=ask, args=(k,)) for k in range(threads)]
    workers += [threading.Thread(target=fit) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise Wrong(wrong[0])
    told = f"{sum(answers)} rows predicted in {seconds:g} s, all the same"
    return f"threads: {threads} on one model beside 2 that fit, {told}"


def main() -> int:
    """Print the result of each check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    # Fits that are cut short say so.
    warnings.simplefilter("ignore", ConvergenceWarning)
    checks = [
        (same_bits, given.repeats),
        (flat_memory, given.cycles),
        (many_threads, given.threads, given.seconds),
    ]
    return report(check(*arguments) for check, *arguments in checks)


if __name__ == "__main__":
    sys.exit(main())
