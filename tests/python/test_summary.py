"""``summary()``: one screen about a fitted model, as text and as HTML."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, r2_score

from problems import ESTIMATORS
from sparsebayes import (
    RVC,
    RVR,
    OverfitWarning,
    SparseBayesClassifier,
    SparseBayesRegressor,
    SufficientStatistics,
)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 3)), columns=["age", "size <cm>", "noise"])
    return X, np.sin(X["age"]) + X["size <cm>"] + 0.2 * rng.normal(size=80)


def test_it_tells_rows_functions_inputs_noise_and_status(table):
    X, y = table
    model = RVR(gamma="ard").fit(X, y)
    summary = model.summary()
    assert summary.title == f"RVR on 80 rows of 3 inputs: {np.sum(model.active_ >= 0)} of 80 functions"
    assert summary.lines["kernel"] == "rbf, a width for each input, learned"
    assert summary.lines["inputs"].startswith("size <cm> 1, age 0.")
    assert summary.lines["noise"] == f"{np.sqrt(model.noise_variance_):.4g} (standard deviation)"
    assert summary.lines["log evidence"] == f"{model.log_marginal_likelihood_:.6g}"
    assert summary.lines["status"] == "converged"
    assert "advice" not in summary.lines
    text, html = str(summary), summary._repr_html_()
    assert repr(summary) == text
    assert len(text.splitlines()) < 15
    assert max(map(len, text.splitlines())) <= 100
    assert "size &lt;cm&gt; 1" in html
    assert html.count("<tr>") == len(summary.lines)


def test_its_scores_are_those_of_the_left_out_rows(table):
    X, y = table
    model = SparseBayesRegressor(penalize_intercept=False).fit(X, y)
    # The residual of a left-out row by its leverage, with the hyperparameters as fitted.
    Phi = np.column_stack([np.ones(80), X.to_numpy() - model.X_offset_])[:, model.active_ + 1]
    leverage = model.beta_ * np.sum(Phi @ model.sigma_ * Phi, axis=1)
    score = r2_score(y, y - (y - model.predict(X)) / (1.0 - leverage))
    line = model.summary().lines["leave-one-out"]
    assert f"R^2 {score:.4g}, log density {model.loo_.mean():.4g}" in line
    assert f"95 % intervals hold {100 * model.loo_coverage_:.1f} % of the rows" in line


def test_classes_have_error_and_log_loss(table):
    X, y = table
    model = RVC(gamma="scale").fit(X, y > 0.0)
    line = model.summary().lines["leave-one-out"]
    assert f"log loss {-model.loo_.mean():.4g} (the shares" in line
    assert -model.loo_.mean() > log_loss(y > 0.0, model.predict_proba(X))


@pytest.mark.parametrize("kind", [RVC, SparseBayesClassifier])
def test_scores_of_classes_are_beside_those_of_their_shares(kind, table):
    X, _ = table
    y = np.where(X["age"] + X["noise"] > 1.5, "rare", "<usual>")
    share = np.mean(y == "rare")
    summary = kind().fit(X, y).summary()
    assert (
        summary.lines["classes"]
        == f"<usual>: {100 - 100 * share:.3g} %, rare: {100 * share:.3g} % of the rows"
    )
    loss = log_loss(y, np.tile([1 - share, share], (80, 1)))
    alone = f"(the shares of the classes alone: {100 * share:.1f} %, {loss:.4g})"
    assert summary.lines["leave-one-out"].endswith(alone)
    assert alone in " ".join(str(summary).split())
    assert "&lt;usual&gt;" in summary._repr_html_()
    assert alone in summary._repr_html_()
    balanced = kind(class_weight="balanced").fit(X, y).summary().lines
    assert balanced["classes"] == "<usual>: 50 %, rare: 50 % of the rows, weighted by class_weight"
    assert balanced["leave-one-out"].endswith("(the shares of the classes alone: 50.0 %, 0.6931)")


@pytest.mark.parametrize(
    ("model", "later"),
    [
        (RVR(gamma=0.5), {"gamma": 50.0, "kernel": "laplacian"}),
        (RVR(gamma="ard"), {"gamma": "scale"}),
        (RVR(gamma="scale", extra_basis="auto"), {"extra_basis": None, "optimize_kernel": True}),
        (RVC(gamma="scale"), {"class_weight": "balanced"}),
    ],
)
def test_parameters_that_are_set_later_do_not_change_it(model, later, table):
    X, y = table
    before = str(model.fit(X, y > 0.0).summary())
    assert str(pickle.loads(pickle.dumps(model.set_params(**later))).summary()) == before


def test_a_warning_is_advice(table):
    X, y = table
    with pytest.warns(OverfitWarning) as caught:
        model = RVR(gamma=100.0, complexity="none").fit(X, y)
    assert model.summary().lines["advice"] == str(caught[0].message)
    assert "Make it wider" in str(model.summary())


def test_outputs_and_sums_have_one_too(table):
    X, y = table
    lines = RVR(gamma="scale").fit(X, np.column_stack([y, 2.0 * y])).summary().lines
    assert lines["noise"].count(",") == 1
    assert lines["leave-one-out"].count(",") == 3
    stats = SufficientStatistics(3).update(X, y)
    summary = SparseBayesRegressor().fit_statistics(stats).summary()
    assert "leave-one-out" not in summary.lines
    assert summary.title == "SparseBayesRegressor on 80 rows of 3 inputs: 2 of 3 columns"


@pytest.mark.parametrize("kind", ESTIMATORS.values())
def test_all_estimators_have_one(kind, table):
    X, y = table
    model = kind()
    with pytest.raises(NotFittedError):
        model.summary()
    labels = hasattr(model, "predict_proba")
    text = str(model.fit(X, y > 0.0 if labels else y).summary())
    assert text.startswith(f"{kind.__name__} on 80 rows of 3 inputs: ")
    assert "\nstatus        converged" in text
