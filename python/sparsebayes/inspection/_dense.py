"""A fit as dense arrays, for certificates. Shares no code with the solver.

Holds the posterior and the evidence of a regression, the posterior mode for other likelihoods, and the gains
that single changes of the model would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.linalg import svd  # SciPy's refuses empty models before 1.14
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, gammaln

from .._types import FloatArray, Likelihood, Problem

#: Columns of the dictionary evaluated at a time: bounds the memory beside the dictionary itself.
_BLOCK = 512
#: Newton steps at most; and the squared distance, in posterior deviations, below which steps are not halved.
_NEWTON_STEPS = 500
_CLOSE = 1e-10
#: ln(alpha / s) of the scan for the best precision under a prior, and the bisections that follow it.
_LOG_RATIOS = np.linspace(-40.0, 40.0, 1601)
_BISECTIONS = 60
#: Smallest part of a column outside the span of the others that is not round-off, relative to its square.
_RESOLVED = 1e-11


@dataclass(frozen=True)
class Certificate:
    """How far a model is from the optimum that its fit claims; with several binary fits, the worst of them.

    The outputs of a regression share their precisions: there a basis function has one weight per output, and
    changes and gains are those of all its weights together.

    Attributes
    ----------
    max_log_alpha_change : float
        Largest change of the log of a precision that one more re-estimation would make (Tipping & Faul 2003,
        equation 20); inf if a basis function should be deleted (equation 21).
    max_gain_outside : float
        Largest gain in log evidence, in nats, from adding an inactive basis function (appendix, A.2); 0 if
        none has a gain.
    log_beta_residual : float
        Size of the change of the log of the noise precision that step 9 of the algorithm would make. 0 if the
        noise was given or the likelihood has none; at the floor of the noise variance 0 if the evidence would
        be larger with still less noise.
    max_mean_error : float
        Largest difference between a posterior mean of the model and the mean (or the mode) that its
        hyperparameters imply, in posterior standard deviations.
    log_marginal_likelihood : float
        Log evidence in nats, the sum over the binary fits or outputs; Laplace approximation for likelihoods
        other than the Gaussian.
    n_active : int
        Number of active basis functions.
    n_basis : int
        Number of basis functions in the dictionary.
    max_gain_exchange : float or None
        Largest gain in log evidence, in nats, from exchanging an active basis function for an inactive one at
        its best precision, with the noise and all other precisions fixed; 0 if no exchange has a gain. None
        if it was not computed: with ``search="greedy"``, unless ``exchanges=True``. With a Gaussian
        likelihood it is below 1e-3 after ``search="exchange"``. With other likelihoods the fit may have tried
        an exchange that seems to gain, and rejected it once the new mode was found.
    """

    max_log_alpha_change: float
    max_gain_outside: float
    log_beta_residual: float
    max_mean_error: float
    log_marginal_likelihood: float
    n_active: int
    n_basis: int
    max_gain_exchange: float | None = None


@dataclass(frozen=True)
class DenseFit:
    """A fit as a regression with unit noise and unit prior variances, after linearisation if necessary.

    Its design is psi = ``root`` Phi alpha^-1/2. The covariance of its targets, C = 1 + psi psi^T, has the
    eigenvalues 1 + ``singular``^2 along the columns of ``left`` and 1 elsewhere. Forming C would lose twice
    the digits that psi loses to round-off: with little noise, all of them.
    """

    #: Square root of the noise precision of each row.
    root: FloatArray
    #: psi = left diag(singular) right.
    left: FloatArray
    singular: FloatArray
    right: FloatArray
    #: Posterior mean of each weight, times the root of its alpha.
    mean: FloatArray
    #: Phi^T pull = Q: the slope of the log likelihood in the linear predictor at the posterior mean.
    pull: FloatArray
    log_evidence: float
    #: Step 9 of the algorithm: the new ln beta minus the old.
    log_beta_change: float

    @property
    def shrinkage(self) -> FloatArray:
        """1 / (1 + singular^2)."""
        return 1.0 / (1.0 + self.singular**2)

    @property
    def determined(self) -> FloatArray:
        """singular^2 / (1 + singular^2); the sum is the effective number of parameters."""
        return self.singular**2 / (1.0 + self.singular**2)

    @property
    def variance(self) -> FloatArray:
        """alpha_j Sigma_jj of each active basis function."""
        variance = (self.right**2).T @ self.shrinkage
        if len(self.singular) < len(variance):
            # More functions than rows: directions that the data do not determine keep the prior variance, 1.
            variance += np.maximum(1.0 - np.sum(self.right**2, axis=0), 0.0)
        return variance

    def sparsities(self, whitened: Callable[[slice], FloatArray], n_basis: int) -> FloatArray:
        """Return S_i = phi_i^T C^-1 phi_i of the whole dictionary (Tipping & Faul 2003, equation 22).

        ``whitened`` returns a block of columns of the dictionary, with each row multiplied by ``root``.
        """
        S, shrinkage = np.empty(n_basis), self.shrinkage
        for start in range(0, n_basis, _BLOCK):
            block = slice(start, start + _BLOCK)
            inside, outside = _split(whitened(block), self.left)
            S[block] = shrinkage @ inside**2 + np.sum(outside**2, axis=0)
        return S

    def active_factors(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return S = alpha - alpha^2 Sigma_ii and Q = alpha mu_i of the active basis functions.

        Equation 22 gives the same numbers as sums over the rows, which lose Q if precisions differ by
        decades.
        """
        return alpha * ((self.right**2).T @ self.determined), np.sqrt(alpha) * self.mean


def fit_regression(
    scaled: FloatArray, t: FloatArray, w: FloatArray, beta: float, prior: tuple[float, float] = (0.0, 0.0)
) -> DenseFit:
    """Return posterior and evidence of a regression (Tipping & Faul 2003, equations 6 to 8).

    ``scaled`` holds the active functions divided by the roots of their alphas. A row of weight w_n counts w_n
    times: its noise precision is beta w_n, and the number of rows is sum(w).
    """
    root = np.sqrt(beta * w)
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    inside, outside = _split(root * t, left)
    shrunk = inside / (1.0 + singular**2)
    residual = left @ shrunk + outside
    misfit = inside @ shrunk + outside @ outside
    determined = float(np.sum(singular**2 / (1.0 + singular**2)))
    log_evidence = 0.5 * (w.sum() * np.log(beta / (2.0 * np.pi)) - np.log1p(singular**2).sum() - misfit)
    log_beta_change = log_ratio(
        float(w.sum()) - determined + 2.0 * prior[0], float(residual @ residual) + 2.0 * prior[1] * beta
    )
    mean = right.T @ (singular * shrunk)
    return DenseFit(root, left, singular, right, mean, root * residual, float(log_evidence), log_beta_change)


def fit_laplace(scaled: FloatArray, t: FloatArray, w: FloatArray, likelihood: Likelihood) -> DenseFit:
    """Return mode and Laplace evidence (Tipping & Faul 2003, section 2.2; Tipping 2001, section 3)."""

    def objective(mode: FloatArray) -> float:
        return float(w @ _log_likelihood(likelihood, scaled @ mode, t) - 0.5 * mode @ mode)  # equation 10

    def derivatives(mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = _derivatives(likelihood, scaled @ mode, t, w)
        hessian = np.eye(len(mode)) + scaled.T @ (curvature[:, np.newaxis] * scaled)
        return scaled.T @ slope - mode, hessian

    mode = find_mode(scaled.shape[1], derivatives, objective)
    slope, curvature = _derivatives(likelihood, scaled @ mode, t, w)
    root = np.sqrt(curvature)
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    # ln|H| - sum ln alpha = ln|1 + psi^T psi|.
    log_evidence = objective(mode) - 0.5 * float(np.log1p(singular**2).sum())
    return DenseFit(root, left, singular, right, mode, slope, log_evidence, 0.0)


def _derivatives(
    likelihood: Likelihood, eta: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the slope of the log likelihood in eta and its negative curvature, the B of equation 11."""
    if likelihood == "bernoulli":
        up, down = expit(-eta), expit(eta)
        return w * (t * up - (1.0 - t) * down), w * up * down
    mean = np.exp(eta)
    return w * (t - mean), w * mean


def _log_likelihood(likelihood: Likelihood, eta: FloatArray, t: FloatArray) -> FloatArray:
    """Return the log likelihood of each row at the linear predictor eta."""
    if likelihood == "bernoulli":
        return -t * np.logaddexp(0.0, -eta) - (1.0 - t) * np.logaddexp(0.0, eta)
    with np.errstate(over="ignore"):
        terms: FloatArray = t * eta - np.exp(eta) - gammaln(t + 1.0)
    return terms


def find_mode(
    size: int,
    derivatives: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    objective: Callable[[FloatArray], float],
) -> FloatArray:
    """Maximise a concave function from zero by Newton's method with step halving.

    ``derivatives`` returns its gradient and its negative Hessian.
    """
    mode = np.zeros(size)
    last = np.inf
    for _ in range(_NEWTON_STEPS):
        gradient, hessian = derivatives(mode)
        # SciPy 1.10 cannot solve a system of no unknowns.
        step = cho_solve(cho_factor(hessian), gradient) if size else gradient
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
    return mode


def _split(vectors: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coordinates along ``left`` and the remainder, after a second projection against round-off."""
    inside = left.T @ vectors
    outside = vectors - left @ inside
    correction = left.T @ outside
    return inside + correction, outside - left @ correction


def log_ratio(a: float, b: float) -> float:
    """Return ln(a / b) for b >= 0, infinite where a or b is zero."""
    if b <= 0.0:
        return np.inf
    return float(np.log(a / b)) if a > 0.0 else -np.inf


# --- gains of single changes ----------------------------------------------------------------------


def max_log_alpha_change(
    S: FloatArray, Q: FloatArray, alpha: FloatArray, prior: tuple[float, float]
) -> float:
    """Return the largest |ln(new alpha / alpha)| (equation 20); inf if a function should be deleted (21).

    With s = alpha S / (alpha - S) and q = alpha Q / (alpha - S) (equation 23), alpha (q^2 - s) / s^2 is
    written in S and Q, because alpha - S is lost to round-off for a weight that the data determine well.
    """
    if len(alpha) == 0:
        return 0.0
    if (S <= 0.0).any():
        return np.inf
    if prior != (0.0, 0.0):
        best, gain = best_alpha(alpha * S / (alpha - S), alpha * Q / (alpha - S), prior)
        return float(np.abs(np.log(best / alpha)).max()) if (gain > 0.0).all() else np.inf
    ratio = 1.0 + alpha / S * (Q**2 / S - 1.0)
    return float(np.abs(np.log(ratio)).max()) if (ratio > 0.0).all() else np.inf


def addition_gains(s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return the gain of adding functions with these factors at their best precision (equation 27)."""
    if prior != (0.0, 0.0):
        return best_alpha(s, q, prior)[1]
    excess = np.maximum(q**2 / s - 1.0, 0.0)
    return 0.5 * (excess - np.log1p(excess))


def max_gain_exchange(
    problem: Problem, fit: DenseFit, S: FloatArray, Q: FloatArray, whitened: Callable[[slice], FloatArray]
) -> float:
    r"""Return the largest gain of an exchange, with the noise and other precisions fixed; 0 if none gains.

    Without function j the covariance of the targets is :math:`C - \alpha_j^{-1} \phi_j \phi_j^T`. With
    :math:`u_i = \phi_i^T B \Phi \Sigma_j` of the posterior, an inactive function i then has the factors

    .. math:: S_i + u_i^2 / \Sigma_{jj}, \qquad Q_i + u_i \mu_j / \Sigma_{jj}

    (Tipping & Faul 2003, appendix A.4), and its gain follows from equation 27. The deletion of j has the gain
    :math:`-\tfrac{1}{2} [\ln(\alpha_j \Sigma_{jj}) + \mu_j^2 / \Sigma_{jj}]`, mostly a loss. ``whitened``: as
    in `DenseFit.sparsities`.
    """
    if len(problem.alpha) == 0:
        return 0.0
    variance = fit.variance
    deletion = -0.5 * (np.log(variance) + fit.mean**2 / variance)
    if problem.alpha_prior != (0.0, 0.0):
        deletion = deletion - _log_prior(problem.alpha, problem.alpha_prior)
    inactive = np.ones(len(S), dtype=bool)
    inactive[problem.active] = False
    projection = (fit.shrinkage * fit.singular)[:, np.newaxis] * fit.right
    largest = 0.0
    for start in range(0, len(S), _BLOCK):
        block = slice(start, start + _BLOCK)
        columns = whitened(block)
        u = columns.T @ fit.left @ projection
        s = S[block, np.newaxis] + u**2 / variance
        q = Q[block, np.newaxis] + u * (fit.mean / variance)
        usable = inactive[block, np.newaxis] & (s > _RESOLVED * np.sum(columns**2, axis=0)[:, np.newaxis])
        usable &= q**2 > s
        gains = addition_gains(s[usable], q[usable], problem.alpha_prior)
        gains = gains + np.broadcast_to(deletion, s.shape)[usable]
        largest = max(largest, float(np.max(gains, initial=0.0)))
    return largest


def best_alpha(s: FloatArray, q: FloatArray, prior: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Return the alpha that maximises the log posterior under Gamma(shape, rate), and its gain.

    Found by a scan of ln alpha and bisection, for sparsity and quality factors s > 0 and q (Tipping & Faul
    2003, equation 19). The gain is relative to the model without the function (equation 18 and the prior).
    """
    shape, rate = prior

    def gain(alpha: FloatArray) -> FloatArray:
        return 0.5 * (q**2 / (alpha + s) - np.log1p(s / alpha)) + _log_prior(alpha, prior)

    values = gain(np.exp(_LOG_RATIOS)[:, np.newaxis] * s)
    best = np.clip(np.argmax(values, axis=0), 1, len(_LOG_RATIOS) - 2)

    def rising(log_ratio: FloatArray) -> NDArray[np.bool_]:
        alpha = np.exp(log_ratio) * s
        slope = 0.5 * (s / (alpha + s) - alpha * (q / (alpha + s)) ** 2) + shape - rate * alpha
        return np.asarray(slope > 0.0)

    alpha = np.exp(bisect(_LOG_RATIOS[best - 1], _LOG_RATIOS[best + 1], rising, _BISECTIONS)) * s
    return alpha, gain(alpha)


def bisect(
    low: FloatArray, high: FloatArray, rising: Callable[[FloatArray], NDArray[np.bool_]], n: int
) -> FloatArray:
    """Return the maxima between ``low`` and ``high`` of functions that are ``rising`` below them."""
    for _ in range(n):
        middle = 0.5 * (low + high)
        up = rising(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return 0.5 * (low + high)


def _log_prior(alpha: FloatArray, prior: tuple[float, float]) -> FloatArray:
    """Return the log density of ln alpha under Gamma(shape, rate), minus its maximum."""
    shape, rate = prior
    if shape == 0.0:
        return -rate * alpha
    return shape * (np.log(alpha * rate / shape) + 1.0) - rate * alpha
