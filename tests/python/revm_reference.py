"""The relevance eigenvector machines in NumPy, slow and obvious. Imports nothing of the package it checks.

Equations of Kropotov & Vetrov (2007), KV. Everything is done in the space of the M weights, with full
matrices; one-dimensional evidences are integrals, or, where those cannot be taken, sixty-digit arithmetic.
"""

from decimal import Context, Decimal, localcontext
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from reference import laplace_mode, posterior

#: Digits to work with: in the series for the error function as many as 63 cancel.
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
CONTEXT = Context(prec=140, Emax=10**17, Emin=-(10**17))


# --- evidence along one eigenvector ---------------------------------------------------------------


def prior_density(kind, u, alpha):
    """KV (9) and (12)."""
    if kind == "gaussian":
        return np.sqrt(alpha / (2 * np.pi)) * np.exp(-0.5 * alpha * u**2)
    return 0.25 * alpha * np.exp(-0.5 * alpha * np.abs(u))


def evidence_by_quadrature(kind, h, u_ml, alpha):
    """The factor of KV (8), integrated piece by piece with Gauss's formula."""
    reach = 40.0 / np.sqrt(h)
    between = h * u_ml / (h + alpha) + np.array([-8, -1, 1, 8]) / np.sqrt(h + alpha)
    ends = [u_ml - reach, u_ml + reach, 0.0, u_ml, *(s / alpha for s in (-60, -10, -1, 1, 10, 60)), *between]
    ends = np.unique(ends)
    ends = ends[(ends >= u_ml - reach) & (ends <= u_ml + reach)]

    def integrand(u):
        return np.exp(-0.5 * h * (u - u_ml) ** 2) * prior_density(kind, u, alpha)

    nodes, shares = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for a, b in pairwise(ends):
        for left, right in pairwise(np.linspace(a, b, 41)):
            total += (
                0.5 * (right - left) * shares @ integrand(0.5 * (left + right) + 0.5 * (right - left) * nodes)
            )
    return total


def erfcx(x):
    """exp(x^2) erfc(x) of a Decimal: Maclaurin series (A & S 7.1.6), or continued fraction (7.1.14)."""
    if x < -12:
        return 2 * (x * x).exp() - erfcx(-x)
    if x > 12:
        fraction = Decimal(0)
        for k in range(400, 0, -1):
            fraction = (Decimal(k) / 2) / (x + fraction)
        return 1 / ((x + fraction) * PI.sqrt())
    term, total = x, x
    for k in range(1, 2000):
        term *= 2 * x * x / (2 * k + 1)
        total += term
        if abs(term) < Decimal(10) ** -75:
            break
    return (x * x).exp() - 2 / PI.sqrt() * total


def log_evidence_laplace(h, u, alpha):
    """The logarithm of KV (13) as it is printed, in decimal arithmetic."""
    with localcontext(CONTEXT):
        h, u, alpha = Decimal(float(h)), Decimal(float(u)), Decimal(float(alpha))
        root = (h / 2).sqrt()
        terms = erfcx(root * (alpha / (2 * h) - u)) + erfcx(root * (alpha / (2 * h) + u))
        return float((alpha / 4 * (PI / (2 * h)).sqrt() * terms).ln() - h * u * u / 2)


def laplace_moments(h, u_ml, alpha):
    """Mean and variance of one coordinate under likelihood and Laplace prior."""
    grid = np.linspace(-1.0, 1.0, 2_000_001) * (abs(u_ml) + 12.0 / np.sqrt(h))
    p = np.exp(-0.5 * h * (grid - u_ml) ** 2 - 0.5 * alpha * np.abs(grid))
    p /= p.sum()
    mean = p @ grid
    return mean, p @ (grid - mean) ** 2


# --- classification -------------------------------------------------------------------------------


def regularised_mode(Phi, t, precisions, weights):
    """Maximum of the log posterior of labels -1 and 1."""
    return laplace_mode(Phi, (1 + t) / 2, precisions, "bernoulli", weights)[0]


def hessian(Phi, w, weights):
    eta = Phi @ w
    return Phi.T @ np.diag(weights * expit(eta) * expit(-eta)) @ Phi


def ridge_of(Phi, share, weights):
    """``share`` of the mean curvature at w = 0."""
    return share * np.trace(Phi.T @ np.diag(weights) @ Phi) / (4 * Phi.shape[1])


def spectrum(H, w):
    """Eigenvalues, descending, rows of Q, and u = Q w (KV, steps 2 and 3)."""
    h, Q = np.linalg.eigh(H)
    h, Q = np.maximum(h[::-1], 0.0), Q[:, ::-1].T
    return h, Q, Q @ w


def grevm(Phi, t, share, weights):
    """Algorithm 1: h, alpha and the weights."""
    w_ml = regularised_mode(Phi, t, np.full(Phi.shape[1], ridge_of(Phi, share, weights)), weights)
    h, Q, u = spectrum(hessian(Phi, w_ml, weights), w_ml)
    alpha = np.array(
        [hi / (hi * ui**2 - 1) if hi * ui**2 > 1 else np.inf for hi, ui in zip(h, u, strict=True)]
    )
    kept = np.isfinite(alpha)
    # Without the others, which are held at zero.
    u_mp = regularised_mode(Phi @ Q[kept].T, t, alpha[kept], weights)
    return h, alpha, Q[kept].T @ u_mp


def kuhn_tucker(Phi, t, Q, u_ml, alpha, w, weights):
    """Largest violation of the conditions for w inside the octant of u_ML, in units of each alpha / 2."""
    u = Q @ w
    slope = Q @ Phi.T @ (weights * t * expit(-t * (Phi @ w)))
    worst = 0.0
    for i in np.flatnonzero(np.isfinite(alpha)):
        outwards = np.sign(u_ml[i]) * slope[i] - alpha[i] / 2
        inside = abs(u[i]) > 1e-9 * abs(u_ml[i])
        if inside and np.sign(u[i]) != np.sign(u_ml[i]):
            return np.inf
        worst = max(worst, (abs(outwards) if inside else outwards) / (alpha[i] / 2))
    return worst


def equal_eigenvalues(c, share, weight):
    """GREVM on the dictionary c times the identity, where each row is alone: h, alpha, |w| and the ridge."""
    ridge = share * weight * c**2 / 4

    def maximum(precision):
        return brentq(lambda u: weight * c * expit(-c * u) - precision * u, 0.0, 1e6, xtol=1e-13)

    u = maximum(ridge)
    h = weight * c**2 * expit(c * u) * expit(-c * u)
    alpha = h / (h * u**2 - 1) if h * u**2 > 1 else np.inf
    return h, alpha, maximum(alpha) if alpha < np.inf else 0.0, ridge


# --- the variational approximation ----------------------------------------------------------------


def divergence_gradients(Phi, t, ridge, mu, Sigma):
    """Slope of the bound in mu, and Sigma^-1 - ridge - E(-second derivative), by 180-point quadrature."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(180)
    shares = shares / shares.sum()
    slope, curvature = np.zeros(len(t)), np.zeros(len(t))
    for n, phi in enumerate(Phi):
        f = phi @ mu + np.sqrt(phi @ Sigma @ phi) * nodes
        slope[n] = shares @ (t[n] * expit(-t[n] * f))
        curvature[n] = shares @ (expit(f) * expit(-f))
    in_Sigma = np.linalg.inv(Sigma) - ridge * np.eye(len(mu)) - Phi.T @ np.diag(curvature) @ Phi
    return Phi.T @ slope - ridge * mu, in_Sigma


# --- regression -----------------------------------------------------------------------------------


def gaussian_posterior(Phi, t, beta, Q, alpha):
    """Posterior of w with the prior along the rows of Q; directions of infinite precision left out."""
    kept = np.isfinite(alpha)
    mu, S = posterior(Phi @ Q[kept].T, t, alpha[kept], beta)
    return Q[kept].T @ mu, Q[kept].T @ S @ Q[kept]
