"""Ten-fold cross-validations for `bench_mrvm.py`, in processes of one thread each; finished ones are kept.

A task is one set, one method and one seed of the folds.
"""

import time
import warnings
from dataclasses import asdict, dataclass

import kept
import numpy as np
import sets2010
from peers import PAPERS
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from sparsebayes import MRVM1, MRVM2, RVC

#: Folds of the searches for the parameters of the peers.
INNER = KFold(5, shuffle=True, random_state=0)
NEIGHBOURS = (1, 3, 5, 7, 9, 13, 17, 25)
SVC_C = tuple(10.0**k for k in range(-1, 4))
#: Times the 1 / D of table I.
SVC_GAMMA = tuple(10.0**k for k in (-2, -1.5, -1, -0.5, 0, 0.5))

MACHINES = ("conv1", "conv2", "convA", "convN")
DENSE = "E-M"
PEERS = ("KNN", "SVC", "RVC")


@dataclass(frozen=True)
class Task:
    set_name: str
    method: str
    seed: int
    n_folds: int


def model(method, arguments, n_inputs):
    """An unfitted estimator: ours without a bias, as the paper's."""
    if method in ("conv1", "conv2"):
        return MRVM1(**arguments, fit_intercept=False, convergence=method, n_jobs=1)
    if method in ("convA", "convN"):
        return MRVM2(**arguments, fit_intercept=False, convergence=method, n_jobs=1)
    if method == DENSE:
        return MRVM2(**arguments, fit_intercept=False, prune=False, n_jobs=1)
    if method == "RVC":
        return RVC(**arguments, multi_class="softmax", n_jobs=1, **PAPERS)
    if method == "KNN":
        return GridSearchCV(KNeighborsClassifier(), {"n_neighbors": NEIGHBOURS}, cv=INNER)
    grid = {"C": SVC_C, "gamma": [factor / n_inputs for factor in SVC_GAMMA]}
    return GridSearchCV(SVC(), grid, cv=INNER)


def n_vectors(fitted):
    """Training rows that predictions consult."""
    fitted = getattr(fitted, "best_estimator_", fitted)
    if isinstance(fitted, KNeighborsClassifier):
        return fitted.n_samples_fit_
    return len(fitted.support_ if isinstance(fitted, SVC) else fitted.relevance_)


def measure(task):
    """Accuracies in per cent and vectors, fold by fold; inputs standardised on the training rows."""
    data = next(one for one in sets2010.SETS if one.name == task.set_name)
    X, y = data.load()
    started = time.perf_counter()
    accuracies, vectors, rows, statuses = [], [], [], []
    folds = KFold(task.n_folds, shuffle=True, random_state=task.seed)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # how a fit ended is in its status
        for train, test in folds.split(X):
            scaler = StandardScaler().fit(X[train])
            fitted = model(task.method, data.kernel_arguments(X.shape[1]), X.shape[1])
            fitted.fit(scaler.transform(X[train]), y[train])
            accuracies.append(100.0 * float(np.mean(fitted.predict(scaler.transform(X[test])) == y[test])))
            vectors.append(int(n_vectors(fitted)))
            rows.append(len(train))
            statuses.append(getattr(fitted, "status_", "converged"))
    return {
        **asdict(task),
        "accuracies": accuracies,
        "vectors": vectors,
        "rows": rows,
        "statuses": statuses,
        "seconds": time.perf_counter() - started,
    }


def measure_all(tasks, path, processes):
    """Results by task; those in the file are taken from there, new ones added to it."""
    return kept.measure_all(tasks, measure, path, processes)
