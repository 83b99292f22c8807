r"""Leave-one-out predictive densities of a fit, in closed form, with the hyperparameters as fitted.

The posterior of the linear predictor eta of row n is N(m, v). The row contributed a Gaussian factor, with the
gradient e and the negative second derivative b of its log likelihood, both times its weight. Division by that
factor gives the posterior from the other rows, the cavity distribution:

    variance  v / (1 - h)  and  mean  m - e v / (1 - h),  with  h = b v.

It is exact for a Gaussian likelihood (b is the noise precision, h the leverage: the residual t - m grows to
(t - m) / (1 - h)), and a Laplace approximation for others (Vehtari et al. 2016); see
``docs/theory/leave-one-out.md``. A fit computes m and v only; the rest follows when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, ndtri
from sklearn.utils.validation import check_is_fitted

from .._arrays import Training, is_unstored
from .._data.basis import Basis, as_table, block_rows
from .._row_likelihoods import ROW_LIKELIHOODS, RowLikelihood
from .._types import FloatArray, IntArray
from .likelihoods import Classes, Likelihood, curvature
from .posterior import (
    log_normalised,
    logit_covariances,
    moderated,
    moderated_logits,
    moments_at,
    normalised,
    variances_of_differences,
)

#: Least 1 - h: by rounding h may reach 1. And the least that follows from a posterior covariance, which may
#: have lost most of its digits.
_MIN_REMAINDER, _MIN_KNOWN = 1e-14, 1e-3
#: Probability below and above a 95 % interval, and its limit in standard deviations.
_TAIL: Final = 0.025
_Z95: Final = float(ndtri(1.0 - _TAIL))


def attribute(name: str) -> Any:
    """Return a property that reads one of the `Scores`."""

    def read(est: Any) -> Any:
        check_is_fitted(est)
        if est._loo is None:
            raise AttributeError(
                f"{name} needs the rows of the fit, and this model was fitted to sums, chunks or a provider: "
                "fit it to arrays in memory, or score other rows by sparsebayes.model_selection.density_score"
            )
        return getattr(est._loo.scores, name.strip("_"))

    return property(read, doc="Of each training row given the other rows; see the attributes above.")


class Scores(NamedTuple):
    """How well each row is predicted without it."""

    #: Log densities, (n_samples,) or (n_samples, n_outputs), or those of classes; NaN at weight 0.
    loo: FloatArray
    #: Share of rows, by weight, that are within their 95 % intervals, of each output.
    loo_coverage: float | FloatArray
    #: Mean log density over the rows, by weight, and outputs.
    mean_log_density: float
    #: R^2, the mean over outputs, or D^2, or the share of rows whose class is the most probable.
    score: float


@dataclass(eq=False, repr=False)
class LeaveOneOut:
    """Predictions of each training row without it, from the posterior of the linear predictors.

    Rows of weight 0 are not in the arrays. Pickles hold the scores only.
    """

    likelihood: Likelihood
    variational: bool
    #: Number of each row in the data, and the number of rows of the data.
    rows: IntArray | slice
    n_samples: int
    #: Sample weights; None: all 1.
    counts: FloatArray | None
    #: Targets: of each output, of each class against the rest, or (n, 1) numbers of classes of a softmax.
    t: FloatArray
    #: Noise variance of one target, of each row or output or of all.
    noise: FloatArray | float
    #: Moments of the linear predictors, (n, n_outputs); of a softmax the cavity's log probabilities.
    m: FloatArray
    v: FloatArray
    #: The distribution of a target.
    row: RowLikelihood
    #: Exposure of each row.
    exposure: FloatArray

    def __getstate__(self) -> dict[str, Any]:
        """Return the scores: without targets, and a fifth of the size."""
        return {"scores": self.scores}

    def __repr__(self) -> str:
        """Return the text of the scores: the same for copies, which Dask relies on."""
        return repr(self.scores)

    @cached_property
    def scores(self) -> Scores:
        """The scores, computed at the first use."""
        with np.errstate(all="ignore"):
            if isinstance(self.likelihood, Classes):
                density, good, mean = self._of_classes(at_mode=self.likelihood.at_mode)
            else:
                density, good, mean = self._of_numbers()
            loo = np.full((self.n_samples, *density.shape[1:]), np.nan)
            loo[self.rows] = density
            share, average = (np.average(part, axis=0, weights=self.counts) for part in (good, density))
            coverage = share if share.ndim else float(share)
            return Scores(loo, coverage, float(average.mean()), self._score(share, mean))

    def _score(self, share: FloatArray, mean: FloatArray) -> float:
        if isinstance(self.likelihood, Classes):
            return float(share)
        if (own := self.row.targets) is not None:
            return own.score(self.t, np.nan_to_num(mean), self.exposure, self.counts)
        constant = np.average(self.t, axis=0, weights=self.counts)
        error, total = (
            np.average((self.t - centre) ** 2, axis=0, weights=self.counts) for centre in (mean, constant)
        )
        return float(np.mean(1.0 - error / total))

    def slopes(self) -> tuple[FloatArray, FloatArray]:
        """Return e and b of each row at the mean, (n, n_outputs), for Gaussian noise or classes."""
        w = _column(self.counts)
        if isinstance(self.likelihood, Classes):
            return w * self.row.slope(self.m, self.t), w * self.row.curvature(self.m, self.t)
        e = w * (self.t.reshape(self.m.shape) - self.m) / self.noise
        return e, np.broadcast_to(w / self.noise, e.shape)

    def gaussian(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of each target given the other rows, (n, n_outputs)."""
        mean, variance = cavity(self.m, self.v, *self.slopes())
        return mean, np.sqrt(variance + self.noise)

    def _of_numbers(self) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Return log density, whether the target is in its interval, and prediction of each row."""
        m, v, w, row = self.m, self.v, _column(self.counts), self.row
        t = self.t.reshape(m.shape)
        e, b = self.slopes()
        if row.targets is None:
            mean, std = self.gaussian()
            z = (t - mean) / std
            density, inside = -0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi), np.abs(z) <= _Z95
        else:
            if not self.likelihood.has_noise:
                e, b = w * row.slope(m, t), w * row.curvature(m, t)
            mean, variance = cavity(m, v, e, b)
            density = row.log_mean_likelihood(t, mean, variance)
            below, up_to = row.targets.distribution(mean, variance, t)
            inside, mean = (up_to >= _TAIL) & (below < 1.0 - _TAIL), row.targets.predict(mean, None)
        shape = self.t.shape
        return density.reshape(shape), inside.reshape(shape), mean.reshape(shape)

    def _of_classes(self, *, at_mode: bool) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Return log probability of the class, whether it is the most probable, and the predicted class."""
        t, m, v, w = self.t, self.m, self.v, _column(self.counts)
        if self.likelihood.name == "multinomial":
            log_p, numbers = m, t[:, 0].astype(np.intp)
        else:
            if self.variational:  # the quadratic bound, at its best: xi^2 = E[eta^2]
                b = curvature(np.sqrt(m**2 + v))
                e = t - 0.5 - b * m
            else:
                row = self.row
                e, b = row.slope(m, t), row.curvature(m, t)
            if at_mode:
                p = normalised(m)[:, -m.shape[1] :]
                e, b = t - p, p * (1.0 - p)
            mean, variance = cavity(m, v, w * e, w * b)
            log_p = log_normalised(mean if at_mode else moderated_logits(mean, variance))
            numbers = t[:, 0].astype(np.intp) if t.shape[1] == 1 else np.argmax(t, axis=1)
        predicted = np.argmax(log_p, axis=1)
        return log_p[np.arange(len(t)), numbers], predicted == numbers, predicted.astype(np.float64)


def leave_one_out(
    est: Any,
    basis: Basis,
    training: Training,
    n_threads: int | None,
    at_rows: tuple[FloatArray, FloatArray] | None = None,
) -> LeaveOneOut:
    """Return the leave-one-out predictions of a fit whose posterior is already published.

    ``at_rows``: moments of the linear predictors at the rows, if they are known.
    """
    X, likelihood, counts = basis.rows(est.active_, training.X), est._likelihood, training.counts
    classifies = isinstance(likelihood, Classes)
    t = np.column_stack(likelihood.targets(training.y)) if classifies else training.y
    noise = getattr(est, "noise_variance_", 1.0)
    if training.noise is not None:
        # In units of y_std^2, which is proportional to counts / weights.
        precisions = _column(training.weights) / _column(counts)
        noise = noise * training.noise.variance / precisions
    m, v = _at_rows(est, basis, X, t, counts, n_threads, noise) if at_rows is None else at_rows
    if training.exposure is not None:
        m = m + np.log(training.exposure)[:, np.newaxis]
    rows, n = slice(None) if X.shape[0] == training.n_samples else training.rows, training.n_samples
    # A softmax uses none.
    row = ROW_LIKELIHOODS["bernoulli"] if classifies else likelihood.row(est)
    own = (likelihood, est._variational, rows, n, counts, t, noise, m, v, row, training.exposures)
    return LeaveOneOut(*own)


def _at_rows(
    est: Any,
    basis: Basis,
    X: Any,
    t: FloatArray,
    counts: FloatArray | None,
    n_threads: int | None,
    noise: FloatArray | float,
) -> tuple[FloatArray, FloatArray]:
    """Return the moments of the linear predictors at the rows, or for a softmax what `_softmax` returns."""
    softmax = est._likelihood.name == "multinomial"
    parts, height = [], block_rows(basis.n_blocks + est.mu_.size + (est.alpha_.size if softmax else 0))
    columns, n = None if is_unstored(X) else basis.columns, X.shape[0]
    with np.errstate(all="ignore"):
        for start in range(0, n, height):
            at = slice(start, start + height)
            own = None if columns is None else columns[at]
            phi = basis.functions(est.active_, X[at], n_threads, own)
            parts.append(
                _softmax(est, phi, t[at], None if counts is None else counts[at])
                if softmax
                else moments_at(est, phi)
            )
    m, v = parts[0] if len(parts) == 1 else (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if len(parts) == 1 and est.mu_.ndim == 1 and est._likelihood.has_noise:
        b = np.broadcast_to(_column(counts) / noise, m.shape)
        if (b * v).max() > 1.0 - _MIN_KNOWN:
            # h is the square of a row of Q, where Q R has the rows of phi times the root of b, and below them
            # the roots of the prior precisions.
            stacked = np.vstack([np.sqrt(b) * as_table(phi), np.diag(np.sqrt(est.alpha_))])
            v = np.sum(np.linalg.qr(stacked)[0][:n] ** 2, axis=1, keepdims=True) / b
    return m, v


def _column(values: FloatArray | None) -> Any:
    """Return numbers of rows as a column, or 1 if they are all 1."""
    return np.ones((1, 1)) if values is None else values[:, np.newaxis]


def cavity(
    m: FloatArray, v: FloatArray, e: FloatArray, b: FloatArray, least: float = _MIN_REMAINDER
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the linear predictor from the other rows; 1 - h is at least ``least``."""
    variance = v / np.maximum(1.0 - b * v, least)
    return m - e * variance, variance


def _softmax(
    est: Any, phi: FloatArray, t: FloatArray, counts: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return log probabilities of the classes from the cavity of all logits, b = diag(p) - p p^T."""
    m, V, w = phi @ est.mu_, logit_covariances(phi, est), _column(counts)
    identity, p = np.eye(m.shape[1]), np.exp(log_softmax(m, axis=1))
    B = w[:, :, np.newaxis] * (p[:, :, np.newaxis] * identity - p[:, :, np.newaxis] * p[:, np.newaxis])
    V = np.linalg.solve(identity - (1.0 - _MIN_REMAINDER) * V @ B, V)
    e = w * (identity[t[:, 0].astype(np.intp)] - p)
    log_p = moderated(m - np.einsum("ncd,nd->nc", V, e), variances_of_differences(V))
    return log_p, np.zeros(log_p.shape)
