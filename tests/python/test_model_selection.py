"""Scorers for scikit-learn's searches: the density of rows left out, and the evidence."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVC, RVR, GREVMRegressor
from sparsebayes.kernels import Gaussian
from sparsebayes.model_selection import OVERFITTED, AllRows, density_score, evidence_score

WIDTHS = [0.3, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0]


@pytest.fixture(scope="module")
def sinc():
    rng = np.random.default_rng(5)
    X = np.linspace(-10, 10, 100)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=100)


def test_the_width_of_most_evidence_is_chosen_by_one_fit_each(sinc):
    kernels = [Gaussian(width) for width in WIDTHS]
    search = GridSearchCV(RVR(), {"kernel": kernels}, scoring=evidence_score, cv=AllRows()).fit(*sinc)
    evidences = [RVR(kernel).fit(*sinc).log_marginal_likelihood_ for kernel in kernels]
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], evidences)
    assert search.best_params_["kernel"] == kernels[int(np.argmax(evidences))]
    # Neither end of the grid: the choice is one.
    assert 0 < search.best_index_ < len(WIDTHS) - 1
    assert search.n_splits_ == 1
    assert evidence_score(search.best_estimator_) == max(evidences)


def test_it_works_through_pipelines(sinc):
    pipe = make_pipeline(StandardScaler(), RVR())
    grid = {"rvr__gamma": [0.01, 1.0, 5.0, 500.0]}
    search = GridSearchCV(pipe, grid, scoring=evidence_score, cv=AllRows()).fit(*sinc)
    evidences = [
        clone(pipe).set_params(rvr__gamma=g).fit(*sinc)[-1].log_marginal_likelihood_
        for g in grid["rvr__gamma"]
    ]
    assert search.best_params_["rvr__gamma"] == grid["rvr__gamma"][int(np.argmax(evidences))]
    assert search.best_score_ == max(evidences)
    assert evidence_score(make_pipeline(pipe).fit(*sinc)) == evidence_score(clone(pipe).fit(*sinc))


def test_classes_and_outputs_are_summed(sinc):
    X, y = sinc
    labels = np.digitize(y, [0.0, 0.4])
    several = RVC(gamma=0.1).fit(X, labels)
    each = [RVC(gamma=0.1).fit(X, labels == c).log_marginal_likelihood_ for c in range(3)]
    assert evidence_score(several) == pytest.approx(sum(each), rel=1e-8)
    assert isinstance(evidence_score(RVR(gamma=0.1).fit(X, np.column_stack([y, y**2]))), float)


def test_what_has_no_evidence_is_refused(sinc):
    with pytest.raises(NotFittedError):
        evidence_score(RVR())
    with pytest.raises(TypeError, match="LinearRegression does not have: use cross-validation"):
        evidence_score(LinearRegression().fit(*sinc))
    with pytest.raises(TypeError, match="GREVMRegressor does not have"):
        evidence_score(GREVMRegressor().fit(*sinc))
    with pytest.raises(TypeError, match="estimator of this package, got int"):
        evidence_score(3)


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(2).permutation(len(y))
    return X[rows[:331]], y[rows[:331]], X[rows[331:]], y[rows[331:]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_density_of_rows_left_out_chooses_well():
    X, y, X_test, y_test = diabetes()
    pipe = make_pipeline(StandardScaler(), RVR())
    grid = {"rvr__gamma": np.logspace(-4, 1, 6)}
    search = GridSearchCV(pipe, grid, scoring=density_score).fit(X, y)
    assert search.score(X_test, y_test) == density_score(search.best_estimator_, X_test, y_test)
    assert search.best_estimator_.score(X_test, y_test) > 0.4
    # The narrowest has the highest evidence, explains its rows, and predicts nothing.
    narrow = clone(pipe).set_params(rvr__gamma=10.0).fit(X, y)
    assert density_score(narrow, X_test, y_test) == OVERFITTED
    with pytest.warns(UserWarning, match="noise at the floor|effective parameters for 331 rows"):
        assert evidence_score(narrow) > evidence_score(search.best_estimator_)


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
    with pytest.raises(ValueError, match="y must have the shape"):
        density_score(model, X, np.column_stack([y, y]))
    with pytest.raises(NotFittedError):
        density_score(RVR(), X, y)
    with pytest.raises(TypeError, match="density_score takes a fitted estimator"):
        density_score(3, X, y)


def test_all_rows_are_both_halves():
    ((train, test),) = AllRows().split(np.zeros((4, 2)))
    np.testing.assert_array_equal(train, [0, 1, 2, 3])
    np.testing.assert_array_equal(test, train)
    assert repr(AllRows()) == "AllRows()"
