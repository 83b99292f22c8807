"""Is a fitted model optimal? An answer from the dense covariance, by code of its own.

Nothing here is shared with the solver: kernels are evaluated in NumPy and every quantity comes from an N x N
Cholesky factorisation, in time O(N^2 (N + K)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.special import expit, gammaln

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._types import FloatArray, Problem

__all__ = ["Certificate", "certificate"]

#: Below this, alpha - S is mostly rounding and the leave-one-out factors are taken from the posterior instead.
_CANCELLED = 1e-6


@dataclass(frozen=True)
class Certificate:
    """How far a model is from the optimum of Tipping & Faul (2003), section 4.4.

    For classifiers of more than two classes each one-against-rest model is examined: distances are the worst,
    the evidence and the counts are sums.

    Attributes
    ----------
    max_log_alpha_change : float
        Largest ``|ln(alpha_new / alpha)|`` over the active functions, alpha_new by equation (20); infinite if one
        of them should be deleted.
    max_gain_outside : float
        Largest gain, in nats, that adding any one function of the dictionary would bring.
    log_beta_residual : float
        ``|ln(beta_new / beta)|`` with beta_new by step 9 of the algorithm; 0 for noise that is fixed or absent,
        and for noise at its floor that the data would push further down.
    log_marginal_likelihood : float
        Log evidence, equation (7); for other likelihoods than the Gaussian its Laplace approximation.
    n_active, n_basis : int
        Functions in the model and in the dictionary.
    """

    max_log_alpha_change: float
    max_gain_outside: float
    log_beta_residual: float
    log_marginal_likelihood: float
    n_active: int
    n_basis: int


def certificate(est: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Certificate:
    """Recompute from scratch how optimal a fitted estimator is.

    Parameters
    ----------
    est : RVR, RVC, SparseBayesRegressor or SparseBayesClassifier
        A fitted estimator.
    X, y, sample_weight : array-like
        The data it was fitted to. Memory is a few N x N matrices: meant for N up to several thousand.

    Returns
    -------
    Certificate
        At status "converged" its distances are at most 1e-5, 1e-6 nats and 1e-5.

    Raises
    ------
    ValueError
        If X, y or sample_weight are not those of the fit, as far as their shapes tell.

    Notes
    -----
    For Bernoulli and Poisson targets the posterior mode is found anew from the alphas, and the condition examined
    is the classic one, in which the weights B of the Laplace approximation are constants in alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR
    >>> X = np.linspace(-10, 10, 50)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).standard_normal(50)
    >>> certificate(RVR(gamma=0.2).fit(X, y), X, y).max_gain_outside < 1e-6
    True
    """
    parts = [_examine(problem) for problem in est._problems(X, y, sample_weight)]
    return Certificate(
        max_log_alpha_change=max(part.max_log_alpha_change for part in parts),
        max_gain_outside=max(part.max_gain_outside for part in parts),
        log_beta_residual=max(part.log_beta_residual for part in parts),
        log_marginal_likelihood=sum(part.log_marginal_likelihood for part in parts),
        n_active=sum(part.n_active for part in parts),
        n_basis=sum(part.n_basis for part in parts),
    )


def _examine(problem: Problem) -> Certificate:
    dense = _Gaussian(problem) if problem.likelihood == "gaussian" else _Laplace(problem)
    s, q = _leave_out(problem, dense)
    inside = np.zeros(len(s), dtype=bool)
    inside[problem.active] = True
    return Certificate(
        max_log_alpha_change=_alpha_change(s[inside], q[inside], problem.alpha),
        max_gain_outside=_gain(s[~inside], q[~inside]),
        log_beta_residual=dense.log_beta_residual(),
        log_marginal_likelihood=dense.log_evidence(),
        n_active=int(inside.sum()),
        n_basis=len(inside),
    )


class _Gaussian:
    """Covariance C = I / beta + Phi A^-1 Phi^T over rows multiplied by the root of their weights: equation (8)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        n = len(problem.target)
        weights = np.ones(n) if problem.weights is None else problem.weights
        self.n_obs = float(weights.sum())
        root = np.sqrt(weights)
        self.t = root * problem.target
        self.phi = root[:, None] * problem.Phi
        self.active = self.phi[:, problem.active]
        covariance = (self.active / problem.alpha) @ self.active.T
        covariance[np.diag_indices(n)] += 1.0 / problem.beta
        self.factor = cholesky(covariance, lower=True, overwrite_a=True)

    def in_model(self) -> tuple[FloatArray, FloatArray]:
        """S and Q of every function: equation (22)."""
        half = solve_triangular(self.factor, self.phi, lower=True)
        return np.einsum("ij,ij->j", half, half), half.T @ self._half_target()

    def _half_target(self) -> FloatArray:
        return np.asarray(solve_triangular(self.factor, self.t, lower=True))

    def posterior(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variances of the weights: equation (6)."""
        H = np.diag(self.problem.alpha) + self.problem.beta * self.active.T @ self.active
        sigma = np.linalg.inv(H)
        return self.problem.beta * sigma @ (self.active.T @ self.t), np.diag(sigma)

    def log_beta_residual(self) -> float:
        problem = self.problem
        if problem.noise == "fixed":
            return 0.0
        mean, variance = self.posterior()
        residual = self.t - self.active @ mean
        degrees = self.n_obs - np.sum(1.0 - problem.alpha * variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = float(np.log(degrees / (residual @ residual) / problem.beta))
        if problem.noise == "floor":
            return max(-change, 0.0) if not np.isnan(change) else 0.0
        return abs(change)

    def log_evidence(self) -> float:
        half = self._half_target()
        log_det = 2.0 * np.sum(np.log(np.diag(self.factor)))
        gaussian = -0.5 * (len(half) * np.log(2.0 * np.pi) + log_det + half @ half)
        # A row of weight w counts as w rows: w factors (beta / 2 pi)^(1/2), where the density above has one.
        missing = self.n_obs - len(half)
        return float(gaussian + 0.5 * missing * np.log(self.problem.beta / (2.0 * np.pi)))


class _Laplace:
    """The likelihood linearised at the posterior mode: equations (11) to (14).

    With B^(1/2) taken into the rows the covariance is I + B^(1/2) Phi A^-1 Phi^T B^(1/2): never singular, however
    certain the model is of some rows.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        n = len(problem.target)
        self.weights = np.ones(n) if problem.weights is None else problem.weights
        self.active = problem.Phi[:, problem.active]
        self.mean = self._mode()
        self.residual, curvature, self.log_likelihood = self._likelihood(self.mean)
        root = np.sqrt(curvature)
        self.phi = root[:, None] * problem.Phi
        active = self.phi[:, problem.active]
        self.factor = cholesky(np.eye(n) + (active / problem.alpha) @ active.T, lower=True, overwrite_a=True)
        self.curvature = curvature

    def _likelihood(self, mean: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """First derivative, minus the second, and the value of the log-likelihood."""
        eta, t, w = self.active @ mean, self.problem.target, self.weights
        if self.problem.likelihood == "bernoulli":
            p = expit(eta)
            value = t * eta - np.logaddexp(0.0, eta)
            return w * (t - p), w * p * expit(-eta), float(w @ value)
        with np.errstate(over="ignore"):
            rate = np.exp(eta)
        value = t * eta - rate - gammaln(t + 1.0)
        return w * (t - rate), w * rate, float(w @ value)

    def _mode(self) -> FloatArray:
        """Damped Newton on equation (10), from zero."""
        alpha = self.problem.alpha
        mean = np.zeros(len(alpha))
        for _ in range(1000):
            residual, curvature, value = self._likelihood(mean)
            gradient = self.active.T @ residual - alpha * mean
            H = np.diag(alpha) + self.active.T @ (curvature[:, None] * self.active)
            step = cho_solve(cho_factor(H, lower=True), gradient) if len(alpha) else gradient
            height = value - 0.5 * mean @ (alpha * mean)
            length, promise = 1.0, float(gradient @ step)
            if promise <= 1e-18 * (1.0 + abs(height)):
                break
            while length > 1e-12:
                candidate = mean + length * step
                risen = self._likelihood(candidate)[2] - 0.5 * candidate @ (alpha * candidate)
                # Rounding hides the last steps of a quadratic convergence; they are still right.
                if risen >= height + 1e-4 * length * promise or promise <= 1e-9:
                    break
                length *= 0.5
            mean = mean + length * step
        return mean

    def in_model(self) -> tuple[FloatArray, FloatArray]:
        """S and Q of every function; at the mode C^-1 t_hat is the gradient of the log-likelihood."""
        half = solve_triangular(self.factor, self.phi, lower=True)
        return np.einsum("ij,ij->j", half, half), self.problem.Phi.T @ self.residual

    def posterior(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variances of the weights: equation (13)."""
        H = np.diag(self.problem.alpha) + self.active.T @ (self.curvature[:, None] * self.active)
        return self.mean, np.diag(np.linalg.inv(H))

    def log_beta_residual(self) -> float:
        return 0.0

    def log_evidence(self) -> float:
        penalty = 0.5 * self.mean @ (self.problem.alpha * self.mean)
        # |H| / |A| = |I + B^(1/2) Phi A^-1 Phi^T B^(1/2)|
        return float(self.log_likelihood - penalty - np.sum(np.log(np.diag(self.factor))))


def _leave_out(problem: Problem, dense: _Gaussian | _Laplace) -> tuple[FloatArray, FloatArray]:
    """Sparsity and quality of every function, itself left out: equation (23)."""
    s, q = dense.in_model()
    active, alpha = problem.active, problem.alpha
    rest = alpha - s[active]
    mean, variance = dense.posterior()
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = rest > _CANCELLED * alpha
        s_out = np.where(plain, alpha * s[active] / rest, 1.0 / variance - alpha)
        q_out = np.where(plain, alpha * q[active] / rest, mean / variance)
    s[active], q[active] = s_out, q_out
    return s, q


def _alpha_change(s: FloatArray, q: FloatArray, alpha: FloatArray) -> float:
    """Largest |ln(alpha_new / alpha)|, alpha_new by equation (20)."""
    if len(alpha) == 0:
        return 0.0
    theta = q**2 - s
    if np.any(theta <= 0.0):
        return float("inf")
    return float(np.max(np.abs(np.log(s**2 / theta / alpha))))


def _gain(s: FloatArray, q: FloatArray) -> float:
    """Largest gain of an addition: appendix A.2. Columns of zeros have none."""
    real = s > 0.0
    excess = q[real] ** 2 / s[real] - 1.0
    excess = excess[excess > 0.0]
    return float(np.max(0.5 * (excess - np.log1p(excess)), initial=0.0))
