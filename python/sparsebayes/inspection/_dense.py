r"""Fits as dense arrays, and the gains of single changes, for certificates. Shares no code with the solver.

A fit is a regression with unit noise and unit prior variances, for other likelihoods than the Gaussian after
linearisation at the posterior mode. Of its whitened design only the singular values are used: the covariance
of the targets itself would lose twice the digits to round-off, with little noise all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.linalg import qr, solve, svd  # SciPy's refuses empty models before 1.14
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import brentq
from scipy.special import softmax

from .._row_likelihoods import RowLikelihood
from .._types import FloatArray, IntArray, OutputsProblem, Problem, WeightsProblem

#: Columns of the dictionary, and functions with unknown precisions, evaluated at a time: bounds the memory.
_BLOCK = 512
_SCANNED = 128
#: Newton steps at most; and the squared distance, in posterior deviations, below which steps are not halved.
_NEWTON_STEPS = 500
_CLOSE = 1e-10
#: Moves of ln alpha of the scan for the best precision, for groups relative to the size of S; and the
#: bisections that follow it.
_SCAN = np.linspace(-40.0, 40.0, 1601)
_BISECTIONS = 60
#: Distances in ln alpha at which the nearest maximum is looked for.
_DISTANCES = np.append(0.0, np.geomspace(1e-10, 60.0, 120))
_DISTANCES_OF_GROUPS = np.append(0.0, np.geomspace(1e-10, 60.0, 200))
#: Nats by which another maximum must exceed the nearest one to count.
_BETTER = 1e-7
#: Smallest part of a column outside the span of the others that is not round-off, relative to its square.
_RESOLVED = 1e-11


def functions(problem: Problem | OutputsProblem) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the functions in the model with a proper prior, their alpha, and those with a flat prior."""
    proper = problem.alpha > 0.0
    return problem.active[proper], problem.alpha[proper], problem.active[~proper]


@dataclass(frozen=True)
class DenseFit:
    """A fit whose whitened design psi, with functions divided by the root of their alpha, is a product.

    The covariance of its targets, C = 1 + psi psi^T, has the eigenvalues 1 + ``singular``^2 along the columns
    of ``left`` and 1 elsewhere.
    """

    #: psi = left diag(singular) right.
    left: FloatArray
    singular: FloatArray
    right: FloatArray
    #: Posterior mean of each weight, times the root of its alpha.
    mean: FloatArray
    #: Slope of the log likelihood in the weight of each function of the dictionary, at the posterior mean.
    Q: FloatArray
    #: Returns whitened columns of the dictionary.
    whitened: Callable[[IntArray], FloatArray]
    log_evidence: float
    #: Numerator and denominator of the ratio of the new beta to the old (Tipping & Faul 2003, step 9).
    freedom: float = 0.0
    misfit: float = 0.0
    #: Posterior mean of the weights that have a flat prior, and their precision given the other weights.
    flat_mean: FloatArray = field(default_factory=lambda: np.zeros(0))
    flat_precision: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def shrinkage(self) -> FloatArray:
        """1 / (1 + singular^2)."""
        return 1.0 / (1.0 + self.singular**2)

    @property
    def variance(self) -> FloatArray:
        """alpha_j Sigma_jj of each active basis function."""
        variance = (self.right**2).T @ self.shrinkage
        if len(self.singular) < len(variance):
            # More functions than rows: directions that the data do not determine keep the prior variance, 1.
            variance += np.maximum(1.0 - np.sum(self.right**2, axis=0), 0.0)
        return variance

    def sparsities(self) -> tuple[FloatArray, FloatArray]:
        """Return S_i = phi_i^T C^-1 phi_i and R_i = phi_i^T C^-1 B^-1 C^-1 phi_i of the whole dictionary.

        S is equation 22 of Tipping & Faul (2003); R belongs to the prior on complexity.
        """
        S, R = np.empty((2, len(self.Q)))
        for block in blocks(len(S), _BLOCK):
            inside, outside = _split(self.whitened(block), self.left)
            rest = np.sum(outside**2, axis=0)
            S[block] = self.shrinkage @ inside**2 + rest
            R[block] = self.shrinkage**2 @ inside**2 + rest
        return S, R

    def factors_of_group(self, columns: IntArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return S = Phi^T C^-1 Phi of some columns, and what weights c of the active functions add to it.

        The latter is G^T diag(c) G, G being the covariances of the weights of the active functions, times the
        roots of their precisions, with the columns.
        """
        inside, outside = _split(self.whitened(columns), self.left)
        S = inside.T @ (self.shrinkage[:, np.newaxis] * inside) + outside.T @ outside
        G = self.right.T @ ((self.singular * self.shrinkage)[:, np.newaxis] * inside)
        return S, G.T @ (c[:, np.newaxis] * G)

    def factors_of_active_group(
        self, at: NDArray[np.bool_], alpha: float, c: FloatArray
    ) -> tuple[FloatArray, ...]:
        """Return s and q of an active group with itself left out, and rho, in the eigenbasis of s.

        ``c``: weight of each active function in the prior on complexity.
        """
        right, shrinkage = self.right[:, at], self.shrinkage
        determined = self.singular**2 * shrinkage
        known, unknown = (right.T @ (part[:, np.newaxis] * right) for part in (determined, shrinkage))
        # Covariances of the weights, times the roots of their precisions, with those of the group.
        covariances = self.right.T @ (shrinkage[:, np.newaxis] * right)
        if len(self.right) < len(self.mean):
            # Directions that no row determines keep the prior variance.
            rest = np.eye(len(at))[:, at] - self.right.T @ right
            covariances, unknown = covariances + rest, unknown + rest[at]
        both = c[at][0] * unknown - covariances.T @ (c[:, np.newaxis] * covariances)
        # Both matrices have the same eigenvectors; numbers close to 1 would not tell these apart.
        u = np.linalg.eigh(known if np.trace(known) < np.trace(unknown) else unknown)[1]
        share, left, rho = (np.sum(u * (part @ u), axis=0) for part in (known, unknown, both))
        mean, rho = u.T @ self.mean[at], alpha * rho / left**2
        return alpha * share / left, np.sqrt(alpha) * mean / left, rho

    def active_factors(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return S = alpha - alpha^2 Sigma_ii, Q = alpha mu_i and R of the active basis functions.

        Equation 22 gives the same numbers as sums over the rows, which lose Q if precisions differ by
        decades, and at a mode where weights cancel in eta.
        """
        determined = self.singular**2 * self.shrinkage
        S, R = (alpha * ((self.right**2).T @ part) for part in (determined, determined * self.shrinkage))
        return S, np.sqrt(alpha) * self.mean, R


def fit_regression(
    Phi: FloatArray,
    active: IntArray,
    alpha: FloatArray,
    flat: IntArray,
    t: FloatArray,
    w: FloatArray,
    beta: float,
    prior: tuple[float, float] = (0.0, 0.0),
) -> DenseFit:
    """Return posterior and evidence of a regression (Tipping & Faul 2003, equations 6 to 8).

    A row of weight w_n counts w_n times: its noise precision is beta w_n, and the number of rows is sum(w).
    Functions ``flat`` have a flat prior: the fit is of what is orthogonal to them.
    """
    root = np.sqrt(beta * w)
    span, corner = qr(root[:, np.newaxis] * Phi[:, flat])

    def whitened(functions: IntArray) -> FloatArray:
        return _remainder(root[:, np.newaxis] * Phi[:, functions], span)

    psi = root[:, np.newaxis] * Phi[:, active] / np.sqrt(alpha)
    left, singular, right = svd(_split(psi, span)[1], full_matrices=False)
    inside, outside = _split(_split(root * t, span)[1], left)
    shrunk = inside / (1.0 + singular**2)
    residual = left @ shrunk + outside
    misfit = inside @ shrunk + outside @ outside
    n_rows, determined = float(w.sum()) - len(flat), float(np.sum(singular**2 / (1.0 + singular**2)))
    log_evidence = 0.5 * (n_rows * np.log(beta / (2.0 * np.pi)) - np.log1p(singular**2).sum() - misfit)
    mean = right.T @ (singular * shrunk)
    rest = root * (t - Phi[:, active] @ (mean / np.sqrt(alpha)))
    return DenseFit(
        left,
        singular,
        right,
        mean=mean,
        Q=Phi.T @ (root * residual),
        whitened=whitened,
        log_evidence=float(log_evidence),
        freedom=n_rows - determined + 2.0 * prior[0],
        misfit=float(residual @ residual) + 2.0 * prior[1] * beta,
        flat_mean=solve(corner, span.T @ rest),
        flat_precision=np.sum(corner**2, axis=0),
    )


@dataclass(frozen=True)
class OnePredictor:
    """Rows of positive weight with one linear predictor each."""

    Phi: FloatArray
    t: FloatArray
    w: FloatArray
    likelihood: RowLikelihood
    offset: FloatArray | float = 0.0

    def predictors(self, active: IntArray, weights: FloatArray) -> FloatArray:
        """Return the linear predictors eta."""
        return self.changes(active, weights) + self.offset

    def changes(self, active: IntArray, weights: FloatArray) -> FloatArray:
        """Return what these changes of weights add to eta."""
        return np.asarray(self.Phi[:, active] @ weights)

    def log_likelihood(self, eta: FloatArray) -> float:
        """Return the log likelihood of all rows."""
        return float(self.w @ self.likelihood.log_likelihood(eta, self.t))

    def slopes(self, eta: FloatArray, change: FloatArray | float = 0.0) -> FloatArray:
        """Return the slope of the log likelihood in the weight of each function of the dictionary.

        At ``eta`` plus a ``change``, to first order.
        """
        slope = self.likelihood.slope(eta, self.t) - self.likelihood.curvature(eta, self.t) * change
        return np.asarray(self.Phi.T @ (self.w * slope))

    def whitened(self, functions: IntArray, eta: FloatArray) -> FloatArray:
        """Return columns whose products are the negative Hessian in the weights of these functions."""
        root = np.sqrt(self.w * self.likelihood.curvature(eta, self.t))
        return np.asarray(root[:, np.newaxis] * self.Phi[:, functions])


class Softmax:
    r"""Rows of positive weight with a class each; function c K + j is column j of Phi for class c.

    The negative Hessian of the log likelihood in the logits is :math:`W_n = w_n (\mathrm{diag}(p) - p p^T) =
    R R^T` for :math:`R = \sqrt{w_n}\, \mathrm{diag}(\sqrt p)\,(1 - \sqrt p \sqrt p^T)`. Row (n, d) of the
    whitened design holds, for function j of class c, :math:`R_{cd} \phi_j(x_n)`.
    """

    def __init__(self, Phi: FloatArray, labels: IntArray, w: FloatArray) -> None:
        self.Phi, self.w = Phi, w
        self.labels = labels[:, np.newaxis] == np.arange(labels.max() + 1)

    def predictors(self, active: IntArray, weights: FloatArray) -> FloatArray:
        """Return the logits, N x C."""
        return self.changes(active, weights)

    def changes(self, active: IntArray, weights: FloatArray) -> FloatArray:
        """Return what these changes of weights add to the logits."""
        classes, columns = np.divmod(active, self.Phi.shape[1])
        own = classes[:, np.newaxis] == np.arange(self.labels.shape[1])
        return np.asarray((self.Phi[:, columns] * weights) @ own)

    def log_likelihood(self, eta: FloatArray) -> float:
        """Return the log likelihood of all rows."""
        behind = eta - eta[self.labels][:, np.newaxis]
        return -float(self.w @ np.logaddexp.reduce(behind, axis=1))

    def slopes(self, eta: FloatArray, change: FloatArray | float = 0.0) -> FloatArray:
        """Return the slope of the log likelihood in the weight of each function of each class.

        At ``eta`` plus a ``change``, to first order.
        """
        p, others = self._probabilities(eta)
        pull = np.where(self.labels, others, -p)
        pull -= p * (change - np.sum(p * change, axis=1, keepdims=True))
        return np.asarray((self.Phi.T @ (self.w[:, np.newaxis] * pull)).T.ravel())

    def whitened(self, functions: IntArray, eta: FloatArray) -> FloatArray:
        """Return the whitened columns of these functions, (N C, n_functions)."""
        p, others = self._probabilities(eta)
        root = np.sqrt(p)
        out = np.empty((*p.shape, len(functions)))
        for k, (c, j) in enumerate(zip(*np.divmod(functions, self.Phi.shape[1]), strict=True)):
            column = -root * p[:, [c]]
            column[:, c] = root[:, c] * others[:, c]
            out[:, :, k] = column * (np.sqrt(self.w) * self.Phi[:, j])[:, np.newaxis]
        return out.reshape(p.size, len(functions))

    def _probabilities(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p and 1 - p, computed as the sum of the other classes: exact for p near 1."""
        e = np.exp(eta - eta.max(axis=1, keepdims=True))
        others = e @ (1.0 - np.eye(e.shape[1]))
        total = e.sum(axis=1, keepdims=True)
        return e / total, others / total


def fit_laplace(
    rows: OnePredictor | Softmax, active: IntArray, alpha: FloatArray, flat: IntArray
) -> DenseFit:
    """Return mode and Laplace evidence (Tipping & Faul 2003, section 2.2; Tipping 2001, section 3).

    The mode, in units of the prior deviations, is found from zero by Newton's method with step halving.
    Functions ``flat`` have a flat prior over the coordinates of an orthonormal basis of their span, by the
    Hessian at predictors of 0.
    """
    n_proper = len(active)
    active, shrinks = np.append(active, flat), np.arange(n_proper + len(flat)) < n_proper
    lengths = [np.sqrt(rows.w @ rows.Phi[:, j % rows.Phi.shape[1]] ** 2) for j in flat]
    scale = np.append(1.0 / np.sqrt(alpha), 1.0 / np.array(lengths))

    def objective(mode: FloatArray) -> float:
        penalty = 0.5 * float(mode[:n_proper] @ mode[:n_proper])
        return rows.log_likelihood(rows.predictors(active, scale * mode)) - penalty

    def newton_step(mode: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return predictors, their whitened columns, the gradient and the step."""
        eta = rows.predictors(active, scale * mode)
        psi = rows.whitened(active, eta) * scale
        gradient = rows.slopes(eta)[active] * scale - shrinks * mode
        if len(active) == 0:  # SciPy 1.10 cannot solve a system of no unknowns
            return eta, psi, gradient, gradient
        # R^T R = psi^T psi + diag(shrinks), without the square of the condition number.
        factor = qr(np.vstack([psi, np.diag(1.0 * shrinks)]), mode="r")
        return eta, psi, gradient, cho_solve((factor, False), gradient)

    mode, last = np.zeros(len(active)), np.inf
    for _ in range(_NEWTON_STEPS):
        _, _, gradient, step = newton_step(mode)
        # Twice the expected gain of the step, and the square of its length in posterior deviations.
        decrement = float(gradient @ step)
        if decrement < _CLOSE:
            # Here the objective cannot resolve the gain of a step, and full steps converge.
            mode = mode + step
            if decrement < _CLOSE**2 or decrement > 0.1 * last:
                break
            last = decrement
            continue
        value = objective(mode)
        while not objective(mode + step) >= value:
            step = step / 2.0
        mode = mode + step
    eta, psi, _, step = newton_step(mode)
    span, corner = qr(psi[:, n_proper:])

    def whitened(functions: IntArray) -> FloatArray:
        return _remainder(rows.whitened(functions, eta), span)

    left, singular, right = svd(_split(psi[:, :n_proper], span)[1], full_matrices=False)
    # ln|H| - sum ln alpha = ln|1 + psi^T psi|; a flat weight contributes (2 pi / curvature)^1/2.
    log_evidence = objective(mode) - 0.5 * float(np.log1p(singular**2).sum())
    start = rows.whitened(flat, np.zeros_like(eta))
    volume = qr(start / np.sqrt(np.sum(start**2, axis=0)))[1]
    ratios = np.abs(np.diag(volume) / np.diag(corner))
    log_evidence += float(np.sum(0.5 * np.log(2.0 * np.pi) + np.log(ratios)))
    return DenseFit(
        left,
        singular,
        right,
        mean=mode[:n_proper],
        # Round-off of eta moves slopes of active functions away from alpha mu (equation 10), and those of
        # functions that nearly depend on them. One more step of the linearised problem takes that back.
        Q=rows.slopes(eta, rows.changes(active, scale * step)),
        whitened=whitened,
        log_evidence=log_evidence,
        flat_mean=scale[n_proper:] * mode[n_proper:],
        flat_precision=np.sum((corner / scale[n_proper:]) ** 2, axis=0),
    )


def _split(vectors: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coordinates along ``left`` and the remainder, after a second projection against round-off."""
    inside = left.T @ vectors
    outside = vectors - left @ inside
    correction = left.T @ outside
    return inside + correction, outside - left @ correction


def _remainder(vectors: FloatArray, span: FloatArray) -> FloatArray:
    """Return the parts of columns that are orthogonal to ``span``, 0 where only round-off is left."""
    rest = _split(vectors, span)[1]
    rest[:, np.sum(rest**2, axis=0) <= _RESOLVED * np.sum(vectors**2, axis=0)] = 0.0
    return rest


def blocks(n: int, size: int) -> list[IntArray]:
    """Return the numbers below n in blocks."""
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]


def bisect(
    low: FloatArray, high: FloatArray, rising: Callable[[FloatArray], NDArray[np.bool_]], n: int = _BISECTIONS
) -> FloatArray:
    """Return the maxima between ``low`` and ``high`` of functions that are ``rising`` below them."""
    for _ in range(n):
        middle = 0.5 * (low + high)
        up = rising(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return 0.5 * (low + high)


# --- gains of single changes ----------------------------------------------------------------------


class Evidence:
    r"""The log evidence F of n basis functions as the log precision of each moves by x.

    The C outputs of a model share the precisions, so it is the sum over the outputs (Tipping & Faul 2003,
    equations 18 and 23), and with different noise levels it may have several maxima:

    .. math:: F(x) - F(0) = \sum_c \tfrac{1}{2} [x - \ln (D / D_0) - (Q^2 / \alpha) (e^x - 1) / (D D_0)]
        + \ln p(\ln \alpha + x) - \ln p(\ln \alpha), \quad D = S / \alpha + p e^x

    with :math:`p = \alpha \Sigma_{jj}`, or 1 for an inactive function. The ratios do not depend on the units
    of columns and targets. s and q (equation 23) are not formed: alpha - S, which is alpha p, would be lost
    to round-off for a weight that the data determine well, and so would F(x) - F(0), with little noise.
    """

    def __init__(
        self,
        S: FloatArray,
        Q: FloatArray,
        p: FloatArray,
        alpha: FloatArray,
        prior: tuple[float, float],
        excess: FloatArray,
    ) -> None:
        """``S`` (positive), ``Q`` and ``p`` are n x C; ``prior`` is Gamma(shape, rate) of alpha.

        ``excess``: 2 c R, which a prior on complexity subtracts from Q^2.
        """
        self.free = S / alpha[:, np.newaxis]
        self.power = (Q / np.sqrt(alpha)[:, np.newaxis]) ** 2 - excess / alpha[:, np.newaxis]
        self.p, self.alpha, self.prior = p, alpha, prior

    def value(self, x: FloatArray) -> FloatArray:
        """Return F(x) - F(0)."""
        (shape, rate), now = self.prior, self.free + self.p
        D = self.free + self.p * np.exp(x)[..., np.newaxis]
        terms = x[..., np.newaxis] - np.log(D / now) - self.power * np.expm1(x)[..., np.newaxis] / (D * now)
        return np.asarray(0.5 * terms.sum(axis=-1) + shape * x - rate * self.alpha * np.expm1(x))

    def deletion(self) -> FloatArray:
        """Return the log evidence without the function - F(0)."""
        now = self.free + self.p
        terms = np.log(now / self.p) - self.power / (self.p * now)
        return np.asarray(0.5 * terms.sum(axis=-1) - log_prior(self.alpha, self.prior))

    def rises(self, x: FloatArray) -> NDArray[np.bool_]:
        """Return whether F increases."""
        e, (shape, rate) = np.exp(x), self.prior
        D = self.free + self.p * e[..., np.newaxis]
        terms = self.free / D - self.power * e[..., np.newaxis] / D**2
        return np.asarray(0.5 * terms.sum(axis=-1) + shape - rate * self.alpha * e > 0.0)

    def best(self) -> tuple[FloatArray, FloatArray]:
        """Return the x of the largest F and its value, by a scan and bisection."""
        at = np.clip(np.argmax(self.value(_SCAN[:, np.newaxis]), axis=0), 1, len(_SCAN) - 2)
        x = bisect(_SCAN[at - 1], _SCAN[at + 1], self.rises)
        return x, self.value(x)

    def change(self) -> FloatArray:
        """Return |x| at the maximum of F; inf if the function should be deleted.

        The nearest maximum uphill, unless another one is better.
        """
        sign = np.where(self.rises(np.zeros(len(self.alpha))), 1.0, -1.0)

        def uphill(x: FloatArray) -> NDArray[np.bool_]:
            return np.asarray(self.rises(sign * x) == (sign > 0.0))

        downhill = np.array([~uphill(np.full(len(sign), x)) for x in _DISTANCES[1:]])
        first, exists = np.argmax(downhill, axis=0), downhill.any(axis=0)
        near, deletion = bisect(_DISTANCES[first], _DISTANCES[first + 1], uphill), self.deletion()
        here = np.where(exists, self.value(sign * near), deletion)
        best, value = self.best()
        moves = np.where(value > here + _BETTER, np.abs(best), np.where(exists, near, np.inf))
        return np.where(np.maximum(value, here) + _BETTER < deletion, np.inf, moves)


def max_log_alpha_change(
    S: FloatArray,
    Q: FloatArray,
    variance: FloatArray,
    alpha: FloatArray,
    prior: tuple[float, float],
    excess: FloatArray,
) -> float:
    """Return the largest |ln(new alpha / alpha)| (equation 20); inf if a function should be deleted (21).

    ``S``, ``Q``, ``variance``, alpha_j Sigma_jj, and ``excess`` (see `Evidence`) are M x C.
    """
    if (S <= 0.0).any():
        return np.inf
    largest = 0.0
    for block in blocks(len(alpha), _SCANNED):
        evidence = Evidence(S[block], Q[block], variance[block], alpha[block], prior, excess[block])
        largest = max(largest, float(evidence.change().max()))
    return largest


def addition_gains(
    S: FloatArray, Q: FloatArray, prior: tuple[float, float], excess: FloatArray
) -> FloatArray:
    """Return the gain of adding functions (n x C) with their best precision; 0 if they vanish."""
    gains = np.zeros(len(S))
    usable = np.flatnonzero((S > 0.0).all(axis=1) & (Q**2 - excess > S).any(axis=1))
    if S.shape[1] == 1 and prior == (0.0, 0.0):
        root = np.sqrt(S[usable, 0])
        surplus = (Q[usable, 0] / root) ** 2 - excess[usable, 0] / S[usable, 0] - 1.0
        gains[usable] = 0.5 * (surplus - np.log1p(surplus))  # equation 27
        return gains
    for block in blocks(len(usable), _SCANNED):
        s, q, less = S[usable[block]], Q[usable[block]], excess[usable[block]]
        evidence = Evidence(s, q, np.ones_like(s), s.max(axis=1), prior, less)
        gains[usable[block]] = evidence.best()[1] - evidence.deletion()
    return gains


def max_gain_exchange(
    fit: DenseFit,
    S: FloatArray,
    R: FloatArray,
    in_model: IntArray,
    alpha: FloatArray,
    prior: tuple[float, float],
    complexity: float,
) -> float:
    r"""Return the largest gain of an exchange, with the noise and other precisions fixed; 0 if none gains.

    Without function j the covariance of the targets is :math:`C - \alpha_j^{-1} \phi_j \phi_j^T`. With
    :math:`u_i = \phi_i^T B \Phi \Sigma_j` of the posterior, an inactive function i then has the factors

    .. math:: S_i + u_i^2 / \Sigma_{jj}, \qquad Q_i + u_i \mu_j / \Sigma_{jj}

    (Tipping & Faul 2003, appendix A.4), and its gain follows from equation 27. The deletion of j has the gain
    :math:`-\tfrac{1}{2} [\ln(\alpha_j \Sigma_{jj}) + \mu_j^2 / \Sigma_{jj}]`, mostly a loss. With x = u of
    :math:`\Sigma A \Sigma` and y its diagonal, R grows by :math:`u^2 / \Sigma_{jj} + 2 u x / \Sigma_{jj} -
    y u^2 / \Sigma_{jj}^2`, and the trace of the smoother by :math:`y / \Sigma_{jj} - 1`.
    """
    if len(alpha) == 0:
        return 0.0
    variance = fit.variance
    # Directions that the data do not determine contribute their prior variance, 1.
    twice = variance - (fit.right**2).T @ (fit.shrinkage * (1.0 - fit.shrinkage))
    deletion = -0.5 * (np.log(variance) + fit.mean**2 / variance) - log_prior(alpha, prior)
    deletion = deletion - complexity * (twice / variance - 1.0)
    inactive = np.ones(len(S), dtype=bool)
    inactive[in_model] = False
    projection = (fit.shrinkage * fit.singular)[:, np.newaxis] * fit.right
    largest = 0.0
    for block in blocks(len(S), _BLOCK):
        columns = fit.whitened(block)
        inside = columns.T @ fit.left
        u, x = inside @ projection, inside @ (fit.shrinkage[:, np.newaxis] * projection)
        s = S[block, np.newaxis] + u**2 / variance
        q = fit.Q[block, np.newaxis] + u * (fit.mean / variance)
        usable = inactive[block, np.newaxis] & (s > _RESOLVED * np.sum(columns**2, axis=0)[:, np.newaxis])
        usable &= np.abs(q) > np.sqrt(s)
        r = R[block, np.newaxis] + u / variance * (u + 2.0 * x - u * (twice / variance))
        parts = (part[usable, np.newaxis] for part in (s, q, 2.0 * complexity * r))
        s_left, q_left, excess = parts
        gains = addition_gains(s_left, q_left, prior, excess)
        gains = gains + np.broadcast_to(deletion, s.shape)[usable]
        largest = max(largest, float(np.max(gains, initial=0.0)))
    return largest


def log_prior(alpha: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return the log density of ln alpha under Gamma(shape, rate), minus its maximum."""
    shape, rate = prior
    if shape == 0.0:
        return -rate * alpha
    return shape * (np.log(alpha * rate / shape) + 1.0) - rate * alpha


def error_of_weights(problem: WeightsProblem) -> float:
    """Return the largest step of Newton's method for one class, in posterior standard deviations."""
    flat = problem.is_flat
    variances, axes = np.linalg.eigh(problem.precision[np.ix_(~flat, ~flat)])
    large = variances > _RESOLVED * variances.max(initial=0.0)
    axes, roots = axes[:, large], np.sqrt(variances[large])
    F = np.hstack([problem.Phi[:, flat], problem.Phi[:, ~flat] @ axes / roots])
    prior = np.repeat([0.0, 1.0], [flat.sum(), large.sum()])
    W = np.vstack(
        [problem.mu[flat], roots[:, np.newaxis] * (axes.T @ (problem.mu - problem.prior_mean)[~flat])]
    )
    eta, w = problem.Phi @ problem.mu, problem.weights[:, np.newaxis]
    if problem.noise_variance is None:
        both = np.hstack([np.zeros_like(eta), eta]) if eta.shape[1] == 1 else eta
        p = softmax(both, axis=1)[:, -eta.shape[1] :]
        slope, curvature = w * (problem.targets - p), w * p * (1.0 - p)
    else:
        slope, curvature = w * (problem.targets - eta) / problem.noise_variance, w / problem.noise_variance
    gradients = F.T @ slope - prior[:, np.newaxis] * W
    error = 0.0
    for gradient, b in zip(gradients.T, curvature.T, strict=True):
        factor = np.linalg.cholesky((F.T * b) @ F + np.diag(prior))
        error = max(error, float(np.abs(solve_triangular(factor, gradient, lower=True)).max()))
    return error


# --- columns in groups that share a precision -----------------------------------------------------
#
# Along the eigenvectors u_k of the sparsity matrix S of a group with itself left out, the objective depends
# on its precision alpha by
#
#     l(alpha) = 1/2 sum_k [n ln(alpha / (alpha + s_k)) + (q_k^2 - 2 n rho_k) / (alpha + s_k)].
#
# The prior on complexity has the weight c / (number of columns)^(3/4) for each column of a group.


def changes_of_groups(problem: Problem | OutputsProblem, fits: list[DenseFit]) -> tuple[float, float]:
    """Return the largest change of ln alpha to the nearest maximum, and the largest gain of a group outside.

    ``fits``: one for each output, which have the same noise.
    """
    assert problem.groups is not None
    n, (active, alphas, _), weights = len(fits), functions(problem), weights_of_functions(problem)
    change, gain, c = 0.0, 0.0, weights[active]
    for group in problem.groups:
        at = np.isin(active, group)
        if at.any():
            (alpha,) = np.unique(alphas[at])
            found = [fit.factors_of_active_group(at, alpha, c) for fit in fits]
            s, _, rho = found[0]
            q = np.stack([factors[1] for factors in found])
            change = max(change, _distance(s, np.sum(q**2, axis=0) - 2.0 * n * rho, n, alpha))
        elif not np.isin(group, problem.active).any():
            S, of_others = fits[0].factors_of_group(group, c)
            R = weights[group[0]] * S - of_others
            s, u = np.linalg.eigh(S)
            q = u.T @ np.stack([fit.Q[group] for fit in fits], axis=1)
            rho = np.maximum(np.sum(u * (R @ u), axis=0), 0.0)
            used = s > 1e-12 * s.max()
            gain = max(gain, _largest_gain(s[used], (np.sum(q**2, axis=1) - 2.0 * n * rho)[used], n))
    return change, gain


def weights_of_functions(problem: Problem | OutputsProblem) -> FloatArray:
    """Return the weight of each function of the dictionary in the prior on complexity."""
    weights = np.full(problem.Phi.shape[1], problem.complexity)
    for group in problem.groups or []:
        weights[group] = problem.complexity / len(group) ** 0.75
    return weights


def _distance(s: FloatArray, square: FloatArray, n: int, alpha: float) -> float:
    """Return the distance in ln alpha of the nearest maximum uphill; infinite if that is at infinity."""

    def slope(x: float) -> float:  # dl / d ln alpha
        alpha = np.exp(x)
        return float(0.5 * np.sum(n * s / (alpha + s) - alpha * square / (alpha + s) ** 2))

    x = float(np.log(alpha))
    uphill = np.sign(slope(x))
    for near, far in pairwise(_DISTANCES_OF_GROUPS):
        if uphill * slope(x + uphill * far) <= 0.0:
            return float(abs(brentq(slope, x + uphill * near, x + uphill * far, xtol=1e-12) - x))
    return float(np.inf)


def _largest_gain(s: FloatArray, square: FloatArray, n: int) -> float:
    """Return the largest value of l, 0 at an infinite precision."""
    if len(s) == 0:
        return 0.0
    alpha = np.exp(np.log(s.max()) + _SCAN)[:, np.newaxis]
    values = 0.5 * np.sum(-n * np.log1p(s / alpha) + square / (alpha + s), axis=1)
    return max(float(values.max()), 0.0)
