"""One width per set by 5-fold cross-validation for us, and all parameters of scikit-learn's SVMs."""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

#: Multiples of the gamma that belongs to the median distance between rows.
GAMMAS = 2.0 ** np.arange(-5, 4)
#: Rows that cross-validation takes at most: on the digits it would take an hour otherwise.
MOST_ROWS = 1500


def median_gamma(X):
    """1 / d^2, d the median distance between rows (of a few hundred)."""
    rows = X[np.random.default_rng(0).permutation(len(X))[:300]]
    squares = np.sum((rows[:, None] - rows[None]) ** 2, axis=2)
    return 1.0 / np.median(squares[np.triu_indices(len(rows), 1)])


def candidates(task, draw):
    """Our estimator and the SVM, each with its grid."""
    gammas = {"gamma": list(median_gamma(draw.X) * GAMMAS)}
    costs = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0]}
    if task == "classification":
        return {"ours": (RVC(), gammas), "SVM": (SVC(), gammas | costs)}
    spread = np.std(draw.y)
    costs = {"C": [spread * c for c in costs["C"]], "epsilon": [0.03 * spread, 0.1 * spread, 0.3 * spread]}
    return {"ours": (RVR(), gammas), "SVM": (SVR(), gammas | costs)}


def tuned(task, draw):
    """Our estimator and the SVM with the parameters that cross-validation on this draw prefers."""
    rows = np.random.default_rng(0).permutation(len(draw.y))[:MOST_ROWS]
    folds = StratifiedKFold if task == "classification" else KFold
    scoring = "accuracy" if task == "classification" else "neg_mean_squared_error"
    found = {}
    for name, (estimator, grid) in candidates(task, draw).items():
        search = GridSearchCV(
            estimator, grid, scoring=scoring, cv=folds(5, shuffle=True, random_state=0), refit=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            search.fit(draw.X[rows], draw.y[rows])
        found[name] = clone(estimator).set_params(**search.best_params_)
    return found
