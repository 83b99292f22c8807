"""The certificate of a fitted model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import svd  # SciPy's refuses empty models before 1.14
from numpy.typing import ArrayLike

from .._checks.targets import last_step
from .._estimators.variational import bounded, constants, per_function
from .._types import FloatArray, Likelihood, OutputsProblem, Problem
from ._hyperpriors import best_alpha
from ._laplace import derivatives, find_mode, objective
from ._softmax import SoftmaxRows

if TYPE_CHECKING:
    from ._probit import Fitted

#: Columns of the dictionary worked on at a time: bounds the memory beside the dictionary itself.
_BLOCK = 512


@dataclass(frozen=True)
class Certificate:
    """How far a model is from the optimum that its fit claims; with several binary fits, the worst of them.

    Several outputs of a regression share their precisions: there changes and gains are those of a function
    with all its weights.

    Attributes
    ----------
    max_log_alpha_change : float
        Largest change of the log of a precision that one more re-estimation would make (Tipping & Faul 2003,
        equation 20); inf where a function should leave the model (equation 21).
    max_gain_outside : float
        Largest gain in log evidence, in nats, from adding a function that is not in the model (appendix,
        A.2); 0 where no function outside has anything to give.
    log_beta_residual : float
        Size of the change of the log of the noise precision that step 9 of the algorithm would make. 0 where
        the noise was given or the likelihood has none; at the floor of the noise variance 0 if the evidence
        asks for less noise still.
    max_mean_error : float
        Largest difference of a posterior mean of the model from the mean (or the mode) that its
        hyperparameters imply, in posterior standard deviations.
    log_marginal_likelihood : float
        Log evidence in nats, the sum over the binary fits or outputs; Laplace approximation for likelihoods
        other than the Gaussian.
    n_active : int
        Functions in the model.
    n_basis : int
        Functions in the dictionary.
    max_gain_exchange : float or None
        Largest gain in log evidence, in nats, from taking a function out and another in, at its best
        precision, the noise and all other precisions being held; 0 where no exchange gains. None where it was
        not asked for: with ``search="greedy"``, unless ``exchanges=True``. A fit with ``search="exchange"``
        ends where it is below 1e-3 with a Gaussian likelihood. With other likelihoods an exchange that seems
        to gain may have been tried, and lost when the mode was found again.
    """

    max_log_alpha_change: float
    max_gain_outside: float
    log_beta_residual: float
    max_mean_error: float
    log_marginal_likelihood: float
    n_active: int
    n_basis: int
    max_gain_exchange: float | None = None


def certificate(
    est: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    y_std: ArrayLike | None = None,
    exchanges: bool | None = None,
) -> Certificate:
    r"""Certify that a fitted model is a maximum of the marginal likelihood.

    Computes the sparsity and quality factors of the whole dictionary (Tipping & Faul 2003, equations 22 to
    25) from the covariance of the targets :math:`C = B^{-1} + \Phi A^{-1} \Phi^T` and holds the model against
    the conditions of section 4.4. Takes N M K operations, and little memory beside the N x K dictionary.

    Parameters
    ----------
    est : fitted estimator of this package, or a pipeline that ends in one
    X : array-like of shape (n_samples, n_features)
        The training data.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        The training targets or labels.
    sample_weight : array-like of shape (n_samples,), optional
        The weights of the fit.
    y_std : array-like of shape (n_samples,), optional
        The standard deviations of the targets, if the fit had them.
    exchanges : bool, optional
        Whether to look at all exchanges of a function for another; None: where the fit was to
        (``search="exchange"``). Takes K M^2 operations more. Several outputs, `MRVM1`
        and variational models have no such number.

    Returns
    -------
    Certificate

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is none of this package, or has no evidence (`MRVM2`), or X, y cannot be its training data.

    Notes
    -----
    For likelihoods other than the Gaussian what is certified is the fixed point of the classic algorithm: a
    maximum of the evidence of the problem linearised at the posterior mode (Tipping & Faul 2003, section
    2.2), whose working weights B are taken for constants. They do depend on the precisions, through the mode,
    so that this is close to a stationary point of the Laplace approximation itself, but not quite one.

    After ``scheme="variational"`` a fixed point of the updates of Bishop & Tipping (2000) is certified, with
    q(w) and the bounds of Jaakkola & Jordan (2000) found anew. Gains are gains of the lower bound.

    For `MRVM1` it is a maximum of the evidence of the auxiliary targets (Psorakis et al. 2010, equation 6),
    which are computed anew from the scores of the model (3, 4): a fixed point of E- and M-step.

    A local maximum is certified, as there may be many; the log evidence tells which of two is better.

    References
    ----------
    M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVR, inspection
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.cos(37 * np.arange(100))
    >>> found = inspection.certificate(RVR(gamma=0.1).fit(X, y), X, y)
    >>> found.max_log_alpha_change < 1e-5, found.max_gain_outside < 1e-6
    (True, True)
    """
    est, X = last_step(est, X)
    if not hasattr(est, "_problems"):
        raise TypeError(f"est must be a fitted estimator of this package, got {est!r}")
    known = {} if y_std is None else {"y_std": y_std}
    if known and not hasattr(est, "_y_variance"):
        raise ValueError(f"y_std must be None: a fit of {type(est).__name__} has none")
    fits = [_certify(problem, exchanges) for problem in est._problems(X, y, sample_weight, **known)]
    gains = [fit.max_gain_exchange for fit in fits if fit.max_gain_exchange is not None]
    return Certificate(
        max_log_alpha_change=max(fit.max_log_alpha_change for fit in fits),
        max_gain_outside=max(fit.max_gain_outside for fit in fits),
        log_beta_residual=max(fit.log_beta_residual for fit in fits),
        max_mean_error=max(fit.max_mean_error for fit in fits),
        log_marginal_likelihood=float(sum(fit.log_marginal_likelihood for fit in fits)),
        n_active=len(est.alpha_),
        n_basis=fits[0].n_basis,
        max_gain_exchange=max(gains, default=None),
    )


@dataclass(frozen=True)
class _Fit:
    """One fit as the regression problem it is, or is linearised to: unit noise, prior deviations of one.

    Its design is psi = ``root`` Phi alpha^-1/2, and C = 1 + psi psi^T the covariance of its targets, with
    eigenvalues 1 + ``singular``^2 along the columns of ``left`` and 1 elsewhere. Written out, C would lose to
    rounding twice the digits that psi loses, and with little noise that is all of them.
    """

    #: Whitens the rows: square root of the noise precision of each.
    root: FloatArray
    #: psi = left diag(singular) right.
    left: FloatArray
    singular: FloatArray
    right: FloatArray
    #: Posterior mean of the weights, each times the root of its alpha.
    mean: FloatArray
    #: Phi^T pull = Q; at the posterior mean the slope of the log likelihood in the linear predictor.
    pull: FloatArray
    log_evidence: float
    #: Step 9 of the algorithm: the new ln beta less the old.
    log_beta_change: float


def _certify(problem: Problem | OutputsProblem, exchanges: bool | None = None) -> Certificate:
    """Compute the certificate of one fit."""
    if isinstance(problem, OutputsProblem):
        # Made of the parts of this module, which is why it cannot be imported above.
        from ._outputs import certify_outputs

        return certify_outputs(problem)
    used = slice(None) if problem.weights is None else problem.weights > 0.0
    Phi, t = problem.Phi[used], problem.target[used]
    w = np.ones(len(t)) if problem.weights is None else problem.weights[used]
    written_out = _several_logits if problem.likelihood == "multinomial" else _one_predictor
    fit, S, Q = written_out(problem, Phi, t, w)
    error = (np.sqrt(problem.alpha) * problem.mu - fit.mean) / _posterior_deviation(fit)
    change = {
        "estimated": abs(fit.log_beta_change),
        "floor": max(-fit.log_beta_change, 0.0),
        "fixed": 0.0,
        "none": 0.0,
    }
    active, prior = problem.active, problem.alpha_prior
    gaussian = problem.likelihood == "gaussian"
    inside = _factors_inside(fit, problem.alpha) if gaussian else (S[active], Q[active])
    return Certificate(
        max_log_alpha_change=_max_log_alpha_change(*inside, problem.alpha, prior),
        max_gain_outside=_max_gain(np.delete(S, active), np.delete(Q, active), problem),
        log_beta_residual=change[problem.noise],
        max_mean_error=float(np.max(np.abs(error), initial=0.0)),
        log_marginal_likelihood=fit.log_evidence
        + constants(problem, float(w.sum()))
        + problem.log_evidence_of_weights,
        n_active=len(problem.alpha),
        n_basis=Phi.shape[1],
        max_gain_exchange=_exchanges(problem, exchanges, fit, (S, Q), (Phi, t, w)),
    )


def _exchanges(
    problem: Problem,
    asked: bool | None,
    fit: _Fit,
    factors: tuple[FloatArray, FloatArray],
    rows: tuple[FloatArray, FloatArray, FloatArray],
) -> float | None:
    """Return the largest gain of an exchange, None if that is not wanted or there is no such thing."""
    wanted = problem.exchanges if asked is None else asked
    if not wanted or problem.variational:
        return None
    # Made of the parts of this module, which is why it cannot be imported above.
    from ._exchange import max_gain_exchange

    if problem.likelihood != "multinomial":
        return max_gain_exchange(problem, fit, *factors, lambda block: fit.root[:, None] * rows[0][:, block])
    softmax = SoftmaxRows.of(problem, *rows)
    eta, every = softmax.logits(fit.mean), np.arange(softmax.n_basis)
    return max_gain_exchange(problem, fit, *factors, lambda block: softmax.whitened(every[block], eta))


def _one_predictor(
    problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[_Fit, FloatArray, FloatArray]:
    """Return a fit of one linear predictor, with S and Q of the dictionary (equation 22)."""
    scaled = Phi[:, problem.active] / np.sqrt(problem.alpha)
    if problem.likelihood == "gaussian":
        fit = _gaussian(scaled, t, w, problem.beta, problem.noise_prior)
    elif problem.variational:
        fit = _Fit(*bounded(scaled, t, w), 0.0)
    else:
        fit = _linearised(scaled, t, w, problem.likelihood)
    return fit, _sparsities(Phi, fit), Phi.T @ fit.pull


def _sparsities(Phi: FloatArray, fit: _Fit) -> FloatArray:
    """Return S of the dictionary for one linear predictor."""
    return _factors(lambda block: fit.root[:, np.newaxis] * Phi[:, block], Phi.shape[1], fit)


def _several_logits(
    problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[_Fit, FloatArray, FloatArray]:
    """Return a fit of one linear predictor per class: the Laplace approximation with the full Hessian."""
    rows = SoftmaxRows.of(problem, Phi, t, w)
    mode = rows.mode()
    eta = rows.logits(mode)
    left, singular, right = svd(
        rows.whitened(problem.active, eta) / np.sqrt(problem.alpha), full_matrices=False
    )
    log_evidence = rows.objective(mode) - 0.5 * float(np.log1p(singular**2).sum())
    Q = rows.slopes(eta)
    fit = _Fit(np.ones(len(left)), left, singular, right, mode, Q, log_evidence, 0.0)
    S = _factors(lambda block: rows.whitened(np.arange(rows.n_basis)[block], eta), rows.n_basis, fit)
    return fit, S, Q


def _gaussian(
    scaled: FloatArray, t: FloatArray, w: FloatArray, beta: float, prior: tuple[float, float]
) -> _Fit:
    """Posterior and evidence of regression (Tipping & Faul 2003, equations 6 to 8).

    ``scaled`` holds the active functions over the roots of their alphas. A row of weight w_n counts w_n
    times: its noise precision is beta w_n, and the number of rows is sum(w).
    """
    root = np.sqrt(beta * w)
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    inside, outside = _split(root * t, left)
    shrunk = inside / (1.0 + singular**2)
    residual = left @ shrunk + outside
    fit = inside @ shrunk + outside @ outside
    determined = float(np.sum(singular**2 / (1.0 + singular**2)))
    log_evidence = 0.5 * (w.sum() * np.log(beta / (2.0 * np.pi)) - np.log1p(singular**2).sum() - fit)
    return _Fit(
        root=root,
        left=left,
        singular=singular,
        right=right,
        mean=right.T @ (singular * shrunk),
        pull=root * residual,
        log_evidence=float(log_evidence),
        log_beta_change=_log_ratio(
            float(w.sum()) - determined + 2.0 * prior[0],
            float(residual @ residual) + 2.0 * prior[1] * beta,
        ),
    )


def _linearised(scaled: FloatArray, t: FloatArray, w: FloatArray, likelihood: Likelihood) -> _Fit:
    """Mode and Laplace evidence (Tipping & Faul 2003, section 2.2; Tipping 2001, section 3)."""
    mode = find_mode(scaled, t, w, likelihood)
    slope, curvature = derivatives(likelihood, scaled @ mode, t, w)
    root = np.sqrt(curvature)
    left, singular, right = svd(root[:, np.newaxis] * scaled, full_matrices=False)
    # ln|H| - sum ln alpha = ln|1 + psi^T psi|.
    log_evidence = objective(likelihood, scaled, mode, t, w) - 0.5 * float(np.log1p(singular**2).sum())
    return _Fit(root, left, singular, right, mode, slope, log_evidence, 0.0)


def _split(vectors: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coordinates along ``left`` and what is orthogonal to it, with a second pass against rounding."""
    inside = left.T @ vectors
    outside = vectors - left @ inside
    correction = left.T @ outside
    return inside + correction, outside - left @ correction


def _factors(whitened: Callable[[slice], FloatArray], n_basis: int, fit: _Fit) -> FloatArray:
    """Return S_i = phi_i^T C^-1 phi_i of the whole dictionary (Tipping & Faul 2003, equation 22).

    ``whitened``: a block of its columns, each row times the root of its noise precision.
    """
    S = np.empty(n_basis)
    shrinkage = 1.0 / (1.0 + fit.singular**2)
    for start in range(0, n_basis, _BLOCK):
        block = slice(start, start + _BLOCK)
        inside, outside = _split(whitened(block), fit.left)
        S[block] = shrinkage @ inside**2 + np.sum(outside**2, axis=0)
    return S


def _factors_inside(fit: _Fit, alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return S and Q of the functions in the model: alpha - alpha^2 Sigma_ii and alpha mu_i.

    The same numbers as equation 22 has, whose sums over the rows lose Q where precisions lie decades apart.
    """
    determined = (fit.right**2).T @ (fit.singular**2 / (1.0 + fit.singular**2))
    return alpha * determined, np.sqrt(alpha) * fit.mean


def _max_log_alpha_change(
    S: FloatArray, Q: FloatArray, alpha: FloatArray, prior: tuple[float, float]
) -> float:
    """Return the largest size of ln(new alpha / alpha) (equation 20); inf if a function should leave (21).

    With s = alpha S / (alpha - S) and q = alpha Q / (alpha - S) (equation 23), alpha (q^2 - s) / s^2 is
    written in S and Q: alpha - S is lost to rounding where a weight is well determined.
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


def _max_gain(S: FloatArray, Q: FloatArray, problem: Problem) -> float:
    """Return the largest gain of adding a function (appendix A.2); columns of zeros have none."""
    S, Q = S[S > 0.0], Q[S > 0.0]
    excess = Q**2 / S - 1.0
    if problem.alpha_prior != (0.0, 0.0):
        # The prior's part is never positive.
        wanted = excess > 0.0
        gain = best_alpha(S[wanted], Q[wanted], problem.alpha_prior)[1] + per_function(problem)
        return float(np.max(gain, initial=0.0))
    excess = excess[excess > 0.0]
    return float(np.max(0.5 * (excess - np.log1p(excess)), initial=0.0))


def _posterior_deviation(fit: _Fit) -> FloatArray:
    """Return posterior standard deviations, each times the root of its alpha."""
    variance = (fit.right**2).T @ (1.0 / (1.0 + fit.singular**2))
    if len(fit.singular) < len(variance):
        # More functions than rows: directions the data do not reach keep their prior variance of one.
        variance += np.maximum(1.0 - np.sum(fit.right**2, axis=0), 0.0)
    deviation: FloatArray = np.sqrt(variance)
    return deviation


def _log_ratio(a: float, b: float) -> float:
    """Return ln(a / b) for b >= 0, taking it as far as infinity where a or b is nought."""
    if b <= 0.0:
        return np.inf
    return float(np.log(a / b)) if a > 0.0 else -np.inf
