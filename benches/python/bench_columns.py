"""Fits on columns as they are, beside the lasso and other linear models: time, errors, effects found, memory.

Ours are `SparseBayesRegressor` and `SparseBayesClassifier` with their defaults. Peers are scikit-learn's, and
the lasso of celer and the minimax concave penalty of skglm if these are installed; what a penalty weighs is
chosen by 5 folds. Methods take turns; medians. One that takes more than ``--limit`` seconds of processors is
stopped, and left out. Every method has the same number of threads.

Columns of the table: ``s`` is time on the clock, ``cpu s`` time of processors, which other work on the
computer hardly changes. ``MB``: largest memory during the first fit, less the memory before it.
``R2 / loss``: R2 of rows left out, of classes their log loss. ``w error``: length of the error of the weights
by that of the true ones.
``kept``: columns with a weight; ``found`` and ``false``: those of them that have and that lack an effect.
``cover``: share of the rows left out within our 95 % intervals.

Run ``make bench-columns``, or this file with ``--help``.
"""

import argparse
import ctypes
import gc
import json
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report
from peers import Method
from runs import WARM_UP_ROWS, peak_memory, progress
from scipy import fft, sparse
from scipy.sparse.linalg import LinearOperator
from sklearn.linear_model import ARDRegression, LassoCV, LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss, r2_score
from threadpoolctl import threadpool_limits

from sparsebayes import SparseBayesClassifier, SparseBayesRegressor

try:
    import celer

    celer.LassoCV()
except (ImportError, TypeError):  # version 0.7.4 needs scikit-learn below 1.9
    celer = None
try:
    import skglm
except ImportError:
    skglm = None

FOLDS = 5
NEW_ROWS = 5000
WARM_UP_COLUMNS = 20
#: Fits that take longer than this are timed once.
SECONDS = 20.0


@dataclass(frozen=True)
class Problem:
    """Training rows, rows left out, and the true weights, if there are any."""

    X: Any
    y: np.ndarray
    X_new: Any
    y_new: np.ndarray
    weights: np.ndarray | None = None


# --- problems ---------------------------------------------------------------------------------------------


def effects(rng, n_columns, n_effects):
    """Weights of which ``n_effects`` are standard normal and the others 0."""
    weights = np.zeros(n_columns)
    weights[rng.choice(n_columns, n_effects, replace=False)] = rng.normal(size=n_effects)
    return weights


def split(rng, X, weights, n, r2):
    """The first ``n`` rows for training; noise so that the columns explain ``r2`` of the variance."""
    mean = X @ weights
    y = mean + mean.std() * np.sqrt(1 / r2 - 1) * rng.normal(size=len(mean))
    return Problem(X[:n], y[:n], X[n:], y[n:], weights)


def dense(n, d, n_effects, new=NEW_ROWS):
    """Standard normal columns, neighbours with correlation 1/2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + new, d))
    for j in range(1, d):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    return split(rng, X, effects(rng, d, n_effects), n, 0.85)


def genotypes(n, d, n_effects, new=1000):
    """Counts 0, 1 or 2 of an allele, and effects of equal variance with a heritability of 0.9."""
    rng = np.random.default_rng(0)
    frequency = rng.uniform(0.05, 0.5, d)
    X = rng.binomial(2, frequency, (n + new, d)).astype(float)
    weights = effects(rng, d, n_effects) / np.sqrt(2 * frequency * (1 - frequency))
    return split(rng, X, weights, n, 0.9)


def scattered(n, d, n_effects, filled=0.01):
    """A sparse matrix of standard normal values."""
    rng = np.random.default_rng(0)
    X = sparse.random_array(
        (n + NEW_ROWS, d), density=filled, format="csr", rng=rng, data_sampler=rng.standard_normal
    )
    return split(rng, X, effects(rng, d, n_effects), n, 0.85)


def cosines(n, d, rows, rng):
    """Some rows of the inverse of the orthonormal cosine transform, applied without the matrix."""

    def transposed(r):
        whole = np.zeros((d, *r.shape[1:]))
        whole[rows] = r
        return fft.dct(whole, axis=0, norm="ortho")

    def product(w):
        return fft.idct(w, axis=0, norm="ortho")[rows]

    return LinearOperator((n, d), product, transposed, product, rmatmat=transposed, dtype=float)


def transform(n, d, n_effects, noise=None):
    """Spikes behind random rows of a cosine transform; the noise in units of a spike, or for an R2 of 0.85.

    4096 weights, 1024 rows, 256 spikes and a noise of 0.01 are the example of Lin, Song, Bilgic & Ba (2022),
    "Covariance-free sparse Bayesian learning", that comes with their package sparse-bayes-learn.
    """
    rng = np.random.default_rng(0)
    weights = effects(rng, d, n_effects)
    rows = rng.permutation(d)
    X, X_new = (cosines(len(part), d, part, rng) for part in (rows[:n], rows[n : n + NEW_ROWS]))
    noise = np.sqrt(n_effects / d * (1 / 0.85 - 1)) if noise is None else noise
    y, y_new = (A @ weights + noise * rng.normal(size=A.shape[0]) for A in (X, X_new))
    return Problem(X, y, X_new, y_new, weights)


def gaussian(n, d, n_effects, noise):
    """`transform` with a matrix of Gaussian numbers of variance 1 / n, as the same example has them."""
    rng = np.random.default_rng(0)
    weights = effects(rng, d, n_effects)
    X = rng.normal(size=(n + NEW_ROWS, d)) / np.sqrt(n)
    y = X @ weights + noise * rng.normal(size=len(X))
    return Problem(X[:n], y[:n], X[n:], y[n:], weights)


def spectra(n, d, n_substances=10):
    """Smooth spectra of mixtures with a drifting base line; the target is the share of one substance."""
    rng = np.random.default_rng(0)
    at = np.linspace(0, 1, d)
    centres, widths = rng.uniform(0, 1, (2, n_substances, 4))
    peaks = np.exp(-(((at - centres[..., np.newaxis]) / (0.02 + 0.1 * widths[..., np.newaxis])) ** 2))
    shares = rng.dirichlet(np.ones(n_substances), n + NEW_ROWS)
    line = rng.normal(scale=0.05, size=(n + NEW_ROWS, 2)) @ np.array([np.ones(d), at])
    X = shares @ peaks.sum(axis=1) + line + 1e-3 * rng.normal(size=(n + NEW_ROWS, d))
    y = shares[:, 0] + 0.3 * shares[:, 0].std() * rng.normal(size=len(X))
    return Problem(X[:n], y[:n], X[n:], y[n:])


def one_hot(n, n_factors, n_levels, n_effects, *, stored=False):
    """Two classes, and a column for each level of each factor; ``stored``: as a table."""
    rng = np.random.default_rng(0)
    rows, d = n + NEW_ROWS, n_factors * n_levels
    levels = rng.integers(n_levels, size=(rows, n_factors)) + n_levels * np.arange(n_factors)
    starts = np.arange(0, levels.size + 1, n_factors)
    X = sparse.csr_array(
        (np.ones(levels.size), levels.ravel().astype(np.int32), starts.astype(np.int32)), (rows, d)
    )
    weights = 3 * effects(rng, d, n_effects)
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-(X @ weights)))).astype(int)
    X = X.toarray() if stored else X
    return Problem(X[:n], y[:n], X[n:], y[n:], weights)


# --- methods ----------------------------------------------------------------------------------------------


def ours(threads, **options):
    return Method("SparseBayesRegressor", lambda: SparseBayesRegressor(n_jobs=threads, **options))


def schwarz(threads):
    """A weaker prior on complexity, for more than a few effects."""
    return Method('the same, complexity="bic"', ours(threads, complexity="bic").make)


def lasso(threads):
    return Method("LassoCV", lambda: LassoCV(cv=FOLDS, n_jobs=threads))


def celer_lasso(threads):
    return celer and Method("celer.LassoCV", lambda: celer.LassoCV(cv=FOLDS, n_jobs=threads))


def minimax_concave(threads):
    if skglm is None:
        return None
    parts = skglm.datafits.Quadratic(), skglm.penalties.MCPenalty(1.0, 3.0), skglm.solvers.AndersonCD()
    make = partial(skglm.GeneralizedLinearEstimatorCV, *parts, cv=FOLDS, n_jobs=threads, random_state=0)
    return Method("skglm, MCPenalty", make)


def ard(threads):
    return Method("ARDRegression", ARDRegression)


def ridge(threads):
    return Method("RidgeCV", lambda: RidgeCV(np.logspace(-6, 3, 19)))


def classifier(threads):
    return Method("SparseBayesClassifier", lambda: SparseBayesClassifier(n_jobs=threads))


def logistic(threads, name="LogisticRegressionCV, l1", l1_ratio=1.0, solver="liblinear"):
    options = {"l1_ratios": (l1_ratio,), "solver": solver, "use_legacy_attributes": False}
    options |= {"cv": FOLDS, "scoring": "neg_log_loss", "n_jobs": threads}
    return Method(name, lambda: LogisticRegressionCV(**options))


LOGISTIC = (logistic, partial(logistic, name="LogisticRegressionCV, l2", l1_ratio=0.0, solver="lbfgs"))
LASSOS = (lasso, celer_lasso, minimax_concave)


@dataclass(frozen=True)
class Case:
    """A problem and its methods, ours first."""

    title: str
    make: Callable[[], Problem]
    methods: tuple[Callable[[int], Method | None], ...]


CASES = {
    "table": Case("2000 x 500", partial(dense, 2000, 500, 30), (ours, *LASSOS, ard)),
    "long": Case("100,000 x 1000", partial(dense, 100_000, 1000, 50), (ours, *LASSOS)),
    "genotypes": Case("200 x 20,000 counts", partial(genotypes, 200, 20_000, 30), (ours, *LASSOS)),
    "wide": Case("500 x 100,000", partial(dense, 500, 100_000, 20, new=500), (ours, *LASSOS)),
    "sparse": Case("100,000 x 10,000, 1 % filled", partial(scattered, 100_000, 10_000, 50), (ours, *LASSOS)),
    "operator": Case("operator, 2000 x 20,000", partial(transform, 2000, 20_000, 100), (ours,)),
    "spikes": Case(
        "operator, 1024 x 4096, 256 spikes", partial(transform, 1024, 4096, 256, 0.01), (ours, schwarz)
    ),
    "gaussian": Case(
        "1024 x 4096, 256 spikes", partial(gaussian, 1024, 4096, 256, 0.01), (ours, schwarz, *LASSOS, ard)
    ),
    "spectra": Case("spectra, 5000 x 300", partial(spectra, 5000, 300), (ours, *LASSOS, ard, ridge)),
    "one-hot": Case(
        "one-hot, sparse, 20,000 x 1000", partial(one_hot, 20_000, 20, 50, 100), (classifier, *LOGISTIC)
    ),
    "one-hot-table": Case(
        "one-hot, table, 20,000 x 1000",
        partial(one_hot, 20_000, 20, 50, 100, stored=True),
        (classifier, *LOGISTIC),
    ),
}


# --- measurements -----------------------------------------------------------------------------------------


class TooSlow(Exception):
    """A fit took longer than the limit."""


def stop(*_):
    raise TooSlow


@dataclass
class Fit:
    """One fit: time on the clock, time of processors, memory in bytes (None: not known), and the model."""

    seconds: float
    processor: float
    memory: int | None
    model: Any


def resident():
    """Memory in use, in bytes, from where on `peak_memory` counts; None where the system does not tell."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else the fit would use memory that the last one has freed
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    except (OSError, AttributeError):
        return None
    return peak_memory()


def fit(method, problem, limit):
    """Fit once; None if it takes more than ``limit`` seconds of processors."""
    gc.collect()
    before = resident()
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    start, processor = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = method.fit(problem)
        times = time.perf_counter() - start, time.process_time() - processor
    except TooSlow:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Fit(*times, None if before is None else peak_memory() - before, model)


def turns(methods, problem, repeats, limit):
    """Fit with each method, then again with each; a list of fits for each, empty if it is too slow."""
    small = problem
    if not isinstance(problem.X, LinearOperator):
        small = replace(problem, X=problem.X[:WARM_UP_ROWS, :WARM_UP_COLUMNS], y=problem.y[:WARM_UP_ROWS])
    for method in methods:  # modules are imported and threads started, and skglm is compiled
        fit(method, small, limit)
    fits = [[] for _ in methods]
    for turn in range(repeats):
        for method, own in zip(methods, fits, strict=True):
            if turn == 0 or (own and own[0].seconds < SECONDS):
                found = fit(method, problem, limit)
                own.extend([] if found is None else [found])
    return fits


def kept(model):
    """Which columns have a weight, and the weights."""
    if hasattr(model, "active_"):
        weights = np.zeros(model.n_features_in_)
        weights[model.active_[model.active_ >= 0]] = model.mu_[model.active_ >= 0]
    else:
        weights = np.ravel(model.coef_)
    return weights != 0, weights


def quality(model, problem):
    """What the table shows of a model."""
    inside, weights = kept(model)
    found = {"kept": int(inside.sum())}
    if hasattr(model, "classes_"):
        found["R2 / loss"] = log_loss(problem.y_new, model.predict_proba(problem.X_new))
    else:
        found["R2 / loss"] = r2_score(problem.y_new, model.predict(problem.X_new))
    if problem.weights is not None:
        true = problem.weights != 0
        found |= {"found": int((inside & true).sum()), "false": int((inside & ~true).sum())}
        found["w error"] = np.linalg.norm(weights - problem.weights) / np.linalg.norm(problem.weights)
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(problem.X_new)
        found["cover"] = np.mean((low <= problem.y_new) & (problem.y_new <= high))
    if hasattr(model, "status_"):
        found["status"] = model.status_
    return found


def measure(options):
    for name in options.only:
        case = CASES[name]
        problem = case.make()
        methods = [method for make in case.methods if (method := make(options.threads))]
        methods = [method for method in methods if not options.methods or method.name in options.methods]
        fitted = turns(methods, problem, options.repeats, options.limit)
        for method, fits in zip(methods, fitted, strict=True):
            line = {"case": case.title, "method": method.name, "runs": len(fits)}
            line["cpu s"] = f"> {options.limit:.0f}"
            if fits:
                line["s"] = float(np.median([one.seconds for one in fits]))
                line["cpu s"] = float(np.median([one.processor for one in fits]))
                line["MB"] = None if fits[0].memory is None else fits[0].memory / 1e6
                line |= quality(fits[-1].model, problem)
            progress(line)
            yield line
        if name == "long":
            start, processor = time.perf_counter(), time.process_time()
            problem.X.T @ problem.X
            took = {"s": time.perf_counter() - start, "cpu s": time.process_time() - processor}
            yield {"case": case.title, "method": "X.T @ X, NumPy", "runs": 1} | took


def table(measured, threads):
    numbers = ("s", "cpu s", "MB", "R2 / loss", "w error", "kept", "found", "false", "cover")
    cells = [
        (
            line["case"],
            line["method"],
            *(text(line.get(name)) for name in numbers),
            line.get("status", ""),
        )
        for line in measured
    ]
    title = f"Fits on columns; threads: {threads}"
    return report.Table(title, ("case", "method", *(f" {name}" for name in numbers), "status"), cells)


def text(value):
    return str(value) if isinstance(value, (int, str)) else report.number(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES), help="cases")
    parser.add_argument("--methods", nargs="*", help="only these, such as LassoCV")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds of processors of a fit, at most")
    parser.add_argument("--threads", type=int, default=1, help="of every method")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="save all numbers")
    options = parser.parse_args()
    for line in report.environment_lines(options.markdown):
        print(line)
    print("celer:", celer and celer.__version__, "skglm:", skglm and skglm.__version__)
    with threadpool_limits(options.threads):
        measured = list(measure(options))
    print()
    for line in table(measured, options.threads).lines(options.markdown):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
