"""Rare classes: class_weight beside prior=. Streams of classes: partial_fit beside one fit of all rows.

``rare``: two Gaussian classes, one row in 501 of the second, 20,000 training rows; means of ten draws, on
200,000 other rows: log loss with the true shares as prior, recall and false alarms with equal shares.
``stream``: real tables (see bench_widths.py) in 10 or 100 chunks, means of three splits: log loss and error.
Seconds are those of the processor.
"""

import sys
import time
import warnings

import numpy as np
from bench_widths import split
from scipy.special import expit
from sklearn.metrics import log_loss, recall_score

from sparsebayes import RVC, SparseBayesClassifier

SHARES = np.array([500.0, 1.0]) / 501.0


def rare_rows(n, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < SHARES[1]).astype(int)
    return rng.normal(size=(n, 2)) + np.array([2.0, 1.0]) * y[:, np.newaxis], y


def timed(function, *arguments, **options):
    start = time.process_time()
    found = function(*arguments, **options)
    return found, time.process_time() - start


def rare():
    X, y = rare_rows(200_000, 1)
    print(f"truth: log loss {log_loss(y, expit(X @ [2.0, 1.0] - 2.5 - np.log(500.0))):.5f}")
    kinds = {
        "columns": lambda **o: SparseBayesClassifier(n_jobs=1, **o),
        "RVC, candidates=200": lambda **o: RVC(n_jobs=1, candidates=200, random_state=0, **o),
        "RVC, defaults": lambda **o: RVC(n_jobs=1, **o),
    }
    for name, kind in kinds.items():
        for given in (None, "balanced") if "defaults" not in name else (None,):
            rows = []
            for seed in range(100, 110):
                model, seconds = timed(kind(class_weight=given).fit, *rare_rows(20_000, seed))
                loss = log_loss(y, model.predict_proba(X, prior=SHARES)[:, 1])
                found = model.predict(X, prior=[0.5, 0.5])
                alarms, size = found[y == 0].mean(), len(model.active_)
                converged = model.status_ == "converged"
                rows.append([loss, recall_score(y, found), alarms, size, seconds, converged])
            text = "log loss %.5f, recall %.3f, false alarms %.3f, functions %.1f, %.2f s, converged %.1f"
            print(f"{name}, class_weight={given}: " + text % tuple(np.mean(rows, axis=0)), flush=True)


def stream(tables=("twonorm", "magic", "spambase", "spambase logs")):
    kinds = {
        "RVC": RVC(candidates=100, random_state=0, n_jobs=1, gamma="scale"),
        "columns": SparseBayesClassifier(n_jobs=1),
    }
    for name, (label, model), n_chunks in (
        (t, k, n) for t in tables for k in kinds.items() for n in (10, 100)
    ):
        rows = []
        for seed in range(3):
            X, y, X_test, y_test = split(name.split()[0], seed, 100_000)
            if "logs" in name:
                X, X_test = (np.sign(part) * np.log1p(np.abs(part)) for part in (X, X_test))
            parts, seconds = np.array_split(np.arange(len(y)), n_chunks), 0.0
            for part in parts:
                model, added = timed(model.partial_fit, X[part], y[part], classes=np.unique(y))
                seconds += added
            losses = [log_loss(y_test, model.predict_proba(X_test)), 1.0 - model.score(X_test, y_test)]
            whole = type(model)(**model.get_params())
            if label == "RVC":  # the same centres and kernel, which the first rows determine
                whole.set_params(candidates=model.candidates_, kernel=model.kernel_)
            whole, of_fit = timed(whole.fit, X, y)
            both = [log_loss(y_test, whole.predict_proba(X_test)), 1.0 - whole.score(X_test, y_test)]
            rows.append([*both, of_fit, *losses, seconds])
            model.fit(X[:100], y[:100])  # the next call starts with no rows
        text = "fit %.4f, %.4f, %.2f s; partial_fit %.4f, %.4f, %.2f s"
        print(
            f"{name}, {len(y)} rows, {n_chunks} chunks, {label}: " + text % tuple(np.mean(rows, axis=0)),
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or ("rare", "stream"):
        {"rare": rare, "stream": stream}[name]()
