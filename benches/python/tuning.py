"""The models of Tipping's tables: the papers' with one width, ours by default, and scikit-learn's SVMs.

5-fold cross-validation chooses the width of the first for each set, and all parameters of the SVMs.
"""

import warnings

import numpy as np
from peers import PAPERS
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC, SVR

from sparsebayes import RVC, RVR

#: Multiples of the gamma that belongs to the median distance between rows.
GAMMAS = 2.0 ** np.arange(-5, 4)


def median_gamma(X):
    """1 / d^2, d the median distance between rows (of a few hundred)."""
    rows = X[np.random.default_rng(0).permutation(len(X))[:300]]
    squares = np.sum((rows[:, None] - rows[None]) ** 2, axis=2)
    return 1.0 / np.median(squares[np.triu_indices(len(rows), 1)])


def candidates(benchmark, draw):
    """The papers' model and the SVM, each with its grid."""
    gammas = {"gamma": list(median_gamma(draw.X) * GAMMAS[:: benchmark.every_nth_width])}
    costs = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0]}
    if benchmark.task == "classification":
        ours = RVC(multi_class=benchmark.multi_class, **PAPERS)
        return {"papers": (ours, gammas), "SVM": (SVC(), gammas | costs)}
    spread = np.std(draw.y)
    costs = {"C": [spread * c for c in costs["C"]], "epsilon": [0.03 * spread, 0.1 * spread, 0.3 * spread]}
    return {"papers": (RVR(**PAPERS), gammas), "SVM": (SVR(), gammas | costs)}


def tuned(benchmark, draws):
    """The papers' model and the SVM with the parameters of the best mean score over these draws, and ours."""
    found = {"ours": RVC() if benchmark.task == "classification" else RVR()}
    for name, (estimator, grid) in candidates(benchmark, draws[0]).items():
        searches = [searched(benchmark, estimator, grid, draw, seed) for seed, draw in enumerate(draws)]
        scores = np.mean([search.cv_results_["mean_test_score"] for search in searches], axis=0)
        found[name] = clone(estimator).set_params(**searches[0].cv_results_["params"][int(scores.argmax())])
    return found


def searched(benchmark, estimator, grid, draw, seed):
    """5-fold cross-validation of every point of the grid, on as many rows as it takes at most."""
    rows = np.random.default_rng(seed).permutation(len(draw.y))[: benchmark.tuning_rows]
    folds = StratifiedKFold if benchmark.task == "classification" else KFold
    scoring = "accuracy" if benchmark.task == "classification" else "neg_mean_squared_error"
    splits = folds(5, shuffle=True, random_state=seed)
    search = GridSearchCV(estimator, grid, scoring=scoring, cv=splits, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return search.fit(draw.X[rows], draw.y[rows])
