"""Optimality of a fitted model, recomputed from its hyperparameters.

The certificate shares no code with the solver: it evaluates kernels and products in NumPy, decomposes the
covariance of the targets by singular values, and finds the posterior mode by its own Newton method. It sees
mRVM1 as a regression on auxiliary targets, whose expectations it integrates with functions of SciPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .._arrays import Training, check_training, last_step
from .._data import candidates as _candidates
from .._data.basis import dense_blocks
from .._estimators.likelihoods import bounded, constants, per_function
from .._estimators.noise import noise_problem
from .._estimators.posterior import weights_problem
from .._estimators.status import number_of_functions
from .._mrvm import Composite
from .._row_likelihoods import DISPERSIONS, FREEDOMS, row_likelihood
from .._types import FloatArray, IntArray, OutputsProblem, PerRow, Problem
from ..kernels._resolve import is_precomputed
from ._dense import (
    DenseFit,
    OnePredictor,
    Softmax,
    addition_gains,
    bisect,
    changes_of_groups,
    error_of_weights,
    fit_laplace,
    fit_regression,
    functions,
    max_gain_exchange,
    max_log_alpha_change,
    weights_of_functions,
)

if TYPE_CHECKING:
    from ..classification import Classification
    from ..multiclass import MRVM1, MRVM2
    from ..regression import Regression

    #: Estimators that a certificate accepts.
    Fitted: TypeAlias = Regression | Classification | MRVM1 | MRVM2

__all__ = ["Certificate", "certificate"]


@dataclass(frozen=True)
class Certificate:
    """How far a model is from the optimum that its fit claims; with several binary fits, the worst of them.

    The outputs of a regression share their precisions: changes and gains of a basis function are those of its
    weights in all outputs together.

    Attributes
    ----------
    max_log_alpha_change : float
        Largest change of the log of a precision that one more re-estimation would make (Tipping & Faul 2003,
        equation 20); inf if a basis function should be deleted (equation 21).
    max_gain_outside : float
        Largest gain in log evidence, in nats, from adding an inactive basis function (appendix, A.2).
    log_beta_residual : float
        Size of the change of the log of the noise precision that step 9 of the algorithm would make. 0 if the
        noise was given or the likelihood has none; at the floor of the noise variance 0 if the evidence would
        be larger with still less noise.
    max_mean_error : float
        Largest difference between a posterior mean of the model and the mean (or the mode) that its
        hyperparameters imply, in posterior standard deviations. With ``landmarks``, of both the selection of
        functions and the final weights; the rest of the certificate is about the selection.
    log_marginal_likelihood : float
        Log evidence in nats, the sum over the binary fits or outputs; Laplace approximation for likelihoods
        other than the Gaussian.
    n_active, n_basis : int
        Number of active basis functions, and of those in the dictionary.
    max_gain_exchange : float or None
        Largest gain in log evidence, in nats, from exchanging an active basis function for an inactive one at
        its best precision, with the noise and all other precisions fixed. None if it was not computed: with
        ``search="greedy"``, unless ``exchanges=True``. With a Gaussian likelihood it is below 1e-3 after
        ``search="exchange"``; with others the fit may have rejected an exchange once its mode was found.
    parameter_residual : float
        How far parameters of the likelihood are from their optimum. A dispersion: size of the slope of the
        log evidence per row in its log, at the precisions of the model. Student's t: the same for the degrees
        of freedom and the bound, and the largest change of the log of a row weight that one more update would
        make. With ``noise_basis`` the largest of ``max_log_alpha_change``, ``max_mean_error`` and
        ``max_gain_outside`` of the noise model, for the residuals of this model of the mean. 0
        otherwise; without the slope if the parameter was given or is at a bound.
    share_of_rows : float
        Number of functions in the model over number of rows. A model with a function for most rows may be an
        optimum and overfit.
    loo_score, loo_coverage : float or None
        Leave-one-out R^2, D^2 or accuracy of the model, and the share of rows inside their 95 % intervals;
        None where there are none: the coverage of classes, and both of models without ``loo_``. `diagnose`
        says what they mean, and tries other fits.
    """

    max_log_alpha_change: float
    max_gain_outside: float
    log_beta_residual: float
    max_mean_error: float
    log_marginal_likelihood: float
    n_active: int
    n_basis: int
    max_gain_exchange: float | None = None
    parameter_residual: float = 0.0
    share_of_rows: float = 0.0
    loo_score: float | None = None
    loo_coverage: float | None = None


def certificate(
    est: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: PerRow = None,
    *,
    y_std: PerRow = None,
    exposure: PerRow = None,
    exchanges: bool | None = None,
) -> Certificate:
    r"""Certify that a fitted model is a maximum of the marginal likelihood.

    Computes the sparsity and quality factors of the whole dictionary (Tipping & Faul 2003, equations 22 to
    25) from the covariance of the targets :math:`C = B^{-1} + \Phi A^{-1} \Phi^T` and compares the model with
    the conditions of section 4.4. Takes N M K operations, and little memory beside the N x K dictionary.

    Parameters
    ----------
    est : fitted estimator
        `RVR`, `RVC`, `SparseBayesRegressor`, `SparseBayesClassifier`, `MRVM1`, `MRVM2`, or a pipeline that
        ends in one.
    X : array-like of shape (n_samples, n_features)
        The training data.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        The training targets or labels.
    sample_weight : array-like of shape (n_samples,), optional
        The weights of the fit.
    y_std : array-like of shape (n_samples,), optional
        The standard deviations of the targets, if the fit had them.
    exposure : array-like of shape (n_samples,), optional
        The exposures, if the fit had them.
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
    close to a stationary point of the Laplace approximation, but not exactly one. After
    ``scheme="variational"`` it is about a fixed point of the updates of Bishop & Tipping (2000), with the
    bounds computed anew; gains are gains of the lower bound. For `MRVM1` it is about a maximum of the
    evidence of the auxiliary targets (Psorakis et al. 2010, equation 6), computed anew from the scores of the
    model (3, 4). It certifies a local maximum; compare two by their log evidence.

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
        raise TypeError(
            "est must be a fitted RVR, RVC, SparseBayesRegressor, SparseBayesClassifier, MRVM1 or MRVM2, or "
            f"a pipeline that ends in one; got {est!r}"
        )
    given = {"y_std": y_std, "exposure": exposure}
    known = {name: value for name, value in given.items() if value is not None}
    if known and not hasattr(est, "loo_coverage_"):
        raise ValueError(f"{next(iter(known))} must be None: a fit of {type(est).__name__} has none")
    problems = list(est._problems(X, y, sample_weight, **known))
    try:
        with np.errstate(all="ignore"):  # targets near the largest number
            fits = [_certify(problem, exchanges) for problem in problems]
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"X and y must be the training data; with these no mode was found: {error}"
        ) from None
    gains = [fit.max_gain_exchange for fit in fits if fit.max_gain_exchange is not None]
    errors = [fit.max_mean_error for fit in fits]
    if est.__dict__.get("_selection") is not None:
        errors.append(error_of_weights(weights_problem(est, X, y, sample_weight, y_std)))
    residual = max(fit.parameter_residual for fit in fits)
    if hasattr(est, "noise_model_"):
        own = certificate(est.noise_model_, *noise_problem(est, X, y, sample_weight))
        residual = max(residual, own.max_log_alpha_change, own.max_mean_error, own.max_gain_outside)
    scores = None if getattr(est, "_loo", None) is None else est._loo.scores
    return Certificate(
        max_log_alpha_change=max(fit.max_log_alpha_change for fit in fits),
        max_gain_outside=max(fit.max_gain_outside for fit in fits),
        log_beta_residual=max(fit.log_beta_residual for fit in fits),
        max_mean_error=max(errors),
        log_marginal_likelihood=float(sum(fit.log_marginal_likelihood for fit in fits)),
        n_active=len(est.alpha_),
        n_basis=fits[0].n_basis,
        max_gain_exchange=max(gains, default=None),
        parameter_residual=residual,
        share_of_rows=number_of_functions(est) / len(problems[0].Phi),
        loo_score=scores and scores.score,
        loo_coverage=None if is_classifier(est) else scores and float(np.mean(scores.loo_coverage)),
    )


def _certify(problem: Problem | OutputsProblem, exchanges: bool | None) -> Certificate:
    """Compute the certificate of one fit of one target, or of several outputs."""
    used = slice(None) if problem.weights is None else problem.weights > 0.0
    Phi, proper, (active, alpha, flat) = problem.Phi[used], problem.alpha > 0.0, functions(problem)
    w = np.ones(len(Phi)) if problem.weights is None else problem.weights[used]
    gain_exchange, gain_shift, log_evidence = None, 0.0, 0.0
    if isinstance(problem, OutputsProblem):
        prior = (0.0, 0.0)
        pairs = zip(problem.targets[used].T, problem.beta, strict=True)
        fits = [fit_regression(Phi, active, alpha, flat, t, w, beta) for t, beta in pairs]
        # S depends on the noise and not on the targets.
        own = [fit.sparsities() for fit in (fits[:1] if problem.shared_noise else fits)]
        own = own * len(fits) if problem.shared_noise else own
    else:
        prior = problem.alpha_prior
        fits = [_fit(problem, Phi, problem.target[used], w)]
        own = [fits[0].sparsities()]
        if (problem.exchanges if exchanges is None else exchanges) and not problem.variational:
            gain_exchange = max_gain_exchange(
                fits[0], *own[0], problem.active, alpha, prior, problem.complexity
            )
        gain_shift = per_function(problem)
        log_evidence = constants(problem, float(w.sum())) + problem.log_evidence_of_weights
    sparsity, excess = np.stack(own, axis=-1)
    quality, excess = np.stack([fit.Q for fit in fits], axis=1), 2.0 * problem.complexity * excess
    S_active, Q_active, R_active = np.stack([fit.active_factors(alpha) for fit in fits], axis=-1)
    variance, mean = (np.stack([getattr(fit, name) for fit in fits], axis=1) for name in ("variance", "mean"))
    mu = problem.mu[proper].reshape(mean.shape)
    error = (np.sqrt(alpha)[:, np.newaxis] * mu - mean) / np.sqrt(variance)
    flat_means = np.stack([fit.flat_mean for fit in fits], axis=1)
    flat_error = (problem.mu[~proper].reshape(flat_means.shape) - flat_means) * np.sqrt(
        np.stack([fit.flat_precision for fit in fits], axis=1)
    )
    inactive = [np.delete(part, problem.active, axis=0) for part in (sparsity, quality, excess)]
    gains = addition_gains(inactive[0], inactive[1], prior, inactive[2])
    excess_active = 2.0 * problem.complexity * R_active
    if problem.groups is not None:
        change, gain_outside = changes_of_groups(problem, fits)
    else:
        change = max_log_alpha_change(S_active, Q_active, variance, alpha, prior, excess_active)
        gain_outside = float(np.max(gains + gain_shift, initial=0.0))
    return Certificate(
        max_log_alpha_change=change,
        max_gain_outside=gain_outside,
        log_beta_residual=_log_beta_residual(problem, fits),
        max_mean_error=float(np.max(np.abs(np.concatenate([error, flat_error])), initial=0.0)),
        log_marginal_likelihood=float(sum(fit.log_evidence for fit in fits)) + log_evidence,
        n_active=len(alpha),
        n_basis=Phi.shape[1],
        max_gain_exchange=gain_exchange,
        parameter_residual=_parameter_residual(problem) if isinstance(problem, Problem) else 0.0,
    )


def _fit(problem: Problem, Phi: FloatArray, t: FloatArray, w: FloatArray) -> DenseFit:
    """Return the fit of these rows, those of positive weight."""
    active, alpha, flat = functions(problem)
    if problem.is_gaussian:
        return fit_regression(Phi, active, alpha, flat, t, w, problem.beta, problem.noise_prior)
    if problem.variational:
        found = bounded(Phi[:, active] / np.sqrt(alpha), t, w)
        root, left, singular, right, mean, pull, log_evidence = found
        return DenseFit(
            left,
            singular,
            right,
            mean,
            Q=Phi.T @ pull,
            whitened=lambda functions: root[:, np.newaxis] * Phi[:, functions],
            log_evidence=log_evidence,
        )
    if problem.likelihood == "multinomial":
        return fit_laplace(Softmax(Phi, t.astype(np.intp), w), active, alpha, flat)
    return fit_laplace(_predictor(problem, problem.shape), active, alpha, flat)


def _predictor(problem: Problem, shape: float | None) -> OnePredictor:
    """Return the rows of positive weight, with this dispersion."""
    used = slice(None) if problem.weights is None else problem.weights > 0.0
    w = np.ones(len(problem.Phi)) if problem.weights is None else problem.weights[used]
    offset = 0.0 if problem.offset is None else problem.offset[used]
    row = row_likelihood(problem.likelihood, shape)
    return OnePredictor(problem.Phi[used], problem.target[used], w, row, offset)


def _parameter_residual(problem: Problem) -> float:
    """Return how far a dispersion, or row weights and degrees of freedom, are from the best."""
    if problem.shape is None:
        return 0.0
    x, h = float(np.log(problem.shape)), 1e-4
    if problem.likelihood != "student_t":
        shapes = [float(np.exp(x + d)) for d in (-h, h)]
        fits = [fit_laplace(_predictor(problem, shape), *functions(problem)) for shape in shapes]
        traces = [float(np.sum(fit.singular**2 / (1.0 + fit.singular**2))) for fit in fits]
        low, high = (
            fit.log_evidence - problem.complexity * trace for fit, trace in zip(fits, traces, strict=True)
        )
        n_rows = len(problem.target) if problem.weights is None else float(problem.weights.sum())
        return _slope(problem, (high - low) / (2.0 * h * n_rows), DISPERSIONS)
    assert problem.row_weights is not None
    weights = np.ones(len(problem.Phi)) if problem.weights is None else problem.weights
    c = np.ones(len(weights)) if problem.counts is None else problem.counts
    Phi, nu = problem.Phi[:, problem.active], problem.shape
    H = problem.beta * (Phi.T * weights) @ Phi + np.diag(problem.alpha)
    sigma = np.linalg.inv(H)
    mu = problem.beta * sigma @ (Phi.T @ (weights * problem.target))
    beta = float(np.mean(problem.beta * weights / (c * problem.row_weights)))
    squares = beta * ((problem.target - Phi @ mu) ** 2 + np.sum((Phi @ sigma) * Phi, axis=1))
    changes = np.abs(np.log((nu + 1.0) / (nu + squares) / problem.row_weights))

    def bound(x: float) -> float:
        nu = np.exp(x)
        constant = gammaln((nu + 1.0) / 2.0) - gammaln(nu / 2.0) - np.log(nu) / 2.0
        return float(np.average(constant - (nu + 1.0) / 2.0 * np.log1p(squares / nu), weights=c))

    slope = (bound(x + h) - bound(x - h)) / (2.0 * h)
    return max(float(changes.max()), _slope(problem, slope, FREEDOMS))


def _slope(problem: Problem, slope: float, limits: tuple[float, float]) -> float:
    """Return the size of the slope in an estimated parameter that it can follow."""
    assert problem.shape is not None
    # A fit ends where the log of the parameter changes by less than 1e-6.
    low, high = (problem.shape <= limits[0] * (1.0 + 1e-5), problem.shape >= limits[1] * (1.0 - 1e-5))
    is_held = not problem.estimates_shape or (low and slope < 0.0) or (high and slope > 0.0)
    return 0.0 if is_held else abs(slope)


def _log_beta_residual(problem: Problem | OutputsProblem, fits: list[DenseFit]) -> float:
    """Return the largest |change| of ln beta that step 9 of the algorithm would make."""
    if isinstance(problem, OutputsProblem):
        fixed, at_floor = problem.fixed, problem.at_floor.tolist()
        levels = [fits] if problem.shared_noise else [[fit] for fit in fits]
    else:
        fixed, at_floor, levels = problem.noise in ("fixed", "none"), [problem.noise == "floor"], [fits]
    if fixed:
        return 0.0
    changes = []
    for level, floor in zip(levels, at_floor, strict=True):
        freedom, misfit = sum(fit.freedom for fit in level), sum(fit.misfit for fit in level)
        # d tr S / d ln beta = tr A (Sigma - Sigma A Sigma)
        c = weights_of_functions(problem)[functions(problem)[0]]
        slopes = [float(c @ ((fit.right**2).T @ (fit.shrinkage * (1.0 - fit.shrinkage)))) for fit in level]
        freedom -= 2.0 * sum(slopes)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = float(np.log(np.maximum(freedom, 0.0) / misfit)) if misfit > 0.0 else np.inf
        changes.append(max(-change, 0.0) if floor else abs(change))
    return max(changes)


# --- the multinomial probit model as a regression on its auxiliary targets --------------------------
#
# At convergence of mRVM1 (Psorakis et al. 2010) the auxiliary targets are their expectations given the
# classes and the scores (equations 3 and 4), and the precisions maximise the evidence of these targets (6): a
# regression of several outputs with noise precision 1. This E-step integrates on an even grid with SciPy's
# functions and shares no code with the core.

#: The integrand is log-concave with a curvature between 1 and the number of classes: beyond ten units from
#: its mode it vanishes, and this grid is exact to round-off for up to a hundred classes.
_HALF_WIDTH: Final = 10.0
_NODES: Final = 401
_BISECTIONS: Final = 80
#: Rows evaluated at a time.
_ROWS: Final = 256


def expected_targets(scores: FloatArray, labels: IntArray) -> FloatArray:
    """Return the expectations of the auxiliary targets, (N, C): equations (3) and (4).

    ``scores``: (N, C); ``labels``: class numbers, (N,).
    """
    n_rows, n_classes = scores.shape
    if n_rows > _ROWS:
        parts = [(scores[at : at + _ROWS], labels[at : at + _ROWS]) for at in range(0, n_rows, _ROWS)]
        return np.concatenate([expected_targets(*part) for part in parts])
    others = np.arange(n_classes) != labels[:, np.newaxis]
    own = scores[~others]
    differences = own[:, np.newaxis] - scores[others].reshape(n_rows, n_classes - 1)
    u = _modes(differences)[:, np.newaxis] + np.linspace(-_HALF_WIDTH, _HALF_WIDTH, _NODES)
    x = u[:, :, np.newaxis] + differences[:, np.newaxis, :]
    log_cdf = log_ndtr(x)
    log_terms = log_cdf.sum(axis=2) - 0.5 * u**2
    weights = np.exp(log_terms - log_terms.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    # phi instead of Phi for one of the other classes.
    shift = np.einsum("nu,nuc->nc", weights, _hazard(x, log_cdf))
    targets = scores.copy()
    targets[others] -= shift.ravel()
    targets[~others] += shift.sum(axis=1)
    return targets


def _hazard(x: FloatArray, log_cdf: FloatArray) -> FloatArray:
    r"""Return phi(x) / Phi(x)."""
    values: FloatArray = np.exp(-0.5 * (x**2 + np.log(2.0 * np.pi)) - log_cdf)
    return values


def _modes(differences: FloatArray) -> FloatArray:
    """Return the mode of each row's integrand, by bisection of the slope of its logarithm."""

    def rising(u: FloatArray) -> NDArray[np.bool_]:
        x = u[:, np.newaxis] + differences
        return np.asarray(_hazard(x, log_ndtr(x)).sum(axis=1) > u)

    high = np.maximum(-differences.min(axis=1), 0.0) + 12.0
    return bisect(np.zeros(len(differences)), high, rising, _BISECTIONS)


def written_out(est: MRVM1, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> OutputsProblem:
    """Return a fitted model as the regression on its auxiliary targets; X and y are its training data."""
    check_is_fitted(est)
    training = check_training(est, X, y, sample_weight, reset=False)
    _check_same_data(est, training)
    layout = est._layout(training)
    # The third argument serves only the initial kernel weights, which are learned here.
    composite = Composite(dense_blocks(est, training, layout.kept), layout.bias, None)
    Phi = composite.Phi(est.kernel_weights_)
    active, n_classes = layout.columns(est.active_), len(est.classes_)
    labels = np.searchsorted(est.classes_, training.y).astype(np.intp)
    return OutputsProblem(
        Phi=Phi,
        targets=expected_targets(Phi[:, active] @ est.mu_, labels),
        weights=training.weights,
        active=active,
        alpha=est.alpha_,
        mu=est.mu_,
        beta=np.ones(n_classes),
        shared_noise=True,
        fixed=True,
        at_floor=np.zeros(n_classes, dtype=np.bool_),
        log_evidence=est.log_marginal_likelihood_,
    )


def _check_same_data(est: MRVM1, training: Training) -> None:
    """Check that the data hold the classes and the relevance vectors of the fit; given centres may be any."""
    same = training.n_samples == est._n_samples and np.array_equal(np.unique(training.y), est.classes_)
    if same and not _candidates.are_given(est):
        rows = getattr(est, "candidate_rows_", est.relevance_)
        same = bool(np.isin(rows, training.rows).all())
        if same and not is_precomputed(est.kernel_):
            same = np.array_equal(training.at(rows), getattr(est, "candidates_", est.relevance_vectors_))
    if not same:
        raise ValueError("X, y, sample_weight must be the training data: classes or relevance vectors differ")
