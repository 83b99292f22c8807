"""The scorer for scikit-learn's searches: the density of rows left out."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from problems import PAPERS
from sparsebayes import RVC, RVR
from sparsebayes.model_selection import OVERFITTED, density_score


@pytest.fixture(scope="module")
def sinc():
    rng = np.random.default_rng(5)
    X = np.linspace(-10, 10, 100)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(2).permutation(len(y))
    return X[rows[:331]], y[rows[:331]], X[rows[331:]], y[rows[331:]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_density_of_rows_left_out_chooses_well():
    X, y, X_test, y_test = diabetes()
    pipe = make_pipeline(StandardScaler(), RVR(**PAPERS))
    grid = {"rvr__gamma": np.logspace(-4, 1, 6)}
    search = GridSearchCV(pipe, grid, scoring=density_score).fit(X, y)
    assert search.score(X_test, y_test) == density_score(search.best_estimator_, X_test, y_test)
    assert search.best_estimator_.score(X_test, y_test) > 0.4
    # The narrowest has the highest evidence, explains its rows, and predicts nothing.
    narrow = clone(pipe).set_params(rvr__gamma=10.0).fit(X, y)
    assert density_score(narrow, X_test, y_test) == OVERFITTED
    assert narrow[-1].log_marginal_likelihood_ > search.best_estimator_[-1].log_marginal_likelihood_


def test_the_density_is_that_of_the_predictive_distribution(sinc):
    X, y = sinc
    model = RVR(gamma=0.1).fit(X[::2], y[::2])
    mean, std = model.predict(X[1::2], return_std=True)
    expected = norm.logpdf(y[1::2], mean, std).mean()
    assert density_score(model, X[1::2], y[1::2]) == pytest.approx(expected, rel=1e-12)
    both = RVR(gamma=0.1).fit(X[::2], np.column_stack([y, 2.0 * y])[::2])
    assert density_score(both, X, np.column_stack([y, 2.0 * y])) < 2.0 * density_score(model, X, y)
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [0.0, 0.4])]
    classes = RVC(gamma=0.1).fit(X, labels)
    loss = log_loss(labels, classes.predict_proba(X), labels=classes.classes_)
    assert density_score(classes, X, labels) == pytest.approx(-loss, rel=1e-12)
    with pytest.raises(ValueError, match="classes of the training rows"):
        density_score(classes, X, np.full(100, "other"))
    with pytest.raises(ValueError, match="y must have one column"):
        density_score(model, X, np.column_stack([y, y]))
    with pytest.raises(NotFittedError):
        density_score(RVR(gamma="scale"), X, y)
    with pytest.raises(TypeError, match="density_score takes a fitted estimator"):
        density_score(3, X, y)
