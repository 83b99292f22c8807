r"""The slope of the Laplace evidence itself, written out densely; shares no code with the core.

With :math:`H = A + \Phi^T B \Phi`, :math:`\Sigma = H^{-1}` and :math:`r` the slope of
:math:`\mathrm{tr}(\Sigma \Phi^T B \Phi)` in the linear predictors, Sigma held, a move of the mode by dw
changes :math:`\ln|H|` by :math:`r^T \Phi\, dw`. A weight that is free to move pulls the mode along its
function by Q, and the others answer, so that with :math:`U_i = \phi_i^T (r - B \Phi \Sigma \Phi^T r)` all
conditions on S and :math:`Q^2` are conditions on S and :math:`Q (Q - U)`.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import inv

from ._certify_mode import derivatives
from ._softmax_certificate import SoftmaxRows
from ._types import FloatArray, Problem


def whole_slope(Q: FloatArray, U: FloatArray) -> FloatArray:
    """Return what stands for Q where the motion of the mode counts: the root of Q (Q - U), or 0."""
    return np.sqrt(np.maximum(Q * (Q - U), 0.0))


def largest_gradient(
    S: FloatArray, Q: FloatArray, U: FloatArray, alpha: FloatArray, prior: tuple[float, float]
) -> float:
    r"""Return the largest size of dL / d ln alpha over the functions in the model, with that of the prior.

    :math:`S = \alpha (1 - \alpha \Sigma_{jj})` and :math:`Q = \alpha \mu` there, so that the slope of the
    problem linearised, :math:`\frac12 (1 - \alpha \Sigma_{jj} - \alpha \mu^2)`, is (S - Q^2) / (2 alpha).
    """
    shape, rate = prior
    gradient = 0.5 * (S - Q * (Q - U)) / alpha + shape - rate * alpha
    return float(np.max(np.abs(gradient), initial=0.0))


def answers(problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray, mode: FloatArray) -> FloatArray:
    """Return U of the whole dictionary; ``mode`` is that of the weights times the roots of their alphas."""
    if problem.likelihood == "multinomial":
        return _several_logits(problem, Phi, t, w, mode)
    scaled = Phi[:, problem.active] / np.sqrt(problem.alpha)
    eta = scaled @ mode
    _, b = derivatives(problem.likelihood, eta, t, w)
    # db/deta: b (1 - 2 p) for p = 1 / (1 + exp(-eta)), and b for exp(eta).
    skew = -b * np.tanh(0.5 * eta) if problem.likelihood == "bernoulli" else b
    sigma = inv(np.eye(len(mode)) + (scaled.T * b) @ scaled)
    r = skew * np.einsum("ij,jk,ik->i", scaled, sigma, scaled, optimize=True)
    U: FloatArray = Phi.T @ (r - b * (scaled @ (sigma @ (scaled.T @ r))))
    return U


def _several_logits(
    problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray, mode: FloatArray
) -> FloatArray:
    """Return U under a softmax: r has an entry for each class of a row, and B is a matrix for each row."""
    rows = SoftmaxRows.of(problem, Phi, t, w)
    eta = rows.logits(mode)
    p = np.exp(eta - np.logaddexp.reduce(eta, axis=1)[:, np.newaxis])
    psi = rows.whitened(problem.active, eta) / np.sqrt(problem.alpha)
    sigma = inv(np.eye(len(mode)) + psi.T @ psi)
    # spread[n, c, j]: what weight j adds to logit c of row n, times the root of its alpha.
    phi, classes = rows.expanded(problem.active)
    spread = np.zeros((len(Phi), rows.n_classes, len(mode)))
    spread[:, classes, np.arange(len(mode))] = phi / np.sqrt(problem.alpha)
    spread -= np.einsum("nc,ncj->nj", p, spread)[:, np.newaxis]
    # The third derivatives of a log-sum-exp are the third central moments of the class drawn from p.
    squares = np.einsum("ncj,jk,nck->nc", spread, sigma, spread, optimize=True)
    r = w[:, np.newaxis] * p * (squares - np.sum(p * squares, axis=1, keepdims=True))
    slopes = np.einsum("ncj,nc->j", spread, r)
    moved = spread @ (sigma @ slopes)
    r = r - w[:, np.newaxis] * p * (moved - np.sum(p * moved, axis=1, keepdims=True))
    U: FloatArray = (Phi.T @ r).T.ravel()
    return U
