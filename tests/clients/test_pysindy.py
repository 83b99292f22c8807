"""pysindy finds the equations of the Lorenz system."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import SparseBayesRegressor

client = pytest.importorskip("pysindy")

STEP = 0.002
TERMS = {
    "x": {"x": -10.0, "y": 10.0},
    "y": {"x": 28.0, "y": -1.0, "x z": -1.0},
    "z": {"z": -8 / 3, "x y": 1.0},
}


def lorenz(_, u):
    x, y, z = u
    return [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]


@pytest.fixture(scope="module")
def states():
    times = np.arange(0.0, 10.0, STEP)
    return solve_ivp(lorenz, (0.0, 10.0), [-8.0, 8.0, 27.0], t_eval=times, rtol=1e-12, atol=1e-12).y.T


def equations(optimizer, states, degree=2, differentiation=None, **data):
    library = client.PolynomialLibrary(degree)
    model = client.SINDy(optimizer, feature_library=library, differentiation_method=differentiation)
    return model.fit(states, t=STEP, feature_names=["x", "y", "z"], **data)


def terms(model):
    names, rows = model.get_feature_names(), model.coefficients()
    return {
        name: {names[j]: row[j] for j in np.flatnonzero(row)} for name, row in zip("xyz", rows, strict=True)
    }


def one_by_one():
    """Return an optimizer of each equation alone: our outputs share their functions otherwise."""
    return client.WrappedOptimizer(SparseBayesRegressor(fit_intercept=False))


@pytest.mark.parametrize("degree", [2, 5])
def test_the_seven_terms_are_found_in_noisy_states(states, degree):
    noisy = states + 0.1 * np.random.default_rng(0).normal(size=states.shape)
    model = equations(one_by_one(), noisy, degree, client.SmoothedFiniteDifference())
    found = terms(model)
    assert {name: set(own) for name, own in found.items()} == {name: set(own) for name, own in TERMS.items()}
    for name, own in TERMS.items():
        for term, value in own.items():
            assert abs(found[name][term] - value) < max(0.05 * abs(value), 0.2)
    assert model.complexity == 7


def test_the_seven_terms_and_at_most_two_more_are_found_without_noise(states):
    with pytest.warns(ConvergenceWarning, match="noise_floor"):
        found = terms(equations(one_by_one(), states))
    assert sum(map(len, found.values())) <= 9
    for name, own in TERMS.items():
        assert all(abs(found[name].pop(term) - value) < 0.01 for term, value in own.items())
        assert all(abs(value) < 1e-3 for value in found[name].values())
