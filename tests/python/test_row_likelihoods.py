"""The likelihoods in NumPy that certificates are computed from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsebayes._row_likelihoods import ROW_LIKELIHOODS


@pytest.mark.parametrize("name", ROW_LIKELIHOODS)
def test_slope_and_curvature_are_derivatives(name):
    likelihood, h = ROW_LIKELIHOODS[name], 1e-5
    eta, t = (part.ravel() for part in np.meshgrid(np.linspace(-3.0, 3.0, 13), [0.0, 1.0]))
    slope = (likelihood.log_likelihood(eta + h, t) - likelihood.log_likelihood(eta - h, t)) / (2.0 * h)
    curvature = (likelihood.slope(eta - h, t) - likelihood.slope(eta + h, t)) / (2.0 * h)
    assert_allclose(likelihood.slope(eta, t), slope, atol=1e-8)
    assert_allclose(likelihood.curvature(eta, t), curvature, atol=1e-8)
