"""Learned widths on real and made tables: errors, densities and error bars on new rows, beside two peers.

Regression: `RVR` beside a support vector machine whose C, gamma and epsilon are chosen by a grid search (32
combinations, 5 folds) and a Gaussian process with one length per input. Classification, two classes: `RVC`
beside a support vector machine chosen likewise and calibrated, and a Gaussian process with one length; for
several classes without the latter. Training rows are two thirds of a table, at most ``--rows``, of
several classes half, of satimage and letter 3000 and 5000; inputs and numeric targets are standardised. Made
tables, two draws each: Friedman's first function, a function of 5 of 50 inputs, a linear one, and noise.

``error``: root mean square error, or rate of wrong classes. ``nlpd``: mean negative log density of a row
left out, of classes the log loss. ``cover``: share of rows left out within the 95 % intervals. ``/svm`` and
``s/svm``: error and seconds by those of the support vector machine. ``/best``: error by that of the better
peer. The environment variable SPARSEBAYES_DATA names the folder of the tables, gzipped CSV files whose last
column is the target. Run ``make bench-widths``, or this file with ``--help``.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from friedman1 import truth
from sklearn.datasets import load_digits

from sparsebayes import RVC, RVR
from sparsebayes._cli.compare import measured, peers

FOLDER = Path(os.environ.get("SPARSEBAYES_DATA", "data"))
REGRESSION = (
    "boston",
    "concrete",
    "airfoil",
    "yacht_hydrodynamics",
    "winequality_red",
    "qsar_aquatic_toxicity",
    "real_estate_valuation",
    "puma32h",
    "kin8nm",
    "kin40k",
    "california",
    "protein",
)
CLASSIFICATION = (
    "pima",
    "wdbc",
    "heart",
    "ionosphere",
    "sonar",
    "spambase",
    "magic",
    "phoneme",
    "twonorm",
)
SEVERAL = (
    "vehicle",
    "vowel",
    "satimage",
    "image_segment",
    "digits",
    "letter",
    "wine",
    "iris",
    "balance",
    "ecoli",
)
CLASSES = CLASSIFICATION + SEVERAL
#: Training rows of tables of several classes, if they are not half of all; fewest rows of a class.
ROWS_OF_SEVERAL = {"satimage": 3000, "letter": 5000}
MIN_ROWS_OF_CLASS = 20
#: Made tables: training rows and inputs.
MADE = {"friedman1": (240, 10), "five_of_fifty": (600, 50), "linear": (150, 20), "noise": (300, 10)}
SPARSE = {"ard": {"gamma": "ard"}, "learn": {"gamma": "learn"}, "scale": {"gamma": "scale"}}
MOST_TEST_ROWS = 2000
COLUMNS = ("error", "nlpd", "cover", "funct.", "s")


def made(name, seed):
    """Inputs, targets and number of training rows of a made table."""
    rng = np.random.default_rng(seed)
    n_train, d = MADE[name]
    X = rng.uniform(size=(n_train + MOST_TEST_ROWS, d))
    if name == "friedman1":
        y = truth(X) + rng.normal(size=len(X))
    elif name == "five_of_fifty":
        X = 4.0 * X - 2.0
        y = (
            np.sin(2.0 * X[:, 0])
            + X[:, 1] * X[:, 2]
            + 0.5 * X[:, 3] ** 2
            + X[:, 4]
            + 0.3 * rng.normal(size=len(X))
        )
    elif name == "linear":
        y = X @ rng.normal(size=d) + 0.5 * rng.normal(size=len(X))
    else:
        y = rng.normal(size=len(X))
    return X, y, n_train


def split(name, seed, n_rows):
    """Standardised training and test rows; of a target of labels only the inputs are standardised."""
    if name in MADE:
        X, y, n_train = made(name, seed)
        order = np.arange(len(y))
    else:
        if name == "digits":
            X, y = load_digits(return_X_y=True)
        else:
            table = pd.read_csv(FOLDER / f"{name}.csv.gz")
            X, y = table.iloc[:, :-1].to_numpy(dtype=float), table.iloc[:, -1].to_numpy()
        n_train = min(n_rows, 2 * len(y) // 3)
        if name in SEVERAL:
            classes, counts = np.unique(y, return_counts=True)
            many = np.isin(y, classes[counts >= MIN_ROWS_OF_CLASS])
            X, y = X[many], y[many]
            n_train = ROWS_OF_SEVERAL.get(name, len(y) // 2)
        order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:][:MOST_TEST_ROWS]
    varies = np.ptp(X[train], axis=0) > 0.0
    X = (X[:, varies] - X[train][:, varies].mean(axis=0)) / X[train][:, varies].std(axis=0)
    if name not in CLASSES:
        y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def models(name, n_features, labels):
    """Estimators by label."""
    found = dict(zip(("svm", "gp"), peers(n_features, classes=name in CLASSES).values(), strict=True))
    sparse = RVC if name in CLASSES else RVR
    found |= {label: sparse(**arguments) for label, arguments in SPARSE.items()}
    return {label: found[label] for label in labels}


def ratios(values, peers):
    """Error by that of the support vector machine and of the better peer, and seconds by the former's.

    Errors below 0.001, such as no wrong class, count as 0.001.
    """
    svm, error = peers["svm"], max(values[0], 1e-3)
    best = min(peer[0] for peer in peers.values())
    return [error / max(svm[0], 1e-3), error / max(best, 1e-3), values[4] / svm[4]]


def row(name, label, numbers):
    print(f"{name:22s} {label:6s}" + "".join(f" {number:8.3f}" for number in numbers), flush=True)


def summary(label, values, peers):
    """Print means over the fits of one estimator, given its measures and those of the peers by label."""
    values, by = np.array(values), np.array([ratios(*pair) for pair in zip(values, peers, strict=True)])
    svm, best = np.exp(np.log(by[:, :2]).mean(axis=0))
    losses = ", ".join(f"{peer} {np.mean([fit[peer][1] for fit in peers]):.3f}" for peer in peers[0])
    covered = np.sum((values[:, 2] >= 0.9) & (values[:, 2] <= 0.98))
    seconds = values[:, 4]
    print(
        f"{label}: error /svm {svm:.3f}, /best {best:.3f}, geometric means; nlpd {values[:, 1].mean():.3f} "
        f"({losses}); {covered} of {len(values)} fits cover 90 to 98 %; functions, median "
        f"{np.median(values[:, 3]):.0f}; {seconds.mean():.2f} s, at most {seconds.max():.2f}, together "
        f"{seconds.sum() / sum(fit['svm'][4] for fit in peers):.3f} of the svm's"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=600, help="most training rows")
    parser.add_argument("--splits", type=int, help="default: 2, of classes 3")
    parser.add_argument("--tables", nargs="*", default=[*REGRESSION, *MADE, *CLASSIFICATION, *SEVERAL])
    parser.add_argument("--models", nargs="*", default=list(SPARSE), help="of " + ", ".join(SPARSE))
    parser.add_argument("--no-process", action="store_true", help="without the Gaussian process: minutes")
    options = parser.parse_args()
    if not FOLDER.is_dir():
        sys.exit("no table is there: SPARSEBAYES_DATA has to name the folder of data files")
    warnings.simplefilter("ignore")
    print(f"{'table':22s} {'model':6s}" + "".join(f" {c:>8s}" for c in (*COLUMNS, "/svm", "/best", "s/svm")))
    for tables in (REGRESSION, MADE, CLASSIFICATION, SEVERAL):
        others = ("svm",) if options.no_process or tables is SEVERAL else ("svm", "gp")
        found = {label: [] for label in options.models}
        beside = []
        for name in (name for name in options.tables if name in tables):
            for seed in range(options.splits or (3 if name in CLASSES else 2)):
                data = split(name, seed, options.rows)
                of_fit = {
                    label: measured(model, *data)
                    for label, model in models(name, data[0].shape[1], (*others, *options.models)).items()
                }
                beside.append({peer: of_fit[peer] for peer in others})
                for label, values in of_fit.items():
                    row(name, label, [*values, *ratios(values, beside[-1])])
                    if label in found:
                        found[label].append(values)
        for label, values in found.items():
            if values:
                summary(label, values, beside)


if __name__ == "__main__":
    main()
