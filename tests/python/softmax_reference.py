"""The softmax model in NumPy, slow and obvious: every array over rows, classes and functions written out.

Function c K + j of the expanded dictionary adds column j of ``Phi`` to the logit of class c. Notation of
reference.py; nothing of the package is imported.
"""

import numpy as np
from scipy.special import log_softmax

from reference import Fit, leave_out, maximise, newton


def expand(Phi, n_classes):
    """N x C x (K C): what each function adds to each logit of each row."""
    n_rows, n_columns = Phi.shape
    out = np.zeros((n_rows, n_classes, n_columns * n_classes))
    for c in range(n_classes):
        out[:, c, c * n_columns : (c + 1) * n_columns] = Phi
    return out


def log_likelihood(eta, labels, weights):
    return weights @ log_softmax(eta, axis=1)[np.arange(len(eta)), labels]


def slope_and_curvature(eta, labels, weights):
    """First derivatives of the log likelihood in the logits, N x C, and the negative second, N x C x C."""
    p = np.exp(log_softmax(eta, axis=1))
    one_hot = np.eye(eta.shape[1])[labels]
    W = np.einsum("nc,cd->ncd", p, np.eye(eta.shape[1])) - np.einsum("nc,nd->ncd", p, p)
    return weights[:, np.newaxis] * (one_hot - p), weights[:, np.newaxis, np.newaxis] * W


def mode(inside, labels, alpha, weights, prior_mean=0.0):
    """Mode and covariance by Newton's method; ``inside`` is N x C x m."""

    def height(mu):
        return log_likelihood(inside @ mu, labels, weights) - 0.5 * alpha @ (mu - prior_mean) ** 2

    def derivatives(mu):
        slope, W = slope_and_curvature(inside @ mu, labels, weights)
        H = np.einsum("ncm,ncd,ndk->mk", inside, W, inside, optimize=True) + np.diag(alpha)
        return np.einsum("ncm,nc->m", inside, slope) - alpha * (mu - prior_mean), H

    return newton(height, derivatives, len(alpha))


def log_evidence(inside, labels, alpha, weights):
    """The Laplace approximation, with the determinant of the full Hessian."""
    mu, Sigma = mode(inside, labels, alpha, weights)
    prior = 0.5 * np.sum(np.log(alpha)) - 0.5 * alpha @ mu**2
    return log_likelihood(inside @ mu, labels, weights) + prior + 0.5 * np.linalg.slogdet(Sigma)[1]


def statistics(expanded, labels, active, alpha, weights):
    """s, q, S, Q of all K C functions about the mode."""
    inside = expanded[:, :, active]
    mu, Sigma = mode(inside, labels, alpha, weights)
    slope, W = slope_and_curvature(inside @ mu, labels, weights)
    turned = np.einsum("ncd,ndk->nck", W, expanded)
    across = np.einsum("ncm,nck->mk", inside, turned)
    S = np.einsum("nck,nck->k", expanded, turned) - np.einsum("mk,ml,lk->k", across, Sigma, across)
    return leave_out(S, np.einsum("nck,nc->k", expanded, slope), active, alpha)


def fit(Phi, labels, weights=None, tol=1e-6):
    """The scheme of Tipping & Faul (2003), one function of one class at a time."""
    weights = np.ones(len(labels)) if weights is None else weights
    expanded = expand(Phi, labels.max() + 1)

    def factors(active, alpha):
        return statistics(expanded, labels, active, alpha, weights)

    empty = np.full(expanded.shape[2], np.inf)
    alpha, n_iter, converged = maximise(factors, len(empty), empty, tol, 3000)
    active = np.flatnonzero(np.isfinite(alpha))
    inside = expanded[:, :, active]
    mu, _ = mode(inside, labels, alpha[active], weights)
    evidence = log_evidence(inside, labels, alpha[active], weights)
    return Fit(active, alpha[active], 1.0, mu, evidence, n_iter, converged)
