"""A regression written out in fractions, and counts in 50 digits: slow, and free of rounding."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np


def fractions(array):
    """Return an array's numbers as they are."""
    return np.vectorize(Fraction, otypes=[object])(array)


def inverse(A):
    """Invert a matrix of fractions or decimals (Gauss and Jordan)."""
    n = len(A)
    rows = np.hstack([A, np.eye(n, dtype=int).astype(object)])
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


def certificate_of_counts(Phi, t, active, alpha, mu):
    """Return the largest |ln(new alpha / alpha)| and the largest gain outside of Poisson counts.

    Tipping & Faul (2003), equations 20 and 27 of the problem linearised at the mode (10 to 14), which
    Newton's method finds from ``mu``.
    """
    with localcontext() as context:
        context.prec = 50
        exact = np.vectorize(Decimal, otypes=[object])
        Phi, t, alpha, mu = map(exact, (Phi, t, alpha, mu))
        inside, rest = Phi[:, active], np.delete(Phi, active, axis=1)
        for _ in range(8):
            B = np.array([eta.exp() for eta in inside @ mu])
            Sigma = inverse((inside.T * B) @ inside + np.diag(alpha))
            mu = mu + Sigma @ (inside.T @ (t - B) - alpha * mu)
        S, Q = alpha - alpha**2 * np.diag(Sigma), alpha * mu
        change = alpha / S * (Q**2 / S - 1)
        G = (rest.T * B) @ inside
        S, Q = (rest.T**2) @ B - np.sum(G @ Sigma * G, axis=1), rest.T @ (t - B)
        excess = (Q**2 / S - 1).astype(float)
    gains = np.where(excess > 0.0, 0.5 * (excess - np.log1p(np.maximum(excess, 0.0))), 0.0)
    return np.abs(np.log1p(change.astype(float))).max(), gains.max(initial=0.0)
