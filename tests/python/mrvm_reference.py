"""mRVM1 and mRVM2 of Psorakis, Damoulas & Girolami (2010) in dense NumPy, slow and obvious.

Imports nothing of the package. Numbers in parentheses are the paper's equations; ``Phi`` is N x K with a
function per column (the paper's K transposed), ``Y`` the auxiliary targets, N x C, ``alpha`` the precisions,
infinite for functions that are out. A row of weight w counts w times.
"""

import numpy as np

import reference
from probit_reference import by_trapezoid

# --- E-step ---------------------------------------------------------------------------------------


def expectations(scores, labels):
    """Equations (3) and (4) at every row, (N, C), and ln P(t_n) of (1)."""
    rows = [by_trapezoid(f, int(label)) for f, label in zip(scores, labels, strict=True)]
    return np.array([targets for _, targets in rows]), np.array([log_p for log_p, _ in rows])


# --- M-step of mRVM1: precisions shared by the classes --------------------------------------------


def log_evidence(Phi, Y, alpha, w=None):
    """Equation (6); with weights, of w_n equal rows instead of row n."""
    inside = np.isfinite(alpha)
    return sum(reference.log_evidence(Phi[:, inside], y, alpha[inside], 1.0, w) for y in Y.T)


def factors(Phi, Y, alpha, i, w=None):
    """s_i and all q_ci (10), with function i left out of C = 1 + Phi A^-1 Phi^T, below (6)."""
    rest = np.isfinite(alpha) & (np.arange(len(alpha)) != i)
    solved = np.linalg.solve(reference.covariance(Phi[:, rest], alpha[rest], 1.0, w), Phi[:, i])
    return Phi[:, i] @ solved, Y.T @ solved


def contribution(s, q):
    """theta_i (13)."""
    return np.sum(q**2) - len(q) * s


def best_alpha(s, q):
    """Equations (11) and (12)."""
    theta = contribution(s, q)
    return len(q) * s**2 / theta if theta > 0.0 else np.inf


def share(alpha, s, q):
    """What function i adds to the evidence: the terms of (9)."""
    if not np.isfinite(alpha):
        return 0.0
    return 0.5 * np.sum(np.log(alpha / (alpha + s)) + q**2 / (alpha + s))


def posterior(Phi, Y, alpha, w=None):
    """Means (14), m x C, and the covariance, the same for all classes, of the functions that are in."""
    inside = np.isfinite(alpha)
    each = [reference.posterior(Phi[:, inside], y, alpha[inside], 1.0, w) for y in Y.T]
    return np.column_stack([mu for mu, _ in each]), each[0][1]


def lower_bound(Phi, labels, W, alpha, w=None):
    """B(W, alpha) = sum_n w_n ln P(t_n) - 1/2 sum_c w_c^T A w_c + C/2 (ln|A| - ln|Phi^T Phi + A|).

    What E- and M-step raise in turn: ln p(t) less the divergence of the product of the posteriors of weights
    and auxiliary variables, both at their best for the means W.
    """
    w = np.ones(len(labels)) if w is None else w
    inside = np.isfinite(alpha)
    P, A = Phi[:, inside], np.diag(alpha[inside])
    log_p = expectations(P @ W, labels)[1]
    occam = np.linalg.slogdet(A)[1] - np.linalg.slogdet(P.T @ (w[:, np.newaxis] * P) + A)[1]
    return w @ log_p - 0.5 * np.trace(W.T @ A @ W) + 0.5 * W.shape[1] * occam


# --- mRVM2: a precision for each weight -----------------------------------------------------------


def weights_of_classes(Phi, Y, alpha):
    """Equation (2), K x C."""
    columns = [
        np.linalg.solve(Phi.T @ Phi + np.diag(a), Phi.T @ y) for a, y in zip(alpha.T, Y.T, strict=True)
    ]
    return np.array(columns).T


def expected_precisions(W, tau, upsilon):
    """Equation (5)."""
    return (2.0 * tau + 1.0) / (W**2 + 2.0 * upsilon)


def log_joint(Phi, labels, W, tau, upsilon):
    """ln P(t | W) + ln p(W), the precisions integrated out of (5)'s Gamma posterior, up to a constant."""
    return expectations(Phi @ W, labels)[1].sum() - (tau + 0.5) * np.log(upsilon + W**2 / 2.0).sum()


# --- weights of several kernels -------------------------------------------------------------------


def expected_error(blocks, kernel_weights, bias, mu, Sigma, Y, w=None):
    """E sum_c |y_c - Phi(b) w_c|^2 over the posterior; Phi(b) has a constant first if ``bias``."""
    w = np.ones(len(Y)) if w is None else w
    Phi = sum(b * block for b, block in zip(kernel_weights, blocks, strict=True))
    if bias:
        Phi = np.hstack([np.ones((len(Phi), 1)), Phi])
    spread = 0.0 if Sigma is None else Y.shape[1] * (w @ np.sum(Phi @ Sigma * Phi, axis=1))
    return np.sum(w[:, np.newaxis] * (Y - Phi @ mu) ** 2) + spread


def stationarity(Phi, Y, alpha, weights=None):
    """Return the largest change of a ln alpha by (11), and the largest gain of an addition."""
    changes, gains = [0.0], [0.0]
    for i, a in enumerate(alpha):
        s, q = factors(Phi, Y, alpha, i, weights)
        best = best_alpha(s, q)
        if np.isfinite(a):
            changes.append(abs(np.log(best / a)))
        else:
            gains.append(share(best, s, q))
    return max(changes), max(gains)
