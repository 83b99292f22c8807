"""Fits of so many rows that the way to a first model takes the curvature from some of them."""

import numpy as np

from problems import assert_certified
from sparsebayes import RVR

#: One row in 16 has to make 2^14, and one pool holds 512 candidates.
ROWS, CANDIDATES = 1 << 18, 520


def test_a_model_that_some_rows_led_to_is_certified_on_all():
    rng = np.random.default_rng(0)
    # Sorted, so that rows next to one another are alike.
    X = np.sort(rng.uniform(-10, 10, ROWS))[:, None]
    truth = np.sinc(X[:, 0] / np.pi)
    y = truth + 0.1 * rng.normal(size=ROWS)
    model = RVR(gamma=0.1, candidates=CANDIDATES, random_state=0).fit(X, y)
    assert_certified(model, X, y)
    assert abs(model.noise_variance_ / 0.01 - 1.0) < 0.01
    assert np.sqrt(np.mean((model.predict(X[::64]) - truth[::64]) ** 2)) < 0.003
