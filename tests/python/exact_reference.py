"""A regression written out in fractions: slow, and free of rounding."""

from fractions import Fraction

import numpy as np


def fractions(array):
    """Return an array's numbers as they are."""
    return np.vectorize(Fraction, otypes=[object])(array)


def inverse(A):
    """Invert a matrix of fractions (Gauss and Jordan)."""
    n = len(A)
    rows = np.hstack([A, fractions(np.eye(n))])
    for i in range(n):
        rows[i] /= rows[i, i]
        for j in range(n):
            if j != i:
                rows[j] -= rows[j, i] * rows[i]
    return rows[:, n:]


def log_alpha_change(Phi, t, weights, alpha, beta):
    """Return the largest |ln(new alpha / alpha)| (Tipping & Faul 2003, equations 6 and 20)."""
    Phi, t, weights, alpha = map(fractions, (Phi, t, weights, alpha))
    weighted = Fraction(float(beta)) * weights[:, None] * Phi
    Sigma = inverse(Phi.T @ weighted + np.diag(alpha))
    mu = Sigma @ (weighted.T @ t)
    # S and Q from the posterior; q^2 - s over s^2, times alpha, is the ratio of the precisions.
    S, Q = alpha - alpha**2 * np.diag(Sigma), alpha * mu
    change = alpha / S * (Q**2 / S - 1)
    return np.abs(np.log1p(change.astype(float))).max()
