"""Likelihoods: errors with spoilt targets on real tables, and times beside Gaussian fits.

Errors: one training target in ten is moved by 3 to 10 standard deviations, up or down. `RVR` with Student's t
beside `RVR` with a Gaussian likelihood and a support vector machine with a grid search, all fitted to the
spoilt rows; errors on new rows relative to the Gaussian fit to the rows as they were.

Noise: the log density of new rows with the same noise in all rows, and with one that depends on the inputs
(``noise_basis="linear"``); their 95 % intervals; seconds relative to the fit with the same noise.

Positive numbers: the share of the deviance of new rows that ``likelihood="gamma"`` explains, beside
scikit-learn's `GammaRegressor` with a grid search.

Counts: visits to a doctor of the RAND health insurance experiment, which statsmodels brings along: the log
density of new rows beside its negative binomial model, and the share of their deviance beside scikit-learn's
`PoissonRegressor` with a grid search. Without statsmodels this part is skipped: pip install statsmodels.

Times: counts, positive numbers and outliers of one function of ten inputs, relative to a Gaussian fit of the
same size, with a learned and with a given kernel; medians of five draws.

SPARSEBAYES_DATA names the folder of the tables. Run ``make bench-likelihoods``.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from bench_widths import FOLDER, REGRESSION, models, split
from scipy.stats import nbinom
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import d2_tweedie_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVR
from sparsebayes.model_selection import density_score

TABLES = [name for name in REGRESSION if name not in ("puma32h", "kin40k", "california")]
POSITIVE = ["boston", "concrete", "airfoil", "yacht_hydrodynamics", "real_estate_valuation"]
ROWS, SPLITS, DRAWS = 400, 3, 5


def spoilt(y, seed):
    """Return y with a tenth of the targets moved."""
    rng, n = np.random.default_rng(seed), len(y) // 10
    y = y.copy()
    y[rng.choice(len(y), n, replace=False)] += rng.choice([-1.0, 1.0], n) * rng.uniform(3.0, 10.0, n)
    return y


def errors():
    labels = ("student_t", "student_t, clean", "gaussian", "svm")
    print(f"{'table':22s}" + "".join(f"{label:>18s}" for label in (*labels, "cover", "s/gaussian")))
    found = []
    for name in TABLES:
        for seed in range(SPLITS):
            X, y, X_test, y_test = split(name, seed, ROWS)
            bad, own, seconds = spoilt(y, seed), [], []
            fits = {"clean": (RVR(), y), "student_t": (RVR(likelihood="student_t"), bad)}
            fits["student_t, clean"] = RVR(likelihood="student_t"), y
            fits |= {"gaussian": (RVR(), bad), "svm": (models(name, X.shape[1], ("svm",))["svm"], bad)}
            for label, (model, target) in fits.items():
                start = time.perf_counter()
                model.fit(X, target)
                seconds.append(time.perf_counter() - start)
                own.append(root_mean_squared_error(y_test, model.predict(X_test)))
                if label == "student_t":
                    low, high = model.predict_interval(X_test)
            cover = np.mean((low <= y_test) & (y_test <= high))
            found.append([*(np.array(own[1:]) / own[0]), cover, seconds[1] / seconds[3]])
            print(f"{name:22s}" + "".join(f"{value:18.3f}" for value in found[-1]), flush=True)
    found = np.array(found)
    means = [*np.exp(np.log(found[:, :4]).mean(axis=0)), found[:, 4].mean(), np.median(found[:, 5])]
    print(f"{'means':22s}" + "".join(f"{value:18.3f}" for value in means))


def noise():
    labels = ("same noise", "noise_basis", "cover", "s/same noise")
    print(f"\n{'table':22s}" + "".join(f"{label:>18s}" for label in labels))
    found = []
    for name in TABLES:
        for seed in range(SPLITS):
            X, y, X_test, y_test = split(name, seed, ROWS)
            own, seconds = [], []
            for basis in (None, "linear"):
                start = time.perf_counter()
                model = RVR(noise_basis=basis).fit(X, y)
                seconds.append(time.perf_counter() - start)
                own.append(density_score(model, X_test, y_test))
            low, high = model.predict_interval(X_test)
            cover = np.mean((low <= y_test) & (y_test <= high))
            found.append([*own, cover, seconds[1] / seconds[0]])
            print(f"{name:22s}" + "".join(f"{value:18.3f}" for value in found[-1]), flush=True)
    means = [*np.mean(found, axis=0)[:3], np.median(found, axis=0)[3]]
    print(f"{'means':22s}" + "".join(f"{value:18.3f}" for value in means))


def positive_numbers():
    print(f"\n{'table':22s}{'GammaRegressor':>18s}{'RVR':>18s}{'cover':>18s}")
    found = []
    for name in POSITIVE:
        table = pd.read_csv(FOLDER / f"{name}.csv.gz").to_numpy(dtype=float)
        for seed in range(SPLITS):
            rows = table[np.random.default_rng(seed).permutation(len(table))]
            n = min(ROWS, 2 * len(rows) // 3)
            X, y = StandardScaler().fit(rows[:n, :-1]).transform(rows[:, :-1]), rows[:, -1]
            peer = GridSearchCV(GammaRegressor(max_iter=1000), {"alpha": np.logspace(-4, 1, 6)})
            model = RVR(likelihood="gamma").fit(X[:n], y[:n])
            low, high = model.predict_interval(X[n:])
            cover = np.mean((low <= y[n:]) & (y[n:] <= high))
            found.append([peer.fit(X[:n], y[:n]).score(X[n:], y[n:]), model.score(X[n:], y[n:]), cover])
            print(f"{name:22s}" + "".join(f"{value:18.3f}" for value in found[-1]), flush=True)
    print(f"{'means':22s}" + "".join(f"{value:18.3f}" for value in np.mean(found, axis=0)))


def counts():
    try:
        from statsmodels.api import NegativeBinomial, add_constant
        from statsmodels.datasets import randhie
    except ImportError:
        print("\nstatsmodels is not installed; pip install statsmodels to compare counts with it")
        return
    table = randhie.load_pandas().data
    labels = ("statsmodels", "RVR", "PoissonRegressor", "RVR", "s, statsmodels", "s, RVR")
    print(f"\n{'rows':>6s}" + "".join(f"{label:>18s}" for label in labels))
    for n in (500, 1000, 2000):
        found = []
        for seed in range(SPLITS):
            rows = table.iloc[np.random.default_rng(seed).permutation(len(table))]
            X = StandardScaler().fit(rows.iloc[:n, 1:]).transform(rows.iloc[:, 1:])
            y, columns = rows["mdvis"].to_numpy(float), add_constant(X)
            fit, new = slice(n), slice(n, n + 10_000)
            start = time.perf_counter()
            peer = NegativeBinomial(y[fit], columns[fit]).fit(disp=0, maxiter=200)
            middle = time.perf_counter()
            model = RVR(likelihood="negative_binomial").fit(X[fit], y[fit])
            seconds = [middle - start, time.perf_counter() - middle]
            m, d = peer.predict(columns[new]), peer.params[-1]
            density = np.mean(nbinom.logpmf(y[new], 1.0 / d, 1.0 / (1.0 + d * m)))
            poisson = GridSearchCV(PoissonRegressor(max_iter=1000), {"alpha": np.logspace(-4, 1, 6)})
            both = (poisson.fit(X[fit], y[fit]), model)
            shares = [d2_tweedie_score(y[new], one.predict(X[new]), power=1) for one in both]
            found.append([density, density_score(model, X[new], y[new]), *shares, *seconds])
        print(f"{n:6d}" + "".join(f"{value:18.3f}" for value in np.mean(found, axis=0)), flush=True)


def times():
    print(f"\n{'rows':>6s}{'gamma':>8s}" + "".join(f"{name:>20s}" for name in targets(0, np.zeros(1))))
    for n in (500, 1000, 2000):
        for gamma in ("ard", "scale"):
            seconds = []
            for seed in range(n, n + DRAWS):
                X = np.random.default_rng(seed).normal(size=(n, 10))
                f = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * X[:, 2] * X[:, 3]
                own = []
                for name, y in targets(seed, f).items():
                    start = time.perf_counter()
                    RVR(likelihood=name, gamma=gamma).fit(X, y)
                    own.append(time.perf_counter() - start)
                seconds.append(own)
            medians = np.median(seconds, axis=0)
            shown = [f"{medians[0]:18.3f} s", *(f"{t / medians[0]:20.2f}" for t in medians[1:])]
            print(f"{n:6d}{gamma:>8s}" + "".join(shown), flush=True)


def targets(seed, f):
    """Return targets of every likelihood with this function as mean, or as its log."""
    rng, n = np.random.default_rng(seed), len(f)
    outliers = f + 0.2 * rng.standard_t(2.0, n)
    return {
        "gaussian": f + 0.3 * rng.normal(size=n),
        "student_t": outliers,
        "poisson": rng.poisson(np.exp(f)).astype(float),
        "negative_binomial": rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, n)).astype(float),
        "gamma": np.exp(f) * rng.gamma(4.0, 0.25, n),
    }


def main():
    if not FOLDER.is_dir():
        sys.exit("no table is there: SPARSEBAYES_DATA has to name the folder of data files")
    warnings.simplefilter("ignore")
    errors()
    noise()
    positive_numbers()
    counts()
    times()


if __name__ == "__main__":
    main()
