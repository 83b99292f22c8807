"""Time, evidence and peak memory of `RVR` beside fastrvm, on the surface of Tipping & Faul (2003).

Every number is a ratio, or a difference, of two fits of one run, taken in turns: absolute times of a shared
machine mean nothing. Both fit the same rows in the same process, kernel matrix included, with fastrvm at its
default settings but for the number of steps. Memory is the growth of the peak resident set in a process of
its own (Linux).

Run ``make bench-fastrvm``.
"""

import subprocess
import sys
import warnings

import numpy as np
import runs
from evidence import evidence_of_fastrvm_with_bias
from peers import OUR_RVR, SURFACE_GAMMA, fastrvm_method, surface

SIZES = (500, 1000, 2000, 4000)
REPEATS = 5
THEIR_RVR = fastrvm_method("RVR", SURFACE_GAMMA)


def peak_memory(name, n):
    """Growth of the peak resident set over the fit, in bytes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, name, str(n)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def report_memory(name, n):
    method = {"ours": OUR_RVR, "theirs": THEIR_RVR}[name]
    method.fit(surface(50))
    data = surface(n)
    before = runs.peak_memory()
    method.fit(data)
    sys.stdout.write(str(runs.peak_memory() - before))


def main():
    warnings.simplefilter("ignore")
    head = ("rows", "time ours / theirs", "median", "seconds", "functions", "nats ahead")
    print("{:>5} {:>19} {:>7} {:>8} {:>9} {:>10}".format(*head))
    for n in SIZES:
        data = surface(n)
        ratios, times = [], []
        for _ in range(REPEATS):
            ours, model = runs.seconds(OUR_RVR, data)
            theirs, other = runs.seconds(THEIR_RVR, data)
            ratios.append(ours / theirs)
            times.append(ours)
        ahead = model.log_marginal_likelihood_ - evidence_of_fastrvm_with_bias(other, data)
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
