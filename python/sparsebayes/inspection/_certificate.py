"""`certificate`: the optimality of a fitted model, and which computation each kind of model needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import svd  # SciPy's refuses empty models before 1.14
from numpy.typing import ArrayLike

from .._checks.targets import last_step
from .._estimators.variational import bounded, constants, per_function
from .._types import FloatArray, OutputsProblem, PerRow, Problem
from ._dense import (
    Certificate,
    DenseFit,
    addition_gains,
    fit_laplace,
    fit_regression,
    max_gain_exchange,
    max_log_alpha_change,
)
from ._outputs import certify_outputs
from ._softmax import SoftmaxRows

if TYPE_CHECKING:
    from ._probit import Fitted


def certificate(
    est: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: PerRow = None,
    *,
    y_std: PerRow = None,
    exchanges: bool | None = None,
) -> Certificate:
    r"""Certify that a fitted model is a maximum of the marginal likelihood.

    Computes the sparsity and quality factors of the whole dictionary (Tipping & Faul 2003, equations 22 to
    25) from the covariance of the targets :math:`C = B^{-1} + \Phi A^{-1} \Phi^T` and compares the model with
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
        Whether to compute the gains of all exchanges of one basis function for another, with K M^2 more
        operations; None: if ``est`` has ``search="exchange"``. Not available for several outputs, `MRVM1` and
        variational models.

    Returns
    -------
    Certificate

    Raises
    ------
    NotFittedError
        If ``est`` is not fitted.
    TypeError, ValueError
        If ``est`` is not an estimator of this package, or has no evidence (`MRVM2`), or X, y cannot be its
        training data.

    Notes
    -----
    For likelihoods other than the Gaussian the certificate is about the fixed point of the classic algorithm:
    a maximum of the evidence of the problem linearised at the posterior mode (Tipping & Faul 2003, section
    2.2), with constant working weights B. As B depends on the precisions through the mode, the fixed point is
    close to a stationary point of the Laplace approximation, but not exactly one.

    After ``scheme="variational"`` it is about a fixed point of the updates of Bishop & Tipping (2000), with
    q(w) and the bounds of Jaakkola & Jordan (2000) computed anew. Gains are gains of the lower bound.

    For `MRVM1` it is about a maximum of the evidence of the auxiliary targets (Psorakis et al. 2010, equation
    6), computed anew from the scores of the model (3, 4): a fixed point of E- and M-step.

    It certifies a local maximum, of which there may be many; compare two by their log evidence.

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
    fits = [
        certify_outputs(problem) if isinstance(problem, OutputsProblem) else _certify(problem, exchanges)
        for problem in est._problems(X, y, sample_weight, **known)
    ]
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


def _certify(problem: Problem, exchanges: bool | None) -> Certificate:
    """Compute the certificate of one fit of one target."""
    used = slice(None) if problem.weights is None else problem.weights > 0.0
    Phi, t = problem.Phi[used], problem.target[used]
    w = np.ones(len(t)) if problem.weights is None else problem.weights[used]
    describe = _several_logits if problem.likelihood == "multinomial" else _one_predictor
    fit, Q, whitened = describe(problem, Phi, t, w)
    S = fit.sparsities(whitened, len(Q))
    error = (np.sqrt(problem.alpha) * problem.mu - fit.mean) / np.sqrt(fit.variance)
    active, step = problem.active, fit.log_beta_change
    residual = {"estimated": abs(step), "floor": max(-step, 0.0), "fixed": 0.0, "none": 0.0}
    is_gaussian = problem.likelihood == "gaussian"
    factors = fit.active_factors(problem.alpha) if is_gaussian else (S[active], Q[active])
    wanted = (problem.exchanges if exchanges is None else exchanges) and not problem.variational
    return Certificate(
        max_log_alpha_change=max_log_alpha_change(*factors, problem.alpha, problem.alpha_prior),
        max_gain_outside=_max_gain(np.delete(S, active), np.delete(Q, active), problem),
        log_beta_residual=residual[problem.noise],
        max_mean_error=float(np.max(np.abs(error), initial=0.0)),
        log_marginal_likelihood=fit.log_evidence
        + constants(problem, float(w.sum()))
        + problem.log_evidence_of_weights,
        n_active=len(problem.alpha),
        n_basis=Phi.shape[1],
        max_gain_exchange=max_gain_exchange(problem, fit, S, Q, whitened) if wanted else None,
    )


def _one_predictor(
    problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[DenseFit, FloatArray, Callable[[slice], FloatArray]]:
    """Return the fit of one linear predictor, Q of the dictionary, and its whitened columns."""
    scaled = Phi[:, problem.active] / np.sqrt(problem.alpha)
    if problem.likelihood == "gaussian":
        fit = fit_regression(scaled, t, w, problem.beta, problem.noise_prior)
    elif problem.variational:
        fit = DenseFit(*bounded(scaled, t, w), 0.0)
    else:
        fit = fit_laplace(scaled, t, w, problem.likelihood)
    return fit, Phi.T @ fit.pull, lambda block: fit.root[:, np.newaxis] * Phi[:, block]


def _several_logits(
    problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray
) -> tuple[DenseFit, FloatArray, Callable[[slice], FloatArray]]:
    """Return the same for one predictor per class: the Laplace approximation with the full Hessian."""
    rows = SoftmaxRows(problem, Phi, t.astype(np.intp), w)
    mode = rows.mode()
    eta, every = rows.logits(mode), np.arange(rows.n_basis)
    psi = rows.whitened(problem.active, eta) / np.sqrt(problem.alpha)
    left, singular, right = svd(psi, full_matrices=False)
    log_evidence = rows.objective(mode) - 0.5 * float(np.log1p(singular**2).sum())
    Q = rows.slopes(eta)
    fit = DenseFit(np.ones(len(left)), left, singular, right, mode, Q, log_evidence, 0.0)
    return fit, Q, lambda block: rows.whitened(every[block], eta)


def _max_gain(S: FloatArray, Q: FloatArray, problem: Problem) -> float:
    """Return the largest gain of adding a function (appendix A.2); columns of zeros have none."""
    usable = S > 0.0
    usable[usable] = Q[usable] ** 2 > S[usable]
    gain = addition_gains(S[usable], Q[usable], problem.alpha_prior)
    if problem.alpha_prior != (0.0, 0.0):
        gain = gain + per_function(problem)
    return float(np.max(gain, initial=0.0))
