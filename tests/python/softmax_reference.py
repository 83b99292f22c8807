"""The softmax model in NumPy, slow and obvious: every array over rows, classes and functions written out.

Function c K + j of the expanded dictionary adds column j of ``Phi`` to the logit of class c. Notation of
reference.py; nothing of the package is imported.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from reference import Fit, leave_out, maximise


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


def mode(inside, labels, alpha, weights):
    """Mode and covariance by Newton's method; ``inside`` is N x C x m."""
    mu = np.zeros(len(alpha))
    for _ in range(200):
        slope, W = slope_and_curvature(inside @ mu, labels, weights)
        gradient = np.einsum("ncm,nc->m", inside, slope) - alpha * mu
        H = np.einsum("ncm,ncd,ndk->mk", inside, W, inside, optimize=True) + np.diag(alpha)
        step = np.linalg.solve(H, gradient)

        def height(m):
            return log_likelihood(inside @ m, labels, weights) - 0.5 * alpha @ m**2

        length = 1.0
        while gradient @ step > 1e-8 and height(mu + length * step) <= height(mu):
            length /= 2
        mu = mu + length * step
        if gradient @ step < 1e-24:
            break
    _, W = slope_and_curvature(inside @ mu, labels, weights)
    H = np.einsum("ncm,ncd,ndk->mk", inside, W, inside, optimize=True) + np.diag(alpha)
    return mu, np.linalg.inv(H)


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


# --- one alpha for each function, shared by all classes -------------------------------------------


def shared_factors(Phi, labels, alpha, weights):
    """s (C x C) and q (C) of each column left out of the model, about the mode; ``alpha`` is inf outside.

    The matrix form of TF 23: s = (S^-1 - I/alpha)^-1 = S (I - S/alpha)^-1 and q = (I - S/alpha)^-1 Q.
    """
    n_columns, n_classes = Phi.shape[1], labels.max() + 1
    expanded, alphas = expand(Phi, n_classes), np.tile(alpha, n_classes)
    active = np.flatnonzero(np.isfinite(alphas))
    mu, Sigma = mode(expanded[:, :, active], labels, alphas[active], weights)
    slope, W = slope_and_curvature(expanded[:, :, active] @ mu, labels, weights)
    turned = np.einsum("ncd,ndk->nck", W, expanded)
    across = np.einsum("ncm,nck->mk", expanded[:, :, active], turned)
    S = np.einsum("ncj,nck->jk", expanded, turned, optimize=True) - across.T @ Sigma @ across
    Q = np.einsum("ncj,nc->j", expanded, slope)
    s, q = [], []
    for j in range(n_columns):
        mine = j + n_columns * np.arange(n_classes)
        here, there = S[np.ix_(mine, mine)], Q[mine]
        if np.isfinite(alpha[j]):
            rest = np.linalg.inv(np.eye(n_classes) - here / alpha[j])
            here, there = here @ rest, rest @ there
        s.append(here)
        q.append(there)
    return np.array(s), np.array(q)


def shared_contribution(alpha, s, q):
    """F(alpha) = 1/2 [C ln alpha - ln|alpha I + s| + q^T (alpha I + s)^-1 q], for one function; 0 at inf."""
    if not np.isfinite(alpha):
        return 0.0
    with_alpha = alpha * np.eye(len(q)) + s
    determinant = len(q) * np.log(alpha) - np.linalg.slogdet(with_alpha)[1]
    return 0.5 * (determinant + q @ np.linalg.solve(with_alpha, q))


def best_shared_alpha(s, q):
    """The alpha with the largest F, by a scan and a search about its best point; inf if none is above 0."""
    grid = np.linspace(-12.0, 22.0, 341)
    best = grid[np.argmax([shared_contribution(np.exp(u), s, q) for u in grid])]
    found = minimize_scalar(
        lambda u: -shared_contribution(np.exp(u), s, q),
        bounds=(best - 0.1, best + 0.1),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return np.exp(found.x) if -found.fun > 1e-9 else np.inf


def fit_shared(Phi, labels, weights, tol=1e-5, max_iter=1000):
    """TF's scheme with one alpha for the C weights on each column: each time the change that gains most."""
    alpha = np.full(Phi.shape[1], np.inf)
    for _ in range(max_iter):
        s, q = shared_factors(Phi, labels, alpha, weights)
        target = np.array([best_shared_alpha(*factors) for factors in zip(s, q, strict=True)])
        with np.errstate(invalid="ignore"):
            change = np.abs(np.log(target) - np.log(alpha))
        change[np.isinf(target) & np.isinf(alpha)] = 0.0
        if change.max() <= tol:
            return alpha
        gain = [
            shared_contribution(new, *factors) - shared_contribution(old, *factors)
            for new, old, factors in zip(target, alpha, zip(s, q, strict=True), strict=True)
        ]
        # A gain of the order of rounding tells nothing: then the largest change.
        best = np.argmax(gain) if max(gain) > 1e-9 else np.argmax(change)
        alpha[best] = target[best]
    raise AssertionError("no convergence")
