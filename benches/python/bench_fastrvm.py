"""Time, evidence and peak memory of `RVR` beside fastrvm, on the surface of Tipping & Faul (2003).

Every number is a ratio, or a difference, of two fits of one run, taken in turns: absolute times of a shared
machine mean nothing. Both fit the same rows in the same process, kernel matrix included, with fastrvm at its
default settings but for the number of steps. Memory is the growth of the peak resident set in a process of
its own (Linux).

Run ``make bench-fastrvm``.
"""

import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import fastrvm
import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from sparsebayes import RVR

GAMMA = 1 / 2.5**2
SIZES = (500, 1000, 2000, 4000)
REPEATS = 5


def surface(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(np.linalg.norm(X, axis=1) / np.pi) + 0.1 * rng.normal(size=n)


def fit_ours(X, y):
    return RVR(gamma=GAMMA).fit(X, y)


def fit_theirs(X, y):
    # Its solver does not always end within the default number of steps.
    return fastrvm.RVR(kernel="rbf", gamma=GAMMA, max_iter=10_000).fit(X, y)


def seconds(fit, X, y):
    start = time.perf_counter()
    model = fit(X, y)
    return time.perf_counter() - start, model


def log_evidence_of_theirs(X, y):
    """The exact log evidence at fastrvm's hyperparameters, with its bias as a column of ones."""
    bindings = fastrvm._sparsebayes_bindings
    Phi = np.asfortranarray(np.column_stack([np.ones(len(X)), rbf_kernel(X, gamma=GAMMA)]))
    found = bindings.SparseBayes(bindings.Likelihood.Gaussian, iterations=10_000).inference(Phi, y)
    active = np.ravel(found["relevant_idx"]).astype(int)
    inside = Phi[:, active]
    # Its alphas belong to columns of unit length, divided by the squared length where that should multiply.
    alpha = np.ravel(found["alpha"]) * np.sum(inside**2, axis=0) ** 2
    beta = float(np.ravel(found["beta"])[0])
    H = np.diag(alpha) + beta * inside.T @ inside
    mu = beta * np.linalg.solve(H, inside.T @ y)
    energy = beta * np.sum((y - inside @ mu) ** 2) + mu @ (alpha * mu)
    constants = len(y) * np.log(beta / (2 * np.pi)) + np.log(alpha).sum() - np.linalg.slogdet(H)[1]
    return 0.5 * (constants - energy)


def peak_memory(name, n):
    """Growth of the peak resident set over the fit, in bytes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, name, str(n)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def report_memory(name, n):
    fit = {"ours": fit_ours, "theirs": fit_theirs}[name]
    fit(*surface(50))
    X, y = surface(n)
    before = resident_peak()
    fit(X, y)
    sys.stdout.write(str(resident_peak() - before))


def resident_peak():
    # Not getrusage: a child starts with the peak of its parent there.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def main():
    warnings.simplefilter("ignore")
    head = ("rows", "time ours / theirs", "median", "seconds", "functions", "nats ahead")
    print("{:>5} {:>19} {:>7} {:>8} {:>9} {:>10}".format(*head))
    for n in SIZES:
        X, y = surface(n)
        ratios, times = [], []
        for _ in range(REPEATS):
            ours, model = seconds(fit_ours, X, y)
            theirs, _ = seconds(fit_theirs, X, y)
            ratios.append(ours / theirs)
            times.append(ours)
        ahead = model.log_marginal_likelihood_ - log_evidence_of_theirs(X, y)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"{n:>5} {spread:>19} {np.median(ratios):>7.2f} {np.median(times):>8.2f} "
            f"{len(model.active_):>9} {ahead:>10.2f}"
        )
    n = SIZES[-1]
    for name in ("ours", "theirs"):
        print(f"peak memory at {n} rows, {name}: {peak_memory(name, n) / (8 * n * n):.2f} kernel matrices")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report_memory(sys.argv[1], int(sys.argv[2]))
    else:
        main()
