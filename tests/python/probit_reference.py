"""The multinomial probit likelihood in NumPy and SciPy, slow and obvious; nothing of the package is imported.

Psorakis, Damoulas & Girolami (2010): each score f_c has a copy y_c ~ Normal(f_c, 1), and the class is
that of the largest copy.
"""

import numpy as np
from scipy.integrate import quad
from scipy.special import log_ndtr


def log_density(u):
    return -0.5 * u**2 - 0.5 * np.log(2.0 * np.pi)


def differences(scores, label):
    return scores[label] - np.delete(scores, label)


def log_integrand(u, d):
    """Integrand of equation (1), at one or several u."""
    return log_density(u) + log_ndtr(np.add.outer(u, d)).sum(axis=-1)


def mode(d):
    """Mode of the integrand, by bisection: its logarithm is concave."""
    low, high = 0.0, max(0.0, -d.min()) + 12.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        x = middle + d
        slope = -middle + np.exp(log_density(x) - log_ndtr(x)).sum()
        low, high = (middle, high) if slope > 0.0 else (low, middle)
    return 0.5 * (low + high)


def by_quad(scores, label):
    """ln P(t = label | f) and the copies' means, by adaptive quadrature: equations (1), (3), (4)."""
    d = differences(scores, label)
    centre = mode(d)
    highest = log_integrand(centre, d)

    def integral(function):
        sides = [(centre - 10.0, centre), (centre, centre + 10.0)]
        return sum(quad(function, *side, epsabs=1e-13, epsrel=1e-11, limit=400)[0] for side in sides)

    total = integral(lambda u: np.exp(log_integrand(u, d) - highest))

    def lost(k):
        """Expectation of equation (3): phi of class k instead of its Phi, over the integral with Phi."""

        def swapped(u):
            log_hazard = log_density(u + d[k]) - log_ndtr(u + d[k])
            return np.exp(log_integrand(u, d) - highest + log_hazard)

        return integral(swapped) / total

    return highest + np.log(total), means(scores, label, np.array([lost(k) for k in range(len(d))]))


def by_trapezoid(scores, label, n_nodes=2001):
    """The integral on a fine even grid of nodes, in logarithms."""
    d = differences(scores, label)
    u = mode(d) + np.linspace(-10.0, 10.0, n_nodes)
    x = np.add.outer(u, d)
    log_terms = log_integrand(u, d)
    highest = log_terms.max()
    weights = np.exp(log_terms - highest)
    lost = weights @ np.exp(log_density(x) - log_ndtr(x)) / weights.sum()
    return highest + np.log(weights.sum() * (u[1] - u[0])), means(scores, label, lost)


def means(scores, label, lost):
    """Equations (3) and (4)."""
    out = scores.astype(float)
    others = np.arange(len(scores)) != label
    out[others] -= lost
    out[label] -= (out[others] - scores[others]).sum()
    return out
