"""skpro turns our standard deviations into distributions."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sparsebayes import RVR

client = pytest.importorskip("skpro.regression.adapters.sklearn")
metrics = pytest.importorskip("skpro.metrics")

_RNG = np.random.default_rng(0)
X = pd.DataFrame(_RNG.uniform(-3.0, 3.0, (200, 2)), columns=["a", "b"])
Y = pd.DataFrame({"y": np.sin(X["a"]) + 0.3 * X["b"] + 0.2 * _RNG.normal(size=200)})


@pytest.fixture(scope="module")
def both():
    return client.SklearnProbaReg(RVR()).fit(X[:150], Y[:150]), RVR().fit(X[:150], Y["y"][:150])


def test_distributions_have_our_mean_and_standard_deviation(both):
    theirs, ours = both
    distribution = theirs.predict_proba(X[150:])
    mean, std = ours.predict(X[150:], return_std=True)
    np.testing.assert_allclose(distribution.mean()["y"], mean)
    np.testing.assert_allclose(distribution.var()["y"], std**2)


def test_intervals_are_ours(both):
    theirs, ours = both
    limits = theirs.predict_interval(X[150:], coverage=0.9)
    np.testing.assert_allclose(limits.to_numpy(), np.column_stack(ours.predict_interval(X[150:], 0.9)))


def test_the_log_loss_is_that_of_our_density(both):
    theirs, ours = both
    loss = metrics.LogLoss()(Y[150:], theirs.predict_proba(X[150:]))
    mean, std = ours.predict(X[150:], return_std=True)
    assert np.isclose(loss, -norm.logpdf(Y["y"][150:], mean, std).mean())
