"""One fit of the benchmark of large fits, in a process of its own.

``million_fit.py METHOD ROWS CANDIDATES`` prints JSON: seconds, peak resident set, error on fresh rows.
A fit for which memory does not suffice says so in place of its numbers.
"""

import json
import os
import resource
import sys
import time
import warnings

import numpy as np
from peers import MIXTURE_GAMMA, PAPERS, SURFACE_GAMMA, mixture, n_functions, sinc, surface
from report import n_cores
from runs import peak_memory
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from sparsebayes import RVC, RVR
from sparsebayes.kernels import Gaussian

TEST_ROWS = 50_000
TEST_SEED = 99
#: So much of the machine's memory a fit may take: one that asks for more is refused, and the machine lives.
SHARE_OF_MEMORY = 0.85


def rvr(n_candidates):
    return RVR(gamma=SURFACE_GAMMA, candidates=n_candidates, random_state=0, **PAPERS)


def rvc(n_candidates):
    return RVC(gamma=MIXTURE_GAMMA, candidates=n_candidates, random_state=0, **PAPERS)


def nystroem_ridge(n_candidates):
    return make_pipeline(
        Nystroem(gamma=SURFACE_GAMMA, n_components=n_candidates, random_state=0, n_jobs=n_cores()), RidgeCV()
    )


def nystroem_sgd(n_candidates):
    return make_pipeline(
        Nystroem(gamma=MIXTURE_GAMMA, n_components=n_candidates, random_state=0, n_jobs=n_cores()),
        SGDClassifier(loss="log_loss", random_state=0),
    )


def lightgbm_regressor(_):
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_jobs=n_cores(), verbose=-1)


def lightgbm_classifier(_):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=n_cores(), verbose=-1)


REGRESSORS = {"rvr": rvr, "nystroem-ridge": nystroem_ridge, "lightgbm-regressor": lightgbm_regressor}
CLASSIFIERS = {"rvc": rvc, "nystroem-sgd": nystroem_sgd, "lightgbm-classifier": lightgbm_classifier}


class Sweeps:
    """A callback that adds up the candidates that sweeps in blocks look at, and how long that takes."""

    def __init__(self):
        self.candidates = 0
        self.seconds = 0.0
        self._last = None

    def __call__(self, step):
        now = time.perf_counter()
        swept = step.progress.done if step.action == "sweep" else None
        if swept is not None and self._last is not None and swept > self._last[0]:
            self.candidates += swept - self._last[0]
            self.seconds += now - self._last[1]
        self._last = None if swept is None else (swept, now)
        return False


def limit_memory():
    """Have the system refuse what the machine does not have: an exception, and no other process killed."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resource.setrlimit(resource.RLIMIT_DATA, (int(SHARE_OF_MEMORY * total),) * 2)


def fit(method, n, n_candidates):
    """Time the fit of one method and measure its model; ``n_candidates`` None: every row is one."""
    problem = surface if method in REGRESSORS else mixture
    make = REGRESSORS.get(method) or CLASSIFIERS[method]
    data, small, sweeps = problem(n), problem(1000), Sweeps()
    make(50).fit(small.X, small.y)  # imports, and threads for the first time
    model = make(n_candidates)
    if n_candidates is None:
        model.set_params(callback=sweeps)
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(data.X, data.y)
    report = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "bytes": peak_memory(),
        "sweeping": sweeps.seconds,
        "swept": n * sweeps.candidates,
    }
    return report | described(model) | errors(model, problem)


def described(model):
    """What only our models have."""
    return {"functions": n_functions(model), "status": model.status_} if hasattr(model, "status_") else {}


def errors(model, problem):
    test = problem(TEST_ROWS, TEST_SEED)
    if problem is surface:
        return {"rmse": float(np.sqrt(np.mean((model.predict(test.X) - sinc(test.X)) ** 2)))}
    return {
        "error": float(np.mean(model.predict(test.X) != test.y)),
        "log_loss": float(log_loss(test.y, model.predict_proba(test.X))),
    }


def kernel_rate(repeats=200, rows=2048, centres=32):
    """Kernel evaluations per second of one core on a block that stays in its caches: the peak of a sweep."""
    data = surface(rows)
    kernel = Gaussian(2.5).to_core()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel.matrix(data.X[:centres], data.X, n_threads=1)
        best = min(best, time.perf_counter() - start)
    return {"kernels_per_second": rows * centres / best}


def main():
    warnings.simplefilter("ignore")
    method, rows, candidates = sys.argv[1:]
    limit_memory()
    try:
        if method == "kernel-rate":
            report = kernel_rate()
        else:
            report = fit(method, int(rows), None if candidates == "all" else int(candidates))
    except MemoryError:
        report = {"missing": "memory"}
    except ImportError as error:
        report = {"missing": error.name}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
