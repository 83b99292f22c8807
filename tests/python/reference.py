"""Slow, obvious, dense: the formulas of the papers in NumPy. Imports nothing of the package it checks.

Notation of Tipping & Faul (2003), TF below, and Tipping (2001), T below: ``Phi`` the dictionary, N x K;
``active`` the columns in the model, ``alpha`` the precisions of their weights, ``beta`` that of the noise. A
weight w_n means that row n counts w_n times: its noise precision is beta w_n, and where rows are counted N is
sum(w).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, gammaln


class Fit(NamedTuple):
    active: np.ndarray
    alpha: np.ndarray
    beta: float
    mu: np.ndarray
    log_evidence: float
    n_iter: int
    converged: bool


class Factors(NamedTuple):
    """For all K functions: s and q with the function left out (TF 19), and S, Q (TF 22)."""

    s: np.ndarray
    q: np.ndarray
    S: np.ndarray
    Q: np.ndarray


# --- Gaussian likelihood --------------------------------------------------------------------------


def covariance(Phi_active, alpha, beta, weights=None):
    """C = B^-1 + Phi A^-1 Phi^T (TF 8); rows of zero weight must not be there."""
    n_rows = len(Phi_active)
    weights = np.ones(n_rows) if weights is None else weights
    return np.diag(1.0 / (beta * weights)) + (Phi_active / alpha) @ Phi_active.T


def log_evidence(Phi_active, t, alpha, beta, weights=None):
    """Log marginal likelihood (TF 7), in nats.

    C holds the weights, so that ln|C| counts each row once, with precision beta w_n; the last terms make it
    w_n rows of precision beta.
    """
    w = np.ones(len(t)) if weights is None else weights
    C = covariance(Phi_active, alpha, beta, weights)
    density = -0.5 * (len(t) * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t))
    return density + 0.5 * (w.sum() - len(t)) * np.log(beta / (2 * np.pi)) - 0.5 * np.log(w).sum()


def posterior(Phi_active, t, alpha, beta, weights=None):
    """Mean and covariance of the weights (TF 6)."""
    w = np.ones(len(t)) if weights is None else weights
    Sigma = np.linalg.inv(np.diag(alpha) + beta * Phi_active.T @ (w[:, np.newaxis] * Phi_active))
    return beta * Sigma @ Phi_active.T @ (w * t), Sigma


def leave_out(S, Q, active, alpha):
    """From S, Q to s, q (TF 23)."""
    s, q = S.copy(), Q.copy()
    s[active] = alpha * S[active] / (alpha - S[active])
    q[active] = alpha * Q[active] / (alpha - S[active])
    return Factors(s, q, S, Q)


def statistics(Phi, t, active, alpha, beta, weights=None):
    """S, Q (TF 22) and s, q (TF 23) of the whole dictionary."""
    C = cho_factor(covariance(Phi[:, active], alpha, beta, weights))
    S = np.sum(Phi * cho_solve(C, Phi), axis=0)
    Q = Phi.T @ cho_solve(C, t)
    return leave_out(S, Q, active, alpha)


def noise_precision(Phi_active, t, alpha, beta, weights=None):
    """The fixed point of TF step 9: (N - sum of gamma) / |t - Phi mu|^2."""
    w = np.ones(len(t)) if weights is None else weights
    mu, Sigma = posterior(Phi_active, t, alpha, beta, weights)
    n_determined = np.sum(1.0 - alpha * np.diag(Sigma))
    return (w.sum() - n_determined) / np.sum(w * (t - Phi_active @ mu) ** 2)


def mackay_step(Phi, t, alpha, beta, weights=None, *, alpha_prior=(0.0, 0.0), noise_prior=(0.0, 0.0)):
    """MacKay's update of all alphas and beta, with Gamma priors (T section 2.3, appendix A)."""
    w = np.ones(len(t)) if weights is None else weights
    (a, b), (c, d) = alpha_prior, noise_prior
    mu, Sigma = posterior(Phi, t, alpha, beta, weights)
    gamma = 1.0 - alpha * np.diag(Sigma)
    square = np.sum(w * (t - Phi @ mu) ** 2)
    new_beta = (w.sum() - gamma.sum() + 2.0 * c) / (square + 2.0 * d)
    return (gamma + 2.0 * a) / (mu**2 + 2.0 * b), new_beta


def em_step(Phi, t, alpha, beta, weights=None, *, alpha_prior=(0.0, 0.0), noise_prior=(0.0, 0.0)):
    """The EM update of all alphas and beta, with Gamma priors (T appendix A)."""
    w = np.ones(len(t)) if weights is None else weights
    (a, b), (c, d) = alpha_prior, noise_prior
    mu, Sigma = posterior(Phi, t, alpha, beta, weights)
    # The expectation of |t - Phi w|^2 under the posterior.
    square = np.sum(w * (t - Phi @ mu) ** 2) + np.sum(w * np.sum(Phi @ Sigma * Phi, axis=1))
    return (1.0 + 2.0 * a) / (mu**2 + np.diag(Sigma) + 2.0 * b), (w.sum() + 2.0 * c) / (square + 2.0 * d)


def predict(phi, mu, Sigma, beta):
    """Mean and variance of new targets (T 21, 22)."""
    return phi @ mu, 1.0 / beta + np.sum(phi @ Sigma * phi, axis=1)


# --- likelihoods with a mode: Bernoulli with the logistic link, Poisson with the log link ----------


def log_likelihood(likelihood, eta, t, weights):
    """Log of p(t given eta), each row ``weights`` times."""
    if likelihood == "bernoulli":
        terms = -t * np.logaddexp(0.0, -eta) - (1.0 - t) * np.logaddexp(0.0, eta)
    else:
        with np.errstate(over="ignore"):
            terms = t * eta - np.exp(eta) - gammaln(t + 1.0)
    return np.sum(weights * terms)


def slope_and_curvature(likelihood, eta, t, weights):
    """First derivative of the log likelihood in eta, and B, the second with its sign changed (TF 11)."""
    if likelihood == "bernoulli":
        slope = t * expit(-eta) - (1.0 - t) * expit(eta)
        return weights * slope, weights * expit(eta) * expit(-eta)
    return weights * (t - np.exp(eta)), weights * np.exp(eta)


def newton(height, derivatives, size):
    """Maximum of a concave function and its inverse negative Hessian; steps that overshoot are halved.

    ``derivatives`` returns the gradient and the negative Hessian.
    """
    x = np.zeros(size)
    for _ in range(1000):
        gradient, H = derivatives(x)
        # Scaled to a unit diagonal: the precisions may be many decades apart.
        scale = 1.0 / np.sqrt(np.diag(H))
        step = scale * np.linalg.solve(scale[:, np.newaxis] * H * scale, scale * gradient)
        decrement, length = gradient @ step, 1.0
        while decrement > 1e-8 and height(x + length * step) <= height(x):
            length /= 2
        x = x + length * step
        if decrement < 1e-22:
            break
    return x, np.linalg.inv(derivatives(x)[1])


def laplace_mode(Phi_active, t, alpha, likelihood="bernoulli", weights=None, prior_mean=0.0):
    """Mode and covariance of the Laplace approximation (TF 10, 12)."""
    w = np.ones(len(t)) if weights is None else weights

    def height(mu):
        distance = 0.5 * np.sum(alpha * (mu - prior_mean) ** 2)
        return log_likelihood(likelihood, Phi_active @ mu, t, w) - distance

    def derivatives(mu):
        slope, B = slope_and_curvature(likelihood, Phi_active @ mu, t, w)
        H = np.diag(alpha) + Phi_active.T @ (B[:, np.newaxis] * Phi_active)
        return Phi_active.T @ slope - alpha * (mu - prior_mean), H

    return newton(height, derivatives, Phi_active.shape[1])


def laplace_log_evidence(Phi_active, t, alpha, likelihood="bernoulli", weights=None):
    """Laplace approximation of the log marginal likelihood (T, section 3)."""
    w = np.ones(len(t)) if weights is None else weights
    mu, Sigma = laplace_mode(Phi_active, t, alpha, likelihood, weights)
    prior = 0.5 * np.sum(np.log(alpha)) - 0.5 * np.sum(alpha * mu**2)
    return log_likelihood(likelihood, Phi_active @ mu, t, w) + prior + 0.5 * np.linalg.slogdet(Sigma)[1]


def laplace_statistics(Phi, t, active, alpha, likelihood="bernoulli", weights=None):
    """S, Q, s, q from the linearised problem at the mode: t-hat and C of TF 14, 23 to 25.

    C^-1 = B^1/2 (1 + B^1/2 Phi A^-1 Phi^T B^1/2)^-1 B^1/2 does not divide by B; and C^-1 t-hat is the slope
    of the log likelihood at the mode, so that Q needs no t-hat.
    """
    w = np.ones(len(t)) if weights is None else weights
    mu, _ = laplace_mode(Phi[:, active], t, alpha, likelihood, weights)
    slope, B = slope_and_curvature(likelihood, Phi[:, active] @ mu, t, w)
    root = np.sqrt(B)[:, np.newaxis] * Phi
    inner = cho_factor(np.eye(len(t)) + (root[:, active] / alpha) @ root[:, active].T)
    return leave_out(np.sum(root * cho_solve(inner, root), axis=0), Phi.T @ slope, active, alpha)


def moderated_probability(phi, mu, Sigma):
    """MacKay's sigmoid(kappa eta), kappa = (1 + pi v / 8)^-1/2, with v the variance of eta."""
    variance = np.sum(phi @ Sigma * phi, axis=1)
    return expit(phi @ mu / np.sqrt(1.0 + np.pi * variance / 8.0))


# --- the sequential scheme: TF section 4, one function at a time ----------------------------------


def contribution(alpha, s, q):
    """Contribution l(alpha) of one function to the log evidence, TF 18; 0 where alpha is infinite."""
    alpha = np.asarray(alpha, dtype=float)
    inside = np.isfinite(alpha)
    a = np.where(inside, alpha, 1.0)
    return np.where(inside, 0.5 * (np.log(a) - np.log(a + s) + q**2 / (a + s)), 0.0)


def best_alpha(s, q):
    """The maximum of l(alpha) (TF 20, 21)."""
    excess = q**2 - s
    return np.where(excess > 0.0, s**2 / np.where(excess > 0.0, excess, 1.0), np.inf)


def maximise(factors, n_basis, start, tol, max_iter=100_000):
    """TF steps 4 to 11 at fixed noise, by largest gain; ``factors(active, alpha)`` are the statistics.

    ``start``: alpha of all K functions. Returns that of the end, the number of steps, whether it converged.
    """
    alpha = start.copy()
    for iteration in range(max_iter):
        active = np.flatnonzero(np.isfinite(alpha))
        s, q, S, _ = factors(active, alpha[active])
        # A zero column, or one that depends on active columns to the last digit, gains nothing.
        usable = np.isfinite(alpha) | (S > 0.0)
        s, q = np.where(usable, s, 1.0), np.where(usable, q, 0.0)
        target = best_alpha(s, q)
        gain = contribution(target, s, q) - contribution(alpha, s, q)
        both = np.isfinite(alpha) & np.isfinite(target)
        change = np.abs(np.log(np.where(both, target, 1.0) / np.where(both, alpha, 1.0)))
        due = np.where(both, change > tol, np.isfinite(alpha) | (np.isfinite(target) & (gain > 1e-9)))
        if not due.any():
            return alpha, iteration, True
        # Gains of the order of rounding cannot be ranked: take the largest change.
        rank = np.where(due, gain, -np.inf)
        best = np.argmax(rank) if rank.max() > 1e-10 else np.argmax(np.where(due & both, change, -1.0))
        alpha[best] = target[best]
    return alpha, max_iter, False


def first_function(Phi, t, variance, weights=None):
    """Alpha of all functions with only the one of largest normalised projection in (TF step 2)."""
    w = np.ones(len(t)) if weights is None else weights
    norm2 = np.sum(w[:, np.newaxis] * Phi**2, axis=0)
    projection2 = np.where(norm2 > 0.0, (Phi.T @ (w * t)) ** 2 / np.where(norm2 > 0.0, norm2, 1.0), 0.0)
    best = np.argmax(projection2)
    alpha = np.full(Phi.shape[1], np.inf)
    if projection2[best] > variance:
        alpha[best] = norm2[best] / (projection2[best] - variance)
    return alpha


def fit_regression(Phi, t, noise_variance=None, tol=1e-6, weights=None):
    """Fit at noise var(t)/10 until nothing gains, then re-estimate the noise, and repeat.

    The noise variance is at least var(t)/1e6.
    """
    w = np.ones(len(t)) if weights is None else weights
    variance = np.average((t - np.average(t, weights=w)) ** 2, weights=w)
    beta = 10.0 / variance if noise_variance is None else 1.0 / noise_variance
    alpha, n_iter = first_function(Phi, t, 1.0 / beta, weights), 0
    for _ in range(1000):

        def factors(active, alpha_active, beta=beta):
            return statistics(Phi, t, active, alpha_active, beta, weights)

        alpha, steps, converged = maximise(factors, Phi.shape[1], alpha, tol)
        n_iter += steps
        active = np.flatnonzero(np.isfinite(alpha))
        if noise_variance is not None or not converged:
            break
        old = beta
        # To convergence at these alphas: much cheaper than a step over the dictionary.
        for _ in range(1000):
            last = beta
            beta = min(noise_precision(Phi[:, active], t, alpha[active], beta, weights), 1e6 / variance)
            if abs(np.log(beta / last)) < 0.1 * tol:
                break
        if abs(np.log(beta / old)) < tol:
            break
    inside = Phi[:, active]
    mu, _ = posterior(inside, t, alpha[active], beta, weights)
    evidence = log_evidence(inside, t, alpha[active], beta, weights)
    return Fit(active, alpha[active], beta, mu, evidence, n_iter, converged)


def fit_laplace(Phi, t, likelihood, tol=1e-6, weights=None):
    """The scheme with the Laplace approximation found anew at each step (TF 4.3)."""
    w = np.ones(len(t)) if weights is None else weights

    def factors(active, alpha_active):
        return laplace_statistics(Phi, t, active, alpha_active, likelihood, weights)

    # Start as in regression, on the problem linearised at weights of zero.
    slope, B = slope_and_curvature(likelihood, np.zeros(len(t)), t, w)
    start = first_function(Phi, slope / B, 1.0, B)
    alpha, n_iter, converged = maximise(factors, Phi.shape[1], start, tol)
    active = np.flatnonzero(np.isfinite(alpha))
    mu, _ = laplace_mode(Phi[:, active], t, alpha[active], likelihood, weights)
    evidence = laplace_log_evidence(Phi[:, active], t, alpha[active], likelihood, weights)
    return Fit(active, alpha[active], 1.0, mu, evidence, n_iter, converged)


# --- kernels, pair by pair ------------------------------------------------------------------------


def kernel_matrix(function, X, Z):
    return np.array([[function(x, z) for z in Z] for x in X])


def gaussian(x, z, width):
    """``width``: one number, or one per input."""
    return np.exp(-np.sum(((x - z) / width) ** 2))


def matern32(x, z, width):
    r = np.sqrt(6.0) * np.linalg.norm((x - z) / width)
    return (1.0 + r) * np.exp(-r)


def matern52(x, z, width):
    r = np.sqrt(10.0) * np.linalg.norm((x - z) / width)
    return (1.0 + r + r**2 / 3.0) * np.exp(-r)


def laplacian(x, z, gamma):
    return np.exp(-gamma * np.sum(np.abs(x - z)))


def polynomial(x, z, degree, gamma, coef0):
    return (gamma * x @ z + coef0) ** degree


def linear(x, z):
    return x @ z


def sigmoid(x, z, gamma, coef0):
    return np.tanh(gamma * x @ z + coef0)


def linear_spline(x, z):
    """T section 4.2, one factor per input."""
    least = np.minimum(x, z)
    return np.prod(1 + x * z + x * z * least - (x + z) / 2 * least**2 + least**3 / 3)
