"""Predictions of a fitted model, with error bars that hold, and the model as arrays for its certificate.

The core counts K functions for each of C classes of a softmax: number ``c * K + j`` adds function j to the
logit of class c.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from .._arrays import Training, check_training, check_X, is_operator, is_unstored
from .._checks import check_choice, check_n_jobs, check_predictions, check_prior, check_settings, real_array
from .._data.basis import as_table, columns_of, groups_of, learns_kernel, output_weights
from .._data.chunks import located, release
from .._data.design import columns_at, evaluate
from .._types import FloatArray, IntArray, OutputsProblem, PerRow, Problem, WeightsProblem
from ..kernels import Kernel, Matern32, Matern52, OnColumns
from ..kernels._base import all_log_parameters

#: Rows predicted at a time, to bound the memory.
_ROWS, _SOFTMAX_ROWS = 8192, 2048

#: Largest log of the ratio of two noise variances, to either side of the mean.
_MAX_LOG_NOISE: Final = 60.0

#: Smallest share of a class whose logit is taken.
_MIN_SHARE: Final = 1e-10


def by_blocks(
    est: Any, X: ArrayLike, predict: Callable[[FloatArray], tuple[FloatArray, ...]], n_rows: int = _ROWS
) -> tuple[FloatArray, ...]:
    """Return the arrays that ``predict`` makes of rows of X, computed a block of checked rows at a time."""
    check_is_fitted(est)
    parts = []
    if isinstance(X, np.memmap) and X.ndim == 2 and len(X) > n_rows:
        for number, start in enumerate(range(0, len(X), n_rows)):
            rows = X[start : start + n_rows]
            with located(number, start, len(rows)):
                parts.append(by_blocks(est, rows, predict, n_rows))
            release(X)
    else:
        values = check_X(est, X, reset=False)
        if is_operator(values):
            values = est._basis.rows(est.active_, values)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_predictions` reports it
            for start in range(0, values.shape[0], n_rows):
                parts.append(predict(values[start : start + n_rows]))
    found = tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    check_predictions(*found)
    return found


def moments(
    est: Any, X: ArrayLike, *, variance: bool, grows: bool = True
) -> tuple[FloatArray, FloatArray | None]:
    """Return mean and, if asked for, variance of the linear predictor, each (n, n_outputs).

    ``grows``: whether the variance grows away from the data and counts the fitted parameters, if the
    estimator is to have that.
    """
    grows = variance and grows
    added, factor = growths(est) if grows else [], variance_factor(est) if grows else 1.0

    def predict(rows: FloatArray) -> tuple[FloatArray, ...]:
        phi = _functions(est, rows)
        if not variance:
            return (phi @ output_weights(est).T,)
        mean, v = moments_at(est, phi)
        for growth in added:
            v = v + growth.variance(rows, check_n_jobs(est.n_jobs))
        return mean, v * factor

    mean, *variances = by_blocks(est, X, predict)
    return mean, variances[0] if variance else None


def moments_at(est: Any, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the linear predictor, each (n, n_outputs), given the active functions."""
    mean = phi @ output_weights(est).T
    sigmas = est.sigma_ if est.sigma_.ndim == 3 else [est.sigma_]
    # By rounding a variance close to 0 may be negative.
    v = [np.maximum(np.einsum("nj,nj->n", phi @ sigma, phi), 0.0) for sigma in sigmas]
    # Outputs with the same noise have the same covariance.
    return mean, np.broadcast_to(np.column_stack(v), mean.shape)


def log_noise(est: Any, columns: FloatArray) -> FloatArray:
    """Return u less the centre of the model: its mean over the training rows, once that is known."""
    model = est.noise_model_
    u = columns @ model.coef_ + model.intercept_[0] - est._noise_centre
    return np.asarray(np.clip(u, -_MAX_LOG_NOISE, _MAX_LOG_NOISE))


def noise_stds(est: Any, X: ArrayLike, y_std: PerRow) -> PerRow:
    """Return ``y_std`` or, if it is None and there is a noise model, what that says up to a factor."""
    if y_std is not None or not hasattr(est, "noise_model_"):
        return y_std
    n_columns = est.noise_model_.n_features_in_
    columns = columns_at(est.noise_basis_, check_X(est, X, reset=False), n_columns, "noise_basis")
    return np.asarray(np.exp(0.5 * log_noise(est, columns)))


def samples(est: Any, X: ArrayLike, n_samples: int, random: np.random.RandomState) -> FloatArray:
    """Draw linear predictors from their joint posterior, (n, n_outputs, n_samples)."""
    phi, roots = _functions_and_roots(est, X)
    draws = []
    with np.errstate(over="ignore", invalid="ignore"):  # `check_predictions` reports it
        for mean, root in zip(output_weights(est), roots, strict=True):
            z = random.standard_normal((len(mean), n_samples))
            draws.append(phi @ (mean[:, np.newaxis] + root @ z))
    eta = np.stack(draws, axis=1)
    if (added := _added_covariance(est, X)) is not None:
        for output, covariance in enumerate(np.moveaxis(added, 2, 0)):
            eta[:, output] += _root(covariance) @ random.standard_normal((len(eta), n_samples))
    check_predictions(eta)
    return eta


def joint_moments(est: Any, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the mean of the linear predictors, (n, n_outputs), and their covariance, (n, n, n_outputs)."""
    phi, roots = _functions_and_roots(est, X)
    with np.errstate(over="ignore", invalid="ignore"):
        factors = [phi @ root for root in roots]
        mean = phi @ output_weights(est).T
        covariance = np.stack([factor @ factor.T for factor in factors], axis=2)
        if (added := _added_covariance(est, X)) is not None:
            covariance += added
    check_predictions(mean, covariance)
    return mean, covariance


def _functions_and_roots(est: Any, X: ArrayLike) -> tuple[FloatArray, list[FloatArray]]:
    """Return the active functions at X, and for each output R with R R^T the covariance of the weights."""
    (phi,) = by_blocks(est, X, lambda rows: (_functions(est, rows),))
    sigmas = np.broadcast_to(est.sigma_, (len(output_weights(est)), *est.sigma_.shape[-2:]))
    factors = np.broadcast_to(np.sqrt(variance_factor(est)), len(sigmas))
    return phi, [factor * _root(sigma) for factor, sigma in zip(factors, sigmas, strict=True)]


def _root(covariance: FloatArray) -> FloatArray:
    variances, axes = np.linalg.eigh(covariance)
    # By rounding a variance close to 0 may be negative.
    return np.asarray(axes * np.sqrt(np.maximum(variances, 0.0)))


def _added_covariance(est: Any, X: ArrayLike) -> FloatArray | None:
    """Return what growing error bars add to the covariance of the rows, (n, n, n_outputs), or None."""
    added, rows, n_threads = growths(est), check_X(est, X, reset=False), check_n_jobs(est.n_jobs)
    parts = [growth.covariance(rows, n_threads) for growth in added]
    return variance_factor(est) * sum(parts[1:], start=parts[0]) if parts else None


def _functions(est: Any, rows: FloatArray) -> FloatArray:
    phi: FloatArray = est._basis.functions(est.active_, rows, check_n_jobs(est.n_jobs))
    return phi


def problems(
    est: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: PerRow = None,
    y_std: PerRow = None,
    exposure: PerRow = None,
) -> Iterator[Problem | OutputsProblem]:
    """Yield each fit of an estimator as arrays, given the training data."""
    check_is_fitted(est)
    if (selection := est.__dict__.get("_selection")) is not None:
        est = copy.copy(est)
        est.__dict__.update(selection)
    y_std = noise_stds(est, X, y_std)
    if (est._y_variance is None) != (y_std is None):
        raise ValueError(f"y_std must be that of the fit, which had {'none' if y_std is not None else 'one'}")
    if exposure is None and est._has_exposure:
        raise ValueError("exposure must be that of the fit, which had one")
    row_weights = est.__dict__.get("row_weights_")
    y_std = _stds_of_rows(est, X, y_std)
    training = check_training(est, X, y, sample_weight, y_std, exposure, reset=False)
    # A provider may not know its number of rows.
    if est._n_samples is not None and training.n_samples != est._n_samples:
        raise ValueError(
            f"X and y must be the training data, {est._n_samples} rows; got {training.n_samples} rows"
        )
    n_outputs = [1 if part.ndim == 1 else part.shape[1] for part in (est.mu_, training.y)]
    if not est._labels and n_outputs[0] != n_outputs[1]:
        raise ValueError(f"y must be the training data, with {n_outputs[0]} outputs; got {n_outputs[1]}")
    if np.any(est._offset):
        training = est._likelihood.shifted(training, est._offset)
    if is_unstored(training.X):  # for certificates of small problems
        training = replace(training, X=as_table(columns_of(training.X, np.arange(training.X.shape[1]))))
    Phi = est._basis.dense(est, training)
    columns = est._basis.whole(est, training).layout.columns(est.active_)
    if (columns >= Phi.shape[1]).any():
        raise ValueError("X must be the training data; its distinct rows are not those of the fit")
    likelihood, noise = est._likelihood, training.noise
    groups = groups_of(est, est._basis)
    complexity = check_settings(est).complexity_for(
        training.weight, Phi.shape[1] if groups is None else len(groups), training.y[:1].size
    )
    if training.y.ndim == 2:
        yield OutputsProblem(
            Phi=Phi,
            targets=training.y,
            weights=training.weights,
            active=columns,
            alpha=est.alpha_,
            mu=likelihood.model_of(est, 0, columns)[2],
            beta=np.broadcast_to(est.beta_, training.y.shape[1]),
            shared_noise=est.sigma_.ndim == 2,
            fixed=est.noise_variance is not None,
            at_floor=est._noise_at_floor,
            log_evidence=est.log_marginal_likelihood_,
            complexity=complexity,
            groups=groups,
        )
        return
    variance = 1.0 if noise is None else noise.variance  # of a row of weight 1
    rest = est.__dict__.get("_rest_of_bound", 0.0) + (0.0 if noise is None else noise.log_evidence)
    name_of_shape = "degrees_of_freedom" if likelihood.name == "student_t" else "dispersion"
    shape, rate = check_prior("noise_prior", getattr(est, "noise_prior", (0.0, 0.0)))
    for output, (target, evidence) in enumerate(
        zip(likelihood.targets(training.y), est._log_evidences, strict=True)
    ):
        active, alpha, mu = likelihood.model_of(est, output, columns)
        yield Problem(
            Phi=Phi,
            target=target,
            weights=training.weights,
            active=active,
            alpha=alpha,
            mu=mu,
            beta=getattr(est, "beta_", 1.0) / variance,
            noise=_noise_state(est),
            likelihood=likelihood.name,
            shape=getattr(likelihood, "shape", None),
            estimates_shape=getattr(est, name_of_shape, None) is None,
            offset=None if training.exposure is None else np.log(training.exposure),
            counts=training.counts,
            row_weights=None if row_weights is None else row_weights[training.rows],
            alpha_prior=check_prior("alpha_prior", est.alpha_prior),
            noise_prior=(shape, rate * variance),
            variational=est._variational,
            log_evidence=evidence,
            complexity=complexity,
            groups=groups,
            exchanges=est.search != "greedy",
            log_evidence_of_weights=rest,
        )


def weights_problem(
    est: Any, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, y_std: PerRow = None
) -> WeightsProblem:
    """Return weights under the prior of a Gaussian process as arrays, given the training data."""
    training = check_training(est, X, y, sample_weight, _stds_of_rows(est, X, y_std), reset=False)
    basis, names = est._basis, est.active_
    block, row = np.divmod(names, max(basis.size, 1))
    Phi, precision = np.ones((len(training.y), len(names))), np.zeros((len(names), len(names)))
    for p, kernel in enumerate(basis.kernels):
        at = np.flatnonzero(block == p)
        centres = basis.centres[np.searchsorted(basis.kept, row[at])]
        Phi[:, at], precision[np.ix_(at, at)] = kernel(training.X, centres), kernel(centres, centres)
    columns = basis.column_of(names)
    beside = np.flatnonzero(columns >= 0)
    if len(beside) > 0:
        values = columns_at(basis.extra, training.X, basis.n_columns) - basis.offset
        Phi[:, beside] = values[:, columns[beside]]
        squares = np.average(Phi[:, beside] ** 2, axis=0, weights=training.counts)
        precision[beside, beside] = np.where(squares > 0.0, squares, 1.0)
    alpha = np.atleast_2d(est.alpha_.T)[0]
    is_flat = alpha == 0.0
    precision[is_flat] = 0.0
    precision /= est.process_variance_
    targets = np.column_stack(est._likelihood.targets(training.y))
    weights = np.ones(len(Phi)) if training.weights is None else training.weights
    unit = 1.0 if training.noise is None else training.noise.variance
    prior_mean = np.zeros((len(names), targets.shape[1]))
    intercept = np.flatnonzero(names == -1)
    precision[intercept, intercept] = alpha[intercept]
    if est._labels:
        prior_mean[intercept] = logits_of_shares(targets, weights)
    return WeightsProblem(
        Phi=Phi,
        targets=targets,
        weights=weights,
        precision=precision,
        is_flat=is_flat,
        mu=np.atleast_2d(est.mu_.T).T,
        prior_mean=prior_mean,
        noise_variance=None if est._labels else est.noise_variance_ * unit,
    )


def _stds_of_rows(est: Any, X: ArrayLike, y_std: PerRow) -> PerRow:
    """Return ``y_std``, or what the row weights of Student's t or the noise model say, up to a factor."""
    if (row_weights := est.__dict__.get("row_weights_")) is None:
        return noise_stds(est, X, y_std)
    return np.asarray(1.0 / np.sqrt(np.where(row_weights > 0.0, row_weights, 1.0)))


def logits_of_shares(t: FloatArray, w: FloatArray) -> FloatArray:
    """Return the logits whose probabilities are the shares of the classes, (C,).

    ``t``: targets of each class, (n, C), or of the second of two, (n, 1). ``w``: weights of the rows, (n,).
    """
    shares = np.clip(np.average(t, axis=0, weights=w), _MIN_SHARE, 1.0 - _MIN_SHARE)
    rest = np.log1p(-shares) if len(shares) == 1 else np.log(shares).mean()
    return np.asarray(np.log(shares) - rest)


def _noise_state(est: Any) -> Literal["estimated", "fixed", "floor", "none"]:
    if not est._likelihood.has_noise:
        return "none"
    if est.noise_variance is not None:
        return "fixed"
    return "floor" if est.status_ == "noise_floor" else "estimated"


# --- class probabilities -------------------------------------------------------------------------------


def check_multi_class(value: object) -> bool:
    """Return whether ``multi_class`` is the softmax; raise TypeError or ValueError if it is unknown."""
    return bool(check_choice("multi_class", value, ("softmax", "ovr")) == "softmax")


def with_prior(est: Any, p: FloatArray, prior: PerRow) -> FloatArray:
    """Return class probabilities where classes have the shares ``prior`` instead of ``class_prior_``.

    If x has the same density in each class, Bayes' rule makes them proportional to p_c prior_c /
    class_prior_c (Elkan 2001, theorem 2; Saerens et al. 2002, equation 2.4).
    """
    if prior is None:
        return p
    given = real_array("prior", prior)
    if given.shape != (p.shape[1],) or not (given > 0.0).all() or abs(given.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"prior must hold {p.shape[1]} positive numbers that sum to 1, a share for each class in the "
            f"order of classes_; got {prior!r}"
        )
    if not est.class_prior_.all():
        raise ValueError(
            "prior needs a row of each class, and there is none yet of "
            f"{est.classes_[est.class_prior_ == 0.0].tolist()[0]!r}; add some by partial_fit"
        )
    with np.errstate(divide="ignore"):  # a probability of 0 stays 0
        adjusted: FloatArray = softmax(np.log(p) + np.log(given) - np.log(est.class_prior_), axis=1)
    return adjusted


def weights_in_order(alpha: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the class of each weight in the model, and its row in ``alpha_``, in the order of ``sigma_``."""
    classes, rows = np.nonzero(np.isfinite(alpha.T))
    return classes, rows


def softmax_probabilities(est: Any, X: ArrayLike, moderate: bool) -> FloatArray:
    """Return the softmax of the logits at the mode, or its mean over their posterior (`moderated`)."""

    def predict(rows: FloatArray) -> tuple[FloatArray]:
        phi = est._basis.functions(est.active_, rows, check_n_jobs(est.n_jobs))
        means = phi @ est.mu_
        if not moderate:
            return (np.exp(log_softmax(means, 1)),)
        return (np.exp(moderated(means, variances_of_differences(logit_covariances(phi, est)))),)

    (p,) = by_blocks(est, X, predict, _SOFTMAX_ROWS)
    p /= p.sum(axis=1, keepdims=True)
    return p


def logit_covariances(phi: FloatArray, est: Any) -> FloatArray:
    """Return the posterior covariance of the logits of a softmax, (n, n_classes, n_classes)."""
    classes, rows = weights_in_order(est.alpha_)
    n_classes = est.alpha_.shape[1]
    expanded, of_class = phi[:, rows], classes[:, np.newaxis] == np.arange(n_classes)
    covariance = np.empty((len(phi), n_classes, n_classes))
    for c in range(n_classes):
        mine = of_class[:, c]
        covariance[:, c] = (expanded[:, mine] @ est.sigma_[mine] * expanded) @ of_class
    return covariance


def variances_of_differences(covariance: FloatArray) -> FloatArray:
    """Return the variance of each difference of two logits, (n, n_classes, n_classes)."""
    own = np.einsum("ncc->nc", covariance)
    both = own[:, :, np.newaxis] + own[:, np.newaxis]
    # By rounding a variance close to 0 may be negative.
    variances: FloatArray = np.maximum(both - covariance - covariance.transpose(0, 2, 1), 0.0)
    return variances


def moderated_logits(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the logits of the approximate mean sigmoid over Gaussian logits (MacKay 1992)."""
    return mean / np.sqrt(1.0 + np.pi / 8.0 * variance)


def moderated(means: FloatArray, variances: FloatArray) -> FloatArray:
    r"""Return the approximate log of the mean softmax over Gaussian logits.

    :math:`1 / p_c = \sum_d e^{-(\eta_c - \eta_d)}`, and the mean of each
    :math:`\sigma(\eta_c - \eta_d)` is about :math:`\sigma(\kappa_{cd} (m_c - m_d))`, MacKay's
    :math:`\kappa_{cd} = (1 + \pi v_{cd} / 8)^{-1/2}` with the variance of that difference. So :math:`p_c
    \propto 1 / \sum_d e^{-\kappa_{cd} (m_c - m_d)}` (Daunizeau 2017), which for two classes is MacKay's
    formula.
    """
    kappa = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * variances)
    log_p = -logsumexp(kappa * (means[:, np.newaxis] - means[:, :, np.newaxis]), axis=2)
    normalised: FloatArray = log_p - logsumexp(log_p, axis=1, keepdims=True)
    return normalised


def log_normalised(logits: FloatArray) -> FloatArray:
    r"""Return the log probability of each class, (n, n_classes), given its log odds against the rest.

    Independent fits say that class c holds with the odds :math:`e^{z_c}`. Given that exactly one class holds,
    :math:`P(c) \propto \sigma(z_c) \prod_{d \neq c} (1 - \sigma(z_d)) \propto e^{z_c}`. One column holds the
    log odds of the second of two classes.
    """
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    log_p: FloatArray = log_softmax(logits, axis=1)
    return log_p


def normalised(logits: FloatArray) -> FloatArray:
    """Return the probability of each class, (n, n_classes), given its log odds against the rest."""
    return np.exp(log_normalised(logits))


# --- error bars that hold: they grow away from the data, and count the parameters chosen ------------
#
# The posterior of the plain model has almost no variance far from its functions. A Gaussian process of
# covariance v k, given its values at centres Z, has at x the variance
#
#     v (k(x, x) - k(x, Z) K_ZZ^-1 k(Z, x)),
#
# 0 at Z and v k(x, x) far away. 1e-6 of k(x, x) is subtracted, as it may be rounding, and 1e-9 for a Matern
# kernel, whose matrices are far from singular. Z are the relevance vectors and the training rows, at most
# 100, that this variance is largest at, one after another: a pivoted Cholesky factorisation of K. v makes
# the mean of v k(x, x) over the training rows the variance of what the kernel contributes to the fit.
# Several kernels add up. Weights with a Gaussian process as their prior have that of the process, without
# further landmarks: v is known. The cost is independent of the number of rows.
#
# The variance is multiplied by (N - M) / (N - M - P) for N rows, M weights, and P other parameters that
# were fitted to the same rows: the precisions of the weights and the parameters of learned kernels. The
# noise variance of a fit, its residual sum of squares over N - sum_j gamma_j (Tipping & Faul 2003), counts
# weights only. Under a Gaussian process M are the weights of flat prior, and v is one parameter: all other
# rows determine the scale of the targets.

#: Most landmarks besides the relevance vectors, and most rows that they are chosen from. Of six tables of
#: 2000 rows the mean nlpd is 0.730 with 500, 0.731 with 250 and 0.732 with 2000, which take 20 ms more.
_MAX_LANDMARKS: Final = 100
_MAX_POOL: Final = 500
#: Variances relative to k(x, x): a vector with less than the first is no landmark; others end at the second.
MIN_VARIANCE, MIN_LANDMARK = 1e-6, 1e-3
#: Rows at a time for computing k(x, x) from k(X, X).
_DIAGONAL_ROWS: Final = 64
#: Pivots of a block of the factorisation.
_BLOCK: Final = 128
#: Largest factor of the variance.
_MAX_FACTOR: Final = 4.0


@dataclass(frozen=True, eq=False)
class Growth:
    """The prior of one kernel given its values at the centres Z."""

    kernel: Kernel
    centres: FloatArray
    #: The Cholesky factor of K_ZZ.
    factor: FloatArray
    #: v of each output.
    scale: FloatArray

    def variance(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the variance at these rows, (n, n_outputs)."""
        rest = self._rest(X, self._projection(X, n_threads))
        return np.asarray(rest[:, np.newaxis] * self.scale)

    def covariance(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        """Return the covariance of these rows, (n, n, n_outputs)."""
        projection = self._projection(X, n_threads)
        rest = evaluate(self.kernel, X, X, n_threads) - projection.T @ projection
        rest = 0.5 * (rest + rest.T)
        np.fill_diagonal(rest, self._rest(X, projection))
        return np.asarray(rest[:, :, np.newaxis] * self.scale)

    def _rest(self, X: FloatArray, projection: FloatArray) -> FloatArray:
        """Return the variances for v = 1."""
        share = 1.0 - rounding(self.kernel)
        rest = share * diagonal(self.kernel, X) - np.sum(projection**2, axis=0)
        return np.asarray(np.maximum(rest, 0.0))

    def _projection(self, X: FloatArray, n_threads: int | None) -> FloatArray:
        values = evaluate(self.kernel, self.centres, X, n_threads)
        return np.asarray(solve_triangular(self.factor, values, lower=True, check_finite=False))


def rounding(kernel: Kernel, precision: str = "float64") -> float:
    """Return the share of k(x, x) that may be rounding in what landmarks leave of it."""
    if isinstance(kernel, OnColumns):
        return rounding(kernel.inner(), precision)
    return 1e-9 if isinstance(kernel, (Matern32, Matern52)) and precision == "float64" else 1e-6


def check_std(est: Any) -> bool:
    """Return whether error bars grow; raise TypeError or ValueError for an unknown ``std``."""
    return bool(check_choice("std", getattr(est, "std", "plain"), ("full", "plain")) == "full")


def growths(est: Any) -> list[Growth]:
    """Return what the error bars of a fitted model grow by; ValueError if its fit did not prepare it."""
    if not check_std(est):
        return []
    if est._growths is None:
        raise ValueError("std='full' needs landmarks, which a fit with std='full' chooses: fit again")
    return list(est._growths)


def variance_factor(est: Any) -> FloatArray:
    """Return the factor of the variance for fitted parameters, of each output or of all, (C or 1,)."""
    return est._variance_factor if check_std(est) else np.ones(1)


def variance_factor_of(est: Any, n_rows: float | None) -> FloatArray:
    """Return that factor of a fit to so many rows."""
    if n_rows is None or est._likelihood.name != "gaussian" or est.noise_variance is not None:
        return np.ones(1)
    alpha = np.atleast_2d(est.alpha_.T)
    n_weights = np.isfinite(alpha).sum(axis=1)
    n_others = (np.isfinite(alpha) & (alpha > 0.0)).sum(axis=1)
    if has_process(est):  # all rows determine the scale of the process and the noise
        n_weights, n_others = (alpha == 0.0).sum(axis=1), np.ones(1)
    if np.ndim(est.noise_variance_) == 0:  # the outputs share it
        n_weights, n_others = n_weights.mean(keepdims=True), n_others.mean(keepdims=True)
    if learns_kernel(est):
        theta = all_log_parameters(est._basis.kernels)
        n_others = n_others + np.isfinite(theta).sum() / len(alpha)
    share = n_others / np.maximum(n_rows - n_weights, 1.0)
    return np.asarray(1.0 / np.maximum(1.0 - share, 1.0 / _MAX_FACTOR))


def growths_of(est: Any, training: Training | None) -> list[Growth] | None:
    """Choose landmarks among the training rows, or else the candidates; None with plain error bars."""
    if not check_std(est):
        return None
    found: list[Growth] = []
    pool = est.__dict__.get("candidates_") if training is None else training.X
    if pool is None or not est._basis.kernels:
        return found
    counts = None if training is None else training.counts
    if len(pool) > _MAX_POOL:
        chosen = np.linspace(0, len(pool) - 1, _MAX_POOL).astype(np.intp)
        pool, counts = pool[chosen], None if counts is None else counts[chosen]
    if has_process(est):
        pool, counts = pool[:0], None
    block, row = np.divmod(est.active_, est._basis.size)
    weights, n_threads = output_weights(est), check_n_jobs(est.n_jobs)
    for p, kernel in enumerate(est._basis.kernels):
        if not (inside := block == p).any():
            continue
        centres = est.relevance_vectors_[np.searchsorted(est.relevance_, row[inside])]
        if has_process(est):
            scale = np.array([est.process_variance_])
        else:
            own = diagonal(kernel, pool)
            contribution = evaluate(kernel, pool, centres, n_threads) @ weights[:, inside].T
            if est._basis.bias:  # the intercept holds the mean
                contribution = contribution - np.average(contribution, axis=0, weights=counts)
            square = np.average(contribution**2, axis=0, weights=counts)
            height = np.average(own, weights=counts)
            if not height > 0.0:
                continue
            scale = square / height
        at, factor = pivoted(kernel, centres, pool, n_threads, _MAX_LANDMARKS)
        found.append(Growth(kernel, np.vstack([centres, pool])[at], factor, scale))
    return found


def has_process(est: Any) -> bool:
    """Tell whether the weights of a regression have a Gaussian process as their prior."""
    return hasattr(est, "process_variance_") and est._likelihood.has_noise


def pivoted(
    kernel: Kernel,
    centres: FloatArray,
    pool: FloatArray,
    n_threads: int | None,
    most: int,
    least: float = MIN_LANDMARK,
) -> tuple[list[int], FloatArray]:
    """Return centres and at most so many landmarks, numbered as stacked, and the Cholesky factor of K.

    Landmarks end where the variance of all others given them is at most ``least`` times k(x, x).
    """
    points, n = np.vstack([centres, pool]), len(centres)
    K = evaluate(kernel, points, points, n_threads)
    own = np.diag(K).copy()
    if len(pool) == 0 and (factor := _factor(K)) is not None:
        return list(range(n)), factor
    rest = np.maximum(own, 0.0)  # an indefinite kernel may be negative
    pivots: list[int] = []
    rows = np.empty((n + min(most, len(pool)), len(points)))

    def add(j: int) -> None:
        nonlocal K
        k = len(pivots)
        if (begin := k - k % _BLOCK) == k > 0:  # what the last pivots explain, by one product of matrices
            K -= rows[k - _BLOCK : k].T @ rows[k - _BLOCK : k]
        rows[k] = (K[j] - rows[begin:k, j] @ rows[begin:k]) / np.sqrt(rest[j])
        np.maximum(rest - rows[k] ** 2, 0.0, out=rest)
        pivots.append(j)

    for j in range(n):
        if rest[j] > MIN_VARIANCE * abs(own[j]):
            add(j)
    for _ in range(min(most, len(pool))):
        j = n + int(np.argmax(rest[n:]))
        if not rest[j] > least * abs(own[j]):
            break
        add(j)
    return pivots, np.ascontiguousarray(rows[: len(pivots), pivots].T)


def _factor(K: FloatArray) -> FloatArray | None:
    """Return the Cholesky factor of K; None if a variance given those before it may be rounding."""
    try:
        factor = np.linalg.cholesky(K)
    except np.linalg.LinAlgError:
        return None
    is_large = np.diag(factor) ** 2 > MIN_VARIANCE * np.abs(np.diag(K))
    return np.ascontiguousarray(factor) if is_large.all() else None


def diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return k(x, x) of each row."""
    blocks = (X[start : start + _DIAGONAL_ROWS] for start in range(0, len(X), _DIAGONAL_ROWS))
    return np.concatenate([np.diagonal(kernel(block, block)) for block in blocks])
