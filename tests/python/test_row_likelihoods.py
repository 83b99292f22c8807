"""The likelihoods in NumPy that certificates are computed from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from sparsebayes._row_likelihoods import ROW_LIKELIHOODS, row_likelihood


@pytest.mark.parametrize("name", ROW_LIKELIHOODS)
def test_slope_and_curvature_are_derivatives(name):
    likelihood, h = ROW_LIKELIHOODS[name], 1e-5
    eta, t = (part.ravel() for part in np.meshgrid(np.linspace(-3.0, 3.0, 13), [0.0, 1.0]))
    slope = (likelihood.log_likelihood(eta + h, t) - likelihood.log_likelihood(eta - h, t)) / (2.0 * h)
    curvature = (likelihood.slope(eta - h, t) - likelihood.slope(eta + h, t)) / (2.0 * h)
    assert_allclose(likelihood.slope(eta, t), slope, atol=1e-8)
    assert_allclose(likelihood.curvature(eta, t), curvature, atol=1e-8)


DISTRIBUTIONS = {
    "poisson": lambda eta, _: stats.poisson(np.exp(eta)),
    "negative_binomial": lambda eta, d: stats.nbinom(1.0 / d, 1.0 / (1.0 + d * np.exp(eta))),
    "gamma": lambda eta, d: stats.gamma(1.0 / d, scale=d * np.exp(eta)),
    "student_t": lambda eta, freedom: stats.t(freedom, eta, 0.2),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("poisson", None),
        *(("negative_binomial", d) for d in (0.01, 2.0)),
        *(("gamma", d) for d in (1e-3, 3.0)),
        *(("student_t", freedom) for freedom in (2.1, 30.0)),
    ],
)
@pytest.mark.parametrize("std", [0.0, 1e-6, 0.1, 1.0, 10.0])
def test_mean_densities_and_distributions_at_any_certainty_of_the_linear_predictor(name, shape, std):
    row = row_likelihood(name, shape, 0.2**2)
    for mean in (-2.0, 3.0):
        z = np.linspace(-9.0, 9.0, 200_001)
        given = DISTRIBUTIONS[name](mean + std * z, shape)
        weights = np.exp(-0.5 * z**2)
        weights /= weights.sum()
        targets = DISTRIBUTIONS[name](mean + std * np.array([-1.0, 0.0, 1.0]), shape).median()
        moments = np.full(3, mean), np.full(3, std**2)
        density = given.pmf if hasattr(given.dist, "pmf") else given.pdf
        with np.errstate(divide="ignore"):  # in old versions of SciPy
            expected = [np.log(weights @ density(t)) for t in targets]
        assert_allclose(row.log_mean_likelihood(targets, *moments), expected, atol=2e-4)
        _, up_to = row.targets.distribution(*moments, targets)
        assert_allclose(up_to, [weights @ given.cdf(t) for t in targets], atol=2e-5)
        # A count is a quantile of each probability above that of all smaller counts.
        assert_allclose(row.targets.quantile(*moments, up_to - 1e-9), targets, rtol=1e-4)


@pytest.mark.parametrize(("name", "shape"), [("poisson", None), ("negative_binomial", 0.5)])
@pytest.mark.parametrize("p", [1e-4, 0.025, 0.5, 0.975])
def test_quantiles_of_counts_are_the_smallest_that_reach_the_probability(name, shape, p):
    targets = row_likelihood(name, shape).targets
    mean, variance = (
        part.ravel() for part in np.meshgrid(np.linspace(-8.0, 20.0, 15), [0.0, 1e-4, 0.3, 9.0])
    )
    k = targets.quantile(mean, variance, p)
    below, up_to = targets.distribution(mean, variance, k)
    at_most = np.maximum(1.0, 1e-12 * k)
    assert (up_to >= p).all()
    assert (k == np.round(k)).all()
    assert ((below < p) | (targets.distribution(mean, variance, k - at_most)[1] < p)).all()
