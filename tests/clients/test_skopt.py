"""scikit-optimize minimises with our error bars, and searches our parameters."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

from sparsebayes import RVR

client = pytest.importorskip("skopt")
optimizer = pytest.importorskip("skopt.optimizer")

BOX = [(-3.0, 3.0), (-3.0, 3.0)]

# Few rows without noise, as always in such a search.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sparsebayes.OverfitWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def bowl(x):
    return (x[0] - 1.0) ** 2 + 0.1 * x[1] ** 2


def minimum(estimator, **options):
    # With n_calls=10 only random points are tried.
    return optimizer.base_minimize(
        bowl, BOX, estimator, n_calls=30, n_initial_points=10, random_state=0, **options
    )


@pytest.mark.parametrize("acquisition", ["EI", "LCB", "PI"])
def test_a_minimum_is_found_with_our_error_bars(acquisition):
    found = minimum(RVR(), acq_func=acquisition, acq_optimizer="sampling")
    assert found.fun < 0.01 < min(found.func_vals[:10])


@pytest.mark.parametrize("estimator", [RVR(), GaussianProcessRegressor()], ids=repr)
def test_gradients_are_asked_of_every_estimator(estimator):
    # scikit-learn's estimators fail in the same way; therefore acq_optimizer="sampling" above.
    with pytest.raises(TypeError, match="return_mean_grad"):
        minimum(estimator, acq_func="EI")


def test_a_search_finds_a_good_width():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (150, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=150)
    search = client.BayesSearchCV(
        RVR(), {"gamma": (1e-3, 1e3, "log-uniform")}, n_iter=12, random_state=0, cv=3
    )
    assert search.fit(X, y).best_score_ > 0.9
    assert 0.01 < search.best_params_["gamma"] < 2.0
