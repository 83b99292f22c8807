"""The variational RVM of Bishop & Tipping (2000), slow and dense. Imports nothing of the package.

q(w) = Normal(mu, Sigma), q(alpha_i) = Gamma(shape, rate_i), q(beta) = Gamma(shape, rate); in classification
xi, where the bounds of Jaakkola & Jordan (2000) touch. A weight w_n means that row n counts w_n times.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import quad, trapezoid
from scipy.special import digamma, expit, gammaln


class Gammas(NamedTuple):
    """One Gamma distribution, or several of one shape."""

    shape: float
    rate: np.ndarray

    @property
    def mean(self):
        return self.shape / self.rate

    @property
    def mean_log(self):
        return digamma(self.shape) - np.log(self.rate)

    def entropy(self):
        return self.shape - np.log(self.rate) + gammaln(self.shape) + (1.0 - self.shape) * digamma(self.shape)

    def mean_log_prior(self, prior):
        """E[ln Gamma(. | shape, rate)] of the prior."""
        a, b = prior
        return a * np.log(b) - gammaln(a) + (a - 1.0) * self.mean_log - b * self.mean


class Posterior(NamedTuple):
    """All factors; ``beta`` is None for classification, and a float where the noise is given."""

    mu: np.ndarray
    sigma: np.ndarray
    alpha: Gammas
    beta: Gammas | float | None
    xi: np.ndarray | None

    @property
    def second_moments(self):
        return self.sigma + np.outer(self.mu, self.mu)


def q_alpha(mu, sigma, prior):
    """q(alpha), given q(w)."""
    a, b = prior
    return Gammas(a + 0.5, b + 0.5 * (mu**2 + np.diag(sigma)))


def expected_square(Phi, t, mu, sigma, w):
    """E |t - Phi w|^2."""
    return w @ (t - Phi @ mu) ** 2 + np.sum(w * np.sum(Phi @ sigma * Phi, axis=1))


def q_beta(Phi, t, mu, sigma, w, prior):
    """q(beta), given q(w)."""
    c, d = prior
    return Gammas(c + 0.5 * w.sum(), d + 0.5 * expected_square(Phi, t, mu, sigma, w))


def q_weights(Phi, t, alpha, w, *, beta=None, xi=None):
    """q(w), given expected precisions, or xi."""
    curvature = beta * w if xi is None else 2.0 * lam(xi) * w
    pull = beta * w * t if xi is None else w * (t - 0.5)
    sigma = np.linalg.inv(np.diag(alpha) + Phi.T @ (curvature[:, np.newaxis] * Phi))
    return sigma @ Phi.T @ pull, sigma


def q_xi(Phi, mu, sigma):
    """Where the bounds touch, given q(w)."""
    return np.sqrt(np.sum(Phi @ (sigma + np.outer(mu, mu)) * Phi, axis=1))


def lam(xi):
    """lambda(xi) = tanh(xi / 2) / (4 xi); 1/8 at 0."""
    return np.where(xi == 0.0, 0.125, np.tanh(xi / 2.0) / (4.0 * np.where(xi == 0.0, 1.0, xi)))


def lower_bound(Phi, t, q, w, alpha_prior, noise_prior=None):
    """E[ln p(t, w, alpha, beta)] - E[ln q], term by term; with xi the likelihood's bound in its place."""
    m = len(q.mu)
    if q.xi is None:
        square = expected_square(Phi, t, q.mu, q.sigma, w)
        fixed = not isinstance(q.beta, Gammas)
        mean_log = np.log(q.beta) if fixed else q.beta.mean_log
        mean = q.beta if fixed else q.beta.mean
        value = 0.5 * w.sum() * (mean_log - np.log(2.0 * np.pi)) - 0.5 * mean * square
        if not fixed:
            value += q.beta.mean_log_prior(noise_prior) + q.beta.entropy()
    else:
        eta, square = Phi @ q.mu, np.sum(Phi @ q.second_moments * Phi, axis=1)
        terms = np.log(expit(q.xi)) - 0.5 * q.xi + (t - 0.5) * eta - lam(q.xi) * (square - q.xi**2)
        value = w @ terms
    log_alpha, squares = q.alpha.mean_log, np.diag(q.second_moments)
    value += 0.5 * np.sum(log_alpha - np.log(2.0 * np.pi) - q.alpha.mean * squares)
    value += 0.5 * (m * (1.0 + np.log(2.0 * np.pi)) + np.linalg.slogdet(q.sigma)[1])
    return float(value + np.sum(q.alpha.mean_log_prior(alpha_prior) + q.alpha.entropy()))


def update(Phi, t, q, w, alpha_prior, noise_prior=None):
    """One round of the paper: all other factors given q(w), then q(w) given them."""
    alpha = q_alpha(q.mu, q.sigma, alpha_prior)
    if q.xi is not None:
        xi = q_xi(Phi, q.mu, q.sigma)
        return Posterior(*q_weights(Phi, t, alpha.mean, w, xi=xi), alpha, None, xi)
    if not isinstance(q.beta, Gammas):
        return Posterior(*q_weights(Phi, t, alpha.mean, w, beta=q.beta), alpha, q.beta, None)
    beta = q_beta(Phi, t, q.mu, q.sigma, w, noise_prior)
    return Posterior(*q_weights(Phi, t, alpha.mean, w, beta=beta.mean), alpha, beta, None)


def with_means(shape, mean):
    """Gammas of this shape with these means."""
    return Gammas(shape, shape / np.asarray(mean))


# --- brute force for one function ------------------------------------------------------------------

_LN_ALPHA = np.linspace(-20.0, 14.0, 1201)
_LN_BETA = np.linspace(-14.0, 14.0, 1201)


def _trapezoid(log_values, grid):
    """ln of the integral of exp(log_values) along the last axis."""
    top = log_values.max()
    return top + np.log(trapezoid(np.exp(log_values - top), grid, axis=-1))


def _log_prior(ln_x, prior):
    """Log density of ln x under Gamma."""
    a, b = prior
    return a * np.log(b) - gammaln(a) + a * ln_x - b * np.exp(ln_x)


def log_marginal_regression(phi, t, alpha_prior, noise_prior=None, beta=None):
    """ln of the integral of Normal(t; 0, 1/beta + phi phi^T / alpha) over ln alpha, ln beta if not given."""
    ln_beta = np.array([np.log(beta)]) if beta else _LN_BETA
    b, a = np.exp(ln_beta)[:, np.newaxis], np.exp(_LN_ALPHA)
    length, along = phi @ phi, phi @ t
    log_det = -len(t) * np.log(b) + np.log1p(b * length / a)
    square = b * (t @ t) - (b * along) ** 2 / (a + b * length)
    log_values = -0.5 * (len(t) * np.log(2.0 * np.pi) + log_det + square) + _log_prior(_LN_ALPHA, alpha_prior)
    over_alpha = np.array([_trapezoid(row, _LN_ALPHA) for row in log_values])
    if beta:
        return float(over_alpha[0])
    return float(_trapezoid(over_alpha + _log_prior(ln_beta, noise_prior), ln_beta))


def log_marginal_classification(phi, t, alpha_prior=None, alpha=None):
    """ln of the integral of the logistic likelihood over one weight, and over ln alpha if not given."""

    def given(precision):
        def integrand(z):
            eta = phi * z / np.sqrt(precision)
            terms = -t * np.logaddexp(0.0, -eta) - (1.0 - t) * np.logaddexp(0.0, eta)
            return np.exp(terms.sum() - 0.5 * z**2) / np.sqrt(2.0 * np.pi)

        return quad(integrand, -12.0, 12.0, epsabs=1e-12, limit=400)[0]

    if alpha is not None:
        return float(np.log(given(alpha)))
    grid = np.linspace(-12.0, 12.0, 241)
    return float(_trapezoid(np.log([given(a) for a in np.exp(grid)]) + _log_prior(grid, alpha_prior), grid))
